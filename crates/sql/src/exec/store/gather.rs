//! Rows of a table by keys that an index gives, fetched many at a time in the table's order.
//!
//! An index whose order has nothing to do with the table's leads to each page of the table many times. Who is going to read
//! many rows anyway takes as many keys from the index as memory has room for the rows of, goes to the table in the order of
//! its pages, each once, with deep batches ahead, and then gives the rows out in the index's order.
//!
//! Where there are many keys, and helpers to be had, each thread fetches the rows of some keys that lie one behind the other.
//!
//! # Guarantees
//! 1. Rows leave in the order in which their keys came.
//! 2. Keys and rows are charged to the operator's memory before they are kept. A row there is no room for is not kept: it is
//!    looked up again when its turn comes.
//! 3. Nothing of the budget is asked for while a page is held, and nothing at all by a helper but what the store needs to read: it has blocks
//!    that were charged before it began, and reads no long values. What helpers leave out, the statement's own thread fetches behind them.

mod round;

use self::round::{BLOCK, Fetched, Place, Round, find};
use super::super::arena::{TOUCHED, touch};
use super::super::{Context, Helpers, helpers, memory::Memory};
use super::ahead::{AT_ONCE, Keys};
use crate::Result;
use gannet_store::{Scan, Tree};

/// Keys of the first round. Each round takes twice as many as the one before, as far as there is room for their rows.
const FIRST_KEYS: usize = 4096;
/// Keys of a round, at most.
const MOST_KEYS: usize = 1 << 20;
/// Keys for each leaf of the table from which on all of it is read, in its order: leaves side by side are read together, and a copy of one serves
/// its keys better than a way to it for each.
const DENSE: usize = 2;
/// Keys that are worth a thread.
const KEYS_OF_A_THREAD: usize = 1 << 12;

/// A round of keys and their rows.
#[derive(Debug)]
pub(super) struct Gathered {
    keys: Keys,
    places: Vec<Place>,
    /// The keys' numbers, in the order of the keys, each with the first bytes in which keys differ.
    order: Vec<(u64, u32)>,
    /// Finds the rows of keys that share leaves, for the statement's own thread.
    finder: Option<Box<Scan>>,
    blocks: Vec<Vec<u8>>,
    /// The next to be given out.
    next: usize,
    /// Keys of the next round.
    wanted: usize,
    /// What came of the round before.
    before: Fetched,
    /// Threads that have helped, at most.
    helpers: usize,
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
            before: Fetched::default(),
            helpers: 0,
            memory: Memory::default(),
        }
    }

    /// Fills the next round, for `node`, with keys from `next_key`, which appends one, or says that there are no more; false when there were
    /// none at all.
    pub(super) fn fill(
        &mut self,
        context: &Context<'_>,
        node: usize,
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
        self.places.resize_with(count, Place::default);
        self.sort();
        self.before = self.fetch(context, tree)?;
        if self.before.helpers > self.helpers {
            let more = self.before.helpers - std::mem::replace(&mut self.helpers, self.before.helpers);
            context.note(node, |profile| profile.helpers += more as u64);
        }
        // Rows that there is no room for are looked up one by one: no more are asked for than are likely to have some.
        let settled = self.before.settled;
        let each = self.bytes().div_ceil(count.max(1));
        let room = usize::try_from(context.work_limit()).unwrap_or(usize::MAX) / each / 16 * 15;
        let more = if settled == count { (self.wanted * 2).min(room) } else { settled.min(room) };
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

    /// Fetches rows in the table's order, as many as there is room for.
    fn fetch(&mut self, context: &Context<'_>, tree: &Tree) -> Result<Fetched> {
        self.blocks.iter_mut().for_each(Vec::clear);
        let leaves = context.view.tree_size(tree)?.leaf_pages;
        let is_dense = self.order.len() as f64 > leaves * DENSE as f64;
        let without_blocks = self.bytes() - self.blocks.len() * BLOCK;
        let helpers = self.helpers(context, without_blocks)?;
        let Gathered { keys, places, order, finder, blocks, memory, .. } = self;
        let round = Round { view: context.view, tree, keys, order, places, is_dense };
        let mut more = |count: usize| memory.reserve(context, without_blocks + count * BLOCK);
        let check = || context.check();
        if let Some((helpers, threads)) = helpers {
            *finder = None;
            let fetched = round.fetch_together(&helpers, threads, blocks, context.cancel);
            context.check()?;
            let mut fetched = fetched?;
            if fetched.settled < order.len() {
                fetched.add(round.fetch_alone(None, blocks, &mut more, &check)?);
            }
            return Ok(fetched);
        }
        if is_dense && finder.is_none() {
            *finder = find(context.view, tree)?;
        }
        let finder = finder.as_deref_mut().filter(|_| is_dense);
        round.fetch_alone(finder, blocks, &mut more, &check)
    }

    /// Threads that help with this round, and how many there may be with the statement's own, where it is worth it: then there are blocks for all
    /// rows, if they are as long as those of the round before.
    fn helpers(&mut self, context: &Context<'_>, without_blocks: usize) -> Result<Option<(Helpers, usize)>> {
        let Fetched { settled, bytes, long, .. } = self.before;
        let wanted =
            context.session.settings().helpers.min((self.order.len() / KEYS_OF_A_THREAD).saturating_sub(1));
        let Some(threads) = helpers::threads(wanted).filter(|_| settled > 0 && !long) else {
            return Ok(None);
        };
        let rows = (bytes as u128 * self.order.len() as u128 / settled as u128) as usize;
        // Each thread leaves one that is not full, and rows do not fill them to the byte.
        let count = (rows + rows / 32).div_ceil(BLOCK) + threads;
        if !self.memory.reserve(context, without_blocks + count.max(self.blocks.len()) * BLOCK)? {
            return Ok(None);
        }
        let helpers = Helpers::take(wanted);
        if helpers.is_none() {
            return Ok(None);
        }
        let missing = count.saturating_sub(self.blocks.len());
        self.blocks.extend((0..missing).map(|_| Vec::with_capacity(BLOCK)));
        Ok(Some((helpers, threads)))
    }

    fn bytes(&self) -> usize {
        // What belongs to each key is charged with the keys, before it is there.
        let each = size_of::<Place>() + size_of::<(u64, u32)>();
        self.keys.heap_bytes() + (self.keys.len() + AT_ONCE) * 2 * each + self.blocks.len() * BLOCK
    }

    /// The key whose turn it is, and its row where that was kept; `None`: the round is over.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<&[u8]>)> {
        let place = self.places.get(self.next)?;
        if self.next.is_multiple_of(TOUCHED) {
            let places = self.places.iter().skip(self.next).take(TOUCHED);
            touch(places.filter_map(|place| place.row(&self.blocks)));
        }
        let key = self.keys.get(self.next);
        self.next += 1;
        Some((key, place.row(&self.blocks)))
    }
}

/// The first bytes of a key as a number, in their order.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}
