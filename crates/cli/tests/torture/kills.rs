//! `kill -9`, again and again: under load, in the middle of checkpoints, sweeps, checks, compactions, backups, starts and shutdowns, with an
//! archive of the log beside it.
//!
//! What the operating system has taken survives a kill, so this says nothing about power; it says that no moment of the
//! process's life is one from which it does not come back.

use crate::ledger::{Ledger, Mark};
use crate::load::{self, CLIENTS, Shared};
use crate::server::{Client, Options, STUCK, Server, command};
use crate::verify;
use gannet_base::sim::Generator;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The structure is checked every so many rounds.
const CHECK_EVERY: u64 = 4;
/// Starts that are killed in one round, at most.
const STARTS_MAX: u64 = 3;

/// What the server was doing when it was killed; from [`START`] on that is not seen from outside but chosen. Of the last one
/// it ends by itself, on a second SIGTERM.
const PHASES: [&str; 9] =
    ["load", "checkpoint", "sweep", "check", "compact", "backup", "start", "shutdown", "shutdown again"];
const BACKUP: u8 = 5;
const START: usize = 6;
const SHUTDOWN: usize = START + 1;

/// What has happened so far.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    rounds: u64,
    /// Kills in each of [`PHASES`].
    kills: [u64; PHASES.len()],
    checks: u64,
    acknowledged: u64,
    /// Restored from a backup and the archive; not, because the archive has a gap: it was too slow.
    restored: u64,
    gaps: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kills: Vec<String> =
            PHASES.iter().zip(self.kills).map(|(phase, count)| format!("{phase} {count}")).collect();
        let Tally { rounds, checks, acknowledged, restored, gaps, .. } = self;
        let kills = kills.join(", ");
        write!(
            f,
            "{rounds} rounds, {acknowledged} commits, {checks} structure checks, {restored} restored from backup and archive ({gaps} not, \
             behind a gap); killed during: {kills}"
        )
    }
}

/// A database under torture.
pub(crate) struct Torture {
    options: Options,
    folder: tempfile::TempDir,
    random: Generator,
    ledger: Ledger,
    pub(crate) tally: Tally,
}

/// A backup beside everything, a full one.
fn backup(folder: &Path) -> String {
    format!("backup database to '{}' keep 3", folder.join("backups").display())
}

/// Waits until all of the log was archived: a server that ends does so for some seconds only.
fn archived(client: &mut Client) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let rows = client
            .query("select behind_bytes, state from gannet_archive")
            .map_err(|failure| failure.to_string())?;
        if rows[0][0] == "0" {
            return Ok(());
        }
        if begun.elapsed() > STUCK {
            return Err(format!("the archive does not come to the log's end: {rows:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Torture {
    /// A new database with the load's tables.
    pub(crate) fn new(seed: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name| folder.path().join(name);
        let options = Options { database: path("torture.gnt"), record: None, archive: Some(path("archive")) };
        for name in ["backups", "archive"] {
            std::fs::create_dir(path(name)).expect("a folder");
        }
        let server = Server::serving(&options)?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        load::set_up(&mut client).map_err(|failure| failure.to_string())?;
        client.query(&backup(folder.path())).map_err(|failure| failure.to_string())?;
        drop(client);
        server.kill();
        let mut ledger = load::new_ledger();
        ledger.note(Mark::Ready { seed });
        let (random, tally) = (Generator::new(seed), Tally::default());
        Ok(Torture { options, folder, random, ledger, tally })
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
            archived(&mut client)?;
            drop(client);
            server.stop()?;
            self.restore()?;
        }
        verify::structure(&self.options.database)
    }

    /// Restores the latest backup, and all that was archived since, of a database that was closed: whatever was acknowledged is there.
    fn restore(&mut self) -> Result<(), String> {
        let copy = tempfile::tempdir().expect("a folder");
        let database = copy.path().join("torture.gnt");
        let mut command = command();
        command.arg("restore").arg(self.folder.path().join("backups")).arg(&database);
        command.arg("--archive").arg(self.folder.path().join("archive/torture"));
        let restored = command.output().map_err(|error| error.to_string())?;
        if !restored.status.success() {
            let said = String::from_utf8_lossy(&restored.stderr);
            if said.contains("gap") {
                self.tally.gaps += 1;
                return Ok(());
            }
            return Err(format!("a restore ended with {}: {said}", restored.status));
        }
        self.tally.restored += 1;
        let server = Server::serving(&Options { database, record: None, archive: None })?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        verify::contents(&mut client, &mut self.ledger).map_err(|what| format!("restored: {what}"))?;
        drop(client);
        server.stop()
    }

    fn work_until_killed(&mut self, server: Server) {
        let shared = Shared::new(self.ledger.clone(), None, load::ordinary);
        let (address, phase) = (server.address(), AtomicU8::new(0));
        let (work, again) = (self.moment(11), self.random.one_in(3));
        let shutdown = self.random.one_in(4).then(|| (self.moment(8), again));
        let seed = self.random.next_u64();
        let backup = backup(self.folder.path());
        let chores = [&load::CHORES[..], &[(backup.as_str(), BACKUP)]].concat();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (shared, address) = (&shared, &address);
                scope.spawn(move || shared.work(address, client));
            }
            scope.spawn(|| shared.keep_house(&address, &chores, &phase, seed));
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
