//! Where statements run: in this process on a database file, or on a server.

use super::signal::{Cancel, Signals};
use crate::arguments::Sql;
use crate::interrupt::Interrupted;
use crate::output::printable;
use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::format_size;
use gannet_server::frontend::{
    Address, Column, Connection, Failure, GiveUp, Host, Receiver, Report, SslMode,
};
use gannet_sql::session::{CopyFormat, Reason, Session, TransactionStatus};
use gannet_sql::types::text::{self, TextStyle};
use gannet_sql::{Client, CommandTag, Database, Error, Notice, OutputColumn, SqlState, Type, Value};
use gannet_store::{Engine, EngineOptions, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a statement fails with.
pub(super) type Outcome = std::result::Result<(), Failure>;

/// Where statements run.
pub(super) trait Backend {
    /// Runs the statements of a text, and gives the results to `receiver`.
    fn run(&mut self, sql: &str, receiver: &mut dyn Receiver) -> Outcome;
    /// Where the session stands.
    fn status(&self) -> TransactionStatus;
    /// The database's name.
    fn database(&self) -> &str;
    /// Ends the running statement.
    fn canceller(&self) -> Cancel;
    /// One line about where this is.
    fn about(&self) -> String;
    /// Whether it can be used still.
    fn is_alive(&self) -> bool;
    /// Ends it in good order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens what the command line names.
pub(super) fn open(arguments: &Sql, signals: &Signals) -> Result<Box<dyn Backend>> {
    let user = crate::serve::owner();
    if let Some(text) = arguments.database.to_str().filter(|text| Address::is_address(text)) {
        if arguments.create {
            bail!("--create makes a database file; a server makes one when it starts: gannet serve NAME.gnt");
        }
        if let Some(option) = arguments.given_for_a_file {
            bail!("{option} is for a file that this process opens: leave it out with an address");
        }
        let variable = |name: &str| std::env::var(name).ok();
        if arguments.salvage {
            bail!("--salvage opens a database file; a server has its own open");
        }
        let address = Address::parse(text, &variable, &user).map_err(|error| anyhow!(error))?;
        return Ok(Box::new(Remote::open(address, signals)?));
    }
    let path = Path::new(&arguments.database);
    match open_file(path, arguments, &user, signals) {
        Err(error) if is_ending(&error) => {
            std::thread::sleep(ENDING);
            open_file(path, arguments, &user, signals)
        }
        opened => opened,
    }
}

/// Opens a file, or connects to the server that has it open.
fn open_file(path: &Path, arguments: &Sql, user: &str, signals: &Signals) -> Result<Box<dyn Backend>> {
    match Embedded::open(path, arguments, user) {
        Err(Opening::InUse(why)) => match server_address(path, user) {
            Some(address) => Ok(Box::new(Remote::open(address, signals).context(why)?)),
            None => bail!("{why}, and no server has a socket in {:?}", gannet_server::socket_folder(path)),
        },
        Err(Opening::Failed(error)) => Err(error),
        Ok(embedded) => Ok(Box::new(embedded)),
    }
}

/// How long a server that was killed may take to let go of its file.
pub(crate) const ENDING: Duration = Duration::from_millis(300);

/// Whether a server that has a file was just ending, by the error of connecting to it: it is worth another look.
pub(crate) fn is_ending(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    let kind = error.downcast_ref().map(io::Error::kind);
    matches!(kind, Some(BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof))
}

/// The server that has a file open: its socket lies beside the file, be it this path or what the path is a link to.
pub(crate) fn server_address(path: &Path, user: &str) -> Option<Address> {
    address_beside(path, user).or_else(|| address_beside(&path.canonicalize().ok()?, user))
}

/// Whether somebody listens, or may listen, at the Unix socket of an address.
pub(crate) fn has_server(address: &Address) -> bool {
    match &address.host {
        Host::Unix(folder) => gannet_server::is_listened_at(&socket(folder, address.port)),
        Host::Name(_) => true,
    }
}

fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

fn address_beside(path: &Path, user: &str) -> Option<Address> {
    let folder = std::path::absolute(gannet_server::socket_folder(path)).ok()?;
    let port_of = |name: std::ffi::OsString| name.to_str()?.strip_prefix(".s.PGSQL.")?.parse::<u16>().ok();
    let entries = std::fs::read_dir(&folder).ok()?;
    let mut ports: Vec<u16> = entries.filter_map(|entry| port_of(entry.ok()?.file_name())).collect();
    ports.sort_unstable();
    // One server at a time has the file. Others that were killed may have left their sockets.
    let is_there = |port: &&u16| gannet_server::is_listened_at(&socket(&folder, **port));
    let port = match &ports[..] {
        [only] => *only,
        several => *several.iter().rev().find(is_there).or(several.last())?,
    };
    Some(Address {
        host: Host::Unix(folder),
        port,
        user: user.to_owned(),
        password: None,
        database: path.file_stem()?.to_str()?.to_owned(),
        ssl: SslMode::Disable,
        root_certificate: None,
        application: None,
        options: None,
        connect_timeout: None,
    })
}

// ---- a server ---------------------------------------------------------------------------------------------------------

struct Remote(Connection);

/// Why there is no connection.
pub(crate) fn not_connected(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Connection(error) => anyhow::Error::new(error).context("cannot connect"),
        failure => anyhow!("cannot connect: {failure}"),
    }
}

impl Remote {
    fn open(mut address: Address, signals: &Signals) -> Result<Self> {
        const APPLICATION: &str = "gannet sql";
        let pressed = signals.clone();
        let give_up: GiveUp = Arc::new(move || pressed.is_pressed());
        let opened = match Connection::open_unless(&address, APPLICATION, Arc::clone(&give_up)) {
            Err(Failure::Connection(error))
                if error.kind() == io::ErrorKind::PermissionDenied && address.password.is_none() =>
            {
                let prompt = format!("Password for user {}: ", printable(&address.user));
                match super::terminal::ask_secret(&prompt, signals)? {
                    Some(password) => address.password = Some(password),
                    None => bail!("{error}; give it in the address, or as PGPASSWORD"),
                }
                Connection::open_unless(&address, APPLICATION, give_up)
            }
            other => other,
        };
        if opened.is_err() && signals.take() {
            return Err(Interrupted.into());
        }
        Ok(Remote(opened.map_err(not_connected)?))
    }
}

impl Backend for Remote {
    fn run(&mut self, sql: &str, receiver: &mut dyn Receiver) -> Outcome {
        self.0.query(sql, receiver)
    }

    fn status(&self) -> TransactionStatus {
        self.0.status()
    }

    fn database(&self) -> &str {
        &self.0.address().database
    }

    fn canceller(&self) -> Cancel {
        let canceller = self.0.canceller();
        // A server that takes no request now is asked again as long as the statement runs.
        Arc::new(move || drop(canceller.cancel()))
    }

    fn about(&self) -> String {
        let address = self.0.address();
        let place = match &address.host {
            Host::Unix(folder) => format!("by the Unix socket in {folder:?}"),
            Host::Name(name) => format!("on {name:?}"),
        };
        format!(
            "Connected to database \"{}\" as user \"{}\" {place}, port {}{}; server version {}",
            printable(&address.database),
            printable(&address.user),
            address.port,
            if self.0.is_encrypted() { ", encrypted" } else { "" },
            printable(self.0.setting("server_version").unwrap_or("unknown")),
        )
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

// ---- a file -----------------------------------------------------------------------------------------------------------

/// Why a file does not open.
enum Opening {
    /// Another process has it open.
    InUse(String),
    Failed(anyhow::Error),
}

struct Embedded {
    path: PathBuf,
    memory: u64,
    database: Database,
    user: String,
    session: Session,
}

impl Embedded {
    fn open(path: &Path, arguments: &Sql, owner: &str) -> std::result::Result<Self, Opening> {
        let failed = |error: anyhow::Error| Opening::Failed(error);
        let exists = path.try_exists().with_context(|| format!("cannot look at {path:?}")).map_err(failed)?;
        if !exists && !arguments.create {
            return Err(failed(anyhow!("{path:?} does not exist; --create makes a new database")));
        }
        if exists && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Err(failed(anyhow!(
                "{path:?} is a folder: name a database file, or the address of a server"
            )));
        }
        let options = EngineOptions { memory: arguments.opening.memory, ..EngineOptions::default() };
        let engine = Engine::new(&options).map_err(|error| failed(error.into()))?;
        let open =
            OpenOptions { salvage: arguments.salvage, ..arguments.log.opening(path, arguments.opening.io) };
        let missing = engine.is_missing(path).map_err(|error| failed(error.into()))?;
        let opened = match missing && arguments.create {
            false => Database::open(&engine, path, &open, owner),
            true => {
                let create = crate::kv::create_options(arguments.opening.memory, None);
                Database::create(&engine, path, &create, &open, owner)
            }
        };
        let database = opened.map_err(|error| match error.state() {
            SqlState::OBJECT_IN_USE => Opening::InUse(error.to_string()),
            SqlState::OUT_OF_MEMORY => failed(anyhow!(
                "{error}: --memory {} is too small for {path:?}",
                format_size(arguments.opening.memory)
            )),
            _ if error.to_string().contains(&format!("{path:?}")) => failed(error.into()),
            _ => failed(anyhow!("{path:?}: {error}")),
        })?;
        let user = database.owner();
        let session = database.session(&user).map_err(|error| failed(error.into()))?;
        Ok(Embedded { path: path.to_owned(), memory: arguments.opening.memory, database, user, session })
    }
}

impl Backend for Embedded {
    fn run(&mut self, sql: &str, receiver: &mut dyn Receiver) -> Outcome {
        let mut adapter = Adapter { receiver, failed: None, text: String::new(), ends: Vec::new() };
        let done = self.session.run(sql, &mut adapter);
        match (done, adapter.failed) {
            (_, Some(error)) => Err(Failure::Receiver(error)),
            (Err(error), None) => Err(Failure::Server(Box::new(report("ERROR", &error)))),
            (Ok(()), None) => Ok(()),
        }
    }

    fn status(&self) -> TransactionStatus {
        self.session.status()
    }

    fn database(&self) -> &str {
        self.database.name()
    }

    fn canceller(&self) -> Cancel {
        let interrupt = self.session.interrupt();
        Arc::new(move || interrupt.interrupt(Reason::User))
    }

    fn about(&self) -> String {
        format!(
            "Database \"{}\" in {:?}, opened by this process with {} of memory, as user \"{}\"",
            printable(self.database.name()),
            self.path,
            format_size(self.memory),
            printable(&self.user),
        )
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Embedded { path, database, session, .. } = *self;
        drop(session);
        let archive = database.close_reporting().with_context(|| format!("cannot close {path:?}"))?;
        crate::job::tell_of_archive(archive.as_ref());
        Ok(())
    }
}

/// An error as a server would say it.
fn report(severity: &str, error: &Error) -> Report {
    let fields = error.fields();
    Report {
        severity: severity.to_owned(),
        state: fields.state.to_string(),
        message: fields.message.to_string(),
        detail: fields.detail.clone(),
        hint: fields.hint.clone(),
        position: fields.position,
        context: fields.context.clone(),
    }
}

/// Gives a session's results to a receiver, as text.
struct Adapter<'r> {
    receiver: &'r mut dyn Receiver,
    /// What the receiver failed with; the session is told something else.
    failed: Option<io::Error>,
    text: String,
    /// Where each value ends in `text`; `None`: NULL.
    ends: Vec<Option<usize>>,
}

impl Adapter<'_> {
    fn judge(&mut self, done: io::Result<()>) -> gannet_sql::Result<()> {
        done.map_err(|error| {
            let told = Error::new(SqlState::QUERY_CANCELED, error.to_string());
            self.failed = Some(error);
            told
        })
    }
}

