//! How a statement is run: the planner's result and the executor's input.
//!
//! # Invariants
//! 1. A plan is immutable and may be run by several sessions at once. What changes while it runs is in its operators. What operators of
//!    short statements keep of it stands behind an [`Arc`]: to begin a statement is to count it, not to copy it.
//! 2. Each [`Plan`] gives rows of `columns.len()` values. An [`Expr`] refers to values of the row it is given by position.
//! 3. Values that an inner plan takes from an outer one (correlated subqueries, lateral joins, nested loops with an inner
//!    index) pass through *slots*: the outer one fills them, the inner one is started anew and reads them with
//!    [`Expr::Slot`]. Slots are numbered through the whole statement.
//! 4. A row's identity, where a statement changes or locks the row, is two columns of type bytea: its key in the table's tree and
//!    the bytes of the row as they were seen (see [`Access::identity`]).

use crate::catalog::{Oid, Table};
use crate::functions::{Aggregate, Function, TableFunction};
use crate::logical::{Comparison, JoinKind, LockStrength, LockWait, SetOperation};
use crate::system::SystemTable;
use crate::types::{Modifier, Type, Value};
use std::sync::Arc;

/// A compiled expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A constant.
    Literal(Value),
    /// A value of the row.
    Column(usize),
    /// A parameter of the statement, from 0.
    Parameter(usize),
    /// A value from an outer plan.
    Slot(usize),
    /// A function.
    Call {
        /// Which.
        function: &'static Function,
        /// What it is called with.
        arguments: Vec<Expr>,
        /// Types of the arguments.
        types: Vec<Type>,
        /// Type of the result.
        ty: Type,
    },
    /// A conversion.
    Cast {
        /// What is converted.
        argument: Box<Expr>,
        /// From which type.
        from: Type,
        /// To which type.
        to: Type,
        /// With which modifier.
        modifier: Modifier,
        /// Written as CAST.
        explicit: bool,
    },
    /// AND
    And(Vec<Expr>),
    /// OR
    Or(Vec<Expr>),
    /// NOT
    Not(Box<Expr>),
    /// A comparison of values of one variant.
    Compare {
        /// How.
        op: Comparison,
        /// What.
        left: Box<Expr>,
        /// With what.
        right: Box<Expr>,
    },
    /// A comparison of rows.
    CompareRows {
        /// How.
        op: Comparison,
        /// What.
        left: Vec<Expr>,
        /// With what.
        right: Vec<Expr>,
    },
    /// IS NULL
    IsNull(Box<Expr>),
    /// IS TRUE or IS FALSE
    IsBool {
        /// What.
        argument: Box<Expr>,
        /// Compared with.
        value: bool,
    },
    /// An expression over a value that is computed once.
    Hold {
        /// What is computed first.
        value: Box<Expr>,
        /// The expression.
        body: Box<Expr>,
    },
    /// The value of the innermost [`Expr::Hold`] whose body this stands in.
    Held,
    /// CASE
    Case {
        /// Conditions and values.
        branches: Vec<(Expr, Expr)>,
        /// ELSE
        otherwise: Box<Expr>,
    },
    /// COALESCE
    Coalesce(Vec<Expr>),
    /// GREATEST or LEAST
    Extreme {
        /// The candidates.
        arguments: Vec<Expr>,
        /// GREATEST
        greatest: bool,
    },
    /// IN a list
    InList {
        /// What.
        argument: Box<Expr>,
        /// Among what.
        list: Vec<Expr>,
    },
    /// IN a list of constants: sorted, without NULL.
    InSet {
        /// What.
        argument: Box<Expr>,
        /// Among what.
        set: Arc<[Value]>,
        /// Whether the list had a NULL.
        null: bool,
    },
    /// ANY or ALL of an array
    Quantified {
        /// What.
        argument: Box<Expr>,
        /// How.
        op: Comparison,
        /// The array.
        array: Box<Expr>,
        /// ALL
        all: bool,
    },
    /// ARRAY[...]
    Array {
        /// The elements.
        elements: Vec<Expr>,
        /// Their type.
        element: Type,
    },
    /// `array[index]`
    Subscript {
        /// The array.
        array: Box<Expr>,
        /// The index.
        index: Box<Expr>,
    },
    /// ROW(...)
    Row {
        /// The fields.
        elements: Vec<Expr>,
        /// Their types.
        types: Arc<[Type]>,
    },
    /// A subquery.
    Subquery {
        /// Which of [`Statement::subplans`].
        subplan: usize,
        /// What the subplan takes from this row: slots and what to fill them with. None: it is run once at most, its result is kept.
        bind: Vec<(usize, Expr)>,
        /// What is made of its rows.
        kind: SubplanKind,
    },
}

