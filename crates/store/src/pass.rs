//! One pass over a database's file: every page in use, in the order of the file, past the page frames.
//!
//! # What it guarantees
//! 1. Each page that is in use from the begin of the pass to its end is shown once to the [`Visitor`], with its bytes as everybody else
//!    would get them: those of a frame where the page has changed since it was written, else those of the device, verified.
//! 2. What cannot be verified is looked at again before it counts as bad: its bytes may have been on their way.
//! 3. It reads with large requests of class maintenance, several under way at once, held back by the job's pace, and pushes no page
//!    out of memory. A few threads do the work; memory for their requests is charged.
//! 4. It ends soon when the job is to end.
//! 5. Nothing of it is done with a latch but copying a page's bytes: its threads may be stopped for long whenever somebody else has
//!    something to do, and nobody is to wait for them then.
//!
//! Others change pages meanwhile: what is seen of two pages is of two moments.

use crate::block::Block;
use crate::core::Core;
use crate::engine::Engine;
use crate::jobs::{Crew, Permit, Stop, Unit, Watch, Worker, run_crew};
use crate::page::{self, PageKind, Verdict};
use crate::pool::Access;
use crate::shared::Shared;
use crate::space::{self, EXTENT_PAGES, Extent, SYSTEM};
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::{Lsn, PageId, TreeId, clock};
use gannet_io::{AlignedBuffer, Class, Direction};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Threads that look at pages.
pub(crate) const WORKERS: usize = 4;
/// Requests that each of them has under way or at hand.
const BLOCKS: usize = 4;
/// Bytes of a request, at least and at most.
const BLOCK_LEAST: u64 = 64 << 10;
const BLOCK_MOST: u64 = 512 << 10;
/// How often a page is looked at whose bytes on the device are not as they should be, before that counts: they may be on
/// their way.
const LOOKS: u32 = 5;
/// The pause before the second look; before each further one it is longer by as much.
const PAUSE: Duration = Duration::from_millis(2);
/// Space maps that are asked for at a time.
pub(crate) const MAPS_AHEAD: u64 = 4;

/// Why a page cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Flaw {
    pub(crate) tree: TreeId,
    pub(crate) what: String,
    pub(crate) lost_write: bool,
}

/// A page's bytes, such as everybody else would get them.
pub(crate) enum Bytes<'a> {
    Page(&'a [u8]),
    Unwritten,
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Page(bytes) => bytes,
            Bytes::Unwritten => &[],
        }
    }
}

/// Whoever looks at the pages. Its methods are called by several threads at a time.
pub(crate) trait Visitor: Send + Sync + 'static {
    /// What each thread has for itself.
    type Own: Send;

    /// A thread begins.
    fn begin(&self) -> Self::Own;

    /// A thread has seen its last page.
    fn end(&self, own: Self::Own);

    /// The roots of the trees that are known.
    fn roots(&self) -> &BTreeMap<PageId, TreeId>;

    /// An extent that is not free, or the part of it that begins at `first`; whether its pages are to be shown.
    fn extent(&self, first: PageId, extent: Extent) -> bool;

    /// An extent that belongs to nobody has pages that are marked as used.
    fn used_and_free(&self, first: PageId, extent: Extent);

    /// An extent whose space map cannot be read, or the part of it that begins at `first`: its pages are not shown.
    fn unknown(&self, first: PageId);

    /// Whether a page in use of this tree may be one that nobody has written yet.
    fn may_be_unwritten(&self, owner: TreeId) -> bool;

    /// The last change of a page that the log knows of: older bytes of it are a write that was lost.
    fn last_change(&self, page: PageId) -> Option<Lsn>;

    /// A page in use, and the tree that its extent belongs to.
    fn page(&self, id: PageId, owner: TreeId, bytes: Bytes<'_>, own: &mut Self::Own);

    /// A page in use that cannot be read, or is not what was written last.
    fn bad(&self, id: PageId, flaw: Flaw);

    /// What is to be said of it so far, for people.
    fn note(&self) -> Option<String>;
}

/// How a pass is called, and how far it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// The name of its threads.
    pub(crate) thread: &'static str,
    /// The job's phase.
    pub(crate) phase: &'static str,
    /// Pages from the begin of the file on.
    pub(crate) pages: u64,
}

