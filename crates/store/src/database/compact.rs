//! Compacting a database.

use super::Database;
use crate::compact::{self, CompactReport};
use crate::jobs::{JobKind, JobOrder, Watch};
use crate::{Error, Result};
use std::sync::Arc;

impl Database {
    /// Gives space back to the file system: makes trees denser, moves pages to the begin of the file, and cuts off its end. Transactions may run
    /// meanwhile. What a crash has left is waited for.
    ///
    /// ```
    /// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let engine = Engine::new(&EngineOptions::default())?;
    /// # let path = folder.path().join("data.gnt");
    /// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
    /// let mut txn = db.begin(TransactionOptions::default());
    /// let tree = txn.create_tree("fruit")?;
    /// txn.put(&tree, b"apple", b"red")?;
    /// txn.commit()?;
    /// let report = db.compact()?;
    /// assert!(report.file_bytes <= report.file_bytes_before && report.held.is_empty());
    /// # db.close()?;
    /// # Ok::<(), gannet_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InUse`] while another compaction of this database is under way. Whatever else goes wrong: the database is as it was, with
    /// a part of the work done; the next compaction goes on from there.
    pub fn compact(&self) -> Result<CompactReport> {
        let job = self.jobs().begin(JobOrder::new(JobKind::Compact));
        let outcome = self.compact_watched(&mut Watch::new(&job, &mut |_| Ok(())));
        job.end(outcome)
    }

    /// The same as a part of a job.
    pub fn compact_watched(&self, watch: &mut Watch<'_>) -> Result<CompactReport> {
        self.shared.core.check_writable()?;
        let Some(_alone) = self.shared.compacting.try_lock() else {
            return Err(Error::InUse(format!(
                "another compaction of {:?} is under way: wait for it, or cancel that job",
                self.path
            )));
        };
        self.await_restart_watched(watch)?;
        let keeper = Arc::clone(&self.keeper);
        let write_header = move |groups, cut_at| {
            let mut meta = keeper.meta.lock();
            (meta.groups, meta.cut_at) = (groups, cut_at);
            meta.write_both(&*keeper.file)
        };
        compact::run(&self.engine, &self.shared, Box::new(write_header), watch)
    }
}
