//! What the sources ask of the device: one file.

use crate::sync::Mutex;
use crate::{Error, Result};
use std::ops::{Deref, DerefMut};

/// How a request is accounted.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// A commit's.
    Commit,
}

/// Whether a write is durable when it is done.
#[derive(Clone, Copy, Debug)]
pub enum Durability {
    /// It is.
    Durable,
}

/// Bytes for the device.
#[derive(Debug)]
pub struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    /// So many zero bytes.
    pub fn zeroed(len: usize) -> Self {
        AlignedBuffer(vec![0; len])
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Ranges that are being written.
    in_flight: Vec<(u64, u64)>,
    fails: bool,
}

/// A file that remembers what was written, and takes a write in two steps, between which others may come.
#[derive(Debug)]
pub struct File(Mutex<Content>);

impl Default for File {
    fn default() -> Self {
        File(Mutex::new(Content::default()))
    }
}

impl File {
    pub(crate) fn write_at(&self, _: Class, offset: u64, bytes: &[u8], _: Durability) -> Result<()> {
        let (from, to) = (offset, offset + bytes.len() as u64);
        let mut content = self.0.lock();
        assert!(
            content.in_flight.iter().all(|&(begin, end)| to <= begin || end <= from),
            "two writes in flight touch one block"
        );
        content.in_flight.push((from, to));
        drop(content);
        let mut content = self.0.lock();
        content.in_flight.retain(|&range| range != (from, to));
        if content.fails {
            return Err(Error::Device);
        }
        let len = content.bytes.len().max(to as usize);
        content.bytes.resize(len, 0);
        content.bytes[from as usize..to as usize].copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn read(&self, from: u64, to: u64) -> Vec<u8> {
        self.0.lock().bytes[from as usize..to as usize].to_vec()
    }

    pub(crate) fn fail(&self) {
        self.0.lock().fails = true;
    }
}
