//! `gannet-lab isolation`: random transactions judged by the checker, recorded histories, and the classic anomalies.

use anyhow::{Context, Result, anyhow, bail};
use gannet_lab::isolation::anomaly::Report;
use gannet_lab::isolation::check;
use gannet_lab::isolation::client::Client;
use gannet_lab::isolation::history::{History, Level};
use gannet_lab::isolation::run::{self, Levels, Options, Place};
use gannet_lab::isolation::script;
use gannet_lab::isolation::spawned::Spawned;
use gannet_lab::isolation::workload::Keys;
use gannet_server::frontend::Address;
use lexopt::prelude::*;
use serde_json::json;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Anomalies that are told in full.
const TOLD: usize = 5;

struct Arguments {
    step: String,
    file: Option<PathBuf>,
    url: Option<String>,
    serve: Option<PathBuf>,
    dir: PathBuf,
    seconds: Duration,
    options: Options,
    record: bool,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_micros() as u64 % 1_000_000_000;
    let options = Options {
        seed,
        sessions: 8,
        transactions: 2000,
        keys: Keys { count: 4, replace: false },
        levels: Levels::Mixed,
        crashes: 0,
    };
    let mut arguments = Arguments {
        step: String::new(),
        file: None,
        url: None,
        serve: None,
        dir: ".".into(),
        seconds: Duration::from_secs(20),
        options,
        record: false,
    };
    while let Some(argument) = parser.next()? {
        let options = &mut arguments.options;
        match argument {
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            Value(word) if arguments.file.is_none() => arguments.file = Some(word.into()),
            Long("url") => arguments.url = Some(parser.value()?.string()?),
            Long("serve") => arguments.serve = Some(parser.value()?.into()),
            // A client of PostgreSQL takes a relative path for a host's name, and its server works in its own folder.
            Long("dir") => arguments.dir = std::path::absolute(PathBuf::from(parser.value()?))?,
            Long("seconds") => arguments.seconds = Duration::from_secs(parser.value()?.parse()?),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("sessions") => options.sessions = parser.value()?.parse()?,
            Long("transactions") => options.transactions = parser.value()?.parse()?,
            Long("keys") => options.keys.count = parser.value()?.parse()?,
            Long("replace") => options.keys.replace = true,
            Long("kills") => options.crashes = parser.value()?.parse()?,
            Long("level") => options.levels = levels(&parser.value()?.string()?)?,
            Long("record") => arguments.record = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let options = &arguments.options;
    if options.sessions == 0 || options.keys.count == 0 || options.transactions <= options.crashes {
        bail!("--sessions and --keys are 1 or more, --transactions more than --kills");
    }
    Ok(arguments)
}

fn levels(name: &str) -> Result<Levels> {
    Ok(match name {
        "read-committed" => Levels::Only(Level::ReadCommitted),
        "repeatable-read" => Levels::Only(Level::RepeatableRead),
        "serializable" => Levels::Only(Level::Serializable),
        "mixed" => Levels::Mixed,
        other => bail!("--level is read-committed, repeatable-read, serializable or mixed, not {other:?}"),
    })
}

fn address(url: &str, user: &str) -> Result<Address> {
    Address::parse(url, &|name| std::env::var(name).ok(), user).map_err(|error| anyhow!(error))
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let arguments = parse(parser)?;
    let user = whoami::username().unwrap_or_else(|_| "gannet".to_owned());
    let file = || arguments.file.as_deref().context("the file or folder is missing; see --help");
    match &*arguments.step {
        "check" => judge_file(file()?),
        "run" => {
            let place: Box<dyn Place> = match (&arguments.url, &arguments.serve) {
                (Some(url), None) => Box::new(address(url, &user)?),
                (None, Some(binary)) => Box::new(Spawned::start(binary, &arguments.dir, &user)?),
                _ => bail!("give either --url or --serve"),
            };
            rounds(&*place, &arguments, stop)
        }
        "scripts" => {
            let address = address(arguments.url.as_deref().context("--url is missing")?, &user)?;
            scripts(file()?, &|| Client::connect(&address), arguments.record)
        }
        other => bail!("isolation is run, check or scripts, not {other:?}"),
    }
}

fn figures(report: &Report) -> serde_json::Value {
    json!({
        "committed": report.committed, "aborted": report.aborted, "unknown": report.unknown,
        "appends": report.appends, "reads": report.reads,
        "ww": report.dependencies.ww, "wr": report.dependencies.wr, "rw": report.dependencies.rw,
        "anomalies": report.anomalies.len(),
    })
}

fn judge_file(file: &Path) -> Result<()> {
    let history = History::read(BufReader::new(std::fs::File::open(file)?))?;
    let report = check::check(&history)?;
    crate::output::line(json!({ "workload": "isolation check", "measured": figures(&report) }))?;
    if !report.anomalies.is_empty() {
        bail!("{} anomalies\n{}", report.anomalies.len(), report.explain(&history, TOLD));
    }
    Ok(())
}

/// Rounds until the time is up; the first that is not as it must be ends it.
fn rounds(place: &dyn Place, arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let began = Instant::now();
    let (mut total, mut skews, mut count) = (Report::default(), 0, 0);
    while count == 0 || began.elapsed() < arguments.seconds && !stop.load(Ordering::Relaxed) {
        let options = Options { seed: arguments.options.seed + count, ..arguments.options.clone() };
        let history = run::round(place, &options).with_context(|| format!("seed {}", options.seed))?;
        let report = check::check(&history)?;
        if !report.anomalies.is_empty() {
            let file = arguments.dir.join(format!("isolation-{}.jsonl", options.seed));
            history.write(BufWriter::new(std::fs::File::create(&file)?))?;
            bail!(
                "seed {}: {} anomalies; the history is in {}\n{}",
                options.seed,
                report.anomalies.len(),
                file.display(),
                report.explain(&history, TOLD)
            );
        }
        skews += check::check_as(&history, Some(Level::Serializable))?.anomalies.len();
        total.add(&report);
        count += 1;
    }
    let mut measured = figures(&total);
    measured["rounds"] = count.into();
    measured["kills"] = (count * arguments.options.crashes).into();
    measured["not_serializable"] = skews.into();
    measured["seconds"] = began.elapsed().as_secs_f64().into();
    crate::output::line(json!({
        "workload": "isolation run", "seed": arguments.options.seed, "sessions": arguments.options.sessions,
        "transactions": arguments.options.transactions, "keys": arguments.options.keys.count, "replace": arguments.options.keys.replace,
        "levels": format!("{:?}", arguments.options.levels), "measured": measured,
    }))?;
    Ok(())
}

fn scripts(folder: &Path, connect: &dyn Fn() -> Result<Client>, record: bool) -> Result<()> {
    if record {
        let played = script::record(folder, connect)?;
        crate::output::line(json!({ "workload": "isolation scripts", "recorded": played }))?;
        return Ok(());
    }
    let (played, wrong) = script::compare(folder, connect)?;
    if !wrong.is_empty() {
        bail!("answers differ\n{wrong}");
    }
    crate::output::line(json!({ "workload": "isolation scripts", "played": played }))?;
    Ok(())
}