/// What is made of a subquery's rows.
#[derive(Clone, Debug)]
pub enum SubplanKind {
    /// The one value of its one row.
    Scalar,
    /// Whether there is a row.
    Exists,
    /// ANY or ALL. Without `bind` and with = ANY the rows are kept in a hash table.
    Quantified {
        /// The left side.
        arguments: Vec<Expr>,
        /// How.
        op: Comparison,
        /// ALL
        all: bool,
    },
    /// ARRAY(SELECT ...) of elements of this type.
    Array(Type),
}

/// What the planner expects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Rows.
    pub rows: f64,
    /// Average bytes of a row.
    pub width: f64,
    /// Cost until the first row, in units of one page read in sequence, as in PostgreSQL.
    pub startup: f64,
    /// Cost until the last row.
    pub total: f64,
}

/// A column that a plan gives.
#[derive(Clone, Debug)]
pub struct PlanColumn {
    /// Its name, for EXPLAIN.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: Modifier,
}

/// A node of a plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of the node within the statement, for counters of EXPLAIN ANALYZE.
    pub id: usize,
    /// What it does.
    pub node: Node,
    /// What it gives.
    pub columns: Vec<PlanColumn>,
    /// What the planner expects.
    pub estimate: Estimate,
}

/// What is taken of a table's row.
#[derive(Clone, Debug)]
pub struct Access {
    /// The table.
    pub table: Arc<Table>,
    /// Its name in the query, for EXPLAIN.
    pub alias: String,
    /// Which columns are given, by position in the table.
    pub columns: Vec<usize>,
    /// Whether the row's identity is given behind the columns: key and row, two columns of type bytea.
    pub identity: bool,
    /// What is demanded of the row given (identity included in the positions).
    pub filter: Option<Expr>,
}

/// A range of an index, over its first columns. Expressions refer to no row: constants, parameters, slots.
/// An equality or bound that is NULL gives no row at all.
#[derive(Clone, Debug, Default)]
pub struct KeyRange {
    /// Values of the first columns.
    pub equal: Vec<Expr>,
    /// Lower bound of the next columns' *values*, one or more, compared as a row, and whether it is included. They go in one direction.
    pub lower: Option<(Vec<Expr>, bool)>,
    /// Upper bound of the next columns' values, as the lower one.
    pub upper: Option<(Vec<Expr>, bool)>,
    /// The next column IS NULL.
    pub is_null: bool,
    /// The next column IS NOT NULL. (Bounds imply it.)
    pub not_null: bool,
    /// The next column's value begins as whatever matches this pattern of LIKE does. Then it has no other bounds.
    pub like: Option<Expr>,
}

/// A compiled sort key.
#[derive(Clone, Debug)]
pub struct OrderBy {
    /// By what.
    pub expr: Expr,
    /// Largest first.
    pub descending: bool,
    /// NULLs first.
    pub nulls_first: bool,
}

