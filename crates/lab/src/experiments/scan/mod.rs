//! X1: the file cache that eats the machine. A table is scanned, sorted, and read in the order of an index that has nothing to do with the order of its
//! rows, with a database that fits into the memory and with one of twice as much; what stays in the OS cache, and what that does to a neighbour.

mod beside;
mod found;
mod report;

use super::{AROUND, Experiment, FIREBIRD, Needs, POSTGRESQL, QUICK_MODES, Rival, SQLITE};
use crate::confine::{OURSELVES, Step};
use crate::document::Document;
use crate::record::{Order, Record, Size};
use crate::scan::Plan as QueryPlan;
use crate::scan::ROW_LEN;
use crate::scan::read::{ALL, Pattern};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Scan;

/// Rows of the readers' test.
const SINGLES: u64 = 5000;
/// The readers' test where every write is synchronous, as steps and folders are called.
const SYNCHRONOUS: &str = "synced";
/// As far as a database grows beyond the memory, in tenths of it.
const GROWTH_TENTHS: u64 = 25;
/// Of the neighbour's group, Gannet's budget; PostgreSQL and Firebird have as much for their own caches. Half of it is the neighbour's.
const BUDGET_SHARE: u64 = 4;
/// How the device alone is read in sequence.
const SEQUENTIAL_BLOCK: u64 = 256 << 10;
const SEQUENTIAL_THREADS: &str = "4,16,64";
/// The step that does so once more behind the reads: what a device does may change as it is used.
const BEHIND: &str = "sequential, behind";

/// How large it is, and how long it is measured.
struct Plan {
    rows: u64,
    /// Bytes of memory where the database is twice as large.
    cold: u64,
    /// Bytes of memory where it fits.
    fits: u64,
    /// Seconds that one query may take.
    most: u32,
    /// How often each query is repeated while everything is in memory.
    times: u32,
    /// Bytes of memory of server and neighbour together, and seconds of its shortest part.
    neighbour: (u64, u32),
    /// Bytes of memory that a database outgrows, and the seconds it may take for it.
    growth: (u64, u32),
}

impl Plan {
    fn of(size: Size) -> Self {
        const MIB: u64 = 1 << 20;
        match size {
            Size::Quick => Plan {
                rows: 1_600_000,
                cold: 200 * MIB,
                fits: 1200 * MIB,
                most: 5,
                times: 1,
                neighbour: (256 * MIB, 2),
                growth: (64 * MIB, 8),
            },
            Size::Standard => Plan {
                rows: 8_000_000,
                cold: 1024 * MIB,
                fits: 6 * 1024 * MIB,
                most: 120,
                times: 3,
                neighbour: (768 * MIB, 10),
                growth: (256 * MIB, 120),
            },
            Size::Large => Plan {
                rows: 32_000_000,
                cold: 4 * 1024 * MIB,
                fits: 16 * 1024 * MIB,
                most: 900,
                times: 3,
                neighbour: (3 * 1024 * MIB, 30),
                growth: (1024 * MIB, 600),
            },
        }
    }

    fn growth_rows(&self) -> u64 {
        self.growth.0 / ROW_LEN * GROWTH_TENTHS / 10
    }
}

/// Somebody who is measured.
#[derive(Clone, PartialEq, Debug)]
struct Contestant {
    /// As reports name it.
    name: String,
    /// As the lab's command does.
    driver: &'static str,
    /// The folder of its database.
    store: &'static str,
    /// Gannet's I/O mode.
    io: Option<String>,
}

impl Contestant {
    fn is_served(&self) -> bool {
        matches!(self.driver, "gannet-server" | "postgresql" | "firebird")
    }

    fn is_ours(&self) -> bool {
        self.store == "gannet"
    }

    /// Who it is, where it is a rival.
    fn rival(&self) -> Option<&'static str> {
        (!self.is_ours()).then_some(self.store)
    }
}

fn has(order: &Order, rival: Rival) -> bool {
    order.rivals.iter().any(|name| name == rival.name)
}

fn served(mode: &str) -> Contestant {
    Contestant {
        name: format!("Gannet's server, {mode}"),
        driver: "gannet-server",
        store: "gannet",
        io: Some(mode.to_owned()),
    }
}

