//! What goes on beside the work: the process's memory is looked at, and Ctrl-C ends the sessions' statements.

use crate::interrupt;
use gannet_sql::Database;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(20);

/// Does `work` under watch; gives what came of it, and the most anonymous memory, in bytes, that the process was seen to have meanwhile
/// (0 where the system does not tell).
pub(super) fn watched<T>(database: &Database, work: impl FnOnce() -> T) -> (T, u64) {
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(anonymous_bytes()));
    let result = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous_bytes(), Ordering::Relaxed);
                if interrupt::check().is_err() {
                    // Again and again: sessions may have come since.
                    database.shut_down_sessions();
                }
                std::thread::park_timeout(PERIOD);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        result
    });
    (result, peak.into_inner())
}

/// Anonymous memory of the process: all but what it shares with files.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    anonymous(&text).unwrap_or(0)
}

fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figure_is_read() {
        assert_eq!(anonymous("VmRSS:\t 9 kB\nRssAnon:\t    1234 kB\nRssFile: 5 kB\n"), Some(1234 * 1024));
        assert_eq!(anonymous("VmRSS: 9 kB\n"), None);
    }
}
