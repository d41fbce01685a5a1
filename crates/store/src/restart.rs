//! What a crash leaves to be done, carried out while the database is in use: pages are redone that nobody has touched yet, and
//! the transactions are reverted that the crash has cut short.
//!
//! # What it guarantees
//! 1. The database is open before any of this begins. Whoever needs a page has it redone for itself; whoever wants to write a row
//!    that a cut-short transaction has changed reverts that row for itself. Nobody waits for the rest.
//! 2. The checkpoint stays at the crash's redo position until every page of the redo table was looked at. So a crash at any
//!    time in between is just another crash: the next restart finds the same table, less the pages that came home meanwhile.
//! 3. A cut-short transaction stays in the table of active ones until nothing of it is left. What was reverted is marked in its
//!    undo records, in the same mini-transaction.
//! 4. Damage that keeps a page or a transaction from being brought to its end makes the database read-only: the log it needs
//!    is kept.
//! 5. Both threads end soon after they are told to; what is left is left to the next start.

mod ahead;

use self::ahead::Ahead;
use crate::database::{RestartPhase, RestartReport};
use crate::engine::Engine;
use crate::entry::UndoPtr;
use crate::fetch::Fetch;
use crate::log::TxnEvent;
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::pool::Access;
use crate::recovery::{PageRedo, Scan, redo_in_turns};
use crate::shared::{CATALOG, Shared};
use crate::space::EXTENT_PAGES;
use crate::tree::{BTree, TreeRoot};
use crate::txn::active::ActiveTxn;
use crate::undo::{self, Segment, UndoKind, UndoRecord};
use crate::view;
use crate::{Error, Result};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, PageId, TreeId, TxnId};
use gannet_io::Class;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Part of the budget that gathered changes take, and its least size in bytes.
const GATHER_SHARE: u64 = 8;
const GATHER_MIN: u64 = 1 << 20;
/// Pages after which the one who reads ahead learns how far redo has come.
const TELL_EVERY: usize = 4;
/// Undo records that are read, and whose rows are fetched, at one time.
const REVERT_AT_ONCE: usize = 128;
/// Pause before a rollback is tried again that found no room.
pub(crate) const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// Pages of a restart that takes long enough for others to go first, and how long they have for that: who has opened the database
/// is about to use it, and needs processors and device for the first things he does.
const LONG_PAGES: usize = 2048;
const HEAD_START: Duration = Duration::from_millis(100);
/// How often somebody who waits for the end looks whether there is reason to.
const WAIT_PAUSE: Duration = Duration::from_millis(20);

/// What there is to do, and how far it is.
#[derive(Debug)]
pub(crate) struct Restart {
    state: Mutex<State>,
    ended: Condvar,
    page_size: usize,
}

#[derive(Debug)]
struct State {
    report: RestartReport,
    begun: Instant,
    /// Pages left, as long as there are any.
    redo: Option<Arc<PageRedo>>,
    /// When the thread that redoes what nobody has touched had found what is due, and how many pages it has left behind.
    touching: Option<(Instant, usize)>,
    /// Transactions are left to be reverted.
    reverting: bool,
    /// Threads at work.
    threads: usize,
}

impl State {
    fn phase(&self) -> RestartPhase {
        match (&self.redo, self.reverting) {
            (None, false) => RestartPhase::Done,
            _ if self.threads == 0 => RestartPhase::Stopped,
            (Some(_), _) => RestartPhase::Redo,
            (None, true) => RestartPhase::Revert,
        }
    }
}

impl Restart {
    pub(crate) fn new(redo: Option<Arc<PageRedo>>, page_size: usize) -> Self {
        let report = RestartReport::default();
        let state = State { report, begun: clock::now(), redo, touching: None, reverting: true, threads: 0 };
        Restart { state: Mutex::new(state), ended: Condvar::new(), page_size }
    }

    /// Adds what is known when the database is open.
    pub(crate) fn begin(&self, report: RestartReport) {
        let mut state = self.state.lock();
        let total = state.redo.as_ref().map_or(0, |redo| redo.table().len() as u64);
        state.reverting = report.losers > 0;
        state.report = RestartReport { pages: total, ..report };
        state.begun = clock::now();
    }

