//! A deterministic disk in memory that fails in every way a real one is allowed to, and in some it is not.
//!
//! All randomness comes from the seed given to [`SimDisk::new`], all waiting goes through `gannet_base`, so inside a
//! [`gannet_base::sim::Simulation`] a run is a function of the two seeds and takes virtual time only. Outside of
//! one every request ends at once.
//!
//! # What this device may do
//! 1. **Lose and tear what was not synced.** A file has a *durable* image and a list of effects on top of it. A read
//!    sees all of them. After a crash any subset of the unsynced ones is left, chosen sector by sector, in any order
//!    and also of writes that were still in flight. [`CrashPolicy`] makes sure that extremes are met often.
//! 2. **Lose sizes and allocations that were not synced,** in the order of the file system's journal: when one is
//!    lost, so are the later ones of the same file. Data behind the size that is left is gone.
//! 3. **Lose names.** A file created, renamed or removed has its old or its new name until [`Disk::sync_dir`] of its
//!    folder, independently of other names and of syncs of the file itself. A folder that vanishes takes its files
//!    along.
//! 4. **Take its time.** Every request has its own latency, so requests end in another order than they began, and
//!    now and then one takes very long ([`Fault::LatencySpike`]). Requests may also end inside
//!    [`crate::Queue::submit`].
//! 5. **Fail**, as planned with [`SimDisk::set_faults`]: a read, a write (any of its sectors may have arrived), a
//!    sync, a change of size or of names (nothing was changed then). After a failed sync, as on Linux, the data it should have made durable counts as clean: part of it is
//!    lost for good although reads still show it, and no later sync brings it back. Other handles of the file learn
//!    of it at their next sync; syncs of the same handle that are on their way fail as well, unless
//!    [`Faults::sync_error_told_once`].
//! 6. **Be full**: by a plan, or beyond [`Settings::capacity_bytes`]. A write to a block allocated before never
//!    needs space.
//! 7. **Interrupt a read**, so that a concurrent write falls between its parts. A read concurrent with a write sees
//!    the old or the new bytes of each sector.
//! 8. **Lie**, as planned: acknowledge a write and never store it, or store it elsewhere in the file
//!    ([`SimDisk::injected`] tells which). **Rot**: [`SimDisk::corrupt`] flips durable bits.
//! 9. **Lose power** at any I/O operation ([`SimDisk::crash_after`]). From then on every operation on the disk fails
//!    with "power is off", whoever waits for a request gets that error, and [`SimDisk::crash_image`] gives the disk
//!    that is found afterwards.
//!
//! # What it never does
//! 1. Lose what completed before a successful [`crate::File::sync`] began, or a completed
//!    [`crate::Durability::Durable`] write with the size it needs; lose a name changed before a successful
//!    [`Disk::sync_dir`]. (A lie of point 8 is the exception.)
//! 2. Tear a sector, or a [`crate::Direction::WriteAtomic`] request.
//! 3. Show bytes nobody wrote to that place: what was never written reads as zero.
//! 4. Leave a renamed file with two names or none, unless its creation was not durable.
//! 5. Change anything after the power is off; one crash may be looked at through many seeds.
//!
//! # What it insists on
//! It panics, and so fails the simulation, when two writes to one sector are in flight (on request also a read and a
//! write), or when the memory of a queued write changes before its completion. Misaligned offsets, lengths and
//! addresses are [`ErrorKind::Invalid`].

use crate::{Disk, Error, ErrorKind, File, OpenOptions, Queue, Result, stats::Stats};
use gannet_base::clock;
use gannet_base::sim::{self, Generator};
use gannet_base::sync::{Condvar, Mutex};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod content;
mod crash;
mod faults;
mod file;
mod inode;
mod names;
mod queue;
mod replay;
mod state;

pub use crash::CrashPolicy;
pub use faults::{Chance, Fault, Faults, Injection};
pub use file::SimFile;
pub use queue::SimQueue;
pub use replay::Replay;

use state::State;

/// What kind of device it is. A crash does not change it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time a read takes, in microseconds.
    pub read_latency_us: RangeInclusive<u64>,
    /// Time a write, allocation or change of size takes, in microseconds.
    pub write_latency_us: RangeInclusive<u64>,
    /// Time a sync of a file or folder takes, in microseconds.
    pub sync_latency_us: RangeInclusive<u64>,
    /// Time a request struck by [`Fault::LatencySpike`] takes, in microseconds.
    pub spike_latency_us: RangeInclusive<u64>,
    /// Bytes of blocks that fit; `None` is no limit.
    pub capacity_bytes: Option<u64>,
    /// Largest atomic write in bytes, a power of two; 0 when the device promises nothing.
    pub atomic_write_max: usize,
    /// Inside a simulation, one in so many calls of [`crate::Queue::submit`] also runs what is due; 0 is never.
    pub complete_in_submit_one_in: u64,
    /// Whether a read that meets a write in flight to the same sectors is a bug of the caller.
    pub panic_on_read_overlap: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            read_latency_us: 20..=200,
            write_latency_us: 20..=300,
            sync_latency_us: 100..=500,
            spike_latency_us: 5_000..=50_000,
            capacity_bytes: None,
            atomic_write_max: 0,
            complete_in_submit_one_in: 16,
            panic_on_read_overlap: false,
        }
    }
}

