//! Where the frames of backups come from, one backup after the other.
//!
//! # What it guarantees
//! 1. Every frame that is given on is whole, by its checksums, and belongs to the backup that it is given as a part of.
//! 2. A backup is over only when its end was there, and each of its frames exactly once.
//! 3. Of several backups each adds to the one before.

use super::format::{self, FrameKind, HEAD, Head};
use super::manifest::{Begin, Manifest};
use super::place::BackupPlace;
use super::sink::{DATA, MANIFEST, data_place, manifest_place};
use crate::block::Block;
use crate::engine::{CreateOptions, Engine};
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_io::{AlignedBuffer, Class, Direction, Disk, File, ModeRequest, OpenOptions};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io::Read;
use std::sync::Arc;

/// Reads of a file ahead of their use, and their length in bytes.
const READS_AHEAD: usize = 6;
const READ_LEN: u64 = 1 << 20;
/// By how much a frame may come before others with lower numbers.
const OUT_OF_ORDER: u64 = 1 << 12;

/// Where one or several backups are read from.
pub enum Source {
    /// Backups in folders, each of which adds to the one before.
    Files(Vec<BackupFile>),
    /// A stream of bytes, with one or several backups, one behind the other.
    Stream(Box<dyn Read + Send>),
}

impl Source {
    /// How the database of the newest backup was created; `None` of a stream, of which that is not known before it is read.
    pub(crate) fn made(&self) -> Option<CreateOptions> {
        let Source::Files(files) = self else { return None };
        files.last().map(|file| file.manifest.begin.made())
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Files(files) => f.debug_tuple("Files").field(files).finish(),
            Source::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A complete backup in a folder.
#[derive(Clone, Debug)]
pub struct BackupFile {
    /// The folder.
    pub folder: BackupPlace,
    /// The backup's name.
    pub name: String,
    /// What it says of itself.
    pub manifest: Manifest,
}

impl BackupFile {
    /// The backup that a path means: one of its two files, or their name without its ending.
    ///
    /// # Errors
    /// [`Error::Backup`] where there is none, or a part of one only; what is wrong with its manifest.
    pub fn find(place: &BackupPlace) -> Result<Self> {
        let whole = place.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = whole.strip_suffix(DATA).or(whole.strip_suffix(MANIFEST)).unwrap_or(&whole);
        let parent = place.parent();
        let has_manifest = place.disk.exists(&manifest_place(&parent, name).path)?;
        if name == whole && !has_manifest && place.disk.exists(&place.path)? {
            let path = &place.path;
            return Err(Error::Backup(format!(
                "{path:?} is no backup in a folder, which is {name}{DATA} with {name}{MANIFEST}: a backup that was written to standard output is \
                 read from standard input, `- < {name}`; behind an incremental one's stream its chain: `cat` the full backup's data, then each one's \
                 that adds to it, in order"
            )));
        }
        Self::read(&parent, name)
    }

    fn read(folder: &BackupPlace, name: &str) -> Result<Self> {
        let disk = &folder.disk;
        let (data, place) = (data_place(folder, name), manifest_place(folder, name));
        if !disk.exists(&place.path)? {
            return Err(Error::Backup(if disk.exists(&data.path)? {
                format!(
                    "{data:?} has no manifest: the backup is being made, or was broken off, and is not complete"
                )
            } else {
                format!("there is no backup {:?}", folder.join(name))
            }));
        }
        let manifest = read_manifest(&place)?;
        if !disk.exists(&data.path)? {
            return Err(data_is_gone(&data));
        }
        Ok(BackupFile { folder: folder.clone(), name: name.to_owned(), manifest })
    }

    /// All complete backups in a folder, oldest first. What cannot be read is told to `complain`, but for what somebody removes meanwhile: with older
    /// ones another database's backup into the same folder does so, and begins with the manifest.
    pub fn all(folder: &BackupPlace, complain: &mut dyn FnMut(Error)) -> Result<Vec<Self>> {
        let names: BTreeSet<_> = folder.disk.list(&folder.path)?.into_iter().collect();
        let mut found = Vec::new();
        for name in names.iter().filter_map(|name| name.strip_suffix(MANIFEST)) {
            let manifest = match names.contains(&format!("{name}{DATA}")) {
                true => read_manifest(&manifest_place(folder, name)),
                false => Err(data_is_gone(&data_place(folder, name))),
            };
            match manifest {
                Ok(manifest) => {
                    found.push(BackupFile { folder: folder.clone(), name: name.to_owned(), manifest });
                }
                // Where nobody can tell, what was wrong first is what is told.
                Err(_) if matches!(folder.disk.exists(&manifest_place(folder, name).path), Ok(false)) => {}
                Err(error) => complain(error),
            }
        }
        // Of those that begin at one place the log says less than the clock, which may have been set back: but one that ends later was taken later.
        found.sort_by_key(|backup| {
            let Manifest { begin, end_lsn, .. } = &backup.manifest;
            (begin.start_lsn, *end_lsn, begin.started_unix_us)
        });
        Ok(found)
    }

    /// The backup with all that it adds to, oldest first, as far as they are in its folder.
    pub fn chain(self) -> Result<Vec<Self>> {
        let mut chain = VecDeque::from([self]);
        if chain[0].manifest.begin.parent.is_none() {
            return Ok(chain.into());
        }
        let mut unread = None;
        let all = Self::all(&chain[0].folder, &mut |error| unread = Some(error))?;
        while let Some(parent) = chain[0].manifest.begin.parent {
            let found = all.iter().find(|one| one.manifest.begin.backup_id == parent.backup_id);
            let found = found.ok_or_else(|| {
                let but = unread
                    .take()
                    .map_or_else(String::new, |error| format!(", unless it is this one: {error}"));
                Error::Backup(format!(
                    "{} adds to backup {:016x}, which is not in {:?}{but}",
                    chain[0].path(),
                    parent.backup_id,
                    chain[0].folder
                ))
            })?;
            if chain.iter().any(|one| one.manifest.begin.backup_id == found.manifest.begin.backup_id) {
                return Err(Error::Backup(format!("{} adds to itself", found.path())));
            }
            chain.push_front(found.clone());
        }
        Ok(chain.into())
    }

    /// Looks whether its data is as long as it was: what is not whole is nothing to add to.
    ///
    /// # Errors
    /// [`Error::Backup`] where it is not, or cannot be opened.
    pub(crate) fn check_len(&self) -> Result<()> {
        let data = self.data();
        let file = data.disk.open(&data.path, &OpenOptions::read()).map_err(|error| {
            Error::Backup(format!("{}: what it has cannot be read: {error}", self.path()))
        })?;
        has_len(&*file, self.manifest.bytes)
    }

    /// Where it is, for messages.
    pub fn path(&self) -> String {
        self.folder.join(&self.name).path.display().to_string()
    }

    /// The file with its frames.
    pub fn data(&self) -> BackupPlace {
        data_place(&self.folder, &self.name)
    }

    /// The file with its manifest.
    pub fn manifest(&self) -> BackupPlace {
        manifest_place(&self.folder, &self.name)
    }
}

/// Refuses backups that do not follow each other.
fn check_order(files: &[BackupFile]) -> Result<()> {
    let Some(first) = files.first() else {
        return Err(Error::Backup("there is no backup to be read".to_owned()));
    };
    if let Some(parent) = first.manifest.begin.parent {
        let place = files.iter().find(|file| file.manifest.begin.backup_id == parent.backup_id);
        let where_it_is = match place {
            Some(file) => {
                format!("which is {}: give them in the order in which they were taken", file.path())
            }
            None => "which has to come before it".to_owned(),
        };
        return Err(Error::Backup(format!(
            "{} adds to backup {:016x}, {where_it_is}",
            first.path(),
            parent.backup_id
        )));
    }
    for pair in files.windows(2) {
        follows(&pair[0].manifest.begin, &pair[1].manifest.begin)
            .map_err(|what| Error::Backup(format!("{}: {what}", pair[1].path())))?;
    }
    Ok(())
}

/// Whether a backup adds to another one.
fn follows(before: &Begin, next: &Begin) -> std::result::Result<(), String> {
    if before.database_id != next.database_id {
        return Err("it is of another database than the one before".to_owned());
    }
    match next.parent {
        Some(parent) if parent.backup_id == before.backup_id => Ok(()),
        Some(parent) => Err(format!(
            "it adds to backup {:016x}, and comes behind backup {:016x}: give the backups in the order in which they were \
             taken, without leaving one out",
            parent.backup_id, before.backup_id
        )),
        None => Err("it is a full backup, which adds to none: begin with it".to_owned()),
    }
}

/// The backups of a source, frame by frame.
pub(super) struct Feed {
    /// Those of folders that are yet to be read, the next one last.
    rest: Vec<BackupFile>,
    opened: Option<Box<dyn Read + Send>>,
    engine: Engine,
    mode: ModeRequest,
    /// What a file is called in messages.
    name: Arc<str>,
    /// Newest first, for files: then a backup does not add to the one read before it.
    backwards: bool,
    /// What the file's manifest says; a stream has none.
    expected: Option<Manifest>,
    current: Option<Begin>,
    previous: Option<Begin>,
    seen: Vec<u64>,
    frames: u64,
    /// Where the current one begins in the file, or the stream.
    begun: u64,
    /// Bytes read of the file, or the stream; and of all before.
    bytes: u64,
    before: u64,
}

/// What comes next.
pub(super) enum Item {
    /// A backup begins.
    Begin(Begin),
    /// A frame of pages or log, which is in the buffer.
    Frame(Frame),
    /// A backup is over.
    End(Box<Manifest>),
}

/// A frame that is in a buffer, behind the place for its head.
pub(super) struct Frame {
    pub(super) head: Head,
    /// Where it was read from.
    name: Arc<str>,
    offset: u64,
}

impl Frame {
    /// Bytes of the whole frame.
    pub(super) fn len(&self) -> usize {
        HEAD + self.head.padded_len()
    }

    /// What it holds, of `buffer` or, where that has to be decompressed, of `scratch`.
    pub(super) fn content<'a>(&self, buffer: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let stored = &buffer[HEAD..HEAD + self.head.stored_len as usize];
        self.head.content(stored, scratch).map_err(|what| self.damaged(what))
    }

    /// Refuses what does not match its checksum.
    pub(super) fn check(&self, buffer: &[u8]) -> Result<()> {
        let stored = &buffer[HEAD..HEAD + self.head.stored_len as usize];
        match self.head.sum(stored) == self.head.stored_sum {
            true => Ok(()),
            false => Err(self.damaged("the checksum of a frame does not match")),
        }
    }

    /// Says what is wrong with it, and where it is.
    pub(super) fn damaged(&self, what: impl fmt::Display) -> Error {
        damaged(&self.name, self.offset, what)
    }
}

fn damaged(name: &str, offset: u64, what: impl fmt::Display) -> Error {
    Error::Backup(format!("{name}, offset {offset}: the backup is damaged: {what}"))
}

impl Feed {
    /// The frames of a source; of files, those of the newest backup come first.
    pub(super) fn new(engine: &Engine, source: Source, mode: ModeRequest) -> Result<Self> {
        let (rest, opened, backwards) = match source {
            Source::Files(files) => {
                check_order(&files)?;
                (files, None, true)
            }
            Source::Stream(stream) => (Vec::new(), Some(stream), false),
        };
        Ok(Feed {
            rest,
            opened,
            engine: engine.clone(),
            mode,
            name: "the stream".into(),
            backwards,
            expected: None,
            current: None,
            previous: None,
            seen: Vec::new(),
            frames: 0,
            begun: 0,
            bytes: 0,
            before: 0,
        })
    }

