//! `gannet doctor` beside a running server: its settings, forecasts and alarms, and who holds garbage back.

mod common;

use common::{Served, ends, gannet, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

#[test]
fn a_running_server_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    ends(
        folder.path(),
        &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"],
        0,
    );
    let _server = Served::start(folder.path(), &["shop.gnt"]);
    let output = run(folder.path(), &["doctor", "shop.gnt", "--json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    // How this machine is, is not the test's to say.
    assert!(output.status.code().is_some_and(|code| code <= 2) && output.stderr.is_empty(), "{output:?}");
    assert!(report["device"].is_null(), "a device that others use is not measured uninvited");
    let server = &report["server"];
    let setting = |name: &str| {
        let settings = server["settings"].as_array().unwrap();
        settings
            .iter()
            .find(|setting| setting["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {server:#}"))
    };
    assert_eq!(setting("snapshot_limit")["effective"], "0s");
    assert_eq!(setting("memory")["requested"], "256MiB");
    for name in ["io", "queues"] {
        assert!(!setting(name)["reason"].as_str().unwrap().is_empty(), "{name}");
    }
    let names: Vec<&str> =
        server["forecasts"].as_array().unwrap().iter().map(|gauge| gauge["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["horizon", "log", "space"]);
    // It runs for less than a minute: nothing is foretold.
    assert!(server["forecasts"].as_array().unwrap().iter().all(|gauge| gauge["seconds_left"].is_null()));
    assert!(server["memory"]["limit_bytes"].as_u64().unwrap() == 256 << 20);
    assert!(server["alarms"].is_array() && server["files"].as_array().unwrap().len() > 2);
    let data = &server["files"][0];
    assert!(data["mode"].is_string() && data["reason"].is_string(), "{data}");
    let text = String::from_utf8(run(folder.path(), &["doctor", "shop.gnt"]).stdout).unwrap();
    assert!(text.contains("forecasts") && text.contains("snapshot_limit"), "{text}");
}

#[test]
fn a_file_that_is_no_database_is_critical() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ends(path, &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    let whole = std::fs::read(path.join("shop.gnt")).unwrap();
    let noise: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let cases: [(&[u8], &str); 5] = [
        (&noise, "is not a Gannet database"),
        (&[], "is not a Gannet database"),
        (&whole[..1000], "is not a Gannet database"),
        (&whole[..4096], "both copies of the header"),
        (&whole[..40_000], "is cut off"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(path.join("other.gnt"), bytes).unwrap();
        let (report, _) = ends(path, &["doctor", "other.gnt", "--json", "--time", "0s"], 2);
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["status"], "critical");
        assert!(report["remarks"].to_string().contains(expected), "{expected}: {}", report["remarks"]);
    }
    let report = run(path, &["doctor", "shop.gnt", "--json", "--time", "0s"]);
    assert!(!String::from_utf8(report.stdout).unwrap().contains("restore the file"));
}

#[test]
fn a_file_without_the_log_that_it_needs_is_critical() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ends(path, &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    let mut server = Served::start(path, &["shop.gnt"]);
    server.0.kill().unwrap();
    drop(server);
    std::fs::remove_dir_all(path.join("shop.gnt-wal")).unwrap();
    let (report, _) = ends(path, &["doctor", "shop.gnt", "--json", "--time", "0s"], 2);
    assert!(report.contains("was not closed, and its log in"), "{report}");
}

#[test]
fn a_server_that_lets_nobody_in_was_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ends(path, &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    let sockets = path.join("shop.gnt-socket");
    std::fs::create_dir(&sockets).unwrap();
    let listener = UnixListener::bind(sockets.join(".s.PGSQL.5433")).unwrap();
    // As one that has too many clients: who comes is sent away.
    let busy = std::thread::spawn(move || listener.incoming().take(2).for_each(drop));
    let output = run(path, &["doctor", "shop.gnt", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("a server has the file, and could not be asked how it is"), "{remarks}");
    assert!(output.status.code().is_some_and(|code| code == 1 || code == 2), "{output:?}");
    assert!(report["device"].is_null() && remarks.contains("as a server works on it"), "{report:#}");
    busy.join().unwrap();
    // Nobody listens there any more.
    let output = run(path, &["doctor", "shop.gnt", "--json", "--time", "0s"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["remarks"].to_string().contains("no server answers beside the file"), "{report:#}");
}

/// The look ended there, with a status of its own.
#[test]
fn what_is_another_users_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ends(path, &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    let look = |what: &str| {
        let output = run(path, &["doctor", "shop.gnt", "--json", "--time", "0s"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_there = report["remarks"].as_array().unwrap().iter().any(|remark| {
            remark["weight"] == "warning" && remark["remark"].as_str().is_some_and(|text| text.contains(what))
        });
        assert!(is_there, "{report}");
        assert!(output.status.code().is_some_and(|code| code == 1 || code == 2), "{output:?}");
    };
    let set = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path.join(name), permissions).unwrap();
    };
    set("shop.gnt-wal", 0);
    if std::fs::read_dir(path.join("shop.gnt-wal")).is_ok() {
        println!("skipped: nothing is closed to this user");
        return;
    }
    look("the files of its log could not be looked at");
    set("shop.gnt-wal", 0o700);
    set("shop.gnt", 0);
    look("could not be looked at, as another user's may not be");
}

#[test]
fn options_that_an_address_has_no_use_for_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address = "postgres://nobody@127.0.0.1:1/x";
    for (options, words) in [
        (["--time", "1s"], "--time measures the device of this machine"),
        (["--scratch", "4MiB"], "--scratch is of the file"),
        (["--io", "direct"], "--io is how this process opens files"),
    ] {
        let (_, complaint) = ends(folder.path(), &[&["doctor", address], &options[..]].concat(), 3);
        assert!(
            complaint.contains(words) && complaint.contains("leave it out with an address"),
            "{complaint}"
        );
    }
    // The environment is meant for other commands, too.
    let mut doctor = gannet(folder.path(), &["doctor", address]);
    let output = doctor.env("GANNET_IO", "direct").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot connect"));
}

#[test]
fn each_file_has_a_mode_and_little_room_is_a_warning_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ends(path, &["sql", "shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    let look = || {
        let output = run(path, &["doctor", "shop.gnt", "--json", "--time", "0s"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let report = look();
    let files = report["database"]["files"].as_array().unwrap();
    assert!(files.iter().all(|file| file["mode"].is_string() && file["reason"].is_string()), "{report}");
    // A file that is as long as thirty times the room that is left, and has no blocks.
    let free = report["free_bytes"].as_u64().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path.join("shop.gnt")).unwrap();
    if free < 128 << 20 || file.set_len(free * 30).is_err() {
        println!("skipped: there cannot be such a file here");
        return;
    }
    let report = look();
    let said = report["remarks"].to_string();
    assert!(said.contains("are free, less than") && said.contains("make room on the device"), "{said}");
    assert_eq!(report["status"], "warning", "{report}");
}

#[test]
fn a_symbolic_link_stands_for_the_files_and_the_folder_of_what_it_points_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["data", "links"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    ends(path, &["sql", "data/shop.gnt", "--create", "-q", "-c", "create table t (id int primary key)"], 0);
    std::os::unix::fs::symlink("../data/shop.gnt", path.join("links/shop.gnt")).unwrap();
    let look = || {
        let output = run(path, &["doctor", "links/shop.gnt", "--json", "--time", "0s"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let names = |report: &Value| {
        let files = report.as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let report = look();
    assert_eq!(report["folder"], "links/../data");
    let files = names(&report["database"]["files"]);
    assert!(files.iter().any(|file| file.ends_with(".log")), "{files:?}");
    // A server is found by the name that it was given, and says the same.
    let _server = Served::start(path, &["links/shop.gnt"]);
    let report = look();
    let files = names(&report["server"]["files"]);
    assert!(files.iter().any(|file| file.ends_with(".log")), "{files:?}");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_silent_server() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("postgres://root@{}/s", listener.local_addr().unwrap());
    let commands: [&[&str]; 4] = [
        &["doctor", &address],
        &["stat", &address],
        &["check", &address],
        &["sql", &address, "-c", "select 1"],
    ];
    for command in commands {
        let mut waiting = gannet(folder.path(), command);
        let waiting = waiting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let waiting = waiting.spawn().unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        // It has asked, and waits for an answer.
        socket.read_exact(&mut [0; 8]).unwrap();
        assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().unwrap().success());
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{command:?}: {output:?}");
    }
}

#[test]
fn ctrl_c_ends_the_wait_for_a_server_that_is_silent_once_it_has_let_somebody_in() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("postgres://root@{}/s", listener.local_addr().unwrap());
    let backup = [&address, "backups", "--job-pace", "full"];
    for command in [vec!["doctor", &address], [&["backup"], &backup[..]].concat()] {
        let mut waiting = gannet(folder.path(), &command);
        let waiting = waiting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let waiting = waiting.spawn().unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        // No encryption; then whoever it is may come in.
        socket.read_exact(&mut [0; 8]).unwrap();
        socket.write_all(b"N").unwrap();
        let mut len = [0; 4];
        socket.read_exact(&mut len).unwrap();
        let rest = u64::from(u32::from_be_bytes(len)) - 4;
        std::io::copy(&mut (&mut socket).take(rest), &mut std::io::sink()).unwrap();
        socket.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
        socket.read_exact(&mut [0; 5]).unwrap();
        assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().unwrap().success());
        let output = waiting.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{command:?}: {output:?}");
    }
}
