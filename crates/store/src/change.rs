//! Page changes: what a log record may do to one page, and the one function that does it, going forward and in redo
//! alike. Only what bulk load puts into a page beside the log is in no record ([`crate::mtr::Mtr::fill`]).
//!
//! # Invariants
//! 1. A change touches one page and reads no other.
//! 2. [`apply`] on equal logical contents gives equal logical contents; whether a node change fits never depends on
//!    how a node's heap happens to be laid out.
//! 3. A change of kind [`FORMAT`] or a node image needs nothing of what the page held before.
//! 4. Bytes in the middle of a page are written only where they are no node's, and only leaves are settled: whatever changes say, a
//!    node stays one, or they fail.

use crate::entry;
use crate::log::RecordView;
use crate::node::{NodeOp, NodeRef};
use crate::page::{self, HEADER_LEN, PageKind, put_u16};
use gannet_base::{TreeId, TxnId};

/// A [`NodeOp`].
pub(crate) const NODE: u8 = 1;
/// `offset: u16` and the bytes to put there.
pub(crate) const PATCH: u8 = 2;
/// `kind: u8, tree: u32` and the bytes behind the header; the rest of the page is zero.
pub(crate) const FORMAT: u8 = 3;
/// `offset: u16` and an undo record to put there; it becomes the last of its page.
pub(crate) const UNDO: u8 = 4;

/// `horizon: u64`, see [`crate::entry::settle`].
pub(crate) const SETTLE: u8 = 5;

/// Offset in an undo page of the position behind its last record.
pub(crate) const UNDO_END: usize = HEADER_LEN;

/// Writes the bytes of a `PATCH` or `UNDO` change.
pub(crate) fn encode_at(out: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    out.extend_from_slice(&(offset as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes the bytes of a `FORMAT` change.
pub(crate) fn encode_format(out: &mut Vec<u8>, kind: PageKind, tree: TreeId, content: &[u8]) {
    out.push(kind as u8);
    out.extend_from_slice(&tree.0.to_le_bytes());
    out.extend_from_slice(content);
}

/// Whether contents that a record gives to pages are not in it.
pub(crate) fn is_beside_log(record: &RecordView<'_>) -> bool {
    record
        .changes()
        .any(|change| change.kind == FORMAT && change.bytes.first() == Some(&(PageKind::Unfilled as u8)))
}

/// Applies a change to a page. The page's LSN is the caller's business. Fails, with the page possibly half changed,
/// only when the bytes make no sense: in redo that is damage, going forward a bug.
pub(crate) fn apply(kind: u8, bytes: &[u8], page: &mut [u8]) -> Result<(), String> {
    match kind {
        NODE => NodeOp::decode(bytes)?.apply(page),
        PATCH => {
            if page::kind(page) == Some(PageKind::Node) {
                return Err("a node is changed by entries, not by bytes".to_owned());
            }
            let (offset, bytes) = split_offset(bytes, page.len())?;
            page[offset..offset + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        FORMAT => {
            let [kind, a, b, c, d, content @ ..] = bytes else {
                return Err("a format change of fewer than 5 bytes".to_owned());
            };
            let kind = PageKind::from_number(*kind).ok_or_else(|| format!("unknown page kind {kind}"))?;
            if kind == PageKind::Node {
                return Err("a node begins with an image".to_owned());
            }
            if content.len() > page.len() - HEADER_LEN {
                return Err(format!("{} bytes of content for a page of {}", content.len(), page.len()));
            }
            page::init(page, kind, TreeId(u32::from_le_bytes([*a, *b, *c, *d])));
            page[HEADER_LEN..HEADER_LEN + content.len()].copy_from_slice(content);
            Ok(())
        }
        UNDO => {
            if page::kind(page) != Some(PageKind::Undo) {
                return Err("an undo record belongs on an undo page".to_owned());
            }
            let (offset, bytes) = split_offset(bytes, page.len())?;
            page[offset..offset + bytes.len()].copy_from_slice(bytes);
            put_u16(page, UNDO_END, (offset + bytes.len()) as u16);
            Ok(())
        }
        SETTLE => {
            if page::kind(page) != Some(PageKind::Node) || NodeRef::new(page).is_inner() {
                return Err("only leaves are settled".to_owned());
            }
            let horizon = bytes.try_into().map_err(|_| "a horizon has 8 bytes".to_owned())?;
            entry::settle(page, TxnId(u64::from_le_bytes(horizon)))
        }
        other => Err(format!("unknown kind of change {other}")),
    }
}

fn split_offset(bytes: &[u8], page_len: usize) -> Result<(usize, &[u8]), String> {
    let [low, high, rest @ ..] = bytes else {
        return Err("a patch without an offset".to_owned());
    };
    let offset = usize::from(u16::from_le_bytes([*low, *high]));
    if offset < HEADER_LEN || offset + rest.len() > page_len {
        return Err(format!("{} bytes at {offset} are outside the page", rest.len()));
    }
    Ok((offset, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{NodeMut, verify_structure};

    #[test]
    fn bytes_in_the_middle_of_a_node_and_settled_pages_that_are_no_leaves_are_refused() {
        let mut leaf = vec![0; 4096];
        NodeMut::init(&mut leaf, TreeId(9), 0, b"a", None);
        let before = leaf.clone();
        let (mut patch, mut format) = (Vec::new(), Vec::new());
        encode_at(&mut patch, HEADER_LEN, &[0xFF; 8]);
        encode_format(&mut format, PageKind::Node, TreeId(9), &[0xFF; 8]);
        for (kind, bytes) in [(PATCH, &patch), (UNDO, &patch), (FORMAT, &format)] {
            apply(kind, bytes, &mut leaf).unwrap_err();
            assert_eq!(leaf, before);
        }
        let horizon = 8u64.to_le_bytes();
        apply(SETTLE, &horizon, &mut leaf).unwrap();
        let mut inner = vec![0; 4096];
        NodeMut::init(&mut inner, TreeId(9), 1, b"", None).insert(0, b"", &[1; 8]);
        for mut page in [inner, vec![0; 4096]] {
            let before = page.clone();
            apply(SETTLE, &horizon, &mut page).unwrap_err();
            assert_eq!(page, before);
        }
        verify_structure(&leaf, 4096).unwrap();
    }
}
