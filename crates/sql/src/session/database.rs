//! An open database: the store, the definitions, the plans, and who is connected.
//!
//! # Guarantees
//! 1. A view and the catalog taken with it by [`Shared::snapshot`] agree: both are from before a change of definitions, or both
//!    from after it. Whoever commits such a change holds the catalog's lock exclusively from before the commit until
//!    the new catalog is in its place; whoever takes both holds it shared.
//! 2. Changes of definitions by different sessions are merged object by object; that two of them do not change one object is
//!    seen to by the locks on the objects' entries.

use super::activity::Live;
use super::cache::PlanCache;
use super::interrupt::{Interrupt, Reason, Timer};
use super::{PlannerSettings, Session};
use crate::catalog::{BOOTSTRAP_ROLE, Catalog, Numbers, Oid, Role, storage};
use crate::{Error, Result, SqlState};
use gannet_base::sync::{Mutex, RwLock};
use gannet_store::{CreateOptions, Engine, OpenOptions, Transaction, TransactionOptions, View};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Numbers of sessions, over all databases of the process.
static NEXT_PID: AtomicI32 = AtomicI32::new(1);

/// An open database. Clones are handles to the same one.
///
/// ```
/// use gannet_sql::session::Rows;
/// use gannet_sql::Database;
/// use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let engine = Engine::new(&EngineOptions { memory: 64 << 20, ..EngineOptions::default() })?;
/// let path = folder.path().join("shop.gnt");
/// let database = Database::create(&engine, &path, &CreateOptions::default(), &OpenOptions::default(), "gannet")?;
/// let mut session = database.session("gannet")?;
/// let mut rows = Rows::default();
/// session.run("create table fruit (name text primary key, price numeric(6, 2))", &mut rows)?;
/// session.run("insert into fruit values ('apple', 1.2), ('pear', 0.9)", &mut rows)?;
/// session.run("select name, price from fruit order by price", &mut rows)?;
/// assert_eq!(rows.text(), [["pear", "0.90"], ["apple", "1.20"]]);
/// drop(session);
/// database.close()?;
/// # Ok::<(), gannet_sql::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Database(pub(super) Arc<Shared>);

/// What the sessions of a database share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) numbers: Numbers,
    pub(super) store: Arc<gannet_store::Database>,
    pub(super) plans: PlanCache,
    pub(super) timer: Timer,
    /// Rows that statements have written, committed or not: by it plans know when to look at their tables again.
    pub(super) rows_written: AtomicU64,
    catalog: RwLock<Arc<Catalog>>,
    settings: Mutex<Vec<SettingReport>>,
    /// Apart from the rest: the store's thread looks at them, and is not to be the last to hold the store.
    sessions: Arc<Mutex<BTreeMap<i32, SessionInfo>>>,
    /// The databases that are open with it, itself included.
    neighbours: Mutex<Vec<Weak<Shared>>>,
}

/// A setting of the process that has the database open, as `gannet_settings` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingReport {
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub requested: String,
    /// What is in effect.
    pub effective: String,
    /// Where the request came from: default, file, environment or flag.
    pub source: String,
    /// Why the two differ, or what else is to be said.
    pub reason: String,
    /// Whether it says where something lies on the server's machine: only superusers see it then.
    pub is_place: bool,
}

/// A session, as views show it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Its number.
    pub pid: i32,
    /// Name of its role.
    pub user: String,
    /// Number of its role, within its database.
    pub role: Oid,
    /// When it began, in microseconds since 2000-01-01 UTC.
    pub started: i64,
    /// What changes while it goes on.
    pub activity: Arc<Live>,
    /// Ends its statements.
    pub interrupt: Interrupt,
}

/// Microseconds from 1970 to 2000.
pub(super) const EPOCH_SHIFT_US: i64 = 946_684_800_000_000;

/// Microseconds since 2000-01-01 UTC.
pub(crate) fn now() -> i64 {
    gannet_base::clock::unix_micros() as i64 - EPOCH_SHIFT_US
}

/// A time in microseconds since 1970-01-01 UTC as one since 2000-01-01.
pub(crate) fn from_unix(unix_us: u64) -> i64 {
    unix_us as i64 - EPOCH_SHIFT_US
}

/// The other way round; `None` where it is before that, or infinite.
pub(super) fn to_unix(time: i64) -> Option<u64> {
    time.checked_add(EPOCH_SHIFT_US).and_then(|time| u64::try_from(time).ok())
}

/// As [`now`], some milliseconds late at most, for a fraction of the cost.
pub(super) fn now_coarse() -> i64 {
    gannet_base::clock::unix_micros_coarse() as i64 - EPOCH_SHIFT_US
}

