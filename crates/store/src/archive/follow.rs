//! Following the log: the thread that archives it.
//!
//! # Invariants
//! 1. What is let go of was archived durably, or is beyond what is kept for those who are slow ([`LogHold`]).
//! 2. The archive goes on where the folder says that it ends. Within one opening of the database that is no farther than what was synced, and at its begin no
//!    farther than the position that was noted behind a sync, or where the log begins: what a failed sync has left may read well and be gone later.
//! 3. A part ends with the segment, with a failure, or with the opening of the database.
//! 4. A part begins where everything before it is synced. So no part that was begun later begins before it, whatever fails in between.

use super::folder::Folder;
use super::format::{INFO, Info, LOCK, POSITION, PartBegin, Position, read_text, text_of};
use super::reader::{self, Ended, Reader, Said, Why};
use super::writer::PartWriter;
use super::{ArchiveState, SYNC_BYTES, SYNC_EVERY, Status};
use crate::backup::OpenTime;
use crate::backup::format::{CONTENT_MAX, HEAD};
use crate::change;
use crate::log::{BLOCK, Log, LogHold, Met, Note, Step, Walk};
use crate::meta::{Life, Meta};
use crate::mutation::{Mutation, planted};
use crate::shared::Shared;
use crate::work::WorkMemory;
use crate::{Engine, Error, Result, fetch};
use gannet_base::clock::{self, Instant};
use gannet_base::memory::Purpose;
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{Lsn, thread};
use gannet_io::{AlignedBuffer, Class, Disk, ErrorKind, ModeRequest, OpenOptions};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long whoever opens a database waits for its archive to answer.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a failure, which doubles with each one up to the second.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(10);
/// Bytes that are copied at one time.
const PIECE: u64 = 256 << 10;
/// More than this left to be copied is not waited with, or than a sixteenth of what is kept; and how often that is looked for.
const MUCH: u64 = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it is written down how far the archive has come.
const POSITION_EVERY: Duration = Duration::from_secs(5);

/// The archive in a folder, as it ends.
struct Tail {
    folder: Folder,
    /// Where it ends, with the checksum of the last record, where that is known; `None` where it has no part.
    end: Option<(u64, Option<u32>)>,
    /// The last part's gap.
    gap: Option<(u64, u64)>,
}

impl Tail {
    /// Up to where the archive is durable, whatever else reads well; `None` where it has no part. A gap was made durable before anything behind it.
    fn durable(&self) -> Option<u64> {
        let behind_gap = self.gap.map_or(0, |(_, to)| to);
        self.end.map(|(end, _)| end.min(self.folder.position.lsn.max(behind_gap)))
    }

    /// The same, and where it ends.
    fn how_far(&self) -> Option<Reach> {
        let (durable, (end, _)) = self.durable().zip(self.end)?;
        Some(Reach { durable: Lsn(durable), end: Lsn(end) })
    }

    /// Up to where it reads without a break from where it is durable: what was archived anew from there on may not have come to its end. No
    /// farther than it is durable where that cannot be told. `check` fails when that is to end.
    fn reach(&self, check: &dyn Fn() -> Result<()>) -> Result<u64> {
        let Some(durable) = self.durable() else { return Ok(u64::MAX) };
        let parts = match self.folder.parts_from(durable, &mut || check()) {
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(_) => return Ok(durable),
            Ok(parts) => parts,
        };
        let covering = parts.partition_point(|part| part.begin.first <= durable).saturating_sub(1);
        // What lies behind older gaps was made durable behind them.
        let last_gap = parts.iter().rposition(|part| part.begin.gap_from.is_some());
        let from = covering.max(last_gap.unwrap_or(0));
        match reader::read(&self.folder, &parts, from, &mut Nobody(check)) {
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(_) => Ok(durable),
            Ok(ended) => Ok(ended.whole),
        }
    }
}

/// Nothing is done with what is read, until this fails.
struct Nobody<'c>(&'c dyn Fn() -> Result<()>);

impl Reader for Nobody<'_> {
    fn met(&mut self, _: &Met<'_>) -> Said<Step> {
        Ok(Step::On)
    }

    fn bytes(&mut self, _: u64, _: Option<&[u8]>, _: u64) -> Result<()> {
        Ok(())
    }

    fn back_to(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        (self.0)()
    }
}

