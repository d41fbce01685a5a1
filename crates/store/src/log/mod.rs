//! The write-ahead log.
//!
//! One endless stream of bytes; a position in it is an [`Lsn`]. It is stored in segment files of one size, each a header
//! block, records, and a footer that indexes them. A record is one atomic group of page changes under one checksum, so
//! an incomplete group is simply no record. Byte layout: `docs/format.md`.
//!
//! # What it guarantees
//! 1. When [`Log::flush_to`] or [`Log::flush_commit`] returned for an LSN, every record up to it survives any crash and is found by
//!    [`Log::recover`]. Recovery finds a prefix of what was appended, of whole records, and never bytes of another place,
//!    database or life of the log.
//! 2. Acknowledged log that is gone is reported as [`Error::Damaged`], naming file and position: a hole is told from a
//!    crash by what the records behind it claim.
//! 3. After a failed write everything fails with [`Error::Poisoned`], naming the first cause.
//! 4. Its memory (ring, write buffers, index of the current segment, table of open transactions, redo table, reader caches) is
//!    charged to the budget. A [`Footer`] or [`Record`] handed out is the caller's to charge.
//!
//! # How the parts hang together
//! - `record`: a record's bytes. `segment`: files, header blocks, recycling. `footer`: a segment's index. `buffer`: the
//!   ring.
//! - `append`: under one mutex, a copy into the ring. `flush`: group commit that gathers.
//! - `recover`: finding the end. `seal`: ending a crashed segment, beginning a new life. `redo`: the pages to look at.
//! - `reader`: records by LSN, and one page's history.
//!
//! # Lives of the log
//! Each start of the log after a restart is a new *incarnation*, larger than all before, which the caller makes durable
//! elsewhere before [`Log::start_writing`]. Checksums mix it in. What a dead life left behind the log's end (it may verify, it
//! was never acknowledged) can so never be taken for what the new life writes at the same positions.

#![forbid(unsafe_code)]

use self::append::State;
use self::buffer::Ring;
use self::flush::{FlushState, WRITE_MAX, Wait};
use self::footer::Index;
use self::record::{Draft, Identity, RecordKind as Kind, padded};
use self::recover::{Scanner, Unsealed};
use self::segment::Segments;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, PageId, TxnId};
use gannet_io::{AlignedBuffer, Class, Disk, ModeRequest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

mod append;
mod buffer;
mod flush;
mod footer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod note;
mod reader;
mod record;
mod recover;
mod redo;
mod scan;
mod seal;
mod segment;
mod walk;

#[cfg(test)]
mod tests;

pub use flush::Flusher;
pub use footer::Footer;
pub(crate) use note::{CLOCK_EVERY_US, Note, POINT_NAME_MAX};
pub use reader::{LogReader, PageChange};
pub(crate) use record::RecordView;
pub use record::{ChangeView, Changes, GroupBuilder, Record, RecordKind, TxnEvent, TxnInfo};
pub use recover::Recovery;
pub use redo::{RedoEntry, RedoTable};
pub(crate) use segment::{BLOCK, SegmentHeader, is_ours, segment_path};
pub(crate) use walk::{Met, Step, Walk};

/// Pages of one note that they came home: the shortest record there is a limit for has room for so many.
const HOMES_AT_ONCE: usize = 256;

/// How a log is laid out and how much memory it takes. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The database's own number, mixed into every checksum.
    pub database_id: u64,
    /// Size of a segment file: a power of two, 256 KiB to 1 GiB. Default 16 MiB. Fixed when the database is created.
    pub segment_size: u64,
    /// Bytes between append and device: a power of two, at least half a segment. Default 8 MiB.
    pub ring_size: u64,
    /// Writes at the device at one time, 1 to 64. Default 2.
    pub max_in_flight: usize,
    /// Segments that [`Log::prepare`] keeps ready ahead of the one in use. Default 2.
    pub reserve_segments: u64,
    /// Segments that are not needed are kept for later use up to this size in all, those in use included. Default 1 GiB.
    pub recycle_max: u64,
    /// How segment files are opened.
    pub mode: ModeRequest,
}

