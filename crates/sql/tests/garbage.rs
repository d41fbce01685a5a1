//! No text panics or hangs a session: the statements of the recorded cases, mutated by seed, and some of extreme size.
//!
//! `GANNET_GARBAGE_SEED` and `GANNET_GARBAGE_TEXTS` replay or widen the search.

use gannet_sql::session::Rows;
use gannet_sql::{Database, Session};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

const PIECES: [&str; 28] = [
    "(",
    ")",
    ",",
    "'",
    "\"",
    "null",
    "select",
    "from",
    "where",
    "-",
    "*",
    "::",
    "[",
    "]",
    "$1",
    ";",
    "e'\\",
    "9223372036854775808",
    "1e400",
    "é",
    "not",
    "in",
    "(select 1)",
    "group by",
    "order by",
    "case",
    "end",
    "'nan'",
];

fn session(folder: &std::path::Path) -> Session {
    let engine =
        Engine::new(&EngineOptions { memory: 64 << 20, temp_folder: Some(folder.to_owned()) }).unwrap();
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let path = folder.join("garbage.gnt");
    let database = Database::create(&engine, &path, &create, &OpenOptions::default(), "postgres").unwrap();
    database.session("postgres").unwrap()
}

/// The statements of the recorded cases.
fn statements() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut statements = Vec::new();
    for file in files.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "case")) {
        let text = std::fs::read_to_string(file).unwrap();
        statements.extend(
            text.split("\n\n").filter_map(|case| case.split_once("\n----")).map(|(s, _)| s.to_owned()),
        );
    }
    statements
}

fn mutate(random: &mut Random, statements: &[String]) -> String {
    let mut words: Vec<String> =
        statements[random.below(statements.len())].split(' ').map(str::to_owned).collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(words.len());
        match random.below(6) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, PIECES[random.below(PIECES.len())].to_owned()),
            2 => words[at] = PIECES[random.below(PIECES.len())].to_owned(),
            3 => {
                let other = random.below(words.len());
                words.swap(at, other);
            }
            4 => {
                let other: Vec<&str> = statements[random.below(statements.len())].split(' ').collect();
                words.insert(at, other[random.below(other.len())].to_owned());
            }
            _ => {
                let mut letters: Vec<char> = words[at].chars().collect();
                if !letters.is_empty() {
                    let letter = random.below(letters.len());
                    letters[letter] = char::from(32 + random.below(95) as u8);
                }
                words[at] = letters.into_iter().collect();
            }
        }
        if words.is_empty() {
            words.push(String::new());
        }
    }
    words.join(" ")
}

/// What a session says; a panic is told with the text.
fn survive(session: &mut Session, sql: &str) -> Result<(), gannet_sql::Error> {
    catch_unwind(AssertUnwindSafe(|| session.run(sql, &mut Rows::default())))
        .unwrap_or_else(|_| panic!("a panic of: {}", sql.chars().take(2000).collect::<String>()))
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn mutated_statements_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(folder.path());
    session.run("set statement_timeout = '10s'", &mut Rows::default()).unwrap();
    let statements = statements();
    let seed = number("GANNET_GARBAGE_SEED", 1);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for text in 0..number("GANNET_GARBAGE_TEXTS", 3000) {
        let sql = if text % 3 == 0 {
            statements[random.below(statements.len())].clone()
        } else {
            mutate(&mut random, &statements)
        };
        if let Err(error) = survive(&mut session, &sql) {
            let state = error.state().to_string();
            assert!(state != "XX000" && state != "57014", "{error}\n{sql}");
        }
    }
}

#[test]
fn extreme_statements_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = session(folder.path());
    let list = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let columns = |count: usize| (0..count).map(|n| format!("c{n} int")).collect::<Vec<_>>().join(",");
    let mut wrong = Vec::new();
    for (sql, state) in [
        (format!("select 9999 in ({})", list(10_000)), None),
        (format!("select '{}'", "x".repeat(5 << 20)), None),
        (format!("select 1{}", "0".repeat(100_000)), None),
        (format!("select 1{}", "0".repeat(200_000)), Some("22003")),
        (format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000)), Some("54001")),
        (format!("select {}1", "- ".repeat(5_000)), Some("54001")),
        (format!("select 1{}", "+1".repeat(400)), None),
        (format!("select 1{}", "+1".repeat(5_000)), Some("54001")),
        (format!("select {}", "case when true then ".repeat(5_000)), Some("54001")),
        (format!("select 1{}", "+1".repeat(100_000)), Some("53200")),
        (format!("create table wide ({})", columns(1600)), None),
        (format!("create table wider ({})", columns(1601)), Some("54011")),
        (format!("insert into wide values ({})", list(1600)), None),
        ("update wide set c0 = 1, c1599 = c1".to_owned(), None),
        (format!("insert into wide values ({})", list(1601)), Some("42601")),
        (format!("select {}", list(1665)), Some("54011")),
        ("create table long (a text, b bytea)".to_owned(), None),
        ("insert into long values (repeat('y', 3000000), '\\x00')".to_owned(), None),
        ("create table keyed (a text primary key)".to_owned(), None),
        ("insert into keyed values (repeat('y', 3000000))".to_owned(), Some("54000")),
        ("select repeat('x', 2000000000)".to_owned(), Some("54000")),
    ] {
        let found = survive(&mut session, &sql).err().map(|error| error.state().to_string());
        if found.as_deref() != state {
            wrong.push(format!("{found:?} not {state:?}: {}", &sql[..sql.len().min(80)]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
