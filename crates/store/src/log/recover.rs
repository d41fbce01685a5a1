//! Restart: where the log ends, what it says about pages and transactions, and whether anything of it is missing.
//!
//! Sealed segments speak through their footers; only the last one is scanned. The log ends before the first record
//! that does not verify. A footer alone proves nothing about the records before it, which may have been in flight when
//! the power went; the header of the segment behind it does (`flush`, invariant 3). So the last segment is the last one with
//! a header that continues the log, whether or not it has a footer.
//!
//! # Invariants
//! 1. Nothing is written here. What was found is made durable (a process may have died between a write and its sync, and
//!    pages are about to be redone from it) before it is reported. A sync says nothing of a write that has failed, whose bytes may be read all the same
//!    (`gannet_io`, guarantee 2): so what no record claims to have been durable is written again before anything builds on it (`seal`).
//! 2. Segments follow each other by checksum: a segment's header names the checksum of the footer before it. Incarnations
//!    never decrease, and increase behind a segment that a restart has ended.
//! 3. A record claims how far the log was durable when it was appended. So a valid record *behind* the end that claims
//!    more than the end proves that acknowledged log is gone: that is damage, never a crash. One that claims less is what a
//!    crash leaves of writes that were in flight.
//! 4. A footer proves that the file of the next segment was there, durably, with or without anything in it (`append`). Where
//!    it is missing, what was in it is lost. Behind a segment that is not sealed a crash may leave gaps, which mean nothing.
//! 5. What is lost may be put up with, for reading only ([`Recovery::lost`]): the log then ends where it breaks off, if everything
//!    before is known: pages, transactions open. Whatever the data file has of later changes is told by its LSN.

use super::Known;
use super::footer::{Footer, Index};
use super::record::{ALIGNMENT, MIN_RECORD_LEN, RecordView, TRAILER_LEN};
use super::redo::RedoTable;
use super::segment::{self, BLOCK, SegmentHeader, Segments};
use crate::page::{get_u32, get_u64};
use crate::{Error, Result};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::{Lsn, PageId, TxnId};
use gannet_io::{AlignedBuffer, Class, ErrorKind};
use std::sync::Arc;

const READ_CHUNK: usize = 1 << 20;
const FOOTER_GUESS: u64 = 64 << 10;
const BATCH: u64 = 32;

/// What a restart found in the log.
#[derive(Debug)]
pub struct Recovery {
    /// The log's end: nothing above was acknowledged, and everything below is durable once the log is written to again.
    pub end: Lsn,
    /// Checksum of the last record below the end; 0 for none.
    pub last_crc: u32,
    /// Transactions open at the end (they lose) with their newest undo pointers, sorted by transaction.
    pub open_transactions: Vec<(TxnId, u64)>,
    /// The highest transaction number in the log; 0 for none.
    pub highest_txn: TxnId,
    /// LSN of the last commit; 0 for none.
    pub highest_commit: Lsn,
    /// The newest life of the log found; 0 when nothing was ever written.
    pub incarnation: u32,
    /// Pages to look at.
    pub redo: RedoTable,
    /// Sealed segments whose footers were read.
    pub footers_read: usize,
    /// What acknowledged log is gone, where that was put up with.
    pub lost: Option<String>,
}

/// What is left to do before the log can be written again.
#[derive(Debug)]
pub(crate) struct Unsealed {
    /// The newest life of the log found.
    pub(crate) incarnation: u32,
    /// The end of the crashed segment; `None` where the log has none.
    pub(crate) tail: Option<Tail>,
    /// The segment that the log goes on in is ready.
    pub(crate) has_room: bool,
}

/// What was found in the last segment from the block on up to which a record claims that the log was durable.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Where that block begins.
    pub(crate) from: u64,
    /// The bytes up to the log's end.
    pub(crate) bytes: Vec<u8>,
    pub(crate) _memory: Charge,
}

/// What the log needs to go on.
#[derive(Debug)]
pub(crate) struct Resumption {
    pub(crate) end: u64,
    pub(crate) last_crc: u32,
    pub(crate) first: bool,
    pub(crate) index: Index,
    pub(crate) unsealed: Unsealed,
}

