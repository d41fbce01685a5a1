//! Started statements: what is kept of one between two calls, and what it runs with.

use super::spill::{SpillReader, SpillWriter};
use super::{BATCH_ROWS, Batch, Context, Made, NodeProfile, Operator, Subplans, open, point};
use crate::Result;
use crate::catalog::Catalog;
use crate::physical::Statement;
use crate::session::{SessionState, StatementTurn};
use crate::types::Value;
use gannet_store::{Transaction, View};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a session gives a statement to run with.
#[derive(Clone, Copy)]
pub struct Environment<'c> {
    /// The definitions.
    pub catalog: &'c Arc<Catalog>,
    /// What the statement sees.
    pub view: &'c View,
    /// The session's transaction.
    pub transaction: &'c RefCell<Transaction>,
    /// The session.
    pub session: &'c SessionState,
    /// Set when the statement shall end.
    pub cancel: &'c AtomicBool,
    /// Bytes an operator may take before it spills, if that is less than what the engine has for it: `u64::MAX` for no such limit.
    pub work_bytes: u64,
    /// Whether the transaction is read-only.
    pub read_only: bool,
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Environment<'_> {
    /// Runs something outside of any plan: an expression such as a default, without slots and subqueries.
    pub fn run<T>(&self, parameters: &[Value], body: impl FnOnce(&Context<'_>) -> T) -> T {
        let slots = RefCell::new(Vec::new());
        let subplans = Subplans::default();
        let profile = RefCell::new(Vec::new());
        let affected = Cell::new(0);
        body(&self.context(parameters, &slots, &subplans, &profile, &affected))
    }

    fn context<'a>(
        &'a self,
        parameters: &'a [Value],
        slots: &'a RefCell<Vec<Made>>,
        subplans: &'a Subplans,
        profile: &'a RefCell<Vec<NodeProfile>>,
        affected: &'a Cell<u64>,
    ) -> Context<'a> {
        Context {
            catalog: self.catalog,
            view: self.view,
            transaction: self.transaction,
            session: self.session,
            parameters,
            slots,
            held: RefCell::default(),
            room: Cell::default(),
            cancel: self.cancel,
            subplans,
            profile,
            affected,
            work_bytes: self.work_bytes,
            read_only: self.read_only,
        }
    }
}

/// A statement that asks for one row by its whole primary key, for which there is a short way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// It evaluates nothing, so that it cannot ask when it began.
    pub plain: bool,
}

/// Whether a statement is one that asks for one row by its whole primary key.
pub fn as_point(statement: &Statement) -> Option<Point> {
    let simple = statement.slots == 0 && statement.subplans.is_empty();
    let select = simple.then(|| point::recognise(&statement.root)).flatten()?;
    Some(Point { plain: select.is_plain() })
}

/// Runs a statement that is [a point](as_point): the row, if there is one, is put into `out`. The turn is to be kept as long as the row is.
pub(crate) fn select_point(
    statement: &Statement,
    environment: &Environment<'_>,
    parameters: &[Value],
    turn: &mut StatementTurn,
    out: &mut Batch,
) -> Result<()> {
    out.reset(statement.root.columns.len());
    let Some(select) = point::recognise(&statement.root) else {
        return Err(crate::Error::internal("a statement that is no look-up of one row"));
    };
    environment.session.turn.run(turn, || {
        environment.run(parameters, |context| {
            context.check()?;
            select.run(context, out)
        })
    })
}

/// A started statement. It borrows nothing of its session, so that a portal can keep it between two calls; each call has to
/// come with the same view.
#[derive(Debug)]
pub struct Running {
    statement: Arc<Statement>,
    parameters: Vec<Value>,
    slots: RefCell<Vec<Made>>,
    subplans: Subplans,
    profile: RefCell<Vec<NodeProfile>>,
    affected: Cell<u64>,
    turn: StatementTurn,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not asked for anything yet.
    New,
    /// Under way.
    Open(Box<dyn Operator>),
    /// Run to its end; these are its rows.
    Settled(Box<SpillReader>),
    /// At its end: everything was given back.
    Done,
}

impl Running {
    /// Starts a statement; nothing happens before the first [`Running::next`]. `profiled`: counters for EXPLAIN ANALYZE are kept.
    pub fn new(statement: Arc<Statement>, parameters: Vec<Value>, profiled: bool) -> Self {
        let nodes = if profiled { statement.nodes } else { 0 };
        Running {
            slots: RefCell::new((0..statement.slots).map(|_| Made::default()).collect()),
            subplans: Subplans::new(&statement),
            profile: RefCell::new(vec![NodeProfile::default(); nodes]),
            affected: Cell::new(0),
            turn: StatementTurn::new(statement.writes),
            state: State::New,
            parameters,
            statement,
        }
    }

    /// Puts the next rows into `out`: at least one and at most `limit`; false when there are no more, or the statement gives none. After an error the
    /// statement is at its end.
    pub fn next(&mut self, environment: &Environment<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        let context =
            environment.context(&self.parameters, &self.slots, &self.subplans, &self.profile, &self.affected);
        let result = environment
            .session
            .turn
            .run(&mut self.turn, || advance(&mut self.state, &self.statement, &context, limit, out));
        if !matches!(result, Ok(true)) {
            self.state = State::Done;
            self.subplans = Subplans::default();
            self.turn = StatementTurn::default();
        }
        result
    }

    /// Runs the statement to its end and keeps the rows that it gives in a temporary file, from which [`Running::next`] takes them.
    pub fn settle(&mut self, environment: &Environment<'_>) -> Result<()> {
        let mut batch = Batch::new();
        let mut writer: Option<SpillWriter> = None;
        while self.next(environment, BATCH_ROWS, &mut batch)? {
            if writer.is_none() {
                writer = Some(SpillWriter::within(&environment.session.engine, environment.work_bytes)?);
            }
            for row in batch.iter() {
                writer.iter_mut().try_for_each(|writer| writer.push(row))?;
            }
        }
        if let Some(writer) = writer {
            let kept = environment.run(&[], |context| writer.finish(context, self.statement.root.id))?;
            self.state = State::Settled(Box::new(kept.reader()?));
        }
        Ok(())
    }

    /// The statement.
    pub fn statement(&self) -> &Arc<Statement> {
        &self.statement
    }

    /// Rows that the statement has inserted, changed or removed so far.
    pub fn affected(&self) -> u64 {
        self.affected.get()
    }

    /// Counters by node, where they were asked for.
    pub fn profile(&self) -> Vec<NodeProfile> {
        self.profile.borrow().clone()
    }
}

fn advance(
    state: &mut State,
    statement: &Statement,
    context: &Context<'_>,
    limit: usize,
    out: &mut Batch,
) -> Result<bool> {
    context.check()?;
    if let State::New = state {
        if let Some(select) =
            point::recognise(&statement.root).filter(|_| context.profile.borrow().is_empty())
        {
            *state = State::Done;
            out.reset(statement.root.columns.len());
            select.run(context, out)?;
            return Ok(!out.is_empty());
        }
        *state = State::Open(open(&statement.root, context)?);
    }
    match state {
        State::Open(root) => root.next(context, limit, out),
        State::Settled(rows) => {
            out.reset(statement.root.columns.len());
            while out.has_room(context, limit)? && out.push_with(|values| rows.next_into(values))? {}
            Ok(!out.is_empty())
        }
        State::New | State::Done => {
            out.reset(statement.root.columns.len());
            Ok(false)
        }
    }
}
