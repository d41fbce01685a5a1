//! Writing parts.
//!
//! # A crash at any point
//! A part is a new file, to which frames are only added. What is cut off ends with the last frame that is whole, and the next part begins
//! there. A part counts as archived up to where it was synced, with its name; one that never was goes again when it fails, as there is an end
//! to names.

use super::format::{PartBegin, PartEnd, begin_frame, end_frame, part_name};
use crate::Result;
use crate::backup::format::{Codec, FrameKind, HEAD, Head};
use crate::log::Note;
use gannet_io::{AlignedBuffer, Class, Disk, Durability, ErrorKind, File, ModeRequest, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part that is being written.
#[derive(Debug)]
pub(super) struct PartWriter {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    archive_id: u64,
    offset: u64,
    frames: u64,
    is_named: bool,
    latest_unix_us: u64,
    points: u64,
}

impl PartWriter {
    /// Begins a part: a file of a name that none has.
    pub(super) fn begin(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        mode: ModeRequest,
        begin: &PartBegin,
    ) -> Result<Self> {
        let mut attempt = 0;
        let (path, file) = loop {
            let path = folder.join(part_name(begin.first, attempt));
            match disk.open(&path, &OpenOptions::create_new().mode(mode)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 9999 => attempt += 1,
                opened => break (path, opened?),
            }
        };
        let mut part = PartWriter {
            disk: Arc::clone(disk),
            folder: folder.to_owned(),
            path,
            file,
            archive_id: begin.archive_id,
            offset: 0,
            frames: 0,
            is_named: false,
            latest_unix_us: 0,
            points: 0,
        };
        let frame = begin_frame(begin)?;
        let mut buffer = AlignedBuffer::zeroed(frame.len());
        buffer.copy_from_slice(&frame);
        part.write(&buffer)?;
        Ok(part)
    }

    /// Whether the file has its name still.
    pub(super) fn is_there(&self) -> Result<bool> {
        Ok(self.disk.exists(&self.path)?)
    }

    /// Bytes of the file so far.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, frame: &[u8]) -> Result<()> {
        self.file.write_at(Class::Maintenance, self.offset, frame, Durability::Cached)?;
        self.offset += frame.len() as u64;
        self.frames += 1;
        Ok(())
    }

    /// Adds `len` bytes of the log from `first` on, which stand in `buffer` behind the room for a frame's head, and behind which there is
    /// room up to a multiple of it.
    pub(super) fn put(&mut self, first: u64, buffer: &mut [u8], len: usize) -> Result<()> {
        let mut head = self.head(first, len);
        head.stored_len = len as u32;
        let end = HEAD + head.padded_len();
        buffer[HEAD + len..end].fill(0);
        head.stored_sum = head.sum(&buffer[HEAD..HEAD + len]);
        head.encode(buffer);
        self.write(&buffer[..end])
    }

    /// Adds so many bytes of the log that mean nothing.
    pub(super) fn put_blank(&mut self, first: u64, buffer: &mut [u8], len: u64) -> Result<()> {
        let mut head = self.head(first, len as usize);
        head.codec = Codec::Zeros;
        head.stored_sum = head.sum(&[]);
        head.encode(buffer);
        self.write(&buffer[..HEAD])
    }

    fn head(&self, first: u64, len: usize) -> Head {
        let mut head = Head::new(FrameKind::Log, self.archive_id);
        (head.number, head.first, head.content_len) = (self.frames, first, len as u32);
        head
    }

    /// Takes notice of what a note in its log says.
    pub(super) fn note(&mut self, note: &Note) {
        self.latest_unix_us = self.latest_unix_us.max(note.unix_us());
        self.points += u64::from(matches!(note, Note::Point { .. }));
    }

    /// Makes everything so far durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync(Class::Maintenance)?;
        if !self.is_named {
            self.disk.sync_dir(&self.folder)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Ends the part, durably.
    pub(super) fn seal(mut self, end: u64) -> Result<()> {
        let (frames, latest_unix_us, points) = (self.frames + 1, self.latest_unix_us, self.points);
        let frame = end_frame(self.archive_id, &PartEnd { end, frames, latest_unix_us, points })?;
        let mut buffer = AlignedBuffer::zeroed(frame.len());
        buffer.copy_from_slice(&frame);
        self.write(&buffer)?;
        self.sync()
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        if !self.is_named {
            // What remains without this is a part that nobody relies on.
            let _ = self.disk.remove(&self.path);
        }
    }
}
