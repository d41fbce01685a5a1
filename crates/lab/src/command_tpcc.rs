//! `gannet-lab tpcc`: TPC-C over PostgreSQL's protocol, the same driver for whoever answers; or in an embedded Gannet.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_io::Profile;
use gannet_lab::gannet;
use gannet_lab::table::Table;
use gannet_lab::tpcc::connection::{Connect, Connection};
use gannet_lab::tpcc::{Size, check, load, run};
use lexopt::prelude::*;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, UNIX_EPOCH};

/// Options that say how terminals work: of no use to who loads or checks.
const OF_RUN: [&str; 7] = ["sessions", "seconds", "rate", "think", "sample", "each", "pipelined"];

#[derive(Debug)]
struct Arguments {
    step: String,
    plan: run::Plan,
    /// Where a server is, in libpq's words.
    url: Option<String>,
    /// Or the folder of an embedded database, and how it is opened.
    dir: Option<PathBuf>,
    /// Whether a server is asked several statements at once.
    pipelined: bool,
    memory: u64,
    profile: Option<Profile>,
    /// What each connection says first.
    setup: Option<String>,
    /// Where each transaction is written to.
    each: Option<PathBuf>,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let plan = run::Plan {
        size: Size::new(2),
        terminals: 8,
        time: std::time::Duration::from_secs(20),
        seed: 1,
        rate: None,
        think: None,
        sample: std::time::Duration::from_secs(1),
        each: false,
    };
    let mut arguments = Arguments {
        step: String::new(),
        plan,
        url: None,
        dir: None,
        pipelined: false,
        memory: 256 << 20,
        profile: None,
        setup: None,
        each: None,
    };
    let mut given = Vec::new();
    while let Some(argument) = parser.next()? {
        if let Long(name) = &argument {
            given.push((*name).to_owned());
        }
        match argument {
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            Long("url") => arguments.url = Some(parser.value()?.string()?),
            Long("dir") => arguments.dir = Some(parser.value()?.into()),
            Long("pipelined") => arguments.pipelined = true,
            Long("memory") => arguments.memory = parse_size(&parser.value()?.string()?)?,
            Long("profile") => arguments.profile = Some(crate::profile(&parser.value()?.string()?)?),
            Long("setup") => arguments.setup = Some(parser.value()?.string()?),
            Long("warehouses") => arguments.plan.size.warehouses = parser.value()?.parse()?,
            Long("sessions") => arguments.plan.terminals = parser.value()?.parse()?,
            Long("seconds") => arguments.plan.time = std::time::Duration::from_secs(parser.value()?.parse()?),
            Long("rate") => arguments.plan.rate = Some(parser.value()?.parse()?),
            Long("think") => arguments.plan.think = Some(parser.value()?.parse()?),
            Long("sample") => {
                arguments.plan.sample = std::time::Duration::try_from_secs_f64(parser.value()?.parse()?)?;
            }
            Long("each") => arguments.each = Some(parser.value()?.into()),
            Long("seed") => arguments.plan.seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    arguments.plan.each = arguments.each.is_some();
    let is_given = |name: &str| given.iter().any(|given| given == name);
    if arguments.step != "run"
        && let Some(name) = OF_RUN.into_iter().find(|name| is_given(name))
    {
        bail!("--{name} goes with tpcc run");
    }
    match (&arguments.url, &arguments.dir) {
        (Some(_), None) if arguments.profile.is_some() => bail!("--profile goes with --dir"),
        (Some(_), None) if is_given("memory") => bail!("--memory goes with --dir: a server has its own"),
        (None, Some(_)) if arguments.pipelined => {
            bail!("--pipelined goes with --url: within one process there is no way to and fro")
        }
        (Some(_), None) | (None, Some(_)) => {}
        _ => bail!("--url, where a server is in libpq's words, or --dir, the folder of an embedded database"),
    }
    if arguments.plan.size.warehouses == 0 || arguments.plan.terminals == 0 {
        bail!("--warehouses and --sessions are 1 or more");
    }
    if arguments.plan.sample < std::time::Duration::from_millis(50) {
        bail!("--sample is seconds, 0.05 or more");
    }
    if arguments.plan.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        bail!("--rate is transactions a second, more than 0");
    }
    if let Some(scale) = arguments.plan.think {
        if !(0.0..=100.0).contains(&scale) {
            bail!(
                "--think is a share of the specification's times: 1 is all of them, 0.01 a hundredth, 100 the most"
            );
        }
        if arguments.plan.rate.is_some() {
            bail!("--think is for terminals that wait for their answers: it does not go with --rate");
        }
    }
    Ok(arguments)
}

/// Connections that begin with some statements.
struct SetUp<'a> {
    to: &'a dyn Connect,
    statements: &'a str,
}

