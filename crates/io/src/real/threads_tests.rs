use super::*;
use crate::{AlignedBuffer, Class, Direction, Disk, Durability, File, IoSlice, OpenOptions, RealDisk};
use std::os::unix::process::CommandExt;
use std::process::Command;

const BLOCK: usize = 4096;

/// A file of some blocks, which goes with the folder.
struct Fixture {
    file: Arc<dyn File>,
    shared: Arc<Shared>,
    memory: Vec<AlignedBuffer>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// For so many reads, of which so many of prefetch may be at the device.
    fn new(reads: usize, prefetch_depth: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions { create: true, ..OpenOptions::read_write() };
        let file = RealDisk::default().open(&folder.path().join("file"), &options).unwrap();
        file.write_at(Class::Deadline, 0, &AlignedBuffer::zeroed(BLOCK), Durability::Cached).unwrap();
        let memory = (0..reads).map(|_| AlignedBuffer::zeroed(BLOCK)).collect();
        Fixture { file, shared: Arc::new(Shared::new(prefetch_depth)), memory, _folder: folder }
    }

    fn queue(&self, threads_max: usize) -> Result<ThreadQueue> {
        ThreadQueue::new(64, threads_max, &self.shared)
    }

    fn requests(&mut self, class: Class) -> Vec<Request> {
        let of = |(token, buffer): (u64, &mut AlignedBuffer)| Request {
            file: Arc::clone(&self.file),
            direction: Direction::Read,
            class,
            offset: 0,
            slices: vec![IoSlice { address: buffer.as_mut_ptr(), len: buffer.len() }],
            token,
        };
        (0..).zip(&mut self.memory).map(of).collect()
    }
}

/// Counts what has ended, and calls something for each before that.
struct Each<F>(AtomicUsize, F);

impl<F: Fn() + Send + Sync> Completion for Each<F> {
    fn complete(&self, _token: u64, result: Result<()>) {
        result.unwrap();
        (self.1)();
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn each<F: Fn() + Send + Sync>(call: F) -> Arc<Each<F>> {
    Arc::new(Each(AtomicUsize::new(0), call))
}

/// From now on the system has no thread to give: there is no room for its stack.
fn take_no_more_threads() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: pages * 4096 + (1 << 20), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    assert!(thread::try_spawn("one more", || ()).is_err());
}

#[test]
fn requests_end_where_the_system_has_no_thread_to_give() {
    const INSIDE: &str = "GANNET_TEST_WITHOUT_THREADS";
    // A process of its own: the limit would hold for all tests of this one.
    if std::env::var_os(INSIDE).is_none() {
        let name = "real::threads::tests::requests_end_where_the_system_has_no_thread_to_give";
        let mut inside = Command::new(std::env::current_exe().unwrap());
        let inside = inside.arg0("without-threads").args([name, "--exact", "--test-threads=1"]);
        // A thread that begins would take address space of its own for what it allocates, and give some of it back.
        let output = inside.env(INSIDE, "1").env("MALLOC_ARENA_MAX", "1").output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let mut fixture = Fixture::new(32, 64);
    let queue = fixture.queue(64).unwrap();
    let requests = fixture.requests(Class::Foreground);
    let count = each(|| ());
    let completion: Arc<dyn Completion> = count.clone();
    take_no_more_threads();
    // SAFETY: the memory lives until the queue is dropped.
    unsafe { queue.submit(requests, &completion) };
    queue.wait_until(&mut || count.0.load(Ordering::SeqCst) == 32);
    let refused = fixture.queue(64).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("a thread for I/O") && refused.contains("none to give"), "{refused}");
    drop(queue);
}

#[test]
fn what_is_submitted_by_a_thread_that_stands_by_is_done_by_threads_that_do_not() {
    let mut fixture = Fixture::new(16, 64);
    let queue = fixture.queue(8).unwrap();
    let idlers = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&idlers);
    let count = each(move || {
        // SAFETY: a plain question about the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        seen.fetch_add(usize::from(policy == libc::SCHED_IDLE), Ordering::SeqCst);
    });
    let completion: Arc<dyn Completion> = count.clone();
    let requests = fixture.requests(Class::Prefetch);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            thread::stand_by();
            // SAFETY: the memory lives until the queue is dropped.
            unsafe { queue.submit(requests, &completion) };
        });
    });
    queue.wait_until(&mut || count.0.load(Ordering::SeqCst) == 16);
    assert_eq!(idlers.load(Ordering::SeqCst), 0);
    drop(queue);
}

#[test]
fn idle_threads_take_what_a_cap_has_kept_back_when_it_rises() {
    let mut fixture = Fixture::new(3, 4);
    let shared = Arc::clone(&fixture.shared);
    // Another queue has all that may be at the device; this one has its first request there all the same.
    for _ in 0..4 {
        shared.admission.enter(Class::Prefetch);
    }
    let queue = fixture.queue(2).unwrap();
    let (ended, met) = (Mutex::new(0), Condvar::new());
    let has_met = AtomicUsize::new(0);
    let (first, both) = (Arc::new((ended, met, has_met)), Duration::from_secs(20));
    let state = Arc::clone(&first);
    let count = each(move || {
        let (ended, met, has_met) = &*first;
        let mut ended = ended.lock();
        *ended += 1;
        if *ended == 1 {
            // The other thread sleeps by then or will find that nothing may go; now the other queue is done.
            (0..4).for_each(|_| shared.admission.leave(Class::Prefetch));
            return;
        }
        // The two that are left wait for each other, which takes two threads.
        met.notify_all();
        let since = clock::now();
        while *ended < 3 && since.elapsed() < both {
            met.wait_for(&mut ended, both);
        }
        has_met.fetch_add(usize::from(*ended == 3), Ordering::SeqCst);
    });
    let completion: Arc<dyn Completion> = count.clone();
    let requests = fixture.requests(Class::Prefetch);
    // SAFETY: the memory lives until the queue is dropped.
    unsafe { queue.submit(requests, &completion) };
    queue.wait_until(&mut || count.0.load(Ordering::SeqCst) == 3);
    assert_eq!(state.2.load(Ordering::SeqCst), 2, "they were done one after the other");
    drop(queue);
}
