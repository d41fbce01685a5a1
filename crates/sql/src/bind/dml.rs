//! INSERT, UPDATE and DELETE.

use super::binder::{Binder, Clause, RelationKind, Typed, Visible, named, place};
use super::select::{Column, Item};
use super::tokens::position;
use super::{name_parts, name_position};
use crate::catalog::Table;
use crate::logical::{
    ColumnId, Delete, Insert, InsertValue, Output, Query, Rel, Scalar, Subquery, SubqueryKind, Update,
};
use crate::types::{NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{
    self, AssignmentTarget, Expr, SelectItem, SetExpr, Spanned, TableFactor, TableWithJoins,
};
use std::sync::Arc;

/// RETURNING: columns and what they are.
type Returning = Option<Vec<(Output, Scalar)>>;

impl<'a> Binder<'a> {
    /// The table a statement changes.
    fn changed_table(&mut self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let at = name_position(name);
        let parts = name_parts(name)?;
        let (schema, table) = self.split_name(&parts).map_err(|error| place(error, at))?;
        if schema.is_none_or(|schema| schema != "public") && crate::system::find(schema, table).is_some() {
            let message = format!("permission denied: \"{table}\" is a system catalog");
            return Err(place(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message), at));
        }
        self.find_table(schema, table).map_err(|error| place(error, at))
    }

    pub(super) fn insert(&mut self, insert: &'a ast::Insert) -> Result<Insert> {
        refuse_foreign_insert(insert)?;
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(Error::unsupported("INSERT into something other than a table"));
        };
        let table = self.changed_table(name)?;
        let alias = match &insert.table_alias {
            Some(ast::TableAliasWithoutColumns { explicit: _, alias }) => named(alias)?.0,
            None => table.name.clone(),
        };
        let targets = insert_targets(&table, &insert.columns)?;
        let named_at: Vec<Option<usize>> = insert.columns.iter().map(name_position).collect();
        let (source, mut sources) = match insert.source.as_deref() {
            None => (one_row(), Vec::new()),
            Some(query) => self.insert_source(&table, &targets, &named_at, query)?,
        };
        let mut values = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            let given = targets.iter().position(|target| *target == index).filter(|at| *at < sources.len());
            values.push(match given {
                Some(at) => InsertValue::Source(sources[at]),
                None => InsertValue::Default(self.default_of(column)?),
            });
        }
        sources.clear();
        let row = self.add_table_columns(&table);
        let checks = self.checks(&table, &row)?;
        self.push_level(Clause::Returning);
        self.show_row(&table, alias, &row);
        let returning = self.returning(insert.returning.as_deref())?;
        self.pop_level();
        Ok(Insert { table, source, values, returning, row, checks })
    }

    /// The rows to be inserted, converted to the types of the columns they go to.
    fn insert_source(
        &mut self,
        table: &Arc<Table>,
        targets: &[usize],
        named_at: &[Option<usize>],
        query: &'a ast::Query,
    ) -> Result<(Query, Vec<ColumnId>)> {
        let plain = super::bridge::with_clause(query).is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty();
        if let (SetExpr::Values(values), true) = (&*query.body, plain) {
            return self.insert_values(table, targets, named_at, values);
        }
        let bound = self.open_query(query)?;
        let places: Vec<Option<usize>> = bound.output.iter().map(|column| column.position).collect();
        check_width(targets.len(), &places, named_at)?;
        let mut bound = bound;
        // Literals take the type of their column; what has a type is converted by assignment.
        let types: Vec<Type> = bound
            .output
            .iter()
            .zip(targets)
            .map(
                |(column, target)| {
                    if column.ty == Type::Unknown { table.columns[*target].ty } else { column.ty }
                },
            )
            .collect();
        bound = self.convert_output(bound, &types)?;
        let mut columns: Vec<(ColumnId, Scalar)> = Vec::with_capacity(targets.len());
        let mut converted = false;
        for (column, target) in bound.output.iter().zip(targets) {
            let target = &table.columns[*target];
            let typed = Typed {
                scalar: Scalar::Column(column.column),
                ty: column.ty,
                modifier: column.modifier,
                position: column.position,
            };
            let scalar = self.assign(typed, target)?;
            let id = match &scalar {
                Scalar::Column(id) => *id,
                _ => {
                    converted = true;
                    self.add_column(&target.name, target.ty, target.modifier, true)
                }
            };
            columns.push((id, scalar));
        }
        let sources: Vec<ColumnId> = columns.iter().map(|(id, _)| *id).collect();
        let mut rel = bound.rel;
        if converted {
            let mut distinct: Vec<(ColumnId, Scalar)> = Vec::with_capacity(columns.len());
            for (id, scalar) in columns {
                if !distinct.iter().any(|(other, _)| *other == id) {
                    distinct.push((id, scalar));
                }
            }
            rel = Rel::Project { input: Box::new(rel), columns: distinct };
        }
        let output = sources
            .iter()
            .zip(bound.output)
            .map(|(id, column)| Output { column: *id, name: column.name })
            .collect();
        Ok((Query { rel, output }, sources))
    }

    /// VALUES: each expression is converted for itself, and may be DEFAULT.
    fn insert_values(
        &mut self,
        table: &Arc<Table>,
        targets: &[usize],
        named_at: &[Option<usize>],
        values: &'a ast::Values,
    ) -> Result<(Query, Vec<ColumnId>)> {
        let ast::Values { explicit_row: _, value_keyword: _, rows } = values;
        let width = rows.first().map_or(0, |row| row.content.len());
        self.push_level(Clause::InsertValues);
        let mut bound = Vec::with_capacity(rows.len());
        for row in rows {
            if row.content.len() != width {
                let error = Error::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length");
                return Err(place(error, row.content.first().and_then(|expr| position(expr.span()))));
            }
            if bound.is_empty() {
                let places: Vec<Option<usize>> =
                    row.content.iter().map(|expr| position(expr.span())).collect();
                check_width(targets.len(), &places, named_at)?;
            }
            let mut cells = Vec::with_capacity(width);
            for (expr, target) in row.content.iter().zip(targets) {
                let column = &table.columns[*target];
                cells.push(if is_default(expr) {
                    self.default_of(column)?
                } else {
                    let typed = self.expr(expr)?;
                    self.assign(typed, column)?
                });
            }
            bound.push(cells);
        }
        self.pop_level();
        let mut columns = Vec::with_capacity(width);
        let mut output = Vec::with_capacity(width);
        for target in &targets[..width] {
            let column = &table.columns[*target];
            let id = self.add_column(&column.name, column.ty, column.modifier, true);
            columns.push(id);
            output.push(Output { column: id, name: column.name.clone() });
        }
        Ok((Query { rel: Rel::Values { columns: columns.clone(), rows: bound }, output }, columns))
    }

    /// A column's default, or NULL.
    fn default_of(&mut self, column: &crate::catalog::Column) -> Result<Scalar> {
        match &column.default {
            Some(sql) => super::bind_default(self.scope, column.ty, column.modifier, sql),
            None => Ok(super::select::null_of(column.ty)),
        }
    }

    /// The CHECK constraints of a table over the columns of a row.
    fn checks(&mut self, table: &Arc<Table>, row: &[ColumnId]) -> Result<Vec<(String, Scalar)>> {
        let mut checks = Vec::with_capacity(table.checks.len());
        for check in &table.checks {
            let mut scalar = super::bind_check(self.scope, table, &check.expression)?;
            renumber(&mut scalar, row);
            checks.push((check.name.clone(), scalar));
        }
        Ok(checks)
    }

    /// Shows a row of a table under a name.
    fn show_row(&mut self, table: &Arc<Table>, name: String, row: &[ColumnId]) {
        let schema = (name == table.name).then(|| "public".to_owned());
        let columns =
            table.columns.iter().map(|column| column.name.clone()).zip(row.iter().copied()).collect();
        let table = Some(Arc::clone(table));
        self.show(Visible {
            name: Some(name),
            schema,
            columns,
            table,
            kind: RelationKind::Table,
            optional: false,
            witness: None,
        });
    }

    fn returning(&mut self, list: Option<&'a [SelectItem]>) -> Result<Returning> {
        let Some(list) = list else { return Ok(None) };
        let mut items: Vec<Item> = Vec::new();
        for item in list {
            self.item(item, &mut items)?;
        }
        let mut returning = Vec::with_capacity(items.len());
        for Item { name, typed, id } in items {
            let typed = self.settle(typed)?;
            self.columns.0[id.0 as usize].ty = typed.ty;
            returning.push((Output { column: id, name }, typed.scalar));
        }
        Ok(Some(returning))
    }

    /// The table of UPDATE or DELETE, with its alias.
    fn changed_relation(&mut self, item: &'a TableWithJoins) -> Result<(Arc<Table>, String, Rel)> {
        let TableWithJoins { relation, joins } = item;
        let TableFactor::Table { name, alias, args: None, .. } = relation else {
            return Err(Error::unsupported("UPDATE or DELETE of something other than a table"));
        };
        if !joins.is_empty() {
            return Err(Error::unsupported("UPDATE or DELETE of a join"));
        }
        let table = self.changed_table(name)?;
        let shown = match alias {
            Some(alias) if !alias.columns.is_empty() => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "syntax error: column aliases of a changed table",
                ));
            }
            Some(alias) => named(&alias.name)?.0,
            None => table.name.clone(),
        };
        self.count_relation()?;
        let rel = self.target(&table, shown.clone())?;
        Ok((table, shown, rel))
    }

    /// WHERE of UPDATE and DELETE: the filtered rows, and the condition again.
    fn changed_rows(&mut self, rel: Rel, selection: Option<&'a Expr>) -> Result<(Rel, Option<Scalar>)> {
        let Some(condition) = selection else { return Ok((rel, None)) };
        let predicate = self.within(Clause::Where, |this| {
            let typed = this.expr(condition)?;
            this.condition(typed, "argument of WHERE")
        })?;
        Ok((Rel::Filter { input: Box::new(rel), predicate: predicate.clone() }, Some(predicate)))
    }

    pub(super) fn update(&mut self, update: &'a ast::Update) -> Result<Update> {
        let ast::Update {
            update_token: _,
            optimizer_hints: _,
            table,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
        } = update;
        if output.is_some() || or.is_some() || !order_by.is_empty() || limit.is_some() {
            return Err(Error::unsupported("a clause of another SQL in UPDATE"));
        }
        self.push_level(Clause::Update);
        let (table, _, rel) = self.changed_relation(table)?;
        let old = table_columns(&rel);
        let items: &'a [TableWithJoins] = match from {
            None => &[],
            Some(ast::UpdateTableFromKind::AfterSet(items)) => items,
            Some(ast::UpdateTableFromKind::BeforeSet(_)) => {
                return Err(Error::unsupported("FROM before SET"));
            }
        };
        let rel = self.items_beside(rel, items)?;
        let (source, recheck) = self.changed_rows(rel, selection.as_ref())?;
        let assignments = self.assignments(&table, assignments)?;
        let row = self.add_table_columns(&table);
        let checks = self.checks(&table, &row)?;
        // RETURNING sees the new row in the place of the old one, and all else as it was: columns that joins of FROM have merged, too.
        row.iter().for_each(|&column| self.own(column));
        let level = self.level();
        level.clause = Clause::Returning;
        let exchange = |(_, column): &mut (String, ColumnId)| {
            if let Some(at) = old.iter().position(|old| old == column) {
                *column = row[at];
            }
        };
        level.sight.columns.iter_mut().for_each(exchange);
        level.sight.relations.iter_mut().flat_map(|relation| &mut relation.columns).for_each(exchange);
        let returning = self.returning(returning.as_deref())?;
        self.pop_level();
        Ok(Update { table, old, source, recheck, assignments, row, returning, checks })
    }

    fn assignments(
        &mut self,
        table: &Arc<Table>,
        list: &'a [ast::Assignment],
    ) -> Result<Vec<(Vec<usize>, Scalar)>> {
        let mut assignments: Vec<(Vec<usize>, Scalar)> = Vec::new();
        for ast::Assignment { target, value } in list {
            let names: Vec<&ast::ObjectName> = match target {
                AssignmentTarget::ColumnName(name) => vec![name],
                AssignmentTarget::Tuple(names) => names.iter().collect(),
            };
            let mut positions = Vec::with_capacity(names.len());
            for name in names {
                let index = assigned_column(table, name)?;
                if assignments.iter().any(|(others, _)| others.contains(&index)) || positions.contains(&index)
                {
                    let message =
                        format!("multiple assignments to same column \"{}\"", table.columns[index].name);
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                positions.push(index);
            }
            match target {
                AssignmentTarget::ColumnName(_) => {
                    let scalar = self.assigned(&table.columns[positions[0]], value)?;
                    assignments.push((positions, scalar));
                }
                AssignmentTarget::Tuple(_) => self.assign_row(table, &positions, value, &mut assignments)?,
            }
        }
        Ok(assignments)
    }

    fn assigned(&mut self, column: &crate::catalog::Column, value: &'a Expr) -> Result<Scalar> {
        if is_default(value) {
            return self.default_of(column);
        }
        let typed = self.expr(value)?;
        self.assign(typed, column)
    }

    /// `(a, b) = (1, 2)`, `= ROW(1, 2)` or `= (SELECT ...)`
    fn assign_row(
        &mut self,
        table: &Arc<Table>,
        positions: &[usize],
        value: &'a Expr,
        assignments: &mut Vec<(Vec<usize>, Scalar)>,
    ) -> Result<()> {
        let begins = self.parenthesis_place(value.span());
        let mismatch = || {
            let error =
                Error::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values");
            place(error, begins)
        };
        if let Some(parts) = super::operators::row_of(value) {
            if parts.len() != positions.len() {
                return Err(mismatch());
            }
            for (index, part) in positions.iter().zip(parts) {
                let scalar = self.assigned(&table.columns[*index], part)?;
                assignments.push((vec![*index], scalar));
            }
            return Ok(());
        }
        let Expr::Subquery(query) = value else {
            if let ([index], false) = (positions, is_default(value)) {
                let scalar = self.assigned(&table.columns[*index], super::operators::inner(value))?;
                assignments.push((vec![*index], scalar));
                return Ok(());
            }
            let error = Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            );
            return Err(place(error, position(value.span())));
        };
        let bound = self.query(query)?;
        if bound.output.len() != positions.len() {
            return Err(mismatch());
        }
        let mut parts = Vec::with_capacity(positions.len());
        for (index, output) in positions.iter().zip(bound.output) {
            let Column { column, ty, modifier, position, .. } = output;
            let typed = Typed { scalar: Scalar::Column(column), ty, modifier, position };
            parts.push(self.assign(typed, &table.columns[*index])?);
        }
        // The subquery is run once and gives all of them.
        let (scalar, ty) = match parts.len() {
            1 => (parts.remove(0), table.columns[positions[0]].ty),
            _ => (Scalar::Row(parts), Type::Record),
        };
        let row = self.add_column("row", ty, NO_MODIFIER, true);
        let query = Query {
            rel: Rel::Project { input: Box::new(bound.rel), columns: vec![(row, scalar)] },
            output: vec![Output { column: row, name: "row".to_owned() }],
        };
        let subquery = Subquery { query, kind: SubqueryKind::Scalar };
        assignments.push((positions.to_vec(), Scalar::Subquery(Box::new(subquery))));
        Ok(())
    }

    pub(super) fn delete(&mut self, delete: &'a ast::Delete) -> Result<Delete> {
        let ast::Delete {
            delete_token: _,
            optimizer_hints: _,
            tables,
            from,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
        } = delete;
        if !tables.is_empty() || output.is_some() || !order_by.is_empty() || limit.is_some() {
            return Err(Error::unsupported("a clause of another SQL in DELETE"));
        }
        let (ast::FromTable::WithFromKeyword(items) | ast::FromTable::WithoutKeyword(items)) = from;
        let [item] = items.as_slice() else {
            return Err(Error::unsupported("DELETE from several tables"));
        };
        self.push_level(Clause::From);
        let (table, _, rel) = self.changed_relation(item)?;
        let old = table_columns(&rel);
        let rel = self.items_beside(rel, using.as_deref().unwrap_or(&[]))?;
        let (source, recheck) = self.changed_rows(rel, selection.as_ref())?;
        self.level().clause = Clause::Returning;
        let returning = self.returning(returning.as_deref())?;
        self.pop_level();
        Ok(Delete { table, old, source, recheck, returning })
    }
}

