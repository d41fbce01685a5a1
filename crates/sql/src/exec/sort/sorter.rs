//! Sorting rows, within memory or through temporary files.
//!
//! # How
//! Rows are kept encoded, the sort keys first. What is sorted are 16 bytes for each row: a number that orders most rows by
//! their first key, and where the row stands. Where memory ends, the sorted rows become a *run* in a temporary file; at the end
//! the runs are merged, so many at a time as memory has room for their blocks. Rows with equal keys stay in their order.
//!
//! Once there is a run, more are to be expected: half of the memory takes rows then, while a thread sorts and writes those in
//! the other half, see [`super::behind`]. Rows of one sorter are in runs in the order in which they came, as ties are decided by that.
//!
//! The rows that came last stay in memory where that has room for them beside the blocks of all runs, and are merged with these.
//! The last merge of many rows is a thread's as well, see [`super::merged`]: who takes them has other work with each.
//!
//! When only the first rows are wanted, the others are thrown away from time to time, and rows behind what is kept are not
//! even taken.

use super::behind::{Behind, Made, Work};
use super::entries::{Entry, sorted};
use super::merged::{self, Merged};
use super::order::SortOrder;
use super::parts;
use super::runs::{InMemory, Merge, Rank, Runs};
use crate::exec::arena::{Arena, CHUNK_MOST};
use crate::exec::keys::Shapes;
use crate::exec::memory::{Memory, await_room};
use crate::exec::spill::{RowBytes, row_room};
use crate::exec::store::Parts;
use crate::exec::{Context, LARGE_BYTES, ShownRow, helpers};
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Rows compared between two looks at the cancellation flag.
const CHECK_EVERY: usize = 1 << 12;
/// How often who waits for a run looks whether the statement is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Less memory than this is not halved: runs would be short, and many.
const HALVED_LEAST: usize = if cfg!(test) { 8 << 10 } else { 16 << 20 };
/// What each half leaves of its half, for what the other may have too much.
const HALF_LEAVES: usize = if cfg!(test) { 1 << 10 } else { 2 * CHUNK_MOST };
/// Bytes of rows whose last merge is worth a thread.
const MERGED_LEAST: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// Rows kept before the first look for those that are not among the first.
const PRUNE_LEAST: usize = 1024;

/// Takes rows in any order and gives them back sorted.
#[derive(Debug)]
pub(in crate::exec) struct Sorter {
    /// The last run, while a thread makes it. It goes first: what it has is charged to `memory`, which goes last.
    behind: Option<Behind>,
    order: Arc<SortOrder>,
    shapes: Shapes,
    node: usize,
    /// Only so many rows are wanted.
    top: usize,
    /// Rows that were given.
    given: usize,
    arena: Arena,
    /// Sorted rows in memory, besides: those that threads have left there, see [`parts`].
    pieces: Vec<(Rank, InMemory)>,
    pieces_bytes: usize,
    /// The rank of the first of the sorter's own runs.
    first_rank: Rank,
    runs: Runs,
    /// Bytes of the longest run's rows that all of the memory had; 0: there is none yet.
    run_bytes: usize,
    /// The memory of the run before.
    spare: Option<Arena>,
    encoded: RowBytes,
    /// Bytes of the longest row.
    longest: usize,
    /// The keys of the last of the rows wanted, so far: rows behind it need not be taken.
    cutoff: Option<Vec<u8>>,
    output: Output,
    memory: Memory,
}

/// How a run is made: while more rows are taken, or before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Behind,
    Here,
}

#[derive(Debug)]
enum Output {
    /// Rows are still taken.
    Taking,
    Memory(InMemory),
    Merge(Merge),
    Merged(Merged),
}

impl Sorter {
    /// For `node`; `top`: only so many rows are wanted.
    pub(in crate::exec) fn new(order: SortOrder, node: usize, top: Option<usize>) -> Self {
        Sorter {
            order: Arc::new(order),
            shapes: Shapes::default(),
            node,
            top: top.unwrap_or(usize::MAX),
            given: 0,
            arena: Arena::new(0),
            pieces: Vec::new(),
            pieces_bytes: 0,
            first_rank: 0,
            memory: Memory::default(),
            runs: Runs::default(),
            run_bytes: 0,
            behind: None,
            spare: None,
            encoded: RowBytes::default(),
            longest: 0,
            cutoff: None,
            output: Output::Taking,
        }
    }

