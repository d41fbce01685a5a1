//! The terminal: its size, secrets without echo, and a pager for results that do not fit.

use super::signal::Signals;
use super::text::width;
use crate::interrupt::Interrupted;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

/// How often it is looked whether a signal has come.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// When so much time has passed without a key, what came before was entered together: in nanoseconds.
const SILENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Rows and columns of the terminal that standard output is; `None`: it is none.
pub(super) fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = termios::tcgetwinsize(io::stdout()).ok();
    let known = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    Some(known.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col))))
}

/// Whether there is something to read before so much time has passed.
fn can_be_read(terminal: &impl AsFd, limit: Timespec) -> bool {
    // A signal that ends the wait is looked for by who waits.
    poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// Forgets what is entered until nothing more comes, or Ctrl-C.
pub(super) fn pass_over(signals: &Signals) {
    let terminal = io::stdin();
    let Ok(before) = termios::tcgetattr(&terminal) else { return };
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
    // Flushed each time: what is there is what is to be forgotten.
    let mut set = termios::tcsetattr(&terminal, OptionalActions::Flush, &silent);
    while set.is_ok() && !signals.is_pressed() && can_be_read(&terminal, SILENCE) {
        set = termios::tcflush(&terminal, QueueSelector::IFlush);
    }
    // A terminal that is gone ends the next line.
    let _ = termios::tcsetattr(&terminal, OptionalActions::Now, &before);
}

/// Asks for a secret on the terminal, without showing it; `None` where there is no terminal.
pub(super) fn ask_secret(prompt: &str, signals: &Signals) -> Result<Option<String>> {
    let Ok(mut terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    let before = termios::tcgetattr(&terminal).context("cannot ask for a password")?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    terminal.write_all(prompt.as_bytes()).context("cannot ask for a password")?;
    termios::tcsetattr(&terminal, OptionalActions::Flush, &silent).context("cannot ask for a password")?;
    let mut line = String::new();
    while !signals.is_pressed() && !can_be_read(&terminal, PERIOD) {}
    let read = match signals.is_pressed() {
        true => Err(Interrupted.into()),
        false => BufReader::new(&terminal).read_line(&mut line).context("cannot read a password"),
    };
    termios::tcsetattr(&terminal, OptionalActions::Flush, &before).context("cannot ask for a password")?;
    read?;
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// Output to a terminal: held back until it is known whether it fits, then written, or given to a pager.
pub(super) struct Screen {
    rows: usize,
    columns: usize,
    held: Vec<u8>,
    lines: usize,
    /// Where the last line begins in `held`.
    line_at: usize,
    pager: Option<Child>,
    /// No pager: there is none that works.
    direct: bool,
}

impl Screen {
    pub(super) fn new((rows, columns): (usize, usize)) -> Self {
        Screen { rows, columns, held: Vec::new(), lines: 0, line_at: 0, pager: None, direct: false }
    }

    /// Whether what was written since the last look makes it too large.
    fn overflows(&mut self) -> bool {
        while let Some(length) = self.held[self.line_at..].iter().position(|byte| *byte == b'\n') {
            let line = &self.held[self.line_at..self.line_at + length];
            self.lines += 1;
            self.line_at += length + 1;
            if self.lines >= self.rows || width(&String::from_utf8_lossy(line)) > self.columns {
                return true;
            }
        }
        self.held.len() - self.line_at > 16 * self.columns
    }

    fn start_pager(&mut self) -> io::Result<()> {
        match pager_command().stdin(Stdio::piped()).spawn() {
            Ok(mut pager) => {
                let held = std::mem::take(&mut self.held);
                let written = pager.stdin.as_mut().map_or(Ok(()), |input| input.write_all(&held));
                self.pager = Some(pager);
                written
            }
            Err(_) => {
                self.direct = true;
                io::stdout().write_all(&std::mem::take(&mut self.held))
            }
        }
    }

    /// Writes what is held, and waits for the pager's user.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Some(mut pager) = self.pager.take() {
            drop(pager.stdin.take());
            // However it ends, it has ended.
            let _ = pager.wait();
            return Ok(());
        }
        let mut out = io::stdout();
        out.write_all(&std::mem::take(&mut self.held))?;
        out.flush()
    }
}

/// `$PAGER`, by the shell as it may have arguments; `less`, which scrolls sideways, without.
fn pager_command() -> Command {
    match std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty()) {
        Some(pager) => {
            let mut command = Command::new("sh");
            command.args(["-c", &pager]);
            command
        }
        None => {
            let mut command = Command::new("less");
            command.arg("-S");
            command
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(input) = self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) {
            return input.write(bytes);
        }
        if self.direct {
            return io::stdout().write(bytes);
        }
        self.held.extend_from_slice(bytes);
        if self.overflows() {
            self.start_pager()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_noticed() {
        for (text, overflows) in
            [("a\nb\n", false), ("a\nb\nc\n", true), ("12345678901\n", true), ("日本語日本\n", false)]
        {
            let mut screen = Screen::new((3, 10));
            screen.held.extend_from_slice(text.as_bytes());
            assert_eq!(screen.overflows(), overflows, "{text}");
        }
    }
}
