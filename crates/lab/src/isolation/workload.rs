//! Random transactions, and the SQL they are made of.
//!
//! Lists live in two tables, one plain and one with a counter of its values that is indexed, so that every append moves an index
//! entry. Sets live in two, one with an index and one without anything. So the same questions go through a point read, a range of
//! the primary key, a secondary index, and a scan of a table without a key; which of them the planner takes varies with
//! `enable_seqscan`, too. Half of the lists begin with a text that no page holds.

use super::client::Answer;
use super::history::{Action, Key, Level};
use crate::random::Random;
use anyhow::{Context, Result, bail};

/// Makes the tables of a round anew.
pub const TABLES: &str = "drop table if exists iso_list;
drop table if exists iso_counted;
drop table if exists iso_row;
drop table if exists iso_heap;
create table iso_list (k integer primary key, v text not null);
create table iso_counted (k integer primary key, n integer not null, v text not null);
create index iso_counted_n on iso_counted (n);
create table iso_row (v bigint primary key, k integer not null);
create index iso_row_k on iso_row (k);
create table iso_heap (k integer not null, v bigint not null)";

/// A way to lock what is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// `FOR UPDATE`
    Update,
    /// `FOR NO KEY UPDATE`
    NoKeyUpdate,
    /// `FOR SHARE`
    Share,
}

/// A way to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Each key by itself.
    Plain,
    /// Sets by a join with the lists of the same numbers, whose rows are always there.
    Joined,
    /// Lists, with their rows locked.
    Locked(Lock),
}

impl How {
    /// Whether rows are locked.
    pub fn locks(self) -> bool {
        matches!(self, How::Locked(_))
    }
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// One statement that appends to keys of one table.
    Append {
        /// To what.
        keys: Vec<Key>,
        /// It is asked what the lists are then.
        returning: bool,
    },
    /// One statement that reads keys.
    Read {
        /// Of any tables; lists of one table where they are to be locked.
        keys: Vec<Key>,
        /// How sets are looked for, and whether rows are locked.
        how: How,
    },
    /// Two statements: the list is read, and written with a value more by who has read it.
    Rewrite {
        /// A list.
        key: Key,
        /// `FOR UPDATE`
        lock: bool,
    },
    /// Two statements: the list's row is deleted, and inserted anew with a value more. Under `READ COMMITTED` the row is then gone in
    /// PostgreSQL for an update that waited, and changed in Gannet.
    Replace {
        /// A list.
        key: Key,
    },
    /// `SAVEPOINT`
    Savepoint,
    /// `ROLLBACK TO` the youngest savepoint, if there is one.
    RollbackTo,
    /// `RELEASE` of the youngest savepoint, if there is one.
    Release,
}

/// A transaction that is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// At which level.
    pub level: Level,
    /// A single statement without `BEGIN`.
    pub alone: bool,
    /// What it does.
    pub steps: Vec<Step>,
    /// Whether it is rolled back at its end.
    pub roll_back: bool,
}

/// The keys of a round, and what is done to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Lists, and as many sets.
    pub count: u32,
    /// Whether [`Step::Replace`] is among the steps.
    pub replace: bool,
}

impl Keys {
    /// All of them.
    pub fn all(self) -> Vec<Key> {
        (0..self.count).map(Key::List).chain((0..self.count).map(Key::Set)).collect()
    }

    /// Fills the lists' tables.
    pub fn rows(self) -> String {
        (0..self.count).map(|number| insert(Key::List(number), &[])).collect::<Vec<_>>().join("; ")
    }

    fn list(self, random: &mut Random) -> Key {
        Key::List(random.below(self.count.into()) as u32)
    }

    fn any(self, random: &mut Random) -> Key {
        let number = random.below(self.count.into()) as u32;
        if random.below(3) == 0 { Key::Set(number) } else { Key::List(number) }
    }

