//! Appending: everything that happens under the log's one mutex, except flushing.
//!
//! # Invariants
//! 1. `durable <= submitted <= end`, all in one stream of bytes; the ring holds everything from the start of the block
//!    that contains `durable` up to `end`.
//! 2. At any time the footer of the current segment, as it would be now, fits behind `end`. So a segment can always be
//!    sealed without moving a record.
//! 3. `end` at a segment's first byte means: the segment before is sealed, this one not entered yet.
//! 4. A segment ends before its footer could take more than half of the ring.
//!
//! Room in the ring is enough for every step, with `ring >= segment / 2`: a record is at most an eighth of it, and of sealing
//! there is at most three quarters of the ring left when it begins, since what is more is filled before, a quarter at a time. A
//! segment that has just begun takes any group: its changes take at most a quarter of the ring in the footer, and at
//! most `segment / 256` open transactions an eighth.

use super::Inner;
use super::buffer::Ring;
use super::flush::{FlushState, Wait};
use super::footer::Index;
use super::record::{Draft, Head, Identity, MIN_RECORD_LEN, Place, RecordKind, TRAILER_LEN};
use super::segment::{BLOCK, SegmentHeader, Segments};
use crate::{Error, Result};
use gannet_base::Lsn;
use gannet_io::Class;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What the log's mutex guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ring: Ring,
    pub(crate) segment_size: u64,
    pub(crate) identity: Identity,
    /// Behind the last byte appended.
    pub(crate) end: u64,
    /// Checksum of the last record.
    pub(crate) last_crc: u32,
    /// The next segment entered has nothing before it.
    pub(crate) first: bool,
    pub(crate) index: Index,
    pub(crate) flush: FlushState,
}

/// What an append has to do next.
enum Step {
    /// Put the record.
    Write,
    /// Put the header of the segment that begins at the end.
    Enter,
    /// Put a filler of this length, so that less is left of a segment that ends.
    Fill(u64),
    /// End the segment.
    Seal,
    /// Wait until the log is durable up to here, which makes room in the ring.
    Room(u64),
    /// Make this segment ready.
    Prepare(u64),
}

impl State {
    /// First position behind the segment that `at`, or the byte before it, lies in.
    pub(crate) fn segment_end(&self, at: u64) -> u64 {
        at.next_multiple_of(self.segment_size)
    }

    /// Where the log must be durable before `needed` more bytes fit into the ring; 0 when they fit now.
    fn durable_for(&self, needed: u64) -> u64 {
        let release = (self.end + needed).saturating_sub(self.ring.len()).next_multiple_of(BLOCK);
        debug_assert!(release <= self.end, "no step takes more than the ring");
        if release > self.flush.durable { release } else { 0 }
    }

    fn next_step(&self, draft: &Draft<'_>, segments: &Segments) -> Step {
        let len = draft.len() as u64;
        let number = self.end / self.segment_size;
        let (ready, needed, step) = if self.end.is_multiple_of(self.segment_size) {
            (number, BLOCK, Step::Enter)
        } else {
            let room = self.segment_end(self.end) - self.end;
            let footer = self.index.footer_len(draft.entries()) as u64;
            let quarter = self.ring.len() / 4;
            if len + footer <= room && footer <= 2 * quarter {
                (number, len, Step::Write)
            } else if room > 3 * quarter {
                (number, quarter, Step::Fill(quarter))
            } else {
                (number + 1, room, Step::Seal)
            }
        };
        if !segments.is_ready(ready) {
            return Step::Prepare(ready);
        }
        match self.durable_for(needed) {
            0 => step,
            release => Step::Room(release),
        }
    }

    /// Puts the header block of the segment that begins at the end.
    fn enter(&mut self) {
        let header = SegmentHeader {
            identity: self.identity,
            number: self.end / self.segment_size,
            segment_size: self.segment_size,
            previous_crc: self.last_crc,
            first: self.first,
        };
        self.ring.put(self.end, &header.encode());
        self.index.begin_segment(self.end);
        self.first = false;
        self.end += BLOCK;
    }

    fn place(&self) -> Place {
        Place {
            identity: self.identity,
            start: self.end,
            durable: self.flush.whole,
            previous_crc: self.last_crc,
        }
    }

    /// Puts a record and returns its LSN.
    fn put(&mut self, draft: &Draft<'_>, body_sum: u64) -> u64 {
        let head =
            Head::encode(&self.place(), draft.kind, draft.txn, draft.padding, draft.body.len(), body_sum);
        let body_at = self.end + head.bytes().len() as u64;
        self.ring.put(self.end, head.bytes());
        self.ring.put(body_at, draft.body);
        self.finish(body_at + draft.body.len() as u64, &head);
        self.index.apply(self.end, draft.txn, draft.pages.iter().copied());
        self.index.apply_homes(draft.homes.iter().copied());
        self.end
    }

