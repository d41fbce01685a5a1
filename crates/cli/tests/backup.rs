//! `gannet backup`, `restore` and `verify`: on files, beside a server, through pipes; and what is refused.

mod common;

use common::{Served, address, ends, gannet, texts};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A database with so many orders, and a folder for backups.
fn shop(folder: &Path) {
    let script = "create table orders (id bigint primary key, customer text);
                  create index by_customer on orders (customer);
                  insert into orders select n, 'customer ' || n % 100 from generate_series(1, 5000) as n;";
    ends(folder, &["sql", "shop.gnt", "--create", "-q", "-c", script], 0);
    std::fs::create_dir(folder.join("backups")).unwrap();
}

fn orders(folder: &Path, file: &str) -> u64 {
    let arguments = ["sql", file, "-q", "--format", "csv", "-c", "select count(*) from orders"];
    ends(folder, &arguments, 0).0.lines().last().unwrap().parse().unwrap()
}

fn add(folder: &Path, from: u64, to: u64) {
    let script = format!("insert into orders select n, 'late' from generate_series({from}, {to}) as n");
    ends(folder, &["sql", "shop.gnt", "-q", "-c", &script], 0);
}

/// The names of the backups in `folder`'s own folder of them, as [`names_in`].
fn names(folder: &Path) -> Vec<String> {
    names_in(&folder.join("backups"))
}

/// The names of backups in the folder `backups`, where locks stand as well: sorted, which is as they were taken, but
/// within one second.
fn names_in(backups: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(backups).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    names.sort();
    names
}

#[test]
fn a_chain_is_verified_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let (said, _) = ends(folder, &["backup", "shop.gnt", "backups"], 0);
    assert!(said.starts_with("full backup of shop.gnt: shop-20"), "{said}");
    assert!(said.contains("MB/s: read ") && said.ends_with("cached pages left behind: 0B\n"), "{said}");
    add(folder, 5001, 5100);
    let (said, _) = ends(folder, &["backup", "shop.gnt", "backups", "--since", "latest", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    let name = report["name"].as_str().unwrap().to_owned();
    assert!(name.ends_with("-incr") && report["manifest"]["parent"]["backup_id"].is_string(), "{said}");
    let (said, _) = ends(folder, &["verify", "backups"], 0);
    assert!(said.contains("full backup") && said.contains("incremental backup"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    let (said, _) = ends(folder, &["restore", "backups", "copy.gnt"], 0);
    assert!(said.starts_with("copy.gnt restored as it was at lsn"), "{said}");
    assert!(said.ends_with("cached pages left behind: 0B\n"), "{said}");
    assert_eq!(orders(folder, "copy.gnt"), 5100);
    ends(folder, &["check", "copy.gnt"], 0);
    // The full one alone, by its path; and both by theirs.
    let full = names(folder).into_iter().find(|name| name.ends_with("-full")).unwrap();
    let (full, incremental) = (format!("backups/{full}"), format!("backups/{name}.json"));
    ends(folder, &["restore", &full, "first.gnt"], 0);
    assert_eq!(orders(folder, "first.gnt"), 5000);
    ends(folder, &["restore", &full, &incremental, "both.gnt"], 0);
    assert_eq!(orders(folder, "both.gnt"), 5100);
    let (_, complaint) = ends(folder, &["restore", &incremental, &full, "none.gnt"], 1);
    assert!(complaint.contains("give them in the order in which they were taken"), "{complaint}");
    let (_, complaint) = ends(folder, &["restore", &full, "both.gnt"], 1);
    assert!(complaint.contains("overwrites nothing"), "{complaint}");
    assert!(!folder.join("none.gnt").exists() && !folder.join("none.gnt-wal").exists());
}

#[test]
fn statistics_come_with_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let rows = |said: &str| {
        let report: Value = serde_json::from_str(said).unwrap();
        let objects = report["statistics"]["objects"].as_array().unwrap().clone();
        let orders = objects.into_iter().find(|object| object["name"] == "orders").unwrap();
        (orders["contents"]["rows"]["value"].as_f64(), orders["contents"]["rows"]["error"].as_f64())
    };
    let wanted = ["backup", "shop.gnt", "backups", "--statistics", "--json"];
    assert_eq!(rows(&ends(folder, &wanted, 0).0), (Some(5000.0), Some(0.0)));
    let (said, _) = ends(folder, &["backup", "shop.gnt", "backups", "--statistics"], 0);
    assert!(said.starts_with("full backup of") && said.contains("by_customer"), "{said}");
    let _server = Served::start(folder, &["shop.gnt"]);
    assert_eq!(rows(&ends(folder, &wanted, 0).0), (Some(5000.0), Some(0.0)));
    let (said, _) = ends(folder, &["backup", "shop.gnt", "backups", "--since", "latest", "--statistics"], 0);
    assert!(said.contains("all pages were read: statistics were made of them"), "{said}");
}

#[test]
fn older_chains_go_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let backup = |more: &[&str]| ends(folder, &[&["backup", "shop.gnt", "backups"], more].concat(), 0).0;
    backup(&[]);
    backup(&["--since", "latest"]);
    let first = names(folder);
    assert_eq!(first.len(), 2);
    std::fs::write(folder.join("backups/shop-20200101T000000Z-full.gntbackup"), "broken off").unwrap();
    std::fs::write(folder.join("backups/notes.txt"), "mine").unwrap();
    let said = backup(&["--keep", "1", "--compress"]);
    assert!(
        first.iter().all(|name| said.contains(name)) && said.contains("shop-20200101T000000Z-full"),
        "{said}"
    );
    assert!(said.contains("compressed"), "{said}");
    let left = names(folder);
    assert!(left.len() == 1 && folder.join("backups/notes.txt").exists(), "{left:?}");
    let said = backup(&["--since", &left[0], "--keep", "1"]);
    assert!(said.starts_with("incremental") && !said.contains("removed"), "{said}");
    ends(folder, &["verify", "backups"], 0);
}

#[test]
fn nothing_is_added_to_a_chain_that_lacks_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let backup = |more: &[&str]| ends(folder, &[&["backup", "shop.gnt", "backups/"], more].concat(), 0).0;
    backup(&[]);
    let full = names(folder).pop().unwrap();
    backup(&["--since", "latest"]);
    let manifest = |at: &str| folder.join(at).join(format!("{full}.json"));
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    std::fs::rename(manifest("backups"), manifest("elsewhere")).unwrap();
    let (said, complaint) = ends(folder, &["backup", "shop.gnt", "backups", "--since", "latest"], 1);
    assert!(said.is_empty() && complaint.contains("could not be restored from here"), "{complaint}");
    assert_eq!(names(folder).len(), 1);
    std::fs::rename(manifest("elsewhere"), manifest("backups")).unwrap();
    backup(&["--since", "latest"]);
    ends(folder, &["verify", "backups/"], 0);
}

