//! Running statements that have a plan: finding the plan, holding the tables, taking the view, giving out rows.

use super::cache::Key;
use super::client::{Client, CommandTag, OutputColumn};
use super::prepared::{Planned, Prepared};
use super::sizes::Sizes;
use super::{PlannerSettings, Session, StatementTurn, transaction};
use crate::bind::{self, Bound, Parsed, Scope};
use crate::catalog::{Catalog, Oid};
use crate::exec::{self, BATCH_ROWS, Batch, Environment, NodeProfile};
use crate::logical::Scalar;
use crate::physical::{Node, Statement};
use crate::plan;
use crate::types::Value;
use crate::{Error, Result, SqlState, Type, effort};
use gannet_store::View;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Of what is made while a statement is planned, about one part in so many is in the plan.
const KEPT_PART: u64 = 4;
/// How often a statement is planned anew because definitions changed meanwhile, before it gives up.
const REPLANS: usize = 100;

/// A statement under way.
#[derive(Debug)]
pub(super) struct Running {
    statement: exec::Running,
    view: View,
    catalog: Arc<Catalog>,
    columns: Arc<[OutputColumn]>,
    batch: Batch,
    /// Next row of the batch to be given out.
    next: usize,
    /// Rows given out by this call.
    given: u64,
    /// Rows written, as far as they were counted.
    counted: u64,
}

impl PlannerSettings {
    /// Everything permitted, with this much memory for pages, and for an operator.
    pub fn new(cache_bytes: u64, work_bytes: u64) -> Self {
        PlannerSettings {
            seqscan: true,
            indexscan: true,
            indexonlyscan: true,
            sort: true,
            hashagg: true,
            hashjoin: true,
            nestloop: true,
            look_ahead: true,
            cache_bytes,
            work_bytes,
        }
    }
}

impl Session {
    // ---- planning ---------------------------------------------------------------------------------------------

    /// The plan of a statement for the current definitions, from the cache or made now.
    pub(super) fn plan(&mut self, parsed: &Arc<Parsed>, parameters: &[Type]) -> Result<Arc<Prepared>> {
        let shared = Arc::clone(&self.database.0);
        let open = self.transaction.as_mut();
        let private = open.as_ref().is_some_and(|open| open.private.is_some());
        let catalog = open.map_or_else(|| shared.catalog(), |open| open.catalog(&shared));
        self.state.set_catalog(&catalog);
        let key = (!private).then(|| {
            let state = &self.state;
            Key::new(&parsed.text, parameters, &state.settings().planner, &state.style, &state.user)
        });
        if let Some(prepared) = key.as_ref().and_then(|key| shared.plans.get(key, catalog.version))
            && !prepared.plan.as_ref().is_some_and(|plan| plan.sizes.have_changed(&shared, &catalog))
        {
            return Ok(prepared);
        }
        let prepared = Arc::new(self.plan_with(parsed, parameters, catalog)?);
        if let Some(key) = key
            && !prepared.plan.as_ref().is_some_and(|plan| plan.of_the_moment)
        {
            shared.plans.put(key, Arc::clone(&prepared));
        }
        Ok(prepared)
    }

    /// The same for a statement that nobody gives values for parameters.
    pub(super) fn plan_closed(&mut self, parsed: &Arc<Parsed>) -> Result<Arc<Prepared>> {
        self.plan_given(parsed, &[])
    }

