//! The bytes of an archive. Layout: `docs/format.md`.
//!
//! A *part* is a file with a run of the log within one segment: frames as those of a backup, the first of which says what it is, the last
//! of which, where the part is complete, what is in it. Two short texts stand beside: whose archive it is, and how far it had come.

use crate::backup::OpenTime;
use crate::backup::format::{FrameKind, HEAD, Head, text_frame};
use crate::backup::manifest::{hex, open_text, seal_text};
use crate::meta::{FORMAT_VERSION, Life, Meta};
use crate::{Error, Result};
use gannet_base::{Lsn, random};
use gannet_io::{AlignedBuffer, Class, Disk, OpenOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Version of archives that this release writes and reads.
pub(super) const ARCHIVE_VERSION: u32 = 1;
/// Names of what is in the folder beside parts.
pub(super) const INFO: &str = "archive.info";
pub(super) const POSITION: &str = "archive.position";
pub(super) const LOCK: &str = "archive.lock";
/// Ending of a part.
pub(super) const PART: &str = ".gntlog";
/// Length of the last frame of a part that is complete.
pub(super) const END_LEN: usize = 2 * HEAD;

/// Whose archive it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Info {
    pub(super) version: u32,
    pub(super) made_by: String,
    /// The archive's number: random.
    #[serde(with = "hex")]
    pub(super) archive_id: u64,
    #[serde(with = "hex")]
    pub(super) database_id: u64,
    pub(super) format_version: u32,
    pub(super) segment_size: u64,
    pub(super) created_unix_us: u64,
    /// The database's file name, for people.
    pub(super) name: String,
}

impl Info {
    pub(super) fn new(meta: &Meta, name: &str, now: u64) -> Self {
        Info {
            version: ARCHIVE_VERSION,
            made_by: format!("gannet {}", env!("CARGO_PKG_VERSION")),
            archive_id: random::next_u64(),
            database_id: meta.database_id,
            format_version: FORMAT_VERSION,
            segment_size: meta.segment_size,
            created_unix_us: now,
            name: name.to_owned(),
        }
    }
}

/// How far it had come at some time. What is there may be more, and never less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// All of the log below was archived, durably.
    pub(super) lsn: u64,
    /// Every commit up to this time is below, in microseconds since 1970-01-01 UTC.
    pub(super) unix_us: u64,
    /// The newest gap, from and to; zeros for none.
    pub(super) gap: (u64, u64),
    /// Where the newest backup ends that was taken meanwhile; 0 for none.
    pub(super) backup_end: u64,
}

/// What a part says of itself when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartBegin {
    #[serde(with = "hex")]
    pub(super) archive_id: u64,
    #[serde(with = "hex")]
    pub(super) database_id: u64,
    /// Where its log begins: at a segment's beginning, or behind a record.
    pub(super) first: u64,
    /// Checksum of the record before, where that is known.
    pub(super) previous_crc: Option<u32>,
    /// The log from here to `first` is in no part: it was let go of before it could be archived, or lacks contents of pages.
    pub(super) gap_from: Option<u64>,
    /// Times that the database was open, newest last: this one wrote the part.
    pub(super) lives: Arc<[OpenTime]>,
}

impl PartBegin {
    /// Whether the copy of the database that wrote this part was at `lsn` in that life.
    pub(super) fn has_lived(&self, id: u64, lsn: u64) -> bool {
        Life::was_lived(&OpenTime::lives(&self.lives), id, Lsn(lsn))
    }

    /// The life that it was written in.
    pub(super) fn life(&self) -> u64 {
        self.lives.last().map_or(0, |life| life.id)
    }
}

/// What a part says of itself when it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartEnd {
    /// Where its log ends.
    pub(super) end: u64,
    pub(super) frames: u64,
    /// The latest time that is noted in it; 0 for none.
    pub(super) latest_unix_us: u64,
    /// Points in it that have a name.
    pub(super) points: u64,
}

/// The file of a part that begins at `first`; several attempts may have begun there.
pub(super) fn part_name(first: u64, attempt: u32) -> String {
    format!("{first:016x}.{attempt:04}{PART}")
}

/// Where a part of that name begins, and which attempt it is.
pub(super) fn parse_part(name: &str) -> Option<(u64, u32)> {
    let (first, attempt) = name.strip_suffix(PART)?.split_once('.')?;
    let sized = first.len() == 16 && attempt.len() == 4;
    let parsed = u64::from_str_radix(first, 16).ok().zip(attempt.parse().ok());
    parsed.filter(|_| sized)
}

/// The frame that begins a part.
pub(super) fn begin_frame(begin: &PartBegin) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(begin).expect("plain fields");
    text_frame(FrameKind::Begin, begin.archive_id, 0, &text)
}

/// The frame that ends a part: as long as every other one that does.
pub(super) fn end_frame(archive_id: u64, end: &PartEnd) -> Result<Vec<u8>> {
    let text = serde_json::to_vec(end).expect("plain fields");
    let frame = text_frame(FrameKind::End, archive_id, end.frames - 1, &text)?;
    assert_eq!(frame.len(), END_LEN, "five numbers fit a block");
    Ok(frame)
}

/// What a frame of this archive holds as text.
pub(super) fn read_text_frame<T: DeserializeOwned>(
    head: &Head,
    stored: &[u8],
) -> std::result::Result<T, String> {
    let mut scratch = Vec::new();
    let text = head.content(stored, &mut scratch)?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// A short text as it is stored.
pub(super) fn text_of<T: Serialize>(value: &T) -> String {
    seal_text(&serde_json::to_string(value).expect("plain fields"))
}

/// Reads a short text; `None` where there is none.
pub(super) fn read_text<T: DeserializeOwned>(disk: &dyn Disk, path: &Path) -> Result<Option<T>> {
    if !disk.exists(path)? {
        return Ok(None);
    }
    let file = disk.open(path, &OpenOptions::read())?;
    let len = file.len()? as usize;
    let damaged = |what: &str| Error::Backup(format!("{path:?} {what}"));
    if len == 0 || len > 1 << 20 || !len.is_multiple_of(HEAD) {
        return Err(damaged(&format!("is damaged: it has {len} bytes")));
    }
    let mut text = AlignedBuffer::zeroed(len);
    file.read_at(Class::Maintenance, 0, &mut text)?;
    let line = open_text(&text).map_err(damaged)?;
    check_version(path, line)?;
    serde_json::from_str(line).map(Some).map_err(|error| damaged(&format!("cannot be read: {error}")))
}

/// Refuses another version, whatever else stands there. What says none goes with what does.
fn check_version(path: &Path, line: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
        made_by: String,
        format_version: u32,
    }
    let Ok(found) = serde_json::from_str::<Versioned>(line) else { return Ok(()) };
    if found.version == ARCHIVE_VERSION && found.format_version == FORMAT_VERSION {
        return Ok(());
    }
    Err(Error::Format(format!(
        "{path:?} is of an archive of version {}, of a database of format version {}; this release reads versions {ARCHIVE_VERSION} and \
         {FORMAT_VERSION}: use the release that made it ({})",
        found.version, found.format_version, found.made_by
    )))
}
