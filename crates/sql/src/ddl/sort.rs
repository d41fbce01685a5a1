//! Sorting of keys with their values, within the memory budget: what bulk loading needs. Keys are compared bytewise, which is
//! the order of the tree, so nothing is decoded.
//!
//! # Way
//! Entries are gathered in a block of memory that a processor's cache has room for, more or less. When that is full it is sorted, and becomes a
//! *run*, as long as the sorter may take that much memory; when it may not, the runs in memory are merged into one in a temporary file.
//! In the end all runs are merged, as many at a time as have room for blocks and the longest entry, by a tree of losers (D. E. Knuth, "The Art of Computer Programming", volume
//! 3, section 5.4.1).
//! An entry of a run is the length of its key and of its value, 4 bytes each, and then the two.

use super::build::CHECK_EVERY;
use crate::exec::{LARGE_BYTES, RowBytes, readers_within};
use crate::{Error, Result};
use gannet_store::{Engine, TempFile, TempReader, TempWriter, WorkMemory};
use std::ops::Range;

/// Runs of a file merged at once, least and most.
const FAN_IN: (u64, u64) = (2, 32);
/// Bytes by which the memory grows.
const STEP: u64 = 256 << 10;
/// Bytes of the block, but for what would be too many runs in memory, or too large a part of it.
const BLOCK: u64 = 4 << 20;
const RUNS_IN_MEMORY: u64 = 64;
const BLOCK_SHARE: u64 = 4;
/// The least that it may take.
const LEAST: u64 = 1 << 20;
/// As long as there are runs in memory, so much is kept for whoever writes them to a file when there is no memory for anything.
const WRITER: u64 = 256 << 10;
/// Bytes that an entry takes besides key and value: in the block, and in a run.
const OVERHEAD: usize = size_of::<Entry>();
const LENGTHS: usize = 8;

/// Where an entry is in the block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of its key, which tell most of them apart without a look at the block.
    prefix: u64,
    start: usize,
    key: u32,
    value: u32,
}

/// A run.
#[derive(Debug)]
enum Run {
    /// In the file.
    File(Range<u64>),
    Memory(Vec<u8>),
}

/// Takes entries in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    engine: Engine,
    memory: WorkMemory,
    /// Bytes that it may take; where it says nothing, the share of an operation among others.
    limit: Option<u64>,
    /// The block, and where the entries are in it.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes of the longest entry so far.
    longest: usize,
    /// Bytes charged for a writer.
    for_writer: u64,
    file: Option<TempFile>,
    /// Those in the file come first, as they have what came first.
    runs: Vec<Run>,
}

impl Sorter {
    pub(super) fn new(engine: &Engine) -> Result<Self> {
        Ok(Self::with(engine, engine.work_memory(0)?, None))
    }

    /// One that may take so many bytes, however many others there are.
    pub(super) fn within(engine: &Engine, limit: u64) -> Result<Self> {
        Ok(Self::with(engine, engine.work_memory(0)?, Some(limit)))
    }

    fn with(engine: &Engine, memory: WorkMemory, limit: Option<u64>) -> Self {
        Sorter {
            engine: engine.clone(),
            memory,
            limit,
            bytes: Vec::new(),
            entries: Vec::new(),
            longest: 0,
            for_writer: 0,
            file: None,
            runs: Vec::new(),
        }
    }