/// Looks at the archive in a folder, and refuses one of another database, or of another copy of it.
fn find_tail(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest, meta: &Meta) -> Result<Option<Tail>> {
    let Some(folder) = Folder::find(disk, path, mode)? else { return Ok(None) };
    if folder.info.database_id != meta.database_id {
        return Err(Error::Invalid(format!(
            "{path:?} holds the archive of another database, {}: give each database a folder of its own",
            folder.info.name
        )));
    }
    let parts = folder.parts_from(u64::MAX, &mut || Ok(()))?;
    let Some(last) = parts.last() else { return Ok(Some(Tail { folder, end: None, gap: None })) };
    let Ended { whole, last_crc, why } =
        reader::read(&folder, &parts, parts.len() - 1, &mut Nobody(&|| Ok(())))?;
    debug_assert!(matches!(why, Why::Over(_)), "there is no part behind the last one");
    let life = last.begin.lives.last().map_or(0, |life| life.id);
    if !Life::is_past(&meta.lives, life, Lsn(whole)) {
        return Err(Error::Invalid(format!(
            "{path:?} holds the archive of another copy of this database: one of them was restored or replaced since, or this one was \
             opened too often without it. Take another folder, and a full backup; the archive stays good for the backups it belongs to"
        )));
    }
    let gap = last.begin.gap_from.map(|from| (from, last.begin.first));
    Ok(Some(Tail { folder, end: Some((whole, last_crc)), gap }))
}

/// Whether an error says that nothing is ever to be written to this folder.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Invalid(_) | Error::Format(_))
}

/// How far an archive has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Up to where it is durable: from there on the log is to be kept.
    pub(crate) durable: Lsn,
    /// Behind the last record in it. It has only what was durable in the log before.
    pub(crate) end: Lsn,
}

/// How far an archive has come, once it has said so.
type Answer = Option<Result<Option<Reach>>>;

/// Looks at the archive before the database with this header is written to. `None` where there is none yet, or it does not answer.
///
/// # Errors
/// The archive is none of this database.
pub(crate) fn look(engine: &Engine, path: &Path, mode: ModeRequest, meta: &Meta) -> Result<Option<Reach>> {
    let memory = engine.memory(Purpose::Io, reader::memory(meta.segment_size))?;
    let found: Arc<(Mutex<Answer>, Condvar)> = Arc::default();
    let looking = {
        let (found, disk, path, meta) =
            (Arc::clone(&found), Arc::clone(engine.disk()), path.to_owned(), meta.clone());
        thread::spawn("gannet-archive-look", move || {
            let _memory = memory;
            let tail = find_tail(&disk, &path, mode, &meta);
            *found.0.lock() = Some(tail.map(|tail| tail.and_then(|tail| tail.how_far())));
            found.1.notify_all();
        })
    };
    let deadline = clock::now() + LOOK_LIMIT;
    let mut answer = found.0.lock();
    while answer.is_none() && clock::now() < deadline {
        found.1.wait_for(&mut answer, deadline - clock::now());
    }
    match answer.take() {
        // A folder that does not answer is none of the users' business.
        None => Ok(None),
        Some(answer_of_folder) => {
            drop(answer);
            // It has nothing left to do.
            let _ = looking.join();
            match answer_of_folder {
                Err(error) if is_refusal(&error) => Err(error),
                Err(_) => Ok(None),
                Ok(end) => Ok(end),
            }
        }
    }
}

/// Refuses a folder that has an archive already: none is of a database that is only to be created.
pub(crate) fn check_new(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<()> {
    match Folder::find(disk, path, mode) {
        Ok(Some(folder)) => Err(Error::Invalid(format!(
            "{path:?} holds the archive of another database, {}: give each database a folder of its own",
            folder.info.name
        ))),
        Err(error) if is_refusal(&error) => Err(error),
        // What does not answer is tried again.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Tells that nobody follows the log any more, however that came.
struct Over(Arc<Status>);

impl Drop for Over {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed(ArchiveState::Failing, "its thread has ended by itself; that is a bug".to_owned());
        }
        self.0.end();
    }
}

/// The thread's state.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    status: Arc<Status>,
    disk: Arc<dyn Disk>,
    mode: ModeRequest,
    path: PathBuf,
    /// The database's file name.
    name: String,
    meta: Meta,
    hold: LogHold,
    /// What was made durable since the database was opened, with the last record's checksum.
    synced: Option<(u64, Option<u32>)>,
    /// The archive was there since the database was opened.
    has_met: bool,
    /// A moment, and where the log ended then: when that is archived, everything up to then is.
    mark: Option<(Instant, u64, u64)>,
    /// How long it may go on when the database is being closed.
    closing_limit: Duration,
    _memory: WorkMemory,
}