/// One row without columns.
fn one_row() -> Query {
    Query { rel: Rel::Values { columns: Vec::new(), rows: vec![Vec::new()] }, output: Vec::new() }
}

fn table_columns(rel: &Rel) -> Vec<ColumnId> {
    match rel {
        Rel::Table { columns, .. } => columns.clone(),
        _ => Vec::new(),
    }
}

/// Whether an expression is the word DEFAULT.
fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The columns an INSERT names, by position in the table; all of them where it names none.
fn insert_targets(table: &Table, names: &[ast::ObjectName]) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut targets = Vec::with_capacity(names.len());
    for name in names {
        let at = name_position(name);
        let index = assigned_column(table, name)?;
        if targets.contains(&index) {
            let message = format!("column \"{}\" specified more than once", table.columns[index].name);
            return Err(place(Error::new(SqlState::DUPLICATE_COLUMN, message), at));
        }
        targets.push(index);
    }
    Ok(targets)
}

/// The column a name stands for on the left side of an assignment.
fn assigned_column(table: &Table, name: &ast::ObjectName) -> Result<usize> {
    let at = name_position(name);
    let parts = name_parts(name)?;
    let [column] = parts.as_slice() else {
        let message = format!("column \"{}\" of relation \"{}\" does not exist", parts[0], table.name);
        return Err(place(Error::new(SqlState::UNDEFINED_COLUMN, message), at));
    };
    table.find_column(column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
        place(Error::new(SqlState::UNDEFINED_COLUMN, message), at)
    })
}

