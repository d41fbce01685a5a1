//! Statistics of a database: header and transactions, and what [`crate::stat`] says of what is stored.

use super::Database;
use crate::Result;
use crate::jobs::{JobKind, JobOrder, Watch};
use crate::meta::FORMAT_VERSION;
use crate::space::EXTENT_PAGES;
use crate::stat::{
    self, GarbageStat, HeaderStat, SnapshotStat, StatMode, StatOptions, StatReport, TransactionStat,
    WriterStat,
};
use gannet_base::clock;
use gannet_io::ModeRequest;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Transactions that are named.
const WRITERS_MOST: usize = 100;

impl Database {
    /// Statistics of header, transactions and trees. Transactions may run meanwhile. What a crash has left is waited for where
    /// everything is counted ([`StatMode::Records`]).
    ///
    /// ```
    /// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, StatOptions, TransactionOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let engine = Engine::new(&EngineOptions::default())?;
    /// # let path = folder.path().join("data.gnt");
    /// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
    /// let mut txn = db.begin(TransactionOptions::default());
    /// let tree = txn.create_tree("fruit")?;
    /// txn.put(&tree, b"apple", b"red")?;
    /// txn.commit()?;
    /// let report = db.statistics(&StatOptions::default())?;
    /// let fruit = report.trees.iter().find(|tree| tree.name.as_deref() == Some("fruit")).unwrap();
    /// let rows = fruit.contents.as_ref().unwrap().rows;
    /// assert!(rows.value == 1.0 && rows.is_exact());
    /// # db.close()?;
    /// # Ok::<(), gannet_store::Error>(())
    /// ```
    pub fn statistics(&self, options: &StatOptions) -> Result<StatReport> {
        let job = self.jobs().begin(JobOrder::new(JobKind::Stat));
        let outcome = self.statistics_watched(options, &mut Watch::new(&job, &mut |_| Ok(())));
        job.end(outcome)
    }

    /// The same as a part of a job.
    pub fn statistics_watched(&self, options: &StatOptions, watch: &mut Watch<'_>) -> Result<StatReport> {
        if options.mode == StatMode::Records {
            self.await_restart_watched(watch)?;
        }
        self.shared.core.check_open()?;
        let _stays = self.shared.layout.keep(&mut || watch.look())?;
        let report = stat::run(&self.engine, &self.shared, options, watch)?;
        Ok(self.with_marks(report))
    }

    /// Adds what the database says of itself.
    pub(super) fn with_marks(&self, report: StatReport) -> StatReport {
        StatReport { header: self.header(), transactions: self.transaction_marks(), ..report }
    }

    fn header(&self) -> HeaderStat {
        let (core, mode, restart) = (&self.shared.core, self.io_mode(), self.restart_report());
        let (redo_from, log_end) = (self.shared.writer.redo_from(), core.log.end());
        let (budget, archive) = (self.engine.budget(), self.archive_report());
        let meta = self.keeper.meta.lock();
        HeaderStat {
            page_bytes: meta.page_size as u64,
            format_version: FORMAT_VERSION,
            database_id: format!("{:016x}", meta.database_id),
            header_sequence: meta.sequence,
            incarnation: meta.incarnation,
            file_bytes: core.space.capacity() * meta.page_size as u64,
            segment_bytes: meta.segment_size,
            closed_cleanly: !restart.crashed,
            restart: restart.phase.name().to_owned(),
            redo_from: redo_from.0,
            log_end: log_end.0,
            restart_log_bytes: log_end.0.saturating_sub(redo_from.0),
            wal_limit_bytes: core.wal_limit,
            io_requested: match mode.requested {
                ModeRequest::Auto => "auto".to_owned(),
                ModeRequest::Only(mode) => mode.name().to_owned(),
            },
            io_effective: mode.effective.name().to_owned(),
            io_reason: mode.reason.clone(),
            memory_bytes: budget.limit(),
            memory_used_bytes: budget.used(),
            snapshot_limit_ms: self.snapshot_limit().map(|limit| limit.as_millis() as u64),
            long_sweeps: self.jobs().are_long_sweeps_allowed(),
            archive_state: archive.as_ref().map(|archive| archive.state.name().to_owned()),
            archive_behind_bytes: archive.as_ref().map_or(0, |archive| archive.behind_bytes),
            archive: archive.map(|archive| archive.destination.to_string_lossy().into_owned()),
        }
    }

    fn transaction_marks(&self) -> TransactionStat {
        let registry = &self.shared.registry;
        let snapshots = self.snapshots();
        let writers = self.transactions();
        let next = registry.next_txn().0;
        let oldest_active = writers.first().map_or(next, |writer| writer.id.0);
        let oldest_snapshot = snapshots.iter().map(|snapshot| snapshot.xmin.0).min().unwrap_or(next);
        let holder = snapshots.first().map(|snapshot| SnapshotStat {
            number: snapshot.number,
            xmin: snapshot.xmin.0,
            since_unix_us: since(snapshot.age),
            age_seconds: snapshot.age.as_secs_f64(),
        });
        // As everybody is told who asks who holds garbage back: a holder may have several snapshots, and write besides.
        let holds = holder
            .as_ref()
            .and_then(|oldest| self.holders().into_iter().find(|holder| holder.number == oldest.number));
        let held_alone = holds.map_or(0, |holds| holds.alone_bytes);
        let horizon = registry.horizon().0;
        let writer = |report: &crate::TransactionReport| WriterStat {
            id: report.id.0,
            since_unix_us: since(report.age),
            age_seconds: report.age.as_secs_f64(),
            waits_for: report.waits_for.iter().map(|id| id.0).collect(),
        };
        TransactionStat {
            oldest_transaction: horizon,
            oldest_active,
            oldest_snapshot,
            next_transaction: next,
            snapshots: snapshots.len() as u64,
            oldest_holder: holder,
            writers: writers.iter().take(WRITERS_MOST).map(writer).collect(),
            writers_count: writers.len() as u64,
            garbage: self.garbage_stat(horizon, oldest_active, held_alone),
        }
    }

    /// Undo segments that no running transaction writes to: those whose transactions are all below the horizon may be freed. Whoever has the oldest snapshot
    /// holds so many bytes of the others alone.
    fn garbage_stat(&self, horizon: u64, oldest_active: u64, held_alone: u64) -> GarbageStat {
        let segment_bytes = EXTENT_PAGES * self.page_size() as u64;
        let mut garbage = GarbageStat {
            segment_bytes,
            held_by_oldest_snapshot: held_alone / segment_bytes,
            swept_segments: self.shared.segments_swept.load(Ordering::Relaxed),
            ..GarbageStat::default()
        };
        for segment in self.shared.resting_undo() {
            let newest = segment.highest_txn.0;
            if newest < horizon {
                garbage.free_segments += 1;
                continue;
            }
            garbage.held_segments += 1;
            garbage.held_by_writers += u64::from(newest >= oldest_active);
        }
        garbage
    }
}

/// When something was that is so long ago, in microseconds since 1970-01-01 UTC.
fn since(age: Duration) -> u64 {
    clock::unix_micros().saturating_sub(age.as_micros() as u64)
}
