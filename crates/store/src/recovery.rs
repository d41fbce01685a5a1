//! Restart: pages are brought up to date when they are first touched, losers are reverted.
//!
//! # What it guarantees
//! 1. A page whose last logged change is newer than the page itself gets the missing records of its own chain, in
//!    order, before anybody sees it. Nothing else is read for it.
//! 2. Redo is idempotent: a page that got there already is left alone. So a crash during restart is just another
//!    crash, and the checkpoint stays where it is until every page of the table was looked at.
//! 3. A page that is torn or was never written is rebuilt where its chain begins with its first contents; otherwise it
//!    is reported as damaged, alone.

use crate::change;
use crate::log::{LogReader, PageChange, RedoTable};
use crate::page::{self, Verdict};
use crate::pool::Redo;
use crate::{Error, Result};
use gannet_base::{Lsn, PageId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Redo of single pages from the log, see the module's head.
#[derive(Debug)]
pub(crate) struct ChainRedo {
    table: RedoTable,
    reader: LogReader,
    redo_from: Lsn,
    pages: AtomicU64,
    changes: AtomicU64,
}

impl ChainRedo {
    pub(crate) fn new(table: RedoTable, reader: LogReader, redo_from: Lsn) -> Self {
        ChainRedo { table, reader, redo_from, pages: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }

    /// Pages to look at, in page order.
    pub(crate) fn pages(&self) -> Vec<PageId> {
        self.table.iter().map(|(page, _)| page).collect()
    }

    /// Pages redone and changes applied so far.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.pages.load(Ordering::Relaxed), self.changes.load(Ordering::Relaxed))
    }
}

impl Redo for ChainRedo {
    fn knows(&self, page: PageId) -> bool {
        self.table.get(page).is_some()
    }

    fn redo(&self, id: PageId, bytes: &mut [u8], verdict: Verdict) -> Result<Option<Lsn>> {
        let Some(last) = self.table.get(id) else { return Ok(None) };
        // Of a page that is not whole nothing counts, not even its LSN.
        let have = if verdict == Verdict::Valid { page::lsn(bytes) } else { Lsn::ZERO };
        if have >= last {
            // It is as it should be, but was it ever durable? If a sync failed before the crash, what reads well now may
            // be gone after the next one. So it is written again.
            return Ok(Some(self.redo_from));
        }
        let mut applied = 0;
        let mut apply = |change: &PageChange| {
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
            change::apply(change.kind, &change.bytes, bytes)
                .map_err(|what| Error::damaged_page(id, format_args!("redo of {}: {what}", change.lsn)))?;
            page::set_lsn(bytes, change.lsn);
            applied += 1;
            Ok(())
        };
        self.reader.chain(id, last, have, &mut apply).map_err(|error| match (error, verdict) {
            (Error::Damaged(what), Verdict::Damaged | Verdict::NeverWritten) => Error::damaged_page(
                id,
                format_args!("it is not whole, and its history cannot be read from the start: {what}"),
            ),
            (error, _) => error,
        })?;
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(applied, Ordering::Relaxed);
        Ok(Some(self.redo_from))
    }
}