fn firebird() -> Contestant {
    Contestant { name: "Firebird".to_owned(), driver: "firebird", store: "firebird", io: None }
}

fn postgresql() -> Contestant {
    Contestant { name: "PostgreSQL".to_owned(), driver: "postgresql", store: "postgresql", io: None }
}

/// Who reads: Gannet embedded in each mode beside SQLite, its server in the first of them beside PostgreSQL's and Firebird's.
fn contestants(order: &Order) -> Vec<Contestant> {
    let mut all: Vec<Contestant> = (order.modes.iter())
        .map(|mode| Contestant {
            name: format!("Gannet, {mode}"),
            driver: "gannet",
            store: "gannet",
            io: Some(mode.clone()),
        })
        .collect();
    if has(order, SQLITE) {
        all.push(Contestant { name: "SQLite".to_owned(), driver: "sqlite", store: "sqlite", io: None });
    }
    all.extend(order.modes.first().map(|mode| served(mode)));
    if has(order, POSTGRESQL) {
        all.push(postgresql());
    }
    if has(order, FIREBIRD) {
        all.push(firebird());
    }
    all
}

/// Whose neighbour is looked at: that of Gannet's server in each mode, PostgreSQL's and Firebird's.
fn neighbours(order: &Order) -> Vec<Contestant> {
    let mut all: Vec<Contestant> = order.modes.iter().map(|mode| served(mode)).collect();
    if has(order, POSTGRESQL) {
        all.push(postgresql());
    }
    if has(order, FIREBIRD) {
        all.push(firebird());
    }
    all
}

fn device_id(what: &str, round: u32) -> String {
    format!("device, {what}, {round}")
}

fn cold_id(name: &str, pattern: Pattern, plan: QueryPlan, round: u32) -> String {
    format!("2x, {name}, {}, {}, {round}", pattern.name(), plan.name())
}

/// A measurement that is about a contestant as a whole.
fn id(what: &str, name: &str, round: u32) -> String {
    format!("{what}, {name}, {round}")
}

/// Builds steps.
struct Builder<'p> {
    plan: &'p Plan,
    data: &'p Path,
    steps: Vec<Step>,
}

