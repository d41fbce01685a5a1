//! Judging a history: first what single reads tell, then cycles.

use super::anomaly::{Anomaly, Dependencies, Name, Report};
use super::history::{History, Key, Level, Outcome};
use super::order::{Facts, Reading, Write};
use super::{cycle, graph};
use anyhow::Result;
use std::collections::BTreeMap;

/// Judges each transaction by the level that it asked for.
///
/// # Errors
/// Two appends of one value to one key, of which nothing can be told.
pub fn check(history: &History) -> Result<Report> {
    check_as(history, None)
}

/// Judges all transactions by `level`, whatever they asked for; by their own without one. A history under snapshot isolation,
/// judged as serializable, shows whether the work was such that write skew could be seen at all.
///
/// # Errors
/// As those of [`check`].
pub fn check_as(history: &History, level: Option<Level>) -> Result<Report> {
    let facts = Facts::gather(history)?;
    let mut anomalies = Vec::new();
    for reading in &facts.readings {
        values(&facts, reading, &mut anomalies);
        own_writes(reading, &mut anomalies);
        intermediate(&facts, reading, &mut anomalies);
        order(&facts, reading, &mut anomalies);
    }
    lost(&facts, &mut anomalies);
    let graph = graph::Graph::build(&facts, level);
    anomalies.extend(cycle::find(&graph));
    let outcomes =
        |outcome| history.transactions.iter().filter(|transaction| transaction.outcome == outcome).count();
    let committed = facts.committed.iter().flatten().count();
    Ok(Report {
        anomalies,
        dependencies: graph.dependencies(),
        committed,
        aborted: outcomes(Outcome::Aborted),
        unknown: outcomes(Outcome::Committed) + outcomes(Outcome::Unknown) - committed,
        reads: facts.readings.len(),
        appends: facts.kept.iter().flat_map(BTreeMap::values).map(Vec::len).sum(),
    })
}

impl Report {
    /// Adds another report's figures and findings; places in its history are moved by `offset`.
    pub fn add(&mut self, other: Report, offset: usize) {
        self.anomalies.extend(other.anomalies.into_iter().map(|mut anomaly| {
            anomaly.transactions.iter_mut().for_each(|place| *place += offset);
            anomaly
        }));
        let Dependencies { ww, wr, rw } = other.dependencies;
        self.dependencies.ww += ww;
        self.dependencies.wr += wr;
        self.dependencies.rw += rw;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.appends += other.appends;
    }
}

fn found(name: Name, transactions: Vec<usize>, key: Key, why: String) -> Anomaly {
    Anomaly { name, realtime: false, transactions, key: Some(key), why }
}

/// Each value was appended by somebody, once, and not rolled back.
fn values(facts: &Facts<'_>, reading: &Reading<'_>, anomalies: &mut Vec<Anomaly>) {
    let (reader, key) = (reading.transaction, reading.key);
    let mut sorted = reading.values.to_vec();
    sorted.sort_unstable();
    for pair in sorted.windows(2).filter(|pair| pair[0] == pair[1]) {
        let why = format!("T{reader} read {} twice", pair[0]);
        anomalies.push(found(Name::Duplicate, vec![reader], key, why));
    }
    for (value, write) in reading.foreign() {
        let Some(write) = write else {
            let why = format!("T{reader} read {value}, which nobody appended");
            anomalies.push(found(Name::Unwritten, vec![reader], key, why));
            continue;
        };
        if !facts.is_committed(write) {
            let writer = write.transaction();
            let how = if write.undone { "back to a savepoint" } else { "back" };
            let why = format!("T{reader} read {value}, which T{writer} appended and rolled {how}");
            anomalies.push(found(Name::AbortedRead, vec![reader, writer], key, why));
        }
    }
}