/// Pages that are read by one request.
struct Stretch {
    first: PageId,
    len: u64,
    /// Those in use, with their owners.
    pages: Vec<(PageId, TreeId)>,
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

/// Asks for the space map of a group and of some behind it, as maintenance. Read one by one when they are needed they would count as
/// foreground work.
pub(crate) fn fetch_maps(core: &Core, group: u64) {
    let groups = group..(group + MAPS_AHEAD).min(core.space.groups());
    let maps: Vec<PageId> = groups.map(|group| space::map_page(group, core.page_size)).collect();
    core.pool.prefetch(&core.volume, &maps, Class::Maintenance, Access::Normal);
}

/// What a space map says of a page's extent now; `None` where no map describes it.
pub(crate) fn extent_of(core: &Core, page: PageId) -> Result<Option<Extent>> {
    let number = page.0 / EXTENT_PAGES;
    let per_group = space::extents_per_group(core.page_size);
    if number / per_group >= core.space.groups() {
        return Ok(None);
    }
    let id = space::map_page(number / per_group, core.page_size);
    let map = core.pool.shared(&core.volume, id, Access::Normal)?;
    if page::kind(&map) != Some(PageKind::SpaceMap) {
        return Err(Error::damaged_page(id, "a space map is expected here"));
    }
    Ok(Some(Extent::decode(&map, number % per_group)))
}

/// The tree that a page in use of an extent belongs to: the roots of the store's own lie among the system's pages.
pub(crate) fn owner_in(roots: &BTreeMap<PageId, TreeId>, page: PageId, extent: Extent) -> TreeId {
    match roots.get(&page) {
        Some(&tree) if extent.owner == SYSTEM => tree,
        _ => extent.owner,
    }
}

/// The tree that a page belongs to, if it is in use.
pub(crate) fn owner_of(
    core: &Core,
    roots: &BTreeMap<PageId, TreeId>,
    page: PageId,
) -> Result<Option<TreeId>> {
    let used = |extent: &Extent| extent.used & 1 << (page.0 % EXTENT_PAGES) != 0;
    Ok(extent_of(core, page)?.filter(used).map(|extent| owner_in(roots, page, extent)))
}

/// A pass under way.
struct Pass<V> {
    visitor: Arc<V>,
    shared: Arc<Shared>,
    job: Worker,
    pages: u64,
    /// Pages of one request, at most.
    block_pages: u64,
    /// The page that the next request begins with.
    next: AtomicU64,
    bytes_read: AtomicU64,
    stop: Stop,
}

/// Shows all pages in use to `visitor`. Gives the bytes that were read, but for what was looked at once more.
pub(crate) fn run<V: Visitor>(
    engine: &Engine,
    shared: &Arc<Shared>,
    visitor: &Arc<V>,
    course: Course,
    watch: &mut Watch<'_>,
) -> Result<u64> {
    let page_size = shared.core.page_size as u64;
    let block = (engine.work_limit() / 2 / (WORKERS * BLOCKS) as u64).clamp(BLOCK_LEAST, BLOCK_MOST);
    let pass = Arc::new(Pass {
        visitor: Arc::clone(visitor),
        shared: Arc::clone(shared),
        job: watch.job().worker(),
        pages: course.pages,
        block_pages: (1 << block.ilog2()) / page_size,
        next: AtomicU64::new(0),
        bytes_read: AtomicU64::new(0),
        stop: Stop::default(),
    });
    watch.job().phase(course.phase, Unit::Bytes, course.pages * page_size);
    // However short it is, whoever asked for it can end it.
    watch.look()?;
    // One block for the reserve.
    let queue = engine.disk().queue(WORKERS * BLOCKS + 1)?;
    let mut blocks = Vec::with_capacity(WORKERS * BLOCKS + 1);
    for _ in 0..=WORKERS * BLOCKS {
        blocks.push(Block::new(&queue, engine.memory(Purpose::Io, pass.block_pages * page_size)?));
    }
    let bodies = (0..=WORKERS).map(|number| {
        let count = if number == 0 { 1 } else { BLOCKS };
        let (pass, own) = (Arc::clone(&pass), blocks.split_off(blocks.len() - count));
        move || {
            let mut mine = pass.visitor.begin();
            let outcome = pass.work(own, &mut mine);
            pass.visitor.end(mine);
            outcome
        }
    });
    let bodies = bodies.collect();
    run_crew(course.thread, Crew::StandsBy, watch, &pass.stop, bodies)?;
    Ok(pass.bytes_read.load(Ordering::Relaxed))
}

impl<V: Visitor> Pass<V> {
    /// The body of a worker: takes the next stretch of the file that nobody has taken yet, until there is none.
    fn work(&self, mut free: Vec<Block>, own: &mut V::Own) -> Result<()> {
        let core = &self.shared.core;
        let mut under_way: VecDeque<(Block, Stretch, Permit)> = VecDeque::with_capacity(free.len());
        let mut copy = AlignedBuffer::zeroed(core.page_size);
        loop {
            while !free.is_empty() {
                // With a permit at hand nobody waits for another one.
                let permit = match under_way.is_empty() {
                    true => Some(self.job.permit()?),
                    false => self.job.try_permit()?,
                };
                let Some(permit) = permit else { break };
                let Some(stretch) = self.next_stretch() else { break };
                let Some(mut block) = free.pop() else { break };
                let bytes = stretch.len * core.page_size as u64;
                self.job.count_read(bytes);
                let (at, len) =
                    (stretch.first.0 * core.page_size as u64, stretch.len as usize * core.page_size);
                block.start(&core.volume.file, Direction::Read, Class::Maintenance, at, len);
                under_way.push_back((block, stretch, permit));
            }
            let Some((mut block, stretch, _permit)) = under_way.pop_front() else { return Ok(()) };
            let whole = block.wait().is_ok();
            self.bytes_read.fetch_add(block.len() as u64, Ordering::Relaxed);
            for &(page, owner) in &stretch.pages {
                if self.stop.is_set() {
                    return Ok(());
                }
                let at = (page.0 - stretch.first.0) as usize * core.page_size;
                // Where the request failed as a whole, each page is asked for alone.
                let bytes = whole.then(|| &block.bytes()[at..at + core.page_size]);
                self.examine(page, owner, bytes, &mut copy, own);
            }
            free.push(block);
            if let Some(note) = self.visitor.note() {
                self.job.note(note);
            }
        }
    }

