//! Rows of a table by key, fetched in deep batches ahead of their turn.
//!
//! # Guarantees
//! 1. Keys leave in the order in which they came.
//! 2. Between half and all of the window is under way while rows are taken from its front. The window begins small, as
//!    few rows may be wanted, and doubles as long as rows are taken, up to [`MOST_KEYS`] or as memory allows.

use super::super::{Context, memory::Memory};
use crate::Result;
use gannet_store::{Tree, View};

/// Keys under way at first and at most.
const FIRST_KEYS: usize = 16;
const MOST_KEYS: usize = 1024;
/// Bytes of keys, at most.
const MOST_BYTES: usize = 1 << 20;
/// Keys that the store fetches at a time.
pub(super) const AT_ONCE: usize = 256;

/// Keys waiting for their turn, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// Where they end.
    ends: Vec<usize>,
    /// How many of them had their turn.
    taken: usize,
}

impl Keys {
    /// How many are waiting.
    pub(super) fn len(&self) -> usize {
        self.ends.len() - self.taken
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }

    pub(super) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The key at a place behind the front.
    pub(super) fn get(&self, place: usize) -> &[u8] {
        let index = self.taken + place;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// The front had its turn.
    pub(super) fn advance(&mut self) {
        self.taken += 1;
    }

    /// The first ones had their turn, and are forgotten.
    pub(super) fn drop_first(&mut self, count: usize) {
        self.taken += count;
        self.compact();
    }

    /// Forgets those that had their turn.
    fn compact(&mut self) {
        let Some(last) = self.taken.checked_sub(1) else { return };
        let gone = self.ends[last];
        self.bytes.drain(..gone);
        self.ends.drain(..self.taken);
        self.ends.iter_mut().for_each(|end| *end -= gone);
        self.taken = 0;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

/// Keys of rows on their way.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) keys: Keys,
    /// Keys waiting, at most. 1 where nothing is fetched ahead.
    size: usize,
    ahead: bool,
    memory: Memory,
}

impl Window {
    /// `ahead`: whether anything is fetched ahead at all.
    pub(super) fn new(ahead: bool) -> Self {
        Window {
            keys: Keys::default(),
            size: if ahead { FIRST_KEYS } else { 1 },
            ahead,
            memory: Memory::default(),
        }
    }

    /// Begins anew, for somebody who wants `rows` at first.
    pub(super) fn begin(&mut self, rows: usize) {
        self.keys.clear();
        self.size = if self.ahead { rows.clamp(1, FIRST_KEYS) } else { 1 };
    }

    /// Gives everything back.
    pub(super) fn release(&mut self) {
        self.keys = Keys::default();
        self.memory.release();
    }

    /// How many keys shall be added now; 0 while more than half of the window is filled. To be followed by
    /// [`Window::fetch`].
    pub(super) fn wanted(&mut self) -> usize {
        if self.keys.len() > self.size / 2 {
            return 0;
        }
        self.keys.compact();
        self.size - self.keys.len()
    }

    /// Starts fetching the rows of the last `added` keys, and widens the window.
    pub(super) fn fetch(&mut self, context: &Context<'_>, tree: &Tree, added: usize) -> Result<()> {
        if !self.ahead || added == 0 {
            return Ok(());
        }
        let waiting = self.keys.len();
        // A single row is read as soon as one could ask for it.
        if waiting > 1 {
            prefetch(context.view, tree, (waiting - added..waiting).map(|place| self.keys.get(place)))?;
        }
        let room = self.memory.reserve(context, self.keys.heap_bytes())?;
        if room && self.keys.bytes.len() < MOST_BYTES {
            self.size = (self.size * 2).min(MOST_KEYS);
        } else {
            self.size = (self.size / 2).max(FIRST_KEYS);
        }
        Ok(())
    }
}

/// Starts fetching the leaves of some keys.
pub(super) fn prefetch<'k>(view: &View, tree: &Tree, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
    let mut some: Vec<&[u8]> = Vec::with_capacity(AT_ONCE);
    for key in keys {
        some.push(key);
        if some.len() == AT_ONCE {
            view.prefetch(tree, &some)?;
            some.clear();
        }
    }
    if !some.is_empty() {
        view.prefetch(tree, &some)?;
    }
    Ok(())
}
