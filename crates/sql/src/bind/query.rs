//! Queries: WITH, UNION and its kin, VALUES, ORDER BY, LIMIT.

use super::binder::{
    Again, Binder, Clause, CommonTable, RelationKind, Typed, Visible, VolatileUse, levels_below, named, place,
};
use super::bridge::with_clause;
use super::operators::inner;
use super::select::{Around, BoundQuery, Column};
use super::tokens::position;
use crate::functions::common_type;
use crate::logical::{ColumnId, Output, Query, Rel, Scalar, SetOperation, SortKey};
use crate::types::cast::CastContext;
use crate::types::{Modifier, NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, Expr, OrderByExpr, SetExpr, Spanned};

/// UNION, EXCEPT or INTERSECT with its right side.
type Step<'a> = (&'a ast::SetOperator, &'a ast::SetQuantifier, &'a SetExpr);

/// LIMIT or FETCH.
#[derive(Clone, Copy)]
enum Count<'a> {
    Limit(&'a Expr),
    Fetch(&'a ast::Fetch),
}

impl Count<'_> {
    fn place(self) -> Option<usize> {
        match self {
            Count::Limit(expr) | Count::Fetch(ast::Fetch { quantity: Some(expr), .. }) => {
                position(expr.span())
            }
            Count::Fetch(_) => None,
        }
    }
}

/// The clauses of a query. In parentheses, with nothing beside them, stands the same query: `(SELECT ... LIMIT 2) ORDER BY 1` is sorted
/// first.
struct Clauses<'a> {
    with: Option<&'a ast::With>,
    body: &'a SetExpr,
    order_by: &'a [OrderByExpr],
    limit: Option<Count<'a>>,
    offset: Option<&'a Expr>,
    locks: Vec<&'a ast::LockClause>,
}

impl<'a> Clauses<'a> {
    fn of(query: &'a ast::Query) -> Result<Self> {
        let mut clauses = Clauses {
            with: None,
            body: &query.body,
            order_by: &[],
            limit: None,
            offset: None,
            locks: Vec::new(),
        };
        clauses.add(query)?;
        while let SetExpr::Query(nested) = clauses.body {
            clauses.body = &nested.body;
            clauses.add(nested)?;
        }
        Ok(clauses)
    }

    /// Adds those of a query in the parentheses. What there is already stands outside them.
    fn add(&mut self, query: &'a ast::Query) -> Result<()> {
        let ast::Query {
            with: _,
            body: _,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty()
        {
            return Err(Error::unsupported("a clause of another SQL"));
        }
        let order_by: &[OrderByExpr] = match order_by {
            None => &[],
            Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(list), interpolate: None }) => list,
            Some(ast::OrderBy { kind: ast::OrderByKind::All(_), .. }) => {
                return Err(Error::unsupported("ORDER BY ALL"));
            }
            Some(_) => return Err(Error::unsupported("INTERPOLATE")),
        };
        match (self.order_by.first(), order_by) {
            (_, []) => {}
            (None, list) => self.order_by = list,
            (Some(outer), _) => return Err(multiple("ORDER BY", position(outer.expr.span()))),
        }
        let (limit, offset) = match limit_clause {
            None => (None, None),
            Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return Err(Error::unsupported("LIMIT BY"));
                }
                (limit.as_ref(), offset.as_ref().map(|ast::Offset { value, rows: _ }| value))
            }
            Some(ast::LimitClause::OffsetCommaLimit { .. }) => {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "LIMIT #,# syntax is not supported")
                    .hint("Use separate LIMIT and OFFSET clauses."));
            }
        };
        for count in limit.map(Count::Limit).into_iter().chain(fetch.as_ref().map(Count::Fetch)) {
            match self.limit.replace(count) {
                None => {}
                Some(outer) => return Err(multiple("LIMIT", outer.place())),
            }
        }
        if let (Some(outer), Some(_)) = (self.offset, offset) {
            return Err(multiple("OFFSET", position(outer.span())));
        }
        self.offset = self.offset.or(offset);
        match (self.with, with_clause(query)) {
            (Some(outer), Some(_)) => return Err(multiple("WITH", position(outer.with_token.0.span))),
            (outer, inner) => self.with = outer.or(inner),
        }
        self.locks.splice(0..0, locks);
        Ok(())
    }
}

fn multiple(clause: &str, at: Option<usize>) -> Error {
    let message = format!("multiple {clause} clauses not allowed");
    place(Error::new(SqlState::SYNTAX_ERROR, message), at)
}