/// What the next segment must continue.
#[derive(Clone, Copy)]
struct Link {
    crc: u32,
    incarnation: u32,
    crashed: bool,
}

impl Link {
    fn behind(footer: &Footer, crc: u32) -> Link {
        Link { crc, incarnation: footer.incarnation, crashed: footer.crashed }
    }

    fn continued_by(link: Option<Link>, header: &SegmentHeader) -> bool {
        let Some(link) = link else { return header.first };
        let incarnation = header.identity.incarnation;
        let later = incarnation > link.incarnation;
        header.previous_crc == link.crc && (later || incarnation == link.incarnation && !link.crashed)
    }
}

/// Header and footer of a segment, where valid.
struct Ends {
    header: Option<SegmentHeader>,
    footer: Option<(Footer, u32)>,
    _charge: Option<Charge>,
}

impl Ends {
    fn is_sealed(&self) -> bool {
        match (&self.header, &self.footer) {
            (Some(header), Some((footer, _))) => header.identity.incarnation == footer.incarnation,
            _ => false,
        }
    }
}

/// The last segment, when segment `number` does not continue `sealed`.
fn last_segment(number: u64, sealed: Option<(SegmentHeader, Footer, u32)>) -> (u64, Option<SegmentHeader>) {
    match sealed {
        Some((header, ..)) => (header.number, Some(header)),
        None => (number, None),
    }
}

