//! Where statements come from: a conversation, a script, standard input.

use super::signal::Signals;
use crate::input::standard_input_chunks;
use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Cmd, Config, Editor, KeyCode, KeyEvent, Modifiers};
use std::collections::VecDeque;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// How often it is looked whether a signal has come.
const PERIOD: Duration = Duration::from_millis(50);
/// Lines, or statements, of history.
const HISTORY: usize = 2000;

/// What a source gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line.
    Some,
    /// There are no more.
    End,
    /// Ctrl-C.
    Interrupted,
    /// What was entered is not valid UTF-8; it is gone, with all that came with it.
    Invalid,
}

/// Where statements, and the data of COPY FROM STDIN, come from.
pub(super) trait Source {
    /// Reads the next line, with its line feed if it has one.
    fn line(&mut self, prompt: &str, line: &mut Vec<u8>) -> Result<Line>;
    /// A statement has ended: it can be called up again.
    fn remember(&mut self, _statement: &str) {}
    /// Forgets what was entered and not read yet: Ctrl-C ended the statement before it.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }
    /// A person types.
    fn is_conversation(&self) -> bool {
        false
    }
    /// What messages call it, with the number of the last line: `file:12`.
    fn place(&self) -> Option<String> {
        None
    }
}

// ---- files that were named --------------------------------------------------------------------------------------------

/// A file. One that is no regular one, such as a pipe, may stay silent for ever, or have nobody yet who writes to it, and Ctrl-C has to be heard.
pub(super) struct InputFile {
    file: File,
    /// Of one that may have to be waited for.
    signals: Option<Signals>,
}

impl InputFile {
    pub(super) fn open(path: &Path, signals: &Signals) -> io::Result<Self> {
        // Else opening a pipe waits for somebody who writes.
        let file =
            File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        Ok(InputFile { file, signals: (!kind.is_file()).then(|| signals.clone()) })
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(signals) = &self.signals else { return self.file.read(buffer) };
        let period = Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
        loop {
            let mut files = [PollFd::new(&self.file, PollFlags::IN)];
            match rustix::event::poll(&mut files, Some(&period)) {
                Ok(0) | Err(Errno::INTR) if signals.is_pressed() => return Err(interrupted()),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// Why reading ends where Ctrl-C came. (`Interrupted` is what is tried again.)
fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "canceled by user")
}

// ---- scripts ----------------------------------------------------------------------------------------------------------

/// A file.
pub(super) struct Script {
    name: String,
    reader: Box<dyn BufRead>,
    number: u64,
    /// Messages name it.
    named: bool,
}

impl Script {
    pub(super) fn open(path: &Path, signals: &Signals) -> Result<Self> {
        let file = InputFile::open(path, signals).with_context(|| format!("cannot open {path:?}"))?;
        let name = crate::output::printable(&path.display().to_string());
        Ok(Script { name, reader: Box::new(BufReader::with_capacity(CHUNK, file)), number: 0, named: true })
    }

    /// Standard input, which Ctrl-C can end. `named`: it was asked for as `-f -`.
    pub(super) fn standard_input(signals: &Signals, named: bool) -> Self {
        let input =
            StandardInput { signals: signals.clone(), chunks: None, current: VecDeque::new(), ended: false };
        let reader = BufReader::with_capacity(CHUNK, input);
        Script { name: "<stdin>".to_owned(), reader: Box::new(reader), number: 0, named }
    }
}

impl Source for Script {
    fn line(&mut self, _prompt: &str, line: &mut Vec<u8>) -> Result<Line> {
        self.number += 1;
        let read = match self.reader.read_until(b'\n', line) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(Line::Interrupted),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.name)),
        };
        Ok(if read == 0 { Line::End } else { Line::Some })
    }

    fn place(&self) -> Option<String> {
        self.named.then(|| format!("{}:{}", self.name, self.number))
    }
}

