//! The backups in a folder: how they are called, which one is the latest, which ones may go.
//!
//! # Invariants
//! 1. What goes is a whole chain: a full backup with everything that adds to it, newest first, and of each the manifest first. A backup
//!    that is left has all that it adds to, whatever moment that ends at; nothing goes while the manifest of one cannot be read, or its data is not as long
//!    as that says, and none that one of another folder may add to which a backup here adds to.
//! 2. Nothing goes but complete backups of this very copy of the database, and what a backup of it has left that was broken off. A copy of a database's file
//!    has the past of that one: of its past, too, what was named after a file of another name stays.
//! 3. One backup of a database goes into a folder at a time: the lock `STEM.lock` there says so. So where files are objects, which nobody can
//!    lock, data without a manifest was broken off. A folder that is used by its path and by a `file://` URL has the same lock both times: by
//!    its path also that goes which a backup to the URL has left (`NAME#1`), which is not listed there.

use super::lineage::Lineage;
use super::place::BackupPlace;
use super::sink::{
    Before, DATA, Destination, MANIFEST, UNPUBLISHED, data_place, manifest_place, remove_by_steps,
};
use super::source::{BackupFile, Source};
use super::{BackupOptions, Manifest, failed};
use crate::archive;
use crate::database::Database;
use crate::jobs::{Unit, Watch};
use crate::meta::LIVES_MAX;
use crate::stat::{StatOptions, StatReport};
use crate::{Error, Result};
use gannet_base::{Lsn, clock};
use gannet_io::{Disk, OpenOptions};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Databases of which a message names the latest backup, at most.
const DATABASES_NAMED: usize = 10;

/// Which backup another one adds to.
#[derive(Clone, Debug)]
pub enum Since {
    /// The latest one of this database in the folder.
    Latest,
    /// The one of this name in the folder, or at this place.
    Path(BackupPlace),
}

/// A backup that is to be one of several in a folder.
#[derive(Clone, Debug)]
pub struct BackupPlan {
    /// The folder, which is there.
    pub folder: BackupPlace,
    /// The backup that it adds to; `None` for a full one.
    pub since: Option<Since>,
    /// See [`BackupOptions::compress`].
    pub compress: Option<i32>,
    /// So many full backups are kept, with what adds to them, and older ones removed once the new one is complete; `None` for all.
    pub keep: Option<u32>,
    /// With `keep`: an archive of this database, of which log is removed that none of the backups in the folder needs.
    pub archive: Option<PathBuf>,
    /// Exact statistics of these trees are made by the same pass; see [`Database::backup_counted`].
    pub statistics: Option<StatOptions>,
}

/// A backup that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// It.
    pub backup: BackupFile,
    /// Statistics, where they were wanted.
    pub statistics: Option<StatReport>,
    /// Names of those that were removed after it.
    pub removed: Vec<String>,
    /// Parts of the archive that were removed.
    pub removed_parts: u64,
    /// Why older ones could not be removed.
    pub complaint: Option<String>,
}

/// A backup's place among others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Among<'a> {
    pub(crate) folder: &'a BackupPlace,
    pub(crate) since: Option<&'a Since>,
    pub(crate) keep: Option<u32>,
    /// Of the database that it is taken of.
    pub(crate) lineage: &'a Lineage,
}

/// What takes a backup to a destination, adding to another one or not.
type Take<'t> = &'t mut dyn FnMut(
    Destination,
    Option<Manifest>,
    &mut Watch<'_>,
) -> Result<(Manifest, Option<StatReport>)>;

