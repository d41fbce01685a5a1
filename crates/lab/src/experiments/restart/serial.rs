//! How many reads a transaction waits for one after the other, on the modelled device, in steady state.

use super::report::{Found, head, told};
use super::{On, PROFILE, Plan, step, words};
use crate::chart::{Bars, Figure, Kind, Spread, number};
use crate::confine::{OURSELVES, Step};
use crate::document::Part;
use crate::tpcc::transactions::Kind as Transaction;
use gannet_base::units::format_size;
use std::path::{Path, PathBuf};

/// Sessions in the same process.
const SESSIONS: u32 = 8;
/// Bytes of memory that the tables are filled with.
pub(super) const FILLING_MEMORY: u64 = 512 << 20;
/// What a warehouse takes on the disk, about, and the log beside all of them.
const WAREHOUSE_BYTES: u64 = 110 << 20;
const LOG_BYTES: u64 = 1 << 30;
/// Whether statements look ahead, as the setting has it, and as the report says it.
const HOWS: [(&str, &str); 2] = [("off", "without look-ahead"), ("on", "with it")];

/// How large it is, and how long it takes.
pub(super) struct Size {
    pub(super) warehouses: u32,
    /// Bytes of memory, about a quarter of the data.
    pub(super) memory: u64,
    /// Seconds that are measured, behind half as many that are not.
    pub(super) seconds: u32,
}

fn folder(data: &Path) -> PathBuf {
    data.join("tpcc")
}

pub(super) fn run_id(how: &str, round: u32) -> String {
    format!("serial reads, look-ahead {how}, {round}")
}

fn command(word: &str, size: &Size, data: &Path, memory: u64, seed: u64) -> Vec<String> {
    let mut command = words(&[OURSELVES, "tpcc", word, "--dir"]);
    command.push(folder(data).display().to_string());
    let numbers = [("--memory", memory), ("--warehouses", size.warehouses.into()), ("--seed", seed)];
    command.extend(numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number.to_string()]));
    command
}

/// Bytes of the disk.
pub(super) fn disk(plan: &Plan) -> u64 {
    u64::from(plan.serial.warehouses) * WAREHOUSE_BYTES + LOG_BYTES
}

/// Fills the tables.
pub(super) fn load(plan: &Plan, data: &Path, seed: u64) -> Step {
    let size = &plan.serial;
    step(
        "load, TPC-C, embedded".to_owned(),
        "fills the tables of TPC-C in an embedded Gannet".to_owned(),
        command("load", size, data, FILLING_MEMORY, seed),
        u64::from(size.warehouses),
        Some(folder(data)),
    )
}

/// The steps of one repetition. What each leaves in memory the next one's opening reads back: so the first of two makes the state that the second is measured in.
pub(super) fn trials(plan: &Plan, data: &Path, round: u32, seed: u64) -> Vec<Step> {
    let size = &plan.serial;
    let one = |how: &str, id: String, what: String, seconds: u32, seed: u64| {
        let mut command = command("run", size, data, size.memory, seed);
        command.extend(words(On::Modelled.options()));
        command.extend(["--sessions".to_owned(), SESSIONS.to_string()]);
        command.extend(["--seconds".to_owned(), seconds.to_string()]);
        command.extend(["--setup".to_owned(), format!("set gannet_look_ahead = {how}")]);
        step(id, what, command, u64::from(seconds) + 1, None)
    };
    HOWS.iter()
        .flat_map(|&(how, says)| {
            let id = run_id(how, round);
            let (warm, what) = (format!("{id}, warm-up"), format!("TPC-C {says}: {PROFILE}"));
            [
                one(how, warm, format!("{what}, not counted"), size.seconds.div_ceil(2), seed + 1000),
                one(how, id, what, size.seconds, seed),
            ]
        })
        .collect()
}

impl Found<'_> {
    /// A figure of each repetition.
    fn of_kind(
        &self,
        how: &str,
        kind: Transaction,
        figure: fn(&serde_json::Value) -> Option<f64>,
    ) -> Vec<f64> {
        let rounds = 1..=self.run.order.repeat;
        let outputs = rounds.filter_map(|round| self.run.find(&run_id(how, round))?.output.first());
        outputs.filter_map(|output| figure(&output["measured"]["kinds"][kind.name()])).collect()
    }

    /// What a transaction waits for in turn.
    pub(super) fn serial_reads(&self) -> Vec<Part> {
        // Without look-ahead a statement still fetches some pages at once; one by one it would wait for each of them.
        let alone = |figures: &serde_json::Value| {
            Some(figures["serial_reads"].as_f64()? + figures["batched_reads"].as_f64()?)
        };
        let ahead = |figures: &serde_json::Value| {
            Some(figures["serial_reads"].as_f64()? + figures["batches"].as_f64()?)
        };
        let (mut rows, mut bars) = (Vec::new(), [Vec::new(), Vec::new()]);
        for kind in Transaction::ALL {
            let (alone, ahead) =
                (Spread::of(&self.of_kind("off", kind, alone)), Spread::of(&self.of_kind("on", kind, ahead)));
            let ratio = alone.zip(ahead).filter(|(_, ahead)| ahead.median > 0.0);
            let p90 =
                |how: &str| told(Spread::of(&self.of_kind(how, kind, |figures| figures["p90_ms"].as_f64())));
            if alone.is_none() && ahead.is_none() {
                continue;
            }
            rows.push(vec![
                kind.name().to_owned(),
                told(alone),
                told(ahead),
                ratio.map_or("–".to_owned(), |(alone, ahead)| number(alone.median / ahead.median)),
                p90("off"),
                p90("on"),
            ]);
            bars[0].push(alone);
            bars[1].push(ahead);
        }
        if rows.is_empty() {
            return Vec::new();
        }
        let groups: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
        let columns = [
            "",
            "one at a time",
            "with look-ahead",
            "ratio",
            "p90 without look-ahead, ms",
            "p90 with it, ms",
        ];
        let Plan { serial, .. } = &self.plan;
        let names = ["one at a time", "with look-ahead"];
        let bars = names.iter().zip(bars).map(|(name, values)| Bars { name: (*name).to_owned(), values });
        vec![
            Part::Heading("Reads that a transaction waits for".to_owned()),
            Part::Text(format!(
                "TPC-C in an embedded Gannet on {PROFILE}: {} warehouses, {SESSIONS} sessions, a budget of {}, {} s behind a warm-up. Pages that are asked for together take the time of one request, \
                 and count as one wait. One at a time is what a statement without look-ahead would wait for if it fetched nothing together: all pages that it reads.",
                serial.warehouses,
                format_size(serial.memory),
                serial.seconds
            )),
            Part::Figure(Figure {
                id: "restart-serial-reads".to_owned(),
                title: "Reads a transaction waits for, one after the other".to_owned(),
                y: "reads".to_owned(),
                kind: Kind::Bars { groups, bars: bars.collect(), limit: None },
            }),
            Part::Table(head(&columns), rows),
        ]
    }
}
