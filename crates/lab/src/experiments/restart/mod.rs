//! X6: a kill at full load. How soon the first commit is there, and the speed of before; what is redone in a second; how long a shutdown takes.

mod redo;
mod report;
mod serial;
mod series;

use super::{AROUND, BERKELEY_DB, Experiment, Needs, POSTGRESQL, Rival, SQLITE, building, program_folder};
use crate::confine::{OURSELVES, Step};
use crate::document::Document;
use crate::record::{Order, Record, Size};
use crate::restart::Side;
use crate::rivals;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Restart;

/// Sessions of a server, and threads of an embedded Gannet.
const SESSIONS: u32 = 16;
/// SQLite has one writer at a time: more would wait for each other, and look for the lock now and then.
const SQLITE_SESSIONS: u32 = 1;
/// The modelled device, and how many requests it works on at one time where that is one only.
const PROFILE: &str = "slow-wide";
const NARROW: &str = "1";
/// Bytes that it writes in a second, where that is as little as the volume did that was written of.
const WRITE_RATE: u64 = 3_000_000;
const WRITE_RATE_OPTION: &str = "3000000";
/// Blocks of the sequential reads of the device, and how many threads take turns.
const BLOCK: u64 = 1 << 20;
const READERS: u32 = 8;

/// What a branch of a bank takes on the disk, and a row of an embedded database, about.
const BRANCH_BYTES: u64 = 20 << 20;
const ROW_BYTES: u64 = 300;

/// How large it is, and how long it takes.
struct Plan {
    /// Bytes of log to be redone.
    log: u64,
    /// Branches of a server's bank, and bytes of memory that a server may have.
    branches: u64,
    memory: u64,
    /// Rows of an embedded database, and bytes of memory that its process may have.
    rows: u64,
    embedded_memory: u64,
    /// Seconds at the end of a load that say how fast it was before the kill; it takes as long at least.
    before: u32,
    /// Seconds of load after a start.
    loaded: u32,
    /// Seconds that a redo in peace is watched at most.
    rest: u32,
    /// The same, where the device takes one request at a time.
    narrow_rest: u32,
    /// Seconds of load, each, on the device that writes hardly anything.
    starved: u32,
    /// Seconds of sequential reads.
    device: u32,
    /// What transactions wait for in steady state.
    serial: serial::Size,
}

impl Plan {
    fn of(size: Size) -> Self {
        match size {
            Size::Quick => Plan {
                log: 192 << 20,
                branches: 16,
                memory: 256 << 20,
                rows: 600_000,
                embedded_memory: 144 << 20,
                before: 4,
                loaded: 8,
                rest: 30,
                narrow_rest: 8,
                starved: 6,
                device: 2,
                serial: serial::Size { warehouses: 2, memory: 48 << 20, seconds: 4 },
            },
            Size::Standard => Plan {
                log: 1 << 30,
                branches: 50,
                memory: 768 << 20,
                rows: 6_000_000,
                embedded_memory: 528 << 20,
                before: 15,
                loaded: 40,
                rest: 120,
                narrow_rest: 120,
                starved: 60,
                device: 8,
                serial: serial::Size { warehouses: 8, memory: 192 << 20, seconds: 60 },
            },
            Size::Large => Plan {
                log: 4 << 30,
                branches: 200,
                memory: 2 << 30,
                rows: 25_000_000,
                embedded_memory: 2 << 30,
                before: 30,
                loaded: 90,
                rest: 600,
                narrow_rest: 600,
                starved: 120,
                device: 20,
                serial: serial::Size { warehouses: 24, memory: 576 << 20, seconds: 120 },
            },
        }
    }
}

/// On what device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    /// On the one that there is.
    Device,
    /// On the modelled one.
    Modelled,
    /// On the modelled one that takes one request at a time.
    Narrow,
    /// On the modelled one that writes hardly anything.
    Starved,
}

impl On {
    /// Those whose sequential reads are measured.
    const READ: [On; 3] = [On::Device, On::Modelled, On::Narrow];

    fn name(self) -> String {
        match self {
            On::Device => "the device".to_owned(),
            On::Modelled => PROFILE.to_owned(),
            On::Narrow => format!("{PROFILE}, {NARROW} wide"),
            On::Starved => format!("{PROFILE}, {} MB/s written", WRITE_RATE / 1_000_000),
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            On::Device => &[],
            On::Modelled => &["--profile", PROFILE],
            On::Narrow => &["--profile", PROFILE, "--width", NARROW],
            On::Starved => &["--profile", PROFILE, "--write-rate", WRITE_RATE_OPTION],
        }
    }
}

