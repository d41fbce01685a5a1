//! Rows of tables on their way: scanned by one thread, made text by some, written by the caller in the order of the scan.

use super::rows::{RowFormat, RowWriter};
use super::script::{Script, TableRows};
use super::writer::Writer;
use super::{Format, Options};
use crate::catalog::{Catalog, Table};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState};
use gannet_io::Class;
use gannet_io::stats::Operation;
use gannet_store::{Database, Engine, Job, Tree, View, Watch, WorkMemory};
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Bytes of rows in a batch, about.
const BATCH_BYTES: usize = 256 << 10;
/// Batches under way for each thread that makes text.
const BATCHES: usize = 3;
/// Bytes that a batch takes, its text included, about.
const BATCH_MEMORY: u64 = 1 << 20;
/// How often the caller looks whether it is to end, while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Rows as they are stored.
#[derive(Debug, Default)]
struct Rows {
    bytes: Vec<u8>,
    /// Lengths of keys and values, one behind the other in `bytes`.
    lengths: Vec<(u32, u32)>,
    /// What a long row is charged as.
    memory: Option<WorkMemory>,
}

/// Rows as text.
#[derive(Debug)]
struct Text {
    text: String,
    rows: u64,
    /// Bytes that the rows were before.
    stored: u64,
    _memory: Option<WorkMemory>,
}

/// What the caller is to do next.
enum Step {
    Begin(usize),
    Rows(Receiver<Result<Text>>),
    End,
    Failed(Error),
}

/// Work for a thread that makes text.
struct Work {
    table: usize,
    rows: Rows,
    done: SyncSender<Result<Text>>,
}

/// The tree of a table's rows.
pub(super) fn table_tree(view: &View, table: &Table) -> Result<Tree> {
    view.tree(&table.storage.name)?.ok_or_else(|| {
        let message = format!("tree {:?} is missing", table.storage.name);
        Error::new(SqlState::DATA_CORRUPTED, message)
    })
}

/// Writes the rows of all tables of the script.
pub(super) fn write_tables(
    store: &Database,
    view: &View,
    catalog: &Catalog,
    script: &Script,
    options: &Options,
    writer: &mut Writer<'_>,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let (_memory, jobs) = memory(store.engine(), options.jobs)?;
    let format = if options.format == Format::Csv { RowFormat::Csv } else { RowFormat::Text };
    let find = |rows: &TableRows| {
        catalog.table(&rows.name).map(AsRef::as_ref).ok_or_else(|| Error::internal("a table vanished"))
    };
    let tables: Vec<&Table> = script.tables.iter().map(find).collect::<Result<_>>()?;
    let style = TextStyle::default();
    let (steps, to_do) = sync_channel(BATCHES * jobs);
    let (work, to_format) = sync_channel(BATCHES * jobs);
    let to_format = Mutex::new(to_format);
    let (tables, style, to_format) = (&tables, &style, &to_format);
    std::thread::scope(move |scope| {
        for _ in 0..jobs {
            scope.spawn(move || {
                gannet_store::stand_by();
                make_texts(tables, style, format, to_format);
            });
        }
        let (engine, job) = (store.engine(), watch.job());
        scope.spawn(move || {
            gannet_store::stand_by();
            if let Err(error) = scan_all(engine, job, view, tables, &steps, &work) {
                // The caller may have given up by now.
                let _ = steps.send(Step::Failed(error));
            }
        });
        let written = write_steps(store, script, &to_do, writer, watch);
        // Whatever it ended with: the scan finds nobody to hand its work to, and ends.
        drop(to_do);
        written
    })
}

/// Memory for the batches of so many threads, or of fewer where it is short; and how many that are.
fn memory(engine: &Engine, jobs: usize) -> Result<(WorkMemory, usize)> {
    let most = usize::try_from(engine.work_limit() / (BATCHES as u64 * BATCH_MEMORY)).unwrap_or(usize::MAX);
    let jobs = jobs.min(most).max(1);
    Ok((engine.work_memory((BATCHES * jobs) as u64 * BATCH_MEMORY)?, jobs))
}

