//! Where runs are recorded, and what was recorded there.
//!
//! All runs of a site have their files at one path: a trace knows them by their paths. A run has one or two lives: the first
//! process may be killed, and a second one goes on with what it finds. What it finds is kept beside the traces.

use crate::ledger::{Ledger, Mark};
use crate::server::Options;
use gannet_io::sim::{Replay, SimDisk};
use gannet_io::trace::{Event, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Unit in which files are written; what is zero is left out.
const PIECE: usize = 64 << 10;
/// The store's file whose bytes are the process's number, written around the recorded disk.
const LOCK: &str = "lock";

/// A folder for runs. `depth` is the number of cuts before a run.
#[derive(Clone)]
pub(crate) struct Site(PathBuf);

/// What the traces of a run offer to a cut.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) events: u64,
    /// Events before each acknowledgement, it included.
    pub(crate) acknowledged: Vec<u64>,
    /// Events of starts after a kill or a cut, up to the first mark.
    pub(crate) starts: Vec<Range<u64>>,
}

impl Site {
    pub(crate) fn new(folder: &Path) -> Self {
        Site(folder.to_owned())
    }

    fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    fn left(&self, depth: usize) -> PathBuf {
        self.0.join(format!("left-{depth}"))
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.run().join("cut.gnt")
    }

    pub(crate) fn trace(&self, depth: usize, life: usize) -> PathBuf {
        self.0.join(format!("trace-{depth}-{life}"))
    }

    pub(crate) fn options(&self, record: Option<PathBuf>) -> Options {
        Options { database: self.database(), record, archive: None }
    }

    /// The traces of a run, in order.
    fn traces(&self, depth: usize) -> impl Iterator<Item = PathBuf> {
        (0..2).map(move |life| self.trace(depth, life)).filter(|path| path.exists())
    }

    /// Forgets the run of this depth.
    pub(crate) fn clear(&self, depth: usize) -> io::Result<()> {
        self.traces(depth).try_for_each(fs::remove_file)?;
        if self.left(depth).exists() { fs::remove_dir_all(self.left(depth)) } else { Ok(()) }
    }

    /// Keeps what a killed process has left.
    pub(crate) fn keep_left(&self, depth: usize) -> io::Result<()> {
        for (path, bytes) in files_in(&self.run())? {
            let kept = self.left(depth).join(path.strip_prefix(self.run()).expect("a file of the run"));
            fs::create_dir_all(kept.parent().expect("a file has a folder"))?;
            write_sparsely(&kept, &bytes)?;
        }
        Ok(())
    }

    /// What a killed process has left, by its paths then.
    fn read_left(&self, depth: usize) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
        let files = files_in(&self.left(depth))?.into_iter();
        let named = files.map(|(path, bytes)| {
            let name = path.strip_prefix(self.left(depth)).expect("a file of that folder");
            let bytes = if path.ends_with(LOCK) { Vec::new() } else { bytes };
            (self.run().join(name), bytes)
        });
        Ok(named.collect())
    }

    /// Makes the files of a disk, and no other ones; without a disk, none.
    pub(crate) fn export(&self, disk: Option<&SimDisk>) -> io::Result<()> {
        if self.run().exists() {
            fs::remove_dir_all(self.run())?;
        }
        fs::create_dir_all(self.run())?;
        let Some(disk) = disk else { return Ok(()) };
        for folder in disk.folders().iter().filter(|folder| folder.starts_with(self.run())) {
            fs::create_dir_all(folder)?;
        }
        for path in disk.files() {
            write_sparsely(&path, &disk.contents(&path).map_err(io::Error::other)?)?;
        }
        Ok(())
    }

    /// Looks through the traces of a run for moments worth a cut.
    pub(crate) fn survey(&self, depth: usize) -> io::Result<Survey> {
        let mut survey = Survey::default();
        for (life, trace) in self.traces(depth).enumerate() {
            let (mut reader, begin) = (Reader::open(&trace)?, survey.events);
            let mut starting = depth + life > 0;
            while let Some(event) = reader.read()? {
                survey.events += 1;
                let Event::Mark(bytes) = event else { continue };
                if std::mem::take(&mut starting) {
                    survey.starts.push(begin..survey.events);
                }
                if let Mark::Acknowledged { .. } = Mark::from_bytes(bytes) {
                    survey.acknowledged.push(survey.events);
                }
            }
        }
        Ok(survey)
    }
}

