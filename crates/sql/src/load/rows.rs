//! Rows of COPY data on their way into an empty table: one thread reads, some make rows of text, the session's thread builds.

use super::input::{Input, LONG_PIECE, Next, Piece, RowEnds};
use super::{Bad, Over};
use crate::catalog::Table;
use crate::ddl::{Encoded, Spare, Take};
use crate::session::{CopyOptions, Fields, Header, Reader};
use crate::threads::start_thread;
use crate::types::text::{self, TextStyle};
use crate::types::{Value, cast};
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use gannet_store::{Engine, Watch, WorkMemory};
use memchr::{memchr, memchr_iter, memchr2_iter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Pieces under way for each thread that makes rows.
const PIECES: usize = 3;
/// Pieces, where there is memory for them, whose entries of indexes are sorted beside the building of the table.
const SORTED_BEHIND: usize = 3;
/// Bytes that a piece takes, as text and as rows, about. Long ones come with memory of their own; for others that take more, as where there
/// are many indexes, that is charged once it is known: there are few such pieces at a time.
const PIECE_MEMORY: u64 = 2 << 20;
/// A row whose values take more than this is made by one thread at a time, and charged before.
const MUCH: usize = 512 << 10;
/// How often it is looked whether the load is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How much is under way at a time.
#[derive(Debug)]
pub(super) struct Share {
    /// Threads that make rows.
    jobs: usize,
    /// Pieces on their way to be made, and then to be taken.
    pieces: usize,
    /// Pieces that are taken, and wait until the entries of their indexes are sorted, or are at it.
    pub(super) sorted_behind: usize,
    _memory: WorkMemory,
}

impl Share {
    /// For so many threads, or for fewer where memory is short: what builds the table needs some, too. `is_indexed`: it has other indexes than
    /// the primary one.
    pub(super) fn take(engine: &Engine, jobs: usize, is_indexed: bool) -> Result<Self> {
        let most = usize::try_from(engine.work_limit() / PIECE_MEMORY).unwrap_or(usize::MAX);
        let pieces = (PIECES * jobs.max(1)).min(most).max(2);
        let sorted_behind = if is_indexed { SORTED_BEHIND.min(most.saturating_sub(pieces)) } else { 0 };
        let _memory = engine.work_memory((pieces + sorted_behind) as u64 * PIECE_MEMORY)?;
        Ok(Share { jobs: jobs.clamp(1, pieces), pieces, sorted_behind, _memory })
    }
}

/// The data of a COPY.
#[derive(Debug)]
pub(super) struct Data<'d> {
    pub(super) options: &'d CopyOptions,
    /// Where the fields go, by position in the table: all of its columns, in any order.
    pub(super) places: &'d [usize],
    /// It ends with a mark.
    pub(super) in_script: bool,
    /// Bad rows are left out; else the first one is all that matters.
    pub(super) skip: bool,
    /// Bytes of input before this file.
    pub(super) before: u64,
    /// It gives way to others.
    pub(super) paced: bool,
}

/// What was made of a piece.
struct Made {
    rows: Encoded,
    bad: Vec<Bad>,
    /// There is no memory for it.
    failed: Option<Error>,
    /// Bytes of the rows that are charged with the piece.
    charged: u64,
    /// Bytes of input taken when the piece was read.
    taken: u64,
}

enum Step {
    Piece(Receiver<Made>),
    Failed(Error),
}