    /// Becomes empty, for the next rows.
    pub(in crate::exec) fn reset(&mut self, top: Option<usize>) {
        if let Output::Memory(rows) = std::mem::replace(&mut self.output, Output::Taking) {
            self.arena = rows.into_arena();
        }
        self.top = top.unwrap_or(usize::MAX);
        self.given = 0;
        self.shapes = Shapes::default();
        (self.behind, self.spare, self.run_bytes) = (None, None, 0);
        self.arena.clear();
        self.pieces.clear();
        (self.pieces_bytes, self.first_rank) = (0, 0);
        self.memory.shrink(self.arena.bytes());
        self.runs = Runs::default();
        self.cutoff = None;
        self.longest = 0;
    }

    /// Gives everything back.
    pub(in crate::exec) fn close(&mut self) {
        self.reset(None);
        self.arena = Arena::new(0);
        self.memory.release();
    }

    /// Bytes of the longest row that was taken, encoded.
    pub(in crate::exec) fn longest(&self) -> usize {
        self.longest
    }

    /// Takes a row.
    pub(in crate::exec) fn add(&mut self, row: &[Value], context: &Context<'_>) -> Result<()> {
        if self.top == 0 {
            return Ok(());
        }
        let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
        let encoded = self.encoded.begin(row_room(row), charge)?;
        self.order.encode(row, context, &mut self.shapes, encoded)?;
        self.encoded.settle(charge)?;
        self.push(context)
    }

    /// Takes a row that is shown; only such orders that [take stored rows](SortOrder::takes_stored).
    pub(super) fn add_shown(&mut self, row: ShownRow<'_>, context: &Context<'_>) -> Result<()> {
        let row = match row {
            ShownRow::Stored(row) => row,
            ShownRow::Values(row) => return self.add(row, context),
        };
        if self.top == 0 {
            return Ok(());
        }
        let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
        let encoded = self.encoded.begin(0, charge)?;
        if !self.order.encode_stored(row, &mut self.shapes, LARGE_BYTES, encoded)? {
            let room = self.order.stored_room(row)?;
            await_room(context, room)?;
            let encoded = self.encoded.begin(room, charge)?;
            self.order.encode_stored(row, &mut self.shapes, usize::MAX, encoded)?;
        }
        self.encoded.settle(charge)?;
        self.push(context)
    }

    /// Takes the row that is encoded.
    fn push(&mut self, context: &Context<'_>) -> Result<()> {
        self.longest = self.longest.max(self.encoded.len());
        let behind = |cutoff: &Vec<u8>| self.order.compare(&self.encoded, cutoff) != Ordering::Less;
        if self.cutoff.as_ref().is_some_and(behind) {
            return Ok(());
        }
        if self.arena.len() >= self.top.saturating_mul(2).max(PRUNE_LEAST) && self.top < usize::MAX {
            self.prune(context)?;
        }
        if self.run_bytes >= HALVED_LEAST && self.own_bytes() > self.run_bytes / 2 - HALF_LEAVES {
            self.spill(context, Way::Behind)?;
        }
        if !self.memory.reserve(context, self.needed())? {
            self.make_room(context)?;
        }
        self.arena.push(&self.encoded);
        self.encoded.forget_long();
        Ok(())
    }

    /// The memory ends before the next row: has it that the row can be taken.
    #[cold]
    fn make_room(&mut self, context: &Context<'_>) -> Result<()> {
        self.spare = None;
        self.arena.drop_spare();
        if self.memory.reserve(context, self.needed())? {
            return Ok(());
        }
        self.settle(context)?;
        self.spare = None;
        self.write_pieces(context, |_| true)?;
        if self.arena.len() > self.top {
            self.prune(context)?;
        }
        if !self.memory.reserve(context, self.needed())? && !self.arena.is_empty() {
            self.spill(context, Way::Here)?;
        }
        self.memory.demand(context, self.needed())
    }

    /// Bytes of the rows that are being taken.
    fn own_bytes(&self) -> usize {
        self.arena.used() + self.arena.len() * size_of::<Entry>()
    }

    /// Bytes needed with one more row, for the run that is made behind, and for pieces.
    fn needed(&self) -> usize {
        let others =
            self.behind.as_ref().map_or(0, Behind::bytes) + self.spare.as_ref().map_or(0, Arena::bytes);
        let own = self.arena.bytes_with(self.encoded.len()) + (self.arena.len() + 1) * size_of::<Entry>();
        own + others + self.pieces_bytes
    }

