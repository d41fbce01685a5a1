//! Gannet itself, embedded.

use crate::driver::{Counters, Driver, Key, LoadOrder, Rows, Scanned, Session};
use anyhow::{Context, Result, bail};
use gannet_base::memory::Purpose;
use gannet_io::stats::Operation;
use gannet_io::{Class, Mode, ModeRequest, Profile, RealDisk, RealOptions, ThrottledDisk};
use gannet_store::{
    CreateOptions, Database, Durability, Engine, EngineOptions, Isolation, OpenOptions, Transaction,
    TransactionOptions, Tree,
};
use serde_json::{Value, json};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tree every workload uses.
const TREE: &str = "rows";
/// Rows of one transaction while loading in random order.
const ROWS_AT_ONCE: u64 = 1000;

/// How Gannet is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that holds, or will hold, the database.
    pub folder: PathBuf,
    /// The memory budget in bytes.
    pub memory: u64,
    /// Bytes of a page, for a new database.
    pub page_size: usize,
    /// How files are opened.
    pub mode: ModeRequest,
    /// Bytes of log a restart may have to go through.
    pub wal_limit: u64,
    /// How a device behaves that is slower than the one there is; `None` for that one.
    pub profile: Option<Profile>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            folder: PathBuf::new(),
            memory: 256 << 20,
            page_size: 8192,
            mode: ModeRequest::Auto,
            wal_limit: 1 << 30,
            profile: None,
        }
    }
}

impl Options {
    pub(crate) fn engine(&self) -> Result<Engine> {
        let engine = EngineOptions { memory: self.memory, ..EngineOptions::default() };
        let Some(profile) = self.profile else { return Ok(Engine::new(&engine)?) };
        engine.check_machine()?;
        let disk = ThrottledDisk::new(Arc::new(RealDisk::new(RealOptions::default())), profile);
        Ok(Engine::with_disk(Arc::new(disk), &engine)?)
    }
}

/// How files are opened, by its name on the command line.
///
/// # Errors
/// There is none of this name.
pub fn mode(name: &str) -> Result<ModeRequest> {
    Ok(match name {
        "auto" => ModeRequest::Auto,
        "direct" => ModeRequest::Only(Mode::Direct),
        "uncached" => ModeRequest::Only(Mode::Uncached),
        "buffered" => ModeRequest::Only(Mode::Buffered),
        other => bail!("--io is auto, direct, uncached or buffered, not {other:?}"),
    })
}

/// An open Gannet database.
#[derive(Debug)]
pub struct Gannet {
    database: Database,
    options: Options,
}

impl Gannet {
    /// Opens the database in the folder; creates it first when `create`.
    pub fn open(options: &Options, create: bool) -> Result<Self> {
        std::fs::create_dir_all(&options.folder)
            .with_context(|| format!("cannot make the folder {:?}", options.folder))?;
        let engine = options.engine()?;
        let path = path(&options.folder);
        let open = OpenOptions { mode: options.mode, wal_limit: options.wal_limit, ..OpenOptions::default() };
        let database = if create {
            let create = CreateOptions::for_memory(options.memory, options.page_size);
            engine.create(&path, &create, &open)
        } else {
            engine.open(&path, &open)
        };
        let database = database.with_context(|| format!("cannot open {path:?}"))?;
        Ok(Gannet { database, options: options.clone() })
    }

    fn tree(&self) -> Result<Tree> {
        let mut txn = self.database.begin(TransactionOptions::default());
        match txn.tree(TREE)? {
            Some(tree) => Ok(tree),
            None => bail!("{:?} holds no rows: load it first", self.options.folder),
        }
    }

    fn load_sorted(&self, rows: &Rows, tree: &Tree, txn: &mut Transaction) -> Result<()> {
        let mut loader = txn.bulk_loader(tree)?;
        let mut value = Vec::new();
        for number in 0..rows.count {
            rows.value(number, 0, &mut value);
            loader.push(&Rows::key(number), &value)?;
        }
        Ok(loader.finish()?)
    }

