//! Walking over logical trees: the parts of expressions and relations, and which columns they speak of.
//!
//! Column numbers are unique in a statement, so what a query takes from outside is what it refers to and does not produce.

use crate::logical::{
    AggregateCall, ColumnId, JoinKind, Query, Rel, Scalar, SortKey, Subquery, SubqueryKind,
};

/// A set of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnSet(Vec<u64>);

impl ColumnSet {
    pub(super) fn new() -> Self {
        ColumnSet::default()
    }

    pub(super) fn insert(&mut self, column: ColumnId) {
        let word = column.0 as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (column.0 % 64);
    }

    pub(super) fn remove(&mut self, column: ColumnId) {
        if let Some(word) = self.0.get_mut(column.0 as usize / 64) {
            *word &= !(1 << (column.0 % 64));
        }
    }

    pub(super) fn contains(&self, column: ColumnId) -> bool {
        self.0.get(column.0 as usize / 64).is_some_and(|word| word >> (column.0 % 64) & 1 == 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for (word, less) in self.0.iter_mut().zip(&other.0) {
            *word &= !less;
        }
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub(super) fn is_subset(&self, of: &Self) -> bool {
        self.0.iter().enumerate().all(|(i, word)| word & !of.0.get(i).copied().unwrap_or(0) == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ColumnId> {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| ColumnId(i as u32 * 64 + bit))
        })
    }
}

impl FromIterator<ColumnId> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> Self {
        let mut set = ColumnSet::new();
        for column in columns {
            set.insert(column);
        }
        set
    }
}

/// Calls `f` with the parts of an expression. The query within a subquery is no part; the left side of IN is.
pub(super) fn parts<'a>(scalar: &'a Scalar, f: &mut dyn FnMut(&'a Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter().for_each(f);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => f(argument),
        Scalar::Not(argument) | Scalar::IsNull(argument) => f(argument),
        Scalar::And(list) | Scalar::Or(list) | Scalar::Row(list) => list.iter().for_each(f),
        Scalar::Compare { left, right, .. } => {
            f(left);
            f(right);
        }
        Scalar::Hold { value, body } => {
            f(value);
            f(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter().chain(right).for_each(f),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                f(condition);
                f(value);
            }
            f(otherwise);
        }
        Scalar::InList { argument, list } => {
            f(argument);
            list.iter().for_each(f);
        }
        Scalar::Quantified { argument, array, .. } => {
            f(argument);
            f(array);
        }
        Scalar::Array { elements, .. } => elements.iter().for_each(f),
        Scalar::Subscript { array, index, .. } => {
            f(array);
            f(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &subquery.kind {
                arguments.iter().for_each(f);
            }
        }
    }
}

/// [`parts`], to be changed.
pub(super) fn parts_mut(scalar: &mut Scalar, f: &mut dyn FnMut(&mut Scalar)) {
    match scalar {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } => {}
        Scalar::Call { arguments, .. }
        | Scalar::Coalesce { arguments, .. }
        | Scalar::Extreme { arguments, .. } => {
            arguments.iter_mut().for_each(f);
        }
        Scalar::Cast { argument, .. } | Scalar::IsBool { argument, .. } => f(argument),
        Scalar::Not(argument) | Scalar::IsNull(argument) => f(argument),
        Scalar::And(list) | Scalar::Or(list) | Scalar::Row(list) => list.iter_mut().for_each(f),
        Scalar::Compare { left, right, .. } => {
            f(left);
            f(right);
        }
        Scalar::Hold { value, body } => {
            f(value);
            f(body);
        }
        Scalar::CompareRows { left, right, .. } => left.iter_mut().chain(right).for_each(f),
        Scalar::Case { branches, otherwise, .. } => {
            for (condition, value) in branches {
                f(condition);
                f(value);
            }
            f(otherwise);
        }
        Scalar::InList { argument, list } => {
            f(argument);
            list.iter_mut().for_each(f);
        }
        Scalar::Quantified { argument, array, .. } => {
            f(argument);
            f(array);
        }
        Scalar::Array { elements, .. } => elements.iter_mut().for_each(f),
        Scalar::Subscript { array, index, .. } => {
            f(array);
            f(index);
        }
        Scalar::Subquery(subquery) => {
            if let SubqueryKind::Quantified { arguments, .. } = &mut subquery.kind {
                arguments.iter_mut().for_each(f);
            }
        }
    }
}

