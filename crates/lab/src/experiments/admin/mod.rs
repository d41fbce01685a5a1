//! X3: what maintenance costs, and whom. Each task alone and beside users of TPC-C; tasks by the size of the database; users as garbage grows; sweeps by garbage, incremental
//! backups by changes.

mod found;
mod report;
mod studies;
mod tasks;
#[cfg(test)]
mod tests;
mod values;

use super::{AROUND, Experiment, FIREBIRD, Needs, POSTGRESQL, Rival, SQLITE, calibrations};
use crate::admin::measure::MADE_MOST;
use crate::admin::task::Task;
use crate::confine::{OURSELVES, Step};
use crate::document::Document;
use crate::record::{Order, Record, Size};
use crate::servers::database;
use crate::sides::{GANNET, Side};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's head.
pub(super) struct Admin;

/// Memory for each warehouse: a quarter of what its data takes.
const MEMORY_EACH: u64 = 28 << 20;

/// How large it is, and how long it is measured.
struct Plan {
    warehouses: u64,
    sessions: u32,
    /// Seconds that count, and those before.
    seconds: f64,
    warm_up: f64,
    /// Seconds after which a task beside users is ended; it grows with the database, as tasks do.
    limit: u32,
    sample: f64,
    /// Seconds in which garbage grows.
    growing: f64,
    /// One of so many rows of the stock is garbage.
    every: &'static str,
    /// Shares of stock and customers that change before an incremental backup.
    shares: &'static str,
    /// The same tasks on so many times fewer warehouses, too.
    smaller: &'static [u64],
}

impl Plan {
    fn of(size: Size) -> Self {
        let plan = Plan {
            warehouses: 4,
            sessions: 10,
            seconds: 1.0,
            warm_up: 1.0,
            limit: 12,
            sample: 0.2,
            growing: 3.0,
            every: "50,10,3",
            shares: "0,0.05,0.2,0.5",
            smaller: &[4],
        };
        let every = "200,50,20,10,5,2,1";
        let shares = "0,0.01,0.05,0.1,0.2,0.5,1";
        match size {
            Size::Quick => plan,
            Size::Standard => Plan {
                warehouses: 24,
                sessions: 25,
                seconds: 15.0,
                warm_up: 15.0,
                limit: 240,
                sample: 1.0,
                growing: 120.0,
                every,
                shares,
                smaller: &[4, 2],
            },
            Size::Large => Plan {
                warehouses: 100,
                sessions: 25,
                seconds: 30.0,
                warm_up: 60.0,
                limit: 1200,
                sample: 1.0,
                growing: 600.0,
                every,
                shares,
                smaller: &[4, 2],
            },
        }
    }

    /// Databases of all sizes that tasks are compared by, as warehouses.
    fn sizes(&self) -> Vec<u64> {
        self.smaller.iter().map(|times| self.warehouses / times).chain([self.warehouses]).collect()
    }

    fn memory(&self) -> u64 {
        self.warehouses * MEMORY_EACH
    }
}

/// Gannet, and who else was asked for.
fn contestants(order: &Order) -> Vec<Side> {
    let rivals = order.rivals.iter().filter_map(|rival| Side::named(rival));
    std::iter::once(GANNET).chain(rivals).collect()
}

fn task_id(side: Side, task: Task, time: u32) -> String {
    format!("task, {}, {}, {time}", side.name(), task.name())
}

fn sizes_id(side: Side, warehouses: u64, time: u32) -> String {
    format!("sizes, {}, {warehouses} warehouses, {time}", side.name())
}

fn growing_id(side: Side, is_held: bool, time: u32) -> String {
    format!("garbage, {}, {}, {time}", side.name(), if is_held { "held" } else { "swept" })
}

fn sweeps_id(side: Side, time: u32) -> String {
    format!("sweeps, {}, {time}", side.name())
}

fn changes_id(side: Side, time: u32) -> String {
    match side {
        // As it was named when nobody else had one.
        GANNET => format!("changes, {time}"),
        _ => format!("changes, {}, {time}", side.name()),
    }
}

