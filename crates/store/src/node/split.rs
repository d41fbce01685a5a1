//! Splitting a node: where to cut, and the two halves.
//!
//! The place of the cut depends on what is waiting to be stored, so it is chosen with the pending change in mind: the
//! node's entries *as they would be* with that change form a sequence, and the cut is made in that sequence. Either
//! half, the pending change included, then fits its page exactly (see `limits.rs` for why such a cut exists).

use super::layout::{CHILD_LEN, NO_SLOT, SLOT_LEN, SLOTS, common_prefix, entry_len, fence_prefix};
use super::read::NodeRef;
use super::write::{Builder, NodeMut};
use crate::page::{self, PageKind};
use std::cmp::Ordering;

/// Where a node is split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitPoint {
    /// Entries below this slot stay; the others move to the right sibling. Can be 0 in a leaf, or the node's count.
    pub slot: usize,
    /// The first key of the right sibling's range: its lower and the left one's upper fence.
    pub separator: Vec<u8>,
    /// Whether the pending change belongs into the right sibling. Its slot there is its old one less `slot`.
    pub pending_goes_right: bool,
}

/// A change that did not fit.
#[derive(Clone, Copy)]
enum Pending<'a> {
    None,
    Insert { slot: usize, suffix: &'a [u8], payload_len: usize },
    Replace { slot: usize, payload_len: usize },
}

/// The node's entries as they would be with the pending change.
#[derive(Clone, Copy)]
struct Sequence<'a> {
    node: NodeRef<'a>,
    pending: Pending<'a>,
}

/// How good a cut is; less is better. The separator's length matters only between cuts of the same excess.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct Cost {
    /// Bytes between the cut and the wanted range.
    excess: usize,
    separator_len: usize,
    /// Bytes between the cut and the wanted place.
    distance: usize,
}

impl<'a> NodeRef<'a> {
    /// Where to split so that `key` with a payload of `payload_len` bytes, to be inserted at `slot`, fits afterwards.
    ///
    /// The middle by bytes, or a place near it with a shorter separator. A run of ascending insertions leaves
    /// full pages behind it, a descending one too. `None` only if the entry is longer than the limits allow, or there
    /// is nothing to split.
    pub fn choose_split_for_insert(self, slot: usize, key: &[u8], payload_len: usize) -> Option<SplitPoint> {
        let suffix = self.strip(key);
        Sequence { node: self, pending: Pending::Insert { slot, suffix, payload_len } }.choose()
    }

    /// Where to split so that entry `slot` can have a payload of `payload_len` bytes afterwards. `None` only if that is
    /// longer than the limits allow, or there is nothing to split.
    pub fn choose_split_for_replace(self, slot: usize, payload_len: usize) -> Option<SplitPoint> {
        Sequence { node: self, pending: Pending::Replace { slot, payload_len } }.choose()
    }

    /// Where to split with nothing pending, to make room ahead of need. `None` with fewer than two entries.
    pub fn choose_split(self) -> Option<SplitPoint> {
        Sequence { node: self, pending: Pending::None }.choose()
    }

    /// Builds the right sibling of a split on `right_page`, LSN 0. The separator comes from a [`SplitPoint`].
    pub fn split_right_into(
        self,
        slot: usize,
        separator: &[u8],
        right_page: &mut [u8],
    ) -> Result<(), String> {
        self.check_right(slot, separator)?;
        page::init(right_page, PageKind::Node, self.tree());
        self.build_right(slot, separator, right_page);
        Ok(())
    }

    /// Whether [`NodeMut::truncate_left`] can be done.
    pub fn can_truncate_left(self, slot: usize, separator: &[u8]) -> bool {
        self.check_right(slot, separator).is_ok()
    }

    /// What is wrong with a right sibling from `slot` on, behind `separator`.
    fn check_right(self, slot: usize, separator: &[u8]) -> Result<(), String> {
        self.check_cut(slot, separator)?;
        let count = self.count();
        let first_len = if slot < count { self.stored_suffix(slot).len() } else { 0 };
        let bytes = (slot..count).map(|i| SLOT_LEN + self.cell_len(i)).sum();
        let size = self.right_size(bytes, count - slot, first_len, &separator[self.prefix().len()..]);
        if size > self.page().len() {
            return Err("the right sibling would overflow".into());
        }
        Ok(())
    }

