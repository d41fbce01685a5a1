//! Rows of tables on their way: scanned, made text, and written in the order of the scan.

use super::Options;
use super::bytes::ByteBuffer;
use super::line::{Item, Piece, run_line};
use super::rows::{RowFormat, RowWriter, Scratch};
use super::script::{Script, TableRows};
use super::writer::Writer;
use crate::catalog::{Catalog, Table};
use crate::crew::locked;
use crate::room::{Room, Taken};
use crate::types::text::TextStyle;
use crate::{Error, Result, SqlState};
use gannet_store::{
    Database, Engine, Job, LongValues, Scan, Tree, View, Visitor, Watch, WorkMemory, thread_reads,
};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of rows in a batch, about.
const BATCH_BYTES: usize = 256 << 10;
/// Batches under way for each thread.
const BATCHES: usize = 4;
/// Bytes that a batch takes, its text included, about.
const BATCH_MEMORY: u64 = 1 << 20;
/// Bytes of text of a batch, about: of rows that have more the others are made text of when these are written.
const TEXT_BYTES: usize = 3 * BATCH_BYTES;
/// Bytes that a long row takes for each of its own: once as it is stored, and as text, of which bytea has two for each, in a buffer that grows.
const LONG_ROW: u64 = 4;
/// The same for each byte of text that is not stored at all.
const OUTGROWN: u64 = 2;
/// How long it is waited before it is tried again whether there is room for a long row.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Charges long values before they are read, and what is made of them: so a row that has to wait for others has not been read yet.
#[derive(Debug)]
pub(super) struct Charged {
    engine: Engine,
    room: Arc<Room>,
    /// What the row was charged as that was read last, its buffer in the store aside.
    taken: Mutex<Option<Taken>>,
    /// The last read has failed for no other reason than that there is no room until others are through.
    waits: AtomicBool,
}

impl Charged {
    pub(super) fn new(engine: &Engine) -> Arc<Self> {
        let (room, taken, waits) = (Room::new(engine), Mutex::default(), AtomicBool::new(false));
        Arc::new(Charged { engine: engine.clone(), room, taken, waits })
    }

    /// Charges what the row that was read last has as text beyond what is stored of it.
    fn expect_text(&self, bytes: u64) -> gannet_store::Result<()> {
        let mut taken = locked(&self.taken);
        // All at once: who waits holds nothing.
        let stored = taken.take().map_or(0, |taken| taken.bytes());
        *taken = self.room.try_take(stored + OUTGROWN * bytes)?;
        if taken.is_none() {
            self.waits.store(true, Ordering::Relaxed);
            return Err(gannet_store::Error::Cancelled);
        }
        Ok(())
    }
}

impl LongValues for Charged {
    fn expect(&self, bytes: u64) -> gannet_store::Result<Option<WorkMemory>> {
        if bytes <= BATCH_BYTES as u64 {
            return self.engine.work_memory(bytes).map(Some);
        }
        *locked(&self.taken) = None;
        let taken = self.room.try_take(LONG_ROW * bytes)?;
        match taken.map(|taken| (taken.is_alone(), self.engine.work_memory(bytes), taken)) {
            None | Some((false, Err(gannet_store::Error::Memory(_)), _)) => {
                self.waits.store(true, Ordering::Relaxed);
                Err(gannet_store::Error::Cancelled)
            }
            Some((_, own, taken)) => {
                *locked(&self.taken) = Some(taken);
                own.map(Some)
            }
        }
    }
}

/// Rows as they are stored.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: ByteBuffer,
    /// Lengths of keys and values, one behind the other in `bytes`.
    lengths: Vec<(u32, u32)>,
    /// Of how many of them text was made, and their bytes.
    made: (usize, usize),
    /// What a long row is charged as.
    memory: Option<Taken>,
}

impl Rows {
    /// The key of the last one.
    fn last_key(&self) -> Option<&[u8]> {
        let &(key, value) = self.lengths.last()?;
        let start = self.bytes.len() - (key as usize + value as usize);
        Some(&self.bytes.as_bytes()[start..start + key as usize])
    }
}

/// Rows that are scanned.
struct Gathered<'g> {
    rows: &'g mut Rows,
    writer: RowWriter<'g>,
    charged: &'g Charged,
    /// The last one is charged by itself.
    is_full: bool,
}

impl Visitor for Gathered<'_> {
    type Error = gannet_store::Error;

    fn entry(&mut self, key: &[u8], value: &[u8]) -> gannet_store::Result<()> {
        let outgrown = self.writer.outgrown(key, value);
        if outgrown > BATCH_BYTES {
            self.charged.expect_text(outgrown as u64)?;
            self.is_full = true;
        }
        self.rows.bytes.bytes(key);
        self.rows.bytes.bytes(value);
        self.rows.lengths.push((key.len() as u32, value.len() as u32));
        Ok(())
    }

    /// Whether the batch has room.
    fn goes_on(&mut self) -> gannet_store::Result<bool> {
        Ok(!self.is_full && self.rows.bytes.len() < BATCH_BYTES)
    }
}

