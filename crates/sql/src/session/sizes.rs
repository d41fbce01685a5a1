//! What the planner is told of the data, and when a plan has become a guess about data that are no longer there.
//!
//! Sizes are live: the number of a tree's leaves comes from its root ([`View::tree_size`]), so that a table which was just
//! filled is planned for as it is, with or without ANALYZE. The number of rows is, as in PostgreSQL, the density that ANALYZE found
//! times the pages there are now; where it never ran, what was seen on a few leaves takes its place.
//!
//! # When plans are made anew
//! A plan remembers the sizes it was made for. Every row that a statement writes is counted; once [`CHECK_EVERY`] rows were
//! written since a plan was last looked at, its tables are measured again before it is used, and where one has become twice as large, or
//! half, the plan is made anew. So a statement prepared on an empty table does not go on scanning a full one, and a statement that
//! runs on steady tables pays for a counter.

use super::database::Shared;
use super::state::SessionState;
use crate::catalog::{Catalog, Oid, Storage, Table};
use crate::exec::{Computed, Environment};
use crate::physical::Expr;
use crate::plan::Estimator;
use crate::types::Value;
use gannet_base::clock;
use gannet_store::{Transaction, TransactionOptions, TreeSize, View};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Rows of a table that cannot be measured, as PostgreSQL assumes ten pages.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Pages of a tree that cannot be measured.
const UNKNOWN_PAGES: f64 = 10.0;
/// Rows written to any table, after which a plan's sizes are looked at again.
const CHECK_EVERY: u64 = 500;
/// Pages by which a table may differ without a plan minding, whatever the factor.
const SLACK_PAGES: f64 = 4.0;
/// Values of this many bytes are not put into plans.
const LARGEST_CONSTANT: usize = 1024;
/// Constants are computed while a statement is planned until that has taken so long, on a processor. The rest are left to when it runs.
const CONSTANTS_TIME: Duration = Duration::from_millis(50);

/// Sizes of the tables that a plan was made for.
#[derive(Debug, Default)]
pub(super) struct PlannedSizes {
    tables: Vec<(Oid, f64)>,
    /// Rows that had been written when the sizes were looked at last.
    looked_at: AtomicU64,
    /// One of them has become another size: the plan is not used again.
    outgrown: AtomicBool,
}

impl PlannedSizes {
    /// Whether one of the tables has become another size than the plan was made for.
    pub(super) fn have_changed(&self, shared: &Shared, catalog: &Catalog) -> bool {
        if self.tables.is_empty() {
            return false;
        }
        if self.outgrown.load(Ordering::Relaxed) {
            return true;
        }
        let written = shared.rows_written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.looked_at.load(Ordering::Relaxed)) < CHECK_EVERY {
            return false;
        }
        self.looked_at.store(written, Ordering::Relaxed);
        let view = shared.store.begin(TransactionOptions::default()).view();
        let changed = self.tables.iter().any(|(oid, planned)| {
            let size = catalog.tables.get(oid).and_then(|table| measure(&view, &table.storage));
            size.is_some_and(|now| differ(*planned, now.leaf_pages))
        });
        self.outgrown.store(changed, Ordering::Relaxed);
        changed
    }
}

fn differ(planned: f64, now: f64) -> bool {
    let (planned, now) = (planned + SLACK_PAGES, now + SLACK_PAGES);
    planned > 2.0 * now || now > 2.0 * planned
}

/// The size of a tree; `None` where it cannot be read, which the statement itself will find out and report.
pub(super) fn measure(view: &View, storage: &Storage) -> Option<TreeSize> {
    let open = |name: &str| {
        view.tree(name)?.ok_or_else(|| crate::Error::internal("a tree that the catalog names is not there"))
    };
    storage.tree(open).and_then(|tree| Ok(view.tree_size(tree)?)).ok()
}

/// Rows of a table, about, as it is now: the density that ANALYZE found times the pages there are, or what was seen on some leaves.
pub(crate) fn rows_now(catalog: &Catalog, view: &View, table: &Table) -> Option<f64> {
    Some(rows(catalog, table, measure(view, &table.storage)?))
}

fn rows(catalog: &Catalog, table: &Table, size: TreeSize) -> f64 {
    match catalog.statistics.get(&table.oid) {
        // A single leaf was counted.
        Some(found) if size.levels > 1 && found.rows > 0.0 => {
            found.rows / found.pages.max(1.0) * size.leaf_pages
        }
        _ => size.entries,
    }
}

/// What the planner is told while it makes one plan.
pub(super) struct Sizes<'a> {
    shared: &'a Shared,
    catalog: &'a Arc<Catalog>,
    session: &'a SessionState,
    cancel: &'a AtomicBool,
    /// Made when it is first asked for something.
    reading: OnceCell<(RefCell<Transaction>, View)>,
    asked: RefCell<Vec<(Oid, f64)>>,
    written_before: u64,
    /// How long constants have taken.
    spent: Cell<Duration>,
}

impl<'a> Sizes<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        catalog: &'a Arc<Catalog>,
        session: &'a SessionState,
        cancel: &'a AtomicBool,
    ) -> Self {
        Sizes {
            shared,
            catalog,
            session,
            cancel,
            reading: OnceCell::new(),
            asked: RefCell::default(),
            written_before: shared.rows_written.load(Ordering::Relaxed),
            spent: Cell::default(),
        }
    }

    /// What the plan was made for.
    pub(super) fn planned(self) -> PlannedSizes {
        PlannedSizes {
            tables: self.asked.into_inner(),
            looked_at: AtomicU64::new(self.written_before),
            outgrown: AtomicBool::new(false),
        }
    }

    fn reading(&self) -> &(RefCell<Transaction>, View) {
        self.reading.get_or_init(|| {
            let mut transaction = self.shared.store.begin(TransactionOptions::default());
            let view = transaction.view();
            (RefCell::new(transaction), view)
        })
    }
}

impl Estimator for Sizes<'_> {
    fn rows(&self, table: &Table) -> f64 {
        let Some(size) = measure(&self.reading().1, &table.storage) else {
            let found = self.catalog.statistics.get(&table.oid);
            return found.map_or(UNKNOWN_ROWS, |found| found.rows.max(1.0));
        };
        let mut asked = self.asked.borrow_mut();
        if !asked.iter().any(|(oid, _)| *oid == table.oid) {
            asked.push((table.oid, size.leaf_pages));
        }
        rows(self.catalog, table, size).max(1.0)
    }

    fn pages(&self, storage: &Storage) -> f64 {
        measure(&self.reading().1, storage).map_or(UNKNOWN_PAGES, |size| size.leaf_pages)
    }

    fn constant(&self, expr: &Expr) -> Option<Value> {
        if self.spent.get() >= CONSTANTS_TIME {
            return None;
        }
        let before = clock::thread_cpu();
        let (transaction, view) = self.reading();
        let environment = Environment {
            catalog: self.catalog,
            view,
            transaction,
            session: self.session,
            cancel: self.cancel,
            work_bytes: u64::MAX,
            read_only: true,
        };
        // What fails, fails when the statement runs, if it comes to that.
        let value = environment.run(&[], |context| expr.eval(&[], context).map(Computed::into_owned));
        self.spent.set(self.spent.get() + clock::thread_cpu().saturating_sub(before));
        value.ok().filter(|value| value.heap_bytes() <= LARGEST_CONSTANT)
    }
}
