//! The header of a database file: pages 0 and 1, two copies written in turn.
//!
//! # Invariants
//! 1. The valid copy with the higher sequence number counts. A torn write of one copy leaves the other.
//! 2. `redo_from` never runs ahead: when a header with a certain `redo_from` is on the device, every page change
//!    below it is, too.
//! 3. `incarnation` grows by one, durably, before the log is written again after a crash.
//! 4. Fields are only added; a file with a feature flag this release does not know is refused.
//! 5. Before a change is logged, both copies say that the file needs its log; when it is complete without it, both say that: if one
//!    of them rots, the other one is not mistaken for the newer.
//! 6. As long as a database is being created, page 0 is a mark that says so. It is the first thing written, and both copies of
//!    the header are before anybody gets the database. So where the mark is, and no valid header, nothing ever was in it.

use crate::mutation::{Mutation, planted};
use crate::page::{self, PageKind, Verdict, get_u32, get_u64, put_u32, put_u64};
use crate::pool::reads;
use crate::{Error, Result};
use gannet_base::{Lsn, PageId, TreeId, checksum, random};
use gannet_io::{AlignedBuffer, Class, Durability, File};
use std::path::Path;

const MAGIC: &[u8; 8] = b"GANNETDB";
/// In the place of [`MAGIC`] while the database is being created.
const MARK: &[u8; 8] = b"GANNETNW";

/// Version of the file format this release writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 3;

pub(crate) const MAGIC_AT: usize = 24;
const VERSION_AT: usize = 32;
const PAGE_SIZE_AT: usize = 36;
const FEATURES_AT: usize = 40;
pub(crate) const DATABASE_ID_AT: usize = 48;
const SEQUENCE_AT: usize = 56;
const INCARNATION_AT: usize = 64;
const CLEAN_AT: usize = 68;
const REDO_FROM_AT: usize = 72;
const LOG_END_AT: usize = 80;
const GROUPS_AT: usize = 88;
const NEXT_TXN_AT: usize = 96;
const SEGMENT_SIZE_AT: usize = 104;
const ROOTS_AT: usize = 112;
pub(crate) const HEADER_SUM_AT: usize = 136;
const LOG_CRC_AT: usize = 144;
const LIVES_AT: usize = 152;
const HOMES_FROM_AT: usize = 160;
const LIFE_LIST_AT: usize = 168;
const LIFE_LEN: usize = 16;
/// Lives that are remembered: as many as fit the smallest page.
pub(crate) const LIVES_MAX: usize = 245;
const CUT_AT: usize = LIFE_LIST_AT + LIVES_MAX * LIFE_LEN;
const END: usize = CUT_AT + 8;

/// Feature: what the log says below [`Meta::homes_from`] of pages that came home is of another copy of the file.
const RESTORED: u64 = 1;
/// Feature: see [`Meta::archived`].
const ARCHIVED: u64 = 2;
/// Feature: the log may lack contents of leaves that are at home (`tree::bulk`), and say of them that they are unfilled.
const BESIDE_LOG: u64 = 4;
/// Features that this release knows.
const FEATURES: u64 = RESTORED | ARCHIVED | BESIDE_LOG;

/// Set beside [`Meta::log_crc`], so that it can be told from a field that was never written.
const LOG_CRC_KNOWN: u64 = 1 << 32;

/// Smallest page size: both copies are looked for without knowing the file's.
const PROBE: usize = 4096;

/// A time that a file was open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    /// Random.
    pub(crate) id: u64,
    /// Where the log was when it began.
    pub(crate) from: Lsn,
}

impl Life {
    /// Whether the log up to `lsn`, as it was known in the life of that number, is in the past of who had these lives.
    pub(crate) fn is_past(lives: &[Life], id: u64, lsn: Lsn) -> bool {
        let place = lives.iter().position(|life| life.id == id);
        place.is_some_and(|place| lives.get(place + 1).is_none_or(|next| lsn <= next.from))
    }