/// Somebody who is killed.
#[derive(Clone, PartialEq, Debug)]
struct Contestant {
    /// As reports name it.
    name: String,
    side: Side,
    on: On,
    mode: String,
}

impl Contestant {
    /// Who it is, where it is a rival.
    fn rival(&self) -> Option<&'static str> {
        (!matches!(self.side, Side::WireGannet | Side::Gannet)).then(|| self.side.name())
    }

    /// What it is killed by is made on the device: on a modelled one that would take as long as it is slow.
    fn is_killed(&self) -> bool {
        self.on == On::Device
    }
}

fn contestants(order: &Order) -> Vec<Contestant> {
    let has = |rival: &Rival| order.rivals.iter().any(|name| name == rival.name);
    let mode = order.modes.first().cloned().unwrap_or_else(|| "auto".to_owned());
    let one = |name: &str, side, on| Contestant { name: name.to_owned(), side, on, mode: mode.clone() };
    let mut all = vec![one("Gannet, server", Side::WireGannet, On::Device)];
    if has(&POSTGRESQL) {
        all.push(one("PostgreSQL, server", Side::WirePostgres, On::Device));
    }
    all.push(one("Gannet, embedded", Side::Gannet, On::Device));
    if has(&SQLITE) {
        all.push(one("SQLite, embedded", Side::Sqlite, On::Device));
    }
    if has(&BERKELEY_DB) {
        all.push(one("Berkeley DB, embedded", Side::BerkeleyDb, On::Device));
    }
    // A quick run is to be quick: the other two take a minute.
    let modelled: &[On] = match order.size {
        Size::Quick => &[On::Modelled],
        Size::Standard | Size::Large => &[On::Modelled, On::Narrow, On::Starved],
    };
    for &on in modelled {
        all.push(one(&format!("Gannet, embedded, {}", on.name()), Side::Gannet, on));
    }
    all
}

fn loaded_folder(data: &Path, side: Side) -> PathBuf {
    data.join(side.name())
}

fn killed_folder(data: &Path, side: Side) -> PathBuf {
    data.join(format!("{}-k", side.name()))
}

fn id(step: &str, contestant: &Contestant, round: u32) -> String {
    format!("{step}, {}, {round}", contestant.name)
}

