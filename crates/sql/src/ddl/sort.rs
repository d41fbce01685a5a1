//! Sorting of keys with their values, within the memory budget: what bulk loading needs. Keys are compared bytewise, which is
//! the order of the tree, so nothing is decoded.
//!
//! # Way
//! Entries are gathered in one block of memory. When it is as large as the engine lets an operation be, it is sorted and written to a
//! temporary file as a *run*; in the end the runs are merged, at most [`FAN_IN`] at a time, by a tree of losers (D. E. Knuth, "The Art
//! of Computer Programming", volume 3, section 5.4.1).
//! An entry of a run is the length of its key and of its value, 4 bytes each, and then the two.

use crate::{Error, Result};
use gannet_store::{Engine, TempFile, TempReader, WorkMemory};

/// Runs merged at once.
const FAN_IN: usize = 32;
/// Bytes by which the memory grows.
const STEP: u64 = 1 << 20;
/// Bytes that an entry takes besides key and value.
const OVERHEAD: usize = size_of::<Entry>();

/// Where an entry is in the block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The first bytes of its key, which tell most of them apart without a look at the block.
    prefix: u64,
    start: usize,
    key: u32,
    value: u32,
}

/// Where a run is in its file.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
}

/// Takes entries in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    engine: Engine,
    memory: WorkMemory,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    file: Option<TempFile>,
    runs: Vec<Run>,
}

impl Sorter {
    pub(super) fn new(engine: &Engine) -> Result<Self> {
        Ok(Sorter {
            engine: engine.clone(),
            memory: engine.work_memory(0)?,
            bytes: Vec::new(),
            entries: Vec::new(),
            file: None,
            runs: Vec::new(),
        })
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (Ok(key_len), Ok(value_len)) = (u32::try_from(key.len()), u32::try_from(value.len())) else {
            return Err(Error::internal("an entry of more than 4 GiB is sorted"));
        };
        self.make_room(key.len() + value.len())?;
        let (prefix, start) = (prefix(key), self.bytes.len());
        self.entries.push(Entry { prefix, start, key: key_len, value: value_len });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Has memory for one more entry, if need be by writing the others to the file.
    fn make_room(&mut self, len: usize) -> Result<()> {
        let bytes = (self.bytes.len() + len).next_power_of_two();
        let entries = (self.entries.len() + 1).next_power_of_two() * OVERHEAD;
        if self.bytes.len() + len <= self.bytes.capacity() && self.entries.len() < self.entries.capacity() {
            return Ok(());
        }
        let needed = ((bytes + entries) as u64).next_multiple_of(STEP);
        let held = self.memory.bytes();
        let allowed = needed <= self.engine.work_limit().max(STEP) || self.entries.is_empty();
        if needed > held && (!allowed || self.memory.grow(needed - held).is_err()) {
            if self.entries.is_empty() {
                return Err(Error::from(self.memory.grow(needed - held).err().unwrap_or_else(|| {
                    gannet_store::Error::Invalid("the memory budget has no room for one row".to_owned())
                })));
            }
            self.spill()?;
            // What is there may be enough now; else one entry is longer than all of it.
            return self.make_room(len);
        }
        self.bytes.reserve_exact(bytes.saturating_sub(self.bytes.len()));
        self.entries.reserve_exact((entries / OVERHEAD).saturating_sub(self.entries.len()));
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |entry: &Entry| &bytes[entry.start..][..entry.key as usize];
        // Of equal keys the first stays the first.
        self.entries.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))).then(a.start.cmp(&b.start))
        });
    }

    /// Writes what is in memory as a run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let file = match self.file.take() {
            Some(file) => file,
            None => self.engine.temp_file()?,
        };
        let mut writer = file.writer()?;
        let from = writer.position();
        for entry in &self.entries {
            let bytes = &self.bytes[entry.start..][..(entry.key + entry.value) as usize];
            write_entry(&mut writer, entry.key, bytes)?;
        }
        let to = writer.position();
        self.file = Some(writer.finish()?);
        self.runs.push(Run { from, to });
        self.entries.clear();
        self.bytes.clear();
        Ok(())
    }

    /// All entries in order.
    pub(super) fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            self.sort();
            return Ok(Sorted(Source::Memory { sorter: self, next: 0 }));
        }
        if !self.entries.is_empty() {
            self.spill()?;
        }
        // The memory is for the readers now.
        self.bytes = Vec::new();
        self.entries = Vec::new();
        self.memory.shrink_to(0);
        let mut file = self.file.take().expect("runs are in a file");
        while self.runs.len() > FAN_IN {
            (file, self.runs) = merge_pass(&self.engine, &file, &self.runs)?;
        }
        Ok(Sorted(Source::Runs(Merge::new(file, &self.runs)?)))
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

/// Writes an entry of key and value, one behind the other.
fn write_entry(writer: &mut gannet_store::TempWriter, key: u32, bytes: &[u8]) -> Result<()> {
    let mut lengths = [0; 8];
    lengths[..4].copy_from_slice(&key.to_le_bytes());
    lengths[4..].copy_from_slice(&(bytes.len() as u32 - key).to_le_bytes());
    writer.write_all(&lengths)?;
    writer.write_all(bytes)?;
    Ok(())
}

