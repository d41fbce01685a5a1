//! `gannet kv`: a database as a map from keys to values, over the embedded API.

use crate::arguments::{Format, Kv, KvCommand, KvOptions};
use crate::input::{self, InputRows};
use crate::output::{self, Encoding, Rows};
use crate::progress::Progress;
use crate::{doctor, interrupt, job};
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::memory::Purpose;
use gannet_base::units::format_size;
use gannet_io::stats::Operation;
use gannet_io::{Disk, ModeRequest, RealDisk};
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, Error, MAX_VALUE, Transaction, TransactionOptions, Tree,
};
use serde_json::{Map, Value, json};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// A load commits after so many rows, or so many bytes of keys and values.
const BATCH_ROWS: u64 = 10_000;
const BATCH_BYTES: u64 = 4 << 20;

pub(crate) fn run(arguments: Kv) -> Result<()> {
    let Kv { path, mut command, options } = arguments;
    let mut piped = None;
    if let KvCommand::Put { value: None, .. } = &command {
        // Before anything is opened: until here a signal just ends the process.
        piped = Some(read_standard_input()?);
    }
    interrupt::listen()?;
    let encoding = if options.hex { Encoding::Hex } else { Encoding::Text };
    let session = Session { encoding, options: &options, path: &path, disk: Arc::new(RealDisk::default()) };
    // What is wrong with it is known before a database is made for it.
    let given = session.read_given(&command, piped)?;
    let db = session.open(matches!(command, KvCommand::Put { .. } | KvCommand::Load { .. }))?;
    let done = session.execute(&db, &mut command, given);
    // What was committed is durable; closing also writes the pages home, so it can fail on its own.
    let loaded = job::behind_closing(done, job::close(db), &path.to_string_lossy())?;
    if let Some(mut loaded) = loaded {
        session.add_io(&mut loaded)?;
        output::said(session.report(&loaded), "the rows are loaded")?;
    }
    Ok(())
}

/// What a new database is created with, so that it can be opened with this much memory.
pub(crate) fn create_options(memory: u64, page_size: Option<u64>) -> CreateOptions {
    let page_size = page_size.map_or(CreateOptions::default().page_size, |size| size as usize);
    CreateOptions::for_memory(memory, page_size)
}

fn read_standard_input() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let stdin = io::stdin().lock();
    stdin.take(MAX_VALUE + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    if bytes.len() as u64 > MAX_VALUE {
        bail!("standard input has more than {}, the longest value there can be", format_size(MAX_VALUE));
    }
    Ok(bytes)
}

/// What a command is given to store.
enum Given {
    Nothing,
    Row { key: Vec<u8>, value: Vec<u8> },
    Rows(Box<InputRows>),
}

struct Session<'a> {
    encoding: Encoding,
    options: &'a KvOptions,
    path: &'a Path,
    disk: Arc<RealDisk>,
}

