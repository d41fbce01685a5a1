//! Load: definitions and rows from text: dumps of ours, plain ones of `pg_dump`, folders of csv.
//!
//! # What it guarantees
//! 1. The rows of a table are loaded as one transaction, and each statement is one of its own, whatever the script says of transactions: what
//!    ends the load leaves no half of a table. What a script takes back by ROLLBACK cannot be loaded, and is refused.
//! 2. A dump that was cut off is refused, before anything is loaded where it is a file.
//! 3. What is bad is named by file and line; what is skipped or passed over is counted. Nothing else is left out: where the lines of a piece
//!    cannot be told apart as one text, each row is read alone.
//! 4. When it ends, everything is durable, and no transaction is open.
//! 5. Rows that are long are charged to the budget before they are queued, and wait for those under way where there is no room for all; long
//!    statements are charged as they are read. What is kept and told of an error is short, however long the value that it quotes.
//! 6. Once something has failed no more is waited for, of a stream or of a client.
//!
//! # Way
//! Statements run one after the other. Primary keys, which stand behind the rows, are looked for at the end of a file and made before the rows of
//! their tables, so that these go where they belong at once; when their turn comes they are there. So are indexes that are not unique, where this process builds them, so that whoever makes the rows
//! makes their entries, too. Rows for an empty table fill its tree from the bottom up (`rows`, `ddl`); where a rule
//! of the table is broken by them, they are gone through once more as ordinary rows, which tells the line. So are rows for other tables.

mod embedded;
mod files;
mod folder;
mod input;
mod offer;
mod offered;
mod ordinary;
mod rows;
mod statement;

pub use embedded::Embedded;
pub use input::foreign;
pub use offer::Offer;
pub use offered::{Answer, Offered, READ_MOST, Request};
pub(crate) use offered::{Answers, Line, UNDER_WAY};

use crate::bind::utility::{CopyOption, CopyTarget, CopyValue, Utility};
use crate::bind::{self, Kind};
use crate::ddl::Sorting;
use crate::dump::{FIRST_LINE, LAST_LINE};
use crate::room::Room;
use crate::session::{CopyOptions, Header, Session, read_options};
use crate::splitter::{Piece, Splitter};
use crate::threads::start_thread;
use crate::{Error, Result, SqlState};
use files::Place;
use gannet_io::{Disk, ModeRequest};
use gannet_store::{Unit, Watch, WorkMemory};
use input::Input;
use serde::{Deserialize, Serialize};
use statement::Judged;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bad rows and statements that are listed; the others are counted.
const LISTED: usize = 100;
/// A longer statement is charged, as the line that is taken apart, and as the statement that comes of it; so much at a time, at least.
const LONG_STATEMENT: usize = 1 << 20;
/// Characters that are told of a part of an error, at most: it may quote a value.
const SHOWN: usize = 300;
/// The last line of what `pg_dump` writes begins so, and its first lines tell that it is it.
const PG_DUMP: (&str, &str) = ("-- PostgreSQL database dump", "-- PostgreSQL database dump complete");

/// How it is loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that make rows of text.
    pub jobs: usize,
    /// Bad rows and statements are left out; else they end the load.
    pub skip: bool,
    /// How files are opened.
    pub mode: ModeRequest,
    /// Nobody else uses the engine: half of its budget is there to sort entries of indexes.
    pub alone: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { jobs: 1, skip: false, mode: ModeRequest::Auto, alone: true }
    }
}

