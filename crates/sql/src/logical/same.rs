//! Whether two expressions are written alike.
//!
//! Columns that a query makes have numbers of its own, so two subqueries written alike differ in them: those that one makes are taken for
//! those that the other one makes in the same place. Names, which are for people, do not count.

use super::walk::{call_scalars, inputs, scalars};
use super::{
    AggregateCall, ColumnId, Common, Query, RecheckStep, Rel, Scalar, SortKey, Subquery, SubqueryKind,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Whether two expressions are the same.
pub(crate) fn same(a: &Scalar, b: &Scalar) -> bool {
    Likeness::default().scalar(a, b)
}

/// Whether `scalar` is `inner`, converted.
pub(crate) fn is_cast_of(scalar: &Scalar, inner: &Scalar) -> bool {
    matches!(scalar, Scalar::Cast { argument, .. } if same(argument, inner))
}

/// Whether two calls of aggregates are the same.
pub(crate) fn same_call(a: &AggregateCall, b: &AggregateCall) -> bool {
    Likeness::default().call(a, b)
}

/// What is known while two sides are compared.
#[derive(Default)]
struct Likeness {
    /// The columns made within the left side, each with its like of the right one.
    made: HashMap<ColumnId, ColumnId>,
    /// WITH queries that are alike: one that is used at many places is compared once.
    commons: HashSet<(*const Common, *const Common)>,
}

impl Likeness {
    fn column(&self, a: ColumnId, b: ColumnId) -> bool {
        *self.made.get(&a).unwrap_or(&a) == b
    }

    fn columns(&self, a: &[ColumnId], b: &[ColumnId]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.column(*a, *b))
    }

    /// Takes columns made on both sides for each other.
    fn made(&mut self, a: &[ColumnId], b: &[ColumnId]) -> bool {
        self.made.extend(a.iter().copied().zip(b.iter().copied()));
        a.len() == b.len()
    }

    fn scalars(&mut self, a: &[Scalar], b: &[Scalar]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.scalar(a, b))
    }

    fn scalar(&mut self, a: &Scalar, b: &Scalar) -> bool {
        use Scalar as S;
        match (a, b) {
            (S::Literal { value: x, ty: t }, S::Literal { value: y, ty: u }) => t == u && x.is_identical(y),
            (S::Column(x), S::Column(y)) => self.column(*x, *y),
            (S::Parameter { index: x, ty: t }, S::Parameter { index: y, ty: u }) => x == y && t == u,
            (S::Call { function: f, arguments: x, ty: t }, S::Call { function: g, arguments: y, ty: u }) => {
                std::ptr::eq(*f, *g) && t == u && self.scalars(x, y)
            }
            (
                S::Cast { argument: x, ty: t, modifier: m, explicit: e },
                S::Cast { argument: y, ty: u, modifier: n, explicit: f },
            ) => t == u && m == n && e == f && self.scalar(x, y),
            (S::And(x), S::And(y)) | (S::Or(x), S::Or(y)) | (S::Row(x), S::Row(y)) => self.scalars(x, y),
            (S::Not(x), S::Not(y)) | (S::IsNull(x), S::IsNull(y)) => self.scalar(x, y),
            (S::Compare { op: o, left: l, right: r }, S::Compare { op: p, left: m, right: s }) => {
                o == p && self.scalar(l, m) && self.scalar(r, s)
            }
            (S::CompareRows { op: o, left: l, right: r }, S::CompareRows { op: p, left: m, right: s }) => {
                o == p && self.scalars(l, m) && self.scalars(r, s)
            }
            (S::IsBool { argument: x, value: v }, S::IsBool { argument: y, value: w }) => {
                v == w && self.scalar(x, y)
            }
            (S::Hold { value: x, body: b }, S::Hold { value: y, body: c }) => {
                self.scalar(x, y) && self.scalar(b, c)
            }
            (S::Held { ty: t }, S::Held { ty: u }) => t == u,
            (S::Case { branches: x, otherwise: o, ty: t }, S::Case { branches: y, otherwise: p, ty: u }) => {
                t == u
                    && x.len() == y.len()
                    && x.iter().zip(y).all(|(x, y)| self.scalar(&x.0, &y.0) && self.scalar(&x.1, &y.1))
                    && self.scalar(o, p)
            }
            (S::Coalesce { arguments: x, ty: t }, S::Coalesce { arguments: y, ty: u }) => {
                t == u && self.scalars(x, y)
            }
            (
                S::Extreme { arguments: x, greatest: g, ty: t },
                S::Extreme { arguments: y, greatest: h, ty: u },
            ) => g == h && t == u && self.scalars(x, y),
            (S::InList { argument: x, list: l }, S::InList { argument: y, list: m }) => {
                self.scalar(x, y) && self.scalars(l, m)
            }
            (
                S::Quantified { argument: x, op: o, array: v, all: l },
                S::Quantified { argument: y, op: p, array: w, all: m },
            ) => o == p && l == m && self.scalar(x, y) && self.scalar(v, w),
            (S::Array { elements: x, ty: t }, S::Array { elements: y, ty: u }) => {
                t == u && self.scalars(x, y)
            }
            (S::Subscript { array: x, index: i, ty: t }, S::Subscript { array: y, index: j, ty: u }) => {
                t == u && self.scalar(x, y) && self.scalar(i, j)
            }
            (S::Subquery(x), S::Subquery(y)) => self.subquery(x, y),
            _ => false,
        }
    }

    fn subquery(&mut self, a: &Subquery, b: &Subquery) -> bool {
        let kinds = match (&a.kind, &b.kind) {
            (SubqueryKind::Scalar, SubqueryKind::Scalar) | (SubqueryKind::Exists, SubqueryKind::Exists) => {
                true
            }
            (SubqueryKind::Array(t), SubqueryKind::Array(u)) => t == u,
            (
                SubqueryKind::Quantified { arguments: x, op: o, all: l },
                SubqueryKind::Quantified { arguments: y, op: p, all: m },
            ) => o == p && l == m && self.scalars(x, y),
            _ => false,
        };
        kinds && self.queries(&a.query, &b.query)
    }

    fn queries(&mut self, a: &Query, b: &Query) -> bool {
        let given = |query: &Query| query.output.iter().map(|output| output.column).collect::<Vec<_>>();
        self.rel(&a.rel, &b.rel) && self.columns(&given(a), &given(b))
    }

    fn commons(&mut self, a: &Arc<Common>, b: &Arc<Common>) -> bool {
        let pair = (Arc::as_ptr(a), Arc::as_ptr(b));
        if Arc::ptr_eq(a, b) || self.commons.contains(&pair) {
            return true;
        }
        let alike = self.queries(&a.query, &b.query);
        if alike {
            self.commons.insert(pair);
        }
        alike
    }

    /// Relations; what they make is known afterwards.
    fn rel(&mut self, a: &Rel, b: &Rel) -> bool {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        inputs(a, &mut |input| left.push(input));
        inputs(b, &mut |input| right.push(input));
        left.len() == right.len()
            && left.into_iter().zip(right).all(|(a, b)| self.rel(a, b))
            && self.node(a, b)
            && {
                let (mut left, mut right) = (Vec::new(), Vec::new());
                scalars(a, &mut |scalar| left.push(scalar));
                scalars(b, &mut |scalar| right.push(scalar));
                left.len() == right.len() && left.into_iter().zip(right).all(|(a, b)| self.scalar(a, b))
            }
            && self.results(a, b)
    }

    /// Everything of two relations but their inputs and expressions, and what they make of these.
    fn node(&mut self, a: &Rel, b: &Rel) -> bool {
        use Rel as R;
        match (a, b) {
            (R::Table { table: t, columns: x, .. }, R::Table { table: u, columns: y, .. }) => {
                (Arc::ptr_eq(t, u) || t.oid == u.oid) && self.made(x, y)
            }
            (R::System { table: t, columns: x, .. }, R::System { table: u, columns: y, .. }) => {
                std::ptr::eq(*t, *u) && self.made(x, y)
            }
            (R::Values { columns: x, rows: r }, R::Values { columns: y, rows: s }) => {
                r.len() == s.len() && self.made(x, y)
            }
            (
                R::Function { function: f, columns: x, ordinality: o, listed: l, .. },
                R::Function { function: g, columns: y, ordinality: p, listed: m, .. },
            ) => std::ptr::eq(*f, *g) && self.made(x, y) && self.made(o.as_slice(), p.as_slice()) && l == m,
            (R::Common { common: c, columns: x, .. }, R::Common { common: d, columns: y, .. }) => {
                self.commons(c, d) && self.made(x, y)
            }
            (R::Join { kind: k, on: o, lateral: l, .. }, R::Join { kind: j, on: p, lateral: m, .. }) => {
                k == j && l == m && o.is_some() == p.is_some()
            }
            (R::Filter { .. }, R::Filter { .. }) => true,
            (R::Project { columns: x, .. }, R::Project { columns: y, .. }) => x.len() == y.len(),
            (
                R::Aggregate { groups: x, aggregates: c, .. },
                R::Aggregate { groups: y, aggregates: d, .. },
            ) => {
                x.len() == y.len()
                    && c.len() == d.len()
                    && c.iter().zip(d).all(|((_, c), (_, d))| calls(c, d))
            }
            (R::Distinct { on: x, .. }, R::Distinct { on: y, .. }) => x.is_some() == y.is_some(),
            (R::Sort { keys: x, .. }, R::Sort { keys: y, .. }) => directions(x, y),
            (R::Limit { limit: l, offset: o, .. }, R::Limit { limit: m, offset: p, .. }) => {
                l.is_some() == m.is_some() && o.is_some() == p.is_some()
            }
            (
                R::Set { operation: o, all: l, left: x, right: r, columns: c },
                R::Set { operation: p, all: m, left: y, right: s, columns: d },
            ) => o == p && l == m && self.columns(&x.1, &y.1) && self.columns(&r.1, &s.1) && self.made(c, d),
            (R::Lock { tables: x, recheck: r, .. }, R::Lock { tables: y, recheck: s, .. }) => {
                x.len() == y.len()
                    && x.iter().zip(y).all(|(x, y)| self.column(x.0, y.0) && x.1 == y.1 && x.2 == y.2)
                    && r.fixed.len() == s.fixed.len()
                    && r.steps.len() == s.steps.len()
                    && r.steps.iter().zip(&s.steps).all(|(r, s)| match (r, s) {
                        (RecheckStep::Holds(_), RecheckStep::Holds(_)) => true,
                        (RecheckStep::Joins { columns: c, .. }, RecheckStep::Joins { columns: d, .. }) => {
                            self.columns(c, d)
                        }
                        _ => false,
                    })
            }
            _ => false,
        }
    }

    /// The columns that relations make of their expressions.
    fn results(&mut self, a: &Rel, b: &Rel) -> bool {
        fn ids<T>(list: &[(ColumnId, T)]) -> Vec<ColumnId> {
            list.iter().map(|(id, _)| *id).collect()
        }
        match (a, b) {
            (Rel::Project { columns: x, .. }, Rel::Project { columns: y, .. }) => self.made(&ids(x), &ids(y)),
            (
                Rel::Aggregate { groups: x, aggregates: c, .. },
                Rel::Aggregate { groups: y, aggregates: d, .. },
            ) => self.made(&ids(x), &ids(y)) && self.made(&ids(c), &ids(d)),
            _ => true,
        }
    }

    fn call(&mut self, a: &AggregateCall, b: &AggregateCall) -> bool {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        call_scalars(a, &mut |scalar| left.push(scalar));
        call_scalars(b, &mut |scalar| right.push(scalar));
        calls(a, b) && left.into_iter().zip(right).all(|(a, b)| self.scalar(a, b))
    }
}

/// Whether two calls differ in their expressions at most.
fn calls(a: &AggregateCall, b: &AggregateCall) -> bool {
    std::ptr::eq(a.aggregate, b.aggregate)
        && a.distinct == b.distinct
        && a.ty == b.ty
        && a.arguments.len() == b.arguments.len()
        && a.filter.is_some() == b.filter.is_some()
        && directions(&a.order, &b.order)
}

/// Whether there are as many keys on both sides, sorted in the same directions.
fn directions(a: &[SortKey], b: &[SortKey]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.descending == b.descending && a.nulls_first == b.nulls_first)
}