    /// Adds an entry. Where that takes writing others, `check` is asked now and then whether to go on.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], check: &dyn Fn() -> Result<()>) -> Result<()> {
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len())) else {
            return Err(Error::internal("an entry of more than 4 GiB is sorted"));
        };
        self.make_room(key.len() + value.len(), check)?;
        self.longest = self.longest.max(key.len() + value.len());
        let (prefix, start) = (prefix(key), self.bytes.len());
        self.entries.push(Entry { prefix, start, key: key_len, value: value_len });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Bytes that it may take now.
    fn limit(&self) -> u64 {
        self.limit.unwrap_or_else(|| self.engine.work_limit()).max(LEAST)
    }

    /// Has room in the block for one more entry, if need be by making a run of the others.
    fn make_room(&mut self, len: usize, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let (bytes, entries) = (self.bytes.len() + len, self.entries.len() + 1);
        if bytes <= self.bytes.capacity() && entries <= self.entries.capacity() {
            return Ok(());
        }
        let block = self.block_bytes();
        let grown = |needed: usize, capacity: usize| match needed > capacity {
            true => needed.max(2 * capacity),
            false => capacity,
        };
        let (bytes, entries) = (grown(bytes, self.bytes.capacity()), grown(entries, self.entries.capacity()));
        let needed = ((bytes + entries * OVERHEAD) as u64).next_multiple_of(STEP);
        let limit = self.limit();
        // One entry is taken however long it is.
        if needed <= BLOCK.max(limit / RUNS_IN_MEMORY).min(limit / BLOCK_SHARE) || self.entries.is_empty() {
            match self.memory.grow(needed.saturating_sub(block)) {
                Ok(()) => {
                    self.bytes.reserve_exact(bytes - self.bytes.len());
                    self.entries.reserve_exact(entries - self.entries.len());
                    return Ok(());
                }
                Err(error) if self.entries.is_empty() && self.in_memory() == 0 => return Err(error.into()),
                Err(_) if self.entries.is_empty() => {
                    self.spill(check)?;
                    return self.make_room(len, check);
                }
                Err(_) => {}
            }
        }
        self.end_block(check)?;
        // What is there may be enough now; else one entry is longer than all of it.
        self.make_room(len, check)
    }

    /// Bytes charged for the block.
    fn block_bytes(&self) -> u64 {
        self.memory.bytes() - self.in_memory() - self.for_writer
    }

    /// Bytes of the runs in memory.
    fn in_memory(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    /// How many runs are in the file.
    fn in_file(&self) -> usize {
        self.runs.iter().take_while(|run| matches!(run, Run::File(_))).count()
    }

    fn sort(&mut self) {
        // Numbers are compared without a branch.
        self.entries.sort_unstable_by_key(|entry| entry.prefix);
        let bytes = &self.bytes;
        let key = |entry: &Entry| &bytes[entry.start..][..entry.key as usize];
        // Of equal keys the first stays the first.
        for alike in self.entries.chunk_by_mut(|a, b| a.prefix == b.prefix).filter(|alike| alike.len() > 1) {
            alike.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.start.cmp(&b.start)));
        }
    }

    /// Makes a run of what is in the block.
    fn end_block(&mut self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        self.sort();
        let len = self.bytes.len() + self.entries.len() * LENGTHS;
        let mut done = self.keep_block(len);
        if !done {
            self.spill(check)?;
            done = self.keep_block(len);
        }
        if !done {
            self.write(check, |sorter, writer| {
                sorter.entries.iter().try_for_each(|entry| writer.push(entry.key, sorter.entry(entry)))
            })?;
        }
        self.entries.clear();
        self.bytes.clear();
        if self.block_bytes() > BLOCK.max(self.limit() / RUNS_IN_MEMORY) {
            // One entry was longer than a block.
            self.free_block();
        }
        Ok(())
    }

    /// Makes a run in memory of what is in the block, which takes so many bytes; false where there is no room for it.
    fn keep_block(&mut self, len: usize) -> bool {
        let more = len as u64 + WRITER - self.for_writer;
        if self.memory.bytes() + more > self.limit() || self.memory.grow(more).is_err() {
            return false;
        }
        self.for_writer = WRITER;
        let mut run = Vec::with_capacity(len);
        for entry in &self.entries {
            run.extend_from_slice(&lengths(entry.key, self.entry(entry)));
            run.extend_from_slice(self.entry(entry));
        }
        self.runs.push(Run::Memory(run));
        true
    }

    fn free_block(&mut self) {
        (self.bytes, self.entries) = (Vec::new(), Vec::new());
        self.memory.shrink_to(self.in_memory() + self.for_writer);
    }

    /// Key and value of an entry of the block.
    fn entry(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..][..(entry.key + entry.value) as usize]
    }

    /// Makes one run in the file of those in memory.
    fn spill(&mut self, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let in_memory = self.runs.split_off(self.in_file());
        if in_memory.is_empty() {
            return Ok(());
        }
        let held = in_memory.iter().map(Run::bytes).sum::<u64>();
        let block = self.memory.bytes() - held - self.for_writer;
        // The writer takes it.
        self.memory.shrink_to(block + held);
        self.for_writer = 0;
        let merge = Merge::of(None, in_memory)?;
        self.write(check, |_, writer| writer.push_all(merge))?;
        self.memory.shrink_to(block);
        Ok(())
    }

    /// Writes a run to the file.
    fn write(
        &mut self,
        check: &dyn Fn() -> Result<()>,
        work: impl FnOnce(&Self, &mut RunWriter<'_>) -> Result<()>,
    ) -> Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.engine.temp_file_within(self.limit())?,
        };
        let mut writer = RunWriter::new(file, check)?;
        let from = writer.position();
        work(self, &mut writer)?;
        let to = writer.position();
        self.file = Some(writer.finish()?);
        self.runs.push(Run::File(from..to));
        Ok(())
    }

    /// All entries in order. Where that takes writing them, `check` is asked now and then whether to go on.
    pub(super) fn finish(mut self, check: &dyn Fn() -> Result<()>) -> Result<Sorted> {
        if self.runs.is_empty() {
            self.sort();
            return Ok(Sorted(Source::Memory { sorter: Box::new(self), next: 0 }));
        }
        if !self.entries.is_empty() {
            self.end_block(check)?;
        }
        self.free_block();
        let limit = self.limit();
        let block = self.file.as_ref().map(TempFile::block_bytes);
        let block = block.unwrap_or_else(|| self.engine.temp_block_bytes(limit));
        let fits = |this: &Self| readers_within(limit, this.in_memory(), this.longest, block).min(FAN_IN.1);
        let in_file = self.in_file() as u64;
        if in_file > 0 && (self.in_memory() > limit / 2 || in_file > fits(&self)) {
            // Readers of the file need memory, too.
            self.spill(check)?;
        }
        self.memory.shrink_to(self.in_memory());
        let fan_in = fits(&self).max(FAN_IN.0) as usize;
        let in_memory = self.runs.split_off(self.in_file());
        let Sorter { engine, memory, mut file, mut runs, .. } = self;
        while runs.len() > fan_in {
            let into = engine.temp_file_within(limit)?;
            let longer = merge_pass(into, file.take(), runs, fan_in, check)?;
            (file, runs) = (Some(longer.0), longer.1);
        }
        runs.extend(in_memory);
        let mut merge = Merge::of(file.as_ref(), runs)?;
        merge.kept = Some((file, memory));
        Ok(Sorted(Source::Runs(Box::new(merge))))
    }
}