impl LogOptions {
    /// The defaults for a database.
    pub fn new(database_id: u64) -> Self {
        LogOptions {
            database_id,
            segment_size: 16 << 20,
            ring_size: 8 << 20,
            max_in_flight: 2,
            reserve_segments: 2,
            recycle_max: 1 << 30,
            mode: ModeRequest::Auto,
        }
    }

    fn check(&self) -> Result<()> {
        let segment = self.segment_size.is_power_of_two() && (1 << 18..=1 << 30).contains(&self.segment_size);
        let ring =
            self.ring_size.is_power_of_two() && (self.segment_size / 2..=1 << 30).contains(&self.ring_size);
        let in_flight = (1..=64).contains(&self.max_in_flight);
        for (ok, what) in [
            (segment, "segment_size is a power of two from 256KiB to 1GiB"),
            (ring, "ring_size is a power of two from half of segment_size to 1GiB"),
            (in_flight, "max_in_flight is from 1 to 64"),
        ] {
            if !ok {
                return Err(Error::Invalid(format!("log: {what}")));
            }
        }
        Ok(())
    }

    /// The longest record: an eighth of the ring or of a segment, whichever is less.
    pub fn max_record_len(&self) -> usize {
        (self.ring_size.min(self.segment_size) / 8) as usize
    }

    /// The most changes of one group: as many as take a quarter of the ring in the segment's index.
    pub fn max_changes(&self) -> usize {
        self.ring_size as usize / 4 / footer::PAGE_LEN
    }

    /// The most transactions with changes open at one time: one for each 256 bytes of a segment.
    pub fn max_open_transactions(&self) -> usize {
        (self.segment_size / 256) as usize
    }

    /// Memory that an open log takes as long as it is open, apart from its index of pages.
    pub(crate) fn memory(&self) -> u64 {
        self.ring_size + self.write_max() * self.max_in_flight as u64 + segment::fill_chunk(self.segment_size)
    }

    fn write_max(&self) -> u64 {
        WRITE_MAX.min(self.ring_size / 4)
    }
}

/// What all handles of one log share.
#[derive(Debug)]
pub(crate) struct Inner {
    options: LogOptions,
    budget: Budget,
    segments: Arc<Segments>,
    state: Mutex<State>,
    /// Signals the flusher, with `state`'s mutex.
    flusher: Condvar,
    /// What [`Log::start_writing`] has to do.
    unsealed: Mutex<Option<Unsealed>>,
    /// Everything below is on the device; may lie inside a record.
    durable: AtomicU64,
    /// The same up to the end of a record.
    durable_records: AtomicU64,
    end: AtomicU64,
    keep_from: AtomicU64,
    holds: Mutex<BTreeMap<u64, Held>>,
    /// 0 until the log is open for appending.
    incarnation: AtomicU32,
    write_max: u64,
    _charge: Charge,
}

impl Inner {
    fn new(
        options: &LogOptions,
        segments: Arc<Segments>,
        budget: &Budget,
        keep_from: Lsn,
        held_from: Option<Lsn>,
        resumption: recover::Resumption,
    ) -> Result<Arc<Self>> {
        let write_max = options.write_max();
        let charge = budget.charge(Purpose::Log, options.memory())?;
        // On a full disk the first segment of the new life may have to come from here.
        segments.keep_from(held_from.unwrap_or(keep_from).min(keep_from).0 / options.segment_size);
        let end = resumption.end;
        let state = State {
            ring: Ring::new(options.ring_size as usize),
            segment_size: options.segment_size,
            identity: Identity { database_id: options.database_id, incarnation: 0 },
            end,
            last_crc: resumption.last_crc,
            first: resumption.first,
            index: resumption.index,
            flush: FlushState::new(end, options),
        };
        Ok(Arc::new(Inner {
            options: options.clone(),
            budget: budget.clone(),
            segments,
            state: Mutex::new(state),
            flusher: Condvar::new(),
            unsealed: Mutex::new(Some(resumption.unsealed)),
            durable: AtomicU64::new(end),
            durable_records: AtomicU64::new(end),
            end: AtomicU64::new(end),
            keep_from: AtomicU64::new(keep_from.0),
            holds: Mutex::default(),
            incarnation: AtomicU32::new(0),
            write_max,
            _charge: charge,
        }))
    }
}

