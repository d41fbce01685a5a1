//! The list of changed pages: what the log said of pages before its segments went, kept in a file beside it, so that a backup that
//! adds to another one reads only what has changed since.
//!
//! # What it guarantees
//! 1. Where [`Changes::since`] gives a set, every page is in it that was changed behind the position asked for. Where the list does not
//!    reach back so far, is not there, or cannot be read, it says why, and the caller looks at all pages: nothing else depends on it.
//! 2. It costs nothing before the first backup, which begins it. From then on, before the checkpoint passes a segment of the log, the pages
//!    in that segment's footer are appended here, durably. Nobody but the page writer waits for that, and nothing fails because of it:
//!    what cannot be written ends the list, and the next backup begins another one.
//!
//! # Invariants
//! 1. Entries follow each other without a gap in the log: each covers one segment, or several where they were merged, from where the one
//!    before ends. So the list covers the log from its first mark up to the end of its last entry.
//! 2. The list reaches at least to the segment that the file header's `redo_from` lies in: entries are durable before the header is
//!    written, and the header before the log lets anything go. What lies behind is still in the log, which a backup asks for the rest.
//! 3. A *mark* is the start of a backup. Merging joins entries between two marks only, so what has changed since a backup is known as
//!    exactly as the log has known it, for the newest [`MARKS`] backups; older ones find more pages than they need.
//!
//! # Why a crash at any point is harmless
//! - while an entry is appended: the header has not passed its segment. What a start finds behind `redo_from` is cut off the list, as it
//!   need not be durable, and made anew from the log.
//! - while the list is merged: the new file takes the old one's name when it is durable, and says the same.
//! - A list that does not reach to `redo_from` when the database is opened has missed something (a failure, another release, a file that was
//!   put back) and ends. So does one that is of another copy of the database: its last entry names the life in which it was written.
//!
//! To fold what changed out of the log is what PostgreSQL's WAL summarizer does for its incremental backups (R. Haas, 2023).

use crate::log::{Log, LogHold};
use crate::meta::{Life, Meta};
use crate::mutation::{Mutation, planted};
use crate::page::{get_u32, get_u64, put_u32, put_u64};
use crate::page_list::{self, BLOCK};
use crate::page_set::{GrowingSet, PageSet};
use crate::work::WorkMemory;
use crate::{Error, Result, space};
use gannet_base::memory::{Budget, Purpose};
use gannet_base::sync::Mutex;
use gannet_base::{Lsn, PageId, checksum};
use gannet_io::{AlignedBuffer, Class, Disk, Durability, File, ModeRequest, OpenOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 8] = b"GNTCHNGS";
const VERSION: u32 = 1;
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = 16;
const KIND_AT: usize = 20;
const LIFE_AT: usize = 24;
const FROM_AT: usize = 32;
const TO_AT: usize = 40;
const BLOCKS_AT: usize = 48;

/// Backups that the list tells apart.
const MARKS: usize = 16;
/// Blocks that are read or written by one request.
const BLOCKS_AT_ONCE: usize = 64;
/// Endings of lists that have not their name yet: of a new one, and of one that was made of the one in force. Both may be made at one time.
const BEGUN: &str = "new";
const MERGED: &str = "merged";
/// The list is merged when it has become twice as long as it was behind the last time, and by so many bytes longer.
const MERGE_AT: u64 = 64 << 10;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A backup began in the segment that begins at `from`.
    Mark = 1,
    /// Pages were changed.
    Pages = 2,
}

/// The first block of an entry; blocks of a list of pages follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    kind: Kind,
    /// The database's life that wrote it.
    life: u64,
    /// The part of the log it is about, whole segments.
    from: Lsn,
    to: Lsn,
    /// Blocks that follow.
    blocks: u64,
}

