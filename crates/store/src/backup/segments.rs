//! The segments of a log that is being put together beside a new database.
//!
//! A backup may have more of them than a process may have files, so few are open at a time: what is closed was made durable before.

use crate::Result;
use crate::log::segment_path;
use gannet_io::{Class, Disk, File, ModeRequest, OpenOptions};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Files that are open at a time, and those that somebody else holds besides.
const OPEN_MOST: usize = 4;

/// See the module's head.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    mode: ModeRequest,
    numbers: BTreeSet<u64>,
    /// The one that was asked for last is the last one.
    open: VecDeque<(u64, Arc<dyn File>)>,
}

impl Segments {
    pub(super) fn new(disk: &Arc<dyn Disk>, folder: PathBuf, mode: ModeRequest) -> Self {
        let (numbers, open) = (BTreeSet::new(), VecDeque::new());
        Segments { disk: Arc::clone(disk), folder, mode, numbers, open }
    }

    fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.folder, number)
    }

    /// The file of a segment, of `size` bytes; made where there is none yet.
    pub(super) fn file(&mut self, number: u64, size: u64) -> Result<Arc<dyn File>> {
        if let Some(at) = self.open.iter().position(|&(other, _)| other == number) {
            let found = self.open.remove(at).expect("it is there");
            let file = Arc::clone(&found.1);
            self.open.push_back(found);
            return Ok(file);
        }
        self.close_some()?;
        let is_new = !self.numbers.contains(&number);
        let options = if is_new { OpenOptions::create_new() } else { OpenOptions::read_write() };
        let file = self.disk.open(&self.path(number), &options.mode(self.mode))?;
        if is_new {
            file.allocate(0, size)?;
            self.numbers.insert(number);
        }
        self.open.push_back((number, Arc::clone(&file)));
        Ok(file)
    }

    /// Makes room for one that is to be opened. Whoever holds one may write to it yet: it stays.
    fn close_some(&mut self) -> Result<()> {
        while self.open.len() >= OPEN_MOST {
            let Some(at) = self.open.iter().position(|(_, file)| Arc::strong_count(file) == 1) else { break };
            self.open[at].1.sync(Class::Maintenance)?;
            self.open.remove(at);
        }
        Ok(())
    }

    /// Removes all segments before this one.
    pub(super) fn remove_before(&mut self, number: u64) -> Result<()> {
        self.open.retain(|&(other, _)| other >= number);
        let kept = self.numbers.split_off(&number);
        for number in std::mem::replace(&mut self.numbers, kept) {
            self.disk.remove(&self.path(number))?;
        }
        Ok(())
    }

    /// Removes all segments.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.remove_before(u64::MAX)
    }

    /// Makes all of them durable, with their names.
    pub(super) fn sync(&self) -> Result<()> {
        for (_, file) in &self.open {
            file.sync(Class::Maintenance)?;
        }
        Ok(self.disk.sync_dir(&self.folder)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::sim::{CrashPolicy, SimDisk};
    use gannet_io::{AlignedBuffer, Durability};
    use std::path::Path;

    const SIZE: u64 = 64 << 10;

    #[test]
    fn few_files_are_open_and_all_of_them_are_durable() {
        let sim = SimDisk::new(1);
        sim.create_dir(Path::new("wal")).unwrap();
        sim.sync_dir(Path::new(".")).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut segments = Segments::new(&disk, "wal".into(), ModeRequest::default());
        let mut block = AlignedBuffer::zeroed(4096);
        let write = |segments: &mut Segments, number: u64, block: &mut AlignedBuffer| {
            let file = segments.file(number, SIZE).unwrap();
            block.fill(number as u8);
            file.write_at(Class::Maintenance, 4096 * (number % 2), block, Durability::Cached).unwrap();
            file
        };
        let held = write(&mut segments, 1, &mut block);
        for number in 2..200 {
            write(&mut segments, number, &mut block);
            assert!(segments.open.len() <= OPEN_MOST);
        }
        // Who holds one may write to it as long as he likes.
        block.fill(1);
        held.write_at(Class::Maintenance, 8192, &block, Durability::Cached).unwrap();
        drop(held);
        // One that was closed is there as it was.
        let again = segments.file(7, SIZE).unwrap();
        again.read_at(Class::Maintenance, 4096, &mut block).unwrap();
        assert!(block.iter().all(|&byte| byte == 7));
        segments.remove_before(5).unwrap();
        segments.sync().unwrap();
        let after = sim.crash_image_with(CrashPolicy::KeepNone, 1);
        for number in 1..200 {
            let path = segments.path(number);
            if number < 5 {
                assert!(!after.exists(&path).unwrap());
                continue;
            }
            let contents = after.contents(&path).unwrap();
            let at = 4096 * (number % 2) as usize;
            assert!(contents[at..at + 4096].iter().all(|&byte| byte == number as u8), "{number}");
        }
    }
}
