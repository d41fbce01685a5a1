//! What a statement means: the binder's result and the planner's input.
//!
//! # Invariants
//! 1. Every column that any part of a query produces has a [`ColumnId`] of its own, unique in the statement, and an entry in
//!    [`Columns`]. A self-join has two sets of them.
//! 2. Every [`Scalar`] has a type, and operands have exactly the types their function or comparison takes: casts are explicit
//!    nodes. Integers of different widths are the exception: comparisons take them as they are.
//! 3. A [`Scalar`] refers to columns of the input of its node, and, within a subquery (or the right side of a lateral join), to columns of the outer
//!    query: those are the correlated ones.
//! 4. Aggregates stand only in [`Rel::Aggregate`]; above it they are columns.

mod facts;
mod print;
mod same;
pub(crate) mod walk;

use crate::catalog::{ColumnNumber, Oid, Table};
use crate::functions::{Aggregate, Function, TableFunction};
use crate::system::SystemTable;
use crate::types::{Modifier, Type, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

pub(crate) use facts::{call_is_volatile, is_volatile, rel_is_open, rel_is_volatile, type_of};
pub use print::{print, print_scalar};
pub(crate) use same::{is_cast_of, same, same_call};

/// A column of some part of a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ColumnId(pub u32);

/// What is known of a column.
#[derive(Clone, Debug)]
pub struct ColumnInfo {
    /// Its name, for EXPLAIN and error messages.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: Modifier,
    /// The table's column it is, unchanged.
    pub origin: Option<(Oid, ColumnNumber)>,
    /// Whether it may be NULL, as far as is known.
    pub nullable: bool,
}

/// The columns of a statement, by number.
#[derive(Clone, Debug, Default)]
pub struct Columns(pub Vec<ColumnInfo>);

impl Columns {
    /// Adds a column.
    pub fn add(&mut self, info: ColumnInfo) -> ColumnId {
        self.0.push(info);
        ColumnId(self.0.len() as u32 - 1)
    }

    /// What is known of a column.
    pub fn get(&self, id: ColumnId) -> &ColumnInfo {
        &self.0[id.0 as usize]
    }
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// =
    Equal,
    /// <>
    NotEqual,
    /// <
    Less,
    /// <=
    LessOrEqual,
    /// >
    Greater,
    /// >=
    GreaterOrEqual,
    /// IS DISTINCT FROM: never NULL.
    Distinct,
    /// IS NOT DISTINCT FROM: never NULL.
    NotDistinct,
}

/// A typed expression.
#[derive(Clone, Debug)]
pub enum Scalar {
    /// A constant.
    Literal {
        /// Its value.
        value: Value,
        /// Its type.
        ty: Type,
    },
    /// A column, of this query or an outer one.
    Column(ColumnId),
    /// A parameter of the statement, from 0.
    Parameter {
        /// `$1` is 0.
        index: usize,
        /// Its type.
        ty: Type,
    },
    /// A function or operator.
    Call {
        /// Which.
        function: &'static Function,
        /// What it is called with.
        arguments: Vec<Scalar>,
        /// What it gives.
        ty: Type,
    },
    /// A conversion (see [`crate::types::cast`]).
    Cast {
        /// What is converted.
        argument: Box<Scalar>,
        /// To which type.
        ty: Type,
        /// With which modifier.
        modifier: Modifier,
        /// Written as CAST: too long a string is cut.
        explicit: bool,
    },
    /// AND of any number.
    And(Vec<Scalar>),
    /// OR of any number.
    Or(Vec<Scalar>),
    /// NOT
    Not(Box<Scalar>),
    /// A comparison of two values of one type.
    Compare {
        /// How.
        op: Comparison,
        /// What.
        left: Box<Scalar>,
        /// With what.
        right: Box<Scalar>,
    },
    /// A comparison of two rows, column by column.
    CompareRows {
        /// How.
        op: Comparison,
        /// What.
        left: Vec<Scalar>,
        /// With what.
        right: Vec<Scalar>,
    },
    /// IS NULL
    IsNull(Box<Scalar>),
    /// IS TRUE, IS FALSE (`value`), never NULL. IS NOT ... is a NOT around it; IS UNKNOWN is IS NULL.
    IsBool {
        /// What.
        argument: Box<Scalar>,
        /// Compared with.
        value: bool,
    },
    /// An expression over a value that is computed once, however often the expression asks for it: a CASE with operand, NULLIF.
    Hold {
        /// What is computed first.
        value: Box<Scalar>,
        /// The expression.
        body: Box<Scalar>,
    },
    /// The value of the innermost [`Scalar::Hold`] whose body this stands in.
    Held {
        /// Its type.
        ty: Type,
    },
    /// CASE WHEN condition THEN value ... ELSE otherwise END. A CASE with operand has comparisons for conditions.
    Case {
        /// Conditions and values.
        branches: Vec<(Scalar, Scalar)>,
        /// ELSE; NULL if none.
        otherwise: Box<Scalar>,
        /// The common type.
        ty: Type,
    },
    /// The first that is not NULL.
    Coalesce {
        /// The candidates, all of one type.
        arguments: Vec<Scalar>,
        /// That type.
        ty: Type,
    },
    /// The greatest or least that is not NULL.
    Extreme {
        /// The candidates, all of one type.
        arguments: Vec<Scalar>,
        /// GREATEST; else LEAST.
        greatest: bool,
        /// That type.
        ty: Type,
    },
    /// argument IN (list), all of one type.
    InList {
        /// What.
        argument: Box<Scalar>,
        /// Among what.
        list: Vec<Scalar>,
    },
    /// argument op ANY (array), or ALL.
    Quantified {
        /// What.
        argument: Box<Scalar>,
        /// How.
        op: Comparison,
        /// The array.
        array: Box<Scalar>,
        /// ALL; else ANY.
        all: bool,
    },
    /// ARRAY[...]
    Array {
        /// The elements, all of one type.
        elements: Vec<Scalar>,
        /// The array's type.
        ty: Type,
    },
    /// `array[index]`
    Subscript {
        /// The array.
        array: Box<Scalar>,
        /// The index.
        index: Box<Scalar>,
        /// Type of the elements.
        ty: Type,
    },
    /// ROW(...)
    Row(Vec<Scalar>),
    /// A subquery within an expression.
    Subquery(Box<Subquery>),
}

/// A subquery within an expression.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// The query. It may refer to columns of the queries around it.
    pub query: Query,
    /// What is made of its rows.
    pub kind: SubqueryKind,
}

