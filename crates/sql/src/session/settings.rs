//! Settings of a session: what SET, SHOW, `set_config` and `pg_settings` know.
//!
//! # Guarantees
//! 1. No setting is silently ignored: a name is known and its value takes effect, or there is an error. Where PostgreSQL has a
//!    setting that makes no sense here, but clients and dumps set it, exactly the values that change nothing are taken.
//! 2. SET is undone when its transaction rolls back, SET LOCAL when it ends.
//! 3. The text of a setting is bounded: sessions and transactions keep some of them, which nobody charges for each.

use super::PlannerSettings;
use crate::types::datetime::Zone;
use crate::types::text::{DateOrder, MAX_NAME, TextStyle, cut_name};
use crate::{Error, Result, SqlState};
use gannet_store::{Durability, Isolation, Pace};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a value is checked and shown.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// on or off
    Bool,
    /// A whole number.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// Milliseconds, with units `us ms s min h d`; 0 for none.
    Time,
    /// The same, exact to a microsecond.
    FineTime,
    /// Kilobytes, with units `kB MB GB TB`; 0 for no limit.
    Size,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// A text, which is checked further where it is applied, as its length is.
    Text,
    /// A text of up to 63 bytes, to which a longer one is cut; what is no printable ASCII becomes a question mark.
    Name,
}

impl Kind {
    /// The unit of its numbers in `pg_settings`.
    pub(crate) fn unit(self) -> Option<&'static str> {
        match self {
            Kind::Time | Kind::FineTime => Some("ms"),
            Kind::Size => Some("kB"),
            _ => None,
        }
    }

    /// The smallest and the largest number, in that unit.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Kind::Int { min, max } => Some((min, max)),
            Kind::Time | Kind::FineTime | Kind::Size => Some((0, UNITS_MOST.into())),
            _ => None,
        }
    }

    /// A text of this kind as `pg_settings` has it: a number in that unit, where SHOW has the unit that fits.
    pub(crate) fn in_unit(self, text: &str) -> String {
        let number = match self {
            Kind::Time => parse_time(text).map(|millis| millis.to_string()),
            Kind::FineTime => parse_micros(text).map(|micros| (micros as f64 / 1000.0).to_string()),
            Kind::Size => parse_size(text).map(|kib| kib.to_string()),
            _ => None,
        };
        number.unwrap_or_else(|| text.to_owned())
    }
}

/// Who may change a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Anybody, for their session.
    Session,
    /// Superusers, for their session.
    Superuser,
    /// Nobody: it says how things are.
    Fixed,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name, as it is shown.
    pub name: &'static str,
    /// How its value is checked.
    pub kind: Kind,
    /// What it is by default, as it is shown.
    pub default: &'static str,
    /// Who may change it.
    pub scope: Scope,
    /// Whether clients are told of changes.
    pub reported: bool,
    /// What it does, in one sentence.
    pub description: &'static str,
}

/// Most milliseconds of a time, and kilobytes of a size.
const UNITS_MOST: i32 = i32::MAX;

/// Longest `search_path`, in bytes.
const SEARCH_PATH_MOST: usize = 1024;

const ISOLATION: &[&str] = &["read committed", "repeatable read", "read uncommitted", "serializable"];