#[test]
fn a_folder_of_several_databases_is_not_restored_without_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    ends(folder, &["backup", "shop.gnt", "backups"], 0);
    ends(folder, &["sql", "other.gnt", "--create", "-q", "-c", "create table t (a int)"], 0);
    ends(folder, &["backup", "other.gnt", "backups"], 0);
    let (said, complaint) = ends(folder, &["restore", "backups", "copy.gnt"], 1);
    assert!(said.is_empty() && complaint.contains("backups of 2 databases"), "{complaint}");
    let names = names(folder);
    assert!(names.len() == 2 && names.iter().all(|name| complaint.contains(name)), "{complaint}");
    assert!(!folder.join("copy.gnt").exists());
    ends(folder, &["restore", &format!("backups/{}", names[1]), "copy.gnt"], 0);
    assert_eq!(orders(folder, "copy.gnt"), 5000);
}

#[test]
fn a_stream_goes_from_one_pipe_into_another() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let backup = gannet(folder, &["backup", "shop.gnt", "-", "--compress=3"]).output().unwrap();
    let (said, status) = (String::from_utf8_lossy(&backup.stderr), backup.status.code());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("full backup of shop.gnt\n"), "{said}");
    std::fs::write(folder.join("stream"), &backup.stdout).unwrap();
    let from = |arguments: &[&str], bytes: usize, status| {
        std::fs::write(folder.join("part"), &backup.stdout[..bytes]).unwrap();
        let input = std::fs::File::open(folder.join("part")).unwrap();
        texts(arguments, gannet(folder, arguments).stdin(input).output().unwrap(), status)
    };
    let all = backup.stdout.len();
    from(&["verify", "-"], all, 0);
    from(&["restore", "-", "copy.gnt"], all, 0);
    assert_eq!(orders(folder, "copy.gnt"), 5000);
    for part in [0, 5000, all / 2, all - 1] {
        let (_, complaint) = from(&["restore", "-", "none.gnt"], part, 1);
        assert!(
            complaint.contains("cut off") || complaint.contains("holds no backup"),
            "{part}: {complaint}"
        );
        from(&["verify", "-"], part, 1);
        assert!(!folder.join("none.gnt").exists());
    }
}

#[test]
fn a_server_takes_backups_of_the_file_it_has_open() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let server = Served::start(folder, &["shop.gnt"]);
    let (said, _) = ends(folder, &["backup", "shop.gnt", "backups"], 0);
    assert!(said.contains("full backup of shop.gnt, taken by its server: shop-20"), "{said}");
    add(folder, 5001, 5010);
    ends(folder, &["backup", "shop.gnt", "backups", "--since", "latest"], 0);
    let jobs = "select job || ' ' || state || ' ' || (bytes_written > 0) from gannet_jobs where id is not null and job <> 'sweep'";
    let (said, _) = ends(folder, &["sql", "shop.gnt", "-q", "--format", "csv", "-c", jobs], 0);
    assert_eq!(said.lines().skip(1).collect::<Vec<_>>(), ["backup done true"; 2]);
    let (_, complaint) = ends(folder, &["backup", "shop.gnt", "elsewhere"], 1);
    assert!(complaint.contains("there is no folder"), "{complaint}");
    let relative = ["sql", "shop.gnt", "-c", "backup database to 'backups'"];
    assert!(ends(folder, &relative, 1).1.contains("relative path not allowed"));
    // Killed at once, what it had told is in the backup all the same.
    drop(server);
    ends(folder, &["restore", "backups", "copy.gnt"], 0);
    assert_eq!(orders(folder, "copy.gnt"), 5010);
}

