//! A small file system of its own, which can be filled, and can turn read-only, under a server at work.
//!
//! That takes root and a kernel that mounts a file as a volume. Where that is not so, the tests say so and end.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a volume: the database, its log and some room.
const SIZE: u64 = 96 << 20;
/// Bytes that are taken from the beginning, to be given back: what [`Volume::free`] gives at least.
const BALLAST: usize = 24 << 20;
/// Pieces in which it is filled; the smaller ones find the last block.
const PIECES: [usize; 3] = [1 << 20, 64 << 10, 4 << 10];

/// A mounted file system. It is unmounted and removed with this.
pub(crate) struct Volume {
    folder: tempfile::TempDir,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Volume {
    /// A new one; why there can be none.
    pub(crate) fn new() -> Result<Self, String> {
        let volume = Volume { folder: tempfile::tempdir().map_err(|error| error.to_string())? };
        std::fs::create_dir(volume.path()).map_err(|error| error.to_string())?;
        File::create(volume.image())
            .and_then(|file| file.set_len(SIZE))
            .map_err(|error| error.to_string())?;
        // No blocks for root alone: the server here is root's.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", text(&volume.image())])?;
        volume.mount()?;
        std::fs::write(volume.ballast(), vec![0x5A; BALLAST]).map_err(|error| error.to_string())?;
        Ok(volume)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop", text(&self.image()), text(&self.path())])
    }

    /// Fills it, to the last block.
    pub(crate) fn fill(&self) -> Result<(), String> {
        let write = || -> io::Result<()> {
            let mut ballast = File::options().create(true).append(true).open(self.ballast())?;
            for piece in PIECES {
                while ballast.write_all(&vec![0x5A; piece]).is_ok() {}
            }
            // What is only promised room so far takes it now.
            ballast.sync_all()
        };
        write().map_err(|error| error.to_string())
    }

    /// Gives back everything but what the server has.
    pub(crate) fn free(&self) -> Result<(), String> {
        std::fs::remove_file(self.ballast()).map_err(|error| error.to_string())
    }

    /// Makes it read-only, with files open for writing, as the kernel does after an error of the device.
    pub(crate) fn abort(&self) -> Result<(), String> {
        run("mount", &["-o", "remount,abort", text(&self.path())])
    }

    /// Mounts it anew, to be written to. Nobody may have a file open.
    pub(crate) fn repair(&self) -> Result<(), String> {
        run("umount", &[text(&self.path())])?;
        self.mount()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Lazily, as a failed test may have left a file open.
        let _ = run("umount", &["-l", text(&self.path())]);
    }
}
