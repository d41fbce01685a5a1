//! The last life of a database whose bytes go bad.
//!
//! # What is asked of the store then
//! 1. What is bad is found and named: by the error of whoever needs it, by the start that refuses the file, by the check.
//! 2. Whatever is answered is right, of every place. What the log or the ring can heal is healed, and what lies on other pages
//!    stays readable.
//! 3. The list of hot pages may say what it likes.
//!
//! # What cannot be asked
//! 1. A page of the data file that was acknowledged and not stored reads as well as any. The power goes when one is read, and
//!    nothing is judged from then on.
//! 2. Where the end of the log is bad nothing behind it says so. A database that opens with a log that went bad may have lost its
//!    last commits, and hold pages that are newer than what is left of the log: it is not judged.

use crate::life::{self, PATH, Summary};
use crate::oracle::{Look, Observation, Oracle, Place};
use crate::plan::{Damage, Ill, Plan, trace};
use crate::session::{CATALOG, Condition, TAG, World, is_damage};
use gannet_base::sim::Generator;
use gannet_base::{clock, sync::Mutex, thread};
use gannet_io::sim::SimDisk;
use gannet_store::{Database, Error, Isolation, Transaction, TransactionOptions, Tree};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes at the front of a file that rot more often than others: there is more in them.
const FRONT: u64 = 1 << 18;

/// Uses a database while bytes go bad, and looks at what is left.
pub(crate) fn decline(
    plan: &Plan,
    damage: &Damage,
    mut disk: SimDisk,
    oracle: &Arc<Mutex<Oracle>>,
    random: &mut Generator,
    summary: &mut Summary,
) {
    summary.damaged += 1;
    trace(|| format!("{damage:?}"));
    disk.set_faults(damage.faults());
    if damage.before {
        rot(&disk, damage, random);
        let Some(world) = open(plan, damage, &disk, oracle, summary) else { return };
        if !look(&world, damage, summary) {
            return;
        }
        drop(world);
        oracle.lock().restarted();
    }
    let Some(world) = open(plan, damage, &disk, oracle, summary) else { return };
    disk = live(Arc::new(world), damage, random, summary);
    if damage.behind {
        rot(&disk, damage, random);
    }
    disk.set_faults(damage.faults());
    oracle.lock().restarted();
    if let Some(world) = open(plan, damage, &disk, oracle, summary) {
        look(&world, damage, summary);
    }
}

/// Opens it, unless it is refused for a reason that is named.
fn open(
    plan: &Plan,
    damage: &Damage,
    disk: &SimDisk,
    oracle: &Arc<Mutex<Oracle>>,
    summary: &mut Summary,
) -> Option<World> {
    let condition = if damage.file == "/hot" { Condition::Well } else { Condition::Damaged };
    match life::engine(plan, disk).open(Path::new(PATH), &plan.open) {
        Ok(db) => Some(World::new(plan, db, disk, oracle, condition)),
        Err(error) => {
            trace(|| format!("refused: {error}"));
            let told = condition == Condition::Damaged && is_damage(&error);
            assert!(told || disk.is_crashed(), "open: {error:?}");
            summary.refused += u64::from(told);
            summary.unjudged += u64::from(!told);
            None
        }
    }
}

/// Sessions at work, and rot beside them; gives the disk that is found afterwards.
fn live(world: Arc<World>, damage: &Damage, random: &mut Generator, summary: &mut Summary) -> SimDisk {
    if let Some(after) = damage.crash {
        world.disk.crash_after(after);
    }
    let (disk, seed) = (world.disk.clone(), random.next_u64());
    let mine = damage.clone();
    let rotting = thread::spawn("rot", move || {
        let mut random = Generator::new(seed);
        for _ in 0..if mine.ill == Ill::Rot { 1 + random.below(3) } else { 0 } {
            clock::sleep(Duration::from_micros(random.below(100_000)));
            rot(&disk, &mine, &mut random);
        }
    });
    life::work(&world, random, summary);
    rotting.join().expect("nothing goes wrong in there");
    let world = Arc::into_inner(world).expect("all threads have ended");
    let disk = world.disk.clone();
    disk.cancel_crash();
    summary.lives += 1;
    if disk.is_crashed() || random.one_in(2) {
        summary.crashes += 1;
        disk.power_off();
    }
    if world.db.close().is_ok() && !disk.is_crashed() {
        world.oracle.lock().all_durable();
    }
    if disk.is_crashed() { disk.crash_image(random.next_u64()) } else { disk }
}

