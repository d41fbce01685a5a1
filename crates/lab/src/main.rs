//! The laboratory's command line.

mod command_admin;
mod command_compare;
mod command_inserts;
mod command_isolation;
mod command_lab;
mod command_restart;
mod command_scale;
mod command_scan;
mod command_tpcc;
mod command_tune;
mod output;
mod tune_sources;

use anyhow::{Context, Result, bail};
use gannet_base::units::{parse_duration, parse_size};
use gannet_io::{ModeRequest, Profile};
use gannet_lab::driver::{Driver, LoadOrder, Rows};
use gannet_lab::gannet::mode;
use gannet_lab::rivals::Program;
use gannet_lab::run::{Outcome, Plan};
use gannet_lab::table::Table;
use gannet_lab::{gannet, report, workload};
use lexopt::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const HELP: &str = "\
gannet-lab: measures stores with the same key-value workloads; one JSON object per measurement on standard output.

USAGE
    gannet-lab list | run EXPERIMENT | report RUN... | compare RUN RUN      experiments: see gannet-lab run --help
    gannet-lab device --file FILE [--sequential [--profile NAME [--width N]] | --sync-writes] [--block BYTES] [--threads T[,T]...] [--seconds S] [--seed N]
    gannet-lab tune DB [OPTIONS]                                            settings for a load: see gannet-lab tune --help
    gannet-lab store WORKLOAD --dir DIR [OPTIONS]
    gannet-lab sql --dir DIR [--memory SIZE] [--page-size BYTES] [--create] STATEMENT...
    gannet-lab scan load|cold|warm|singles|grow|share|neighbour --dir DIR --driver NAME --rows N --limit SIZE [OPTIONS]
    gannet-lab tpcc load|check (--url WORDS | --dir DIR [--memory SIZE] [--profile NAME]) [--warehouses N] [--seed N]
                             [--setup STATEMENTS]
    gannet-lab tpcc run (--url WORDS | --dir DIR [--memory SIZE] [--profile NAME]) [--warehouses N] [--sessions N]
                             [--seconds S] [--rate TPS | --think SHARE] [--sample S] [--seed N] [--setup STATEMENTS]
                             [--each FILE]
    gannet-lab scale load --server NAME --to FOLDER [--warehouses N] [--seed N]
    gannet-lab scale run --server NAME --from FOLDER --to FOLDER --memory SIZE [--warehouses N] [--sessions N] [--warm-up S]
                             [--settle S] [--seconds S] [--profile NAME] [--io MODE] [--setting WORD]... [--fits] [--seed N]
    gannet-lab restart load|crash|steady|loaded|rest --side SIDE [--from FOLDER] --to FOLDER [--log SIZE] [--memory SIZE]
                             [--rows N | --branches N] [--sessions N] [--seconds S]
                             [--profile NAME [--width N] [--write-rate SIZE]] [--again] [--seed N]
    gannet-lab rival berkeley-db|lmdb|rocksdb --to FOLDER
    gannet-lab isolation run (--url ADDRESS | --serve GANNET [--kills N]) [--dir DIR] [--level LEVEL] [--seconds S]
                             [--seed N] [--sessions N] [--transactions N] [--keys N] [--replace]
    gannet-lab isolation check FILE
    gannet-lab isolation scripts FOLDER --url ADDRESS [--record]

