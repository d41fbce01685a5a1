//! SELECT: its clauses in the order they mean something.

use super::binder::{Binder, Clause, Level, ListFunction, Typed, named, place};
use super::from::Joined;
use super::operators::inner;
use super::tokens::position;
use super::{name_parts, name_position};
use crate::effort;
use crate::logical::walk::size;
use crate::logical::{
    ColumnId, Recheck, RecheckStep, Rel, Scalar, SortKey, is_volatile, same, type_of, walk,
};
use crate::types::{Modifier, NO_MODIFIER, Type, Value};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, Distinct, Expr, GroupByExpr, OrderByExpr, Select, SelectItem, Spanned};

/// Columns of a result, at most.
const MOST_OUTPUTS: usize = 1664;

/// A column of a bound query.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) column: ColumnId,
    /// [`Type::Unknown`] while it is a literal or parameter without a type.
    pub(super) ty: Type,
    pub(super) modifier: Modifier,
    pub(super) position: Option<usize>,
}

/// A bound query, whose columns may still lack types.
#[derive(Clone, Debug)]
pub(super) struct BoundQuery {
    pub(super) rel: Rel,
    pub(super) output: Vec<Column>,
}

/// An item of a SELECT list.
pub(super) struct Item {
    pub(super) name: String,
    pub(super) typed: Typed,
    pub(super) id: ColumnId,
}

impl Item {
    /// Whether it is anything but a column passed on.
    fn is_computed(&self) -> bool {
        !matches!(self.typed.scalar, Scalar::Column(id) if id == self.id)
    }
}

/// What of the statement around it a SELECT has to know.
#[derive(Default)]
pub(super) struct Around<'a> {
    pub(super) order_by: &'a [OrderByExpr],
    pub(super) locks: Vec<&'a ast::LockClause>,
}

/// A SELECT while it is put together.
struct Parts {
    rel: Rel,
    items: Vec<Item>,
    keys: Vec<SortKey>,
    /// For each key the item it is, where it was named or numbered.
    key_items: Vec<Option<usize>>,
    /// Sort keys that are no item.
    hidden: Vec<(ColumnId, Scalar)>,
    distinct_on: Option<Vec<Scalar>>,
    /// Where the expressions of DISTINCT ON stand.
    distinct_places: Vec<Option<usize>>,
    recheck: Joined,
}

impl<'a> Binder<'a> {
    /// One SELECT with the ORDER BY and locks around it. Its level is popped at the end.
    pub(super) fn select(&mut self, select: &'a Select, around: &Around<'a>) -> Result<BoundQuery> {
        refuse_foreign(select)?;
        let depth = self.levels.len();
        self.push_level(Clause::Select);
        let result = self.select_parts(select, around);
        self.levels.truncate(depth);
        result
    }

