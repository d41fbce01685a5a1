//! What this process was given by whoever has started it.
//!
//! Rust's runtime opens `/dev/null` in place of a standard stream that is closed, before `main` begins: what is written there is lost without an
//! error. So it is looked at before the runtime.
#![expect(unsafe_code, reason = "runs before the runtime, and asks the system what has no wrapper")]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds functions like this one, which the loader calls before `main`; it needs nothing of the runtime.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: it only asks whether there is such a descriptor.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    OUTPUT_WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began.
pub fn output_was_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether the process ignores a signal, as one that `nohup` has started does with SIGHUP.
pub fn ignores(signal: i32) -> bool {
    // SAFETY: of all zeros it is a value; nothing is changed, and what there is goes into it.
    let (done, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut action), action)
    };
    done == 0 && action.sa_sigaction == libc::SIG_IGN
}