#[test]
fn a_server_sends_backups_to_whoever_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let server = Served::start(folder, &["shop.gnt"]);
    let address = address(folder, "shop");
    let (said, _) = ends(folder, &["backup", &address, "backups", "--statistics"], 0);
    assert!(said.starts_with("full backup of postgres://") && said.contains("shop-20"), "{said}");
    assert!(said.contains("by_customer") && said.contains("MB/s: read "), "{said}");
    let first = names(folder);
    add(folder, 5001, 5100);
    let (said, _) =
        ends(folder, &["backup", &address, "backups", "--since", "latest", "--compress", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["by_server"], true, "{said}");
    assert!(report["manifest"]["parent"]["backup_id"].is_string(), "{said}");
    assert!(report["manifest"].get("all_read").is_none(), "{said}");
    let (said, _) = ends(folder, &["verify", "backups"], 0);
    assert!(said.contains("full backup") && said.contains("incremental backup"), "{said}");
    ends(folder, &["restore", "backups", "copy.gnt"], 0);
    assert_eq!(orders(folder, "copy.gnt"), 5100);
    ends(folder, &["check", "copy.gnt"], 0);
    // Those that the server has taken itself are of the same set, and a chain goes on with either.
    ends(folder, &["backup", "shop.gnt", "backups", "--since", "latest"], 0);
    let url = format!("file://{}/backups", folder.display());
    let (said, _) = ends(folder, &["backup", &address, &url, "--since", "latest"], 0);
    assert!(said.starts_with("incremental"), "{said}");
    ends(folder, &["verify", "backups"], 0);
    let (said, _) = ends(folder, &["backup", &address, "backups", "--keep", "1"], 0);
    assert!(first.iter().all(|name| said.contains(name)) && names(folder).len() == 1, "{said}");
    // One stream.
    let full = format!("backups/{}", names(folder)[0]);
    for (database, since, status) in
        [(&address[..], None, 0), ("shop.gnt", Some(&full[..]), 0), ("shop.gnt", Some("latest"), 1)]
    {
        let mut arguments = vec!["backup", database, "-"];
        arguments.extend(since.iter().flat_map(|since| ["--since", *since]));
        let output = gannet(folder, &arguments).output().unwrap();
        std::fs::write(folder.join("stream"), &output.stdout).unwrap();
        let (_, complaint) = texts(&arguments, Output { stdout: Vec::new(), ..output }, status);
        let words = if status == 1 { "say by its path" } else { " backup of " };
        assert!(complaint.contains(words), "{complaint}");
        if since.is_none() {
            let input = std::fs::File::open(folder.join("stream")).unwrap();
            let restored = gannet(folder, &["restore", "-", "piped.gnt"]).stdin(input).output().unwrap();
            texts(&arguments, restored, 0);
            assert_eq!(orders(folder, "piped.gnt"), 5100);
        }
    }
    // Where nothing came of it, nothing is left.
    let before = std::fs::read_dir(folder.join("backups")).unwrap().count();
    std::fs::create_dir(folder.join("other")).unwrap();
    ends(folder, &["sql", "other.gnt", "--create", "-q", "-c", "select 1"], 0);
    ends(folder, &["backup", "other.gnt", "other"], 0);
    let other = folder.join("other").join(&names_in(&folder.join("other"))[0]);
    let other = other.to_str().unwrap();
    for (arguments, words) in [
        (&["backup", &address, "backups", "--since", other][..], "is of another database"),
        (&["backup", &address, "other", "--since", "latest"], "take a full one first"),
        (&["backup", &address, "elsewhere"], "there is no folder"),
        (&["backup", &address, "backups", "--compress=99"], "99"),
        (&["backup", &address, "backups", "--keep", "1", "--archive", "logs"], "the server's machine"),
    ] {
        let (_, complaint) = ends(folder, arguments, 1);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    assert_eq!(std::fs::read_dir(folder.join("backups")).unwrap().count(), before);
    let (_, complaint) =
        ends(folder, &["sql", "shop.gnt", "-c", "backup database to stdout since manifest '{}'"], 1);
    assert!(complaint.contains("what a backup says of itself cannot be read"), "{complaint}");
    drop(server);
}

/// Whatever the moment: either it was done before, or nothing of it bears the name of a backup, and the next one works.
#[test]
fn a_backup_that_a_server_sends_breaks_off_without_passing_for_one() {
    // On a disk, so that it takes a moment.
    let folder = tempfile::tempdir_in(".").unwrap();
    let folder = folder.path();
    shop(folder);
    add(folder, 5001, 60_000);
    let mut server = Served::start(folder, &["shop.gnt"]);
    let mut broke_off = 0;
    for (number, wait) in [15, 40, 70, 100, 30, 60].into_iter().enumerate() {
        let backups = names(folder);
        let address = address(folder, "shop");
        let arguments = ["backup", &address[..], "backups"];
        let backing_up =
            gannet(folder, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let is_interrupt = number < 4;
        if is_interrupt {
            let _ = Command::new("kill").args(["-INT", &backing_up.id().to_string()]).status();
        } else {
            server.0.kill().unwrap();
        }
        let output = backing_up.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert_eq!(names(folder).len(), backups.len() + 1, "{complaint}"),
            // All of it was here, only the server's last word was not.
            Some(1) if complaint.contains("the backup is complete") => {
                assert_eq!(names(folder).len(), backups.len() + 1, "{complaint}");
            }
            code => {
                // Killed by the signal before it listened; stopped; or without its server, which is said.
                assert!(matches!(code, None | Some(130)) == is_interrupt, "{code:?}: {complaint}");
                assert!(is_interrupt || complaint.starts_with("gannet: "), "{complaint}");
                assert_eq!(names(folder), backups, "{complaint}");
                broke_off += 1;
            }
        }
        if !is_interrupt {
            drop(server);
            server = Served::start(folder, &["shop.gnt"]);
        }
    }
    assert!(broke_off > 0, "each was done before");
    ends(folder, &["backup", &address(folder, "shop"), "backups"], 0);
    ends(folder, &["verify", "backups"], 0);
    ends(folder, &["restore", "backups", "copy.gnt"], 0);
    assert_eq!(orders(folder, "copy.gnt"), 60_000);
    drop(server);
}

#[test]
fn whatever_takes_a_folder_takes_its_url() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let url = format!("file://{}/backups", folder.display());
    let (said, _) = ends(folder, &["backup", "shop.gnt", &url], 0);
    assert!(said.starts_with("full backup of shop.gnt: shop-20"), "{said}");
    add(folder, 5001, 5010);
    let server = Served::start(folder, &["shop.gnt"]);
    let (said, _) = ends(folder, &["backup", "shop.gnt", &url, "--since", "latest"], 0);
    assert!(said.contains("incremental backup of shop.gnt, taken by its server"), "{said}");
    let statement = format!("backup database to '{url}' since latest compress");
    ends(folder, &["sql", "shop.gnt", "-c", &statement], 0);
    let (_, complaint) = ends(folder, &["sql", "shop.gnt", "-c", "backup database to 'ftp://host/x'"], 1);
    assert!(complaint.contains("ftp://host/x") && complaint.contains("file://"), "{complaint}");
    drop(server);
    let latest = names(folder).pop().unwrap();
    // By either name.
    for source in ["backups", &url, &format!("{url}/{latest}"), &format!("{url}/{latest}.json")] {
        ends(folder, &["verify", source], 0);
        ends(folder, &["restore", source, "copy.gnt"], 0);
        assert_eq!(orders(folder, "copy.gnt"), 5010);
        std::fs::remove_file(folder.join("copy.gnt")).unwrap();
        std::fs::remove_dir_all(folder.join("copy.gnt-wal")).unwrap();
    }
    let (said, _) = ends(folder, &["backup", "shop.gnt", &url, "--keep", "1"], 0);
    assert!(said.contains("removed: ") && names(folder).len() == 1, "{said}");
    let since = format!("{url}/{}", names(folder)[0]);
    ends(folder, &["backup", "shop.gnt", "backups", "--since", &since], 0);
    let missing = format!("{url}/missing");
    for (arguments, words) in [
        (&["backup", "shop.gnt", &missing][..], "there is no folder"),
        (&["backup", "shop.gnt", "file://backups"], "file:///folder"),
        (&["verify", &missing], "there is no backup"),
        (&["restore", &missing, "copy.gnt"], "there is no backup"),
        (&["verify", &url, "--archive"], "an archive of the log is a folder"),
        (
            &["backup", "shop.gnt", &url, "--keep", "1", "--archive", &url],
            "an archive of the log is a folder",
        ),
        (&["serve", "shop.gnt", "--listen", "none", "--archive", &url], "an archive of the log is a folder"),
    ] {
        let (_, complaint) = ends(folder, arguments, 1);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
    #[cfg(not(feature = "s3"))]
    for command in [&["backup", "shop.gnt", "s3://bucket/x"][..], &["verify", "s3://bucket/x"]] {
        let (_, complaint) = ends(folder, command, 1);
        assert!(complaint.contains("--features s3") && complaint.contains("s3://bucket/x"), "{complaint}");
    }
}

/// Bytes of a job's report that the OS has cached and had not before.
#[track_caller]
fn left_behind(folder: &Path, arguments: &[&str]) -> u64 {
    let said = ends(folder, &[arguments, &["--json"]].concat(), 0).0;
    let report: Value = serde_json::from_str(&said).unwrap();
    report["job"]["cached_bytes"].as_u64().unwrap_or_else(|| panic!("{arguments:?}: {said}"))
}

#[test]
fn a_backup_to_a_url_leaves_no_more_in_the_cache_of_the_system_than_one_to_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let insert = "insert into orders select n, repeat('x', 900) from generate_series(10001, 20000) as n";
    ends(folder, &["sql", "shop.gnt", "-c", insert], 0);
    let url = format!("file://{}/backups", folder.display());
    for arguments in [
        &["backup", "shop.gnt", &url][..],
        &["verify", &url],
        &["restore", &url, "copy.gnt"],
        &["verify", "backups"],
        &["restore", "backups", "other.gnt"],
        &["dump", "shop.gnt", "shop.sql"],
        &["load", "shop.sql", "loaded.gnt", "--create"],
    ] {
        let left = left_behind(folder, arguments);
        assert!(left <= 1 << 20, "{arguments:?}: {left}");
    }
}