/// Merges groups of runs into longer ones.
fn merge_pass(engine: &Engine, file: &TempFile, runs: &[Run]) -> Result<(TempFile, Vec<Run>)> {
    let mut writer = engine.temp_file()?.writer()?;
    let mut longer = Vec::new();
    for group in runs.chunks(FAN_IN) {
        let from = writer.position();
        let mut merge = Merge::new_on(file, group)?;
        while let Some(head) = merge.next()? {
            write_entry(&mut writer, head.key as u32, &head.bytes)?;
        }
        longer.push(Run { from, to: writer.position() });
    }
    Ok((writer.finish()?, longer))
}

/// Entries in the order of their keys.
#[derive(Debug)]
pub(super) struct Sorted(Source);

#[derive(Debug)]
enum Source {
    Memory { sorter: Sorter, next: usize },
    Runs(Merge),
}

impl Sorted {
    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.0 {
            Source::Memory { sorter, next } => {
                let Some(entry) = sorter.entries.get(*next) else { return Ok(None) };
                *next += 1;
                let bytes = &sorter.bytes[entry.start..][..(entry.key + entry.value) as usize];
                Ok(Some(bytes.split_at(entry.key as usize)))
            }
            Source::Runs(merge) => Ok(merge.next()?.map(|head| head.bytes.split_at(head.key))),
        }
    }
}

/// The first entry that is left of a run.
#[derive(Debug)]
struct Head {
    prefix: u64,
    /// Key and value; of a run that has ended nothing counts.
    bytes: Vec<u8>,
    /// Length of the key.
    key: usize,
    reader: TempReader,
    is_over: bool,
}

impl Head {
    /// Takes the next entry.
    fn advance(&mut self) -> Result<()> {
        if self.reader.remaining() == 0 {
            self.is_over = true;
            return Ok(());
        }
        let mut lengths = [0; 8];
        self.reader.read_exact(&mut lengths)?;
        let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes")) as usize;
        self.key = length(&lengths[..4]);
        self.bytes.resize(self.key + length(&lengths[4..]), 0);
        self.reader.read_exact(&mut self.bytes)?;
        self.prefix = prefix(&self.bytes[..self.key]);
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
    /// Keeps the file as long as it is read.
    _file: Option<TempFile>,
}

impl Merge {
    fn new(file: TempFile, runs: &[Run]) -> Result<Self> {
        let mut merge = Merge::new_on(&file, runs)?;
        merge._file = Some(file);
        Ok(merge)
    }

    fn new_on(file: &TempFile, runs: &[Run]) -> Result<Self> {
        let head = |run: &Run| -> Result<Head> {
            let reader = file.reader(run.from, run.to)?;
            let mut head = Head { prefix: 0, bytes: Vec::new(), key: 0, reader, is_over: false };
            head.advance()?;
            Ok(head)
        };
        let heads: Vec<Head> = runs.iter().map(head).collect::<Result<_>>()?;
        let mut merge = Merge { losers: vec![0; heads.len()], heads, is_given: false, _file: None };
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
        one.prefix
            .cmp(&other.prefix)
            .then_with(|| one.bytes[..one.key].cmp(&other.bytes[..other.key]))
            .then(a.cmp(&b))
            .is_lt()
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
    use gannet_store::EngineOptions;

    #[test]
    fn more_entries_than_memory_come_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 8 << 20, temp_folder: Some(folder.path().to_owned()) };
        let engine = Engine::new(&options).unwrap();
        let mut sorter = Sorter::new(&engine).unwrap();
        let count = 60_000_u64;
        for number in 0..count {
            // Each number once, scattered; values of many lengths.
            let scattered = number * 7919 % count;
            sorter.push(&scattered.to_be_bytes(), &vec![7; (scattered % 200) as usize]).unwrap();
        }
        assert!(sorter.runs.len() > 2, "{} runs", sorter.runs.len());
        let mut sorted = sorter.finish().unwrap();
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
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 8 << 20, temp_folder: Some(folder.path().to_owned()) };
        let engine = Engine::new(&options).unwrap();
        let mut sorter = Sorter::new(&engine).unwrap();
        let mut wanted = Vec::new();
        for number in 0..150_000_u64 {
            // The first eight bytes of most are alike, and some keys begin another one.
            let key = match number % 3 {
                0 => b"customer".to_vec(),
                1 => format!("customer {}", number * 7919 % 1000).into_bytes(),
                _ => vec![(number % 7) as u8; (number % 12) as usize],
            };
            sorter.push(&key, &number.to_be_bytes()).unwrap();
            wanted.push((key, number.to_be_bytes().to_vec()));
        }
        wanted.sort();
        assert!(sorter.runs.len() > 2, "{} runs", sorter.runs.len());
        let mut sorted = sorter.finish().unwrap();
        for (key, value) in &wanted {
            assert_eq!(sorted.next().unwrap(), Some((&key[..], &value[..])));
        }
        assert!(sorted.next().unwrap().is_none() && sorted.next().unwrap().is_none());
    }
}
