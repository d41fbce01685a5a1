//! The proof that bytes are a node.

use super::layout::{CELL_HEADER, Header, NO_SLOT, RESERVED, Slot, common_prefix, fence_prefix, head};
use super::limits::{MAX_LEVEL, max_key_len};
use super::read::NodeRef;
use crate::page::{self, PAGE_SIZES, PageKind, get_u16};

/// Checks everything that can be checked of a node by its bytes alone (see the module's invariants), except the
/// common header's checksum and LSN. Takes arbitrary bytes; says what is wrong first.
pub fn verify_structure(page: &[u8], page_size: usize) -> Result<(), String> {
    if page.len() != page_size || !PAGE_SIZES.contains(&page_size) {
        return Err(format!("{} bytes are no page of {page_size}", page.len()));
    }
    if page::kind(page) != Some(PageKind::Node) {
        return Err("not a node".into());
    }
    let header = Header::read(page);
    let heap_end = check_header(page, &header)?;
    let live = check_cells(page, &header, heap_end)?;
    let heap_len = heap_end - usize::from(header.heap_start);
    if live + usize::from(header.garbage) != heap_len {
        return Err(format!("heap of {heap_len} bytes: {live} live, {} said to be garbage", header.garbage));
    }
    check_order(NodeRef::new(page))
}

/// Checks header and fences; gives the end of the heap.
fn check_header(page: &[u8], header: &Header) -> Result<usize, String> {
    let longest = max_key_len(page.len());
    if header.level > MAX_LEVEL || !header.flags_known() {
        return Err(format!("level {}, flags {:#x}", header.level, header.flags));
    }
    let (lower_len, upper_len) = (usize::from(header.lower_len), usize::from(header.upper_len));
    if lower_len > longest || upper_len > longest || (upper_len > 0) != header.has_upper() {
        return Err(format!("fences of {lower_len} and {upper_len} bytes, flags {:#x}", header.flags));
    }
    let heap_end = page.len() - lower_len - upper_len;
    let (lower, upper) = (&page[heap_end + upper_len..], &page[heap_end..heap_end + upper_len]);
    let upper = header.has_upper().then_some(upper);
    if upper.is_some_and(|upper| upper <= lower) {
        return Err("the fences are out of order".into());
    }
    if usize::from(header.prefix_len) != fence_prefix(lower, upper) {
        return Err(format!("a prefix of {} bytes does not follow from the fences", header.prefix_len));
    }
    if header.slots_end() > usize::from(header.heap_start) || usize::from(header.heap_start) > heap_end {
        return Err(format!(
            "{} slots end at {}, the heap is {}..{heap_end}",
            header.count,
            header.slots_end(),
            header.heap_start
        ));
    }
    if header.last_insert != NO_SLOT && header.last_insert >= header.count {
        return Err(format!("last insertion at {} of {}", header.last_insert, header.count));
    }
    Ok(heap_end)
}

/// Checks every cell's place, lengths and head; gives the bytes of all cells.
fn check_cells(page: &[u8], header: &Header, heap_end: usize) -> Result<usize, String> {
    let mut owned = Bitmap::default();
    let mut live = 0;
    for i in 0..usize::from(header.count) {
        let slot = Slot::read(page, i);
        if slot.offset < usize::from(header.heap_start) || slot.offset + CELL_HEADER > heap_end {
            return Err(format!("slot {i}: the cell at {} lies outside the heap", slot.offset));
        }
        let payload_len = usize::from(get_u16(page, slot.offset));
        let end = slot.payload_offset() + payload_len;
        if end > heap_end {
            return Err(format!("slot {i}: the cell {}..{end} lies outside the heap", slot.offset));
        }
        if !owned.claim(slot.offset, end) {
            return Err(format!("slot {i}: the cell {}..{end} overlaps another", slot.offset));
        }
        live += end - slot.offset;
        let skip = if i < header.first_headed() { 0 } else { usize::from(header.head_skip) };
        let suffix = &page[slot.suffix_offset()..slot.payload_offset()];
        if suffix.get(skip..).map(head) != Some(slot.head) {
            return Err(format!("slot {i}: the head does not match the key"));
        }
        let payload = &page[slot.payload_offset()..end];
        if let Some(what) = NodeRef::new(page).misshapen(slot.suffix_len, payload) {
            return Err(format!("slot {i}: {what}"));
        }
    }
    Ok(live)
}

/// Checks that keys ascend and lie between the fences. Cells have been checked.
fn check_order(node: NodeRef<'_>) -> Result<(), String> {
    let count = node.count();
    check_head_skip(node)?;
    if count == 0 {
        return Ok(());
    }
    if node.is_inner() && !node.stored_suffix(0).is_empty() {
        return Err("slot 0: an inner node's first key is the lower fence".into());
    }
    let prefix_len = node.prefix().len();
    if node.key_suffix(0) < &node.lower_fence()[prefix_len..] {
        return Err("slot 0: the key lies below the lower fence".into());
    }
    let mut previous = node.key_suffix(0);
    for i in 1..count {
        let suffix = node.stored_suffix(i);
        if suffix <= previous {
            return Err(format!("slot {i}: the key does not ascend"));
        }
        previous = suffix;
    }
    if node.upper_fence().is_some_and(|upper| previous >= &upper[prefix_len..]) {
        return Err(format!("slot {}: the key lies behind the upper fence", count - 1));
    }
    Ok(())
}

/// Checks that all keys begin with the bytes that heads leave out: the first and the last do, and keys ascend.
fn check_head_skip(node: NodeRef<'_>) -> Result<(), String> {
    let header = node.header();
    let skip = usize::from(header.head_skip);
    let (first, count) = (header.first_headed(), node.count());
    let shared = if first < count {
        common_prefix(node.stored_suffix(first), node.stored_suffix(count - 1))
    } else {
        0
    };
    if skip > shared || node.page()[RESERVED].iter().any(|&byte| byte != 0) {
        return Err(format!("heads leave out {skip} bytes, keys share {shared}; or reserved bytes are set"));
    }
    Ok(())
}

/// Which bytes of a page belong to a cell.
struct Bitmap([u64; PAGE_SIZES[PAGE_SIZES.len() - 1] / 64]);

impl Default for Bitmap {
    fn default() -> Self {
        Bitmap([0; PAGE_SIZES[PAGE_SIZES.len() - 1] / 64])
    }
}

impl Bitmap {
    /// Marks `start..end`, which is not empty; `false` when some byte of it was marked before.
    fn claim(&mut self, start: usize, end: usize) -> bool {
        let (first, last) = (start / 64, (end - 1) / 64);
        for word in first..=last {
            let mut mask = u64::MAX;
            if word == first {
                mask &= u64::MAX << (start % 64);
            }
            if word == last {
                mask &= u64::MAX >> (63 - (end - 1) % 64);
            }
            if self.0[word] & mask != 0 {
                return false;
            }
            self.0[word] |= mask;
        }
        true
    }
}
