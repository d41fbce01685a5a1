//! The line of a dump: batches in the order of the scan, each on its way from rows to text to the file, and the threads that move them.
//!
//! # What it guarantees
//! 1. What is written is written in the order of the scan, by one thread at a time.
//! 2. There are never more batches under way than there is memory for.
//! 3. However busy others keep the processors, the dump goes on: it shows one moment, and what users change meanwhile is kept for it.
//!
//! # Way
//! Any thread does whatever there is to do: it writes the first batch, if that is text; else makes text of the first one that is none yet; else
//! scans one more. The threads run where a processor is idle. Where none ever is, a piece of work is not done in a time in which it would be
//! done a thousand times over: then they begin nothing, and one thread that does not stand back works in their place, a small part of
//! the time, until they find processors idle again when they try.

use super::scanner::{Rows, Scanning, Shared, Text, Writing, locked};
use crate::{Error, Result};
use gannet_store::Watch;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the caller looks whether it is to end, and whether its threads get anything done.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A piece of work that takes longer than this has found no processor, or a slow device.
const STARVED: Duration = Duration::from_millis(500);
/// How often a thread that is not to work tries whether a processor is idle, how soon it has to run then, and how often in a row.
const TRY_EVERY: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_millis(2);
const SOON_TRIES: u32 = 10;
/// How many times as long as for its last piece of work whoever does that rests, and how long at most.
const REST: u32 = 8;
const REST_MOST: Duration = Duration::from_millis(20);

/// A place in the line.
#[derive(Debug)]
pub(super) enum Item {
    /// A table begins.
    Begin(usize),
    /// Rows of a table.
    Stored(usize, Rows),
    /// Somebody makes text of them.
    Making,
    /// These rows as text.
    Made(Text),
    /// The table ends.
    End,
}

/// A piece of work, before and after.
#[derive(Debug)]
pub(super) enum Piece<'w, 't> {
    /// Scan a batch; afterwards, what came of it.
    Scan(Scanning, Vec<Item>),
    /// Make text of the rows of this number in the line.
    Make(u64, Item),
    /// Write this; afterwards it is gone.
    Write(Writing<'w, 't>, Option<Item>),
}

#[derive(Debug)]
struct State<'w, 't> {
    /// `None` while somebody is at it.
    scanning: Option<Scanning>,
    writing: Option<Writing<'w, 't>>,
    line: VecDeque<Item>,
    /// The number of its first place.
    first: u64,
    /// Pieces that are worked at, and when one was begun or done last.
    running: usize,
    changed: Instant,
    /// It is worked in the threads' place.
    in_place: bool,
    /// How often in a row a processor was idle, since then.
    soon: u32,
    over: bool,
    failure: Option<Error>,
}

struct Line<'s, 'l, 'w, 't> {
    shared: &'s Shared<'l>,
    state: Mutex<State<'w, 't>>,
    turned: Condvar,
    most: usize,
}

/// Moves everything through the line, by so many threads, and with no more than `most` batches at a time.
pub(super) fn run_line<'w, 't>(
    shared: &Shared<'_>,
    writing: Writing<'w, 't>,
    threads: usize,
    most: usize,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let state = State {
        scanning: Some(Scanning::default()),
        writing: Some(writing),
        line: VecDeque::new(),
        first: 0,
        running: 0,
        changed: Instant::now(),
        in_place: false,
        soon: 0,
        over: false,
        failure: None,
    };
    let line = Line { shared, state: Mutex::new(state), turned: Condvar::new(), most };
    let line = &line;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || {
                gannet_store::stand_by();
                line.work(false);
            });
        }
        scope.spawn(move || line.work(true));
        line.look_after(watch)
    })
}

/// A thread that ends by a panic ends the others, too.
struct Watched<'a, 's, 'l, 'w, 't>(&'a Line<'s, 'l, 'w, 't>);

impl Drop for Watched<'_, '_, '_, '_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Some(Error::internal("a thread of the dump has ended by itself")));
        }
    }
}

impl<'w, 't> Line<'_, '_, 'w, 't> {
    /// Works until everything is done. `in_place`: only while the others find no processor.
    fn work(&self, in_place: bool) {
        let _watched = Watched(self);
        while let Some(piece) = self.await_piece(in_place) {
            let permit = self.shared.job.permit();
            let begun = self.begin();
            let done = permit.map_err(Error::from).and_then(|_permit| self.shared.work(piece));
            match done {
                Ok(piece) => self.put_back(piece),
                Err(error) => return self.end(Some(error)),
            }
            if in_place {
                std::thread::sleep((begun.elapsed() * REST).min(REST_MOST));
            }
        }
    }

