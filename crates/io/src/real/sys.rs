//! The system calls of this layer, each behind a function that turns `errno` into an [`io::Error`]. Constants and
//! structures that `libc` does not have on every target are written down here, with the kernel version they came in.
#![expect(unsafe_code, reason = "system calls")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// Write through to the device before returning (Linux 4.7).
pub(crate) const RWF_DSYNC: i32 = 0x02;
/// Write whole or not at all (Linux 6.11).
pub(crate) const RWF_ATOMIC: i32 = 0x40;
/// Drop the pages from the OS cache as soon as they are done with (Linux 6.14).
pub(crate) const RWF_DONTCACHE: i32 = 0x80;

/// The most bytes handed to the kernel at once; longer transfers are continued.
pub(crate) const TRANSFER_MAX: usize = 1 << 30;

fn result(value: isize) -> io::Result<usize> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value as usize) }
}

fn retried(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        match result(call() as isize) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// One positioned read (`write` false) or write of some prefix of `pieces`; returns the bytes transferred.
///
/// # Safety
/// `pieces` must name memory that is valid for the transfer and not used by anybody else meanwhile as
/// `Queue::submit` says.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn transfer(
    fd: RawFd,
    write: bool,
    pieces: &[libc::iovec],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let at = offset as libc::off_t;
    let (list, count) = (pieces.as_ptr(), pieces.len() as libc::c_int);
    // SAFETY: the caller vouches for the memory; `pieces` itself is borrowed for the whole call.
    let moved = unsafe {
        match (flags, pieces, write) {
            (0, [one], false) => libc::pread(fd, one.iov_base, one.iov_len.min(TRANSFER_MAX), at),
            (0, [one], true) => libc::pwrite(fd, one.iov_base, one.iov_len.min(TRANSFER_MAX), at),
            (0, _, false) => libc::preadv(fd, list, count, at),
            (0, _, true) => libc::pwritev(fd, list, count, at),
            (_, _, false) => libc::preadv2(fd, list, count, at, flags),
            (_, _, true) => libc::pwritev2(fd, list, count, at, flags),
        }
    };
    result(moved)
}

/// As on Linux, but one piece at a time and without flags: the caller continues short transfers anyway.
///
/// # Safety
/// As on Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn transfer(
    fd: RawFd,
    write: bool,
    pieces: &[libc::iovec],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    if flags != 0 {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let (at, piece) = (offset as libc::off_t, pieces[0]);
    // SAFETY: the caller vouches for the memory.
    let moved = unsafe {
        if write {
            libc::pwrite(fd, piece.iov_base, piece.iov_len.min(TRANSFER_MAX), at)
        } else {
            libc::pread(fd, piece.iov_base, piece.iov_len.min(TRANSFER_MAX), at)
        }
    };
    result(moved)
}

/// What `statx` says about direct and atomic I/O; zeros where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traits {
    /// Whether the kernel reported the two alignments at all (Linux 6.1 and a file system that knows).
    pub(crate) direct_known: bool,
    /// Alignment of addresses; 0 when direct I/O is not possible.
    pub(crate) memory_alignment: usize,
    /// Alignment of offsets and lengths; 0 when direct I/O is not possible.
    pub(crate) offset_alignment: usize,
    /// Bytes of the shortest and of the longest atomic write that the file system offers; zeros for none (Linux 6.11).
    pub(crate) atomic: (usize, usize),
    /// Bytes of the longest that it makes without writing elsewhere first; 0 where it does not say (Linux 6.16).
    pub(crate) atomic_fast: usize,
    /// The device below it, as the system numbers it.
    pub(crate) device: [u32; 2],
}

/// `struct statx`, with fields newer than some C libraries know.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct Statx {
    mask: u32,
    before: [u32; 31],
    special: [u32; 2],
    device: [u32; 2],
    mount: u64,
    dio_mem_align: u32,
    dio_offset_align: u32,
    subvolume: u64,
    atomic_write_unit_min: u32,
    atomic_write_unit_max: u32,
    atomic_write_segments_max: u32,
    dio_read_offset_align: u32,
    atomic_write_unit_max_opt: u32,
    spare: u32,
    after: [u64; 8],
}

