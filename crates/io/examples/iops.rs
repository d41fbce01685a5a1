//! Random reads through the queue and by plain positioned reads: `iops FILE [DEPTH] [SECONDS] [auto|uring|threads]`.
//! The file must be there; compare with `fio --rw=randread --bs=8k --direct=1`.
#![expect(unsafe_code, reason = "requests name memory of this program")]

use gannet_base::{clock, random, sync::Mutex};
use gannet_io::{
    AlignedBuffer, Backend, Class, Completion, Direction, Disk, IoSlice, OpenOptions, RealDisk, RealOptions,
    Request, Result,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 8192;

#[derive(Default)]
struct Ended(Mutex<Vec<u64>>);

impl Completion for Ended {
    fn complete(&self, token: u64, result: Result<()>) {
        result.expect("the read succeeds");
        self.0.lock().push(token);
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &str| arguments.get(at).map_or(default, |a| a).to_owned();
    let path = argument(0, "iops.dat");
    let depth: usize = argument(1, "64").parse().expect("a depth");
    let time = Duration::from_secs_f64(argument(2, "3").parse().expect("seconds"));
    let backend = match argument(3, "auto").as_str() {
        "uring" => Backend::Uring,
        "threads" => Backend::Threads,
        _ => Backend::Auto,
    };
    let disk = RealDisk::new(RealOptions { backend, prefetch_depth: depth, ..RealOptions::default() });
    let file = disk.open(Path::new(&path), &OpenOptions::read())?;
    println!("{:?}\n{:?}", file.mode(), disk.queue_backend());
    let blocks = file.len()? / BLOCK as u64;
    let mut memory = AlignedBuffer::zeroed(BLOCK * depth);

    let start = clock::now();
    let mut count = 0;
    while start.elapsed() < time && depth == 1 {
        file.read_at(Class::Foreground, random::below(blocks) * BLOCK as u64, &mut memory[..BLOCK])?;
        count += 1;
    }
    if depth == 1 {
        println!("read_at: {:.0} IOPS", f64::from(count) / start.elapsed().as_secs_f64());
    }

    let queue = disk.queue(depth)?;
    let base = memory.as_mut_ptr();
    let ended = Arc::new(Ended::default());
    let completion: Arc<dyn Completion> = ended.clone();
    let start = clock::now();
    let (mut free, mut count) = ((0..depth as u64).collect::<Vec<_>>(), 0);
    while start.elapsed() < time {
        let requests = free.drain(..).map(|token| Request {
            file: Arc::clone(&file),
            direction: Direction::Read,
            class: Class::Prefetch,
            offset: random::below(blocks) * BLOCK as u64,
            slices: vec![IoSlice { address: base.wrapping_add(token as usize * BLOCK), len: BLOCK }],
            token,
        });
        // SAFETY: each token has its own block of `memory`, used again only after it ended; `memory` outlives the queue.
        unsafe { queue.submit(requests.collect(), &completion) };
        queue.wait_until(&mut || !ended.0.lock().is_empty());
        free.append(&mut ended.0.lock());
        count += free.len();
    }
    println!("queue at depth {depth}: {:.0} IOPS", count as f64 / start.elapsed().as_secs_f64());
    drop(queue);
    Ok(())
}
