//! `gannet`: one thin binary over the libraries.
//!
//! # Exit status
//! 0: done. 1: it failed, or the command line is wrong; one line on standard error says why. 130: stopped by Ctrl-C. `gannet sql`, `gannet check` and `gannet doctor` have their own, see [`sql`], [`check`]
//! and [`doctor`].

mod arguments;
mod backup;
mod check;
mod compact;
mod demo;
mod doctor;
mod dump;
mod input;
mod interrupt;
mod job;
mod kv;
mod lab;
mod load;
mod output;
mod progress;
mod serve;
mod sql;
mod standard_output;
mod stat;
mod sweep;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use interrupt::Interrupted;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    gannet_base::allocator::give_back_what_is_freed();
    // A file that may not become longer is an error of whoever writes to it, and not the end of the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments = match Arguments::of_this_process() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let done = match arguments.command {
        Command::Backup(options) => backup::backup(&options),
        Command::Restore(options) => backup::restore(&options),
        Command::Verify(options) => backup::verify(&options),
        Command::Check(options) => return check::run(&options),
        Command::Compact(options) => compact::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Doctor(options) => return doctor::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Kv(options) => kv::run(options),
        Command::Lab(options) => lab::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Stat(options) => stat::run(&options),
        Command::Sweep(options) => sweep::run(&options),
        Command::Sql(options) => return sql::run(&options),
        Command::Tune(options) => lab::tune(&options),
        Command::Other(words) => return unknown(&words),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        complain("interrupted");
        return ExitCode::from(INTERRUPTED);
    }
    if is_broken_pipe(&error) {
        // Whoever read our output has seen enough.
        return ExitCode::SUCCESS;
    }
    complain(&format!("{error:#}"));
    ExitCode::FAILURE
}

/// Help and version are output like any other; everything else is a complaint of one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that went away has seen enough of the help.
        let _ = write!(io::stdout(), "{error}");
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = write!(io::stderr(), "{error}");
        return ExitCode::FAILURE;
    }
    let text = error.to_string();
    let before_usage = text.split("\n\nUsage:").next().unwrap_or_default();
    let before_hint = before_usage.split("\n\nFor more information").next().unwrap_or_default();
    let mut line = before_hint.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((argument, variable)) = variable_behind(error) {
        line = line.replacen(&format!("'{argument}'"), &variable, 1);
    }
    complain(&format!("{} (see --help)", line.trim_start_matches("error: ")));
    match std::env::args_os().nth(1) {
        Some(command) if command == "sql" || command == "check" => ExitCode::from(sql::USAGE),
        Some(command) if command == "doctor" => ExitCode::from(doctor::NOT_LOOKED),
        _ => ExitCode::FAILURE,
    }
}

/// The option that a bad value is said to be of, and the variable that it comes from where that is not the command line.
fn variable_behind(error: &clap::Error) -> Option<(&str, String)> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = argument.split([' ', '=']).next().filter(|option| option.starts_with("--"))?;
    let is_it = |word: OsString| {
        let rest = word.to_str().and_then(|word| word.strip_prefix(option)).map(str::to_owned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if std::env::args_os().skip(1).any(is_it) {
        return None;
    }
    let variable = format!("GANNET_{}", option[2..].replace('-', "_").to_ascii_uppercase());
    std::env::var_os(&variable).map(|_| (argument.as_str(), variable))
}

fn unknown(words: &[OsString]) -> ExitCode {
    let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    complain(&format!("there is no command `{name}` (see --help)"));
    ExitCode::FAILURE
}

/// One line on standard error, whatever is in the message.
fn complain(message: &str) {
    let line: Vec<&str> = message.lines().collect();
    // Names in it may come from files that somebody else has made. Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "gannet: {}", output::printable(&line.join(" ")));
}

/// Whether whoever read our output has gone. A connection to a server that has broken fails in the same way, and is no such end.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_kind = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let csv = cause.downcast_ref::<csv::Error>().and_then(|error| match error.kind() {
            csv::ErrorKind::Io(error) => Some(error.kind()),
            _ => None,
        });
        io.or(csv)
    };
    error.chain().any(|cause| io_kind(cause) == Some(io::ErrorKind::BrokenPipe))
        && has_no_reader(&io::stdout())
}

/// Whether the other end of a pipe is closed.
fn has_no_reader(output: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(output, PollFlags::OUT)];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// What was found counts, also where whoever read of it has seen enough.
fn unless_broken_pipe(told: Result<()>) -> Result<()> {
    match told {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        told => told,
    }
}