const fn session(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Definition {
    Definition { name, kind, default, scope: Scope::Session, reported: false, description }
}

const fn reported(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> Definition {
    Definition { name, kind, default, scope: Scope::Session, reported: true, description }
}

const fn fixed(name: &'static str, default: &'static str, description: &'static str) -> Definition {
    Definition { name, kind: Kind::Text, default, scope: Scope::Fixed, reported: false, description }
}

const fn told(name: &'static str, default: &'static str, description: &'static str) -> Definition {
    Definition { name, kind: Kind::Text, default, scope: Scope::Fixed, reported: true, description }
}

macro_rules! definitions {
    ($($key:ident = $definition:expr;)*) => {
        /// A setting's place in [`DEFINITIONS`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "DEFINITIONS describes them")]
        pub enum Key { $($key),* }
        /// Every key, in the order of [`DEFINITIONS`].
        pub(super) const KEYS: &[Key] = &[$(Key::$key),*];
        /// Every setting.
        pub const DEFINITIONS: &[Definition] = &[$($definition),*];
    };
}

definitions! {
    ApplicationName = reported("application_name", Kind::Name, "", "Name of the application, for views and the log.");
    ByteaOutput = session("bytea_output", Kind::Enum(&["hex", "escape"]), "hex", "How bytea is written as text.");
    CheckFunctionBodies = session("check_function_bodies", Kind::Bool, "on", "There are no functions to check; taken for the sake of dumps.");
    ClientEncoding = reported("client_encoding", Kind::Text, "UTF8", "Encoding of text on the wire: UTF8; with SQL_ASCII the same bytes, as nothing is converted then.");
    ClientMinMessages = session("client_min_messages", Kind::Enum(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]), "notice", "The least severe messages that are sent.");
    DateStyle = reported("DateStyle", Kind::Text, "ISO, MDY", "How dates are written (only ISO), and the order of day, month and year in input.");
    DefaultTableAccessMethod = session("default_table_access_method", Kind::Enum(&["heap"]), "heap", "Taken for the sake of dumps; there is one kind of table.");
    DefaultTablespace = session("default_tablespace", Kind::Enum(&[""]), "", "Taken for the sake of dumps; there are no tablespaces.");
    DefaultTransactionIsolation = session("default_transaction_isolation", Kind::Enum(ISOLATION), "read committed", "Isolation of transactions that do not say.");
    DefaultTransactionReadOnly = reported("default_transaction_read_only", Kind::Bool, "off", "Whether transactions that do not say are read-only.");
    EnableHashagg = session("enable_hashagg", Kind::Bool, "on", "Whether the planner groups by hash tables.");
    EnableHashjoin = session("enable_hashjoin", Kind::Bool, "on", "Whether the planner joins by hash tables.");
    EnableIndexonlyscan = session("enable_indexonlyscan", Kind::Bool, "on", "Whether the planner reads indexes without their table.");
    EnableIndexscan = session("enable_indexscan", Kind::Bool, "on", "Whether the planner reads tables through indexes.");
    EnableNestloop = session("enable_nestloop", Kind::Bool, "on", "Whether the planner joins row by row, index joins included.");
    EnableSeqscan = session("enable_seqscan", Kind::Bool, "on", "Whether the planner reads whole tables.");
    EnableSort = session("enable_sort", Kind::Bool, "on", "Whether the planner sorts.");
    ExtraFloatDigits = session("extra_float_digits", Kind::Int { min: -15, max: 3 }, "1", "Above 0: the shortest text that reads back the same; else fewer digits.");
    LookAhead = session("gannet_look_ahead", Kind::Bool, "on", "Whether index order and index joins fetch rows in deep batches ahead of their turn, and pages for statements that a client has sent at once come together.");
    IdleInTransactionTimeout = session("idle_in_transaction_session_timeout", Kind::Time, "0", "How long a session may be idle in a transaction before it is ended.");
    IdleTimeout = session("idle_session_timeout", Kind::Time, "0", "How long a session may be idle before it is ended.");
    InHotStandby = told("in_hot_standby", "off", "Whether the server only follows another one.");
    IntegerDatetimes = told("integer_datetimes", "on", "Timestamps are whole microseconds.");
    IntervalStyle = reported("IntervalStyle", Kind::Enum(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]), "postgres", "Taken for the sake of clients; there is no type interval.");
    IsSuperuser = told("is_superuser", "off", "Whether the role may do everything.");
    JobLatencyTarget = Definition { scope: Scope::Superuser, ..session("job_latency_target", Kind::FineTime, "0", "How long others' requests to the device may take on average while a job of this session runs; 0: as the server was started with.") };
    JobPace = Definition { scope: Scope::Superuser, ..session("job_pace", Kind::Enum(&["auto", "full"]), "auto", "Whether jobs of this session give way to others (auto), or go as fast as they can (full), whatever job_latency_target says.") };
    Jit = session("jit", Kind::Bool, "off", "Whether expressions are compiled to machine code: they are not.");
    LcCollate = fixed("lc_collate", "C", "Order of text: bytewise.");
    LcCtype = fixed("lc_ctype", "C.UTF-8", "Classes of characters.");
    LcMessages = Definition { scope: Scope::Superuser, ..session("lc_messages", Kind::Enum(&["C", "en_US.UTF-8"]), "C", "Language of messages: English.") };
    LcMonetary = session("lc_monetary", Kind::Enum(&["C", "en_US.UTF-8"]), "C", "There is no type money.");
    LcNumeric = session("lc_numeric", Kind::Enum(&["C", "en_US.UTF-8"]), "C", "How to_char writes numbers.");
    LcTime = session("lc_time", Kind::Enum(&["C", "en_US.UTF-8"]), "C", "How to_char writes names of days and months.");
    LockTimeout = session("lock_timeout", Kind::Time, "0", "How long a statement waits for a row.");
    MaxIdentifierLength = fixed("max_identifier_length", "63", "Longest name, in bytes.");
    MaxIndexKeys = fixed("max_index_keys", "32", "Most columns of an index.");
    Helpers = session("max_parallel_workers_per_gather", Kind::Int { min: 0, max: 1024 }, "2", "Threads beside its own that a statement may have for aggregates and for rows by an index, three at most; all statements together have one fewer than there are processors. 0: the last merge of a sort has none either.");
    RowSecurity = session("row_security", Kind::Bool, "on", "There are no policies; taken for the sake of dumps.");
    SearchPath = session("search_path", Kind::Text, "\"$user\", public", "Schemas in which names are looked up.");
    ServerEncoding = told("server_encoding", "UTF8", "Encoding of the database.");
    ServerVersion = told("server_version", "15.0", "The release of PostgreSQL whose language is spoken.");
    ServerVersionNum = fixed("server_version_num", "150000", "The same as a number.");
    SessionAuthorization = told("session_authorization", "", "The role that has connected.");
    SnapshotLimit = session("snapshot_limit", Kind::Time, "0", "How long a transaction may hold garbage back before its session is ended; longer than the database's only for superusers.");
    StandardConformingStrings = reported("standard_conforming_strings", Kind::Enum(&["on"]), "on", "A backslash in '...' is a backslash.");
    StatementTimeout = session("statement_timeout", Kind::Time, "0", "How long a statement may run.");
    SynchronizeSeqscans = session("synchronize_seqscans", Kind::Bool, "on", "Taken for the sake of dumps; scans have one order.");
    SynchronousCommit = session("synchronous_commit", Kind::Enum(&["on", "off", "local", "remote_write", "remote_apply"]), "on", "Whether a commit waits until it is durable.");
    TimeZone = reported("TimeZone", Kind::Text, "UTC", "Time zone in which timestamps are read and written.");
    TransactionIsolation = session("transaction_isolation", Kind::Enum(ISOLATION), "read committed", "Isolation of the current transaction.");
    TransactionReadOnly = session("transaction_read_only", Kind::Bool, "off", "Whether the current transaction is read-only.");
    WorkMem = session("work_mem", Kind::Size, "0", "Most memory an operator takes before it spills; 0: its share of the budget, which no value exceeds.");
    XmlOption = session("xmloption", Kind::Enum(&["content", "document"]), "content", "There is no type xml; taken for the sake of dumps.");
}