    /// Some keys of the table that `first` is in.
    fn beside(self, random: &mut Random, first: Key) -> Vec<Key> {
        let mut keys = vec![first];
        if random.below(3) == 0 {
            let other = random.below(self.count.into()) as u32;
            let other = match first {
                Key::List(_) => Key::List(other),
                Key::Set(_) => Key::Set(other),
            };
            if table(other) == table(first) && other != first {
                keys.push(other);
            }
        }
        keys
    }

    fn step(self, random: &mut Random, level: Level) -> Step {
        match random.below(21) {
            0..6 => {
                let first = self.any(random);
                let keys = self.beside(random, first);
                let returning = matches!(first, Key::List(_)) && random.below(2) == 0;
                Step::Append { keys, returning }
            }
            6..9 => Step::Read { keys: vec![self.any(random)], how: How::Plain },
            9..13 => {
                let mut keys: Vec<Key> = (0..2 + random.below(3)).map(|_| self.any(random)).collect();
                keys.sort_unstable();
                keys.dedup();
                let how = if random.below(3) == 0 { How::Joined } else { How::Plain };
                Step::Read { keys, how }
            }
            13..15 => {
                let first = self.list(random);
                let keys = self.beside(random, first);
                let lock = [Lock::Update, Lock::NoKeyUpdate, Lock::Share][random.below(3) as usize];
                Step::Read { keys, how: How::Locked(lock) }
            }
            15..17 => {
                // Who does not lock at READ COMMITTED must expect to write over others' work.
                let lock = level == Level::ReadCommitted || random.below(2) == 0;
                Step::Rewrite { key: self.list(random), lock }
            }
            17 if self.replace => Step::Replace { key: self.list(random) },
            17 => Step::Rewrite { key: self.list(random), lock: true },
            18 => Step::Savepoint,
            19 => Step::RollbackTo,
            _ => Step::Release,
        }
    }

    /// A transaction at `level`.
    pub fn plan(self, random: &mut Random, level: Level) -> Plan {
        if random.below(8) == 0 {
            loop {
                let step = self.step(random, level);
                if matches!(step, Step::Append { .. } | Step::Read { .. }) {
                    return Plan { level, alone: true, steps: vec![step], roll_back: false };
                }
            }
        }
        let steps = (0..1 + random.below(6)).map(|_| self.step(random, level)).collect();
        Plan { level, alone: false, steps, roll_back: random.below(10) == 0 }
    }
}

/// The table of a key, in the order of their names above.
fn table(key: Key) -> usize {
    match key {
        Key::List(number) => number as usize % 2,
        Key::Set(number) => 2 + number as usize % 2,
    }
}

/// Names and texts of values, by table.
const NAMES: [&str; 4] = ["iso_list", "iso_counted", "iso_row", "iso_heap"];
const VALUES: [&str; 4] = ["v", "v", "',' || v", "',' || v"];
/// Characters that every second list begins with: more than a page.
const LONG: usize = 9000;
/// What is done beside transactions, now and then.
pub const UPKEEP: [&str; 4] = ["vacuum", "analyze", "checkpoint", "vacuum iso_counted"];

fn number(key: Key) -> u32 {
    match key {
        Key::List(number) | Key::Set(number) => number,
    }
}

/// The condition for these keys' rows, of one table.
fn condition(keys: &[Key]) -> String {
    match keys {
        // One row by its primary key has a way of its own.
        [key] => format!("k = {}", number(*key)),
        _ => {
            let numbers: Vec<String> = keys.iter().map(|key| number(*key).to_string()).collect();
            format!("k in ({})", numbers.join(", "))
        }
    }
}

