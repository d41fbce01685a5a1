//! Counted by the model and by the virtual clock of a simulation, never by real time.

use super::*;
use crate::{AlignedBuffer, IoSlice, RealDisk};
use gannet_base::sim::Simulation;

const BLOCK: usize = 8192;

fn profile(width: usize) -> Profile {
    Profile {
        latency_min: Duration::from_millis(1),
        latency_max: Duration::from_millis(1),
        width,
        read_bytes_per_second: u64::MAX,
        write_bytes_per_second: 1_000_000,
        sync_latency: Duration::from_millis(7),
    }
}

#[test]
fn lanes_and_channels_decide_when_a_request_ends() {
    let model = Model::new(profile(4));
    let now = Instant::from_nanos(5_000_000_000);
    let ends: Vec<u128> =
        (0..8).map(|_| (model.book(Direction::Read, BLOCK, now) - now).as_millis()).collect();
    assert_eq!(ends, [1, 1, 1, 1, 2, 2, 2, 2]);
    let model = Model::new(profile(4));
    let write = Direction::Write(Durability::Cached);
    let ends: Vec<u128> = (0..3).map(|_| (model.book(write, 100_000, now) - now).as_millis()).collect();
    assert_eq!(ends, [100, 200, 300], "one channel for all");
    let durable = Direction::Write(Durability::Durable);
    assert_eq!((Model::new(profile(1)).book(durable, 1000, now) - now).as_millis(), 8);
    for name in Profile::NAMES {
        assert!(Profile::named(name).is_some_and(|p| p.latency_min <= p.latency_max && p.width >= 1));
    }
    assert_eq!(Profile::named("fast"), None);
}

#[derive(Default)]
struct Order(Mutex<Vec<u64>>);

impl Completion for Order {
    fn complete(&self, token: u64, result: Result<()>) {
        result.unwrap();
        self.0.lock().push(token);
    }
}

fn reads(
    file: &Arc<dyn File>,
    memory: &mut AlignedBuffer,
    class: Class,
    tokens: std::ops::Range<u64>,
) -> Vec<Request> {
    let base = memory.as_mut_ptr();
    let one = |token: u64| Request {
        file: Arc::clone(file),
        direction: Direction::Read,
        class,
        offset: 0,
        slices: vec![IoSlice { address: base.wrapping_add(token as usize * BLOCK), len: BLOCK }],
        token,
    };
    tokens.map(one).collect()
}

/// Runs `body` on a throttled file of one block, in virtual time.
fn simulated(width: usize, body: impl FnOnce(&ThrottledDisk, Arc<dyn File>) + Send + 'static) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let outcome = Simulation::new(1).run(move || {
        let disk = ThrottledDisk::new(Arc::new(RealDisk::default()), profile(width));
        let file = disk.open(&path, &OpenOptions::create_new()).unwrap();
        let block = AlignedBuffer::zeroed(BLOCK);
        file.write_at(Class::Deadline, 0, &block, Durability::Cached).unwrap();
        body(&disk, file);
    });
    outcome.unwrap();
}

#[test]
fn a_batch_takes_as_many_rounds_as_the_width_asks_for() {
    simulated(8, |disk, file| {
        let mut memory = AlignedBuffer::zeroed(32 * BLOCK);
        let order = Arc::new(Order::default());
        let completion: Arc<dyn Completion> = order.clone();
        let queue = disk.queue(64).unwrap();
        let start = clock::now();
        let requests = reads(&file, &mut memory, Class::Foreground, 0..32);
        // SAFETY: the memory outlives the wait below.
        unsafe { queue.submit(requests, &completion) };
        queue.wait_until(&mut || order.0.lock().len() == 32);
        let rounds = start.elapsed().as_micros();
        assert!((4000..4500).contains(&rounds), "{rounds} us for four rounds of 1 ms");
        let start = clock::now();
        file.read_at(Class::Foreground, 0, &mut memory[..BLOCK]).unwrap();
        file.sync(Class::Commit).unwrap();
        let took = start.elapsed().as_micros();
        assert!((8000..8500).contains(&took), "{took} us");
        assert_eq!(disk.stats().snapshot().total(Operation::Read), (33, 33 * BLOCK as u64));
    });
}

#[test]
fn a_foreground_read_overtakes_a_backlog_of_prefetches() {
    simulated(4, |disk, file| {
        let calibration = Calibration { depth: Some(4), ..Calibration::default() };
        disk.set_calibration(&calibration);
        let mut memory = AlignedBuffer::zeroed(41 * BLOCK);
        let order = Arc::new(Order::default());
        let completion: Arc<dyn Completion> = order.clone();
        let queue = disk.queue(64).unwrap();
        let prefetches = reads(&file, &mut memory, Class::Prefetch, 0..40);
        let foreground = reads(&file, &mut memory, Class::Foreground, 40..41);
        // SAFETY: the memory outlives the queue, which outlives the requests.
        unsafe {
            queue.submit(prefetches, &completion);
            assert_eq!(disk.shared.admission.at_device(Class::Prefetch), 4);
            queue.submit(foreground, &completion);
        }
        queue.wait_until(&mut || order.0.lock().contains(&40));
        assert!(order.0.lock().len() <= 8, "only what was at the device went before it");
        drop(queue);
        assert_eq!(order.0.lock().len(), 41);
    });
}
