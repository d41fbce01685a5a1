//! Commands of the administrator, ended at any moment: by `kill -9`, or by Ctrl-C; embedded, or beside a server, which may be killed in
//! their place.
//!
//! Whatever was ended: the database has what it had, what is half done is not taken for done, and doing it again works.

use crate::server::{Client, Options, STUCK, Server, command};
use crate::verify;
use gannet_base::sim::Generator;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// Rows of each of the two large tables, and bytes of a row, about.
const ROWS: (u64, u64) = (3000, 1500);
/// Rows that a server takes at a time while it archives: less than the log that it may keep, so that the archive has no gap.
const ARCHIVED_AT_A_TIME: u64 = 300;
/// The structure is checked every so many rounds.
const CHECK_EVERY: u64 = 4;
/// What everybody has to see, by table and by index.
const CONTENTS: &str = "select count(*), sum(id), sum(length(note)), min(name), max(name) from goods;
    select count(*) from goods where name < 'name 5'; select count(*), sum(id), max(note) from orders";

/// What is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tool {
    Backup,
    Increment,
    /// A backup behind which others go, and log of an archive that none needs any more.
    Prune,
    Restore,
    /// A restore that goes on with several segments of archived log.
    Extend,
    /// A backup as a stream, and the restore that reads it.
    Stream,
    Verify,
    Script,
    Folder,
    Load,
    Sweep,
    Compact,
    Count,
    Check,
}

const TOOLS: [Tool; 14] = [
    Tool::Backup,
    Tool::Increment,
    Tool::Prune,
    Tool::Restore,
    Tool::Extend,
    Tool::Stream,
    Tool::Verify,
    Tool::Script,
    Tool::Folder,
    Tool::Load,
    Tool::Sweep,
    Tool::Compact,
    Tool::Count,
    Tool::Check,
];

impl Tool {
    /// The database that it works on. Of an archive there is the log of one of its own, to which nobody else writes.
    fn database(self) -> &'static str {
        if self == Tool::Prune { "logged.gnt" } else { "shop.gnt" }
    }
}

/// How it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    Kill,
    Interrupt,
    /// The server is killed that does the work.
    KillServer,
}

/// What has happened so far: blows, and those of them that came before the end.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    rounds: u64,
    hit: BTreeMap<(Tool, Blow), u64>,
    late: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rounds, {} blows too late; ended:", self.rounds, self.late)?;
        self.hit.iter().try_for_each(|((tool, blow), count)| write!(f, " {tool:?} by {blow:?} {count},"))
    }
}

/// A database, and what its administrator does.
pub(crate) struct Tools {
    folder: tempfile::TempDir,
    random: Generator,
    contents: String,
    /// How long each takes without being disturbed.
    times: BTreeMap<Tool, Duration>,
    pub(crate) tally: Tally,
}

type Outcome<T> = Result<T, String>;

