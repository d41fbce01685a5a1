//! The changes of a node as log records hold them.
//!
//! The tree makes every change by applying a [`NodeOp`], and restart applies the same one again: there is no second
//! implementation that could differ. An operation touches one page and reads no other, so a merge carries the
//! right sibling's image. `apply` checks an operation against the page before it changes anything, so an operation
//! that reaches a wrong page is found, not executed.
//!
//! Encoding: a tag byte, then little-endian fields; the last field takes the rest, so the bytes' length is kept by
//! whoever stores them.
//!
//! | tag | operation | fields |
//! |---|---|---|
//! | 1 | insert | slot u16, suffix length u16, suffix, payload |
//! | 2 | replace | slot u16, payload |
//! | 3 | patch payload | slot u16, offset u16, bytes |
//! | 4 | remove | slot u16 |
//! | 5 | truncate right | slot u16, separator |
//! | 6 | merge from right | image of the right sibling |
//! | 7 | image | image |
//! | 8 | truncate left | slot u16, separator |

use super::read::NodeRef;
use super::write::NodeMut;
use crate::page::{self, PageKind};

/// A change of one node. Slots are those of the page at the moment of the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeOp<'a> {
    /// Inserts an entry.
    Insert {
        /// Where [`NodeRef::search`] wants it.
        slot: usize,
        /// The key as [`NodeRef::suffix_to_store`] gives it.
        suffix: &'a [u8],
        /// The payload.
        payload: &'a [u8],
    },
    /// Gives an entry another payload.
    Replace {
        /// The entry.
        slot: usize,
        /// Its new payload.
        payload: &'a [u8],
    },
    /// Overwrites part of a leaf entry's payload.
    PatchPayload {
        /// The entry.
        slot: usize,
        /// Where in the payload.
        offset: usize,
        /// What to write there.
        bytes: &'a [u8],
    },
    /// Removes an entry.
    Remove {
        /// The entry.
        slot: usize,
    },
    /// Makes the node the left sibling of a split.
    TruncateRight {
        /// Entries from here on go.
        slot: usize,
        /// The new upper fence.
        separator: &'a [u8],
    },
    /// Takes from the node what has gone to its left sibling.
    TruncateLeft {
        /// Entries below go.
        slot: usize,
        /// The new lower fence.
        separator: &'a [u8],
    },
    /// Takes over the entries and the upper fence of the right sibling.
    MergeFromRight {
        /// The right sibling's image.
        right: &'a [u8],
    },
    /// Makes the page this node, whatever it was.
    Image {
        /// What [`NodeRef::image`] gave.
        image: &'a [u8],
    },
}

const INSERT: u8 = 1;
const REPLACE: u8 = 2;
const PATCH_PAYLOAD: u8 = 3;
const REMOVE: u8 = 4;
const TRUNCATE_RIGHT: u8 = 5;
const MERGE_FROM_RIGHT: u8 = 6;
const IMAGE: u8 = 7;
const TRUNCATE_LEFT: u8 = 8;

