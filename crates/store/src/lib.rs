//! Gannet's storage engine, usable alone: an embedded, ordered, transactional key-value store for data larger than memory.
//!
//! An [`Engine`] holds what all databases of a process share, above all the memory budget. It creates and opens a
//! [`Database`]; a [`Transaction`] reads and changes its trees, each an ordered map of byte strings; a [`Cursor`] goes
//! through a range of keys (the example `kv` shows all of that). For layers above, a [`View`] is what one statement sees,
//! with [`Scan`]s that do not meet what the statement changes itself. [`log`], [`node`] and [`page`] are public for tools
//! and tests that look below that surface; they promise no stability.

mod archive;
mod backup;
mod batch;
mod block;
mod catalog;
mod change;
mod changes;
mod check;
mod compact;
mod core;
mod cursor;
mod database;
mod engine;
mod entry;
mod error;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hot;
mod jobs;
pub mod log;
mod meta;
mod mtr;
#[cfg(feature = "mutations")]
pub mod mutation;
#[cfg(not(feature = "mutations"))]
#[expect(unreachable_pub, reason = "public with the feature `mutations` only")]
mod mutation;
pub mod node;
mod outlook;
mod overflow;
pub mod page;
mod page_list;
mod page_set;
mod pass;
mod pool;
mod recovery;
mod restart;
mod ring;
mod sample;
mod scan;
mod shared;
mod space;
mod stat;
mod sweep;
mod temp;
mod transaction;
mod tree;
mod turns;
mod txn;
mod undo;
mod versions;
mod view;
mod work;
mod writeback;

pub use archive::{ArchiveGap, ArchiveReport, ArchiveState, ArchiveVerifyReport, RecoveryTarget};
pub use backup::{
    Ask, BackupFile, BackupOptions, BackupPlace, BackupPlan, Begin, Destination, Lineage, Manifest, OpenTime,
    Parent, Reception, RestoreReport, Since, Source, Taken, VerifyReport,
};
pub use check::{CheckReport, Finding, Stake};
pub use compact::{CompactReport, Held};
pub use cursor::Cursor;
pub use database::{
    Database, DatabaseStats, RestartPhase, RestartReport, RowLockReport, SnapshotReport, TransactionReport,
    WorkReport,
};
pub use engine::{CreateOptions, Engine, EngineOptions, OpenOptions};
pub use error::{Error, Result};
pub use jobs::{
    ClassBytes, Ending, Job, JobKind, JobOrder, JobReport, JobState, Jobs, Pace, Permit, Reserve, Tell, Unit,
    Watch,
};
pub use outlook::{Alarm, Gauge, Outlook, SPACE_ADVICE, Severity, little_space};
pub use overflow::MAX_VALUE;
pub use pool::reads::{ThreadReads, add_thread_reads, thread_reads};
pub use sample::Sample;
pub use scan::{Scan, Visitor};
pub use stat::{
    DuplicateStat, FILL_STEPS, Figure, GarbageStat, HeaderStat, Leading, OrderStat, SnapshotStat, SpaceStat,
    StatMode, StatOptions, StatReport, TransactionStat, TreeContents, TreeStat, UnreadablePage, WriterStat,
};
pub use sweep::report::{
    Cleaned, Forecast, Garbage, GarbageHolder, HolderKind, SweepReport, TreeCleaned, TreeForecast,
};
pub use temp::{TempFile, TempReader, TempStats, TempWriter};
pub use transaction::{
    BulkLoader, Canceller, Durability, Isolation, LockMode, Outcome, Savepoint, Transaction,
    TransactionOptions, Tree,
};
pub use tree::{Division, TreeSize};
pub use turns::Turn;
pub use view::{LongValues, View};
pub use work::WorkMemory;

/// Files that an open database has to have open: its own and its lock's, those of its log that are written to or about to be, the archive's, and what
/// jobs read and write. Temporary files come on top, and those of its log that are read, of which it keeps some open as long as there is room.
pub const OPEN_FILES: usize = 24;
