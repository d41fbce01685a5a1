//! Check: whether everything that is stored is whole, and refers to everything else as it should.
//!
//! # What it guarantees
//! 1. It changes nothing, and never fails for what it finds: damage becomes a [`Finding`] that names page, tree, fault and
//!    what is at stake. Bytes are proven to be a node, an undo page or an index before they are read as such.
//! 2. Of every page in use: its checksum on the device, its kind, its tree, its structure; of a leaf, that every entry decodes;
//!    of an undo page, that every record does.
//! 3. Every node but a root is referred to by one inner node, one level above, whose separators are exactly its fences. Every page of
//!    a long value is listed once, in the one list that an entry (or an undo record that waits to be swept) refers to, and
//!    lists are as long as their values. Every undo segment stands in the directory once.
//! 4. What is referred to is marked as used, by its tree. What is marked as used is referred to, or belongs to a tree that is
//!    being created, or that is dropped and not yet swept.
//! 5. While an entry's writer is at or above the horizon, its undo pointer leads to a record of that writer, tree and key;
//!    and so on to the last version that anybody may ask for.
//! 6. Transactions, page writer and sweep go on meanwhile, and nothing that is sound is reported. What looks suspicious is
//!    looked at again, under latches, before it counts.
//! 7. Memory is charged to the budget and does not grow with the file beyond what was charged at the start.
//!
//! # How
//! *The pass* ([`crate::pass`]) reads the file once, in its own order, past the page frames. What pages say of each other is not kept but
//! summed up ([`sums`]).
//!
//! *The search* goes only where sums differ: because something is wrong, or because it changed during the pass. It walks
//! the trees concerned from their roots, holding the parent's latch while it looks at a child, and then asks of each page in
//! use there whether anything leads to it. Sweep is held off for that long: it alone frees what transactions have left.
//!
//! # What cannot be found
//! A write that the device has confirmed and lost leaves an older state of the page, with a valid checksum. It is found where
//! the log still knows of the change, where a frame still holds the page, or where the older state contradicts its surroundings
//! (other fences, another tree, a record that is missing). Otherwise nothing tells it from the truth.

mod page;
mod report;
mod search;
mod sums;
mod survey;
mod visit;

use crate::Result;
use crate::engine::Engine;
use crate::jobs::Watch;
use crate::meta::Meta;
use crate::pass::{self, Course, Flaw};
use crate::shared::{STATUS, Shared};
use crate::space::{Extent, SYSTEM};
use crate::undo::UNDO_PAGES;
use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::{PageId, TreeId, clock};
use gannet_io::File;
pub(crate) use report::Findings;
pub use report::{CheckReport, Finding, Stake};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use sums::Sums;
use survey::Survey;
pub(crate) use survey::{Known, Trees, read_segments, segments_memory};

/// Pages that cannot be used and are remembered until it is known what leads to them.
const BAD_MAX: usize = 1000;
/// Leaves whose versions are looked at again once nobody sweeps.
const DOUBTFUL_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Counters {
    pages: AtomicU64,
    entries: AtomicU64,
    undo_records: AtomicU64,
    compared_with_log: AtomicU64,
}

/// A check under way.
#[derive(Debug)]
struct Check {
    shared: Arc<Shared>,
    survey: Survey,
    sums: Sums,
    findings: Findings,
    counters: Counters,
    /// Pages that cannot be used.
    bad: Mutex<BTreeMap<PageId, Flaw>>,
    /// Owners of pages in use that the catalog did not name, with the first such page.
    strangers: Mutex<BTreeMap<TreeId, PageId>>,
    /// By tree: pages that its entries' long values should have, less those that are listed.
    lengths: Mutex<BTreeMap<TreeId, i64>>,
    doubtful: Mutex<Doubtful>,
}

/// Leaves with versions that were missing while somebody swept.
#[derive(Debug, Default)]
struct Doubtful {
    leaves: Vec<(PageId, TreeId)>,
    /// How many there were besides, of which nothing else is known.
    more: u64,
}

