//! Reading the log from one position to another, in order: for what needs much of it at one time.
//!
//! # Invariants
//! 1. Only what is durable is read, and every record handed out verified, as in `reader`.
//!    Of a filler that is longer than what is in memory the header alone is verified; it is not handed out, and nothing of its
//!    body is kept, however long it is.
//! 2. The device always has the next chunks to read while records of those before are looked at.

use super::Inner;
use super::record::{self, MIN_RECORD_LEN, RecordView};
use super::segment::{BLOCK, Segments};
use crate::jobs::no_thread;
use crate::page::get_u32;
use crate::{Error, Result};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, thread};
use gannet_io::{AlignedBuffer, Class};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Threads that read.
const READERS: u64 = 4;
/// Chunks that are read, or wait to be looked at, at one time.
const AHEAD: u64 = 6;

/// Memory that a scan by chunks of this size takes, in bytes. The longest record is a footer: half the ring.
pub(super) fn memory(chunk: u64, ring_size: u64) -> u64 {
    (AHEAD + 1) * chunk + ring_size / 2
}

/// What readers and the one who looks at records share.
struct Ahead {
    segments: Arc<Segments>,
    chunk: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Number of the next chunk to be read.
    next: u64,
    /// Number of the chunk to be looked at next.
    wanted: u64,
    end: u64,
    read: BTreeMap<u64, Result<AlignedBuffer>>,
}

/// A chunk on its way: who waits for it gets an error where its reader panics.
struct Reading<'a> {
    ahead: &'a Ahead,
    number: u64,
}

impl Reading<'_> {
    fn end(self, bytes: Result<AlignedBuffer>) {
        self.ahead.put(self.number, bytes);
        std::mem::forget(self);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.ahead.put(self.number, Err(Error::Poisoned("a reader of the log panicked".to_owned())));
    }
}

impl Ahead {
    /// The body of a thread that reads.
    fn run(&self) {
        let mut state = self.state.lock();
        while state.next < state.end {
            if state.next >= state.wanted + AHEAD {
                self.changed.wait(&mut state);
                continue;
            }
            let number = state.next;
            state.next += 1;
            drop(state);
            let reading = Reading { ahead: self, number };
            let bytes = self.read(number);
            reading.end(bytes);
            state = self.state.lock();
        }
    }

    fn put(&self, number: u64, bytes: Result<AlignedBuffer>) {
        self.state.lock().read.insert(number, bytes);
        self.changed.notify_all();
    }

    fn read(&self, number: u64) -> Result<AlignedBuffer> {
        let at = number * self.chunk;
        let file = self.segments.file(at / self.segments.size)?;
        let mut bytes = AlignedBuffer::zeroed(self.chunk as usize);
        file.read_at(Class::Prefetch, at % self.segments.size, &mut bytes)?;
        Ok(bytes)
    }

    /// The chunk that comes next; an error where nobody is to read one.
    fn take(&self) -> Result<AlignedBuffer> {
        let mut state = self.state.lock();
        let number = state.wanted;
        loop {
            if number >= state.end {
                return Err(Error::Damaged(format!("the log goes on behind lsn {}", number * self.chunk)));
            }
            if let Some(bytes) = state.read.remove(&number) {
                state.wanted = number + 1;
                self.changed.notify_all();
                return bytes;
            }
            self.changed.wait(&mut state);
        }
    }

    fn stop(&self) {
        let mut state = self.state.lock();
        state.end = state.next;
        self.changed.notify_all();
    }
}

/// Bytes of the log in memory, of one segment.
struct Window<'a> {
    ahead: &'a Ahead,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Whether the bytes up to there are in memory.
    fn reaches(&self, end: u64) -> bool {
        end <= self.start + self.bytes.len() as u64
    }

    /// Passes over everything below `end`, without keeping it.
    fn skip(&mut self, end: u64) -> Result<()> {
        while !self.reaches(end) {
            self.start += self.bytes.len() as u64;
            self.bytes.clear();
            let chunk = self.ahead.take()?;
            self.bytes.extend_from_slice(&chunk);
        }
        Ok(())
    }

    /// The bytes `range`, none of which lies before those asked for last.
    fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        while !self.reaches(range.end) {
            let unused = ((range.start - self.start) as usize).min(self.bytes.len());
            self.bytes.drain(..unused);
            self.start += unused as u64;
            let chunk = self.ahead.take()?;
            self.bytes.extend_from_slice(&chunk);
        }
        let from = (range.start - self.start) as usize;
        Ok(&self.bytes[from..from + (range.end - range.start) as usize])
    }
}

