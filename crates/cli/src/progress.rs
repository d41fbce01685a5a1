//! How far long work has come: one line that is written over on a terminal, plain lines now and then otherwise. Always on
//! standard error, so that it never mixes with results.

use crate::output::printable;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const ON_TERMINAL: Duration = Duration::from_millis(200);
const IN_LINES: Duration = Duration::from_secs(5);

pub(crate) struct Progress {
    what: String,
    start: Instant,
    last: Option<Instant>,
    terminal: bool,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Progress {
            what: what.into(),
            start: Instant::now(),
            last: None,
            terminal: io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Says where the work is, unless it did so just before. `done`: the share that is finished, if known.
    pub(crate) fn say(&mut self, done: Option<f64>, detail: impl FnOnce() -> String) {
        let now = Instant::now();
        let pause = if self.terminal { ON_TERMINAL } else { IN_LINES };
        // Plain lines begin only after a while: short work says nothing.
        let last = self.last.unwrap_or(if self.terminal {
            self.start - pause.min(now - self.start)
        } else {
            self.start
        });
        if now.duration_since(last) < pause && !(self.terminal && self.last.is_none()) {
            return;
        }
        self.last = Some(now);
        let share = match done.map(|share| share.clamp(0.0, 1.0)) {
            Some(share) if share > 0.02 => {
                let left = self.start.elapsed().mul_f64((1.0 - share) / share).as_secs_f64().ceil();
                format!(" {}{:3.0} %, {left:.0}s left", bar(share, self.terminal), share * 100.0)
            }
            _ => String::new(),
        };
        let line = line(&self.what, &share, &detail());
        // Progress that cannot be shown is no reason to fail.
        let _ = match self.terminal {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
        self.shown = true;
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) && self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// What is shown. Names in it may be anybody's, and what a server says anything.
fn line(what: &str, share: &str, detail: &str) -> String {
    let comma = if detail.is_empty() { "" } else { ", " };
    printable(&format!("{what}{share}{comma}{detail}"))
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(share: f64, terminal: bool) -> String {
    const WIDTH: usize = 24;
    if !terminal {
        return String::new();
    }
    let full = (share * WIDTH as f64) as usize;
    format!("[{}{}] ", "#".repeat(full), ".".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_its_progress_reached_the_terminal_as_it_was() {
        assert_eq!(
            line("loads\u{1b}]0;x\u{7}", " 5 %", "t\u{1b}[2J\r"),
            "loads\\u{1b}]0;x\\u{7} 5 %, t\\u{1b}[2J\\r"
        );
        assert_eq!(line("checks", "", ""), "checks");
    }
}
