//! A disk on which somebody else does something between two operations, as another thread or process would that comes in between.

use gannet_base::sync::Mutex;
use gannet_io::sim::SimDisk;
use gannet_io::stats::Stats;
use gannet_io::{Disk, Error, ErrorKind, File, ModeRequest, OpenOptions, Queue, Result};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Action = Box<dyn FnOnce() + Send>;

/// A simulated disk; once, behind the next look at what is in a folder, or behind the next file that is published, something else is done.
pub(crate) struct Meanwhile {
    disk: SimDisk,
    behind_list: Mutex<Option<(PathBuf, Action)>>,
    behind_publish: Mutex<Option<Action>>,
}

impl Meanwhile {
    /// Whoever lists this folder next gets what is there before `action`, and goes on behind it.
    pub(crate) fn behind_list(
        disk: &SimDisk,
        folder: &str,
        action: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let behind_list = Mutex::new(Some((PathBuf::from(folder), Box::new(action) as Action)));
        Arc::new(Meanwhile { disk: disk.clone(), behind_list, behind_publish: Mutex::new(None) })
    }

    /// Whoever publishes a file next is told that it failed, behind `action`, though the file is there.
    #[allow(dead_code, reason = "not every test that looks meanwhile publishes")]
    pub(crate) fn behind_publish(disk: &SimDisk, action: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let behind_publish = Mutex::new(Some(Box::new(action) as Action));
        Arc::new(Meanwhile { disk: disk.clone(), behind_list: Mutex::new(None), behind_publish })
    }

    /// Whether it was done.
    pub(crate) fn is_done(&self) -> bool {
        self.behind_list.lock().is_none() && self.behind_publish.lock().is_none()
    }
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Disk for Meanwhile {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Arc<dyn File>> {
        self.disk.open(path, options)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        let listed = self.disk.list(folder);
        let due = self.behind_list.lock().take_if(|(wanted, _)| wanted == folder);
        if let Some((_, action)) = due {
            action();
        }
        listed
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        self.disk.create_dir(folder)
    }

    fn remove_dir(&self, folder: &Path) -> Result<()> {
        self.disk.remove_dir(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.disk.sync_dir(folder)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
        self.disk.lock(path)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.disk.resolve(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<Option<u64>> {
        self.disk.free_bytes(folder)
    }

    fn publish(&self, path: &Path, bytes: &[u8], mode: ModeRequest) -> Result<()> {
        self.disk.publish(path, bytes, mode)?;
        let due = self.behind_publish.lock().take();
        match due {
            None => Ok(()),
            Some(action) => {
                action();
                Err(Error::new(ErrorKind::Device, "publish", path, "a planned failure"))
            }
        }
    }

    fn queue(&self, depth: usize) -> Result<Arc<dyn Queue>> {
        self.disk.queue(depth)
    }

    fn stats(&self) -> &Stats {
        self.disk.stats()
    }
}