impl Among<'_> {
    /// Has a backup taken, gives it a name, and removes older ones.
    pub(crate) fn take(self, watch: &mut Watch<'_>, take: Take<'_>) -> Result<Taken> {
        self.take_or_leave(watch, take).map_err(|error| {
            // What was let go of says so in its own words, which nobody may have told the job yet.
            let let_go = watch.look().is_err() && matches!(error, Error::Backup(_));
            let error = if let_go { Error::Cancelled } else { error };
            let left = self.folder.disk.take_left();
            match left.is_empty() {
                true => error,
                false => Error::Backup(format!(
                    "{error}; it could not be removed what was broken off, and this may be left there: {}",
                    left.join(", ")
                )),
            }
        })
    }

    fn take_or_leave(self, watch: &mut Watch<'_>, take: Take<'_>) -> Result<Taken> {
        let Among { folder, keep, lineage, .. } = self;
        let disk = &folder.disk;
        let list = |error: gannet_io::Error| match error.kind() {
            gannet_io::ErrorKind::NotFound => super::sink::no_folder(folder),
            _ => failed(&error.into()),
        };
        disk.list(&folder.path).map_err(list)?;
        if keep == Some(0) {
            return Err(Error::Invalid("at least one backup is kept".to_owned()));
        }
        let stem = lineage.stem();
        // Two at a time would remove what the other one adds to.
        let lock = folder.join(format!("{stem}.lock"));
        // Where files are objects it goes with the lock.
        let is_made = !disk.holds_objects() && !disk.exists(&lock.path).unwrap_or(true);
        let _alone = disk.lock(&lock.path).map_err(|error| match error.kind() {
            gannet_io::ErrorKind::Locked => Error::Backup(format!(
                "another backup of {stem} into {folder:?} is under way: {}",
                error.detail()
            )),
            _ => failed(&error.into()),
        })?;
        self.take_alone(watch, take).inspect_err(|_| {
            // Who holds a lock may remove its file. What cannot be removed holds up nobody.
            if is_made {
                let _ = disk.remove(&lock.path);
            }
        })
    }

    /// The same under the lock.
    fn take_alone(self, watch: &mut Watch<'_>, take: Take<'_>) -> Result<Taken> {
        let Among { folder, since, keep, lineage } = self;
        let stem = lineage.stem();
        remove_unpublished(folder, &stem)?;
        let since = match since {
            None => None,
            Some(Since::Latest) => Some(latest(folder, lineage)?),
            Some(Since::Path(place)) => {
                let here = folder.join(&place.path);
                let found = BackupFile::find(&here).or_else(|error| {
                    let is_name = place.path.components().count() == 1;
                    BackupFile::find(place).map_err(|elsewhere| if is_name { error } else { elsewhere })
                })?;
                found.check_len()?;
                Some(found)
            }
        };
        let parent = since.as_ref().map(BackupFile::manifest);
        let kind = if since.is_some() { "incr" } else { "full" };
        let name = free_name(folder, &format!("{stem}-{}", time_name(clock::unix_micros())), kind)?;
        let destination = Destination::Folder { folder: folder.clone(), name: name.clone() };
        let (manifest, statistics) = take(destination, since.map(|since| since.manifest), watch)?;
        // Nobody but another copy of the database, by another lock, or a person removes it meanwhile.
        if let Some(parent) = parent
            && parent.disk.exists(&parent.path).is_ok_and(|exists| !exists)
        {
            remove_whole(folder, &name)?;
            return Err(Error::Backup(format!(
                "{:?} was removed while this backup was taken, which adds to it: take a full one",
                parent.path
            )));
        }
        // The backup is complete, whatever becomes of older ones.
        let (removed, complaint) = match keep.map(|keep| self.retain(&manifest, keep as usize, watch)) {
            None => (Vec::new(), None),
            Some(Ok(done)) => done,
            Some(Err(error)) => (Vec::new(), Some(format!("older backups could not be removed: {error}"))),
        };
        let backup = BackupFile { folder: folder.clone(), name, manifest };
        Ok(Taken { backup, statistics, removed, removed_parts: 0, complaint })
    }

    /// Removes the oldest chains of the database, so that `keep` full backups are left, and what was broken off. Gives their names, and what
    /// there is to complain of.
    fn retain(
        self,
        latest: &Manifest,
        keep: usize,
        watch: &mut Watch<'_>,
    ) -> Result<(Vec<String>, Option<String>)> {
        let Among { folder, lineage, .. } = self;
        let disk = &*folder.disk;
        watch.job().phase("removes older backups", Unit::Bytes, 0);
        let is_far = disk.holds_objects();
        let mut before = || {
            watch.look()?;
            // What a network does holds nobody back here: it is waited for without a permit, which others may use.
            if is_far { Ok(None) } else { watch.job().permit().map(Some) }
        };
        let mut unread = None;
        let all = BackupFile::all(folder, &mut |error| unread = Some(error))?;
        // What it adds to is not known.
        if let Some(error) = unread {
            return Err(error);
        }
        let stem = lineage.stem();
        let is_others = |one: &BackupFile| stem_of(&one.name).is_some_and(|other| other != stem);
        let past: Vec<_> = all.iter().filter(|one| lineage.is_past(&one.manifest)).collect();
        let own: Vec<_> = past.iter().copied().filter(|one| !is_others(one)).collect();
        // What is not whole is nothing to keep in place of an older one.
        for one in &own {
            let _permit = before()?;
            one.check_len()?;
        }
        let mut full: Vec<_> = own.iter().filter(|one| !one.manifest.is_incremental()).collect();
        let root = root_of(latest, &past);
        // Of one copy the log says which is older, whatever the clock said; where it has not moved, the one of the latest is the newest.
        full.sort_by_key(|one| {
            let begin = &one.manifest.begin;
            let is_latest = begin.backup_id == root;
            (begin.start_lsn, is_latest, one.manifest.end_lsn, begin.started_unix_us, begin.backup_id)
        });
        // A copy under another name is the same.
        full.dedup_by_key(|one| one.manifest.begin.backup_id);
        let ids = full.iter().rev().skip(keep).map(|one| one.manifest.begin.backup_id);
        let mut doomed: Vec<u64> = ids.filter(|&id| id != root).collect();
        // What adds to one that goes, goes.
        let mut from = 0;
        while from < doomed.len() {
            let parent = doomed[from];
            let children =
                own.iter().filter(|one| one.manifest.begin.parent.is_some_and(|p| p.backup_id == parent));
            let children: Vec<u64> = children.map(|one| one.manifest.begin.backup_id).collect();
            for child in children {
                if !doomed.contains(&child) {
                    doomed.push(child);
                }
            }
            from += 1;
        }
        // What another file's backup is a copy of stays with it.
        doomed.retain(|&id| !all.iter().any(|one| one.manifest.begin.backup_id == id && is_others(one)));
        // Backups of another copy of the database stay, and so does what they add to.
        let parent_of = |one: &BackupFile| one.manifest.begin.parent.map(|parent| parent.backup_id);
        while let Some(needed) = all
            .iter()
            .filter(|one| !doomed.contains(&one.manifest.begin.backup_id))
            .filter_map(parent_of)
            .find(|parent| doomed.contains(parent))
        {
            doomed.retain(|&id| id != needed);
        }
        let spared = spare_ancestors(&mut doomed, &all, lineage);
        let (mut removed, mut stopped) = (Vec::new(), None);
        // What others add to goes last.
        'all: for id in doomed.iter().rev() {
            for one in own.iter().filter(|one| one.manifest.begin.backup_id == *id) {
                {
                    let _permit = before()?;
                    if let Some(new) = newcomer(folder, &all, latest, lineage)? {
                        let why = "came meanwhile, and may add to one of the older backups: they stay until the next time";
                        stopped = Some(format!("{new} {why}"));
                        break 'all;
                    }
                    disk.remove(&one.manifest().path)?;
                    disk.sync_dir(&folder.path)?;
                }
                remove_by_steps(&one.data(), &mut before)?;
                removed.push(one.name.clone());
            }
        }
        removed.extend(remove_leftovers(folder, &stem, &mut before)?);
        disk.sync_dir(&folder.path)?;
        let unknown =
            |one: &&BackupFile| lineage.is_same_database(&one.manifest) && !lineage.is_past(&one.manifest);
        let forgotten = all.iter().find(unknown).filter(|_| lineage.forgets());
        let complaint = forgotten.map(|one| {
            format!(
                "{} stays: it is of another copy of this database, or from before the last {LIVES_MAX} times that it was opened, farther than is known: \
                 remove it, or move it away, if it is not wanted any more",
                one.path()
            )
        });
        // Of a file that goes on by itself nobody here has to care.
        let goes_on = |stem: Option<&str>| {
            all.iter().any(|one| {
                stem_of(&one.name) == stem
                    && lineage.is_same_database(&one.manifest)
                    && !lineage.is_past(&one.manifest)
            })
        };
        let is_left = |one: &&&BackupFile| {
            is_others(one)
                && !one.manifest.is_incremental()
                && one.manifest.begin.backup_id != root
                && !goes_on(stem_of(&one.name))
        };
        let renamed = past.iter().find(is_left).filter(|_| full.len() >= keep).map(|one| {
            format!(
                "{} stays: it was taken when the file had another name than {stem}, or of one that this is a copy of: where nobody wants it any more, \
                 remove it with all that adds to it, or move them away",
                one.path()
            )
        });
        Ok((removed, both(both(spared, stopped), both(complaint, renamed))))
    }
}

