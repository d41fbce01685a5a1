//! The first pass: expressions are simplified, subqueries in FROM merged into the query around them, EXISTS and IN turned into joins.
//!
//! # Merging
//! A projection in the input of a join, filter, aggregate or projection goes; what it computed is put where it is used. On the side
//! of an outer join that may be NULL only mere columns of that side are: anything else, columns of the query around included, would not
//! become NULL there. Columns that are named in lists (a query's output, the sides of UNION) are given by a projection put there again.
//!
//! # Subqueries as joins
//! A condition of WHERE counts only as far as it is true, so EXISTS and IN are semi joins and NOT EXISTS is an anti join. NOT IN is none:
//! it is not true when the subquery has a NULL. A list of rows that is searched by columns of a table is such a join with its rows, where an index may help.

use super::columns::{ColumnSet, columns_of, free, nothing, output_set};
use super::scalar::{Substitution, conjunction, conjuncts, constant, has_subquery, inline, refers_to, work};
use super::simplify::Simplifier;
use crate::catalog::Index;
use crate::logical::walk::{inputs, output, parts_mut, scalars_mut, size};
use crate::logical::{
    ColumnId, ColumnInfo, Common, Comparison, JoinKind, Query, Rel, Scalar, Subquery, SubqueryKind,
    is_volatile, rel_is_volatile, type_of,
};
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Result, effort};
use std::mem::replace;
use std::sync::atomic::Ordering;

/// Work of an expression that is rather computed once than wherever it is used.
const MERGED_WORK: f64 = 40.0;

/// Nodes of an expression, at most, that may be put wherever it is used: what is used twice at every step on the way up doubles with it,
/// also where it is no work.
const MERGED_NODES: usize = 1000;

/// See the module.
pub(super) struct Normaliser<'a> {
    pub(super) simplifier: Simplifier<'a>,
    pub(super) merged: Substitution,
    /// Whether there are outer joins.
    pub(super) outer_joins: bool,
    /// Columns that it adds to those of the statement.
    pub(super) added: Vec<ColumnInfo>,
}

