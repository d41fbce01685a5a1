//! Anomalies written by hand, one history each, and their clean neighbours.

use super::{history, judge, names, transaction};
use crate::isolation::anomaly::Name;
use crate::isolation::check;
use crate::isolation::history::Level;

/// Exactly these are found.
#[track_caller]
fn finds(transactions: &[&str], expected: &[Name]) {
    let history = history(transactions);
    let report = judge(&history);
    assert_eq!(names(&report), expected, "{}", report.explain(&history, 10));
}

#[track_caller]
fn clean(transactions: &[&str]) {
    finds(transactions, &[]);
}

#[test]
fn g0_is_writes_that_are_interleaved() {
    for level in ["rc", "rr"] {
        let [first, second] = ["append x 1 | append y 1", "append x 2 | append y 2"];
        let (first, second) = (format!("{level}: {first}"), format!("{level}: {second}"));
        finds(&[&first, &second, "rc: read x 1 2", "rc: read y 2 1"], &[Name::DirtyWrite]);
        clean(&[&first, &second, "rc: read x 1 2", "rc: read y 1 2"]);
    }
    // Within one list.
    let three = ["rc: append x 1 | append x 3", "rc: append x 2", "rc: read x 1 2 3"];
    finds(&three, &[Name::DirtyWrite]);
}

#[test]
fn g1a_is_to_see_what_is_rolled_back() {
    finds(&["rc aborted: append x 1", "rc: read x 1"], &[Name::AbortedRead]);
    finds(&["rc aborted: append s 1", "rc: read s 1"], &[Name::AbortedRead]);
    finds(&["rc aborted: append x 1", "rc aborted: read x 1"], &[Name::AbortedRead]);
    clean(&["rc aborted: append x 1 | read x 1", "rc: read x"]);
}

#[test]
fn g1a_is_to_see_what_went_back_to_a_savepoint() {
    let partly = "rc: append x 1 | savepoint | append x 2 | read x 1 2 | rollback | read x 1 | append x 3";
    finds(&[partly, "rc: read x 1 2 3"], &[Name::AbortedRead]);
    clean(&[partly, "rc: read x 1 3"]);
    // A savepoint that is released lives with the one around it.
    let nested = "rc: savepoint | savepoint | append x 1 | release | rollback | append x 2";
    finds(&[nested, "rc: read x 1 2"], &[Name::AbortedRead]);
    clean(&[nested, "rc: read x 2"]);
}

#[test]
fn g1b_is_to_see_a_part() {
    finds(&["rc: append x 1 | append x 2", "rc: read x 1", "rc: read x 1 2"], &[Name::IntermediateRead]);
    finds(&["rc: append s 1 | append s 2", "rc: read s 2"], &[Name::IntermediateRead]);
    clean(&["rc: append x 1 | read x 1 | append x 2", "rc: read x", "rc: read x 1 2"]);
}

#[test]
fn g1c_is_a_circle_of_reads() {
    let circle = ["rc: append x 1 | read y 2", "rc: append y 2 | read x 1"];
    finds(&circle, &[Name::CircularFlow]);
    finds(&["rc: append s 1 | read t 2", "rc: append t 2 | read s 1"], &[Name::CircularFlow]);
    clean(&["rc: append x 1 | read y 2", "rc: append y 2 | read x"]);
}

#[test]
fn each_statement_reads_one_state() {
    let writer = "rc: append x 1 | append y 1";
    for reader in ["rc: read x 1; read y", "rc aborted: read x 1; read y", "rc: read x | read x 1; read y"] {
        finds(&[writer, reader], &[Name::ReadSkew]);
    }
    // Two statements may read two.
    clean(&[writer, "rc: read x | read y 1"]);
    // But not an older one after a newer one.
    finds(&[writer, "rc: read x 1 | read y"], &[Name::ReadSkew]);
    finds(&["rc: append s 1 | append t 1", "rc: read s 1; read t"], &[Name::ReadSkew]);
}

