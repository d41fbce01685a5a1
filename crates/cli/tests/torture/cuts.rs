//! Power cuts: a run of the real server is recorded, and what a cut at some moment of it may leave is made into files again
//! that the real server opens.
//!
//! What may be left is decided by [`gannet_io::sim::Replay`]. A server that comes up after a cut may be recorded, and cut off,
//! in turn: power goes off in the middle of restarts as well. Each recorded run ends with a shutdown under load.
//!
//! A cut is named by the number of events before it and by the seed that chose what was left; a cut after a cut by both
//! pairs. The traces stay where a cut shows a loss, so that it can be looked at again.

use crate::ledger::{Ledger, Mark};
use crate::load::{self, CLIENTS, Shared};
use crate::server::{Client, Options, Server};
use crate::verify;
use gannet_base::sim::Generator;
use gannet_io::sim::{CrashPolicy, Replay, SimDisk};
use gannet_io::trace::{Event, Reader, Writer};
use std::collections::BTreeSet;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// How long the clients of a recorded run work.
const WORK: Duration = Duration::from_millis(1500);
/// The same after a cut.
const WORK_AFTER: Duration = Duration::from_millis(300);
/// One of so many cuts is followed by a recorded run, whose own cuts are so many.
const DEEPER_ONE_IN: u64 = 6;
const CUTS_DEEPER: u64 = 6;
/// Recorded runs one after the other, each but the first after a cut of the one before.
const DEPTH: usize = 3;
/// Unit in which images are written; what is zero is left out.
const PIECE: usize = 64 << 10;

/// A cut: events before it, and the seed of what was left.
pub(crate) type Cut = (u64, u64);

/// Where runs are recorded and images made. All of them are at one path: a trace knows its files by their paths.
pub(crate) struct Bench {
    folder: PathBuf,
    random: Generator,
    /// Images that were opened and looked at.
    pub(crate) images: u64,
    pub(crate) events: u64,
    pub(crate) commits: u64,
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
    /// Whether it pretends to do what begins here.
    fn only_pretends(self, event: &Event<'_>) -> Option<u64> {
        match (self, event) {
            (Device::ForgetsSyncs, Event::Sync { id, .. })
            | (Device::ForgetsNames, Event::SyncFolder { id, .. }) => Some(*id),
            _ => None,
        }
    }
}

/// What a trace offers.
#[derive(Default)]
struct Survey {
    events: u64,
    /// Events before the first mark: the server has started, and nobody has worked yet.
    start: u64,
    /// Events before each acknowledgement, it included.
    acknowledged: Vec<u64>,
}

/// A recorded run at one moment.
struct Moment {
    replay: Replay,
    reader: Reader,
    device: Device,
    /// Transfers that the device pretends to do.
    pretended: BTreeSet<u64>,
    position: u64,
    ledger: Ledger,
}

impl Moment {
    /// Its beginning; `before` is the disk that it found, and what the clients knew then.
    fn start(bench: &Bench, depth: usize, before: Option<&SimDisk>, ledger: &Ledger) -> Result<Self, String> {
        let mut replay = Replay::default();
        replay.add_folder(&bench.run()).map_err(|error| error.to_string())?;
        if let Some(disk) = before {
            for folder in disk.folders() {
                replay.add_folder(&folder).map_err(|error| error.to_string())?;
            }
            for file in disk.files() {
                let bytes = disk.contents(&file).map_err(|error| error.to_string())?;
                replay.add_file(&file, &bytes).map_err(|error| error.to_string())?;
            }
        }
        let reader = Reader::open(&bench.trace(depth)).map_err(|error| error.to_string())?;
        let (device, pretended) = (Device::Honest, BTreeSet::new());
        Ok(Moment { replay, reader, device, pretended, position: 0, ledger: ledger.clone() })
    }

