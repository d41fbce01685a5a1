//! Firebird's server: in a folder of its own with a root, a security database and a database, started for one measurement on a free port of the loopback.
//!
//! Nothing of the system's installation is used but its programs: the root has links to them, and settings of our own. The server keeps to its folder.

use crate::confine::{Group, installed, tied};
use crate::folders::{bytes, cache_for};
use crate::servers::Process;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How to get it.
pub const HOW: &str = "apt-get install firebird3.0-server";
/// How to get the programs for who looks after its databases, where they are not there with it.
const HOW_PROGRAMS: &str = "apt-get install firebird3.0-utils";
/// A setting that is the database's, not its server's: after so many transactions whose versions are in the way it sweeps by itself; 0: never.
pub const SWEEP_INTERVAL: &str = "SweepInterval";
/// Bytes of a page.
const PAGE_SIZE: u64 = 8192;
/// Its superuser.
pub(crate) const USER: &str = "SYSDBA";
/// How long somebody waits for a lock before it is looked whether that is a deadlock.
pub(crate) const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take until it lets somebody in.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long it is waited for its end where nothing can be lost.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Bytes of memory for its cache while it is loaded, with nobody's limit.
const LOADING: u64 = 1 << 30;

/// What is installed.
#[derive(Clone, Debug)]
pub struct Installed {
    server: PathBuf,
    isql: PathBuf,
    gfix: PathBuf,
    /// The folder of its engine and of what goes with it.
    engine: PathBuf,
    /// The client library.
    pub library: PathBuf,
}

impl Installed {
    /// Its version, as far as it can be seen without starting it.
    fn version(&self) -> String {
        // The library's link leads to a name that has it.
        let named = fs::read_link(&self.library).ok().and_then(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            name.strip_prefix("libfbclient.so.").map(str::to_owned)
        });
        named.unwrap_or_else(|| "3.0".to_owned())
    }
}

/// Firebird 3, where all of it is installed.
pub fn installation() -> Option<Installed> {
    let program = |name: &str| {
        let path = Path::new("/usr/sbin").join(name);
        if path.is_file() { Some(path) } else { installed(name) }
    };
    // Debian's folders are those of an architecture.
    let engine = fs::read_dir("/usr/lib").ok()?.flatten().find_map(|entry| {
        let engine = entry.path().join("firebird/3.0");
        engine.join("plugins/libEngine12.so").is_file().then_some(engine)
    })?;
    let library = engine.ancestors().nth(2)?.join("libfbclient.so.2");
    if !library.is_file() {
        return None;
    }
    Some(Installed {
        server: program("firebird")?,
        isql: program("isql-fb")?,
        gfix: program("gfix")?,
        engine,
        library,
    })
}

/// As reports name it.
pub fn title() -> String {
    format!("Firebird {}", installation().map_or_else(|| "3".to_owned(), |found| found.version()))
}

/// One of the programs for who looks after databases, by the names that it has here or there.
///
/// # Errors
/// There is none of them.
pub(crate) fn utility(names: &[&str]) -> Result<PathBuf> {
    let there = names.iter().find_map(|name| installed(name));
    there.with_context(|| {
        format!("Firebird's program {} is not installed: {HOW_PROGRAMS}", names.join(" or "))
    })
}

fn found() -> Result<Installed> {
    installation().with_context(|| format!("Firebird 3 is not installed: {HOW}"))
}

/// The setting of a cache of so many bytes.
pub fn cache_of(bytes: u64) -> String {
    format!("DefaultDbCachePages={}", bytes / PAGE_SIZE)
}

/// The name of the setting that [`within`] gives.
const ACCESS: &str = "DatabaseAccess";

/// The setting by which it opens databases in these folders only.
pub(crate) fn within(folders: &[&Path]) -> String {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    format!("{ACCESS}=Restrict {}", folders.join(";"))
}

