//! Verifies the invariants of [`crate::physical`]: every expression fits the row it is computed over, every slot is filled by somebody outside,
//! every node has a number of its own. A statement that fails here is a bug of the planner.

use crate::logical::JoinKind;
use crate::physical::{
    Access, AggregateExpr, Delete, Expr, Insert, KeyRange, Node, OrderBy, Plan, Statement, SubplanKind,
    Target, Update, children,
};
use crate::{Error, Result};

/// What is known while a statement is gone through.
struct Checker<'s> {
    statement: &'s Statement,
    nodes: Vec<bool>,
    subplans: Vec<bool>,
    filled: Vec<bool>,
    /// Slots that outer plans have filled.
    visible: Vec<usize>,
    /// Whether a value is held around.
    holds: bool,
}

/// Verifies a statement.
pub(super) fn statement(statement: &Statement) -> Result<()> {
    let mut checker = Checker {
        statement,
        nodes: vec![false; statement.nodes],
        subplans: vec![false; statement.subplans.len()],
        filled: vec![false; statement.slots],
        visible: Vec::new(),
        holds: false,
    };
    checker.plan(&statement.root)?;
    if checker.subplans.contains(&false) {
        return wrong("a subplan that nobody uses", &statement.root);
    }
    let width = statement.root.columns.len();
    if statement.output.len() > width {
        return wrong("fewer columns than the client is to get", &statement.root);
    }
    Ok(())
}

fn wrong<T>(what: &str, plan: &Plan) -> Result<T> {
    Err(Error::internal(format_args!("the planner made {what} (node {})", plan.id)))
}

