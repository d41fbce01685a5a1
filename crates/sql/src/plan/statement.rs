//! Whole statements: queries, and what changes rows.

use super::Planner;
use super::build::Builder;
use super::columns::{ColumnSet, add_columns};
use super::normal::Normaliser;
use super::path::{Leaf, PathRef, Wanted, cheapest};
use super::reduce;
use super::scalar::Substitution;
use super::simplify::Simplifier;
use crate::catalog::{Oid, Table};
use crate::logical::walk::{inputs, parts, scalars};
use crate::logical::{ColumnId, Common, Delete, Insert, InsertValue, Output, Query, Rel, Scalar, Update};
use crate::physical::{self, Checks, Estimate, Expr, Node, Plan, PlanColumn, PlanOutput, Statement};
use crate::{Error, Result, effort};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

/// RETURNING.
type Returning = Option<Vec<(Output, Scalar)>>;

impl Planner<'_> {
    /// SELECT and its kin.
    pub(super) fn query(&mut self, mut query: Query) -> Result<Statement> {
        let outputs: Vec<ColumnId> = query.output.iter().map(|output| output.column).collect();
        let required = outputs.iter().copied().collect();
        self.prepare(&mut query.rel, &outputs, &required, &mut [])?;
        let output = query.output.iter().map(|output| self.output(output)).collect();
        let paths = self.paths(&query.rel, &Wanted::default())?;
        let best = cheapest(&paths).ok_or_else(|| Error::internal("no plan"))?.clone();
        let writes = !self.identities.is_empty();
        let mut builder = Builder::new(self);
        let root = builder.prefixed(&best, &outputs)?;
        Ok(finish(builder, root, output, writes, Vec::new()))
    }

    /// The best plan of a query within the statement that takes nothing from outside, and of which the statement sees only the rows.
    pub(super) fn apart(&mut self, query: &Query) -> Result<PathRef> {
        let mut rel = query.rel.clone();
        let outputs: Vec<ColumnId> = query.output.iter().map(|output| output.column).collect();
        let required = outputs.iter().copied().collect();
        let known = std::mem::take(&mut self.known);
        let used = std::mem::take(&mut self.used);
        self.reduced(&mut rel, &outputs, &required, &mut [])?;
        self.used.add(&used);
        let paths = self.paths(&rel, &Wanted::default())?;
        self.known = known;
        cheapest(&paths).cloned().ok_or_else(|| Error::internal("no plan"))
    }

    /// The passes before candidates are made. `exprs`: the statement's other expressions. Of the relation `required` is wanted.
    fn prepare(
        &mut self,
        rel: &mut Rel,
        exposed: &[ColumnId],
        required: &ColumnSet,
        exprs: &mut [&mut Scalar],
    ) -> Result<()> {
        let mut queries = vec![&*rel];
        exprs.iter().for_each(|scalar| subquery_rels(scalar, &mut queries));
        self.lock_identities(queries)?;
        self.note_aliases(rel)?;
        self.reduced(rel, exposed, required, exprs)
    }

    /// [`Planner::prepare`], without what is gathered of the whole statement.
    fn reduced(
        &mut self,
        rel: &mut Rel,
        exposed: &[ColumnId],
        required: &ColumnSet,
        exprs: &mut [&mut Scalar],
    ) -> Result<()> {
        let mut normaliser = Normaliser {
            simplifier: Simplifier { columns: &self.columns, estimator: self.estimator, depth: 0 },
            merged: Substitution::default(),
            outer_joins: false,
            added: Vec::new(),
        };
        let mut query = Query {
            rel: std::mem::replace(rel, super::columns::nothing()),
            output: exposed.iter().map(|column| Output { column: *column, name: String::new() }).collect(),
        };
        let result = normaliser.query(&mut query);
        *rel = query.rel;
        result?;
        for scalar in exprs.iter_mut() {
            normaliser.scalar(scalar)?;
        }
        let Normaliser { outer_joins, added, .. } = normaliser;
        self.columns.0.extend(added);
        if outer_joins {
            reduce::outer_joins(rel, &[]);
        }
        let mut wanted = required.clone();
        let mut used = ColumnSet::new();
        for scalar in exprs.iter_mut() {
            add_columns(scalar, &mut wanted);
            reduce::subqueries(scalar, &mut used);
        }
        reduce::prune(rel, &wanted, &mut used);
        self.used = used;
        Ok(())
    }

    /// Asks for the identities of rows that these relations lock, or what stands within them.
    fn lock_identities(&mut self, mut pending: Vec<&Rel>) -> Result<()> {
        let mut seen: HashSet<*const Common> = HashSet::new();
        while let Some(rel) = pending.pop() {
            effort::made(1)?;
            match rel {
                Rel::Lock { input, tables, .. } => {
                    for (column, _, _) in tables {
                        if let Some((table, first)) = table_of(input, *column) {
                            self.want_identity(table, first);
                        }
                    }
                }
                Rel::Common { common, .. } if seen.insert(Arc::as_ptr(common)) => {
                    pending.push(&common.query.rel);
                }
                _ => {}
            }
            inputs(rel, &mut |input| pending.push(input));
            scalars(rel, &mut |scalar| subquery_rels(scalar, &mut pending));
        }
        Ok(())
    }

    fn output(&self, output: &Output) -> PlanOutput {
        let info = self.columns.get(output.column);
        PlanOutput { name: output.name.clone(), ty: info.ty, modifier: info.modifier, origin: info.origin }
    }

    /// What RETURNING gives.
    fn returned(&self, returning: &Returning) -> Vec<PlanOutput> {
        returning.iter().flatten().map(|(output, _)| self.output(output)).collect()
    }

    /// INSERT
    pub(super) fn insert(&mut self, insert: Insert) -> Result<Statement> {
        let Insert { table, mut source, mut values, mut returning, row, mut checks } = insert;
        let columns: Vec<ColumnId> = values
            .iter()
            .filter_map(|value| match value {
                InsertValue::Source(id) => Some(*id),
                InsertValue::Default(_) => None,
            })
            .collect();
        let mut exprs: Vec<&mut Scalar> = Vec::new();
        for value in &mut values {
            if let InsertValue::Default(scalar) = value {
                exprs.push(scalar);
            }
        }
        exprs.extend(returning.iter_mut().flatten().map(|(_, scalar)| scalar));
        exprs.extend(checks.iter_mut().map(|(_, scalar)| scalar));
        let required = columns.iter().copied().collect();
        self.prepare(&mut source.rel, &columns, &required, &mut exprs)?;
        let output = self.returned(&returning);
        let paths = self.paths(&source.rel, &Wanted::default())?;
        let best = cheapest(&paths).ok_or_else(|| Error::internal("no plan"))?.clone();
        let mut builder = Builder::new(self);
        let id = builder.number();
        let (input, below) = builder.build(&best, &required, &[])?;
        let values = values
            .iter()
            .map(|value| match value {
                InsertValue::Source(column) => builder.compile(&Scalar::Column(*column), &below),
                InsertValue::Default(scalar) => builder.compile(scalar, &[]),
            })
            .collect::<Result<_>>()?;
        let checks = compile_checks(&mut builder, &checks, &row)?;
        let returning = compile_returning(&mut builder, &returning, &row)?;
        let estimate = changes(&input, returning.is_some());
        let columns = returned_columns(&output);
        let target = table.oid;
        let insert = Arc::new(physical::Insert { table, values, checks, returning });
        let node = Node::Insert { input: Box::new(input), insert };
        let root = Plan { id, node, columns, estimate };
        Ok(finish(builder, root, output, true, vec![target]))
    }

    /// The leaf of the table that a statement changes.
    fn target_leaf(&self, table: &Table, old: &[ColumnId]) -> Result<Rc<Leaf>> {
        self.leaves
            .iter()
            .find(|leaf| leaf.table.oid == table.oid && leaf.columns == old)
            .cloned()
            .ok_or_else(|| Error::internal("the table to be changed is not in the statement's source"))
    }

    /// UPDATE
    pub(super) fn update(&mut self, update: Update) -> Result<Statement> {
        let Update { table, old, mut source, mut recheck, mut assignments, row, mut returning, mut checks } =
            update;
        self.want_identity(table.oid, old.first().copied());
        let mut exprs: Vec<&mut Scalar> = recheck.iter_mut().collect();
        exprs.extend(assignments.iter_mut().map(|(_, scalar)| scalar));
        exprs.extend(returning.iter_mut().flatten().map(|(_, scalar)| scalar));
        exprs.extend(checks.iter_mut().map(|(_, scalar)| scalar));
        let mut required: ColumnSet = old.iter().copied().collect();
        self.prepare(&mut source, &[], &required, &mut exprs)?;
        for scalar in &exprs {
            add_columns(scalar, &mut required);
        }
        let output = self.returned(&returning);
        let paths = self.paths(&source, &Wanted::default())?;
        let best = cheapest(&paths).ok_or_else(|| Error::internal("no plan"))?.clone();
        let leaf = self.target_leaf(&table, &old)?;
        add_identity(&leaf, &mut required);
        let mut builder = Builder::new(self);
        let id = builder.number();
        let (input, below) = builder.build(&best, &required, &old)?;
        let target = builder.target(&leaf, &below)?;
        let recheck = recheck.map(|scalar| builder.compile(&scalar, &below)).transpose()?;
        let assignments = assignments
            .iter()
            .map(|(positions, scalar)| Ok((positions.clone(), builder.compile(scalar, &below)?)))
            .collect::<Result<_>>()?;
        let checks = compile_checks(&mut builder, &checks, &row)?;
        let mut both = row;
        both.extend(&below);
        let returning = compile_returning(&mut builder, &returning, &both)?;
        let estimate = changes(&input, returning.is_some());
        let columns = returned_columns(&output);
        let update = Arc::new(physical::Update { target, recheck, assignments, checks, returning });
        let node = Node::Update { input: Box::new(input), update };
        let root = Plan { id, node, columns, estimate };
        Ok(finish(builder, root, output, true, vec![table.oid]))
    }

    /// DELETE
    pub(super) fn delete(&mut self, delete: Delete) -> Result<Statement> {
        let Delete { table, old, mut source, mut recheck, mut returning } = delete;
        self.want_identity(table.oid, old.first().copied());
        let mut exprs: Vec<&mut Scalar> = recheck.iter_mut().collect();
        exprs.extend(returning.iter_mut().flatten().map(|(_, scalar)| scalar));
        let mut required = ColumnSet::new();
        self.prepare(&mut source, &[], &required, &mut exprs)?;
        for scalar in &exprs {
            add_columns(scalar, &mut required);
        }
        let output = self.returned(&returning);
        let paths = self.paths(&source, &Wanted::default())?;
        let best = cheapest(&paths).ok_or_else(|| Error::internal("no plan"))?.clone();
        let leaf = self.target_leaf(&table, &old)?;
        add_identity(&leaf, &mut required);
        let mut builder = Builder::new(self);
        let id = builder.number();
        let (input, below) = builder.build(&best, &required, &[])?;
        let target = builder.target(&leaf, &below)?;
        let recheck = recheck.map(|scalar| builder.compile(&scalar, &below)).transpose()?;
        let returning = compile_returning(&mut builder, &returning, &below)?;
        let estimate = changes(&input, returning.is_some());
        let columns = returned_columns(&output);
        let delete = Arc::new(physical::Delete { target, recheck, returning });
        let node = Node::Delete { input: Box::new(input), delete };
        let root = Plan { id, node, columns, estimate };
        Ok(finish(builder, root, output, true, vec![table.oid]))
    }
}

