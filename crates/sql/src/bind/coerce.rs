//! Types of expressions: what is unknown gets one, what differs is converted.

use super::binder::{Binder, Typed, place};
use crate::functions::common_type;
use crate::logical::Scalar;
use crate::types::cast::{CastContext, context};
use crate::types::{Modifier, NO_MODIFIER, Type, Value, datetime, text};
use crate::{Error, Result, SqlState};

impl Binder<'_> {
    /// Converts an expression; `None` where there is no conversion as weak as `allowed`.
    pub(super) fn try_coerce(
        &mut self,
        typed: Typed,
        ty: Type,
        modifier: Modifier,
        allowed: CastContext,
    ) -> Result<std::result::Result<Typed, Typed>> {
        if typed.ty == Type::Unknown && ty != Type::Unknown {
            return self.give_type(typed, ty, modifier, allowed == CastContext::Explicit).map(Ok);
        }
        if typed.ty == ty {
            // A modifier that is known to hold needs no work.
            if modifier == NO_MODIFIER || typed.modifier == modifier {
                return Ok(Ok(Typed { modifier, ..typed }));
            }
            return Ok(Ok(cast_node(typed, ty, modifier, allowed == CastContext::Explicit)));
        }
        if let Some(typed) = self.coerce_elements(&typed, ty, modifier, allowed)? {
            return Ok(Ok(typed));
        }
        match context(typed.ty, ty) {
            Some(needed) if needed <= allowed => {
                Ok(Ok(cast_node(typed, ty, modifier, allowed == CastContext::Explicit)))
            }
            _ => Ok(Err(typed)),
        }
    }

    /// ARRAY[...] of one type as an array of another: element by element.
    fn coerce_elements(
        &mut self,
        typed: &Typed,
        ty: Type,
        modifier: Modifier,
        allowed: CastContext,
    ) -> Result<Option<Typed>> {
        let (Scalar::Array { elements, ty: array }, Some(element)) = (&typed.scalar, ty.element()) else {
            return Ok(None);
        };
        let Some(from) = array.element() else { return Ok(None) };
        let mut converted = Vec::with_capacity(elements.len());
        for scalar in elements {
            let part =
                Typed { scalar: scalar.clone(), ty: from, modifier: NO_MODIFIER, position: typed.position };
            match self.try_coerce(part, element, modifier, allowed)? {
                Ok(part) => converted.push(part.scalar),
                Err(_) => return Ok(None),
            }
        }
        let scalar = Scalar::Array { elements: converted, ty };
        Ok(Some(Typed { scalar, ty, modifier, position: typed.position }))
    }

    /// Gives a type to a literal, NULL or parameter without one.
    fn give_type(&mut self, typed: Typed, ty: Type, modifier: Modifier, explicit: bool) -> Result<Typed> {
        let position = typed.position;
        let scalar = match typed.scalar {
            Scalar::Literal { value: Value::Null, .. } => Scalar::Literal { value: Value::Null, ty },
            Scalar::Literal { value: Value::Text(literal), .. } => {
                let read = |modifier| {
                    text::read(&literal, ty, modifier, self.scope.style)
                        .map_err(|error| place(error, position))
                };
                // CAST cuts what is too long, reading does not.
                let element = ty.element().unwrap_or(ty);
                let cut =
                    explicit && modifier != NO_MODIFIER && matches!(element, Type::Varchar | Type::Bpchar);
                let value = read(if cut { NO_MODIFIER } else { modifier })?;
                if matches!(element, Type::Date | Type::Timestamp | Type::TimestampTz) {
                    self.note_time(&literal, &value, ty, position);
                }
                let literal = Typed::new(Scalar::Literal { value, ty }, ty).at(position);
                if cut {
                    return Ok(cast_node(literal, ty, modifier, true));
                }
                literal.scalar
            }
            Scalar::Parameter { index, .. } => {
                let known = self.parameters[index];
                if known == Type::Unknown {
                    self.parameters[index] = ty;
                } else if known != ty {
                    let message = format!("inconsistent types deduced for parameter ${}", index + 1);
                    let error = Error::new(SqlState::AMBIGUOUS_PARAMETER, message).detail(format!(
                        "{} versus {}",
                        known.name(),
                        ty.name()
                    ));
                    return Err(place(error, position));
                }
                let typed = Typed::new(Scalar::Parameter { index, ty }, ty).at(position);
                return Ok(if modifier == NO_MODIFIER {
                    typed
                } else {
                    cast_node(typed, ty, modifier, explicit)
                });
            }
            scalar => {
                let typed = Typed { scalar, ty: Type::Text, modifier: NO_MODIFIER, position };
                return self.coerce(typed, ty, modifier, CastContext::Explicit);
            }
        };
        Ok(Typed { scalar, ty, modifier, position })
    }

    /// Keeps in mind what a date or time means that was read by the session's settings and clock.
    fn note_time(&mut self, literal: &str, value: &Value, ty: Type, position: Option<usize>) {
        if datetime::names_the_moment(literal) {
            self.scope.of_the_moment.set(true);
        }
        if let (Some(times), Some(position)) = (&mut self.times, position) {
            let mut text = String::new();
            text::write(value, ty, self.scope.style, &mut text);
            times.push((position, text));
        }
    }

    /// Converts an expression, or says that it cannot be.
    pub(super) fn coerce(
        &mut self,
        typed: Typed,
        ty: Type,
        modifier: Modifier,
        allowed: CastContext,
    ) -> Result<Typed> {
        self.try_coerce(typed, ty, modifier, allowed)?.map_err(|typed| {
            let message = format!("cannot cast type {} to {}", typed.ty.name(), ty.name());
            place(Error::new(SqlState::CANNOT_COERCE, message), typed.position)
        })
    }

    /// Converts implicitly.
    pub(super) fn implicit(&mut self, typed: Typed, ty: Type) -> Result<Typed> {
        self.coerce(typed, ty, NO_MODIFIER, CastContext::Implicit)
    }

    /// Makes text of what is still without a type.
    pub(super) fn settle(&mut self, typed: Typed) -> Result<Typed> {
        if typed.ty == Type::Unknown { self.implicit(typed, Type::Text) } else { Ok(typed) }
    }

    /// A condition. `what` is its place in the statement: "argument of WHERE".
    pub(super) fn condition(&mut self, typed: Typed, what: &str) -> Result<Scalar> {
        let position = typed.position;
        match self.try_coerce(typed, Type::Bool, NO_MODIFIER, CastContext::Implicit)? {
            Ok(typed) => Ok(typed.scalar),
            Err(typed) => {
                let message = format!("{what} must be type boolean, not type {}", typed.ty.name());
                Err(place(Error::new(SqlState::DATATYPE_MISMATCH, message), position))
            }
        }
    }

    /// Stores an expression into a column.
    pub(super) fn assign(&mut self, typed: Typed, column: &crate::catalog::Column) -> Result<Scalar> {
        match self.try_coerce(typed, column.ty, column.modifier, CastContext::Assignment)? {
            Ok(typed) => Ok(typed.scalar),
            Err(typed) => {
                let message = format!(
                    "column \"{}\" is of type {} but expression is of type {}",
                    column.name,
                    column.ty.name(),
                    typed.ty.name()
                );
                let error = Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .hint("You will need to rewrite or cast the expression.");
                Err(place(error, typed.position))
            }
        }
    }

    /// Converts all to their common type. `what` names the construct in the error: "CASE types", "UNION types".
    pub(super) fn unify(&mut self, all: Vec<Typed>, what: &str) -> Result<(Vec<Scalar>, Type, Modifier)> {
        let types: Vec<Type> = all.iter().map(|typed| typed.ty).collect();
        let Some(ty) = common_type(&types) else {
            return Err(no_common_type(&all, what));
        };
        // A modifier survives where all agree in it.
        let modifier = all.first().map_or(NO_MODIFIER, |first| first.modifier);
        let modifier = if all.iter().all(|typed| typed.ty == ty && typed.modifier == modifier) {
            modifier
        } else {
            NO_MODIFIER
        };
        let mut scalars = Vec::with_capacity(all.len());
        for typed in all {
            match self.try_coerce(typed, ty, NO_MODIFIER, CastContext::Implicit)? {
                Ok(typed) => scalars.push(typed.scalar),
                Err(typed) => {
                    let construct = what.split(' ').next().unwrap_or(what);
                    let message =
                        format!("{construct} could not convert type {} to {}", typed.ty.name(), ty.name());
                    return Err(place(Error::new(SqlState::CANNOT_COERCE, message), typed.position));
                }
            }
        }
        Ok((scalars, ty, modifier))
    }
}

/// The error of types that have none in common: it names the first two that differ.
pub(super) fn no_common_type(all: &[Typed], what: &str) -> Error {
    let mut known = all.iter().filter(|typed| typed.ty != Type::Unknown);
    let first = known.next().map_or(Type::Unknown, |typed| typed.ty);
    let other = known.find(|typed| common_type(&[first, typed.ty]).is_none());
    let (second, at) = other.map_or((first, None), |typed| (typed.ty, typed.position));
    let message = format!("{what} {} and {} cannot be matched", first.name(), second.name());
    place(Error::new(SqlState::DATATYPE_MISMATCH, message), at)
}

/// A conversion as a node.
pub(super) fn cast_node(typed: Typed, ty: Type, modifier: Modifier, explicit: bool) -> Typed {
    let scalar = Scalar::Cast { argument: Box::new(typed.scalar), ty, modifier, explicit };
    Typed { scalar, ty, modifier, position: typed.position }
}