impl Database {
    /// Takes a backup into a folder, as a part of a job; its name is made of the database's, the time, and what kind it is.
    ///
    /// # Errors
    /// As [`Database::backup`], and [`Error::Backup`] where there is no backup to add to. Where the folder's disk does not answer when what was
    /// broken off is to be removed, the message says what may be left there.
    pub fn backup_into(&self, plan: &BackupPlan, watch: &mut Watch<'_>) -> Result<Taken> {
        let lineage = self.lineage_of(0);
        let among =
            Among { folder: &plan.folder, since: plan.since.as_ref(), keep: plan.keep, lineage: &lineage };
        let mut taken = among.take(watch, &mut |destination, since, watch| {
            let options = BackupOptions { destination, since, compress: plan.compress };
            self.backup_counted(options, plan.statistics.as_ref(), watch)
        })?;
        // Whatever stays of older ones: log goes that none of those needs that are there.
        if let (Some(_), Some(archive)) = (plan.keep, &plan.archive) {
            let complaint = match self.prune_archive(&plan.folder, archive, watch) {
                Ok((parts, complaint)) => {
                    taken.removed_parts = parts;
                    complaint
                }
                Err(error) => Some(format!("archived log could not be removed: {error}")),
            };
            taken.complaint = both(taken.complaint, complaint);
        }
        Ok(taken)
    }