impl Normaliser<'_> {
    /// A query: that of the statement or of a subquery.
    pub(super) fn query(&mut self, query: &mut Query) -> Result<()> {
        self.rel(&mut query.rel)?;
        let columns: Vec<ColumnId> = query.output.iter().map(|output| output.column).collect();
        self.expose(&mut query.rel, &columns);
        Ok(())
    }

    /// An expression, with the subqueries in it.
    pub(super) fn scalar(&mut self, scalar: &mut Scalar) -> Result<()> {
        if !self.merged.is_empty() {
            self.merged.scalar(scalar);
            effort::made(0)?;
        }
        self.subqueries(scalar)?;
        self.simplifier.simplify(scalar)
    }

    fn subqueries(&mut self, scalar: &mut Scalar) -> Result<()> {
        match scalar {
            Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {
                return Ok(());
            }
            Scalar::Subquery(subquery) => self.query(&mut subquery.query)?,
            _ => {}
        }
        self.simplifier.enter()?;
        let mut result = Ok(());
        parts_mut(scalar, &mut |part| {
            if result.is_ok() {
                result = self.subqueries(part);
            }
        });
        self.simplifier.leave();
        result
    }

    /// A relation.
    pub(super) fn rel(&mut self, rel: &mut Rel) -> Result<()> {
        effort::made(1)?;
        self.simplifier.enter()?;
        match rel {
            Rel::Table { .. } | Rel::System { .. } => {}
            Rel::Common { common, columns, .. } => {
                if common.uses.load(Ordering::Relaxed) == 1 {
                    *rel = used_once(common, columns);
                    self.rel(rel)?;
                }
            }
            Rel::Values { rows, .. } => {
                for scalar in rows.iter_mut().flatten() {
                    self.scalar(scalar)?;
                }
            }
            Rel::Function { arguments, .. } => {
                for scalar in arguments {
                    self.scalar(scalar)?;
                }
            }
            Rel::Join { .. } => self.join(rel)?,
            Rel::Filter { .. } => self.filter(rel)?,
            Rel::Project { input, columns } => {
                self.rel(input)?;
                self.merge(input, false);
                for (_, scalar) in columns.iter_mut() {
                    self.scalar(scalar)?;
                }
                for (id, _) in columns.iter() {
                    // From here on it is the projection's.
                    self.merged.0.remove(id);
                }
            }
            Rel::Set { left, right, .. } => {
                for side in [left, right] {
                    self.rel(&mut side.0)?;
                    self.expose(&mut side.0, &side.1);
                }
            }
            Rel::Distinct { input, on: None } => {
                let mut columns = Vec::new();
                output(input, &mut columns);
                self.rel(input)?;
                let mut now = Vec::new();
                output(input, &mut now);
                if columns != now {
                    self.project(input, &columns);
                }
            }
            Rel::Aggregate { input, .. } => {
                self.rel(input)?;
                self.merge(input, false);
                self.own_scalars(rel)?;
                if let Rel::Aggregate { groups, .. } = rel {
                    for (id, _) in groups {
                        self.merged.0.remove(id);
                    }
                }
            }
            Rel::Distinct { input, .. }
            | Rel::Sort { input, .. }
            | Rel::Limit { input, .. }
            | Rel::Lock { input, .. } => {
                self.rel(input)?;
                self.own_scalars(rel)?;
            }
        }
        self.simplifier.leave();
        if let Rel::Limit { .. } = rel {
            limit_below_projection(rel);
        }
        Ok(())
    }

    fn own_scalars(&mut self, rel: &mut Rel) -> Result<()> {
        let mut result = Ok(());
        scalars_mut(rel, &mut |scalar| {
            if result.is_ok() {
                result = self.scalar(scalar);
            }
        });
        result
    }

    /// Dissolves a projection, if that is possible.
    fn merge(&mut self, rel: &mut Box<Rel>, nullable: bool) {
        let Rel::Project { input, columns } = &**rel else { return };
        let own = if nullable { output_set(input) } else { ColumnSet::new() };
        let mergeable = columns.iter().all(|(_, scalar)| match scalar {
            Scalar::Column(id) if nullable => own.contains(*id),
            Scalar::Column(_) => true,
            _ if nullable => false,
            other => {
                !is_volatile(other)
                    && !has_subquery(other)
                    && work(other) < MERGED_WORK
                    && size(other) <= MERGED_NODES
            }
        });
        if !mergeable {
            return;
        }
        let Rel::Project { input, columns } = replace(&mut **rel, nothing()) else { return };
        for (id, scalar) in columns {
            if !matches!(scalar, Scalar::Column(same) if same == id) {
                self.merged.0.insert(id, scalar);
            }
        }
        *rel = input;
    }

    /// Has the columns given by the relation, where they went into expressions.
    fn expose(&mut self, rel: &mut Rel, columns: &[ColumnId]) {
        if columns.iter().any(|id| self.merged.0.contains_key(id)) {
            self.project(rel, columns);
        }
    }

    fn project(&mut self, rel: &mut Rel, columns: &[ColumnId]) {
        let mut definitions: Vec<(ColumnId, Scalar)> = Vec::with_capacity(columns.len());
        for id in columns {
            if definitions.iter().any(|(other, _)| other == id) {
                continue;
            }
            let mut scalar = Scalar::Column(*id);
            self.merged.scalar(&mut scalar);
            definitions.push((*id, scalar));
        }
        for id in columns {
            self.merged.0.remove(id);
        }
        let input = Box::new(replace(rel, nothing()));
        *rel = Rel::Project { input, columns: definitions };
    }

    fn join(&mut self, rel: &mut Rel) -> Result<()> {
        let Rel::Join { kind, left, right, on, .. } = rel else { return Ok(()) };
        let (left_nullable, right_nullable) = match kind {
            JoinKind::Inner | JoinKind::Semi | JoinKind::Anti => (false, false),
            JoinKind::Left => (false, true),
            JoinKind::Full => (true, true),
        };
        self.outer_joins |= right_nullable;
        for (side, nullable) in [(left, left_nullable), (right, right_nullable)] {
            let mut columns = Vec::new();
            if nullable {
                output(side, &mut columns);
            }
            self.rel(side)?;
            self.merge(side, nullable);
            if !nullable {
                continue;
            }
            let own = output_set(side);
            let computed = |id: &ColumnId| {
                self.merged.0.get(id).is_some_and(|scalar| {
                    let mut scalar = scalar.clone();
                    self.merged.scalar(&mut scalar);
                    !matches!(scalar, Scalar::Column(id) if own.contains(id))
                })
            };
            if columns.iter().any(computed) {
                self.project(side, &columns);
            }
        }
        let Some(condition) = on else { return Ok(()) };
        self.scalar(condition)?;
        // Subqueries in the condition of an inner join are conditions of WHERE.
        if *kind == JoinKind::Inner && has_subquery(condition) {
            let predicate = on.take();
            if let Some(predicate) = predicate {
                let input = Box::new(replace(rel, nothing()));
                *rel = Rel::Filter { input, predicate };
                self.conditions(rel)?;
            }
        }
        Ok(())
    }

    fn filter(&mut self, rel: &mut Rel) -> Result<()> {
        let Rel::Filter { input, predicate } = rel else { return Ok(()) };
        self.rel(input)?;
        self.merge(input, false);
        self.scalar(predicate)?;
        self.conditions(rel)
    }

    /// The conditions of a filter whose parts are simple already.
    fn conditions(&mut self, rel: &mut Rel) -> Result<()> {
        let Rel::Filter { mut input, predicate } = replace(rel, nothing()) else { return Ok(()) };
        let mut conditions = Vec::new();
        conjuncts(predicate, &mut conditions);
        if let Rel::Filter { input: below, predicate } = &mut *input {
            let predicate = replace(predicate, super::scalar::literal_bool(true));
            let mut all = Vec::new();
            conjuncts(predicate, &mut all);
            all.append(&mut conditions);
            conditions = all;
            input = Box::new(replace(&mut **below, nothing()));
        }
        // What is never true needs no row; a limit also spares reading them.
        if conditions.iter().any(|part| constant(part).is_some_and(|value| value.as_bool() != Some(true))) {
            let limit = Some(Scalar::Literal { value: Value::Int(0), ty: crate::Type::Int8 });
            *rel = Rel::Limit { input, limit, offset: None };
            return Ok(());
        }
        conditions.retain(|part| constant(part).is_none());
        let mut rest = Vec::with_capacity(conditions.len());
        for condition in conditions {
            if let Some((values, on)) = self.listed_rows(&condition, &input) {
                let (right, on) = (Box::new(values), conjunction(on));
                input = Box::new(Rel::Join { kind: JoinKind::Semi, left: input, right, on, lateral: false });
                continue;
            }
            if !is_candidate(&condition) {
                rest.push(condition);
                continue;
            }
            let left_columns = output_set(&input);
            match as_join(&condition, &left_columns) {
                Some((kind, right, on)) => {
                    input = Box::new(Rel::Join {
                        kind,
                        left: input,
                        right: Box::new(right),
                        on: conjunction(on),
                        lateral: false,
                    });
                }
                None => rest.push(condition),
            }
        }
        *rel = match conjunction(rest) {
            Some(predicate) => Rel::Filter { input, predicate },
            None => *input,
        };
        Ok(())
    }
}

