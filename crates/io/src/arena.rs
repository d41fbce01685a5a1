#![expect(unsafe_code, reason = "page frames are carved out of one mapping, which only the system can give")]

use crate::{Error, Result};
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// A large, zero-initialised, page-aligned piece of address space. Memory is taken from the system when a byte is
/// first touched and can be given back piecewise with [`Arena::release`].
pub struct Arena {
    start: NonNull<u8>,
    len: usize,
    huge: bool,
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
        Ok(Arena { start: NonNull::new(start.cast()).expect("mmap never gives address 0"), len, huge })
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

    /// Gives the memory of `offset..offset + len` back to the system; it reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody may hold a reference into the range, and no I/O on it may be in flight.
    pub unsafe fn release(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range inside the arena");
        // SAFETY: the range lies inside the mapping; the caller vouches that nobody uses it.
        unsafe {
            libc::madvise(self.as_ptr().add(offset).cast(), len, libc::MADV_DONTNEED);
        }
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
