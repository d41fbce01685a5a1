//! One session: random transactions, with everything they see held against the oracle.

use crate::oracle::{Look, Observation, Oracle, Place, Writes};
use crate::plan::{HUGE_OPERATIONS, Plan, trace};
use gannet_base::sim::Generator;
use gannet_base::{clock, sync::Mutex};
use gannet_io::sim::{Faults, SimDisk};
use gannet_store::{
    Database, Durability, Error, Isolation, JobKind, JobOrder, JobReport, LockMode, Savepoint, Transaction,
    TransactionOptions, Tree, Watch,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The catalog's place in the oracle.
pub(crate) const CATALOG: u64 = 0;
/// A row of every tree that says which tree it is.
pub(crate) const TAG: &[u8] = b"\0tag";

/// How the disk is in one life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Nothing is wrong but that the power may go.
    Well,
    /// It may fail with this life's faults.
    Faulty,
    /// It is full, which is no reason to fail: changes are refused, and that is all.
    Full,
    /// Bytes may go bad: what cannot be read is refused by name, and that is all.
    Damaged,
}

/// What the threads of one life share.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) db: Database,
    pub(crate) disk: SimDisk,
    pub(crate) oracle: Arc<Mutex<Oracle>>,
    pub(crate) condition: Condition,
    /// A session found the database closed to changes.
    pub(crate) closed: AtomicBool,
    /// The device has failed as planned.
    injected: AtomicBool,
    pub(crate) operations: AtomicU64,
    size: Mutex<FileSize>,
}

/// How the data file's size goes.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileSize {
    bytes: u64,
    pub(crate) grown: u64,
    pub(crate) cut: u64,
}

/// Why a transaction goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It is to be rolled back; the next one may do better.
    Again,
    /// The database is closed to changes.
    Dead,
}

pub(crate) type Step<T = ()> = Result<T, Stop>;

impl World {
    pub(crate) fn new(
        plan: &Plan,
        db: Database,
        disk: &SimDisk,
        oracle: &Arc<Mutex<Oracle>>,
        condition: Condition,
    ) -> Self {
        World {
            plan: plan.clone(),
            db,
            disk: disk.clone(),
            oracle: Arc::clone(oracle),
            condition,
            closed: AtomicBool::new(false),
            injected: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            size: Mutex::new(FileSize::default()),
        }
    }

    /// How often the data file was seen to have grown, or to have been cut, in this life.
    pub(crate) fn watch_size(&self) -> FileSize {
        let bytes = self.db.stats().file_bytes;
        let mut size = self.size.lock();
        size.grown += u64::from(size.bytes > 0 && bytes > size.bytes);
        size.cut += u64::from(bytes < size.bytes);
        size.bytes = bytes;
        *size
    }

    /// Whether errors of the device are to be expected: of now, or of before, which somebody may be about to tell of.
    pub(crate) fn trouble(&self) -> bool {
        if self.condition == Condition::Faulty && !self.disk.injected().is_empty() {
            self.injected.store(true, Ordering::SeqCst);
        }
        self.disk.is_crashed() || self.injected.load(Ordering::SeqCst)
    }

    /// From now on the device does as it should.
    pub(crate) fn end_faults(&self) {
        self.trouble();
        self.disk.set_faults(Faults::default());
    }

    /// Sorts an error; one that has no business here ends the simulation.
    pub(crate) fn sort(&self, what: &str, error: Error) -> Stop {
        trace(|| format!("{what}: {error}"));
        match &error {
            Error::Deadlock(_) | Error::Conflict(_) | Error::Locked(_) | Error::Cancelled => Stop::Again,
            Error::Invalid(text) if text.contains("does not exist any more") => Stop::Again,
            Error::NoSpace(_) if self.condition == Condition::Full || self.trouble() => Stop::Again,
            _ if self.condition == Condition::Damaged && is_damage(&error) => Stop::Again,
            Error::Poisoned(_) if self.trouble() || self.condition == Condition::Damaged => {
                self.closed.store(true, Ordering::SeqCst);
                Stop::Dead
            }
            // A page that the log was to bring up to date could not be read.
            error if is_read_only(error) && self.trouble() => {
                self.closed.store(true, Ordering::SeqCst);
                Stop::Dead
            }
            Error::Io(_) if self.trouble() => {
                if self.disk.is_crashed() {
                    Stop::Dead
                } else {
                    Stop::Again
                }
            }
            _ => panic!("{what}: unexpected error {error:?}: {error}"),
        }
    }