    fn select_parts(&mut self, select: &'a Select, around: &Around<'a>) -> Result<BoundQuery> {
        let mut recheck = Joined::new();
        let rel = self.bind_from(&select.from, &mut recheck)?;
        let mut rel = rel.unwrap_or_else(|| Rel::Values { columns: Vec::new(), rows: vec![Vec::new()] });
        if let Some(condition) = &select.selection {
            let predicate = self.within(Clause::Where, |this| {
                let typed = this.expr(condition)?;
                this.condition(typed, "argument of WHERE")
            })?;
            if !around.locks.is_empty() {
                recheck.push(RecheckStep::Holds(predicate.clone()));
            }
            rel = Rel::Filter { input: Box::new(rel), predicate };
        }
        let mut items = self.items(&select.projection)?;
        let groups = self.groups(&select.group_by, &mut items)?;
        let having = match &select.having {
            Some(having) => Some(self.within(Clause::Having, |this| {
                let typed = this.expr(having)?;
                this.condition(typed, "argument of HAVING")
            })?),
            None => None,
        };
        let mut parts = Parts {
            rel,
            items,
            keys: vec![],
            key_items: vec![],
            hidden: vec![],
            distinct_on: None,
            distinct_places: vec![],
            recheck,
        };
        if matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)))
            && select.projection.is_empty()
        {
            return Err(nothing_distinct());
        }
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => {
                parts.items.iter_mut().try_for_each(|item| self.settle_item(item))?;
                true
            }
            Some(Distinct::On(list)) if list.is_empty() => {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error at or near \")\""));
            }
            Some(Distinct::On(list)) => {
                let (on, places) = self.distinct_on(list, &mut parts.items)?;
                (parts.distinct_on, parts.distinct_places) = (Some(on), places);
                false
            }
        };
        self.order_by(around.order_by, &mut parts, distinct)?;
        if distinct && parts.items.is_empty() {
            return Err(nothing_distinct());
        }
        let single = matches!(&select.group_by, GroupByExpr::Expressions(list, _) if !list.is_empty());
        let grouped = single || having.is_some() || self.level().has_aggregates();
        let level = self.pop_level();
        if grouped {
            if !around.locks.is_empty() {
                let what = match having {
                    _ if single => "GROUP BY clause",
                    Some(_) => "HAVING clause",
                    None => "aggregate functions",
                };
                return Err(lock_conflict(around.locks[0], what));
            }
            self.aggregate_parts(level, groups, having, distinct, &mut parts)?;
        } else {
            sort_before(&level.list_functions, distinct, &mut parts);
            self.join_list_functions(level.list_functions.clone(), &mut parts);
            if !around.locks.is_empty() {
                return self.locked(&level, parts, around, distinct);
            }
        }
        self.put_together(parts, distinct)
    }

    /// The SELECT list.
    fn items(&mut self, projection: &'a [SelectItem]) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for item in projection {
            self.item(item, &mut items)?;
        }
        if items.len() > MOST_OUTPUTS {
            let message = format!("target lists can have at most {MOST_OUTPUTS} entries");
            return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message));
        }
        Ok(items)
    }

    /// One item of a SELECT or RETURNING list.
    pub(super) fn item(&mut self, item: &'a SelectItem, items: &mut Vec<Item>) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = super::titles::expression_name(expr).unwrap_or_else(|| "?column?".to_owned());
                let typed = self.expr(expr)?;
                items.push(self.new_item(name, typed));
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let (name, _) = named(alias)?;
                let typed = self.expr(expr)?;
                items.push(self.new_item(name, typed));
            }
            SelectItem::ExprWithAliases { .. } => {
                return Err(Error::unsupported("several aliases of an expression"));
            }
            SelectItem::Wildcard(options) => {
                let at = wildcard(options)?;
                let star = self.star();
                if star.is_empty() && self.level().sight.relations.is_empty() {
                    let error =
                        Error::new(SqlState::SYNTAX_ERROR, "SELECT * with no tables specified is not valid");
                    return Err(place(error, at));
                }
                effort::made(2 * star.len())?;
                let level = self.levels.len() - 1;
                for (name, id) in star {
                    let typed = self.use_column(level, id, at);
                    items.push(Item { name, typed, id });
                }
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                let at = wildcard(options)?;
                let ast::SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
                    return Err(place(Error::unsupported("row expansion via \"*\" of an expression"), at));
                };
                let at = name_position(name).or(at);
                let parts = name_parts(name)?;
                let (schema, table) = self.split_name(&parts).map_err(|error| place(error, at))?;
                let (level, columns) = self.qualified_star(schema, table, at)?;
                effort::made(2 * columns.len())?;
                for (name, id) in columns {
                    let typed = self.use_column(level, id, at);
                    items.push(self.new_item(name, typed));
                }
            }
        }
        Ok(())
    }

    /// An item: a column of this level that is passed on keeps its number.
    pub(super) fn new_item(&mut self, name: String, typed: Typed) -> Item {
        let id = match typed.scalar {
            Scalar::Column(id) if self.is_own(id) => id,
            _ => self.add_column(&name, typed.ty, typed.modifier, true),
        };
        Item { name, typed, id }
    }

    /// Makes text of an item that has no type yet, as rows are compared by it: what the list is for does not give it one any more.
    fn settle_item(&mut self, item: &mut Item) -> Result<()> {
        if item.typed.ty == Type::Unknown {
            item.typed = self.settle(copy(&item.typed)?)?;
            let column = &mut self.columns.0[item.id.0 as usize];
            (column.ty, column.modifier) = (item.typed.ty, item.typed.modifier);
        }
        Ok(())
    }

    /// Whether a column comes from this level, not from a query around it.
    fn is_own(&mut self, id: ColumnId) -> bool {
        let owner = self.owner(id);
        let level = self.level();
        owner == Some(level.serial)
            || level.aggregates.iter().any(|(aggregate, ..)| *aggregate == id)
            || level.list_functions.iter().any(|call| call.columns.contains(&id))
    }

    /// GROUP BY: expressions, numbers of items, or names of items (where no column has the name).
    fn groups(&mut self, group_by: &'a GroupByExpr, items: &mut [Item]) -> Result<Vec<Typed>> {
        let GroupByExpr::Expressions(list, modifiers) = group_by else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Error::unsupported("GROUP BY with a modifier"));
        }
        let mut groups: Vec<Typed> = Vec::new();
        let mut left: Vec<&'a Expr> = list.iter().rev().collect();
        while let Some(expr) = left.pop() {
            match inner(expr) {
                Expr::Rollup(_) => return Err(Error::unsupported("ROLLUP")),
                Expr::Cube(_) => return Err(Error::unsupported("CUBE")),
                Expr::GroupingSets(_) => return Err(Error::unsupported("GROUPING SETS")),
                // Each of them by itself. Where there is none all rows are one group, unless other groups are named.
                Expr::Tuple(parts) => {
                    left.extend(parts.iter().rev());
                    continue;
                }
                _ => {}
            }
            let group = self.within(Clause::GroupBy, |this| {
                let typed = match this.item_reference(expr, items, "GROUP BY", true)? {
                    Some(index) => {
                        this.settle_item(&mut items[index])?;
                        copy(&items[index].typed)?
                    }
                    None => this.expr(expr)?,
                };
                this.settle(typed)
            })?;
            if let Some(aggregate) = self.aggregate_in(&group.scalar) {
                let error =
                    Error::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY");
                let at = position(expr.span()).filter(|_| aggregate);
                return Err(place(error, at));
            }
            if !groups.iter().any(|other| same(&other.scalar, &group.scalar)) {
                groups.push(group);
            }
        }
        Ok(groups)
    }

    /// Whether an aggregate of this level stands in an expression; `None` if not.
    fn aggregate_in(&mut self, scalar: &Scalar) -> Option<bool> {
        let level = self.levels.last()?;
        let mut found = false;
        let is_aggregate = |id| level.aggregates.iter().any(|(aggregate, ..)| *aggregate == id);
        walk::for_each_column(scalar, &mut |id| {
            found |= is_aggregate(id);
            for call in level.list_functions.iter().filter(|call| call.columns.contains(&id)) {
                for argument in &call.arguments {
                    walk::for_each_column(argument, &mut |id| found |= is_aggregate(id));
                }
            }
        });
        found.then_some(true)
    }

    /// The item that a number or name in GROUP BY, ORDER BY or DISTINCT ON means.
    fn item_reference(
        &mut self,
        expr: &'a Expr,
        items: &[Item],
        clause: &str,
        columns_first: bool,
    ) -> Result<Option<usize>> {
        if let Some(index) = self.list_position(expr, items.len(), clause)? {
            return Ok(Some(index));
        }
        Ok(match inner(expr) {
            Expr::Identifier(ident) => {
                let (name, at) = named(ident)?;
                // In GROUP BY a column of the tables is meant first, in ORDER BY an item.
                if columns_first && self.level().sight.columns.iter().any(|(column, _)| *column == name) {
                    return Ok(None);
                }
                let mut matches = items.iter().enumerate().filter(|(_, item)| item.name == name);
                let first = matches.next();
                if let Some((_, first)) = first
                    && matches.any(|(_, other)| !same(&first.typed.scalar, &other.typed.scalar))
                {
                    let message = format!("{clause} \"{name}\" is ambiguous");
                    return Err(place(Error::new(SqlState::AMBIGUOUS_COLUMN, message), at));
                }
                first.map(|(index, _)| index)
            }
            _ => None,
        })
    }

    /// Each once, with where it stands.
    fn distinct_on(
        &mut self,
        list: &'a [Expr],
        items: &mut [Item],
    ) -> Result<(Vec<Scalar>, Vec<Option<usize>>)> {
        let (mut on, mut places) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
        for expr in list {
            let scalar = self.within(Clause::DistinctOn, |this| {
                match this.item_reference(expr, items, "DISTINCT ON", false)? {
                    Some(index) => {
                        this.settle_item(&mut items[index])?;
                        Ok(copy(&items[index].typed)?.scalar)
                    }
                    None => {
                        let typed = this.expr(expr)?;
                        Ok(this.settle(typed)?.scalar)
                    }
                }
            })?;
            if !on.iter().any(|other| same(other, &scalar)) {
                on.push(scalar);
                places.push(position(expr.span()));
            }
        }
        Ok((on, places))
    }

    fn order_by(&mut self, list: &'a [OrderByExpr], parts: &mut Parts, distinct: bool) -> Result<()> {
        for OrderByExpr { expr, options, with_fill } in list {
            let (scalar, item) = self.within(Clause::OrderBy, |this| {
                let item = this.item_reference(expr, &parts.items, "ORDER BY", false)?;
                let typed = match item {
                    Some(index) => {
                        this.settle_item(&mut parts.items[index])?;
                        copy(&parts.items[index].typed)?
                    }
                    None => this.expr(expr)?,
                };
                let listed = parts.items.iter().any(|item| same(&item.typed.scalar, &typed.scalar));
                if distinct && !listed {
                    let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    let error = Error::new(SqlState::INVALID_COLUMN_REFERENCE, message);
                    return Err(place(error, position(expr.span())));
                }
                Ok((this.settle(typed)?.scalar, item))
            })?;
            let key = super::query::sort_key(scalar, options, with_fill.as_ref())?;
            // Sorting by the same thing again changes nothing.
            let again = parts.keys.iter().zip(&parts.key_items).any(|(other, other_item)| {
                same(&other.scalar, &key.scalar) && (*other_item == item || !is_volatile(&key.scalar))
            });
            if !again {
                parts.keys.push(key);
                parts.key_items.push(item);
            }
        }
        if let Some(on) = &parts.distinct_on {
            let initial = parts.keys.iter().take(on.len());
            let matches = initial.clone().all(|key| on.iter().any(|on| same(on, &key.scalar)));
            if !matches {
                let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
                let missing = on.iter().position(|on| !parts.keys.iter().any(|key| same(on, &key.scalar)));
                let at = missing.and_then(|index| parts.distinct_places[index]);
                return Err(place(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message), at));
            }
        }
        Ok(())
    }

    /// A table function in the SELECT list is joined to the rows, of each of which its volatile arguments are computed anew.
    fn join_list_functions(&mut self, calls: Vec<ListFunction>, parts: &mut Parts) {
        for ListFunction { function, mut arguments, columns, position: _ } in calls {
            let mut volatile = Vec::new();
            for argument in arguments.iter_mut().filter(|argument| is_volatile(argument)) {
                let ty = type_of(argument, &self.columns);
                let computed = self.add_column("?column?", ty, NO_MODIFIER, true);
                volatile.push((computed, std::mem::replace(argument, Scalar::Column(computed))));
            }
            compute(volatile, parts);
            let mut lateral = false;
            for argument in &arguments {
                walk::for_each_column(argument, &mut |_| lateral = true);
            }
            let function = Rel::Function { function, arguments, columns, ordinality: None, listed: true };
            let rel =
                std::mem::replace(&mut parts.rel, Rel::Values { columns: Vec::new(), rows: Vec::new() });
            parts.rel = super::from::cross(rel, function, lateral);
        }
    }

    /// Groups the rows, and makes everything above refer to the groups.
    fn aggregate_parts(
        &mut self,
        mut level: Level,
        groups: Vec<Typed>,
        having: Option<Scalar>,
        distinct: bool,
        parts: &mut Parts,
    ) -> Result<()> {
        let mut numbered = Vec::with_capacity(groups.len());
        for Typed { scalar, ty, modifier, position: _ } in groups {
            numbered.push((self.number_of(&scalar, ty, modifier, &parts.rel), scalar));
        }
        let mut having = having;
        let mut list_functions = std::mem::take(&mut level.list_functions);
        // Groups are made of what these give.
        let grouped_by = |call: &super::binder::ListFunction| {
            let mut found = false;
            for (_, scalar) in &numbered {
                walk::for_each_column(scalar, &mut |id| found |= call.columns.contains(&id));
            }
            found
        };
        let below: Vec<_> = list_functions.extract_if(.., |call| grouped_by(call)).collect();
        self.join_list_functions(below, parts);
        {
            let mut scalars: Vec<&mut Scalar> =
                parts.items.iter_mut().map(|item| &mut item.typed.scalar).collect();
            scalars.extend(having.iter_mut());
            scalars.extend(parts.keys.iter_mut().map(|key| &mut key.scalar));
            scalars.extend(parts.distinct_on.iter_mut().flatten());
            for call in &mut list_functions {
                scalars.extend(call.arguments.iter_mut());
            }
            self.check_grouped(&level, &mut numbered, scalars)?;
        }
        self.compute_volatile(&mut numbered, parts);
        let grouped: Vec<ColumnId> = numbered.iter().map(|(id, _)| *id).collect();
        let rel = std::mem::replace(&mut parts.rel, Rel::Values { columns: Vec::new(), rows: Vec::new() });
        parts.rel = Rel::Aggregate {
            input: Box::new(rel),
            groups: numbered,
            aggregates: level.aggregates.into_iter().map(|(id, call, _)| (id, call)).collect(),
        };
        if let Some(predicate) = having {
            let rel =
                std::mem::replace(&mut parts.rel, Rel::Values { columns: Vec::new(), rows: Vec::new() });
            parts.rel = Rel::Filter { input: Box::new(rel), predicate };
        }
        sort_before(&list_functions, distinct, parts);
        self.join_list_functions(list_functions, parts);
        for item in &mut parts.items {
            // What is now a group's column is passed on as such; columns of queries around stay computed.
            if let Scalar::Column(id) = item.typed.scalar
                && grouped.contains(&id)
            {
                item.id = id;
            }
        }
        Ok(())
    }

    /// What a volatile group is made of is computed once for each row, before anything is done with the rows: sorted, say, they are still
    /// of the groups that they were sorted by.
    fn compute_volatile(&mut self, groups: &mut [(ColumnId, Scalar)], parts: &mut Parts) {
        let mut columns = Vec::new();
        for (id, scalar) in groups.iter_mut().filter(|(_, scalar)| is_volatile(scalar)) {
            let info = self.columns.get(*id);
            let (name, ty, modifier) = (info.name.clone(), info.ty, info.modifier);
            let computed = self.add_column(&name, ty, modifier, true);
            columns.push((computed, std::mem::replace(scalar, Scalar::Column(computed))));
        }
        compute(columns, parts);
    }

    /// Projection, DISTINCT and ORDER BY above the rows. What is volatile and no sort key is computed of the sorted rows, so that it is
    /// computed in their order, and not for those that a LIMIT leaves out.
    fn put_together(&mut self, mut parts: Parts, distinct: bool) -> Result<BoundQuery> {
        let project = distinct || parts.distinct_on.is_some() || parts.items.iter().any(Item::is_computed);
        let mut keys = std::mem::take(&mut parts.keys);
        let mut on = parts.distinct_on.take();
        let mut rel = parts.rel;
        let mut late: Vec<(ColumnId, Scalar)> = Vec::new();
        if project {
            let mut sorted = Vec::with_capacity(keys.len());
            for (key, item) in keys.iter_mut().zip(&parts.key_items) {
                let by = key.scalar.clone();
                match item {
                    Some(index) => key.scalar = Scalar::Column(parts.items[*index].id),
                    None => self.above(&rel, &parts.items, &mut parts.hidden, &mut key.scalar),
                }
                let Scalar::Column(id) = key.scalar else { continue };
                sorted.push((by, id));
            }
            for scalar in on.iter_mut().flatten() {
                self.above(&rel, &parts.items, &mut parts.hidden, scalar);
            }
            let mut columns: Vec<(ColumnId, Scalar)> = Vec::new();
            let visible = parts.items.iter().map(|item| (item.id, item.typed.scalar.clone()));
            for (id, scalar) in visible.chain(parts.hidden) {
                if !columns.iter().any(|(other, _)| *other == id) {
                    columns.push((id, scalar));
                }
            }
            if !distinct && on.is_none() && !keys.is_empty() {
                (late, columns) = columns.into_iter().partition(|(id, scalar)| {
                    is_volatile(scalar) && !keys.iter().any(|key| same(&key.scalar, &Scalar::Column(*id)))
                });
            }
            if !late.is_empty() {
                // As in PostgreSQL, what is written like a sort key has its value; like that of the first item among several.
                sorted.sort_by_key(|(_, id)| columns.iter().position(|(column, _)| column == id));
                for (_, scalar) in &mut late {
                    substitute(scalar, &sorted);
                }
                late = with_late(&rel, &parts.items, &mut columns, late);
            }
            rel = Rel::Project { input: Box::new(rel), columns };
        }
        if distinct {
            rel = Rel::Distinct { input: Box::new(rel), on: None };
        }
        if !keys.is_empty() {
            rel = Rel::Sort { input: Box::new(rel), keys };
        }
        if on.is_some() {
            rel = Rel::Distinct { input: Box::new(rel), on };
        }
        if !late.is_empty() {
            rel = Rel::Project { input: Box::new(rel), columns: late };
        }
        Ok(BoundQuery { rel, output: output(parts.items) })
    }

    /// The number of the column that an expression over `input` becomes. A column of `input` keeps its own; one of a query around is a
    /// new column here, as it may be NULL where this query gives no row.
    fn number_of(&mut self, scalar: &Scalar, ty: Type, modifier: Modifier, input: &Rel) -> ColumnId {
        let mut name = "?column?".to_owned();
        if let Scalar::Column(id) = scalar {
            let mut own = Vec::new();
            walk::output(input, &mut own);
            if own.contains(id) {
                return *id;
            }
            name.clone_from(&self.columns.get(*id).name);
        }
        self.add_column(&name, ty, modifier, true)
    }

    /// Makes a column of the projection of an expression over its input.
    fn above(
        &mut self,
        rel: &Rel,
        items: &[Item],
        hidden: &mut Vec<(ColumnId, Scalar)>,
        scalar: &mut Scalar,
    ) {
        let found = items
            .iter()
            .find(|item| same(&item.typed.scalar, scalar))
            .map(|item| item.id)
            .or_else(|| hidden.iter().find(|(_, other)| same(other, scalar)).map(|(id, _)| *id));
        let id = found.unwrap_or_else(|| {
            let modifier = match scalar {
                Scalar::Column(id) => self.columns.get(*id).modifier,
                _ => NO_MODIFIER,
            };
            let id = self.number_of(scalar, type_of(scalar, &self.columns), modifier, rel);
            hidden.push((id, scalar.clone()));
            id
        });
        *scalar = Scalar::Column(id);
    }

    /// FOR UPDATE and its kin: above the sort, so that what LIMIT leaves out is not locked; below the projection, so that what is
    /// computed is computed of the row as it is when it was locked.
    fn locked(
        &mut self,
        level: &Level,
        parts: Parts,
        around: &Around<'a>,
        distinct: bool,
    ) -> Result<BoundQuery> {
        if distinct || parts.distinct_on.is_some() {
            return Err(lock_conflict(around.locks[0], "DISTINCT clause"));
        }
        if !level.list_functions.is_empty() {
            return Err(lock_conflict(around.locks[0], "set-returning functions in the target list"));
        }
        let mut rel = parts.rel;
        let fixed = super::from::fixed(&rel);
        if !parts.keys.is_empty() {
            rel = Rel::Sort { input: Box::new(rel), keys: parts.keys };
        }
        let tables = super::lock::tables(level, &around.locks)?;
        if !tables.is_empty() {
            let recheck = Recheck { fixed, steps: parts.recheck };
            rel = Rel::Lock { input: Box::new(rel), tables, recheck };
        }
        if parts.items.iter().any(Item::is_computed) {
            let mut columns: Vec<(ColumnId, Scalar)> = Vec::new();
            for item in &parts.items {
                if !columns.iter().any(|(other, _)| *other == item.id) {
                    columns.push((item.id, item.typed.scalar.clone()));
                }
            }
            rel = Rel::Project { input: Box::new(rel), columns };
        }
        Ok(BoundQuery { rel, output: output(parts.items) })
    }
}

