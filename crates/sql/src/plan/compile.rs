//! Expressions over columns by number made into expressions over positions of a row.

use super::scalar::constant;
use crate::functions::Function;
use crate::logical::walk::{any, parts};
use crate::logical::{ColumnId, Columns, Scalar, Subquery, is_volatile, type_of};
use crate::physical::Expr;
use crate::types::{Type, Value};
use crate::{Error, Result};

/// Where the columns and subqueries of an expression are found.
pub(super) trait Resolve {
    /// What is known of the columns.
    fn columns(&self) -> &Columns;
    /// A column.
    fn column(&mut self, id: ColumnId, row: &[ColumnId]) -> Result<Expr>;
    /// A subquery.
    fn subquery(&mut self, subquery: &Subquery, row: &[ColumnId]) -> Result<Expr>;
}

/// Compiles an expression over a row of these columns. What is not simple is left to other functions, lest this one's frame grow: it is
/// on the stack as often as the expression is deep.
pub(super) fn compile(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    match scalar {
        Scalar::Literal { value, .. } => Ok(Expr::Literal(value.clone())),
        Scalar::Column(id) => match row.iter().position(|column| column == id) {
            Some(position) => Ok(Expr::Column(position)),
            None => resolve.column(*id, row),
        },
        Scalar::Parameter { index, .. } => Ok(Expr::Parameter(*index)),
        Scalar::Call { .. } | Scalar::Cast { .. } => call(scalar, row, resolve),
        Scalar::And(_)
        | Scalar::Or(_)
        | Scalar::Row(_)
        | Scalar::Coalesce { .. }
        | Scalar::Extreme { .. }
        | Scalar::Array { .. } => list(scalar, row, resolve),
        Scalar::Subquery(subquery) => resolve.subquery(subquery, row),
        Scalar::Compare { op, left, right } => {
            let left = boxed(left, row, resolve)?;
            Ok(Expr::Compare { op: *op, left, right: boxed(right, row, resolve)? })
        }
        Scalar::Not(argument) => Ok(Expr::Not(boxed(argument, row, resolve)?)),
        other => rest(other, row, resolve),
    }
}

#[inline(never)]
fn call(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    match scalar {
        Scalar::Call { function, arguments, ty } => {
            let arguments = compile_all(arguments, row, resolve)?;
            Ok(finish_call(function, arguments, scalar, *ty, resolve))
        }
        Scalar::Cast { argument, .. } => {
            let argument = boxed(argument, row, resolve)?;
            finish_cast(argument, scalar, resolve)
        }
        other => rest(other, row, resolve),
    }
}

#[inline(never)]
fn finish_call(
    function: &'static Function,
    arguments: Vec<Expr>,
    scalar: &Scalar,
    ty: Type,
    resolve: &dyn Resolve,
) -> Expr {
    let mut types = Vec::with_capacity(arguments.len());
    parts(scalar, &mut |part| types.push(type_of(part, resolve.columns())));
    Expr::Call { function, arguments, types, ty }
}

#[inline(never)]
fn finish_cast(compiled: Box<Expr>, scalar: &Scalar, resolve: &dyn Resolve) -> Result<Expr> {
    let Scalar::Cast { argument, ty, modifier, explicit } = scalar else {
        return Err(Error::internal("a conversion that is none"));
    };
    let from = type_of(argument, resolve.columns());
    Ok(Expr::Cast { argument: compiled, from, to: *ty, modifier: *modifier, explicit: *explicit })
}

#[inline(never)]
fn list(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    match scalar {
        Scalar::And(list) => Ok(Expr::And(compile_all(list, row, resolve)?)),
        Scalar::Or(list) => Ok(Expr::Or(compile_all(list, row, resolve)?)),
        Scalar::Row(list) => {
            let elements = compile_all(list, row, resolve)?;
            let types = list.iter().map(|part| type_of(part, resolve.columns())).collect();
            Ok(Expr::Row { elements, types })
        }
        Scalar::Coalesce { arguments, .. } => Ok(Expr::Coalesce(compile_all(arguments, row, resolve)?)),
        Scalar::Extreme { arguments, greatest, .. } => {
            Ok(Expr::Extreme { arguments: compile_all(arguments, row, resolve)?, greatest: *greatest })
        }
        Scalar::Array { elements, ty } => {
            let elements = compile_all(elements, row, resolve)?;
            let element = ty.element().ok_or_else(|| Error::internal("an array of no elements' type"))?;
            Ok(Expr::Array { elements, element })
        }
        other => rest(other, row, resolve),
    }
}

