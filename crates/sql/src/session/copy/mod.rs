//! COPY between a client and a table.
//!
//! COPY FROM runs as an INSERT whose rows come from a channel: the session's thread reads the client and makes values of text,
//! another one inserts. So the two halves of the work overlap, and constraints, defaults and foreign keys are those of any INSERT.

mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod out;

use super::client::{Client, CommandTag, CopyFormat};
use super::{Interrupt, Notice, Prepared, Session};
use crate::bind::utility::{Copy, CopyOption, CopyRelation, CopyTarget, CopyValue};
use crate::bind::{self, Parsed};
use crate::catalog::{Catalog, Table};
use crate::exec::{BATCH_ROWS, Context, RowSource};
use crate::functions::{Call, TableFunction};
use crate::physical::{Expr, Node, Plan, PlanColumn};
use crate::threads::start_thread;
use crate::types::text::{self, TextStyle};
use crate::types::{Modifier, Type, Value, cast};
use crate::{Error, Result, SqlState};
pub(crate) use format::{CopyOptions, Fields, Header, Reader};
use gannet_base::clock;
use gannet_base::memory::Purpose;
use gannet_store::{Engine, WorkMemory};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Batches of rows on their way between the two threads.
const BATCHES: usize = 4;
/// Longest piece of data in an error, in characters.
const SHOWN_DATA: usize = 100;
/// Bytes of a batch, at most (and one row).
const BATCH_BYTES: usize = 256 << 10;
/// How often it is looked whether batches under way have given back memory.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Runs a COPY statement.
pub(super) fn run(session: &mut Session, copy: &Copy, client: &mut dyn Client) -> Result<CommandTag> {
    if copy.file.is_some() {
        return Err(Error::unsupported("COPY of a file on the server")
            .hint("Use COPY ... FROM STDIN or TO STDOUT; the shell's \\copy reads and writes files."));
    }
    session.ensure_transaction()?;
    let rows = match (&copy.target, copy.from) {
        (CopyTarget::Table(relation, columns), true) => {
            copy_in(session, relation, columns, &copy.options, client)?
        }
        (CopyTarget::Query(_), true) => {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "a query cannot be copied into"));
        }
        (CopyTarget::Table(relation, columns), false) => {
            let shared = Arc::clone(&session.database.0);
            let open = session.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
            let table = find_table(&open.catalog(&shared), relation)?;
            let names = if columns.is_empty() {
                table.columns.iter().map(|column| quoted(&column.name)).collect()
            } else {
                columns.iter().map(|name| quoted(name)).collect::<Vec<_>>()
            };
            let sql = format!("select {} from public.{}", names.join(", "), quoted(&table.name));
            out::copy_out(session, &parse_one(&sql)?, &copy.options, client)?
        }
        (CopyTarget::Query(query), false) => out::copy_out(session, query, &copy.options, client)?,
    };
    Ok(CommandTag { command: "COPY", rows: Some(rows) })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn parse_one(sql: &str) -> Result<Parsed> {
    bind::parse(sql)?.pop().ok_or_else(|| Error::internal("a statement vanished"))
}

fn find_table(catalog: &Catalog, relation: &CopyRelation) -> Result<Arc<Table>> {
    let found = match relation.schema.as_deref() {
        None | Some("public") => catalog.table(&relation.name).cloned(),
        Some(_) => None,
    };
    found.ok_or_else(|| {
        let schema = relation.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
        Error::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{schema}{}\" does not exist", relation.name),
        )
        .at(relation.position)
    })
}

// ---- options --------------------------------------------------------------------------------------------------------

fn option_error(option: &CopyOption, message: impl Into<String>) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message.into()).at(option.position)
}

