//! Firebird's own programs for each task. They are its server's clients, but for reading the file: `nbackup` and `gstat` do so themselves, and by its services the server does the
//! work of `gbak` and of the validation.
//!
//! Who ends a program that takes too long ends a client only: what it has begun within the server is ended by [`abandon`], but for a load, which is waited for
//! ([`settle`]).

use super::files;
use super::place::one;
use super::task::{Task, chain};
use crate::firebird::server::{Server, utility};
use crate::tpcc::connection::Connection;
use crate::tpcc::schema::TABLES;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long what was given up may take to end within the server.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A dump has so many bytes at least, where the data have ten times as many.
const DUMP: u64 = 1 << 20;
/// What `mon$backup_state` is while a backup is made, until what was written meanwhile is merged.
const STALLED: i64 = 1;

/// What does it, in words for a report.
pub(super) fn tool(task: Task) -> Option<&'static str> {
    Some(match task {
        Task::Copy => "copy of the data files",
        Task::Backup => "nbackup -B 0",
        Task::DirectBackup => "nbackup -D ON -B 0",
        Task::Incremental => "nbackup -B n, since n - 1",
        Task::Restore => "nbackup -R",
        Task::Stat => "gstat -a -r",
        Task::Check => "online validation by fbsvcmgr",
        Task::Sweep => "gfix -sweep",
        Task::Dump => "gbak -b -g -se",
        Task::Load => "gbak -c -se",
        Task::Compact => return None,
    })
}

/// The program that does it once, with what it makes as `made`, and from `source` where that is another database.
///
/// # Errors
/// There is no such task, or a program is missing.
pub(super) fn command(task: Task, server: &Server, source: &Path, made: &Path) -> Result<Command> {
    let program = |names: &[&str]| server.beside(&utility(names)?);
    let services = format!("localhost/{}:service_mgr", server.port());
    Ok(match task {
        Task::Backup => backup(server, &[], 0, made)?,
        Task::DirectBackup => backup(server, &["-D", "ON"], 0, made)?,
        Task::Incremental => backup(server, &[], level(made)?, made)?,
        Task::Restore => {
            let mut command = program(&["nbackup"])?;
            command.arg("-R").arg(made).arg(source);
            command
        }
        Task::Load => {
            let mut command = program(&["gbak"])?;
            command.args(["-c", "-se", &services]).arg(source).arg(made);
            command
        }
        Task::Stat => {
            let mut command = program(&["fbstat", "gstat"])?;
            command.args(["-a", "-r"]).arg(server.address());
            command
        }
        Task::Check => {
            let mut command = program(&["fbsvcmgr"])?;
            command.args([&*services, "action_validate", "dbname"]).arg(server.database());
            command
        }
        Task::Sweep => {
            let mut command = program(&["gfix"])?;
            command.arg("-sweep").arg(server.address());
            command
        }
        Task::Dump => {
            let mut command = program(&["gbak"])?;
            command.args(["-b", "-g", "-se", &services]).arg(server.database()).arg(made);
            command
        }
        Task::Copy | Task::Compact => bail!("there is no {}", task.name()),
    })
}

/// A full backup.
///
/// # Errors
/// The program is missing.
pub(crate) fn full(server: &Server, made: &Path) -> Result<Command> {
    backup(server, &[], 0, made)
}

fn backup(server: &Server, options: &[&str], level: usize, made: &Path) -> Result<Command> {
    let mut command = server.beside(&utility(&["nbackup"])?)?;
    command.args(options).args(["-B", &level.to_string()]).arg(server.address()).arg(made);
    Ok(command)
}

/// The full backup that incremental ones add to.
///
/// # Errors
/// The program is missing, or the folder cannot be made.
pub(super) fn first_of_chain(server: &Server, out: &Path) -> Result<Command> {
    let chain = chain(out);
    fs::create_dir(&chain)?;
    full(server, &chain.join("full"))
}

/// Where a task puts what it makes: what is added to a chain stays with it.
pub(super) fn made(task: Task, out: &Path, number: u32) -> PathBuf {
    let folder = if task == Task::Incremental { chain(out) } else { out.to_owned() };
    folder.join(format!("{}-{number}", task.name()))
}

/// Whether its program closes what it has made, and does not wait until that is on the device.
pub(super) fn is_unsynced(task: Task) -> bool {
    matches!(
        task,
        Task::Backup | Task::DirectBackup | Task::Incremental | Task::Restore | Task::Dump | Task::Load
    )
}

