//! Requests in flight, most of them inside a simulation.
#![expect(unsafe_code, reason = "tests submit requests that name memory")]

use super::*;
use crate::{Completion, Direction, IoSlice, Request};
use gannet_base::sim::Simulation;
use gannet_base::{clock, sync, thread};

/// Keeps results in the order of their completions.
#[derive(Default)]
struct Results(sync::Mutex<Vec<(u64, Option<ErrorKind>)>>);

impl Completion for Results {
    fn complete(&self, token: u64, result: Result<()>) {
        self.0.lock().push((token, result.err().map(|e| e.kind())));
    }
}

impl Results {
    fn ended(&self, token: u64) -> Option<Option<ErrorKind>> {
        self.0.lock().iter().find(|r| r.0 == token).map(|r| r.1)
    }
}

fn request(
    file: &Arc<dyn File>,
    direction: Direction,
    sector: u64,
    buffer: &mut AlignedBuffer,
    token: u64,
) -> Request {
    let slices = buffer.chunks_mut(SECTOR).map(|c| IoSlice { address: c.as_mut_ptr(), len: c.len() });
    let slices = slices.collect();
    let (file, offset) = (Arc::clone(file), sector * SECTOR as u64);
    Request { file, direction, class: Class::Foreground, offset, slices, token }
}

fn submit(queue: &Arc<dyn Queue>, requests: Vec<Request>, results: &Arc<Results>) {
    let completion: Arc<dyn Completion> = Arc::clone(results) as _;
    // SAFETY: every test keeps its buffers until the completions, and changes one only to see the panic.
    unsafe { queue.submit(requests, &completion) };
}

/// One request from start to end.
pub(super) fn transfer(
    disk: &SimDisk,
    file: &Arc<dyn File>,
    direction: Direction,
    sector: u64,
    buffer: &mut AlignedBuffer,
) -> Result<()> {
    let (queue, results) = (disk.queue(1).unwrap(), Arc::new(Results::default()));
    submit(&queue, vec![request(file, direction, sector, buffer, 1)], &results);
    queue.wait_until(&mut || results.ended(1).is_some());
    match results.ended(1).unwrap() {
        None => Ok(()),
        Some(kind) => Err(Error::new(kind, "transfer", file.path(), "")),
    }
}

#[test]
fn outside_a_simulation_requests_end_at_once() {
    let (disk, file) = settled(1, 2);
    transfer(&disk, &file, Direction::Write(CACHED), 1, &mut filled(5, 2)).unwrap();
    let mut buffer = filled(0, 3);
    transfer(&disk, &file, Direction::Read, 0, &mut buffer).unwrap();
    assert_eq!([buffer[0], buffer[512], buffer[1535]], [1, 5, 5]);
    let result = transfer(&disk, &file, Direction::Read, 1, &mut buffer);
    assert_eq!(kind(result), ErrorKind::ShortRead);
    let (other, _) = settled(1, 2);
    assert_eq!(kind(transfer(&other, &file, Direction::Read, 0, &mut buffer)), ErrorKind::Invalid);
}

type Trace = (Vec<(u64, Option<ErrorKind>)>, u64, u64);

