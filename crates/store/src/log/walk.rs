//! Going through log that comes as bytes, from a backup or an archive, record by record.
//!
//! # Invariants
//! 1. A record that is told of is whole, by its checksum, and follows the one before by it, as in `recover`. Where the first one is not the
//!    first of a segment, its predecessor may be unknown.
//! 2. Of a filler, whose body means nothing, the header alone is looked at, and nothing of it is kept in memory.

use super::record::{self, RecordView};
use super::segment::{BLOCK, SegmentHeader};
use crate::page::get_u32;
use std::path::Path;

/// What comes next in the log.
#[derive(Debug)]
pub(crate) enum Met<'a> {
    /// A segment begins.
    Segment(SegmentHeader),
    /// A record; of fillers only short ones.
    Record(RecordView<'a>),
    /// A long filler, which ends there.
    Filler(u64),
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Go on.
    On,
    /// What was told of last counts no more.
    Stop,
}

/// A walk through the log.
#[derive(Debug)]
pub(crate) struct Walk {
    database_id: u64,
    segment_size: u64,
    /// Everything below was looked at.
    end: u64,
    /// Behind the last record that is whole.
    whole: u64,
    /// Its checksum, where that is known.
    whole_crc: Option<u32>,
    /// Bytes from `end` on.
    bytes: Vec<u8>,
    /// How much of the filler that `end` lies in is still to come.
    filler: u64,
    /// Of the last record that was met, which may be a filler that is not whole yet.
    last_crc: Option<u32>,
    stopped: bool,
}

impl Walk {
    /// A walk from `at`, the end of a record with this checksum, or the beginning of a segment.
    pub(crate) fn new(database_id: u64, segment_size: u64, at: u64, last_crc: Option<u32>) -> Self {
        Walk {
            database_id,
            segment_size,
            end: at,
            whole: at,
            whole_crc: last_crc,
            bytes: Vec::new(),
            filler: 0,
            last_crc,
            stopped: false,
        }
    }

    /// Behind the last record that is whole.
    pub(crate) fn whole(&self) -> u64 {
        self.whole
    }

    /// Checksum of that record, where it is known; 0 for none.
    pub(crate) fn whole_crc(&self) -> Option<u32> {
        self.whole_crc
    }

    /// Where the next bytes have to begin.
    pub(crate) fn at(&self) -> u64 {
        self.end + self.bytes.len() as u64
    }

    /// Bytes that mean nothing up to here, as the walk is inside a filler's body.
    pub(crate) fn body_end(&self) -> u64 {
        self.end + self.filler.saturating_sub(record::TRAILER_LEN as u64)
    }

    /// Whether somebody has said that it is enough.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the next bytes; tells of everything that is whole with them. What is wrong with them is said.
    pub(crate) fn take(
        &mut self,
        content: &[u8],
        visit: &mut dyn FnMut(&Met<'_>) -> Result<Step, String>,
    ) -> Result<(), String> {
        let skipped = self.filler.min(content.len() as u64);
        self.advance(skipped);
        self.bytes.extend_from_slice(&content[skipped as usize..]);
        let mut used = 0;
        while !self.stopped && self.filler == 0 {
            let Some(len) = self.step(used, visit)? else { break };
            used += len;
        }
        self.bytes.drain(..used);
        Ok(())
    }

    /// Looks at what comes next, where enough of it is there; says how many bytes were used.
    fn step(
        &mut self,
        used: usize,
        visit: &mut dyn FnMut(&Met<'_>) -> Result<Step, String>,
    ) -> Result<Option<usize>, String> {
        let bytes = &self.bytes[used..];
        let at = self.end;
        if at.is_multiple_of(self.segment_size) {
            let Some(block) = bytes.get(..BLOCK as usize) else { return Ok(None) };
            let header = self.header(block)?;
            return Ok(self.judge(visit(&Met::Segment(header))?, BLOCK as usize, header.previous_crc));
        }
        if bytes.len() < record::MIN_RECORD_LEN {
            return Ok(None);
        }
        let len = u64::from(get_u32(bytes, 0));
        if len == 0 {
            // The log may end in the middle of a block: zeros follow, and nothing else.
            return Ok(None);
        }
        if len < record::MIN_RECORD_LEN as u64 || at + len > at.next_multiple_of(self.segment_size) {
            return Err(format!("no record begins at lsn {at}"));
        }
        let follows = |previous| self.last_crc.is_none_or(|crc| crc == previous);
        if (bytes.len() as u64) < len {
            let Some((crc, previous)) = record::filler_head(self.database_id, at, bytes) else {
                // The longest is a footer, which may take most of a short segment.
                let is_possible = len <= self.segment_size - BLOCK;
                return if is_possible { Ok(None) } else { Err(format!("no record begins at lsn {at}")) };
            };
            if !follows(previous) {
                return Err(format!("the record at lsn {at} does not follow the one before"));
            }
            // What is there of it is used up with its head.
            let have = bytes.len();
            let step = visit(&Met::Filler(at + len))?;
            self.filler = if step == Step::Stop { 0 } else { len };
            return Ok(self.judge(step, have, crc));
        }
        let record = RecordView::parse(self.database_id, at, &bytes[..len as usize])
            .filter(|record| follows(record.previous_crc))
            .ok_or_else(|| format!("the record at lsn {at} is not whole"))?;
        let (crc, step) = (record.crc, visit(&Met::Record(record))?);
        Ok(self.judge(step, len as usize, crc))
    }

    fn judge(&mut self, step: Step, len: usize, crc: u32) -> Option<usize> {
        self.stopped = step != Step::On;
        if step == Step::Stop {
            return None;
        }
        self.last_crc = Some(crc);
        self.advance(len as u64);
        Some(len)
    }

    fn advance(&mut self, len: u64) {
        self.end += len;
        self.filler = self.filler.saturating_sub(len);
        if self.filler == 0 {
            (self.whole, self.whole_crc) = (self.end, self.last_crc);
        }
    }

    fn header(&self, block: &[u8]) -> Result<SegmentHeader, String> {
        let number = self.end / self.segment_size;
        let place = Path::new("the log");
        let header = SegmentHeader::decode(block, self.database_id, number, self.segment_size, place);
        let header = header
            .map_err(|error| error.to_string())?
            .ok_or_else(|| format!("segment {number} of the log has no header"))?;
        if self.last_crc.is_some_and(|crc| crc != header.previous_crc) {
            return Err(format!("segment {number} of the log does not follow the one before"));
        }
        Ok(header)
    }

    /// Takes so many bytes of a filler's body, which mean nothing, without their being there.
    pub(crate) fn skip(&mut self, len: u64) {
        assert!(self.end + len <= self.body_end(), "only a filler's body means nothing");
        self.advance(len);
    }

    /// Whether it ends where a record does.
    pub(crate) fn is_between(&self) -> bool {
        self.bytes.is_empty() && self.filler == 0
    }
}
