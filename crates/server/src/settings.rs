//! Settings of a server: what was asked for, by whom, what is in effect, and why.
//!
//! # Guarantees
//! 1. A setting comes from the strongest source that names it: flags, then the environment (`GANNET_` and its name), then the file, then the default.
//! 2. No setting is silently ignored: an unknown name, a value out of range, or a value that is no value is an error that names setting, source and way out.
//!    Where the effective value is not the requested one, the reason stands beside it.

use crate::window::Windows;
use crate::{Error, Result};
use gannet_base::units::{format_duration, format_size, parse_duration, parse_size};
use gannet_io::{Mode, ModeRequest};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a setting's value comes from, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The settings file.
    File,
    /// An environment variable.
    Environment,
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Default => "default",
            Source::File => "file",
            Source::Environment => "environment",
            Source::Flag => "flag",
        })
    }
}

/// A setting.
#[derive(Debug)]
pub struct Definition {
    /// Its name: in the file, as a flag (with dashes), in the environment (in capitals, behind `GANNET_`).
    pub name: &'static str,
    /// Its default, as text; empty for none.
    pub default: &'static str,
    /// Its unit or range, for people.
    pub unit: &'static str,
    /// What it does, in one sentence.
    pub description: &'static str,
}

macro_rules! definitions {
    ($($name:ident $default:literal $unit:literal $description:literal;)*) => {
        /// Every setting.
        pub const DEFINITIONS: &[Definition] = &[
            $(Definition { name: stringify!($name), default: $default, unit: $unit, description: $description },)*
        ];
    };
}

definitions! {
    memory "256MiB" "size, 8MiB or more, and no more than the machine has" "The one memory number: everything the server uses lives inside it, 64 MiB for the process and 0.5 MiB a connection aside.";
    io "auto" "auto, direct, uncached or buffered" "How files are opened; auto takes the first of them that works.";
    archive "" "folder; none for no archive" "Where the log is archived as it becomes durable, each database in a folder of its own name there.";
    wal_limit "1GiB" "size, four log segments or more" "Bytes of log that a start may have to go through after a crash.";
    max_delay "200ms" "duration" "The longest an asynchronous commit stays undurable.";
    snapshot_limit "0s" "duration; 0s for none" "How long a transaction may hold garbage back before its session is ended; sessions may ask for less, superusers for more.";
    shutdown_limit "10s" "duration" "How long a shutdown waits for connections, and then writes pages, before it leaves the rest to the next start.";
    listen "127.0.0.1:5433" "addresses, separated by commas; none for no TCP" "Where TCP clients connect; they need a password.";
    socket "" "folder that only its owner can enter" "Where one more Unix socket is made, besides those beside the databases; clients of the same user need no password.";
    port "5433" "1 to 65535" "Port in the names of the Unix sockets.";
    max_connections "100" "1 to 10000" "Most connections at a time.";
    insecure_trust "off" "on or off" "Lets clients in without password; for loopback addresses only.";
    tls_certificate "" "file, PEM" "Certificate chain for TLS; needs tls_key.";
    tls_key "" "file, PEM" "Private key of the certificate.";
    job_latency_target "0s" "duration; 0s: 1.5 to 2 times what they take without jobs, so that statements take no more than half as long again" "How long users' requests to the device may take on average while backups, checks, sweeps and other jobs run.";
    sweep_window "" "times of the day, such as 22:00-06:00, separated by commas; none for any time" "When long sweeps may begin by themselves, by this machine's clock; at any time where garbage is more than a tenth of a file.";
    temp_folder "" "folder on a device; the system's if none" "Where sorts and hash tables spill.";
    io_record "" "file that is not there yet; none for no record" "Where every write and sync is recorded, bytes included, for tests of power cuts; slow, and large.";
}

/// Settings of several values, which are a list in the file.
const LISTS: [&str; 2] = ["listen", "sweep_window"];

/// Settings that say where something lies on this machine: only superusers are shown them.
const PLACES: [&str; 6] = ["archive", "socket", "tls_certificate", "tls_key", "temp_folder", "io_record"];

/// A setting with its values, as `gannet_settings` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// What was asked for.
    pub requested: String,
    /// What is in effect.
    pub effective: String,
    /// Where the request came from.
    pub source: Source,
    /// Why the two differ, or what else is to be said.
    pub reason: String,
    /// Whether it says where something lies on this machine.
    pub is_place: bool,
}

/// The settings, as text, and who said so.
#[derive(Clone, Debug)]
pub struct Settings {
    values: BTreeMap<&'static str, (String, Source)>,
    /// The settings file, if there is one.
    file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let value =
            |definition: &Definition| (definition.name, (definition.default.to_owned(), Source::Default));
        Settings { values: DEFINITIONS.iter().map(value).collect(), file: None }
    }
}

