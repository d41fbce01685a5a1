//! Tests of the log through its public surface, on the simulated disk.

use super::*;
use gannet_base::PageId;
use gannet_base::sim::{Generator, Simulation};
use gannet_base::{clock, thread};
use gannet_io::sim::{Chance, CrashPolicy, Faults, Settings, SimDisk};
use gannet_io::{AlignedBuffer, Durability, OpenOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;

mod append;
mod crash;
mod damage;
mod restart;

const FOLDER: &str = "/db.gnt-wal";
const SEGMENT: u64 = 256 << 10;

fn chain_of(reader: &LogReader, page: PageId, last: Lsn, have: Lsn) -> Result<Vec<PageChange>> {
    let mut changes = Vec::new();
    reader.chain(page, last, have, &mut |change| {
        changes.push(change.clone());
        Ok(())
    })?;
    Ok(changes)
}

fn folder() -> &'static Path {
    Path::new(FOLDER)
}

fn segment_path(number: u64) -> PathBuf {
    folder().join(format!("{number:016x}.log"))
}

fn options() -> LogOptions {
    LogOptions { segment_size: SEGMENT, ring_size: SEGMENT / 2, reserve_segments: 1, ..LogOptions::new(77) }
}

fn budget() -> Budget {
    Budget::new(16 << 20)
}

fn disk_of(sim: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(sim.clone())
}

fn create(sim: &SimDisk) -> Log {
    Log::create(&disk_of(sim), folder(), &options(), Lsn::ZERO, 1, &budget()).unwrap()
}

fn recover_from(sim: &SimDisk, redo_from: u64, incarnation: u32) -> Result<(Recovery, Log)> {
    let files = LogFiles::find(&disk_of(sim), folder(), &options(), Lsn(redo_from))?;
    let known = Known { redo_from: Lsn(redo_from), incarnation, ..Known::default() };
    Log::recover(&files.expect("there is a folder"), &options(), &known, &budget())
}

fn recover(sim: &SimDisk) -> (Recovery, Log) {
    recover_from(sim, 0, 1).unwrap()
}

/// A group that changes `pages`, each by an operation of `len` bytes.
fn group(pages: &[(u64, u64)], len: usize) -> GroupBuilder {
    let mut group = GroupBuilder::new();
    for &(page, previous) in pages {
        group.change(PageId(page), Lsn(previous), 3, false, |out| out.resize(out.len() + len, page as u8));
    }
    group
}

