//! The real disk through its public surface, with both queue backends and every mode that works here.
#![cfg(unix)]
#![expect(unsafe_code, reason = "requests name memory of the tests")]

use gannet_base::sync::Mutex;
use gannet_base::{clock, random, thread};
use gannet_io::stats::Operation;
use gannet_io::{
    AlignedBuffer, AtomicWrites, Backend, CalibrationPlan, Class, Completion, Direction, Disk, Durability,
    ErrorKind, File, IoSlice, Mode, ModeRequest, OpenOptions, Queue, RealDisk, RealOptions, Request, Result,
    calibrate, residency,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BLOCK: usize = 8192;

fn disk(backend: Backend) -> RealDisk {
    RealDisk::new(RealOptions { backend, ..RealOptions::default() })
}

fn both() -> [RealDisk; 2] {
    [disk(Backend::Auto), disk(Backend::Threads)]
}

/// A folder on the file system the tests run on, which is more likely to know direct I/O than `/tmp`.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn pattern(block: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    buffer.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&(block as u64 * 31 + 7).to_le_bytes()));
    buffer
}

fn with_blocks(disk: &RealDisk, path: &Path, mode: ModeRequest, blocks: usize) -> Arc<dyn File> {
    let file = disk.open(path, &OpenOptions::create_new().mode(mode)).unwrap();
    for block in 0..blocks {
        let offset = (block * BLOCK) as u64;
        file.write_at(Class::Deadline, offset, &pattern(block), Durability::Cached).unwrap();
    }
    file.sync(Class::Deadline).unwrap();
    file
}

/// Results by token.
#[derive(Default)]
struct Results {
    ended: Mutex<Vec<(u64, Result<()>)>>,
    count: AtomicUsize,
}