/// `(a, b) IN ((1, 2), (3, 4))`: the columns, and the values for them of each row.
struct ListedRows {
    columns: Vec<ColumnId>,
    rows: Vec<Vec<Scalar>>,
}

impl Normaliser<'_> {
    /// A list of rows that columns of a table are looked for in, as a relation to join with, and on what: where an index begins with one of
    /// the columns, rows are found by it.
    fn listed_rows(&mut self, condition: &Scalar, input: &Rel) -> Option<(Rel, Vec<Scalar>)> {
        let Scalar::Or(branches) = condition else { return None };
        let ListedRows { columns, mut rows } = ListedRows::new(branches)?;
        if !has_index(input, &columns) {
            return None;
        }
        let mut types = Vec::with_capacity(columns.len());
        for position in 0..columns.len() {
            let of_row = |row: &Vec<Scalar>| type_of(&row[position], self.simplifier.columns);
            let ty = of_row(&rows[0]);
            let differ = rows.iter().any(|row| of_row(row) != ty);
            types.push(if differ { Type::Int8 } else { ty });
            for row in rows.iter_mut().filter(|_| differ) {
                match &mut row[position] {
                    // Integers of all widths are the same values.
                    Scalar::Literal { ty, .. } if ty.is_integer() => *ty = Type::Int8,
                    _ => return None,
                }
            }
        }
        let (mut made, mut on) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
        for (number, (column, ty)) in columns.into_iter().zip(types).enumerate() {
            let id = ColumnId((self.simplifier.columns.0.len() + self.added.len()) as u32);
            let name = format!("column{}", number + 1);
            self.added.push(ColumnInfo { name, ty, modifier: NO_MODIFIER, origin: None, nullable: false });
            made.push(id);
            let (left, right) = (Box::new(Scalar::Column(column)), Box::new(Scalar::Column(id)));
            on.push(Scalar::Compare { op: Comparison::Equal, left, right });
        }
        Some((Rel::Values { columns: made, rows }, on))
    }
}

