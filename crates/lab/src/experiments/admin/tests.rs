use super::report::report;
use super::{Admin, changes_id, sizes_id, task_id};
use crate::admin::task::Task;
use crate::experiments::Experiment;
use crate::record::{Ended, Order, Record, Size};
use crate::sides::{GANNET, POSTGRESQL, Side};
use serde_json::Value;
use serde_json::json;

fn phase(rate: f64, p99: f64) -> Value {
    json!({
        "seconds": 2.0, "transactions_per_second": rate, "p99_ms": p99,
        "samples": [[1.0, rate, p99], [2.0, rate, p99]],
    })
}

fn told(name: &str, alone: f64, beside: Option<f64>, kept: f64) -> Value {
    let mut with = phase(1000.0 * kept, 20.0);
    let run = json!({ "seconds": beside.unwrap_or(20.0), "is_complete": beside.is_some(), "began": 0.5 });
    with["beside"] = json!({ "runs": [run], "busy_seconds": 1.0 });
    json!({
        "server": { "server": name, "settings": ["fsync=on"] }, "has_group": true, "conditions": 11, "proof": "gannet verify",
        "phases": {
            "idle": {
                "runs": [{ "seconds": alone, "is_complete": true }], "data_bytes": 100_000_000, "room_at_destination_bytes": 1 << 20,
                "room_beside_bytes": 0, "cached_before_bytes": 0, "cached_after_bytes": 1 << 20, "cached_at_destination_bytes": 0,
            },
            "closed": { "before": phase(1050.0, 10.0), "with": with, "behind": phase(950.0, 10.0) },
            "open": { "before": phase(500.0, 10.0), "with": with, "behind": phase(500.0, 10.0) },
        },
    })
}

fn order(rivals: &[&str]) -> Order {
    Order {
        experiment: "admin".to_owned(),
        size: Size::Quick,
        rivals: rivals.iter().map(|&rival| rival.to_owned()).collect(),
        modes: vec!["auto".to_owned()],
        profiles: vec!["as-is".to_owned()],
        repeat: 1,
        seed: 1,
    }
}

fn run(folder: &std::path::Path, rivals: &[&str], steps: Vec<(String, Value)>) -> Record {
    let order = order(rivals);
    let mut run = Record::create(folder, &order, 1, Value::Null).unwrap();
    for (id, output) in steps {
        let (command, output) = (Vec::new(), vec![output]);
        run.add(Ended {
            id,
            command,
            began_unix: 0,
            seconds: 1.0,
            output,
            group: Value::Null,
            skipped: None,
            under: None,
        })
        .unwrap();
    }
    run
}

#[test]
fn a_report_says_what_was_measured_and_who_is_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let steps = vec![
        (task_id(GANNET, Task::Copy, 1), told("Gannet", 0.5, Some(1.0), 1.0)),
        (task_id(GANNET, Task::Check, 1), told("Gannet", 1.0, Some(2.0), 0.9)),
        (task_id(POSTGRESQL, Task::Check, 1), told("PostgreSQL 15", 0.8, None, 0.5)),
    ];
    let text = report(&run(&folder.path().join("run"), &["postgresql"], steps)).markdown();
    // 100 MB in a second, twice as long as the copy.
    assert!(
        text.contains("| check | Gannet: gannet check | 1.00 | one | 100 | 2.00 | 1.00 | 0 | 0 → 1.00 | 0 |"),
        "{text}"
    );
    // (1000 - 900) a second for 2 s.
    assert!(
        text.contains("| check | Gannet | 1,000 → 900 | 0.900 | one | 2.00 | 2.00 | 2.00 | 50.0 | 200 |"),
        "{text}"
    );
    assert!(text.contains("not within 12 s"), "{text}");
    // Ended after 12 s, (1000 - 500) a second for 2 s.
    assert!(text.contains("| check | PostgreSQL 15 | 1,000 → 500 | 0.500 | one | not within 12 s | ≥ 25.0 | – | 50.0 | ≥ 1,000 |"), "{text}");
    assert!(text.contains("| PostgreSQL 15 | time at full load, s | check (2.00 : ≥ 20.0) | – |"), "{text}");
    assert!(text.contains("transactions lost to one run | check (200 : ≥ 1,000) | – |"), "{text}");
    assert!(text.contains("| PostgreSQL 15 | time alone, s | – | – | check (1.00 : 0.800) |"), "{text}");
    assert!(text.contains("users' throughput kept at full load | check (0.900 : 0.500) | –"), "{text}");
    // A run that did not count who was not served.
    assert!(!text.contains("they had waited"), "{text}");
    assert!(text.contains("After 3 of the steps") && !text.contains("No rival"), "{text}");
    assert!(text.contains("PostgreSQL's autovacuum is off") && !text.contains("sweep interval"), "{text}");
}

