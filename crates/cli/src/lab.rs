//! `gannet lab`, `gannet tune`: the laboratory is a program of its own, with rivals' libraries that this one does not need; it is found and takes over.

use crate::arguments::Lab;
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Its name.
const PROGRAM: &str = "gannet-lab";
/// Where it is, where somebody says so.
const VARIABLE: &str = "GANNET_LAB";

/// Becomes the laboratory's program.
///
/// # Errors
/// It is not there.
pub(crate) fn run(options: &Lab) -> Result<()> {
    let mut words: Vec<OsString> = options.words.clone();
    if words.first().is_none_or(|word| word == "--help" || word == "-h" || word == "help") {
        words = vec!["run".into(), "--help".into()];
    }
    become_it(words)
}

/// Becomes the laboratory's program, which tunes.
///
/// # Errors
/// It is not there.
pub(crate) fn tune(options: &Lab) -> Result<()> {
    let mut words: Vec<OsString> = vec!["tune".into()];
    words.extend(options.words.iter().cloned());
    if options.words.is_empty() {
        words.push("--help".into());
    }
    become_it(words)
}

fn become_it(words: Vec<OsString>) -> Result<()> {
    let program = find()?;
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| format!("cannot start {program:?}"))
}

fn find() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(VARIABLE) {
        let program = PathBuf::from(program);
        return match program.is_file() {
            true => Ok(program),
            false => bail!("{VARIABLE} names {program:?}, which is no file"),
        };
    }
    let ours = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = ours.parent().map(|folder| folder.join(PROGRAM));
    let path = std::env::var_os("PATH");
    let in_path =
        std::env::split_paths(path.as_deref().unwrap_or(OsStr::new(""))).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|program| program.is_file()).with_context(|| {
        format!(
            "the laboratory is a program of its own, {PROGRAM}, which is neither beside {ours:?} nor in PATH, nor does {VARIABLE} say where it is: cargo build \
             --release -p gannet-lab --features rivals"
        )
    })
}
