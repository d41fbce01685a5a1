//! Reading ahead: many pages as one deep batch, neighbours in one request.
#![expect(unsafe_code, reason = "hands frame memory to the device")]

use super::{Access, FrameKey, NIL, Pool, State, Volume};
use gannet_base::PageId;
use gannet_io::{Class, Completion, Direction, IoSlice, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest read request in bytes: beyond this a device gains nothing from a larger one.
const MAX_REQUEST: usize = 256 * 1024;
/// Bytes of pages in memory that a request reads over, to no use: a request of its own for what lies behind costs a device more.
const MAX_GAP: usize = 16 * 1024;

/// The last page of a request as far as it goes, and how many of those right behind it are in memory.
#[derive(Clone, Copy)]
struct Run {
    page: PageId,
    index: u32,
    gap: usize,
}

impl Run {
    /// The page that would come next.
    fn end(&self) -> PageId {
        PageId(self.page.0 + 1 + self.gap as u64)
    }
}

struct Loaded {
    pool: Arc<Pool>,
    /// Pages behind the frames that the requests read over others' pages into. They are nobody else's until all of the requests have
    /// ended: a file system or a device that checks what it reads, or decrypts it, does so in that memory, and finds it
    /// damaged where two blocks arrive in one piece of it.
    over: Vec<u32>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if !self.over.is_empty() {
            self.pool.over.lock().append(&mut self.over);
        }
    }
}

impl Completion for Loaded {
    fn complete(&self, token: u64, result: gannet_io::Result<()>) {
        let state = if result.is_ok() { State::Raw } else { State::Failed };
        let mut index = token as u32;
        while index != NIL {
            let frame = &self.pool.frames[index as usize];
            // Read before the frame changes hands: from then on the link belongs to its next owner.
            let next = frame.io_next.load(Ordering::Relaxed);
            frame.set_state(state);
            index = next;
        }
    }
}

impl Pool {
    /// Starts reading those of `pages` that are not in memory; adjacent page numbers, when they come adjacent in
    /// `pages`, are read by one request, which reads over a few that are in memory between them. Takes only frames that are
    /// free or clean, so it may read fewer than asked. Gives the number of pages now under way.
    pub(crate) fn prefetch(
        self: &Arc<Self>,
        volume: &Volume,
        pages: &[PageId],
        class: Class,
        access: Access<'_>,
    ) -> usize {
        let pick = || match super::reads::is_background() {
            true => volume.pick_background_queue(),
            false => volume.pick_queue(),
        };
        let queue = match access {
            Access::Ring(ring) => *ring.queue.get_or_init(pick),
            Access::Normal => pick(),
        };
        self.prefetch_by(queue, volume, pages, class, access)
    }

    /// Waits until a page that is being read ahead has arrived.
    pub(crate) fn await_prefetch(&self, volume: &Volume, page: PageId) {
        let key = FrameKey::new(volume.slot, page);
        if let Some(index) = self.table.find(key) {
            self.wait_in_flight(volume, index, key);
        }
    }

    /// The same by a queue of the volume that the caller has picked: whoever waits for a page reaps only the queue that page
    /// was given to, so what is waited for together should go one way.
    pub(crate) fn prefetch_by(
        self: &Arc<Self>,
        queue: u8,
        volume: &Volume,
        pages: &[PageId],
        class: Class,
        access: Access<'_>,
    ) -> usize {
        let mut requests: Vec<Request> = Vec::with_capacity(pages.len().min(64));
        let mut over = Vec::new();
        let mut run: Option<Run> = None;
        let mut started = 0;
        for &page in pages {
            let key = FrameKey::new(volume.slot, page);
            if self.table.find(key).is_some() {
                if let Some(run) = &mut run
                    && run.end() == page
                {
                    run.gap += 1;
                }
                continue;
            }
            let index = match self.start_frame(key, access, queue) {
                Start::Begun(index) => index,
                Start::IsThere => continue,
                // Looking for one takes as long for each of the others, and takes from all pages what tells which are used.
                Start::NoFrame => break,
            };
            started += 1;
            let slice = IoSlice { address: self.address(index), len: self.page_size };
            match (requests.last_mut(), run) {
                (Some(request), Some(run))
                    if run.end() == page
                        && run.gap * self.page_size <= MAX_GAP
                        && request.len() + (run.gap + 1) * self.page_size <= MAX_REQUEST
                        && self.take_over(run.gap, &mut over) =>
                {
                    self.frames[run.index as usize].io_next.store(index, Ordering::Relaxed);
                    let taken = over[over.len() - run.gap..].iter();
                    let to = |&number| IoSlice { address: self.address(number), len: self.page_size };
                    request.slices.extend(taken.map(to));
                    request.slices.push(slice);
                }
                _ => requests.push(Request {
                    file: Arc::clone(&volume.file),
                    direction: Direction::Read,
                    class,
                    offset: page.0 * self.page_size as u64,
                    slices: vec![slice],
                    token: u64::from(index),
                }),
            }
            run = Some(Run { page, index, gap: 0 });
        }
        if !requests.is_empty() {
            let completion: Arc<dyn Completion> = Arc::new(Loaded { pool: Arc::clone(self), over });
            self.stats.prefetched.fetch_add(started as u64, Ordering::Relaxed);
            super::reads::batched(started);
            // SAFETY: the frames are `InFlight`: nobody touches their bytes until the completion makes them `Raw`. What is
            // read over goes to pages that the completion has. It keeps the pool, hence the arena, alive.
            unsafe { volume.queue(queue).submit(requests, &completion) };
        }
        started
    }

