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

use super::super::arena::{TOUCHED, touch};
use super::super::{Context, memory::Memory};
use super::ahead::{AT_ONCE, Keys, prefetch};
use crate::Result;
use gannet_store::{Scan, Tree, thread_reads};
use std::ops::Bound;

/// Keys of the first round. Each round takes twice as many as the one before, as far as there is room for their rows.
const FIRST_KEYS: usize = 4096;
/// Keys of a round, at most.
const MOST_KEYS: usize = 1 << 20;
/// Bytes of a block of rows. Longer rows are not kept.
const BLOCK: usize = 256 << 10;
/// Keys for each leaf of the table from which on all of it is read, in its order: leaves side by side are read together, and a copy of one serves
/// its keys better than a way to it for each.
const DENSE: usize = 2;
/// Pages waited for one by one from which on keys are asked for one by one, ahead: so many, and one for so many keys.
const WAITED_MOST: u64 = 16;
const KEYS_OF_A_WAIT: u64 = 32;

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
    /// The keys' numbers, in the order of the keys, each with the first bytes in which keys differ.
    order: Vec<(u64, u32)>,
    /// Finds the rows of keys that share leaves.
    finder: Option<Box<Scan>>,
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
            finder: None,
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
        self.sort();
        let kept = self.fetch(context, tree)?;
        // Rows that there is no room for are looked up one by one: no more are asked for than are likely to have some.
        let each = self.bytes().div_ceil(count.max(1));
        let room = usize::try_from(context.work_limit()).unwrap_or(usize::MAX) / each / 16 * 15;
        let more = if kept == count { (self.wanted * 2).min(room) } else { kept.min(room) };
        self.wanted = more.clamp(FIRST_KEYS, MOST_KEYS);
        Ok(count > 0)
    }

    /// Puts the keys' numbers into the order of the keys.
    fn sort(&mut self) {
        let (keys, count) = (&self.keys, self.keys.len());
        let first = if count > 0 { keys.get(0) } else { &[] };
        let common = (1..count).fold(first.len(), |common, number| {
            let (key, most) = (keys.get(number), common.min(keys.get(number).len()));
            if key[..most] == first[..most] {
                return most;
            }
            key.iter().zip(first).take_while(|(one, other)| one == other).count()
        });
        self.order.extend((0..count).map(|number| (prefix(&keys.get(number)[common..]), number as u32)));
        self.order.sort_unstable();
        for same in self.order.chunk_by_mut(|one, other| one.0 == other.0).filter(|same| same.len() > 1) {
            same.sort_unstable_by(|(_, one), (_, other)| {
                keys.get(*one as usize).cmp(keys.get(*other as usize))
            });
        }
    }

    /// Fetches rows in the table's order, as many as there is room for; gives how many.
    fn fetch(&mut self, context: &Context<'_>, tree: &Tree) -> Result<usize> {
        let (mut block, mut kept) = (0, 0);
        self.blocks.iter_mut().for_each(Vec::clear);
        let leaves = context.view.tree_size(tree)?.leaf_pages;
        let mut is_dense = self.order.len() as f64 > leaves * DENSE as f64 && self.find(context, tree)?;
        let (before, mut asked) = (thread_reads(), 0);
        for turn in 0..self.order.len() {
            if turn % AT_ONCE == 0 {
                context.check()?;
                // Where they lie close together, with much between, most of what is read ahead would be in vain.
                let waited = thread_reads().since(before).serial_reads;
                is_dense &= waited <= WAITED_MOST + turn as u64 / KEYS_OF_A_WAIT;
            }
            if turn % AT_ONCE == 0 && !is_dense {
                // One batch is under way while the one before is read.
                let to = (turn + 2 * AT_ONCE).min(self.order.len());
                let ahead = &self.order[turn.max(asked).min(to)..to];
                prefetch(context, tree, ahead.iter().map(|(_, number)| self.keys.get(*number as usize)))?;
                asked = to;
            }
            let number = self.order[turn].1 as usize;
            loop {
                if block == self.blocks.len() && !self.add_block(context)? {
                    return Ok(kept);
                }
                let room = &mut self.blocks[block];
                let start = room.len();
                let mut take = |row: &[u8]| {
                    let fits = row.len() <= BLOCK - start;
                    if fits {
                        room.extend_from_slice(row);
                    }
                    (fits, row.len())
                };
                let key = self.keys.get(number);
                let fits = match self.finder.as_mut().filter(|_| is_dense) {
                    Some(finder) => {
                        let taken = finder.find(key)?.map(take);
                        finder.forget_long();
                        taken
                    }
                    None => context.view.with_value(tree, key, &mut take)?,
                };
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

    /// Sees to it that there is a finder; false where there is no memory for it.
    fn find(&mut self, context: &Context<'_>, tree: &Tree) -> Result<bool> {
        if self.finder.is_some() {
            return Ok(true);
        }
        match context.view.scan(tree, (Bound::Unbounded, Bound::Unbounded)) {
            Ok(finder) => self.finder = Some(Box::new(finder)),
            Err(gannet_store::Error::Memory(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.finder.is_some())
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
        let each = size_of::<Place>() + size_of::<(u64, u32)>();
        self.keys.heap_bytes() + (self.keys.len() + AT_ONCE) * 2 * each + self.blocks.len() * BLOCK
    }

    /// The key whose turn it is, and its row where that was kept; `None`: the round is over.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<&[u8]>)> {
        let place = *self.places.get(self.next)?;
        if self.next.is_multiple_of(TOUCHED) {
            let places = self.places.iter().skip(self.next).take(TOUCHED);
            touch(places.filter_map(|place| {
                Some(&self.blocks.get(place.block as usize)?[place.start as usize..place.end as usize])
            }));
        }
        let key = self.keys.get(self.next);
        self.next += 1;
        let row = self.blocks.get(place.block as usize);
        Some((key, row.map(|block| &block[place.start as usize..place.end as usize])))
    }
}

/// The first bytes of a key as a number, in their order.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}
