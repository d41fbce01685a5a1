//! Changing a node in place, under its exclusive latch.

use super::layout::{
    CELL_HEADER, Header, NO_SLOT, SLOT_LEN, Slot, common_prefix, entry_len, head, slot_offset,
};
use super::read::NodeRef;
use crate::page::{self, PageKind, put_u16};
use gannet_base::TreeId;

/// A node to be changed. The bytes must have passed [`super::verify_structure`] or [`NodeMut::init`].
pub struct NodeMut<'a> {
    page: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// The node on `page`.
    #[inline]
    pub fn new(page: &'a mut [u8]) -> Self {
        NodeMut { page }
    }

    /// Makes `page` a node without entries, LSN 0. Fences are at most [`super::max_key_len`] long and in order.
    pub fn init(page: &'a mut [u8], tree: TreeId, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Self {
        page::init(page, PageKind::Node, tree);
        let node = Builder::begin(page, level, lower, upper).finish();
        node.assert_sound();
        node
    }

    /// The node, for reading.
    #[inline]
    pub fn view(&self) -> NodeRef<'_> {
        NodeRef::new(self.page)
    }

    /// The page's bytes.
    pub(super) fn page_mut(&mut self) -> &mut [u8] {
        self.page
    }

    /// Inserts an entry at the slot that [`NodeRef::search`] named. `false`, and no change, when it does not fit.
    ///
    /// # Panics
    /// When there is no such slot.
    #[inline]
    pub fn insert(&mut self, slot: usize, key: &[u8], payload: &[u8]) -> bool {
        debug_assert!(self.view().covers(key), "the key lies outside the fences");
        let stored = self.view().suffix_to_store(slot, key);
        self.insert_suffix(slot, stored, payload)
    }

    /// Inserts an entry whose key comes as [`NodeRef::suffix_to_store`] gave it.
    pub(super) fn insert_suffix(&mut self, slot: usize, suffix: &[u8], payload: &[u8]) -> bool {
        let needed = entry_len(suffix.len(), payload.len());
        if needed > self.view().contiguous() {
            if needed > self.view().free_space() {
                return false;
            }
            self.rebuild(None);
        }
        let mut header = self.view().header();
        assert!(slot <= usize::from(header.count), "no such slot");
        let skip = self.share_heads(&mut header, slot, suffix);
        let offset = usize::from(header.heap_start) - (needed - SLOT_LEN);
        write_cell(self.page, offset, [suffix, &[]], payload);
        self.page.copy_within(slot_offset(slot)..header.slots_end(), slot_offset(slot + 1));
        Slot { offset, suffix_len: suffix.len(), head: head(&suffix[skip..]) }.write(self.page, slot);
        header.count += 1;
        header.heap_start = offset as u16;
        header.last_insert = slot as u16;
        header.write(self.page);
        self.assert_sound();
        true
    }

    /// Sees to it that a new suffix begins with the bytes that heads leave out: leaves out fewer if need be. Gives
    /// how many bytes the new head leaves out.
    #[inline]
    fn share_heads(&mut self, header: &mut Header, slot: usize, suffix: &[u8]) -> usize {
        let first = header.first_headed();
        if slot < first {
            return 0;
        }
        let skip = usize::from(header.head_skip);
        if usize::from(header.count) <= first {
            header.head_skip = suffix.len() as u16;
        } else if skip > 0 {
            let stored = &self.view().stored_suffix(first)[..skip];
            if !suffix.starts_with(stored) {
                header.head_skip = common_prefix(stored, suffix) as u16;
                write_heads(self.page, header);
            }
        }
        usize::from(header.head_skip)
    }

    /// Gives entry `i` another payload. `false`, and no change, when it does not fit.
    pub fn replace(&mut self, i: usize, payload: &[u8]) -> bool {
        let view = self.view();
        let old = view.payload_range(i);
        let old_cell_len = view.cell_len(i);
        let mut header = view.header();
        if payload.len() <= old.len() {
            let slot = view.slot(i);
            put_u16(self.page, slot.offset, payload.len() as u16);
            self.page[old.start..old.start + payload.len()].copy_from_slice(payload);
            header.garbage += (old.len() - payload.len()) as u16;
            header.write(self.page);
        } else if !view.fits_replaced(i, payload.len()) {
            return false;
        } else if old_cell_len - old.len() + payload.len() <= view.contiguous() {
            let slot = view.slot(i);
            let cell_len = CELL_HEADER + slot.suffix_len + payload.len();
            let offset = usize::from(header.heap_start) - cell_len;
            self.page.copy_within(slot.suffix_offset()..slot.payload_offset(), offset + CELL_HEADER);
            put_u16(self.page, offset, payload.len() as u16);
            self.page[offset + cell_len - payload.len()..offset + cell_len].copy_from_slice(payload);
            Slot { offset, ..slot }.write(self.page, i);
            header.heap_start = offset as u16;
            header.garbage += old_cell_len as u16;
            header.write(self.page);
        } else {
            self.rebuild(Some((i, payload)));
        }
        self.assert_sound();
        true
    }

    /// The payload of entry `i`, to be changed without changing its length.
    #[inline]
    pub fn payload_mut(&mut self, i: usize) -> &mut [u8] {
        let range = self.view().payload_range(i);
        &mut self.page[range]
    }

    /// Removes entry `i`. An inner node's first entry goes last.
    ///
    /// # Panics
    /// When there is no such entry, or it is an inner node's first and others are left.
    pub fn remove(&mut self, i: usize) {
        let cell_len = self.view().cell_len(i);
        let mut header = self.view().header();
        assert!(i < usize::from(header.count), "no such entry");
        assert!(i > 0 || !header.is_inner() || header.count == 1, "an inner node keeps its first entry");
        if self.view().slot(i).offset == usize::from(header.heap_start) {
            header.heap_start += cell_len as u16;
        } else {
            header.garbage += cell_len as u16;
        }
        self.page.copy_within(slot_offset(i + 1)..header.slots_end(), slot_offset(i));
        header.count -= 1;
        if usize::from(header.count) <= header.first_headed() {
            header.head_skip = 0;
        }
        header.last_insert = match usize::from(header.last_insert) {
            last if last == i => NO_SLOT,
            last if last > i && header.last_insert != NO_SLOT => header.last_insert - 1,
            _ => header.last_insert,
        };
        header.write(self.page);
        self.assert_sound();
    }

    /// Lays the heap out anew without holes, with another payload for one entry if asked; it must fit.
    fn rebuild(&mut self, replaced: Option<(usize, &[u8])>) {
        let old = self.page.to_vec();
        let old = NodeRef::new(&old);
        let mut builder = Builder::begin(self.page, old.level(), old.lower_fence(), old.upper_fence());
        for i in 0..old.count() {
            let payload = match replaced {
                Some((slot, payload)) if slot == i => payload,
                _ => old.payload(i),
            };
            builder.push([old.stored_suffix(i), &[]], payload);
        }
        builder.set_last_insert(old.header().last_insert);
        builder.finish();
    }

    /// The full check after every change, where tests and simulation ask for it.
    #[inline]
    pub(super) fn assert_sound(&self) {
        if cfg!(any(test, feature = "invariants"))
            && let Err(what) = super::verify_structure(self.page, self.page.len())
        {
            panic!("a change left an unsound node: {what}");
        }
    }
}

