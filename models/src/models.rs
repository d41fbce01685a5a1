//! The models.

use crate::PageId;
use crate::pool::latch::Latch;
use crate::pool::table::{FrameKey, Table};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// A holder that has changed something lets go as if it had not.
    SameVersion,
    /// An optimistic reader trusts without asking.
    NoValidation,
    /// Who has found a frame does not look whether it still has the page.
    KeyNotAskedAgain,
    /// A writer takes the latch shared.
    SharedWriter,
}

/// Most times a thread is stopped where it could have gone on. Bugs need few (Musuvathi and Qadeer, "Iterative context bounding",
/// 2007); without a bound three threads take hours.
const PREEMPTIONS: usize = 3;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Two writers and a reader of one value that is no atomic: an access that is not ordered behind the others is a failure, and so is a
/// waiter whom nobody wakes.
pub fn exclusion(fault: Fault) {
    explore(move || {
        let shared = Arc::new((Latch::default(), UnsafeCell::new(0u64)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add_one(&shared.0, &shared.1, fault))
            })
            .collect();
        shared.0.shared();
        // SAFETY (of the access in the closure): loom fails where it is not exclusive of writers.
        let seen = shared.1.with(|value| unsafe { *value });
        shared.0.release_shared();
        assert!(seen <= 2);
        writers.into_iter().for_each(|writer| writer.join().expect("it has not failed"));
        shared.0.exclusive();
        assert_eq!(shared.1.with(|value| unsafe { *value }), 2);
        shared.0.release_exclusive_unchanged();
    });
}

fn add_one(latch: &Latch, value: &UnsafeCell<u64>, fault: Fault) {
    if fault == Fault::SharedWriter {
        latch.shared();
    } else {
        latch.exclusive();
    }
    // SAFETY (of the access in the closure): loom fails where it is not exclusive.
    value.with_mut(|value| unsafe { *value += 1 });
    if fault == Fault::SharedWriter {
        latch.release_shared();
    } else {
        latch.release_exclusive();
    }
}

/// Two words that are always equal under the latch, changed twice, and an optimistic reader.
pub fn optimistic(fault: Fault) {
    explore(move || {
        let shared = Arc::new((Latch::default(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for value in 1..=2 {
                    let (latch, words) = &*shared;
                    latch.exclusive();
                    words.iter().for_each(|word| word.store(value, Relaxed));
                    if fault == Fault::SameVersion {
                        latch.release_exclusive_unchanged();
                    } else {
                        latch.release_exclusive();
                    }
                }
            })
        };
        let (latch, words) = &*shared;
        if let Some(version) = latch.optimistic() {
            let seen = [words[0].load(Relaxed), words[1].load(Relaxed)];
            if latch.validate(version) || fault == Fault::NoValidation {
                assert_eq!(seen[0], seen[1], "a page as it never was");
            }
        }
        writer.join().expect("it has not failed");
    });
}

/// A frame: its latch, and which page's bytes it has.
struct Pool {
    table: Table,
    latch: Latch,
    content: AtomicU64,
}

/// A frame whose page is evicted for another one, while one reader wants the old page under a shared latch, and one without.
pub fn eviction(fault: Fault) {
    explore(move || {
        let [old, new] = [PageId(3), PageId(4)].map(|page| FrameKey::new(0, page));
        let table = Table::new(1).expect("memory");
        table.insert(old, 0, &table.lock(old));
        let pool = Arc::new(Pool { table, latch: Latch::default(), content: AtomicU64::new(old.0) });
        let evictor = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || evict(&pool, old, new, fault))
        };
        let reader = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || read_latched(&pool, old, fault))
        };
        read_optimistically(&pool, old, fault);
        evictor.join().expect("it has not failed");
        reader.join().expect("it has not failed");
    });
}

fn evict(pool: &Pool, old: FrameKey, new: FrameKey, fault: Fault) {
    if !pool.latch.try_exclusive() {
        return;
    }
    pool.table.remove(old, 0, &pool.table.lock(old));
    pool.content.store(new.0, Relaxed);
    pool.table.insert(new, 0, &pool.table.lock(new));
    if fault == Fault::SameVersion {
        pool.latch.release_exclusive_unchanged();
    } else {
        pool.latch.release_exclusive();
    }
}

fn read_latched(pool: &Pool, page: FrameKey, fault: Fault) {
    let Some(frame) = pool.table.find(page) else { return };
    pool.latch.shared();
    if pool.table.key(frame) == page || fault == Fault::KeyNotAskedAgain {
        assert_eq!(pool.content.load(Relaxed), page.0, "another page's bytes");
    }
    pool.latch.release_shared();
}

fn read_optimistically(pool: &Pool, page: FrameKey, fault: Fault) {
    let Some(frame) = pool.table.find(page) else { return };
    let Some(version) = pool.latch.optimistic() else { return };
    if pool.table.key(frame) != page && fault != Fault::KeyNotAskedAgain {
        return;
    }
    let content = pool.content.load(Relaxed);
    if pool.latch.validate(version) || fault == Fault::NoValidation {
        assert_eq!(content, page.0, "another page's bytes");
    }
}