impl Run {
    /// Bytes of it in memory.
    fn bytes(&self) -> u64 {
        if let Run::Memory(bytes) = self { bytes.len() as u64 } else { 0 }
    }
}

/// The first eight bytes of a key as a number of the same order; a shorter key is filled up with zeros.
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

/// What stands before an entry of key and value, one behind the other.
fn lengths(key: u32, entry: &[u8]) -> [u8; LENGTHS] {
    let mut lengths = [0; LENGTHS];
    lengths[..4].copy_from_slice(&key.to_le_bytes());
    lengths[4..].copy_from_slice(&(entry.len() as u32 - key).to_le_bytes());
    lengths
}

/// Writes runs to a file.
struct RunWriter<'c> {
    writer: TempWriter,
    /// Asked now and then whether to go on.
    check: &'c dyn Fn() -> Result<()>,
    /// Entries that were written.
    count: u32,
}

impl<'c> RunWriter<'c> {
    /// Behind what the file has already.
    fn new(file: TempFile, check: &'c dyn Fn() -> Result<()>) -> Result<Self> {
        check()?;
        Ok(RunWriter { writer: file.writer()?, check, count: 0 })
    }

    /// Where the next entry goes.
    fn position(&self) -> u64 {
        self.writer.position()
    }

    /// Adds an entry, whose key is so long.
    fn push(&mut self, key: u32, entry: &[u8]) -> Result<()> {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(CHECK_EVERY) || entry.len() > LARGE_BYTES {
            (self.check)()?;
        }
        self.writer.write_all(&lengths(key, entry))?;
        Ok(self.writer.write_all(entry)?)
    }

    /// Adds all entries of a merge.
    fn push_all(&mut self, mut merge: Merge) -> Result<()> {
        while let Some(head) = merge.next()? {
            self.push(head.key as u32, head.entry())?;
        }
        Ok(())
    }

