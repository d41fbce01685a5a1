//! `gannet check` as its users meet it: files that are sound, damaged, not there, and open in a server.

mod common;

use common::{Served, ends, gannet};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

const PAGE: usize = 8192;

/// A database with a table and an index.
fn shop(folder: &Path) {
    let script = "create table orders (id bigint primary key, customer text);
                  create index by_customer on orders (customer);
                  insert into orders select n, 'customer ' || n % 100 from generate_series(1, 20000) as n;";
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", script], 0);
}

#[test]
fn a_sound_file_is_said_to_be_so_with_what_was_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let (said, complaint) = ends(folder.path(), &["check", "shop.gnt"], 0);
    assert_eq!(complaint, "");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "shop.gnt is sound");
    assert!(lines[1].contains("pages in use") && lines[2].contains("MB/s"), "{said}");
    assert_eq!(lines[3].trim(), "compared 1 indexes with their tables: 40000 rows and entries");
    assert!(lines[4].contains("MB/s: read") && lines[4].contains(", wrote 0B"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    let (said, _) = ends(folder.path(), &["check", "shop.gnt", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["sound"], true);
    assert_eq!(report["by_server"], false);
    assert_eq!(report["figures"]["indexes"], 1);
    assert!(report["figures"]["pages"].as_u64().unwrap() > 50, "{said}");
}

#[test]
fn a_map_of_keys_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    ends(folder.path(), &["kv", "map.gnt", "put", "key", "value"], 0);
    let (said, _) = ends(folder.path(), &["check", "map.gnt"], 0);
    assert!(said.starts_with("map.gnt is sound\n"), "{said}");
    let (said, _) = ends(folder.path(), &["kv", "map.gnt", "stat", "--format", "json"], 0);
    assert!(!said.contains("catalog.sql"), "{said}");
}

#[test]
fn damage_is_named_and_is_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let path = folder.path().join("shop.gnt");
    let mut bytes = std::fs::read(&path).unwrap();
    // Somewhere in the middle of the rows, which take most of the file.
    let used = |page: &[u8]| page[20] == 3 && page[24] == 0;
    let leaves: Vec<usize> = bytes
        .chunks_exact(PAGE)
        .enumerate()
        .filter(|(_, page)| used(page))
        .map(|(number, _)| number)
        .collect();
    let leaf = leaves[leaves.len() / 2];
    bytes[leaf * PAGE + PAGE / 2] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (said, _) = ends(folder.path(), &["check", "shop.gnt"], 1);
    assert!(said.contains(&format!("page {leaf}: its checksum does not match\n  at stake: ")), "{said}");
    assert!(said.contains("shop.gnt has 1 finding\n"), "{said}");
    let (said, _) = ends(folder.path(), &["check", "shop.gnt", "--json"], 1);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["findings"][0]["page"], leaf as u64);
    assert_eq!(report["sound"], false);
    // Whether or not somebody reads what is said of it.
    let mut checking = gannet(folder.path(), &["check", "shop.gnt"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(checking.stdout.take());
    assert_eq!(checking.wait().unwrap().code(), Some(1));
}

#[test]
fn what_a_damaged_log_leaves_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let mut server = Served::start(folder, &["shop.gnt"]);
    // So few that the page they are in does not go home by itself: settling them are changes of it, too.
    let script: String =
        (30_000..30_024).map(|n| format!("insert into orders values ({n}, 'late');\n")).collect();
    std::fs::write(folder.join("late.sql"), script).unwrap();
    ends(folder, &["sql", "shop.gnt", "-q", "-f", "late.sql"], 0);
    server.0.kill().unwrap();
    drop(server);
    let segments = std::fs::read_dir(folder.join("shop.gnt-wal")).unwrap().map(|entry| entry.unwrap().path());
    let written = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        path.extension().is_some_and(|extension| extension == "log") && bytes.iter().any(|byte| *byte != 0)
    };
    let path = segments.filter(written).max().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - 2500] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let count = ["-q", "--format", "csv", "-c", "select count(*) from orders where id >= 30000"];
    let (_, complaint) = ends(folder, &[&["sql", "shop.gnt"], &count[..]].concat(), 2);
    assert!(complaint.contains("log hole") && complaint.contains("`gannet sql --salvage`"), "{complaint}");
    let (said, _) = ends(folder, &[&["sql", "shop.gnt", "--salvage"], &count[..]].concat(), 0);
    let found: u32 = said.lines().last().unwrap().parse().unwrap();
    assert!((5..24).contains(&found), "{said}");
    let (said, _) = ends(folder, &["sql", "shop.gnt", "--salvage", "-c", "\\restart"], 0);
    assert!(said.contains("salvaged, for reading only: log hole"), "{said}");
    let (_, complaint) = ends(folder, &["sql", "shop.gnt", "--salvage", "-c", "delete from orders"], 1);
    assert!(complaint.contains("being salvaged"), "{complaint}");
    let (_, complaint) = ends(folder, &["check", "shop.gnt"], 2);
    assert!(complaint.contains("log hole"), "{complaint}");
}

#[test]
fn what_cannot_be_checked_is_told_apart_from_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("foreign"), vec![7; 100_000]).unwrap();
    for (name, words) in [("missing.gnt", "does not exist"), ("foreign", "not a Gannet database")] {
        let (said, complaint) = ends(folder.path(), &["check", name], 2);
        assert!(
            said.is_empty() && complaint.contains(words) && complaint.lines().count() == 1,
            "{complaint}"
        );
    }
    let (_, complaint) = ends(folder.path(), &["check", "postgres://nobody@127.0.0.1:1/none"], 2);
    assert!(complaint.contains("cannot connect"), "{complaint}");
    ends(folder.path(), &["check"], 2);
}

#[test]
fn a_file_that_a_server_has_open_is_checked_there() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let server = Served::start(folder.path(), &["shop.gnt"]);
    let (said, _) = ends(folder.path(), &["check", "shop.gnt"], 0);
    assert!(said.starts_with("shop.gnt is sound, checked by its server\n"), "{said}");
    let (said, _) = ends(folder.path(), &["check", "shop.gnt", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["by_server"], true);
    assert_eq!(report["figures"]["indexes"], 1);
    // The shell shows the same.
    let (said, _) = ends(folder.path(), &["sql", "shop.gnt", "-c", "check database"], 0);
    assert!(said.contains("at_stake") && said.contains("(0 rows)"), "{said}");
    drop(server);
    let (said, _) = ends(folder.path(), &["check", "shop.gnt"], 0);
    assert!(said.starts_with("shop.gnt is sound\n"), "{said}");
}
