//! The kept inputs of the fuzz targets: a folder for each target under `fuzz/corpus`, a file for each input.
//!
//! Tests run all of them, so what a fuzzer once found stays found without one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::{env, fs};

/// With this variable set, [`offer`] writes.
const WRITE: &str = "GANNET_CORPUS_WRITE";

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

/// Runs a target's seeds, and keeps them as inputs if `GANNET_CORPUS_WRITE` is set: that makes the corpus anew where a format
/// has changed.
///
/// # Panics
/// When there are no seeds, or `run` panics.
pub fn offer(target: &str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds.iter().for_each(|seed| run(seed));
    if env::var_os(WRITE).is_some() {
        fs::create_dir_all(folder(target)).expect("a writable folder");
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder(target).join(format!("seed-{number:03}")), seed).expect("a writable folder");
        }
    }
}