/// Another name of a setting.
fn alias(name: &str) -> &str {
    match name {
        "timezone" | "time zone" => "TimeZone",
        other => other,
    }
}

/// The setting of this name, however it is spelt.
pub fn find(name: &str) -> Result<usize> {
    let wanted = alias(name);
    DEFINITIONS.iter().position(|d| d.name.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
        Error::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
    })
}

/// What a value of a setting is cut to; `None`: it is not.
pub(super) fn cut(index: usize, value: &str) -> Option<&str> {
    (matches!(DEFINITIONS[index].kind, Kind::Name) && value.len() > MAX_NAME).then(|| cut_name(value))
}

/// The settings of a session: as text, and as the code uses them.
#[derive(Clone, Debug)]
pub struct Settings {
    texts: Vec<String>,
    /// What the client asked for when it connected, by place.
    at_start: BTreeMap<usize, String>,
    /// How values are read and written.
    pub style: TextStyle,
    /// What the planner may do.
    pub planner: PlannerSettings,
    /// `statement_timeout`
    pub statement_timeout: Option<Duration>,
    /// `work_mem`, in bytes; `None`: an operator's share of the budget is its only limit.
    pub work_bytes: Option<u64>,
    /// `max_parallel_workers_per_gather`
    pub helpers: usize,
    /// `lock_timeout`
    pub lock_timeout: Option<Duration>,
    /// `idle_in_transaction_session_timeout`
    pub idle_in_transaction_timeout: Option<Duration>,
    /// `idle_session_timeout`
    pub idle_timeout: Option<Duration>,
    /// `snapshot_limit`
    pub snapshot_limit: Option<Duration>,
    /// What that is where the session does not say: as the database was opened.
    database_snapshot_limit: Option<Duration>,
    /// `job_pace`, and `job_latency_target` where that does not say `full`
    pub job_pace: Pace,
    /// `synchronous_commit`
    pub durability: Durability,
    /// `default_transaction_isolation`
    pub level: Level,
    /// `default_transaction_read_only`
    pub read_only: bool,
    /// Rank of `client_min_messages`.
    pub least_severity: u8,
}

