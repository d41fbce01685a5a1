//! Proving an archive without restoring it, and removing what no backup needs.
//!
//! # What it proves
//! Every part is whole, and each follows the one before, record by record, but for gaps that the archive names. That nothing was removed from
//! its end is proven as far as the archive has written down how far it had come.

use super::folder::{Folder, Part};
use super::plan;
use super::reader::{self, Reader, Said, Why};
use crate::engine::Engine;
use crate::jobs::{Permit, Unit, Watch};
use crate::log::{Met, Note, Step};
use crate::meta::{Life, Meta};
use crate::{Error, Result};
use gannet_base::Lsn;
use gannet_base::memory::Purpose;
use gannet_io::ModeRequest;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::Path;

/// Log that an archive lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveGap {
    /// The LSN where it begins.
    pub from: u64,
    /// The LSN where the archive goes on.
    pub to: u64,
}

/// What an archive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveVerifyReport {
    /// The database's file name when the archive was begun.
    pub database: String,
    /// The LSN where it begins.
    pub from: u64,
    /// The LSN where it ends.
    pub to: u64,
    /// Every commit up to this time is in it, but for gaps, in microseconds since 1970-01-01 UTC; 0 where nothing is known.
    pub until_unix_us: u64,
    /// What it lacks in between.
    pub gaps: Vec<ArchiveGap>,
    /// Its files, and their bytes.
    pub parts: u64,
    /// See `parts`.
    pub bytes: u64,
    /// Records of the log in it.
    pub records: u64,
    /// Points that have a name: that, their LSN, and their time in microseconds since 1970-01-01 UTC.
    pub points: Vec<(String, u64, u64)>,
}

struct Verifier<'a, 'w> {
    report: ArchiveVerifyReport,
    watch: &'a mut Watch<'w>,
    done: u64,
    permit: Option<Permit>,
}

impl Reader for Verifier<'_, '_> {
    fn met(&mut self, met: &Met<'_>) -> Said<Step> {
        if let Met::Record(record) = met {
            self.report.records += 1;
            if let Some(note) = Note::of(record) {
                self.report.until_unix_us = self.report.until_unix_us.max(note.unix_us());
                if let Note::Point { unix_us, name } = note {
                    self.report.points.push((name, record.end(), unix_us));
                }
            }
        }
        Ok(Step::On)
    }

    fn bytes(&mut self, _: u64, bytes: Option<&[u8]>, _: u64) -> Result<()> {
        self.done += bytes.map_or(0, |bytes| bytes.len() as u64);
        self.watch.job().set_done(self.done);
        Ok(())
    }

    fn back_to(&mut self, _: u64) -> Result<()> {
        // What comes twice was read twice.
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        self.permit = None;
        self.watch.look()?;
        self.permit = Some(self.watch.job().permit()?);
        Ok(())
    }

    fn count_read(&mut self, bytes: u64) {
        self.watch.job().count_read(bytes);
    }
}

/// Verifies the archive in a folder.
pub(crate) fn run(
    engine: &Engine,
    path: &Path,
    mode: ModeRequest,
    watch: &mut Watch<'_>,
) -> Result<ArchiveVerifyReport> {
    let folder = Folder::open(engine.disk(), path, mode)?;
    watch.job().phase("looks for its parts", Unit::Bytes, 0);
    let parts = folder.parts_from(0, &mut || watch.look())?;
    let _memory = engine.memory(Purpose::Io, reader::memory(folder.info.segment_size))?;
    let bytes = parts.iter().map(|part| part.bytes).sum();
    watch.job().phase("verifies the archive", Unit::Bytes, bytes);
    let report = ArchiveVerifyReport {
        database: folder.info.name.clone(),
        from: parts.first().map_or(0, |part| part.begin.first),
        parts: parts.len() as u64,
        bytes,
        ..ArchiveVerifyReport::default()
    };
    let mut verifier = Verifier { report, watch, done: 0, permit: None };
    if parts.is_empty()
        && let Why::Missing(to, what) =
            Why::Over(None).of_all(&folder, &parts, 0, &mut || verifier.watch.look())?
    {
        return Err(Error::Backup(plan::missing(&folder, 0, to, &what)));
    }
    let mut from = 0;
    let mut whole = Vec::new();
    while from < parts.len() {
        let ended = reader::read(&folder, &parts, from, &mut verifier)?;
        verifier.report.to = ended.whole;
        whole.push(parts[from].begin.first..=ended.whole);
        match ended.why.of_all(&folder, &parts, ended.whole, &mut || verifier.look())? {
            Why::Over(_) | Why::Told => break,
            Why::Gap(to) => {
                verifier.report.gaps.push(ArchiveGap { from: ended.whole, to });
                let is_behind = |part: &Part| part.begin.first == to && part.begin.gap_from.is_some();
                from = parts.iter().rposition(is_behind).filter(|index| *index > from).unwrap_or(parts.len());
            }
            Why::Missing(to, what) => {
                return Err(Error::Backup(plan::missing(&folder, ended.whole, to, &what)));
            }
        }
    }
    let Verifier { mut report, watch, .. } = verifier;
    whole.extend(report.gaps.iter().map(|gap| gap.from..=gap.to));
    refuse_damaged(&folder, &parts, &whole, &mut || watch.look())?;
    if folder.position.lsn <= report.to {
        report.until_unix_us = report.until_unix_us.max(folder.position.unix_us);
    }
    Ok(report)
}

/// Finds parts whose first frame is not whole, and whose log no others have.
fn refuse_damaged(
    folder: &Folder,
    parts: &[Part],
    whole: &[RangeInclusive<u64>],
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    for (first, _) in folder.not_begun(0, u64::MAX, look)? {
        if parts.is_empty() || whole.iter().any(|range| range.contains(&first)) {
            continue;
        }
        let next = parts.iter().map(|part| part.begin.first).find(|next| *next > first).unwrap_or(first);
        return Err(Error::Backup(plan::missing(folder, first, next, "no part has it")));
    }
    Ok(())
}

/// Removes the parts of an archive that have log from below `below` only. Gives their number.
///
/// # Errors
/// [`Error::Backup`] where it is the archive of another database than that with this header, or of another copy of it.
pub(crate) fn prune(
    engine: &Engine,
    (path, meta): (&Path, &Meta),
    mode: ModeRequest,
    below: Lsn,
    before: &mut dyn FnMut() -> Result<()>,
) -> Result<u64> {
    let disk = engine.disk();
    let folder = Folder::open(disk, path, mode)?;
    if folder.info.database_id != meta.database_id {
        return Err(Error::Backup(format!(
            "{path:?} is the archive of another database, {}",
            folder.info.name
        )));
    }
    let mut removed = 0;
    let parts = folder.parts_from(u64::MAX, before)?;
    let Some(last) = parts.last().map(|part| &part.begin) else { return Ok(0) };
    let life = last.lives.last().map_or(0, |life| life.id);
    if !Life::is_past(&meta.lives, life, Lsn(last.first)) {
        return Err(Error::Backup(format!(
            "{path:?} is the archive of another copy of this database, or this one was opened too often since"
        )));
    }
    let last = last.first;
    // A part ends with its segment at the latest.
    let segment = below.0.min(last) / folder.info.segment_size;
    for (.., name) in folder.names.iter().take_while(|(first, ..)| first / folder.info.segment_size < segment)
    {
        before()?;
        disk.remove(&path.join(name))?;
        // Oldest first, whatever a crash leaves: one that came back behind others that did not would be found to follow nothing.
        disk.sync_dir(path)?;
        removed += 1;
    }
    Ok(removed)
}