/// Every file in a folder and in its folders. Sockets are no files.
fn files_in(folder: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            files.extend(files_in(&path)?);
        } else if kind.is_file() {
            let bytes = fs::read(&path)?;
            files.insert(path, bytes);
        }
    }
    Ok(files)
}

fn write_sparsely(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start((index * PIECE) as u64))?;
            file.write_all(piece)?;
        }
    }
    Ok(())
}

/// Whether the device does what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Honest,
    /// A durable write is not.
    ForgetsDurable,
    /// A sync of a file does nothing.
    ForgetsSyncs,
    /// A sync of a folder does nothing.
    ForgetsNames,
}

impl Device {
    /// The transfer that it only pretends to do, if one begins here.
    fn pretends(self, event: &Event<'_>) -> Option<u64> {
        match (self, event) {
            (Device::ForgetsSyncs, Event::Sync { id, .. })
            | (Device::ForgetsNames, Event::SyncFolder { id, .. }) => Some(*id),
            _ => None,
        }
    }
}

/// A recorded run at one moment.
pub(crate) struct Moment<'s> {
    site: &'s Site,
    depth: usize,
    pub(crate) replay: Replay,
    reader: Reader,
    /// Traces behind the one that is read.
    further: Vec<PathBuf>,
    device: Device,
    /// Transfers that the device pretends to do.
    pretended: BTreeSet<u64>,
    position: u64,
    pub(crate) ledger: Ledger,
}

impl<'s> Moment<'s> {
    /// The beginning of a run; `before` is the disk that it found, and `ledger` what the clients knew then.
    pub(crate) fn start(
        site: &'s Site,
        depth: usize,
        before: Option<&SimDisk>,
        ledger: &Ledger,
        device: Device,
    ) -> io::Result<Self> {
        let mut replay = Replay::default();
        replay.add_folder(&site.run()).map_err(io::Error::other)?;
        if let Some(disk) = before {
            for folder in disk.folders() {
                replay.add_folder(&folder).map_err(io::Error::other)?;
            }
            for file in disk.files() {
                let bytes = disk.contents(&file).map_err(io::Error::other)?;
                replay.add_file(&file, &bytes).map_err(io::Error::other)?;
            }
        }
        let mut further: Vec<PathBuf> = site.traces(depth).collect();
        let reader = Reader::open(&further.remove(0))?;
        let (pretended, ledger) = (BTreeSet::new(), ledger.clone());
        Ok(Moment { site, depth, replay, reader, further, device, pretended, position: 0, ledger })
    }

    /// Goes on to behind so many events.
    pub(crate) fn advance(&mut self, to: u64) -> Result<(), String> {
        while self.position < to {
            if !self.step().map_err(|error| format!("event {}: {error}", self.position))? {
                self.next_life().map_err(|error| format!("event {}: {error}", self.position))?;
            }
        }
        Ok(())
    }

    /// The next event; false where this life ends.
    fn step(&mut self) -> io::Result<bool> {
        let Some(mut event) = self.reader.read()? else { return Ok(false) };
        self.position += 1;
        match &mut event {
            Event::Mark(bytes) => self.ledger.note(Mark::from_bytes(bytes)),
            Event::Write { durable, .. } if self.device == Device::ForgetsDurable => *durable = false,
            _ => {}
        }
        let ends_nothing = matches!(event, Event::Ended { id, .. } if self.pretended.remove(&id));
        match self.device.pretends(&event) {
            Some(id) => _ = self.pretended.insert(id),
            None if ends_nothing => {}
            None => self.replay.apply(&event).map_err(io::Error::other)?,
        }
        Ok(true)
    }

    /// The process has been killed, and the next one starts.
    fn next_life(&mut self) -> io::Result<()> {
        if self.further.is_empty() {
            return Err(io::Error::other("the run ends before the cut"));
        }
        self.reader = Reader::open(&self.further.remove(0))?;
        self.replay.killed(&self.site.read_left(self.depth)?).map_err(io::Error::other)
    }
}