impl Settings {
    /// The defaults, for a session of this role, in a database that was opened with this `snapshot_limit`.
    pub fn new(
        user: &str,
        is_superuser: bool,
        planner: PlannerSettings,
        snapshot_limit: Option<Duration>,
    ) -> Self {
        let mut texts: Vec<String> = DEFINITIONS.iter().map(|d| d.default.to_owned()).collect();
        texts[Key::SessionAuthorization as usize] = user.to_owned();
        texts[Key::SnapshotLimit as usize] = limit_text(snapshot_limit);
        texts[Key::IsSuperuser as usize] = if is_superuser { "on" } else { "off" }.to_owned();
        Settings {
            texts,
            at_start: BTreeMap::new(),
            style: TextStyle::default(),
            planner,
            statement_timeout: None,
            work_bytes: None,
            helpers: 2,
            lock_timeout: None,
            idle_in_transaction_timeout: None,
            idle_timeout: None,
            snapshot_limit,
            database_snapshot_limit: snapshot_limit,
            job_pace: Pace::Auto,
            durability: Durability::Sync,
            level: Level::READ_COMMITTED,
            read_only: false,
            least_severity: severity_rank("notice"),
        }
    }

    /// A setting's text.
    pub fn text(&self, index: usize) -> &str {
        &self.texts[index]
    }

    /// A setting's text, by key.
    pub fn get(&self, key: Key) -> &str {
        &self.texts[key as usize]
    }

    /// What a setting is where the session does not say: what its client asked for when it connected, else the default.
    pub fn default_text(&self, index: usize) -> String {
        if let Some(text) = self.at_start.get(&index) {
            return text.clone();
        }
        match KEYS[index] {
            Key::SnapshotLimit => limit_text(self.database_snapshot_limit),
            _ => DEFINITIONS[index].default.to_owned(),
        }
    }

