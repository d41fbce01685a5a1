//! What servers say of their log, in words.

use gannet_base::units::parse_size;

/// Bytes that a restart of Gannet would go through, by the detail of its job `checkpoint`.
pub fn gannet_bytes(detail: &str) -> Option<u64> {
    let text = detail.strip_prefix("a restart now would go through ")?.split(" of log").next()?;
    parse_size(text).ok()
}

/// What PostgreSQL has redone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Redone {
    /// Bytes of its log.
    pub bytes: u64,
    /// Seconds that it took, as PostgreSQL says.
    pub seconds: f64,
    /// Seconds of the checkpoint behind it, before it lets anybody in; where it says so.
    pub checkpoint_seconds: Option<f64>,
}

/// A position in PostgreSQL's log: two numbers in base sixteen, as `0/16B3748`.
fn position(text: &str) -> Option<u64> {
    let (high, low) = text.trim_end_matches([',', ';']).split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from_str_radix(low, 16).ok()?)
}

/// What stands behind these words.
fn behind<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    text.split_once(words)?.1.split_whitespace().next()
}

/// By what PostgreSQL has written to its log since it was started; `None` where it had nothing to redo.
pub fn postgres_redone(said: &str) -> Option<Redone> {
    let line = |words: &str| said.lines().find(|line| line.contains(words));
    let starts = position(behind(line("redo starts at ")?, "redo starts at ")?)?;
    let done = line("redo done at ")?;
    let ends = position(behind(done, "redo done at ")?)?;
    let seconds = behind(done, "elapsed: ")?.parse().ok()?;
    let checkpoint = line("checkpoint complete: ").and_then(|line| behind(line, "total="));
    Some(Redone {
        bytes: ends.saturating_sub(starts),
        seconds,
        checkpoint_seconds: checkpoint.and_then(|text| text.trim_end_matches(',').parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_fractions_are_understood() {
        let detail = |size: &str| format!("a restart now would go through {size} of log, of at most 384MiB");
        for (size, bytes) in [("0B", 0), ("512B", 512), ("1.5KiB", 1536), ("192MiB", 192 << 20)] {
            assert_eq!(gannet_bytes(&detail(size)), Some(bytes), "{size}");
        }
        assert_eq!(gannet_bytes("nothing of the kind"), None);
    }

    #[test]
    fn what_postgresql_says_of_a_recovery_is_understood() {
        let said = "2026-01-01 00:00:00.000 UTC [1] LOG:  database system was not properly shut down; automatic recovery in progress\n\
             2026-01-01 00:00:00.000 UTC [1] LOG:  redo starts at 0/2000028\n\
             2026-01-01 00:00:00.000 UTC [1] LOG:  invalid record length at 1/0: wanted 24, got 0\n\
             2026-01-01 00:00:00.000 UTC [1] LOG:  redo done at 1/28 system usage: CPU: user: 0.76 s, system: 0.38 s, elapsed: 1.25 s\n\
             2026-01-01 00:00:00.000 UTC [1] LOG:  checkpoint starting: end-of-recovery immediate wait\n\
             2026-01-01 00:00:00.000 UTC [1] LOG:  checkpoint complete: wrote 3908 buffers (23.9%); 0 WAL file(s) added, 0 removed, 12 recycled; write=0.5 s, sync=0.1 s, total=0.73 s; sync files=20, longest=0.2 s\n";
        let redone = postgres_redone(said).unwrap();
        assert_eq!((redone.bytes, redone.seconds), (0x1_0000_0028 - 0x200_0028, 1.25));
        assert_eq!(redone.checkpoint_seconds, Some(0.73));
        assert_eq!(postgres_redone("LOG:  database system is ready to accept connections"), None);
    }
}
