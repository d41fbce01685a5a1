//! The chosen candidate made into a plan: columns become positions, nodes and slots get their numbers.
//!
//! A node is asked for columns and gives at least those, in whatever order suits it; who needs an exact order asks [`Builder::exact`]. What is
//! not in the row an expression is computed over comes from outside, through a slot: of the row that a subquery is part of, or the
//! left row of a nested loop. [`Frame`]s are these rows, the innermost last.

use super::Planner;
use super::columns::{ColumnSet, add_columns, is_closed};
use super::compile::{Resolve, compile, compile_all};
use super::path::{Conditions, Leaf, Lookup, Path, PathNode, PathRef, Range, Wanted, cheapest, cheapest_for};
use crate::catalog::Oid;
use crate::logical;
use crate::logical::walk::call_scalars;
use crate::logical::{
    AggregateCall, ColumnId, Columns, Common, Comparison, JoinKind, LockStrength, LockWait, Scalar, SortKey,
    Subquery, SubqueryKind, is_volatile, type_of,
};
use crate::physical::{
    Access, AggregateExpr, Estimate, Expr, Grouping, KeyRange, LockTarget, Node, OrderBy, Plan, PlanColumn,
    Recheck, RecheckStep, SubplanKind, Target,
};
use crate::types::Value;
use crate::{Error, Result};
use std::sync::Arc;

/// A row outside of what is being built.
struct Frame {
    /// The row of a query with a subquery: whatever the subquery takes passes through its own slots, so that it is known when it has to be
    /// run again. Otherwise the left row of a nested loop.
    query: bool,
    row: Vec<ColumnId>,
    bind: Vec<(ColumnId, usize, Expr)>,
}

/// See the module.
pub(super) struct Builder<'p, 'a> {
    pub(super) planner: &'p mut Planner<'a>,
    pub(super) subplans: Vec<Plan>,
    pub(super) slots: usize,
    pub(super) nodes: usize,
    /// Tables of which rows are locked, each once.
    pub(super) locked: Vec<Oid>,
    frames: Vec<Frame>,
    /// WITH queries that are computed once, and the subplans that they are.
    commons: Vec<(Arc<Common>, usize)>,
    /// Subqueries that take nothing from outside, by what they give, and the subplans that they are.
    independent: Vec<(Given, usize)>,
}

/// What a subquery gives, which tells it from all others but its copies: the columns are its own.
#[derive(PartialEq)]
struct Given {
    columns: Vec<ColumnId>,
    kind: std::mem::Discriminant<SubqueryKind>,
    compared: Option<(Comparison, bool)>,
}

impl Given {
    /// `None` where there is nothing to tell it by, or it takes something from outside.
    fn by(subquery: &Subquery) -> Option<Self> {
        let compared = match &subquery.kind {
            SubqueryKind::Quantified { op, all, .. } => Some((*op, *all)),
            _ => None,
        };
        let columns: Vec<ColumnId> = subquery.query.output.iter().map(|output| output.column).collect();
        let kind = std::mem::discriminant(&subquery.kind);
        (!columns.is_empty() && is_closed(&subquery.query)).then_some(Given { columns, kind, compared })
    }
}

/// A plan, and which column stands where in its rows.
pub(super) type Built = (Plan, Vec<ColumnId>);

impl Resolve for Builder<'_, '_> {
    fn columns(&self) -> &Columns {
        &self.planner.columns
    }

    fn column(&mut self, id: ColumnId, _: &[ColumnId]) -> Result<Expr> {
        match self.outer(id, self.frames.len()) {
            Some(expr) => Ok(expr),
            None => {
                let name = &self.planner.columns.get(id).name;
                Err(Error::internal(format_args!("column \"{name}\" ({}) is not in the plan's row", id.0)))
            }
        }
    }

