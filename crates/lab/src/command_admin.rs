//! `gannet-lab admin`: an administrator's tasks, alone and beside users: the steps of the experiment of this name.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_lab::admin::measure::{self, Times};
use gannet_lab::admin::place::Setup;
use gannet_lab::admin::task::{DATABASE, EXTENSIONS, Task};
use gannet_lab::admin::{files, studies};
use gannet_lab::confine::Group;
use gannet_lab::sides::{self, GANNET, POSTGRESQL, Server, Side};
use gannet_lab::tpcc::{Size, load};
use lexopt::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
gannet-lab admin: what an administrator's task costs, and whom. Each prints one JSON object.

USAGE
    gannet-lab admin STEP [OPTIONS]

STEPS
    load       makes the folder --base and fills it with TPC-C
    task       the task --task alone, and beside users
    sizes      tasks that go through all of the data, without users
    garbage    users as garbage grows, which a snapshot holds back (--held), or without one
    sweeps     sweeps of the old versions of one of so many rows, for each of the list --every
    changes    incremental backups after each of --shares was changed
    copy       copies the data files of --from to the new folder --to, by direct I/O
    within     does --task on the SQLite database --from, beside whoever uses it; a backup or a dump is the new file --to;
               a load makes the database --to from the dump --from

OPTIONS
    --server NAME     gannet, postgresql, firebird or sqlite [gannet]
    --base DIR        folder of the loaded data
    --scratch DIR     folder for a copy of it, removed afterwards
    --task NAME       copy, backup, incremental, restore, stat, check, sweep, dump, load or compact
    --warehouses N    of TPC-C [4]
    --sessions N      users [10]
    --memory SIZE     for server and tasks together, page cache included [128MiB]
    --seconds S       each time that counts [2]
    --warm-up S       the time before [2]
    --limit S         after so long a task beside users is ended [60]
    --sample S        how long a sample is [0.25]
    --seed N          seed of what users want [1]
    --conditions      looks at the end whether the conditions of TPC-C hold
    --held            under a snapshot
    --every LIST      [50,10,2]
    --shares LIST     [0,0.05,0.2,0.5]
    --from PATH       of copy and within
    --to PATH         of copy and within
    --help            this text
";

struct Arguments {
    step: String,
    side: Side,
    base: PathBuf,
    scratch: PathBuf,
    task: Option<Task>,
    size: Size,
    sessions: u32,
    memory: u64,
    times: Times,
    seed: u64,
    looks_at_conditions: bool,
    is_held: bool,
    every: Vec<u32>,
    shares: Vec<f64>,
    from: PathBuf,
    to: PathBuf,
}