/// A write of `bytes` (whole blocks) straight into a segment file.
fn overwrite(sim: &SimDisk, number: u64, offset: u64, bytes: &[u8]) {
    let file = sim.open(&segment_path(number), &OpenOptions::read_write()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    file.write_at(Class::Commit, offset, &buffer, Durability::Durable).unwrap();
}

fn contents(sim: &SimDisk, number: u64) -> Vec<u8> {
    sim.contents(&segment_path(number)).unwrap()
}

/// Every record from `end` back to `start`, oldest first.
fn walk_back(log: &Log, end: Lsn, start: Lsn) -> Vec<Record> {
    let reader = log.reader(1 << 20).unwrap();
    let mut records = Vec::new();
    let mut at = end.0;
    while at > start.0 {
        if at % SEGMENT == 4096 {
            at -= 4096;
            continue;
        }
        let record = reader.read_at(Lsn(at)).unwrap();
        at = record.start().0;
        records.push(record);
    }
    records.reverse();
    records
}

/// What the records of a log say, computed in the most direct way.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
struct Model {
    pages: BTreeMap<u64, u64>,
    open: BTreeMap<u64, u64>,
    begun: Vec<u64>,
    ended: Vec<(u64, bool)>,
    highest: u64,
    commit: u64,
}

impl Model {
    fn apply(&mut self, record: &Record) {
        for change in record.changes() {
            self.pages.insert(change.page.0, record.lsn().0);
        }
        let Some(TxnInfo { id: TxnId(id), event }) = record.txn() else { return };
        self.highest = self.highest.max(id);
        if !self.open.contains_key(&id) {
            self.begun.push(id);
        }
        match event {
            TxnEvent::Change { undo } => drop(self.open.insert(id, undo)),
            TxnEvent::Commit => {
                self.open.remove(&id);
                self.ended.push((id, true));
                self.commit = record.lsn().0;
            }
            TxnEvent::Ended => {
                self.open.remove(&id);
                self.ended.push((id, false));
            }
        }
    }

    fn next_segment(&mut self) {
        self.pages.clear();
        self.begun.clear();
        self.ended.clear();
    }

    fn open(&self) -> Vec<(TxnId, u64)> {
        self.open.iter().map(|(&id, &undo)| (TxnId(id), undo)).collect()
    }

    fn agrees_with(&self, footer: &Footer) {
        let pages: Vec<_> = footer.pages.iter().map(|(page, lsn)| (page.0, lsn.0)).collect();
        assert_eq!(pages, self.pages.iter().map(|(&p, &l)| (p, l)).collect::<Vec<_>>());
        assert_eq!(footer.begun.iter().map(|t| t.0).collect::<Vec<_>>(), self.begun);
        assert_eq!(footer.ended.iter().map(|(t, c)| (t.0, *c)).collect::<Vec<_>>(), self.ended);
        assert_eq!(footer.open, self.open());
        assert_eq!((footer.highest_txn.0, footer.highest_commit.0), (self.highest, self.commit));
    }
}

/// A load of transactions that touch pages, with chains of LSNs kept right.
struct Load {
    random: Generator,
    lsns: BTreeMap<u64, u64>,
    open: Vec<u64>,
    next_txn: u64,
    group: GroupBuilder,
    pages: u64,
}

impl Load {
    fn new(seed: u64) -> Self {
        let (lsns, open, group) = (BTreeMap::new(), Vec::new(), GroupBuilder::new());
        Load { random: Generator::new(seed), lsns, open, next_txn: 1, group, pages: 200 }
    }

    /// Appends one group, of about `size` bytes now and then.
    fn step(&mut self, log: &Log, size: u64) -> Result<Lsn> {
        self.group.clear();
        let count = self.random.below(4);
        let mut touched = Vec::new();
        for _ in 0..count {
            let page = 1 + self.random.below(self.pages);
            if touched.contains(&page) {
                continue;
            }
            touched.push(page);
            let previous = self.lsns.get(&page).copied().unwrap_or(0);
            let large = touched.len() == 1 && self.random.one_in(4);
            let len = if large { size } else { self.random.below(100) } as usize;
            let init = previous == 0 || self.random.one_in(20);
            let byte = (previous / 8) as u8;
            self.group.change(PageId(page), Lsn(previous), 7, init, |out| out.resize(out.len() + len, byte));
        }
        let event = match self.random.below(4) {
            0 if !self.open.is_empty() => {
                let index = self.random.below(self.open.len() as u64) as usize;
                let id = self.open.swap_remove(index);
                let event = if self.random.one_in(3) { TxnEvent::Ended } else { TxnEvent::Commit };
                Some((id, event))
            }
            1 => Some((self.next_txn, TxnEvent::Change { undo: self.random.next_u64() })),
            2 if !self.open.is_empty() => {
                let index = self.random.below(self.open.len() as u64) as usize;
                Some((self.open[index], TxnEvent::Change { undo: self.random.next_u64() }))
            }
            _ => None,
        };
        if let Some((id, event)) = event {
            self.group.set_txn(TxnId(id), event);
        }
        let lsn = log.append(&self.group)?;
        if event.is_some_and(|(id, _)| id == self.next_txn) {
            self.open.push(self.next_txn);
            self.next_txn += 1;
        }
        self.lsns.extend(touched.into_iter().map(|page| (page, lsn.0)));
        Ok(lsn)
    }
}