/// Whether `test` holds for the expression or any part of it, queries within subqueries left out.
pub(super) fn any(scalar: &Scalar, test: &dyn Fn(&Scalar) -> bool) -> bool {
    if test(scalar) {
        return true;
    }
    let mut found = false;
    parts(scalar, &mut |part| found = found || any(part, test));
    found
}

/// Calls `f` with the inputs of a relation.
pub(super) fn inputs<'a>(rel: &'a Rel, f: &mut dyn FnMut(&'a Rel)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Values { .. } | Rel::Function { .. } => {}
        Rel::Join { left, right, .. } => {
            f(left);
            f(right);
        }
        Rel::Set { left, right, .. } => {
            f(&left.0);
            f(&right.0);
        }
        Rel::Filter { input, .. }
        | Rel::Project { input, .. }
        | Rel::Aggregate { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => f(input),
    }
}

/// [`inputs`], to be changed.
pub(super) fn inputs_mut(rel: &mut Rel, f: &mut dyn FnMut(&mut Rel)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Values { .. } | Rel::Function { .. } => {}
        Rel::Join { left, right, .. } => {
            f(left);
            f(right);
        }
        Rel::Set { left, right, .. } => {
            f(&mut left.0);
            f(&mut right.0);
        }
        Rel::Filter { input, .. }
        | Rel::Project { input, .. }
        | Rel::Aggregate { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => f(input),
    }
}

/// Calls `f` with the expressions of a relation, its inputs' left out.
pub(super) fn scalars<'a>(rel: &'a Rel, f: &mut dyn FnMut(&'a Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Set { .. } => {}
        Rel::Values { rows, .. } => rows.iter().flatten().for_each(f),
        Rel::Function { arguments, .. } => arguments.iter().for_each(f),
        Rel::Join { on, .. } => on.iter().for_each(f),
        Rel::Filter { predicate, .. } => f(predicate),
        Rel::Project { columns, .. } => columns.iter().for_each(|(_, scalar)| f(scalar)),
        Rel::Aggregate { groups, aggregates, .. } => {
            groups.iter().for_each(|(_, scalar)| f(scalar));
            aggregates.iter().for_each(|(_, call)| call_scalars(call, f));
        }
        Rel::Distinct { on, .. } => on.iter().flatten().for_each(f),
        Rel::Sort { keys, .. } => keys.iter().for_each(|key| f(&key.scalar)),
        Rel::Limit { limit, offset, .. } => limit.iter().chain(offset).for_each(f),
        Rel::Lock { recheck, .. } => recheck.iter().for_each(f),
    }
}

/// Calls `f` with the expressions of an aggregate.
pub(super) fn call_scalars<'a>(call: &'a AggregateCall, f: &mut dyn FnMut(&'a Scalar)) {
    for argument in &call.arguments {
        f(argument);
    }
    if let Some(filter) = &call.filter {
        f(filter);
    }
    for key in &call.order {
        f(&key.scalar);
    }
}

/// [`scalars`], to be changed.
pub(super) fn scalars_mut(rel: &mut Rel, f: &mut dyn FnMut(&mut Scalar)) {
    match rel {
        Rel::Table { .. } | Rel::System { .. } | Rel::Set { .. } => {}
        Rel::Values { rows, .. } => rows.iter_mut().flatten().for_each(f),
        Rel::Function { arguments, .. } => arguments.iter_mut().for_each(f),
        Rel::Join { on, .. } => on.iter_mut().for_each(f),
        Rel::Filter { predicate, .. } => f(predicate),
        Rel::Project { columns, .. } => columns.iter_mut().for_each(|(_, scalar)| f(scalar)),
        Rel::Aggregate { groups, aggregates, .. } => {
            groups.iter_mut().for_each(|(_, scalar)| f(scalar));
            for (_, call) in aggregates {
                call.arguments.iter_mut().for_each(&mut *f);
                call.filter.iter_mut().for_each(&mut *f);
                call.order.iter_mut().for_each(|key: &mut SortKey| f(&mut key.scalar));
            }
        }
        Rel::Distinct { on, .. } => on.iter_mut().flatten().for_each(f),
        Rel::Sort { keys, .. } => keys.iter_mut().for_each(|key| f(&mut key.scalar)),
        Rel::Limit { limit, offset, .. } => limit.iter_mut().chain(offset).for_each(f),
        Rel::Lock { recheck, .. } => recheck.iter_mut().for_each(f),
    }
}