/// The files of a log as they are found, before anything is known of them.
#[derive(Debug)]
pub struct LogFiles {
    segments: Arc<Segments>,
}

impl LogFiles {
    /// Looks at all files in `folder`, which need not be there, for a restart that needs the log from `redo_from` on.
    pub fn find(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        options: &LogOptions,
        redo_from: Lsn,
    ) -> Result<Option<Self>> {
        if !disk.exists(folder)? {
            return Ok(None);
        }
        let segments = Arc::new(Segments::open(Arc::clone(disk), folder, options)?);
        segments.survey((redo_from.0 / options.segment_size).saturating_sub(1))?;
        Ok(Some(LogFiles { segments }))
    }

    /// Number of the last segment of this database that was ever written to, and the newest incarnation of all of them.
    pub fn newest_segment(&self) -> Result<Option<(u64, u32)>> {
        let mut newest: Option<(u64, u32)> = None;
        for number in self.segments.numbers() {
            if let Some(header) = self.segments.read_header(number)? {
                let before = newest.map_or(0, |(_, incarnation)| incarnation);
                newest = Some((number, header.identity.incarnation.max(before)));
            }
        }
        Ok(newest)
    }

    /// Which of the segments are of another database, ascending.
    pub(crate) fn foreign_segments(&self) -> Result<Vec<PathBuf>> {
        let mut foreign = Vec::new();
        for number in self.segments.numbers() {
            if self.segments.read_owner(number)?.is_some_and(|owner| owner != self.segments.database_id) {
                foreign.push(self.segments.path(number));
            }
        }
        Ok(foreign)
    }
}

/// What the data file says of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Where redo begins.
    pub redo_from: Lsn,
    /// What segments below say of pages that came home is not true of this copy of the data file.
    pub homes_from: Lsn,
    /// The newest life of the log that the data file knows.
    pub incarnation: u32,
    /// Log from there on is kept as well, as far as it is there, until somebody holds it; `None` for none.
    pub held_from: Option<Lsn>,
    /// The log ends where it breaks off, as far as what is before can be understood; then it is not to be written.
    pub salvages: bool,
}

/// A write-ahead log. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
}

impl Log {
    /// Makes a new log in `folder` and opens it for appending. It begins at the first segment boundary at or above
    /// `start`, which [`Log::end`] then says; `incarnation` is larger than any before in this database, and not 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the folder holds a log of this database already.
    pub fn create(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        options: &LogOptions,
        start: Lsn,
        incarnation: u32,
        budget: &Budget,
    ) -> Result<Log> {
        options.check()?;
        disk.create_dir(folder)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        disk.sync_dir(parent.unwrap_or(Path::new(".")))?;
        let segments = Arc::new(Segments::open(Arc::clone(disk), folder, options)?);
        for number in segments.numbers() {
            if segments.read_header(number)?.is_some() {
                let text = format!("{folder:?} holds a log of this database: {:?}", segments.path(number));
                return Err(Error::Invalid(text));
            }
        }
        let end = start.0.next_multiple_of(options.segment_size);
        let resumption = recover::Resumption {
            end,
            last_crc: 0,
            first: true,
            index: Index::new(end, budget)?,
            unsealed: Unsealed { incarnation: 0, tail: None, has_room: false },
        };
        let inner = Inner::new(options, segments, budget, Lsn(end), None, resumption)?;
        inner.start_writing(incarnation)?;
        Ok(Log { inner })
    }

