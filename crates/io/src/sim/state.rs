//! Everything the simulated disk knows, behind one lock. No method here waits or calls a scheduling point, so the
//! lock is never held across one.

use super::content::Content;
use super::faults::{Fault, Plan};
use super::inode::{Change, Inode, WriteKind};
use super::names::{Names, normal};
use super::queue::QueueState;
use super::{Faults, Settings};
use crate::error::Poison;
use crate::{Durability, Error, ErrorKind, Result, SECTOR};
use gannet_base::checksum;
use gannet_base::clock;
use gannet_base::sim::{self, Generator};
use gannet_base::sync::Condvar;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What an open file knows of itself.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) write: bool,
    pub(super) poisoned: Poison,
    failed_syncs_seen: u64,
    _open: Arc<()>,
}

/// A transfer between its start and its end.
pub(super) struct InFlight {
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) write: Option<FlyingWrite>,
    fails: bool,
}

#[derive(Clone)]
pub(super) struct FlyingWrite {
    pub(super) data: Arc<[u8]>,
    pub(super) kind: WriteKind,
    pub(super) target: Target,
}

/// Where the bytes of a write really go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Home,
    Nowhere,
    Elsewhere(u64),
}

/// What was decided when a transfer started.
pub(super) struct Started {
    pub(super) id: u64,
    pub(super) latency: Duration,
    /// Bytes of a read after which the device pauses; 0 when it does not.
    pub(super) split: usize,
}

pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) random: Generator,
    pub(super) plan: Plan,
    pub(super) names: Names,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) in_flight: BTreeMap<u64, InFlight>,
    pub(super) queues: BTreeMap<u64, QueueState>,
    pub(super) locks: BTreeMap<PathBuf, Weak<()>>,
    pub(super) file_locks: BTreeMap<u64, Weak<()>>,
    pub(super) io_count: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) powered_off: bool,
    /// Changes with every event that a waiting thread may have waited for.
    pub(super) epoch: u64,
    pub(super) fingerprint: u64,
    pub(super) changed: Arc<Condvar>,
    next_number: u64,
}

impl State {
    pub(super) fn new(seed: u64, settings: Settings) -> Self {
        State {
            settings,
            random: Generator::new(seed),
            plan: Plan::new(Faults::default()),
            names: Names::default(),
            inodes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queues: BTreeMap::new(),
            locks: BTreeMap::new(),
            file_locks: BTreeMap::new(),
            io_count: 0,
            crash_at: None,
            powered_off: false,
            epoch: 0,
            fingerprint: seed,
            changed: Arc::new(Condvar::new()),
            next_number: 1,
        }
    }

