//! Copying pages: a few threads read what is to be copied by large requests past the page frames, verify it, and give it on.
//!
//! # Why a copy has every change below the backup's start
//! Before a page is asked of the device, its frame is looked at, under the page's latch. If the frame is clean or there is none, the
//! device has every change up to then. If it is dirty, the copy is taken from the frame afterwards, or, if the
//! page went home meanwhile, read anew. A change that is logged below the start was made under the same latch, which
//! was taken before the start: whoever looks at the frame later finds it dirty.

use super::Copy;
use super::compress::Compressor;
use super::format::{Codec, FrameKind, HEAD, Head};
use super::slot::Slot;
use crate::block::{Block, FileRange};
use crate::jobs::Permit;
use crate::page::{self, Verdict};
use crate::page_set::PageSet;
use crate::pass::{self, Bytes, MAPS_AHEAD, Visitor};
use crate::space::{self, EXTENT_PAGES, SYSTEM};
use crate::stat::Tallies;
use crate::{Error, Result};
use gannet_base::{PageId, TreeId, clock};
use gannet_io::{AlignedBuffer, Class, Direction};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a page is looked at whose bytes on the device are not as they should be: they may be on their way.
const LOOKS: u32 = 5;
/// The pause before the second look; before each further one it is longer by as much.
const PAUSE: Duration = Duration::from_millis(2);

/// Which pages are to be copied, in order.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Those in the set, if there is one.
    pub(super) set: Option<PageSet>,
    /// Only those in use, as the space maps say.
    pub(super) in_use: bool,
    /// From this page on.
    pub(super) next: u64,
    /// Up to before this one.
    pub(super) end: u64,
}

/// Pages under way: those of the block, with the owners of their extents, where these were looked at, and whether their frames were dirty
/// before they were asked for. The permit lasts until what is made of them was written.
struct Batch {
    pages: Vec<(PageId, Option<TreeId>)>,
    dirty: Vec<bool>,
    permit: Permit,
    /// See `slot`; `None` where none is needed.
    slot: Option<Slot>,
}

/// What becomes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Copied,
    /// It has not changed since the backup that this one adds to.
    Unchanged,
    /// See [`super::unwritten`].
    Unwritten,
}

impl Copy {
    /// The body of a worker: copies until nothing is left to copy.
    pub(super) fn copy_pages(&self, mut free: Vec<Block>) -> Result<()> {
        let mut reading: VecDeque<(Block, Batch)> = VecDeque::with_capacity(free.len());
        let mut writing: VecDeque<(Block, Permit)> = VecDeque::with_capacity(free.len());
        let mut scratch = self.compression.compressor()?;
        let mut counted = self.counting.as_ref().map(|records| records.begin());
        let result = loop {
            // With a permit at hand for something that is under way, nobody waits for another one.
            let may_wait = writing.is_empty();
            if let Err(error) = self.start_reads(&mut free, &mut reading, may_wait) {
                break Err(error);
            }
            if self.stop.is_set() {
                break Ok(());
            }
            let Some((mut block, batch)) = reading.pop_front() else {
                if writing.is_empty() {
                    break Ok(());
                }
                Self::end_writes(&mut writing, &mut free)?;
                continue;
            };
            let whole = block.wait();
            let Batch { pages, dirty, permit, slot } = batch;
            let read = (&pages[..], &dirty[..]);
            match whole.and_then(|()| self.give_on(&mut block, read, slot, &mut scratch, counted.as_mut())) {
                Ok(true) => writing.push_back((block, permit)),
                Ok(false) => free.push(block),
                Err(error) => break Err(error),
            }
            if free.is_empty() {
                Self::end_writes(&mut writing, &mut free)?;
            }
        };
        for (mut block, _permit) in writing {
            block.wait().map_err(|error| super::failed(&error))?;
        }
        if let (Some(records), Some(counted)) = (&self.counting, counted) {
            records.end(counted);
        }
        result
    }

    /// Waits until there are both, with neither of them in hand: whoever takes the frames may take his time, while others want permits; and who waits
    /// for a processor may do so for long, while the reserve wants slots.
    fn permit_and_slot(&self) -> Result<(Permit, Option<Slot>)> {
        loop {
            let permit = self.job.permit()?;
            if let (true, slot) = self.sink.try_slot()? {
                return Ok((permit, slot));
            }
            drop(permit);
            self.sink.await_slot(&|| self.check_wanted())?;
        }
    }

    /// Waits for the write that began first.
    fn end_writes(writing: &mut VecDeque<(Block, Permit)>, free: &mut Vec<Block>) -> Result<()> {
        let Some((mut block, _permit)) = writing.pop_front() else { return Ok(()) };
        block.wait().map_err(|error| super::failed(&error))?;
        free.push(block);
        Ok(())
    }