/// A compiled call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateExpr {
    /// Which.
    pub aggregate: &'static Aggregate,
    /// Of what.
    pub arguments: Vec<Expr>,
    /// Types of the arguments.
    pub types: Vec<Type>,
    /// DISTINCT
    pub distinct: bool,
    /// FILTER
    pub filter: Option<Expr>,
    /// ORDER BY
    pub order: Vec<OrderBy>,
}

/// How groups are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouping {
    /// All rows are one group.
    Single,
    /// By a hash table, spilling where memory ends.
    Hash,
    /// The input comes in order of the groups.
    Sorted,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Node {
    /// One row without columns.
    One,
    /// Rows of expressions.
    Values(Arc<[Vec<Expr>]>),
    /// Rows of a table in the order of its key: all, or a range of the primary key.
    TableScan {
        /// What is taken of them.
        access: Arc<Access>,
        /// Which; `None`: all.
        range: Option<Arc<KeyRange>>,
        /// From the end.
        backward: bool,
    },
    /// Rows of a table in the order of an index.
    IndexScan {
        /// What is taken of them.
        access: Arc<Access>,
        /// Which index, by position in the table; not the primary one.
        index: usize,
        /// Which entries.
        range: Arc<KeyRange>,
        /// From the end.
        backward: bool,
        /// The index has all that is taken: the table is not visited.
        index_only: bool,
        /// Rows of the table are fetched in deep batches ahead of their turn.
        look_ahead: bool,
    },
    /// A table of the system.
    SystemScan {
        /// Which.
        table: &'static SystemTable,
        /// Its name in the query.
        alias: String,
        /// Which columns.
        columns: Vec<usize>,
        /// What is demanded of a row.
        filter: Option<Expr>,
    },
    /// The rows of a subplan that is run once, and whose rows are kept: a WITH query.
    CommonScan {
        /// Which of [`Statement::subplans`].
        subplan: usize,
        /// Its name.
        name: String,
        /// The name of this use in the query.
        alias: String,
    },
    /// A function that gives rows.
    FunctionScan {
        /// Which.
        function: &'static TableFunction,
        /// What it is called with.
        arguments: Vec<Expr>,
        /// Types of the arguments.
        types: Vec<Type>,
        /// One more column counts the rows.
        ordinality: bool,
    },
    /// Rows that fulfil a condition.
    Filter {
        /// Of what.
        input: Box<Plan>,
        /// The condition.
        predicate: Expr,
    },
    /// Computed columns.
    Project {
        /// Of what.
        input: Box<Plan>,
        /// The columns.
        exprs: Vec<Expr>,
    },
    /// For each outer row, rows of a table found by key: gives outer columns, then those of `access`. Semi and Anti give outer columns only.
    /// Keys of many outer rows are looked up as one deep batch.
    IndexJoin {
        /// Inner, Left, Semi, Anti.
        kind: JoinKind,
        /// The outer side.
        outer: Box<Plan>,
        /// The inner side. Its filter is part of the join's condition.
        access: Arc<Access>,
        /// Which index; `None`: the primary key.
        index: Option<usize>,
        /// The index has all that is taken.
        index_only: bool,
        /// Values of the index's first columns, over the outer row. NULL matches nothing.
        keys: Vec<Expr>,
        /// The rest of the condition, over outer and inner columns.
        residual: Option<Expr>,
        /// Rows are fetched in deep batches ahead of their turn.
        look_ahead: bool,
    },
    /// Join by a hash table of the right side. Gives left columns, then right ones (Semi and Anti: left ones only).
    HashJoin {
        /// Any kind.
        kind: JoinKind,
        /// The side that is looked up.
        left: Box<Plan>,
        /// The side that is kept.
        right: Box<Plan>,
        /// Join keys over the left row.
        left_keys: Vec<Expr>,
        /// Join keys over the right row.
        right_keys: Vec<Expr>,
        /// The rest of the condition, over both.
        residual: Option<Expr>,
    },
    /// Join of all with all.
    NestedLoop {
        /// Any kind; Full only without `bind`.
        kind: JoinKind,
        /// The outer side.
        left: Box<Plan>,
        /// The inner side: kept in memory (or spilled), unless `bind` makes it depend on the outer row.
        right: Box<Plan>,
        /// What the inner side takes from the outer row.
        bind: Vec<(usize, Expr)>,
        /// The condition, over both.
        condition: Option<Expr>,
    },
    /// Groups and aggregates: gives the groups, then the aggregates.
    Aggregate {
        /// Of what.
        input: Box<Plan>,
        /// How.
        grouping: Grouping,
        /// The groups.
        groups: Vec<Expr>,
        /// The aggregates.
        aggregates: Vec<AggregateExpr>,
    },
    /// Of rows that agree in `keys`, and stand together, the first.
    Unique {
        /// Of what.
        input: Box<Plan>,
        /// Agreeing in what; none: all columns.
        keys: Vec<Expr>,
    },
    /// Sorted rows.
    Sort {
        /// Of what.
        input: Box<Plan>,
        /// By what.
        keys: Vec<OrderBy>,
        /// The input comes sorted by this many of the keys.
        presorted: usize,
        /// Only the first rows are wanted: LIMIT and OFFSET together, where they are known to be small.
        top: Option<Expr>,
    },
    /// LIMIT and OFFSET
    Limit {
        /// Of what.
        input: Box<Plan>,
        /// At most.
        limit: Option<Expr>,
        /// After.
        offset: Option<Expr>,
    },
    /// One after the other: UNION ALL.
    Append(Vec<Plan>),
    /// UNION, EXCEPT, INTERSECT, by a hash table.
    Set {
        /// Which.
        operation: SetOperation,
        /// ALL
        all: bool,
        /// The left side.
        left: Box<Plan>,
        /// The right side.
        right: Box<Plan>,
    },
    /// Locks rows that pass. A row that changed meanwhile is read anew and looked at again.
    LockRows {
        /// Of what.
        input: Box<Plan>,
        /// The tables.
        targets: Arc<[LockTarget]>,
        /// How it is looked at again, over the input's row.
        recheck: Arc<Recheck>,
    },
    /// INSERT. Gives the columns of RETURNING, or no rows.
    Insert {
        /// The rows.
        input: Box<Plan>,
        /// What becomes of them.
        insert: Arc<Insert>,
    },
    /// UPDATE. Gives the columns of RETURNING, or no rows.
    Update {
        /// The rows to be changed.
        input: Box<Plan>,
        /// How.
        update: Arc<Update>,
    },
    /// DELETE. Gives the columns of RETURNING, or no rows.
    Delete {
        /// The rows to be removed.
        input: Box<Plan>,
        /// How.
        delete: Arc<Delete>,
    },
}

