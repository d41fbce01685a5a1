//! Who wrote what, what became of it, and the order of each list's versions.
//!
//! A list's longest read names all its versions up to that one: each value in it is a version, made by who appended it. Every
//! other read has to be a beginning of it.

use super::history::{Action, History, Key, Outcome};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// By whom. Narrow, as one stands here for each value that was read.
    transaction: u32,
    /// It was taken back by a `ROLLBACK TO`.
    pub(super) undone: bool,
}

impl Write {
    /// By whom.
    pub(super) fn transaction(self) -> usize {
        self.transaction as usize
    }
}

/// A read of one key.
#[derive(Debug)]
pub(super) struct Reading<'h> {
    pub(super) transaction: usize,
    /// Its statement's place in the transaction.
    pub(super) statement: usize,
    pub(super) key: Key,
    pub(super) values: &'h [u64],
    /// Who appended each of them, if anybody did.
    pub(super) writes: Vec<Option<Write>>,
    /// The reader's own appends, not taken back, up to here.
    pub(super) own: Vec<u64>,
    pub(super) locked: bool,
    /// The lock was kept until the transaction's end.
    pub(super) held: bool,
    pub(super) sent: u64,
    pub(super) answered: u64,
}

impl Reading<'_> {
    /// Its values and who appended them.
    pub(super) fn pairs(&self) -> impl DoubleEndedIterator<Item = (u64, Option<Write>)> {
        self.values.iter().copied().zip(self.writes.iter().copied())
    }

    /// Those that the reader did not append itself.
    pub(super) fn foreign(&self) -> impl DoubleEndedIterator<Item = (u64, Option<Write>)> {
        let reader = self.transaction;
        self.pairs().filter(move |(_, write)| write.is_none_or(|write| write.transaction() != reader))
    }
}

/// A history, indexed.
#[derive(Debug)]
pub(super) struct Facts<'h> {
    pub(super) history: &'h History,
    writes: HashMap<(Key, u64), Write>,
    /// For each transaction the values that it appended and did not take back, in their order.
    pub(super) kept: Vec<BTreeMap<Key, Vec<u64>>>,
    /// For each transaction since when its commit is known: it was acknowledged, or somebody saw its values.
    pub(super) committed: Vec<Option<u64>>,
    pub(super) readings: Vec<Reading<'h>>,
    /// The order of each list's values.
    pub(super) orders: BTreeMap<Key, Vec<u64>>,
    /// Who appended to each list what has no place in its order.
    pub(super) unseen: BTreeMap<Key, Vec<usize>>,
}

impl<'h> Facts<'h> {
    /// # Errors
    /// Two appends of one value to one key: nothing could be told from such a history.
    pub(super) fn gather(history: &'h History) -> Result<Self> {
        let mut facts = Facts {
            history,
            writes: HashMap::new(),
            kept: Vec::new(),
            committed: Vec::new(),
            readings: Vec::new(),
            orders: BTreeMap::new(),
            unseen: BTreeMap::new(),
        };
        for place in 0..history.transactions.len() {
            facts.gather_one(place)?;
        }
        let writes = &facts.writes;
        for reading in &mut facts.readings {
            let of = |value: &u64| writes.get(&(reading.key, *value)).copied();
            reading.writes = reading.values.iter().map(of).collect();
        }
        facts.find_seen();
        facts.find_orders();
        Ok(facts)
    }

    fn gather_one(&mut self, place: usize) -> Result<()> {
        let transaction = &self.history.transactions[place];
        let undone = transaction.undone();
        // One's own values now, and as they were at each savepoint.
        let (mut own, mut savepoints): (BTreeMap<Key, Vec<u64>>, Vec<_>) = (BTreeMap::new(), Vec::new());
        let mut undone = undone.into_iter();
        for (number, statement) in transaction.statements.iter().enumerate() {
            for action in &statement.actions {
                let undone = undone.next().unwrap_or(false);
                match action {
                    Action::Append { key, value } => {
                        own.entry(*key).or_default().push(*value);
                        let write = Write { transaction: u32::try_from(place)?, undone };
                        if self.writes.insert((*key, *value), write).is_some() {
                            bail!("{value} is appended to {key} twice");
                        }
                    }
                    Action::Read { key, values, locked } => self.readings.push(Reading {
                        transaction: place,
                        statement: number,
                        key: *key,
                        values,
                        writes: Vec::new(),
                        own: own.get(key).cloned().unwrap_or_default(),
                        locked: *locked,
                        held: *locked && !undone,
                        sent: statement.sent,
                        answered: statement.answered.unwrap_or(u64::MAX),
                    }),
                    Action::Savepoint => savepoints.push(own.clone()),
                    Action::RollbackTo => own = savepoints.last().cloned().unwrap_or_default(),
                    Action::Release => drop(savepoints.pop()),
                }
            }
        }
        self.kept.push(own);
        self.committed.push(match transaction.outcome {
            Outcome::Committed => Some(transaction.end_answered.unwrap_or(u64::MAX)),
            Outcome::Aborted | Outcome::Unknown => None,
        });
        Ok(())
    }

    /// Whoever left without an answer, and was seen by others, has committed.
    fn find_seen(&mut self) {
        for reading in &self.readings {
            for write in reading.foreign().filter_map(|(_, write)| write).filter(|write| !write.undone) {
                let writer = write.transaction();
                if self.history.transactions[writer].outcome == Outcome::Unknown {
                    let since = &mut self.committed[writer];
                    *since = Some(since.map_or(reading.answered, |since| since.min(reading.answered)));
                }
            }
        }
    }

    fn find_orders(&mut self) {
        let mut orders: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        for reading in self.readings.iter().filter(|reading| matches!(reading.key, Key::List(_))) {
            let lasting = |write: Option<Write>| match write {
                Some(write) if write.transaction() == reading.transaction => self.is_committed(write),
                _ => true,
            };
            let longest = orders.entry(reading.key).or_default();
            if reading.values.len() <= longest.len() {
                continue;
            }
            // One that stands there twice is reported as that, and counts once.
            let mut before = HashSet::new();
            let order: Vec<u64> = reading
                .pairs()
                .filter(|(value, write)| lasting(*write) && before.insert(*value))
                .map(|(value, _)| value)
                .collect();
            if order.len() > longest.len() {
                *longest = order;
            }
        }
        self.orders = orders;
        for (writer, kept) in
            self.kept.iter().enumerate().filter(|(writer, _)| self.committed[*writer].is_some())
        {
            for (key, values) in kept.iter().filter(|(key, _)| matches!(key, Key::List(_))) {
                let order = self.orders.get(key).map_or(&[][..], Vec::as_slice);
                if values.iter().any(|value| !order.contains(value)) {
                    self.unseen.entry(*key).or_default().push(writer);
                }
            }
        }
    }

    /// Whether others may see it.
    pub(super) fn is_committed(&self, write: Write) -> bool {
        !write.undone && self.committed[write.transaction()].is_some()
    }

    /// Who appended a value, if it is one that others may see.
    pub(super) fn committed_writer(&self, key: Key, value: u64) -> Option<usize> {
        let write = *self.writes.get(&(key, value))?;
        self.is_committed(write).then_some(write.transaction())
    }
}