/// A sort key with its options; PostgreSQL puts NULLs last, and first where the order is descending.
pub(super) fn sort_key(
    scalar: Scalar,
    options: &ast::OrderByOptions,
    with_fill: Option<&ast::WithFill>,
) -> Result<SortKey> {
    let ast::OrderByOptions { sort, nulls_first } = options;
    if with_fill.is_some() {
        return Err(Error::unsupported("WITH FILL"));
    }
    let descending = match sort {
        None | Some(ast::OrderBySort::Asc) => false,
        Some(ast::OrderBySort::Desc) => true,
        Some(ast::OrderBySort::Using(_)) => return Err(Error::unsupported("ORDER BY USING")),
    };
    Ok(SortKey { scalar, descending, nulls_first: nulls_first.unwrap_or(descending) })
}

/// What is wrong with a WITH query that would be run more than once.
pub(super) const VOLATILE: &str = "is volatile and used more than once";
pub(super) const OPEN: &str =
    "takes rows by LIMIT or DISTINCT ON, depends on a query around it and is used more than once";

/// The error of such a WITH query.
pub(super) fn used_again(name: &str, what: &str, at: Option<usize>) -> Error {
    let what = format!("WITH query \"{name}\", which {what},");
    place(Error::unsupported(what), at)
}

impl<'a> Binder<'a> {
    /// A query whose columns all have types.
    pub(super) fn query(&mut self, query: &'a ast::Query) -> Result<BoundQuery> {
        let bound = self.open_query(query)?;
        self.settle_output(bound)
    }

    /// A query as it is handed on.
    pub(super) fn closed(bound: BoundQuery) -> Query {
        let output = bound
            .output
            .into_iter()
            .map(|column| Output { column: column.column, name: column.name })
            .collect();
        Query { rel: bound.rel, output }
    }

    /// A query; literals among its columns may be without a type.
    pub(super) fn open_query(&mut self, query: &'a ast::Query) -> Result<BoundQuery> {
        let clauses = Clauses::of(query)?;
        self.enter_query()?;
        let tables = self.common_tables.len();
        let (around, uses) = (std::mem::take(&mut self.used_levels), self.volatile_uses.len());
        if let Some(with) = clauses.with {
            self.with(with)?;
        }
        let bound = self.query_body(clauses).and_then(|bound| self.check_unused(tables).map(|()| bound));
        self.common_tables.truncate(tables);
        self.query_depth -= 1;
        let bound = bound?;
        self.used_levels &= levels_below(self.levels.len());
        self.check_volatile(uses)?;
        self.used_levels |= around;
        Ok(bound)
    }

    /// A query that uses columns of queries around it runs for each of their rows, and so would the WITH queries that it uses: where these
    /// are volatile and would not run that often themselves, each row would see them anew.
    fn check_volatile(&self, uses: usize) -> Result<()> {
        let levels = |set: u128| set.checked_ilog2();
        let again = |one: &&VolatileUse| levels(self.used_levels) > levels(one.depends);
        match self.volatile_uses[uses..].iter().find(again) {
            Some(one) => Err(used_again(&one.name, VOLATILE, one.position)),
            None => Ok(()),
        }
    }

    fn with(&mut self, with: &'a ast::With) -> Result<()> {
        let ast::With { with_token: _, recursive, cte_tables } = with;
        let before = self.common_tables.len();
        for cte in cte_tables {
            let ast::Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
            let ast::TableAlias { explicit: _, name, columns, at } = alias;
            if from.is_some() || at.is_some() {
                return Err(Error::unsupported("this form of WITH"));
            }
            let (name, place_of_name) = named(name)?;
            if matches!(
                &*query.body,
                SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
            ) {
                return Err(place(Error::unsupported("a data-modifying statement in WITH"), place_of_name));
            }
            if self.common_tables[before..].iter().any(|other| other.name == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(place(Error::new(SqlState::DUPLICATE_ALIAS, message), place_of_name));
            }
            let columns =
                columns.iter().map(|column| super::identifier(&column.name)).collect::<Result<Vec<_>>>()?;
            // With RECURSIVE a query sees itself, to be refused where it uses that.
            let tables = self.common_tables.len() + usize::from(*recursive);
            let levels = self.levels.len();
            self.common_tables.push(CommonTable {
                name,
                columns,
                query,
                levels,
                tables,
                used: false,
                again: Again::Anew,
                open: false,
                position: place_of_name,
            });
        }
        Ok(())
    }