/// Judges the options, for columns of these names.
pub(crate) fn read_options(options: &[CopyOption], columns: &[String], from: bool) -> Result<CopyOptions> {
    let format = options.iter().find(|option| option.name == "format");
    let csv = match format.map(|option| (option, &option.value)) {
        None => false,
        Some((option, CopyValue::Text(name))) => match name.to_ascii_lowercase().as_str() {
            "text" => false,
            "csv" => true,
            "binary" => return Err(Error::unsupported("COPY in format binary")),
            _ => {
                let message = format!("COPY format \"{name}\" not recognized");
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).at(option.position));
            }
        },
        Some((option, _)) => return Err(option_error(option, "format requires a parameter")),
    };
    let mut result = CopyOptions::new(csv);
    let mut escape = None;
    for (index, option) in options.iter().enumerate() {
        if options[..index].iter().any(|earlier| earlier.name == option.name) {
            return Err(option_error(option, "conflicting or redundant options"));
        }
        match option.name.as_str() {
            "format" => {}
            "freeze" => result.freeze = boolean(option)?,
            "delimiter" => result.delimiter = single(option, "delimiter")?,
            "null" => {
                result.null = required(option)?.to_owned();
                if result.null.contains(['\r', '\n']) {
                    return Err(Error::new(
                        SqlState::INVALID_PARAMETER_VALUE,
                        "COPY null representation cannot use newline or carriage return",
                    ));
                }
            }
            "header" => {
                result.header = header(option, from)?;
            }
            "quote" if csv => result.quote = single(option, "quote")?,
            "escape" if csv => escape = Some(single(option, "escape")?),
            "force_quote" if csv && !from => result.force_quote = columns_of(option, columns)?,
            "force_not_null" if csv && from => result.force_not_null = columns_of(option, columns)?,
            "force_null" if csv && from => result.force_null = columns_of(option, columns)?,
            "encoding" => {
                let name = required(option)?;
                if !matches!(name.to_ascii_lowercase().replace('-', "").as_str(), "utf8" | "unicode") {
                    return Err(Error::unsupported(format!("COPY in encoding {name}")));
                }
            }
            name @ ("quote" | "escape" | "force_quote" | "force_not_null" | "force_null") => {
                let name = name.replace('_', " ");
                let why = match (csv, from) {
                    (false, _) => "available only in CSV mode",
                    (true, true) => "only available using COPY TO",
                    (true, false) => "only available using COPY FROM",
                };
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("COPY {name} {why}")));
            }
            other => return Err(option_error(option, format!("option \"{other}\" not recognized"))),
        }
    }
    result.escape = escape.unwrap_or(result.quote);
    check_options(&result)?;
    Ok(result)
}

fn check_options(options: &CopyOptions) -> Result<()> {
    let bad = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let unsupported = |message: &'static str| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    if matches!(options.delimiter, b'\r' | b'\n') {
        return bad("COPY delimiter cannot be newline or carriage return".to_owned());
    }
    if !options.csv && b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&options.delimiter) {
        return bad(format!("COPY delimiter cannot be \"{}\"", char::from(options.delimiter)));
    }
    if options.csv && options.delimiter == options.quote {
        return bad("COPY delimiter and quote must be different".to_owned());
    }
    if options.null.as_bytes().contains(&options.delimiter) {
        return unsupported("COPY delimiter must not appear in the NULL specification");
    }
    if options.csv && options.null.as_bytes().contains(&options.quote) {
        return unsupported("CSV quote character must not appear in the NULL specification");
    }
    Ok(())
}

/// Clients ask for it (`pgbench -i`), so that it is no error.
fn tell_of_freeze(session: &Session, options: &CopyOptions) {
    if options.freeze {
        session.state.notice(Notice {
            severity: "NOTICE",
            error: Error::new(
                SqlState::SUCCESSFUL_COMPLETION,
                "FREEZE has no effect: rows are seen from their commit on",
            ),
        });
    }
}

fn required(option: &CopyOption) -> Result<&str> {
    match &option.value {
        CopyValue::Text(text) => Ok(text),
        _ => Err(option_error(option, format!("{} requires a parameter", option.name))),
    }
}