    /// The next number of the one sequence that orders files, effects and transfers.
    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(super) fn power(&self, operation: &'static str, path: &Path) -> Result<()> {
        match self.powered_off {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Device, operation, path, "power is off")),
        }
    }

    pub(super) fn power_off(&mut self) {
        self.powered_off = true;
        self.announce();
    }

    pub(super) fn announce(&mut self) {
        self.epoch += 1;
        self.changed.notify_all();
    }

    /// Counts one I/O operation; true when the power goes off in the middle of it.
    fn tick(&mut self, operation: &'static str, path: &Path, offset: u64, len: u64) -> bool {
        self.io_count += 1;
        let now = if sim::active() { clock::now().as_nanos() } else { 0 };
        let mut hash = checksum::Streaming::new(self.fingerprint);
        hash.update(operation.as_bytes());
        hash.update(path.as_os_str().as_encoded_bytes());
        [offset, len, now].iter().for_each(|n| hash.update(&n.to_le_bytes()));
        self.fingerprint = hash.finish();
        let trips = self.crash_at.is_some_and(|at| self.io_count >= at);
        if trips {
            self.power_off();
        }
        trips
    }

    pub(super) fn latency(&mut self, range: &RangeInclusive<u64>) -> Duration {
        let span = range.end().saturating_sub(*range.start());
        Duration::from_micros(range.start() + self.random.below(span + 1))
    }

    fn strikes(&mut self, fault: Fault, path: &Path, offset: u64, len: u64) -> bool {
        self.plan.strikes(fault, path, (offset, len), &mut self.random)
    }

    pub(super) fn inode(&self, handle: &Handle) -> &Inode {
        &self.inodes[&handle.inode]
    }

    fn inode_mut(&mut self, handle: &Handle) -> &mut Inode {
        self.inodes.get_mut(&handle.inode).expect("an open file keeps its inode")
    }

    // ----- names

    pub(super) fn open(&mut self, path: &Path, options: &crate::OpenOptions) -> Result<Handle> {
        self.power("open", path)?;
        let path = normal("open", path)?;
        self.fail_open("open", &path)?;
        let inode = match self.names.file("open", &path) {
            Ok(_) if options.create_new => {
                return Err(Error::new(ErrorKind::AlreadyExists, "open", &path, "exists"));
            }
            Ok(inode) => inode,
            Err(e) if e.kind() == ErrorKind::NotFound && (options.create || options.create_new) => {
                self.fail_name("create", &path)?;
                let inode = self.number();
                self.names.link(inode, &path, inode)?;
                self.inodes.insert(inode, Inode::default());
                if self.tick("create", &path, 0, 0) {
                    self.power("create", &path)?;
                }
                inode
            }
            Err(e) => return Err(e),
        };
        let file = &self.inodes[&inode];
        Ok(Handle {
            path,
            inode,
            write: options.write,
            poisoned: Poison::default(),
            failed_syncs_seen: file.failed_syncs,
            _open: Arc::clone(&file.open),
        })
    }

    fn fail_open(&mut self, operation: &'static str, path: &Path) -> Result<()> {
        match self.strikes(Fault::TooManyOpen, path, 0, 0) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::TooManyOpen, operation, path, "injected fault")),
        }
    }

    fn fail_name(&mut self, operation: &'static str, path: &Path) -> Result<()> {
        match self.strikes(Fault::NameError, path, 0, 0) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Device, operation, path, "injected fault")),
        }
    }

    /// Runs a change of names. When the power goes off in it, the change may or may not survive.
    pub(super) fn change_names(
        &mut self,
        operation: &'static str,
        path: &Path,
        change: impl FnOnce(&mut Names, u64) -> Result<()>,
    ) -> Result<()> {
        self.power(operation, path)?;
        self.fail_name(operation, path)?;
        let sequence = self.number();
        change(&mut self.names, sequence)?;
        self.tick(operation, path, 0, 0);
        self.power(operation, path)
    }

    /// Starts the sync of a folder: what came before the returned number will be durable.
    pub(super) fn begin_sync_dir(&mut self, folder: &Path) -> Result<Started> {
        self.power("sync folder", folder)?;
        if !self.names.live.has_folder(folder) {
            return Err(Error::new(ErrorKind::NotFound, "sync folder", folder, "no such folder"));
        }
        self.fail_open("sync folder", folder)?;
        self.tick("sync folder", folder, 0, 0);
        self.power("sync folder", folder)?;
        Ok(self.started(folder, self.settings.sync_latency_us.clone(), 0, 0))
    }

    pub(super) fn finish_sync_dir(&mut self, folder: &Path, cutoff: u64) -> Result<()> {
        self.power("sync folder", folder)?;
        if self.strikes(Fault::SyncError, folder, 0, 0) {
            return Err(Error::new(ErrorKind::Device, "sync folder", folder, "injected fault"));
        }
        self.names.sync(folder, cutoff);
        self.collect_garbage();
        Ok(())
    }

    /// Forgets files that no name and no handle refers to.
    fn collect_garbage(&mut self) {
        let referenced = self.names.referenced();
        let flying = &self.in_flight;
        self.inodes.retain(|number, inode| {
            referenced.contains(number) || inode.is_open() || flying.values().any(|f| f.inode == *number)
        });
    }

    // ----- transfers

    fn started(&mut self, path: &Path, range: RangeInclusive<u64>, offset: u64, len: u64) -> Started {
        let mut latency = self.latency(&range);
        if self.strikes(Fault::LatencySpike, path, offset, len) {
            latency = self.latency(&self.settings.spike_latency_us.clone());
        }
        Started { id: self.number(), latency, split: 0 }
    }

    fn check(&self, operation: &'static str, handle: &Handle, offset: u64, len: usize) -> Result<()> {
        self.power(operation, &handle.path)?;
        let sector = SECTOR as u64;
        let (detail, kind) = if operation != "read" && !handle.write {
            ("opened for reading only".to_owned(), ErrorKind::Invalid)
        } else if operation != "read" && handle.poisoned.is_set() {
            return handle.poisoned.check(operation, &handle.path);
        } else if !offset.is_multiple_of(sector) || !len.is_multiple_of(SECTOR) {
            (format!("offset {offset} or length {len} is not a multiple of {SECTOR}"), ErrorKind::Invalid)
        } else {
            return Ok(());
        };
        Err(Error::new(kind, operation, &handle.path, detail))
    }

    /// Panics when a transfer would meet another one that it must not meet.
    fn check_overlap(&self, handle: &Handle, offset: u64, len: u64, is_write: bool) {
        let reads_count = self.settings.panic_on_read_overlap;
        for (id, other) in &self.in_flight {
            let touches = len > 0
                && other.inode == handle.inode
                && other.offset < offset + len
                && offset < other.offset + other.len;
            let forbidden = match (is_write, other.write.is_some()) {
                (true, true) => true,
                (false, false) => false,
                _ => reads_count,
            };
            assert!(
                !(touches && forbidden),
                "two transfers in flight to the same sectors of {:?}: {offset}+{len} against transfer {id} at \
                 {}+{}",
                handle.path,
                other.offset,
                other.len,
            );
        }
    }

    pub(super) fn begin_read(&mut self, handle: &Handle, offset: u64, len: usize) -> Result<Started> {
        self.check("read", handle, offset, len)?;
        self.check_overlap(handle, offset, len as u64, false);
        self.tick("read", &handle.path, offset, len as u64);
        self.power("read", &handle.path)?;
        let mut started =
            self.started(&handle.path, self.settings.read_latency_us.clone(), offset, len as u64);
        if len > SECTOR && self.strikes(Fault::ShortRead, &handle.path, offset, len as u64) {
            started.split = SECTOR * (1 + self.random.below((len / SECTOR) as u64 - 1) as usize);
        }
        let fails = self.strikes(Fault::ReadError, &handle.path, offset, len as u64);
        let transfer = InFlight { inode: handle.inode, offset, len: len as u64, write: None, fails };
        self.in_flight.insert(started.id, transfer);
        Ok(started)
    }

    /// Copies a part of what is seen now; where a write is in flight each sector may be the old or the new one.
    pub(super) fn copy_out(&mut self, handle: &Handle, offset: u64, buffer: &mut [u8]) {
        let inode = &self.inodes[&handle.inode];
        inode.visible.read(offset, buffer);
        let end = (offset + buffer.len() as u64).min(inode.visible.len());
        for flying in self.in_flight.values().filter(|f| f.inode == handle.inode) {
            let Some(write) = flying.write.as_ref().filter(|w| w.target == Target::Home) else { continue };
            let whole = self.random.one_in(2);
            for (index, sector) in write.data.chunks(SECTOR).enumerate() {
                let position = flying.offset + (index * SECTOR) as u64;
                if position < offset || position + SECTOR as u64 > end {
                    continue;
                }
                let new = if write.kind.atomic { whole } else { self.random.one_in(2) };
                if new {
                    buffer[(position - offset) as usize..][..SECTOR].copy_from_slice(sector);
                }
            }
        }
    }

    /// Ends a read, or its second part.
    pub(super) fn finish_read(
        &mut self,
        id: u64,
        handle: &Handle,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.power("read", &handle.path)?;
        let transfer = self.in_flight.remove(&id).expect("a transfer ends once");
        if transfer.fails {
            return Err(Error::new(ErrorKind::Device, "read", &handle.path, "injected fault"));
        }
        if self.inode_mut(handle).note_read(offset, buffer.len() as u64)
            && self.plan.ends_at_lie(&handle.path)
        {
            self.power_off();
            return self.power("read", &handle.path);
        }
        let size = self.inode(handle).visible.len();
        if offset + buffer.len() as u64 > size {
            let detail = format!("{} bytes at {offset}, the file ends at {size}", buffer.len());
            return Err(Error::new(ErrorKind::ShortRead, "read", &handle.path, detail));
        }
        self.copy_out(handle, offset, buffer);
        Ok(())
    }

    pub(super) fn begin_write(
        &mut self,
        handle: &Handle,
        offset: u64,
        data: Arc<[u8]>,
        kind: WriteKind,
    ) -> Result<Started> {
        let len = data.len() as u64;
        self.check("write", handle, offset, data.len())?;
        if kind.atomic
            && len > 0
            && !(len.is_power_of_two()
                && len <= self.settings.atomic_write_max as u64
                && offset.is_multiple_of(len))
        {
            let detail = format!("{len} bytes at {offset} cannot be written atomically");
            return Err(Error::new(ErrorKind::Invalid, "write", &handle.path, detail));
        }
        self.check_overlap(handle, offset, len, true);
        let target = self.choose_target(handle, offset, len);
        let fails = self.strikes(Fault::WriteError, &handle.path, offset, len);
        let started = self.started(&handle.path, self.settings.write_latency_us.clone(), offset, len);
        let write = Some(FlyingWrite { data, kind, target });
        self.in_flight.insert(started.id, InFlight { inode: handle.inode, offset, len, write, fails });
        self.tick("write", &handle.path, offset, len);
        self.power("write", &handle.path)?;
        Ok(started)
    }

    fn choose_target(&mut self, handle: &Handle, offset: u64, len: u64) -> Target {
        if len == 0 {
            return Target::Home;
        }
        if self.strikes(Fault::LostWrite, &handle.path, offset, len) {
            return Target::Nowhere;
        }
        if !self.strikes(Fault::MisdirectedWrite, &handle.path, offset, len) {
            return Target::Home;
        }
        let slots = self.inode(handle).visible.len() / len;
        if slots < 3 {
            return Target::Nowhere;
        }
        // Of three neighbouring slots at most two overlap the right place. What lies near is as likely as all the rest.
        let far = self.random.below(slots);
        let first = if self.random.one_in(2) { far } else { (offset / len + 1 + far % 8) % slots };
        let apart = |slot: u64| (slot * len).abs_diff(offset) >= len;
        let slot = (first..first + 3).map(|s| s % slots).find(|s| apart(*s));
        slot.map_or(Target::Nowhere, |slot| Target::Elsewhere(slot * len))
    }

    pub(super) fn finish_write(&mut self, id: u64, handle: &Handle) -> Result<()> {
        // With the power off the transfer stays in flight: a crash image may keep any of its sectors.
        self.power("write", &handle.path)?;
        let InFlight { offset, len, write, fails, .. } =
            self.in_flight.remove(&id).expect("a transfer ends once");
        if len == 0 {
            return Ok(());
        }
        let FlyingWrite { data, mut kind, target } = write.expect("this transfer is a write");
        let outcome = match self.need_space("write", handle, offset, len) {
            Err(full) => {
                handle.poisoned.set(&full);
                return Err(full);
            }
            Ok(()) if fails => {
                let failure = Error::new(ErrorKind::Device, "write", &handle.path, "injected fault");
                handle.poisoned.set(&failure);
                Err(failure)
            }
            Ok(()) => Ok(()),
        };
        let sectors = data.len() / SECTOR;
        let mut live = vec![target == Target::Home; sectors];
        if outcome.is_err() {
            kind.durability = Durability::Cached;
            let whole = self.random.one_in(2);
            for sector in &mut live {
                *sector &= if kind.atomic { whole } else { self.random.one_in(2) };
            }
        }
        let sequence = self.number();
        let inode = self.inode_mut(handle);
        inode.note_write(offset, len, outcome.is_ok() && target != Target::Home);
        inode.write(sequence, offset, Arc::clone(&data), live, kind);
        if let Target::Elsewhere(offset) = target
            && outcome.is_ok()
        {
            let sequence = self.number();
            self.inode_mut(handle).write(sequence, offset, data, vec![true; sectors], kind);
        }
        outcome
    }

    // ----- space, size and sync

    fn used_bytes(&self) -> u64 {
        let linked = self.names.live.files.values().map(|number| &self.inodes[number]);
        let unlinked = self.inodes.iter().filter(|(number, inode)| {
            inode.is_open() && !self.names.live.files.values().any(|linked| linked == *number)
        });
        linked.chain(unlinked.map(|(_, inode)| inode)).map(|inode| inode.visible.allocated_bytes()).sum()
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        Some(self.settings.capacity_bytes?.saturating_sub(self.used_bytes()))
    }

    fn need_space(&mut self, operation: &'static str, handle: &Handle, offset: u64, len: u64) -> Result<()> {
        let missing = self.inode(handle).visible.missing_bytes(offset, len);
        if missing == 0 {
            return Ok(());
        }
        let full = self.settings.capacity_bytes.filter(|capacity| self.used_bytes() + missing > *capacity);
        let detail = match full {
            Some(capacity) => format!("{missing} bytes more than fit on a disk of {capacity}"),
            None if !self.strikes(Fault::NoSpace, &handle.path, offset, len) => return Ok(()),
            None => "injected fault".to_owned(),
        };
        Err(Error::new(ErrorKind::NoSpace, operation, &handle.path, detail))
    }

    pub(super) fn change_size(&mut self, handle: &Handle, change: Change) -> Result<()> {
        let (operation, offset, len) = match change {
            Change::Allocate(offset, len) => ("allocate", offset, len),
            Change::SetLen(len) => ("set length", 0, len),
            Change::Write(_) => unreachable!("writes have a path of their own"),
        };
        self.power(operation, &handle.path)?;
        if !handle.write {
            return Err(Error::new(ErrorKind::Invalid, operation, &handle.path, "opened for reading only"));
        }
        if self.strikes(Fault::SizeError, &handle.path, offset, len) {
            return Err(Error::new(ErrorKind::Device, operation, &handle.path, "injected fault"));
        }
        if let Change::Allocate(offset, len) = change {
            self.need_space(operation, handle, offset, len)?;
        }
        let sequence = self.number();
        self.inode_mut(handle).change(sequence, change);
        self.tick(operation, &handle.path, offset, len);
        self.power(operation, &handle.path)
    }

    pub(super) fn begin_sync(&mut self, handle: &Handle) -> Result<Started> {
        self.power("sync", &handle.path)?;
        handle.poisoned.check("sync", &handle.path)?;
        if self.inode(handle).failed_syncs != handle.failed_syncs_seen {
            let detail = "a sync through another handle failed";
            let failure = Error::new(ErrorKind::Device, "sync", &handle.path, detail);
            handle.poisoned.set(&failure);
            return Err(failure);
        }
        self.tick("sync", &handle.path, 0, 0);
        self.power("sync", &handle.path)?;
        Ok(self.started(&handle.path, self.settings.sync_latency_us.clone(), 0, 0))
    }

    pub(super) fn finish_sync(&mut self, cutoff: u64, handle: &Handle) -> Result<()> {
        self.power("sync", &handle.path)?;
        let failed = self.inode(handle).failed_syncs != handle.failed_syncs_seen;
        if failed && self.plan.tells_once() {
            // Behind a failed sync none begins: this one was on its way.
            return Ok(());
        }
        if handle.poisoned.is_set() || failed {
            let detail = "another write or sync failed meanwhile";
            let failure = Error::new(ErrorKind::Device, "sync", &handle.path, detail);
            handle.poisoned.set(&failure);
            return Err(failure);
        }
        if self.strikes(Fault::SyncError, &handle.path, 0, 0) {
            let failure = Error::new(ErrorKind::Device, "sync", &handle.path, "injected fault");
            handle.poisoned.set(&failure);
            let inode = self.inodes.get_mut(&handle.inode).expect("an open file keeps its inode");
            inode.fail_sync(cutoff, &mut self.random);
            return Err(failure);
        }
        self.inode_mut(handle).sync(cutoff);
        Ok(())
    }

    /// A file found by name, for inspection.
    pub(super) fn content(&self, path: &Path) -> Result<&Content> {
        let number = self.names.file("inspect", &normal("inspect", path)?)?;
        Ok(&self.inodes[&number].visible)
    }
}
