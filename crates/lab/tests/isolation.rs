//! Isolation on the wire: a server in this process, judged by the checker and by PostgreSQL's outcomes of the classic anomalies.
//!
//! `ISOLATION_SECONDS=60` runs rounds with fresh seeds for that long, and prints them; `ISOLATION_SEED=4711` runs one round with
//! that seed. What sessions want is a function of the seed, how they meet is not.

use gannet_lab::isolation::check;
use gannet_lab::isolation::client::Client;
use gannet_lab::isolation::history::{History, Level};
use gannet_lab::isolation::run::{self, Levels, Options, Place};
use gannet_lab::isolation::script;
use gannet_lab::isolation::workload::Keys;
use gannet_server::frontend::{Address, Failure, Host, SslMode};
use gannet_server::{Server, ServerOptions};
use gannet_sql::Database;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

const PORT: u16 = 5513;
/// How long the server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A server of one database, over a Unix socket.
struct Fixture {
    server: Option<Server>,
    address: Address,
    _engine: Engine,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory: 64 << 20, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        let path = folder.path().join("isolation.gnt");
        let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
        Database::create(&engine, &path, &create, &OpenOptions::default(), "owner").unwrap().close().unwrap();
        let options = ServerOptions {
            paths: vec![path],
            listen: Vec::new(),
            sockets: Vec::new(),
            port: PORT,
            insecure_trust: false,
            tls: None,
            max_connections: 20,
            open: OpenOptions::default(),
            owner: "owner".to_owned(),
        };
        let server = Server::start(&engine, &options).unwrap();
        let address = Address {
            host: Host::Unix(server.sockets()[0].parent().unwrap().to_owned()),
            port: PORT,
            user: "owner".to_owned(),
            password: None,
            database: "isolation".to_owned(),
            ssl: SslMode::Disable,
            root_certificate: None,
            application: None,
            options: None,
            connect_timeout: None,
        };
        Fixture { server: Some(server), address, _engine: engine, _folder: folder }
    }

    fn round(&self, seed: u64, levels: Levels) -> History {
        let keys = Keys { count: 4, replace: true };
        let options = Options { seed, sessions: 8, transactions: 600, keys, levels, crashes: 0 };
        run::round(&self.address, &options).unwrap_or_else(|error| panic!("{}{error:#}", replay(seed)))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let stopped = server.stop(STOP_LIMIT);
            if !std::thread::panicking() {
                stopped.unwrap();
            }
        }
    }
}

/// The line that runs a seed again.
fn replay(seed: u64) -> String {
    format!("ISOLATION_SEED={seed} cargo test -p gannet-lab --test isolation\n")
}

/// Judges a round; how many of its transactions were committed.
#[track_caller]
fn clean(seed: u64, history: &History) -> usize {
    let report = check::check(history).unwrap();
    assert!(report.anomalies.is_empty(), "{}{}", replay(seed), report.explain(history, 5));
    report.committed
}

const LEVELS: [Levels; 3] =
    [Levels::Only(Level::ReadCommitted), Levels::Only(Level::RepeatableRead), Levels::Mixed];

#[test]
fn concurrent_sessions_are_isolated() {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let fixture = Fixture::new();
    let round =
        |seed: u64| LEVELS.iter().map(|levels| clean(seed, &fixture.round(seed, *levels))).sum::<usize>();
    if let Some(seed) = number("ISOLATION_SEED") {
        println!("seed {seed}: {} transactions", round(seed));
    } else if let Some(seconds) = number("ISOLATION_SECONDS") {
        let first = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64 % 1_000_000_000;
        println!("seeds from {first}");
        let began = Instant::now();
        let (mut seed, mut committed) = (first, 0);
        while seed == first || began.elapsed().as_secs() < seconds {
            committed += round(seed);
            seed += 1;
        }
        println!("{} seeds, {committed} transactions in {:.0?}", seed - first, began.elapsed());
    } else {
        assert!((1..=2).map(round).sum::<usize>() > 500);
    }
}

/// Rounds, until the checker finds fault with one: it is not blind to what these transactions do.
fn found(levels: Levels, claimed: Level) -> bool {
    let fixture = Fixture::new();
    (1..=50).any(|seed| {
        let history = fixture.round(seed, levels);
        clean(seed, &history);
        !check::check_as(&history, Some(claimed)).unwrap().anomalies.is_empty()
    })
}

#[test]
fn a_server_that_gives_read_committed_for_repeatable_read_is_found_out() {
    assert!(found(Levels::Only(Level::ReadCommitted), Level::RepeatableRead));
}

#[test]
fn a_server_that_gives_repeatable_read_for_serializable_is_found_out() {
    assert!(found(Levels::Only(Level::RepeatableRead), Level::Serializable));
}

#[test]
fn classic_anomalies_end_as_in_postgresql() {
    let fixture = Fixture::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/anomalies");
    let (played, wrong) = script::compare(&folder, &|| fixture.address.connect()).unwrap();
    assert!(played > 50 && wrong.is_empty(), "{played} played\n{wrong}");
}

/// Neither at BEGIN, nor by SET, nor as a default is it taken for something weaker.
#[test]
fn serializable_is_refused_by_name() {
    let fixture = Fixture::new();
    for sql in [
        "begin isolation level serializable",
        "start transaction isolation level serializable",
        "set session characteristics as transaction isolation level serializable",
        "set default_transaction_isolation = 'serializable'",
        "begin; set transaction isolation level serializable",
        "begin; set transaction_isolation = 'serializable'",
    ] {
        let mut client: Client = fixture.address.connect().unwrap();
        match client.run(sql) {
            Err(Failure::Server(report)) => {
                let words = (&*report.state, &*report.message);
                assert_eq!(words, ("0A000", "isolation level SERIALIZABLE is not supported"), "{sql}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
}
