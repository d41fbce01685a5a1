//! Who works when processors are never idle.
//!
//! Threads of jobs mostly stand by: they run where a processor has nothing else to do (`fetch::stand_by`). Where that is never so, the system
//! leaves them a few thousandths of it, in which a job would take days, and what it keeps back for itself, such as log or old versions,
//! grows meanwhile. So each crew that stands by has one thread more, the *reserve*, that does not. When somebody who stands by has been at
//! one piece of work for longer than [`STARVED`], the others begin nothing any more, so that nothing waits in their hands, and the
//! reserve works in their place: it rests for [`REST`] times as long as a piece took. Those who stand by try now and then
//! whether they are woken in time, and begin again when that was so [`SOON_TRIES`] times in a row.

use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// A piece of work that takes longer than this has found no processor, or a slow device.
const STARVED: Duration = Duration::from_millis(250);
/// How many times as long as for its last piece of work the reserve rests, and how long at most.
const REST: u32 = 8;
const REST_MOST: Duration = Duration::from_millis(200);
/// How often a thread that is not to work tries whether a processor is idle, how soon it has to run then, and how often in a row.
const TRY_EVERY: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_millis(2);
const SOON_TRIES: u32 = 10;
/// How often it looks whether it is needed.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What a thread is for jobs.
#[derive(Clone, Debug, Default)]
pub(super) enum Role {
    #[default]
    Ordinary,
    StandsBy,
    Reserve(Reserve),
}

thread_local! {
    static ROLE: RefCell<Role> = const { RefCell::new(Role::Ordinary) };
}

/// What the calling thread is.
pub(super) fn role() -> Role {
    ROLE.with_borrow(Clone::clone)
}

/// The calling thread stands by from now on.
pub(crate) fn stands_by() {
    ROLE.set(Role::StandsBy);
}

/// The thread that does the work of those that stand by where they find no processor. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Reserve(Arc<(Mutex<bool>, Condvar)>);

impl Reserve {
    /// From now on the calling thread gets permits only while those who stand by are starved, until it is dismissed. It must have nothing
    /// of the job's in hand when it asks for one.
    pub fn enlist(&self) {
        crate::pool::reads::in_background();
        ROLE.set(Role::Reserve(self.clone()));
    }

    /// The others have ended: it is a thread as any other.
    pub fn dismiss(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    /// Waits a little; true when it is dismissed.
    pub(super) fn wait(&self) -> bool {
        let mut dismissed = self.0.0.lock();
        if !*dismissed {
            self.0.1.wait_for(&mut dismissed, LOOK_EVERY);
        }
        *dismissed
    }

    pub(super) fn is_dismissed(&self) -> bool {
        *self.0.0.lock()
    }
}

/// The pieces of work that those who stand by are at, and what the reserve makes of them. All jobs of an engine share it: where one finds no
/// processor, the others do not either.
#[derive(Debug)]
pub(super) struct Pieces {
    /// The number of each, and when it was begun.
    begun: Vec<(u64, Instant)>,
    /// Pieces so far.
    count: u64,
    /// The reserve works in their place.
    in_reserve: bool,
    /// How often in a row a processor was idle, since then.
    soon: u32,
    /// The reserve begins nothing before.
    rest_until: Instant,
}

impl Pieces {
    pub(super) fn new(now: Instant) -> Self {
        Pieces { begun: Vec::new(), count: 0, in_reserve: false, soon: 0, rest_until: now }
    }

    /// Somebody who stands by begins a piece; gives its number.
    pub(super) fn begin(&mut self, now: Instant) -> u64 {
        self.count += 1;
        self.begun.push((self.count, now));
        self.count
    }

    pub(super) fn end(&mut self, number: u64) {
        self.begun.retain(|&(other, _)| other != number);
    }

    /// Whether nobody who stands by is to begin anything.
    pub(super) fn in_reserve(&self) -> bool {
        self.in_reserve
    }

    /// Whether the reserve is to begin a piece.
    pub(super) fn needs_reserve(&mut self, now: Instant) -> bool {
        if !self.in_reserve && self.begun.iter().any(|&(_, began)| now - began > STARVED) {
            (self.in_reserve, self.soon) = (true, 0);
        }
        self.in_reserve && now >= self.rest_until
    }

    /// Somebody who stands by has tried whether a processor is idle.
    pub(super) fn tried(&mut self, soon: bool, now: Instant) {
        self.soon = if soon { self.soon + 1 } else { 0 };
        if self.in_reserve && self.soon >= SOON_TRIES {
            self.in_reserve = false;
            // What is still in somebody's hands has found a processor by now.
            self.begun.iter_mut().for_each(|(_, began)| *began = now);
        }
    }

    /// The reserve has done a piece.
    pub(super) fn end_of_reserve(&mut self, began: Instant, now: Instant) {
        self.rest_until = now + ((now - began) * REST).min(REST_MOST);
    }
}

/// Sleeps, and says whether the thread was woken in time: whether a processor is idle.
pub(super) fn tries() -> bool {
    let begun = clock::now();
    clock::sleep(TRY_EVERY);
    begun.elapsed() < TRY_EVERY + SOON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_works_in_place_of_the_starved_until_they_are_woken_in_time() {
        let ms = Duration::from_millis;
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        assert!(!pieces.needs_reserve(start + ms(1000)), "nobody is at anything");
        let (first, second) = (pieces.begin(start), pieces.begin(start + ms(100)));
        assert!(!pieces.needs_reserve(start + ms(240)));
        assert!(pieces.needs_reserve(start + ms(260)) && pieces.in_reserve());
        pieces.end_of_reserve(start + ms(260), start + ms(270));
        assert!(!pieces.needs_reserve(start + ms(340)), "it rests");
        pieces.end(first);
        pieces.end(second);
        assert!(pieces.needs_reserve(start + ms(351)), "nobody who stands by begins anything meanwhile");
        for soon in [true, true, false] {
            pieces.tried(soon, start + ms(400));
        }
        for _ in 1..SOON_TRIES {
            pieces.tried(true, start + ms(600));
        }
        assert!(pieces.in_reserve());
        pieces.tried(true, start + ms(600));
        assert!(!pieces.in_reserve() && !pieces.needs_reserve(start + ms(700)));
    }

    #[test]
    fn a_long_piece_is_no_reason_to_rest_for_ever() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        pieces.begin(start);
        let end = start + Duration::from_secs(10);
        assert!(pieces.needs_reserve(end));
        pieces.end_of_reserve(start, end);
        assert!(pieces.needs_reserve(end + REST_MOST));
    }
}
