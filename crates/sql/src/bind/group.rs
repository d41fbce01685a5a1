//! GROUP BY: what stands above an aggregation refers to its groups and aggregates only.

use super::binder::{Binder, Level, place};
use crate::logical::walk::{all_scalars_mut, parts_mut};
use crate::logical::{ColumnId, Scalar, same};
use crate::{Error, Result, SqlState};

/// One aggregation.
struct Grouping<'g, 'b, 'a> {
    binder: &'b Binder<'a>,
    level: &'g Level,
    groups: &'g mut Vec<(ColumnId, Scalar)>,
    /// The first column that is not grouped, and whether it stands in a subquery.
    ungrouped: Option<(ColumnId, bool)>,
}

impl Binder<'_> {
    /// Replaces what the groups compute by their columns. Columns that depend on a grouped primary key become groups. What is left must not
    /// refer to columns of the level.
    pub(super) fn check_grouped(
        &self,
        level: &Level,
        groups: &mut Vec<(ColumnId, Scalar)>,
        scalars: Vec<&mut Scalar>,
    ) -> Result<()> {
        let mut grouping = Grouping { binder: self, level, groups, ungrouped: None };
        for scalar in scalars {
            grouping.replace(scalar, false);
            if let Some((id, inner)) = grouping.ungrouped {
                return Err(ungrouped(self, level, id, inner));
            }
        }
        Ok(())
    }
}

impl Grouping<'_, '_, '_> {
    fn replace(&mut self, scalar: &mut Scalar, inner: bool) {
        if self.ungrouped.is_some() {
            return;
        }
        if let Some((id, _)) = self.groups.iter().find(|(_, group)| same(group, scalar)) {
            *scalar = Scalar::Column(*id);
            return;
        }
        if let Scalar::Column(id) = scalar {
            self.column(*id, inner);
            return;
        }
        if let Scalar::Subquery(subquery) = scalar {
            all_scalars_mut(&mut subquery.query.rel, &mut |scalar| self.replace(scalar, true));
        }
        parts_mut(scalar, &mut |child| self.replace(child, inner));
    }

    fn column(&mut self, id: ColumnId, inner: bool) {
        if self.binder.owner(id) != Some(self.level.serial) {
            return;
        }
        if self.depends_on_groups(id) {
            self.groups.push((id, Scalar::Column(id)));
        } else {
            self.ungrouped = Some((id, inner));
        }
    }

    /// Whether a column's table has its whole primary key among the groups.
    fn depends_on_groups(&self, id: ColumnId) -> bool {
        let relations = &self.level.sight.relations;
        let Some(relation) = relations.iter().find(|r| r.columns.iter().any(|(_, column)| *column == id))
        else {
            return false;
        };
        let Some(key) = relation.table.as_ref().and_then(|table| table.primary().map(|key| (table, key)))
        else {
            return false;
        };
        let (table, key) = key;
        key.columns.iter().all(|part| {
            table.position(part.column).and_then(|position| relation.columns.get(position)).is_some_and(
                |(_, id)| {
                    self.groups.iter().any(|(_, group)| matches!(group, Scalar::Column(group) if group == id))
                },
            )
        })
    }
}

fn ungrouped(binder: &Binder<'_>, level: &Level, id: ColumnId, inner: bool) -> Error {
    let qualified = level.sight.relations.iter().find_map(|relation| {
        let (name, _) = relation.columns.iter().find(|(_, column)| *column == id)?;
        Some(format!("{}.{name}", relation.name.as_deref()?))
    });
    let name = qualified.unwrap_or_else(|| binder.columns.get(id).name.clone());
    let message = if inner {
        format!("subquery uses ungrouped column \"{name}\" from outer query")
    } else {
        format!("column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function")
    };
    let at = level
        .uses
        .iter()
        .filter(|(used, _, within)| *used == id && *within == inner)
        .find_map(|(_, at, _)| *at);
    place(Error::new(SqlState::GROUPING_ERROR, message), at)
}
