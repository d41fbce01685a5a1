//! X2: does throughput fall faster than the database outgrows the memory? TPC-C on databases of half, 1.4, 2.75 and five times the memory there is.
//!
//! The database stays and the memory shrinks, so that there are as many warehouses for as many sessions everywhere: what was published did it the other way round,
//! and had less contention the larger it got.

mod figures;
mod report;

use super::{AROUND, Experiment, FIREBIRD, Needs, POSTGRESQL, Rival, calibrations};
use crate::confine::{OURSELVES, Step};
use crate::document::Document;
use crate::record::{Order, Record, Size};
use crate::servers::database;
use crate::throttle::AS_IS;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Scale;

/// The database, as multiples of the memory.
const MULTIPLES: [f64; 4] = [0.5, 1.4, 2.75, 5.0];
/// As many as were published.
const SESSIONS: u32 = 25;
/// What a warehouse takes in Gannet, about; a report has what it took, and with whom.
const BYTES_PER_WAREHOUSE: u64 = 94 << 20;
/// The I/O mode that Gannet chooses by itself.
const AUTO: &str = "auto";
/// As much log as Gannet has by default: what is written for a transaction is to be compared with that.
const EQUAL_LOG: &str = "max_wal_size=1GB";

/// How large it is, and how long it is measured.
#[derive(Clone, Copy)]
struct Plan {
    warehouses: u32,
    warm_up: u32,
    /// Of a limited device, behind the warm-up.
    settle: u32,
    seconds: u32,
}

impl Plan {
    fn of(size: Size) -> Self {
        match size {
            Size::Quick => Plan { warehouses: 8, warm_up: 5, settle: 3, seconds: 5 },
            Size::Standard => Plan { warehouses: 24, warm_up: 45, settle: 15, seconds: 60 },
            Size::Large => Plan { warehouses: 100, warm_up: 180, settle: 60, seconds: 300 },
        }
    }

    fn bytes(self) -> u64 {
        u64::from(self.warehouses) * BYTES_PER_WAREHOUSE
    }

    /// Bytes that a server may have in all, page cache included: whole mebibytes.
    fn memory(self, multiple: f64) -> u64 {
        ((self.bytes() as f64 / multiple) as u64) >> 20 << 20
    }

    fn load_time(self) -> Duration {
        Duration::from_secs(u64::from(self.warehouses) * 2 + 2)
    }

    fn run_time(self, profile: &str) -> Duration {
        let settle = if profile == AS_IS { 0 } else { self.settle };
        // Copying, starting, reading all of it where it fits, checking.
        let around = u64::from(self.warehouses) + 5;
        Duration::from_secs(u64::from(self.warm_up + settle + self.seconds) + around)
    }
}

/// Somebody who is measured.
#[derive(Clone, PartialEq, Debug)]
struct Contestant {
    /// As reports name it.
    name: String,
    /// The server, and the folder that its database is in.
    server: &'static str,
    io: String,
    settings: Vec<String>,
    /// Only with the largest database.
    only_largest: bool,
    /// Whether its clients ask statements at once that do not need each other's rows.
    pipelined: bool,
}

impl Contestant {
    /// Who it is, where it is a rival.
    fn rival(&self) -> Option<&'static str> {
        (self.server != "gannet").then_some(self.server)
    }

    /// The same with clients that ask at once what can be.
    fn pipelined(self) -> Self {
        Contestant { name: pipelined(&self.name), pipelined: true, ..self }
    }

    /// Whom of a rival it is compared with: who is asked in the same way, where there is one.
    fn against(&self, rival: &str) -> String {
        if self.pipelined && rival != "Firebird" { pipelined(rival) } else { rival.to_owned() }
    }
}

/// The name of somebody whose clients ask at once what can be.
fn pipelined(name: &str) -> String {
    format!("{name}, pipelined")
}

fn has(order: &Order, rival: Rival) -> bool {
    order.rivals.iter().any(|name| name == rival.name)
}

