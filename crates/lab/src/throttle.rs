//! A limit of requests to the device, the same for everybody: a slower disk than there is.
//!
//! It is the block-I/O controller of cgroup v1, set for the root group: what the kernel's flusher writes for a program is charged there, so a limit of any other
//! group would hold those who write by themselves and let go those who leave it to the kernel. Version 2 has no limits for its root.

use crate::device::number_of;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// What a profile of a device allows: reads, and writes, a second.
pub fn profile(name: &str) -> Option<u64> {
    match name {
        // Four disks of a server in pairs, with a controller that caches writes.
        "raid10" => Some(1_000),
        // What volumes of moderate size in a cloud allow.
        "cloud" => Some(10_000),
        _ => None,
    }
}

/// The limit, as long as this lives.
#[derive(Debug)]
pub struct Throttle {
    device: String,
}

fn set(device: &str, iops: u64) -> Result<()> {
    for kind in ["read", "write"] {
        let file = format!("/sys/fs/cgroup/blkio/blkio.throttle.{kind}_iops_device");
        fs::write(&file, format!("{device} {iops}")).with_context(|| {
            format!("cannot limit the device: {file} is not to be written (that takes root, and cgroup v1)")
        })?;
    }
    Ok(())
}

impl Throttle {
    /// Limits the disk that a folder is on, until this is dropped. A lab that is killed leaves the limit in force.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn begin(folder: &Path, iops: u64) -> Result<Self> {
        let throttle = Throttle { device: number_of(folder)? };
        set(&throttle.device, iops)?;
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // It was set a moment ago; where it cannot be lifted any more, nobody can be told but people.
        if let Err(error) = set(&self.device, 0) {
            eprintln!("gannet-lab: {error:#}");
        }
    }
}