    /// The same for one that is given values of these types, and of no others.
    pub(super) fn plan_given(&mut self, parsed: &Arc<Parsed>, types: &[Type]) -> Result<Arc<Prepared>> {
        let prepared = self.plan(parsed, types)?;
        if prepared.parameters.len() > types.len() {
            let message = format!("there is no parameter ${}", types.len() + 1);
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, message));
        }
        Ok(prepared)
    }

    fn scope<'s>(&'s self, catalog: &'s Arc<Catalog>) -> Scope<'s> {
        Scope {
            catalog,
            style: &self.state.style,
            database: &self.state.database,
            user: &self.state.user,
            of_the_moment: Cell::default(),
        }
    }

    fn plan_with(
        &self,
        parsed: &Arc<Parsed>,
        parameters: &[Type],
        catalog: Arc<Catalog>,
    ) -> Result<Prepared> {
        let counting = effort::begin(&self.state.engine, &self.interrupt, Some(parsed));
        let scope = self.scope(&catalog);
        let bound = bind::bind(&scope, parsed, parameters)?;
        let of_the_moment = scope.of_the_moment.get();
        let parameters = bound.parameters.clone();
        let settings = self.state.settings().planner.clone();
        let sizes = Sizes::new(&self.database.0, &catalog, &self.state, self.interrupt.flag());
        let statement = plan::plan(bound, &catalog, &settings, &sizes)?;
        let sizes = Arc::new(sizes.planned());
        let bytes = counting.bytes() / KEPT_PART;
        let columns = (!statement.output.is_empty() || matches!(command(&statement), "SELECT")).then(|| {
            let column = |output: &crate::physical::PlanOutput| OutputColumn {
                name: output.name.clone(),
                ty: output.ty,
                modifier: output.modifier,
                origin: output.origin,
            };
            statement.output.iter().map(column).collect()
        });
        let point = exec::as_point(&statement);
        Ok(Prepared {
            parsed: Some(Arc::clone(parsed)),
            parameters,
            columns,
            plan: Some(Planned {
                written: write_set(&statement, &catalog),
                statement: Arc::new(statement),
                catalog,
                settings,
                sizes,
                point,
                of_the_moment,
                bytes,
            }),
        })
    }

    // ---- running ----------------------------------------------------------------------------------------------

    /// Starts a planned statement within the open transaction. Where definitions or the planner's settings have changed since it was prepared,
    /// or tables have grown or shrunk much, it is planned anew.
    pub(super) fn start(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: Vec<Value>,
        profiled: bool,
    ) -> Result<Running> {
        self.start_told(prepared, parameters, profiled, true)
    }

    /// The same of a statement of whose columns nobody was told: they are those of the definitions that it runs with.
    pub(super) fn start_untold(&mut self, prepared: &Arc<Prepared>) -> Result<Running> {
        self.start_told(prepared, Vec::new(), false, false)
    }

    fn start_told(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: Vec<Value>,
        profiled: bool,
        told: bool,
    ) -> Result<Running> {
        let fits = prepared.plan.as_ref().is_none_or(|plan| {
            prepared.parsed.is_none()
                || plan.settings == self.state.settings().planner
                    && !plan.sizes.have_changed(&self.database.0, &plan.catalog)
        });
        if fits {
            self.start_current(prepared, parameters, profiled, told)
        } else {
            let again = self.plan_again(prepared, told)?;
            self.start_current(&again, parameters, profiled, told)
        }
    }

    fn start_current(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: Vec<Value>,
        profiled: bool,
        told: bool,
    ) -> Result<Running> {
        let shared = Arc::clone(&self.database.0);
        let mut current = Arc::clone(prepared);
        for _ in 0..REPLANS {
            let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
            let catalog = open.catalog(&shared);
            let fits = |current: &Prepared| {
                current.plan.as_ref().is_some_and(|planned| Arc::ptr_eq(&planned.catalog, &catalog))
            };
            // Definitions of one version need not be the same: those of a transaction that was rolled back had one, too.
            if !fits(&current) {
                current = self.plan_again(prepared, told)?;
                if !fits(&current) {
                    continue;
                }
            }
            let planned = current.plan.as_ref().ok_or_else(|| Error::internal("a statement without plan"))?;
            let Some(view) = self.hold(planned)? else { continue };
            return Running::new(&current, view, parameters, profiled);
        }
        Err(keep_changing())
    }

    /// Starts a statement that `make` plans for the definitions it is given, and plans anew where those have changed before the
    /// statement is under way. Gives what else was made along with the plan.
    pub(super) fn start_made<T>(
        &mut self,
        mut make: impl FnMut(&mut Self, &Arc<Catalog>) -> Result<(T, Prepared)>,
    ) -> Result<(T, Running)> {
        let shared = Arc::clone(&self.database.0);
        for _ in 0..REPLANS {
            let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
            let catalog = open.catalog(&shared);
            let (made, prepared) = make(self, &catalog)?;
            let planned =
                prepared.plan.as_ref().ok_or_else(|| Error::internal("a statement without plan"))?;
            // What `make` has looked up is not what it has planned with, where definitions have changed in between.
            if !Arc::ptr_eq(&planned.catalog, &catalog) {
                continue;
            }
            let Some(view) = self.hold(planned)? else { continue };
            return Ok((made, Running::new(&prepared, view, Vec::new(), false)?));
        }
        Err(keep_changing())
    }

    /// Holds the tables a statement writes to, and takes its view; `None` where definitions have changed since it was planned.
    fn hold(&mut self, planned: &Planned) -> Result<Option<View>> {
        let shared = Arc::clone(&self.database.0);
        let open = self.transaction.as_mut().ok_or_else(transaction::failed)?;
        if planned.statement.writes && open.read_only {
            return Err(read_only(&planned.statement));
        }
        if !open.hold(&shared, &planned.catalog, &planned.written)? {
            return Ok(None);
        }
        let view = open.view(&shared, &planned.catalog)?;
        if view.is_some() {
            self.state.set_catalog(&planned.catalog);
        }
        Ok(view)
    }

    /// The values of expressions over no columns, within the open transaction.
    pub(super) fn values(
        &mut self,
        expressions: impl Fn(&Scope<'_>) -> Result<Vec<(Scalar, Type)>>,
    ) -> Result<Vec<Value>> {
        let shared = Arc::clone(&self.database.0);
        for _ in 0..REPLANS {
            let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
            let catalog = open.catalog(&shared);
            self.state.set_catalog(&catalog);
            let _counting = effort::begin(&self.state.engine, &self.interrupt, None);
            let bound = Bound::of_expressions(expressions(&self.scope(&catalog))?);
            let sizes = Sizes::new(&shared, &catalog, &self.state, self.interrupt.flag());
            let statement = plan::plan(bound, &catalog, &self.state.settings().planner, &sizes)?;
            let open = self.transaction.as_mut().ok_or_else(transaction::failed)?;
            let Some(view) = open.view(&shared, &catalog)? else { continue };
            let environment = self.environment(&catalog, &view)?;
            let mut batch = Batch::new();
            exec::Running::new(Arc::new(statement), Vec::new(), false).next(&environment, 1, &mut batch)?;
            return Ok(batch.row(0).to_vec());
        }
        Err(keep_changing())
    }

    /// The short way of a statement that asks for one row by its key, which leaves out whatever only others need. The number
    /// of rows given; `None`: it has to go the long way. `describe`: the client is told the columns first.
    pub(super) fn select_point(
        &mut self,
        prepared: &Prepared,
        parameters: &[Value],
        describe: bool,
        client: &mut dyn Client,
    ) -> Result<Option<u64>> {
        let (Some(planned), Some(columns)) = (&prepared.plan, &prepared.columns) else { return Ok(None) };
        if planned.point.is_none() || planned.settings != self.state.settings().planner {
            return Ok(None);
        }
        let shared = &self.database.0;
        let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
        if open.private.is_some() || !open.sees(shared, &planned.catalog) {
            return Ok(None);
        }
        let Some(view) = open.view(shared, &planned.catalog)? else { return Ok(None) };
        self.state.set_catalog(&planned.catalog);
        let environment = Environment {
            catalog: &planned.catalog,
            view: &view,
            transaction: open.store()?,
            session: &self.state,
            cancel: self.interrupt.flag(),
            work_bytes: u64::MAX,
            read_only: open.read_only,
        };
        let (mut turn, batch) = (StatementTurn::new(false), &mut self.batch);
        let found = exec::select_point(&planned.statement, &environment, parameters, &mut turn, batch);
        open.keep(view);
        let given = found.and_then(|()| {
            if describe {
                client.columns(columns, &self.state.style)?;
            }
            batch.iter().try_for_each(|row| client.row(&row[..columns.len()], columns, &self.state.style))?;
            Ok(batch.len() as u64)
        });
        batch.release();
        given.map(Some)
    }

    /// `told`: somebody knows of its columns.
    fn plan_again(&mut self, prepared: &Arc<Prepared>, told: bool) -> Result<Arc<Prepared>> {
        let parsed = prepared.parsed.clone().ok_or_else(|| Error::internal("a statement without text"))?;
        let again = self.plan(&parsed, &prepared.parameters)?;
        // Where a column comes from may change; what a client reads of it may not.
        let shape = |prepared: &Prepared| {
            let columns = prepared.columns.as_deref()?;
            Some(columns.iter().map(|c| (c.name.clone(), c.ty, c.modifier)).collect::<Vec<_>>())
        };
        if told && again.columns != prepared.columns && shape(&again) != shape(prepared) {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            )
            .routine("RevalidateCachedQuery"));
        }
        for kept in self.prepared.values_mut().filter(|kept| Arc::ptr_eq(kept, prepared)) {
            kept.clone_from(&again);
        }
        Ok(again)
    }

    /// A statement that changes rows changes all of them, whatever part of its RETURNING is asked for: runs it to its end and keeps
    /// what it returns.
    pub(super) fn settle(&self, running: &mut Running) -> Result<()> {
        if command(running.statement.statement()) == "SELECT" || running.columns.is_empty() {
            return Ok(());
        }
        let environment = self.environment(&running.catalog, &running.view)?;
        running.statement.settle(&environment)
    }

    fn environment<'e>(&'e self, catalog: &'e Arc<Catalog>, view: &'e View) -> Result<Environment<'e>> {
        let open = self.transaction.as_ref().ok_or_else(|| Error::internal("no transaction"))?;
        Ok(Environment {
            catalog,
            view,
            transaction: open.store()?,
            session: &self.state,
            cancel: self.interrupt.flag(),
            work_bytes: self.state.settings().work_bytes.unwrap_or(u64::MAX),
            read_only: open.read_only,
        })
    }

    /// Runs a started statement for at most `limit` rows (0: to its end). True when it is at its end.
    pub(super) fn advance(&self, running: &mut Running, limit: u64, client: &mut dyn Client) -> Result<bool> {
        let mut left = if limit == 0 { u64::MAX } else { limit };
        running.given = 0;
        while left > 0 {
            while running.next < running.batch.len() && left > 0 {
                let row = running.batch.row(running.next);
                client.row(&row[..running.columns.len()], &running.columns, &self.state.style)?;
                running.next += 1;
                running.given += 1;
                left -= 1;
            }
            if left == 0 {
                return Ok(false);
            }
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(BATCH_ROWS);
            if !self.pull(running, want)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next batch; false when there is none.
    fn pull(&self, running: &mut Running, want: usize) -> Result<bool> {
        let environment = self.environment(&running.catalog, &running.view)?;
        running.next = 0;
        let more = running.statement.next(&environment, want, &mut running.batch);
        let written = running.statement.affected();
        if written > running.counted {
            self.database.0.rows_written.fetch_add(written - running.counted, Ordering::Relaxed);
            running.counted = written;
        }
        let more = more?;
        if !more {
            running.batch.reset(0);
        }
        Ok(more)
    }

    /// Runs a statement to its end and gives nobody its rows: EXPLAIN ANALYZE.
    pub(super) fn exhaust(&mut self, running: &mut Running) -> Result<()> {
        while self.pull(running, BATCH_ROWS)? {}
        Ok(())
    }
}

impl Running {
    /// It gave what was wanted of it for now.
    pub(super) fn wait(&mut self) {
        if self.next >= self.batch.len() {
            self.batch.release();
            self.next = 0;
        }
    }

    /// Bytes of rows that are there to be given, where they are not charged already.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.batch.uncharged_bytes() as u64
    }

    fn new(prepared: &Prepared, view: View, parameters: Vec<Value>, profiled: bool) -> Result<Self> {
        let planned = prepared.plan.as_ref().ok_or_else(|| Error::internal("a statement without plan"))?;
        Ok(Running {
            statement: exec::Running::new(Arc::clone(&planned.statement), parameters, profiled),
            view,
            catalog: Arc::clone(&planned.catalog),
            columns: prepared.columns.clone().unwrap_or_default(),
            batch: Batch::new(),
            next: 0,
            given: 0,
            counted: 0,
        })
    }

    /// How the statement ended.
    pub(super) fn tag(&self) -> CommandTag {
        let command = command(self.statement.statement());
        // A portal that goes on counts the rows of each call, as PostgreSQL's do.
        let gives = command == "SELECT" || !self.columns.is_empty();
        let rows = if gives { self.given } else { self.statement.affected() };
        CommandTag { command, rows: Some(rows) }
    }

    pub(super) fn columns(&self) -> &Arc<[OutputColumn]> {
        &self.columns
    }

    pub(super) fn profile(&self) -> Vec<NodeProfile> {
        self.statement.profile()
    }

    pub(super) fn plan(&self) -> &Arc<Statement> {
        self.statement.statement()
    }
}

