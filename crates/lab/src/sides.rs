//! Who serves, whoever it is: servers by PostgreSQL's protocol, Firebird's, and SQLite within this process, for experiments that measure all of them alike.

use crate::confine::{Group, Inside, chill, status, tied};
use crate::firebird;
use crate::folders;
use crate::servers::{self, Kind, Process};
use crate::tpcc::connection::Connect;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// By PostgreSQL's protocol.
    Wire(Kind),
    /// Firebird, by its own.
    Firebird,
    /// SQLite, which has no server: users are threads of this process.
    Sqlite,
}

/// Gannet's server.
pub const GANNET: Side = Side::Wire(Kind::Gannet);
/// PostgreSQL's.
pub const POSTGRESQL: Side = Side::Wire(Kind::PostgreSql);

const NOT_BUILT: &str = "this build has no client of Firebird, and no SQLite: cargo build --release -p gannet -p gannet-lab --features gannet-lab/rivals";

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who it is.
    pub side: Side,
    /// The folder of its database, see [`Side::make`].
    pub folder: PathBuf,
    /// Bytes of memory it may have in all, page cache included; `None`: no group, and memory enough for loading.
    pub memory: Option<u64>,
    /// Gannet's I/O mode.
    pub io: String,
    /// More settings, in the words of each: see [`servers::Options`] and [`firebird::server::Options`].
    pub settings: Vec<String>,
}

/// A server that runs, until it is stopped or this is dropped.
#[derive(Debug)]
pub enum Server {
    /// By PostgreSQL's protocol.
    Wire(servers::Server),
    /// Firebird's.
    Firebird(firebird::server::Server),
    /// None: this process.
    Sqlite(Within),
}

/// An SQLite database that this process works on, which is in a group for as long.
#[derive(Debug)]
pub struct Within {
    options: Options,
    // In this order: a group can be removed when nobody is in it.
    inside: Option<Inside>,
    group: Option<Group>,
}

impl Side {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "firebird" => Some(Side::Firebird),
            "sqlite" => Some(Side::Sqlite),
            _ => Kind::named(name).map(Side::Wire),
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            GANNET => "gannet",
            POSTGRESQL => "postgresql",
            Side::Firebird => "firebird",
            Side::Sqlite => "sqlite",
        }
    }

    /// As reports name it.
    pub fn title(self) -> String {
        match self {
            Side::Wire(kind) => kind.title(),
            Side::Firebird => firebird::server::title(),
            Side::Sqlite => sqlite_title(),
        }
    }

    /// Makes a folder that its server can be started on, with an empty database but for PostgreSQL.
    ///
    /// # Errors
    /// The folder is there, or cannot be made; or the server is not installed.
    pub fn make(self, folder: &Path) -> Result<()> {
        match self {
            Side::Wire(kind) => servers::make(kind, folder),
            Side::Firebird => firebird::server::make(folder),
            Side::Sqlite => fs::create_dir_all(folder.parent().unwrap_or(folder))
                .and_then(|()| fs::create_dir(folder))
                .with_context(|| format!("cannot make {folder:?}")),
        }
    }

    /// Settings of a server whose database, which is in this folder, fits into so much memory: with a cache of its own that has room for all of it.
    ///
    /// # Errors
    /// The database cannot be looked at.
    pub fn fitting(self, folder: &Path, memory: u64) -> Result<Vec<String>> {
        match self {
            Side::Wire(kind) => servers::fitting(kind, folder, memory),
            Side::Firebird => firebird::server::fitting(folder, memory),
            // It has none of its own but the page cache.
            Side::Sqlite => Ok(Vec::new()),
        }
    }

    /// Has a database written durably from now on whose writes were not forced while it was loaded; its server has been stopped.
    ///
    /// # Errors
    /// Its program fails.
    pub fn loaded(self, folder: &Path) -> Result<()> {
        match self {
            Side::Firebird => firebird::server::force_writes(folder),
            Side::Wire(_) | Side::Sqlite => Ok(()),
        }
    }
}

