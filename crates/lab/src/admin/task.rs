//! The tasks, and who does each of them for Gannet and for PostgreSQL; for the others: modules `firebird` and `sqlite`.

use super::measure::MADE_MOST;
use super::{firebird, sqlite};
use crate::servers::{self, Kind};
use crate::sides::{self, GANNET, Side};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What Gannet's command line may have: a server does the work, and it would be refused more than its group has.
const MEMORY: &str = "32MiB";
/// What a task tells of one thing is kept up to so many bytes.
const TOLD: usize = 4096;

/// How Gannet's tasks are asked to heed users. Those of the others know nothing of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Haste {
    /// As they do by themselves.
    None,
    /// They go as fast as they can: `--job-pace full`.
    Full,
}

/// What an administrator has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// A plain copy of the data files, by direct I/O: what the others are measured by, and no backup.
    Copy,
    /// A full physical backup.
    Backup,
    /// A full physical backup by direct I/O, of whoever has to be asked for it.
    DirectBackup,
    /// A physical backup of what has changed since the one before.
    Incremental,
    /// A new database from a full physical backup, beside the server.
    Restore,
    /// Statistics of all tables and indexes, every record counted.
    Stat,
    /// A check of the structure, and of indexes against their tables.
    Check,
    /// Removal of garbage: old versions of a tenth of the stock's rows, and of what users have changed meanwhile.
    Sweep,
    /// A logical dump, uncompressed.
    Dump,
    /// A new database from a logical dump, beside the other one.
    Load,
    /// Making the file shorter.
    Compact,
}

impl Task {
    /// All of them.
    pub const ALL: [Task; 11] = [
        Task::Copy,
        Task::Backup,
        Task::DirectBackup,
        Task::Incremental,
        Task::Restore,
        Task::Stat,
        Task::Check,
        Task::Sweep,
        Task::Dump,
        Task::Load,
        Task::Compact,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Task::Copy => "copy",
            Task::Backup => "backup",
            Task::DirectBackup => "backup-direct",
            Task::Incremental => "incremental",
            Task::Restore => "restore",
            Task::Stat => "stat",
            Task::Check => "check",
            Task::Sweep => "sweep",
            Task::Dump => "dump",
            Task::Load => "load",
            Task::Compact => "compact",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Task::ALL.into_iter().find(|task| task.name() == name)
    }

