//! `gannet sql`: a shell for databases, in this process or on a server.
//!
//! | module | job |
//! |---|---|
//! | `shell` | reads, splits, runs, stops |
//! | `input` | scripts, standard input, a person at a terminal |
//! | `backend` | a database file in this process; a server |
//! | `printer`, `format`, `report`, `text` | results, errors, and what a terminal may be shown |
//! | `terminal` | its size, passwords, the pager |
//! | `meta`, `copy`, `describe` | commands that begin with a backslash |
//! | `signal` | Ctrl-C, and signals that end the shell |
//!
//! # Exit status
//! 0: done, also when whoever reads our output goes away. 1: a file cannot be read or written, or a statement of `-c` failed. 2: the
//! command line is wrong, the database does not open, or the server is lost. 3: a statement of a script failed. 130: Ctrl-C while no
//! statement of a script ran; SIGTERM; in a conversation SIGHUP.

mod backend;
mod copy;
mod describe;
mod format;
mod input;
mod meta;
mod printer;
mod report;
mod shell;
mod signal;
mod terminal;
mod text;

use crate::arguments::{Format, Sql};
use crate::interrupt::Interrupted;
use anyhow::Result;
pub(crate) use backend::{ENDING, has_server, is_ending, not_connected, server_address};
use format::Expanded;
use gannet_sql::splitter::Splitter;
use input::{Conversation, Script, Source};
use shell::{How, Settings, Shell, Step};
use signal::Signals;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// What failed is one of our own files.
const FAILED: u8 = 1;
/// The command line is wrong, or there is no database.
pub(crate) const USAGE: u8 = 2;
/// A statement of a script failed.
const SCRIPT: u8 = 3;

/// Runs the shell; what goes wrong has been told when it returns.
pub(crate) fn run(arguments: &Sql) -> ExitCode {
    match start(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.is::<Interrupted>() => ExitCode::from(crate::INTERRUPTED),
        Err(error) => {
            crate::complain(&crate::output::printable(&format!("{error:#}")));
            ExitCode::from(USAGE)
        }
    }
}

fn start(arguments: &Sql) -> Result<u8> {
    let conversation = arguments.command.is_empty() && arguments.file.is_empty() && io::stdin().is_terminal();
    // Before anything is opened: a file that is being opened is closed in good order, too.
    let signals = Signals::listen(conversation)?;
    let open = || backend::open(arguments, &signals);
    let opened = if conversation { signals.wait(open) } else { Some(open()) };
    let Some(backend) = opened.transpose()? else { return Ok(crate::INTERRUPTED) };
    let settings = Settings {
        format: arguments.format.unwrap_or(Format::Table),
        expanded: Expanded::Off,
        null: String::new(),
        tuples_only: false,
        pager: conversation,
        timing: false,
        quiet: arguments.quiet,
        stop_on_error: !arguments.keep_going,
    };
    let mut shell = Shell::new(backend, settings, signals.clone());
    let done = if conversation {
        converse(&mut shell, &signals)
    } else if !arguments.command.is_empty() {
        Ok(run_commands(&mut shell, &arguments.command, &signals))
    } else {
        run_scripts(&mut shell, arguments, &signals)
    };
    let code = done.unwrap_or_else(|error| {
        crate::complain(&crate::output::printable(&format!("{error:#}")));
        FAILED
    });
    // What was committed is durable; closing also writes the pages home, so it can fail on its own.
    if let Err(error) = shell.backend.close() {
        crate::complain(&crate::output::printable(&format!("{error:#}")));
        return Ok(code.max(FAILED));
    }
    Ok(code)
}

fn converse(shell: &mut Shell, signals: &Signals) -> Result<u8> {
    if !shell.settings.quiet {
        let about = shell.backend.about();
        writeln!(io::stdout(), "gannet {}. {about}.", env!("CARGO_PKG_VERSION"))?;
        // Of a restart that is over nobody wants to know.
        if let Ok(Some((line, true))) = shell.restart() {
            writeln!(io::stdout(), "{line}")?;
        }
        writeln!(io::stdout(), "Type \\? for help.\n")?;
    }
    let mut source = Conversation::start(signals)?;
    let step = shell.run_source(&mut source)?;
    if step == Step::Fine {
        // Ctrl-D leaves the prompt's line open.
        let _ = writeln!(io::stdout(), "\\q");
    }
    Ok(match step {
        Step::Interrupted => crate::INTERRUPTED,
        Step::Lost => USAGE,
        _ => 0,
    })
}

/// Scripts in the order they were named; standard input where there is none.
fn run_scripts(shell: &mut Shell, arguments: &Sql, signals: &Signals) -> Result<u8> {
    if arguments.file.is_empty() {
        let step = shell.run_source(&mut Script::standard_input(signals, false))?;
        return Ok(code(shell, step, signals, SCRIPT));
    }
    for path in &arguments.file {
        let mut script = if path == Path::new("-") {
            Script::standard_input(signals, true)
        } else {
            Script::open(path, signals)?
        };
        let step = shell.run_source(&mut script)?;
        if step != Step::Fine && step != Step::Quit {
            return Ok(code(shell, step, signals, SCRIPT));
        }
    }
    Ok(code(shell, Step::Fine, signals, SCRIPT))
}

/// Each `-c` is one text: its statements are one transaction unless they say otherwise, as with psql. A backslash begins a command.
fn run_commands(shell: &mut Shell, commands: &[String], signals: &Signals) -> u8 {
    // For COPY FROM STDIN.
    let mut input = Script::standard_input(signals, false);
    for command in commands {
        let step = if signals.take() {
            Step::Interrupted
        } else if let Some(meta) = command.trim_start().strip_prefix('\\') {
            meta::run(shell, meta.trim_end(), &mut Splitter::default(), &mut input).unwrap_or_else(|error| {
                shell.complain(None, &format!("{error:#}"));
                Step::Failed
            })
        } else {
            let source: &mut dyn Source = &mut input;
            shell.run_statement(command, Some(source), How::default())
        };
        match step {
            Step::Fine => {}
            Step::Quit => break,
            Step::Failed if !shell.settings.stop_on_error => shell.failed = true,
            other => return code(shell, other, signals, FAILED),
        }
    }
    code(shell, Step::Fine, signals, FAILED)
}

fn code(shell: &Shell, step: Step, signals: &Signals, failed: u8) -> u8 {
    match step {
        _ if signals.is_terminated() => crate::INTERRUPTED,
        Step::Fine | Step::Quit if shell.failed => failed,
        Step::Fine | Step::Quit | Step::Pipe => 0,
        Step::Failed => failed,
        Step::Interrupted => crate::INTERRUPTED,
        Step::Lost => USAGE,
    }
}