/// What is loaded.
pub enum Origin {
    /// A file of SQL.
    File(PathBuf),
    /// A folder of csv.
    Folder(PathBuf),
    /// SQL that can be read once, and how messages call it. Where a read gives [`WouldBlock`](std::io::ErrorKind::WouldBlock), nothing has come
    /// for a while: it is read again, unless the load has failed meanwhile, which would not be noticed while a read waits.
    Stream(Box<dyn Read + Send>, String),
    /// A file of a client, who calls it so.
    OfClient(Offered, PathBuf),
    /// A folder of a client.
    FolderOfClient(Offered, PathBuf),
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File(path) => f.debug_tuple("File").field(path).finish(),
            Origin::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Origin::Stream(_, name) => f.debug_tuple("Stream").field(name).finish(),
            Origin::OfClient(_, path) => f.debug_tuple("OfClient").field(path).finish(),
            Origin::FolderOfClient(_, path) => f.debug_tuple("FolderOfClient").field(path).finish(),
        }
    }
}

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Tables whose rows were, or some of them.
    pub tables: u64,
    /// Of these, those whose trees were built from the bottom up.
    pub built: u64,
    /// Rows.
    pub rows: u64,
    /// Statements.
    pub statements: u64,
    /// Bytes of input.
    pub bytes: u64,
    /// Rows that were skipped.
    pub bad_rows: u64,
    /// Statements that were.
    pub bad_statements: u64,
    /// What was wrong, by file and line, as far as it is listed.
    pub problems: Vec<String>,
    /// Statements that do not matter here: what they are, and how many.
    pub passed_over: BTreeMap<String, u64>,
}

/// Asked for COPY data: appends some, or gives false where there is none any more.
pub type More<'m> = &'m mut dyn FnMut(&mut Vec<u8>) -> Result<bool>;

/// Where it is loaded to.
pub trait Destination {
    /// Runs a statement.
    fn run(&mut self, sql: &str) -> Result<()>;
    /// Runs a COPY FROM STDIN; gives the rows. The error's context tells the line (`COPY t, line 3`).
    fn copy(&mut self, sql: &str, more: More<'_>) -> Result<u64>;
    /// Whether no transaction is open.
    fn is_idle(&self) -> bool;
    /// The session, where it is one of this process.
    fn session(&mut self) -> Option<&mut Session> {
        None
    }
}

/// A row that cannot be loaded.
#[derive(Debug)]
struct Bad {
    /// Its line, from 1.
    line: u64,
    column: Option<String>,
    /// What is told of it, in its message.
    error: Error,
}

impl Bad {
    fn new(line: u64, column: Option<String>, error: &Error) -> Self {
        Bad { line, column, error: placed(described(error), error) }
    }
}

/// A part of an error, cut where it is long.
fn shown(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// How often it is looked whether a load is to end while one of its statements runs.
const LISTEN_EVERY: Duration = Duration::from_millis(20);

/// Tells a thread that listens, or reads, that nothing is left to do it for, however it came to that.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does the work; once it is to end, what runs is cancelled, again and again, however long it has to go.
///
/// # Errors
/// Those of the work, and 53000 where there is no thread to listen.
pub fn listening<T>(
    is_to_end: &(dyn Fn() -> bool + Sync),
    cancel: &(dyn Fn() + Sync),
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(is_over);
        let listen = move || {
            while !is_over.load(Ordering::Relaxed) {
                if is_to_end() {
                    cancel();
                }
                std::thread::sleep(LISTEN_EVERY);
            }
        };
        start_thread(scope, "gannet-listen", listen).map(drop)?;
        work()
    })
}

/// Loads a dump as a job.
///
/// # Errors
/// What cannot be read, or is cut off; with [`Options::skip`] off, the first statement or row that cannot be loaded; what `watch` fails with.
pub fn load(
    origin: Origin,
    disk: &Arc<dyn Disk>,
    destination: &mut dyn Destination,
    options: &Options,
    watch: &mut Watch<'_>,
) -> Result<Outcome> {
    let room = destination.session().map(|session| Room::new(&session.state().engine));
    let mut loader = Loader {
        destination,
        room,
        options,
        watch,
        outcome: Outcome::default(),
        early: HashMap::new(),
        created: HashSet::new(),
        done: HashSet::new(),
        before: 0,
        connected: None,
    };
    let here = || Place::Disk(Arc::clone(disk), options.mode);
    let (place, path, is_folder) = match origin {
        Origin::Stream(stream, name) => {
            loader.watch.job().phase("loads", Unit::Bytes, 0);
            loader.script(Input::stream(&name, stream))?;
            return loader.end();
        }
        Origin::File(path) => (here(), path, false),
        Origin::Folder(path) => (here(), path, true),
        Origin::OfClient(client, path) => (Place::Client(client), path, false),
        Origin::FolderOfClient(client, path) => (Place::Client(client), path, true),
    };
    if is_folder {
        loader.folder(&place, &path)?;
    } else {
        let input = Input::open(&place, &path)?;
        loader.watch.job().phase("loads", Unit::Bytes, input.len().unwrap_or(0));
        loader.script(input)?;
    }
    loader.end()
}

