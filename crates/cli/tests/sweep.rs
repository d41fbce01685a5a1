//! `gannet sweep` as its users meet it: files at rest, files that a server has open, and garbage that a session holds back.

mod common;

use common::{Served, ends, gannet};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

#[track_caller]
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let (said, _) = ends(folder, &[arguments, &["--json"]].concat(), 0);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Rows of which most were deleted by a transaction that the shell did not wait to be swept.
fn shop(folder: &Path) {
    let script = "create table orders (id bigint primary key, customer text);
                  create index by_customer on orders (customer);
                  insert into orders select n, 'customer ' || n % 100 from generate_series(1, 20000) as n;";
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", script], 0);
    ends(folder, &["sweep", "shop.gnt"], 0);
}

/// A session of its own, which ends with the test.
struct Shell(Child, BufReader<std::process::ChildStdout>);

impl Shell {
    fn begin(folder: &Path, database: &str) -> Self {
        let arguments = ["sql", database, "-q", "--format", "csv", "--keep-going", "-f", "-"];
        let mut child =
            gannet(folder, &arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Shell(child, out)
    }

    /// Runs statements, the last of which gives `awaited` as a line.
    fn run(&mut self, statements: &str, awaited: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{statements}").unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        while line.trim() != awaited {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "the shell has ended");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_at_rest_is_shown_and_swept() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    // The shell ends before two seconds have passed: the newest segment waits for the next opening.
    ends(folder.path(), &["sql", "shop.gnt", "-q", "-c", "delete from orders where id <= 5000"], 0);
    let shown = json(folder.path(), &["sweep", "shop.gnt", "--show"]);
    let report = &shown["swept"]["report"];
    assert!(report["shown_only"] == true && report["before"] == report["after"], "{shown:#}");
    let again = json(folder.path(), &["sweep", "shop.gnt", "--dry-run"]);
    assert_eq!(again["swept"]["report"]["before"]["free_segments"], report["before"]["free_segments"]);
    let dead = shown["swept"]["report"]["forecast"]["dead_entries"]["value"].as_f64().unwrap();
    let (said, complaint) = ends(folder.path(), &["sweep", "shop.gnt", "--show"], 0);
    assert_eq!(complaint, "");
    assert!(said.starts_with("garbage of shop.gnt: "), "{said}");
    let (said, _) = ends(folder.path(), &["sweep", "shop.gnt"], 0);
    assert!(said.starts_with("shop.gnt swept: "), "{said}");
    assert!(dead == 0.0 || said.contains("table orders: ") && said.contains("index by_customer: "), "{said}");
    assert!(said.contains("held back: 0B in 0 undo segments"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    let (said, _) = ends(folder.path(), &["sweep", "shop.gnt"], 0);
    assert!(said.starts_with("shop.gnt swept: nothing that could go\n"), "{said}");
    let found = json(folder.path(), &["stat", "shop.gnt", "--records"]);
    assert_eq!(found["statistics"]["objects"][0]["contents"]["dead_entries"]["value"], 0.0);
    ends(folder.path(), &["check", "shop.gnt"], 0);
}

#[test]
fn a_server_sweeps_its_file_and_says_who_holds_back_what() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let _server = Served::start(folder.path(), &["shop.gnt"]);
    let mut shell = Shell::begin(folder.path(), "shop.gnt");
    shell.run("begin isolation level repeatable read; select count(*) from orders;", "20000");
    let mut other = Shell::begin(folder.path(), "shop.gnt");
    other.run("delete from orders where id <= 15000; select count(*) from orders;", "5000");
    let held = json(folder.path(), &["sweep", "shop.gnt"]);
    assert_eq!(held["by_server"], true);
    let holders = held["swept"]["holders"].as_array().unwrap();
    assert_eq!(holders.len(), 1, "{held:#}");
    assert_eq!(holders[0]["session"]["state"], "idle in transaction");
    assert_eq!(holders[0]["holder"]["kind"], "snapshot");
    assert_eq!(holders[0]["holder"]["held_bytes"], holders[0]["holder"]["alone_bytes"]);
    let pid = holders[0]["session"]["pid"].as_i64().unwrap();
    let (said, _) = ends(folder.path(), &["sweep", "shop.gnt", "--show"], 0);
    assert!(said.contains(&format!("by the snapshot of session {pid} (")), "{said}");
    // Ended, it holds nothing back any more.
    let end = format!("select pg_terminate_backend({pid})");
    ends(folder.path(), &["sql", "shop.gnt", "-q", "-c", &end], 0);
    drop(shell);
    let mut freed = 0;
    // The background may be faster.
    for _ in 0..200 {
        let swept = json(folder.path(), &["sweep", "shop.gnt"]);
        freed += swept["swept"]["report"]["cleaned"]["dead_entries"].as_u64().unwrap();
        if swept["swept"]["report"]["after"]["held_segments"] == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let found = json(folder.path(), &["stat", "shop.gnt", "--records"]);
    assert_eq!(
        found["statistics"]["objects"][0]["contents"]["dead_entries"]["value"], 0.0,
        "{freed} {found:#}"
    );
}

#[test]
fn what_cannot_be_swept_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, what) in [
        (&["sweep", "nothing.gnt"][..], "\"nothing.gnt\" does not exist"),
        (&["sweep", "nothing.gnt", "--memory", "1 lot"], "--memory"),
        (&["sweep"], "<DB>"),
    ] {
        let (said, complaint) = ends(folder.path(), arguments, 1);
        assert_eq!(said, "", "{arguments:?}");
        assert!(complaint.contains(what) && complaint.lines().count() == 1, "{complaint}");
    }
}
