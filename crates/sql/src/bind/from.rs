//! FROM: tables, subqueries, functions and their joins.

use super::binder::{
    Again, Binder, Clause, CommonTable, RelationKind, Sight, Typed, Visible, VolatileUse, named, place,
};
use super::tokens::position;
use super::{identifier, name_parts, name_position};
use crate::catalog::Relation;
use crate::effort;
use crate::functions::{Resolved, resolve_function};
use crate::logical::walk::{all_outputs, all_scalars, for_each_column, output};
use crate::logical::{
    ColumnId, ColumnInfo, Common, Comparison, JoinKind, RecheckStep, Rel, Scalar, rel_is_open,
    rel_is_volatile,
};
use crate::system;
use crate::types::{NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, FunctionArg, JoinConstraint, JoinOperator, Spanned, TableFactor, TableWithJoins};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Items of one FROM clause, at most: a join is a level of depth to all that comes behind.
const MAX_ITEMS: usize = 400;

/// The alias of an item: its name and those of its columns.
#[derive(Default)]
struct Alias {
    name: Option<String>,
    columns: Vec<String>,
}

/// What a row lock has to know of a FROM clause: the conditions of its joins. Those inside of an outer join's optional side are left out:
/// no row of that side can be locked, so they stay what they are.
pub(super) type Joined = Vec<RecheckStep>;

impl<'a> Binder<'a> {
    /// The items of a FROM clause, joined. They become visible in the current level.
    pub(super) fn bind_from(
        &mut self,
        items: &'a [TableWithJoins],
        joined: &mut Joined,
    ) -> Result<Option<Rel>> {
        let mut all = None;
        for item in items {
            let base = self.mark();
            self.level().lateral_used = false;
            let rel = self.within(Clause::From, |this| this.joined_item(item, joined))?;
            all = Some(match all {
                None => rel,
                Some(before) => {
                    let lateral = self.level().lateral_used && self.depends(&rel, 0, base.0);
                    cross(before, rel, lateral)
                }
            });
        }
        Ok(all)
    }

    /// An item with its joins. Says in `lateral_used` whether it refers to columns of the same FROM clause.
    fn joined_item(&mut self, item: &'a TableWithJoins, joined: &mut Joined) -> Result<Rel> {
        let TableWithJoins { relation, joins } = item;
        let base = self.mark();
        let first = joined.len();
        let mut rel = self.factor(relation, joined)?;
        for join in joins {
            rel = self.join(rel, base, join, joined, first)?;
        }
        Ok(rel)
    }

