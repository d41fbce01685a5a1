//! Where a server is and who wants in: `postgres://` addresses and libpq's `key=value` words, with libpq's variables as defaults.

use std::path::PathBuf;
use std::time::Duration;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A folder with Unix sockets.
    Unix(PathBuf),
    /// A name or address, by TCP.
    Name(String),
}

/// How much TLS matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SslMode {
    /// None.
    Disable,
    /// Where the server has it.
    #[default]
    Prefer,
    /// Or no connection.
    Require,
    /// And the server's certificate has to be signed by a given root and bear its name.
    VerifyFull,
}

impl SslMode {
    /// As libpq calls it.
    pub fn name(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyFull => "verify-full",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "disable" => Ok(SslMode::Disable),
            "prefer" => Ok(SslMode::Prefer),
            "require" => Ok(SslMode::Require),
            "verify-full" => Ok(SslMode::VerifyFull),
            "allow" | "verify-ca" => {
                Err(format!("sslmode={text} is not implemented: use disable, prefer, require or verify-full"))
            }
            _ => Err(format!("there is no sslmode {text:?}: disable, prefer, require, verify-full")),
        }
    }
}

/// Where a server is, and who wants to work in which database.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The server's host.
    pub host: Host,
    /// Its port, or the number in its Unix socket's name.
    pub port: u16,
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// How much TLS matters.
    pub ssl: SslMode,
    /// Certificates that may sign the server's.
    pub root_certificate: Option<PathBuf>,
    /// `application_name`
    pub application: Option<String>,
    /// Settings for the session: `-c name=value`
    pub options: Option<String>,
    /// How long it may take to be let in.
    pub connect_timeout: Option<Duration>,
}

/// Without the password.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{:?}:{}/{}", self.user, self.host, self.port, self.database)
    }
}

impl Address {
    /// Whether a text is meant as an address, and not as the name of a file.
    pub fn is_address(text: &str) -> bool {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return true;
        }
        let first = text.split_whitespace().next().and_then(|word| word.split_once('='));
        first.is_some_and(|(name, _)| KEYS.contains(&name))
    }

    /// Reads an address. `variable` looks up libpq's environment variables, `user` is the system's.
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        user: &str,
    ) -> Result<Address, String> {
        let mut words = Vec::new();
        match text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
            Some(rest) => read_url(rest, &mut words)?,
            None => read_words(text, &mut words)?,
        }
        let get = |name: &str, variable_name: &str| {
            let given = words.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
            given.or_else(|| variable(variable_name)).filter(|value| !value.is_empty())
        };
        let host = get("host", "PGHOST").unwrap_or_else(|| "127.0.0.1".to_owned());
        if host.contains(',') {
            return Err("an address with several hosts is not implemented".to_owned());
        }
        let port = get("port", "PGPORT").unwrap_or_else(|| "5432".to_owned());
        let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        let user = get("user", "PGUSER").unwrap_or_else(|| user.to_owned());
        let timeout = get("connect_timeout", "PGCONNECT_TIMEOUT");
        let timeout = timeout
            .map(|text| {
                text.parse().map_err(|_| format!("connect_timeout: {text:?} is no number of seconds"))
            })
            .transpose()?;
        Ok(Address {
            host: if host.starts_with('/') { Host::Unix(host.into()) } else { Host::Name(host) },
            port,
            password: get("password", "PGPASSWORD"),
            database: get("dbname", "PGDATABASE").unwrap_or_else(|| user.clone()),
            ssl: get("sslmode", "PGSSLMODE").map_or(Ok(SslMode::default()), |text| SslMode::parse(&text))?,
            root_certificate: get("sslrootcert", "PGSSLROOTCERT").map(PathBuf::from),
            application: get("application_name", "PGAPPNAME"),
            options: get("options", "PGOPTIONS"),
            connect_timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            user,
        })
    }
}

/// What an address can say.
const KEYS: [&str; 10] = [
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "sslmode",
    "sslrootcert",
    "application_name",
    "options",
    "connect_timeout",
];

