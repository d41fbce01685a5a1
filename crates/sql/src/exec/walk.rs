//! Looking through expressions and plans.

use crate::functions::Volatility;
use crate::physical::{
    Access, AggregateExpr, Expr, Insert, KeyRange, Node, OrderBy, Plan, Statement, SubplanKind, Update,
    children,
};
use std::collections::BTreeSet;

/// Shows an expression and all parts of it to `visit`.
pub(super) fn expressions<'p>(expr: &'p Expr, visit: &mut dyn FnMut(&'p Expr)) {
    visit(expr);
    let mut all = |exprs: &'p [Expr]| exprs.iter().for_each(|expr| expressions(expr, visit));
    match expr {
        Expr::Literal(_) | Expr::Column(_) | Expr::Parameter(_) | Expr::Slot(_) | Expr::Held => {}
        Expr::Call { arguments, .. } | Expr::Extreme { arguments, .. } => all(arguments),
        Expr::And(operands)
        | Expr::Or(operands)
        | Expr::Coalesce(operands)
        | Expr::Row { elements: operands, .. } => {
            all(operands);
        }
        Expr::Array { elements, .. } => all(elements),
        Expr::Cast { argument, .. }
        | Expr::Not(argument)
        | Expr::IsNull(argument)
        | Expr::IsBool { argument, .. }
        | Expr::InSet { argument, .. } => expressions(argument, visit),
        Expr::Compare { left, right, .. } => {
            expressions(left, visit);
            expressions(right, visit);
        }
        Expr::CompareRows { left, right, .. } => {
            all(left);
            all(right);
        }
        Expr::Case { branches, otherwise } => {
            for (condition, value) in branches {
                expressions(condition, visit);
                expressions(value, visit);
            }
            expressions(otherwise, visit);
        }
        Expr::Hold { value, body } => {
            expressions(value, visit);
            expressions(body, visit);
        }
        Expr::InList { argument, list } => {
            all(list);
            expressions(argument, visit);
        }
        Expr::Quantified { argument, array, .. } => {
            expressions(argument, visit);
            expressions(array, visit);
        }
        Expr::Subscript { array, index } => {
            expressions(array, visit);
            expressions(index, visit);
        }
        Expr::Subquery { bind, kind, .. } => {
            if let SubplanKind::Quantified { arguments, .. } = kind {
                all(arguments);
            }
            bind.iter().for_each(|(_, expr)| expressions(expr, visit));
        }
    }
}

/// Shows a plan and all plans below it, without subplans, to `visit`.
pub(super) fn plans<'p>(plan: &'p Plan, visit: &mut dyn FnMut(&'p Plan)) {
    visit(plan);
    children(plan).into_iter().for_each(|child| plans(child, visit));
}

/// Shows the expressions of a node itself to `visit`, whole ones only.
pub(super) fn node_expressions<'p>(node: &'p Node, visit: &mut dyn FnMut(&'p Expr)) {
    match node {
        Node::One | Node::CommonScan { .. } | Node::Append(_) | Node::Set { .. } => {}
        Node::Values(rows) => rows.iter().flatten().for_each(visit),
        Node::TableScan { access, range, .. } => {
            access_expressions(access, visit);
            range.iter().for_each(|range| range_expressions(range, visit));
        }
        Node::IndexScan { access, range, .. } => {
            access_expressions(access, visit);
            range_expressions(range, visit);
        }
        Node::SystemScan { filter, .. } => filter.iter().for_each(visit),
        Node::FunctionScan { arguments, .. } => arguments.iter().for_each(visit),
        Node::Filter { predicate, .. } => visit(predicate),
        Node::Project { exprs, .. } | Node::Unique { keys: exprs, .. } => exprs.iter().for_each(visit),
        Node::IndexJoin { access, keys, residual, .. } => {
            access_expressions(access, visit);
            keys.iter().chain(residual).for_each(visit);
        }
        Node::HashJoin { left_keys, right_keys, residual, .. } => {
            left_keys.iter().chain(right_keys).chain(residual).for_each(visit);
        }
        Node::NestedLoop { bind, condition, .. } => {
            bind.iter().map(|(_, expr)| expr).chain(condition).for_each(visit);
        }
        Node::Aggregate { groups, aggregates, .. } => {
            groups.iter().for_each(&mut *visit);
            aggregates.iter().for_each(|aggregate| aggregate_expressions(aggregate, visit));
        }
        Node::Sort { keys, top, .. } => {
            order_expressions(keys, visit);
            top.iter().for_each(visit);
        }
        Node::Limit { limit, offset, .. } => limit.iter().chain(offset).for_each(visit),
        Node::LockRows { recheck, .. } => recheck.exprs().for_each(visit),
        Node::Insert { insert, .. } => {
            let Insert { values, checks, returning, .. } = &**insert;
            values.iter().chain(checks.iter().map(|(_, check)| check)).for_each(&mut *visit);
            returning.iter().flatten().for_each(visit);
        }
        Node::Update { update, .. } => {
            let Update { recheck, assignments, checks, returning, .. } = &**update;
            recheck.iter().for_each(&mut *visit);
            assignments.iter().for_each(|(_, expr)| visit(expr));
            checks.iter().for_each(|(_, check)| visit(check));
            returning.iter().flatten().for_each(visit);
        }
        Node::Delete { delete, .. } => {
            delete.recheck.iter().for_each(&mut *visit);
            delete.returning.iter().flatten().for_each(visit);
        }
    }
}

