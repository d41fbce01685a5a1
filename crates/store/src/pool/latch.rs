//! The latch of a page frame, in one word.
//!
//! # What it guarantees
//! 1. At most one exclusive holder, and never together with shared holders.
//! 2. The version grows by one whenever an exclusive holder lets go. A reader that takes no latch reads the version
//!    first, reads the page through relaxed atomic loads, and trusts what it read only if the version is the same
//!    and nobody holds the latch exclusively (a sequence lock; Lamport 1977, "Concurrent reading and writing";
//!    Boehm 2012, "Can seqlocks get along with programming language memory models?").
//! 3. Waiting ends when what is waited for has gone: [`Latch::shared_while`] and [`Latch::exclusive_while`] are told what
//!    the caller still wants the latch for, and ask it again when an exclusive holder says that it has changed
//!    ([`Latch::renew`]). Who found a page's frame in the table holds latches of other pages; if the frame gets another
//!    page meanwhile, its holder may want those, and a wait for the frame would never end.
//! 4. A holder is not tied to a thread: an exclusive latch taken by a loader may be released by whoever finishes the
//!    load.
//! 5. Whoever wants the latch exclusively gets it, however many come for it shared: who has waited for a while says so, and those who
//!    come later wait until he has had it. Who does may hold what a shared holder waits for, so nobody does for longer than [`COURTESY`].
//!
//! Waiters spin briefly, then park on the word's address. `models/` checks all of this in every order that the memory model allows.

use gannet_base::clock;
use gannet_base::sync;
use gannet_base::sync::atomic::{AtomicU64, Ordering, fence};
use std::hint;
use std::time::Duration;

const EXCLUSIVE: u64 = 1 << 63;
const PARKED: u64 = 1 << 62;
const SHARED_ONE: u64 = 1 << 46;
const SHARED_MASK: u64 = 0xFFFF << 46;
/// Whoever comes for the latch shared is to let one go first who wants it exclusively.
const WANTED: u64 = 1 << 45;
const VERSION_MASK: u64 = WANTED - 1;
/// As for a mutex, and longer: a change of a page is logged under its latch.
const SPINS: u32 = 250;
/// How long one who wants the latch exclusively waits, or how often he is woken in vain, before he says so; and for how long others heed it.
const PATIENCE: Duration = Duration::from_micros(200);
const IN_VAIN: u32 = 2;
const COURTESY: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(crate) struct Latch(AtomicU64);

/// What an optimistic reader remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

impl Latch {
    pub(crate) fn try_shared(&self) -> bool {
        sync::yield_point();
        let one_more = |word: u64| (word & EXCLUSIVE == 0).then(|| word + SHARED_ONE);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    }

    /// Latches shared as long as the caller wants that, which may change only before a holder's [`Latch::renew`]. False when
    /// it no longer did; what is true of `wanted` when this gives true, the caller looks up under the latch.
    pub(crate) fn shared_while(&self, wanted: impl Fn() -> bool) -> bool {
        sync::yield_point();
        if self.0.load(Ordering::Relaxed) & (EXCLUSIVE | WANTED) == WANTED {
            self.let_another_go_first();
        }
        self.acquire(EXCLUSIVE, |word| word + SHARED_ONE, wanted)
    }

