//! Ways into a table: all of it, a range of its key, a range of an index in either direction, single rows for a list of keys.

use super::Planner;
use super::cost::{self, Reading};
use super::path::{
    Condition, Conditions, Leaf, Lookup, OrderKey, Path, PathNode, PathRef, Range, Wanted, add,
};
use super::scalar::{constant, is_volatile, mirrored, strip, type_of};
use super::visit::{ColumnSet, columns_of};
use crate::catalog::{ColumnNumber, Index, TableKey};
use crate::functions::{Function, Resolved, resolve_function};
use crate::logical::{ColumnId, Comparison, JoinKind, Scalar};
use crate::physical::Grouping;
use crate::types::{Type, Value};
use std::rc::Rc;

/// What a condition says about a column.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Equal(Scalar),
    Lower(Scalar, bool),
    Upper(Scalar, bool),
    IsNull,
    NotNull,
    OneOf(Vec<Scalar>),
    OneOfArray(Scalar),
}

/// A condition that may bound an index.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// Which of the conditions.
    pub(super) condition: usize,
    pub(super) column: ColumnId,
    pub(super) bound: Bound,
    /// Whether the bound is all that the condition says.
    pub(super) exact: bool,
}

/// LIKE, with its pattern in the second argument.
pub(super) fn is_like(function: &Function) -> bool {
    matches!(function.name, "textlike" | "like" | "namelike")
}

/// A column of a key: which, and how it is ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyColumn {
    pub(super) column: ColumnId,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
    pub(super) not_null: bool,
}

/// A range of an index that conditions make.
#[derive(Debug, Default)]
struct Matched {
    range: Range,
    /// Conditions that the range takes part in.
    bounding: Vec<usize>,
    /// Conditions that need not be asked of the rows any more.
    done: Vec<usize>,
    /// Every column of a unique key has its value: one row at most.
    single: bool,
}

/// The expression is a constant for rows of these columns: it may bound a range.
fn is_constant_for(scalar: &Scalar, local: &ColumnSet) -> bool {
    match scalar {
        Scalar::Literal { .. } | Scalar::Parameter { .. } => true,
        Scalar::Column(id) => !local.contains(*id),
        other => !columns_of(other).intersects(local) && !is_volatile(other),
    }
}

/// Whether values of these types may be compared as they are, byte by byte of a key.
fn comparable(column: Type, other: Type) -> bool {
    let class = |ty: Type| match ty {
        ty if ty.is_integer() => 0,
        Type::Text | Type::Varchar | Type::Name | Type::Unknown => 1,
        Type::Float4 | Type::Float8 => 2,
        ty => 16 + ty.oid(),
    };
    class(column) == class(other)
}