/// The level of the next backup of a chain, which adds to the one before: those that are there have the levels below.
fn level(made: &Path) -> Result<usize> {
    let chain = made.parent().context("a backup is in a folder")?;
    Ok(fs::read_dir(chain).with_context(|| format!("cannot read {chain:?}"))?.count())
}

/// What a program that has come to its end, as if all was well, has said and made, of a database of so many bytes.
///
/// # Errors
/// It has found the database damaged, or has not done what it was to do.
pub(super) fn heard(task: Task, made: &Path, data: u64, text: &str, complaint: &str) -> Result<Value> {
    match task {
        Task::Backup | Task::DirectBackup | Task::Incremental => {
            let found = fs::metadata(made).with_context(|| format!("nbackup has not made {made:?}"))?;
            ensure!(found.len() > 0, "nbackup has made nothing of {made:?}");
            Ok(json!({ "made_bytes": found.len() }))
        }
        Task::Dump | Task::Restore | Task::Load => {
            let name = if task == Task::Restore { "nbackup" } else { "gbak" };
            let found = fs::metadata(made).with_context(|| format!("{name} has not made {made:?}"))?;
            let bytes = found.len();
            ensure!(
                bytes > 0 && bytes >= DUMP.min(data / 10),
                "{name} has made {bytes} bytes of a database of {data}"
            );
            Ok(json!({ "made_bytes": bytes }))
        }
        Task::Check => validated(text),
        Task::Stat => counted(text),
        Task::Sweep => {
            // It is silent where it has nothing to complain of.
            let said = [complaint.trim(), text.trim()].join(" ");
            ensure!(said == " ", "gfix says: {}", said.trim());
            Ok(Value::Null)
        }
        Task::Copy | Task::Compact => Ok(Value::Null),
    }
}

/// What the statistics tell: of each table how many records it has.
fn counted(text: &str) -> Result<Value> {
    let totals = text.lines().filter_map(|line| {
        let behind = line.split_once("total records:")?.1;
        behind.trim().split([',', ' ']).next()?.parse::<u64>().ok()
    });
    let (tables, records) =
        totals.fold((0_usize, 0_u64), |(tables, records), one| (tables + 1, records + one));
    ensure!(
        tables >= TABLES.len() && records > 0,
        "gstat has counted {records} records in {tables} tables, where there are {}",
        TABLES.len()
    );
    Ok(json!({ "tables": tables, "records": records }))
}

/// What the online validation tells. It ends as if all was well, whatever it has found; a table that it could not lock in time it leaves out.
fn validated(text: &str) -> Result<Value> {
    let bad = text.lines().find(|line| line.contains("ERRORS found"));
    ensure!(bad.is_none(), "the online validation has found: {}", bad.unwrap_or_default().trim());
    ensure!(
        text.contains("Validation finished"),
        "the online validation has not come to its end: {}",
        text.trim().lines().last().unwrap_or("it says nothing")
    );
    let count = |words: &str| text.lines().filter(|line| line.trim_end().ends_with(words)).count();
    let (sound, left_out) = (count(") is ok"), count("Acquire relation lock failed"));
    ensure!(
        sound > 0,
        "the online validation has looked at no table; those that it could not lock in time: {left_out}"
    );
    Ok(json!({ "tables_sound": sound, "tables_left_out": left_out }))
}