impl Session<'_> {
    fn read_given(&self, command: &KvCommand, piped: Option<Vec<u8>>) -> Result<Given> {
        Ok(match command {
            KvCommand::Put { key, value } => {
                let value = match value {
                    Some(value) => self.encoding.read(value)?,
                    None => piped.unwrap_or_default(),
                };
                Given::Row { key: self.encoding.read(key)?, value }
            }
            KvCommand::Load { file, input, .. } => {
                Given::Rows(Box::new(InputRows::open(file, *input, self.encoding)?))
            }
            _ => Given::Nothing,
        })
    }

    fn open(&self, create: bool) -> Result<Database> {
        let disk = Arc::clone(&self.disk) as Arc<dyn Disk>;
        let options = EngineOptions { memory: self.options.memory, ..EngineOptions::default() };
        options.check_machine()?;
        let engine = Engine::with_disk(disk, &options)?;
        let open = self.options.log.opening(self.path, self.options.io);
        let exists = self.path.try_exists().with_context(|| format!("cannot look at {:?}", self.path))?;
        if !exists && !create {
            bail!("{:?} does not exist; put and load create a database", self.path);
        }
        let opened = match create && engine.is_missing(self.path)? {
            false => engine.open(self.path, &open),
            true => {
                engine.create(self.path, &create_options(self.options.memory, self.options.page_size), &open)
            }
        };
        let db = opened.map_err(|error| match error {
            Error::Memory(_) => anyhow!("{error}: --memory is too small for {:?}", self.path),
            other => other.into(),
        })?;
        if let Some(wanted) = self.options.page_size
            && wanted != db.page_size() as u64
        {
            let size = format_size(db.page_size() as u64);
            bail!("{:?} has pages of {size}: --page-size is chosen when a database is created", self.path);
        }
        self.remark(&db);
        Ok(db)
    }

    /// What the user should know and did not ask for.
    fn remark(&self, db: &Database) {
        let say = |text: String| {
            // Without a standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "gannet: {}", output::printable(&text));
        };
        let mode = db.io_mode();
        if let ModeRequest::Only(wanted) = mode.requested
            && wanted != mode.effective
        {
            say(format!(
                "--io {}: the files are opened {} instead: {}",
                wanted.name(),
                mode.effective.name(),
                mode.reason
            ));
        }
        for page in &db.restart_report().damaged_pages {
            say(page.clone());
        }
    }

    fn execute(&self, db: &Database, command: &mut KvCommand, given: Given) -> Result<Option<Value>> {
        let mut txn = db.begin(TransactionOptions::default());
        match (command, given) {
            (_, Given::Row { key, value }) => {
                self.check_change(&mut txn)?;
                let tree = self.tree_or_new(&mut txn)?;
                txn.put(&tree, &key, &value)?;
                txn.commit()?;
            }
            (KvCommand::Delete { keys }, _) => {
                self.check_change(&mut txn)?;
                let tree = self.tree(&mut txn)?;
                for key in keys {
                    if !txn.delete(&tree, &self.encoding.read(key)?)? {
                        bail!("there is no key {key:?}; nothing was deleted");
                    }
                }
                txn.commit()?;
            }
            (KvCommand::Scan { from, to, prefix, limit, reverse }, _) => {
                let range = self.range(from.as_deref(), to.as_deref(), prefix.as_deref())?;
                output::said(self.scan(&mut txn, range, limit.unwrap_or(u64::MAX), *reverse), "")?;
            }
            (command, Given::Rows(rows)) => {
                self.check_change(&mut txn)?;
                drop(txn);
                let sorted = matches!(command, KvCommand::Load { sorted: true, .. });
                return self.load(db, *rows, sorted).map(Some);
            }
            (KvCommand::Get { key }, _) => output::said(self.get(&mut txn, key), "")?,
            (KvCommand::Stat, _) => output::said(self.stat(db, txn), "")?,
            // What they store was given above.
            (KvCommand::Put { .. } | KvCommand::Load { .. }, Given::Nothing) => {}
        }
        Ok(None)
    }

    /// What SQL keeps in a tree is changed by statements only.
    fn check_change(&self, txn: &mut Transaction) -> Result<()> {
        let name = &self.options.tree;
        if gannet_sql::catalog::storage::is_reserved(&txn.view(), name)? {
            bail!("tree {name:?} belongs to SQL: change it by statements, as with `gannet sql`");
        }
        Ok(())
    }

    fn tree(&self, txn: &mut Transaction) -> Result<Tree> {
        let name = &self.options.tree;
        txn.tree(name)?.with_context(|| format!("there is no tree {name:?} in {:?}", self.path))
    }

    fn tree_or_new(&self, txn: &mut Transaction) -> Result<Tree> {
        match txn.tree(&self.options.tree)? {
            Some(tree) => Ok(tree),
            None => Ok(txn.create_tree(&self.options.tree)?),
        }
    }

    fn get(&self, txn: &mut Transaction, key: &str) -> Result<()> {
        let bytes = self.encoding.read(key)?;
        let tree = self.tree(txn)?;
        let value = txn.get(&tree, &bytes)?.with_context(|| format!("there is no key {key:?}"))?;
        let mut out = io::stdout().lock();
        if let Some(format) = self.options.format {
            let mut rows = Rows::new(&mut out, format, self.encoding, &["key", "value"]);
            rows.push(&[&bytes, &value])?;
            return rows.finish();
        }
        self.encoding.write_bytes(&mut out, &value)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }

    fn range(&self, from: Option<&str>, to: Option<&str>, prefix: Option<&str>) -> Result<Range> {
        let bytes = |text: Option<&str>| text.map(|text| self.encoding.read(text)).transpose();
        let (from, to) = match bytes(prefix)? {
            Some(prefix) => {
                let end = input::behind_prefix(&prefix);
                (Some(prefix), end)
            }
            None => (bytes(from)?, bytes(to)?),
        };
        Ok((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    fn scan(&self, txn: &mut Transaction, range: Range, limit: u64, reverse: bool) -> Result<()> {
        let tree = self.tree(txn)?;
        let range = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
        let mut cursor = txn.cursor(&tree, range)?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        let format = self.options.format.unwrap_or(Format::Table);
        let mut rows = Rows::new(&mut out, format, self.encoding, &["key", "value"]);
        for _ in 0..limit {
            interrupt::check()?;
            let row = if reverse { cursor.previous()? } else { cursor.next()? };
            let Some((key, value)) = row else { break };
            rows.push(&[key, value])?;
        }
        rows.finish()
    }

    fn load(&self, db: &Database, mut rows: InputRows, sorted: bool) -> Result<Value> {
        let mut loaded = Loaded { progress: Progress::new("loading"), rows: 0, bytes: 0 };
        let mut kept = 0;
        let done = match sorted {
            true => self.load_sorted(db, &mut rows, &mut loaded).inspect(|()| kept = loaded.rows),
            false => self.load_in_batches(db, &mut rows, &mut loaded, &mut kept),
        };
        loaded.progress.clear();
        if done.is_err() && kept > 0 {
            // Without a standard error there is nobody to tell.
            let _ = writeln!(io::stderr(), "gannet: the first {kept} rows are loaded and stay");
        }
        done?;
        let seconds = loaded.progress.elapsed().as_secs_f64();
        Ok(json!({
            "rows": loaded.rows,
            "loaded_bytes": loaded.bytes,
            "duration_us": (seconds * 1e6).round(),
            "mb_per_second": (loaded.bytes as f64 / seconds / 1e5).round() / 10.0,
        }))
    }

    fn load_sorted(&self, db: &Database, rows: &mut InputRows, loaded: &mut Loaded) -> Result<()> {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = match txn.create_tree(&self.options.tree) {
            Err(Error::Duplicate) => {
                bail!("there is a tree {:?} already; --sorted fills a new one", self.options.tree)
            }
            other => other?,
        };
        let mut loader = txn.bulk_loader(&tree)?;
        while rows.next()? {
            loader.push(rows.key(), rows.value()).with_context(|| rows.place())?;
            loaded.add(rows)?;
        }
        loader.finish()?;
        Ok(txn.commit()?)
    }

    fn load_in_batches(
        &self,
        db: &Database,
        rows: &mut InputRows,
        loaded: &mut Loaded,
        kept: &mut u64,
    ) -> Result<()> {
        loop {
            let mut txn = db.begin(TransactionOptions::default());
            let tree = self.tree_or_new(&mut txn)?;
            let (rows_before, bytes_before) = (loaded.rows, loaded.bytes);
            let mut more = true;
            while more && loaded.rows - rows_before < BATCH_ROWS && loaded.bytes - bytes_before < BATCH_BYTES
            {
                more = rows.next()?;
                if more {
                    txn.put(&tree, rows.key(), rows.value()).with_context(|| rows.place())?;
                    loaded.add(rows)?;
                }
            }
            txn.commit()?;
            *kept = loaded.rows;
            if !more {
                return Ok(());
            }
        }
    }

    /// What moving the data cost, and what it left behind.
    fn add_io(&self, report: &mut Value) -> Result<()> {
        let counts = self.disk.stats().snapshot();
        report["read_bytes"] = json!(counts.total(Operation::Read).1);
        report["written_bytes"] = json!(counts.total(Operation::Write).1);
        report["cached_bytes"] = doctor::cached(self.path)["cached_bytes"].take();
        Ok(())
    }

    fn report(&self, report: &Value) -> Result<()> {
        output::report(&mut io::stdout().lock(), self.options.format.unwrap_or(Format::Table), report)
    }

    fn stat(&self, db: &Database, mut txn: Transaction) -> Result<()> {
        let trees = txn.trees()?;
        txn.rollback()?;
        let (stats, restart, mode) = (db.stats(), db.restart_report(), db.io_mode());
        let budget = db.engine().budget();
        let mut memory = Map::new();
        memory.insert("limit_bytes".to_owned(), json!(budget.limit()));
        memory.insert("used_bytes".to_owned(), json!(budget.used()));
        for purpose in Purpose::ALL {
            memory.insert(format!("{}_bytes", purpose.name()), json!(budget.used_for(purpose)));
        }
        self.report(&json!({
            "page_bytes": db.page_size(),
            "file_bytes": stats.file_bytes,
            "trees": trees,
            "io": {
                "requested": mode.requested.name(),
                "effective": mode.effective.name(),
                "reason": mode.reason,
            },
            "memory": memory,
            "frames": { "all": stats.frames, "lent": stats.frames_lent, "free": stats.frames_free },
            "log": {
                "end_lsn": stats.end_lsn.0,
                "durable_lsn": stats.durable_lsn.0,
                "to_redo_bytes": stats.log_bytes,
            },
            "horizon": stats.horizon.0,
            "undo_segments": stats.undo_segments,
            "restart": {
                "crashed": restart.crashed,
                "phase": restart.phase.name(),
                "duration_us": restart.duration.as_micros() as u64,
                "background_us": restart.background.as_micros() as u64,
                "log_bytes": restart.log_bytes,
                "healed_pages": restart.healed_pages,
                "pages": restart.pages,
                "examined_pages": restart.examined_pages,
                "redone_pages": restart.redone_pages,
                "applied_changes": restart.applied_changes,
                "interrupted_transactions": restart.losers,
                "reverted_transactions": restart.reverted_losers,
                "damaged_pages": restart.damaged_pages,
            },
            "os_cache": doctor::cached(self.path),
        }))
    }
}

type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// How far a load has come.
struct Loaded {
    progress: Progress,
    rows: u64,
    bytes: u64,
}

impl Loaded {
    fn add(&mut self, rows: &InputRows) -> Result<()> {
        self.rows += 1;
        self.bytes += (rows.key().len() + rows.value().len()) as u64;
        if self.rows.is_multiple_of(64) {
            interrupt::check()?;
            let share = rows.share();
            let (rows, bytes, seconds) = (self.rows, self.bytes, self.progress.elapsed().as_secs_f64());
            self.progress.say(share, || format!("{rows} rows, {:.1} MB/s", bytes as f64 / seconds / 1e6));
        }
        Ok(())
    }
}
