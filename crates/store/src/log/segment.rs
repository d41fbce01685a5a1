//! Segment files: their names, the header block, and how files come and go.
//!
//! # Invariants
//! 1. A file under a segment's name has its full size, of blocks that were really written: it is filled with zeros and
//!    synced under a temporary name first.
//! 2. A segment is *ready* once its name is durable. The log enters ready segments only, so nothing is acknowledged
//!    that a lost directory entry could take back.
//! 3. Only segments below the one before `keep` are renamed or removed: the segment before the first one needed is
//!    kept for its footer, which names the transactions open at that point.
//! 4. A segment is renamed to a higher number only, and sealed only when the one behind it is ready. So a header of a
//!    higher number than its file's name, or of a segment that is needed and not in its place, or no file behind a
//!    sealed segment, is damage.
//! 5. However many segments there are, at most [`OPEN_MAX`] files stay open besides those that are ready, and the one that the log writes
//!    to is always among them. Who looks at many files one after the other opens and closes each.
//! 6. The file of a ready segment is open until the log writes to it: that a process has too many files open fails who makes a segment
//!    ready, who may try again, and never a commit's write, behind which nothing is written any more.
//!
//! # A crash at any point
//! A half-filled temporary file is overwritten by the next attempt. A rename that is not durable yet leaves an old
//! segment that nobody needs, or a ready one; its stale content is told from the log by the positions and
//! incarnations in header block and records. Renames of several segments
//! become durable independently: behind the segment in use, which is not sealed then, numbers may be missing.

use super::LogOptions;
use super::record::Identity;
use crate::page::{get_u32, get_u64, put_u32, put_u64};
use crate::{Error, Result};
use gannet_base::sync::Mutex;
use gannet_base::{checksum, thread};
use gannet_io::{AlignedBuffer, Class, Disk, Durability, ErrorKind, File, ModeRequest, OpenOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Unit of the log's writes, and the length of a segment's header, in bytes.
pub(crate) const BLOCK: u64 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"GNTSEGMT");
/// What is written, and the oldest that is read: 4 has changes that 3 does not know, and all of that one's.
const VERSION: u32 = 4;
const VERSION_OLDEST: u32 = 3;
/// Threads that look at files side by side.
const READERS: usize = 16;
const FLAG_FIRST: u32 = 1;
const CHECKSUM: usize = BLOCK as usize - 8;
const FILL_CHUNK: u64 = 256 << 10;
/// Files that stay open: far fewer than a process may have, however long the log is.
const OPEN_MAX: usize = 64;

/// Length of the writes that fill a new segment; so much memory is kept for them as long as the log is open, in bytes.
pub(super) fn fill_chunk(segment_size: u64) -> u64 {
    (segment_size / 16).next_multiple_of(BLOCK).min(FILL_CHUNK)
}

/// The first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: Identity,
    pub(crate) number: u64,
    pub(crate) segment_size: u64,
    /// Checksum of the record before: the footer of the segment before; 0 for none.
    pub(crate) previous_crc: u32,
    /// Nothing came before this segment.
    pub(crate) first: bool,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK as usize] {
        let mut block = [0; BLOCK as usize];
        put_u64(&mut block, 0, MAGIC);
        put_u32(&mut block, 8, VERSION);
        put_u32(&mut block, 12, self.identity.incarnation);
        put_u64(&mut block, 16, self.identity.database_id);
        put_u64(&mut block, 24, self.number);
        put_u64(&mut block, 32, self.segment_size);
        put_u32(&mut block, 40, self.previous_crc);
        put_u32(&mut block, 44, if self.first { FLAG_FIRST } else { 0 });
        let sum = checksum::seeded(self.identity.database_id, &block[..CHECKSUM]);
        put_u64(&mut block, CHECKSUM, sum);
        block
    }

    /// The database in the block, if it is any segment's header of any database.
    fn owner(block: &[u8]) -> Option<u64> {
        let database_id = get_u64(block, 16);
        let sum = checksum::seeded(database_id, &block[..CHECKSUM]);
        (get_u64(block, 0) == MAGIC && get_u64(block, CHECKSUM) == sum).then_some(database_id)
    }

    /// The number in the block, if it is any segment's header of this database.
    fn claimed_number(block: &[u8], database_id: u64) -> Option<u64> {
        (Self::owner(block) == Some(database_id)).then(|| get_u64(block, 24))
    }

    /// The header of segment `number`, if the block is one; another format or segment size is an error.
    pub(crate) fn decode(
        block: &[u8],
        database_id: u64,
        number: u64,
        segment_size: u64,
        path: &Path,
    ) -> Result<Option<SegmentHeader>> {
        if Self::claimed_number(block, database_id) != Some(number) {
            return Ok(None);
        }
        let version = get_u32(block, 8);
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            let text = format!(
                "{path:?} is a log segment of format {version}; this release reads {VERSION_OLDEST} to {VERSION}"
            );
            return Err(Error::Format(text));
        }
        let stored_size = get_u64(block, 32);
        if stored_size != segment_size {
            let text = format!("{path:?} is a log segment of {stored_size} bytes, not {segment_size}");
            return Err(Error::Format(text));
        }
        Ok(Some(SegmentHeader {
            identity: Identity { database_id, incarnation: get_u32(block, 12) },
            number,
            segment_size,
            previous_crc: get_u32(block, 40),
            first: get_u32(block, 44) & FLAG_FIRST != 0,
        }))
    }
}

