//! How rows and keys become bytes.
//!
//! | module | job |
//! |---|---|
//! | [`key`] | order-preserving keys: bytewise order is the order of the values |
//! | [`row`] | rows: any column is found without reading those before it |
//!
//! A table's tree maps the key of a row (its primary key, or a row number) to the row. A unique index maps its columns to
//! the row's key; where one of them is NULL, and in an index that is not unique, the row's key is appended to
//! the columns instead, and the value is empty. The layouts stand in `docs/format.md`.

pub mod key;
pub mod row;
