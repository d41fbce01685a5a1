//! One thread that looks after clients whose statements run: a statement nobody waits for any more is ended.

use crate::stream::Socket;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::JoinHandle;
use gannet_sql::session::{Interrupt, Reason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often clients are looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// Statements shorter than this are not looked at: most end sooner.
const GRACE: u8 = 1;

#[derive(Debug)]
struct Watched {
    socket: Arc<Socket>,
    interrupt: Interrupt,
    /// Periods it has run.
    age: u8,
}

#[derive(Debug, Default)]
struct State {
    running: BTreeMap<u64, Watched>,
    next: u64,
    stopping: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A statement is running, as long as this lives.
#[derive(Debug)]
pub(crate) struct Watching {
    state: Arc<(Mutex<State>, Condvar)>,
    number: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.state.0.lock().running.remove(&self.number);
    }
}

impl Watch {
    /// Ends the session's statement when the client at the socket goes away.
    pub(crate) fn watch(&self, socket: &Arc<Socket>, interrupt: &Interrupt) -> Watching {
        let mut state = self.state.0.lock();
        let number = state.next;
        state.next += 1;
        let first = state.running.is_empty();
        state
            .running
            .insert(number, Watched { socket: Arc::clone(socket), interrupt: interrupt.clone(), age: 0 });
        drop(state);
        if first {
            self.start();
        }
        Watching { state: Arc::clone(&self.state), number }
    }

    fn start(&self) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let state = Arc::clone(&self.state);
            *thread = Some(gannet_base::thread::spawn("gannet-watch", move || look_after(&state)));
        } else {
            self.state.1.notify_one();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.0.lock().stopping = true;
        self.state.1.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // It has nothing to give back.
            let _ = thread.join();
        }
    }
}

fn look_after((state, changed): &(Mutex<State>, Condvar)) {
    let mut state = state.lock();
    while !state.stopping {
        if state.running.is_empty() {
            changed.wait(&mut state);
            continue;
        }
        changed.wait_for(&mut state, PERIOD);
        let mut old = Vec::new();
        for watched in state.running.values_mut() {
            if watched.age >= GRACE {
                old.push((Arc::clone(&watched.socket), watched.interrupt.clone()));
            }
            watched.age = watched.age.saturating_add(1);
        }
        drop_gone(&old);
    }
}

fn drop_gone(running: &[(Arc<Socket>, Interrupt)]) {
    let mut polled: Vec<PollFd<'_>> =
        running.iter().map(|(socket, _)| PollFd::new(&**socket, PollFlags::RDHUP)).collect();
    // Where the system cannot say, nobody is taken for gone.
    if poll(&mut polled, Some(&Timespec::default())).is_err() {
        return;
    }
    for (fd, (_, interrupt)) in polled.iter().zip(running) {
        if fd.revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            interrupt.interrupt(Reason::User);
        }
    }
}
