//! What is said of a run.

use super::Plan;
use super::found::Found;
use super::values::figure;
use crate::admin::measure::{GARBAGE, MADE_MOST};
use crate::admin::task::Task;
use crate::document::{Document, Part};
use crate::experiments::calibrated;
use crate::record::{Record, Size};
use crate::sides::{POSTGRESQL, Side};
use gannet_base::units::format_size;
use serde_json::Value;

pub(super) fn report(run: &Record) -> Document {
    let found = Found { run, plan: Plan::of(run.order.size) };
    let mut parts = found.introduction();
    parts.extend(published(&found));
    parts.push(Part::Heading("Alone".to_owned()));
    parts.extend(found.alone());
    parts.push(Part::Heading("Beside users at full load".to_owned()));
    parts.extend(found.full_load());
    parts.push(Part::Heading("Beside users at half load".to_owned()));
    parts.extend(found.half_load());
    parts.push(Part::Heading("Who is ahead".to_owned()));
    parts.extend(found.verdicts());
    parts.push(Part::Heading("Tasks by the size of the database".to_owned()));
    parts.extend(found.sizes());
    parts.push(Part::Heading("Users as garbage grows".to_owned()));
    parts.extend(found.growing());
    parts.push(Part::Heading("Sweep by garbage, incremental backup by change".to_owned()));
    parts.extend(found.sweeps());
    parts.extend(found.changes());
    parts.push(Part::Heading("Settings".to_owned()));
    parts.extend(found.settings());
    Document { title: "X3 admin: what maintenance costs, and whom".to_owned(), parts }
}

fn published(found: &Found<'_>) -> Vec<Part> {
    let rows = [
        ["record statistics (gstat -r)", "RAID", "0:42 → 4:34, 4:18 → 15:18, 7:44 → 26:25, 13:30 → 43:18"],
        ["the same", "SSD", "0:30 → 1:58, 3:25 → 8:38, 6:51 → 17:44, 19:06 → 26:52"],
        ["physical backup (nbackup), direct I/O", "RAID", "3:09 → 55:27, 9:57 → 1:37:58"],
        ["the same", "SSD", "3:53 → 6:27, 12:19 → 21:42"],
        ["the same without direct I/O", "RAID", "2:57 → 21:10, 10:07 → 56:57"],
        ["the same", "SSD", "2:33 → 3:16, 10:31 → 23:54; larger sizes idle only: 26:40, 33:19"],
        ["plain file copy", "RAID", "1:04 → 2:28, 5:30 → 28:37"],
        ["the same", "SSD", "1:39 → 1:57, 6:06 → 8:18, 24:36 → 29:12"],
        ["sweep, beside users", "RAID", "1:44:30, 4:04:50, 8:28:07, 7:04:29"],
        [
            "the same",
            "SSD",
            "0:44:46, 2:11:18, 4:15:16, 3:19:41; it also started uninvited during measurements",
        ],
        [
            "logical backup and restore (gbak)",
            "",
            "“too slow to be practical”: about an hour for 10 GB restored",
        ],
    ];
    vec![
        Part::Heading("Published".to_owned()),
        Part::Text(
            "Firebird 2.5.2 with databases of 8.7 GB (which fits into memory), 22.7, 44 and 81 GB, 25 users of TPC-C, four cores and 16 GB of memory. Times of a task idle → beside users, \
             by size; the backup took 1.8 to 22 times as long as a plain copy of the file."
                .to_owned(),
        ),
        Part::Table(
            ["task", "disks", "published"].map(str::to_owned).to_vec(),
            rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect(),
        ),
        Part::Text(format!(
            "What cannot be compared: their machine, their disks and the size of their databases, so seconds as such; which users' throughput they had during gstat, as the talk's table of \
             that is garbled in every copy there is. What can: a task's time beside users against idle, its time against a plain copy, and who of two contestants of the same run costs the \
             users less. Tasks of the same name are not the same: gannet stat counts every record with its versions, pgstattuple reads pages; gannet check looks at every page, its checksum \
             and each index against its table, bt_index_check at indexes and whether each row has its entry; gannet backup verifies every page. PostgreSQL 15 has no incremental \
             backup, its base backup is a database as it is, without a restore, and VACUUM FULL is no rival of a compaction, as it locks the users out. What makes another database, restore and load, \
             does so beside the users of the first one, on the same device and with its memory. gannet restore and gannet load have a quarter of it, and Gannet's server so much less; pg_restore's two jobs \
             work within their server, which has a half of its usual cache where that is little, as it was ended by the system otherwise; gbak -c works within its server, with half of the usual cache for each of its two \
             databases; nbackup -R is a program of its own. PostgreSQL's new database lies among its others: it counts as room beside and as cached of the database, and is made, empty, before the time begins.{}{}",
            if found.has(Side::Firebird) { FIREBIRDS_TASKS } else { "" },
            if found.has(Side::Sqlite) { SQLITES_TASKS } else { "" },
        )),
    ]
}

