//! Statistics of a whole database: the store's ([`gannet_store::StatReport`]), in words of SQL.
//!
//! # What it guarantees
//! 1. Trees are named by the table or index that they hold; those of a database without definitions keep their names.
//! 2. Duplicates of an index are entries that agree in all of its columns, NULLs among each other included: what tells such entries apart is
//!    the key of their row.
//! 3. It changes nothing, and holds no snapshot while pages are looked at.
//! 4. Where definitions cannot be read, everything else is said all the same.

pub(crate) mod names;

use crate::{Error, Result, SqlState, TableName};
use gannet_store::{
    Database, Figure, HeaderStat, SpaceStat, StatMode, StatOptions, StatReport, TransactionStat,
    TreeContents, Watch,
};
use names::Names;
use serde::{Deserialize, Serialize};

/// Which statistics are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatRequest {
    /// Everything is counted, not estimated.
    pub records: bool,
    /// Only of this table and its indexes; in a database without definitions, of this tree.
    pub table: Option<TableName>,
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// The rows of a table.
    Table,
    /// The entries of an index.
    Index,
    /// A tree of a database without definitions.
    Tree,
    /// What Gannet itself needs.
    System,
}

impl ObjectKind {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::Index => "index",
            ObjectKind::Tree => "tree",
            ObjectKind::System => "system",
        }
    }
}

/// A table, an index, or another tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Of an index: its table.
    pub table: Option<String>,
    /// Of an index: whether it is a unique one.
    pub unique: bool,
    /// Bytes of its pages.
    pub bytes: f64,
    /// The number of the store's tree.
    pub tree: u32,
    /// The tree's name in the store, where it has one.
    pub tree_name: Option<String>,
    /// Pages in use, whatever is on them.
    pub pages: Figure,
    /// Pages of it that could not be read.
    pub unreadable_pages: u64,
    /// What it contains; `None` where nothing of it was looked at.
    pub contents: Option<TreeContents>,
}

/// A session, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number.
    pub pid: i32,
    /// Its role.
    pub user: String,
    /// The name that its client has given.
    pub application: String,
    /// What it does, as in `pg_stat_activity`.
    pub state: String,
    /// The number of its transaction, where that has written.
    pub transaction: Option<u64>,
}

/// A page that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The page.
    pub page: u64,
    /// What it belongs to.
    pub object: String,
    /// Why.
    pub why: String,
}

/// Statistics of a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How they were made.
    pub mode: StatMode,
    /// The table that they are restricted to.
    pub table: Option<String>,
    /// The file's header and what is in force.
    pub header: HeaderStat,
    /// Marks of transactions, and garbage.
    pub transactions: TransactionStat,
    /// Who holds the oldest snapshot, where that is a session.
    pub oldest_holder: Option<Holder>,
    /// Sessions whose transactions have written.
    pub writers: Vec<Holder>,
    /// Where the file's pages are.
    pub space: SpaceStat,
    /// Tables by name, each with its indexes behind it; then trees; then what Gannet itself needs.
    pub objects: Vec<Object>,
    /// Pages that could not be read, at most 100 of them.
    pub unreadable: Vec<Unreadable>,
    /// How many they are.
    pub unreadable_pages: u64,
    /// Why tables have the names of their trees: definitions cannot be read.
    pub definitions_missing: Option<String>,
    /// Not all of the list of trees could be read.
    pub trees_missing: bool,
    /// Something was changed, or swept, meanwhile: what was counted is of different moments. Otherwise it is exact.
    pub changed_meanwhile: bool,
    /// Bytes that were read from the device.
    pub bytes_read: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Makes statistics of a database, of SQL or not, as a job of it.
///
/// # Errors
/// An unknown table; what keeps them from being made: no memory, a database that was closed, what `watch` fails with.
pub fn statistics(store: &Database, request: &StatRequest, watch: &mut Watch<'_>) -> Result<Statistics> {
    let prepared = Prepared::new(store, request)?;
    let report = store.statistics_watched(prepared.options(), watch)?;
    Ok(prepared.in_words(report))
}

/// What is to be known of a database before the store makes statistics of it.
#[derive(Debug)]
pub struct Prepared {
    names: Names,
    definitions_missing: Option<String>,
    table: Option<String>,
    options: StatOptions,
}

impl Prepared {
    /// Reads the names of what there is.
    ///
    /// # Errors
    /// An unknown table, another schema, or what keeps definitions from being read, unless they are damaged.
    pub fn new(store: &Database, request: &StatRequest) -> Result<Self> {
        let (names, definitions_missing) = match Names::load(store) {
            Ok(names) => (names, None),
            Err(error) if crate::check::is_damage(&error) => (Names::default(), Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let (table, trees) = match &request.table {
            Some(table) => {
                let (name, trees) = names.trees_of(store, table)?;
                (Some(name.to_owned()), Some(trees))
            }
            None => (None, None),
        };
        let options = StatOptions {
            mode: if request.records { StatMode::Records } else { StatMode::Instant },
            trees,
            leading: names.leading(),
            seed: None,
        };
        Ok(Prepared { names, definitions_missing, table, options })
    }

    /// What the store is to be asked for.
    pub fn options(&self) -> &StatOptions {
        &self.options
    }

    /// What it has said, in words of SQL.
    pub fn in_words(self, report: StatReport) -> Statistics {
        let Prepared { names, definitions_missing, table, .. } = self;
        in_words(&names, definitions_missing, table, report)
    }
}

fn in_words(
    names: &Names,
    definitions_missing: Option<String>,
    table: Option<String>,
    report: StatReport,
) -> Statistics {
    let page_bytes = report.header.page_bytes as f64;
    let unreadable = report.unreadable.iter().map(|page| Unreadable {
        page: page.page,
        object: names.object_of(page.tree, &report.trees),
        why: page.why.clone(),
    });
    let mut objects: Vec<Object> = Vec::with_capacity(report.trees.len());
    let unreadable = unreadable.collect();
    for figures in report.trees {
        objects.push(names.object(figures, page_bytes));
    }
    names.sort(&mut objects);
    Statistics {
        mode: report.mode,
        table,
        header: report.header,
        transactions: report.transactions,
        oldest_holder: None,
        writers: Vec::new(),
        space: report.space,
        objects,
        unreadable,
        unreadable_pages: report.unreadable_pages,
        definitions_missing,
        trees_missing: report.trees_missing,
        changed_meanwhile: report.changed_meanwhile,
        bytes_read: report.bytes_read,
        seconds: report.seconds,
    }
}

fn unknown_table(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_TABLE, format!("table \"{name}\" does not exist"))
}
