//! Long values: kept on pages of their own, listed by index pages.
//!
//! ```text
//! index page:  next index page u64 | count u16 | 6 zero bytes | page numbers u64 …
//! value page:  bytes
//! ```
//! An entry refers to the first index page. Reading a long value is one deep batch for each index page; there is no
//! chain through the value pages themselves. An index page that leads to another one lists some pages: so a value has
//! no more index pages than other ones, and a list that leads back to itself by damage is not followed for ever.
//!
//! # Invariants
//! 1. A long value is never changed. A new value is a new list.
//! 2. Before its first page is allocated, an undo record of kind `Chain` exists in the same mini-transaction, so a
//!    crash at any point leaks nothing: the rollback frees what is listed.
//! 3. Pages are freed one index page at a time, and the same mini-transaction moves the reference in the undo record
//!    on. So no page is freed twice, whatever happens in between.

use crate::core::Core;
use crate::entry::{UndoPtr, decode_reference, encode_reference};
use crate::mtr::Mtr;
use crate::page::{self, HEADER_LEN, PageKind, get_u16, get_u64};
use crate::pool::{Access, ScanRing};
use crate::undo::{self, UndoRecord};
use crate::{Error, Result};
use gannet_base::{PageId, TreeId};
use gannet_io::Class;

pub(crate) const NEXT_AT: usize = HEADER_LEN;
const COUNT_AT: usize = HEADER_LEN + 8;
pub(crate) const LIST_AT: usize = HEADER_LEN + 16;

/// The longest value there can be, in bytes.
pub const MAX_VALUE: u64 = 1 << 30;

/// Most value pages one mini-transaction writes.
const PAGES_AT_ONCE: usize = 16;

/// Value pages that one mini-transaction writes: a log record holds a few page images; see `Core::new`.
pub(crate) fn pages_at_once(core: &Core) -> usize {
    (core.max_record_len / 2 / core.page_size).clamp(1, PAGES_AT_ONCE)
}

/// Most pages one index page lists, so that freeing them all fits one log record wherever they lie.
const LISTED_MAX: usize = 512;

/// Bytes of a value that one page holds.
pub(crate) fn bytes_per_page(page_size: usize) -> usize {
    page_size - HEADER_LEN
}

fn listed_per_index(page_size: usize) -> usize {
    ((page_size - LIST_AT) / 8).min(LISTED_MAX)
}

/// Pages that a value of `len` bytes takes, its list included.
pub(crate) fn pages_for(page_size: usize, len: u64) -> u64 {
    len.div_ceil(bytes_per_page(page_size) as u64) + list_pages_for(page_size, len)
}

/// Those of them that are its list.
pub(crate) fn list_pages_for(page_size: usize, len: u64) -> u64 {
    let pages = len.div_ceil(bytes_per_page(page_size) as u64);
    pages.div_ceil(listed_per_index(page_size) as u64).max(1)
}

/// Formats an empty index page on a page allocated by the same mini-transaction.
pub(crate) fn format_index(mtr: &mut Mtr<'_>, part: crate::mtr::Part, tree: TreeId) {
    mtr.format(part, PageKind::OverflowIndex, tree, &[0; LIST_AT - HEADER_LEN]);
}

/// Writes a value's bytes into the list that starts at `first`, an empty index page, unless the writer is `cancelled`.
pub(crate) fn write(
    core: &Core,
    tree: TreeId,
    first: PageId,
    value: &[u8],
    cancelled: &dyn Fn() -> bool,
) -> Result<()> {
    let per_page = bytes_per_page(core.page_size);
    let mut index = first;
    let mut listed = 0;
    let at_once = pages_at_once(core);
    for batch in value.chunks(per_page * at_once) {
        core.throttle(cancelled)?;
        let pages: Vec<&[u8]> = batch.chunks(per_page).collect();
        let mut mtr = Mtr::new(core);
        let mut index_part = mtr.latch(index)?;
        let mut placed = Vec::with_capacity(pages.len());
        let mut moved_on = None;
        for bytes in &pages {
            if listed + placed.len() == listed_per_index(core.page_size) && moved_on.is_none() {
                let (id, part) = mtr.allocate(tree, &[index])?;
                moved_on = Some((placed.len(), id, part));
            }
            let near = placed.last().map_or(index, |&(id, _, _)| id);
            let (id, part) = mtr.allocate(tree, &[near])?;
            placed.push((id, part, *bytes));
        }
        for &(_, part, bytes) in &placed {
            mtr.format(part, PageKind::Overflow, tree, bytes);
        }
        let split = moved_on.map_or(placed.len(), |(at, _, _)| at);
        list(&mut mtr, index_part, listed, &placed[..split]);
        listed += split;
        if let Some((at, id, part)) = moved_on {
            mtr.patch(index_part, NEXT_AT, &id.0.to_le_bytes());
            format_index(&mut mtr, part, tree);
            index_part = part;
            index = id;
            list(&mut mtr, index_part, 0, &placed[at..]);
            listed = placed.len() - at;
        }
        mtr.commit()?;
    }
    Ok(())
}