/// The command of a plan's tag.
pub(super) fn command(statement: &Statement) -> &'static str {
    match root(&statement.root) {
        Node::Insert { .. } => "INSERT",
        Node::Update { .. } => "UPDATE",
        Node::Delete { .. } => "DELETE",
        _ => "SELECT",
    }
}

/// The node that changes rows, under those that only pick columns of RETURNING.
fn root(plan: &crate::physical::Plan) -> &Node {
    match &plan.node {
        Node::Project { input, .. } => match &input.node {
            changes @ (Node::Insert { .. } | Node::Update { .. } | Node::Delete { .. }) => changes,
            _ => &plan.node,
        },
        node => node,
    }
}

fn keep_changing() -> Error {
    Error::new(
        SqlState::SERIALIZATION_FAILURE,
        "could not run the statement: definitions of its tables keep changing",
    )
}

fn read_only(statement: &Statement) -> Error {
    let command = match command(statement) {
        "SELECT" => "SELECT FOR UPDATE",
        other => other,
    };
    Error::new(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        format!("cannot execute {command} in a read-only transaction"),
    )
}

/// Tables whose definitions a statement needs as they are: those it may write to, that is, its targets and what foreign keys make
/// it change along, and their parents, in which keys are looked up; and those of which it locks rows.
fn write_set(statement: &Statement, catalog: &Catalog) -> Vec<Oid> {
    let mut tables = statement.targets.clone();
    if !tables.is_empty() && !matches!(root(&statement.root), Node::Insert { .. }) {
        add_children(&mut tables, catalog);
    }
    for index in 0..tables.len() {
        let Some(table) = catalog.tables.get(&tables[index]) else { continue };
        for key in &table.foreign_keys {
            if !tables.contains(&key.parent) {
                tables.push(key.parent);
            }
        }
    }
    for locked in &statement.locked {
        if !tables.contains(locked) {
            tables.push(*locked);
        }
    }
    tables
}

/// Adds tables that foreign keys lead to from parents to children.
fn add_children(tables: &mut Vec<Oid>, catalog: &Catalog) {
    let mut seen: BTreeSet<Oid> = tables.iter().copied().collect();
    let mut next = 0;
    while let Some(oid) = tables.get(next) {
        if let Some(table) = catalog.tables.get(oid) {
            for child in &table.referenced_by {
                if seen.insert(*child) {
                    tables.push(*child);
                }
            }
        }
        next += 1;
    }
}