    /// Waits until whoever wants the latch exclusively has got it, or for as long as courtesy asks: who is woken before, as the last one has let go who shared
    /// it, waits on, or he would be there first again.
    #[cold]
    fn let_another_go_first(&self) {
        let still_wanted = || {
            let set_parked = |word: u64| (word & WANTED != 0).then_some(word | PARKED);
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set_parked).is_ok()
        };
        let begun = clock::now();
        let mut left = COURTESY;
        while self.0.load(Ordering::Relaxed) & WANTED != 0 {
            if left.is_zero() || !sync::park(self.key(), still_wanted, Some(left)) {
                // He may be gone; if he is not, he says it again.
                return self.want_no_more();
            }
            left = COURTESY.saturating_sub(clock::now() - begun);
        }
    }

    /// Nobody is let go first any more: those who wait for that go on.
    fn want_no_more(&self) {
        let before = self.0.fetch_and(!WANTED, Ordering::Relaxed);
        if before & WANTED != 0 && before & PARKED != 0 {
            self.wake();
        }
    }

    pub(crate) fn try_exclusive(&self) -> bool {
        sync::yield_point();
        let word = self.0.load(Ordering::Relaxed);
        let taken = word & (EXCLUSIVE | SHARED_MASK) == 0
            && self.0.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        fence(Ordering::Release);
        taken
    }

    /// Latches exclusively, whoever has to be waited for: only for a frame that is in nobody's reach but for a moment.
    pub(crate) fn exclusive(&self) {
        let latched = self.exclusive_while(|| true);
        debug_assert!(latched);
    }

    /// Like [`Latch::shared_while`], exclusively.
    pub(crate) fn exclusive_while(&self, wanted: impl Fn() -> bool) -> bool {
        sync::yield_point();
        let taken = self.acquire(EXCLUSIVE | SHARED_MASK, |word| (word | EXCLUSIVE) & !WANTED, wanted);
        // The writer's half of the sequence lock: no store to the page may become visible before the exclusive bit.
        fence(Ordering::Release);
        taken
    }

    /// Waits until nobody holds the latch exclusively, or the caller no longer wants that.
    pub(crate) fn wait_while(&self, wanted: impl Fn() -> bool) {
        if self.shared_while(wanted) {
            self.release_shared();
        }
    }

    /// Takes the latch once none of the `blocking` bits is set, unless it is `wanted` no more.
    fn acquire(&self, blocking: u64, taken: impl Fn(u64) -> u64, wanted: impl Fn() -> bool) -> bool {
        let (mut spins, mut parks, mut is_impatient) = (0, 0, false);
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & blocking == 0 {
                if self
                    .0
                    .compare_exchange_weak(word, taken(word), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return true;
                }
            } else if !wanted() {
                if is_impatient {
                    // What the latch guards from now on is not what others were to wait for.
                    self.want_no_more();
                }
                return false;
            } else if spins < SPINS && !gannet_base::sim::active() {
                spins += 1;
                hint::spin_loop();
            } else {
                let marks = if is_impatient { PARKED | WANTED } else { PARKED };
                // Of shared holders there may always be one.
                let patience = (blocking & SHARED_MASK != 0).then_some(PATIENCE);
                let is_woken = self.park(blocking, marks, patience, &wanted);
                parks += 1;
                // Who would share it has to wait for one at a time, and is let in with all the others.
                is_impatient |= patience.is_some() && (!is_woken || parks >= IN_VAIN);
            }
        }
    }

    /// False where nobody let go for as long as the caller waits.
    #[cold]
    fn park(
        &self,
        blocking: u64,
        marks: u64,
        patience: Option<Duration>,
        wanted: &impl Fn() -> bool,
    ) -> bool {
        let still_held = || {
            let set_parked = |word: u64| (word & blocking != 0).then_some(word | marks);
            // Acquires what was changed before any `renew` that came before. One that comes after sees the bit, and wakes.
            self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, set_parked).is_ok() && wanted()
        };
        sync::park(self.key(), still_held, patience)
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub(crate) fn release_shared(&self) {
        let before = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        debug_assert!(before & SHARED_MASK != 0);
        if before & PARKED != 0 && before & SHARED_MASK == SHARED_ONE {
            self.wake();
        }
    }

    pub(crate) fn release_exclusive(&self) {
        self.end_version(EXCLUSIVE);
    }

    /// The exclusive holder keeps the latch and says that it guards something else from now on: whoever waits is to ask
    /// again whether he wants that.
    pub(crate) fn renew(&self) {
        self.end_version(0);
    }

    /// Begins a new version, with some bits gone.
    fn end_version(&self, gone: u64) {
        let next = |word: u64| {
            debug_assert!(word & EXCLUSIVE != 0);
            Some((word & !(gone | VERSION_MASK)) | (word.wrapping_add(1) & VERSION_MASK))
        };
        let before = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, next).expect("always Some");
        if before & PARKED != 0 {
            self.wake();
        }
    }

    /// Lets go without a new version: for a holder that has changed nothing.
    pub(crate) fn release_exclusive_unchanged(&self) {
        let before = self.0.fetch_and(!EXCLUSIVE, Ordering::Release);
        debug_assert!(before & EXCLUSIVE != 0);
        if before & PARKED != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.0.fetch_and(!PARKED, Ordering::Relaxed);
        sync::unpark_all(self.key());
    }

    /// The version, unless the latch is held exclusively.
    #[inline]
    pub(crate) fn optimistic(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    /// Whether everything read since `version` was taken is to be trusted.
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> bool {
        // Loads before this fence are ordered before the load of the word behind it.
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        word & EXCLUSIVE == 0 && word & VERSION_MASK == version.0
    }

    /// Like [`Latch::validate`] for a caller that holds the latch itself.
    pub(crate) fn version_is(&self, version: Version) -> bool {
        self.0.load(Ordering::Relaxed) & VERSION_MASK == version.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_base::sim::Simulation;
    use gannet_base::thread;
    use std::sync::Arc;

    #[test]
    fn exclusive_excludes_under_many_schedules() {
        for seed in 0..50 {
            let run = || {
                let shared = Arc::new((Latch::default(), AtomicU64::new(0)));
                let threads: Vec<_> = (0..3)
                    .map(|i| {
                        let shared = Arc::clone(&shared);
                        thread::spawn("t", move || {
                            for _ in 0..20 {
                                let (latch, inside) = &*shared;
                                if i == 0 {
                                    assert!(latch.shared_while(|| true));
                                    assert_eq!(inside.load(Ordering::Relaxed), 0);
                                    sync::yield_point();
                                    assert_eq!(inside.load(Ordering::Relaxed), 0);
                                    latch.release_shared();
                                } else {
                                    latch.exclusive();
                                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                                    sync::yield_point();
                                    inside.fetch_sub(1, Ordering::Relaxed);
                                    latch.release_exclusive();
                                }
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().unwrap());
                shared.0.optimistic().unwrap()
            };
            assert_eq!(Simulation::new(seed).run(run).unwrap(), Version(40));
        }
    }

    #[test]
    fn an_optimistic_reader_notices_a_writer() {
        let latch = Latch::default();
        let version = latch.optimistic().unwrap();
        assert!(latch.validate(version));
        latch.exclusive();
        assert!(latch.optimistic().is_none() && !latch.validate(version));
        latch.release_exclusive();
        assert!(!latch.validate(version));
    }

    /// Others may have it shared all the time.
    #[test]
    fn whoever_wants_it_exclusively_gets_it_among_many_who_share_it() {
        for seed in 0..20 {
            let run = || {
                let latch = Arc::new(Latch::default());
                let over = Arc::new(AtomicU64::new(0));
                let read = |latch: Arc<Latch>, over: Arc<AtomicU64>| {
                    move || {
                        let mut times = 0_u32;
                        while over.load(Ordering::Relaxed) == 0 {
                            assert!(latch.shared_while(|| true));
                            times += 1;
                            // There is always another one who has it.
                            clock::sleep(Duration::from_micros(100));
                            latch.release_shared();
                        }
                        times
                    }
                };
                let threads: Vec<_> = (0..8)
                    .map(|number| {
                        let read = read(Arc::clone(&latch), Arc::clone(&over));
                        clock::sleep(Duration::from_micros(13 * number));
                        thread::spawn("t", read)
                    })
                    .collect();
                let begun = clock::now();
                latch.exclusive();
                latch.release_exclusive();
                let waited = begun.elapsed();
                over.store(1, Ordering::Relaxed);
                let times: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
                (waited, times)
            };
            let (waited, _) = Simulation::new(seed).max_steps(1_000_000).run(run).unwrap();
            assert!(waited < Duration::from_millis(5), "seed {seed}: {waited:?}");
        }
    }

    /// Else each who came later would wait as long as courtesy asks, for nobody.
    #[test]
    fn nobody_is_wanted_any_more_when_all_have_had_it_or_given_up() {
        for (writers, seed) in (0..100).flat_map(|seed| [(3, seed), (7, seed)]) {
            let run = move || {
                let latch = Arc::new(Latch::default());
                let over = Arc::new(AtomicU64::new(0));
                let work = |number: u64, latch: Arc<Latch>, over: Arc<AtomicU64>| {
                    move || {
                        for time in 0..if number < writers { 10 } else { 30 } {
                            if number < writers {
                                // One of them has had enough soon.
                                let wanted = || number > 0 || over.load(Ordering::Relaxed) < 20;
                                if latch.exclusive_while(wanted) {
                                    clock::sleep(Duration::from_micros(50));
                                    latch.release_exclusive();
                                }
                            } else if latch.shared_while(|| true) {
                                clock::sleep(Duration::from_micros(20 * (number + time % 3)));
                                latch.release_shared();
                                // Whoever comes last has nobody behind him who would hide what is left.
                                if over.load(Ordering::Relaxed) >= 10 * writers {
                                    return;
                                }
                            }
                            over.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                };
                let threads: Vec<_> = (0..8)
                    .map(|number| thread::spawn("t", work(number, Arc::clone(&latch), Arc::clone(&over))))
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                latch.0.load(Ordering::Relaxed)
            };
            let word = Simulation::new(seed).max_steps(1_000_000).run(run).unwrap();
            assert_eq!(word & (WANTED | EXCLUSIVE | SHARED_MASK), 0, "{writers} writers, seed {seed}");
        }
    }
}
