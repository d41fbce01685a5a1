//! Rows and index entries of a table.

use crate::Result;
use crate::catalog::Table;
use crate::types::Value;

/// How the rows of a table and the entries of its indexes become bytes, worked out once for each definition: see [`Table::codec`].
#[derive(Clone, Debug)]
pub struct TableCodec(());

impl TableCodec {
    /// For a definition.
    pub fn new(table: &Table) -> Self {
        let _ = table;
        TableCodec(())
    }

    /// Appends the key of a row, made of its primary key's columns. (A table without one has row numbers for keys.)
    pub fn row_key(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        let _ = (row, out);
        Ok(())
    }

    /// Appends a row in the current layout. `row`: one value for each column, in the table's order.
    pub fn encode_row(&self, row: &[Value], out: &mut Vec<u8>) -> Result<()> {
        let _ = (row, out);
        Ok(())
    }

    /// Appends the values of some columns, by position in the table, of a stored row of any layout.
    pub fn decode_row(&self, key: &[u8], row: &[u8], columns: &[usize], out: &mut Vec<Value>) -> Result<()> {
        let _ = (key, row, columns, out);
        Ok(())
    }

    /// Key and value of a row's entry in an index (by position in the table; not the primary one). `conflicts`: whether an entry of this key
    /// means a violation of uniqueness.
    pub fn index_entry(&self, index: usize, row: &[Value], row_key: &[u8]) -> Result<IndexEntry> {
        let _ = (index, row, row_key);
        Ok(IndexEntry { key: Vec::new(), value: Vec::new(), conflicts: false })
    }
}

/// An entry of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Whether another row with this key would violate uniqueness.
    pub conflicts: bool,
}