    /// Errors are told also of WITH queries that nobody uses.
    fn check_unused(&mut self, from: usize) -> Result<()> {
        for index in from..self.common_tables.len() {
            if self.common_tables[index].used {
                continue;
            }
            let CommonTable { query, tables, .. } = self.common_tables[index].clone();
            let rest = self.common_tables.split_off(tables);
            self.set_open(index, true);
            let outer = std::mem::replace(&mut self.unused, true);
            let result = self.query(query);
            self.unused = outer;
            self.set_open(index, false);
            self.common_tables.truncate(tables);
            self.common_tables.extend(rest);
            result?;
        }
        Ok(())
    }

    /// Says that a WITH query is being bound, if it is in its own sight.
    pub(super) fn set_open(&mut self, index: usize, open: bool) {
        if let Some(common) = self.common_tables.get_mut(index) {
            common.open = open;
        }
    }

    fn query_body(&mut self, clauses: Clauses<'a>) -> Result<BoundQuery> {
        let Clauses { with: _, body, order_by, limit, offset, locks } = clauses;
        let around = Around { order_by, locks };
        let mut bound = self.body(body, &around)?;
        let (limit, offset) = self.limits(limit, offset)?;
        if limit.is_some() || offset.is_some() {
            bound.rel = Rel::Limit { input: Box::new(bound.rel), limit, offset };
        }
        Ok(bound)
    }

    fn body(&mut self, body: &'a SetExpr, around: &Around<'a>) -> Result<BoundQuery> {
        if let SetExpr::Select(select) = body {
            return self.select(select, around);
        }
        if let Some(lock) = around.locks.first() {
            if matches!(body, SetExpr::Values(_)) {
                let message = format!("{} cannot be applied to VALUES", super::lock::written(lock));
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            return Err(super::select::lock_conflict(lock, "UNION/INTERSECT/EXCEPT"));
        }
        let bound = match body {
            SetExpr::Select(_) => return Err(Error::internal("a SELECT twice")),
            SetExpr::Query(query) => self.open_query(query)?,
            SetExpr::Values(values) => self.values(values)?,
            SetExpr::SetOperation { .. } => self.set_operations(body)?,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) => {
                return Err(Error::unsupported("WITH in front of a data-modifying statement"));
            }
            SetExpr::Merge(_) => return Err(Error::unsupported("MERGE")),
            SetExpr::Table(_) => return Err(Error::unsupported("TABLE")),
        };
        if around.order_by.is_empty() {
            return Ok(bound);
        }
        let bound = self.settle_output(bound)?;
        let any = matches!(body, SetExpr::Values(_));
        self.order_output(bound, around.order_by, any)
    }