fn access_expressions<'p>(access: &'p Access, visit: &mut dyn FnMut(&'p Expr)) {
    access.filter.iter().for_each(visit);
}

fn range_expressions<'p>(range: &'p KeyRange, visit: &mut dyn FnMut(&'p Expr)) {
    range.equal.iter().for_each(&mut *visit);
    range.lower.iter().chain(&range.upper).flat_map(|(exprs, _)| exprs).for_each(&mut *visit);
    range.like.iter().for_each(visit);
}

fn order_expressions<'p>(order: &'p [OrderBy], visit: &mut dyn FnMut(&'p Expr)) {
    order.iter().for_each(|by| visit(&by.expr));
}

fn aggregate_expressions<'p>(aggregate: &'p AggregateExpr, visit: &mut dyn FnMut(&'p Expr)) {
    aggregate.arguments.iter().chain(&aggregate.filter).for_each(&mut *visit);
    order_expressions(&aggregate.order, visit);
}

/// Slots that a plan reads and does not fill itself, subplans included.
pub(super) fn free_slots(plan: &Plan, statement: &Statement) -> BTreeSet<usize> {
    let mut slots = Slots { statement, read: BTreeSet::new(), filled: BTreeSet::new() };
    slots.plan(plan);
    slots.read.difference(&slots.filled).copied().collect()
}

struct Slots<'p> {
    statement: &'p Statement,
    read: BTreeSet<usize>,
    filled: BTreeSet<usize>,
}

impl<'p> Slots<'p> {
    fn plan(&mut self, plan: &'p Plan) {
        let mut found: Vec<&Expr> = Vec::new();
        let mut filled = Vec::new();
        plans(plan, &mut |plan| {
            if let Node::NestedLoop { bind, .. } = &plan.node {
                filled.extend(bind.iter().map(|(slot, _)| *slot));
            }
            node_expressions(&plan.node, &mut |expr| found.push(expr));
        });
        self.filled.extend(filled);
        for expr in found {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &'p Expr) {
        let mut subplans = Vec::new();
        expressions(expr, &mut |expr| match expr {
            Expr::Slot(slot) => {
                self.read.insert(*slot);
            }
            Expr::Subquery { subplan, bind, .. } => {
                self.filled.extend(bind.iter().map(|(slot, _)| *slot));
                subplans.push(*subplan);
            }
            _ => {}
        });
        let statement = self.statement;
        for subplan in subplans {
            self.plan(&statement.subplans[subplan]);
        }
    }
}

/// Whether a plan gives the same rows each time it is run within a statement, as far as that is plain to see.
pub(super) fn is_fixed(plan: &Plan) -> bool {
    let mut fixed = true;
    plans(plan, &mut |plan| {
        node_expressions(&plan.node, &mut |expr| fixed &= is_fixed_expression(expr));
    });
    fixed
}

/// Whether an expression is the same for the same row each time it is computed within a statement, as far as that is plain to see.
pub(super) fn is_fixed_expression(expr: &Expr) -> bool {
    let mut fixed = true;
    expressions(expr, &mut |expr| match expr {
        Expr::Slot(_) | Expr::Subquery { .. } => fixed = false,
        Expr::Call { function, .. } if function.volatility == Volatility::Volatile => fixed = false,
        _ => {}
    });
    fixed
}

/// Whether a plan's rows take more to be computed than to be read: it joins, groups or sorts.
pub(super) fn is_laborious(plan: &Plan) -> bool {
    let mut laborious = false;
    plans(plan, &mut |plan| {
        laborious |= matches!(
            plan.node,
            Node::IndexJoin { .. }
                | Node::HashJoin { .. }
                | Node::NestedLoop { .. }
                | Node::Aggregate { .. }
                | Node::Sort { .. }
                | Node::Unique { .. }
                | Node::Set { .. }
        );
    });
    laborious
}
