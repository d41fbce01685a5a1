//! A server with databases in a temporary folder.

use crate::client::Wire;
use gannet_server::frontend::{Address, Connection};
use gannet_server::{Server, ServerOptions};
use gannet_sql::Database;
use gannet_sql::session::Rows;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Memory of a test's engine, in bytes.
const MEMORY: u64 = 64 << 20;
/// How long an ending server waits for its connections.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Tests run side by side, except those that measure the process's memory.
static TURN: RwLock<()> = RwLock::new(());

/// Whoever lives with others, or alone.
enum Turn {
    Shared(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

pub(crate) struct Fixture {
    server: Option<Server>,
    pub(crate) engine: Engine,
    pub(crate) folder: tempfile::TempDir,
    _turn: Turn,
}

/// A database of this name, with what `sql` makes.
pub(crate) fn create(engine: &Engine, folder: &Path, name: &str, sql: &str) -> PathBuf {
    let path = folder.join(format!("{name}.gnt"));
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let database = Database::create(engine, &path, &create, &OpenOptions::default(), "owner").unwrap();
    let mut session = database.session("owner").unwrap();
    session.run(sql, &mut Rows::default()).unwrap();
    drop(session);
    database.close().unwrap();
    path
}

impl Fixture {
    /// A server of database "shop".
    pub(crate) fn new() -> Self {
        Fixture::with("", |_| {})
    }

    /// The same, with definitions and other options.
    pub(crate) fn with(sql: &str, change: impl FnOnce(&mut ServerOptions)) -> Self {
        Fixture::of(&["shop"], sql, MEMORY, change)
    }

    pub(crate) fn of(
        names: &[&str],
        sql: &str,
        memory: u64,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let turn = Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner));
        Self::start(turn, names, sql, memory, change)
    }

    /// A server of database "shop" while no other test runs.
    pub(crate) fn alone(sql: &str) -> Self {
        let turn = Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner));
        Self::start(turn, &["shop"], sql, MEMORY, |_| {})
    }

    fn start(
        turn: Turn,
        names: &[&str],
        sql: &str,
        memory: u64,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { memory, temp_folder: Some(folder.path().join("temp")) };
        let engine = Engine::new(&options).unwrap();
        for name in names {
            create(&engine, folder.path(), name, sql);
        }
        let mut options = ServerOptions {
            paths: vec![folder.path().to_owned()],
            listen: Vec::new(),
            sockets: Vec::new(),
            port: 5513,
            insecure_trust: false,
            tls: None,
            max_connections: 20,
            open: OpenOptions::default(),
            owner: "owner".to_owned(),
        };
        change(&mut options);
        let server = Server::start(&engine, &options).unwrap();
        Fixture { server: Some(server), engine, folder, _turn: turn }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.server().sockets()[0]
    }

    /// A connection over the Unix socket that has said nothing.
    pub(crate) fn raw(&self) -> Wire {
        Wire::unix(self.socket())
    }

    /// A session on database "shop".
    pub(crate) fn connect(&self) -> Wire {
        self.connect_to("shop")
    }

    pub(crate) fn connect_to(&self, database: &str) -> Wire {
        let mut wire = self.raw();
        wire.start(&[("user", "owner"), ("database", database)]).good();
        wire
    }

    /// The same by our own client.
    pub(crate) fn frontend(&self) -> Connection {
        let text = format!("host={} dbname=shop user=owner", self.socket().parent().unwrap().display());
        let port = self.socket().extension().unwrap().to_str().unwrap().to_owned();
        let address = Address::parse(&format!("{text} port={port}"), &|_| None, "owner").unwrap();
        Connection::open(&address, "test").unwrap()
    }

    /// Ends a statement, if the secret is right.
    pub(crate) fn cancel(&self, pid: i32, secret: i32) {
        let mut wire = self.raw();
        let code = 80_877_102_i32;
        let mut bytes = 16_i32.to_be_bytes().to_vec();
        for word in [code, pid, secret] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        wire.send(&bytes);
        assert_eq!(wire.read(), None, "a cancel request has no answer");
    }

    /// Ends the server.
    pub(crate) fn stop(&mut self) -> gannet_server::Result<()> {
        self.take().stop(STOP_LIMIT)
    }

    /// The server, for who ends it in another way.
    pub(crate) fn take(&mut self) -> Server {
        self.server.take().unwrap()
    }

    /// The only value of a query in a session of its own.
    pub(crate) fn value(&self, sql: &str) -> String {
        self.connect().run(sql).one()
    }

    /// Waits until a query gives this value.
    #[track_caller]
    pub(crate) fn wait_for(&self, sql: &str, value: &str) {
        let began = Instant::now();
        let mut wire = self.connect();
        loop {
            let found = wire.run(sql).one();
            if found == value {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{sql}: {found}, not {value}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until so many sessions run a statement that begins like this.
    #[track_caller]
    pub(crate) fn wait_until_running(&self, begin: &str) {
        let sql = format!(
            "select count(*) from pg_stat_activity where state = 'active' and query like '{begin}%' and pid <> pg_backend_pid()"
        );
        self.wait_for(&sql, "1");
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
