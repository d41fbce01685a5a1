//! Anomalies planted into generated histories: each kind has to be found, by its name, wherever it can be planted.

use super::super::anomaly::Name;
use super::super::check;
use super::super::history::{Action, History, Key, Level, Outcome, Transaction};
use super::super::order::Facts;
use super::{judge, simulator};
use std::collections::BTreeSet;

/// Seeds that each anomaly is planted with.
const SEEDS: u64 = 60;

/// A read: its transaction, statement and action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct At(usize, usize, usize);

/// A read, apart from the history that it is in.
struct Read {
    at: At,
    key: Key,
    values: Vec<u64>,
    /// How many of the values its own transaction appended. They are the last ones of a list.
    own: usize,
    locked: bool,
}

impl Read {
    /// The last value that somebody else appended.
    fn last_foreign(&self) -> Option<u64> {
        self.values.len().checked_sub(self.own + 1).map(|place| self.values[place])
    }
}

/// A history that something is planted into, with what is known of it while it is clean.
struct Field {
    history: History,
    reads: Vec<Read>,
}

impl Field {
    fn new(seed: u64) -> Self {
        let history = simulator::history(seed);
        let mut reads = Vec::new();
        let facts = Facts::gather(&history).unwrap();
        let mut readings = facts.readings.iter();
        for (transaction, recorded) in history.transactions.iter().enumerate() {
            for (statement, actions) in recorded.statements.iter().map(|at| &at.actions).enumerate() {
                for (place, action) in actions.iter().enumerate() {
                    let Action::Read { key, values, locked } = action else { continue };
                    let own = values.len() - readings.next().unwrap().foreign().count();
                    let at = At(transaction, statement, place);
                    reads.push(Read { at, key: *key, values: values.clone(), own, locked: *locked });
                }
            }
        }
        Field { history, reads }
    }

    fn list_reads(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().filter(|read| matches!(read.key, Key::List(_)))
    }

    fn values(&mut self, At(transaction, statement, action): At) -> &mut Vec<u64> {
        match &mut self.history.transactions[transaction].statements[statement].actions[action] {
            Action::Read { values, .. } => values,
            other => unreachable!("{other:?} is no read"),
        }
    }

    /// Removes values from all reads of a key that `of` says.
    fn forget(&mut self, key: Key, gone: &[u64], of: impl Fn(&Read) -> bool) {
        let places: Vec<At> =
            self.reads.iter().filter(|read| read.key == key && of(read)).map(|read| read.at).collect();
        for at in places {
            self.values(at).retain(|value| !gone.contains(value));
        }
    }

    fn at(&self, place: usize) -> &Transaction {
        &self.history.transactions[place]
    }

    fn committed(&self) -> Vec<usize> {
        let committed = |place: &usize| self.at(*place).outcome == Outcome::Committed;
        (0..self.history.transactions.len()).filter(committed).collect()
    }

    /// What a transaction appended to a key and did not take back.
    fn kept(&self, place: usize, key: Key) -> Vec<u64> {
        let undone = self.at(place).undone();
        let kept = self.at(place).actions().zip(undone).filter_map(|(action, undone)| match action {
            Action::Append { key: to, value } if *to == key && !undone => Some(*value),
            _ => None,
        });
        kept.collect()
    }

    fn writer(&self, key: Key, value: u64) -> usize {
        let wrote = |transaction: &Transaction| {
            transaction.actions().any(|action| *action == Action::Append { key, value })
        };
        self.history.transactions.iter().position(wrote).unwrap()
    }

    /// The keys that a transaction appended to and reads.
    fn keys(&self, place: usize) -> (BTreeSet<Key>, BTreeSet<Key>) {
        let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
        for action in self.at(place).actions() {
            match action {
                Action::Append { key, .. } => drop(written.insert(*key)),
                Action::Read { key, .. } => drop(read.insert(*key)),
                Action::Savepoint | Action::RollbackTo | Action::Release => {}
            }
        }
        (written, read)
    }

    /// The last read of a list: all of it.
    fn whole(&self, key: Key) -> &Read {
        self.reads.iter().rev().find(|read| read.key == key).unwrap()
    }
}

/// Plants with each seed; where it could be planted, one of `names` has to be found. All of them have to be found somewhere.
fn planted(names: &[Name], plant: impl Fn(&mut Field) -> Option<()>) {
    let (mut times, mut found) = (0, BTreeSet::new());
    for seed in 1..=SEEDS {
        let mut field = Field::new(seed);
        if plant(&mut field).is_none() {
            continue;
        }
        times += 1;
        let report = judge(&field.history);
        let right: Vec<Name> = names.iter().copied().filter(|name| report.has(*name)).collect();
        assert!(!right.is_empty(), "seed {seed}: no {names:?}\n{}", report.explain(&field.history, 5));
        found.extend(right);
    }
    assert!(times > 5, "planted with {times} of {SEEDS} seeds");
    assert_eq!(found.len(), names.len(), "{found:?} of {names:?}");
}

