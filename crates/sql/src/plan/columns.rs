//! Sets of columns, and which of them expressions and relations speak of.
//!
//! Column numbers are unique in a statement, so what a query takes from outside is what it refers to and does not produce.

use crate::logical::walk::{inputs, output, parts, scalars};
use crate::logical::{ColumnId, Query, Rel, Scalar, Subquery};

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

/// Whether a query takes nothing from outside, and gives nothing of it either.
pub(super) fn is_closed(query: &Query) -> bool {
    let (mut referred, mut made) = (ColumnSet::new(), ColumnSet::new());
    gather(&query.rel, &mut referred, &mut made);
    query.output.iter().for_each(|output| referred.insert(output.column));
    referred.subtract(&made);
    referred.is_empty()
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
        | Rel::Common { columns, .. }
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