    /// ORDER BY over a result: by number or name of a column, or (`any`) expressions over them.
    fn order_output(
        &mut self,
        bound: BoundQuery,
        order_by: &'a [OrderByExpr],
        any: bool,
    ) -> Result<BoundQuery> {
        let mut keys = Vec::with_capacity(order_by.len());
        for OrderByExpr { expr, options, with_fill } in order_by {
            let named = match self.list_position(expr, bound.output.len(), "ORDER BY")? {
                Some(index) => Some(bound.output[index].column),
                None => output_reference(&bound.output, expr)?,
            };
            let scalar = match named {
                Some(id) => Scalar::Column(id),
                None if any => self.output_expression(&bound, expr)?,
                None if matches!(inner(expr), Expr::Identifier(_)) => {
                    let name = inner(expr).to_string();
                    let message = format!("column \"{name}\" does not exist");
                    return Err(place(
                        Error::new(SqlState::UNDEFINED_COLUMN, message),
                        position(expr.span()),
                    ));
                }
                None => {
                    let error = Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    )
                    .detail("Only result column names can be used, not expressions or functions.")
                    .hint(
                        "Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
                    );
                    return Err(place(error, position(expr.span())));
                }
            };
            keys.push(sort_key(scalar, options, with_fill.as_ref())?);
        }
        Ok(BoundQuery { rel: Rel::Sort { input: Box::new(bound.rel), keys }, output: bound.output })
    }

    fn output_expression(&mut self, bound: &BoundQuery, expr: &'a Expr) -> Result<Scalar> {
        self.push_level(Clause::OrderBy);
        let columns = bound.output.iter().map(|column| (column.name.clone(), column.column)).collect();
        let name = Some("*VALUES*".to_owned());
        self.show(Visible {
            name,
            schema: None,
            columns,
            table: None,
            kind: RelationKind::Subquery,
            optional: false,
            witness: None,
        });
        let scalar = self.expr(expr).and_then(|typed| self.settle(typed));
        self.pop_level();
        Ok(scalar?.scalar)
    }

    fn limits(
        &mut self,
        limit: Option<Count<'a>>,
        offset: Option<&'a Expr>,
    ) -> Result<(Option<Scalar>, Option<Scalar>)> {
        self.push_level(Clause::Limit);
        let result = (|| {
            let limit = match limit {
                None => None,
                Some(Count::Limit(limit)) => Some(self.count_of_rows(limit, Clause::Limit)?),
                Some(Count::Fetch(ast::Fetch { with_ties: true, .. })) => {
                    return Err(Error::unsupported("WITH TIES"));
                }
                Some(Count::Fetch(ast::Fetch { percent: true, .. })) => {
                    return Err(Error::unsupported("FETCH with PERCENT"));
                }
                Some(Count::Fetch(ast::Fetch { quantity: Some(quantity), .. })) => {
                    Some(self.count_of_rows(quantity, Clause::Limit)?)
                }
                Some(Count::Fetch(_)) => {
                    Some(Scalar::Literal { value: crate::Value::Int(1), ty: Type::Int8 })
                }
            };
            let offset = match offset {
                Some(offset) => Some(self.count_of_rows(offset, Clause::Offset)?),
                None => None,
            };
            Ok((limit, offset))
        })();
        self.pop_level();
        result
    }

    /// A chain of UNIONs and so on leans to the left and may be long: it is walked in a loop.
    fn set_operations(&mut self, body: &'a SetExpr) -> Result<BoundQuery> {
        let mut steps: Vec<Step<'a>> = Vec::new();
        let mut bottom = body;
        while let SetExpr::SetOperation { left, op, set_quantifier, right } = bottom {
            steps.push((op, set_quantifier, right));
            bottom = left;
        }
        let mut bound = self.body(bottom, &Around::default())?;
        for step in steps.into_iter().rev() {
            bound = self.set_operation(bound, step)?;
        }
        Ok(bound)
    }

    fn set_operation(&mut self, left: BoundQuery, (op, quantifier, right): Step<'a>) -> Result<BoundQuery> {
        let (operation, name) = match op {
            ast::SetOperator::Union => (SetOperation::Union, "UNION"),
            ast::SetOperator::Except => (SetOperation::Except, "EXCEPT"),
            ast::SetOperator::Intersect => (SetOperation::Intersect, "INTERSECT"),
            ast::SetOperator::Minus => return Err(Error::unsupported("MINUS")),
        };
        let all = match quantifier {
            ast::SetQuantifier::All => true,
            ast::SetQuantifier::Distinct | ast::SetQuantifier::None => false,
            ast::SetQuantifier::ByName
            | ast::SetQuantifier::AllByName
            | ast::SetQuantifier::DistinctByName => {
                return Err(Error::unsupported("BY NAME"));
            }
        };
        let right = self.body(right, &Around::default())?;
        if left.output.len() != right.output.len() {
            let message = format!("each {name} query must have the same number of columns");
            let at = right.output.first().and_then(|column| column.position);
            return Err(place(Error::new(SqlState::SYNTAX_ERROR, message), at));
        }
        let mut types = Vec::with_capacity(left.output.len());
        for (a, b) in left.output.iter().zip(&right.output) {
            let Some(ty) = common_type(&[a.ty, b.ty]) else {
                let message = format!("{name} types {} and {} cannot be matched", a.ty.name(), b.ty.name());
                return Err(place(Error::new(SqlState::DATATYPE_MISMATCH, message), b.position));
            };
            let modifier = if a.ty == b.ty && a.modifier == b.modifier { a.modifier } else { NO_MODIFIER };
            types.push((ty, modifier));
        }
        let plain: Vec<Type> = types.iter().map(|(ty, _)| *ty).collect();
        let left = self.convert_output(left, &plain)?;
        let right = self.convert_output(right, &plain)?;
        let ids =
            |bound: &BoundQuery| bound.output.iter().map(|column| column.column).collect::<Vec<ColumnId>>();
        let (left_ids, right_ids) = (ids(&left), ids(&right));
        let mut output = Vec::with_capacity(types.len());
        for (((ty, modifier), a), b) in types.into_iter().zip(left.output).zip(&right_ids) {
            let nullable = self.columns.get(a.column).nullable || self.columns.get(*b).nullable;
            let column = self.add_column(&a.name, ty, modifier, nullable);
            output.push(Column { name: a.name, column, ty, modifier, position: a.position });
        }
        let rel = Rel::Set {
            operation,
            all,
            left: (Box::new(left.rel), left_ids),
            right: (Box::new(right.rel), right_ids),
            columns: output.iter().map(|column| column.column).collect(),
        };
        Ok(BoundQuery { rel, output })
    }

    /// VALUES
    fn values(&mut self, values: &'a ast::Values) -> Result<BoundQuery> {
        let ast::Values { explicit_row: _, value_keyword: _, rows } = values;
        let width = rows.first().map_or(0, |row| row.content.len());
        self.push_level(Clause::Values);
        let bound = (|| {
            let mut columns: Vec<Vec<Typed>> = (0..width).map(|_| Vec::with_capacity(rows.len())).collect();
            for row in rows {
                if row.content.len() != width {
                    let error =
                        Error::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length");
                    return Err(place(error, row.content.first().and_then(|expr| position(expr.span()))));
                }
                for (column, expr) in columns.iter_mut().zip(&row.content) {
                    column.push(self.expr(expr)?);
                }
            }
            Ok(columns)
        })();
        self.pop_level();
        let mut cells: Vec<Vec<Scalar>> = (0..rows.len()).map(|_| Vec::with_capacity(width)).collect();
        let mut output = Vec::with_capacity(width);
        for (index, column) in bound?.into_iter().enumerate() {
            let at = column.first().and_then(|typed| typed.position);
            // A column of nothing but literals without types gets its type from where the rows go.
            let (scalars, ty, modifier) = if column.iter().all(|typed| typed.ty == Type::Unknown) {
                (column.into_iter().map(|typed| typed.scalar).collect(), Type::Unknown, NO_MODIFIER)
            } else {
                self.unify(column, "VALUES types")?
            };
            for (row, scalar) in cells.iter_mut().zip(scalars) {
                row.push(scalar);
            }
            let name = format!("column{}", index + 1);
            let id = self.add_column(&name, ty, modifier, true);
            output.push(Column { name, column: id, ty, modifier, position: at });
        }
        let columns = output.iter().map(|column| column.column).collect();
        Ok(BoundQuery { rel: Rel::Values { columns, rows: cells }, output })
    }

    /// Makes text of columns that nobody gave a type.
    pub(super) fn settle_output(&mut self, bound: BoundQuery) -> Result<BoundQuery> {
        if bound.output.iter().all(|column| column.ty != Type::Unknown) {
            return Ok(bound);
        }
        let types: Vec<Type> = bound
            .output
            .iter()
            .map(|column| if column.ty == Type::Unknown { Type::Text } else { column.ty })
            .collect();
        self.convert_output(bound, &types)
    }

    /// Converts the columns implicitly.
    pub(super) fn convert_output(&mut self, bound: BoundQuery, types: &[Type]) -> Result<BoundQuery> {
        self.converted_output(bound, types, |this, typed, ty| {
            this.coerce(typed, ty, NO_MODIFIER, CastContext::Implicit)
        })
    }

    /// The same by what converts one.
    pub(super) fn converted_output(
        &mut self,
        mut bound: BoundQuery,
        types: &[Type],
        mut convert: impl FnMut(&mut Self, Typed, Type) -> Result<Typed>,
    ) -> Result<BoundQuery> {
        let mut casts = false;
        for (column, ty) in bound.output.iter_mut().zip(types) {
            if column.ty == Type::Unknown {
                self.give_column_type(&mut bound.rel, column, *ty)?;
            }
            casts |= column.ty != *ty;
        }
        if !casts {
            return Ok(bound);
        }
        let targets: Vec<(Type, Modifier)> = types.iter().map(|ty| (*ty, NO_MODIFIER)).collect();
        let mut columns: Vec<(ColumnId, Scalar)> = Vec::new();
        for (column, (ty, modifier)) in bound.output.iter_mut().zip(targets) {
            let typed = Typed {
                scalar: Scalar::Column(column.column),
                ty: column.ty,
                modifier: column.modifier,
                position: column.position,
            };
            let typed = convert(self, typed, ty)?;
            if !matches!(typed.scalar, Scalar::Column(_)) {
                let nullable = self.columns.get(column.column).nullable;
                column.column = self.add_column(&column.name, ty, modifier, nullable);
                column.modifier = modifier;
            }
            column.ty = ty;
            if !columns.iter().any(|(id, _)| *id == column.column) {
                columns.push((column.column, typed.scalar));
            }
        }
        bound.rel = Rel::Project { input: Box::new(bound.rel), columns };
        Ok(bound)
    }

    /// Gives a type to a column where it is made.
    fn give_column_type(&mut self, rel: &mut Rel, column: &mut Column, ty: Type) -> Result<()> {
        let id = column.column;
        let at = column.position;
        for scalar in definitions(rel, id) {
            let open = matches!(
                scalar,
                Scalar::Literal { ty: Type::Unknown, .. } | Scalar::Parameter { ty: Type::Unknown, .. }
            );
            if open {
                let typed =
                    Typed::new(std::mem::replace(scalar, super::select::null_of(ty)), Type::Unknown).at(at);
                *scalar = self.implicit(typed, ty)?.scalar;
            }
        }
        column.ty = ty;
        self.columns.0[id.0 as usize].ty = ty;
        Ok(())
    }
}

