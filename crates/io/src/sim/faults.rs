//! Which faults the device shows, and a record of those it showed.

use gannet_base::sim::Generator;
use std::path::{Path, PathBuf};

/// How often a fault strikes, among the operations it can strike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Chance {
    /// Not at all.
    #[default]
    Never,
    /// Once in so many operations on average; 1 is always.
    OneIn(u64),
    /// Exactly at these operations, counted from [`super::SimDisk::set_faults`]; the first is 1.
    At(Vec<u64>),
}

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A read fails with [`crate::ErrorKind::Device`].
    ReadError,
    /// A write fails with [`crate::ErrorKind::Device`]; any of its sectors may have been stored.
    WriteError,
    /// A sync of a file or folder fails with [`crate::ErrorKind::Device`].
    SyncError,
    /// A change of a file's allocation or size fails with [`crate::ErrorKind::Device`], and nothing was changed.
    SizeError,
    /// A file is not created, renamed or removed, with [`crate::ErrorKind::Device`].
    NameError,
    /// An allocation, or a write that needs new blocks, fails with [`crate::ErrorKind::NoSpace`].
    NoSpace,
    /// A file is not opened, or a folder not synced, with [`crate::ErrorKind::TooManyOpen`].
    TooManyOpen,
    /// A read takes two transfers; a concurrent write may come in between.
    ShortRead,
    /// A request takes [`super::Settings::spike_latency_us`].
    LatencySpike,
    /// A write is stored at another aligned offset of the same file, and acknowledged.
    MisdirectedWrite,
    /// A write is acknowledged and never stored, whatever is synced later.
    LostWrite,
}

/// The plan: how often each [`Fault`] strikes. All off by default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// [`Fault::ReadError`].
    pub read_error: Chance,
    /// [`Fault::WriteError`].
    pub write_error: Chance,
    /// [`Fault::SyncError`].
    pub sync_error: Chance,
    /// [`Fault::SizeError`].
    pub size_error: Chance,
    /// [`Fault::NameError`].
    pub name_error: Chance,
    /// [`Fault::NoSpace`].
    pub no_space: Chance,
    /// [`Fault::TooManyOpen`].
    pub too_many_open: Chance,
    /// [`Fault::ShortRead`].
    pub short_read: Chance,
    /// [`Fault::LatencySpike`].
    pub latency_spike: Chance,
    /// [`Fault::MisdirectedWrite`].
    pub misdirected_write: Chance,
    /// [`Fault::LostWrite`].
    pub lost_write: Chance,
    /// A failed sync is told of once, as Linux does: those of the same handle that are on their way then succeed, and have made
    /// nothing durable. [`crate::File`] promises otherwise; this is for callers who do not rest on it alone.
    pub sync_error_told_once: bool,
    /// Only operations on paths that end with this text are struck and counted.
    pub only: Option<String>,
    /// A read that would show what a lie has left in a file whose path ends with this text cuts the power instead: for a caller
    /// who has no way to tell, and is not to be judged by what comes of it.
    pub power_off_at_lie: Option<String>,
}

/// A fault that struck.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injection {
    /// Which one.
    pub fault: Fault,
    /// The file or folder.
    pub path: PathBuf,
    /// First byte the caller asked for; 0 where the operation has none.
    pub offset: u64,
    /// Bytes the caller asked for; 0 where the operation has none.
    pub len: u64,
}

/// The plan in force and what it did so far.
#[derive(Debug, Default)]
pub(super) struct Plan {
    faults: Faults,
    seen: [u64; 11],
    pub(super) injected: Vec<Injection>,
}

impl Plan {
    pub(super) fn new(faults: Faults) -> Self {
        Plan { faults, ..Self::default() }
    }

    pub(super) fn ends_at_lie(&self, path: &Path) -> bool {
        let only = self.faults.power_off_at_lie.as_ref();
        only.is_some_and(|only| path.to_string_lossy().ends_with(only.as_str()))
    }

    pub(super) fn tells_once(&self) -> bool {
        self.faults.sync_error_told_once
    }

    /// Counts an operation that `fault` can strike and says whether it does.
    pub(super) fn strikes(
        &mut self,
        fault: Fault,
        path: &Path,
        (offset, len): (u64, u64),
        random: &mut Generator,
    ) -> bool {
        let chance = match fault {
            Fault::ReadError => &self.faults.read_error,
            Fault::WriteError => &self.faults.write_error,
            Fault::SyncError => &self.faults.sync_error,
            Fault::SizeError => &self.faults.size_error,
            Fault::NameError => &self.faults.name_error,
            Fault::NoSpace => &self.faults.no_space,
            Fault::TooManyOpen => &self.faults.too_many_open,
            Fault::ShortRead => &self.faults.short_read,
            Fault::LatencySpike => &self.faults.latency_spike,
            Fault::MisdirectedWrite => &self.faults.misdirected_write,
            Fault::LostWrite => &self.faults.lost_write,
        };
        if let Some(only) = &self.faults.only
            && !path.to_string_lossy().ends_with(only.as_str())
        {
            return false;
        }
        self.seen[fault as usize] += 1;
        let strikes = match chance {
            Chance::Never => false,
            Chance::OneIn(n) => random.one_in((*n).max(1)),
            Chance::At(schedule) => schedule.contains(&self.seen[fault as usize]),
        };
        if strikes {
            self.injected.push(Injection { fault, path: path.to_owned(), offset, len });
        }
        strikes
    }
}
