//! X5: which setting was it? Connections that insert much and update some, over settings, each alone, and as the file outgrows the memory; and a tuner, which finds the best ones.

mod report;

use super::{AROUND, Experiment, Needs, POSTGRESQL, Rival, calibrations};
use crate::confine::{OURSELVES, Step};
use crate::document::Document;
use crate::record::{Order, Record, Size};
use crate::tune::tuner::exact_size;
use gannet_base::units::format_size;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Tune;

const MIB: u64 = 1 << 20;
const PAGE_SIZE: u64 = 8192;
const PAGE_SIZES: [u64; 4] = [4096, 8192, 16_384, 32_768];
/// Connections of the published load.
const CONNECTIONS: usize = 20;
/// With memory for sorts as what is looked at, one transaction in so many is a report that sorts.
const REPORTS: u32 = 20;
/// The database, where it is not what is looked at, in halves of the memory.
const USUAL_HALVES: u64 = 8;

/// How large it is, and how long it is measured.
struct Plan {
    /// Budgets.
    memory: &'static [u64],
    /// The one with which everything else is looked at.
    usual_memory: u64,
    /// Sizes of the database, in halves of that.
    halves: &'static [u64],
    connections: &'static [usize],
    sort_memory: &'static [u64],
    /// Bytes of a segment of the log: one has to fit into the least budget.
    segment: u64,
    /// Whether every budget is measured with every size of pages.
    has_grid: bool,
    /// Tenths of a second.
    warm_up: u32,
    measure: u32,
    /// Of the tuner: its time in all in seconds, tenths of a second of a trial, and sizes of pages.
    tune_time: u64,
    tune_warm_up: u32,
    tune_measure: u32,
    tune_pages: &'static [u64],
    tune_rounds: u32,
}

impl Plan {
    fn of(size: Size) -> Self {
        match size {
            Size::Quick => Plan {
                memory: &[16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB],
                usual_memory: 32 * MIB,
                halves: &[1, 2, 4, 8, 16],
                connections: &[5, 20, 60, 200],
                sort_memory: &[256 << 10, MIB, 4 * MIB, 0],
                segment: 2 * MIB,
                has_grid: false,
                warm_up: 8,
                measure: 16,
                tune_time: 20,
                tune_warm_up: 8,
                tune_measure: 18,
                tune_pages: &[PAGE_SIZE],
                tune_rounds: 3,
            },
            Size::Standard => Plan {
                memory: &[32 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB],
                usual_memory: 128 * MIB,
                halves: &[1, 2, 4, 8, 16, 32],
                connections: &[1, 5, 20, 50, 100, 200, 400],
                sort_memory: &[64 << 10, 256 << 10, MIB, 4 * MIB, 0],
                segment: 16 * MIB,
                has_grid: true,
                warm_up: 50,
                measure: 150,
                tune_time: 900,
                tune_warm_up: 30,
                tune_measure: 80,
                tune_pages: &[PAGE_SIZE, 4096, 16_384],
                tune_rounds: 8,
            },
            Size::Large => Plan {
                memory: &[128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB],
                usual_memory: 512 * MIB,
                halves: &[1, 2, 4, 8, 16, 32],
                connections: &[1, 5, 20, 50, 100, 200, 400],
                sort_memory: &[64 << 10, 256 << 10, MIB, 4 * MIB, 0],
                segment: 16 * MIB,
                has_grid: true,
                warm_up: 200,
                measure: 600,
                tune_time: 3600,
                tune_warm_up: 100,
                tune_measure: 200,
                tune_pages: &[PAGE_SIZE, 4096, 16_384],
                tune_rounds: 8,
            },
        }
    }

    fn usual_bytes(&self) -> u64 {
        self.usual_memory / 2 * USUAL_HALVES
    }
}