    /// How far it is.
    pub(crate) fn report(&self) -> RestartReport {
        let state = self.state.lock();
        let mut report = state.report.clone();
        report.phase = state.phase();
        if let Some(redo) = &state.redo {
            (report.examined_pages, report.redone_pages, report.applied_changes) = redo.progress();
        }
        if matches!(report.phase, RestartPhase::Redo | RestartPhase::Revert) {
            report.background = state.begun.elapsed();
        }
        report.pages_left = report.pages - report.examined_pages.min(report.pages);
        report.bytes_left = report.pages_left * self.page_size as u64;
        // As long as the log is searched nobody can say.
        if let (RestartPhase::Redo, Some((since, passed @ 1..))) = (report.phase, state.touching) {
            let share = (report.pages as f64 - passed as f64).max(0.0) / passed as f64;
            report.time_left = Some(since.elapsed().mul_f64(share));
        }
        report
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.redo.is_none() && !state.reverting
    }

    /// Whether somebody works on it: after a clean close, too, it is learned in the background what garbage earlier lives have left.
    pub(crate) fn is_at_work(&self) -> bool {
        self.state.lock().threads > 0
    }

    /// Waits until nobody works on it any more, as long as `go_on` says so.
    pub(crate) fn wait(&self, go_on: &mut dyn FnMut() -> bool) {
        while go_on() {
            let mut state = self.state.lock();
            if state.threads == 0 {
                return;
            }
            self.ended.wait_for(&mut state, WAIT_PAUSE);
        }
    }

    /// A thread is about to work on it, until what this gives is dropped.
    pub(crate) fn add_thread(self: &Arc<Self>) -> AtWork {
        self.state.lock().threads += 1;
        AtWork(Arc::clone(self))
    }

    fn add_damage(&self, what: String) {
        self.state.lock().report.damaged_pages.push(what);
    }

    /// Every page was looked at: the table is not needed any more.
    fn end_redo(&self) {
        let mut state = self.state.lock();
        if let Some(redo) = state.redo.take() {
            let report = &mut state.report;
            (report.examined_pages, report.redone_pages, report.applied_changes) = redo.progress();
        }
    }

    /// The thread that redoes what nobody has touched has come to this place of the table.
    fn passed(&self, place: usize) {
        let mut state = self.state.lock();
        state.touching = Some((state.touching.map_or_else(clock::now, |(since, _)| since), place));
    }

    fn end_reverting(&self) {
        self.state.lock().reverting = false;
    }

    fn loser_reverted(&self) {
        self.state.lock().report.reverted_losers += 1;
    }
}

/// A thread that works on a restart.
#[derive(Debug)]
pub(crate) struct AtWork(Arc<Restart>);

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.threads -= 1;
        state.report.background = state.begun.elapsed();
        self.0.ended.notify_all();
    }
}

