//! The order in which a region's relations are joined, and how.
//!
//! Up to [`EXHAUSTIVE`] relations every order is looked at, set by set; beyond that the cheapest pair is joined again and again.

use super::Planner;
use super::access::{Bound, Search};
use super::cost;
use super::path::{Conditions, Lookup, Path, PathNode, PathRef, Wanted, add, cheapest, cheapest_for};
use super::region::{Region, Set, Source};
use super::scalar::strip;
use super::visit::ColumnSet;
use crate::logical::{Comparison, JoinKind, Rel, Scalar};
use crate::{Error, Result};
use std::collections::HashMap;

/// Relations up to which every order is looked at.
const EXHAUSTIVE: usize = 9;

/// What is known of a set of relations that are joined.
#[derive(Debug, Default)]
struct Joined {
    paths: Vec<PathRef>,
    rows: f64,
    columns: ColumnSet,
}

/// Two sides about to be joined.
struct Pair<'a> {
    kind: JoinKind,
    left: &'a Joined,
    right: &'a Joined,
    /// The one relation of the right side, if it is one.
    member: Option<usize>,
    lateral: bool,
    on: Conditions,
    after: Conditions,
    rows: f64,
    width: f64,
}

impl Planner<'_> {
    /// Candidates for a tree of joins and filters over tables and other relations.
    pub(super) fn region_paths(&mut self, rel: &Rel, wanted: &Wanted) -> Result<Vec<PathRef>> {
        let mut region = Region::new(rel, self);
        let count = region.members.len();
        let mut sets: HashMap<Set, Joined> = HashMap::new();
        for member in 0..count {
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
        let paths = match &mut region.members[member].source {
            Source::Table(leaf) => {
                let leaf = leaf.clone();
                self.table_paths(&leaf, &conditions, wanted)
            }
            Source::Other(rel) => {
                let mut left = Conditions::new();
                for condition in conditions {
                    if super::pushdown::can_push(rel, &condition.scalar) {
                        super::pushdown::push(rel.to_mut(), condition.scalar.clone());
                    } else {
                        left.push(condition);
                    }
                }
                let known = nullable.then(|| (self.constants.clone(), self.equal_to.clone()));
                let paths = self.rel_paths(rel, &left, wanted)?;
                if let Some((constants, equal_to)) = known {
                    // What is constant within may be NULL outside.
                    (self.constants, self.equal_to) = (constants, equal_to);
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
        let member = (right_set.count_ones() == 1).then(|| right_set.trailing_zeros() as usize);
        let lateral = member.is_some_and(|member| region.members[member].depends != 0);
        if joined.paths.is_empty() {
            joined.columns = left.columns.clone();
            if !matches!(kind, JoinKind::Semi | JoinKind::Anti) {
                joined.columns.add(&right.columns);
            }
            joined.rows = self.join_rows(region, kind, (left_set, left), (right_set, right), &on, &after);
        }
        let width = side_width(&left.paths)
            + if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 0.0 } else { side_width(&right.paths) };
        let pair = Pair { kind, left, right, member, lateral, on, after, rows: joined.rows, width };
        let mut paths = std::mem::take(&mut joined.paths);
        if !lateral {
            self.hash_joins(&pair, &mut paths);
            self.index_joins(region, &pair, &mut paths);
            self.range_joins(region, &pair, &mut paths);
            if kind == JoinKind::Semi {
                self.join_with_each_once(region, &pair, (left_set, right_set), &mut paths);
            }
        }
        self.nested_loops(&pair, &mut paths);
        joined.paths = paths;
    }

    /// How many rows a join gives.
    fn join_rows(
        &self,
        region: &Region<'_>,
        kind: JoinKind,
        (left_set, left): (Set, &Joined),
        (right_set, right): (Set, &Joined),
        on: &Conditions,
        after: &Conditions,
    ) -> f64 {
        let mut local = left.columns.clone();
        local.add(&right.columns);
        let share = self.all_hold(on.iter().map(|condition| &condition.scalar), &local);
        let mut inner = left.rows * right.rows * share;
        // Each row finds at most one partner by a unique key.
        for (one, other, set) in [(right, left, right_set), (left, right, left_set)] {
            if set.count_ones() == 1
                && let Source::Table(leaf) = &region.members[set.trailing_zeros() as usize].source
                && self.finds_one(leaf, region, set, on)
            {
                inner = inner.min(other.rows * (one.rows / self.table_rows(&leaf.table)).min(1.0));
            }
        }
        let rows = match kind {
            JoinKind::Inner => inner,
            JoinKind::Left => inner.max(left.rows),
            JoinKind::Full => inner.max(left.rows).max(right.rows),
            JoinKind::Semi => inner.min(left.rows),
            JoinKind::Anti => (left.rows - inner).max(left.rows * 0.05),
        };
        let kept = self.all_hold(after.iter().map(|condition| &condition.scalar), &local);
        (rows * kept).max(1.0)
    }

    /// Whether equalities give a value to every column of a unique key.
    fn finds_one(&self, leaf: &super::path::Leaf, region: &Region<'_>, set: Set, on: &Conditions) -> bool {
        let local: ColumnSet = leaf.columns.iter().copied().collect();
        let mut conditions = on.clone();
        conditions.extend(region.own(set.trailing_zeros() as usize));
        let searches = self.searches(&conditions, &local);
        leaf.table.indexes.iter().filter(|index| index.unique || index.primary).any(|index| {
            self.key_columns(leaf, index).iter().all(|part| {
                searches
                    .iter()
                    .any(|search| search.column == part.column && matches!(search.bound, Bound::Equal(_)))
            })
        })
    }

    /// A join as a candidate, with what is asked of its rows.
    fn add_join(&self, pair: &Pair<'_>, path: Path, paths: &mut Vec<PathRef>) {
        if pair.after.is_empty() {
            add(paths, path);
            return;
        }
        let rows = path.rows;
        let filtered = self.filtered(PathRef::new(path), &pair.after);
        let PathNode::Filter { input, conditions } = &filtered.node else { return };
        let node = PathNode::Filter { input: input.clone(), conditions: conditions.clone() };
        let order = filtered.order.clone();
        add(
            paths,
            Path { node, rows, width: pair.width, startup: filtered.startup, total: filtered.total, order },
        );
    }

    fn hash_joins(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let mut keys = Vec::new();
        let mut residual = Conditions::new();
        for condition in &pair.on {
            match hash_key(&condition.scalar, &pair.left.columns, &pair.right.columns) {
                Some(key) => keys.push(key),
                None => residual.push(condition.clone()),
            }
        }
        if keys.is_empty() {
            return;
        }
        let Some(right) = cheapest(&pair.right.paths) else { return };
        let mut lefts: Vec<&PathRef> = Vec::new();
        lefts.extend(cheapest(&pair.left.paths));
        if let Some(first) = cheapest_for(&pair.left.paths, 1.0)
            && !lefts.iter().any(|other| PathRef::ptr_eq(other, first))
        {
            lefts.push(first);
        }
        for left in lefts {
            let bytes = right.rows * (right.width + 64.0);
            let mut spilled = cost::spill(bytes, self.settings);
            if spilled > 0.0 {
                spilled += cost::spill(
                    left.rows * (left.width + 32.0) + self.settings.work_bytes as f64,
                    self.settings,
                );
            }
            let hashing = cost::OPERATION * keys.len() as f64;
            let build = right.total + right.rows * (hashing + cost::ROW) + spilled;
            let startup = left.startup + build + if self.settings.hashjoin { 0.0 } else { cost::DISABLED };
            let probe = left.total - left.startup
                + left.rows * (hashing + cost::OPERATION)
                + pair.rows * (cost::ROW + cost::conditions(&residual));
            let node = PathNode::HashJoin {
                kind: pair.kind,
                left: left.clone(),
                right: right.clone(),
                keys: keys.clone(),
                residual: residual.clone(),
            };
            let path = Path {
                node,
                rows: pair.rows,
                width: pair.width,
                startup,
                total: startup + probe,
                order: Vec::new(),
            };
            self.add_join(pair, path, paths);
        }
    }

    fn nested_loops(&self, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let right = if pair.lateral { cheapest(&pair.right.paths) } else { cheapest(&pair.right.paths) };
        let Some(right) = right else { return };
        let switched_off = if self.settings.nestloop { 0.0 } else { cost::DISABLED };
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
                + pairs * (cost::ROW * 0.5 + cost::conditions(&pair.on))
                + pair.rows * cost::ROW * 0.5;
            let node = PathNode::NestedLoop {
                kind: pair.kind,
                left: left.clone(),
                right: right.clone(),
                condition: pair.on.clone(),
            };
            let path =
                Path { node, rows: pair.rows, width: pair.width, startup, total, order: left.order.clone() };
            self.add_join(pair, path, paths);
        }
    }

    /// Joins that look up a table by an index.
    fn index_joins(&self, region: &Region<'_>, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let Some(member) = pair.member else { return };
        let Source::Table(leaf) = &region.members[member].source else { return };
        let own = region.own(member);
        for left in &pair.left.paths {
            self.lookups(leaf, &own, pair, left, paths);
        }
    }

    fn lookups(
        &self,
        leaf: &std::rc::Rc<super::path::Leaf>,
        own: &Conditions,
        pair: &Pair<'_>,
        left: &PathRef,
        paths: &mut Vec<PathRef>,
    ) {
        let local = &pair.right.columns;
        let mut conditions = pair.on.clone();
        let joining = conditions.len();
        conditions.extend(own.iter().cloned());
        let searches: Vec<Search> = self
            .searches(&conditions, local)
            .into_iter()
            .filter(|search| matches!(search.bound, Bound::Equal(_)))
            .collect();
        if !searches.iter().any(|search| search.condition < joining) {
            return;
        }
        for index in 0..leaf.table.indexes.len() {
            let Some((mut lookup, done, per_key)) = self.lookup(leaf, index, &conditions, &searches) else {
                continue;
            };
            if !done.iter().any(|condition| *condition < joining) {
                continue;
            }
            let residual: Conditions =
                (0..joining).filter(|at| !done.contains(at)).map(|at| conditions[at].clone()).collect();
            lookup.filter = (joining..conditions.len())
                .filter(|at| !done.contains(at))
                .map(|at| conditions[at].clone())
                .collect();
            self.add_index_join(pair, left, lookup, residual, per_key, paths);
        }
    }

    fn add_index_join(
        &self,
        pair: &Pair<'_>,
        left: &PathRef,
        lookup: Lookup,
        residual: Conditions,
        per_key: f64,
        paths: &mut Vec<PathRef>,
    ) {
        let enabled = self.settings.nestloop && (self.settings.indexscan || lookup.index.is_none());
        let switched_off = if enabled { 0.0 } else { cost::DISABLED };
        let found = left.rows * per_key;
        let total = left.total
            + self.lookup_cost(&lookup, left.rows, per_key)
            + found * cost::conditions(&residual)
            + pair.rows * cost::ROW * 0.5
            + switched_off;
        let path = Path {
            node: PathNode::IndexJoin { kind: pair.kind, outer: left.clone(), lookup, residual },
            rows: pair.rows,
            width: pair.width,
            startup: left.startup + cost::DESCENT + switched_off,
            total,
            order: left.order.clone(),
        };
        self.add_join(pair, path, paths);
    }

    /// Joins that scan a range of an index anew for each row of the left side.
    fn range_joins(&mut self, region: &Region<'_>, pair: &Pair<'_>, paths: &mut Vec<PathRef>) {
        let Some(member) = pair.member else { return };
        let Source::Table(leaf) = &region.members[member].source else { return };
        let local = &pair.right.columns;
        let bounds = self.searches(&pair.on, local).into_iter().any(|search| {
            matches!(search.bound, Bound::Lower(..) | Bound::Upper(..))
                && leaf.table.indexes.iter().any(|index| {
                    self.key_columns(leaf, index).iter().any(|part| part.column == search.column)
                })
        });
        if !bounds {
            return;
        }
        let leaf = leaf.clone();
        let mut conditions = region.own(member);
        conditions.extend(pair.on.iter().cloned());
        let inner = self.table_paths(&leaf, &conditions, &Wanted::default());
        let Some(inner) = cheapest(&inner) else { return };
        if matches!(&inner.node, PathNode::TableScan { range: None, .. } | PathNode::IndexJoin { .. }) {
            return;
        }
        let switched_off = if self.settings.nestloop { 0.0 } else { cost::DISABLED };
        for left in &pair.left.paths {
            let path = Path {
                node: PathNode::NestedLoop {
                    kind: pair.kind,
                    left: left.clone(),
                    right: inner.clone(),
                    condition: Conditions::new(),
                },
                rows: pair.rows,
                width: pair.width,
                startup: left.startup + inner.startup + switched_off,
                total: left.total + left.rows * inner.total + pair.rows * cost::ROW + switched_off,
                order: left.order.clone(),
            };
            self.add_join(pair, path, paths);
        }
    }

    /// A semi join as an inner one: the right side's values, each once, look up the left side.
    fn join_with_each_once(
        &self,
        region: &Region<'_>,
        pair: &Pair<'_>,
        (left_set, _): (Set, Set),
        paths: &mut Vec<PathRef>,
    ) {
        let mut columns = Vec::new();
        for condition in &pair.on {
            let Some((_, right)) = hash_key(&condition.scalar, &pair.left.columns, &pair.right.columns)
            else {
                return;
            };
            let Scalar::Column(id) = strip(&right, &self.columns) else { return };
            if !columns.contains(id) {
                columns.push(*id);
            }
        }
        let Some(right) = cheapest(&pair.right.paths) else { return };
        if columns.is_empty() || left_set.count_ones() != 1 {
            return;
        }
        let member = left_set.trailing_zeros() as usize;
        let Source::Table(leaf) = &region.members[member].source else { return };
        if region.members[member].depends != 0 {
            return;
        }
        let once = self.once_each(right.clone(), &columns);
        let turned =
            Joined { paths: vec![once.clone()], rows: once.rows, columns: pair.right.columns.clone() };
        let inner = Pair {
            kind: JoinKind::Inner,
            left: &turned,
            right: pair.left,
            member: Some(member),
            lateral: false,
            on: pair.on.clone(),
            after: pair.after.clone(),
            rows: pair.rows,
            width: pair.width,
        };
        self.lookups(leaf, &region.own(member), &inner, &once, paths);
    }

    /// Both sides of a FULL join are planned on their own.
    pub(super) fn full_join(&mut self, left: &Rel, right: &Rel, on: Option<&Scalar>) -> Result<Vec<PathRef>> {
        let known = (self.constants.clone(), self.equal_to.clone());
        let mut sides = Vec::with_capacity(2);
        for rel in [left, right] {
            let paths = self.paths(rel, &Wanted::default())?;
            let rows = paths.first().map_or(1.0, |path| path.rows);
            sides.push(Joined { paths, rows, columns: super::visit::output_set(rel) });
        }
        (self.constants, self.equal_to) = known;
        let mut conditions = Vec::new();
        if let Some(on) = on {
            super::scalar::conjuncts(on.clone(), &mut conditions);
        }
        let on: Conditions = conditions.into_iter().map(super::path::Condition::new).collect();
        let region = Region::default();
        let rows = self.join_rows(&region, JoinKind::Full, (0, &sides[0]), (0, &sides[1]), &on, &Vec::new());
        let width = side_width(&sides[0].paths) + side_width(&sides[1].paths);
        let pair = Pair {
            kind: JoinKind::Full,
            left: &sides[0],
            right: &sides[1],
            member: None,
            lateral: false,
            on,
            after: Conditions::new(),
            rows,
            width,
        };
        let mut paths = Vec::new();
        self.hash_joins(&pair, &mut paths);
        if paths.is_empty() {
            self.nested_loops(&pair, &mut paths);
            // Rows of the right side come last, in no order.
            paths = paths
                .into_iter()
                .filter_map(|path| std::rc::Rc::try_unwrap(path).ok())
                .map(|path| std::rc::Rc::new(Path { order: Vec::new(), ..path }))
                .collect();
        }
        Ok(paths)
    }
}

fn side_width(paths: &[PathRef]) -> f64 {
    paths.first().map_or(0.0, |path| path.width)
}

/// The two sides of an equality between the two sides of a join.
fn hash_key(scalar: &Scalar, left: &ColumnSet, right: &ColumnSet) -> Option<(Scalar, Scalar)> {
    let Scalar::Compare { op: Comparison::Equal, left: a, right: b } = scalar else { return None };
    let on = |scalar: &Scalar, this: &ColumnSet, other: &ColumnSet| {
        let columns = super::visit::columns_of(scalar);
        columns.intersects(this) && !columns.intersects(other)
    };
    if super::scalar::is_volatile(scalar) {
        None
    } else if on(a, left, right) && on(b, right, left) {
        Some(((**a).clone(), (**b).clone()))
    } else if on(b, left, right) && on(a, right, left) {
        Some(((**b).clone(), (**a).clone()))
    } else {
        None
    }
}