/// Gives `visit` every record from the beginning of the segment that `from` lies in up to `to`, the end of a record, as long as
/// it asks for more.
pub(crate) fn scan(
    inner: &Inner,
    from: Lsn,
    to: Lsn,
    chunk: u64,
    visit: &mut dyn FnMut(&RecordView<'_>) -> Result<bool>,
) -> Result<()> {
    assert!(to.0 <= inner.durable.load(Acquire), "only what is durable is read");
    let size = inner.segments.size;
    let chunk = chunk.min(size);
    let first = from.0 / size * size;
    let numbers = first / chunk..to.0.div_ceil(chunk);
    let state = State { next: numbers.start, wanted: numbers.start, end: numbers.end, read: BTreeMap::new() };
    let ahead = Arc::new(Ahead {
        segments: Arc::clone(&inner.segments),
        chunk,
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    let mut readers = Vec::new();
    for _ in 0..READERS.min(numbers.end - numbers.start) {
        let reader = Arc::clone(&ahead);
        match thread::try_spawn("log-read-ahead", move || reader.run()) {
            Ok(reader) => readers.push(reader),
            // Fewer are slower.
            Err(_) if !readers.is_empty() => break,
            Err(_) => return Err(no_thread()),
        }
    }
    let mut window = Window { ahead: &ahead, start: first, bytes: Vec::new() };
    let outcome = visit_all(inner, first, to.0, &mut window, visit);
    ahead.stop();
    for reader in readers {
        reader.join().map_err(|panic| Error::Poisoned(panic.to_string()))?;
    }
    outcome
}

fn visit_all(
    inner: &Inner,
    first: u64,
    to: u64,
    window: &mut Window<'_>,
    visit: &mut dyn FnMut(&RecordView<'_>) -> Result<bool>,
) -> Result<()> {
    let size = inner.segments.size;
    let mut at = first;
    while at < to {
        if at.is_multiple_of(size) {
            at += BLOCK;
            continue;
        }
        let segment_end = at.next_multiple_of(size);
        // A record ends at `to`, and none goes beyond: there is nothing that could be read.
        let (limit, database_id) = (segment_end.min(to), inner.segments.database_id);
        let mut record = None;
        if at + MIN_RECORD_LEN as u64 <= limit {
            let head = window.get(at..at + MIN_RECORD_LEN as u64)?;
            let len = u64::from(get_u32(head, 0));
            let fits = len >= MIN_RECORD_LEN as u64 && at + len <= limit;
            let is_filler = fits && record::filler_head(database_id, at, head).is_some();
            if is_filler && !window.reaches(at + len) {
                window.skip(at + len)?;
                at += len;
                continue;
            }
            if fits {
                record = RecordView::parse(database_id, at, window.get(at..at + len)?);
            }
        }
        let Some(record) = record else {
            let path = inner.segments.path(at / size);
            return Err(Error::Damaged(format!(
                "log {path:?}, offset {}: no record begins there",
                at % size
            )));
        };
        if !visit(&record)? {
            return Ok(());
        }
        at = record.end();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{GroupBuilder, Known, Log, LogFiles, LogOptions};
    use super::*;
    use gannet_base::PageId;
    use gannet_base::memory::Budget;
    use gannet_io::Disk;
    use gannet_io::sim::SimDisk;
    use std::path::Path;

    const SEGMENT: u64 = 256 << 10;
    const CHUNK: u64 = 16 << 10;

    /// A log of some records, of a life that ended, and of another one behind it: what was left of the segment is a filler.
    fn twice_begun() -> Log {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let (folder, budget) = (Path::new("/l-wal"), Budget::new(16 << 20));
        let options = LogOptions { segment_size: SEGMENT, ring_size: SEGMENT / 2, ..LogOptions::new(77) };
        let append = |log: &Log| {
            let mut group = GroupBuilder::new();
            group.change(PageId(1), Lsn::ZERO, 3, false, |out| out.resize(out.len() + 100, 1));
            let lsn = log.append(&group).unwrap();
            log.flush_to(lsn).unwrap();
        };
        append(&Log::create(&disk, folder, &options, Lsn::ZERO, 1, &budget).unwrap());
        let files = LogFiles::find(&disk, folder, &options, Lsn::ZERO).unwrap().unwrap();
        let known = Known { incarnation: 1, ..Known::default() };
        let (_, log) = Log::recover(&files, &options, &known, &budget).unwrap();
        log.start_writing(2).unwrap();
        append(&log);
        log
    }

    /// All chunks of a log, read.
    fn read(log: &Log) -> Ahead {
        let end = log.end().0.div_ceil(CHUNK);
        let state = State { next: end, wanted: 0, end, read: BTreeMap::new() };
        let segments = Arc::clone(&log.inner.segments);
        let ahead = Ahead { segments, chunk: CHUNK, state: Mutex::new(state), changed: Condvar::new() };
        (0..end).for_each(|number| ahead.put(number, ahead.read(number)));
        ahead
    }

    fn visit(log: &Log, window: &mut Window<'_>) -> Result<Vec<Lsn>> {
        let mut seen = Vec::new();
        visit_all(&log.inner, 0, log.end().0, window, &mut |record| {
            seen.push(Lsn(record.end()));
            Ok(true)
        })?;
        Ok(seen)
    }

    #[test]
    fn a_filler_was_read_whole() {
        let log = twice_begun();
        assert!(log.end().0 > SEGMENT);
        let ahead = read(&log);
        let mut window = Window { ahead: &ahead, start: 0, bytes: Vec::new() };
        let seen = visit(&log, &mut window).unwrap();
        assert_eq!(seen.last(), Some(&log.end()), "{seen:?}");
        let most = window.bytes.capacity() as u64;
        assert!(most <= 4 * CHUNK, "{most} bytes of a segment were in memory at one time");
    }

    #[test]
    fn a_record_that_is_said_to_go_on_behind_the_end_was_waited_for() {
        let log = twice_begun();
        for len in [log.end().0 - SEGMENT, SEGMENT - BLOCK] {
            let ahead = read(&log);
            let number = (SEGMENT + BLOCK) / CHUNK;
            let at = ((SEGMENT + BLOCK) % CHUNK) as usize;
            let mut state = ahead.state.lock();
            let chunk = state.read.get_mut(&number).unwrap().as_mut().unwrap();
            chunk[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
            drop(state);
            let mut window = Window { ahead: &ahead, start: 0, bytes: Vec::new() };
            assert!(matches!(visit(&log, &mut window), Err(Error::Damaged(_))));
            assert!(matches!(window.skip(2 * SEGMENT), Err(Error::Damaged(_))), "there is no such chunk");
        }
    }
}
