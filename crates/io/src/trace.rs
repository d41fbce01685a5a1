//! The trace of a recorded run: every write with its bytes, every sync, every change of a name, in the order in which
//! they began and ended. [`crate::RecordedDisk`] writes it, [`crate::sim::Replay`] turns any beginning of it into what a
//! power cut at that moment may leave.
//!
//! # What it guarantees
//! 1. Each event is one append to the file, made under one lock within a process and by `O_APPEND` between processes. So the
//!    file's order is one in which the events can have happened, and a client of the recorded process may add [`Event::Mark`]s
//!    of its own with a [`Writer`] of its own.
//! 2. The begin of a transfer is written before the disk underneath hears of it, its end after the disk has ended it and
//!    before anybody is told. A power cut at the moment between two events therefore finds done what has ended, and finds
//!    of what has begun anything.
//! 3. Changes of names and sizes are written when they have happened, before anybody is told.
//! 4. Nothing of the file is believed without its checksum; an event cut off at the end of the file is no event.
//!
//! # Format, version 1
//! Integers are little-endian. The file begins with the 8 bytes `GNTTRACE` and the version as `u32`. Each event is
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the body |
//! | 8 | checksum of the body, seeded with its length |
//! | 1 | kind, the first byte of the body |
//! | .. | fields |
//!
//! Fields, in the order of the variants of [`Event`]: numbers are `u64`, flags one byte each; texts and bytes are the rest of
//! the body; of two texts the first one has its length before it, as `u64`.

use gannet_base::checksum;
use gannet_base::sync::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"GNTTRACE";
const VERSION: u32 = 1;
/// Length and checksum, in front of each body.
const FRAME: usize = 12;
/// Longest body: a request of 1024 slices of 1 MiB does not reach it.
const BODY_MAX: u32 = 1 << 31;

/// Something that matters for what a power cut leaves. Files and transfers have numbers of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A file was opened; `created`: it was not there before.
    Opened {
        /// The number that the file has from now on.
        file: u64,
        /// Whether it is new.
        created: bool,
        /// Its path, as it was asked for.
        path: &'a str,
    },
    /// The last use of an open file has ended.
    Closed {
        /// The file.
        file: u64,
    },
    /// A write begins.
    Write {
        /// The transfer.
        id: u64,
        /// The file.
        file: u64,
        /// Its first byte in the file.
        offset: u64,
        /// Whether it is durable when it has ended.
        durable: bool,
        /// Whether it is made whole or not at all.
        atomic: bool,
        /// Its bytes.
        data: &'a [u8],
    },
    /// A sync of a file begins.
    Sync {
        /// The transfer.
        id: u64,
        /// The file.
        file: u64,
    },
    /// A sync of a folder begins.
    SyncFolder {
        /// The transfer.
        id: u64,
        /// The folder.
        path: &'a str,
    },
    /// A write or sync has ended.
    Ended {
        /// The transfer.
        id: u64,
        /// Whether it ended well.
        well: bool,
    },
    /// A file's size was set.
    Resized {
        /// The file.
        file: u64,
        /// Its size in bytes.
        len: u64,
    },
    /// A part of a file was given blocks.
    Allocated {
        /// The file.
        file: u64,
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A folder was made.
    FolderCreated {
        /// Its path.
        path: &'a str,
    },
    /// A folder was removed.
    FolderRemoved {
        /// Its path.
        path: &'a str,
    },
    /// A file was removed.
    Removed {
        /// Its path.
        path: &'a str,
    },
    /// A file was renamed.
    Renamed {
        /// The old path.
        from: &'a str,
        /// The new one.
        to: &'a str,
    },
    /// Something that whoever made the load knows.
    Mark(&'a [u8]),
}

impl<'a> Event<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        fn put(out: &mut Vec<u8>, kind: u8, numbers: &[u64], rest: &[u8]) {
            out.push(kind);
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            out.extend_from_slice(rest);
        }
        match *self {
            Event::Opened { file, created, path } => {
                put(out, 1, &[file], &[created.into()]);
                out.extend_from_slice(path.as_bytes());
            }
            Event::Closed { file } => put(out, 2, &[file], &[]),
            Event::Write { id, file, offset, durable, atomic, data } => {
                put(out, 3, &[id, file, offset], &[durable.into(), atomic.into()]);
                out.extend_from_slice(data);
            }
            Event::Sync { id, file } => put(out, 4, &[id, file], &[]),
            Event::SyncFolder { id, path } => put(out, 5, &[id], path.as_bytes()),
            Event::Ended { id, well } => put(out, 6, &[id], &[well.into()]),
            Event::Resized { file, len } => put(out, 7, &[file, len], &[]),
            Event::Allocated { file, offset, len } => put(out, 8, &[file, offset, len], &[]),
            Event::FolderCreated { path } => put(out, 9, &[], path.as_bytes()),
            Event::FolderRemoved { path } => put(out, 10, &[], path.as_bytes()),
            Event::Removed { path } => put(out, 11, &[], path.as_bytes()),
            Event::Renamed { from, to } => {
                put(out, 12, &[from.len() as u64], from.as_bytes());
                out.extend_from_slice(to.as_bytes());
            }
            Event::Mark(bytes) => put(out, 13, &[], bytes),
        }
    }

    /// The event that a body stands for; none where it stands for none.
    fn decode(body: &'a [u8]) -> Option<Event<'a>> {
        let (kind, fields) = body.split_first()?;
        let mut fields = Fields(fields);
        Some(match kind {
            1 => Event::Opened { file: fields.number()?, created: fields.flag()?, path: fields.text()? },
            2 => Event::Closed { file: fields.number()? },
            3 => Event::Write {
                id: fields.number()?,
                file: fields.number()?,
                offset: fields.number()?,
                durable: fields.flag()?,
                atomic: fields.flag()?,
                data: fields.0,
            },
            4 => Event::Sync { id: fields.number()?, file: fields.number()? },
            5 => Event::SyncFolder { id: fields.number()?, path: fields.text()? },
            6 => Event::Ended { id: fields.number()?, well: fields.flag()? },
            7 => Event::Resized { file: fields.number()?, len: fields.number()? },
            8 => Event::Allocated { file: fields.number()?, offset: fields.number()?, len: fields.number()? },
            9 => Event::FolderCreated { path: fields.text()? },
            10 => Event::FolderRemoved { path: fields.text()? },
            11 => Event::Removed { path: fields.text()? },
            12 => {
                let len = usize::try_from(fields.number()?).ok()?;
                let (from, to) = fields.text()?.split_at_checked(len)?;
                Event::Renamed { from, to }
            }
            13 => Event::Mark(fields.0),
            _ => return None,
        })
    }
}