    /// Where the value of a setting comes from, as PostgreSQL names it.
    pub fn source(&self, index: usize) -> &'static str {
        if self.text(index) != self.default_text(index) {
            "session"
        } else if self.at_start.contains_key(&index) {
            "client"
        } else {
            "default"
        }
    }

    /// Changes a setting as a client asks that connects.
    pub(super) fn set_at_start(&mut self, index: usize, value: &str) -> Result<()> {
        self.set(index, Some(value))?;
        self.at_start.insert(index, self.texts[index].clone());
        Ok(())
    }

    /// The same for a session that works for a statement of this one's. How long that statement may take is looked at here, not by each of its own.
    pub(super) fn for_helper(&self) -> Self {
        let mut settings = self.clone();
        let index = Key::StatementTimeout as usize;
        settings.at_start.remove(&index);
        settings.restore(index, DEFINITIONS[index].default.to_owned());
        settings
    }

    /// A limit beyond the database's is for superusers.
    fn check_snapshot_limit(&self, limit: Option<Duration>) -> Result<()> {
        let beyond = self.database_snapshot_limit.is_some_and(|most| limit.is_none_or(|limit| limit > most));
        if beyond && self.get(Key::IsSuperuser) != "on" {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "permission denied to set parameter \"snapshot_limit\" beyond the database's",
            ));
        }
        Ok(())
    }

    /// Changes a setting; gives the text it had. `None`: to its default.
    pub fn set(&mut self, index: usize, value: Option<&str>) -> Result<String> {
        let definition = &DEFINITIONS[index];
        match definition.scope {
            Scope::Fixed => {
                return Err(Error::new(
                    SqlState::CANT_CHANGE_RUNTIME_PARAM,
                    format!("parameter \"{}\" cannot be changed", definition.name),
                ));
            }
            Scope::Superuser if self.get(Key::IsSuperuser) != "on" => {
                return Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    format!("permission denied to set parameter \"{}\"", definition.name),
                ));
            }
            Scope::Superuser | Scope::Session => {}
        }
        let default = self.default_text(index);
        let text = normalise(definition, value.unwrap_or(&default))?;
        // What a rollback brings back was permitted, whatever the role may do by now.
        if KEYS[index] == Key::SnapshotLimit {
            self.check_snapshot_limit(duration(&text))?;
        }
        let text = self.apply(index, text)?;
        Ok(std::mem::replace(&mut self.texts[index], text))
    }

    /// Brings back a text that [`Settings::set`] gave.
    pub fn restore(&mut self, index: usize, text: String) {
        // It was in effect before, so it is valid.
        if let Ok(text) = self.apply(index, text) {
            self.texts[index] = text;
        }
    }

    fn apply(&mut self, index: usize, text: String) -> Result<String> {
        let on = text == "on";
        let key = KEYS[index];
        match key {
            Key::ByteaOutput => self.style.bytea_hex = text == "hex",
            Key::ClientEncoding => {
                let plain: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
                return match plain.to_ascii_lowercase().as_str() {
                    "utf8" | "unicode" => Ok("UTF8".to_owned()),
                    // What a client asks for that has no locale: bytes as they are, which have to be UTF-8 all the same.
                    "sqlascii" => Ok("SQL_ASCII".to_owned()),
                    _ => Err(invalid(key, &text).detail("Only UTF8 and SQL_ASCII are implemented.")),
                };
            }
            Key::ClientMinMessages => self.least_severity = severity_rank(&text),
            Key::DateStyle => {
                self.style.date_order = date_style(&text, self.style.date_order)?;
                return Ok(format!("ISO, {}", order_name(self.style.date_order)));
            }
            Key::DefaultTransactionIsolation | Key::TransactionIsolation => {
                let level = Level::named(&text)?;
                if key == Key::DefaultTransactionIsolation {
                    self.level = level;
                }
            }
            Key::DefaultTransactionReadOnly => self.read_only = on,
            Key::EnableHashagg => self.planner.hashagg = on,
            Key::EnableHashjoin => self.planner.hashjoin = on,
            Key::EnableIndexonlyscan => self.planner.indexonlyscan = on,
            Key::EnableIndexscan => self.planner.indexscan = on,
            Key::EnableNestloop => self.planner.nestloop = on,
            Key::EnableSeqscan => self.planner.seqscan = on,
            Key::EnableSort => self.planner.sort = on,
            Key::LookAhead => self.planner.look_ahead = on,
            Key::Helpers => self.helpers = text.parse().unwrap_or(0),
            Key::ExtraFloatDigits => self.style.extra_float_digits = text.parse().unwrap_or(1),
            Key::IdleInTransactionTimeout => self.idle_in_transaction_timeout = duration(&text),
            Key::IdleTimeout => self.idle_timeout = duration(&text),
            Key::JobLatencyTarget => self.job_pace = job_pace(self.get(Key::JobPace), &text),
            Key::JobPace => self.job_pace = job_pace(&text, self.get(Key::JobLatencyTarget)),
            Key::Jit if on => return Err(invalid(key, &text).detail("Nothing is compiled to machine code.")),
            Key::LockTimeout => self.lock_timeout = duration(&text),
            Key::SnapshotLimit => self.snapshot_limit = duration(&text),
            Key::StatementTimeout => self.statement_timeout = duration(&text),
            Key::SearchPath => check_search_path(&text)?,
            Key::SynchronousCommit => {
                if text.starts_with("remote") {
                    return Err(invalid(key, &text).detail("There is no other server to wait for."));
                }
                self.durability = if text == "off" { Durability::Async } else { Durability::Sync };
            }
            Key::WorkMem => self.work_bytes = parse_size(&text).filter(|kib| *kib > 0).map(|kib| kib << 10),
            Key::TimeZone => {
                self.style.zone = Zone::parse(&text)?;
                return Ok(self.style.zone.name().to_owned());
            }
            Key::ApplicationName
            | Key::CheckFunctionBodies
            | Key::DefaultTableAccessMethod
            | Key::DefaultTablespace
            | Key::InHotStandby
            | Key::IntegerDatetimes
            | Key::IntervalStyle
            | Key::IsSuperuser
            | Key::Jit
            | Key::LcCollate
            | Key::LcCtype
            | Key::LcMessages
            | Key::LcMonetary
            | Key::LcNumeric
            | Key::LcTime
            | Key::MaxIdentifierLength
            | Key::MaxIndexKeys
            | Key::RowSecurity
            | Key::ServerEncoding
            | Key::ServerVersion
            | Key::ServerVersionNum
            | Key::SessionAuthorization
            | Key::StandardConformingStrings
            | Key::SynchronizeSeqscans
            | Key::TransactionReadOnly
            | Key::XmlOption => {}
        }
        Ok(text)
    }
}

/// An isolation level. READ UNCOMMITTED keeps its name and does as READ COMMITTED, as in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// As settings name it.
    pub name: &'static str,
    /// What it is in the store.
    pub isolation: Isolation,
}

impl Level {
    const READ_COMMITTED: Level = Level { name: "read committed", isolation: Isolation::ReadCommitted };