fn contestants(order: &Order) -> Vec<Contestant> {
    let ours = order.modes.iter().map(|mode| Contestant {
        name: if mode == AUTO { "Gannet".to_owned() } else { format!("Gannet, {mode}") },
        server: "gannet",
        io: mode.clone(),
        settings: Vec::new(),
        only_largest: false,
        pipelined: false,
    });
    let mut all = Vec::new();
    for one in ours {
        // In the mode that it has by itself; what it costs to ask is the same in each.
        let both = (one.io == AUTO).then(|| one.clone().pipelined());
        all.push(one);
        all.extend(both);
    }
    if has(order, POSTGRESQL) {
        let theirs = Contestant {
            name: "PostgreSQL".to_owned(),
            server: "postgresql",
            io: AUTO.to_owned(),
            settings: Vec::new(),
            only_largest: false,
            pipelined: false,
        };
        all.extend([theirs.clone(), theirs.clone().pipelined()]);
        if order.size != Size::Quick {
            all.push(Contestant {
                name: "PostgreSQL, 1 GB of log".to_owned(),
                settings: vec![EQUAL_LOG.to_owned()],
                only_largest: true,
                ..theirs
            });
        }
    }
    if has(order, FIREBIRD) {
        all.push(Contestant {
            name: "Firebird".to_owned(),
            server: "firebird",
            io: AUTO.to_owned(),
            settings: Vec::new(),
            only_largest: false,
            pipelined: false,
        });
    }
    all
}

/// Who is measured with this database.
fn contestants_at(order: &Order, multiple: f64) -> Vec<Contestant> {
    let is_largest = MULTIPLES.last() == Some(&multiple);
    contestants(order).into_iter().filter(|one| is_largest || !one.only_largest).collect()
}

fn load_id(server: &str) -> String {
    format!("load, {server}")
}

fn run_id(contestant: &str, profile: &str, multiple: f64, time: u32) -> String {
    format!("run, {contestant}, {profile}, {multiple}x, {time}")
}

/// A command of `gannet-lab scale`.
fn command(step: &str, contestant: &Contestant, plan: Plan, seed: u64) -> Vec<String> {
    let warehouses = plan.warehouses.to_string();
    let words = ["scale", step, "--server", contestant.server, "--warehouses", &warehouses];
    let mut command: Vec<String> = [OURSELVES].into_iter().chain(words).map(str::to_owned).collect();
    command.extend(["--seed".to_owned(), seed.to_string()]);
    command
}

fn load_step(contestant: &Contestant, plan: Plan, folder: &Path, seed: u64) -> Step {
    let mut command = command("load", contestant, plan, seed);
    command.extend(["--to".to_owned(), folder.display().to_string()]);
    Step {
        id: load_id(contestant.server),
        what: format!("fills {}: {} warehouses", contestant.server, plan.warehouses),
        command,
        estimate: plan.load_time(),
        makes: Some(folder.to_owned()),
        rival: contestant.rival(),
        ..Step::default()
    }
}

