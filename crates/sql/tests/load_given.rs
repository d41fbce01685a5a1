//! LOAD DATABASE FROM STDIN: what a client sends, or offers, loaded as a job of the server; and however the client, the job or a request ends it.

use gannet_sql::load::{Answer, Offer, Request};
use gannet_sql::session::{CommandTag, CopyFormat, Interrupt, Notice, OutputColumn, Reason, Rows, Session};
use gannet_sql::types::text::TextStyle;
use gannet_sql::{Client, Database, Error, Result, SqlState, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Site {
    folder: tempfile::TempDir,
    engine: Engine,
    database: Database,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(".").unwrap();
        let temp_folder = Some(folder.path().to_owned());
        let engine = Engine::new(&EngineOptions { memory: 64 << 20, temp_folder }).unwrap();
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        let path = folder.path().join("shop.gnt");
        let database = Database::create(&engine, &path, &create, &OpenOptions::default(), "gannet").unwrap();
        Site { folder, engine, database }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn session(&self) -> Session {
        self.database.session("gannet").unwrap()
    }

    fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        let mut rows = Rows::default();
        self.session().run(sql, &mut rows).unwrap();
        rows.text()
    }

    fn one(&self, sql: &str) -> String {
        self.ask(sql).remove(0).remove(0)
    }

    /// How the last load ended.
    fn state(&self) -> String {
        self.one(
            "select state from gannet_jobs where job = 'load' and id is not null order by id desc limit 1",
        )
    }

    fn load(&self, statement: &str, client: &mut dyn Client) -> Result<()> {
        self.session().run(statement, client)
    }

    fn offer(&self, name: &str) -> Offer {
        let path = self.path(name);
        let (disk, mode) = (self.engine.disk(), gannet_io::ModeRequest::Auto);
        match path.is_dir() {
            true => Offer::folder(&path, name, disk, mode),
            false => Offer::file(&path, name, disk, mode),
        }
    }
}

/// What a client does at a step.
type Step<'s> = Box<dyn FnMut(&mut Vec<u8>) -> Result<bool> + 's>;

/// A client of which only the data matters.
struct Sender<'s> {
    step: Step<'s>,
    offer: Option<Offer>,
    /// Bytes of the offer after which it says nothing any more.
    left: usize,
    begun: bool,
    tags: Vec<String>,
    notices: Vec<Notice>,
}

impl<'s> Sender<'s> {
    fn new(step: impl FnMut(&mut Vec<u8>) -> Result<bool> + 's) -> Self {
        let (tags, notices) = (Vec::new(), Vec::new());
        Sender { step: Box::new(step), offer: None, left: usize::MAX, begun: false, tags, notices }
    }

    /// Of these pieces.
    fn of(pieces: &[&str]) -> Self {
        let mut pieces: Vec<String> = pieces.iter().rev().map(|piece| (*piece).to_owned()).collect();
        Sender::new(move |data| {
            let piece = pieces.pop();
            Ok(piece.inspect(|piece| data.extend_from_slice(piece.as_bytes())).is_some())
        })
    }

    fn offering(offer: Offer) -> Self {
        Sender { offer: Some(offer), ..Sender::new(|_| Ok(true)) }
    }
}