    fn finish(self) -> Result<TempFile> {
        Ok(self.writer.finish()?)
    }
}

/// Merges groups of so many runs, which are in the file, into longer ones in another one.
fn merge_pass(
    into: TempFile,
    file: Option<TempFile>,
    runs: Vec<Run>,
    fan_in: usize,
    check: &dyn Fn() -> Result<()>,
) -> Result<(TempFile, Vec<Run>)> {
    let mut writer = RunWriter::new(into, check)?;
    let mut longer = Vec::new();
    let mut runs = runs.into_iter();
    loop {
        let group: Vec<_> = runs.by_ref().take(fan_in).collect();
        if group.is_empty() {
            return Ok((writer.finish()?, longer));
        }
        let from = writer.position();
        writer.push_all(Merge::of(file.as_ref(), group)?)?;
        longer.push(Run::File(from..writer.position()));
    }
}

/// Entries in the order of their keys.
#[derive(Debug)]
pub(super) struct Sorted(Source);

#[derive(Debug)]
enum Source {
    Memory { sorter: Box<Sorter>, next: usize },
    Runs(Box<Merge>),
}

impl Sorted {
    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.0 {
            Source::Memory { sorter, next } => {
                let Some(entry) = sorter.entries.get(*next) else { return Ok(None) };
                *next += 1;
                Ok(Some(sorter.entry(entry).split_at(entry.key as usize)))
            }
            Source::Runs(merge) => Ok(merge.next()?.map(|head| head.entry().split_at(head.key))),
        }
    }
}

/// Where the entries of a run come from.
#[derive(Debug)]
enum Rest {
    /// What is not read yet, and the entry that was read last.
    File(Box<TempReader>, RowBytes),
    /// All of it, and where that entry is.
    Memory(Vec<u8>, Range<usize>),
}

/// The first entry that is left of a run.
#[derive(Debug)]
struct Head {
    prefix: u64,
    /// Length of the key.
    key: usize,
    rest: Rest,
    /// It has ended: nothing else counts.
    is_over: bool,
}

impl Head {
    /// Key and value.
    fn entry(&self) -> &[u8] {
        match &self.rest {
            Rest::File(_, entry) => entry,
            Rest::Memory(bytes, place) => &bytes[place.clone()],
        }
    }

    fn key(&self) -> &[u8] {
        &self.entry()[..self.key]
    }