    /// The next stretch with pages in use, cut off where those end.
    fn next_stretch(&self) -> Option<Stretch> {
        loop {
            let most = self.job.request_bytes() / self.shared.core.page_size as u64;
            let len = self.block_pages.min(most).max(1);
            let from = self.next.fetch_add(len, Ordering::Relaxed);
            let until = (from + len).min(self.pages);
            if from >= until || self.stop.is_set() {
                return None;
            }
            self.job.advance((until - from) * self.shared.core.page_size as u64);
            self.fetch_maps(from..until);
            let mut pages = Vec::with_capacity(len as usize);
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
        fetch_maps(core, group);
    }

    /// Pages in use of part of an extent. A map that cannot be read is itself a page in use, and found damaged as such.
    fn pages_in_use(&self, part: std::ops::Range<u64>, out: &mut Vec<(PageId, TreeId)>) {
        let core = &self.shared.core;
        let per_group = space::extents_per_group(core.page_size);
        let map = space::map_page(part.start / EXTENT_PAGES / per_group, core.page_size);
        let first = PageId(part.start);
        let Ok(extent) = extent_of(core, first) else {
            self.visitor.unknown(first);
            if part.contains(&map.0) {
                out.push((map, SYSTEM));
            }
            return;
        };
        let Some(extent) = extent else { return };
        if extent.owner == TreeId(0) {
            if extent.used != 0 {
                self.visitor.used_and_free(first, extent);
            }
            return;
        }
        if !self.visitor.extent(first, extent) {
            return;
        }
        for number in part.filter(|number| extent.used & 1 << (number % EXTENT_PAGES) != 0) {
            let page = PageId(number);
            // In front of a map lie two pages that hold the file's header, or nothing.
            if extent.owner != SYSTEM || number >= map.0 {
                out.push((page, owner_in(self.visitor.roots(), page, extent)));
            }
        }
    }

    fn examine(
        &self,
        page: PageId,
        owner: TreeId,
        device: Option<&[u8]>,
        copy: &mut AlignedBuffer,
        own: &mut V::Own,
    ) {
        let fresh = self.visitor.may_be_unwritten(owner);
        match device.map(|bytes| self.judge((page, fresh), Ok(bytes), copy)) {
            Some(Ok(Bytes::Unwritten)) if !fresh => self.look_again(page, copy, own),
            Some(Ok(bytes)) => self.visitor.page(page, owner, bytes, own),
            Some(Err(_)) | None => self.look_again(page, copy, own),
        }
    }

    /// The page, which may be `fresh`, one that nobody has written yet, as everybody else would see it, given what the device has of it; in `copy`, where
    /// a frame has it.
    fn judge<'a>(
        &self,
        (id, fresh): (PageId, bool),
        device: std::result::Result<&'a [u8], String>,
        copy: &'a mut AlignedBuffer,
    ) -> std::result::Result<Bytes<'a>, Wrong> {
        let core = &self.shared.core;
        if core.volume.redo().is_some_and(|redo| redo.knows(id)) {
            // The device lacks what the log has; whoever touches the page has it brought up to date.
            let page =
                core.pool.shared(&core.volume, id, Access::Normal).map_err(|error| error.to_string())?;
            return Ok(copied(&page, copy));
        }
        let mut resident = None;
        if let Some((page, dirty)) = core.pool.resident(&core.volume, id) {
            let bytes = copied(&page, copy);
            if dirty {
                return Ok(bytes);
            }
            resident = Some(bytes);
        }
        let device = device?;
        let verdict = page::verify(device, id, core.volume.salt);
        if verdict == Verdict::Damaged {
            return Err("its checksum does not match".to_owned().into());
        }
        let mut logged = self.visitor.last_change(id);
        if (verdict == Verdict::NeverWritten || fresh) && logged <= Some(core.space.cut_at()) {
            // That was a page that was cut off. A restore may have put there what an older backup has of it.
            logged = None;
        }
        if verdict == Verdict::NeverWritten && resident.is_none() && logged.is_none() {
            return Ok(Bytes::Unwritten);
        }
        let wanted = resident.as_deref().map(page::lsn).max(logged);
        let have = page::lsn(device);
        if wanted.is_some_and(|wanted| have < wanted) {
            let wanted = wanted.unwrap_or_default();
            let what =
                format!("a write was lost: the device has its state of {have}, its last change is {wanted}");
            return Err(Wrong { what, lost_write: true });
        }
        Ok(resident.unwrap_or(Bytes::Page(device)))
    }