/// What a disk, its files and its queues share.
struct Shared {
    state: Mutex<State>,
    /// Tells threads in [`crate::Queue::wait_until`] to look again.
    changed: Arc<Condvar>,
    stats: Stats,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

/// Lets virtual time pass; real time is never spent.
fn pause(duration: Duration) {
    if sim::active() {
        clock::sleep(duration);
    }
}

impl SimDisk {
    /// An empty disk with default [`Settings`]; the folders `/` and `` (the current one) are there.
    pub fn new(seed: u64) -> Self {
        Self::with_settings(seed, Settings::default())
    }

    /// An empty disk.
    pub fn with_settings(seed: u64, settings: Settings) -> Self {
        Self::from_state(State::new(seed, settings))
    }

    fn from_state(state: State) -> Self {
        let changed = Arc::clone(&state.changed);
        SimDisk { shared: Arc::new(Shared { state: Mutex::new(state), changed, stats: Stats::default() }) }
    }

    /// Replaces the plan of faults; counts of schedules and the record of injected faults begin anew.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.state.lock().plan = faults::Plan::new(faults);
    }

    /// Faults that struck since [`SimDisk::set_faults`], in order.
    pub fn injected(&self) -> Vec<Injection> {
        self.shared.state.lock().plan.injected.clone()
    }

    /// Cuts the power in the middle of the `count`-th I/O operation from now; 1 is the next one. Operations are
    /// reads, writes, syncs, allocations, changes of size and changes of names.
    pub fn crash_after(&self, count: u64) {
        let mut state = self.shared.state.lock();
        state.crash_at = Some(state.io_count + count.max(1));
    }

    /// Takes [`SimDisk::crash_after`] back.
    pub fn cancel_crash(&self) {
        self.shared.state.lock().crash_at = None;
    }

    /// Cuts the power now.
    pub fn power_off(&self) {
        self.shared.state.lock().power_off();
    }

    /// Whether the power is off.
    pub fn is_crashed(&self) -> bool {
        self.shared.state.lock().powered_off
    }

    /// I/O operations begun so far (see [`SimDisk::crash_after`]).
    pub fn io_count(&self) -> u64 {
        self.shared.state.lock().io_count
    }

    /// A hash of all I/O operations so far and of the virtual times they began: two runs that agree on it did the
    /// same.
    pub fn fingerprint(&self) -> u64 {
        self.shared.state.lock().fingerprint
    }

    /// Cuts the power, unless it is off already, and gives the disk found when it comes back: without faults
    /// planned, otherwise with the same settings. `seed` chooses what is left; other seeds give other outcomes of
    /// the same crash.
    pub fn crash_image(&self, seed: u64) -> SimDisk {
        self.power_off();
        self.peek_crash(None, seed)
    }

    /// As [`SimDisk::crash_image`], with a policy instead of one chosen by the seed.
    pub fn crash_image_with(&self, policy: CrashPolicy, seed: u64) -> SimDisk {
        self.power_off();
        self.peek_crash(Some(policy), seed)
    }

    /// The disk that would be found if the power went off now; this one goes on. `None` lets the seed choose.
    pub fn peek_crash(&self, policy: Option<CrashPolicy>, seed: u64) -> SimDisk {
        let image = crash::image(&self.shared.state.lock(), policy, seed);
        Self::from_state(image)
    }

    /// Flips one to eight bits in `offset..offset + len` of a file, in what is seen and in what is durable. A write
    /// to the place repairs it.
    pub fn corrupt(&self, path: &Path, offset: u64, len: u64, seed: u64) -> Result<()> {
        let mut state = self.shared.state.lock();
        let path = names::normal("corrupt", path)?;
        let number = state.names.file("corrupt", &path)?;
        let inode = state.inodes.get_mut(&number).expect("a name refers to an inode");
        if len == 0 || offset + len > inode.visible.len() {
            return Err(Error::new(ErrorKind::Invalid, "corrupt", &path, "not a range of the file"));
        }
        let mut random = Generator::new(seed);
        let mut flips = BTreeMap::new();
        for _ in 0..=random.below(8) {
            // Bits are set, not toggled, in the mask: two draws of one bit do not cancel.
            *flips.entry(offset + random.below(len)).or_insert(0) |= 1 << random.below(8);
        }
        flips.into_iter().for_each(|(position, mask)| inode.flip(position, mask));
        Ok(())
    }

