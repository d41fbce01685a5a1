//! Sweep: what committed transactions left behind is removed once nobody can see it any more.
//!
//! The undo records of committed transactions are the list of garbage: dead entries to take out of their trees, long
//! values that were replaced, trees that were dropped. A segment whose transactions are all below the horizon is gone
//! through once and freed. So the work is proportional to garbage, not to the size of the database, and nothing about
//! garbage is trusted across a crash that was not logged.
//!
//! # Invariants
//! 1. Only records that are not `done` count: a reverted change left no garbage.
//! 2. Each consequence is idempotent, or marks its record as done in the same mini-transaction. A crash in the middle
//!    of a segment is harmless: it is gone through again.
//! 3. A segment is freed together with its directory entry.
//! 4. A sweep that ends early, however, leaves what it has not come to as it was, for the next one.
//!
//! - [`turn`]: one sweep at a time.
//! - [`round`]: what a sweep goes by, how it is paced, and what it has done.
//! - [`limit`]: who holds garbage back for too long is ended.
//! - [`garbage`]: what garbage there is, who holds it back, and what removing it will cost.
//! - [`report`]: what is said of it.

pub(crate) mod garbage;
pub(crate) mod limit;
pub(crate) mod report;
pub(crate) mod round;
pub(crate) mod turn;

use crate::engine::Engine;
use crate::jobs::Jobs;
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::node::{NodeMut, NodeOp, NodeRef};
use crate::pool::reads;
use crate::pool::{Access, ScanRing};
use crate::shared::{CATALOG, Shared};
use crate::space::EXTENT_PAGES;
use crate::tree::{BTree, is_underfull};
use crate::undo::{self, Segment, UNDO_PAGES, UndoKind, UndoRecord};
use crate::{Error, Result, entry, overflow, view};
use gannet_base::{PageId, TreeId, TxnId, clock};
use gannet_io::Class;
use round::{By, Round};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the background thread sleeps when nobody wakes it.
const PAUSE: Duration = Duration::from_millis(50);
/// Who cancels a round of the background has peace for so long.
const REST: Duration = Duration::from_secs(60);
/// So long nothing is swept where something could not be read, or no page frame came free.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// A stream that nobody wrote to for so long has its newest segment swept, too.
const STREAM_IDLE: Duration = Duration::from_secs(2);

/// What became of a segment.
enum Swept {
    /// The leaf that listed it may be left with too little.
    Freed { underfull: bool },
    /// The database is being closed, or whoever asked has given up.
    GivenUp,
    /// This transaction's records are in it, and some may see, or revert, what was before them.
    Later(TxnId),
}

impl Shared {
    /// The body of the background thread: reserve segments for the log, the lists beside it, frames that may come back, and, where it `sweeps`, the
    /// sweep. A long round is one of `jobs`.
    pub(crate) fn run_background(&self, engine: &Engine, jobs: &Jobs, sweeps: bool) {
        reads::in_background();
        if let Err(error) = self.background_loop(engine, jobs, sweeps) {
            self.core.poison.set(format!("background work: {error}"));
        }
    }

    fn background_loop(&self, engine: &Engine, jobs: &Jobs, sweeps: bool) -> Result<()> {
        let groups = self.core.space.groups();
        let mut learned = 0;
        let mut rests_until = None;
        loop {
            {
                let mut stopping = self.stopping.lock();
                if !*stopping {
                    self.background.wait_for(&mut stopping, PAUSE);
                }
                if *stopping {
                    return Ok(());
                }
            }
            self.core.poison.check()?;
            self.unless_passing(self.core.prepare_log())?;
            if learned < groups {
                self.unless_passing(self.core.space.learn(&self.core, learned))?;
                learned += 1;
            }
            self.end_old_holders();
            self.note_figures();
            // Room that came or went elsewhere than by those for whom frames make it.
            self.unless_passing(engine.tend_room())?;
            // Behind the log's limit it would pause for long, and with it all that this thread does.
            let give_up = || self.is_stopping() || self.core.is_behind_limit();
            if sweeps && rests_until.is_none_or(|until| clock::now() >= until) && !give_up() {
                let mut round = Round::new(self, By::Background(jobs), STREAM_IDLE, &give_up);
                let swept = self.sweep(&mut round);
                let swept = round.end(swept);
                if round.was_cancelled() {
                    rests_until = Some(clock::now() + REST);
                } else if let Err(error) = &swept
                    && (error.is_unreadable() || matches!(error, Error::NoFrame(_)))
                {
                    rests_until = Some(clock::now() + REST_AFTER_FAILURE);
                }
                self.unless_passing(swept)?;
            }
            self.end_emptying();
            self.save_hot_pages(false);
            let core = &self.core;
            self.changes.merge_when_long(&core.budget, core.page_size, || core.space.capacity());
        }
    }

