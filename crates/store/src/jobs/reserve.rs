//! Who works when processors are never idle.
//!
//! Threads of jobs mostly stand by ([`Reserve::stand_by`]): they run where a processor has nothing else to do. Where that is never so, the
//! system leaves them a few thousandths of it, in which a job would take days, and what it keeps back for itself, such as log or old
//! versions, grows meanwhile. So each crew that stands by has one thread more, the *reserve*, that does not. When of those who stand by
//! nobody has begun or ended a piece of work for longer than [`STARVED`], though nothing but a processor was missing, they begin nothing any
//! more, so that nothing waits in their hands, and the reserve works in their place: with no more than a part of the processors ([`PART`]), and less where others keep them busy ([`SATURATED`]),
//! where what it waits for one counts as rest; those who stand by have no more there either; and after what it asked of the device it rests as others who ask for it do.
//! One of those who stand by tries now and then what it gets of a processor, and they begin again when that was enough for some time: for
//! longer each time that it was not for long. A piece that is begun too early may be in a starved thread's hands for seconds.

use super::gate::Gate;
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Pieces of work that take longer than this have found no processor, or a slow device.
const STARVED: Duration = Duration::from_millis(100);
/// For how long it is looked whether processors are idle, and for which part of the time one has to be.
const CROWDED_FOR: Duration = Duration::from_millis(200);
const IDLE_PART: u32 = 20;
/// Which part of what all processors do the reserve may have: of a job for which nothing is kept back, and of one for which old versions are,
/// the more the longer it takes.
const PART: u32 = 20;
const PART_SNAPSHOT: u32 = 14;
/// How many times less it may have where others keep processors busy ([`Saturation`](super::saturation::Saturation)): users lose more by it
/// there than what it has of the processors.
const SATURATED: u32 = 3;
/// How long it rests at most for a piece of work, as do those who stand by.
const REST_MOST: Duration = Duration::from_millis(200);
/// How often somebody who is not to work tries whether a processor is idle, for how long it has to have one then, and how long that may
/// take: a piece of work is to be done in less than [`STARVED`].
const TRY_EVERY: Duration = Duration::from_millis(50);
const TRY: Duration = Duration::from_millis(2);
const TRY_MOST: Duration = Duration::from_millis(20);
/// A try that takes longer finds no processor: another thread tries.
const TRY_LOST: Duration = Duration::from_secs(2);
/// For how long that has to go well, at least and at most; it is doubled where it had gone well no longer ago than the most.
const CALM: Duration = Duration::from_millis(200);
const CALM_MOST: Duration = Duration::from_secs(30);
/// How often it looks whether it is needed.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What a thread is for jobs.
#[derive(Clone, Debug, Default)]
pub(super) enum Role {
    #[default]
    Ordinary,
    /// With the reserve of its crew.
    StandsBy(Reserve),
    Reserve(Reserve),
    /// It asks for a processor before each piece of work.
    Asks(Gate),
}

