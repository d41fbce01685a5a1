//! What a database is doing, for those who look at it from outside: transactions and whom they wait for, locks, snapshots, the
//! space each tree takes, the work in the background. Figures are of the moment each of them is read; together they are no
//! picture of one moment.

use super::Database;
use super::create::parent_of;
use crate::page::{self, PageKind};
use crate::pool::{Access, reads};
use crate::shared::CATALOG;
use crate::sweep::report::{Garbage, GarbageHolder};
use crate::txn::locks::Mode;
use crate::{Result, space};
use gannet_base::{Lsn, TreeId, TxnId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Space maps fetched as one batch.
const MAPS_AT_ONCE: usize = 64;

/// A transaction that has written or locked something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionReport {
    /// Its number.
    pub id: TxnId,
    /// Time since it got its number.
    pub age: Duration,
    /// The transactions that it waits for now.
    pub waits_for: Vec<TxnId>,
    /// How long it has waited for those.
    pub waiting: Option<Duration>,
}

/// A shared lock of a row, or of a tree, which whoever writes to it holds against its being dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLockReport {
    /// The row's tree; `None` where a tree is locked.
    pub tree: Option<TreeId>,
    /// The row's key, or the tree's name.
    pub key: Box<[u8]>,
    /// Who holds it.
    pub holder: TxnId,
    /// Whether the row has to stay as it is; otherwise only its key has.
    pub whole_row: bool,
}

/// A snapshot somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The number of the transaction's handle, as [`Canceller::number`](crate::Canceller::number) gives it.
    pub number: u64,
    /// Below this number it sees every transaction that committed.
    pub xmin: TxnId,
    /// Time since it was taken.
    pub age: Duration,
}

/// What the background has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkReport {
    /// Log position from which a restart would redo: what the page writer moves on.
    pub redo_from: Lsn,
    /// Log position of the last record.
    pub log_end: Lsn,
    /// Bytes of log that redo may have to go through at most.
    pub wal_limit: u64,
    /// Pages with changes that are not on the device yet.
    pub dirty_pages: u64,
    /// Pages written home since the database was opened.
    pub pages_written: u64,
    /// Whether a sweep is under way.
    pub sweeping: bool,
    /// Complete undo segments that wait to be swept.
    pub segments_left: u64,
    /// Undo segments freed since the database was opened.
    pub segments_swept: u64,
    /// Whether pages are fetched that were in memory at the last close.
    pub warming_up: bool,
    /// How many of them were fetched.
    pub pages_warmed: u64,
    /// How many of them are still to be fetched.
    pub pages_to_warm: u64,
    /// How many of them were left out, as no memory was free for them.
    pub pages_left_cold: u64,
}

impl Database {
    /// Transactions that have written or locked something, by number.
    pub fn transactions(&self) -> Vec<TransactionReport> {
        let registry = &self.shared.registry;
        let mut reports: BTreeMap<TxnId, TransactionReport> = BTreeMap::new();
        for active in registry.active() {
            let (id, age) = (active.id(), active.started().elapsed());
            reports.insert(id, TransactionReport { id, age, waits_for: Vec::new(), waiting: None });
        }
        for wait in registry.waits().list() {
            if let Some(report) = reports.get_mut(&wait.waiter) {
                report.waits_for = wait.holders;
                report.waiting = Some(wait.since.elapsed());
            }
        }
        reports.into_values().collect()
    }

    /// Shared locks of rows and trees, at most `limit` of them. (An exclusive lock stands in its row.)
    pub fn shared_row_locks(&self, limit: usize) -> Vec<RowLockReport> {
        let report = |lock: crate::txn::locks::LockInfo| RowLockReport {
            tree: (lock.tree != CATALOG).then_some(lock.tree),
            key: lock.key,
            holder: lock.txn,
            whole_row: lock.mode == Mode::Share,
        };
        let mut reports: Vec<_> = self.shared.locks.list(limit).into_iter().map(report).collect();
        for txn in self.shared.registry.active() {
            let trees = crate::txn::holds::trees_of(&txn).into_iter();
            let held = trees.filter_map(|id| self.shared.find_tree(id)).map(|tree| RowLockReport {
                tree: None,
                key: tree.name.clone(),
                holder: txn.id(),
                whole_row: false,
            });
            // A tree can be held in both ways.
            let told: BTreeSet<_> = reports
                .iter()
                .filter(|report| report.holder == txn.id() && report.tree.is_none())
                .map(|report| report.key.clone())
                .collect();
            let held = held.filter(|report| !told.contains(&report.key));
            reports.extend(held.take(limit - reports.len()));
        }
        reports
    }

