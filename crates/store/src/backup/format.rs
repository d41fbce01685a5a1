//! The bytes of a backup: a sequence of frames, in a file or a stream. Layout: `docs/format.md`.
//!
//! # Invariants
//! 1. A frame says of itself which backup it belongs to, and which number it has there: frames that are missing, of another backup, or
//!    there twice are noticed. Their order means nothing, but for the first (*begin*) and the last one (*end*).
//! 2. Everything in a frame is under a checksum. An end without a manifest, or with one that counts other frames, is no end.
//! 3. A backup is complete when its end is there. In a folder there is also the manifest, which is written last.

use super::manifest::{Begin, Manifest};
use crate::page::{get_u32, get_u64, put_u32, put_u64};
use crate::{Error, Result};
use gannet_base::{PageId, checksum};

/// Length of a frame's head, and what frames are a multiple of, in bytes.
pub(crate) const HEAD: usize = 4096;
/// Longest content of a frame, before it is compressed.
pub(crate) const CONTENT_MAX: usize = 1 << 20;
/// Longest content of a frame as it is stored: what cannot be compressed is stored as it is.
pub(crate) const STORED_MAX: usize = CONTENT_MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"GNTFRAME");
const CHECKSUM: usize = 0;
const MAGIC_AT: usize = 8;
const KIND: usize = 16;
const CODEC: usize = 17;
const BACKUP: usize = 24;
const NUMBER: usize = 32;
const FIRST: usize = 40;
const CONTENT_LEN: usize = 48;
const STORED_LEN: usize = 52;
const STORED_SUM: usize = 56;
const COUNT: usize = 64;
const PAGES: usize = 72;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    /// What is known of the backup before it is made.
    Begin,
    /// Pages, in the order that the head lists them.
    Pages,
    /// Bytes of the log.
    Log,
    /// The manifest.
    End,
}

impl FrameKind {
    fn number(self) -> u8 {
        match self {
            FrameKind::Begin => 1,
            FrameKind::Pages => 2,
            FrameKind::Log => 3,
            FrameKind::End => 4,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => FrameKind::Begin,
            2 => FrameKind::Pages,
            3 => FrameKind::Log,
            4 => FrameKind::End,
            _ => return None,
        })
    }
}

/// How a frame's content is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Plain,
    Zstd,
    /// Nothing is stored: the content is zeros.
    Zeros,
}

/// The head of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: FrameKind,
    pub(crate) codec: Codec,
    /// The backup's number.
    pub(crate) backup: u64,
    /// The frame's number in it, from 0 on.
    pub(crate) number: u64,
    /// Of a part of the log: the LSN where it begins.
    pub(crate) first: u64,
    pub(crate) content_len: u32,
    pub(crate) stored_len: u32,
    /// Checksum of what is stored.
    pub(crate) stored_sum: u64,
    /// Of pages: which.
    pub(crate) pages: Vec<PageId>,
}

impl Head {
    /// A frame's head without what depends on its content.
    pub(crate) fn new(kind: FrameKind, backup: u64) -> Self {
        Head {
            kind,
            codec: Codec::Plain,
            backup,
            number: 0,
            first: 0,
            content_len: 0,
            stored_len: 0,
            stored_sum: 0,
            pages: Vec::new(),
        }
    }

    /// Bytes of the frame after its head: what is stored, filled up with zeros.
    pub(crate) fn padded_len(&self) -> usize {
        (self.stored_len as usize).next_multiple_of(HEAD)
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        assert!(self.pages.len() <= (HEAD - PAGES) / 8, "as many pages as the content has room for");
        let out = &mut out[..HEAD];
        out.fill(0);
        put_u64(out, MAGIC_AT, MAGIC);
        out[KIND] = self.kind.number();
        out[CODEC] = match self.codec {
            Codec::Plain => 0,
            Codec::Zstd => 1,
            Codec::Zeros => 2,
        };
        put_u64(out, BACKUP, self.backup);
        put_u64(out, NUMBER, self.number);
        put_u64(out, FIRST, self.first);
        put_u32(out, CONTENT_LEN, self.content_len);
        put_u32(out, STORED_LEN, self.stored_len);
        put_u64(out, STORED_SUM, self.stored_sum);
        put_u32(out, COUNT, self.pages.len() as u32);
        for (index, page) in self.pages.iter().enumerate() {
            put_u64(out, PAGES + 8 * index, page.0);
        }
        let sum = checksum::seeded(self.backup, &out[8..]);
        put_u64(out, CHECKSUM, sum);
    }