    /// Goes on to behind so many events.
    fn advance(&mut self, to: u64) -> Result<(), String> {
        while self.position < to {
            let event = self.reader.read().map_err(|error| error.to_string())?;
            let mut event = event.ok_or("the trace ends before the cut")?;
            match &mut event {
                Event::Mark(bytes) => self.ledger.note(Mark::from_bytes(bytes)),
                Event::Write { durable, .. } if self.device == Device::ForgetsDurable => *durable = false,
                _ => {}
            }
            self.position += 1;
            if let Some(id) = self.device.only_pretends(&event) {
                self.pretended.insert(id);
                continue;
            }
            if matches!(event, Event::Ended { id, .. } if self.pretended.remove(&id)) {
                continue;
            }
            self.replay.apply(&event).map_err(|error| format!("event {}: {error}", self.position))?;
        }
        Ok(())
    }
}

impl Bench {
    pub(crate) fn new(folder: &Path, seed: u64) -> Self {
        Bench { folder: folder.to_owned(), random: Generator::new(seed), images: 0, events: 0, commits: 0 }
    }

    fn run(&self) -> PathBuf {
        self.folder.join("run")
    }

    fn database(&self) -> PathBuf {
        self.run().join("cut.gnt")
    }

    fn trace(&self, depth: usize) -> PathBuf {
        self.folder.join(format!("trace-{depth}"))
    }

    fn options(&self, record: Option<PathBuf>) -> Options {
        Options { database: self.database(), record }
    }