impl Completion for Results {
    fn complete(&self, token: u64, result: Result<()>) {
        self.ended.lock().push((token, result));
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

fn run(queue: &dyn Queue, requests: Vec<Request>) -> Vec<(u64, Result<()>)> {
    let (results, wanted) = (Arc::new(Results::default()), requests.len());
    let completion: Arc<dyn Completion> = results.clone();
    // SAFETY: the callers keep the memory until this function returns, and every request has ended then.
    unsafe { queue.submit(requests, &completion) };
    queue.wait_until(&mut || results.count.load(Ordering::SeqCst) == wanted);
    let mut ended = std::mem::take(&mut *results.ended.lock());
    ended.sort_by_key(|(token, _)| *token);
    ended
}

fn slice(buffer: &mut AlignedBuffer) -> IoSlice {
    IoSlice { address: buffer.as_mut_ptr(), len: buffer.len() }
}

fn request(file: &Arc<dyn File>, direction: Direction, offset: usize, slices: Vec<IoSlice>) -> Request {
    let file = Arc::clone(file);
    Request { file, direction, class: Class::Foreground, offset: offset as u64, slices, token: offset as u64 }
}

#[test]
fn every_mode_reads_back_what_it_wrote_and_says_what_it_is() {
    let folder = folder();
    let modes = [
        ModeRequest::Auto,
        ModeRequest::Only(Mode::Direct),
        ModeRequest::Only(Mode::Uncached),
        ModeRequest::Only(Mode::Buffered),
    ];
    for (number, mode) in modes.into_iter().enumerate() {
        for (other, disk) in both().into_iter().enumerate() {
            let path = folder.path().join(format!("{number}-{other}"));
            let file = with_blocks(&disk, &path, mode, 8);
            let report = file.mode();
            assert_eq!(report.requested, mode);
            assert!(!report.reason.is_empty());
            if let ModeRequest::Only(Mode::Buffered) = mode {
                assert_eq!(report.effective, Mode::Buffered);
            }
            file.write_at(Class::Commit, 0, &pattern(99), Durability::Durable).unwrap();
            let mut buffers: Vec<_> = (0..8).map(|_| AlignedBuffer::zeroed(BLOCK)).collect();
            let requests = buffers
                .iter_mut()
                .enumerate()
                .map(|(i, b)| request(&file, Direction::Read, i * BLOCK, vec![slice(b)]))
                .collect();
            let queue = disk.queue(4).unwrap();
            assert!(run(&*queue, requests).iter().all(|(_, r)| r.is_ok()));
            for (block, buffer) in buffers.iter().enumerate() {
                assert_eq!(buffer[..], pattern(if block == 0 { 99 } else { block })[..], "{mode:?}");
            }
            let reads = disk.stats().counter(Class::Foreground, Operation::Read);
            assert_eq!(reads.requests.load(Ordering::Relaxed), 8);
            assert_eq!(reads.latency.count(), 8);
            let counts = disk.stats().snapshot();
            assert_eq!(counts.total(Operation::Write), (9, 9 * BLOCK as u64));
            assert_eq!(counts.total(Operation::Sync).0, 1);
        }
    }
}

#[test]
fn several_slices_are_one_range_of_the_file() {
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let file = with_blocks(&disk, &folder.path().join(number.to_string()), ModeRequest::Auto, 4);
        let queue = disk.queue(4).unwrap();
        let mut out: Vec<_> = (10..13).map(pattern).collect();
        let slices = out.iter_mut().map(slice).collect();
        let write = request(&file, Direction::Write(Durability::Durable), BLOCK, slices);
        assert!(run(&*queue, vec![write])[0].1.is_ok());
        let mut back: Vec<_> = (0..4).map(|_| AlignedBuffer::zeroed(BLOCK)).collect();
        let read = request(&file, Direction::Read, 0, back.iter_mut().map(slice).collect());
        assert!(run(&*queue, vec![read])[0].1.is_ok());
        for (buffer, block) in back.iter().zip([0, 10, 11, 12]) {
            assert_eq!(buffer[..], pattern(block)[..]);
        }
    }
}

#[test]
fn a_read_behind_the_end_is_short() {
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let file = with_blocks(&disk, &folder.path().join(number.to_string()), ModeRequest::Auto, 2);
        let queue = disk.queue(4).unwrap();
        for len in [2 * BLOCK, 2 * BLOCK - 100] {
            file.set_len(len as u64).unwrap();
            let mut buffer = AlignedBuffer::zeroed(2 * BLOCK);
            let error = file.read_at(Class::Foreground, BLOCK as u64, &mut buffer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ShortRead, "{error}");
            let read = request(&file, Direction::Read, BLOCK, vec![slice(&mut buffer)]);
            let ended = run(&*queue, vec![read]);
            assert_eq!(ended[0].1.as_ref().unwrap_err().kind(), ErrorKind::ShortRead);
            let read = request(&file, Direction::Read, 8 * BLOCK, vec![slice(&mut buffer)]);
            assert_eq!(run(&*queue, vec![read])[0].1.as_ref().unwrap_err().kind(), ErrorKind::ShortRead);
        }
        assert!(!file.is_poisoned());
    }
}

