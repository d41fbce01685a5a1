//! What sessions did and were told: the checker's input.
//!
//! A history's file has one transaction a line, as JSON, so that a run that went wrong can be looked at and judged again.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// What values are appended to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// One row that holds its values in the order of their appends. Who appends has the row for himself until his end.
    List(u32),
    /// A row for each value, which anybody may add at any time: they have no order.
    Set(u32),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::List(number) => write!(f, "list {number}"),
            Key::Set(number) => write!(f, "set {number}"),
        }
    }
}

/// What a transaction asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Each statement reads one state of what is committed.
    ReadCommitted,
    /// Snapshot isolation: the transaction reads one state, and nobody else has written what it writes.
    RepeatableRead,
    /// As if one after the other.
    Serializable,
}

impl Level {
    /// As SQL writes it.
    pub fn sql(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read committed",
            Level::RepeatableRead => "repeatable read",
            Level::Serializable => "serializable",
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its commit was acknowledged.
    Committed,
    /// It was rolled back, or its commit was never asked for.
    Aborted,
    /// Its commit was asked for, and no answer came.
    Unknown,
}

/// One step of a statement, in the order of their effects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A value was put behind the others of a list, or into a set.
    Append {
        /// To what.
        key: Key,
        /// Unique within the key.
        value: u64,
    },
    /// What a key held.
    Read {
        /// Whose.
        key: Key,
        /// All of it.
        values: Vec<u64>,
        /// The row was locked with it (`FOR UPDATE`, `FOR SHARE`, or by an `UPDATE ... RETURNING`), so that its newest version was
        /// read and nobody else writes it before the transaction's end.
        locked: bool,
    },
    /// `SAVEPOINT`
    Savepoint,
    /// `ROLLBACK TO` the youngest savepoint, which stays.
    RollbackTo,
    /// `RELEASE` of the youngest savepoint.
    Release,
}

/// A statement that the server answered, or (with appends only) one whose answer was lost together with its transaction's. One that
/// failed has no actions: it did nothing, but may have been what a snapshot was taken for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Statement {
    /// When it was sent, in nanoseconds since some moment that is the same for the whole history.
    pub sent: u64,
    /// When its answer had arrived.
    pub answered: Option<u64>,
    /// What it did.
    pub actions: Vec<Action>,
}

impl Statement {
    /// Whether it looks at the database: marks of savepoints do not.
    pub fn looks(&self) -> bool {
        let data = |action: &Action| matches!(action, Action::Append { .. } | Action::Read { .. });
        self.actions.is_empty() || self.actions.iter().any(data)
    }
}

/// A transaction, as its session saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Number of the session.
    pub session: u32,
    /// What it asked for.
    pub level: Level,
    /// Its statements, in their order.
    pub statements: Vec<Statement>,
    /// How it ended.
    pub outcome: Outcome,
    /// When its end was asked for. A statement on its own is its own end.
    pub end_sent: u64,
    /// When the end was acknowledged.
    pub end_answered: Option<u64>,
}

impl Transaction {
    /// Its actions in their order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.statements.iter().flat_map(|statement| &statement.actions)
    }

    /// For each action whether it was undone by a `ROLLBACK TO`.
    pub fn undone(&self) -> Vec<bool> {
        let mut undone = Vec::new();
        let mut savepoints = Vec::new();
        for (place, action) in self.actions().enumerate() {
            undone.push(false);
            match action {
                Action::Savepoint => savepoints.push(place),
                Action::Release => drop(savepoints.pop()),
                Action::RollbackTo => {
                    let from = savepoints.last().copied().unwrap_or(0);
                    undone[from + 1..].fill(true);
                }
                Action::Append { .. } | Action::Read { .. } => {}
            }
        }
        undone
    }
}

impl std::fmt::Display for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}, {}, {:?}:", self.session, self.level.sql(), self.outcome)?;
        for statement in &self.statements {
            write!(f, " {{")?;
            for action in &statement.actions {
                match action {
                    Action::Append { key, value } => write!(f, " append {value} to {key};")?,
                    Action::Read { key, values, locked } => {
                        write!(f, " read{} {key}: {values:?};", if *locked { " and lock" } else { "" })?;
                    }
                    Action::Savepoint => write!(f, " savepoint;")?,
                    Action::RollbackTo => write!(f, " rollback to savepoint;")?,
                    Action::Release => write!(f, " release savepoint;")?,
                }
            }
            write!(f, " }}")?;
        }
        Ok(())
    }
}

/// Everything that all sessions did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// In no order.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// Writes it, one transaction a line.
    pub fn write(&self, mut out: impl Write) -> Result<()> {
        for transaction in &self.transactions {
            serde_json::to_writer(&mut out, transaction)?;
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Reads what [`History::write`] wrote.
    pub fn read(from: impl BufRead) -> Result<Self> {
        let mut transactions = Vec::new();
        for (number, line) in from.lines().enumerate() {
            let transaction = serde_json::from_str(&line?);
            transactions.push(transaction.with_context(|| format!("line {}", number + 1))?);
        }
        Ok(History { transactions })
    }
}
