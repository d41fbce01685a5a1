//! Rows of a table sorted by several threads.
//!
//! Each thread takes one part of the rows after the other, straight from their stored form, and sorts what it has taken of a part: a *piece*.
//! Pieces stay in memory as long as that thread's part of the operator's memory has room, then all it has become runs in a file of its own. In
//! the end all pieces are merged; their ranks are those of the rows, so that rows with equal keys stay in their order.
//!
//! A thread takes short rows only. What no thread takes, as it is long or there is no memory for it, is left to the statement's own thread, which
//! may wait for memory and charges long rows before it reads them.

use super::entries::Entries;
use super::order::SortOrder;
use super::runs::{InMemory, Rank, Runs};
use crate::codec::row::StoredRow;
use crate::exec::arena::Arena;
use crate::exec::keys::Shapes;
use crate::exec::memory::{Memory, SharedMemory};
use crate::exec::store::{PartReader, Parts, Reached};
use crate::exec::{Context, Helpers, LARGE_BYTES};
use crate::session::without_long_values;
use crate::{Error, Result, SqlState};
use gannet_store::Engine;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Parts for each thread: who is slower takes fewer, and nobody much more than the others.
const PARTS_EACH: usize = 4;

/// How many parts so many threads want.
pub(super) fn wanted(threads: usize) -> usize {
    threads * PARTS_EACH
}

/// The rank of a part's first piece. There are fewer than 2³¹ of the threads.
fn first_rank(part: usize) -> Rank {
    (part as Rank) << 32
}

/// The rank of a part's first piece behind those of the threads.
pub(super) fn rest_rank(part: usize) -> Rank {
    first_rank(part) + (1 << 31)
}

/// What threads have made of the rows.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// In memory; charged to the operator.
    pub(super) pieces: Vec<(Rank, InMemory)>,
    pub(super) runs: Runs,
    /// Of these parts nobody has taken the rows from a key on.
    pub(super) rests: Vec<(usize, Vec<u8>)>,
    /// Rows that were taken.
    pub(super) rows: u64,
    /// Bytes of the longest one.
    pub(super) longest: usize,
    /// Threads beside the statement's own.
    pub(super) helpers: u64,
}

/// What the threads work on.
struct Work<'w> {
    parts: &'w Parts,
    order: &'w SortOrder,
    engine: &'w Engine,
    memory: SharedMemory<'w>,
    cancel: &'w AtomicBool,
    next: AtomicUsize,
    /// Something has gone wrong: nothing is wanted any more.
    stop: AtomicBool,
}

