//! What a backup says of itself.
//!
//! The manifest is JSON text of one line, and a second line with its checksum and blanks up to a multiple of 4096 bytes: readable
//! for people, and no bit of it can turn unnoticed.

use super::format::HEAD;
use crate::engine::CreateOptions;
use crate::meta::{FORMAT_VERSION, Life, Meta};
use crate::space::{self, EXTENT_PAGES};
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, checksum};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of backups that this release writes and reads.
pub(crate) const BACKUP_VERSION: u32 = 1;
/// Pages are numbered below this: what is beyond makes no sense on any device.
pub(crate) const PAGES_MAX: u64 = 1 << 44;
/// Positions in the log, and numbers of transactions, are below this: nobody lives to see more of them.
const COUNT_MAX: u64 = 1 << 62;

/// What is known when a backup begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Version of the backup's format.
    pub version: u32,
    /// The release that made it.
    pub made_by: String,
    /// The backup's number: random.
    #[serde(with = "hex")]
    pub backup_id: u64,
    /// The backup that this one adds to; `None` for a full one.
    pub parent: Option<Parent>,
    /// The database's number.
    #[serde(with = "hex")]
    pub database_id: u64,
    /// The time that the database was open: random, another one each time.
    #[serde(with = "hex")]
    pub life: u64,
    /// The times that it had been open, as far as they are known, that one as the newest. None where an earlier release made it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<OpenTime>,
    /// Format version of the database.
    pub format_version: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of a log segment.
    pub segment_size: u64,
    /// Root pages of the store's own trees.
    pub roots: [u64; 3],
    /// Groups with a space map, at least.
    pub groups: u64,
    /// Above every transaction number that was used before the backup began.
    pub next_txn: u64,
    /// Every page in the backup has every change below this LSN; the log in the backup begins with its segment.
    pub start_lsn: u64,
    /// When it began, in microseconds since 1970-01-01 UTC.
    pub started_unix_us: u64,
    /// The database's file name, for people.
    pub name: String,
}

/// A time that a database was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTime {
    /// Its number: random.
    #[serde(with = "hex")]
    pub id: u64,
    /// Where the log was when it began.
    pub from: u64,
}

impl OpenTime {
    pub(crate) fn of(lives: &[Life]) -> Vec<OpenTime> {
        lives.iter().map(|life| OpenTime { id: life.id, from: life.from.0 }).collect()
    }

    pub(crate) fn lives(times: &[OpenTime]) -> Vec<Life> {
        times.iter().map(|time| Life { id: time.id, from: Lsn(time.from) }).collect()
    }
}

/// The backup that another one adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its number.
    #[serde(with = "hex")]
    pub backup_id: u64,
    /// Its [`Begin::start_lsn`]: what was changed since is in the one that adds to it.
    pub start_lsn: u64,
}

/// What is known when a backup is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What was known before.
    #[serde(flatten)]
    pub begin: Begin,
    /// The database is restored as it was at this LSN, where nothing else is asked for.
    pub end_lsn: u64,
    /// The last life of the log in the backup.
    pub incarnation: u32,
    /// Bytes of the data file.
    pub file_bytes: u64,
    /// Frames of the backup, first and last included.
    pub frames: u64,
    /// Pages in it.
    pub pages: u64,
    /// Pages in use that are not in it, as they were never written.
    pub unwritten: u64,
    /// Those of undo among them; 0 in backups that an earlier release made, which did not tell them apart.
    #[serde(default)]
    pub unwritten_undo: u64,
    /// Bytes of log in it.
    pub log_bytes: u64,
    /// Bytes of the backup, without this manifest.
    pub bytes: u64,
    /// Why all pages were read, of a backup that adds to another one and should have read only what has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_read: Option<String>,
    /// Frames are compressed.
    pub compressed: bool,
    /// When it was complete, in microseconds since 1970-01-01 UTC.
    pub finished_unix_us: u64,
}

