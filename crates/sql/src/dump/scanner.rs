//! Rows of tables on their way: scanned by one thread, made text by some, written by one more in the order of the scan.

use super::rows::{RowFormat, RowWriter};
use super::script::{Script, TableRows};
use super::writer::Writer;
use super::{Format, Options};
use crate::catalog::{Catalog, Table};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState};
use gannet_store::{Database, Engine, Job, ThreadReads, Tree, View, Watch, WorkMemory, thread_reads};
use std::ops::Bound;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of rows in a batch, about.
const BATCH_BYTES: usize = 256 << 10;
/// Batches under way for each thread that makes text.
const BATCHES: usize = 3;
/// Bytes that a batch takes, its text included, about.
const BATCH_MEMORY: u64 = 1 << 20;
/// How often the caller looks whether it is to end.
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

/// What the writer is to do next.
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

/// Buffers that were used, for the batches to come: taking memory from the system costs as much as filling it.
#[derive(Debug, Default)]
struct Spare {
    rows: Mutex<Vec<Rows>>,
    texts: Mutex<Vec<String>>,
}

impl Spare {
    fn take_rows(&self) -> Rows {
        let mut rows = locked(&self.rows).pop().unwrap_or_default();
        rows.bytes.reserve(BATCH_BYTES + BATCH_BYTES / 8);
        rows
    }

    fn give_rows(&self, mut rows: Rows) {
        // Those of long rows are not kept.
        if rows.memory.take().is_none() {
            rows.bytes.clear();
            rows.lengths.clear();
            locked(&self.rows).push(rows);
        }
    }

    fn take_text(&self) -> String {
        locked(&self.texts).pop().unwrap_or_default()
    }

