//! Prepared statements and portals.

use super::PlannerSettings;
use super::client::{CommandTag, OutputColumn};
use super::sizes::PlannedSizes;
use super::statement::Running;
use crate::bind::Parsed;
use crate::catalog::{Catalog, Oid};
use crate::exec::Point;
use crate::physical::Statement;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_base::memory::Purpose;
use gannet_store::{Engine, WorkMemory};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Bytes that a prepared statement takes for each byte of its text, about.
pub(super) const BYTES_PER_BYTE: u64 = 40;
/// Bytes that each column takes that it gives, in its plan and in what clients are told, about.
const BYTES_PER_COLUMN: u64 = 400;
/// Bytes that any prepared statement takes, about.
pub(super) const BYTES_AT_LEAST: u64 = 4096;
/// Bytes that a portal takes besides its values, about.
const PORTAL_BYTES: u64 = 1024;
/// Part of the budget that prepared statements, and portals, of one session may take.
const SHARE: u64 = 10;
/// What an operator of a portal that waits to go on takes, about: its expressions, and rows that it has read ahead.
const OPERATOR_BYTES: u64 = 16 << 10;
/// So many that wait to go on there may be in any case, as far as their operators count.
const WAITING_LEAST: u64 = 8;

/// A prepared statement.
#[derive(Debug)]
pub struct Prepared {
    /// The statement; `None` for an empty text.
    pub(super) parsed: Option<Arc<Parsed>>,
    /// Types of its parameters.
    pub(super) parameters: Vec<Type>,
    /// Columns of its result; `None` where it gives no rows.
    pub(super) columns: Option<Arc<[OutputColumn]>>,
    /// The plan, and the version of the definitions it was made with.
    pub(super) plan: Option<Planned>,
}

/// A plan and what it was made with.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) statement: Arc<Statement>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) settings: PlannerSettings,
    /// It asks for one row by its whole primary key.
    pub(super) point: Option<Point>,
    /// A literal says 'now' or the like: the plan is for those who have it, not for whoever comes later.
    pub(super) of_the_moment: bool,
    pub(super) sizes: Arc<PlannedSizes>,
    /// Tables whose definitions it needs as they are.
    pub(super) written: Vec<Oid>,
    /// Bytes that it takes, about, beyond what its text lets expect.
    pub(super) bytes: u64,
}

impl Prepared {
    /// Types of its parameters.
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// Columns of its result; `None` where it gives no rows.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        self.columns.as_deref()
    }

    /// Version of the definitions that its plan was made with.
    pub(super) fn catalog_version(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| plan.catalog.version)
    }

    /// Bytes of its plan beyond what its text lets expect.
    pub(super) fn plan_bytes(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| plan.bytes)
    }

    #[cfg(test)]
    pub(super) fn empty(version: u64) -> Self {
        use crate::physical::{Estimate, Node, Plan};
        let root = Plan { id: 0, node: Node::One, columns: Vec::new(), estimate: Estimate::default() };
        let statement = Statement {
            root,
            subplans: Vec::new(),
            slots: 0,
            nodes: 1,
            output: Vec::new(),
            writes: false,
            targets: Vec::new(),
            locked: Vec::new(),
        };
        let catalog = Arc::new(Catalog { version, ..Catalog::default() });
        let plan = Some(Planned {
            statement: Arc::new(statement),
            catalog,
            settings: PlannerSettings::new(0, 0),
            sizes: Arc::default(),
            point: None,
            written: Vec::new(),
            of_the_moment: false,
            bytes: 0,
        });
        Prepared { parsed: None, parameters: Vec::new(), columns: None, plan }
    }
}

/// Formats of parameters, or of a portal's columns for whoever gives its rows to a client.
#[derive(Clone, Debug, Default)]
pub enum Formats {
    /// All are text.
    #[default]
    Text,
    /// All are binary.
    Binary,
    /// Those that are true are binary.
    Each(Arc<[bool]>),
}

impl Formats {
    /// Whether the one at this place is binary.
    pub fn is_binary(&self, index: usize) -> bool {
        match self {
            Formats::Text => false,
            Formats::Binary => true,
            Formats::Each(each) => each.get(index) == Some(&true),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Formats::Text | Formats::Binary => 0,
            Formats::Each(each) => size_of_val(&**each),
        }
    }
}

/// A statement with values for its parameters, about to run, or running.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) parameters: Vec<Value>,
    pub(super) formats: Formats,
    pub(super) progress: Progress,
    /// Savepoints that the transaction had when it was made.
    pub(super) savepoints: usize,
    /// Bytes that it is charged as beyond its own, since it has begun and waits to go on.
    pub(super) waiting_bytes: u64,
}

/// Values for a statement's parameters, and their types.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Parameters<'p> {
    pub(super) types: &'p [Type],
    pub(super) values: &'p [Value],
}

