//! Ways to get at rows, with what they cost: the planner's candidates. They speak of columns by number and share their inputs; the chosen one is
//! made into a [`Plan`](crate::physical::Plan) by `build`.

use super::columns::ColumnSet;
use crate::catalog::Table;
use crate::functions::TableFunction;
use crate::logical::{
    AggregateCall, ColumnId, Common, JoinKind, LockStrength, LockWait, Recheck, Scalar, SetOperation, SortKey,
};
use crate::physical::Grouping;
use crate::system::SystemTable;
use std::rc::Rc;
use std::sync::Arc;

/// A table as it stands in a query.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) table: Arc<Table>,
    pub(super) alias: String,
    pub(super) columns: Vec<ColumnId>,
    /// Columns for the row's key and bytes, where the statement changes or locks the row.
    pub(super) identity: Option<(ColumnId, ColumnId)>,
}

/// A condition, and which columns it speaks of.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) scalar: Scalar,
    pub(super) columns: ColumnSet,
    /// What it costs to be asked of one row.
    pub(super) cost: f64,
}

impl Condition {
    pub(super) fn new(scalar: Scalar) -> Rc<Self> {
        let columns = super::columns::columns_of(&scalar);
        let cost = super::scalar::work(&scalar) * super::cost::OPERATION;
        Rc::new(Condition { scalar, columns, cost })
    }
}

/// Conditions that are shared between candidates.
pub(super) type Conditions = Vec<Rc<Condition>>;

/// By what rows are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderKey {
    pub(super) column: ColumnId,
    pub(super) descending: bool,
    /// Where NULLs stand; `None` where there are none.
    pub(super) nulls_first: Option<bool>,
}

/// A range of a key; see [`KeyRange`](crate::physical::KeyRange).
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub(super) equal: Vec<Scalar>,
    pub(super) lower: Option<(Vec<Scalar>, bool)>,
    pub(super) upper: Option<(Vec<Scalar>, bool)>,
    pub(super) is_null: bool,
    pub(super) not_null: bool,
    pub(super) like: Option<Scalar>,
}

impl Range {
    /// Whether it is no restriction at all.
    pub(super) fn is_all(&self) -> bool {
        self.equal.is_empty()
            && self.lower.is_none()
            && self.upper.is_none()
            && !self.is_null
            && !self.not_null
            && self.like.is_none()
    }
}

/// A candidate.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) node: PathNode,
    pub(super) rows: f64,
    pub(super) width: f64,
    pub(super) startup: f64,
    pub(super) total: f64,
    pub(super) order: Vec<OrderKey>,
}

/// A shared candidate.
pub(super) type PathRef = Rc<Path>;

/// How a table's row is found in a join by key.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    pub(super) leaf: Rc<Leaf>,
    /// `None`: the primary key.
    pub(super) index: Option<usize>,
    pub(super) index_only: bool,
    pub(super) keys: Vec<Scalar>,
    pub(super) filter: Conditions,
    pub(super) look_ahead: bool,
}

