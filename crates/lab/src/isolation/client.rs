//! A connection that runs one statement at a time and keeps its answer.

use anyhow::{Result, anyhow};
use gannet_server::frontend::{Address, Column, Connection, Failure, Receiver, Report};
use gannet_sql::session::TransactionStatus;
use std::io;

/// What a statement gave.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Its rows, as text.
    pub rows: Vec<Vec<Option<String>>>,
    /// What it did, such as `UPDATE 1`.
    pub tag: String,
}

impl Receiver for Answer {
    fn columns(&mut self, _: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.rows.push(values.iter().map(|value| value.map(str::to_owned)).collect());
        Ok(())
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        tag.clone_into(&mut self.tag);
        Ok(())
    }

    fn notice(&mut self, _: &Report) {}

    fn copy_in(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copy_read(&mut self, _: &mut Vec<u8>) -> io::Result<bool> {
        Ok(false)
    }

    fn copy_out(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copy_write(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Has the data of a COPY: what is in it appends some, and says whether there is more. What statements give is passed over.
#[derive(Debug)]
pub struct Supply<F>(pub F);

impl<F: FnMut(&mut Vec<u8>) -> bool> Receiver for Supply<F> {
    fn columns(&mut self, _: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: &Report) {}

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        Ok((self.0)(data))
    }
}

/// A session on a server.
#[derive(Debug)]
pub struct Client(Connection);

impl Client {
    /// Whether a transaction is open, or has failed and was not ended.
    pub fn is_in_transaction(&self) -> bool {
        self.0.status() != TransactionStatus::Idle
    }

    /// Connects.
    pub fn connect(address: &Address) -> Result<Self> {
        let opened = Connection::open(address, "gannet-lab");
        Ok(Client(opened.map_err(|error| anyhow!("cannot connect to {address:?}: {error}"))?))
    }

    /// Runs a text of statements; the answer is that of all of them.
    ///
    /// # Errors
    /// What the server says, or that it is gone.
    pub fn run(&mut self, sql: &str) -> std::result::Result<Answer, Failure> {
        let mut answer = Answer::default();
        self.0.query(sql, &mut answer)?;
        Ok(answer)
    }

    /// The session's number on the server.
    pub fn pid(&self) -> i32 {
        self.0.pid()
    }
}