    /// One round: every complete segment behind the horizon, and the newest segments of streams that nobody has written to for some
    /// time. Fails with [`Error::Cancelled`] when it is given up. The background, which has other things to do, waits for nobody else's round:
    /// that one does the same.
    pub(crate) fn sweep(&self, round: &mut Round<'_>) -> Result<()> {
        let turn = match round.is_background() {
            true => self.sweeping.try_take(),
            false if round.needs_room() => Some(self.sweeping.take_for_room(&mut || round.check())?),
            false => Some(self.sweeping.take(&mut || round.check())?),
        };
        let Some(_turn) = turn else { return Ok(()) };
        let mut horizon = self.registry.horizon();
        if planted(Mutation::UndoFreedEarly) {
            horizon = self.registry.next_txn();
        }
        self.retire_idle_streams(horizon, round.idle)?;
        if !round.begins(|| self.free_segments(horizon)) {
            return Ok(());
        }
        loop {
            let mut segment = {
                let mut streams = self.streams.lock();
                let place = streams.complete.iter().position(|s| s.highest_txn < horizon);
                match place.and_then(|place| streams.complete.remove(place)) {
                    Some(segment) => segment,
                    None => break,
                }
            };
            match self.sweep_segment(&segment, horizon, round) {
                // The next start finds it again.
                Ok(Swept::GivenUp) => {
                    self.streams.lock().complete.push_front(segment);
                    round.check()?;
                    break;
                }
                Ok(Swept::Later(writer)) => {
                    segment.highest_txn = writer;
                    self.streams.lock().complete.push_back(segment);
                }
                Ok(Swept::Freed { underfull }) => {
                    round.segment_freed();
                    self.segments_swept.fetch_add(1, Ordering::Relaxed);
                    // Keys only ever come behind all others: what becomes empty is not used again. The segment is gone, whatever comes of this.
                    if underfull {
                        let directory = BTree::new(&self.core, &self.undo_directory);
                        directory.shrink_if_possible(&segment.key())?;
                    }
                }
                // Garbage that cannot be reached stays, in a segment that stays until the next start.
                Err(error) if error.is_unreadable() && !self.core.poison.is_set() => {
                    round.segment_stays(&error);
                }
                Err(error) => {
                    self.streams.lock().complete.push_front(segment);
                    return Err(error);
                }
            }
            if *self.stopping.lock() {
                break;
            }
        }
        self.sweep_status(horizon, round)
    }

    /// Segments that a sweep would free.
    fn free_segments(&self, horizon: TxnId) -> u64 {
        let streams = self.streams.lock();
        streams.complete.iter().filter(|segment| segment.highest_txn < horizon).count() as u64
    }

