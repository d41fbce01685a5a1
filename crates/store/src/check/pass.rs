//! The pass: every page in use, in the order of the file.

use super::{Check, Flaw};
use crate::block::Block;
use crate::page::{self, Verdict};
use crate::pool::{Access, SharedPage};
use crate::space::{self, EXTENT_PAGES, SYSTEM};
use crate::undo::UNDO_PAGES;
use gannet_base::{PageId, TreeId, clock};
use gannet_io::{AlignedBuffer, Class, Direction};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a page is looked at whose bytes on the device are not as they should be, before that counts: they may be on
/// their way.
const LOOKS: u32 = 5;
/// The pause before the second look; before each further one it is longer by as much.
const PAUSE: Duration = Duration::from_millis(2);

/// Space maps that are asked for at a time.
const MAPS_AHEAD: u64 = 4;

/// Pages that are read by one request.
struct Stretch {
    first: PageId,
    len: u64,
    /// Those in use, with their owners.
    pages: Vec<(PageId, TreeId)>,
}

/// A page's bytes, such as everybody else would get them.
pub(super) enum Bytes<'a> {
    Resident(SharedPage<'a>),
    Device(&'a [u8]),
    Unwritten,
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Resident(page) => page,
            Bytes::Device(bytes) => bytes,
            Bytes::Unwritten => &[],
        }
    }
}

/// What is wrong with the bytes on the device.
struct Wrong {
    what: String,
    lost_write: bool,
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong { what, lost_write: false }
    }
}

impl Check {
    /// The body of a worker: takes the next stretch of the file that nobody has taken yet, until there is none.
    pub(super) fn pass(&self, mut free: Vec<Block>) {
        let core = &self.shared.core;
        let mut scratch = Vec::new();
        let mut under_way: VecDeque<(Block, Stretch)> = VecDeque::with_capacity(free.len());
        loop {
            while let Some(mut block) = free.pop() {
                let Some(stretch) = self.next_stretch() else { break };
                let bytes = stretch.len * core.page_size as u64;
                if self.job.pace(bytes).is_err() {
                    return;
                }
                self.job.count_read(bytes);
                let (at, len) =
                    (stretch.first.0 * core.page_size as u64, stretch.len as usize * core.page_size);
                block.start(&core.volume.file, Direction::Read, Class::Maintenance, at, len);
                under_way.push_back((block, stretch));
            }
            let Some((mut block, stretch)) = under_way.pop_front() else { return };
            let whole = block.wait().is_ok();
            self.counters.bytes_read.fetch_add(block.len() as u64, Ordering::Relaxed);
            for &(page, owner) in &stretch.pages {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                let at = (page.0 - stretch.first.0) as usize * core.page_size;
                // Where the request failed as a whole, each page is asked for alone.
                let bytes = whole.then(|| &block.bytes()[at..at + core.page_size]);
                self.examine(page, owner, bytes, &mut scratch);
            }
            free.push(block);
        }
    }

    /// The next stretch with pages in use, cut off where those end.
    fn next_stretch(&self) -> Option<Stretch> {
        loop {
            let from = self.counters.next.fetch_add(1, Ordering::Relaxed) * self.block_pages;
            let until = (from + self.block_pages).min(self.survey.pages);
            if from >= until || self.stop.load(Ordering::Relaxed) {
                return None;
            }
            self.fetch_maps(from..until);
            let mut pages = Vec::with_capacity(self.block_pages as usize);
            let mut at = from;
            while at < until {
                let end = ((at / EXTENT_PAGES + 1) * EXTENT_PAGES).min(until);
                self.pages_in_use(at..end, &mut pages);
                at = end;
            }
            if let (Some(&(first, _)), Some(&(last, _))) = (pages.first(), pages.last()) {
                return Some(Stretch { first, len: last.0 + 1 - first.0, pages });
            }
        }
    }

    /// Where a group begins in a stretch, its space map and those behind it are asked for. Read one by one when they are needed they
    /// would count as foreground work, which this very pass makes slow, and have it slowed down.
    fn fetch_maps(&self, stretch: std::ops::Range<u64>) {
        let core = &self.shared.core;
        let group_pages = space::extents_per_group(core.page_size) * EXTENT_PAGES;
        let group = stretch.end / group_pages;
        if group * group_pages < stretch.start {
            return;
        }
        let groups = group..(group + MAPS_AHEAD).min(core.space.groups());
        let maps: Vec<PageId> = groups.map(|group| space::map_page(group, core.page_size)).collect();
        core.pool.prefetch(&core.volume, &maps, Class::Maintenance, Access::Normal);
    }