#[test]
fn a_task_that_does_not_heed_users_has_a_row_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let [mut ours, theirs] =
        [("Gannet", 8.0), ("PostgreSQL 15", 2.0)].map(|(name, beside)| told(name, 1.0, Some(beside), 0.5));
    let hurried = told("Gannet", 1.0, Some(0.9), 0.9);
    ours["phases"]["hurried"] = hurried["phases"]["closed"].clone();
    let steps = |ours| {
        vec![(task_id(GANNET, Task::Check, 1), ours), (task_id(POSTGRESQL, Task::Check, 1), theirs.clone())]
    };
    let text = report(&run(&folder.path().join("a"), &["postgresql"], steps(ours.clone()))).markdown();
    assert!(text.contains("| check | Gannet | 1,000 → 500 | 0.500 | one | 8.00 | 8.00 |"), "{text}");
    assert!(
        text.contains("| check | Gannet, --job-pace full | 1,000 → 900 | 0.900 | one | 0.900 | 0.900 |"),
        "{text}"
    );
    assert!(text.contains("| time at full load, s | – | check (8.00 : 2.00) | – |"), "{text}");
    assert!(
        text.contains("| time at full load, --job-pace full, s | check (0.900 : 2.00) | – | – |"),
        "{text}"
    );
    assert!(text.contains("lost to one run, --job-pace full | check (200 : 1,000) |"), "{text}");
    // A run of before there was that.
    ours["phases"].as_object_mut().unwrap().remove("hurried");
    let text = report(&run(&folder.path().join("b"), &["postgresql"], steps(ours))).markdown();
    assert!(!text.contains("full, s") && !text.contains("Gannet, --job-pace"), "{text}");
}

#[test]
fn what_users_lost_is_judged_by_how_much_they_differ_anyway() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, mut theirs] =
        [("Gannet", 0.9), ("PostgreSQL 15", 0.5)].map(|(name, kept)| told(name, 1.0, Some(2.0), kept));
    // 500 a second are missing for 2 s, give or take as many as lie between before and behind.
    theirs["phases"]["closed"]["before"]["transactions_per_second"] = 1250.0.into();
    theirs["phases"]["closed"]["behind"]["transactions_per_second"] = 750.0.into();
    let steps = |theirs| {
        vec![(task_id(GANNET, Task::Check, 1), ours.clone()), (task_id(POSTGRESQL, Task::Check, 1), theirs)]
    };
    let text = report(&run(&folder.path().join("a"), &["postgresql"], steps(theirs.clone()))).markdown();
    assert!(text.contains("transactions lost to one run | – | – | check (200 : 1,000) |"), "{text}");
    // Faster with it.
    theirs["phases"]["closed"]["with"]["transactions_per_second"] = 1600.0.into();
    let text = report(&run(&folder.path().join("b"), &["postgresql"], steps(theirs))).markdown();
    assert!(text.contains("transactions lost to one run | – | check (200 : −1,200) | – |"), "{text}");
}

#[test]
fn what_nobody_had_served_makes_the_p99_a_bound_and_what_was_ended_the_speed_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ours = told("Gannet", 1.0, Some(2.0), 0.9);
    (ours["phases"]["open"]["with"]["offered"], ours["phases"]["open"]["with"]["unserved"]) =
        (1000.into(), 11.into());
    let mut theirs = told("PostgreSQL 15", 4.0, Some(2.0), 0.9);
    theirs["phases"]["idle"]["runs"][0]["is_complete"] = false.into();
    let with = &mut theirs["phases"]["open"]["with"];
    (with["p99_ms"], with["offered"], with["unserved"]) = (50.0.into(), 1000.into(), 10.into());
    let steps = vec![(task_id(GANNET, Task::Check, 1), ours), (task_id(POSTGRESQL, Task::Check, 1), theirs)];
    let report = report(&run(&folder.path().join("run"), &["postgresql"], steps));
    let text = report.markdown();
    assert!(text.contains("| check | Gannet | 10.0 → ≥ 20.0 | ≥ 2.00 | one |"), "{text}");
    assert!(text.contains("| check | PostgreSQL 15 | 10.0 → 50.0 | 5.00 | one |"), "{text}");
    // It may have been more than 50, too.
    assert!(text.contains("users' p99 at half load, ms | – | – | check (≥ 20.0 : 50.0) |"), "{text}");
    assert!(text.contains("count with the time that they had waited"), "{text}");
    let bars = report.figures().find(|figure| figure.id == "half-load-p99").unwrap();
    assert!(bars.csv().contains("\"check\",\"Gannet\",2,2,2,at least"), "{}", bars.csv());
    // 100 MB in 4 s, and then it was ended.
    assert!(text.contains("| ≥ 4.00 | one | ≤ 25.0 |"), "{text}");
}

