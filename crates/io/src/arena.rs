#![expect(unsafe_code, reason = "page frames are carved out of one mapping, which only the system can give")]

use crate::{Error, Result};
use gannet_base::sync::Mutex;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Huge pages on x86-64 and most of aarch64.
const HUGE: usize = 2 << 20;
/// Parts of an arena that the system may have to tell apart, at most: it knows 65530 of a whole process.
const PARTS: usize = 8192;

/// A large, zero-initialised, page-aligned piece of address space. Memory is taken from the system when a byte is
/// first touched and can be given back piecewise with [`Arena::release`]. What was given back stays so until it is touched again: the
/// system makes no huge pages of what is around it, whose holes it would fill, until all of that was taken again ([`Arena::retake`]).
pub struct Arena {
    start: NonNull<u8>,
    len: usize,
    huge: bool,
    /// Bytes of each part that are given back. The system is asked for huge pages where that is nothing or all of the part.
    released: Mutex<Vec<usize>>,
}

// SAFETY: an arena is only an address range; whoever hands out pieces of it settles who may touch them.
unsafe impl Send for Arena {}
// SAFETY: as above; no method touches the memory's contents.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` bytes, asking for huge pages where the system grants them.
    pub fn new(len: usize) -> Result<Self> {
        assert!(len > 0, "an arena is never empty");
        // SAFETY: an anonymous private mapping at an address of the system's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(Error::from_os("map", Path::new("memory"), format!("{len} bytes"), error));
        }
        #[cfg(target_os = "linux")]
        // SAFETY: the range was mapped above; the advice changes no contents.
        let huge = unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) } == 0;
        #[cfg(not(target_os = "linux"))]
        let huge = false;
        let start = NonNull::new(start.cast()).expect("mmap never gives address 0");
        let mut arena = Arena { start, len, huge, released: Mutex::new(Vec::new()) };
        if huge {
            arena.released = Mutex::new(vec![0; arena.part_of(len - 1) + 1]);
        }
        Ok(arena)
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true; here because `len` is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the system took the request for huge pages.
    pub fn huge_pages(&self) -> bool {
        self.huge
    }

    /// Takes the memory of `offset..offset + len` from the system before it is touched; contents stay as they are. A system that
    /// cannot do that leaves it to the first touch.
    pub fn populate(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range inside the arena");
        #[cfg(target_os = "linux")]
        // SAFETY: the range lies inside the mapping; no contents are changed.
        unsafe {
            libc::madvise(self.as_ptr().add(offset).cast(), len, libc::MADV_POPULATE_WRITE);
        }
    }

    /// Gives the memory of `offset..offset + len` back to the system, as far as it is of whole pages of the system; that reads as zero
    /// afterwards.
    ///
    /// # Safety
    /// Nobody may hold a reference into the range, and no I/O on it may be in flight. None of it is given back already.
    pub unsafe fn release(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range inside the arena");
        self.count(offset, len, |before, more| before + more);
        // The system would take the rest of the last page as well.
        let page = system_page();
        let (from, to) = (offset.next_multiple_of(page), (offset + len) / page * page);
        if from >= to {
            return;
        }
        // SAFETY: the range lies inside the mapping; the caller vouches that nobody uses it.
        unsafe {
            libc::madvise(self.as_ptr().add(from).cast(), to - from, libc::MADV_DONTNEED);
        }
    }

    /// Says that `offset..offset + len`, which was given back, is going to be used again.
    pub fn retake(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range inside the arena");
        self.count(offset, len, |before, less| before.checked_sub(less).expect("it was given back"));
    }

    /// Changes how many bytes of each part are given back, by those of `offset..offset + len` in it, and what the system is asked for.
    fn count(&self, offset: usize, len: usize, change: impl Fn(usize, usize) -> usize) {
        let mut released = self.released.lock();
        if !self.huge || len == 0 {
            return;
        }
        // Parts side by side that are to be advised alike.
        let mut advice: Option<(bool, usize, usize)> = None;
        for part in self.part_of(offset)..=self.part_of(offset + len - 1) {
            let (from, to) = self.part(part);
            let before = released[part];
            released[part] = change(before, to.min(offset + len) - from.max(offset));
            let may_be_huge = |given: usize| given == 0 || given == to - from;
            let (was, is) = (may_be_huge(before), may_be_huge(released[part]));
            if was == is {
                continue;
            }
            match &mut advice {
                Some((huge, _, end)) if (*huge, *end) == (is, from) => *end = to,
                _ => {
                    self.advise(advice.replace((is, from, to)));
                }
            }
        }
        self.advise(advice);
    }

    fn advise(&self, advice: Option<(bool, usize, usize)>) {
        let Some((huge, from, to)) = advice else { return };
        #[cfg(target_os = "linux")]
        // SAFETY: the range lies inside the mapping; the advice changes no contents.
        unsafe {
            let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            libc::madvise(self.as_ptr().add(from).cast(), to - from, advice);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (huge, from, to);
    }

    /// Bytes in front of the arena that belong to its first part: it need not begin where a huge page could.
    fn lead(&self) -> usize {
        self.as_ptr() as usize % HUGE
    }

    /// Bytes of a part: huge pages that are told apart together.
    fn part_len(&self) -> usize {
        HUGE * self.len.div_ceil(HUGE * PARTS)
    }

    fn part_of(&self, offset: usize) -> usize {
        (offset + self.lead()) / self.part_len()
    }

    /// Where a part begins and ends.
    fn part(&self, number: usize) -> (usize, usize) {
        let from = number * self.part_len();
        (from.saturating_sub(self.lead()), (from + self.part_len() - self.lead()).min(self.len))
    }
}