/// The columns a relation gives, in order.
pub(crate) fn output(rel: &Rel, out: &mut Vec<ColumnId>) {
    match rel {
        Rel::Table { columns, .. }
        | Rel::System { columns, .. }
        | Rel::Values { columns, .. }
        | Rel::Set { columns, .. } => out.extend(columns),
        Rel::Function { columns, ordinality, .. } => {
            out.extend(columns);
            out.extend(ordinality);
        }
        Rel::Join { kind: JoinKind::Semi | JoinKind::Anti, left, .. } => output(left, out),
        Rel::Join { left, right, .. } => {
            output(left, out);
            output(right, out);
        }
        Rel::Project { columns, .. } => out.extend(columns.iter().map(|(id, _)| *id)),
        Rel::Aggregate { groups, aggregates, .. } => {
            out.extend(groups.iter().map(|(id, _)| *id));
            out.extend(aggregates.iter().map(|(id, _)| *id));
        }
        Rel::Filter { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Lock { input, .. } => output(input, out),
    }
}

/// The columns a relation gives.
pub(super) fn output_set(rel: &Rel) -> ColumnSet {
    let mut out = Vec::new();
    output(rel, &mut out);
    out.into_iter().collect()
}

/// Adds every column that an expression refers to, those its subqueries take from outside included.
pub(super) fn add_columns(scalar: &Scalar, set: &mut ColumnSet) {
    match scalar {
        Scalar::Column(id) => set.insert(*id),
        Scalar::Subquery(subquery) => set.add(&free_of_subquery(subquery)),
        _ => {}
    }
    parts(scalar, &mut |part| add_columns(part, set));
}

/// Every column that an expression refers to.
pub(super) fn columns_of(scalar: &Scalar) -> ColumnSet {
    let mut set = ColumnSet::new();
    add_columns(scalar, &mut set);
    set
}

/// What a subquery's query takes from outside; the left side of IN is left out.
fn free_of_subquery(subquery: &Subquery) -> ColumnSet {
    free_of_query(&subquery.query)
}

/// What a query takes from outside.
pub(super) fn free_of_query(query: &Query) -> ColumnSet {
    free(&query.rel)
}

/// What a relation takes from outside.
pub(super) fn free(rel: &Rel) -> ColumnSet {
    let (mut referred, mut made) = (ColumnSet::new(), ColumnSet::new());
    gather(rel, &mut referred, &mut made);
    referred.subtract(&made);
    referred
}

fn gather(rel: &Rel, referred: &mut ColumnSet, made: &mut ColumnSet) {
    scalars(rel, &mut |scalar| add_columns(scalar, referred));
    match rel {
        Rel::Table { columns, .. }
        | Rel::System { columns, .. }
        | Rel::Values { columns, .. }
        | Rel::Set { columns, .. } => columns.iter().for_each(|id| made.insert(*id)),
        Rel::Function { columns, ordinality, .. } => {
            columns.iter().chain(ordinality).for_each(|id| made.insert(*id));
        }
        Rel::Project { columns, .. } => columns.iter().for_each(|(id, _)| made.insert(*id)),
        Rel::Aggregate { groups, aggregates, .. } => {
            groups.iter().for_each(|(id, _)| made.insert(*id));
            aggregates.iter().for_each(|(id, _)| made.insert(*id));
        }
        _ => {}
    }
    inputs(rel, &mut |input| gather(input, referred, made));
}

/// A relation that takes another's place while that one is moved.
pub(super) fn nothing() -> Rel {
    Rel::Values { columns: Vec::new(), rows: Vec::new() }
}
