//! Queries and expressions that a definition statement needs: rows that break a new rule, values of a default.

use super::{DdlContext, text};
use crate::bind::{self, Bound, Mention, Scope};
use crate::catalog::{Catalog, Column, Storage, Table};
use crate::exec::{Batch, Environment, Running};
use crate::logical::Scalar;
use crate::physical::Statement;
use crate::plan::{self, Estimator};
use crate::types::Value;
use crate::types::text::TextStyle;
use crate::{Error, Result};
use gannet_store::{Isolation, Tree, View};
use std::cell::Cell;
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
    /// Binds something with the private copy of the definitions: names in constants, as in `'t_id_seq'::regclass`, are looked up there
    /// as well.
    fn with_scope<T>(&self, bind: impl FnOnce(&Scope<'_>) -> Result<T>) -> Result<T> {
        let style = TextStyle { catalog: Some(Arc::clone(self.catalog)), ..self.session.style.clone() };
        bind(&Scope {
            catalog: self.catalog,
            style: &style,
            database: &self.session.database,
            user: &self.session.user,
            of_the_moment: Cell::default(),
        })
    }

    /// Checks that a CHECK constraint makes sense.
    pub(super) fn check_condition(&self, table: &Table, text: &str) -> Result<()> {
        self.with_scope(|scope| bind::bind_check(scope, table, text).map(drop))
    }

    /// What a CHECK constraint mentions.
    pub(super) fn mentions(&self, table: &Table, text: &str) -> Result<Vec<Mention>> {
        self.with_scope(|scope| bind::mentions(scope, table, text))
    }

    /// A CHECK constraint as it is stored, and what it mentions there: columns without their table, which may be renamed.
    pub(super) fn define_check(&self, table: &Table, text: &str) -> Result<(String, Vec<Mention>)> {
        let text = self.with_scope(|scope| bind::define_check(scope, table, text))?;
        let text = text::named(&text, &self.mentions(table, &text)?, table)?;
        let mentions = self.mentions(table, &text)?;
        Ok((text, mentions))
    }

    /// A column's default as it is stored.
    pub(super) fn define_default(&self, column: &Column, text: &str) -> Result<String> {
        self.with_scope(|scope| bind::define_default(scope, column.ty, column.modifier, text))
    }

    /// A column's default, bound.
    pub(super) fn bind_default(&self, column: &Column, text: &str) -> Result<Scalar> {
        self.with_scope(|scope| bind::bind_default(scope, column.ty, column.modifier, text))
    }

    /// Runs a query over what is committed now and what this transaction has changed; gives at most `limit` rows.
    pub(super) fn query(&self, sql: &str, limit: usize) -> Result<Vec<Vec<Value>>> {
        let mut parsed = bind::parse(sql)?;
        let Some(parsed) = parsed.pop() else { return Ok(Vec::new()) };
        let mut query = Prepared::new(self, self.with_scope(|scope| bind::bind(scope, &parsed, &[]))?)?;
        query.rows(self, limit)
    }

    /// An expression over no columns, to be computed as often as one likes.
    pub(super) fn prepare(&self, scalar: Scalar, ty: crate::Type) -> Result<Prepared> {
        Prepared::new(self, Bound::of_expressions(vec![(scalar, ty)]))
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

    /// Under REPEATABLE READ what the transaction's statements see; else they see what is committed.
    pub(super) fn snapshot_view(&self) -> Option<View> {
        let mut transaction = self.transaction.borrow_mut();
        (transaction.isolation() == Isolation::RepeatableRead).then(|| transaction.view())
    }
}

/// A query that can be run.
pub(super) struct Prepared {
    statement: Arc<Statement>,
    view: View,
    catalog: Arc<Catalog>,
    batch: Batch,
}

impl Prepared {
    fn new(ddl: &DdlContext<'_>, bound: Bound) -> Result<Self> {
        let catalog = Arc::clone(ddl.catalog);
        let statement = Arc::new(plan::plan(bound, &catalog, ddl.planner, &Known(&catalog))?);
        Ok(Prepared { statement, view: ddl.latest_view(), catalog, batch: Batch::new() })
    }

    /// Runs it; gives at most `limit` rows.
    fn rows(&mut self, ddl: &DdlContext<'_>, limit: usize) -> Result<Vec<Vec<Value>>> {
        let environment = Environment {
            catalog: &self.catalog,
            view: &self.view,
            transaction: ddl.transaction,
            session: ddl.session,
            cancel: ddl.cancel,
            work_bytes: u64::MAX,
            read_only: false,
        };
        let mut running = Running::new(Arc::clone(&self.statement), Vec::new(), false);
        let mut rows = Vec::new();
        while rows.len() < limit && running.next(&environment, limit - rows.len(), &mut self.batch)? {
            rows.extend(self.batch.iter().map(<[Value]>::to_vec));
        }
        Ok(rows)
    }

    /// The value of an expression, computed anew.
    pub(super) fn value(&mut self, ddl: &DdlContext<'_>) -> Result<Value> {
        let row = self.rows(ddl, 1)?.pop().ok_or_else(|| Error::internal("an expression gave no row"))?;
        row.into_iter().next().ok_or_else(|| Error::internal("an expression gave no value"))
    }
}
