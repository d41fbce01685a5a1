//! Redo: a page is brought up to date when it is first touched after a crash.
//!
//! # What it guarantees
//! 1. A page whose last logged change is newer than the page itself gets the missing changes of its own history, in
//!    order, before anybody sees it. Nothing but the log is read for it.
//! 2. Redo is idempotent: a page that got there already is left alone. So a crash during restart is just another
//!    crash, and the checkpoint stays where it is until every page of the table was looked at.
//! 3. A page that is torn or was never written is rebuilt where its history begins with its first contents (a leaf that was being filled
//!    beside the log, as one that is unfilled); otherwise it is reported as damaged, alone.
//!
//! # Where changes come from
//! A page's history is walked from record to record, newest first, as each names the one before. That is right for the few
//! pages that somebody needs at once. For all the others it would read the log in pieces, over and over. So the
//! background *gathers* what is due from one scan of the log ([`gather`]), as much as it has memory for, and from then on a
//! page takes its changes from there, whoever touches it.
//!
//! # Invariants
//! 1. A page that was redone is dirty, with a rec_lsn at or below its first missing change, before it is marked as `done`. From
//!    then on the page writer answers for it: it comes back from the device as it should be, and is clean.
//! 2. Gathered changes are applied only when they lead without a gap from the page's LSN to the last one that the log has.
//!    Otherwise the history is walked, and says what is wrong.

mod gather;

pub(crate) use gather::{Gathered, Scan, redo_in_turns};

use crate::log::{LogReader, PageChange, RedoTable};
use crate::mutation::{Mutation, planted};
use crate::page::{self, Verdict};
use crate::pool::Redo;
use crate::{Error, Result, change};
use gannet_base::sync::RwLock;
use gannet_base::{Lsn, PageId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Redo of single pages from the log, see the module's head.
#[derive(Debug)]
pub(crate) struct PageRedo {
    table: RedoTable,
    /// One bit for each entry of the table.
    done: Box<[AtomicU64]>,
    reader: LogReader,
    /// Pages that were redone are written.
    writes: bool,
    gathered: RwLock<Option<Gathered>>,
    looked_at: AtomicU64,
    redone: AtomicU64,
    changes: AtomicU64,
}

impl PageRedo {
    /// Unless it `writes`, a page that was redone is clean all the same, and is redone each time that it is read.
    pub(crate) fn new(table: RedoTable, reader: LogReader, writes: bool) -> Self {
        let done = (0..table.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        PageRedo {
            table,
            done,
            reader,
            writes,
            gathered: RwLock::new(None),
            looked_at: AtomicU64::new(0),
            redone: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// The pages to look at.
    pub(crate) fn table(&self) -> &RedoTable {
        &self.table
    }

    /// Whether the page at this place of the table was looked at.
    pub(crate) fn is_done(&self, index: usize) -> bool {
        self.done[index / 64].load(Ordering::Acquire) & (1 << (index % 64)) != 0
    }

    /// Marks a page as looked at: it is in the pool as it should be, or cannot be brought there.
    pub(crate) fn mark_done(&self, index: usize) {
        let bit = 1 << (index % 64);
        if self.done[index / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.looked_at.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on pages take their changes from here, where it has them.
    pub(crate) fn set_gathered(&self, gathered: Option<Gathered>) {
        *self.gathered.write() = gathered;
    }

    /// Pages looked at, redone, and changes applied so far.
    pub(crate) fn progress(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.looked_at), load(&self.redone), load(&self.changes))
    }

    /// Applies what was gathered for a page; `None` when that does not lead from `have` to `last`.
    fn apply_gathered(&self, index: usize, page: &mut [u8], have: Lsn, last: Lsn) -> Result<Option<u64>> {
        let gathered = self.gathered.read();
        let Some(changes) = gathered.as_ref().and_then(|gathered| gathered.way(index, have, last)) else {
            return Ok(None);
        };
        let id = self.table.entries()[index].page;
        let mut applied = 0;
        for change in changes {
            if change.init {
                page.fill(0);
            }
            apply(id, page, change.lsn, change.kind, change.bytes)?;
            applied += 1;
        }
        Ok(Some(applied))
    }

    /// Walks the page's history in the log. Gives how many changes were applied, and where the oldest record of these begins.
    fn apply_history(
        &self,
        id: PageId,
        bytes: &mut [u8],
        verdict: Verdict,
        have: Lsn,
        last: Lsn,
    ) -> Result<(u64, Lsn)> {
        let mut applied = 0;
        let mut visit = |change: &PageChange| {
            if applied == 0 && verdict != Verdict::Valid && !change.init {
                let what =
                    if verdict == Verdict::Damaged { "is torn or rotten" } else { "was never written" };
                return Err(Error::damaged_page(
                    id,
                    format_args!("it {what}, and the log does not hold its first contents"),
                ));
            }
            if change.init {
                bytes.fill(0);
            }
            apply(id, bytes, change.lsn, change.kind, &change.bytes)?;
            applied += 1;
            Ok(())
        };
        let from = self.reader.chain(id, last, have, &mut visit).map_err(|error| match (error, verdict) {
            (Error::Damaged(what), Verdict::Damaged | Verdict::NeverWritten) => Error::damaged_page(
                id,
                format_args!("it is not whole, and its history cannot be read from the start: {what}"),
            ),
            (error, _) => error,
        })?;
        Ok((applied, from))
    }
}

fn apply(id: PageId, page: &mut [u8], lsn: Lsn, kind: u8, bytes: &[u8]) -> Result<()> {
    change::apply(kind, bytes, page)
        .map_err(|what| Error::damaged_page(id, format_args!("redo of {lsn}: {what}")))?;
    page::set_lsn(page, lsn);
    Ok(())
}

impl Redo for PageRedo {
    fn knows(&self, page: PageId) -> bool {
        self.table.find(page).is_some()
    }

    fn redo(&self, id: PageId, bytes: &mut [u8], verdict: Verdict) -> Result<Option<Lsn>> {
        let Some(index) = self.table.find(id) else { return Ok(None) };
        let entry = self.table.entries()[index];
        // Of a page that is not whole nothing counts, not even its LSN.
        let mut have = if verdict == Verdict::Valid { page::lsn(bytes) } else { Lsn::ZERO };
        if planted(Mutation::RedoneTwice) {
            have = have.min(entry.home);
        }
        if have >= entry.last {
            if self.is_done(index) {
                return Ok(None);
            }
            // It is as it should be, but was it ever durable? If a sync failed before the crash, what reads well now may
            // be gone after the next one. So it is written again.
            return Ok(Some(entry.home));
        }
        let (applied, from) = match self.apply_gathered(index, bytes, have, entry.last)? {
            // All of them lie behind what came home.
            Some(applied) => (applied, entry.home),
            // What was not whole at home needed older ones, and does until it is there again.
            None => self.apply_history(id, bytes, verdict, have, entry.last)?,
        };
        self.redone.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(applied, Ordering::Relaxed);
        Ok(Some(entry.home.min(from)))
    }

    fn writes(&self) -> bool {
        self.writes
    }

    fn redone(&self, id: PageId) {
        if let Some(index) = self.table.find(id) {
            self.mark_done(index);
        }
    }
}
