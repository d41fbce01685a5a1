//! Numbers that are never given twice: oids, positions of sequences, row numbers of tables without primary key.
//!
//! # What it guarantees
//! 1. A number is given once, whatever is rolled back or crashes, as far as anything durable knows of it. (A sequence gives a
//!    number again when it cycles or is set.)
//! 2. Giving one costs a lock in memory. Only every so many of them, the stored counter is raised by a block.
//!
//! # Why a crash is harmless
//! A counter is raised in a transaction of its own, which commits asynchronously *before* the first number of the block is given. What
//! a transaction does with the number is logged behind that commit, and the log survives a crash up to some point: if the
//! number's use survived, so did the raise. Who uses a number elsewhere, and writes nothing, has his commit wait for the raise ([`Numbers::raised`]),
//! and so has who sets a sequence. Numbers of the block that were not given are lost; that leaves a gap.
//! The session's own transaction is not touched, so its rollback takes nothing back, and nobody waits for its end.
//!
//! # Layout
//! ```text
//! tree "catalog.numbers"
//!   01                 the next oid not reserved, 4 bytes
//!   02 counter         position of a sequence (8 bytes), 1 if that value counts as given, else 0
//!   03 oid             the next row number of a table not reserved, 8 bytes
//! ```
//! Numbers in keys are 4 bytes big-endian, others little-endian.
//!
//! # Invariants
//! 1. A counter's entry is written by who holds its lock in memory, and by nobody else: that transaction never waits for a row.
//! 2. A sequence's counter is moved by who goes by the definition it was confirmed for: under a shared lock on the definition's entry,
//!    which was looked at again. Who changes a definition has the entry to himself, takes that confirmation back ([`Numbers::claim`]), and gives
//!    the sequence another counter where it is to stand elsewhere or to move otherwise: so a change takes nothing from others that they were told of,
//!    and its rollback brings back what was before. Whoever comes meanwhile, or by an older definition, has to look at the entry, and waits there.
//! 3. Entries of sequences and tables that are gone are removed behind the commit that has removed those ([`Numbers::forget`]), or when the
//!    database is opened. Their numbers are never used again, so that they stay for a while means nothing. Nobody makes an entry of such a
//!    counter anew: who sees an older definition has to hold the one in force before he moves anything.

use super::model::{Catalog, FIRST_USER_OID, Oid, Sequence, Table};
use crate::{Error, Result, SqlState};
use gannet_base::Lsn;
use gannet_base::sync::Mutex;
use gannet_base::sync::atomic::AtomicU64;
use gannet_base::sync::atomic::Ordering::Relaxed;
use gannet_store::{Database, Durability, Transaction, TransactionOptions, Tree, View};
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

pub(super) const TREE: &str = "catalog.numbers";
const OIDS: u8 = 1;
const SEQUENCE: u8 = 2;
const ROWS: u8 = 3;

/// Oids reserved at once.
const OID_BLOCK: u32 = 64;
/// Values of a sequence reserved at once.
const SEQUENCE_BLOCK: u32 = 32;
/// Row numbers reserved at once.
const ROW_BLOCK: u64 = 4096;
/// So many counters may be in memory beside twice those of the definitions in force.
const COUNTERS_SPARE: usize = 64;

/// Creates the tree of the counters in a new database.
pub(super) fn bootstrap(transaction: &mut Transaction) -> Result<()> {
    let tree = transaction.create_tree(TREE)?;
    transaction.put(&tree, &[OIDS], &FIRST_USER_OID.to_le_bytes())?;
    Ok(())
}

/// Where a sequence stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The value given last, or the one to be given first.
    pub value: i64,
    /// Whether it counts as given.
    pub called: bool,
}

