//! What can be wrong with a history, and its names.

use super::history::{History, Key};
use std::fmt::{self, Display, Formatter};

/// The names of what can go wrong. Those of Adya's thesis where there is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// A value was read that nobody appended.
    Unwritten,
    /// A value stands in a list or set twice.
    Duplicate,
    /// Two reads of one list, neither of which begins the other.
    IncompatibleOrder,
    /// An append that was acknowledged, or that somebody saw, is missing in every later read.
    LostAppend,
    /// A transaction does not see what it did itself, or still sees what it took back.
    Internal,
    /// G1a: a value was read that was rolled back.
    AbortedRead,
    /// G1b: some of a transaction's appends to one key were read, and not all.
    IntermediateRead,
    /// G0: writes of transactions are interleaved.
    DirtyWrite,
    /// G1c: information went round in a circle.
    CircularFlow,
    /// A row was written by somebody else while a transaction had it locked.
    LockBroken,
    /// Two transactions read one version of a list, and both appended to it.
    LostUpdate,
    /// G-single: read skew. A snapshot has one transaction's work and not another's that it depends on.
    ReadSkew,
    /// A cycle with several anti-dependencies, no two of them in a row: two snapshots that saw writes in different orders.
    NonAdjacent,
    /// G2-item: a cycle with anti-dependencies in a row, such as write skew. Snapshot isolation allows it.
    AntiDependency,
}

impl Name {
    /// The short name.
    pub fn short(self) -> &'static str {
        match self {
            Name::Unwritten => "unwritten value",
            Name::Duplicate => "duplicate append",
            Name::IncompatibleOrder => "incompatible order",
            Name::LostAppend => "lost append",
            Name::Internal => "internal inconsistency",
            Name::AbortedRead => "G1a (aborted read)",
            Name::IntermediateRead => "G1b (intermediate read)",
            Name::DirtyWrite => "G0 (dirty write)",
            Name::CircularFlow => "G1c (circular information flow)",
            Name::LockBroken => "broken lock",
            Name::LostUpdate => "lost update",
            Name::ReadSkew => "G-single (read skew)",
            Name::NonAdjacent => "G-nonadjacent",
            Name::AntiDependency => "G2-item",
        }
    }
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    /// What it is called.
    pub name: Name,
    /// It is one only because of what happened before what: a read that is stale rather than wrong in itself.
    pub realtime: bool,
    /// Transactions that take part, as places in the history.
    pub transactions: Vec<usize>,
    /// Where.
    pub key: Option<Key>,
    /// What is wrong, in words.
    pub why: String,
}

impl Display for Anomaly {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let suffix = if self.realtime { ", in real time" } else { "" };
        write!(f, "{}{suffix}", self.name.short())?;
        if let Some(key) = self.key {
            write!(f, ", {key}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// What is known of a history.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What must not be, at the levels that were asked for.
    pub anomalies: Vec<Anomaly>,
    /// Dependencies that were found: by writes, by reads, and against the direction of reads.
    pub dependencies: Dependencies,
    /// Transactions whose commit was acknowledged or seen.
    pub committed: usize,
    /// Those rolled back.
    pub aborted: usize,
    /// Those that nobody knows of.
    pub unknown: usize,
    /// Reads of a key.
    pub reads: usize,
    /// Values that were appended and not taken back.
    pub appends: usize,
}

/// Numbers of edges between transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dependencies {
    /// One wrote over the other's version.
    pub ww: usize,
    /// One read the other's version.
    pub wr: usize,
    /// One read what the other wrote over.
    pub rw: usize,
}

impl Report {
    /// Whether an anomaly of this name was found.
    pub fn has(&self, name: Name) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.name == name)
    }

    /// All anomalies with the transactions that take part, at most `limit` of them in full.
    pub fn explain(&self, history: &History, limit: usize) -> String {
        let mut text = String::new();
        for anomaly in self.anomalies.iter().take(limit) {
            text += &format!("{anomaly}\n");
            for &place in &anomaly.transactions {
                text += &format!("    T{place}: {}\n", history.transactions[place]);
            }
        }
        if self.anomalies.len() > limit {
            text += &format!("... and {} more\n", self.anomalies.len() - limit);
        }
        text
    }
}
