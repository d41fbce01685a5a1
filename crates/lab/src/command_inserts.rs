//! `gannet-lab inserts`: the load of many inserts and some updates, against one configuration of Gannet's server, or of PostgreSQL's.

use anyhow::{Context, Result, bail};
use gannet_base::units::parse_size;
use gannet_lab::servers::{self, Kind};
use gannet_lab::tune::builtin::{self, Size};
use gannet_lab::tune::rival;
use gannet_lab::tune::trial::{self, Config, Setup};
use gannet_store::CreateOptions;
use lexopt::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Budget in which tables are filled.
const LOAD_MEMORY: u64 = 512 << 20;

struct Arguments {
    step: String,
    kind: Kind,
    dir: PathBuf,
    bytes: u64,
    segment_size: u64,
    reports: u32,
    config: Config,
    is_confined: bool,
    warm_up: Duration,
    measure: Duration,
    seed: u64,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let config = Config {
        memory: 64 << 20,
        page_size: 8192,
        sort_memory: 0,
        connections: 20,
        is_synchronous: true,
        io: "auto".to_owned(),
    };
    let mut arguments = Arguments {
        step: String::new(),
        kind: Kind::Gannet,
        dir: PathBuf::new(),
        bytes: 128 << 20,
        segment_size: CreateOptions::default().segment_size,
        reports: 0,
        config,
        is_confined: false,
        warm_up: Duration::from_secs(2),
        measure: Duration::from_secs(10),
        seed: 1,
    };
    while let Some(argument) = parser.next()? {
        let config = &mut arguments.config;
        match argument {
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            // A client of PostgreSQL takes a relative path for a host's name, and its server works in its own folder.
            Long("dir") => arguments.dir = std::path::absolute(PathBuf::from(parser.value()?))?,
            Long("server") => {
                let name = parser.value()?.string()?;
                arguments.kind = Kind::named(&name)
                    .with_context(|| format!("--server is gannet or postgresql, not {name:?}"))?;
            }
            Long("size") => arguments.bytes = parse_size(&parser.value()?.string()?)?,
            Long("segment") => arguments.segment_size = parse_size(&parser.value()?.string()?)?,
            Long("reports") => arguments.reports = parser.value()?.parse()?,
            Long("memory") => config.memory = parse_size(&parser.value()?.string()?)?,
            Long("page-size") => config.page_size = parse_size(&parser.value()?.string()?)?,
            Long("sort-memory") => config.sort_memory = parse_size(&parser.value()?.string()?)?,
            Long("connections") => config.connections = parser.value()?.parse()?,
            Long("asynchronous") => config.is_synchronous = false,
            Long("io") => config.io = parser.value()?.string()?,
            Long("confined") => arguments.is_confined = true,
            Long("seconds") => arguments.measure = crate::seconds(&parser.value()?.string()?)?,
            Long("warm-up") => arguments.warm_up = crate::seconds(&parser.value()?.string()?)?,
            Long("seed") => arguments.seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if arguments.dir.as_os_str().is_empty() {
        bail!("--dir is missing: the folder of the database that the load is for");
    }
    if arguments.config.connections == 0 || arguments.measure.is_zero() {
        bail!("--connections is 1 or more, --seconds more than 0");
    }
    Ok(arguments)
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let arguments = parse(parser)?;
    let size = Size::of_bytes(arguments.bytes);
    match &*arguments.step {
        "load" => load(&arguments, size, stop),
        "run" => {
            let setup = Setup {
                template: match arguments.kind {
                    Kind::Gannet => servers::database(&arguments.dir),
                    Kind::PostgreSql => arguments.dir.clone(),
                },
                folder: arguments.dir.with_extension("run"),
                is_confined: arguments.is_confined,
                mix: size.mix(arguments.reports)?,
                size: Some(size),
                warm_up: arguments.warm_up,
                measure: arguments.measure,
                seed: arguments.seed,
            };
            let measured = match arguments.kind {
                Kind::Gannet => trial::run(&setup, &arguments.config, stop),
                Kind::PostgreSql => rival::run(&setup, &arguments.config, stop),
            };
            let mut measured = measured.with_context(|| arguments.config.describe())?;
            measured["rows"] = json!(size.rows);
            measured["reports"] = json!(arguments.reports);
            crate::output::line(json!({ "workload": "inserts", "measured": measured }))?;
            Ok(())
        }
        other => bail!("inserts is load or run, not {other:?}"),
    }
}

fn load(arguments: &Arguments, size: Size, stop: &AtomicBool) -> Result<()> {
    let begun = Instant::now();
    let page_size = arguments.config.page_size;
    let file = match arguments.kind {
        Kind::Gannet => {
            make(&arguments.dir, size, (page_size, arguments.segment_size), arguments.seed)?;
            servers::database(&arguments.dir)
        }
        Kind::PostgreSql => {
            rival::make(&arguments.dir, size, arguments.seed)?;
            arguments.dir.join("base")
        }
    };
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let bytes = gannet_lab::folders::bytes(&file)?;
    crate::output::line(json!({
        "workload": "inserts load", "rows": size.rows, "page_size": page_size, "segment_size": arguments.segment_size, "file_bytes": bytes,
        "seconds": begun.elapsed().as_secs_f64(),
    }))?;
    Ok(())
}

/// Makes a database with the load's tables, filled; `sizes` are those of its pages, and of the segments of its log.
pub(crate) fn make(dir: &Path, size: Size, sizes: (u64, u64), seed: u64) -> Result<()> {
    servers::make(Kind::Gannet, dir)?;
    trial::create(&servers::database(dir), sizes.0, sizes.1)?;
    let server = servers::whole(dir, LOAD_MEMORY).start()?;
    builtin::fill(&server.address("lab"), size, seed)?;
    servers::end_whole(server)
}
