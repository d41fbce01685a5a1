//! Reading parts, and the log that they hold together.
//!
//! # What it guarantees
//! 1. What is given on is whole, by the checksums of its frames and of the log's own records, and follows what came before.
//! 2. Log that some part has is found, also where a later attempt at the same part was broken off before it came as far: all parts of one
//!    archive hold the same log, and where reading changes over from one to another, that is seen to by the checksum of the record before.
//! 3. Where log ends without being at the archive's end, it is said why: a gap that the archive knows of, a part that is missing, one that
//!    is cut off or damaged.

use super::folder::{Folder, Part};
use super::format::{PartEnd, read_text_frame};
use crate::backup::format::{Codec, FrameKind, HEAD, Head, STORED_MAX};
use crate::backup::set::time_text;
use crate::log::{Met, Step, Walk};
use crate::{Error, Result};
use gannet_base::units::format_size;
use gannet_io::{AlignedBuffer, Class, File, OpenOptions};
use std::sync::Arc;

/// What there is, or what is wrong with it.
pub(super) type Said<T> = std::result::Result<T, String>;

/// What is stored in a frame is hardly longer: then there is room for it already.
const STORED_MOSTLY: usize = 256 << 10;

/// Memory that reading takes, in bytes: a frame, and the longest record.
pub(super) fn memory(segment_size: u64) -> u64 {
    2 * (HEAD + STORED_MOSTLY) as u64 + (segment_size / 8).min(2 << 20)
}

/// The frames of a part.
pub(super) struct PartReader {
    file: Arc<dyn File>,
    archive_id: u64,
    offset: u64,
    /// What was read up to here was told.
    told: u64,
    len: u64,
    number: u64,
    /// Where its log goes on.
    at: u64,
    buffer: AlignedBuffer,
    scratch: Vec<u8>,
}

/// What comes next of a part.
pub(super) enum Piece<'b> {
    /// Bytes of the log.
    Log(&'b [u8]),
    /// So many bytes of the log that mean nothing.
    Blank(u64),
    /// The part is complete.
    End,
    /// There is nothing more that is whole: why.
    Broken(String),
}

impl PartReader {
    /// Opens a part whose first frame was read.
    pub(super) fn open(folder: &Folder, part: &Part) -> Result<Self> {
        let file = folder.disk.open(&part.path, &OpenOptions::read().mode(folder.mode))?;
        let len = file.len()?;
        let mut reader = PartReader {
            file,
            archive_id: folder.info.archive_id,
            offset: 0,
            told: 0,
            len,
            number: 0,
            at: part.begin.first,
            buffer: AlignedBuffer::zeroed(HEAD + STORED_MOSTLY),
            scratch: Vec::new(),
        };
        match reader.frame()? {
            Ok(head) if head.kind == FrameKind::Begin => Ok(reader),
            Ok(_) => Err(Error::Backup(format!("{:?} begins with another frame than the first", part.path))),
            Err(what) => Err(Error::Backup(format!("{:?}: {what}", part.path))),
        }
    }

    /// Reads the next frame; what is wrong with it is no error of the device.
    fn frame(&mut self) -> Result<Said<Head>> {
        if self.offset + HEAD as u64 > self.len {
            return Ok(Err("it is cut off".to_owned()));
        }
        self.file.read_at(Class::Maintenance, self.offset, &mut self.buffer[..HEAD])?;
        let head = match Head::decode(&self.buffer[..HEAD]) {
            Ok(head) => head,
            Err(what) => return Ok(Err(what)),
        };
        if head.backup != self.archive_id || head.number != self.number {
            return Ok(Err("a frame of another part".to_owned()));
        }
        let len = head.padded_len();
        if self.offset + (HEAD + len) as u64 > self.len {
            return Ok(Err("it is cut off".to_owned()));
        }
        if HEAD + len > self.buffer.len() {
            let mut longer = AlignedBuffer::zeroed(HEAD + STORED_MAX);
            longer[..HEAD].copy_from_slice(&self.buffer[..HEAD]);
            self.buffer = longer;
        }
        if len > 0 {
            self.file.read_at(
                Class::Maintenance,
                self.offset + HEAD as u64,
                &mut self.buffer[HEAD..HEAD + len],
            )?;
        }
        let stored = &self.buffer[HEAD..HEAD + head.stored_len as usize];
        if head.sum(stored) != head.stored_sum {
            return Ok(Err("the checksum of a frame does not match".to_owned()));
        }
        self.offset += (HEAD + len) as u64;
        self.number += 1;
        Ok(Ok(head))
    }

