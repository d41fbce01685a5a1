//! What a session does, for others to look at.
//!
//! Every statement tells its beginning and its end, so that is done without locks: a number for the state and one for each time.
//! Who looks may find the numbers of two moments that follow each other.

use super::database::{now, now_coarse};
use gannet_base::sync::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

/// What a session does.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// `application_name`
    pub application: String,
    /// `active`, `idle`, `idle in transaction`, `idle in transaction (aborted)`
    pub state: &'static str,
    /// The statement that runs, or ran last.
    pub query: String,
    /// When that began, in microseconds since 2000-01-01 UTC, as all times here.
    pub query_start: Option<i64>,
    /// When the transaction began.
    pub transaction_start: Option<i64>,
    /// When `state` changed.
    pub state_change: i64,
    /// Where its client is, if it came over a network.
    pub client: Option<SocketAddr>,
    /// Its client came over a socket of this machine.
    pub local: bool,
}

/// The states, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    Idle,
    Active,
    InTransaction,
    Failed,
}

const STATES: [&str; 4] = ["idle", "active", "idle in transaction", "idle in transaction (aborted)"];

/// No time.
const NEVER: i64 = i64::MIN;

#[derive(Debug, Default)]
struct Told {
    application: String,
    query: String,
    client: Option<SocketAddr>,
    local: bool,
}

/// A session's activity while it goes on.
#[derive(Debug)]
pub struct Live {
    told: Mutex<Told>,
    state: AtomicU8,
    query_start: AtomicI64,
    transaction_start: AtomicI64,
    state_change: AtomicI64,
}

impl Live {
    pub(super) fn new() -> Self {
        Live {
            told: Mutex::new(Told::default()),
            state: AtomicU8::new(State::Idle as u8),
            query_start: AtomicI64::new(NEVER),
            transaction_start: AtomicI64::new(NEVER),
            state_change: AtomicI64::new(now()),
        }
    }

    /// What it does now.
    pub fn look(&self) -> Activity {
        let time = |time: &AtomicI64| Some(time.load(Ordering::Relaxed)).filter(|time| *time != NEVER);
        let told = self.told.lock();
        Activity {
            application: told.application.clone(),
            state: STATES[usize::from(self.state.load(Ordering::Relaxed))],
            query: told.query.clone(),
            query_start: time(&self.query_start),
            transaction_start: time(&self.transaction_start),
            state_change: self.state_change.load(Ordering::Relaxed),
            client: told.client,
            local: told.local,
        }
    }

    pub(super) fn set_client(&self, address: Option<SocketAddr>, application: &str) {
        let mut told = self.told.lock();
        told.client = address;
        told.local = address.is_none();
        application.clone_into(&mut told.application);
    }

    pub(super) fn set_application(&self, name: &str) {
        name.clone_into(&mut self.told.lock().application);
    }

    pub(super) fn set_query(&self, text: &str) {
        text.clone_into(&mut self.told.lock().query);
    }

    /// A statement begins.
    pub(super) fn begin(&self, statement: i64, transaction: i64) {
        self.query_start.store(statement, Ordering::Relaxed);
        self.transaction_start.store(transaction, Ordering::Relaxed);
        self.state_change.store(statement, Ordering::Relaxed);
        self.state.store(State::Active as u8, Ordering::Relaxed);
    }

    /// The statement has ended; `transaction`: when the one began that is still open.
    pub(super) fn end(&self, state: State, transaction: Option<i64>) {
        self.transaction_start.store(transaction.unwrap_or(NEVER), Ordering::Relaxed);
        // It may have begun by the exact clock, which may be ahead of the coarse one.
        let began = self.query_start.load(Ordering::Relaxed);
        let ended = now_coarse();
        self.state_change.store(ended.max(began), Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
    }
}