    /// Judges what a snapshot showed.
    pub(crate) fn judge(&self, who: &str, seen: &[Observation], from: u64, to: u64) {
        let verdict = self.oracle.lock().judge(seen, Look { from, to });
        if let Err(what) = verdict {
            panic!("{who}: {what}");
        }
    }

    pub(crate) fn moment(&self) -> u64 {
        self.oracle.lock().moment()
    }
}

/// Whether an error says that the database is open, but not for changes.
pub(crate) fn is_read_only(error: &Error) -> bool {
    matches!(error, Error::Damaged(what) if what.contains("open for reading only"))
}

/// Whether an error says that stored bytes are bad, and where.
pub(crate) fn is_damage(error: &Error) -> bool {
    match error {
        Error::NeverWritten(_) => true,
        Error::Damaged(what) => ["page ", "log ", "log: ", "header"].iter().any(|place| what.contains(place)),
        _ => false,
    }
}

/// One transaction at work.
pub(crate) struct Work<'w> {
    pub(crate) world: &'w World,
    pub(crate) random: &'w mut Generator,
    pub(crate) name: String,
    pub(crate) txn: Transaction,
    pub(crate) repeatable: bool,
    sync: bool,
    /// Own writes: when, and what.
    pub(crate) own: Writes,
    /// Trees opened by name, with their tokens.
    pub(crate) trees: BTreeMap<String, (Tree, u64)>,
    savepoints: Vec<(Savepoint, Writes)>,
    /// Of the snapshot, under `REPEATABLE READ`.
    seen: Vec<Observation>,
    taken: Option<(u64, u64)>,
    begun: u64,
}

/// The body of a session's thread.
pub(crate) fn run(world: &World, number: u64, seed: u64) {
    let mut random = Generator::new(seed);
    for round in 0..world.plan.transactions {
        if transaction(world, &mut random, format!("session {number}, transaction {round}"))
            == Err(Stop::Dead)
        {
            return;
        }
        if random.one_in(3) {
            clock::sleep(Duration::from_micros(random.below(3000)));
        }
    }
}

fn transaction(world: &World, random: &mut Generator, name: String) -> Step {
    let timeouts = [None, None, Some(Duration::ZERO), Some(Duration::from_millis(3))];
    let lock_timeout = timeouts[random.below(4) as usize];
    let mut work = Work::begin(world, random, name, lock_timeout);
    let result = work.operations();
    work.judge_snapshot();
    work.end(result)
}

/// Transactions that are under way when a life ends, with the log durable behind them: to be let go of when it has ended.
pub(crate) fn strand(world: &World, random: &mut Generator) -> Vec<Transaction> {
    let mut stranded = Vec::new();
    for number in 0..1 + random.below(4) {
        // Nobody is there to end those that this one would wait for.
        let mut work = Work::begin(world, random, format!("stranded {number}"), Some(Duration::ZERO));
        if work.operations().is_ok() {
            stranded.push(work.txn);
        }
    }
    if random.one_in(2) {
        clock::sleep(world.plan.open.max_delay * 2);
    } else if let Err(error) = world.db.checkpoint() {
        world.sort("checkpoint at the end", error);
    }
    stranded
}

impl<'w> Work<'w> {
    fn begin(
        world: &'w World,
        random: &'w mut Generator,
        name: String,
        lock_timeout: Option<Duration>,
    ) -> Self {
        let repeatable = random.one_in(2);
        let sync = !random.one_in(3);
        let options = TransactionOptions {
            isolation: if repeatable { Isolation::RepeatableRead } else { Isolation::ReadCommitted },
            durability: if sync { Durability::Sync } else { Durability::Async },
            lock_timeout,
            snapshot_limit: None,
        };
        Work {
            world,
            random,
            name,
            txn: world.db.begin(options),
            repeatable,
            sync,
            own: BTreeMap::new(),
            trees: BTreeMap::new(),
            savepoints: Vec::new(),
            seen: Vec::new(),
            taken: None,
            begun: world.moment(),
        }
    }