impl Client for Adapter<'_> {
    fn columns(&mut self, columns: &[OutputColumn], _style: &TextStyle) -> gannet_sql::Result<()> {
        // To a client, a literal whose type nobody asked for is text.
        let shown = |ty: Type| if ty == Type::Unknown { Type::Text } else { ty };
        let columns: Vec<Column> = columns
            .iter()
            .map(|column| Column { name: column.name.clone(), type_oid: shown(column.ty).oid() })
            .collect();
        let done = self.receiver.columns(&columns);
        self.judge(done)
    }

    fn row(
        &mut self,
        values: &[Value],
        columns: &[OutputColumn],
        style: &TextStyle,
    ) -> gannet_sql::Result<()> {
        self.text.clear();
        self.ends.clear();
        for (value, column) in values.iter().zip(columns) {
            if value.is_null() {
                self.ends.push(None);
            } else {
                text::write(value, column.ty, style, &mut self.text);
                self.ends.push(Some(self.text.len()));
            }
        }
        let mut from = 0;
        let row: Vec<Option<&str>> = self
            .ends
            .iter()
            .map(|end| end.map(|end| &self.text[std::mem::replace(&mut from, end)..end]))
            .collect();
        let done = self.receiver.row(&row);
        self.judge(done)
    }

    fn complete(&mut self, tag: &CommandTag) -> gannet_sql::Result<()> {
        let done = self.receiver.complete(&tag.to_string());
        self.judge(done)
    }

    fn empty(&mut self) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.receiver.notice(&report(notice.severity, &notice.error));
    }

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        let done = self.receiver.copy_in();
        self.judge(done)
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> gannet_sql::Result<bool> {
        let mut more = false;
        let done = self.receiver.copy_read(data).map(|read| more = read);
        self.judge(done).map(|()| more)
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        let done = self.receiver.copy_out();
        self.judge(done)
    }

    fn copy_write(&mut self, data: &[u8]) -> gannet_sql::Result<()> {
        let done = self.receiver.copy_write(data);
        self.judge(done)
    }

    fn copy_out_end(&mut self) -> gannet_sql::Result<()> {
        Ok(())
    }
}