/// Settings for a database that fits into so much memory: a cache that has room for all of it, and as much of the rest for sorts as leaves an eighth to its sessions.
///
/// # Errors
/// The database in the folder cannot be looked at.
pub fn fitting(folder: &Path, memory: u64) -> Result<Vec<String>> {
    let size = bytes(&database(folder))?;
    let cache = cache_for(size, memory);
    let sorts = size.min((memory / 8 * 7).saturating_sub(cache));
    Ok(vec![cache_of(cache), format!("TempCacheLimit={sorts}")])
}

/// The database in a folder.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("lab.fdb")
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of its database, see [`make`].
    pub folder: PathBuf,
    /// Bytes of memory it may have in all, page cache included; `None`: no group, and memory enough for loading.
    pub memory: Option<u64>,
    /// More settings, `Name=value`, in the place of those that are set here anyway; and [`SWEEP_INTERVAL`].
    pub settings: Vec<String>,
}

/// A server that runs, until it is stopped or this is dropped.
#[derive(Debug)]
pub struct Server {
    options: Options,
    port: u16,
    process: Process,
}

/// Makes a folder with an empty database, whose writes are not forced until [`force_writes`].
///
/// # Errors
/// The folder is there, or cannot be made; or Firebird is not installed.
pub fn make(folder: &Path) -> Result<()> {
    let found = found()?;
    fs::create_dir_all(folder.parent().unwrap_or(folder))?;
    fs::create_dir(folder).with_context(|| format!("cannot make {folder:?}"))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let folder = &folder.canonicalize()?;
    let (mut random, mut password) = ([0; 8], String::new());
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    random.iter().for_each(|byte| password.push_str(&format!("{byte:02x}")));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(secret(folder))?;
    file.write_all(password.as_bytes())?;
    let options = Options { folder: folder.clone(), memory: None, settings: Vec::new() };
    options.write_root(&found, 0)?;
    let (users, data) = (users(folder), database(folder));
    let script = format!(
        "create database '{}' user '{USER}';\ncommit;\ncreate or alter user {USER} password '{password}' using plugin Srp;\ncommit;\n\
         create database '{}' user '{USER}' page_size {PAGE_SIZE} default character set none;\ncommit;\n",
        users.display(),
        data.display()
    );
    embedded(&found.isql, folder, &["-q", "-bail", "-user", USER], &script)?;
    embedded(&found.gfix, folder, &["-user", USER, "-write", "async", &data.display().to_string()], "")
}

/// Has a database written durably from now on, as it is by default; its server does not run.
///
/// # Errors
/// Its program fails.
pub fn force_writes(folder: &Path) -> Result<()> {
    let folder = &folder.canonicalize()?;
    let data = database(folder).display().to_string();
    embedded(&found()?.gfix, folder, &["-user", USER, "-write", "sync", &data], "")
}

/// The file with the superuser's password, which is this server's only.
fn secret(folder: &Path) -> PathBuf {
    folder.join("password")
}

/// The database of users.
fn users(folder: &Path) -> PathBuf {
    folder.join("security3.fdb")
}

/// What keeps a program of Firebird's to the folder.
fn keep_to(command: &mut Command, folder: &Path) {
    command.env("FIREBIRD", folder.join("root"));
    command.env("FIREBIRD_LOCK", folder.join("lock")).env("FIREBIRD_TMP", folder.join("tmp"));
    for name in ["ISC_USER", "ISC_PASSWORD", "ISC_PATH"] {
        command.env_remove(name);
    }
}

/// Runs a program that has the engine within itself.
fn embedded(program: &Path, folder: &Path, arguments: &[&str], input: &str) -> Result<()> {
    let mut command = tied(None, program, "KILL");
    keep_to(&mut command, folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program:?}"))?;
    if let Some(mut to) = child.stdin.take() {
        to.write_all(input.as_bytes())?;
    }
    let done = child.wait_with_output()?;
    if !done.status.success() {
        let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).trim().to_owned());
        bail!("{program:?}: {}", said.join(" "));
    }
    Ok(())
}

