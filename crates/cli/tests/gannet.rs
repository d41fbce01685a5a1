//! The binary as its users meet it: what it prints, and how it ends.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn gannet(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(arguments).current_dir(folder).env_remove("GANNET_MEMORY").env_remove("GANNET_IO");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    gannet(folder, arguments).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Runs a command that must succeed and say nothing on standard error.
fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{arguments:?}");
    stdout(&output).to_owned()
}

/// Runs a command that must fail with one line on standard error, and gives that line.
fn bad(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let text = stderr(&output);
    assert!(text.starts_with("gannet: ") && text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
    text.to_owned()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// A load from standard input that has its database open, has taken `rows`, and waits for more.
fn waiting_load(folder: &Path, rows: &str) -> Child {
    let mut child = gannet(folder, &["kv", "data.gnt", "load", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    feed(child.stdin.as_mut().unwrap(), rows);
    child
}

/// Writes rows that a load has taken when this comes back.
fn feed(input: &mut impl Write, rows: &str) {
    input.write_all(rows.as_bytes()).unwrap();
    // More than all the buffers on the way hold, and less than a batch: once it is written, what came before was taken.
    for i in 0..10 {
        input.write_all(format!("filler{i},{}\n", "x".repeat(100_000)).as_bytes()).unwrap();
    }
}

#[test]
fn version_and_help_are_output() {
    let folder = folder();
    // With the commit that it was built from.
    let version = good(folder.path(), &["--version"]);
    assert!(version.starts_with(&format!("gannet {} (", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.ends_with(")\n") && version.lines().count() == 1, "{version}");
    let help = good(folder.path(), &["--help"]);
    assert!(
        help.contains("demo") && help.contains("doctor") && help.contains("stat") && help.contains("tune"),
        "{help}"
    );
    assert_eq!(run(folder.path(), &[]).status.code(), Some(1));
}

#[test]
fn the_laboratory_is_found_or_said_how_to_get() {
    let folder = folder();
    let program = folder.path().join("gannet-lab");
    let told = folder.path().join("told");
    std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >{}\n", told.display())).unwrap();
    let output = |variable: &std::path::Path, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gannet"));
        command.args(words).env("GANNET_LAB", variable).env("PATH", folder.path()).output().unwrap()
    };
    // A file that is no program is named.
    let refused = output(&program, &["lab", "list"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("gannet-lab"));
    let missing = output(&folder.path().join("nowhere"), &["lab", "list"]);
    assert!(String::from_utf8_lossy(&missing.stderr).starts_with("gannet: GANNET_LAB names"));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (words, wanted) in [
        (&["lab", "run", "squeeze", "--size", "quick"][..], "run squeeze --size quick\n"),
        (&["lab", "--help"], "run --help\n"),
        (&["lab"], "run --help\n"),
        (&["tune", "shop.gnt", "--memory", "1GiB"], "tune shop.gnt --memory 1GiB\n"),
        (&["tune", "--help"], "tune --help\n"),
        (&["tune"], "tune --help\n"),
    ] {
        assert!(output(&program, words).status.success());
        assert_eq!(std::fs::read_to_string(&told).unwrap(), wanted);
    }
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("foreign.gnt"), vec![7; 100_000]).unwrap();
    let cases: [(&[&str], &str); 13] = [
        (&["nonsense"], "there is no command `nonsense`"),
        (&["--nonsense"], "--nonsense"),
        (&["kv", "x.gnt", "get"], "<KEY>"),
        (&["kv", "x.gnt", "get", "k"], "\"x.gnt\" does not exist"),
        (&["kv", "x.gnt", "put", "k", "v", "--memory", "much"], "\"much\" is not a size"),
        (&["kv", "x.gnt", "put", "k", "v", "--memory", "1MiB"], "too small"),
        (&["kv", "x.gnt", "put", "k", "v", "--io", "fast"], "direct, uncached, buffered"),
        (&["kv", "x.gnt", "put", "k", "v", "--page-size", "5000"], "page size of 5000"),
        (&["kv", "x.gnt", "scan", "--format", "xml"], "xml"),
        (&["kv", "foreign.gnt", "stat"], "is not a Gannet database"),
        (&["restore", "a", "postgres://root@127.0.0.1:1/s"], "a restore makes a database file"),
        (&["restore", "a", "b", "--archive", "c", "--to", "2026-02-30T00:00:00Z"], "looks like a time"),
        (&["kv", "no/such/folder/x.gnt", "put", "k", "v"], "No such file or directory"),
    ];
    for (arguments, expected) in cases {
        let line = bad(here, arguments, 1);
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    for (arguments, expected) in [
        (&["doctor", "no-such-place"][..], "no-such-place"),
        (&["doctor", "--time", "3"], "is not a duration"),
        (&["doctor", "--scratch", "1"], "at least 1MiB"),
        (&["doctor", "postgres://nobody@127.0.0.1:1/x"], "cannot connect"),
    ] {
        let line = bad(here, arguments, 3);
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    assert!(!here.join("x.gnt").exists());
}

/// What doctor says, with the exit status that goes with it: how this machine is, is not the test's to say.
#[track_caller]
fn looked(folder: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, arguments);
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    let status = match report["status"].as_str().unwrap() {
        "fine" => 0,
        "warning" => 1,
        "critical" => 2,
        other => panic!("{other}"),
    };
    assert_eq!((output.status.code(), stderr(&output)), (Some(status), ""), "{report:#}");
    let weights =
        report["remarks"].as_array().unwrap().iter().map(|remark| remark["weight"].as_str().unwrap());
    let heaviest =
        weights.map(|weight| ["note", "warning", "critical"].iter().position(|w| *w == weight).unwrap());
    assert_eq!(heaviest.max().unwrap_or(0) as i32, status, "{report:#}");
    report
}

#[test]
fn doctor_reports_what_it_measured_and_leaves_nothing_behind() {
    let folder = folder();
    good(folder.path(), &["kv", "data.gnt", "put", "k", "v"]);
    let arguments = ["doctor", "data.gnt", "--json", "--time", "300ms", "--scratch", "4MiB"];
    let report = looked(folder.path(), &arguments);
    assert_eq!(report["io"]["requested"], "auto");
    assert!(["direct", "uncached", "buffered"].contains(&report["io"]["effective"].as_str().unwrap()));
    assert!(!report["io"]["reason"].as_str().unwrap().is_empty());
    assert!(!report["queue"]["reason"].as_str().unwrap().is_empty());
    assert!(report["device"]["read_latency_us"].as_f64().unwrap() > 0.0);
    assert!(report["device"]["sync_write_latency_us"].as_f64().unwrap() > 0.0);
    assert!(report["device"]["useful_depth"].as_u64().unwrap() >= 1);
    assert!(report["memory"]["total_bytes"].as_u64().unwrap() > 0);
    let files = report["database"]["files"].as_array().unwrap();
    assert!(
        files.len() > 2 && files[0]["path"] == "./data.gnt" || files[0]["path"] == "data.gnt",
        "{files:?}"
    );
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("doctor")));

    assert!(report["free_bytes"].as_u64().unwrap() > 0 && report["pressure"].is_object());

    let text = stdout(&run(folder.path(), &["doctor", ".", "--time", "0s"])).to_owned();
    assert!(
        text.contains("effective") && text.contains("memory") && !text.contains("read latency"),
        "{text}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn doctor_reports_on_a_place_where_nothing_can_be_written() {
    let report = looked(Path::new("/"), &["doctor", "/sys", "--json", "--time", "300ms"]);
    assert!(report["io"].is_null() && report["device"].is_null(), "{report}");
    assert!(report["memory"]["total_bytes"].as_u64().unwrap() > 0);
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("nothing can be written here"), "{remarks}");
    assert_eq!(remarks.matches("os error").count(), 1, "{remarks}");
}

#[test]
fn what_sql_keeps_is_not_changed_as_keys_and_values() {
    let folder = folder();
    let here = folder.path();
    good(
        here,
        &[
            "sql",
            "q.gnt",
            "--create",
            "-q",
            "-c",
            "create table t (a int primary key); insert into t values (1)",
        ],
    );
    let stat: Value =
        serde_json::from_str(&good(here, &["kv", "q.gnt", "stat", "--format", "json"])).unwrap();
    let trees: Vec<&str> =
        stat["trees"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(trees.len() > 2, "{trees:?}");
    std::fs::write(here.join("rows.csv"), "key,value\njunk,junk\n").unwrap();
    // One that a table may get later, too.
    for tree in trees.into_iter().chain(["t.999999"]) {
        let commands: [&[&str]; 4] = [
            &["put", "junk", "junk"],
            &["delete", "junk"],
            &["load", "rows.csv"],
            &["load", "rows.csv", "--sorted"],
        ];
        for command in commands {
            let arguments = [&["kv", "q.gnt", "--tree", tree], command].concat();
            let said = bad(here, &arguments, 1);
            assert!(said.contains(&format!("tree {tree:?} belongs to SQL")), "{said}");
        }
    }
    assert_eq!(good(here, &["sql", "q.gnt", "--format", "csv", "-c", "select a from t"]), "a\n1\n");
    // Trees of one's own are one's own, in the same file as well.
    good(here, &["kv", "q.gnt", "put", "k", "v"]);
    good(here, &["kv", "plain.gnt", "--tree", "t.1", "put", "k", "v"]);
}

#[test]
fn a_memory_budget_beyond_the_machine_is_refused() {
    let folder = folder();
    for command in [
        &["kv", "x.gnt", "put", "k", "v"][..],
        &["serve", "x.gnt", "--listen", "none"],
        &["demo", "d", "--warehouses", "1"],
    ] {
        let said = bad(folder.path(), &[command, &["--memory", "4TiB"]].concat(), 1);
        assert!(said.contains("a memory budget of 4TiB is more than the "), "{said}");
    }
    let said = bad(folder.path(), &["sql", "x.gnt", "--create", "-c", "select 1", "--memory", "4TiB"], 2);
    assert!(said.contains("a memory budget of 4TiB is more than the "), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_mode_that_was_asked_for_is_in_force_or_the_reason_is_given() {
    let folder = folder();
    for mode in ["direct", "uncached", "buffered"] {
        let arguments = ["doctor", "--json", "--time", "0s", "--io", mode];
        let report = looked(folder.path(), &arguments);
        assert_eq!(report["io"]["requested"], mode);
        let said = report["remarks"].to_string().contains("was asked for");
        assert_eq!(report["io"]["effective"] != mode, said, "{report}");
    }
}

#[test]
fn values_come_back_as_they_were_put() {
    let folder = folder();
    let kv = |words: &[&str]| good(folder.path(), &[&["kv", "data.gnt"], words].concat());
    assert_eq!(kv(&["put", "a", "1"]), "");
    kv(&["put", "b", "2, with \"quotes\""]);
    kv(&["put", "b", "other", "--tree", "second"]);
    assert_eq!(kv(&["get", "a"]), "1\n");
    assert_eq!(kv(&["get", "a", "--format", "json"]), "{\"key\":\"a\",\"value\":\"1\"}\n");
    assert_eq!(kv(&["get", "b", "--tree", "second"]), "other\n");
    assert_eq!(kv(&["get", "61", "--hex"]), "31\n");
    kv(&["put", "ff00", "00ff", "--hex"]);
    let table = kv(&["scan"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines,
        ["key       value", "a         1", "b         2, with \"quotes\"", "\\xff\\x00  \\x00\\xff"]
    );
    assert_eq!(
        kv(&["scan", "--limit", "2", "--format", "csv"]),
        "key,value\na,1\nb,\"2, with \"\"quotes\"\"\"\n"
    );
    assert_eq!(
        kv(&["scan", "--hex", "--reverse", "--limit", "1", "--format", "csv"]),
        "key,value\nff00,00ff\n"
    );
    let line = bad(folder.path(), &["kv", "data.gnt", "get", "--format", "csv", "c"], 1);
    assert!(line.contains("there is no key \"c\""), "{line}");
    let line = bad(folder.path(), &["kv", "data.gnt", "get", "a", "--tree", "third"], 1);
    assert!(line.contains("there is no tree \"third\""), "{line}");

    let line = bad(folder.path(), &["kv", "data.gnt", "delete", "a", "c"], 1);
    assert!(line.contains("nothing was deleted"), "{line}");
    assert_eq!(kv(&["get", "a"]), "1\n");
    kv(&["delete", "a", "b"]);
    bad(folder.path(), &["kv", "data.gnt", "get", "a"], 1);
}

#[test]
fn wrong_arguments_left_a_new_database_behind() {
    let folder = folder();
    for arguments in [
        &["kv", "new.gnt", "--hex", "put", "0g", "00"][..],
        &["kv", "new.gnt", "--hex", "put", "00", "0"],
        &["kv", "new.gnt", "load", "missing.csv"],
    ] {
        bad(folder.path(), arguments, 1);
        assert!(!folder.path().join("new.gnt").exists(), "{arguments:?}");
    }
}

#[test]
fn a_long_value_comes_from_standard_input() {
    let folder = folder();
    let long: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child =
        gannet(folder.path(), &["kv", "data.gnt", "put", "long"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&long).unwrap();
    assert!(child.wait().unwrap().success());
    let output = run(folder.path(), &["kv", "data.gnt", "get", "long"]);
    assert!(output.status.success() && output.stdout.len() == long.len() + 1);
    assert!(output.stdout[..long.len()] == long[..], "the bytes are the same");
}

#[test]
fn what_scan_writes_load_reads() {
    let folder = folder();
    let here = folder.path();
    let mut rows = String::from("key,value\n");
    for i in 0..25_000 {
        rows.push_str(&format!("key{i:06},\"value {i}, with a comma\"\n"));
    }
    std::fs::write(here.join("rows.csv"), &rows).unwrap();
    let report = good(here, &["kv", "a.gnt", "load", "rows.csv", "--memory", "16MiB", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rows"], 25_000);
    assert!(report["written_bytes"].as_u64().unwrap() > rows.len() as u64, "{report}");
    assert_eq!(good(here, &["kv", "a.gnt", "scan", "--format", "csv", "--memory", "16MiB"]), rows);

    good(here, &["kv", "b.gnt", "load", "rows.csv", "--sorted", "--page-size", "16KiB"]);
    assert_eq!(good(here, &["kv", "b.gnt", "scan", "--format", "csv"]), rows);
    let json = good(here, &["kv", "b.gnt", "scan", "--prefix", "key0000", "--format", "json"]);
    assert_eq!(json.lines().count(), 100);
    std::fs::write(here.join("rows.json"), &json).unwrap();
    good(here, &["kv", "c.gnt", "load", "rows.json", "--input", "json", "--tree", "t"]);
    assert_eq!(good(here, &["kv", "c.gnt", "scan", "--tree", "t", "--format", "json"]), json);
    let range = ["kv", "b.gnt", "scan", "--from", "key000009", "--to", "key000011", "--format", "csv"];
    assert_eq!(good(here, &range).lines().count(), 3);

    let line = bad(here, &["kv", "b.gnt", "load", "rows.csv", "--sorted"], 1);
    assert!(line.contains("--sorted fills a new one"), "{line}");
    let line = bad(here, &["kv", "b.gnt", "get", "key000001", "--page-size", "8KiB"], 1);
    assert!(line.contains("has pages of 16KiB"), "{line}");
}

#[test]
fn a_bad_row_is_named_and_what_was_committed_stays() {
    let folder = folder();
    let here = folder.path();
    std::fs::write(here.join("header.csv"), "a,b\n1,2\n").unwrap();
    assert!(bad(here, &["kv", "x.gnt", "load", "header.csv"], 1).contains("key,value"));
    std::fs::write(here.join("row.csv"), "key,value\na,1\nb\n").unwrap();
    assert!(bad(here, &["kv", "x.gnt", "load", "row.csv"], 1).contains("row 2"));
    std::fs::write(here.join("row.json"), "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":1}\n").unwrap();
    assert!(bad(here, &["kv", "x.gnt", "load", "row.json", "--input", "json"], 1).contains("row 2"));
    std::fs::write(here.join("order.csv"), "key,value\nb,1\na,1\n").unwrap();
    assert!(bad(here, &["kv", "x.gnt", "load", "order.csv", "--sorted"], 1).contains("row 2"));
    assert!(bad(here, &["kv", "x.gnt", "scan"], 1).contains("there is no tree"));

    let mut rows = String::from("key,value\n");
    (0..10_001).for_each(|i| rows.push_str(&format!("{i:05},x\n")));
    std::fs::write(here.join("late.csv"), rows + "one\n").unwrap();
    let output = run(here, &["kv", "x.gnt", "load", "late.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the first 10000 rows are loaded and stay"), "{}", stderr(&output));
    assert_eq!(good(here, &["kv", "x.gnt", "scan", "--format", "json"]).lines().count(), 10_000);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = folder();
    let mut rows = String::from("key,value\n");
    (0..50_000).for_each(|i| rows.push_str(&format!("{i:05},{}\n", "x".repeat(40))));
    std::fs::write(folder.path().join("rows.csv"), rows).unwrap();
    good(folder.path(), &["kv", "data.gnt", "load", "rows.csv", "--sorted"]);
    for format in ["table", "csv", "json"] {
        let mut child = gannet(folder.path(), &["kv", "data.gnt", "scan", "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && stderr(&output).is_empty(), "{output:?}");
    }
    assert!(
        good(folder.path(), &["kv", "data.gnt", "stat"])
            .lines()
            .any(|line| line.split_whitespace().eq(["crashed", "no"]))
    );
}

#[test]
fn a_second_opener_is_told_who_has_the_database() {
    let folder = folder();
    let mut child = waiting_load(folder.path(), "key,value\na,1\n");
    let line = bad(folder.path(), &["kv", "data.gnt", "get", "a"], 1);
    assert!(line.contains(&format!("pid {}", child.id())), "{line}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(good(folder.path(), &["kv", "data.gnt", "get", "a"]), "1\n");
}

/// A pipe by its name was read by who would have heard the signal.
#[test]
fn ctrl_c_is_heard_beside_a_silent_pipe() {
    let folder = folder();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    let child = gannet(folder.path(), &["kv", "data.gnt", "load", "pipe"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // That waits until the other side reads.
    let mut input = std::fs::File::options().write(true).open(folder.path().join("pipe")).unwrap();
    feed(&mut input, "key,value\na,1\n");
    send("-INT", &child);
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!((output.status.code(), stderr(&output)), (Some(130), "gannet: interrupted\n"));
}

#[test]
fn ctrl_c_comes_to_a_clean_end() {
    let folder = folder();
    let child = waiting_load(folder.path(), "key,value\na,1\n");
    send("-INT", &child);
    // Its standard input stays open meanwhile.
    let mut child = child;
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!((output.status.code(), stderr(&output)), (Some(130), "gannet: interrupted\n"));
    let report = good(folder.path(), &["kv", "data.gnt", "stat", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["restart"]["crashed"], &report["trees"]),
        (&Value::Bool(false), &Value::Array(vec![]))
    );
}

#[test]
fn doctor_leaves_no_scratch_file_however_it_is_ended() {
    for (signal, status) in [("-INT", Some(130)), ("-KILL", None)] {
        let folder = folder();
        let child = gannet(folder.path(), &["doctor", "--time", "60s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It is open, has no name, and is being filled.
        let opened = format!("/proc/{}/fd", child.id());
        let is_scratch = |path: &Path| {
            let name = std::fs::read_link(path).unwrap_or_default();
            name.to_string_lossy().contains(".gannet-doctor-")
                && std::fs::metadata(path).is_ok_and(|file| file.len() >= 1 << 20)
        };
        while std::fs::read_dir(&opened).unwrap().flatten().all(|entry| !is_scratch(&entry.path())) {
            std::thread::yield_now();
        }
        send(signal, &child);
        assert_eq!(child.wait_with_output().unwrap().status.code(), status);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_was_committed_survives_a_kill() {
    let folder = folder();
    good(folder.path(), &["kv", "data.gnt", "put", "a", "1"]);
    let mut rows = String::from("key,value\n");
    (0..10_000).for_each(|i| rows.push_str(&format!("{i:05},x\n")));
    let mut child = waiting_load(folder.path(), &rows);
    child.kill().unwrap();
    child.wait().unwrap();
    let report = good(folder.path(), &["kv", "data.gnt", "stat", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["restart"]["crashed"], true);
    let rows = good(folder.path(), &["kv", "data.gnt", "scan", "--format", "json"]).lines().count();
    assert_eq!(rows, 10_001, "the batch that was committed, and nothing of the one that was not");
    assert_eq!(good(folder.path(), &["kv", "data.gnt", "get", "a"]), "1\n");
}

#[test]
fn a_creation_that_was_killed_is_done_again() {
    let mut interrupted = 0;
    // As often as it takes: a machine that is busy may notice too late each time for a while that there is anything.
    for attempt in 0..500 {
        if attempt >= 20 && interrupted > 0 {
            break;
        }
        let delay = attempt % 20;
        let folder = folder();
        let path = folder.path().join("data.gnt");
        let mut child = gannet(folder.path(), &["kv", "data.gnt", "put", "a", "1"]).spawn().unwrap();
        // From the moment that there is anything at all.
        while !path.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(800 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
        let read = run(folder.path(), &["kv", "data.gnt", "get", "a"]);
        if stderr(&read).contains("its creation was interrupted") {
            interrupted += 1;
        }
        good(folder.path(), &["kv", "data.gnt", "put", "a", "2"]);
        assert_eq!(good(folder.path(), &["kv", "data.gnt", "get", "a"]), "2\n", "killed after {delay}");
    }
    assert!(interrupted > 0, "no creation was interrupted");
}

#[test]
fn a_closed_database_is_one_file() {
    let folder = folder();
    let elsewhere = tempfile::tempdir().unwrap();
    good(folder.path(), &["kv", "data.gnt", "put", "a", "1"]);
    std::fs::copy(folder.path().join("data.gnt"), elsewhere.path().join("copy.gnt")).unwrap();
    assert_eq!(good(elsewhere.path(), &["kv", "copy.gnt", "get", "a"]), "1\n");
    // A file that was not closed needs its log.
    let mut child = waiting_load(folder.path(), "key,value\n");
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::rename(folder.path().join("data.gnt-wal"), folder.path().join("away")).unwrap();
    let line = bad(folder.path(), &["kv", "data.gnt", "get", "a"], 1);
    assert!(line.contains("was not closed, and its log"), "{line}");
    assert!(!folder.path().join("data.gnt-wal").exists(), "a refused opening leaves nothing");
    std::fs::rename(folder.path().join("away"), folder.path().join("data.gnt-wal")).unwrap();
    assert_eq!(good(folder.path(), &["kv", "data.gnt", "get", "a"]), "1\n");
}

#[test]
fn a_bad_variable_was_said_to_be_the_option() {
    let folder = folder();
    for (arguments, variable, status) in [
        (&["stat", "x.gnt"][..], "GANNET_MEMORY", 1),
        (&["kv", "x.gnt", "stat"], "GANNET_IO", 1),
        (&["sql", "x.gnt"], "GANNET_WAL_LIMIT", 2),
    ] {
        let output = gannet(folder.path(), arguments).env(variable, "much").output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let begin = format!("gannet: invalid value 'much' for {variable}: ");
        assert!(stderr(&output).starts_with(&begin), "{output:?}");
    }
    let mut flag = gannet(folder.path(), &["stat", "x.gnt", "--memory=many"]);
    let output = flag.env("GANNET_MEMORY", "much").output().unwrap();
    assert!(stderr(&output).contains("invalid value 'many' for '--memory <SIZE>'"), "{output:?}");
}

#[test]
fn a_target_of_jobs_is_refused_where_no_server_does_them() {
    let folder = folder();
    good(folder.path(), &["sql", "data.gnt", "--create", "-q", "-c", "create table t (a int)"]);
    for command in [&["stat", "data.gnt"][..], &["dump", "data.gnt", "data.sql"]] {
        let line = bad(folder.path(), &[command, &["--job-latency-target", "1ms"]].concat(), 1);
        assert!(line.contains("--job-latency-target is for what a server does"), "{line}");
    }
    assert!(!folder.path().join("data.sql").exists());
    good(folder.path(), &["stat", "data.gnt", "--job-pace", "full"]);
}

#[test]
fn settings_come_from_the_environment_unless_a_flag_says_otherwise() {
    let folder = folder();
    good(folder.path(), &["kv", "data.gnt", "put", "a", "1", "--memory", "32MiB"]);
    let stat = |flags: &[&str]| -> Value {
        let mut command = gannet(folder.path(), &["kv", "data.gnt", "stat", "--format", "json"]);
        let output = command.args(flags).env("GANNET_MEMORY", "48MiB").env("GANNET_IO", "buffered").output();
        serde_json::from_str(stdout(&output.unwrap())).unwrap()
    };
    let (by_environment, by_flag) = (stat(&[]), stat(&["--memory", "64MiB", "--io", "auto"]));
    assert_eq!(by_environment["memory"]["limit_bytes"], 48 << 20);
    assert_eq!(by_environment["io"]["effective"], "buffered");
    assert_eq!(
        (&by_flag["memory"]["limit_bytes"], &by_flag["io"]["requested"]),
        (&Value::from(64 << 20), &Value::from("auto"))
    );
}
