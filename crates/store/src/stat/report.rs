//! What statistics say. All of it can be written as JSON, and read back.

use serde::{Deserialize, Serialize};

/// Parts of the range of fill that pages are counted by: 0 to 19 %, and so on.
pub const FILL_STEPS: usize = 5;

/// How statistics are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatMode {
    /// From space maps and a sample of leaves, at once.
    #[default]
    Instant,
    /// From every page, in one paced pass over the file.
    Records,
}

/// A figure, and how far from it the truth may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// Of 100 such figures 95 are off by at most this; 0 where it is exact.
    pub error: f64,
}

impl Figure {
    /// A figure that was counted.
    pub fn exact(value: u64) -> Self {
        Figure { value: value as f64, error: 0.0 }
    }

    /// Whether it was counted, not estimated.
    pub fn is_exact(&self) -> bool {
        self.error == 0.0
    }

    /// Whether the truth may be this.
    pub fn covers(&self, truth: f64) -> bool {
        (self.value - truth).abs() <= self.error + 1e-6 * truth.abs().max(1.0)
    }
}

/// Statistics of a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatReport {
    /// How they were made.
    pub mode: StatMode,
    /// The file's header and what is in force.
    pub header: HeaderStat,
    /// Marks of transactions, and garbage.
    pub transactions: TransactionStat,
    /// Where the file's pages are.
    pub space: SpaceStat,
    /// Trees, by number; the store's own have no name.
    pub trees: Vec<TreeStat>,
    /// Pages that could not be read, at most 100 of them.
    pub unreadable: Vec<UnreadablePage>,
    /// How many they are.
    pub unreadable_pages: u64,
    /// Not all of the list of trees could be read.
    pub trees_missing: bool,
    /// Something was changed, or swept, meanwhile: what was counted is of different moments. Otherwise it is exact.
    pub changed_meanwhile: bool,
    /// Bytes that were read from the device.
    pub bytes_read: u64,
    /// How long it took.
    pub seconds: f64,
}

/// The file's header, and what is in force of what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderStat {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Version of the file format.
    pub format_version: u32,
    /// The number that names the database, in hexadecimal.
    pub database_id: String,
    /// How often the header was written.
    pub header_sequence: u64,
    /// Lives of the log: it grows with each opening.
    pub incarnation: u32,
    /// Bytes of the data file.
    pub file_bytes: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Whether it was closed before it was opened this time; otherwise it had crashed.
    pub closed_cleanly: bool,
    /// Where the restart after a crash stands.
    pub restart: String,
    /// Log position from which a restart would redo.
    pub redo_from: u64,
    /// Log position of the last record.
    pub log_end: u64,
    /// Bytes of log that a restart would go through.
    pub restart_log_bytes: u64,
    /// Bytes of it that are allowed.
    pub wal_limit_bytes: u64,
    /// The I/O mode that was asked for.
    pub io_requested: String,
    /// The one in force.
    pub io_effective: String,
    /// Why.
    pub io_reason: String,
    /// The memory budget of the process, which all of its databases share.
    #[serde(default)]
    pub memory_bytes: u64,
    /// What is taken of it.
    #[serde(default)]
    pub memory_used_bytes: u64,
    /// How long a transaction that does not say may hold garbage back, in milliseconds; `None`: for ever.
    #[serde(default)]
    pub snapshot_limit_ms: Option<u64>,
    /// Whether long sweeps may begin by themselves now.
    #[serde(default)]
    pub long_sweeps: bool,
    /// The folder in which the log is archived; `None` where it is not.
    #[serde(default)]
    pub archive: Option<String>,
    /// What the archive is doing.
    #[serde(default)]
    pub archive_state: Option<String>,
    /// Bytes of durable log that are not archived.
    #[serde(default)]
    pub archive_behind_bytes: u64,
}

/// Marks of transactions, and what they hold back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactionStat {
    /// The horizon: whoever has a lower number committed, and everybody sees it. Garbage that is newer stays.
    pub oldest_transaction: u64,
    /// The oldest transaction that has written and not ended; the next one where there is none.
    pub oldest_active: u64,
    /// Below this number the oldest snapshot sees every transaction; the next one where there is none.
    pub oldest_snapshot: u64,
    /// The number that the next writing transaction gets.
    pub next_transaction: u64,
    /// Snapshots held.
    pub snapshots: u64,
    /// The oldest of them.
    pub oldest_holder: Option<SnapshotStat>,
    /// Transactions that have written and not ended, oldest first, at most 100.
    pub writers: Vec<WriterStat>,
    /// How many they are.
    pub writers_count: u64,
    /// What waits to be swept.
    pub garbage: GarbageStat,
}

/// A snapshot somebody holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotStat {
    /// The number of the transaction's handle, as [`crate::Canceller::number`] gives it.
    pub number: u64,
    /// Below this number it sees every transaction that committed.
    pub xmin: u64,
    /// When it was taken, in microseconds since 1970-01-01 UTC.
    pub since_unix_us: u64,
    /// How long ago that is.
    pub age_seconds: f64,
}

