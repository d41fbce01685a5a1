//! Which frame holds which page: a chained hash table whose size follows the number of frames, not of pages.
//!
//! # Invariants
//! 1. A page is in at most one frame. Insertions and removals of a page happen under the lock of its bucket's shard.
//! 2. Readers take no lock. A reader may be led into a neighbouring chain by a concurrent removal and miss a page
//!    that is there; [`Table::find_locked`] then has the last word: whoever takes an absent page for one that the device has asks it
//!    ([`Table::find_surely`]). A reader may also be given a frame that has just
//!    got another page; whoever uses a frame checks its key again once it is latched.

use crate::Result;
use gannet_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use gannet_base::sync::{Mutex, MutexGuard};

/// No frame.
pub(crate) const NIL: u32 = u32::MAX;

const SHARDS: usize = 64;

/// Links that a reader follows without a lock. Chains are far shorter; the bound ends a walk that a concurrent change led in a circle.
const LINKS_MOST: usize = 64;

/// A page of one of the engine's databases: database slot in the upper 16 bits, page number below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct FrameKey(pub(crate) u64);

impl FrameKey {
    /// No page.
    pub(crate) const NONE: FrameKey = FrameKey(u64::MAX);

    pub(crate) fn new(volume: u16, page: gannet_base::PageId) -> Self {
        debug_assert!(page.0 < 1 << 48);
        FrameKey(u64::from(volume) << 48 | page.0)
    }

    pub(crate) fn volume(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(crate) fn page(self) -> gannet_base::PageId {
        gannet_base::PageId(self.0 & ((1 << 48) - 1))
    }
}

#[derive(Debug)]
struct Link {
    key: AtomicU64,
    next: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct Table {
    buckets: Box<[AtomicU32]>,
    links: Box<[Link]>,
    shards: Box<[Mutex<()>]>,
}

impl Table {
    pub(crate) fn new(frames: usize) -> Result<Self> {
        let buckets = (frames * 2).next_power_of_two();
        let link = |_| Link { key: AtomicU64::new(FrameKey::NONE.0), next: AtomicU32::new(NIL) };
        Ok(Table {
            buckets: super::allocate(buckets, |_| AtomicU32::new(NIL))?,
            links: super::allocate(frames, link)?,
            shards: (0..SHARDS).map(|_| Mutex::new(())).collect(),
        })
    }

    /// Bytes of memory a table for `frames` frames takes.
    pub(crate) fn memory(frames: usize) -> usize {
        (frames * 2).next_power_of_two() * 4 + frames * size_of::<Link>()
    }