impl Options {
    /// Starts it and waits until it lets somebody in.
    ///
    /// # Errors
    /// It is not installed, the folder is none of its kind, or it ends.
    pub fn start(&self) -> Result<Server> {
        let Options { side, folder, memory, io, settings } = self.clone();
        Ok(match side {
            Side::Wire(kind) => {
                Server::Wire(servers::Options { kind, folder, memory, io, settings }.start()?)
            }
            Side::Firebird => {
                Server::Firebird(firebird::server::Options { folder, memory, settings }.start()?)
            }
            Side::Sqlite => Server::Sqlite(Within::begin(self)?),
        })
    }
}

impl Server {
    /// Who it is.
    pub fn side(&self) -> Side {
        match self {
            Server::Wire(server) => Side::Wire(server.options().kind),
            Server::Firebird(_) => Side::Firebird,
            Server::Sqlite(_) => Side::Sqlite,
        }
    }

    /// The folder of its database.
    pub fn folder(&self) -> &Path {
        match self {
            Server::Wire(server) => &server.options().folder,
            Server::Firebird(server) => server.folder(),
            Server::Sqlite(within) => &within.options.folder,
        }
    }

    /// Its process, where it has one of its own.
    fn process(&self) -> Option<&Process> {
        match self {
            Server::Wire(server) => Some(server.process()),
            Server::Firebird(server) => Some(server.process()),
            Server::Sqlite(_) => None,
        }
    }

    /// What its group has had; null where it has none.
    pub fn group(&self) -> Value {
        match self {
            Server::Sqlite(within) => within.group.as_ref().map_or(Value::Null, Group::report),
            _ => self.process().map_or(Value::Null, Process::group),
        }
    }

    /// Bytes that are resident in its process, and those of files that are cached on its group's account.
    pub fn memory(&self) -> (Option<u64>, Option<u64>) {
        match self {
            Server::Sqlite(within) => {
                (status(std::process::id(), "VmRSS"), within.group.as_ref().and_then(Group::cached))
            }
            _ => self.process().map_or((None, None), Process::memory),
        }
    }

    /// Bytes in memory on its group's account that are no file's.
    pub fn resident(&self) -> Option<u64> {
        match self {
            Server::Sqlite(within) => within.group.as_ref().and_then(Group::resident),
            _ => self.process().and_then(Process::resident),
        }
    }

    /// Lifts the limit of its memory, for what is done when nothing is measured any more.
    pub fn lift_limit(&self) {
        match self {
            Server::Sqlite(within) => within.group.iter().for_each(Group::lift),
            _ => self.process().into_iter().for_each(Process::lift_limit),
        }
    }

    /// Asks a server to end, without waiting: whoever waits for an answer of it gets an error.
    pub fn ask_to_end(&self) {
        self.process().into_iter().for_each(Process::ask_to_end);
    }

    /// How it was started.
    pub fn describe(&self) -> Value {
        match self {
            Server::Wire(server) => server.describe(),
            Server::Firebird(server) => server.describe(),
            Server::Sqlite(within) => within.describe(),
        }
    }

    /// Bytes of the database on the device, without its log.
    ///
    /// # Errors
    /// The system's.
    pub fn database_bytes(&self) -> Result<u64> {
        match self {
            Server::Wire(server) => server.database_bytes(),
            Server::Firebird(server) => server.database_bytes(),
            Server::Sqlite(within) => folders::bytes(&within.database()),
        }
    }

    /// A command that runs a program beside it: in its group, and asked to end when we do.
    pub fn beside(&self, program: impl AsRef<Path>) -> Result<Command> {
        match self {
            Server::Wire(server) => Ok(server.beside(program)),
            Server::Firebird(server) => server.beside(program.as_ref()),
            Server::Sqlite(within) => Ok(within.beside(program.as_ref())),
        }
    }

    /// Ends it in good order. Gives how long that took; `None`: it had to be killed, where nothing could be lost by that.
    ///
    /// # Errors
    /// It had to be killed, or failed.
    pub fn stop(self) -> Result<Option<Duration>> {
        match self {
            Server::Wire(server) => server.stop().map(Some),
            Server::Firebird(server) => server.stop(),
            Server::Sqlite(_) => Ok(Some(Duration::ZERO)),
        }
    }

