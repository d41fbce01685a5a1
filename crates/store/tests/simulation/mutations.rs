//! The simulation on trial: with each safeguard of the store left out, one at a time, it has to find that something is wrong.

use crate::{life, plan::Plan};
use gannet_base::sim::Simulation;
use gannet_store::mutation::{Mutation, plant};

/// Seeds after which a fault counts as not found.
const SEEDS_MAX: u64 = 400;
/// Whoever takes more steps is taken to be stuck, and is not waited for: that alone proves nothing.
const MAX_STEPS: u64 = 2_000_000;

/// What a run without a safeguard came to.
enum Verdict {
    Found(String),
    Passed,
}

fn run(seed: u64, mutation: Mutation) -> Verdict {
    let mut plan = Plan::new(seed);
    if !is_of_admin_work(mutation) {
        // What is beside the point takes most of the time.
        (plan.open.archive, plan.backs_up, plan.compacts) = (None, false, false);
    }
    let result = Simulation::new(seed).max_steps(MAX_STEPS).run(move || life::lives(plan));
    match result {
        Err(failure) if failure.steps <= MAX_STEPS => Verdict::Found(failure.to_string()),
        _ => Verdict::Passed,
    }
}

/// Whether only a backup, an archive or a compaction can tell that the safeguard is missing.
fn is_of_admin_work(mutation: Mutation) -> bool {
    use Mutation::{ArchiveGapNotNamed, ArchivedHomesBelieved, ChangesForgotten, CutTooEarly};
    matches!(mutation, ArchiveGapNotNamed | ArchivedHomesBelieved | ChangesForgotten | CutTooEarly)
}

/// `SIM_MUTATION` names those that are to be tried alone, with commas in between; `SIM_FIRST` is the first seed.
#[test]
fn every_mutation_is_found() {
    let _alone = crate::PLANTED.write();
    let only = std::env::var("SIM_MUTATION").ok();
    let wanted = |mutation: &Mutation| {
        let name = format!("{mutation:?}");
        only.as_ref().is_none_or(|names| names.split(',').any(|one| one == name))
    };
    let first = crate::number("SIM_FIRST").unwrap_or(1);
    let mut missed = Vec::new();
    for mutation in Mutation::ALL.into_iter().filter(wanted) {
        plant(Some(mutation));
        let found = crate::deal(first..first + SEEDS_MAX, |seed| match run(seed, mutation) {
            Verdict::Found(what) => Some((seed, what)),
            Verdict::Passed => None,
        });
        plant(None);
        match found {
            Some((seed, what)) => println!("{mutation:?}: found by seed {seed}: {what:.200}"),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found by {SEEDS_MAX} seeds: {missed:?}");
}