fn single(option: &CopyOption, what: &str) -> Result<u8> {
    match required(option)?.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

fn boolean(option: &CopyOption) -> Result<bool> {
    match &option.value {
        CopyValue::None => Ok(true),
        CopyValue::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(option_error(option, format!("{} requires a Boolean value", option.name))),
        },
        _ => Err(option_error(option, format!("{} requires a Boolean value", option.name))),
    }
}

fn header(option: &CopyOption, from: bool) -> Result<Header> {
    match &option.value {
        CopyValue::Text(word) if word.eq_ignore_ascii_case("match") => {
            if from {
                return Ok(Header::Match);
            }
            let message = format!("cannot use \"{word}\" with HEADER in COPY TO");
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(option.position))
        }
        _ => match boolean(option) {
            Ok(true) => Ok(Header::Yes),
            Ok(false) => Ok(Header::No),
            Err(_) => Err(option_error(option, "header requires a Boolean value or \"match\"")),
        },
    }
}

fn columns_of(option: &CopyOption, columns: &[String]) -> Result<Vec<bool>> {
    match &option.value {
        CopyValue::All if option.name == "force_quote" => Ok(vec![true; columns.len()]),
        CopyValue::Columns(names) => {
            if let Some(unknown) = names.iter().find(|name| !columns.contains(name)) {
                return Err(Error::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("{} column \"{unknown}\" not referenced by COPY", option.name.to_uppercase()),
                ));
            }
            Ok(columns.iter().map(|column| names.contains(column)).collect())
        }
        _ => {
            let message = format!("argument to option \"{}\" must be a list of column names", option.name);
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).at(option.position))
        }
    }
}

// ---- COPY FROM ------------------------------------------------------------------------------------------------------

/// Rows, or why there are no more.
pub(super) type Batch = Result<Taken>;

/// Rows, and what they are charged as where they are long.
#[derive(Debug, Default)]
pub(super) struct Taken {
    rows: std::vec::IntoIter<Vec<Value>>,
    _charge: Charge,
    /// One of those under way.
    _under_way: Option<Arc<()>>,
}

/// Where the rows of a COPY FROM come from, within its INSERT.
static SOURCE: TableFunction = TableFunction {
    oid: 0,
    name: "copy source",
    arguments: &[],
    optional: 0,
    columns: &[],
    estimate: |_| 1000.0,
    open: |call: &Call<'_, '_>, _| match call.context.session.take_copy_source() {
        Some(batches) => Ok(Box::new(Source { batches, batch: Taken::default() })),
        None => Err(Error::internal("there is no COPY under way")),
    },
};

#[derive(Debug)]
struct Source {
    batches: Receiver<Batch>,
    batch: Taken,
}

impl RowSource for Source {
    fn next(&mut self, context: &Context<'_>, out: &mut Vec<Value>) -> Result<bool> {
        loop {
            if let Some(row) = self.batch.rows.next() {
                out.extend(row);
                return Ok(true);
            }
            context.check()?;
            // Whoever makes the next one may wait for its memory.
            self.batch = Taken::default();
            // For the client: nobody else is to wait for that.
            context.session.turn.set_idle(true);
            let batch = self.batches.recv();
            context.session.turn.set_idle(false);
            match batch {
                Ok(batch) => self.batch = batch?,
                // The other side has sent everything.
                Err(_) => return Ok(false),
            }
        }
    }
}

/// A column that data goes to.
struct Target {
    name: String,
    ty: Type,
    modifier: Modifier,
    /// Its values may take many times the bytes of their text.
    outgrows: bool,
}

