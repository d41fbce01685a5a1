//! The handle of an open file.

use super::inode::{Change, WriteKind};
use super::state::Handle;
use super::{Shared, pause};
use crate::stats::Operation;
use crate::{
    AtomicWrites, Class, Durability, Error, ErrorKind, File, Mode, ModeReport, ModeRequest, Result, SECTOR,
};
use gannet_base::clock;
use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// An open file of a [`super::SimDisk`].
pub struct SimFile {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: Handle,
    mode: ModeReport,
}

impl SimFile {
    pub(super) fn new(shared: Arc<Shared>, handle: Handle, requested: ModeRequest) -> Self {
        let reason = "the simulated device knows no cache".to_owned();
        SimFile { shared, handle, mode: ModeReport { requested, effective: Mode::Direct, reason } }
    }

    fn check_address(&self, operation: &'static str, buffer: &[u8]) -> Result<()> {
        if is_aligned(buffer.as_ptr()) || buffer.is_empty() {
            return Ok(());
        }
        let detail = format!("the buffer's address is not a multiple of {SECTOR}");
        Err(Error::new(ErrorKind::Invalid, operation, &self.handle.path, detail))
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_address("read", buffer)?;
        let started = self.shared.state.lock().begin_read(&self.handle, offset, buffer.len())?;
        pause(started.latency);
        let (first, rest) = buffer.split_at_mut(started.split);
        if !first.is_empty() {
            let mut state = self.shared.state.lock();
            state.copy_out(&self.handle, offset, first);
            drop(state);
            pause(started.latency);
        }
        let offset = offset + first.len() as u64;
        self.shared.state.lock().finish_read(started.id, &self.handle, offset, rest)
    }

    fn write_now(&self, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        self.check_address("write", buffer)?;
        let kind = WriteKind { durability, atomic: false };
        let started = self.shared.state.lock().begin_write(&self.handle, offset, buffer.into(), kind)?;
        pause(started.latency);
        self.shared.state.lock().finish_write(started.id, &self.handle)
    }

    fn sync_now(&self) -> Result<()> {
        let started = self.shared.state.lock().begin_sync(&self.handle)?;
        pause(started.latency);
        self.shared.state.lock().finish_sync(started.id, &self.handle)
    }

    fn timed<T>(
        &self,
        class: Class,
        operation: Operation,
        bytes: usize,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = clock::now();
        let result = run();
        self.shared.stats.record(class, operation, bytes as u64, start.elapsed(), result.is_ok());
        result
    }

    fn change_size(&self, change: Change) -> Result<()> {
        let mut state = self.shared.state.lock();
        let latency = state.settings.write_latency_us.clone();
        let latency = state.latency(&latency);
        drop(state);
        pause(latency);
        self.shared.state.lock().change_size(&self.handle, change)
    }
}

pub(super) fn is_aligned(address: *const u8) -> bool {
    address.addr().is_multiple_of(SECTOR)
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn mode(&self) -> &ModeReport {
        &self.mode
    }

    fn alignment(&self) -> usize {
        SECTOR
    }

    fn read_at(&self, class: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.timed(class, Operation::Read, buffer.len(), || self.read_now(offset, buffer))
    }

    fn write_at(&self, class: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        self.timed(class, Operation::Write, buffer.len(), || self.write_now(offset, buffer, durability))
    }

    fn sync(&self, class: Class) -> Result<()> {
        self.timed(class, Operation::Sync, 0, || self.sync_now())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.change_size(Change::Allocate(offset, len))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change_size(Change::SetLen(len))
    }

    fn len(&self) -> Result<u64> {
        let state = self.shared.state.lock();
        state.power("stat", &self.handle.path)?;
        Ok(state.inode(&self.handle).visible.len())
    }

    fn has_a_name(&self) -> Result<bool> {
        let state = self.shared.state.lock();
        state.power("stat", &self.handle.path)?;
        Ok(state.names.live.files.values().any(|linked| *linked == self.handle.inode))
    }

    fn is_poisoned(&self) -> bool {
        self.handle.poisoned.is_set()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        let mut state = self.shared.state.lock();
        state.power("lock", &self.handle.path)?;
        if state.file_locks.get(&self.handle.inode).is_some_and(|held| held.strong_count() > 0) {
            let detail = "held by another user of this simulated disk";
            return Err(Error::new(ErrorKind::Locked, "lock", &self.handle.path, detail));
        }
        let token = Arc::new(());
        state.file_locks.insert(self.handle.inode, Arc::downgrade(&token));
        Ok(Box::new(token))
    }

    fn atomic_writes(&self) -> AtomicWrites {
        AtomicWrites::up_to(self.shared.state.lock().settings.atomic_write_max)
    }

    fn cached_bytes(&self) -> Option<u64> {
        Some(0)
    }

    fn drop_cache(&self) {}

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({:?})", self.handle.path)
    }
}
