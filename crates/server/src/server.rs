//! The server: its databases on one memory budget, its listeners, its connections, and its end.
//!
//! # Guarantees
//! 1. Nothing listens beyond loopback unless an address says so, and there every client needs a password.
//! 2. A folder of the Unix socket can be entered by its owner only; peers are trusted when they are the server's own user.
//! 3. [`Server::stop`] ends statements, tells clients, waits for the connections and closes the databases; what is acknowledged
//!    is durable whether or not it gets that far. Clients that do not read are cut off.
//! 4. A connection's place is given back however the connection ends.

use crate::connection::{Connection, Incoming};
use crate::message::Output;
use crate::settings::Report;
use crate::stream::{Socket, Stream};
use crate::tls;
use crate::watch::Watch;
use crate::{Error, Result, unix};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::thread::JoinHandle;
use gannet_base::units::format_size;
use gannet_io::ModeRequest;
use gannet_sql::session::{Interrupt, Reason, SESSION_STACK, SettingReport};
use gannet_sql::{Database, SqlState};
use gannet_store::{Engine, OpenOptions};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a listener looks whether it is to end.
const ACCEPT_PERIOD: Duration = Duration::from_millis(100);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Databases: files, or folders all of whose `.gnt` files are databases.
    pub paths: Vec<PathBuf>,
    /// Where TCP clients connect; none: no TCP.
    pub listen: Vec<SocketAddr>,
    /// Folders in which Unix sockets are made. One more is made beside each database, in [`socket_folder`].
    pub sockets: Vec<PathBuf>,
    /// Port in the names of the Unix sockets.
    pub port: u16,
    /// Lets clients on loopback in without password. Refused for any other address.
    pub insecure_trust: bool,
    /// Certificate and private key, PEM, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// How the databases are opened.
    pub open: OpenOptions,
    /// The user that runs the server: the role that may do everything in a database that has no roles yet. In a database
    /// without a role of that name, who connects as this user over a Unix socket is the database's owner.
    pub owner: String,
}

/// The folder in an archive that is the one of the database at `path`: it has its name.
pub fn archive_of(archive: &Path, path: &Path) -> Option<PathBuf> {
    path.file_stem().map(|name| archive.join(name))
}

impl ServerOptions {
    /// How the database at `path` is opened: each archives into a folder of its own, which has its name.
    pub fn opening(&self, path: &Path) -> OpenOptions {
        let archive = self.open.archive.as_deref().and_then(|folder| archive_of(folder, path));
        OpenOptions { archive, ..self.open.clone() }
    }

    /// Files that the server has to be able to have open at a time, sockets included, temporary files not.
    pub fn open_files(&self) -> usize {
        // A folder that cannot be read ends the start elsewhere.
        let databases: usize = self
            .paths
            .iter()
            .map(|path| if path.is_dir() { files_in(path).map_or(0, |files| files.len()) } else { 1 })
            .sum();
        // Each database has a socket of its own to listen at.
        most_connections(self.max_connections, true)
            + databases * (gannet_store::OPEN_FILES + 1)
            + self.listen.len()
            + self.sockets.len()
    }

    /// Whether a server can be made of them, as far as that is known before databases are opened.
    pub fn check(&self) -> Result<()> {
        check(self)?;
        load_tls(self).map(drop)
    }
}

fn load_tls(options: &ServerOptions) -> Result<Option<Arc<rustls::ServerConfig>>> {
    options.tls.as_ref().map(|(certificate, key)| tls::load(certificate, key)).transpose()
}

/// Connections that have no session (yet) are served up to so many more than sessions are permitted: they may want to cancel
/// statements.
const CONNECTIONS_ASIDE: usize = 16;
/// So many more over Unix sockets, where nobody comes but from this machine: however many come over TCP and say nothing, the owner gets in, and
/// can cancel.
const LOCAL_ASIDE: usize = 16;

/// Connections that there are at a time at most, sessions or not. Each has one descriptor.
fn most_connections(sessions: usize, is_local: bool) -> usize {
    2 * sessions + CONNECTIONS_ASIDE + if is_local { LOCAL_ASIDE } else { 0 }
}

/// How long a server that is dropped waits for its connections.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// A connection, from its first byte.
#[derive(Debug)]
struct Entered {
    socket: Arc<Socket>,
    /// Of its session, once it has one.
    interrupt: Option<Interrupt>,
}