    fn subquery(&mut self, subquery: &Subquery, row: &[ColumnId]) -> Result<Expr> {
        let given = Given::by(subquery);
        let (subplan, bind) = match self.independent.iter().find(|(known, _)| Some(known) == given.as_ref()) {
            // A condition that is asked again of a changed row has the value that it had: a volatile subquery would have another one.
            Some((_, subplan)) => (*subplan, Vec::new()),
            None => self.subplan(subquery, row)?,
        };
        self.independent.extend(given.map(|given| (given, subplan)));
        let kind = match &subquery.kind {
            SubqueryKind::Scalar => SubplanKind::Scalar,
            SubqueryKind::Exists => SubplanKind::Exists,
            SubqueryKind::Array(ty) => SubplanKind::Array(
                ty.element().ok_or_else(|| Error::internal("an array of no elements' type"))?,
            ),
            SubqueryKind::Quantified { arguments, op, all } => {
                SubplanKind::Quantified { arguments: compile_all(arguments, row, self)?, op: *op, all: *all }
            }
        };
        Ok(Expr::Subquery { subplan, bind, kind })
    }
}

impl<'p, 'a> Builder<'p, 'a> {
    /// Plans a subquery over a row: gives its number, and what it takes from outside.
    fn subplan(&mut self, subquery: &Subquery, row: &[ColumnId]) -> Result<(usize, Vec<(usize, Expr)>)> {
        let rel = &subquery.query.rel;
        let outputs: Vec<ColumnId> = match subquery.kind {
            SubqueryKind::Exists => Vec::new(),
            _ => subquery.query.output.iter().map(|output| output.column).collect(),
        };
        // A copy of the subquery may be planned later, of which nothing is known then.
        let known = self.planner.known.clone();
        let paths = self.planner.paths(rel, &Wanted::default())?;
        self.planner.known = known;
        let path = match subquery.kind {
            SubqueryKind::Exists => cheapest_for(&paths, 1.0),
            _ => cheapest(&paths),
        };
        let path = path.ok_or_else(|| Error::internal("no plan"))?.clone();
        self.frames.push(Frame { query: true, row: row.to_vec(), bind: Vec::new() });
        let plan = match subquery.kind {
            SubqueryKind::Exists => self.build(&path, &ColumnSet::new(), &[])?.0,
            _ => self.exact(&path, &outputs)?,
        };
        let bind = self.pop_frame();
        self.subplans.push(plan);
        Ok((self.subplans.len() - 1, bind))
    }

    pub(super) fn new(planner: &'p mut Planner<'a>) -> Self {
        Builder {
            planner,
            subplans: Vec::new(),
            slots: 0,
            nodes: 0,
            locked: Vec::new(),
            frames: Vec::new(),
            commons: Vec::new(),
            independent: Vec::new(),
        }
    }

    /// A column of one of the `depth` outermost frames.
    fn outer(&mut self, id: ColumnId, depth: usize) -> Option<Expr> {
        let at = depth.checked_sub(1)?;
        let frame = &self.frames[at];
        if let Some((_, slot, _)) = frame.bind.iter().find(|(column, _, _)| *column == id) {
            return Some(Expr::Slot(*slot));
        }
        let value = match frame.row.iter().position(|column| *column == id) {
            Some(position) => Expr::Column(position),
            None if frame.query => self.outer(id, at)?,
            None => return self.outer(id, at),
        };
        let slot = self.slots;
        self.slots += 1;
        self.frames[at].bind.push((id, slot, value));
        Some(Expr::Slot(slot))
    }

    fn pop_frame(&mut self) -> Vec<(usize, Expr)> {
        self.frames
            .pop()
            .map(|frame| frame.bind)
            .unwrap_or_default()
            .into_iter()
            .map(|(_, slot, expr)| (slot, expr))
            .collect()
    }

    /// A compiled expression over a row.
    pub(super) fn compile(&mut self, scalar: &Scalar, row: &[ColumnId]) -> Result<Expr> {
        compile(scalar, row, self)
    }

    fn conditions(&mut self, conditions: &Conditions, row: &[ColumnId]) -> Result<Option<Expr>> {
        // Cheap ones first.
        let mut sorted: Vec<&Scalar> = conditions.iter().map(|condition| &condition.scalar).collect();
        if sorted.iter().any(|scalar| super::scalar::has_subquery(scalar)) {
            sorted.sort_by_key(|scalar| super::scalar::has_subquery(scalar));
        }
        Ok(match sorted.as_slice() {
            [] => None,
            [one] => Some(self.compile(one, row)?),
            many => {
                let list = many.iter().map(|scalar| self.compile(scalar, row)).collect::<Result<_>>()?;
                Some(Expr::And(list))
            }
        })
    }