`sql` runs statements in an embedded Gannet one after the other, throws their rows away, and reports each one's time and
what the device did for it. `tpcc` asks a server, which needs the feature `rivals`; WORDS are those of libpq:
\"host=... user=... dbname=...\". Or it has its own Gannet in DIR, and tells also how many reads a transaction waits for.
With --rate transactions come in at random times, whether or not those before have ended, and their latency counts from then.
With --each FILE each transaction is a line of it: when it came in (seconds since 1970), its latency in ms, its kind.
With --think users type and think between transactions, for that share of the times that the specification has (1: as it says).
`scale` starts gannet or postgresql itself: `load` makes a folder of TPC-C's tables, `run` lets --sessions [25] work on a copy of it
with --memory in all, page cache included, and checks them afterwards; the device is limited (--profile) after the warm-up.
With --fits it is read once before that, and rivals' own caches have room for all of it.
`restart` kills: `load` makes a database, `crash` loads a copy of it until there is so much log and kills it, `loaded` starts a copy of what that has
left and loads it from its first commit on, `rest` leaves it in peace, and with --again kills it in between. SIDE is wire-gannet, wire-postgresql (TPC-B
by a server), gannet, sqlite or berkeley-db (rows written anew, embedded; the last with --program, what `rival` has built). What was acknowledged has to be there each time.
`inserts` is a load of many inserts and some updates by connections to Gannet's server, or with --server postgresql to that one: `load` makes a database with a table of SIZE, `run`
measures one configuration on a copy of it; with --reports N one transaction in N is a report that sorts; --confined holds the server by a memory cgroup.
`rival` builds the program by which a C library takes the workloads load, lookups, multiget and updates; it needs a C compiler and the library's headers.
`isolation run` lets sessions run random transactions, in rounds of --transactions [2000], and judges what they were told; at
LEVEL read-committed, repeatable-read, serializable, or mixed [mixed]. ADDRESS is a postgres:// one of any server, whose tables
iso_* are made anew; GANNET is a binary that is served in DIR [.] and killed N times a round. --replace
also deletes rows and inserts them anew, which PostgreSQL takes another way at read-committed. A history that is wrong is
written to DIR, for `isolation check`. `isolation scripts` plays the classic anomalies and compares, or records, what comes out.

WORKLOADS
    load         make a new store and fill it
    lookups      uniform point look-ups
    multiget     uniform look-ups in batches
    misses       device reads of look-ups that miss, one look-up at a time
    scan         full scans in key order
    commits      new rows, each in a synchronous transaction of its own
    restart      the first update after the store is opened, then `updates` from the first moment on, or with --reading
                 `lookups`; with --seconds 0 until the restart has come to its end; all others forget the list of hot pages first
    updates      random rows written anew, each in a synchronous transaction of its own
    hot          look-ups among the first --hot-rows rows, inside one open read transaction

OPTIONS
    --dir DIR            folder of the store (required)
    --driver NAME        gannet (default); gannet-sql: the same rows as a table; sqlite, when built with the feature
                         `rivals`
    --memory SIZE        memory budget [256MiB]; of sqlite, of the caches of all sessions together
    --rows N             rows loaded [1000000]
    --value-size BYTES   bytes of a value; keys have 8 [192]
    --page-size BYTES    bytes of a page, for `load` [8192]
    --io MODE            auto, direct, uncached or buffered [auto]
    --wal-limit SIZE     log a restart may have to go through [1GiB]
    --profile NAME       a modelled device: slow-wide or raid10 (gannet only)
    --width N            requests that the modelled device works on at one time [as the profile says]
    --interval S         how often operations are counted [1]
    --order ORDER        order of `load`: sorted or random [sorted]
    --threads T          threads, each with a session of its own [1]
    --seconds S          measured time [10]
    --warm-up S          time before that [2]
    --warm-up-threads T  threads in that time, where they are to be more
    --batch N            keys of one `multiget` [256]
    --times N            number of scans; look-ups of `misses` in thousands [3]
    --hot-rows N         rows of `hot` [10000]
    --seed N             seed of random keys [1]
    --help               this text

Ctrl-C ends a run early; what was measured until then is still reported, marked as interrupted. A load of `tpcc` drops what it has made then.
";

#[derive(Debug)]
struct Arguments {
    workload: String,
    dir: PathBuf,
    driver: String,
    memory: u64,
    rows: Rows,
    page_size: usize,
    mode: ModeRequest,
    wal_limit: u64,
    profile: Option<Profile>,
    width: Option<usize>,
    reading: bool,
    order: LoadOrder,
    plan: Plan,
    batch: usize,
    times: usize,
    hot_rows: u64,
    create: bool,
    /// Of `sql`.
    statements: Vec<String>,
}

impl Default for Arguments {
    fn default() -> Self {
        Arguments {
            workload: String::new(),
            dir: PathBuf::new(),
            driver: "gannet".to_owned(),
            memory: 256 << 20,
            rows: Rows { count: 1_000_000, value_len: 192 },
            page_size: 8192,
            mode: ModeRequest::Auto,
            wal_limit: 1 << 30,
            profile: None,
            width: None,
            reading: false,
            order: LoadOrder::Sorted,
            plan: Plan::default(),
            batch: 256,
            times: 3,
            hot_rows: 10_000,
            create: false,
            statements: Vec::new(),
        }
    }
}

