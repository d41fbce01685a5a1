//! A step whose lab is gone comes to its end by itself.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_gannet-lab");

/// Whether a process is there, and is more than what nobody has asked after.
fn lives(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[test]
fn a_step_ends_when_its_lab_does() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display().to_string();
    let rows = ["--dir", &dir, "--rows", "1000", "--memory", "32MiB"];
    assert!(Command::new(LAB).args(["store", "load"]).args(rows).output().unwrap().status.success());
    // A shell stands for the lab: it starts a step that would take a minute, and waits to be killed.
    let mut lab = Command::new("/bin/sh")
        .args(["-c", "LAB_STEP_OF=$$ \"$@\" >/dev/null & echo $!; wait", "sh", LAB, "store", "lookups"])
        .args(rows)
        .args(["--warm-up", "0", "--seconds", "60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut number = String::new();
    BufReader::new(lab.stdout.take().unwrap()).read_line(&mut number).unwrap();
    let step = number.trim();
    // The first thread that it starts looks after its lab.
    while lives(step) && std::fs::read_dir(format!("/proc/{step}/task")).map_or(0, Iterator::count) < 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let was_there = lives(step);
    lab.kill().unwrap();
    lab.wait().unwrap();
    let begun = Instant::now();
    while lives(step) && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(was_there, "it should have run for a minute");
    assert!(begun.elapsed() < Duration::from_secs(15), "it went on without its lab");
}
