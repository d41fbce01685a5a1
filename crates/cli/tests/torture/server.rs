//! The real server as a process of its own, and connections to it.

use gannet_server::frontend::{Address, Column, Connection, Failure, Host, Receiver, Report, SslMode};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Number in the name of the Unix socket. Each server has a folder of its own for it.
const PORT: u16 = 5433;
/// Whoever says nothing for so long is taken to be stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(600);

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The database's file; it is made where it is not there.
    pub(crate) database: PathBuf,
    /// Where its writes are recorded.
    pub(crate) record: Option<PathBuf>,
    /// Where its log is archived.
    pub(crate) archive: Option<PathBuf>,
}

/// What a server has said, and whether it has ended.
#[derive(Default)]
struct Output {
    said: Mutex<(String, bool)>,
    changed: Condvar,
}

/// The binary, with little memory, and nothing that happens to be set.
pub(crate) fn command() -> Command {
    let built = env!("CARGO_BIN_EXE_gannet").into();
    let mut command = Command::new(std::env::var_os("TORTURE_BINARY").unwrap_or(built));
    command.env("GANNET_MEMORY", "12MiB");
    command.env_remove("GANNET_IO").env_remove("GANNET_TEMP_FOLDER").env_remove("GANNET_IO_RECORD");
    command
}

/// A running server. It is killed when this is dropped.
pub(crate) struct Server {
    process: Child,
    output: Arc<Output>,
    database: PathBuf,
}

/// How a server ended, and what it said until then.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

impl Server {
    /// Starts one: with little memory and a short log, so that a small load writes pages, checkpoints and sweeps.
    pub(crate) fn start(options: &Options) -> Self {
        let folder = options.database.parent().expect("a database has a folder");
        let mut command = command();
        command.arg("serve").arg(&options.database).args(["--listen", "none"]).current_dir(folder);
        command.env("GANNET_WAL_LIMIT", "4MiB").env("GANNET_PORT", PORT.to_string());
        if let Some(archive) = &options.archive {
            command.arg("--archive").arg(archive);
        }
        if let Some(record) = &options.record {
            // A replay knows the files of one folder.
            command.env("GANNET_IO_RECORD", record).env("GANNET_TEMP_FOLDER", folder);
        }
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the server starts");
        let output = Arc::new(Output::default());
        let (taken, stderr) = (Arc::clone(&output), process.stderr.take().expect("piped"));
        std::thread::spawn(move || taken.take(BufReader::new(stderr)));
        Server { process, output, database: options.database.clone() }
    }

    /// Waits until it takes connections; what it said where it ended instead.
    pub(crate) fn wait_until_serving(&self) -> Result<(), String> {
        let serving = self.output.wait(|said, ended| ended || said.contains("Ctrl-C ends it"));
        if serving.contains("Ctrl-C ends it") { Ok(()) } else { Err(serving) }
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for_words(&self, words: &str) {
        self.output.wait(|said, _| said.contains(words));
    }

    /// A server that takes connections.
    pub(crate) fn serving(options: &Options) -> Result<Self, String> {
        let server = Self::start(options);
        server.wait_until_serving()?;
        Ok(server)
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> Address {
        let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
        Address {
            host: Host::Unix(gannet_server::socket_folder(&self.database)),
            port: PORT,
            user: whoami::username().unwrap_or_else(|_| "gannet".to_owned()),
            password: None,
            database: name(&self.database),
            ssl: SslMode::Disable,
            root_certificate: None,
            application: None,
            options: None,
            connect_timeout: None,
        }
    }

    /// Asks it to end in good order.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        // It may have ended by itself; how is seen by whoever waits for it.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        let said = self.output.wait(|_, ended| ended);
        let status = self.process.wait().expect("our own child");
        assert!(!said.contains("panicked"), "the server panicked: {said}");
        Ended { status, said }
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(mut self) -> Ended {
        // One that has ended by itself is beyond being killed.
        let _ = self.process.kill();
        self.wait()
    }

    /// Ends it in good order; what it said where it did not end so.
    pub(crate) fn stop(self) -> Result<(), String> {
        self.terminate();
        let ended = self.wait();
        if ended.status.success() {
            return Ok(());
        }
        Err(format!("a server ended with {}; it said: {}", ended.status, ended.said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Output {
    fn take(&self, mut from: impl BufRead) {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            self.said.lock().unwrap().0.push_str(&String::from_utf8_lossy(&line));
            self.changed.notify_all();
            line.clear();
        }
        self.said.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Everything said, once `done` says so of it and of whether that is all.
    fn wait(&self, mut done: impl FnMut(&str, bool) -> bool) -> String {
        let said = self.said.lock().unwrap();
        let waited = self.changed.wait_timeout_while(said, STUCK, |said| !done(&said.0, said.1)).unwrap();
        assert!(!waited.1.timed_out(), "the server is stuck; it said: {}", waited.0.0);
        waited.0.0.clone()
    }
}

/// A connection that keeps the rows of its queries.
pub(crate) struct Client(Connection);

impl Client {
    pub(crate) fn connect(address: &Address) -> Result<Self, Failure> {
        Connection::open(address, "torture").map(Client)
    }

    /// Runs statements; gives the rows of them all, an empty text for null.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Failure> {
        let mut rows = Rows(Vec::new());
        self.0.query(sql, &mut rows)?;
        Ok(rows.0)
    }
}

struct Rows(Vec<Vec<String>>);

impl Receiver for Rows {
    fn columns(&mut self, _: &[Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.0.push(values.iter().map(|value| value.unwrap_or_default().to_owned()).collect());
        Ok(())
    }

    fn complete(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _: &Report) {}

    fn copy_in(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copy_read(&mut self, _: &mut Vec<u8>) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copy_out(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copy_write(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
