//! Threads that work on one job together.

use super::{Reserve, Watch, reserve};
use crate::{Error, Result, fetch};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often whoever waits for the threads looks how they are doing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Says that the others need not go on. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells that a thread has ended, however.
struct Ended {
    left: Arc<(Mutex<usize>, Condvar)>,
    stop: Stop,
    reserve: Reserve,
    is_reserve: bool,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop.set();
        }
        let mut left = self.left.0.lock();
        *left -= 1;
        // Where there is a reserve, it is what is left; where it has ended, there is nothing left to do for the others.
        if *left == 1 || self.is_reserve || self.stop.is_set() {
            self.reserve.dismiss();
        }
        drop(left);
        self.left.1.notify_all();
    }
}

/// How far the threads stand back for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crew {
    /// They run where a processor is idle: for those who hold nothing for longer than it takes to copy a page. Of several the first one is
    /// the [`Reserve`]: bodies take a permit before they take something to do. One alone, who would have nobody to work in its place, is nice.
    StandsBy,
    /// They run as users do, and ask for a processor with each permit: for those who hold latches or locks that others wait for, and must not
    /// be stopped with them.
    AsksFirst,
}

/// What a job fails with that needs one more thread than the system has to give.
pub(crate) fn no_thread() -> Error {
    Error::Invalid("the system has no thread to give for the job".to_owned())
}

/// Runs each body in a thread, which stands back for others but for a job at full pace, until all have ended; who waits for the job is told meanwhile. When one of
/// them fails, the system has no thread for one, or the job is to end, `stop` is set. Gives the first error.
pub(crate) fn run_crew<B: FnOnce() -> Result<()> + Send + 'static>(
    name: &str,
    how: Crew,
    watch: &mut Watch<'_>,
    stop: &Stop,
    bodies: Vec<B>,
) -> Result<()> {
    let left = Arc::new((Mutex::new(bodies.len()), Condvar::new()));
    let reserve = Reserve::default();
    let is_alone = bodies.len() == 1;
    let is_in_haste = watch.job().is_at_full_pace();
    let failure: Arc<Mutex<Option<Error>>> = Arc::default();
    let mut crew = Vec::with_capacity(bodies.len());
    let mut lacks_threads = false;
    for (number, body) in bodies.into_iter().enumerate() {
        let is_reserve = how == Crew::StandsBy && number == 0 && !is_alone;
        let ended =
            Ended { left: Arc::clone(&left), stop: stop.clone(), reserve: reserve.clone(), is_reserve };
        if lacks_threads {
            // One that ends before it has begun.
            drop(ended);
            continue;
        }
        let (own_stop, reserve) = (stop.clone(), reserve.clone());
        let own_failure = Arc::clone(&failure);
        let run = move || {
            let asking = (how == Crew::AsksFirst && !is_in_haste).then(reserve::ask_for_processors);
            match how {
                _ if is_in_haste => Reserve::work(),
                Crew::StandsBy if is_alone => fetch::step_back(),
                Crew::StandsBy if is_reserve => reserve.enlist(),
                Crew::StandsBy => reserve.stand_by(),
                Crew::AsksFirst => {}
            }
            if let Err(error) = body() {
                own_failure.lock().get_or_insert(error);
                own_stop.set();
            }
            drop(asking);
            drop(ended);
        };
        match thread::try_spawn(name, run) {
            Ok(thread) => crew.push(thread),
            Err(run) => {
                failure.lock().get_or_insert(no_thread());
                stop.set();
                lacks_threads = true;
                drop(run);
            }
        }
    }
    let mut outcome = Ok(());
    loop {
        if outcome.is_ok() {
            outcome = watch.look().inspect_err(|_| stop.set());
        }
        if stop.is_set() {
            reserve.dismiss();
        }
        let mut left_now = left.0.lock();
        if *left_now > 0 {
            left.1.wait_for(&mut left_now, LOOK_EVERY);
        }
        if *left_now == 0 {
            break;
        }
    }
    for thread in crew {
        thread.join().map_err(|panic| Error::Invalid(format!("the job broke off: {panic}")))?;
    }
    // Whoever asked for the end is told so, whatever came of it.
    outcome?;
    failure.lock().take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::reserve::{Role, role};
    use crate::jobs::{JobKind, JobOrder, Pace};
    use crate::{Engine, EngineOptions};
    use gannet_io::sim::SimDisk;

    #[test]
    fn threads_stand_back_but_for_a_job_at_full_pace() {
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let stand_back = |pace, how| {
            let job = engine.jobs().begin(JobOrder { pace, ..JobOrder::new(JobKind::Check) });
            let roles = Arc::new(Mutex::new(Vec::new()));
            let body = || {
                let roles = Arc::clone(&roles);
                move || {
                    roles.lock().push(!matches!(role(), Role::Ordinary));
                    Ok(())
                }
            };
            let mut tell = |_: &_| Ok(());
            run_crew("test", how, &mut Watch::new(&job, &mut tell), &Stop::default(), vec![body(), body()])
                .unwrap();
            std::mem::take(&mut *roles.lock())
        };
        for how in [Crew::StandsBy, Crew::AsksFirst] {
            assert_eq!(stand_back(Pace::Auto, how), [true, true], "{how:?}");
            assert_eq!(stand_back(Pace::Full, how), [false, false], "{how:?}");
            engine.set_job_pace(Pace::Full);
            assert_eq!(stand_back(Pace::Auto, how), [false, false], "{how:?}");
            assert_eq!(stand_back(Pace::Latency(Duration::from_millis(1)), how), [true, true], "{how:?}");
            engine.set_job_pace(Pace::Auto);
        }
    }
}