    /// Records a run on what is in the folder, which begins with what the ledger says.
    fn record(&mut self, depth: usize, ledger: &Ledger) -> Result<(), String> {
        let trace = self.trace(depth);
        if trace.exists() {
            std::fs::remove_file(&trace).map_err(|error| error.to_string())?;
        }
        let server = Server::serving(&self.options(Some(trace.clone())))?;
        let marks = Writer::append(&trace).map_err(|error| error.to_string())?;
        let shared = Shared::new(ledger.clone(), Some(marks), load::ordinary);
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        if ledger.seed().is_none() {
            load::set_up(&mut client).map_err(|failure| failure.to_string())?;
            shared.note(Mark::Ready { seed: self.random.next_u64() });
        } else {
            let mut found = ledger.clone();
            verify::contents(&mut client, &mut found)?;
            for client in 0..found.clients() {
                shared.note(Mark::Found { client, number: *found.allowed(client).start() });
            }
        }
        drop(client);
        let (address, phase) = (server.address(), AtomicU8::new(0));
        let (work, seed) = (if depth == 0 { WORK } else { WORK_AFTER }, self.random.next_u64());
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (shared, address) = (&shared, &address);
                scope.spawn(move || shared.work(address, client));
            }
            scope.spawn(|| shared.keep_house(&address, &phase, seed));
            std::thread::sleep(work);
            let ended = server.stop();
            shared.stop();
            ended
        })?;
        self.commits += shared.ledger().acknowledged() - ledger.acknowledged();
        Ok(())
    }

    /// Looks through a trace for moments worth a cut.
    fn survey(&mut self, depth: usize) -> Result<Survey, String> {
        let mut reader = Reader::open(&self.trace(depth)).map_err(|error| error.to_string())?;
        let mut survey = Survey::default();
        while let Some(event) = reader.read().map_err(|error| error.to_string())? {
            survey.events += 1;
            let Event::Mark(bytes) = event else { continue };
            if survey.start == 0 {
                survey.start = survey.events;
            }
            if let Mark::Acknowledged { .. } = Mark::from_bytes(bytes) {
                survey.acknowledged.push(survey.events);
            }
        }
        self.events += survey.events;
        Ok(survey)
    }

    /// Moments to cut a recorded run at, in order: a third of them right behind an acknowledgement, after a cut another third
    /// while the server starts, the rest anywhere.
    fn moments(&mut self, depth: usize, count: u64) -> Result<Vec<u64>, String> {
        let Survey { events, start, acknowledged } = self.survey(depth)?;
        let known = acknowledged.len() as u64;
        let mut moments: Vec<u64> = (0..count)
            .map(|index| match index % 3 {
                1 if known > 0 => acknowledged[self.random.below(known) as usize],
                2 if depth > 0 => self.random.below(start + 1),
                _ => self.random.below(events + 1),
            })
            .collect();
        moments.sort_unstable();
        Ok(moments)
    }

    /// Records a run of a new database and cuts it off so many times. An error names the cut.
    pub(crate) fn cut(&mut self, count: u64) -> Result<(), String> {
        self.wipe()?;
        let ledger = load::new_ledger();
        self.record(0, &ledger)?;
        self.explore(&[], None, &ledger, count)
    }

    /// Cuts off the recorded run that followed these cuts.
    fn explore(
        &mut self,
        before: &[Cut],
        disk: Option<&SimDisk>,
        ledger: &Ledger,
        count: u64,
    ) -> Result<(), String> {
        let depth = before.len();
        let moments = self.moments(depth, count)?;
        let mut moment = Moment::start(self, depth, disk, ledger)?;
        for position in moments {
            let seed = self.random.next_u64() >> 32;
            let cuts = [before, &[(position, seed)]].concat();
            moment.advance(position).map_err(|what| named(&cuts, &what))?;
            let image = moment.replay.crash(None, seed);
            let deeper = cuts.len() < DEPTH && self.random.one_in(DEEPER_ONE_IN);
            if deeper && moment.ledger.seed().is_some() {
                self.export(&image)?;
                self.record(cuts.len(), &moment.ledger).map_err(|what| named(&cuts, &what))?;
                self.explore(&cuts, Some(&image), &moment.ledger, CUTS_DEEPER)?;
            } else {
                self.look(&image, moment.ledger.clone()).map_err(|what| named(&cuts, &what))?;
            }
        }
        Ok(())
    }

    /// Looks again at what a cut, named as an error names it, has left.
    pub(crate) fn look_again(&mut self, cuts: &[Cut]) -> Result<(), String> {
        let (mut disk, mut ledger) = (None, load::new_ledger());
        for (depth, &(position, seed)) in cuts.iter().enumerate() {
            let mut moment = Moment::start(self, depth, disk.as_ref(), &ledger)?;
            moment.advance(position)?;
            disk = Some(moment.replay.crash(None, seed));
            ledger = moment.ledger;
        }
        self.look(&disk.ok_or("no cut is named")?, ledger)
    }

    /// What a run on this device, cut off at so many moments, is first found to have lost, when it keeps nothing that it
    /// does not have to keep.
    pub(crate) fn loss(&mut self, device: Device, count: u64) -> Result<Option<String>, String> {
        self.wipe()?;
        let ledger = load::new_ledger();
        self.record(0, &ledger)?;
        let moments = self.moments(0, count)?;
        let mut moment = Moment { device, ..Moment::start(self, 0, None, &ledger)? };
        for position in moments {
            moment.advance(position)?;
            let image = moment.replay.crash(Some(CrashPolicy::KeepNone), 0);
            let looked = self.look(&image, moment.ledger.clone());
            if looked.is_err() {
                return Ok(looked.err());
            }
        }
        Ok(None)
    }

    /// Makes the files, has the real server open them, and looks at what is there.
    fn look(&mut self, image: &SimDisk, mut ledger: Ledger) -> Result<(), String> {
        self.export(image)?;
        self.images += 1;
        let server = Server::serving(&self.options(None))?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        verify::contents(&mut client, &mut ledger)?;
        drop(client);
        if self.random.one_in(2) {
            server.kill();
        } else {
            server.stop()?;
        }
        verify::structure(&self.database())
    }

    /// Empties the folder.
    fn wipe(&self) -> Result<(), String> {
        if self.run().exists() {
            std::fs::remove_dir_all(self.run()).map_err(|error| error.to_string())?;
        }
        std::fs::create_dir_all(self.run()).map_err(|error| error.to_string())
    }

    /// Makes the files of a disk, and no other ones.
    fn export(&self, disk: &SimDisk) -> Result<(), String> {
        self.wipe()?;
        for folder in disk.folders().iter().filter(|folder| folder.starts_with(self.run())) {
            std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        for path in disk.files() {
            let bytes = disk.contents(&path).map_err(|error| error.to_string())?;
            write_sparsely(&path, &bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn write_sparsely(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start((index * PIECE) as u64))?;
            file.write_all(piece)?;
        }
    }
    Ok(())
}

/// An error with the cut that shows it.
fn named(cuts: &[Cut], what: &str) -> String {
    let cuts: Vec<String> = cuts.iter().map(|(position, seed)| format!("{position}/{seed}")).collect();
    format!("cut {}: {what}", cuts.join(","))
}