    /// The level of this name, in small letters.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "read uncommitted" => Ok(Level { name: "read uncommitted", ..Level::READ_COMMITTED }),
            "read committed" => Ok(Level::READ_COMMITTED),
            "repeatable read" => Ok(Level { name: "repeatable read", isolation: Isolation::RepeatableRead }),
            _ => Err(Error::unsupported("isolation level SERIALIZABLE")
                .hint("Use REPEATABLE READ, which is snapshot isolation.")),
        }
    }
}

fn invalid(key: Key, value: &str) -> Error {
    let name = DEFINITIONS[key as usize].name;
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

fn normalise(definition: &Definition, value: &str) -> Result<String> {
    let bad = || {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{}\": \"{value}\"", definition.name),
        )
    };
    match definition.kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::Name => {
            let shown = |byte: u8| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' };
            Ok(cut_name(value).bytes().map(shown).collect())
        }
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".to_owned()),
            _ => Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("parameter \"{}\" requires a Boolean value", definition.name),
            )),
        },
        Kind::Enum(words) => {
            let value = value.to_ascii_lowercase();
            let boolean = match value.as_str() {
                "true" | "yes" | "1" => "on",
                "false" | "no" | "0" => "off",
                other => other,
            };
            words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(boolean))
                .map(|word| (*word).to_owned())
                .ok_or_else(|| bad().hint(format!("Available values: {}.", words.join(", "))))
        }
        Kind::Int { min, max } => {
            let number: i64 = value.trim().parse().map_err(|_| bad())?;
            if number < min || number > max {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!(
                        "{number} is outside the valid range for parameter \"{}\" ({min} .. {max})",
                        definition.name
                    ),
                ));
            }
            Ok(number.to_string())
        }
        Kind::Time | Kind::FineTime => {
            let is_fine = matches!(definition.kind, Kind::FineTime);
            let shown =
                if is_fine { parse_micros(value).map(show_micros) } else { parse_time(value).map(show_time) };
            shown.ok_or_else(|| {
                bad().hint(
                    "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".",
                )
            })
        }
        Kind::Size => {
            let kib = parse_size(value).ok_or_else(|| {
                bad().hint("Valid units for this parameter are \"kB\", \"MB\", \"GB\", and \"TB\".")
            })?;
            Ok(show_size(kib))
        }
    }
}

/// Milliseconds of a time as PostgreSQL's settings have it.
fn parse_time(text: &str) -> Option<u64> {
    let millis = parse_millis(text)?.round();
    (0.0..=f64::from(UNITS_MOST)).contains(&millis).then_some(millis as u64)
}

/// Microseconds of a time.
fn parse_micros(text: &str) -> Option<u64> {
    let micros = (parse_millis(text)? * 1000.0).round();
    (0.0..=f64::from(UNITS_MOST) * 1000.0).contains(&micros).then_some(micros as u64)
}

fn parse_millis(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor = match unit.trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    Some(number * factor)
}

/// A time with the largest unit that divides it.
fn show_time(millis: u64) -> String {
    for (size, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    if millis == 0 { "0".to_owned() } else { format!("{millis}ms") }
}

fn show_micros(micros: u64) -> String {
    if micros.is_multiple_of(1000) { show_time(micros / 1000) } else { format!("{micros}us") }
}

/// Kilobytes of a size as PostgreSQL's settings have it.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit.trim() {
        "" | "kB" => 0,
        "MB" => 10,
        "GB" => 20,
        "TB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift).filter(|kib| *kib <= UNITS_MOST as u64)
}

/// A size with the largest unit that divides it.
fn show_size(kib: u64) -> String {
    for (shift, unit) in [(30, "TB"), (20, "GB"), (10, "MB")] {
        if kib > 0 && kib.is_multiple_of(1 << shift) {
            return format!("{}{unit}", kib >> shift);
        }
    }
    if kib == 0 { "0".to_owned() } else { format!("{kib}kB") }
}

fn limit_text(limit: Option<Duration>) -> String {
    show_time(limit.map_or(0, |limit| (limit.as_millis() as u64).max(1)))
}