    /// Decodes a head; says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Head, String> {
        let Some(bytes) = bytes.get(..HEAD) else { return Err("it is cut off".to_owned()) };
        if get_u64(bytes, MAGIC_AT) != MAGIC {
            return Err("no frame of a backup begins there".to_owned());
        }
        let backup = get_u64(bytes, BACKUP);
        if checksum::seeded(backup, &bytes[8..]) != get_u64(bytes, CHECKSUM) {
            return Err("the checksum of a frame's head does not match".to_owned());
        }
        let kind = FrameKind::from_number(bytes[KIND])
            .ok_or_else(|| format!("a frame of unknown kind {}: a newer release wrote it", bytes[KIND]))?;
        let codec = match bytes[CODEC] {
            0 => Codec::Plain,
            1 => Codec::Zstd,
            2 => Codec::Zeros,
            other => {
                return Err(format!("a frame stored in an unknown way {other}: a newer release wrote it"));
            }
        };
        let count = get_u32(bytes, COUNT) as usize;
        let (content_len, stored_len) = (get_u32(bytes, CONTENT_LEN), get_u32(bytes, STORED_LEN));
        let fits = count <= (HEAD - PAGES) / 8
            && content_len as usize <= CONTENT_MAX
            && stored_len as usize <= STORED_MAX
            && content_len > 0
            && match codec {
                Codec::Plain => content_len == stored_len,
                Codec::Zstd => true,
                Codec::Zeros => stored_len == 0,
            };
        if !fits {
            return Err("the lengths in a frame's head make no sense".to_owned());
        }
        Ok(Head {
            kind,
            codec,
            backup,
            number: get_u64(bytes, NUMBER),
            first: get_u64(bytes, FIRST),
            content_len,
            stored_len,
            stored_sum: get_u64(bytes, STORED_SUM),
            pages: (0..count).map(|index| PageId(get_u64(bytes, PAGES + 8 * index))).collect(),
        })
    }

    /// Checksum of what is stored in a frame of this backup.
    pub(crate) fn sum(&self, stored: &[u8]) -> u64 {
        checksum::seeded(self.backup, stored)
    }

    /// The content of a frame, given what is stored. `scratch` is used where it has to be decompressed.
    pub(crate) fn content<'b>(
        &self,
        stored: &'b [u8],
        scratch: &'b mut Vec<u8>,
    ) -> std::result::Result<&'b [u8], String> {
        if self.sum(stored) != self.stored_sum {
            return Err("the checksum of a frame does not match".to_owned());
        }
        if self.codec == Codec::Plain {
            return Ok(stored);
        }
        scratch.clear();
        scratch.resize(self.content_len as usize, 0);
        if self.codec == Codec::Zeros {
            return Ok(scratch);
        }
        let len = zstd::bulk::decompress_to_buffer(stored, &mut scratch[..])
            .map_err(|error| format!("a frame cannot be decompressed: {error}"))?;
        if len != self.content_len as usize {
            return Err("a frame is shorter than its head says".to_owned());
        }
        Ok(scratch)
    }
}

/// A frame that is none of pages or log, as a whole.
pub(crate) fn text_frame(kind: FrameKind, backup: u64, number: u64, text: &[u8]) -> Result<Vec<u8>> {
    if text.len() > CONTENT_MAX {
        return Err(Error::Invalid(format!("{} bytes about a backup are too many", text.len())));
    }
    let mut head = Head::new(kind, backup);
    head.number = number;
    head.content_len = text.len() as u32;
    head.stored_len = head.content_len;
    head.stored_sum = head.sum(text);
    let mut frame = vec![0; HEAD + head.padded_len()];
    head.encode(&mut frame);
    frame[HEAD..HEAD + text.len()].copy_from_slice(text);
    Ok(frame)
}

/// The first frame of a backup.
pub(crate) fn begin_frame(begin: &Begin) -> Result<Vec<u8>> {
    text_frame(FrameKind::Begin, begin.backup_id, 0, &begin.encode())
}

/// The last frame of a backup.
pub(crate) fn end_frame(manifest: &Manifest) -> Result<Vec<u8>> {
    text_frame(FrameKind::End, manifest.begin.backup_id, manifest.frames - 1, manifest.encode().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_frame_is_said() {
        let mut head = Head::new(FrameKind::Pages, 77);
        head.pages = (0..256).map(PageId).collect();
        let stored = vec![5; 1000];
        (head.content_len, head.stored_len, head.stored_sum) = (1000, 1000, head.sum(&stored));
        let mut bytes = vec![0; HEAD];
        head.encode(&mut bytes);
        assert_eq!(Head::decode(&bytes).unwrap(), head);
        assert_eq!(head.padded_len(), HEAD);
        assert_eq!(head.content(&stored, &mut Vec::new()).unwrap(), stored);
        assert!(head.content(&stored[..999], &mut Vec::new()).unwrap_err().contains("checksum"));
        for at in [3, 9, 16, 25, 41, 60, 300] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            Head::decode(&other).unwrap_err();
        }
        assert!(Head::decode(&bytes[..4000]).unwrap_err().contains("cut off"));
    }

    #[test]
    fn a_frame_that_was_compressed_has_its_content() {
        let content: Vec<u8> = (0..50_000u32).map(|n| (n / 100) as u8).collect();
        let mut stored = vec![0; STORED_MAX];
        let len = zstd::bulk::compress_to_buffer(&content, &mut stored, 1).unwrap();
        let stored = &stored[..len];
        let mut head = Head::new(FrameKind::Log, 3);
        head.codec = Codec::Zstd;
        (head.content_len, head.stored_len, head.stored_sum) = (50_000, len as u32, head.sum(stored));
        assert_eq!(head.content(stored, &mut Vec::new()).unwrap(), content);
        head.content_len = 50_001;
        assert!(head.content(stored, &mut Vec::new()).unwrap_err().contains("shorter"));
        head.content_len = 49_999;
        assert!(head.content(stored, &mut Vec::new()).unwrap_err().contains("decompressed"));
    }
}