    /// The frames of a stream with what was taken after this backup, which is elsewhere.
    pub(super) fn going_on(
        engine: &Engine,
        stream: Box<dyn Read + Send>,
        after: Option<&Begin>,
        mode: ModeRequest,
    ) -> Result<Self> {
        Ok(Feed { previous: after.cloned(), ..Feed::new(engine, Source::Stream(stream), mode)? })
    }

    /// Bytes of all files; 0 where that is not known.
    pub(super) fn total(&self) -> u64 {
        self.rest.iter().fold(0, |sum, file| sum.saturating_add(file.manifest.bytes))
    }

    /// Whether the newest backup comes first.
    pub(super) fn is_backwards(&self) -> bool {
        self.backwards
    }

    /// Bytes read so far.
    pub(super) fn done(&self) -> u64 {
        self.before + self.bytes
    }

    fn refused(&self, what: impl fmt::Display) -> Error {
        Error::Backup(format!("{}, offset {}: {what}", self.name, self.bytes))
    }

    fn damaged(&self, what: impl fmt::Display) -> Error {
        damaged(&self.name, self.bytes, what)
    }

    /// What comes next; the content of a frame is put behind the place for its head. `None` when there is nothing more.
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Item>> {
        if self.opened.is_none() && !self.open_next()? {
            return Ok(None);
        }
        let Some(head) = self.read_head(buffer)? else {
            if self.current.is_some() {
                return Err(self.refused("the backup is cut off: its end is missing"));
            }
            self.opened = None;
            return self.next(buffer);
        };
        let len = head.padded_len();
        if HEAD + len > buffer.len() {
            return Err(self.damaged("a frame is longer than any may be"));
        }
        self.read_exact(&mut buffer[HEAD..HEAD + len])?;
        let item = self.take(head, buffer)?;
        self.bytes += (HEAD + len) as u64;
        Ok(Some(item))
    }

