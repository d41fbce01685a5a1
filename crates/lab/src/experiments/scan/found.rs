//! What the steps have brought.

use super::{BEHIND, Contestant, Plan, cold_id, contestants, device_id, id};
use crate::chart::{Spread, number};
use crate::record::{Ended, Record};
use crate::scan::Plan as QueryPlan;
use crate::scan::read::Pattern;
use serde_json::Value;

/// How much memory there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Half of the database; nothing of it is in memory when a query begins.
    Twice,
    /// More than the database, all of which is in memory.
    Fits,
}

/// A pattern as reports name it, and what is measured for it: with the index forced, in the order of the index.
pub(super) const PATTERNS: [(&str, Pattern, QueryPlan); 4] = [
    ("scan, counted", Pattern::Scan, QueryPlan::Chosen),
    ("scan, all rows", Pattern::Rows, QueryPlan::Chosen),
    ("scan + sort", Pattern::Sort, QueryPlan::Chosen),
    ("index order", Pattern::Tag, QueryPlan::Index),
];

/// Bytes as mebibytes, for people.
pub(super) fn mebibytes(bytes: Option<f64>) -> String {
    bytes.map_or("not seen".to_owned(), |bytes| number(bytes / f64::from(1 << 20)))
}

/// Bytes a second as megabytes a second.
pub(super) fn megabytes(bytes: Option<f64>) -> String {
    bytes.map_or("–".to_owned(), |bytes| number(bytes / 1e6))
}

/// A number, or a dash.
pub(super) fn plain(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), number)
}

/// A median with its range, where there is one.
pub(super) fn ranged(spread: Spread) -> String {
    match spread.least < spread.most {
        true => format!("{} ({}–{})", number(spread.median), number(spread.least), number(spread.most)),
        false => number(spread.median),
    }
}

/// A run, read.
pub(super) struct Found<'r> {
    pub(super) run: &'r Record,
    pub(super) plan: Plan,
}

impl<'r> Found<'r> {
    pub(super) fn new(run: &'r Record) -> Self {
        Found { run, plan: Plan::of(run.order.size) }
    }

    pub(super) fn contestants(&self) -> Vec<Contestant> {
        contestants(&self.run.order)
    }

    pub(super) fn rounds(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.run.order.repeat
    }

