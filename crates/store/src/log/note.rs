//! Notes of the store's own in the log: what time it was, and points that somebody has named.
//!
//! # What it guarantees
//! Records of commits carry no time. Instead there is a note of the time before each commit that comes [`CLOCK_EVERY_US`] or more after the
//! note before it. So a commit was made within that time behind the last note before it: what is below the first note that says more
//! than some time has every commit up to then, and none that came more than [`CLOCK_EVERY_US`] later.
//!
//! A restart needs none of them, and an older release passes them over. Layout: `docs/format.md`.

use super::record::{RecordKind, RecordView};
use crate::page::get_u64;

/// How far apart notes of the time are at most while commits come, in microseconds.
pub(crate) const CLOCK_EVERY_US: u64 = 10_000;
/// Longest name of a point, in bytes.
pub(crate) const POINT_NAME_MAX: usize = 255;

const CLOCK: u8 = 1;
const POINT: u8 = 2;
/// The time takes seven bytes, what the note is the eighth.
const TIME_MASK: u64 = (1 << 56) - 1;

/// What a note says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// The time, and how many pages the data file had then.
    Clock { unix_us: u64, pages: u64 },
    /// A point with a name.
    Point { unix_us: u64, name: String },
}

impl Note {
    /// The bytes for `Log::append_note`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = |kind: u8, unix_us: u64| (unix_us & TIME_MASK | u64::from(kind) << 56).to_le_bytes();
        match self {
            Note::Clock { unix_us, pages } => [head(CLOCK, *unix_us), pages.to_le_bytes()].concat(),
            Note::Point { unix_us, name } => [&head(POINT, *unix_us)[..], name.as_bytes()].concat(),
        }
    }

    /// What a record says, if it is a note of ours.
    pub(crate) fn of(record: &RecordView<'_>) -> Option<Note> {
        let payload = record.payload();
        if record.kind != RecordKind::Note || payload.len() < 8 {
            return None;
        }
        let unix_us = get_u64(payload, 0) & TIME_MASK;
        match payload[7] {
            CLOCK if payload.len() == 16 => Some(Note::Clock { unix_us, pages: get_u64(payload, 8) }),
            POINT => Some(Note::Point { unix_us, name: String::from_utf8_lossy(&payload[8..]).into_owned() }),
            _ => None,
        }
    }

    /// When it was made.
    pub(crate) fn unix_us(&self) -> u64 {
        match self {
            Note::Clock { unix_us, .. } | Note::Point { unix_us, .. } => *unix_us,
        }
    }
}
