//! One transfer from its first system call to its end, whoever makes the calls: the calling thread, a pool thread or
//! the kernel's submission ring. Keeps guarantee 1 (whole or an error) in one place.

use crate::real::RealFile;
use crate::real::sys;
use crate::{Direction, Durability, Error, ErrorKind, IoSlice, Mode, Result};
use gannet_base::clock;
use std::io;
use std::time::Duration;

/// How often a transfer is tried again that the system had no memory for, and how long it waits before that: two seconds together.
const NO_MEMORY_TRIES: u32 = 20;
const NO_MEMORY_WAIT: Duration = Duration::from_millis(100);

/// What has to be asked of the system next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Transfer the rest, with these `RWF_` flags.
    Transfer(i32),
    /// Make what was written durable.
    Sync,
    /// Nothing; the request has ended well.
    Done,
}

/// A transfer on its way.
#[derive(Debug)]
pub(crate) struct Transfer {
    direction: Direction,
    offset: u64,
    total: usize,
    done: usize,
    step: Step,
    /// How often the system had no memory for it.
    refused: u32,
    /// It just had none: the next step is worth a try after a while.
    is_early: bool,
    /// Whether a failure poisons the file.
    poisons: bool,
}

/// Waits before a transfer on `file` is tried again that the system had no memory for. Nothing is wrong with the device: what leaves
/// the cache makes room. Not to be called with a lock that others need.
pub(crate) fn wait_for_memory(file: &RealFile) {
    file.leave_cache();
    clock::sleep(NO_MEMORY_WAIT);
}

impl Transfer {
    /// A transfer of `total` bytes (more than 0) that nothing was done for yet.
    pub(crate) fn new(file: &RealFile, direction: Direction, offset: u64, total: usize) -> Self {
        Transfer {
            direction,
            offset,
            total,
            done: 0,
            step: Step::Transfer(file.flags(direction)),
            refused: 0,
            is_early: false,
            poisons: direction != Direction::Read,
        }
    }

    /// The same, to a place behind the file's end, which is cut off again where it fails: that says nothing of what was there.
    pub(crate) fn beyond(file: &RealFile, direction: Direction, offset: u64, total: usize) -> Self {
        Transfer { poisons: false, ..Self::new(file, direction, offset, total) }
    }

    /// Whether to [`wait_for_memory`] before the next step; asked once.
    pub(crate) fn take_early(&mut self) -> bool {
        std::mem::take(&mut self.is_early)
    }

    /// Whether memory goes to the device.
    pub(crate) fn is_write(&self) -> bool {
        self.direction != Direction::Read
    }

