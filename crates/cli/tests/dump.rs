//! `gannet dump` and `gannet load` as their users meet them: on files, through a server, with what can go wrong.

mod common;

use common::{Served, address, ends, gannet, run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A database with two tables, an index and a reference.
fn shop(folder: &Path, orders: u32) {
    let script = format!(
        "create table customers (id serial primary key, name text);
         create table orders (id bigint primary key, customer int references customers(id), note text);
         create index by_customer on orders (customer);
         insert into customers (name) values ('Ann'), (null), (E'tab\\t');
         insert into orders select n, 1 + n % 3, 'note ' || n from generate_series(1, {orders}) as n;"
    );
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", &script], 0);
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_dump_is_loaded_into_a_new_file_and_both_say_what_they_did() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 5000);
    let (said, complaint) = ends(folder, &["dump", "shop.gnt", "shop.sql"], 0);
    assert_eq!(complaint, "");
    assert!(said.starts_with("shop.gnt is dumped to shop.sql: 2 tables, 5003 rows, "), "{said}");
    assert!(said.contains("MB/s: read") && said.ends_with("cached pages left behind: 0B\n"), "{said}");
    let (said, _) = ends(folder, &["load", "shop.sql", "new.gnt", "--create", "--page-size", "16KiB"], 0);
    assert!(said.starts_with("shop.sql is loaded into new.gnt: 2 tables, 5003 rows, "), "{said}");
    let (said, _) = ends(folder, &["kv", "new.gnt", "stat", "--format", "json"], 0);
    assert!(said.contains("16384"), "{said}");
    // The same, by way of csv and of a pipe.
    let (said, _) =
        ends(folder, &["dump", "new.gnt", "folder", "--format", "csv", "--json", "--jobs", "2"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((report["tables"].as_u64(), report["rows"].as_u64()), (Some(2), Some(5003)));
    assert_eq!(
        names(&folder.join("folder")),
        ["customers.csv", "indexes.sql", "manifest.json", "orders.csv", "schema.sql"]
    );
    let (said, _) = ends(folder, &["load", "folder", "third.gnt", "--create", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((report["built"].as_u64(), report["rows"].as_u64()), (Some(2), Some(5003)));
    let (text, told) = ends(folder, &["dump", "third.gnt", "-"], 0);
    assert!(told.contains("third.gnt is dumped to -: 2 tables"), "{told}");
    let mut loading = gannet(folder, &["load", "-", "fourth.gnt", "--create"]);
    let mut loading = loading.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut loading.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(loading.wait().unwrap().success());
    for file in ["new.gnt", "third.gnt", "fourth.gnt"] {
        let (again, _) = ends(folder, &["dump", file, "-"], 0);
        assert_eq!(again, text, "{file}");
        ends(folder, &["check", file], 0);
    }
}

#[test]
fn what_is_there_stays_and_what_is_not_there_is_named() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 10);
    std::fs::write(folder.join("mine"), "mine").unwrap();
    for format in ["sql", "csv"] {
        let (_, complaint) = ends(folder, &["dump", "shop.gnt", "mine", "--format", format], 1);
        assert!(complaint.contains("\"mine\" exists, and is not overwritten"), "{complaint}");
        let (_, complaint) = ends(folder, &["dump", "shop.gnt", "no/where", "--format", format], 1);
        assert!(complaint.contains("no/where.partial"), "{complaint}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("mine")).unwrap(), "mine");
    // Nor what is called as a dump is on its way. What one has left there goes.
    for (left, exit) in [("mine", 1), ("-- Gannet dump, format 1\nhalf", 0), ("", 0)] {
        std::fs::write(folder.join("new.sql.partial"), left).unwrap();
        let (_, complaint) = ends(folder, &["dump", "shop.gnt", "new.sql"], exit);
        assert!(exit == 0 || complaint.contains("new.sql.partial"), "{complaint}");
        assert_eq!(folder.join("new.sql.partial").exists(), exit == 1);
        let _ = std::fs::remove_file(folder.join("new.sql"));
    }
    let (_, complaint) = ends(folder, &["dump", "missing.gnt", "x"], 1);
    assert!(complaint.contains("\"missing.gnt\" does not exist"), "{complaint}");
    let (_, complaint) = ends(folder, &["dump", "shop.gnt", "x", "--table", "nothing"], 1);
    assert!(complaint.contains("there is no table \"nothing\""), "{complaint}");
    let (_, complaint) = ends(folder, &["dump", "shop.gnt", "-", "--format", "csv"], 1);
    assert!(complaint.contains("needs a folder"), "{complaint}");
    let (_, complaint) = ends(folder, &["load", "missing.sql", "shop.gnt"], 1);
    assert!(complaint.contains("missing.sql"), "{complaint}");
    let (_, complaint) = ends(folder, &["load", "mine", "new.gnt"], 1);
    assert!(complaint.contains("\"new.gnt\" does not exist"), "{complaint}");
    let (_, complaint) = ends(folder, &["load", "mine", "shop.gnt", "--create"], 1);
    assert!(complaint.contains("exists"), "{complaint}");
    ends(folder, &["kv", "map.gnt", "put", "key", "value"], 0);
    let (_, complaint) = ends(folder, &["dump", "map.gnt", "x"], 1);
    assert!(complaint.contains("no tables"), "{complaint}");
    assert!(!names(folder).iter().any(|name| name.ends_with(".partial")), "{:?}", names(folder));
}

/// A process may be kept from making files longer than so much.
#[test]
fn a_file_that_may_not_become_longer_is_an_error_and_not_the_end_of_the_process() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 10);
    let mut limited = gannet(folder, &[]);
    let program = limited.get_program().to_owned();
    let insert = "insert into big select repeat('x', 700) from generate_series(1, 200000)";
    let script =
        format!("ulimit -f 60000; exec \"$0\" sql shop.gnt -c 'create table big (s text)' -c \"{insert}\"");
    limited = std::process::Command::new("sh");
    let output = limited.arg("-c").arg(script).arg(program).current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("File too large") || complaint.contains("no space"), "{complaint}");
    ends(folder, &["check", "shop.gnt"], 0);
    let count = ["sql", "shop.gnt", "-q", "--format", "csv", "-c", "select count(*) from big"];
    let (rows, _) = ends(folder, &count, 0);
    assert_eq!(rows.lines().last(), Some("0"), "{rows}");
}

/// Every write to it fails for want of space.
#[cfg(target_os = "linux")]
#[test]
fn a_full_destination_is_named() {
    let folder = tempfile::tempdir_in(".").unwrap();
    shop(folder.path(), 5000);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = gannet(folder.path(), &["dump", "shop.gnt", "-"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("No space left"), "{complaint}");
    ends(folder.path(), &["check", "shop.gnt"], 0);
}

/// It was read as a script, and a database made for it.
#[test]
fn what_is_no_dump_is_called_what_it_is() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 10);
    std::fs::create_dir(folder.join("backups")).unwrap();
    ends(folder, &["backup", "shop.gnt", "backups"], 0);
    let backup =
        names(&folder.join("backups")).into_iter().find(|name| name.ends_with(".gntbackup")).unwrap();
    let before = names(folder);
    for (source, words) in [
        ("shop.gnt", "is a database, which can be opened as it is"),
        (&format!("backups/{backup}"), "is a backup, of which gannet restore makes a database"),
        ("backups", "is a folder of backups: gannet restore makes a database"),
    ] {
        let (_, complaint) = ends(folder, &["load", source, "new.gnt", "--create"], 1);
        assert!(complaint.contains(words), "{complaint}");
        assert_eq!(names(folder), before);
    }
}