    /// Reads what a crash or shutdown left in these files. Nothing is written before [`Log::start_writing`]; reading
    /// through [`Log::reader`] works at once.
    ///
    /// # Errors
    /// [`Error::Damaged`] when log that was acknowledged, or that `redo_from` needs, is not there.
    pub fn recover(
        files: &LogFiles,
        options: &LogOptions,
        known: &Known,
        budget: &Budget,
    ) -> Result<(Recovery, Log)> {
        options.check()?;
        let segments = Arc::clone(&files.segments);
        let (recovery, resumption) = Scanner::new(&segments, budget, *known)?.run()?;
        let inner = Inner::new(options, segments, budget, known.redo_from, known.held_from, resumption)?;
        Ok((recovery, Log { inner }))
    }

    /// Makes the segment ready in which the log goes on, which may find no room: before the data file says that it is not closed, and needs the log.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; nothing has changed then that a reader of the log could tell.
    pub fn make_room_to_start(&self) -> Result<()> {
        self.inner.make_room_to_start()
    }

    /// Ends the segment the crash left and opens the log for appending in a new life. The caller has made
    /// `incarnation`, larger than any before, durable in the data file.
    pub fn start_writing(&self, incarnation: u32) -> Result<()> {
        self.inner.start_writing(incarnation)
    }

    /// Appends a group and returns its LSN, without waiting for the device (unless the ring is full).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group longer than [`LogOptions::max_record_len`] or of more than [`LogOptions::max_changes`]
    /// changes, or too many open transactions,
    /// [`Error::NoSpace`] or [`Error::Memory`] when the next segment or the index find no room. Nothing was appended then.
    pub fn append(&self, group: &GroupBuilder) -> Result<Lsn> {
        self.inner.append(&group.draft())
    }

    /// Appends bytes of the caller's, which only [`LogReader::read_at`] gives back.
    pub fn append_note(&self, payload: &[u8]) -> Result<Lsn> {
        let mut body = payload.to_vec();
        body.resize(padded(body.len()), 0);
        let padding = (body.len() - payload.len()) as u8;
        self.inner.append(&Draft {
            kind: Kind::Note,
            txn: None,
            padding,
            body: &body,
            pages: &[],
            homes: &[],
        })
    }

    /// Notes states of pages, sorted by page, as durable in the data file: a restart need not look at them. False where one is so far back that the
    /// segment will not tell of it once it is sealed.
    pub(crate) fn append_homes(&self, pages: &[(PageId, Lsn)]) -> Result<bool> {
        for homes in pages.chunks(HOMES_AT_ONCE) {
            let (body, padding) = record::encode_homes(homes);
            self.inner.append(&Draft {
                kind: Kind::Home,
                txn: None,
                padding,
                body: &body,
                pages: &[],
                homes,
            })?;
        }
        // Where the segment ends that has the last of these notes, at most.
        let segment_end = self.end().0 + self.segment_size();
        Ok(pages.iter().all(|&(_, lsn)| footer::home_back(segment_end, lsn).is_some()))
    }

    /// Waits until everything up to `lsn` is durable, writing what is missing as soon as a write may begin.
    pub fn flush_to(&self, lsn: Lsn) -> Result<()> {
        self.wait_for(lsn, Wait::Now)
    }

    /// The same for a commit, one of many: others who commit as well, and come within a few writes' time, share its write.
    pub fn flush_commit(&self, lsn: Lsn) -> Result<()> {
        self.wait_for(lsn, Wait::Commit)
    }

    fn wait_for(&self, lsn: Lsn, wait: Wait) -> Result<()> {
        self.inner.flush_until(lsn.0, wait)?;
        self.inner.durable_records.fetch_max(lsn.0, AcqRel);
        Ok(())
    }

    /// Writes everything appended so far that nobody waits for yet.
    pub fn flush_background(&self) -> Result<()> {
        self.flush_to(self.end())
    }

    /// Every record up to here is durable; the end of a record.
    pub fn durable(&self) -> Lsn {
        Lsn(self.inner.durable_records.load(Acquire))
    }

    /// Behind the last record appended.
    pub fn end(&self) -> Lsn {
        Lsn(self.inner.end.load(Acquire))
    }

