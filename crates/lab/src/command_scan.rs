//! `gannet-lab scan`: one measurement of reading patterns, and of what goes with them; one JSON object. The experiment X1 is made of these.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_lab::admin::files::remove;
use gannet_lab::gannet::{forget_hot, mode};
use gannet_lab::scan::embedded::Embedded;
use gannet_lab::scan::read::{self, Pattern, Task};
use gannet_lab::scan::served::Served;
use gannet_lab::scan::synchronous::{self, Marked};
use gannet_lab::scan::{self, Base, Host, Plan, Rows, growth, neighbour, singles};
use gannet_lab::servers::{Kind, Options, database, make};
use gannet_lab::tune::trial::{copy_with_log, log_of};
use lexopt::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
gannet-lab scan: a table scanned, sorted, and read in the order of an index; one JSON object on standard output.

USAGE
    gannet-lab scan load --dir DIR --driver NAME --rows N             makes a database of the table and its index
    gannet-lab scan cold --dir DIR --driver NAME --rows N --limit SIZE --pattern PATTERN [--plan PLAN] [--most S]
    gannet-lab scan warm --dir DIR --driver NAME --rows N --limit SIZE [--times N] [--most S]
    gannet-lab scan singles --dir DIR --driver NAME --rows N --limit SIZE [--synchronous]
    gannet-lab scan grow --dir DIR --driver SERVER --rows N --limit SIZE [--parts N] [--most S]
    gannet-lab scan share --dir DIR --driver gannet-server --rows N --limit SIZE [--seconds S]
    gannet-lab scan neighbour --dir DIR --driver SERVER --rows N --limit SIZE --budget SIZE [--seconds S]

`singles` and `grow` make a database in DIR and remove it. `share` copies the one in DIR, and `neighbour` makes backups and
a file beside it, which they remove.

OPTIONS
    --driver NAME     gannet, sqlite, or a SERVER: gannet-server, postgresql, firebird (sqlite, firebird: built with `rivals`)
    --io MODE         of Gannet: auto, direct, uncached or buffered [auto]
    --limit SIZE      memory that the whole process may have; a server is held to it by a group of its own
    --budget SIZE     of that, Gannet's budget [nearly all], or Firebird's cache of pages
    --synchronous     every write to a file of the database is, by the file attribute S
    --fits            the database fits into it: rivals' caches are set for that
    --pattern NAME    scan (rows are counted), rows (all to the client), sort (by an unindexed column), tag (order of an index)
    --plan NAME       of tag: chosen, index or sort [chosen]
    --most S          whoever takes longer for one query from its first row on is ended then [600]
    --times N, --parts N, --seconds S, --seed N                                           [1, 10, 5, 1]
";

struct Arguments {
    words: Vec<String>,
    dir: PathBuf,
    file: PathBuf,
    driver: String,
    io: String,
    limit: u64,
    budget: Option<u64>,
    fits: bool,
    synchronous: bool,
    rows: u64,
    pattern: Option<Pattern>,
    plan: Plan,
    most: Duration,
    times: u32,
    parts: u64,
    seconds: u64,
    seed: u64,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Arguments>> {
    let mut arguments = Arguments {
        words: Vec::new(),
        dir: PathBuf::new(),
        file: PathBuf::new(),
        driver: "gannet".to_owned(),
        io: "auto".to_owned(),
        limit: 512 << 20,
        budget: None,
        fits: false,
        synchronous: false,
        rows: 0,
        pattern: None,
        plan: Plan::Chosen,
        most: Duration::from_secs(600),
        times: 1,
        parts: 10,
        seconds: 5,
        seed: 1,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) => arguments.words.push(word.string()?),
            Long("fits") => arguments.fits = true,
            Long("synchronous") => arguments.synchronous = true,
            // A client of PostgreSQL takes a relative path for a host's name, and its server works in its own folder.
            Long("dir") => arguments.dir = std::path::absolute(PathBuf::from(parser.value()?))?,
            Long("file") => arguments.file = parser.value()?.into(),
            Long("driver") => arguments.driver = parser.value()?.string()?,
            Long("io") => arguments.io = parser.value()?.string()?,
            Long("limit") => arguments.limit = parse_size(&parser.value()?.string()?)?,
            Long("budget") => arguments.budget = Some(parse_size(&parser.value()?.string()?)?),
            Long("rows") => arguments.rows = parser.value()?.parse()?,
            Long("pattern") => arguments.pattern = Some(Pattern::named(&parser.value()?.string()?)?),
            Long("plan") => arguments.plan = Plan::named(&parser.value()?.string()?)?,
            Long("most") => arguments.most = Duration::from_secs(parser.value()?.parse()?),
            Long("times") => arguments.times = parser.value()?.parse()?,
            Long("parts") => arguments.parts = parser.value()?.parse()?,
            Long("seconds") => arguments.seconds = parser.value()?.parse()?,
            Long("seed") => arguments.seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(arguments))
}

/// A server.
#[derive(Clone, Copy)]
enum Which {
    Served(Kind),
    #[cfg(feature = "rivals")]
    Firebird,
}