impl Head {
    fn encode(&self, salt: u64, block: &mut [u8]) {
        block.fill(0);
        block[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MAGIC);
        put_u32(block, VERSION_AT, VERSION);
        put_u32(block, KIND_AT, self.kind as u32);
        put_u64(block, LIFE_AT, self.life);
        put_u64(block, FROM_AT, self.from.0);
        put_u64(block, TO_AT, self.to.0);
        put_u64(block, BLOCKS_AT, self.blocks);
        let sum = checksum::seeded(salt, &block[MAGIC_AT..]);
        put_u64(block, 0, sum);
    }

    fn decode(block: &[u8], salt: u64) -> Option<Head> {
        let kind = match get_u32(block, KIND_AT) {
            1 => Kind::Mark,
            2 => Kind::Pages,
            _ => return None,
        };
        let is_ours = get_u64(block, 0) == checksum::seeded(salt, &block[MAGIC_AT..])
            && &block[MAGIC_AT..MAGIC_AT + 8] == MAGIC
            && get_u32(block, VERSION_AT) == VERSION;
        is_ours.then(|| Head {
            kind,
            life: get_u64(block, LIFE_AT),
            from: Lsn(get_u64(block, FROM_AT)),
            to: Lsn(get_u64(block, TO_AT)),
            blocks: get_u64(block, BLOCKS_AT),
        })
    }

    /// Bytes of the whole entry.
    fn len(&self) -> u64 {
        (self.blocks + 1).saturating_mul(BLOCK as u64)
    }
}

/// A list that covers the log from `from` to `to`.
#[derive(Clone, Debug)]
struct List {
    file: Arc<dyn File>,
    /// Bytes of it.
    len: u64,
    from: Lsn,
    to: Lsn,
    /// Segments that backups began in, ascending; the first one is where the list begins.
    marks: Vec<Lsn>,
    /// Bytes of it when it was merged the last time.
    merged_len: u64,
}

#[derive(Debug)]
enum State {
    /// Nobody has asked since the database was opened.
    Unknown,
    /// There is none, and why.
    Absent(String),
    Kept(List),
}

/// The list of one database.
#[derive(Debug)]
pub(crate) struct Changes {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    mode: ModeRequest,
    salt: u64,
    log: Log,
    state: Mutex<State>,
}

/// Pages that were changed, as far as the list knows.
pub(crate) enum Since {
    /// These, with what their memory is charged to.
    Pages(PageSet, WorkMemory),
    /// It does not know, and why.
    Unknown(String),
}

impl Changes {
    pub(crate) fn new(disk: &Arc<dyn Disk>, path: PathBuf, mode: ModeRequest, salt: u64, log: &Log) -> Self {
        let state = Mutex::new(State::Unknown);
        Changes { disk: Arc::clone(disk), path, mode, salt, log: log.clone(), state }
    }

    /// The beginning of the segment that a position lies in.
    fn segment_of(&self, at: Lsn) -> Lsn {
        Lsn(at.0 / self.log.segment_size() * self.log.segment_size())
    }

    /// Takes notice of what the log changed below `redo_from`, before the header with that is written; `meta` is the one before.
    pub(crate) fn fold(&self, meta: &Meta, redo_from: Lsn) {
        let mut state = self.loaded(meta);
        let State::Kept(list) = &mut *state else { return };
        if let Err(error) = self.fold_into(list, meta, redo_from) {
            self.end(&mut state, &format!("it could not be written: {error}"));
        }
    }

    fn fold_into(&self, list: &mut List, meta: &Meta, redo_from: Lsn) -> Result<()> {
        let target = self.segment_of(redo_from);
        if list.to >= target {
            return Ok(());
        }
        let mut writer = Writer::new(&*list.file, list.len, self.salt);
        let mut to = list.to;
        while to < target {
            // The page writer is about it, whom frames wait for.
            let footer = self.log.footer(to, None)?.ok_or_else(|| {
                Error::Damaged(format!("the log's segment that begins at lsn {} has no valid footer", to.0))
            })?;
            let next = Lsn(to.0 + self.log.segment_size());
            if !planted(Mutation::ChangesForgotten) {
                writer.pages(life(meta), to..next, footer.pages.iter().map(|&(page, _)| page))?;
            } else {
                writer.pages(life(meta), to..next, std::iter::empty())?;
            }
            to = next;
        }
        let len = writer.finish()?;
        list.file.sync(Class::Deadline)?;
        (list.len, list.to) = (len, to);
        Ok(())
    }

