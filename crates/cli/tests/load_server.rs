//! `gannet load` of what lies here, or comes through a pipe, into a server: as a job of the server, at an address as well as beside it; and whatever
//! ends it.

mod common;

use common::{Served, address, ends, gannet, texts};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A served database that is empty, and a dump of another one as a script and as a folder.
fn served(folder: &Path) -> Served {
    let script = "create table customers (id serial primary key, name text);
         create table orders (id bigint primary key, customer int references customers(id), note text);
         create index by_customer on orders (customer);
         insert into customers (name) values ('Ann'), (null), (E'tab\\t');
         insert into orders select n, 1 + n % 3, repeat('note ', 20) || n from generate_series(1, 20000) as n;";
    ends(folder, &["sql", "first.gnt", "--create", "-q", "-c", script], 0);
    ends(folder, &["dump", "first.gnt", "shop.sql"], 0);
    ends(folder, &["dump", "first.gnt", "folder", "--format", "csv"], 0);
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", "select 1"], 0);
    Served::start(folder, &["shop.gnt"])
}

fn asked(folder: &Path, query: &str) -> Vec<String> {
    let (said, _) = ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", query], 0);
    said.lines().skip(1).map(str::to_owned).collect()
}

const JOBS: &str =
    "select state || ' ' || about from gannet_jobs where job = 'load' and id is not null order by id";
const DROP: &str = "drop table if exists orders; drop table if exists customers";

fn spawn(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = gannet(folder, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a command that has to end soon, with this status.
#[track_caller]
fn ended(mut child: Child, status: i32) -> (String, String) {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    texts(&["load"], child.wait_with_output().unwrap(), status)
}

fn await_running(folder: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while asked(folder, JOBS).last().map(String::as_str) != Some("running from the client") {
        assert!(Instant::now() < deadline, "{:?}", asked(folder, JOBS));
    }
}

#[test]
fn what_lies_here_is_loaded_by_a_server_as_a_job() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    let address = address(folder, "shop");
    let (text, _) = ends(folder, &["dump", "first.gnt", "-"], 0);
    for (source, database) in
        [("shop.sql", &*address), ("folder", &address), ("-", &address), ("-", "shop.gnt")]
    {
        asked(folder, DROP);
        let mut load = spawn(folder, &["load", source, database, "--json", "--jobs", "2"]);
        if source == "-" {
            load.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        }
        let (said, _) = ended(load, 0);
        let report: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&report["by_server"], &report["by_statements"]), (&Value::Bool(true), &Value::Null));
        let figures = ["tables", "built", "rows", "bad_rows"].map(|figure| report[figure].as_u64().unwrap());
        assert_eq!(figures, [2, 2, 20_003, 0], "{said}");
        assert!(report["job"]["bytes_read"].as_u64().unwrap() > 2_000_000, "{said}");
        if source != "-" {
            assert_eq!(report["job"]["cached_bytes"].as_u64(), Some(0), "{said}");
        }
        let (again, _) = ends(folder, &["dump", "shop.gnt", "-"], 0);
        // Types in defaults are written as the parser has them.
        assert!(
            again.replace("::REGCLASS", "::regclass") == text.replace("::REGCLASS", "::regclass"),
            "{source}"
        );
    }
    assert_eq!(asked(folder, JOBS), ["done from the client"; 4]);
    asked(folder, DROP);
    let (said, _) = ends(folder, &["load", "shop.sql", &address], 0);
    assert!(said.contains(", through its server: 2 tables, 20003 rows"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    drop(server);
    ends(folder, &["check", "shop.gnt"], 0);
}

#[test]
fn a_bad_row_is_named_by_the_file_as_it_was_given() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    let address = address(folder, "shop");
    let csv = std::fs::read_to_string(folder.join("folder/customers.csv")).unwrap();
    std::fs::write(folder.join("folder/customers.csv"), csv.replacen("1,", "x,", 1)).unwrap();
    let script = "create table t (a int primary key);\ncopy t from stdin;\n1\n2\nx\n2\n3\n\\.\n";
    std::fs::write(folder.join("bad.sql"), script).unwrap();
    let given = folder.join("bad.sql");
    let given = given.to_str().unwrap();
    let absolute = std::path::absolute(given).unwrap();
    let absolute = absolute.to_str().unwrap();
    for (source, place, rows) in [
        ("folder", "folder/customers.csv:2: column id: ", 20_002),
        ("bad.sql", "bad.sql:5: column a: ", 3),
        (absolute, &format!("{absolute}:5: column a: "), 3),
        ("-", "standard input:5: column a: ", 3),
    ] {
        for skip in [false, true] {
            asked(folder, DROP);
            asked(folder, "drop table if exists t");
            let how = if skip { "skip" } else { "stop" };
            let mut load = spawn(folder, &["load", source, &address, "--on-error", how]);
            if source == "-" {
                load.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            }
            let (said, complaint) = ended(load, 1);
            if skip {
                assert!(said.contains(&format!("skipped: {place}")), "{said}");
                assert!(said.contains("through its server") && complaint.contains("were skipped"), "{said}");
                let table = if rows == 3 { "t" } else { "orders" };
                assert!(said.contains(&format!("{rows} rows")) || table == "orders", "{said}");
            } else {
                assert!(complaint.contains(place), "{complaint}");
            }
        }
    }
    // Of what a server cannot make anything of, the client says what it is.
    std::fs::write(folder.join("x.gz"), b"\x1f\x8b\x08\x00rest").unwrap();
    let (_, complaint) = ends(folder, &["load", "x.gz", &address], 1);
    assert!(complaint.contains("x.gz is compressed with gzip"), "{complaint}");
    std::fs::remove_file(folder.join("folder/manifest.json")).unwrap();
    let (_, complaint) = ends(folder, &["load", "folder", &address], 1);
    assert!(complaint.contains("is no complete dump"), "{complaint}");
    drop(server);
}