    /// What does it, in words for a report; `None` where a server has nothing of the kind, or nothing that lets users work.
    pub fn tool(self, side: Side) -> Option<&'static str> {
        let kind = match side {
            Side::Wire(kind) => kind,
            Side::Firebird => return firebird::tool(self),
            Side::Sqlite => return sqlite::tool(self),
        };
        Some(match (self, kind) {
            (Task::Copy, _) => "copy of the data files",
            (Task::Backup, Kind::Gannet) => "gannet backup",
            (Task::Backup, Kind::PostgreSql) => "pg_basebackup -X stream -c fast",
            (Task::Incremental, Kind::Gannet) => "gannet backup --since latest",
            (Task::Restore, Kind::Gannet) => "gannet restore --server",
            (Task::Stat, Kind::Gannet) => "gannet stat --records",
            (Task::Stat, Kind::PostgreSql) => "pgstattuple",
            (Task::Check, Kind::Gannet) => "gannet check",
            (Task::Check, Kind::PostgreSql) => "bt_index_check, heapallindexed",
            (Task::Sweep, Kind::Gannet) => "gannet sweep",
            (Task::Sweep, Kind::PostgreSql) => "VACUUM",
            (Task::Dump, Kind::Gannet) => "gannet dump",
            (Task::Dump, Kind::PostgreSql) => "pg_dump -Fd -j2 -Z0",
            (Task::Load, Kind::Gannet) => "gannet load --create",
            (Task::Load, Kind::PostgreSql) => "pg_restore -j2",
            (Task::Compact, Kind::Gannet) => "gannet compact",
            // A backup of Gannet's is by direct I/O anyway, and PostgreSQL has none that is.
            (Task::DirectBackup, _) => return None,
            // A base backup is a database as it is.
            (Task::Incremental | Task::Restore | Task::Compact, Kind::PostgreSql) => return None,
        })
    }

    /// Whether it goes through all of the data, so that bytes a second mean something.
    pub fn is_of_all_data(self) -> bool {
        !matches!(self, Task::Incremental | Task::Sweep)
    }

    /// Whether it can be asked not to heed users.
    pub fn can_hurry(self, side: Side) -> bool {
        side == GANNET && self != Task::Copy
    }

    /// Whether it has as much to do each time.
    pub fn repeats(self) -> bool {
        self != Task::Sweep
    }

    /// How often it runs at most beside the same users.
    pub fn runs_most(self) -> usize {
        match self {
            _ if !self.repeats() => 1,
            _ if self.makes() => MADE_MOST,
            _ => usize::MAX,
        }
    }

    /// Whether the process `within` does it on an SQLite database.
    pub fn is_within(self) -> bool {
        self != Task::Copy && sqlite::tool(self).is_some()
    }

    /// Whether it makes something besides the database.
    pub fn makes(self) -> bool {
        matches!(self, Task::Copy | Task::Backup | Task::DirectBackup | Task::Incremental | Task::Dump)
            || self.makes_database()
    }

    /// Whether what it makes is a database, from what another task has made before.
    pub fn makes_database(self) -> bool {
        matches!(self, Task::Restore | Task::Load)
    }

    /// The task whose result it needs.
    fn needs(self) -> Option<Task> {
        match self {
            Task::Restore => Some(Task::Backup),
            Task::Load => Some(Task::Dump),
            _ => None,
        }
    }

    /// The program that does it once, beside a server, with what it makes in `out`, where it finds nothing of that name.
    ///
    /// # Errors
    /// The server has no such task, or a program is missing.
    pub fn command(self, server: &sides::Server, out: &Path, number: u32, haste: Haste) -> Result<Command> {
        let side = server.side();
        if self.tool(side).is_none() {
            bail!("{} has no task {}", side.title(), self.name());
        }
        let made = self.made(side, out, number);
        let mut command = self.command_for(server, out, &made)?;
        if haste == Haste::Full {
            command.args(["--job-pace", "full"]);
        }
        Ok(command)
    }

    /// The same with what it makes as `made`.
    fn command_for(self, server: &sides::Server, out: &Path, made: &Path) -> Result<Command> {
        if self == Task::Copy {
            let mut command = server.beside(std::env::current_exe()?)?;
            command.args(["admin", "copy", "--from"]).arg(server.folder()).arg("--to").arg(made);
            return Ok(command);
        }
        match server {
            sides::Server::Firebird(server) => firebird::command(self, server, &source(out), made),
            sides::Server::Sqlite(server) => sqlite::command(self, server, &source(out), made),
            sides::Server::Wire(server) => match server.options().kind {
                Kind::Gannet => self.ours(server, out, made),
                Kind::PostgreSql => self.theirs(server, out, made),
            },
        }
    }

    /// Where it puts what it makes.
    fn made(self, side: Side, out: &Path, number: u32) -> PathBuf {
        match side {
            Side::Firebird => firebird::made(self, out, number),
            GANNET if self.makes_database() => out.join(format!("{}-{number}.gnt", self.name())),
            Side::Wire(_) | Side::Sqlite => out.join(format!("{}-{number}", self.name())),
        }
    }

    /// What a program that has come to its end has said and made, for the record.
    ///
    /// # Errors
    /// It has found the database damaged, or has not done what it was to do.
    pub fn heard(
        self,
        server: &sides::Server,
        out: &Path,
        number: u32,
        text: &str,
        complaint: &str,
    ) -> Result<Value> {
        match server.side() {
            Side::Firebird => {
                let made = self.made(Side::Firebird, out, number);
                firebird::heard(self, &made, server.database_bytes()?, text, complaint)
            }
            Side::Wire(_) | Side::Sqlite => Ok(told(text)),
        }
    }

    /// The file that it makes, where its program does not see to it that it is durable: it has to be before the task has ended, as it is with others.
    pub fn unsynced(self, server: &sides::Server, out: &Path, number: u32) -> Option<PathBuf> {
        let side = server.side();
        (side == Side::Firebird && firebird::is_unsynced(self)).then(|| self.made(side, out, number))
    }

    /// Ends what a program has left behind in the server that was ended as it took longer than `limit`; or waits until it has ended, where it cannot be.
    ///
    /// # Errors
    /// It does not end.
    pub fn abandon(self, server: &sides::Server, out: &Path, number: u32, limit: Duration) -> Result<()> {
        let sides::Server::Firebird(own) = server else { return Ok(()) };
        let made = self.made(Side::Firebird, out, number);
        if self == Task::Load {
            return firebird::settle(own, &made, limit * 4);
        }
        let mut session = server.connect()?.connect()?;
        firebird::abandon(self, &made, &mut *session)
    }

    fn ours(self, server: &servers::Server, out: &Path, made: &Path) -> Result<Command> {
        let mut command = server.beside(&servers::gannet()?);
        let word = match self {
            Task::Incremental => "backup",
            other => other.name(),
        };
        command.arg(word);
        match self {
            // By the server, as it has users, and makes way for them.
            Task::Restore => {
                command.arg(source(out)).arg(made).arg("--server");
                command.arg(servers::database(&server.options().folder)).arg("--json");
                return Ok(command);
            }
            // The server has nothing to do with it: it works by itself, with what it is given.
            Task::Load => {
                let memory = server.options().memory.map_or(256 << 20, own_memory);
                command.arg(source(out)).arg(made);
                command.args(["--create", "--memory", &memory.to_string(), "--json"]);
                return Ok(command);
            }
            _ => {}
        }
        command.arg(servers::database(&server.options().folder));
        match self {
            Task::Backup => {
                // Into a folder that is there; one of its own, so that whoever adds to the latest one finds those that are to be found.
                std::fs::create_dir(made)?;
                command.arg(made);
            }
            Task::Incremental => {
                command.arg(chain(out)).args(["--since", "latest"]);
            }
            Task::Dump => {
                command.arg(made);
            }
            Task::Stat => {
                command.arg("--records");
            }
            Task::DirectBackup => bail!("there is no {}", self.name()),
            Task::Copy | Task::Check | Task::Sweep | Task::Compact | Task::Restore | Task::Load => {}
        }
        command.args(["--memory", MEMORY, "--json"]);
        Ok(command)
    }

    fn theirs(self, server: &servers::Server, out: &Path, made: &Path) -> Result<Command> {
        let (_, programs) =
            servers::postgres().context("PostgreSQL is not installed: apt-get install postgresql-15")?;
        let target = server.target(DATABASE);
        let statement = |sql: &str| {
            let mut command = server.beside(programs.join("psql"));
            command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &target, "-c", sql]);
            command
        };
        Ok(match self {
            Task::Backup => {
                let mut command = server.beside(programs.join("pg_basebackup"));
                command.args(["-d", &server.target("postgres"), "-X", "stream", "-c", "fast", "-D"]);
                command.arg(made);
                command
            }
            Task::Dump => {
                let mut command = server.beside(programs.join("pg_dump"));
                command.args(["-d", &target, "-Fd", "-j2", "-Z0", "-f"]).arg(made);
                command
            }
            Task::Load => {
                let name =
                    made.file_name().and_then(|name| name.to_str()).context("a database has a name")?;
                server.client("postgres")?.run(&format!("create database \"{name}\""))?;
                let mut command = server.beside(programs.join("pg_restore"));
                command.args(["-d", &server.target(name), "-j2"]).arg(source(out));
                command
            }
            Task::Stat => statement(PGSTATTUPLE),
            Task::Check => statement(BT_INDEX_CHECK),
            Task::Sweep => statement("vacuum"),
            Task::Copy | Task::DirectBackup | Task::Incremental | Task::Restore | Task::Compact => {
                bail!("there is no {}", self.name())
            }
        })
    }

    /// What proves that the last thing made is whole, with its name, where there is something that does.
    ///
    /// # Errors
    /// A program is missing.
    pub fn proof(
        self,
        server: &sides::Server,
        out: &Path,
        number: u32,
    ) -> Result<Option<(&'static str, Command)>> {
        let made = self.made(server.side(), out, number);
        let server = match server {
            sides::Server::Wire(server) => server,
            sides::Server::Sqlite(server) if matches!(self, Task::Backup | Task::Load) => {
                return sqlite::proof(server, &made).map(Some);
            }
            // Of a backup of Firebird's there is nothing but to restore it.
            sides::Server::Firebird(_) | sides::Server::Sqlite(_) => return Ok(None),
        };
        Ok(match (self, server.options().kind) {
            (Task::Backup | Task::Incremental, Kind::Gannet) => {
                let mut command = server.beside(&servers::gannet()?);
                command.arg("verify").arg(if self == Task::Backup { made } else { chain(out) });
                command.args(["--memory", MEMORY, "--json"]);
                Some(("gannet verify", command))
            }
            (Task::Restore | Task::Load, Kind::Gannet) => {
                let mut command = server.beside(&servers::gannet()?);
                command.arg("check").arg(made).args(["--memory", MEMORY, "--json"]);
                Some(("gannet check", command))
            }
            (Task::Load, Kind::PostgreSql) => {
                let (_, programs) = servers::postgres().context("PostgreSQL is not installed any more")?;
                let name =
                    made.file_name().and_then(|name| name.to_str()).context("a database has a name")?;
                let mut command = server.beside(programs.join("psql"));
                command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &server.target(name), "-c"]);
                command.arg(BT_INDEX_CHECK);
                Some(("bt_index_check", command))
            }
            (Task::Backup, Kind::PostgreSql) => {
                let (_, programs) = servers::postgres().context("PostgreSQL is not installed any more")?;
                let mut command = server.beside(programs.join("pg_verifybackup"));
                command.arg("-q").arg(made);
                Some(("pg_verifybackup", command))
            }
            _ => None,
        })
    }
}