fn duration(text: &str) -> Option<Duration> {
    parse_time(text).filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// What both settings together say.
fn job_pace(pace: &str, target: &str) -> Pace {
    match pace {
        "full" => Pace::Full,
        _ => Pace::with_target(Duration::from_micros(parse_micros(target).unwrap_or(0))),
    }
}

fn date_style(text: &str, mut order: DateOrder) -> Result<DateOrder> {
    for word in text.split(',') {
        match word.trim().to_ascii_lowercase().as_str() {
            "iso" => {}
            "mdy" | "us" | "noneuro" | "noneuropean" => order = DateOrder::Mdy,
            "dmy" | "euro" | "european" => order = DateOrder::Dmy,
            "ymd" => order = DateOrder::Ymd,
            "default" => order = DateOrder::Mdy,
            "sql" | "postgres" | "german" => {
                return Err(Error::unsupported(format!("DateStyle {}", word.trim()))
                    .hint("Dates are written in ISO style only."));
            }
            _ => return Err(invalid(Key::DateStyle, text)),
        }
    }
    Ok(order)
}

fn order_name(order: DateOrder) -> &'static str {
    match order {
        DateOrder::Mdy => "MDY",
        DateOrder::Dmy => "DMY",
        DateOrder::Ymd => "YMD",
    }
}

/// Names are looked up in pg_catalog and public; a path that asks for something else would be ignored.
fn check_search_path(text: &str) -> Result<()> {
    if text.len() > SEARCH_PATH_MOST {
        let message = "invalid value for parameter \"search_path\"";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .detail(format!("It is longer than {SEARCH_PATH_MOST} bytes.")));
    }
    for schema in text.split(',').map(|schema| schema.trim().trim_matches('"')) {
        if !matches!(schema, "" | "$user" | "public" | "pg_catalog") {
            return Err(Error::unsupported(format!("schema \"{schema}\" in search_path"))
                .hint("There is one schema for tables, \"public\"."));
        }
    }
    Ok(())
}