    /// Where log ends that whole frames behind the place hold where reading has ended, if there are any, and how many bytes of the file these are from
    /// the first one on.
    fn log_behind(&mut self, look: &mut dyn FnMut() -> Result<()>) -> Result<Option<(u64, u64)>> {
        let (broken, number) = (self.offset, self.number);
        let mut found: Option<(u64, u64)> = None;
        let mut at = broken + HEAD as u64;
        while at + HEAD as u64 <= self.len {
            look()?;
            self.offset = at;
            self.file.read_at(Class::Maintenance, at, &mut self.buffer[..HEAD])?;
            at += HEAD as u64;
            let Ok(head) = Head::decode(&self.buffer[..HEAD]) else { continue };
            if head.number <= number {
                continue;
            }
            self.number = head.number;
            if self.frame()?.is_ok() && head.kind == FrameKind::Log {
                let from = found.map_or(at - HEAD as u64, |(_, from)| from);
                found = Some((head.first + u64::from(head.content_len), from));
                at = self.offset;
            }
        }
        Ok(found.map(|(end, from)| (end, self.len - from)))
    }

    /// Bytes of the file that were read since this was asked last.
    fn newly_read(&mut self) -> u64 {
        self.offset - std::mem::replace(&mut self.told, self.offset)
    }

    /// What comes next.
    pub(super) fn next(&mut self) -> Result<Piece<'_>> {
        let before = self.offset;
        let broken = |what: &str| Ok(Piece::Broken(format!("offset {before}: {what}")));
        let head = match self.frame()? {
            Ok(head) => head,
            Err(what) => return broken(&what),
        };
        let stored = &self.buffer[HEAD..HEAD + head.stored_len as usize];
        match head.kind {
            FrameKind::Log if head.first == self.at => {}
            FrameKind::End => {
                return match read_text_frame::<PartEnd>(&head, stored) {
                    Ok(end) if end.end == self.at && end.frames == self.number => Ok(Piece::End),
                    Ok(_) => broken("its end is of another part"),
                    Err(what) => broken(&what),
                };
            }
            _ => return broken("a frame that does not belong there"),
        }
        self.at += u64::from(head.content_len);
        if head.codec == Codec::Zeros {
            return Ok(Piece::Blank(u64::from(head.content_len)));
        }
        match head.content(stored, &mut self.scratch) {
            Ok(content) => Ok(Piece::Log(content)),
            Err(what) => broken(&what),
        }
    }
}

/// Who is given what is read.
pub(super) trait Reader {
    /// A record, or a segment's header: whether to go on.
    fn met(&mut self, met: &Met<'_>) -> Said<Step>;

    /// Bytes of the log from `first` on; `None` for `len` bytes that mean nothing.
    fn bytes(&mut self, first: u64, bytes: Option<&[u8]>, len: u64) -> Result<()>;

    /// What was given from `lsn` on, the end of a record, does not count: it comes again.
    fn back_to(&mut self, lsn: u64) -> Result<()>;

    /// Between two pieces: an error ends the reading.
    fn look(&mut self) -> Result<()>;

    /// So many more bytes of a part's file were read.
    fn count_read(&mut self, _bytes: u64) {}
}

/// Why reading came to an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The one who is given it has said so.
    Told,
    /// There is nothing more. What the last part ends with, where it is not complete.
    Over(Option<String>),
    /// The archive knows of a gap that ends there.
    Gap(u64),
    /// Log up to there is not there, though it was: why.
    Missing(u64, String),
}

