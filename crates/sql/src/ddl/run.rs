//! Queries and expressions that a definition statement needs: rows that break a new rule, values of a default.

use super::DdlContext;
use crate::bind::{self, Bound, Scope};
use crate::catalog::{Catalog, Storage, Table};
use crate::exec::{self, Batch, Context, Operator, Subplans};
use crate::logical::{ColumnId, ColumnInfo, Columns, Output, Planned, Query, Rel, Scalar};
use crate::plan::{self, Estimator};
use crate::types::{NO_MODIFIER, Value};
use crate::{Error, Result};
use gannet_store::{Tree, View};
use std::cell::RefCell;
use std::sync::Arc;

/// Estimates from what ANALYZE found; a table it has not seen is taken for a large one, as the statements here read all of it.
#[derive(Debug)]
struct Known<'a>(&'a Catalog);

impl Estimator for Known<'_> {
    fn rows(&self, table: &Table) -> f64 {
        self.0.statistics.get(&table.oid).map_or(100_000.0, |found| found.rows)
    }

    fn pages(&self, storage: &Storage) -> f64 {
        let table = self.0.tables.values().find(|table| table.storage.name == storage.name);
        table.and_then(|table| self.0.statistics.get(&table.oid)).map_or(1000.0, |found| found.pages)
    }
}

impl DdlContext<'_> {
    /// What binding needs to know; `catalog` is the private copy.
    fn scope<'s>(&'s self, catalog: &'s Arc<Catalog>) -> Scope<'s> {
        Scope {
            catalog,
            style: &self.session.style,
            database: &self.session.database,
            user: &self.session.user,
        }
    }

    /// Checks that a CHECK constraint makes sense.
    pub(super) fn check_condition(&self, table: &Table, text: &str) -> Result<()> {
        bind::bind_check(&self.scope(self.catalog), table, text).map(drop)
    }

    /// A column's default, bound.
    pub(super) fn bind_default(&self, column: &crate::catalog::Column, text: &str) -> Result<Scalar> {
        bind::bind_default(&self.scope(self.catalog), column.ty, column.modifier, text)
    }

    /// Runs a query over what is committed now and what this transaction has changed; gives at most `limit` rows.
    pub(super) fn query(&self, sql: &str, limit: usize) -> Result<Vec<Vec<Value>>> {
        let mut parsed = bind::parse(sql)?;
        let Some(statement) = parsed.pop() else { return Ok(Vec::new()) };
        let bound = bind::bind(&self.scope(self.catalog), &statement.statement, &[])?;
        let mut run = Run::new(self, bound)?;
        let mut rows = Vec::new();
        while rows.len() < limit {
            match run.next(self)? {
                Some(row) => rows.push(row),
                None => break,
            }
        }
        Ok(rows)
    }

    /// An expression over no columns, to be computed as often as one likes.
    pub(super) fn prepare(&self, scalar: Scalar, ty: crate::Type) -> Result<Run> {
        let mut columns = Columns::default();
        let info =
            ColumnInfo { name: "value".to_owned(), ty, modifier: NO_MODIFIER, origin: None, nullable: true };
        let id: ColumnId = columns.add(info);
        let one = Rel::Values { columns: Vec::new(), rows: vec![Vec::new()] };
        let rel = Rel::Project { input: Box::new(one), columns: vec![(id, scalar)] };
        let output = vec![Output { column: id, name: "value".to_owned() }];
        let planned = Planned::Query(Query { rel, output });
        Run::new(self, Bound { planned, columns, parameters: Vec::new() })
    }

    /// The tree of a table or index.
    pub(super) fn tree(&self, storage: &Storage) -> Result<Tree> {
        let open = |name: &str| -> Result<Tree> {
            let tree = self.transaction.borrow_mut().latest_view().tree(name)?;
            tree.ok_or_else(|| Error::internal(format!("tree {name} is missing")))
        };
        storage.tree(open).cloned()
    }

    /// What is committed now, and what this transaction has changed.
    pub(super) fn latest_view(&self) -> View {
        self.transaction.borrow_mut().latest_view()
    }
}

/// A query that is running.
pub(super) struct Run {
    operator: Box<dyn Operator>,
    view: View,
    catalog: Arc<Catalog>,
    slots: RefCell<Vec<Value>>,
    subplans: Subplans,
    profile: RefCell<Vec<exec::NodeProfile>>,
    batch: Batch,
    next: usize,
}

impl Run {
    fn new(ddl: &DdlContext<'_>, bound: Bound) -> Result<Self> {
        let catalog = Arc::clone(ddl.catalog);
        let statement = plan::plan(bound, &catalog, ddl.planner, &Known(&catalog))?;
        Ok(Run {
            operator: exec::open(&statement.root)?,
            view: ddl.latest_view(),
            slots: RefCell::new(vec![Value::Null; statement.slots]),
            subplans: Subplans::default(),
            profile: RefCell::default(),
            batch: Batch::new(),
            next: 0,
            catalog,
        })
    }

    /// The next row.
    pub(super) fn next(&mut self, ddl: &DdlContext<'_>) -> Result<Option<Vec<Value>>> {
        let Run { operator, view, catalog, slots, subplans, profile, batch, next } = self;
        if *next >= batch.len() {
            let context = context(ddl, catalog, view, slots, subplans, profile);
            *next = 0;
            if !operator.next(&context, exec::BATCH_ROWS, batch)? {
                batch.reset(0);
                return Ok(None);
            }
        }
        *next += 1;
        Ok(Some(batch.row_mut(*next - 1).iter_mut().map(std::mem::take).collect()))
    }

    /// The value of an expression, computed anew.
    pub(super) fn value(&mut self, ddl: &DdlContext<'_>) -> Result<Value> {
        let Run { operator, view, catalog, slots, subplans, profile, batch, next } = self;
        let context = context(ddl, catalog, view, slots, subplans, profile);
        operator.rewind(&context)?;
        batch.reset(0);
        *next = 0;
        let row = self.next(ddl)?.ok_or_else(|| Error::internal("an expression gave no row"))?;
        row.into_iter().next().ok_or_else(|| Error::internal("an expression gave no value"))
    }
}

fn context<'c>(
    ddl: &'c DdlContext<'_>,
    catalog: &'c Arc<Catalog>,
    view: &'c View,
    slots: &'c RefCell<Vec<Value>>,
    subplans: &'c Subplans,
    profile: &'c RefCell<Vec<exec::NodeProfile>>,
) -> Context<'c> {
    Context {
        catalog,
        view,
        transaction: ddl.transaction,
        session: ddl.session,
        parameters: &[],
        slots,
        cancel: ddl.cancel,
        subplans,
        profile,
    }
}