    /// Takes so many pages behind the frames in addition; false where there are not so many, and a request of its own costs less than
    /// waiting for them.
    fn take_over(&self, count: usize, over: &mut Vec<u32>) -> bool {
        if count == 0 {
            return true;
        }
        let mut free = self.over.lock();
        let Some(left) = free.len().checked_sub(count) else { return false };
        over.extend(free.drain(left..));
        true
    }

    /// Reserves a frame for a page that is about to be read by the device.
    fn start_frame(&self, key: FrameKey, access: Access<'_>, queue: u8) -> Start {
        let recycled = match access {
            Access::Ring(ring) => self.recycle(ring),
            Access::Normal => None,
        };
        let Some(index) = recycled.or_else(|| self.try_take_frame()) else { return Start::NoFrame };
        let frame = &self.frames[index as usize];
        let shard = self.table.lock(key);
        if self.table.find_locked(key, &shard).is_some() {
            drop(shard);
            self.give_back(index);
            return Start::IsThere;
        }
        frame.io_next.store(NIL, Ordering::Relaxed);
        frame.referenced.store(matches!(access, Access::Normal), Ordering::Relaxed);
        frame.set_in_flight(queue);
        self.table.insert(key, index, &shard);
        drop(shard);
        // From here on the frame belongs to the device, not to a latch: the version has moved, visitors see the state.
        frame.latch.release_exclusive();
        self.remember_in_ring(access, index, key);
        Start::Begun(index)
    }
}

/// What has become of a page that was to be read ahead.
enum Start {
    /// It is to be read into this frame.
    Begun(u32),
    /// Somebody else was first.
    IsThere,
    /// There is no frame for it now.
    NoFrame,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    use gannet_base::memory::Budget;
    use gannet_base::sync::Mutex;
    use gannet_io::sim::SimDisk;
    use gannet_io::stats::Operation;
    use gannet_io::{AlignedBuffer, Disk, Queue};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// A queue whose requests do not end by themselves.
    #[derive(Debug, Default)]
    struct Held(Mutex<Vec<(Vec<Request>, HeldCompletion)>>);

    struct HeldCompletion(Arc<dyn Completion>);