/// What an INSERT makes of the rows of its input.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The table.
    pub table: Arc<Table>,
    /// The new row's columns in the table's order, over the input's row.
    pub values: Vec<Expr>,
    /// CHECK constraints in the order of their names, over the new row.
    pub checks: Checks,
    /// RETURNING, over the new row.
    pub returning: Option<Vec<Expr>>,
}

/// How an UPDATE changes rows.
#[derive(Clone, Debug)]
pub struct Update {
    /// Which columns of the input are the row.
    pub target: Target,
    /// The statement's whole condition, over the input's row.
    pub recheck: Option<Expr>,
    /// New values by position of the column in the table, over the input's row; those of several columns are the parts of a row.
    pub assignments: Vec<(Vec<usize>, Expr)>,
    /// CHECK constraints in the order of their names, over the new row.
    pub checks: Checks,
    /// RETURNING, over the new row (in the table's order) followed by the input's row.
    pub returning: Option<Vec<Expr>>,
}

/// How a DELETE removes rows.
#[derive(Clone, Debug)]
pub struct Delete {
    /// Which columns of the input are the row.
    pub target: Target,
    /// The statement's whole condition, over the input's row.
    pub recheck: Option<Expr>,
    /// RETURNING, over the input's row.
    pub returning: Option<Vec<Expr>>,
}