#[test]
fn a_server_verifies_what_lies_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    ends(folder, &["backup", "shop.gnt", "backups"], 0);
    let (_, complaint) = ends(folder, &["verify", "backups", "--server", "shop.gnt"], 1);
    assert!(complaint.contains("no server has \"shop.gnt\" open"), "{complaint}");
    std::fs::create_dir(folder.join("logs")).unwrap();
    let server = Served::start(folder, &["shop.gnt", "--archive", "logs"]);
    let address = address(folder, "shop");
    let there = folder.join("backups");
    let there = there.to_str().unwrap();
    for arguments in [["backups", "--server", "shop.gnt"], [there, "--server", &address]] {
        let (said, _) = ends(folder, &[&["verify"], &arguments[..]].concat(), 0);
        assert!(said.contains("full backup") && said.contains("verified by the server"), "{said}");
    }
    let (said, _) = ends(folder, &["verify", "backups", "--server", "shop.gnt", "--json"], 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert!(report["by_server"] == true && report["sound"] == true, "{report}");
    assert!(report["pages"].as_u64() > Some(10) && report["job"]["bytes_read"].as_u64() > Some(10_000));
    assert!(report["job"]["cached_bytes"].as_u64().is_some(), "{report}");
    let (said, _) = ends(folder, &["verify", "logs/shop", "--archive", "--server", "shop.gnt"], 0);
    assert!(said.contains("the archive of shop.gnt, is whole from lsn"), "{said}");
    let seen = "select count(*) || ' ' || min(state) || ' ' || min(about) from gannet_jobs where job = 'verify' and about like '%/backups'";
    assert_eq!(asked(folder, seen), format!("3 done of {there}"));
    for (arguments, words) in [
        (["backups", "--server", &address], "give an absolute path of its machine"),
        (["-", "--server", "shop.gnt"], "standard input is of this machine"),
    ] {
        let (_, complaint) = ends(folder, &[&["verify"], &arguments[..]].concat(), 1);
        assert!(complaint.contains(words), "{complaint}");
    }
    // What is wrong is a row, and a failure of the command.
    let data = folder.join(format!("backups/{}.gntbackup", names(folder)[0]));
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let (_, complaint) = ends(folder, &["verify", "backups", "--server", "shop.gnt"], 1);
    assert!(complaint.contains("the backup is damaged"), "{complaint}");
    for (arguments, by_server) in [
        (&["verify", "backups", "--json"][..], false),
        (&["verify", "backups", "--json", "--server", "shop.gnt"], true),
    ] {
        let (said, complaint) = ends(folder, arguments, 1);
        let report: Value = serde_json::from_str(&said).unwrap();
        assert!(report["sound"] == false && report["by_server"] == by_server, "{report}");
        assert!(
            report["error"].as_str().is_some_and(|error| complaint.contains(error)),
            "{report} {complaint}"
        );
    }
    let rows = asked(folder, &format!("verify backup '{there}'"));
    assert!(rows.starts_with(there) && rows.contains("the backup is damaged"), "{rows}");
    drop(server);
}