    /// The life of the log that appends; 0 before [`Log::start_writing`] and after [`Log::close`].
    pub fn incarnation(&self) -> u32 {
        self.inner.incarnation.load(Acquire)
    }

    /// Keeps reserve segments ready, and of those nobody needs as many as the log will come to need, as far as its recent
    /// past tells. For a background thread, after [`Log::set_keep_from`] and whenever a segment was filled.
    pub fn prepare(&self) -> Result<()> {
        self.inner.segments.make_ready(self.last_reserve(), Class::Maintenance)?;
        self.inner.segments.trim()
    }

    /// Removes what is kept for later use only, where the disk is full; not what [`Log::prepare`] needs now.
    pub fn give_up_spares(&self) -> Result<()> {
        self.inner.segments.give_up_spares(self.last_reserve())
    }

    /// Lets everything go that somebody holds and redo does not need, where the disk is full: who reads it is not to be in the way of those
    /// who write. Who holds nothing else keeps it.
    pub(crate) fn give_up_holds(&self) {
        let mut holds = self.inner.holds.lock();
        let needed = self.inner.keep_from.load(Acquire) / self.inner.segments.size;
        for held in holds.values_mut().filter(|held| held.from / self.inner.segments.size < needed) {
            held.lost.get_or_insert(Lost::FullDisk);
        }
        self.inner.release(&mut holds);
    }

    /// The last segment to be kept ready.
    fn last_reserve(&self) -> u64 {
        self.end().0 / self.inner.segments.size + self.inner.options.reserve_segments
    }

    /// Bytes that can be appended before a segment has to be made ready first, footers not counted.
    pub fn room(&self) -> u64 {
        self.inner.segments.ready_end_lsn().saturating_sub(self.end().0)
    }

    /// Nothing below `lsn` is needed for redo any more. Never goes back. What somebody holds stays all the same.
    pub fn set_keep_from(&self, lsn: Lsn) {
        assert!(lsn <= self.durable(), "what is not durable is needed");
        let mut holds = self.inner.holds.lock();
        self.inner.keep_from.fetch_max(lsn.0, Release);
        self.inner.release(&mut holds);
    }

    /// Keeps the log from its end on, for somebody who reads it: it does not count for [`Log::used_bytes`], and nobody waits for it. Who is
    /// farther behind what redo needs than [`LogOptions::recycle_max`] loses it.
    pub(crate) fn hold(&self) -> LogHold {
        // Nothing of it was let go: that is only what redo does not need, and is durable.
        self.hold_by(|| self.end())
    }

    /// The same from `from` on for somebody who has lost what he held, or, where that was let go of, from where the first segment begins of which
    /// nothing was.
    pub(crate) fn hold_again(&self, from: Lsn) -> LogHold {
        // With the holds locked nothing more is let go of.
        let segments = &self.inner.segments;
        self.hold_by(|| from.max(Lsn(segments.kept_from() * segments.size)))
    }

    /// The same from a position on which the caller knows to be there still; see also [`Known::held_from`].
    pub(crate) fn hold_from(&self, from: Lsn) -> LogHold {
        self.hold_by(|| from)
    }

