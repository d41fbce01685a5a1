//! Threads, real or simulated.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "the scheduler's settings have no wrapper"))]

use crate::sim;
use crate::sync::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A thread that ended by a panic, with the panic's message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("thread {name:?} panicked")]
pub struct Panicked {
    name: String,
}

/// Waits for a thread's end.
#[derive(Debug)]
pub struct JoinHandle<T> {
    name: String,
    kind: Kind<T>,
}

#[derive(Debug)]
enum Kind<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated { id: usize, result: Arc<Mutex<Option<T>>> },
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended and gives its result.
    pub fn join(self) -> Result<T, Panicked> {
        match self.kind {
            Kind::Real(handle) => handle.join().map_err(|_| Panicked { name: self.name }),
            Kind::Simulated { id, result } => {
                sim::join(id);
                result.lock().take().ok_or(Panicked { name: self.name })
            }
        }
    }
}

/// Starts a thread called `name`.
///
/// # Panics
/// When the system has no thread to give.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let kind = if sim::active() {
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        let id = sim::spawn(name.to_owned(), move || {
            let value = body();
            *slot.lock() = Some(value);
        });
        Kind::Simulated { id, result }
    } else {
        let builder = std::thread::Builder::new().name(name.to_owned());
        Kind::Real(builder.spawn(body).expect("the system gives a thread"))
    };
    JoinHandle { name: name.to_owned(), kind }
}

/// The same, where the body can be done without, or by the caller: it is given back when the system has no thread to give.
pub fn try_spawn<T: Send + 'static, B: FnOnce() -> T + Send + 'static>(
    name: &str,
    body: B,
) -> Result<JoinHandle<T>, B> {
    if sim::active() {
        return Ok(spawn(name, body));
    }
    // A thread that cannot be started would take the body with it.
    let body = Arc::new(Mutex::new(Some(body)));
    let taken = Arc::clone(&body);
    let run = move || {
        let body = taken.lock().take();
        body.expect("who starts the thread takes the body back only where there is none")()
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(handle) => Ok(JoinHandle { name: name.to_owned(), kind: Kind::Real(handle) }),
        Err(_) => Err(body.lock().take().expect("nobody has run it")),
    }
}

/// From now on the calling thread, and those it starts, run only as far as others leave them the processors, except for a small part
/// (nice 10). For work in the background that takes much of them. Linux only; elsewhere, and in a simulation, it does nothing.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    if !sim::active() {
        // Linux takes it of a thread. Nobody may be refused to be nicer, and if so, it is no harm.
        let _ = rustix::process::setpriority_process(None, 10);
    }
}

/// From now on the calling thread, and those it starts, run only where a processor has nothing else to do, except for a very small part,
/// and leave it at once to whoever wakes up (`SCHED_IDLE`). For work that nobody waits for, and that holds nothing for long that others
/// wait for. A thread that is merely nice is not stopped in the middle of its slice: who wakes up waits for milliseconds.
/// Linux only; elsewhere, and in a simulation, it does nothing.
pub fn stand_by() {
    #[cfg(target_os = "linux")]
    if !sim::active() {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters outlive the call, which is about the calling thread. Where it is refused, nothing changes.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
            step_back();
        }
    }
}

/// How long the processors that this process may use have had nothing to do so far, all together, in steps of 10 ms; `None` where that is not
/// told, where the process may have less of them than there are (a quota: what is idle is not ours, then), and in a simulation.
pub fn idle_time() -> Option<Duration> {
    if sim::active() {
        return None;
    }
    let allowed = allowed_processors()?;
    // It is read from several files, and hardly ever changes.
    static HAS_QUOTA: OnceLock<bool> = OnceLock::new();
    let has_quota = || std::thread::available_parallelism().is_ok_and(|count| count.get() < allowed.len());
    if *HAS_QUOTA.get_or_init(has_quota) {
        return None;
    }
    idle_of(&std::fs::read_to_string("/proc/stat").ok()?, &allowed)
}

/// What `/proc/stat` says of these processors; those that it does not name are switched off.
fn idle_of(text: &str, allowed: &[usize]) -> Option<Duration> {
    let mut idle_ticks = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let mut words = line.split_ascii_whitespace();
        // The first line is of all together.
        let Some(number) = words.next().filter(|_| !line.starts_with(' ')) else { continue };
        if !allowed.contains(&number.parse().ok()?) {
            continue;
        }
        // Idle, and idle while somebody waits for a device.
        let mut ticks = words.skip(3).map(str::parse::<u64>);
        let (idle, waiting) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
        idle_ticks += idle + waiting;
    }
    Some(Duration::from_millis(10 * idle_ticks))
}

/// The numbers of the processors that the calling thread may run on.
fn allowed_processors() -> Option<Vec<usize>> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: a set of processors is bits, of which all may be 0.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set outlives the call, and is as long as is said. A machine with more processors than it has bits for is refused.
        if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
            return None;
        }
        let most = 8 * size_of::<libc::cpu_set_t>();
        // SAFETY: the number is less than the set has bits.
        Some((0..most).filter(|&number| unsafe { libc::CPU_ISSET(number, &set) }).collect())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Lets another thread run.
pub fn yield_now() {
    if sim::active() { sim::yield_point() } else { std::thread::yield_now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processors_that_are_ours_are_idle_for_us() {
        let text = "cpu  100 0 50 1000 60 0 5 0 0 0\ncpu0 50 0 25 400 10 0 5 0 0 0\ncpu1 50 0 25 500 20 0 0 0 0 0\ncpu10 0 0 0 100 30 0 0 0 0 0\nintr 7 cpu1\n";
        let idle = |allowed: &[usize]| idle_of(text, allowed).map(|idle| idle.as_millis());
        assert_eq!(idle(&[0, 1, 10]), Some(10 * 1060));
        assert_eq!(idle(&[1]), Some(10 * 520));
        assert_eq!(idle(&[10, 11]), Some(10 * 130));
        assert_eq!(idle(&[]), Some(0));
        assert_eq!(idle_of("cpu  1 2\ncpu0 1 2\n", &[0]), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn there_is_a_processor_for_us() {
        assert!(!allowed_processors().unwrap().is_empty());
    }
}
