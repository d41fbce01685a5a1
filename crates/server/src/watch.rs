//! One thread that looks after clients whose statements run: a statement nobody waits for any more is ended.
//!
//! A client that has said all it wants to say, and closes only its way of saying more, still waits: who sees to it that something follows the statement,
//! as a goodbye does, has it run to its end, as in PostgreSQL. By TCP a client that is gone looks as one that has closed that way, so behind the last
//! message of all it is taken for gone.
//!
//! A connection registers once. That work begins and ends is told by a counter of its own, so that short statements pay for
//! nothing; work that is still the same after a whole period is looked at.

use crate::stream::Socket;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::JoinHandle;
use gannet_sql::session::{Interrupt, Reason};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often clients are looked at.
const PERIOD: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Watched {
    socket: Arc<Socket>,
    interrupt: Interrupt,
    /// Odd while it works; grows with each beginning and each end.
    work: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// With the count of `work` that was seen last.
    connections: Vec<(Weak<Watched>, u64)>,
    stopping: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A connection that is looked after, as long as this lives.
#[derive(Debug)]
pub(crate) struct Watching(Arc<Watched>);

/// The connection works, as long as this lives.
#[derive(Debug)]
pub(crate) struct Working<'w>(&'w Watched);

impl Watching {
    /// Work begins.
    pub(crate) fn work(&self) -> Working<'_> {
        self.0.work.fetch_add(1, Ordering::Relaxed);
        Working(&self.0)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.work.fetch_add(1, Ordering::Relaxed);
    }
}

impl Watch {
    /// Ends the session's statement when the client at the socket goes away.
    pub(crate) fn watch(&self, socket: &Arc<Socket>, interrupt: &Interrupt) -> Watching {
        let watched =
            Watched { socket: Arc::clone(socket), interrupt: interrupt.clone(), work: AtomicU64::new(0) };
        let watched = Arc::new(watched);
        self.state.0.lock().connections.push((Arc::downgrade(&watched), 0));
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let state = Arc::clone(&self.state);
            *thread = Some(gannet_base::thread::spawn("gannet-watch", move || look_after(&state)));
        } else {
            self.state.1.notify_one();
        }
        Watching(watched)
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
        if state.connections.is_empty() {
            changed.wait(&mut state);
            continue;
        }
        changed.wait_for(&mut state, PERIOD);
        let mut old = Vec::new();
        state.connections.retain_mut(|(connection, seen)| {
            let Some(connection) = connection.upgrade() else { return false };
            let work = connection.work.load(Ordering::Relaxed);
            if work % 2 == 1 && work == *seen {
                old.push(connection);
            }
            *seen = work;
            true
        });
        drop_gone(&old);
    }
}

fn drop_gone(working: &[Arc<Watched>]) {
    let mut polled: Vec<PollFd<'_>> =
        working.iter().map(|watched| PollFd::new(&*watched.socket, PollFlags::RDHUP)).collect();
    // Where the system cannot say, nobody is taken for gone.
    if polled.is_empty() || poll(&mut polled, Some(&Timespec::default())).is_err() {
        return;
    }
    for (fd, watched) in polled.iter().zip(working) {
        if watched.socket.is_gone(fd.revents()) {
            watched.interrupt.interrupt(Reason::User);
        }
    }
}