    /// Whether `rel` refers to columns of the relations `from..to` of the FROM clause.
    fn depends(&self, rel: &Rel, from: usize, to: usize) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let mut found = false;
        all_scalars(rel, &mut |scalar| {
            for_each_column(scalar, &mut |id| {
                found |= level.sight.relations[from..to]
                    .iter()
                    .any(|relation| relation.columns.iter().any(|(_, column)| *column == id));
            });
        });
        found
    }

    /// How much is visible: relations and columns.
    fn mark(&mut self) -> (usize, usize) {
        let sight = &self.level().sight;
        (sight.relations.len(), sight.columns.len())
    }

    fn join(
        &mut self,
        left: Rel,
        base: (usize, usize),
        join: &'a ast::Join,
        joined: &mut Joined,
        first: usize,
    ) -> Result<Rel> {
        let ast::Join { relation, global, join_operator } = join;
        if *global {
            return Err(Error::unsupported("GLOBAL JOIN"));
        }
        let (kind, reversed, constraint) = join_kind(join_operator)?;
        let middle = self.mark();
        let steps = (first, joined.len());
        let before = std::mem::take(&mut self.level().lateral_used);
        let right = self.factor(relation, joined)?;
        let lateral = self.level().lateral_used && self.depends(&right, base.0, middle.0);
        self.level().lateral_used |= before;
        if lateral && (reversed || kind == JoinKind::Full) {
            let error = Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "invalid reference to FROM-clause entry in a LATERAL item",
            )
            .detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference.");
            return Err(error);
        }
        let on = match constraint {
            JoinConstraint::On(condition) => Some(self.join_condition(base, condition)?),
            JoinConstraint::Using(names) => {
                let mut columns = Vec::with_capacity(names.len());
                for name in names {
                    let at = name_position(name);
                    columns.push((name_parts(name)?.pop().unwrap_or_default(), at));
                }
                return self.join_using(
                    left,
                    right,
                    (base, middle),
                    &columns,
                    (kind, reversed, lateral),
                    (joined, steps),
                );
            }
            JoinConstraint::Natural => {
                let columns = self.common_columns(base, middle)?;
                if !columns.is_empty() {
                    return self.join_using(
                        left,
                        right,
                        (base, middle),
                        &columns,
                        (kind, reversed, lateral),
                        (joined, steps),
                    );
                }
                None
            }
            JoinConstraint::None => None,
        };
        self.weaken(base, middle, kind, reversed);
        let rel = join_node(left, right, kind, reversed, lateral, on);
        add_step(&rel, reversed, joined, steps);
        Ok(rel)
    }

    /// ON sees the two sides only.
    fn join_condition(&mut self, base: (usize, usize), condition: &'a ast::Expr) -> Result<Scalar> {
        self.hiding(base, |this| {
            this.within(Clause::JoinCondition, |this| {
                let typed = this.expr(condition)?;
                this.condition(typed, "argument of JOIN/ON")
            })
        })
    }

    /// What comes of `work` while what has become visible before `base` is not.
    fn hiding<T>(&mut self, base: (usize, usize), work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let level = self.level();
        let sides = Sight {
            relations: level.sight.relations.split_off(base.0),
            columns: level.sight.columns.split_off(base.1),
        };
        let outer = std::mem::replace(&mut level.sight, sides);
        let hidden = level.hidden.len();
        level.hidden.extend(outer.relations.iter().filter_map(|relation| relation.name.clone()));
        let result = work(self);
        let level = self.level();
        level.hidden.truncate(hidden);
        let sides = std::mem::replace(&mut level.sight, outer);
        level.sight.relations.extend(sides.relations);
        level.sight.columns.extend(sides.columns);
        result
    }

    /// The items of FROM or USING beside the table that is changed, which they do not see.
    pub(super) fn items_beside(&mut self, table: Rel, items: &'a [TableWithJoins]) -> Result<Rel> {
        let base = self.mark();
        let level = self.level();
        level.target = level.sight.relations.last().and_then(|target| target.name.clone());
        let others = self.hiding(base, |this| this.bind_from(items, &mut Joined::new()))?;
        self.level().target = None;
        let relations = &self.level().sight.relations;
        let (target, others_seen) = relations.split_at(base.0);
        if let Some(twice) = others_seen.iter().find(|one| target.iter().any(|other| one.is_called_as(other)))
        {
            return Err(named_twice(twice.name.as_deref().unwrap_or_default()));
        }
        Ok(match others {
            Some(others) => cross(table, others, false),
            None => table,
        })
    }

    /// The columns of an outer join's optional side may be NULL.
    fn weaken(&mut self, base: (usize, usize), middle: (usize, usize), kind: JoinKind, reversed: bool) {
        let Binder { levels, columns, .. } = self;
        let Some(level) = levels.last_mut() else { return };
        let relations = &mut level.sight.relations;
        let side = match (kind, reversed) {
            (JoinKind::Left, false) => &mut relations[middle.0..],
            (JoinKind::Left, true) => &mut relations[base.0..middle.0],
            (JoinKind::Full, _) => &mut relations[base.0..],
            _ => return,
        };
        let mut ids: Vec<ColumnId> = Vec::new();
        for relation in side {
            if !relation.optional {
                let witness = relation.columns.iter().find(|(_, id)| !columns.get(*id).nullable);
                relation.witness = witness.map(|(_, id)| *id);
            }
            relation.optional = true;
            ids.extend(relation.columns.iter().map(|(_, id)| *id));
        }
        for id in ids {
            columns.0[id.0 as usize].nullable = true;
        }
    }

    /// The columns both sides have, for NATURAL.
    fn common_columns(
        &mut self,
        base: (usize, usize),
        middle: (usize, usize),
    ) -> Result<Vec<(String, Option<usize>)>> {
        let columns = &self.level().sight.columns;
        let (left, right) = (&columns[base.1..middle.1], &columns[middle.1..]);
        let right: HashSet<&str> = right.iter().map(|(name, _)| &**name).collect();
        Ok(left
            .iter()
            .filter(|(name, _)| right.contains(&**name))
            .map(|(name, _)| (name.clone(), None))
            .collect())
    }

    /// JOIN USING: the columns named are compared, and seen once.
    fn join_using(
        &mut self,
        left: Rel,
        right: Rel,
        (base, middle): ((usize, usize), (usize, usize)),
        names: &[(String, Option<usize>)],
        (kind, reversed, lateral): (JoinKind, bool, bool),
        (joined, steps): (&mut Joined, (usize, usize)),
    ) -> Result<Rel> {
        let columns = self.level().sight.columns.split_off(base.1);
        let (lefts, rights) = columns.split_at(middle.1 - base.1);
        self.weaken(base, middle, kind, reversed);
        // A comparison, and the columns that are seen from now on.
        effort::made(3 * names.len() + columns.len())?;
        let (left_names, right_names) = (by_name(lefts), by_name(rights));
        let (mut merged, mut conditions, mut computed) = (Vec::new(), Vec::new(), Vec::new());
        let mut merged_names: HashSet<&str> = HashSet::with_capacity(names.len());
        for (name, at) in names {
            if !merged_names.insert(name) {
                let message = format!("column name \"{name}\" appears more than once in USING clause");
                return Err(place(Error::new(SqlState::DUPLICATE_COLUMN, message), *at));
            }
            let (left, right) = (using(&left_names, name, "left")?, using(&right_names, name, "right")?);
            let of = |this: &Self, id: ColumnId| {
                let info = this.columns.get(id);
                Typed { scalar: Scalar::Column(id), ty: info.ty, modifier: info.modifier, position: *at }
            };
            let (a, b) = (of(self, left), of(self, right));
            conditions.push(self.compare(Comparison::Equal, a.clone(), b.clone(), *at)?.scalar);
            let (mut sides, ty, modifier) = self.unify(vec![a.clone(), b.clone()], "JOIN/USING types")?;
            let as_it_is = |side: &Typed| side.ty == ty && side.modifier == modifier;
            // The column has the type of both, and is a side's own where that has it.
            let (own, nullable, scalar) = match (kind, reversed) {
                (JoinKind::Full, _) => (None, true, Scalar::Coalesce { arguments: sides, ty }),
                (JoinKind::Left, true) => {
                    (as_it_is(&b).then_some(right), self.columns.get(right).nullable, sides.remove(1))
                }
                (JoinKind::Left, false) => {
                    (as_it_is(&a).then_some(left), self.columns.get(left).nullable, sides.remove(0))
                }
                _ => {
                    let own = if as_it_is(&a) { Some(left) } else { as_it_is(&b).then_some(right) };
                    (own, self.columns.get(left).nullable, sides.remove(0))
                }
            };
            let id = own.unwrap_or_else(|| {
                let id = self.add_column(name, ty, modifier, nullable);
                computed.push((id, scalar));
                id
            });
            merged.push((name.clone(), id));
        }
        let not_merged = |(name, _): &&(String, ColumnId)| !merged_names.contains(&**name);
        let seen: Vec<(String, ColumnId)> = merged
            .iter()
            .chain(lefts.iter().filter(not_merged))
            .chain(rights.iter().filter(not_merged))
            .cloned()
            .collect();
        let on = if conditions.len() == 1 { conditions.pop() } else { Some(Scalar::And(conditions)) };
        let mut rel = join_node(left, right, kind, reversed, lateral, on);
        add_step(&rel, reversed, joined, steps);
        if !computed.is_empty() {
            for (id, _) in &computed {
                self.own(*id);
            }
            // The sides' own columns can still be named with their tables.
            let mut passed: Vec<ColumnId> = Vec::new();
            for relation in &self.level().sight.relations[base.0..] {
                passed.extend(relation.columns.iter().map(|(_, id)| *id));
            }
            passed.extend(seen.iter().map(|(_, id)| *id));
            passed.retain(|id| !computed.iter().any(|(computed, _)| computed == id));
            passed.sort_unstable();
            passed.dedup();
            let columns = passed.into_iter().map(|id| (id, Scalar::Column(id))).chain(computed).collect();
            rel = Rel::Project { input: Box::new(rel), columns };
        }
        self.level().sight.columns.extend(seen);
        Ok(rel)
    }

    /// One item.
    fn factor(&mut self, factor: &'a TableFactor, joined: &mut Joined) -> Result<Rel> {
        self.count_relation()?;
        if self.level().sight.relations.len() > MAX_ITEMS {
            let message = format!("a FROM clause of more than {MAX_ITEMS} items");
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                let at = name_position(name);
                let hints = !with_hints.is_empty() || !index_hints.is_empty() || !partitions.is_empty();
                if hints || version.is_some() || json_path.is_some() {
                    return Err(place(
                        Error::unsupported("a hint, version, partition or path at a table"),
                        at,
                    ));
                }
                if sample.is_some() {
                    return Err(place(Error::unsupported("TABLESAMPLE"), at));
                }
                let alias = table_alias(alias.as_ref())?;
                match args {
                    Some(ast::TableFunctionArgs { args, settings: None }) => {
                        self.function(name, args, *with_ordinality, alias)
                    }
                    Some(_) => Err(place(Error::unsupported("settings of a table function"), at)),
                    None => self.table(name, alias),
                }
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if sample.is_some() {
                    return Err(Error::unsupported("TABLESAMPLE"));
                }
                self.derived(*lateral, subquery, alias.as_ref())
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                let alias = table_alias(alias.as_ref())?;
                self.function(name, args, *with_ordinality, alias)
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset, with_offset_alias, with_ordinality } => {
                if *with_offset || with_offset_alias.is_some() {
                    return Err(Error::unsupported("UNNEST WITH OFFSET"));
                }
                let alias = table_alias(alias.as_ref())?;
                let [array] = array_exprs.as_slice() else {
                    return Err(Error::unsupported("UNNEST of several arrays"));
                };
                self.call_in_from("unnest", vec![array], *with_ordinality, alias, None)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                self.nested(table_with_joins, alias.as_ref(), joined)
            }
            TableFactor::TableFunction { .. } => Err(Error::unsupported("TABLE(...)")),
            TableFactor::JsonTable { .. } => Err(Error::unsupported("JSON_TABLE")),
            TableFactor::XmlTable { .. } => Err(Error::unsupported("XMLTABLE")),
            TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => Err(Error::unsupported("PIVOT")),
            TableFactor::MatchRecognize { .. } => Err(Error::unsupported("MATCH_RECOGNIZE")),
            other => Err(Error::unsupported(other)),
        }
    }

    /// `(a JOIN b ...)`, with an alias or without.
    fn nested(
        &mut self,
        item: &'a TableWithJoins,
        alias: Option<&ast::TableAlias>,
        joined: &mut Joined,
    ) -> Result<Rel> {
        let base = self.mark();
        let rel = self.joined_item(item, joined)?;
        if alias.is_some() {
            let alias = table_alias(alias)?;
            let level = self.level();
            level.sight.relations.truncate(base.0);
            let columns = level.sight.columns.split_off(base.1);
            self.show_as(alias, None, columns, None, RelationKind::Join)?;
        }
        Ok(rel)
    }

    /// A table by name: a WITH query, a system table, or one of the user's.
    fn table(&mut self, name: &ast::ObjectName, alias: Alias) -> Result<Rel> {
        let at = name_position(name);
        let parts = name_parts(name)?;
        let (schema, table) = self.split_name(&parts).map_err(|error| place(error, at))?;
        if schema.is_none()
            && let Some(index) = self.common_tables.iter().rposition(|common| common.name == table)
        {
            return self.common_table(index, alias, at);
        }
        if schema.is_none_or(|schema| schema != "public")
            && let Some(system) = system::find(schema, table)
        {
            let columns: Vec<ColumnId> = system
                .columns
                .iter()
                .map(|(name, ty)| self.add_column(name, *ty, NO_MODIFIER, true))
                .collect();
            let names =
                system.columns.iter().map(|(name, _)| (*name).to_owned()).zip(columns.iter().copied());
            let shown = alias.name.clone().unwrap_or_else(|| system.name.to_owned());
            let visible_schema = alias.name.is_none().then(|| system.schema.to_owned());
            self.show_as(
                Alias { name: Some(shown.clone()), ..alias },
                visible_schema,
                names.collect(),
                None,
                RelationKind::System,
            )?;
            return Ok(Rel::System { table: system, alias: shown, columns });
        }
        let table = self.find_table(schema, table).map_err(|error| place(error, at))?;
        let shown = alias.name.clone().unwrap_or_else(|| table.name.clone());
        let schema = alias.name.is_none().then(|| "public".to_owned());
        self.show_table(Alias { name: Some(shown), ..alias }, schema, table)
    }

    /// Shows a table of the user's under a name.
    fn show_table(
        &mut self,
        alias: Alias,
        schema: Option<String>,
        table: Arc<crate::catalog::Table>,
    ) -> Result<Rel> {
        let columns = self.add_table_columns(&table);
        let names =
            table.columns.iter().map(|column| column.name.clone()).zip(columns.iter().copied()).collect();
        let shown = alias.name.clone().unwrap_or_default();
        self.show_as(alias, schema, names, Some(Arc::clone(&table)), RelationKind::Table)?;
        Ok(Rel::Table { table, alias: shown, columns })
    }

    /// The target of UPDATE or DELETE.
    pub(super) fn target(&mut self, table: &Arc<crate::catalog::Table>, name: String) -> Result<Rel> {
        let schema = (name == table.name).then(|| "public".to_owned());
        self.show_table(Alias { name: Some(name), columns: Vec::new() }, schema, Arc::clone(table))
    }

    /// Schema and name of `[[database.]schema.]name`.
    pub(super) fn split_name<'n>(&self, parts: &'n [String]) -> Result<(Option<&'n str>, &'n str)> {
        match parts {
            [name] => Ok((None, name)),
            [schema, name] => Ok((Some(schema), name)),
            [database, schema, name] if database == self.scope.database => Ok((Some(schema), name)),
            _ => {
                let message =
                    format!("cross-database references are not implemented: \"{}\"", parts.join("."));
                Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
        }
    }

    /// A table of the user's.
    pub(super) fn find_table(&self, schema: Option<&str>, name: &str) -> Result<Arc<crate::catalog::Table>> {
        let full = schema.map_or_else(|| name.to_owned(), |schema| format!("{schema}.{name}"));
        let missing = || Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{full}\" does not exist"));
        if schema.is_some_and(|schema| schema != "public") {
            return Err(missing());
        }
        let catalog = self.scope.catalog;
        match catalog.names.get(name) {
            None => Err(missing()),
            Some(Relation::Table(oid)) => catalog.tables.get(oid).cloned().ok_or_else(missing),
            Some(Relation::Index { .. }) => {
                Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is an index")))
            }
            Some(Relation::Sequence(_)) => Err(Error::unsupported(format!("reading sequence \"{name}\""))),
        }
    }

    /// A use of a WITH query: bound anew each time, so that its columns are new, but where that might give other rows.
    fn common_table(&mut self, index: usize, alias: Alias, at: Option<usize>) -> Result<Rel> {
        self.common_tables[index].used = true;
        let CommonTable { name, columns, query, levels, tables, used: _, again, open, position } =
            self.common_tables[index].clone();
        match again {
            Again::Refused(what) if !self.unused => return Err(super::query::used_again(&name, what, at)),
            Again::Shared(common) if !self.unused => {
                return self.shared_rows(common, &name, &columns, alias, position);
            }
            _ => {}
        }
        if open {
            return Err(place(Error::unsupported("WITH RECURSIVE"), at));
        }
        let inner_tables = self.common_tables.split_off(tables);
        let inner_levels = self.levels.split_off(levels);
        self.set_open(index, true);
        let around = std::mem::take(&mut self.used_levels);
        let bound = self.query(query);
        let depends = std::mem::replace(&mut self.used_levels, around);
        self.used_levels |= depends;
        self.set_open(index, false);
        self.levels.truncate(levels);
        self.levels.extend(inner_levels);
        self.common_tables.truncate(tables);
        self.common_tables.extend(inner_tables);
        let bound = bound?;
        if !self.unused {
            if rel_is_volatile(&bound.rel) {
                self.common_tables[index].again = Again::Refused(super::query::VOLATILE);
                self.volatile_uses.push(VolatileUse { name: name.clone(), position: at, depends });
            } else if rel_is_open(&bound.rel) && depends == 0 {
                let query = Self::closed(bound);
                let common = Arc::new(Common { name: name.clone(), query, uses: AtomicU32::new(0) });
                self.common_tables[index].again = Again::Shared(Arc::clone(&common));
                return self.shared_rows(common, &name, &columns, alias, position);
            } else if rel_is_open(&bound.rel) {
                self.common_tables[index].again = Again::Refused(super::query::OPEN);
            }
        }
        let shown = bound.output.iter().map(|output| (output.name.clone(), output.column)).collect();
        let shown = with_names(shown, &name, &columns, position)?;
        let alias = Alias { name: Some(alias.name.unwrap_or(name)), ..alias };
        self.show_as(alias, None, shown, None, RelationKind::Common)?;
        Ok(bound.rel)
    }

    /// A use of a WITH query that is computed once.
    fn shared_rows(
        &mut self,
        common: Arc<Common>,
        name: &str,
        columns: &[String],
        alias: Alias,
        position: Option<usize>,
    ) -> Result<Rel> {
        let shown = common.query.output.iter().map(|output| (output.name.clone(), output.column)).collect();
        let mut shown = with_names(shown, name, columns, position)?;
        for (name, column) in &mut shown {
            let info = ColumnInfo { name: name.clone(), ..self.columns.get(*column).clone() };
            *column = self.columns.add(info);
        }
        common.uses.fetch_add(1, Ordering::Relaxed);
        let columns = shown.iter().map(|(_, column)| *column).collect();
        let seen_as = alias.name.unwrap_or_else(|| name.to_owned());
        let alias = Alias { name: Some(seen_as.clone()), ..alias };
        self.show_as(alias, None, shown, None, RelationKind::Common)?;
        Ok(Rel::Common { common, alias: seen_as, columns })
    }

    fn derived(
        &mut self,
        lateral: bool,
        query: &'a ast::Query,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Rel> {
        let at = match &*query.body {
            ast::SetExpr::Values(_) => None,
            _ => self.parenthesis_place(query.span()),
        };
        if alias.is_none() {
            let (what, example) = match &*query.body {
                ast::SetExpr::Values(_) => ("VALUES", "(VALUES ...)"),
                _ => ("subquery", "(SELECT ...)"),
            };
            let error = Error::new(SqlState::SYNTAX_ERROR, format!("{what} in FROM must have an alias"))
                .hint(format!("For example, FROM {example} [AS] foo."));
            return Err(place(error, at));
        }
        let alias = table_alias(alias)?;
        let open = std::mem::replace(&mut self.level().open, lateral);
        let bound = self.query(query);
        self.level().open = open;
        let bound = bound?;
        let columns = bound.output.into_iter().map(|output| (output.name, output.column)).collect();
        let kind = match &*query.body {
            ast::SetExpr::Values(_) => RelationKind::Values,
            _ => RelationKind::Subquery,
        };
        self.show_as(alias, None, columns, None, kind)?;
        Ok(bound.rel)
    }

    fn function(
        &mut self,
        name: &ast::ObjectName,
        args: &'a [FunctionArg],
        ordinality: bool,
        alias: Alias,
    ) -> Result<Rel> {
        let at = name_position(name);
        let mut parts = name_parts(name)?;
        let function = parts.pop().unwrap_or_default();
        if parts.iter().any(|schema| schema != "pg_catalog" && schema != "information_schema") {
            let message = format!("function {}.{function} does not exist", parts.join("."));
            return Err(place(Error::new(SqlState::UNDEFINED_FUNCTION, message), at));
        }
        let mut arguments = Vec::with_capacity(args.len());
        for argument in args {
            match argument {
                FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                _ => return Err(place(Error::unsupported("this notation of arguments"), at)),
            }
        }
        self.call_in_from(&function, arguments, ordinality, alias, at)
    }

    fn call_in_from(
        &mut self,
        function: &str,
        arguments: Vec<&'a ast::Expr>,
        ordinality: bool,
        alias: Alias,
        at: Option<usize>,
    ) -> Result<Rel> {
        let arguments =
            arguments.into_iter().map(|argument| self.expr(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let resolution = resolve_function(function, &types).map_err(|error| place(error, at))?;
        let name = alias.name.clone().unwrap_or_else(|| function.to_owned());
        let single = |this: &mut Self, id: ColumnId| {
            // One column is called like the relation.
            this.columns.0[id.0 as usize].name.clone_from(&name);
            vec![(name.clone(), id)]
        };
        let arguments = arguments
            .into_iter()
            .zip(&resolution.types)
            .map(|(argument, ty)| self.argument(argument, *ty))
            .collect::<Result<Vec<_>>>()?;
        let (rel, mut shown) = match resolution.target {
            Resolved::Table(target) => {
                let columns = self.function_columns(target, &resolution.types);
                let shown = match columns.as_slice() {
                    [id] => single(self, *id),
                    ids => target
                        .columns
                        .iter()
                        .map(|(name, _)| (*name).to_owned())
                        .zip(ids.iter().copied())
                        .collect(),
                };
                let number =
                    ordinality.then(|| self.add_column("ordinality", Type::Int8, NO_MODIFIER, false));
                let rel =
                    Rel::Function { function: target, arguments, columns, ordinality: number, listed: false };
                (rel, (shown, number))
            }
            Resolved::Function(_) if ordinality => {
                return Err(place(
                    Error::unsupported("WITH ORDINALITY of a function that gives one row"),
                    at,
                ));
            }
            Resolved::Function(target) => {
                let ty = resolution.returns;
                let id = self.add_column(&name, ty, NO_MODIFIER, true);
                let rows = vec![vec![Scalar::Call { function: target, arguments, ty }]];
                (Rel::Values { columns: vec![id], rows }, (single(self, id), None))
            }
            Resolved::Aggregate(_) => {
                let message = "aggregate functions are not allowed in functions in FROM";
                return Err(place(Error::new(SqlState::GROUPING_ERROR, message), at));
            }
        };
        if let Some(number) = shown.1 {
            shown.0.push(("ordinality".to_owned(), number));
        }
        self.show_as(Alias { name: Some(name), ..alias }, None, shown.0, None, RelationKind::Function)?;
        Ok(rel)
    }

    /// Shows a relation under its alias, with the alias's names of columns.
    fn show_as(
        &mut self,
        alias: Alias,
        schema: Option<String>,
        mut columns: Vec<(String, ColumnId)>,
        table: Option<Arc<crate::catalog::Table>>,
        kind: RelationKind,
    ) -> Result<()> {
        let Alias { name, columns: names } = alias;
        let shown = name.clone().unwrap_or_default();
        if names.len() > columns.len() {
            let message = format!(
                "table \"{shown}\" has {} columns available but {} columns specified",
                columns.len(),
                names.len()
            );
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        for (column, name) in columns.iter_mut().zip(names) {
            column.0 = name;
        }
        let visible = Visible { name, schema, columns, table, kind, optional: false, witness: None };
        if self.level().sight.relations.iter().any(|other| other.is_called_as(&visible)) {
            return Err(named_twice(&shown));
        }
        self.show(visible);
        Ok(())
    }
}

fn named_twice(name: &str) -> Error {
    let message = format!("table name \"{name}\" specified more than once");
    Error::new(SqlState::DUPLICATE_ALIAS, message)
}

/// The columns of a side by name; `None` for a name that several have.
fn by_name(columns: &[(String, ColumnId)]) -> HashMap<&str, Option<ColumnId>> {
    let mut found = HashMap::with_capacity(columns.len());
    for (name, id) in columns {
        found.entry(&**name).and_modify(|known| *known = None).or_insert(Some(*id));
    }
    found
}

/// The column of USING on one side.
fn using(columns: &HashMap<&str, Option<ColumnId>>, name: &str, side: &str) -> Result<ColumnId> {
    match columns.get(name) {
        Some(Some(id)) => Ok(*id),
        Some(None) => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message))
        }
        None => {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(Error::new(SqlState::UNDEFINED_COLUMN, message))
        }
    }
}

