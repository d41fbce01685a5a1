//! What a database has to offer for SQL workloads. Embedded databases and wire protocols alike implement it.

use anyhow::Result;

/// A value on its way in or out.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    /// NULL
    Null,
    /// A whole number.
    Int(i64),
    /// An exact number: `Decimal(1234, 2)` is 12.34.
    Decimal(i64, u8),
    /// Text.
    Text(String),
    /// Microseconds since 2000-01-01 UTC.
    Timestamp(i64),
}

impl Datum {
    /// The whole number.
    pub fn int(&self) -> Result<i64> {
        match self {
            Datum::Int(value) => Ok(*value),
            other => anyhow::bail!("{other:?} is no whole number"),
        }
    }

    /// An exact number in hundredths.
    pub fn cents(&self) -> Result<i64> {
        self.scaled(2)
    }

    /// An exact number as a whole number of its `scale`-th decimal digit.
    pub fn scaled(&self, scale: u8) -> Result<i64> {
        match self {
            Datum::Int(value) => Ok(value * 10_i64.pow(u32::from(scale))),
            Datum::Decimal(value, own) if *own <= scale => Ok(value * 10_i64.pow(u32::from(scale - own))),
            other => anyhow::bail!("{other:?} has no {scale} decimals"),
        }
    }

    /// The text.
    pub fn text(&self) -> Result<&str> {
        match self {
            Datum::Text(text) => Ok(text),
            other => anyhow::bail!("{other:?} is no text"),
        }
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        *self == Datum::Null
    }
}

/// Somebody else was first: the transaction is to be run again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Conflict(pub String);

/// A prepared statement of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Statement(pub usize);

/// A prepared statement with what it is given.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The statement.
    pub statement: Statement,
    /// Its parameters.
    pub parameters: Vec<Datum>,
}

impl Statement {
    /// The statement with these parameters.
    pub fn with(self, parameters: impl Into<Vec<Datum>>) -> Ask {
        Ask { statement: self, parameters: parameters.into() }
    }
}

/// The rows of a statement.
pub type Rows = Vec<Vec<Datum>>;

/// A connection to a SQL database. A serialisation failure or deadlock is a [`Conflict`] within the error.
pub trait Connection: Send {
    /// Runs statements that give no rows, or whose rows nobody wants.
    fn batch(&mut self, sql: &str) -> Result<()>;

    /// Prepares a statement.
    fn prepare(&mut self, sql: &str) -> Result<Statement>;

    /// Runs a prepared statement; gives its rows.
    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Rows>;

    /// Runs a prepared statement; gives the number of rows it changed.
    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64>;

    /// Runs prepared statements in this order, none of which needs what another gives, until one fails; gives the rows of each. Whoever can sends them
    /// all before the first answer.
    fn query_all(&mut self, asks: &[Ask]) -> Result<Vec<Rows>> {
        asks.iter().map(|ask| self.query(ask.statement, &ask.parameters)).collect()
    }

    /// Whether it has no other outer joins than by looking each row up, so that whoever joins what was grouped is to be asked in other words.
    fn joins_by_keys(&self) -> bool {
        false
    }

    /// COPY FROM STDIN in text format: `more` appends lines, and gives false when there are none.
    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64>;
}

/// Makes connections.
pub trait Connect: Sync {
    /// A new connection.
    fn connect(&self) -> Result<Box<dyn Connection>>;
}
