//! How a file is opened: tries what was asked for, then the next best, and says why.

use crate::real::sys;
use crate::{AlignedBuffer, Mode, ModeReport, ModeRequest, SECTOR};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Alignment assumed where the kernel does not tell.
const ALIGNMENT_FALLBACK: usize = 4096;

/// What probing found.
#[derive(Debug)]
pub(super) struct Probed {
    pub(super) report: ModeReport,
    pub(super) alignment: usize,
    pub(super) atomic_max: usize,
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
            Ok((alignment, atomic_max, how)) => {
                return found(requested, Mode::Direct, alignment, atomic_max, how);
            }
            Err(why) => refusals.push(why),
        }
    }
    if first != Mode::Buffered {
        match uncached(file) {
            Ok(how) => {
                refusals.push(how);
                return found(requested, Mode::Uncached, SECTOR, 0, refusals.join("; "));
            }
            Err(why) => refusals.push(why),
        }
    }
    sys::no_read_ahead(file);
    let reason = match refusals.is_empty() {
        true => "buffered was asked for".to_owned(),
        false => refusals.join("; "),
    };
    found(requested, Mode::Buffered, SECTOR, 0, reason)
}

fn found(
    requested: ModeRequest,
    effective: Mode,
    alignment: usize,
    atomic_max: usize,
    reason: String,
) -> Probed {
    Probed { report: ModeReport { requested, effective, reason }, alignment, atomic_max }
}

fn direct(file: &File) -> Result<(usize, usize, String), String> {
    let traits = sys::traits(file);
    if traits.direct_known && traits.offset_alignment == 0 {
        return Err("the file system says that this file cannot be read directly (statx)".to_owned());
    }
    sys::set_direct(file, true).map_err(|e| format!("the file system refuses O_DIRECT ({})", name(&e)))?;
    if traits.direct_known {
        let alignment = traits.memory_alignment.max(traits.offset_alignment).max(SECTOR).next_power_of_two();
        let how = format!(
            "the file system supports O_DIRECT in units of {} bytes (statx)",
            traits.offset_alignment
        );
        return Ok((alignment, traits.atomic_max, how));
    }
    match read_some(file, ALIGNMENT_FALLBACK, 0) {
        Ok(()) => {
            let how = format!("O_DIRECT works in units of {ALIGNMENT_FALLBACK} bytes (by a trial read)");
            Ok((ALIGNMENT_FALLBACK, traits.atomic_max, how))
        }
        Err(error) => {
            let _ = sys::set_direct(file, false);
            Err(format!("a trial read with O_DIRECT failed ({})", name(&error)))
        }
    }
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