    /// Takes the next entry.
    fn advance(&mut self) -> Result<()> {
        let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes")) as usize;
        match &mut self.rest {
            Rest::File(reader, entry) if reader.remaining() == 0 => {
                entry.forget_long();
                self.is_over = true;
            }
            Rest::File(reader, entry) => {
                let mut lengths = [0; LENGTHS];
                reader.read_exact(&mut lengths)?;
                self.key = length(&lengths[..4]);
                let len = self.key + length(&lengths[4..]);
                let entry = entry.begin(len, |bytes| reader.memory(bytes))?;
                entry.resize(len, 0);
                reader.read_exact(entry)?;
            }
            Rest::Memory(bytes, place) if place.end == bytes.len() => self.is_over = true,
            Rest::Memory(bytes, place) => {
                let lengths = &bytes[place.end..place.end + LENGTHS];
                self.key = length(&lengths[..4]);
                let start = place.end + LENGTHS;
                *place = start..start + self.key + length(&lengths[4..]);
            }
        }
        if !self.is_over {
            self.prefix = prefix(self.key());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Merge {
    heads: Vec<Head>,
    /// The tree of losers. A run's match is at the place half of its number and that of runs; each one's winner goes on to the place half
    /// of that. Here are the losers, and in front the one who has lost against nobody.
    losers: Vec<usize>,
    /// The first one's entry was given.
    is_given: bool,
    /// Keeps the file as long as it is read, and what is charged for runs in memory.
    kept: Option<(Option<TempFile>, WorkMemory)>,
}

impl Merge {
    fn of(file: Option<&TempFile>, runs: Vec<Run>) -> Result<Self> {
        let head = |run: Run| -> Result<Head> {
            let rest = match run {
                Run::File(range) => {
                    let file = file.ok_or_else(|| Error::internal("runs are in a file"))?;
                    Rest::File(Box::new(file.reader(range.start, range.end)?), RowBytes::default())
                }
                Run::Memory(bytes) => Rest::Memory(bytes, 0..0),
            };
            let mut head = Head { prefix: 0, key: 0, rest, is_over: false };
            head.advance()?;
            Ok(head)
        };
        let heads: Vec<Head> = runs.into_iter().map(head).collect::<Result<_>>()?;
        let mut merge = Merge { losers: vec![0; heads.len()], heads, is_given: false, kept: None };
        if let Some(first) = merge.winner_below(1) {
            merge.losers[0] = first;
        }
        Ok(merge)
    }

    /// Has the matches from a place downwards, and gives who wins the last one.
    fn winner_below(&mut self, place: usize) -> Option<usize> {
        let runs = self.heads.len();
        if place >= runs {
            return (place < 2 * runs).then(|| place - runs);
        }
        let (a, b) = (self.winner_below(2 * place)?, self.winner_below(2 * place + 1)?);
        let (winner, loser) = if self.comes_first(a, b) { (a, b) } else { (b, a) };
        self.losers[place] = loser;
        Some(winner)
    }

    /// Whether the entry of one run comes before that of another one. Of equal keys the one of the earlier run does.
    fn comes_first(&self, a: usize, b: usize) -> bool {
        let (one, other) = (&self.heads[a], &self.heads[b]);
        if one.is_over || other.is_over {
            return !one.is_over;
        }
        one.prefix.cmp(&other.prefix).then_with(|| one.key().cmp(other.key())).then(a.cmp(&b)).is_lt()
    }

    fn next(&mut self) -> Result<Option<&Head>> {
        let Some(&(mut first)) = self.losers.first() else { return Ok(None) };
        if std::mem::replace(&mut self.is_given, true) {
            self.heads[first].advance()?;
            let mut place = (first + self.heads.len()) / 2;
            while place > 0 {
                if self.comes_first(self.losers[place], first) {
                    std::mem::swap(&mut self.losers[place], &mut first);
                }
                place /= 2;
            }
            self.losers[0] = first;
        }
        Ok(Some(&self.heads[first]).filter(|head| !head.is_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqlState;
    use gannet_base::memory::Purpose;
    use gannet_store::EngineOptions;
    use std::cell::Cell;

    const GOES_ON: fn() -> Result<()> = || Ok(());

    fn cancelled() -> Result<()> {
        Err(Error::new(SqlState::QUERY_CANCELED, "it was cancelled"))
    }

    fn engine(memory: u64) -> (tempfile::TempDir, Engine) {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory, temp_folder: Some(folder.path().to_owned()) };
        (folder, Engine::new(&options).unwrap())
    }

    /// One with entries of so many bytes under numbers that go down, each of them twice.
    fn with_long_entries(engine: &Engine, count: u8, len: usize) -> Sorter {
        let mut sorter = Sorter::new(engine).unwrap();
        for number in 0..count {
            sorter.push(&[(count - 1 - number) / 2], &vec![number; len], &GOES_ON).unwrap();
        }
        sorter
    }

    #[test]
    fn more_entries_than_memory_come_back_in_order() {
        let (_folder, engine) = engine(8 << 20);
        let mut sorter = Sorter::new(&engine).unwrap();
        let count = 60_000_u64;
        for number in 0..count {
            // Each number once, scattered; values of many lengths.
            let scattered = number * 7919 % count;
            sorter.push(&scattered.to_be_bytes(), &vec![7; (scattered % 200) as usize], &GOES_ON).unwrap();
        }
        assert!(sorter.in_file() > 2 && sorter.in_memory() > 0, "{:?}", sorter.runs.len());
        let mut sorted = sorter.finish(&GOES_ON).unwrap();
        for number in 0..count {
            let (key, value) = sorted.next().unwrap().unwrap();
            assert_eq!(key, number.to_be_bytes());
            assert_eq!(value.len() as u64, number % 200);
        }
        assert!(sorted.next().unwrap().is_none());
        assert_eq!(engine.temp_stats().open_files, 1);
        drop(sorted);
        assert_eq!(engine.temp_stats().open_files, 0);
    }

    #[test]
    fn equal_keys_stay_in_their_order_and_long_ones_are_told_apart() {
        let (_folder, engine) = engine(8 << 20);
        let mut sorter = Sorter::new(&engine).unwrap();
        let mut wanted = Vec::new();
        for number in 0..150_000_u64 {
            // The first eight bytes of most are alike, and some keys begin another one.
            let key = match number % 3 {
                0 => b"customer".to_vec(),
                1 => format!("customer {}", number * 7919 % 1000).into_bytes(),
                _ => vec![(number % 7) as u8; (number % 12) as usize],
            };
            sorter.push(&key, &number.to_be_bytes(), &GOES_ON).unwrap();
            wanted.push((key, number.to_be_bytes().to_vec()));
        }
        wanted.sort();
        assert!(sorter.in_file() > 0 && sorter.in_memory() > 0, "{:?}", sorter.runs.len());
        let mut sorted = sorter.finish(&GOES_ON).unwrap();
        for (key, value) in &wanted {
            assert_eq!(sorted.next().unwrap(), Some((&key[..], &value[..])));
        }
        assert!(sorted.next().unwrap().is_none() && sorted.next().unwrap().is_none());
    }

    #[test]
    fn long_entries_are_merged_within_the_memory_that_is_charged() {
        let (_folder, engine) = engine(64 << 20);
        let used = || engine.budget().used_for(Purpose::Work) as usize;
        let len = 5 << 20;
        let sorter = with_long_entries(&engine, 10, len);
        assert!(sorter.in_file() > 2, "{}", sorter.in_file());
        let mut sorted = sorter.finish(&GOES_ON).unwrap();
        for number in 0..10 {
            let (key, value) = sorted.next().unwrap().unwrap();
            let expected = 8 - number / 2 * 2 + number % 2;
            assert_eq!((key, value.len()), (&[number / 2][..], len));
            assert!(value.iter().all(|byte| *byte == expected), "{number}");
            let Source::Runs(merge) = &sorted.0 else { panic!("all of it is in memory") };
            let held = merge.heads.iter().filter(|head| !head.is_over).count() * len;
            assert!(
                merge.heads.len() <= 2 && used() >= held,
                "{} heads, {} bytes",
                merge.heads.len(),
                used()
            );
        }
        assert!(sorted.next().unwrap().is_none());
        // The blocks of readers are left.
        assert!(used() < 2 << 20, "{}", used());
        drop(sorted);
        assert_eq!(used(), 0);
    }

    #[test]
    fn two_entries_without_room_for_both_are_an_error() {
        let (_folder, engine) = engine(32 << 20);
        let sorter = with_long_entries(&engine, 3, 6 << 20);
        let left = engine.budget().limit() - engine.budget().used();
        let taken = engine.memory(Purpose::Work, left - (2 << 20)).unwrap();
        let error = sorter.finish(&GOES_ON).map(|_| ()).unwrap_err();
        assert_eq!(error.state(), SqlState::OUT_OF_MEMORY, "{error}");
        drop(taken);
        assert_eq!((engine.budget().used_for(Purpose::Work), engine.temp_stats().open_files), (0, 0));
    }

    #[test]
    fn writing_what_has_no_room_can_be_cancelled() {
        let (_folder, engine) = engine(8 << 20);
        let mut sorter = Sorter::new(&engine).unwrap();
        let error = (0..200_000_u64).find_map(|n| sorter.push(&n.to_be_bytes(), &[7; 30], &cancelled).err());
        assert_eq!(error.expect("nothing was written").state(), SqlState::QUERY_CANCELED);
        // It looks on its way, not only before.
        let mut sorter = Sorter::new(&engine).unwrap();
        let looks = Cell::new(0_u32);
        let look = || {
            looks.set(looks.get() + 1);
            Ok(())
        };
        let mut count = 0_u64;
        while sorter.in_file() == 0 {
            sorter.push(&count.to_be_bytes(), &[7; 30], &look).unwrap();
            count += 1;
        }
        assert!(u64::from(looks.get()) >= count / u64::from(CHECK_EVERY) / 2, "{} of {count}", looks.get());
        // Also what is left in the end.
        let error = with_long_entries(&engine, 9, 1 << 20).finish(&cancelled).map(|_| ()).unwrap_err();
        assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    }
}
