//! A view of a disk in which whatever is asked for is maintenance: for a database that somebody makes beside others, whose log and pages nobody waits for but who
//! makes it. What goes through it counts with the disk underneath, as that class.

use crate::{
    AtomicWrites, Class, Completion, Disk, Durability, File, ModeReport, ModeRequest, OpenOptions, Queue,
    Request, Result, stats,
};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// See the module's head.
#[derive(Debug)]
pub struct DemotedDisk {
    under: Arc<dyn Disk>,
}

impl DemotedDisk {
    /// Such a view of `under`.
    pub fn new(under: Arc<dyn Disk>) -> Self {
        DemotedDisk { under }
    }
}

impl Disk for DemotedDisk {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        Ok(Arc::new(DemotedFile { under: self.under.open(path, options)? }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.under.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.under.list(folder)
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        self.under.create_dir(folder)
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        self.under.remove_dir(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.under.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.under.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.under.rename_new(from, to)
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.under.sync_dir(folder)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        self.under.lock(path)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.under.resolve(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.under.free_bytes(folder)
    }

    fn holds_objects(&self) -> bool {
        self.under.holds_objects()
    }

    fn mode_of(&self, path: &Path) -> Option<ModeReport> {
        self.under.mode_of(path)
    }

    #[cfg(unix)]
    fn queue_backend(&self) -> Option<crate::BackendReport> {
        self.under.queue_backend()
    }

    fn publish(&self, path: &Path, bytes: &[u8], mode: ModeRequest) -> Result<()> {
        self.under.publish(path, bytes, mode)
    }

    fn leave(&self, path: &Path) {
        self.under.leave(path);
    }

    fn take_left(&self) -> Vec<String> {
        self.under.take_left()
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(DemotedQueue { under: self.under.queue(depth)? }))
    }

    fn stats(&self) -> &stats::Stats {
        self.under.stats()
    }

    #[cfg(unix)]
    fn calibration(&self) -> crate::Calibration {
        self.under.calibration()
    }
}

#[derive(Debug)]
struct DemotedFile {
    under: Arc<dyn File>,
}

impl File for DemotedFile {
    fn path(&self) -> &Path {
        self.under.path()
    }

    fn mode(&self) -> &ModeReport {
        self.under.mode()
    }

    fn alignment(&self) -> usize {
        self.under.alignment()
    }

    fn read_at(&self, _: Class, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.under.read_at(Class::Maintenance, offset, buffer)
    }

    fn write_at(&self, _: Class, offset: u64, buffer: &[u8], durability: Durability) -> Result<()> {
        self.under.write_at(Class::Maintenance, offset, buffer, durability)
    }

    fn sync(&self, _: Class) -> Result<()> {
        self.under.sync(Class::Maintenance)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.under.allocate(offset, len)
    }

    fn expect(&self, len: u64, memory: u64, spare: u64) -> u64 {
        self.under.expect(len, memory, spare)
    }

    fn has_room(&self, end: u64, limit: Duration) -> bool {
        self.under.has_room(end, limit)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.under.set_len(len)
    }

    fn len(&self) -> Result<u64> {
        self.under.len()
    }

    fn has_a_name(&self) -> Result<bool> {
        self.under.has_a_name()
    }

    fn is_poisoned(&self) -> bool {
        self.under.is_poisoned()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.under.lock()
    }

    fn atomic_writes(&self) -> AtomicWrites {
        self.under.atomic_writes()
    }

    fn cached_bytes(&self) -> Option<u64> {
        self.under.cached_bytes()
    }

    fn drop_cache(&self) {
        self.under.drop_cache();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct DemotedQueue {
    under: Arc<dyn Queue>,
}

/// The request as the disk underneath takes it. One for a file of another disk is left as it is: the queue underneath refuses it.
fn demoted(request: Request) -> Request {
    let under = request.file.as_any().downcast_ref::<DemotedFile>().map(|file| Arc::clone(&file.under));
    Request { file: under.unwrap_or_else(|| Arc::clone(&request.file)), class: Class::Maintenance, ..request }
}

#[expect(unsafe_code, reason = "requests are handed on to the queue underneath")]
// SAFETY: requests and completions are those of the caller; the queue underneath calls each completion once.
impl Queue for DemotedQueue {
    unsafe fn submit(&self, requests: Vec<Request>, completion: &Arc<dyn Completion>) {
        // SAFETY: what the caller promises of the memory is what the queue underneath asks for.
        unsafe { self.under.submit(requests.into_iter().map(demoted).collect(), completion) };
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        self.under.wait_until(done);
    }

    fn poll(&self) {
        self.under.poll();
    }

    fn in_flight(&self) -> usize {
        self.under.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;
    use crate::sim::SimDisk;
    use crate::stats::Operation;
    use std::sync::atomic::Ordering;

    #[test]
    fn everything_is_maintenance_with_the_disk_underneath() {
        let under: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let disk = DemotedDisk::new(Arc::clone(&under));
        let file = disk.open(Path::new("a"), &OpenOptions::create_new()).unwrap();
        let mut page = AlignedBuffer::zeroed(4096);
        file.write_at(Class::Commit, 0, &page, Durability::Durable).unwrap();
        file.read_at(Class::Foreground, 0, &mut page).unwrap();
        file.sync(Class::Commit).unwrap();
        let count =
            |class, operation| under.stats().counter(class, operation).requests.load(Ordering::Relaxed);
        for operation in [Operation::Read, Operation::Write, Operation::Sync] {
            assert_eq!(count(Class::Maintenance, operation), 1, "{operation:?}");
            assert_eq!(count(Class::Commit, operation) + count(Class::Foreground, operation), 0);
        }
        assert_eq!(under.open(Path::new("a"), &OpenOptions::read()).unwrap().len().unwrap(), 4096);
    }
}