#[inline(never)]
fn rest(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    Ok(match scalar {
        Scalar::CompareRows { op, left, right } => Expr::CompareRows {
            op: *op,
            left: compile_all(left, row, resolve)?,
            right: compile_all(right, row, resolve)?,
        },
        Scalar::IsNull(argument) => Expr::IsNull(boxed(argument, row, resolve)?),
        Scalar::IsBool { argument, value } => {
            Expr::IsBool { argument: boxed(argument, row, resolve)?, value: *value }
        }
        Scalar::Case { branches, otherwise, .. } => Expr::Case {
            branches: branches
                .iter()
                .map(|(condition, value)| {
                    Ok((compile(condition, row, resolve)?, compile(value, row, resolve)?))
                })
                .collect::<Result<_>>()?,
            otherwise: boxed(otherwise, row, resolve)?,
        },
        Scalar::Hold { value, body } => {
            Expr::Hold { value: boxed(value, row, resolve)?, body: boxed(body, row, resolve)? }
        }
        Scalar::Held { .. } => Expr::Held,
        Scalar::InList { argument, list } => in_list(argument, list, row, resolve)?,
        Scalar::Quantified { argument, op, array, all } => Expr::Quantified {
            argument: boxed(argument, row, resolve)?,
            op: *op,
            array: boxed(array, row, resolve)?,
            all: *all,
        },
        Scalar::Subscript { array, index, .. } => {
            Expr::Subscript { array: boxed(array, row, resolve)?, index: boxed(index, row, resolve)? }
        }
        _ => return Err(Error::internal("an expression of no kind")),
    })
}

#[inline(never)]
fn boxed(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Box<Expr>> {
    compile(scalar, row, resolve).map(Box::new)
}

/// Compiles several expressions.
pub(super) fn compile_all(list: &[Scalar], row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Vec<Expr>> {
    let mut out = Vec::with_capacity(list.len());
    for scalar in list {
        out.push(compile(scalar, row, resolve)?);
    }
    Ok(out)
}

fn in_list(argument: &Scalar, list: &[Scalar], row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    let argument = boxed(argument, row, resolve)?;
    let constants: Option<Vec<Value>> = list.iter().map(|item| constant(item).cloned()).collect();
    let Some(mut values) = constants else {
        return Ok(Expr::InList { argument, list: compile_all(list, row, resolve)? });
    };
    let count = values.len();
    values.retain(|value| !value.is_null());
    let null = values.len() < count;
    values.sort();
    values.dedup();
    Ok(Expr::InSet { argument, set: values.into(), null })
}

/// Compiles an expression that takes nothing from outside; `None` for any other.
pub(super) fn compile_constant(scalar: &Scalar, columns: &Columns) -> Option<Expr> {
    struct Nothing<'a>(&'a Columns);
    impl Resolve for Nothing<'_> {
        fn columns(&self) -> &Columns {
            self.0
        }
        fn column(&mut self, _: ColumnId, _: &[ColumnId]) -> Result<Expr> {
            Err(Error::internal("a column in a constant"))
        }
        fn subquery(&mut self, _: &Subquery, _: &[ColumnId]) -> Result<Expr> {
            Err(Error::internal("a subquery in a constant"))
        }
    }
    let open = any(scalar, &|part| {
        matches!(
            part,
            Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Held { .. } | Scalar::Subquery(_)
        )
    });
    if open || is_volatile(scalar) { None } else { compile(scalar, &[], &mut Nothing(columns)).ok() }
}
