//! The line of a dump: batches in the order of the scan, each on its way from rows to text to the file, and the threads that move them.
//!
//! # What it guarantees
//! 1. What is written is written in the order of the scan, by one thread at a time.
//! 2. There are never more batches under way than there is memory for, and none has much more text than that.
//! 3. However busy others keep the processors, the dump goes on: it shows one moment, and what users change meanwhile is kept for it.
//!
//! # Way
//! Any thread does whatever there is to do: it gives the first batch to whoever reads a stream, if the dump goes to one; else makes text of the first
//! one that is none yet, which asks nothing of the device; else writes the first one to its file; else scans one more. The threads are a [`Crew`].

use super::scanner::{Rows, Scanning, Shared, Text, Writing};
use crate::crew::{Crew, locked};
use crate::{Error, Result};
use gannet_store::{Reserve, Watch};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

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
    /// The first ones of these rows as text, which is enough for a batch; the others wait for it to be written.
    Part(Text, usize, Rows),
    /// The table ends.
    End,
}

/// What a piece of work needs, before all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    Processor,
    Device,
    /// Whoever reads a stream, who may take his time: nobody has a permit meanwhile.
    Reader,
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
}

struct Line<'s, 'l, 'w, 't> {
    shared: &'s Shared<'l>,
    state: Mutex<State<'w, 't>>,
    /// There may be something to do.
    turned: Condvar,
    most: usize,
    crew: Crew,
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
    };
    let crew = Crew::new("gannet-dump", Reserve::with_snapshot());
    let line = Line { shared, state: Mutex::new(state), turned: Condvar::new(), most, crew };
    let (view, job) = (shared.view, watch.job());
    // A reader may keep all of them from coming by.
    let mut look = || Ok(watch.look().and_then(|()| view.check_limit())?);
    line.crew.run(threads, &|| line.work(), &|| line.wake(), (&mut look, job))
}

impl<'w, 't> Line<'_, '_, 'w, 't> {
    /// Works until everything is done.
    fn work(&self) {
        while let Some(need) = self.await_piece() {
            let job = self.shared.job;
            let permit = match need {
                Need::Processor => job.processor_permit().map(Some),
                Need::Device => job.permit().map(Some),
                Need::Reader => Ok(None),
            };
            let _permit = match permit {
                Ok(permit) => permit,
                Err(error) => return self.end(Some(error.into())),
            };
            // Others may have been faster.
            let mut state = locked(&self.state);
            let Some(piece) = state.next_piece(need, self.shared, self.most) else { continue };
            // Of a batch whose beginning is written there may be rows left.
            if matches!(piece, Piece::Write(..)) && state.first_stored() == Some(0) {
                self.turned.notify_all();
            }
            drop(state);
            match self.shared.work(piece) {
                Ok(piece) => self.put_back(piece),
                Err(error) => return self.end(Some(error)),
            }
        }
    }

    /// Waits for something to do, and says what it needs; `None`: there is nothing any more.
    fn await_piece(&self) -> Option<Need> {
        let mut state = locked(&self.state);
        while !self.crew.is_over() && !state.has_piece(self.shared, self.most) {
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!self.crew.is_over()).then(|| state.next_need(self.shared))
    }

    fn put_back(&self, piece: Piece<'w, 't>) {
        let mut state = locked(&self.state);
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
        let over = scanned && state.line.is_empty() && state.writing.is_some();
        drop(state);
        match over {
            true => self.end(None),
            false => self.turned.notify_all(),
        }
    }

    fn end(&self, failure: Option<Error>) {
        self.crew.end(failure);
        self.wake();
    }

    fn wake(&self) {
        // Nobody is between looking and waiting then.
        drop(locked(&self.state));
        self.turned.notify_all();
    }
}

impl<'w, 't> State<'w, 't> {
    fn may_write(&self) -> bool {
        let first =
            matches!(self.line.front(), Some(Item::Begin(_) | Item::Made(_) | Item::Part(..) | Item::End));
        first && self.writing.is_some()
    }

    /// Where the first batch is that is no text yet.
    fn first_stored(&self) -> Option<usize> {
        self.line.iter().position(|item| matches!(item, Item::Stored(..)))
    }

    fn may_scan(&self, shared: &Shared<'_>, most: usize) -> bool {
        let is_left = self.scanning.as_ref().is_some_and(|scanning| !shared.is_scanned(scanning));
        is_left && self.line.len() < most
    }

    fn has_piece(&self, shared: &Shared<'_>, most: usize) -> bool {
        self.may_write() || self.first_stored().is_some() || self.may_scan(shared, most)
    }

    /// What the piece needs that is to be done first.
    fn next_need(&self, shared: &Shared<'_>) -> Need {
        match (self.may_write() && shared.has_reader, self.first_stored()) {
            (true, _) => Need::Reader,
            (false, Some(_)) => Need::Processor,
            (false, None) => Need::Device,
        }
    }

    /// Takes the first batch, or as much of it as is text.
    fn take_first(&mut self) -> Option<Item> {
        let first = self.line.pop_front();
        if let Some(Item::Part(text, table, rest)) = first {
            self.line.push_front(Item::Stored(table, rest));
            return Some(Item::Made(text));
        }
        self.first += 1;
        first
    }

    /// Takes what is to be done first of what needs this.
    fn next_piece(&mut self, need: Need, shared: &Shared<'_>, most: usize) -> Option<Piece<'w, 't>> {
        if need == Need::Processor {
            let place = self.first_stored()?;
            let rows = std::mem::replace(&mut self.line[place], Item::Making);
            return Some(Piece::Make(self.first + place as u64, rows));
        }
        if (need == Need::Reader) == shared.has_reader
            && self.may_write()
            && let Some(writing) = self.writing.take()
        {
            return Some(Piece::Write(writing, self.take_first()));
        }
        if need == Need::Reader || !self.may_scan(shared, most) {
            return None;
        }
        self.scanning.take().map(|scanning| Piece::Scan(scanning, Vec::new()))
    }
}
