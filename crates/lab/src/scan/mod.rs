//! Reading patterns: a table scanned, sorted, and read in the order of an index that has nothing to do with where its rows are; by the same SQL for everybody.
//!
//! - [`Base`]: a database that is open, embedded or served; [`Session`]: one of its connections.
//! - [`read`] measures the patterns, [`singles`] statements that change one row each, also in a folder where every write is [`synchronous`], [`neighbour`] what another program loses beside it all, [`growth`] a
//!   database that outgrows the memory while somebody is connected, and two that share it.
//! - [`watch`] looks at memory and at the OS cache meanwhile.

pub mod embedded;
#[cfg(feature = "rivals")]
pub mod firebird;
pub mod growth;
pub mod neighbour;
pub mod read;
pub mod served;
pub mod singles;
#[cfg(feature = "rivals")]
pub mod sqlite;
pub mod synchronous;
pub mod watch;

use crate::confine::end;
use crate::random::{Random, Shuffle};
use anyhow::{Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the text in each row.
pub(crate) const VALUE_LEN: usize = 184;
/// Bytes of a row's values: two whole numbers and a text.
pub const ROW_LEN: u64 = 16 + VALUE_LEN as u64;
/// The table: its primary key in the order of loading, `tag` a permutation without pattern, `v` random text.
pub const TABLE: &str = "create table rows (k bigint primary key, tag bigint not null, v text not null)";
/// The index that has nothing to do with the order of the rows.
pub const INDEX: &str = "create index rows_tag on rows (tag)";

/// The rows of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// How many.
    pub count: u64,
    order: Shuffle,
}

impl Rows {
    /// So many; the seed decides on the order of their tags.
    pub fn new(count: u64, seed: u64) -> Self {
        Rows { count, order: Shuffle::new(count, seed) }
    }

    /// The tag of row `k`: each number below the count once.
    pub fn tag(&self, k: u64) -> u64 {
        self.order.at(k)
    }

    /// Its text.
    pub fn value(k: u64) -> String {
        let (mut random, mut text) = (Random::new(k), String::with_capacity(VALUE_LEN + 16));
        while text.len() < VALUE_LEN {
            // Writing to a string does not fail.
            let _ = write!(text, "{:016x}", random.next_u64());
        }
        text.truncate(VALUE_LEN);
        text
    }

    /// Appends the row as a line of COPY.
    fn line(&self, k: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{k}\t{}\t{}\n", self.tag(k), Rows::value(k)).as_bytes());
    }
}

/// Gets each row, `k`, `tag` and `v`, and says whether there are to be more.
pub type Take<'t> = &'t mut dyn FnMut(i64, i64, &str) -> bool;

/// Ends a statement that runs, from another thread.
pub type Canceller = Box<dyn Fn() + Send>;

/// A connection.
pub trait Session: Send {
    /// Runs statements; those that give rows give three columns: whole number, whole number, text. False where `take` wanted no more.
    fn run(&mut self, sql: &str, take: Take<'_>) -> Result<bool>;

    /// Runs a statement that gives few rows, and gives their columns as text.
    fn text(&mut self, sql: &str) -> Result<Vec<Vec<String>>>;

    /// Fills the table [`TABLE`] with all rows, in the order of their keys.
    fn load(&mut self, rows: &Rows) -> Result<()>;

    /// Inserts rows into the table, in one transaction.
    fn insert(&mut self, rows: &Rows, keys: Range<u64>) -> Result<()> {
        let mut statement = "insert into rows values ".to_owned();
        for k in keys.clone() {
            let comma = if k > keys.start { "," } else { "" };
            // Writing to a string does not fail.
            let _ = write!(statement, "{comma}({k},{},'{}')", rows.tag(k), Rows::value(k));
        }
        self.batch(&statement)
    }

    /// What ends its statements; none where only the end of the process does.
    fn canceller(&self) -> Option<Canceller> {
        None
    }

    /// Runs statements whose rows nobody wants.
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.text(sql).map(drop)
    }
}

/// A database that is open.
pub trait Base: Sync {
    /// Its name and version.
    fn name(&self) -> String;