    /// Waits for something to do; `None`: there is nothing any more.
    fn await_piece(&self, in_place: bool) -> Option<Piece<'w, 't>> {
        let mut state = locked(&self.state);
        loop {
            if state.over {
                return None;
            }
            if state.in_place == in_place
                && let Some(piece) = state.next_piece(self.shared, self.most)
            {
                return Some(piece);
            }
            if state.in_place && !in_place {
                drop(state);
                let soon = tries();
                state = locked(&self.state);
                state.tried(soon);
                if !state.in_place {
                    self.turned.notify_all();
                }
                continue;
            }
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A piece is begun, now.
    fn begin(&self) -> Instant {
        let mut state = locked(&self.state);
        state.running += 1;
        state.changed = Instant::now();
        state.changed
    }

    fn put_back(&self, piece: Piece<'w, 't>) {
        let mut state = locked(&self.state);
        state.running -= 1;
        state.changed = Instant::now();
        match piece {
            Piece::Scan(scanning, items) => {
                state.scanning = Some(scanning);
                state.line.extend(items);
            }
            Piece::Make(number, item) => {
                let place = (number - state.first) as usize;
                state.line[place] = item;
            }
            Piece::Write(writing, _) => state.writing = Some(writing),
        }
        let scanned = state.scanning.as_ref().is_some_and(|scanning| self.shared.is_scanned(scanning));
        state.over |= scanned && state.line.is_empty() && state.writing.is_some();
        drop(state);
        self.turned.notify_all();
    }

    fn end(&self, failure: Option<Error>) {
        let mut state = locked(&self.state);
        state.over = true;
        if let Some(failure) = failure {
            state.failure.get_or_insert(failure);
        }
        drop(state);
        self.turned.notify_all();
    }

    /// Waits for the end, and tells how it goes meanwhile.
    fn look_after(&self, watch: &mut Watch<'_>) -> Result<()> {
        let mut state = locked(&self.state);
        while !state.over {
            if !state.in_place && state.running > 0 && state.changed.elapsed() > STARVED {
                (state.in_place, state.soon) = (true, 0);
                self.turned.notify_all();
            }
            drop(state);
            if let Err(error) = watch.look() {
                self.end(Some(error.into()));
            }
            state = locked(&self.state);
            if !state.over {
                state = self.wait_a_little(state);
            }
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    fn wait_a_little<'g>(&self, state: MutexGuard<'g, State<'w, 't>>) -> MutexGuard<'g, State<'w, 't>> {
        let begun = Instant::now();
        let mut state = state;
        while !state.over {
            let Some(left) = LOOK_EVERY.checked_sub(begun.elapsed()) else { break };
            state = self.turned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

impl<'w, 't> State<'w, 't> {
    /// Takes what is to be done first.
    fn next_piece(&mut self, shared: &Shared<'_>, most: usize) -> Option<Piece<'w, 't>> {
        if matches!(self.line.front(), Some(Item::Begin(_) | Item::Made(_) | Item::End))
            && let Some(writing) = self.writing.take()
        {
            self.first += 1;
            return Some(Piece::Write(writing, self.line.pop_front()));
        }
        if let Some(place) = self.line.iter().position(|item| matches!(item, Item::Stored(..))) {
            let rows = std::mem::replace(&mut self.line[place], Item::Making);
            return Some(Piece::Make(self.first + place as u64, rows));
        }
        let may_scan = self.line.len() < most;
        let scanning = self.scanning.take_if(|scanning| may_scan && !shared.is_scanned(scanning));
        scanning.map(|scanning| Piece::Scan(scanning, Vec::new()))
    }

    /// A thread has tried whether a processor is idle.
    fn tried(&mut self, soon: bool) {
        self.soon = if soon { self.soon + 1 } else { 0 };
        if self.soon >= SOON_TRIES {
            self.in_place = false;
            self.changed = Instant::now();
        }
    }
}

/// Sleeps, and says whether the thread was woken in time.
fn tries() -> bool {
    let begun = Instant::now();
    std::thread::sleep(TRY_EVERY);
    begun.elapsed() < TRY_EVERY + SOON
}