/// What is measured in one run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Run {
    /// Whether PostgreSQL does it, in as much memory in all; it has no other page sizes, and no I/O modes.
    is_rival: bool,
    /// Bytes of the database.
    bytes: u64,
    memory: u64,
    page_size: u64,
    sort_memory: u64,
    connections: usize,
    is_synchronous: bool,
    io: String,
    reports: u32,
}

impl Run {
    fn id(&self, time: u32) -> String {
        let commits = if self.is_synchronous { "" } else { ", asynchronous" };
        let whose = if self.is_rival { "PostgreSQL: " } else { "" };
        format!(
            "{whose}inserts into {}, memory {}, pages {}, sorts {}, {} connections, {}, reports {}{commits}, {time}",
            format_size(self.bytes),
            format_size(self.memory),
            self.page_size,
            self.sort_memory,
            self.connections,
            self.io,
            self.reports
        )
    }

    fn folder(&self, data: &Path) -> PathBuf {
        match self.is_rival {
            true => data.join(format!("pg-{}", format_size(self.bytes))),
            false => folder(data, self.bytes, self.page_size),
        }
    }

    /// Words that name the server in a command; none for ours.
    fn server(&self) -> &'static [&'static str] {
        if self.is_rival { &["--server", "postgresql"] } else { &[] }
    }

    fn rival(&self) -> Option<&'static str> {
        self.is_rival.then_some(POSTGRESQL.name)
    }

    fn command(&self, data: &Path, plan: &Plan, seed: u64) -> Vec<String> {
        let words = [OURSELVES, "inserts", "run", "--confined"];
        let mut command: Vec<String> =
            words.iter().chain(self.server()).map(|&word| word.to_owned()).collect();
        let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
        add("--dir", self.folder(data).display().to_string());
        add("--size", self.bytes.to_string());
        add("--memory", self.memory.to_string());
        add("--page-size", self.page_size.to_string());
        add("--sort-memory", self.sort_memory.to_string());
        add("--connections", self.connections.to_string());
        add("--io", self.io.clone());
        add("--reports", self.reports.to_string());
        add("--warm-up", tenths(plan.warm_up));
        add("--seconds", tenths(plan.measure));
        add("--seed", seed.to_string());
        if !self.is_synchronous {
            command.push("--asynchronous".to_owned());
        }
        command
    }
}

/// Tenths of a second, as the command takes them.
fn tenths(count: u32) -> String {
    format!("{}ms", count * 100)
}

fn folder(data: &Path, bytes: u64, page_size: u64) -> PathBuf {
    data.join(format!("db-{}-{page_size}", format_size(bytes)))
}

/// Something that is looked at alone.
struct Axis {
    id: &'static str,
    title: &'static str,
    x: &'static str,
    runs: Vec<(String, Run)>,
    /// The same of PostgreSQL, where it takes part.
    theirs: Vec<(String, Run)>,
}

/// What PostgreSQL is measured along, too.
const RIVALS_AXES: [&str; 4] = ["memory", "connections", "commits", "growth"];

fn usual(order: &Order, plan: &Plan) -> Run {
    Run {
        is_rival: false,
        bytes: plan.usual_bytes(),
        memory: plan.usual_memory,
        page_size: PAGE_SIZE,
        sort_memory: 0,
        connections: CONNECTIONS,
        is_synchronous: true,
        io: order.modes.first().cloned().unwrap_or_else(|| "direct".to_owned()),
        reports: 0,
    }
}

/// One point of an axis.
fn point(label: String, run: Run) -> (String, Run) {
    (label, run)
}

