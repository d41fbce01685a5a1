//! `gannet serve`: what it refuses before it makes anything, and what it says of itself.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn gannet(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(arguments).current_dir(folder).env_remove("GANNET_MEMORY").env_remove("GANNET_IO");
    command
}

/// A server that is ended with the test, and what it said until it served.
struct Served(Child, String);

impl Served {
    fn start(command: &mut Command) -> Self {
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut text = String::new();
        while !text.contains("Ctrl-C") && said.read_line(&mut text).unwrap() > 0 {}
        // Whatever else it says is to be taken, too.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Served(server, text)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
            let _ = self.0.wait();
        }
    }
}

fn refused(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    std::str::from_utf8(&output.stderr).unwrap()
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
fn settings_that_are_wrong_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key.pem"), "no key").unwrap();
    std::fs::write(folder.path().join("certificate.pem"), "no certificate").unwrap();
    std::fs::write(folder.path().join("gannet.toml"), "memory = 32\n").unwrap();
    let tls = ["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"];
    let run = |arguments: &[&str], variable: (&str, &str)| {
        let arguments = [&["serve", "new.gnt", "--listen", "none"], arguments].concat();
        gannet(folder.path(), &arguments).env(variable.0, variable.1).output().unwrap()
    };
    for (arguments, variable, words) in [
        (&tls[..], ("NOTHING", ""), "certificate.pem: "),
        (
            &[],
            ("GANNET_TEMP_FOLDER", "key.pem"),
            "setting temp_folder = \"key.pem\" (environment): it is no folder",
        ),
        (&[], ("GANNET_TEMP_FOLDER", "missing"), "No such file"),
        (
            &[],
            ("GANNET_SNAPSHOT_LIMIT", "soon"),
            "setting snapshot_limit = \"soon\" (environment): \"soon\" is not a duration",
        ),
        (&[], ("GANNET_JOB_LATENCY_TARGET", "5"), "setting job_latency_target = \"5\" (environment): "),
        (&["--memory", "4TiB"], ("NOTHING", ""), "a memory budget of 4TiB is more than the "),
        (
            &["--memory", "7MiB"],
            ("NOTHING", ""),
            "setting memory = \"7MiB\" (flag): a memory budget of 7MiB is too small: give at least 8MiB",
        ),
        (
            &["--config", "gannet.toml"],
            ("NOTHING", ""),
            "setting memory = \"32\" (file gannet.toml): a memory budget of 32B is too small",
        ),
    ] {
        let output = run(arguments, variable);
        assert!(refused(&output).contains(words), "{output:?}");
        assert_eq!(names(folder.path()), ["certificate.pem", "gannet.toml", "key.pem"]);
    }
    let mixed =
        gannet(folder.path(), &["serve", "new.gnt", "--listen", "127.0.0.1:0,none"]).output().unwrap();
    assert!(refused(&mixed).contains("none is for no address at all"), "{mixed:?}");
}

#[test]
fn a_variable_that_cannot_be_read_was_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let text = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    for (name, value, words) in [
        (
            &b"GANNET_ARCHIVE"[..],
            &b"/backup/\xe9t\xe9"[..],
            "the environment's GANNET_ARCHIVE is not valid UTF-8",
        ),
        (b"GANNET_ARCHIV\xc9", b"/backup", "unknown setting archiv"),
    ] {
        let mut serve = gannet(folder.path(), &["serve", "new.gnt", "--listen", "none"]);
        let output = serve.env(text(name), text(value)).output().unwrap();
        assert!(refused(&output).contains(words), "{output:?}");
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn a_server_with_little_memory_creates_what_fits_it_and_says_what_holds() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "serve",
        "new.gnt",
        "--memory",
        "8MiB",
        "--listen",
        "127.0.0.1:0",
        "--port",
        "5517",
        "--insecure-trust",
    ];
    let mut command = gannet(folder.path(), &arguments);
    let served = Served::start(command.env("GANNET_WAL_LIMIT", "1MiB"));
    assert!(served.1.contains(" (without password: insecure_trust; no TLS)\n"), "{}", served.1);
    let ask = "select requested, effective, reason from gannet_settings where name = 'wal_limit'";
    let output = gannet(folder.path(), &["sql", "new.gnt", "--format", "csv", "-c", ask]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "requested,effective,reason\n1MiB,4MiB,raised to four of the database's log segments\n",
        "{output:?}"
    );
}

/// It was as a kill: the next start had something to redo.
#[test]
fn a_hang_up_ends_a_server_in_good_order_unless_it_is_ignored() {
    if gannet_base::inherited::ignores(1) {
        println!(
            "skipped: these tests are run so that they outlive their terminal, and so is what they start"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("a b");
    std::fs::create_dir(&here).unwrap();
    let send = |signal: &str, server: &Child| {
        assert!(Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap().success());
    };
    let serve = ["serve", "new.gnt", "--listen", "none"];
    let mut served = Served::start(&mut gannet(&here, &serve));
    // A shell takes the folder for one word.
    assert!(served.1.contains("a b/new.gnt-socket' -p 5433 new\n"), "{}", served.1);
    // The terminal's end is told of twice.
    send("-HUP", &served.0);
    send("-HUP", &served.0);
    assert_eq!(served.0.wait().unwrap().code(), Some(0));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" serve new.gnt --listen none", env!("CARGO_BIN_EXE_gannet")]);
    let mut served = Served::start(shell.current_dir(&here));
    assert!(!served.1.contains("was not closed"), "{}", served.1);
    send("-HUP", &served.0);
    std::thread::sleep(Duration::from_millis(300));
    assert!(served.0.try_wait().unwrap().is_none());
}

#[test]
fn connections_that_nobody_has_let_in_are_counted_where_files_are_few() {
    let folder = tempfile::tempdir().unwrap();
    // As many as 400 sessions, those who log in beside them, and what is not a connection's: but not the databases'.
    let script = "ulimit -n 1056; exec \"$0\" serve new.gnt --listen none --max-connections 400";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_gannet")]).current_dir(folder.path());
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let words =
        "400 connections and the databases need 1113 open files, and the system permits 1056 (ulimit -n)";
    assert!(refused(&output).contains(words), "{output:?}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn the_socket_of_a_killed_server_hid_the_one_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("new.gnt-socket");
    let start = |port: &str| {
        Served::start(&mut gannet(folder.path(), &["serve", "new.gnt", "--listen", "none", "--port", port]))
    };
    let mut killed = start("5519");
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    assert_eq!(names(&sockets), [".s.PGSQL.5519"]);
    let _running = start("5518");
    assert_eq!(names(&sockets), [".s.PGSQL.5518"], "what was left behind is gone");
    // And should somebody put another one there.
    drop(std::os::unix::net::UnixListener::bind(sockets.join(".s.PGSQL.5520")).unwrap());
    let output =
        gannet(folder.path(), &["sql", "new.gnt", "--format", "csv", "-c", "select 1 as one"]).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "one\n1\n");
}
