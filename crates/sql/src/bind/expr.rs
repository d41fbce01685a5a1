//! Expressions: one arm for each node of the syntax tree. What is not implemented is named.

use super::binder::{Binder, Typed, named, place};
use super::bridge::{SYMMETRIC, list_items};
use super::operators::{inner, row_of};
use super::tokens::position;
use super::{bind_type, identifier};
use crate::effort;
use crate::functions::record;
use crate::logical::walk::{for_each_column, size};
use crate::logical::{Comparison, Scalar, is_volatile};
use crate::types::cast::{CastContext, context};
use crate::types::{Modifier, NO_MODIFIER, Type, Value, text};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, DataType, Expr, Ident, Spanned};

impl<'a> Binder<'a> {
    /// Binds an expression.
    pub(super) fn expr(&mut self, expr: &'a Expr) -> Result<Typed> {
        effort::made(1)?;
        match expr {
            Expr::Identifier(ident) => self.identifier_expr(ident),
            Expr::CompoundIdentifier(parts) => self.compound_identifier(parts),
            Expr::Nested(nested) => self.expr(nested),
            Expr::Value(value) => self.value(value),
            Expr::BinaryOp { .. } => self.binary(expr),
            Expr::UnaryOp { op, expr: operand } => {
                let at = self.prefix_place(operand.span());
                self.unary(*op, operand, at)
            }
            Expr::Cast { kind, expr: operand, data_type, format } => {
                self.cast(kind, operand, data_type, format.as_ref())
            }
            Expr::TypedString(ast::TypedString { data_type, value, uses_odbc_syntax }) => {
                if *uses_odbc_syntax {
                    return Err(Error::unsupported("ODBC literal"));
                }
                let typed = self.value(value)?;
                let (ty, modifier) = match data_type {
                    // One character is what CAST and columns have without a length.
                    DataType::Char(None) | DataType::Character(None) => (Type::Bpchar, NO_MODIFIER),
                    _ => bind_type(data_type)?,
                };
                self.coerce(typed, ty, modifier, CastContext::Explicit)
            }
            Expr::Function(function) => self.call(function),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                let at = position(expr.span());
                self.case(operand.as_deref(), conditions, else_result.as_deref(), at)
            }
            Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..) => self.is(expr),
            Expr::InList { .. }
            | Expr::InSubquery { .. }
            | Expr::Between { .. }
            | Expr::AnyOp { .. }
            | Expr::AllOp { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::SimilarTo { .. } => self.membership(expr),
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated),
            Expr::Subquery(query) => self.scalar_subquery(query),
            Expr::Tuple(_) => {
                let parts = self.row_parts(expr)?.unwrap_or_default();
                self.row(parts, position(expr.span()))
            }
            Expr::Array(ast::Array { elem, named: true }) => self.array(elem, position(expr.span())),
            Expr::CompoundFieldAccess { root, access_chain } => self.subscripts(root, access_chain),
            _ => self.special(expr),
        }
    }

    /// Functions that SQL writes with words between the arguments, and what there is not.
    fn special(&mut self, expr: &'a Expr) -> Result<Typed> {
        let at = position(expr.span());
        match expr {
            Expr::AtTimeZone { timestamp, time_zone } => {
                // timezone(zone, timestamp)
                let timestamp = self.expr(timestamp)?;
                let zone = self.expr(time_zone)?;
                self.call_function("timezone", vec![zone, timestamp], at)
            }
            Expr::Extract { field, syntax: ast::ExtractSyntax::From, expr } => {
                let field = date_field(field);
                let source = self.expr(expr)?;
                self.call_function(
                    "extract",
                    vec![Typed::literal(Value::text(field), Type::Text), source],
                    at,
                )
            }
            Expr::Position { expr, r#in } => {
                let part = self.expr(expr)?;
                let whole = self.expr(r#in)?;
                self.call_function("position", vec![whole, part], at)
            }
            Expr::Ceil { expr, field } => self.rounded("ceil", expr, field, at),
            Expr::Floor { expr, field } => self.rounded("floor", expr, field, at),
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand } => {
                let mut arguments = vec![self.expr(expr)?];
                match substring_from {
                    Some(from) => arguments.push(self.expr(from)?),
                    None => arguments.push(Typed::literal(Value::Int(1), Type::Int4)),
                }
                if let Some(length) = substring_for {
                    arguments.push(self.expr(length)?);
                }
                self.call_function(if *shorthand { "substr" } else { "substring" }, arguments, at)
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(ast::TrimWhereField::Both) => "btrim",
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![self.expr(expr)?];
                for characters in trim_what.iter().map(|what| &**what).chain(trim_characters.iter().flatten())
                {
                    arguments.push(self.expr(characters)?);
                }
                self.call_function(name, arguments, at)
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments =
                    vec![self.expr(expr)?, self.expr(overlay_what)?, self.expr(overlay_from)?];
                if let Some(length) = overlay_for {
                    arguments.push(self.expr(length)?);
                }
                self.call_function("overlay", arguments, at)
            }
            Expr::Collate { expr, collation } => self.collate(expr, collation),
            other => Err(place(unsupported(other), at)),
        }
    }

    fn rounded(
        &mut self,
        name: &str,
        expr: &'a Expr,
        field: &ast::CeilFloorKind,
        at: Option<usize>,
    ) -> Result<Typed> {
        let ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) = field else {
            return Err(place(Error::unsupported(format!("{name} with a second argument")), at));
        };
        let argument = self.expr(expr)?;
        self.call_function(name, vec![argument], at)
    }

    fn identifier_expr(&mut self, ident: &Ident) -> Result<Typed> {
        let (name, at) = named(ident)?;
        if ident.quote_style.is_none() {
            if let Some(typed) = self.keyword_function(&name, at)? {
                return Ok(typed);
            }
            if name == "default" {
                let error = Error::new(SqlState::SYNTAX_ERROR, "DEFAULT is not allowed in this context");
                return Err(place(error, at));
            }
        }
        self.column(&name, at)
    }

    /// `t.a`, `schema.t.a`, `database.schema.t.a`
    fn compound_identifier(&mut self, parts: &[Ident]) -> Result<Typed> {
        let at = parts.first().and_then(|part| position(part.span));
        let names = parts.iter().map(identifier).collect::<Result<Vec<_>>>()?;
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [name] => self.column(name, at),
            [table, name] => self.qualified_column(None, table, name, at),
            [schema, table, name] => self.qualified_column(Some(schema), table, name, at),
            [database, schema, table, name] if *database == self.scope.database => {
                self.qualified_column(Some(schema), table, name, at)
            }
            _ => {
                let message = format!("cross-database references are not implemented: {}", names.join("."));
                Err(place(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), at))
            }
        }
    }

    /// A literal or parameter.
    fn value(&mut self, value: &ast::ValueWithSpan) -> Result<Typed> {
        use ast::Value as V;
        let at = position(value.span);
        match &value.value {
            V::Number(digits, _) => self.number(digits, at),
            V::SingleQuotedString(text)
            | V::EscapedStringLiteral(text)
            | V::UnicodeStringLiteral(text)
            | V::NationalStringLiteral(text) => string(text, at),
            V::DollarQuotedString(quoted) => string(&quoted.value, at),
            V::Boolean(value) => Ok(Typed::literal(Value::Bool(*value), Type::Bool).at(at)),
            V::Null => Ok(Typed::null().at(at)),
            V::Placeholder(text) => self.parameter(text, at),
            V::HexStringLiteral(_) | V::SingleQuotedByteStringLiteral(_) => {
                Err(place(Error::unsupported("bit string literal"), at))
            }
            V::TripleSingleQuotedString(_)
            | V::TripleDoubleQuotedString(_)
            | V::DoubleQuotedByteStringLiteral(_)
            | V::TripleSingleQuotedByteStringLiteral(_)
            | V::TripleDoubleQuotedByteStringLiteral(_)
            | V::SingleQuotedRawStringLiteral(_)
            | V::DoubleQuotedRawStringLiteral(_)
            | V::TripleSingleQuotedRawStringLiteral(_)
            | V::TripleDoubleQuotedRawStringLiteral(_)
            | V::QuoteDelimitedStringLiteral(_)
            | V::NationalQuoteDelimitedStringLiteral(_)
            | V::DoubleQuotedString(_) => Err(place(Error::unsupported("this kind of string literal"), at)),
        }
    }

    /// integer, bigint or numeric, whichever holds it.
    pub(super) fn number(&mut self, digits: &str, at: Option<usize>) -> Result<Typed> {
        if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
            && let Ok(value) = digits.parse::<i64>()
        {
            let ty = if i32::try_from(value).is_ok() { Type::Int4 } else { Type::Int8 };
            return Ok(Typed::literal(Value::Int(value), ty).at(at));
        }
        let value = text::read(digits, Type::Numeric, NO_MODIFIER, self.scope.style)
            .map_err(|error| place(error, at))?;
        Ok(Typed::literal(value, Type::Numeric).at(at))
    }

    fn cast(
        &mut self,
        kind: &ast::CastKind,
        operand: &'a Expr,
        data_type: &'a DataType,
        format: Option<&ast::CastFormat>,
    ) -> Result<Typed> {
        if !matches!(kind, ast::CastKind::Cast | ast::CastKind::DoubleColon) || format.is_some() {
            return Err(Error::unsupported("this form of CAST"));
        }
        let (ty, modifier) = bind_type(data_type)
            .map_err(|error| place(error, self.cast_place(kind, operand).map(|sign| sign + 2)))?;
        let typed = match (inner(operand), ty.element()) {
            (Expr::Array(ast::Array { elem, named: true }), Some(element)) => {
                let elements = elem.iter().map(|part| self.expr(part)).collect::<Result<Vec<_>>>()?;
                let at = position(inner(operand).span());
                // Each element is converted by itself: they need no type in common.
                if elements.iter().all(|part| part.ty.element().is_none()) {
                    return self.cast_elements(elements, (ty, element, modifier), at);
                }
                self.array_of(elements, at)?
            }
            _ => self.expr(operand)?,
        };
        let from = typed.ty;
        // Text converts to anything by being read.
        if context(from, ty).is_none() && from != Type::Unknown && from != ty && from.element().is_none() {
            let message = format!("cannot cast type {} to {}", from.name(), ty.name());
            return Err(place(
                Error::new(SqlState::CANNOT_COERCE, message),
                self.cast_place(kind, operand).or(typed.position),
            ));
        }
        self.coerce(typed, ty, modifier, CastContext::Explicit)
    }

    /// ARRAY[...] as an array of a type, whose element and modifier stand beside it.
    fn cast_elements(
        &mut self,
        elements: Vec<Typed>,
        (ty, element, modifier): (Type, Type, Modifier),
        at: Option<usize>,
    ) -> Result<Typed> {
        let cast = |part| Ok(self.coerce(part, element, modifier, CastContext::Explicit)?.scalar);
        let elements = elements.into_iter().map(cast).collect::<Result<Vec<_>>>()?;
        Ok(Typed { scalar: Scalar::Array { elements, ty }, ty, modifier, position: at })
    }

    /// Where `::` stands.
    fn cast_place(&self, kind: &ast::CastKind, operand: &Expr) -> Option<usize> {
        if *kind == ast::CastKind::DoubleColon { self.operator_place(operand.span()) } else { None }
    }

    fn case(
        &mut self,
        operand: Option<&'a Expr>,
        conditions: &'a [ast::CaseWhen],
        otherwise: Option<&'a Expr>,
        at: Option<usize>,
    ) -> Result<Typed> {
        let before = self.level().list_functions.len();
        let operand = match operand {
            Some(operand) => {
                let typed = self.expr(operand)?;
                let typed = self.settle(typed)?;
                Some(hold(typed))
            }
            None => None,
        };
        let (operand, held) = operand.unzip();
        let (mut whens, mut values) = (Vec::new(), Vec::new());
        for ast::CaseWhen { condition, result } in conditions {
            let typed = self.expr(condition)?;
            let when = match &operand {
                Some(operand) => {
                    let at = typed.position;
                    self.compare(Comparison::Equal, operand.clone(), typed, at)?.scalar
                }
                None => self.condition(typed, "argument of CASE/WHEN")?,
            };
            whens.push(when);
            values.push(self.expr(result)?);
        }
        // PostgreSQL looks at ELSE first.
        let last = match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Typed::null(),
        };
        values.insert(0, last);
        let (mut scalars, ty, modifier) = self.unify(values, "CASE types")?;
        self.refuse_list_functions(before, "CASE")?;
        let otherwise = Box::new(scalars.remove(0));
        let branches = whens.into_iter().zip(scalars).collect();
        let scalar = release(held.flatten(), Scalar::Case { branches, otherwise, ty });
        Ok(Typed { scalar, ty, modifier, position: at })
    }

    /// IS ...
    fn is(&mut self, expr: &'a Expr) -> Result<Typed> {
        let bool_test = |this: &mut Self, operand: &'a Expr, value: Option<bool>, not: bool, what: &str| {
            let typed = this.expr(operand)?;
            let at = typed.position;
            let argument = Box::new(this.condition(typed, &format!("argument of IS {what}"))?);
            let scalar = match value {
                Some(value) => Scalar::IsBool { argument, value },
                None => Scalar::IsNull(argument),
            };
            let scalar = if not { Scalar::Not(Box::new(scalar)) } else { scalar };
            Ok(Typed::new(scalar, Type::Bool).at(at))
        };
        match expr {
            Expr::IsNull(operand) => self.is_null(operand, false),
            Expr::IsNotNull(operand) => self.is_null(operand, true),
            Expr::IsTrue(operand) => bool_test(self, operand, Some(true), false, "TRUE"),
            Expr::IsNotTrue(operand) => bool_test(self, operand, Some(true), true, "NOT TRUE"),
            Expr::IsFalse(operand) => bool_test(self, operand, Some(false), false, "FALSE"),
            Expr::IsNotFalse(operand) => bool_test(self, operand, Some(false), true, "NOT FALSE"),
            Expr::IsUnknown(operand) => bool_test(self, operand, None, false, "UNKNOWN"),
            Expr::IsNotUnknown(operand) => bool_test(self, operand, None, true, "NOT UNKNOWN"),
            Expr::IsDistinctFrom(left, right) => self.distinct(Comparison::Distinct, left, right),
            Expr::IsNotDistinctFrom(left, right) => self.distinct(Comparison::NotDistinct, left, right),
            other => Err(unsupported(other)),
        }
    }

    /// A row IS NULL when all of it is, and IS NOT NULL when nothing of it is.
    fn is_null(&mut self, operand: &'a Expr, not: bool) -> Result<Typed> {
        let at = position(operand.span());
        let test = |this: &mut Self, typed: Typed| {
            // An untyped parameter stays without a type: nothing here says one.
            let typed =
                if matches!(typed.scalar, Scalar::Parameter { .. }) { typed } else { this.settle(typed)? };
            let scalar = Scalar::IsNull(Box::new(typed.scalar));
            Ok::<_, Error>(if not { Scalar::Not(Box::new(scalar)) } else { scalar })
        };
        let parts = match self.row_parts(operand)? {
            Some(parts) => Some(parts),
            None => self.relation_parts(operand)?,
        };
        let scalar = match parts {
            Some(parts) => {
                let parts = parts.into_iter().map(|part| test(self, part)).collect::<Result<Vec<_>>>()?;
                Scalar::And(parts)
            }
            None => {
                let typed = self.expr(operand)?;
                if typed.ty == Type::Record {
                    let function = if not { &record::IS_NOT_NULL } else { &record::IS_NULL };
                    Scalar::Call { function, arguments: vec![typed.scalar], ty: Type::Bool }
                } else {
                    test(self, typed)?
                }
            }
        };
        Ok(Typed::new(scalar, Type::Bool).at(at))
    }

    fn distinct(&mut self, op: Comparison, left: &'a Expr, right: &'a Expr) -> Result<Typed> {
        let at = self.operator_place(left.span());
        if let (Some(_), Some(_)) = (row_of(left), row_of(right)) {
            let lefts = self.row_parts(left)?.unwrap_or_default();
            let rights = self.row_parts(right)?.unwrap_or_default();
            return self.compare_parts(op, lefts, rights, at);
        }
        let left = self.expr(left)?;
        let right = self.expr(right)?;
        self.compare(op, left, right, at)
    }

    /// IN, BETWEEN, LIKE, ANY, ALL
    fn membership(&mut self, expr: &'a Expr) -> Result<Typed> {
        match expr {
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Expr::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated),
            Expr::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                self.quantified(left, compare_op, right, false)
            }
            Expr::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true),
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~" } else { "~~" }, expr, pattern, escape_char.as_deref())
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~*" } else { "~~*" }, expr, pattern, escape_char.as_deref())
            }
            Expr::Like { .. } | Expr::ILike { .. } => Err(Error::unsupported("LIKE ANY")),
            Expr::SimilarTo { .. } => Err(Error::unsupported("SIMILAR TO")),
            other => Err(unsupported(other)),
        }
    }

    fn in_list(&mut self, expr: &'a Expr, list: &'a [Expr], negated: bool) -> Result<Typed> {
        let list = list_items(list);
        let at = self.operator_place(expr.span());
        let scalar = if row_of(expr).is_some() || list.iter().any(|item| row_of(item).is_some()) {
            // Rows: a comparison for each.
            let mut terms = Vec::with_capacity(list.len());
            for item in list {
                let left = self.row_parts(expr)?.map_or_else(|| self.expr(expr).map(|one| vec![one]), Ok)?;
                let right = self.row_parts(item)?.map_or_else(|| self.expr(item).map(|one| vec![one]), Ok)?;
                terms.push(self.compare_parts(Comparison::Equal, left, right, at)?.scalar);
            }
            Scalar::Or(terms)
        } else {
            let argument = self.expr(expr)?;
            let items = list.iter().map(|item| self.expr(item)).collect::<Result<Vec<_>>>()?;
            self.in_values(argument, items, at)?
        };
        let scalar = if negated { Scalar::Not(Box::new(scalar)) } else { scalar };
        Ok(Typed::new(scalar, Type::Bool).at(position(expr.span())))
    }

    /// PostgreSQL makes an array of the items without columns where there are several and all, the argument included, have a common type.
    /// The others are compared one by one, in the type that `=` takes.
    fn in_values(&mut self, argument: Typed, items: Vec<Typed>, at: Option<usize>) -> Result<Scalar> {
        let single: Vec<bool> = items.iter().map(|item| self.has_column(&item.scalar)).collect();
        let constants = items.iter().zip(&single).filter(|(_, single)| !**single).map(|(item, _)| item.ty);
        let types: Vec<Type> = std::iter::once(argument.ty).chain(constants).collect();
        let common = crate::functions::common_type(&types).filter(|common| {
            types.len() > 2
                && *common != Type::Record
                && types.iter().all(|ty| {
                    *ty == Type::Unknown
                        || context(*ty, *common).is_some_and(|needed| needed == CastContext::Implicit)
                })
        });
        let alone =
            if common.is_some() { single.iter().filter(|single| **single).count() } else { items.len() };
        let repeated = alone + usize::from(common.is_some()) > 1;
        let (argument, held) =
            if repeated && is_large(&argument) { hold(argument) } else { (argument, None) };
        let copied = size(&argument.scalar);
        let (mut list, mut terms) = (Vec::new(), Vec::new());
        for (item, single) in items.into_iter().zip(single) {
            match common {
                Some(ty) if !single => list.push(self.implicit(item, ty)?.scalar),
                _ => {
                    effort::made(copied)?;
                    terms.push(self.compare(Comparison::Equal, argument.clone(), item, at)?.scalar);
                }
            }
        }
        if let Some(ty) = common {
            let argument = Box::new(self.comparand(argument, ty, CastContext::Implicit)?.scalar);
            terms.insert(0, Scalar::InList { argument, list });
        }
        let scalar = if terms.len() == 1 { terms.remove(0) } else { Scalar::Or(terms) };
        Ok(release(held, scalar))
    }

    /// Whether an expression refers to columns of the innermost level, or to its aggregates.
    fn has_column(&self, scalar: &Scalar) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let mut found = false;
        for_each_column(scalar, &mut |id| {
            found |= self.owner(id) == Some(level.serial)
                || level.aggregates.iter().any(|(aggregate, ..)| *aggregate == id);
        });
        found
    }

    fn between(&mut self, expr: &'a Expr, negated: bool, low: &'a Expr, high: &'a Expr) -> Result<Typed> {
        let at = self.operator_place(expr.span());
        let (low, symmetric) = match symmetric_bound(low) {
            Some(low) => (low, true),
            None => (low, false),
        };
        // As in PostgreSQL, each comparison computes the operand for itself. It is bound for each: a parameter gets its type from the first,
        // and a subquery has columns of its own. A large one is computed once, or it would double with every BETWEEN that it stands in.
        let argument = self.expr(expr)?;
        let (argument, held) = if is_large(&argument) { hold(argument) } else { (argument, None) };
        let is_held = held.is_some();
        let mut first = Some(argument.clone());
        let mut range = |low: &'a Expr, high: &'a Expr| {
            let mut side = |op, bound| {
                let argument = match first.take() {
                    Some(argument) => argument,
                    None if is_held => argument.clone(),
                    None => self.expr(expr)?,
                };
                let bound = self.expr(bound)?;
                Ok::<_, Error>(self.compare(op, argument, bound, at)?.scalar)
            };
            Ok::<_, Error>(if negated {
                Scalar::Or(vec![side(Comparison::Less, low)?, side(Comparison::Greater, high)?])
            } else {
                Scalar::And(vec![
                    side(Comparison::GreaterOrEqual, low)?,
                    side(Comparison::LessOrEqual, high)?,
                ])
            })
        };
        let mut scalar = range(low, high)?;
        if symmetric {
            let both = vec![scalar, range(high, low)?];
            scalar = if negated { Scalar::And(both) } else { Scalar::Or(both) };
        }
        let scalar = release(held, scalar);
        Ok(Typed::new(scalar, Type::Bool).at(position(expr.span())))
    }

    fn like(
        &mut self,
        operator: &str,
        expr: &'a Expr,
        pattern: &'a Expr,
        escape: Option<&'a Expr>,
    ) -> Result<Typed> {
        let at = self.operator_place(expr.span());
        let text = self.expr(expr)?;
        let mut pattern = self.expr(pattern)?;
        if let Some(escape) = escape {
            let escape = self.expr(escape)?;
            pattern = self.call_function("like_escape", vec![pattern, escape], at)?;
        }
        self.operator(operator, Some(text), pattern, at)
    }

    pub(super) fn row(&mut self, parts: Vec<Typed>, at: Option<usize>) -> Result<Typed> {
        let mut scalars = Vec::with_capacity(parts.len());
        for part in parts {
            scalars.push(self.settle(part)?.scalar);
        }
        Ok(Typed::new(Scalar::Row(scalars), Type::Record).at(at))
    }

    fn array(&mut self, elements: &'a [Expr], at: Option<usize>) -> Result<Typed> {
        if elements.is_empty() {
            let error = Error::new(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].");
            return Err(place(error, at));
        }
        let elements = elements.iter().map(|element| self.expr(element)).collect::<Result<Vec<_>>>()?;
        self.array_of(elements, at)
    }

    pub(super) fn array_of(&mut self, elements: Vec<Typed>, at: Option<usize>) -> Result<Typed> {
        let (elements, element, _) = self.unify(elements, "ARRAY types")?;
        let Some(ty) = element.array() else {
            let what =
                if element.element().is_some() { "arrays of several dimensions" } else { element.name() };
            return Err(place(Error::unsupported(format!("array of {what}")), at));
        };
        Ok(Typed::new(Scalar::Array { elements, ty }, ty).at(at))
    }

    fn subscripts(&mut self, root: &'a Expr, chain: &'a [ast::AccessExpr]) -> Result<Typed> {
        let (mut typed, chain) = match root {
            // `t.a[1]`: names that come first are those of a column.
            Expr::Identifier(first) => {
                let field = |access: &ast::AccessExpr| match access {
                    ast::AccessExpr::Dot(Expr::Identifier(name)) => Some(name.clone()),
                    _ => None,
                };
                let names: Vec<Ident> =
                    std::iter::once(first.clone()).chain(chain.iter().map_while(field)).collect();
                match names.len() {
                    1 => (self.expr(root)?, chain),
                    count => (self.compound_identifier(&names)?, &chain[count - 1..]),
                }
            }
            _ => (self.expr(root)?, chain),
        };
        for access in chain {
            let at = typed.position;
            match access {
                ast::AccessExpr::Subscript(ast::Subscript::Index { index }) => {
                    let Some(ty) = typed.ty.element() else {
                        let message = format!(
                            "cannot subscript type {} because it does not support subscripting",
                            typed.ty.name()
                        );
                        return Err(place(Error::new(SqlState::DATATYPE_MISMATCH, message), at));
                    };
                    let index = self.expr(index)?;
                    let index = self.coerce(index, Type::Int4, NO_MODIFIER, CastContext::Assignment)?;
                    let scalar = Scalar::Subscript {
                        array: Box::new(typed.scalar),
                        index: Box::new(index.scalar),
                        ty,
                    };
                    typed = Typed::new(scalar, ty).at(at);
                }
                ast::AccessExpr::Subscript(ast::Subscript::Slice { .. }) => {
                    return Err(place(Error::unsupported("array slice"), at));
                }
                ast::AccessExpr::Dot(_) => {
                    return Err(place(Error::unsupported("selection of a field of a composite value"), at));
                }
            }
        }
        Ok(typed)
    }

    fn collate(&mut self, expr: &'a Expr, collation: &ast::ObjectName) -> Result<Typed> {
        let at = self.operator_place(expr.span());
        let names = super::name_parts(collation)?;
        let name = names.last().map_or("", String::as_str);
        // All of these are one order here: bytes.
        if !matches!(name, "C" | "POSIX" | "default" | "ucs_basic") || names.len() > 2 {
            let message = format!("collation \"{}\" for encoding \"UTF8\" does not exist", names.join("."));
            return Err(place(Error::new(SqlState::UNDEFINED_OBJECT, message), at));
        }
        let typed = self.expr(expr)?;
        if !typed.ty.is_string() {
            let message = format!("collations are not supported by type {}", typed.ty.name());
            return Err(place(Error::new(SqlState::DATATYPE_MISMATCH, message), at));
        }
        self.settle(typed)
    }
}

