//! Candidates for everything above the joins: projections, groups, sorts, limits, set operations, locks.

use super::Planner;
use super::columns::{ColumnSet, columns_of};
use super::cost;
use super::path::{Conditions, Leaf, OrderKey, Path, PathNode, PathRef, Wanted, add, cheapest, cheapest_for};
use super::scalar::{constant, has_subquery, same_value, work};
use crate::logical::{
    AggregateCall, ColumnId, Common, JoinKind, LockStrength, LockWait, Recheck, Rel, Scalar, SetOperation,
    SortKey, is_volatile, rel_is_open, rel_is_volatile, walk,
};
use crate::physical::Grouping;
use crate::types::{Type, Value};
use crate::{Error, Result, effort};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The part of its rows that a query is expected to be asked for when its limit is not known.
const UNKNOWN_LIMIT: f64 = 0.1;

/// LIMIT and OFFSET.
pub(super) type Top<'a> = (Option<&'a Scalar>, Option<&'a Scalar>);

impl Planner<'_> {
    /// Candidates for a relation, never none.
    pub(super) fn paths(&mut self, rel: &Rel, wanted: &Wanted) -> Result<Vec<PathRef>> {
        let paths = match rel {
            Rel::Table { .. } | Rel::Filter { .. } => self.region_paths(rel, wanted)?,
            Rel::Join { kind, .. } if *kind != JoinKind::Full => self.region_paths(rel, wanted)?,
            other => self.rel_paths(other, &Conditions::new(), wanted)?,
        };
        if paths.is_empty() { Err(Error::internal("no plan")) } else { Ok(paths) }
    }

    /// Candidates for a relation that is neither a table nor a join with an order to be chosen, for rows that fulfil `conditions`.
    pub(super) fn rel_paths(
        &mut self,
        rel: &Rel,
        conditions: &Conditions,
        wanted: &Wanted,
    ) -> Result<Vec<PathRef>> {
        effort::made(1)?;
        let paths = match rel {
            Rel::System { table, alias, columns } => {
                let rows = 300.0;
                let local = columns.iter().copied().collect();
                let share = self.all_hold(conditions.iter().map(|condition| &condition.scalar), &local);
                let node = PathNode::SystemScan {
                    table,
                    alias: alias.clone(),
                    columns: columns.clone(),
                    filter: conditions.clone(),
                };
                let total = rows * (cost::ROW + cost::conditions(conditions));
                let rows = (rows * share).max(1.0);
                let width = self.width(columns.iter());
                return Ok(vec![Rc::new(Path { node, rows, width, startup: 0.0, total, order: Vec::new() })]);
            }
            Rel::Values { columns, rows } => {
                let count = rows.len() as f64;
                let work: f64 =
                    rows.iter().take(10).flatten().map(work).sum::<f64>() / 10.0_f64.min(count.max(1.0));
                let node = PathNode::Values { columns: columns.clone(), rows: Rc::new(rows.clone()) };
                let width = columns.iter().map(|id| self.column_width(*id)).sum();
                let total = count * (cost::ROW + work * cost::OPERATION);
                vec![Rc::new(Path { node, rows: count, width, startup: 0.0, total, order: Vec::new() })]
            }
            Rel::Function { function, arguments, columns, ordinality, listed: _ } => {
                let values: Vec<Option<Value>> =
                    arguments.iter().map(|scalar| constant(scalar).cloned()).collect();
                let rows = (function.estimate)(&values).max(1.0);
                let node = PathNode::FunctionScan {
                    function,
                    arguments: arguments.clone(),
                    columns: columns.clone(),
                    ordinality: *ordinality,
                };
                let width = columns.iter().chain(ordinality).map(|id| self.column_width(*id)).sum();
                vec![Rc::new(Path {
                    node,
                    rows,
                    width,
                    startup: 0.0,
                    total: rows * cost::ROW,
                    order: Vec::new(),
                })]
            }
            Rel::Common { common, alias, columns } => vec![self.common_path(common, alias, columns)?],
            Rel::Join { kind: JoinKind::Full, left, right, on, .. } => {
                self.full_join(left, right, on.as_ref())?
            }
            Rel::Project { input, columns } => self.project_paths(input, columns, wanted)?,
            Rel::Aggregate { input, groups, aggregates } => {
                self.aggregate_paths(input, groups, aggregates)?
            }
            Rel::Distinct { input, on } => self.distinct_paths(input, on.as_deref(), wanted)?,
            Rel::Sort { input, keys } => self.sort_paths(input, keys, (None, None), wanted)?,
            Rel::Limit { input, limit, offset } => {
                self.limit_paths(input, (limit.as_ref(), offset.as_ref()), wanted)?
            }
            Rel::Set { operation: SetOperation::Union, all: true, columns, .. } => {
                self.append_paths(rel, columns)?
            }
            Rel::Set { operation, all, left, right, columns } => {
                self.set_paths(*operation, *all, left, right, columns)?
            }
            Rel::Lock { input, tables, recheck } => self.lock_paths(input, tables, recheck, wanted)?,
            Rel::Table { .. } | Rel::Filter { .. } | Rel::Join { .. } => self.paths(rel, wanted)?,
        };
        if conditions.is_empty() {
            return Ok(paths);
        }
        Ok(paths.into_iter().map(|path| self.filtered(path, conditions)).collect())
    }

    /// A use of a WITH query that is computed once. It has one plan, whatever its uses want of it.
    fn common_path(&mut self, common: &Arc<Common>, alias: &str, columns: &[ColumnId]) -> Result<PathRef> {
        let planned = self.commons.iter().find(|(known, _)| Arc::ptr_eq(known, common));
        let input = match planned {
            Some((_, input)) => input.clone(),
            None => {
                let input = self.apart(&common.query)?;
                self.commons.push((Arc::clone(common), input.clone()));
                input
            }
        };
        let startup = input.total / f64::from(common.uses.load(Ordering::Relaxed).max(1));
        let (rows, width) = (input.rows, input.width);
        let (alias, columns) = (alias.to_owned(), columns.to_vec());
        let node = PathNode::CommonScan { common: Arc::clone(common), alias, columns, input };
        let total = startup + rows * cost::ROW;
        Ok(Rc::new(Path { node, rows, width, startup, total, order: Vec::new() }))
    }

    /// Rows of a candidate that fulfil conditions.
    pub(super) fn filtered(&self, input: PathRef, conditions: &Conditions) -> PathRef {
        let mut local = ColumnSet::new();
        for condition in conditions {
            local.add(&condition.columns);
        }
        let share = self.all_hold(conditions.iter().map(|condition| &condition.scalar), &local);
        Rc::new(Path {
            rows: (input.rows * share).max(1.0),
            width: input.width,
            startup: input.startup,
            total: input.total + input.rows * cost::conditions(conditions),
            order: input.order.clone(),
            node: PathNode::Filter { input, conditions: conditions.clone() },
        })
    }

    fn project_paths(
        &mut self,
        input: &Rel,
        columns: &[(ColumnId, Scalar)],
        wanted: &Wanted,
    ) -> Result<Vec<PathRef>> {
        for (id, scalar) in columns {
            match scalar {
                Scalar::Column(other) if other != id => self.note_equal(&[*other, *id], false),
                Scalar::Literal { .. } | Scalar::Parameter { .. } => {
                    self.known.constants.insert(*id);
                }
                _ => {}
            }
        }
        let inputs = self.paths(input, wanted)?;
        let columns = Rc::new(columns.to_vec());
        let each = columns.iter().map(|(_, scalar)| work(scalar)).sum::<f64>() * cost::OPERATION;
        let width = columns.iter().map(|(id, _)| self.column_width(*id)).sum();
        Ok(inputs
            .into_iter()
            .map(|input| {
                Rc::new(Path {
                    rows: input.rows,
                    width,
                    startup: input.startup,
                    total: input.total + input.rows * each,
                    order: input.order.clone(),
                    node: PathNode::Project { input, columns: columns.clone() },
                })
            })
            .collect())
    }

    /// Sort keys as an order, as far as they are columns.
    fn as_order(&self, keys: &[SortKey]) -> Vec<OrderKey> {
        keys.iter()
            .map_while(|key| match super::scalar::strip(&key.scalar, &self.columns) {
                Scalar::Column(column) => Some(OrderKey {
                    column: *column,
                    descending: key.descending,
                    nulls_first: Some(key.nulls_first),
                }),
                _ => None,
            })
            .collect()
    }

    /// Sort keys that have a say: constants and repetitions have none.
    fn effective(&self, keys: &[SortKey]) -> Vec<SortKey> {
        let mut out: Vec<SortKey> = Vec::with_capacity(keys.len());
        for key in keys {
            let fixed = match &key.scalar {
                Scalar::Literal { .. } | Scalar::Parameter { .. } => true,
                Scalar::Column(id) => self.is_constant(*id),
                _ => false,
            };
            if !fixed && !out.iter().any(|other| same_value(&other.scalar, &key.scalar)) {
                out.push(key.clone());
            }
        }
        out
    }

    fn sort_paths(
        &mut self,
        input: &Rel,
        keys: &[SortKey],
        top: Top<'_>,
        _: &Wanted,
    ) -> Result<Vec<PathRef>> {
        let order = self.as_order(keys);
        let wanted =
            Wanted { sorts: if order.is_empty() { Vec::new() } else { vec![order] }, groups: Vec::new() };
        let inputs = self.paths(input, &wanted)?;
        Ok(self.sorted(&inputs, keys, top))
    }

    /// Candidates with their rows sorted.
    pub(super) fn sorted(&self, inputs: &[PathRef], keys: &[SortKey], top: Top<'_>) -> Vec<PathRef> {
        let keys = self.effective(keys);
        let order = self.as_order(&keys);
        let mut paths: Vec<PathRef> = Vec::new();
        let best = cheapest(inputs);
        let kept = known_rows(top);
        let keys = Rc::new(keys);
        for input in inputs {
            let presorted = self.ordered_by(&input.order, &order);
            if presorted == keys.len() {
                if !paths.iter().any(|other| Rc::ptr_eq(other, input)) {
                    paths.push(input.clone());
                }
                continue;
            }
            if presorted == 0 && !best.is_some_and(|best| Rc::ptr_eq(best, input)) {
                continue;
            }
            let top = match top {
                // A sort that knows the limit computes it once more.
                (Some(limit), offset)
                    if !is_volatile(limit)
                        && kept.is_none_or(|rows| {
                            rows * (input.width + 64.0) <= self.settings.work_bytes as f64
                        }) =>
                {
                    Some((limit.clone(), offset.cloned()))
                }
                _ => None,
            };
            let switched_off = if self.settings.sort { 0.0 } else { cost::DISABLED };
            let runs = if presorted == 0 {
                1.0
            } else {
                self.groups(keys[..presorted].iter().map(|key| &key.scalar), input.rows)
            };
            let limit = top.as_ref().and(kept);
            let one = cost::sort(input.rows / runs, input.width, keys.len(), limit, self.settings);
            let startup = input.startup + (input.total - input.startup) / runs + one + switched_off;
            let total = input.total + one * runs + input.rows * cost::OPERATION + switched_off;
            let node = PathNode::Sort { input: input.clone(), keys: keys.clone(), presorted, top };
            let path =
                Path { node, rows: input.rows, width: input.width, startup, total, order: order.clone() };
            add(&mut paths, path);
        }
        paths
    }

    fn limit_paths(&mut self, input: &Rel, top: Top<'_>, wanted: &Wanted) -> Result<Vec<PathRef>> {
        let limited = top.0.is_some_and(|limit| !constant(limit).is_some_and(Value::is_null));
        let inputs = match input {
            Rel::Sort { input, keys } if limited => self.sort_paths(input, keys, top, wanted)?,
            other => self.paths(other, wanted)?,
        };
        let all = inputs.first().map_or(1.0, |path| path.rows);
        let read = if limited { known_rows(top).unwrap_or(all * UNKNOWN_LIMIT).clamp(0.0, all) } else { all };
        let skipped = match top.1.and_then(constant) {
            Some(Value::Int(rows)) => *rows as f64,
            _ => 0.0,
        };
        let Some(input) = cheapest_for(&inputs, read) else { return Ok(inputs) };
        let total = input.cost_of(read);
        let startup = input.cost_of(skipped.min(read));
        let node = PathNode::Limit { input: input.clone(), limit: top.0.cloned(), offset: top.1.cloned() };
        let rows = (read - skipped).max(1.0);
        Ok(vec![Rc::new(Path { node, rows, width: input.width, startup, total, order: input.order.clone() })])
    }

    fn aggregate_paths(
        &mut self,
        input: &Rel,
        groups: &[(ColumnId, Scalar)],
        aggregates: &[(ColumnId, AggregateCall)],
    ) -> Result<Vec<PathRef>> {
        let columns: Option<Vec<ColumnId>> = groups
            .iter()
            .map(|(_, scalar)| match scalar {
                Scalar::Column(id) => Some(*id),
                _ => None,
            })
            .collect();
        let wanted = Wanted {
            sorts: Vec::new(),
            groups: columns.clone().filter(|c| !c.is_empty()).into_iter().collect(),
        };
        for (id, scalar) in groups {
            if let Scalar::Column(other) = scalar
                && id != other
            {
                self.note_equal(&[*other, *id], false);
            }
        }
        let known = groups.is_empty().then(|| self.known.clone());
        let inputs = self.paths(input, &wanted)?;
        let mut paths = Vec::new();
        if let Some(known) = known {
            // The input is planned again, of which nothing is known then.
            self.known = known;
            self.single_group(input, &inputs, aggregates, &mut paths)?;
            return Ok(paths);
        }
        let groups = Rc::new(groups.to_vec());
        let aggregates = Rc::new(aggregates.to_vec());
        self.hashed_groups(&inputs, &groups, &aggregates, &mut paths);
        self.sorted_groups(&inputs, columns.as_deref(), &groups, &aggregates, &mut paths);
        Ok(paths)
    }

    fn single_group(
        &mut self,
        input: &Rel,
        inputs: &[PathRef],
        aggregates: &[(ColumnId, AggregateCall)],
        paths: &mut Vec<PathRef>,
    ) -> Result<()> {
        if let Some(best) = cheapest(inputs) {
            let path =
                self.grouped(best, Grouping::Single, &Rc::default(), &Rc::new(aggregates.to_vec()), 1.0);
            add(paths, path);
        }
        if let Some(path) = self.extremes(input, aggregates)? {
            add(paths, path);
        }
        Ok(())
    }

    /// min and max as the first row of an order: for each of them, as many as there are. Each has a plan of its own for the input, so all
    /// of these plans have to give the same rows. Of an input that may be planned several times itself there are none: that would double with every
    /// step into it.
    fn extremes(&mut self, input: &Rel, aggregates: &[(ColumnId, AggregateCall)]) -> Result<Option<Path>> {
        if aggregates.is_empty()
            || aggregates.len() > 4
            || has_single_group(input)
            || rel_is_volatile(input)
            || rel_is_open(input)
        {
            return Ok(None);
        }
        let mut result: Option<Path> = None;
        for (id, call) in aggregates {
            let descending = match call.aggregate.name {
                "min" => false,
                "max" => true,
                _ => return Ok(None),
            };
            let [Scalar::Column(column)] = call.arguments.as_slice() else { return Ok(None) };
            if call.filter.is_some() {
                return Ok(None);
            }
            let not_null = Scalar::Not(Box::new(Scalar::IsNull(Box::new(Scalar::Column(*column)))));
            let rel = Rel::Filter { input: Box::new(input.clone()), predicate: not_null };
            let order = vec![OrderKey { column: *column, descending, nulls_first: None }];
            let wanted = Wanted { sorts: vec![order.clone()], groups: Vec::new() };
            let known = self.known.clone();
            let mut candidates = self.paths(&rel, &wanted)?;
            candidates.retain(|path| self.ordered_by(&path.order, &order) == 1);
            self.known = known;
            let Some(first) = cheapest_for(&candidates, 1.0) else { return Ok(None) };
            let total = first.cost_of(1.0);
            let limited = Rc::new(Path {
                rows: 1.0,
                width: first.width,
                startup: first.startup,
                total,
                order: first.order.clone(),
                node: PathNode::Limit {
                    input: first.clone(),
                    limit: Some(Scalar::Literal { value: Value::Int(1), ty: Type::Int8 }),
                    offset: None,
                },
            });
            let own = Rc::new(vec![(*id, call.clone())]);
            let path = self.grouped(&limited, Grouping::Single, &Rc::default(), &own, 1.0);
            result = Some(match result {
                None => path,
                Some(other) => Path {
                    rows: 1.0,
                    width: other.width + path.width,
                    startup: other.total + path.total,
                    total: other.total + path.total + cost::ROW,
                    order: Vec::new(),
                    node: PathNode::NestedLoop {
                        kind: JoinKind::Inner,
                        left: Rc::new(other),
                        right: Rc::new(path),
                        condition: Conditions::new(),
                    },
                },
            });
        }
        Ok(result)
    }

    fn grouped(
        &self,
        input: &PathRef,
        grouping: Grouping,
        groups: &Rc<Vec<(ColumnId, Scalar)>>,
        aggregates: &Rc<Vec<(ColumnId, AggregateCall)>>,
        rows: f64,
    ) -> Path {
        let calls: f64 = aggregates
            .iter()
            .map(|(_, call)| {
                let distinct = if call.distinct || !call.order.is_empty() { 4.0 } else { 0.0 };
                1.0 + distinct + call.arguments.iter().chain(&call.filter).map(work).sum::<f64>()
            })
            .sum();
        let keys: f64 = groups.iter().map(|(_, scalar)| 1.0 + work(scalar)).sum();
        let each = (calls + keys) * cost::OPERATION;
        let width = groups.iter().map(|(id, _)| self.column_width(*id)).sum::<f64>()
            + aggregates.iter().map(|(id, _)| self.column_width(*id)).sum::<f64>();
        let (startup, order) = match grouping {
            Grouping::Sorted => (input.startup, input.order.clone()),
            Grouping::Single => (input.total + input.rows * each, Vec::new()),
            Grouping::Hash => {
                let spilled = cost::spill(rows * (width + 96.0), self.settings);
                let spilled = if spilled > 0.0 {
                    cost::spill(input.rows * (input.width + 32.0), self.settings)
                } else {
                    0.0
                };
                (input.total + input.rows * (each + cost::OPERATION) + spilled, Vec::new())
            }
        };
        let total = match grouping {
            Grouping::Sorted => input.total + input.rows * each + rows * cost::ROW,
            _ => startup + rows * cost::ROW,
        };
        Path {
            node: PathNode::Aggregate {
                input: input.clone(),
                grouping,
                groups: groups.clone(),
                aggregates: aggregates.clone(),
            },
            rows,
            width,
            startup,
            total,
            order,
        }
    }

    fn hashed_groups(
        &self,
        inputs: &[PathRef],
        groups: &Rc<Vec<(ColumnId, Scalar)>>,
        aggregates: &Rc<Vec<(ColumnId, AggregateCall)>>,
        paths: &mut Vec<PathRef>,
    ) {
        let Some(best) = cheapest(inputs) else { return };
        let rows = self.groups(groups.iter().map(|(_, scalar)| scalar), best.rows);
        let mut path = self.grouped(best, Grouping::Hash, groups, aggregates, rows);
        if !self.settings.hashagg {
            path.startup += cost::DISABLED;
            path.total += cost::DISABLED;
        }
        add(paths, path);
    }

    fn sorted_groups(
        &self,
        inputs: &[PathRef],
        columns: Option<&[ColumnId]>,
        groups: &Rc<Vec<(ColumnId, Scalar)>>,
        aggregates: &Rc<Vec<(ColumnId, AggregateCall)>>,
        paths: &mut Vec<PathRef>,
    ) {
        let Some(best) = cheapest(inputs) else { return };
        let rows = self.groups(groups.iter().map(|(_, scalar)| scalar), best.rows);
        if let Some(columns) = columns {
            for input in inputs.iter().filter(|input| self.grouped_by(&input.order, columns)) {
                add(paths, self.grouped(input, Grouping::Sorted, groups, aggregates, rows));
            }
        }
        if groups.iter().any(|(_, scalar)| is_volatile(scalar) || has_subquery(scalar)) {
            return;
        }
        let keys: Vec<SortKey> = groups
            .iter()
            .map(|(_, scalar)| SortKey { scalar: scalar.clone(), descending: false, nulls_first: false })
            .collect();
        for input in self.sorted(std::slice::from_ref(best), &keys, (None, None)) {
            add(paths, self.grouped(&input, Grouping::Sorted, groups, aggregates, rows));
        }
    }

    fn distinct_paths(
        &mut self,
        input: &Rel,
        on: Option<&[Scalar]>,
        wanted: &Wanted,
    ) -> Result<Vec<PathRef>> {
        let Some(on) = on else {
            let mut columns = Vec::new();
            walk::output(input, &mut columns);
            let wanted = Wanted {
                sorts: wanted.sorts.clone(),
                groups: if columns.is_empty() { Vec::new() } else { vec![columns.clone()] },
            };
            let inputs = self.paths(input, &wanted)?;
            let mut paths = Vec::new();
            let groups: Rc<Vec<(ColumnId, Scalar)>> =
                Rc::new(columns.iter().map(|id| (*id, Scalar::Column(*id))).collect());
            if !groups.is_empty() {
                self.hashed_groups(&inputs, &groups, &Rc::default(), &mut paths);
            }
            let keys: Vec<Scalar> = columns.iter().map(|id| Scalar::Column(*id)).collect();
            for path in inputs.iter().filter(|path| self.grouped_by(&path.order, &columns)) {
                add(&mut paths, self.unique(path, keys.clone()));
            }
            if let Some(best) = cheapest(&inputs) {
                let sort = ascending(&keys);
                for input in self.sorted(std::slice::from_ref(best), &sort, (None, None)) {
                    add(&mut paths, self.unique(&input, keys.clone()));
                }
            }
            return Ok(paths);
        };
        // The first row of each group in the order of the input: that order has to begin with the groups.
        let keys = sort_keys(input);
        let mut leading = 0;
        if let Some(keys) = &keys {
            leading =
                keys.iter().take_while(|key| on.iter().any(|scalar| same_value(scalar, &key.scalar))).count();
        }
        let covered = |count: usize| {
            keys.as_ref().is_some_and(|keys| {
                on.iter().all(|scalar| keys[..count].iter().any(|key| same_value(scalar, &key.scalar)))
            })
        };
        let inputs = self.paths(input, wanted)?;
        let sorted = if covered(leading) {
            inputs
        } else {
            let mut sort: Vec<SortKey> = keys.as_ref().map_or_else(Vec::new, |keys| keys[..leading].to_vec());
            for key in ascending(on) {
                if !sort.iter().any(|other| same_value(&other.scalar, &key.scalar)) {
                    sort.push(key);
                }
            }
            sort.extend(keys.into_iter().flatten().skip(leading));
            self.sorted(&inputs, &sort, (None, None))
        };
        let mut paths = Vec::new();
        for input in &sorted {
            add(&mut paths, self.unique(input, on.to_vec()));
        }
        Ok(paths)
    }

    fn unique(&self, input: &PathRef, keys: Vec<Scalar>) -> Path {
        let rows = self.groups(keys.iter(), input.rows);
        Path {
            rows,
            width: input.width,
            startup: input.startup,
            total: input.total + input.rows * keys.len() as f64 * cost::OPERATION,
            order: input.order.clone(),
            node: PathNode::Unique { input: input.clone(), keys },
        }
    }

    /// UNION ALL, of any number of sides.
    fn append_paths(&mut self, rel: &Rel, columns: &[ColumnId]) -> Result<Vec<PathRef>> {
        let mut inputs = Vec::new();
        self.sides(rel, columns.to_vec(), &mut inputs)?;
        let rows = inputs.iter().map(|(path, _)| path.rows).sum();
        let total = inputs.iter().map(|(path, _)| path.total + path.rows * cost::OPERATION).sum();
        let startup = inputs.first().map_or(0.0, |(path, _)| path.startup);
        let width = inputs.first().map_or(0.0, |(path, _)| path.width);
        let node = PathNode::Append { inputs, columns: columns.to_vec() };
        Ok(vec![Rc::new(Path { node, rows, width, startup, total, order: Vec::new() })])
    }

    fn sides(
        &mut self,
        rel: &Rel,
        wanted: Vec<ColumnId>,
        out: &mut Vec<(PathRef, Vec<ColumnId>)>,
    ) -> Result<()> {
        if let Rel::Set { operation: SetOperation::Union, all: true, left, right, columns } = rel {
            for side in [left, right] {
                let own = wanted
                    .iter()
                    .map(|id| {
                        let at = columns.iter().position(|column| column == id);
                        at.map(|at| side.1[at]).ok_or_else(|| Error::internal("a column of a union"))
                    })
                    .collect::<Result<Vec<_>>>()?;
                self.sides(&side.0, own, out)?;
            }
            return Ok(());
        }
        let paths = self.paths(rel, &Wanted::default())?;
        if let Some(best) = cheapest(&paths) {
            out.push((best.clone(), wanted));
        }
        Ok(())
    }

    fn set_paths(
        &mut self,
        operation: SetOperation,
        all: bool,
        left: &(Box<Rel>, Vec<ColumnId>),
        right: &(Box<Rel>, Vec<ColumnId>),
        columns: &[ColumnId],
    ) -> Result<Vec<PathRef>> {
        let mut sides = Vec::with_capacity(2);
        for side in [left, right] {
            let paths = self.paths(&side.0, &Wanted::default())?;
            let best = cheapest(&paths).ok_or_else(|| Error::internal("no plan"))?;
            sides.push((best.clone(), side.1.clone()));
        }
        let (Some(right), Some(left)) = (sides.pop(), sides.pop()) else {
            return Err(Error::internal("a set operation without sides"));
        };
        let read = left.0.rows + right.0.rows;
        let rows = match operation {
            SetOperation::Union => read,
            SetOperation::Except => left.0.rows,
            SetOperation::Intersect => left.0.rows.min(right.0.rows),
        };
        let width = left.0.width;
        let work = read * cost::OPERATION * (1.0 + columns.len() as f64);
        let startup = left.0.total + right.0.total + work + cost::spill(read * (width + 64.0), self.settings);
        let total = startup + rows * cost::ROW;
        let node = PathNode::Set { operation, all, left, right, columns: columns.to_vec() };
        Ok(vec![Rc::new(Path { node, rows: rows.max(1.0), width, startup, total, order: Vec::new() })])
    }

    fn lock_paths(
        &mut self,
        input: &Rel,
        tables: &[(ColumnId, LockStrength, LockWait)],
        recheck: &Recheck,
        wanted: &Wanted,
    ) -> Result<Vec<PathRef>> {
        let inputs = self.paths(input, wanted)?;
        let mut targets: Vec<(Rc<Leaf>, LockStrength, LockWait)> = Vec::with_capacity(tables.len());
        for (column, strength, wait) in tables {
            let leaf = self
                .leaf_of(*column)
                .ok_or_else(|| Error::internal("a table to be locked is not in the query"))?;
            targets.push((leaf, *strength, *wait));
        }
        Ok(inputs
            .into_iter()
            .map(|input| {
                Rc::new(Path {
                    rows: input.rows,
                    width: input.width,
                    startup: input.startup,
                    total: input.total + input.rows * cost::ROW * 5.0,
                    order: input.order.clone(),
                    node: PathNode::Lock { input, targets: targets.clone(), recheck: recheck.clone() },
                })
            })
            .collect())
    }
}

