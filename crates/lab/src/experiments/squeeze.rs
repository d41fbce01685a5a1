//! X4: memory that is already full. Uniform look-ups of small records, with a database of as much as, twice, and four times the memory there is.

use super::{AROUND, BERKELEY_DB, Experiment, Needs, QUICK_MODES, Rival, SQLITE, building, program_folder};
use crate::chart::{Bars, Figure, Kind, Line, Spread, number};
use crate::confine::{OURSELVES, Step};
use crate::document::{Document, LEFT_OUT, Part};
use crate::driver::KEY_LEN;
use crate::record::{Ended, Order, Record, Size};
use crate::rivals::{self, Program};
use gannet_base::units::format_size;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Squeeze;

const VALUE_LEN: u64 = 192;
/// The database, as multiples of the memory.
const MULTIPLES: [u64; 3] = [1, 2, 4];
const THREADS: [u32; 2] = [2, MOST_THREADS];
/// So many fill the caches in any case, before fewer are measured: 2 of them would not be through by then.
const MOST_THREADS: u32 = 16;
/// Of everybody that has pages of a size one can choose: who reads one small record asks for no more than he has to. LMDB has no other.
const PAGE_SIZE: u64 = 4096;
/// Keys of a batch.
const BATCH: u32 = 256;
/// What Berkeley DB's cache leaves of the limit for what it takes besides: so many bytes, and one of so many parts at least.
const BERKELEY_LEAVES: (u64, u64) = (16 << 20, 20);
/// The same of RocksDB's block cache: its allocator and the readers' buffers are around it. With 90 % of 160 MiB the system ended it for want of memory now and then.
const ROCKSDB_LEAVES: (u64, u64) = (24 << 20, 12);
/// SQLite has a cache for each connection, and the OS cache besides, which does better with most of the memory: of the limit, the share of all connections together.
const SQLITE_SHARE: u64 = 20;

/// Gannet's rows as a table, as reports name it.
const SQL: &str = "Gannet, SQL";

/// How large it is, and how long it is measured.
struct Plan {
    /// Bytes of the memory cgroup.
    limit: u64,
    seconds: u32,
    warm_up: u32,
}

impl Plan {
    fn of(size: Size) -> Self {
        match size {
            Size::Quick => Plan { limit: 160 << 20, seconds: 2, warm_up: 2 },
            Size::Standard => Plan { limit: 1 << 30, seconds: 20, warm_up: 15 },
            Size::Large => Plan { limit: 4 << 30, seconds: 60, warm_up: 60 },
        }
    }

    /// A cache that leaves something of the limit to the program around it.
    fn less(&self, (bytes, part): (u64, u64)) -> u64 {
        self.limit - bytes.max(self.limit / part)
    }

    fn rows(&self, multiple: u64) -> u64 {
        self.limit * multiple / (KEY_LEN as u64 + VALUE_LEN)
    }
}

const LMDB: Rival = Rival {
    name: rivals::LMDB.name,
    is_there: || rivals::LMDB.can_be_built(),
    how: rivals::LMDB.how,
    version: || None,
};
const ROCKSDB: Rival = Rival {
    name: rivals::ROCKSDB.name,
    is_there: || rivals::ROCKSDB.can_be_built(),
    how: rivals::ROCKSDB.how,
    version: || None,
};

/// Somebody who is measured.
#[derive(Clone, PartialEq, Debug)]
struct Contestant {
    /// As reports name it.
    name: String,
    /// Whose program it is; `None`: the lab's own.
    program: Option<Program>,
    /// The folder that its database is in.
    store: &'static str,
    /// Options of the lab's command.
    options: Vec<String>,
    memory: u64,
    has_batches: bool,
}

impl Contestant {
    /// Who it is, where it is a rival.
    fn rival(&self) -> Option<&'static str> {
        (!self.store.starts_with("gannet")).then_some(self.store)
    }
}

