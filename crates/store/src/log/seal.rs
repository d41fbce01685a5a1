//! The second step of a restart: end the crashed segment and begin a new life of the log behind it.
//!
//! # A crash at any point
//! The segment that the log goes on in is made ready before all else, as that may find no room: of those that are there only such are used again that
//! neither redo nor anybody who holds log needs. Then the caller makes the new incarnation durable in the data file. Then what the crashed segment has from
//! the last place on that was surely durable is written again, the same bytes in their places; and two durable writes end it:
//! the log's last block, repeated with a filler's header behind the last record, and the segment's last blocks with the
//! filler's trailer and the footer. Before both are there, the segment is not sealed and the next restart finds the same
//! end, or the end of the filler, and seals it there: the footer is a function of the same records. After that, the
//! footer says that a restart has ended the segment, so that segments the dead life may have left behind it (same
//! positions, valid checksums, never acknowledged) are not taken for the log: what follows must be of a later life. A
//! last block torn in between holds its old or its new bytes in each sector, and what was acknowledged is the same in both.

use super::Inner;
use super::append::State;
use super::record::{Head, Identity, MIN_RECORD_LEN, Place, RecordKind, TRAILER_LEN};
use super::recover::{Tail, Unsealed};
use super::segment::BLOCK;
use crate::{Error, Result};
use gannet_io::{Class, Durability};
use std::sync::atomic::Ordering::Release;

fn started_already() -> Error {
    Error::Invalid("the log is started already".into())
}

impl Inner {
    /// See [`Log::make_room_to_start`](super::Log::make_room_to_start).
    pub(crate) fn make_room_to_start(&self) -> Result<()> {
        match self.unsealed.lock().as_mut() {
            Some(unsealed) => self.make_room_for(unsealed, self.state.lock().end),
            None => Err(started_already()),
        }
    }

    fn make_room_for(&self, unsealed: &mut Unsealed, end: u64) -> Result<()> {
        if !unsealed.has_room {
            let next = end.div_ceil(self.segments.size);
            self.segments.begin_at(next);
            // No commit waits yet: it is filled.
            self.segments.make_ready(next, Class::Foreground)?;
            unsealed.has_room = true;
        }
        Ok(())
    }

    /// Seals the crashed segment and opens the log for appending as `incarnation`.
    pub(crate) fn start_writing(&self, incarnation: u32) -> Result<()> {
        let mut unsealed = self.unsealed.lock();
        let Some(resumed) = unsealed.as_mut() else { return Err(started_already()) };
        if incarnation <= resumed.incarnation {
            let text = format!("incarnation {incarnation} cannot follow {}", resumed.incarnation);
            return Err(Error::Invalid(text));
        }
        let mut state = self.state.lock();
        self.make_room_for(resumed, state.end)?;
        if let Some(tail) = &resumed.tail {
            self.end_crashed(&mut state, resumed.incarnation, tail)
                .inspect_err(|error| state.flush.refuse(error))?;
        }
        state.identity.incarnation = incarnation;
        self.incarnation.store(incarnation, Release);
        *unsealed = None;
        Ok(())
    }

    /// Writes what may not be durable once more, and seals the segment, unless the log ends with it.
    fn end_crashed(&self, state: &mut State, incarnation: u32, tail: &Tail) -> Result<()> {
        // All of it before the records behind, which say that it is durable.
        self.write_durable(state, tail.from, &tail.bytes)?;
        let last_block = state.end & !(BLOCK - 1);
        match state.end.is_multiple_of(self.segments.size) {
            true => Ok(()),
            false => self.seal_crashed(state, incarnation, &tail.bytes[(last_block - tail.from) as usize..]),
        }
    }

    fn seal_crashed(&self, state: &mut State, incarnation: u32, tail: &[u8]) -> Result<()> {
        let end = state.end;
        let segment_end = state.segment_end(end);
        let identity = Identity { database_id: self.options.database_id, incarnation };
        let mut footer = state.index.encode_footer(segment_end, true);
        let room = (segment_end - end) as usize;
        let gap = room.checked_sub(footer.record_len()).ok_or_else(|| {
            Error::Damaged(format!("log: no room for a footer behind lsn {end}, where there always is"))
        })?;
        let mut place = Place { identity, start: end, durable: end, previous_crc: state.last_crc };
        let mut front = tail.to_vec();
        let mut back = Vec::new();
        let mut back_at = end;
        if gap >= MIN_RECORD_LEN {
            let filler = Head::encode(&place, RecordKind::Filler, None, 0, gap - MIN_RECORD_LEN, 0);
            front.extend_from_slice(filler.bytes());
            back.extend_from_slice(&filler.trailer);
            back_at = end + (gap - TRAILER_LEN) as u64;
            place.start = end + gap as u64;
            place.previous_crc = filler.crc;
        } else {
            footer.pad_to(room);
        }
        let draft = footer.draft();
        let sum = identity.body_sum(RecordKind::Footer, draft.body);
        let head = Head::encode(&place, RecordKind::Footer, None, draft.padding, draft.body.len(), sum);
        back.extend_from_slice(head.bytes());
        back.extend_from_slice(draft.body);
        back.extend_from_slice(&head.trailer);
        self.write_ends(state, end, front, back_at, back)?;
        state.end = segment_end;
        state.last_crc = head.crc;
        state.flush.restart_at(segment_end);
        self.durable.store(segment_end, Release);
        self.durable_records.store(segment_end, Release);
        self.end.store(segment_end, Release);
        Ok(())
    }

    /// Writes `front`, which begins at the block of `end`, then `back`, which begins at `back_at` and ends the segment.
    fn write_ends(
        &self,
        state: &mut State,
        end: u64,
        mut front: Vec<u8>,
        back_at: u64,
        back: Vec<u8>,
    ) -> Result<()> {
        let front_at = end & !(BLOCK - 1);
        let back_block = back_at & !(BLOCK - 1);
        if back_block < (front_at + front.len() as u64).next_multiple_of(BLOCK) {
            front.resize((back_at - front_at) as usize, 0);
            front.extend_from_slice(&back);
            return self.write_durable(state, front_at, &front);
        }
        self.write_durable(state, front_at, &front)?;
        let mut padded = vec![0; (back_at - back_block) as usize];
        padded.extend_from_slice(&back);
        self.write_durable(state, back_block, &padded)
    }

    /// Writes `bytes`, padded with zeros to a block, from the block at `at` on.
    fn write_durable(&self, state: &mut State, at: u64, bytes: &[u8]) -> Result<()> {
        let file = self.segments.file_to_write(at / self.segments.size)?;
        let buffer = state.flush.idle_buffer();
        for (i, chunk) in bytes.chunks(self.write_max as usize).enumerate() {
            let len = chunk.len().next_multiple_of(BLOCK as usize);
            buffer[..chunk.len()].copy_from_slice(chunk);
            buffer[chunk.len()..len].fill(0);
            let offset = at % self.segments.size + i as u64 * self.write_max;
            file.write_at(Class::Commit, offset, &buffer[..len], Durability::Durable)?;
        }
        Ok(())
    }
}
