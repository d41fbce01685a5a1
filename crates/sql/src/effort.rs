//! What the binder and the planner make of one statement, counted, so that a short text that comes to very much is ended in time.
//!
//! Expressions and columns multiply where parts of a statement are put in each other's place: `*` and whole rows, definitions of computed
//! columns, operands that are written once and needed twice. Whoever makes or copies them says so by [`made`]. Every so many of
//! them it looks whether the statement is to end, and charges their memory to the budget; there is a limit besides.
//!
//! The counter is the thread's, from [`begin`] until what that gives is dropped. A statement is bound and planned by one thread,
//! and what it is made of is made in too many places to hand a counter to all of them. Without a counter nothing is limited: that
//! is so for statements that the system has written itself.

use crate::bind::{self, Parsed};
use crate::session::Interrupt;
use crate::{Error, Result, SqlState};
use gannet_base::memory::Purpose;
use gannet_store::{Engine, WorkMemory};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// After so many nodes the interrupt is looked at, and memory charged.
const STEP: usize = 4096;
/// Bytes of a node, or of a column with its name, until there is a plan of it, about.
const NODE_BYTES: u64 = 256;
/// Nodes of a statement, at most, those left out that its text has one by one.
const MOST: u64 = 4 << 20;

thread_local! {
    /// Nodes that the meter was not told of yet.
    static UNTOLD: Cell<usize> = const { Cell::new(0) };
    static METER: RefCell<Option<Meter>> = const { RefCell::new(None) };
}

/// The counter of a statement.
#[derive(Debug)]
struct Meter {
    engine: Engine,
    interrupt: Interrupt,
    statement: Option<Arc<Parsed>>,
    /// Nodes that are charged with the text, see [`bind::weight`]. Known once it is first needed.
    covered: Option<u64>,
    nodes: u64,
    memory: Option<WorkMemory>,
}

/// Counts as long as it lives. What was counted before goes on then.
#[derive(Debug)]
#[must_use = "it counts no longer than it lives"]
pub(crate) struct Counting {
    before: Option<Meter>,
    untold: usize,
}

/// Begins to count what is made of a statement.
pub(crate) fn begin(engine: &Engine, interrupt: &Interrupt, statement: Option<&Arc<Parsed>>) -> Counting {
    let meter = Meter {
        engine: engine.clone(),
        interrupt: interrupt.clone(),
        statement: statement.cloned(),
        covered: None,
        nodes: 0,
        memory: None,
    };
    Counting { before: METER.replace(Some(meter)), untold: UNTOLD.replace(0) }
}

impl Counting {
    /// Bytes of memory that were charged.
    pub(crate) fn bytes(&self) -> u64 {
        METER.with_borrow(|meter| meter.as_ref()?.memory.as_ref().map(WorkMemory::bytes)).unwrap_or(0)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        UNTOLD.set(self.untold);
        // Memory is given back once nobody holds the meter.
        let _ = METER.replace(self.before.take());
    }
}

/// So many nodes of expressions, or columns, are made or were made. An error when the statement is to end, or comes to too much; it
/// comes again with the next call, so that whoever cannot pass it on may leave it to who can.
pub(crate) fn made(nodes: usize) -> Result<()> {
    let untold = UNTOLD.get().saturating_add(nodes);
    UNTOLD.set(untold);
    if untold < STEP { Ok(()) } else { look() }
}

/// An error when the statement is to end, or has come to too much.
pub(crate) fn look() -> Result<()> {
    let told = METER.with_borrow_mut(|meter| match meter {
        Some(meter) => meter.count(UNTOLD.take()),
        None => {
            UNTOLD.set(0);
            Ok(())
        }
    });
    if told.is_err() {
        UNTOLD.set(STEP);
    }
    told
}

impl Meter {
    fn count(&mut self, nodes: usize) -> Result<()> {
        self.nodes = self.nodes.saturating_add(nodes as u64);
        self.interrupt.check()?;
        if self.nodes < STEP as u64 {
            return Ok(());
        }
        let covered = *self.covered.get_or_insert_with(|| {
            self.statement.as_ref().map_or(0, |statement| bind::weighed_tokens(&statement.text))
        });
        let more = self.nodes.saturating_sub(covered);
        if more > MOST {
            let detail = format!(
                "Once its columns and the definitions of its columns are in their places, it has more than {MOST} parts."
            );
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is too complex")
                .detail(detail)
                .hint("Name fewer columns, or keep the result of a subquery in a table."));
        }
        let bytes = more * NODE_BYTES;
        let charged = match &mut self.memory {
            Some(memory) => memory.grow(bytes.saturating_sub(memory.bytes())),
            None if more < STEP as u64 => Ok(()),
            None => self.engine.memory(Purpose::Work, bytes).map(|memory| self.memory = Some(memory)),
        };
        charged.map_err(|error| {
            Error::from(error)
                .detail(format!("To plan this statement takes more than {bytes} bytes of memory."))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Reason;
    use gannet_store::EngineOptions;

    fn engine(memory: u64) -> Engine {
        Engine::new(&EngineOptions { memory, temp_folder: None }).unwrap()
    }

    /// Nodes until there is an error, and its state.
    fn until_refused() -> (usize, &'static str) {
        let steps = (0..).find_map(|step| made(STEP).err().map(|error| (step, error.state().0)));
        let (steps, state) = steps.unwrap();
        (steps * STEP, state)
    }

    #[test]
    fn what_comes_to_too_much_is_refused_and_stays_so() {
        let large = engine(4 << 30);
        {
            let _counting = begin(&large, &Interrupt::default(), None);
            assert_eq!(until_refused(), (MOST as usize, "54001"));
            assert_eq!(made(0).unwrap_err().state().0, "54001", "whoever comes next is told, too");
        }
        assert!(made(STEP).is_ok() && large.budget().used() < 1 << 30, "nothing is left of it");
        let small = engine(32 << 20);
        let _counting = begin(&small, &Interrupt::default(), None);
        let (nodes, state) = until_refused();
        assert!(nodes <= (32 << 20) / NODE_BYTES as usize && state == "53200", "{nodes} {state}");
    }

    #[test]
    fn a_statement_within_a_statement_counts_for_itself() {
        let engine = engine(32 << 20);
        let interrupt = Interrupt::default();
        let _outer = begin(&engine, &Interrupt::default(), None);
        assert!(made(STEP / 2).is_ok());
        {
            let _inner = begin(&engine, &interrupt, None);
            interrupt.begin();
            interrupt.interrupt(Reason::User);
            assert!(made(STEP / 2).is_ok(), "it does not look all the time");
            assert_eq!(made(STEP / 2).unwrap_err().state().0, "57014");
        }
        assert!(made(STEP).is_ok());
    }
}
