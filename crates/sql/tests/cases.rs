//! Recorded statements with PostgreSQL 15's answers: `cases/*.case`, one file a feature, each in a database of its own.
//!
//! A case is a statement, `----`, the answer, and an empty line. What `record.py` wrote into the answer came from
//! PostgreSQL 15; a case whose first line is `-- gannet: why` differs on purpose, and its answer is ours
//! (`GANNET_CASES_WRITE=1` rewrites those). Lines between `<<<<` and `----` are the data of COPY FROM STDIN.
//!
//! An answer is the rows below a line of `name:type` pairs, the command's tag, or `SQLSTATE message`. Rows
//! count in their order where the statement says ORDER BY.
//!
//! Every file runs three times: as the planner likes it, with the smallest work memory, and under forced plans.

use gannet_sql::session::Rows;
use gannet_sql::{Database, Session};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A statement and what is expected of it.
struct Case {
    statement: String,
    input: String,
    answer: String,
    line: usize,
    /// Lines of the file that the answer takes, from 0.
    answer_lines: std::ops::Range<usize>,
}

impl Case {
    /// Whether the answer is Gannet's own.
    fn own(&self) -> bool {
        self.statement.starts_with("-- gannet:")
    }
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, first)) = lines.next() {
        if first.is_empty() || first.starts_with('#') {
            continue;
        }
        let mut parts = [String::from(first), String::new(), String::new()];
        let (mut part, mut answer_lines) = (0, 0..0);
        for (number, line) in lines.by_ref() {
            answer_lines.end = number + 1;
            match line {
                "<<<<" if part == 0 => part = 1,
                "----" if part < 2 => {
                    part = 2;
                    answer_lines.start = number + 1;
                }
                "" if part == 2 => {
                    answer_lines.end = number;
                    break;
                }
                line => {
                    if !parts[part].is_empty() || part == 1 {
                        parts[part].push('\n');
                    }
                    parts[part].push_str(line);
                }
            }
        }
        let [statement, input, answer] = parts;
        let input = input.strip_prefix('\n').map(|rows| format!("{rows}\n")).unwrap_or_default();
        cases.push(Case { statement, input, answer, line: number + 1, answer_lines });
    }
    cases
}

/// A value as one line of an answer shows it.
fn shown(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

fn run(session: &mut Session, case: &Case) -> String {
    let mut rows = Rows::default();
    rows.input = case.input.clone().into_bytes();
    if let Err(error) = session.run(&case.statement, &mut rows) {
        return shown_error(&error);
    }
    let mut out = String::new();
    if !rows.output.is_empty() {
        out.push_str(&String::from_utf8_lossy(&rows.output));
    }
    if !rows.columns.is_empty() {
        let head: Vec<String> = rows
            .columns
            .iter()
            .map(|column| format!("{}:{}", column.name, column.ty.internal_name()))
            .collect();
        _ = writeln!(out, "{}", head.join(" "));
        for (row, written) in rows.rows.iter().zip(rows.text()) {
            let values: Vec<String> = row
                .iter()
                .zip(written)
                .map(|(value, text)| if value.is_null() { "NULL".to_owned() } else { shown(&text) })
                .collect();
            _ = writeln!(out, "| {}", values.join(" | "));
        }
    }
    _ = write!(out, "{}", rows.tag.map(|tag| tag.to_string()).unwrap_or_default());
    out
}

fn shown_error(error: &gannet_sql::Error) -> String {
    format!("{} {}", error.state(), shown(&error.fields().message))
}

/// The answer as it is compared: without ORDER BY rows have no order.
fn comparable(case: &Case, answer: &str) -> Vec<String> {
    let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
    if !case.statement.to_ascii_lowercase().contains("order by") {
        lines.sort();
    }
    lines
}

fn database(folder: &Path, memory: u64) -> Database {
    let engine = Engine::new(&EngineOptions { memory, temp_folder: Some(folder.to_owned()) }).unwrap();
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let path = folder.join("cases.gnt");
    Database::create(&engine, &path, &create, &OpenOptions::default(), "postgres").unwrap()
}

fn files() -> Vec<PathBuf> {
    let only = std::env::var("GANNET_CASES_ONLY").unwrap_or_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "case"))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    files
}

/// Puts new answers into a file.
fn rewrite(file: &Path, answers: &[(std::ops::Range<usize>, String)]) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    for (place, answer) in answers.iter().rev() {
        lines.splice(place.clone(), answer.lines());
    }
    std::fs::write(file, lines.join("\n") + "\n").unwrap();
}

/// Runs every file after these settings; what differs is told in full.
fn check(settings: &[&str], memory: u64) {
    let write = std::env::var_os("GANNET_CASES_WRITE").is_some();
    let mut wrong = String::new();
    for file in files() {
        let mut answers = Vec::new();
        let folder = tempfile::tempdir().unwrap();
        let database = database(folder.path(), memory);
        let mut session = database.session("postgres").unwrap();
        for setting in settings {
            session.run(setting, &mut Rows::default()).unwrap();
        }
        for case in parse(&std::fs::read_to_string(&file).unwrap()) {
            let found = run(&mut session, &case);
            if write && case.own() {
                answers.push((case.answer_lines.clone(), found));
            } else if comparable(&case, &found) != comparable(&case, &case.answer) {
                let name = file.file_name().unwrap().to_string_lossy();
                _ = writeln!(
                    wrong,
                    "{name}:{}\n{}\n--- expected\n{}\n--- found\n{found}\n",
                    case.line, case.statement, case.answer
                );
            }
        }
        if !answers.is_empty() {
            rewrite(&file, &answers);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn answers_are_postgresqls() {
    check(&[], 64 << 20);
}

#[test]
fn the_same_when_everything_spills() {
    check(&["set work_mem = 1"], 32 << 20);
}

#[test]
fn the_same_with_indexes_and_nested_loops() {
    let off = ["seqscan", "hashjoin", "hashagg", "sort"].map(|switch| format!("set enable_{switch} = off"));
    check(&off.each_ref().map(String::as_str), 64 << 20);
}

#[test]
fn the_same_with_scans_and_hashes() {
    let off = ["indexscan", "indexonlyscan", "nestloop"].map(|switch| format!("set enable_{switch} = off"));
    check(&off.each_ref().map(String::as_str), 64 << 20);
}
