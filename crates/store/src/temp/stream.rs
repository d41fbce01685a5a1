//! Writing and reading a temporary file as a stream of bytes.

use super::{Storage, TempFile};
use crate::block::Block;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_io::{Class, Direction, Durability};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks of a stream: one at hand, the others under way (of a writer all, until the next one is needed).
const BLOCKS: usize = 3;
/// Most bytes for which a file gets room at one time.
const ROOM_MOST: u64 = 64 << 20;

/// Appends to a temporary file. Dropped without [`TempWriter::finish`], it takes the file along.
#[derive(Debug)]
pub struct TempWriter {
    storage: Arc<Storage>,
    /// Bytes of its blocks.
    block: usize,
    /// Where the block at hand begins.
    start: u64,
    /// Bytes in it.
    filled: usize,
    at_hand: Option<Block>,
    under_way: VecDeque<Block>,
    /// The file has room up to here.
    allocated: u64,
    failure: Option<Error>,
}

impl TempWriter {
    pub(super) fn new(file: TempFile) -> std::result::Result<Self, (TempFile, Error)> {
        let start = file.len.next_multiple_of(file.storage.alignment);
        let first = match file.storage.first_block() {
            Ok(first) => first,
            Err(error) => return Err((file, error)),
        };
        Ok(TempWriter {
            storage: file.storage,
            block: first.capacity(),
            start,
            filled: 0,
            at_hand: Some(first),
            under_way: VecDeque::with_capacity(BLOCKS),
            allocated: start,
            failure: None,
        })
    }

    /// Where the next byte goes.
    pub fn position(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Appends `bytes`. What fails may come to light later; then every further call fails.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the file system of the temporary folder is full.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        while !bytes.is_empty() {
            let at = self.filled;
            let block = match &mut self.at_hand {
                Some(block) => block,
                none => {
                    let next = next_block(&self.storage, self.block, &mut self.under_way);
                    none.insert(next.inspect_err(|error| self.failure = Some(error.clone()))?)
                }
            };
            let count = bytes.len().min(self.block - at);
            block.bytes()[at..at + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == self.block {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Memory for a long record on its way here, charged like that of blocks.
    pub fn memory(&self, bytes: u64) -> Result<WorkMemory> {
        self.storage.space.charge(bytes)
    }

    /// Completes what was written.
    pub fn finish(mut self) -> Result<TempFile> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let len = self.position();
        if self.filled > 0 {
            self.send()?;
        }
        for mut block in self.under_way {
            block.wait()?;
        }
        Ok(TempFile { storage: self.storage, len })
    }

    /// Sends the block at hand on its way.
    fn send(&mut self) -> Result<()> {
        let len = self.filled.next_multiple_of(self.storage.alignment as usize);
        if let Err(error) = self.make_room(self.start + len as u64) {
            self.failure = Some(error.clone());
            return Err(error);
        }
        let mut block = self.at_hand.take().expect("there is something in it");
        block.bytes()[self.filled..len].fill(0);
        // Somebody waits for the room that this makes, but not as for a page.
        let direction = Direction::Write(Durability::Cached);
        block.start(&self.storage.file, direction, Class::Deadline, self.start, len);
        self.storage.space.counters.bytes_written.fetch_add(len as u64, Ordering::Relaxed);
        self.under_way.push_back(block);
        self.start += len as u64;
        self.filled = 0;
        Ok(())
    }

    /// Gives the file room up to `end`: ahead, and the more the longer it is already, so that it lies in few pieces.
    fn make_room(&mut self, end: u64) -> Result<()> {
        if end <= self.allocated {
            return Ok(());
        }
        let needed = end - self.allocated;
        let ample = self.allocated.min(ROOM_MOST).max(needed);
        let file = &self.storage.file;
        let taken = match file.allocate(self.allocated, ample) {
            Ok(()) => ample,
            // Near the end of the disk what is needed may still be there.
            Err(_) if needed < ample => {
                file.allocate(self.allocated, needed)?;
                needed
            }
            Err(error) => return Err(error.into()),
        };
        self.allocated += taken;
        Ok(())
    }
}

/// A block of `bytes` to be filled: a further one, as long as there may be more, else the one that was sent first.
fn next_block(storage: &Storage, bytes: usize, under_way: &mut VecDeque<Block>) -> Result<Block> {
    if under_way.len() < BLOCKS && storage.space.has_plenty() {
        match storage.further_block(bytes) {
            // There is memory for fewer blocks.
            Err(Error::Memory(_)) => {}
            other => return other,
        }
    }
    let mut block = under_way.pop_front().expect("the first block is under way");
    block.wait()?;
    Ok(block)
}

/// Reads a range of a temporary file.
#[derive(Debug)]
pub struct TempReader {
    storage: Arc<Storage>,
    position: u64,
    to: u64,
    /// The block that `position` is in, and where it begins.
    at_hand: Option<(Block, u64)>,
    /// Blocks behind it, in order.
    under_way: VecDeque<(Block, u64)>,
    /// Blocks that were read to their end.
    free: Vec<Block>,
    /// Where the next block to be asked for begins.
    next: u64,
    /// Why it cannot be gone on.
    failure: Option<Error>,
}

impl TempReader {
    pub(super) fn new(storage: &Arc<Storage>, from: u64, to: u64, len: u64) -> Result<Self> {
        if from > to || to > len {
            return Err(Error::Invalid(format!(
                "bytes {from} to {to} of a temporary file that has {len} are asked for"
            )));
        }
        let mut reader = TempReader {
            storage: Arc::clone(storage),
            position: from,
            to,
            at_hand: None,
            under_way: VecDeque::with_capacity(BLOCKS),
            free: Vec::new(),
            next: from / storage.alignment * storage.alignment,
            failure: None,
        };
        if from < to {
            reader.free.push(storage.first_block()?);
            reader.look_ahead()?;
        }
        Ok(reader)
    }

    /// Memory for a long record from here, charged like that of blocks.
    pub fn memory(&self, bytes: u64) -> Result<WorkMemory> {
        self.storage.space.charge(bytes)
    }

    /// Bytes left.
    pub fn remaining(&self) -> u64 {
        self.to - self.position
    }

    /// Fills `buffer` with the next bytes; [`Error::Invalid`] when there are fewer, and nothing is read then.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 > self.remaining() {
            return Err(Error::Invalid(format!(
                "{} bytes are asked for, and {} are left of a temporary file",
                buffer.len(),
                self.remaining()
            )));
        }
        let mut done = 0;
        while done < buffer.len() {
            let position = self.position;
            let (block, start) = self.current()?;
            let at = (position - start) as usize;
            let count = (block.len() - at).min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&block.bytes()[at..at + count]);
            done += count;
            self.position += count as u64;
        }
        Ok(())
    }