/// Rank of a severity among messages to a client.
pub(super) fn severity_rank(severity: &str) -> u8 {
    match severity.to_ascii_lowercase().as_str() {
        "debug5" | "debug4" | "debug3" | "debug2" | "debug1" => 0,
        "log" => 1,
        "notice" => 2,
        "warning" => 3,
        "info" => 9,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new("me", true, PlannerSettings::new(1 << 20, 1 << 20), None)
    }

    #[test]
    fn a_sessions_jobs_have_a_target_exact_to_a_microsecond() {
        let mut s = settings();
        assert_eq!((s.get(Key::JobLatencyTarget), s.job_pace), ("0", Pace::Auto));
        for (text, shown, micros) in [("250us", "250us", 250), ("2", "2ms", 2000), ("1.5ms", "1500us", 1500)]
        {
            assert_eq!(set(&mut s, "job_latency_target", text).unwrap(), shown);
            assert_eq!(s.job_pace, Pace::Latency(Duration::from_micros(micros)));
        }
        for text in ["fast", "-1", "2 weeks", "25d"] {
            set(&mut s, "job_latency_target", text).unwrap_err();
        }
        s.set(find("job_latency_target").unwrap(), None).unwrap();
        assert_eq!(s.job_pace, Pace::Auto);
        assert_eq!(set(&mut s, "job_pace", "FULL").unwrap(), "full");
        assert_eq!(s.job_pace, Pace::Full);
        set(&mut s, "job_latency_target", "2ms").unwrap();
        assert_eq!(s.job_pace, Pace::Full, "whatever the other one says");
        set(&mut s, "job_pace", "fast").unwrap_err();
        set(&mut s, "job_pace", "auto").unwrap();
        assert_eq!(s.job_pace, Pace::Latency(Duration::from_millis(2)));
        let mut s = Settings::new("me", false, PlannerSettings::new(1 << 20, 1 << 20), None);
        for (name, text) in [("job_latency_target", "1h"), ("job_pace", "full")] {
            let error = set(&mut s, name, text).unwrap_err();
            assert_eq!(error.state(), SqlState::INSUFFICIENT_PRIVILEGE);
        }
    }

    #[test]
    fn a_limit_beyond_the_databases_is_for_superusers() {
        let of = |is_superuser| {
            let planner = PlannerSettings::new(1 << 20, 1 << 20);
            Settings::new("me", is_superuser, planner, Some(Duration::from_secs(60)))
        };
        let mut s = of(false);
        assert_eq!(s.get(Key::SnapshotLimit), "1min");
        assert_eq!(set(&mut s, "snapshot_limit", "5s").unwrap(), "5s");
        for value in ["0", "61s"] {
            let error = set(&mut s, "snapshot_limit", value).unwrap_err();
            assert_eq!(error.state(), SqlState::INSUFFICIENT_PRIVILEGE, "{value}");
        }
        assert_eq!(s.snapshot_limit, Some(Duration::from_secs(5)));
        s.set(find("snapshot_limit").unwrap(), None).unwrap();
        assert_eq!(s.snapshot_limit, Some(Duration::from_secs(60)));
        let mut s = of(true);
        assert_eq!(set(&mut s, "snapshot_limit", "0").unwrap(), "0");
        assert_eq!(s.snapshot_limit, None);
    }

    fn set(settings: &mut Settings, name: &str, value: &str) -> Result<String> {
        let index = find(name)?;
        settings.set(index, Some(value))?;
        Ok(settings.text(index).to_owned())
    }

    #[test]
    fn what_was_refused_was_in_effect_all_the_same() {
        let mut s = settings();
        set(&mut s, "synchronous_commit", "off").unwrap();
        let mut refused = 0;
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            let words = if let Kind::Enum(words) = definition.kind { words } else { &[] };
            for value in words.iter().chain(&["nonsense", "-1000", "1 lot", "serializable", "\"a\", b", ""]) {
                let before = format!("{s:?}");
                match s.set(index, Some(value)) {
                    Ok(text) => s.restore(index, text),
                    Err(_) => refused += 1,
                }
                assert_eq!(format!("{s:?}"), before, "{} = {value:?}", definition.name);
            }
        }
        assert!(refused > DEFINITIONS.len(), "{refused}");
    }

    #[test]
    fn every_default_is_valid() {
        let mut settings = settings();
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            if definition.scope != Scope::Fixed {
                settings.set(index, None).unwrap();
                assert_eq!(settings.text(index), definition.default, "{}", definition.name);
            }
        }
    }

    #[test]
    fn texts_are_bounded() {
        let mut s = settings();
        assert_eq!(set(&mut s, "application_name", &"n".repeat(100)).unwrap(), "n".repeat(63));
        // As in PostgreSQL: cut between characters, then each byte that cannot be shown everywhere.
        let name = format!("{}\t{}", "n".repeat(60), "\u{e9}\u{e9}");
        assert_eq!(set(&mut s, "application_name", &name).unwrap(), format!("{}???", "n".repeat(60)));
        let long = vec!["public"; 1000].join(", ");
        assert_eq!(set(&mut s, "search_path", &long[..1022]).unwrap().len(), 1022);
        assert_eq!(set(&mut s, "search_path", &long).unwrap_err().state(), SqlState::INVALID_PARAMETER_VALUE);
        let mut bytes = 0;
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            let long = format!("{}{}", definition.default, " ".repeat(100_000));
            if definition.scope != Scope::Fixed && s.set(index, Some(&long)).is_ok() {
                bytes += s.text(index).len();
            }
        }
        assert!(bytes < 10_000, "{bytes}");
    }

    #[test]
    fn values_are_checked_and_shown_as_in_postgresql() {
        let mut s = settings();
        assert_eq!(set(&mut s, "statement_timeout", "90000").unwrap(), "90s");
        assert_eq!(s.statement_timeout, Some(Duration::from_secs(90)));
        assert_eq!(set(&mut s, "STATEMENT_TIMEOUT", "1500ms").unwrap(), "1500ms");
        assert_eq!(set(&mut s, "statement_timeout", "0").unwrap(), "0");
        assert_eq!(s.statement_timeout, None);
        assert_eq!(set(&mut s, "work_mem", "4096").unwrap(), "4MB");
        assert_eq!(s.work_bytes, Some(4 << 20));
        assert_eq!(set(&mut s, "work_mem", "0").unwrap(), "0");
        assert_eq!(s.work_bytes, None);
        assert_eq!(set(&mut s, "datestyle", "dmy").unwrap(), "ISO, DMY");
        assert_eq!(set(&mut s, "client_encoding", "utf-8").unwrap(), "UTF8");
        assert_eq!(set(&mut s, "enable_seqscan", "FALSE").unwrap(), "off");
        assert!(!s.planner.seqscan);
        for (name, value, state) in [
            ("nonsense", "1", SqlState::UNDEFINED_OBJECT),
            ("extra_float_digits", "99", SqlState::INVALID_PARAMETER_VALUE),
            ("work_mem", "1 lot", SqlState::INVALID_PARAMETER_VALUE),
            ("statement_timeout", "1 week", SqlState::INVALID_PARAMETER_VALUE),
            ("server_version", "16", SqlState::CANT_CHANGE_RUNTIME_PARAM),
            ("client_encoding", "LATIN1", SqlState::INVALID_PARAMETER_VALUE),
            ("search_path", "elsewhere", SqlState::FEATURE_NOT_SUPPORTED),
            ("default_transaction_isolation", "serializable", SqlState::FEATURE_NOT_SUPPORTED),
        ] {
            assert_eq!(set(&mut s, name, value).unwrap_err().state(), state, "{name}");
        }
    }
}