/// Makes the steps.
struct Steps<'a> {
    plan: Plan,
    data: &'a Path,
    /// Of the database.
    warehouses: u64,
}

impl Steps<'_> {
    fn base(&self, side: Side) -> PathBuf {
        match self.warehouses == self.plan.warehouses {
            true => self.data.join(side.name()),
            false => self.data.join(format!("{}-{}", side.name(), self.warehouses)),
        }
    }

    fn step(&self, side: Side, id: String, what: String, words: &[String], seconds: f64) -> Step {
        let mut command: Vec<String> = vec![OURSELVES.to_owned(), "admin".to_owned()];
        command.extend(words.iter().cloned());
        let mut add = |name: &str, value: String| command.extend([name.to_owned(), value]);
        add("--server", side.name().to_owned());
        add("--base", self.base(side).display().to_string());
        add("--warehouses", self.warehouses.to_string());
        Step {
            id,
            what,
            command,
            estimate: Duration::from_secs_f64(seconds),
            rival: (side != GANNET).then_some(side.name()),
            ..Step::default()
        }
    }

    fn load(&self, side: Side, seed: u64) -> Step {
        let words = ["load", "--seed", &seed.to_string()].map(str::to_owned);
        let what = format!("fills {} with {} warehouses", side.name(), self.warehouses);
        let each = match side {
            GANNET | Side::Sqlite => 1.5,
            Side::Wire(_) => 3.0,
            Side::Firebird => 8.0,
        };
        let id = match self.warehouses == self.plan.warehouses {
            true => format!("load, {}", side.name()),
            false => format!("load, {}, {} warehouses", side.name(), self.warehouses),
        };
        let step = self.step(side, id, what, &words, self.warehouses as f64 * each);
        Step { makes: Some(self.base(side)), ..step }
    }

    /// A step that works on a copy of the data, which takes its time.
    fn measured(
        &self,
        side: Side,
        id: String,
        what: String,
        words: &[&str],
        seed: u64,
        seconds: f64,
    ) -> Step {
        let plan = &self.plan;
        let mut all: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
        add("--scratch", self.data.join("w").display().to_string());
        add("--sessions", plan.sessions.to_string());
        add("--memory", plan.memory().to_string());
        add("--warm-up", plan.warm_up.to_string());
        add("--sample", plan.sample.to_string());
        add("--limit", plan.limit.to_string());
        add("--seed", seed.to_string());
        let copying = self.warehouses as f64 * 0.3 + 1.0;
        self.step(side, id, what, &all, seconds + copying)
    }

    fn task(&self, side: Side, task: Task, time: u32, seed: u64, looks_at_conditions: bool) -> Step {
        let plan = &self.plan;
        let seconds = plan.seconds.to_string();
        let mut words = vec!["task", "--task", task.name(), "--seconds", &seconds];
        if looks_at_conditions {
            words.push("--conditions");
        }
        let what = format!("{} of {}, alone and beside users", task.name(), side.name());
        // Two times with the task are as long as it takes.
        let estimate = plan.warm_up + 6.0 * plan.seconds + plan.warehouses as f64 * 0.5;
        self.measured(side, task_id(side, task, time), what, &words, seed, estimate)
    }

    /// The tasks of [`studies::SIZED`](crate::admin::studies::SIZED), without users.
    fn sizes(&self, side: Side, time: u32, seed: u64) -> Step {
        let what = format!("tasks of {}, {} warehouses", side.name(), self.warehouses);
        let estimate = 5.0 + self.warehouses as f64;
        self.measured(side, sizes_id(side, self.warehouses, time), what, &["sizes"], seed, estimate)
    }

    fn round(&self, contestants: &[Side], time: u32, seed: u64, is_quick: bool) -> Vec<Step> {
        let plan = &self.plan;
        let mut steps = Vec::new();
        for task in Task::ALL {
            for &side in contestants.iter().filter(|&&side| task.tool(side).is_some()) {
                // Of all of them a compaction is the one that moves rows.
                let looks = !is_quick || task == Task::Compact;
                steps.push(self.task(side, task, time, seed, looks));
            }
        }
        for &side in contestants {
            for is_held in [false, true] {
                let seconds = plan.growing.to_string();
                let mut words = vec!["garbage", "--seconds", &seconds];
                if is_held {
                    words.push("--held");
                }
                let under = if is_held { "under an old snapshot" } else { "without an old snapshot" };
                let what = format!("users of {}, {under}", side.name());
                let estimate = plan.growing + plan.warm_up;
                steps.push(self.measured(
                    side,
                    growing_id(side, is_held, time),
                    what,
                    &words,
                    seed,
                    estimate,
                ));
            }
        }
        for &side in contestants.iter().filter(|&&side| Task::Sweep.tool(side).is_some()) {
            let what = format!("sweeps of {}, more and more garbage", side.name());
            let words = ["sweeps", "--every", plan.every];
            let estimate = plan.warehouses as f64;
            steps.push(self.measured(side, sweeps_id(side, time), what, &words, seed, estimate));
        }
        for &side in contestants.iter().filter(|&&side| Task::Incremental.tool(side).is_some()) {
            let words = ["changes", "--shares", plan.shares];
            let what = format!("incremental backups of {}, more and more changes", side.name());
            let estimate = plan.warehouses as f64;
            steps.push(self.measured(side, changes_id(side, time), what, &words, seed, estimate));
        }
        steps
    }
}

