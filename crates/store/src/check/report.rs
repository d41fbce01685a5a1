//! What a check says: findings, figures, progress.

use crate::mutation::{Mutation, planted};
use gannet_base::sync::Mutex;
use gannet_base::{PageId, TreeId};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Most findings that are kept.
const FINDINGS_MAX: usize = 1000;
/// Bytes of a key that are shown.
const KEY_SHOWN: usize = 40;

/// What a finding means for the data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stake {
    /// Rows with keys from `lower` on and below `upper` (`None`: up to the last one) cannot be read.
    Rows {
        /// The first key.
        lower: Vec<u8>,
        /// The first key behind them.
        upper: Option<Vec<u8>>,
    },
    /// Which rows cannot be read is not known, as nothing whole leads to the page.
    SomeRows,
    /// The row with this key cannot be read as it was committed last: who has changed it since has not committed, and what it
    /// was before is lost.
    Row {
        /// The row's key.
        key: Vec<u8>,
    },
    /// The long value of the row with this key cannot be read.
    Value {
        /// The row's key.
        key: Vec<u8>,
    },
    /// Earlier versions of rows: who holds an old snapshot gets an error, and a rollback that needs them fails.
    History,
    /// Pages may be given out although they are in use, or cannot be given out: what is stored next may destroy rows.
    Allocation,
    /// Space that is not used any more, and is not free. No row is lost.
    Space,
    /// The file's header: the other copy of it is what the next start relies on.
    Header,
    /// The log: it is what the next start relies on, and what would tell of a lost write.
    Log,
    /// Which transactions have committed.
    Status,
    /// A write that the device has confirmed is not there: changes of rows are lost.
    LostWrite,
}

impl fmt::Display for Stake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stake::Rows { lower, upper: None } if lower.is_empty() => {
                f.write_str("none of its rows can be read")
            }
            Stake::Rows { lower, upper: None } => {
                write!(f, "its rows from key {} on cannot be read", Key(lower))
            }
            Stake::Rows { lower, upper: Some(upper) } if lower.is_empty() => {
                write!(f, "its rows below key {} cannot be read", Key(upper))
            }
            Stake::Rows { lower, upper: Some(upper) } => {
                write!(f, "its rows from key {} to before {} cannot be read", Key(lower), Key(upper))
            }
            Stake::SomeRows => f.write_str("some of its rows cannot be read"),
            Stake::Row { key } => {
                write!(f, "the row with key {} cannot be read as it was committed", Key(key))
            }
            Stake::Value { key } => {
                write!(f, "the long value of the row with key {} cannot be read", Key(key))
            }
            Stake::History => f.write_str(
                "earlier versions of rows: old snapshots and some rollbacks fail, current rows are there",
            ),
            Stake::Allocation => f.write_str(
                "pages in use may be given out again: write nothing more, save the rows and restore",
            ),
            Stake::Space => f.write_str("space is lost until the database is loaded anew, no row is"),
            Stake::Header => f.write_str("one of two copies of the file's header is left"),
            Stake::Log => f.write_str(
                "a start after a crash, until a checkpoint, and whether writes are lost is not known",
            ),
            Stake::Status => f.write_str("whether some of the last transactions committed"),
            Stake::LostWrite => f.write_str("changes of its rows are lost: restore from a backup"),
        }
    }
}

/// A key as a user can read it, and type it.
pub(super) struct Key<'a>(pub(super) &'a [u8]);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(KEY_SHOWN)];
        if !shown.is_empty() && shown.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            write!(f, "{:?}", String::from_utf8_lossy(shown))?;
        } else {
            f.write_str("x'")?;
            shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("'")?;
        }
        if shown.len() < self.0.len() { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The page, or page 0 for the database as a whole.
    pub page: PageId,
    /// The tree it belongs to, or should belong to.
    pub tree: TreeId,
    /// The tree's name, where it has one.
    pub name: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What it means for the data.
    pub stake: Stake,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.page, self.tree)?;
        if let Some(name) = &self.name {
            write!(f, " ({name:?})")?;
        }
        write!(f, ": {}; at stake: {}", self.what, self.stake)
    }
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Trees, the store's own included.
    pub trees: u64,
    /// Pages in use.
    pub pages: u64,
    /// Leaf entries.
    pub entries: u64,
    /// Undo records, those that wait to be swept included.
    pub undo_records: u64,
    /// Bytes read from the data file, but for what was looked at once more.
    pub bytes_read: u64,
    /// Pages whose last change the log still knows of, so that a lost write of them would have been noticed.
    pub compared_with_log: u64,
    /// How long it took.
    pub duration: Duration,
    /// Everything that is wrong, by page; empty when all is well. Ends after 1000.
    pub findings: Vec<Finding>,
}

/// Findings as they are made, each once, whoever makes it.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Mutex<BTreeSet<Finding>>,
}

impl Findings {
    pub(super) fn add(&self, finding: Finding) {
        let mut found = self.found.lock();
        if found.len() < FINDINGS_MAX && !planted(Mutation::DamageNotTold) {
            found.insert(finding);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.found.lock().len() as u64
    }

    /// Whether something was found on a page of this range.
    pub(super) fn touch(&self, pages: &std::ops::Range<u64>) -> bool {
        self.found.lock().iter().any(|finding| pages.contains(&finding.page.0))
    }

    pub(super) fn take(&self) -> Vec<Finding> {
        std::mem::take(&mut *self.found.lock()).into_iter().collect()
    }
}
