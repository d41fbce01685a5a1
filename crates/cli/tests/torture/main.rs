//! The real server under torture: killed at any moment, cut off from power at any moment, on a disk that is full or turns
//! read-only. Its clients keep a ledger of what they were told, and whatever is there afterwards has to agree with it.
//!
//! - `cargo test -p gannet --test torture` runs a little of each; the seed is fresh, and printed.
//! - `TORTURE_ROUNDS=n` kills the server in n rounds.
//! - `TORTURE_SEED=n` draws the same times and loads again. What a server does in them is not a function of the seed.
//! - `TORTURE_BINARY=path` tortures that binary and not the one just built.

mod kills;
mod ledger;
mod load;
mod server;
mod verify;

use kills::Torture;

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
