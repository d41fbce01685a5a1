use super::super::device_id;
use super::super::redo::Redone;
use super::super::serial::run_id;
use super::*;
use crate::experiments::Experiment;
use crate::record::{Ended, Order, Size};
use serde_json::json;
use std::path::Path;

fn ended(id: &str, output: Value) -> Ended {
    Ended {
        id: id.to_owned(),
        command: Vec::new(),
        began_unix: 0,
        seconds: 1.0,
        output: vec![output],
        group: Value::Null,
        skipped: None,
        under: None,
    }
}

/// Tenths of a second from `first` on.
fn samples(first: f64, counts: impl IntoIterator<Item = u32>) -> Value {
    let rows = counts
        .into_iter()
        .enumerate()
        .map(|(index, count)| json!([first + f64::from(index as u32) / 10.0, count]));
    rows.collect()
}

fn output(step: &str, side: Side) -> Value {
    let slow = if matches!(side, Side::WirePostgres | Side::Sqlite) { 10.0 } else { 1.0 };
    match step {
        "crash" => {
            json!({ "samples": samples(0.0, [20; 100]), "log_bytes": 100 << 20, "settings": {"x": 1}, "group": null })
        }
        "steady" => {
            json!({ "samples": samples(0.0, [20; 100]), "latency_us": {"p50": 2000.0, "p99": 9000.0, "max": 70_000.0} })
        }
        "loaded" => json!({
            "first_commit_seconds": 0.2 * slow, "samples": samples(0.2 * slow, [[5; 20], [21; 20], [21; 20]].concat()), "redo_seconds": 1.5,
            "shutdown_loaded_seconds": 0.3, "judged": {"acknowledged": 1000, "unknown": 2, "found": 1001},
        }),
        _ => json!({
            "first_commit_seconds": 0.2 * slow, "log_bytes": 100 << 20, "redo_seconds": 2.0, "restart": {"redo_seconds": 4.0, "checkpoint_seconds": 0.75},
            "shutdown_idle_seconds": 0.1, "judged": {"found": 1}, "again": {"killed_after_seconds": 1.0, "was_open": slow == 1.0, "first_commit_seconds": 0.25 * slow},
        }),
    }
}

/// A run with everything that was to be done, but the steps that `leaves_out` names.
fn record(folder: &Path, leaves_out: &[&str]) -> Record {
    let order = Order {
        experiment: "restart".to_owned(),
        size: Size::Standard,
        rivals: vec!["postgresql".to_owned(), "sqlite".to_owned()],
        modes: vec!["auto".to_owned()],
        profiles: vec!["as-is".to_owned()],
        repeat: 2,
        seed: 1,
    };
    let mut run = Record::create(&folder.join("run"), &order, 1, Value::Null).unwrap();
    for on in On::READ {
        run.add(ended(&device_id(on, 1), json!({ "bytes_per_second": 1000.0 * MEBI }))).unwrap();
    }
    for one in contestants(&order) {
        for round in 1..=2 {
            for step in
                ["crash", "steady", "loaded", "rest"].into_iter().filter(|step| !leaves_out.contains(step))
            {
                run.add(ended(&id(step, &one, round), output(step, one.side))).unwrap();
            }
        }
    }
    run
}

#[test]
fn a_report_says_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), &[]);
    let text = super::super::Restart.report(&run).markdown();
    assert!(
        text.contains(
            "PostgreSQL's server takes 10.0 times as long as Gannet until the first commit (2.00 s, 0.200 s)"
        ),
        "{text}"
    );
    // The first second in which nearly all was done as fast as before: at a quarter of that speed for two seconds behind the first commit.
    assert!(text.contains("| Gannet, server | 100 | 0.200 | 0.250 | 2.00 | 200 | 210 |"), "{text}");
    // 100 MiB in 2 s, of a device with 1000 MiB/s.
    assert!(text.contains("| Gannet, server | 100 | 2.00 | 50.0 | 1,000 | 0.050 | 1.50 |"), "{text}");
    assert!(
        text.contains("the checkpoint behind it, before it lets anybody in, took 0.750 s more"),
        "{text}"
    );
    assert!(text.contains("PostgreSQL, server: after 1.00 s, before it was open."), "{text}");
    assert!(
        text.contains("| Gannet, embedded, slow-wide, 3 MB/s written | 200 | 2.00 | 9.00 | 70.0 |"),
        "{text}"
    );
    assert!(text.contains("without a memory cgroup"), "{text}");
}

