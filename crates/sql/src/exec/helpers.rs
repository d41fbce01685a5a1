//! Threads beside a statement's own.

use gannet_store::{add_thread_reads, thread_reads};
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Helpers of all statements of the process.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Processors that threads of this process may run on.
pub(super) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// How many there may be: one fewer than there are processors, as each statement has a thread of its own.
fn most() -> usize {
    processors() - 1
}

/// Of one statement at most: each reads ahead into frames of its own, some hundredths of all there are.
const MOST_EACH: usize = 3;

/// How many threads a statement may work with, its own included, where it wants so many helpers and others have none; `None`: its own alone.
pub(super) fn threads(wanted: usize) -> Option<usize> {
    let helpers = wanted.min(MOST_EACH).min(most());
    (helpers > 0).then_some(helpers + 1)
}

/// Leave to have so many threads work beside the statement's own, until it is dropped.
#[derive(Debug)]
pub(super) struct Helpers {
    number: usize,
    /// Where they are counted.
    taken: &'static AtomicUsize,
}

impl Helpers {
    /// So many at most; none where others have them all.
    pub(super) fn take(wanted: usize) -> Self {
        Self::take_of(&TAKEN, wanted)
    }

    fn take_of(taken: &'static AtomicUsize, wanted: usize) -> Self {
        let mut got = 0;
        let take = |taken: usize| {
            got = wanted.min(MOST_EACH).min(most().saturating_sub(taken));
            (got > 0).then_some(taken + got)
        };
        let number = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_or(0, |_| got);
        Helpers { number, taken }
    }

    /// Others have them all.
    pub(super) fn is_none(&self) -> bool {
        self.number == 0
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.number
    }

    /// Runs `work` in each of them and in the calling thread, and gives what they came to, this thread's first: `None` of one that has ended by a
    /// panic. Where the system has no thread to give there are fewer. Pages that helpers have asked for count as the calling thread's.
    pub(super) fn run<T: Send>(&self, work: &(dyn Fn() -> T + Sync)) -> Vec<Option<T>> {
        let counted = move || {
            let before = thread_reads();
            let result = work();
            (result, thread_reads().since(before))
        };
        thread::scope(|scope| {
            let start = |number| {
                let named = thread::Builder::new().name(format!("gannet-helper-{number}"));
                named.spawn_scoped(scope, counted).ok()
            };
            let helpers: Vec<_> = (1..=self.number).map_while(start).collect();
            let mut done = vec![Some(work())];
            for helper in helpers {
                let result = helper.join().ok();
                if let Some((_, reads)) = &result {
                    add_thread_reads(*reads);
                }
                done.push(result.map(|(result, _)| result));
            }
            done
        })
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_processors_and_all_come_back() {
        // Of its own: those of the process are taken by tests beside this one, too.
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let mut held: Vec<Helpers> = (0..most() + 3).map(|_| Helpers::take_of(&TAKEN, 2)).collect();
        assert_eq!(held.iter().map(Helpers::len).sum::<usize>(), most());
        assert_eq!(TAKEN.load(Ordering::Relaxed), most());
        held.retain(|helpers| !helpers.is_none());
        if let Some(helpers) = held.first() {
            let results = helpers.run(&|| thread::current().id());
            assert_eq!((results.len(), results[0]), (helpers.len() + 1, Some(thread::current().id())));
            assert!(results[1..].iter().all(|id| id.is_some() && *id != results[0]));
        }
        drop(held);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_helper_that_panics_is_told_of() {
        static TAKEN: AtomicUsize = AtomicUsize::new(2);
        let outcomes = Helpers { number: 2, taken: &TAKEN }.run(&|| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            assert_ne!(name, "gannet-helper-2", "planted");
            name
        });
        assert_eq!((outcomes[1].as_deref(), outcomes[2].as_deref()), (Some("gannet-helper-1"), None));
    }
}