    /// The top bits of a product, which all bits below count in; the database's slot stands above most of them, and so is brought down first.
    fn bucket(&self, key: FrameKey) -> usize {
        let hash = (key.0 ^ key.0 >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// The page a frame holds now.
    #[inline]
    pub(crate) fn key(&self, frame: u32) -> FrameKey {
        FrameKey(self.links[frame as usize].key.load(Ordering::Relaxed))
    }

    /// The frame of a page, without a lock; may miss (invariant 2).
    #[inline]
    pub(crate) fn find(&self, key: FrameKey) -> Option<u32> {
        let mut frame = self.buckets[self.bucket(key)].load(Ordering::Acquire);
        for _ in 0..LINKS_MOST {
            if frame == NIL {
                return None;
            }
            let link = &self.links[frame as usize];
            if link.key.load(Ordering::Relaxed) == key.0 {
                return Some(frame);
            }
            frame = link.next.load(Ordering::Acquire);
        }
        // Led in a circle by a concurrent change, or the chain is this long: whoever asks until the page is found must find it.
        self.find_locked(key, &self.lock(key))
    }

    /// The frame of a page; `None` says that at some moment meanwhile no frame held it.
    pub(crate) fn find_surely(&self, key: FrameKey) -> Option<u32> {
        self.find(key).or_else(|| self.find_locked(key, &self.lock(key)))
    }

    /// Locks the shard of `key`: needed for [`Table::find_locked`], [`Table::insert`] and [`Table::remove`].
    pub(crate) fn lock(&self, key: FrameKey) -> MutexGuard<'_, ()> {
        self.shards[self.bucket(key) % SHARDS].lock()
    }

    pub(crate) fn find_locked(&self, key: FrameKey, _shard: &MutexGuard<'_, ()>) -> Option<u32> {
        let mut frame = self.buckets[self.bucket(key)].load(Ordering::Relaxed);
        while frame != NIL {
            let link = &self.links[frame as usize];
            if link.key.load(Ordering::Relaxed) == key.0 {
                return Some(frame);
            }
            frame = link.next.load(Ordering::Relaxed);
        }
        None
    }

    pub(crate) fn insert(&self, key: FrameKey, frame: u32, _shard: &MutexGuard<'_, ()>) {
        let bucket = &self.buckets[self.bucket(key)];
        let link = &self.links[frame as usize];
        debug_assert_eq!(link.key.load(Ordering::Relaxed), FrameKey::NONE.0);
        link.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        link.key.store(key.0, Ordering::Relaxed);
        bucket.store(frame, Ordering::Release);
    }

    pub(crate) fn remove(&self, key: FrameKey, frame: u32, _shard: &MutexGuard<'_, ()>) {
        let link = &self.links[frame as usize];
        assert_eq!(link.key.load(Ordering::Relaxed), key.0, "a frame is removed under its own key");
        let mut place = &self.buckets[self.bucket(key)];
        loop {
            let here = place.load(Ordering::Relaxed);
            assert_ne!(here, NIL, "a resident page is in its chain");
            if here == frame {
                place.store(link.next.load(Ordering::Relaxed), Ordering::Release);
                break;
            }
            place = &self.links[here as usize].next;
        }
        link.key.store(FrameKey::NONE.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::PageId;

    /// With a look that may miss some hundred of them do.
    const LOOKS: u32 = 1_000_000;

    #[test]
    fn pages_are_found_until_removed() {
        let table = Table::new(100).unwrap();
        let keys: Vec<_> = (0..100).map(|i| FrameKey::new((i % 3) as u16, PageId(i * 977))).collect();
        for (frame, &key) in keys.iter().enumerate() {
            table.insert(key, frame as u32, &table.lock(key));
        }
        for (frame, &key) in keys.iter().enumerate().step_by(2) {
            table.remove(key, frame as u32, &table.lock(key));
        }
        for (frame, &key) in keys.iter().enumerate() {
            let expected = (frame % 2 == 1).then_some(frame as u32);
            assert_eq!(table.find(key), expected);
            assert_eq!(table.find_locked(key, &table.lock(key)), expected);
        }
    }

    #[test]
    fn the_same_pages_of_many_databases_are_found() {
        let (slots, pages) = (200, 40);
        let table = Table::new(slots * pages).unwrap();
        let key = |frame: usize| FrameKey::new((frame / pages) as u16, PageId((frame % pages) as u64));
        for frame in 0..slots * pages {
            table.insert(key(frame), frame as u32, &table.lock(key(frame)));
        }
        let mut lengths = vec![0; table.buckets.len()];
        for frame in 0..slots * pages {
            let key = key(frame);
            assert_eq!(table.find(key), Some(frame as u32), "{key:?}");
            assert_eq!(table.find_locked(key, &table.lock(key)), Some(frame as u32));
            lengths[table.bucket(key)] += 1;
        }
        let longest = lengths.iter().max().unwrap();
        assert!(*longest <= 8, "a chain of {longest} pages");
    }

    /// Who is led into another chain by a page that leaves its own takes nothing for absent.
    #[test]
    fn a_page_is_found_surely_while_the_one_before_it_comes_and_goes() {
        let mut table = Table::new(8).unwrap();
        table.buckets = table.buckets[..2].iter().map(|_| AtomicU32::new(NIL)).collect();
        let in_bucket = |bucket: usize, number: usize| {
            let keys = (0..).map(|page| FrameKey::new(7, PageId(page)));
            keys.filter(|&key| table.bucket(key) == bucket).nth(number).expect("each has some")
        };
        let (wanted, before, elsewhere) = (in_bucket(0, 0), in_bucket(0, 1), in_bucket(1, 0));
        let put = |key, frame| table.insert(key, frame, &table.lock(key));
        put(wanted, 0);
        put(before, 1);
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (from, to) in [(before, elsewhere), (elsewhere, before)] {
                        table.remove(from, 1, &table.lock(from));
                        put(to, 1);
                    }
                }
            });
            let missed = (0..LOOKS).filter(|_| table.find_surely(wanted).is_none()).count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn a_page_at_the_end_of_a_long_chain_is_found() {
        // Fewer buckets than links of one chain are looked at without a lock.
        let mut table = Table::new(4 * LINKS_MOST).unwrap();
        table.buckets = table.buckets[..2].iter().map(|_| AtomicU32::new(NIL)).collect();
        for frame in 0..4 * LINKS_MOST {
            let key = FrameKey::new(7, PageId(frame as u64));
            table.insert(key, frame as u32, &table.lock(key));
        }
        for frame in 0..4 * LINKS_MOST {
            assert_eq!(table.find(FrameKey::new(7, PageId(frame as u64))), Some(frame as u32));
        }
    }
}