impl Position {
    fn encode(self) -> [u8; 9] {
        let mut bytes = [u8::from(self.called); 9];
        bytes[..8].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (value, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let [called @ (0 | 1)] = rest else { return Err(damaged()) };
        Ok(Position { value: i64::from_le_bytes(*value), called: *called == 1 })
    }

    /// The next value, and whether it is there at all.
    fn next(self, sequence: &Sequence) -> Option<i64> {
        if !self.called {
            return Some(self.value);
        }
        let next = self.value.checked_add(sequence.increment);
        match next.filter(|next| (sequence.minimum..=sequence.maximum).contains(next)) {
            Some(next) => Some(next),
            None if sequence.cycle && sequence.increment > 0 => Some(sequence.minimum),
            None if sequence.cycle => Some(sequence.maximum),
            None => None,
        }
    }
}

fn damaged() -> Error {
    Error::new(SqlState::DATA_CORRUPTED, "the catalog is damaged: a counter that cannot be read")
}

/// A range of numbers of which some are left.
/// None are left at first, and the end is 0: the counter is still to be read.
#[derive(Debug, Default)]
struct Block {
    next: u64,
    end: u64,
}

#[derive(Debug)]
struct SequenceState {
    position: Position,
    /// Values that may be given before the stored counter has to be raised, and the steps they were reserved for.
    left: u32,
    steps: (i64, i64, i64, bool),
    /// What is stored; `None`: nothing yet.
    stored: Option<Position>,
    /// The revision of the definition that the counter is moved by; `None`: to be looked at again.
    confirmed: Option<u64>,
}

/// The counters of an open database, shared by its sessions.
#[derive(Debug)]
pub struct Numbers {
    database: Arc<Database>,
    tree: Tree,
    oids: Mutex<Block>,
    sequences: Mutex<HashMap<Oid, Arc<Mutex<SequenceState>>>>,
    rows: Mutex<HashMap<Oid, Arc<Mutex<Block>>>>,
    /// Where the log ended when a counter had been raised last.
    raised: AtomicU64,
}

impl Numbers {
    /// The counters of a database that has SQL definitions, which are `catalog`. To be called once, before anybody uses it.
    pub fn open(database: Arc<Database>, catalog: &Catalog) -> Result<Self> {
        let mut transaction = database.begin(TransactionOptions::default());
        let view = transaction.view();
        let tree = view.tree(TREE)?.ok_or_else(damaged)?;
        let counters: HashSet<Oid> = catalog.sequences.values().map(|s| s.counter).collect();
        let mut orphans = Vec::new();
        let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
        while let Some((key, _)) = scan.next()? {
            let known = match key {
                [OIDS] => true,
                [SEQUENCE, oid @ ..] => oid_of(oid).is_some_and(|oid| counters.contains(&oid)),
                [ROWS, oid @ ..] => oid_of(oid).is_some_and(|oid| catalog.tables.contains_key(&oid)),
                // What a newer release keeps here is none of our business.
                _ => true,
            };
            if !known {
                orphans.push(key.to_vec());
            }
        }
        drop((scan, view));
        for key in orphans {
            transaction.delete(&tree, &key)?;
        }
        transaction.set_durability(Durability::Async);
        transaction.commit()?;
        Ok(Numbers {
            database,
            tree,
            oids: Mutex::new(Block::default()),
            sequences: Mutex::default(),
            rows: Mutex::default(),
            raised: AtomicU64::new(0),
        })
    }

    /// A number for a new object.
    pub fn new_oid(&self) -> Result<Oid> {
        let mut block = self.oids.lock();
        if block.next == block.end {
            let start = match block.end {
                0 => {
                    let stored = self.read(&[OIDS])?.ok_or_else(damaged)?;
                    stored.try_into().map(u32::from_le_bytes).map_err(|_| damaged())?
                }
                end => end as u32,
            };
            let end = start.checked_add(OID_BLOCK).ok_or_else(|| {
                Error::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    "the database has no more numbers for new objects",
                )
            })?;
            self.write(&[(vec![OIDS], end.to_le_bytes().to_vec())])?;
            *block = Block { next: u64::from(start), end: u64::from(end) };
        }
        let oid = block.next as Oid;
        block.next += 1;
        Ok(oid)
    }

    /// A number for a new row of a table without primary key.
    pub fn row_id(&self, table: &Table) -> Result<u64> {
        let counter = {
            let mut rows = self.rows.lock();
            match rows.get(&table.oid) {
                Some(counter) => Arc::clone(counter),
                None => Arc::clone(rows.entry(table.oid).or_default()),
            }
        };
        let mut block = counter.lock();
        if block.next == block.end {
            let key = entry_key(ROWS, table.oid);
            let start = match block.end {
                0 => match self.read(&key)? {
                    Some(stored) => stored.try_into().map(u64::from_le_bytes).map_err(|_| damaged())?,
                    None => 1,
                },
                end => end,
            };
            let end = start.checked_add(ROW_BLOCK).ok_or_else(|| {
                let message = format!("table \"{}\" has no more row numbers", table.name);
                Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            })?;
            self.write(&[(key, end.to_le_bytes().to_vec())])?;
            *block = Block { next: start, end };
        }
        block.next += 1;
        Ok(block.next - 1)
    }