/// Reads the data to its end, and gives `take` the rows. Bad ones are listed; where they are not to be skipped, the first one is the error. Once
/// nobody takes rows any more, no more data is waited for.
pub(super) fn feed(
    input: &mut Input,
    data: &Data<'_>,
    table: &Table,
    style: &TextStyle,
    (engine, share): (&Engine, Share),
    (take, bad): (Take<'_>, &mut dyn FnMut(Bad) -> Result<()>),
    watch: &mut Watch<'_>,
) -> Result<u64> {
    let (steps, to_take) = sync_channel(share.pieces / 2);
    let (work, to_make) = sync_channel::<(Piece, SyncSender<Made>, u64)>(share.pieces / 2);
    let to_make = Mutex::new(to_make);
    let maker = Maker {
        table,
        data,
        style,
        engine,
        outgrows: table.columns.iter().any(|column| cast::outgrows_text(column.ty, column.modifier)),
        much: Mutex::default(),
        spare: Spare::default(),
        texts: Mutex::default(),
    };
    let is_over = AtomicBool::new(false);
    let (maker, to_make, is_over, job) = (&maker, &to_make, &is_over, watch.job());
    std::thread::scope(move |scope| {
        // However it is left, before its threads are waited for.
        let _over = Over(is_over);
        for _ in 0..share.jobs {
            let make = move || {
                loop {
                    let next = to_make.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((piece, done, taken)) = next else { return };
                    // Nobody may want it any more.
                    let _ = done.send(maker.make(piece, taken));
                }
            };
            start_thread(scope, "gannet-load-rows", make).map(drop)?;
        }
        let read = move || {
            // Everything behind it goes as fast as this. What a load writes counts as others': where there are none, nobody is asked. A client is
            // waited for without leave, which other jobs would lack meanwhile: what he has sent needs it before it is handed on.
            let waits = input.waits_for_client();
            let leave = |is_time: bool| (data.paced && is_time).then(|| job.permit()).transpose();
            loop {
                let next = leave(!waits)
                    .map_err(Error::from)
                    .and_then(|_leave| input.data(data.options, data.in_script, maker.take_text()))
                    .and_then(|next| {
                        let has_come = matches!(next, Next::Piece(_));
                        leave(waits && has_come).map(|_leave| next).map_err(Error::from)
                    });
                let piece = match next {
                    Ok(Next::Piece(piece)) => piece,
                    Ok(Next::Nothing) if !is_over.load(Ordering::Relaxed) => continue,
                    Ok(Next::Nothing | Next::End) => return,
                    Err(error) => {
                        let _ = steps.send(Step::Failed(error));
                        return;
                    }
                };
                let (done, made) = sync_channel(1);
                let taken = data.before + input.taken();
                if work.send((piece, done, taken)).is_err() || steps.send(Step::Piece(made)).is_err() {
                    return;
                }
            }
        };
        start_thread(scope, "gannet-load-read", read).map(drop)?;
        let taken = take_all(&to_take, take, bad, watch);
        drop(to_take);
        taken
    })
}

fn take_all(
    steps: &Receiver<Step>,
    take: Take<'_>,
    bad: &mut dyn FnMut(Bad) -> Result<()>,
    watch: &mut Watch<'_>,
) -> Result<u64> {
    let mut rows = 0;
    loop {
        let made = match steps.recv_timeout(LOOK_EVERY) {
            Ok(Step::Piece(made)) => wait(&made, watch)?,
            Ok(Step::Failed(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {
                watch.look()?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(rows),
        };
        made.failed.map_or(Ok(()), Err)?;
        made.bad.into_iter().try_for_each(&mut *bad)?;
        rows += made.rows.lengths.len() as u64;
        take(made.rows)?;
        watch.job().set_done(made.taken);
        watch.look()?;
    }
}

fn wait(made: &Receiver<Made>, watch: &mut Watch<'_>) -> Result<Made> {
    loop {
        match made.recv_timeout(LOOK_EVERY) {
            Ok(made) => return Ok(made),
            Err(RecvTimeoutError::Timeout) => watch.look()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a thread of the load has ended by itself"));
            }
        }
    }
}

/// How much there was of rows.
#[derive(Clone, Copy)]
struct Extent {
    bytes: usize,
    rows: usize,
}

impl Extent {
    fn of(rows: &Encoded) -> Self {
        Extent { bytes: rows.bytes.len(), rows: rows.lengths.len() }
    }

    /// Takes back what came since.
    fn restore(self, rows: &mut Encoded) {
        rows.bytes.truncate(self.bytes);
        rows.lengths.truncate(self.rows);
        rows.indexes.iter_mut().for_each(|entries| entries.truncate(self.rows));
    }
}

/// Gives a field; `None` for NULL.
type Get<'g> = &'g dyn Fn(usize) -> Result<Option<&'g str>>;

/// Makes rows of text.
struct Maker<'m> {
    table: &'m Table,
    data: &'m Data<'m>,
    style: &'m TextStyle,
    engine: &'m Engine,
    /// A row may take many times the bytes of its text.
    outgrows: bool,
    /// Held by who makes such a row: several at a time might leave no memory to each other, where each fits alone.
    much: Mutex<()>,
    spare: Spare,
    /// Buffers that pieces were in.
    texts: Mutex<Vec<Vec<u8>>>,
}

impl Maker<'_> {
    /// A buffer for a piece.
    fn take_text(&self) -> Vec<u8> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn make(&self, piece: Piece, taken: u64) -> Made {
        let Piece { bytes, line, memory } = piece;
        let is_long = memory.is_some();
        let indexes = self.table.indexes.iter().filter(|index| !index.primary).count();
        let charged = match is_long {
            // But for the text itself.
            true => (LONG_PIECE - 1) * bytes.len() as u64,
            false => PIECE_MEMORY.saturating_sub(bytes.capacity() as u64),
        };
        let rows = self.spare.rows(indexes, memory);
        let mut made = Made { rows, bad: Vec::new(), failed: None, charged, taken };
        made.rows.bytes.reserve(bytes.len());
        // How its lines end is to be found out where there are carriage returns.
        if self.is_plain() && memchr(b'\r', &bytes).is_none() {
            self.read_plain(&bytes, line, &mut made);
        } else {
            self.read_any(&bytes, line, &mut made);
        }
        if !is_long {
            self.charge(&mut made);
            self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        }
        made
    }

    /// Whether rows are as dumps of ours and of `pg_dump` have them.
    fn is_plain(&self) -> bool {
        let CopyOptions { csv, delimiter, null, header, .. } = self.data.options;
        !csv && *delimiter == b'\t' && null == "\\N" && *header == Header::No && !self.data.places.is_empty()
    }

    /// Reads lines whose fields can be taken as they stand there, and others by the way.
    fn read_plain(&self, mut rest: &[u8], mut line: u64, made: &mut Made) {
        let (mut fields, mut row) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let end = memchr(b'\n', rest);
            let text = &rest[..end.unwrap_or(rest.len())];
            let len = if split_plain(text, &mut fields) {
                self.take_row(fields.len(), &|index| Ok(fields[index]), line, &mut row, made);
                end.map_or(rest.len(), |end| end + 1)
            } else {
                let len = RowEnds::new(rest, self.data.options).next().unwrap_or(rest.len());
                self.read_any(&rest[..len], line, made);
                len
            };
            line += memchr_iter(b'\n', &rest[..len]).count() as u64;
            rest = &rest[len..];
        }
    }

    /// Reads whatever COPY knows; the first line is the one of this number. Where the reader cannot tell the lines apart any more and bad rows
    /// are to be skipped, each row is read alone: none is lost because of another one.
    fn read_any(&self, bytes: &[u8], first: u64, made: &mut Made) {
        let (before, bad) = (Extent::of(&made.rows), made.bad.len());
        let Err(failed) = self.read_all(bytes, first, made) else { return };
        let first_end = RowEnds::new(bytes, self.data.options).next();
        let is_one = first_end.is_none_or(|end| end == bytes.len());
        if self.data.skip {
            before.restore(&mut made.rows);
            made.bad.truncate(bad);
        }
        if is_one || !self.data.skip {
            let line = if self.data.skip { first } else { failed.line };
            made.bad.push(Bad { line, ..failed });
            return;
        }
        let (mut start, mut line) = (0, first);
        let ends = RowEnds::new(bytes, self.data.options).chain([bytes.len()]);
        for end in ends {
            let row = &bytes[start..end];
            if !row.is_empty() {
                self.read_any(row, line, made);
            }
            line += memchr_iter(b'\n', row).count() as u64;
            start = end;
        }
    }

    /// Reads rows up to the first one whose end cannot be told, which is the error.
    fn read_all(&self, bytes: &[u8], first: u64, made: &mut Made) -> std::result::Result<(), Bad> {
        let mut reader = Reader::new(self.data.options.clone());
        let mut given = false;
        let mut more = |buffer: &mut Vec<u8>| {
            if std::mem::replace(&mut given, true) {
                return Ok(false);
            }
            buffer.extend_from_slice(bytes);
            Ok(true)
        };
        let mut fields = Fields::default();
        let mut row = Vec::new();
        loop {
            let next = reader.next(&mut more, &mut fields);
            let line = first + reader.line() - 1;
            match next {
                Ok(false) => return Ok(()),
                Ok(true) => self.take_row(fields.len(), &|index| fields.get(index), line, &mut row, made),
                Err(error) => return Err(Bad::new(line, None, &error)),
            }
        }
    }

    /// Charges what the rows take beyond what is charged with the piece.
    fn charge(&self, made: &mut Made) {
        if made.failed.is_none() {
            made.failed = made.rows.charge(self.engine, made.charged).err();
        }
    }

    /// Bytes that the values of a row take, about.
    fn bytes_of_row(&self, count: usize, get: Get<'_>) -> usize {
        let of = |(index, &place): (usize, &usize)| {
            let column = &self.table.columns[place];
            match get(index) {
                Ok(Some(field)) => cast::text_bytes(field, column.ty, column.modifier),
                // What is no text is an error of its own.
                _ => 0,
            }
        };
        self.data.places.iter().enumerate().take(count).map(of).sum()
    }

    /// Takes a row, or notes why it is bad; where there is no memory for it, nothing more is taken.
    fn take_row(&self, count: usize, get: Get<'_>, line: u64, row: &mut Vec<Value>, made: &mut Made) {
        if !self.outgrows {
            return self.make_row(count, get, line, row, made);
        }
        if made.failed.is_some() {
            return;
        }
        let bytes = self.bytes_of_row(count, get);
        if bytes > MUCH {
            let _alone = self.much.lock().unwrap_or_else(PoisonError::into_inner);
            // As values, and as they are stored.
            match self.engine.memory(Purpose::Work, 2 * bytes as u64) {
                Ok(_room) => {
                    self.make_row(count, get, line, row, made);
                    *row = Vec::new();
                }
                Err(error) => made.failed = Some(error.into()),
            }
        } else {
            self.make_row(count, get, line, row, made);
        }
        self.charge(made);
    }

    fn make_row(&self, count: usize, get: Get<'_>, line: u64, row: &mut Vec<Value>, made: &mut Made) {
        let before = Extent::of(&made.rows);
        if let Err((column, error)) = self.row(count, get, row, &mut made.rows) {
            before.restore(&mut made.rows);
            made.bad.push(Bad::new(line, column, &error));
        }
    }

    /// Appends a row; else gives the column that is bad, and why.
    fn row(
        &self,
        count: usize,
        get: Get<'_>,
        row: &mut Vec<Value>,
        out: &mut Encoded,
    ) -> std::result::Result<(), (Option<String>, Error)> {
        let (table, places) = (self.table, self.data.places);
        let whole = |message: String| (None, Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        // An empty line is a row of a table without columns.
        let is_empty = places.is_empty() && count == 1 && matches!(get(0), Ok(None | Some("")));
        if count > places.len() && !is_empty {
            return Err(whole("extra data after last expected column".to_owned()));
        }
        // Each of them is given another value.
        row.resize(places.len(), Value::Null);
        for (index, &place) in places.iter().enumerate() {
            let column = &table.columns[place];
            if index >= count {
                return Err(whole(format!("missing data for column \"{}\"", column.name)));
            }
            let read = get(index).and_then(|field| match field {
                Some(field) => text::read(field, column.ty, column.modifier, self.style),
                None if column.not_null => Err(Error::new(
                    SqlState::NOT_NULL_VIOLATION,
                    format!(
                        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                        column.name, table.name
                    ),
                )),
                None => Ok(Value::Null),
            });
            row[place] = read.map_err(|error| (Some(column.name.clone()), error))?;
        }
        let start = out.bytes.len();
        let codec = table.codec();
        codec.row_key(row, &mut out.bytes).map_err(|error| (None, error))?;
        let key = out.bytes.len() - start;
        codec.encode_row(row, &mut out.bytes).map_err(|error| (None, error))?;
        out.lengths.push((key as u32, (out.bytes.len() - start - key) as u32));
        let row_key = &out.bytes[start..start + key];
        let indexes = table.indexes.iter().enumerate().filter(|(_, index)| !index.primary);
        for ((index, _), entries) in indexes.zip(&mut out.indexes) {
            let begin = entries.bytes.len();
            let conflicts = codec.index_key(index, row, row_key, &mut entries.bytes);
            let conflicts = conflicts.map_err(|error| (None, error))?;
            entries.lengths.push(((entries.bytes.len() - begin) as u32, conflicts));
        }
        Ok(())
    }
}

/// Splits a line into fields, if none of them is written in another way than it reads; NULL is `\N`.
fn split_plain<'t>(line: &'t [u8], fields: &mut Vec<Option<&'t str>>) -> bool {
    fields.clear();
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let (mut start, mut is_null) = (0, false);
    for at in memchr2_iter(b'\t', b'\\', line) {
        if line[at] == b'\t' {
            fields.push((!is_null).then(|| &text[start..at]));
            (start, is_null) = (at + 1, false);
        } else {
            is_null = at == start && matches!(line[at + 1..], [b'N'] | [b'N', b'\t', ..]);
            if !is_null {
                return false;
            }
        }
    }
    fields.push((!is_null).then(|| &text[start..]));
    true
}
