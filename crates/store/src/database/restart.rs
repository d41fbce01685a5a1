//! The rest of a start, once the database can read pages: the threads, and what the catalog knows. From there on it is open; what
//! a crash has left is done in the background ([`crate::restart`]).

use super::open::Aftermath;
use super::{Database, PoisonOnPanic, RestartReport};
use crate::archive::Follower;
use crate::fetch;
use crate::log::LogHold;
use crate::recovery::PageRedo;
use crate::shared::Shared;
use crate::tree::BTree;
use crate::txn::active::ActiveTxn;
use crate::undo::{self, Circle};
use crate::{Error, Result, entry};
use gannet_base::clock::Instant;
use gannet_base::{TxnId, thread};
use std::sync::Arc;

impl Database {
    /// Starts the threads.
    pub(super) fn start(
        &mut self,
        redo: Option<Arc<PageRedo>>,
        aftermath: &Aftermath,
        begun: Instant,
        report: RestartReport,
    ) -> Result<()> {
        // The page writer moves it.
        let redo_from = self.keeper.meta.lock().redo_from;
        let writer = Arc::clone(&self.shared.writer);
        if !self.options.salvage {
            // Redo makes pages dirty: only from here on is there somebody to write them.
            self.spawn("gannet-writer", move |_| writer.run());
        }
        self.load_trees()?;
        let register = |&(id, undo): &(TxnId, u64)| self.shared.registry.insert_loser(id, undo);
        let losers: Vec<_> = aftermath.losers.iter().map(register).collect();
        self.shared.restart.begin(RestartReport {
            losers: losers.len() as u64,
            log_bytes: aftermath.end.0.saturating_sub(redo_from.0),
            duration: begun.elapsed(),
            ..report
        });
        if !self.shared.core.is_read_only() {
            let (engine, jobs, sweeps) = (self.engine.clone(), self.jobs.clone(), self.options.sweep);
            self.spawn("gannet-background", move |shared| shared.run_background(&engine, &jobs, sweeps));
            self.flusher = Some(self.shared.core.log.start_flusher(self.options.max_delay));
            self.started = true;
        }
        if !self.options.salvage {
            self.start_restart(redo, losers, aftermath);
        }
        Ok(())
    }

    /// Starts what a crash has left to be done.
    fn start_restart(
        &mut self,
        redo: Option<Arc<PageRedo>>,
        losers: Vec<Arc<ActiveTxn>>,
        aftermath: &Aftermath,
    ) {
        let warm = self.options.warm;
        if warm {
            self.shared.hot_pages.begin();
        }
        if let Some(redo) = redo {
            let (engine, end) = (self.engine.clone(), aftermath.end);
            let at_work = self.shared.restart.add_thread();
            self.spawn("gannet-redo", move |shared| {
                fetch::step_back();
                let hot = warm.then(|| shared.read_hot_pages());
                shared.run_redo(&engine, redo, end);
                drop(at_work);
                // What was hot and is due is in memory by now; both at a time would only take longer.
                if let Some(hot) = hot {
                    shared.warm_up(hot);
                }
            });
        } else if warm {
            self.spawn("gannet-warm-up", |shared| {
                fetch::step_back();
                let hot = shared.read_hot_pages();
                shared.warm_up(hot);
            });
        }
        // Otherwise readers step over the losers' changes through undo, and that is all.
        if !self.shared.core.is_read_only() {
            let opened_at = self.shared.core.log.end();
            let at_work = self.shared.restart.add_thread();
            self.spawn("gannet-revert", move |shared| {
                let _at_work = at_work;
                fetch::step_back();
                shared.run_reverts(&losers, opened_at);
            });
        }
    }

    /// Starts the thread that archives the log, given what of it was not archived yet.
    pub(super) fn start_archive(&mut self, unarchived: Option<LogHold>) -> Result<()> {
        let (status, hold) = match (self.shared.archive.clone(), unarchived) {
            (Some(status), Some(hold)) => (status, hold),
            (_, unarchived) => {
                self._unarchived = unarchived;
                return Ok(());
            }
        };
        if !self.started {
            return Ok(());
        }
        let meta = self.keeper.meta.lock().clone();
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The rest of the time is for pages.
        let limits = (&*name, self.options.mode, self.options.shutdown_limit / 2);
        let follower = Follower::new(&self.engine, &self.shared, &status, meta, hold, limits)?;
        // Whatever becomes of it, the others go on.
        self.archiver = Some(thread::spawn("gannet-archive", move || follower.run()));
        Ok(())
    }

    /// Starts a thread of the database, without which there would be no changes any more.
    fn spawn(&mut self, name: &str, body: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn(name, move || {
            let _guard = PoisonOnPanic(Arc::clone(&shared.core));
            body(&shared);
        }));
    }

    /// Notes every tree of the catalog, dropped and created ones in any state included.
    fn load_trees(&self) -> Result<()> {
        let catalog = BTree::new(&self.shared.core, &self.shared.catalog);
        let status = BTree::new(&self.shared.core, &self.shared.status);
        match status.get(&crate::catalog::NEXT_TREE) {
            Ok(next) => {
                if let Some(next) = next.and_then(|value| value.try_into().ok()) {
                    *self.shared.next_tree.lock() = u64::from_le_bytes(next) as u32;
                }
            }
            // Nobody can tell what number a new tree gets, and that is all.
            Err(error @ (Error::Damaged(_) | Error::NeverWritten(_) | Error::Io(_))) => {
                self.shared.core.set_read_only(format!("the tree of states is damaged: {error}"));
            }
            Err(error) => return Err(error),
        }
        let mut from = Vec::new();
        while let Some((key, payload)) = catalog.first_from(&from)? {
            let entry = crate::versions::decode(&payload)?;
            if let Some((id, root)) = crate::catalog::decode(entry.value)
                && !root.is_none()
            {
                self.shared.tree_root(id, root, &key);
            }
            // The version before may be another tree of the same name, which a rollback brings back.
            if entry.flags & entry::VERSIONED != 0 {
                self.load_previous(&key, &entry)?;
            }
            from = key;
            from.push(0);
        }
        Ok(())
    }

    /// Where that cannot be read, nobody can take back what the crash has left of the entry: the database takes no changes, and shows all that can be read.
    fn load_previous(&self, name: &[u8], entry: &entry::Entry<'_>) -> Result<()> {
        let mut undo = entry.undo;
        let open: Vec<TxnId> =
            self.shared.core.log.open_transactions().into_iter().map(|(id, _)| id).collect();
        let mut writer = entry.writer;
        let mut circle = Circle::default();
        while open.contains(&writer) && !undo.is_none() {
            let read = if circle.closes(undo) {
                Err(Error::damaged_page(undo.page(), "the history of a tree leads back to itself"))
            } else {
                undo::read_of(&self.shared.core, undo, writer)
            };
            let record = match read {
                Err(error) if error.is_unreadable() => {
                    let name = String::from_utf8_lossy(name);
                    let why = format!("what tree {name:?} was before the crash is damaged: {error}");
                    self.shared.core.set_read_only(why);
                    return Ok(());
                }
                read => read?,
            };
            if let Some((id, root)) = crate::catalog::decode(&record.value)
                && !root.is_none()
            {
                self.shared.tree_root(id, root, name);
            }
            (writer, undo) = (record.previous_writer, record.previous_undo);
        }
        Ok(())
    }
}
