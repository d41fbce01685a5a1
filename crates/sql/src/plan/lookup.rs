//! Single rows for a list of keys, and what looking rows up costs.

use super::Planner;
use super::access::rest;
use super::cost::{self, Reading};
use super::path::{Conditions, Leaf, Lookup, Path, PathNode, PathRef, add};
use super::scalar::constant;
use super::search::{Bound, Search};
use crate::functions::{Resolved, resolve_function};
use crate::logical::{ColumnId, JoinKind, Scalar, type_of};
use crate::physical::Grouping;
use crate::types::Value;
use std::rc::Rc;

impl Planner<'_> {
    /// Rows for each of a list of keys: a join of the list with the table.
    pub(super) fn list_paths(
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
                Bound::OneOfArray(array) => self.list_of_array(array),
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
                row: None,
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
        let id = self.new_column("\"*VALUES*\".column1".to_owned(), self.columns.get(column).ty);
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
    fn list_of_array(&mut self, array: &Scalar) -> Option<(PathRef, ColumnId)> {
        let ty = type_of(array, &self.columns);
        let Resolved::Table(function) = resolve_function("unnest", &[ty]).ok()?.target else { return None };
        let id = self.new_column("unnest".to_owned(), ty.element()?);
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
        let matched =
            self.matched(&key, (definition.unique || definition.primary, definition.primary), searches);
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
}