    /// The next bytes as they lie in memory, for [`TempReader::pass`]; `None` where they lie in more than one block, or there are fewer.
    #[inline]
    pub fn peek(&mut self, count: usize) -> Result<Option<&[u8]>> {
        if count as u64 > self.remaining() || count == 0 {
            return Ok(None);
        }
        let position = self.position;
        let (block, start) = self.current()?;
        let at = (position - start) as usize;
        Ok(block.transferred().get(at..at + count))
    }

    /// Goes on behind the next bytes, which [`TempReader::peek`] has shown.
    #[inline]
    pub fn pass(&mut self, count: usize) {
        self.position += count as u64;
    }

    /// The bytes that were passed last, up to the next step.
    #[inline]
    pub fn passed(&self, count: usize) -> &[u8] {
        let (block, start) = self.at_hand.as_ref().expect("bytes were passed");
        let end = (self.position - start) as usize;
        &block.transferred()[end - count..end]
    }

    /// The block that the position is in, and where it begins.
    fn current(&mut self) -> Result<(&mut Block, u64)> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let position = self.position;
        let is_read = |(block, start): &(Block, u64)| position >= start + block.len() as u64;
        if self.at_hand.as_ref().is_none_or(is_read)
            && let Err(error) = self.step()
        {
            self.failure = Some(error.clone());
            return Err(error);
        }
        let (block, start) = self.at_hand.as_mut().expect("set above");
        Ok((block, *start))
    }

    /// Goes on to the next block.
    fn step(&mut self) -> Result<()> {
        self.free.extend(self.at_hand.take().map(|(block, _)| block));
        if self.under_way.is_empty() {
            self.look_ahead()?;
        }
        let (mut block, start) = self.under_way.pop_front().expect("there are bytes left");
        block.wait()?;
        self.at_hand = Some((block, start));
        self.look_ahead()
    }

    /// Asks for the blocks to come.
    fn look_ahead(&mut self) -> Result<()> {
        let end = self.to.next_multiple_of(self.storage.alignment);
        while self.next < end {
            let held = self.under_way.len() + usize::from(self.at_hand.is_some());
            let mut block = match self.free.pop() {
                Some(block) => block,
                None if held >= BLOCKS || held > 0 && !self.storage.space.has_plenty() => return Ok(()),
                None if held == 0 => self.storage.first_block()?,
                None => match self.storage.further_block(self.storage.block) {
                    // There is memory for fewer blocks.
                    Err(Error::Memory(_)) => return Ok(()),
                    other => other?,
                },
            };
            let len = (end - self.next).min(block.capacity() as u64);
            // Who has nothing waits for the first one.
            let class = if held == 0 { Class::Foreground } else { Class::Prefetch };
            block.start(&self.storage.file, Direction::Read, class, self.next, len as usize);
            self.storage.space.counters.bytes_read.fetch_add(len, Ordering::Relaxed);
            self.under_way.push_back((block, self.next));
            self.next += len;
        }
        Ok(())
    }
}
