//! Who holds garbage back for longer than permitted is ended.
//!
//! # What it guarantees
//! 1. Only who holds some garbage back is ended, and only when that has taken longer than its own limit: a snapshot that is merely old
//!    harms nobody. How long it has taken counts from the look at which it was first seen to hold something, and from its own beginning at the earliest.
//! 2. Who is ended sees nothing more and does not commit: each further step fails with [`crate::Error::TooOld`]. What it holds back goes when
//!    its owner lets go of it, as the owner may be looking at it; the layer above is told, and ends the session.

use super::report::GarbageHolder;
use crate::shared::Shared;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked for those who are to end.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Who is told of those who are ended.
type Listener = Box<dyn Fn(&GarbageHolder) + Send + Sync>;

/// See the module's head.
pub(crate) struct Holders {
    /// The limit of transactions that have none of their own.
    pub(crate) limit: Option<Duration>,
    /// There was a transaction with a limit.
    limited: AtomicBool,
    looked: Mutex<Looked>,
    listener: OnceLock<Listener>,
}

/// What the looks have seen.
#[derive(Default)]
struct Looked {
    last: Option<Instant>,
    /// Since when owners with a limit have been seen to hold something back at every look, by their numbers.
    holding: BTreeMap<u64, Instant>,
}

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holders").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Holders {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Holders {
            limit,
            limited: AtomicBool::new(false),
            looked: Mutex::default(),
            listener: OnceLock::new(),
        }
    }

    /// A transaction with a limit has begun.
    pub(crate) fn some_limited(&self) {
        if !self.limited.load(Ordering::Relaxed) {
            self.limited.store(true, Ordering::Relaxed);
        }
    }

    /// Has `listener` told of everybody who is ended. Once.
    pub(crate) fn listen(&self, listener: Listener) {
        let first = self.listener.set(listener).is_ok();
        assert!(first, "there is one listener");
    }
}

impl Shared {
    /// Ends those who have held garbage back for too long, where it is time to look for them.
    pub(crate) fn end_old_holders(&self) {
        if !self.holders.limited.load(Ordering::Relaxed) {
            return;
        }
        let now = clock::now();
        let mut looked = self.holders.looked.lock();
        if looked.last.is_some_and(|last| now - last < LOOK_EVERY) {
            return;
        }
        looked.last = Some(now);
        // All of them, also those who are too many to be named.
        let mut holders = self.garbage_and_all().holders;
        holders.retain(|holder| holder.held_bytes > 0 && holder.limit_seconds.is_some());
        let before = std::mem::take(&mut looked.holding);
        let since = |number: u64| before.get(&number).copied().unwrap_or(now);
        looked.holding = holders.iter().map(|holder| (holder.number, since(holder.number))).collect();
        drop(looked);
        for holder in holders {
            // Of statements that follow one another each has a snapshot of its own.
            let held = (now - since(holder.number)).as_secs_f64().min(holder.age_seconds);
            let over = holder.limit_seconds.is_some_and(|limit| held > limit);
            if !over || !self.registry.expire(holder.number) {
                continue;
            }
            for txn in self.registry.active() {
                if txn.handle() == holder.number {
                    self.registry.doom(txn.id());
                }
            }
            if let Some(listener) = self.holders.listener.get() {
                listener(&holder);
            }
        }
    }
}