/// The expressions that make a column: one in a projection, one for each row of VALUES.
fn definitions(rel: &mut Rel, id: ColumnId) -> Vec<&mut Scalar> {
    match rel {
        Rel::Project { input, columns } => {
            if columns.iter().any(|(column, scalar)| *column == id && !matches!(scalar, Scalar::Column(_))) {
                columns.iter_mut().filter(|(column, _)| *column == id).map(|(_, scalar)| scalar).collect()
            } else {
                definitions(input, id)
            }
        }
        Rel::Values { columns, rows } => match columns.iter().position(|column| *column == id) {
            Some(position) => rows.iter_mut().map(|row| &mut row[position]).collect(),
            None => Vec::new(),
        },
        Rel::Sort { input, .. }
        | Rel::Limit { input, .. }
        | Rel::Distinct { input, .. }
        | Rel::Filter { input, .. }
        | Rel::Lock { input, .. } => definitions(input, id),
        _ => Vec::new(),
    }
}

/// The column of a result that a name in ORDER BY means.
fn output_reference(output: &[Column], expr: &Expr) -> Result<Option<ColumnId>> {
    let Expr::Identifier(ident) = inner(expr) else { return Ok(None) };
    let (name, at) = named(ident)?;
    let mut matches = output.iter().filter(|column| column.name == name);
    let first = matches.next().map(|column| column.column);
    if matches.any(|column| Some(column.column) != first) {
        let message = format!("ORDER BY \"{name}\" is ambiguous");
        return Err(place(Error::new(SqlState::AMBIGUOUS_COLUMN, message), at));
    }
    Ok(first)
}