impl Connect for SetUp<'_> {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        let mut connection = self.to.connect()?;
        connection.batch(self.statements)?;
        Ok(connection)
    }
}

fn server(url: &str, pipelined: bool) -> Box<dyn Connect> {
    Box::new(gannet_lab::wire::Server { target: url.to_owned(), pipelined })
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    perform(&parse(parser)?, stop)
}

fn perform(arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let Some(dir) = &arguments.dir else {
        let url = arguments.url.as_deref().unwrap_or_default();
        return measure(arguments, &*server(url, arguments.pipelined), stop);
    };
    let options = gannet::Options {
        folder: dir.clone(),
        memory: arguments.memory,
        profile: arguments.profile,
        ..gannet::Options::default()
    };
    // An interrupted load leaves an empty database.
    let creates = arguments.step == "load" && !gannet::path(dir).exists();
    let table = Table::open(&options, creates)?;
    let measured = measure(arguments, &table.embedded(), stop);
    let closed = table.close();
    measured.and(closed)
}

/// Makes the tables. What an interrupted load has made goes again, so that nobody takes it for a whole one.
fn fill(to: &dyn Connect, load: &load::Load, stop: &AtomicBool) -> Result<()> {
    let goes_on = || !stop.load(Ordering::Relaxed);
    let filled =
        load::tables(to, load, |_| goes_on()).and_then(|_| load::finish(&mut *to.connect()?, goes_on));
    if filled.as_ref().is_err_and(|error| error.is::<load::Interrupted>()) {
        load::drop_tables(&mut *to.connect()?)
            .context("interrupted, and the tables, which are incomplete, cannot be dropped")?;
        bail!("interrupted: the tables, which were incomplete, are dropped");
    }
    filled
}

/// Looks whether the consistency conditions hold, one after the other; gives their number.
fn conditions(to: &dyn Connect, stop: &AtomicBool) -> Result<usize> {
    let mut connection = to.connect()?;
    for (seen, condition) in check::CONDITIONS.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted: {seen} of {} conditions hold", check::CONDITIONS.len());
        }
        let found = check::violations(&mut *connection, condition)
            .with_context(|| format!("condition {}", condition.number))?;
        if found > 0 {
            bail!("condition {} is violated {found} times: {}", condition.number, condition.says);
        }
    }
    Ok(check::CONDITIONS.len())
}

/// Lines of CSV: when a transaction came in (seconds since 1970), its latency in milliseconds, its kind.
fn write_each(path: &Path, outcome: &run::Outcome) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let began = outcome.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    for transaction in &outcome.each {
        let (came, latency) = (began + transaction.came, transaction.latency.as_secs_f64() * 1e3);
        writeln!(file, "{:.6},{latency:.3},{}", came.as_secs_f64(), transaction.kind.name())?;
    }
    file.into_inner()?.sync_all()
}

