//! A round of keys whose rows are fetched, by one thread or by several at a time.

use super::super::ahead::{AT_ONCE, Keys, prefetch};
use crate::exec::Helpers;
use crate::functions::SHORT_BYTES;
use crate::session::without_long_values;
use crate::{Error, Result, SqlState};
use gannet_store::{Scan, Tree, View, thread_reads};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a block of rows. Longer rows are not kept.
pub(super) const BLOCK: usize = 256 << 10;
/// Shares of a round for each thread: who is slower takes fewer.
const SHARES_EACH: usize = 2;
/// Pages waited for one by one from which on keys are asked for one by one, ahead: so many, and one for so many keys.
const WAITED_MOST: u64 = 16;
const KEYS_OF_A_WAIT: u64 = 32;

/// Where a row is kept: the block's number, where the row begins, and its length.
#[derive(Debug)]
pub(super) struct Place(AtomicU64);

/// Bits of a length, and of a begin.
const LEN_BITS: u32 = BLOCK.ilog2() + 1;

/// Nobody has looked for the row.
const UNSEEN: u64 = u64::MAX;
/// It is too long to be kept, or missing.
const NOWHERE: u64 = u64::MAX - 1;

impl Default for Place {
    fn default() -> Self {
        Place(AtomicU64::new(UNSEEN))
    }
}

impl Place {
    fn set(&self, block: usize, begin: usize, len: usize) {
        self.0.store(
            (block as u64) << (2 * LEN_BITS) | (begin as u64) << LEN_BITS | len as u64,
            Ordering::Relaxed,
        );
    }

    fn is_unseen(&self) -> bool {
        self.0.load(Ordering::Relaxed) == UNSEEN
    }

    /// The row, where it is kept.
    pub(super) fn row<'b>(&self, blocks: &'b [Vec<u8>]) -> Option<&'b [u8]> {
        let place = self.0.load(Ordering::Relaxed);
        let (block, low) = (place >> (2 * LEN_BITS), (1 << LEN_BITS) - 1);
        let (begin, len) = ((place >> LEN_BITS & low) as usize, (place & low) as usize);
        blocks.get(block as usize)?.get(begin..begin + len)
    }
}

/// A block with its number.
type Numbered = (usize, Vec<u8>);

/// What came of fetching rows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Fetched {
    /// Rows kept, or too long for that, or missing.
    pub(super) settled: usize,
    /// Bytes of those kept.
    pub(super) bytes: usize,
    /// There was one that is no longer short.
    pub(super) long: bool,
    /// Threads beside the statement's own that worked on it.
    pub(super) helpers: usize,
}

impl Fetched {
    /// What came of others.
    pub(super) fn add(&mut self, other: Fetched) {
        self.settled += other.settled;
        self.bytes += other.bytes;
        self.long |= other.long;
    }
}

/// Keys, in the table's order, whose rows are wanted.
#[derive(Debug)]
pub(super) struct Round<'r> {
    pub(super) view: &'r View,
    pub(super) tree: &'r Tree,
    pub(super) keys: &'r Keys,
    /// Numbers of keys.
    pub(super) order: &'r [(u64, u32)],
    /// By a key's number.
    pub(super) places: &'r [Place],
    /// Most leaves have several of the keys.
    pub(super) is_dense: bool,
}

