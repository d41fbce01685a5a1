//! A limit of requests to the device, the same for everybody: a slower disk than there is.
//!
//! It is the block-I/O controller of cgroup v1, set for the root group: what the kernel's flusher writes for a program is charged there, so a limit of any other
//! group would hold those who write by themselves and let go those who leave it to the kernel. Version 2 has no limits for its root.
//!
//! A limit stays in force when the process that has set it is gone. So it is lifted by the first of these that comes to it:
//!
//! 1. the step that has set it, when it has measured ([`Throttle`]), or when it ends as its lab is gone ([`lift_own`]);
//! 2. the lab, whenever such a step has ended, however that was ([`Noted`]);
//! 3. the lab that goes on with the run: the run's folder has a note of the device as long as there may be a limit of ours ([`lift_noted`]).
//!
//! Nobody measures on a device that somebody else has limited ([`must_be_free`]).

use crate::device::number_of;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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

/// The disk that this process has limited, if it has.
static OWN: Mutex<Option<String>> = Mutex::new(None);

/// The file in a run's folder with the device that a step of it may have limited.
const NOTE: &str = "limited";

/// What can be limited.
const KINDS: [&str; 2] = ["read", "write"];

/// The file that a limit is written to.
fn file(kind: &str) -> String {
    format!("/sys/fs/cgroup/blkio/blkio.throttle.{kind}_iops_device")
}

/// The files that limits are written to.
fn files() -> [String; 2] {
    KINDS.map(file)
}

/// The limit of a device in such a file.
fn limit_in(text: &str, device: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Limits that are in force for the disk that a folder is on, whoever has set them: what they are of, and how many a second.
///
/// # Errors
/// The folder's disk cannot be seen.
pub fn found(folder: &Path) -> Result<Vec<(&'static str, u64)>> {
    let device = number_of(folder)?;
    // Where there is no such file, nothing can be limited.
    let limit = |kind| limit_in(&fs::read_to_string(file(kind)).ok()?, &device);
    Ok(KINDS.into_iter().filter_map(|kind| Some((kind, limit(kind)?))).collect())
}

/// Fails where the disk that a folder is on is limited.
///
/// # Errors
/// That, and how to lift it.
pub fn must_be_free(folder: &Path) -> Result<()> {
    refuse(&found(folder)?, &number_of(folder)?)
}

/// Fails where these limits are in force for this device.
fn refuse(found: &[(&str, u64)], device: &str) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    let limits: Vec<String> = found.iter().map(|(kind, limit)| format!("{limit} {kind}s a second")).collect();
    let lift: Vec<String> =
        found.iter().map(|(kind, _)| format!("echo {device} 0 > {}", file(kind))).collect();
    bail!(
        "the disk ({device}) is limited to {}, and what is measured would be that; if a run that was killed has left it, gannet lab run --resume of it lifts it; by hand, as root: {}",
        limits.join(" and "),
        lift.join("; ")
    )
}

/// Lifts what this process has set, for one that ends without dropping anything.
pub fn lift_own() {
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(device) = own {
        lift(&device);
    }
}

/// Lifts a limit; where it cannot be lifted any more, nobody can be told but people.
fn lift(device: &str) {
    if let Err(error) = set(device, 0) {
        eprintln!("gannet-lab: {error:#}");
    }
}

/// A note in a run's folder that the disk may be limited by a step of it. When it goes, so does the limit.
#[derive(Debug)]
pub struct Noted {
    note: PathBuf,
    device: String,
}

impl Noted {
    /// Takes the note.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn take(run: &Path) -> Result<Self> {
        let noted = Noted { note: run.join(NOTE), device: number_of(run)? };
        let written =
            fs::write(&noted.note, &noted.device).and_then(|()| fs::File::open(&noted.note)?.sync_all());
        written.with_context(|| format!("cannot write {:?}", noted.note))?;
        Ok(noted)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        // The step may never have come as far as that.
        if files()
            .iter()
            .any(|file| fs::read_to_string(file).is_ok_and(|text| limit_in(&text, &self.device).is_some()))
        {
            lift(&self.device);
        }
        // Where it stays, the limit is lifted once more.
        let _ = fs::remove_file(&self.note);
    }
}

/// Lifts the limit that a killed lab has left in force, as the run's folder says.
pub fn lift_noted(run: &Path) {
    let note = run.join(NOTE);
    if let Ok(device) = fs::read_to_string(&note) {
        eprintln!("lifting the limit of the disk {device}, if a lab that was killed has left one");
        drop(Noted { note, device });
    }
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

/// The limit, as long as this lives.
#[derive(Debug)]
pub struct Throttle {
    device: String,
}

impl Throttle {
    /// Limits the disk that a folder is on, until this is dropped. Where the process is killed, its lab lifts the limit.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn begin(folder: &Path, iops: u64) -> Result<Self> {
        let throttle = Throttle { device: number_of(folder)? };
        *OWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(throttle.device.clone());
        set(&throttle.device, iops)?;
        Ok(throttle)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        lift_own();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_device_is_found_and_refused_with_the_way_out() {
        let text = "8:16 1000\n259:0 10000\n";
        assert_eq!((limit_in(text, "259:0"), limit_in(text, "8:1")), (Some(10_000), None));
        assert_eq!(limit_in("", "8:0"), None);
        refuse(&[], "8:0").unwrap();
        let error = refuse(&[("write", 1000)], "8:0").unwrap_err().to_string();
        assert!(
            error.contains("1000 writes a second")
                && error.contains("echo 8:0 0 > /sys/fs/cgroup/blkio/blkio.throttle.write_iops_device"),
            "{error}"
        );
    }

    #[test]
    fn a_note_is_there_until_the_limit_is_lifted() {
        let folder = tempfile::tempdir().unwrap();
        let noted = Noted::take(folder.path()).unwrap();
        let note = folder.path().join(NOTE);
        assert_eq!(fs::read_to_string(&note).unwrap(), number_of(folder.path()).unwrap());
        // As if the lab had been killed.
        std::mem::forget(noted);
        lift_noted(folder.path());
        assert!(!note.exists());
        lift_noted(folder.path());
    }

    #[test]
    fn a_profile_is_a_limit_and_no_folder_no_device() {
        assert_eq!((profile("cloud"), profile("raid10"), profile(AS_IS)), (Some(10_000), Some(1_000), None));
        assert!(possible(Path::new("/nowhere/at/all")).is_err());
    }
}