    /// Whether who had these lives was at `lsn` in the one of that number.
    pub(crate) fn was_lived(lives: &[Life], id: u64, lsn: Lsn) -> bool {
        let place = lives.iter().position(|life| life.id == id);
        place.is_some_and(|place| {
            let next = lives.get(place + 1);
            lives[place].from <= lsn && next.is_none_or(|next| lsn <= next.from)
        })
    }
}

/// A file header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) page_size: usize,
    /// Names the database; mixed into every checksum.
    pub(crate) database_id: u64,
    pub(crate) sequence: u64,
    /// Life of the log: grows with every restart after a crash.
    pub(crate) incarnation: u32,
    /// The file is complete without its log.
    pub(crate) clean: bool,
    pub(crate) redo_from: Lsn,
    /// Where the log goes on; only with `clean`.
    pub(crate) log_end: Lsn,
    /// Checksum of the log's last record below `log_end`; only with `clean`, and not known of files that an older release
    /// has closed.
    pub(crate) log_crc: Option<u32>,
    /// Groups with a space map, at least.
    pub(crate) groups: u64,
    /// Above every transaction number used; only with `clean`.
    pub(crate) next_txn: u64,
    pub(crate) segment_size: u64,
    /// The times that this copy of the file was open, newest last, as far as they are remembered. What happened to the file since a
    /// backup was taken in one of them is what happened to this copy, and to no other one. A copy that is restored has no past.
    pub(crate) lives: Vec<Life>,
    /// What the log says below of pages that came home does not hold for this copy of the file, which was restored.
    pub(crate) homes_from: Lsn,
    /// Where the log was when pages that had been in use were last cut off the file: of a page that reads as zeros, what the log says of
    /// changes up to here is gone with the page that was in its place.
    pub(crate) cut_at: Lsn,
    /// This copy was opened with an archive once: from then on its log has the contents of all pages, as the archive may go on at any time.
    pub(crate) archived: bool,
    /// Roots of the store's own trees: catalog, transaction status, undo directory.
    pub(crate) roots: [PageId; 3],
}

impl Meta {
    fn encode(&self) -> AlignedBuffer {
        let mut page = AlignedBuffer::zeroed(self.page_size);
        page::init(&mut page, PageKind::Meta, TreeId(0));
        page[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MAGIC);
        put_u32(&mut page, VERSION_AT, FORMAT_VERSION);
        put_u32(&mut page, PAGE_SIZE_AT, self.page_size as u32);
        put_u64(&mut page, FEATURES_AT, self.features());
        put_u64(&mut page, DATABASE_ID_AT, self.database_id);
        put_u64(&mut page, SEQUENCE_AT, self.sequence);
        put_u32(&mut page, INCARNATION_AT, self.incarnation);
        put_u32(&mut page, CLEAN_AT, u32::from(self.clean));
        put_u64(&mut page, REDO_FROM_AT, self.redo_from.0);
        put_u64(&mut page, LOG_END_AT, self.log_end.0);
        put_u64(&mut page, GROUPS_AT, self.groups);
        put_u64(&mut page, NEXT_TXN_AT, self.next_txn);
        put_u64(&mut page, SEGMENT_SIZE_AT, self.segment_size);
        for (index, root) in self.roots.iter().enumerate() {
            put_u64(&mut page, ROOTS_AT + index * 8, root.0);
        }
        put_u64(&mut page, LOG_CRC_AT, self.log_crc.map_or(0, |crc| LOG_CRC_KNOWN | u64::from(crc)));
        put_u64(&mut page, LIVES_AT, self.lives.len() as u64);
        for (index, life) in self.lives.iter().enumerate() {
            put_u64(&mut page, LIFE_LIST_AT + index * LIFE_LEN, life.id);
            put_u64(&mut page, LIFE_LIST_AT + index * LIFE_LEN + 8, life.from.0);
        }
        let homes_from = if self.features() & RESTORED != 0 { self.homes_from } else { Lsn::ZERO };
        put_u64(&mut page, HOMES_FROM_AT, homes_from.0);
        put_u64(&mut page, CUT_AT, self.cut_at.0);
        // A sum of its own over the fields, so that a copy can be judged before the page size is known.
        let sum = checksum::seeded(0, &page[MAGIC_AT..HEADER_SUM_AT]);
        put_u64(&mut page, HEADER_SUM_AT, sum);
        page
    }