    impl std::fmt::Debug for HeldCompletion {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("HeldCompletion")
        }
    }

    // SAFETY: nothing is done with the memory.
    impl Queue for Held {
        unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
            self.0.lock().push((requests, HeldCompletion(Arc::clone(completion))));
        }

        fn wait_until(&self, _done: &mut dyn FnMut() -> bool) {
            panic!("nobody waits here");
        }

        fn poll(&self) {}

        fn in_flight(&self) -> usize {
            self.0.lock().iter().map(|(requests, _)| requests.len()).sum()
        }
    }

    /// No two blocks arrive in one piece of memory, also none of those that nobody wants; where there is no more of it, a gap ends a request.
    #[test]
    fn whatever_is_in_flight_has_memory_of_its_own() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("f"), &gannet_io::OpenOptions::create_new()).unwrap();
        let pool = Pool::new(4096, 4 * crate::pool::OVER_FRAMES, &Budget::new(64 << 20)).unwrap();
        let held = Arc::new(Held::default());
        let queue = Arc::clone(&held) as Arc<dyn Queue>;
        let volume = pool.attach(Volume::new(file, 1, vec![queue])).unwrap();
        let read = |pages: &[u64]| {
            let pages: Vec<PageId> = pages.iter().copied().map(PageId).collect();
            pool.prefetch(&volume, &pages, Class::Prefetch, Access::Normal);
            held.0.lock().last().unwrap().0.iter().map(|request| request.slices.len()).collect::<Vec<_>>()
        };
        assert_eq!(read(&[1, 4, 11, 13, 15]), [1, 1, 1, 1, 1]);
        assert_eq!(read(&[0, 1, 2, 3, 4, 5]), [6]);
        // Two of four are taken; of three gaps one finds none.
        assert_eq!(read(&[10, 11, 12, 13, 14, 15, 16]), [5, 1]);
        {
            let held = held.0.lock();
            let slices = held.iter().flat_map(|(requests, _)| requests).flat_map(|request| &request.slices);
            let addresses: Vec<usize> = slices.map(|slice| slice.address as usize).collect();
            assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len());
        }
        assert!(pool.over.lock().is_empty());
        for (requests, completion) in std::mem::take(&mut *held.0.lock()) {
            requests.iter().for_each(|request| completion.0.complete(request.token, Ok(())));
        }
        assert_eq!(pool.over.lock().len(), 4);
    }

    #[test]
    fn where_no_frame_comes_free_one_is_looked_for_once() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("f"), &gannet_io::OpenOptions::create_new()).unwrap();
        let frames = 2 * crate::pool::OVER_FRAMES;
        let pool = Pool::new(4096, frames, &Budget::new(64 << 20)).unwrap();
        let queue = Arc::new(Held::default()) as Arc<dyn Queue>;
        let volume = pool.attach(Volume::new(file, 1, vec![queue])).unwrap();
        let count = pool.frames.len() as u64;
        let pages: Vec<PageId> = (0..count).map(PageId).collect();
        assert_eq!(pool.prefetch(&volume, &pages, Class::Prefetch, Access::Normal), pages.len());
        let before = pool.hand.load(Ordering::Relaxed);
        let more: Vec<PageId> = (count..count + 100).map(PageId).collect();
        assert_eq!(pool.prefetch(&volume, &more, Class::Prefetch, Access::Normal), 0);
        assert!(pool.hand.load(Ordering::Relaxed) - before <= 2 * pool.frames.len());
    }

    /// Short gaps of pages in memory are read over, longer ones are not, and what is in memory stays as it is.
    #[test]
    fn a_request_reads_over_a_few_pages_that_are_in_memory() {
        let disk = Arc::new(SimDisk::new(1));
        let engine = || {
            let options = EngineOptions { memory: 32 << 20, ..EngineOptions::default() };
            Engine::with_disk(disk.clone(), &options).unwrap()
        };
        let path = Path::new("a.gnt");
        let db = engine().create(path, &CreateOptions::default(), &OpenOptions::default()).unwrap();
        let mut tx = db.begin(TransactionOptions::default());
        let tree = tx.create_tree("t").unwrap();
        for number in 0..20_000_u32 {
            tx.put(&tree, &number.to_be_bytes(), &[number as u8; 200]).unwrap();
        }
        tx.commit().unwrap();
        db.close().unwrap();
        // Nothing else reads ahead meanwhile.
        let cold = OpenOptions { warm: false, ..OpenOptions::default() };
        let db = engine().open(path, &cold).unwrap();
        let core = Arc::clone(&db.begin(TransactionOptions::default()).shared.core);
        let (pool, volume) = (&core.pool, &core.volume);
        let size = pool.page_size();
        let pages: Vec<PageId> = (200..240).map(PageId).collect();
        // One, two and four of the pages beside each other, at 8 KiB.
        let before = |page: &&PageId| match (page.0 - 200) as usize * size {
            at if at == 32 << 10 => true,
            at if (80 << 10..96 << 10).contains(&at) => true,
            at => (160 << 10..192 << 10).contains(&at),
        };
        for page in pages.iter().filter(before) {
            drop(pool.shared(volume, *page, Access::Normal).unwrap());
        }
        let in_memory = pages.iter().filter(before).count();
        let requests =
            || disk.stats().counter(Class::Prefetch, Operation::Read).requests.load(Ordering::Relaxed);
        let earlier = requests();
        let started = pool.prefetch(volume, &pages, Class::Prefetch, Access::Normal);
        assert_eq!(started, pages.len() - in_memory);
        let mut bytes = AlignedBuffer::zeroed(size);
        for page in &pages {
            pool.await_prefetch(volume, *page);
            volume.file.read_at(Class::Foreground, page.0 * size as u64, &mut bytes).unwrap();
            assert_eq!(&pool.shared(volume, *page, Access::Normal).unwrap()[..], &bytes[..], "{page:?}");
        }
        assert_eq!(requests() - earlier, 2);
    }
}
