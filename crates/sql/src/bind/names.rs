//! Looking up columns.

use super::binder::{Binder, Clause, RelationKind, Typed, Visible, named, place};
use super::operators::inner;
use super::select::null_of;
use crate::effort;
use crate::logical::{ColumnId, Scalar};
use crate::types::Type;
use crate::{Error, Result, SqlState};
use sqlparser::ast::Expr;

/// What a qualified name comes to.
enum Found {
    Column(usize, ColumnId),
    /// The relation has no such column.
    NoColumn,
    /// There is no such relation.
    NoRelation,
}

impl Binder<'_> {
    /// The column `name`, or the row of a relation of that name.
    pub(super) fn column(&mut self, name: &str, at: Option<usize>) -> Result<Typed> {
        if let Some(column) = self.find_column(name, at)? {
            if let Scalar::Column(id) = column.scalar {
                self.mention(Some(id), at, 1);
            }
            return Ok(column);
        }
        if let Some(row) = self.whole_row(name, at)? {
            self.mention(None, at, 1);
            return Ok(row);
        }
        let error = Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        Err(place(self.hint_column(error, None, name), at))
    }

    fn find_column(&mut self, name: &str, at: Option<usize>) -> Result<Option<Typed>> {
        for level in (0..self.levels.len()).rev() {
            if !self.sees(level) {
                continue;
            }
            let mut matches = self.levels[level]
                .sight
                .columns
                .iter()
                .filter(|(column, _)| column == name)
                .map(|(_, id)| *id);
            if let Some(id) = matches.next() {
                if matches.next().is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(place(Error::new(SqlState::AMBIGUOUS_COLUMN, message), at));
                }
                return Ok(Some(self.use_column(level, id, at)));
            }
        }
        Ok(None)
    }

    fn sees(&self, level: usize) -> bool {
        self.levels[level].open
    }

    /// A relation's row as one value. Where an outer join has found no row, the value is NULL, not a row of NULLs.
    fn whole_row(&mut self, name: &str, at: Option<usize>) -> Result<Option<Typed>> {
        let Some((level, relation)) = self.relation_named(name) else { return Ok(None) };
        let relation = relation.clone();
        let parts = self.row_of_relation(level, &relation, at)?.into_iter().map(|part| part.scalar).collect();
        let row = Scalar::Row(parts);
        // PostgreSQL makes the row of a join with an alias from its columns in any case.
        if !relation.optional || relation.kind == RelationKind::Join {
            return Ok(Some(Typed::new(row, Type::Record).at(at)));
        }
        let Some(witness) = relation.witness else {
            let what =
                format!("the row of \"{name}\", optional in an outer join and without a NOT NULL column,");
            return Err(place(Error::unsupported(what), at));
        };
        let missing = Scalar::IsNull(Box::new(self.use_column(level, witness, at).scalar));
        let scalar = Scalar::Case {
            branches: vec![(missing, null_of(Type::Record))],
            otherwise: Box::new(row),
            ty: Type::Record,
        };
        Ok(Some(Typed::new(scalar, Type::Record).at(at)))
    }

    /// The columns of the relation that an expression names as a whole; `None` where it is something else.
    pub(super) fn relation_parts(&mut self, expr: &Expr) -> Result<Option<Vec<Typed>>> {
        let Expr::Identifier(ident) = inner(expr) else { return Ok(None) };
        let (name, at) = named(ident)?;
        let keyword = ident.quote_style.is_none() && self.keyword_function(&name, at)?.is_some();
        if keyword || self.find_column(&name, at)?.is_some() {
            return Ok(None);
        }
        let Some((level, relation)) = self.relation_named(&name) else { return Ok(None) };
        let relation = relation.clone();
        self.mention(None, at, 1);
        self.row_of_relation(level, &relation, at).map(Some)
    }

    fn relation_named(&self, name: &str) -> Option<(usize, &Visible)> {
        (0..self.levels.len())
            .rev()
            .filter(|level| self.sees(*level))
            .find_map(|level| self.relation_at(level, None, name).map(|relation| (level, relation)))
    }

    fn row_of_relation(&mut self, level: usize, relation: &Visible, at: Option<usize>) -> Result<Vec<Typed>> {
        effort::made(2 * relation.columns.len())?;
        Ok(relation.columns.iter().map(|(_, id)| self.use_column(level, *id, at)).collect())
    }

    /// The column `qualifier.name`.
    pub(super) fn qualified_column(
        &mut self,
        schema: Option<&str>,
        qualifier: &str,
        name: &str,
        at: Option<usize>,
    ) -> Result<Typed> {
        match self.find_qualified(schema, qualifier, name, at)? {
            Found::Column(level, id) => {
                self.mention(Some(id), at, 2 + usize::from(schema.is_some()));
                Ok(self.use_column(level, id, at))
            }
            Found::NoColumn => {
                let error = Error::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column {qualifier}.{name} does not exist"),
                );
                Err(place(self.hint_column(error, Some(qualifier), name), at))
            }
            Found::NoRelation => Err(place(self.missing_relation(qualifier), at)),
        }
    }

    fn find_qualified(
        &self,
        schema: Option<&str>,
        qualifier: &str,
        name: &str,
        at: Option<usize>,
    ) -> Result<Found> {
        for level in (0..self.levels.len()).rev().filter(|level| self.sees(*level)) {
            if let Some(relation) = self.relation_at(level, schema, qualifier) {
                let mut columns = relation.columns.iter().filter(|(column, _)| column == name);
                return match (columns.next(), columns.next()) {
                    (None, _) => Ok(Found::NoColumn),
                    (Some((_, id)), None) => Ok(Found::Column(level, *id)),
                    (Some(_), Some(_)) => {
                        let message = format!("column reference \"{name}\" is ambiguous");
                        Err(place(Error::new(SqlState::AMBIGUOUS_COLUMN, message), at))
                    }
                };
            }
        }
        Ok(Found::NoRelation)
    }

    fn relation_at(&self, level: usize, schema: Option<&str>, name: &str) -> Option<&Visible> {
        self.levels[level].sight.relations.iter().find(|relation| {
            relation.name.as_deref() == Some(name)
                && schema.is_none_or(|schema| relation.schema.as_deref() == Some(schema))
        })
    }

    /// The columns that `*` stands for.
    pub(super) fn star(&self) -> Vec<(String, ColumnId)> {
        self.levels.last().map(|level| level.sight.columns.clone()).unwrap_or_default()
    }

    /// The columns that `t.*` stands for, and the number of their level.
    pub(super) fn qualified_star(
        &self,
        schema: Option<&str>,
        name: &str,
        at: Option<usize>,
    ) -> Result<(usize, Vec<(String, ColumnId)>)> {
        for level in (0..self.levels.len()).rev().filter(|level| self.sees(*level)) {
            if let Some(relation) = self.relation_at(level, schema, name) {
                return Ok((level, relation.columns.clone()));
            }
        }
        Err(place(self.missing_relation(name), at))
    }

    /// The error for a relation that is not in sight, though it may stand in the FROM clause.
    pub(super) fn missing_relation(&self, name: &str) -> Error {
        let hidden = self.levels.iter().rev().any(|level| {
            level.hidden.iter().any(|hidden| hidden == name)
                || !level.open && level.sight.relations.iter().any(|r| r.name.as_deref() == Some(name))
        });
        if hidden {
            let is_lateral = self.levels.iter().rev().any(|level| {
                level.open && level.clause != Clause::JoinCondition && level.target.as_deref() == Some(name)
            });
            return Error::new(
                if is_lateral { SqlState::INVALID_COLUMN_REFERENCE } else { SqlState::UNDEFINED_TABLE },
                format!("invalid reference to FROM-clause entry for table \"{name}\""),
            )
            .hint(format!(
                "There is an entry for table \"{name}\", but it cannot be referenced from this part of the query."
            ));
        }
        let aliased = self
            .levels
            .iter()
            .rev()
            .flat_map(|level| &level.sight.relations)
            .find(|relation| relation.table.as_ref().is_some_and(|table| table.name == name));
        match aliased.and_then(|relation| relation.name.as_deref()) {
            Some(alias) => Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("invalid reference to FROM-clause entry for table \"{name}\""),
            )
            .hint(format!("Perhaps you meant to reference the table alias \"{alias}\".")),
            None => Error::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{name}\""),
            ),
        }
    }

    /// Adds PostgreSQL's hint about columns with nearly the name asked for.
    fn hint_column(&self, error: Error, qualifier: Option<&str>, name: &str) -> Error {
        // As in PostgreSQL: at most three edits (and fewer than half of the letters), counting those of the qualifier.
        let mut best = 4;
        let mut found: Vec<(&str, &str)> = Vec::new();
        for level in self.levels.iter().rev() {
            for relation in &level.sight.relations {
                let Some(alias) = relation.name.as_deref() else { continue };
                let base = qualifier.map_or(0, |qualifier| edits(qualifier, alias));
                for (column, _) in &relation.columns {
                    let edits = base + edits(name, column);
                    if edits * 2 > name.len().max(1) && column != name || edits > best.min(3) {
                        continue;
                    }
                    if edits < best {
                        best = edits;
                        found.clear();
                    }
                    found.push((alias, column));
                }
            }
        }
        match found.as_slice() {
            [(alias, column)] => {
                error.hint(format!("Perhaps you meant to reference the column \"{alias}.{column}\"."))
            }
            [(alias, column), (second, other)] => error.hint(format!(
                "Perhaps you meant to reference the column \"{alias}.{column}\" or the column \"{second}.{other}\"."
            )),
            _ => error,
        }
    }
}

/// The number of letters to be inserted, removed or replaced.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