fn seconds(text: &str) -> Result<std::time::Duration> {
    let with_unit =
        if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text}s") } else { text.into() };
    Ok(parse_duration(&with_unit)?)
}

fn profile(name: &str) -> Result<Profile> {
    let profile = Profile::named(name);
    profile.with_context(|| format!("--profile is {}, not {name:?}", Profile::NAMES.join(" or ")))
}

fn order(name: &str) -> Result<LoadOrder> {
    Ok(match name {
        "sorted" => LoadOrder::Sorted,
        "random" => LoadOrder::Random,
        other => bail!("--order is sorted or random, not {other:?}"),
    })
}

/// What is to be done; `None` when only help was asked for.
fn parse(mut parser: lexopt::Parser) -> Result<Option<Arguments>> {
    let mut arguments = Arguments::default();
    let mut words = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(word) => words.push(word.string()?),
            Long("create") => arguments.create = true,
            Long("reading") => arguments.reading = true,
            Long(name) => {
                let name = name.to_owned();
                let text = parser.value()?.string()?;
                set(&mut arguments, &name, &text).with_context(|| format!("--{name} {text}"))?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    match words.as_slice() {
        [] => return Ok(None),
        [group, workload] if group == "store" => arguments.workload = workload.clone(),
        [group, statements @ ..] if group == "sql" && !statements.is_empty() => {
            arguments.workload = "sql".to_owned();
            arguments.statements = statements.to_vec();
        }
        _ => bail!("expected `store` and one workload, not {words:?}; see --help"),
    }
    if arguments.dir.as_os_str().is_empty() {
        bail!("--dir is missing: the folder of the store");
    }
    Ok(Some(arguments))
}

fn set(arguments: &mut Arguments, name: &str, text: &str) -> Result<()> {
    match name {
        "dir" => arguments.dir = text.into(),
        "driver" => arguments.driver = text.to_owned(),
        "memory" => arguments.memory = parse_size(text)?,
        "rows" => arguments.rows.count = text.parse()?,
        "value-size" => arguments.rows.value_len = text.parse()?,
        "page-size" => arguments.page_size = text.parse()?,
        "io" => arguments.mode = gannet::mode(text)?,
        "wal-limit" => arguments.wal_limit = parse_size(text)?,
        "profile" => arguments.profile = Some(profile(text)?),
        "width" => arguments.width = Some(text.parse()?),
        "interval" => arguments.plan.interval = seconds(text)?,
        "order" => arguments.order = order(text)?,
        "threads" => arguments.plan.threads = text.parse()?,
        "seconds" => arguments.plan.measure = seconds(text)?,
        "warm-up" => arguments.plan.warm_up = seconds(text)?,
        "warm-up-threads" => arguments.plan.warm_up_threads = text.parse()?,
        "batch" => arguments.batch = text.parse()?,
        "times" => arguments.times = text.parse()?,
        "hot-rows" => arguments.hot_rows = text.parse()?,
        "seed" => arguments.plan.seed = text.parse()?,
        _ => bail!("there is no such option; see --help"),
    }
    Ok(())
}

fn options(arguments: &Arguments) -> gannet::Options {
    gannet::Options {
        folder: arguments.dir.clone(),
        memory: arguments.memory,
        page_size: arguments.page_size,
        mode: arguments.mode,
        wal_limit: arguments.wal_limit,
        profile: arguments
            .profile
            .map(|profile| Profile { width: arguments.width.unwrap_or(profile.width), ..profile }),
    }
}

/// Runs statements in an embedded database, one JSON object each.
fn statements(arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let table = Table::open(&options(arguments), arguments.create)?;
    for sql in &arguments.statements {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let (before, began) = (table.counters(), Instant::now());
        let rows = table.run(sql)?;
        let seconds = began.elapsed().as_secs_f64();
        let counters = table.counters().since(&before);
        let measured = json!({
            "sql": sql,
            "rows": rows,
            "seconds": seconds,
            "device": counters.device_json(seconds),
            "pool": counters.pool_json(),
        });
        output::line(report::measurement(&table, "sql", &arguments.rows, json!({}), measured))?;
    }
    Box::new(table).close()
}

/// Builds a rival's program.
fn rival(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut name, mut to) = (None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) if name.is_none() => name = Some(word.string()?),
            Long("to") => to = Some(PathBuf::from(parser.value()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    let names = || gannet_lab::rivals::ALL.map(|program| program.name).join(", ");
    let name = name.with_context(|| format!("which rival: one of {}", names()))?;
    let program = Program::named(&name)
        .with_context(|| format!("there is no rival {name:?} to be built, only {}", names()))?;
    let built = program.build(&to.context("--to is missing: the folder for the program")?)?;
    output::line(json!({ "workload": "build", "rival": name, "program": built }))?;
    Ok(())
}

fn open(arguments: &Arguments) -> Result<Box<dyn Driver>> {
    let create = arguments.workload == "load";
    if arguments.workload != "restart" {
        // Whoever is compared begins cold. What a restart does by itself is a part of it.
        gannet::forget_hot(&arguments.dir)?;
    }
    let options = options(arguments);
    match arguments.driver.as_str() {
        "gannet" => Ok(Box::new(gannet::Gannet::open(&options, create)?)),
        "gannet-sql" => Ok(Box::new(Table::open(&options, create)?)),
        #[cfg(feature = "rivals")]
        "sqlite" => {
            // All caches together are what others have as one.
            let connections = match arguments.workload.as_str() {
                "load" | "misses" | "scan" => 1,
                _ => arguments.plan.threads.max(arguments.plan.warm_up_threads).max(1),
            };
            let options = gannet_lab::sqlite::Options {
                folder: arguments.dir.clone(),
                cache: arguments.memory / connections as u64,
                connections,
                page_size: arguments.page_size,
            };
            Ok(Box::new(gannet_lab::sqlite::Sqlite::open(&options, create)?))
        }
        #[cfg(not(feature = "rivals"))]
        "sqlite" => bail!("this build has no sqlite: build with `--features rivals`"),
        other => bail!("there is no driver {other:?}"),
    }
}

fn plan_json(arguments: &Arguments) -> Value {
    json!({
        "threads": arguments.plan.threads,
        "seconds": arguments.plan.measure.as_secs_f64(),
        "reading": arguments.reading,
        "warm_up_seconds": arguments.plan.warm_up.as_secs_f64(),
        "warm_up_threads": arguments.plan.warm_up_threads.max(arguments.plan.threads),
        "batch": arguments.batch,
        "hot_rows": arguments.hot_rows,
        "seed": arguments.plan.seed,
    })
}

fn measure(driver: &dyn Driver, arguments: &Arguments, begun: Instant, stop: &AtomicBool) -> Result<Value> {
    let (rows, plan) = (&arguments.rows, &arguments.plan);
    let json_of = |outcome: Result<Outcome>| outcome.map(|outcome| outcome.to_json());
    match arguments.workload.as_str() {
        "load" => workload::load(driver, rows, arguments.order),
        "lookups" => json_of(workload::lookups(driver, rows, plan, stop)),
        "multiget" => json_of(workload::multi_gets(driver, rows, plan, arguments.batch, stop)),
        "misses" => workload::reads_per_miss(driver, rows, arguments.times as u64 * 1000, stop),
        "scan" => workload::scans(driver, rows, arguments.times, stop),
        "commits" => json_of(workload::commits(driver, rows, plan, stop)),
        "restart" => workload::restart(driver, rows, plan, arguments.reading, begun, stop),
        "updates" => json_of(workload::updates(driver, rows, plan, stop)),
        "hot" => {
            let hot = Rows { count: arguments.hot_rows.min(rows.count), ..*rows };
            let plan = Plan { ops_per_sample: 64, one_transaction: true, ..plan.clone() };
            json_of(workload::lookups(driver, &hot, &plan, stop))
        }
        other => bail!("there is no workload {other:?}; see --help"),
    }
}

fn main() -> ExitCode {
    gannet_base::allocator::give_back_what_is_freed();
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_enough(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gannet-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<()> {
    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once; the store survives that as it survives a crash.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    gannet_lab::confine::end_with_lab(&stop);
    let word = std::env::args_os().nth(1).unwrap_or_default();
    let rest = &mut lexopt::Parser::from_args(std::env::args_os().skip(2));
    match &*word.to_string_lossy() {
        "tpcc" => return command_tpcc::work(rest, &stop),
        "scale" => return command_scale::work(rest, &stop),
        "restart" => return command_restart::work(rest, begun, &stop),
        "admin" => return command_admin::work(rest, &stop),
        "inserts" => return command_inserts::work(rest, &stop),
        "tune" => return command_tune::work(rest, &stop),
        "isolation" => return command_isolation::work(rest, &stop),
        "scan" => return command_scan::work(rest, &stop),
        "device" => return command_lab::device(rest, &stop),
        "rival" => return rival(rest),
        name if command_lab::is_ours(name) => return command_lab::work(name, rest, &stop),
        _ => {}
    }
    let Some(arguments) = parse(lexopt::Parser::from_env())? else {
        return output::text(HELP);
    };
    if arguments.workload == "sql" {
        return statements(&arguments, &stop);
    }
    let driver = open(&arguments)?;
    let measured = measure(&*driver, &arguments, begun, &stop)?;
    let measurement =
        report::measurement(&*driver, &arguments.workload, &arguments.rows, plan_json(&arguments), measured);
    output::line(measurement)?;
    let closing = Instant::now();
    driver.close()?;
    if arguments.workload == "restart" {
        output::line(json!({ "workload": "close", "seconds": closing.elapsed().as_secs_f64() }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_compared_begins_without_the_list_of_hot_pages() {
        let folder = tempfile::tempdir().unwrap();
        let of = |workload: &str| Arguments {
            workload: workload.to_owned(),
            dir: folder.path().to_owned(),
            memory: 32 << 20,
            rows: Rows { count: 1000, value_len: 100 },
            ..Arguments::default()
        };
        let loading = of("load");
        let driver = open(&loading).unwrap();
        driver.load(&loading.rows, LoadOrder::Sorted).unwrap();
        driver.close().unwrap();
        let list = folder.path().join("lab.gnt-wal/hot");
        assert!(list.exists(), "a database that is closed keeps one");
        let driver = open(&of("restart")).unwrap();
        assert!(list.exists());
        driver.close().unwrap();
        let driver = open(&of("lookups")).unwrap();
        assert!(!list.exists());
        driver.close().unwrap();
    }

    #[cfg(feature = "rivals")]
    #[test]
    fn the_caches_of_sqlites_connections_are_shares_of_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let cache = |workload: &str, threads, warm_up_threads| {
            let arguments = Arguments {
                workload: workload.to_owned(),
                driver: "sqlite".to_owned(),
                dir: folder.path().to_owned(),
                memory: 64 << 20,
                plan: Plan { threads, warm_up_threads, ..Plan::default() },
                ..Arguments::default()
            };
            let settings = open(&arguments).unwrap().settings();
            assert_eq!(settings["memory_bytes"], 64 << 20, "{workload}");
            settings["cache_bytes_per_connection"].as_u64().unwrap() >> 20
        };
        // Who fills it is alone.
        assert_eq!([cache("load", 4, 0), cache("lookups", 4, 0), cache("lookups", 2, 16)], [64, 16, 4]);
    }

    #[test]
    fn options_are_understood_and_mistakes_named() {
        let parsed = parse(lexopt::Parser::from_args([
            "store",
            "lookups",
            "--dir",
            "d",
            "--memory",
            "64MiB",
            "--threads=4",
            "--seconds",
            "3",
        ]));
        let arguments = parsed.unwrap().unwrap();
        assert_eq!((arguments.memory, arguments.plan.threads), (64 << 20, 4));
        assert_eq!(arguments.plan.measure.as_secs(), 3);
        for wrong in [&["store", "x"][..], &["store", "scan", "--dir", "d", "--rows", "many"], &["sell", "x"]]
        {
            assert!(parse(lexopt::Parser::from_args(wrong)).is_err(), "{wrong:?}");
        }
    }
}
