//! Making a database from backups.
//!
//! # A crash at any point
//! The new file is called `NAME.partial`, marked as one that is being created before anything else is in it, and gets its header when pages and log
//! are durable. Then it is opened, which applies the log, and closed; and when that has shown that it is as it is to be, it gets its name. The next
//! attempt removes what it finds under the partial name. Nothing else that is a database, or was ever one, is written to.
//!
//! # How
//! Of backups in folders the newest is read first, and a page that it has is not written again from an older one. A stream is read as it
//! comes. The log is that of the newest one; where it is not little it is applied to the pages before the database is opened, and the rest by that. Of an archive's log, which may be many times as
//! long, no more lies beside the file than a database may have of its log (`wal_limit`): when there is that much it is applied to the pages
//! ([`replay`]), and all goes but what is needed to go on behind it.
//!
//! # What an older backup has and the newest has not
//! Between two backups the file may have been cut off and have grown again. Pages that an older one has of there are free by now, or the newer has them.
//! The first is harmless: a free page has any bytes, and begins with its first contents when it is taken. But for one kind, that are found by their
//! place and by what is in them: space maps. One of a group that the newer backup does not count is not brought back ([`Begin::outdates`]), or it
//! would say that pages are in use which nothing leads to, and of which some may lie behind the end of the file. In its place are zeros, which are no map.
//! A newer backup that counts the group again has its map, whether or not that has changed.

