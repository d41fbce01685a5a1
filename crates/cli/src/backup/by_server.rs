//! `--server`: a server, of this machine or of another one, that does what is asked for where its files are.

use crate::arguments::Pacing;
use crate::job::{self, Told};
use crate::{serve, sql};
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::{Address, Connection};
use std::ffi::OsStr;
use std::path::Path;

/// Where its report has another form.
pub(super) const OTHER_FORM: &str = "the server's report has another form: is it of another release?";

pub(super) struct ByServer {
    connection: Box<Connection>,
    pub(super) is_elsewhere: bool,
}

impl ByServer {
    /// The one that has a file open, or is at an address.
    pub(super) fn find(server: &OsStr, pacing: Pacing, command: &str) -> Result<Self> {
        let address = match server.to_str().filter(|text| Address::is_address(text)) {
            Some(text) => {
                let variable = |name: &str| std::env::var(name).ok();
                Address::parse(text, &variable, &serve::owner()).map_err(|error| anyhow!(error))?
            }
            None => sql::server_address(Path::new(server), &serve::owner()).with_context(|| {
                format!("no server has {server:?} open: without --server it is done here")
            })?,
        };
        let mut connection = Box::new(job::connect(&address, command)?);
        pacing.ask_for(&mut connection)?;
        Ok(ByServer { connection, is_elsewhere: server.to_str().is_some_and(Address::is_address) })
    }

    /// A place as a statement has it: one that is relative is of this folder, if the server is one of this machine.
    pub(super) fn place(&self, path: &Path) -> Result<String> {
        if path == Path::new("-") {
            bail!("standard input is of this machine: without --server it is read here");
        }
        if self.is_elsewhere && path.is_relative() && !path.to_str().is_some_and(gannet_object::is_url) {
            bail!(
                "{path:?} is to be found by a server elsewhere: give an absolute path of its machine, or a URL"
            );
        }
        job::absolute(path)
    }

    /// Places, separated by commas.
    pub(super) fn places<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Result<String> {
        Ok(paths.into_iter().map(|path| self.place(path)).collect::<Result<Vec<_>>>()?.join(", "))
    }

    /// Runs a statement that is a job.
    pub(super) fn run(&mut self, statement: &str) -> Result<Told> {
        job::by_server(&mut self.connection, statement, &mut |_| Ok(()))
    }
}
