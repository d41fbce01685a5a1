//! The catalog: a versioned tree from names to trees, so that creating and dropping a tree is part of a transaction.
//!
//! ```text
//! key: name    value: tree u32 | 4 zero bytes | root page u64
//! ```
//! Numbers of trees are never given twice, since undo records and extents of a dropped tree outlive its entry: the next
//! number stands in the status tree, under a key behind all transactions.
//!
//! A dropped tree's pages go when sweep meets the dropping transaction's undo record behind the horizon; a created
//! tree's when its creation is rolled back.

use crate::page::{get_u32, get_u64, put_u32, put_u64};
use gannet_base::{PageId, TreeId};

const VALUE_LEN: usize = 16;

/// Key of the next tree's number (`u64`) in the status tree.
pub(crate) const NEXT_TREE: [u8; 9] = [0xFF; 9];

/// Longest name of a tree in bytes.
pub(crate) const MAX_NAME: usize = 255;

pub(crate) fn encode(tree: TreeId, root: PageId) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    put_u32(&mut value, 0, tree.0);
    put_u64(&mut value, 8, root.0);
    value
}

pub(crate) fn decode(value: &[u8]) -> Option<(TreeId, PageId)> {
    (value.len() == VALUE_LEN).then(|| (TreeId(get_u32(value, 0)), PageId(get_u64(value, 8))))
}