    /// What tells backups of this copy of the database from others.
    ///
    /// # Errors
    /// Those of reading space maps.
    pub fn lineage(&self) -> Result<Lineage> {
        let pages: u64 = self.pages_by_tree()?.values().sum();
        Ok(self.lineage_of(pages * self.page_size() as u64))
    }

    /// Removes log from an archive that no backup of the database in the folder needs. Those of another copy of it count, as one may be of this
    /// copy that was taken too long ago to know; where it is one of them that needs the oldest log, that is to complain of.
    fn prune_archive(
        &self,
        folder: &BackupPlace,
        archive: &Path,
        watch: &mut Watch<'_>,
    ) -> Result<(u64, Option<String>)> {
        let mut unread = None;
        let all = BackupFile::all(folder, &mut |error| unread = Some(error))?;
        // What one needs that cannot be read is not known.
        if let Some(error) = unread {
            return Err(error);
        }
        let lineage = self.lineage_of(0);
        // They stand in the log's order.
        let mut same = all.iter().filter(|one| lineage.is_same_database(&one.manifest));
        let Some(oldest) = same.next() else { return Ok((0, None)) };
        watch.job().phase("removes archived log", Unit::Bytes, 0);
        let (mode, meta, mut before) = (self.io_mode_request(), self.meta(), || watch.look());
        let below = Lsn(oldest.manifest.begin.start_lsn);
        let removed = archive::prune(self.engine(), (archive, &meta), mode, below, &mut before)?;
        let complaint = (!lineage.is_past(&oldest.manifest)).then(|| {
            format!(
                "archived log from behind lsn {below} stays for {}, which is of another copy of this database, or was taken too long ago to tell: \
                 remove it, or move it away, if nothing is to be restored from there with this archive",
                oldest.path()
            )
        });
        Ok((removed, complaint))
    }
}

/// The latest backup of this copy of a database in a folder, with all that it adds to.
fn latest(folder: &BackupPlace, lineage: &Lineage) -> Result<BackupFile> {
    let all = all_or_none(folder)?;
    let latest = all.into_iter().rfind(|one| lineage.is_past(&one.manifest)).ok_or_else(|| {
        let or_forgotten = match lineage.forgets() {
            true => format!(" from its last {LIVES_MAX} openings, and earlier ones are not known any more"),
            false => String::new(),
        };
        Error::Backup(format!(
            "there is no backup of this copy of the database in {folder:?}{or_forgotten}: take a full one first"
        ))
    })?;
    let whole = |chain: Vec<BackupFile>| chain.iter().try_for_each(BackupFile::check_len);
    match latest.clone().chain().and_then(whole) {
        Ok(()) => Ok(latest),
        Err(Error::Backup(what)) => Err(Error::Backup(format!(
            "{what}: what is added to it now could not be restored from here. Put that back, take a full backup, or name the one to add to"
        ))),
        Err(error) => Err(error),
    }
}