impl Planner<'_> {
    /// What conditions say about single columns of `local`.
    pub(super) fn searches(&self, conditions: &[Rc<Condition>], local: &ColumnSet) -> Vec<Search> {
        let mut out = Vec::new();
        for (position, condition) in conditions.iter().enumerate() {
            self.search(position, &condition.scalar, local, &mut out);
        }
        out
    }

    fn local_column(&self, scalar: &Scalar, local: &ColumnSet) -> Option<ColumnId> {
        match strip(scalar, &self.columns) {
            Scalar::Column(id) if local.contains(*id) => Some(*id),
            _ => None,
        }
    }

    fn search(&self, condition: usize, scalar: &Scalar, local: &ColumnSet, out: &mut Vec<Search>) {
        let mut push = |column, bound, exact| out.push(Search { condition, column, bound, exact });
        match scalar {
            Scalar::Column(id) if local.contains(*id) => {
                push(*id, Bound::Equal(super::scalar::literal_bool(true)), true);
            }
            Scalar::Not(inner) => match &**inner {
                Scalar::Column(id) if local.contains(*id) => {
                    push(*id, Bound::Equal(super::scalar::literal_bool(false)), true);
                }
                Scalar::IsNull(argument) => {
                    if let Some(id) = self.local_column(argument, local) {
                        push(id, Bound::NotNull, true);
                    }
                }
                _ => {}
            },
            Scalar::IsBool { argument, value } => {
                if let Some(id) = self.local_column(argument, local) {
                    push(id, Bound::Equal(super::scalar::literal_bool(*value)), true);
                }
            }
            Scalar::IsNull(argument) => {
                if let Some(id) = self.local_column(argument, local) {
                    push(id, Bound::IsNull, true);
                }
            }
            Scalar::Compare { op, left, right } => {
                for (side, other, op) in [(left, right, *op), (right, left, mirrored(*op))] {
                    if let Some((id, bound)) = self.compared(op, side, other, local) {
                        push(id, bound, true);
                        break;
                    }
                }
            }
            Scalar::CompareRows { op, left, right } => {
                // The first columns say at least this.
                for (side, other, op) in [(left, right, *op), (right, left, mirrored(*op))] {
                    let (Some(first), Some(value)) = (side.first(), other.first()) else { return };
                    let weaker = match op {
                        Comparison::Less => Comparison::LessOrEqual,
                        Comparison::Greater => Comparison::GreaterOrEqual,
                        Comparison::LessOrEqual | Comparison::GreaterOrEqual => op,
                        _ => return,
                    };
                    if let Some((id, bound)) = self.compared(weaker, first, value, local) {
                        push(id, bound, false);
                        break;
                    }
                }
            }
            Scalar::InList { argument, list } => {
                let Some(id) = self.local_column(argument, local) else { return };
                let ty = self.columns.get(id).ty;
                if list
                    .iter()
                    .all(|item| is_constant_for(item, local) && comparable(ty, type_of(item, &self.columns)))
                {
                    push(id, Bound::OneOf(list.clone()), true);
                }
            }
            Scalar::Quantified { argument, op: Comparison::Equal, array, all: false } => {
                let Some(id) = self.local_column(argument, local) else { return };
                let element = type_of(array, &self.columns).element();
                if is_constant_for(array, local)
                    && element.is_some_and(|element| comparable(self.columns.get(id).ty, element))
                {
                    push(id, Bound::OneOfArray((**array).clone()), true);
                }
            }
            Scalar::Call { function, arguments, .. } if is_like(function) && arguments.len() == 2 => {
                let (Some(id), Some(pattern)) = (
                    self.local_column(&arguments[0], local),
                    constant(&arguments[1]).and_then(Value::as_str),
                ) else {
                    return;
                };
                if !matches!(self.columns.get(id).ty, Type::Text | Type::Varchar | Type::Name) {
                    return;
                }
                prefix_bounds(pattern, |bound, exact| push(id, bound, exact));
            }
            _ => {}
        }
    }

    fn compared(
        &self,
        op: Comparison,
        side: &Scalar,
        other: &Scalar,
        local: &ColumnSet,
    ) -> Option<(ColumnId, Bound)> {
        let id = self.local_column(side, local)?;
        if !is_constant_for(other, local) {
            return None;
        }
        let other = strip(other, &self.columns);
        if !comparable(self.columns.get(id).ty, type_of(other, &self.columns)) {
            return None;
        }
        let value = || other.clone();
        Some((
            id,
            match op {
                Comparison::Equal => Bound::Equal(value()),
                Comparison::NotDistinct if constant(other).is_some_and(|value| !value.is_null()) => {
                    Bound::Equal(value())
                }
                Comparison::Less => Bound::Upper(value(), false),
                Comparison::LessOrEqual => Bound::Upper(value(), true),
                Comparison::Greater => Bound::Lower(value(), false),
                Comparison::GreaterOrEqual => Bound::Lower(value(), true),
                _ => return None,
            },
        ))
    }

    /// The columns of a key, as numbers of the query.
    pub(super) fn key_columns(&self, leaf: &Leaf, index: &Index) -> Vec<KeyColumn> {
        let mut out = Vec::with_capacity(index.columns.len());
        for part in &index.columns {
            let Some(position) = leaf.table.position(part.column) else { break };
            out.push(KeyColumn {
                column: leaf.columns[position],
                descending: part.descending,
                nulls_first: part.nulls_first,
                not_null: leaf.table.columns[position].not_null,
            });
        }
        out
    }

    /// The range of a key that conditions make.
    fn matched(&self, key: &[KeyColumn], unique: bool, searches: &[Search]) -> Matched {
        let mut matched = Matched::default();
        for part in key {
            let here = || searches.iter().filter(|search| search.column == part.column);
            if let Some(search) = here().find(|search| matches!(search.bound, Bound::Equal(_))) {
                if let Bound::Equal(value) = &search.bound {
                    matched.range.equal.push(value.clone());
                }
                matched.bounding.push(search.condition);
                if search.exact {
                    matched.done.push(search.condition);
                }
                continue;
            }
            for search in here() {
                let range = &mut matched.range;
                let taken = match &search.bound {
                    Bound::Lower(value, inclusive) if range.lower.is_none() => {
                        range.lower = Some((value.clone(), *inclusive));
                        true
                    }
                    Bound::Upper(value, inclusive) if range.upper.is_none() => {
                        range.upper = Some((value.clone(), *inclusive));
                        true
                    }
                    Bound::IsNull if !range.is_null => {
                        range.is_null = true;
                        true
                    }
                    Bound::NotNull => {
                        range.not_null = true;
                        true
                    }
                    _ => false,
                };
                if taken {
                    matched.bounding.push(search.condition);
                    if search.exact {
                        matched.done.push(search.condition);
                    }
                }
            }
            let range = &mut matched.range;
            if range.is_null && (range.lower.is_some() || range.upper.is_some() || range.not_null) {
                // Contradictory: leave it to the filter.
                *range = Range { equal: std::mem::take(&mut range.equal), is_null: true, ..Range::default() };
                matched.done.retain(|condition| {
                    searches.iter().any(|search| {
                        search.condition == *condition
                            && matches!(search.bound, Bound::Equal(_) | Bound::IsNull)
                    })
                });
            }
            if range.lower.is_some() || range.upper.is_some() {
                range.not_null = false;
            }
            break;
        }
        matched.single = unique && matched.range.equal.len() == key.len();
        matched
    }

    /// All useful ways into a table, for rows that fulfil `conditions`. Columns that are none of the table's are constants: parameters of the query,
    /// or values that a join passes in.
    pub(super) fn table_paths(
        &mut self,
        leaf: &Rc<Leaf>,
        conditions: &Conditions,
        wanted: &Wanted,
    ) -> Vec<PathRef> {
        let local: ColumnSet = leaf.columns.iter().copied().collect();
        let searches = self.searches(conditions, &local);
        if let Some(path) = self.point(leaf, conditions, &searches) {
            return vec![path];
        }
        let all = self.table_rows(&leaf.table);
        let share = self.all_hold(conditions.iter().map(|condition| &condition.scalar), &local);
        let rows = (all * share).max(1.0);
        let mut paths = Vec::new();
        self.primary_paths(leaf, conditions, &searches, wanted, rows, &mut paths);
        for index in 0..leaf.table.indexes.len() {
            if !leaf.table.indexes[index].primary {
                self.index_paths(leaf, index, conditions, &searches, wanted, rows, &mut paths);
            }
        }
        self.list_paths(leaf, conditions, &searches, rows, &mut paths);
        paths
    }

    /// The one row that a unique key's value names: nothing beats it, and nothing has to be estimated.
    fn point(&self, leaf: &Rc<Leaf>, conditions: &Conditions, searches: &[Search]) -> Option<PathRef> {
        if !searches.iter().any(|search| matches!(search.bound, Bound::Equal(_))) {
            return None;
        }
        let width = self.width(leaf.columns.iter());
        let mut best: Option<Path> = None;
        for (position, index) in leaf.table.indexes.iter().enumerate() {
            if !index.unique && !index.primary {
                continue;
            }
            let key = self.key_columns(leaf, index);
            let matched = self.matched(&key, true, searches);
            if !matched.single || key.len() != index.columns.len() {
                continue;
            }
            let filter = rest(conditions, &matched.done);
            let index_only = !index.primary && self.covers(leaf, index);
            let trees = if index.primary || index_only { 1.0 } else { 2.0 };
            let total = trees * (cost::DESCENT + 0.05) + cost::ROW + cost::conditions(&filter);
            if best.as_ref().is_some_and(|best| best.total <= total) {
                continue;
            }
            let node = if index.primary {
                PathNode::TableScan {
                    leaf: leaf.clone(),
                    range: Some(matched.range),
                    backward: false,
                    filter,
                }
            } else {
                PathNode::IndexScan {
                    leaf: leaf.clone(),
                    index: position,
                    range: matched.range,
                    backward: false,
                    index_only,
                    look_ahead: false,
                    filter,
                }
            };
            best = Some(Path { node, rows: 1.0, width, startup: 0.0, total, order: Vec::new() });
        }
        best.map(Rc::new)
    }

    fn primary_paths(
        &self,
        leaf: &Rc<Leaf>,
        conditions: &Conditions,
        searches: &[Search],
        wanted: &Wanted,
        rows: f64,
        paths: &mut Vec<PathRef>,
    ) {
        let table = &leaf.table;
        let all = self.table_rows(table);
        let pages = self.tree_pages(&table.storage);
        let width = self.width(leaf.columns.iter());
        let key = table.primary().map(|index| self.key_columns(leaf, index)).unwrap_or_default();
        let matched = self.matched(&key, true, searches);
        let order = self.order_of(&key, &matched.range, &[]);
        let local = leaf.columns.iter().copied().collect();
        let mut variants = Vec::new();
        if matched.range.is_all() {
            variants.push((None, 1.0, conditions.clone(), !self.settings.seqscan));
        } else {
            let bounding = matched.bounding.iter().map(|at| &conditions[*at].scalar);
            let share = self.all_hold(bounding, &local);
            let filter = rest(conditions, &matched.done);
            variants.push((Some(matched.range), share, filter, !self.settings.indexscan));
            variants.push((None, 1.0, conditions.clone(), !self.settings.seqscan));
        }
        for (range, share, filter, disabled) in variants {
            let first = cost::pages(1.0, pages, Reading::Serial, self.settings);
            let read = cost::pages((pages * share).max(1.0), pages, Reading::Sequential, self.settings);
            let startup = if range.is_some() { cost::DESCENT + first } else { 0.0 };
            let each = cost::ROW + cost::conditions(&filter);
            let startup = startup + if disabled { cost::DISABLED } else { 0.0 };
            let total = startup + read + all * share * each;
            let scan = |backward: bool, order: Vec<OrderKey>| Path {
                node: PathNode::TableScan {
                    leaf: leaf.clone(),
                    range: range.clone(),
                    backward,
                    filter: filter.clone(),
                },
                rows,
                width,
                startup,
                total,
                order,
            };
            let backward = reversed(&order);
            if self.usefulness(&backward, wanted) > self.usefulness(&order, wanted) {
                add(paths, scan(true, backward));
            } else {
                add(paths, scan(false, order.clone()));
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what every way into a table needs")]
    fn index_paths(
        &self,
        leaf: &Rc<Leaf>,
        position: usize,
        conditions: &Conditions,
        searches: &[Search],
        wanted: &Wanted,
        rows: f64,
        paths: &mut Vec<PathRef>,
    ) {
        let index = &leaf.table.indexes[position];
        let key = self.key_columns(leaf, index);
        let matched = self.matched(&key, index.unique, searches);
        let tail = self.row_key(leaf);
        let order = self.order_of(&key, &matched.range, &tail);
        let backward = reversed(&order);
        let (ahead, behind) = (self.usefulness(&order, wanted), self.usefulness(&backward, wanted));
        let index_only = self.covers(leaf, index);
        if matched.range.is_all() && ahead == 0 && behind == 0 && !index_only {
            return;
        }
        let all = self.table_rows(&leaf.table);
        let local = leaf.columns.iter().copied().collect();
        let bounding = matched.bounding.iter().map(|at| &conditions[*at].scalar);
        let entries = (all * self.all_hold(bounding, &local)).max(1.0);
        let filter = rest(conditions, &matched.done);
        let enabled = self.settings.indexscan && (!index_only || self.settings.indexonlyscan);
        let look_ahead = self.settings.look_ahead && !index_only;
        let correlation =
            key.first().and_then(|part| self.statistics(part.column)).map_or(0.0, |s| s.correlation);
        let fetch = self.fetch(leaf, entries, correlation, index_only, look_ahead);
        let index_pages = self.tree_pages(&index.storage);
        let first = cost::pages(1.0, index_pages, Reading::Serial, self.settings);
        let walk = cost::pages(
            (index_pages * entries / all).max(1.0),
            index_pages,
            Reading::Sequential,
            self.settings,
        );
        let startup = cost::DESCENT + first + if enabled { 0.0 } else { cost::DISABLED };
        let each = cost::ENTRY + cost::ROW + cost::conditions(&filter);
        let total = startup + walk + fetch + entries * each;
        let path = |backward: bool, order: Vec<OrderKey>| Path {
            node: PathNode::IndexScan {
                leaf: leaf.clone(),
                index: position,
                range: matched.range.clone(),
                backward,
                index_only,
                look_ahead,
                filter: filter.clone(),
            },
            rows,
            width: self.width(leaf.columns.iter()),
            startup,
            total,
            order,
        };
        if behind > ahead {
            add(paths, path(true, backward));
        } else {
            add(paths, path(false, order));
        }
    }

    /// The cost of fetching a table's rows in an index's order.
    fn fetch(&self, leaf: &Leaf, rows: f64, correlation: f64, index_only: bool, look_ahead: bool) -> f64 {
        if index_only {
            return 0.0;
        }
        let pages = self.tree_pages(&leaf.table.storage);
        let reading = if look_ahead { Reading::Batched } else { Reading::Serial };
        let all = self.table_rows(&leaf.table);
        let scattered = cost::pages(cost::distinct_pages(rows, pages), pages, reading, self.settings);
        let together = cost::pages((pages * rows / all).max(1.0), pages, Reading::Sequential, self.settings);
        let ordered = correlation * correlation;
        ordered * together.min(scattered) + (1.0 - ordered) * scattered + rows * cost::DESCENT
    }

    /// The columns of the row's key, which stand behind those of an index that is not unique.
    fn row_key(&self, leaf: &Leaf) -> Vec<KeyColumn> {
        match &leaf.table.key {
            TableKey::RowId => Vec::new(),
            TableKey::Columns(_) => {
                leaf.table.primary().map(|index| self.key_columns(leaf, index)).unwrap_or_default()
            }
        }
    }

    /// The order of a range of a key.
    fn order_of(&self, key: &[KeyColumn], range: &Range, tail: &[KeyColumn]) -> Vec<OrderKey> {
        let bound = range.equal.len();
        let mut order: Vec<OrderKey> = Vec::with_capacity(key.len() - bound + tail.len());
        for (position, part) in key.iter().enumerate().skip(bound) {
            let bounded =
                position == bound && (range.lower.is_some() || range.upper.is_some() || range.not_null);
            order.push(OrderKey {
                column: part.column,
                descending: part.descending,
                nulls_first: if part.not_null || bounded { None } else { Some(part.nulls_first) },
            });
        }
        for part in tail {
            if !key.iter().any(|other| other.column == part.column) {
                order.push(OrderKey { column: part.column, descending: part.descending, nulls_first: None });
            }
        }
        order
    }

    /// Whether an index has all of a table's columns that the statement uses.
    pub(super) fn covers(&self, leaf: &Leaf, index: &Index) -> bool {
        if leaf.identity.is_some() || index.primary {
            return false;
        }
        let has = |number: ColumnNumber, ty: Type, modifier: i32| {
            crate::codec::key::is_lossless(ty, modifier)
                && (index.columns.iter().any(|part| part.column == number)
                    || matches!(&leaf.table.key, TableKey::Columns(key) if key.contains(&number)))
        };
        leaf.table
            .columns
            .iter()
            .zip(&leaf.columns)
            .all(|(column, id)| !self.used.contains(*id) || has(column.number, column.ty, column.modifier))
    }

    /// Rows for each of a list of keys: a join of the list with the table.
    fn list_paths(
        &mut self,
        leaf: &Rc<Leaf>,
        conditions: &Conditions,
        searches: &[Search],
        rows: f64,
        paths: &mut Vec<PathRef>,
    ) {
        for search in searches {
            let list = match &search.bound {
                Bound::OneOf(list) => self.list_of_values(search.column, list),
                Bound::OneOfArray(array) => self.list_of_array(search.column, array),
                _ => continue,
            };
            let Some((outer, id)) = list else { continue };
            let mut keyed: Vec<Search> =
                searches.iter().filter(|other| matches!(other.bound, Bound::Equal(_))).cloned().collect();
            keyed.push(Search {
                condition: search.condition,
                column: search.column,
                bound: Bound::Equal(Scalar::Column(id)),
                exact: true,
            });
            for index in 0..leaf.table.indexes.len() {
                let Some((lookup, used, per_key)) = self.lookup(leaf, index, conditions, &keyed) else {
                    continue;
                };
                if !used.contains(&search.condition) {
                    continue;
                }
                let found = (outer.rows * per_key).max(1.0).min(rows.max(outer.rows));
                let cost = self.lookup_cost(&lookup, outer.rows, per_key);
                let switched_off = if self.settings.indexscan { 0.0 } else { cost::DISABLED };
                let path = Path {
                    rows: rows.min(found),
                    width: self.width(leaf.columns.iter()),
                    startup: outer.startup + cost::DESCENT + switched_off,
                    total: outer.total + cost + switched_off,
                    order: Vec::new(),
                    node: PathNode::IndexJoin {
                        kind: JoinKind::Inner,
                        outer: outer.clone(),
                        lookup,
                        residual: Vec::new(),
                    },
                };
                add(paths, path);
            }
        }
    }

    /// The values of a list, each once.
    fn list_of_values(&mut self, column: ColumnId, list: &[Scalar]) -> Option<(PathRef, ColumnId)> {
        let id = self.new_column(self.columns.get(column).name.clone(), self.columns.get(column).ty);
        let constants: Option<Vec<Value>> = list.iter().map(|item| constant(item).cloned()).collect();
        let ty = self.columns.get(column).ty;
        let (rows, distinct) = match constants {
            Some(mut values) => {
                values.retain(|value| !value.is_null());
                values.sort();
                values.dedup();
                (values.into_iter().map(|value| vec![Scalar::Literal { value, ty }]).collect(), true)
            }
            None => (list.iter().map(|item| vec![item.clone()]).collect::<Vec<_>>(), false),
        };
        let count = rows.len() as f64;
        let values = Path {
            node: PathNode::Values { columns: vec![id], rows: Rc::new(rows) },
            rows: count,
            width: 8.0,
            startup: 0.0,
            total: count * cost::OPERATION,
            order: Vec::new(),
        };
        let outer = if distinct { Rc::new(values) } else { self.once_each(Rc::new(values), &[id]) };
        Some((outer, id))
    }

    /// The elements of an array, each once.
    fn list_of_array(&mut self, column: ColumnId, array: &Scalar) -> Option<(PathRef, ColumnId)> {
        let ty = type_of(array, &self.columns);
        let Resolved::Table(function) = resolve_function("unnest", &[ty]).ok()?.target else { return None };
        let id = self.new_column(self.columns.get(column).name.clone(), ty.element()?);
        let rows = match constant(array) {
            Some(Value::Array(array)) => array.values.len() as f64,
            _ => 10.0,
        };
        let scan = Path {
            node: PathNode::FunctionScan {
                function,
                arguments: vec![array.clone()],
                columns: vec![id],
                ordinality: None,
            },
            rows,
            width: 8.0,
            startup: 0.0,
            total: rows * cost::OPERATION,
            order: Vec::new(),
        };
        Some((self.once_each(Rc::new(scan), &[id]), id))
    }

    /// Each combination of these columns once.
    pub(super) fn once_each(&self, input: PathRef, columns: &[ColumnId]) -> PathRef {
        let groups: Vec<(ColumnId, Scalar)> = columns.iter().map(|id| (*id, Scalar::Column(*id))).collect();
        let rows = self.groups(groups.iter().map(|(_, scalar)| scalar), input.rows);
        let work = input.rows * cost::OPERATION * (1.0 + columns.len() as f64);
        let startup = input.total + work + cost::spill(rows * (input.width + 64.0), self.settings);
        Rc::new(Path {
            rows,
            width: input.width,
            startup,
            total: startup + rows * cost::ROW,
            order: Vec::new(),
            node: PathNode::Aggregate {
                input,
                grouping: Grouping::Hash,
                groups: Rc::new(groups),
                aggregates: Rc::new(Vec::new()),
            },
        })
    }

    /// How rows are found by an index's first columns, which conditions that takes care of, and how many rows each key gives.
    pub(super) fn lookup(
        &self,
        leaf: &Rc<Leaf>,
        index: usize,
        conditions: &Conditions,
        searches: &[Search],
    ) -> Option<(Lookup, Vec<usize>, f64)> {
        let definition = &leaf.table.indexes[index];
        let key = self.key_columns(leaf, definition);
        let matched = self.matched(&key, definition.unique || definition.primary, searches);
        if matched.range.equal.is_empty() {
            return None;
        }
        let bound = matched.range.equal.len();
        // Conditions on the next column are not part of a lookup.
        let keyed = |at: &usize| {
            searches.iter().any(|search| {
                search.condition == *at
                    && matches!(search.bound, Bound::Equal(_))
                    && key[..bound].iter().any(|part| part.column == search.column)
            })
        };
        let done: Vec<usize> = matched.done.iter().copied().filter(keyed).collect();
        let all = self.table_rows(&leaf.table);
        let per_key = if matched.single {
            1.0
        } else {
            let share: f64 = key[..bound].iter().map(|part| 1.0 / self.distinct(part.column)).product();
            (all * share).max(1.0)
        };
        let primary = definition.primary;
        let index_only = !primary && self.covers(leaf, definition);
        let lookup = Lookup {
            leaf: leaf.clone(),
            index: (!primary).then_some(index),
            index_only,
            keys: matched.range.equal,
            filter: rest(conditions, &done),
            look_ahead: self.settings.look_ahead,
        };
        Some((lookup, done, per_key))
    }

    /// The cost of looking up `keys` keys.
    pub(super) fn lookup_cost(&self, lookup: &Lookup, keys: f64, per_key: f64) -> f64 {
        let table = &lookup.leaf.table;
        let reading = if lookup.look_ahead { Reading::Batched } else { Reading::Serial };
        let rows = keys * per_key;
        let mut cost = keys * cost::DESCENT;
        if let Some(index) = lookup.index {
            let pages = self.tree_pages(&table.indexes[index].storage);
            let read =
                cost::distinct_pages(keys, pages).max((pages * rows / self.table_rows(table)).min(pages));
            cost += cost::pages(read, pages, reading, self.settings) + rows * cost::ENTRY;
        }
        if !lookup.index_only {
            let pages = self.tree_pages(&table.storage);
            // Rows of one value of the primary key's first columns stand together.
            let places = if lookup.index.is_some() { rows } else { keys };
            let read = cost::distinct_pages(places, pages);
            cost += cost::pages(read, pages, reading, self.settings);
            if lookup.index.is_some() {
                cost += rows * cost::DESCENT;
            }
        }
        cost + rows * (cost::ROW + cost::conditions(&lookup.filter))
    }

    /// How many keys of a wanted order an order provides, at best.
    fn usefulness(&self, order: &[OrderKey], wanted: &Wanted) -> usize {
        let sorts = wanted.sorts.iter().map(|keys| self.ordered_by(order, keys)).max().unwrap_or(0);
        let groups = wanted.groups.iter().filter(|columns| self.grouped_by(order, columns)).count();
        sorts.max(groups.min(1))
    }

    /// How many of the wanted keys an order provides. Constant columns count as any order.
    pub(super) fn ordered_by(&self, order: &[OrderKey], wanted: &[OrderKey]) -> usize {
        let mut provided = order.iter();
        for (count, key) in wanted.iter().enumerate() {
            if self.is_constant(key.column)
                || wanted[..count].iter().any(|other| self.equal(other.column, key.column))
            {
                continue;
            }
            let Some(next) = provided.by_ref().find(|next| !self.is_constant(next.column)) else {
                return count;
            };
            let nulls = next.nulls_first.is_none()
                || key.nulls_first.is_none()
                || next.nulls_first == key.nulls_first;
            if !self.equal(next.column, key.column) || next.descending != key.descending || !nulls {
                return count;
            }
        }
        wanted.len()
    }

    /// Whether rows of equal values in these columns stand together in an order.
    pub(super) fn grouped_by(&self, order: &[OrderKey], columns: &[ColumnId]) -> bool {
        let mut left: Vec<ColumnId> = columns.iter().copied().filter(|id| !self.is_constant(*id)).collect();
        for key in order.iter().filter(|key| !self.is_constant(key.column)) {
            if left.is_empty() {
                break;
            }
            let before = left.len();
            left.retain(|id| !self.equal(*id, key.column));
            if left.len() == before {
                return false;
            }
        }
        left.is_empty()
    }
}

/// The order of a walk from the end.
fn reversed(order: &[OrderKey]) -> Vec<OrderKey> {
    order
        .iter()
        .map(|key| OrderKey {
            descending: !key.descending,
            nulls_first: key.nulls_first.map(|first| !first),
            ..*key
        })
        .collect()
}

/// The conditions that are left.
pub(super) fn rest(conditions: &Conditions, done: &[usize]) -> Conditions {
    conditions
        .iter()
        .enumerate()
        .filter(|(position, _)| !done.contains(position))
        .map(|(_, condition)| condition.clone())
        .collect()
}

/// The range that a LIKE pattern's fixed beginning is.
fn prefix_bounds(pattern: &str, mut push: impl FnMut(Bound, bool)) {
    let mut prefix = String::new();
    let mut chars = pattern.chars();
    let mut rest = false;
    while let Some(char) = chars.next() {
        match char {
            '%' | '_' => {
                rest = true;
                break;
            }
            '\\' => match chars.next() {
                Some(escaped) => prefix.push(escaped),
                // A pattern that ends so is an error when it is run.
                None => return,
            },
            other => prefix.push(other),
        }
    }
    let text = |text: String| Scalar::Literal { value: Value::text(text), ty: Type::Text };
    if !rest {
        push(Bound::Equal(text(prefix)), true);
        return;
    }
    if prefix.is_empty() {
        return;
    }
    push(Bound::Lower(text(prefix.clone()), true), false);
    if let Some(end) = successor(&prefix) {
        push(Bound::Upper(text(end), false), false);
    }
}

/// The first string behind all that begin with this one.
fn successor(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match u32::from(last) + 1 {
            0xd800 => 0xe000,
            next => next,
        };
        if let Some(next) = char::from_u32(next) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}