#[test]
fn wrong_requests_are_refused_and_poison_nothing() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let path = folder.path().join("file");
    let file = with_blocks(&disk, &path, ModeRequest::Auto, 2);
    let reader = disk.open(&path, &OpenOptions::read()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(2 * BLOCK);
    let kind = |r: Result<()>| r.unwrap_err().kind();
    if file.mode().effective == Mode::Direct {
        assert_eq!(kind(file.read_at(Class::Foreground, 1, &mut buffer[..BLOCK])), ErrorKind::Invalid);
        assert_eq!(kind(file.read_at(Class::Foreground, 0, &mut buffer[..BLOCK - 1])), ErrorKind::Invalid);
        assert_eq!(kind(file.read_at(Class::Foreground, 0, &mut buffer[1..BLOCK + 1])), ErrorKind::Invalid);
        let queue = disk.queue(1).unwrap();
        let ended = run(
            &*queue,
            vec![request(&file, Direction::Write(Durability::Cached), 7, vec![slice(&mut buffer)])],
        );
        assert_eq!(ended[0].1.as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(kind(reader.write_at(Class::Commit, 0, &buffer, Durability::Cached)), ErrorKind::Invalid);
    assert_eq!(
        kind(file.read_at(Class::Foreground, i64::MAX as u64 & !4095, &mut buffer)),
        ErrorKind::Invalid
    );
    let queue = disk.queue(1).unwrap();
    let many = vec![slice(&mut buffer); 1025];
    let ended = run(&*queue, vec![request(&file, Direction::Read, 0, many)]);
    assert_eq!(ended[0].1.as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    let too_much = AlignedBuffer::zeroed((2 * file.atomic_writes().max).max(BLOCK)).len();
    let mut large = AlignedBuffer::zeroed(too_much);
    let atomic = Direction::WriteAtomic(Durability::Durable);
    let ended = run(&*queue, vec![request(&file, atomic, 0, vec![slice(&mut large)])]);
    assert_eq!(ended[0].1.as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(!file.is_poisoned());
    file.write_at(Class::Commit, 0, &buffer, Durability::Cached).unwrap();
    // Nothing to do is done at once.
    assert!(run(&*queue, vec![request(&file, Direction::Read, 0, vec![])])[0].1.is_ok());
}

#[test]
fn an_atomic_write_of_the_size_the_device_promises_works() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let file = with_blocks(&disk, &folder.path().join("file"), ModeRequest::Auto, 8);
    let AtomicWrites { min, max } = file.atomic_writes();
    if max == 0 {
        return;
    }
    let queue = disk.queue(1).unwrap();
    let mut buffer = AlignedBuffer::zeroed(max.min(4 * BLOCK).max(min));
    buffer.fill(5);
    let write = request(&file, Direction::WriteAtomic(Durability::Durable), 0, vec![slice(&mut buffer)]);
    run(&*queue, vec![write]).remove(0).1.unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_write_poisons_the_handle_and_only_that() {
    for disk in both() {
        for through_queue in [false, true] {
            let file = disk.open(Path::new("/dev/full"), &OpenOptions::read_write()).unwrap();
            let mut buffer = AlignedBuffer::zeroed(BLOCK);
            let queue = disk.queue(2).unwrap();
            let error = if through_queue {
                let write = request(&file, Direction::Write(Durability::Cached), 0, vec![slice(&mut buffer)]);
                run(&*queue, vec![write]).remove(0).1.unwrap_err()
            } else {
                file.write_at(Class::Commit, 0, &buffer, Durability::Cached).unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(file.is_poisoned() && error.earlier().is_none());
            let write = file.write_at(Class::Commit, 0, &buffer, Durability::Cached);
            let refused = write.unwrap_err();
            assert_eq!((refused.kind(), refused.earlier()), (ErrorKind::Poisoned, Some(ErrorKind::NoSpace)));
            assert!(refused.to_string().contains(&error.to_string()), "{refused}");
            assert_eq!(file.sync(Class::Commit).unwrap_err().kind(), ErrorKind::Poisoned);
            let write = request(&file, Direction::Write(Durability::Durable), 0, vec![slice(&mut buffer)]);
            let error = run(&*queue, vec![write]).remove(0).1.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
            let anew = disk.open(Path::new("/dev/full"), &OpenOptions::read_write()).unwrap();
            assert!(!anew.is_poisoned());
            let errors = &disk.stats().counter(Class::Commit, Operation::Write).errors;
            assert!(through_queue || errors.load(Ordering::Relaxed) >= 1);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_system_without_direct_io_falls_back_and_says_why() {
    let Ok(folder) = tempfile::tempdir_in("/proc/self/fd/..").or_else(|_| tempfile::tempdir_in("/dev/shm"))
    else {
        return;
    };
    let disk = disk(Backend::Auto);
    let options = OpenOptions::create_new().mode(ModeRequest::Only(Mode::Direct));
    let file = disk.open(&folder.path().join("file"), &options).unwrap();
    assert!(file.mode().effective == Mode::Direct || file.mode().reason.contains("E"), "{:?}", file.mode());
    file.write_at(Class::Commit, 0, &pattern(1), Durability::Durable).unwrap();
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
    assert_eq!(buffer[..], pattern(1)[..]);
}

#[test]
fn a_second_lock_is_refused_and_names_its_holder() {
    let folder = folder();
    let path = folder.path().join("lock");
    let (one, other) = (disk(Backend::Auto), disk(Backend::Auto));
    let held = one.lock(&path).unwrap();
    let error = other.lock(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let text = error.to_string();
    assert!(text.contains(&format!("pid {}", std::process::id())) && text.contains("very process"), "{text}");
    drop(held);
    drop(other.lock(&path).unwrap());
}

#[test]
fn the_lock_of_a_file_holds_for_all_its_names_and_survives_other_handles() {
    let folder = folder();
    let (path, link, symbolic) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
    let (one, other) = (disk(Backend::Auto), disk(Backend::Auto));
    let file = with_blocks(&one, &path, ModeRequest::Auto, 1);
    std::fs::hard_link(&path, &link).unwrap();
    std::os::unix::fs::symlink("a", &symbolic).unwrap();
    assert_eq!(other.resolve(&symbolic).unwrap(), path);
    assert_eq!(other.resolve(&link).unwrap(), link);
    let held = file.lock().unwrap();
    for name in [&path, &link, &symbolic] {
        drop(other.open(name, &OpenOptions::read_write()).unwrap());
        let again = other.open(name, &OpenOptions::read_write()).unwrap();
        let error = again.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    }
    assert!(file.lock().is_err());
    drop(held);
    // The handle lives on, its lock does not.
    drop(other.open(&link, &OpenOptions::read_write()).unwrap().lock().unwrap());
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
    assert_eq!(buffer[..], pattern(0)[..], "locking writes nothing");
}

/// Another process that holds a lock on `path`, by a script that says so, until its standard input ends; `None` where that
/// cannot be had.
fn locked_elsewhere(script: &str, path: &Path) -> Option<std::process::Child> {
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut line = String::new();
    let output = child.stdout.take()?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).ok()?;
    (line.trim() == "locked").then_some(child)
}

#[test]
fn the_file_lock_of_another_process_is_refused() {
    let folder = folder();
    let path = folder.path().join("file");
    let file = with_blocks(&disk(Backend::Auto), &path, ModeRequest::Auto, 1);
    let script = "exec flock -x \"$0\" -c 'echo locked; read _'";
    let Some(mut child) = locked_elsewhere(script, &path) else { return };
    let is_soon = || {
        let start = clock::now();
        let error = file.lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains("has the file open"), "{error}");
        // Its holder is known and alive, unless the system does not tell.
        let known = error.to_string().contains("with pid");
        !known || start.elapsed() < Duration::from_millis(900)
    };
    // A machine that stands still for a while does not do so each time.
    assert!((0..3).any(|_| is_soon()), "a holder that is alive was waited for");
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(file.lock().unwrap());
}

/// A lock whose taker has ended; the open file, and the lock with it, lives on in another process until its standard input ends, as it does
/// in the kernel's requests of a process that was killed.
fn lingering_lock(path: &Path) -> Option<std::process::Child> {
    locked_elsewhere("exec 9<\"$0\"; flock -x 9 && echo locked; read _", path)
}

/// Whether a lock is waited for that lingers for less than a second; `None` where the machine was so slow that it was more.
fn is_waited_for(file: &dyn File, mut holder: std::process::Child) -> Option<bool> {
    let start = clock::now();
    let ending = thread::spawn("ending", move || {
        std::thread::sleep(Duration::from_millis(400));
        drop(holder.stdin.take());
        holder.wait().unwrap();
        start.elapsed()
    });
    let outcome = file.lock().map(drop);
    let lingered = ending.join().unwrap();
    (outcome.is_ok() || lingered < Duration::from_millis(900)).then_some(outcome.is_ok())
}

#[test]
fn the_file_lock_of_a_process_that_has_ended_is_waited_for_not_longer_than_a_second() {
    let folder = folder();
    let path = folder.path().join("file");
    let file = with_blocks(&disk(Backend::Auto), &path, ModeRequest::Auto, 1);
    let Some(first) = lingering_lock(&path) else { return };
    let holders = std::iter::once(first).chain((0..4).map(|_| lingering_lock(&path).unwrap()));
    let told = holders.into_iter().find_map(|holder| is_waited_for(&*file, holder));
    assert_eq!(told, Some(true), "waited for, where the machine is fast enough to tell");
    let mut holder = lingering_lock(&path).unwrap();
    let start = clock::now();
    let error = file.lock().map(drop).unwrap_err();
    let took = start.elapsed();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("another process has the file open"), "{error}");
    assert!(took >= Duration::from_secs(1), "{took:?}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn the_lock_of_another_process_is_refused_with_its_pid() {
    let folder = folder();
    let path = folder.path().join("lock");
    // `flock` of util-linux holds the lock; it does not write a pid, so the test does.
    let script = "echo $$ > \"$0\"; exec flock -x \"$0\" -c 'echo locked; read _'";
    let Some(mut child) = locked_elsewhere(script, &path) else { return };
    let error = disk(Backend::Auto).lock(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let text = error.to_string();
    assert!(text.contains(&format!("pid {}", child.id())), "{text}");
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(disk(Backend::Auto).lock(&path).unwrap());
}

#[test]
fn allocation_extends_with_zeros_and_fails_without_a_trace() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let file = with_blocks(&disk, &folder.path().join("file"), ModeRequest::Auto, 1);
    file.allocate(BLOCK as u64, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), (1 << 20) + BLOCK as u64);
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
    assert_eq!(buffer[..], pattern(0)[..]);
    file.read_at(Class::Foreground, 1 << 20, &mut buffer).unwrap();
    assert!(buffer.iter().all(|&b| b == 0));
    assert!(file.allocate(0, 1 << 50).is_err());
    assert_eq!(file.len().unwrap(), (1 << 20) + BLOCK as u64);
    file.write_at(Class::Commit, 0, &buffer, Durability::Cached).unwrap();
}

#[test]
fn names_are_listed_renamed_and_removed() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let inside = folder.path().join("inside");
    disk.create_dir(&inside).unwrap();
    disk.create_dir(&inside).unwrap();
    let (a, b) = (inside.join("a"), inside.join("b"));
    drop(with_blocks(&disk, &a, ModeRequest::Auto, 1));
    let again = disk.open(&a, &OpenOptions::create_new()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    disk.rename(&a, &b).unwrap();
    disk.sync_dir(&inside).unwrap();
    assert_eq!(disk.list(&inside).unwrap(), ["b"]);
    assert_eq!(disk.list(folder.path()).unwrap(), Vec::<String>::new());
    assert!(disk.exists(&b).unwrap() && !disk.exists(&a).unwrap());
    assert!(disk.remove_dir(&inside).is_err(), "it is not empty");
    disk.remove(&b).unwrap();
    disk.remove_dir(&inside).unwrap();
    assert!(!disk.exists(&inside).unwrap());
    assert_eq!(disk.open(&b, &OpenOptions::read()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_new_name_replaces_nothing() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a"), "a").unwrap();
    std::fs::write(path("b"), "b").unwrap();
    std::os::unix::fs::symlink(path("nothing"), path("link")).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    for taken in ["a", "b", "link", "folder"] {
        let error = disk.rename_new(&path("a"), &path(taken)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{taken}: {error}");
        assert!(error.to_string().contains(taken), "{error}");
    }
    assert_eq!(std::fs::read(path("b")).unwrap(), b"b");
    disk.rename_new(&path("a"), &path("c")).unwrap();
    assert_eq!(std::fs::read(path("c")).unwrap(), b"a");
    // Folders, too.
    disk.rename_new(&path("folder"), &path("a")).unwrap();
    assert!(path("a").is_dir() && !path("folder").exists());
    assert_eq!(disk.rename_new(&path("b"), &path("no/b")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// What one thread of the stress test waits for.
#[derive(Default)]
struct Tally(AtomicUsize);

impl Completion for Tally {
    fn complete(&self, _token: u64, result: Result<()>) {
        result.unwrap();
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn many_threads_share_a_queue_and_nobody_sleeps_through_his_completions() {
    const BLOCKS: usize = 64;
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        let file = with_blocks(&disk, &path, ModeRequest::Auto, BLOCKS);
        let queue = disk.queue(8).unwrap();
        let tallies: Arc<Vec<Arc<Tally>>> = Arc::new((0..6).map(|_| Arc::new(Tally::default())).collect());
        let handles: Vec<_> = (0..6)
            .map(|me| {
                let (file, queue, tallies) = (Arc::clone(&file), Arc::clone(&queue), Arc::clone(&tallies));
                thread::spawn(&format!("waiter {me}"), move || share(me, &file, &*queue, &tallies))
            })
            .collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
        queue.wait_until(&mut || queue.in_flight() == 0);
        let reads = disk.stats().snapshot().total(Operation::Read).0;
        assert_eq!(reads, 6 * 150 * 5);
    }
}

/// Submits 150 batches of five and waits at random for its own or for nobody's; at the end for the neighbour's.
fn share(me: usize, file: &Arc<dyn File>, queue: &dyn Queue, tallies: &[Arc<Tally>]) {
    let completion: Arc<dyn Completion> = tallies[me].clone();
    let mut memory: Vec<_> = (0..5).map(|_| AlignedBuffer::zeroed(BLOCK)).collect();
    for round in 1..=150 {
        let wanted = round * 6;
        let requests = memory.iter_mut().enumerate().map(|(i, buffer)| {
            let offset = random::below(64) as usize * BLOCK;
            let mut request = request(file, Direction::Read, offset, vec![slice(buffer)]);
            request.class = Class::ALL[(i + me) % 5];
            request
        });
        let mut requests: Vec<_> = requests.collect();
        // An empty one ends inside `submit`, outside any waiting thread.
        requests.push(request(file, Direction::Read, 0, vec![]));
        // SAFETY: the memory is used again only after the batch has ended, and lives as long.
        unsafe { queue.submit(requests, &completion) };
        if random::below(3) == 0 {
            queue.poll();
        }
        queue.wait_until(&mut || tallies[me].0.load(Ordering::SeqCst) == wanted);
    }
    let neighbour = &tallies[(me + 1) % tallies.len()];
    queue.wait_until(&mut || neighbour.0.load(Ordering::SeqCst) == 150 * 6);
}

#[test]
fn a_waiter_wakes_by_requests_that_another_thread_submits_later_and_that_end_at_once() {
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let file = with_blocks(&disk, &folder.path().join(number.to_string()), ModeRequest::Auto, 1);
        let queue = disk.queue(8).unwrap();
        let tally = Arc::new(Tally::default());
        let (other, seen) = (Arc::clone(&queue), Arc::clone(&tally));
        let waiter = thread::spawn("waiter", move || {
            other.wait_until(&mut || seen.0.load(Ordering::SeqCst) == 1);
        });
        // Most of the time the waiter sleeps by then; the test holds either way.
        std::thread::sleep(Duration::from_millis(20));
        let completion: Arc<dyn Completion> = tally;
        // SAFETY: no memory is named.
        unsafe { queue.submit(vec![request(&file, Direction::Read, 0, vec![])], &completion) };
        waiter.join().unwrap();
    }
}

#[test]
fn requests_outlive_the_thread_that_submitted_them() {
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let options = OpenOptions::create_new();
        let file = disk.open(&folder.path().join(number.to_string()), &options).unwrap();
        let queue = disk.queue(32).unwrap();
        let tally = Arc::new(Tally::default());
        let mut memory: Vec<_> = (0..32).map(pattern).collect();
        // Writes that extend the file are what the kernel hands to workers of the submitting thread.
        let requests: Vec<_> = memory
            .iter_mut()
            .enumerate()
            .map(|(i, b)| request(&file, Direction::Write(Durability::Cached), i * BLOCK, vec![slice(b)]))
            .collect();
        let (other, completion) = (Arc::clone(&queue), Arc::clone(&tally) as Arc<dyn Completion>);
        let submitter = thread::spawn("submitter", move || {
            // SAFETY: the memory lives until the test has seen every request end.
            unsafe { other.submit(requests, &completion) };
        });
        submitter.join().unwrap();
        queue.wait_until(&mut || tally.0.load(Ordering::SeqCst) == 32);
        let mut buffer = AlignedBuffer::zeroed(BLOCK);
        for block in 0..32 {
            file.read_at(Class::Foreground, (block * BLOCK) as u64, &mut buffer).unwrap();
            assert_eq!(buffer[..], pattern(block)[..]);
        }
    }
}

#[test]
fn a_dropped_queue_waits_for_its_requests() {
    let folder = folder();
    for (number, disk) in both().into_iter().enumerate() {
        let file = with_blocks(&disk, &folder.path().join(number.to_string()), ModeRequest::Auto, 16);
        let tally = Arc::new(Tally::default());
        let completion: Arc<dyn Completion> = tally.clone();
        let mut memory: Vec<_> = (0..100).map(|_| AlignedBuffer::zeroed(BLOCK)).collect();
        let requests = memory.iter_mut().enumerate().map(|(i, b)| {
            let mut request = request(&file, Direction::Read, i % 16 * BLOCK, vec![slice(b)]);
            request.class = Class::Maintenance;
            request
        });
        let queue = disk.queue(4).unwrap();
        // SAFETY: the memory outlives the queue, which outlives the requests.
        unsafe { queue.submit(requests.collect(), &completion) };
        drop(queue);
        assert_eq!(tally.0.load(Ordering::SeqCst), 100);
        assert!(memory.iter().enumerate().all(|(i, b)| b[..] == pattern(i % 16)[..]));
    }
}

#[test]
fn direct_reads_leave_nothing_in_the_cache() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let path = folder.path().join("file");
    let file = with_blocks(&disk, &path, ModeRequest::Auto, 32);
    if file.mode().effective != Mode::Direct || file.cached_bytes().is_none() {
        return;
    }
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    (0..32).for_each(|b| file.read_at(Class::Foreground, b * BLOCK as u64, &mut buffer).unwrap());
    assert_eq!(file.cached_bytes(), Some(0));
    assert_eq!(residency([&path]).cached_bytes(), Some(0));
    // The measure itself is not blind.
    std::fs::read(&path).unwrap();
    assert_eq!(residency([&path]).cached_bytes(), Some(32 * BLOCK as u64));
    file.drop_cache();
    assert_eq!(file.cached_bytes(), Some(0));
    assert_eq!(residency([folder.path().join("missing")]).cached_bytes(), None);
}

#[test]
fn a_disk_says_how_a_file_is_open_whatever_it_is_called_by_now() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    assert_eq!(disk.mode_of(&old), None);
    let file = with_blocks(&disk, &old, ModeRequest::Only(Mode::Buffered), 1);
    // Who opened it first counts.
    let other = disk.open(&old, &OpenOptions::read()).unwrap();
    disk.rename(&old, &new).unwrap();
    assert_eq!(disk.mode_of(&old), None);
    assert_eq!(disk.mode_of(&new).as_ref(), Some(file.mode()));
    drop(file);
    assert_eq!(disk.mode_of(&new).as_ref(), Some(other.mode()));
    drop(other);
    assert_eq!(disk.mode_of(&new), None);
}

#[test]
fn the_backend_asked_for_is_reported() {
    let of = |disk: &RealDisk| disk.queue_backend().unwrap();
    assert_eq!(of(&disk(Backend::Threads)).effective, Backend::Threads);
    let auto = of(&disk(Backend::Auto));
    assert_ne!(auto.effective, Backend::Auto);
    assert!(!auto.reason.is_empty());
}

#[test]
fn a_queue_that_gets_no_ring_is_reported() {
    let disk = disk(Backend::Auto);
    let before = disk.queue_backend().unwrap();
    let _queue = disk.queue(8).unwrap();
    assert_eq!(disk.queue_backend().unwrap(), before);
    // More than any ring has.
    let _deep = disk.queue(1 << 20).unwrap();
    let after = disk.queue_backend().unwrap();
    assert_eq!(after.effective, Backend::Threads);
    let is_told = after.reason.contains("1 so far use threads") && after.reason.contains("1048576");
    assert_eq!(is_told, before.effective == Backend::Uring, "{after:?}");
}

#[test]
fn a_calibration_ends_and_leaves_no_file() {
    let folder = folder();
    let disk = disk(Backend::Auto);
    let scratch = folder.path().join("scratch");
    let plan = CalibrationPlan {
        time_limit: Duration::from_millis(200),
        file_bytes: 1 << 20,
        depth_max: 16,
        ..CalibrationPlan::default()
    };
    let calibration = calibrate(&disk, &scratch, &plan).unwrap();
    assert!(calibration.read_latency.is_some() && calibration.sync_write_latency.is_some());
    assert!((1..=16).contains(&calibration.depth.unwrap()));
    assert!(!disk.exists(&scratch).unwrap());
    disk.set_calibration(&calibration);
    assert_eq!(disk.prefetch_depth(), calibration.depth.unwrap());
}