/// What of a body has not been read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*flag != 0)
    }

    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }
}

/// A file that is appended to.
#[derive(Debug)]
struct Appended {
    file: File,
    /// What the system said when that failed: nothing is any more. 0: it said nothing.
    failed: Option<i32>,
}

/// Appends events to a trace. Any number of threads may.
#[derive(Debug)]
pub struct Writer {
    file: Mutex<Appended>,
    next_number: AtomicU64,
}

impl Writer {
    /// A new trace; a file that is there already is left alone, and that is an error.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        // What is in the recorded files is in the trace as well.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, crate::real::FILE_PERMISSIONS);
        let mut file = options.open(path)?;
        file.write_all(&[&MAGIC[..], &VERSION.to_le_bytes()].concat())?;
        Ok(Self::of(file))
    }

    /// Adds to a trace that another process writes.
    pub fn append(path: &Path) -> io::Result<Self> {
        Reader::open(path)?;
        Ok(Self::of(OpenOptions::new().append(true).open(path)?))
    }

    /// One that has no room for anything.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn full() -> Self {
        Self::of(OpenOptions::new().append(true).open("/dev/full").expect("Linux has it"))
    }

    fn of(file: File) -> Self {
        Writer { file: Mutex::new(Appended { file, failed: None }), next_number: AtomicU64::new(1) }
    }

    /// A number for a file or a transfer that no other one has.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends an event. After a failure the trace is of no use any more.
    pub fn write(&self, event: &Event<'_>) -> io::Result<()> {
        let mut frame = vec![0; FRAME];
        event.encode(&mut frame);
        let body = &frame[FRAME..];
        let len = u32::try_from(body.len()).ok().filter(|len| *len <= BODY_MAX);
        let len = len.ok_or_else(|| io::Error::other("an event too long for a trace"))?;
        let sum = checksum::seeded(len.into(), body);
        frame[..4].copy_from_slice(&len.to_le_bytes());
        frame[4..FRAME].copy_from_slice(&sum.to_le_bytes());
        let mut appended = self.file.lock();
        // What follows a gap would prove what is not so.
        match appended.failed {
            None => {}
            Some(0) => return Err(io::Error::other("an event before could not be written down")),
            Some(code) => return Err(io::Error::from_raw_os_error(code)),
        }
        let written = appended.file.write_all(&frame);
        written.inspect_err(|error| appended.failed = Some(error.raw_os_error().unwrap_or_default()))
    }
}