fn push(words: &mut Vec<(String, String)>, key: &str, value: String) -> Result<(), String> {
    // Other spellings of the same.
    let key = match key {
        "hostaddr" => "host",
        "database" => "dbname",
        key => key,
    };
    match key {
        // The server decides; that ours asks for nothing else is the same as saying so.
        "client_encoding" if value.eq_ignore_ascii_case("utf8") || value == "auto" => return Ok(()),
        _ if !KEYS.contains(&key) => {
            return Err(format!("the address's {key:?} is not implemented; there are {}", KEYS.join(", ")));
        }
        _ => {}
    }
    words.push((key.to_owned(), value));
    Ok(())
}

fn read_url(rest: &str, words: &mut Vec<(String, String)>) -> Result<(), String> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    // An IPv6 address stands in brackets.
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => place.rsplit_once(':').unwrap_or((place, "")),
    };
    for (key, value) in
        [("user", user), ("password", password), ("host", host), ("port", port), ("dbname", database)]
    {
        if !value.is_empty() {
            push(words, key, decode(value)?)?;
        }
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| format!("the address's {pair:?} has no value"))?;
        push(words, &decode(key)?, decode(value)?)?;
    }
    Ok(())
}

/// Takes `%41` for `A`.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} in the address is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &rest[2..];
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    if text.contains('\0') { Err(wrong()) } else { Ok(text) }
}

/// `key=value key='value with \' and blanks'`
fn read_words(text: &str, words: &mut Vec<(String, String)>) -> Result<(), String> {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=').ok_or_else(|| format!("missing \"=\" after {rest:?}"))?;
        let mut characters = behind.trim_start().char_indices();
        let behind = behind.trim_start();
        let mut value = String::new();
        let quoted = behind.starts_with('\'');
        if quoted {
            characters.next();
        }
        let mut end = behind.len();
        let mut closed = !quoted;
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => value.extend(characters.next().map(|(_, character)| character)),
                '\'' if quoted => {
                    end = at + 1;
                    closed = true;
                    break;
                }
                blank if blank.is_whitespace() && !quoted => {
                    end = at;
                    break;
                }
                other => value.push(other),
            }
        }
        if !closed {
            return Err("the address has a quote that is not closed".to_owned());
        }
        push(words, key.trim(), value)?;
        rest = behind[end..].trim_start();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text, &|_| None, "me")
    }

    #[test]
    fn an_address_is_taken_apart() {
        let full =
            parse("postgres://a%40b:p%3A:w@[::1]:5433/my%20db?sslmode=require&application_name=x").unwrap();
        assert_eq!(full.user, "a@b");
        assert_eq!(full.password.as_deref(), Some("p::w"));
        assert_eq!((full.host, full.port), (Host::Name("::1".into()), 5433));
        assert_eq!((full.database.as_str(), full.ssl), ("my db", SslMode::Require));
        let short = parse("postgresql:///").unwrap();
        assert_eq!((short.user.as_str(), short.database.as_str(), short.port), ("me", "me", 5432));
        let words = parse("host=/tmp/x  port=5511 user='o\\'neil x' password='' dbname = shop").unwrap();
        assert_eq!(words.host, Host::Unix("/tmp/x".into()));
        assert_eq!(
            (words.user.as_str(), words.password, words.database.as_str()),
            ("o'neil x", None, "shop")
        );
    }

    #[test]
    fn variables_are_defaults() {
        let variable = |name: &str| (name == "PGPORT").then(|| "77".to_owned());
        assert_eq!(Address::parse("postgres://h/d", &variable, "me").unwrap().port, 77);
        assert_eq!(Address::parse("postgres://h:5/d", &variable, "me").unwrap().port, 5);
    }

    #[test]
    fn what_is_wrong_or_not_implemented_is_named() {
        for (text, names) in [
            ("postgres://h:x/d", "port"),
            ("postgres://h/d?sslmode=verify-ca", "verify-ca"),
            ("postgres://h/d?target_session_attrs=any", "target_session_attrs"),
            ("postgres://h/%4", "percent"),
            ("host=a,b dbname=x", "several hosts"),
            ("host='a", "not closed"),
            ("host=a dbname", "missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        }
        assert!(!format!("{:?}", parse("postgres://u:secret@h/d").unwrap()).contains("secret"));
    }

    #[test]
    fn a_file_is_no_address() {
        for text in ["data.gnt", "a=b.gnt", "./host=x", "postgres"] {
            assert!(!Address::is_address(text), "{text}");
        }
        assert!(Address::is_address("host=x") && Address::is_address("postgres://"));
    }
}