/// What is wrong with the two copies of the header in the file, of which the newer is to be this one.
pub(crate) fn header(meta: &Meta, file: &dyn File) -> Vec<Finding> {
    let newer = match meta.copy(file, 0) {
        Ok(Some(found)) if found.sequence == meta.sequence => None,
        Ok(Some(found)) => {
            Some(format!("a write was lost: it is header {}, not {}", found.sequence, meta.sequence))
        }
        Ok(None) => Some("the newer copy of the header is damaged".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let older = match meta.copy(file, 1) {
        Ok(Some(_)) => None,
        Ok(None) => Some("the older copy of the header is damaged".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let finding = |(back, what): (u64, Option<String>)| {
        let page = meta.copy_page(back);
        Some(Finding { page, tree: SYSTEM, name: None, what: what?, stake: Stake::Header })
    };
    [(0, newer), (1, older)].into_iter().filter_map(finding).collect()
}

/// Checks a database; `header` says what is wrong with the file's header.
pub(crate) fn run(
    engine: &Engine,
    shared: &Arc<Shared>,
    header: Vec<Finding>,
    watch: &mut Watch<'_>,
) -> Result<CheckReport> {
    let start = clock::now();
    let findings = Findings::default();
    header.into_iter().for_each(|finding| findings.add(finding));
    // Of undo segments two maps at a time: this one's, and the search's.
    let _segments = engine.memory(Purpose::Work, 2 * segments_memory(shared))?;
    let survey = Survey::new(shared, &findings, engine.memory(Purpose::Log, 0)?)?;
    let share = engine.work_limit() / 2;
    let range = Sums::range_for(survey.pages, share);
    let mut memory = engine.memory(Purpose::Work, Sums::memory(survey.pages, range))?;
    let check = Arc::new(Check {
        sums: Sums::new(survey.pages, range),
        shared: Arc::clone(shared),
        survey,
        findings,
        counters: Counters::default(),
        bad: Mutex::default(),
        strangers: Mutex::default(),
        lengths: Mutex::default(),
        doubtful: Mutex::default(),
    });
    check.refer_to_roots();
    let course = Course { thread: "gannet-check", phase: "checks pages", pages: check.survey.pages };
    let bytes_read = pass::run(engine, shared, &check, course, watch)?;
    check.search(&mut memory, watch)?;
    check.report_bad();
    Ok(check.report(bytes_read, start.elapsed()))
}

impl Check {
    /// Whatever else refers to it, a root is referred to by the catalog, or the header.
    fn refer_to_roots(&self) {
        let mut scratch = Vec::new();
        for (&root, &tree) in &self.survey.roots {
            self.refer(root, tree, sums::Fact::Root(tree), &mut scratch);
        }
    }

    /// How many findings there are so far.
    fn findings_so_far(&self) -> Option<String> {
        let findings = self.findings.count() + self.bad.lock().len() as u64;
        (findings > 0).then(|| format!("{findings} findings"))
    }

    /// Says how far it has come.
    fn tell(&self, watch: &mut Watch<'_>) -> Result<()> {
        if let Some(findings) = self.findings_so_far() {
            watch.job().note(findings);
        }
        watch.look()
    }

    fn find(&self, page: PageId, tree: TreeId, what: impl std::fmt::Display, stake: Stake) {
        let name = self.survey.trees.name(tree);
        self.findings.add(Finding { page, tree, name, what: what.to_string(), stake });
    }

    /// What the space map says of a page's extent now; `None` where no map describes it.
    fn extent(&self, page: PageId) -> Result<Option<Extent>> {
        pass::extent_of(&self.shared.core, page)
    }

    /// The tree that a page belongs to, if it is in use.
    fn owner(&self, page: PageId) -> Result<Option<TreeId>> {
        pass::owner_of(&self.shared.core, &self.survey.roots, page)
    }

    fn note_bad(&self, page: PageId, flaw: Flaw) {
        let mut bad = self.bad.lock();
        if bad.len() < BAD_MAX {
            bad.insert(page, flaw);
        }
    }

    /// What is at stake with a page of which nothing is known but its tree.
    fn stake_of(&self, tree: TreeId) -> Stake {
        match tree {
            SYSTEM => Stake::Allocation,
            UNDO_PAGES => Stake::History,
            STATUS => Stake::Status,
            crate::shared::UNDO_DIRECTORY => Stake::History,
            _ if self.survey.trees.live.contains_key(&tree) => Stake::SomeRows,
            _ => Stake::Space,
        }
    }

    /// Pages that cannot be used, and that nothing was found to lead to.
    fn report_bad(&self) {
        for (page, flaw) in std::mem::take(&mut *self.bad.lock()) {
            let stake = if flaw.lost_write { Stake::LostWrite } else { self.stake_of(flaw.tree) };
            self.find(page, flaw.tree, flaw.what, stake);
        }
    }

    fn report(&self, bytes_read: u64, duration: Duration) -> CheckReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CheckReport {
            trees: self.survey.trees.live.len() as u64,
            pages: count(&self.counters.pages),
            entries: count(&self.counters.entries),
            undo_records: count(&self.counters.undo_records),
            bytes_read,
            compared_with_log: count(&self.counters.compared_with_log),
            duration,
            findings: self.findings.take(),
        }
    }
}

#[cfg(test)]
mod tests;
