//! Backups taken beside everybody's work, in chains that go over lives and crashes, restored beside it, and held against the oracle.

use crate::life::{self, Summary};
use crate::oracle::Look;
use crate::plan::trace;
use crate::session::{self, Condition, Stop, World};
use gannet_base::sim::Generator;
use gannet_base::{clock, sync::Mutex};
use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::{
    BackupFile, BackupPlace, BackupPlan, Error, Isolation, JobKind, JobOrder, JobReport, OpenOptions, Since,
    Source, StatOptions, Taken, TransactionOptions, Watch,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FOLDER: &str = "backups";
const COPY: &str = "copy.gnt";

/// How often that was done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    taken: u64,
    /// Of these, backups that read only what had changed.
    by_list: u64,
    restored: u64,
}

impl Counts {
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        summary.backups += self.taken;
        summary.backups_by_list += self.by_list;
        summary.backups_restored += self.restored;
    }
}

/// The body of the thread that takes backups.
pub(crate) fn run(world: &World, seed: u64, counts: &Mutex<Counts>) {
    let mut random = Generator::new(seed);
    for _ in 0..1 + random.below(4) {
        clock::sleep(Duration::from_micros(random.below(40_000)));
        let from = world.moment();
        let taken = match take(world, &mut random) {
            Ok(Some(taken)) => taken,
            Ok(None) => continue,
            Err(Stop::Again) => continue,
            Err(Stop::Dead) => return,
        };
        let look = Look { from, to: world.moment() };
        let manifest = &taken.backup.manifest;
        let by_list = manifest.is_incremental() && manifest.all_read.is_none();
        let restored =
            (manifest.is_incremental() || random.one_in(2)) && restore(world, taken.backup, look).is_some();
        let mut counts = counts.lock();
        counts.taken += 1;
        counts.by_list += u64::from(by_list);
        counts.restored += u64::from(restored);
    }
}

/// Takes a backup, now and then not to the end; nothing where it could not be taken for a reason that is none to stop.
fn take(world: &World, random: &mut Generator) -> Result<Option<Taken>, Stop> {
    let folder = Path::new(FOLDER);
    let made = world.disk.create_dir(folder).and_then(|()| world.disk.sync_dir(Path::new("")));
    made.map_err(|error| sort(world, "a folder for backups", error.into()))?;
    let plan = BackupPlan {
        folder: BackupPlace::new(Arc::new(world.disk.clone()), folder),
        since: (!random.one_in(3)).then_some(Since::Latest),
        compress: random.one_in(4).then_some(1),
        archive: None,
        keep: random.one_in(2).then(|| 1 + random.below(2) as u32),
        statistics: random.one_in(4).then(StatOptions::default),
    };
    let mut looks = if random.one_in(8) { random.below(10) } else { u64::MAX };
    let job = world.db.jobs().begin(JobOrder::new(JobKind::Backup));
    let mut tell = |_: &JobReport| {
        looks = looks.saturating_sub(1);
        if looks == 0 { Err(Error::Cancelled) } else { Ok(()) }
    };
    let outcome = job.end(world.db.backup_into(&plan, &mut Watch::new(&job, &mut tell)));
    trace(|| format!("{plan:?}: {outcome:?}"));
    outcome.map(Some).or_else(|error| match error {
        Error::Backup(text)
            if text.contains("take a full one first") || text.contains("slower than it grows") =>
        {
            Ok(None)
        }
        // Others have all the memory there is.
        Error::Memory(_) => Ok(None),
        error => Err(sort(world, "backup", error)),
    })
}

/// As [`World::sort`]; what becomes of a destination is told in other words.
fn sort(world: &World, what: &str, error: Error) -> Stop {
    match error {
        Error::Backup(_) | Error::Damaged(_) if world.trouble() => Stop::Again,
        Error::Backup(_) if world.condition == Condition::Full => Stop::Again,
        error => world.sort(what, error),
    }
}

/// Restores a backup to another database, which must have been this one at one moment; nothing where there is trouble.
fn restore(world: &World, backup: BackupFile, look: Look) -> Option<()> {
    let what = format!("{} restored", backup.manifest);
    let outcome = restored(world, backup);
    clear(&world.disk);
    match outcome {
        Ok(state) => {
            let verdict = world.oracle.lock().judge_state(&state, look);
            verdict.unwrap_or_else(|error| panic!("{what}: {error}"));
            Some(())
        }
        Err(Error::Memory(_)) => None,
        Err(_) if world.trouble() || world.condition == Condition::Full => None,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// What is in a backup.
fn restored(world: &World, backup: BackupFile) -> Result<session::State, Error> {
    let chain = backup.chain()?;
    clear(&world.disk);
    let engine = life::engine(&world.plan, &world.disk);
    let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
    let mut tell = |_: &JobReport| Ok(());
    let mut watch = Watch::new(&job, &mut tell);
    job.end(engine.restore(Source::Files(chain), Path::new(COPY), &world.plan.open, &mut watch))?;
    // The folder of the archive is that of the database it was taken from.
    let open = OpenOptions { archive: None, ..world.plan.open.clone() };
    let db = engine.open(Path::new(COPY), &open)?;
    let report = db.check()?;
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    if !findings.is_empty() && !world.trouble() {
        panic!("check of what was restored: {} findings:\n{}", findings.len(), findings.join("\n"));
    }
    let mut txn = db.begin(TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() });
    session::all_rows(&world.plan, &mut txn)
}

/// Removes the copy; what is left of one is in the way of the next one, which says so.
fn clear(disk: &SimDisk) {
    let folder = format!("{COPY}-wal");
    let folder = Path::new(&folder);
    for name in disk.list(folder).unwrap_or_default() {
        let _ = disk.remove(&folder.join(name));
    }
    let _ = disk.remove_dir(folder);
    let _ = disk.remove(Path::new(COPY));
    let _ = disk.sync_dir(Path::new(""));
}

/// Whatever is there of backups after all crashes, and says that it is complete, is.
pub(crate) fn verify(world: &World) {
    if !world.disk.exists(Path::new(FOLDER)).expect("a look at it") {
        return;
    }
    let engine = life::engine(&world.plan, &world.disk);
    let place = BackupPlace::new(Arc::new(world.disk.clone()), FOLDER);
    let found = BackupFile::all(&place, &mut |error| panic!("a backup: {error}"));
    for backup in found.expect("the folder") {
        let what = backup.manifest.to_string();
        let job = engine.jobs().begin(JobOrder::new(JobKind::Verify));
        let mut tell = |_: &JobReport| Ok(());
        let proven = backup.chain().and_then(|chain| {
            engine.verify(Source::Files(chain), world.plan.open.mode, &mut Watch::new(&job, &mut tell))
        });
        job.end(proven).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