/// What Firebird's tasks are, and are not.
const FIREBIRDS_TASKS: &str = " Firebird 3 (the published one was 2.5.2) has them as its administrators have them beside a server: nbackup reads the file while the server writes changes to another one, \
    which it brings home afterwards, and that is a part of the task; gstat reads the file, too, and a page may change under it; gbak runs within the server (-se) and removes no garbage (-g); \
    the online validation looks at tables and their indexes, one after the other, and lets nobody write to the one that it looks at. It has no checksums, and no compaction but a restore.";

/// What SQLite's are.
const SQLITES_TASKS: &str = " SQLite has neither server nor programs: its users are threads of a process that is in the memory group itself, and a task is a process that calls the library. The \
    backup, dbstat, integrity_check and the dump see a snapshot, while the log grows; VACUUM lets nobody write meanwhile, and is there as its only way to a shorter file. There is one writer at a time, \
    who is waited for by looking again after a while, as SQLite does it.";

impl Found<'_> {
    fn has(&self, side: Side) -> bool {
        self.contestants().contains(&side)
    }

    /// Tables that Firebird's validation could not lock in time, in all of its runs.
    fn left_out(&self) -> u64 {
        let loads = ["/phases/idle/runs", "/phases/closed/with/beside/runs", "/phases/open/with/beside/runs"];
        let told = self.task(Side::Firebird, Task::Check).into_iter();
        let runs = told.flat_map(|told| loads.map(|load| told.pointer(load)?.as_array())).flatten().flatten();
        runs.filter_map(|run| run.pointer("/said/tables_left_out")?.as_u64()).sum()
    }

    /// Who sweeps, where a sweep is measured, and what else there is to it.
    fn who_sweeps(&self) -> String {
        let mut shut = vec!["Gannet's sweep_window is shut"];
        if self.has(POSTGRESQL) {
            shut.push("PostgreSQL's autovacuum is off");
        }
        if self.has(Side::Firebird) {
            shut.push("Firebird's sweep interval is 0, though there whoever reads rows removes their old versions at any time");
        }
        shut.join(", ")
    }

    fn introduction(&self) -> Vec<Part> {
        let plan = &self.plan;
        let group = self
            .rows()
            .first()
            .and_then(|&(task, side)| self.task(side, task).first().map(|told| told["has_group"] == true));
        let held = match group {
            Some(false) => {
                "No memory cgroup could be made, so nobody is held to it but by its own settings, and who reads through the page cache has the whole machine's."
            }
            None => {
                "Server and task are in one memory cgroup of that size, page cache included, where one can be made."
            }
            Some(true) => "Server and task are in one memory cgroup of that size, page cache included.",
        };
        let rough = match self.run.order.size {
            Size::Quick => {
                " At this size each time is so short that figures are rough, a p99 most of all: the standard size is what counts."
            }
            _ => "",
        };
        let socket = match self.has(Side::Firebird) {
            true => "a Unix socket, those of Firebird over the loopback",
            false => "a Unix socket",
        };
        let outside = match self.has(Side::Sqlite) {
            true => "their program is outside of the group, but for SQLite, which is in it",
            false => "their program is outside of the group",
        };
        let conditions: Vec<&Value> = self
            .rows()
            .into_iter()
            .flat_map(|(task, side)| self.task(side, task))
            .filter(|told| told["conditions"].is_u64())
            .collect();
        let mut proofs: Vec<&str> = self
            .rows()
            .into_iter()
            .flat_map(|(task, side)| self.task(side, task))
            .filter_map(|told| told["proof"].as_str())
            .collect();
        proofs.sort_unstable();
        proofs.dedup();
        let mut parts = vec![
            Part::Text(format!(
                "TPC-C with {} warehouses, {} of memory. {held} {} users without think times, each transaction committed durably, work over {socket}; {outside}. Each task is a step of its own on a fresh copy of the loaded data: {} s of users that do not count, then {} s without the task, with it, without it, in a closed loop (full \
                 load); then the same in an open loop at half of that throughput (half load), where latency counts from when a transaction comes in. A task begins again when it has ended, once a second \
                 at most; the time with it lasts until it has ended, {} s at most, and its first run's time counts. What makes files runs {MADE_MOST} times at most, a sweep once, and the users leave then. Gannet's tasks run beside users at full load once more, with --job-pace full: they do not make way then. Then the users are gone and it runs alone. What a restore or a load reads is not in the page cache when it begins. Files are removed only when nobody is \
                 measured.{rough}",
                plan.warehouses,
                format_size(plan.memory()),
                plan.sessions,
                plan.warm_up,
                plan.seconds,
                self.limit(),
            )),
            Part::Text(format!(
                "A sweep has the old versions of one in {GARBAGE} rows of the stock to remove, which a snapshot holds until it begins, and nobody sweeps before: {}. \
                 A compaction runs alone on a copy, before, as it leaves little to do to the next one. An incremental backup has what users have changed since the one before.",
                self.who_sweeps()
            )),
        ];
        parts.extend(calibrated(self.run));
        if let left_out @ 1.. = self.left_out() {
            parts.push(Part::Text(format!(
                "Firebird's validation could not lock {left_out} tables within 10 s, and has left them out: it did less than the others."
            )));
        }
        if !conditions.is_empty() || !proofs.is_empty() {
            let conditions = match conditions.len() {
                0 => String::new(),
                count => format!(
                    " After {count} of the steps the conditions of TPC-C (clause 3.3.2) were looked at, and held."
                ),
            };
            let proofs = match proofs.as_slice() {
                [] => String::new(),
                names => format!(
                    " What was made was proven whole by {}; who is not named has nothing for that.",
                    names.join(", ")
                ),
            };
            parts.push(Part::Text(format!("{conditions}{proofs}").trim().to_owned()));
        }
        parts
    }

    fn settings(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for side in self.contestants() {
            // Those of a sweep differ by who sweeps besides, and those of what makes a database by what that needs.
            for task in [Task::Backup, Task::Restore, Task::Load, Task::Sweep] {
                let Some(&told) = self.task(side, task).first() else { continue };
                let settings = told.pointer("/server/settings").and_then(Value::as_array);
                let settings: Vec<String> = settings
                    .into_iter()
                    .flatten()
                    .filter_map(|setting| setting.as_str().map(str::to_owned))
                    .collect();
                parts.push(Part::Text(format!(
                    "{}, {}; data files of {} before the task ran alone:",
                    self.title(side),
                    if task == Task::Backup {
                        "for all others".to_owned()
                    } else {
                        format!("for a {}", task.name())
                    },
                    figure(told, "/phases/idle/data_bytes")
                        .map_or("unknown size".to_owned(), |bytes| format_size(bytes as u64)),
                )));
                parts.push(Part::Commands(settings));
            }
        }
        parts
    }
}
