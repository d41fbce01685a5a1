//! The order in which a region's relations are joined, and how.
//!
//! Up to [`EXHAUSTIVE`] relations every order is looked at, set by set; beyond that the cheapest pair is joined again and again.

use super::Planner;
use super::columns::ColumnSet;
use super::cost;
use super::path::{
    Conditions, Leaf, Lookup, OrderKey, Path, PathNode, PathRef, Wanted, add, beaten, cheapest, cheapest_for,
};
use super::region::{Region, Set, Source};
use super::scalar::strip;
use super::search::{Bound, Search};
use crate::logical::{JoinKind, Rel, Scalar, type_of};
use crate::types::Type;
use crate::{Error, Result};
use std::collections::HashMap;
use std::rc::Rc;

/// Relations up to which every order is looked at.
const EXHAUSTIVE: usize = 8;

/// What is known of a set of relations that are joined.
#[derive(Debug, Default)]
struct Joined {
    paths: Vec<PathRef>,
    rows: f64,
    columns: ColumnSet,
}

/// Two sides about to be joined.
struct Pair<'a> {
    region: &'a Region<'a>,
    kind: JoinKind,
    left_set: Set,
    right_set: Set,
    left: &'a Joined,
    right: &'a Joined,
    lateral: bool,
    /// The join's conditions, and those to be asked afterwards, by number.
    on: Vec<usize>,
    after: Vec<usize>,
    rows: f64,
    width: f64,
}

impl Pair<'_> {
    /// The conditions of the join.
    fn on(&self) -> Conditions {
        self.region.conditions(self.on.iter().copied())
    }

    /// What some conditions cost for one row.
    fn cost(&self, numbers: &[usize]) -> f64 {
        numbers.iter().map(|number| self.region.predicates[*number].condition.cost).sum()
    }

    /// The table that the right side is, if it is one.
    fn table(&self) -> Option<(usize, &Rc<Leaf>)> {
        if self.right_set.count_ones() != 1 {
            return None;
        }
        let member = self.right_set.trailing_zeros() as usize;
        match &self.region.members[member].source {
            Source::Table(leaf) => Some((member, leaf)),
            Source::Other(_) => None,
        }
    }

    /// The sides of a condition as a join key.
    fn key(&self, number: usize) -> Option<(Scalar, Scalar)> {
        let predicate = &self.region.predicates[number];
        let (a, b) = predicate.sides?;
        let Scalar::Compare { left, right, .. } = &predicate.condition.scalar else { return None };
        if a & !self.left_set == 0 && b & !self.right_set == 0 {
            Some(((**left).clone(), (**right).clone()))
        } else if b & !self.left_set == 0 && a & !self.right_set == 0 {
            Some(((**right).clone(), (**left).clone()))
        } else {
            None
        }
    }

    /// Whether a condition can be a join key.
    fn is_key(&self, number: usize) -> bool {
        self.region.predicates[number].sides.is_some_and(|(a, b)| {
            a & !self.left_set == 0 && b & !self.right_set == 0
                || b & !self.left_set == 0 && a & !self.right_set == 0
        })
    }
}

