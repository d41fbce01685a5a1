//! One row by its whole primary key: the shortest way from a client's parameters to a row.

use super::access::table_tree;
use crate::Result;
use crate::catalog::Table;
use crate::codec::range::encode_equal;
use crate::types::Value;
use gannet_store::View;

/// Appends columns (by position in the table) of the row with this primary key, all of whose columns are given; false when there is none.
/// Nothing is allocated beyond what `scratch`, `out` and long values need.
pub(crate) fn fetch_one<'v>(
    view: &View,
    table: &Table,
    key: impl IntoIterator<Item = &'v Value>,
    columns: &[usize],
    scratch: &mut Vec<u8>,
    out: &mut Vec<Value>,
) -> Result<bool> {
    let codec = table.codec();
    scratch.clear();
    if !encode_equal(codec.key_columns(), key, scratch)? {
        return Ok(false);
    }
    let tree = table_tree(table, view)?;
    let found = view.with_value(tree, scratch, |row| codec.decode_row(scratch, row, columns, out))?;
    found.transpose().map(|found| found.is_some())
}