    fn operations(&mut self) -> Step {
        let huge_one_in = self.world.plan.huge_one_in;
        let is_huge = huge_one_in > 0 && self.random.one_in(huge_one_in);
        let count = if is_huge { HUGE_OPERATIONS } else { 1 } + self.random.below(self.world.plan.operations);
        (0..count).try_for_each(|_| self.operation())
    }

    fn end(self, result: Step) -> Step {
        let (world, name) = (self.world, self.name.clone());
        if result.is_err() || self.random.one_in(6) {
            trace(|| format!("{name}: rollback"));
            if self.random.one_in(3) {
                drop(self.txn);
                return result;
            }
            let rolled_back = self.txn.rollback().map_err(|e| world.sort(&format!("{name}: rollback"), e));
            return if result == Err(Stop::Dead) { result } else { rolled_back };
        }
        if self.txn.id().is_none() {
            return self.txn.commit().map_err(|e| world.sort(&format!("{name}: commit of nothing"), e));
        }
        let index = world.oracle.lock().committing(name.clone(), self.sync, &self.own);
        let result = self.txn.commit();
        trace(|| format!("{name}: commit {result:?}"));
        match result {
            Ok(()) => {
                world.oracle.lock().committed(index);
                Ok(())
            }
            Err(error) => {
                // As long as the database goes on, what failed is not in the log and was taken back.
                let aborted = !error.is_fatal() || world.db.failure().is_none();
                world.oracle.lock().failed(index, aborted);
                Err(world.sort(&format!("{name}: commit"), error))
            }
        }
    }

    pub(crate) fn sorted<T>(&self, what: &str, result: Result<T, Error>) -> Step<T> {
        result.map_err(|e| self.world.sort(&format!("{}: {what}", self.name), e))
    }

    pub(crate) fn token(&self, value: &[u8]) -> u64 {
        self.world.plan.token(value).unwrap_or_else(|what| panic!("{}: {what}", self.name))
    }

    /// Holds what an operation saw, of places this transaction has not written, against the oracle.
    pub(crate) fn observe(&mut self, seen: Vec<Observation>, from: u64) {
        self.world.operations.fetch_add(1, Ordering::Relaxed);
        let mut foreign = Vec::with_capacity(seen.len());
        for (place, value) in seen {
            match self.own.get(&place) {
                Some(&(_, own)) => assert_eq!(value, own, "{}: its own write at {place:?}", self.name),
                None => foreign.push((place, value)),
            }
        }
        if self.repeatable {
            // The snapshot was taken by the first operation, which need not have been one that looked at anything.
            let to = self.taken.map_or_else(|| self.world.moment(), |(_, to)| to);
            self.taken.get_or_insert((self.begun, to));
            self.seen.extend(foreign);
        } else {
            let to = self.world.moment();
            self.world.judge(&self.name, &foreign, from, to);
        }
    }

    fn judge_snapshot(&mut self) {
        if let Some((from, to)) = self.taken {
            self.world.judge(&self.name, &self.seen, from, to);
        }
    }

    // ---- trees ------------------------------------------------------------------------------------------------

    /// A tree, if the transaction sees it.
    fn tree(&mut self, name: &str) -> Step<Option<(Tree, u64)>> {
        if let Some(known) = self.trees.get(name) {
            return Ok(Some(known.clone()));
        }
        let from = self.world.moment();
        let found = self.txn.tree(name);
        let found = self.sorted("open a tree", found)?;
        let place = Place { tree: CATALOG, key: name.as_bytes().to_vec() };
        let Some(tree) = found else {
            self.observe(vec![(place, None)], from);
            return Ok(None);
        };
        let tag = self.txn.get(&tree, TAG);
        let tag = self.sorted("read a tree's tag", tag)?;
        let tag = tag.unwrap_or_else(|| panic!("{}: tree {name:?} is seen, its rows are not", self.name));
        let token = self.token(&tag);
        if self.repeatable {
            self.observe(vec![(place, Some(token))], from);
        }
        self.trees.insert(name.to_owned(), (tree.clone(), token));
        Ok(Some((tree, token)))
    }

    fn tree_name(&mut self) -> String {
        format!("tree{}", self.random.below(self.world.plan.trees))
    }