#[test]
fn what_is_no_backup_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    std::fs::write(folder.join("some.json"), "{}").unwrap();
    std::fs::write(folder.join("some.gntbackup"), vec![0; 10_000]).unwrap();
    for (arguments, words) in [
        (&["backup", "missing.gnt", "backups"][..], "does not exist"),
        (&["backup", "shop.gnt", "backups", "--since", "latest"], "take a full one first"),
        (&["backup", "shop.gnt", "-", "--keep", "2"], "a stream has none"),
        (&["backup", "shop.gnt", "backups", "--keep", "-1"], "invalid value '-1' for '--keep <N>'"),
        (&["backup", "shop.gnt", "backups", "--compress=99"], "99"),
        (&["verify", "backups"], "no complete backup"),
        (&["verify", "nowhere"], "there is no backup"),
        (&["verify", "some"], "no manifest of a backup"),
        (&["restore", "some.gntbackup", "copy.gnt"], "no manifest of a backup"),
        (&["restore", "-", "some", "copy.gnt"], "a source of its own"),
        (&["restore", "backups"], "SRC... DB"),
    ] {
        let (said, complaint) = ends(folder, arguments, 1);
        assert!(said.is_empty() && complaint.contains(words), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    assert!(!folder.join("copy.gnt").exists());
    // Nor anything else.
    assert_eq!(std::fs::read_dir(folder.join("backups")).unwrap().count(), 0);
}

/// The figures, and not the work, are what failed.
#[cfg(target_os = "linux")]
#[test]
fn work_that_is_done_was_told_of_as_a_failure_where_output_was_full() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let told = |arguments: &[&str], status| {
        let output = gannet(folder, arguments).stdout(full()).output().unwrap();
        let (_, complaint) = texts(arguments, output, status);
        assert!(complaint.contains("cannot write to standard output: No space left"), "{complaint}");
        complaint
    };
    assert!(told(&["backup", "shop.gnt", "backups"], 1).ends_with("; the backup is complete\n"));
    assert!(told(&["verify", "backups"], 1).ends_with("; the backups are whole\n"));
    assert!(told(&["restore", "backups", "copy.gnt"], 1).ends_with("; the database is restored\n"));
    assert!(told(&["compact", "copy.gnt"], 1).ends_with("; the compaction is done\n"));
    assert!(told(&["check", "copy.gnt"], 2).ends_with("; the check is done: copy.gnt is sound\n"));
    assert!(told(&["dump", "copy.gnt", "copy.sql"], 1).ends_with("; the dump is complete\n"));
    assert!(told(&["load", "copy.sql", "new.gnt", "--create"], 1).ends_with("; the load is done\n"));
    for arguments in [&["stat", "copy.gnt"][..], &["kv", "copy.gnt", "stat"], &["backup", "shop.gnt", "-"]] {
        told(arguments, 1);
    }
    told(&["doctor", "copy.gnt", "--time", "0s"], 3);
    let server = Served::start(folder, &["shop.gnt"]);
    let complaint = told(&["backup", &address(folder, "shop"), "-"], 1);
    assert!(!complaint.contains("the server could not"), "{complaint}");
    drop(server);
}