/// One recovery at work.
pub(crate) struct Scanner<'a> {
    segments: &'a Arc<Segments>,
    budget: &'a Budget,
    known: Known,
    numbers: Vec<u64>,
    index: Index,
    redo: RedoTable,
    link: Option<Link>,
    footers_read: usize,
    /// What damage is put up with.
    lost: Option<String>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(segments: &'a Arc<Segments>, budget: &'a Budget, known: Known) -> Result<Self> {
        Ok(Scanner {
            segments,
            budget,
            known,
            numbers: segments.numbers(),
            index: Index::new(0, budget)?,
            redo: RedoTable::new(budget)?,
            link: None,
            footers_read: 0,
            lost: None,
        })
    }

    /// Acknowledged log is gone.
    fn lose(&mut self, what: String) -> Result<()> {
        if !self.known.salvages {
            return Err(Error::Damaged(what));
        }
        self.lost.get_or_insert(what);
        Ok(())
    }

    /// Finds the end and everything the footers and the last segment say.
    pub(crate) fn run(mut self) -> Result<(Recovery, Resumption)> {
        let first = self.known.redo_from.0 / self.segments.size;
        self.check_places(first)?;
        self.load_predecessor(first)?;
        let (number, header) = self.walk_sealed(first)?;
        let resumption = self.scan_last(number, header)?;
        let end = resumption.end;
        if end < self.known.redo_from.0 {
            return Err(Error::Damaged(format!(
                "log: {:?} ends at lsn {end}, but changes up to {} may be in the data file: lsn {end} to {} is lost",
                self.segments.path(number),
                self.known.redo_from,
                self.known.redo_from.0
            )));
        }
        self.redo.finish()?;
        let index = &resumption.index;
        let recovery = Recovery {
            end: Lsn(end),
            last_crc: resumption.last_crc,
            open_transactions: index.open.iter().map(|(&id, &undo)| (TxnId(id), undo)).collect(),
            highest_txn: TxnId(index.highest_txn),
            highest_commit: Lsn(index.highest_commit),
            incarnation: resumption.unsealed.incarnation,
            redo: self.redo,
            footers_read: self.footers_read,
            lost: self.lost,
        };
        Ok((recovery, resumption))
    }

    /// Fails when a file that may be needed has not a segment's length, which it had before it got its name (`segment`,
    /// invariant 1); and when a file holds a segment that belongs elsewhere and cannot be what was left there by reuse: that
    /// is of a lower number, and was not needed any more.
    fn check_places(&mut self, first: u64) -> Result<()> {
        for number in self.numbers.clone() {
            let (len, size) = (self.segments.file_len(number)?, self.segments.size);
            if number + 1 >= first && len != size {
                self.lose(format!(
                    "log: {:?} has {len} bytes, not the {size} of a segment: the file was cut or replaced; committed work from \
                     lsn {} on may be lost",
                    self.segments.path(number),
                    number * size
                ))?;
            }
            let Some(claimed) = self.segments.read_claimed_number(number)? else { continue };
            let needed = claimed + 1 >= first && claimed < number;
            if claimed > number || needed && self.segments.read_claimed_number(claimed)? != Some(claimed) {
                return Err(Error::Damaged(format!(
                    "log: {:?} holds the segment that belongs into {:?}: files of the log were renamed or swapped",
                    self.segments.path(number),
                    self.segments.path(claimed)
                )));
            }
        }
        Ok(())
    }

    /// Takes the open transactions from the footer before the first segment needed.
    fn load_predecessor(&mut self, first: u64) -> Result<()> {
        let before = match first.checked_sub(1).filter(|number| self.numbers.contains(number)) {
            Some(number) => Some(read_ends(self.segments, number, self.budget)?),
            None => None,
        };
        if let Some((footer, crc)) =
            before.as_ref().filter(|ends| ends.is_sealed()).and_then(|e| e.footer.as_ref())
        {
            let crc = *crc;
            self.index.resume(footer);
            self.link = Some(Link::behind(footer, crc));
            self.footers_read += 1;
            return Ok(());
        }
        let begun = before.is_some_and(|ends| ends.header.is_some());
        match self.segments.read_header(first)? {
            Some(header) if header.first => Ok(()),
            None if !begun => Ok(()),
            _ => Err(Error::Damaged(format!(
                "log: {:?} is missing or damaged; it names the transactions open at lsn {}",
                self.segments.path(first.saturating_sub(1)),
                first * self.segments.size
            ))),
        }
    }

    /// Follows sealed segments. Returns the last one, whose footer nothing vouches for, with its header; without one
    /// when the log ends where that segment begins.
    fn walk_sealed(&mut self, first: u64) -> Result<(u64, Option<SegmentHeader>)> {
        let mut number = first;
        let mut sealed: Option<(SegmentHeader, Footer, u32)> = None;
        let mut batch_len = BATCH;
        loop {
            let batch: Vec<u64> =
                (number..number + batch_len).take_while(|n| self.numbers.contains(n)).collect();
            let all_ends = match read_batch(self.segments, &batch, self.budget) {
                // Footers of small transactions are long: fewer at a time, then.
                Err(Error::Memory(_)) if batch.len() > 1 => {
                    batch_len = batch.len() as u64 / 2;
                    continue;
                }
                read => read?,
            };
            let complete = all_ends.len() as u64 == batch_len;
            for ends in all_ends {
                let link = sealed.as_ref().map(|(_, footer, crc)| Link::behind(footer, *crc)).or(self.link);
                let Some(header) = ends.header.filter(|header| Link::continued_by(link, header)) else {
                    return Ok(last_segment(number, sealed));
                };
                self.check_incarnation(&header)?;
                if let Some((_, footer, crc)) = sealed.take() {
                    self.add_sealed(&footer, crc)?;
                }
                if !ends.is_sealed() {
                    return Ok((number, Some(header)));
                }
                sealed = ends.footer.map(|(footer, crc)| (header, footer, crc));
                number += 1;
            }
            if !complete {
                if sealed.is_some() || self.link.is_some() {
                    self.lose(format!(
                        "log: {:?} is missing: the segment before it is complete, and is completed only when this one is \
                         there; committed work from lsn {} on may be lost",
                        self.segments.path(number),
                        number * self.segments.size
                    ))?;
                    return Ok(last_segment(number, sealed));
                }
                return Ok((number, None));
            }
        }
    }

    fn add_sealed(&mut self, footer: &Footer, crc: u32) -> Result<()> {
        self.add_to_table(footer.segment_start, &footer.pages, &footer.homes)?;
        self.index.resume(footer);
        self.link = Some(Link::behind(footer, crc));
        self.footers_read += 1;
        Ok(())
    }

    fn add_to_table(&mut self, start: Lsn, changed: &[(PageId, Lsn)], homes: &[(PageId, Lsn)]) -> Result<()> {
        let homes = if start < self.known.homes_from { &[] } else { homes };
        self.redo.add_segment(start, changed, homes, self.known.redo_from)
    }

    fn check_incarnation(&self, header: &SegmentHeader) -> Result<()> {
        let (found, limit) = (header.identity.incarnation, self.known.incarnation);
        if found <= limit {
            return Ok(());
        }
        let path = self.segments.path(header.number);
        Err(Error::Damaged(format!(
            "log: {path:?} is of incarnation {found}, but the header of the data file knows only {limit}: it is older \
             than the log"
        )))
    }

    /// Scans segment `number` and looks for acknowledged log behind the end.
    fn scan_last(&mut self, number: u64, header: Option<SegmentHeader>) -> Result<Resumption> {
        let start = number * self.segments.size;
        let _charge = self.budget.charge(Purpose::Log, self.segments.size)?;
        let mut bytes = AlignedBuffer::zeroed(self.segments.size as usize);
        let present = self.numbers.contains(&number) && self.read_segment(number, &mut bytes)?;
        let mut index = std::mem::replace(&mut self.index, Index::new(0, self.budget)?);
        index.begin_segment(start);
        let mut last_crc = self.link.map_or(0, |link| link.crc);
        let (mut end, mut durable) = (start, start);
        if let Some(header) = header {
            end = start + BLOCK;
            last_crc = header.previous_crc;
            while let Some(record) = self.record_at(&bytes, start, end) {
                if record.previous_crc != last_crc || record.incarnation != header.identity.incarnation {
                    break;
                }
                index.reserve(record.pages().count() + record.homes().count());
                index.apply_view(&record);
                (end, last_crc) = (record.end(), record.crc);
                durable = durable.max(record.durable);
                if end == start + self.segments.size {
                    break;
                }
            }
            self.add_to_table(Lsn(start), &index.pages(), &index.homes())?;
        }
        let tail = header.map(|header| self.tail(&header, &bytes, (start, durable, end))).transpose()?;
        let unsealed = Unsealed {
            incarnation: match header {
                Some(header) => header.identity.incarnation,
                None => self.link.map_or(0, |link| link.incarnation),
            },
            tail,
            has_room: false,
        };
        if present {
            self.check_no_hole(&bytes, number, start, end)?;
        }
        for later in self.numbers.clone().into_iter().filter(|&later| later > number) {
            // Behind a whole segment, a damaged header block must not hide what is in the one after it.
            let next = end == later * self.segments.size;
            if (next || self.segments.read_header(later)?.is_some())
                && self.read_segment(later, &mut bytes)?
            {
                self.check_no_hole(&bytes, later, later * self.segments.size, end)?;
            }
        }
        let first = header.is_none() && self.link.is_none();
        Ok(Resumption { end, last_crc, first, index, unsealed })
    }

    /// What is to be written again of a segment that begins at `start`, where a record claims that the log was durable up to `durable`.
    fn tail(
        &self,
        header: &SegmentHeader,
        bytes: &[u8],
        (start, durable, end): (u64, u64, u64),
    ) -> Result<Tail> {
        let from = durable & !(BLOCK - 1);
        let memory = self.budget.charge(Purpose::Log, end - from)?;
        let mut tail = bytes[(from - start) as usize..(end - start) as usize].to_vec();
        // It was read before the records: what is read by now may be what the device has, and not what was written.
        let path = self.segments.path(header.number);
        let (id, size) = (self.segments.database_id, self.segments.size);
        let read = SegmentHeader::decode(&bytes[..BLOCK as usize], id, header.number, size, &path)?;
        if from == start && read != Some(*header) {
            tail[..BLOCK as usize].copy_from_slice(&header.encode());
        }
        Ok(Tail { from, bytes: tail, _memory: memory })
    }

    fn record_at<'b>(&self, bytes: &'b [u8], start: u64, at: u64) -> Option<RecordView<'b>> {
        RecordView::parse(self.segments.database_id, at, &bytes[(at - start) as usize..])
    }

    /// Reads a whole segment; false when its file is too short to be one.
    fn read_segment(&self, number: u64, bytes: &mut [u8]) -> Result<bool> {
        let file = self.segments.look_into(number)?;
        for (i, chunk) in bytes.chunks_mut(READ_CHUNK).enumerate() {
            match file.read_at(Class::Foreground, (i * READ_CHUNK) as u64, chunk) {
                Err(error) if error.kind() == ErrorKind::ShortRead => return Ok(false),
                result => result?,
            }
        }
        file.sync(Class::Foreground)?;
        Ok(true)
    }

    /// Fails when a valid record behind `end` says that the log was durable beyond `end`.
    fn check_no_hole(&mut self, bytes: &[u8], number: u64, start: u64, end: u64) -> Result<()> {
        let from = end.max(start + BLOCK);
        let last = start + self.segments.size - MIN_RECORD_LEN as u64;
        for at in (from..=last).step_by(ALIGNMENT as usize) {
            if get_u64(bytes, (at - start) as usize + 8) != at {
                continue;
            }
            let claim = self.record_at(bytes, start, at).map_or(0, |record| record.durable);
            if claim > end {
                return self.lose(format!(
                    "log hole: nothing valid at lsn {end} ({:?}, offset {}), yet {:?} has a record at offset {} that was \
                     written when the log was durable up to lsn {claim}: committed work from lsn {end} on is lost",
                    self.segments.path(end / self.segments.size),
                    end % self.segments.size,
                    self.segments.path(number),
                    at - start
                ));
            }
        }
        Ok(())
    }
}