#[test]
fn a_snapshot_is_one_state() {
    let writer = "rc: append x 1 | append y 1";
    finds(&[writer, "rr: read x | read y 1"], &[Name::ReadSkew]);
    finds(&[writer, "rr: read x | read x 1"], &[Name::ReadSkew]);
    clean(&[writer, "rr: read x 1 | read y 1", "rr: read y | read x"]);
    // Through somebody else's work.
    let through = ["rc: append x 1", "rc: read x 1 | append y 2"];
    finds(&[through[0], through[1], "rr: read y 2 | read x"], &[Name::ReadSkew]);
}

#[test]
fn who_reads_a_version_writes_the_next_one() {
    let both = ["rr: read x | append x 1", "rr: read x | append x 2"];
    finds(&[both[0], both[1], "rc: read x 1 2"], &[Name::LostUpdate]);
    clean(&[both[0], "rr: read x 1 | append x 2", "rc: read x 1 2"]);
    // READ COMMITTED promises nothing of the kind.
    clean(&["rc: read x | append x 1", "rc: read x | append x 2", "rc: read x 1 2"]);
    // Nor does one that was rolled back count.
    clean(&[both[0], "rr aborted: read x | append x 2", "rc: read x 1"]);
}

#[test]
fn snapshots_see_commits_in_one_order() {
    let writers = ["rr: append x 1", "rr: append y 2"];
    let readers = ["rr: read x 1 | read y", "rr: read x | read y 2"];
    finds(&[writers[0], writers[1], readers[0], readers[1]], &[Name::NonAdjacent]);
    clean(&[writers[0], writers[1], readers[0], "rr: read x 1 | read y 2"]);
}

#[test]
fn write_skew_is_for_serializable_transactions_to_avoid() {
    let skew = |level: &str| {
        let first = format!("{level}: read x; read y | append x 1");
        let second = format!("{level}: read x; read y | append y 2");
        history(&[&first, &second, "rc: read x 1; read y 2"])
    };
    assert_eq!(names(&judge(&skew("rr"))), []);
    assert_eq!(names(&judge(&skew("serializable"))), [Name::AntiDependency]);
    let as_serializable = check::check_as(&skew("rr"), Some(Level::Serializable)).unwrap();
    assert_eq!(names(&as_serializable), [Name::AntiDependency]);
    // By predicates: each asks for what the other adds.
    let phantoms = ["serializable: read s; read t | append s 1", "serializable: read s; read t | append t 2"];
    finds(&phantoms, &[Name::AntiDependency]);
}

#[test]
fn a_locked_row_is_nobody_elses() {
    let locker = |end: &str| format!("rc: lock x{end} | append y 5");
    // The other wrote while the lock was held, as it saw nothing of the locker's commit, and the locker knew its work.
    let other = ["rc: append x 1 | append z 9", "rc: read x 1; read y | append z 7"];
    let reads_on = format!("{} | read z 9", locker(""));
    finds(&[&reads_on, other[0], "rc: read z 9; read x 1"], &[Name::LockBroken]);
    let no_lock = reads_on.replace("lock", "read");
    clean(&[&no_lock, other[0], "rc: read z 9; read x 1"]);
    // Going back to a savepoint before the lock gives it back.
    let given_back = "rc: savepoint | lock x | rollback | append y 5 | read z 9";
    clean(&[given_back, other[0], "rc: read z 9; read x 1"]);
}

#[test]
fn a_locked_row_is_read_as_it_is() {
    // The statement's snapshot may be older than the row that it waited for.
    let writer = "rc: append x 1 | append y 1";
    clean(&[writer, "rc: read y; lock x 1"]);
    // Not so under a snapshot of the transaction.
    finds(&[writer, "rr: read y; lock x 1"], &[Name::ReadSkew]);
}

#[test]
fn what_is_acknowledged_is_seen_by_who_begins_later() {
    for reader in ["rc 30-40: read x", "rr 30-40: read x"] {
        let writers = ["rc 10-20: append x 1", "rc 10-90: read x 1"];
        let history = history(&[writers[0], writers[1], reader, "rc 50-60: read x 1"]);
        let report = judge(&history);
        assert_eq!(names(&report), [Name::ReadSkew]);
        assert!(report.anomalies[0].realtime);
    }
    clean(&["rc 10-35: append x 1", "rc 30-40: read x", "rc 50-60: read x 1"]);
}