/// Writes a cell; the suffix comes in two parts.
#[inline]
fn write_cell(page: &mut [u8], offset: usize, suffix: [&[u8]; 2], payload: &[u8]) {
    put_u16(page, offset, payload.len() as u16);
    let mut end = offset + CELL_HEADER;
    for part in [suffix[0], suffix[1], payload] {
        page[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
}

/// Writes the heads of all slots that have one, leaving out as many bytes as the header says.
fn write_heads(page: &mut [u8], header: &Header) {
    for i in header.first_headed()..usize::from(header.count) {
        let stored = NodeRef::new(page).stored_suffix(i);
        let head = head(&stored[usize::from(header.head_skip)..]);
        Slot { head, ..NodeRef::new(page).slot(i) }.write(page, i);
    }
}

/// Fills a page entry by entry in key order. The common header stays as it is.
pub(super) struct Builder<'a> {
    page: &'a mut [u8],
    header: Header,
}

impl<'a> Builder<'a> {
    /// Starts a node without entries.
    pub(super) fn begin(page: &'a mut [u8], level: u8, lower: &[u8], upper: Option<&[u8]>) -> Self {
        let header = Header::empty(page.len(), level, lower, upper);
        let lower_start = page.len() - lower.len();
        page[lower_start..].copy_from_slice(lower);
        if let Some(upper) = upper {
            page[lower_start - upper.len()..lower_start].copy_from_slice(upper);
        }
        Builder { page, header }
    }

    /// Appends an entry whose key suffix comes in two parts. The caller has made sure that it fits.
    pub(super) fn push(&mut self, suffix: [&[u8]; 2], payload: &[u8]) {
        let suffix_len = suffix[0].len() + suffix[1].len();
        let offset = usize::from(self.header.heap_start) - (entry_len(suffix_len, payload.len()) - SLOT_LEN);
        let slot = usize::from(self.header.count);
        assert!(slot_offset(slot + 1) <= offset, "the node overflows");
        write_cell(self.page, offset, suffix, payload);
        Slot { offset, suffix_len, head: 0 }.write(self.page, slot);
        self.header.count += 1;
        self.header.heap_start = offset as u16;
    }

    /// Whether nothing was appended yet.
    pub(super) fn is_empty(&self) -> bool {
        self.header.count == 0
    }

    /// Notes the slot of the last insertion.
    pub(super) fn set_last_insert(&mut self, slot: u16) {
        self.header.last_insert = slot;
    }

    /// Writes heads and header.
    pub(super) fn finish(mut self) -> NodeMut<'a> {
        let (first, count) = (self.header.first_headed(), usize::from(self.header.count));
        if first < count {
            let node = NodeRef::new(self.page);
            // Keys between two that begin alike begin so too.
            self.header.head_skip =
                common_prefix(node.stored_suffix(first), node.stored_suffix(count - 1)) as u16;
            write_heads(self.page, &self.header);
        }
        self.header.write(self.page);
        NodeMut { page: self.page }
    }
}
