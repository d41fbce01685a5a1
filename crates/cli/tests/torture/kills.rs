//! `kill -9`, again and again: under load, in the middle of checkpoints, sweeps, checks, starts and shutdowns.
//!
//! What the operating system has taken survives a kill, so this says nothing about power; it says that no moment of the
//! process's life is one from which it does not come back.

use crate::ledger::{Ledger, Mark};
use crate::load::{self, CLIENTS, Shared};
use crate::server::{Client, Options, Server};
use crate::verify;
use gannet_base::sim::Generator;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The structure is checked every so many rounds.
const CHECK_EVERY: u64 = 4;
/// Starts that are killed in one round, at most.
const STARTS_MAX: u64 = 3;

/// What the server was doing when it was killed; from [`START`] on that is not seen from outside but chosen. Of the last one
/// it ends by itself, on a second SIGTERM.
const PHASES: [&str; 7] = ["load", "checkpoint", "sweep", "check", "start", "shutdown", "shutdown again"];
const START: usize = 4;
const SHUTDOWN: usize = START + 1;

/// What has happened so far.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    rounds: u64,
    /// Kills in each of [`PHASES`].
    kills: [u64; PHASES.len()],
    checks: u64,
    acknowledged: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kills: Vec<String> =
            PHASES.iter().zip(self.kills).map(|(phase, count)| format!("{phase} {count}")).collect();
        let Tally { rounds, checks, acknowledged, .. } = self;
        let kills = kills.join(", ");
        write!(
            f,
            "{rounds} rounds, {acknowledged} commits, {checks} structure checks; killed during: {kills}"
        )
    }
}

/// A database under torture.
pub(crate) struct Torture {
    options: Options,
    _folder: tempfile::TempDir,
    random: Generator,
    ledger: Ledger,
    pub(crate) tally: Tally,
}

impl Torture {
    /// A new database with the load's tables.
    pub(crate) fn new(seed: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { database: folder.path().join("torture.gnt"), record: None };
        let server = Server::serving(&options)?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        load::set_up(&mut client).map_err(|failure| failure.to_string())?;
        drop(client);
        server.kill();
        let mut ledger = load::new_ledger();
        ledger.note(Mark::Ready { seed });
        let (random, tally) = (Generator::new(seed), Tally::default());
        Ok(Torture { options, _folder: folder, random, ledger, tally })
    }

    /// A time that is as likely to be short as to be long, up to 2 to the power of `exponent` milliseconds.
    fn moment(&mut self, exponent: u64) -> Duration {
        let below = 1 << (10 + self.random.below(exponent + 1));
        Duration::from_micros(self.random.below(below))
    }

    /// Kills the server at work, then now and then while it starts; then looks at what is there.
    pub(crate) fn round(&mut self) -> Result<(), String> {
        self.tally.rounds += 1;
        let server = Server::serving(&self.options)?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        verify::contents(&mut client, &mut self.ledger)?;
        drop(client);
        let before = self.ledger.acknowledged();
        self.work_until_killed(server);
        self.tally.acknowledged += self.ledger.acknowledged() - before;
        if self.random.one_in(2) {
            for _ in 0..=self.random.below(STARTS_MAX) {
                let server = Server::start(&self.options);
                std::thread::sleep(self.moment(9));
                if self.random.one_in(4) {
                    // It ends as soon as it is up.
                    server.terminate();
                    server.wait();
                } else {
                    server.kill();
                    self.tally.kills[START] += 1;
                }
            }
        }
        if self.tally.rounds.is_multiple_of(CHECK_EVERY) { self.check() } else { Ok(()) }
    }

    /// Looks at what is there, and whether the file is sound. Half of the time the server has brought it up to date.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.tally.checks += 1;
        if self.random.one_in(2) {
            let server = Server::serving(&self.options)?;
            let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
            verify::contents(&mut client, &mut self.ledger)?;
            drop(client);
            server.stop()?;
        }
        verify::structure(&self.options.database)
    }

    fn work_until_killed(&mut self, server: Server) {
        let shared = Shared::new(self.ledger.clone(), None, load::ordinary);
        let (address, phase) = (server.address(), AtomicU8::new(0));
        let (work, again) = (self.moment(11), self.random.one_in(3));
        let shutdown = self.random.one_in(4).then(|| (self.moment(8), again));
        let seed = self.random.next_u64();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (shared, address) = (&shared, &address);
                scope.spawn(move || shared.work(address, client));
            }
            scope.spawn(|| shared.keep_house(&address, &phase, seed));
            std::thread::sleep(work);
            let killed_in = match shutdown {
                Some((after, again)) => {
                    server.terminate();
                    std::thread::sleep(after);
                    SHUTDOWN + usize::from(again)
                }
                None => phase.load(Ordering::Relaxed).into(),
            };
            if killed_in == PHASES.len() - 1 {
                server.terminate();
                server.wait();
            } else {
                server.kill();
            }
            shared.stop();
            self.tally.kills[killed_in] += 1;
        });
        self.ledger = shared.ledger();
    }
}
