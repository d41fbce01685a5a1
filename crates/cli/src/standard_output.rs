//! Standard output for what is long, such as a dump: Ctrl-C ends the waiting for whoever reads it, however long he takes nothing.

use crate::{interrupt, output};
use gannet_base::inherited;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// So many bytes a pipe takes at once, without waiting for its reader, where it is ready for any: `PIPE_BUF`, or the least that it may be.
const PIECE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
/// How often it is looked for Ctrl-C while nothing is taken.
const LISTEN_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// See the module's head. Past the buffer of [`io::stdout`]: nothing else may be written there meanwhile.
pub(crate) struct StandardOutput {
    file: File,
    /// A file takes whatever comes.
    waits: bool,
}

impl StandardOutput {
    pub(crate) fn new() -> io::Result<Self> {
        Self::find().map_err(output::cannot_write)
    }

    fn find() -> io::Result<Self> {
        if inherited::output_was_closed() {
            return Err(io::Error::other("it is closed"));
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let waits = !file.metadata()?.is_file();
        Ok(StandardOutput { file, waits })
    }

    /// Waits until it takes something.
    fn await_reader(&self) -> io::Result<()> {
        loop {
            interrupt::check().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&LISTEN_EVERY)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Where nobody reads any more, the write says so.
                other => return other.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.waits {
            return self.file.write(bytes).map_err(output::cannot_write);
        }
        loop {
            self.await_reader()?;
            match self.file.write(&bytes[..bytes.len().min(PIECE)]) {
                // Who shares it may have set it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written.map_err(output::cannot_write),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(output::cannot_write)
    }
}