fn axes(order: &Order, plan: &Plan) -> Vec<Axis> {
    let usual = usual(order, plan);
    let memory = |&memory: &u64| point(exact_size(memory), Run { memory, ..usual.clone() });
    let pages = |&page_size: &u64| point(exact_size(page_size), Run { page_size, ..usual.clone() });
    let connections =
        |&connections: &usize| point(connections.to_string(), Run { connections, ..usual.clone() });
    let sort = |&sort_memory: &u64| {
        let label = if sort_memory == 0 { "its share".to_owned() } else { exact_size(sort_memory) };
        point(label, Run { sort_memory, reports: REPORTS, ..usual.clone() })
    };
    let commits = |is_synchronous: bool| {
        let label = if is_synchronous { "synchronous" } else { "asynchronous" };
        point(label.to_owned(), Run { is_synchronous, ..usual.clone() })
    };
    let mode = |io: &String| point(io.clone(), Run { io: io.clone(), ..usual.clone() });
    let grown = |&halves: &u64| {
        let label = if halves == 1 { "½×".to_owned() } else { format!("{}×", halves / 2) };
        point(label, Run { bytes: plan.usual_memory / 2 * halves, ..usual.clone() })
    };
    let has_rival = order.rivals.iter().any(|rival| rival == POSTGRESQL.name);
    let axis = |id, title, x, runs: Vec<(String, Run)>| {
        let of_rival = |(label, run): &(String, Run)| (label.clone(), Run { is_rival: true, ..run.clone() });
        let theirs = match has_rival && RIVALS_AXES.contains(&id) {
            true => runs.iter().map(of_rival).collect(),
            false => Vec::new(),
        };
        Axis { id, title, x, runs, theirs }
    };
    vec![
        axis("memory", "Memory", "memory budget", plan.memory.iter().map(memory).collect()),
        axis("connections", "Connections", "connections", plan.connections.iter().map(connections).collect()),
        axis("pages", "Page size", "bytes of a page", PAGE_SIZES.iter().map(pages).collect()),
        axis("sorts", "Memory for sorts", "memory of a sort", plan.sort_memory.iter().map(sort).collect()),
        axis("commits", "Commits", "commits", vec![commits(true), commits(false)]),
        axis("modes", "I/O mode", "I/O mode", order.modes.iter().map(mode).collect()),
        axis(
            "growth",
            "The file grows",
            "size of the database, in memories",
            plan.halves.iter().map(grown).collect(),
        ),
    ]
}

/// Every budget with every size of pages, where that is wanted.
fn grid(order: &Order, plan: &Plan) -> Vec<Run> {
    let usual = usual(order, plan);
    let sizes: &[u64] = if plan.has_grid { plan.tune_pages } else { &[] };
    let row = |&page_size: &u64| {
        let run = Run { page_size, ..usual.clone() };
        plan.memory.iter().map(move |&memory| Run { memory, ..run.clone() })
    };
    sizes.iter().flat_map(row).collect()
}

/// Every run, once.
fn runs(order: &Order, plan: &Plan) -> Vec<Run> {
    let axes = axes(order, plan);
    let ours = axes.iter().flat_map(|axis| &axis.runs);
    let theirs = axes.iter().flat_map(|axis| &axis.theirs).map(|(_, run)| run.clone());
    let mut seen = HashSet::new();
    let all = ours.map(|(_, run)| run.clone()).chain(grid(order, plan)).chain(theirs);
    all.filter(|run| seen.insert(run.clone())).collect()
}

const TUNER: &str = "the tuner";

fn tuner(order: &Order, plan: &Plan, data: &Path) -> Step {
    let usual = usual(order, plan);
    let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let database = crate::servers::database(&usual.folder(data));
    let mut command = [OURSELVES.to_owned(), "tune".to_owned(), database.display().to_string()].to_vec();
    let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
    add("--size", usual.bytes.to_string());
    add("--memory", list(plan.memory));
    add("--page-size", list(plan.tune_pages));
    add("--io", usual.io);
    add("--connections", CONNECTIONS.to_string());
    add("--rounds", plan.tune_rounds.to_string());
    add("--time", format!("{}s", plan.tune_time));
    add("--warm-up", tenths(plan.tune_warm_up));
    add("--seconds", tenths(plan.tune_measure));
    add("--seed", order.seed.to_string());
    let work = data.join("tuning");
    add("--work", work.display().to_string());
    command.extend(["--confined".to_owned(), "--json".to_owned()]);
    Step {
        id: TUNER.to_owned(),
        what: "the tuner, by itself".to_owned(),
        command,
        estimate: Duration::from_secs(plan.tune_time),
        works_in: Some(work),
        ..Step::default()
    }
}

