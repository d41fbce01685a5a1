//! Definitions, as they are stored and as the planner sees them.

use crate::codec::row::TableCodec;
use crate::types::{Modifier, Type};
use gannet_store::Tree;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Number of an object: unique among all objects of a database, never used twice. Those below
/// [`FIRST_USER_OID`] are the system's own.
pub type Oid = u32;

/// The first number a user's object gets.
pub const FIRST_USER_OID: Oid = 16384;
/// Schema `pg_catalog`.
pub const PG_CATALOG: Oid = 11;
/// Schema `public`.
pub const PUBLIC: Oid = 2200;
/// Schema `information_schema`.
pub const INFORMATION_SCHEMA: Oid = 13000;
/// The role that creates a database.
pub const BOOTSTRAP_ROLE: Oid = 10;

/// Number of a column within its table, from 1, never used twice.
pub type ColumnNumber = u16;

/// Everything that is defined, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every committed change.
    pub version: u64,
    /// Tables by number.
    pub tables: BTreeMap<Oid, Arc<Table>>,
    /// Sequences by number.
    pub sequences: BTreeMap<Oid, Arc<Sequence>>,
    /// Roles by number.
    pub roles: BTreeMap<Oid, Arc<Role>>,
    /// What ANALYZE found, by table.
    pub statistics: BTreeMap<Oid, Arc<TableStatistics>>,
    /// Relations (tables, indexes, sequences share one name space) of schema `public` by name.
    pub names: HashMap<String, Relation>,
    /// The tree of the definitions, once they were loaded.
    pub(crate) entries: Option<Tree>,
}

/// What a name of a relation stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// A table.
    Table(Oid),
    /// An index of a table.
    Index {
        /// The table.
        table: Oid,
        /// The index.
        index: Oid,
    },
    /// A sequence.
    Sequence(Oid),
}

/// A table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// Where the rows are.
    pub storage: Storage,
    /// How the key of a row is made.
    pub key: TableKey,
    /// Which columns a stored row has, by the row's layout version: the last one is the current one.
    pub layouts: Vec<Layout>,
    /// The indexes, the one of the primary key included.
    #[serde(default)]
    pub indexes: Vec<Index>,
    /// CHECK constraints.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Foreign keys of this table.
    #[serde(default)]
    pub foreign_keys: Vec<ForeignKey>,
    /// Tables with a foreign key on this one, itself included.
    #[serde(default)]
    pub referenced_by: Vec<Oid>,
    /// The role that owns it.
    pub owner: Oid,
    /// The next column number to be given.
    pub next_column: ColumnNumber,
    /// Another number with each change of the definition, so that two of them are told apart without reading them. It stands
    /// in front of the stored definition.
    #[serde(skip)]
    pub revision: u64,
    /// See [`Table::codec`].
    #[serde(skip)]
    pub(crate) codec: CodecCell,
}

/// A codec that is made when it is first asked for. A copy of a definition begins without one, since it is about to be changed.
#[derive(Debug, Default)]
pub(crate) struct CodecCell(OnceLock<TableCodec>);

impl Clone for CodecCell {
    fn clone(&self) -> Self {
        CodecCell::default()
    }
}

/// How the key of a row is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKey {
    /// A number given to each row, 8 bytes big-endian; there is no primary key.
    RowId,
    /// The columns of the primary key.
    Columns(Vec<ColumnNumber>),
}

/// A tree, and its handle once it was opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Storage {
    /// Name of the tree in the store.
    pub name: String,
    #[serde(skip)]
    handle: OnceLock<Tree>,
}

impl Storage {
    /// The tree of this name.
    pub fn new(name: String) -> Self {
        Storage { name, handle: OnceLock::new() }
    }

    /// A tree that was just created.
    pub fn created(tree: Tree) -> Self {
        let name = String::from_utf8_lossy(tree.name()).into_owned();
        Storage { name, handle: OnceLock::from(tree) }
    }

