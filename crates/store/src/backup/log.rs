//! Copying the log beside the pages, as it grows.
//!
//! # Invariants
//! 1. The log is kept from the backup's start on until it was copied. So its pages' footers are known here before they go.
//! 2. It is copied as fast as it can be, not paced: should the destination not keep up, and the log grow by more than `wal_limit`
//!    meanwhile, the backup fails, and never the users: what is farther behind is let go of, whatever the backup waits for.

use super::Copy;
use super::compress::Compressor;
use super::format::{FrameKind, HEAD, Head};
use crate::block::Block;
use crate::log::{BLOCK, LogHold, Lost};
use crate::page_set::{GrowingSet, PageSet};
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::Lsn;
use gannet_base::memory::Purpose;
use gannet_base::units::format_size;
use gannet_io::Class;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it is looked whether the log has grown.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes that are copied at one time.
pub(super) const PIECE: u64 = 256 << 10;

/// Memory that copying the log takes, in bytes.
pub(super) const MEMORY: u64 = HEAD as u64 + PIECE;

/// The log, as far as it was copied.
pub(super) struct LogCopy<'c> {
    copy: &'c Copy,
    hold: LogHold,
    /// Copied up to here.
    at: u64,
    block: Block,
    /// For footers.
    memory: WorkMemory,
    compressor: Compressor,
}

impl<'c> LogCopy<'c> {
    pub(super) fn new(copy: &'c Copy, hold: LogHold, block: Block, memory: WorkMemory) -> Result<Self> {
        let size = copy.shared.core.log.segment_size();
        let at = hold.from().0 / size * size;
        Ok(LogCopy { copy, hold, at, block, memory, compressor: copy.compression.compressor()? })
    }

    /// The body of the thread: copies the log from the segment that the backup's start lies in on, and what names the transactions
    /// open there, until the backup knows its end.
    pub(super) fn run(mut self) -> Result<()> {
        self.predecessor()?;
        loop {
            let end = self.copy.end_or_wait(LOOK_EVERY);
            self.copy.check_wanted()?;
            let log = &self.copy.shared.core.log;
            match end {
                Some(end) => {
                    log.flush_to(end)?;
                    return self.copy_to(end.0, end.0.next_multiple_of(BLOCK));
                }
                None => {
                    // Whole pieces: a processor has as much to do for a small one.
                    let whole = self.at + log.durable().0.saturating_sub(self.at) / PIECE * PIECE;
                    self.copy_to(whole, whole)?;
                }
            }
        }
    }

    /// Fails where the log was let go of, or is about to be.
    fn check_lag(&self) -> Result<()> {
        let core = &self.copy.shared.core;
        let lag = core.log.durable().0.saturating_sub(self.at);
        match self.hold.lost() {
            None if lag <= core.wal_limit => Ok(()),
            lost => Err(left_behind(lost, lag, core.wal_limit)),
        }
    }

    /// The first block and the footer of the segment before.
    fn predecessor(&mut self) -> Result<()> {
        let log = &self.copy.shared.core.log;
        let size = log.segment_size();
        let Some(start) = self.at.checked_sub(size) else { return Ok(()) };
        // It is complete, and its footer is read once it is durable.
        log.flush_to(Lsn(self.at))?;
        let footer = log.footer_blocks(Lsn(start), &mut self.memory);
        if !self.hold.is_kept() {
            return self.check_lag();
        }
        // There is none before the first segment of a log.
        let Some(footer) = footer? else { return Ok(()) };
        self.piece(start, start + BLOCK, u64::MAX)?;
        let mut at = start + size - footer;
        while at < start + size {
            let to = (at + PIECE).min(start + size);
            self.piece(at, to, u64::MAX)?;
            at = to;
        }
        Ok(())
    }

    /// Copies up to `to`, a multiple of a block; what lies behind `end` becomes zeros.
    fn copy_to(&mut self, end: u64, to: u64) -> Result<()> {
        let size = self.copy.shared.core.log.segment_size();
        while self.at < to {
            self.copy.check_wanted()?;
            self.check_lag()?;
            let segment_end = (self.at / size + 1) * size;
            let next = (self.at + PIECE).min(segment_end).min(to);
            self.piece(self.at, next, end)?;
            self.at = next;
            // A backup's end may lie in the last block of a segment that has no footer yet.
            if next == segment_end && next <= end {
                self.let_go(segment_end - size, Lsn(next))?;
            }
        }
        Ok(())
    }

