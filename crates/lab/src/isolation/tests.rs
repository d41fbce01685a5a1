//! The checker, tried: anomalies planted by hand and into generated histories have to be found, and clean histories are left in peace.

mod mutated;
mod planted;
mod simulator;

use super::anomaly::{Name, Report};
use super::check;
use super::history::{Action, History, Key, Level, Outcome, Statement, Transaction};
use super::workload;

/// `x`, `y`, `z` are lists, `s`, `t` sets.
fn key(name: &str) -> Key {
    match name {
        "x" => Key::List(0),
        "y" => Key::List(1),
        "z" => Key::List(2),
        "s" => Key::Set(0),
        _ => Key::Set(1),
    }
}

fn action(text: &str) -> Action {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[0] {
        "append" => Action::Append { key: key(words[1]), value: words[2].parse().unwrap() },
        "savepoint" => Action::Savepoint,
        "rollback" => Action::RollbackTo,
        "release" => Action::Release,
        word => Action::Read {
            key: key(words[1]),
            values: words[2..].iter().map(|value| value.parse().unwrap()).collect(),
            locked: word == "lock",
        },
    }
}

/// A transaction written as `LEVEL [aborted|unknown] [FROM-TO]: STATEMENT | STATEMENT`, a statement as `ACTION; ACTION`. Without
/// times it took place beside all others.
fn transaction(text: &str) -> Transaction {
    let (head, body) = text.split_once(':').unwrap();
    let mut words = head.split_whitespace();
    let level = match words.next() {
        Some("rc") => Level::ReadCommitted,
        Some("rr") => Level::RepeatableRead,
        _ => Level::Serializable,
    };
    let (mut outcome, mut times) = (Outcome::Committed, (0, 1000));
    for word in words {
        match word.split_once('-') {
            Some((from, to)) => times = (from.parse().unwrap(), to.parse().unwrap()),
            None if word == "aborted" => outcome = Outcome::Aborted,
            None => outcome = Outcome::Unknown,
        }
    }
    let (sent, answered) = (times.0, Some(times.1));
    let statements = body
        .split('|')
        .map(|statement| Statement { sent, answered, actions: statement.split(';').map(action).collect() })
        .collect();
    let end_answered = answered.filter(|_| outcome != Outcome::Unknown);
    Transaction { session: 0, level, statements, outcome, end_sent: sent, end_answered }
}

fn history(transactions: &[&str]) -> History {
    History { transactions: transactions.iter().map(|text| transaction(text)).collect() }
}

fn judge(history: &History) -> Report {
    check::check(history).unwrap()
}

/// The names of what is found, each once.
fn names(report: &Report) -> Vec<Name> {
    let mut names: Vec<Name> = report.anomalies.iter().map(|anomaly| anomaly.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn a_history_comes_back_from_its_file() {
    let written = history(&["rr 1-2: append x 1; lock x 1 | savepoint | append s 2", "rc unknown: read x 1"]);
    let mut file = Vec::new();
    written.write(&mut file).unwrap();
    assert_eq!(History::read(&file[..]).unwrap(), written);
    assert!(History::read(&b"{}\n"[..]).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn one_value_appended_twice_is_no_history() {
    let twice = history(&["rr: append x 1", "rr: append x 1"]);
    assert!(check::check(&twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn rows_are_read_as_what_they_say() {
    let answer = |rows: &[[&str; 3]]| super::client::Answer {
        rows: rows.iter().map(|row| row.iter().map(|value| Some((*value).to_owned())).collect()).collect(),
        tag: String::new(),
    };
    let keys = [Key::List(0), Key::Set(2), Key::List(1)];
    let found =
        workload::reads(&keys, &answer(&[["0", "0", "--,1,2"], ["2", "2", ",5"], ["2", "2", ",7"]]), false);
    let read = |key, values: &[u64]| Action::Read { key, values: values.to_vec(), locked: false };
    assert_eq!(
        found.unwrap(),
        [read(keys[0], &[1, 2]), read(keys[1], &[5, 7]), read(keys[2], &[])],
        "a list that is not there is empty"
    );
    let doubled = workload::reads(&keys[..1], &answer(&[["0", "0", ",1"], ["0", "0", ",1"]]), false);
    assert_eq!(doubled.unwrap(), [read(keys[0], &[1, 1])]);
    assert!(workload::reads(&keys[..1], &answer(&[["0", "7", ",1"]]), false).is_err());
}