impl Planner<'_> {
    /// Candidates for a tree of joins and filters over tables and other relations.
    pub(super) fn region_paths(&mut self, rel: &Rel, wanted: &Wanted) -> Result<Vec<PathRef>> {
        let mut region = Region::new(rel, self);
        let count = region.members.len();
        let mut sets: HashMap<Set, Joined> = HashMap::new();
        let (tables, others): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|member| matches!(region.members[*member].source, Source::Table(_)));
        for member in others {
            let joined = self.member_paths(&mut region, member, wanted)?;
            sets.insert(1 << member, joined);
        }
        for (columns, constant) in &region.equal {
            self.note_equal(columns, *constant);
        }
        for member in tables {
            let joined = self.member_paths(&mut region, member, wanted)?;
            sets.insert(1 << member, joined);
        }
        let all: Set = if count == 64 { Set::MAX } else { (1 << count) - 1 };
        if count > 1 {
            let found = count <= EXHAUSTIVE && {
                self.every_order(&region, all, &mut sets, false);
                sets.contains_key(&all) || {
                    // Relations that nothing connects.
                    self.every_order(&region, all, &mut sets, true);
                    sets.contains_key(&all)
                }
            };
            if !found {
                self.greedy_order(&region, count, &mut sets)?;
            }
        }
        let joined = sets.remove(&all).ok_or_else(|| Error::internal("no order of joins"))?;
        Ok(self.leftover(&region, count, joined.paths))
    }

    /// Conditions that speak of no relation are asked at the end, if no join could ask them.
    fn leftover(&mut self, region: &Region<'_>, count: usize, paths: Vec<PathRef>) -> Vec<PathRef> {
        if count > 1 {
            return paths;
        }
        let rest: Conditions = region
            .predicates
            .iter()
            .filter(|predicate| predicate.needs == 0)
            .map(|predicate| predicate.condition.clone())
            .collect();
        if rest.is_empty() {
            paths
        } else {
            paths.into_iter().map(|path| self.filtered(path, &rest)).collect()
        }
    }

    fn member_paths(&mut self, region: &mut Region<'_>, member: usize, wanted: &Wanted) -> Result<Joined> {
        let conditions = region.own(member);
        let columns = region.members[member].columns.clone();
        let nullable = region.specials.iter().any(|special| special.right >> member & 1 == 1);
        let lateral = region.members[member].takes != 0;
        let paths = match &mut region.members[member].source {
            Source::Table(leaf) => {
                let leaf = leaf.clone();
                self.table_paths(&leaf, &conditions, wanted)
            }
            Source::Other(rel) => {
                let mut left = Conditions::new();
                let mut pushed = false;
                for condition in conditions {
                    if super::pushdown::can_push(rel, &condition.scalar) {
                        super::pushdown::push(rel.to_mut(), condition.scalar.clone());
                        pushed = true;
                    } else {
                        left.push(condition);
                    }
                }
                if pushed {
                    // What came in may reject the NULLs of an outer join within.
                    super::reduce::outer_joins(rel.to_mut(), &[]);
                }
                let known = (nullable || lateral).then(|| self.known.clone());
                let paths = self.rel_paths(rel, &left, wanted)?;
                if let Some(known) = known {
                    // What is constant within may be NULL outside, or is constant for one row of the relations it is lateral to.
                    self.known = known;
                }
                paths
            }
        };
        let rows = paths.first().map_or(1.0, |path| path.rows);
        Ok(Joined { paths, rows, columns })
    }

    /// Joins all sets of relations, smaller ones first.
    fn every_order(
        &mut self,
        region: &Region<'_>,
        all: Set,
        sets: &mut HashMap<Set, Joined>,
        products: bool,
    ) {
        for set in 1..=all {
            if set.count_ones() < 2 {
                continue;
            }
            let mut joined = Joined::default();
            let mut left = (set - 1) & set;
            while left != 0 {
                let right = set & !left;
                if products || region.connected(left, right) {
                    self.join(region, left, right, sets, &mut joined);
                }
                left = (left - 1) & set;
            }
            if !joined.paths.is_empty() {
                sets.insert(set, joined);
            }
        }
    }

    /// Joins the pair that gives the fewest rows, until all are joined.
    fn greedy_order(
        &mut self,
        region: &Region<'_>,
        count: usize,
        sets: &mut HashMap<Set, Joined>,
    ) -> Result<()> {
        let mut parts: Vec<Set> = (0..count).map(|member| 1 << member).collect();
        while parts.len() > 1 {
            let mut best: Option<(f64, Set, Set)> = None;
            for products in [false, true] {
                for (at, a) in parts.iter().enumerate() {
                    for b in &parts[at + 1..] {
                        if !products && !region.connected(*a, *b) {
                            continue;
                        }
                        let set = a | b;
                        if !sets.contains_key(&set) {
                            let mut joined = Joined::default();
                            self.join(region, *a, *b, sets, &mut joined);
                            self.join(region, *b, *a, sets, &mut joined);
                            if joined.paths.is_empty() {
                                continue;
                            }
                            sets.insert(set, joined);
                        }
                        let joined = &sets[&set];
                        let cost = cheapest(&joined.paths).map_or(f64::INFINITY, |path| path.total);
                        let weight = cost + joined.rows;
                        if best.is_none_or(|(least, _, _)| weight < least) {
                            best = Some((weight, *a, *b));
                        }
                    }
                }
                if best.is_some() {
                    break;
                }
            }
            let (_, a, b) = best.ok_or_else(|| Error::internal("no order of joins"))?;
            parts.retain(|set| *set != a && *set != b);
            parts.push(a | b);
        }
        Ok(())
    }

    /// Adds the ways of joining two sets, the first one on the left.
    fn join(
        &mut self,
        region: &Region<'_>,
        left_set: Set,
        right_set: Set,
        sets: &HashMap<Set, Joined>,
        joined: &mut Joined,
    ) {
        let (Some(left), Some(right)) = (sets.get(&left_set), sets.get(&right_set)) else { return };
        let Some(special) = region.legal(left_set, right_set) else { return };
        let kind = special.map_or(JoinKind::Inner, |special| region.specials[special].kind);
        let (on, after) = region.join_conditions(left_set, right_set, special);
        let single =
            (right_set.count_ones() == 1).then(|| &region.members[right_set.trailing_zeros() as usize]);
        let lateral = single.is_some_and(|member| member.takes != 0);
        // Other joins than nested loops do not run a lateral relation anew, and may lose the order of the left side.
        let row_by_row = single.is_some_and(|member| member.depends != 0);
        let mut pair = Pair {
            region,
            kind,
            left_set,
            right_set,
            left,
            right,
            lateral,
            on,
            after,
            rows: 0.0,
            width: 0.0,
        };
        let one_sided = matches!(kind, JoinKind::Semi | JoinKind::Anti);
        if joined.paths.is_empty() {
            joined.columns = left.columns.clone();
            if !one_sided {
                joined.columns.add(&right.columns);
            }
            joined.rows = self.join_rows(&pair);
        }
        pair.rows = joined.rows;
        pair.width = side_width(&left.paths) + if one_sided { 0.0 } else { side_width(&right.paths) };
        let paths = &mut joined.paths;
        if !row_by_row {
            self.hash_joins(&pair, paths);
            self.index_joins(&pair, paths);
            self.range_joins(&pair, paths);
            if kind == JoinKind::Semi {
                self.join_with_each_once(&pair, paths);
            }
        }
        self.nested_loops(&pair, paths);
    }

    /// How many rows a join gives.
    fn join_rows(&self, pair: &Pair<'_>) -> f64 {
        let (left, right) = (pair.left, pair.right);
        let mut local = left.columns.clone();
        local.add(&right.columns);
        let scalar = |number: &usize| &pair.region.predicates[*number].condition.scalar;
        let share = self.all_hold(pair.on.iter().map(scalar), &local);
        let mut inner = left.rows * right.rows * share;
        // Each row finds at most one partner by a unique key.
        for (one, other, set) in [(right, left, pair.right_set), (left, right, pair.left_set)] {
            if set.count_ones() == 1
                && let member = set.trailing_zeros() as usize
                && let Source::Table(leaf) = &pair.region.members[member].source
                && self.finds_one(leaf, pair, member)
            {
                inner = inner.min(other.rows * (one.rows / self.table_rows(&leaf.table)).min(1.0));
            }
        }
        let rows = match pair.kind {
            JoinKind::Inner => inner,
            JoinKind::Left => inner.max(left.rows),
            JoinKind::Full => inner.max(left.rows).max(right.rows),
            JoinKind::Semi => inner.min(left.rows),
            JoinKind::Anti => (left.rows - inner).max(left.rows * 0.05),
        };
        (rows * self.all_hold(pair.after.iter().map(scalar), &local)).max(1.0)
    }

    /// Whether equalities give a value to every column of a unique key.
    fn finds_one(&self, leaf: &Leaf, pair: &Pair<'_>, member: usize) -> bool {
        let Some(equalities) = pair.region.equalities.get(member) else { return false };
        leaf.table.indexes.iter().filter(|index| index.unique || index.primary).any(|index| {
            index.columns.iter().all(|part| {
                let Some(position) = leaf.table.position(part.column) else { return false };
                equalities.iter().any(|search| {
                    search.column == leaf.columns[position]
                        && (pair.on.contains(&search.condition)
                            || pair.region.is_own(search.condition, member))
                })
            })
        })
    }

    /// Adds a join, made by `node` if it is any good, with what is asked of its rows.
    fn add_join(
        &self,
        pair: &Pair<'_>,
        (startup, total): (f64, f64),
        order: &[OrderKey],
        paths: &mut Vec<PathRef>,
        node: impl FnOnce() -> PathNode,
    ) {
        let later = if pair.after.is_empty() { 0.0 } else { pair.rows * pair.cost(&pair.after) };
        if beaten(paths, startup, total + later, order) {
            return;
        }
        let path =
            Path { node: node(), rows: pair.rows, width: pair.width, startup, total, order: order.to_vec() };
        if pair.after.is_empty() {
            add(paths, path);
            return;
        }
        let conditions = pair.region.conditions(pair.after.iter().copied());
        let node = PathNode::Filter { input: PathRef::new(path), conditions };
        let order = order.to_vec();
        add(paths, Path { node, rows: pair.rows, width: pair.width, startup, total: total + later, order });
    }

    fn hash_joins(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let (keys, residual): (Vec<usize>, Vec<usize>) = pair
            .on
            .iter()
            .partition(|number| pair.is_key(**number) && !self.compares_records(pair, **number));
        let Some(right) = cheapest(&pair.right.paths) else { return };
        if keys.is_empty() {
            return;
        }
        let mut lefts: Vec<&PathRef> = Vec::new();
        lefts.extend(cheapest(&pair.left.paths));
        if let Some(first) = cheapest_for(&pair.left.paths, 1.0)
            && !lefts.iter().any(|other| PathRef::ptr_eq(other, first))
        {
            lefts.push(first);
        }
        let residual_cost = pair.cost(&residual);
        for left in lefts {
            let bytes = right.rows * (right.width + 64.0);
            let mut spilled = cost::spill(bytes, self.settings);
            if spilled > 0.0 {
                let probed = left.rows * (left.width + 32.0) + self.settings.work_bytes as f64;
                spilled += cost::spill(probed, self.settings);
            }
            let hashing = cost::OPERATION * keys.len() as f64;
            let build = right.total + right.rows * (hashing + cost::ROW) + spilled;
            let startup = left.startup + build + if self.settings.hashjoin { 0.0 } else { cost::DISABLED };
            let probe = left.total - left.startup
                + left.rows * (hashing + cost::OPERATION)
                + pair.rows * (cost::ROW + residual_cost);
            self.add_join(pair, (startup, startup + probe), &[], paths, || PathNode::HashJoin {
                kind: pair.kind,
                left: left.clone(),
                right: right.clone(),
                keys: keys.iter().filter_map(|number| pair.key(*number)).collect(),
                residual: pair.region.conditions(residual.iter().copied()),
            });
        }
    }

    /// Whether a condition may fail when it compares: then all rows must meet, whatever their hashes.
    fn compares_records(&self, pair: &Pair<'_>, number: usize) -> bool {
        let scalar = &pair.region.predicates[number].condition.scalar;
        matches!(scalar, Scalar::Compare { left, .. } if type_of(left, &self.columns) == Type::Record)
    }

    fn nested_loops(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let Some(right) = cheapest(&pair.right.paths) else { return };
        let switched_off = if self.settings.nestloop { 0.0 } else { cost::DISABLED };
        let on_cost = pair.cost(&pair.on);
        for left in &pair.left.paths {
            let pairs = left.rows * right.rows;
            let again = if pair.lateral {
                right.total
            } else {
                // Kept rows are gone through again.
                right.rows * cost::OPERATION
                    + cost::spill(right.rows * (right.width + 32.0), self.settings) / 2.0
            };
            let startup = left.startup + right.startup + switched_off;
            let total = left.total
                + right.total
                + switched_off
                + (left.rows - 1.0).max(0.0) * again
                + pairs * (cost::ROW * 0.5 + on_cost)
                + pair.rows * cost::ROW * 0.5;
            self.add_join(pair, (startup, total), &left.order, paths, || PathNode::NestedLoop {
                kind: pair.kind,
                left: left.clone(),
                right: right.clone(),
                condition: pair.on(),
            });
        }
    }

    /// Joins that look up a table by an index.
    fn index_joins(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let Some((member, leaf)) = pair.table() else { return };
        let usable: Vec<&Search> = pair.region.equalities[member]
            .iter()
            .filter(|search| {
                pair.on.contains(&search.condition) || pair.region.is_own(search.condition, member)
            })
            .collect();
        if !usable.iter().any(|search| pair.on.contains(&search.condition)) {
            return;
        }
        for (position, index) in leaf.table.indexes.iter().enumerate() {
            let mut keys: Vec<&Search> = Vec::with_capacity(index.columns.len());
            for part in &index.columns {
                let Some(at) = leaf.table.position(part.column) else { break };
                let Some(search) = usable.iter().find(|search| search.column == leaf.columns[at]) else {
                    break;
                };
                keys.push(search);
            }
            if keys.iter().any(|search| pair.on.contains(&search.condition)) {
                self.index_join(pair, (member, leaf), position, &keys, paths);
            }
        }
    }

    fn index_join(
        &self,
        pair: &Pair<'_>,
        (member, leaf): (usize, &Rc<Leaf>),
        position: usize,
        keys: &[&Search],
        paths: &mut Vec<PathRef>,
    ) {
        let index = &leaf.table.indexes[position];
        let done = |number: usize| keys.iter().any(|search| search.condition == number && search.exact);
        let residual: Vec<usize> = pair.on.iter().copied().filter(|number| !done(*number)).collect();
        let own: Vec<usize> = (0..pair.region.predicates.len())
            .filter(|number| pair.region.is_own(*number, member) && !done(*number))
            .collect();
        let per_key = if (index.unique || index.primary) && keys.len() == index.columns.len() {
            1.0
        } else {
            let share: f64 = keys.iter().map(|search| 1.0 / self.distinct(search.column)).product();
            (self.table_rows(&leaf.table) * share).max(1.0)
        };
        let lookup = Lookup {
            leaf: leaf.clone(),
            index: (!index.primary).then_some(position),
            index_only: !index.primary && self.covers(leaf, index),
            keys: Vec::new(),
            filter: Conditions::new(),
            look_ahead: self.settings.look_ahead,
        };
        let asked = pair.cost(&residual) + pair.cost(&own);
        let enabled = self.settings.nestloop && (self.settings.indexscan || index.primary);
        let switched_off = if enabled { 0.0 } else { cost::DISABLED };
        for left in &pair.left.paths {
            let total = left.total
                + self.lookup_cost(&lookup, left.rows, per_key)
                + left.rows * per_key * asked
                + pair.rows * cost::ROW * 0.5
                + switched_off;
            let startup = left.startup + cost::DESCENT + switched_off;
            self.add_join(pair, (startup, total), &left.order, paths, || PathNode::IndexJoin {
                kind: pair.kind,
                outer: left.clone(),
                lookup: Lookup {
                    keys: keys
                        .iter()
                        .filter_map(|search| match &search.bound {
                            Bound::Equal(value) => Some(value.clone()),
                            _ => None,
                        })
                        .collect(),
                    filter: pair.region.conditions(own.iter().copied()),
                    ..lookup.clone()
                },
                residual: pair.region.conditions(residual.iter().copied()),
            });
        }
    }

    /// Joins that scan a range of an index anew for each row of the left side.
    fn range_joins(&mut self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let Some((member, leaf)) = pair.table() else { return };
        if pair.on.iter().all(|number| pair.is_key(*number)) {
            return;
        }
        let bounds = self.searches(&pair.on(), &pair.right.columns).into_iter().any(|search| {
            matches!(search.bound, Bound::Lower(..) | Bound::Upper(..))
                && leaf.table.indexes.iter().any(|index| {
                    self.key_columns(leaf, index).iter().any(|part| part.column == search.column)
                })
        });
        if !bounds {
            return;
        }
        let leaf = leaf.clone();
        let mut conditions = pair.region.own(member);
        conditions.extend(pair.on());
        let inner = self.table_paths(&leaf, &conditions, &Wanted::default());
        let Some(inner) = cheapest(&inner) else { return };
        if matches!(&inner.node, PathNode::TableScan { range: None, .. } | PathNode::IndexJoin { .. }) {
            return;
        }
        let switched_off = if self.settings.nestloop { 0.0 } else { cost::DISABLED };
        for left in &pair.left.paths {
            let startup = left.startup + inner.startup + switched_off;
            let total = left.total + left.rows * inner.total + pair.rows * cost::ROW + switched_off;
            self.add_join(pair, (startup, total), &left.order, paths, || PathNode::NestedLoop {
                kind: pair.kind,
                left: left.clone(),
                right: inner.clone(),
                condition: Conditions::new(),
            });
        }
    }

    /// A semi join as an inner one: the right side's values, each once, look up the left side.
    fn join_with_each_once(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let turned = Pair {
            kind: JoinKind::Inner,
            left_set: pair.right_set,
            right_set: pair.left_set,
            left: pair.right,
            right: pair.left,
            on: pair.on.clone(),
            after: pair.after.clone(),
            ..*pair
        };
        let Some((member, _)) = turned.table() else { return };
        if pair.region.members[member].depends != 0 {
            return;
        }
        let mut columns = Vec::new();
        for number in &pair.on {
            let Some((_, right)) = pair.key(*number) else { return };
            let Scalar::Column(id) = strip(&right, &self.columns) else { return };
            if !columns.contains(id) {
                columns.push(*id);
            }
        }
        let Some(right) = cheapest(&pair.right.paths).filter(|_| !columns.is_empty()) else { return };
        let once = self.once_each(right.clone(), &columns);
        let rows = once.rows;
        let once = Joined { paths: vec![once], rows, columns: pair.right.columns.clone() };
        self.index_joins(&Pair { left: &once, ..turned }, paths);
    }

    /// Both sides of a FULL join are planned on their own.
    pub(super) fn full_join(&mut self, left: &Rel, right: &Rel, on: Option<&Scalar>) -> Result<Vec<PathRef>> {
        let known = self.known.clone();
        let mut sides = Vec::with_capacity(2);
        for rel in [left, right] {
            let paths = self.paths(rel, &Wanted::default())?;
            let rows = paths.first().map_or(1.0, |path| path.rows);
            sides.push(Joined { paths, rows, columns: super::columns::output_set(rel) });
        }
        // What is constant on one side may be NULL now.
        self.known = known;
        let mut conditions = Vec::new();
        if let Some(on) = on {
            super::scalar::conjuncts(on.clone(), &mut conditions);
        }
        let region = Region::of_two(left, right, conditions);
        let mut pair = Pair {
            region: &region,
            kind: JoinKind::Full,
            left_set: 1,
            right_set: 2,
            left: &sides[0],
            right: &sides[1],
            lateral: false,
            on: (0..region.predicates.len()).collect(),
            after: Vec::new(),
            rows: 0.0,
            width: side_width(&sides[0].paths) + side_width(&sides[1].paths),
        };
        pair.rows = self.join_rows(&pair);
        let mut paths = Vec::new();
        self.hash_joins(&pair, &mut paths);
        if paths.is_empty() {
            self.nested_loops(&pair, &mut paths);
            // Rows of the right side come last, in no order.
            paths = paths
                .into_iter()
                .filter_map(|path| Rc::try_unwrap(path).ok())
                .map(|path| Rc::new(Path { order: Vec::new(), ..path }))
                .collect();
        }
        Ok(paths)
    }
}

fn side_width(paths: &[PathRef]) -> f64 {
    paths.first().map_or(0.0, |path| path.width)
}