#[test]
fn a_load_is_seen_and_ended_by_the_list_of_jobs_while_its_pipe_stalls() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    let load = spawn(folder, &["load", "-", &address(folder, "shop")]);
    await_running(folder);
    asked(folder, "select gannet_cancel_job(id) from gannet_jobs where job = 'load' and state = 'running'");
    // Its standard input is open still.
    let (_, complaint) = ended(load, 1);
    assert!(complaint.contains("cannot load"), "{complaint}");
    assert_eq!(asked(folder, JOBS), ["cancelled from the client"]);
    drop(server);
}

/// A script whose second table has more rows than are loaded in a moment.
fn long_script(folder: &Path) {
    let mut script =
        "create table whole (a int primary key);\ncopy whole from stdin;\n1\n2\n\\.\n".to_owned();
    script += "create table half (a int primary key, b text);\ncopy half from stdin;\n";
    for n in 0..1_500_000 {
        script += &format!("{n}\tsome text that is there\n");
    }
    script += "\\.\n";
    std::fs::write(folder.join("long.sql"), script).unwrap();
}

const WHOLE: &str = "select (select count(*) from whole) || ' ' || (select count(*) from half)";

/// Waits until much of the second table has come.
fn await_half(folder: &Path) {
    let half = "select done from gannet_jobs where job = 'load' and state = 'running' and done > 4000000";
    let deadline = Instant::now() + Duration::from_secs(30);
    while asked(folder, half).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", asked(folder, "select * from gannet_jobs"));
    }
}