impl Settings {
    /// Settings from a file (if there is one), the environment, and flags.
    pub fn gather(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let mut settings = Settings { file: file.map(Path::to_owned), ..Settings::default() };
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Error::Setup(format!("settings file {}: {error}", path.display())))?;
            settings
                .read_file(&text)
                .map_err(|error| Error::Setup(format!("settings file {}: {error}", path.display())))?;
        }
        for (name, value) in environment {
            let Some(name) = name.strip_prefix("GANNET_") else { continue };
            settings.set(&name.to_ascii_lowercase(), value, Source::Environment)?;
        }
        for (name, value) in flags {
            settings.set(&name.replace('-', "_"), value, Source::Flag)?;
        }
        Ok(settings)
    }

    fn read_file(&mut self, text: &str) -> Result<()> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| Error::Setup(error.to_string()))?;
        for (name, value) in table {
            definition(&name, Source::File)?;
            if name == "insecure_trust" && !value.is_bool() {
                // TOML has words of its own for on and off: nothing else is to open the door.
                return Err(Error::Setup(format!("{name} has to be true or false, without quotes")));
            }
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(on) => if on { "on" } else { "off" }.to_owned(),
                toml::Value::Array(items) if LISTS.contains(&name.as_str()) => {
                    let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                    texts
                        .ok_or_else(|| Error::Setup(format!("{name} has to be a list of strings")))?
                        .join(",")
                }
                other => {
                    let text = format!("{name} cannot be a value of type {}", other.type_str());
                    return Err(Error::Setup(text));
                }
            };
            self.set(&name, text, Source::File)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: String, source: Source) -> Result<()> {
        let definition = definition(name, source)?;
        self.values.insert(definition.name, (value, source));
        Ok(())
    }

    fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(text, _)| text.trim())
    }

    fn read<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        read(self.text(name)).map_err(|why| self.refuse(name, why))
    }

    /// What is said of a value that cannot be: which setting it is, and where it comes from.
    pub fn refuse(&self, name: &str, why: impl fmt::Display) -> Error {
        let text = self.text(name);
        let source = self.values.get(name).map_or(Source::Default, |(_, source)| *source);
        let place = match (&self.file, source) {
            (Some(path), Source::File) => format!("file {}", path.display()),
            _ => source.to_string(),
        };
        Error::Setup(format!("setting {name} = \"{text}\" ({place}): {why}"))
    }

    /// How long a transaction may hold garbage back; `None`: as long as it likes.
    ///
    /// # Errors
    /// It is longer than sessions can say, who count milliseconds as PostgreSQL does.
    pub fn snapshot_limit(&self) -> Result<Option<Duration>> {
        let limit = self.duration("snapshot_limit")?;
        let most = Duration::from_millis(i32::MAX.unsigned_abs().into());
        if limit > most {
            return Err(self.refuse("snapshot_limit", "it is at most 24 days, or 0s for none"));
        }
        Ok(Some(limit).filter(|limit| !limit.is_zero()))
    }

    /// Bytes of a size.
    pub fn size(&self, name: &'static str) -> Result<u64> {
        self.read(name, |text| parse_size(text).map_err(|error| error.to_string()))
    }

    /// A duration.
    pub fn duration(&self, name: &'static str) -> Result<Duration> {
        self.read(name, |text| parse_duration(text).map_err(|error| error.to_string()))
    }

    /// on or off.
    pub fn switch(&self, name: &'static str) -> Result<bool> {
        self.read(name, |text| match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            _ => Err("choose on or off".to_owned()),
        })
    }

    /// A file or folder; none where the text is empty.
    pub fn path(&self, name: &'static str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| !text.is_empty() && *text != "none").map(PathBuf::from)
    }

    /// `temp_folder`: one that files can be made in, and that is on a device.
    pub fn temp_folder(&self) -> Result<Option<PathBuf>> {
        self.read("temp_folder", |text| {
            let folder = match text {
                "" | "none" => return Ok(None),
                folder => PathBuf::from(folder),
            };
            match std::fs::metadata(&folder) {
                Err(error) => return Err(error.to_string()),
                Ok(found) if !found.is_dir() => return Err("it is no folder".to_owned()),
                Ok(_) => {}
            }
            if gannet_io::is_in_memory(&folder) {
                return Err("the folder is kept in memory; name one on a device".to_owned());
            }
            gannet_io::try_folder(&folder).map_err(|error| error.to_string())?;
            Ok(Some(folder))
        })
    }

    /// `sweep_window`
    pub fn sweep_window(&self) -> Result<Option<Windows>> {
        self.read("sweep_window", |text| {
            if text.is_empty() || text == "none" { Ok(None) } else { Windows::parse(text).map(Some) }
        })
    }

    /// `io`
    pub fn io(&self) -> Result<ModeRequest> {
        self.read("io", |text| {
            Ok(match text {
                "auto" => ModeRequest::Auto,
                "direct" => ModeRequest::Only(Mode::Direct),
                "uncached" => ModeRequest::Only(Mode::Uncached),
                "buffered" => ModeRequest::Only(Mode::Buffered),
                _ => return Err("choose one of auto, direct, uncached, buffered".to_owned()),
            })
        })
    }

    /// `listen`
    pub fn listen(&self) -> Result<Vec<SocketAddr>> {
        self.read("listen", |text| {
            let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
            if let ["none"] = parts[..] {
                return Ok(Vec::new());
            }
            parts
                .iter()
                .map(|part| match *part {
                    "none" => Err("none is for no address at all: leave it out beside others".to_owned()),
                    part => Ok(part),
                })
                .map(|part| {
                    let part = part?;
                    part.parse()
                        .map_err(|_| format!("{part} is no address with port, such as 127.0.0.1:5433"))
                })
                .collect()
        })
    }

    /// `max_connections`
    pub fn max_connections(&self) -> Result<usize> {
        self.read("max_connections", |text| match text.parse() {
            Ok(number @ 1..=10_000) => Ok(number),
            _ => Err("give a number from 1 to 10000".to_owned()),
        })
    }

    /// `port`
    pub fn port(&self) -> Result<u16> {
        self.read("port", |text| match text.parse() {
            Ok(number @ 1..) => Ok(number),
            _ => Err("give a number from 1 to 65535".to_owned()),
        })
    }

    /// Certificate and key.
    pub fn tls(&self) -> Result<Option<(PathBuf, PathBuf)>> {
        match (self.path("tls_certificate"), self.path("tls_key")) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::Setup("tls_certificate needs tls_key".to_owned())),
            (None, Some(_)) => Err(Error::Setup("tls_key needs tls_certificate".to_owned())),
        }
    }

    /// What was asked for and what came of it. `effective`: by name, value and reason, where they are not the request.
    pub fn report(&self, effective: &[(&str, String, String)]) -> Vec<Report> {
        let report = |definition: &Definition| {
            let (requested, source) =
                self.values.get(definition.name).cloned().unwrap_or_else(|| (String::new(), Source::Default));
            let found = effective.iter().find(|(name, _, _)| *name == definition.name);
            let (effective, reason) = found.map_or_else(
                || (self.shown(definition.name), String::new()),
                |(_, value, why)| (value.clone(), why.clone()),
            );
            let is_place = PLACES.contains(&definition.name);
            Report { name: definition.name.to_owned(), requested, effective, source, reason, is_place }
        };
        DEFINITIONS.iter().map(report).collect()
    }

    /// A value in the form in which all values of its kind are shown.
    fn shown(&self, name: &'static str) -> String {
        let text = self.text(name);
        if let (true, Ok(bytes)) = (matches!(name, "memory" | "wal_limit"), parse_size(text)) {
            return format_size(bytes);
        }
        if let (true, Ok(duration)) = (
            matches!(name, "max_delay" | "shutdown_limit" | "snapshot_limit" | "job_latency_target"),
            parse_duration(text),
        ) {
            return format_duration(duration);
        }
        text.to_owned()
    }
}