    /// Whether a read of the file has shown bytes that an acknowledged write should have replaced, but for a lie of the device
    /// (point 8). Crashes do not make it forget.
    pub fn was_untrue(&self, path: &Path) -> Result<bool> {
        let state = self.shared.state.lock();
        let number = state.names.file("inspect", &names::normal("inspect", path)?)?;
        Ok(state.inodes[&number].was_untrue())
    }

    /// Paths of all files as seen now, in order. Works with the power off.
    pub fn files(&self) -> Vec<PathBuf> {
        self.shared.state.lock().names.live.files.keys().cloned().collect()
    }

    /// Paths of all folders as seen now, in order, `/` and `` aside. Works with the power off.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.shared.state.lock().names.live.folders().cloned().collect()
    }

    /// A file's bytes as seen now. Works with the power off.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(self.shared.state.lock().content(path)?.to_vec())
    }

    /// What is durable now: the least that any crash leaves.
    pub fn durable_image(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.shared.state.lock();
        let files = state.names.image(|_| false).files;
        files.into_iter().map(|(path, number)| (path, state.inodes[&number].durable.to_vec())).collect()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        let handle = self.shared.state.lock().open(path, options)?;
        Ok(Arc::new(SimFile::new(Arc::clone(&self.shared), handle, options.mode)))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.shared.state.lock();
        state.power("look for", path)?;
        let path = names::normal("look for", path)?;
        Ok(state.names.live.has_folder(&path) || state.names.live.files.contains_key(&path))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        let state = self.shared.state.lock();
        state.power("list", folder)?;
        let folder = names::normal("list", folder)?;
        if !state.names.live.has_folder(&folder) {
            return Err(Error::new(ErrorKind::NotFound, "list", &folder, "no such folder"));
        }
        let files = state.names.live.files.keys().filter(|path| path.parent() == Some(&folder));
        Ok(files.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        let mut state = self.shared.state.lock();
        let folder = names::normal("create folder", folder)?;
        if state.names.live.has_folder(&folder) {
            return state.power("create folder", &folder);
        }
        if state.names.live.files.contains_key(&folder) {
            let detail = "a file of that name is there";
            return Err(Error::new(ErrorKind::AlreadyExists, "create folder", &folder, detail));
        }
        state.change_names("create folder", &folder, |names, sequence| names.create_folder(sequence, &folder))
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        let folder = names::normal("remove folder", folder)?;
        let mut state = self.shared.state.lock();
        state.change_names("remove folder", &folder, |names, sequence| names.remove_folder(sequence, &folder))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = names::normal("remove", path)?;
        let mut state = self.shared.state.lock();
        state.change_names("remove", &path, |names, sequence| names.unlink(sequence, &path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (names::normal("rename", from)?, names::normal("rename", to)?);
        let mut state = self.shared.state.lock();
        state.change_names("rename", &from, |names, sequence| names.rename(sequence, &from, &to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (names::normal("rename", from)?, names::normal("rename", to)?);
        let mut state = self.shared.state.lock();
        state.change_names("rename", &from, |names, sequence| names.rename_new(sequence, &from, &to))
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        let folder = names::normal("sync folder", folder)?;
        let started = self.shared.state.lock().begin_sync_dir(&folder)?;
        pause(started.latency);
        self.shared.state.lock().finish_sync_dir(&folder, started.id)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        let mut state = self.shared.state.lock();
        state.power("lock", path)?;
        let path = names::normal("lock", path)?;
        if state.locks.get(&path).is_some_and(|held| held.strong_count() > 0) {
            let detail = "held by another user of this simulated disk";
            return Err(Error::new(ErrorKind::Locked, "lock", &path, detail));
        }
        let token = Arc::new(());
        state.locks.insert(path, Arc::downgrade(&token));
        Ok(Box::new(token))
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        // There are no symbolic links here.
        Ok(path.to_owned())
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        let state = self.shared.state.lock();
        state.power("ask for room in", folder)?;
        Ok(state.free_bytes())
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        self.shared.state.lock().power("make a queue on", Path::new(""))?;
        Ok(Arc::new(SimQueue::new(Arc::clone(&self.shared), depth)))
    }

    fn stats(&self) -> &Stats {
        &self.shared.stats
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("SimDisk")
            .field("files", &state.names.live.files.len())
            .field("io_count", &state.io_count)
            .field("powered_off", &state.powered_off)
            .finish()
    }
}

#[cfg(test)]
mod tests;