/// Reads the ends of several segments side by side, and makes what they hold durable.
fn read_batch(segments: &Arc<Segments>, numbers: &[u64], budget: &Budget) -> Result<Vec<Ends>> {
    let budget = budget.clone();
    let read = move |segments: &Segments, number| -> Result<Ends> {
        let ends = read_ends(segments, number, &budget)?;
        if ends.header.is_some() {
            segments.look_into(number)?.sync(Class::Foreground)?;
        }
        Ok(ends)
    };
    segment::side_by_side("log-footers", segments, numbers, read)?.into_iter().collect()
}

fn read_ends(segments: &Segments, number: u64, budget: &Budget) -> Result<Ends> {
    let header = segments.read_header(number)?;
    let (footer, charge) = match header {
        Some(_) => read_footer(segments, number, |bytes| Ok(budget.charge(Purpose::Log, bytes)?))?,
        None => (None, None),
    };
    Ok(Ends { header, footer, _charge: charge })
}

/// The footer of segment `number` with its checksum, if it is sealed, and what `charge` gave for its memory.
#[expect(clippy::type_complexity, reason = "a triple of what was found, its checksum and its cost")]
pub(crate) fn read_footer<C>(
    segments: &Segments,
    number: u64,
    charge: impl FnOnce(u64) -> Result<C>,
) -> Result<(Option<(Footer, u32)>, Option<C>)> {
    let size = segments.size;
    let file = segments.look_into(number)?;
    let read_last = |len: u64| -> Result<AlignedBuffer> {
        let len = len.next_multiple_of(BLOCK).min(size);
        let mut bytes = AlignedBuffer::zeroed(len as usize);
        file.read_at(Class::Foreground, size - len, &mut bytes)?;
        Ok(bytes)
    };
    if file.len()? < size {
        return Ok((None, None));
    }
    let mut bytes = read_last(FOOTER_GUESS)?;
    let len = u64::from(get_u32(&bytes, bytes.len() - TRAILER_LEN));
    if len < MIN_RECORD_LEN as u64 || len > size - BLOCK {
        return Ok((None, None));
    }
    // Decoded entries take at most 16 bytes for 12 of the footer.
    let charge = charge(len * 3)?;
    if len > bytes.len() as u64 {
        bytes = read_last(len)?;
    }
    let record = &bytes[bytes.len() - len as usize..];
    let start = (number + 1) * size - len;
    let footer = RecordView::parse(segments.database_id, start, record)
        .and_then(|record| Some((Footer::decode(&record, number * size)?, record.crc)));
    Ok((footer, Some(charge)))
}