    /// Pages in use of part of an extent. A map that cannot be read is itself a page in use, and found damaged as such.
    fn pages_in_use(&self, part: std::ops::Range<u64>, out: &mut Vec<(PageId, TreeId)>) {
        let map = space::map_page(
            part.start / EXTENT_PAGES / space::extents_per_group(self.shared.core.page_size),
            self.shared.core.page_size,
        );
        let Ok(extent) = self.extent(PageId(part.start)) else {
            if part.contains(&map.0) {
                out.push((map, SYSTEM));
            }
            return;
        };
        let Some(extent) = extent else { return };
        if extent.owner == TreeId(0) {
            if extent.used != 0 {
                let what = format!("its extent is free, and says of pages that they are in use: {extent:?}");
                self.find(PageId(part.start), TreeId(0), what, super::Stake::Allocation);
            }
            return;
        }
        if extent.owner == UNDO_PAGES && part.start.is_multiple_of(EXTENT_PAGES) {
            self.sums.state(PageId(part.start), super::sums::Fact::Segment, &mut Vec::new());
        }
        for number in part.filter(|number| extent.used & 1 << (number % EXTENT_PAGES) != 0) {
            let page = PageId(number);
            // In front of a map lie two pages that hold the file's header, or nothing.
            if extent.owner != SYSTEM || number >= map.0 {
                out.push((page, self.owner_in(page, extent)));
            }
        }
    }

    fn examine(&self, page: PageId, owner: TreeId, device: Option<&[u8]>, scratch: &mut Vec<u8>) {
        let fresh = owner == UNDO_PAGES || !self.is_known(owner);
        match device.map(|bytes| self.judge(page, Ok(bytes))) {
            Some(Ok(Bytes::Unwritten)) if !fresh => self.look_again(page, scratch),
            Some(Ok(bytes)) => self.content(page, owner, bytes, scratch),
            Some(Err(_)) | None => self.look_again(page, scratch),
        }
    }

    /// Whether a tree's pages are looked at as such.
    pub(super) fn is_known(&self, owner: TreeId) -> bool {
        owner == SYSTEM || self.survey.trees.live.contains_key(&owner)
    }

    /// The page as everybody else would see it, given what the device has of it.
    fn judge<'a>(
        &'a self,
        id: PageId,
        device: std::result::Result<&'a [u8], String>,
    ) -> std::result::Result<Bytes<'a>, Wrong> {
        let core = &self.shared.core;
        if core.volume.redo().is_some_and(|redo| redo.knows(id)) {
            // The device lacks what the log has; whoever touches the page has it brought up to date.
            let page = core.pool.shared(&core.volume, id, Access::Normal);
            return page.map(Bytes::Resident).map_err(|error| error.to_string().into());
        }
        let resident = match core.pool.resident(&core.volume, id) {
            Some((page, true)) => return Ok(Bytes::Resident(page)),
            Some((page, false)) => Some(page),
            None => None,
        };
        let device = device?;
        match page::verify(device, id, core.volume.salt) {
            Verdict::Damaged => return Err("its checksum does not match".to_owned().into()),
            Verdict::NeverWritten if resident.is_none() && self.survey.last_change(id).is_none() => {
                return Ok(Bytes::Unwritten);
            }
            Verdict::NeverWritten | Verdict::Valid => {}
        }
        let logged = self.survey.last_change(id);
        if logged.is_some() {
            self.counters.compared_with_log.fetch_add(1, Ordering::Relaxed);
        }
        let wanted = resident.as_deref().map(page::lsn).max(logged);
        let have = page::lsn(device);
        if wanted.is_some_and(|wanted| have < wanted) {
            let wanted = wanted.unwrap_or_default();
            let what =
                format!("a write was lost: the device has its state of {have}, its last change is {wanted}");
            return Err(Wrong { what, lost_write: true });
        }
        Ok(resident.map_or(Bytes::Device(device), Bytes::Resident))
    }

    /// Looks at a page until it is as it should be, is no longer in use, or must be taken for damaged.
    pub(super) fn look_again(&self, id: PageId, scratch: &mut Vec<u8>) {
        let core = &self.shared.core;
        let mut bytes = AlignedBuffer::zeroed(core.page_size);
        let mut flaw = None;
        for look in 0..LOOKS {
            clock::sleep(PAUSE * look);
            let owner = match self.owner(id) {
                Ok(Some(owner)) => owner,
                Ok(None) => return,
                // The map itself.
                Err(_) => SYSTEM,
            };
            let read = core.volume.file.read_at(Class::Maintenance, id.0 * core.page_size as u64, &mut bytes);
            let device = read.map(|()| &bytes[..]).map_err(|error| error.to_string());
            match self.judge(id, device) {
                Ok(Bytes::Unwritten) if look == 0 => {}
                Ok(bytes) => return self.content(id, owner, bytes, scratch),
                Err(Wrong { what, lost_write }) => flaw = Some(Flaw { tree: owner, what, lost_write }),
            }
        }
        self.counters.pages.fetch_add(1, Ordering::Relaxed);
        if let Some(flaw) = flaw {
            self.note_bad(id, flaw);
        }
    }
}