/// The runtime opens `/dev/null` in its place.
#[test]
fn what_went_to_a_closed_output_was_told_of_as_complete() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    for command in ["backup", "dump"] {
        let line = format!("exec \"$0\" {command} shop.gnt - >&-");
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-c", &line, env!("CARGO_BIN_EXE_gannet")]).current_dir(folder).output().unwrap();
        let (_, complaint) = texts(&[command], output, 1);
        assert!(complaint.contains("cannot write to standard output: it is closed"), "{complaint}");
    }
    // Who wants nothing of it says so.
    for command in ["backup", "dump"] {
        let nowhere = gannet(folder, &[command, "shop.gnt", "-"]).stdout(Stdio::null()).output().unwrap();
        texts(&[command], nowhere, 0);
    }
}

#[test]
fn a_signal_did_not_end_the_wait_for_a_stream_of_backups() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["restore", "-", "copy.gnt"][..], &["verify", "-"]] {
        for signal in ["-INT", "-TERM"] {
            let mut waiting = gannet(folder.path(), arguments);
            let mut child = waiting.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let input = child.stdin.take();
            // It listens to SIGTERM, as to SIGINT before: until then a signal just ends it.
            let caught = |status: &str| {
                let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
                Some(u64::from_str_radix(mask, 16).ok()? & (1 << 14) != 0)
            };
            let status = format!("/proc/{}/status", child.id());
            while child.try_wait().unwrap().is_none()
                && std::fs::read_to_string(&status).is_ok_and(|status| caught(&status) == Some(false))
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
            let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
            assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments:?} {signal}");
            drop(input);
        }
    }
}