    fn open_next(&mut self) -> Result<bool> {
        let Some(file) = self.rest.pop() else { return Ok(false) };
        let data = file.data();
        self.name = format!("{data:?}").into();
        self.before += std::mem::take(&mut self.bytes);
        let options = OpenOptions::read().mode(self.mode);
        let opened = data.disk.open(&data.path, &options).map_err(|error| self.refused(error))?;
        let ahead = AheadFile::new(&self.engine, (&*data.disk, opened), file.manifest.bytes)?;
        self.opened = Some(Box::new(ahead));
        self.expected = Some(file.manifest);
        Ok(true)
    }

    fn reader(&mut self) -> &mut (dyn Read + Send) {
        self.opened.as_mut().expect("it was opened before anything is read")
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.reader().read_exact(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.refused("the backup is cut off in the middle of a frame")
            }
            _ => self.refused(error),
        })
    }

    /// The head of the next frame; `None` at the end.
    fn read_head(&mut self, buffer: &mut [u8]) -> Result<Option<Head>> {
        let mut have = 0;
        while have < HEAD {
            match self.reader().read(&mut buffer[have..HEAD]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.refused("the backup is cut off in the middle of a frame's head")),
                Ok(more) => have += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.refused(error)),
            }
        }
        Head::decode(&buffer[..HEAD]).map(Some).map_err(|what| self.damaged(what))
    }

    fn take(&mut self, head: Head, buffer: &[u8]) -> Result<Item> {
        let stored = &buffer[HEAD..HEAD + head.stored_len as usize];
        if head.kind == FrameKind::Begin {
            if self.current.is_some() {
                return Err(self.refused("the backup is cut off: another one begins before its end"));
            }
            let mut scratch = Vec::new();
            let text = head.content(stored, &mut scratch).map_err(|what| self.damaged(what))?;
            let begin = Begin::decode(text).map_err(|error| self.damaged(error))?;
            self.check_begin(&begin, &head)?;
            self.current = Some(begin.clone());
            self.seen = vec![1];
            self.frames = 1;
            self.begun = self.bytes;
            return Ok(Item::Begin(begin));
        }
        let Some(begin) = &self.current else {
            return Err(self.refused("no backup begins there"));
        };
        if head.backup != begin.backup_id {
            return Err(self.damaged("a frame of another backup is in it"));
        }
        self.count(head.number)?;
        if head.kind != FrameKind::End {
            return Ok(Item::Frame(Frame { head, name: Arc::clone(&self.name), offset: self.bytes }));
        }
        let mut scratch = Vec::new();
        let text = head.content(stored, &mut scratch).map_err(|what| self.damaged(what))?;
        let manifest = Manifest::decode(text).map_err(|error| self.damaged(error))?;
        if Some(&manifest.begin) != self.current.as_ref() {
            return Err(self.damaged("its end is of another backup than its beginning"));
        }
        if self.expected.as_ref().is_some_and(|expected| *expected != manifest) {
            return Err(self.refused("its manifest is another backup's"));
        }
        if self.frames != manifest.frames || head.number + 1 != manifest.frames {
            let (have, all) = (self.frames, manifest.frames);
            return Err(self.damaged(format_args!("{have} frames of {all} are there")));
        }
        let bytes = self.bytes - self.begun + (HEAD + head.padded_len()) as u64;
        if bytes != manifest.bytes {
            let said = manifest.bytes;
            return Err(self.damaged(format_args!("it has {bytes} bytes, and its end says {said}")));
        }
        self.previous = self.current.take();
        Ok(Item::End(Box::new(manifest)))
    }

    fn check_begin(&self, begin: &Begin, head: &Head) -> Result<()> {
        if head.backup != begin.backup_id || head.number != 0 {
            return Err(self.damaged("its first frame contradicts itself"));
        }
        match &self.previous {
            // Files were compared by their manifests.
            _ if self.backwards => match &self.expected {
                Some(expected) if expected.begin == *begin => Ok(()),
                _ => Err(self.refused("its manifest is another backup's")),
            },
            None if begin.parent.is_none() => Ok(()),
            None => Err(self.refused(format_args!(
                "the backup adds to backup {:016x}, which has to come before it",
                begin.parent.map_or(0, |parent| parent.backup_id)
            ))),
            Some(previous) => follows(previous, begin).map_err(|what| self.refused(what)),
        }
    }

    fn count(&mut self, number: u64) -> Result<()> {
        let index = number as usize / 64;
        // They are put one behind the other by a few threads.
        if number > self.frames + OUT_OF_ORDER {
            return Err(self.damaged("a frame has a number that makes no sense"));
        }
        if index >= self.seen.len() {
            self.seen.resize(index + 1, 0);
        }
        if self.seen[index] & 1 << (number % 64) != 0 {
            return Err(self.damaged("a frame is there twice"));
        }
        self.seen[index] |= 1 << (number % 64);
        self.frames += 1;
        Ok(())
    }
}

