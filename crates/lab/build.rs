//! Tells the program which commit it was built from: a figure is one of that, whatever the tree is when it is measured.
//!
//! `BUILT_FROM` is the commit; where what is built was edited since, with `-dirty-` and a sum of the edits behind it, so that two states of a tree are told apart; `unknown`
//! outside of a repository of ours, as in a tarball. It is found again when a commit is made or checked out, and when a source is edited, which builds the program anew anyway.
//! Cargo has whatever it runs see the variable: a name that begins with `GANNET_` would be a setting of the server's.
//! Two packages use this script: the laboratory, and the command line, whose sources make no other laboratory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What decides on what is built, beside the crates: paths from the workspace's root.
const BESIDE: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// What of a crate does.
const OF_A_CRATE: [&str; 4] = ["src", "rivals", "Cargo.toml", "build.rs"];

fn git(root: &Path, words: &[&str]) -> Option<Vec<u8>> {
    // Looking at the state is not to change its index: that would be a reason to look again.
    let output = Command::new("git").arg("--no-optional-locks").arg("-C").arg(root).args(words).output();
    Some(output.ok().filter(|output| output.status.success())?.stdout)
}

fn line(root: &Path, words: &[&str]) -> Option<String> {
    Some(String::from_utf8(git(root, words)?).ok()?.trim().to_owned())
}

/// The sources that this package is built from, from the workspace's root.
fn sources(root: &Path) -> Vec<String> {
    let is_lab = std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name == "gannet-lab");
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut names: Vec<String> = crates
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !(is_lab && name == "cli"))
        .collect();
    names.sort();
    let of_crates = names.iter().flat_map(|name| OF_A_CRATE.map(|part| format!("crates/{name}/{part}")));
    BESIDE.map(str::to_owned).into_iter().chain(of_crates).filter(|path| root.join(path).exists()).collect()
}

/// Files that change when a commit is made, or another one is checked out.
fn heads(root: &Path) -> Vec<PathBuf> {
    let of = |name: &str| line(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
    let branch = line(root, &["symbolic-ref", "--quiet", "HEAD"]);
    // A branch that has no file of its own is among those that are packed.
    let names = ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
    names.filter_map(of).filter(|path| path.is_file()).collect()
}

/// The sum FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn build(root: &Path, sources: &[String]) -> Option<String> {
    let top = line(root, &["rev-parse", "--show-toplevel"])?;
    // A tarball may have been unpacked within another repository.
    if std::fs::canonicalize(top).ok()? != std::fs::canonicalize(root).ok()? {
        return None;
    }
    let commit = line(root, &["rev-parse", "--short=10", "HEAD"])?;
    let of_sources = |words: &[&str]| {
        let words: Vec<&str> =
            words.iter().copied().chain(["--"]).chain(sources.iter().map(|path| &**path)).collect();
        git(root, &words)
    };
    let mut edits = of_sources(&["diff", "--no-ext-diff", "HEAD"])?;
    let added = String::from_utf8(of_sources(&["ls-files", "--others", "--exclude-standard"])?).ok()?;
    for path in added.lines() {
        edits.extend_from_slice(path.as_bytes());
        edits.extend(std::fs::read(root.join(path)).ok()?);
    }
    Some(if edits.is_empty() { commit } else { format!("{commit}-dirty-{:08x}", sum(&edits) as u32) })
}

fn main() {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let root = package.join("../..");
    let sources = sources(&root);
    println!("cargo::rerun-if-changed={}", package.join("../lab/build.rs").display());
    for path in sources.iter().map(|path| root.join(path)).chain(heads(&root)) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!(
        "cargo::rustc-env=BUILT_FROM={}",
        build(&root, &sources).unwrap_or_else(|| "unknown".to_owned())
    );
}