fn contestants(order: &Order, plan: &Plan) -> Vec<Contestant> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let mut all = Vec::new();
    for mode in &order.modes {
        all.push(Contestant {
            name: format!("Gannet, {mode}"),
            program: None,
            store: "gannet",
            options: words(&["--driver", "gannet", "--io", mode]),
            memory: plan.limit,
            // A quick run is to be quick: how it reads makes no difference to what batches are for.
            has_batches: order.size != Size::Quick || all.is_empty(),
        });
    }
    all.push(Contestant {
        name: SQL.to_owned(),
        program: None,
        store: "gannet-sql",
        // In the first of the modes, as it is the statements that make the difference.
        options: words(&[
            "--driver",
            "gannet-sql",
            "--io",
            order.modes.first().map_or("auto", String::as_str),
        ]),
        memory: plan.limit,
        has_batches: false,
    });
    if order.rivals.iter().any(|rival| rival == SQLITE.name) {
        all.push(Contestant {
            name: "SQLite".to_owned(),
            program: None,
            store: "sqlite",
            options: words(&["--driver", "sqlite"]),
            // Its caches are those of the most threads, which fill them: of each no less where fewer are measured.
            memory: plan.limit / SQLITE_SHARE,
            has_batches: false,
        });
    }
    let berkeley = rivals::BERKELEY_DB;
    for (name, program, options, memory) in [
        ("Berkeley DB, direct", berkeley, ["--direct", "1"], plan.less(BERKELEY_LEAVES)),
        ("Berkeley DB, buffered", berkeley, ["--direct", "0"], plan.less(BERKELEY_LEAVES)),
        ("LMDB", rivals::LMDB, ["--read-ahead", "1"], plan.limit),
        ("LMDB, no read-ahead", rivals::LMDB, ["--read-ahead", "0"], plan.limit),
        ("RocksDB, direct", rivals::ROCKSDB, ["--direct", "1"], plan.less(ROCKSDB_LEAVES)),
    ] {
        if order.rivals.iter().any(|rival| rival == program.name) {
            all.push(Contestant {
                name: name.to_owned(),
                program: Some(program),
                store: program.name,
                options: words(&options),
                memory,
                // The others look many keys up one after the other.
                has_batches: program == rivals::ROCKSDB,
            });
        }
    }
    all
}

fn folder(data: &Path, store: &str, multiple: u64) -> PathBuf {
    data.join(format!("{store}-{multiple}x"))
}

fn store_command(
    workload: &str,
    contestant: &Contestant,
    dir: &Path,
    plan: &Plan,
    multiple: u64,
    seed: u64,
) -> Vec<String> {
    let mut command = match contestant.program {
        Some(program) => {
            let data = dir.parent().unwrap_or(dir);
            vec![program.within(&program_folder(data, program)).display().to_string(), workload.to_owned()]
        }
        None => vec![OURSELVES.to_owned(), "store".to_owned(), workload.to_owned()],
    };
    let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
    add("--dir", dir.display().to_string());
    add("--memory", contestant.memory.to_string());
    add("--rows", plan.rows(multiple).to_string());
    add("--value-size", VALUE_LEN.to_string());
    add("--page-size", PAGE_SIZE.to_string());
    add("--seed", seed.to_string());
    command.extend(contestant.options.iter().cloned());
    command
}

fn lookups_id(contestant: &str, multiple: u64, threads: u32, time: u32) -> String {
    format!("look-ups, {contestant}, {multiple}x, {threads} threads, {time}")
}

fn batches_id(contestant: &str, multiple: u64, threads: u32, time: u32) -> String {
    format!("batches, {contestant}, {multiple}x, {threads} threads, {time}")
}

/// `turn`: of those of one repetition, the first is before everybody else.
fn device_id(threads: u32, turn: usize, time: u32) -> String {
    match turn {
        // As it was named when there was no other.
        0 => format!("device, {threads} threads, {time}"),
        _ => format!("device, {threads} threads, turn {turn}, {time}"),
    }
}

/// How often the device is measured alone in one repetition, by so many threads: before each multiple, and behind the last one. It may do a fifth more or less within a minute.
const TURNS: usize = MULTIPLES.len() + 1;