struct Loader<'l, 'w> {
    destination: &'l mut dyn Destination,
    /// Memory for what is long, where rows are made by this process.
    room: Option<Arc<Room>>,
    options: &'l Options,
    watch: &'l mut Watch<'w>,
    outcome: Outcome,
    /// Statements that make primary keys and indexes, by their tables, to be run before the rows of these.
    early: HashMap<String, Vec<String>>,
    /// Tables that statements have made, as they are written there.
    created: HashSet<String>,
    /// Statements that were run early, and whose turn has not come yet.
    done: HashSet<String>,
    /// Bytes of the files before this one.
    before: u64,
    /// What the script has connected to, as it is written there.
    connected: Option<String>,
}

/// The data of a COPY, and where it goes.
struct CopyData<'c> {
    /// The statement.
    sql: String,
    table: String,
    columns: Vec<String>,
    options: CopyOptions,
    in_script: bool,
    /// The line of the statement.
    line: u64,
    file: &'c str,
}

impl Loader<'_, '_> {
    /// Everything was loaded.
    fn end(self) -> Result<Outcome> {
        if !self.destination.is_idle() {
            // What it fails with changes nothing: the session ends, and with it the transaction.
            let _ = self.destination.run("ROLLBACK");
            let message = "a transaction is open at the end: what was done in it is rolled back";
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        if let Some(session) = self.destination.session() {
            // With `synchronous_commit` off, commits have not waited for it.
            session.state().database().store().make_durable()?;
        }
        // What was at work is none of a job that is done.
        self.watch.job().note("");
        Ok(self.outcome)
    }

    // ---- what is wrong ----------------------------------------------------------------------------------------------

    fn list(&mut self, problem: String) {
        if self.outcome.problems.len() < LISTED {
            self.outcome.problems.push(problem);
        }
    }

    /// A statement has failed.
    fn statement_failed(&mut self, input: &Input, line: u64, error: Error) -> Result<()> {
        let error = placed(input.at_line(line, &described(&error)), &error);
        if is_the_end(&error) || !self.options.skip {
            return Err(error);
        }
        self.outcome.bad_statements += 1;
        self.list(error.to_string());
        Ok(())
    }

    /// A row is bad.
    fn row_failed(&mut self, file: &str, bad: Bad) -> Result<()> {
        let error = row_error(file, &bad);
        if !is_of_row(&error) || !self.options.skip {
            return Err(error);
        }
        self.outcome.bad_rows += 1;
        self.list(error.to_string());
        Ok(())
    }

    // ---- scripts ----------------------------------------------------------------------------------------------------

    /// Loads a script.
    fn script(&mut self, mut input: Input) -> Result<()> {
        if let Some(end) = input.end_of_file()? {
            self.find_keys(&end);
        }
        input.charge_to(self.room.as_ref());
        let is_file = input.len().is_some();
        let mut last_line = None;
        let mut splitter = Splitter::default();
        let (mut start, mut is_empty, mut memory) = (1, true, None);
        loop {
            let is_between = splitter.statement().trim().is_empty() && splitter.missing().is_none();
            if is_between {
                (start, memory) = (input.line() + 1, None);
            }
            let Some(line) = input.next_line()? else { break };
            // Within a statement it is text like any other.
            let begins = last_line_of(line).filter(|_| is_between);
            last_line = last_line.or(begins);
            if last_line.is_some_and(|expected| is_between && line.starts_with(expected)) {
                last_line = None;
            }
            if let Err(error) = self.hold(&mut memory, splitter.statement().len() + line.len()) {
                return Err(placed(input.at_line(start, &described(&error)), &error));
            }
            splitter.feed(line);
            // So that nothing is loaded of most of those that are cut off. Whether it is complete shows at its end.
            if let Some(expected) = begins.filter(|_| is_file)
                && !input.has_line_ahead(expected)?
            {
                return Err(cut_off(&input));
            }
            while let Some(piece) = splitter.next_piece() {
                self.piece(piece, start, &mut input)?;
                (start, is_empty) = (input.line(), false);
            }
            if let Some(message) = splitter.too_long() {
                return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, input.at_line(start, &message)));
            }
            self.watch.job().set_done(self.before + input.taken());
            self.watch.look()?;
        }
        if let Some(missing) = splitter.missing() {
            let message = input.at_line(start, missing);
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
        if last_line.is_some() {
            return Err(cut_off(&input));
        }
        if is_empty {
            // Who writes a dump, and is killed before its first line, leaves nothing in it that says so.
            let message =
                format!("{} has no statement: it is empty, or cut off at its beginning", input.name());
            return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        }
        self.before += input.taken();
        self.outcome.bytes = self.before;
        Ok(())
    }