/// Something that is made before a task can be measured.
pub struct Preparation {
    /// What makes it, for messages.
    pub name: &'static str,
    /// The program that makes it.
    pub command: Command,
    /// Where it is put.
    pub made: PathBuf,
}

/// What a task works on besides the database; `None` where nothing.
///
/// # Errors
/// A program is missing, or a folder cannot be made.
pub fn preparation(task: Task, server: &sides::Server, out: &Path) -> Result<Option<Preparation>> {
    if task == Task::Incremental {
        let command = first_of_chain(server, out)?;
        return Ok(Some(Preparation { name: "backup", command, made: chain(out) }));
    }
    let Some(before) = task.needs() else { return Ok(None) };
    let made = source(out);
    let command = before.command_for(server, out, &made)?;
    Ok(Some(Preparation { name: before.name(), command, made }))
}

/// Removes what a task has made within the server, beside what it has put into files.
///
/// # Errors
/// What the server says.
pub fn clear(server: &sides::Server) -> Result<()> {
    let sides::Server::Wire(server) = server else { return Ok(()) };
    if server.options().kind != Kind::PostgreSql {
        return Ok(());
    }
    let mut client = server.client("postgres")?;
    let made = format!("select datname from pg_database where datname like '{}-%'", Task::Load.name());
    for row in client.run(&made)?.rows {
        let name = row.into_iter().next().flatten().context("a database has a name")?;
        client.run(&format!("drop database \"{name}\" with (force)"))?;
    }
    Ok(())
}