/// All backups in a folder. One that cannot be read may be the latest: then nobody knows which that is.
fn all_or_none(folder: &BackupPlace) -> Result<Vec<BackupFile>> {
    let mut unread = None;
    let all = BackupFile::all(folder, &mut |error| unread = Some(error))?;
    match unread {
        None => Ok(all),
        Some(error) => Err(Error::Backup(format!(
            "{error}; which backup in {folder:?} is the latest is not known therefore: name the one that is meant, or move that away"
        ))),
    }
}

/// A name that no backup in the folder has: two may begin within one second.
fn free_name(folder: &BackupPlace, stem: &str, kind: &str) -> Result<String> {
    let names = folder.disk.list(&folder.path).map_err(|error| failed(&error.into()))?;
    for number in 1.. {
        let name = if number == 1 { format!("{stem}-{kind}") } else { format!("{stem}.{number}-{kind}") };
        if !names.iter().any(|other| other.strip_suffix(DATA) == Some(&name)) {
            return Ok(name);
        }
    }
    unreachable!("a folder has fewer files than there are numbers")
}

/// A time as a part of a file's name, such as `20261123T034501Z`.
fn time_name(unix_us: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_us / 1_000_000);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// A time for people, and for [`RecoveryTarget::Time`](crate::RecoveryTarget), such as `2026-11-23T03:45:01.250000Z`.
pub(crate) fn time_text(unix_us: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_us / 1_000_000);
    let micros = unix_us % 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month, day, hour, minute and second, of UTC.
fn civil(seconds: u64) -> (u64, u64, u64, u64, u64, u64) {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil from days: H. Hinnant, "chrono-compatible low-level date algorithms", 2013. Days count from 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day, second / 3600, second / 60 % 60, second % 60)
}

/// Whether this is what [`free_name`] makes of a time, behind the database's name.
fn is_time_and_kind(rest: &str) -> bool {
    let Some((time, kind)) = rest.rsplit_once('-') else { return false };
    let (time, number) = time.split_once('.').unwrap_or((time, "1"));
    let is_time = time.len() == 16
        && time.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    is_time && is_number(number) && matches!(kind, "full" | "incr")
}

/// The full backup that the latest one adds to, by way of others or not.
fn root_of(latest: &Manifest, own: &[&BackupFile]) -> u64 {
    let mut at = latest;
    for _ in own {
        let parent = at.begin.parent.map(|parent| parent.backup_id);
        match own.iter().find(|one| Some(one.manifest.begin.backup_id) == parent) {
            Some(one) => at = &one.manifest,
            None => break,
        }
    }
    at.begin.backup_id
}

/// What there is of two complaints.
fn both(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; and {other}")),
        (one, other) => one.or(other),
    }
}

/// Spares what a backup may add to by way of one that is not in the folder: all that is not younger than that one. Says so, where there is something.
fn spare_ancestors(doomed: &mut Vec<u64>, all: &[BackupFile], lineage: &Lineage) -> Option<String> {
    let id = |one: &BackupFile| one.manifest.begin.backup_id;
    let parent = |one: &BackupFile| one.manifest.begin.parent;
    let is_here = |wanted: u64| all.iter().any(|one| id(one) == wanted);
    let elsewhere = |one: &BackupFile| parent(one).filter(|parent| !is_here(parent.backup_id));
    let apart = all
        .iter()
        // Places in the log of another copy tell nothing of this one's.
        .filter(|one| lineage.is_past(&one.manifest))
        .filter_map(|one| elsewhere(one).map(|parent| (one, parent)))
        .max_by_key(|(_, parent)| parent.start_lsn)?;
    let before = doomed.len();
    let is_younger = |one: &BackupFile| one.manifest.begin.start_lsn > apart.1.start_lsn;
    doomed.retain(|&doomed| all.iter().any(|one| id(one) == doomed && is_younger(one)));
    // Chains are left as a whole.
    while let Some(left) = all.iter().find(|one| {
        doomed.contains(&id(one)) && parent(one).is_some_and(|parent| !doomed.contains(&parent.backup_id))
    }) {
        doomed.retain(|&doomed| doomed != id(left));
    }
    (doomed.len() < before).then(|| {
        format!(
            "older backups stay that {} may add to, as it adds to backup {:016x}, which is not in {:?}: move it away, to where that is, if they are \
             not wanted any more",
            apart.0.path(),
            apart.1.backup_id,
            apart.0.folder
        )
    })
}