    /// A node over a row of these columns.
    pub(super) fn plan(&mut self, id: usize, node: Node, row: &[ColumnId], estimate: Estimate) -> Plan {
        let columns = row
            .iter()
            .map(|column| {
                let info = self.planner.columns.get(*column);
                PlanColumn { name: self.planner.display_name(*column), ty: info.ty, modifier: info.modifier }
            })
            .collect();
        Plan { id, node, columns, estimate }
    }

    /// The number of the next node.
    pub(super) fn number(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Builds a candidate whose rows are exactly these columns.
    pub(super) fn exact(&mut self, path: &Path, columns: &[ColumnId]) -> Result<Plan> {
        let required = columns.iter().copied().collect();
        let (plan, row) = self.build(path, &required, columns)?;
        if row == columns {
            return Ok(plan);
        }
        self.projected(plan, &row, columns)
    }

    /// Builds a candidate whose rows begin with these columns.
    pub(super) fn prefixed(&mut self, path: &Path, columns: &[ColumnId]) -> Result<Plan> {
        let required = columns.iter().copied().collect();
        let (plan, row) = self.build(path, &required, columns)?;
        if row.starts_with(columns) {
            return Ok(plan);
        }
        self.projected(plan, &row, columns)
    }

    fn projected(&mut self, input: Plan, row: &[ColumnId], columns: &[ColumnId]) -> Result<Plan> {
        let exprs = columns
            .iter()
            .map(|column| self.compile(&Scalar::Column(*column), row))
            .collect::<Result<_>>()?;
        let estimate = input.estimate;
        let id = self.number();
        Ok(self.plan(id, Node::Project { input: Box::new(input), exprs }, columns, estimate))
    }

    /// Builds a candidate that gives at least `required`; `first`: columns that are best given first, in this order.
    pub(super) fn build(&mut self, path: &Path, required: &ColumnSet, first: &[ColumnId]) -> Result<Built> {
        let id = self.number();
        let estimate =
            Estimate { rows: path.rows, width: path.width, startup: path.startup, total: path.total };
        let (node, row) = match &path.node {
            PathNode::Values { .. }
            | PathNode::TableScan { .. }
            | PathNode::IndexScan { .. }
            | PathNode::SystemScan { .. }
            | PathNode::FunctionScan { .. } => self.source(path, required, first)?,
            PathNode::CommonScan { common, alias, columns, input } => {
                (self.common(common, alias, input)?, columns.clone())
            }
            PathNode::Filter { input, conditions } => {
                let mut wanted = required.clone();
                conditions.iter().for_each(|condition| wanted.add(&condition.columns));
                let (input, row) = self.build(input, &wanted, first)?;
                match self.conditions(conditions, &row)? {
                    Some(predicate) => (Node::Filter { input: Box::new(input), predicate }, row),
                    None => return Ok((input, row)),
                }
            }
            PathNode::Project { input, columns } => {
                return self.project(id, estimate, input, columns, required, first);
            }
            PathNode::IndexJoin { .. } | PathNode::HashJoin { .. } | PathNode::NestedLoop { .. } => {
                self.join(path, required)?
            }
            PathNode::Aggregate { input, grouping, groups, aggregates } => {
                self.groups(input, *grouping, groups, aggregates)?
            }
            PathNode::Unique { input, keys } => {
                let mut wanted = required.clone();
                keys.iter().for_each(|scalar| add_columns(scalar, &mut wanted));
                let (input, row) = self.build(input, &wanted, first)?;
                let keys = compile_all(keys, &row, self)?;
                (Node::Unique { input: Box::new(input), keys }, row)
            }
            PathNode::Sort { input, keys, presorted, top } => {
                let mut wanted = required.clone();
                keys.iter().for_each(|key| add_columns(&key.scalar, &mut wanted));
                let (input, row) = self.build(input, &wanted, first)?;
                let keys = self.order(keys, &row)?;
                let top = match top {
                    Some((limit, offset)) => self.top(limit, offset.as_ref())?,
                    None => None,
                };
                (Node::Sort { input: Box::new(input), keys, presorted: *presorted, top }, row)
            }
            PathNode::Limit { input, limit, offset } => {
                let (input, row) = self.build(input, required, first)?;
                let limit = limit.as_ref().map(|scalar| self.compile(scalar, &[])).transpose()?;
                let offset = offset.as_ref().map(|scalar| self.compile(scalar, &[])).transpose()?;
                (Node::Limit { input: Box::new(input), limit, offset }, row)
            }
            PathNode::Append { inputs, columns } => {
                let inputs =
                    inputs.iter().map(|(path, columns)| self.exact(path, columns)).collect::<Result<_>>()?;
                (Node::Append(inputs), columns.clone())
            }
            PathNode::Set { operation, all, left, right, columns } => {
                let left = Box::new(self.exact(&left.0, &left.1)?);
                let right = Box::new(self.exact(&right.0, &right.1)?);
                (Node::Set { operation: *operation, all: *all, left, right }, columns.clone())
            }
            PathNode::Lock { input, targets, recheck } => {
                self.lock(input, targets, recheck, required, first)?
            }
        };
        Ok((self.plan(id, node, &row, estimate), row))
    }

    /// A use of a WITH query that is computed once: a subplan, whose rows all uses read.
    fn common(&mut self, common: &Arc<Common>, alias: &str, input: &Path) -> Result<Node> {
        let known = self.commons.iter().find(|(known, _)| Arc::ptr_eq(known, common));
        let subplan = match known {
            Some((_, subplan)) => *subplan,
            None => {
                let outputs: Vec<ColumnId> = common.query.output.iter().map(|output| output.column).collect();
                let plan = self.exact(input, &outputs)?;
                self.subplans.push(plan);
                self.commons.push((Arc::clone(common), self.subplans.len() - 1));
                self.subplans.len() - 1
            }
        };
        Ok(Node::CommonScan { subplan, name: common.name.clone(), alias: alias.to_owned() })
    }

    /// What rows come from.
    fn source(
        &mut self,
        path: &Path,
        required: &ColumnSet,
        first: &[ColumnId],
    ) -> Result<(Node, Vec<ColumnId>)> {
        Ok(match &path.node {
            PathNode::Values { columns, rows } => self.values(columns, rows)?,
            PathNode::TableScan { leaf, range, backward, filter } => {
                let (access, row) = self.access(leaf, required, filter, first)?;
                let range = range.as_ref().map(|range| self.range(range)).transpose()?.map(Arc::new);
                (Node::TableScan { access: Arc::new(access), range, backward: *backward }, row)
            }
            PathNode::IndexScan { leaf, index, range, backward, index_only, look_ahead, filter } => {
                let (access, row) = self.access(leaf, required, filter, first)?;
                let (access, range) = (Arc::new(access), Arc::new(self.range(range)?));
                let (index, backward) = (*index, *backward);
                let (index_only, look_ahead) = (*index_only, *look_ahead);
                (Node::IndexScan { access, index, range, backward, index_only, look_ahead }, row)
            }
            PathNode::SystemScan { table, alias, columns, filter } => {
                let mut wanted = required.clone();
                filter.iter().for_each(|condition| wanted.add(&condition.columns));
                let positions: Vec<usize> =
                    (0..columns.len()).filter(|position| wanted.contains(columns[*position])).collect();
                let row: Vec<ColumnId> = positions.iter().map(|position| columns[*position]).collect();
                let filter = self.conditions(filter, &row)?;
                (Node::SystemScan { table, alias: alias.clone(), columns: positions, filter }, row)
            }
            PathNode::FunctionScan { function, arguments, columns, ordinality } => {
                let types = arguments.iter().map(|part| type_of(part, &self.planner.columns)).collect();
                let arguments = compile_all(arguments, &[], self)?;
                let row: Vec<ColumnId> = columns.iter().chain(ordinality).copied().collect();
                (Node::FunctionScan { function, arguments, types, ordinality: ordinality.is_some() }, row)
            }
            _ => return Err(Error::internal("a source of rows that is none")),
        })
    }

    fn join(&mut self, path: &Path, required: &ColumnSet) -> Result<(Node, Vec<ColumnId>)> {
        match &path.node {
            PathNode::IndexJoin { kind, outer, lookup, residual } => {
                self.index_join(*kind, outer, lookup, residual, required)
            }
            PathNode::HashJoin { kind, left, right, keys, residual } => {
                self.hash_join(*kind, (left, right), keys, residual, required)
            }
            PathNode::NestedLoop { kind, left, right, condition } => {
                self.nested_loop(*kind, (left, right), condition, required)
            }
            _ => Err(Error::internal("a join that is none")),
        }
    }

    fn groups(
        &mut self,
        input: &PathRef,
        grouping: Grouping,
        groups: &[(ColumnId, Scalar)],
        aggregates: &[(ColumnId, AggregateCall)],
    ) -> Result<(Node, Vec<ColumnId>)> {
        let mut wanted = ColumnSet::new();
        groups.iter().for_each(|(_, scalar)| add_columns(scalar, &mut wanted));
        aggregates
            .iter()
            .for_each(|(_, call)| call_scalars(call, &mut |scalar| add_columns(scalar, &mut wanted)));
        let (input, below) = self.build(input, &wanted, &[])?;
        let mut row: Vec<ColumnId> = groups.iter().map(|(id, _)| *id).collect();
        row.extend(aggregates.iter().map(|(id, _)| *id));
        let groups = groups.iter().map(|(_, scalar)| self.compile(scalar, &below)).collect::<Result<_>>()?;
        let aggregates =
            aggregates.iter().map(|(_, call)| self.aggregate(call, &below)).collect::<Result<_>>()?;
        Ok((Node::Aggregate { input: Box::new(input), grouping, groups, aggregates }, row))
    }

    fn values(&mut self, columns: &[ColumnId], rows: &[Vec<Scalar>]) -> Result<(Node, Vec<ColumnId>)> {
        if columns.is_empty() && rows.len() == 1 {
            return Ok((Node::One, Vec::new()));
        }
        let rows = rows.iter().map(|row| compile_all(row, &[], self)).collect::<Result<_>>()?;
        Ok((Node::Values(rows), columns.to_vec()))
    }

    fn access(
        &mut self,
        leaf: &Leaf,
        required: &ColumnSet,
        filter: &Conditions,
        first: &[ColumnId],
    ) -> Result<(Access, Vec<ColumnId>)> {
        let mut wanted = required.clone();
        filter.iter().for_each(|condition| wanted.add(&condition.columns));
        let mut columns = Vec::new();
        let mut row: Vec<ColumnId> = Vec::new();
        for id in first {
            if let Some(position) = leaf.columns.iter().position(|column| column == id)
                && !row.contains(id)
            {
                columns.push(position);
                row.push(*id);
            }
        }
        let given = row.len();
        for (position, id) in leaf.columns.iter().enumerate() {
            if wanted.contains(*id) && !row[..given].contains(id) {
                columns.push(position);
                row.push(*id);
            }
        }
        let mut identity = false;
        if let Some((key, bytes)) = leaf.identity
            && (required.contains(key) || required.contains(bytes))
        {
            identity = true;
            row.extend([key, bytes]);
        }
        let filter = self.conditions(filter, &row)?;
        let access =
            Access { table: leaf.table.clone(), alias: leaf.alias.clone(), columns, identity, filter };
        Ok((access, row))
    }

    fn range(&mut self, range: &Range) -> Result<KeyRange> {
        let mut bound = |bound: &Option<(Vec<Scalar>, bool)>| -> Result<Option<(Vec<Expr>, bool)>> {
            let compile =
                |(scalars, included): &(Vec<Scalar>, bool)| Ok((compile_all(scalars, &[], self)?, *included));
            bound.as_ref().map(compile).transpose()
        };
        let (lower, upper) = (bound(&range.lower)?, bound(&range.upper)?);
        let like = range.like.as_ref().map(|pattern| self.compile(pattern, &[])).transpose()?;
        Ok(KeyRange {
            equal: compile_all(&range.equal, &[], self)?,
            lower,
            upper,
            is_null: range.is_null,
            not_null: range.not_null,
            like,
        })
    }

    fn order(&mut self, keys: &[SortKey], row: &[ColumnId]) -> Result<Vec<OrderBy>> {
        keys.iter()
            .map(|key| {
                Ok(OrderBy {
                    expr: self.compile(&key.scalar, row)?,
                    descending: key.descending,
                    nulls_first: key.nulls_first,
                })
            })
            .collect()
    }

    /// LIMIT and OFFSET together.
    fn top(&mut self, limit: &Scalar, offset: Option<&Scalar>) -> Result<Option<Expr>> {
        let limit = self.compile(limit, &[])?;
        let offset = offset.map(|scalar| self.compile(scalar, &[])).transpose()?;
        Ok(match (limit, offset) {
            (Expr::Literal(Value::Null), _) => None,
            (limit, None | Some(Expr::Literal(Value::Null))) => Some(limit),
            (Expr::Literal(Value::Int(limit)), Some(Expr::Literal(Value::Int(offset)))) => {
                Some(Expr::Literal(Value::Int(limit.max(0).saturating_add(offset.max(0)))))
            }
            _ => None,
        })
    }

    fn aggregate(&mut self, call: &AggregateCall, row: &[ColumnId]) -> Result<AggregateExpr> {
        Ok(AggregateExpr {
            aggregate: call.aggregate,
            types: call.arguments.iter().map(|part| type_of(part, &self.planner.columns)).collect(),
            arguments: compile_all(&call.arguments, row, self)?,
            distinct: call.distinct,
            filter: call.filter.as_ref().map(|scalar| self.compile(scalar, row)).transpose()?,
            order: self.order(&call.order, row)?,
        })
    }

    fn project(
        &mut self,
        id: usize,
        estimate: Estimate,
        input: &PathRef,
        columns: &[(ColumnId, Scalar)],
        required: &ColumnSet,
        first: &[ColumnId],
    ) -> Result<Built> {
        let kept: Vec<&(ColumnId, Scalar)> =
            columns.iter().filter(|(id, scalar)| required.contains(*id) || is_volatile(scalar)).collect();
        // Identities of rows pass through.
        let mut wanted = required.clone();
        columns.iter().for_each(|(id, _)| wanted.remove(*id));
        let passed: Vec<ColumnId> = wanted.iter().filter(|id| self.planner.is_identity(*id)).collect();
        let mut wanted: ColumnSet = passed.iter().copied().collect();
        kept.iter().for_each(|(_, scalar)| add_columns(scalar, &mut wanted));
        let definition = |id: &ColumnId| {
            kept.iter().find(|(column, _)| column == id).and_then(|(_, scalar)| match scalar {
                Scalar::Column(other) => Some(*other),
                _ => None,
            })
        };
        let below_first: Vec<ColumnId> = first.iter().map_while(definition).collect();
        let (input, below) = self.build(input, &wanted, &below_first)?;
        if let Some(row) = renamed(&below, &kept, &passed) {
            return Ok((input, row));
        }
        let mut ordered = kept;
        ordered.sort_by_key(|(id, _)| first.iter().position(|other| other == id).unwrap_or(usize::MAX));
        let mut exprs = Vec::with_capacity(ordered.len());
        let mut row = Vec::with_capacity(ordered.len());
        for (column, scalar) in ordered {
            exprs.push(self.compile(scalar, &below)?);
            row.push(*column);
        }
        for column in below.iter().filter(|column| passed.contains(column)) {
            exprs.push(self.compile(&Scalar::Column(*column), &below)?);
            row.push(*column);
        }
        let node = Node::Project { input: Box::new(input), exprs };
        Ok((self.plan(id, node, &row, estimate), row))
    }

    fn index_join(
        &mut self,
        kind: JoinKind,
        outer: &PathRef,
        lookup: &Lookup,
        residual: &Conditions,
        required: &ColumnSet,
    ) -> Result<(Node, Vec<ColumnId>)> {
        let mut wanted = required.clone();
        residual.iter().for_each(|condition| wanted.add(&condition.columns));
        let inner_wanted = wanted.clone();
        lookup.keys.iter().for_each(|scalar| add_columns(scalar, &mut wanted));
        let (outer, left) = self.build(outer, &wanted, &[])?;
        let (access, right) = self.access(&lookup.leaf, &inner_wanted, &lookup.filter, &[])?;
        let keys = compile_all(&lookup.keys, &left, self)?;
        let mut row = left.clone();
        row.extend(right);
        let residual = self.conditions(residual, &row)?;
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            row = left;
        }
        let node = Node::IndexJoin {
            kind,
            outer: Box::new(outer),
            access: Arc::new(access),
            index: lookup.index,
            index_only: lookup.index_only,
            keys,
            residual,
            look_ahead: lookup.look_ahead,
        };
        Ok((node, row))
    }