impl Begin {
    /// How the database was created.
    pub(crate) fn made(&self) -> CreateOptions {
        CreateOptions { page_size: self.page_size as usize, segment_size: self.segment_size }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields")
    }

    /// Decodes what stands in a first frame, and refuses what another release has made.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        check_version(bytes)?;
        let begin: Begin = serde_json::from_slice(bytes)
            .map_err(|error| Error::Damaged(format!("a backup's first frame cannot be read: {error}")))?;
        begin.check().map(|()| begin)
    }

    fn check(&self) -> Result<()> {
        if self.format_version != FORMAT_VERSION {
            return Err(Error::Format(format!(
                "the backup is of a database of format version {}; this release reads version {FORMAT_VERSION}: restore it \
                 with the release that made it ({})",
                self.format_version, self.made_by
            )));
        }
        crate::engine::check_page_size(self.page_size as usize)?;
        let segment = self.segment_size;
        if !segment.is_power_of_two() || !(1 << 18..=1 << 30).contains(&segment) {
            return Err(Error::Damaged(format!("the backup says that a log segment has {segment} bytes")));
        }
        let group_pages = space::extents_per_group(self.page_size as usize) * EXTENT_PAGES;
        for (what, number, limit) in [
            ("space maps", self.groups, PAGES_MAX / group_pages),
            ("a first lsn", self.start_lsn, COUNT_MAX),
            ("a transaction number", self.next_txn, COUNT_MAX),
        ] {
            check_number(what, number, limit)?;
        }
        Ok(())
    }

    /// Whether a page of an older backup means nothing any more: it holds the space map of a group that is not counted here. The file was
    /// cut off in front of it since, and may be as long again, but what was in use there is not.
    pub(crate) fn outdates(&self, page: PageId) -> bool {
        space::group_of_map(page, self.page_size as usize).is_some_and(|group| group >= self.groups)
    }

    /// The header of a database that is restored from here.
    pub(crate) fn header(&self, incarnation: u32) -> Meta {
        Meta {
            page_size: self.page_size as usize,
            database_id: self.database_id,
            sequence: 0,
            incarnation,
            clean: false,
            redo_from: Lsn(self.start_lsn),
            log_end: Lsn::ZERO,
            log_crc: None,
            groups: self.groups,
            next_txn: self.next_txn,
            segment_size: self.segment_size,
            lives: Vec::new(),
            homes_from: Lsn::ZERO,
            archived: false,
            // None was cut off while it was taken, and what had been before is zeros now, or as an older backup has it.
            cut_at: Lsn(self.start_lsn),
            roots: self.roots.map(PageId),
        }
    }
}

impl Manifest {
    /// Two lines of text.
    pub(crate) fn encode(&self) -> String {
        seal_text(&self.to_line())
    }

    /// Decodes the text, and refuses what another release has made.
    pub(crate) fn decode(text: &[u8]) -> Result<Self> {
        let line = open_text(text).map_err(|what| Error::Damaged(format!("a backup's manifest {what}")))?;
        Self::from_line(line)
    }