fn list(
    mtr: &mut Mtr<'_>,
    index: crate::mtr::Part,
    listed: usize,
    pages: &[(PageId, crate::mtr::Part, &[u8])],
) {
    if pages.is_empty() {
        return;
    }
    let numbers: Vec<u8> = pages.iter().flat_map(|(id, _, _)| id.0.to_le_bytes()).collect();
    mtr.patch(index, LIST_AT + listed * 8, &numbers);
    mtr.patch(index, COUNT_AT, &((listed + pages.len()) as u16).to_le_bytes());
}

/// The page after an index page, and the pages it lists.
pub(crate) fn read_index(core: &Core, id: PageId) -> Result<(PageId, Vec<PageId>)> {
    let page = core.pool.shared(&core.volume, id, Access::Normal)?;
    decode_index(&page).ok_or_else(|| Error::damaged_page(id, "the index of a long value is expected here"))
}

/// The same of a page's bytes; `None` where they are no index page, or one that lists nothing and leads to another one.
pub(crate) fn decode_index(page: &[u8]) -> Option<(PageId, Vec<PageId>)> {
    let count = usize::from(get_u16(page, COUNT_AT));
    if page::kind(page) != Some(PageKind::OverflowIndex) || count > listed_per_index(page.len()) {
        return None;
    }
    let next = PageId(get_u64(page, NEXT_AT));
    if count == 0 && !next.is_none() {
        return None;
    }
    let pages = (0..count).map(|i| PageId(get_u64(page, LIST_AT + i * 8))).collect();
    Some((next, pages))
}

/// Length and first index page of a long value, given its reference.
pub(crate) fn checked_reference(reference: &[u8]) -> Result<(u64, PageId)> {
    let (len, first) = decode_reference(reference);
    if len > MAX_VALUE {
        return Err(Error::damaged_page(first, format_args!("a value of {len} bytes is referred to")));
    }
    Ok((len, first))
}

/// Reads a long value, given its reference.
pub(crate) fn read(core: &Core, reference: &[u8]) -> Result<Vec<u8>> {
    let mut value = Vec::with_capacity(checked_reference(reference)?.0 as usize);
    pieces(core, reference, |piece| {
        value.extend_from_slice(piece);
        true
    })?;
    Ok(value)
}

/// Whether a long value is this one. It is read up to the first difference, and not kept.
pub(crate) fn equals(core: &Core, reference: &[u8], value: &[u8]) -> Result<bool> {
    if checked_reference(reference)?.0 != value.len() as u64 {
        return Ok(false);
    }
    let (mut rest, mut equal) = (value, true);
    pieces(core, reference, |piece| {
        let (here, behind) = rest.split_at(piece.len());
        rest = behind;
        equal = here == piece;
        equal
    })?;
    Ok(equal)
}

/// Gives the pieces of a long value to `take` until it returns false.
fn pieces(core: &Core, reference: &[u8], mut take: impl FnMut(&[u8]) -> bool) -> Result<()> {
    let (len, first) = checked_reference(reference)?;
    let ring = ScanRing::new(256.min(core.pool.frame_count() / 8).max(8));
    let access = Access::Ring(&ring);
    let mut left = len as usize;
    let mut index = first;
    while left > 0 {
        if index.is_none() {
            return Err(Error::damaged_page(first, "the list of a long value ends too early"));
        }
        let (next, pages) = read_index(core, index)?;
        for window in pages.chunks(64) {
            if window.len() > 1 {
                core.pool.prefetch(&core.volume, window, Class::Prefetch, access);
            }
            for &id in window {
                let page = core.pool.shared(&core.volume, id, access)?;
                if page::kind(&page) != Some(PageKind::Overflow) {
                    return Err(Error::damaged_page(id, "a piece of a long value is expected here"));
                }
                let here = left.min(bytes_per_page(core.page_size));
                left -= here;
                if !take(&page[HEADER_LEN..HEADER_LEN + here]) {
                    return Ok(());
                }
            }
        }
        index = next;
    }
    Ok(())
}

/// Frees the pages of a long value. `at` and `record` are the undo record that knows the reference: it is moved on
/// with every step, and marked as done with the last one.
pub(crate) fn free(core: &Core, tree: TreeId, at: UndoPtr, record: &UndoRecord) -> Result<()> {
    let mut record = record.clone();
    loop {
        core.await_log_room();
        let (len, index) = decode_reference(&record.value);
        // Not with the record's page latched: nobody but who frees it changes the list.
        let listed = if index.is_none() { None } else { Some(read_index(core, index)?) };
        let mut mtr = Mtr::new(core);
        let part = mtr.latch(at.page())?;
        let Some((next, pages)) = listed else {
            undo::mark_latched(&mut mtr, part, at, true, None);
            return mtr.commit().map(drop);
        };
        for page in pages {
            mtr.free(tree, page)?;
        }
        mtr.free(tree, index)?;
        let reference = encode_reference(len, next);
        undo::mark_latched(&mut mtr, part, at, next.is_none(), Some((&record, &reference)));
        mtr.commit()?;
        if next.is_none() {
            return Ok(());
        }
        record.value = reference.to_vec();
    }
}
