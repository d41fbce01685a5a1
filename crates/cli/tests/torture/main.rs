//! The real server under torture: killed at any moment, cut off from power at any moment, on a disk that is full or turns
//! read-only. Its clients keep a ledger of what they were told, and whatever is there afterwards has to agree with it.
//!
//! - `cargo test -p gannet --test torture` runs a little of each; the seed is fresh, and printed.
//! - `TORTURE_ROUNDS=n` kills the server in n rounds.
//! - `TORTURE_TOOLS=n` ends n commands of the administrator.
//! - `TORTURE_CUTS=n` looks at n cuts of each recorded run, `TORTURE_RUNS=m` records m runs.
//! - `TORTURE_CUT=folder:cut` looks again at a cut that showed a loss, see [`cuts`].
//! - `TORTURE_SEED=n` draws the same times and loads again. What a server does in them is not a function of the seed.
//! - `TORTURE_BINARY=path` tortures that binary and not the one just built.

mod cuts;
mod kills;
mod ledger;
mod load;
mod server;
mod site;
mod tools;
mod trouble;
mod verify;
mod volume;

use cuts::{Bench, Cut};
use kills::Torture;
use site::Device;
use std::path::Path;
use tools::Tools;
use volume::Volume;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed that was asked for, or one that nobody has seen.
fn seed() -> u64 {
    number("TORTURE_SEED").unwrap_or_else(|| gannet_base::random::next_u64() >> 24)
}

#[test]
fn whatever_the_server_is_doing_when_it_is_killed_nothing_acknowledged_is_lost() {
    let (seed, rounds) = (seed(), number("TORTURE_ROUNDS").unwrap_or(4));
    println!("TORTURE_SEED={seed} TORTURE_ROUNDS={rounds}");
    let mut torture = Torture::new(seed).unwrap();
    for round in 1..=rounds {
        if let Err(what) = torture.round() {
            panic!("seed {seed}, round {round}: {what}");
        }
        if round.is_multiple_of(20) {
            println!("{}", torture.tally);
        }
    }
    torture.check().unwrap_or_else(|what| panic!("seed {seed}, after the last round: {what}"));
    println!("{}", torture.tally);
}

#[test]
fn whatever_a_command_is_doing_when_it_is_ended_the_database_is_untouched_and_doing_it_again_works() {
    let (seed, rounds) = (seed(), number("TORTURE_TOOLS").unwrap_or(8));
    println!("TORTURE_SEED={seed} TORTURE_TOOLS={rounds}");
    let mut tools = Tools::new(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    for round in 1..=rounds {
        tools.round().unwrap_or_else(|what| panic!("seed {seed}, round {round}: {what}"));
    }
    tools.check().unwrap_or_else(|what| panic!("seed {seed}, after the last round: {what}"));
    println!("{}", tools.tally);
}

#[test]
fn whenever_the_power_goes_off_nothing_acknowledged_is_lost() {
    if let Ok(cut) = std::env::var("TORTURE_CUT") {
        return look_again(&cut);
    }
    let (seed, cuts) = (seed(), number("TORTURE_CUTS").unwrap_or(8));
    let runs = number("TORTURE_RUNS").unwrap_or(1);
    println!("TORTURE_SEED={seed} TORTURE_RUNS={runs} TORTURE_CUTS={cuts}");
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), seed);
    for run in 1..=runs {
        if let Err(what) = bench.cut(cuts) {
            let folder = folder.keep();
            panic!("seed {seed}, run {run}: {what}\n\nlook again: TORTURE_CUT={}:CUT", folder.display());
        }
        println!("{run} runs: {}", bench.tally);
    }
}

/// Looks again at what a cut has left: `folder:position/seed`, more such pairs behind commas.
fn look_again(cut: &str) {
    let (folder, cuts) = cut.rsplit_once(':').expect("TORTURE_CUT is folder:cut");
    let cut = |text: &str| -> Option<Cut> {
        let (position, seed) = text.split_once('/')?;
        Some((position.parse().ok()?, seed.parse().ok()?))
    };
    let cuts: Vec<Cut> = cuts.split(',').map(|text| cut(text).expect("a cut is position/seed")).collect();
    Bench::new(Path::new(folder), 0).look_again(&cuts).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_device_that_forgets_is_found_out() {
    for device in [Device::ForgetsDurable, Device::ForgetsSyncs, Device::ForgetsNames] {
        let folder = tempfile::tempdir().unwrap();
        let loss = Bench::new(folder.path(), seed()).loss(device, 40).unwrap();
        println!("{device:?}: {}", loss.as_deref().unwrap_or("nothing"));
        assert!(loss.is_some(), "{device:?}");
    }
}

/// Runs a test that needs a volume of its own, where there can be one.
fn on_a_volume(test: impl FnOnce(Volume, u64) -> Result<String, String>) {
    let seed = seed();
    match Volume::new() {
        Err(why) => println!("skipped, there is no volume to be had: {why}"),
        Ok(volume) => {
            println!("TORTURE_SEED={seed}: {}", test(volume, seed).unwrap_or_else(|what| panic!("{what}")))
        }
    }
}

#[test]
fn a_full_disk_refuses_what_needs_room_and_nothing_is_lost() {
    on_a_volume(trouble::full_disk);
}

#[test]
fn a_disk_that_turns_read_only_is_named_and_nothing_is_lost() {
    on_a_volume(trouble::read_only_disk);
}