    /// How to connect to its database.
    ///
    /// # Errors
    /// This build has no client of it; or the server's folder is not complete.
    pub fn connect(&self) -> Result<Box<dyn Connect>> {
        Ok(match self {
            Server::Wire(server) => {
                Box::new(crate::wire::Server { target: server.target(servers::DATABASE), pipelined: false })
            }
            #[cfg(not(feature = "rivals"))]
            Server::Firebird(_) | Server::Sqlite(_) => anyhow::bail!("{NOT_BUILT}"),
            #[cfg(feature = "rivals")]
            Server::Firebird(server) => Box::new(firebird::wire::Target::of(server)?),
            #[cfg(feature = "rivals")]
            Server::Sqlite(within) => Box::new(crate::sqlite::sql::Target {
                path: within.database(),
                is_durable: within.options.memory.is_some(),
            }),
        })
    }

    /// The same, for connections that ask statements at once which do not need each other's rows.
    ///
    /// # Errors
    /// Neither its protocol nor its client has that.
    pub fn connect_pipelined(&self) -> Result<Box<dyn Connect>> {
        match self {
            Server::Wire(server) => Ok(Box::new(crate::wire::Server {
                target: server.target(servers::DATABASE),
                pipelined: true,
            })),
            Server::Firebird(_) | Server::Sqlite(_) => {
                anyhow::bail!("statements are pipelined with gannet and postgresql only")
            }
        }
    }
}

impl Within {
    /// Has this process in a group of its own, with nothing of the database in the page cache.
    fn begin(options: &Options) -> Result<Self> {
        chill(std::slice::from_ref(&options.folder))?;
        let group = options.memory.and_then(Group::new);
        let inside = group.as_ref().map(Group::enter).transpose()?;
        Ok(Within { options: options.clone(), inside, group })
    }

    /// The database's file.
    pub fn database(&self) -> PathBuf {
        sqlite_database(&self.options.folder)
    }

    /// A command that runs a program in the group, and asks it to end when we do.
    /// Bytes of memory for all, page cache included.
    pub(crate) fn memory(&self) -> u64 {
        self.options.memory.unwrap_or(1 << 30)
    }

    pub(crate) fn beside(&self, program: &Path) -> Command {
        tied(self.group.as_ref(), program, "INT")
    }

    fn describe(&self) -> Value {
        let is_inside = if self.inside.is_some() { "the users' process is in the group" } else { "no group" };
        let mut settings: Vec<&str> = sqlite_settings().to_vec();
        settings.push(is_inside);
        json!({ "server": sqlite_title(), "memory": self.options.memory, "settings": settings })
    }
}

/// The file of SQLite's database in a folder.
pub fn sqlite_database(folder: &Path) -> PathBuf {
    folder.join("lab.sqlite")
}

#[cfg(feature = "rivals")]
fn sqlite_title() -> String {
    format!("SQLite {}", rusqlite::version())
}

#[cfg(not(feature = "rivals"))]
fn sqlite_title() -> String {
    "SQLite".to_owned()
}

#[cfg(feature = "rivals")]
fn sqlite_settings() -> &'static [&'static str] {
    &crate::sqlite::sql::SETTINGS
}

#[cfg(not(feature = "rivals"))]
fn sqlite_settings() -> &'static [&'static str] {
    &[]
}

/// Fails where this build has no client of a side: before anything is made that would be in vain.
///
/// # Errors
/// That, with the way to one that has.
pub fn must_connect(side: Side) -> Result<()> {
    anyhow::ensure!(cfg!(feature = "rivals") || matches!(side, Side::Wire(_)), "{NOT_BUILT}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        for side in [GANNET, POSTGRESQL, Side::Firebird, Side::Sqlite] {
            assert_eq!(Side::named(side.name()), Some(side));
        }
        assert_eq!(Side::named("oracle"), None);
    }
}
