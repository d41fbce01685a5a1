//! Selects of one row by its whole primary key, without operators: nothing is allocated beyond what the row itself needs.

use super::store::fetch_one;
use super::{Batch, Context};
use crate::Result;
use crate::physical::{Access, Expr, Node, Plan};
use crate::types::Value;
use std::cell::Cell;

thread_local! {
    /// Memory for keys and rows on their way, kept between statements.
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static ROW: Cell<Vec<Value>> = const { Cell::new(Vec::new()) };
}

/// A plan that asks for one row by its whole primary key.
#[derive(Debug)]
pub(super) struct PointSelect<'p> {
    access: &'p Access,
    key: &'p [Expr],
    exprs: Option<&'p [Expr]>,
}

/// Whether a plan is one.
pub(super) fn recognise(plan: &Plan) -> Option<PointSelect<'_>> {
    let (scan, exprs) = match &plan.node {
        Node::Project { input, exprs } => (&input.node, Some(exprs.as_slice())),
        node => (node, None),
    };
    let Node::TableScan { access, range: Some(range), .. } = scan else { return None };
    let columns = access.table.codec().key_columns().len();
    let plain = |expr: &Expr| matches!(expr, Expr::Literal(_) | Expr::Parameter(_));
    let whole = columns > 0 && range.equal.len() == columns && range.equal.iter().all(plain);
    (whole && !access.identity).then_some(PointSelect { access, key: &range.equal, exprs })
}

impl PointSelect<'_> {
    /// Whether it evaluates nothing: it gives columns as they are stored.
    pub(super) fn is_plain(&self) -> bool {
        self.access.filter.is_none() && self.exprs.is_none()
    }

    /// Puts the row, if there is one, into `out`, whose width is known.
    pub(super) fn run(&self, context: &Context<'_>, out: &mut Batch) -> Result<()> {
        let mut key = KEY.take();
        let found = self.find(context, &mut key, out);
        KEY.set(key);
        found?;
        out.has_room(context, 1).map(drop)
    }

    fn find(&self, context: &Context<'_>, key: &mut Vec<u8>, out: &mut Batch) -> Result<()> {
        let null = Value::Null;
        let values = self.key.iter().map(|expr| match expr {
            Expr::Literal(value) => value,
            Expr::Parameter(index) => &context.parameters[*index],
            _ => &null,
        });
        let Access { table, columns, .. } = self.access;
        if self.is_plain() {
            return out.push_with(|row| fetch_one(context.view, table, values, columns, key, row)).map(drop);
        }
        let mut row = ROW.take();
        row.clear();
        let found = fetch_one(context.view, table, values, columns, key, &mut row)
            .and_then(|found| if found { self.evaluate(context, &mut row, out) } else { Ok(()) });
        row.clear();
        ROW.set(row);
        found
    }

    /// What is asked for of a row.
    fn evaluate(&self, context: &Context<'_>, row: &mut Vec<Value>, out: &mut Batch) -> Result<()> {
        if let Some(filter) = &self.access.filter
            && !filter.is_true(row, context)?
        {
            return Ok(());
        }
        match self.exprs {
            None => out.push(row.drain(..)),
            Some(exprs) => {
                out.push_with(|values| {
                    super::expr::eval_into(exprs, row, context, values)?;
                    Ok(true)
                })?;
            }
        }
        Ok(())
    }
}
