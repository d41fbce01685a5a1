//! Where a restore ends: the target, found in the archive before anything is written.
//!
//! # What it guarantees
//! 1. A plan is made only where all of the log from the backup's end to the target is there, by what its parts say of themselves; that
//!    their bytes are whole is proven as they are copied.
//! 2. The target is the end of a record. Where it is a time, every commit up to then is below, and none that came more than 10 ms later. Where the clock was
//!    ahead for a while there may be no such place: then there is no plan.

use super::folder::{Folder, Part};
use super::format::{PartBegin, PartEnd};
use super::reader::{self, Reader, Said, Why};
use crate::backup::set::time_text;
use crate::backup::{Manifest, OpenTime};
use crate::log::{BLOCK, Met, Note, Step};
use crate::meta::Life;
use crate::{Error, Result};
use gannet_base::Lsn;
use gannet_io::{Disk, ModeRequest};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Points, or parts, that a message names at most.
const POINTS_NAMED: usize = 10;

/// Up to where a restore goes on with the log of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecoveryTarget {
    /// To the archive's end.
    #[default]
    End,
    /// To the last record that ends at this LSN or before.
    Lsn(u64),
    /// Every commit up to this time, in microseconds since 1970-01-01 UTC, and none that came more than 10 ms later.
    Time(u64),
    /// A point that was named by [`Database::create_restore_point`](crate::Database::create_restore_point).
    Point(String),
}

impl fmt::Display for RecoveryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryTarget::End => f.write_str("the end of the archive"),
            RecoveryTarget::Lsn(lsn) => write!(f, "lsn {lsn}"),
            RecoveryTarget::Time(time) => f.write_str(&time_text(*time)),
            RecoveryTarget::Point(name) => write!(f, "point {name:?}"),
        }
    }
}

/// What is to be added to a backup.
pub(crate) struct Plan {
    pub(super) folder: Folder,
    /// From those on that the backup's end may lie in.
    pub(super) parts: Vec<Part>,
    /// The one that it lies in.
    pub(super) covering: usize,
    /// The backup's end.
    pub(super) from: u64,
    /// The target.
    pub(super) to: u64,
    /// Pages of the file, as the log says last on the way there; 0 where it does not.
    pages: u64,
}

impl Plan {
    /// Bytes of log to be added.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.to - self.from
    }

    /// Pages that the database's file comes to have, as far as that was met.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }
}

/// What was found on the way to a target.
struct Search<'a> {
    target: &'a RecoveryTarget,
    from: u64,
    found: Option<u64>,
    /// The end of the last record.
    at: u64,
    /// The latest time that the log says, 0 where it says none: that the backup was complete at some time says nothing of commits up to then.
    latest_unix_us: u64,
    /// Pages of the file, as noted last.
    pages: u64,
    /// Points behind the backup's end: name, LSN, time.
    points: Vec<(String, u64, u64)>,
    look: &'a mut dyn FnMut() -> Result<()>,
}

impl Reader for Search<'_> {
    fn met(&mut self, met: &Met<'_>) -> Said<Step> {
        let (start, end) = match met {
            Met::Segment(header) => {
                let start = header.number * header.segment_size;
                (start, start + BLOCK)
            }
            Met::Record(record) => (record.start, record.end()),
            Met::Filler(end) => (self.at, *end),
        };
        if let RecoveryTarget::Lsn(lsn) = self.target
            && end > *lsn
        {
            self.found = Some(self.at);
            return Ok(Step::Stop);
        }
        if let Met::Record(record) = met
            && start >= self.from
            && let Some(note) = Note::of(record)
        {
            if let RecoveryTarget::Time(time) = self.target
                && note.unix_us() > *time
            {
                self.found = Some(self.at.max(self.from));
                return Ok(Step::Stop);
            }
            self.latest_unix_us = self.latest_unix_us.max(note.unix_us());
            match note {
                Note::Point { unix_us, name } => self.points.push((name, end, unix_us)),
                // The file may become shorter again, and has to have been as long.
                Note::Clock { pages, .. } => self.pages = self.pages.max(pages),
            }
        }
        self.at = end;
        Ok(Step::On)
    }

    fn bytes(&mut self, _: u64, _: Option<&[u8]>, _: u64) -> Result<()> {
        Ok(())
    }

    fn back_to(&mut self, lsn: u64) -> Result<()> {
        self.at = lsn;
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        (self.look)()
    }
}

