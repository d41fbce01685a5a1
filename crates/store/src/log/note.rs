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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, LogOptions, Met, Step, Walk};
    use gannet_base::Lsn;
    use gannet_base::memory::Budget;
    use gannet_io::sim::SimDisk;
    use gannet_io::{Class, Disk};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn notes_are_found_again_by_a_walk_in_pieces_and_others_are_passed_over() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let options = LogOptions { segment_size: 1 << 18, ring_size: 1 << 17, ..LogOptions::new(7) };
        let log =
            Log::create(&disk, Path::new("wal"), &options, Lsn::ZERO, 1, &Budget::new(8 << 20)).unwrap();
        let notes = [
            Note::Clock { unix_us: 1_795_405_812_000_001, pages: 77 },
            Note::Point { unix_us: 5, name: "vor der Flut".to_owned() },
        ];
        log.append_note(b"begin").unwrap();
        for note in &notes {
            log.append_note(&note.encode()).unwrap();
            log.append_note(b"a longer one of somebody else").unwrap();
        }
        let end = log.end();
        log.flush_to(end).unwrap();
        let mut bytes = gannet_io::AlignedBuffer::zeroed(8192);
        log.read_raw(Class::Maintenance, Lsn::ZERO, &mut bytes).unwrap();
        // In pieces of any size, and at the first bit that is wrong it ends.
        for (piece, wrong) in [(8, None), (40, None), (8192, None), (64, Some(4200))] {
            let mut bytes = bytes.to_vec();
            if let Some(wrong) = wrong {
                bytes[wrong] ^= 1;
            }
            let mut walk = Walk::new(7, 1 << 18, 0, None);
            let mut found = Vec::new();
            let outcome = bytes.chunks(piece).try_for_each(|piece| {
                walk.take(piece, &mut |met| {
                    if let Met::Record(record) = met {
                        found.extend(Note::of(record));
                    }
                    Ok(Step::On)
                })
            });
            match wrong {
                None => assert_eq!((outcome, &found[..], walk.whole() >= end.0), (Ok(()), &notes[..], true)),
                Some(_) => assert!(outcome.is_err() && found.len() < 2 && walk.whole() < end.0),
            }
        }
    }
}
