//! Isolation across crashes: `gannet serve` is killed in the midst of its work, again and again, and what its clients were told
//! before and after has to fit together.

use gannet_lab::isolation::check;
use gannet_lab::isolation::history::Outcome;
use gannet_lab::isolation::run::{self, Levels, Options};
use gannet_lab::isolation::spawned::Spawned;
use gannet_lab::isolation::workload::Keys;
use std::path::Path;

#[test]
fn what_was_acknowledged_or_seen_outlives_kills() {
    let folder = tempfile::tempdir().unwrap();
    let user = whoami::username().unwrap();
    let server = Spawned::start(Path::new(env!("CARGO_BIN_EXE_gannet")), folder.path(), &user).unwrap();
    let options = Options {
        seed: 1,
        sessions: 8,
        transactions: 1200,
        keys: Keys { count: 4, replace: true },
        levels: Levels::Mixed,
        crashes: 4,
    };
    let history = run::round(&server, &options).unwrap();
    let report = check::check(&history).unwrap();
    assert!(report.anomalies.is_empty(), "{}", report.explain(&history, 5));
    let last = history.transactions.last().unwrap();
    assert_eq!(last.outcome, Outcome::Committed, "all keys were read after the last crash");
    assert!(report.committed > 100, "{}", report.committed);
}
