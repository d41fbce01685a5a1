//! Defaults and CHECK constraints of a table that the statement's plan knows nothing of, since a foreign key leads there.

use super::super::Context;
use crate::bind::{self, Scope};
use crate::catalog::{Storage, Table};
use crate::physical::{Checks, Expr, Insert, Node};
use crate::plan::{self, Estimator};
use crate::session::PlannerSettings;
use crate::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;

/// What a new row of a table is made with.
#[derive(Debug)]
pub(super) struct Derived(Arc<Insert>);

/// Nobody knows how large anything is, and it does not matter.
struct Unknown;

impl Estimator for Unknown {
    fn rows(&self, _: &Table) -> f64 {
        0.0
    }

    fn pages(&self, _: &Storage) -> f64 {
        0.0
    }
}

impl Derived {
    /// The default of each column.
    pub(super) fn defaults(&self) -> &[Expr] {
        &self.0.values
    }

    /// CHECK constraints, over a row.
    pub(super) fn checks(&self) -> &Checks {
        &self.0.checks
    }

    /// Works them out as an INSERT without values would.
    pub(super) fn new(context: &Context<'_>, table: &Table) -> Result<Self> {
        let scope = Scope {
            catalog: context.catalog,
            style: &context.session.style,
            database: &context.session.database,
            user: &context.session.user,
            of_the_moment: Cell::default(),
        };
        let text = format!("insert into public.\"{}\" default values", table.name.replace('"', "\"\""));
        let parsed = bind::parse(&text)?;
        let parsed = parsed.first().ok_or_else(|| Error::internal("an INSERT that is none"))?;
        let bound = bind::bind(&scope, parsed, &[])?;
        let engine = &context.session.engine;
        let settings = PlannerSettings {
            seqscan: true,
            indexscan: true,
            indexonlyscan: true,
            sort: true,
            hashagg: true,
            hashjoin: true,
            nestloop: true,
            look_ahead: true,
            cache_bytes: engine.budget().limit(),
            work_bytes: engine.work_limit(),
        };
        match plan::plan(bound, context.catalog, &settings, &Unknown)?.root.node {
            Node::Insert { insert, .. } => Ok(Derived(insert)),
            _ => Err(Error::internal("the plan of an INSERT is none")),
        }
    }
}