/// What the connections share.
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) watch: Watch,
    /// See [`ServerOptions::owner`].
    pub(crate) owner: String,
    databases: Mutex<BTreeMap<String, Database>>,
    /// Connections, those being let in included.
    entered: Mutex<BTreeMap<u64, Entered>>,
    connection_ended: Condvar,
    next: AtomicU64,
    /// What a client has to know to cancel a session's statement.
    keys: Mutex<BTreeMap<i32, (u32, Interrupt)>>,
    /// Connections that have, or are about to have, a session.
    admitted: AtomicUsize,
    max_connections: usize,
    stopping: AtomicBool,
    random: SystemRandom,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn database(&self, name: &str) -> Option<Database> {
        self.databases.lock().get(name).cloned()
    }

    /// Makes the salts of users that do not exist in a database, or of one that does not exist: what is random, stays the same across starts, and is known to
    /// nobody who cannot look into the database.
    pub(crate) fn made_up_secret(&self, database: Option<&Database>) -> Vec<u8> {
        let id = |database: &Database| database.store().database_id().to_le_bytes();
        match database {
            Some(database) => id(database).to_vec(),
            None => self.databases.lock().values().flat_map(id).collect(),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Bytes nobody can guess.
    pub(crate) fn random<const N: usize>(&self) -> gannet_sql::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes).map_err(|_| {
            gannet_sql::Error::new(SqlState::INTERNAL_ERROR, "the system has no randomness to give")
        })?;
        Ok(bytes)
    }

    /// Ends a statement, for who knows its session's secret.
    pub(crate) fn cancel(&self, pid: i32, secret: u32) {
        let interrupt = match self.keys.lock().get(&pid) {
            Some((known, interrupt)) if *known == secret => interrupt.clone(),
            _ => return,
        };
        interrupt.interrupt(Reason::User);
    }

    /// Ends statements, and wakes connections that wait for their clients; those without session just end.
    fn end_all(&self) {
        for entered in self.entered.lock().values() {
            match &entered.interrupt {
                Some(interrupt) => interrupt.interrupt(Reason::Shutdown),
                None => entered.socket.close(),
            }
        }
    }

    /// Waits until all connections have ended; false when the time has passed before.
    fn wait_for_connections(&self, limit: Duration) -> bool {
        let began = gannet_base::clock::now();
        let mut entered = self.entered.lock();
        while !entered.is_empty() && began.elapsed() < limit {
            self.connection_ended.wait_for(&mut entered, Duration::from_millis(100));
        }
        entered.is_empty()
    }
}

/// A connection's place among the server's connections; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    number: u64,
    admitted: bool,
    pid: Option<i32>,
}

impl Place {
    /// A place for a connection; `None` when there are far too many.
    fn take(shared: &Arc<Shared>, socket: &Arc<Socket>) -> Option<Place> {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let most = most_connections(shared.max_connections, socket.is_local());
        let mut entered = shared.entered.lock();
        if entered.len() >= most {
            return None;
        }
        entered.insert(number, Entered { socket: Arc::clone(socket), interrupt: None });
        Some(Place { shared: Arc::clone(shared), number, admitted: false, pid: None })
    }

    /// Whether the connection, whose client was let in, may have a session.
    pub(crate) fn admit(&mut self) -> bool {
        let most = self.shared.max_connections;
        let one_more = |sessions| (sessions < most).then_some(sessions + 1);
        self.admitted =
            self.shared.admitted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok();
        self.admitted
    }