fn device_id(on: On, round: u32) -> String {
    format!("sequential reads, {}, {round}", on.name())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// `gannet-lab restart STEP`, for seconds.
fn command(
    step: &str,
    contestant: &Contestant,
    plan: &Plan,
    from: Option<&Path>,
    to: &Path,
    seconds: u32,
    seed: u64,
) -> Vec<String> {
    let mut command = words(&[OURSELVES, "restart", step, "--side", contestant.side.name()]);
    let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
    if let Some(from) = from {
        add("--from", from.display().to_string());
    }
    add("--to", to.display().to_string());
    add("--log", plan.log.to_string());
    add("--io", contestant.mode.clone());
    let sessions = if contestant.side == Side::Sqlite { SQLITE_SESSIONS } else { SESSIONS };
    add("--sessions", sessions.to_string());
    if contestant.side.is_wire() {
        add("--memory", plan.memory.to_string());
        add("--branches", plan.branches.to_string());
    } else {
        add("--memory", plan.embedded_memory.to_string());
        add("--rows", plan.rows.to_string());
    }
    if contestant.side == Side::BerkeleyDb {
        let folder = to.parent().unwrap_or(to);
        let program = rivals::BERKELEY_DB.within(&program_folder(folder, rivals::BERKELEY_DB));
        add("--program", program.display().to_string());
    }
    add("--seconds", seconds.to_string());
    add("--seed", seed.to_string());
    command.extend(words(contestant.on.options()));
    command
}

fn step(id: String, what: String, command: Vec<String>, seconds: u64, makes: Option<PathBuf>) -> Step {
    Step { id, what, command, estimate: Duration::from_secs(seconds), makes, ..Step::default() }
}

/// Steps of one repetition for one contestant.
fn trials(contestant: &Contestant, plan: &Plan, data: &Path, round: u32, seed: u64) -> Vec<Step> {
    let side = contestant.side;
    let (loaded, killed) = (loaded_folder(data, side), killed_folder(data, side));
    let work = data.join(format!("{}-w", side.name()));
    let mebibytes = plan.log >> 20;
    let make = |name: &str, what: &str, from: &Path, seconds: u32, estimate: u64| {
        let command = command(name, contestant, plan, Some(from), &work, seconds, seed);
        step(id(name, contestant, round), format!("{what}: {}", contestant.name), command, estimate, None)
    };
    let mut steps = Vec::new();
    if contestant.is_killed() {
        let command = command("crash", contestant, plan, Some(&loaded), &killed, plan.before, seed);
        steps.push(step(
            id("crash", contestant, round),
            format!("load until there are {mebibytes} MiB of log, and a kill: {}", contestant.name),
            command,
            mebibytes / 10 + u64::from(plan.before),
            Some(killed.clone()),
        ));
    }
    if contestant.on == On::Starved {
        let seconds = u64::from(plan.starved);
        steps.push(make("steady", "sustained load", &loaded, plan.starved, seconds + 3));
        steps.push(make("loaded", "a start under load", &killed, plan.starved, seconds + 15));
        return steps;
    }
    if contestant.on == On::Modelled {
        steps.push(make(
            "steady",
            "as long as nothing is the matter",
            &loaded,
            2 * plan.before,
            2 * u64::from(plan.before) + 3,
        ));
    }
    if contestant.on == On::Narrow {
        steps.push(make(
            "rest",
            "a start in peace",
            &killed,
            plan.narrow_rest,
            u64::from(plan.narrow_rest) + 3,
        ));
        return steps;
    }
    steps.push(make("loaded", "a start under load", &killed, plan.loaded, u64::from(plan.loaded) + 5));
    let mut rest = make("rest", "a start in peace, and one that is killed again", &killed, plan.rest, 12);
    rest.command.push("--again".to_owned());
    steps.push(rest);
    steps
}

impl Experiment for Restart {
    fn name(&self) -> &'static str {
        "restart"
    }

    fn number(&self) -> &'static str {
        "X6"
    }

    fn question(&self) -> &'static str {
        "After a kill at full load: how soon is the first commit there, and the speed of before?"
    }

    fn source(&self) -> &'static str {
        "Ayende Rahien on RavenDB's storage engine Voron, started in a cloud machine after a crash under load"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[POSTGRESQL, SQLITE, BERKELEY_DB]
    }

    fn modes(&self) -> &'static [&'static str] {
        &["auto"]
    }

    fn repeat(&self, size: Size) -> u32 {
        if size == Size::Quick { 1 } else { 3 }
    }

    fn steps(&self, order: &Order, data: &Path) -> Vec<Step> {
        let (plan, contestants) = (Plan::of(order.size), contestants(order));
        let mut steps = Vec::new();
        if contestants.iter().any(|contestant| contestant.side == Side::BerkeleyDb) {
            steps.push(building(data, rivals::BERKELEY_DB));
        }
        for contestant in contestants.iter().filter(|contestant| contestant.is_killed()) {
            let folder = loaded_folder(data, contestant.side);
            let command = command("load", contestant, &plan, None, &folder, 0, order.seed);
            let load = step(
                format!("load, {}", contestant.name),
                format!("fills {}", contestant.name),
                command,
                plan.branches / 4 + plan.rows / 1_000_000,
                Some(folder),
            );
            steps.push(Step { rival: contestant.rival(), ..load });
        }
        steps.push(serial::load(&plan, data, order.seed));
        let file = loaded_folder(data, Side::Gannet).join("db").join("lab.gnt");
        for round in 1..=order.repeat {
            let seed = order.seed + u64::from(round);
            for on in On::READ.into_iter().filter(|on| contestants.iter().any(|one| one.on == *on)) {
                let mut command = words(&[OURSELVES, "device", "--sequential"]);
                let numbers =
                    [("--block", BLOCK), ("--threads", READERS.into()), ("--seconds", plan.device.into())];
                command.extend(["--file".to_owned(), file.display().to_string()]);
                command.extend(
                    numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]),
                );
                command.extend(words(on.options()));
                let what = format!("sequential reads: {}", on.name());
                steps.push(step(device_id(on, round), what, command, plan.device.into(), None));
            }
            for contestant in &contestants {
                let trials = trials(contestant, &plan, data, round, seed);
                steps.extend(trials.into_iter().map(|step| Step { rival: contestant.rival(), ..step }));
            }
            steps.extend(serial::trials(&plan, data, round, seed));
        }
        steps
    }

    /// Of everybody what was filled, what a kill has left, and a copy of that, the last two with up to two logs each.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let each = contestants(order).into_iter().filter(Contestant::is_killed).map(|one| {
            let database = match one.side.is_wire() {
                true => plan.branches * BRANCH_BYTES,
                false => plan.rows * ROW_BYTES,
            };
            3 * database + 4 * plan.log
        });
        let memory = plan.memory.max(plan.embedded_memory).max(serial::FILLING_MEMORY);
        Needs { disk: each.sum::<u64>() + serial::disk(&plan), memory: memory + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        report::report(run)
    }
}
