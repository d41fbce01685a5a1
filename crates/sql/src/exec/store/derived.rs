//! Defaults and CHECK constraints of a table that the statement's plan knows nothing of, since a foreign key leads there.

use super::super::Context;
use crate::bind::{self, Scope};
use crate::catalog::{Storage, Table};
use crate::physical::{Expr, Node};
use crate::plan::{self, Estimator};
use crate::session::PlannerSettings;
use crate::{Error, Result};
use std::cell::Cell;

/// What a new row of a table is made with.
#[derive(Debug)]
pub(super) struct Derived {
    /// The default of each column.
    pub(super) defaults: Vec<Expr>,
    /// CHECK constraints by name, over a row.
    pub(super) checks: Vec<(String, Expr)>,
}

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
            Node::Insert { values, checks, .. } => Ok(Derived { defaults: values, checks }),
            _ => Err(Error::internal("the plan of an INSERT is none")),
        }
    }
}