    fn hold_by(&self, from: impl FnOnce() -> Lsn) -> LogHold {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, AcqRel);
        let mut holds = self.inner.holds.lock();
        let from = from();
        holds.insert(number, Held { from: from.0, lost: None });
        LogHold { log: self.clone(), number, from }
    }

    /// Where the segments begin that are there, one behind the other, up to the end of the log: nothing is held by saying so.
    pub(crate) fn oldest_kept(&self) -> Result<Lsn> {
        let segments = &self.inner.segments;
        let mut number = self.end().0.saturating_sub(1) / segments.size;
        let keep = segments.kept_from();
        while number > keep && segments.read_header(number - 1)?.is_some() {
            number -= 1;
        }
        Ok(Lsn(number * segments.size))
    }

    /// The header of the segment that `at` lies in; `None` where it is not there, in its place.
    pub(crate) fn segment_header(&self, at: Lsn) -> Result<Option<SegmentHeader>> {
        self.inner.segments.read_header(at.0 / self.inner.segments.size)
    }

    /// Bytes of log that are still needed, to be compared with the caller's limit.
    pub fn used_bytes(&self) -> u64 {
        self.end().0.saturating_sub(self.inner.keep_from.load(Acquire))
    }

    /// Transactions open in the log with their newest undo pointers, sorted by transaction.
    pub fn open_transactions(&self) -> Vec<(TxnId, u64)> {
        let state = self.inner.state.lock();
        state.index.open.iter().map(|(&id, &undo)| (TxnId(id), undo)).collect()
    }

    /// A reader whose cache takes `cache_bytes` (at least 128 KiB).
    pub fn reader(&self, cache_bytes: u64) -> Result<LogReader> {
        LogReader::new(&self.inner, cache_bytes)
    }

    /// Gives `visit` every record from the beginning of the segment that `from` lies in up to `to`, in order, as long as it asks
    /// for more; `chunk` bytes are read at a time, and [`Log::scan_memory`] taken. What is found of a life before is believed, as
    /// [`Log::recover`] has followed it; with a record that does not verify the scan ends.
    pub(crate) fn scan(
        &self,
        from: Lsn,
        to: Lsn,
        chunk: u64,
        visit: &mut dyn FnMut(&RecordView<'_>) -> Result<bool>,
    ) -> Result<()> {
        scan::scan(&self.inner, from, to, chunk, visit)
    }

    /// Memory that [`Log::scan`] takes with chunks of this size, in bytes.
    pub(crate) fn scan_memory(&self, chunk: u64) -> u64 {
        scan::memory(chunk, self.inner.options.ring_size)
    }

    /// The footer of the segment that `at` lies in; `None` while it is not sealed. Its memory is added to `memory`, until that is
    /// dropped; those for whom page frames cannot make room, as they wait for them to, have none: then the footer is charged where
    /// there is room, and read in any case. What it takes is bounded by the segment's size.
    pub(crate) fn footer(&self, at: Lsn, memory: Option<&mut WorkMemory>) -> Result<Option<Footer>> {
        let segments = &self.inner.segments;
        let number = at.0 / segments.size;
        if (number + 1) * segments.size > self.durable().0 {
            return Ok(None);
        }
        let Some(header) = segments.read_header(number)? else { return Ok(None) };
        let (footer, _charge) = recover::read_footer(segments, number, |bytes| match memory {
            Some(memory) => memory.grow(bytes.saturating_sub(memory.bytes())).map(|()| None),
            None => Ok(self.inner.budget.charge(Purpose::Log, bytes).ok()),
        })?;
        Ok(footer.map(|(footer, _)| footer).filter(|f| f.incarnation == header.identity.incarnation))
    }

    /// The pages of which the log still holds changes, each with the LSN of its last one; `None` where some are not known, as `unreadable` is told: of
    /// every footer that there should be. `memory` is for footers, one at a time.
    pub(crate) fn last_changes(
        &self,
        memory: &mut WorkMemory,
        unreadable: &mut dyn FnMut(Error),
    ) -> Result<Option<RedoTable>> {
        let mut is_complete = true;
        let mut table = RedoTable::new(&self.inner.budget)?;
        let size = self.segment_size();
        let mut at = self.inner.keep_from.load(Acquire) / size * size;
        loop {
            // Nobody appends as long as that is locked: what is copied is sorted afterwards.
            let (open, last) = {
                let index = &self.inner.state.lock().index;
                let open = index.segment_start();
                (open, (open <= at).then(|| index.pages_unsorted()))
            };
            if let Some(mut pages) = last {
                pages.sort_unstable();
                table.add_segment(Lsn(open), &pages, &[], Lsn::ZERO)?;
                break;
            }
            // A footer is trusted once it is durable.
            self.flush_to(Lsn(open))?;
            while at < open {
                let footer = self.footer_there(Lsn(at), memory);
                at += size;
                // The pages of a segment that a checkpoint let go of meanwhile are home, and its file may be another one's by now.
                if at <= self.inner.keep_from.load(Acquire) / size * size {
                    continue;
                }
                match footer {
                    Ok(Some(footer)) => {
                        table.add_segment(footer.segment_start, &footer.pages, &[], Lsn::ZERO)?
                    }
                    Ok(None) => {}
                    Err(error) if error.is_unreadable() => {
                        is_complete = false;
                        unreadable(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        table.finish()?;
        Ok(is_complete.then_some(table))
    }

    /// The footer of a sealed segment; `None` where the log begins behind it.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the segment behind it says that there was one, and it has no valid footer.
    fn footer_there(&self, start: Lsn, memory: &mut WorkMemory) -> Result<Option<Footer>> {
        let footer = self.footer(start, Some(memory))?;
        let (segments, number) = (&self.inner.segments, start.0 / self.segment_size());
        match footer {
            None if segments.read_header(number + 1)?.is_some_and(|next| !next.first) => {
                let path = segments.path(number);
                Err(Error::Damaged(format!("log {path:?}: its footer is missing or damaged")))
            }
            footer => Ok(footer),
        }
    }

    /// Gives `visit` every page that was changed from the segment that `from` lies in on, with the LSN of its last change in a
    /// segment, as often as there are segments that changed it. Somebody holds the log from there on. Gives the LSN up to which
    /// changes were looked at. `memory` is for footers, one at a time.
    pub(crate) fn changed_pages(
        &self,
        from: Lsn,
        memory: &mut WorkMemory,
        visit: &mut dyn FnMut(PageId, Lsn),
    ) -> Result<Lsn> {
        let size = self.segment_size();
        let mut at = from.0 / size * size;
        loop {
            let (open, last) = {
                let state = self.inner.state.lock();
                let open = state.index.segment_start();
                // The index may be of the segment before, which is full then.
                (open, (open <= at).then(|| (state.index.pages_unsorted(), Lsn(state.end))))
            };
            // Whoever visits may wait for memory: without the lock.
            if let Some((mut pages, end)) = last {
                pages.sort_unstable();
                pages.into_iter().for_each(|(page, lsn)| visit(page, lsn));
                return Ok(end);
            }
            // A footer is trusted once it is durable.
            self.flush_to(Lsn(open))?;
            while at < open {
                let footer = self.footer(Lsn(at), Some(memory))?.ok_or_else(|| {
                    let path = self.inner.segments.path(at / size);
                    Error::Damaged(format!("log {path:?}: its footer is missing or damaged"))
                })?;
                footer.pages.iter().for_each(|&(page, lsn)| visit(page, lsn));
                at += size;
            }
        }
    }

    /// Reads bytes of the log as they are on the device, from `at` on, which is a multiple of 4096; within one segment.
    pub(crate) fn read_raw(&self, class: Class, at: Lsn, bytes: &mut [u8]) -> Result<()> {
        let size = self.segment_size();
        assert!(at.0 / size == (at.0 + bytes.len() as u64 - 1) / size, "one segment at a time");
        Ok(self.inner.segments.file(at.0 / size)?.read_at(class, at.0 % size, bytes)?)
    }

    /// Length of the footer of the sealed segment that begins at `start`, and whatever lies with it in the same blocks; `None` where
    /// the log begins behind it.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the segment behind it says that there was one, and it has no valid footer.
    pub(crate) fn footer_blocks(&self, start: Lsn, memory: &mut WorkMemory) -> Result<Option<u64>> {
        let size = self.segment_size();
        if self.footer_there(start, memory)?.is_none() {
            return Ok(None);
        }
        let mut block = AlignedBuffer::zeroed(segment::BLOCK as usize);
        self.read_raw(Class::Maintenance, Lsn(start.0 + size - segment::BLOCK), &mut block)?;
        let len = crate::page::get_u32(&block, block.len() - record::TRAILER_LEN);
        Ok(Some(u64::from(len).next_multiple_of(segment::BLOCK)))
    }

    /// Size of a segment in bytes.
    pub fn segment_size(&self) -> u64 {
        self.inner.segments.size
    }

    /// Starts a thread that leaves nothing appended unflushed for longer than about `max_delay`.
    pub fn start_flusher(&self, max_delay: Duration) -> Flusher {
        Flusher::start(&self.inner, max_delay)
    }

    /// Flushes everything, takes nothing more, and returns the log's end with the checksum of its last record (0 for none),
    /// as a [`Recovery`] will find them. When the data file is complete up to there, the folder is not needed any more.
    pub fn close(&self) -> Result<(Lsn, u32)> {
        loop {
            let end = self.end();
            self.flush_to(end)?;
            let mut state = self.inner.state.lock();
            if state.end == state.flush.durable {
                state.identity.incarnation = 0;
                self.inner.incarnation.store(0, Release);
                return Ok((Lsn(state.end), state.last_crc));
            }
        }
    }

    /// Removes every file of the log in `folder`, and leaves the folder.
    pub fn remove_all(disk: &Arc<dyn Disk>, folder: &Path) -> Result<()> {
        for name in disk.list(folder)?.iter().filter(|name| is_ours(name)) {
            disk.remove(&folder.join(name))?;
        }
        Ok(disk.sync_dir(folder)?)
    }
}

impl Inner {
    /// Lets segments go that neither redo nor anybody who holds them needs.
    fn release(&self, holds: &mut BTreeMap<u64, Held>) {
        let keep_from = self.keep_from.load(Acquire);
        // However slow somebody is, others are not to run out of room because of it.
        let is_late = |held: &Held| held.from.saturating_add(self.options.recycle_max) < keep_from;
        for held in holds.values_mut().filter(|held| is_late(held)) {
            held.lost.get_or_insert(Lost::Late);
        }
        let kept = holds.values().filter(|held| held.lost.is_none());
        let held = kept.map(|held| held.from).min().unwrap_or(u64::MAX);
        let needed = keep_from.min(held);
        self.segments.keep_from(needed / self.segments.size);
    }
}

/// What somebody holds.
#[derive(Debug)]
struct Held {
    from: u64,
    /// Nothing is kept for him any more.
    lost: Option<Lost>,
}

/// Why log was let go of that somebody held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// He was farther behind than what is kept for those who are slow.
    Late,
    /// The disk was full: [`Log::give_up_holds`].
    FullDisk,
}

/// Keeps a part of the log as long as it lives: from [`LogHold::from`] on, and the footer of the segment before.
#[derive(Debug)]
pub(crate) struct LogHold {
    log: Log,
    number: u64,
    from: Lsn,
}

impl LogHold {
    /// From where on.
    pub(crate) fn from(&self) -> Lsn {
        self.from
    }

    /// What lies below is not needed any more.
    pub(crate) fn advance(&mut self, from: Lsn) {
        self.from = self.from.max(from);
        let mut holds = self.log.inner.holds.lock();
        if let Some(held) = holds.get_mut(&self.number) {
            held.from = self.from.0;
        }
        self.log.inner.release(&mut holds);
    }

    /// Whether nothing was lost until now: what was read before this is asked was the log.
    pub(crate) fn is_kept(&self) -> bool {
        self.lost().is_none()
    }

    /// Why something was lost, if it was.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.witness().lost()
    }

    /// For others who read what is kept.
    pub(crate) fn witness(&self) -> HoldWitness {
        HoldWitness { log: self.log.clone(), number: self.number }
    }
}

/// Knows whether a [`LogHold`] still keeps what it did; keeps nothing itself.
#[derive(Clone, Debug)]
pub(crate) struct HoldWitness {
    log: Log,
    number: u64,
}

impl HoldWitness {
    /// See [`LogHold::lost`]; lost, too, where the hold is gone.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.log.inner.holds.lock().get(&self.number).map_or(Some(Lost::Late), |held| held.lost)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        let mut holds = self.log.inner.holds.lock();
        holds.remove(&self.number);
        self.log.inner.release(&mut holds);
    }
}