impl Builder<'_> {
    fn folder(&self, contestant: &Contestant) -> PathBuf {
        self.data.join(contestant.store)
    }

    /// The lab's command for one contestant, whose database is in that folder.
    fn command(
        &self,
        what: &str,
        contestant: &Contestant,
        dir: &Path,
        rows: u64,
        more: &[(&str, String)],
    ) -> Vec<String> {
        let mut command = [OURSELVES, "scan", what].map(str::to_owned).to_vec();
        let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
        add("--dir", dir.display().to_string());
        add("--driver", contestant.driver.to_owned());
        add("--rows", rows.to_string());
        if let Some(mode) = &contestant.io {
            add("--io", mode.clone());
        }
        more.iter().for_each(|(name, value)| add(name, value.clone()));
        command
    }

    fn add(&mut self, id: String, what: String, command: Vec<String>, seconds: u64) -> &mut Step {
        let estimate = Duration::from_secs(seconds);
        self.steps.push(Step { id, what, command, estimate, ..Step::default() });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    fn loads(&mut self, contestants: &[Contestant], seed: u64) {
        for (index, contestant) in contestants.iter().enumerate() {
            if contestants[..index].iter().any(|other| other.store == contestant.store) {
                continue;
            }
            let dir = self.folder(contestant);
            let command =
                self.command("load", contestant, &dir, self.plan.rows, &[("--seed", seed.to_string())]);
            let what = format!("fills {}", contestant.store);
            let seconds = self.plan.rows / 300_000 + 1;
            let step = self.add(format!("load, {}", contestant.store), what, command, seconds);
            (step.makes, step.rival) = (Some(dir), contestant.rival());
        }
    }

    /// What the device does when it has nothing else to do, before the reads, and how fast it is read in sequence behind them.
    fn device(&mut self, round: u32, seed: u64, is_before: bool) {
        // Of those in sequence each number of threads has a share.
        let (seconds, shared) = if self.plan.most < 10 { (2, 3) } else { (10, 15) };
        let file = crate::servers::database(&self.data.join("gannet")).display().to_string();
        let sequential = format!("--sequential --block {SEQUENTIAL_BLOCK} --threads {SEQUENTIAL_THREADS}");
        let random = format!("--block 8192 --seed {seed}");
        let all: &[(&str, String)] = match is_before {
            true => &[("sequential", sequential), ("random", random), ("writes", "--sync-writes".to_owned())],
            false => &[(BEHIND, sequential)],
        };
        for (what, options) in all {
            let seconds = if options.starts_with("--sequential") { shared } else { seconds };
            let mut command = [OURSELVES, "device", "--file", &file].map(str::to_owned).to_vec();
            command.extend(options.split(' ').map(str::to_owned));
            command.extend(["--seconds".to_owned(), seconds.to_string()]);
            self.add(device_id(what, round), format!("the device alone, {what}"), command, seconds);
        }
    }

    fn reads(&mut self, contestants: &[Contestant], round: u32, seed: u64) {
        let (most, seed) = (("--most", self.plan.most.to_string()), ("--seed", seed.to_string()));
        for (pattern, plan) in ALL {
            for contestant in contestants {
                let dir = self.folder(contestant);
                let limit = self.plan.cold;
                let more = [
                    ("--limit", limit.to_string()),
                    ("--pattern", pattern.name().to_owned()),
                    ("--plan", plan.name().to_owned()),
                    most.clone(),
                    seed.clone(),
                ];
                let command = self.command("cold", contestant, &dir, self.plan.rows, &more);
                let what = format!("{}, {}, {}, 2× the memory", pattern.name(), plan.name(), contestant.name);
                // A query in the order of an index takes much longer than any other.
                let seconds = match (pattern, plan) {
                    (Pattern::Tag, QueryPlan::Index) => {
                        u64::from(self.plan.most).min(self.plan.rows / 100_000 + 1)
                    }
                    (_, QueryPlan::Chosen) if pattern == Pattern::Tag => 1,
                    _ => self.plan.rows / 800_000 + 1,
                };
                let step = self.add(cold_id(&contestant.name, pattern, plan, round), what, command, seconds);
                (step.cold, step.rival) = (vec![dir], contestant.rival());
                step.limit = (!contestant.is_served()).then_some(limit);
            }
        }
        for contestant in contestants {
            let dir = self.folder(contestant);
            let limit = self.plan.fits;
            let more = [
                ("--limit", limit.to_string()),
                ("--times", self.plan.times.to_string()),
                most.clone(),
                seed.clone(),
            ];
            let mut command = self.command("warm", contestant, &dir, self.plan.rows, &more);
            command.push("--fits".to_owned());
            let what = format!("all patterns, {}, fitting", contestant.name);
            let seconds = self.plan.rows / 200_000 * u64::from(self.plan.times);
            let step = self.add(id("fits", &contestant.name, round), what, command, seconds);
            (step.cold, step.rival) = (vec![dir], contestant.rival());
            step.limit = (!contestant.is_served()).then_some(limit);
        }
    }

    fn beside(&mut self, order: &Order, round: u32, seed: u64) {
        let (limit, seconds) = self.plan.neighbour;
        for contestant in neighbours(order) {
            let dir = self.folder(&contestant);
            let more = [
                ("--limit", limit.to_string()),
                ("--budget", (limit / BUDGET_SHARE).to_string()),
                ("--seconds", seconds.to_string()),
                ("--seed", seed.to_string()),
            ];
            let command = self.command("neighbour", &contestant, &dir, self.plan.rows, &more);
            let what = format!("a neighbour beside scan and backup, {}", contestant.name);
            let step =
                self.add(id("neighbour", &contestant.name, round), what, command, u64::from(seconds) * 4 + 2);
            step.rival = contestant.rival();
        }
        for is_synchronous in [false, true] {
            for contestant in contestants(order) {
                let (name, told) = match is_synchronous {
                    false => ("singles", ""),
                    true => (SYNCHRONOUS, ", every write synchronous"),
                };
                let dir = self.data.join(format!("{name}-{}", contestant.store));
                let more = [("--limit", self.plan.cold.to_string()), ("--seed", seed.to_string())];
                let mut command = self.command("singles", &contestant, &dir, SINGLES, &more);
                command.extend(is_synchronous.then(|| "--synchronous".to_owned()));
                let what = format!("{SINGLES} single rows{told}, {}", contestant.name);
                let limit = (!contestant.is_served()).then_some(self.plan.cold);
                let step = self.add(id(name, &contestant.name, round), what, command, 4);
                (step.limit, step.rival, step.works_in) = (limit, contestant.rival(), Some(dir));
            }
        }
        let (limit, most) = self.plan.growth;
        for contestant in contestants(order).into_iter().filter(Contestant::is_served) {
            let dir = self.data.join(format!("growing-{}", contestant.store));
            let more = [
                ("--limit", limit.to_string()),
                ("--parts", GROWTH_TENTHS.to_string()),
                ("--most", most.to_string()),
                ("--seed", seed.to_string()),
            ];
            let command = self.command("grow", &contestant, &dir, self.plan.growth_rows(), &more);
            let what = format!("a database grows past the memory, {}", contestant.name);
            let step = self.add(id("growth", &contestant.name, round), what, command, u64::from(most));
            (step.rival, step.works_in) = (contestant.rival(), Some(dir));
        }
        let seconds = self.plan.neighbour.1;
        if let Some(contestant) = order.modes.first().map(|mode| served(mode)) {
            let dir = self.folder(&contestant);
            let more = [
                ("--limit", self.plan.cold.to_string()),
                ("--seconds", seconds.to_string()),
                ("--seed", seed.to_string()),
            ];
            let command = self.command("share", &contestant, &dir, self.plan.rows, &more);
            let what = "two databases of one server".to_owned();
            self.add(id("share", &contestant.name, round), what, command, u64::from(seconds) * 3 + 2);
        }
    }
}