    fn start_reads(
        &self,
        free: &mut Vec<Block>,
        reading: &mut VecDeque<(Block, Batch)>,
        may_wait: bool,
    ) -> Result<()> {
        let size = self.page_size as u64;
        while !free.is_empty() {
            let (permit, slot) = match may_wait && reading.is_empty() {
                true => self.permit_and_slot()?,
                false => match (self.sink.try_slot()?, self.job.try_permit()?) {
                    ((true, slot), Some(permit)) => (permit, slot),
                    _ => return Ok(()),
                },
            };
            let pages = self.next_pages()?;
            if pages.is_empty() {
                return Ok(());
            }
            let Some(mut block) = free.pop() else { return Ok(()) };
            let bytes = pages.len() as u64 * size;
            let dirty = pages.iter().map(|&(page, _)| self.is_dirty(page)).collect();
            let mut ranges = Vec::new();
            for (index, (page, _)) in pages.iter().enumerate() {
                let (place, len) = (HEAD + index * self.page_size, self.page_size);
                FileRange::add_to(&mut ranges, FileRange { place, offset: page.0 * size, len });
            }
            self.job.count_read(bytes);
            self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
            let file = &self.shared.core.volume.file;
            block.start_ranges(file, Direction::Read, Class::Maintenance, &ranges);
            reading.push_back((block, Batch { pages, dirty, permit, slot }));
        }
        Ok(())
    }

    pub(super) fn check_wanted(&self) -> Result<()> {
        if self.stop.is_set() { Err(Error::Cancelled) } else { self.job.check() }
    }

    /// Whether the device may have older bytes of the page than its frame, or a part of newer ones.
    fn is_dirty(&self, page: PageId) -> bool {
        let core = &self.shared.core;
        core.pool.resident(&core.volume, page).is_some_and(|(_, dirty)| dirty)
    }

    /// The next pages to be copied, no more than a frame holds; none at the end.
    fn next_pages(&self) -> Result<Vec<(PageId, Option<TreeId>)>> {
        let mut candidates = self.candidates.lock();
        let Candidates { set, in_use, next, end } = &mut *candidates;
        let most = self.frame_pages.min(self.job.request_bytes() as usize / self.page_size).max(1);
        let mut out = Vec::with_capacity(most);
        while out.len() < most && *next < *end {
            let from = match set {
                Some(set) => set.next(PageId(*next)).map_or(*end, |page| page.0.min(*end)),
                None => *next,
            };
            *next = from;
            if from < *end && *in_use {
                *next = self.take_extent(from..*end, set.as_ref(), most, &mut out)?;
            } else if from < *end {
                out.push((PageId(from), None));
                *next = from + 1;
            }
        }
        self.job.set_done(*next * self.page_size as u64);
        Ok(out)
    }

    /// Adds pages of the extent that the range begins in; gives the page to go on with.
    fn take_extent(
        &self,
        range: Range<u64>,
        set: Option<&PageSet>,
        most: usize,
        out: &mut Vec<(PageId, Option<TreeId>)>,
    ) -> Result<u64> {
        let from = range.start;
        let end = ((from / EXTENT_PAGES + 1) * EXTENT_PAGES).min(range.end);
        let group_pages = space::extents_per_group(self.page_size) * EXTENT_PAGES;
        if from.is_multiple_of(group_pages) {
            pass::fetch_maps(&self.shared.core, from / group_pages);
        }
        let extent = pass::extent_of(&self.shared.core, PageId(from))?;
        let Some(extent) = extent else { return Ok(end) };
        if let Some(records) = self.counting.as_ref().filter(|_| extent.owner != TreeId(0)) {
            // Pages that it does not want are shown as well, and passed over.
            records.extent(PageId(from), extent);
        }
        let map = space::map_page(from / group_pages, self.page_size);
        for number in from..end {
            if out.len() == most {
                return Ok(number);
            }
            let in_use = extent.owner != TreeId(0) && extent.used & 1 << (number % EXTENT_PAGES) != 0;
            // In front of a map lie two pages that hold the file's header, or nothing.
            let is_page = in_use && (extent.owner != SYSTEM || number >= map.0);
            if is_page && set.is_none_or(|set| set.has(PageId(number))) {
                let page = PageId(number);
                let owner = self.counting.as_ref().map(|it| pass::owner_in(it.roots(), page, extent));
                out.push((page, owner));
            }
        }
        Ok(end)
    }

    /// Pages in use, of those in the set, if there is one.
    pub(super) fn count_in_use(&self, changed: Option<&PageSet>) -> Result<u64> {
        let groups = self.shared.core.space.groups();
        let group_pages = space::extents_per_group(self.page_size) * EXTENT_PAGES;
        let mut pages = 0;
        for group in 0..groups {
            self.job.check()?;
            let core = &self.shared.core;
            if let Some(changed) = changed {
                let next = changed.next(PageId(group * group_pages));
                if next.is_none_or(|page| page.0 / group_pages > group) {
                    continue;
                }
            } else if group.is_multiple_of(MAPS_AHEAD) {
                pass::fetch_maps(core, group);
            }
            let id = space::map_page(group, self.page_size);
            let map = core.pool.shared(&core.volume, id, crate::pool::Access::Normal)?;
            for (number, extent) in space::read_map(&map).enumerate() {
                let first = group * group_pages + number as u64 * EXTENT_PAGES;
                let changed = changed.map_or(u16::MAX, |changed| changed.of_extent(PageId(first)));
                if extent.owner != TreeId(0) {
                    pages += u64::from((extent.used & changed).count_ones());
                }
            }
        }
        Ok(pages)
    }

