//! The models.

use crate::PageId;
use crate::log::{Append, Inner};
use crate::pool::latch::Latch;
use crate::pool::table::{FrameKey, Table};
use crate::sync::{FORGETS_TO_WAKE, SLEEPS_FOR_EVER};
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
    /// Who has found a frame waits for it, whatever page it gets.
    WaitsForFrame,
    /// Who gives a frame another page does not tell those who wait for it.
    NotTold,
    /// A writer takes the latch shared.
    SharedWriter,
    /// A record's bytes come into the ring after the log's end has moved.
    LateBytes,
    /// An append does not wait until the ring has room.
    NoRoom,
    /// Those whose write is done are not woken.
    NoWaking,
    /// Who sleeps for a limited time does so for ever.
    NoLimit,
}

/// Most times a thread is stopped where it could have gone on. Bugs need few (Musuvathi and Qadeer, "Iterative context bounding",
/// 2007); without a bound three threads take hours.
const PREEMPTIONS: usize = 3;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Sessions that commit records of five bytes, each so many, in a log with blocks of eight bytes and up to two writes at the device.
pub fn commits(sessions: [u8; 3], fault: Fault) {
    let how = match fault {
        Fault::LateBytes => Append::Late,
        Fault::NoRoom => Append::WithoutRoom,
        _ => Append::Right,
    };
    FORGETS_TO_WAKE.set(fault == Fault::NoWaking);
    SLEEPS_FOR_EVER.set(fault == Fault::NoLimit);
    explore(move || {
        // Not loom's: what it does when it is let go is a step, and must not be one where a model fails.
        let log = std::sync::Arc::new(Inner::new(8, 2));
        let work = move |log: &Inner, session: u8| {
            for number in 0..sessions[session as usize] {
                log.commit(&[16 * (session + 1) + number; 5], how);
            }
        };
        let others: Vec<_> = (1..3)
            .filter(|&session| sessions[session as usize] > 0)
            .map(|session| {
                let log = std::sync::Arc::clone(&log);
                thread::spawn(move || work(&log, session))
            })
            .collect();
        work(&log, 0);
        others.into_iter().for_each(|other| other.join().expect("it has not failed"));
    });
}

/// Two sessions that append more than the log's ring holds before they wait for their commits.
pub fn ring(fault: Fault) {
    let how = if fault == Fault::NoRoom { Append::WithoutRoom } else { Append::Right };
    explore(move || {
        let log = std::sync::Arc::new(Inner::new(4, 1));
        let work = move |log: &Inner, session: u8| {
            let (start, end) = log.append(&[session; 13], how).expect("the device does not fail");
            log.commit(&[session + 1; 13], how);
            assert!(log.has(start, end, session), "what lies before a commit is not on the device");
        };
        let other = {
            let log = std::sync::Arc::clone(&log);
            thread::spawn(move || work(&log, 16))
        };
        work(&log, 32);
        other.join().expect("it has not failed");
    });
}

/// Two sessions that commit while the device begins to fail.
pub fn failing() {
    explore(|| {
        let log = std::sync::Arc::new(Inner::new(8, 2));
        let other = {
            let log = std::sync::Arc::clone(&log);
            thread::spawn(move || {
                log.try_commit(&[17; 5]);
                log.try_commit(&[18; 5])
            })
        };
        log.try_commit(&[33; 5]);
        log.fail_from_now_on();
        assert!(!log.try_commit(&[34; 5]), "a commit of a failed device");
        other.join().expect("it has not failed");
    });
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
        assert!(shared.0.shared_while(|| true));
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
        assert!(latch.shared_while(|| true));
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
                    let_go(latch, fault);
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

fn let_go(latch: &Latch, fault: Fault) {
    if fault == Fault::SameVersion {
        latch.release_exclusive_unchanged();
    } else {
        latch.release_exclusive();
    }
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
            thread::spawn(move || {
                if evict(&pool, old, new, fault) {
                    let_go(&pool.latch, fault);
                }
            })
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

/// A frame whose page is evicted for another one, whose holder wants what a reader of the old page keeps.
pub fn reuse(fault: Fault) {
    explore(move || {
        let [old, new] = [PageId(3), PageId(4)].map(|page| FrameKey::new(0, page));
        let table = Table::new(1).expect("memory");
        table.insert(old, 0, &table.lock(old));
        // Not loom's: what it does when it is let go is a step, and must not be one where a model fails.
        let pool =
            std::sync::Arc::new(Pool { table, latch: Latch::default(), content: AtomicU64::new(old.0) });
        let reader = {
            let pool = std::sync::Arc::clone(&pool);
            thread::spawn(move || read_latched(&pool, old, fault))
        };
        let evicted = evict(&pool, old, new, fault);
        reader.join().expect("it has not failed");
        if evicted {
            pool.latch.release_exclusive();
        }
    });
}

/// The frame stays latched; false when it is in use.
fn evict(pool: &Pool, old: FrameKey, new: FrameKey, fault: Fault) -> bool {
    if !pool.latch.try_exclusive() {
        return false;
    }
    pool.table.remove(old, 0, &pool.table.lock(old));
    if fault != Fault::NotTold && fault != Fault::SameVersion {
        pool.latch.renew();
    }
    pool.content.store(new.0, Relaxed);
    pool.table.insert(new, 0, &pool.table.lock(new));
    true
}

fn read_latched(pool: &Pool, page: FrameKey, fault: Fault) {
    let Some(frame) = pool.table.find(page) else { return };
    if !pool.latch.shared_while(|| pool.table.key(frame) == page || fault == Fault::WaitsForFrame) {
        return;
    }
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