/// Some places of the files that this life's damage is about.
fn rot(disk: &SimDisk, damage: &Damage, random: &mut Generator) {
    let files: Vec<PathBuf> = disk.files();
    let files: Vec<&PathBuf> = files.iter().filter(|f| f.to_string_lossy().ends_with(damage.file)).collect();
    for _ in 0..damage.amount {
        let Some(path) = files.get(random.below(files.len().max(1) as u64) as usize) else { return };
        let len = disk.contents(path).map_or(0, |bytes| bytes.len() as u64);
        let within = if random.one_in(3) { len } else { len.min(FRONT) };
        if within < 64 {
            continue;
        }
        let at = random.below(within - 63);
        disk.corrupt(path, at, 64, random.next_u64()).expect("a place in the file");
        trace(|| format!("rot in {path:?} at {at}"));
    }
}

/// Looks at everything that can be read; false when that was the end of the judgement.
fn look(world: &World, damage: &Damage, summary: &mut Summary) -> bool {
    if damage.file == ".log" {
        summary.unjudged += 1;
        return false;
    }
    let report = world.db.await_restart();
    trace(|| format!("{report:?}"));
    let mut looking = Looking { world, seen: Vec::new(), unreadable: 0 };
    let judged = looking.all().and_then(|()| {
        let mut oracle = world.oracle.lock();
        let now = oracle.moment();
        oracle.judge(&looking.seen, Look { from: now, to: now })
    });
    judged.unwrap_or_else(|what| panic!("damage: {what}"));
    let told = !report.damaged_pages.is_empty() || findings(&world.db, &world.disk) > 0;
    // What was seen before the power went was judged.
    if world.disk.is_crashed() {
        summary.unjudged += 1;
        return false;
    }
    assert!(looking.unreadable == 0 || told, "pages cannot be read, and neither start nor check says so");
    summary.unreadable += u64::from(looking.unreadable > 0);
    true
}

/// What the check finds; what ends it is a finding, too.
fn findings(db: &Database, disk: &SimDisk) -> usize {
    match db.check() {
        Ok(report) => {
            trace(|| report.findings.iter().map(|finding| format!("{finding}\n")).collect());
            report.findings.len()
        }
        Err(error) => {
            let sound = is_damage(&error) || matches!(error, Error::Poisoned(_)) || disk.is_crashed();
            assert!(sound, "check: {error:?}");
            1
        }
    }
}

/// A look at every place that was ever written to.
struct Looking<'w> {
    world: &'w World,
    seen: Vec<Observation>,
    unreadable: usize,
}

impl Looking<'_> {
    fn all(&mut self) -> Result<(), String> {
        let options = TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() };
        let mut txn = self.world.db.begin(options);
        for number in 0..self.world.plan.trees.max(2) {
            let name = format!("tree{number}");
            let place = Place { tree: CATALOG, key: name.clone().into_bytes() };
            let tree = txn.tree(&name);
            match self.readable(tree)? {
                Some(Some(tree)) => self.tree(&mut txn, &tree, place)?,
                Some(None) => self.seen.push((place, None)),
                None => {}
            }
        }
        Ok(())
    }

    fn tree(&mut self, txn: &mut Transaction, tree: &Tree, place: Place) -> Result<(), String> {
        let tag = txn.get(tree, TAG);
        let token = match self.readable(tag)? {
            Some(Some(tag)) => self.world.plan.token(&tag)?,
            Some(None) => return Err(format!("{place:?} is seen, its rows are not")),
            None => return Ok(()),
        };
        self.seen.push((place, Some(token)));
        let known = self.world.oracle.lock().places_of(token, &[], None);
        for key in known {
            let value = txn.get(tree, &key);
            let Some(value) = self.readable(value)? else { continue };
            let value = value.map(|value| self.world.plan.token(&value)).transpose()?;
            self.seen.push((Place { tree: token, key }, value));
        }
        self.scan(txn, tree, token)
    }

    /// A scan shows nothing that the places did not, however far it comes.
    fn scan(&mut self, txn: &mut Transaction, tree: &Tree, token: u64) -> Result<(), String> {
        let cursor = txn.cursor(tree, (Bound::Unbounded, Bound::Unbounded));
        let Some(mut cursor) = self.readable(cursor)? else { return Ok(()) };
        loop {
            let row = cursor.next().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
            let Some(Some((key, value))) = self.readable(row)? else { return Ok(()) };
            let value = self.world.plan.token(&value)?;
            self.seen.push((Place { tree: token, key }, Some(value)));
        }
    }

    /// What was read; `None` when it cannot be, for a reason that is named.
    fn readable<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, String> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.world.condition == Condition::Damaged && is_damage(&error) => {
                trace(|| format!("unreadable: {error}"));
                self.unreadable += 1;
                Ok(None)
            }
            // The power, at a page that was lost.
            Err(Error::Io(_) | Error::Poisoned(_)) if self.world.disk.is_crashed() => Ok(None),
            Err(error) => Err(format!("unexpected error {error:?}: {error}")),
        }
    }
}
