//! `gannet sql` as its users meet it, on a file and on a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

fn gannet(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(arguments).current_dir(folder).env_clear().env("GANNET_MEMORY", "32MiB").env("TZ", "UTC");
    command
}

fn run(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = gannet(folder, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Runs what must succeed and complain of nothing.
fn good(folder: &Path, arguments: &[&str], input: &str) -> String {
    let output = run(folder, arguments, input.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert_eq!(stderr(&output), "", "{arguments:?}");
    stdout(&output).to_owned()
}

/// Runs what must fail, and gives what it complains of.
fn bad(folder: &Path, arguments: &[&str], input: &[u8], status: i32) -> String {
    let output = run(folder, arguments, input);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    stderr(&output).to_owned()
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// A server with one database, `shop`, and a role `joe` with a password.
struct Served {
    folder: TempDir,
    server: Child,
    port: u16,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let setup = "create role joe login password 'se cret'; create table fruit (name text, price numeric)";
        good(folder.path(), &["sql", "shop.gnt", "--create", "-q", "-c", setup], "");
        let arguments = ["serve", "shop.gnt", "--listen", "127.0.0.1:0", "--port", "5511"];
        let mut server = gannet(folder.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        let mut port = None;
        let mut line = String::new();
        while said.read_line(&mut line).unwrap() > 0 && !line.contains("Ctrl-C") {
            if let Some((_, rest)) = line.split_once("listening on 127.0.0.1:") {
                port = rest.split_whitespace().next().unwrap().parse().ok();
            }
            line.clear();
        }
        // Whatever else it says is to be taken, too.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Served { folder, server, port: port.expect("the server says where it listens") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        send("-TERM", &self.server);
        self.server.wait().unwrap();
    }
}

/// A folder with a database `shop.gnt`: of no other process, or of a server.
enum Place {
    File(TempDir),
    Server(Served),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Place::File(folder) => folder.path(),
            Place::Server(served) => served.path(),
        }
    }
}

fn places() -> [Place; 2] {
    let folder = tempfile::tempdir().unwrap();
    good(
        folder.path(),
        &["sql", "shop.gnt", "--create", "-q", "-c", "create table fruit (name text, price numeric)"],
        "",
    );
    [Place::File(folder), Place::Server(Served::start())]
}

#[test]
fn statements_run_from_everywhere_on_both_sides() {
    for place in places() {
        let here = place.path();
        let insert = "insert into fruit values ('apple', 1.20), ('pear', null)";
        assert_eq!(good(here, &["sql", "shop.gnt", "-c", insert], ""), "INSERT 0 2\n");
        let table = good(here, &["sql", "shop.gnt", "-c", "select * from fruit order by 1"], "");
        assert_eq!(table, " name  | price \n-------+-------\n apple |  1.20\n pear  |      \n(2 rows)\n\n");
        let json = good(here, &["sql", "shop.gnt", "--format", "json"], "select * from fruit order by 1;\n");
        assert_eq!(json, "[\n{\"name\":\"apple\",\"price\":1.20},\n{\"name\":\"pear\",\"price\":null}\n]\n");
        std::fs::write(
            here.join("a.sql"),
            "\\format csv\nselect name from fruit\norder by 1; select 1 as one;",
        )
        .unwrap();
        std::fs::write(here.join("b.sql"), "\\i a.sql\n\\echo end\n").unwrap();
        let csv = good(here, &["sql", "shop.gnt", "-q", "-f", "b.sql"], "");
        assert_eq!(csv, "name\napple\npear\none\n1\nend\n");
        let several = good(
            here,
            &["sql", "shop.gnt", "--format", "csv", "-c", "select 1 as a; select 2 as b", "-c", "\\d fruit"],
            "",
        );
        assert!(several.starts_with("a\n1\nb\n2\nColumn,Type,"), "{several}");
    }
}

#[test]
fn an_error_ends_a_script_with_its_sqlstate_and_place() {
    for place in places() {
        let here = place.path();
        let script = "select 1 as a;\nselect *\n  from nowhere;\nselect 2 as b;\n";
        std::fs::write(here.join("s.sql"), script).unwrap();
        let output = run(here, &["sql", "shop.gnt", "--format", "csv", "-f", "s.sql"], b"");
        assert_eq!((output.status.code(), stdout(&output)), (Some(3), "a\n1\n"));
        assert_eq!(
            stderr(&output),
            "gannet:s.sql:3: ERROR:  42P01: relation \"nowhere\" does not exist\nLINE 2:   from nowhere;\n               ^\n"
        );
        let output = run(here, &["sql", "shop.gnt", "--format", "csv", "--keep-going", "-f", "s.sql"], b"");
        assert_eq!((output.status.code(), stdout(&output)), (Some(3), "a\n1\nb\n2\n"));
        let told = bad(here, &["sql", "shop.gnt", "-c", "insert into fruit values (1)", "-c", "bad"], b"", 1);
        assert!(told.starts_with("ERROR:  42601: "), "{told}");
    }
}

#[test]
fn bad_input_is_refused() {
    let place = &places()[0];
    let here = place.path();
    std::fs::write(here.join("foreign.gnt"), vec![7; 100_000]).unwrap();
    let cases: [(&[&str], &[u8], i32, &str); 16] = [
        (&["sql"], b"", 2, "<DB>"),
        (&["sql", "shop.gnt", "--nonsense"], b"", 2, "--nonsense"),
        (&["sql", "shop.gnt", "-c", "x", "-f", "y"], b"", 2, "cannot be used with"),
        (&["sql", "none.gnt"], b"", 2, "\"none.gnt\" does not exist; --create makes a new database"),
        (&["sql", "foreign.gnt"], b"", 2, "is not a Gannet database"),
        (&["sql", "."], b"", 2, "is a folder"),
        (&["sql", "postgres://127.0.0.1:1/x"], b"", 2, "cannot connect: 127.0.0.1 port 1: "),
        (&["sql", "host=x colour=red"], b"", 2, "\"colour\" is not implemented"),
        (&["sql", "shop.gnt", "-f", "none.sql"], b"", 1, "cannot open \"none.sql\""),
        (&["sql", "shop.gnt"], b"\\nonsense\n", 3, "invalid command \\nonsense"),
        (&["sql", "shop.gnt"], b"\\i none.sql\n", 3, "\\i: cannot open \"none.sql\""),
        (&["sql", "shop.gnt"], b"\\o none/x\n", 3, "\\o: none/x: No such file"),
        (&["sql", "shop.gnt"], b"select 1", 3, "\";\" is missing"),
        (&["sql", "shop.gnt"], b"select '1;\n", 3, "unterminated quoted string"),
        (
            &["sql", "shop.gnt", "-f", "-"],
            b"select 1;\nselect '\xff';\n",
            3,
            "<stdin>:2: this line is not valid UTF-8",
        ),
        (&["sql", "shop.gnt"], b"\\d nothing\n", 3, "Did not find any relation named \"nothing\""),
    ];
    for (arguments, input, status, expected) in cases {
        let told = bad(here, arguments, input, status);
        assert!(told.starts_with("gannet:") && told.contains(expected), "{arguments:?}: {told}");
    }
    assert!(!here.join("none.gnt").exists());
}

#[test]
fn a_statement_without_end_is_refused_by_the_line_of_its_beginning() {
    let place = &places()[0];
    let mut script = b"select 1;\nselect '".to_vec();
    script.resize(66 << 20, b'x');
    for at in (100..script.len()).step_by(100) {
        script[at] = b'\n';
    }
    let told = bad(place.path(), &["sql", "shop.gnt", "-f", "-"], &script, 3);
    assert!(told.starts_with("gannet:<stdin>:2: a statement of more than 67108864 bytes"), "{told}");
    assert!(told.contains("unterminated quoted string"), "{told}");
}

#[test]
fn a_file_that_somebody_else_has_open_is_named_as_such() {
    let place = &places()[0];
    let here = place.path();
    let mut child =
        gannet(here, &["sql", "shop.gnt"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\\echo ready\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let told = bad(here, &["sql", "shop.gnt", "-c", "select 1"], b"", 2);
    assert!(told.contains(&child.id().to_string()) && told.contains("no server has a socket"), "{told}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_server_is_found_by_a_link_to_its_file() {
    let served = Served::start();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(served.path().join("shop.gnt"), elsewhere.path().join("link.gnt")).unwrap();
    let said =
        good(elsewhere.path(), &["sql", "link.gnt", "-c", "select count(*) || ' fruits' from fruit"], "");
    assert!(said.contains("0 fruits"), "{said}");
}

#[test]
fn copy_goes_round() {
    for place in places() {
        let here = place.path();
        let script = "copy fruit from stdin;\nplum\t0.5\na\\tb\t\\N\n\\.\n\
                      \\copy fruit to 'out file.csv' (format csv, header)\n\
                      truncate fruit;\n\
                      \\copy fruit from 'out file.csv' with (format csv, header)\n\
                      \\copy (select name from fruit order by 1) to stdout\n";
        let out = good(here, &["sql", "shop.gnt"], script);
        assert_eq!(out, "COPY 2\nCOPY 2\nTRUNCATE TABLE\nCOPY 2\na\\tb\nplum\n");
        let file = std::fs::read_to_string(here.join("out file.csv")).unwrap();
        assert_eq!(file, "name,price\nplum,0.5\na\tb,\n");
        let rows = "kiwi\t1\n".repeat(50_000);
        assert_eq!(good(here, &["sql", "shop.gnt", "-c", "copy fruit from stdin"], &rows), "COPY 50000\n");
        let told = bad(here, &["sql", "shop.gnt"], b"\\copy fruit from 'none.csv'\n", 3);
        assert!(told.starts_with("gannet: \\copy: none.csv: No such file"), "{told}");
        std::fs::write(here.join("s.sql"), "select 1;\n\\copy fruit to 'none/x.csv'\n").unwrap();
        let told = bad(here, &["sql", "shop.gnt", "-f", "s.sql"], b"", 3);
        assert!(told.starts_with("gannet:s.sql:2: cannot write to \"none/x.csv\": No such file"), "{told}");
        // Data that is refused is not taken for statements.
        let script = "copy fruit from stdin;\nplum\tcheap\nselect 1;\n\\.\nselect 7 as seven;\n";
        let output = run(here, &["sql", "shop.gnt", "--keep-going", "--format", "csv"], script.as_bytes());
        assert_eq!((output.status.code(), stdout(&output)), (Some(3), "seven\n7\n"), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("22P02") && stderr(&output).contains("CONTEXT:  COPY fruit, line 1")
        );
    }
}

#[test]
fn ctrl_c_ends_the_statement_only() {
    for place in places() {
        let mut child = gannet(place.path(), &["sql", "shop.gnt", "--keep-going", "--format", "csv"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        input.write_all(b"select 'ready' as a; select pg_sleep(600);\n").unwrap();
        let mut lines = String::new();
        for _ in 0..2 {
            out.read_line(&mut lines).unwrap();
        }
        assert_eq!(lines, "a\nready\n");
        // The shell is within the second statement, or between the two, where a signal is kept for the second.
        wait_until_sleeping(&place);
        send("-INT", &child);
        let mut told = String::new();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        errors.read_line(&mut told).unwrap();
        assert_eq!(told, "ERROR:  57014: canceling statement due to user request\n");
        input.write_all(b"select 2 as b;\n").unwrap();
        drop(input);
        lines.clear();
        out.read_to_string(&mut lines).unwrap();
        assert_eq!(lines, "b\n2\n");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}

/// On a server, waits until the statement runs.
fn wait_until_sleeping(place: &Place) {
    let Place::Server(served) = place else { return };
    let ask =
        "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'";
    while good(served.path(), &["sql", "shop.gnt", "--format", "csv", "-c", ask], "") != "count\n1\n" {}
}

#[test]
fn a_server_is_reached_by_address_and_password() {
    let served = Served::start();
    let address = |password: &str| format!("postgres://joe:{password}@127.0.0.1:{}/shop", served.port);
    let who = ["-c", "select current_user as me", "--format", "csv"];
    let good_address = address("se%20cret");
    let mut arguments = vec!["sql", good_address.as_str()];
    arguments.extend(who);
    assert_eq!(good(served.path(), &arguments, ""), "me\njoe\n");
    let about = good(served.path(), &["sql", &good_address, "-c", "\\conninfo"], "");
    assert!(about.contains("database \"shop\" as user \"joe\" on \"127.0.0.1\""), "{about}");
    let wrong = bad(served.path(), &["sql", &address("secret"), "-c", "select 1"], b"", 2);
    assert!(wrong.contains("password authentication failed for user \"joe\""), "{wrong}");
    let tls = format!("{good_address}?sslmode=require");
    let refused = bad(served.path(), &["sql", &tls, "-c", "select 1"], b"", 2);
    assert!(refused.contains("the server has no TLS"), "{refused}");
    let words = format!("host={} port=5511 dbname=shop", served.path().join("shop.gnt-socket").display());
    assert_eq!(good(served.path(), &["sql", &words, "--format", "csv", "-c", "select 1 as a"], ""), "a\n1\n");
}

#[test]
fn descriptions_look_like_psqls() {
    for place in places() {
        let here = place.path();
        let script = "create table shelf (id serial primary key, name varchar(10) not null unique, \
                      full_to int default 3 check (full_to > 0));\n\
                      create table box (shelf int references shelf (id));\n\
                      \\d shelf\n\\d box\n\\dt\n\\di shelf*\n\\d shelf_pkey\n\\d shelf_id_seq\n\\du joe\n\\l\n";
        let out = good(here, &["sql", "shop.gnt", "-q"], script);
        for expected in [
            "                                    Table \"public.shelf\"\n",
            " id      | integer               |           | not null | nextval('shelf_id_seq'::regclass)\n",
            "Indexes:\n    \"shelf_pkey\" PRIMARY KEY, btree (id)\n    \"shelf_name_key\" UNIQUE CONSTRAINT, btree (name)\n",
            "Check constraints:\n    \"shelf_full_to_check\" CHECK (full_to > 0)\n",
            "Referenced by:\n    TABLE \"box\" CONSTRAINT \"box_shelf_fkey\" FOREIGN KEY (shelf) REFERENCES shelf(id)\n",
            "Foreign-key constraints:\n    \"box_shelf_fkey\" FOREIGN KEY (shelf) REFERENCES shelf(id)\n",
            " public | box   | table | ",
            " id     | integer | yes  | id\nprimary key, btree, for table \"public.shelf\"\n",
            " Type   | Start | Minimum |  Maximum   | Increment | Cycles? | Cache \n",
            " shop | ",
        ] {
            assert!(out.contains(expected), "{expected}\nis not in\n{out}");
        }
    }
}

#[test]
fn to_find_none_is_no_error_unless_it_was_named() {
    for place in places() {
        let script = "drop table fruit;\n\\d\n\\dt\n\\di\n\\dv\n\\ds\nselect 1 as a;\n";
        let output = run(place.path(), &["sql", "shop.gnt", "--format", "csv"], script.as_bytes());
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), "a\n1\n"));
        let told: String = ["relations", "tables", "indexes", "views", "sequences"]
            .map(|things| format!("gannet: Did not find any {things}.\n"))
            .concat();
        assert_eq!(stderr(&output), told);
        for command in ["\\d nothing", "\\dt nothing", "\\di nothing"] {
            let told = bad(place.path(), &["sql", "shop.gnt"], format!("{command}\nselect 1;").as_bytes(), 3);
            assert!(told.contains("Did not find any") && told.contains("named \"nothing\"."), "{told}");
        }
    }
}

#[test]
fn output_that_nobody_reads_ends_quietly() {
    for place in places() {
        for format in ["csv", "json", "table"] {
            let query = "select g from generate_series(1, 100000000) g";
            let mut child = gannet(place.path(), &["sql", "shop.gnt", "--format", format, "-c", query])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut first = [0; 100];
            child.stdout.take().unwrap().read_exact(&mut first).unwrap();
            let mut told = String::new();
            child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(told, "", "{format}");
            assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
        }
    }
}

/// Whoever left the pager, or read a line only, had the change of all rows taken back without a word.
#[test]
fn rows_are_changed_whoever_reads_of_it() {
    for place in places() {
        let change = "delete from t where n > 10 returning repeat('x', 1000)";
        let fill = "create table t (n int); insert into t select * from generate_series(1, 5000)";
        good(place.path(), &["sql", "shop.gnt", "-q", "-c", fill], "");
        let mut child = gannet(place.path(), &["sql", "shop.gnt", "-q", "-c", change])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        let left =
            good(place.path(), &["sql", "shop.gnt", "--format", "csv", "-c", "select count(*) from t"], "");
        assert_eq!(left, "count\n10\n");
    }
}

/// What was to get rows and has not got them is no reader who has seen enough.
#[test]
fn a_pipe_that_was_named_and_breaks_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    good(folder.path(), &["sql", "a.gnt", "--create", "-q", "-c", "create table t (n int)"], "");
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    let pipe = folder.path().join("pipe");
    let reader = std::thread::spawn(move || drop(std::fs::File::open(pipe).unwrap()));
    let script = "\\copy (select repeat('x', 1000) from generate_series(1, 5000)) to 'pipe'\ninsert into t values (1);\n";
    let told = bad(folder.path(), &["sql", "a.gnt", "-q"], script.as_bytes(), 3);
    reader.join().unwrap();
    assert!(told.contains("Broken pipe"), "{told}");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_pipe_that_nobody_writes_to() {
    let folder = tempfile::tempdir().unwrap();
    good(folder.path(), &["sql", "a.gnt", "--create", "-q", "-c", "create table t (n int)"], "");
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    for command in ["\\copy t from 'pipe'", "\\i pipe"] {
        std::fs::write(folder.path().join("script"), format!("\\echo begun\n{command}\n")).unwrap();
        for signal in ["-INT", "-TERM"] {
            let arguments = ["sql", "a.gnt", "-f", "script"];
            let mut child = gannet(folder.path(), &arguments).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "begun\n");
            send(signal, &child);
            assert!(!child.wait().unwrap().success());
        }
    }
}

#[test]
fn nothing_is_left_open_when_a_script_is_terminated() {
    let Place::File(folder) = &places()[0] else { unreachable!("the first place is a file") };
    let mut child = gannet(folder.path(), &["sql", "shop.gnt"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"insert into fruit values ('fig', 1);\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    send("-TERM", &child);
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("INSERT 0 1\n", Some(130)));
    let stat = gannet(folder.path(), &["kv", "shop.gnt", "stat", "--format", "csv"]).output().unwrap();
    assert!(stdout(&stat).contains("restart.crashed,false\n"), "{stat:?}");
}

#[test]
fn a_database_is_created_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("sub");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(
        good(&path, &["sql", "new.gnt", "--create", "--format", "csv", "-c", "select 1 as a"], ""),
        "a\n1\n"
    );
    assert_eq!(
        good(&path, &["sql", "new.gnt", "--create", "--format", "csv", "-c", "select 2 as a"], ""),
        "a\n2\n"
    );
    let told = bad(&path, &["sql", "no/such/x.gnt", "--create"], b"", 2);
    assert!(told.contains("No such file or directory"), "{told}");
}

/// A terminal with a shell at it.
struct Terminal {
    child: Child,
    keys: std::fs::File,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: String,
    /// What was seen up to what was waited for.
    passed: String,
}

impl Terminal {
    fn start(folder: &Path) -> Self {
        Terminal::start_as(folder, "xterm", "shop.gnt")
    }

    /// A terminal of this kind, with a shell for this database.
    fn start_as(folder: &Path, kind: &str, database: &str) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = std::fs::File::options().read(true).write(true).open(name).unwrap();
        let keys = std::fs::File::from(terminal);
        // Its keys send signals only to who has it as its controlling terminal.
        let child = Command::new("/usr/bin/setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_gannet"), "sql", database])
            .current_dir(folder)
            .env_clear()
            .envs([("GANNET_MEMORY", "32MiB"), ("TERM", kind), ("PAGER", "cat -n")])
            .env("XDG_STATE_HOME", folder.join("state"))
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side)
            .spawn()
            .unwrap();
        let mut screen = keys.try_clone().unwrap();
        let (sender, shown) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, keys, shown, seen: String::new(), passed: String::new() }
    }

    fn press(&mut self, keys: impl AsRef<[u8]>) {
        self.keys.write_all(keys.as_ref()).unwrap();
    }

    /// Whether lines are made and shown by the terminal itself, as it was found.
    fn is_as_found(&self) -> bool {
        use rustix::termios::{LocalModes, tcgetattr};
        tcgetattr(&self.keys).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for text behind what was waited for before; false when there is none for that long.
    fn sees(&mut self, text: &str, limit: std::time::Duration) -> bool {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.passed.extend(self.seen.drain(..at + text.len()));
                return true;
            }
            match self.shown.recv_timeout(limit) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => return false,
            }
        }
    }

    fn expect(&mut self, text: &str) {
        assert!(self.sees(text, std::time::Duration::from_secs(60)), "{text:?} is not in {:?}", self.seen);
    }
}

