//! Compressing the content of frames.

use super::format::HEAD;
use super::log::PIECE;
use crate::engine::Engine;
use crate::work::WorkMemory;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::{self, CCtx, CParameter};

/// How frames are compressed, and the memory that each thread takes for it.
pub(super) struct Compression {
    level: Option<i32>,
    /// Bytes that a thread takes which compresses frames of pages.
    each: u64,
    /// Threads that a part of the memory suffices for, at most; one at least.
    workers: usize,
    /// What the log's thread takes.
    _log: WorkMemory,
}

impl Compression {
    /// For frames of pages of this length, by so many threads at most, and for pieces of the log.
    ///
    /// # Errors
    /// As [`Compression::memory`].
    pub(super) fn within(engine: &Engine, level: Option<i32>, frame: usize, workers: usize) -> Result<Self> {
        let Some(number) = level else {
            return Ok(Compression { level, each: 0, workers, _log: engine.memory(Purpose::Work, 0)? });
        };
        let (each, log) = (memory_of(number, frame)?, memory_of(number, PIECE as usize)?);
        // The reserve is one more.
        let affordable = (engine.work_limit() / 2).saturating_sub(log) / each;
        let workers = affordable.saturating_sub(1).clamp(1, workers as u64) as usize;
        Ok(Compression { level, each, workers, _log: engine.memory(Purpose::Work, log)? })
    }

    /// What one more thread takes.
    ///
    /// # Errors
    /// [`Error::Memory`]: it is not to be had.
    pub(super) fn memory(&self, engine: &Engine) -> Result<WorkMemory> {
        engine.memory(Purpose::Work, self.each)
    }

    /// Whether frames are compressed at all.
    pub(super) fn is_wanted(&self) -> bool {
        self.level.is_some()
    }

    /// How many threads there may be, but for the reserve.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    pub(super) fn compressor(&self) -> Result<Compressor> {
        Compressor::new(self.level)
    }
}

/// Bytes that a compressor takes for frames of this length: it does so when it begins the first one.
fn memory_of(level: i32, len: usize) -> Result<u64> {
    let told = |code| cannot_compress(&std::io::Error::other(zstd_safe::get_error_name(code)));
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(level)).map_err(told)?;
    context.set_pledged_src_size(Some(len as u64)).map_err(told)?;
    let (mut out, byte) = ([0; 64], [0]);
    let mut out = OutBuffer::around(&mut out[..]);
    context.compress_stream(&mut out, &mut InBuffer::around(&byte[..])).map_err(told)?;
    Ok((context.sizeof() + len) as u64)
}

/// Compresses the content of frames, where that is asked for.
pub(super) struct Compressor {
    zstd: Option<Encoder<'static>>,
    out: Vec<u8>,
}

/// Between so many bytes it is looked whether anybody still wants them compressed: at the highest levels they take a twentieth of a second, and
/// several times that where others have the processors.
const COMPRESSED_AT_ONCE: usize = 64 << 10;

impl Compressor {
    fn new(level: Option<i32>) -> Result<Self> {
        let zstd = level.map(Encoder::new).transpose().map_err(|error| cannot_compress(&error))?;
        Ok(Compressor { zstd, out: Vec::new() })
    }

    /// Compresses the first `len` bytes in place; gives the new length, or `len` where nothing is saved. Ends with the error of `look`.
    pub(super) fn compress(
        &mut self,
        bytes: &mut [u8],
        len: usize,
        look: &dyn Fn() -> Result<()>,
    ) -> Result<usize> {
        let Some(zstd) = &mut self.zstd else { return Ok(len) };
        zstd.reinit().map_err(|error| cannot_compress(&error))?;
        zstd.set_pledged_src_size(Some(len as u64)).map_err(|error| cannot_compress(&error))?;
        // What does not get shorter by a block at least is stored as it is.
        self.out.resize(len.saturating_sub(HEAD).max(1), 0);
        let mut out = OutBuffer::around(&mut self.out[..]);
        for piece in bytes[..len].chunks(COMPRESSED_AT_ONCE) {
            look()?;
            let mut piece = InBuffer::around(piece);
            while piece.pos() < piece.src.len() {
                zstd.run(&mut piece, &mut out).map_err(|error| cannot_compress(&error))?;
                if out.pos() == out.capacity() {
                    return Ok(len);
                }
            }
        }
        if zstd.finish(&mut out, true).map_err(|error| cannot_compress(&error))? > 0 {
            return Ok(len);
        }
        let stored = out.pos();
        bytes[..stored].copy_from_slice(&self.out[..stored]);
        Ok(stored)
    }
}

fn cannot_compress(error: &std::io::Error) -> Error {
    Error::Invalid(format!("cannot compress: {error}"))
}
