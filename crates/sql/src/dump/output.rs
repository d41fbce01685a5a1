//! A file that is written once, from its beginning to its end: by large requests past the OS cache.

use crate::{Error, Result};
use gannet_io::{AlignedBuffer, Class, Disk, Durability, File, ModeRequest, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a request, at most and at least.
const REQUEST: usize = 1 << 20;
const REQUEST_LEAST: usize = 64 << 10;

/// A new file on its way.
#[derive(Debug)]
pub(super) struct Output {
    file: Arc<dyn File>,
    buffer: AlignedBuffer,
    filled: usize,
    /// Bytes of a request.
    request: usize,
    written: u64,
}

/// What went wrong with a file, as an error of SQL.
pub(crate) fn failed(error: gannet_io::Error) -> Error {
    gannet_store::Error::from(error).into()
}

impl Output {
    /// Makes the file, which must not be there.
    pub(super) fn create(disk: &dyn Disk, path: &Path, mode: ModeRequest) -> Result<Self> {
        let file = disk.open(path, &OpenOptions::create_new().mode(mode)).map_err(failed)?;
        Ok(Output { file, buffer: AlignedBuffer::zeroed(REQUEST), filled: 0, request: REQUEST, written: 0 })
    }

    /// Requests have so many bytes from now on, as far as they may: a multiple of 64 KiB, up to 1 MiB.
    pub(super) fn set_request(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(REQUEST).clamp(REQUEST_LEAST, REQUEST);
        self.request = bytes / REQUEST_LEAST * REQUEST_LEAST;
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let request = self.request.max(self.filled.next_multiple_of(REQUEST_LEAST));
            let count = bytes.len().min(request - self.filled);
            self.buffer[self.filled..][..count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == request {
                self.send(request)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, len: usize) -> Result<()> {
        let bytes = &self.buffer[..len];
        self.file.write_at(Class::Maintenance, self.written, bytes, Durability::Cached).map_err(failed)?;
        self.written += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    /// Completes the file, durably. Its name is the caller's affair.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.filled > 0 {
            let len = self.filled.next_multiple_of(self.file.alignment());
            self.buffer[self.filled..len].fill(0);
            self.send(len)?;
        }
        self.file.set_len(self.written).map_err(failed)?;
        self.file.sync(Class::Maintenance).map_err(failed)?;
        self.file.drop_cache();
        Ok(())
    }
}