use super::format::{Codec, FrameKind, HEAD, STORED_MAX};
use super::manifest::{Begin, Manifest, PAGES_MAX};
use super::segments::Segments;
use super::source::{Feed, Frame, Item, Source};
use crate::archive::{Added, Extension, Place, Plan};
use crate::block::{Block, FileRange};
use crate::database::{Attempt, Database, replay, wal_limit};
use crate::engine::{Engine, OpenOptions};
use crate::jobs::{Crew, Stop, Unit, Watch, Worker, run_crew};
use crate::log::BLOCK;
use crate::mutation::{Mutation, planted};
use crate::page::{self, Verdict};
use crate::page_set::PageSet;
use crate::space::{self, EXTENT_PAGES};
use crate::{Error, Result, meta, ring};
use gannet_base::Lsn;
use gannet_base::memory::Purpose;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::units::format_size;
use gannet_io::{AlignedBuffer, Class, Direction, Disk, Durability, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Threads that read and write, at most.
const WORKERS: usize = 4;
/// Blocks of each of them.
const BLOCKS: usize = 2;
/// How often whoever waits for the others looks whether there is still reason to.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So many segments of an archive's log are left to opening the database.
const REST_SEGMENTS: u64 = 4;
/// How long closing the new database may take, at most: nobody else waits for it.
const CLOSE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Bytes that a file has behind the last page that an archived log names: as a file has that grows.
const GROWS_BY: u64 = 2 << 20;
/// Bytes that the file grows by at one time: a file system that cannot give room without writing takes long for much of it.
const GROWN_AT_ONCE: u64 = 64 << 20;

/// What was restored.
#[derive(Clone, Debug)]
pub struct RestoreReport {
    /// What the newest backup says of itself.
    pub manifest: Manifest,
    /// The database is as it was at this LSN: the backup's end, or the target in an archive.
    pub end_lsn: u64,
    /// How the database came up; what of an archive's log was applied before is counted in it.
    pub restart: crate::RestartReport,
}

/// What of the log was applied to the pages already.
struct Applied {
    /// Redo goes on there.
    redo_from: u64,
    /// Above every transaction number in it.
    next_txn: u64,
    pages: u64,
    changes: u64,
}

/// What was written.
struct Written {
    manifest: Manifest,
    /// Where the log ends.
    end: u64,
    applied: Applied,
}

/// The frames of a source, what of them is under way, and what was made of them.
struct State {
    feed: Feed,
    /// Frames that somebody works on.
    at_work: usize,
    /// Somebody waits for those, as another backup begins: nobody reads on.
    between: bool,
    /// The backup that is being read.
    begin: Option<Begin>,
    /// It is the newest one of those that came so far.
    is_newest: bool,
    /// What the newest backup says of itself.
    newest: Option<Manifest>,
    segments: Segments,
    /// Behind the last byte of log that is there, in whole blocks.
    log_end: u64,
}

/// A restore under way.
struct Restore {
    state: Mutex<State>,
    /// Told when somebody is through with a frame.
    settled: Condvar,
    /// Pages that a newer backup had; `None` where backups come in the order in which they were taken.
    done: Option<PageSet>,
    /// What the newest backup says, where that is known before the others are read.
    newest: Option<Begin>,
    /// Pages of the database's file, where that is known.
    pages: u64,
    /// Bytes of a page, and the database's number; known with the first frame.
    known: OnceLock<(usize, u64)>,
    stop: Stop,
    job: Worker,
    engine: Engine,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    open: OpenOptions,
    data: Arc<dyn File>,
}

/// Restores a database to `path`, where there is none.
pub(crate) fn run(
    engine: &Engine,
    source: Source,
    path: &Path,
    open: &OpenOptions,
    archive: Option<&Extension>,
    watch: &mut Watch<'_>,
) -> Result<RestoreReport> {
    let disk = engine.disk();
    // The restored database is another copy, whose log does not belong into the archive of the first.
    let open = &OpenOptions { archive: None, ..open.clone() };
    if !Database::is_missing(disk, path)? {
        return Err(Error::Backup(format!("{path:?} exists already: a restore overwrites nothing")));
    }
    Database::clear_name(disk, path)?;
    let partial = &partial_of(path);
    if !Database::is_missing(disk, partial)? {
        Database::remove(disk, partial).map_err(|error| {
            Error::Backup(format!(
                "cannot replace {partial:?}, as the database is called until all of it is there: {error}"
            ))
        })?;
    }
    if let Source::Files(files) = &source
        && let Some(newest) = files.last().map(|file| &file.manifest)
    {
        check_memory(engine, &newest.begin)?;
        let (mut more, mut pages) = (0, 0);
        // Whether there is a way to the target is said before anything is written.
        if let Some(archive) = archive {
            watch.job().phase("looks for the target", Unit::Bytes, 0);
            let plan = archive.plan(engine, newest, open.mode, watch)?;
            more = plan.log_bytes().min(wal_limit(newest.begin.segment_size, open));
            pages = plan.pages();
        }
        let data = newest.file_bytes.max(pages.saturating_mul(newest.begin.page_size.into()));
        check_room(&**disk, path, &newest.begin, data, newest.log_bytes.saturating_add(more))?;
    }
    let Written { manifest, end: end_lsn, applied } = {
        let mut attempt = Attempt::new(disk, partial)?;
        let (data, _lock) = attempt.start(open)?;
        let written = write_all(engine, source, (data, attempt.folder()), open, archive, watch)?;
        attempt.succeed();
        written
    };
    watch.job().phase("applies the log", Unit::Pages, 0);
    let mut restart = bring_up(engine, partial, open, (&applied, end_lsn), watch).map_err(|error| match error {
        Error::Cancelled => {
            // If it cannot be removed the next attempt does, or says why not.
            let _ = Database::remove(disk, partial);
            Error::Cancelled
        }
        error => Error::Backup(format!(
            "{error}. What was restored is called {partial:?}, and the next restore to {path:?} replaces it"
        )),
    })?;
    Database::rename(disk, partial, path).map_err(|error| {
        Error::Backup(format!(
            "all is restored, and is called {partial:?}, as it could not get its name: {error}"
        ))
    })?;
    restart.pages += applied.pages;
    restart.redone_pages += applied.pages;
    restart.applied_changes += applied.changes;
    restart.log_bytes += applied.redo_from - manifest.begin.start_lsn;
    Ok(RestoreReport { manifest, end_lsn, restart })
}

/// What a database is called until all of it was restored.
fn partial_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Opens what was written, which applies the log, and closes it; looks whether it is as it was at `end_lsn`.
fn bring_up(
    engine: &Engine,
    partial: &Path,
    open: &OpenOptions,
    (applied, end_lsn): (&Applied, u64),
    watch: &mut Watch<'_>,
) -> Result<crate::RestartReport> {
    let database = engine
        .open(partial, open)
        .map_err(|error| Error::Backup(format!("it was restored, and cannot be opened: {error}")))?;
    let up = watch.look().and_then(|()| database.await_restart_watched(watch));
    // It gets its name when it needs no log any more; closing it has next to nothing left to write, as that hears nobody.
    if let Err(error) = up.and_then(|()| write_home(&database, watch)) {
        // What was written so far is of no use.
        let _ = database.close_within(Duration::ZERO);
        return Err(error);
    }
    let restart = database.restart_report();
    let why_read_only = database.why_read_only();
    database.close_within(CLOSE_LIMIT)?;
    // The log was whole when it was written: where it reads as if it ended earlier, what is behind would be missed by nobody.
    let reached = applied.redo_from + restart.log_bytes;
    if reached < end_lsn {
        return Err(Error::Backup(format!(
            "it was restored, and is not as it was at lsn {end_lsn}: its log can be read up to lsn {reached} only. The disk has not kept \
             what was written: restore it to another one"
        )));
    }
    if let Some(damage) = restart.damaged_pages.first() {
        return Err(Error::Backup(format!("it was restored, and is damaged: {damage}")));
    }
    if let Some(why) = why_read_only {
        return Err(Error::Backup(format!("it was restored, and can be opened for reading only: {why}")));
    }
    Ok(restart)
}

/// Writes all changed pages, paced.
fn write_home(database: &Database, watch: &mut Watch<'_>) -> Result<()> {
    let core = &database.shared.core;
    core.log.flush_to(core.log.end())?;
    let mut permit = None;
    let mut go_on = |bytes| {
        drop(permit.take());
        watch.look()?;
        permit = Some(watch.job().permit()?);
        watch.job().count_written(bytes);
        Ok(true)
    };
    database.shared.writer.flush_below(core.log.end(), &mut go_on).map(drop)
}

/// Refuses a memory budget that the database could not be opened with.
fn check_memory(engine: &Engine, begin: &Begin) -> Result<()> {
    begin.made().check_memory(engine.budget().limit())
}

/// Refuses a place with less room than the database needs: so many bytes of data, and of log.
fn check_room(disk: &dyn Disk, path: &Path, begin: &Begin, data: u64, log: u64) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = 2 * begin.segment_size + ring::ring_bytes(begin.page_size as usize);
    let needed = data.saturating_add(log).saturating_add(beside);
    match disk.free_bytes(parent)? {
        Some(free) if free < needed => Err(Error::Backup(format!(
            "the database needs {}, and {parent:?} has {} free",
            format_size(needed),
            format_size(free)
        ))),
        _ => Ok(()),
    }
}