#[test]
fn a_conversation_has_prompts_and_history_and_survives_ctrl_c() {
    use std::os::unix::fs::PermissionsExt;
    for place in places() {
        let mut terminal = Terminal::start(place.path());
        terminal.expect("shop=> ");
        terminal.press("select 'a\r");
        terminal.expect("shop'> ");
        terminal.press("b' as one;\r");
        terminal.expect("(1 row)");
        terminal.expect("shop=> ");
        terminal.press("begin;\r");
        terminal.expect("shop=*> ");
        terminal.press("select pg_sleep(600);\r");
        terminal.expect("pg_sleep(600);");
        // Pressed before the statement runs, it clears the line of the prompt, which is empty.
        while !terminal.sees("57014", std::time::Duration::from_millis(200)) {
            terminal.press("\x03");
        }
        terminal.expect("shop=!> ");
        terminal.press("rollback;\r");
        terminal.expect("ROLLBACK");
        terminal.expect("shop=> ");
        // What does not fit goes through the pager, here one that numbers lines.
        terminal.press("select g from generate_series(1, 100) g;\r");
        terminal.expect("   102\t 100\r\n");
        terminal.expect("shop=> ");
        terminal.press("half a stateme\x03");
        terminal.expect("shop=> ");
        terminal.press("\\q\r");
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        let history = place.path().join("state/gannet/history");
        assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
        let kept = std::fs::read_to_string(history).unwrap();
        assert!(kept.contains("select 'a\\nb' as one;\n") && !kept.contains("half"), "{kept}");
    }
}