impl Round<'_> {
    /// Fetches rows that nobody has looked for yet; false where there is no block for one. `finder`: finds rows where the round is dense.
    fn fetch(
        &self,
        share: Range<usize>,
        mut finder: Option<&mut Scan>,
        next_block: &mut dyn FnMut() -> Result<Option<Numbered>>,
        (filled, fetched): (&mut Vec<Numbered>, &mut Fetched),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        let (begin, before, mut asked) = (share.start, thread_reads(), share.start);
        for turn in share.clone() {
            if (turn - begin).is_multiple_of(AT_ONCE) {
                check()?;
                // Where they lie close together, with much between, most of what is read ahead would be in vain.
                let waited = thread_reads().since(before).serial_reads;
                if waited > WAITED_MOST + (turn - begin) as u64 / KEYS_OF_A_WAIT {
                    finder = None;
                }
                if finder.is_none() {
                    // One batch is under way while the one before is read.
                    let to = (turn + 2 * AT_ONCE).min(share.end);
                    let ahead = &self.order[turn.max(asked).min(to)..to];
                    let unseen = ahead.iter().filter(|(_, number)| self.places[*number as usize].is_unseen());
                    let keys = unseen.map(|(_, number)| self.keys.get(*number as usize));
                    prefetch(self.view, self.tree, keys)?;
                    asked = to;
                }
            }
            let number = self.order[turn].1 as usize;
            let (key, place) = (self.keys.get(number), &self.places[number]);
            while place.is_unseen() {
                let Some((block, room)) = filled.last_mut() else {
                    let Some(block) = next_block()? else { return Ok(false) };
                    filled.push(block);
                    continue;
                };
                let begin = room.len();
                let mut take = |row: &[u8]| {
                    let fits = row.len() <= BLOCK - begin;
                    if fits {
                        room.extend_from_slice(row);
                    }
                    (fits, row.len())
                };
                let taken = match &mut finder {
                    Some(finder) => {
                        let taken = finder.find(key)?.map(&mut take);
                        finder.forget_long();
                        taken
                    }
                    None => self.view.with_value(self.tree, key, &mut take)?,
                };
                fetched.long |= taken.is_some_and(|(_, len)| len > SHORT_BYTES);
                match taken {
                    Some((true, len)) => {
                        place.set(*block, begin, len);
                        fetched.bytes += len;
                    }
                    // It fits into the next one.
                    Some((false, len)) if len <= BLOCK => {
                        let Some(block) = next_block()? else { return Ok(false) };
                        filled.push(block);
                        continue;
                    }
                    // That a row is missing is said when its turn comes.
                    Some((false, _)) | None => place.0.store(NOWHERE, Ordering::Relaxed),
                }
                fetched.settled += 1;
            }
        }
        Ok(true)
    }

    /// Fetches rows by the calling thread alone, into `blocks` behind what they have, and into more where `more` has room for that many.
    pub(super) fn fetch_alone(
        &self,
        finder: Option<&mut Scan>,
        blocks: &mut Vec<Vec<u8>>,
        more: &mut dyn FnMut(usize) -> Result<bool>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Fetched> {
        let used = blocks.iter().rposition(|block| !block.is_empty()).map_or(0, |last| last + 1);
        let mut stock = std::mem::take(blocks).into_iter().enumerate();
        let mut filled: Vec<Numbered> = stock.by_ref().take(used).collect();
        let mut given = used;
        let mut next_block = || {
            let block = match stock.next() {
                Some(block) => block,
                None if more(given + 1)? => (given, Vec::with_capacity(BLOCK)),
                None => return Ok(None),
            };
            given = block.0 + 1;
            Ok(Some(block))
        };
        let mut fetched = Fetched::default();
        let share = 0..self.order.len();
        let outcome = self.fetch(share, finder, &mut next_block, (&mut filled, &mut fetched), check);
        blocks.extend(filled.into_iter().chain(stock).map(|(_, block)| block));
        outcome.map(|_| fetched)
    }

    /// Fetches rows by several threads into `blocks`, which are empty. Rows that these have no room for may be left out, and so may be those of
    /// a share from the first one on whose value is long.
    pub(super) fn fetch_together(
        &self,
        helpers: &Helpers,
        threads: usize,
        blocks: &mut Vec<Vec<u8>>,
        cancel: &AtomicBool,
    ) -> Result<Fetched> {
        let stock = Mutex::new(std::mem::take(blocks).into_iter().enumerate());
        let (filled, next, stops) =
            (Mutex::<Vec<Numbered>>::default(), AtomicUsize::new(0), AtomicBool::new(false));
        let shares = threads * SHARES_EACH;
        let work = || {
            let mut own = Vec::new();
            let fetched = without_long_values(|| {
                self.fetch_shares(&next, shares, &stock, &mut own, &|| {
                    stops.load(Ordering::Relaxed) || cancel.load(Ordering::Relaxed)
                })
            });
            if fetched.is_err() {
                stops.store(true, Ordering::Relaxed);
            }
            filled.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
            fetched
        };
        let outcomes = helpers.run(&work);
        let mut filled = filled.into_inner().unwrap_or_else(PoisonError::into_inner);
        filled.sort_unstable_by_key(|(number, _)| *number);
        blocks.extend(filled.into_iter().map(|(_, block)| block));
        blocks.extend(stock.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, block)| block));
        let mut all = Fetched { helpers: outcomes.len() - 1, ..Fetched::default() };
        for outcome in outcomes {
            all.add(outcome.ok_or_else(|| Error::internal("a thread that helped has ended by itself"))??);
        }
        Ok(all)
    }

    /// A thread's work.
    fn fetch_shares(
        &self,
        next: &AtomicUsize,
        shares: usize,
        stock: &Mutex<impl Iterator<Item = Numbered>>,
        filled: &mut Vec<Numbered>,
        stops: &dyn Fn() -> bool,
    ) -> Result<Fetched> {
        let mut fetched = Fetched::default();
        let mut finder = if self.is_dense { find(self.view, self.tree)? } else { None };
        let mut next_block = || Ok(stock.lock().unwrap_or_else(PoisonError::into_inner).next());
        // What is wrong is said by whoever stops it.
        let check = || {
            if stops() {
                Err(Error::new(SqlState::QUERY_CANCELED, "rows are not wanted any more"))
            } else {
                Ok(())
            }
        };
        loop {
            let share = next.fetch_add(1, Ordering::Relaxed);
            if share >= shares {
                return Ok(fetched);
            }
            let place = |share: usize| self.order.len() * share / shares;
            let share = place(share)..place(share + 1);
            match self.fetch(
                share,
                finder.as_deref_mut(),
                &mut next_block,
                (&mut *filled, &mut fetched),
                &check,
            ) {
                Ok(true) => {}
                Ok(false) => return Ok(fetched),
                // A long value, or no memory for reading.
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => fetched.long = true,
                Err(_) if stops() => return Ok(fetched),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Finds rows by keys; `None` where there is no memory for it.
pub(super) fn find(view: &View, tree: &Tree) -> Result<Option<Box<Scan>>> {
    match view.scan(tree, (Bound::Unbounded, Bound::Unbounded)) {
        Ok(finder) => Ok(Some(Box::new(finder))),
        Err(gannet_store::Error::Memory(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