/// Bytes of a page of the system's memory.
fn system_page() -> usize {
    // SAFETY: a plain question to the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(64 << 10)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Whether the system may make a huge page of what is at an address, by its list of this process's memory.
    fn may_be_huge(address: usize) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in smaps.lines() {
            if let Some((range, _)) = line.split_once(' ')
                && let Some((from, to)) = range.split_once('-')
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                is_there = (from..to).contains(&address);
            } else if is_there && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_whitespace().any(|flag| flag == "hg");
            }
        }
        panic!("{address:x} is not mapped");
    }

    #[test]
    fn the_system_does_not_fill_what_was_given_back() {
        let arena = Arena::new(64 << 20).unwrap();
        if !arena.huge_pages() {
            return;
        }
        let at = |offset: usize| arena.as_ptr() as usize + offset;
        arena.populate(0, 64 << 20);
        assert!(may_be_huge(at(0)) && may_be_huge(at(33 << 20)));
        // SAFETY: nobody has a reference into the arena.
        unsafe { arena.release(33 << 20, 8192) };
        assert!(!may_be_huge(at((33 << 20) - 4096)) && !may_be_huge(at(33 << 20)));
        assert!(may_be_huge(at(0)) && may_be_huge(at(40 << 20)), "others are as they were");
        // SAFETY: as above.
        unsafe { arena.release((33 << 20) + 16384, 4096) };
        arena.retake(33 << 20, 8192);
        assert!(!may_be_huge(at(33 << 20)), "a part of it is still given back");
        arena.retake((33 << 20) + 16384, 4096);
        assert!(may_be_huge(at(0)) && may_be_huge(at(33 << 20)), "nothing of it is");
    }

    #[test]
    fn what_was_given_back_as_a_whole_may_be_huge_again() {
        let arena = Arena::new(64 << 20).unwrap();
        if !arena.huge_pages() {
            return;
        }
        let at = |offset: usize| arena.as_ptr() as usize + offset;
        let end = (64 << 20) - 1;
        // SAFETY: nobody has a reference into the arena.
        unsafe { arena.release(4096, end - 4095) };
        assert!(!may_be_huge(at(0)), "there is memory in it");
        assert!(may_be_huge(at(8 << 20)) && may_be_huge(at(end)), "there is none that could be filled up");
        arena.retake(32 << 20, 4096);
        assert!(!may_be_huge(at(32 << 20)) && may_be_huge(at(40 << 20)));
        arena.retake(4096, (32 << 20) - 4096);
        arena.retake((32 << 20) + 4096, (32 << 20) - 4096);
        assert!([0, 8 << 20, 32 << 20, end].into_iter().all(|offset| may_be_huge(at(offset))));
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this address and length; the owner is going away, so nobody uses it.
        unsafe {
            libc::munmap(self.as_ptr().cast(), self.len);
        }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes)", self.len)
    }
}