impl Database {
    /// Creates a database; see [`Engine::create`]. `owner` is the role that may do everything in it.
    pub fn create(
        engine: &Engine,
        path: &Path,
        create: &CreateOptions,
        open: &OpenOptions,
        owner: &str,
    ) -> Result<Self> {
        Self::with(engine.create(path, create, open)?, path, owner)
    }

    /// Opens a database; see [`Engine::open`]. One that was used as a key-value store only gets what SQL needs, with
    /// `owner` as the role that may do everything.
    pub fn open(engine: &Engine, path: &Path, open: &OpenOptions, owner: &str) -> Result<Self> {
        Self::with(engine.open(path, open)?, path, owner)
    }

    /// Of one that is open; see [`Database::open`].
    pub fn with(store: gannet_store::Database, path: &Path, owner: &str) -> Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut transaction = store.begin(TransactionOptions::default());
        let catalog = if storage::is_sql(&transaction.view())? {
            storage::load(&transaction.view())?
        } else {
            storage::bootstrap(&mut transaction, owner)?;
            transaction.commit()?;
            storage::load(&store.begin(TransactionOptions::default()).view())?
        };
        let store = Arc::new(store);
        let numbers = Numbers::open(Arc::clone(&store), &catalog)?;
        let plans = PlanCache::new(store.engine().budget().clone());
        let database = Database(Arc::new(Shared {
            name,
            numbers,
            plans,
            timer: Timer::default(),
            rows_written: AtomicU64::new(0),
            catalog: RwLock::new(Arc::new(catalog)),
            settings: Mutex::default(),
            sessions: Arc::default(),
            neighbours: Mutex::default(),
            store,
        }));
        let sessions = Arc::clone(&database.0.sessions);
        database.0.store.on_snapshot_limit(move |holder| {
            for session in sessions.lock().values() {
                session.interrupt.end_transaction(holder.number);
            }
        });
        Ok(database)
    }

    /// Its name: the file's, without extension.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The storage engine's side of it.
    pub fn store(&self) -> &gannet_store::Database {
        &self.0.store
    }

    /// What is defined now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.0.catalog.read())
    }

    /// The role of this name, for whoever asks for a password.
    pub fn role(&self, name: &str) -> Option<Arc<Role>> {
        self.catalog().roles.values().find(|role| role.name == name).cloned()
    }

    /// The role that the owner of the file has.
    pub fn owner(&self) -> String {
        self.catalog()
            .roles
            .get(&BOOTSTRAP_ROLE)
            .map_or_else(|| "gannet".to_owned(), |role| role.name.clone())
    }

    /// Begins a session of a role; 28000 when there is no such role, or it may not log in.
    pub fn session(&self, user: &str) -> Result<Session> {
        match self.role(user) {
            Some(role) => self.session_of_role(&role),
            None => Err(no_role(user)),
        }
    }

    fn session_of_role(&self, role: &Role) -> Result<Session> {
        if !role.login {
            return Err(Error::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("role \"{}\" is not permitted to log in", role.name),
            ));
        }
        Session::new(self.clone(), role)
    }

    /// Begins another session of a session's role: 28000 as in [`session`](Self::session).
    pub(super) fn session_as(&self, role: Oid, user: &str) -> Result<Session> {
        let role = self.catalog().roles.get(&role).cloned().ok_or_else(|| no_role(user))?;
        self.session_of_role(&role)
    }

    /// Whoever has opened the database says which settings are in effect.
    pub fn publish_settings(&self, reports: Vec<SettingReport>) {
        *self.0.settings.lock() = reports;
    }

    /// The settings of the process that has the database open.
    pub fn process_settings(&self) -> Vec<SettingReport> {
        self.0.settings.lock().clone()
    }

    /// The sessions.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.0.sessions.lock().values().cloned().collect()
    }

    /// Whoever has several databases open says which: they show each other's sessions.
    pub fn publish_neighbours(&self, databases: &[Database]) {
        *self.0.neighbours.lock() = databases.iter().map(|database| Arc::downgrade(&database.0)).collect();
    }

    /// The databases that are open with it, itself included, by name.
    pub fn neighbours(&self) -> Vec<Database> {
        let known = self.0.neighbours.lock().clone();
        let mut databases: Vec<Database> = known.iter().filter_map(Weak::upgrade).map(Database).collect();
        if !databases.iter().any(|database| Arc::ptr_eq(&database.0, &self.0)) {
            databases.push(self.clone());
        }
        databases.sort_by(|a, b| a.name().cmp(b.name()));
        databases
    }

    /// The session of this number, with the database that it is in: this one or one that is open with it.
    pub fn find_session(&self, pid: i32) -> Option<(Database, SessionInfo)> {
        self.neighbours().into_iter().find_map(|database| {
            let session = database.0.sessions.lock().get(&pid).cloned()?;
            Some((database, session))
        })
    }

    /// The session whose transaction the store knows by this number.
    pub fn session_of(&self, number: u64) -> Option<SessionInfo> {
        let sessions = self.0.sessions.lock();
        sessions.values().find(|session| session.interrupt.transaction_number() == Some(number)).cloned()
    }

    /// Ends the sessions' statements, now and later: the server goes down.
    pub fn shut_down_sessions(&self) {
        for session in self.sessions() {
            session.interrupt.interrupt(Reason::Shutdown);
        }
    }

    /// It is about to be closed: nobody who writes waits for a checkpoint any more.
    pub fn stop_waiting(&self) {
        self.0.store.stop_waiting();
    }

    /// Closes the database. Every session has to be gone: 55006.
    pub fn close(self) -> Result<()> {
        self.close_by(|store| store.close())
    }

    /// The same; and how the archive was doing when all was over, if there is one.
    pub fn close_reporting(self) -> Result<Option<gannet_store::ArchiveReport>> {
        let mut archive = None;
        self.close_by(|store| {
            archive = store.close_reporting()?;
            Ok(())
        })?;
        Ok(archive)
    }

    /// The same, with a limit of its own to the time in which pages are written home.
    pub fn close_within(self, limit: Duration) -> Result<()> {
        self.close_by(|store| store.close_within(limit))
    }

    fn close_by(self, close: impl FnOnce(gannet_store::Database) -> gannet_store::Result<()>) -> Result<()> {
        let shared = Arc::try_unwrap(self.0).map_err(|shared| {
            let count = shared.sessions.lock().len();
            Error::new(
                SqlState::OBJECT_IN_USE,
                format!("database \"{}\" is being used by {count} sessions", shared.name),
            )
        })?;
        let Shared { numbers, store, .. } = shared;
        store.stop_waiting();
        numbers.close()?;
        drop(numbers);
        let store = Arc::try_unwrap(store).map_err(|_| Error::internal("the store is still used"))?;
        Ok(close(store)?)
    }
}