    fn load_random(&self, rows: &Rows, tree: &Tree) -> Result<()> {
        let options = TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
        let mut value = Vec::new();
        for first in (0..rows.count).step_by(ROWS_AT_ONCE as usize) {
            let mut txn = self.database.begin(options);
            for place in first..(first + ROWS_AT_ONCE).min(rows.count) {
                let number = LoadOrder::Random.row(place, rows);
                rows.value(number, 0, &mut value);
                txn.put(tree, &Rows::key(number), &value)?;
            }
            txn.commit()?;
        }
        Ok(())
    }
}

/// The database's file in its folder.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("lab.gnt")
}

/// Removes the list of pages that Gannet reads back by itself after an opening, from a folder that may have a database of its own. No rival has such a list: where others begin
/// cold, it does, too.
///
/// # Errors
/// It cannot be removed.
pub fn forget_hot(folder: &Path) -> Result<()> {
    let list = folder.join("lab.gnt-wal").join("hot");
    match std::fs::remove_file(&list) {
        // There is none where nothing was in memory.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {list:?}"))
        }
        _ => Ok(()),
    }
}

/// Every setting that matters, as it is in force.
pub(crate) fn settings(database: &Database, options: &Options) -> Value {
    let mode = database.io_mode();
    json!({
        "memory_bytes": options.memory,
        "page_size": database.page_size(),
        "wal_limit_bytes": options.wal_limit,
        "slower_device": options.profile.map(|profile| format!("{profile:?}")),
        "io_mode": mode.effective.name(),
        "io_mode_reason": mode.reason,
        "durability": "every commit is durable when acknowledged",
    })
}

/// What the database and its disk have counted.
pub(crate) fn counters(database: &Database) -> Counters {
    let device = database.engine().disk().stats();
    let total = device.snapshot();
    let (device_reads, device_read_bytes) = total.total(Operation::Read);
    let (device_writes, device_write_bytes) = total.total(Operation::Write);
    let stats = database.stats();
    let commits = device.counter(Class::Commit, Operation::Write).requests.load(Ordering::Relaxed);
    Counters {
        device_reads,
        device_read_bytes,
        device_writes,
        device_write_bytes,
        commit_writes: commits,
        syncs: total.total(Operation::Sync).0,
        page_misses: stats.page_misses,
        pages_prefetched: stats.pages_prefetched,
        frame_waits: stats.frame_waits,
    }
}

/// What its memory budget is used for.
pub(crate) fn memory(database: &Database) -> Value {
    let (budget, stats) = (database.engine().budget(), database.stats());
    let of = |purpose: Purpose| (purpose.name().to_owned(), json!(budget.used_for(purpose)));
    let purposes: serde_json::Map<String, Value> = Purpose::ALL.into_iter().map(of).collect();
    json!({
        "budget_bytes": budget.limit(),
        "used_bytes": budget.used(),
        "used_for_bytes": purposes,
        "frames": stats.frames,
        "frames_lent": stats.frames_lent,
        "frames_free": stats.frames_free,
    })
}

/// Bytes of log that a start would have to go through now.
pub(crate) fn log_bytes(database: &Database) -> u64 {
    let work = database.background_work();
    work.log_end.0.saturating_sub(work.redo_from.0)
}

/// What its restart has done so far.
pub(crate) fn restart(database: &Database) -> Value {
    let report = database.restart_report();
    json!({
        "crashed": report.crashed,
        "phase": report.phase.name(),
        "open_seconds": report.duration.as_secs_f64(),
        "background_seconds": report.background.as_secs_f64(),
        "log_bytes": report.log_bytes,
        "pages": report.pages,
        "pages_left": report.pages_left,
        "examined_pages": report.examined_pages,
        "redone_pages": report.redone_pages,
        "applied_changes": report.applied_changes,
        "losers": report.losers,
        "reverted_losers": report.reverted_losers,
        "damaged": report.damaged_pages,
    })
}

