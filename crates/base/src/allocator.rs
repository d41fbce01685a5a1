//! The process's allocator, as far as a memory budget depends on it.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the allocator's settings have no wrapper"))]

/// Allocations of at least this many bytes are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 128 << 10;

/// Has large allocations given back to the system as soon as they are freed. To be called once, at a program's start.
///
/// glibc's allocator begins so, but after the first large allocation that is freed it keeps larger and larger ones, and those in
/// an arena for each thread: with values of a megabyte, several times what is in use. Other allocators are left as they are.
pub fn give_back_large_allocations() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only sets a number, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE)
    };
}
