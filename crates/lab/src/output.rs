//! What is printed: whoever reads it may have seen enough, and where it goes may be full.

use anyhow::Result;
use std::fmt::Display;
use std::io::{self, Write};

/// The standard output cannot be written. An error of its own: a connection that breaks is another matter.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to the standard output: {0}")]
struct Unwritten(io::Error);

/// Prints this as it is.
///
/// # Errors
/// The standard output's.
pub(crate) fn text(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    // What is buffered would fail when nobody looks any more.
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Unwritten(error).into())
}

/// Prints a line.
///
/// # Errors
/// The standard output's.
pub(crate) fn line(line: impl Display) -> Result<()> {
    text(format_args!("{line}\n"))
}

/// Whether work has failed because whoever read what it printed has seen enough.
pub(crate) fn is_enough(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|Unwritten(error)| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_a_reader_who_has_seen_enough_is_no_failure() {
        let printed = |kind: io::ErrorKind| anyhow::Error::from(Unwritten(kind.into()));
        assert!(is_enough(&printed(io::ErrorKind::BrokenPipe)));
        assert!(is_enough(&Err::<(), _>(printed(io::ErrorKind::BrokenPipe)).context("a list").unwrap_err()));
        let full = printed(io::ErrorKind::StorageFull);
        assert!(!is_enough(&full) && full.to_string().contains("the standard output"), "{full}");
        // A server that is lost.
        assert!(!is_enough(&io::Error::from(io::ErrorKind::BrokenPipe).into()));
    }
}