#[cfg(target_os = "linux")]
const _: () = assert!(
    size_of::<Statx>() == 256
        && std::mem::offset_of!(Statx, device) == 0x88
        && std::mem::offset_of!(Statx, dio_mem_align) == 0x98
        && std::mem::offset_of!(Statx, atomic_write_unit_max_opt) == 0xb8
);

/// Direct and atomic I/O traits of an open file.
#[cfg(target_os = "linux")]
pub(crate) fn traits(file: &File) -> Traits {
    const STATX_DIOALIGN: u32 = 0x2000;
    const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
    let mut answer = Statx::default();
    // SAFETY: the path is an empty C string, and `answer` has the size and layout of `struct statx`.
    let status = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN | STATX_WRITE_ATOMIC,
            &raw mut answer,
        )
    };
    if status != 0 {
        return Traits::default();
    }
    let has = |bit| answer.mask & bit != 0;
    Traits {
        direct_known: has(STATX_DIOALIGN),
        memory_alignment: answer.dio_mem_align as usize,
        offset_alignment: answer.dio_offset_align as usize,
        atomic: match has(STATX_WRITE_ATOMIC) {
            true => (answer.atomic_write_unit_min as usize, answer.atomic_write_unit_max as usize),
            false => (0, 0),
        },
        atomic_fast: answer.atomic_write_unit_max_opt as usize,
        device: answer.device,
    }
}

/// Bytes of the longest write that a disk, or the disk with this partition, makes whole or not at all; 0 where nothing is said.
#[cfg(target_os = "linux")]
pub(crate) fn atomic_max_of_device([major, minor]: [u32; 2]) -> usize {
    const LIMIT: &str = "queue/atomic_write_unit_max_bytes";
    let device = format!("/sys/dev/block/{major}:{minor}");
    [format!("{device}/{LIMIT}"), format!("{device}/../{LIMIT}")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Nothing is known elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn atomic_max_of_device(_device: [u32; 2]) -> usize {
    0
}

/// Nothing is known elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn traits(_file: &File) -> Traits {
    Traits::default()
}

/// Switches `O_DIRECT` on or off. Done on the open file, because opening with the flag may create a file and fail.
#[cfg(target_os = "linux")]
pub(crate) fn set_direct(file: &File, on: bool) -> io::Result<()> {
    // SAFETY: `fcntl` with these commands touches no memory of ours.
    let flags = result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } as isize)? as libc::c_int;
    let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: as above.
    retried(|| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) })
}

/// There is no `O_DIRECT` elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_direct(_file: &File, _on: bool) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Gives blocks to a range and extends the file over it.
#[cfg(target_os = "linux")]
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: touches no memory of ours.
    retried(|| unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as libc::off_t, len as libc::off_t) })
}

/// Elsewhere the caller writes zeros.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Asks the OS to forget the file's clean pages.
pub(crate) fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    // SAFETY: touches no memory of ours; the answer does not matter for a hint.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// The same for a range; the page that it begins in is meant, too, and the one that it ends in is not.
pub(crate) fn forget_range(file: &File, range: &std::ops::Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        let page = page_size() as u64;
        let (begin, end) = (range.start / page * page, range.end / page * page);
        // No length means all of the file.
        if begin < end {
            // SAFETY: as in `forget`.
            unsafe {
                let (begin, len) = (begin as libc::off_t, (end - begin) as libc::off_t);
                libc::posix_fadvise(file.as_raw_fd(), begin, len, libc::POSIX_FADV_DONTNEED);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, range);
}

/// Tells the OS not to read ahead: this layer's callers do that themselves.
pub(crate) fn no_read_ahead(file: &File) {
    #[cfg(target_os = "linux")]
    // SAFETY: as in `forget`.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Takes an exclusive lock that belongs to the open file; false when somebody else has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: touches no memory of ours.
    match retried(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the lock of the open file that `file` is a descriptor of back, whoever else has a descriptor of it.
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    // SAFETY: touches no memory of ours.
    retried(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) })
}