    /// Looks at a page until it is as it should be, is no longer in use, or must be taken for damaged.
    fn look_again(&self, id: PageId, copy: &mut AlignedBuffer, own: &mut V::Own) {
        let core = &self.shared.core;
        let mut bytes = AlignedBuffer::zeroed(core.page_size);
        let mut flaw = None;
        for look in 0..LOOKS {
            clock::sleep(PAUSE * look);
            let owner = match owner_of(core, self.visitor.roots(), id) {
                Ok(Some(owner)) => owner,
                Ok(None) => return,
                // The map itself.
                Err(_) => SYSTEM,
            };
            let read = core.volume.file.read_at(Class::Maintenance, id.0 * core.page_size as u64, &mut bytes);
            let device = read.map(|()| &bytes[..]).map_err(|error| error.to_string());
            let fresh = self.visitor.may_be_unwritten(owner);
            match self.judge((id, fresh), device, copy) {
                Ok(Bytes::Unwritten) if look == 0 => {}
                Ok(bytes) => return self.visitor.page(id, owner, bytes, own),
                Err(Wrong { what, lost_write }) => flaw = Some(Flaw { tree: owner, what, lost_write }),
            }
        }
        if let Some(flaw) = flaw {
            self.visitor.bad(id, flaw);
        }
    }
}

fn copied<'a>(page: &[u8], copy: &'a mut AlignedBuffer) -> Bytes<'a> {
    copy.copy_from_slice(page);
    Bytes::Page(copy)
}
