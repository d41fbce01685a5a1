//! Subqueries in expressions, and ANY and ALL of arrays.

use super::binder::{Binder, Typed, place};
use super::operators::{Symbol, inner, symbol};
use super::select::BoundQuery;
use super::tokens::position;
use crate::functions::common_type;
use crate::logical::{Comparison, Scalar, Subquery, SubqueryKind};
use crate::types::cast::CastContext;
use crate::types::{NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, Expr, Spanned};

impl<'a> Binder<'a> {
    /// `(SELECT ...)` for a value.
    pub(super) fn scalar_subquery(&mut self, query: &'a ast::Query) -> Result<Typed> {
        let at = self.parenthesis_place(query.span());
        let bound = self.query(query)?;
        let [column] = bound.output.as_slice() else {
            return Err(place(
                Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"),
                at,
            ));
        };
        let (ty, modifier) = (column.ty, column.modifier);
        let subquery = Subquery { query: Self::closed(bound), kind: SubqueryKind::Scalar };
        Ok(Typed { scalar: Scalar::Subquery(Box::new(subquery)), ty, modifier, position: at })
    }

    /// EXISTS
    pub(super) fn exists(&mut self, query: &'a ast::Query, negated: bool) -> Result<Typed> {
        let at = position(query.span());
        let bound = self.query(query)?;
        let subquery = Subquery { query: Self::closed(bound), kind: SubqueryKind::Exists };
        let scalar = Scalar::Subquery(Box::new(subquery));
        let scalar = if negated { Scalar::Not(Box::new(scalar)) } else { scalar };
        Ok(Typed::new(scalar, Type::Bool).at(at))
    }

    /// ARRAY(SELECT ...)
    pub(super) fn array_subquery(&mut self, query: &'a ast::Query, at: Option<usize>) -> Result<Typed> {
        let bound = self.query(query)?;
        let [column] = bound.output.as_slice() else {
            return Err(place(
                Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"),
                at,
            ));
        };
        let Some(ty) = column.ty.array() else {
            let message = format!("could not find array type for data type {}", column.ty.name());
            return Err(place(Error::new(SqlState::UNDEFINED_OBJECT, message), at));
        };
        let subquery = Subquery { query: Self::closed(bound), kind: SubqueryKind::Array(ty) };
        Ok(Typed::new(Scalar::Subquery(Box::new(subquery)), ty).at(at))
    }

    /// IN (SELECT ...)
    pub(super) fn in_subquery(
        &mut self,
        expr: &'a Expr,
        query: &'a ast::Query,
        negated: bool,
    ) -> Result<Typed> {
        let at = self.operator_place(expr.span());
        let left = match self.row_parts(expr)? {
            Some(parts) => parts,
            None => vec![self.expr(expr)?],
        };
        let begins = left.first().and_then(|left| left.position);
        let scalar = self.quantified_subquery(left, Comparison::Equal, query, false, at)?;
        let scalar = if negated { Scalar::Not(Box::new(scalar)) } else { scalar };
        Ok(Typed::new(scalar, Type::Bool).at(begins))
    }

    fn quantified_subquery(
        &mut self,
        left: Vec<Typed>,
        op: Comparison,
        query: &'a ast::Query,
        all: bool,
        at: Option<usize>,
    ) -> Result<Scalar> {
        let bound = self.query(query)?;
        if left.len() != bound.output.len() {
            let many = if left.len() < bound.output.len() { "many" } else { "few" };
            let error = Error::new(SqlState::SYNTAX_ERROR, format!("subquery has too {many} columns"));
            return Err(place(error, at));
        }
        let (mut arguments, mut types) = (Vec::new(), Vec::new());
        for (left, column) in left.into_iter().zip(&bound.output) {
            let right = Typed {
                scalar: Scalar::Column(column.column),
                ty: column.ty,
                modifier: column.modifier,
                position: column.position,
            };
            let (left, right) = self.comparands(op, left, right, at)?;
            arguments.push(left.scalar);
            types.push(right.ty);
        }
        let bound: BoundQuery = self.converted_output(bound, &types, |this, typed, ty| {
            this.comparand(typed, ty, CastContext::Implicit)
        })?;
        let kind = SubqueryKind::Quantified { arguments, op, all };
        Ok(Scalar::Subquery(Box::new(Subquery { query: Self::closed(bound), kind })))
    }

    /// `= ANY (...)`, `< ALL (...)`: of a subquery or an array.
    pub(super) fn quantified(
        &mut self,
        left: &'a Expr,
        op: &ast::BinaryOperator,
        right: &'a Expr,
        all: bool,
    ) -> Result<Typed> {
        let at = self.operator_place(left.span());
        let op = match symbol(op).map_err(|error| place(error, at))? {
            Symbol::Compare(op) => op,
            Symbol::And | Symbol::Or | Symbol::Other(_) => {
                let what = if all { "ALL" } else { "ANY" };
                return Err(place(Error::unsupported(format!("operator {op} with {what}")), at));
            }
        };
        if let Expr::Subquery(query) = inner(right) {
            let left = match self.row_parts(left)? {
                Some(parts) => parts,
                None => vec![self.expr(left)?],
            };
            let begins = left.first().and_then(|left| left.position);
            let scalar = self.quantified_subquery(left, op, query, all, at)?;
            return Ok(Typed::new(scalar, Type::Bool).at(begins));
        }
        let argument = self.expr(left)?;
        let array = self.expr(right)?;
        let begins = argument.position;
        let (argument, array) = self.quantified_operands(op, argument, array, at)?;
        let scalar = Scalar::Quantified { argument: Box::new(argument), op, array: Box::new(array), all };
        Ok(Typed::new(scalar, Type::Bool).at(begins))
    }

    fn quantified_operands(
        &mut self,
        op: Comparison,
        argument: Typed,
        array: Typed,
        at: Option<usize>,
    ) -> Result<(Scalar, Scalar)> {
        let element = if array.ty == Type::Unknown {
            // Only what it is compared with says what it is an array of.
            common_type(&[argument.ty]).unwrap_or(Type::Text)
        } else {
            match array.ty.element() {
                Some(element) => element,
                None => {
                    let message = "op ANY/ALL (array) requires array on right side";
                    return Err(place(Error::new(SqlState::WRONG_OBJECT_TYPE, message), at));
                }
            }
        };
        let stand_in = Typed::new(Scalar::Literal { value: crate::Value::Null, ty: element }, element);
        let (argument, stand_in) = self.comparands(op, argument, stand_in, at)?;
        let Some(target) = stand_in.ty.array() else {
            let message = format!("could not find array type for data type {}", stand_in.ty.name());
            return Err(place(Error::new(SqlState::UNDEFINED_OBJECT, message), at));
        };
        // int2vector and oidvector are arrays as they are.
        if array.ty.element() == Some(stand_in.ty) {
            return Ok((argument.scalar, array.scalar));
        }
        let array = self.coerce(array, target, NO_MODIFIER, CastContext::Explicit)?;
        Ok((argument.scalar, array.scalar))
    }
}