impl Tools {
    /// A new database, of which there is a backup and a dump.
    pub(crate) fn new(seed: u64) -> Outcome<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let (rows, bytes) = ROWS;
        let set_up = format!(
            "create table goods (id bigint primary key, name text not null, note text);
             create index on goods (name);
             insert into goods select n, 'name ' || n % 10 || n, repeat('g', {bytes}) || n from generate_series(1, {rows}) as n;
             create table orders (id bigint primary key, note text);
             insert into orders select n, 'note ' || n from generate_series(1, 3000) as n;
             create table waste (id bigint primary key, note text);
             insert into waste select n, repeat('w', {bytes}) from generate_series(1, {rows}) as n;
             delete from waste where id % 10 <> 0; update orders set note = note || '!'"
        );
        let (random, times, tally) = (Generator::new(seed), BTreeMap::new(), Tally::default());
        let mut tools = Tools { folder, random, contents: String::new(), times, tally };
        tools.works(&["sql", "shop.gnt", "--create", "-c", &set_up])?;
        tools.contents = tools.contents_of("shop.gnt")?;
        std::fs::create_dir(tools.path("backups")).expect("a folder");
        for tool in [Tool::Backup, Tool::Script] {
            let begun = Instant::now();
            tools.works(&tools.arguments(tool))?;
            tools.times.insert(tool, begun.elapsed());
        }
        std::fs::rename(tools.path("out.sql"), tools.path("kept.sql")).expect("the dump is there");
        tools.make_logged()?;
        Ok(tools)
    }

    /// Makes a database with an archive, which in the end has what the other one has: most of it in the archive only, behind the backup
    /// `first/`, and, as it was then, in `first-log/`.
    fn make_logged(&self) -> Outcome<()> {
        let (rows, bytes) = ROWS;
        let begin = "create table goods (id bigint primary key, name text not null, note text);
             create index on goods (name);
             create table orders (id bigint primary key, note text);
             insert into orders select n, 'note ' || n || '!' from generate_series(1, 3000) as n;
             create table churn (id bigint primary key, note text)";
        self.works(&["sql", "logged.gnt", "--create", "-c", begin])?;
        for folder in ["first", "chain", "logs"] {
            std::fs::create_dir(self.path(folder)).expect("a folder");
        }
        self.works(&["backup", "logged.gnt", "first"])?;
        let goods = |from: u64| {
            let to = rows.min(from + ARCHIVED_AT_A_TIME - 1);
            format!(
                "insert into goods select n, 'name ' || n % 10 || n, repeat('g', {bytes}) || n from generate_series({from}, {to}) as n"
            )
        };
        let churn = format!(
            "insert into churn select n, repeat('c', {bytes}) from generate_series(1, {ARCHIVED_AT_A_TIME}) as n"
        );
        let mut statements: Vec<_> = (1..=rows).step_by(ARCHIVED_AT_A_TIME as usize).map(goods).collect();
        statements.push(churn);
        self.archiving(&statements)?;
        let first = self.path("first-log");
        std::fs::create_dir(&first).expect("a folder");
        for part in std::fs::read_dir(self.path("logs/logged")).expect("an archive") {
            let part = part.expect("an entry");
            std::fs::copy(part.path(), first.join(part.file_name())).expect("a copy");
        }
        self.compare("logged.gnt")
    }

    /// How the server is started that the tool works beside.
    fn options(&self, tool: Tool) -> Options {
        let archive = (tool == Tool::Prune).then(|| self.path("logs"));
        Options { database: self.path(tool.database()), record: None, archive }
    }

    /// Has a server run statements, and archive what each has written.
    fn archiving<S: AsRef<str>>(&self, statements: &[S]) -> Outcome<()> {
        let server = Server::serving(&self.options(Tool::Prune))?;
        let mut client = Client::connect(&server.address()).map_err(|failure| failure.to_string())?;
        let mut ask = |sql: &str| client.query(sql).map_err(|failure| format!("{sql}: {failure}"));
        for statement in statements {
            ask(statement.as_ref())?;
            let begun = Instant::now();
            while ask("select state, behind_bytes from gannet_archive")? != [["archiving", "0"]] {
                if begun.elapsed() > STUCK {
                    return Err(format!("{:?}", ask("select * from gannet_archive")?));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        server.stop()
    }

    /// Makes log, and a backup, of which the tool is to remove something.
    fn prepare(&self, tool: Tool) -> Outcome<()> {
        if tool != Tool::Prune {
            return Ok(());
        }
        self.archiving(&["update churn set note = note || '!'"])?;
        self.works(&["backup", "logged.gnt", "chain"]).map(|_| ())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, tool: Tool) -> Vec<&'static str> {
        match tool {
            Tool::Backup => vec!["backup", "shop.gnt", "backups"],
            Tool::Increment => vec!["backup", "shop.gnt", "backups", "--since", "latest"],
            Tool::Prune => {
                vec!["backup", "logged.gnt", "chain", "--keep", "1", "--archive", "logs/logged"]
            }
            Tool::Restore => vec!["restore", "backups", "copy.gnt"],
            Tool::Extend => vec!["restore", "first", "copy.gnt", "--archive", "first-log"],
            Tool::Stream => vec!["backup", "shop.gnt", "-"],
            Tool::Verify => vec!["verify", "backups"],
            Tool::Script => vec!["dump", "shop.gnt", "out.sql"],
            Tool::Folder => vec!["dump", "shop.gnt", "out", "--format", "csv"],
            Tool::Load => vec!["load", "kept.sql", "loaded.gnt", "--create"],
            Tool::Sweep => vec!["sweep", "shop.gnt"],
            Tool::Compact => vec!["compact", "shop.gnt"],
            Tool::Count => vec!["stat", "shop.gnt", "--records"],
            Tool::Check => vec!["check", "shop.gnt"],
        }
    }

    /// Begins what the tool does; of a stream the one who writes, then the one who reads.
    fn begin(&self, tool: Tool, beside: bool) -> Vec<Child> {
        let begin = |arguments: &[&str], stdin: Stdio, stdout: Stdio| {
            let mut command = command();
            command.args(arguments).current_dir(self.folder.path());
            command.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().expect("the command runs")
        };
        let mut arguments = self.arguments(tool);
        if tool == Tool::Verify && beside {
            arguments.extend(["--server", "shop.gnt"]);
        }
        if tool != Tool::Stream {
            return vec![begin(&arguments, Stdio::null(), Stdio::null())];
        }
        let mut writer = begin(&arguments, Stdio::null(), Stdio::piped());
        let stream = writer.stdout.take().expect("piped");
        let reader = begin(&["restore", "-", "copy.gnt"], stream.into(), Stdio::null());
        vec![writer, reader]
    }

    /// Does what the tool does, to its end.
    fn does(&self, tool: Tool) -> Outcome<()> {
        if tool != Tool::Stream {
            return self.works(&self.arguments(tool)).map(|_| ());
        }
        let statuses =
            self.begin(tool, false).into_iter().map(|mut process| process.wait().expect("our own child"));
        let statuses: Vec<_> = statuses.collect();
        match statuses.iter().all(|status| status.success()) {
            true => Ok(()),
            false => Err(format!("{tool:?} ended with {statuses:?}")),
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.output().expect("the command runs")
    }

    /// Runs a command that has to succeed; what it prints.
    fn works(&self, arguments: &[&str]) -> Outcome<String> {
        let output = self.run(arguments);
        let [said, complaint] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("{arguments:?} ended with {}: {said}{complaint}", output.status)),
        }
    }

    /// Runs a command that has to be refused, and say why.
    fn is_refused(&self, arguments: &[&str]) -> Outcome<()> {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(1 | 2) if complaint.starts_with("gannet: ") => Ok(()),
            _ => Err(format!("{arguments:?} ended with {}: {complaint}", output.status)),
        }
    }

    fn contents_of(&self, database: &str) -> Outcome<String> {
        self.works(&["sql", database, "-c", CONTENTS])
    }

    fn compare(&self, database: &str) -> Outcome<()> {
        let found = self.contents_of(database)?;
        match found == self.contents {
            true => Ok(()),
            false => Err(format!("{database} has {found}, not {}", self.contents)),
        }
    }

    /// Ends a command at some moment, and looks at what is there.
    pub(crate) fn round(&mut self) -> Outcome<()> {
        self.tally.rounds += 1;
        let tool = TOOLS[self.random.below(TOOLS.len() as u64) as usize];
        self.prepare(tool).map_err(|why| format!("before {tool:?}: {why}"))?;
        let works_on_it = !matches!(tool, Tool::Restore | Tool::Extend | Tool::Load);
        let options = self.options(tool);
        let server = (works_on_it && self.random.one_in(3)).then(|| Server::serving(&options)).transpose()?;
        let blow = match self.random.below(3) {
            0 => Blow::Interrupt,
            1 if server.is_some() => Blow::KillServer,
            _ => Blow::Kill,
        };
        let what =
            format!("{tool:?}, {blow:?}, {} a server", if server.is_some() { "beside" } else { "without" });
        let (server, was_hit) = self.strike(tool, blow, server).map_err(|why| format!("{what}: {why}"))?;
        match was_hit {
            true => *self.tally.hit.entry((tool, blow)).or_default() += 1,
            false => self.tally.late += 1,
        }
        if let Some(server) = server {
            // It goes on with the work of somebody who was killed until it has seen that nobody is there any more.
            server.stop()?;
        }
        self.look(tool, was_hit).map_err(|why| format!("{what}, hit: {was_hit}: {why}"))?;
        if self.tally.rounds.is_multiple_of(CHECK_EVERY) { self.check() } else { Ok(()) }
    }

    /// Whether the files are sound.
    pub(crate) fn check(&self) -> Outcome<()> {
        verify::structure(&self.path("shop.gnt"))?;
        verify::structure(&self.path("logged.gnt"))
    }

    /// Runs a command and ends it; gives the server that still runs, and whether the blow came before the end.
    fn strike(&mut self, tool: Tool, blow: Blow, server: Option<Server>) -> Outcome<(Option<Server>, bool)> {
        // What was not seen yet takes about as long as a dump.
        let time = *self.times.get(&tool).unwrap_or(&self.times[&Tool::Script]);
        let moment = time.mul_f64(self.random.below(1000) as f64 / 1000.0);
        let begun = Instant::now();
        let mut processes = self.begin(tool, server.is_some());
        // Of a stream either end.
        let victim = self.random.below(processes.len() as u64) as usize;
        std::thread::sleep(moment);
        let mut server = server;
        // It may have ended by itself.
        let signal = |signal| kill_process(Pid::from_child(&processes[victim]), signal).unwrap_or(());
        match blow {
            Blow::Kill => signal(Signal::KILL),
            Blow::Interrupt => signal(Signal::INT),
            Blow::KillServer => drop(server.take().map(Server::kill)),
        }
        let mut was_hit = false;
        for (index, process) in processes.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = process.try_wait().expect("our own child") {
                    break status;
                }
                if begun.elapsed() > STUCK {
                    let _ = process.kill();
                    return Err("it does not end".to_owned());
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            was_hit |= !status.success();
            match (blow, status.code()) {
                // So early that it does not listen yet, or just at its end.
                (_, Some(0)) => {}
                (Blow::Kill | Blow::Interrupt, None) | (Blow::Interrupt, Some(130)) if index == victim => {}
                (Blow::KillServer, Some(1 | 2)) => {}
                // The other end of its stream is gone.
                (_, Some(1)) if index != victim => {}
                _ => return Err(format!("it ended with {status}")),
            }
        }
        if !was_hit {
            self.times.insert(tool, begun.elapsed());
        }
        Ok((server, was_hit))
    }

    /// Looks at what a command has left, and does its work again where it was not done.
    fn look(&self, tool: Tool, was_hit: bool) -> Outcome<()> {
        self.compare("shop.gnt")?;
        match tool {
            Tool::Backup | Tool::Increment => {
                self.works(&["verify", "backups"])?;
                self.works(&self.arguments(tool))?;
                self.works(&["verify", "backups"])?;
                self.works(&["restore", "backups", "after.gnt"])?;
                self.compare("after.gnt")?;
                self.remove("after.gnt");
                // Chains are not to grow without end; with this, what was left half done goes, too.
                self.works(&["backup", "shop.gnt", "backups", "--keep", "2"])?;
                self.has_pairs("backups")
            }
            Tool::Prune => {
                self.works(&["verify", "chain"])?;
                self.archive_is_whole()?;
                self.does(tool)?;
                self.has_pairs("chain")?;
                // The archive goes on behind the backup.
                self.archiving(&["update churn set note = note || '?' where id = 1"])?;
                self.archive_is_whole()?;
                self.works(&["restore", "chain", "after.gnt", "--archive", "logs/logged"])?;
                self.compare("after.gnt")?;
                self.remove("after.gnt");
                self.compare("logged.gnt")
            }
            Tool::Restore | Tool::Extend | Tool::Stream => {
                self.look_at_copy(was_hit)?;
                self.does(tool)?;
                self.compare("copy.gnt")?;
                if self.path("copy.gnt.partial").exists() {
                    return Err("copy.gnt.partial is still there".to_owned());
                }
                self.remove("copy.gnt");
                Ok(())
            }
            Tool::Script | Tool::Folder => {
                let name = if tool == Tool::Script { "out.sql" } else { "out" };
                let partial = format!("{name}.partial");
                if self.path(&partial).exists() {
                    // It may have been complete, but for its name.
                    let load = ["load", &partial, "after.gnt", "--create"];
                    match self.works(&load) {
                        Ok(_) => self.compare("after.gnt")?,
                        Err(_) => self.is_refused(&load)?,
                    }
                    self.remove("after.gnt");
                }
                if !self.path(name).exists() {
                    self.works(&self.arguments(tool))?;
                }
                self.works(&["load", name, "after.gnt", "--create"])?;
                self.compare("after.gnt")?;
                self.remove("after.gnt");
                match tool {
                    Tool::Script => std::fs::remove_file(self.path(name)),
                    _ => std::fs::remove_dir_all(self.path(name)),
                }
                .map_err(|error| error.to_string())?;
                match self.path(&partial).exists() {
                    true => Err(format!("{partial} is still there")),
                    false => Ok(()),
                }
            }
            Tool::Load => {
                if !self.path("loaded.gnt").exists() {
                    self.works(&self.arguments(tool))?;
                }
                self.compare("loaded.gnt")?;
                self.remove("loaded.gnt");
                Ok(())
            }
            Tool::Verify | Tool::Sweep | Tool::Compact | Tool::Count | Tool::Check => {
                self.does(tool)?;
                self.compare("shop.gnt")
            }
        }
    }

    /// Looks at the copy that a restore has left, under its own name or the one that it has until it is complete. What is not complete is left where it
    /// is: doing it again is to put up with it.
    fn look_at_copy(&self, was_hit: bool) -> Outcome<()> {
        if self.path("copy.gnt.partial").exists() && self.compare("copy.gnt.partial").is_err() {
            self.is_refused(&["sql", "copy.gnt.partial", "-c", "select 1"])?;
        }
        match (self.path("copy.gnt").exists(), was_hit) {
            // It may have been complete, but for saying so.
            (true, true) if self.compare("copy.gnt").is_ok() => self.remove("copy.gnt"),
            (true, true) => self.is_refused(&["sql", "copy.gnt", "-c", "select 1"])?,
            (true, false) => self.compare("copy.gnt").map(|()| self.remove("copy.gnt"))?,
            (false, true) => {}
            (false, false) => return Err("there is no copy".to_owned()),
        }
        Ok(())
    }

    /// Whatever was removed from the archive: what is left has no gap.
    fn archive_is_whole(&self) -> Outcome<()> {
        let said = self.works(&["verify", "logs/logged", "--archive"])?;
        if said.contains("but for gaps") { Err(said) } else { Ok(()) }
    }

    /// Each backup of the folder has its two files, and nothing else is there.
    fn has_pairs(&self, folder: &str) -> Outcome<()> {
        let entries = std::fs::read_dir(self.path(folder)).expect("the folder is there");
        let names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        let stems = |ending: &str| {
            let mut stems: Vec<_> = names.iter().filter_map(|name| name.strip_suffix(ending)).collect();
            stems.sort_unstable();
            stems
        };
        let others = names
            .iter()
            .filter(|name| ![".json", ".gntbackup", ".lock"].iter().any(|end| name.ends_with(end)));
        match stems(".json") == stems(".gntbackup") && others.count() == 0 {
            true => Ok(()),
            false => Err(format!("{folder} has {names:?}")),
        }
    }

    /// Removes a database, whether or not it is there, with what it is called while it is loaded.
    fn remove(&self, database: &str) {
        for name in [database.to_owned(), format!("{database}.partial")] {
            let path = self.path(&name);
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir_all(Path::new(&format!("{}-wal", path.display())));
        }
    }
}