/// The archive while it is being written to.
struct Session {
    disk: Arc<dyn Disk>,
    mode: ModeRequest,
    path: PathBuf,
    begin: PartBegin,
    segment_size: u64,
    part: Option<PartWriter>,
    walk: Walk,
    /// A piece, behind room for a frame's head; and blocks of the log around it.
    frame: AlignedBuffer,
    blocks: AlignedBuffer,
    unsynced: u64,
    /// Up to where what is here was made durable, with the last record's checksum.
    synced: (u64, Option<u32>),
    written: u64,
    position: Position,
    position_at: Option<Instant>,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Follower {
    /// Of a database that was just opened, with this header and a hold of the log.
    pub(crate) fn new(
        engine: &Engine,
        shared: &Arc<Shared>,
        status: &Arc<Status>,
        meta: Meta,
        hold: LogHold,
        (name, mode, closing_limit): (&str, ModeRequest, Duration),
    ) -> Result<Self> {
        let memory = reader::memory(meta.segment_size) + 2 * (PIECE + HEAD as u64);
        Ok(Follower {
            shared: Arc::clone(shared),
            status: Arc::clone(status),
            disk: Arc::clone(engine.disk()),
            mode,
            path: status.destination.clone(),
            name: name.to_owned(),
            meta,
            hold,
            synced: None,
            has_met: false,
            mark: None,
            closing_limit,
            _memory: engine.memory(Purpose::Io, memory)?,
        })
    }

    /// The body of the thread.
    pub(crate) fn run(mut self) {
        let _over = Over(Arc::clone(&self.status));
        // Nice, and not as a job's threads, which may not run for long: it has to keep up with the log, and takes locks of it.
        fetch::step_back();
        let mut session = None;
        let mut pause = RETRY_FIRST;
        let mut stopping = self.is_stopping(Duration::ZERO, false);
        loop {
            let begun = clock::now();
            let wait = match self.pass(&mut session, stopping) {
                Ok(()) => {
                    pause = RETRY_FIRST;
                    self.status.succeeded();
                    SYNC_EVERY.saturating_sub(begun.elapsed())
                }
                Err(error) => {
                    if let Some(mut failed) = session.take() {
                        // It may have synced log before it failed.
                        self.note_synced(&mut failed);
                    }
                    let refused = is_refusal(&error);
                    let state = if refused { ArchiveState::Refused } else { ArchiveState::Failing };
                    self.status.failed(state, error.to_string());
                    let wait = pause;
                    pause = (pause * 2).min(RETRY_MOST);
                    wait
                }
            };
            if stopping {
                break;
            }
            stopping = self.is_stopping(wait, session.is_none());
            if stopping && session.is_none() {
                // What does not work now is left to the next opening.
                break;
            }
        }
        drop(session);
        self.status.inner.lock().kept = Some(self.hold);
    }

    fn log(&self) -> &Log {
        &self.shared.core.log
    }

    /// Whether the database is being closed; that is waited for so long, or, where nothing has failed, until much is to be archived.
    fn is_stopping(&self, limit: Duration, has_failed: bool) -> bool {
        let deadline = clock::now() + limit;
        let mut stopping = self.shared.stopping.lock();
        loop {
            let left = deadline - clock::now();
            let is_due = left.is_zero() || !has_failed && self.has_much();
            if *stopping || is_due {
                return *stopping;
            }
            self.shared.background.wait_for(&mut stopping, left.min(LOOK_EVERY));
        }
    }

    /// Whether what is to be archived should not wait.
    fn has_much(&self) -> bool {
        let left = self.log().durable().0.saturating_sub(self.hold.from().0);
        left > MUCH.min(self.shared.core.wal_limit / 16)
    }

    /// Archives what is durable, and makes that durable.
    fn pass(&mut self, session: &mut Option<Session>, stopping: bool) -> Result<()> {
        let began = clock::now();
        if stopping {
            // Who cannot flush has reported it, and what is durable is archived all the same.
            let _ = self.log().flush_background();
        }
        // The time first: whoever was told by then that he has committed is below the end.
        let unix_us = clock::unix_micros();
        let end = self.log().end().0;
        let (marked, mark_unix_us, mark_end) = *self.mark.get_or_insert((began, unix_us, end));
        let to = self.log().durable().0;
        let limit = stopping.then(|| began + self.closing_limit);
        let opened = loop {
            let opened = match session.take() {
                Some(opened) => opened,
                None => self.attach()?,
            };
            let opened = session.insert(opened);
            if self.follow(opened, to, limit)? {
                break opened;
            }
            // It was let go of, or is not whole. What is there from now on is held, and the gap found when the folder is looked at again.
            *session = None;
            self.hold = match self.hold.lost() {
                Some(_) => self.log().hold_again(self.hold.from()),
                None => self.log().hold(),
            };
        };
        if opened.walk.whole() >= mark_end {
            self.status.inner.lock().caught_up = Some(marked);
            opened.position.unix_us = mark_unix_us;
            self.mark = None;
        }
        opened.position.backup_end = self.status.inner.lock().backup_end;
        if opened.write_position(stopping)? {
            self.status.inner.lock().noted_unix_us = opened.position.unix_us;
        }
        Ok(())
    }

    /// Archives what there is up to `to`, as far as that is possible until the limit; false where some of it is not there.
    fn follow(&mut self, session: &mut Session, to: u64, limit: Option<Instant>) -> Result<bool> {
        let mut is_there = true;
        while is_there && session.walk.at() < to && limit.is_none_or(|limit| clock::now() <= limit) {
            let part_to = to.min(session.walk.at() + SYNC_BYTES);
            is_there = session.copy_to(&self.shared.core.log, &self.hold, part_to)?;
            session.sync()?;
            self.note_synced(session);
        }
        Ok(is_there)
    }

    /// What was synced needs not be kept any more.
    fn note_synced(&mut self, session: &mut Session) {
        let (whole, _) = session.synced;
        session.position.lsn = whole;
        self.synced = Some(session.synced);
        self.hold.advance(Lsn(whole));
        let mut inner = self.status.inner.lock();
        inner.archived = whole;
        inner.written += std::mem::take(&mut session.written);
    }

    /// Opens the archive, or begins it, where it ends.
    fn attach(&mut self) -> Result<Session> {
        let disk = Arc::clone(&self.disk);
        if self.has_met && !disk.exists(&self.path.join(INFO))? {
            return Err(is_gone(&self.path));
        }
        if !disk.exists(&self.path)? {
            disk.create_dir(&self.path)?;
        }
        let lock = disk.lock(&self.path.join(LOCK)).map_err(|error| match error.kind() {
            ErrorKind::Locked => {
                Error::Backup(format!("somebody else archives into {:?}: {}", self.path, error.detail()))
            }
            _ => error.into(),
        })?;
        let tail = match find_tail(&disk, &self.path, self.mode, &self.meta)? {
            Some(tail) => tail,
            None if self.has_met => return Err(is_gone(&self.path)),
            None => self.create()?,
        };
        if let Some((.., name)) = tail.folder.names.last() {
            // What a process that was killed has written, and not synced, is relied on from now on.
            let options = OpenOptions::read_write().mode(self.mode);
            disk.open(&self.path.join(name), &options)?.sync(Class::Maintenance)?;
            disk.sync_dir(&self.path)?;
        }
        // Of what reads well behind that a sync may have failed in a life before. The log has it still, or let go of it because it was synced.
        let durable = tail.durable().map(|durable| durable.max(self.hold.from().0));
        if self.synced.is_none() && durable < tail.end.map(|(end, _)| end) {
            self.synced = durable.map(|durable| (durable, None));
        }
        if !self.hold.is_kept() {
            // The log was let go of while the folder failed: what is there still is held from now on.
            self.hold = self.log().hold_again(self.hold.from());
        }
        let (first, crc, mut gap_from) = self.start(tail.end)?;
        if let Some(from) = &mut gap_from {
            let check = || if *self.shared.stopping.lock() { Err(Error::Cancelled) } else { Ok(()) };
            *from = tail.reach(&check)?.min(*from);
            // A gap ends where the log is durable: else a crash might end it in front of that.
            self.log().flush_to(Lsn(first))?;
        }
        let is_same =
            |to: u64| first == to || gap_from.is_some() && tail.end.is_some_and(|(end, _)| end == to);
        if let Some((begun, _)) = tail.gap.filter(|&(_, to)| is_same(to)) {
            // Nothing was archived behind the gap before, or all of that is archived anew: it is the same.
            gap_from = Some(gap_from.map_or(begun, |from| from.min(begun)));
        }
        let mut position = tail.folder.position;
        position.lsn = position.lsn.max(first);
        if let Some(gap) = gap_from.map(|from| (from, first)).or(tail.gap)
            && gap.1 >= position.gap.1
        {
            position.gap = gap;
        }
        if tail.end.is_none() && self.status.was_archived {
            position.gap = (0, first);
        }
        if planted(Mutation::ArchiveGapNotNamed) {
            gap_from = None;
        }
        let archive_id = tail.folder.info.archive_id;
        let lives = OpenTime::of(&self.meta.lives).into();
        let begin = PartBegin {
            archive_id,
            database_id: self.meta.database_id,
            first,
            previous_crc: crc,
            gap_from,
            lives,
        };
        {
            let mut inner = self.status.inner.lock();
            inner.archived = first;
            inner.gap = position.gap;
            inner.noted_unix_us = position.unix_us;
            inner.backup_end = inner.backup_end.max(position.backup_end);
        }
        let segment_size = self.meta.segment_size;
        let mut session = Session {
            disk,
            mode: self.mode,
            path: self.path.clone(),
            begin,
            segment_size,
            part: None,
            walk: Walk::new(self.meta.database_id, segment_size, first, crc),
            frame: AlignedBuffer::zeroed(HEAD + PIECE as usize),
            blocks: AlignedBuffer::zeroed((PIECE + 2 * BLOCK) as usize),
            unsynced: 0,
            synced: (first, crc),
            written: 0,
            position,
            position_at: None,
            _lock: lock,
        };
        if gap_from.is_some() {
            // It is in the archive before anybody is told that this goes on.
            session.begin_part()?;
        }
        if tail.end.is_none() && self.status.was_archived {
            // No part says so.
            session.write_position(true)?;
        }
        self.has_met = true;
        Ok(session)
    }

    /// Where the archive goes on that ends there: with the checksum of the record before, where that is known, and, where log is missing in
    /// between, from where on.
    fn start(&self, end: Option<(u64, Option<u32>)>) -> Result<(u64, Option<u32>, Option<u64>)> {
        let held = self.hold.from().0;
        let Some((mut end, mut crc)) = end else {
            // A log that was begun because the one before was gone follows nothing that a backup may have.
            let begins_anew =
                held > 0 && self.log().segment_header(Lsn(held))?.is_some_and(|header| header.first);
            return Ok((held, None, begins_anew.then_some(held)));
        };
        if let Some((synced, synced_crc)) = self.synced.filter(|(synced, _)| *synced < end) {
            (end, crc) = (synced, synced_crc);
        }
        let log = self.log();
        if end < held {
            return Ok((held.max(end), None, Some(end)));
        }
        if end >= log.durable().0 {
            // What is to come follows; in its place there may be the segment of a life that a crash has ended.
            return Ok((end, crc, None));
        }
        match log.segment_header(Lsn(end))? {
            Some(header) if !end.is_multiple_of(self.meta.segment_size) => {
                debug_assert_eq!(header.number, end / self.meta.segment_size);
                Ok((end, crc, None))
            }
            Some(header) if crc.is_none_or(|crc| crc == header.previous_crc) => Ok((end, crc, None)),
            _ => Ok((log.oldest_kept()?.0.max(end), None, Some(end))),
        }
    }

    fn create(&self) -> Result<Tail> {
        // Whoever has made the folder may not have come to this.
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.disk.sync_dir(parent.unwrap_or(Path::new(".")))?;
        let info = Info::new(&self.meta, &self.name, clock::unix_micros());
        self.disk.publish(&self.path.join(INFO), text_of(&info).as_bytes(), self.mode)?;
        let folder = Folder::open(&self.disk, &self.path, self.mode)?;
        Ok(Tail { folder, end: None, gap: None })
    }
}

impl Session {
    /// Copies the log up to `to`, which is durable, the end of a record; false where it was let go of, or does not have everything.
    fn copy_to(&mut self, log: &Log, hold: &LogHold, to: u64) -> Result<bool> {
        let to = to.min(log.durable().0);
        while self.walk.at() < to {
            let at = self.walk.at();
            if self.part.is_none() {
                self.begin_part()?;
            }
            let part = self.part.as_mut().expect("begun above");
            let before = part.bytes();
            let mut is_over = false;
            let blank = self.walk.body_end().min(to).saturating_sub(at).min(CONTENT_MAX as u64);
            if blank > 0 {
                part.put_blank(at, &mut self.frame, blank)?;
                self.walk.skip(blank);
            } else {
                let segment_end = (at / self.segment_size + 1) * self.segment_size;
                let next = (at + PIECE).min(segment_end).min(to);
                let len = (next - at) as usize;
                let from = at & !(BLOCK - 1);
                let blocks = &mut self.blocks[..(next.next_multiple_of(BLOCK) - from) as usize];
                let read = log.read_raw(Class::Maintenance, Lsn(from), blocks);
                // Read first, looked at afterwards: its file may be another segment's by now, or gone.
                if !hold.is_kept() {
                    return Ok(false);
                }
                read?;
                let skipped = (at - from) as usize;
                self.frame[HEAD..HEAD + len].copy_from_slice(&blocks[skipped..skipped + len]);
                let notes = &mut |met: &Met<'_>| {
                    let Met::Record(record) = met else { return Ok(Step::On) };
                    if change::is_beside_log(record) {
                        return Ok(Step::Stop);
                    }
                    if let Some(note) = Note::of(record) {
                        part.note(&note);
                    }
                    Ok(Step::On)
                };
                self.walk
                    .take(&self.frame[HEAD..HEAD + len], notes)
                    .map_err(|what| Error::Damaged(format!("log: {what}")))?;
                // There was no archive yet when pages were filled beside the log: what is behind that begins anew.
                is_over = self.walk.is_stopped();
                let len = if is_over { self.walk.whole().saturating_sub(at) as usize } else { len };
                if len > 0 {
                    part.put(at, &mut self.frame, len)?;
                }
            }
            self.unsynced += part.bytes() - before;
            self.written += part.bytes() - before;
            if is_over {
                return Ok(false);
            }
            if self.walk.at().is_multiple_of(self.segment_size) {
                if !self.walk.is_between() {
                    // Bytes that were durable read as if nothing had been written there.
                    let whole = self.walk.whole();
                    return Err(Error::Damaged(format!("log: the record at lsn {whole} is not there")));
                }
                let part = self.part.take().expect("in use above");
                part.seal(self.walk.whole())?;
                self.all_synced();
            }
        }
        Ok(true)
    }