impl Experiment for Squeeze {
    fn name(&self) -> &'static str {
        "squeeze"
    }

    fn number(&self) -> &'static str {
        "X4"
    }

    fn question(&self) -> &'static str {
        "How fast are look-ups when the database is as large as, twice, and four times the memory there is?"
    }

    fn source(&self) -> &'static str {
        "Howard Chu on the OpenLDAP list: Berkeley DB under Linux, with and without direct I/O"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[SQLITE, BERKELEY_DB, LMDB, ROCKSDB]
    }

    fn modes(&self) -> &'static [&'static str] {
        &["direct", "uncached", "buffered"]
    }

    fn usual_modes(&self, size: Size) -> &'static [&'static str] {
        if size == Size::Quick { QUICK_MODES } else { self.modes() }
    }

    fn repeat(&self, size: Size) -> u32 {
        if size == Size::Quick { 1 } else { 3 }
    }

    fn steps(&self, order: &Order, data: &Path) -> Vec<Step> {
        let plan = Plan::of(order.size);
        let contestants = contestants(order, &plan);
        let mut steps: Vec<Step> = Vec::new();
        for program in contestants.iter().filter_map(|contestant| contestant.program) {
            let step = building(data, program);
            if steps.iter().all(|other| other.id != step.id) {
                steps.push(step);
            }
        }
        for multiple in MULTIPLES {
            for contestant in &contestants {
                let dir = folder(data, contestant.store, multiple);
                let id = format!("load, {}, {multiple}x", contestant.store);
                if steps.iter().any(|step| step.id == id) {
                    continue;
                }
                steps.push(Step {
                    id,
                    what: format!("fills {}, {multiple}× the memory", contestant.store),
                    command: store_command("load", contestant, &dir, &plan, multiple, order.seed),
                    estimate: Duration::from_secs(plan.rows(multiple) / 400_000 + 1),
                    makes: Some(dir),
                    rival: contestant.rival(),
                    ..Step::default()
                });
            }
        }
        let time = Duration::from_secs(u64::from(plan.seconds + plan.warm_up) + 1);
        let measured = |mut command: Vec<String>, threads: u32, more: &[&str]| {
            for (name, value) in [
                ("--seconds", plan.seconds),
                ("--warm-up", plan.warm_up),
                ("--warm-up-threads", MOST_THREADS),
                ("--threads", threads),
            ] {
                command.extend([name.to_owned(), value.to_string()]);
            }
            command.extend(more.iter().map(|&word| word.to_owned()));
            command
        };
        let largest = folder(data, "gannet", MULTIPLES[MULTIPLES.len() - 1]).join("lab.gnt");
        for round in 1..=order.repeat {
            let seed = order.seed + u64::from(round);
            for threads in THREADS {
                let device = |turn| {
                    let seconds = (plan.seconds / MULTIPLES.len() as u32).max(1);
                    let mut command = [OURSELVES, "device"].map(str::to_owned).to_vec();
                    let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
                    add("--file", largest.display().to_string());
                    add("--block", PAGE_SIZE.to_string());
                    add("--threads", threads.to_string());
                    add("--seconds", seconds.to_string());
                    // None reads what another one has: somebody behind the device could have kept that.
                    let seed = seed.wrapping_mul(1000).wrapping_add(u64::from(threads) * 16 + turn as u64);
                    add("--seed", seed.to_string());
                    Step {
                        id: device_id(threads, turn, round),
                        what: format!("the device alone, {threads} threads"),
                        command,
                        estimate: Duration::from_secs(u64::from(seconds) + 1),
                        ..Step::default()
                    }
                };
                for (turn, multiple) in MULTIPLES.into_iter().enumerate() {
                    steps.push(device(turn));
                    for contestant in &contestants {
                        let dir = folder(data, contestant.store, multiple);
                        let command =
                            |workload| store_command(workload, contestant, &dir, &plan, multiple, seed);
                        let step = |id: String, what: &str, command: Vec<String>| Step {
                            id,
                            what: format!(
                                "{what}: {}, {multiple}× the memory, {threads} threads",
                                contestant.name
                            ),
                            command,
                            limit: Some(plan.limit),
                            cold: vec![dir.clone()],
                            estimate: time,
                            rival: contestant.rival(),
                            ..Step::default()
                        };
                        let id = lookups_id(&contestant.name, multiple, threads, round);
                        steps.push(step(id, "look-ups", measured(command("lookups"), threads, &[])));
                        if contestant.has_batches && multiple > 1 && threads == THREADS[0] {
                            let id = batches_id(&contestant.name, multiple, threads, round);
                            let batch = BATCH.to_string();
                            steps.push(step(
                                id,
                                "look-ups in batches",
                                measured(command("multiget"), threads, &["--batch", &batch]),
                            ));
                        }
                    }
                }
                steps.push(device(TURNS - 1));
            }
        }
        steps
    }

    /// Databases of everybody for each multiple, which may be a half larger than their rows.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let stores: HashSet<&str> = contestants(order, &plan).iter().map(|one| one.store).collect();
        let rows: u64 = MULTIPLES.iter().map(|multiple| multiple * plan.limit).sum();
        Needs { disk: stores.len() as u64 * rows / 2 * 3, memory: plan.limit + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        let found = Found { run, plan: Plan::of(run.order.size) };
        let mut parts = vec![
            Part::Text(format!(
                "Uniform look-ups of records of {} bytes. Each contestant runs in a memory cgroup of {}, page cache included; Gannet's --memory is {} % of that, for its key-value interface and for SQL, which is in the I/O mode {}. \
                 What is measured follows {} s in which {MOST_THREADS} threads fill the caches. The device is what threads that each read a block of {} KiB after the other get out of it, the median of turns before each multiple and behind the last, and pages are as large, LMDB's as they are. \
                 Of rivals, Berkeley DB's cache has {}, as it needs little besides; RocksDB's block cache {}, as with more the system ends it now and then; LMDB and SQLite live on the page cache, and each of SQLite's connections has {} of its own.",
                KEY_LEN as u64 + VALUE_LEN,
                format_size(found.plan.limit),
                found.percent(),
                found.sql_mode(),
                found.plan.warm_up,
                PAGE_SIZE >> 10,
                format_size(found.plan.less(BERKELEY_LEAVES)),
                format_size(found.plan.less(ROCKSDB_LEAVES)),
                format_size(found.plan.limit / SQLITE_SHARE / u64::from(MOST_THREADS)),
            )),
            Part::Heading("Published".to_owned()),
            Part::Text(
                "A directory server of 6.8 GB on a machine of 8 GB authenticated 11,500 times a second with direct I/O, 11,200 with the page cache in the way and vm.swappiness \
                 lowered to 10 (300 MB of the process were still swapped out), and only hundreds a second by default, swapping from 4.5 GB on."
                    .to_owned(),
            ),
            Part::Text(
                "What cannot be compared: an authentication is more than a look-up, and their disks were others. What can: how far each falls as the database outgrows the \
                 memory, who swaps, and how close each comes to the device."
                    .to_owned(),
            ),
        ];
        for threads in THREADS {
            parts.push(Part::Heading(format!("{threads} threads")));
            parts.extend(found.rates(threads));
        }
        parts.push(Part::Heading("Batches".to_owned()));
        parts.extend(found.batches());
        parts.push(Part::Heading("Memory".to_owned()));
        parts.extend(found.memory());
        Document { title: "X4 squeeze: memory that is already full".to_owned(), parts }
    }
}

