//! Calls of functions and aggregates.

use super::binder::{Binder, Clause, ListFunction, Typed, place};
use super::{name_parts, name_position};
use crate::functions::{Aggregate, Argument, Resolution, Resolved, Returns, TableFunction, resolve_function};
use crate::logical::walk::for_each_column;
use crate::logical::{
    AggregateCall, ColumnId, Comparison, Scalar, SortKey, call_is_volatile, is_cast_of, same, same_call,
};
use crate::types::cast::{CastContext, context};
use crate::types::{NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments};

/// What stands in the parentheses of a call.
struct Arguments<'a> {
    list: Vec<&'a Expr>,
    star: bool,
    distinct: bool,
    order: &'a [ast::OrderByExpr],
}

/// The type that a call means by its name, as PostgreSQL has it: it is a cast of the one argument, where that is a literal, or no function
/// takes it.
fn cast_by_name(name: &str, types: &[Type]) -> Option<Type> {
    let (&[from], to) = (types, Type::from_internal_name(name)?) else { return None };
    (from.is_string() || context(from, to).is_some()).then_some(to)
}

/// The parts of ROW(...).
pub(super) fn row_constructor(function: &ast::Function) -> Option<Vec<&Expr>> {
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    if name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("row") {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    list.args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect()
}

impl<'a> Binder<'a> {
    /// `f(...)` and all that may follow it.
    pub(super) fn call(&mut self, function: &'a ast::Function) -> Result<Typed> {
        let at = name_position(&function.name);
        if let Some(parts) = row_constructor(function) {
            let parts = parts.into_iter().map(|part| self.expr(part)).collect::<Result<Vec<_>>>()?;
            return self.row(parts, at);
        }
        let ast::Function {
            name,
            uses_odbc_syntax,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = function;
        let unsupported = |what: &str| Err(place(Error::unsupported(what), at));
        if *uses_odbc_syntax {
            return unsupported("ODBC function syntax");
        }
        if !matches!(parameters, FunctionArguments::None) {
            return unsupported("a function with two lists of arguments");
        }
        if !within_group.is_empty() {
            return unsupported("WITHIN GROUP");
        }
        if null_treatment.is_some() {
            return unsupported("IGNORE NULLS");
        }
        if over.is_some() {
            return unsupported("window function");
        }
        let name = function_name(name, at)?;
        let arguments = match args {
            // Keywords such as CURRENT_DATE come without parentheses.
            FunctionArguments::None => {
                return match self.keyword_function(&name, at)? {
                    Some(typed) => Ok(typed),
                    None => self.column(&name, at),
                };
            }
            FunctionArguments::Subquery(query) if name == "array" => return self.array_subquery(query, at),
            FunctionArguments::Subquery(_) => {
                return unsupported("a subquery as the arguments of a function");
            }
            FunctionArguments::List(list) => split_arguments(list).map_err(|error| place(error, at))?,
        };
        if filter.is_none()
            && arguments.order.is_empty()
            && !arguments.star
            && !arguments.distinct
            && let Some(typed) = self.construct(&name, &arguments.list, at)?
        {
            return Ok(typed);
        }
        self.named_call(&name, &arguments, filter.as_deref(), at)
    }

    fn named_call(
        &mut self,
        name: &str,
        arguments: &Arguments<'a>,
        filter: Option<&'a Expr>,
        at: Option<usize>,
    ) -> Result<Typed> {
        let used: Vec<usize> = self.levels.iter().map(|level| level.uses.len()).collect();
        let typed = self.exprs(&arguments.list)?;
        let types: Vec<Type> = typed.iter().map(|typed| typed.ty).collect();
        let is_plain =
            !arguments.star && !arguments.distinct && arguments.order.is_empty() && filter.is_none();
        let cast_to = if is_plain { cast_by_name(name, &types) } else { None };
        let resolution = match (resolve_function(name, &types), cast_to) {
            (Ok(resolution), Some(_)) if types != [Type::Unknown] => resolution,
            (Ok(_) | Err(_), Some(ty)) => {
                let typed = typed.into_iter().next().ok_or_else(|| Error::internal("a cast of nothing"))?;
                return self.coerce(typed, ty, NO_MODIFIER, CastContext::Explicit);
            }
            (resolution, None) => resolution.map_err(|error| place(error, at))?,
        };
        match resolution.target {
            Resolved::Aggregate(target) => {
                if !arguments.star && typed.is_empty() {
                    let message =
                        format!("{name}(*) must be used to call a parameterless aggregate function");
                    return Err(place(Error::new(SqlState::WRONG_OBJECT_TYPE, message), at));
                }
                self.aggregate(target, &resolution, typed, arguments, filter, (at, &used))
            }
            Resolved::Function(_) | Resolved::Table(_)
                if arguments.star
                    || arguments.distinct
                    || !arguments.order.is_empty()
                    || filter.is_some() =>
            {
                let what = if arguments.star {
                    let message = format!("{name}(*) specified, but {name} is not an aggregate function");
                    return Err(place(Error::new(SqlState::WRONG_OBJECT_TYPE, message), at));
                } else if arguments.distinct {
                    "DISTINCT"
                } else if filter.is_some() {
                    "FILTER"
                } else {
                    "ORDER BY"
                };
                let message = format!("{what} specified, but {name} is not an aggregate function");
                Err(place(Error::new(SqlState::WRONG_OBJECT_TYPE, message), at))
            }
            Resolved::Function(_) => self.resolved_call(resolution, typed, at),
            Resolved::Table(function) => self.list_function(function, &resolution, typed, at),
        }
    }

    fn exprs(&mut self, list: &[&'a Expr]) -> Result<Vec<Typed>> {
        list.iter().map(|expr| self.expr(expr)).collect()
    }

    /// A function of values by name.
    pub(super) fn call_function(
        &mut self,
        name: &str,
        arguments: Vec<Typed>,
        at: Option<usize>,
    ) -> Result<Typed> {
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let resolution = resolve_function(name, &types).map_err(|error| place(error, at))?;
        self.resolved_call(resolution, arguments, at)
    }

    fn resolved_call(
        &mut self,
        resolution: Resolution,
        arguments: Vec<Typed>,
        at: Option<usize>,
    ) -> Result<Typed> {
        let Resolved::Function(function) = resolution.target else {
            return Err(Error::internal("no function of values"));
        };
        let arguments = arguments
            .into_iter()
            .zip(&resolution.types)
            .map(|(argument, ty)| self.argument(argument, *ty))
            .collect::<Result<Vec<_>>>()?;
        let ty = resolution.returns;
        Ok(Typed::new(Scalar::Call { function, arguments, ty }, ty).at(at))
    }

    /// What looks like a function but is a construct of its own.
    fn construct(&mut self, name: &str, list: &[&'a Expr], at: Option<usize>) -> Result<Option<Typed>> {
        let typed = match name {
            "coalesce" if !list.is_empty() => {
                let before = self.level().list_functions.len();
                let all = self.exprs(list)?;
                let (arguments, ty, modifier) = self.unify(all, "COALESCE types")?;
                self.refuse_list_functions(before, "COALESCE")?;
                Typed { scalar: Scalar::Coalesce { arguments, ty }, ty, modifier, position: at }
            }
            "greatest" | "least" if !list.is_empty() => {
                let greatest = name == "greatest";
                let all = self.exprs(list)?;
                let what = if greatest { "GREATEST types" } else { "LEAST types" };
                let (arguments, ty, modifier) = self.unify(all, what)?;
                Typed { scalar: Scalar::Extreme { arguments, greatest, ty }, ty, modifier, position: at }
            }
            "nullif" if list.len() == 2 => self.nullif(list[0], list[1], at)?,
            // A type's name with one argument is a cast, where there is no function of that name.
            _ => return Ok(None),
        };
        Ok(Some(typed))
    }

    /// NULLIF(a, b): NULL where a = b, else a.
    fn nullif(&mut self, left: &'a Expr, right: &'a Expr, at: Option<usize>) -> Result<Typed> {
        let value = self.expr(left)?;
        let other = self.expr(right)?;
        let value = if value.ty == Type::Unknown && other.ty == Type::Unknown {
            self.settle(value)?
        } else if value.ty == Type::Unknown {
            let ty = other.ty;
            self.implicit(value, ty)?
        } else {
            value
        };
        let (value, held) = super::expr::hold(value);
        let plain = value.clone();
        let (plain_ty, plain_modifier) = (plain.ty, plain.modifier);
        let (value, other) = self.comparands(Comparison::Equal, value, other, at)?;
        let equal = Scalar::Compare {
            op: Comparison::Equal,
            left: Box::new(value.scalar.clone()),
            right: Box::new(other.scalar),
        };
        // The result is what the operator takes, and PostgreSQL has operators for two types that take their left side as it is.
        let value = match (plain.ty, value.ty) {
            (from, to) if from == to => plain,
            (Type::Float4, Type::Float8)
            | (Type::Date, Type::Timestamp | Type::TimestampTz)
            | (Type::Timestamp, Type::TimestampTz)
            | (Type::Name, Type::Text) => plain,
            _ => value,
        };
        // It passes through the operator unchanged, length and all, unless it was converted.
        let modifier = if value.ty == plain_ty { plain_modifier } else { value.modifier };
        let ty = value.ty;
        let null = Scalar::Literal { value: crate::Value::Null, ty };
        let scalar = Scalar::Case { branches: vec![(equal, null)], otherwise: Box::new(value.scalar), ty };
        Ok(Typed { scalar: super::expr::release(held, scalar), ty, modifier, position: at })
    }

    /// CURRENT_DATE and its kin, which are written without parentheses.
    pub(super) fn keyword_function(&mut self, name: &str, at: Option<usize>) -> Result<Option<Typed>> {
        let function = match name {
            "current_date" | "current_timestamp" | "localtimestamp" | "current_user" | "session_user"
            | "current_schema" => name,
            "current_role" | "user" => "current_user",
            "current_catalog" => "current_database",
            "current_time" | "localtime" => return Err(place(Error::unsupported(name.to_uppercase()), at)),
            _ => return Ok(None),
        };
        self.call_function(function, Vec::new(), at).map(Some)
    }

    /// A call of an aggregate: kept by the level its columns belong to, where a column stands for it.
    fn aggregate(
        &mut self,
        aggregate: &'static Aggregate,
        resolution: &Resolution,
        typed: Vec<Typed>,
        arguments: &Arguments<'a>,
        filter: Option<&'a Expr>,
        (at, used): (Option<usize>, &[usize]),
    ) -> Result<Typed> {
        let mut scalars = Vec::with_capacity(typed.len());
        for ((argument, ty), declared) in typed.into_iter().zip(&resolution.types).zip(aggregate.arguments) {
            // A parameter that may be anything gets no type from that.
            let open = *declared == Argument::Any && argument.ty == Type::Unknown;
            scalars.push(self.argument(argument, if open { Type::Unknown } else { *ty })?);
        }
        let order = self.aggregate_order(arguments, &scalars)?;
        let filter = match filter {
            Some(filter) => Some(self.within(Clause::Filter, |this| {
                let typed = this.expr(filter)?;
                this.condition(typed, "argument of FILTER")
            })?),
            None => None,
        };
        let ty = resolution.returns;
        let call =
            AggregateCall { aggregate, arguments: scalars, distinct: arguments.distinct, filter, order, ty };
        // Columns in an aggregate need not be grouped.
        for (level, used) in self.levels.iter_mut().zip(used) {
            level.uses.truncate(*used);
        }
        let level = self.aggregate_level(&call);
        self.check_aggregate(level, &call, at)?;
        // Written twice, what is volatile is computed twice; but a sort key that is written like an item of the list is that item.
        let by_item = matches!(self.levels[level].clause, Clause::OrderBy | Clause::DistinctOn);
        let known =
            if by_item || !call_is_volatile(&call) { &self.levels[level].aggregates[..] } else { &[] };
        let same = known.iter().find(|(_, other, _)| same_call(other, &call));
        let id = match same {
            Some((id, ..)) => *id,
            None => {
                let id = self.add_column(aggregate.name, ty, NO_MODIFIER, aggregate.name != "count");
                self.levels[level].aggregates.push((id, call, at));
                id
            }
        };
        Ok(Typed::new(Scalar::Column(id), ty).at(at))
    }

    fn check_aggregate(&self, level: usize, call: &AggregateCall, at: Option<usize>) -> Result<()> {
        let level = &self.levels[level];
        if !level.clause.allows_aggregates() {
            let message = format!("aggregate functions are not allowed in {}", level.clause.name());
            return Err(place(Error::new(SqlState::GROUPING_ERROR, message), at));
        }
        let mut sets = false;
        for scalar in call.arguments.iter().chain(call.order.iter().map(|key| &key.scalar)) {
            for_each_column(scalar, &mut |id| {
                sets |= level.list_functions.iter().any(|call| call.columns.contains(&id));
            });
        }
        if sets {
            let message = "aggregate function calls cannot contain set-returning function calls";
            return Err(place(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), at));
        }
        let mut nested = None;
        let mut note = |id: ColumnId| {
            nested = nested.or(level
                .aggregates
                .iter()
                .find(|(aggregate, ..)| *aggregate == id)
                .map(|(.., at)| *at));
        };
        for scalar in call.arguments.iter().chain(call.order.iter().map(|key| &key.scalar)) {
            for_each_column(scalar, &mut note);
        }
        match nested {
            Some(at) => {
                let error = Error::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested");
                Err(place(error, at))
            }
            None => Ok(()),
        }
    }

    fn aggregate_order(&mut self, arguments: &Arguments<'a>, scalars: &[Scalar]) -> Result<Vec<SortKey>> {
        let mut keys = Vec::new();
        for item in arguments.order {
            let typed = self.expr(&item.expr)?;
            let at = typed.position;
            let typed = self.settle(typed)?;
            let mut scalar = typed.scalar;
            if arguments.distinct {
                // Conversions of the argument are none of the key's.
                let argument =
                    scalars.iter().find(|argument| same(argument, &scalar) || is_cast_of(argument, &scalar));
                // A subquery is bound anew each time it is written: it is told by how it is.
                let as_written = |argument: &&Expr| {
                    super::operators::inner(argument) == super::operators::inner(&item.expr)
                };
                let argument = argument.or_else(|| {
                    let written = arguments.list.iter().position(as_written);
                    written.and_then(|number| scalars.get(number))
                });
                let Some(argument) = argument else {
                    let message =
                        "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                    return Err(place(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message), at));
                };
                scalar = argument.clone();
            }
            keys.push(super::query::sort_key(scalar, &item.options, item.with_fill.as_ref())?);
        }
        Ok(keys)
    }

    /// The innermost level that a column of the call belongs to; without columns, the current one.
    fn aggregate_level(&self, call: &AggregateCall) -> usize {
        let current = self.levels.len() - 1;
        let mut found: Option<usize> = None;
        let mut note = |id: ColumnId| {
            let Some(owner) = self.owner(id) else { return };
            if let Some(level) = self.levels.iter().rposition(|level| level.serial == owner) {
                found = Some(found.map_or(level, |found| found.max(level)));
            }
        };
        for scalar in &call.arguments {
            for_each_column(scalar, &mut note);
        }
        for scalar in call.filter.iter().chain(call.order.iter().map(|key| &key.scalar)) {
            for_each_column(scalar, &mut note);
        }
        found.unwrap_or(current)
    }

    /// A table function in a SELECT list: joined to the rows below.
    fn list_function(
        &mut self,
        function: &'static TableFunction,
        resolution: &Resolution,
        arguments: Vec<Typed>,
        at: Option<usize>,
    ) -> Result<Typed> {
        let clause = self.level().clause;
        if clause != Clause::Select {
            let message = format!("set-returning functions are not allowed in {}", clause.name());
            return Err(place(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), at));
        }
        if !self.level().list_functions.is_empty() {
            return Err(place(
                Error::unsupported("more than one set-returning function in a SELECT list"),
                at,
            ));
        }
        let types = resolution.types.clone();
        let arguments = arguments
            .into_iter()
            .zip(&types)
            .map(|(argument, ty)| self.argument(argument, *ty))
            .collect::<Result<Vec<_>>>()?;
        let columns = self.function_columns(function, &types);
        let [id] = columns.as_slice() else {
            return Err(place(Error::unsupported(format!("{} in a SELECT list", function.name)), at));
        };
        let (id, ty) = (*id, self.columns.get(columns[0]).ty);
        self.level().list_functions.push(ListFunction { function, arguments, columns, position: at });
        Ok(Typed::new(Scalar::Column(id), ty).at(at))
    }

    /// Refuses table functions that came to a SELECT list since there were so many of them: what is not always computed cannot say how
    /// many rows there are.
    pub(super) fn refuse_list_functions(&mut self, before: usize, construct: &str) -> Result<()> {
        let Some(call) = self.level().list_functions.get(before..).and_then(<[_]>::last) else {
            return Ok(());
        };
        let message = format!("set-returning functions are not allowed in {construct}");
        let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .hint("You might be able to move the set-returning function into a LATERAL FROM item.");
        Err(place(error, call.position))
    }

    /// Columns of a table function that is called with arguments of these types.
    pub(super) fn function_columns(&mut self, function: &TableFunction, types: &[Type]) -> Vec<ColumnId> {
        // The element type comes from an AnyElement argument, or an array's elements.
        let element = function.arguments.iter().zip(types).find_map(|(argument, ty)| match argument {
            Argument::AnyElement => Some(*ty),
            Argument::AnyArray => ty.element(),
            _ => None,
        });
        let add = |(name, returns): &(&'static str, Returns)| {
            let ty = match returns {
                Returns::Is(ty) => *ty,
                Returns::Element => element.unwrap_or(Type::Text),
                Returns::Array => element.and_then(Type::array).unwrap_or(Type::TextArray),
            };
            (*name, ty)
        };
        let columns: Vec<(&str, Type)> = function.columns.iter().map(add).collect();
        columns.into_iter().map(|(name, ty)| self.add_column(name, ty, NO_MODIFIER, true)).collect()
    }

    /// A constant of type bigint for LIMIT and OFFSET.
    pub(super) fn count_of_rows(&mut self, expr: &'a Expr, clause: Clause) -> Result<Scalar> {
        let typed = self.within(clause, |this| this.expr(expr))?;
        let at = typed.position;
        let ty = typed.ty;
        let typed = match self.try_coerce(typed, Type::Int8, NO_MODIFIER, CastContext::Assignment)? {
            Ok(typed) => typed,
            Err(_) => {
                let message =
                    format!("argument of {} must be type bigint, not type {}", clause.name(), ty.name());
                return Err(place(Error::new(SqlState::DATATYPE_MISMATCH, message), at));
            }
        };
        let mut own = false;
        let serial = self.level().serial;
        for_each_column(&typed.scalar, &mut |id| own |= self.owner(id) == Some(serial));
        if own {
            let message = format!("argument of {} must not contain variables", clause.name());
            return Err(place(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message), at));
        }
        Ok(typed.scalar)
    }
}

/// A function's name; its schema must be the one there is.
fn function_name(name: &ast::ObjectName, at: Option<usize>) -> Result<String> {
    let mut parts = name_parts(name)?;
    let function = parts.pop().unwrap_or_default();
    match parts.as_slice() {
        [] => Ok(function),
        [schema] if schema == "pg_catalog" || schema == "information_schema" => Ok(function),
        _ => {
            let message = format!("function {}.{function} does not exist", parts.join("."));
            Err(place(Error::new(SqlState::UNDEFINED_FUNCTION, message), at))
        }
    }
}

fn split_arguments(list: &ast::FunctionArgumentList) -> Result<Arguments<'_>> {
    let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
    let mut arguments = Arguments {
        list: Vec::with_capacity(args.len()),
        star: false,
        distinct: matches!(duplicate_treatment, Some(ast::DuplicateTreatment::Distinct)),
        order: &[],
    };
    for argument in args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.list.push(expr),
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if args.len() == 1 => arguments.star = true,
            FunctionArg::Unnamed(_) => return Err(Error::unsupported("* as an argument of a function")),
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                return Err(Error::unsupported("named notation of arguments"));
            }
        }
    }
    for clause in clauses {
        match clause {
            ast::FunctionArgumentClause::OrderBy(order) => arguments.order = order,
            other => return Err(Error::unsupported(format!("{other} in a function call"))),
        }
    }
    Ok(arguments)
}