    /// Charges what so many bytes of a statement take, where they are many.
    fn hold(&self, memory: &mut Option<WorkMemory>, bytes: usize) -> Result<()> {
        let Some(room) = self.room.as_ref().filter(|_| bytes > LONG_STATEMENT) else { return Ok(()) };
        let (wanted, held) = (2 * bytes as u64, memory.as_ref().map_or(0, WorkMemory::bytes));
        if wanted > held {
            room.grow(memory, (wanted - held).max(LONG_STATEMENT as u64))?;
        }
        Ok(())
    }

    /// Looks for what is better made before the rows of its table.
    fn find_keys(&mut self, script: &str) {
        // Rows that come one by one are quicker without indexes.
        let builds = self.destination.session().is_some();
        let mut changes = false;
        let mut splitter = Splitter::default();
        for line in script.split_inclusive('\n') {
            splitter.feed(line);
            while let Some(piece) = splitter.next_piece() {
                let Piece::Statement(text) = piece else { continue };
                changes |= statement::changes_rows(&text);
                if changes {
                    // What stands behind it may hold of rows only as it leaves them.
                    continue;
                }
                let key = statement::primary_key_of(&text);
                let is_key = key.is_some();
                let index = || statement::index_of(&text).filter(|_| builds);
                if let Some(table) = key.or_else(index) {
                    let early = self.early.entry(table.into_owned()).or_default();
                    // The key first: an index has it in its entries.
                    let place = if is_key { 0 } else { early.len() };
                    // As it is run when its turn comes.
                    match statement::judge(&text) {
                        Judged::Run => early.insert(place, text.trim().to_owned()),
                        Judged::Instead(text, _) => early.insert(place, text.trim().to_owned()),
                        _ => {}
                    }
                }
            }
        }
        if splitter.missing().is_some() {
            // It began within a string: what looked like statements may be text.
            self.early.clear();
        }
    }

