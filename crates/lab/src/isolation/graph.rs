//! Dependencies of transactions, as an order of points in time.
//!
//! Adya's start-ordered graph: besides its commit, a transaction has a point (or several) at which it looked at the database. Each
//! dependency says which of two points came first in the database's own order of commits; if all of them can be put into one
//! order, the history is explained, and a cycle is what no order explains.
//!
//! # The points of a transaction, by its level
//! - `READ COMMITTED`: one for each statement, one for each row that it locks (whose newest version it reads), its commit. In
//!   this order.
//! - `REPEATABLE READ`: its snapshot, which the first statement takes that looks at the database at all, then its commit.
//! - `SERIALIZABLE`: one for everything, as it is to look like a single moment. Not those that were rolled back, which promise
//!   nothing.
//!
//! # The rules: what comes before what
//! 1. *wr*: who reads a version comes after the commit of who made it.
//! 2. *rw*: who reads a version comes before the commit of who made the next one, and of everybody
//!    whose value is not in it: in a set, or in a list where nobody has seen that value.
//! 3. *ww*: who makes a list's next version commits after the one who made the last. Under `REPEATABLE READ` even the snapshot comes
//!    after that: otherwise it is a lost update.
//! 4. *held*: who locks a row, and keeps the lock, commits before the one who makes its next version.
//! 5. *real time*: what was answered before something else was asked for comes before it. So a transaction sees what was acknowledged
//!    before it began, and a state once seen is never followed by an older one. Serializable transactions promise no such thing.
//!
//! A cycle has the name that Adya gives to the same cycle among transactions. One with several anti-dependencies (rw) is a cycle here
//! only if no two of them meet in one transaction, unless that is serializable; so write skew is no cycle under `REPEATABLE READ`.

use super::anomaly::Dependencies;
use super::history::{Key, Level};
use super::order::{Facts, Reading, Write};
use std::collections::BTreeMap;

/// Why one point comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Both belong to one transaction.
    Same,
    Ww(Key),
    Wr(Key),
    Rw(Key),
    Held(Key),
    Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) why: Why,
}

/// What happens at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Snapshot,
    /// A statement, counted from 0.
    Statement(usize),
    /// A row that this statement locked.
    Lock(usize),
    Commit,
    /// Everything.
    All,
    /// No transaction's: a moment of real time.
    Moment,
}

/// A point in time, which lies between two moments of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) transaction: usize,
    pub(super) what: What,
    sent: u64,
    answered: Option<u64>,
}

/// Points and what is known of their order.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) points: Vec<Point>,
    pub(super) edges: Vec<Vec<Edge>>,
}

/// The points of one transaction.
#[derive(Clone, Debug, Default)]
struct Places {
    /// Of each statement.
    statements: Vec<Option<usize>>,
    commit: Option<usize>,
    /// After the commit of whoever made the version before.
    writes: Option<usize>,
    level: Option<Level>,
}

/// Who added to each set.
fn adders(facts: &Facts<'_>) -> BTreeMap<Key, Vec<usize>> {
    let mut adders: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (writer, kept) in
        facts.kept.iter().enumerate().filter(|(writer, _)| facts.committed[*writer].is_some())
    {
        for (&key, _) in kept.iter().filter(|(_, values)| !values.is_empty()) {
            adders.entry(key).or_default().push(writer);
        }
    }
    adders
}

impl Graph {
    /// All that is known. `level` instead of what each transaction asked for.
    pub(super) fn build(facts: &Facts<'_>, level: Option<Level>) -> Self {
        let mut graph = Graph::default();
        let places: Vec<Places> = (0..facts.history.transactions.len())
            .map(|transaction| {
                let level = level.unwrap_or(facts.history.transactions[transaction].level);
                graph.points_of(facts, transaction, level)
            })
            .collect();
        let adders = adders(facts);
        for reading in &facts.readings {
            let Some(point) = graph.point_of(reading, &places[reading.transaction]) else { continue };
            match reading.key {
                Key::List(_) => graph.read_list(facts, reading, point, &places),
                Key::Set(_) => {
                    let adders = adders.get(&reading.key).map_or(&[][..], Vec::as_slice);
                    graph.read_set(adders, reading, point, &places);
                }
            }
        }
        for (&key, order) in &facts.orders {
            let mut writers = order.iter().filter_map(|value| facts.committed_writer(key, *value));
            let Some(mut last) = writers.next() else { continue };
            for next in writers {
                if next != last {
                    graph.edge(places[last].commit, places[next].writes, Why::Ww(key));
                }
                last = next;
            }
        }
        graph.real_time();
        graph
    }

    fn add(&mut self, point: Point) -> usize {
        self.points.push(point);
        self.edges.push(Vec::new());
        self.points.len() - 1
    }

    fn edge(&mut self, from: Option<usize>, to: Option<usize>, why: Why) {
        if let (Some(from), Some(to)) = (from, to) {
            self.edges[from].push(Edge { to, why });
        }
    }

