//! Ctrl-C: the first one asks, and what runs comes to a clean end; the second one ends the process at once. So does SIGTERM. SIGHUP only ever asks:
//! of a terminal that goes away both the system and the shell tell. Where it is ignored, as behind `nohup`, it stays so.

use anyhow::{Context, Result};
use gannet_base::inherited;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

const NOT_HEARD: &str = "cannot listen for signals";

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The error of work that came to its end because it was asked to.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// From here on a signal only asks.
pub(crate) fn listen() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and raises it.
        flag::register_conditional_shutdown(signal, i32::from(crate::INTERRUPTED), Arc::clone(&ASKED))
            .and_then(|_| flag::register(signal, Arc::clone(&ASKED)))
            .context(NOT_HEARD)?;
    }
    if !inherited::ignores(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&ASKED)).context(NOT_HEARD)?;
    }
    Ok(())
}

/// Fails with [`Interrupted`] once somebody asked.
pub(crate) fn check() -> Result<()> {
    if ASKED.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
}