    /// Builds it on a page that is a node's.
    fn build_right(self, slot: usize, separator: &[u8], page: &mut [u8]) {
        let mut builder = Builder::begin(page, self.level(), separator, self.upper_fence());
        let cut_off = fence_prefix(separator, self.upper_fence()) - self.prefix().len();
        for i in slot..self.count() {
            let suffix = if i == slot && self.is_inner() { &[] } else { &self.stored_suffix(i)[cut_off..] };
            builder.push([suffix, &[]], self.payload(i));
        }
        builder.finish().assert_sound();
    }

    /// What is wrong with a cut before `slot` at `separator`.
    fn check_cut(self, slot: usize, separator: &[u8]) -> Result<(), String> {
        let count = self.count();
        if separator.len() > super::max_key_len(self.page().len())
            || separator <= self.lower_fence()
            || !self.covers(separator)
        {
            return Err("the separator lies outside the fences".into());
        }
        if slot > count || (slot == 0 && self.is_inner()) {
            return Err(format!("no cut before entry {slot} of {count}"));
        }
        let suffix = self.strip(separator);
        if slot > 0 && self.key_suffix(slot - 1) >= suffix {
            return Err(format!("the separator does not lie above entry {}", slot - 1));
        }
        if slot < count {
            match self.key_suffix(slot).cmp(suffix) {
                Ordering::Less => return Err(format!("the separator lies above entry {slot}")),
                Ordering::Greater if self.is_inner() => {
                    return Err(format!("the separator is not the key of entry {slot}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes of a left sibling with `entries` entries that take `bytes` here. The separator comes without the prefix.
    fn left_size(self, bytes: usize, entries: usize, separator: &[u8]) -> usize {
        let lower = self.lower_fence();
        let prefix_len = self.prefix().len();
        let grown = common_prefix(&lower[prefix_len..], separator);
        let shortened = entries.saturating_sub(usize::from(self.is_inner()));
        SLOTS + lower.len() + prefix_len + separator.len() + bytes - grown * shortened
    }

    /// Bytes of a right sibling, likewise; its first entry has a stored suffix of `first_len` bytes here.
    fn right_size(self, bytes: usize, entries: usize, first_len: usize, separator: &[u8]) -> usize {
        let prefix_len = self.prefix().len();
        let upper = self.upper_fence();
        let grown = upper.map_or(0, |upper| common_prefix(&upper[prefix_len..], separator));
        let inner = self.is_inner();
        let shortened = entries.saturating_sub(usize::from(inner));
        let emptied = if inner { first_len } else { 0 };
        SLOTS + upper.map_or(0, <[u8]>::len) + prefix_len + separator.len() + bytes
            - grown * shortened
            - emptied
    }
}

impl NodeMut<'_> {
    /// Makes the node the left sibling of a split: entries from `slot` on go, `separator` becomes the upper fence.
    pub fn truncate_right(&mut self, slot: usize, separator: &[u8]) -> Result<(), String> {
        self.view().check_cut(slot, separator)?;
        let old = self.view().page().to_vec();
        let old = NodeRef::new(&old);
        let prefix_len = old.prefix().len();
        let bytes = (0..slot).map(|i| SLOT_LEN + old.cell_len(i)).sum();
        if old.left_size(bytes, slot, &separator[prefix_len..]) > old.page().len() {
            return Err("the left sibling would overflow".into());
        }
        let lower = old.lower_fence();
        let cut_off = fence_prefix(lower, Some(separator)) - prefix_len;
        let last_insert = old.header().last_insert;
        let mut builder = Builder::begin(self.page_mut(), old.level(), lower, Some(separator));
        for i in 0..slot {
            let stored = old.stored_suffix(i);
            let suffix = if i == 0 && old.is_inner() { stored } else { &stored[cut_off..] };
            builder.push([suffix, &[]], old.payload(i));
        }
        builder.set_last_insert(if usize::from(last_insert) < slot { last_insert } else { NO_SLOT });
        builder.finish().assert_sound();
        Ok(())
    }

    /// Makes the node the right sibling of a split: entries below `slot` go, `separator` becomes the lower fence.
    pub fn truncate_left(&mut self, slot: usize, separator: &[u8]) -> Result<(), String> {
        self.view().check_right(slot, separator)?;
        let old = self.view().page().to_vec();
        NodeRef::new(&old).build_right(slot, separator, self.page_mut());
        Ok(())
    }
}

impl<'a> Sequence<'a> {
    fn count(&self) -> usize {
        self.node.count() + usize::from(matches!(self.pending, Pending::Insert { .. }))
    }

    /// The node's own slot of entry `v`; `None` for the one to be inserted.
    fn own_slot(&self, v: usize) -> Option<usize> {
        match self.pending {
            Pending::Insert { slot, .. } if v == slot => None,
            Pending::Insert { slot, .. } if v > slot => Some(v - 1),
            _ => Some(v),
        }
    }

    /// Key of entry `v` without the prefix.
    fn suffix(&self, v: usize) -> &'a [u8] {
        match (self.own_slot(v), self.pending) {
            (Some(i), _) => self.node.key_suffix(i),
            (None, Pending::Insert { suffix, .. }) => suffix,
            (None, _) => unreachable!("only an insertion has no slot yet"),
        }
    }

    /// Length of the suffix that is stored for entry `v`.
    fn stored_len(&self, v: usize) -> usize {
        if v == 0 && self.node.is_inner() { 0 } else { self.suffix(v).len() }
    }

    /// Bytes of entry `v`.
    fn size(&self, v: usize) -> usize {
        let payload_len = match (self.own_slot(v), self.pending) {
            (None, Pending::Insert { payload_len, .. }) => payload_len,
            (Some(i), Pending::Replace { slot, payload_len }) if i == slot => payload_len,
            (Some(_), _) if self.node.is_inner() => CHILD_LEN,
            (Some(i), _) => self.node.payload_range(i).len(),
            (None, _) => unreachable!("only an insertion has no slot yet"),
        };
        entry_len(self.stored_len(v), payload_len)
    }

    /// Where to cut when the insertions form a run: behind what will not be added to any more.
    fn cut_of_run(&self) -> Option<usize> {
        let Pending::Insert { slot, .. } = self.pending else { return None };
        let last = self.node.header().last_insert;
        let known = last != NO_SLOT;
        let ascends = known && usize::from(last) + 1 == slot;
        let count = self.node.count();
        if slot == count && (ascends || self.node.upper_fence().is_none()) {
            return Some(count);
        }
        if slot == 0 && ((known && last == 0) || self.node.lower_fence().is_empty()) {
            return Some(1);
        }
        // A run in the middle of the node: what follows it goes, and the run will continue at the node's end.
        ascends.then_some(slot + 1)
    }

    /// The separator, without the prefix, of a cut before entry `v`: in a leaf just enough of the key to
    /// lie above the one before, in an inner node the key.
    fn separator(&self, v: usize) -> &'a [u8] {
        let suffix = self.suffix(v);
        if self.node.is_inner() { suffix } else { &suffix[..common_prefix(self.suffix(v - 1), suffix) + 1] }
    }

    /// Whether a cut before entry `v` may be made and both halves fit, given the bytes of the entries before it.
    fn feasible(&self, v: usize, left_bytes: usize, total: usize, separator: &[u8]) -> bool {
        let last = self.count() - 1;
        if self.node.is_inner() && self.own_slot(v).is_none() && v < last {
            // The right sibling's first entry must be there before the pending one.
            return false;
        }
        let page_size = self.node.page().len();
        self.node.left_size(left_bytes, v, separator) <= page_size
            && self.node.right_size(total - left_bytes, last + 1 - v, self.stored_len(v), separator)
                <= page_size
    }

    fn choose(&self) -> Option<SplitPoint> {
        let count = self.count();
        let total: usize = (0..count).map(|v| self.size(v)).sum();
        let (target, tolerance) = match self.cut_of_run() {
            Some(cut) => ((0..cut).map(|v| self.size(v)).sum(), 0),
            None => (total / 2, total / 16),
        };
        let mut best: Option<(Cost, usize)> = None;
        let mut left_bytes = 0;
        for cut in 1..count {
            left_bytes += self.size(cut - 1);
            let distance = left_bytes.abs_diff(target);
            let excess = distance.saturating_sub(tolerance);
            if best.is_some_and(|(cost, _)| cost.excess < excess) {
                continue;
            }
            let separator = self.separator(cut);
            let cost = Cost { excess, separator_len: separator.len(), distance };
            if best.is_none_or(|(least, _)| cost < least) && self.feasible(cut, left_bytes, total, separator)
            {
                best = Some((cost, cut));
            }
        }
        best.map(|(_, cut)| self.split_point(cut))
    }

    fn split_point(&self, cut: usize) -> SplitPoint {
        let (slot, pending_goes_right) = match self.pending {
            Pending::None => (cut, false),
            Pending::Insert { slot, .. } if slot < cut => (cut - 1, false),
            Pending::Insert { .. } => (cut, true),
            Pending::Replace { slot, .. } => (cut, slot >= cut),
        };
        SplitPoint { slot, separator: [self.node.prefix(), self.separator(cut)].concat(), pending_goes_right }
    }
}