/// The kind of a join, whether its sides change places, and its condition.
fn join_kind(operator: &JoinOperator) -> Result<(JoinKind, bool, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
            if matches!(constraint, JoinConstraint::None) {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error: JOIN without ON or USING"));
            }
            (JoinKind::Inner, false, constraint)
        }
        JoinOperator::CrossJoin(constraint) => (JoinKind::Inner, false, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
            (JoinKind::Left, false, constraint)
        }
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (JoinKind::Left, true, constraint)
        }
        JoinOperator::FullOuter(constraint) => (JoinKind::Full, false, constraint),
        JoinOperator::Semi(_)
        | JoinOperator::LeftSemi(_)
        | JoinOperator::RightSemi(_)
        | JoinOperator::Anti(_)
        | JoinOperator::LeftAnti(_)
        | JoinOperator::RightAnti(_)
        | JoinOperator::CrossApply
        | JoinOperator::OuterApply
        | JoinOperator::AsOf { .. }
        | JoinOperator::StraightJoin(_)
        | JoinOperator::ArrayJoin
        | JoinOperator::LeftArrayJoin
        | JoinOperator::InnerArrayJoin => return Err(Error::unsupported("this kind of join")),
    })
}

fn join_node(
    left: Rel,
    right: Rel,
    kind: JoinKind,
    reversed: bool,
    lateral: bool,
    on: Option<Scalar>,
) -> Rel {
    let (left, right) = if reversed { (right, left) } else { (left, right) };
    Rel::Join { kind, left: Box::new(left), right: Box::new(right), on, lateral }
}