/// What is made of a subquery's rows.
#[derive(Clone, Debug)]
pub enum SubqueryKind {
    /// The one value of its one row; NULL when there is none, 21000 when there are more.
    Scalar,
    /// Whether there is a row.
    Exists,
    /// Whether (or not) the comparison holds for some row, or for all of them: IN is `= ANY`, NOT IN is NOT of it.
    Quantified {
        /// The left side, one for each column.
        arguments: Vec<Scalar>,
        /// How.
        op: Comparison,
        /// ALL; else ANY.
        all: bool,
    },
    /// ARRAY(SELECT ...), of this type.
    Array(Type),
}

/// What kind of join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// INNER, CROSS
    Inner,
    /// LEFT; RIGHT is a LEFT with its sides exchanged.
    Left,
    /// FULL
    Full,
    /// Rows of the left side with a partner: from EXISTS and IN, made by the planner.
    Semi,
    /// Rows of the left side without a partner: from NOT EXISTS, made by the planner.
    Anti,
}

/// A sort key.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// What is sorted by.
    pub scalar: Scalar,
    /// Largest first.
    pub descending: bool,
    /// NULLs first.
    pub nulls_first: bool,
}

/// A call of an aggregate function.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Which.
    pub aggregate: &'static Aggregate,
    /// Of what; empty for count(*).
    pub arguments: Vec<Scalar>,
    /// DISTINCT
    pub distinct: bool,
    /// FILTER (WHERE ...)
    pub filter: Option<Scalar>,
    /// ORDER BY within the call.
    pub order: Vec<SortKey>,
    /// What it gives.
    pub ty: Type,
}

/// How rows that are read are locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockStrength {
    /// FOR KEY SHARE
    KeyShare,
    /// FOR SHARE
    Share,
    /// FOR UPDATE, FOR NO KEY UPDATE
    Update,
}

/// What to do about a row that somebody else has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// Wait.
    Block,
    /// Fail with 55P03.
    NoWait,
    /// Leave the row out.
    SkipLocked,
}

/// UNION, EXCEPT, INTERSECT
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOperation {
    /// UNION
    Union,
    /// EXCEPT
    Except,
    /// INTERSECT
    Intersect,
}