    fn finish(&mut self, trailer_at: u64, head: &Head) {
        self.ring.put(trailer_at, &head.trailer);
        self.end = trailer_at + TRAILER_LEN as u64;
        self.last_crc = head.crc;
        self.flush.appended(self.end);
    }

    /// Puts a filler of `len` bytes.
    fn put_filler(&mut self, len: u64) {
        let body_len = len as usize - MIN_RECORD_LEN;
        let head = Head::encode(&self.place(), RecordKind::Filler, None, 0, body_len, 0);
        let body_at = self.end + head.bytes().len() as u64;
        self.ring.put(self.end, head.bytes());
        self.ring.put_zeros(body_at, body_len);
        self.finish(body_at + body_len as u64, &head);
    }

    /// Fills up to a block boundary, if the segment and the ring have room for that.
    pub(crate) fn fill_block(&mut self) {
        let gap = self.end.next_multiple_of(BLOCK) - self.end;
        let len = match gap {
            0 => return,
            _ if gap < MIN_RECORD_LEN as u64 => gap + BLOCK,
            _ => gap,
        };
        let room = self.segment_end(self.end) - self.end;
        if len + self.index.footer_len(0) as u64 <= room && self.durable_for(len) == 0 {
            self.put_filler(len);
        }
    }

    /// Ends the segment with its footer.
    fn seal(&mut self) {
        let segment_end = self.segment_end(self.end);
        let mut footer = self.index.encode_footer(segment_end, false);
        let room = (segment_end - self.end) as usize;
        let gap = room - footer.record_len();
        if gap >= MIN_RECORD_LEN {
            self.put_filler(gap as u64);
        } else {
            footer.pad_to(room);
        }
        let draft = footer.draft();
        let sum = self.identity.body_sum(RecordKind::Footer, draft.body);
        self.put(&draft, sum);
        assert_eq!(self.end, segment_end, "a footer ends where its segment ends");
    }
}

impl Inner {
    /// Appends a record and returns its LSN. Waits for the device only when the ring is full or the next segment is not
    /// ready; on an error nothing was appended.
    pub(crate) fn append(&self, draft: &Draft<'_>) -> Result<Lsn> {
        if draft.len() > self.options.max_record_len() {
            let text =
                format!("a log record of {} bytes; at most {}", draft.len(), self.options.max_record_len());
            return Err(Error::Invalid(text));
        }
        if draft.entries() > self.options.max_changes() {
            let most = self.options.max_changes();
            let text = format!("a log record of {} changes; at most {most}", draft.entries());
            return Err(Error::Invalid(text));
        }
        let identity =
            Identity { database_id: self.options.database_id, incarnation: self.incarnation.load(Acquire) };
        let body_sum = identity.body_sum(draft.kind, draft.body);
        let mut state = self.state.lock();
        loop {
            state.flush.check()?;
            if identity.incarnation == 0 || state.identity != identity {
                return Err(Error::Invalid("the log is not open for appending".into()));
            }
            match state.next_step(draft, &self.segments) {
                Step::Write => break,
                Step::Enter => state.enter(),
                Step::Fill(len) => state.put_filler(len),
                Step::Seal => state.seal(),
                Step::Room(release) => {
                    drop(state);
                    self.flush_until(release, Wait::Now)?;
                    state = self.state.lock();
                }
                Step::Prepare(number) => {
                    drop(state);
                    self.segments.make_ready(number, Class::Commit)?;
                    state = self.state.lock();
                }
            }
            self.end.store(state.end, Release);
        }
        self.check_open_limit(&state, draft)?;
        state.index.reserve(draft.entries());
        let lsn = state.put(draft, body_sum);
        self.end.store(lsn, Release);
        let wake_flusher = std::mem::take(&mut state.flush.flusher_idle);
        drop(state);
        if wake_flusher {
            self.flusher.notify_all();
        }
        Ok(Lsn(lsn))
    }

    fn check_open_limit(&self, state: &State, draft: &Draft<'_>) -> Result<()> {
        let open = &state.index.open;
        let limit = self.options.max_open_transactions();
        match draft.txn {
            Some(txn) if open.len() >= limit && !open.contains_key(&txn.id.0) => Err(Error::Invalid(
                format!("{limit} transactions with changes are open: the most the log holds"),
            )),
            _ => Ok(()),
        }
    }
}