#[test]
fn ctrl_c_leaves_whole_tables_and_a_server_that_goes_on() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    long_script(folder);
    for source in ["long.sql", "-"] {
        asked(folder, "drop table if exists whole; drop table if exists half");
        let mut command = gannet(folder, &["load", source, &address(folder, "shop")]);
        let input = std::fs::File::open(folder.join("long.sql")).unwrap();
        let command = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let load = command.spawn().unwrap();
        await_half(folder);
        let _ = Command::new("kill").args(["-INT", &load.id().to_string()]).status();
        ended(load, 130);
        assert_eq!(asked(folder, JOBS).last().unwrap(), "cancelled from the client");
        assert_eq!(asked(folder, WHOLE), ["2 0"]);
    }
    ends(folder, &["load", "shop.sql", &address(folder, "shop")], 0);
    drop(server);
    ends(folder, &["check", "shop.gnt"], 0);
}

#[test]
fn a_client_that_is_killed_leaves_whole_tables_and_a_server_that_goes_on() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    long_script(folder);
    for source in ["long.sql", "-"] {
        asked(folder, "drop table if exists whole; drop table if exists half");
        let input = std::fs::File::open(folder.join("long.sql")).unwrap();
        let mut command = gannet(folder, &["load", source, &address(folder, "shop")]);
        let mut load = command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        await_half(folder);
        load.kill().unwrap();
        load.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while asked(folder, JOBS).last().unwrap() != "cancelled from the client" {
            assert!(Instant::now() < deadline, "{:?}", asked(folder, JOBS));
        }
        assert_eq!(asked(folder, WHOLE), ["2 0"]);
    }
    drop(server);
    ends(folder, &["check", "shop.gnt"], 0);
}

#[test]
fn a_server_that_is_killed_ends_the_load() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    long_script(folder);
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", "select 1"], 0);
    for source in ["long.sql", "-"] {
        let mut server = Served::start(folder, &["shop.gnt"]);
        // With "-", the pipe is open, and stalls.
        let load = spawn(folder, &["load", source, &address(folder, "shop")]);
        await_running(folder);
        server.0.kill().unwrap();
        server.0.wait().unwrap();
        let (_, complaint) = ended(load, 1);
        assert!(complaint.contains("cannot load"), "{complaint}");
        ends(folder, &["sql", "shop.gnt", "-q", "-c", "select 1"], 0);
        ends(folder, &["check", "shop.gnt"], 0);
    }
}

#[test]
fn who_is_no_superuser_loads_by_statements_and_is_told_so() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    asked(folder, "create role ann login");
    let address = address(folder, "shop").replace("postgres:///", "postgres://ann@/");
    let script = "create table t (a int primary key);\ncopy t from stdin;\n1\n2\n\\.\n";
    std::fs::write(folder.join("t.sql"), script).unwrap();
    let (said, complaint) = ends(folder, &["load", "t.sql", &address], 0);
    assert_eq!(complaint, "");
    let why = "must be superuser to do LOAD DATABASE";
    assert!(said.contains(&format!(", by statements ({why}): 1 tables, 2 rows")), "{said}");
    asked(folder, "drop table t");
    // All of a stream is there still.
    let mut load = spawn(folder, &["load", "-", &address, "--json"]);
    load.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let report: Value = serde_json::from_str(&ended(load, 0).0).unwrap();
    assert_eq!((report["rows"].as_u64(), report["by_statements"].as_str()), (Some(2), Some(why)));
    assert_eq!(asked(folder, "select count(*) from t"), ["2"]);
    assert!(asked(folder, JOBS).is_empty());
    drop(server);
}

/// Clients that know COPY, and nothing else of it.
#[test]
fn the_shell_sends_a_script() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    let server = served(folder);
    let mut shell = spawn(folder, &["sql", "shop.gnt", "-c", "load database from stdin"]);
    shell.stdin.take().unwrap().write_all(b"create table t (a int);\ninsert into t values (3);\n").unwrap();
    let (said, _) = ended(shell, 0);
    assert!(said.contains("LOAD DATABASE 0"), "{said}");
    assert_eq!(asked(folder, "select sum(a) from t"), ["3"]);
    drop(server);
}
