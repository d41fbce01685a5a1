//! Expressions over columns by number made into expressions over positions of a row.

use super::scalar::{constant, type_of};
use crate::logical::{ColumnId, Columns, Scalar, Subquery};
use crate::physical::Expr;
use crate::types::Value;
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

/// Compiles an expression over a row of these columns.
pub(super) fn compile(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Expr> {
    Ok(match scalar {
        Scalar::Literal { value, .. } => Expr::Literal(value.clone()),
        Scalar::Column(id) => match row.iter().position(|column| column == id) {
            Some(position) => Expr::Column(position),
            None => resolve.column(*id, row)?,
        },
        Scalar::Parameter { index, .. } => Expr::Parameter(*index),
        Scalar::Call { function, arguments, ty } => Expr::Call {
            function,
            types: arguments.iter().map(|part| type_of(part, resolve.columns())).collect(),
            arguments: compile_all(arguments, row, resolve)?,
            ty: *ty,
        },
        Scalar::Cast { argument, ty, modifier, explicit } => Expr::Cast {
            from: type_of(argument, resolve.columns()),
            argument: boxed(argument, row, resolve)?,
            to: *ty,
            modifier: *modifier,
            explicit: *explicit,
        },
        Scalar::And(list) => Expr::And(compile_all(list, row, resolve)?),
        Scalar::Or(list) => Expr::Or(compile_all(list, row, resolve)?),
        Scalar::Not(argument) => Expr::Not(boxed(argument, row, resolve)?),
        Scalar::Compare { op, left, right } => {
            Expr::Compare { op: *op, left: boxed(left, row, resolve)?, right: boxed(right, row, resolve)? }
        }
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
        Scalar::Coalesce { arguments, .. } => Expr::Coalesce(compile_all(arguments, row, resolve)?),
        Scalar::Extreme { arguments, greatest, .. } => {
            Expr::Extreme { arguments: compile_all(arguments, row, resolve)?, greatest: *greatest }
        }
        Scalar::InList { argument, list } => in_list(argument, list, row, resolve)?,
        Scalar::Quantified { argument, op, array, all } => Expr::Quantified {
            argument: boxed(argument, row, resolve)?,
            op: *op,
            array: boxed(array, row, resolve)?,
            all: *all,
        },
        Scalar::Array { elements, ty } => Expr::Array {
            elements: compile_all(elements, row, resolve)?,
            element: ty.element().ok_or_else(|| Error::internal("an array of no elements' type"))?,
        },
        Scalar::Subscript { array, index, .. } => {
            Expr::Subscript { array: boxed(array, row, resolve)?, index: boxed(index, row, resolve)? }
        }
        Scalar::Row(list) => Expr::Row(compile_all(list, row, resolve)?),
        Scalar::Subquery(subquery) => resolve.subquery(subquery, row)?,
    })
}

fn boxed(scalar: &Scalar, row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Box<Expr>> {
    Ok(Box::new(compile(scalar, row, resolve)?))
}

/// Compiles several expressions.
pub(super) fn compile_all(list: &[Scalar], row: &[ColumnId], resolve: &mut dyn Resolve) -> Result<Vec<Expr>> {
    list.iter().map(|scalar| compile(scalar, row, resolve)).collect()
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
    let open = super::visit::any(scalar, &|part| {
        matches!(part, Scalar::Column(_) | Scalar::Parameter { .. } | Scalar::Subquery(_))
    });
    if open || super::scalar::is_volatile(scalar) {
        None
    } else {
        compile(scalar, &[], &mut Nothing(columns)).ok()
    }
}