/// Memory of a task that makes a database, of so much in all: Gannet's server has less by it, as there is nobody but this program to do it.
pub fn own_memory(memory: u64) -> u64 {
    memory / 4
}

/// The full backup that incremental ones add to.
fn first_of_chain(server: &sides::Server, out: &Path) -> Result<Command> {
    if let sides::Server::Firebird(server) = server {
        return firebird::first_of_chain(server, out);
    }
    let chain = chain(out);
    std::fs::create_dir(&chain)?;
    let mut command = server.beside(servers::gannet()?)?;
    command.arg("backup").arg(servers::database(server.folder())).arg(chain);
    command.args(["--memory", MEMORY, "--json"]);
    Ok(command)
}

/// What a program said of itself as JSON, without what is long.
fn told(text: &str) -> Value {
    let Ok(Value::Object(mut told)) = serde_json::from_str(text) else { return Value::Null };
    told.retain(|_, value| value.to_string().len() <= TOLD);
    Value::Object(told)
}

/// What a task makes a database from.
pub fn source(out: &Path) -> PathBuf {
    out.join("source")
}

/// The folder of incremental backups, and of the full one that they add to.
pub fn chain(out: &Path) -> PathBuf {
    out.join("chain")
}

/// The database that has the tables.
pub use crate::servers::DATABASE;

