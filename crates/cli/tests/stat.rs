//! `gannet stat` as its users meet it: files that are sound, damaged, not there, and open in a server.

mod common;

use common::{Served, ends};
use serde_json::Value;
use std::path::Path;

const PAGE: usize = 8192;

#[track_caller]
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let (said, _) = ends(folder, &[arguments, &["--json"]].concat(), 0);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A database with two tables and an index.
fn shop(folder: &Path) {
    let script = "create table orders (id bigint primary key, customer text);
                  create index by_customer on orders (customer);
                  create table other (id bigint);
                  insert into orders select n, 'customer ' || n % 100 from generate_series(1, 20000) as n;";
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", script], 0);
}

/// What a line with this label says, behind the title of its section.
#[track_caller]
fn line<'t>(text: &'t str, section: &str, label: &str) -> &'t str {
    let behind = text.split_once(&format!("\n{section}\n")).unwrap_or_else(|| panic!("{section}: {text}")).1;
    let lines = behind.lines().take_while(|line| line.starts_with("  "));
    let mut found = lines.filter_map(|line| line.trim().strip_prefix(label));
    found.next().unwrap_or_else(|| panic!("{label}: {behind}")).trim()
}

#[test]
fn a_file_is_described_in_sections() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let (said, complaint) = ends(folder.path(), &["stat", "shop.gnt", "--records"], 0);
    assert_eq!(complaint, "");
    // Sweep may be at work.
    assert!(said.starts_with("Statistics of shop.gnt: every entry counted"), "{said}");
    assert_eq!(line(&said, "Database header", "Page size"), "8KiB");
    assert_eq!(line(&said, "Database header", "Last shutdown"), "clean");
    assert_eq!(line(&said, "Transactions", "Writing transactions"), "0");
    assert_eq!(line(&said, "Table orders", "Total records"), "20000");
    assert_eq!(line(&said, "Table orders", "Dead records"), "0, 0B");
    assert_eq!(line(&said, "Table other", "Total records"), "0");
    let index = "Index by_customer of table orders";
    assert_eq!(line(&said, index, "Entries"), "20000");
    assert_eq!(line(&said, index, "Total dup"), "19900");
    assert_eq!(line(&said, index, "Max dup"), "199");
    assert!(line(&said, index, "80 - 99%").starts_with("= "));
    assert!(said.contains("Gannet's own trees") && said.contains("MB/s: read"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    // At once, from a sample that has all of so small a tree.
    let (said, _) = ends(folder.path(), &["stat", "shop.gnt", "--table", "orders"], 0);
    assert!(said.starts_with("Statistics of shop.gnt: from a sample;"), "{said}");
    assert_eq!(line(&said, "Table orders", "Total records"), "20000");
    assert!(!said.contains("Table other") && !said.contains("Gannet's own"), "{said}");
    let (said, _) = ends(folder.path(), &["stat", "shop.gnt", "--table", "public.orders"], 0);
    assert_eq!(line(&said, "Table orders", "Total records"), "20000");
}

#[test]
fn json_has_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let report = json(folder.path(), &["stat", "shop.gnt", "--records"]);
    assert_eq!(report["by_server"], false);
    assert_eq!(report["cached_bytes"], 0);
    let statistics = &report["statistics"];
    assert_eq!(statistics["mode"], "records");
    assert_eq!(statistics["header"]["page_bytes"], PAGE);
    assert_eq!(statistics["transactions"]["writers_count"], 0);
    let names: Vec<&str> =
        statistics["objects"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["orders", "by_customer", "other"]);
    let index = &statistics["objects"][1];
    assert_eq!((index["kind"].as_str(), index["table"].as_str()), (Some("index"), Some("orders")));
    assert_eq!(index["contents"]["duplicates"]["longest"], 200);
    assert_eq!(index["contents"]["rows"]["value"], 20000.0);
    assert!(report["job"]["bytes_read"].as_u64().unwrap() > 100 * PAGE as u64, "{report:#}");
}

#[test]
fn a_server_describes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let _server = Served::start(folder.path(), &["shop.gnt"]);
    let (said, _) = ends(folder.path(), &["stat", "shop.gnt", "--records"], 0);
    assert!(said.starts_with("Statistics of shop.gnt, by its server: every entry counted"), "{said}");
    assert_eq!(line(&said, "Table orders", "Total records"), "20000");
    let report = json(folder.path(), &["stat", "shop.gnt", "--table", "orders"]);
    assert_eq!(report["by_server"], true);
    assert_eq!(report["statistics"]["objects"].as_array().unwrap().len(), 2);
    let (_, complaint) = ends(folder.path(), &["stat", "shop.gnt", "--table", "nothing"], 1);
    assert!(complaint.contains("table \"nothing\" does not exist"), "{complaint}");
    let report = json(folder.path(), &["stat", "shop.gnt", "--table", "public.orders"]);
    assert_eq!(report["statistics"]["table"], "orders");
    let (_, complaint) = ends(folder.path(), &["stat", "shop.gnt", "--table", "shop.orders"], 1);
    assert!(complaint.contains("schema \"shop\" does not exist"), "{complaint}");
}

#[test]
fn what_cannot_be_described_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    for (arguments, what) in [
        (&["stat", "nothing.gnt"][..], "\"nothing.gnt\" does not exist"),
        (&["stat", "shop.gnt", "--table", "nothing"], "table \"nothing\" does not exist"),
        (&["stat", "shop.gnt", "--table", "shop.orders"], "schema \"shop\" does not exist"),
        (&["stat", "shop.gnt", "--table", "by_customer"], "\"by_customer\" is not a table"),
        (&["stat", "shop.gnt", "--memory", "1"], "a memory budget of"),
        (&["stat"], "<DB>"),
    ] {
        let (said, complaint) = ends(folder.path(), arguments, 1);
        assert_eq!(said, "", "{arguments:?}");
        assert!(complaint.contains(what) && complaint.lines().count() == 1, "{complaint}");
    }
}

#[test]
fn a_map_of_keys_has_its_trees() {
    let folder = tempfile::tempdir().unwrap();
    ends(folder.path(), &["kv", "map.gnt", "put", "key", "value"], 0);
    let (said, _) = ends(folder.path(), &["stat", "map.gnt", "--table", "default"], 0);
    assert_eq!(line(&said, "Tree default", "Total records"), "1");
    assert_eq!(line(&said, "Tree default", "average length"), "8.0 bytes");
}

#[test]
fn damage_is_counted_and_named_and_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    shop(folder.path());
    let path = folder.path().join("shop.gnt");
    let mut bytes = std::fs::read(&path).unwrap();
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
    for options in [&["stat", "shop.gnt"][..], &["stat", "shop.gnt", "--records"]] {
        let (said, _) = ends(folder.path(), options, 0);
        assert!(
            said.contains("\n1 page could not be read, what it holds is not counted: run gannet check\n"),
            "{said}"
        );
        assert!(
            said.contains(&format!("  page {leaf} of ")) && said.contains("checksum does not match"),
            "{said}"
        );
    }
    let report = json(folder.path(), &["stat", "shop.gnt"]);
    assert_eq!(report["statistics"]["unreadable"][0]["page"], leaf);
}