    /// Snapshots that are held, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotReport> {
        let mut live = self.shared.registry.snapshots();
        live.sort_unstable_by_key(|snapshot| (snapshot.csn, snapshot.started));
        let report = |snapshot: crate::txn::registry::SnapshotInfo| SnapshotReport {
            number: snapshot.owner.session,
            xmin: snapshot.xmin,
            age: snapshot.started.elapsed(),
        };
        live.into_iter().map(report).collect()
    }

    /// Everybody who could hold garbage back, the oldest first, with what of it he does.
    pub fn holders(&self) -> Vec<GarbageHolder> {
        self.shared.garbage_and_all().holders
    }

    /// The garbage there is, and who holds some of it back.
    pub fn garbage(&self) -> Garbage {
        self.shared.garbage()
    }

    /// How long transactions that do not say may hold garbage back, see [`OpenOptions::snapshot_limit`](crate::OpenOptions::snapshot_limit).
    pub fn snapshot_limit(&self) -> Option<Duration> {
        self.shared.holders.limit
    }

    /// Bytes of log that redo may have to go through after a crash, see [`OpenOptions::wal_limit`](crate::OpenOptions::wal_limit).
    pub fn wal_limit(&self) -> u64 {
        self.shared.core.wal_limit
    }

    /// Has `listener` told of everybody who is ended because of a `snapshot_limit`, by a thread that must not be kept. Once.
    pub fn on_snapshot_limit(&self, listener: impl Fn(&GarbageHolder) + Send + Sync + 'static) {
        self.shared.holders.listen(Box::new(listener));
    }

    /// Its files, past symbolic links: the data file, and those of its log, as far as the log's folder can be listed.
    pub fn files(&self) -> Vec<PathBuf> {
        let folder = super::wal_folder(&self.real_path);
        let names = self.engine.disk().list(&folder).unwrap_or_default();
        let log = names.into_iter().filter(|name| name != super::LOCK).map(|name| folder.join(name));
        std::iter::once(self.real_path.clone()).chain(log).collect()
    }

    /// Bytes that are free for its data file; `None` where that is not known.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.engine.disk().free_bytes(parent_of(&self.real_path)).ok().flatten()
    }

    /// What the background is at.
    pub fn background_work(&self) -> WorkReport {
        let core = &self.shared.core;
        let mut dirty = Vec::new();
        self.pool.dirty_frames(&self.volume, &mut dirty);
        let (warming_up, pages_warmed, pages_to_warm, pages_left_cold) =
            self.shared.hot_pages.warming.report();
        WorkReport {
            redo_from: self.shared.writer.redo_from(),
            log_end: core.log.end(),
            wal_limit: self.shared.core.wal_limit,
            dirty_pages: dirty.len() as u64,
            pages_written: self.shared.writer.pages_written(),
            sweeping: self.shared.sweeping.is_taken(),
            segments_left: self.shared.streams.lock().complete.len() as u64,
            segments_swept: self.shared.segments_swept.load(Ordering::Relaxed),
            warming_up,
            pages_warmed,
            pages_to_warm,
            pages_left_cold,
        }
    }

    /// Pages in use, by the tree that owns them, long values and inner nodes included. Reads the space maps: one page for
    /// each 1000 extents or so.
    pub fn pages_by_tree(&self) -> Result<BTreeMap<TreeId, u64>> {
        let core = &self.shared.core;
        let _stays = self.shared.layout.keep(&mut || self.shared.core.check_open())?;
        let mut pages: BTreeMap<TreeId, u64> = BTreeMap::new();
        let maps: Vec<_> =
            (0..core.space.groups()).map(|group| space::map_page(group, core.page_size)).collect();
        for batch in maps.chunks(MAPS_AT_ONCE) {
            core.pool.prefetch(&core.volume, batch, reads::class(), Access::Normal);
            for &id in batch {
                let map = core.pool.shared(&core.volume, id, Access::Normal)?;
                if page::kind(&map) != Some(PageKind::SpaceMap) {
                    return Err(crate::Error::damaged_page(id, "a space map is expected here"));
                }
                for extent in space::read_map(&map) {
                    if extent.used != 0 {
                        *pages.entry(extent.owner).or_default() += u64::from(extent.used.count_ones());
                    }
                }
            }
        }
        Ok(pages)
    }
}