fn add_identity(leaf: &Leaf, required: &mut ColumnSet) {
    if let Some((key, row)) = leaf.identity {
        required.insert(key);
        required.insert(row);
    }
}

fn compile_checks(
    builder: &mut Builder<'_, '_>,
    checks: &[(String, Scalar)],
    row: &[ColumnId],
) -> Result<Checks> {
    let mut sorted: Vec<_> = checks.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted.into_iter().map(|(name, scalar)| Ok((name.clone(), builder.compile(scalar, row)?))).collect()
}

fn compile_returning(
    builder: &mut Builder<'_, '_>,
    returning: &Returning,
    row: &[ColumnId],
) -> Result<Option<Vec<Expr>>> {
    returning
        .as_ref()
        .map(|list| list.iter().map(|(_, scalar)| builder.compile(scalar, row)).collect())
        .transpose()
}

fn returned_columns(output: &[PlanOutput]) -> Vec<PlanColumn> {
    output
        .iter()
        .map(|output| PlanColumn { name: output.name.clone(), ty: output.ty, modifier: output.modifier })
        .collect()
}

fn changes(input: &Plan, returning: bool) -> Estimate {
    let below = input.estimate;
    let rows = if returning { below.rows } else { 0.0 };
    Estimate {
        rows,
        width: below.width,
        startup: below.startup,
        total: below.total + below.rows * super::cost::ROW,
    }
}

fn finish(
    builder: Builder<'_, '_>,
    root: Plan,
    output: Vec<PlanOutput>,
    writes: bool,
    targets: Vec<Oid>,
) -> Statement {
    let Builder { subplans, slots, nodes, locked, .. } = builder;
    Statement { root, subplans, slots, nodes, output, writes, targets, locked }
}

/// The table of which this is a column, and its first column.
fn table_of(rel: &Rel, column: ColumnId) -> Option<(Oid, Option<ColumnId>)> {
    if let Rel::Table { table, columns, .. } = rel
        && columns.contains(&column)
    {
        return Some((table.oid, columns.first().copied()));
    }
    let mut found = None;
    inputs(rel, &mut |input| found = found.or_else(|| table_of(input, column)));
    found
}

/// The relations of subqueries within an expression.
fn subquery_rels<'a>(scalar: &'a Scalar, out: &mut Vec<&'a Rel>) {
    if let Scalar::Subquery(subquery) = scalar {
        out.push(&subquery.query.rel);
    }
    parts(scalar, &mut |part| subquery_rels(part, out));
}