/// Nodes of an operand that is computed wherever it is needed rather than once.
const REPEATED_NODES: usize = 64;

/// Whether an operand that is needed more than once is too large for that. What has no type yet is nothing but a literal or a parameter.
fn is_large(operand: &Typed) -> bool {
    operand.ty != Type::Unknown && size(&operand.scalar) > REPEATED_NODES
}

/// What stands for an expression that is to be computed once, and the expression itself for [`release`]. What costs nothing is no worse
/// for being computed again, and rows and arrays are compared element by element where their elements show.
pub(super) fn hold(typed: Typed) -> (Typed, Option<Scalar>) {
    let mut bare = &typed.scalar;
    while let Scalar::Cast { argument, .. } = bare {
        bare = argument;
    }
    let open = match bare {
        Scalar::Literal { .. } | Scalar::Column(_) | Scalar::Parameter { .. } => true,
        Scalar::Row(_) | Scalar::Array { .. } => !is_volatile(bare),
        _ => false,
    };
    if open {
        return (typed, None);
    }
    let held = Typed { scalar: Scalar::Held { ty: typed.ty }, ..typed };
    (held, Some(typed.scalar))
}

/// An expression over what [`hold`] gave.
pub(super) fn release(held: Option<Scalar>, body: Scalar) -> Scalar {
    match held {
        Some(value) => Scalar::Hold { value: Box::new(value), body: Box::new(body) },
        None => body,
    }
}