/// The stem of the database that [`Database::backup_into`] has given a backup of this name; `None` where the name is somebody else's.
fn stem_of(name: &str) -> Option<&str> {
    let (before_kind, _) = name.rsplit_once('-')?;
    let (stem, _) = before_kind.rsplit_once('-')?;
    is_time_and_kind(&name[stem.len() + 1..]).then_some(stem)
}

/// Whether a backup's name is one that [`Database::backup_into`] gives to a database of this stem.
fn is_of(stem: &str, name: &str) -> bool {
    stem_of(name) == Some(stem)
}

/// A backup of the same database that is neither the latest nor among those that were there: another copy's, which has a lock of its own.
fn newcomer(
    folder: &BackupPlace,
    known: &[BackupFile],
    latest: &Manifest,
    lineage: &Lineage,
) -> Result<Option<String>> {
    for name in folder.disk.list(&folder.path)?.iter().filter_map(|name| name.strip_suffix(MANIFEST)) {
        if known.iter().any(|one| one.name == name) {
            continue;
        }
        let place = manifest_place(folder, name);
        let one = match BackupFile::find(&place) {
            // One of another database, that has gone since.
            Err(_) if !folder.disk.exists(&place.path)? => continue,
            one => one?,
        };
        if lineage.is_same_database(&one.manifest) && one.manifest.begin.backup_id != latest.begin.backup_id {
            return Ok(Some(one.path()));
        }
    }
    Ok(None)
}

/// Removes a backup that is complete: the manifest first, durably.
fn remove_whole(folder: &BackupPlace, name: &str) -> Result<()> {
    folder.disk.remove(&manifest_place(folder, name).path)?;
    folder.disk.sync_dir(&folder.path)?;
    remove_by_steps(&data_place(folder, name), &mut || Ok(None))
}

/// Holds a backup of which the manifest is missing, or anything else, as nobody writes it; `None` where somebody does, or nobody knows. Where
/// files are objects, and where there is no data, the lock of the folder's user says so.
fn claim(folder: &BackupPlace, name: &str) -> Option<Box<dyn Any + Send + Sync>> {
    let (disk, place) = (&*folder.disk, data_place(folder, name));
    if disk.holds_objects() || !disk.exists(&place.path).ok()? {
        return Some(Box::new(()));
    }
    let file = disk.open(&place.path, &OpenOptions::read_write()).ok()?;
    let lock = file.lock().ok()?;
    Some(Box::new((file, lock)))
}

