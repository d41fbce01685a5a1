//! Putting the log of an archive behind that of a backup.
//!
//! # How much of it
//! All of it may be many times as long as the database, and is in the archive already. So whoever is given it may apply what is there to the pages, and let
//! that log go ([`Place::written`]), as a database does with a checkpoint.
//!
//! # A crash at any point
//! This is a part of a restore: the file has no header yet, and is recognised as one that was begun (`backup::restore`).

use super::plan::{self, Plan, RecoveryTarget};
use super::reader::{self, Reader, Said, Why};
use crate::backup::Manifest;
use crate::engine::Engine;
use crate::jobs::{Permit, Watch};
use crate::log::{BLOCK, Met, Note, Step};
use crate::{Error, Result, space};
use gannet_base::memory::Purpose;
use gannet_io::{AlignedBuffer, Class, Durability, File, ModeRequest};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are written at one time.
const WRITE: usize = 256 << 10;

/// An archive whose log is put behind a backup.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    pub(crate) folder: PathBuf,
    pub(crate) target: RecoveryTarget,
}

/// Where the log is written to.
pub(crate) trait Place {
    /// The file of the segment of that number, which is made where there is none.
    fn segment(&mut self, number: u64) -> Result<Arc<dyn File>>;

    /// The log is written up to `at`, and what may not count after all is not longer than an eighth of a segment; what is known of all that is written, and
    /// more. Returns the LSN that it was applied up to: what is below may be gone, and never comes again.
    fn written(&mut self, at: u64, added: &Added, watch: &mut Watch<'_>) -> Result<u64>;
}

/// What was added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    /// The log ends there.
    pub(crate) end: u64,
    /// The last life of the log in it.
    pub(crate) incarnation: u32,
    /// Pages that the data file has to have room for.
    pub(crate) pages: u64,
}

impl Extension {
    /// Finds the target, given what the newest backup says of itself.
    pub(crate) fn plan(
        &self,
        engine: &Engine,
        manifest: &Manifest,
        mode: ModeRequest,
        watch: &mut Watch<'_>,
    ) -> Result<Plan> {
        let _memory = engine.memory(Purpose::Io, reader::memory(manifest.begin.segment_size))?;
        plan::make((engine.disk(), &self.folder, mode), manifest, &self.target, &mut || watch.look())
    }
}

impl Plan {
    /// Copies the log from the backup's end to the target into segment files.
    pub(crate) fn write(
        &self,
        engine: &Engine,
        manifest: &Manifest,
        place: &mut dyn Place,
        watch: &mut Watch<'_>,
    ) -> Result<Added> {
        let size = manifest.begin.segment_size;
        let _memory = engine.memory(Purpose::Io, reader::memory(size) + 2 * WRITE as u64)?;
        let added = Added { end: self.to, incarnation: manifest.incarnation, pages: 0 };
        let mut writer = Writer {
            from: self.from,
            to: self.to,
            size,
            page_size: manifest.begin.page_size as usize,
            at: 0,
            bytes: Vec::with_capacity(2 * WRITE),
            place,
            applied: 0,
            added,
            watch,
            permit: None,
        };
        writer.go_to(self.from)?;
        let ended = reader::read(&self.folder, &self.parts, self.covering, &mut writer)?;
        if ended.whole != self.to {
            return Err(Error::Backup(format!(
                "the archive {:?} has changed, or is damaged: its log ends at lsn {}, not at {} ({})",
                self.folder.path,
                ended.whole,
                self.to,
                explained(&ended.why)
            )));
        }
        writer.finish()
    }
}

fn explained(why: &Why) -> &str {
    match why {
        Why::Missing(_, what) | Why::Over(Some(what)) => what,
        Why::Over(None) => "there is nothing more",
        Why::Gap(_) => "a gap begins there",
        Why::Told => "it was enough",
    }
}

/// The log as it is put together.
struct Writer<'a, 'w> {
    from: u64,
    to: u64,
    size: u64,
    page_size: usize,
    /// Where `bytes` belong: a multiple of a block.
    at: u64,
    bytes: Vec<u8>,
    place: &'a mut dyn Place,
    /// What is below was applied.
    applied: u64,
    added: Added,
    watch: &'a mut Watch<'w>,
    permit: Option<Permit>,
}