/// Four threads write and read through one queue; each waits for its own requests and reaps everybody's.
fn trace(seed: u64, crash_after: Option<u64>) -> Trace {
    let run = move || {
        let (disk, file) = settled(seed, 64);
        if let Some(count) = crash_after {
            disk.crash_after(count);
        }
        let queue = disk.queue(6).unwrap();
        let results = Arc::new(Results::default());
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let (file, queue, results) = (Arc::clone(&file), Arc::clone(&queue), Arc::clone(&results));
                thread::spawn(&format!("t{number}"), move || {
                    for round in 0..5 {
                        let token = number * 100 + round * 10;
                        let mut written = [filled(token as u8, 2), filled(token as u8, 2)];
                        let mut read = filled(0, 4);
                        let place = number * 16 + round * 2;
                        let [a, b] = &mut written;
                        let requests = vec![
                            request(&file, Direction::Write(CACHED), place, a, token),
                            request(&file, Direction::Write(DURABLE), place + 2, b, token + 1),
                            request(&file, Direction::Read, (place + 32) % 48, &mut read, token + 2),
                        ];
                        submit(&queue, requests, &results);
                        let mut done = || (token..token + 3).all(|t| results.ended(t).is_some());
                        queue.wait_until(&mut done);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(queue.in_flight(), 0);
        let list = results.0.lock().clone();
        (list, disk.fingerprint(), clock::now().as_nanos())
    };
    Simulation::new(seed).max_steps(200_000).run(run).unwrap()
}

#[test]
fn a_simulated_run_is_a_function_of_its_seed() {
    for seed in 0..10 {
        let one = trace(seed, None);
        assert_eq!(one, trace(seed, None));
        assert_ne!(one.1, trace(seed + 1, None).1);
        assert_eq!(one.0.len(), 60);
        assert!(one.0.iter().all(|(_, error)| error.is_none()));
        let place = |token| one.0.iter().position(|(t, _)| *t == token).unwrap();
        let reordered = (0..20).map(|i| i / 5 * 100 + i % 5 * 10).any(|t| place(t) > place(t + 1));
        assert!(reordered, "requests end in another order than they began");
    }
}

#[test]
fn a_crash_ends_every_waiter_with_an_error() {
    for count in 1..40 {
        let (results, ..) = trace(count, Some(count));
        assert_eq!(results.len(), 60, "each request ended once");
        let failed = results.iter().filter(|(_, error)| *error == Some(ErrorKind::Device)).count();
        assert!(failed as u64 >= 60 - count, "{failed} after {count}");
    }
}

#[test]
fn power_off_by_another_thread_wakes_who_waits_and_may_tear_what_was_in_flight() {
    let run = |seed| {
        let body = move || {
            let hour_us = 3_600_000_000;
            let settings = Settings { write_latency_us: hour_us..=hour_us, ..Settings::default() };
            let disk = SimDisk::with_settings(seed, settings);
            let file = create(&disk, PATH);
            write(&file, 0, 1, 4, DURABLE);
            disk.sync_dir(Path::new("/")).unwrap();
            let waiter = {
                let (disk, file) = (disk.clone(), Arc::clone(&file));
                thread::spawn("waiter", move || {
                    let write = Direction::Write(DURABLE);
                    kind(transfer(&disk, &file, write, 0, &mut filled(2, 4)))
                })
            };
            while disk.io_count() < 4 {
                clock::sleep(Duration::from_micros(1));
            }
            let start = clock::now();
            disk.power_off();
            assert_eq!(waiter.join().unwrap(), ErrorKind::Device);
            assert!(start.elapsed() < Duration::from_secs(1), "the waiter is woken, not left to sleep");
            after(&disk.crash_image_with(CrashPolicy::PerSector, seed))
        };
        Simulation::new(seed).run(body).unwrap()
    };
    let states: BTreeSet<_> = (0..60).map(run).collect();
    assert!(states.len() > 8, "{states:?}");
}

/// Runs `bug` with a request of four sectors in flight to a settled file, until the request's end.
fn while_in_flight(
    direction: Direction,
    settings: Settings,
    bug: impl FnOnce(&Arc<dyn File>, &mut AlignedBuffer) + Send + 'static,
) {
    let body = move || {
        let disk = SimDisk::with_settings(1, Settings { complete_in_submit_one_in: 0, ..settings });
        let file = create(&disk, PATH);
        write(&file, 0, 1, 8, CACHED);
        let (queue, results) = (disk.queue(4).unwrap(), Arc::new(Results::default()));
        let mut buffer = filled(2, 4);
        submit(&queue, vec![request(&file, direction, 0, &mut buffer, 1)], &results);
        bug(&file, &mut buffer);
        queue.wait_until(&mut || results.ended(1).is_some());
    };
    Simulation::new(1).run(body).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
#[should_panic(expected = "memory of a write in flight")]
fn changing_the_memory_of_a_write_in_flight_is_found() {
    while_in_flight(Direction::Write(CACHED), Settings::default(), |_, buffer| buffer[700] = 9);
}

#[test]
#[should_panic(expected = "two transfers in flight to the same sectors")]
fn two_writes_in_flight_to_one_sector_are_found() {
    let bug = |file: &Arc<dyn File>, _: &mut AlignedBuffer| write(file, 3, 3, 2, CACHED);
    while_in_flight(Direction::Write(CACHED), Settings::default(), bug);
}

#[test]
#[should_panic(expected = "two transfers in flight to the same sectors")]
fn a_read_that_meets_a_write_in_flight_is_found_on_request() {
    let settings = Settings { panic_on_read_overlap: true, ..Settings::default() };
    let bug = |file: &Arc<dyn File>, _: &mut AlignedBuffer| {
        file.read_at(Class::Foreground, 0, &mut filled(0, 1)).unwrap();
    };
    while_in_flight(Direction::Write(CACHED), settings, bug);
}

#[test]
fn a_read_that_meets_a_write_in_flight_sees_old_or_new_sectors() {
    let settings = Settings { write_latency_us: 100_000..=100_000, ..Settings::default() };
    while_in_flight(Direction::Write(CACHED), settings, |file, _| {
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let mut buffer = filled(0, 1);
            file.read_at(Class::Foreground, 0, &mut buffer).unwrap();
            assert!(buffer.iter().all(|b| *b == buffer[0]));
            seen.insert(buffer[0]);
        }
        assert_eq!(seen, BTreeSet::from([1, 2]));
    });
}

#[test]
fn a_read_leaves_its_memory_alone_until_it_ends() {
    while_in_flight(Direction::Read, Settings::default(), |_, buffer| {
        assert!(buffer.iter().all(|b| *b == 2));
    });
}

#[test]
fn a_sync_covers_what_completed_before_it_and_not_what_is_in_flight() {
    let settings = Settings { write_latency_us: 100_000..=100_000, ..Settings::default() };
    while_in_flight(Direction::Write(CACHED), settings, |file, _| {
        write(file, 6, 5, 2, CACHED);
        file.sync(Class::Commit).unwrap();
    });
    let body = || {
        let (disk, file) = settled(1, 4);
        let (queue, results) = (disk.queue(4).unwrap(), Arc::new(Results::default()));
        let mut buffer = filled(2, 2);
        submit(&queue, vec![request(&file, Direction::Write(CACHED), 0, &mut buffer, 1)], &results);
        file.sync(Class::Commit).unwrap();
        queue.wait_until(&mut || results.ended(1).is_some());
        outcomes(&disk)
    };
    let seen: BTreeSet<Vec<u8>> = Simulation::new(1).run(body).unwrap();
    assert!(seen.contains(&vec![1, 1, 1, 1]) && seen.contains(&vec![2, 2, 1, 1]), "{seen:?}");
}

#[test]
fn a_write_that_completes_during_a_sync_is_not_covered_by_it() {
    let body = || {
        let settings = Settings { sync_latency_us: 1_000_000..=1_000_000, ..Settings::default() };
        let disk = SimDisk::with_settings(1, settings);
        let file = create(&disk, PATH);
        write(&file, 0, 1, 2, CACHED);
        disk.sync_dir(Path::new("/")).unwrap();
        let writer = {
            let file = Arc::clone(&file);
            thread::spawn("writer", move || {
                clock::sleep(Duration::from_millis(500));
                write(&file, 1, 2, 1, CACHED);
            })
        };
        file.sync(Class::Commit).unwrap();
        writer.join().unwrap();
        outcomes(&disk)
    };
    let seen: BTreeSet<Vec<u8>> = Simulation::new(1).run(body).unwrap();
    assert_eq!(seen, BTreeSet::from([vec![1, 1], vec![1, 2]]));
}

#[test]
fn a_queue_that_ends_ends_its_requests() {
    let body = || {
        let (disk, file) = settled(1, 4);
        let (queue, results) = (disk.queue(1).unwrap(), Arc::new(Results::default()));
        let (mut a, mut b) = (filled(2, 1), filled(3, 1));
        let write = Direction::Write(CACHED);
        let requests = vec![request(&file, write, 0, &mut a, 1), request(&file, write, 1, &mut b, 2)];
        submit(&queue, requests, &results);
        drop(queue);
        let count = results.0.lock().len();
        (count, after(&disk))
    };
    assert_eq!(Simulation::new(1).run(body).unwrap(), (2, vec![2, 3, 1, 1]));
}
