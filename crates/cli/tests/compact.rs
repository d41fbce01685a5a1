//! `gannet compact` as its users meet it: files that nobody has open, files that a server has open, and what cannot be compacted.

mod common;

use common::{Served, ends};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A database of which nine rows of ten are gone; gives the bytes of those that are left.
fn worn(folder: &Path) -> u64 {
    let script = "create table orders (id bigint primary key, note text);
                  insert into orders select n, repeat('x', 300) from generate_series(1, 300000) as n;
                  create table later (id bigint primary key, note text);
                  create index by_note on later (note);
                  insert into later select n, 'note ' || n from generate_series(1, 1000) as n;
                  delete from orders where id * 7 % 10 <> 3;";
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", script], 0);
    // Each tree has an extent that is full in part only: this is large enough for that not to count.
    30_000 * 308 + 1000 * 32
}

/// Length, and bytes of the blocks that the file has.
fn size(folder: &Path) -> (u64, u64) {
    let found = std::fs::metadata(folder.join("shop.gnt")).unwrap();
    (found.len(), found.blocks() * 512)
}

fn count(folder: &Path) -> String {
    let sql = "select count(*), sum(id), (select count(*) from later where note = 'note 7') from orders";
    ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", sql], 0).0
}

#[test]
fn a_file_gives_its_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let live = worn(folder);
    let (before, rows) = (size(folder), count(folder));
    assert!(before.0 > 7 * live, "{before:?}");
    let (said, complaint) = ends(folder, &["compact", "shop.gnt"], 0);
    assert_eq!(complaint, "");
    assert!(said.starts_with("shop.gnt was compacted: ") && !said.contains("kept: "), "{said}");
    assert!(said.contains("pages were merged into others") && said.contains("MB/s: read"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    let (length, blocks) = size(folder);
    println!("{before:?}, {live} live, now {length} and {blocks}");
    assert!(length * 10 <= live * 13 && blocks * 10 <= live * 13, "{length} and {blocks} for {live}");
    assert_eq!(count(folder), rows);
    assert!(ends(folder, &["check", "shop.gnt"], 0).0.starts_with("shop.gnt is sound\n"));
    let (said, _) = ends(folder, &["compact", "shop.gnt", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["by_server"], false);
    assert_eq!(report["compaction"]["held"], serde_json::json!([]));
    assert!(report["compaction"]["file_bytes"].as_u64().unwrap() <= length, "{said}");
}

#[test]
fn a_file_that_a_server_has_open_is_compacted_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let live = worn(folder);
    let server = Served::start(folder, &["shop.gnt"]);
    let rows = count(folder);
    let (said, _) = ends(folder, &["compact", "shop.gnt", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["by_server"], true);
    let now = report["compaction"]["file_bytes"].as_u64().unwrap();
    assert!(now * 10 <= live * 13, "{said}");
    assert_eq!(count(folder), rows);
    // What a process of its own would need does not count.
    let (said, _) = ends(folder, &["compact", "shop.gnt", "--json", "--memory", "1000TiB"], 0);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["by_server"], true);
    let jobs = "select job || ' ' || state || ' ' || reason from gannet_jobs where job = 'compact'";
    let (said, _) = ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", jobs], 0);
    assert!(said.contains("compact done COMPACT DATABASE by "), "{said}");
    let (said, _) = ends(folder, &["sql", "shop.gnt", "-c", "compact database"], 0);
    assert!(said.contains("file_bytes_before") && said.contains("(1 row)"), "{said}");
    drop(server);
    assert_eq!(count(folder), rows);
    assert!(ends(folder, &["check", "shop.gnt"], 0).0.starts_with("shop.gnt is sound\n"));
}

#[test]
fn what_cannot_be_compacted_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("foreign"), vec![7; 100_000]).unwrap();
    for (name, words) in [("missing.gnt", "does not exist"), ("foreign", "not a Gannet database")] {
        let (said, complaint) = ends(folder.path(), &["compact", name], 1);
        assert!(
            said.is_empty() && complaint.contains(words) && complaint.lines().count() == 1,
            "{complaint}"
        );
    }
    let (_, complaint) = ends(folder.path(), &["compact", "postgres://nobody@127.0.0.1:1/none"], 1);
    assert!(complaint.contains("cannot connect"), "{complaint}");
    ends(folder.path(), &["compact"], 1);
}