impl Experiment for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn number(&self) -> &'static str {
        "X2"
    }

    fn question(&self) -> &'static str {
        "does throughput fall faster than the database outgrows the memory?"
    }

    fn source(&self) -> &'static str {
        "IBPhoenix, a talk on administering very large Firebird databases: TPC-C by 25 users on RAID 10 and on an SSD"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[POSTGRESQL, FIREBIRD]
    }

    fn modes(&self) -> &'static [&'static str] {
        &[AUTO, "direct", "uncached", "buffered"]
    }

    fn usual_modes(&self, _size: Size) -> &'static [&'static str] {
        &[AUTO]
    }

    fn profiles(&self) -> &'static [&'static str] {
        &[AS_IS, "cloud", "raid10"]
    }

    fn repeat(&self, size: Size) -> u32 {
        if size == Size::Standard { 3 } else { 1 }
    }

    fn steps(&self, order: &Order, data: &Path) -> Vec<Step> {
        let plan = Plan::of(order.size);
        let folder = |contestant: &Contestant| -> PathBuf { data.join(contestant.server) };
        let mut steps: Vec<Step> = Vec::new();
        for contestant in contestants(order) {
            if !steps.iter().any(|step| step.id == load_id(contestant.server)) {
                steps.push(load_step(&contestant, plan, &folder(&contestant), order.seed));
            }
        }
        let filled = database(&data.join("gannet"));
        steps.extend(calibrations(&filled, order.size, order.seed));
        for profile in &order.profiles {
            for round in 1..=order.repeat {
                for multiple in MULTIPLES {
                    for contestant in contestants_at(order, multiple) {
                        let mut command = command("run", &contestant, plan, order.seed + u64::from(round));
                        let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
                        add("--from", folder(&contestant).display().to_string());
                        add("--to", data.join("run").display().to_string());
                        add("--memory", plan.memory(multiple).to_string());
                        add("--sessions", SESSIONS.to_string());
                        add("--warm-up", plan.warm_up.to_string());
                        add("--settle", if profile == AS_IS { 0 } else { plan.settle }.to_string());
                        add("--seconds", plan.seconds.to_string());
                        add("--profile", profile.clone());
                        add("--io", contestant.io.clone());
                        contestant.settings.iter().for_each(|setting| add("--setting", setting.clone()));
                        if contestant.pipelined {
                            command.push("--pipelined".to_owned());
                        }
                        if multiple < 1.0 {
                            command.push("--fits".to_owned());
                        }
                        steps.push(Step {
                            id: run_id(&contestant.name, profile, multiple, round),
                            what: format!(
                                "TPC-C: {}, {multiple}× the memory, device {profile}",
                                contestant.name
                            ),
                            command,
                            // The server has a limit of its own.
                            limit: None,
                            estimate: plan.run_time(profile),
                            rival: contestant.rival(),
                            limits_device: profile != AS_IS,
                            ..Step::default()
                        });
                    }
                }
            }
        }
        steps
    }

    /// A filled folder is up to a half larger than Gannet's database; one is copied, and grows by as much again while it is worked on, with its log.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let servers: HashSet<&str> = contestants(order).iter().map(|one| one.server).collect();
        let filled = plan.bytes() / 2 * 3;
        Needs { disk: (servers.len() as u64 + 2) * filled, memory: plan.memory(MULTIPLES[0]) + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        report::of(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn order(size: Size, rivals: &[&str]) -> Order {
        Order {
            experiment: "scale".to_owned(),
            size,
            rivals: rivals.iter().map(|&rival| rival.to_owned()).collect(),
            modes: vec![AUTO.to_owned()],
            profiles: vec![AS_IS.to_owned(), "cloud".to_owned()],
            repeat: 1,
            seed: 1,
        }
    }

    #[test]
    fn a_database_is_made_once_and_measured_with_each_memory() {
        let steps = |order: &Order| Scale.steps(order, Path::new("data"));
        let alone = steps(&order(Size::Quick, &[]));
        assert_eq!(alone.iter().filter(|step| step.makes.is_some()).count(), 1);
        // Beside them what the device does alone: reads, and writes.
        assert_eq!(alone.len(), 1 + 2 + 2 * 2 * MULTIPLES.len());
        let rivals = steps(&order(Size::Standard, &["postgresql"]));
        // The rival with as much log as we have stands beside the largest only.
        assert_eq!(rivals.len(), 2 + 2 + 2 * (4 * MULTIPLES.len() + 1));
        let both = steps(&order(Size::Quick, &["postgresql", "firebird"]));
        // Firebird's protocol has one way to ask.
        assert_eq!(both.len(), 3 + 2 + 2 * 5 * MULTIPLES.len());
        let at_once = |step: &Step| step.command.iter().any(|word| word == "--pipelined");
        assert!(both.iter().all(|step| at_once(step) == step.id.contains(", pipelined, ")));
        assert!(!both.iter().any(|step| at_once(step) && step.rival == Some("firebird")));
        let limited = alone.iter().find(|step| step.id == run_id("Gannet", "cloud", 5.0, 1)).unwrap();
        let fits = both.iter().filter(|step| step.command.iter().any(|word| word == "--fits"));
        // Everybody's, with either device.
        assert!(fits.clone().all(|step| step.id.contains("0.5x")) && fits.count() == 5 * 2);
        assert!(
            limited.limits_device && !alone.iter().any(|one| one.limits_device && one.id.contains(AS_IS))
        );
        let value = |name: &str| {
            let place = limited.command.iter().position(|word| word == name).unwrap();
            limited.command[place + 1].clone()
        };
        let settle = Plan::of(Size::Quick).settle.to_string();
        assert_eq!((value("--settle"), value("--profile")), (settle, "cloud".to_owned()));
        assert_eq!(value("--memory"), Plan::of(Size::Quick).memory(5.0).to_string());
        assert!(Plan::of(Size::Quick).memory(0.5) > Plan::of(Size::Quick).bytes());
    }
}