impl Checker<'_> {
    fn plan(&mut self, plan: &Plan) -> Result<()> {
        match self.nodes.get_mut(plan.id) {
            Some(seen) if !*seen => *seen = true,
            _ => return wrong("two nodes of one number, or one beyond the end", plan),
        }
        if !matches!(plan.node, Node::NestedLoop { .. }) {
            for child in children(plan) {
                self.plan(child)?;
            }
        }
        let width = self.node(plan)?;
        if width != plan.columns.len() {
            return wrong("rows of another width than announced", plan);
        }
        Ok(())
    }

    /// Verifies a node's expressions; the width of its rows.
    fn node(&mut self, plan: &Plan) -> Result<usize> {
        let width = |child: &Plan| child.columns.len();
        Ok(match &plan.node {
            Node::One
            | Node::Values(_)
            | Node::TableScan { .. }
            | Node::IndexScan { .. }
            | Node::SystemScan { .. }
            | Node::CommonScan { .. }
            | Node::FunctionScan { .. } => self.source(plan)?,
            Node::Filter { input, predicate } => {
                self.expr(predicate, width(input), plan)?;
                width(input)
            }
            Node::Project { input, exprs } => {
                self.all(exprs, width(input), plan)?;
                exprs.len()
            }
            Node::IndexJoin { .. } | Node::HashJoin { .. } | Node::NestedLoop { .. } => self.join(plan)?,
            Node::Aggregate { input, groups, aggregates, .. } => {
                self.all(groups, width(input), plan)?;
                for call in aggregates {
                    self.aggregate(call, width(input), plan)?;
                }
                groups.len() + aggregates.len()
            }
            Node::Unique { input, keys } => {
                self.all(keys, width(input), plan)?;
                width(input)
            }
            Node::Sort { input, keys, presorted, top } => {
                self.order(keys, width(input), plan)?;
                self.some(top.as_ref(), 0, plan)?;
                if *presorted >= keys.len() {
                    return wrong("a sort of what is sorted", plan);
                }
                width(input)
            }
            Node::Limit { input, limit, offset } => {
                self.some(limit.as_ref(), 0, plan)?;
                self.some(offset.as_ref(), 0, plan)?;
                width(input)
            }
            Node::Append(inputs) => {
                if inputs.iter().any(|input| width(input) != plan.columns.len()) {
                    return wrong("sides of a union that differ", plan);
                }
                plan.columns.len()
            }
            Node::Set { left, right, .. } => {
                if width(left) != width(right) {
                    return wrong("sides of a set operation that differ", plan);
                }
                width(left)
            }
            Node::LockRows { input, targets, recheck } => {
                for target in &**targets {
                    self.target(&target.target, width(input), plan)?;
                }
                for expr in recheck.exprs() {
                    self.some(Some(expr), width(input), plan)?;
                }
                width(input)
            }
            Node::Insert { .. } | Node::Update { .. } | Node::Delete { .. } => self.change(plan)?,
        })
    }

    fn source(&mut self, plan: &Plan) -> Result<usize> {
        Ok(match &plan.node {
            Node::One => 0,
            Node::Values(rows) => {
                for row in &**rows {
                    self.all(row, 0, plan)?;
                    if row.len() != plan.columns.len() {
                        return wrong("rows of VALUES that differ", plan);
                    }
                }
                plan.columns.len()
            }
            Node::TableScan { access, range, .. } => {
                if let Some(range) = range {
                    let key = access.table.primary().map_or(0, |index| index.columns.len());
                    self.range(range, key, plan)?;
                }
                self.access(access, plan)?
            }
            Node::IndexScan { access, index, range, index_only, .. } => {
                let Some(index) = access.table.indexes.get(*index).filter(|index| !index.primary) else {
                    return wrong("a scan of an index that is none", plan);
                };
                self.range(range, index.columns.len(), plan)?;
                if *index_only && access.identity {
                    return wrong("an index-only scan that gives rows", plan);
                }
                self.access(access, plan)?
            }
            Node::SystemScan { table, columns, filter, .. } => {
                if columns.iter().any(|position| *position >= table.columns.len()) {
                    return wrong("a column that a system table has not", plan);
                }
                self.some(filter.as_ref(), columns.len(), plan)?;
                columns.len()
            }
            Node::CommonScan { subplan, .. } => {
                let statement = self.statement;
                let Some(inner) = statement.subplans.get(*subplan) else {
                    return wrong("a WITH query without a plan", plan);
                };
                if !std::mem::replace(&mut self.subplans[*subplan], true) {
                    // It sees nothing of what is around its uses.
                    let outside = std::mem::take(&mut self.visible);
                    let holds = std::mem::take(&mut self.holds);
                    self.plan(inner)?;
                    (self.visible, self.holds) = (outside, holds);
                }
                inner.columns.len()
            }
            Node::FunctionScan { function, arguments, types, ordinality } => {
                self.all(arguments, 0, plan)?;
                if types.len() != arguments.len() {
                    return wrong("arguments without types", plan);
                }
                function.columns.len() + usize::from(*ordinality)
            }
            _ => 0,
        })
    }

    fn join(&mut self, plan: &Plan) -> Result<usize> {
        let width = |child: &Plan| child.columns.len();
        Ok(match &plan.node {
            Node::IndexJoin { kind, outer, access, index, keys, residual, .. } => {
                let key = match index {
                    Some(index) => access.table.indexes.get(*index),
                    None => access.table.primary(),
                };
                if keys.is_empty() || key.is_none_or(|key| keys.len() > key.columns.len()) {
                    return wrong("keys that the index has not", plan);
                }
                self.all(keys, width(outer), plan)?;
                let both = width(outer) + self.access(access, plan)?;
                self.some(residual.as_ref(), both, plan)?;
                joined(*kind, width(outer), both)
            }
            Node::HashJoin { kind, left, right, left_keys, right_keys, residual } => {
                if left_keys.len() != right_keys.len() || left_keys.is_empty() {
                    return wrong("a hash join without keys on both sides", plan);
                }
                self.all(left_keys, width(left), plan)?;
                self.all(right_keys, width(right), plan)?;
                let both = width(left) + width(right);
                self.some(residual.as_ref(), both, plan)?;
                joined(*kind, width(left), both)
            }
            Node::NestedLoop { kind, left, right, bind, condition } => {
                self.plan(left)?;
                let depth = self.bind(bind, width(left), plan)?;
                self.plan(right)?;
                self.visible.truncate(depth);
                if *kind == JoinKind::Full && !bind.is_empty() {
                    return wrong("a full join that depends on its left side", plan);
                }
                let both = width(left) + width(right);
                self.some(condition.as_ref(), both, plan)?;
                joined(*kind, width(left), both)
            }
            _ => 0,
        })
    }

    fn change(&mut self, plan: &Plan) -> Result<usize> {
        let returned = |returning: &Option<Vec<Expr>>| returning.as_ref().map_or(0, Vec::len);
        Ok(match &plan.node {
            Node::Insert { input, insert } => {
                let Insert { table, values, checks, returning } = &**insert;
                self.all(values, input.columns.len(), plan)?;
                if values.len() != table.columns.len() {
                    return wrong("a row of another width than its table", plan);
                }
                self.checks(checks, values.len(), plan)?;
                self.all(returning.iter().flatten(), values.len(), plan)?;
                returned(returning)
            }
            Node::Update { input, update } => {
                let Update { target, recheck, assignments, checks, returning } = &**update;
                let (below, row) = (input.columns.len(), target.table.columns.len());
                self.target(target, below, plan)?;
                if target.columns.len() != row {
                    return wrong("an update without the whole row", plan);
                }
                self.some(recheck.as_ref(), below, plan)?;
                for (positions, expr) in assignments {
                    if positions.iter().any(|position| *position >= row) {
                        return wrong("an assignment to no column", plan);
                    }
                    self.expr(expr, below, plan)?;
                }
                self.checks(checks, row, plan)?;
                self.all(returning.iter().flatten(), row + below, plan)?;
                returned(returning)
            }
            Node::Delete { input, delete } => {
                let Delete { target, recheck, returning } = &**delete;
                let below = input.columns.len();
                self.target(target, below, plan)?;
                self.some(recheck.as_ref(), below, plan)?;
                self.all(returning.iter().flatten(), below, plan)?;
                returned(returning)
            }
            _ => plan.columns.len(),
        })
    }

    fn checks(&mut self, checks: &[(String, Expr)], width: usize, plan: &Plan) -> Result<()> {
        checks.iter().try_for_each(|(_, expr)| self.expr(expr, width, plan))
    }

    fn target(&self, target: &Target, width: usize, plan: &Plan) -> Result<()> {
        let fits = target.identity + 1 < width
            && target.columns.iter().all(|(own, at)| *own < target.table.columns.len() && *at < width);
        if fits { Ok(()) } else { wrong("a row to be changed that the input has not", plan) }
    }

    /// Verifies an access; the width of what it gives.
    fn access(&mut self, access: &Access, plan: &Plan) -> Result<usize> {
        if access.columns.iter().any(|position| *position >= access.table.columns.len()) {
            return wrong("a column that the table has not", plan);
        }
        let width = access.columns.len() + if access.identity { 2 } else { 0 };
        self.some(access.filter.as_ref(), width, plan)?;
        Ok(width)
    }

    fn range(&mut self, range: &KeyRange, key: usize, plan: &Plan) -> Result<()> {
        self.all(&range.equal, 0, plan)?;
        self.all(range.lower.iter().chain(&range.upper).flat_map(|(exprs, _)| exprs), 0, plan)?;
        self.some(range.like.as_ref(), 0, plan)?;
        let bounded = range.lower.is_some() || range.upper.is_some();
        let more = bounded || range.is_null || range.not_null || range.like.is_some();
        let bounds = || range.lower.iter().chain(&range.upper).map(|(exprs, _)| exprs.len());
        if bounds().any(|len| len == 0) {
            return wrong("a bound of nothing", plan);
        }
        if range.equal.len() + bounds().max().unwrap_or(usize::from(more)) > key {
            return wrong("a range over more columns than the key has", plan);
        }
        if range.is_null && (bounded || range.not_null || range.like.is_some()) {
            return wrong("a range that is NULL and is not", plan);
        }
        if range.like.is_some() && bounded {
            return wrong("a range of a pattern with other bounds", plan);
        }
        Ok(())
    }

    fn order(&mut self, keys: &[OrderBy], width: usize, plan: &Plan) -> Result<()> {
        keys.iter().try_for_each(|key| self.expr(&key.expr, width, plan))
    }

    fn aggregate(&mut self, call: &AggregateExpr, width: usize, plan: &Plan) -> Result<()> {
        if call.types.len() != call.arguments.len() {
            return wrong("arguments without types", plan);
        }
        self.all(&call.arguments, width, plan)?;
        self.some(call.filter.as_ref(), width, plan)?;
        self.order(&call.order, width, plan)
    }

    /// Fills slots; how many were visible before.
    fn bind(&mut self, bind: &[(usize, Expr)], width: usize, plan: &Plan) -> Result<usize> {
        let depth = self.visible.len();
        for (slot, expr) in bind {
            self.expr(expr, width, plan)?;
            match self.filled.get_mut(*slot) {
                Some(filled) if !*filled => *filled = true,
                _ => return wrong("a slot that is filled twice, or none", plan),
            }
        }
        self.visible.extend(bind.iter().map(|(slot, _)| *slot));
        Ok(depth)
    }

    fn all<'e>(
        &mut self,
        exprs: impl IntoIterator<Item = &'e Expr>,
        width: usize,
        plan: &Plan,
    ) -> Result<()> {
        exprs.into_iter().try_for_each(|expr| self.expr(expr, width, plan))
    }

    fn some(&mut self, expr: Option<&Expr>, width: usize, plan: &Plan) -> Result<()> {
        expr.map_or(Ok(()), |expr| self.expr(expr, width, plan))
    }

    fn expr(&mut self, expr: &Expr, width: usize, plan: &Plan) -> Result<()> {
        match expr {
            Expr::Literal(_) | Expr::Parameter(_) => Ok(()),
            Expr::Hold { value, body } => {
                self.expr(value, width, plan)?;
                let outer = std::mem::replace(&mut self.holds, true);
                self.expr(body, width, plan)?;
                self.holds = outer;
                Ok(())
            }
            Expr::Held if self.holds => Ok(()),
            Expr::Held => wrong("a held value where none is held", plan),
            Expr::Column(position) if *position < width => Ok(()),
            Expr::Column(_) => wrong("a column beyond the row", plan),
            Expr::Slot(slot) if self.visible.contains(slot) => Ok(()),
            Expr::Slot(_) => wrong("a slot that nobody fills", plan),
            Expr::Call { arguments, types, .. } => {
                if types.len() != arguments.len() {
                    return wrong("arguments without types", plan);
                }
                self.all(arguments, width, plan)
            }
            Expr::Cast { argument, .. } | Expr::IsBool { argument, .. } | Expr::InSet { argument, .. } => {
                self.expr(argument, width, plan)
            }
            Expr::Not(argument) | Expr::IsNull(argument) => self.expr(argument, width, plan),
            Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) | Expr::Row { elements: list, .. } => {
                self.all(list, width, plan)
            }
            Expr::Compare { left, right, .. } => {
                self.expr(left, width, plan)?;
                self.expr(right, width, plan)
            }
            Expr::CompareRows { left, right, .. } => {
                if left.len() != right.len() {
                    return wrong("a comparison of rows that differ", plan);
                }
                self.all(left.iter().chain(right), width, plan)
            }
            Expr::Case { branches, otherwise } => {
                for (condition, value) in branches {
                    self.expr(condition, width, plan)?;
                    self.expr(value, width, plan)?;
                }
                self.expr(otherwise, width, plan)
            }
            Expr::Extreme { arguments, .. } => self.all(arguments, width, plan),
            Expr::InList { argument, list } => {
                self.expr(argument, width, plan)?;
                self.all(list, width, plan)
            }
            Expr::Quantified { argument, array, .. } => {
                self.expr(argument, width, plan)?;
                self.expr(array, width, plan)
            }
            Expr::Array { elements, .. } => self.all(elements, width, plan),
            Expr::Subscript { array, index } => {
                self.expr(array, width, plan)?;
                self.expr(index, width, plan)
            }
            Expr::Subquery { subplan, bind, kind } => self.subquery(*subplan, bind, kind, width, plan),
        }
    }

    fn subquery(
        &mut self,
        subplan: usize,
        bind: &[(usize, Expr)],
        kind: &SubplanKind,
        width: usize,
        plan: &Plan,
    ) -> Result<()> {
        let statement = self.statement;
        let Some(inner) = statement.subplans.get(subplan) else {
            return wrong("a subquery without a plan", plan);
        };
        // One that takes nothing from outside has one value, wherever it is asked for.
        let again = std::mem::replace(&mut self.subplans[subplan], true);
        if again && !bind.is_empty() {
            return wrong("a subplan that is used twice", plan);
        }
        let wanted = match kind {
            SubplanKind::Exists => None,
            SubplanKind::Scalar | SubplanKind::Array(_) => Some(1),
            SubplanKind::Quantified { arguments, .. } => {
                self.all(arguments, width, plan)?;
                Some(arguments.len())
            }
        };
        if wanted.is_some_and(|wanted| inner.columns.len() != wanted) {
            return wrong("a subquery with too many columns", plan);
        }
        if again {
            return Ok(());
        }
        // What a subplan reads passes through its own slots, so that it is known when to run it again.
        let outside = std::mem::take(&mut self.visible);
        self.visible.clone_from(&outside);
        let depth = self.bind(bind, width, plan)?;
        self.visible.drain(..depth);
        self.plan(inner)?;
        self.visible = outside;
        Ok(())
    }
}

fn joined(kind: JoinKind, left: usize, both: usize) -> usize {
    if matches!(kind, JoinKind::Semi | JoinKind::Anti) { left } else { both }
}