impl Arguments {
    /// Which server the driver is.
    fn server(&self) -> Result<Which> {
        match self.driver.as_str() {
            "gannet-server" => Ok(Which::Served(Kind::Gannet)),
            "postgresql" => Ok(Which::Served(Kind::PostgreSql)),
            #[cfg(feature = "rivals")]
            "firebird" => Ok(Which::Firebird),
            #[cfg(not(feature = "rivals"))]
            "firebird" => bail!("this build has no firebird: build with `--features rivals`"),
            other => bail!("--driver is gannet-server, postgresql or firebird here, not {other:?}"),
        }
    }

    /// Starts a server with the database, or makes one there.
    fn host(&self, which: Which, create: bool, limit: Option<u64>) -> Result<Box<dyn Host>> {
        match which {
            Which::Served(kind) => {
                if create {
                    make(kind, &self.dir)?;
                }
                Ok(Box::new(Served::start(&self.options(kind, limit)?)?))
            }
            #[cfg(feature = "rivals")]
            Which::Firebird => {
                use gannet_lab::scan::firebird::Firebird;
                Ok(Box::new(Firebird::start(&self.dir, limit, self.budget, self.fits, create)?))
            }
        }
    }

    fn options(&self, kind: Kind, limit: Option<u64>) -> Result<Options> {
        let mut options = Served::options(kind, &self.dir, limit, &self.io, self.fits)?;
        if let (Kind::Gannet, Some(budget)) = (kind, self.budget) {
            options.settings.extend(["--memory".to_owned(), budget.to_string()]);
        }
        Ok(options)
    }

    /// Opens the database, or makes one; a server that is to load has no limit.
    fn open(&self, create: bool, limit: Option<u64>) -> Result<Box<dyn Base>> {
        // Without a limit: enough for loading.
        let enough = limit.unwrap_or(1 << 30);
        match self.driver.as_str() {
            "gannet" => Ok(Box::new(Embedded::open(&self.dir, enough, mode(&self.io)?, create)?)),
            "gannet-server" | "postgresql" | "firebird" => Ok(self.host(self.server()?, create, limit)?),
            #[cfg(feature = "rivals")]
            "sqlite" => {
                Ok(Box::new(gannet_lab::scan::sqlite::Sqlite::open(&self.dir, enough, self.fits, create)?))
            }
            #[cfg(not(feature = "rivals"))]
            "sqlite" => bail!("this build has no sqlite: build with `--features rivals`"),
            other => {
                bail!("there is no driver {other:?}: gannet, gannet-server, sqlite, postgresql, firebird")
            }
        }
    }

    fn rows(&self) -> Rows {
        Rows::new(self.rows, self.seed)
    }
}

/// Closes a database, and adds what is cached of its files then, and how long that took.
fn closed(base: Box<dyn Base>, outcome: Result<Value>) -> Result<Value> {
    let (folder, began) = (base.folder(), Instant::now());
    let closed = base.close();
    let mut outcome = outcome?;
    closed?;
    outcome["close_seconds"] = json!(began.elapsed().as_secs_f64());
    outcome["cached_closed_bytes"] = json!(scan::watch::cached(&folder));
    Ok(outcome)
}

/// `gannet-lab scan`.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let Some(arguments) = parse(parser)? else {
        return crate::output::text(HELP);
    };
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    if let ["neighbour-program"] = *words {
        return neighbour::live(&arguments.file, &mut stdout().lock(), arguments.seed, stop);
    }
    if arguments.dir.as_os_str().is_empty() || arguments.rows == 0 {
        bail!("--dir and --rows are missing: see gannet-lab scan --help");
    }
    if arguments.synchronous && words != ["singles"] {
        bail!("--synchronous is for singles only");
    }
    let outcome = match *words {
        ["load"] => load(&arguments)?,
        ["cold"] => {
            let pattern = arguments.pattern.context("--pattern is missing: scan, rows, sort or tag")?;
            forget_hot(&arguments.dir)?;
            let base = arguments.open(false, Some(arguments.limit))?;
            let task = Task { pattern, plan: arguments.plan, most: arguments.most };
            let outcome = read::cold(&*base, task, &arguments.rows(), stop);
            closed(base, outcome)?
        }
        ["warm"] => {
            let base = arguments.open(false, Some(arguments.limit))?;
            let tasks = read::ALL.map(|(pattern, plan)| Task { pattern, plan, most: arguments.most });
            let outcome = read::warm(&*base, &tasks, arguments.times, &arguments.rows(), stop);
            closed(base, outcome)?
        }
        ["singles"] if arguments.synchronous => synchronous_singles(arguments, stop)?,
        ["singles"] => single_rows(&arguments, stop)?,
        ["grow"] => {
            let which = arguments.server()?;
            remove_left(&arguments.dir)?;
            let host = arguments.host(which, true, Some(arguments.limit))?;
            let (parts, most, seed) = (arguments.parts, arguments.most, arguments.seed);
            let outcome = growth::grow(&*host, &arguments.rows(), parts, most, seed, stop);
            removed(&arguments, closed(host, outcome))?
        }
        ["share"] => share(&arguments, stop)?,
        ["neighbour"] => {
            forget_hot(&arguments.dir)?;
            beside(&arguments, stop)?
        }
        _ => bail!("gannet-lab scan does not know {words:?}: see gannet-lab scan --help"),
    };
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    crate::output::line(outcome)
}

