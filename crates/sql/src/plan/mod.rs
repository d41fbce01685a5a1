//! Planning: from what a statement means to how it is run, by cost.
//!
//! # The way of a statement
//! 1. `normal`, `simplify`: expressions are simplified, subqueries merged into the query around them or made joins.
//! 2. `reduce`, `anti`: outer joins become inner ones or anti joins where they may; columns that nobody asks for go.
//! 3. `region`, `join`, `access`, `search`, `lookup`, `order`, `rels`: candidates with their costs, from the tables up. A candidate is kept if none is better in cost, start
//!    and order all together.
//! 4. `build`, `compile`: the cheapest one becomes a [`Statement`], in which columns are positions; `check` verifies it in debug builds.
//!
//! `explain` writes a plan down for people.

use crate::bind::Bound;
use crate::catalog::{Catalog, Oid, Table};
use crate::logical::{ColumnId, ColumnInfo, Columns, Common, Planned, Rel, Scalar, walk};
use crate::physical::{Expr, Statement};
use crate::session::PlannerSettings;
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Result, effort};
use columns::ColumnSet;
use path::{Leaf, PathRef};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod access;
mod anti;
mod build;
mod check;
mod columns;
mod compile;
mod cost;
mod deparse;
pub mod explain;
mod join;
mod lookup;
mod normal;
mod order;
mod path;
mod pushdown;
mod reduce;
mod region;
mod rels;
mod scalar;
mod search;
mod selectivity;
mod simplify;
mod statement;

#[cfg(test)]
mod tests;

/// What the planner asks about the data.
pub trait Estimator {
    /// About how many rows a table has.
    fn rows(&self, table: &crate::catalog::Table) -> f64;
    /// About how many leaf pages a tree has, by the name of its storage.
    fn pages(&self, storage: &crate::catalog::Storage) -> f64;
    /// The value of an expression that takes nothing from outside: of immutable functions to be put in its place, of stable ones to be
    /// estimated with. `None` where it cannot be computed, or fails.
    fn constant(&self, expr: &Expr) -> Option<Value> {
        let _ = expr;
        None
    }
}

/// Plans a bound statement.
pub fn plan(
    bound: Bound,
    catalog: &Arc<Catalog>,
    settings: &PlannerSettings,
    estimator: &dyn Estimator,
) -> Result<Statement> {
    let Bound { planned, columns, .. } = bound;
    let mut planner = Planner {
        columns,
        catalog,
        settings,
        estimator,
        used: ColumnSet::new(),
        known: Known::default(),
        table_sizes: RefCell::new(Vec::new()),
        tree_sizes: RefCell::new(Vec::new()),
        distincts: RefCell::new(HashMap::new()),
        leaves: Vec::new(),
        commons: Vec::new(),
        identities: Vec::new(),
        aliases: Vec::new(),
    };
    let statement = match planned {
        Planned::Query(query) => planner.query(query),
        Planned::Insert(insert) => planner.insert(insert),
        Planned::Update(update) => planner.update(update),
        Planned::Delete(delete) => planner.delete(delete),
    }?;
    effort::look()?;
    if cfg!(debug_assertions) {
        check::statement(&statement)?;
    }
    Ok(statement)
}

/// A table whose rows are changed or locked, and the columns that its rows' identities are given in.
#[derive(Clone, Copy, Debug)]
struct Identity {
    table: Oid,
    first_column: Option<ColumnId>,
    key: ColumnId,
    row: ColumnId,
}

/// What is known of the rows of the relation that is being planned. It grows on the way up; a relation that is planned twice must
/// not see what became known above it.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Columns that have one value in all rows.
    constants: ColumnSet,
    /// Columns that equal another one.
    equal_to: HashMap<ColumnId, ColumnId>,
}

/// What is known while a statement is planned.
struct Planner<'a> {
    columns: Columns,
    catalog: &'a Arc<Catalog>,
    settings: &'a PlannerSettings,
    estimator: &'a dyn Estimator,
    /// Columns of tables that the statement uses.
    used: ColumnSet,
    known: Known,
    table_sizes: RefCell<Vec<(Oid, f64)>>,
    /// Leaf pages of trees, by the place of their definition.
    tree_sizes: RefCell<Vec<(usize, f64)>>,
    /// Different values of columns, where they have been asked for.
    distincts: RefCell<HashMap<ColumnId, f64>>,
    leaves: Vec<Rc<Leaf>>,
    /// WITH queries that are computed once, as far as they were planned.
    commons: Vec<(Arc<Common>, PathRef)>,
    identities: Vec<Identity>,
    /// Names in front of columns, where the statement has several tables.
    aliases: Vec<(ColumnSet, String)>,
}

