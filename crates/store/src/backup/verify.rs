//! Proving backups without restoring them.
//!
//! # What it proves
//! 1. Every frame is there once, and whole; every page in it is, too, under the checksum that it has in the database.
//! 2. Each backup adds to the one before.
//! 3. The log of the newest one is there without a gap, record by record, from the segment of its start to its end.
//! 4. No page is missing: what the newest space maps in the backups say is in use is in one of them, or in that log, but for pages of undo, and
//!    as many others as were never written when all were looked at last; and none lies behind the end of the file. Where the newest backup has only
//!    looked at what had changed, what a bulk load may have left of an extent since does not count. Of maps that changed while the newest backup was
//!    taken nothing can be said.
//!
//! What it cannot prove: that what is in the pages makes sense. `gannet check` of the restored database does.

use super::format::{FrameKind, HEAD, STORED_MAX};
use super::manifest::{Begin, Manifest};
use super::restore::workers_within;
use super::source::{Feed, Frame, Item, Source};
use crate::engine::Engine;
use crate::jobs::{Crew, Stop, Unit, Watch, Worker, run_crew};
use crate::log::{BLOCK, Met, Step, Walk};
use crate::page::{self, PageKind, Verdict};
use crate::page_set::PageSet;
use crate::space::{self, EXTENT_PAGES, SYSTEM};
use crate::undo::UNDO_PAGES;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::{PageId, TreeId};
use gannet_io::ModeRequest;
use std::sync::{Arc, OnceLock};

/// Groups by which a file may grow while its backup is taken: of pages behind those it is not asked whether they are there.
const GROWS_BY: u64 = 64;

/// What was proven.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// What the backups say of themselves, oldest first.
    pub manifests: Vec<Manifest>,
    /// Pages that were verified; one that several backups have counts as often.
    pub pages: u64,
    /// Log records of the newest backup.
    pub log_records: u64,
}

/// What is known after some of the frames.
struct State {
    feed: Feed,
    begin: Option<Begin>,
    /// The log is that of the newest backup, of those that came so far.
    is_newest: bool,
    manifests: Vec<Manifest>,
    log: Option<LogCheck>,
}

struct Verify {
    state: Mutex<State>,
    /// Known with the first backup.
    sets: OnceLock<Sets>,
    /// What the newest backup says, of files: it is the one that is read first.
    newest: OnceLock<Begin>,
    engine: Engine,
    pages: Mutex<u64>,
    stop: Stop,
    job: Worker,
}

/// Pages that are there, and that should be.
struct Sets {
    present: PageSet,
    used: PageSet,
    /// Changed in the log of the newest backup.
    touched: PageSet,
    _memory: WorkMemory,
}

impl Sets {
    /// Whether a page that is missing may be what a bulk load has not come to in an extent: see [`super::unwritten`].
    fn is_left_of_load(&self, page: PageId) -> bool {
        let first = PageId(page.0 / EXTENT_PAGES * EXTENT_PAGES);
        self.used.of_extent(first) == u16::MAX && (self.present.has(first) || self.touched.has(first))
    }
}

/// Verifies the backups of a source.
pub(crate) fn run(
    engine: &Engine,
    source: Source,
    mode: ModeRequest,
    watch: &mut Watch<'_>,
) -> Result<VerifyReport> {
    let feed = Feed::new(engine, source, mode)?;
    watch.job().phase("verifies frames", Unit::Bytes, feed.total());
    let state = State { feed, begin: None, is_newest: false, manifests: Vec::new(), log: None };
    let verify = Arc::new(Verify {
        state: Mutex::new(state),
        sets: OnceLock::new(),
        newest: OnceLock::new(),
        engine: engine.clone(),
        pages: Mutex::new(0),
        stop: Stop::default(),
        job: watch.job().worker(),
    });
    let mut workers = Vec::new();
    for _ in 0..workers_within(engine) {
        let memory = engine.memory(Purpose::Work, 2 * (HEAD + STORED_MAX) as u64)?;
        let verify = Arc::clone(&verify);
        workers.push(move || {
            let _memory = memory;
            verify.work()
        });
    }
    run_crew("gannet-verify", Crew::StandsBy, watch, &verify.stop, workers)?;
    verify.finish()
}