/// Adds a join's condition to what a row lock has to know. `steps`: where those of its left and of its right operand begin.
fn add_step(join: &Rel, reversed: bool, joined: &mut Joined, steps: (usize, usize)) {
    let Rel::Join { kind, right, on, .. } = join else { return };
    match kind {
        JoinKind::Left if reversed => drop(joined.drain(steps.0..steps.1)),
        JoinKind::Left => joined.truncate(steps.1),
        JoinKind::Full => joined.truncate(steps.0),
        JoinKind::Inner | JoinKind::Semi | JoinKind::Anti => {}
    }
    let Some(on) = on.clone() else { return };
    match kind {
        JoinKind::Inner => joined.push(RecheckStep::Holds(on)),
        JoinKind::Left => {
            let mut columns = Vec::new();
            all_outputs(right, &mut columns);
            columns.sort_unstable();
            columns.dedup();
            joined.push(RecheckStep::Joins { on, columns });
        }
        JoinKind::Full | JoinKind::Semi | JoinKind::Anti => {}
    }
}

/// The columns that a row lock cannot let change, as other columns of a FROM clause were made of them: those that a lateral subquery takes,
/// and those that a column of JOIN USING is computed of. A function's rows stay, as in PostgreSQL.
pub(super) fn fixed(from: &Rel) -> Vec<Scalar> {
    let mut given = Vec::new();
    output(from, &mut given);
    let mut taken = Vec::new();
    takes(from, &mut taken);
    taken.sort_unstable();
    taken.dedup();
    taken.retain(|id| given.contains(id));
    taken.into_iter().map(Scalar::Column).collect()
}