fn string(text: &str, at: Option<usize>) -> Result<Typed> {
    if text.contains('\0') {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(place(Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message), at));
    }
    Ok(Typed::literal(Value::text(text), Type::Unknown).at(at))
}

/// The lower bound of BETWEEN SYMMETRIC.
fn symmetric_bound(low: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = low else { return None };
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(low))] if name.value == SYMMETRIC => Some(low),
        _ => None,
    }
}

/// The field of EXTRACT, as the function takes it.
fn date_field(field: &ast::DateTimeField) -> String {
    match field {
        ast::DateTimeField::Custom(ident) => ident.value.to_ascii_lowercase(),
        other => other.to_string().to_ascii_lowercase(),
    }
}

/// The error for syntax that is not implemented.
fn unsupported(expr: &Expr) -> Error {
    let what = match expr {
        Expr::JsonAccess { .. } => "JSON access",
        Expr::IsJson { .. } => "IS JSON",
        Expr::IsNormalized { .. } => "IS NORMALIZED",
        Expr::InUnnest { .. } => "IN UNNEST",
        Expr::RLike { .. } => "RLIKE",
        Expr::Convert { .. } => "CONVERT",
        Expr::Extract { .. } => "EXTRACT without FROM",
        Expr::Prefixed { .. } => "a string with a prefix",
        Expr::GroupingSets(_) => "GROUPING SETS",
        Expr::Cube(_) => "CUBE",
        Expr::Rollup(_) => "ROLLUP",
        Expr::Struct { .. } => "STRUCT",
        Expr::Named { .. } => "a named expression",
        Expr::Dictionary(_) => "a dictionary",
        Expr::Map(_) => "MAP",
        Expr::Array(_) => "an array without ARRAY",
        Expr::Interval(_) => "type interval",
        Expr::MatchAgainst { .. } => "MATCH AGAINST",
        Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => "row expansion via \"*\" here",
        Expr::OuterJoin(_) => "(+)",
        Expr::Prior(_) => "PRIOR",
        Expr::Lambda(_) => "a lambda function",
        Expr::MemberOf(_) => "MEMBER OF",
        _ => "this expression",
    };
    Error::unsupported(what)
}