/// As in PostgreSQL, rows are sorted before functions of the SELECT list make several of each, unless they are sorted by what these give: what
/// a function gives for one row stays in its order, and volatile arguments are computed of the sorted rows.
fn sort_before(calls: &[ListFunction], distinct: bool, parts: &mut Parts) {
    if calls.is_empty() || parts.keys.is_empty() || distinct || parts.distinct_on.is_some() {
        return;
    }
    let mut later = false;
    for SortKey { scalar, .. } in &parts.keys {
        later |= is_volatile(scalar);
        walk::for_each_column(scalar, &mut |id| later |= calls.iter().any(|call| call.columns.contains(&id)));
    }
    if later {
        return;
    }
    let rel = std::mem::replace(&mut parts.rel, Rel::Values { columns: Vec::new(), rows: Vec::new() });
    parts.rel = Rel::Sort { input: Box::new(rel), keys: std::mem::take(&mut parts.keys) };
    parts.key_items.clear();
}

/// Adds columns to the rows.
fn compute(added: Vec<(ColumnId, Scalar)>, parts: &mut Parts) {
    if added.is_empty() {
        return;
    }
    let mut own = Vec::new();
    walk::output(&parts.rel, &mut own);
    let columns = own.into_iter().map(|id| (id, Scalar::Column(id))).chain(added).collect();
    let rel = std::mem::replace(&mut parts.rel, Rel::Values { columns: Vec::new(), rows: Vec::new() });
    parts.rel = Rel::Project { input: Box::new(rel), columns };
}