impl Shared {
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.lock() || self.core.poison.is_set()
    }

    /// Says why the database takes no changes from now on, unless something else has ended it.
    fn stop_writing(&self, what: &str, error: Error) {
        match error {
            // Whatever cannot be written or synced ends it by itself: this is what could not be read.
            Error::Damaged(_) | Error::NeverWritten(_) | Error::Io(_) => {
                self.restart.add_damage(error.to_string());
                self.core.set_read_only(format!("{what}: {error}"));
            }
            error => self.core.poison.set(format!("{what}: {error}")),
        }
    }

    // ---- redo ----

    /// The body of the thread that redoes what nobody has touched: all pages of the table, in page order.
    pub(crate) fn run_redo(&self, engine: &Engine, redo: Arc<PageRedo>, end: Lsn) {
        if planted(Mutation::FloorLetGo) {
            self.writer.set_floor(None);
        }
        match self.redo_all(engine, &redo, end) {
            Ok(true) if !self.core.is_read_only() => {
                self.core.volume.set_redo(None);
                self.writer.set_floor(None);
                self.restart.end_redo();
                self.core.backlog.end_redo();
                // What it has taken of the budget goes to page frames.
                drop(redo);
                engine.take_back();
            }
            Ok(_) => {}
            Err(error) => self.stop_writing("the restart could not go on", error),
        }
    }

    /// False when it was given up.
    fn redo_all(&self, engine: &Engine, redo: &Arc<PageRedo>, end: Lsn) -> Result<bool> {
        let is_stopping = || self.is_stopping();
        if redo.table().len() >= LONG_PAGES && !self.give_way(HEAD_START) {
            return Ok(false);
        }
        let ahead = Ahead::start(&self.core, redo);
        let limit = (self.core.budget.limit() / GATHER_SHARE).max(GATHER_MIN);
        let scan = Scan { log: &self.core.log, end, limit, is_stopping: &is_stopping };
        if !redo_in_turns(engine, redo, &scan, &mut |range| self.touch(redo, range, &ahead))? {
            return Ok(false);
        }
        ahead.end()?;
        Ok(true)
    }

    /// Waits so long; false when it is to end before.
    fn give_way(&self, time: Duration) -> bool {
        let begun = clock::now();
        while !self.is_stopping() {
            let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                return true;
            };
            clock::sleep(left.min(WAIT_PAUSE));
        }
        false
    }

    /// Brings pages up to date that nobody has touched yet; false when it was given up.
    fn touch(&self, redo: &PageRedo, range: Range<usize>, ahead: &Fetch<Ahead>) -> Result<bool> {
        for index in range {
            if index.is_multiple_of(TELL_EVERY) {
                ahead.source.reached(index);
                self.restart.passed(index);
                if self.is_stopping() {
                    return Ok(false);
                }
            }
            if planted(Mutation::RedoSkipped) && index % 4 == 3 {
                redo.mark_done(index);
            }
            let page = redo.table().entries()[index].page;
            while !redo.is_done(index) {
                match self.core.pool.shared(&self.core.volume, page, Access::Normal) {
                    Ok(_) => {}
                    // One page that cannot be had keeps the log it needs from going, and nobody from the others.
                    Err(error @ (Error::Damaged(_) | Error::NeverWritten(_))) => {
                        self.stop_writing("a page could not be brought up to date from the log", error);
                    }
                    Err(error @ Error::Io(_)) => {
                        let what = format!("{page} could not be brought up to date from the log: {error}");
                        self.restart.add_damage(what.clone());
                        self.core.set_read_only(what);
                    }
                    // Others have all of memory, for now.
                    Err(Error::Memory(_) | Error::NoFrame(_)) if !self.is_stopping() => {
                        clock::sleep(ROOM_PAUSE);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                redo.mark_done(index);
            }
        }
        Ok(true)
    }

    // ---- losers ----

    /// The body of the thread that learns what undo there is from before, and reverts what the crash has cut short.
    pub(crate) fn run_reverts(&self, losers: &[Arc<ActiveTxn>], opened_at: Lsn) {
        match self.revert_all(losers, opened_at) {
            Ok(true) => self.restart.end_reverting(),
            Ok(false) => {}
            // Said already, by whoever has found the reason.
            Err(_) if self.core.is_read_only() => {}
            Err(error) => self.stop_writing("what a crash has left could not be reverted", error),
        }
    }

    fn revert_all(&self, losers: &[Arc<ActiveTxn>], opened_at: Lsn) -> Result<bool> {
        while !self.if_room(self.load_undo_directory(opened_at))? {
            if self.is_stopping() {
                return Ok(false);
            }
            clock::sleep(ROOM_PAUSE);
        }
        let oldest = losers.iter().map(|txn| txn.id()).min();
        let kept = oldest.map_or(0, |oldest| self.keep_room(losers.len(), oldest));
        for loser in losers {
            while !self.if_room(self.revert_loser(loser))? {
                if self.is_stopping() || self.core.is_read_only() {
                    return Ok(false);
                }
                clock::sleep(ROOM_PAUSE);
            }
            self.restart.loser_reverted();
        }
        self.core.space.release(&self.core, kept);
        Ok(true)
    }

    /// Where there is no room now, on the device or in memory, nothing was done.
    fn if_room(&self, done: Result<bool>) -> Result<bool> {
        match done {
            Err(error) if error.is_passing() => self.core.poison.check().map(|()| false),
            done => done,
        }
    }

    /// Learns of the undo segments of earlier lives, all complete now, as nobody writes to them any more. False when it was given
    /// up.
    fn load_undo_directory(&self, opened_at: Lsn) -> Result<bool> {
        let tree = BTree::new(&self.core, &self.undo_directory);
        let highest = TxnId(self.first_txn.0 - 1);
        let mut segments = Vec::new();
        let mut from = Vec::new();
        while let Some((key, value)) = tree.first_from(&from)? {
            if self.is_stopping() {
                return Ok(false);
            }
            let mut segment = Segment::decode(&key, &value)
                .ok_or_else(|| Error::Damaged("an entry of the undo directory makes no sense".to_owned()))?;
            // Those of this life have their stream to tell of them.
            if segment.sequence < opened_at.0 {
                if segment.highest_txn.is_none() {
                    segment.highest_txn = highest;
                }
                segments.push(segment);
            }
            from = key;
            from.push(0);
        }
        self.streams.lock().complete.extend(segments);
        Ok(true)
    }

    /// Keeps what is free of the room that the losers had reserved, as far as one can tell what they may need.
    fn keep_room(&self, losers: usize, oldest: TxnId) -> u64 {
        let streams = self.streams.lock();
        let segments = streams.complete.iter().filter(|segment| segment.highest_txn >= oldest).count();
        drop(streams);
        self.core.space.reserve_free(losers as u64 * EXTENT_PAGES + segments as u64 * EXTENT_PAGES * 3)
    }

    /// Reverts a loser as far as it is, newest change first, and ends it. False when it was given up. Tried again, it goes on.
    fn revert_loser(&self, loser: &Arc<ActiveTxn>) -> Result<bool> {
        loop {
            if self.is_stopping() || self.core.is_read_only() {
                return Ok(false);
            }
            let records = self.newest_records(loser)?;
            let Some((_, last)) = records.last() else { break };
            if planted(Mutation::LoserNotReverted) {
                loser.set_newest_undo(UndoPtr::NONE.0);
                break;
            }
            let next = last.previous_record;
            self.fetch_rows(&records)?;
            self.revert_records(&records)?;
            loser.set_newest_undo(next.0);
            if !next.is_none() {
                // The next start need not go through it again.
                let mut mtr = Mtr::new(&self.core);
                mtr.group().set_txn(loser.id(), TxnEvent::Change { undo: next.0 });
                mtr.commit()?;
            }
        }
        self.finish_revert(loser, true)?;
        Ok(true)
    }

    /// The newest undo records of a loser that are not gone through yet.
    fn newest_records(&self, loser: &ActiveTxn) -> Result<Vec<(UndoPtr, UndoRecord)>> {
        let mut records: Vec<(UndoPtr, UndoRecord)> = Vec::new();
        let mut at = UndoPtr(loser.newest_undo());
        let mut extent = u64::MAX;
        while !at.is_none() && records.len() < REVERT_AT_ONCE {
            if at.page().0 / EXTENT_PAGES != extent {
                extent = at.page().0 / EXTENT_PAGES;
                let pages: Vec<_> = (extent * EXTENT_PAGES..=at.page().0).map(PageId).collect();
                self.core.pool.prefetch(&self.core.volume, &pages, Class::Prefetch, Access::Normal);
            }
            let record = undo::read_of(&self.core, at, loser.id())?;
            let previous = record.previous_record;
            records.push((at, record));
            at = previous;
        }
        Ok(records)
    }

    /// Has the device read the leaves of many rows at one time.
    fn fetch_rows(&self, records: &[(UndoPtr, UndoRecord)]) -> Result<()> {
        let mut keys: BTreeMap<TreeId, Vec<&[u8]>> = BTreeMap::new();
        for (_, record) in records.iter().filter(|(_, record)| !record.done && record.kind != UndoKind::Chain)
        {
            keys.entry(record.tree).or_default().push(&record.key);
        }
        for (tree, keys) in keys {
            if let Some(root) = self.find_tree(tree) {
                view::start_fetching(self, &root, &keys, Class::Prefetch)?;
            }
        }
        Ok(())
    }

    fn revert_records(&self, records: &[(UndoPtr, UndoRecord)]) -> Result<()> {
        for (at, record) in records {
            // As every writer: redo and checkpoint are to keep up.
            self.core.throttle(&|| false)?;
            self.revert(*at, record)?;
        }
        Ok(())
    }

    /// Whether this transaction was cut short by a crash, and not reverted yet when it was found among the active ones.
    pub(crate) fn is_loser(&self, txn: TxnId) -> bool {
        txn < self.first_txn
    }

    /// Takes back what a loser has done to one row, for somebody who wants to write there, given the undo record that the row
    /// points to. False where only the whole of it can be taken back.
    pub(crate) fn revert_row(&self, tree: &TreeRoot, writer: TxnId, at: UndoPtr) -> Result<bool> {
        if tree.id == CATALOG || at.is_none() {
            return Ok(false);
        }
        let record = undo::read_of(&self.core, at, writer)?;
        self.core.await_log_room();
        self.revert(at, &record)?;
        Ok(true)
    }
}