    /// The connection has a session now, whose statements who knows the secret may cancel.
    pub(crate) fn session(&mut self, pid: i32, secret: u32, interrupt: Interrupt) {
        self.pid = Some(pid);
        self.shared.keys.lock().insert(pid, (secret, interrupt.clone()));
        if let Some(entered) = self.shared.entered.lock().get_mut(&self.number) {
            let socket = Arc::clone(&entered.socket);
            interrupt.on_shutdown(move || socket.stop_waiting());
            entered.interrupt = Some(interrupt.clone());
        }
        if self.shared.is_stopping() {
            interrupt.interrupt(Reason::Shutdown);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.shared.keys.lock().remove(&pid);
        }
        if self.admitted {
            self.shared.admitted.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(entered) = self.shared.entered.lock().remove(&self.number) {
            entered.socket.close();
        }
        self.shared.connection_ended.notify_all();
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    sockets: Vec<PathBuf>,
    /// Folders that were made for sockets.
    folders: Vec<PathBuf>,
}

impl Server {
    /// Opens the databases and begins to listen.
    pub fn start(engine: &Engine, options: &ServerOptions) -> Result<Server> {
        check(options)?;
        let random = SystemRandom::new();
        let tls = load_tls(options)?;
        let files = database_files(&options.paths)?;
        let databases = open_databases(engine, &files, options)?;
        let all: Vec<Database> = databases.values().cloned().collect();
        all.iter().for_each(|database| database.publish_neighbours(&all));
        drop(all);
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            tls,
            watch: Watch::default(),
            owner: options.owner.clone(),
            databases: Mutex::new(databases),
            entered: Mutex::default(),
            next: AtomicU64::new(0),
            keys: Mutex::default(),
            admitted: AtomicUsize::new(0),
            connection_ended: Condvar::new(),
            max_connections: options.max_connections,
            stopping: AtomicBool::new(false),
            random,
        });
        let mut server = Server {
            shared,
            listeners: Vec::new(),
            addresses: Vec::new(),
            sockets: Vec::new(),
            folders: Vec::new(),
        };
        for address in &options.listen {
            server.listen_tcp(*address, options.insecure_trust)?;
        }
        for folder in &options.sockets {
            server.listen_unix(folder, options.port)?;
        }
        for folder in files.iter().map(|file| socket_folder(file)) {
            remove_left_behind(&folder);
            server.listen_unix(&folder, options.port)?;
            // It is ours, though a server that was killed may have made it.
            server.folders.push(folder);
        }
        Ok(server)
    }

    /// Tells sessions what was asked for and what is in effect, for `gannet_settings`.
    pub fn publish_settings(&self, reports: &[Report]) {
        let reports: Vec<SettingReport> = reports
            .iter()
            .map(|report| SettingReport {
                name: report.name.clone(),
                requested: report.requested.clone(),
                effective: report.effective.clone(),
                source: report.source.to_string(),
                reason: report.reason.clone(),
                is_place: report.is_place,
            })
            .collect();
        for database in self.shared.databases.lock().values() {
            let mut reports = reports.clone();
            // It depends on the file system that the database lies on.
            if let Some(report) = reports.iter_mut().find(|report| report.name == "io") {
                let mode = database.store().io_mode();
                mode.effective.name().clone_into(&mut report.effective);
                report.reason = match (mode.requested, mode.reason.is_empty()) {
                    (ModeRequest::Auto, true) => "the first mode that works".to_owned(),
                    (request, true) => format!("{} works", request.name()),
                    (_, false) => mode.reason.clone(),
                };
            }
            // It depends on the segments that the database was created with.
            let effective = format_size(database.store().background_work().wal_limit);
            if let Some(report) = reports.iter_mut().find(|report| report.name == "wal_limit")
                && report.effective != effective
            {
                report.effective = effective;
                report.reason = "raised to four of the database's log segments".to_owned();
            }
            database.publish_settings(reports);
        }
    }

    /// What the start of each database had to do, and how far it is, by name.
    pub fn restarts(&self) -> Vec<(String, gannet_store::RestartReport)> {
        let databases = self.shared.databases.lock();
        databases.iter().map(|(name, database)| (name.clone(), database.store().restart_report())).collect()
    }

    /// Where TCP clients connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The Unix sockets.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Names of the databases.
    pub fn databases(&self) -> Vec<String> {
        self.shared.databases.lock().keys().cloned().collect()
    }

    /// Where the databases are.
    pub fn paths(&self) -> Vec<PathBuf> {
        let databases = self.shared.databases.lock();
        databases.values().map(|database| database.store().path().to_owned()).collect()
    }

    /// What is to be seen to, by the database's name.
    pub fn alarms(&self) -> Vec<(String, gannet_store::Alarm)> {
        let databases: Vec<Database> = self.shared.databases.lock().values().cloned().collect();
        let of = |database: &Database| {
            let name = database.name().to_owned();
            database.store().outlook().alarms.into_iter().map(move |alarm| (name.clone(), alarm))
        };
        databases.iter().flat_map(of).collect()
    }

    /// Databases that have failed since they were opened, and so take no more changes: their names, and why.
    pub fn failed(&self) -> Vec<(String, String)> {
        let databases = self.shared.databases.lock();
        let failure =
            |(name, database): (&String, &Database)| Some((name.clone(), database.store().failure()?));
        databases.iter().filter_map(failure).collect()
    }