    /// The handle, opened at first use by `open`.
    pub fn tree(&self, open: impl FnOnce(&str) -> crate::Result<Tree>) -> crate::Result<&Tree> {
        if let Some(tree) = self.handle.get() {
            return Ok(tree);
        }
        let tree = open(&self.name)?;
        Ok(self.handle.get_or_init(|| tree))
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its number.
    pub number: ColumnNumber,
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: Type,
    /// The type's modifier, -1 for none.
    pub modifier: Modifier,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The default, as SQL text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What the column is in rows older than itself, as text of its type; NULL if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The columns a stored row has, in order of their numbers. Those of a primary key that can be read back from the key are
/// not repeated in the row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub Vec<ColumnNumber>);

/// An index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<IndexColumn>,
    /// Whether no two rows may agree in all columns (NULLs agree with nothing).
    pub unique: bool,
    /// The table's own order: no tree of its own, `storage` is the table's.
    pub primary: bool,
    /// The UNIQUE or PRIMARY KEY constraint it stands for, which has the index's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Oid>,
    /// Where the entries are.
    pub storage: Storage,
}

/// A column of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexColumn {
    /// The table's column.
    pub column: ColumnNumber,
    /// Largest first.
    #[serde(default)]
    pub descending: bool,
    /// NULLs before everything else. PostgreSQL's default: as `descending`.
    #[serde(default)]
    pub nulls_first: bool,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// The condition, as SQL text.
    pub expression: String,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignKey {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// The referring columns.
    pub columns: Vec<ColumnNumber>,
    /// The table referred to.
    pub parent: Oid,
    /// The columns referred to, one for each of `columns`: those of a unique index or the primary key, in any order.
    pub parent_columns: Vec<ColumnNumber>,
    /// The parent's index.
    pub parent_index: Oid,
    /// What a delete of the parent does.
    pub on_delete: ReferentialAction,
    /// What a change of the parent's key does.
    pub on_update: ReferentialAction,
}

/// What happens to the rows that refer to one that goes or changes its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferentialAction {
    /// Refused, at the end of the statement.
    #[default]
    NoAction,
    /// Refused, at once.
    Restrict,
    /// They go, or change, along.
    Cascade,
    /// Their columns become NULL.
    SetNull,
    /// Their columns get their defaults.
    SetDefault,
}

/// A sequence. Its position is no part of the definition; see `catalog::storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// smallint, integer or bigint.
    #[serde(rename = "type")]
    pub ty: Type,
    /// The first value.
    pub start: i64,
    /// The step, not 0.
    pub increment: i64,
    /// The smallest value.
    pub minimum: i64,
    /// The largest value.
    pub maximum: i64,
    /// Whether it begins anew behind its end.
    pub cycle: bool,
    /// The serial column it belongs to, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<(Oid, ColumnNumber)>,
    /// Whether the column it belongs to is an identity column.
    #[serde(default)]
    pub identity: bool,
    /// The role that owns it.
    pub owner: Oid,
    /// The counter that keeps its position. Who changes where it stands, or how it moves, gives it a new one, so that a rollback brings the old one back.
    pub counter: Oid,
    /// Where the counter begins, and whether that value counts as given already.
    pub begin: (i64, bool),
    /// See [`Table::revision`].
    #[serde(skip)]
    pub revision: u64,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its number.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// Whether it may connect.
    pub login: bool,
    /// Whether it may do everything.
    pub superuser: bool,
    /// `SCRAM-SHA-256$iterations:salt$stored:server`, as PostgreSQL has it; no password if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// See [`Table::revision`].
    #[serde(skip)]
    pub revision: u64,
}

/// What ANALYZE found out about a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableStatistics {
    /// Rows.
    pub rows: f64,
    /// Leaf pages.
    pub pages: f64,
    /// By column number.
    pub columns: BTreeMap<ColumnNumber, ColumnStatistics>,
    /// When, in microseconds since 2000-01-01 UTC.
    pub analyzed_at: i64,
    /// See [`Table::revision`].
    #[serde(skip)]
    pub revision: u64,
}

