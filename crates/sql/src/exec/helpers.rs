//! Threads beside a statement's own.

use gannet_store::{ThreadReads, thread_reads};
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Helpers of all statements of the process.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// How many there may be: each statement has a thread of its own, so that with one fewer than there are processors one statement alone has all
/// of them, and many have no more than they would have anyway.
fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get) - 1)
}

/// Leave to have so many threads work beside the statement's own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Helpers(usize);

impl Helpers {
    /// So many at most; `None` where there are none to be had.
    pub(super) fn take(wanted: usize) -> Option<Self> {
        let mut got = 0;
        let take = |taken: usize| {
            got = wanted.min(most().saturating_sub(taken));
            (got > 0).then_some(taken + got)
        };
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Helpers(got))
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.0
    }

    /// Runs `work` in each of them and in the calling thread, and gives what they came to, this thread's first, with the pages that each has asked for. Where
    /// the system has no thread to give there are fewer. `None` of one that has ended by a panic.
    pub(super) fn run<T: Send>(&self, work: &(dyn Fn() -> T + Sync)) -> Vec<(Option<T>, ThreadReads)> {
        let counted = move || {
            let before = thread_reads();
            let result = work();
            (Some(result), thread_reads().since(before))
        };
        thread::scope(|scope| {
            let start = |number| {
                let named = thread::Builder::new().name(format!("gannet-helper-{number}"));
                named.spawn_scoped(scope, counted).ok()
            };
            let helpers: Vec<_> = (1..=self.0).map_while(start).collect();
            let mut done = vec![counted()];
            done.extend(helpers.into_iter().map(|helper| helper.join().unwrap_or_default()));
            done
        })
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_processors_and_all_come_back() {
        let mut held = Vec::new();
        while let Some(helpers) = Helpers::take(2) {
            held.push(helpers);
            assert!(held.len() <= most());
        }
        // Tests beside this one may have some.
        assert!(held.iter().map(Helpers::count).sum::<usize>() <= most());
        let Some(helpers) = held.first() else { return };
        let results = helpers.run(&|| thread::current().id());
        assert_eq!(results[0].0, Some(thread::current().id()));
        assert!(results[1..].iter().all(|(id, _)| id.is_some() && *id != results[0].0));
    }
}