fn copy_in(
    session: &mut Session,
    relation: &CopyRelation,
    columns: &[String],
    options: &[CopyOption],
    client: &mut dyn Client,
) -> Result<u64> {
    let ((table, targets, options), mut running) = session.start_made(|session, catalog| {
        let table = find_table(catalog, relation)?;
        let targets = targets(&table, columns)?;
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        let options = read_options(options, &names, true)?;
        let insert = plan_insert(session, &table, &targets)?;
        Ok(((table, targets, options), insert))
    })?;
    tell_of_freeze(session, &options);
    client.copy_in(&CopyFormat { columns: targets.len() })?;
    let (sender, receiver) = sync_channel(BATCHES);
    session.state.give_copy_source(receiver);
    let style = session.state.style.clone();
    let mut reading = Reading {
        reader: Reader::new(options.clone()),
        table: &table.name,
        targets: &targets,
        style: &style,
        header: options.header,
        null: &options.null,
        fields: Fields::default(),
        lines: VecDeque::new(),
        rows: 0,
        under_way: Arc::new(()),
    };
    let engine = session.state.engine.clone();
    let mut memory = LineMemory::new(engine, session.interrupt.clone());
    let is_over = Arc::clone(&memory.is_over);
    let done = std::thread::scope(|scope| {
        let (session, running) = (&mut *session, &mut running);
        let insert = move || {
            let inserted = catch_unwind(AssertUnwindSafe(|| session.exhaust(running)));
            // Where it has ended before it took anything, or all of it, whoever reads is to notice.
            drop(session.state.take_copy_source());
            is_over.store(true, Ordering::Relaxed);
            inserted.unwrap_or_else(|_| Err(Error::internal("the thread that inserts has ended by itself")))
        };
        let inserting = start_thread(scope, "gannet-copy", insert)?;
        let read = reading.run(sender, client, &mut memory);
        let panicked = |_| Err(Error::internal("the thread that inserts has ended by itself"));
        Ok((inserting.join().unwrap_or_else(panicked), read))
    });
    let (inserted, read) = match done {
        Ok(done) => done,
        Err(error) => {
            drop(session.state.take_copy_source());
            return Err(error);
        }
    };
    let rows = running.tag().rows.unwrap_or(0);
    // What the reader found was told to the inserting side, which has failed by it; its own words are the better ones.
    read?;
    inserted.map_err(|error| {
        // What is looked at when all rows are there is about one before, or about none.
        let line = reading.line_of(error.fields().row.unwrap_or(rows));
        match (&error.fields().context, line) {
            (None, Some(line)) => error.context(format!("COPY {}, line {line}", table.name)),
            _ => error,
        }
    })?;
    Ok(rows)
}

fn targets(table: &Table, columns: &[String]) -> Result<Vec<Target>> {
    let target = |column: &crate::catalog::Column| Target {
        name: column.name.clone(),
        ty: column.ty,
        modifier: column.modifier,
        outgrows: cast::outgrows_text(column.ty, column.modifier),
    };
    if columns.is_empty() {
        return Ok(table.columns.iter().map(target).collect());
    }
    let mut targets: Vec<Target> = Vec::new();
    for name in columns {
        if targets.iter().any(|target| target.name == *name) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        let position = table.find_column(name).ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" of relation \"{}\" does not exist", table.name),
            )
        })?;
        targets.push(target(&table.columns[position]));
    }
    Ok(targets)
}

/// Plans an INSERT of one row of parameters whose row is replaced by those of the COPY.
fn plan_insert(session: &mut Session, table: &Table, targets: &[Target]) -> Result<Prepared> {
    let names: Vec<String> = targets.iter().map(|target| quoted(&target.name)).collect();
    let values: Vec<String> = (1..=targets.len()).map(|number| format!("${number}")).collect();
    let into = format!("insert into public.{}", quoted(&table.name));
    let sql = if targets.is_empty() {
        format!("{into} default values")
    } else {
        format!("{into} ({}) values ({})", names.join(", "), values.join(", "))
    };
    let types: Vec<Type> = targets.iter().map(|target| target.ty).collect();
    let prepared = session.plan(&Arc::new(parse_one(&sql)?), &types)?;
    let mut copy = Prepared {
        parsed: prepared.parsed.clone(),
        parameters: prepared.parameters.clone(),
        columns: prepared.columns.clone(),
        plan: prepared.plan.clone(),
    };
    let planned = copy.plan.as_mut().ok_or_else(|| Error::internal("no plan"))?;
    let mut statement = (*planned.statement).clone();
    let columns =
        |target: &Target| PlanColumn { name: target.name.clone(), ty: target.ty, modifier: target.modifier };
    let columns: Vec<PlanColumn> = targets.iter().map(columns).collect();
    if !replace_source(&mut statement.root, &columns) {
        return Err(Error::internal("the plan of COPY's INSERT has another shape"));
    }
    planned.statement = Arc::new(statement);
    Ok(copy)
}