/// The setting of this name.
fn definition(name: &str, source: Source) -> Result<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name).ok_or_else(|| {
        let hint = nearest(name).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        Error::Setup(format!("unknown setting {name} ({source}){hint}"))
    })
}

/// The setting whose name is most like this one.
fn nearest(name: &str) -> Option<&'static str> {
    let near =
        |d: &'static Definition| Some((strsim::jaro(name, d.name), d.name)).filter(|(near, _)| *near > 0.7);
    let best = DEFINITIONS.iter().filter_map(near).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_strongest_source_wins_and_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        std::fs::write(
            &file,
            "memory = \"1GiB\"\nmax_connections = 7\nlisten = [\"127.0.0.1:1\", \"[::1]:2\"]\n",
        )
        .unwrap();
        let environment = [pair("GANNET_MEMORY", "2GiB"), pair("HOME", "x"), pair("GANNET_MAX_DELAY", "1s")];
        let settings = Settings::gather(Some(&file), environment, [pair("max-delay", "50ms")]).unwrap();
        assert_eq!(settings.size("memory").unwrap(), 2 << 30);
        assert_eq!(settings.duration("max_delay").unwrap(), Duration::from_millis(50));
        assert_eq!(settings.max_connections().unwrap(), 7);
        assert_eq!(settings.listen().unwrap().len(), 2);
        let report = settings.report(&[("io", "buffered".to_owned(), "no O_DIRECT here".to_owned())]);
        let of = |name: &str| report.iter().find(|report| report.name == name).unwrap();
        assert_eq!((of("memory").source, of("memory").effective.as_str()), (Source::Environment, "2GiB"));
        assert_eq!((of("io").effective.as_str(), of("io").reason.as_str()), ("buffered", "no O_DIRECT here"));
        assert_eq!(of("shutdown_limit").source, Source::Default);
    }

    #[test]
    fn every_file_and_folder_is_a_place() {
        for definition in DEFINITIONS {
            let is_place = definition.unit.starts_with("file") || definition.unit.starts_with("folder");
            assert_eq!(PLACES.contains(&definition.name), is_place, "{}", definition.name);
        }
        let report = Settings::default().report(&[]);
        assert!(report.iter().any(|report| report.name == "archive" && report.is_place));
    }

    #[test]
    fn every_default_is_valid() {
        let settings = Settings::default();
        settings.size("memory").unwrap();
        settings.size("wal_limit").unwrap();
        settings.duration("max_delay").unwrap();
        settings.duration("shutdown_limit").unwrap();
        settings.snapshot_limit().unwrap();
        settings.duration("job_latency_target").unwrap();
        settings.switch("insecure_trust").unwrap();
        settings.io().unwrap();
        settings.listen().unwrap();
        settings.max_connections().unwrap();
        settings.tls().unwrap();
    }

    #[test]
    fn temporary_files_go_to_a_folder_on_a_device() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let of = |path: &Path| {
            let settings = Settings::gather(None, [], [pair("temp_folder", path.to_str().unwrap())]).unwrap();
            settings.temp_folder().map_err(|error| error.to_string())
        };
        assert_eq!(of(folder.path()).unwrap().as_deref(), Some(folder.path()));
        assert_eq!(Settings::default().temp_folder().unwrap(), None);
        let missing = folder.path().join("missing");
        for (path, words) in
            [(&file, "it is no folder"), (&missing, "No such file"), (&"/dev/shm".into(), "memory")]
        {
            let error = of(path).unwrap_err();
            assert!(error.contains("setting temp_folder") && error.contains(words), "{error}");
        }
        assert!(!missing.exists());
    }

    #[test]
    fn only_true_in_the_file_lets_in_without_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        for (value, on) in
            [("true", Some(true)), ("false", Some(false)), ("\"yes\"", None), ("\"off\"", None), ("1", None)]
        {
            std::fs::write(&file, format!("insecure_trust = {value}\n")).unwrap();
            let read = Settings::gather(Some(&file), [], []);
            match on {
                Some(on) => assert_eq!(read.unwrap().switch("insecure_trust").unwrap(), on),
                None => {
                    let error = read.unwrap_err().to_string();
                    let words = "insecure_trust has to be true or false";
                    assert!(error.contains("gannet.toml") && error.contains(words), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_list_was_taken_for_a_name_with_commas() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Settings::gather(Some(&file), [], []).map_err(|error| error.to_string())
        };
        for (text, words) in [
            ("archive = [\"/one\", \"/two\"]\n", "archive cannot be a value of type array"),
            ("listen = [1]\n", "listen has to be a list of strings"),
            ("archiv = [\"/one\"]\n", "unknown setting archiv (file); did you mean archive?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let settings = read("sweep_window = [\"22:00-06:00\", \"12:00-13:00\"]\n").unwrap();
        assert!(settings.sweep_window().unwrap().is_some());
    }

    #[test]
    fn nothing_is_silently_ignored() {
        for (name, value, words) in
            [("memroy", "1GiB", "did you mean memory?"), ("qqqq", "1", "unknown setting qqqq (flag)")]
        {
            let error = Settings::gather(None, [], [pair(name, value)]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let settings = Settings::gather(
            None,
            [],
            [pair("memory", "lots"), pair("listen", "here"), pair("tls-key", "k")],
        );
        let settings = settings.unwrap();
        assert!(
            settings.size("memory").unwrap_err().to_string().contains("setting memory = \"lots\" (flag)")
        );
        assert!(settings.listen().unwrap_err().to_string().contains("here is no address"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gannet.toml");
        std::fs::write(&file, "max_connections = 0\n").unwrap();
        let error = Settings::gather(Some(&file), [], []).unwrap().max_connections().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("setting max_connections = \"0\" (file {}): ", file.display())),
            "{error}"
        );
        assert!(settings.tls().unwrap_err().to_string().contains("needs tls_certificate"));
        let listen = |text| Settings::gather(None, [], [pair("listen", text)]).unwrap().listen();
        assert!(listen("127.0.0.1:1,none").unwrap_err().to_string().contains("none is for no address"));
        assert!(listen(" none ,").unwrap().is_empty() && listen("").unwrap().is_empty());
    }
}
