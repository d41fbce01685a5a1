//! Ways into a table: all of it, a range of its key, a range of an index in either direction.

use super::Planner;
use super::columns::ColumnSet;
use super::cost::{self, Reading};
use super::order::reversed;
use super::path::{Conditions, Leaf, OrderKey, Path, PathNode, PathRef, Range, Wanted, add};
use super::search::{Bound, Search};
use crate::catalog::{ColumnNumber, Index, TableKey};
use crate::logical::{ColumnId, Scalar};
use crate::types::Type;
use std::rc::Rc;

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
pub(super) struct Matched {
    pub(super) range: Range,
    /// Conditions that the range takes part in.
    pub(super) bounding: Vec<usize>,
    /// Conditions that need not be asked of the rows any more.
    pub(super) done: Vec<usize>,
    /// Every column of a unique key has its value: one row at most.
    pub(super) single: bool,
}

impl Planner<'_> {
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

    /// The range of a key that conditions make. A pattern that is given later may have no fixed beginning, so it is reckoned with all that the rest
    /// of the range has; without such a rest it bounds a key only where that has what is wanted of the rows (`is_rows`).
    pub(super) fn matched(
        &self,
        key: &[KeyColumn],
        (unique, is_rows): (bool, bool),
        searches: &[Search],
    ) -> Matched {
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
            let rest = &key[matched.range.equal.len()..];
            let mut next: Vec<_> = here().map(|search| (search, search.reach(rest))).collect();
            // What says more of the key comes first.
            next.sort_by_key(|(_, reach)| std::cmp::Reverse(*reach));
            for (search, reach) in next {
                let range = &mut matched.range;
                let mut exact = search.exact;
                let mut bound = |value: &Scalar, included: bool| {
                    let bound = search.bound(value, included, reach);
                    exact = bound.exact && leaves_nulls_out(search, &rest[..=reach]);
                    Some((bound.values, bound.included))
                };
                let taken = match &search.bound {
                    Bound::Like(_) if !is_rows && range.equal.is_empty() => false,
                    // Bounds that are known are the better ones.
                    Bound::Like(_)
                        if here().any(|other| matches!(other.bound, Bound::Lower(..) | Bound::Upper(..))) =>
                    {
                        false
                    }
                    Bound::Like(pattern) if range.like.is_none() => {
                        range.like = Some(pattern.clone());
                        true
                    }
                    Bound::Lower(value, inclusive) if range.lower.is_none() => {
                        range.lower = bound(value, *inclusive);
                        true
                    }
                    Bound::Upper(value, inclusive) if range.upper.is_none() => {
                        range.upper = bound(value, *inclusive);
                        true
                    }
                    Bound::IsNull if !range.is_null => {
                        range.is_null = true;
                        true
                    }
                    Bound::NotNull => {
                        range.not_null = !part.not_null;
                        true
                    }
                    _ => false,
                };
                if taken {
                    // How much of the key a pattern leaves that is given later nobody knows: it may be all of it.
                    if !matches!(search.bound, Bound::Like(_)) {
                        matched.bounding.push(search.condition);
                    }
                    if exact {
                        matched.done.push(search.condition);
                    }
                }
            }
            let range = &mut matched.range;
            let bounded = range.lower.is_some() || range.upper.is_some() || range.like.is_some();
            if range.is_null && (bounded || range.not_null) {
                // Contradictory: leave it to the filter.
                *range = Range { equal: std::mem::take(&mut range.equal), is_null: true, ..Range::default() };
                matched.done.retain(|condition| {
                    searches.iter().any(|search| {
                        search.condition == *condition
                            && matches!(search.bound, Bound::Equal(_) | Bound::IsNull)
                    })
                });
            }
            if bounded {
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
            let matched = self.matched(&key, (true, index.primary), searches);
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
        let matched = self.matched(&key, (true, true), searches);
        let order = self.order_of(&key, &matched.range, &[]);
        let local = leaf.columns.iter().copied().collect();
        let mut variants = Vec::new();
        if matched.range.is_all() {
            variants.push((None, 1.0, conditions.clone(), !self.settings.seqscan));
        } else {
            let bounding = matched.bounding.iter().map(|at| &conditions[*at].scalar);
            let share = self.all_hold(bounding, &local);
            let filter = rest(conditions, &matched.done);
            // Of a pattern that is given later no more is read than of the whole table, whatever it is.
            let is_never_more = matched.bounding.is_empty() && self.settings.indexscan;
            variants.push((Some(matched.range), share, filter, !self.settings.indexscan));
            if !is_never_more {
                variants.push((None, 1.0, conditions.clone(), !self.settings.seqscan));
            }
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
        let index_only = self.covers(leaf, index);
        let matched = self.matched(&key, (index.unique, index_only), searches);
        let tail = self.row_key(leaf);
        let order = self.order_of(&key, &matched.range, &tail);
        let backward = reversed(&order);
        let (ahead, behind) = (self.usefulness(&order, wanted), self.usefulness(&backward, wanted));
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
        let scattered = cost::scattered(rows, pages, reading, self.settings);
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
            let bounded = position == bound
                && (range.lower.is_some() || range.upper.is_some() || range.not_null || range.like.is_some());
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

/// Whether a bound of the columns of a key leaves out rows that are NULL in one behind the first, and equal before it: of these the comparison is
/// not known.
fn leaves_nulls_out(search: &Search, key: &[KeyColumn]) -> bool {
    let is_lower = matches!(search.bound, Bound::Lower(..));
    key[1..].iter().all(|part| part.not_null || part.nulls_first == (is_lower != part.descending))
}