    /// The next value of a sequence; `None`: whether the definition is in force has to be looked at, and [confirmed](Self::confirm).
    pub fn nextval(&self, sequence: &Sequence) -> Result<Option<i64>> {
        let Some(state) = self.known(sequence) else { return Ok(None) };
        let mut state = state.lock();
        if state.confirmed != Some(sequence.revision) {
            return Ok(None);
        }
        let Some(value) = state.position.next(sequence) else { return Err(exhausted(sequence)) };
        let given = Position { value, called: true };
        let steps = (sequence.increment, sequence.minimum, sequence.maximum, sequence.cycle);
        if state.left == 0 || state.steps != steps {
            let (ahead, count) = reserve(given, sequence);
            self.write(&[(entry_key(SEQUENCE, sequence.counter), ahead.encode().to_vec())])?;
            state.stored = Some(ahead);
            state.left = count;
            state.steps = steps;
        } else {
            state.left -= 1;
        }
        state.position = given;
        Ok(Some(value))
    }

    /// Sets the position of a sequence; `called`: the next value is the one behind `value`. False: nothing is done yet, as in
    /// [`nextval`](Self::nextval).
    pub fn setval(&self, sequence: &Sequence, value: i64, called: bool) -> Result<bool> {
        let Some(state) = self.known(sequence) else { return Ok(false) };
        let mut state = state.lock();
        if state.confirmed != Some(sequence.revision) {
            return Ok(false);
        }
        if !(sequence.minimum..=sequence.maximum).contains(&value) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    sequence.name, sequence.minimum, sequence.maximum
                ),
            ));
        }
        let position = Position { value, called };
        self.write(&[(entry_key(SEQUENCE, sequence.counter), position.encode().to_vec())])?;
        state.position = position;
        state.stored = Some(position);
        state.left = 0;
        Ok(true)
    }

    /// A definition is in force: for who holds its entry, which has it, until his transaction ends.
    pub fn confirm(&self, sequence: &Sequence) -> Result<()> {
        self.state(sequence)?.lock().confirmed = Some(sequence.revision);
        Ok(())
    }

    /// Keeps a sequence where it stands, and gives that: for who has its entry to himself, to change the definition. Others
    /// wait for the end of his transaction, and look at what came of it.
    pub fn claim(&self, sequence: &Sequence) -> Result<Position> {
        let state = self.state(sequence)?;
        let mut state = state.lock();
        state.confirmed = None;
        Ok(state.position)
    }

    /// Where a sequence stands that a view sees.
    pub fn current(&self, view: &View, sequence: &Sequence) -> Result<Position> {
        if let Some(state) = self.known(sequence) {
            return Ok(state.lock().position);
        }
        // Nobody has moved it for as long as the database is open; or it has moved by another counter since, or is gone.
        let (value, called) = stored_position(view, sequence)?;
        Ok(Position { value, called })
    }

    /// Gives back the counters of tables and sequences that `private` has removed from `base`, and those that it has given others: for who
    /// has committed that. The entries go in a transaction behind that commit in the log, so they are not gone where that is not.
    pub fn forget(&self, base: &Catalog, private: &Catalog) -> Result<()> {
        let mut gone = Vec::new();
        for before in base.sequences.values() {
            if private.sequences.get(&before.oid).is_none_or(|now| now.counter != before.counter) {
                let state = self.sequences.lock().remove(&before.counter);
                if let Some(state) = state {
                    // For who has looked it up already: he is not to write the entry again.
                    state.lock().confirmed = None;
                }
                gone.push(entry_key(SEQUENCE, before.counter));
            }
        }
        for oid in base.tables.keys().filter(|oid| !private.tables.contains_key(oid)) {
            self.rows.lock().remove(oid);
            gone.push(entry_key(ROWS, *oid));
        }
        if gone.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin();
        for key in &gone {
            transaction.delete(&self.tree, key)?;
        }
        Ok(transaction.commit()?)
    }

    /// Counters of rows and of sequences in memory.
    #[cfg(test)]
    pub(super) fn in_memory(&self) -> (usize, usize) {
        (self.rows.lock().len(), self.sequences.lock().len())
    }

    /// Lets go of counters in memory that the definitions in force do not have, once they are many: those of what was rolled back, or made and dropped
    /// by one transaction. Nothing is committed meanwhile that has them. Those of a transaction that goes on are nobody's but its own, which reads
    /// what is stored when it wants the next number; what is stored of all of them goes when the database is opened.
    pub fn trim(&self, catalog: &Catalog) {
        let mut rows = self.rows.lock();
        if rows.len() > 2 * catalog.tables.len() + COUNTERS_SPARE {
            rows.retain(|oid, _| catalog.tables.contains_key(oid));
        }
        drop(rows);
        let mut sequences = self.sequences.lock();
        if sequences.len() > 2 * catalog.sequences.len() + COUNTERS_SPARE {
            let counters: HashSet<Oid> = catalog.sequences.values().map(|s| s.counter).collect();
            sequences.retain(|counter, _| counters.contains(counter));
        }
    }

    /// Stores where sequences stand exactly, so that an orderly end leaves no gaps. For who closes the database.
    pub fn close(&self) -> Result<()> {
        let states: Vec<_> =
            self.sequences.lock().iter().map(|(oid, state)| (*oid, Arc::clone(state))).collect();
        let mut entries = Vec::new();
        // The locks are held until the entries are written, so that nobody raises a counter in between.
        let mut held: Vec<_> = states.iter().map(|(oid, state)| (*oid, state.lock())).collect();
        for (oid, state) in &held {
            if state.stored.is_some_and(|stored| stored != state.position) {
                entries.push((entry_key(SEQUENCE, *oid), state.position.encode().to_vec()));
            }
        }
        self.write(&entries)?;
        for (_, state) in &mut held {
            state.left = 0;
            state.stored = state.stored.map(|_| state.position);
        }
        Ok(())
    }

    /// Where a sequence stands, if anybody has asked for its numbers since the database was opened.
    fn known(&self, sequence: &Sequence) -> Option<Arc<Mutex<SequenceState>>> {
        self.sequences.lock().get(&sequence.counter).cloned()
    }

    fn state(&self, sequence: &Sequence) -> Result<Arc<Mutex<SequenceState>>> {
        let mut sequences = self.sequences.lock();
        if let Some(state) = sequences.get(&sequence.counter) {
            return Ok(Arc::clone(state));
        }
        let stored = self.read(&entry_key(SEQUENCE, sequence.counter))?;
        let stored = stored.map(|bytes| Position::decode(&bytes)).transpose()?;
        // A sequence that nobody has used, perhaps of a transaction that nobody else sees yet.
        let position = stored.unwrap_or(Position { value: sequence.begin.0, called: sequence.begin.1 });
        let state = SequenceState { position, left: 0, steps: (0, 0, 0, false), stored, confirmed: None };
        let state = Arc::new(Mutex::new(state));
        sequences.insert(sequence.counter, Arc::clone(&state));
        Ok(state)
    }

    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut transaction = self.database.begin(TransactionOptions::default());
        Ok(transaction.latest_view().get(&self.tree, key)?)
    }

    fn begin(&self) -> Transaction {
        let options = TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
        self.database.begin(options)
    }

    fn write(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.begin();
        for (key, value) in entries {
            transaction.put(&self.tree, key, value)?;
        }
        transaction.commit()?;
        self.raised.fetch_max(self.database.log_end().0, Relaxed);
        Ok(())
    }

    /// All numbers that were given so far are stored in front of here in the log.
    pub fn raised(&self) -> Lsn {
        Lsn(self.raised.load(Relaxed))
    }
}