/// LIMIT and OFFSET together, where they are constants.
fn known_rows(top: Top<'_>) -> Option<f64> {
    let number = |scalar: &Scalar| match constant(scalar) {
        Some(Value::Int(number)) => Some((*number).max(0) as f64),
        _ => None,
    };
    let offset = match top.1 {
        Some(offset) if constant(offset).is_some_and(Value::is_null) => 0.0,
        Some(offset) => number(offset)?,
        None => 0.0,
    };
    Some(number(top.0?)? + offset)
}

/// Whether rows of a relation come from an aggregate without groups, be it far below.
fn has_single_group(rel: &Rel) -> bool {
    let mut found = matches!(rel, Rel::Aggregate { groups, .. } if groups.is_empty());
    walk::inputs(rel, &mut |input| found = found || has_single_group(input));
    found
}

fn ascending(scalars: &[Scalar]) -> Vec<SortKey> {
    scalars
        .iter()
        .map(|scalar| SortKey { scalar: scalar.clone(), descending: false, nulls_first: false })
        .collect()
}

/// The keys of the sort that a relation's rows come from, in terms of the relation's own columns: the first ones, as far as it gives them.
fn sort_keys(rel: &Rel) -> Option<Vec<SortKey>> {
    match rel {
        Rel::Sort { keys, .. } => Some(keys.clone()),
        Rel::Project { input, columns } => {
            let mut keys = sort_keys(input)?;
            let given: ColumnSet = columns.iter().map(|(id, _)| *id).collect();
            for key in &mut keys {
                if let Some((id, _)) = columns.iter().find(|(_, scalar)| same_value(scalar, &key.scalar)) {
                    key.scalar = Scalar::Column(*id);
                }
            }
            let known = keys.iter().take_while(|key| columns_of(&key.scalar).is_subset(&given)).count();
            keys.truncate(known);
            Some(keys)
        }
        _ => None,
    }
}