    fn give_text(&self, mut text: String) {
        if text.capacity() <= 3 * BATCH_BYTES {
            text.clear();
            locked(&self.texts).push(text);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tree of a table's rows.
pub(super) fn table_tree(view: &View, table: &Table) -> Result<Tree> {
    view.tree(&table.storage.name)?.ok_or_else(|| {
        let message = format!("tree {:?} is missing", table.storage.name);
        Error::new(SqlState::DATA_CORRUPTED, message)
    })
}

/// What all threads look at.
struct Shared<'s> {
    engine: &'s Engine,
    job: &'s Job,
    view: &'s View,
    page_size: u64,
    script: &'s Script,
    tables: Vec<&'s Table>,
    style: TextStyle,
    format: RowFormat,
    spare: Spare,
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
    let find = |rows: &TableRows| {
        catalog.table(&rows.name).map(AsRef::as_ref).ok_or_else(|| Error::internal("a table vanished"))
    };
    let shared = Shared {
        engine: store.engine(),
        job: watch.job(),
        view,
        page_size: store.page_size() as u64,
        script,
        tables: script.tables.iter().map(find).collect::<Result<_>>()?,
        style: TextStyle::default(),
        format: if options.format == Format::Csv { RowFormat::Csv } else { RowFormat::Text },
        spare: Spare::default(),
    };
    let (steps, to_do) = sync_channel(BATCHES * jobs);
    let (work, to_format) = sync_channel(BATCHES * jobs);
    let (end, ended) = sync_channel(1);
    let to_format = Mutex::new(to_format);
    let (shared, to_format) = (&shared, &to_format);
    std::thread::scope(move |scope| {
        for _ in 0..jobs {
            scope.spawn(move || {
                gannet_store::stand_by();
                shared.make_texts(to_format);
            });
        }
        scope.spawn(move || {
            gannet_store::stand_by();
            if let Err(error) = shared.scan_all(&steps, &work) {
                // The writer may have given up by now.
                let _ = steps.send(Step::Failed(error));
            }
        });
        scope.spawn(move || {
            gannet_store::stand_by();
            let written = shared.write_steps(&to_do, writer);
            // Whatever it ended with: the scan finds nobody to hand its work to, and ends.
            drop(to_do);
            let _ = end.send(written);
        });
        await_end(&ended, watch)
    })
}

/// Waits for the writer. When the job is to end, whoever asks for a permit next is told so: they end by themselves.
fn await_end(ended: &Receiver<Result<()>>, watch: &mut Watch<'_>) -> Result<()> {
    let mut looked = Ok(());
    loop {
        match ended.recv_timeout(LOOK_EVERY) {
            Ok(written) => return looked.and(written),
            Err(RecvTimeoutError::Timeout) if looked.is_ok() => {
                looked = watch.look().map_err(Error::from).inspect_err(|_| watch.job().cancel());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return looked.and(Err(Error::internal("a thread of the dump has ended by itself")));
            }
        }
    }
}

/// Memory for the batches of so many threads, or of fewer where it is short; and how many that are.
fn memory(engine: &Engine, jobs: usize) -> Result<(WorkMemory, usize)> {
    let most = usize::try_from(engine.work_limit() / (BATCHES as u64 * BATCH_MEMORY)).unwrap_or(usize::MAX);
    let jobs = jobs.min(most).max(1);
    Ok((engine.work_memory((BATCHES * jobs) as u64 * BATCH_MEMORY)?, jobs))
}

impl Shared<'_> {
    /// Hands out the batches of all tables. It ends early when nobody takes them any more.
    fn scan_all(&self, steps: &SyncSender<Step>, work: &SyncSender<Work>) -> Result<()> {
        for (number, table) in self.tables.iter().enumerate() {
            if steps.send(Step::Begin(number)).is_err() {
                return Ok(());
            }
            let mut hand_out = |rows: Rows| {
                let (done, text) = sync_channel(1);
                work.send(Work { table: number, rows, done }).is_ok() && steps.send(Step::Rows(text)).is_ok()
            };
            if !self.scan(table, &mut hand_out)? || steps.send(Step::End).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands out the batches of a table; false when nobody takes them any more.
    fn scan(&self, table: &Table, hand_out: &mut dyn FnMut(Rows) -> bool) -> Result<bool> {
        let mut scan =
            self.view.scan(&table_tree(self.view, table)?, (Bound::Unbounded, Bound::Unbounded))?;
        scan.give_way();
        let mut rows = self.spare.take_rows();
        // For reading one batch; who takes the batches may be waiting for a permit.
        let mut permit = Some(self.job.permit()?);
        let mut read = thread_reads();
        while let Some((key, value)) = scan.next()? {
            let len = key.len() + value.len();
            if len > BATCH_BYTES {
                // Its text has up to four times the bytes: of bytea two digits each, of strings backslashes.
                rows.memory = Some(self.engine.work_memory(4 * len as u64)?);
            }
            rows.bytes.extend_from_slice(key);
            rows.bytes.extend_from_slice(value);
            rows.lengths.push((key.len() as u32, value.len() as u32));
            if rows.bytes.len() >= BATCH_BYTES {
                scan.forget_long();
                drop(permit.take());
                read = self.count_reads(read);
                if !hand_out(std::mem::replace(&mut rows, self.spare.take_rows())) {
                    return Ok(false);
                }
                permit = Some(self.job.permit()?);
            }
        }
        drop(permit);
        self.count_reads(read);
        Ok(rows.lengths.is_empty() || hand_out(rows))
    }

    /// Counts what this thread has read since.
    fn count_reads(&self, before: ThreadReads) -> ThreadReads {
        let now = thread_reads();
        let since = now.since(before);
        self.job.count_read((since.serial_reads + since.batched_reads) * self.page_size);
        now
    }

    /// Makes text of batches as long as there are some.
    fn make_texts(&self, work: &Mutex<Receiver<Work>>) {
        loop {
            let next = locked(work).recv();
            let Ok(Work { table, rows, done }) = next else { return };
            let writer = RowWriter::new(self.tables[table], &self.style, self.format);
            let text =
                self.job.permit().map_err(Error::from).and_then(|_permit| self.make_text(&writer, rows));
            // Nobody may want it any more.
            let _ = done.send(text);
        }
    }

    fn make_text(&self, writer: &RowWriter<'_>, mut rows: Rows) -> Result<Text> {
        let mut text = self.spare.take_text();
        text.reserve(rows.bytes.len() * 5 / 4);
        let mut rest = &rows.bytes[..];
        for (key, value) in &rows.lengths {
            let (row_key, behind) = rest.split_at(*key as usize);
            let (row, behind) = behind.split_at(*value as usize);
            writer.write(row_key, row, &mut text)?;
            rest = behind;
        }
        let (count, stored, _memory) =
            (rows.lengths.len() as u64, rows.bytes.len() as u64, rows.memory.take());
        if _memory.is_none() {
            self.spare.give_rows(rows);
        }
        Ok(Text { text, rows: count, stored, _memory })
    }

    /// Writes what the others have made, in order.
    fn write_steps(&self, steps: &Receiver<Step>, writer: &mut Writer<'_>) -> Result<()> {
        // Bytes of the tables before, and of this one's rows.
        let (mut before, mut stored, mut table) = (0, 0, None);
        for step in steps {
            match step {
                Step::Begin(number) => {
                    let begun = &self.script.tables[number];
                    self.job.note(&begun.name);
                    (table, stored) = (Some(begun), 0);
                    writer.begin_table(begun)?;
                }
                Step::Rows(text) => {
                    let text = text
                        .recv()
                        .map_err(|_| Error::internal("a thread of the dump has ended by itself"))??;
                    let _permit = self.job.permit()?;
                    writer.set_request(self.job.request_bytes());
                    writer.rows(text.text.as_bytes(), text.rows)?;
                    self.job.count_written(text.text.len() as u64);
                    stored += text.stored;
                    let bytes = table.map_or(0, |table| table.bytes);
                    self.job.set_done(before + stored.min(bytes));
                    self.spare.give_text(text.text);
                }
                Step::End => {
                    self.job.check()?;
                    writer.end_table()?;
                    before += table.map_or(0, |table| table.bytes);
                    self.job.set_done(before);
                }
                Step::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }
}