    /// Makes a frame of the pages in the block and gives it on; false when none of them is to be copied.
    fn give_on(
        &self,
        block: &mut Block,
        (pages, dirty): (&[(PageId, Option<TreeId>)], &[bool]),
        slot: Option<Slot>,
        compressor: &mut Compressor,
        mut counted: Option<&mut Tallies>,
    ) -> Result<bool> {
        let size = self.page_size;
        let mut head = Head::new(FrameKind::Pages, self.backup_id);
        let bytes = block.bytes();
        for (index, (&(page, owner), &dirty)) in pages.iter().zip(dirty).enumerate() {
            let (to, from) = (HEAD + head.pages.len() * size, HEAD + index * size);
            if to != from {
                bytes.copy_within(from..from + size, to);
            }
            let fate = self.take(page, dirty, &mut bytes[to..to + size])?;
            if fate == Fate::Copied {
                head.pages.push(page);
            }
            if let (Some(records), Some(owner), Some(counted)) = (&self.counting, owner, &mut counted) {
                let bytes = match fate {
                    Fate::Unwritten => Bytes::Unwritten,
                    Fate::Copied | Fate::Unchanged => Bytes::Page(&bytes[to..to + size]),
                };
                records.page(page, owner, bytes, counted);
            }
        }
        for &(page, _) in pages {
            self.copied.add(page);
        }
        if head.pages.is_empty() {
            return Ok(false);
        }
        self.pages_copied.fetch_add(head.pages.len() as u64, Ordering::Relaxed);
        let len = head.pages.len() * size;
        self.put(block, (head, len), slot, compressor)?;
        Ok(true)
    }

    /// Gives a frame on whose content is in the block, behind the place for its head.
    pub(super) fn put(
        &self,
        block: &mut Block,
        (mut head, len): (Head, usize),
        slot: Option<Slot>,
        compressor: &mut Compressor,
    ) -> Result<()> {
        let bytes = block.bytes();
        head.content_len = len as u32;
        let stored = compressor.compress(&mut bytes[HEAD..], len, &|| self.check_wanted())?;
        (head.stored_len, head.codec) =
            (stored as u32, if stored < len { Codec::Zstd } else { Codec::Plain });
        head.stored_sum = head.sum(&bytes[HEAD..HEAD + stored]);
        head.number = self.sink.number();
        bytes[HEAD + stored..HEAD + head.padded_len()].fill(0);
        head.encode(bytes);
        let total = HEAD + head.padded_len();
        self.job.count_written(total as u64);
        self.sink.put(block, total, slot)
    }

    /// The page as it is to be copied, given what the device had of it.
    fn take(&self, id: PageId, dirty: bool, bytes: &mut [u8]) -> Result<Fate> {
        let core = &self.shared.core;
        let mut verdict = if dirty { Verdict::Damaged } else { page::verify(bytes, id, core.volume.salt) };
        let mut look = 0;
        while verdict != Verdict::Valid {
            if let Some((page, _)) = core.pool.resident(&core.volume, id) {
                bytes.copy_from_slice(&page);
                drop(page);
                page::seal(bytes, id, core.volume.salt);
                break;
            }
            if verdict == Verdict::NeverWritten && look > 0 && self.take_unwritten(id)? {
                return Ok(Fate::Unwritten);
            }
            if look == LOOKS {
                // Where it has failed, what is not at home may have left its frame.
                core.poison.check()?;
                let what = match verdict {
                    Verdict::NeverWritten => "it is in use, and the device has lost it: it reads as zeros",
                    _ => "its checksum does not match",
                };
                return Err(Error::Damaged(format!(
                    "{id}: {what}, so a backup would not be whole; `gannet check` says what is at stake"
                )));
            }
            clock::sleep(PAUSE * look);
            let mut buffer = AlignedBuffer::zeroed(bytes.len());
            core.volume.file.read_at(Class::Maintenance, id.0 * bytes.len() as u64, &mut buffer)?;
            bytes.copy_from_slice(&buffer);
            verdict = page::verify(bytes, id, core.volume.salt);
            look += 1;
        }
        let is_new_map =
            space::group_of_map(id, self.page_size).is_some_and(|g| self.new_groups.contains(&g));
        let is_changed = is_new_map || self.since.is_none_or(|since| page::lsn(bytes) > since);
        Ok(if is_changed { Fate::Copied } else { Fate::Unchanged })
    }
}