/// Puts the COPY's rows in place of the row of parameters, under what INSERT makes of each of them.
fn replace_source(plan: &mut Plan, columns: &[PlanColumn]) -> bool {
    let source = || Node::FunctionScan {
        function: &SOURCE,
        arguments: Vec::new(),
        types: Vec::new(),
        ordinality: false,
    };
    match &mut plan.node {
        Node::Values(rows) => {
            let [row] = &**rows else { return false };
            let mut exprs = row.clone();
            if !exprs.iter_mut().all(take_from_row) {
                return false;
            }
            let source = Plan { node: source(), columns: columns.to_vec(), ..plan.clone() };
            plan.node = Node::Project { input: Box::new(source), exprs };
            true
        }
        // Of a table without columns.
        Node::One if columns.is_empty() => {
            plan.node = source();
            true
        }
        Node::Insert { input, .. } | Node::Project { input, .. } | Node::Filter { input, .. } => {
            replace_source(input, columns)
        }
        _ => false,
    }
}

/// Makes each parameter a column of the row of the same number. False: there is more than parameters, their conversions
/// and constants.
fn take_from_row(expr: &mut Expr) -> bool {
    match expr {
        Expr::Parameter(number) => {
            *expr = Expr::Column(*number);
            true
        }
        Expr::Cast { argument, .. } => take_from_row(argument),
        Expr::Literal(_) => true,
        _ => false,
    }
}

/// Batches that there are at a time, with one in the hands of each half.
const UNDER_WAY_MOST: usize = BATCHES + 2;
/// More rows than can be read and not yet inserted.
const LINES_MOST: usize = (UNDER_WAY_MOST + 1) * BATCH_ROWS;

/// The half of COPY FROM that reads.
struct Reading<'a> {
    reader: Reader,
    table: &'a str,
    targets: &'a [Target],
    style: &'a TextStyle,
    header: Header,
    null: &'a str,
    fields: Fields,
    /// Rows read.
    rows: u64,
    /// Rows that do not end one line behind the row before, by their numbers from 0, and the lines they end on; the last ones.
    lines: VecDeque<(u64, u64)>,
    /// Each batch on its way to the other half has it, too.
    under_way: Arc<()>,
}

/// What is charged of memory that is only now and then more than some bytes.
#[derive(Debug, Default)]
struct Charge(Option<WorkMemory>);

impl Charge {
    /// Sees to it that so many bytes in all are charged, where they are many.
    fn hold(&mut self, engine: &Engine, bytes: usize) -> gannet_store::Result<()> {
        let held = self.0.as_ref().map_or(0, WorkMemory::bytes);
        if bytes <= BATCH_BYTES || bytes as u64 <= held {
            return Ok(());
        }
        match &mut self.0 {
            Some(memory) => memory.grow(bytes as u64 - held),
            none => engine.memory(Purpose::Work, bytes as u64).map(|memory| *none = Some(memory)),
        }
    }
}