/// A source of rows.
#[derive(Clone, Debug)]
pub enum Rel {
    /// A table.
    Table {
        /// Which.
        table: Arc<Table>,
        /// Its name in the query.
        alias: String,
        /// A number for each of its columns, in the table's order.
        columns: Vec<ColumnId>,
    },
    /// A table of the system's.
    System {
        /// Which.
        table: &'static SystemTable,
        /// Its name in the query.
        alias: String,
        /// A number for each of its columns.
        columns: Vec<ColumnId>,
    },
    /// VALUES; also one row without columns, for a SELECT without FROM.
    Values {
        /// A number for each column.
        columns: Vec<ColumnId>,
        /// The rows.
        rows: Vec<Vec<Scalar>>,
    },
    /// A function that gives rows. Its arguments may refer to relations on its left, when it is the right side of a lateral join.
    Function {
        /// Which.
        function: &'static TableFunction,
        /// What it is called with.
        arguments: Vec<Scalar>,
        /// Its columns.
        columns: Vec<ColumnId>,
        /// WITH ORDINALITY: one more column.
        ordinality: Option<ColumnId>,
        /// Whether it stands in a SELECT list: it is joined last to what stands on its left, whose rows keep their order, each with the
        /// function's rows behind one another.
        listed: bool,
    },
    /// The rows of a WITH query that is computed once however often it is used. It takes nothing from outside.
    Common {
        /// Which.
        common: Arc<Common>,
        /// The name of this use in the query.
        alias: String,
        /// A number for each of its columns: other ones for each use.
        columns: Vec<ColumnId>,
    },
    /// A join.
    Join {
        /// Which kind.
        kind: JoinKind,
        /// The left side.
        left: Box<Rel>,
        /// The right side; it refers to columns of the left one if `lateral`.
        right: Box<Rel>,
        /// The condition.
        on: Option<Scalar>,
        /// Whether the right side depends on the left one.
        lateral: bool,
    },
    /// WHERE, HAVING
    Filter {
        /// Of what.
        input: Box<Rel>,
        /// Rows for which this is true.
        predicate: Scalar,
    },
    /// Computed columns. What is not named goes.
    Project {
        /// Of what.
        input: Box<Rel>,
        /// The columns; one that is passed on keeps its number: `(id, Scalar::Column(id))`.
        columns: Vec<(ColumnId, Scalar)>,
    },
    /// GROUP BY and aggregates.
    Aggregate {
        /// Of what.
        input: Box<Rel>,
        /// The groups; none: all rows are one group, also when there are none.
        groups: Vec<(ColumnId, Scalar)>,
        /// The aggregates.
        aggregates: Vec<(ColumnId, AggregateCall)>,
    },
    /// DISTINCT, over all columns; DISTINCT ON over some, the first row in the input's order wins.
    Distinct {
        /// Of what.
        input: Box<Rel>,
        /// DISTINCT ON
        on: Option<Vec<Scalar>>,
    },
    /// ORDER BY
    Sort {
        /// Of what.
        input: Box<Rel>,
        /// By what.
        keys: Vec<SortKey>,
    },
    /// LIMIT and OFFSET, of type bigint.
    Limit {
        /// Of what.
        input: Box<Rel>,
        /// LIMIT; NULL means none.
        limit: Option<Scalar>,
        /// OFFSET
        offset: Option<Scalar>,
    },
    /// UNION and its kin. Both sides give `columns.len()` columns of the same types.
    Set {
        /// Which.
        operation: SetOperation,
        /// ALL
        all: bool,
        /// The left side, and which of its columns.
        left: (Box<Rel>, Vec<ColumnId>),
        /// The right side, and which of its columns.
        right: (Box<Rel>, Vec<ColumnId>),
        /// The result's columns.
        columns: Vec<ColumnId>,
    },
    /// FOR UPDATE and its kin, over tables joined below. A row that changed meanwhile is looked at again by `recheck`.
    Lock {
        /// Of what.
        input: Box<Rel>,
        /// Which of the tables below, by the first of their columns, how, and whether to wait.
        tables: Vec<(ColumnId, LockStrength, LockWait)>,
        /// Everything the query demands of a row.
        recheck: Recheck,
    },
}

/// How a row of joined tables is looked at again when one of them was changed meanwhile: the other tables' rows stay those that were found.
#[derive(Clone, Debug, Default)]
pub struct Recheck {
    /// What must be as it was, as the input made of it what is not made again.
    pub fixed: Vec<Scalar>,
    /// In the order of the joins.
    pub steps: Vec<RecheckStep>,
}