thread_local! {
    static ROLE: RefCell<Role> = const { RefCell::new(Role::Ordinary) };
    /// When it was looked last how long the calling thread had had a processor, and how long that was.
    static COUNTED: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// How long it is since the calling thread asked this last, and how long it has had a processor meanwhile.
pub(super) fn count() -> (Duration, Duration) {
    let (now, had) = (clock::now(), clock::thread_cpu());
    let before = COUNTED.replace(Some((now, had)));
    before.map_or_else(Default::default, |(at, cpu)| (now - at, had.saturating_sub(cpu)))
}

/// The calling thread asks for a processor as long as this lives: see [`ask_for_processors`].
pub(crate) struct Asking(());

/// From now on the calling thread asks for a processor, with whatever permit it takes and may wait for, not where it only tries; it holds nothing
/// then that others wait for. What it reads counts as a job's.
pub(crate) fn ask_for_processors() -> Asking {
    crate::pool::reads::in_background();
    ROLE.set(Role::Asks(Gate::new()));
    Asking(())
}

impl Drop for Asking {
    fn drop(&mut self) {
        ROLE.set(Role::Ordinary);
    }
}

/// What the calling thread is.
pub(super) fn role() -> Role {
    ROLE.with_borrow(Clone::clone)
}

/// Whether the calling thread is the reserve of a crew that is still at work.
pub(super) fn is_reserve() -> bool {
    ROLE.with_borrow(|role| matches!(role, Role::Reserve(reserve) if !reserve.is_dismissed()))
}

/// The thread that does the work of those that stand by where they find no processor, and what these know of it. Clones are the same.
#[derive(Clone, Debug)]
pub struct Reserve {
    dismissed: Arc<(Mutex<bool>, Condvar)>,
    /// Which part of all processors it may have.
    part: u32,
}

impl Default for Reserve {
    fn default() -> Self {
        Reserve { dismissed: Arc::default(), part: PART }
    }
}

impl Reserve {
    /// That of a job that sees one moment of the database: what others change meanwhile is kept for it, and so it has more of the processors.
    pub fn with_snapshot() -> Self {
        Reserve { part: PART_SNAPSHOT, ..Reserve::default() }
    }

    /// How many times as long as the reserve had a processor it takes at least until it has one again, for the next piece of work.
    pub(super) fn slowness(&self, is_saturated: bool) -> u32 {
        (self.part * if is_saturated { SATURATED } else { 1 }).div_ceil(processors())
    }

    /// The calling thread works for a job from now on, and has this reserve: it runs only while nobody else wants the processor, and what it
    /// reads counts as a job's.
    pub fn stand_by(&self) {
        thread::stand_by();
        crate::pool::reads::standing_by();
        ROLE.set(Role::StandsBy(self.clone()));
    }

    /// The calling thread works for a job at full pace from now on, as any other thread does; what it reads counts as a job's.
    pub fn work() {
        crate::pool::reads::in_background();
    }

    /// From now on the calling thread gets permits only while those who stand by are starved, until it is dismissed. It must have nothing
    /// of the job's in hand when it asks for one.
    pub fn enlist(&self) {
        crate::pool::reads::in_background();
        ROLE.set(Role::Reserve(self.clone()));
    }

    /// The others have ended, or it has, or all are to end: who is left is a thread as any other, and waits for nobody in the crew.
    pub fn dismiss(&self) {
        *self.dismissed.0.lock() = true;
        self.dismissed.1.notify_all();
    }

    /// Waits a little, and no longer than this; true when it is dismissed. Those who stand by wait here as well.
    pub(super) fn wait(&self, most: Duration) -> bool {
        self.wait_for(most.min(LOOK_EVERY))
    }

    /// Waits until somebody may try again; true when it is dismissed.
    pub(super) fn wait_to_try(&self) -> bool {
        self.wait_for(TRY_EVERY)
    }

    fn wait_for(&self, limit: Duration) -> bool {
        let mut dismissed = self.dismissed.0.lock();
        if !*dismissed {
            self.dismissed.1.wait_for(&mut dismissed, limit);
        }
        *dismissed
    }

    /// Whether nobody who stands by would get a processor, as far as that can be told: then it is not the device, or the destination, that
    /// they wait for. That takes a while.
    pub(super) fn is_crowded(&self) -> bool {
        let (begun, idle) = (clock::now(), thread::idle_time());
        if self.wait_for(CROWDED_FOR) {
            return false;
        }
        match idle.zip(thread::idle_time()) {
            Some((before, after)) => {
                after.saturating_sub(before) < begun.elapsed() * processors() / IDLE_PART
            }
            None => true,
        }
    }

    /// Whether a processor is idle, as far as one thread can tell.
    pub(super) fn finds_processor() -> bool {
        clock::spin(TRY) <= TRY_MOST
    }

    pub(super) fn is_dismissed(&self) -> bool {
        *self.dismissed.0.lock()
    }
}

/// Processors that this process may use. Asked for once: the system reads files for the answer.
pub(super) fn processors() -> u32 {
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32)
}

/// The pieces of work that those who stand by are at, and what the reserve makes of them. All jobs of an engine share it: where one finds no
/// processor, the others do not either.
#[derive(Debug)]
pub(super) struct Pieces {
    /// How many they are, how many who would begin one rest, and when one was begun or ended last.
    under_way: usize,
    resting: usize,
    changed: Instant,
    /// The reserve works in their place.
    in_reserve: bool,
    /// Nobody tries before.
    next_try: Instant,
    /// Since when each try has gone well.
    calm_since: Option<Instant>,
    /// For how long it has to, and when it had last.
    calm: Duration,
    left: Option<Instant>,
    /// The reserve begins nothing before, nor does who stands by.
    rest_until: Instant,
}

impl Pieces {
    pub(super) fn new(now: Instant) -> Self {
        Pieces {
            under_way: 0,
            resting: 0,
            changed: now,
            in_reserve: false,
            next_try: now,
            calm_since: None,
            calm: CALM,
            left: None,
            rest_until: now,
        }
    }