impl Verify {
    fn sets(&self, begin: &Begin) -> Result<&Sets> {
        if self.sets.get().is_none() {
            let group = space::extents_per_group(begin.page_size as usize) * EXTENT_PAGES;
            let pages = begin.groups.saturating_add(GROWS_BY).saturating_mul(group);
            let memory = self.engine.memory(Purpose::Work, 3 * PageSet::memory(pages))?;
            let set = || PageSet::new(pages);
            let _ = self.sets.set(Sets { present: set(), used: set(), touched: set(), _memory: memory });
        }
        Ok(self.sets.get().expect("set above"))
    }

    fn work(&self) -> Result<()> {
        let mut buffer = vec![0; HEAD + STORED_MAX];
        let mut scratch = Vec::new();
        loop {
            let _permit = self.job.permit()?;
            let Some((frame, begin, fresh)) = self.next(&mut buffer)? else { return Ok(()) };
            self.look_at(&frame, &begin, &fresh, &buffer, &mut scratch)?;
        }
    }

    /// The next frame of pages, with its backup, and which of the pages came for the first time; what else comes is looked at here, in its
    /// order.
    fn next(&self, buffer: &mut [u8]) -> Result<Option<(Frame, Begin, Vec<bool>)>> {
        let mut state = self.state.lock();
        while !self.stop.is_set() {
            let item = state.feed.next(buffer)?;
            self.job.set_done(state.feed.done());
            match item {
                None => break,
                Some(Item::Begin(begin)) => {
                    state.is_newest = state.begin.is_none() || !state.feed.is_backwards();
                    if state.is_newest {
                        if state.feed.is_backwards() {
                            self.newest.get_or_init(|| begin.clone());
                        }
                        state.log = Some(LogCheck::new(&begin));
                        self.sets(&begin)?.touched.clear();
                    }
                    state.begin = Some(begin);
                }
                Some(Item::End(manifest)) => {
                    if state.is_newest
                        && let Some(log) = &state.log
                    {
                        log.check_end(manifest.end_lsn)?;
                    }
                    state.manifests.push(*manifest);
                }
                Some(Item::Frame(frame)) => {
                    self.job.count_read(frame.len() as u64);
                    let head = &frame.head;
                    if head.kind != FrameKind::Log {
                        let Some(begin) = state.begin.clone() else { return Ok(None) };
                        let sets = self.sets(&begin)?;
                        let fresh = head.pages.iter().map(|&page| sets.present.add(page)).collect();
                        return Ok(Some((frame, begin, fresh)));
                    }
                    let mut scratch = Vec::new();
                    let content = frame.content(buffer, &mut scratch)?;
                    let is_newest = state.is_newest;
                    let sets = self.sets.get().expect("a backup has begun");
                    if let Some(log) = state.log.as_mut().filter(|_| is_newest) {
                        log.take(head.first, content, &mut |page| {
                            sets.touched.add(page);
                        })?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Verifies the pages of a frame. Of a space map that several backups have, the one that came first counts: of files that is the newest.
    fn look_at(
        &self,
        frame: &Frame,
        begin: &Begin,
        fresh: &[bool],
        buffer: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let (head, content) = (&frame.head, frame.content(buffer, scratch)?);
        let (page_size, sets) = (begin.page_size as usize, self.sets(begin)?);
        if content.len() != head.pages.len() * page_size {
            return Err(frame.damaged("the frame has not the pages that it lists"));
        }
        let newer = self.newest.get().filter(|newest| newest.backup_id != head.backup);
        for ((&id, &fresh), bytes) in head.pages.iter().zip(fresh).zip(content.chunks_exact(page_size)) {
            if page::verify(bytes, id, begin.database_id) != Verdict::Valid {
                return Err(frame.damaged(format_args!("{id} in it is not whole")));
            }
            let is_gone = newer.is_some_and(|newer| newer.outdates(id));
            if fresh && !is_gone && page::kind(bytes) == Some(PageKind::SpaceMap) {
                note_used(sets, id, bytes);
            }
        }
        *self.pages.lock() += head.pages.len() as u64;
        Ok(())
    }

    fn finish(&self) -> Result<VerifyReport> {
        let mut state = self.state.lock();
        let mut manifests = std::mem::take(&mut state.manifests);
        if state.feed.is_backwards() {
            manifests.reverse();
        }
        let Some(newest) = manifests.last() else {
            return Err(Error::Backup("the source holds no backup".to_owned()));
        };
        let pages = newest.file_bytes / u64::from(newest.begin.page_size);
        // Of a stream with several backups the maps came oldest first.
        let is_judged = state.feed.is_backwards() || manifests.len() == 1;
        // A backup of what has changed does not see all that was never written.
        let whole = manifests.iter().rev().find(|one| one.has_seen_all()).unwrap_or(newest);
        let unwritten = whole.unwritten - whole.unwritten_undo;
        let (mut missing, mut first) = (0, None);
        let mut from = PageId(0);
        let sets = self.sets(&newest.begin)?;
        let group_pages = space::extents_per_group(newest.begin.page_size as usize) * EXTENT_PAGES;
        while let Some(page) = sets.used.next(from).filter(|page| page.0 < pages) {
            // What was freed after its map was copied is passed over; then the log has changed the map.
            let map = space::map_page(page.0 / group_pages, newest.begin.page_size as usize);
            let is_there = sets.present.has(page) || sets.touched.has(page) || sets.touched.has(map);
            if !is_there && (newest.has_seen_all() || !sets.is_left_of_load(page)) {
                missing += 1;
                first.get_or_insert(page);
            }
            from = PageId(page.0 + 1);
        }
        if is_judged && let Some(page) = sets.used.next(PageId(pages)) {
            let map = space::map_page(page.0 / group_pages, newest.begin.page_size as usize);
            if !sets.touched.has(map) {
                return Err(damaged(format!(
                    "a space map says that {page} is in use, and the file has {pages} pages"
                )));
            }
        }
        if is_judged && missing > unwritten {
            let first = first.unwrap_or_default();
            return Err(damaged(format!("{missing} pages are missing, {first} is the first of them")));
        }
        let log_records = state.log.as_ref().map_or(0, |log| log.records);
        Ok(VerifyReport { manifests, pages: *self.pages.lock(), log_records })
    }
}

/// Takes notice of what a space map says is in use.
fn note_used(sets: &Sets, map: PageId, bytes: &[u8]) {
    let per_group = space::extents_per_group(bytes.len());
    let first = map.0 / (per_group * EXTENT_PAGES) * per_group;
    for (index, extent) in space::read_map(bytes).enumerate() {
        // Undo pages are in use before they are written for the first time, and are counted apart.
        if extent.owner == TreeId(0) || extent.owner == UNDO_PAGES {
            continue;
        }
        for place in (0..EXTENT_PAGES).filter(|place| extent.used & 1 << place != 0) {
            let page = PageId((first + index as u64) * EXTENT_PAGES + place);
            if extent.owner != SYSTEM || page.0 >= map.0 {
                sets.used.add(page);
            }
        }
    }
}

fn damaged(what: String) -> Error {
    Error::Backup(format!("the backup is damaged: {what}"))
}

/// The log of a backup, record by record, as it comes.
struct LogCheck {
    /// The backup's start.
    start: u64,
    /// The segment that it lies in: what is before names the transactions open there, and is not looked at.
    from: u64,
    walk: Walk,
    records: u64,
}

impl LogCheck {
    fn new(begin: &Begin) -> Self {
        let from = begin.start_lsn / begin.segment_size * begin.segment_size;
        let walk = Walk::new(begin.database_id, begin.segment_size, from, None);
        LogCheck { start: begin.start_lsn, from, walk, records: 0 }
    }

    fn take(&mut self, first: u64, content: &[u8], touched: &mut dyn FnMut(PageId)) -> Result<()> {
        if first < self.from {
            return Ok(());
        }
        if first != self.walk.at() {
            return Err(damaged(format!("its log has a gap before lsn {first}")));
        }
        let LogCheck { start, walk, records, .. } = self;
        let mut visit = |met: &Met<'_>| {
            *records += u64::from(!matches!(met, Met::Segment(_)));
            if let Met::Record(record) = met
                && record.end() > *start
            {
                record.pages().for_each(&mut *touched);
            }
            Ok(Step::On)
        };
        walk.take(content, &mut visit).map_err(|what| damaged(format!("its log: {what}")))
    }

    fn check_end(&self, end: u64) -> Result<()> {
        let at = self.walk.whole();
        if at == end || (at == self.from && end <= self.from + BLOCK) {
            return Ok(());
        }
        Err(damaged(format!("its log ends at lsn {at}, not at {end}")))
    }
}
