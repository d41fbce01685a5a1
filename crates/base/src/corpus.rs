//! The kept inputs of the fuzz targets: a folder for each target under `fuzz/corpus`, a file for each input.
//!
//! Tests run all of them, so what a fuzzer once found stays found without one. And they run seeds with a few changes each, so that
//! a plain `cargo test` fuzzes a little; `GANNET_FUZZ_ROUNDS` makes that longer, `GANNET_FUZZ_SEED` other changes.

use crate::sim::Generator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::{env, fs};

/// With this variable set, [`offer`] writes.
const WRITE: &str = "GANNET_CORPUS_WRITE";
/// How often each seed is changed.
const ROUNDS: &str = "GANNET_FUZZ_ROUNDS";
const ROUNDS_DEFAULT: u64 = 40;
const SEED: &str = "GANNET_FUZZ_SEED";

fn folder(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target)
}

/// Hands each kept input of a target to `run`.
///
/// # Panics
/// When there is none, or `run` panics: the message names the inputs with which it did.
pub fn replay(target: &str, run: fn(&[u8])) {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", folder.display());
    files.retain(|file| {
        let input = fs::read(file).expect("a readable file");
        catch_unwind(AssertUnwindSafe(|| run(&input))).is_err()
    });
    assert!(files.is_empty(), "inputs of {target} that fail: {files:?}");
}

/// Runs a target's seeds, each as it is and with some changes, and keeps them as inputs if `GANNET_CORPUS_WRITE` is set: that makes
/// the corpus anew where a format has changed.
///
/// # Panics
/// When there are no seeds, or `run` panics: the message has the input.
pub fn offer(target: &str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds.iter().for_each(|seed| run(seed));
    if env::var_os(WRITE).is_some() {
        fs::create_dir_all(folder(target)).expect("a writable folder");
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder(target).join(format!("seed-{number:03}")), seed).expect("a writable folder");
        }
    }
    let mut generator = Generator::new(number(SEED, 1));
    for round in 0..number(ROUNDS, ROUNDS_DEFAULT) {
        for seed in seeds {
            let input = changed(seed, seeds, &mut generator);
            let passed = catch_unwind(AssertUnwindSafe(|| run(&input)));
            assert!(passed.is_ok(), "{target} fails in round {round}: {input:?}");
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Bytes that lie at the edges of what numbers can be.
const EDGES: [u8; 8] = [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, b'"'];

/// The seed with up to four changes.
fn changed(seed: &[u8], seeds: &[Vec<u8>], generator: &mut Generator) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..=generator.below(4) {
        let at = generator.below(input.len() as u64 + 1) as usize;
        let len = generator.below(9) as usize;
        let end = (at + len).min(input.len());
        match generator.below(6) {
            0 if at < input.len() => input[at] ^= 1 << generator.below(8),
            1 if at < input.len() => input[at] = EDGES[generator.below(EDGES.len() as u64) as usize],
            2 => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => drop(input.splice(at..at, (0..len).map(|_| generator.next_u64() as u8))),
            _ => {
                let other = &seeds[generator.below(seeds.len() as u64) as usize];
                let from = generator.below(other.len() as u64 + 1) as usize;
                let part = &other[from..(from + 8 * len).min(other.len())];
                drop(input.splice(at..end, part.iter().copied()));
            }
        }
    }
    input
}