/// Which files there are, and how many are worth keeping.
#[derive(Debug)]
struct Inventory {
    /// Numbers that have a file.
    numbers: BTreeSet<u64>,
    /// Files the log has lately had need of at one time. It is kept as many, so that it need not make them again.
    width: usize,
    /// The same since the log let go of segments the last time.
    peak: usize,
    /// What [`Segments::keep`] was then.
    settled_at: u64,
}

impl Inventory {
    /// Files that are needed, or ready to be used.
    fn needed(&self, keep: u64) -> usize {
        self.numbers.range(keep..).count()
    }

    /// Takes notice of what is needed now. Where segments were let go since the last time, what is kept comes closer to what
    /// was needed until then, by an eighth of the difference: as PostgreSQL's estimate of how much log the next checkpoint is
    /// away (`CheckPointDistanceEstimate`) it follows a rise at once and a fall slowly.
    fn settle(&mut self, keep: u64, most: usize) {
        let needed = self.needed(keep);
        if keep > self.settled_at {
            self.width -= self.width.saturating_sub(self.peak).div_ceil(8);
            (self.peak, self.settled_at) = (0, keep);
        }
        self.peak = self.peak.max(needed);
        self.width = self.width.min(most).max(self.peak);
    }
}

/// The files of one log.
#[derive(Debug)]
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    mode: ModeRequest,
    /// What new segments are filled with. Kept, and within [`LogOptions::memory`], so that the log can grow when statements
    /// have taken all of the budget.
    zeros: AlignedBuffer,
    pub(crate) size: u64,
    pub(crate) database_id: u64,
    /// Held while files are made, renamed or removed.
    inventory: Mutex<Inventory>,
    /// Who waits for that so that a commit can go on.
    commits_waiting: AtomicUsize,
    open: Mutex<OpenFiles>,
    /// Segments from the one in use up to, not including, this one are ready.
    ready_end: AtomicU64,
    /// Segments below this one may be reused or removed.
    keep: AtomicU64,
    /// Files kept at most, those that are needed included.
    width_max: usize,
    /// What the files were found to be at a restart, until the log is written again.
    survey: Mutex<Option<BTreeMap<u64, Found>>>,
    /// Set once the folder could not be synced: names may be lost then that a later sync says nothing of.
    folder_failed: AtomicBool,
}

/// Counted as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A file as a restart finds it.
#[derive(Clone, Debug)]
struct Found {
    len: u64,
    /// The header block, where the file is long enough to have one.
    block: Option<Arc<AlignedBuffer>>,
}

/// Files that stay open, with when each was used last.
#[derive(Debug, Default)]
struct OpenFiles {
    files: BTreeMap<u64, (Arc<dyn File>, u64)>,
    /// Files of ready segments that the log has not written to.
    ahead: BTreeMap<u64, Arc<dyn File>>,
    uses: u64,
    /// Number of the segment that the log writes to.
    written: u64,
}

impl OpenFiles {
    fn get(&mut self, number: u64) -> Option<Arc<dyn File>> {
        self.uses += 1;
        let Some((file, used)) = self.files.get_mut(&number) else {
            return self.ahead.get(&number).cloned();
        };
        *used = self.uses;
        Some(Arc::clone(file))
    }

    /// Forgets a file that is another one from now on.
    fn remove(&mut self, number: u64) {
        self.files.remove(&number);
        self.ahead.remove(&number);
    }

