//! One memory number: everything the engine allocates, page frames included, stays within the budget and a small,
//! fixed allowance, while the data is many times larger. Counted by the allocator itself.
#![expect(unsafe_code, reason = "a counting allocator wraps the system's")]

use gannet_base::sim::Generator;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters touch no memory but their own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BUDGET: u64 = 16 << 20;
const SESSIONS: u64 = 4;
const ROWS: u64 = 120_000;

/// What a connection may take beside the budget.
const PER_SESSION: usize = 512 << 10;
/// What the process may take beside it; the promise is 64 MiB, of which the test harness needs a little.
const ALLOWANCE: usize = 8 << 20;

#[test]
fn memory_stays_within_the_budget_whatever_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions { memory: BUDGET, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 8192, segment_size: 1 << 20 };
    let options = OpenOptions { wal_limit: 16 << 20, ..OpenOptions::default() };
    let db = Arc::new(engine.create(&folder.path().join("m.gnt"), &create, &options).unwrap());
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let mut loader = txn.bulk_loader(&tree).unwrap();
    for i in 0..ROWS {
        loader.push(&i.to_be_bytes(), &[i as u8; 500]).unwrap();
    }
    loader.finish().unwrap();
    txn.commit().unwrap();
    assert!(db.stats().file_bytes > 3 * BUDGET, "the data is larger than the memory");
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let (db, tree) = (Arc::clone(&db), tree.clone());
            gannet_base::thread::spawn("session", move || {
                let mut random = Generator::new(session);
                for _ in 0..30 {
                    let mut txn = db.begin(TransactionOptions::default());
                    for _ in 0..50 {
                        // Each session has rows of its own: this is about memory, not about locks.
                        let key = random.below(ROWS / SESSIONS) * SESSIONS + session;
                        txn.put(&tree, &key.to_be_bytes(), &[1; 400]).unwrap();
                    }
                    txn.commit().unwrap();
                }
                let mut txn = db.begin(TransactionOptions::default());
                let mut cursor = txn.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
                let mut rows = 0;
                while cursor.next().unwrap().is_some() {
                    rows += 1;
                }
                rows
            })
        })
        .collect();
    let findings = db.check().unwrap().findings;
    assert!(findings.is_empty(), "{findings:#?}");
    for session in sessions {
        assert_eq!(session.join().unwrap(), ROWS);
    }
    let frames = engine.budget().used_for(gannet_base::memory::Purpose::Pool) as usize;
    let limit = BUDGET as usize + ALLOWANCE + SESSIONS as usize * PER_SESSION;
    // Frames come from a mapping, not from the allocator, except for their descriptors: counting both is on the safe
    // side.
    let peak = PEAK.load(Relaxed) + frames;
    assert!(peak <= limit, "{peak} bytes at the peak, {limit} allowed");
    assert!(engine.budget().peak() <= BUDGET);
}