/// Threads that a source is read by, given half of the memory there is: they share it with what is read ahead.
pub(super) fn workers_within(engine: &Engine) -> usize {
    let blocks = engine.budget().limit() / 2 / (HEAD + STORED_MAX) as u64;
    (blocks as usize / 2 / BLOCKS).clamp(1, WORKERS)
}

fn write_all(
    engine: &Engine,
    source: Source,
    (data, folder): (Arc<dyn File>, &Path),
    open: &OpenOptions,
    archive: Option<&Extension>,
    watch: &mut Watch<'_>,
) -> Result<Written> {
    let newest = match &source {
        Source::Files(files) => files.last().map(|file| file.manifest.clone()),
        Source::Stream(_) => None,
    };
    let pages_of = |newest: &Manifest| newest.file_bytes / u64::from(newest.begin.page_size);
    let pages = newest.as_ref().map_or(PAGES_MAX, pages_of);
    let feed = Feed::new(engine, source, open.mode)?;
    let backwards = feed.is_backwards();
    let _memory = engine.memory(Purpose::Work, if backwards { PageSet::memory(pages) } else { 0 })?;
    watch.job().phase("writes pages", Unit::Bytes, feed.total());
    let state = State {
        feed,
        at_work: 0,
        between: false,
        begin: None,
        is_newest: false,
        newest: None,
        segments: Segments::new(engine.disk(), folder.to_owned(), open.mode),
        log_end: 0,
    };
    let restore = Arc::new(Restore {
        state: Mutex::new(state),
        settled: Condvar::new(),
        done: backwards.then(|| PageSet::new(pages)),
        newest: newest.map(|newest| newest.begin),
        pages,
        known: OnceLock::new(),
        stop: Stop::default(),
        job: watch.job().worker(),
        engine: engine.clone(),
        disk: Arc::clone(engine.disk()),
        folder: folder.to_owned(),
        open: open.clone(),
        data,
    });
    let queue = engine.disk().queue(WORKERS * BLOCKS)?;
    let mut workers = Vec::new();
    for _ in 0..workers_within(engine) {
        let mut blocks = Vec::with_capacity(BLOCKS);
        for _ in 0..BLOCKS {
            blocks.push(Block::new(&queue, engine.memory(Purpose::Io, (HEAD + STORED_MAX) as u64)?));
        }
        let restore = Arc::clone(&restore);
        workers.push(move || restore.work(blocks));
    }
    run_crew("gannet-restore", Crew::StandsBy, watch, &restore.stop, workers)?;
    let (manifest, end) = restore.take_newest()?;
    let mut applied = Applied { redo_from: manifest.begin.start_lsn, next_txn: 0, pages: 0, changes: 0 };
    let end = restore.add_log(engine, &manifest, archive, (end, &mut applied), watch)?;
    watch.job().phase("makes it durable", Unit::Bytes, 0);
    watch.look()?;
    restore.finish(&manifest, end, &applied, watch)?;
    Ok(Written { manifest, end: end.end, applied })
}