/// The database's files.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let path = path(folder);
    let log = folder.join("lab.gnt-wal");
    let entries = std::fs::read_dir(&log).into_iter().flatten().flatten();
    std::iter::once(path).chain(entries.map(|entry| entry.path())).collect()
}

impl Driver for Gannet {
    fn name(&self) -> String {
        format!("gannet {}", env!("CARGO_PKG_VERSION"))
    }

    fn settings(&self) -> Value {
        settings(&self.database, &self.options)
    }

    fn load(&self, rows: &Rows, order: LoadOrder) -> Result<()> {
        let mut txn = self.database.begin(TransactionOptions::default());
        let tree = txn.create_tree(TREE)?;
        if order == LoadOrder::Sorted {
            self.load_sorted(rows, &tree, &mut txn)?;
        }
        txn.commit()?;
        if order == LoadOrder::Random {
            self.load_random(rows, &tree)?;
        }
        self.database.sweep()?;
        Ok(self.database.checkpoint()?)
    }

    fn session(&self, body: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        body(&mut GannetSession { database: &self.database, tree: self.tree()?, reading: None })
    }

    fn counters(&self) -> Counters {
        counters(&self.database)
    }

    fn restart(&self) -> Option<Value> {
        Some(restart(&self.database))
    }

    fn await_restart(&self) {
        self.database.await_restart();
    }

    fn log_bytes(&self) -> Option<u64> {
        Some(log_bytes(&self.database))
    }

    fn memory(&self) -> Option<Value> {
        Some(memory(&self.database))
    }

    fn files(&self) -> Vec<PathBuf> {
        files(&self.options.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

struct GannetSession<'d> {
    database: &'d Database,
    tree: Tree,
    reading: Option<Transaction>,
}

impl GannetSession<'_> {
    /// Reads in the open transaction, or in one of its own.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Transaction, &Tree) -> gannet_store::Result<T>,
    ) -> Result<T> {
        match &mut self.reading {
            Some(txn) => Ok(read(txn, &self.tree)?),
            None => Ok(read(&mut self.database.begin(TransactionOptions::default()), &self.tree)?),
        }
    }
}

impl Session for GannetSession<'_> {
    fn begin_reading(&mut self) -> Result<()> {
        let options =
            TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
        self.reading = Some(self.database.begin(options));
        Ok(())
    }

    fn end_reading(&mut self) -> Result<()> {
        self.reading = None;
        Ok(())
    }

    fn get(&mut self, key: &Key) -> Result<bool> {
        self.read(|txn, tree| Ok(std::hint::black_box(txn.get(tree, key)?).is_some()))
    }

    fn value(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.read(|txn, tree| Ok(txn.get(tree, key)?.map(|value| value.to_vec())))
    }

    fn multi_get(&mut self, keys: &[Key]) -> Result<usize> {
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let values = self.read(|txn, tree| txn.multi_get(tree, &keys))?;
        Ok(std::hint::black_box(values).iter().flatten().count())
    }

    fn scan(&mut self) -> Result<Scanned> {
        self.read(|txn, tree| {
            let mut scanned = Scanned::default();
            let mut cursor = txn.cursor(tree, (Bound::Unbounded, Bound::Unbounded))?;
            while let Some((_, value)) = cursor.next()? {
                scanned.count += 1;
                if let Some(first) = value.first_chunk() {
                    scanned.sum = scanned.sum.wrapping_add(u64::from_le_bytes(*first));
                }
            }
            Ok(scanned)
        })
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut txn = self.database.begin(TransactionOptions::default());
        txn.put(&self.tree, key, value)?;
        Ok(txn.commit()?)
    }

    fn update(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        let mut txn = self.database.begin(TransactionOptions::default());
        let found = txn.update(&self.tree, key, value)?;
        txn.commit()?;
        Ok(found)
    }
}