/// A step of a [`Recheck`].
#[derive(Clone, Debug)]
pub enum RecheckStep {
    /// A condition of WHERE or of an inner join: the row passes only if it is true.
    Holds(Scalar),
    /// An outer join's condition: unless it is true, the optional side is NULL.
    Joins {
        /// The condition.
        on: Scalar,
        /// All columns of the optional side and below it.
        columns: Vec<ColumnId>,
    },
}

impl Recheck {
    /// All its expressions.
    pub fn scalars(&self) -> impl Iterator<Item = &Scalar> {
        self.fixed.iter().chain(self.steps.iter().map(|step| match step {
            RecheckStep::Holds(scalar) | RecheckStep::Joins { on: scalar, .. } => scalar,
        }))
    }

    /// [`Recheck::scalars`], to be changed.
    pub fn scalars_mut(&mut self) -> impl Iterator<Item = &mut Scalar> {
        self.fixed.iter_mut().chain(self.steps.iter_mut().map(|step| match step {
            RecheckStep::Holds(scalar) | RecheckStep::Joins { on: scalar, .. } => scalar,
        }))
    }
}

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Output {
    /// Which.
    pub column: ColumnId,
    /// Under which name.
    pub name: String,
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    /// Where the rows come from.
    pub rel: Rel,
    /// What is given of them.
    pub output: Vec<Output>,
}

/// A WITH query that is computed once.
#[derive(Debug)]
pub struct Common {
    /// Its name.
    pub name: String,
    /// What it is.
    pub query: Query,
    /// How often it is used: where that is once, it is part of the query that uses it.
    pub uses: AtomicU32,
}

/// INSERT
#[derive(Clone, Debug)]
pub struct Insert {
    /// Into which table.
    pub table: Arc<Table>,
    /// The rows.
    pub source: Query,
    /// For each column of the table: the source's column (cast already), or the default.
    pub values: Vec<InsertValue>,
    /// RETURNING, over [`Insert::row`].
    pub returning: Option<Vec<(Output, Scalar)>>,
    /// Numbers of the new row's columns, for `returning`, checks and so on.
    pub row: Vec<ColumnId>,
    /// CHECK constraints over `row`, by name.
    pub checks: Vec<(String, Scalar)>,
}

/// Where a column of a new row comes from.
#[derive(Clone, Debug)]
pub enum InsertValue {
    /// A column of the source.
    Source(ColumnId),
    /// The column's default, or NULL: over no columns.
    Default(Scalar),
}

/// UPDATE
#[derive(Clone, Debug)]
pub struct Update {
    /// Of which table.
    pub table: Arc<Table>,
    /// The table's columns as they are, in the table's order: those of the [`Rel::Table`] within `source`.
    pub old: Vec<ColumnId>,
    /// The table, joined with whatever FROM names, filtered by WHERE.
    pub source: Rel,
    /// All of WHERE, to be asked again of a row that changed meanwhile.
    pub recheck: Option<Scalar>,
    /// New values by position of the column in the table, over the source's columns. Several columns are assigned the parts of a row; NULL
    /// stands for a row of NULLs.
    pub assignments: Vec<(Vec<usize>, Scalar)>,
    /// Numbers of the new row's columns, for `returning` and `checks`.
    pub row: Vec<ColumnId>,
    /// RETURNING, over `row` and the source's other columns.
    pub returning: Option<Vec<(Output, Scalar)>>,
    /// CHECK constraints over `row`, by name.
    pub checks: Vec<(String, Scalar)>,
}

/// DELETE
#[derive(Clone, Debug)]
pub struct Delete {
    /// From which table.
    pub table: Arc<Table>,
    /// The table's columns, as in [`Update::old`].
    pub old: Vec<ColumnId>,
    /// The table, joined with whatever USING names, filtered by WHERE.
    pub source: Rel,
    /// All of WHERE, to be asked again of a row that changed meanwhile.
    pub recheck: Option<Scalar>,
    /// RETURNING, over `old` and the source's other columns.
    pub returning: Option<Vec<(Output, Scalar)>>,
}

/// A statement that has a plan.
#[derive(Clone, Debug)]
pub enum Planned {
    /// SELECT, VALUES, TABLE
    Query(Query),
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete(Delete),
}