fn takes(rel: &Rel, out: &mut Vec<ColumnId>) {
    match rel {
        Rel::Join { left, right, lateral, .. } => {
            if *lateral && !matches!(**right, Rel::Function { .. }) {
                let mut own = Vec::new();
                all_outputs(right, &mut own);
                let add = &mut |id| out.extend((!own.contains(&id)).then_some(id));
                all_scalars(right, &mut |scalar| for_each_column(scalar, add));
            }
            takes(left, out);
            takes(right, out);
        }
        Rel::Project { input, columns } => {
            let computed = columns.iter().filter(|(_, scalar)| !matches!(scalar, Scalar::Column(_)));
            computed.for_each(|(_, scalar)| for_each_column(scalar, &mut |id| out.push(id)));
            takes(input, out);
        }
        Rel::Filter { input, .. } => takes(input, out),
        _ => {}
    }
}

/// A join without a condition.
pub(super) fn cross(left: Rel, right: Rel, lateral: bool) -> Rel {
    join_node(left, right, JoinKind::Inner, false, lateral, None)
}

/// The columns of a WITH query, with the names that stand behind its own.
fn with_names(
    mut shown: Vec<(String, ColumnId)>,
    name: &str,
    columns: &[String],
    position: Option<usize>,
) -> Result<Vec<(String, ColumnId)>> {
    if columns.len() > shown.len() {
        let message = format!(
            "WITH query \"{name}\" has {} columns available but {} columns specified",
            shown.len(),
            columns.len()
        );
        return Err(place(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message), position));
    }
    for (shown, name) in shown.iter_mut().zip(columns) {
        shown.0.clone_from(name);
    }
    Ok(shown)
}

fn table_alias(alias: Option<&ast::TableAlias>) -> Result<Alias> {
    let Some(ast::TableAlias { explicit: _, name, columns, at }) = alias else { return Ok(Alias::default()) };
    if at.is_some() {
        return Err(Error::unsupported("AT in an alias"));
    }
    let (name, _) = named(name)?;
    let mut names = Vec::with_capacity(columns.len());
    for ast::TableAliasColumnDef { name, data_type } in columns {
        if data_type.is_some() {
            let error = Error::unsupported("a column definition list of a function");
            return Err(place(error, position(name.span)));
        }
        names.push(identifier(name)?);
    }
    Ok(Alias { name: Some(name), columns: names })
}