    fn points_of(&mut self, facts: &Facts<'_>, transaction: usize, level: Level) -> Places {
        let recorded = &facts.history.transactions[transaction];
        let committed = facts.committed[transaction];
        let mut places = Places { level: Some(level), ..Places::default() };
        if level == Level::Serializable {
            if committed.is_some() {
                let point = Point { transaction, what: What::All, sent: 0, answered: None };
                let all = Some(self.add(point));
                places.statements = vec![all; recorded.statements.len()];
                (places.commit, places.writes) = (all, all);
            }
            return places;
        }
        let mut last = None;
        for (number, statement) in recorded.statements.iter().enumerate() {
            if !statement.looks() || level == Level::RepeatableRead && last.is_some() {
                places.statements.push(last);
                continue;
            }
            let what = if level == Level::RepeatableRead { What::Snapshot } else { What::Statement(number) };
            let point = Point { transaction, what, sent: statement.sent, answered: statement.answered };
            let next = self.add(point);
            self.edge(last, Some(next), Why::Same);
            last = Some(next);
            places.statements.push(Some(next));
        }
        if let Some(since) = committed {
            let answered = Some(since).filter(|since| *since != u64::MAX);
            let point = Point { transaction, what: What::Commit, sent: recorded.end_sent, answered };
            let commit = self.add(point);
            self.edge(last, Some(commit), Why::Same);
            places.commit = Some(commit);
            let snapshot = last.filter(|_| level == Level::RepeatableRead);
            places.writes = snapshot.or(places.commit);
        }
        places
    }

    /// Where a reading took place.
    fn point_of(&mut self, reading: &Reading<'_>, places: &Places) -> Option<usize> {
        let statement = (*places.statements.get(reading.statement)?)?;
        if !reading.locked || places.level != Some(Level::ReadCommitted) {
            return Some(statement);
        }
        let what = What::Lock(reading.statement);
        let (sent, answered) = (reading.sent, Some(reading.answered));
        let lock = self.add(Point { transaction: reading.transaction, what, sent, answered });
        self.edge(Some(statement), Some(lock), Why::Same);
        // The rows of one statement are locked in an order that nobody knows.
        let later = places.statements.get(reading.statement + 1..).unwrap_or_default();
        let next = later.iter().copied().flatten().find(|next| *next != statement).or(places.commit);
        self.edge(Some(lock), next, Why::Same);
        Some(lock)
    }

    fn read_list(&mut self, facts: &Facts<'_>, reading: &Reading<'_>, point: usize, places: &[Places]) {
        let (reader, key) = (reading.transaction, reading.key);
        let (last, write) = reading.foreign().next_back().unzip();
        let made_by = write.flatten().filter(|write| facts.is_committed(*write)).map(Write::transaction);
        self.edge(made_by.and_then(|writer| places[writer].commit), Some(point), Why::Wr(key));
        let order = facts.orders.get(&key).map_or(&[][..], Vec::as_slice);
        let seen =
            last.map_or(Some(0), |last| order.iter().position(|value| *value == last).map(|at| at + 1));
        // A part of a transaction's work is reported as that, and comes after its commit.
        let another = |writer: &usize| *writer != reader && Some(*writer) != made_by;
        let next = order[seen.unwrap_or(order.len())..]
            .iter()
            .find_map(|value| facts.committed_writer(key, *value).filter(another));
        // What nobody has ever seen comes after whatever anybody has.
        let unseen = facts.unseen.get(&key).into_iter().flatten().copied().filter(another);
        for later in next.into_iter().chain(unseen) {
            self.edge(Some(point), places[later].commit, Why::Rw(key));
            if reading.held {
                self.edge(places[reader].commit, places[later].commit, Why::Held(key));
            }
        }
    }

    fn read_set(&mut self, adders: &[usize], reading: &Reading<'_>, point: usize, places: &[Places]) {
        let key = reading.key;
        let mut seen: Vec<usize> =
            reading.foreign().filter_map(|(_, write)| Some(write?.transaction())).collect();
        seen.sort_unstable();
        for &writer in adders.iter().filter(|writer| **writer != reading.transaction) {
            if seen.binary_search(&writer).is_ok() {
                self.edge(places[writer].commit, Some(point), Why::Wr(key));
            } else {
                self.edge(Some(point), places[writer].commit, Why::Rw(key));
            }
        }
    }

    /// Moments at which answers came, in a chain: so many edges, not the square of them.
    fn real_time(&mut self) {
        let timed = |point: &Point| point.what != What::All;
        let mut ends: Vec<(u64, usize)> = self
            .points
            .iter()
            .enumerate()
            .filter(|(_, point)| timed(point))
            .filter_map(|(place, point)| Some((point.answered?, place)))
            .collect();
        ends.sort_unstable();
        let begins: Vec<(usize, u64)> = self
            .points
            .iter()
            .enumerate()
            .filter(|(_, point)| timed(point))
            .map(|(place, point)| (place, point.sent))
            .collect();
        let first = self.points.len();
        for (place, &(answered, point)) in ends.iter().enumerate() {
            let moment = self.add(Point {
                transaction: usize::MAX,
                what: What::Moment,
                sent: answered,
                answered: Some(answered),
            });
            self.edge(Some(point), Some(moment), Why::Time);
            if place > 0 {
                self.edge(Some(moment - 1), Some(moment), Why::Time);
            }
        }
        for (point, sent) in begins {
            let before = ends.partition_point(|(answered, _)| *answered < sent);
            if before > 0 {
                self.edge(Some(first + before - 1), Some(point), Why::Time);
            }
        }
    }

    /// How many dependencies of each kind there are.
    pub(super) fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        for edge in self.edges.iter().flatten() {
            match edge.why {
                Why::Ww(_) => found.ww += 1,
                Why::Wr(_) => found.wr += 1,
                Why::Rw(_) => found.rw += 1,
                Why::Same | Why::Held(_) | Why::Time => {}
            }
        }
        found
    }
}