/// Sees to it that others stop when its thread ends by a panic or an error.
struct Watched<'w> {
    stop: &'w AtomicBool,
    is_through: bool,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !self.is_through {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Sorts the rows of all parts, with so many threads beside this one as are `wanted`, or fewer. `memory`: the operator's, which holds
/// nothing; pieces are charged to it.
pub(super) fn run(
    context: &Context<'_>,
    parts: &Parts,
    order: &SortOrder,
    memory: &mut Memory,
    wanted: usize,
) -> Result<Sorted> {
    // The statement's turn first: helpers are not for those who wait.
    let memory = SharedMemory::new(memory, context)?;
    let helpers = Helpers::take(wanted);
    let work = Work {
        parts,
        order,
        engine: &context.session.engine,
        memory: memory.among(helpers.len() + 1),
        cancel: context.cancel,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    let outcomes = helpers.run(&|| work.take_parts());
    context.check()?;
    let mut all = Sorted { helpers: outcomes.len() as u64 - 1, ..Sorted::default() };
    let mut failure: Option<Error> = None;
    for outcome in outcomes {
        match outcome.unwrap_or_else(|| Err(Error::internal("a thread that helped has ended by itself"))) {
            Ok(one) => {
                all.pieces.extend(one.pieces);
                all.runs.append(one.runs);
                all.rests.extend(one.rests);
                all.rows += one.rows;
                all.longest = all.longest.max(one.longest);
            }
            // Others were stopped because of it.
            Err(error) if failure.as_ref().is_none_or(|known| known.state() == SqlState::QUERY_CANCELED) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    all.rests.sort();
    failure.map_or(Ok(all), Err)
}

impl Work<'_> {
    fn goes_on(&self) -> bool {
        !self.cancel.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed)
    }

    /// A thread's work.
    fn take_parts(&self) -> Result<Sorted> {
        let mut watched = Watched { stop: &self.stop, is_through: false };
        let mut taker = Taker::new(self);
        let mut reader = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.parts.len() || !self.goes_on() {
                break;
            }
            taker.take_part(&mut reader, number)?;
        }
        watched.is_through = true;
        Ok(taker.sorted)
    }
}

/// What a thread takes rows into.
struct Taker<'t, 'w> {
    work: &'t Work<'w>,
    sorted: Sorted,
    /// Of the part that is being taken: rows, and the rank of the piece they will be.
    arena: Arena,
    entries: Entries,
    rank: Rank,
    /// Bytes of all pieces in memory.
    pieces_bytes: usize,
    /// Bytes that are charged.
    held: usize,
    encoded: Vec<u8>,
    shapes: Shapes,
}

impl<'t, 'w> Taker<'t, 'w> {
    fn new(work: &'t Work<'w>) -> Self {
        Taker {
            work,
            sorted: Sorted::default(),
            arena: Arena::new(0),
            entries: Entries::new(),
            rank: 0,
            pieces_bytes: 0,
            held: 0,
            encoded: Vec::new(),
            shapes: Shapes::default(),
        }
    }

    fn take_part(&mut self, reader: &mut Option<PartReader<'w>>, number: usize) -> Result<()> {
        let work = self.work;
        let reader = match reader {
            Some(reader) => reader,
            None => match work.parts.reader() {
                Ok(new) => reader.insert(new),
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {
                    self.sorted.rests.push((number, Vec::new()));
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        self.rank = first_rank(number);
        let show = || reader.show(number, &|| work.goes_on(), &mut |row| self.take(row));
        let (rows, reached) = without_long_values(show)?;
        self.sorted.rows += rows;
        if reached == Reached::Nowhere {
            return Ok(());
        }
        self.end_piece()?;
        if let Reached::LongRow(key) = reached {
            self.sorted.rests.push((number, key));
        }
        Ok(())
    }

    /// Takes a row; false where it is too long, or has no room.
    #[inline]
    fn take(&mut self, row: &StoredRow<'_>) -> Result<bool> {
        let Taker { work, shapes, encoded, .. } = self;
        if !work.order.encode_stored(row, shapes, LARGE_BYTES, encoded)? {
            return Ok(false);
        }
        if self.needed() > self.held && !self.make_room()? {
            return Ok(false);
        }
        let place = self.arena.push(&self.encoded);
        self.entries.push(self.work.order, &self.encoded, place);
        self.sorted.longest = self.sorted.longest.max(self.encoded.len());
        Ok(true)
    }

    /// Bytes that are needed with one more row.
    #[inline]
    fn needed(&self) -> usize {
        self.pieces_bytes + self.arena.bytes_with(self.encoded.len()) + self.entries.bytes_with_one()
    }

    #[cold]
    fn make_room(&mut self) -> Result<bool> {
        if self.grow()? {
            return Ok(true);
        }
        self.end_piece()?;
        Ok(self.write_pieces()? && (self.needed() <= self.held || self.grow()?))
    }

    fn grow(&mut self) -> Result<bool> {
        let held = self.work.memory.grow(self.held, self.needed())?;
        self.held = held.unwrap_or(self.held);
        Ok(held.is_some())
    }

    /// Says now and then whether to go on.
    fn look(&self) -> Result<()> {
        match self.work.goes_on() {
            true => Ok(()),
            false => Err(Error::new(SqlState::QUERY_CANCELED, "nobody wants the rows any more")),
        }
    }

    /// The rows that were taken become a piece.
    fn end_piece(&mut self) -> Result<()> {
        if self.arena.is_empty() {
            return Ok(());
        }
        let mut arena = std::mem::replace(&mut self.arena, Arena::new(0));
        arena.drop_spare();
        let entries = std::mem::replace(&mut self.entries, Entries::new());
        let entries = entries.sorted(self.work.order, &arena, usize::MAX, &|| self.look())?;
        let piece = InMemory::new(arena, entries);
        self.pieces_bytes += piece.bytes();
        self.sorted.pieces.push((self.rank, piece));
        self.rank += 1;
        Ok(())
    }

    /// All pieces become runs; rows that come go into the memory of the largest one. False where there is no memory to write them with, and some
    /// stay pieces.
    fn write_pieces(&mut self) -> Result<bool> {
        self.work.memory.begin_writer();
        while !self.sorted.pieces.is_empty() {
            let mut writer = match self.sorted.runs.writer(self.work.engine, self.work.memory.limit()) {
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => return Ok(false),
                other => other?,
            };
            let Some((rank, piece)) = self.sorted.pieces.pop() else { break };
            let bytes = piece.bytes();
            let arena = piece.write(&mut writer, &|| self.look())?;
            self.sorted.runs.push(writer.end()?, rank);
            self.pieces_bytes -= bytes;
            if arena.bytes() > self.arena.bytes() {
                self.arena = arena;
            }
        }
        Ok(true)
    }
}