/// A transaction that has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriterStat {
    /// Its number.
    pub id: u64,
    /// When it got its number, in microseconds since 1970-01-01 UTC.
    pub since_unix_us: u64,
    /// How long ago that is.
    pub age_seconds: f64,
    /// The transactions that it waits for.
    pub waits_for: Vec<u64>,
}

/// Undo segments, each of 16 pages. Those that running transactions write to are no garbage yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GarbageStat {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments that sweep may free now.
    pub free_segments: u64,
    /// Segments that snapshots or open transactions hold back.
    pub held_segments: u64,
    /// Of those, segments that nobody but the holder of the oldest snapshot holds back.
    pub held_by_oldest_snapshot: u64,
    /// Of those, segments that an open transaction holds back, whatever snapshots do.
    pub held_by_writers: u64,
    /// Segments swept since the database was opened.
    pub swept_segments: u64,
}

/// Where the file's pages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpaceStat {
    /// Pages of the file.
    pub file_pages: u64,
    /// Of these, pages of nobody, or not used by those who own their extent.
    pub free_pages: Figure,
    /// Header and space maps.
    pub system_pages: Figure,
    /// Pages of undo segments.
    pub undo_pages: Figure,
    /// Pages of trees that are being created, or are dropped and not swept yet.
    pub passing_pages: Figure,
}

/// A page that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadablePage {
    /// The page.
    pub page: u64,
    /// The tree it belongs to.
    pub tree: u32,
    /// Why.
    pub why: String,
}

/// A tree. Figures of its contents are missing where nothing of it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeStat {
    /// Its number.
    pub tree: u32,
    /// Its name; the store's own trees have none.
    pub name: Option<String>,
    /// Pages in use, whatever is on them.
    pub pages: Figure,
    /// The rest, where anything of it was looked at.
    pub contents: Option<TreeContents>,
    /// Pages of it that could not be read.
    pub unreadable_pages: u64,
}

/// What a tree contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeContents {
    /// Leaves that were looked at.
    pub leaves_read: u64,
    /// Levels, leaves included.
    pub depth: u8,
    /// Leaf pages.
    pub leaf_pages: Figure,
    /// Pages above the leaves.
    pub inner_pages: Figure,
    /// Pages of long values, their lists included, and those of values that wait to be swept.
    pub long_value_pages: Figure,
    /// Pages in use that nobody has written to yet; only counted by [`StatMode::Records`].
    pub unwritten_pages: Option<Figure>,
    /// Entries of leaves: rows, dead ones, and those of transactions that have not committed.
    pub entries: Figure,
    /// Rows that a snapshot taken now would see.
    pub rows: Figure,
    /// Entries of deleted rows that wait to be swept.
    pub dead_entries: Figure,
    /// Entries whose newest version is of a transaction that has not committed.
    pub uncommitted_entries: Figure,
    /// Entries with a version that not everybody sees yet, those included.
    pub unsettled_entries: Figure,
    /// Earlier versions of rows that are kept in undo; only counted by [`StatMode::Records`].
    pub old_versions: Option<Figure>,
    /// Bytes that these take there.
    pub old_version_bytes: Option<Figure>,
    /// Bytes of the keys of rows, and of entries that may become rows; not of rows that somebody is deleting.
    pub key_bytes: Figure,
    /// Bytes of the values of the same, without long ones.
    pub value_bytes: Figure,
    /// Bytes on leaves that dead entries take.
    pub dead_bytes: Figure,
    /// Values with pages of their own.
    pub long_values: Figure,
    /// Their bytes.
    pub long_value_bytes: Figure,
    /// Key and value of one of the same on average, long values included, in bytes. Where there are rows, but none of the same, nothing
    /// is known of it, and its error says so.
    pub average_row_bytes: Figure,
    /// How full leaves are on average, in percent.
    pub fill_percent: Figure,
    /// Leaves by how full they are: below 20 %, below 40 %, and so on.
    pub fill_leaves: [Figure; FILL_STEPS],
    /// Bytes of leaves that are free for further entries.
    pub free_bytes: Figure,
    /// The same as a part of all bytes of leaves, in percent.
    pub free_percent: Figure,
    /// Entries whose leading part is that of another entry; `None` where keys have no such part.
    pub duplicates: Option<DuplicateStat>,
    /// How leaves lie in the file.
    pub order: OrderStat,
}

impl TreeContents {
    /// Nobody has changed anything that not everybody sees.
    pub(super) fn settle(&mut self) {
        self.unsettled_entries = Figure::exact(0);
        self.uncommitted_entries = Figure::exact(0);
    }
}

/// Entries of an index with equal columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DuplicateStat {
    /// Entries behind the first one of their kind.
    pub total: Figure,
    /// The most entries of one kind.
    pub longest: u64,
    /// Whether that is the most there are; otherwise there may be more.
    pub longest_is_exact: bool,
}

/// How leaves lie in the file, as far as known from their parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrderStat {
    /// Steps from a leaf to the next one that were looked at.
    pub steps: u64,
    /// Of 100 steps so many lead to an extent that is neither the same nor the one behind.
    pub scattered_percent: Figure,
    /// Of 100 steps so many lead back in the file.
    pub backward_percent: Figure,
}
