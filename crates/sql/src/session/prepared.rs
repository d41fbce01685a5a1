//! Prepared statements and portals.

use super::client::OutputColumn;
use super::sizes::PlannedSizes;
use super::statement::Running;
use crate::bind::Parsed;
use crate::catalog::Catalog;
use crate::physical::Statement;
use crate::{Type, Value};
use std::sync::Arc;

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
    /// It asks for one row by its whole primary key.
    pub(super) point: bool,
    pub(super) sizes: Arc<PlannedSizes>,
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
        };
        let catalog = Arc::new(Catalog { version, ..Catalog::default() });
        let plan =
            Some(Planned { statement: Arc::new(statement), catalog, sizes: Arc::default(), point: false });
        Prepared { parsed: None, parameters: Vec::new(), columns: None, plan }
    }
}

/// A statement with values for its parameters, about to run, or running.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) parameters: Vec<Value>,
    pub(super) progress: Progress,
}

/// How far a portal has come.
#[derive(Debug)]
pub(super) enum Progress {
    /// Not begun.
    Ready,
    /// Under way: it gave some rows, and there may be more.
    Running(Box<Running>),
    /// All rows were given, or it failed.
    Done,
}
