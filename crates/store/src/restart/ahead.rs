//! Pages that are due to be redone are read ahead of the thread that redoes them: from the moment the database is open, also while
//! the log is searched for what they are due, by so much at most as does not crowd out what others have in memory.

use crate::core::Core;
use crate::fetch::{Fetch, Source};
use crate::recovery::PageRedo;
use gannet_base::PageId;
use gannet_base::sync::{Condvar, Mutex};
use std::sync::Arc;

/// Part of the frames that it may run ahead by, and how many at most.
const LEAD_SHARE: usize = 4;
const LEAD_MAX: usize = 16_384;
/// Pages between two that are due which are read along: one request costs less than two.
const NEIGHBOURS: u64 = 1;

/// The pages of a redo table that nobody has touched yet.
#[derive(Debug)]
pub(super) struct Ahead {
    redo: Arc<PageRedo>,
    /// By how many places it may be ahead.
    lead: usize,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How far redo has come in the table.
    reached: usize,
    /// The next place whose page is not asked for yet.
    next: usize,
    stop: bool,
}

impl Ahead {
    /// Begins with the first page of the table.
    pub(super) fn start(core: &Arc<Core>, redo: &Arc<PageRedo>) -> Fetch<Self> {
        let lead = (core.pool.active_frames() / LEAD_SHARE).min(LEAD_MAX);
        let redo = Arc::clone(redo);
        Fetch::start(core, Ahead { redo, lead, state: Mutex::default(), moved: Condvar::new() })
    }

    /// Redo has come to this place of the table.
    pub(super) fn reached(&self, place: usize) {
        self.state.lock().reached = place;
        self.moved.notify_all();
    }
}

impl Source for Ahead {
    fn next(&self, most: usize, may_wait: bool) -> Option<Vec<PageId>> {
        let entries = self.redo.table().entries();
        let mut state = self.state.lock();
        loop {
            state.next = state.next.max(state.reached);
            if state.stop || state.next >= entries.len() {
                return None;
            }
            if state.next < state.reached + self.lead {
                break;
            }
            if !may_wait {
                return Some(Vec::new());
            }
            self.moved.wait(&mut state);
        }
        let mut pages = Vec::with_capacity(most);
        let end = (state.next + most).min(entries.len());
        while state.next < end {
            if !self.redo.is_done(state.next) {
                push_with_neighbours(&mut pages, entries[state.next].page);
            }
            state.next += 1;
        }
        Some(pages)
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.moved.notify_all();
    }

    fn arrived(&self, _page: PageId) {}
}

/// Adds a page to those below it, and what lies between it and the last of them where that is near.
fn push_with_neighbours(pages: &mut Vec<PageId>, page: PageId) {
    if let Some(&last) = pages.last().filter(|last| page.0 - last.0 <= NEIGHBOURS + 1) {
        pages.extend((last.0 + 1..page.0).map(PageId));
    }
    pages.push(page);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_read_along_and_large_ones_are_not() {
        let mut pages = Vec::new();
        [1, 2, 4, 7, 20].into_iter().for_each(|page| push_with_neighbours(&mut pages, PageId(page)));
        assert_eq!(pages, [1, 2, 3, 4, 7, 20].map(PageId));
    }
}