fn nothing_distinct() -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "SELECT DISTINCT must have at least one column")
}

/// Puts columns in the place of what they hold.
fn substitute(scalar: &mut Scalar, held: &[(Scalar, ColumnId)]) {
    match held.iter().find(|(other, _)| same(other, scalar)) {
        Some((_, id)) => *scalar = Scalar::Column(*id),
        None => walk::parts_mut(scalar, &mut |child| substitute(child, held)),
    }
}

/// The projection above a sort that computes `late`; what it takes of the rows below the sort is added to `columns`.
fn with_late(
    rel: &Rel,
    items: &[Item],
    columns: &mut Vec<(ColumnId, Scalar)>,
    late: Vec<(ColumnId, Scalar)>,
) -> Vec<(ColumnId, Scalar)> {
    let mut given = Vec::new();
    walk::output(rel, &mut given);
    for (_, scalar) in &late {
        walk::for_each_column(scalar, &mut |id| {
            if given.contains(&id) && !columns.iter().any(|(other, _)| *other == id) {
                columns.push((id, Scalar::Column(id)));
            }
        });
    }
    let passed = columns.iter().filter(|(id, _)| items.iter().any(|item| item.id == *id));
    passed.map(|(id, _)| (*id, Scalar::Column(*id))).chain(late).collect()
}