/// What the reader's buffer and the fields are charged as, once there was a long line: they keep their size.
struct LineMemory {
    engine: Engine,
    interrupt: Interrupt,
    charge: Charge,
    /// Bytes of the buffer.
    buffer: usize,
    /// The other half takes no more: nobody is to wait for the client's next data.
    is_over: Arc<AtomicBool>,
    /// Reading has ended by that: what is wrong with the last line is not the client's doing.
    is_cut_off: bool,
    /// The client was asked for data.
    has_asked: bool,
}

impl LineMemory {
    fn new(engine: Engine, interrupt: Interrupt) -> Self {
        let (charge, is_over) = (Charge::default(), Arc::default());
        LineMemory { engine, interrupt, charge, buffer: 0, is_over, is_cut_off: false, has_asked: false }
    }
}

impl Reading<'_> {
    /// Sends all rows. An error is also sent, so that the other half fails.
    fn run(
        &mut self,
        sender: SyncSender<Batch>,
        client: &mut dyn Client,
        memory: &mut LineMemory,
    ) -> Result<()> {
        let result = self.send_all(&sender, client, memory);
        if memory.is_cut_off {
            return Ok(());
        }
        if let Err(error) = &result {
            // Where the other half has failed first, that is what counts.
            let _ = sender.send(Err(error.clone()));
        }
        result
    }

    fn send_all(
        &mut self,
        sender: &SyncSender<Batch>,
        client: &mut dyn Client,
        memory: &mut LineMemory,
    ) -> Result<()> {
        if self.header != Header::No {
            self.read(client, memory)?;
            self.check_header()?;
        }
        loop {
            let mut batch = Vec::with_capacity(BATCH_ROWS);
            let (mut bytes, mut charge) = (0, Charge::default());
            while batch.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                if !self.read(client, memory)? {
                    break;
                }
                bytes += self.bytes_of_row();
                self.charge(&mut charge, bytes, memory).map_err(|error| error.context(self.line()))?;
                batch.push(self.row()?);
                self.note_line();
            }
            if batch.is_empty() {
                return Ok(());
            }
            let _under_way = Some(Arc::clone(&self.under_way));
            if sender.send(Ok(Taken { rows: batch.into_iter(), _charge: charge, _under_way })).is_err() {
                // The other half has failed, and says why. What the client still sends is passed over.
                return Ok(());
            }
        }
    }

    /// Bytes that the values of the fields take, about.
    fn bytes_of_row(&self) -> usize {
        let of = |(index, target): (usize, &Target)| match self.fields.get(index) {
            Ok(Some(field)) if target.outgrows => cast::text_bytes(field, target.ty, target.modifier),
            // What is no text is an error of its own.
            _ => 0,
        };
        let outgrown: usize = self.targets.iter().enumerate().take(self.fields.len()).map(of).sum();
        self.fields.bytes() + self.targets.len() * size_of::<Value>() + outgrown
    }

    /// Charges so many bytes in all to the batch that is made, before they are taken. A row that fits alone does not fail because of those
    /// before it: these are waited for where they leave no memory, or where several such batches would leave none to insert them.
    fn charge(&self, charge: &mut Charge, bytes: usize, memory: &LineMemory) -> Result<()> {
        let is_much = bytes as u64 > memory.engine.budget().limit() / (2 * UNDER_WAY_MOST as u64);
        loop {
            let are_others = Arc::strong_count(&self.under_way) > 1;
            if !(is_much && are_others) {
                match charge.hold(&memory.engine, bytes) {
                    Err(gannet_store::Error::Memory(_)) if are_others => {}
                    charged => return Ok(charged?),
                }
            }
            memory.interrupt.check()?;
            clock::sleep(LOOK_EVERY);
        }
    }

    /// Notes where the row read last ends, unless that is one line behind the row before.
    fn note_line(&mut self) {
        let line = self.reader.line();
        if self.lines.back().is_none_or(|&(row, at)| at + (self.rows - row) != line) {
            if self.lines.len() == LINES_MOST {
                self.lines.pop_front();
            }
            self.lines.push_back((self.rows, line));
        }
        self.rows += 1;
    }

    /// The line that a row ends on, where that is known: of those that may not be inserted yet it is.
    fn line_of(&self, row: u64) -> Option<u64> {
        let before = self.lines.iter().rev().find(|&&(first, _)| first <= row && row < self.rows);
        before.map(|&(first, line)| line + (row - first))
    }

    /// Reads the next line into the fields; false at the end.
    fn read(&mut self, client: &mut dyn Client, memory: &mut LineMemory) -> Result<bool> {
        let there = self
            .reader
            .next(&mut |data| memory.read(data, client), &mut self.fields)
            .and_then(|there| memory.hold(self.fields.bytes()).map(|()| there));
        there.map_err(|error| error.context(self.place()))
    }

    fn check_header(&self) -> Result<()> {
        if self.header != Header::Match {
            return Ok(());
        }
        let bad =
            |message: String| Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message).context(self.place()));
        let (got, expected) = (self.fields.len(), self.targets.len());
        if got != expected {
            return bad(format!("wrong number of fields in header line: got {got}, expected {expected}"));
        }
        for (index, Target { name, .. }) in self.targets.iter().enumerate() {
            let got = match self.fields.get(index).map_err(|error| error.context(self.line()))? {
                Some(field) if field == name => continue,
                Some(field) => format!("\"{field}\""),
                None => format!("null value (\"{}\")", self.null),
            };
            return bad(format!(
                "column name mismatch in header line field {}: got {got}, expected \"{name}\"",
                index + 1
            ));
        }
        Ok(())
    }

    /// Where the reader is, with the text of its line once that was read.
    fn place(&self) -> String {
        match self.reader.text() {
            Some(text) => format!("{}: \"{}\"", self.line(), shown(&text)),
            None => self.line(),
        }
    }

    fn line(&self) -> String {
        format!("COPY {}, line {}", self.table, self.reader.line())
    }

    fn row(&self) -> Result<Vec<Value>> {
        let whole =
            |message: String| Error::new(SqlState::BAD_COPY_FILE_FORMAT, message).context(self.place());
        // An empty line is a row of a table without columns.
        let is_empty = self.targets.is_empty()
            && self.fields.len() == 1
            && matches!(self.fields.get(0), Ok(None | Some("")));
        if self.fields.len() > self.targets.len() && !is_empty {
            return Err(whole("extra data after last expected column".to_owned()));
        }
        let mut row = Vec::with_capacity(self.targets.len());
        for (index, target) in self.targets.iter().enumerate() {
            if index >= self.fields.len() {
                return Err(whole(format!("missing data for column \"{}\"", target.name)));
            }
            let field = self.fields.get(index).map_err(|error| error.context(self.line()))?;
            row.push(match field {
                None => Value::Null,
                Some(field) => {
                    text::read(field, target.ty, target.modifier, self.style).map_err(|error| {
                        error.context(format!(
                            "{}, column {}: \"{}\"",
                            self.line(),
                            target.name,
                            shown(field)
                        ))
                    })?
                }
            });
        }
        Ok(row)
    }
}