/// CHECK constraints by name, in the order in which they are looked at.
pub type Checks = Arc<[(String, Expr)]>;

/// Where a table's row stands in a row of the input.
#[derive(Clone, Debug)]
pub struct Target {
    /// The table.
    pub table: Arc<Table>,
    /// Positions of the table's columns in the input: `(position in the table, position in the input)`, of those the input has. An
    /// UPDATE's input has all of them.
    pub columns: Vec<(usize, usize)>,
    /// Position of the row's key; the row's bytes stand right behind it.
    pub identity: usize,
}

/// Rows to be locked.
#[derive(Clone, Debug)]
pub struct LockTarget {
    /// Which.
    pub target: Target,
    /// How.
    pub strength: LockStrength,
    /// Whether to wait.
    pub wait: LockWait,
}

/// How a row that changed meanwhile is looked at again: see [`crate::logical::Recheck`].
#[derive(Clone, Debug, Default)]
pub struct Recheck {
    /// What must be as it was.
    pub fixed: Vec<Expr>,
    /// What comes then, in this order.
    pub steps: Vec<RecheckStep>,
}

/// A step of a [`Recheck`].
#[derive(Clone, Debug)]
pub enum RecheckStep {
    /// The row passes only if this is true.
    Holds(Expr),
    /// Unless `on` is true, the columns become NULL.
    Joins {
        /// The condition.
        on: Expr,
        /// Positions in the row.
        columns: Vec<usize>,
    },
}

impl Recheck {
    /// All its expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.fixed.iter().chain(self.steps.iter().map(|step| match step {
            RecheckStep::Holds(expr) | RecheckStep::Joins { on: expr, .. } => expr,
        }))
    }
}

/// A planned statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The plan.
    pub root: Plan,
    /// Plans of subqueries, see [`Expr::Subquery`], and of WITH queries that are computed once, see [`Node::CommonScan`].
    pub subplans: Vec<Plan>,
    /// How many slots there are.
    pub slots: usize,
    /// How many nodes there are, subplans included.
    pub nodes: usize,
    /// What the client is given, one for each of the root's first columns; empty where it gets no rows.
    pub output: Vec<PlanOutput>,
    /// Whether it changes or locks rows, and so needs a transaction number.
    pub writes: bool,
    /// Tables whose rows it changes: they are held against changes of their definition.
    pub targets: Vec<Oid>,
    /// Tables whose rows it locks: they are held as well, as what it waits for may be a row of another definition.
    pub locked: Vec<Oid>,
}

/// A column that the client gets.
#[derive(Clone, Debug)]
pub struct PlanOutput {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: Modifier,
    /// The table's column it is.
    pub origin: Option<(Oid, u16)>,
}

/// The parts of a node's plans that are plans themselves, in the order EXPLAIN shows them.
pub fn children(plan: &Plan) -> Vec<&Plan> {
    match &plan.node {
        Node::One
        | Node::Values(_)
        | Node::TableScan { .. }
        | Node::IndexScan { .. }
        | Node::SystemScan { .. }
        | Node::CommonScan { .. }
        | Node::FunctionScan { .. } => Vec::new(),
        Node::Filter { input, .. }
        | Node::Project { input, .. }
        | Node::Aggregate { input, .. }
        | Node::Unique { input, .. }
        | Node::Sort { input, .. }
        | Node::Limit { input, .. }
        | Node::LockRows { input, .. }
        | Node::Insert { input, .. }
        | Node::Update { input, .. }
        | Node::Delete { input, .. } => vec![input],
        Node::IndexJoin { outer, .. } => vec![outer],
        Node::HashJoin { left, right, .. }
        | Node::NestedLoop { left, right, .. }
        | Node::Set { left, right, .. } => vec![left, right],
        Node::Append(inputs) => inputs.iter().collect(),
    }
}