#[test]
fn generated_histories_are_clean() {
    let mut skews = 0;
    for seed in 1..=300 {
        let history = simulator::history(seed);
        let report = judge(&history);
        assert!(report.anomalies.is_empty(), "seed {seed}\n{}", report.explain(&history, 5));
        let skewed = check::check_as(&history, Some(Level::Serializable)).unwrap();
        skews += usize::from(skewed.has(Name::AntiDependency));
    }
    assert!(skews > 200, "{skews} of 300 histories of snapshots are not serializable");
}

#[test]
fn an_append_dropped_from_a_read_is_found() {
    planted(&[Name::IncompatibleOrder], |field| {
        let read = field.list_reads().find(|read| read.values.len() >= read.own + 3)?;
        let (at, gone) = (read.at, read.values[1]);
        field.values(at).retain(|value| *value != gone);
        Some(())
    });
}

#[test]
fn two_appends_swapped_in_a_read_are_found() {
    planted(&[Name::IncompatibleOrder], |field| {
        let at = field.list_reads().find(|read| read.values.len() >= read.own + 2)?.at;
        field.values(at).swap(0, 1);
        Some(())
    });
}

#[test]
fn a_commit_turned_into_a_rollback_is_found() {
    planted(&[Name::AbortedRead], |field| {
        let read = field.reads.iter().find(|read| read.last_foreign().is_some() && read.own == 0)?;
        let writer = field.writer(read.key, read.last_foreign()?);
        field.history.transactions[writer].outcome = Outcome::Aborted;
        Some(())
    });
}

#[test]
fn a_value_that_went_back_to_a_savepoint_is_found() {
    planted(&[Name::AbortedRead], |field| {
        let (key, value) = field.history.transactions.iter().find_map(|transaction| {
            let undone = transaction.undone();
            transaction.actions().zip(undone).find_map(|(action, undone)| match action {
                Action::Append { key, value } if undone => Some((*key, *value)),
                _ => None,
            })
        })?;
        let at = field.whole(key).at;
        field.values(at).push(value);
        Some(())
    });
}

#[test]
fn an_exposed_intermediate_state_is_found() {
    planted(&[Name::IntermediateRead], |field| {
        let (at, last) = field.reads.iter().filter(|read| read.own == 0).find_map(|read| {
            let last = read.last_foreign()?;
            let kept = field.kept(field.writer(read.key, last), read.key);
            (kept.len() > 1 && kept.last() == Some(&last)).then_some((read.at, last))
        })?;
        field.values(at).retain(|value| *value != last);
        Some(())
    });
}

#[test]
fn a_doubled_append_is_found() {
    planted(&[Name::Duplicate], |field| {
        let (at, value) = field.reads.iter().find_map(|read| Some((read.at, *read.values.first()?)))?;
        field.values(at).push(value);
        Some(())
    });
}

#[test]
fn an_own_append_that_is_not_seen_is_found() {
    planted(&[Name::Internal], |field| {
        let at = field.reads.iter().find(|read| read.own > 0)?.at;
        field.values(at).pop();
        Some(())
    });
}

#[test]
fn an_acknowledged_append_that_vanishes_is_found() {
    planted(&[Name::LostAppend], |field| {
        let (writer, key) = field.committed().into_iter().find_map(|place| {
            let key = field.keys(place).0.into_iter().find(|key| !field.kept(place, *key).is_empty())?;
            Some((place, key))
        })?;
        let gone = field.kept(writer, key);
        field.forget(key, &gone, |read| read.at.0 != writer);
        Some(())
    });
}

#[test]
fn half_of_an_unanswered_commit_is_found() {
    planted(&[Name::LostAppend], |field| {
        let (writer, key) = field.committed().into_iter().find_map(|place| {
            let mut written =
                field.keys(place).0.into_iter().filter(|key| !field.kept(place, *key).is_empty());
            Some((place, written.next()?, written.next()?)).map(|(place, key, _)| (place, key))
        })?;
        let unanswered = &mut field.history.transactions[writer];
        (unanswered.outcome, unanswered.end_answered) = (Outcome::Unknown, None);
        let gone = field.kept(writer, key);
        field.forget(key, &gone, |read| read.at.0 != writer);
        Some(())
    });
}