impl LineMemory {
    /// Appends the next piece of data to an unfinished line; false at the end.
    fn read(&mut self, data: &mut Vec<u8>, client: &mut dyn Client) -> Result<bool> {
        let len = data.len();
        if len > BATCH_BYTES && data.capacity() - len < len / 4 {
            // What is there will be among the fields, too.
            self.buffer = len + len / 4;
            self.hold(len)?;
            data.reserve_exact(len / 4);
        }
        let there = loop {
            // What the client has sent by now behind its request, as its Sync, belongs to this.
            if std::mem::replace(&mut self.has_asked, true) && self.is_over.load(Ordering::Relaxed) {
                self.is_cut_off = true;
                break false;
            }
            let there = client.copy_read(data);
            // Whatever it says: this is why the statement ends.
            self.interrupt.check()?;
            if !there? {
                break false;
            }
            if data.len() > len {
                break true;
            }
        };
        self.buffer = data.capacity();
        self.hold(0)?;
        Ok(there)
    }

    /// Sees to it that the buffer and fields of so many bytes are charged, where they are many.
    fn hold(&mut self, fields: usize) -> Result<()> {
        Ok(self.charge.hold(&self.engine, self.buffer + fields)?)
    }
}

/// Data in an error, which is to fit on a line or two.
fn shown(data: &str) -> std::borrow::Cow<'_, str> {
    match data.char_indices().nth(SHOWN_DATA) {
        Some((end, _)) => format!("{}...", &data[..end]).into(),
        None => data.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::*;
    use gannet_store::EngineOptions;

    /// Sends this data to columns of these types; gives, for each batch, its rows, the bytes that its values take, and what it is charged as.
    fn batches(columns: &[(Type, Modifier)], data: &str) -> Vec<(usize, usize, u64)> {
        let engine = Engine::new(&EngineOptions { memory: 32 << 20, temp_folder: None }).unwrap();
        let target = |&(ty, modifier): &(Type, Modifier)| Target {
            name: "a".to_owned(),
            ty,
            modifier,
            outgrows: cast::outgrows_text(ty, modifier),
        };
        let targets: Vec<Target> = columns.iter().map(target).collect();
        let style = TextStyle::default();
        let mut reading = Reading {
            reader: Reader::new(CopyOptions::new(false)),
            table: "t",
            targets: &targets,
            style: &style,
            header: Header::No,
            null: "\\N",
            fields: Fields::default(),
            rows: 0,
            lines: VecDeque::new(),
            under_way: Arc::new(()),
        };
        let mut client = Rows::default();
        client.input = data.as_bytes().to_vec();
        let interrupt = Interrupt::default();
        let mut memory = LineMemory::new(engine, interrupt);
        let (sender, receiver) = sync_channel(BATCHES);
        std::thread::scope(|scope| {
            let read = scope.spawn(|| reading.run(sender, &mut client, &mut memory));
            let mut batches = Vec::new();
            for batch in &receiver {
                let Taken { rows, _charge: charge, .. } = &batch.unwrap();
                let heap = |row: &Vec<Value>| row.iter().map(Value::heap_bytes).sum::<usize>();
                let bytes = rows.as_slice().iter().map(heap).sum::<usize>();
                batches.push((rows.len(), bytes, charge.0.as_ref().map_or(0, WorkMemory::bytes)));
            }
            read.join().unwrap().unwrap();
            batches
        })
    }

    #[test]
    fn values_longer_than_their_text_make_short_batches_that_are_charged() {
        // Each row is several MiB: there is no memory for two of them and what is behind.
        let long = batches(&[(Type::Bpchar, 4 + (10 << 20))], &"x\n".repeat(9));
        assert_eq!(long.iter().map(|batch| batch.0).collect::<Vec<_>>(), [1; 9]);
        let ints = format!("{{{}}}\n", ["1"; 20_000].join(","));
        let arrays = batches(&[(Type::Int4Array, -1)], &ints.repeat(30));
        let numbers =
            batches(&[(Type::Numeric, -1); 8], &format!("{}\n", ["1e131071"; 8].join("\t")).repeat(2));
        for (rows, bytes, charged) in long.into_iter().chain(arrays).chain(numbers) {
            let known = (BATCH_BYTES as u64).max(charged);
            assert!(bytes as u64 <= known && rows < BATCH_ROWS, "{rows}: {bytes} of {charged}");
        }
        // Short rows come as many as ever.
        let short = batches(&[(Type::Int4, -1), (Type::Text, -1)], &"1\tone\n".repeat(600));
        assert_eq!(short.iter().map(|batch| batch.0).collect::<Vec<_>>(), [256, 256, 88]);
        assert!(short.iter().all(|batch| batch.2 == 0));
    }
}
