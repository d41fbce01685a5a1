//! Who serves, whoever it is: servers by PostgreSQL's protocol, and Firebird's, for experiments that measure all of them alike.

use crate::firebird;
use crate::servers::{self, Kind, Process};
use crate::tpcc::connection::Connect;
use anyhow::Result;
use serde_json::Value;
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
}

/// Gannet's server.
pub const GANNET: Side = Side::Wire(Kind::Gannet);
/// PostgreSQL's.
pub const POSTGRESQL: Side = Side::Wire(Kind::PostgreSql);

const NO_CLIENT: &str = "this build has no client for servers: cargo build --release -p gannet -p gannet-lab --features gannet-lab/rivals";

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
}

impl Side {
    /// By its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        if name == "firebird" { Some(Side::Firebird) } else { Kind::named(name).map(Side::Wire) }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            GANNET => "gannet",
            POSTGRESQL => "postgresql",
            Side::Firebird => "firebird",
        }
    }

    /// As reports name it.
    pub fn title(self) -> String {
        match self {
            Side::Wire(kind) => kind.title(),
            Side::Firebird => firebird::server::title(),
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
        }
    }

    /// Has a database written durably from now on whose writes were not forced while it was loaded; its server has been stopped.
    ///
    /// # Errors
    /// Its program fails.
    pub fn loaded(self, folder: &Path) -> Result<()> {
        match self {
            Side::Firebird => firebird::server::force_writes(folder),
            Side::Wire(_) => Ok(()),
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
        })
    }
}

impl Server {
    /// Who it is.
    pub fn side(&self) -> Side {
        match self {
            Server::Wire(server) => Side::Wire(server.options().kind),
            Server::Firebird(_) => Side::Firebird,
        }
    }

    /// The folder of its database.
    pub fn folder(&self) -> &Path {
        match self {
            Server::Wire(server) => &server.options().folder,
            Server::Firebird(server) => server.folder(),
        }
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        match self {
            Server::Wire(server) => server.process(),
            Server::Firebird(server) => server.process(),
        }
    }

    /// How it was started.
    pub fn describe(&self) -> Value {
        match self {
            Server::Wire(server) => server.describe(),
            Server::Firebird(server) => server.describe(),
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
        }
    }

    /// A command that runs a program beside it: in its group, and asked to end when we do.
    pub fn beside(&self, program: impl AsRef<Path>) -> Result<Command> {
        match self {
            Server::Wire(server) => Ok(server.beside(program)),
            Server::Firebird(server) => server.beside(program.as_ref()),
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
        }
    }

    /// How to connect to its database.
    ///
    /// # Errors
    /// This build has no client; or the server's folder is not complete.
    #[cfg(feature = "rivals")]
    pub fn connect(&self) -> Result<Box<dyn Connect>> {
        Ok(match self {
            Server::Wire(server) => {
                Box::new(crate::wire::Server { target: server.target(servers::DATABASE) })
            }
            Server::Firebird(server) => Box::new(firebird::wire::Target::of(server)?),
        })
    }

    /// How to connect to its database.
    ///
    /// # Errors
    /// This build has no client.
    #[cfg(not(feature = "rivals"))]
    pub fn connect(&self) -> Result<Box<dyn Connect>> {
        anyhow::bail!("{NO_CLIENT}")
    }
}

/// Fails where this build has no client for servers: before anything is made that would be in vain.
///
/// # Errors
/// That, with the way to one that has.
pub fn must_connect() -> Result<()> {
    anyhow::ensure!(cfg!(feature = "rivals"), "{NO_CLIENT}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        for side in [GANNET, POSTGRESQL, Side::Firebird] {
            assert_eq!(Side::named(side.name()), Some(side));
        }
        assert_eq!(Side::named("oracle"), None);
    }
}