/// Bytes as mebibytes, for people.
fn mebibytes(bytes: Option<f64>) -> String {
    bytes.map_or("not seen".to_owned(), |bytes| number(bytes / f64::from(1 << 20)))
}

/// What the steps have brought.
struct Found<'r> {
    run: &'r Record,
    plan: Plan,
}

impl Found<'_> {
    fn contestants(&self) -> Vec<Contestant> {
        contestants(&self.run.order, &self.plan)
    }

    /// A word of the look-ups' command of a contestant, behind this one: runs of before may have had others.
    fn asked(&self, contestant: &str, option: &str) -> Option<&str> {
        let ended = self.run.find(&lookups_id(contestant, MULTIPLES[0], THREADS[0], 1))?;
        ended.command.windows(2).find(|two| two[0] == option).map(|two| &*two[1])
    }

    /// Of the limit, what Gannet's budget had.
    fn percent(&self) -> u64 {
        let first = self.contestants().into_iter().next();
        let asked = first.and_then(|first| self.asked(&first.name, "--memory")?.parse::<u64>().ok());
        asked.map_or(100, |memory| (memory as f64 * 100.0 / self.plan.limit as f64).round() as u64)
    }

    /// The I/O mode of Gannet's SQL.
    fn sql_mode(&self) -> &str {
        let first = self.run.order.modes.first().map_or("auto", String::as_str);
        match self.run.find(&lookups_id(SQL, MULTIPLES[0], THREADS[0], 1)) {
            Some(_) => self.asked(SQL, "--io").unwrap_or("auto"),
            None => first,
        }
    }

    /// One figure of each repetition.
    fn figures(&self, id: impl Fn(u32) -> String, path: &str) -> Vec<f64> {
        let figure = |ended: &Ended| ended.output.first()?.pointer(path)?.as_f64();
        (1..=self.run.order.repeat).filter_map(|time| figure(self.run.find(&id(time))?)).collect()
    }

    fn lookups(&self, contestant: &str, multiple: u64, threads: u32, path: &str) -> Option<Spread> {
        Spread::of(&self.figures(|time| lookups_id(contestant, multiple, threads, time), path))
    }

    fn device(&self, threads: u32) -> Option<f64> {
        let turn = |turn| self.figures(|time| device_id(threads, turn, time), "/reads_per_second");
        let all: Vec<f64> = (0..TURNS).flat_map(turn).collect();
        Spread::of(&all).map(|spread| spread.median)
    }

    fn rates(&self, threads: u32) -> Vec<Part> {
        let contestants = self.contestants();
        let rate = |contestant: &Contestant, multiple| {
            self.lookups(&contestant.name, multiple, threads, "/measured/per_second_mean")
        };
        let bars = contestants.iter().map(|contestant| Bars {
            name: contestant.name.clone(),
            values: MULTIPLES.iter().map(|&multiple| rate(contestant, multiple)).collect(),
        });
        let device = self.device(threads);
        let figure = Figure {
            id: format!("lookups-{threads}"),
            title: format!("Look-ups by {threads} threads"),
            y: "look-ups a second".to_owned(),
            kind: Kind::Bars {
                groups: MULTIPLES.iter().map(|multiple| format!("{multiple}× the memory")).collect(),
                bars: bars.collect(),
                limit: device.map(|device| {
                    ("block reads a second, the device alone".to_owned(), vec![Some(device); MULTIPLES.len()])
                }),
            },
        };
        let head = [
            "",
            "database",
            "look-ups/s",
            "range",
            "device reads/s ÷ the device alone",
            "p99, µs",
            "major faults, at most",
            "swapped out at most, MiB",
        ];
        let mut rows = Vec::new();
        for contestant in &contestants {
            for multiple in MULTIPLES {
                let Some(spread) = rate(contestant, multiple) else {
                    let id = |time| lookups_id(&contestant.name, multiple, threads, time);
                    if (1..=self.run.order.repeat).any(|time| self.run.is_left_out(&id(time))) {
                        let mut row =
                            vec![contestant.name.clone(), format!("{multiple}×"), LEFT_OUT.to_owned()];
                        row.resize(head.len(), "–".to_owned());
                        rows.push(row);
                    }
                    continue;
                };
                let of = |path: &str| {
                    self.lookups(&contestant.name, multiple, threads, path).map(|spread| spread.median)
                };
                // The programs of C libraries are told by the system how many bytes came from the device for them.
                let reads = of("/measured/device/reads_per_second").or_else(|| {
                    of("/measured/device/read_bytes_per_second").map(|bytes| bytes / PAGE_SIZE as f64)
                });
                let share = reads.filter(|&reads| reads > 0.0).zip(device);
                rows.push(vec![
                    contestant.name.clone(),
                    format!("{multiple}×"),
                    number(spread.median),
                    format!("{}–{}", number(spread.least), number(spread.most)),
                    share.map_or("–".to_owned(), |(reads, device)| number(reads / device)),
                    of("/measured/latency_us/p99").map_or("–".to_owned(), number),
                    self.faults(|time| lookups_id(&contestant.name, multiple, threads, time)),
                    self.swapped(|time| lookups_id(&contestant.name, multiple, threads, time)),
                ]);
            }
        }
        vec![
            Part::Figure(figure),
            Part::Table(head.map(str::to_owned).to_vec(), rows),
            Part::Text(format!(
                "Of Berkeley DB, LMDB and RocksDB the system tells the bytes that came from the device, not the reads: they count in blocks of {} KiB.",
                PAGE_SIZE >> 10
            )),
            Part::Figure(self.over_time(threads, MULTIPLES[1])),
            Part::Figure(self.over_time(threads, MULTIPLES[2])),
        ]
    }

    /// The most that a step's group had, in whichever repetition.
    fn most(&self, id: impl Fn(u32) -> String, of: impl Fn(&Ended) -> Option<f64>) -> Option<f64> {
        (1..=self.run.order.repeat).filter_map(|time| of(self.run.find(&id(time))?)).reduce(f64::max)
    }

    /// The same, of a column of what was seen while it ran.
    fn most_seen(&self, id: impl Fn(u32) -> String, column: usize) -> Option<f64> {
        self.most(id, |ended| {
            let samples = ended.group["samples"].as_array()?;
            samples.iter().filter_map(|sample| sample[column].as_f64()).reduce(f64::max)
        })
    }

    fn faults(&self, id: impl Fn(u32) -> String) -> String {
        let faults = self.most(id, |ended| ended.group["major_faults"].as_f64());
        faults.map_or("not seen".to_owned(), number)
    }

    /// Whether there was swap when a step ran.
    fn had_swap(&self, id: &str) -> bool {
        let Some(ended) = self.run.find(id) else { return false };
        ended.under.as_ref().map_or(self.run.circumstances["has_swap"] == true, |under| under.has_swap)
    }

    /// The most that was swapped out while a step ran.
    fn swapped(&self, id: impl Fn(u32) -> String) -> String {
        if !(1..=self.run.order.repeat).any(|time| self.had_swap(&id(time))) {
            return "unmeasured: no swap".to_owned();
        }
        mebibytes(self.most_seen(id, 2))
    }

    fn over_time(&self, threads: u32, multiple: u64) -> Figure {
        let line = |contestant: Contestant| {
            let ended = self.run.find(&lookups_id(&contestant.name, multiple, threads, 1))?;
            let measured = ended.output.first()?.get("measured")?;
            let interval = measured["interval_seconds"].as_f64()?;
            let each = measured["per_interval"].as_array()?.iter().filter_map(serde_json::Value::as_f64);
            let points =
                each.enumerate().map(|(index, count)| ((index + 1) as f64 * interval, count / interval));
            Some(Line { name: contestant.name, points: points.collect() })
        };
        Figure {
            id: format!("over-time-{multiple}x-{threads}"),
            title: format!(
                "Look-ups over time, {multiple}× the memory, {threads} threads, the first repetition"
            ),
            y: "look-ups a second".to_owned(),
            kind: Kind::Lines {
                x: "seconds".to_owned(),
                lines: self.contestants().into_iter().filter_map(line).collect(),
            },
        }
    }

    fn batches(&self) -> Vec<Part> {
        let threads = THREADS[0];
        let mut rows = Vec::new();
        let contestants = self.contestants();
        for contestant in contestants.iter().filter(|contestant| contestant.has_batches) {
            for &multiple in &MULTIPLES[1..] {
                let rates = self.figures(
                    |time| batches_id(&contestant.name, multiple, threads, time),
                    "/measured/per_second_mean",
                );
                let Some(spread) = Spread::of(&rates) else { continue };
                let single = |name: &str| {
                    let found = self.lookups(name, multiple, threads, "/measured/per_second_mean");
                    found.map(|spread| spread.median)
                };
                let keys = spread.median * f64::from(BATCH);
                let against = |single: Option<f64>| {
                    single.map_or("–".to_owned(), |rate| format!("{}×", number(keys / rate)))
                };
                let others = contestants.iter().filter(|other| !other.store.starts_with("gannet"));
                rows.push(vec![
                    contestant.name.clone(),
                    format!("{multiple}×"),
                    number(keys),
                    against(single(&contestant.name)),
                    against(others.filter_map(|other| single(&other.name)).reduce(f64::max)),
                ]);
            }
        }
        let head = ["", "database", "keys/s", "against one by one", "against the best rival one by one"]
            .map(str::to_owned)
            .to_vec();
        vec![
            Part::Text(format!("The same keys, {BATCH} asked for at a time, by {threads} threads.")),
            Part::Table(head, rows),
        ]
    }

    fn memory(&self) -> Vec<Part> {
        let mut rows = Vec::new();
        for contestant in self.contestants() {
            let id = |time| lookups_id(&contestant.name, MULTIPLES[1], THREADS[0], time);
            if self.most(id, |ended| Some(ended.seconds)).is_none() {
                continue;
            }
            rows.push(vec![
                contestant.name.clone(),
                mebibytes(self.most(id, |ended| ended.group["peak_bytes"].as_f64())),
                mebibytes(self.most_seen(id, 3)),
            ]);
        }
        let head = ["", "the cgroup's peak at most, MiB", "of that page cache at most, MiB"]
            .map(str::to_owned)
            .to_vec();
        let limit = match rows.iter().any(|row| row[1] != "not seen") {
            _ if rows.is_empty() => format!("With {}× the memory nothing was measured.", MULTIPLES[1]),
            true => format!("With {}× the memory.", MULTIPLES[1]),
            false => "No memory cgroup could be made: nobody was held to the limit but by its own settings, and rivals had the whole machine's page cache.".to_owned(),
        };
        let swap = match self.run.circumstances["has_swap"] == true {
            true => "Swap was on.",
            false => "No swap was on, so nothing could be swapped out: that is unmeasured.",
        };
        vec![Part::Text(format!("{limit} {swap}")), Part::Table(head, rows)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn order(modes: &[&str]) -> Order {
        Order {
            experiment: "squeeze".to_owned(),
            size: Size::Quick,
            rivals: vec!["rocksdb".to_owned()],
            modes: modes.iter().map(|&mode| mode.to_owned()).collect(),
            profiles: vec!["as-is".to_owned()],
            repeat: 2,
            seed: 1,
        }
    }

    #[test]
    fn gannet_has_all_of_the_memory_and_sql_the_first_mode() {
        let steps = Squeeze.steps(&order(&["buffered", "direct"]), Path::new("data"));
        let value = |id: &str, name: &str| {
            let step = steps.iter().find(|step| step.id == id).unwrap();
            step.command.windows(2).find(|two| two[0] == name).map(|two| two[1].clone())
        };
        let share = Plan::of(Size::Quick).limit.to_string();
        for name in ["Gannet, direct", "Gannet, SQL"] {
            assert_eq!(value(&lookups_id(name, 2, 2, 1), "--memory").as_ref(), Some(&share), "{name}");
        }
        assert_eq!(value(&lookups_id("Gannet, SQL", 2, 2, 1), "--io").as_deref(), Some("buffered"));
    }

    #[test]
    fn what_a_report_says_of_memory_is_the_most_of_all_repetitions_and_what_failed_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut run =
            Record::create(&folder.path().join("run"), &order(&["direct"]), 4, json!({ "has_swap": true }))
                .unwrap();
        for (time, faults, swapped) in [(1, 3, 0), (2, 700, 5 << 20)] {
            run.add(Ended {
                id: lookups_id("Gannet, direct", 2, 2, time),
                command: Vec::new(),
                began_unix: 1,
                seconds: 1.0,
                output: vec![json!({ "measured": { "per_second_mean": 1000.0 * f64::from(time) } })],
                group: json!({ "major_faults": faults, "peak_bytes": 1 << 20, "samples": [[0.5, 1, swapped, 0]] }),
                skipped: None,
                under: None,
            })
            .unwrap();
        }
        let failed = Ended {
            id: lookups_id("RocksDB, direct", 2, 2, 1),
            command: Vec::new(),
            began_unix: 1,
            seconds: 1.0,
            output: Vec::new(),
            group: Value::Null,
            skipped: Some("no memory".to_owned()),
            under: None,
        };
        run.add(failed).unwrap();
        for (id, output) in [
            (device_id(2, 0, 1), json!({ "reads_per_second": 1000.0 })),
            // The median of all turns.
            (device_id(2, 1, 1), json!({ "reads_per_second": 5000.0 })),
            (device_id(2, 2, 1), json!({ "reads_per_second": 900.0 })),
            (
                lookups_id("RocksDB, direct", 4, 2, 1),
                json!({ "measured": { "per_second_mean": 500.0, "device": { "read_bytes_per_second": 4096.0 * 700.0 }, "interval_seconds": 1.0, "per_interval": [400, 600] } }),
            ),
        ] {
            run.add(Ended {
                id,
                output: vec![output],
                skipped: None,
                ..Step::default().left_out(String::new())
            })
            .unwrap();
        }
        let text = Squeeze.report(&run).markdown();
        assert!(
            text.contains("| Gannet, direct | 2× | 1,500 | 1,000–2,000 | – | – | 700 | 5.00 |"),
            "{text}"
        );
        assert!(text.contains("| RocksDB, direct | 2× | failed | – |"), "{text}");
        // Blocks' worth of bytes of what the device alone does.
        assert!(text.contains("| RocksDB, direct | 4× | 500 | 500–500 | 0.700 |"), "{text}");
        assert!(text.contains("over-time-4x-2.svg"), "{text}");
    }
}