/// A read of `keys` in one statement.
pub fn read(keys: &[Key], how: How) -> String {
    let pieces = (0..NAMES.len()).filter_map(|place| {
        let keys: Vec<Key> = keys.iter().copied().filter(|key| table(*key) == place).collect();
        if keys.is_empty() {
            return None;
        }
        let (name, value, keys) = (NAMES[place], VALUES[place], condition(&keys));
        if place >= 2 && how == How::Joined {
            let list = NAMES[place - 2];
            return Some(format!(
                "select {place}, s.k, ',' || s.v from {list} l join {name} s on s.k = l.k where l.{keys}"
            ));
        }
        // A range of the counter leads through its index.
        let range = if place == 1 { "n >= 0 and " } else { "" };
        Some(format!("select {place}, k, {value} from {name} where {range}{keys}"))
    });
    let sql = pieces.collect::<Vec<_>>().join(" union all ");
    match how {
        How::Plain | How::Joined => sql,
        How::Locked(Lock::Update) => sql + " for update",
        How::Locked(Lock::NoKeyUpdate) => sql + " for no key update",
        How::Locked(Lock::Share) => sql + " for share",
    }
}

/// An append of `values`, one for each of `keys`, which are of one table.
pub fn append(keys: &[Key], values: &[u64], returning: bool) -> String {
    let place = keys.first().map_or(0, |key| table(*key));
    let name = NAMES[place];
    if let Some(Key::Set(_)) = keys.first() {
        let rows = keys.iter().zip(values).map(|(key, value)| format!("({}, {value})", number(*key)));
        return format!("insert into {name} (k, v) values {}", rows.collect::<Vec<_>>().join(", "));
    }
    let counted = if place == 1 { ", n = n + 1" } else { "" };
    let cases = keys.iter().zip(values).map(|(key, value)| format!("when {} then ',{value}'", number(*key)));
    let more = match values {
        [value] => format!("',{value}'"),
        _ => format!("case k {} end", cases.collect::<Vec<_>>().join(" ")),
    };
    let end = if returning { format!(" returning {place}, k, v") } else { String::new() };
    format!("update {name} set v = v || {more}{counted} where {}{end}", condition(keys))
}

/// A list's text, as an expression: what it begins with, and its values.
fn text(key: Key, values: &[u64]) -> String {
    let values: String = values.iter().map(|value| format!(",{value}")).collect();
    let length = if number(key) % 4 >= 2 { LONG } else { 0 };
    format!("repeat('-', {length}) || '{values}'")
}

/// A list written as a whole.
pub fn rewrite(key: Key, values: &[u64]) -> String {
    let (place, text) = (table(key), text(key, values));
    let counted = if place == 1 { format!(", n = {}", values.len()) } else { String::new() };
    format!("update {} set v = {text}{counted} where k = {}", NAMES[place], number(key))
}

/// A list's row, deleted; what it held is returned.
pub fn delete(key: Key) -> String {
    let place = table(key);
    format!("delete from {} where k = {} returning {place}, k, v", NAMES[place], number(key))
}

/// A list's row, inserted.
pub fn insert(key: Key, values: &[u64]) -> String {
    let (place, text) = (table(key), text(key, values));
    let counted = if place == 1 { format!("{}, ", values.len()) } else { String::new() };
    format!("insert into {} values ({}, {counted}{text})", NAMES[place], number(key))
}

/// What an answer to [`read`] (or an append that returns) says of each key. Rows of one key that come twice are put behind each
/// other, so that their values stand there twice. A list without a row is empty.
pub fn reads(keys: &[Key], answer: &Answer, locked: bool) -> Result<Vec<Action>> {
    let mut actions = Vec::new();
    let mut rest = answer.rows.len();
    for &key in keys {
        let mut values = Vec::new();
        for row in &answer.rows {
            let [Some(place), Some(k), Some(text)] = row.as_slice() else { bail!("a row of {row:?}") };
            if place.parse() != Ok(table(key)) || k.parse() != Ok(number(key)) {
                continue;
            }
            rest -= 1;
            for value in text.split(',').skip(1) {
                values.push(value.parse().with_context(|| format!("{key} holds {value:?}"))?);
            }
        }
        actions.push(Action::Read { key, values, locked });
    }
    if rest > 0 {
        bail!("asked for {keys:?}, and got other rows, too: {:?}", answer.rows);
    }
    Ok(actions)
}