#[test]
fn bad_rows_are_named_and_can_be_skipped() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 10);
    let script = "COPY orders (id, customer, note) FROM stdin;\n11\t1\tx\n12\t9\tno such customer\n13\tx\ty\n14\t2\tz\n\\.\n";
    std::fs::write(folder.join("more.sql"), script.replace("13\tx\ty\n", "")).unwrap();
    let (_, complaint) = ends(folder, &["load", "more.sql", "shop.gnt"], 1);
    assert!(complaint.contains("foreign key"), "{complaint}");
    std::fs::write(folder.join("more.sql"), script).unwrap();
    let (said, complaint) = ends(folder, &["load", "more.sql", "shop.gnt", "--on-error", "skip"], 1);
    assert!(
        said.contains("skipped: more.sql:3: ") && said.contains("skipped: more.sql:4: column customer: "),
        "{said}"
    );
    assert!(said.contains("1 tables, 2 rows") && complaint.contains("2 bad rows"), "{said}{complaint}");
    let (said, _) = ends(
        folder,
        &["sql", "shop.gnt", "--format", "csv", "-c", "select count(*), max(id) from orders"],
        0,
    );
    assert_eq!(said.lines().nth(1), Some("12,14"), "{said}");
}

#[test]
fn a_server_sends_dumps_to_whoever_keeps_them() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 5000);
    let (text, _) = ends(folder, &["dump", "shop.gnt", "-"], 0);
    ends(folder, &["dump", "shop.gnt", "here", "--format", "csv"], 0);
    let server = Served::start(folder, &["shop.gnt"]);
    let address = address(folder, "shop");
    for database in ["shop.gnt", &address] {
        assert_eq!(ends(folder, &["dump", database, "-"], 0).0, text);
    }
    let (said, _) = ends(folder, &["dump", &address, "shop.sql"], 0);
    assert!(said.contains("through its server: 2 tables, 5003 rows"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("shop.sql")).unwrap(), text);
    ends(folder, &["dump", &address, "there", "--format", "csv"], 0);
    assert_eq!(names(&folder.join("here")), names(&folder.join("there")));
    for name in names(&folder.join("here")) {
        let read = |place: &str| std::fs::read(folder.join(place).join(&name)).unwrap();
        assert_eq!(read("here"), read("there"), "{name}");
    }
    let (said, _) = ends(folder, &["dump", &address, "-", "--table", "customers", "--data-only"], 0);
    assert!(said.contains("COPY public.customers") && !said.contains("orders"), "{said}");
    let jobs = "select job || ' ' || state from gannet_jobs where id is not null and job <> 'sweep'";
    let (said, _) = ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", jobs], 0);
    assert_eq!(said.lines().skip(1).collect::<Vec<_>>(), ["dump done"; 5]);
    let before = names(folder);
    for (arguments, words) in [
        (&["dump", &address, "shop.sql"][..], "exists, and is not overwritten"),
        (&["dump", &address, "other.sql", "--table", "nothing"], "there is no table \"nothing\""),
        (&["dump", &address, "other", "--format", "csv", "--table", "nothing"], "there is no table"),
        (&["dump", &address, "-", "--format", "csv"], "a file for each table"),
        (&["sql", "shop.gnt", "-c", "dump database to stdout csv"], "VERBOSE"),
        (&["sql", "shop.gnt", "-c", "load database from '/nowhere/x.sql'"], "the server cannot read"),
        (&["sql", "shop.gnt", "-c", "load database from 'x.sql'"], "relative path"),
        (&["sql", "shop.gnt", "-c", "load database from '/dev/null'"], "is no file"),
    ] {
        let (_, complaint) = ends(folder, arguments, 1);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
    assert_eq!(names(folder), before);
    drop(server);
}

