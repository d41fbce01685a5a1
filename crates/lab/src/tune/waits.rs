//! What a server's sessions do with their time, seen from outside: Gannet counts no waits for latches, and none for the log.
//!
//! A session is a thread of its own. How long it was on a processor, and how long it was ready for one, the system counts exactly (`schedstat`). What it does while it sleeps is seen
//! by looking now and then in which system call it is (`/proc/PID/task/TID/syscall`): reading the device, waiting for its client, or waiting for somebody else (a futex: the log,
//! a latch, a row). The client knows how long its COMMITs took, which is the waiting for the log; what is left of waiting for others is latches and rows.

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The name of a session's thread.
const SESSION: &str = "gannet-session";
/// Sessions that are looked at in one moment, at most.
const LOOKED_AT: usize = 32;

/// What a system call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Client,
    Read,
    Write,
    Waiting,
    Paused,
    Other,
}

/// What the system call of this number is for, where numbers are known.
#[cfg(target_arch = "x86_64")]
fn doing(number: u32) -> Doing {
    match number {
        // read, poll, recvfrom, recvmsg, ppoll
        0 | 7 | 45 | 47 | 271 => Doing::Client,
        // pread64, preadv, preadv2, io_uring_enter
        17 | 295 | 327 | 426 => Doing::Read,
        // pwrite64, fsync, fdatasync, pwritev, pwritev2
        18 | 74 | 75 | 296 | 328 => Doing::Write,
        // futex
        202 => Doing::Waiting,
        // nanosleep, clock_nanosleep
        35 | 230 => Doing::Paused,
        _ => Doing::Other,
    }
}

/// See above.
#[cfg(target_arch = "aarch64")]
fn doing(number: u32) -> Doing {
    match number {
        // read, ppoll, recvfrom, recvmsg
        63 | 73 | 207 | 212 => Doing::Client,
        // pread64, preadv, preadv2, io_uring_enter
        67 | 69 | 286 | 426 => Doing::Read,
        // pwrite64, pwritev, fsync, fdatasync, pwritev2
        68 | 70 | 82 | 83 | 287 => Doing::Write,
        // futex
        98 => Doing::Waiting,
        // nanosleep, clock_nanosleep
        101 | 115 => Doing::Paused,
        _ => Doing::Other,
    }
}

/// See above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn doing(_: u32) -> Doing {
    Doing::Other
}

/// Looks at a server's sessions.
#[derive(Debug)]
pub struct Watch {
    threads: Vec<PathBuf>,
    began: Vec<Option<(u64, u64)>>,
    next: usize,
    counts: [u64; 6],
    running: u64,
    /// Threads that could not be looked at.
    unseen: u64,
}

impl Watch {
    /// Of the sessions that the process has now, but for so many that began before the others.
    pub fn begin(pid: u32, others: usize) -> Self {
        let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let is_session =
            |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == SESSION);
        let mut threads: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_session).collect();
        threads.sort_by_key(|path| {
            path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()).unwrap_or(u32::MAX)
        });
        threads.drain(..others.min(threads.len()));
        let began = threads.iter().map(|thread| schedule(thread)).collect();
        Watch { threads, began, next: 0, counts: [0; 6], running: 0, unseen: 0 }
    }

    /// Looks at some of them.
    pub fn look(&mut self) {
        for _ in 0..self.threads.len().min(LOOKED_AT) {
            self.next = (self.next + 1) % self.threads.len();
            match fs::read_to_string(self.threads[self.next].join("syscall")) {
                Ok(text) if text.starts_with("running") => self.running += 1,
                Ok(text) => match text.split_whitespace().next().and_then(|word| word.parse::<u32>().ok()) {
                    Some(number) => self.counts[doing(number) as usize] += 1,
                    // It sleeps, but in no system call: it is brought a page of its memory.
                    None => self.counts[Doing::Other as usize] += 1,
                },
                Err(_) => self.unseen += 1,
            }
        }
    }

    /// What they did in so many seconds since the begin, as shares of their time; null where that is not to be seen.
    pub fn end(self, seconds: f64) -> Value {
        let (mut on, mut queued, mut known) = (0.0, 0.0, 0.0);
        for (thread, began) in self.threads.iter().zip(&self.began) {
            if let (Some(began), Some(now)) = (began, schedule(thread)) {
                on += now.0.saturating_sub(began.0) as f64 / 1e9;
                queued += now.1.saturating_sub(began.1) as f64 / 1e9;
                known += seconds;
            }
        }
        let looked: u64 = self.running + self.counts.iter().sum::<u64>();
        let of_time = |part: f64| if known > 0.0 { json!(part / known) } else { Value::Null };
        let share = |doing: Doing| {
            if looked > 0 { json!(self.counts[doing as usize] as f64 / looked as f64) } else { Value::Null }
        };
        json!({
            "sessions": self.threads.len(),
            "looked": looked,
            "unseen": self.unseen,
            "on_processor": of_time(on),
            "queued_for_processor": of_time(queued),
            "client": share(Doing::Client),
            "device_read": share(Doing::Read),
            "device_write": share(Doing::Write),
            "others": share(Doing::Waiting),
            "paused": share(Doing::Paused),
            "unknown": share(Doing::Other),
        })
    }
}

/// Nanoseconds that a thread was on a processor, and ready for one, since it began.
fn schedule(thread: &std::path::Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>());
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

/// Seconds of processors that a process has had since it began.
pub fn processor_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in brackets and may hold anything: fields 14 and 15 of the line, in hundredths.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

/// What the machine's processors did since it was started, in hundredths of a second: all their time, idle, and stolen by the machine's host.
pub fn processors() -> Option<[u64; 3]> {
    totals(&fs::read_to_string("/proc/stat").ok()?)
}

/// The first line has user, nice, system, idle, waiting for I/O, two kinds of interrupts, stolen; what guests had is in the first two, too.
fn totals(text: &str) -> Option<[u64; 3]> {
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let times: Vec<u64> = words.map_while(|word| word.parse().ok()).take(8).collect();
    let [_, _, _, idle, waiting, _, _, stolen] = times.as_slice() else { return None };
    Some([times.iter().sum(), idle + waiting, *stolen])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_session_that_waits_is_seen_to_wait() {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name(SESSION.to_owned());
            let waits = || {
                while !ended.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            };
            let thread = named.spawn_scoped(scope, waits).unwrap();
            let begun = Instant::now();
            let found = loop {
                // The name is there a moment after the thread is.
                let mut watch = Watch::begin(std::process::id(), 0);
                watch.look();
                let found = watch.end(begun.elapsed().as_secs_f64());
                if found["others"] == 1.0 || begun.elapsed().as_secs() > 20 {
                    break found;
                }
            };
            ended.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            assert_eq!((&found["sessions"], &found["others"]), (&json!(1), &json!(1.0)), "{found}");
        });
        assert!(processor_seconds(std::process::id()).is_some());
    }

    #[test]
    fn the_processors_time_is_told_apart() {
        assert_eq!(totals("cpu  1 2 3 40 5 6 7 8 100 200\ncpu0 1\n"), Some([72, 45, 8]));
        assert_eq!((totals(""), totals("cpu  1 2\n")), (None, None));
    }

    #[test]
    fn without_sessions_nothing_is_said() {
        let mut watch = Watch::begin(u32::MAX, 1);
        watch.look();
        let found = watch.end(1.0);
        assert!(found["others"].is_null() && found["on_processor"].is_null(), "{found}");
    }
}