/// What ANALYZE found out about a column.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnStatistics {
    /// Share of NULLs.
    pub null_fraction: f64,
    /// Average bytes.
    pub width: f64,
    /// Distinct values; negative: minus their number divided by the number of rows, as in `pg_stats`.
    pub distinct: f64,
    /// Most common values, as text, with their shares of all rows.
    pub common: Vec<(String, f64)>,
    /// Values that divide the others into parts of equal size, as text, ascending.
    pub histogram: Vec<String>,
    /// Correlation between the order of the rows and the order of the values, -1 to 1.
    pub correlation: f64,
}

impl Table {
    /// How rows and index entries become bytes.
    pub fn codec(&self) -> &TableCodec {
        self.codec.0.get_or_init(|| TableCodec::new(self))
    }

    /// The column of this number.
    pub fn column(&self, number: ColumnNumber) -> Option<&Column> {
        // Nearly always where one would look first.
        match self.columns.get(usize::from(number).wrapping_sub(1)) {
            Some(column) if column.number == number => Some(column),
            _ => self.columns.iter().find(|column| column.number == number),
        }
    }

    /// Where the column of this number stands.
    pub fn position(&self, number: ColumnNumber) -> Option<usize> {
        self.columns.iter().position(|column| column.number == number)
    }

    /// Where the column of this name stands.
    pub fn find_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The primary key's index.
    pub fn primary(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.primary)
    }
}

impl Catalog {
    /// The table of this name in schema `public`.
    pub fn table(&self, name: &str) -> Option<&Arc<Table>> {
        match self.names.get(name)? {
            Relation::Table(oid) => self.tables.get(oid),
            _ => None,
        }
    }

    /// Takes over what `private`, made from `base`, has changed: objects are compared by identity.
    pub fn adopt(&mut self, base: &Catalog, private: &Catalog) {
        // Whatever names they have by now: somebody else may have changed them since `base`.
        let changed = |relation: &Relation| match relation {
            Relation::Table(oid) | Relation::Index { table: oid, .. } => {
                differs(&base.tables, &private.tables, *oid)
            }
            Relation::Sequence(oid) => differs(&base.sequences, &private.sequences, *oid),
        };
        self.names.retain(|_, relation| !changed(relation));
        adopt_objects(&mut self.tables, &base.tables, &private.tables);
        adopt_objects(&mut self.sequences, &base.sequences, &private.sequences);
        adopt_objects(&mut self.roles, &base.roles, &private.roles);
        adopt_objects(&mut self.statistics, &base.statistics, &private.statistics);
        // Also those of an ANALYZE that whoever removed the table has waited for, and does not know of.
        for oid in base.tables.keys().filter(|oid| !private.tables.contains_key(oid)) {
            self.statistics.remove(oid);
        }
        for (oid, table) in &private.tables {
            if !base.tables.get(oid).is_some_and(|before| Arc::ptr_eq(before, table)) {
                self.learn_names(table);
            }
        }
        for (oid, sequence) in &private.sequences {
            if !base.sequences.get(oid).is_some_and(|before| Arc::ptr_eq(before, sequence)) {
                self.names.insert(sequence.name.clone(), Relation::Sequence(*oid));
            }
        }
    }

    fn learn_names(&mut self, table: &Table) {
        self.names.insert(table.name.clone(), Relation::Table(table.oid));
        for index in &table.indexes {
            self.names.insert(index.name.clone(), Relation::Index { table: table.oid, index: index.oid });
        }
    }
}

/// Whether an object of `base` was changed or removed.
fn differs<T>(base: &BTreeMap<Oid, Arc<T>>, private: &BTreeMap<Oid, Arc<T>>, oid: Oid) -> bool {
    let Some(before) = base.get(&oid) else { return false };
    !private.get(&oid).is_some_and(|now| Arc::ptr_eq(now, before))
}

fn adopt_objects<T>(
    into: &mut BTreeMap<Oid, Arc<T>>,
    base: &BTreeMap<Oid, Arc<T>>,
    private: &BTreeMap<Oid, Arc<T>>,
) {
    for oid in base.keys().filter(|oid| !private.contains_key(oid)) {
        into.remove(oid);
    }
    for (oid, object) in private {
        if !base.get(oid).is_some_and(|before| Arc::ptr_eq(before, object)) {
            into.insert(*oid, Arc::clone(object));
        }
    }
}