#[test]
fn who_takes_nothing_of_a_dump_holds_up_no_other_job() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 150_000);
    let server = Served::start(folder, &["shop.gnt"]);
    let asked = |query: &str| ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", query], 0).0;
    let dump = "select state from gannet_jobs where job = 'dump' and id is not null";
    let await_state = |wanted: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while asked(dump).lines().nth(1) != Some(wanted) {
            assert!(Instant::now() < deadline, "{}", asked("select * from gannet_jobs"));
        }
    };
    let mut stuck = gannet(folder, &["dump", &address(folder, "shop"), "-"]);
    let mut stuck = stuck.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    await_state("running");
    ends(folder, &["check", "shop.gnt"], 0);
    ends(folder, &["stat", "shop.gnt", "--records"], 0);
    assert_eq!(asked(dump).lines().nth(1), Some("running"));
    asked("select gannet_cancel_job(id) from gannet_jobs where job = 'dump' and state = 'running'");
    await_state("cancelled");
    stuck.kill().unwrap();
    stuck.wait().unwrap();
    drop(server);
}

#[test]
fn a_server_that_has_the_file_is_asked() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 5000);
    ends(folder, &["sql", "new.gnt", "--create", "-q", "-c", "select 1"], 0);
    let (text, _) = ends(folder, &["dump", "shop.gnt", "-"], 0);
    ends(folder, &["dump", "shop.gnt", "here", "--format", "csv"], 0);
    let server = Served::start(folder, &["shop.gnt", "new.gnt"]);
    let (said, _) = ends(folder, &["dump", "shop.gnt", "shop.sql"], 0);
    assert!(
        said.starts_with("shop.gnt is dumped to shop.sql, through its server: 2 tables, 5003 rows"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(folder.join("shop.sql")).unwrap(), text);
    ends(folder, &["dump", "shop.gnt", "there", "--format", "csv"], 0);
    for name in names(&folder.join("here")) {
        let read = |place: &str| std::fs::read(folder.join(place).join(&name)).unwrap();
        assert_eq!(read("here"), read("there"), "{name}");
    }
    let (said, _) = ends(folder, &["dump", "shop.gnt", "orders.sql", "--table", "public.orders"], 0);
    assert!(said.contains("through its server: 1 tables, 5000 rows"), "{said}");
    let (said, _) = ends(folder, &["load", "shop.sql", "new.gnt"], 0);
    assert!(said.contains("through its server: 2 tables, 5003 rows"), "{said}");
    let asked = |query: &str| ends(folder, &["sql", "new.gnt", "-q", "--format", "csv", "-c", query], 0).0;
    let jobs = "select job || ' ' || state || ' ' || (bytes_read > 0) from gannet_jobs where job = 'load'";
    assert_eq!(asked(jobs).lines().last(), Some("load done true"));
    // What comes from its client is a job, too.
    asked("create table more (id bigint)");
    let script = "COPY more (id) FROM stdin;\n7\n8\n\\.\n";
    let mut load = gannet(folder, &["load", "-", "new.gnt"]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    load.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(asked("select sum(id) from more").lines().last(), Some("15"));
    let bad = "COPY customers (id, name) FROM stdin;\n7\tx\nx\ty\n8\tz\n\\.\n";
    std::fs::write(folder.join("bad.sql"), bad).unwrap();
    let (_, complaint) = ends(folder, &["load", "bad.sql", "new.gnt"], 1);
    assert!(complaint.contains("bad.sql:3: column id: "), "{complaint}");
    let (said, _) = ends(folder, &["load", "bad.sql", "new.gnt", "--on-error", "skip"], 1);
    assert!(said.contains("1 tables, 2 rows"), "{said}");
    drop(server);
    let (said, _) =
        ends(folder, &["sql", "new.gnt", "--format", "csv", "-c", "select count(*) from customers"], 0);
    assert_eq!(said.lines().nth(1), Some("5"), "{said}");
    ends(folder, &["check", "new.gnt"], 0);
}

/// Whatever the moment: either it was done before, or it was stopped and nothing bears the name of a dump.
#[test]
fn ctrl_c_leaves_nothing_that_passes_for_complete() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 30_000);
    ends(folder, &["dump", "shop.gnt", "whole.sql"], 0);
    let whole = std::fs::metadata(folder.join("whole.sql")).unwrap().len();
    for (number, wait) in [30, 60, 90, 140].into_iter().enumerate() {
        let name = format!("{number}.sql");
        let mut dumping = gannet(folder, &["dump", "shop.gnt", &name]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let _ = Command::new("kill").args(["-INT", &dumping.id().to_string()]).status();
        let status = dumping.wait().unwrap();
        let length = std::fs::metadata(folder.join(&name)).ok().map(|file| file.len());
        match status.code() {
            Some(0) => assert_eq!(length, Some(whole)),
            // Killed before it listened, or stopped.
            _ => assert_eq!(length, None, "{status}"),
        }
        let file = format!("{number}.gnt");
        let mut loading =
            gannet(folder, &["load", "whole.sql", &file, "--create"]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(4 * wait));
        let _ = Command::new("kill").args(["-INT", &loading.id().to_string()]).status();
        let status = loading.wait().unwrap();
        // It has its name when all of it is there, and only then.
        assert_eq!(folder.join(&file).exists(), status.success(), "{status}");
        let partial = format!("{file}.partial");
        assert!(!status.success() || !folder.join(&partial).exists());
        let count = |file: &str| {
            let output = run(folder, &["sql", file, "--format", "csv", "-c", "select count(*) from orders"]);
            String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .nth(1)
                .and_then(|count| count.parse::<u64>().ok())
        };
        if folder.join(&partial).exists() && run(folder, &["check", &partial]).status.success() {
            // A table is there with all of its rows, or with none of them.
            assert!(matches!(count(&partial), None | Some(0 | 30_000)), "{status}");
        }
        if !status.success() {
            ends(folder, &["load", "whole.sql", &file, "--create"], 0);
        }
        assert_eq!(count(&file), Some(30_000));
        ends(folder, &["check", &file], 0);
    }
    assert!(!names(folder).iter().any(|name| name.ends_with(".partial")), "{:?}", names(folder));
}