/// Reads a trace from its beginning.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    body: Vec<u8>,
}

impl Reader {
    /// Opens a trace; another file, or one of another version, is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut reader =
            Reader { file: BufReader::with_capacity(1 << 20, File::open(path)?), body: Vec::new() };
        let (mut magic, mut version) = ([0; 8], [0; 4]);
        reader.file.read_exact(&mut magic)?;
        reader.file.read_exact(&mut version)?;
        let version = u32::from_le_bytes(version);
        match (&magic == MAGIC, version == VERSION) {
            (true, true) => Ok(reader),
            (false, _) => Err(invalid("no trace of a recorded run")),
            (true, false) => Err(invalid(format!("a trace of version {version}, not {VERSION}"))),
        }
    }

    /// The next event; none at the end, or where the last one is cut off.
    pub fn read(&mut self) -> io::Result<Option<Event<'_>>> {
        let mut frame = [0; FRAME];
        if !self.fill(&mut frame)? {
            return Ok(None);
        }
        let (len, sum) = frame.split_at(4);
        let len = u32::from_le_bytes(len.try_into().expect("four bytes"));
        if len > BODY_MAX {
            return Err(invalid("an event of a length that none has"));
        }
        let mut body = std::mem::take(&mut self.body);
        body.resize(len as usize, 0);
        let whole = self.fill(&mut body)?;
        self.body = body;
        if !whole {
            return Ok(None);
        }
        if checksum::seeded(len.into(), &self.body).to_le_bytes() != *sum {
            return Err(invalid("an event whose checksum is wrong"));
        }
        Event::decode(&self.body).map(Some).ok_or_else(|| invalid("an event of no known kind"))
    }

    /// Reads as many bytes; false where the file ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self.file.read_exact(bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            done => done.map(|()| true),
        }
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event<'_>; 13] = [
        Event::Opened { file: 1, created: true, path: "/d/a" },
        Event::Closed { file: 1 },
        Event::Write { id: 2, file: 1, offset: 512, durable: true, atomic: false, data: &[7; 600] },
        Event::Sync { id: 3, file: 1 },
        Event::SyncFolder { id: 4, path: "/d" },
        Event::Ended { id: 2, well: false },
        Event::Resized { file: 1, len: 0 },
        Event::Allocated { file: 1, offset: u64::MAX, len: 9 },
        Event::FolderCreated { path: "/d" },
        Event::FolderRemoved { path: "" },
        Event::Removed { path: "/d/ä" },
        Event::Renamed { from: "/d/ä", to: "/d/b" },
        Event::Mark(&[0, 255]),
    ];

    fn written(path: &Path) -> Vec<u8> {
        let writers = [Writer::create(path).unwrap(), Writer::append(path).unwrap()];
        for (index, event) in EVENTS.iter().enumerate() {
            writers[index % 2].write(event).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn two_writers_events_come_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        written(&path);
        let mut reader = Reader::open(&path).unwrap();
        for event in &EVENTS {
            assert_eq!(reader.read().unwrap().as_ref(), Some(event));
        }
        assert_eq!(reader.read().unwrap(), None);
        assert!(Writer::create(&path).is_err(), "a trace is not written over");
    }

    #[test]
    fn a_trace_cut_off_anywhere_ends_before_the_cut_and_a_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let whole = written(&path);
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut reader = Reader::open(&path)?;
            let mut count = 0;
            while let Some(event) = reader.read()? {
                assert_eq!(event, EVENTS[count]);
                count += 1;
            }
            io::Result::Ok(count)
        };
        let mut last = 0;
        for len in 12..=whole.len() {
            let count = read(&whole[..len]).unwrap();
            assert!(count >= last);
            last = count;
        }
        assert_eq!(last, EVENTS.len());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            // A changed length may also look like an event that is cut off.
            assert!(
                read(&bytes).is_ok_and(|count| count < EVENTS.len()) || read(&bytes).is_err(),
                "byte {at}"
            );
        }
    }
}