/// Standard input, read by a thread of its own: it may stay silent for ever, and Ctrl-C has to be heard.
struct StandardInput {
    signals: Signals,
    /// `None`: nobody has asked for any yet, so it is left to whoever shares it.
    chunks: Option<Receiver<io::Result<Vec<u8>>>>,
    current: VecDeque<u8>,
    ended: bool,
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.chunks.get_or_insert_with(standard_input_chunks).recv_timeout(PERIOD) {
                Ok(chunk) => {
                    self.current = chunk?.into();
                    self.ended = self.current.is_empty();
                }
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
                Err(RecvTimeoutError::Timeout) if self.signals.is_pressed() => {
                    return Err(interrupted());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.current.read(buffer)
    }
}

// ---- a conversation ---------------------------------------------------------------------------------------------------

/// A person at a terminal.
pub(super) struct Conversation {
    editor: Editor<(), FileHistory>,
    signals: Signals,
    history: Option<PathBuf>,
    /// Lines that were entered together, as what is pasted is, and not read yet.
    entered: VecDeque<String>,
}

impl Conversation {
    pub(super) fn start(signals: &Signals) -> Result<Self> {
        let mut editor = editor(None)?;
        let history = history_file();
        if let Some(path) = &history {
            // There may be none yet, or none that can be read: then there is nothing to call up.
            let _ = editor.load_history(path);
        }
        Ok(Conversation { editor, signals: signals.clone(), history, entered: VecDeque::new() })
    }
}

/// An editor of lines, which keeps what was typed ahead for the next one. `history`: of the one before, if there was one.
fn editor(history: Option<FileHistory>) -> Result<Editor<(), FileHistory>> {
    let config =
        Config::builder().max_history_size(HISTORY).and_then(|config| config.history_ignore_dups(true));
    let config = config
        .map_err(|error| anyhow!("cannot set the history up: {error}"))?
        .history_ignore_space(true)
        .build();
    let history = history.unwrap_or_else(|| FileHistory::with_config(&config));
    let editor = Editor::with_history(config, history);
    let mut editor = editor.map_err(|error| anyhow!("cannot use the terminal: {error}"))?;
    // There is nothing to complete, and values of COPY's data are separated by tabs.
    editor.bind_sequence(KeyEvent(KeyCode::Tab, Modifiers::NONE), Cmd::Insert(1, "\t".to_owned()));
    Ok(editor)
}

impl Source for Conversation {
    fn line(&mut self, prompt: &str, line: &mut Vec<u8>) -> Result<Line> {
        let next = match self.entered.pop_front() {
            Some(next) => next,
            None => match self.signals.wait(|| self.editor.readline(prompt)) {
                Some(Ok(text)) => {
                    // Where the last line feed was pasted, Enter only says that this is all.
                    let text = text.strip_suffix('\n').unwrap_or(&text);
                    let mut lines = text.split('\n').map(str::to_owned);
                    let first = lines.next().unwrap_or_default();
                    self.entered.extend(lines);
                    first
                }
                Some(Err(ReadlineError::Eof)) => return Ok(Line::End),
                None | Some(Err(ReadlineError::Interrupted | ReadlineError::Signal(_))) => {
                    return Ok(Line::Interrupted);
                }
                Some(Err(ReadlineError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => {
                    // What the editor had read ahead is gone. The rest of the line, or of what was pasted, is no statement of its own.
                    super::terminal::pass_over(&self.signals);
                    return Ok(Line::Invalid);
                }
                Some(Err(error)) => return Err(anyhow!("cannot read from the terminal: {error}")),
            },
        };
        line.extend_from_slice(next.as_bytes());
        line.push(b'\n');
        Ok(Line::Some)
    }

    fn remember(&mut self, statement: &str) {
        // A history that cannot be kept is no reason to stop.
        let _ = self.editor.add_history_entry(statement.trim_end());
    }

    fn forget(&mut self) -> Result<()> {
        self.entered.clear();
        // What the editor has read ahead goes with it; the terminal itself has forgotten what it had.
        self.editor = editor(Some(std::mem::take(self.editor.history_mut())))?;
        Ok(())
    }

    fn is_conversation(&self) -> bool {
        true
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(path) = &self.history {
            // The editor makes it readable for its owner only. Without it, statements are not remembered, and nothing else is lost.
            let _ = self.editor.append_history(path);
        }
    }
}

/// `$XDG_STATE_HOME/gannet/history`, in a folder that is made for its owner; `None`: there is no place.
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    let folder = state.join("gannet");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder.join("history"))
}