/// Rows as text.
#[derive(Debug)]
pub(super) struct Text {
    text: ByteBuffer,
    rows: u64,
    /// Bytes that the rows were before.
    stored: u64,
    _memory: Option<Taken>,
}

/// Buffers that were used, for the batches to come: taking memory from the system costs as much as filling it.
#[derive(Debug, Default)]
struct Spare {
    rows: Mutex<Vec<Rows>>,
    texts: Mutex<Vec<ByteBuffer>>,
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
            rows.made = (0, 0);
            locked(&self.rows).push(rows);
        }
    }

    fn take_text(&self) -> ByteBuffer {
        locked(&self.texts).pop().unwrap_or_default()
    }

    fn give_text(&self, mut text: ByteBuffer) {
        if text.capacity() <= TEXT_BYTES {
            text.clear();
            locked(&self.texts).push(text);
        }
    }
}

/// The tree of a table's rows.
pub(super) fn table_tree(view: &View, table: &Table) -> Result<Tree> {
    view.tree(&table.storage.name)?.ok_or_else(|| {
        let message = format!("tree {:?} is missing", table.storage.name);
        Error::new(SqlState::DATA_CORRUPTED, message)
    })
}

/// What all threads look at.
pub(super) struct Shared<'s> {
    pub(super) job: &'s Job,
    pub(super) view: &'s View,
    charged: &'s Charged,
    page_size: u64,
    script: &'s Script,
    tables: Vec<&'s Table>,
    style: TextStyle,
    format: RowFormat,
    spare: Spare,
    /// See [`Writer::has_reader`].
    pub(super) has_reader: bool,
}

/// How far the tables are scanned.
#[derive(Debug, Default)]
pub(super) struct Scanning {
    table: usize,
    /// Of that table, once it was begun.
    scan: Option<Box<Scan>>,
    /// The key of the last row that was taken of it.
    last: Option<Vec<u8>>,
}

/// What is written, and how far.
#[derive(Debug)]
pub(super) struct Writing<'w, 't> {
    writer: &'w mut Writer<'t>,
    /// The table that is written.
    table: usize,
    /// Bytes of the tables before, and of this one's rows.
    before: u64,
    stored: u64,
}

/// Writes the rows of all tables of the script, if there are any. What the view reads is charged by `charged`.
pub(super) fn write_tables(
    store: &Database,
    (view, charged): (&View, &Charged),
    catalog: &Catalog,
    script: &Script,
    options: &Options,
    writer: &mut Writer<'_>,
    watch: &mut Watch<'_>,
) -> Result<()> {
    if script.tables.is_empty() {
        return Ok(());
    }
    let (_memory, jobs) = memory(store.engine(), options.jobs)?;
    let find = |rows: &TableRows| {
        catalog.table(&rows.name).map(AsRef::as_ref).ok_or_else(|| Error::internal("a table vanished"))
    };
    let shared = Shared {
        job: watch.job(),
        view,
        charged,
        page_size: store.page_size() as u64,
        script,
        tables: script.tables.iter().map(find).collect::<Result<_>>()?,
        style: TextStyle::default(),
        format: options.format.into(),
        spare: Spare::default(),
        has_reader: writer.has_reader(),
    };
    let writing = Writing { writer, table: 0, before: 0, stored: 0 };
    // One waits for what it reads, mostly, and one for what it writes.
    run_line(&shared, writing, jobs + 2, BATCHES * jobs, watch)
}

/// Memory for the batches of so many threads, or of fewer where it is short; and how many that are.
fn memory(engine: &Engine, jobs: usize) -> Result<(WorkMemory, usize)> {
    let most = usize::try_from(engine.work_limit() / (BATCHES as u64 * BATCH_MEMORY)).unwrap_or(usize::MAX);
    let jobs = jobs.min(most).max(1);
    Ok((engine.work_memory((BATCHES * jobs) as u64 * BATCH_MEMORY)?, jobs))
}