    /// Every setting that matters, as it is in force; for ours the I/O mode and its reason.
    fn settings(&self) -> Result<Value>;

    /// A connection.
    fn session(&self) -> Result<Box<dyn Session>>;

    /// The folder that all its files are in.
    fn folder(&self) -> PathBuf;

    /// What of that the table and its index are in: a file or a folder.
    fn data(&self) -> PathBuf;

    /// What has to be run before the query, and the query, for rows in the order of their tags.
    fn by_tag(&self, plan: Plan) -> (&'static str, String);

    /// What makes the plan of a statement visible.
    fn explain(&self) -> &'static str {
        "explain (costs off)"
    }

    /// What is to be done once when the table has been filled.
    fn settle(&self) -> &'static [&'static str];

    /// Bytes resident in its process, and bytes of files that are cached on its memory cgroup's account.
    fn memory(&self) -> (Option<u64>, Option<u64>);

    /// What its own memory cgroup has had; null where it has none but that of this process.
    fn group(&self) -> Value {
        Value::Null
    }

    /// Closes it in good order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A server, beside which other programs run in its memory.
pub trait Host: Base {
    /// A command that runs a program there: in its group, and asked to end when we do.
    ///
    /// # Errors
    /// It cannot be made.
    fn beside(&self, program: &Path) -> Result<Command>;

    /// Makes a full backup in a folder that is empty, by its own means, and ends it where `over` is set and it can be ended; false where it was.
    ///
    /// # Errors
    /// The server's or the program's.
    fn back_up(&self, to: &Path, over: &AtomicBool) -> Result<bool>;
}

/// Runs a program to its end, unless `over` is set before: then it is ended, and false is given.
fn finish(mut command: Command, name: &str, over: &AtomicBool) -> Result<bool> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(true) } else { bail!("{name} ended with {status}") };
        }
        if over.load(Ordering::Relaxed) {
            return end(&mut child, Signal::TERM, Duration::from_secs(10)).map(|_| false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who decides how rows are brought into the order of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// The planner.
    Chosen,
    /// The index is forced.
    Index,
    /// A sort is forced.
    Sort,
}

impl Plan {
    /// By its name on the command line.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "chosen" => Plan::Chosen,
            "index" => Plan::Index,
            "sort" => Plan::Sort,
            other => bail!("--plan is chosen, index or sort, not {other:?}"),
        })
    }

    /// That name.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Chosen => "chosen",
            Plan::Index => "index",
            Plan::Sort => "sort",
        }
    }
}

/// The query for rows in the order of their tags, and how PostgreSQL and Gannet are made to take a plan.
fn by_tag_with_switches(plan: Plan) -> (&'static str, String) {
    let switches = match plan {
        Plan::Chosen => "reset enable_sort; reset enable_seqscan; reset enable_indexscan",
        Plan::Index => "reset enable_indexscan; set enable_sort = off; set enable_seqscan = off",
        Plan::Sort => "reset enable_sort; reset enable_seqscan; set enable_indexscan = off",
    };
    (switches, "select k, tag, v from rows order by tag".to_owned())
}

/// Fills a database with the table and its index.
///
/// # Errors
/// The database's.
pub fn load(base: &dyn Base, rows: &Rows) -> Result<()> {
    let mut session = base.session()?;
    session.batch(TABLE)?;
    session.load(rows)?;
    session.batch(INDEX)?;
    for statement in base.settle() {
        session.batch(statement)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_apart_and_have_their_length() {
        let rows = Rows::new(1000, 3);
        let mut tags: Vec<u64> = (0..1000).map(|k| rows.tag(k)).collect();
        assert!(tags.windows(2).filter(|pair| pair[0] < pair[1]).count() < 600);
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..1000));
        assert_ne!(Rows::value(1), Rows::value(2));
        let mut line = Vec::new();
        rows.line(7, &mut line);
        let line = String::from_utf8(line).unwrap();
        let [k, tag, v] = line.trim_end().split('\t').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((k, tag, v.len()), ("7", rows.tag(7).to_string().as_str(), VALUE_LEN));
    }
}