    /// Keeps a file, in the place of the one that was used least lately if there are too many.
    fn insert(&mut self, number: u64, file: Arc<dyn File>) {
        while self.files.len() >= OPEN_MAX {
            let spare = self.files.iter().filter(|&(&number, _)| number != self.written);
            let Some(oldest) = spare.min_by_key(|(_, (_, used))| *used).map(|(&number, _)| number) else {
                break;
            };
            self.files.remove(&oldest);
        }
        self.files.insert(number, (file, self.uses));
    }
}

impl Segments {
    /// The files found in `folder`, which must be there. None of them is ready yet.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path, options: &LogOptions) -> Result<Self> {
        let numbers: BTreeSet<u64> = disk.list(folder)?.iter().filter_map(|name| parse_name(name)).collect();
        let (width, peak) = (numbers.len(), numbers.len());
        let inventory = Inventory { width, peak, settled_at: 0, numbers };
        let chunk = fill_chunk(options.segment_size);
        Ok(Segments {
            disk,
            folder: folder.to_owned(),
            mode: options.mode,
            zeros: AlignedBuffer::zeroed(chunk as usize),
            size: options.segment_size,
            database_id: options.database_id,
            inventory: Mutex::new(inventory),
            commits_waiting: AtomicUsize::new(0),
            open: Mutex::default(),
            ready_end: AtomicU64::new(0),
            keep: AtomicU64::new(0),
            width_max: usize::try_from(options.recycle_max / options.segment_size).unwrap_or(usize::MAX),
            survey: Mutex::new(None),
            folder_failed: AtomicBool::new(false),
        })
    }

    /// Looks at all files side by side, once for everything that a restart asks about them. Files below `needed_from` that
    /// cannot be read count as empty: they are only kept to be used again.
    pub(crate) fn survey(self: &Arc<Self>, needed_from: u64) -> Result<()> {
        let numbers = self.numbers();
        let found = side_by_side("log-survey", self, &numbers, Self::find)?;
        let mut survey = BTreeMap::new();
        for (&number, found) in numbers.iter().zip(found) {
            let found = match found {
                Err(_) if number < needed_from => Found { len: 0, block: None },
                found => found?,
            };
            survey.insert(number, found);
        }
        *self.survey.lock() = Some(survey);
        Ok(())
    }

    fn find(&self, number: u64) -> Result<Found> {
        let file = self.look_into(number)?;
        let len = file.len()?;
        if len < BLOCK {
            return Ok(Found { len, block: None });
        }
        let mut block = AlignedBuffer::zeroed(BLOCK as usize);
        file.read_at(Class::Foreground, 0, &mut block)?;
        Ok(Found { len, block: Some(Arc::new(block)) })
    }

    /// Length of the file of segment `number`, which is there.
    pub(crate) fn file_len(&self, number: u64) -> Result<u64> {
        let surveyed =
            self.survey.lock().as_ref().and_then(|survey| survey.get(&number)).map(|found| found.len);
        surveyed.map_or_else(|| Ok(self.look_into(number)?.len()?), Ok)
    }

    /// Where segment `number` is.
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        segment_path(&self.folder, number)
    }

    /// Numbers that have a file, ascending.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.inventory.lock().numbers.iter().copied().collect()
    }

    /// The open file of segment `number`, to read from.
    pub(crate) fn file(&self, number: u64) -> Result<Arc<dyn File>> {
        self.keep_open(&mut self.open.lock(), number)
    }

    /// The open file of segment `number`, which the log writes to from now on.
    pub(crate) fn file_to_write(&self, number: u64) -> Result<Arc<dyn File>> {
        let mut open = self.open.lock();
        open.written = number;
        if let Some(file) = open.ahead.remove(&number) {
            open.insert(number, file);
        }
        self.keep_open(&mut open, number)
    }

    fn keep_open(&self, open: &mut OpenFiles, number: u64) -> Result<Arc<dyn File>> {
        if let Some(file) = open.get(number) {
            return Ok(file);
        }
        let file = self.open_file(&self.path(number), false)?;
        open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    /// The file of segment `number`, not to stay open if it is not.
    pub(crate) fn look_into(&self, number: u64) -> Result<Arc<dyn File>> {
        let open = self.open.lock().get(number);
        open.map_or_else(|| self.open_file(&self.path(number), false), Ok)
    }

    fn open_file(&self, path: &Path, create: bool) -> Result<Arc<dyn File>> {
        let options = OpenOptions { create, ..OpenOptions::read_write() }.mode(self.mode);
        let file = self.disk.open(path, &options).map_err(for_now)?;
        if file.alignment() as u64 > BLOCK {
            let text =
                format!("{path:?} insists on an alignment of {} bytes, the log uses 4096", file.alignment());
            return Err(Error::Invalid(text));
        }
        Ok(file)
    }

    /// The header block of segment `number`; `None` when there is no file or no valid header in it.
    pub(crate) fn read_header(&self, number: u64) -> Result<Option<SegmentHeader>> {
        let Some(block) = self.read_header_block(number)? else { return Ok(None) };
        SegmentHeader::decode(&block, self.database_id, number, self.size, &self.path(number))
    }

    /// The number that the header block of segment `number` carries; `None` when there is no file or no valid header in it.
    pub(crate) fn read_claimed_number(&self, number: u64) -> Result<Option<u64>> {
        let block = self.read_header_block(number)?;
        Ok(block.and_then(|block| SegmentHeader::claimed_number(&block, self.database_id)))
    }

    /// Which database segment `number` says it is of, in whatever place and format; `None` when there is no file or no valid
    /// header in it.
    pub(crate) fn read_owner(&self, number: u64) -> Result<Option<u64>> {
        let block = self.read_header_block(number)?;
        Ok(block.and_then(|block| SegmentHeader::owner(&block)))
    }

    fn read_header_block(&self, number: u64) -> Result<Option<Arc<AlignedBuffer>>> {
        if let Some(survey) = &*self.survey.lock() {
            return Ok(survey.get(&number).and_then(|found| found.block.clone()));
        }
        match self.find(number) {
            Err(Error::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(found?.block),
        }
    }

    /// Whether the log may enter segment `number`.
    pub(crate) fn is_ready(&self, number: u64) -> bool {
        number < self.ready_end.load(SeqCst)
    }

    /// Where the last ready segment ends.
    pub(crate) fn ready_end_lsn(&self) -> u64 {
        self.ready_end.load(SeqCst) * self.size
    }

    /// Says which segment is the first to make ready. Once, before the first [`Segments::make_ready`].
    pub(crate) fn begin_at(&self, number: u64) {
        *self.survey.lock() = None;
        self.ready_end.store(number, SeqCst);
    }

    /// Segments below `number` are not needed any more, except for the footer of the last of them.
    pub(crate) fn keep_from(&self, number: u64) {
        let keep = number.saturating_sub(1);
        self.keep.fetch_max(keep, SeqCst);
        // However many files wait to be used again, none of them is open.
        self.open.lock().files.retain(|&number, _| number >= keep);
    }

    /// Segments below this one may be reused or removed.
    pub(crate) fn kept_from(&self) -> u64 {
        self.keep.load(SeqCst)
    }

    /// Makes every segment up to `number` ready, reusing old files before making new ones. Where that fails on the way,
    /// those before are ready all the same: on a full disk they are all there is. Of class commit where a commit waits for it: then whoever
    /// is at it does not go on filling new files.
    pub(crate) fn make_ready(&self, number: u64, class: Class) -> Result<()> {
        let _waiting = (class == Class::Commit).then(|| Waiting::begin(&self.commits_waiting));
        let mut inventory = self.inventory.lock();
        let first = self.ready_end.load(SeqCst);
        let mut outcome = Ok(());
        let mut end = first;
        while end <= number && outcome.is_ok() {
            outcome = self.provide(&mut inventory.numbers, end, class).and_then(|()| self.open_ahead(end));
            end += u64::from(outcome.is_ok());
        }
        if end > first {
            // Also for files found, not made: a process that died may not have got as far as this.
            self.sync_folder()?;
            self.ready_end.store(end, SeqCst);
        }
        inventory.settle(self.keep.load(SeqCst), self.width_max);
        outcome
    }

    /// Opens the file of a segment that is about to be ready.
    fn open_ahead(&self, number: u64) -> Result<()> {
        let file = self.look_into(number)?;
        self.open.lock().ahead.insert(number, file);
        Ok(())
    }

    /// Makes the names in the folder durable. After a failure never again: the system tells of it once.
    fn sync_folder(&self) -> Result<()> {
        if self.folder_failed.load(SeqCst) {
            return Err(Error::Poisoned(format!("the folder {:?} could not be synced", self.folder)));
        }
        self.disk.sync_dir(&self.folder).map_err(for_now).inspect_err(|error| {
            // Where the folder was not opened, nothing of it was lost.
            self.folder_failed.store(!matches!(error, Error::TooManyFiles(_)), SeqCst);
        })
    }

    /// Files that are only kept to be used again are passed over where that cannot be: one that cannot be opened or renamed, or that somebody
    /// has removed, is no file of the log's any more.
    fn provide(&self, numbers: &mut BTreeSet<u64>, number: u64, class: Class) -> Result<()> {
        let path = self.path(number);
        if numbers.contains(&number) {
            if self.is_whole(number)? {
                return Ok(());
            }
            self.forget(numbers, number);
        }
        while let Some(oldest) = numbers.first().copied().filter(|&n| n < self.keep.load(SeqCst)) {
            if self.is_whole(oldest)? {
                self.open.lock().remove(oldest);
                numbers.remove(&oldest);
                if self.disk.rename(&self.path(oldest), &path).is_ok() {
                    numbers.insert(number);
                    return Ok(());
                }
                continue;
            }
            self.forget(numbers, oldest);
        }
        let temporary = path.with_extension("new");
        if let Err(error) = self.fill(&temporary, class) {
            // What was tried is in the error that goes up; a file left behind is overwritten next time.
            let _ = self.disk.remove(&temporary);
            return Err(error);
        }
        self.disk.rename(&temporary, &path)?;
        numbers.insert(number);
        Ok(())
    }

    /// Whether the file of a segment can be used as one.
    fn is_whole(&self, number: u64) -> Result<bool> {
        match self.look_into(number) {
            // That says nothing of the file.
            Err(error @ Error::TooManyFiles(_)) => Err(error),
            found => Ok(found.is_ok_and(|file| file.len().is_ok_and(|len| len == self.size))),
        }
    }

    /// Removes a file that nobody needs, if that can be.
    fn forget(&self, numbers: &mut BTreeSet<u64>, number: u64) {
        self.open.lock().remove(number);
        numbers.remove(&number);
        // What stays is found by the next start, or replaced by the segment of that number.
        let _ = self.disk.remove(&self.path(number));
    }

    /// Makes a new file of zeros, which have been written: so that writing there changes nothing but the bytes, and is as fast as it can be.
    /// Where a commit waits they are not, or no further ones: blocks that were given read as zeros all the same.
    fn fill(&self, path: &Path, class: Class) -> Result<()> {
        let file = self.open_file(path, true)?;
        // What an earlier attempt has left may have the length and not the blocks: where allocation writes zeros, it writes them behind the end.
        file.set_len(0)?;
        file.allocate(0, self.size)?;
        for offset in (0..self.size).step_by(self.zeros.len()) {
            if self.commits_waiting.load(SeqCst) > 0 {
                break;
            }
            file.write_at(class, offset, &self.zeros, Durability::Cached)?;
        }
        Ok(file.sync(class)?)
    }

    /// Removes files that nobody needs and the log will hardly come to need soon.
    pub(crate) fn trim(&self) -> Result<()> {
        let mut inventory = self.inventory.lock();
        inventory.settle(self.keep.load(SeqCst), self.width_max);
        let kept = inventory.width;
        self.remove_surplus(&mut inventory, kept)
    }

    /// Removes every file that nobody needs, where the disk is full, except those that make the segments up to `number` ready:
    /// without them the log could not go on, and so never let go of others.
    pub(crate) fn give_up_spares(&self, number: u64) -> Result<()> {
        let mut inventory = self.inventory.lock();
        let not_ready = (number + 1).saturating_sub(self.ready_end.load(SeqCst));
        let kept = inventory.needed(self.keep.load(SeqCst)) + not_ready as usize;
        (inventory.width, inventory.peak) = (kept, 0);
        self.remove_surplus(&mut inventory, kept)
    }

    fn remove_surplus(&self, inventory: &mut Inventory, kept: usize) -> Result<()> {
        let surplus = inventory.numbers.len().saturating_sub(kept);
        let unneeded = inventory.numbers.range(..self.keep.load(SeqCst)).copied();
        let removed: Vec<u64> = unneeded.take(surplus).collect();
        for &number in &removed {
            self.forget(&mut inventory.numbers, number);
        }
        if !removed.is_empty() {
            self.sync_folder()?;
        }
        Ok(())
    }
}

/// Calls `work` for each of `numbers`, by several threads; gives the results in their order.
pub(crate) fn side_by_side<T: Send + 'static>(
    name: &str,
    segments: &Arc<Segments>,
    numbers: &[u64],
    work: impl Fn(&Segments, u64) -> T + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let workers = numbers.len().min(READERS);
    let begin = |worker| {
        let (segments, work) = (Arc::clone(segments), work.clone());
        let share: Vec<u64> = numbers.iter().copied().skip(worker).step_by(workers).collect();
        thread::try_spawn(name, move || {
            share.iter().map(|&number| work(&segments, number)).collect::<Vec<_>>()
        })
    };
    let handles: Vec<_> = (0..workers).map(begin).collect();
    let mut shares = Vec::new();
    for handle in handles {
        let share = match handle {
            Ok(handle) => handle.join().map_err(|panic| Error::Poisoned(panic.to_string()))?,
            // The system has no thread to give.
            Err(share) => share(),
        };
        shares.push(share.into_iter());
    }
    Ok((0..numbers.len()).map(|i| shares[i % workers].next().expect("one result a segment")).collect())
}