    /// The file is opened, with its log at `from`.
    pub(crate) fn begin_life(&mut self, from: Lsn) {
        if self.lives.len() == LIVES_MAX {
            self.lives.remove(0);
        }
        self.lives.push(Life { id: random::next_u64(), from });
    }

    /// The file is closed, with its log at `end`, and nobody has noted the life that ends so: no backup, and no archive. It is forgotten where nothing
    /// was logged in it, as there is room for few.
    pub(crate) fn end_life(&mut self, end: Lsn) {
        if self.lives.last().is_some_and(|life| life.from == end) {
            self.lives.pop();
        }
    }

    /// Once redo begins behind what is of another copy, nothing of that is looked at.
    fn features(&self) -> u64 {
        let restored = if self.homes_from > self.redo_from { RESTORED } else { 0 };
        // A file that is complete without its log can be read by whoever does not know of that.
        let beside_log = if self.clean || self.archived { 0 } else { BESIDE_LOG };
        restored | beside_log | if self.archived { ARCHIVED } else { 0 }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < END {
            return None;
        }
        let sum = checksum::seeded(0, &bytes[MAGIC_AT..HEADER_SUM_AT]);
        if &bytes[MAGIC_AT..MAGIC_AT + 8] != MAGIC || get_u64(bytes, HEADER_SUM_AT) != sum {
            return None;
        }
        Some(Meta {
            page_size: get_u32(bytes, PAGE_SIZE_AT) as usize,
            database_id: get_u64(bytes, DATABASE_ID_AT),
            sequence: get_u64(bytes, SEQUENCE_AT),
            incarnation: get_u32(bytes, INCARNATION_AT),
            clean: get_u32(bytes, CLEAN_AT) != 0,
            redo_from: Lsn(get_u64(bytes, REDO_FROM_AT)),
            log_end: Lsn(get_u64(bytes, LOG_END_AT)),
            log_crc: Some(get_u64(bytes, LOG_CRC_AT))
                .filter(|crc| crc & LOG_CRC_KNOWN != 0)
                .map(|crc| crc as u32),
            groups: get_u64(bytes, GROUPS_AT),
            next_txn: get_u64(bytes, NEXT_TXN_AT),
            segment_size: get_u64(bytes, SEGMENT_SIZE_AT),
            lives: (0..(get_u64(bytes, LIVES_AT) as usize).min(LIVES_MAX))
                .map(|index| LIFE_LIST_AT + index * LIFE_LEN)
                .map(|at| Life { id: get_u64(bytes, at), from: Lsn(get_u64(bytes, at + 8)) })
                .collect(),
            homes_from: Lsn(get_u64(bytes, HOMES_FROM_AT)),
            cut_at: Lsn(get_u64(bytes, CUT_AT)),
            archived: get_u64(bytes, FEATURES_AT) & ARCHIVED != 0,
            roots: std::array::from_fn(|i| PageId(get_u64(bytes, ROOTS_AT + i * 8))),
        })
    }

    /// Writes the header durably, over the older copy.
    pub(crate) fn write(&mut self, file: &dyn File) -> Result<()> {
        self.sequence += 1;
        self.write_again(file)
    }