fn load(arguments: &Arguments) -> Result<Value> {
    let began = Instant::now();
    let base = arguments.open(true, None)?;
    scan::load(&*base, &arguments.rows())?;
    let (name, data) = (base.name(), base.data());
    base.close()?;
    // What is still to be written would be beside the next measurement.
    let synced = Command::new("sync").status();
    synced.context("cannot run sync (coreutils)")?;
    Ok(json!({
        "database": name,
        "rows": arguments.rows,
        "seconds": began.elapsed().as_secs_f64(),
        "size_bytes": scan::watch::size(&data),
    }))
}

fn single_rows(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    remove_left(&arguments.dir)?;
    let base = arguments.open(true, Some(arguments.limit))?;
    let mut outcome = singles::singles(&*base, &arguments.rows(), stop);
    if arguments.synchronous {
        outcome = outcome.and_then(|outcome| synchronous::check(&base.folder()).map(|()| outcome));
    }
    removed(arguments, closed(base, outcome))
}

/// The same in a folder below, each file of which has every write synchronous; or why there is none.
fn synchronous_singles(mut arguments: Arguments, stop: &AtomicBool) -> Result<Value> {
    let folder = arguments.dir.clone();
    fs::create_dir(&folder).with_context(|| format!("cannot make {folder:?}"))?;
    let outcome = match synchronous::mark(&folder)? {
        Marked::No(reason) => json!({ "unmeasured": reason }),
        Marked::Yes => {
            arguments.dir = folder.join("db");
            single_rows(&arguments, stop)?
        }
    };
    // A server's log is beside its database.
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {folder:?}"))?;
    Ok(outcome)
}

/// Removes a database that a measurement has left which was killed; nothing else.
fn remove_left(folder: &Path) -> Result<()> {
    let is_ours =
        ["lab.gnt", "lab.sqlite", "PG_VERSION", "lab.fdb"].iter().any(|name| folder.join(name).exists());
    if is_ours {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {folder:?}"))?;
    }
    Ok(())
}

/// Removes the database that was made for one measurement.
fn removed(arguments: &Arguments, outcome: Result<Value>) -> Result<Value> {
    let removed = fs::remove_dir_all(&arguments.dir);
    let outcome = outcome?;
    removed.with_context(|| format!("cannot remove {:?}", arguments.dir))?;
    Ok(outcome)
}

fn share(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    if arguments.driver != "gannet-server" {
        bail!("share is for gannet-server only");
    }
    // What was closed can be copied; its name is that of the file.
    let other = arguments.dir.join("other.gnt");
    let log = log_of(&other);
    // Of a measurement that was killed.
    remove(&other)?;
    remove(&log)?;
    forget_hot(&arguments.dir)?;
    copy_with_log(&database(&arguments.dir), &other)?;
    let mut options = arguments.options(Kind::Gannet, Some(arguments.limit))?;
    options.settings.push(other.display().to_string());
    let time = Duration::from_secs(arguments.seconds);
    let outcome = Served::start(&options).and_then(|served| {
        let outcome = growth::share(&served, ["lab", "other"], &arguments.rows(), time, stop);
        closed(Box::new(served), outcome)
    });
    remove(&other)?;
    remove(&log)?;
    outcome
}

fn beside(arguments: &Arguments, stop: &AtomicBool) -> Result<Value> {
    let which = arguments.server()?;
    let file = arguments.dir.with_extension("neighbour");
    neighbour::make(&file, arguments.limit / 2)?;
    let time = Duration::from_secs(arguments.seconds);
    let parts = neighbour::Parts { alone: time, beside: time * 2, after: time };
    let outcome = arguments.host(which, false, Some(arguments.limit)).and_then(|host| {
        let outcome = neighbour::measure(&*host, &file, parts, arguments.seed, stop);
        closed(host, outcome)
    });
    fs::remove_file(&file)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let go_on = AtomicBool::new(false);
        for (wrong, says) in [
            (&["cold", "--dir", "d", "--rows", "3"][..], "--pattern is missing"),
            (&["cold", "--rows", "3", "--pattern", "scan"], "--dir and --rows are missing"),
            (&["cold", "--dir", "d", "--rows", "3", "--pattern", "walk"], "--pattern is scan"),
            (&["load", "--dir", "d", "--rows", "3", "--driver", "oracle"], "no driver"),
            (
                &["grow", "--dir", "d", "--rows", "3", "--driver", "gannet"],
                "gannet-server, postgresql or firebird",
            ),
            (&["walk", "--dir", "d", "--rows", "3"], "does not know"),
            (&["load", "--dir", "d", "--rows", "3", "--synchronous"], "for singles only"),
        ] {
            let error = work(&mut lexopt::Parser::from_args(wrong), &go_on).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{wrong:?}: {error:#}");
        }
    }
}