/// Waits until a load whose program was ended has ended within the server, too, and removes what it has made.
///
/// # Errors
/// It goes on for long, or the server does not say.
pub(super) fn settle(server: &Server, made: &Path, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        // There is no other way to learn of sessions of another database.
        let mut command = server.beside(&utility(&["fbsvcmgr"])?)?;
        command.args([&*format!("localhost/{}:service_mgr", server.port()), "info_svr_db_info"]);
        let told = command.output().context("cannot start fbsvcmgr")?;
        ensure!(told.status.success(), "fbsvcmgr: {}", String::from_utf8_lossy(&told.stderr).trim());
        if !String::from_utf8_lossy(&told.stdout).contains(&*made.to_string_lossy()) {
            return files::remove(made);
        }
        ensure!(began.elapsed() < patience, "a load goes on within the server after its end");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Ends what a program has left behind that was ended itself: a database that is locked for a backup with half a file, or work within the server.
///
/// # Errors
/// It does not end.
pub(super) fn abandon(task: Task, made: &Path, session: &mut dyn Connection) -> Result<()> {
    files::remove(made)?;
    if matches!(task, Task::Backup | Task::DirectBackup | Task::Incremental) {
        return unlock(session);
    }
    // What the services do has no protocol.
    let theirs = "mon$system_flag = 0 and mon$attachment_id <> current_connection \
        and (mon$remote_protocol is null or mon$remote_process containing 'gfix' or mon$remote_process containing 'stat')";
    let began = Instant::now();
    while one(session, &format!("select count(*) from mon$attachments where {theirs}"))? > 0 {
        ensure!(began.elapsed() < PATIENCE, "{} goes on within the server after its end", task.name());
        session.batch(&format!("delete from mon$attachments where {theirs}"))?;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Ends a backup's lock of the database: what it has begun within the server comes to its end first, as it could lock it yet.
///
/// # Errors
/// It does not end.
pub(crate) fn unlock(session: &mut dyn Connection) -> Result<()> {
    let theirs = "mon$attachment_id <> current_connection and mon$remote_process containing 'nbackup'";
    let began = Instant::now();
    loop {
        let attached = one(session, &format!("select count(*) from mon$attachments where {theirs}"))?;
        let state = one(session, "select mon$backup_state from mon$database")?;
        if (attached, state) == (0, 0) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "a backup goes on within the server after its end: {attached} of its sessions, mon$backup_state {state}"
        );
        if attached > 0 {
            session.batch(&format!("delete from mon$attachments where {theirs}"))?;
        } else if state == STALLED {
            session.batch("alter database end backup")?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "14:35:01.12 Validation started \n \n14:35:01.12 Relation 128 (ITEM) \n\
        14:35:01.12   process pointer page    0 of    1 \n14:35:01.12 Index 1 (RDB$PRIMARY1) \n\
        14:35:01.20 Relation 128 (ITEM) is ok \n \n14:35:01.20 Validation finished \n";

    #[test]
    fn a_validation_is_believed_what_it_says_and_not_how_it_ends() {
        assert_eq!(validated(SOUND).unwrap(), json!({ "tables_sound": 1, "tables_left_out": 0 }));
        let busy = SOUND.replace("Relation 128 (ITEM) is ok", "Acquire relation lock failed");
        assert!(validated(&busy).unwrap_err().to_string().contains("in time: 1"));
        let both = SOUND.replace("Validation finished", "Acquire relation lock failed\nValidation finished");
        assert_eq!(validated(&both).unwrap(), json!({ "tables_sound": 1, "tables_left_out": 1 }));
        let damaged = SOUND.replace("(ITEM) is ok", "(ITEM) : 3 ERRORS found");
        assert!(validated(&damaged).unwrap_err().to_string().contains("3 ERRORS"));
        let half = SOUND.replace("Validation finished", "");
        assert!(validated(&half).unwrap_err().to_string().contains("not come to its end"));
        let none = SOUND.replace("is ok", "is looked at");
        assert!(validated(&none).unwrap_err().to_string().contains("no table"));
    }

    #[test]
    fn each_backup_of_a_chain_adds_to_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let chain = chain(folder.path());
        fs::create_dir(&chain).unwrap();
        fs::write(chain.join("full"), "x").unwrap();
        let first = made(Task::Incremental, folder.path(), 7);
        assert_eq!((first.parent(), level(&first).unwrap()), (Some(&*chain), 1));
        fs::write(&first, "x").unwrap();
        assert_eq!(level(&made(Task::Incremental, folder.path(), 9)).unwrap(), 2);
        assert_eq!(made(Task::Backup, folder.path(), 3), folder.path().join("backup-3"));
        assert!(heard(Task::Backup, &folder.path().join("none"), 0, "", "").is_err());
    }

    #[test]
    fn a_dump_and_statistics_and_a_sweep_are_not_believed_that_they_end_well() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("dump");
        let dump = |data| heard(Task::Dump, &made, data, "", "");
        assert!(dump(1000).is_err());
        fs::write(&made, [7; 100]).unwrap();
        assert_eq!(dump(1000).unwrap(), json!({ "made_bytes": 100 }));
        assert!(dump(1010).is_err() && dump(1 << 30).is_err());
        let table = "ITEM (128)\n    Average record length: 76.50, total records: 7\n\
            \x20   Average version length: 0.00, total versions: 0, max versions: 0\n";
        let text = table.repeat(TABLES.len());
        assert_eq!(counted(&text).unwrap(), json!({ "tables": 9, "records": 63 }));
        assert!(counted(table).is_err() && counted("").is_err());
        assert!(heard(Task::Sweep, &made, 0, "", "\n").is_ok());
        let error = heard(Task::Sweep, &made, 0, "", "lock conflict").unwrap_err().to_string();
        assert!(error.contains("gfix says: lock conflict"), "{error}");
    }
}