/// Removes data of this database's backups without a manifest that nobody is writing, and what lies beside.
fn remove_leftovers(folder: &BackupPlace, stem: &str, before: Before<'_>) -> Result<Vec<String>> {
    let disk = &*folder.disk;
    let names = disk.list(&folder.path)?;
    // What uploads to a `file://` URL write before it has its name; on other disks it is not listed.
    for staged in names.iter() {
        let Some((file, _)) = staged.rsplit_once('#').filter(|(_, number)| is_number(number)) else {
            continue;
        };
        let name = file.strip_suffix(DATA).or(file.strip_suffix(MANIFEST));
        let Some(name) = name.filter(|name| is_of(stem, name)) else { continue };
        let Some(_nobodys) = claim(folder, name) else { continue };
        let _permit = before()?;
        // At once: somebody who writes it after all is to notice.
        remove_if_there(disk, &folder.join(staged))?;
    }
    let mut removed = Vec::new();
    for name in names.iter().filter_map(|name| name.strip_suffix(DATA)) {
        let has_manifest = names.iter().any(|other| other.strip_suffix(MANIFEST) == Some(name));
        if !is_of(stem, name) || has_manifest {
            continue;
        }
        let Some(_nobodys) = claim(folder, name) else { continue };
        // The list may be minutes old.
        if disk.exists(&manifest_place(folder, name).path)? {
            continue;
        }
        remove_by_steps(&data_place(folder, name), before)?;
        removed.push(name.to_owned());
    }
    Ok(removed)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Removes manifests of this database's backups that never got their names, and that nobody is writing.
fn remove_unpublished(folder: &BackupPlace, stem: &str) -> Result<()> {
    let disk = &*folder.disk;
    if disk.holds_objects() {
        return Ok(());
    }
    for file in disk.list(&folder.path).map_err(|error| failed(&error.into()))? {
        let name = file.strip_suffix(UNPUBLISHED).and_then(|file| file.strip_suffix(MANIFEST));
        let Some(name) = name.filter(|name| is_of(stem, name)) else { continue };
        let Some(_nobodys) = claim(folder, name) else { continue };
        remove_if_there(disk, &folder.join(&file)).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn remove_if_there(disk: &dyn Disk, place: &BackupPlace) -> Result<()> {
    match disk.remove(&place.path) {
        Err(error) if error.kind() != gannet_io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

impl Source {
    /// What places mean: one of a folder is the latest backup there; one of a backup is that with all that it adds to, which lie beside
    /// it; several are what they say, oldest first.
    ///
    /// # Errors
    /// [`Error::Backup`] where there is no such backup, or a part of one only.
    pub fn find(places: &[BackupPlace]) -> Result<Source> {
        if let [place] = places {
            let found = if is_folder(place)? { latest_of_one(place)? } else { BackupFile::find(place)? };
            return Ok(Source::Files(found.chain()?));
        }
        let files = places.iter().map(BackupFile::find).collect::<Result<_>>()?;
        Ok(Source::Files(files))
    }
}

/// The latest backup in a folder, which has those of one database only.
fn latest_of_one(place: &BackupPlace) -> Result<BackupFile> {
    let mut of_each: BTreeMap<u64, Vec<BackupFile>> = BTreeMap::new();
    for one in all_or_none(place)? {
        of_each.entry(one.manifest.begin.database_id).or_default().push(one);
    }
    let mut latest = of_each.values().map(|own| latest_by_all(own)).collect::<Result<Vec<_>>>()?;
    if latest.len() > 1 {
        let names: Vec<_> = latest.iter().take(DATABASES_NAMED).map(BackupFile::path).collect();
        return Err(Error::Backup(format!(
            "{place:?} has backups of {} databases: name the one that is meant; the latest of each: {}",
            latest.len(),
            names.join(", ")
        )));
    }
    latest.pop().ok_or_else(|| Error::Backup(format!("there is no complete backup in {place:?}")))
}

/// The latest of the backups of one database, which stand in the log's order.
///
/// # Errors
/// [`Error::Backup`] where the clock says otherwise than the log, and it is not known that both are of one copy.
fn latest_by_all(own: &[BackupFile]) -> Result<BackupFile> {
    let time = |one: &BackupFile| one.manifest.begin.started_unix_us;
    let (Some(by_log), Some(by_time)) = (own.last(), own.iter().max_by_key(|one| time(one))) else {
        unreachable!("each database here has a backup");
    };
    let begin = &by_log.manifest.begin;
    let is_one_copy = time(by_time) <= time(by_log)
        || by_time.manifest.begin.life == begin.life
        || by_log.clone().chain().is_ok_and(|chain| {
            chain.iter().any(|one| one.manifest.begin.backup_id == by_time.manifest.begin.backup_id)
        });
    if is_one_copy {
        return Ok(by_log.clone());
    }
    Err(Error::Backup(format!(
        "{} was taken last as the clock said, and {} as the log says: a clock was set back, or they are of two copies of the database; name the one \
         that is meant",
        by_time.path(),
        by_log.path()
    )))
}

/// Whether a place is a folder, and not a backup. In an object store that is one which has something in it.
fn is_folder(place: &BackupPlace) -> Result<bool> {
    let listed = place.disk.list(&place.path);
    if !place.disk.holds_objects() {
        return match listed {
            Err(error) if error.kind() == gannet_io::ErrorKind::PermissionDenied => Err(error.into()),
            listed => Ok(listed.is_ok()),
        };
    }
    match listed {
        // What no folder of this store is around is one, whatever is in it.
        Ok(names) => Ok(!names.is_empty() || {
            let around = place.disk.exists(&place.parent().path);
            around.is_err_and(|error| error.kind() == gannet_io::ErrorKind::Invalid)
        }),
        // What lies behind a file's name is not there either.
        Err(error) if error.kind() == gannet_io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_795_405_812, "20261123T035012Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(time_name(seconds * 1_000_000), text);
        }
    }
}