    /// Which way, and how durable.
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// What to ask for next.
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Where in the file the rest begins.
    pub(crate) fn position(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Length of the whole transfer in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The rest of the memory, when the whole is one slice.
    pub(crate) fn rest_of(&self, slice: &IoSlice) -> libc::iovec {
        libc::iovec { iov_base: slice.address.wrapping_add(self.done).cast(), iov_len: slice.len - self.done }
    }

    /// The rest of the memory, into `pieces`.
    pub(crate) fn rest(&self, slices: &[IoSlice], pieces: &mut Vec<libc::iovec>) {
        pieces.clear();
        let mut skip = self.done;
        for slice in slices {
            if skip >= slice.len {
                skip -= slice.len;
                continue;
            }
            let start = slice.address.wrapping_add(skip).cast();
            pieces.push(libc::iovec { iov_base: start, iov_len: slice.len - skip });
            skip = 0;
        }
    }

    /// Takes the answer of the system to the last step; a failed write or sync poisons the file, but for [`Transfer::beyond`].
    pub(crate) fn advance(&mut self, file: &RealFile, answer: io::Result<usize>) -> Result<Step> {
        let next = self.judge(file, answer);
        if let (Err(failure), true) = (&next, self.poisons) {
            file.poison(failure);
        }
        self.step = next?;
        Ok(self.step)
    }

    fn judge(&mut self, file: &RealFile, answer: io::Result<usize>) -> Result<Step> {
        let flags = match self.step {
            Step::Transfer(flags) => flags,
            _ => 0,
        };
        match answer {
            Ok(_) if self.step == Step::Sync => Ok(Step::Done),
            Ok(moved) => self.moved(file, moved, flags),
            Err(error) => match error.raw_os_error() {
                // Interrupted, or the thread that submitted it ended before the kernel got to it: ask again.
                Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => Ok(self.step),
                Some(libc::EOPNOTSUPP) if flags & sys::RWF_DSYNC != 0 => {
                    file.no_durable_writes();
                    Ok(Step::Transfer(flags & !sys::RWF_DSYNC))
                }
                // Nothing was moved.
                Some(libc::ENOMEM | libc::EFAULT)
                    if self.step != Step::Sync && self.refused < NO_MEMORY_TRIES =>
                {
                    self.refused += 1;
                    self.is_early = true;
                    Ok(self.step)
                }
                Some(libc::ENOMEM | libc::EFAULT) => {
                    let place =
                        self.place() + ": no memory was left for it in the machine, or in the memory cgroup";
                    Err(Error::from_os(self.operation(), file.path_ref(), place, error))
                }
                _ => Err(Error::from_os(self.operation(), file.path_ref(), self.place(), error)),
            },
        }
    }

    fn moved(&mut self, file: &RealFile, moved: usize, flags: i32) -> Result<Step> {
        let path = file.path_ref();
        let rest = self.total - self.done;
        assert!(moved <= rest, "the system cannot transfer more than it was asked to");
        let direct = file.report().effective == Mode::Direct;
        // A short direct transfer that ends inside a block cannot be continued from there.
        let kept = if direct && moved < rest { moved - moved % file.alignment_bytes() } else { moved };
        self.done += kept;
        if self.done == self.total {
            let sync = self.wants_durable() && flags & sys::RWF_DSYNC == 0;
            return Ok(if sync { Step::Sync } else { Step::Done });
        }
        if !self.is_write() && (moved == 0 || kept < moved) {
            return Err(Error::new(
                ErrorKind::ShortRead,
                "read",
                path,
                self.place() + ": the file ends before",
            ));
        }
        if kept == 0 || matches!(self.direction, Direction::WriteAtomic(_)) {
            let detail = format!("{}: the device took {moved} bytes only", self.place());
            return Err(Error::new(ErrorKind::Device, "write", path, detail));
        }
        Ok(Step::Transfer(flags))
    }

    fn wants_durable(&self) -> bool {
        matches!(
            self.direction,
            Direction::Write(Durability::Durable) | Direction::WriteAtomic(Durability::Durable)
        )
    }

    fn operation(&self) -> &'static str {
        match (self.is_write(), self.step) {
            (false, _) => "read",
            (true, Step::Sync) => "sync",
            (true, _) => "write",
        }
    }

    fn place(&self) -> String {
        format!("{} bytes at offset {}", self.total, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, OpenOptions, RealDisk};

    fn no_memory() -> io::Result<usize> {
        // What a copy through the OS cache ends with where the memory cgroup is full.
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }

    #[test]
    fn what_there_is_no_memory_for_is_tried_again_and_then_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions { create: true, write: true, ..OpenOptions::read() };
        let file = RealDisk::default().open(&folder.path().join("file"), &options).unwrap();
        let file = file.as_any().downcast_ref::<RealFile>().unwrap();
        let mut transfer = Transfer::new(file, Direction::Write(Durability::Cached), 0, 4096);
        let first = transfer.step();
        assert_eq!(transfer.advance(file, no_memory()).unwrap(), first);
        assert!(transfer.take_early() && !transfer.take_early(), "after a while, once");
        assert_eq!(transfer.advance(file, Ok(4096)).unwrap(), Step::Done);

        let mut transfer =
            Transfer { refused: NO_MEMORY_TRIES, ..Transfer::new(file, Direction::Read, 0, 4096) };
        let error = transfer.advance(file, no_memory()).unwrap_err();
        assert!(error.to_string().contains("no memory was left"), "{error}");
    }
}
