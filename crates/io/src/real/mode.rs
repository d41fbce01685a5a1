//! How a file is opened: tries what was asked for, then the next best, and says why.

use crate::real::sys;
use crate::real::sys::Traits;
use crate::{AlignedBuffer, AtomicWrites, Mode, ModeReport, ModeRequest, SECTOR};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Alignment assumed where the kernel does not tell.
const ALIGNMENT_FALLBACK: usize = 4096;
/// Larger units are of no use: the log is written in blocks of this size, and so are small pages.
const ALIGNMENT_MOST: usize = 4096;

/// What probing found.
#[derive(Debug)]
pub(super) struct Probed {
    pub(super) report: ModeReport,
    pub(super) alignment: usize,
    pub(super) atomic: AtomicWrites,
}

/// Puts `file`, freshly opened without `O_DIRECT`, into the best mode that `requested` allows.
pub(super) fn probe(file: &File, requested: ModeRequest) -> Probed {
    let first = match requested {
        ModeRequest::Auto => Mode::Direct,
        ModeRequest::Only(mode) => mode,
    };
    let mut refusals: Vec<String> = Vec::new();
    if first == Mode::Direct {
        match direct(file) {
            Ok((alignment, atomic, how)) => {
                return found(requested, Mode::Direct, alignment, atomic, how);
            }
            Err(why) => refusals.push(why),
        }
    }
    if first != Mode::Buffered {
        match uncached(file) {
            Ok(how) => {
                refusals.push(how);
                return found(requested, Mode::Uncached, SECTOR, AtomicWrites::NONE, refusals.join("; "));
            }
            Err(why) => refusals.push(why),
        }
    }
    sys::no_read_ahead(file);
    let reason = match refusals.is_empty() {
        true => "buffered was asked for".to_owned(),
        false => refusals.join("; "),
    };
    found(requested, Mode::Buffered, SECTOR, AtomicWrites::NONE, reason)
}

fn found(
    requested: ModeRequest,
    effective: Mode,
    alignment: usize,
    atomic: AtomicWrites,
    reason: String,
) -> Probed {
    Probed { report: ModeReport { requested, effective, reason }, alignment, atomic }
}

fn direct(file: &File) -> Result<(usize, AtomicWrites, String), String> {
    let traits = sys::traits(file);
    if traits.direct_known && traits.offset_alignment == 0 {
        return Err("the file system says that this file cannot be read directly (statx)".to_owned());
    }
    let alignment = traits.memory_alignment.max(traits.offset_alignment).max(SECTOR).next_power_of_two();
    if alignment > ALIGNMENT_MOST {
        return Err(format!(
            "the file system supports O_DIRECT in units of {alignment} bytes only, of more than {ALIGNMENT_MOST} (statx)"
        ));
    }
    sys::set_direct(file, true).map_err(|e| format!("the file system refuses O_DIRECT ({})", name(&e)))?;
    if traits.direct_known {
        let how = format!(
            "the file system supports O_DIRECT in units of {} bytes (statx)",
            traits.offset_alignment
        );
        return Ok((alignment, atomic_writes(&traits, sys::atomic_max_of_device), how));
    }
    match read_some(file, ALIGNMENT_FALLBACK, 0) {
        Ok(()) => {
            let how = format!("O_DIRECT works in units of {ALIGNMENT_FALLBACK} bytes (by a trial read)");
            Ok((ALIGNMENT_FALLBACK, atomic_writes(&traits, sys::atomic_max_of_device), how))
        }
        Err(error) => {
            let _ = sys::set_direct(file, false);
            Err(format!("a trial read with O_DIRECT failed ({})", name(&error)))
        }
    }
}

/// Those of what the file system offers that the device makes: a file system may make longer ones by writing elsewhere first, on any device. `of_device`
/// tells what a device says of itself, where the file system does not say what that is for this file (which may lie on another one).
fn atomic_writes(traits: &Traits, of_device: impl FnOnce([u32; 2]) -> usize) -> AtomicWrites {
    let (min, offered) = traits.atomic;
    let max = match (offered, traits.atomic_fast) {
        (0, _) => 0,
        (offered, 0) => offered.min(of_device(traits.device)),
        (offered, fast) => offered.min(fast),
    };
    if max >= min.max(1) { AtomicWrites { min, max } } else { AtomicWrites::NONE }
}

fn uncached(file: &File) -> Result<String, String> {
    match read_some(file, 1, sys::RWF_DONTCACHE) {
        Ok(()) => Ok("uncached reads work (RWF_DONTCACHE)".to_owned()),
        Err(error) => Err(format!("the kernel or file system refuses RWF_DONTCACHE ({})", name(&error))),
    }
}

/// A read of up to `len` bytes at the start, only to see whether it is possible.
#[expect(unsafe_code, reason = "a probing read into memory of our own")]
fn read_some(file: &File, len: usize, flags: i32) -> io::Result<()> {
    let mut buffer = AlignedBuffer::zeroed(len);
    let piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: len };
    loop {
        // SAFETY: the buffer is ours, has `len` bytes and outlives the call.
        match unsafe { sys::transfer(file.as_raw_fd(), false, &[piece], 0, flags) } {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EINVAL) => "EINVAL".to_owned(),
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP".to_owned(),
        Some(libc::ENOSYS) => "ENOSYS".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_device_makes_whole_counts() {
        let of = |atomic, atomic_fast, device: usize| {
            let traits = Traits { atomic, atomic_fast, device: [8, 1], ..Traits::default() };
            atomic_writes(&traits, |asked| if asked == [8, 1] { device } else { 0 })
        };
        assert_eq!(of((0, 0), 0, 65536), AtomicWrites::NONE, "the file system offers none");
        assert_eq!(of((4096, 16384), 0, 65536), AtomicWrites { min: 4096, max: 16384 });
        assert_eq!(of((4096, 1 << 20), 0, 0), AtomicWrites::NONE, "it makes them by writing elsewhere");
        assert_eq!(
            of((4096, 1 << 20), 16384, 0),
            AtomicWrites { min: 4096, max: 16384 },
            "longer ones it does"
        );
        assert_eq!(
            of((16384, 65536), 0, 8192),
            AtomicWrites::NONE,
            "the device's are too short for its blocks"
        );
        let long = AtomicWrites { min: 16384, max: 65536 };
        assert_eq!(of((16384, 65536), 65536, 0), long);
        assert_eq!(
            [8192, 16384, 24576, 65536, 131_072].map(|len| long.have(len)),
            [false, true, false, true, false]
        );
        assert!(
            !AtomicWrites::NONE.have(0)
                && !AtomicWrites::NONE.have(4096)
                && AtomicWrites::up_to(4096).have(512)
        );
    }
}