impl Experiment for Tune {
    fn name(&self) -> &'static str {
        "tune"
    }

    fn number(&self) -> &'static str {
        "X5"
    }

    fn question(&self) -> &'static str {
        "Which settings make inserts by many connections fast, why, and what is left as the file grows?"
    }

    fn source(&self) -> &'static str {
        "IBSurgeon, July 2014: Firebird with a database of 1.7 TB, 20 connections"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[POSTGRESQL]
    }

    fn modes(&self) -> &'static [&'static str] {
        &["direct", "uncached", "buffered"]
    }

    fn repeat(&self, size: Size) -> u32 {
        if size == Size::Quick { 1 } else { 3 }
    }

    fn steps(&self, order: &Order, data: &Path) -> Vec<Step> {
        let plan = Plan::of(order.size);
        let runs = runs(order, &plan);
        let mut steps: Vec<Step> = Vec::new();
        for run in &runs {
            let dir = run.folder(data);
            let id = match run.is_rival {
                true => format!("load, PostgreSQL, {}", format_size(run.bytes)),
                false => format!("load, {}, pages {}", format_size(run.bytes), run.page_size),
            };
            if steps.iter().any(|step| step.id == id) {
                continue;
            }
            let command =
                ["inserts", "load", "--dir", &dir.display().to_string(), "--size", &run.bytes.to_string()];
            let mut command: Vec<String> =
                std::iter::once(OURSELVES).chain(command).map(str::to_owned).collect();
            command.extend(run.server().iter().map(|&word| word.to_owned()));
            if !run.is_rival {
                command.extend(["--page-size".to_owned(), run.page_size.to_string()]);
                command.extend(["--segment".to_owned(), plan.segment.to_string()]);
            }
            command.extend(["--seed".to_owned(), order.seed.to_string()]);
            steps.push(Step {
                id,
                what: format!(
                    "fills a database of {}, {}",
                    format_size(run.bytes),
                    match run.is_rival {
                        true => "PostgreSQL's".to_owned(),
                        false => format!("pages of {}", format_size(run.page_size)),
                    }
                ),
                command,
                estimate: Duration::from_secs(run.bytes / (60 * MIB) + 1),
                makes: Some(dir),
                rival: run.rival(),
                ..Step::default()
            });
        }
        let filled = crate::servers::database(&usual(order, &plan).folder(data));
        steps.extend(calibrations(&filled, order.size, order.seed));
        for time in 1..=order.repeat {
            for run in &runs {
                steps.push(Step {
                    id: run.id(time),
                    what: run.id(time),
                    command: run.command(data, &plan, order.seed + u64::from(time)),
                    estimate: Duration::from_secs(u64::from((plan.warm_up + plan.measure).div_ceil(10))),
                    rival: run.rival(),
                    ..Step::default()
                });
            }
        }
        steps.push(tuner(order, &plan, data));
        steps
    }

    /// Each database that is filled, and a copy of the largest that grows by as much; the tuner has one of each size of pages, a dump, and one that is worked on.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let runs = runs(order, &plan);
        let filled: HashSet<(bool, u64, u64)> =
            runs.iter().map(|run| (run.is_rival, run.bytes, run.page_size)).collect();
        let (all, largest) =
            filled.iter().fold((0, 0), |(all, most), (_, bytes, _)| (all + bytes, (*bytes).max(most)));
        let tuner = (plan.tune_pages.len() as u64 + 3) * plan.usual_bytes();
        let memory = runs.iter().map(|run| run.memory).max().unwrap_or(plan.usual_memory);
        Needs { disk: all / 4 * 5 + (2 * largest).max(tuner), memory: memory + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        report::report(run)
    }
}
