//! What garbage there is, who holds it back, and what removing it will cost.
//!
//! Undo segments are the list of garbage. How many there are, and which of them somebody holds back, is known without reading any; what
//! they list is told from a sample of them.

use super::report::{Cleaned, Forecast, Garbage, GarbageHolder, HolderKind, TreeForecast};
use super::round::{By, Round};
use crate::Result;
use crate::entry;
use crate::jobs::{Unit, Watch};
use crate::overflow;
use crate::pool::{Access, ScanRing};
use crate::shared::{CATALOG, Shared};
use crate::space::EXTENT_PAGES;
use crate::stat::{Figure, estimate};
use crate::tree::BTree;
use crate::undo::{self, Segment, UndoKind};
use gannet_base::clock::{self, Instant};
use gannet_base::{PageId, TreeId, TxnId};
use gannet_io::{Calibration, Class};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Segments that a forecast looks at, at most.
const SAMPLED: usize = 32;
/// Holders that are named.
const HOLDERS_MOST: usize = 100;
/// Leaves that are read at one time, where the device takes as many: those of an undo page's dead entries.
const AT_ONCE: f64 = 32.0;

/// What holds the horizon back, before it is known how much that matters.
struct Hold {
    kind: HolderKind,
    from: u64,
    since: Instant,
    limit: Option<Duration>,
}

impl Shared {
    /// The garbage of this moment, with those who hold some of it back.
    pub(crate) fn garbage(&self) -> Garbage {
        let mut garbage = self.garbage_and_all();
        garbage.holders.retain(|holder| holder.held_bytes > 0);
        garbage.holders.truncate(HOLDERS_MOST);
        garbage
    }

    /// The same with everybody who could hold something back.
    pub(crate) fn garbage_and_all(&self) -> Garbage {
        let holds = self.holds();
        let horizon = self.registry.horizon().0;
        let next = self.registry.next_txn().0;
        let mut newest: Vec<u64> = self.resting_undo().iter().map(|segment| segment.highest_txn.0).collect();
        newest.sort_unstable();
        let segment_bytes = EXTENT_PAGES * self.core.page_size as u64;
        let below = |number: u64| newest.partition_point(|&newest| newest < number);
        let (free, all) = (below(horizon), newest.len());
        let held = |from: u64| (all - below(from).max(free)) as u64 * segment_bytes;
        let holds = by_owner(holds, |hold| held(hold.from) > 0);
        let mut froms: Vec<u64> = holds.values().map(|hold| hold.from).collect();
        froms.sort_unstable();
        let holder = |(&number, hold): (&u64, &Hold)| {
            let first = froms.first() == Some(&hold.from);
            let others = froms.get(usize::from(first)).copied().unwrap_or(next);
            GarbageHolder {
                kind: hold.kind,
                number,
                from: hold.from,
                since_unix_us: clock::unix_micros().saturating_sub(hold.since.elapsed().as_micros() as u64),
                age_seconds: hold.since.elapsed().as_secs_f64(),
                held_bytes: held(hold.from),
                alone_bytes: if first {
                    below(others).saturating_sub(free) as u64 * segment_bytes
                } else {
                    0
                },
                limit_seconds: hold.limit.map(|limit| limit.as_secs_f64()),
            }
        };
        let mut holders: Vec<GarbageHolder> = holds.iter().map(holder).collect();
        holders.sort_by_key(|holder| (holder.from, holder.number));
        Garbage {
            segment_bytes,
            free_segments: free as u64,
            held_segments: (all - free) as u64,
            horizon,
            next_transaction: next,
            holders,
        }
    }

    /// Undo segments that have nothing of a running transaction.
    pub(crate) fn resting_undo(&self) -> Vec<Segment> {
        // In this order: who ends in between is taken for running.
        let active: BTreeSet<TxnId> = self.registry.active().iter().map(|txn| txn.id()).collect();
        let mut segments: Vec<Segment> = self.streams.lock().resting().collect();
        segments.retain(|segment| !active.contains(&segment.highest_txn));
        segments
    }

    /// Transactions and their snapshots, with the numbers of their handles.
    fn holds(&self) -> Vec<(u64, Hold)> {
        let mut holds = Vec::new();
        for snapshot in self.registry.snapshots() {
            let (from, since, limit) = (snapshot.xmin.0, snapshot.started, snapshot.owner.limit);
            holds.push((snapshot.owner.session, Hold { kind: HolderKind::Snapshot, from, since, limit }));
        }
        for txn in self.registry.active() {
            let kind = if txn.is_cut_short() { HolderKind::Rollback } else { HolderKind::Transaction };
            let (from, since, limit) = (txn.id().0, txn.started(), txn.limit());
            holds.push((txn.handle(), Hold { kind, from, since, limit }));
        }
        holds
    }

