//! Who gets the results of statements.

use crate::types::text::{self, TextStyle};
use crate::{Error, Result, SqlState, Type, Value};

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The type's modifier.
    pub modifier: i32,
    /// The table and the number of the table's column it is.
    pub origin: Option<(u32, u16)>,
}

/// How a statement ended, as `CommandComplete` says it: `SELECT 3`, `INSERT 0 1`, `BEGIN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTag {
    /// The command.
    pub command: &'static str,
    /// Rows, for commands that count them.
    pub rows: Option<u64>,
}

impl CommandTag {
    /// Of a command that counts no rows.
    pub fn plain(command: &'static str) -> Self {
        CommandTag { command, rows: None }
    }
}

impl std::fmt::Display for CommandTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rows {
            Some(rows) if self.command == "INSERT" => write!(f, "INSERT 0 {rows}"),
            Some(rows) => write!(f, "{} {rows}", self.command),
            None => f.write_str(self.command),
        }
    }
}

/// Something to be told that is no error.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `WARNING`, `NOTICE`, `INFO`
    pub severity: &'static str,
    /// The rest.
    pub error: Error,
}

impl Notice {
    /// A warning of this kind.
    pub fn warning(state: SqlState, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Notice { severity: "WARNING", error: Error::new(state, message) }
    }
}

/// What a COPY statement moves.
#[derive(Clone, Debug)]
pub struct CopyFormat {
    /// Number of columns.
    pub columns: usize,
}

/// Who gets the results of statements.
pub trait Client {
    /// A result with these columns begins. (Not called by [`Session::execute`](super::Session::execute), whose caller has
    /// described the portal.)
    fn columns(&mut self, columns: &[OutputColumn], style: &TextStyle) -> Result<()>;
    /// A row of it.
    fn row(&mut self, values: &[Value], columns: &[OutputColumn], style: &TextStyle) -> Result<()>;
    /// The statement ended well.
    fn complete(&mut self, tag: &CommandTag) -> Result<()>;
    /// The text had no statement.
    fn empty(&mut self) -> Result<()>;
    /// Something to be told.
    fn notice(&mut self, notice: &Notice);
    /// How far a job is that runs meanwhile, and may hold what others need: it is not to wait for the client. Left out where the client does not take it now.
    fn progress(&mut self, notice: &Notice) {
        self.notice(notice);
    }
    /// A setting that clients are told of has changed (`TimeZone`, `client_encoding`, ...).
    fn setting_changed(&mut self, name: &str, value: &str);
    /// COPY FROM STDIN begins: data is asked for with [`Client::copy_read`].
    fn copy_in(&mut self, format: &CopyFormat) -> Result<()>;
    /// Appends the next piece of data; false at the end. An error ends the COPY (the client gave up: 57014). Where no data comes
    /// for a while, nothing is appended: who asks may find that the statement is to end, or asks again.
    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool>;
    /// COPY TO STDOUT begins.
    fn copy_out(&mut self, format: &CopyFormat) -> Result<()>;
    /// A piece of data, whole lines.
    fn copy_write(&mut self, data: &[u8]) -> Result<()>;
    /// COPY TO STDOUT has no more data.
    fn copy_out_end(&mut self) -> Result<()>;
}

/// A client that keeps the result of the last statement: for programs that embed the database, and for tests. It has no data for COPY
/// FROM STDIN, unless some is put into `input`.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The columns; empty where the statement gave no rows.
    pub columns: Vec<OutputColumn>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// How the last statement ended.
    pub tag: Option<CommandTag>,
    /// What was told meanwhile.
    pub notices: Vec<Notice>,
    /// Data for COPY FROM STDIN.
    pub input: Vec<u8>,
    /// Data of COPY TO STDOUT.
    pub output: Vec<u8>,
    style: TextStyle,
    complete: bool,
}

impl Rows {
    fn begin(&mut self) {
        if self.complete {
            *self =
                Rows { input: std::mem::take(&mut self.input), style: self.style.clone(), ..Rows::default() };
        }
    }

    /// The rows as text; NULL is an empty string.
    pub fn text(&self) -> Vec<Vec<String>> {
        let write = |(value, column): (&Value, &OutputColumn)| {
            let mut out = String::new();
            if !value.is_null() {
                text::write(value, column.ty, &self.style, &mut out);
            }
            out
        };
        self.rows.iter().map(|row| row.iter().zip(&self.columns).map(write).collect()).collect()
    }
}

impl Client for Rows {
    fn columns(&mut self, columns: &[OutputColumn], style: &TextStyle) -> Result<()> {
        self.begin();
        self.complete = false;
        self.columns = columns.to_vec();
        self.style = style.clone();
        Ok(())
    }

    fn row(&mut self, values: &[Value], columns: &[OutputColumn], style: &TextStyle) -> Result<()> {
        self.begin();
        if self.columns.is_empty() {
            self.columns = columns.to_vec();
            self.style = style.clone();
        }
        self.rows.push(values.to_vec());
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.begin();
        self.tag = Some(tag.clone());
        self.complete = true;
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        self.begin();
        self.complete = true;
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.begin();
        self.notices.push(notice.clone());
    }

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> Result<()> {
        self.begin();
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        let before = data.len();
        data.append(&mut self.input);
        Ok(data.len() > before)
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> Result<()> {
        self.begin();
        Ok(())
    }

    fn copy_write(&mut self, data: &[u8]) -> Result<()> {
        self.output.extend_from_slice(data);
        Ok(())
    }

    fn copy_out_end(&mut self) -> Result<()> {
        Ok(())
    }
}