#[test]
fn a_snapshot_is_taken_by_the_first_statement_that_looks() {
    let told = |first: &str| {
        let mut history = history(&["rc 20-30: append x 1", "rc 50-60: read x 1"]);
        let mut reader = transaction(&format!("rr 10-15: {first} | read x 1"));
        let last = &mut reader.statements[1];
        (last.sent, last.answered) = (40, Some(45));
        (reader.end_sent, reader.end_answered) = (46, Some(47));
        if first == "read s" {
            reader.statements[0].actions.clear();
        }
        history.transactions.push(reader);
        names(&judge(&history))
    };
    assert_eq!(told("savepoint"), []);
    assert_eq!(told("read y"), [Name::CircularFlow]);
    // One that failed has taken it, too.
    assert_eq!(told("read s"), [Name::CircularFlow]);
}

#[test]
fn a_state_once_seen_is_not_followed_by_an_older_one() {
    let seen = ["rc unknown 0-0: append x 1", "rr 10-20: read x 1", "rr 30-40: read x", "rr 50-60: read x 1"];
    finds(&seen, &[Name::ReadSkew]);
    clean(&[seen[0], seen[1], "rr 15-40: read x", seen[3]]);
}

#[test]
fn acknowledged_appends_are_found_later() {
    for key in ["x", "s"] {
        let writer = format!("rc 10-20: append {key} 1");
        finds(&[&writer, &format!("rc 30-40: read {key}")], &[Name::LostAppend, Name::ReadSkew]);
    }
    clean(&["rc 10-20: append x 1", "rc 15-40: read x"]);
    clean(&["rc aborted 10-20: append x 1", "rc 30-40: read x"]);
}

#[test]
fn an_unknown_end_may_be_either_but_not_half() {
    let unknown = "rc unknown 10-20: append x 1 | append y 1";
    clean(&[unknown, "rc 30-40: read x; read y"]);
    clean(&[unknown, "rc 30-40: read x 1; read y 1"]);
    clean(&[unknown, "rc 15-18: read x; read y", "rc 30-40: read x 1; read y 1"]);
    finds(&[unknown, "rc 30-40: read x 1 | read y"], &[Name::ReadSkew]);
    finds(&[unknown, "rc 30-40: read x 1", "rc 50-60: read y"], &[Name::LostAppend, Name::ReadSkew]);
    // Seen once, gone for good.
    finds(&[unknown, "rc 30-40: read x 1", "rc 50-60: read x"], &[Name::LostAppend, Name::ReadSkew]);
}

#[test]
fn reads_of_a_list_begin_each_other() {
    let writers = ["rc: append x 1", "rc: append x 2", "rc: append x 3"];
    for wrong in ["rc: read x 2 1", "rc: read x 1 3", "rc: read x 3"] {
        let history = history(&[writers[0], writers[1], writers[2], "rc: read x 1 2 3", wrong]);
        assert!(judge(&history).has(Name::IncompatibleOrder), "{wrong}");
    }
    clean(&[writers[0], writers[1], writers[2], "rc: read x 1 2 3", "rc: read x", "rc: read x 1 2"]);
}

#[test]
fn values_are_there_once_and_from_somebody() {
    finds(&["rc: append x 1", "rc: read x 1 1"], &[Name::Duplicate]);
    finds(&["rc: append s 1", "rc: read s 1 1"], &[Name::Duplicate]);
    finds(&["rc: read x 7"], &[Name::Unwritten]);
    finds(&["rc: read s 7"], &[Name::Unwritten]);
}

#[test]
fn ones_own_writes_are_seen() {
    finds(&["rr: append x 1 | read x"], &[Name::Internal]);
    finds(&["rc: append s 1 | append s 2 | read s 2"], &[Name::Internal]);
    finds(&["rc: append x 1 | append x 2 | read x 2 1"], &[Name::Internal]);
    finds(&["rc: savepoint | append x 1 | rollback | read x 1"], &[Name::Internal]);
    clean(&["rc: append s 1 | append s 2 | read s 2 1", "rc aborted: append x 1 | read x 1"]);
}
