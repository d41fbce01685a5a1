//! `gannet demo`: TPC-C data and transactions on a database that does not fit its memory, with the figures.
//!
//! Everything goes through SQL sessions within this process. The figures are no TPC result: nobody thinks between
//! transactions, and there are few sessions.

mod place;
mod report;
mod watch;

use crate::arguments::Demo;
use crate::progress::Progress;
use crate::{doctor, interrupt, kv, serve};
use anyhow::{Context, Result, bail};
use gannet_base::units::format_size;
use gannet_io::{Disk, RealDisk};
use gannet_lab::sql::Embedded;
use gannet_lab::tpcc::check::{CONDITIONS, violations};
use gannet_lab::tpcc::connection::Connect;
use gannet_lab::tpcc::{Size, load, run};
use gannet_sql::{Database, SqlState};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use place::Place;
use report::{Checked, Figures, Loaded, Report, Worked};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::watched;

/// The default budget: for each warehouse about a sixth of what it takes on the device, and never less than [`LEAST_DEFAULT`].
const WAREHOUSE_MEMORY: u64 = 16 << 20;
const LEAST_DEFAULT: u64 = 32 << 20;
/// What a session has to have, with its plans and the rows it works on.
const SESSION_BYTES: u64 = 256 << 10;
/// The log that a restart goes through at most, in budgets.
const LOG_PER_MEMORY: u64 = 4;
/// The same data and the same requests every time.
const SEED: u64 = 2026;

pub(crate) fn run(options: &Demo) -> Result<()> {
    let setup = Setup::new(options)?;
    interrupt::listen()?;
    let mut place = Place::take(&options.folder, options.again)?;
    let done = setup.demonstrate(&mut place);
    if done.is_err() && place.is_kept() {
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "gannet: the database stays in {:?}", place.database());
    }
    done.map_err(|error| setup.explained(error))
}

/// What is to be shown.
struct Setup {
    size: Size,
    sessions: u32,
    time: Duration,
    memory: u64,
    create: CreateOptions,
    open: OpenOptions,
    json: bool,
}

impl Setup {
    fn new(options: &Demo) -> Result<Self> {
        let usual = (u64::from(options.warehouses) * WAREHOUSE_MEMORY).max(LEAST_DEFAULT);
        let sessions = u64::from(options.sessions) * SESSION_BYTES;
        let memory = options.memory.unwrap_or(usual + sessions.saturating_sub(usual / 8));
        EngineOptions { memory, ..EngineOptions::default() }.check_machine()?;
        let create = kv::create_options(memory, None);
        let least = create.least_memory() + sessions;
        if memory < least {
            bail!(
                "a memory budget of {} is too small for {} sessions: give --memory {} or more",
                format_size(memory),
                options.sessions,
                format_size(least.next_multiple_of(1 << 20))
            );
        }
        let open = OpenOptions {
            wal_limit: (memory * LOG_PER_MEMORY).min(OpenOptions::default().wal_limit),
            mode: options.io,
            ..OpenOptions::default()
        };
        Ok(Setup {
            size: Size::new(options.warehouses).shrunk(options.shrink),
            sessions: options.sessions,
            time: Duration::from_secs(options.seconds.into()),
            memory,
            create,
            open,
            json: options.json,
        })
    }

    fn demonstrate(&self, place: &mut Place) -> Result<()> {
        let path = place.database();
        let mut report = Report::new(self.json);
        report.begins(place.folder(), self)?;
        let disk = Arc::new(RealDisk::default());
        let mut figures = Figures::default();

        let engine = self.engine(&disk, place.folder())?;
        let database = Database::create(&engine, &path, &self.create, &self.open, &serve::owner())
            .with_context(|| format!("cannot create {path:?}"))?;
        let worked = self.work(&database, &disk, &mut report, &mut figures, place);
        // Also after a failure: what is committed stays, and its pages go home.
        let closed = database.close();
        figures.memory.engine_bytes = engine.budget().peak();
        worked?;
        closed.with_context(|| format!("cannot close {path:?}"))?;
        drop(engine);

        self.look_again(&disk, place, &mut report, &mut figures)?;
        report.ends(&figures, &path, self)?;
        let failed = figures.failed_conditions();
        if failed > 0 {
            bail!("{failed} consistency conditions do not hold: this is a bug of Gannet, please report it");
        }
        Ok(())
    }

    fn engine(&self, disk: &Arc<RealDisk>, folder: &Path) -> Result<Engine> {
        let options = EngineOptions { memory: self.memory, temp_folder: Some(folder.to_owned()) };
        Ok(Engine::with_disk(Arc::clone(disk) as Arc<dyn Disk>, &options)?)
    }