/// A transaction sees its own appends, in their order, and none that it has taken back.
fn own_writes(reading: &Reading<'_>, anomalies: &mut Vec<Anomaly>) {
    let (reader, key) = (reading.transaction, reading.key);
    let by_itself = |write: Option<Write>| write.is_some_and(|write| write.transaction() == reader);
    let own = reading.pairs().filter(|(_, write)| by_itself(*write));
    let mut own: Vec<u64> = own.map(|(value, _)| value).collect();
    let mut expected = reading.own.clone();
    if let Key::Set(_) = key {
        own.sort_unstable();
        expected.sort_unstable();
    }
    own.dedup();
    if own != expected {
        let why = format!("T{reader} had appended {expected:?} itself, and saw {own:?} of it");
        anomalies.push(found(Name::Internal, vec![reader], key, why));
    }
}

/// Others' appends to one key are seen all together.
fn intermediate(facts: &Facts<'_>, reading: &Reading<'_>, anomalies: &mut Vec<Anomaly>) {
    let (reader, key) = (reading.transaction, reading.key);
    let mut writers: Vec<usize> = reading
        .foreign()
        .filter_map(|(_, write)| write.filter(|write| facts.is_committed(*write)))
        .map(Write::transaction)
        .collect();
    writers.dedup();
    for writer in writers {
        let kept = &facts.kept[writer][&key];
        let missing = kept.iter().find(|value| kept.len() > 1 && !reading.values.contains(value));
        if let Some(missing) = missing {
            let why = format!("T{reader} read a part of what T{writer} appended, but not its {missing}");
            anomalies.push(found(Name::IntermediateRead, vec![reader, writer], key, why));
        }
    }
}

/// What was read of a list is a beginning of it.
fn order(facts: &Facts<'_>, reading: &Reading<'_>, anomalies: &mut Vec<Anomaly>) {
    let (reader, key) = (reading.transaction, reading.key);
    let Some(order) = facts.orders.get(&key) else { return };
    // Without what the reader appended itself: it may have been read before that.
    let own = facts.kept[reader].get(&key).map_or(&[][..], Vec::as_slice);
    let mut others = order.iter().copied().filter(|value| !own.contains(value));
    let mut last = None;
    for (value, _) in reading.foreign() {
        // Twice in a row is reported as that.
        if last.replace(value) == Some(value) {
            continue;
        }
        let expected = others.next();
        if expected != Some(value) {
            let longest = facts.readings.iter().find(|other| {
                other.key == key && other.values.len() >= order.len() && other.values.starts_with(order)
            });
            let mut transactions = vec![reader];
            transactions.extend(longest.map(|other| other.transaction).filter(|other| *other != reader));
            let why = format!("T{reader} read {value} where the longest read has {expected:?}");
            anomalies.push(found(Name::IncompatibleOrder, transactions, key, why));
            return;
        }
    }
}

/// Once a commit is known, its appends are there.
fn lost(facts: &Facts<'_>, anomalies: &mut Vec<Anomaly>) {
    let mut by_key: BTreeMap<Key, Vec<&Reading<'_>>> = BTreeMap::new();
    for reading in &facts.readings {
        by_key.entry(reading.key).or_default().push(reading);
    }
    by_key.values_mut().for_each(|readings| readings.sort_by_key(|reading| reading.sent));
    for (writer, kept) in facts.kept.iter().enumerate() {
        let Some(since) = facts.committed[writer] else { continue };
        for (&key, values) in kept {
            let Some(readings) = by_key.get(&key) else { continue };
            let later = &readings[readings.partition_point(|reading| reading.sent <= since)..];
            for value in values {
                if let Some(last) = later.last()
                    && !later.iter().rev().any(|reading| reading.values.contains(value))
                {
                    let how = match facts.history.transactions[writer].outcome {
                        Outcome::Committed => "whose commit was acknowledged",
                        Outcome::Aborted | Outcome::Unknown => "other values of which were seen",
                    };
                    let why = format!("{value} of T{writer}, {how}, is in no later read");
                    anomalies.push(found(Name::LostAppend, vec![writer, last.transaction], key, why));
                }
            }
        }
    }
}