/// What was loaded until then can be looked at, and is replaced by the next attempt; somebody else's file is not.
#[test]
fn a_load_that_fails_leaves_no_database_of_that_name() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let rows = |last: &str| {
        format!(
            "create table a (n int);\ncopy a from stdin;\n1\n\\.\ncreate table b (n int);\ncopy b from stdin;\n2\n{last}\n\\.\n"
        )
    };
    std::fs::write(folder.join("bad.sql"), rows("x")).unwrap();
    let load = ["load", "bad.sql", "new.gnt", "--create"];
    let (_, complaint) = ends(folder, &load, 1);
    assert!(complaint.contains("bad.sql:8: column n: invalid input syntax for type integer"), "{complaint}");
    assert!(
        complaint.contains(
            "what was loaded until then, if anything, is in \"new.gnt.partial\", which the next load --create replaces"
        ),
        "{complaint}"
    );
    assert!(!folder.join("new.gnt").exists());
    let count = |file: &str| {
        ends(
            folder,
            &[
                "sql",
                file,
                "--format",
                "csv",
                "-c",
                "select count(*) from a union all select count(*) from b",
            ],
            0,
        )
        .0
    };
    assert_eq!(count("new.gnt.partial").lines().skip(1).collect::<Vec<_>>(), ["1", "0"]);
    // One that somebody has open is not replaced.
    let server = Served::start(folder, &["new.gnt.partial"]);
    let (_, complaint) = ends(folder, &load, 1);
    assert!(
        complaint.contains("cannot replace \"new.gnt.partial\"") && complaint.contains("is in use"),
        "{complaint}"
    );
    drop(server);
    std::fs::write(folder.join("bad.sql"), rows("3")).unwrap();
    ends(folder, &load, 0);
    assert_eq!(count("new.gnt").lines().skip(1).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(names(folder), ["bad.sql", "new.gnt", "new.gnt-wal"]);
    // Bad rows that are skipped are no reason not to complete it.
    std::fs::write(folder.join("bad.sql"), rows("x")).unwrap();
    ends(folder, &["load", "bad.sql", "skipped.gnt", "--create", "--on-error", "skip"], 1);
    assert_eq!(count("skipped.gnt").lines().skip(1).collect::<Vec<_>>(), ["1", "1"]);
    std::fs::write(folder.join("other.gnt.partial"), "mine").unwrap();
    let (_, complaint) = ends(folder, &["load", "bad.sql", "other.gnt", "--create"], 1);
    assert!(complaint.contains("cannot replace \"other.gnt.partial\""), "{complaint}");
    assert_eq!(std::fs::read_to_string(folder.join("other.gnt.partial")).unwrap(), "mine");
}