    /// Sweeps as a part of a job.
    pub(crate) fn sweep_by_job(&self, watch: &mut Watch<'_>) -> Result<Cleaned> {
        let job = watch.job();
        job.phase("waits for another sweep", Unit::Segments, 0);
        watch.look()?;
        let watch = RefCell::new(watch);
        let give_up = || watch.borrow_mut().look().is_err();
        let mut round = Round::new(self, By::Job(job), Duration::ZERO, &give_up);
        let swept = self.sweep(&mut round);
        let mut cleaned = round.cleaned();
        for tree in &mut cleaned.by_tree {
            tree.name = self.tree_name(TreeId(tree.tree));
        }
        swept.map(|()| cleaned)
    }

    fn tree_name(&self, id: TreeId) -> Option<String> {
        let root = self.find_tree(id)?;
        (!root.name.is_empty()).then(|| String::from_utf8_lossy(&root.name).into_owned())
    }

    /// What a sweep would cost now.
    pub(crate) fn forecast(&self, device: Calibration, watch: &mut Watch<'_>) -> Result<Forecast> {
        let horizon = self.registry.horizon();
        let free: Vec<Segment> =
            self.streams.lock().resting().filter(|segment| segment.highest_txn < horizon).collect();
        let count = free.len().min(SAMPLED);
        watch.job().phase("reads a sample", Unit::Segments, count as u64);
        let mut seen = Vec::with_capacity(count);
        for number in 0..count {
            watch.look()?;
            seen.push(self.list(&free[number * free.len() / count], horizon)?);
            watch.job().advance(1);
        }
        watch.job().count_read(seen.iter().map(|listed| listed.bytes_read).sum());
        let mut forecast = foresee(&seen, free.len());
        for tree in &mut forecast.by_tree {
            let id = TreeId(tree.tree);
            let Some(root) = self.find_tree(id) else { continue };
            tree.name = self.tree_name(id);
            let leaves = BTree::new(&self.core, &root).size()?.leaf_pages;
            forecast.leaf_pages_most += most(tree.dead_entries).min(leaves);
        }
        (forecast.seconds, forecast.seconds_from) = seconds(&forecast, free.len(), device);
        Ok(forecast)
    }

    /// What an undo segment lists.
    fn list(&self, segment: &Segment, horizon: TxnId) -> Result<Listed> {
        let core = &self.core;
        let pages: Vec<PageId> = (0..EXTENT_PAGES).map(|i| PageId(segment.first.0 + i)).collect();
        let ring = ScanRing::new(EXTENT_PAGES as usize);
        let started = core.pool.prefetch(&core.volume, &pages, Class::Maintenance, Access::Ring(&ring));
        let mut listed = Listed { bytes_read: (started * core.page_size) as u64, ..Listed::default() };
        for id in pages {
            // Swept meanwhile, or not written to yet.
            let Some(records) = undo::read_page(core, id, segment)? else { break };
            listed.pages += 1;
            for (_, record) in records.into_iter().filter(|(_, r)| !r.done && r.writer < horizon) {
                listed.records += 1;
                let tree = listed.trees.entry(record.tree).or_default();
                let replaces = matches!(record.kind, UndoKind::Update | UndoKind::Delete);
                if replaces && record.previous_flags & entry::OVERFLOW != 0 {
                    tree.1 += 1;
                    let (len, _) = entry::decode_reference(&record.value);
                    listed.list_pages += overflow::list_pages_for(core.page_size, len);
                }
                if record.kind == UndoKind::Delete {
                    tree.0 += 1;
                    listed.drops += u64::from(record.tree == CATALOG);
                }
            }
        }
        Ok(listed)
    }
}

/// What each owner holds, by his number: from where he holds the horizon back most, and since when he has held something back, which need not be by the
/// same: a statement's snapshot is young, and sees less than what its transaction has held for long. Those that a crash has cut short are one.
fn by_owner(all: Vec<(u64, Hold)>, matters: impl Fn(&Hold) -> bool) -> BTreeMap<u64, Hold> {
    let mut holds: BTreeMap<u64, Hold> = BTreeMap::new();
    for (number, hold) in all {
        let Some(known) = holds.get_mut(&number) else {
            holds.insert(number, hold);
            continue;
        };
        let since = match (matters(known), matters(&hold)) {
            (true, false) => known.since,
            (false, true) => hold.since,
            _ => known.since.min(hold.since),
        };
        if hold.from < known.from {
            *known = hold;
        }
        known.since = since;
    }
    holds
}