    /// Loads, runs, and checks.
    fn work(
        &self,
        database: &Database,
        disk: &RealDisk,
        report: &mut Report,
        figures: &mut Figures,
        place: &mut Place,
    ) -> Result<()> {
        let embedded = Embedded { database: database.clone(), user: database.owner() };
        figures.mode = Some(database.store().io_mode().clone());

        let (loaded, peak) = watched(database, || self.load(&embedded, disk));
        figures.memory.process_bytes = peak;
        // Without all of the data the database is of no use to anybody, and goes with its place.
        let loaded = figures.loaded.insert(loaded.context("the load failed")?);
        place.keep();
        report.loaded(loaded, self)?;

        let (worked, peak) = watched(database, || self.run(&embedded, disk));
        figures.memory.process_bytes = figures.memory.process_bytes.max(peak);
        let worked = figures.worked.insert(worked?);
        report.worked(worked)?;

        let (checked, peak) = watched(database, || check(&embedded));
        figures.memory.process_bytes = figures.memory.process_bytes.max(peak);
        report.checked(figures.checked.insert(checked?))?;
        Ok(())
    }

    fn load(&self, embedded: &Embedded, disk: &RealDisk) -> Result<Loaded> {
        let (began, before) = (Instant::now(), disk.stats().snapshot());
        let mut progress = Progress::new("loading");
        // Each loader has one thread that makes rows and one that inserts them.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let plan = load::Load { size: self.size, seed: SEED, loaders: (cores / 2).max(1) as u32 };
        let loaded = load::tables(embedded, &plan, |share| {
            progress.say(Some(share), String::new);
            interrupt::check().is_ok()
        });
        interrupt::check()?;
        let rows = loaded?;
        progress.clear();
        let mut progress = Progress::new("indexes and statistics");
        progress.say(None, String::new);
        let finished = load::finish(&mut *embedded.connect()?, || interrupt::check().is_ok());
        interrupt::check()?;
        finished?;
        Ok(Loaded {
            rows,
            time: began.elapsed(),
            file_bytes: embedded.database.store().stats().file_bytes,
            io: disk.stats().snapshot().since(&before),
        })
    }

    fn run(&self, embedded: &Embedded, disk: &RealDisk) -> Result<Worked> {
        let before = disk.stats().snapshot();
        let mut progress = Progress::new("running");
        let plan = run::Plan {
            size: self.size,
            terminals: self.sessions,
            time: self.time,
            seed: SEED,
            rate: None,
            think: None,
            each: false,
            sample: Duration::from_secs(1),
        };
        let outcome = run::run(embedded, &plan, |moment| {
            let (seconds, done) = (moment.elapsed.as_secs_f64(), moment.transactions);
            let share = seconds / self.time.as_secs_f64();
            progress.say(Some(share), || format!("{:.0} transactions/s", done as f64 / seconds));
            interrupt::check().is_ok()
        })?;
        interrupt::check()?;
        Ok(Worked { outcome, io: disk.stats().snapshot().since(&before) })
    }

    /// Opens the database anew, as another process would, and checks what is in it.
    fn look_again(
        &self,
        disk: &Arc<RealDisk>,
        place: &Place,
        report: &mut Report,
        figures: &mut Figures,
    ) -> Result<()> {
        let path = place.database();
        let engine = self.engine(disk, place.folder())?;
        let began = Instant::now();
        let database = Database::open(&engine, &path, &self.open, &serve::owner())
            .with_context(|| format!("cannot open {path:?}"))?;
        figures.opening = began.elapsed();
        let embedded = Embedded { database: database.clone(), user: database.owner() };
        let (checked, peak) = watched(&database, || check(&embedded));
        drop(embedded);
        let cached = doctor::cached(&path);
        let closed = database.close();
        figures.memory.process_bytes = figures.memory.process_bytes.max(peak);
        figures.memory.engine_bytes = figures.memory.engine_bytes.max(engine.budget().peak());
        figures.cached = cached;
        report.checked_again(figures.opening, figures.checked_again.insert(checked?))?;
        closed.with_context(|| format!("cannot close {path:?}"))
    }

    /// The error as its user has to see it.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        if let Err(interrupted) = interrupt::check() {
            return interrupted;
        }
        let state = error.chain().find_map(|cause| Some(cause.downcast_ref::<gannet_sql::Error>()?.state()));
        let advice = match state {
            Some(SqlState::OUT_OF_MEMORY) => format!(
                "{} of memory are too little for {} warehouses and {} sessions: give more with --memory",
                format_size(self.memory),
                self.size.warehouses,
                self.sessions
            ),
            _ => return error,
        };
        error.context(advice)
    }
}

/// Counts what violates the consistency conditions.
fn check(embedded: &Embedded) -> Result<Checked> {
    let began = Instant::now();
    let mut progress = Progress::new("checking");
    let mut connection = embedded.connect()?;
    let mut found = Vec::new();
    for (index, condition) in CONDITIONS.iter().enumerate() {
        progress.say(Some(index as f64 / CONDITIONS.len() as f64), || condition.says.to_owned());
        let count = violations(&mut *connection, condition)
            .with_context(|| format!("condition {} could not be checked", condition.number))?;
        found.push((*condition, count));
    }
    Ok(Checked { found, time: began.elapsed() })
}
