//! The rows of a sort's runs, merged by a thread while whoever wants them works on those before.
//!
//! The thread has the runs to itself and hands its rows over by the block; there are [`BLOCKS`] of them, charged before it begins. So it is so many
//! blocks ahead at most, and waits where nobody takes them. It ends behind the last row or, where nobody wants more, behind the block it is at, and
//! nobody goes on without it having ended. There are no more of them than there are processors, whoever has not come to its end counted: a sort
//! beyond that merges its runs itself.

use super::order::SortOrder;
use super::runs::Merge;
use crate::exec::helpers;
use crate::exec::spill::{damaged, row_len};
use crate::{Error, Result};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a block of rows, and how many of them there are.
const BLOCK: usize = if cfg!(test) { 512 } else { 128 << 10 };
const BLOCKS: usize = 4;
/// What is charged for all of them, and for a row that has no place in a block any more.
pub(super) const BYTES: usize = (BLOCKS + 1) * BLOCK;
/// A longer row has no place in them.
pub(super) const ROW_MOST: usize = BLOCK;

/// Threads of all sorts of the process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Leave to have one.
#[derive(Debug)]
struct Leave;

impl Leave {
    fn take() -> Option<Self> {
        let more = |running: usize| (running < helpers::processors()).then_some(running + 1);
        RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Leave)
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the two threads hand over.
#[derive(Debug, Default)]
struct Exchange {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    full: VecDeque<Vec<u8>>,
    empty: Vec<Vec<u8>>,
    /// No more blocks come.
    ended: bool,
    /// Nobody wants more.
    unwanted: bool,
}

/// Says at the end of a scope, however it is left, that no more blocks come.
struct Ends(Arc<Exchange>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Rows of a sort, in their order.
#[derive(Debug)]
pub(super) struct Merged {
    exchange: Arc<Exchange>,
    thread: Option<JoinHandle<Result<()>>>,
    /// The block whose rows are given, and where the next one begins.
    block: Vec<u8>,
    at: usize,
}

impl Merged {
    /// Has a thread merge them; gives the runs back where there is none to be had.
    pub(super) fn begin(order: &Arc<SortOrder>, merge: Merge) -> std::result::Result<Self, Box<Merge>> {
        let Some(leave) = Leave::take() else { return Err(Box::new(merge)) };
        let exchange = Arc::<Exchange>::default();
        exchange.state.lock().empty = (0..BLOCKS - 1).map(|_| Vec::with_capacity(BLOCK)).collect();
        let (runs, ends) = (Arc::new(Mutex::new(Some(merge))), Ends(Arc::clone(&exchange)));
        let (order, taken) = (Arc::clone(order), Arc::clone(&runs));
        let body = move || {
            let (ends, _leave) = (ends, leave);
            let merge = taken.lock().take();
            merge.map_or(Ok(()), |mut merge| fill(&ends.0, &order, &mut merge))
        };
        match thread::try_spawn("gannet-merge", body) {
            Ok(thread) => {
                Ok(Merged { exchange, thread: Some(thread), block: Vec::with_capacity(BLOCK), at: 0 })
            }
            Err(body) => {
                drop(body);
                let merge = runs.lock().take();
                Err(Box::new(merge.expect("nobody has taken the runs")))
            }
        }
    }

    /// The next row, or `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.at == self.block.len() && !self.next_block()? {
            return Ok(None);
        }
        let rest = &self.block[self.at..];
        let row = &rest[..row_len(rest)];
        self.at += row.len();
        Ok(Some(row))
    }

    fn next_block(&mut self) -> Result<bool> {
        self.at = 0;
        self.block.clear();
        let mut state = self.exchange.state.lock();
        while state.full.is_empty() && !state.ended {
            self.exchange.changed.wait(&mut state);
        }
        if let Some(block) = state.full.pop_front() {
            let done = std::mem::replace(&mut self.block, block);
            state.empty.push(done);
            self.exchange.changed.notify_all();
            return Ok(true);
        }
        drop(state);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome.map(|()| false),
            Some(Err(panicked)) => Err(Error::internal(format!("a sort failed: {panicked}"))),
            None => Ok(false),
        }
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.exchange.state.lock().unwanted = true;
            self.exchange.changed.notify_all();
            // Its memory is charged by whoever lets it go: it is not to be in use any more.
            let _ = thread.join();
        }
    }
}

/// The thread's work.
fn fill(exchange: &Exchange, order: &SortOrder, merge: &mut Merge) -> Result<()> {
    // A row that had no place in the block before.
    let mut over = Vec::new();
    loop {
        let mut block = {
            let mut state = exchange.state.lock();
            while state.empty.is_empty() && !state.unwanted {
                exchange.changed.wait(&mut state);
            }
            match state.empty.pop().filter(|_| !state.unwanted) {
                Some(block) => block,
                None => return Ok(()),
            }
        };
        block.append(&mut over);
        let more = loop {
            match merge.next(order)? {
                Some(row) if row.len() <= BLOCK - block.len() => block.extend_from_slice(row),
                // It was written as a shorter one.
                Some(row) if row.len() > BLOCK => return Err(damaged()),
                Some(row) => {
                    over.extend_from_slice(row);
                    break true;
                }
                None => break false,
            }
        };
        let mut state = exchange.state.lock();
        if !block.is_empty() {
            state.full.push_back(block);
        }
        exchange.changed.notify_all();
        if !more {
            return Ok(());
        }
    }
}