/// Whether the file is of a file system that is kept in memory.
#[cfg(target_os = "linux")]
pub(crate) fn is_in_memory(file: &File) -> bool {
    // From statfs(2); `libc` gives the one another type on other machines, and has no name for the other.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the call writes to the structure, whose zeroed bytes are a valid value, and keeps nothing.
    let (status, found) =
        unsafe { (libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()), found.assume_init()) };
    #[expect(clippy::unnecessary_cast, reason = "its type differs between machines")]
    let kind = found.f_type as i64;
    status == 0 && (kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_in_memory(_file: &File) -> bool {
    false
}

/// Bytes that this user can still write where `folder` is, by `fstatvfs(3)`.
pub(crate) fn free_bytes(folder: &File) -> io::Result<u64> {
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the call writes to the structure, whose zeroed bytes are a valid value, and keeps nothing.
    let (status, found) =
        unsafe { (libc::fstatvfs(folder.as_raw_fd(), found.as_mut_ptr()), found.assume_init()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "their types differ between machines"
    )]
    let bytes = u64::from(found.f_bavail).saturating_mul(found.f_frsize as u64);
    Ok(bytes)
}

/// Renames a file to a name that nobody has, by `renameat2(2)`; `None` where the system or the file system does not know that.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn rename_new(from: &Path, to: &Path) -> Option<io::Result<()>> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let (from, to) = match (name(from), name(to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
    };
    // SAFETY: both are strings that end with a zero and live during the call, which keeps nothing.
    let renamed = retried(|| unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE)
    });
    let unknown = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS));
    (!renamed.as_ref().is_err_and(unknown)).then_some(renamed)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn rename_new(_from: &Path, _to: &Path) -> Option<io::Result<()>> {
    None
}

/// Bytes of `file` in the OS cache, by `cachestat(2)`, else by `mincore(2)`.
pub(crate) fn cached_bytes(file: &File) -> Option<u64> {
    let len = file.metadata().ok()?.len();
    if len == 0 {
        return Some(0);
    }
    cachestat(file).or_else(|| mincore(file, len))
}

fn page_size() -> usize {
    // SAFETY: touches no memory of ours.
    (unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).max(1) as usize
}

/// `cachestat(2)`, Linux 6.5.
#[cfg(target_os = "linux")]
fn cachestat(file: &File) -> Option<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    // { offset, length }, 0 standing for "to the end"; { cached, dirty, writeback, evicted, recently evicted }.
    let (range, mut counts) = ([0u64; 2], [0u64; 5]);
    // SAFETY: both arrays have the size and layout of the structures the call takes.
    let status =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    (status == 0).then(|| counts[0] * page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn cachestat(_file: &File) -> Option<u64> {
    None
}

/// Maps the file piece by piece, without touching it, and asks which pages are in memory.
pub(crate) fn mincore(file: &File, len: u64) -> Option<u64> {
    const PIECE: u64 = 1 << 30;
    let page = page_size();
    let mut cached = 0;
    let mut offset = 0;
    while offset < len {
        let piece = (len - offset).min(PIECE) as usize;
        let mut pages = vec![0u8; piece.div_ceil(page)];
        // SAFETY: a fresh read-only mapping at an address of the kernel's choice, never dereferenced and unmapped
        // below; `pages` has one byte for each page of it.
        let status = unsafe {
            let fd = file.as_raw_fd();
            let map = libc::mmap(
                std::ptr::null_mut(),
                piece,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                offset as libc::off_t,
            );
            if map == libc::MAP_FAILED {
                return None;
            }
            let status = libc::mincore(map, piece, pages.as_mut_ptr().cast());
            libc::munmap(map, piece);
            status
        };
        if status != 0 {
            return None;
        }
        cached += pages.iter().filter(|&&p| p & 1 != 0).count() as u64 * page as u64;
        offset += piece as u64;
    }
    Some(cached)
}