    fn create_tree(&mut self) -> Step {
        let name = self.tree_name();
        let created = match self.txn.create_tree(&name) {
            Err(Error::Duplicate) => return Ok(()),
            created => self.sorted("create a tree", created)?,
        };
        let token = self.world.moment();
        self.check_before(&Place { tree: CATALOG, key: name.as_bytes().to_vec() }, Some(false), true);
        self.wrote(CATALOG, name.as_bytes(), Some(token));
        let tag = self.world.plan.short_value(token);
        if self.random.one_in(2) {
            if self.random.one_in(3) {
                self.load_in_vain(&created)?;
            }
            let count = self.random.below(self.world.plan.keys);
            let mut rows = BTreeMap::new();
            for number in 0..count {
                rows.insert(self.world.plan.key(number), self.world.moment());
            }
            rows.insert(TAG.to_vec(), token);
            let values: Vec<_> =
                rows.iter().map(|(k, t)| (k.clone(), self.world.plan.short_value(*t))).collect();
            let loaded =
                self.txn.bulk_load(&created, values.iter().map(|(k, v)| (k.as_slice(), v.as_slice())));
            self.sorted("bulk load", loaded)?;
            rows.iter().for_each(|(key, token)| self.wrote(token_of(&rows), key, Some(*token)));
        } else {
            let put = self.txn.put(&created, TAG, &tag);
            self.sorted("tag a tree", put)?;
            self.wrote(token, TAG, Some(token));
        }
        self.trees.insert(name, (created, token));
        Ok(())
    }

    /// A load that is taken back to a savepoint, finished or not.
    fn load_in_vain(&mut self, tree: &Tree) -> Step {
        let savepoint = self.txn.savepoint();
        let mut keys: Vec<_> =
            (0..self.random.below(self.world.plan.keys)).map(|i| self.world.plan.key(i)).collect();
        keys.sort();
        let finish = self.random.one_in(2);
        let load = |txn: &mut Transaction| {
            let mut loader = txn.bulk_loader(tree)?;
            for key in &keys {
                loader.push(key, &[7; 100])?;
            }
            if finish { loader.finish() } else { Ok(()) }
        };
        let loaded = load(&mut self.txn);
        self.sorted("load in vain", loaded)?;
        let done = self.txn.rollback_to(savepoint);
        self.sorted("take back a load", done)
    }

    fn drop_tree(&mut self) -> Step {
        let name = self.tree_name();
        let dropped = self.txn.drop_tree(&name);
        if self.sorted("drop a tree", dropped)? {
            self.trees.remove(&name);
            self.check_before(&Place { tree: CATALOG, key: name.as_bytes().to_vec() }, Some(true), false);
            self.wrote(CATALOG, name.as_bytes(), None);
        }
        Ok(())
    }

    /// Notes a write that has succeeded.
    pub(crate) fn wrote(&mut self, tree: u64, key: &[u8], value: Option<u64>) {
        let moment = self.world.moment();
        trace(|| {
            let key = String::from_utf8_lossy(key);
            format!("{} ({:?}) wrote {value:?} at tree {tree} {key:?}", self.name, self.txn.id())
        });
        self.own.insert(Place { tree, key: key.to_vec() }, (moment, value));
    }

    // ---- operations -------------------------------------------------------------------------------------------

    fn operation(&mut self) -> Step {
        match self.random.below(100) {
            0 => return self.create_tree(),
            1 if self.random.one_in(3) => return self.drop_tree(),
            2..=6 => {
                let taken = (self.txn.savepoint(), self.own.clone());
                self.savepoints.push(taken);
                return Ok(());
            }
            7..=10 => return self.rollback_to(),
            11..=13 => {
                clock::sleep(Duration::from_micros(self.random.below(4000)));
                return Ok(());
            }
            _ => {}
        }
        let name = self.tree_name();
        let Some((tree, token)) = self.tree(&name)? else { return Ok(()) };
        match self.random.below(100) {
            0..=14 => self.get(&tree, token),
            15..=19 => self.multi_get(&tree, token),
            20..=28 => self.scan(&tree, token),
            29..=33 => self.statement(&tree, token),
            _ => self.write(&tree, token),
        }
    }