fn list<T: FromStr>(text: &str) -> Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',').map(|part| Ok(part.trim().parse()?)).collect()
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Arguments>> {
    let times = Times {
        each: Duration::from_secs(2),
        warm_up: Duration::from_secs(2),
        limit: Duration::from_secs(60),
        sample: Duration::from_millis(250),
    };
    let mut arguments = Arguments {
        step: String::new(),
        side: GANNET,
        base: PathBuf::new(),
        scratch: PathBuf::new(),
        task: None,
        size: Size::new(4),
        sessions: 10,
        memory: 128 << 20,
        times,
        seed: 1,
        looks_at_conditions: false,
        is_held: false,
        every: vec![50, 10, 2],
        shares: vec![0.0, 0.05, 0.2, 0.5],
        from: PathBuf::new(),
        to: PathBuf::new(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            Long("conditions") => arguments.looks_at_conditions = true,
            Long("held") => arguments.is_held = true,
            Long(name) => {
                let name = name.to_owned();
                let text = parser.value()?.string()?;
                set(&mut arguments, &name, &text).with_context(|| format!("--{name} {text}"))?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    judge(&arguments)?;
    Ok(Some(arguments))
}

fn set(arguments: &mut Arguments, name: &str, text: &str) -> Result<()> {
    let seconds = || -> Result<Duration> { Ok(Duration::try_from_secs_f64(text.parse()?)?) };
    match name {
        "server" => {
            arguments.side =
                Side::named(text).context("--server is gannet, postgresql, firebird or sqlite")?;
        }
        // A client of PostgreSQL takes a relative path for a host's name.
        "base" => arguments.base = std::path::absolute(text)?,
        "scratch" => arguments.scratch = std::path::absolute(text)?,
        "task" => {
            let names = Task::ALL.map(Task::name).join(", ");
            arguments.task = Some(Task::named(text).with_context(|| format!("--task is one of {names}"))?);
        }
        "warehouses" => arguments.size = Size::new(text.parse()?),
        "sessions" => arguments.sessions = text.parse()?,
        "memory" => arguments.memory = parse_size(text)?,
        "seconds" => arguments.times.each = seconds()?,
        "warm-up" => arguments.times.warm_up = seconds()?,
        "limit" => arguments.times.limit = seconds()?,
        "sample" => arguments.times.sample = seconds()?,
        "seed" => arguments.seed = text.parse()?,
        "every" => arguments.every = list(text)?,
        "shares" => arguments.shares = list(text)?,
        "from" => arguments.from = text.into(),
        "to" => arguments.to = text.into(),
        _ => bail!("there is no such option; see gannet-lab admin --help"),
    }
    Ok(())
}

fn judge(arguments: &Arguments) -> Result<()> {
    let missing = |path: &PathBuf| path.as_os_str().is_empty();
    match &*arguments.step {
        "copy" if missing(&arguments.from) || missing(&arguments.to) => bail!("copy needs --from and --to"),
        "within" if missing(&arguments.from) => bail!("within needs --from"),
        "task" | "within" if arguments.task.is_none() => bail!("{} needs --task", arguments.step),
        "within" => within_can(arguments)?,
        "copy" => {}
        "load" if missing(&arguments.base) => bail!("load needs --base"),
        "task" | "sizes" | "garbage" | "sweeps" | "changes"
            if missing(&arguments.base) || missing(&arguments.scratch) =>
        {
            bail!("{} needs --base and --scratch", arguments.step)
        }
        "load" | "task" | "sizes" | "garbage" | "sweeps" | "changes" => {}
        other => bail!("there is no step {other:?}; see gannet-lab admin --help"),
    }
    if arguments.size.warehouses == 0 || arguments.sessions == 0 {
        bail!("--warehouses and --sessions are 1 or more");
    }
    if arguments.times.each < Duration::from_millis(500) || arguments.times.sample < Duration::from_millis(50)
    {
        bail!("--seconds is 0.5 or more, --sample 0.05 or more");
    }
    if arguments.every.contains(&0) {
        bail!("--every has numbers of 1 or more");
    }
    if arguments.shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
        bail!("--shares has numbers from 0 to 1");
    }
    Ok(())
}

/// Fails where SQLite has no such task, or it needs to be told where to put what it makes.
fn within_can(arguments: &Arguments) -> Result<()> {
    let Some(task) = arguments.task else { return Ok(()) };
    if !task.is_within() {
        bail!("within does backup, stat, check, dump, load or compact, and no {}", task.name());
    }
    if task.makes() && arguments.to.as_os_str().is_empty() {
        bail!("within needs --to for a {}", task.name());
    }
    Ok(())
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let Some(arguments) = parse(parser)? else {
        return crate::output::text(HELP);
    };
    let mut told = match &*arguments.step {
        "copy" => files::plain_copy(&arguments.from, &arguments.to)?,
        "within" => within(&arguments, stop)?,
        "load" => fill(&arguments, stop)?,
        _ => measured(&arguments, stop)?,
    };
    if !matches!(&*arguments.step, "copy" | "within") {
        told["machine"] = gannet_lab::machine::describe();
        // Whether anybody is held to the limit.
        told["has_group"] = Group::new(arguments.memory).is_some().into();
    }
    crate::output::line(told)
}

#[cfg(feature = "rivals")]
fn within(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    let task = arguments.task.context("within needs --task")?;
    let memory = gannet_lab::admin::task::own_memory(arguments.memory);
    gannet_lab::admin::within::perform(task, &arguments.from, &arguments.to, memory, stop)
}

#[cfg(not(feature = "rivals"))]
fn within(_: &Arguments, _: &AtomicBool) -> Result<Value> {
    sides::must_connect(sides::Side::Sqlite)?;
    bail!("SQLite is not built in")
}

fn measured(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    let setup = Setup {
        side: arguments.side,
        base: arguments.base.clone(),
        scratch: arguments.scratch.clone(),
        memory: arguments.memory,
        task: arguments.task.filter(|_| arguments.step == "task"),
        size: arguments.size,
        sessions: arguments.sessions,
        seed: arguments.seed,
    };
    match (&*arguments.step, arguments.task) {
        ("task", Some(task)) => {
            measure::task(&setup, task, arguments.times, arguments.looks_at_conditions, stop)
        }
        ("sizes", _) => studies::sizes(&setup, arguments.times.limit, stop),
        ("garbage", _) => studies::growing(&setup, arguments.is_held, arguments.times, stop),
        ("sweeps", _) => studies::sweeps(&setup, &arguments.every, arguments.times.limit, stop),
        _ => studies::changes(&setup, &arguments.shares, arguments.times.limit, stop),
    }
}

/// Makes the data that the others work on copies of: complete, with nothing left to be swept or written home.
fn fill(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    let (side, folder) = (arguments.side, &arguments.base);
    // Before anything is made.
    sides::must_connect(side)?;
    let began = Instant::now();
    side.make(folder)?;
    let options = sides::Options {
        side,
        folder: folder.clone(),
        memory: None,
        io: "auto".to_owned(),
        settings: Vec::new(),
    };
    let server = options.start()?;
    if let (Server::Wire(server), POSTGRESQL) = (&server, side) {
        let run = |database: &str, sql: &str| -> Result<()> {
            let answer = server.client(database)?.run(sql);
            answer.map(|_| ()).map_err(|error| anyhow::anyhow!("{sql}: {error}"))
        };
        run("postgres", &format!("create database {DATABASE}"))?;
        for extension in EXTENSIONS {
            run(DATABASE, &format!("create extension {extension}")).context(
                "PostgreSQL's contributed modules are missing: apt-get install postgresql-contrib",
            )?;
        }
    }
    let to = server.connect()?;
    let load = load::Load { size: arguments.size, seed: arguments.seed, loaders: 2 };
    let rows = load::tables(&*to, &load, |_| !stop.load(Ordering::Relaxed))?;
    let mut session = to.connect()?;
    load::finish(&mut *session, || !stop.load(Ordering::Relaxed))?;
    if matches!(side, Side::Wire(_)) {
        // Each has it behind him what rows need that were just loaded.
        session.batch("vacuum")?;
    }
    if side != GANNET {
        session.batch("checkpoint")?;
    }
    drop(session);
    server.stop()?;
    side.loaded(folder)?;
    Ok(json!({
        "server": side.title(),
        "warehouses": arguments.size.warehouses,
        "rows": rows,
        "seconds": began.elapsed().as_secs_f64(),
        "data_bytes": files::bytes(&files::data(folder)?),
        "folder_bytes": files::allocated(&files::all(folder)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Arguments>> {
        parse(&mut lexopt::Parser::from_args(words))
    }

    #[test]
    fn options_are_understood_and_mistakes_named() {
        let words = [
            "task",
            "--base",
            "b",
            "--scratch",
            "s",
            "--task",
            "dump",
            "--seconds",
            "1.5",
            "--server",
            "postgresql",
        ];
        let arguments = parsed(&words).unwrap().unwrap();
        assert_eq!((arguments.task, arguments.side), (Some(Task::Dump), POSTGRESQL));
        assert_eq!(arguments.times.each, Duration::from_millis(1500));
        for (wrong, says) in [
            (&["task", "--base", "b", "--scratch", "s"][..], "--task"),
            (&["task", "--task", "gstat"], "one of copy"),
            (&["sell"], "no step"),
            (&["load"], "--base"),
            (&["copy", "--from", "x"], "--to"),
            (&["within", "--task", "check"], "--from"),
            (&["within", "--task", "dump", "--from", "x"], "--to"),
            (&["within", "--task", "sweep", "--from", "x"], "no sweep"),
            (&["within", "--task", "copy", "--from", "x", "--to", "y"], "no copy"),
            (&["sweeps", "--base", "b", "--scratch", "s", "--every", "1,0"], "1 or more"),
            (&["changes", "--base", "b", "--scratch", "s", "--shares", "2"], "0 to 1"),
            (&["garbage", "--base", "b", "--scratch", "s", "--seconds", "0"], "0.5"),
        ] {
            let error = format!("{:#}", parsed(wrong).err().unwrap());
            assert!(error.contains(says), "{wrong:?}: {error}");
        }
    }
}
