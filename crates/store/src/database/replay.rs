//! Applying log to a data file that is no database yet: what a restore has written of an archive's log so far.
//!
//! # What it guarantees
//! 1. What it returns as applied is: each page that the log changes below that place has those changes in the file, though not durably yet.
//! 2. Nothing of the log is written, and nothing but these pages. What is open at the log's end stays open.
//!
//! # A crash at any point
//! Pages are written in place, without a ring: whoever calls this has a file that is begun anew after a crash.

use super::open::{log_options, page_redo};
use crate::block::{Block, FileRange};
use crate::engine::{Engine, OpenOptions};
use crate::jobs::Watch;
use crate::log::{Known, Log, LogFiles};
use crate::meta::Meta;
use crate::page::{self, Verdict};
use crate::pool::Redo;
use crate::recovery::{PageRedo, Scan, redo_in_turns};
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::{Lsn, PageId};
use gannet_io::{Class, Direction, Durability, File};
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Pages that are under way at one time: so many blocks, of so many bytes.
const BLOCKS: usize = 8;
const BLOCK_LEN: usize = 128 << 10;
/// Part of the budget that gathered changes may take: nobody else uses the engine.
const GATHER_SHARE: u64 = 2;
/// Blocks that are read ahead; the others are on their way back.
const AHEAD: usize = BLOCKS / 2;

/// What was applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    /// The log's end, as far as it can be read.
    pub(crate) end: Lsn,
    /// The highest transaction number in it; 0 for none.
    pub(crate) highest_txn: u64,
    /// Pages that were changed.
    pub(crate) pages: u64,
    /// Changes applied to them.
    pub(crate) changes: u64,
}

/// Applies the log in `folder`, from `meta`'s redo position on, to the pages of `data`, which is long enough for all that it names. What the log says of pages
/// that came home is not true of this file.
///
/// # Errors
/// [`Error::Damaged`] of log or pages that do not fit together.
pub(crate) fn apply(
    engine: &Engine,
    (data, folder): (&Arc<dyn File>, &Path),
    meta: &Meta,
    open: &OpenOptions,
    watch: &mut Watch<'_>,
) -> Result<Applied> {
    let disk = engine.disk();
    let options = log_options(engine, meta, open);
    // As when a database is opened (`open`): the log, the footers, the last segment, the table of pages.
    let _log_room = engine.make_room(options.memory())?;
    let _recovery_room = engine.make_room(engine.budget().limit() / 2)?;
    let _restart_room = engine.make_room(2 * meta.segment_size)?;
    let files = LogFiles::find(disk, folder, &options, meta.redo_from)?
        .ok_or_else(|| Error::Damaged(format!("the log in {folder:?} is gone")))?;
    let known = Known {
        redo_from: meta.redo_from,
        homes_from: Lsn(u64::MAX),
        incarnation: meta.incarnation,
        held_from: None,
        salvages: false,
    };
    let (recovery, log) = Log::recover(&files, &options, &known, engine.budget())?;
    let mut applied =
        Applied { end: recovery.end, highest_txn: recovery.highest_txn.0, pages: 0, changes: 0 };
    let Some(redo) = page_redo(&log, Some(recovery.redo), engine, false)? else { return Ok(applied) };
    let queue = disk.queue((BLOCKS * BLOCK_LEN / meta.page_size).max(BLOCKS))?;
    let mut blocks = Vec::with_capacity(BLOCKS);
    for _ in 0..BLOCKS {
        let memory = engine.memory(Purpose::Io, BLOCK_LEN.max(meta.page_size) as u64)?;
        blocks.push(Block::new(&queue, memory));
    }
    let watch = RefCell::new(watch);
    let is_stopping = || watch.borrow_mut().look().is_err();
    let limit = engine.budget().limit() / GATHER_SHARE;
    let scan = Scan { log: &log, end: recovery.end, limit, is_stopping: &is_stopping };
    let mut pages = Pages { data, redo: &redo, page_size: meta.page_size, salt: meta.database_id, blocks };
    if !redo_in_turns(engine, &redo, &scan, &mut |range| {
        pages.bring_up(range, &mut watch.borrow_mut()).map(|()| true)
    })? {
        return Err(Error::Cancelled);
    }
    let (_, redone, changes) = redo.progress();
    (applied.pages, applied.changes) = (redone, changes);
    Ok(applied)
}

/// Pages on their way into memory, and back.
struct Pages<'a> {
    data: &'a Arc<dyn File>,
    redo: &'a PageRedo,
    page_size: usize,
    salt: u64,
    blocks: Vec<Block>,
}

impl Pages<'_> {
    /// Brings the pages at these places of the table up to date.
    fn bring_up(&mut self, places: Range<usize>, watch: &mut Watch<'_>) -> Result<()> {
        let most = (BLOCK_LEN / self.page_size).max(1);
        let parts: Vec<_> =
            places.clone().step_by(most).map(|from| from..places.end.min(from + most)).collect();
        for turn in 0..parts.len() + AHEAD {
            watch.look()?;
            let _permit = watch.job().permit()?;
            if let Some(part) = parts.get(turn) {
                self.read(turn % BLOCKS, part.clone())?;
                watch.job().count_read((part.len() * self.page_size) as u64);
            }
            if let Some(turn) = turn.checked_sub(AHEAD) {
                let written = self.redo(turn % BLOCKS, parts[turn].clone())?;
                watch.job().count_written(written);
            }
        }
        self.blocks.iter_mut().try_for_each(Block::wait)
    }

    fn ids(&self, part: Range<usize>) -> impl Iterator<Item = (usize, PageId)> + use<'_> {
        self.redo.table().entries()[part].iter().enumerate().map(|(index, entry)| (index, entry.page))
    }

    fn range(&self, index: usize, page: PageId) -> FileRange {
        let len = self.page_size;
        FileRange { place: index * len, offset: page.0 * len as u64, len }
    }

    fn read(&mut self, block: usize, part: Range<usize>) -> Result<()> {
        let mut ranges = Vec::with_capacity(part.len());
        self.ids(part).for_each(|(index, page)| FileRange::add_to(&mut ranges, self.range(index, page)));
        self.blocks[block].wait()?;
        self.blocks[block].start_ranges(self.data, Direction::Read, Class::Maintenance, &ranges);
        Ok(())
    }

    /// Begins to write what the log changes of the pages in a block; how many bytes.
    fn redo(&mut self, block: usize, part: Range<usize>) -> Result<u64> {
        self.blocks[block].wait()?;
        let mut changed = Vec::with_capacity(part.len());
        for (index, id) in self.redo.table().entries()[part].iter().map(|entry| entry.page).enumerate() {
            let range = self.range(index, id);
            let bytes = &mut self.blocks[block].bytes()[range.place..range.place + range.len];
            let verdict = page::verify(bytes, id, self.salt);
            let before = page::lsn(bytes);
            self.redo.redo(id, bytes, verdict)?;
            if verdict != Verdict::Valid || page::lsn(bytes) != before {
                page::seal(bytes, id, self.salt);
                FileRange::add_to(&mut changed, range);
            }
        }
        let written = changed.iter().map(|range| range.len as u64).sum();
        if written > 0 {
            let direction = Direction::Write(Durability::Cached);
            self.blocks[block].start_ranges(self.data, direction, Class::Maintenance, &changed);
        }
        Ok(written)
    }
}