impl Experiment for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn number(&self) -> &'static str {
        "X1"
    }

    fn question(&self) -> &'static str {
        "What do scans, sorts and reads in the order of an index take, and what do they leave in the OS cache?"
    }

    fn source(&self) -> &'static str {
        "Firebird developers' blog, 27 March 2012, on CORE-3791: Firebird and the Windows file-system cache"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[SQLITE, POSTGRESQL, FIREBIRD]
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
        let contestants = contestants(order);
        let mut builder = Builder { plan: &plan, data, steps: Vec::new() };
        builder.loads(&contestants, order.seed);
        for round in 1..=order.repeat {
            let seed = order.seed;
            builder.device(round, seed + u64::from(round), true);
            builder.reads(&contestants, round, seed);
            builder.device(round, seed + u64::from(round), false);
            builder.beside(order, round, seed);
        }
        builder.steps
    }

    /// A database is twice the smaller memory, and those of others are up to a half larger; one is copied, one backed up, and one sorted at a time.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let stores: HashSet<&str> = contestants(order).iter().map(|one| one.store).collect();
        let (database, count) = (2 * plan.cold, stores.len() as u64);
        let grown = count * plan.growth.0 / 10 * GROWTH_TENTHS * 2;
        Needs { disk: count * database / 2 * 3 + 3 * database + grown, memory: plan.fits + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        report::document(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ended;
    use serde_json::{Value, json};

    pub(super) fn order() -> Order {
        Order {
            experiment: "scan".to_owned(),
            size: Size::Quick,
            rivals: vec!["sqlite".to_owned()],
            modes: vec!["direct".to_owned(), "buffered".to_owned()],
            profiles: vec!["as-is".to_owned()],
            repeat: 1,
            seed: 1,
        }
    }

    fn measured(rate: f64, whole: bool) -> Value {
        let rows = if whole { Plan::of(Size::Quick).rows as f64 } else { rate };
        let seconds = if whole { rows / rate } else { 2.0 };
        json!({ "rows": rows, "seconds": seconds, "seconds_to_first_row": 0.4, "whole": whole, "plan": "a plan" })
    }

    /// A run in which every read of the first contestant in the order of the index was ended before its time, and the planner sorts.
    pub(super) fn run(folder: &Path) -> Record {
        let mut run = Record::create(folder, &order(), 1, json!({})).unwrap();
        for step in Scan.steps(&order(), Path::new("data")) {
            let word = |index: usize| step.command.get(index).map(String::as_str);
            let is = |word: &str| step.command.iter().any(|one| one == word);
            let output = match word(2) {
                Some("cold") if is("tag") && is("chosen") => {
                    json!({ "measured": { "same_as": "sort", "plan": "Sort" } })
                }
                Some("cold") if is("tag") && is("index") => json!({ "measured": measured(1000.0, false) }),
                Some("cold") => json!({ "measured": measured(5000.0, true) }),
                Some("warm") => {
                    let all = ALL.map(|(pattern, plan)| {
                        let mut one = measured(9000.0, true);
                        one["pattern"] = json!(pattern.name());
                        one["forced"] = json!(plan.name());
                        one
                    });
                    json!({ "measured": all })
                }
                _ => json!({}),
            };
            let (id, command) = (step.id, step.command);
            let output = vec![output];
            let ended = Ended {
                id,
                command,
                began_unix: 1,
                seconds: 1.0,
                output,
                group: Value::Null,
                skipped: None,
                under: None,
            };
            run.add(ended).unwrap();
        }
        run
    }

    #[test]
    fn everybody_takes_part_in_what_is_for_him() {
        let steps = Scan.steps(&order(), Path::new("data"));
        let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
        for wanted in [
            "load, gannet",
            "load, sqlite",
            "2x, Gannet, buffered, tag, index, 1",
            "2x, Gannet's server, direct, sort, chosen, 1",
            "fits, SQLite, 1",
            "neighbour, Gannet's server, buffered, 1",
            "growth, Gannet's server, direct, 1",
            "singles, SQLite, 1",
            "synced, SQLite, 1",
        ] {
            assert!(ids.contains(&wanted), "{wanted}: {ids:?}");
        }
        assert!(!ids.iter().any(|id| id.contains("PostgreSQL")));
        // What the device does is looked at before the reads and behind them.
        let place = |id: &str| ids.iter().position(|one| *one == id);
        let [before, read, behind] =
            ["device, sequential, 1", "fits, SQLite, 1", "device, sequential, behind, 1"].map(place);
        assert!(before.is_some() && before < read && read < behind, "{ids:?}");
        // Servers are held to the limit by a group of their own.
        let limited = |id: &str| steps.iter().find(|step| step.id == id).and_then(|step| step.limit);
        assert!(limited("2x, SQLite, scan, chosen, 1").is_some());
        assert_eq!(limited("2x, Gannet's server, direct, scan, chosen, 1"), None);
    }

    #[test]
    fn patterns_are_drawn_beside_what_the_device_alone_reads_in_sequence() {
        use crate::chart::Kind;
        let folder = tempfile::tempdir().unwrap();
        let mut run = run(&folder.path().join("run"));
        for ended in run.ended.iter_mut().filter(|ended| ended.id.starts_with("device, sequential")) {
            ended.output = vec![json!({ "bytes_per_second": 2e8, "threads": 4 })];
        }
        let document = Scan.report(&run);
        let limit = |id: &str| {
            let figure = document.figures().find(|figure| figure.id == id).unwrap();
            let Kind::Bars { limit, .. } = &figure.kind else { panic!("{figure:?}") };
            limit.clone().map(|(_, values)| values)
        };
        // Rows have 200 bytes; in the order of an index they are not read in sequence.
        let values = limit("patterns-twice").unwrap();
        assert!(values.contains(&Some(1e6)) && values.contains(&None), "{values:?}");
        assert_eq!(limit("patterns-fits"), None);
    }

    #[test]
    fn a_report_says_what_was_projected_and_who_was_not_held_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder.path().join("run"));
        let page = Scan.report(&run).markdown();
        assert!(page.contains("2,560, projected"), "{page}");
        assert!(page.contains("No memory cgroup could be made"));
        assert!(page.contains("Gannet, direct ÷ SQLite"));
        // What is as fast is neither ahead nor behind, and why is said.
        assert!(page.contains("not told apart in: each of these. Each was measured once"), "{page}");
        assert!(!page.contains("is ahead in") && page.contains("No other mode is ahead of direct"));
    }
}