/// Waits for what comes soon, and on a slow machine later.
#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A moment for a process to come to where it waits. Where that is too short, it is asked to end earlier, which it hears just as well.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Nothing comes of it, and nobody closes it.
#[test]
fn ctrl_c_ends_a_load_from_a_pipe_that_stalls() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    for begun in ["", "create table t (a int);\ncopy t from stdin;\n1\n"] {
        let file = format!("{}.gnt", begun.len());
        let mut loading = gannet(folder, &["load", "-", &file, "--create"]);
        let mut loading =
            loading.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = loading.stdin.take().unwrap();
        std::io::Write::write_all(&mut pipe, begun.as_bytes()).unwrap();
        // It listens for signals before it makes anything.
        wait_until(|| folder.join(format!("{file}.partial")).exists());
        std::thread::sleep(A_MOMENT);
        assert!(loading.try_wait().unwrap().is_none());
        let asked = std::time::Instant::now();
        let _ = Command::new("kill").args(["-INT", &loading.id().to_string()]).status();
        let status = loop {
            if let Some(status) = loading.try_wait().unwrap() {
                break status;
            }
            assert!(asked.elapsed().as_secs() < 20, "it waits for the pipe");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(130));
        drop(pipe);
        assert!(!folder.join(&file).exists());
        ends(folder, &["check", &format!("{file}.partial")], 0);
    }
}