fn has_len(file: &dyn File, len: u64) -> Result<()> {
    let found = file.len()?;
    if found == len {
        return Ok(());
    }
    Err(Error::Backup(format!(
        "{:?} has {found} bytes, and its manifest says {len}: it was cut or replaced",
        file.path()
    )))
}

/// A file that is read from its beginning to its end, ahead of its use.
struct AheadFile {
    file: Arc<dyn File>,
    len: u64,
    /// Where the next read begins.
    next: u64,
    /// Under way or read, in order.
    reads: VecDeque<Block>,
    /// How much of the first one was used.
    used: usize,
    waited: bool,
    /// What an object store's answers take on their way into the blocks.
    _answers: WorkMemory,
}

impl AheadFile {
    fn new(engine: &Engine, (disk, file): (&dyn Disk, Arc<dyn File>), len: u64) -> Result<Self> {
        has_len(&*file, len)?;
        let queue = disk.queue(READS_AHEAD)?;
        let twice = disk.holds_objects();
        let affordable = engine.budget().limit() / if twice { 8 } else { 4 } / READ_LEN;
        let blocks = affordable.clamp(1, READS_AHEAD as u64);
        let _answers = engine.memory(Purpose::Io, if twice { blocks * READ_LEN } else { 0 })?;
        let reads = VecDeque::new();
        let mut ahead = AheadFile { file, len, next: 0, reads, used: 0, waited: false, _answers };
        for _ in 0..blocks {
            let block = Block::new(&queue, engine.memory(Purpose::Io, READ_LEN)?);
            ahead.begin(block);
        }
        Ok(ahead)
    }