/// How much later than the first later time the log has to say that it is until nobody looks on for a time that is noted again: an archive of
/// months is not read for a clock that was ahead for longer.
const LOOKS_ON_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Looks for a time that is noted again.
struct Again<'a> {
    /// Log from there on counts.
    from: u64,
    /// Times up to then.
    unix_us: u64,
    found: Option<u64>,
    /// The time noted first, behind the one that is looked for.
    first_us: Option<u64>,
    is_over: bool,
    look: &'a mut dyn FnMut() -> Result<()>,
}

impl Reader for Again<'_> {
    fn met(&mut self, met: &Met<'_>) -> Said<Step> {
        if let Met::Record(record) = met
            && record.start >= self.from
            && let Some(note) = Note::of(record)
        {
            let noted = note.unix_us();
            let first = *self.first_us.get_or_insert(noted);
            if noted <= self.unix_us {
                self.found = Some(record.start);
            }
            self.is_over = noted <= self.unix_us || noted.saturating_sub(first) > LOOKS_ON_US;
            if self.is_over {
                return Ok(Step::Stop);
            }
        }
        Ok(Step::On)
    }

    fn bytes(&mut self, _: u64, _: Option<&[u8]>, _: u64) -> Result<()> {
        Ok(())
    }

    fn back_to(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        (self.look)()
    }
}

/// Where the log from `from` on notes a time again that is not behind `unix_us`, if it does within [`LOOKS_ON_US`]. What cannot be read there is not needed
/// for a restore.
fn noted_again(
    folder: &Folder,
    parts: &[Part],
    (from, unix_us): (u64, u64),
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<u64>> {
    let mut again = Again { from, unix_us, found: None, first_us: None, is_over: false, look };
    for (index, part) in parts.iter().enumerate() {
        let is_before = parts.get(index + 1).is_some_and(|next| next.begin.first <= from);
        if is_before || part.end.is_some_and(|end| end.end <= from || end.latest_unix_us == 0) {
            continue;
        }
        let mut walk = reader::walk_from(folder, part);
        match reader::read_one(folder, parts, index, &mut walk, &mut again) {
            Err(Error::Io(_) | Error::Backup(_)) => {}
            read => drop(read?),
        }
        if again.is_over {
            break;
        }
    }
    Ok(again.found)
}

impl Search<'_> {
    /// Whether a part that is complete has to be gone through, if it is not the last one, which is for how large the file is.
    fn needs(&self, part: &Part, end: &PartEnd) -> bool {
        match self.target {
            RecoveryTarget::End => false,
            RecoveryTarget::Lsn(lsn) => (part.begin.first..end.end).contains(lsn),
            RecoveryTarget::Time(time) => end.latest_unix_us > *time,
            RecoveryTarget::Point(_) => end.points > 0,
        }
    }

    /// Goes through the parts from the one at `from` on, as far as it has to; gives where their log ends, and why.
    fn run(&mut self, folder: &Folder, parts: &[Part], from: usize) -> Result<(u64, Why)> {
        let mut whole = parts[from].begin.first;
        for (index, part) in parts.iter().enumerate().skip(from) {
            let next = parts.get(index + 1).map(|next| &next.begin);
            let counts_to = next.map_or(u64::MAX, |next| next.gap_from.unwrap_or(next.first));
            let complete =
                part.end.filter(|end| next.is_some() && !self.needs(part, end) && counts_to >= end.end);
            let why = match complete {
                Some(end) => {
                    self.latest_unix_us = self.latest_unix_us.max(end.latest_unix_us);
                    whole = end.end;
                    reader::follows(part, &parts[index + 1..], whole, None)
                }
                None => {
                    self.at = part.begin.first;
                    let mut walk = reader::walk_from(folder, part);
                    let why = reader::read_one(folder, parts, index, &mut walk, self)?;
                    whole = walk.whole();
                    why
                }
            };
            if let Some(why) = why {
                return Ok((whole, why));
            }
        }
        Ok((whole, Why::Over(None)))
    }
}

