//! Files that are loaded: where they lie, and how they are read.

use super::offered::Offered;
use crate::dump::failed;
use crate::{Error, Result, SqlState};
use gannet_io::{Class, Disk, File, Mode, ModeRequest, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read at once.
pub(super) const REQUEST: usize = 1 << 20;

/// A file that is read by blocks.
pub(super) trait Blocks: Send {
    /// Its bytes.
    fn len(&self) -> u64;
    /// Whether a client is waited for.
    fn is_of_client(&self) -> bool {
        false
    }
    /// What offsets are multiples of: a divisor of [`REQUEST`].
    fn alignment(&self) -> usize;
    /// Reads up to a block, which lies in an [`AlignedBuffer`](gannet_io::AlignedBuffer), at an offset that is aligned; 0 at the end. `None`: a
    /// client has not sent it yet.
    fn read(&self, at: u64, block: &mut [u8]) -> Result<Option<usize>>;
}

/// Where files lie.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// On a disk of this machine.
    Disk(Arc<dyn Disk>, ModeRequest),
    /// With the client, who offers them.
    Client(Offered),
}

impl Place {
    /// Whether there is a file of that name.
    pub(super) fn has(&self, path: &Path) -> Result<bool> {
        match self {
            Place::Disk(disk, _) => disk.exists(path).map_err(failed),
            Place::Client(client) => Ok(client.len_of(path)?.is_some()),
        }
    }

    /// Bytes of a file, if it is there.
    pub(super) fn len_of(&self, path: &Path) -> Result<Option<u64>> {
        match self {
            Place::Disk(disk, mode) if disk.exists(path).map_err(failed)? => {
                let file = disk.open(path, &OpenOptions::read().mode(*mode)).map_err(failed)?;
                file.len().map(Some).map_err(failed)
            }
            Place::Disk(..) => Ok(None),
            Place::Client(client) => client.len_of(path),
        }
    }

    /// A file, which is there.
    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn Blocks>> {
        match self {
            Place::Disk(disk, mode) => Ok(Box::new(OnDisk::open(disk, path, *mode)?)),
            Place::Client(client) => {
                let missing = || {
                    let message = format!("the client has no file {path:?}");
                    Error::new(SqlState::UNDEFINED_FILE, message)
                };
                Ok(Box::new(client.open(path)?.ok_or_else(missing)?))
            }
        }
    }
}

/// A file of a disk, past the OS cache.
pub(super) struct OnDisk {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    len: u64,
}

impl OnDisk {
    pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path, mode: ModeRequest) -> Result<Self> {
        let file = disk.open(path, &OpenOptions::read().mode(mode)).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        Ok(OnDisk { disk: Arc::clone(disk), file, len })
    }

    /// What is left behind the last aligned place comes through the OS cache, which is to forget it.
    pub(super) fn read_block(&self, at: u64, block: &mut [u8]) -> Result<usize> {
        let left = self.len.saturating_sub(at).min(block.len() as u64) as usize;
        let aligned = left / self.file.alignment() * self.file.alignment();
        if aligned > 0 {
            self.file.read_at(Class::Maintenance, at, &mut block[..aligned]).map_err(failed)?;
            return Ok(aligned);
        }
        if left > 0 {
            let options = OpenOptions::read().mode(ModeRequest::Only(Mode::Buffered));
            let tail = self.disk.open(self.file.path(), &options).map_err(failed)?;
            tail.read_at(Class::Maintenance, at, &mut block[..left]).map_err(failed)?;
            tail.drop_cache();
        }
        Ok(left)
    }
}

impl Blocks for OnDisk {
    fn len(&self) -> u64 {
        self.len
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn read(&self, at: u64, block: &mut [u8]) -> Result<Option<usize>> {
        self.read_block(at, block).map(Some)
    }
}
