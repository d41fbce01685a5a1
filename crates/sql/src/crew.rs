//! Threads of a job that stand back for others: they run where a processor is idle, and where none ever is, the job's reserve works
//! ([`Reserve`]). The calling thread, which may be a server's session, only waits, and tells how it goes.
//!
//! # What it guarantees
//! 1. All of them have ended when [`Crew::run`] returns, whatever one of them, or the caller, has ended with.
//! 2. A thread that ends by a panic ends the others.

use crate::{Error, Result};
use gannet_store::{Job, Reserve, Watch};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the caller looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    failure: Option<Error>,
}

/// Threads that work on one thing.
#[derive(Debug)]
pub(crate) struct Crew {
    name: &'static str,
    state: Mutex<State>,
    /// There is nothing to do any more.
    ended: Condvar,
    reserve: Reserve,
}

impl Crew {
    /// Threads of this name.
    pub(crate) fn new(name: &'static str, reserve: Reserve) -> Self {
        Crew { name, state: Mutex::default(), ended: Condvar::new(), reserve }
    }

    /// Whether there is nothing to do any more.
    pub(crate) fn is_over(&self) -> bool {
        locked(&self.state).over
    }

    /// There is nothing to do any more: everything is done, or this has gone wrong.
    pub(crate) fn end(&self, failure: Option<Error>) {
        let mut state = locked(&self.state);
        state.over = true;
        if let Some(failure) = failure {
            state.failure.get_or_insert(failure);
        }
        drop(state);
        self.reserve.dismiss();
        self.ended.notify_all();
    }

    /// Has so many threads that stand by, and the reserve, or for a job at full pace one thread more, run `body`, which returns once it is over; `wake` is to wake those of them that
    /// wait for something to do. `look` fails when the job is to end.
    pub(crate) fn run(
        &self,
        threads: usize,
        body: &(dyn Fn() + Sync),
        wake: &(dyn Fn() + Sync),
        (look, job): (&mut dyn FnMut() -> Result<()>, &Job),
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let spawn = |enlist: fn(&Reserve)| {
                let thread = std::thread::Builder::new().name(self.name.to_owned());
                let work = move || {
                    let _watched = Watched(self, wake);
                    enlist(&self.reserve);
                    body();
                };
                let thread = thread.spawn_scoped(scope, work);
                thread
                    .inspect_err(|error| {
                        self.end(Some(Error::internal(format!("cannot start a thread: {error}"))));
                    })
                    .ok()
            };
            let is_in_haste = job.is_at_full_pace();
            let stand_by = if is_in_haste { |_: &Reserve| Reserve::work() } else { Reserve::stand_by };
            let enlist = if is_in_haste { |_: &Reserve| Reserve::work() } else { Reserve::enlist };
            let mut crew: Vec<_> = (0..threads).map(|_| spawn(stand_by)).collect();
            crew.push(spawn(enlist));
            self.look_after(look, job);
            wake();
            for thread in crew.into_iter().flatten() {
                // What a panic has ended says so by itself.
                let _ = thread.join();
            }
        });
        locked(&self.state).failure.take().map_or(Ok(()), Err)
    }

    /// Waits for the end, and looks again and again whether the job is to end before.
    fn look_after(&self, look: &mut dyn FnMut() -> Result<()>, job: &Job) {
        loop {
            let state = locked(&self.state);
            let waited = self.ended.wait_timeout_while(state, LOOK_EVERY, |state| !state.over);
            if waited.unwrap_or_else(PoisonError::into_inner).0.over {
                return;
            }
            if let Err(error) = look() {
                self.end(Some(error));
                // Whoever waits for somebody else need not wait any longer. Where somebody has cancelled the job, it is told so already.
                job.break_off();
            }
        }
    }
}

/// A thread that ends by a panic ends the others, too.
struct Watched<'c>(&'c Crew, &'c (dyn Fn() + Sync));

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Some(Error::internal(format!("a thread {:?} has ended by itself", self.0.name))));
            (self.1)();
        }
    }
}

/// Goes through work that is one piece after the other, each by whoever of a few threads has a processor: `step` does the next one, and says
/// whether it was the last. Gives the work back.
pub(crate) fn take_turns<W: Send>(
    crew: &Crew,
    work: W,
    step: &(dyn Fn(&mut W) -> Result<bool> + Sync),
    watch: &mut Watch<'_>,
) -> Result<W> {
    let (baton, free) = (Mutex::new(Some(work)), Condvar::new());
    let wake = || {
        // Nobody is between looking and waiting then.
        drop(locked(&baton));
        free.notify_all();
    };
    let job = watch.job();
    let body = || {
        while let Some(permit) = await_turn(crew, &baton, &free, job) {
            // Others may have been faster.
            let Some(mut work) = locked(&baton).take() else { continue };
            let done = step(&mut work);
            *locked(&baton) = Some(work);
            drop(permit);
            match done {
                Ok(false) => {}
                Ok(true) => crew.end(None),
                Err(error) => crew.end(Some(error)),
            }
            free.notify_all();
        }
        wake();
    };
    crew.run(1, &body, &wake, (&mut || Ok(watch.look()?), job))?;
    baton.into_inner().unwrap_or_else(PoisonError::into_inner).ok_or_else(|| Error::internal("work got lost"))
}

/// Waits until nobody is at the work, and for leave to do the next piece; `None`: it is over.
fn await_turn<W>(
    crew: &Crew,
    baton: &Mutex<Option<W>>,
    free: &Condvar,
    job: &Job,
) -> Option<gannet_store::Permit> {
    let work = locked(baton);
    let work = free.wait_while(work, |work| work.is_none() && !crew.is_over());
    drop(work.unwrap_or_else(PoisonError::into_inner));
    if crew.is_over() {
        return None;
    }
    job.permit().map_err(|error| crew.end(Some(error.into()))).ok()
}