/// Where a sequence stands as far as it is stored: at or behind the value that was given last.
pub(crate) fn stored_position(view: &View, sequence: &Sequence) -> Result<(i64, bool)> {
    let tree = view.tree(TREE)?.ok_or_else(damaged)?;
    Ok(match view.get(&tree, &entry_key(SEQUENCE, sequence.counter))? {
        None => sequence.begin,
        Some(stored) => {
            let Position { value, called } = Position::decode(&stored)?;
            (value, called)
        }
    })
}

/// The position some values behind `given`, and how many values that is.
fn reserve(given: Position, sequence: &Sequence) -> (Position, u32) {
    let mut ahead = given;
    for count in 0..SEQUENCE_BLOCK {
        match ahead.next(sequence) {
            Some(value) => ahead.value = value,
            None => return (ahead, count),
        }
    }
    (ahead, SEQUENCE_BLOCK)
}

fn exhausted(sequence: &Sequence) -> Error {
    let (which, limit) =
        if sequence.increment > 0 { ("maximum", sequence.maximum) } else { ("minimum", sequence.minimum) };
    Error::new(
        SqlState("2200H"),
        format!("nextval: reached {which} value of sequence \"{}\" ({limit})", sequence.name),
    )
}

fn entry_key(kind: u8, oid: Oid) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(&oid.to_be_bytes());
    key
}

fn oid_of(bytes: &[u8]) -> Option<Oid> {
    bytes.try_into().ok().map(Oid::from_be_bytes)
}