impl Portal {
    /// It has come to its end, as the tag says. One without rows cannot be run again.
    pub(super) fn end(&mut self, tag: &CommandTag) {
        let again = CommandTag { command: tag.command, rows: tag.rows.map(|_| 0) };
        self.progress = Progress::Done(self.prepared.columns.is_some().then_some(again));
    }

    fn bytes(&self) -> u64 {
        let values =
            self.parameters.iter().map(|value| size_of::<Value>() + value.heap_bytes()).sum::<usize>();
        PORTAL_BYTES + (values + self.formats.heap_bytes()) as u64
    }
}

impl Prepared {
    fn bytes(&self) -> u64 {
        let text = self.parsed.as_ref().map_or(0, |parsed| parsed.text.len());
        // Views show its parameters, and have them for themselves.
        let parameters = 2 * self.parameter_bytes();
        BYTES_AT_LEAST + text as u64 * BYTES_PER_BYTE + parameters + self.column_bytes() + self.plan_bytes()
    }

    /// What the types of its parameters take: a client may declare many that the text does not have.
    pub(super) fn parameter_bytes(&self) -> u64 {
        size_of_val(&*self.parameters) as u64
    }

    /// What the columns take that it gives: of a table, or of all that are joined, they may be many more than its text has bytes.
    pub(super) fn column_bytes(&self) -> u64 {
        self.columns.as_ref().map_or(0, |columns| columns.len() as u64 * BYTES_PER_COLUMN)
    }
}

/// Things of a session by name, whose memory is part of the budget.
#[derive(Debug)]
pub(super) struct Named<T> {
    /// With the bytes each was charged as.
    by_name: HashMap<String, (T, u64)>,
    /// The one whose name is empty, which clients use most.
    unnamed: Option<(T, u64)>,
    /// Those that have lost their names, and are used still.
    nameless: Vec<(T, u64)>,
    memory: Option<WorkMemory>,
    bytes: u64,
    /// What they are, for the error.
    what: &'static str,
}

impl Named<Arc<Prepared>> {
    /// Prepared statements.
    pub(super) fn statements() -> Self {
        Named::new("prepared statements")
    }

    pub(super) fn put(&mut self, engine: &Engine, name: &str, prepared: Arc<Prepared>) -> Result<()> {
        let bytes = prepared.bytes();
        self.insert(engine, name, prepared, bytes)
    }

    /// Closes the one of this name, if there is one: what a portal is made of stays charged as long as that is there.
    pub(super) fn close(&mut self, name: &str, portals: &Named<Portal>) {
        let closed = self.take(name);
        self.closed(closed, portals);
    }

    /// The same for all of them.
    pub(super) fn close_all(&mut self, portals: &Named<Portal>) {
        let named = std::mem::take(&mut self.by_name).into_values();
        let all: Vec<_> = named.chain(self.unnamed.take()).collect();
        self.closed(all, portals);
    }

    fn closed(&mut self, closed: impl IntoIterator<Item = (Arc<Prepared>, u64)>, portals: &Named<Portal>) {
        for (prepared, bytes) in closed {
            // One that had several names is there once.
            if self.nameless.iter().any(|(known, _)| Arc::ptr_eq(known, &prepared)) {
                self.release(bytes);
            } else {
                self.nameless.push((prepared, bytes));
            }
        }
        self.settle(portals);
    }

    /// Forgets closed ones of which there is no portal any more.
    pub(super) fn settle(&mut self, portals: &Named<Portal>) {
        if self.nameless.is_empty() {
            return;
        }
        let used: HashSet<_> = portals.values().map(|portal| Arc::as_ptr(&portal.prepared)).collect();
        let gone = self.nameless.extract_if(.., |(prepared, _)| !used.contains(&Arc::as_ptr(prepared)));
        let bytes = gone.map(|(_, bytes)| bytes).sum();
        self.release(bytes);
    }
}

impl Named<Portal> {
    /// Charges a portal that waits to go on as what it has then: the rows that it has not given yet, and its operators, about.
    pub(super) fn charge_waiting(&mut self, engine: &Engine, name: &str) -> Result<()> {
        let Some(portal) = self.get(name) else { return Ok(()) };
        let now = match &portal.progress {
            Progress::Running(running) => {
                let nodes = portal.prepared.plan.as_ref().map_or(0, |plan| plan.statement.nodes);
                let about = portal.prepared.plan_bytes() + nodes as u64 * OPERATOR_BYTES;
                // However many operators it has, there may be some such portals.
                running.waiting_bytes() + about.min(engine.budget().limit() / SHARE / WAITING_LEAST)
            }
            Progress::Made(made) => made.bytes(),
            Progress::Ready | Progress::Done(_) => 0,
        };
        let more = now.saturating_sub(portal.waiting_bytes);
        if more == 0 {
            return Ok(());
        }
        self.charge(engine, more)?;
        if let Some((portal, bytes)) = self.entry(name) {
            portal.waiting_bytes += more;
            *bytes += more;
        }
        Ok(())
    }

