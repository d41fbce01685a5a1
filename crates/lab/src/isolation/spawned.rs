//! A server process of this machine, that can be killed and comes back.

use super::client::Client;
use super::run::Place;
use anyhow::{Context, Result, bail};
use gannet_server::frontend::{Address, Host, SslMode};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, RwLock};

/// The number in the socket's name.
const PORT: u16 = 5433;

/// `gannet serve` on a database of its own, reached over the socket beside the file.
#[derive(Debug)]
pub struct Spawned {
    binary: PathBuf,
    database: PathBuf,
    user: String,
    child: Mutex<Option<Child>>,
    /// Held alone while the server is down, so that nobody connects in vain.
    up: RwLock<()>,
}

impl Spawned {
    /// Starts a server on a database in `folder`, which is made where it is not there yet. `user` is who runs this.
    pub fn start(binary: &Path, folder: &Path, user: &str) -> Result<Self> {
        let database = std::path::absolute(folder.join("isolation.gnt"))?;
        let spawned = Spawned {
            binary: binary.to_owned(),
            database,
            user: user.to_owned(),
            child: Mutex::new(None),
            up: RwLock::new(()),
        };
        spawned.begin()?;
        Ok(spawned)
    }

    fn begin(&self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg(&self.database);
        command.args(["--memory", "16MiB", "--listen", "none", "--port", &PORT.to_string()]);
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("GANNET_")) {
            command.env_remove(name);
        }
        // Little of both, so that pages are evicted and the log goes round.
        command.env("GANNET_WAL_LIMIT", "4MiB");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.binary.display()))?;
        let mut said = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut text = String::new();
        while !text.contains("Ctrl-C") {
            if said.read_line(&mut text)? == 0 {
                child.wait()?;
                bail!("the server does not start: {text}");
            }
        }
        // Whatever else it says is to be taken, too.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn kill(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        Address {
            host: Host::Unix(gannet_server::socket_folder(&self.database)),
            port: PORT,
            user: self.user.clone(),
            password: None,
            database: "isolation".to_owned(),
            ssl: SslMode::Disable,
            root_certificate: None,
            application: None,
            options: None,
            connect_timeout: None,
        }
    }
}

impl Place for Spawned {
    fn connect(&self) -> Result<Client> {
        let _up = self.up.read().unwrap_or_else(PoisonError::into_inner);
        Client::connect(&self.address())
    }

    fn crash(&self) -> Result<()> {
        let _down = self.up.write().unwrap_or_else(PoisonError::into_inner);
        self.kill();
        self.begin()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.kill();
    }
}