/// What an undo segment lists.
#[derive(Default)]
struct Listed {
    pages: u64,
    records: u64,
    drops: u64,
    /// Pages that list those of long values.
    list_pages: u64,
    bytes_read: u64,
    /// Dead entries and long values.
    trees: BTreeMap<TreeId, (u64, u64)>,
}

/// From a sample of `segments` to all of them.
fn foresee(seen: &[Listed], segments: usize) -> Forecast {
    let whole = Figure::exact(segments as u64);
    let total = |of: &dyn Fn(&Listed) -> u64| {
        let each: Vec<f64> = seen.iter().map(|listed| of(listed) as f64).collect();
        if each.is_empty() {
            return Figure::default();
        }
        let most = seen.iter().map(|listed| listed.records).max().unwrap_or_default() as f64;
        estimate::total(&each, whole, 3.0 / each.len().max(3) as f64 * whole.value * most)
    };
    let mut trees: Vec<TreeId> = seen.iter().flat_map(|listed| listed.trees.keys().copied()).collect();
    trees.sort_unstable();
    trees.dedup();
    let of_tree = |tree: TreeId| TreeForecast {
        tree: tree.0,
        name: None,
        dead_entries: total(&|listed| listed.trees.get(&tree).map_or(0, |found| found.0)),
        long_values: total(&|listed| listed.trees.get(&tree).map_or(0, |found| found.1)),
    };
    let by_tree = trees.into_iter().map(of_tree);
    Forecast {
        sampled_segments: seen.len() as u64,
        records: total(&|listed| listed.records),
        dead_entries: total(&|listed| listed.trees.values().map(|found| found.0).sum()),
        long_values: total(&|listed| listed.trees.values().map(|found| found.1).sum()),
        dropped_trees: total(&|listed| listed.drops),
        by_tree: by_tree.filter(|tree| tree.dead_entries.value + tree.long_values.value > 0.0).collect(),
        undo_pages: (most(total(&|listed| listed.pages)).ceil() as u64).min(segments as u64 * EXTENT_PAGES),
        list_pages_most: most(total(&|listed| listed.list_pages)).ceil(),
        ..Forecast::default()
    }
}

/// As many as there are at most, in 95 of 100 cases.
fn most(figure: Figure) -> f64 {
    figure.value + figure.error
}

/// How long reading takes, where nothing of it is in memory: a segment is one request, leaves go to the device many at a time, pages of lists one by one.
fn seconds(forecast: &Forecast, segments: usize, device: Calibration) -> (Option<f64>, String) {
    let Some(latency) = device.read_latency else {
        return (None, "nothing is known yet of the device's latency".to_owned());
    };
    let at_once = device.depth.map_or(1.0, |depth| (depth as f64).clamp(1.0, AT_ONCE));
    let requests = segments as f64 + forecast.leaf_pages_most / at_once + forecast.list_pages_most;
    let micros = latency.as_nanos() as f64 / 1e3;
    let from = format!("a read takes {micros:.0} µs alone, {at_once:.0} leaves are read at a time");
    (Some(requests * latency.as_secs_f64()), from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was said to be at most was the estimate itself, which the truth exceeds as often as not; and of long values nothing was counted.
    #[test]
    fn what_is_to_be_read_at_most_has_the_error_of_the_estimate_in_it() {
        let of = |number: u64| Listed {
            pages: 1 + number % 16,
            records: 100,
            list_pages: number % 7,
            trees: BTreeMap::from([(TreeId(20), (number % 5, number % 7))]),
            ..Listed::default()
        };
        let all: Vec<Listed> = (0..320).map(of).collect();
        let truth = |of: &dyn Fn(&Listed) -> u64| all.iter().map(of).sum::<u64>() as f64;
        for first in 0..all.len() - SAMPLED {
            let seen: Vec<Listed> = (first..first + SAMPLED).map(|number| of(number as u64)).collect();
            let forecast = foresee(&seen, all.len());
            assert!(forecast.undo_pages as f64 >= truth(&|listed| listed.pages), "{forecast:?}");
            assert!(forecast.undo_pages <= 320 * EXTENT_PAGES);
            assert!(forecast.list_pages_most >= truth(&|listed| listed.list_pages), "{forecast:?}");
        }
        let forecast = foresee(&all, all.len());
        assert_eq!(forecast.undo_pages as f64, truth(&|listed| listed.pages));
        assert_eq!(forecast.list_pages_most, truth(&|listed| listed.list_pages));
        let device = |latency| Calibration { read_latency: Some(latency), ..Calibration::default() };
        let (seconds, _) = seconds(&forecast, 320, device(Duration::from_secs(1)));
        assert_eq!(seconds, Some(320.0 + forecast.list_pages_most));
    }
}