    /// A backup begins at `start`, from where on the log is held: what changes from there on will be known apart. Where there is no list, one
    /// begins, which reaches back to there.
    pub(crate) fn mark(&self, meta: &Meta, start: Lsn) {
        let mut state = self.loaded(meta);
        let at = self.segment_of(start);
        let outcome = match &mut *state {
            State::Kept(list) => self.mark_in(list, meta, at),
            _ => match self.begin(meta, at) {
                Ok(list) => {
                    *state = State::Kept(list);
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = outcome {
            self.end(&mut state, &format!("it could not be written: {error}"));
        }
    }

    fn mark_in(&self, list: &mut List, meta: &Meta, at: Lsn) -> Result<()> {
        if list.marks.last() >= Some(&at) {
            return Ok(());
        }
        let mut writer = Writer::new(&*list.file, list.len, self.salt);
        writer.mark(life(meta), at)?;
        let len = writer.finish()?;
        list.file.sync(Class::Maintenance)?;
        list.len = len;
        list.marks.push(at);
        Ok(())
    }

    fn begin(&self, meta: &Meta, at: Lsn) -> Result<List> {
        let temporary = self.new_file(BEGUN)?;
        let mut writer = Writer::new(&*temporary, 0, self.salt);
        writer.mark(life(meta), at)?;
        let len = writer.finish()?;
        let file = self.put_in_place(temporary, BEGUN)?;
        Ok(List { file, len, from: at, to: at, marks: vec![at], merged_len: len })
    }

    /// Pages that were changed behind `since`, with those that are in the set already.
    ///
    /// # Errors
    /// [`Error::Memory`] where there is no room for the set.
    pub(crate) fn since(&self, meta: &Meta, since: Lsn, mut set: GrowingSet) -> Result<Since> {
        let (list, hold) = {
            let state = self.loaded(meta);
            match &*state {
                State::Kept(list) if list.from <= since => {
                    // Invariant 2: as long as nobody folds, the log is there from here on.
                    (list.clone(), self.log.hold_from(list.to))
                }
                State::Kept(_) => {
                    return Ok(Since::Unknown("the list of changed pages begins later".to_owned()));
                }
                State::Absent(why) => return Ok(Since::Unknown(why.clone())),
                State::Unknown => unreachable!("it was looked for"),
            }
        };
        let mut read = self.read(&list, &mut |head| head.to > since, &mut |page| set.add(page));
        if let Ok(true) = read {
            let is_there = self.rest_of_log(&hold, list.to, since, &mut set);
            if let Ok(false) = is_there {
                // That is no fault of the list.
                let why = "the log behind the list of changed pages was let go of, as others needed its room";
                return Ok(Since::Unknown(why.to_owned()));
            }
            read = is_there;
        }
        let why = match read {
            Ok(true) => {
                let (pages, memory) = set.into_set();
                return Ok(Since::Pages(pages, memory));
            }
            Err(error @ (Error::Memory(_) | Error::Cancelled)) => return Err(error),
            Ok(false) => "it is damaged".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut state = self.state.lock();
        // Not one that has taken its place meanwhile.
        if matches!(&*state, State::Kept(kept) if Arc::ptr_eq(&kept.file, &list.file)) {
            self.end(&mut state, &why);
        }
        Ok(Since::Unknown(format!("the list of changed pages cannot be read: {why}")))
    }

    /// Adds what the log, which is held, has changed from `from` on, and behind `since`; false where it was let go of.
    fn rest_of_log(&self, hold: &LogHold, from: Lsn, since: Lsn, set: &mut GrowingSet) -> Result<bool> {
        let mut outcome = Ok(());
        let mut footers = set.another_memory(Purpose::Log);
        let changed = self.log.changed_pages(from, &mut footers, &mut |page, last| {
            // Within a segment the log knows what the list forgets: a backup soon behind another one finds little.
            if last > since && outcome.is_ok() {
                outcome = set.add(page);
            }
        });
        if !hold.is_kept() {
            return Ok(false);
        }
        changed.and(outcome).map(|()| true)
    }

    /// Gives the pages of the entries that are `wanted`, each of which is asked for; false where one of them is damaged, or missing.
    fn read(
        &self,
        list: &List,
        wanted: &mut dyn FnMut(&Head) -> bool,
        visit: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<bool> {
        let mut buffer = AlignedBuffer::zeroed(BLOCKS_AT_ONCE * BLOCK);
        let (mut at, mut reached) = (0, list.from);
        while at < list.len {
            list.file.read_at(Class::Maintenance, at, &mut buffer[..BLOCK])?;
            let Some(head) = Head::decode(&buffer[..BLOCK], self.salt) else { return Ok(false) };
            let end = at.saturating_add(head.len());
            let is_wanted = wanted(&head) && head.kind == Kind::Pages;
            if head.kind == Kind::Pages && std::mem::replace(&mut reached, head.to) != head.from {
                return Ok(false);
            }
            at += BLOCK as u64;
            while at < end && is_wanted {
                let count = (end - at).min(buffer.len() as u64) as usize;
                list.file.read_at(Class::Maintenance, at, &mut buffer[..count])?;
                for block in buffer[..count].chunks(BLOCK) {
                    if page_list::decode(block, self.salt) != Some(head.to.0) {
                        return Ok(false);
                    }
                    page_list::pages_of(block).try_for_each(&mut *visit)?;
                }
                at += count as u64;
            }
            at = end;
        }
        Ok(reached == list.to)
    }

    /// Makes the list shorter where it has become long: entries between two marks become one. `pages` tells how many the file has now, of so many bytes
    /// each.
    pub(crate) fn merge_when_long(&self, budget: &Budget, page_size: usize, pages: impl Fn() -> u64) {
        let list = match &mut *self.state.lock() {
            State::Kept(list) if list.len > 2 * list.merged_len + MERGE_AT => {
                // Should it fail, it is tried again when the list has become longer by as much.
                list.merged_len = list.len;
                list.clone()
            }
            _ => return,
        };
        // Without the lock: the page writer may append meanwhile. What the list has now lies within the file as it is now, or was cut off; a
        // page beyond that is changed anew before it is used again. Space maps stay, which are few: where a compaction had let go of one, and the file was
        // not cut off after all, openings did not always forget it.
        if let Ok(Some(merged)) = self.merged(&list, budget, (pages(), page_size)) {
            let _ = self.replace(&list, merged);
        }
    }

    /// The same entries, merged and durable, in a new file that has not the list's name yet; `None` where one of them is damaged.
    fn merged(&self, list: &List, budget: &Budget, (pages, page_size): (u64, usize)) -> Result<Option<List>> {
        let _memory = budget.charge(Purpose::Work, PageSet::memory(pages))?;
        let skipped = list.marks.len().saturating_sub(MARKS);
        let mut marks = vec![list.from];
        marks.extend(list.marks[1..].iter().skip(skipped));
        let file = self.new_file(MERGED)?;
        let mut writer = Writer::new(&*file, 0, self.salt);
        let life = self.last_life(list)?;
        for (index, &mark) in marks.iter().enumerate() {
            writer.mark(life, mark)?;
            let to = marks.get(index + 1).copied().unwrap_or(list.to).min(list.to);
            if mark >= to {
                continue;
            }
            let set = PageSet::new(pages);
            let mut maps_behind = BTreeSet::new();
            let mut in_section = |head: &Head| head.from < to && head.to > mark;
            let whole = self.read(list, &mut in_section, &mut |page| {
                if page.0 < set.pages() {
                    set.add(page);
                } else if space::group_of_map(page, page_size).is_some() {
                    maps_behind.insert(page);
                }
                Ok(())
            })?;
            if !whole {
                return Ok(None);
            }
            let in_set = std::iter::successors(set.next(PageId(0)), |page| set.next(PageId(page.0 + 1)));
            writer.pages(life, mark..to, in_set.chain(maps_behind))?;
        }
        let len = writer.finish()?;
        // Most of it before the page writer has to wait: see `replace`.
        file.sync(Class::Maintenance)?;
        Ok(Some(List { file, len, from: list.from, to: list.to, marks, merged_len: len }))
    }

    /// The life that the last entry was written in.
    fn last_life(&self, list: &List) -> Result<u64> {
        let mut life = 0;
        self.read(
            list,
            &mut |head| {
                life = head.life;
                false
            },
            &mut |_| Ok(()),
        )?;
        Ok(life)
    }

    /// Puts a merged list in the place of the one it was made of, with what was appended to that meanwhile, which is all that is written while
    /// the page writer may wait.
    fn replace(&self, from: &List, mut merged: List) -> Result<()> {
        let mut state = self.state.lock();
        let State::Kept(list) = &mut *state else { return Ok(()) };
        if !Arc::ptr_eq(&list.file, &from.file) {
            return Ok(());
        }
        let mut buffer = AlignedBuffer::zeroed(BLOCKS_AT_ONCE * BLOCK);
        let mut at = from.len;
        while at < list.len {
            let count = (list.len - at).min(buffer.len() as u64) as usize;
            list.file.read_at(Class::Maintenance, at, &mut buffer[..count])?;
            merged.file.write_at(Class::Maintenance, merged.len, &buffer[..count], Durability::Cached)?;
            at += count as u64;
            merged.len += count as u64;
        }
        merged.to = list.to;
        merged.marks.extend(list.marks.iter().copied().filter(|mark| from.marks.last() < Some(mark)));
        merged.file = self.put_in_place(merged.file, MERGED)?;
        *list = merged;
        Ok(())
    }

    /// A file that gets the list's name when it is complete, and this ending until then.
    fn new_file(&self, ending: &str) -> Result<Arc<dyn File>> {
        let options = OpenOptions { create: true, ..OpenOptions::read_write() };
        let file = self.disk.open(&self.path.with_extension(ending), &options.mode(self.mode))?;
        file.set_len(0)?;
        Ok(file)
    }

    /// Gives a new file, once it is durable, the list's name.
    fn put_in_place(&self, file: Arc<dyn File>, ending: &str) -> Result<Arc<dyn File>> {
        file.sync(Class::Maintenance)?;
        drop(file);
        self.disk.rename(&self.path.with_extension(ending), &self.path)?;
        self.disk.sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        self.open()
    }

    fn open(&self) -> Result<Arc<dyn File>> {
        Ok(self.disk.open(&self.path, &OpenOptions::read_write().mode(self.mode))?)
    }

    /// There is no list any more.
    fn end(&self, state: &mut State, why: &str) {
        *state = State::Absent(format!("the list of changed pages has ended: {why}"));
        // Where that fails, the checkpoint passes it, and the next start sees that.
        let _ = self.disk.remove(&self.path);
    }

    /// The list, looked for where that was not done since the start.
    fn loaded(&self, meta: &Meta) -> gannet_base::sync::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if matches!(*state, State::Unknown) {
            match self.load(meta) {
                Ok(Some(list)) => *state = State::Kept(list),
                Ok(None) => {
                    *state = State::Absent(
                        "there is no list of changed pages: the first backup begins one".to_owned(),
                    );
                }
                Err(error) => self.end(&mut state, &error.to_string()),
            }
        }
        state
    }

    /// Invariants 1 and 2, and whose list it is.
    fn load(&self, meta: &Meta) -> Result<Option<List>> {
        if !self.disk.exists(&self.path)? {
            return Ok(None);
        }
        let file = self.open()?;
        let end = file.len()?;
        let reached = self.segment_of(meta.redo_from);
        let mut buffer = AlignedBuffer::zeroed(BLOCK);
        let mut list: Option<(List, u64)> = None;
        let mut at = 0;
        while at + BLOCK as u64 <= end {
            file.read_at(Class::Maintenance, at, &mut buffer)?;
            let Some(head) = Head::decode(&buffer, self.salt) else { break };
            match (&mut list, head.kind) {
                (None, Kind::Mark) => {
                    let marks = vec![head.from];
                    let (file, from, to) = (Arc::clone(&file), head.from, head.from);
                    list = Some((List { file, len: 0, from, to, marks, merged_len: 0 }, head.life));
                }
                (Some((list, life)), Kind::Mark) if list.marks.last() < Some(&head.from) => {
                    list.marks.push(head.from);
                    *life = head.life;
                }
                (Some((list, life)), Kind::Pages)
                    if head.from == list.to && head.to > head.from && head.to <= reached =>
                {
                    list.to = head.to;
                    *life = head.life;
                }
                _ => break,
            }
            at = at.saturating_add(head.len());
        }
        let Some((mut list, life)) = list else { return Err(Error::Damaged("it is damaged".to_owned())) };
        if list.to < reached {
            return Err(Error::Damaged("it has missed a part of the log".to_owned()));
        }
        if !Life::is_past(&meta.lives, life, list.to) {
            return Err(Error::Damaged("it is of another copy of the database".to_owned()));
        }
        if at > end {
            return Err(Error::Damaged("it is shorter than it was".to_owned()));
        }
        // What is cut off is made anew.
        if at < end {
            file.set_len(at)?;
        }
        (list.len, list.merged_len) = (at, at / 2);
        Ok(Some(list))
    }
}

/// The life that the database is in.
fn life(meta: &Meta) -> u64 {
    meta.lives.last().map_or(0, |life| life.id)
}

/// Appends entries.
struct Writer<'f> {
    file: &'f dyn File,
    at: u64,
    salt: u64,
    buffer: AlignedBuffer,
}

impl<'f> Writer<'f> {
    fn new(file: &'f dyn File, at: u64, salt: u64) -> Self {
        Writer { file, at, salt, buffer: AlignedBuffer::zeroed(BLOCKS_AT_ONCE * BLOCK) }
    }

    fn head(&mut self, at: u64, head: &Head) -> Result<()> {
        head.encode(self.salt, &mut self.buffer[..BLOCK]);
        Ok(self.file.write_at(Class::Maintenance, at, &self.buffer[..BLOCK], Durability::Cached)?)
    }

    fn mark(&mut self, life: u64, at: Lsn) -> Result<()> {
        self.head(self.at, &Head { kind: Kind::Mark, life, from: at, to: at, blocks: 0 })?;
        self.at += BLOCK as u64;
        Ok(())
    }

    /// Pages that were changed in this part of the log, ascending.
    fn pages(
        &mut self,
        life: u64,
        range: std::ops::Range<Lsn>,
        mut pages: impl Iterator<Item = PageId>,
    ) -> Result<()> {
        let head_at = self.at;
        self.at += BLOCK as u64;
        let mut batch: Vec<PageId> = Vec::with_capacity(BLOCK);
        let (mut blocks, mut filled) = (0, 0);
        loop {
            batch.extend(pages.by_ref().take(BLOCK - batch.len()));
            if !batch.is_empty() {
                let block = &mut self.buffer[filled..filled + BLOCK];
                let taken = page_list::encode(&batch, range.end.0, self.salt, block);
                batch.drain(..taken);
                (blocks, filled) = (blocks + 1, filled + BLOCK);
            }
            if filled == self.buffer.len() || (batch.is_empty() && filled > 0) {
                self.file.write_at(
                    Class::Maintenance,
                    self.at,
                    &self.buffer[..filled],
                    Durability::Cached,
                )?;
                self.at += filled as u64;
                filled = 0;
            }
            // A block never takes a batch that is full: where nothing is left of one, there are no further pages.
            if batch.is_empty() {
                break;
            }
        }
        self.head(head_at, &Head { kind: Kind::Pages, life, from: range.start, to: range.end, blocks })
    }

    /// Bytes of the file up to the last entry.
    fn finish(self) -> Result<u64> {
        Ok(self.at)
    }
}