    fn listen_tcp(&mut self, address: SocketAddr, trust: bool) -> Result<()> {
        let cannot = |error: io::Error| Error::Setup(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        self.addresses.push(listener.local_addr().map_err(cannot)?);
        let shared = Arc::clone(&self.shared);
        self.listeners.push(gannet_base::thread::spawn("gannet-listen", move || {
            accept(&shared, &listener, || {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                Ok((socket.into(), trust))
            });
        }));
        Ok(())
    }

    fn listen_unix(&mut self, folder: &Path, port: u16) -> Result<()> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let cannot = |error: io::Error| Error::Setup(format!("cannot listen on {}: {error}", path.display()));
        if private_folder(folder)? {
            self.folders.push(folder.to_owned());
        }
        remove_stale(&path)?;
        let listener = unix::listen(&path).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        self.sockets.push(path.clone());
        let own = rustix::process::geteuid();
        let shared = Arc::clone(&self.shared);
        self.listeners.push(gannet_base::thread::spawn("gannet-listen", move || {
            accept(&shared, &listener, || {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(false)?;
                let trusted = socket_peercred(&socket).is_ok_and(|peer| peer.uid == own);
                Ok((socket.into(), trusted))
            });
        }));
        Ok(())
    }

    /// Ends the server: no new connections, statements are ended, clients told, databases closed. `limit`: how long all of it may
    /// take; connections are waited for during half of it at most, the rest is for writing pages home.
    pub fn stop(mut self, limit: Duration) -> Result<()> {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> Result<()> {
        let began = gannet_base::clock::now();
        self.shared.stopping.store(true, Ordering::SeqCst);
        for listener in self.listeners.drain(..) {
            // A listener that panicked listens no more either.
            let _ = listener.join();
        }
        for path in self.sockets.drain(..) {
            // Whoever starts next removes it otherwise.
            let _ = fs::remove_file(path);
        }
        for folder in self.folders.drain(..) {
            let _ = fs::remove_dir(folder);
        }
        self.shared.databases.lock().values().for_each(Database::stop_waiting);
        self.shared.end_all();
        if !self.shared.wait_for_connections(limit / 4) {
            // Whatever they are at, nothing more comes from their clients or goes there.
            for entered in self.shared.entered.lock().values() {
                entered.socket.close();
            }
            self.shared.wait_for_connections(limit / 4);
        }
        let left = self.shared.entered.lock().len();
        let mut result = Ok(());
        for (name, database) in std::mem::take(&mut *self.shared.databases.lock()) {
            // Connections that took long leave less time to write pages: what is not written is redone at the next start.
            if let Err(error) = database.close_within(limit.saturating_sub(began.elapsed())) {
                let message =
                    format!("database \"{name}\" was not closed ({left} connections left): {error}");
                result = Err(Error::Setup(message));
            }
        }
        result
    }
}

impl Drop for Server {
    /// As [`Server::stop`], without telling of errors.
    fn drop(&mut self) {
        if !self.shared.is_stopping() {
            let _ = self.end(DROP_LIMIT);
        }
    }
}

/// Takes connections until the server stops.
fn accept(shared: &Arc<Shared>, listener: &impl AsFd, mut next: impl FnMut() -> io::Result<(Socket, bool)>) {
    let period = Timespec { tv_sec: 0, tv_nsec: ACCEPT_PERIOD.subsec_nanos().into() };
    while !shared.is_stopping() {
        // Whatever this says, accepting is tried: it does not wait.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&period));
        // However many come one behind the other.
        while !shared.is_stopping() {
            match next() {
                Ok((socket, trusted)) => welcome(shared, socket, trusted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    // The system is short of something, or the client has gone already.
                    gannet_base::clock::sleep(ACCEPT_PERIOD);
                    break;
                }
            }
        }
    }
}

fn welcome(shared: &Arc<Shared>, socket: Socket, trusted: bool) {
    let watched = Arc::new(socket.share());
    // Where the system cannot do it, the connection is as good as any other while its client lives.
    let _ = socket.keep_asking();
    let mut stream = Stream::new(socket);
    let Some(place) = Place::take(shared, &watched) else {
        let mut out = Output::default();
        let error = gannet_sql::Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already");
        out.report(b'E', "FATAL", &error);
        // It is not worth waiting for.
        let _ = stream.write_all(out.bytes());
        watched.close();
        return;
    };
    let connection = Connection {
        shared: Arc::clone(shared),
        stream,
        socket: watched,
        place,
        trusted,
        out: Output::default(),
        over: None,
        spare: Vec::new(),
        incoming: Incoming::default(),
    };
    // Where the system has no thread to give, the connection is dropped, which closes it.
    let thread = std::thread::Builder::new().name("gannet-session".to_owned()).stack_size(SESSION_STACK);
    let _ = thread.spawn(move || connection.serve());
}

fn check(options: &ServerOptions) -> Result<()> {
    if let Some(address) = options.listen.iter().find(|address| !address.ip().is_loopback())
        && options.insecure_trust
    {
        return Err(Error::Setup(format!(
            "--insecure-trust would let anybody in who reaches {address}; it is for loopback addresses only"
        )));
    }
    if options.max_connections == 0 {
        return Err(Error::Setup("max_connections is 0: nobody could connect".into()));
    }
    Ok(())
}

/// The folder, beside a database, of the socket by which those who are given its file find the server that has it open.
pub fn socket_folder(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-socket");
    PathBuf::from(name)
}

fn open_databases(
    engine: &Engine,
    files: &[PathBuf],
    options: &ServerOptions,
) -> Result<BTreeMap<String, Database>> {
    let mut databases = BTreeMap::new();
    for path in files {
        let database = Database::open(engine, path, &options.opening(path), &options.owner)
            .map_err(|error| Error::Setup(format!("{}: {error}", path.display())))?;
        let name = database.name().to_owned();
        if databases.insert(name.clone(), database).is_some() {
            return Err(Error::Setup(format!("two of the files are called \"{name}\"")));
        }
    }
    if databases.is_empty() {
        return Err(Error::Setup("there is no database to serve".into()));
    }
    Ok(databases)
}

/// The files that paths name, folders searched.
fn database_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let cannot = |error: io::Error| Error::Setup(format!("{}: {error}", path.display()));
        if !fs::metadata(path).map_err(cannot)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        files.extend(files_in(path).map_err(cannot)?);
    }
    files.sort();
    Ok(files)
}

