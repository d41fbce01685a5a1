//! `gannet demo` as a newcomer meets it, with little data and little time.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Little data, in a second.
const SMALL: [&str; 5] = ["--seconds", "1", "--sessions", "4", "--shrink"];

/// The command, for a database that is so many times smaller than it should be.
fn demo(folder: &Path, arguments: &[&str], shrink: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.arg("demo").args(arguments).args(SMALL).arg(shrink.to_string());
    command.current_dir(folder).stdin(Stdio::null());
    command.env_remove("GANNET_MEMORY").env_remove("GANNET_IO");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    demo(folder, arguments, 60).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("gannet: ") && text.lines().count() == 1, "{text:?}");
    text
}

/// Looks at the figures of a run: they have to fit together.
fn examine(report: &Value) {
    assert_eq!(report["warehouses"], 2);
    for checks in ["checks", "checks_after_reopening"] {
        let conditions = report[checks]["conditions"].as_array().unwrap();
        let clauses: Vec<_> = conditions.iter().map(|c| c["clause"].as_str().unwrap()).collect();
        assert_eq!((clauses.len(), clauses[0], clauses[10]), (11, "3.3.2.1", "3.3.2.12"));
        assert!(conditions.iter().all(|condition| condition["violations"] == 0), "{conditions:?}");
    }
    let kinds = report["run"]["kinds"].as_object().unwrap();
    let count: u64 = kinds.values().map(|kind| kind["count"].as_u64().unwrap()).sum();
    assert_eq!(report["run"]["transactions"], count);
    assert!(kinds["new-order"]["count"].as_u64().unwrap() > 0);
    let of = |name: &str| report["memory"][name].as_u64().unwrap();
    assert!(of("engine_peak_bytes") > 0 && of("engine_peak_bytes") <= of("limit_bytes"));
    assert!(report["load"]["rows"].as_u64().unwrap() > 10_000);
    assert!(report["load"]["device"]["written_bytes"].as_u64().unwrap() > 0);
    assert!(!report["os_cache"]["files"].as_array().unwrap().is_empty());
}

#[test]
fn a_newcomer_sees_the_figures_and_the_way_on() {
    let root = tempfile::tempdir().unwrap();
    let output = run(root.path(), &[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    for expected in [
        "TPC-C in gannet-demo: 2 warehouses, 4 sessions, 32MiB of memory",
        "new-order",
        "stock-level",
        "all 11 hold",
        "a customer owes what was delivered less what was paid",
        "in the operating system's cache",
        "sql gannet-demo/demo.gnt",
        "serve gannet-demo/demo.gnt",
        "demo.gnt-socket -p 5433 demo",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let mut names: Vec<_> = std::fs::read_dir(root.path().join("gannet-demo"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["README.txt", "demo.gnt", "demo.gnt-wal"]);

    let line = refused(root.path(), &[]);
    assert!(line.contains("earlier demo") && line.contains("--again"), "{line}");
    let output = run(root.path(), &["--again", "--json"]);
    assert!(output.status.success(), "{output:?}");
    examine(&serde_json::from_str(stdout(&output)).unwrap());
}

#[test]
fn what_cannot_be_done_is_refused_in_one_line_and_nothing_is_touched() {
    let root = tempfile::tempdir().unwrap();
    let here = root.path();
    let foreign = here.join("mine");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("demo.gnt"), "precious").unwrap();
    for again in [&["mine"][..], &["mine", "--again"]] {
        let line = refused(here, again);
        assert!(line.contains("holds something else (\"demo.gnt\")"), "{line}");
    }
    assert_eq!(std::fs::read_to_string(foreign.join("demo.gnt")).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);
    let cases: [(&[&str], &str); 4] = [
        (&["mine/demo.gnt"], "is no folder"),
        (&["mine/demo.gnt/x"], "is no folder"),
        (&["new", "--memory", "8MiB"], "too small for 4 sessions: give --memory "),
        (&["new", "--memory", "much"], "\"much\" is not a size"),
    ];
    for (arguments, expected) in cases {
        let line = refused(here, arguments);
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    assert!(!here.join("new").exists());
}

#[test]
fn interrupted_while_it_loads_it_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("d");
    // All of the data: much more than can be loaded before the signal.
    let mut child =
        demo(root.path(), &["d"], 1).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !folder.join("demo.gnt").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended before it began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("gannet: interrupted\n"), "{output:?}");
    assert!(!folder.exists());
}