    fn rollback_to(&mut self) -> Step {
        if self.savepoints.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.savepoints.len() as u64) as usize;
        let (savepoint, own) = self.savepoints[index].clone();
        self.savepoints.truncate(index + 1);
        trace(|| format!("{}: rollback to {savepoint:?}", self.name));
        let done = self.txn.rollback_to(savepoint);
        self.sorted("roll back to a savepoint", done)?;
        self.own = own;
        self.trees.clear();
        Ok(())
    }

    pub(crate) fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(self.world.plan.keys);
        self.world.plan.key(number)
    }

    fn get(&mut self, tree: &Tree, token: u64) -> Step {
        let key = self.key();
        let from = self.world.moment();
        let value = self.txn.get(tree, &key);
        let value = self.sorted("get", value)?.map(|v| self.token(&v));
        self.observe(vec![(Place { tree: token, key }, value)], from);
        Ok(())
    }

    fn multi_get(&mut self, tree: &Tree, token: u64) -> Step {
        let keys: Vec<Vec<u8>> = (0..1 + self.random.below(30)).map(|_| self.key()).collect();
        let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let from = self.world.moment();
        let values = self.txn.multi_get(tree, &wanted);
        let values = self.sorted("multi-get", values)?;
        let values: Vec<_> = values.into_iter().map(|v| v.map(|v| self.token(&v))).collect();
        let places = keys.into_iter().map(|key| Place { tree: token, key });
        self.observe(places.zip(values).collect(), from);
        Ok(())
    }

    /// A cursor over a range, one way or the other, to the end or not.
    fn scan(&mut self, tree: &Tree, token: u64) -> Step {
        let (mut low, mut high) = (self.key(), self.key());
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let whole = self.random.one_in(4);
        let range = match whole {
            true => (Bound::Unbounded, Bound::Unbounded),
            false => (Bound::Included(low.as_slice()), Bound::Included(high.as_slice())),
        };
        let forward = self.random.one_in(2);
        let limit = if self.random.one_in(3) { self.random.below(20) as usize } else { usize::MAX };
        let from = self.world.moment();
        let found = read_range(&mut self.txn, tree, range, forward, limit, self.random);
        let (rows, complete) = self.sorted("scan", found)?;
        let (mut first, mut last) = match whole {
            true => (Vec::new(), None),
            false => (low, Some(high)),
        };
        if !complete && forward {
            last = Some(rows.last().map(|(key, _)| key.clone()).unwrap_or_default());
        } else if !complete {
            first = rows.last().map(|(key, _)| key.clone()).unwrap_or_default();
        }
        let in_order = rows.windows(2).all(|w| if forward { w[0].0 < w[1].0 } else { w[0].0 > w[1].0 });
        assert!(in_order, "{}: a cursor gives keys out of order", self.name);
        if complete || !rows.is_empty() {
            let seen = self.shown(&self.own, token, (first, last), rows);
            self.observe(seen, from);
        }
        Ok(())
    }

    /// What a range showed, of places of others and those of `own` alike: the rows, and nothing in between.
    pub(crate) fn shown(
        &self,
        own: &Writes,
        token: u64,
        (first, last): (Vec<u8>, Option<Vec<u8>>),
        rows: Rows,
    ) -> Vec<Observation> {
        let known = self.world.oracle.lock().places_of(token, &first, last.as_deref());
        let own = own.keys().filter(|p| p.tree == token && p.key >= first);
        let own = own.filter(|p| last.as_ref().is_none_or(|last| p.key <= *last));
        let mut seen: BTreeMap<Vec<u8>, Option<u64>> = BTreeMap::new();
        seen.extend(known.into_iter().chain(own.map(|p| p.key.clone())).map(|key| (key, None)));
        for (key, value) in rows {
            seen.insert(key, Some(self.token(&value)));
        }
        seen.into_iter().map(|(key, value)| (Place { tree: token, key }, value)).collect()
    }

    fn write(&mut self, tree: &Tree, token: u64) -> Step {
        let key = self.key();
        let place = Place { tree: token, key: key.clone() };
        let new = self.world.moment();
        let value = self.world.plan.value(new);
        let delete = self.random.below(100) < self.world.plan.deletes;
        let kind = if delete { 70 } else { self.random.below(100) };
        trace(|| {
            format!("{} ({:?}) writes {new}, kind {kind}, {} bytes", self.name, self.txn.id(), value.len())
        });
        let txn = &mut self.txn;
        // What is known of the row before: `Some(true)` there, `Some(false)` not there; and what is written.
        let (result, writes) = match kind {
            0..=39 => (txn.put(tree, &key, &value).map(|()| None), Some(Some(new))),
            40..=54 => match txn.insert(tree, &key, &value) {
                Err(Error::Duplicate) => (Ok(None), None),
                result => (result.map(|()| Some(false)), Some(Some(new))),
            },
            55..=69 => (txn.update(tree, &key, &value).map(|there| there.then_some(true)), Some(Some(new))),
            70..=86 => (txn.delete(tree, &key).map(|there| there.then_some(true)), Some(None)),
            87..=92 => (txn.lock(tree, &key, LockMode::Exclusive).map(|there| there.then_some(true)), None),
            93..=96 => (txn.lock(tree, &key, LockMode::Share).map(|there| there.then_some(true)), None),
            _ => (txn.lock(tree, &key, LockMode::KeyShare).map(|_| None), None),
        };
        let before = self.sorted("write", result)?;
        self.world.operations.fetch_add(1, Ordering::Relaxed);
        self.check_before(&place, before, (40..=54).contains(&kind));
        match writes {
            Some(value) if before.is_some() || kind < 40 => self.wrote(token, &key, value),
            _ => {}
        }
        Ok(())
    }

    /// The row is held now, so what was there before is what was committed last.
    pub(crate) fn check_before(&mut self, place: &Place, before: Option<bool>, insert: bool) {
        let Some(before) = before else { return };
        if let Some((_, own)) = self.own.get(place) {
            assert_eq!(own.is_some(), before, "{}: a write at its own {place:?}", self.name);
            return;
        }
        let Some(newest) = self.world.oracle.lock().newest(place) else { return };
        assert_eq!(newest.is_some(), before, "{}: a write at {place:?}, which holds {newest:?}", self.name);
        if self.repeatable
            && !insert
            && let Some((from, _)) = self.taken
        {
            // A write is refused when the snapshot does not see the newest version. (An insert only asks whether the key
            // is there now.)
            self.observe(vec![(place.clone(), newest)], from);
        }
    }
}