#[test]
fn users_beside_a_sweep_that_was_over_at_once_are_not_judged_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |name: &str, busy: f64| {
        let mut sweep = told(name, 0.1, Some(0.1), 0.9);
        sweep["task"] = "sweep".into();
        for load in ["closed", "open"] {
            sweep["phases"][load]["with"]["beside"]["busy_seconds"] = busy.into();
        }
        sweep
    };
    let steps = vec![
        (task_id(GANNET, Task::Sweep, 1), sweep("Gannet", 0.1)),
        (task_id(POSTGRESQL, Task::Sweep, 1), sweep("PostgreSQL 15", 1.5)),
    ];
    let text = report(&run(&folder.path().join("run"), &["postgresql"], steps)).markdown();
    assert!(text.contains("| sweep | Gannet | 1,000 → – | – | – | 0.100 |"), "{text}");
    assert!(text.contains("| sweep | Gannet | 10.0 → – | – |"), "{text}");
    assert!(text.contains("| sweep | PostgreSQL 15 | 1,000 → 900 | 0.900 |"), "{text}");
    assert!(text.contains("beside the sweep of Gannet is left out"), "{text}");
    assert!(text.contains("users' throughput kept at full load | – | –"), "{text}");
}

#[test]
fn what_grows_faster_than_the_data_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let of = |bytes: u64, copy: &[f64], check: f64| {
        let run = |seconds: f64| json!({ "seconds": seconds, "is_complete": true });
        let copies: Vec<Value> = copy.iter().copied().map(run).collect();
        json!({
            "data_bytes": bytes,
            "tasks": [{ "task": "copy", "runs": copies }, { "task": "check", "runs": [run(check)] }],
        })
    };
    let steps = vec![
        (sizes_id(GANNET, 1, 1), of(100_000_000, &[0.1, 0.2, 0.9], 0.5)),
        (sizes_id(GANNET, 4, 1), of(400_000_000, &[0.8], 3.0)),
    ];
    let text = report(&run(&folder.path().join("run"), &[], steps)).markdown();
    assert!(text.contains("copy of the data files | 100: 0.200, 400: 0.800 | 1.00 |"), "{text}");
    assert!(text.contains("gannet check | 100: 0.500, 400: 3.00 | 1.50 |"), "{text}");
}

#[test]
fn a_report_of_nothing_has_no_figures_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let text = report(&run(&folder.path().join("run"), &["postgresql"], Vec::new())).markdown();
    assert!(!text.contains("NaN") && !text.contains("After 0"), "{text}");
}

#[test]
fn each_contestant_does_what_he_has() {
    let steps = Admin.steps(&order(&["postgresql", "firebird", "sqlite"]), std::path::Path::new("data"));
    let has = |id: &str| steps.iter().any(|step| step.id == id);
    assert!(has("load, firebird") && has("task, firebird, sweep, 1") && has("garbage, firebird, held, 1"));
    assert!(has("task, firebird, incremental, 1") && !has("task, postgresql, incremental, 1"));
    assert!(has("task, gannet, compact, 1") && !has("task, firebird, compact, 1"));
    assert!(has("load, sqlite, 1 warehouses") && has("sizes, sqlite, 1 warehouses, 1"));
    assert!(has("sizes, firebird, 4 warehouses, 1"));
    assert!(has("changes, 1") && has("changes, firebird, 1") && !has("changes, postgresql, 1"));
    assert!(has("task, sqlite, compact, 1") && has("garbage, sqlite, held, 1"));
    assert!(!has("task, sqlite, sweep, 1") && !has("sweeps, sqlite, 1") && !has("changes, sqlite, 1"));
    for step in steps.iter().filter(|step| step.id.contains("firebird")) {
        assert!(step.command.windows(2).any(|two| two == ["--server", "firebird"]), "{:?}", step.command);
    }
}

#[test]
fn what_firebird_has_left_out_and_what_it_has_made_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut check = told("Firebird 3.0.11", 2.0, Some(4.0), 0.5);
    check["phases"]["closed"]["with"]["beside"]["runs"][0]["said"] = json!({ "tables_left_out": 3 });
    let made = |seconds: f64, bytes: u64| json!({ "seconds": seconds, "is_complete": seconds < 9.0, "said": { "made_bytes": bytes } });
    let changes = json!({
        "server": { "server": "Firebird 3.0.11" }, "full": made(2.0, 100 << 20), "points": [{ "run": made(0.5, 25 << 20) }, { "run": made(20.0, 50 << 20) }],
    });
    let steps =
        vec![(task_id(Side::Firebird, Task::Check, 1), check), (changes_id(Side::Firebird, 1), changes)];
    let text = report(&run(&folder.path().join("run"), &["firebird"], steps)).markdown();
    assert!(text.contains("could not lock 3 tables"), "{text}");
    assert!(text.contains("| Firebird 3.0.11 | 25.0 | 0.500 | 0.250 | – | 25.0 |"), "{text}");
    assert!(text.contains("| Firebird 3.0.11 | 50.0 | ≥ 20.0 | ≥ 10.0 | – | 50.0 |"), "{text}");
    assert!(text.contains("Firebird's sweep interval is 0") && !text.contains("autovacuum is off"), "{text}");
}