#[test]
fn what_is_typed_ahead_is_run() {
    for place in places() {
        let mut terminal = Terminal::start(place.path());
        terminal.expect("shop=> ");
        terminal.press("select 'o' || 'ne';\nselect 't' || 'wo';\nselect 'th' || 'ree';\n");
        for result in ["one", "two", "three"] {
            terminal.expect(result);
            terminal.expect("(1 row)");
        }
        terminal.press("copy fruit from stdin;\nfig\t1.5\nplum\t2.5\n\\.\nselect sum(price) from fruit;\n");
        terminal.expect("COPY 2");
        terminal.expect(" 4.0");
        // Typed while the statement runs.
        terminal.press("select pg_sleep(0.5);\n");
        terminal.expect("pg_sleep(0.5);");
        terminal.press("select 'fo' || 'ur';\n");
        terminal.expect("four");
        terminal.press("\\q\n");
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn ctrl_c_forgets_what_was_typed_ahead() {
    let place = &places()[0];
    let mut terminal = Terminal::start(place.path());
    terminal.expect("shop=> ");
    terminal.press("select 1 as kept;\n");
    terminal.expect("(1 row)");
    for ahead in [
        "select pg_sleep(600);\nselect 'a' || 'head';\n",
        "\x1b[200~select pg_sleep(600);\nselect 'a' || 'head';\x1b[201~\n",
    ] {
        terminal.expect("shop=> ");
        terminal.press(ahead);
        terminal.expect("pg_sleep(600);");
        while !terminal.sees("57014", std::time::Duration::from_millis(200)) {
            terminal.press("\x03");
        }
        terminal.press("select 'af' || 'ter';\n");
        terminal.expect("after");
        assert!(!terminal.passed.contains("ahead"), "{}", terminal.passed);
        terminal.expect("(1 row)");
    }
    terminal.expect("shop=> ");
    terminal.press("\\q\n");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
    let kept = std::fs::read_to_string(place.path().join("state/gannet/history")).unwrap();
    assert!(kept.contains("select 1 as kept;\n"), "{kept}");
}

#[test]
fn what_is_pasted_is_read_line_by_line() {
    for place in places() {
        let mut terminal = Terminal::start(place.path());
        terminal.expect("shop=> ");
        terminal.press("copy fruit from stdin;\n");
        terminal.expect(">> ");
        terminal.press("\x1b[200~fig\t1.5\nplum\t2.5\n\\.\n\x1b[201~\n");
        terminal.expect("COPY 2");
        let script = "create table basket (a int);\rcopy basket from stdin;\r1\r2\r\\.\rselect 'su' || 'm', sum(a) from basket;";
        terminal.press(format!("\x1b[200~{script}\x1b[201~\r"));
        terminal.expect("CREATE TABLE");
        terminal.expect("COPY 2");
        terminal.expect(" sum      |   3");
        terminal.press("\\q\r");
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        let kept = std::fs::read_to_string(place.path().join("state/gannet/history")).unwrap();
        assert!(kept.contains("copy basket from stdin;\nselect"), "{kept}");
    }
}

#[test]
fn what_is_not_utf8_fails_its_line_only() {
    for place in places() {
        let mut terminal = Terminal::start(place.path());
        terminal.expect("shop=> ");
        terminal.press("begin;\r");
        // Typed in the middle of a statement; pasted, with statements behind it; pasted, and more than is read at once.
        let long = [b"\x1b[200~\xe4\n".as_slice(), &b"select 'be' || 'hind';\n".repeat(200), b"\x1b[201~\r"]
            .concat();
        for wrong in [
            b"select 1,\rselect '\xe4'; select 'be' || 'hind';\rselect 'be' || 'hind';\r".as_slice(),
            b"\x1b[200~select '\xe4\nselect 'be' || 'hind';\n\x1b[201~\r",
            &long,
        ] {
            terminal.expect("shop=*> ");
            terminal.press(wrong);
            terminal.expect("gannet: this line is not valid UTF-8\r\n");
        }
        terminal.expect("shop=*> ");
        terminal.press("select 'go' || 'ing on';\r");
        terminal.expect("going on");
        terminal.expect("shop=*> ");
        terminal.press("rollback;\rcopy fruit from stdin;\r");
        terminal.expect(">> ");
        terminal.press(b"fig\t1\r\xe4\t2\r");
        terminal.expect("COPY from stdin: this line is not valid UTF-8");
        terminal.expect("shop=> ");
        terminal.press("select 'fruit: ' || count(*) from fruit;\r");
        terminal.expect("fruit: 0");
        terminal.expect("shop=> ");
        terminal.press("\\q\r");
        assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
        assert!(!terminal.passed.contains("behind"), "{}", terminal.passed);
    }
}

#[test]
fn a_signal_ends_a_conversation_in_good_order() {
    for place in places() {
        for (signal, keys, seen) in [
            ("-TERM", "", ""),
            ("-HUP", "", ""),
            ("-TERM", "\x1b[200~half of what is pasted", ""),
            ("-TERM", "copy fruit from stdin;\r", ">> "),
            (
                "-HUP",
                "rollback; select pg_sleep(600); insert into fruit values ('plum', 2);\r",
                "pg_sleep(600);",
            ),
        ] {
            let mut terminal = Terminal::start(place.path());
            terminal.expect("shop=> ");
            terminal.press("begin; insert into fruit values ('fig', 1);\r");
            terminal.expect("shop=*> ");
            terminal.press(keys);
            terminal.expect(seen);
            send(signal, &terminal.child);
            assert_eq!(terminal.child.wait().unwrap().code(), Some(130), "{signal} {keys}");
            assert!(terminal.is_as_found(), "{signal} {keys}");
            // Nor are pastes bracketed any more.
            terminal.expect("\x1b[?2004l");
            let Place::File(folder) = &place else { continue };
            let stat = ["kv", "shop.gnt", "stat", "--format", "csv"];
            assert!(good(folder.path(), &stat, "").contains("restart.crashed,false\n"), "{signal} {keys}");
        }
        let count = ["sql", "shop.gnt", "--format", "csv", "-c", "select count(*) from fruit"];
        assert_eq!(good(place.path(), &count, ""), "count\n0\n");
    }
}

#[test]
fn a_signal_ends_a_conversation_that_cannot_hear() {
    let place = &places()[0];
    // A server that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("postgres://joe@127.0.0.1:{}/shop", silent.local_addr().unwrap().port());
    let mut terminal = Terminal::start_as(place.path(), "xterm", &address);
    let _connected = silent.accept().unwrap();
    send("-TERM", &terminal.child);
    assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
    // A terminal that cannot edit lines.
    let mut terminal = Terminal::start_as(place.path(), "dumb", "shop.gnt");
    terminal.expect("shop=> ");
    terminal.press("begin; insert into fruit values ('fig', 1);\n");
    terminal.expect("shop=*> ");
    send("-TERM", &terminal.child);
    assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
    let count = ["sql", "shop.gnt", "--format", "csv", "-c", "select count(*) from fruit"];
    assert_eq!(good(place.path(), &count, ""), "count\n0\n");
}

#[test]
fn a_mark_of_byte_order_is_no_part_of_a_script() {
    let place = &places()[0];
    let here = place.path();
    let script = "\u{feff}select 1 as a;\nselect '\u{feff}' = U&'\\FEFF' as b;\n";
    std::fs::write(here.join("s.sql"), script).unwrap();
    let arguments = ["sql", "shop.gnt", "--format", "csv", "-f", "s.sql", "-f", "s.sql"];
    assert_eq!(good(here, &arguments, ""), "a\n1\nb\nt\na\n1\nb\nt\n");
    assert_eq!(good(here, &arguments[..4], &format!("{script}\\i s.sql\n")), "a\n1\nb\nt\na\n1\nb\nt\n");
}

#[test]
fn rows_that_did_not_come_to_their_file_are_not_counted() {
    for place in places() {
        let script = "insert into fruit values ('fig', 1);\n\\copy fruit to /dev/full\n";
        let output = run(place.path(), &["sql", "shop.gnt"], script.as_bytes());
        assert_eq!((output.status.code(), stdout(&output)), (Some(3), "INSERT 0 1\n"));
        let told = "gannet: cannot write to \"/dev/full\": No space left on device (os error 28)\n\
                    gannet: \"/dev/full\" has only a part of the rows\n";
        assert_eq!(stderr(&output), told);
    }
}

/// Whoever took the failure for the statement's did it again.
#[cfg(target_os = "linux")]
#[test]
fn a_committed_row_was_told_of_as_a_failure_where_output_was_full() {
    for place in places() {
        let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
        let said = |statement: &str| {
            let output =
                gannet(place.path(), &["sql", "shop.gnt", "-c", statement]).stdout(full()).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            stderr(&output).to_owned()
        };
        let full_output = "gannet: cannot write to standard output: No space left on device (os error 28)";
        let insert =
            "insert into fruit select 'fig', g from generate_series(1, 5000) g returning repeat('x', 100)";
        assert_eq!(said(insert), format!("{full_output}; the statement is done\n"));
        assert_eq!(
            said("insert into fruit values ('fig', 0)"),
            format!("{full_output}; the statement is done\n")
        );
        assert_eq!(said("select 1"), format!("{full_output}\n"));
        assert_eq!(said("copy fruit to stdout"), format!("{full_output}\n"));
        let count = "select count(*) from fruit where name = 'fig'";
        assert_eq!(
            good(place.path(), &["sql", "shop.gnt", "--format", "csv", "-c", count], ""),
            "count\n5001\n"
        );
    }
}

#[test]
fn a_file_was_emptied_for_a_statement_that_fails() {
    for place in places() {
        let file = place.path().join("kept.csv");
        let kept = || std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, "kept\n").unwrap();
        for script in ["\\copy nowhere to kept.csv\n", "\\o kept.csv\nselect 1 / 0;\n"] {
            let told = bad(place.path(), &["sql", "shop.gnt"], script.as_bytes(), 3);
            assert!(told.starts_with("ERROR:  ") && !told.contains("a part of the rows"), "{told}");
            assert_eq!(kept(), "kept\n", "{script}");
        }
        let late = "\\copy (select 1 / (5000 - g) from generate_series(1, 5000) g) to kept.csv\n";
        let told = bad(place.path(), &["sql", "shop.gnt"], late.as_bytes(), 3);
        assert!(told.starts_with("ERROR:  22012"), "{told}");
        assert!(told.ends_with("gannet: \"kept.csv\" has only a part of the rows\n"), "{told}");
        let script = "\\o kept.csv\ninsert into fruit values ('fig', 1);\n";
        good(place.path(), &["sql", "shop.gnt", "-q"], script);
        assert_eq!(kept(), "");
        good(
            place.path(),
            &["sql", "shop.gnt", "-q", "--format", "csv"],
            "\\o kept.csv\nselect 1 as a;\nselect 2 as b;\n",
        );
        assert_eq!(kept(), "a\n1\nb\n2\n");
        let told = bad(place.path(), &["sql", "shop.gnt"], b"\\copy fruit to nowhere/x.csv\n", 3);
        assert!(told.starts_with("gannet: cannot write to \"nowhere/x.csv\": No such file"), "{told}");
    }
}

#[test]
fn options_that_an_address_has_no_use_for_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address = "postgres://nobody@127.0.0.1:1/x";
    for option in ["--memory=64MiB", "--io=direct", "--wal-limit=1GiB", "--archive-to=logs"] {
        let told = bad(folder.path(), &["sql", address, option], b"", 2);
        assert!(told.contains("is for a file that this process opens"), "{told}");
    }
    // The environment is meant for other commands, too.
    assert!(bad(folder.path(), &["sql", address], b"", 2).contains("cannot connect"));
    assert!(bad(folder.path(), &["sql", address, "--create"], b"", 2).contains("gannet serve NAME.gnt"));
}

#[test]
fn a_statement_nested_deeply_is_refused_soon() {
    let place = &places()[0];
    let deep = format!("select {}1{};\n", "(".repeat(100_000), ")".repeat(100_000));
    // Where each parenthesis is looked at anew for all others, this takes minutes.
    let told = bad(place.path(), &["sql", "shop.gnt", "--memory", "256MiB"], deep.as_bytes(), 3);
    assert!(told.starts_with("ERROR:  54001") && told.contains("LINE 1: ...(((("), "{told}");
}