fn measure(arguments: &Arguments, to: &dyn Connect, stop: &AtomicBool) -> Result<()> {
    let statements = arguments.setup.as_deref().unwrap_or_default();
    let to = &SetUp { to, statements };
    let began = Instant::now();
    let measured = match arguments.step.as_str() {
        "load" => {
            let load = load::Load { size: arguments.plan.size, seed: arguments.plan.seed, loaders: 2 };
            fill(to, &load, stop)?;
            json!({ "seconds": began.elapsed().as_secs_f64() })
        }
        "run" => {
            let outcome = run::run(to, &arguments.plan, |_| !stop.load(Ordering::Relaxed))?;
            if let Some(path) = &arguments.each {
                write_each(path, &outcome).with_context(|| format!("cannot write {}", path.display()))?;
            }
            outcome.to_json()
        }
        "check" => {
            let conditions = conditions(to, stop)?;
            json!({ "conditions": conditions, "seconds": began.elapsed().as_secs_f64() })
        }
        other => bail!("tpcc is load, run or check, not {other:?}"),
    };
    let plan = &arguments.plan;
    crate::output::line(json!({
        "workload": format!("tpcc {}", arguments.step),
        "warehouses": plan.size.warehouses, "sessions": (arguments.step == "run").then_some(plan.terminals),
        "seed": plan.seed, "rate": plan.rate,
        "think": plan.think, "pipelined": arguments.pipelined,
        "memory_budget": arguments.dir.as_ref().map(|_| arguments.memory), "setup": arguments.setup,
        "slower_device": arguments.profile.map(|profile| format!("{profile:?}")),
        "measured": measured, "machine": gannet_lab::machine::describe(),
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments> {
        parse(&mut lexopt::Parser::from_args(words))
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let arguments = parsed(&["run", "--dir", "d", "--memory", "64MiB", "--sessions", "3"]).unwrap();
        assert_eq!((arguments.memory, arguments.plan.terminals), (64 << 20, 3));
        assert!(parsed(&["run", "--url", "host=here", "--rate", "10"]).is_ok());
        assert!(parsed(&["run", "--url", "host=here", "--pipelined"]).unwrap().pipelined);
        assert!(parsed(&["run", "--dir", "d", "--pipelined"]).is_err());
        for step in ["load", "run", "check"] {
            let error = parsed(&[step, "--url", "host=here", "--memory", "64MiB"]).unwrap_err();
            assert_eq!(error.to_string(), "--memory goes with --dir: a server has its own");
        }
        for name in OF_RUN {
            for step in ["load", "check"] {
                let option = format!("--{name}");
                let mut words = vec![step, "--dir", "d", &option];
                words.extend((name != "pipelined").then_some("1"));
                let error = parsed(&words).unwrap_err();
                assert_eq!(error.to_string(), format!("--{name} goes with tpcc run"));
            }
        }
        assert!(parsed(&["load", "--dir", "d", "--warehouses", "1", "--seed", "2"]).is_ok());
    }

    fn arguments(step: &str, dir: &Path) -> Arguments {
        let dir = dir.display().to_string();
        let mut arguments = parsed(&[step, "--dir", &dir, "--memory", "32MiB", "--warehouses", "1"]).unwrap();
        arguments.plan.size = Size::new(1).shrunk(100);
        arguments
    }

    #[test]
    fn a_signal_ends_load_and_check_and_leaves_no_half_of_a_database() {
        let folder = tempfile::tempdir().unwrap();
        let work = |step: &str, stop: bool| perform(&arguments(step, folder.path()), &AtomicBool::new(stop));
        let error = work("load", true).unwrap_err();
        assert_eq!(error.to_string(), "interrupted: the tables, which were incomplete, are dropped");
        // It can be done again where it was.
        work("load", false).unwrap();
        let error = work("check", true).unwrap_err();
        assert!(error.to_string().starts_with("interrupted: 0 of "), "{error}");
        work("check", false).unwrap();
        // A load into tables that are there is none that was interrupted: they stay.
        assert!(work("load", true).unwrap_err().to_string().contains("already exists"));
        work("check", false).unwrap();
    }
}