/// The databases in a folder.
fn files_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "gnt") {
            files.push(file);
        }
    }
    Ok(files)
}

/// Makes the socket's folder (true), or finds it there. Either way only its owner, the server's user, can enter it: what is looked at is what the name
/// itself is, so that nobody can put another folder, or a link to one, in its place meanwhile.
fn private_folder(folder: &Path) -> Result<bool> {
    let cannot = |error: io::Error| Error::Setup(format!("{}: {error}", folder.display()));
    let mut maker = fs::DirBuilder::new();
    maker.mode(0o700);
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        maker.recursive(true).create(parent).map_err(cannot)?;
    }
    let is_new = match maker.recursive(false).create(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(cannot(error)),
    };
    let metadata = fs::symlink_metadata(folder).map_err(cannot)?;
    if !metadata.is_dir() {
        return Err(Error::Setup(format!(
            "{} is no folder, or a link to one, which could lead elsewhere later: name the folder itself",
            folder.display()
        )));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Setup(format!(
            "{} belongs to another user; a socket there could be taken away",
            folder.display()
        )));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::Setup(format!(
            "others can enter {}: make the socket's folder private (chmod 700), or name another one",
            folder.display()
        )));
    }
    Ok(is_new)
}

/// Removes the socket of a server that is gone, and nothing else.
fn remove_stale(path: &Path) -> Result<()> {
    let cannot = |error: io::Error| Error::Setup(format!("cannot listen on {}: {error}", path.display()));
    match unix::connect(path) {
        Ok(_) => return Err(Error::Setup(format!("another server listens on {}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(cannot(error)),
    }
    // Nobody listens at a file either.
    if !fs::symlink_metadata(path).map_err(cannot)?.file_type().is_socket() {
        return Err(Error::Setup(format!("{} is there, and is no socket: move it away", path.display())));
    }
    fs::remove_file(path).map_err(cannot)
}

/// Removes, in the folder beside a database that is open here, the sockets of servers that had the database before and were killed, whatever their
/// port was: clients would take them for this server's. What cannot be removed is their affair, who try each.
fn remove_left_behind(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(".s.PGSQL."));
        // Another database's server may have been told to have a socket here.
        if is_socket && is_ours && !is_listened_at(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether there is, or may be, somebody who listens at a Unix socket: anything but that nobody is there says so.
pub fn is_listened_at(socket: &Path) -> bool {
    let nobody =
        |error: io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
    !unix::connect(socket).is_err_and(nobody)
}

#[cfg(test)]
mod tests;