/// Finds the target behind the end of a backup.
pub(super) fn make(
    (disk, path, mode): (&Arc<dyn Disk>, &Path, ModeRequest),
    manifest: &Manifest,
    target: &RecoveryTarget,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<Plan> {
    let folder = Folder::open(disk, path, mode)?;
    let from = manifest.end_lsn;
    let (parts, covering) = cover(&folder, manifest, look)?;
    let mut search =
        Search { target, from, found: None, at: from, latest_unix_us: 0, pages: 0, points: Vec::new(), look };
    let early = match target {
        RecoveryTarget::Lsn(lsn) => *lsn < from,
        RecoveryTarget::Time(time) => *time < manifest.finished_unix_us,
        _ => false,
    };
    // A search for something earlier would go through all of it.
    let (whole, why) = if early {
        search.target = &RecoveryTarget::End;
        search.run(&folder, &parts, covering)?
    } else {
        search.run(&folder, &parts, covering)?
    };
    let is_last = matches!(why, Why::Over(_));
    let why = why.of_all(&folder, &parts, whole, search.look)?;
    let reach = Reach { folder: &folder, manifest, whole, latest_unix_us: search.latest_unix_us, why: &why };
    let is_of_this_copy = |part: &Part| part.begin.has_lived(manifest.begin.life, from);
    // Nothing may have come into the log since the archive was written to, and the database have been opened again.
    let lives = OpenTime::lives(&manifest.begin.lives);
    let is_of_its_past = |part: &Part| Life::is_past(&lives, part.begin.life(), Lsn(whole));
    let is_known = parts[covering..].iter().any(is_of_this_copy) || parts.last().is_some_and(is_of_its_past);
    if whole >= from && !is_known {
        // Those that would tell may be the ones that are missing at the archive's end.
        return Err(Error::Backup(match &why {
            Why::Missing(to, what) if is_last => format!(
                "{}: put the part back, or restore {manifest} without the archive",
                missing(&folder, whole, *to, what)
            ),
            _ => format!(
                "{manifest} was not taken of the copy of the database that {path:?} is the archive of, or too long before"
            ),
        }));
    }
    if early {
        return Err(reach
            .refuse(format!("{target} lies before the end of {manifest}: take one that was taken earlier")));
    }
    let to = match search.found {
        Some(found) => found,
        None => reach.judge(target, &search.points)?,
    };
    // A clock that was ahead says a later time too early: commits up to the time may lie behind.
    if let (RecoveryTarget::Time(time), Some(at)) = (target, search.found)
        && let Some(again) = noted_again(&folder, &parts[covering..], (at, *time), search.look)?
    {
        return Err(Error::Backup(format!(
            "{target} is there more than once: the log says a later time at lsn {at}, and that or an earlier one again at lsn {again}, as the clock \
             was set back. Give the lsn to restore up to: what was committed from lsn {at} on is not in a database that is restored up to there"
        )));
    }
    Ok(Plan { folder, parts, covering, from, to: to.max(from), pages: search.pages })
}

/// What verifying says of it as well.
pub(super) fn missing(folder: &Folder, from: u64, to: u64, what: &str) -> String {
    let path = &folder.path;
    let damaged = damaged(folder, from, to);
    format!("of the archive {path:?} the log from lsn {from} to {to} is missing or damaged: {what}{damaged}")
}

/// Names the parts that begin from `from` to `to` and cannot be read, where there are any.
fn damaged(folder: &Folder, from: u64, to: u64) -> String {
    let found = folder.not_begun(from, to, &mut || Ok(())).unwrap_or_default();
    let names: Vec<_> = found.iter().take(POINTS_NAMED).map(|(_, path)| format!("{path:?}")).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("; the first frame of {} is not whole", names.join(", "))
}

/// The parts that may have the log behind the backup's end, and which of them that lies in.
fn cover(
    folder: &Folder,
    manifest: &Manifest,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<(Vec<Part>, usize)> {
    let path = &folder.path;
    if folder.info.database_id != manifest.begin.database_id {
        return Err(Error::Backup(format!(
            "{path:?} is the archive of another database, {}, than {manifest} is of",
            folder.info.name
        )));
    }
    let end = manifest.end_lsn;
    let parts = folder.parts_from(end, look)?;
    // A log that was begun anew does not follow what the backup has. Behind a gap it does: a backup that ends there is the way out of one.
    let is_anew = |begin: &PartBegin| begin.gap_from == Some(begin.first);
    let covers = |begin: &PartBegin| begin.first < end || begin.first == end && !is_anew(begin);
    let before = parts.partition_point(|part| covers(&part.begin));
    let Some(covering) = before.checked_sub(1) else {
        let begins = parts.first().map_or_else(
            || "it is empty".to_owned(),
            |part| {
                let anew = if is_anew(&part.begin) { ", with log that follows none of before" } else { "" };
                format!("it begins at lsn {}{anew}{}", part.begin.first, damaged(folder, 0, end))
            },
        );
        return Err(Error::Backup(format!(
            "the archive {path:?} does not have the log from the end of {manifest} on, which is lsn {end}: {begins}. Take a backup that ends \
             within the archive"
        )));
    };
    Ok((parts, covering))
}

/// What of the log can be reached behind a backup.
struct Reach<'a> {
    folder: &'a Folder,
    manifest: &'a Manifest,
    whole: u64,
    latest_unix_us: u64,
    why: &'a Why,
}

impl Reach<'_> {
    /// Up to which time every commit is known to be there.
    fn known_until(&self) -> u64 {
        let is_said = matches!(self.why, Why::Over(_));
        self.latest_unix_us.max(if is_said { self.folder.position.unix_us } else { 0 })
    }

    fn refuse(&self, what: impl fmt::Display) -> Error {
        let (from, to) = (self.manifest.end_lsn, self.whole);
        if to < from {
            return Error::Backup(format!("{what}; {}", self.why_not()));
        }
        let times = (
            time_text(self.manifest.finished_unix_us),
            time_text(self.known_until().max(self.manifest.finished_unix_us)),
        );
        let end = match self.why {
            Why::Over(_) | Why::Told => String::new(),
            _ => format!("; {}", self.why_not()),
        };
        Error::Backup(format!(
            "{what}. Within reach is everything from lsn {from} ({}) to lsn {to} ({}){end}",
            times.0, times.1
        ))
    }

    /// Why there is nothing more.
    fn why_not(&self) -> String {
        let (whole, path) = (self.whole, &self.folder.path);
        match self.why {
            Why::Gap(to) => format!(
                "the archive {path:?} has a gap from lsn {whole} to {to}: that log was let go of before it could be archived, or is from before \
                 it was begun. What is behind can be restored from a backup that was taken behind it; what is before, with the target lsn {whole}"
            ),
            Why::Missing(to, what) => {
                let missing = missing(self.folder, whole, *to, what);
                let is_within = whole >= self.manifest.end_lsn;
                let up_to = if is_within { format!("restore up to lsn {whole}, or ") } else { String::new() };
                format!(
                    "{missing}: put the part back, or {up_to}take a backup that was taken behind lsn {to}"
                )
            }
            Why::Over(_) | Why::Told => format!("the archive {path:?} ends at lsn {whole}"),
        }
    }

    /// The target that no record has shown: the end, or none.
    fn judge(&self, target: &RecoveryTarget, points: &[(String, u64, u64)]) -> Result<u64> {
        let (whole, from) = (self.whole, self.manifest.end_lsn);
        match target {
            _ if whole < from => {
                let (why_not, manifest) = (self.why_not(), self.manifest);
                return Err(Error::Backup(match self.why {
                    Why::Missing(..) => format!("{why_not}. The end of {manifest} is lsn {from}"),
                    _ => format!("{why_not}, before the end of {manifest}, which is lsn {from}"),
                }));
            }
            RecoveryTarget::Point(name) => return self.point(name, points),
            RecoveryTarget::End if matches!(self.why, Why::Over(_)) => return Ok(whole),
            RecoveryTarget::End => return Err(Error::Backup(self.why_not())),
            RecoveryTarget::Lsn(lsn) if *lsn == whole => return Ok(whole),
            RecoveryTarget::Time(time) if *time <= self.known_until() => return Ok(whole),
            _ => {}
        }
        Err(self.refuse(format!("{target} is not within the archive {:?}", self.folder.path)))
    }

    fn point(&self, name: &str, points: &[(String, u64, u64)]) -> Result<u64> {
        let named: Vec<_> = points.iter().filter(|(other, ..)| other == name).collect();
        match &named[..] {
            [(_, lsn, _)] => Ok(*lsn),
            [] => {
                let known: Vec<_> =
                    points.iter().rev().take(POINTS_NAMED).map(|(name, ..)| format!("{name:?}")).collect();
                let known = if known.is_empty() {
                    "there is none".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                Err(self.refuse(format!("there is no point {name:?} behind the backup: {known}")))
            }
            several => {
                let list: Vec<_> = several
                    .iter()
                    .map(|(_, lsn, unix_us)| format!("lsn {lsn} ({})", time_text(*unix_us)))
                    .collect();
                Err(Error::Backup(format!(
                    "several points are named {name:?}: give the lsn of the one that is meant, of {}",
                    list.join(", ")
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{BackupFile, BackupOptions, BackupPlace, Destination, Source};
    use crate::{
        CreateOptions, Database, Engine, EngineOptions, JobKind, JobOrder, OpenOptions, TransactionOptions,
        Watch,
    };
    use gannet_base::clock;
    use gannet_io::sim::SimDisk;
    use std::time::Duration;

    fn put(db: &Database, row: u8) {
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.tree("t").unwrap().unwrap();
        txn.put(&tree, &[row], b"committed").unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_while_made_a_restore_to_a_time_lose_what_came_behind() {
        let disk = SimDisk::new(1);
        let place = BackupPlace::new(Arc::new(disk.clone()), "backups");
        disk.create_dir(Path::new("backups")).unwrap();
        let options = EngineOptions { memory: 12 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
        let open = OpenOptions { archive: Some("archive".into()), ..OpenOptions::default() };
        let db = engine.create(Path::new("a.gnt"), &create, &open).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        txn.create_tree("t").unwrap();
        txn.commit().unwrap();
        let destination = Destination::Folder { folder: place.clone(), name: "b".to_owned() };
        let backup = BackupOptions { destination, since: None, compress: None };
        let job = db.jobs().begin(JobOrder::new(JobKind::Backup));
        job.end(db.backup(backup, &mut Watch::new(&job, &mut |_| Ok(())))).unwrap();
        put(&db, 1);
        let core = Arc::clone(&db.begin(TransactionOptions::default()).shared.core);
        let (unix_us, pages) = (clock::unix_micros() + 3_600_000_000, core.space.capacity());
        core.log.append_note(&Note::Clock { unix_us, pages }.encode()).unwrap();
        clock::sleep(Duration::from_millis(30));
        put(&db, 2);
        let time = clock::unix_micros();
        clock::sleep(Duration::from_millis(30));
        put(&db, 3);
        drop(core);
        db.close().unwrap();
        let restore = |to: &str, target: RecoveryTarget| {
            let source = Source::Files(vec![BackupFile::find(&place.join("b")).unwrap()]);
            let job = engine.jobs().begin(JobOrder::new(JobKind::Restore));
            let (archive, open) = ((Path::new("archive"), target), OpenOptions::default());
            let mut tell = |_: &_| Ok(());
            let watch = &mut Watch::new(&job, &mut tell);
            job.end(engine.restore_to(source, archive, Path::new(to), &open, watch))
        };
        let error = restore("time.gnt", RecoveryTarget::Time(time)).unwrap_err().to_string();
        assert!(error.contains("more than once") && error.matches("lsn").count() >= 3, "{error}");
        // Of the time that it was ahead at, too.
        restore("ahead.gnt", RecoveryTarget::Time(unix_us - 1)).unwrap_err();
        restore("end.gnt", RecoveryTarget::End).unwrap();
    }
}