    /// Gives back what one was charged as while it waited.
    pub(super) fn release_waiting(&mut self, name: &str) {
        let Some((portal, bytes)) = self.entry(name) else { return };
        let less = std::mem::take(&mut portal.waiting_bytes);
        *bytes -= less;
        if less > 0 {
            self.release(less);
        }
    }

    /// Portals.
    pub(super) fn portals() -> Self {
        Named::new("portals")
    }

    pub(super) fn put(&mut self, engine: &Engine, name: &str, portal: Portal) -> Result<()> {
        let bytes = portal.bytes();
        self.insert(engine, name, portal, bytes)
    }

    /// Forgets those that were made when there were more savepoints than so many; `None`: all. The others go on: a view from before a savepoint shows
    /// nothing of what was taken back since.
    pub(super) fn forget_behind(&mut self, savepoints: Option<usize>) {
        let Some(savepoints) = savepoints else { return self.clear() };
        let is_behind = |portal: &Portal| portal.savepoints > savepoints;
        if self.unnamed.as_ref().is_some_and(|(portal, _)| is_behind(portal)) {
            self.remove("");
        }
        let gone = self.by_name.extract_if(|_, (portal, _)| is_behind(portal));
        let bytes = gone.map(|(_, (_, bytes))| bytes).sum();
        self.release(bytes);
    }
}

impl<T> Named<T> {
    fn new(what: &'static str) -> Self {
        Named { by_name: HashMap::new(), unnamed: None, nameless: Vec::new(), memory: None, bytes: 0, what }
    }

    /// Replaces what has the name. 53200 where the budget has no room, or the session has taken its part of it.
    fn insert(&mut self, engine: &Engine, name: &str, value: T, bytes: u64) -> Result<()> {
        self.remove(name);
        let bytes = bytes + 2 * name.len() as u64;
        self.charge(engine, bytes)?;
        if name.is_empty() {
            self.unnamed = Some((value, bytes));
        } else {
            self.by_name.insert(name.to_owned(), (value, bytes));
        }
        Ok(())
    }

    fn charge(&mut self, engine: &Engine, bytes: u64) -> Result<()> {
        let most = engine.budget().limit() / SHARE;
        if self.bytes + bytes > most {
            return Err(Error::new(
                SqlState::OUT_OF_MEMORY,
                format!("the session's {} would take more than {most} bytes", self.what),
            )
            .hint("Close those that are not needed, or give the server more memory."));
        }
        match &mut self.memory {
            Some(memory) => memory.grow(bytes)?,
            None => self.memory = Some(engine.memory(Purpose::Sessions, bytes)?),
        }
        self.bytes += bytes;
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let found = if name.is_empty() { self.unnamed.as_ref() } else { self.by_name.get(name) };
        found.map(|(value, _)| value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.entry(name).map(|(value, _)| value)
    }

    fn entry(&mut self, name: &str) -> Option<&mut (T, u64)> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.by_name.get_mut(name) }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_name.values().chain(&self.unnamed).map(|(value, _)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.by_name.values_mut().chain(&mut self.unnamed).map(|(value, _)| value)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Nothing happens when there is none of this name.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some((_, bytes)) = self.take(name) {
            self.release(bytes);
        }
    }

    /// What has the name has it no more; it is still charged.
    fn take(&mut self, name: &str) -> Option<(T, u64)> {
        if name.is_empty() { self.unnamed.take() } else { self.by_name.remove(name) }
    }

    fn release(&mut self, bytes: u64) {
        self.bytes -= bytes;
        if let Some(memory) = &mut self.memory {
            memory.shrink_to(self.bytes);
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_name.clear();
        self.nameless.clear();
        self.unnamed = None;
        self.memory = None;
        self.bytes = 0;
    }
}

/// Rows that a statement has made at once, as far as they were not given yet.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) columns: Vec<OutputColumn>,
    pub(super) rows: VecDeque<Vec<Value>>,
    /// What the last one is followed by.
    pub(super) tag: CommandTag,
}

impl Made {
    fn bytes(&self) -> u64 {
        let of = |row: &Vec<Value>| {
            size_of::<Vec<Value>>()
                + row.iter().map(|value| size_of::<Value>() + value.heap_bytes()).sum::<usize>()
        };
        self.rows.iter().map(of).sum::<usize>() as u64
    }
}

/// How far a portal has come.
#[derive(Debug)]
pub(super) enum Progress {
    /// Not begun.
    Ready,
    /// Under way: it gave some rows, and there may be more.
    Running(Box<Running>),
    /// All rows are there, and some of them were given.
    Made(Made),
    /// All rows were given, and this is what the next call ends with, which gives none. `None`: it never gave rows, is under way just now, or has failed.
    Done(Option<CommandTag>),
}