impl Options {
    /// What matters of its settings, for reports and for the file.
    fn tuned(&self) -> Vec<String> {
        let memory = self.memory.unwrap_or(4 * LOADING);
        let mut settings: Vec<String> = [
            ("ServerMode", "Super".to_owned()),
            // With half of it the OOM killer comes where there is little: what is left is for sessions, and for the page cache, which it reads and writes through.
            ("DefaultDbCachePages", (memory / 4 / PAGE_SIZE).to_string()),
            ("FileSystemCacheThreshold", "2147483647".to_owned()),
            ("TempCacheLimit", (memory / 8).to_string()),
            // As soon as PostgreSQL looks for one.
            ("DeadlockTimeout", DEADLOCK_TIMEOUT.as_secs().to_string()),
            ("LockHashSlots", "30011".to_owned()),
            ("WireCrypt", "Disabled".to_owned()),
        ]
        .into_iter()
        .filter(|(name, _)| self.given(name).is_none())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
        let given = self.settings.iter().filter(|given| given.split('=').next() != Some(SWEEP_INTERVAL));
        settings.extend(given.cloned());
        settings
    }

    /// What a setting was given as.
    fn given(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find_map(|given| given.strip_prefix(name)?.strip_prefix('='))
    }

    /// Says how often the database is swept, where that was asked for; its server does not run.
    fn set_sweep_interval(&self, found: &Installed) -> Result<()> {
        let Some(interval) = self.given(SWEEP_INTERVAL) else { return Ok(()) };
        let data = database(&self.folder).display().to_string();
        embedded(&found.gfix, &self.folder, &["-user", USER, "-housekeeping", interval, &data], "")
            .with_context(|| format!("{SWEEP_INTERVAL}={interval}"))
    }

    /// The root: links to what is installed, and our own settings. A folder may have been copied: the settings have its name, and are written anew.
    fn write_root(&self, found: &Installed, port: u16) -> Result<()> {
        let folder = &self.folder;
        let root = folder.join("root");
        for made in [&root, &folder.join("lock"), &folder.join("tmp")] {
            fs::create_dir_all(made)?;
        }
        for entry in fs::read_dir(&found.engine)? {
            let entry = entry?;
            let (name, to) = (entry.file_name(), root.join(entry.file_name()));
            if name != "firebird.conf" && name != "databases.conf" && fs::symlink_metadata(&to).is_err() {
                symlink(entry.path().canonicalize()?, &to)?;
            }
        }
        let mut settings = self.tuned();
        settings.extend([
            "AuthServer=Srp".to_owned(),
            "AuthClient=Srp".to_owned(),
            "UserManager=Srp".to_owned(),
            "RemoteBindAddress=127.0.0.1".to_owned(),
            format!("RemoteServicePort={port}"),
            format!("SecurityDatabase={}", users(folder).display()),
            format!("TempDirectories={}", folder.join("tmp").display()),
        ]);
        if self.given(ACCESS).is_none() {
            settings.push(within(&[folder]));
        }
        settings.push(String::new());
        fs::write(root.join("firebird.conf"), settings.join("\n"))?;
        fs::write(root.join("databases.conf"), "")?;
        Ok(())
    }

    /// Starts it and waits until it can be reached.
    ///
    /// # Errors
    /// It is not installed, the folder is none of its kind, or it ends.
    pub fn start(&self) -> Result<Server> {
        let found = found()?;
        let folder = self.folder.canonicalize().with_context(|| format!("cannot find {:?}", self.folder))?;
        let options = Options { folder, ..self.clone() };
        // Whoever takes the port in between is not us: it is said then that the server has ended.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        options.write_root(&found, port)?;
        options.set_sweep_interval(&found)?;
        let command = |group: Option<&Group>| {
            let mut command = tied(group, &found.server, "TERM");
            keep_to(&mut command, &options.folder);
            Ok(command)
        };
        let mut process =
            Process::launch(&title(), &options.folder, options.memory, [Signal::TERM; 2], command)?;
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            process.must_run()?;
            if began.elapsed() > PATIENCE {
                bail!("{} cannot be reached on port {port}", title());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Server { options, port, process })
    }
}

impl Server {
    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where its connections are made to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its database.
    pub fn folder(&self) -> &Path {
        &self.options.folder
    }

