//! The rows of a table that refer to something, by an index or by going through all of them.

use super::super::super::Context;
use super::super::access::{scan, table_tree};
use super::super::table_scan::CHECK_EVERY;
use super::super::writer::is_same;
use super::Lookup;
use crate::catalog::Table;
use crate::codec::key::successor;
use crate::codec::range::Range;
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_store::{Scan, View};
use std::sync::Arc;

/// How children are found that refer to something.
#[derive(Clone, Copy)]
pub(super) struct By<'k> {
    pub(super) child: &'k Arc<Table>,
    /// The referring columns.
    pub(super) positions: &'k [usize],
    /// `None`: by going through all rows.
    pub(super) lookup: Option<&'k Lookup>,
}

impl<'k> By<'k> {
    /// Those that refer to values, which are given as the lookup takes them, and as they are compared with the child's columns.
    pub(super) fn children(
        self,
        context: &Context<'_>,
        view: &View,
        values: &[Value],
        compared: Vec<Value>,
    ) -> Result<Children<'k>> {
        let scan = match self.lookup {
            None => Some(scan(view, table_tree(self.child, view)?, &Range::default())?),
            Some(lookup) => {
                let mut lower = Vec::with_capacity(16);
                if lookup.encode(values, context, &mut lower)? {
                    let mut upper = lower.clone();
                    let upper = successor(&mut upper).then_some(upper);
                    Some(scan(view, lookup.tree(view)?, &Range { lower, upper })?)
                } else {
                    None
                }
            }
        };
        Ok(Children { by: self, view: view.clone(), values: compared, scan, looked_at: 0 })
    }
}

/// Rows that refer to a parent.
pub(super) struct Children<'k> {
    by: By<'k>,
    view: View,
    /// What they refer to.
    values: Vec<Value>,
    /// Over an index, or over all rows.
    scan: Option<Scan>,
    /// Rows that were looked at.
    looked_at: usize,
}

impl Children<'_> {
    /// Whether a child's row refers to the parent.
    pub(super) fn refers(&self, row: &[Value]) -> bool {
        self.by.positions.iter().zip(&self.values).all(|(at, value)| is_same(&row[*at], value))
    }

    /// The next row: key and bytes.
    pub(super) fn next(&mut self, context: &Context<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let child = self.by.child;
        let Some(scan) = &mut self.scan else { return Ok(None) };
        let mut some = Vec::new();
        while let Some((key, value)) = scan.next()? {
            // Whoever asks for the next one may change each of them.
            self.looked_at += 1;
            if self.looked_at.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            let Some(lookup) = self.by.lookup else {
                some.clear();
                child.codec().decode_row(key, value, self.by.positions, &mut some)?;
                if some.iter().zip(&self.values).all(|(is, wanted)| is_same(is, wanted)) {
                    let row = (key.to_vec(), value.to_vec());
                    scan.forget_long();
                    return Ok(Some(row));
                }
                continue;
            };
            if lookup.is_primary() {
                let row = (key.to_vec(), value.to_vec());
                scan.forget_long();
                return Ok(Some(row));
            }
            let key = child.codec().index_row_key(lookup.index, key, value)?;
            let row = self.view.get(table_tree(child, &self.view)?, key)?.ok_or_else(|| {
                let name = &child.indexes[lookup.index].name;
                let message = format!("index \"{name}\" leads to a row that is not there");
                Error::new(SqlState::DATA_CORRUPTED, message)
            })?;
            return Ok(Some((key.to_vec(), row)));
        }
        Ok(None)
    }
}