    /// Nothing is known any more of who finds a processor. What is under way stays.
    pub(super) fn forget(&mut self, now: Instant) {
        *self = Pieces { under_way: self.under_way, resting: self.resting, ..Pieces::new(now) };
    }

    /// Somebody who stands by begins a piece.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.under_way, self.changed) = (self.under_way + 1, now);
    }

    /// It has ended.
    pub(super) fn end(&mut self, now: Instant) {
        (self.under_way, self.changed) = (self.under_way - 1, now);
    }

    /// Somebody who stands by has worked for so long, and is to take no less than `processor` for it.
    pub(super) fn has_worked(&mut self, took: Duration, processor: Duration, now: Instant) {
        let rest = processor.saturating_sub(took).min(REST_MOST);
        if !rest.is_zero() {
            self.rest_until = self.rest_until.max(now) + rest;
        }
    }

    /// Somebody who would begin a piece rests from now on, for so long.
    pub(super) fn begin_rest(&mut self, now: Instant) -> Duration {
        self.resting += 1;
        self.rest(now)
    }

    /// He has got a processor again.
    pub(super) fn end_rest(&mut self) {
        self.resting -= 1;
    }

    /// How long whoever stands by has to rest before he begins something.
    pub(super) fn rest(&self, now: Instant) -> Duration {
        self.rest_until.max(now) - now
    }

    /// Whether nobody who stands by is to begin anything.
    pub(super) fn in_reserve(&self) -> bool {
        self.in_reserve
    }

    /// Whether those who stand by get nothing done.
    pub(super) fn are_stuck(&self, now: Instant) -> bool {
        // While they rest nobody is to get anything done.
        let since = self.changed.max(self.rest_until);
        !self.in_reserve && self.under_way + self.resting > 0 && now - since > STARVED
    }

    /// It is because they find no processor.
    pub(super) fn are_starved(&mut self, now: Instant) {
        if self.are_stuck(now) {
            (self.in_reserve, self.calm_since) = (true, None);
            let relapsed = self.left.is_some_and(|left| now - left < CALM_MOST);
            self.calm = if relapsed { (self.calm * 2).min(CALM_MOST) } else { CALM };
        }
    }

    /// How long the reserve waits before it begins a piece, or looks again whether it is to begin one; nothing when it is to now.
    pub(super) fn until_needed(&self, now: Instant) -> Duration {
        match self.in_reserve {
            true => self.rest(now),
            false => LOOK_EVERY,
        }
    }

    /// Whether it is for the caller to try whether a processor is idle: one after the other does.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        let may = self.in_reserve && now >= self.next_try;
        if may {
            // Unless it ends before.
            self.next_try = now + TRY_LOST;
        }
        may
    }

    /// Somebody who stands by has tried whether a processor is idle.
    pub(super) fn tried(&mut self, went_well: bool, now: Instant) {
        self.next_try = now + TRY_EVERY;
        if !went_well {
            self.calm_since = None;
        } else if self.in_reserve && now - *self.calm_since.get_or_insert(now) >= self.calm {
            (self.in_reserve, self.left) = (false, Some(now));
            self.changed = now;
        }
    }

    /// The reserve has done a piece, which took so long, and is to take no less than `processor`; and so long it rests for the device.
    pub(super) fn end_of_reserve(
        &mut self,
        took: Duration,
        processor: Duration,
        device: Duration,
        now: Instant,
    ) {
        let processor = processor.saturating_sub(took);
        self.rest_until = self.rest_until.max(now) + processor.max(device).min(REST_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_reserve_works_in_place_of_the_starved_until_they_get_a_processor() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        assert!(!pieces.are_stuck(start + ms(1000)), "nobody is at anything");
        pieces.begin(start);
        pieces.begin(start + ms(100));
        assert!(!pieces.are_stuck(start + ms(190)) && pieces.are_stuck(start + ms(210)));
        pieces.are_starved(start + ms(210));
        assert!(pieces.until_needed(start + ms(210)) == ms(0) && pieces.in_reserve());
        pieces.end_of_reserve(ms(10), ms(25), ms(0), start + ms(620));
        assert_eq!(pieces.until_needed(start + ms(630)), ms(5), "it rests");
        pieces.end(start + ms(640));
        pieces.end(start + ms(640));
        assert_eq!(
            pieces.until_needed(start + ms(641)),
            ms(0),
            "nobody who stands by begins anything meanwhile"
        );
        pieces.tried(true, start + ms(700));
        pieces.tried(false, start + ms(800));
        pieces.tried(true, start + ms(850));
        pieces.tried(true, start + ms(1000));
        assert!(pieces.in_reserve());
        pieces.tried(true, start + ms(1050));
        assert!(!pieces.in_reserve() && pieces.until_needed(start + ms(2000)) > ms(0));
    }

    #[test]
    fn what_has_gone_wrong_before_has_to_go_well_for_longer() {
        let mut now = clock::now();
        let mut pieces = Pieces::new(now);
        let mut waits = Vec::new();
        for pause in [0, 0, 0, 0, 40_000] {
            now = now + ms(pause);
            pieces.begin(now);
            now = now + ms(600);
            pieces.are_starved(now);
            assert!(pieces.in_reserve());
            pieces.end(now);
            let begun = now;
            while pieces.in_reserve() {
                pieces.tried(true, now);
                now = now + ms(50);
            }
            waits.push((now - begun).as_millis() / 200);
        }
        assert_eq!(waits, [1, 2, 4, 8, 1]);
    }

    #[test]
    fn a_long_piece_is_no_reason_to_rest_for_ever() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        pieces.begin(start);
        let end = start + Duration::from_secs(10);
        pieces.are_starved(end);
        assert_eq!(pieces.until_needed(end), ms(0));
        pieces.end_of_reserve(end - start, 5 * (end - start), ms(0), end);
        assert_eq!(pieces.until_needed(end), REST_MOST);
        let later = end + REST_MOST;
        pieces.end_of_reserve(end - start, ms(1), end - start, later);
        assert_eq!(pieces.until_needed(later), REST_MOST);
    }

    #[test]
    fn waiting_for_a_processor_is_rest_and_what_the_device_did_is_rested_for() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        pieces.begin(start);
        pieces.are_starved(start + ms(600));
        let mut now = start + ms(700);
        for (took, processor, device, rest) in [
            (ms(5), ms(25), ms(0), ms(20)),
            (ms(20), ms(25), ms(0), ms(5)),
            (ms(64), ms(25), ms(0), ms(0)),
            (ms(64), ms(25), ms(32), ms(32)),
            (ms(20), ms(25), ms(2), ms(5)),
        ] {
            now = now + ms(100);
            pieces.end_of_reserve(took, processor, device, now);
            assert_eq!(pieces.until_needed(now), rest, "after {took:?} of {processor:?}, and {device:?}");
        }
    }

    #[test]
    fn who_stands_by_rests_for_what_all_of_them_had() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        assert_eq!(pieces.rest(start), ms(0));
        pieces.has_worked(ms(10), ms(40), start + ms(10));
        assert_eq!(pieces.rest(start + ms(10)), ms(30));
        pieces.has_worked(ms(20), ms(40), start + ms(20));
        assert_eq!(pieces.rest(start + ms(20)), ms(40), "one after the other");
        pieces.has_worked(ms(40), ms(40), start + ms(60));
        assert_eq!(pieces.rest(start + ms(60)), ms(0));
        pieces.has_worked(ms(1), Duration::from_secs(10), start + ms(61));
        assert_eq!(pieces.rest(start + ms(61)), REST_MOST);
    }

    #[test]
    fn who_has_rested_and_finds_no_processor_is_stuck() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        pieces.has_worked(ms(1), ms(51), start);
        assert_eq!(pieces.begin_rest(start), ms(50));
        assert!(!pieces.are_stuck(start + ms(149)), "it had to rest for a part of that");
        assert!(pieces.are_stuck(start + ms(151)));
        pieces.has_worked(ms(1), ms(0), start + ms(150));
        assert!(pieces.are_stuck(start + ms(151)), "who need not rest changes nothing");
        pieces.end_rest();
        assert!(!pieces.are_stuck(start + ms(151)), "nobody is at anything");
    }

    #[test]
    fn one_tries_after_the_other() {
        let start = clock::now();
        let mut pieces = Pieces::new(start);
        assert!(!pieces.may_try(start), "all of them may work");
        pieces.begin(start);
        pieces.are_starved(start + ms(600));
        assert!(pieces.may_try(start + ms(601)) && !pieces.may_try(start + ms(602)));
        pieces.tried(false, start + ms(640));
        assert!(!pieces.may_try(start + ms(689)) && pieces.may_try(start + ms(690)));
        assert!(!pieces.may_try(start + ms(690) + TRY_EVERY), "the other one has not ended");
        assert!(pieces.may_try(start + ms(690) + TRY_LOST));
    }
}