/// A constant in a list of items, as PostgreSQL's grammar has it: parentheses are gone, a minus is part of the number behind it.
#[derive(Clone, Copy)]
enum Constant {
    Integer(i32),
    Float,
    Other,
}

impl Binder<'_> {
    /// The item, from 0, that a constant in GROUP BY, ORDER BY or DISTINCT ON means by its number; `None`: it is no constant.
    pub(super) fn list_position(&self, expr: &Expr, items: usize, clause: &str) -> Result<Option<usize>> {
        let Some((constant, at)) = self.constant(expr) else { return Ok(None) };
        let Constant::Integer(number) = constant else {
            let message = format!("non-integer constant in {clause}");
            return Err(place(Error::new(SqlState::SYNTAX_ERROR, message), at));
        };
        match usize::try_from(number) {
            Ok(number) if number >= 1 && number <= items => Ok(Some(number - 1)),
            _ => {
                let message = format!("{clause} position {number} is not in select list");
                Err(place(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message), at))
            }
        }
    }

    fn constant(&self, expr: &Expr) -> Option<(Constant, Option<usize>)> {
        let value = match inner(expr) {
            Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: operand } => {
                let negative = match self.constant(operand)?.0 {
                    Constant::Integer(number) => Constant::Integer(-number),
                    Constant::Float => Constant::Float,
                    Constant::Other => return None,
                };
                return Some((negative, self.prefix_place(operand.span())));
            }
            Expr::Value(value) => value,
            _ => return None,
        };
        let constant = match &value.value {
            ast::Value::Placeholder(_) => return None,
            ast::Value::Number(digits, _) => digits.parse().map_or(Constant::Float, Constant::Integer),
            _ => Constant::Other,
        };
        Some((constant, position(value.span)))
    }
}