/// What a candidate does; see [`Node`](crate::physical::Node).
#[derive(Debug)]
pub(super) enum PathNode {
    Values {
        columns: Vec<ColumnId>,
        rows: Rc<Vec<Vec<Scalar>>>,
    },
    TableScan {
        leaf: Rc<Leaf>,
        range: Option<Range>,
        backward: bool,
        filter: Conditions,
    },
    IndexScan {
        leaf: Rc<Leaf>,
        index: usize,
        range: Range,
        backward: bool,
        index_only: bool,
        look_ahead: bool,
        filter: Conditions,
    },
    SystemScan {
        table: &'static SystemTable,
        alias: String,
        columns: Vec<ColumnId>,
        filter: Conditions,
    },
    FunctionScan {
        function: &'static TableFunction,
        arguments: Vec<Scalar>,
        columns: Vec<ColumnId>,
        ordinality: Option<ColumnId>,
    },
    /// The rows of a WITH query that is computed once.
    CommonScan {
        common: Arc<Common>,
        alias: String,
        columns: Vec<ColumnId>,
        input: PathRef,
    },
    Filter {
        input: PathRef,
        conditions: Conditions,
    },
    Project {
        input: PathRef,
        columns: Rc<Vec<(ColumnId, Scalar)>>,
    },
    IndexJoin {
        kind: JoinKind,
        outer: PathRef,
        lookup: Lookup,
        residual: Conditions,
    },
    HashJoin {
        kind: JoinKind,
        left: PathRef,
        right: PathRef,
        keys: Vec<(Scalar, Scalar)>,
        residual: Conditions,
    },
    NestedLoop {
        kind: JoinKind,
        left: PathRef,
        right: PathRef,
        condition: Conditions,
    },
    Aggregate {
        input: PathRef,
        grouping: Grouping,
        groups: Rc<Vec<(ColumnId, Scalar)>>,
        aggregates: Rc<Vec<(ColumnId, AggregateCall)>>,
    },
    Unique {
        input: PathRef,
        keys: Vec<Scalar>,
    },
    Sort {
        input: PathRef,
        keys: Rc<Vec<SortKey>>,
        presorted: usize,
        top: Option<(Scalar, Option<Scalar>)>,
    },
    Limit {
        input: PathRef,
        limit: Option<Scalar>,
        offset: Option<Scalar>,
    },
    Append {
        inputs: Vec<(PathRef, Vec<ColumnId>)>,
        columns: Vec<ColumnId>,
    },
    Set {
        operation: SetOperation,
        all: bool,
        left: (PathRef, Vec<ColumnId>),
        right: (PathRef, Vec<ColumnId>),
        columns: Vec<ColumnId>,
    },
    Lock {
        input: PathRef,
        targets: Vec<(Rc<Leaf>, LockStrength, LockWait)>,
        recheck: Recheck,
    },
}

/// Which orders the query around could use.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Of a sort.
    pub(super) sorts: Vec<Vec<OrderKey>>,
    /// Of groups: in any sequence and direction.
    pub(super) groups: Vec<Vec<ColumnId>>,
}

/// Cost differences below this part do not count: rounding must not decide.
const FUZZ: f64 = 1.000_000_1;

/// Candidates of one relation, at most.
const MAX_PATHS: usize = 8;

/// Whether there is a candidate already that is as good as one of these costs and order.
pub(super) fn beaten(paths: &[PathRef], startup: f64, total: f64, order: &[OrderKey]) -> bool {
    paths.iter().any(|other| {
        other.total <= total * FUZZ && other.startup <= startup * FUZZ && other.order.starts_with(order)
    })
}

/// Adds a candidate, unless another one is as good in every respect; drops those it beats.
pub(super) fn add(paths: &mut Vec<PathRef>, path: Path) {
    if beaten(paths, path.startup, path.total, &path.order) {
        return;
    }
    paths.retain(|other| {
        !(path.total <= other.total * FUZZ
            && path.startup <= other.startup * FUZZ
            && path.order.starts_with(&other.order))
    });
    paths.push(Rc::new(path));
    if paths.len() > MAX_PATHS
        && let Some(worst) = (0..paths.len()).max_by(|a, b| paths[*a].total.total_cmp(&paths[*b].total))
    {
        paths.swap_remove(worst);
    }
}

/// The candidate that is cheapest to run to its end.
pub(super) fn cheapest(paths: &[PathRef]) -> Option<&PathRef> {
    paths.iter().min_by(|a, b| a.total.total_cmp(&b.total))
}

/// The candidate that gives this many rows at least cost.
pub(super) fn cheapest_for(paths: &[PathRef], rows: f64) -> Option<&PathRef> {
    paths.iter().min_by(|a, b| a.cost_of(rows).total_cmp(&b.cost_of(rows)))
}

impl Path {
    /// The cost of its first rows.
    pub(super) fn cost_of(&self, rows: f64) -> f64 {
        let share = if self.rows <= 0.0 { 1.0 } else { (rows / self.rows).clamp(0.0, 1.0) };
        self.startup + (self.total - self.startup) * share
    }
}
