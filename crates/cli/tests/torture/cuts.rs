//! Power cuts: a run of the real server is recorded, and what a cut at some moment of it may leave is made into files again
//! that the real server opens.
//!
//! What may be left is decided by [`gannet_io::sim::Replay`]. A server that comes up after a cut may be recorded, and cut off,
//! in turn: power goes off in the middle of restarts as well. In half of the runs the server is killed before, so that the one
//! which is cut off goes on with what another process has written and not synced. Each run ends with a shutdown under load.
//!
//! A cut is named by the number of events before it and by the seed that chose what was left; a cut after a cut by both
//! pairs. The traces stay where a cut shows a loss, so that it can be looked at again.

use crate::ledger::{Ledger, Mark};
use crate::load::{self, CLIENTS, Shared};
use crate::server::{Client, Server};
use crate::site::{Device, Moment, Site, Survey};
use crate::verify;
use gannet_base::sim::Generator;
use gannet_io::sim::{CrashPolicy, SimDisk};
use gannet_io::trace::Writer;
use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// How long the clients of a recorded run work.
const WORK: Duration = Duration::from_millis(1500);
/// The same after a cut, and before a kill.
const WORK_SHORT: Duration = Duration::from_millis(300);
/// What the kernel still does for a process that is gone has ended by then.
const GONE: Duration = Duration::from_millis(100);
/// Attempts at a run with a kill: one that falls between an operation and its record cannot be explained.
const ATTEMPTS: usize = 5;
/// One of so many cuts is followed by a recorded run, whose own cuts are so many.
const DEEPER_ONE_IN: u64 = 6;
const CUTS_DEEPER: u64 = 6;
/// Recorded runs one after the other, each but the first after a cut of the one before.
const DEPTH: usize = 3;

/// A cut: events before it, and the seed of what was left.
pub(crate) type Cut = (u64, u64);

/// What has been done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    kills: u64,
    /// Runs that could not be explained, and were recorded again.
    again: u64,
    commits: u64,
    events: u64,
    images: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { kills, again, commits, events, images } = self;
        write!(f, "{commits} commits and {kills} kills in {events} recorded events, ")?;
        write!(f, "{again} runs recorded again; {images} images were sound")
    }
}