impl Experiment for Admin {
    fn name(&self) -> &'static str {
        "admin"
    }

    fn number(&self) -> &'static str {
        "X3"
    }

    fn question(&self) -> &'static str {
        "What do backup, restore, statistics, check, sweep, dump, load and compaction cost, and how much of that do users pay?"
    }

    fn source(&self) -> &'static str {
        "IBPhoenix on administering very large Firebird databases"
    }

    fn rivals(&self) -> &'static [Rival] {
        &[POSTGRESQL, FIREBIRD, SQLITE]
    }

    fn modes(&self) -> &'static [&'static str] {
        &["auto"]
    }

    fn repeat(&self, size: Size) -> u32 {
        if size == Size::Quick { 1 } else { 3 }
    }

    fn steps(&self, order: &Order, data: &Path) -> Vec<Step> {
        let of = |warehouses| Steps { plan: Plan::of(order.size), data, warehouses };
        let plan = Plan::of(order.size);
        let (steps, contestants) = (of(plan.warehouses), contestants(order));
        let mut all: Vec<Step> = contestants.iter().map(|&side| steps.load(side, order.seed)).collect();
        all.extend(calibrations(&database(&steps.base(GANNET)), order.size, order.seed));
        for &times in plan.smaller {
            let steps = of(plan.warehouses / times);
            all.extend(contestants.iter().map(|&side| steps.load(side, order.seed)));
        }
        for time in 1..=order.repeat {
            let seed = order.seed + u64::from(time);
            all.extend(steps.round(&contestants, time, seed, order.size == Size::Quick));
            for warehouses in plan.sizes() {
                all.extend(contestants.iter().map(|&side| of(warehouses).sizes(side, time, seed)));
            }
        }
        all
    }

    /// The data are four memories, and up to a half more with others; there are smaller ones, of as much together at most. One folder is copied, and grows by what users add and by the log. Beside it is what a task makes, which may be as
    /// large, as often as it may run, and what it makes it from; or the chain of incremental backups, which is less; or a second copy.
    fn needs(&self, order: &Order) -> Needs {
        let plan = Plan::of(order.size);
        let filled = plan.memory() * 4 / 2 * 3;
        let count = contestants(order).len() as u64;
        Needs { disk: (2 * count + 3 + MADE_MOST as u64) * filled, memory: plan.memory() + AROUND }
    }

    fn report(&self, run: &Record) -> Document {
        report::report(run)
    }
}