    fn piece(&mut self, from: u64, to: u64, end: u64) -> Result<()> {
        let len = (to - from) as usize;
        self.block.wait().map_err(|error| super::failed(&error))?;
        let wanted = || self.copy.check_wanted().and_then(|()| self.check_lag());
        let slot = self.copy.sink.log_slot(&wanted)?;
        let bytes = &mut self.block.bytes()[HEAD..HEAD + len];
        let read = self.copy.shared.core.log.read_raw(Class::Maintenance, Lsn(from), bytes);
        // Read first, looked at afterwards: its file may be another segment's by now, or gone.
        if !self.hold.is_kept() {
            return self.check_lag();
        }
        read?;
        self.copy.job.count_read(len as u64);
        if end < to {
            bytes[(end.max(from) - from) as usize..].fill(0);
        }
        let mut head = Head::new(FrameKind::Log, self.copy.backup_id);
        head.first = from;
        self.copy.log_bytes.fetch_add(len as u64, Ordering::Relaxed);
        self.copy.put(&mut self.block, (head, len), slot, &mut self.compressor)?;
        self.block.wait().map_err(|error| super::failed(&error))
    }

    /// Lets a segment go, after what was changed in it was taken notice of.
    fn let_go(&mut self, start: u64, next: Lsn) -> Result<()> {
        let footer = self.copy.shared.core.log.footer(Lsn(start), Some(&mut self.memory));
        // As above: its file may be another segment's by now.
        if !self.hold.is_kept() {
            return self.check_lag();
        }
        let footer = footer?.ok_or_else(|| {
            Error::Damaged(format!("log: the segment that begins at lsn {start} has no valid footer"))
        })?;
        let mut touched = self.copy.touched.lock();
        for (page, lsn) in footer.pages {
            if lsn > self.copy.start {
                touched.pages.add(page)?;
            }
        }
        touched.from = next;
        self.hold.advance(next);
        Ok(())
    }
}

/// The log was let go of, or is about to be, as so many bytes of it are not copied yet, or as the disk is full.
fn left_behind(lost: Option<Lost>, lag: u64, limit: u64) -> Error {
    if lost == Some(Lost::FullDisk) {
        return Error::Backup(
            "the database's disk is full, and log that the backup needed was let go of, so that users can go on: make room there, and take \
             the backup again"
                .to_owned(),
        );
    }
    Error::Backup(format!(
        "the backup's destination takes the log slower than it grows: it is {} behind, and {} are kept for it at most",
        format_size(lag),
        format_size(limit)
    ))
}

/// Pages that were changed since the backup's start.
#[derive(Debug)]
pub(super) struct Touched {
    pages: GrowingSet,
    /// Where the log begins that may have changed further ones, and is still there.
    from: Lsn,
}

impl Touched {
    pub(super) fn new(from: Lsn, memory: WorkMemory) -> Self {
        Touched { pages: GrowingSet::new(memory), from }
    }
}

impl Copy {
    /// Pages that were changed since the backup's start and were passed over: they were free then, or are new.
    pub(super) fn passed_over(&self) -> Result<PageSet> {
        // Its copy lets go of nothing meanwhile.
        let mut touched = self.touched.lock();
        let Touched { pages, from } = &mut *touched;
        let mut outcome = Ok(());
        let core = &self.shared.core;
        let mut footers = pages.another_memory(Purpose::Log);
        let changed = core.log.changed_pages(*from, &mut footers, &mut |page, lsn| {
            if lsn > self.start && outcome.is_ok() {
                outcome = pages.add(page);
            }
        });
        // Who writes the log may have, where the copy does not keep up: a footer that is not there any more is no damage then.
        if let lost @ Some(_) = self.log_is_kept.lost() {
            let lag = core.log.durable().0.saturating_sub(from.0);
            return Err(left_behind(lost, lag, core.wal_limit));
        }
        changed.and(outcome)?;
        Ok(pages.without(&self.copied))
    }
}