impl Why {
    /// What is so of all parts to the last one, read up to `whole`: where the archive had come farther, there is more that is missing.
    pub(super) fn of_all(
        self,
        folder: &Folder,
        parts: &[Part],
        whole: u64,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Why> {
        let position = folder.position;
        Ok(match self {
            Why::Over(broken) if position.lsn > whole => {
                let what = broken.unwrap_or_else(|| "parts behind it are missing".to_owned());
                let last = parts.last().map_or(&folder.path, |part| &part.path);
                let time = time_text(position.unix_us);
                Why::Missing(position.lsn, format!("{last:?}: {what}, though it had been archived by {time}"))
            }
            Why::Over(Some(broken)) => {
                match parts.last().map(|part| log_behind_end(folder, part, look)).transpose()?.flatten() {
                    Some((end, bytes)) if end > whole => {
                        let last = parts.last().map_or(&folder.path, |part| &part.path);
                        Why::Missing(
                            end,
                            format!(
                                "{last:?}: {broken}, though {} of frames behind it are whole",
                                format_size(bytes)
                            ),
                        )
                    }
                    _ => Why::Over(Some(broken)),
                }
            }
            why => why,
        })
    }
}

/// What of a part is whole behind the place where its frames end to be. An archive is written in order, so its end has nothing behind it, but
/// for what a crash of its machine may leave of what was not synced, until the server goes on with another part.
fn log_behind_end(
    folder: &Folder,
    part: &Part,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<(u64, u64)>> {
    let mut reader = PartReader::open(folder, part)?;
    while reader.frame()?.is_ok() {
        look()?;
    }
    reader.log_behind(look)
}

/// Where reading ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    /// Behind the last record that is whole.
    pub(super) whole: u64,
    /// Its checksum, where that is known.
    pub(super) last_crc: Option<u32>,
    pub(super) why: Why,
}

/// Reads parts from the one at `from` on, as long as each follows the one before.
pub(super) fn read(folder: &Folder, parts: &[Part], from: usize, to: &mut dyn Reader) -> Result<Ended> {
    let mut walk = walk_from(folder, &parts[from]);
    let mut index = from;
    let why = loop {
        match read_one(folder, parts, index, &mut walk, to)? {
            Some(why) => break why,
            None => index += 1,
        }
    };
    Ok(Ended { whole: walk.whole(), last_crc: walk.whole_crc(), why })
}

/// A walk that begins with a part.
pub(super) fn walk_from(folder: &Folder, part: &Part) -> Walk {
    let (database_id, segment_size) = (folder.info.database_id, folder.info.segment_size);
    Walk::new(database_id, segment_size, part.begin.first, part.begin.previous_crc)
}

/// Reads the part at `index`, up to where the next one begins; why reading ends with it, if it does.
pub(super) fn read_one(
    folder: &Folder,
    parts: &[Part],
    index: usize,
    walk: &mut Walk,
    to: &mut dyn Reader,
) -> Result<Option<Why>> {
    let part = &parts[index];
    let next = parts.get(index + 1).map(|next| &next.begin);
    let bound = next.map_or(u64::MAX, |next| next.gap_from.unwrap_or(next.first));
    let from = (walk.at(), walk.whole_crc());
    let mut broken = match read_part(folder, part, from, bound, walk, to)? {
        End::Sealed => None,
        End::Broken(what) => Some(what),
        End::Unreadable(error) => return Err(error),
    };
    while broken.is_some() && !walk.is_stopped() {
        let Some(end) = read_others(folder, &parts[..index], bound, walk, to)? else { break };
        broken = end;
    }
    if walk.is_stopped() {
        return Ok(Some(Why::Told));
    }
    Ok(follows(part, &parts[index + 1..], walk.whole(), broken))
}

/// Goes on where a part was broken off, with the first of those before it that comes farther, the latest first: with what that ends, where it
/// is not its end; `None` where none does.
fn read_others(
    folder: &Folder,
    parts: &[Part],
    bound: u64,
    walk: &mut Walk,
    to: &mut dyn Reader,
) -> Result<Option<Option<String>>> {
    let (whole, crc, size) = (walk.whole(), walk.whole_crc(), folder.info.segment_size);
    let segment = whole & !(size - 1);
    // What it has of a record that is not whole is not needed any more.
    *walk = Walk::new(folder.info.database_id, size, whole, crc);
    to.back_to(whole)?;
    let mut unreadable = None;
    for part in parts.iter().rev().take_while(|part| part.begin.first >= segment) {
        let previous = part.begin.previous_crc;
        let is_other = part.begin.first == whole && crc.zip(previous).is_some_and(|(ours, its)| ours != its);
        if is_other || part.end.is_some_and(|end| end.end <= whole) {
            continue;
        }
        let mut other = walk_from(folder, part);
        if part.begin.first == whole {
            other = Walk::new(folder.info.database_id, size, whole, crc.or(previous));
        }
        let end = read_part(folder, part, (whole, crc), bound, &mut other, to)?;
        if other.is_stopped() || other.whole() > whole {
            *walk = other;
            return match end {
                End::Sealed => Ok(Some(None)),
                End::Broken(what) => Ok(Some(Some(what))),
                // Others may have what it does not give.
                End::Unreadable(error) => Ok(Some(Some(error.to_string()))),
            };
        }
        if let End::Unreadable(error) = end {
            unreadable = Some(error);
        }
        to.back_to(whole)?;
    }
    match unreadable {
        // What was there once may be in it.
        Some(error) if bound == u64::MAX && whole < folder.position.lsn => Err(error),
        _ => Ok(None),
    }
}

/// Why reading ends with a part whose log ends there, if it does, given those behind it.
pub(super) fn follows(part: &Part, rest: &[Part], whole: u64, broken: Option<String>) -> Option<Why> {
    let Some(next) = rest.first().map(|next| &next.begin) else { return Some(Why::Over(broken)) };
    let is_gap = |part: &Part| part.begin.gap_from.is_some_and(|from| from <= whole);
    if whole < next.gap_from.unwrap_or(next.first) {
        // A gap may have parts in it that were never finished.
        if let Some(gap) = rest.iter().rfind(|part| is_gap(part)) {
            return Some(Why::Gap(gap.begin.first));
        }
        let what = broken.unwrap_or_else(|| "the part behind it is missing".to_owned());
        return Some(Why::Missing(next.first, format!("{:?}: {what}", part.path)));
    }
    // One gap may have been begun several times before anything was archived behind it.
    let same = rest.iter().take_while(|part| is_gap(part));
    same.last().map(|last| Why::Gap(last.begin.first))
}

/// How reading a part came to an end.
enum End {
    /// It is complete, or everything of it was read that counts.
    Sealed,
    /// There is nothing more that is whole: why.
    Broken(String),
    /// Its file cannot be read.
    Unreadable(Error),
}

/// Reads a part as far as it counts, and gives on what it has from `from` on, the end of a record with this checksum. Errors are those of who is
/// given it.
fn read_part(
    folder: &Folder,
    part: &Part,
    (from, crc): (u64, Option<u32>),
    bound: u64,
    walk: &mut Walk,
    to: &mut dyn Reader,
) -> Result<End> {
    let mut reader = match PartReader::open(folder, part) {
        Ok(reader) => reader,
        Err(error) => return Ok(End::Unreadable(error)),
    };
    let end = read_pieces(&mut reader, (from, crc), bound, walk, to);
    to.count_read(reader.newly_read());
    end
}

fn read_pieces(
    reader: &mut PartReader,
    (from, crc): (u64, Option<u32>),
    bound: u64,
    walk: &mut Walk,
    to: &mut dyn Reader,
) -> Result<End> {
    while !walk.is_stopped() && walk.at() < bound {
        to.count_read(reader.newly_read());
        to.look()?;
        let at = walk.at();
        let piece = match reader.next() {
            Ok(piece) => piece,
            Err(error) => return Ok(End::Unreadable(error)),
        };
        match piece {
            Piece::Log(bytes) => {
                let bytes = &bytes[..(bytes.len() as u64).min(bound - at) as usize];
                let (known, new) = bytes.split_at(from.saturating_sub(at).min(bytes.len() as u64) as usize);
                if !known.is_empty() {
                    if let Err(what) = walk.take(known, &mut |_| Ok(Step::On)) {
                        return Ok(End::Broken(what));
                    }
                    if walk.at() == from && !ends_so(walk, crc) {
                        return Ok(End::Broken(format!("no record that is known ends at lsn {from}")));
                    }
                }
                if new.is_empty() {
                    continue;
                }
                let at = walk.at();
                let taken = walk.take(new, &mut |met| to.met(met));
                let good = match taken {
                    Ok(()) => new,
                    Err(_) => &new[..walk.whole().saturating_sub(at) as usize],
                };
                to.bytes(at, Some(good), good.len() as u64)?;
                if let Err(what) = taken {
                    return Ok(End::Broken(what));
                }
            }
            Piece::Blank(len) => {
                let len = len.min(bound - at);
                if at + len > walk.body_end() {
                    return Ok(End::Broken(format!("the record at lsn {at} is not there")));
                }
                // No record ends where what means nothing does.
                if at < from && from <= at + len {
                    return Ok(End::Broken(format!("no record that is known ends at lsn {from}")));
                }
                walk.skip(len);
                if at >= from {
                    to.bytes(at, None, len)?;
                }
            }
            Piece::End => return Ok(End::Sealed),
            Piece::Broken(what) => return Ok(End::Broken(what)),
        }
    }
    Ok(End::Sealed)
}

/// Whether a record with this checksum has just ended, as far as both are known.
fn ends_so(walk: &Walk, crc: Option<u32>) -> bool {
    let is_same = |(found, known): (u32, u32)| found == known;
    walk.is_between() && walk.whole_crc().zip(crc).is_none_or(is_same)
}