/// Records runs and cuts them off.
pub(crate) struct Bench {
    site: Site,
    random: Generator,
    pub(crate) tally: Tally,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Bench {
    pub(crate) fn new(folder: &Path, seed: u64) -> Self {
        Bench { site: Site::new(folder), random: Generator::new(seed), tally: Tally::default() }
    }

    /// Records a run on what a cut has left, or of a new database; the clients begin with what the ledger says.
    fn record(&mut self, depth: usize, before: Option<&SimDisk>, ledger: &Ledger) -> Result<(), String> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            self.site.clear(depth).and_then(|()| self.site.export(before)).map_err(text)?;
            if !self.random.one_in(2) {
                return self.live(depth, 0, ledger, false).map(drop);
            }
            let ledger_then = self.live(depth, 0, ledger, true)?;
            std::thread::sleep(GONE);
            self.site.keep_left(depth).map_err(text)?;
            self.live(depth, 1, &ledger_then, false)?;
            match self.explain(depth, before, ledger) {
                Ok(()) => {
                    self.tally.kills += 1;
                    return Ok(());
                }
                Err(what) => (why, self.tally.again) = (what, self.tally.again + 1),
            }
        }
        Err(format!("{ATTEMPTS} runs that cannot be explained, the last one: {why}"))
    }

    /// Whether the events of a run explain what was found in its files in the middle of it.
    fn explain(&self, depth: usize, before: Option<&SimDisk>, ledger: &Ledger) -> Result<(), String> {
        let events = self.site.survey(depth).map_err(text)?.events;
        Moment::start(&self.site, depth, before, ledger, Device::Honest).map_err(text)?.advance(events)
    }

    /// Records the life of a process; gives what its clients know at the end.
    fn live(&mut self, depth: usize, life: usize, ledger: &Ledger, killed: bool) -> Result<Ledger, String> {
        let trace = self.site.trace(depth, life);
        let server = Server::serving(&self.site.options(Some(trace.clone())))?;
        let shared = Shared::new(ledger.clone(), Some(Writer::append(&trace).map_err(text)?), load::ordinary);
        let mut client = Client::connect(&server.address()).map_err(text)?;
        if ledger.seed().is_none() {
            load::set_up(&mut client).map_err(text)?;
            shared.note(Mark::Ready { seed: self.random.next_u64() });
        } else {
            let mut found = ledger.clone();
            verify::contents(&mut client, &mut found)?;
            for client in 0..found.clients() {
                shared.note(Mark::Found { client, number: *found.allowed(client).start() });
            }
        }
        drop(client);
        let (address, phase, seed) = (server.address(), AtomicU8::new(0), self.random.next_u64());
        let work = if depth == 0 && !killed { WORK } else { WORK_SHORT };
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (shared, address) = (&shared, &address);
                scope.spawn(move || shared.work(address, client));
            }
            scope.spawn(|| shared.keep_house(&address, &load::CHORES, &phase, seed));
            std::thread::sleep(work);
            let ended = match killed {
                true => {
                    server.kill();
                    Ok(())
                }
                false => server.stop(),
            };
            shared.stop();
            ended
        })?;
        self.tally.commits += shared.ledger().acknowledged() - ledger.acknowledged();
        Ok(shared.ledger())
    }

    /// Moments to cut a recorded run at, in order: a third of them right behind an acknowledgement, a third in the middle of a
    /// start after a kill or a cut where there was one, the rest anywhere.
    fn moments(&mut self, depth: usize, count: u64) -> Result<Vec<u64>, String> {
        let Survey { events, acknowledged, starts } = self.site.survey(depth).map_err(text)?;
        self.tally.events += events;
        let random = &mut self.random;
        let moment = |index: u64| match index % 3 {
            1 if !acknowledged.is_empty() => acknowledged[random.below(acknowledged.len() as u64) as usize],
            2 if !starts.is_empty() => {
                let start = &starts[random.below(starts.len() as u64) as usize];
                start.start + random.below(start.end - start.start)
            }
            _ => random.below(events + 1),
        };
        let mut moments: Vec<u64> = (0..count).map(moment).collect();
        moments.sort_unstable();
        Ok(moments)
    }

    /// Records a run of a new database and cuts it off so many times. An error names the cut.
    pub(crate) fn cut(&mut self, count: u64) -> Result<(), String> {
        let ledger = load::new_ledger();
        self.record(0, None, &ledger)?;
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
        let moments = self.moments(before.len(), count)?;
        let site = self.site.clone();
        let mut moment = Moment::start(&site, before.len(), disk, ledger, Device::Honest).map_err(text)?;
        for position in moments {
            let seed = self.random.next_u64() >> 32;
            let cuts = [before, &[(position, seed)]].concat();
            moment.advance(position).map_err(|what| named(&cuts, &what))?;
            let (image, ledger) = (moment.replay.crash(None, seed), &moment.ledger);
            let deeper = cuts.len() < DEPTH && self.random.one_in(DEEPER_ONE_IN);
            if deeper && ledger.seed().is_some() {
                self.record(cuts.len(), Some(&image), ledger).map_err(|what| named(&cuts, &what))?;
                self.explore(&cuts, Some(&image), ledger, CUTS_DEEPER)?;
            } else {
                self.look(&image, ledger).map_err(|what| named(&cuts, &what))?;
            }
        }
        Ok(())
    }

    /// Looks again at what a cut, named as an error names it, has left.
    pub(crate) fn look_again(&mut self, cuts: &[Cut]) -> Result<(), String> {
        let (mut disk, mut ledger) = (None, load::new_ledger());
        for (depth, &(position, seed)) in cuts.iter().enumerate() {
            let mut moment =
                Moment::start(&self.site, depth, disk.as_ref(), &ledger, Device::Honest).map_err(text)?;
            moment.advance(position)?;
            disk = Some(moment.replay.crash(None, seed));
            ledger = moment.ledger;
        }
        self.look(&disk.ok_or("no cut is named")?, &ledger)
    }

    /// What a run on this device, cut off at so many moments, is first found to have lost, when it keeps nothing that it
    /// does not have to keep.
    pub(crate) fn loss(&mut self, device: Device, count: u64) -> Result<Option<String>, String> {
        let ledger = load::new_ledger();
        self.site.export(None).map_err(text)?;
        self.live(0, 0, &ledger, false)?;
        let moments = self.moments(0, count)?;
        let site = self.site.clone();
        let mut moment = Moment::start(&site, 0, None, &ledger, device).map_err(text)?;
        for position in moments {
            moment.advance(position)?;
            let image = moment.replay.crash(Some(CrashPolicy::KeepNone), 0);
            let looked = self.look(&image, &moment.ledger);
            if looked.is_err() {
                return Ok(looked.err());
            }
        }
        Ok(None)
    }

    /// Makes the files, has the real server open them, and looks at what is there.
    fn look(&mut self, image: &SimDisk, ledger: &Ledger) -> Result<(), String> {
        self.site.export(Some(image)).map_err(text)?;
        let server = Server::serving(&self.site.options(None))?;
        let mut client = Client::connect(&server.address()).map_err(text)?;
        verify::contents(&mut client, &mut ledger.clone())?;
        drop(client);
        if self.random.one_in(2) {
            server.kill();
        } else {
            server.stop()?;
        }
        verify::structure(&self.site.database())?;
        self.tally.images += 1;
        Ok(())
    }
}

/// An error with the cut that shows it.
fn named(cuts: &[Cut], what: &str) -> String {
    let cuts: Vec<String> = cuts.iter().map(|(position, seed)| format!("{position}/{seed}")).collect();
    format!("cut {}: {what}", cuts.join(","))
}