    /// Makes what is better made before the rows of a table, if it was made here, and has no rows yet.
    fn run_early(&mut self, copy: &str) -> Result<()> {
        let table = statement::words(copy).nth(1).filter(|table| self.created.contains(&**table));
        let Some(table) = table else { return Ok(()) };
        for statement in self.early.remove(&*table).into_iter().flatten() {
            self.watch.look()?;
            // Where it cannot be made it is run again when its turn comes, and says so.
            if self.destination.run(&statement).is_ok() {
                self.outcome.statements += 1;
                self.done.insert(statement);
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece, line: u64, input: &mut Input) -> Result<()> {
        let text = match piece {
            Piece::Statement(text) => text,
            Piece::Meta(command) => return self.shell_command(&command, line, input),
        };
        match statement::judge(&text) {
            Judged::Nothing => Ok(()),
            Judged::PassedOver(kind) => {
                self.pass_over(kind);
                Ok(())
            }
            Judged::Copy => self.copy(text, line, input),
            Judged::Instead(text, told) => {
                told.split(statement::AND).for_each(|what| self.pass_over(what));
                self.run(&text, line, input)
            }
            Judged::Refused(kind) => {
                let message = format!("{kind} cannot be loaded");
                let detail = "A load commits each statement by itself: what stands before it is done";
                let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(detail);
                self.statement_failed(
                    input,
                    line,
                    error.hint("`gannet sql` runs scripts with their transactions"),
                )
            }
            Judged::Run => self.run(&text, line, input),
        }
    }

    fn pass_over(&mut self, what: &str) {
        *self.outcome.passed_over.entry(what.to_owned()).or_default() += 1;
    }

    /// A command of `psql`'s, of those that `pg_dump` writes: what is connected to is where it is loaded to, as long as it stays the same, and
    /// SET tells the encoding once more.
    fn shell_command(&mut self, command: &str, line: u64, input: &Input) -> Result<()> {
        let (name, arguments) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let what = match name {
            "restrict" | "unrestrict" => "\\restrict",
            "encoding" => "\\encoding",
            "connect" | "c" => "\\connect",
            _ => {
                let error = Error::new(SqlState::SYNTAX_ERROR, format!("\\{name} is a command of the shell"));
                return self.statement_failed(input, line, error);
            }
        };
        if what == "\\connect"
            && *self.connected.get_or_insert_with(|| arguments.trim().to_owned()) != arguments.trim()
        {
            let message = format!("\\connect {}: the script goes on in another database", arguments.trim());
            let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, message);
            let hint = "Load each database by a dump of its own (pg_dump, not pg_dumpall)";
            return self.statement_failed(input, line, error.hint(hint));
        }
        self.pass_over(what);
        Ok(())
    }

    fn run(&mut self, text: &str, line: u64, input: &Input) -> Result<()> {
        if text.len() < 1 << 10 {
            self.watch.job().note(statement::shown(text));
            self.watch.look()?;
        }
        let was_early = self.done.remove(text.trim());
        match self.destination.run(text) {
            Ok(()) => self.outcome.statements += 1,
            // It was counted then. (What was made anew since, without it, has it now.)
            Err(error) if was_early && is_there(&error) => {}
            Err(error) if is_unknown_setting(text, &error) => {
                self.pass_over("SET of a setting that is not here");
            }
            Err(error) => {
                self.watch.look()?;
                return self.statement_failed(input, line, error);
            }
        }
        if let Some(table) = statement::created_table(text) {
            self.created.insert(table.into_owned());
        }
        Ok(())
    }

    // ---- rows -------------------------------------------------------------------------------------------------------

    /// COPY of a script, whose data follows.
    fn copy(&mut self, sql: String, line: u64, input: &mut Input) -> Result<()> {
        let parsed = bind::parse(&sql).and_then(|mut parsed| {
            let parsed = parsed.pop().ok_or_else(|| Error::internal("a statement vanished"))?;
            let Kind::Utility(utility) = parsed.kind else { return Err(Error::internal("no COPY")) };
            let Utility::Copy(copy) = *utility else { return Err(Error::internal("no COPY")) };
            let CopyTarget::Table(relation, columns) = copy.target else {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "a query cannot be copied into"));
            };
            if let Some(schema) = relation.schema.filter(|schema| schema != "public") {
                let message = format!("relation \"{schema}.{}\" does not exist", relation.name);
                return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
            }
            let copied = match columns.as_slice() {
                [] => self.all_columns(&relation.name, &copy.options),
                columns => columns.to_owned(),
            };
            let options = read_options(&copy.options, &copied, true)?;
            Ok((relation.name, columns, options))
        });
        let (table, columns, options) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                self.statement_failed(input, line, error)?;
                return input.pass_over_data(&CopyOptions::new(false), true);
            }
        };
        let file = input.name().to_owned();
        self.rows(&CopyData { sql, table, columns, options, in_script: true, line, file: &file }, input)
            .map(drop)
    }

    /// The columns of a COPY that names none: those of the table; where nobody here knows it, those that its options name, for whoever runs it
    /// to say whether they are there.
    fn all_columns(&mut self, table: &str, options: &[CopyOption]) -> Vec<String> {
        let catalog = self.destination.session().map(|session| session.state().database().catalog());
        if let Some(table) = catalog.as_ref().and_then(|catalog| catalog.table(table)) {
            return table.columns.iter().map(|column| column.name.clone()).collect();
        }
        let of = |option: &CopyOption| match &option.value {
            CopyValue::Columns(names) => names.clone(),
            _ => Vec::new(),
        };
        options.iter().flat_map(of).collect()
    }

    /// Loads the data; gives the rows that were there, bad ones included. `None`: they were passed over, as there is no place for any of them.
    fn rows(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<Option<u64>> {
        self.run_early(&data.sql)?;
        self.watch.job().note(&data.table);
        let before = (self.outcome.rows, self.outcome.bad_rows, self.outcome.problems.len());
        let mark = input.mark();
        // Which rows break a key is found by reading them once more. What comes through a pipe is put row by row where these are to be skipped.
        let builds = mark.is_some() || !self.options.skip;
        if builds && data.options.header == Header::No && self.destination.session().is_some() {
            match self.build(data, input) {
                Ok(true) => return Ok(Some(self.outcome.rows - before.0 + self.outcome.bad_rows - before.1)),
                Ok(false) => {}
                // Which row it is, and which are to be skipped, the ordinary way tells.
                Err(error) if is_violation(&error) && mark.is_some() => {}
                Err(error) => return Err(error),
            }
            (self.outcome.rows, self.outcome.bad_rows) = (before.0, before.1);
            self.outcome.problems.truncate(before.2);
            if let Some(mark) = mark {
                input.go_back(mark)?;
            }
        }
        let were_read = self.ordinary(data, input)?;
        Ok(were_read.then(|| self.outcome.rows - before.0 + self.outcome.bad_rows - before.1))
    }

    /// Fills an empty table; false where it is none, or its rows are no matter of this way: then no data was taken.
    fn build(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<bool> {
        let mut built = 0;
        let (mut bad_rows, mut problems) = (0, Vec::new());
        let most_problems = LISTED.saturating_sub(self.outcome.problems.len());
        let (options, before) = (self.options, self.before);
        let watch = &mut *self.watch;
        let Some(session) = self.destination.session() else { return Ok(false) };
        let Some(table) = session.state().database().catalog().table(&data.table).cloned() else {
            return Ok(false);
        };
        if places(&table, &data.columns).is_none() {
            return Ok(false);
        }
        let engine = session.state().engine.clone();
        let is_indexed = table.indexes.iter().any(|index| !index.primary);
        let share = rows::Share::take(&engine, options.jobs, is_indexed)?;
        let sorting = Sorting { behind: share.sorted_behind, alone: options.alone };
        let mut share = Some(share);
        let filled = session.fill_table(&data.table, sorting, |table, style, take| {
            let changed = || Error::new(SqlState::OBJECT_IN_USE, "the table has changed meanwhile");
            let places = places(table, &data.columns).ok_or_else(changed)?;
            let of = rows::Data {
                options: &data.options,
                places: &places,
                in_script: data.in_script,
                skip: options.skip,
                before,
                paced: !options.alone,
            };
            let mut bad = |bad: Bad| {
                let error = row_error(data.file, &bad);
                if !options.skip {
                    return Err(Error::new(BAD_ROW, error.to_string()));
                }
                if !is_of_row(&error) {
                    return Err(error);
                }
                // All rows may be bad: more than what is listed is not kept.
                bad_rows += 1;
                if problems.len() < most_problems {
                    problems.push(error.to_string());
                }
                Ok(())
            };
            let share = share.take().ok_or_else(|| Error::internal("a table is filled twice"))?;
            built = rows::feed(input, &of, table, style, (&engine, share), (take, &mut bad), watch)?;
            Ok(())
        });
        if !filled.map_err(|error| explained(data, error))? {
            return Ok(false);
        }
        self.outcome.bad_rows += bad_rows;
        self.outcome.problems.append(&mut problems);
        self.outcome.rows += built;
        self.outcome.tables += 1;
        self.outcome.built += 1;
        Ok(true)
    }
}

/// Why the rows of a table were not loaded, with the place of their statement where nothing else was told.
fn explained(data: &CopyData<'_>, error: Error) -> Error {
    let is_memory = error.state() == SqlState::OUT_OF_MEMORY;
    let has_place = error.state() == BAD_ROW || error.to_string().starts_with(data.file);
    if has_place || (is_the_end(&error) && !is_memory) {
        return error;
    }
    let error = match is_memory {
        true => error.hint("a row's text takes four times its length: give more with --memory"),
        false => error,
    };
    placed(format!("{}:{}: table {}: {}", data.file, data.line, data.table, described(&error)), &error)
}

/// The state of an error that names its row already.
const BAD_ROW: SqlState = SqlState("22P04");

/// Where the fields go, by position in the table, if all columns are there.
fn places(table: &crate::catalog::Table, columns: &[String]) -> Option<Vec<usize>> {
    if columns.is_empty() {
        return Some((0..table.columns.len()).collect());
    }
    let places: Vec<usize> = columns.iter().map(|name| table.find_column(name)).collect::<Option<_>>()?;
    let each: HashSet<usize> = places.iter().copied().collect();
    (each.len() == places.len() && places.len() == table.columns.len()).then_some(places)
}

/// The last line that a dump has, if this is a line that only a dump begins with.
fn last_line_of(line: &str) -> Option<&'static str> {
    match line.trim_end() {
        FIRST_LINE => Some(LAST_LINE),
        line if line == PG_DUMP.0 => Some(PG_DUMP.1),
        _ => None,
    }
}