impl Planner<'_> {
    fn new_column(&mut self, name: String, ty: Type) -> ColumnId {
        self.columns.add(ColumnInfo { name, ty, modifier: NO_MODIFIER, origin: None, nullable: true })
    }

    /// Asks for the identity of a table's rows.
    fn want_identity(&mut self, table: Oid, first: Option<ColumnId>) {
        if self.identity(table, first).is_some() {
            return;
        }
        let key = self.new_column("key".to_owned(), Type::Bytea);
        let row = self.new_column("row".to_owned(), Type::Bytea);
        self.identities.push(Identity { table, first_column: first, key, row });
    }

    fn identity(&self, table: Oid, first: Option<ColumnId>) -> Option<(ColumnId, ColumnId)> {
        let found = self.identities.iter().find(|known| known.table == table && known.first_column == first);
        found.map(|known| (known.key, known.row))
    }

    fn is_identity(&self, id: ColumnId) -> bool {
        self.identities.iter().any(|known| known.key == id || known.row == id)
    }

    /// A table as it stands in the query.
    fn leaf(&mut self, table: &Arc<Table>, alias: &str, columns: &[ColumnId]) -> Rc<Leaf> {
        let known = self.leaves.iter().find(|leaf| leaf.table.oid == table.oid && leaf.columns == columns);
        if let Some(leaf) = known {
            return leaf.clone();
        }
        let identity = self.identity(table.oid, columns.first().copied());
        let (table, alias) = (table.clone(), alias.to_owned());
        let leaf = Rc::new(Leaf { table, alias, columns: columns.to_vec(), identity });
        self.leaves.push(leaf.clone());
        leaf
    }

    /// The table that a column is of.
    fn leaf_of(&self, column: ColumnId) -> Option<Rc<Leaf>> {
        self.leaves.iter().find(|leaf| leaf.columns.contains(&column)).cloned()
    }

    /// The column that stands for all that are equal to this one.
    fn representative(&self, mut column: ColumnId) -> ColumnId {
        while let Some(other) = self.known.equal_to.get(&column) {
            column = *other;
        }
        column
    }

    fn equal(&self, a: ColumnId, b: ColumnId) -> bool {
        a == b || self.representative(a) == self.representative(b)
    }

    fn is_constant(&self, column: ColumnId) -> bool {
        self.known.constants.contains(column)
            || !self.known.equal_to.is_empty() && self.known.constants.contains(self.representative(column))
    }

    /// Notes that columns are equal in all rows.
    fn note_equal(&mut self, columns: &[ColumnId], constant: bool) {
        let Some(first) = columns.first() else { return };
        for other in &columns[1..] {
            let (a, b) = (self.representative(*first), self.representative(*other));
            if a != b {
                self.known.equal_to.insert(b, a);
            }
        }
        if constant {
            columns.iter().for_each(|column| self.known.constants.insert(*column));
            let all = self.representative(*first);
            self.known.constants.insert(all);
        }
    }

    /// A column's name for people, with its table where there are several.
    fn display_name(&self, column: ColumnId) -> String {
        let name = &self.columns.get(column).name;
        match self.aliases.iter().find(|(columns, _)| columns.contains(column)) {
            Some((_, alias)) => format!("{alias}.{name}"),
            None => name.clone(),
        }
    }

    /// Notes under which names columns are known.
    fn note_aliases(&mut self, rel: &Rel) -> Result<()> {
        let mut aliases = Aliases::default();
        aliases.rel(rel)?;
        let found = aliases.found;
        if found.iter().any(|(_, alias)| *alias != found[0].1) {
            self.aliases = found;
        }
        Ok(())
    }
}

/// Names in front of columns, while they are gathered.
#[derive(Default)]
struct Aliases {
    found: Vec<(ColumnSet, String)>,
    /// WITH queries that were gone through, each of which may be used at many places.
    seen: HashSet<*const Common>,
}

impl Aliases {
    fn rel(&mut self, rel: &Rel) -> Result<()> {
        effort::made(1)?;
        match rel {
            Rel::Table { alias, columns, .. } | Rel::System { alias, columns, .. } => {
                self.found.push((columns.iter().copied().collect(), alias.clone()));
            }
            Rel::Common { common, alias, columns } => {
                if self.seen.insert(Arc::as_ptr(common)) {
                    self.rel(&common.query.rel)?;
                }
                // Used once it is no relation of its own.
                if common.uses.load(Ordering::Relaxed) > 1 {
                    self.found.push((columns.iter().copied().collect(), alias.clone()));
                }
            }
            _ => {}
        }
        let mut result = Ok(());
        walk::scalars(rel, &mut |scalar| {
            if result.is_ok() {
                result = self.scalar(scalar);
            }
        });
        walk::inputs(rel, &mut |input| {
            if result.is_ok() {
                result = self.rel(input);
            }
        });
        result
    }

    fn scalar(&mut self, scalar: &Scalar) -> Result<()> {
        let mut result = match scalar {
            Scalar::Subquery(subquery) => self.rel(&subquery.query.rel),
            _ => Ok(()),
        };
        walk::parts(scalar, &mut |part| {
            if result.is_ok() {
                result = self.scalar(part);
            }
        });
        result
    }
}