#[test]
fn a_server_restores_what_lies_for_it_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    ends(folder, &["backup", "shop.gnt", "backups"], 0);
    let (_, complaint) = ends(folder, &["restore", "backups", "copy.gnt", "--server", "shop.gnt"], 1);
    assert!(complaint.contains("no server has \"shop.gnt\" open"), "{complaint}");
    let server = Served::start(folder, &["shop.gnt"]);
    let address = address(folder, "shop");
    let by_server = |arguments: &[&str], server: &str, status| {
        ends(folder, &[&["restore"], arguments, &["--server", server]].concat(), status)
    };
    let (said, _) = by_server(&["backups", "copy.gnt", "--json"], "shop.gnt", 0);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert!(report["by_server"] == true && report["job"]["bytes_written"].as_u64() > Some(0), "{report}");
    assert_eq!((report["database"].as_str(), orders(folder, "copy.gnt")), (Some("copy.gnt"), 5000));
    let whole = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (said, _) = by_server(&[&whole("backups"), &whole("other.gnt")], &address, 0);
    assert!(said.contains("restored by the server as it was at lsn"), "{said}");
    assert_eq!(orders(folder, "other.gnt"), 5000);
    for (arguments, server, words) in [
        (["backups", "copy.gnt"], "shop.gnt", "copy.gnt"),
        (["backups", "shop.gnt"], "shop.gnt", "shop.gnt"),
        (["-", "new.gnt"], "shop.gnt", "standard input is of this machine"),
        (["backups", "new.gnt"], &address, "give an absolute path of its machine"),
        (["backups", "file:///new.gnt"], "shop.gnt", "is no file"),
    ] {
        let (_, complaint) = by_server(&arguments, server, 1);
        assert!(complaint.contains(words), "{complaint}");
    }
    assert!(!folder.join("new.gnt").exists());
    assert_eq!(orders(folder, "shop.gnt"), 5000);
    drop(server);
}

#[test]
fn commands_on_a_file_at_rest_go_on_with_its_archive() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    std::fs::create_dir(folder.join("logs")).unwrap();
    // The archive of the database begins.
    drop(Served::start(folder, &["shop.gnt", "--archive", "logs"]));
    ends(folder, &["backup", "shop.gnt", "backups", "--archive-to", "logs"], 0);
    let add = "insert into orders select n, 'late' from generate_series(5001, 5100) as n";
    let (to, limit) = (["--archive-to", "logs"], ["--wal-limit", "256MiB"]);
    let (_, complaint) = ends(folder, &[&["sql", "shop.gnt", "-q", "-c", add][..], &to, &limit].concat(), 0);
    assert_eq!(complaint, "", "all of it is archived");
    let (said, _) = ends(folder, &[&["compact", "shop.gnt"][..], &to].concat(), 0);
    assert!(said.contains("shop.gnt"), "{said}");
    let (said, _) = ends(folder, &[&["stat", "shop.gnt"][..], &to, &limit].concat(), 0);
    assert!(said.contains("at most 256MiB (wal_limit)") && said.contains("logs/shop: "), "{said}");
    let variables = [("GANNET_WAL_LIMIT", "128MiB")];
    let output = gannet(folder, &["stat", "shop.gnt"]).envs(variables).output().unwrap();
    let (said, _) = texts(&["stat", "shop.gnt"], output, 0);
    assert!(said.contains("at most 128MiB (wal_limit)"), "{said}");
    let (said, _) = ends(folder, &["stat", "shop.gnt"], 0);
    assert!(said.contains("at most 1GiB (wal_limit)") && !said.contains("logs/shop"), "{said}");
    // Nobody else has opened it since with the archive: what it has came from these commands.
    let (said, _) = ends(folder, &["restore", "backups", "copy.gnt", "--archive", "logs/shop"], 0);
    assert_eq!(orders(folder, "copy.gnt"), 5100, "{said}");
    let (said, complaint) = ends(folder, &["stat", "shop.gnt", "--archive-to", "nowhere/deep"], 0);
    assert!(said.contains("nowhere/deep/shop: failing"), "{said}");
    assert!(complaint.contains("of log are not archived in \"nowhere/deep/shop\": "), "{complaint}");
}

