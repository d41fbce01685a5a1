//! SQLite's counterparts of each task: there is no program for them beside users, so each is a process of our own that calls the library, see `within`.

use super::task::Task;
use crate::sides::Within;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What does it, in words for a report.
pub(super) fn tool(task: Task) -> Option<&'static str> {
    Some(match task {
        Task::Copy => "copy of the data files",
        Task::Backup => "online backup (sqlite3_backup)",
        Task::Stat => "dbstat",
        Task::Check => "PRAGMA integrity_check",
        Task::Dump => "SQL text, as .dump",
        Task::Load => "that text, in one transaction",
        Task::Compact => "VACUUM",
        // There are no old versions but in the log, and a backup is a database as it is.
        Task::DirectBackup | Task::Incremental | Task::Restore | Task::Sweep => return None,
    })
}

/// The process that does it once, with what it makes as `made`, and from `source` where that is another database.
///
/// # Errors
/// There is no such task.
pub(super) fn command(task: Task, server: &Within, source: &Path, made: &Path) -> Result<Command> {
    if tool(task).is_none() {
        bail!("there is no {}", task.name());
    }
    let from = if task.makes_database() { source.to_owned() } else { server.database() };
    on(task, server, &from, made)
}

/// What proves that a backup, or another database, is whole.
///
/// # Errors
/// The process cannot be told of.
pub(super) fn proof(server: &Within, made: &Path) -> Result<(&'static str, Command)> {
    Ok(("PRAGMA integrity_check", on(Task::Check, server, made, made)?))
}

fn on(task: Task, server: &Within, database: &Path, made: &Path) -> Result<Command> {
    let mut command = server.beside(&std::env::current_exe()?);
    // Where it would put its temporary files otherwise is not measured, and may be of another kind.
    command.env("SQLITE_TMPDIR", made.parent().context("what is made is in a folder")?);
    command.args(["admin", "within", "--task", task.name(), "--from"]).arg(database);
    if task.makes() {
        command.arg("--to").arg(made);
    }
    if task.makes_database() {
        // Of all that there is.
        command.args(["--memory", &server.memory().to_string()]);
    }
    Ok(command)
}