    fn hash_join(
        &mut self,
        kind: JoinKind,
        (left, right): (&PathRef, &PathRef),
        keys: &[(Scalar, Scalar)],
        residual: &Conditions,
        required: &ColumnSet,
    ) -> Result<(Node, Vec<ColumnId>)> {
        let mut wanted = required.clone();
        residual.iter().for_each(|condition| wanted.add(&condition.columns));
        for (a, b) in keys {
            add_columns(a, &mut wanted);
            add_columns(b, &mut wanted);
        }
        let (left, a) = self.build(left, &wanted, &[])?;
        let (right, b) = self.build(right, &wanted, &[])?;
        let left_keys = keys.iter().map(|(key, _)| self.compile(key, &a)).collect::<Result<_>>()?;
        let right_keys = keys.iter().map(|(_, key)| self.compile(key, &b)).collect::<Result<_>>()?;
        let mut row = a.clone();
        row.extend(b);
        let residual = self.conditions(residual, &row)?;
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            row = a;
        }
        let (left, right) = (Box::new(left), Box::new(right));
        Ok((Node::HashJoin { kind, left, right, left_keys, right_keys, residual }, row))
    }

    fn nested_loop(
        &mut self,
        kind: JoinKind,
        (left, right): (&PathRef, &PathRef),
        condition: &Conditions,
        required: &ColumnSet,
    ) -> Result<(Node, Vec<ColumnId>)> {
        let mut wanted = required.clone();
        condition.iter().for_each(|condition| wanted.add(&condition.columns));
        let mut left_wanted = wanted.clone();
        referred(right, &mut left_wanted);
        let (left, a) = self.build(left, &left_wanted, &[])?;
        self.frames.push(Frame { query: false, row: a.clone(), bind: Vec::new() });
        let built = self.build(right, &wanted, &[]);
        let bind = self.pop_frame();
        let (right, b) = built?;
        let mut row = a.clone();
        row.extend(b);
        let condition = self.conditions(condition, &row)?;
        if matches!(kind, JoinKind::Semi | JoinKind::Anti) {
            row = a;
        }
        let (left, right) = (Box::new(left), Box::new(right));
        Ok((Node::NestedLoop { kind, left, right, bind, condition }, row))
    }

    fn lock(
        &mut self,
        input: &PathRef,
        targets: &[(std::rc::Rc<Leaf>, LockStrength, LockWait)],
        recheck: &logical::Recheck,
        required: &ColumnSet,
        first: &[ColumnId],
    ) -> Result<(Node, Vec<ColumnId>)> {
        let mut wanted = required.clone();
        recheck.scalars().for_each(|scalar| add_columns(scalar, &mut wanted));
        for (leaf, _, _) in targets {
            if !self.locked.contains(&leaf.table.oid) {
                self.locked.push(leaf.table.oid);
            }
            if let Some((key, bytes)) = leaf.identity {
                wanted.insert(key);
                wanted.insert(bytes);
            }
        }
        let (input, row) = self.build(input, &wanted, first)?;
        let targets = targets
            .iter()
            .map(|(leaf, strength, wait)| {
                Ok(LockTarget { target: self.target(leaf, &row)?, strength: *strength, wait: *wait })
            })
            .collect::<Result<_>>()?;
        let fixed = recheck.fixed.iter().map(|scalar| self.compile(scalar, &row)).collect::<Result<_>>()?;
        let mut steps = Vec::with_capacity(recheck.steps.len());
        for step in &recheck.steps {
            steps.push(match step {
                logical::RecheckStep::Holds(scalar) => RecheckStep::Holds(self.compile(scalar, &row)?),
                logical::RecheckStep::Joins { on, columns } => RecheckStep::Joins {
                    on: self.compile(on, &row)?,
                    columns: (0..row.len()).filter(|position| columns.contains(&row[*position])).collect(),
                },
            });
        }
        let recheck = Arc::new(Recheck { fixed, steps });
        Ok((Node::LockRows { input: Box::new(input), targets, recheck }, row))
    }

    /// Where a table's row stands in a row.
    pub(super) fn target(&self, leaf: &Leaf, row: &[ColumnId]) -> Result<Target> {
        let missing = || Error::internal("a row to be changed has no identity");
        let (key, bytes) = leaf.identity.ok_or_else(missing)?;
        let identity = row.iter().position(|column| *column == key).ok_or_else(missing)?;
        if row.get(identity + 1) != Some(&bytes) {
            return Err(missing());
        }
        let columns = leaf
            .columns
            .iter()
            .enumerate()
            .filter_map(|(position, id)| row.iter().position(|column| column == id).map(|at| (position, at)))
            .collect();
        Ok(Target { table: leaf.table.clone(), columns, identity })
    }
}

