//! The folder of an archive: whose it is, and which parts are in it.
//!
//! # Invariants
//! 1. An archive is of one database, and of one copy of it: each part names the times that this copy was open.
//! 2. A part counts up to where the next one begins, and has log of one segment only. So one that was broken off is followed by another one,
//!    which may begin with log that others have as well, and nothing that is there is ever written to again. Where several have the same
//!    log the one that was begun last counts, as far as it comes, and behind that those before it.
//! 3. A part whose first frame is not whole was never begun: a crash came first, and another one has the log from where that would have begun. Where
//!    none has, it is damaged.

use super::format::{
    END_LEN, INFO, Info, POSITION, PartBegin, PartEnd, Position, parse_part, read_text, read_text_frame,
};
use crate::backup::format::{FrameKind, HEAD, Head, STORED_MAX};
use crate::{Error, Result};
use gannet_io::{AlignedBuffer, Class, Disk, ErrorKind, ModeRequest, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) begin: PartBegin,
    /// What it says of itself where it is complete.
    pub(super) end: Option<PartEnd>,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

/// An archive, as it is found.
pub(super) struct Folder {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) mode: ModeRequest,
    pub(super) info: Info,
    /// How far it had come at some time.
    pub(super) position: Position,
    /// Where each of its parts begins, which attempt it is, and its name; ascending.
    pub(super) names: Vec<(u64, u32, String)>,
}

impl Folder {
    /// The archive in a folder; `None` where there is none yet.
    ///
    /// # Errors
    /// [`Error::Backup`] where something is there that is no archive, [`Error::Invalid`] for a URL, and what the folder says.
    pub(super) fn find(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<Option<Self>> {
        if path.to_string_lossy().contains("://") {
            return Err(Error::Invalid(format!(
                "{path:?} is a URL: an archive of the log is a folder, only backups go to URLs"
            )));
        }
        // Before it is looked for parts: what is archived meanwhile is in those that are found, and not in what was noted.
        let position = read_text(&**disk, &path.join(POSITION))?.unwrap_or_default();
        let mut names: Vec<(u64, u32, String)> = disk
            .list(path)?
            .into_iter()
            .filter_map(|name| parse_part(&name).map(|(first, attempt)| (first, attempt, name)))
            .collect();
        names.sort();
        let Some(info) = read_text::<Info>(&**disk, &path.join(INFO))? else {
            return match names.first() {
                None => Ok(None),
                Some((.., name)) => Err(Error::Backup(format!(
                    "{path:?} has parts of an archive, {name:?} for one, and no {INFO}, which says whose they are: put it back, or take \
                     another folder"
                ))),
            };
        };
        let size = info.segment_size;
        if !size.is_power_of_two() || !(1 << 18..=1 << 30).contains(&size) {
            let file = path.join(INFO);
            return Err(Error::Backup(format!(
                "{file:?} is damaged: it says that a log segment has {size} bytes"
            )));
        }
        let (disk, path) = (Arc::clone(disk), path.to_owned());
        Ok(Some(Folder { disk, path, mode, info, position, names }))
    }

    /// The archive in a folder, which there is.
    pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<Self> {
        let found = Self::find(disk, path, mode).map_err(|error| match error {
            Error::Io(io) if io.kind() == ErrorKind::NotFound => {
                Error::Backup(format!("there is no folder {path:?} with an archive"))
            }
            error => error,
        })?;
        found.ok_or_else(|| Error::Backup(format!("there is no archive in {path:?}")))
    }

    /// The parts that may have log from `from` on, oldest first: those of the segment that the last one begins in which begins there or
    /// before, and all behind them. There may be very many: `look` is asked before each.
    pub(super) fn parts_from(&self, from: u64, look: &mut dyn FnMut() -> Result<()>) -> Result<Vec<Part>> {
        let segment = |index: usize| self.names[index].0 / self.info.segment_size;
        let first_of_segment = |mut index: usize| {
            while index > 0 && segment(index - 1) == segment(index) {
                index -= 1;
            }
            index
        };
        let mut begin = self.names.partition_point(|(first, ..)| *first <= from).saturating_sub(1);
        if begin < self.names.len() {
            begin = first_of_segment(begin);
        }
        let mut parts: Vec<Part> = Vec::new();
        loop {
            for (.., name) in &self.names[begin..] {
                look()?;
                let Some(mut part) = self.part(name)? else { continue };
                // Those of one opening have the same list, and there may be many thousands.
                if let Some(before) = parts.last().filter(|before| before.begin.lives == part.begin.lives) {
                    part.begin.lives = Arc::clone(&before.begin.lives);
                }
                parts.push(part);
            }
            if begin == 0 || parts.first().is_some_and(|part| part.begin.first <= from) {
                return Ok(parts);
            }
            // None of those that begin there was.
            parts.clear();
            begin = first_of_segment(begin - 1);
        }
    }

    /// Parts whose first frame is not whole, and where they begin, from `from` to `to`.
    pub(super) fn not_begun(
        &self,
        from: u64,
        to: u64,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for (first, _, name) in self.names.iter().filter(|(first, ..)| (from..=to).contains(first)) {
            look()?;
            if self.part(name)?.is_none() {
                found.push((*first, self.path.join(name)));
            }
        }
        Ok(found)
    }

    /// A part; `None` where it was never begun.
    fn part(&self, name: &str) -> Result<Option<Part>> {
        let path = self.path.join(name);
        let file = self.disk.open(&path, &OpenOptions::read().mode(self.mode))?;
        let bytes = file.len()?;
        if bytes < 2 * HEAD as u64 {
            return Ok(None);
        }
        let mut buffer = AlignedBuffer::zeroed((2 * HEAD).min(bytes as usize));
        file.read_at(Class::Maintenance, 0, &mut buffer)?;
        let Ok(head) = Head::decode(&buffer) else { return Ok(None) };
        let len = HEAD + head.padded_len();
        if head.kind != FrameKind::Begin || len as u64 > bytes || len > HEAD + STORED_MAX {
            return Ok(None);
        }
        if len > buffer.len() {
            buffer = AlignedBuffer::zeroed(len);
            file.read_at(Class::Maintenance, 0, &mut buffer)?;
        }
        let stored = &buffer[HEAD..HEAD + head.stored_len as usize];
        let Ok(begin) = read_text_frame::<PartBegin>(&head, stored) else { return Ok(None) };
        if begin.archive_id != self.info.archive_id || begin.database_id != self.info.database_id {
            return Err(Error::Backup(format!("{path:?} is a part of another archive: move it away")));
        }
        if parse_part(name).is_none_or(|(first, _)| first != begin.first) {
            return Err(Error::Backup(format!(
                "{path:?} begins at lsn {}: parts of the archive were renamed or swapped",
                begin.first
            )));
        }
        let mut end = None;
        // An interrupted copy may end anywhere. Frames are whole blocks, and only those can be read.
        let whole = bytes & !(HEAD as u64 - 1);
        if whole >= (len + END_LEN) as u64 {
            let mut buffer = AlignedBuffer::zeroed(END_LEN);
            file.read_at(Class::Maintenance, whole - END_LEN as u64, &mut buffer)?;
            end = Head::decode(&buffer)
                .ok()
                .filter(|head| head.kind == FrameKind::End && head.backup == begin.archive_id)
                .and_then(|head| {
                    let stored = buffer.get(HEAD..HEAD + head.stored_len as usize)?;
                    read_text_frame(&head, stored).ok()
                });
        }
        Ok(Some(Part { path, begin, end, bytes }))
    }
}