fn token_of(rows: &BTreeMap<Vec<u8>, u64>) -> u64 {
    rows[TAG]
}

pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Up to `limit` rows of a range, and whether that was all. Now and then turns round or seeks in between.
fn read_range(
    txn: &mut Transaction,
    tree: &Tree,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    forward: bool,
    limit: usize,
    random: &mut Generator,
) -> Result<(Rows, bool), Error> {
    let mut cursor = txn.cursor(tree, range)?;
    let mut rows: Rows = Vec::new();
    let turning = random.one_in(4);
    loop {
        if rows.len() >= limit {
            return Ok((rows, false));
        }
        if turning && !rows.is_empty() && random.one_in(5) {
            let back = if forward { cursor.previous()? } else { cursor.next()? };
            let back = back.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(back.as_ref(), rows.iter().rev().nth(1), "a cursor turned round");
            // Back to where it was, by the other way or by a seek.
            if random.one_in(2) || back.is_none() {
                let (last, _) = rows.last().expect("not empty");
                let key = last.clone();
                cursor.seek(&key);
                if forward {
                    cursor.next()?;
                }
            } else {
                let again = if forward { cursor.next()? } else { cursor.previous()? };
                let again = again.map(|(key, value)| (key.to_vec(), value.to_vec()));
                assert_eq!(again.as_ref(), rows.last(), "a cursor turned round twice");
            }
        }
        let step = if forward { cursor.next()? } else { cursor.previous()? };
        match step {
            Some((key, value)) => rows.push((key.to_vec(), value.to_vec())),
            None => return Ok((rows, true)),
        }
    }
}

/// The body of the thread that disturbs: checkpoints and sweeps at random moments.
pub(crate) fn disturb(world: &World, seed: u64) {
    let mut random = Generator::new(seed);
    for _ in 0..world.plan.transactions {
        clock::sleep(Duration::from_micros(random.below(20_000)));
        let done = match random.below(3) {
            0 => world.db.checkpoint(),
            1 => world.db.sweep().map(drop),
            _ => Ok(()),
        };
        world.watch_size();
        if let Err(error) = done
            && world.sort("checkpoint or sweep", error) == Stop::Dead
        {
            return;
        }
    }
}

