//! Rows of a table by keys that an index gives, fetched many at a time in the table's order.
//!
//! An index whose order has nothing to do with the table's leads to each page of the table many times. Who is going to read
//! many rows anyway takes as many keys from the index as memory has room for the rows of, goes to the table in the order of
//! its pages, each once, with deep batches ahead, and then gives the rows out in the index's order.
//!
//! # Guarantees
//! 1. Rows leave in the order in which their keys came.
//! 2. Keys and rows are charged to the operator's memory before they are kept. A row there is no room for is not kept: it is
//!    looked up again when its turn comes.
//! 3. Nothing of the budget is asked for while a page is held.

use super::super::{Context, memory::Memory};
use super::ahead::{AT_ONCE, Keys, prefetch};
use crate::Result;
use gannet_store::Tree;

/// Keys of the first round. Each round takes twice as many as the one before, as far as there is room for their rows.
const FIRST_KEYS: usize = 4096;
/// Keys of a round, at most.
const MOST_KEYS: usize = 1 << 20;
/// Bytes of a block of rows. Longer rows are not kept.
const BLOCK: usize = 256 << 10;

/// Where a row is kept.
#[derive(Clone, Copy, Debug)]
struct Place {
    block: u32,
    start: u32,
    end: u32,
}

/// Not kept.
const NOWHERE: Place = Place { block: u32::MAX, start: 0, end: 0 };

/// A round of keys and their rows.
#[derive(Debug)]
pub(super) struct Gathered {
    keys: Keys,
    places: Vec<Place>,
    /// The keys' numbers, in the order of the keys.
    order: Vec<u32>,
    blocks: Vec<Vec<u8>>,
    /// The next to be given out.
    next: usize,
    /// Keys of the next round.
    wanted: usize,
    memory: Memory,
}

impl Gathered {
    pub(super) fn new() -> Self {
        Gathered {
            keys: Keys::default(),
            places: Vec::new(),
            order: Vec::new(),
            blocks: Vec::new(),
            next: 0,
            wanted: FIRST_KEYS,
            memory: Memory::default(),
        }
    }

    /// Fills the next round with keys from `next_key`, which appends one, or says that there are no more; false when there were
    /// none at all.
    pub(super) fn fill(
        &mut self,
        context: &Context<'_>,
        tree: &Tree,
        mut next_key: impl FnMut(&mut Keys) -> Result<bool>,
    ) -> Result<bool> {
        self.keys.clear();
        self.places.clear();
        self.order.clear();
        self.next = 0;
        while self.keys.len() < self.wanted {
            if self.keys.len().is_multiple_of(AT_ONCE) {
                context.check()?;
                if !self.memory.reserve(context, self.bytes())? && self.keys.len() > 0 {
                    break;
                }
            }
            if !next_key(&mut self.keys)? {
                break;
            }
        }
        let count = self.keys.len();
        self.places.resize(count, NOWHERE);
        self.order.extend(0..count as u32);
        let keys = &self.keys;
        self.order.sort_unstable_by(|a, b| keys.get(*a as usize).cmp(keys.get(*b as usize)));
        let kept = self.fetch(context, tree)?;
        self.wanted = if kept == count { (self.wanted * 2).min(MOST_KEYS) } else { kept.max(FIRST_KEYS) };
        Ok(count > 0)
    }

    /// Fetches rows in the table's order, as many as there is room for; gives how many.
    fn fetch(&mut self, context: &Context<'_>, tree: &Tree) -> Result<usize> {
        let (mut block, mut kept) = (0, 0);
        self.blocks.iter_mut().for_each(Vec::clear);
        for turn in 0..self.order.len() {
            if turn % AT_ONCE == 0 {
                context.check()?;
                // One batch is under way while the one before is read.
                let from = if turn == 0 { 0 } else { turn + AT_ONCE };
                let ahead =
                    &self.order[from.min(self.order.len())..(turn + 2 * AT_ONCE).min(self.order.len())];
                prefetch(context, tree, ahead.iter().map(|number| self.keys.get(*number as usize)))?;
            }
            let number = self.order[turn] as usize;
            loop {
                if block == self.blocks.len() && !self.add_block(context)? {
                    return Ok(kept);
                }
                let room = &mut self.blocks[block];
                let start = room.len();
                let fits = context.view.with_value(tree, self.keys.get(number), |row| {
                    let fits = row.len() <= BLOCK - start;
                    if fits {
                        room.extend_from_slice(row);
                    }
                    (fits, row.len())
                })?;
                match fits {
                    Some((true, len)) => {
                        let end = (start + len) as u32;
                        self.places[number] = Place { block: block as u32, start: start as u32, end };
                        kept += 1;
                    }
                    // It may fit into the next one.
                    Some((false, len)) if len <= BLOCK => {
                        block += 1;
                        continue;
                    }
                    // That a row is missing is said when its turn comes.
                    Some((false, _)) | None => kept += 1,
                }
                break;
            }
        }
        Ok(kept)
    }

    fn add_block(&mut self, context: &Context<'_>) -> Result<bool> {
        if !self.memory.reserve(context, self.bytes() + BLOCK)? {
            return Ok(false);
        }
        self.blocks.push(Vec::with_capacity(BLOCK));
        Ok(true)
    }

    fn bytes(&self) -> usize {
        // What belongs to each key is charged with the keys, before it is there.
        let each = size_of::<Place>() + size_of::<u32>();
        self.keys.heap_bytes() + (self.keys.len() + AT_ONCE) * 2 * each + self.blocks.len() * BLOCK
    }

    /// The key whose turn it is, and its row where that was kept; `None`: the round is over.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<&[u8]>)> {
        let place = *self.places.get(self.next)?;
        let key = self.keys.get(self.next);
        self.next += 1;
        let row = self.blocks.get(place.block as usize);
        Some((key, row.map(|block| &block[place.start as usize..place.end as usize])))
    }
}