impl ListedRows {
    /// Of the branches of an OR, each of which equates the same columns with values.
    fn new(branches: &[Scalar]) -> Option<Self> {
        let (mut columns, mut rows): (Vec<ColumnId>, _) = (Vec::new(), Vec::new());
        for branch in branches {
            let Scalar::And(parts) = branch else { return None };
            // With NULL in it, it is never true.
            if parts.iter().any(|part| constant(part).is_some()) {
                continue;
            }
            let equated: Vec<(ColumnId, &Scalar)> = parts.iter().map(equated).collect::<Option<_>>()?;
            if columns.is_empty() {
                columns = equated.iter().map(|(id, _)| *id).collect();
            }
            let of_column = |id: &ColumnId| {
                let mut all = equated.iter().filter(|(column, _)| column == id);
                all.next().filter(|_| all.next().is_none()).map(|(_, value)| (*value).clone())
            };
            let row: Vec<Scalar> = columns.iter().map(of_column).collect::<Option<_>>()?;
            if row.len() != equated.len() {
                return None;
            }
            rows.push(row);
        }
        (rows.len() > 1).then_some(ListedRows { columns, rows })
    }
}

/// `column = value`, where that is a constant or a parameter.
fn equated(scalar: &Scalar) -> Option<(ColumnId, &Scalar)> {
    match scalar {
        Scalar::Compare { op: Comparison::Equal, left, right } => match (&**left, &**right) {
            (Scalar::Column(id), value @ (Scalar::Literal { .. } | Scalar::Parameter { .. })) => {
                Some((*id, value))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether these are columns of one table, which has an index that begins with one of them.
fn has_index(rel: &Rel, wanted: &[ColumnId]) -> bool {
    if let Rel::Table { table, columns, .. } = rel {
        let position = |id: &ColumnId| columns.iter().position(|column| column == id);
        let numbers: Option<Vec<_>> =
            wanted.iter().map(|id| table.columns.get(position(id)?).map(|column| column.number)).collect();
        return numbers.is_some_and(|numbers| {
            let leads =
                |index: &Index| index.columns.first().is_some_and(|first| numbers.contains(&first.column));
            table.indexes.iter().any(leads)
        });
    }
    let mut found = false;
    inputs(rel, &mut |input| found = found || has_index(input, wanted));
    found
}

/// A WITH query in place of its only use.
fn used_once(common: &Common, columns: &[ColumnId]) -> Rel {
    let given = common.query.output.iter().map(|output| Scalar::Column(output.column));
    let columns = columns.iter().copied().zip(given).collect();
    Rel::Project { input: Box::new(common.query.rel.clone()), columns }
}

/// A projection computes nothing for rows that a limit leaves out; of those before the offset, as in PostgreSQL, only what is volatile.
fn limit_below_projection(rel: &mut Rel) {
    let Rel::Limit { input, limit, offset } = rel else { return };
    let Rel::Project { input: below, columns } = &mut **input else { return };
    if offset.is_some() && columns.iter().any(|(_, scalar)| is_volatile(scalar)) {
        return;
    }
    let below = replace(&mut **below, nothing());
    let columns = std::mem::take(columns);
    let (limit, offset) = (limit.take(), offset.take());
    let mut limited = Rel::Limit { input: Box::new(below), limit, offset };
    limit_below_projection(&mut limited);
    *rel = Rel::Project { input: Box::new(limited), columns };
}

fn is_candidate(condition: &Scalar) -> bool {
    match condition {
        Scalar::Subquery(subquery) => !matches!(subquery.kind, SubqueryKind::Scalar | SubqueryKind::Array(_)),
        Scalar::Not(inner) => {
            matches!(&**inner, Scalar::Subquery(subquery) if matches!(subquery.kind, SubqueryKind::Exists))
        }
        _ => false,
    }
}

/// The join that a condition with a subquery is.
fn as_join(condition: &Scalar, left: &ColumnSet) -> Option<(JoinKind, Rel, Vec<Scalar>)> {
    match condition {
        Scalar::Subquery(subquery) => match &subquery.kind {
            SubqueryKind::Exists => exists(subquery, left).map(|(right, on)| (JoinKind::Semi, right, on)),
            SubqueryKind::Quantified { arguments, op: Comparison::Equal, all: false } => {
                member(subquery, arguments, left).map(|(right, on)| (JoinKind::Semi, right, on))
            }
            _ => None,
        },
        Scalar::Not(inner) => match &**inner {
            Scalar::Subquery(subquery) => {
                exists(subquery, left).map(|(right, on)| (JoinKind::Anti, right, on))
            }
            _ => None,
        },
        _ => None,
    }
}

/// EXISTS: the relation to join with, and on what.
fn exists(subquery: &Subquery, left: &ColumnSet) -> Option<(Rel, Vec<Scalar>)> {
    if !free(&subquery.query.rel).intersects(left) {
        // It is run once.
        return None;
    }
    let mut rel = &subquery.query.rel;
    loop {
        rel = match rel {
            Rel::Project { input, columns } if !columns.iter().any(|(_, scalar)| is_volatile(scalar)) => {
                input
            }
            Rel::Sort { input, .. } | Rel::Distinct { input, .. } => input,
            Rel::Limit { input, limit, offset: None }
                if limit.as_ref().is_none_or(|limit| match constant(limit) {
                    Some(Value::Int(limit)) => *limit > 0,
                    Some(Value::Null) => true,
                    _ => false,
                }) =>
            {
                input
            }
            _ => break,
        };
    }
    let mut right = rel.clone();
    let mut on = Vec::new();
    pull_correlated(&mut right, left, &mut on);
    decorrelated(right, on, left)
}

/// IN: the relation to join with, and on what.
fn member(subquery: &Subquery, arguments: &[Scalar], left: &ColumnSet) -> Option<(Rel, Vec<Scalar>)> {
    if arguments.iter().any(|part| is_volatile(part) || has_subquery(part))
        || !arguments.iter().any(|part| refers_to(part, left))
    {
        return None;
    }
    let mut rel = &subquery.query.rel;
    while let Rel::Sort { input, .. } | Rel::Distinct { input, on: None } = rel {
        rel = input;
    }
    let mut definitions: &[(ColumnId, Scalar)] = &[];
    if let Rel::Project { input, columns } = rel
        && !columns.iter().any(|(_, scalar)| is_volatile(scalar) || has_subquery(scalar))
    {
        (rel, definitions) = (input, columns);
    }
    let mut on = Vec::new();
    for (argument, output) in arguments.iter().zip(&subquery.query.output) {
        let mut column = Scalar::Column(output.column);
        inline(&mut column, definitions);
        on.push(Scalar::Compare {
            op: Comparison::Equal,
            left: Box::new(argument.clone()),
            right: Box::new(column),
        });
    }
    let mut right = rel.clone();
    if free(&right).intersects(left) {
        pull_correlated(&mut right, left, &mut on);
    }
    decorrelated(right, on, left)
}

fn decorrelated(right: Rel, on: Vec<Scalar>, left: &ColumnSet) -> Option<(Rel, Vec<Scalar>)> {
    // A volatile condition is computed for the rows of the subquery, as many as there are.
    if free(&right).intersects(left) || rel_is_volatile(&right) || on.iter().any(is_volatile) {
        return None;
    }
    let columns = output_set(&right);
    let joined = on.iter().any(|part| {
        let refers = columns_of(part);
        refers.intersects(&columns) && refers.intersects(left)
    });
    joined.then_some((right, on))
}

/// Takes conditions on columns of the outer query out of a relation, as far as they can be asked of its result as well.
fn pull_correlated(rel: &mut Rel, left: &ColumnSet, on: &mut Vec<Scalar>) {
    match rel {
        Rel::Filter { input, predicate } => {
            pull_correlated(input, left, on);
            let mut conditions = Vec::new();
            conjuncts(replace(predicate, super::scalar::literal_bool(true)), &mut conditions);
            let (outer, inner): (Vec<_>, Vec<_>) =
                conditions.into_iter().partition(|part| refers_to(part, left));
            on.extend(outer);
            match conjunction(inner) {
                Some(rest) => *predicate = rest,
                None => *rel = replace(&mut **input, nothing()),
            }
        }
        Rel::Join { kind: JoinKind::Inner, left: a, right: b, on: condition, .. } => {
            pull_correlated(a, left, on);
            pull_correlated(b, left, on);
            if let Some(predicate) = condition.take() {
                let mut conditions = Vec::new();
                conjuncts(predicate, &mut conditions);
                let (outer, inner): (Vec<_>, Vec<_>) =
                    conditions.into_iter().partition(|part| refers_to(part, left));
                on.extend(outer);
                *condition = conjunction(inner);
            }
        }
        Rel::Join { kind: JoinKind::Left | JoinKind::Semi | JoinKind::Anti, left: a, .. } => {
            pull_correlated(a, left, on);
        }
        _ => {}
    }
}