impl Level {
    /// Whether the level has anything to aggregate.
    pub(super) fn has_aggregates(&self) -> bool {
        !self.aggregates.is_empty()
    }
}

fn output(items: Vec<Item>) -> Vec<Column> {
    items
        .into_iter()
        .map(|Item { name, typed, id }| Column {
            name,
            column: id,
            ty: typed.ty,
            modifier: typed.modifier,
            position: typed.position,
        })
        .collect()
}

/// `FOR UPDATE is not allowed with DISTINCT clause`
pub(super) fn lock_conflict(lock: &ast::LockClause, what: &str) -> Error {
    let message = format!("{} is not allowed with {what}", super::lock::written(lock));
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// An item of the list, where another clause names it.
fn copy(item: &Typed) -> Result<Typed> {
    effort::made(size(&item.scalar))?;
    Ok(item.clone())
}

/// The place of a `*`; what other dialects put behind it is refused.
fn wildcard(options: &ast::WildcardAdditionalOptions) -> Result<Option<usize>> {
    let ast::WildcardAdditionalOptions {
        wildcard_token,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let at = position(wildcard_token.0.span);
    let extra = opt_ilike.is_some()
        || opt_exclude.is_some()
        || opt_except.is_some()
        || opt_replace.is_some()
        || opt_rename.is_some()
        || opt_alias.is_some();
    if extra { Err(place(Error::unsupported("a clause behind \"*\""), at)) } else { Ok(at) }
}

/// Clauses that are not implemented, or no PostgreSQL.
fn refuse_foreign(select: &Select) -> Result<()> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let refused = [
        (into.is_some(), "SELECT INTO"),
        (!named_window.is_empty(), "WINDOW"),
        (select_modifiers.is_some(), "a modifier of SELECT"),
        (top.is_some(), "TOP"),
        (exclude.is_some(), "EXCLUDE"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (prewhere.is_some(), "PREWHERE"),
        (!connect_by.is_empty(), "CONNECT BY"),
        (!cluster_by.is_empty(), "CLUSTER BY"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!sort_by.is_empty(), "SORT BY"),
        (qualify.is_some(), "QUALIFY"),
        (value_table_mode.is_some(), "SELECT AS"),
        (*flavor != ast::SelectFlavor::Standard, "FROM before SELECT"),
    ];
    match refused.iter().find(|(found, _)| *found) {
        Some((_, what)) => Err(Error::unsupported(what)),
        None => Ok(()),
    }
}

/// A constant NULL of a type.
pub(super) fn null_of(ty: Type) -> Scalar {
    Scalar::Literal { value: Value::Null, ty }
}