impl Reader for Writer<'_, '_> {
    fn met(&mut self, met: &Met<'_>) -> Said<Step> {
        match met {
            Met::Segment(header) => {
                let begin = header.number * header.segment_size;
                if begin + BLOCK > self.to {
                    return Ok(Step::Stop);
                }
                self.added.incarnation = self.added.incarnation.max(header.identity.incarnation);
            }
            Met::Record(record) if record.end() > self.to => return Ok(Step::Stop),
            Met::Record(record) => {
                let ends = record.changes().map(|change| space::end_of_change(&change, self.page_size));
                self.added.pages = self.added.pages.max(ends.max().unwrap_or(0));
                if let Some(Note::Clock { pages, .. }) = Note::of(record)
                    && record.start >= self.from
                {
                    self.added.pages = self.added.pages.max(pages);
                }
            }
            Met::Filler(end) if *end > self.to => return Ok(Step::Stop),
            Met::Filler(_) => {}
        }
        Ok(Step::On)
    }

    fn bytes(&mut self, first: u64, bytes: Option<&[u8]>, len: u64) -> Result<()> {
        let (begin, end) = (first.max(self.from), (first + len).min(self.to));
        if begin >= end {
            return Ok(());
        }
        assert_eq!(begin, self.at + self.bytes.len() as u64, "the log comes without a gap");
        match bytes {
            Some(bytes) => {
                self.bytes.extend_from_slice(&bytes[(begin - first) as usize..(end - first) as usize]);
            }
            None => return self.blank(end - begin),
        }
        if self.bytes.len() < WRITE {
            return Ok(());
        }
        self.flush()?;
        // Who applies it asks for permits of his own.
        self.permit = None;
        self.applied = self.place.written(self.at, &self.added, self.watch)?;
        Ok(())
    }

    fn back_to(&mut self, lsn: u64) -> Result<()> {
        if lsn < self.applied {
            return Err(Error::Backup(format!(
                "the archive has changed, or is damaged: its log goes on at lsn {lsn} again, after what is below lsn {} was applied",
                self.applied
            )));
        }
        match lsn.max(self.from).checked_sub(self.at) {
            // What is before is not written yet.
            Some(kept) => {
                self.bytes.truncate(kept as usize);
                Ok(())
            }
            None => self.go_to(lsn.max(self.from)),
        }
    }

    fn look(&mut self) -> Result<()> {
        self.permit = None;
        self.watch.job().set_done((self.at + self.bytes.len() as u64).saturating_sub(self.from));
        self.watch.look()?;
        self.permit = Some(self.watch.job().permit()?);
        Ok(())
    }

    fn count_read(&mut self, bytes: u64) {
        self.watch.job().count_read(bytes);
    }
}

impl Writer<'_, '_> {
    /// Goes on at `lsn`: takes what is written of the block that it lies in.
    fn go_to(&mut self, lsn: u64) -> Result<()> {
        self.bytes.clear();
        self.at = lsn & !(BLOCK - 1);
        let have = (lsn - self.at) as usize;
        if have == 0 {
            return Ok(());
        }
        let mut block = AlignedBuffer::zeroed(BLOCK as usize);
        let file = self.place.segment(self.at / self.size)?;
        file.read_at(Class::Maintenance, self.at % self.size, &mut block)?;
        self.bytes.extend_from_slice(&block[..have]);
        Ok(())
    }

    /// Passes over bytes that mean nothing: a new segment has zeros there.
    fn blank(&mut self, len: u64) -> Result<()> {
        let end = self.at + self.bytes.len() as u64 + len;
        let fill = (len as usize).min(self.bytes.len().next_multiple_of(BLOCK as usize) - self.bytes.len());
        self.bytes.resize(self.bytes.len() + fill, 0);
        if (self.at + self.bytes.len() as u64) < end {
            self.flush()?;
            self.at = end & !(BLOCK - 1);
            self.bytes.resize((end - self.at) as usize, 0);
        }
        Ok(())
    }

    /// Writes the blocks that are complete.
    fn flush(&mut self) -> Result<()> {
        let mut whole = self.bytes.len() & !(BLOCK as usize - 1);
        while whole > 0 {
            let room = self.size - self.at % self.size;
            let len = whole.min(room as usize);
            let mut buffer = AlignedBuffer::zeroed(len);
            buffer.copy_from_slice(&self.bytes[..len]);
            let file = self.place.segment(self.at / self.size)?;
            file.write_at(Class::Maintenance, self.at % self.size, &buffer, Durability::Cached)?;
            self.watch.job().count_written(len as u64);
            self.bytes.drain(..len);
            self.at += len as u64;
            whole -= len;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Added> {
        let end = self.at + self.bytes.len() as u64;
        assert_eq!(end, self.to.max(self.from), "all of the log was written");
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK as usize), 0);
        self.flush()?;
        Ok(self.added)
    }
}