    /// What a step has printed.
    pub(super) fn output(&self, id: &str) -> Option<&'r Value> {
        self.run.find(id).and_then(|ended: &Ended| ended.output.first())
    }

    /// The outputs of a step about a contestant, of all repetitions.
    pub(super) fn outputs(&self, what: &str, contestant: &Contestant) -> Vec<&'r Value> {
        self.rounds().filter_map(|round| self.output(&id(what, &contestant.name, round))).collect()
    }

    /// What the device did alone.
    pub(super) fn device(&self, what: &str, path: &str) -> Option<f64> {
        let values: Vec<f64> = self
            .rounds()
            .filter_map(|round| self.output(&device_id(what, round))?.pointer(path)?.as_f64())
            .collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    /// Bytes a second that the device was read in sequence, before the reads and behind them, in all repetitions; and by how many threads the fastest time.
    pub(super) fn sequential(&self) -> Option<(Spread, u64)> {
        let all = self.rounds().flat_map(|round| ["sequential", BEHIND].map(|what| device_id(what, round)));
        let told = all.filter_map(|id| {
            let output = self.output(&id)?;
            Some((output["bytes_per_second"].as_f64()?, output["threads"].as_u64()?))
        });
        let told: Vec<(f64, u64)> = told.collect();
        let fastest = told.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some((Spread::of(&told.iter().map(|one| one.0).collect::<Vec<_>>())?, fastest.1))
    }

    /// All that was measured of a query in one repetition, or said of it.
    fn told(
        &self,
        memory: Memory,
        contestant: &Contestant,
        (pattern, plan): (Pattern, QueryPlan),
        round: u32,
    ) -> Vec<&'r Value> {
        match memory {
            Memory::Twice => {
                let output = self.output(&cold_id(&contestant.name, pattern, plan, round));
                output.and_then(|output| output.get("measured")).into_iter().collect()
            }
            Memory::Fits => {
                let output = self.output(&id("fits", &contestant.name, round));
                let all = output.and_then(|output| output["measured"].as_array()).into_iter().flatten();
                all.filter(|one| one["pattern"] == pattern.name() && one["forced"] == plan.name()).collect()
            }
        }
    }

    /// The measurements of a query, of all repetitions.
    pub(super) fn measured(
        &self,
        memory: Memory,
        contestant: &Contestant,
        pattern: Pattern,
        plan: QueryPlan,
    ) -> Vec<&'r Value> {
        let of_round = |round| {
            let told = self.told(memory, contestant, (pattern, plan), round);
            // The planner's choice, where it is a plan that was forced as well, was measured there. It may choose otherwise the next time.
            let same = told.iter().find_map(|one| QueryPlan::named(one["same_as"].as_str()?).ok());
            same.map_or(told, |same| self.told(memory, contestant, (pattern, same), round))
        };
        self.rounds().flat_map(of_round).filter(|one| one["seconds"].is_f64()).collect()
    }

    /// A figure of these measurements.
    pub(super) fn spread(measured: &[&Value], path: &str) -> Option<Spread> {
        let values: Vec<f64> = measured.iter().filter_map(|one| one.pointer(path)?.as_f64()).collect();
        Spread::of(&values)
    }

    /// Seconds until all rows had come; of a query that was ended before, what it would have taken: what comes before the first row it has done, and the rest of
    /// its rows come as fast as those that did.
    fn seconds_of(&self, one: &Value) -> Option<f64> {
        let (seconds, came) = (one["seconds"].as_f64()?, one["rows"].as_f64()?);
        if one["whole"] == true {
            return Some(seconds);
        }
        let first = one["seconds_to_first_row"].as_f64()?;
        (came > 0.0).then(|| first + (seconds - first) * self.plan.rows as f64 / came)
    }

    /// Rows a second, of the whole query.
    pub(super) fn rate(&self, measured: &[&Value]) -> Option<Spread> {
        let rates = measured.iter().filter_map(|one| Some(self.plan.rows as f64 / self.seconds_of(one)?));
        Spread::of(&rates.collect::<Vec<_>>())
    }

    /// The seconds of a query's repetitions, and whether none of them was ended before all rows had come.
    pub(super) fn seconds(&self, measured: &[&Value]) -> Option<(Spread, bool)> {
        let seconds: Vec<f64> = measured.iter().filter_map(|one| self.seconds_of(one)).collect();
        let whole = measured.iter().all(|one| one["whole"] == true);
        Some((Spread::of(&seconds)?, whole))
    }

    /// Whether a query was left out, as it failed, in any repetition.
    pub(super) fn is_left_out(
        &self,
        memory: Memory,
        contestant: &Contestant,
        pattern: Pattern,
        plan: QueryPlan,
    ) -> bool {
        self.rounds().any(|round| {
            self.run.is_left_out(&match memory {
                Memory::Twice => cold_id(&contestant.name, pattern, plan, round),
                Memory::Fits => id("fits", &contestant.name, round),
            })
        })
    }

    /// Whether something was measured, and neither servers nor others were held to their memory.
    pub(super) fn lacked_groups(&self) -> bool {
        let mut reads = self.run.ended.iter().filter(|ended| ended.id.starts_with("2x, ")).peekable();
        reads.peek().is_some()
            && !reads.any(|ended| {
                let limit = |group: &Value| group["limit_bytes"].is_u64();
                limit(&ended.group) || ended.output.first().is_some_and(|output| limit(&output["group"]))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[test]
    fn a_choice_that_was_forced_as_well_is_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder.path().join("run"));
        let found = Found::new(&run);
        let first = &found.contestants()[0];
        let of = |memory, plan| {
            let measured = found.measured(memory, first, Pattern::Tag, plan);
            found.rate(&measured).map(|spread| spread.median)
        };
        assert_eq!(of(Memory::Twice, QueryPlan::Chosen), of(Memory::Twice, QueryPlan::Sort));
        assert_ne!(of(Memory::Twice, QueryPlan::Chosen), of(Memory::Twice, QueryPlan::Index));
        assert!(of(Memory::Fits, QueryPlan::Index).is_some());
    }

    #[test]
    fn a_query_that_was_ended_is_projected_and_that_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let run = run(&folder.path().join("run"));
        let found = Found::new(&run);
        let first = &found.contestants()[0];
        let measured = found.measured(Memory::Twice, first, Pattern::Tag, QueryPlan::Index);
        let (seconds, whole) = found.seconds(&measured).unwrap();
        assert!(!whole);
        // A thousand of 1.6 million rows came within 2 s, the first of them after 0.4 s: that time is not taken again for each of the others.
        let rows = found.plan.rows as f64;
        assert_eq!(seconds.median, 0.4 + 1.6 * 1600.0);
        assert_eq!(found.rate(&measured).unwrap().median, rows / seconds.median);
    }
}