/// That too many files are open is no failure of the device: as where it is full, nothing was changed, and the same may go well later.
fn for_now(error: gannet_io::Error) -> Error {
    match error.kind() {
        ErrorKind::TooManyOpen => Error::TooManyFiles(error.to_string()),
        _ => error.into(),
    }
}

/// Where segment `number` of the log in a folder is.
pub(crate) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016x}.log"))
}

/// Whether a file of that name belongs to a log.
pub(crate) fn is_ours(name: &str) -> bool {
    let log_name = name.strip_suffix(".new").map(|stem| format!("{stem}.log"));
    parse_name(log_name.as_deref().unwrap_or(name)).is_some()
}

fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_another_place_or_database_is_none() {
        let identity = Identity { database_id: 7, incarnation: 3 };
        let header =
            SegmentHeader { identity, number: 5, segment_size: 1 << 20, previous_crc: 9, first: true };
        let mut block = header.encode();
        let decode = |block: &[u8], database, number, size| {
            SegmentHeader::decode(block, database, number, size, Path::new("x"))
        };
        assert_eq!(decode(&block, 7, 5, 1 << 20).unwrap(), Some(header));
        assert_eq!(decode(&block, 8, 5, 1 << 20).unwrap(), None);
        assert_eq!(decode(&block, 7, 6, 1 << 20).unwrap(), None);
        assert!(matches!(decode(&block, 7, 5, 1 << 21), Err(Error::Format(_))));
        block[4000] ^= 1;
        assert_eq!(decode(&block, 7, 5, 1 << 20).unwrap(), None);
    }

    #[test]
    fn every_segment_of_a_long_log_stayed_open() {
        let disk = gannet_io::sim::SimDisk::new(1);
        let open = |number: u64| {
            let options = OpenOptions { create: true, ..OpenOptions::read_write() };
            disk.open(&segment_path(Path::new("/"), number), &options).unwrap()
        };
        (0..1000).for_each(|number| drop(open(number)));
        let options = LogOptions::new(7);
        let segments = Segments::open(Arc::new(disk.clone()), Path::new("/"), &options).unwrap();
        let written = segments.file_to_write(5).unwrap();
        for number in 0..1000 {
            segments.file(number).unwrap();
            segments.file(3).unwrap();
        }
        let kept = &segments.open.lock().files;
        assert_eq!(kept.len(), OPEN_MAX);
        assert!(kept.contains_key(&3) && kept.contains_key(&999) && !kept.contains_key(&500));
        assert!(Arc::ptr_eq(&kept[&5].0, &written), "what is written to stays open");
    }

    #[test]
    fn a_commit_had_to_open_the_segment_that_it_was_the_first_to_write_to() {
        let disk = gannet_io::sim::SimDisk::new(1);
        let options = LogOptions::new(7);
        let segments = Segments::open(Arc::new(disk.clone()), Path::new("/"), &options).unwrap();
        segments.begin_at(1);
        segments.make_ready(2, Class::Foreground).unwrap();
        // Nothing can be opened by these names now.
        for number in 1..=2 {
            disk.remove(&segments.path(number)).unwrap();
            segments.file_to_write(number).unwrap();
        }
        assert!(segments.file_to_write(3).is_err(), "it is not ready");
    }

    #[test]
    fn only_segment_names_are_taken() {
        assert_eq!(parse_name("00000000000000ff.log"), Some(255));
        for name in ["ff.log", "00000000000000ff.new", "00000000000000fg.log", "log"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
