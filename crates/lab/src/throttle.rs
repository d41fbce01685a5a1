//! A limit of requests to the device, the same for everybody: a slower disk than there is.
//!
//! It is the block-I/O controller of cgroup v1, set for the root group: what the kernel's flusher writes for a program is charged there, so a limit of any other
//! group would hold those who write by themselves and let go those who leave it to the kernel. Version 2 has no limits for its root.

use crate::device::number_of;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions};
use std::path::Path;

/// The device without a limit.
pub const AS_IS: &str = "as-is";

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

/// The files that limits are written to.
fn files() -> [String; 2] {
    ["read", "write"].map(|kind| format!("/sys/fs/cgroup/blkio/blkio.throttle.{kind}_iops_device"))
}

fn complaint(file: &str) -> String {
    format!("cannot limit the device: {file} is not to be written (that takes root, and cgroup v1)")
}

fn set(device: &str, iops: u64) -> Result<()> {
    for file in files() {
        fs::write(&file, format!("{device} {iops}")).with_context(|| complaint(&file))?;
    }
    Ok(())
}

/// Whether the disk that a folder is on could be limited; nothing is changed.
///
/// # Errors
/// Why not.
pub fn possible(folder: &Path) -> Result<()> {
    for file in files() {
        OpenOptions::new().write(true).open(&file).with_context(|| complaint(&file))?;
    }
    let device = number_of(folder)?;
    if !Path::new("/sys/dev/block").join(&device).exists() {
        bail!("cannot limit the device: {folder:?} is on none of its own (its number is {device})");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_limit_and_no_folder_no_device() {
        assert_eq!((profile("cloud"), profile("raid10"), profile(AS_IS)), (Some(10_000), Some(1_000), None));
        assert!(possible(Path::new("/nowhere/at/all")).is_err());
    }
}
