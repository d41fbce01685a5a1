//! Sorting of keys with their values, within the memory budget: what bulk loading needs. Keys are compared bytewise, which is
//! the order of the tree, so nothing is decoded.
//!
//! # Way
//! Entries are gathered in one block of memory. When it is as large as the engine lets an operation be, it is sorted and written to a
//! temporary file as a *run*; in the end the runs are merged, at most [`FAN_IN`] at a time.
//! An entry of a run is the length of its key and of its value, 4 bytes each, and then the two.

use crate::{Error, Result};
use gannet_store::{Engine, TempFile, TempReader, WorkMemory};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
            let key = &self.bytes[entry.start..][..entry.key as usize];
            let value = &self.bytes[entry.start + key.len()..][..entry.value as usize];
            write_entry(&mut writer, key, value)?;
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

fn write_entry(writer: &mut gannet_store::TempWriter, key: &[u8], value: &[u8]) -> Result<()> {
    writer.write_all(&(key.len() as u32).to_le_bytes())?;
    writer.write_all(&(value.len() as u32).to_le_bytes())?;
    writer.write_all(key)?;
    writer.write_all(value)?;
    Ok(())
}

/// Merges groups of runs into longer ones.
fn merge_pass(engine: &Engine, file: &TempFile, runs: &[Run]) -> Result<(TempFile, Vec<Run>)> {
    let mut writer = engine.temp_file()?.writer()?;
    let mut longer = Vec::new();
    for group in runs.chunks(FAN_IN) {
        let from = writer.position();
        let mut merge = Merge::new_on(file, group)?;
        while let Some((key, value)) = merge.next()? {
            write_entry(&mut writer, key, value)?;
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
            Source::Runs(merge) => merge.next(),
        }
    }
}

/// An entry at the head of a run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: Vec<u8>,
    /// Of equal keys the one of the earlier run comes first.
    run: usize,
    value: Vec<u8>,
}

#[derive(Debug)]
struct Merge {
    readers: Vec<TempReader>,
    heads: BinaryHeap<Reverse<Head>>,
    current: Option<Head>,
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
        let readers =
            runs.iter().map(|run| file.reader(run.from, run.to)).collect::<gannet_store::Result<_>>()?;
        let mut merge = Merge { readers, heads: BinaryHeap::new(), current: None, _file: None };
        for run in 0..merge.readers.len() {
            let head = Head { key: Vec::new(), run, value: Vec::new() };
            merge.advance(head)?;
        }
        Ok(merge)
    }

    /// Puts the next entry of a run into the heap, with the buffers of the one before.
    fn advance(&mut self, mut head: Head) -> Result<()> {
        let reader = &mut self.readers[head.run];
        if reader.remaining() == 0 {
            return Ok(());
        }
        let mut lengths = [0; 8];
        reader.read_exact(&mut lengths)?;
        let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes")) as usize;
        head.key.resize(length(&lengths[..4]), 0);
        reader.read_exact(&mut head.key)?;
        head.value.resize(length(&lengths[4..]), 0);
        reader.read_exact(&mut head.value)?;
        self.heads.push(Reverse(head));
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if let Some(head) = self.current.take() {
            self.advance(head)?;
        }
        self.current = self.heads.pop().map(|Reverse(head)| head);
        Ok(self.current.as_ref().map(|head| (head.key.as_slice(), head.value.as_slice())))
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
}