    /// Throws away what is not among the first rows.
    fn prune(&mut self, context: &Context<'_>) -> Result<()> {
        let mut entries = sorted(&self.order, &self.arena, self.top, &|| context.check())?;
        let last = entries.last().and_then(|last| self.order.cutoff(self.arena.row(last.row)));
        self.cut_off_at(last);
        entries.sort_unstable_by_key(|entry| entry.row);
        self.arena.keep(entries.iter().map(|entry| entry.row));
        Ok(())
    }

    /// The rows in memory become a run.
    fn spill(&mut self, context: &Context<'_>, way: Way) -> Result<()> {
        context.check()?;
        self.settle(context)?;
        self.memory.begin_writer();
        let writer = self.runs.writer(&context.session.engine, context.work_limit())?;
        if way == Way::Here {
            self.run_bytes = self.run_bytes.max(self.own_bytes());
        }
        let next = self.spare.take().unwrap_or_else(|| Arena::new(0));
        let arena = std::mem::replace(&mut self.arena, next);
        let work = Work::new(&self.order, arena, writer, self.top);
        match way {
            Way::Behind => self.behind = Some(Behind::begin(work)),
            Way::Here => {
                self.take(work.make(&|| context.check())?, context)?;
                self.spare = None;
            }
        }
        context.check()
    }

    /// Waits for the run that is made behind.
    fn settle(&mut self, context: &Context<'_>) -> Result<()> {
        while let Some(behind) = &self.behind
            && !behind.is_done_within(LOOK_EVERY)
        {
            context.check()?;
        }
        let Some(behind) = self.behind.take() else { return Ok(()) };
        self.take(behind.end()?, context)?;
        context.check()
    }

    /// As many rows as are wanted come no later than one with these keys.
    fn cut_off_at(&mut self, keys: Option<Vec<u8>>) {
        let is_less = |keys: &Vec<u8>, known: &Vec<u8>| self.order.compare(keys, known) == Ordering::Less;
        match (keys, &self.cutoff) {
            (Some(keys), Some(known)) if !is_less(&keys, known) => {}
            (Some(keys), _) => self.cutoff = Some(keys),
            (None, _) => {}
        }
    }

    fn take(&mut self, made: Made, context: &Context<'_>) -> Result<()> {
        self.cut_off_at(made.cutoff);
        let rank = self.next_rank();
        self.runs.push(made.writer.finish(context, self.node)?, rank);
        self.spare = Some(made.arena);
        self.give_back(context);
        Ok(())
    }

    /// Others may have come, with whom the memory is to be shared: gives back what no row is in, as far as that is too much.
    fn give_back(&mut self, context: &Context<'_>) {
        let limit = usize::try_from(context.work_limit()).unwrap_or(usize::MAX);
        if self.needed() > limit {
            self.spare = None;
            self.arena.drop_spare();
        }
        self.run_bytes = self.run_bytes.min(limit);
        self.memory.shrink_to_share(context, self.needed());
    }

    /// Of the run that is made next, or the rows that are kept: behind all those of this sorter's own before.
    fn next_rank(&self) -> Rank {
        self.first_rank + (self.runs.len() + self.pieces.len()) as Rank
    }

    /// Has several threads take all rows of a table, those that are for one thread alone included. Before any row was taken. Gives the number
    /// of rows, and of threads beside this one.
    pub(super) fn take_parts(
        &mut self,
        context: &Context<'_>,
        parts: &Parts,
        wanted: usize,
    ) -> Result<(u64, u64)> {
        self.arena = Arena::new(0);
        self.memory.release();
        let sorted = parts::run(context, parts, &self.order, &mut self.memory, wanted)?;
        self.memory.tell(context);
        (self.pieces, self.runs, self.longest) = (sorted.pieces, sorted.runs, sorted.longest);
        self.count_pieces();
        let spilled = self.runs.bytes();
        context.note(self.node, |profile| profile.spilled_bytes += spilled);
        let mut rows = sorted.rows;
        for (part, from) in sorted.rests {
            self.first_rank = parts::rest_rank(part);
            parts.show_rest(context, (part, &from), &mut |row| {
                rows += 1;
                self.add_shown(row, context)
            })?;
            // The next ones have other ranks.
            self.settle(context)?;
            self.end_piece(context)?;
        }
        Ok((rows, sorted.helpers))
    }

    /// The rows that were taken become a piece.
    fn end_piece(&mut self, context: &Context<'_>) -> Result<()> {
        if self.arena.is_empty() {
            return Ok(());
        }
        let rank = self.next_rank();
        self.arena.drop_spare();
        let entries = sorted(&self.order, &self.arena, self.top, &|| context.check())?;
        let arena = std::mem::replace(&mut self.arena, Arena::new(0));
        self.pieces.push((rank, InMemory::new(arena, entries)));
        self.count_pieces();
        Ok(())
    }