#[test]
fn a_start_is_compared_with_the_speed_before_its_own_kill() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), &["crash", "loaded"]);
    let order = run.order.clone();
    drop(run);
    let mut run = Record::open(&folder.path().join("run")).unwrap();
    let one = contestants(&order).into_iter().find(|one| one.is_killed()).unwrap();
    let mut add = |step: &str, round: u32, samples: Value| {
        run.add(ended(&id(step, &one, round), json!({ "samples": samples, "first_commit_seconds": 0.2 })))
            .unwrap();
    };
    // The start of the first repetition was not measured: the second one's was as fast as before its kill, and slower than before the first one's.
    add("crash", 1, samples(0.0, [200; 100]));
    add("crash", 2, samples(0.0, [20; 100]));
    add("loaded", 2, samples(0.2, [20; 60]));
    let found = Found { plan: Plan::of(order.size), contestants: contestants(&order), run: &run };
    assert_eq!(found.recovered(&one), [Bound::from(0.2)]);
}

#[test]
fn a_start_that_did_not_get_back_to_speed_counts_as_long_as_it_was_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), &["loaded"]);
    let order = run.order.clone();
    drop(run);
    let mut run = Record::open(&folder.path().join("run")).unwrap();
    let one = contestants(&order).into_iter().find(|one| one.is_killed()).unwrap();
    // At once in the first repetition, in the second one not at all, in 6 s.
    for (round, count) in [(1, 20), (2, 5)] {
        let samples = samples(0.2, vec![count; 61]);
        run.add(ended(
            &id("loaded", &one, round),
            json!({ "samples": samples, "first_commit_seconds": 0.2 }),
        ))
        .unwrap();
    }
    let found = Found { plan: Plan::of(order.size), contestants: contestants(&order), run: &run };
    let seconds: Vec<(String, bool)> =
        found.recovered(&one).iter().map(|bound| (number(bound.value), bound.is_at_least)).collect();
    assert_eq!(seconds, [("0.200".to_owned(), false), ("6.20".to_owned(), true)]);
    let text = super::super::Restart.report(&run).markdown();
    assert!(text.contains("| ≥ 3.20 (0.200–6.20), 1 times not within its load |"), "{text}");
}

#[test]
fn what_was_not_measured_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), &["loaded", "rest", "steady"]);
    let text = super::super::Restart.report(&run).markdown();
    assert!(
        !text.contains("times as long") && text.contains("| Gannet, server | 100 | – | – | – | 200 | – |"),
        "{text}"
    );
}

#[test]
fn a_redo_that_is_not_through_counts_as_far_as_it_went() {
    let output = json!({ "log_bytes": 1000, "redo_seconds": null, "watched_seconds": 8.0, "restart": {"pages": 200, "pages_left": 150} });
    let redone = Redone::of(Side::Gannet, &output).unwrap();
    assert_eq!((redone.bytes, redone.seconds, redone.share), (250.0, 8.0, 0.25));
    assert_eq!(
        Redone::of(Side::Gannet, &json!({ "log_bytes": 1000, "redo_seconds": 4 })).unwrap().bytes,
        1000.0
    );
    assert_eq!(Redone::of(Side::WirePostgres, &json!({ "log_bytes": null })), None);
}

#[test]
fn what_is_read_together_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = record(folder.path(), &[]);
    assert!(!super::super::Restart.report(&run).markdown().contains("one at a time"));
    for (round, how, p90) in [(1, "off", 40.0), (1, "on", 10.0), (2, "on", 14.0)] {
        let figures = json!({ "serial_reads": 2.0, "batches": 0.5, "batched_reads": 6.0, "p90_ms": p90 });
        let output = json!({ "measured": { "kinds": { "stock-level": figures } } });
        run.add(ended(&run_id(how, round), output)).unwrap();
    }
    let text = super::super::Restart.report(&run).markdown();
    assert!(text.contains("| stock-level | 8.00 | 2.50 | 3.20 | 40.0 | 12.0 (10.0–14.0) |"), "{text}");
    assert!(!text.contains("| payment |"), "{text}");
}