/// What a database says to one query, without the header.
fn asked(folder: &Path, query: &str) -> String {
    let arguments = ["sql", "shop.gnt", "-q", "--format", "csv", "-c", query];
    let said = ends(folder, &arguments, 0).0;
    said.lines().skip(1).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_server_archives_and_a_restore_stops_where_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    shop(folder);
    std::fs::create_dir(folder.join("logs")).unwrap();
    let server = Served::start(folder, &["shop.gnt", "--archive", "logs"]);
    let shown = "select effective || ' ' || source from gannet_settings where name = 'archive'";
    assert_eq!(asked(folder, shown), "logs flag");
    ends(folder, &["backup", "shop.gnt", "backups"], 0);
    add(folder, 5001, 5100);
    let lsn = asked(folder, "select pg_create_restore_point('before the mistake')");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let time = asked(folder, "select clock_timestamp()");
    std::thread::sleep(std::time::Duration::from_millis(50));
    asked(folder, "delete from orders where id > 10");
    let is_archived = "select state || ' ' || (behind_bytes = 0) from gannet_archive";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while asked(folder, is_archived) != "archiving true" {
        assert!(std::time::Instant::now() < deadline, "{}", asked(folder, "select * from gannet_archive"));
    }
    let archive = ["--archive", "logs/shop"];
    let (said, _) = ends(folder, &["verify", "logs/shop", "--archive"], 0);
    assert!(said.contains("the archive of shop.gnt, is whole from lsn"), "{said}");
    assert!(said.contains(&format!("point \"before the mistake\": lsn {lsn}, ")), "{said}");
    // Each is looked at, whatever is wrong with another one.
    let two = ["verify", "nowhere", "logs/shop", "--archive"];
    let (said, complaint) = ends(folder, &two, 1);
    assert!(said.contains("the archive of shop.gnt, is whole from lsn"), "{said}");
    assert!(complaint.contains("\"nowhere\"") && complaint.contains("1 of 2 archives"), "{complaint}");
    let told =
        |said: &str| serde_json::from_str::<Value>(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let several = told(&ends(folder, &[&two[..], &["--json"]].concat(), 1).0);
    assert!(several[0]["sound"] == false && several[0]["error"].is_string(), "{several}");
    assert!(several[1]["sound"] == true && several[1]["archive"] == "logs/shop", "{several}");
    let one = told(&ends(folder, &["verify", "logs/shop", "--archive", "--json"], 0).0);
    assert_eq!(one["report"]["points"][0][0], "before the mistake");
    let one = told(&ends(folder, &["verify", "nowhere", "--archive", "--json"], 1).0);
    assert_eq!(one["sound"], false);
    // Beside the server, whose archive goes on.
    for (target, file, count) in [
        (&["--to", "before the mistake"][..], "point.gnt", 5100),
        (&["--to", &time], "time.gnt", 5100),
        (&["--to", &format!("lsn:{lsn}")], "lsn.gnt", 5100),
        (&["--job-pace", "full"], "end.gnt", 10),
    ] {
        let (said, _) = ends(folder, &[&["restore", "backups", file], &archive[..], target].concat(), 0);
        assert!(said.contains("of log from logs/shop"), "{said}");
        assert_eq!(orders(folder, file), count, "{said}");
    }
    // And by the server, as jobs of it.
    for (target, file, count) in [
        (&["--to", "before the mistake"][..], "point-2.gnt", 5100),
        (&["--to", &time], "time-2.gnt", 5100),
        (&["--to", &format!("lsn:{lsn}")], "lsn-2.gnt", 5100),
        (&[], "end-2.gnt", 10),
    ] {
        let pace =
            if file == "end-2.gnt" { ["--job-pace", "full"] } else { ["--job-latency-target", "250us"] };
        let by = [&["--server", "shop.gnt"], &pace[..]].concat();
        let (said, _) = ends(folder, &[&["restore", "backups", file], &archive[..], &by, target].concat(), 0);
        assert!(said.contains("restored by the server") && said.contains("of log from logs/shop"), "{said}");
        assert_eq!(orders(folder, file), count, "{said}");
    }
    let seen = "select count(*) || ' ' || min(state) from gannet_jobs where job = 'restore' and about like '%-2.gnt'";
    assert_eq!(asked(folder, seen), "4 done");
    let late = ["restore", "backups", "none.gnt", "--archive", "logs/shop", "--to", "2999-01-01T00:00:00Z"];
    let (_, complaint) = ends(folder, &[&late[..], &["--server", "shop.gnt"]].concat(), 1);
    assert!(complaint.contains("Within reach is everything from lsn"), "{complaint}");
    let (_, complaint) = ends(folder, &late, 1);
    assert!(complaint.contains("Within reach is everything from lsn"), "{complaint}");
    // Words for times mean those of the statement.
    let at = |name: &str| folder.join(name).display().to_string();
    for (time, words) in [("tomorrow", "Within reach is everything"), ("yesterday", "lies before the end")] {
        let (from, to, archive) = (at("backups"), at("none.gnt"), at("logs/shop"));
        let sql = format!("restore database from '{from}' to '{to}' archive '{archive}' until time '{time}'");
        let (_, complaint) = ends(folder, &["sql", &address(folder, "shop"), "-c", &sql], 1);
        let is_of_now = !complaint.contains("2000-01-0") && !complaint.contains("1999-12-31");
        assert!(complaint.contains(words) && is_of_now, "{complaint}");
    }
    ends(folder, &["restore", "backups", "none.gnt", "--to", "lsn:1"], 1);
    assert!(!folder.join("none.gnt").exists());
    let (said, _) =
        ends(folder, &["backup", "shop.gnt", "backups", "--keep", "1", "--archive", "logs/shop"], 0);
    assert!(said.contains("full backup of shop.gnt, taken by its server"), "{said}");
    drop(server);
    // The archive of another one is refused when the server starts.
    std::fs::create_dir(folder.join("other")).unwrap();
    ends(folder, &["sql", "other/shop.gnt", "--create", "-q", "-c", "select 1"], 0);
    let (_, complaint) =
        ends(folder, &["serve", "other/shop.gnt", "--listen", "none", "--archive", "logs"], 1);
    assert!(complaint.contains("the archive of another database, shop.gnt"), "{complaint}");
}