    fn count_pieces(&mut self) {
        self.pieces_bytes = self.pieces.iter().map(|(_, piece)| piece.bytes()).sum();
    }

    /// Pieces in memory become runs, as long as there are any and `goes_on`, which is told of those there are, says so: the largest first.
    fn write_pieces(&mut self, context: &Context<'_>, mut goes_on: impl FnMut(&Self) -> bool) -> Result<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        self.settle(context)?;
        self.spare = None;
        self.pieces.sort_by_key(|(_, piece)| piece.bytes());
        while !self.pieces.is_empty() && goes_on(self) {
            let Some((rank, piece)) = self.pieces.pop() else { break };
            self.memory.begin_writer();
            let mut writer = self.runs.writer(&context.session.engine, context.work_limit())?;
            piece.write(&mut writer, &|| context.check())?;
            self.runs.push(writer.finish(context, self.node)?, rank);
            self.count_pieces();
            self.memory.shrink(self.pieces_bytes + self.own_bytes());
        }
        Ok(())
    }

    /// No more rows come: from now on they are given by [`Sorter::next`].
    pub(in crate::exec) fn finish(&mut self, context: &Context<'_>) -> Result<()> {
        context.check()?;
        self.encoded.forget_long();
        let finished =
            if self.pieces.is_empty() { self.finish_own(context) } else { self.finish_pieces(context) };
        let peak = self.memory.peak();
        context.note(self.node, |profile| profile.memory_bytes = profile.memory_bytes.max(peak));
        finished
    }

    fn finish_own(&mut self, context: &Context<'_>) -> Result<()> {
        if self.runs.is_empty() && self.behind.is_none() {
            let entries = sorted(&self.order, &self.arena, self.top, &|| context.check())?;
            self.output = Output::Memory(self.take_sorted(entries));
            return Ok(());
        }
        let (merge, held) = match self.merge_beside_last(context)? {
            Some(merge) => merge,
            None => (self.merge_written(context)?, 0),
        };
        self.give_merged(context, merge, held)
    }

    /// The same where threads have left rows in memory. All there is are pieces and runs.
    fn finish_pieces(&mut self, context: &Context<'_>) -> Result<()> {
        if self.runs.is_empty() {
            return self.finish_in_memory(context);
        }
        let fits = |this: &Self| {
            let held = this.pieces_bytes;
            held as u64 <= context.work_limit() / 2
                && this.runs.fits_beside(context, this.longest, held + merged::BYTES, this.runs.len())
        };
        self.write_pieces(context, |this| !fits(this))?;
        self.memory.shrink(self.pieces_bytes);
        // There may be more runs than are merged at a time.
        if fits(self) {
            match Merge::new(&self.order, &self.runs, 0..self.runs.len()) {
                Ok(mut merge) => {
                    for (rank, piece) in self.pieces.drain(..) {
                        merge.add(&self.order, rank, piece);
                    }
                    let held = std::mem::take(&mut self.pieces_bytes);
                    return self.give_merged(context, merge, held);
                }
                // Others have what is left of the budget.
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {}
                Err(error) => return Err(error),
            }
        }
        self.write_pieces(context, |_| true)?;
        let merge = self.merge_written(context)?;
        self.give_merged(context, merge, 0)
    }

    /// The same where nothing was written.
    fn finish_in_memory(&mut self, context: &Context<'_>) -> Result<()> {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|(rank, _)| *rank);
        let held = std::mem::take(&mut self.pieces_bytes);
        let rows = pieces.iter().map(|(_, piece)| piece.len()).sum();
        if self.memory.reserve(context, held + InMemory::combining_bytes(rows))? {
            let all = pieces.into_iter().map(|(_, piece)| piece).collect();
            let combined = InMemory::combined(&self.order, all, &|| context.check())?;
            self.memory.shrink(combined.bytes());
            self.output = Output::Memory(combined);
        } else {
            self.memory.shrink(held);
            let mut merge = Merge::default();
            pieces.into_iter().for_each(|(rank, piece)| merge.add(&self.order, rank, piece));
            self.output = Output::Merge(merge);
        }
        Ok(())
    }

    /// Rows are given as they are merged. `held`: bytes of those in memory.
    fn give_merged(&mut self, context: &Context<'_>, merge: Merge, held: usize) -> Result<()> {
        self.output = if self.merges_ahead(context, held)? {
            Merged::begin(&self.order, merge).map_or_else(|merge| Output::Merge(*merge), Output::Merged)
        } else {
            Output::Merge(merge)
        };
        Ok(())
    }