#[test]
fn a_statement_that_reads_two_states_is_found() {
    planted(&[Name::ReadSkew], |field| {
        let (at, last) = field.reads.iter().find_map(|read| {
            let last = read.last_foreign().filter(|_| read.own == 0)?;
            let writer = field.writer(read.key, last);
            let beside = |other: &&Read| {
                (other.at.0, other.at.1) == (read.at.0, read.at.1)
                    && other.key != read.key
                    && other.own == 0
                    && other.last_foreign().is_some_and(|value| field.writer(other.key, value) == writer)
            };
            let single = field.kept(writer, read.key).len() == 1;
            (single && field.reads.iter().any(|other| beside(&other))).then_some((read.at, last))
        })?;
        field.values(at).retain(|value| *value != last);
        Some(())
    });
}

#[test]
fn a_lost_update_is_found() {
    planted(&[Name::LostUpdate, Name::ReadSkew], |field| {
        let (reader, key, gone) = field.list_reads().find_map(|read| {
            let (reader, key) = (read.at.0, read.key);
            let last = read.last_foreign()?;
            let snapshot = field.at(reader).level == Level::RepeatableRead;
            let lasting =
                field.at(reader).outcome == Outcome::Committed && !field.kept(reader, key).is_empty();
            (snapshot && lasting).then(|| (reader, key, field.kept(field.writer(key, last), key)))
        })?;
        field.forget(key, &gone, |read| read.at.0 == reader);
        Some(())
    });
}

#[test]
fn a_stale_read_is_found() {
    planted(&[Name::ReadSkew], |field| {
        let (at, key, gone) = field.list_reads().find_map(|read| {
            let reader = field.at(read.at.0);
            let alone = reader.actions().count() == 1 && !read.locked;
            let writer = field.writer(read.key, read.last_foreign()?);
            let over = field.at(writer).end_answered.is_some_and(|end| end < reader.statements[0].sent);
            (alone && over).then(|| (read.at, read.key, field.kept(writer, read.key)))
        })?;
        field.forget(key, &gone, |read| read.at == at);
        judge(&field.history).anomalies.iter().any(|anomaly| anomaly.realtime).then_some(())
    });
}

#[test]
fn interleaved_writes_are_found() {
    planted(&[Name::DirtyWrite], |field| {
        let committed = field.committed();
        let pairs = committed.iter().flat_map(|one| committed.iter().map(move |other| (*one, *other)));
        let (key, one, other) = pairs.filter(|(one, other)| one < other).find_map(|(one, other)| {
            let ((wrote, read), (other_wrote, other_read)) = (field.keys(one), field.keys(other));
            let both: Vec<Key> = wrote.intersection(&other_wrote).copied().collect();
            let single = |key: Key| {
                let (kept, other_kept) = (field.kept(one, key), field.kept(other, key));
                (kept.len() == 1 && other_kept.len() == 1).then(|| (key, kept[0], other_kept[0]))
            };
            let mut lists = both.into_iter().filter(|key| matches!(key, Key::List(_))).filter_map(single);
            // One list is changed, and keeps to nobody's own reads.
            let (first, second) = (lists.next()?, lists.next()?);
            let unread = |key: Key| !read.contains(&key) && !other_read.contains(&key);
            [first, second].into_iter().find(|found| unread(found.0))
        })?;
        let places: Vec<At> = field.reads.iter().filter(|read| read.key == key).map(|read| read.at).collect();
        for at in places {
            for value in field.values(at) {
                *value = match *value {
                    value if value == one => other,
                    value if value == other => one,
                    value => value,
                };
            }
        }
        Some(())
    });
}

#[test]
fn a_circle_of_reads_is_found() {
    planted(&[Name::CircularFlow], |field| {
        let (at, order, end) = field.list_reads().find_map(|read| {
            // Somebody saw the reader's work and wrote, later, to what the reader has read.
            let reader = read.at.0;
            if field.at(reader).outcome != Outcome::Committed || read.own > 0 {
                return None;
            }
            let order = &field.whole(read.key).values;
            let later = order[read.values.len()..].iter().find(|value| {
                let writer = field.writer(read.key, **value);
                let sees = |other: &Read| {
                    let of_reader = |value: &u64| field.kept(reader, other.key).contains(value);
                    other.at.0 == writer && other.values.iter().any(of_reader)
                };
                writer != reader && field.reads.iter().any(sees)
            })?;
            let writer = field.writer(read.key, *later);
            let last = *field.kept(writer, read.key).last()?;
            let end = order.iter().position(|value| *value == last)? + 1;
            let unread = !order[..end].iter().any(|value| field.writer(read.key, *value) == reader);
            unread.then(|| (read.at, order.clone(), end))
        })?;
        *field.values(at) = order[..end].to_vec();
        Some(())
    });
}

#[test]
fn a_value_out_of_nowhere_is_found() {
    planted(&[Name::Unwritten], |field| {
        let at = field.reads.first()?.at;
        field.values(at).push(1_000_000);
        Some(())
    });
}