    /// It as one line of JSON.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain fields")
    }

    /// What [`Manifest::to_line`] has made.
    ///
    /// # Errors
    /// [`Error::Format`] of what another release has made, [`Error::Damaged`] of what makes no sense.
    pub fn from_line(line: &str) -> Result<Self> {
        check_version(line.as_bytes())?;
        let manifest: Manifest = serde_json::from_str(line)
            .map_err(|error| Error::Damaged(format!("a backup's manifest cannot be read: {error}")))?;
        manifest.begin.check()?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Refuses numbers that make no sense: what they say is believed afterwards, and memory taken for it.
    fn check(&self) -> Result<()> {
        let Begin { page_size, groups, start_lsn, .. } = self.begin;
        for (what, number, limit) in [
            ("pages", self.pages, PAGES_MAX),
            ("unwritten pages", self.unwritten, PAGES_MAX),
            ("bytes of log", self.log_bytes, COUNT_MAX),
            ("a last lsn", self.end_lsn, COUNT_MAX),
            ("pages of the file", self.file_bytes / u64::from(page_size), PAGES_MAX),
        ] {
            check_number(what, number, limit)?;
        }
        let contradicts =
            |what: String| Error::Damaged(format!("a backup's manifest contradicts itself: {what}"));
        let file_bytes = self.file_bytes;
        if file_bytes == 0 || !file_bytes.is_multiple_of(u64::from(page_size)) {
            return Err(contradicts(format!("pages of {page_size} bytes, and a file of {file_bytes} bytes")));
        }
        let group_bytes = space::extents_per_group(page_size as usize) * EXTENT_PAGES * u64::from(page_size);
        if groups > file_bytes.div_ceil(group_bytes) {
            return Err(contradicts(format!("{groups} space maps, and a file of {file_bytes} bytes")));
        }
        if start_lsn > self.end_lsn {
            let end = self.end_lsn;
            return Err(contradicts(format!("it begins at lsn {start_lsn}, and ends at lsn {end}")));
        }
        let (unwritten, of_undo) = (self.unwritten, self.unwritten_undo);
        if of_undo > unwritten {
            return Err(contradicts(format!("{unwritten} unwritten pages, {of_undo} of them of undo")));
        }
        // The first frame and the last one.
        let (frames, bytes) = (self.frames, self.bytes);
        if frames < 2 || frames > bytes / HEAD as u64 {
            return Err(contradicts(format!("{frames} frames, and {bytes} bytes")));
        }
        Ok(())
    }

    /// Whether it adds to another one.
    pub fn is_incremental(&self) -> bool {
        self.begin.parent.is_some()
    }

    /// Whether all pages in use were looked at when it was taken, not only those that had changed.
    pub(crate) fn has_seen_all(&self) -> bool {
        !self.is_incremental() || self.all_read.is_some()
    }

    /// What an incremental backup names as its parent.
    pub fn as_parent(&self) -> Parent {
        Parent { backup_id: self.begin.backup_id, start_lsn: self.begin.start_lsn }
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_incremental() { "incremental" } else { "full" };
        write!(f, "{kind} backup {:016x} of {}", self.begin.backup_id, self.begin.name)
    }
}

/// Refuses a number beyond any that there can be.
fn check_number(what: &str, number: u64, limit: u64) -> Result<()> {
    if number <= limit {
        return Ok(());
    }
    Err(Error::Damaged(format!("the backup says numbers that make no sense: {what}, {number}")))
}

/// A line of text with a second one behind it, which has the checksum, and blanks up to a multiple of 4096 bytes.
pub(crate) fn seal_text(line: &str) -> String {
    let mut text = format!("{line}\n{:016x}", checksum::seeded(0, line.as_bytes()));
    let len = (text.len() + 1).next_multiple_of(HEAD);
    text.extend(std::iter::repeat_n(' ', len - text.len() - 1));
    text.push('\n');
    text
}

/// The line that [`seal_text`] was given; or what is wrong with it.
pub(crate) fn open_text(text: &[u8]) -> std::result::Result<&str, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "is no text")?;
    let (line, sum) = text.split_once('\n').ok_or("is cut off")?;
    let matches = sum.trim_end() == format!("{:016x}", checksum::seeded(0, line.as_bytes()));
    matches.then_some(line).ok_or("does not match its checksum")
}

/// Refuses another version, whatever else stands there.
fn check_version(line: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
        made_by: String,
    }
    let found: Versioned = serde_json::from_slice(line)
        .map_err(|error| Error::Damaged(format!("what a backup says of itself cannot be read: {error}")))?;
    if found.version == BACKUP_VERSION {
        return Ok(());
    }
    Err(Error::Format(format!(
        "the backup has format version {}; this release reads version {BACKUP_VERSION}: use the release that made it ({})",
        found.version, found.made_by
    )))
}

/// Numbers that name something are shown in hexadecimal.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:016x}"))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}
