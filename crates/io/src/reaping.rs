//! Cooperative waiting: whoever waits also reaps, and nobody sleeps through a completion that concerns him.
//!
//! # Invariants
//! 1. At most one thread is the *reaper*: it alone takes completions from the backend and runs them.
//! 2. `generation` grows, under the lock, after completions were run and never before.
//! 3. A thread sleeps on `changed` only when `generation`, under the lock, is what it was before it last asked its
//!    predicate, and somebody is the reaper or no backend needs one. Whoever makes its predicate true therefore has
//!    not yet raised `generation`, and will wake it when he does.
//! 4. The reaper keeps its role until the completions it took have been run. Nobody else can therefore go to sleep in
//!    the backend waiting for a completion that was taken but not run.
//! 5. Completions run outside the role (refused requests) are announced; when there is a reaper, which may sleep in the
//!    backend, the announcer must wake it there.

use gannet_base::sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Reaping {
    generation: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reaper: bool,
    sleeping: usize,
}

/// Being the reaper; given up on drop, also when a completion panics.
struct Role<'a>(&'a Reaping);

impl Drop for Role<'_> {
    fn drop(&mut self) {
        self.0.advance(true);
    }
}

impl Reaping {
    /// Waits until `done`. `reap`, called while this thread is the reaper, waits for at least one completion (or a
    /// wake-up) and runs what has ended.
    pub(crate) fn wait_until(&self, done: &mut dyn FnMut() -> bool, mut reap: impl FnMut()) {
        self.wait(done, Some(&mut reap));
    }

    /// Waits until `done`, for backends whose own threads run completions.
    pub(crate) fn wait_announced(&self, done: &mut dyn FnMut() -> bool) {
        self.wait(done, None);
    }

    fn wait(&self, done: &mut dyn FnMut() -> bool, mut reap: Option<&mut dyn FnMut()>) {
        loop {
            let seen = self.generation.load(Ordering::Acquire);
            if done() {
                return;
            }
            let mut state = self.state.lock();
            if self.generation.load(Ordering::Acquire) != seen {
                continue;
            }
            match &mut reap {
                Some(reap) if !state.reaper => {
                    state.reaper = true;
                    drop(state);
                    let _role = Role(self);
                    reap();
                }
                _ => {
                    state.sleeping += 1;
                    self.changed.wait(&mut state);
                    state.sleeping -= 1;
                }
            }
        }
    }

    /// Runs `reap` when nobody else is the reaper; it must not wait.
    pub(crate) fn poll(&self, reap: impl FnOnce()) {
        let mut state = self.state.lock();
        if !state.reaper {
            state.reaper = true;
            drop(state);
            let _role = Role(self);
            reap();
        }
    }

    /// Completions were run outside the role. Says whether there is a reaper, to be woken in the backend.
    pub(crate) fn announce(&self) -> bool {
        self.advance(false)
    }

    fn advance(&self, end_of_role: bool) -> bool {
        let mut state = self.state.lock();
        if end_of_role {
            state.reaper = false;
        }
        self.generation.fetch_add(1, Ordering::Release);
        let (sleeping, reaper) = (state.sleeping, state.reaper);
        drop(state);
        if sleeping > 0 {
            self.changed.notify_all();
        }
        reaper
    }
}