    /// The database, as a program names it that is its client.
    pub(crate) fn address(&self) -> String {
        format!("localhost/{}:{}", self.port, self.database().display())
    }

    /// A command that runs a program beside it, as its superuser: in its group, and asked to end when we do.
    ///
    /// # Errors
    /// The folder has no password.
    pub(crate) fn beside(&self, program: &Path) -> Result<Command> {
        let mut command = self.process.beside(program);
        keep_to(&mut command, &self.options.folder);
        command.env("ISC_USER", USER).env("ISC_PASSWORD", self.password()?);
        Ok(command)
    }

    /// The database, as it knows it.
    pub fn database(&self) -> PathBuf {
        database(&self.options.folder)
    }

    /// The superuser's password.
    ///
    /// # Errors
    /// The folder has none.
    pub fn password(&self) -> Result<String> {
        let path = secret(&self.options.folder);
        fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))
    }

    /// How it was started.
    pub fn describe(&self) -> Value {
        let mut settings = self.options.tuned();
        settings.push(format!("page_size={PAGE_SIZE}"));
        settings.push(match self.options.memory {
            Some(_) => "forced writes: on".to_owned(),
            None => "forced writes: off while it is loaded".to_owned(),
        });
        settings.push(match self.options.given(SWEEP_INTERVAL) {
            Some("0") => "sweep interval: 0, swept when asked only".to_owned(),
            Some(interval) => format!("sweep interval: {interval} transactions"),
            None => "sweep interval: 20000 transactions, the default".to_owned(),
        });
        json!({ "server": title(), "memory": self.options.memory, "settings": settings })
    }

    /// Bytes of the database on the device.
    ///
    /// # Errors
    /// The system's.
    pub fn database_bytes(&self) -> Result<u64> {
        bytes(&self.database())
    }

    /// Ends it in good order; with forced writes, when everything is durable, no longer than some seconds: it was seen not to end at
    /// all. Gives how long that took; `None`: it had to be killed.
    ///
    /// # Errors
    /// It failed, or had to be killed while it was loaded.
    pub fn stop(self) -> Result<Option<Duration>> {
        match self.options.memory {
            Some(_) => self.process.stop_within(STOP_PATIENCE),
            None => self.process.stop().map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_ones_own_take_the_place_of_others() {
        let options = |settings: &[&str]| Options {
            folder: PathBuf::from("db"),
            memory: Some(512 << 20),
            settings: settings.iter().map(|&word| word.to_owned()).collect(),
        };
        let usual = options(&[]).tuned();
        assert!(usual.contains(&format!("DefaultDbCachePages={}", (128 << 20) / PAGE_SIZE)), "{usual:?}");
        let own = options(&["DefaultDbCachePages=1000"]).tuned();
        assert_eq!(own.iter().filter(|one| one.starts_with("DefaultDbCachePages")).count(), 1);
        assert_eq!(own.len(), usual.len());
        // It is no setting of the server's file.
        let unswept = options(&["SweepInterval=20000", "SweepInterval=0"]);
        assert_eq!((unswept.tuned(), unswept.given(SWEEP_INTERVAL)), (usual, Some("0")));
    }

    #[test]
    fn what_fits_has_a_cache_that_has_room_for_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(database(folder.path()), vec![1; 8 << 20]).unwrap();
        let size = bytes(&database(folder.path())).unwrap();
        let settings = fitting(folder.path(), 64 << 20).unwrap();
        assert_eq!(settings, [cache_of(24 << 20), format!("TempCacheLimit={size}")]);
        let options = Options { folder: folder.path().to_owned(), memory: Some(64 << 20), settings };
        let told = options.tuned();
        assert_eq!(told.iter().filter(|one| one.starts_with("TempCacheLimit")).count(), 1);
        assert!(told.contains(&cache_of(24 << 20)), "{told:?}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_the_way_to_it() {
        let said = utility(&["no-such-gstat", "no-such-fbstat"]).unwrap_err().to_string();
        assert!(
            said.contains("no-such-gstat or no-such-fbstat") && said.contains("firebird3.0-utils"),
            "{said}"
        );
    }
}