    fn retire_idle_streams(&self, horizon: TxnId, idle: Duration) -> Result<()> {
        let mut streams = self.streams.lock().take_idle();
        let mut result = Ok(());
        for stream in &mut streams {
            match stream.retire(&self.core, &self.undo_directory, horizon, idle) {
                Ok(Some(segment)) => self.streams.lock().complete.push_back(segment),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        self.streams.lock().give_idle(streams);
        result
    }

    fn sweep_segment(&self, segment: &Segment, horizon: TxnId, round: &mut Round<'_>) -> Result<Swept> {
        let core = &self.core;
        let pages: Vec<PageId> = (0..EXTENT_PAGES).map(|i| PageId(segment.first.0 + i)).collect();
        let ring = ScanRing::new(EXTENT_PAGES as usize);
        core.pool.prefetch(&core.volume, &pages, Class::Maintenance, Access::Ring(&ring));
        round.pace()?;
        for id in pages {
            round.check()?;
            self.tend_meanwhile(round)?;
            let Some(records) = undo::read_page(core, id, segment)? else { break };
            round.undo_page();
            if round.is_cold() {
                self.fetch_dead(&records)?;
                round.pace()?;
            }
            for (at, record) in records {
                if record.writer >= horizon {
                    return Ok(Swept::Later(record.writer));
                }
                if self.is_stopping() {
                    return Ok(Swept::GivenUp);
                }
                if !record.done {
                    round.breathe()?;
                    core.throttle(&|| round.gives_up())?;
                    if !self.sweep_record(at, &record, round)? {
                        return Ok(Swept::GivenUp);
                    }
                }
            }
            round.pace()?;
        }
        core.throttle(&|| round.gives_up())?;
        let mut mtr = Mtr::new(core);
        let underfull =
            BTree::new(core, &self.undo_directory).remove_with(&mut mtr, &segment.key(), |mtr| {
                mtr.allocations().free_extent_of(UNDO_PAGES, segment.first)
            })?;
        self.note_undone_or_swept();
        mtr.commit()?;
        Ok(Swept::Freed { underfull })
    }

    /// What the background thread is also there for, between two steps, with nothing latched: it may be long until it is through.
    fn tend_meanwhile(&self, round: &Round<'_>) -> Result<()> {
        if round.is_background() {
            self.unless_passing(self.core.prepare_log())?;
            self.end_old_holders();
            self.note_figures();
        }
        Ok(())
    }

    /// Has the leaves read, as deep batches, that dead entries are to be taken out of.
    fn fetch_dead(&self, records: &[(entry::UndoPtr, UndoRecord)]) -> Result<()> {
        let mut keys: BTreeMap<TreeId, Vec<&[u8]>> = BTreeMap::new();
        for (_, record) in records.iter().filter(|(_, r)| r.kind == UndoKind::Delete && !r.done) {
            keys.entry(record.tree).or_default().push(&record.key);
        }
        for (tree, mut keys) in keys.into_iter().filter(|(_, keys)| keys.len() > 1) {
            let Some(root) = self.find_tree(tree) else { continue };
            keys.sort_unstable();
            view::start_fetching(self, &root, &keys, Class::Maintenance)?;
        }
        Ok(())
    }

    /// Carries out what a committed change made into garbage; false when that was given up.
    fn sweep_record(&self, at: entry::UndoPtr, record: &UndoRecord, round: &mut Round<'_>) -> Result<bool> {
        round.done.records += 1;
        if record.kind == UndoKind::Delete {
            if record.tree == CATALOG
                && let Some((id, _)) = crate::catalog::decode(&record.value)
            {
                round.frees_tree();
                // It takes many steps: whoever begins to look amid them is told when it has ended.
                self.note_undone_or_swept();
                let tended = Cell::new(Ok(()));
                let tend = || {
                    let outcome = self.tend_meanwhile(round);
                    let goes_on = outcome.is_ok();
                    tended.set(outcome);
                    goes_on
                };
                let goes_on =
                    || !self.is_stopping() && !round.gives_up() && round.breathe().is_ok() && tend();
                let freed = self.free_tree(id, &goes_on);
                self.note_undone_or_swept();
                tended.into_inner()?;
                if !freed? {
                    return Ok(false);
                }
                round.done.trees += 1;
            }
            if self.purge(record)? {
                round.dead_entry(record.tree);
            }
        }
        let replaces_value = matches!(record.kind, UndoKind::Update | UndoKind::Delete);
        if replaces_value
            && record.previous_flags & entry::OVERFLOW != 0
            && self.find_tree(record.tree).is_some()
        {
            // It may take many steps, as well.
            self.note_undone_or_swept();
            let freed = overflow::free(&self.core, record.tree, at, record);
            self.note_undone_or_swept();
            freed?;
            round.long_value(record.tree);
        }
        Ok(true)
    }

    /// Takes a dead entry out of its tree, if it is still the one that the record made; says whether it was.
    fn purge(&self, record: &UndoRecord) -> Result<bool> {
        let Some(root) = self.find_tree(record.tree) else { return Ok(false) };
        let tree = BTree::new(&self.core, &root);
        let leaf = tree.leaf_exclusive(&record.key)?;
        let node = NodeRef::new(&leaf);
        let Ok(slot) = node.search(&record.key) else { return Ok(false) };
        let current = crate::versions::decode(node.payload(slot))?;
        if !current.is_tombstone() || current.writer != record.writer {
            return Ok(false);
        }
        let mut mtr = Mtr::new(&self.core);
        let part = mtr.add(leaf);
        mtr.remove_entry(part, &record.key);
        let underfull = is_underfull(mtr.page(part));
        self.note_undone_or_swept();
        mtr.commit()?;
        if underfull {
            tree.shrink_if_possible(&record.key)?;
        }
        Ok(true)
    }

    /// Forgets the fate of transactions below the horizon, leaf by leaf.
    fn sweep_status(&self, horizon: TxnId, round: &mut Round<'_>) -> Result<()> {
        let tree = BTree::new(&self.core, &self.status);
        let limit = horizon.0.to_be_bytes();
        loop {
            let Some((first, _)) = tree.first_from(&[])? else { return Ok(()) };
            if first.as_slice() >= limit.as_slice() || self.is_stopping() {
                return Ok(());
            }
            self.core.throttle(&|| round.gives_up())?;
            let leaf = tree.leaf_exclusive(&first)?;
            let node = NodeRef::new(&leaf);
            let all_dead = node.upper_fence().is_some_and(|upper| upper <= &limit[..]);
            let dead = if all_dead {
                node.count()
            } else if node.covers(&limit) {
                node.search(&limit).unwrap_or_else(|slot| slot)
            } else {
                0
            };
            // A few at a time are not worth a log record: wait until a quarter of the leaf is dead.
            if dead == 0 || (!all_dead && dead * 4 < node.count().max(64)) {
                return Ok(());
            }
            let image = without_first(node, dead);
            let mut mtr = Mtr::new(&self.core);
            let part = mtr.add(leaf);
            mtr.node(part, &NodeOp::Image { image: &image });
            let underfull = is_underfull(mtr.page(part));
            self.note_undone_or_swept();
            mtr.commit()?;
            round.done.outcomes += dead as u64;
            if underfull {
                tree.shrink_if_possible(&first)?;
            }
            if !all_dead {
                return Ok(());
            }
        }
    }

    /// Lets pass what need not end background work: no room on the disk or in memory for now, or bytes that cannot be read, of which others
    /// are told when they come upon them.
    fn unless_passing(&self, result: Result<()>) -> Result<()> {
        match result {
            Err(Error::Cancelled) => Ok(()),
            Err(error) if error.is_passing() || error.is_unreadable() => self.core.poison.check(),
            other => other,
        }
    }
}

/// The image of a leaf without its first `count` entries.
fn without_first(node: NodeRef<'_>, count: usize) -> Vec<u8> {
    let mut page = vec![0; node.page().len()];
    let mut rest =
        NodeMut::init(&mut page, node.tree(), node.level(), node.lower_fence(), node.upper_fence());
    let mut key = Vec::new();
    for slot in count..node.count() {
        key.clear();
        node.copy_key(slot, &mut key);
        let fitted = rest.insert(slot - count, &key, node.payload(slot));
        assert!(fitted, "part of a node fits a node");
    }
    let mut image = Vec::new();
    NodeRef::new(&page).image(&mut image);
    image
}

#[cfg(test)]
mod tests;