impl Restore {
    /// The body of a worker.
    fn work(&self, mut blocks: Vec<Block>) -> Result<()> {
        let mut scratch = Vec::new();
        for turn in 0.. {
            let turn: usize = turn % blocks.len();
            let block = &mut blocks[turn];
            block.wait()?;
            let _permit = self.job.permit()?;
            let Some(frame) = self.next(block)? else { break };
            let mut done = self.pages(&frame, block, &mut scratch);
            if self.done.is_none() {
                // What a later backup has of the same page is to be written behind this.
                done = done.and_then(|()| block.wait());
            }
            self.state.lock().at_work -= 1;
            self.settled.notify_all();
            done?;
        }
        blocks.iter_mut().try_for_each(Block::wait)
    }

    /// The next frame of pages; what else comes is seen to here, in its order.
    fn next(&self, block: &mut Block) -> Result<Option<Frame>> {
        let mut state = self.state.lock();
        while !self.stop.is_set() {
            if state.between {
                self.settled.wait_for(&mut state, LOOK_EVERY);
                continue;
            }
            let item = state.feed.next(block.bytes())?;
            self.job.set_done(state.feed.done());
            match item {
                None => break,
                Some(Item::Begin(begin)) => {
                    // Of the backup before, everything is to be in its place, or taken note of.
                    state.between = true;
                    while state.at_work > 0 && !self.stop.is_set() {
                        self.settled.wait_for(&mut state, LOOK_EVERY);
                    }
                    self.begin(&mut state, begin)?;
                    state.between = false;
                    self.settled.notify_all();
                }
                Some(Item::End(manifest)) if state.is_newest => state.newest = Some(*manifest),
                Some(Item::End(_)) => {}
                Some(Item::Frame(frame)) => {
                    self.job.count_read(frame.len() as u64);
                    match frame.head.kind {
                        FrameKind::Log if state.is_newest => self.log(&mut state, &frame, block.bytes())?,
                        FrameKind::Log => {}
                        _ => {
                            state.at_work += 1;
                            return Ok(Some(frame));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    fn begin(&self, state: &mut State, begin: Begin) -> Result<()> {
        let page_size = begin.page_size as usize;
        let &(known_size, _) = self.known.get_or_init(|| (page_size, begin.database_id));
        if known_size != page_size {
            return Err(Error::Backup("the backups have pages of several sizes".to_owned()));
        }
        let is_first = state.begin.is_none();
        if is_first {
            if !state.feed.is_backwards() {
                // Of a stream no more is known before it ends: all space maps but the last one are of groups that are full.
                check_memory(&self.engine, &begin)?;
                let group = space::extents_per_group(page_size) * EXTENT_PAGES * u64::from(begin.page_size);
                check_room(&*self.disk, &self.folder, &begin, begin.groups.saturating_sub(1) * group, 0)?;
            }
            meta::write_mark(&*self.data, page_size, begin.database_id)?;
        }
        state.is_newest = is_first || !state.feed.is_backwards();
        if state.is_newest {
            // The log of an older backup is of no use to a newer one.
            state.segments.clear()?;
            state.log_end = 0;
            if !is_first {
                self.forget_maps(&begin)?;
            }
            state.begin = Some(begin);
        }
        Ok(())
    }

    /// Puts zeros in the place of the space maps which the backups before had, and this one, which begins in a stream, does not count.
    fn forget_maps(&self, begin: &Begin) -> Result<()> {
        let page_size = begin.page_size as usize;
        let pages = self.data.len()? / page_size as u64;
        let zeros = AlignedBuffer::zeroed(page_size);
        for group in begin.groups.. {
            let map = space::map_page(group, page_size);
            if map.0 >= pages {
                break;
            }
            let offset = map.0 * page_size as u64;
            self.data.write_at(Class::Maintenance, offset, &zeros, Durability::Cached)?;
        }
        Ok(())
    }

    /// Writes the pages of a frame that no newer backup had. They may still be on their way when this returns.
    fn pages(&self, frame: &Frame, block: &mut Block, scratch: &mut Vec<u8>) -> Result<()> {
        let (page_size, database_id) = *self.known.get().expect("known with the first frame");
        let (head, bytes) = (&frame.head, block.bytes());
        let content = frame.content(bytes, scratch)?;
        if content.len() != head.pages.len() * page_size {
            return Err(frame.damaged("the frame has not the pages that it lists"));
        }
        if head.codec == Codec::Zstd {
            bytes[HEAD..HEAD + scratch.len()].copy_from_slice(scratch);
        }
        let mut ranges = Vec::new();
        let newer = self.newest.as_ref().filter(|newest| newest.backup_id != head.backup);
        for (index, &page) in head.pages.iter().enumerate() {
            let place = HEAD + index * page_size;
            if page::verify(&bytes[place..place + page_size], page, database_id) != Verdict::Valid {
                return Err(frame.damaged(format_args!("{page} in it is not whole")));
            }
            // What the file had given back by the time of the newest backup is not written again.
            let is_gone = page.0 >= self.pages || newer.is_some_and(|newer| newer.outdates(page));
            if !is_gone && self.done.as_ref().is_none_or(|done| done.add(page)) {
                let offset = page.0 * page_size as u64;
                FileRange::add_to(&mut ranges, FileRange { place, offset, len: page_size });
            }
        }
        if ranges.is_empty() {
            return Ok(());
        }
        self.job.count_written(ranges.iter().map(|range| range.len as u64).sum());
        let direction = Direction::Write(Durability::Cached);
        block.start_ranges(&self.data, direction, Class::Maintenance, &ranges);
        Ok(())
    }

    /// Writes a part of the log to its place: parts of the segment before the backup's start, or what follows the part before. So whoever forges a
    /// stream makes no files that have nothing in them.
    fn log(&self, state: &mut State, frame: &Frame, buffer: &[u8]) -> Result<()> {
        let (head, mut scratch) = (&frame.head, Vec::new());
        let content = frame.content(buffer, &mut scratch)?;
        let (size, start) =
            state.begin.as_ref().map_or((0, 0), |begin| (begin.segment_size, begin.start_lsn));
        let start = start / size * size;
        let is_before = head.first < start && head.first + size >= start;
        if !is_before && head.first != state.log_end.max(start) {
            return Err(frame.damaged("a piece of the log does not follow the one before"));
        }
        let (number, offset) = (head.first / size, head.first % size);
        let fits = offset + content.len() as u64 <= size && offset.is_multiple_of(BLOCK);
        if !fits || !(content.len() as u64).is_multiple_of(BLOCK) {
            return Err(frame.damaged("a piece of the log lies in no segment"));
        }
        state.log_end = state.log_end.max(head.first + content.len() as u64);
        let file = state.segments.file(number, size)?;
        let mut buffer = AlignedBuffer::zeroed(content.len());
        buffer.copy_from_slice(content);
        self.job.count_written(buffer.len() as u64);
        Ok(file.write_at(Class::Maintenance, offset, &buffer, Durability::Cached)?)
    }

    /// What the newest backup says of itself, and where its log ends.
    fn take_newest(&self) -> Result<(Manifest, Added)> {
        let (newest, log_end) = {
            let mut state = self.state.lock();
            (state.newest.take(), state.log_end)
        };
        let manifest = newest.ok_or_else(|| Error::Backup("the source holds no backup".to_owned()))?;
        if log_end < manifest.end_lsn {
            return Err(Error::Backup(format!(
                "{manifest} is damaged: the log in it ends at lsn {log_end}, before its end, which is lsn {}",
                manifest.end_lsn
            )));
        }
        let pages = manifest.file_bytes / u64::from(manifest.begin.page_size);
        let end = Added { end: manifest.end_lsn, incarnation: manifest.incarnation, pages };
        Ok((manifest, end))
    }

    /// Puts the log of an archive behind that of the backup, if there is one, and applies what is not little of both.
    fn add_log(
        &self,
        engine: &Engine,
        manifest: &Manifest,
        archive: Option<&Extension>,
        (end, applied): (Added, &mut Applied),
        watch: &mut Watch<'_>,
    ) -> Result<Added> {
        let plan = match archive {
            Some(archive) => Some(archive.plan(engine, manifest, self.open.mode, watch)?),
            None => None,
        };
        let more = plan.as_ref().map_or(0, Plan::log_bytes);
        let phase = if plan.is_some() { "copies and applies archived log" } else { "applies the log" };
        watch.job().phase(phase, Unit::Bytes, more);
        let mut place = LogPlace {
            restore: self,
            engine,
            manifest,
            pages: end.pages,
            state: &mut self.state.lock(),
            applied,
        };
        let added = match plan {
            Some(plan) => plan.write(engine, manifest, &mut place, watch)?,
            None => end,
        };
        place.apply_rest(&added, watch)?;
        Ok(Added { pages: place.pages_with(&added), ..added })
    }

    /// Makes pages and log durable, and then a database of them, whose log ends there.
    fn finish(
        &self,
        manifest: &Manifest,
        end: Added,
        applied: &Applied,
        watch: &mut Watch<'_>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let size = manifest.begin.segment_size;
        if end.end.is_multiple_of(size) {
            // Behind a segment that is complete there is always another one.
            state.segments.file(end.end / size, size)?;
        }
        state.segments.sync()?;
        let len = end.pages * u64::from(manifest.begin.page_size);
        grow(&*self.data, len, &mut || watch.look())?;
        self.data.set_len(len)?;
        self.data.sync(Class::Maintenance)?;
        let mut header = manifest.begin.header(end.incarnation);
        header.redo_from = Lsn(applied.redo_from);
        header.next_txn = header.next_txn.max(applied.next_txn);
        let believed = planted(Mutation::ArchivedHomesBelieved);
        header.homes_from = Lsn(if believed { manifest.end_lsn } else { end.end });
        header.write_both(&*self.data)
    }
}

/// Gives a file room for so many bytes, by pieces, before each of which it is looked whether it is still wanted.
fn grow(file: &dyn File, len: u64, look: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    // From the beginning on, however long it is: what nobody has written to in between is free space, which the database takes to be there. A hole
    // would be found out by a write home on a full disk, which ends it.
    let mut at = 0;
    while at < len {
        look()?;
        let piece = GROWN_AT_ONCE.min(len - at);
        file.allocate(at, piece)?;
        at += piece;
    }
    Ok(())
}

/// Where the log of an archive goes: beside the file, and from time to time into its pages.
struct LogPlace<'a> {
    restore: &'a Restore,
    engine: &'a Engine,
    manifest: &'a Manifest,
    /// Pages that the file had when the backup was taken.
    pages: u64,
    state: &'a mut State,
    applied: &'a mut Applied,
}

impl LogPlace<'_> {
    /// Pages that the file has to have room for.
    fn pages_with(&self, added: &Added) -> u64 {
        if added.pages <= self.pages {
            return self.pages;
        }
        // An extent is given out as a whole, and what takes it may be logged before its pages are.
        added.pages.next_multiple_of(EXTENT_PAGES) + GROWS_BY / u64::from(self.manifest.begin.page_size)
    }

    /// Applies most of what is left when all is written, where that is not little: opening the database would take longer, as that is made for being
    /// open early, and for users beside.
    fn apply_rest(&mut self, added: &Added, watch: &mut Watch<'_>) -> Result<()> {
        let size = self.manifest.begin.segment_size;
        let next = added.end / size * size;
        if next < self.applied.redo_from + REST_SEGMENTS * size {
            return Ok(());
        }
        // Behind a segment that is complete there is always another one.
        self.segment(added.end / size)?;
        self.apply(next, added, watch)
    }

    /// Applies what is written of the log, and lets go what is not needed to go on at `next`, where a segment begins.
    fn apply(&mut self, next: u64, added: &Added, watch: &mut Watch<'_>) -> Result<()> {
        let (begin, restore) = (&self.manifest.begin, self.restore);
        let len = self.pages_with(added) * u64::from(begin.page_size);
        // What is free in between gets its room in the end.
        if restore.data.len()? < len {
            grow(&*restore.data, len, &mut || watch.look())?;
        }
        let mut meta = begin.header(added.incarnation);
        meta.redo_from = Lsn(self.applied.redo_from);
        let files = (&restore.data, restore.folder.as_path());
        let refuse = |what: String| {
            Err(Error::Backup(format!(
                "the log was written to {:?}, and cannot be applied: {what}. The disk may not have kept it: restore to another one",
                restore.folder
            )))
        };
        let found = match replay::apply(self.engine, files, &meta, &restore.open, watch) {
            Ok(found) if found.end.0 < next => {
                return refuse(format!("it can be read up to lsn {} only, not to {next}", found.end));
            }
            Err(error @ Error::Damaged(_)) => return refuse(error.to_string()),
            found => found?,
        };
        self.applied.redo_from = next;
        self.applied.next_txn = self.applied.next_txn.max(found.highest_txn + 1);
        self.applied.pages += found.pages;
        self.applied.changes += found.changes;
        // The end of the segment before says what is open where redo begins.
        self.state.segments.remove_before(next / begin.segment_size - 1)
    }
}

impl Place for LogPlace<'_> {
    fn segment(&mut self, number: u64) -> Result<Arc<dyn File>> {
        self.state.segments.file(number, self.manifest.begin.segment_size)
    }

    fn written(&mut self, at: u64, added: &Added, watch: &mut Watch<'_>) -> Result<u64> {
        let size = self.manifest.begin.segment_size;
        // What may not count after all is behind.
        let next = at.saturating_sub(size / 8) / size * size;
        if next >= self.applied.redo_from + wal_limit(size, &self.restore.open) {
            // Behind a segment that is complete there is always another one.
            self.segment(at / size)?;
            self.apply(next, added, watch)?;
        }
        Ok(self.applied.redo_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_io::OpenOptions;
    use gannet_io::sim::{Settings, SimDisk};

    #[test]
    fn a_file_that_grows_by_much_grew_in_one_piece_that_nobody_could_end() {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("f"), &OpenOptions::create_new()).unwrap();
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            if looks > 2 { Err(Error::Cancelled) } else { Ok(()) }
        };
        let len = 3 * GROWN_AT_ONCE + 4096;
        let error = grow(&*file, len, &mut look).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert_eq!(file.len().unwrap(), 2 * GROWN_AT_ONCE);
        grow(&*file, len, &mut || Ok(())).unwrap();
        assert_eq!(file.len().unwrap(), len);
    }

    /// A file whose last page is in use is as long as it has to be: what is free in it had no room of its own, and a later full disk ended the database.
    #[test]
    fn a_file_that_was_long_enough_kept_its_holes() {
        let settings = Settings { capacity_bytes: Some(64 << 20), ..Settings::default() };
        let disk = SimDisk::with_settings(1, settings);
        let file = disk.open(Path::new("f"), &OpenOptions::create_new()).unwrap();
        let (len, page) = (16 << 20, AlignedBuffer::zeroed(4096));
        let free = || disk.free_bytes(Path::new(".")).unwrap().unwrap();
        let before = free();
        file.write_at(Class::Maintenance, len - 4096, &page, Durability::Cached).unwrap();
        assert_eq!((file.len().unwrap(), before - free()), (len, 4096));
        grow(&*file, len, &mut || Ok(())).unwrap();
        assert_eq!((file.len().unwrap(), before - free()), (len, len));
    }
}