    /// A merge of all runs with the rows that are in memory, which need not be written and read then, and the bytes these have; `None` where memory
    /// has no room for both.
    fn merge_beside_last(&mut self, context: &Context<'_>) -> Result<Option<(Merge, usize)>> {
        self.spare = None;
        self.arena.drop_spare();
        let runs = self.runs.len() + usize::from(self.behind.is_some());
        let held = self.arena.bytes() + self.arena.len() * size_of::<Entry>();
        // Long rows are charged one by one as they are read.
        let is_much = held as u64 > context.work_limit() / 2 || self.longest > LARGE_BYTES;
        if is_much || !self.runs.fits_beside(context, self.longest, held + merged::BYTES, runs) {
            return Ok(None);
        }
        // While the run before is still made.
        let entries = sorted(&self.order, &self.arena, self.top, &|| context.check())?;
        self.settle(context)?;
        self.spare = None;
        let last = self.take_sorted(entries);
        match Merge::new(&self.order, &self.runs, 0..runs) {
            Ok(mut merge) => {
                merge.add(&self.order, self.next_rank(), last);
                Ok(Some((merge, held)))
            }
            // Others have what is left of the budget.
            Err(error) if error.state() == SqlState::OUT_OF_MEMORY => {
                self.arena = last.into_arena();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A merge of all rows, those in memory written as well.
    fn merge_written(&mut self, context: &Context<'_>) -> Result<Merge> {
        self.settle(context)?;
        if !self.arena.is_empty() {
            self.spill(context, Way::Here)?;
        }
        (self.arena, self.spare) = (Arena::new(0), None);
        self.memory.release();
        self.runs.order();
        let fan_in = self.runs.fan_in(context, self.longest);
        while self.runs.len() > fan_in {
            self.runs = self.merge_some(&self.runs, fan_in, context)?;
        }
        Merge::new(&self.order, &self.runs, 0..self.runs.len())
    }

    /// The rows in memory, sorted; what they need is still charged, and nothing else.
    fn take_sorted(&mut self, entries: Vec<Entry>) -> InMemory {
        self.memory.shrink(self.arena.bytes() + entries.capacity() * size_of::<Entry>());
        InMemory::new(std::mem::replace(&mut self.arena, Arena::new(0)), entries)
    }

    /// Whether a thread is to merge them: there are many rows, none of them long, and memory to hand them over beside what is held.
    fn merges_ahead(&mut self, context: &Context<'_>, held: usize) -> Result<bool> {
        let wanted = helpers::threads(context.session.settings().helpers).is_some()
            && self.runs.bytes() >= MERGED_LEAST
            && self.longest <= merged::ROW_MOST
            && merged::BYTES as u64 <= context.work_limit() / 8;
        Ok(wanted && self.memory.reserve(context, held + merged::BYTES)?)
    }

    /// Makes fewer runs of many, in a new file.
    fn merge_some(&self, runs: &Runs, fan_in: usize, context: &Context<'_>) -> Result<Runs> {
        let count = runs.len();
        let mut merged = Runs::default();
        for start in (0..count).step_by(fan_in) {
            let mut merge = Merge::new(&self.order, runs, start..count.min(start + fan_in))?;
            let mut writer = merged.writer(&context.session.engine, context.work_limit())?;
            let mut rows = 0;
            while rows < self.top {
                let Some(row) = merge.next(&self.order)? else { break };
                writer.push_encoded(row)?;
                rows += 1;
                if rows % CHECK_EVERY == 0 {
                    context.check()?;
                }
            }
            merged.push(writer.finish(context, self.node)?, runs.rank(start));
        }
        Ok(merged)
    }

    /// Puts the values of the next row into their places, where there may be others of the kind; false behind the last row.
    pub(in crate::exec) fn next(&mut self, out: &mut [Value]) -> Result<bool> {
        if self.given >= self.top {
            return Ok(false);
        }
        self.given += 1;
        let row = match &mut self.output {
            Output::Taking => return Err(Error::internal("a sort was not finished")),
            Output::Memory(rows) => {
                if !rows.advance() {
                    return Ok(false);
                }
                rows.current()
            }
            Output::Merge(merge) => match merge.next(&self.order)? {
                Some(row) => row,
                None => return Ok(false),
            },
            Output::Merged(merged) => match merged.next()? {
                Some(row) => row,
                None => return Ok(false),
            },
        };
        self.order.decode(row, out)?;
        Ok(true)
    }
}