/// Whose role is gone, or never was there.
pub(super) fn no_role(name: &str) -> Error {
    let message = format!("role \"{name}\" does not exist");
    Error::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message)
}

impl Shared {
    /// What a transaction sees from now on, and the definitions that go with it.
    pub(super) fn snapshot(&self, transaction: &mut Transaction) -> (View, Arc<Catalog>) {
        let catalog = self.catalog.read();
        (transaction.view(), Arc::clone(&catalog))
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Whether these are the definitions in force.
    pub(super) fn is_current(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog.read(), catalog)
    }

    /// Commits a transaction that has changed definitions: `private` was made of `base`.
    pub(super) fn commit_definitions(
        &self,
        transaction: Transaction,
        base: &Catalog,
        private: &Catalog,
    ) -> Result<()> {
        let mut catalog = self.catalog.write();
        transaction.commit()?;
        let mut merged = (**catalog).clone();
        merged.adopt(base, private);
        merged.version += 1;
        let version = merged.version;
        *catalog = Arc::new(merged);
        drop(catalog);
        self.plans.follow(version);
        // What is left of them goes at the next start; the definitions are committed all the same.
        let _ = self.numbers.forget(base, private);
        self.trim_numbers();
        Ok(())
    }

    /// Lets go of counters that no definition in force has: behind a change of definitions, or its rollback.
    pub(super) fn trim_numbers(&self) {
        // Held meanwhile, so that nothing which is let go of comes into force.
        let catalog = self.catalog.read();
        self.numbers.trim(&catalog);
    }

    pub(super) fn enter(&self, role: &Role, activity: &Arc<Live>, interrupt: &Interrupt) -> i32 {
        let pid = NEXT_PID.fetch_add(1, Ordering::Relaxed);
        let info = SessionInfo {
            pid,
            user: role.name.clone(),
            role: role.oid,
            started: now(),
            activity: Arc::clone(activity),
            interrupt: interrupt.clone(),
        };
        self.sessions.lock().insert(pid, info);
        pid
    }

    pub(super) fn leave(&self, pid: i32) {
        self.sessions.lock().remove(&pid);
    }

    /// About what the planner has to reckon with: memory for pages, and for an operator.
    pub(super) fn planner_settings(&self) -> PlannerSettings {
        let engine = self.store.engine();
        let cache = engine.budget().used_for(gannet_base::memory::Purpose::Pool);
        PlannerSettings::new(cache, engine.work_share())
    }
}
