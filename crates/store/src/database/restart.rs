//! The rest of a start, once the database can read pages: redo, and the losers of a crash.

use super::open::{Aftermath, read_undo_directory};
use super::{Database, PoisonOnPanic};
use crate::pool::{Access, ScanRing};
use crate::recovery::ChainRedo;
use crate::tree::BTree;
use crate::{Error, Result, entry};
use gannet_base::{TxnId, thread};
use gannet_io::Class;
use std::sync::Arc;

impl Database {
    /// Starts the threads, redoes pages and reverts losers.
    pub(super) fn start(&mut self, redo: Option<Arc<ChainRedo>>, aftermath: &Aftermath) -> Result<()> {
        let writer = Arc::clone(&self.shared.writer);
        let core = Arc::clone(&self.shared.core);
        self.threads.push(thread::spawn("gannet-writer", move || {
            let _guard = PoisonOnPanic(core);
            writer.run();
        }));
        // Redo makes pages dirty: only from here on is there somebody to write them.
        let (shared, next_txn) = (&self.shared, self.shared.registry.next_txn());
        *shared.streams.lock() = read_undo_directory(&shared.core, &shared.undo_directory, next_txn)?;
        self.load_trees()?;
        let register = |&(id, undo): &(TxnId, u64)| self.shared.registry.insert_loser(id, undo);
        let losers: Vec<_> = aftermath.losers.iter().map(register).collect();
        if let Some(redo) = redo {
            self.redo_all(&redo)?;
            (self.report.redone_pages, self.report.applied_changes) = redo.progress();
            if let Some(first) = self.report.damaged_pages.first() {
                // The log that these pages lack must stay, so nothing more can be logged: look, save, restore.
                let count = self.report.damaged_pages.len();
                let why =
                    format!("{count} pages could not be brought up to date from the log, the first: {first}");
                self.shared.core.set_read_only(why);
            } else {
                self.volume.set_redo(None);
                self.shared.writer.set_floor(None);
            }
        }
        self.report.losers = losers.len() as u64;
        if self.shared.core.is_read_only() {
            // Readers step over the losers' changes through undo.
            return Ok(());
        }
        for loser in &losers {
            self.shared.finish_revert(loser, true)?;
        }
        self.report.log_bytes = aftermath.end.0.saturating_sub(self.keeper.meta.lock().redo_from.0);
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn("gannet-background", move || {
            let _guard = PoisonOnPanic(Arc::clone(&shared.core));
            shared.run_background();
        }));
        self.flusher = Some(self.shared.core.log.start_flusher(self.options.max_delay));
        self.started = true;
        Ok(())
    }

    /// Touches every page that the log knows, in page order and with deep batches.
    fn redo_all(&mut self, redo: &ChainRedo) -> Result<()> {
        let pages = redo.pages();
        self.report.examined_pages = pages.len() as u64;
        let batch = (self.pool.frame_count() / 8).clamp(8, 256);
        let ring = ScanRing::new(batch * 2);
        for window in pages.chunks(batch) {
            self.pool.prefetch(&self.volume, window, Class::Prefetch, Access::Ring(&ring));
            for &id in window {
                match self.pool.shared(&self.volume, id, Access::Ring(&ring)) {
                    Ok(_) => {}
                    Err(error @ (Error::Damaged(_) | Error::NeverWritten(_))) => {
                        self.report.damaged_pages.push(error.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Notes every tree of the catalog, dropped and created ones in any state included.
    fn load_trees(&self) -> Result<()> {
        let catalog = BTree::new(&self.shared.core, &self.shared.catalog);
        let status = BTree::new(&self.shared.core, &self.shared.status);
        let next = status.get(&crate::catalog::NEXT_TREE)?.and_then(|value| value.try_into().ok());
        if let Some(next) = next {
            *self.shared.next_tree.lock() = u64::from_le_bytes(next) as u32;
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

    fn load_previous(&self, name: &[u8], entry: &entry::Entry<'_>) -> Result<()> {
        let mut undo = entry.undo;
        let open: Vec<TxnId> =
            self.shared.core.log.open_transactions().into_iter().map(|(id, _)| id).collect();
        let mut writer = entry.writer;
        while open.contains(&writer) && !undo.is_none() {
            let record = crate::undo::read(&self.shared.core, undo)?;
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
