//! What is said of garbage and its removal. All of it can be written as JSON, and read back.

use crate::stat::Figure;
use serde::{Deserialize, Serialize};

/// Garbage as it was found, what became of it, and what was left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// It was only looked.
    pub shown_only: bool,
    /// What there was.
    pub before: Garbage,
    /// What a sweep is to cost; only where it was only looked.
    pub forecast: Option<Forecast>,
    /// What was done.
    pub cleaned: Cleaned,
    /// What there is now.
    pub after: Garbage,
    /// How long it took.
    pub seconds: f64,
}

/// Garbage at one time: undo segments that no running transaction writes to. They are the list of all that is garbage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Garbage {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments that can go now, with all that they list.
    pub free_segments: u64,
    /// Segments that somebody holds back.
    pub held_segments: u64,
    /// Whoever has a lower number committed, and everybody sees it. Garbage that is newer stays.
    pub horizon: u64,
    /// The number that the next writing transaction gets.
    pub next_transaction: u64,
    /// Who holds something back, most first, at most 100.
    pub holders: Vec<GarbageHolder>,
}

impl Garbage {
    /// Bytes that can go now.
    pub fn free_bytes(&self) -> u64 {
        self.free_segments * self.segment_bytes
    }

    /// Bytes that somebody holds back.
    pub fn held_bytes(&self) -> u64 {
        self.held_segments * self.segment_bytes
    }
}

/// By what garbage is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderKind {
    /// A snapshot: what it may see has to stay.
    #[default]
    Snapshot,
    /// A transaction that has written and not ended.
    Transaction,
    /// A transaction that a crash has cut short, and that is being reverted.
    Rollback,
}

impl HolderKind {
    /// The name shown to users.
    pub fn name(self) -> &'static str {
        match self {
            HolderKind::Snapshot => "snapshot",
            HolderKind::Transaction => "transaction",
            HolderKind::Rollback => "rollback",
        }
    }
}

/// Somebody who holds garbage back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GarbageHolder {
    /// What it is.
    pub kind: HolderKind,
    /// The number of the transaction's handle, as [`crate::Canceller::number`] gives it; 0 for a rollback.
    pub number: u64,
    /// Whatever transactions with this number or a higher one have left is held back.
    pub from: u64,
    /// When it began, in microseconds since 1970-01-01 UTC.
    pub since_unix_us: u64,
    /// How long ago that is.
    pub age_seconds: f64,
    /// Bytes of segments that it holds back; others may hold them as well.
    pub held_bytes: u64,
    /// Bytes of those that could go if it ended.
    pub alone_bytes: u64,
    /// When it has held something back for more than so many seconds, it is ended.
    pub limit_seconds: Option<f64>,
}

/// What a sweep is to cost, from a sample of the segments that can go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Segments that were looked at.
    pub sampled_segments: u64,
    /// Undo records.
    pub records: Figure,
    /// Dead entries to be taken out of their trees.
    pub dead_entries: Figure,
    /// Replaced long values whose pages are to be given back.
    pub long_values: Figure,
    /// Dropped trees whose pages are to be given back.
    pub dropped_trees: Figure,
    /// The same by tree.
    pub by_tree: Vec<TreeForecast>,
    /// Pages of undo to be read, at most, as far as they are not in memory.
    pub undo_pages: u64,
    /// Leaves to be read, at most.
    pub leaf_pages_most: f64,
    /// Pages to be read that list those of long values, at most.
    #[serde(default)]
    pub list_pages_most: f64,
    /// Seconds that reading all of these from the device takes, about, by what is known of it; `None` where nothing is.
    pub seconds: Option<f64>,
    /// What that goes by, or why there is none.
    pub seconds_from: String,
}

/// Garbage of one tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeForecast {
    /// The tree's number.
    pub tree: u32,
    /// Its name; the store's own trees, and dropped ones, have none.
    pub name: Option<String>,
    /// Dead entries.
    pub dead_entries: Figure,
    /// Replaced long values.
    pub long_values: Figure,
}

/// What a sweep has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cleaned {
    /// Undo segments freed.
    pub segments: u64,
    /// Their bytes.
    pub undo_bytes: u64,
    /// Pages of undo gone through.
    pub undo_pages: u64,
    /// Undo records carried out.
    pub records: u64,
    /// Dead entries taken out of their trees.
    pub dead_entries: u64,
    /// Long values whose pages were given back.
    pub long_values: u64,
    /// Dropped trees whose pages were given back.
    pub trees: u64,
    /// Transactions whose outcome nobody has to know any more.
    pub outcomes: u64,
    /// Segments that stay, because something in them, or a page they lead to, is damaged.
    pub damaged_segments: u64,
    /// The first such damage.
    pub damage: Option<String>,
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Dead entries and long values by tree.
    pub by_tree: Vec<TreeCleaned>,
}

/// What was taken from one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCleaned {
    /// The tree's number.
    pub tree: u32,
    /// Its name; the store's own trees, and dropped ones, have none.
    pub name: Option<String>,
    /// Dead entries taken out.
    pub dead_entries: u64,
    /// Long values whose pages were given back.
    pub long_values: u64,
}