/// The row of a projection that only picks and renames columns: that of its input under other names. `None` if it does more.
fn renamed(below: &[ColumnId], kept: &[&(ColumnId, Scalar)], passed: &[ColumnId]) -> Option<Vec<ColumnId>> {
    let mut row = below.to_vec();
    let mut taken = vec![false; row.len()];
    for (id, scalar) in kept {
        let Scalar::Column(from) = scalar else { return None };
        let at = below.iter().position(|column| column == from)?;
        if taken[at] || passed.contains(from) {
            return None;
        }
        taken[at] = true;
        row[at] = *id;
    }
    Some(row)
}

/// Adds every column that expressions of a candidate refer to.
fn referred(path: &Path, set: &mut ColumnSet) {
    let mut conditions = |list: &Conditions| list.iter().for_each(|condition| set.add(&condition.columns));
    match &path.node {
        PathNode::Values { rows, .. } => rows.iter().flatten().for_each(|scalar| add_columns(scalar, set)),
        PathNode::TableScan { range, filter, .. } => {
            conditions(filter);
            range.iter().for_each(|range| range_columns(range, set));
        }
        PathNode::IndexScan { range, filter, .. } => {
            conditions(filter);
            range_columns(range, set);
        }
        PathNode::SystemScan { filter, .. } => conditions(filter),
        PathNode::FunctionScan { arguments, .. } => {
            arguments.iter().for_each(|scalar| add_columns(scalar, set))
        }
        // It takes nothing from outside.
        PathNode::CommonScan { .. } => {}
        PathNode::Filter { input, conditions: list } => {
            conditions(list);
            referred(input, set);
        }
        PathNode::Project { input, columns } => {
            columns.iter().for_each(|(_, scalar)| add_columns(scalar, set));
            referred(input, set);
        }
        PathNode::IndexJoin { outer, lookup, residual, .. } => {
            conditions(residual);
            conditions(&lookup.filter);
            lookup.keys.iter().for_each(|scalar| add_columns(scalar, set));
            referred(outer, set);
        }
        PathNode::HashJoin { left, right, keys, residual, .. } => {
            conditions(residual);
            for (a, b) in keys {
                add_columns(a, set);
                add_columns(b, set);
            }
            referred(left, set);
            referred(right, set);
        }
        PathNode::NestedLoop { left, right, condition, .. } => {
            conditions(condition);
            referred(left, set);
            referred(right, set);
        }
        PathNode::Aggregate { input, groups, aggregates, .. } => {
            groups.iter().for_each(|(_, scalar)| add_columns(scalar, set));
            aggregates
                .iter()
                .for_each(|(_, call)| call_scalars(call, &mut |scalar| add_columns(scalar, set)));
            referred(input, set);
        }
        PathNode::Unique { input, keys } => {
            keys.iter().for_each(|scalar| add_columns(scalar, set));
            referred(input, set);
        }
        PathNode::Sort { input, keys, top, .. } => {
            keys.iter().for_each(|key| add_columns(&key.scalar, set));
            if let Some((limit, offset)) = top {
                std::iter::once(limit).chain(offset).for_each(|scalar| add_columns(scalar, set));
            }
            referred(input, set);
        }
        PathNode::Limit { input, limit, offset } => {
            limit.iter().chain(offset).for_each(|scalar| add_columns(scalar, set));
            referred(input, set);
        }
        PathNode::Append { inputs, .. } => inputs.iter().for_each(|(input, _)| referred(input, set)),
        PathNode::Set { left, right, .. } => {
            referred(&left.0, set);
            referred(&right.0, set);
        }
        PathNode::Lock { input, recheck, .. } => {
            recheck.scalars().for_each(|scalar| add_columns(scalar, set));
            referred(input, set);
        }
    }
}

fn range_columns(range: &Range, set: &mut ColumnSet) {
    range.equal.iter().for_each(|scalar| add_columns(scalar, set));
    let bounds = range.lower.iter().chain(&range.upper).flat_map(|(scalars, _)| scalars);
    bounds.for_each(|scalar| add_columns(scalar, set));
    range.like.iter().for_each(|scalar| add_columns(scalar, set));
}