fn cut_off(input: &Input) -> Error {
    let message =
        format!("{} is cut off: the line that says that the dump is complete is missing", input.name());
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

/// What an error says, on one line, which is not long.
fn described(error: &Error) -> String {
    let fields = error.fields();
    let mut text = shown(&fields.message).into_owned();
    for more in [&fields.detail, &fields.hint].into_iter().flatten() {
        text.push_str(". ");
        text.push_str(&shown(more.trim_end_matches('.')));
    }
    text
}

/// The error of a bad row, with its place.
fn row_error(file: &str, bad: &Bad) -> Error {
    let column = bad.column.as_ref().map_or_else(String::new, |column| format!("column {column}: "));
    placed(format!("{file}:{}: {column}{}", bad.line, bad.error), &bad.error)
}

/// The error with other words.
fn placed(text: String, error: &Error) -> Error {
    Error::new(error.state(), text)
}

/// A rule of the table is broken, or cannot be worked out for some row, or it has something that only the ordinary way can say more about. (The
/// text of a row that is bad has its place already.)
fn is_violation(error: &Error) -> bool {
    let state = error.state();
    ["22", "23"].iter().any(|class| state.0.starts_with(class)) && state != BAD_ROW
        || state == SqlState::PROGRAM_LIMIT_EXCEEDED
}

/// Not a matter of what is loaded: it cannot go on. A limit to transactions ends their session, too.
fn is_the_end(error: &Error) -> bool {
    let ends = [SqlState::TRANSACTION_TIMEOUT, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT];
    let state = error.state();
    ends.contains(&state) || ["53", "57", "58", "XX", "08"].iter().any(|class| state.0.starts_with(class))
}

/// A matter of the row: what its text says, or what the table's rules say of it.
fn is_of_row(error: &Error) -> bool {
    let state = error.state().0;
    ["0A", "22", "23", "54"].iter().any(|class| state.starts_with(class))
}

/// What is to be made is there already.
fn is_there(error: &Error) -> bool {
    let there = [SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT, SqlState::INVALID_TABLE_DEFINITION];
    there.contains(&error.state())
}

fn is_unknown_setting(text: &str, error: &Error) -> bool {
    error.state() == SqlState::UNDEFINED_OBJECT
        && statement::words(text).next().is_some_and(|word| word == "SET")
}
