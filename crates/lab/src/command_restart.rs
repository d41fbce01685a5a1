//! `gannet-lab restart`: the steps of the experiment `restart`: a load, a kill, starts afterwards, and shutdowns.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_lab::restart::life::{self, Purpose};
use gannet_lab::restart::{Setup, Side, embedded};
use lexopt::prelude::*;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

struct Arguments {
    step: String,
    setup: Setup,
    from: PathBuf,
    to: PathBuf,
    purpose: Purpose,
    again: bool,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let (mut step, mut side, mut profile, mut width, mut write_rate) = (None, None, None, None, None);
    let (mut from, mut to, mut purpose, mut again) = (None, None, Purpose::Rest, false);
    let mut setup = Setup {
        side: Side::Gannet,
        memory: 256 << 20,
        io: "auto".to_owned(),
        log: 192 << 20,
        sessions: 16,
        rows: 1_000_000,
        branches: 16,
        profile: None,
        program: None,
        time: Duration::from_secs(10),
        seed: 1,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) if step.is_none() => step = Some(word.string()?),
            Long("again") => again = true,
            Long("from") => from = Some(PathBuf::from(parser.value()?)),
            Long("to") => to = Some(PathBuf::from(parser.value()?)),
            Long(name) => {
                let name = name.to_owned();
                let text = parser.value()?.string()?;
                match &*name {
                    "side" => side = Some(named("--side", &Side::ALL, Side::name, &text)?),
                    "purpose" => purpose = named("--purpose", &Purpose::ALL, Purpose::name, &text)?,
                    "profile" => profile = Some((text.clone(), crate::profile(&text)?)),
                    "width" => width = Some(text.parse()?),
                    "write-rate" => write_rate = Some(parse_size(&text)?),
                    _ => set(&mut setup, &name, &text).with_context(|| format!("--{name} {text}"))?,
                }
            }
            other => return Err(other.unexpected().into()),
        }
    }
    setup.side = side.context("--side is missing: who is killed")?;
    if let Some((_, profile)) = &mut profile {
        profile.width = width.unwrap_or(profile.width);
        profile.write_bytes_per_second = write_rate.unwrap_or(profile.write_bytes_per_second);
        if profile.width == 0 || profile.write_bytes_per_second == 0 {
            bail!("--width and --write-rate are more than 0");
        }
    }
    setup.profile = profile;
    if setup.profile.is_some() && setup.side != Side::Gannet {
        bail!("--profile models a device for the embedded Gannet only: --side gannet");
    }
    if setup.sessions == 0 || setup.rows == 0 || setup.branches == 0 || setup.log == 0 {
        bail!("--sessions, --rows, --branches and --log are more than 0");
    }
    let step = step.context("which step: load, crash, steady, loaded or rest")?;
    let from = match (&*step, from) {
        ("load", None) => PathBuf::new(),
        (_, from) => from.context("--from is missing: the folder to begin with")?,
    };
    let to = match (&*step, to) {
        ("life", None) => PathBuf::new(),
        (_, to) => to.context("--to is missing: the folder to be made")?,
    };
    Ok(Arguments { step, setup, from, to, purpose, again })
}

fn named<T: Copy>(option: &str, all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T> {
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.with_context(|| {
        let names: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        format!("{option} is {}, not {text:?}", names.join(", "))
    })
}

fn set(setup: &mut Setup, name: &str, text: &str) -> Result<()> {
    match name {
        "memory" => setup.memory = parse_size(text)?,
        "program" => setup.program = Some(PathBuf::from(text)),
        "io" => setup.io = text.to_owned(),
        "log" => setup.log = parse_size(text)?,
        "sessions" => setup.sessions = text.parse()?,
        "rows" => setup.rows = text.parse()?,
        "branches" => setup.branches = text.parse()?,
        "seconds" => setup.time = Duration::try_from_secs_f64(text.parse()?)?,
        "seed" => setup.seed = text.parse()?,
        _ => bail!("there is no such option: see gannet-lab --help"),
    }
    Ok(())
}

fn served(arguments: &Arguments, stop: &AtomicBool) -> Result<Json> {
    use gannet_lab::restart::wire;
    let Arguments { setup, from, to, again, .. } = arguments;
    match &*arguments.step {
        "load" => wire::load(setup, to),
        "crash" => wire::crash(setup, from, to, stop),
        "loaded" => wire::loaded(setup, from, to, stop),
        "rest" => wire::rest(setup, from, to, *again, stop),
        other => bail!("of a server a step is load, crash, loaded or rest, not {other:?}"),
    }
}

/// Runs the command; one JSON object on standard output, but of a life, which prints several. `begun` is when the process was started.
pub(crate) fn work(parser: &mut lexopt::Parser, begun: Instant, stop: &AtomicBool) -> Result<()> {
    let arguments = parse(parser)?;
    let Arguments { setup, from, to, again, .. } = &arguments;
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (from, to) = (absolute(from), absolute(to));
    let result = match &*arguments.step {
        "life" => return life::live(setup, &from, arguments.purpose, begun, stop),
        _ if setup.side.is_wire() => served(&Arguments { from, to, ..arguments }, stop)?,
        "load" => embedded::load(setup, &to, stop)?,
        "crash" => embedded::crash(setup, &from, &to, stop)?,
        "steady" => embedded::steady(setup, &from, &to, stop)?,
        "loaded" => embedded::loaded(setup, &from, &to, stop)?,
        "rest" => embedded::rest(setup, &from, &to, *again, stop)?,
        other => bail!("a step is load, crash, steady, loaded or rest, not {other:?}"),
    };
    crate::output::line(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments> {
        parse(&mut lexopt::Parser::from_args(words))
    }

    #[test]
    fn options_are_understood_and_mistakes_named() {
        let words = ["rest", "--side", "gannet", "--from", "a", "--to", "b", "--profile", "slow-wide"];
        let arguments =
            parsed(&[&words[..], &["--width", "1", "--seconds", "2.5", "--again"]].concat()).unwrap();
        assert_eq!(arguments.setup.profile.map(|(_, profile)| profile.width), Some(1));
        assert_eq!((arguments.setup.time, arguments.again), (Duration::from_millis(2500), true));
        for (wrong, says) in [
            (&["rest"][..], "--side is missing"),
            (&["rest", "--side", "x"], "wire-gannet, wire-postgresql, gannet, sqlite, berkeley-db"),
            (&["rest", "--side", "gannet"], "--from is missing"),
            (&["load", "--side", "gannet"], "--to is missing"),
            (&["rest", "--side", "sqlite", "--profile", "slow-wide"], "--side gannet"),
            (&["rest", "--side", "gannet", "--log", "much"], "--log much"),
            (&["rest", "--side", "gannet", "--sessions", "0"], "more than 0"),
            (&["rest", "--side", "gannet", "--profile", "slow-wide", "--width", "0"], "more than 0"),
        ] {
            let error = parsed(wrong).err().map(|error| format!("{error:#}")).unwrap();
            assert!(error.contains(says), "{wrong:?}: {error}");
        }
    }
}