/// Hands out the batches of all tables. It ends early when nobody takes them any more.
fn scan_all(
    engine: &Engine,
    job: &Job,
    view: &View,
    tables: &[&Table],
    steps: &SyncSender<Step>,
    work: &SyncSender<Work>,
) -> Result<()> {
    for (number, table) in tables.iter().enumerate() {
        let tree = table_tree(view, table)?;
        let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
        scan.give_way();
        if steps.send(Step::Begin(number)).is_err() {
            return Ok(());
        }
        let mut rows = Rows::default();
        // For reading one batch; who takes the batches may be waiting for a permit.
        let mut permit = Some(job.permit()?);
        let hand_out = |rows: Rows| {
            let (done, text) = sync_channel(1);
            work.send(Work { table: number, rows, done }).is_ok() && steps.send(Step::Rows(text)).is_ok()
        };
        while let Some((key, value)) = scan.next()? {
            let len = key.len() + value.len();
            if len > BATCH_BYTES {
                // Its text has up to four times the bytes: of bytea two digits each, of strings backslashes.
                rows.memory = Some(engine.work_memory(4 * len as u64)?);
            }
            rows.bytes.extend_from_slice(key);
            rows.bytes.extend_from_slice(value);
            rows.lengths.push((key.len() as u32, value.len() as u32));
            if rows.bytes.len() >= BATCH_BYTES {
                scan.forget_long();
                drop(permit.take());
                if !hand_out(std::mem::take(&mut rows)) {
                    return Ok(());
                }
                permit = Some(job.permit()?);
                rows.bytes.reserve(BATCH_BYTES + BATCH_BYTES / 8);
            }
        }
        drop(permit);
        if !rows.lengths.is_empty() && !hand_out(rows) || steps.send(Step::End).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Makes text of batches as long as there are some.
fn make_texts(tables: &[&Table], style: &TextStyle, format: RowFormat, work: &Mutex<Receiver<Work>>) {
    loop {
        let next = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok(Work { table, rows, done }) = next else { return };
        // Nobody may want it any more.
        let _ = done.send(make_text(&RowWriter::new(tables[table], style, format), rows));
    }
}

fn make_text(writer: &RowWriter<'_>, rows: Rows) -> Result<Text> {
    let mut text = String::with_capacity(rows.bytes.len() * 5 / 4);
    let mut rest = &rows.bytes[..];
    for (key, value) in &rows.lengths {
        let (row_key, behind) = rest.split_at(*key as usize);
        let (row, behind) = behind.split_at(*value as usize);
        writer.write(row_key, row, &mut text)?;
        rest = behind;
    }
    Ok(Text { text, rows: rows.lengths.len() as u64, stored: rows.bytes.len() as u64, _memory: rows.memory })
}

/// Writes what the others have made, in order.
fn write_steps(
    store: &Database,
    script: &Script,
    steps: &Receiver<Step>,
    writer: &mut Writer<'_>,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let reads = || {
        let counts = store.engine().disk().stats().snapshot().counts;
        counts[Class::Maintenance as usize][Operation::Read as usize].1
    };
    let mut read = reads();
    // Bytes of the tables before, and of this one's rows.
    let (mut before, mut stored, mut table) = (0, 0, None);
    loop {
        let step = match steps.recv_timeout(LOOK_EVERY) {
            Ok(step) => step,
            Err(RecvTimeoutError::Timeout) => {
                watch.look()?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        match step {
            Step::Begin(number) => {
                table = script.tables.get(number);
                watch.job().note(table.map_or("", |table| &table.name));
                stored = 0;
                writer.begin_table(&script.tables[number])?;
            }
            Step::Rows(text) => {
                let text = wait(&text, watch)?;
                let _permit = watch.job().permit()?;
                writer.rows(text.text.as_bytes(), text.rows)?;
                watch.job().count_written(text.text.len() as u64);
                stored += text.stored;
                let bytes = table.map_or(0, |table| table.bytes);
                watch.job().set_done(before + stored.min(bytes));
                let now = reads();
                watch.job().count_read(now - read);
                read = now;
            }
            Step::End => {
                writer.end_table()?;
                before += table.map_or(0, |table| table.bytes);
                watch.job().set_done(before);
            }
            Step::Failed(error) => return Err(error),
        }
        watch.look()?;
    }
}

fn wait(text: &Receiver<Result<Text>>, watch: &mut Watch<'_>) -> Result<Text> {
    loop {
        match text.recv_timeout(LOOK_EVERY) {
            Ok(text) => return text,
            Err(RecvTimeoutError::Timeout) => watch.look()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a thread of the dump has ended by itself"));
            }
        }
    }
}