/// The body of the thread that compacts, now and then not to the end.
pub(crate) fn compact(world: &World, seed: u64) {
    let mut random = Generator::new(seed);
    for _ in 0..1 + random.below(5) {
        clock::sleep(Duration::from_micros(random.below(30_000)));
        let mut looks = if random.one_in(4) { random.below(20) } else { u64::MAX };
        let job = world.db.jobs().begin(JobOrder::new(JobKind::Compact));
        let mut tell = |_: &JobReport| {
            looks = looks.saturating_sub(1);
            if looks == 0 { Err(Error::Cancelled) } else { Ok(()) }
        };
        let outcome = job.end(world.db.compact_watched(&mut Watch::new(&job, &mut tell)));
        trace(|| format!("{outcome:?}"));
        world.watch_size();
        match outcome {
            // Others have all the memory there is.
            Ok(_) | Err(Error::Memory(_)) => {}
            Err(error) => {
                if world.sort("compaction", error) == Stop::Dead {
                    return;
                }
            }
        }
    }
}

/// The body of the thread that checks: beside everything else, nothing that is sound is reported.
pub(crate) fn check(world: &World, seed: u64) {
    let mut random = Generator::new(seed);
    for _ in 0..1 + random.below(4) {
        clock::sleep(Duration::from_micros(random.below(40_000)));
        let report = match world.db.check() {
            Ok(report) => report,
            // Others have all the memory there is.
            Err(Error::Memory(_)) => continue,
            Err(error) => match world.sort("check", error) {
                Stop::Dead => return,
                Stop::Again => continue,
            },
        };
        trace(|| format!("{report:?}"));
        // A device that fails is a finding, and so are bytes that went bad.
        if !world.trouble() && world.condition != Condition::Damaged {
            let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            assert!(
                findings.is_empty(),
                "beside others: {} findings:\n{}",
                findings.len(),
                findings.join("\n")
            );
        }
    }
}

/// The body of a long reader: one snapshot, looked at again and again.
pub(crate) fn read_long(world: &World, seed: u64) {
    let mut random = Generator::new(seed);
    let options = TransactionOptions { isolation: Isolation::RepeatableRead, ..Default::default() };
    for _ in 0..1 + random.below(3) {
        let mut txn = world.db.begin(options);
        let from = world.moment();
        trace(|| format!("a long reader begins at {from}"));
        let mut first: Option<(BTreeMap<Place, u64>, u64)> = None;
        for _ in 0..1 + random.below(4) {
            let state = match everything(world, &mut txn) {
                Ok(state) => state,
                Err(Stop::Dead) => return,
                Err(Stop::Again) => break,
            };
            let (before, to) = first.get_or_insert_with(|| (state.clone(), world.moment()));
            assert_eq!(*before, state, "a snapshot shows something else later");
            let verdict = world.oracle.lock().judge_state(&state, Look { from, to: *to });
            verdict.unwrap_or_else(|what| panic!("long reader: {what}"));
            clock::sleep(Duration::from_micros(random.below(60_000)));
        }
    }
}

/// Every row of every tree that a transaction sees.
pub(crate) fn everything(world: &World, txn: &mut Transaction) -> Result<State, Stop> {
    all_rows(&world.plan, txn).map_err(|error| world.sort("read everything", error))
}

/// What is in each place of a database.
pub(crate) type State = BTreeMap<Place, u64>;

/// The same of any database that was filled by this plan.
pub(crate) fn all_rows(plan: &Plan, txn: &mut Transaction) -> Result<State, Error> {
    let mut state = BTreeMap::new();
    for name in txn.trees()? {
        let tree = txn.tree(&name)?;
        let tree = tree.unwrap_or_else(|| panic!("tree {name:?} is listed, but not there"));
        let mut random = Generator::new(0);
        let (rows, _) =
            read_range(txn, &tree, (Bound::Unbounded, Bound::Unbounded), true, usize::MAX, &mut random)?;
        let token = |value: &[u8]| plan.token(value).unwrap_or_else(|what| panic!("{name:?}: {what}"));
        let tag = rows.iter().find(|(key, _)| key == TAG);
        let tag = tag.unwrap_or_else(|| panic!("tree {name:?} has lost its tag; {} rows", rows.len()));
        let tree_token = token(&tag.1);
        state.insert(Place { tree: CATALOG, key: name.as_bytes().to_vec() }, tree_token);
        state.extend(
            rows.iter().map(|(key, value)| (Place { tree: tree_token, key: key.clone() }, token(value))),
        );
    }
    Ok(state)
}