impl<'w, 't> Shared<'_> {
    /// Does a piece of work: gives it back with what came of it.
    pub(super) fn work(&self, piece: Piece<'w, 't>) -> Result<Piece<'w, 't>> {
        Ok(match piece {
            Piece::Scan(mut scanning, mut items) => {
                self.scan(&mut scanning, &mut items)?;
                Piece::Scan(scanning, items)
            }
            Piece::Make(number, Item::Stored(table, rows)) => {
                Piece::Make(number, self.make_text(table, rows)?)
            }
            Piece::Write(mut writing, Some(item)) => {
                self.write(&mut writing, item)?;
                Piece::Write(writing, None)
            }
            other => other,
        })
    }

    /// Whether all tables are scanned.
    pub(super) fn is_scanned(&self, scanning: &Scanning) -> bool {
        scanning.table == self.tables.len()
    }

    /// Scans one batch, and what else is to be said before or behind it. Where a long row has to wait for others, the batch ends before it.
    fn scan(&self, scanning: &mut Scanning, items: &mut Vec<Item>) -> Result<()> {
        let Scanning { table, scan: begun, last } = scanning;
        let Some(of) = self.tables.get(*table) else { return Ok(()) };
        let scan = match begun {
            Some(scan) => scan,
            None => {
                items.push(Item::Begin(*table));
                let tree = table_tree(self.view, of)?;
                let mut scan = self.view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
                scan.give_way();
                *last = None;
                begun.insert(Box::new(scan))
            }
        };
        let before = thread_reads();
        let mut rows = self.spare.take_rows();
        let mut gathered =
            Gathered { rows: &mut rows, writer: self.row_writer(of), charged: self.charged, is_full: false };
        let is_over = match scan.show(&mut gathered) {
            Ok(more) => !more,
            Err(_) if self.charged.waits.swap(false, Ordering::Relaxed) => {
                // To the row that was not read.
                let behind = rows.last_key().or(last.as_deref()).map(|key| [key, &[0]].concat());
                scan.seek(&behind.unwrap_or_default());
                scan.give_way();
                if rows.lengths.is_empty() {
                    std::thread::sleep(TRY_AGAIN);
                }
                false
            }
            Err(error) => return Err(error.into()),
        };
        rows.memory = locked(&self.charged.taken).take();
        if let Some(key) = rows.last_key() {
            *last = Some(key.to_vec());
        }
        let read = thread_reads().since(before);
        self.job.count_read((read.serial_reads + read.batched_reads) * self.page_size);
        if !rows.lengths.is_empty() {
            items.push(Item::Stored(*table, rows));
        }
        if is_over {
            items.push(Item::End);
            (*table, *begun) = (*table + 1, None);
        }
        Ok(())
    }

    fn row_writer<'r>(&'r self, table: &'r Table) -> RowWriter<'r> {
        RowWriter::new(table, &self.style, self.format)
    }

    /// Makes text of the rows, or of the first ones that are left, where all of them have much.
    fn make_text(&self, table: usize, mut rows: Rows) -> Result<Item> {
        let writer = self.row_writer(self.tables[table]);
        let mut text = self.spare.take_text();
        let (first, before) = rows.made;
        let (mut rest, mut scratch) = (&rows.bytes.as_bytes()[before..], Scratch::default());
        text.reserve(rest.len().min(2 * BATCH_BYTES) * 5 / 4);
        let mut count = 0;
        for (key, value) in &rows.lengths[first..] {
            let (row_key, behind) = rest.split_at(*key as usize);
            let (row, behind) = behind.split_at(*value as usize);
            writer.write(row_key, row, &mut scratch, &mut text)?;
            rest = behind;
            count += 1;
            if text.len() >= TEXT_BYTES {
                break;
            }
        }
        writer.check(&text)?;
        let end = rows.bytes.len() - rest.len();
        rows.made = (first + count, end);
        let mut text = Text { text, rows: count as u64, stored: (end - before) as u64, _memory: None };
        if rows.made.0 < rows.lengths.len() {
            return Ok(Item::Part(text, table, rows));
        }
        match rows.memory.take() {
            None => self.spare.give_rows(rows),
            Some(mut memory) => {
                drop(rows);
                memory.shrink_to(text.text.capacity() as u64);
                text._memory = Some(memory);
            }
        }
        Ok(Item::Made(text))
    }

    /// Writes what comes next.
    fn write(&self, writing: &mut Writing<'_, '_>, item: Item) -> Result<()> {
        let bytes = self.script.tables.get(writing.table).map_or(0, |table| table.bytes);
        match item {
            Item::Begin(number) => {
                let begun = &self.script.tables[number];
                self.job.note(&begun.name);
                (writing.table, writing.stored) = (number, 0);
                writing.writer.begin_table(begun)?;
            }
            Item::Made(text) => {
                writing.writer.set_request(self.job.request_bytes());
                writing.writer.rows(text.text.as_bytes(), text.rows)?;
                self.job.count_written(text.text.len() as u64);
                writing.stored += text.stored;
                self.job.set_done(writing.before + writing.stored.min(bytes));
                self.spare.give_text(text.text);
            }
            Item::End => {
                writing.writer.end_table()?;
                writing.before += bytes;
                self.job.set_done(writing.before);
            }
            Item::Part(..) | Item::Stored(..) | Item::Making => {
                return Err(Error::internal("rows are written that are no text"));
            }
        }
        Ok(())
    }
}