/// What PostgreSQL needs for its tasks, and is installed for.
pub const EXTENSIONS: [&str; 2] = ["pgstattuple", "amcheck"];

const PGSTATTUPLE: &str = "select sum(found.tuple_count), sum(found.dead_tuple_count), sum(found.table_len) \
    from pg_class c, lateral pgstattuple(c.oid::regclass) as found \
    where c.relkind in ('r', 'i') and c.relnamespace = 'public'::regnamespace";

const BT_INDEX_CHECK: &str = "select count(bt_index_check(c.oid::regclass, true)) \
    from pg_class c where c.relkind = 'i' and c.relnamespace = 'public'::regnamespace";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sides::{GANNET, POSTGRESQL};
    use serde_json::json;

    #[test]
    fn each_task_has_a_name_of_its_own_and_ours_has_a_tool() {
        for task in Task::ALL {
            assert_eq!(Task::named(task.name()), Some(task));
            assert_eq!(task.tool(GANNET).is_some(), task != Task::DirectBackup, "{task:?}");
        }
        assert_eq!(Task::named("gstat"), None);
        assert_eq!(Task::Compact.tool(POSTGRESQL), None);
        assert_eq!(
            (Task::Stat.tool(Side::Firebird), Task::Compact.tool(Side::Firebird)),
            (Some("gstat -a -r"), None)
        );
    }

    #[test]
    fn what_makes_something_runs_a_few_times_and_a_sweep_once() {
        for task in Task::ALL {
            let most = task.runs_most();
            assert_eq!(most == 1, task == Task::Sweep, "{task:?}");
            assert!(!task.makes() || most == MADE_MOST, "{task:?}: {most}");
        }
    }

    #[test]
    fn what_makes_a_database_has_a_source_that_another_task_makes() {
        for task in Task::ALL {
            assert_eq!(task.needs().is_some(), task.makes_database(), "{task:?}");
            let by = [GANNET, POSTGRESQL, Side::Firebird, Side::Sqlite];
            for side in by.into_iter().filter(|&side| task.tool(side).is_some()) {
                assert!(task.needs().is_none_or(|other| other.tool(side).is_some()), "{task:?} of {side:?}");
            }
        }
        assert_eq!(Task::Load.made(GANNET, Path::new("out"), 2), Path::new("out/load-2.gnt"));
    }

    #[test]
    fn of_what_a_task_says_the_short_things_are_kept() {
        let long = "x".repeat(TOLD);
        let said = format!("{{\"job\": {{\"seconds\": 2}},\n \"tables\": \"{long}\"}}");
        assert_eq!(told(&said), json!({ "job": { "seconds": 2 } }));
        assert_eq!(told("7|8"), Value::Null);
    }
}
