//! Commands of the administrator, ended at any moment: by `kill -9`, or by Ctrl-C; embedded, or beside a server, which may be killed in
//! their place.
//!
//! Whatever was ended: the database has what it had, what is half done is not taken for done, and doing it again works.

use crate::server::{Options, STUCK, Server, command};
use crate::verify;
use gannet_base::sim::Generator;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// Rows of each of the two large tables, and bytes of a row, about.
const ROWS: (u64, u64) = (3000, 1500);
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
    Restore,
    Script,
    Folder,
    Load,
    Sweep,
    Compact,
    Count,
    Check,
}

const TOOLS: [Tool; 10] = [
    Tool::Backup,
    Tool::Increment,
    Tool::Restore,
    Tool::Script,
    Tool::Folder,
    Tool::Load,
    Tool::Sweep,
    Tool::Compact,
    Tool::Count,
    Tool::Check,
];

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
        Ok(tools)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, tool: Tool) -> Vec<&'static str> {
        match tool {
            Tool::Backup => vec!["backup", "shop.gnt", "backups"],
            Tool::Increment => vec!["backup", "shop.gnt", "backups", "--since", "latest"],
            Tool::Restore => vec!["restore", "backups", "copy.gnt"],
            Tool::Script => vec!["dump", "shop.gnt", "out.sql"],
            Tool::Folder => vec!["dump", "shop.gnt", "out", "--format", "csv"],
            Tool::Load => vec!["load", "kept.sql", "loaded.gnt", "--create"],
            Tool::Sweep => vec!["sweep", "shop.gnt"],
            Tool::Compact => vec!["compact", "shop.gnt"],
            Tool::Count => vec!["stat", "shop.gnt", "--records"],
            Tool::Check => vec!["check", "shop.gnt"],
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
        let works_on_it = !matches!(tool, Tool::Restore | Tool::Load);
        let options = Options { database: self.path("shop.gnt"), record: None, archive: None };
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

    /// Whether the file is sound.
    pub(crate) fn check(&self) -> Outcome<()> {
        verify::structure(&self.path("shop.gnt"))
    }

    /// Runs a command and ends it; gives the server that still runs, and whether the blow came before the end.
    fn strike(&mut self, tool: Tool, blow: Blow, server: Option<Server>) -> Outcome<(Option<Server>, bool)> {
        // What was not seen yet takes about as long as a dump.
        let time = *self.times.get(&tool).unwrap_or(&self.times[&Tool::Script]);
        let moment = time.mul_f64(self.random.below(1000) as f64 / 1000.0);
        let mut command = command();
        command.args(self.arguments(tool)).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let mut process = command.spawn().expect("the command runs");
        std::thread::sleep(moment);
        let mut server = server;
        // It may have ended by itself.
        let signal = |signal| kill_process(Pid::from_child(&process), signal).unwrap_or(());
        match blow {
            Blow::Kill => signal(Signal::KILL),
            Blow::Interrupt => signal(Signal::INT),
            Blow::KillServer => drop(server.take().map(Server::kill)),
        }
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
        if status.success() {
            self.times.insert(tool, begun.elapsed());
        }
        match (blow, status.code()) {
            // So early that it does not listen yet, or just at its end.
            (_, Some(0)) | (Blow::Kill | Blow::Interrupt, None) | (Blow::Interrupt, Some(130)) => {}
            (Blow::KillServer, Some(1 | 2)) => {}
            _ => return Err(format!("it ended with {status}")),
        }
        Ok((server, !status.success()))
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
                self.has_pairs()
            }
            Tool::Restore => {
                if self.path("copy.gnt").exists() {
                    match was_hit {
                        // It may have been complete, but for saying so.
                        true if self.compare("copy.gnt").is_ok() => self.remove("copy.gnt"),
                        true => self.is_refused(&["sql", "copy.gnt", "-c", "select 1"])?,
                        false => self.compare("copy.gnt").map(|()| self.remove("copy.gnt"))?,
                    }
                } else if !was_hit {
                    return Err("there is no copy".to_owned());
                }
                self.works(&self.arguments(tool))?;
                self.compare("copy.gnt")?;
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
            Tool::Sweep | Tool::Compact | Tool::Count | Tool::Check => {
                self.works(&self.arguments(tool))?;
                self.compare("shop.gnt")
            }
        }
    }

    /// Each backup of the folder has its two files, and nothing else is there.
    fn has_pairs(&self) -> Outcome<()> {
        let entries = std::fs::read_dir(self.path("backups")).expect("the folder is there");
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
            false => Err(format!("backups has {names:?}")),
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