impl<'a> NodeOp<'a> {
    /// Appends the operation's encoding. Slots, offsets and suffixes are those of a page, so they fit 16 bits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (tag, numbers, parts): (u8, [Option<usize>; 2], [&[u8]; 2]) = match *self {
            NodeOp::Insert { slot, suffix, payload } => {
                (INSERT, [Some(slot), Some(suffix.len())], [suffix, payload])
            }
            NodeOp::Replace { slot, payload } => (REPLACE, [Some(slot), None], [payload, &[]]),
            NodeOp::PatchPayload { slot, offset, bytes } => {
                (PATCH_PAYLOAD, [Some(slot), Some(offset)], [bytes, &[]])
            }
            NodeOp::Remove { slot } => (REMOVE, [Some(slot), None], [&[], &[]]),
            NodeOp::TruncateRight { slot, separator } => {
                (TRUNCATE_RIGHT, [Some(slot), None], [separator, &[]])
            }
            NodeOp::TruncateLeft { slot, separator } => (TRUNCATE_LEFT, [Some(slot), None], [separator, &[]]),
            NodeOp::MergeFromRight { right } => (MERGE_FROM_RIGHT, [None, None], [right, &[]]),
            NodeOp::Image { image } => (IMAGE, [None, None], [image, &[]]),
        };
        out.push(tag);
        for number in numbers.into_iter().flatten() {
            let number = u16::try_from(number).expect("positions within a page fit 16 bits");
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(parts[0]);
        out.extend_from_slice(parts[1]);
    }

    /// Reads an operation from all of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let cut = || "a node operation is cut short".to_string();
        let (&tag, mut rest) = bytes.split_first().ok_or_else(cut)?;
        let mut number = || -> Result<usize, String> {
            let (first, behind) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            rest = behind;
            Ok(usize::from(u16::from_le_bytes(*first)))
        };
        Ok(match tag {
            INSERT => {
                let (slot, suffix_len) = (number()?, number()?);
                let (suffix, payload) = rest.split_at_checked(suffix_len).ok_or_else(cut)?;
                NodeOp::Insert { slot, suffix, payload }
            }
            REPLACE => NodeOp::Replace { slot: number()?, payload: rest },
            PATCH_PAYLOAD => NodeOp::PatchPayload { slot: number()?, offset: number()?, bytes: rest },
            REMOVE => {
                let slot = number()?;
                if !rest.is_empty() {
                    return Err("bytes behind a node operation".into());
                }
                NodeOp::Remove { slot }
            }
            TRUNCATE_RIGHT => NodeOp::TruncateRight { slot: number()?, separator: rest },
            TRUNCATE_LEFT => NodeOp::TruncateLeft { slot: number()?, separator: rest },
            MERGE_FROM_RIGHT => NodeOp::MergeFromRight { right: rest },
            IMAGE => NodeOp::Image { image: rest },
            _ => return Err(format!("unknown node operation {tag}")),
        })
    }

    /// Applies the operation to a node that has passed [`super::verify_structure`] (an image: to any page). On an
    /// error the page is as it was, unless the operation is an image. Sets no LSN.
    #[inline]
    pub fn apply(&self, page: &mut [u8]) -> Result<(), String> {
        if let NodeOp::Image { image } = *self {
            return NodeMut::from_image(page, image).map(drop);
        }
        if page::kind(page) != Some(PageKind::Node) {
            return Err("not a node".into());
        }
        self.check(NodeRef::new(page))?;
        let mut node = NodeMut::new(page);
        let fits = match *self {
            NodeOp::Insert { slot, suffix, payload } => node.insert_suffix(slot, suffix, payload),
            NodeOp::Replace { slot, payload } => node.replace(slot, payload),
            NodeOp::PatchPayload { slot, offset, bytes } => {
                node.payload_mut(slot)[offset..offset + bytes.len()].copy_from_slice(bytes);
                true
            }
            NodeOp::Remove { slot } => {
                node.remove(slot);
                true
            }
            NodeOp::TruncateRight { slot, separator } => return node.truncate_right(slot, separator),
            NodeOp::TruncateLeft { slot, separator } => return node.truncate_left(slot, separator),
            NodeOp::MergeFromRight { right } => {
                let mut scratch = vec![0; node.view().page().len()];
                let right = NodeMut::from_image(&mut scratch, right)?;
                return node.merge_from_right(right.view());
            }
            NodeOp::Image { .. } => unreachable!("handled above"),
        };
        if fits { Ok(()) } else { Err("the node has no room for the change".into()) }
    }

    /// What is wrong with the operation on this node, its fit aside.
    #[inline]
    fn check(&self, node: NodeRef<'_>) -> Result<(), String> {
        let wrong = match *self {
            NodeOp::Insert { slot, suffix, payload } => {
                node.misshapen(suffix.len(), payload).or_else(|| node.misplaced(slot, suffix))
            }
            NodeOp::Replace { slot, .. } | NodeOp::PatchPayload { slot, .. } | NodeOp::Remove { slot }
                if slot >= node.count() =>
            {
                Some("no such entry")
            }
            NodeOp::Replace { slot, payload } => node.misshapen(node.stored_suffix(slot).len(), payload),
            NodeOp::PatchPayload { slot, offset, bytes } => (node.is_inner()
                || offset + bytes.len() > node.payload(slot).len())
            .then_some("no such part of a leaf's payload"),
            NodeOp::Remove { slot } => (slot == 0 && node.is_inner() && node.count() > 1)
                .then_some("an inner node keeps its first entry"),
            NodeOp::TruncateRight { .. }
            | NodeOp::TruncateLeft { .. }
            | NodeOp::MergeFromRight { .. }
            | NodeOp::Image { .. } => None,
        };
        wrong.map_or(Ok(()), |what| Err(what.into()))
    }
}

impl NodeRef<'_> {
    /// Why a suffix cannot be inserted at `slot`: it must lie between its neighbours.
    fn misplaced(self, slot: usize, suffix: &[u8]) -> Option<&'static str> {
        let count = self.count();
        let prefix_len = self.prefix().len();
        let lower = &self.lower_fence()[prefix_len..];
        if slot > count {
            return Some("no such slot");
        }
        if self.is_inner() && slot == 0 {
            return (count > 0 || !suffix.is_empty())
                .then_some("an inner node's first key is its lower fence");
        }
        let above = if slot == 0 { lower <= suffix } else { self.key_suffix(slot - 1) < suffix };
        let below = if slot < count {
            suffix < self.stored_suffix(slot)
        } else {
            self.upper_fence().is_none_or(|upper| suffix < &upper[prefix_len..])
        };
        (!(above && below)).then_some("the key does not lie between its neighbours")
    }
}
