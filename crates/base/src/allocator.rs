//! The process's allocator, as far as a memory budget depends on it.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the allocator's settings have no wrapper"))]

/// Allocations of at least this many bytes are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 32 << 10;
/// Arenas, at most, however many processors there are; two at least.
#[cfg(target_env = "gnu")]
const ARENAS_MOST: usize = 16;

/// Has what is freed given back to the system, as far as the allocator can: large allocations as soon as they are freed, smaller ones kept in
/// no more places than there are processors. To be called once, at a program's start.
///
/// glibc's allocator begins by giving large ones back, but after the first that is freed it keeps larger and larger ones, and that in
/// arenas of which most threads get one of their own: with rows of 60 KB or values of a megabyte, several times what is in use. Other
/// allocators are left as they are.
pub fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let arenas = processors.clamp(2, ARENAS_MOST) as i32;
        // SAFETY: it only sets numbers, under the allocator's own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_ARENA_MAX, arenas);
        }
    }
}