    fn begin(&mut self, mut block: Block) {
        if self.next >= self.len {
            return;
        }
        let len = READ_LEN.min(self.len - self.next);
        block.start(&self.file, Direction::Read, Class::Maintenance, self.next, len as usize);
        self.next += len;
        self.reads.push_back(block);
    }
}

impl Read for AheadFile {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let Some(block) = self.reads.front_mut() else { return Ok(0) };
            if !self.waited {
                block.wait().map_err(std::io::Error::other)?;
                self.waited = true;
            }
            let len = block.len();
            if self.used < len {
                let more = out.len().min(len - self.used);
                out[..more].copy_from_slice(&block.bytes()[self.used..self.used + more]);
                self.used += more;
                return Ok(more);
            }
            (self.used, self.waited) = (0, false);
            if let Some(block) = self.reads.pop_front() {
                self.begin(block);
            }
        }
    }
}

fn data_is_gone(data: &BackupPlace) -> Error {
    Error::Backup(format!("{data:?} is gone: of the backup there is the manifest only"))
}

fn read_manifest(place: &BackupPlace) -> Result<Manifest> {
    Manifest::decode(&read_text(place)?).map_err(|error| Error::Backup(format!("{place:?}: {error}")))
}

/// A short text file.
fn read_text(place: &BackupPlace) -> Result<Vec<u8>> {
    let file = place.disk.open(&place.path, &OpenOptions::read())?;
    let len = file.len()? as usize;
    if len == 0 || len > format::CONTENT_MAX || !len.is_multiple_of(HEAD) {
        return Err(Error::Backup(format!("{place:?} is no manifest of a backup: it has {len} bytes")));
    }
    let mut text = AlignedBuffer::zeroed(len);
    file.read_at(Class::Foreground, 0, &mut text)?;
    Ok(text.to_vec())
}