/// As many values as columns; fewer are allowed where no columns were named. Given are the places of the values and names.
fn check_width(targets: usize, values: &[Option<usize>], named_at: &[Option<usize>]) -> Result<()> {
    if values.len() > targets {
        let error = Error::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns");
        return Err(place(error, values[targets]));
    }
    if values.len() < named_at.len() {
        let error = Error::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions");
        return Err(place(error, named_at[values.len()]));
    }
    Ok(())
}

/// Clauses of INSERT that are not implemented, or no PostgreSQL.
fn refuse_foreign_insert(insert: &ast::Insert) -> Result<()> {
    let ast::Insert {
        insert_token: _,
        optimizer_hints: _,
        or,
        ignore,
        into,
        table: _,
        table_alias: _,
        columns: _,
        overwrite,
        source: _,
        assignments,
        partitioned,
        after_columns,
        has_table_keyword,
        on,
        returning: _,
        output,
        replace_into,
        priority,
        insert_alias,
        settings,
        format_clause,
        multi_table_insert_type,
        multi_table_into_clauses,
        multi_table_when_clauses,
        multi_table_else_clause,
    } = insert;
    if on.is_some() {
        return Err(Error::unsupported("ON CONFLICT"));
    }
    let foreign = or.is_some()
        || *ignore
        || !*into
        || *overwrite
        || !assignments.is_empty()
        || partitioned.is_some()
        || !after_columns.is_empty()
        || *has_table_keyword
        || output.is_some()
        || *replace_into
        || priority.is_some()
        || insert_alias.is_some()
        || settings.is_some()
        || format_clause.is_some()
        || multi_table_insert_type.is_some()
        || !multi_table_into_clauses.is_empty()
        || !multi_table_when_clauses.is_empty()
        || multi_table_else_clause.is_some();
    if foreign { Err(Error::unsupported("a clause of another SQL in INSERT")) } else { Ok(()) }
}

/// Columns numbered by their position in the table become those of a row.
fn renumber(scalar: &mut Scalar, row: &[ColumnId]) {
    if let Scalar::Column(id) = scalar {
        *id = row[id.0 as usize];
    }
    crate::logical::walk::parts_mut(scalar, &mut |child| renumber(child, row));
}