    /// Writes it durably where it was read from, as it was. A write of it that has failed may be read all the same: where it is torn now, the copy that is
    /// durable is left.
    pub(crate) fn write_again(&self, file: &dyn File) -> Result<()> {
        let copy = self.copy_page(0);
        let mut page = self.encode();
        page::seal(&mut page, copy, self.database_id);
        let offset = copy.0 * self.page_size as u64;
        let durability =
            if planted(Mutation::HeaderNotDurable) { Durability::Cached } else { Durability::Durable };
        file.write_at(Class::Commit, offset, &page, durability)?;
        Ok(())
    }

    /// Writes both copies, one behind the other: whether the file is complete without its log is not to hang on one of them.
    pub(crate) fn write_both(&mut self, file: &dyn File) -> Result<()> {
        self.write(file)?;
        self.write(file)
    }

    /// Reads the newer valid header of a file. What cannot be read is no header, as what is damaged: one copy is enough. Only where
    /// there is none that is valid, what could not be read says so.
    pub(crate) fn read(file: &dyn File) -> Result<Self> {
        let path = file.path();
        let len = file.len()?;
        if len < PROBE as u64 {
            return Err(foreign(path, &format!("it is {len} bytes long")));
        }
        let mut candidates = Vec::new();
        let mut refused = None;
        let mut looks_like_ours = false;
        let mut unreadable = None;
        let offsets = std::iter::once(0).chain(page::PAGE_SIZES.map(|size| size as u64));
        for offset in offsets.filter(|offset| offset + PROBE as u64 <= len) {
            let mut probe = AlignedBuffer::zeroed(PROBE);
            if let Err(error) = file.read_at(Class::Foreground, offset, &mut probe) {
                unreadable = Some(error);
                continue;
            }
            looks_like_ours |= &probe[MAGIC_AT..MAGIC_AT + 8] == MAGIC;
            if let Err(error) = check_version(&probe, path) {
                refused = Some(error);
                continue;
            }
            match Meta::whole(file, &probe, offset, len) {
                Ok(found) => candidates.extend(found),
                Err(error) => unreadable = Some(error),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        match (candidates.into_iter().max_by_key(|meta| meta.sequence), unreadable) {
            (Some(meta), _) => Ok(meta),
            (None, Some(error)) => Err(error.into()),
            (None, None) if looks_like_ours => Err(Error::Damaged(format!(
                "both copies of the header of {path:?} are damaged; restore the file from a backup"
            ))),
            (None, None) => Err(foreign(path, "its header is not one of ours")),
        }
    }

    /// Whether the other copy of this header is damaged, or cannot be read.
    pub(crate) fn is_lone(&self, file: &dyn File) -> bool {
        !matches!(self.copy(file, 1), Ok(Some(_)))
    }

    /// The page that holds the copy of this header (`back` is 0), or of the one before (1).
    pub(crate) fn copy_page(&self, back: u64) -> PageId {
        PageId((self.sequence + back) % 2)
    }

    /// What is in the place of that copy, if it is valid.
    pub(crate) fn copy(&self, file: &dyn File, back: u64) -> Result<Option<Self>> {
        let offset = self.copy_page(back).0 * self.page_size as u64;
        let mut probe = AlignedBuffer::zeroed(PROBE);
        file.read_at(reads::class(), offset, &mut probe)?;
        Ok(Meta::whole(file, &probe, offset, file.len()?)?)
    }

    /// The header at `offset`, if the whole page is valid.
    fn whole(file: &dyn File, probe: &[u8], offset: u64, len: u64) -> gannet_io::Result<Option<Self>> {
        let Some(meta) = Meta::decode(probe) else { return Ok(None) };
        let size = meta.page_size as u64;
        if !page::PAGE_SIZES.contains(&meta.page_size)
            || (offset != 0 && offset != size)
            || offset + size > len
        {
            return Ok(None);
        }
        let mut page = AlignedBuffer::zeroed(meta.page_size);
        file.read_at(reads::class(), offset, &mut page)?;
        let valid = page::verify(&page, PageId(offset / size), meta.database_id) == Verdict::Valid;
        Ok(valid.then_some(meta))
    }
}

/// Marks an empty file as a database that is being created, durably. What says so is one sector: it is there, or it is not.
pub(crate) fn write_mark(file: &dyn File, page_size: usize, database_id: u64) -> Result<()> {
    let mut page = AlignedBuffer::zeroed(page_size);
    page[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MARK);
    put_u32(&mut page, VERSION_AT, FORMAT_VERSION);
    put_u64(&mut page, DATABASE_ID_AT, database_id);
    let sum = checksum::seeded(0, &page[MAGIC_AT..HEADER_SUM_AT]);
    put_u64(&mut page, HEADER_SUM_AT, sum);
    Ok(file.write_at(Class::Commit, 0, &page, Durability::Durable)?)
}

/// The number of the database that is being created, if the file is marked so.
pub(crate) fn read_mark(file: &dyn File) -> Result<Option<u64>> {
    if file.len()? < PROBE as u64 {
        return Ok(None);
    }
    let mut probe = AlignedBuffer::zeroed(PROBE);
    file.read_at(Class::Foreground, 0, &mut probe)?;
    let sum = checksum::seeded(0, &probe[MAGIC_AT..HEADER_SUM_AT]);
    let marked = &probe[MAGIC_AT..MAGIC_AT + 8] == MARK
        && get_u64(&probe, HEADER_SUM_AT) == sum
        && get_u32(&probe, VERSION_AT) == FORMAT_VERSION;
    Ok(marked.then(|| get_u64(&probe, DATABASE_ID_AT)))
}

fn foreign(path: &Path, why: &str) -> Error {
    Error::Format(format!("{path:?} is not a Gannet database: {why}"))
}

/// Refuses another format; says nothing about pages that are no header at all.
fn check_version(probe: &[u8], path: &Path) -> Result<()> {
    let sum = checksum::seeded(0, &probe[MAGIC_AT..HEADER_SUM_AT]);
    if &probe[MAGIC_AT..MAGIC_AT + 8] != MAGIC || get_u64(probe, HEADER_SUM_AT) != sum {
        return Ok(());
    }
    let version = get_u32(probe, VERSION_AT);
    let features = get_u64(probe, FEATURES_AT);
    if version != FORMAT_VERSION || features & !FEATURES != 0 {
        return Err(Error::Format(format!(
            "{path:?} has format version {version} with features {features:#x}; this release reads version \
             {FORMAT_VERSION} with features {FEATURES:#x}: open it with the release that wrote it"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CreateOptions, Engine, EngineOptions, OpenOptions};
    use gannet_io::Disk;
    use gannet_io::sim::{Chance, Faults, SimDisk};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn one_copy_of_the_header_is_enough_where_the_other_cannot_be_read() {
        let (disk, path) = (SimDisk::new(1), Path::new("d.gnt"));
        let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(disk.clone()), &options).unwrap();
        let create = CreateOptions { page_size: 8192, segment_size: 1 << 19 };
        engine.create(path, &create, &OpenOptions::default()).unwrap().close().unwrap();
        let file = disk.open(path, &gannet_io::OpenOptions::read()).unwrap();
        let newest = Meta::read(&*file).unwrap();
        let unreadable = |chance| disk.set_faults(Faults { read_error: chance, ..Faults::default() });
        let mut seen = std::collections::BTreeSet::new();
        for nth in 1..10 {
            unreadable(Chance::At(vec![nth]));
            seen.insert(newest.sequence - Meta::read(&*file).unwrap().sequence);
        }
        assert_eq!(seen, [0, 1].into(), "either copy was missing once");
        unreadable(Chance::OneIn(1));
        assert!(matches!(Meta::read(&*file), Err(Error::Io(_))), "nobody knows whose file it is");
        unreadable(Chance::At((1..3).collect()));
        assert!(newest.is_lone(&*file));
    }
}