#[test]
fn a_load_that_had_failed_waited_for_a_pipe_that_stays_open() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let rows: String = (10..9_400).map(|number| format!("{number:063}\n")).collect();
    let mut loading = gannet(folder, &["load", "-", "new.gnt", "--create"]);
    let mut loading =
        loading.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = loading.stdin.take().unwrap();
    let script = format!("create table t (a int);\ncopy t from stdin;\nx\n{rows}");
    std::io::Write::write_all(&mut pipe, script.as_bytes()).unwrap();
    let begun = std::time::Instant::now();
    while loading.try_wait().unwrap().is_none() {
        assert!(begun.elapsed().as_secs() < 60, "it waits for the pipe");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = loading.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("standard input:3: column a: "), "{complaint}");
    drop(pipe);
}

/// Ends it by this signal; its status, which comes soon.
fn ended_by(signal: &str, mut child: Child) -> Option<i32> {
    let asked = Instant::now();
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if asked.elapsed() > Duration::from_secs(20) {
            let _ = child.kill();
            panic!("it goes on waiting");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether signals only ask it to end. SIGTERM is the last one it prepares for.
fn is_listening(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    let sigterm = 1 << (15 - 1);
    u64::from_str_radix(caught.trim(), 16).unwrap() & sigterm != 0
}

#[test]
fn a_signal_did_not_end_a_dump_whose_reader_stands_still() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder, 30_000);
    let stalled = |database: &str| {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut dumping = gannet(folder, &["dump", database, "-"]);
        dumping.stdout(writer.try_clone().unwrap()).stderr(Stdio::null());
        let mut dumping = dumping.spawn().unwrap();
        // Until the pipe takes no more.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        wait_until(|| poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).unwrap() == 0);
        assert!(dumping.try_wait().unwrap().is_none());
        assert_eq!(ended_by("-TERM", dumping), Some(130), "{database}");
        drop(reader);
    };
    stalled("shop.gnt");
    let server = Served::start(folder, &["shop.gnt"]);
    stalled(&address(folder, "shop"));
    drop(server);
    // Who reads on has all of it.
    ends(folder, &["dump", "shop.gnt", "whole.sql"], 0);
    let text = run(folder, &["dump", "shop.gnt", "-"]).stdout;
    assert!(text == std::fs::read(folder.join("whole.sql")).unwrap());
}

#[test]
fn ctrl_c_did_not_end_a_load_from_a_pipe_that_nobody_opens() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    let mut loading = gannet(folder, &["load", "pipe", "a.gnt", "--create"]);
    let mut loading = loading.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| is_listening(&loading));
    std::thread::sleep(A_MOMENT);
    assert!(loading.try_wait().unwrap().is_none());
    assert_eq!(ended_by("-INT", loading), Some(130));
    // Nothing was made for it yet.
    assert_eq!(names(folder), ["pipe"]);
    let loading =
        gannet(folder, &["load", "pipe", "a.gnt", "--create"]).stdout(Stdio::null()).spawn().unwrap();
    std::fs::write(folder.join("pipe"), "create table t (a int);").unwrap();
    assert_eq!(loading.wait_with_output().unwrap().status.code(), Some(0));
}