    /// Looks whether the folder has this archive still, and its part: what is written to a file that has lost its name is archived nowhere.
    fn check_is_there(&self) -> Result<()> {
        let info = read_text::<Info>(&*self.disk, &self.path.join(INFO))?;
        let is_other = |info: &Info| info.archive_id != self.begin.archive_id;
        match (info, &self.part) {
            (Some(info), _) if is_other(&info) => {
                Err(Error::Backup(format!("{:?} has another archive now than a moment ago", self.path)))
            }
            (Some(_), Some(part)) if !part.is_there()? => Err(is_gone(&self.path)),
            (Some(_), _) => Ok(()),
            (None, _) => Err(is_gone(&self.path)),
        }
    }

    fn begin_part(&mut self) -> Result<()> {
        assert!(self.walk.is_between(), "a part begins behind a record");
        self.check_is_there()?;
        self.begin.first = self.walk.whole();
        self.begin.previous_crc = self.walk.whole_crc();
        self.part = Some(PartWriter::begin(&self.disk, &self.path, self.mode, &self.begin)?);
        let gap = self.begin.gap_from.take();
        self.unsynced += HEAD as u64;
        if gap.is_some() {
            self.sync()?;
            self.write_position(true)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.unsynced > 0
            && let Some(part) = &mut self.part
        {
            part.sync()?;
        }
        self.all_synced();
        Ok(())
    }

    fn all_synced(&mut self) {
        self.unsynced = 0;
        self.synced = (self.walk.whole(), self.walk.whole_crc());
    }

    /// Writes down how far the archive has come, now and then; false where that can wait.
    fn write_position(&mut self, at_once: bool) -> Result<bool> {
        let is_due = self.position_at.is_none_or(|at| at.elapsed() >= POSITION_EVERY);
        if !at_once && !is_due {
            return Ok(false);
        }
        self.check_is_there()?;
        self.position_at = Some(clock::now());
        self.disk.publish(&self.path.join(POSITION), text_of(&self.position).as_bytes(), self.mode)?;
        Ok(true)
    }
}

/// A folder had an archive, and has none now.
fn is_gone(path: &Path) -> Error {
    Error::Backup(format!(
        "{path:?} has the archive no more that was there: is its file system mounted? Where it is gone for good, open the database anew, which begins another one, and take a full backup"
    ))
}