impl Client for Sender<'_> {
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        panic!("what is sent is answered by no rows");
    }

    fn row(&mut self, _values: &[Value], _columns: &[OutputColumn], _style: &TextStyle) -> Result<()> {
        Ok(())
    }

    fn complete(&mut self, tag: &CommandTag) -> Result<()> {
        self.tags.push(tag.to_string());
        Ok(())
    }

    fn empty(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.notices.push(notice.clone());
        let detail = notice.error.fields().detail.clone().unwrap_or_default();
        if let (Some(offer), Ok(request)) = (&mut self.offer, serde_json::from_str(&detail)) {
            offer.ask(request);
        }
    }

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> Result<()> {
        self.begun = true;
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> Result<bool> {
        let before = data.len();
        let more = match &mut self.offer {
            Some(_) if self.left == 0 => say_nothing(),
            Some(offer) => offer.read(data),
            None => (self.step)(data)?,
        };
        self.left = self.left.saturating_sub(data.len() - before);
        Ok(more)
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> Result<()> {
        Ok(())
    }

    fn copy_write(&mut self, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn copy_out_end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A client that is silent, and stays.
fn say_nothing() -> bool {
    std::thread::sleep(Duration::from_millis(5));
    true
}

const SCRIPT: &str = "create table t (a int primary key, b text);\ncopy t from stdin;\n1\tone\n2\ttwo\n\\.\n";

#[test]
fn a_script_that_is_sent_is_loaded_as_a_job() {
    let site = Site::new();
    let mut client = Sender::of(&[&SCRIPT[..3], "", &SCRIPT[3..70], &SCRIPT[70..]]);
    site.load("load database from stdin verbose", &mut client).unwrap();
    assert_eq!(client.tags, ["LOAD DATABASE 2"]);
    let said = client.notices.last().unwrap().error.fields().detail.clone().unwrap();
    assert!(said.contains("\"built\":1") && said.contains("\"rows\":2"), "{said}");
    assert_eq!(site.ask("select a, b from t order by a"), [["1", "one"], ["2", "two"]]);
    let job = "select state || ' ' || about || ' ' || (bytes_read > 0) from gannet_jobs where job = 'load' and id is not null";
    assert_eq!(site.one(job), "done from the client true");
    // By the other protocol, too.
    let mut session = site.session();
    session.prepare("", "load database from stdin", &[]).unwrap();
    assert!(session.describe("").unwrap().columns().is_none());
    // A short row of a long script, in many pieces and in one.
    let rows: String = (0..60_000).map(|n| format!("{n}\trow {n}\n")).collect();
    let script = format!("create table u (a int primary key, b text);\ncopy u from stdin;\n{rows}\\.\n");
    for cut in [50, 1 << 14, script.len()] {
        site.ask("drop table if exists u");
        let mut rest = script.as_bytes();
        let mut client = Sender::new(|data| {
            let piece = rest.split_off(..rest.len().min(cut)).unwrap();
            data.extend_from_slice(piece);
            Ok(!piece.is_empty())
        });
        site.load("load database from stdin", &mut client).unwrap();
        assert_eq!(client.tags, ["LOAD DATABASE 60000"]);
        drop(client);
        assert_eq!(site.one("select sum(a) from u"), "1799970000");
    }
}

#[test]
fn what_is_bad_is_named_as_the_client_calls_it() {
    let site = Site::new();
    let bad = SCRIPT.replace("2\ttwo", "x\ttwo\n3\tthree");
    for (from, name) in [("stdin", "standard input"), ("stdin stream 'my pipe'", "my pipe")] {
        let error = site.load(&format!("load database from {from}"), &mut Sender::of(&[&bad])).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{name}:4: column a: ")), "{error}");
        assert_eq!(site.one("select count(*) from t"), "0");
        site.ask("drop table t");
    }
    let mut client = Sender::of(&[&bad]);
    site.load("load database from stdin on error skip", &mut client).unwrap();
    assert_eq!((client.tags, client.notices.len()), (vec!["LOAD DATABASE 2".to_owned()], 1));
    assert!(client.notices[0].error.to_string().contains("standard input:4: column a: "));
    let error = site.load("load database from stdin", &mut Sender::of(&[])).unwrap_err();
    assert!(error.to_string().contains("standard input has no statement"), "{error}");
    site.ask("drop table t");
    let cut = SCRIPT.replace("\\.\n", "");
    let error = site.load("load database from stdin", &mut Sender::of(&[&cut])).unwrap_err();
    assert!(error.to_string().contains("the data of COPY has no end"), "{error}");
}

#[test]
fn who_may_not_is_told_before_anything_is_sent() {
    let site = Site::new();
    site.ask("create role ann login");
    let mut client = Sender::of(&[SCRIPT]);
    let mut session = site.database.session("ann").unwrap();
    let error = session.run("load database from stdin", &mut client).unwrap_err();
    assert_eq!((error.state(), client.begun), (SqlState::INSUFFICIENT_PRIVILEGE, false));
    let mut session = site.session();
    session.run("begin", &mut Rows::default()).unwrap();
    let error = session.run("load database from stdin file 'x'", &mut client).unwrap_err();
    assert_eq!((error.state(), client.begun), (SqlState::ACTIVE_SQL_TRANSACTION, false));
}

/// Rows of a table without end.
fn endless(data: &mut Vec<u8>, begun: &mut bool) {
    if !std::mem::replace(begun, true) {
        data.extend_from_slice(b"create table whole (a int);\ncopy whole from stdin;\n1\n\\.\n");
        data.extend_from_slice(b"create table half (a int);\ncopy half from stdin;\n");
    }
    data.extend_from_slice("12345\n".repeat(2000).as_bytes());
}

/// Tables are whole, or have nothing.
fn check_and_drop(site: &Site) {
    for (table, rows) in [("half", "0"), ("whole", "1")] {
        if site.one(&format!("select count(*) from pg_tables where tablename = '{table}'")) == "1" {
            assert_eq!(site.one(&format!("select count(*) from {table}")), rows);
            site.ask(&format!("drop table {table}"));
        }
    }
}

/// Runs a load that has to end with this state, soon; gives the message.
fn ends(site: &Site, statement: &str, client: &mut dyn Client, state: &str, job: &str) -> String {
    let since = Instant::now();
    let mut session = site.session();
    let error = session.run(statement, client).unwrap_err();
    assert_eq!(error.state().0, state, "{error}");
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!(site.state(), job);
    check_and_drop(site);
    // The session goes on, and so does the next load.
    if state != "57P01" {
        session.run("select 1", &mut Rows::default()).unwrap();
    }
    error.to_string()
}

#[test]
fn a_client_that_gives_up_ends_the_job() {
    let site = Site::new();
    for (state, message) in [("57014", "COPY from stdin failed: enough"), ("08006", "unexpected EOF")] {
        let (mut begun, mut left) = (false, 50);
        let mut client = Sender::new(|data| {
            left -= 1;
            if left == 0 {
                return Err(Error::new(SqlState(state), message));
            }
            endless(data, &mut begun);
            Ok(true)
        });
        let said = ends(&site, "load database from stdin", &mut client, state, "cancelled");
        assert_eq!(said, message);
    }
}

#[test]
fn a_request_ends_the_job_whether_the_client_sends_or_not() {
    let site = Site::new();
    for sends in [true, false] {
        let mut session = site.session();
        let interrupt: Interrupt = session.interrupt();
        for (reason, state) in [(Reason::User, "57014"), (Reason::Shutdown, "57P01")] {
            let mut begun = false;
            let since = Instant::now();
            let mut client = Sender::new(|data| {
                if sends || !begun {
                    endless(data, &mut begun);
                } else {
                    std::thread::sleep(Duration::from_millis(20));
                }
                if since.elapsed() > Duration::from_millis(500) {
                    interrupt.interrupt(reason);
                }
                Ok(true)
            });
            let error = session.run("load database from stdin", &mut client).unwrap_err();
            assert_eq!(error.state().0, state, "{error}");
            assert!(since.elapsed() < Duration::from_secs(60));
            assert_eq!(site.state(), "cancelled");
            check_and_drop(&site);
        }
        let mut begun = false;
        let mut client = Sender::new(|data| {
            if sends || !begun {
                endless(data, &mut begun);
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(true)
        });
        let mut session = site.session();
        session.run("set statement_timeout = 500", &mut Rows::default()).unwrap();
        let error = session.run("load database from stdin", &mut client).unwrap_err();
        assert!(error.to_string().contains("statement timeout"), "{error}");
        check_and_drop(&site);
        // By the list of jobs.
        let (mut begun, mut asked) = (false, false);
        let since = Instant::now();
        let mut client = Sender::new(|data| {
            if sends || !begun {
                endless(data, &mut begun);
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
            if since.elapsed() > Duration::from_millis(500) && !std::mem::replace(&mut asked, true) {
                site.ask(
                    "select gannet_cancel_job(id) from gannet_jobs where job = 'load' and state = 'running'",
                );
            }
            Ok(true)
        });
        ends(&site, "load database from stdin", &mut client, "57014", "cancelled");
    }
}

#[test]
fn a_job_that_fails_does_not_wait_for_the_client() {
    let site = Site::new();
    let mut begun = false;
    let mut client = Sender::new(|data| {
        if !begun {
            data.extend_from_slice(b"nonsense;\n");
        }
        endless(data, &mut begun);
        Ok(true)
    });
    let said = ends(&site, "load database from stdin", &mut client, "42601", "failed");
    assert!(said.starts_with("standard input:1: "), "{said}");
}

#[test]
fn a_row_that_was_bad_was_told_of_only_when_a_silent_client_sent_more() {
    let site = Site::new();
    site.ask("create table kept (a int primary key); insert into kept values (1)");
    let rows = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("{number:063}\n")).collect()
    };
    let begin = "create table half (a int);\ncopy half from stdin;\n";
    for (script, state, told) in [
        (format!("{begin}x\n{}", rows(10..9400)), "22P04", "standard input:3: column a: "),
        (format!("copy kept from stdin;\n1\n{}", rows(10..9400)), "23505", "Key (a)=(1) already exists"),
    ] {
        let mut script = Some(script);
        let mut client = Sender::new(|data| {
            match script.take() {
                Some(script) => data.extend_from_slice(script.as_bytes()),
                None => return Ok(say_nothing()),
            }
            Ok(true)
        });
        let said = ends(&site, "load database from stdin", &mut client, state, "failed");
        assert!(said.contains(told), "{said}");
    }
    // Of a file of some MiB the end comes, which is short, and the first one.
    let script = format!("{begin}{}x\n{}\\.\n", rows(0..4000), rows(4000..3 << 14));
    std::fs::write(site.path("half.sql"), script).unwrap();
    let mut client = Sender { left: (1 << 20) + (256 << 10), ..Sender::offering(site.offer("half.sql")) };
    let said = ends(&site, "load database from stdin file 'half.sql'", &mut client, "22P04", "failed");
    assert!(said.contains("half.sql:4003: column a: "), "{said}");
}

/// A dump as a folder of csv, and one as a script of some MiB.
fn dumps(site: &Site) {
    site.ask(
        "create table big (id bigint primary key, note text);
         create table small (a int, b text);
         create index by_b on small (b);
         insert into big select n, repeat('x', 100) || n from generate_series(1, 30000) as n;
         insert into small select n, 'b' || n from generate_series(1, 100) as n;",
    );
    let to = std::path::absolute(site.path("folder")).unwrap();
    site.ask(&format!("dump database to '{}' csv", to.display()));
    let to = std::path::absolute(site.path("shop.sql")).unwrap();
    site.ask(&format!("dump database to '{}'", to.display()));
}

const COUNTS: &str = "select (select count(*) from big) || ' ' || (select sum(id) from big) || ' ' || (select count(*) from small)";

#[test]
fn files_that_are_offered_are_loaded_as_those_that_lie_there() {
    let site = Site::new();
    dumps(&site);
    for (source, from) in [("folder", "folder 'folder'"), ("shop.sql", "file 'shop.sql'")] {
        site.ask("drop table big; drop table small");
        let mut client = Sender::offering(site.offer(source));
        site.load(&format!("load database from stdin {from} verbose"), &mut client).unwrap();
        assert_eq!(client.tags, ["LOAD DATABASE 30100"]);
        let said = client.notices.last().unwrap().error.fields().detail.clone().unwrap();
        assert!(said.contains("\"built\":2"), "{said}");
        assert_eq!(site.one(COUNTS), "30000 450015000 100");
        assert_eq!(site.state(), "done");
    }
    assert!(site.ask("check database").is_empty());
}

#[test]
fn a_bad_row_of_an_offered_file_is_found_by_reading_it_again() {
    let site = Site::new();
    let rows: String =
        (0..200_000).map(|n| format!("{}\tsome text\n", if n == 150_000 { 7 } else { n })).collect();
    let script = format!("create table t (a int primary key, b text);\ncopy t from stdin;\n{rows}\\.\n");
    std::fs::write(site.path("bad.sql"), script).unwrap();
    let load = "load database from stdin file 'bad.sql'";
    let error = site.load(load, &mut Sender::offering(site.offer("bad.sql"))).unwrap_err();
    assert!(error.to_string().starts_with("bad.sql:150003: "), "{error}");
    assert_eq!((site.one("select count(*) from t"), site.state()), ("0".to_owned(), "failed".to_owned()));
    site.ask("drop table t");
    let mut client = Sender::offering(site.offer("bad.sql"));
    site.load(&format!("{load} on error skip"), &mut client).unwrap();
    assert_eq!(client.tags, ["LOAD DATABASE 199999"]);
}

#[test]
fn a_file_that_is_not_there_or_cannot_be_read_is_named() {
    let site = Site::new();
    dumps(&site);
    std::fs::remove_file(site.path("folder/big.csv")).unwrap();
    let error =
        site.load("load database from stdin folder 'folder'", &mut Sender::offering(site.offer("folder")));
    assert!(error.as_ref().unwrap_err().to_string().contains("big.csv"), "{error:?}");
    std::fs::remove_file(site.path("folder/manifest.json")).unwrap();
    let error =
        site.load("load database from stdin folder 'folder'", &mut Sender::offering(site.offer("folder")));
    assert!(error.unwrap_err().to_string().contains("is no complete dump: there is no manifest.json"));
    // It is another one than the client offers.
    let error = site.load("load database from stdin file 'x'", &mut Sender::offering(site.offer("shop.sql")));
    let error = error.unwrap_err();
    assert_eq!(error.state(), SqlState::IO_ERROR);
    assert!(error.to_string().contains("was not offered"), "{error}");
}

#[test]
fn a_client_that_does_not_answer_as_it_should_is_refused() {
    let site = Site::new();
    dumps(&site);
    let load = "load database from stdin file 'shop.sql'";
    let mut long = Sender::new(|data| {
        data.extend_from_slice(&[0, 255, 0, 0, 0, 1, 2, 3]);
        Ok(true)
    });
    let said = ends(&site, load, &mut long, "08P01", "cancelled");
    assert!(said.contains("longer than what was asked for"), "{said}");
    let said = ends(&site, load, &mut Sender::new(|_| Ok(false)), "08P01", "cancelled");
    assert!(said.contains("has ended its data"), "{said}");
    // It answers nothing at all, or only what it is asked first.
    for answers in [false, true] {
        let mut answered = !answers;
        let since = Instant::now();
        let mut client = Sender::new(|data| {
            if !std::mem::replace(&mut answered, true) {
                data.extend_from_slice(&Answer::Bytes(5_000_000_u64.to_be_bytes().to_vec()).encode());
            }
            std::thread::sleep(Duration::from_millis(20));
            if since.elapsed() > Duration::from_millis(500) {
                site.ask(
                    "select gannet_cancel_job(id) from gannet_jobs where job = 'load' and state = 'running'",
                );
            }
            Ok(true)
        });
        ends(&site, load, &mut client, "57014", "cancelled");
    }
    assert_eq!(serde_json::to_string(&Request::Len("x".to_owned())).unwrap(), "{\"len\":\"x\"}");
}

#[test]
fn a_load_goes_by_the_settings_of_whoever_asks_for_it() {
    let site = Site::new();
    let script = "create table t (d date, at timestamptz, b text);\n\
        copy t from stdin;\n01/02/2024\t2024-07-01 12:00\tx\n\\.\n\
        create table told (name text, value text);\n\
        insert into told select name, setting from pg_settings;\n\
        reset datestyle;\ninsert into t (d) values ('03/02/2024');\n";
    std::fs::write(site.path("shop.sql"), script).unwrap();
    let path = std::path::absolute(site.path("shop.sql")).unwrap();
    let by_path = format!("load database from '{}'", path.display());
    for load in [&*by_path, "load database from stdin"] {
        let mut session = site.session();
        session.state().set_at_start("DateStyle", "ISO, DMY").unwrap();
        let set = "set timezone = 'Europe/Berlin'; set lock_timeout = '7s'; set statement_timeout = '50s';
            set synchronous_commit = off; set application_name = 'me'; set snapshot_limit = '1h'";
        session.run(set, &mut Rows::default()).unwrap();
        let mut client = Rows::default();
        client.input = script.as_bytes().to_vec();
        let before = site.database.store().log_end();
        session.run(load, &mut client).unwrap();
        let durable = site.database.store().stats().durable_lsn;
        let rows = site.ask("select d, at at time zone 'UTC' from t order by d");
        assert_eq!(rows[0], ["2024-02-01", "2024-07-01 10:00:00"], "{load}");
        assert_eq!(rows[1][0], "2024-02-03");
        let told = site.ask(
            "select value from told where name in ('application_name', 'lock_timeout', 'snapshot_limit',
                'statement_timeout', 'synchronous_commit') order by name",
        );
        assert_eq!(told.concat(), ["me", "7000", "3600000", "0", "off"], "{load}");
        // Commits that have waited for nothing are durable when the load has ended.
        assert!(durable > before, "{durable} {before}");
        site.ask("drop table t; drop table told");
    }
}

#[test]
fn nothing_is_loaded_where_nothing_may_be_written() {
    let site = Site::new();
    let mut client = Sender::of(&[SCRIPT]);
    let mut session = site.session();
    for (before, load) in [
        ("set default_transaction_read_only = on", "load database from stdin"),
        ("set default_transaction_read_only = on", "load database from '/nowhere/x.sql'"),
        ("set default_transaction_read_only = off; begin read only", "load database from stdin"),
    ] {
        session.run(before, &mut Rows::default()).unwrap();
        let error = session.run(load, &mut client).unwrap_err();
        assert_eq!(error.state().0, "25006", "{before}: {error}");
        assert_eq!(error.to_string(), "cannot execute LOAD DATABASE in a read-only transaction");
    }
    assert!(!client.begun);
    for back in ["rollback", "set default_transaction_read_only = off"] {
        session.run(back, &mut Rows::default()).unwrap();
    }
    session.run("load database from stdin", &mut client).unwrap();
    // What a script sets for itself holds for the rows behind it, too.
    site.ask("drop table t");
    let script = SCRIPT.replace("copy t", "set default_transaction_read_only = on;\ncopy t");
    let error = site.load("load database from stdin", &mut Sender::of(&[&script])).unwrap_err();
    assert_eq!(error.state().0, "25006", "{error}");
}

#[test]
fn what_a_folder_has_in_front_is_read_within_bounds() {
    let site = Site::new();
    dumps(&site);
    let statement = "load database from stdin folder 'folder'";
    let load = || site.load(statement, &mut Sender::offering(site.offer("folder"))).unwrap_err().to_string();
    // A header whose quotes do not end.
    let path = site.path("folder/big.csv");
    let csv = std::fs::read_to_string(&path).unwrap();
    let open = format!("\"id,{}", "x\n".repeat(csv.len()));
    std::fs::write(&path, &open[..csv.len()]).unwrap();
    site.ask("drop table big; drop table small");
    let said = load();
    assert!(said.contains("the names of the columns have more than"), "{said}");
    // A manifest that is none.
    let manifest = std::fs::File::create(site.path("folder/manifest.json")).unwrap();
    manifest.set_len((64 << 20) + 1).unwrap();
    let said = load();
    assert!(said.contains("is no manifest of a dump: it has 67108865 bytes"), "{said}");
}
