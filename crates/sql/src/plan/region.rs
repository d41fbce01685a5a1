//! A region of joins and filters taken apart: its relations, its conditions, and what outer, semi and anti joins demand of the order in which
//! relations are joined.
//!
//! # Which orders are right
//! Inner joins may be done in any order. Any other join is remembered with the relations of its right side (all of them) and those of its left
//! side that its condition speaks of, widened by the outer joins below on whose nullable sides those stand. It is done when
//! exactly the former are joined to a set that has all of the latter; until then no relation of its right side is joined to one outside.
//!
//! A condition of WHERE that speaks of columns that an outer join may make NULL waits until that join is done. Conditions of
//! the join itself decide about partners; those on the right side alone may be asked before.
//!
//! # Equalities
//! Columns that are equated to each other form classes. A class with a constant becomes `column = constant` for each of them, so that each table
//! may use it for its index; any other class has an equality for each pair, of which a join takes one. Conditions that wait for an outer
//! join make no classes. What the condition of an outer, semi or anti join equates, on its right side, to a column of a class with a constant is
//! that constant for a subquery there: no other row of it is anybody's partner.

use super::Planner;
use super::columns::{ColumnSet, columns_of, free, output_set};
use super::path::{Condition, Conditions, Leaf};
use super::scalar::{conjuncts, has_subquery, strip};
use super::search::{Bound, Search};
use crate::logical::{ColumnId, Comparison, JoinKind, Rel, Scalar, is_volatile};
use std::borrow::Cow;
use std::rc::Rc;

/// Relations of one region, at most; what is beyond is planned on its own.
pub(super) const MAX_RELATIONS: usize = 48;

/// A set of a region's relations.
pub(super) type Set = u64;

/// A relation of a region.
#[derive(Debug)]
pub(super) struct Member<'s> {
    pub(super) source: Source<'s>,
    pub(super) columns: ColumnSet,
    /// Relations it takes columns from: it is lateral.
    pub(super) takes: Set,
    /// Relations that it is joined to the rows of, in their order: those it takes columns from; of a function in a SELECT list all that
    /// stand on its left.
    pub(super) depends: Set,
}

/// Where a relation's rows come from.
#[derive(Debug)]
pub(super) enum Source<'s> {
    Table(Rc<Leaf>),
    Other(Cow<'s, Rel>),
}

/// A condition within a region.
#[derive(Clone, Debug)]
pub(super) struct Predicate {
    pub(super) condition: Rc<Condition>,
    /// Relations it speaks of.
    pub(super) refers: Set,
    /// Relations that have to be joined before it is asked.
    pub(super) needs: Set,
    /// Whether it speaks of columns that an outer join below it may make NULL: it waits until that join is done.
    pub(super) waits: bool,
    /// The join that it is the condition of, unless that is an inner one.
    pub(super) owner: Option<usize>,
    /// The class of equal columns it comes from.
    pub(super) class: Option<usize>,
    /// Of an equality, the relations that its sides speak of, where these are different ones.
    pub(super) sides: Option<(Set, Set)>,
}

/// A join that is no inner one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    pub(super) kind: JoinKind,
    pub(super) left: Set,
    pub(super) right: Set,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Region<'s> {
    pub(super) members: Vec<Member<'s>>,
    pub(super) predicates: Vec<Predicate>,
    pub(super) specials: Vec<Special>,
    /// For each relation, those that a condition or lateral reference joins it with.
    neighbours: Vec<Set>,
    /// For each relation that is a table, what conditions (by number) say about equality of its columns.
    pub(super) equalities: Vec<Vec<Search>>,
    /// Columns that are equal in the region's rows, and whether they are constant as well. That is so above the region's conditions
    /// only: within a relation with a limit, say, it is not.
    pub(super) equal: Vec<(Vec<ColumnId>, bool)>,
}

fn bit(position: usize) -> Set {
    1 << position
}

impl<'s> Region<'s> {
    /// Takes a relation apart.
    pub(super) fn new(rel: &'s Rel, planner: &mut Planner<'_>) -> Self {
        let mut region = Region::default();
        region.collect(rel, planner);
        if region.members.len() > 1 {
            for position in 0..region.members.len() {
                if let Source::Other(rel) = &region.members[position].source {
                    let takes = region.refers(&free(rel)) & !bit(position);
                    region.members[position].takes = takes;
                    region.members[position].depends |= takes;
                }
            }
            region.unite(planner);
            region.finish(planner);
        } else {
            region.note_constants(planner);
        }
        region
    }

    /// A region of two sides that are planned already.
    pub(super) fn of_two(left: &'s Rel, right: &'s Rel, on: Vec<Scalar>) -> Self {
        let mut region = Region::default();
        let both = region.other(left) | region.other(right);
        for condition in on {
            region.predicate(condition, both);
        }
        region
    }

    /// Works out what is asked again and again for each pair of sets.
    fn finish(&mut self, planner: &Planner<'_>) {
        self.neighbours = vec![0; self.members.len()];
        let members_of = self.members.iter().enumerate();
        let lateral = members_of
            .filter(|(_, member)| member.takes != 0)
            .map(|(position, member)| bit(position) | member.takes);
        // A function in a SELECT list is near to each of the others, which is no reason to join those without a condition.
        let listed = self.members.iter().enumerate().flat_map(|(position, member)| {
            members(member.depends & !member.takes).map(move |other| bit(position) | bit(other))
        });
        let joined: Vec<Set> =
            self.predicates.iter().map(|predicate| predicate.refers).chain(lateral).chain(listed).collect();
        for set in joined {
            for position in members(set) {
                self.neighbours[position] |= set & !bit(position);
            }
        }
        let conditions: Conditions =
            self.predicates.iter().map(|predicate| predicate.condition.clone()).collect();
        self.equalities = (0..self.members.len())
            .map(|position| match &self.members[position].source {
                Source::Table(_) => {
                    let mut searches = planner.searches(&conditions, &self.members[position].columns);
                    searches.retain(|search| matches!(search.bound, Bound::Equal(_)));
                    searches
                }
                Source::Other(_) => Vec::new(),
            })
            .collect();
    }

    /// The relations that have these columns.
    pub(super) fn refers(&self, columns: &ColumnSet) -> Set {
        let mut set = 0;
        for (position, member) in self.members.iter().enumerate() {
            if member.columns.intersects(columns) {
                set |= bit(position);
            }
        }
        set
    }

    fn member(&mut self, source: Source<'s>, columns: ColumnSet) -> Set {
        self.members.push(Member { source, columns, takes: 0, depends: 0 });
        bit(self.members.len() - 1)
    }

    fn other(&mut self, rel: &'s Rel) -> Set {
        self.member(Source::Other(Cow::Borrowed(rel)), output_set(rel))
    }

    fn collect(&mut self, rel: &'s Rel, planner: &mut Planner<'_>) -> Set {
        match rel {
            Rel::Table { table, alias, columns } => {
                let leaf = planner.leaf(table, alias, columns);
                self.member(Source::Table(leaf), columns.iter().copied().collect())
            }
            Rel::Filter { input, predicate } => {
                let scope = self.collect(input, planner);
                let mut conditions = Vec::new();
                conjuncts(predicate.clone(), &mut conditions);
                for condition in conditions {
                    self.predicate(condition, scope);
                }
                scope
            }
            Rel::Join { kind: JoinKind::Full, .. } => self.other(rel),
            Rel::Join { kind, left, right, on, lateral } => {
                let many = self.members.len() + count(rel) > MAX_RELATIONS;
                let a = if many { self.other(left) } else { self.collect(left, planner) };
                // Conditions within the right side of an outer join are asked there, so if they speak of relations on the left, that
                // side is run as a whole for each of their rows.
                let whole = *kind != JoinKind::Inner && (*lateral || self.refers(&free(right)) != 0);
                let many = many && self.members.len() + count(right) > MAX_RELATIONS;
                let b = if whole || many { self.other(right) } else { self.collect(right, planner) };
                if matches!(**right, Rel::Function { listed: true, .. })
                    && let Some(function) = self.members.last_mut()
                {
                    function.depends = a;
                }
                let mut conditions = Vec::new();
                if let Some(on) = on {
                    conjuncts(on.clone(), &mut conditions);
                }
                if *kind == JoinKind::Inner {
                    for condition in conditions {
                        self.predicate(condition, a | b);
                    }
                } else {
                    self.special(*kind, a, b, conditions, whole);
                }
                a | b
            }
            other => self.other(other),
        }
    }

    /// A condition over the relations in `scope`, and perhaps others that these are lateral to.
    fn predicate(&mut self, scalar: Scalar, scope: Set) {
        let condition = Condition::new(scalar);
        let refers = self.refers(&condition.columns);
        let mut needs = if refers & scope == 0 { refers | scope } else { refers };
        let waits = needs & self.nullable() != 0;
        loop {
            let before = needs;
            for special in &self.specials {
                if needs & special.right != 0 {
                    needs |= special.left | special.right;
                }
            }
            if needs == before {
                break;
            }
        }
        let sides = self.sides(&condition.scalar);
        self.predicates.push(Predicate { condition, refers, needs, waits, owner: None, class: None, sides });
    }

    fn special(&mut self, kind: JoinKind, a: Set, b: Set, on: Vec<Scalar>, whole: bool) {
        let from = self.predicates.len();
        for condition in on {
            self.predicate(condition, a | b);
        }
        let this = self.specials.len();
        let mut left = 0;
        for predicate in &mut self.predicates[from..] {
            let refers = predicate.refers;
            // Conditions on the right side alone: partners are sought among fewer rows.
            let early = refers != 0 && (refers & !b == 0 || kind == JoinKind::Semi && refers & b == 0);
            if !early {
                predicate.owner = Some(this);
                if refers != 0 {
                    left |= predicate.needs & !b;
                }
            }
        }
        if left & a == 0 || whole {
            left |= a;
        }
        self.specials.push(Special { kind, left, right: b });
    }

    /// Columns that may be NULL above the region although they are not below.
    fn nullable(&self) -> Set {
        self.specials.iter().fold(0, |set, special| set | special.right)
    }

    /// Columns that conditions fix to one value have no say in any order.
    fn note_constants(&mut self, planner: &Planner<'_>) {
        let Some(member) = self.members.first() else { return };
        let equated = |predicate: &Predicate| {
            self.equated(&predicate.condition.scalar, &member.columns, planner)
                .map(|(column, _)| (vec![column], true))
        };
        self.equal = self.predicates.iter().filter_map(equated).collect();
    }

    /// `column = constant`.
    fn equated(
        &self,
        scalar: &Scalar,
        columns: &ColumnSet,
        planner: &Planner<'_>,
    ) -> Option<(ColumnId, Scalar)> {
        let Scalar::Compare { op: Comparison::Equal, left, right } = scalar else { return None };
        for (side, other) in [(left, right), (right, left)] {
            if let Scalar::Column(id) = strip(side, &planner.columns)
                && columns.contains(*id)
                && !super::scalar::refers_to(other, columns)
                && !is_volatile(other)
                && !has_subquery(other)
            {
                return Some((*id, (**other).clone()));
            }
        }
        None
    }

    /// Makes classes of equal columns; see the module.
    fn unite(&mut self, planner: &Planner<'_>) {
        let mut all = ColumnSet::new();
        for member in &self.members {
            all.add(&member.columns);
        }
        let mut classes: Vec<Class> = Vec::new();
        // What follows from a condition that waits for an outer join would have to wait, too. There are few of them: an equality
        // makes the join an inner one.
        let free = |predicate: &Predicate| {
            predicate.owner.is_none() && !predicate.waits && predicate.refers == predicate.needs
        };
        for (position, predicate) in self.predicates.iter().enumerate() {
            if !free(predicate) {
                continue;
            }
            if let Some((column, value)) = self.equated(&predicate.condition.scalar, &all, planner) {
                let class = class_of(&mut classes, column);
                let class = &mut classes[class];
                if class.constant.is_none() {
                    class.constant = Some(value);
                    class.predicates.push(position);
                }
            } else if let Scalar::Compare { op: Comparison::Equal, left, right } = &predicate.condition.scalar
                && let (Scalar::Column(a), Scalar::Column(b)) =
                    (strip(left, &planner.columns), strip(right, &planner.columns))
                && all.contains(*a)
                && all.contains(*b)
                && a != b
            {
                let (a, b) = (class_of(&mut classes, *a), class_of(&mut classes, *b));
                merge(&mut classes, a, b);
                classes[a.min(b)].predicates.push(position);
            }
        }
        let nullable = self.nullable();
        let mut dropped: Vec<usize> = Vec::new();
        let mut added: Vec<Predicate> = self.sought(&classes, &all, planner);
        for (number, class) in classes.iter().enumerate() {
            let members: Set =
                class.columns.iter().fold(0, |set, id| set | self.refers(&[*id].into_iter().collect()));
            if members & nullable == 0 {
                self.equal.push((class.columns.clone(), class.constant.is_some()));
            }
            if class.columns.len() > 10
                || class.columns.len() < 2
                || class.columns.len() == 2 && class.constant.is_none()
            {
                continue;
            }
            dropped.extend(&class.predicates);
            for (at, a) in class.columns.iter().enumerate() {
                match &class.constant {
                    Some(value) => added.push(self.derived(*a, value.clone(), None)),
                    None => added.extend(
                        class.columns[at + 1..]
                            .iter()
                            .map(|b| self.derived(*a, Scalar::Column(*b), Some(number))),
                    ),
                }
            }
        }
        let mut position = 0;
        self.predicates.retain(|_| {
            position += 1;
            !dropped.contains(&(position - 1))
        });
        self.predicates.extend(added);
    }

    /// Of joins that are no inner ones: what follows about subqueries on their right sides from what is constant on their left sides. (Of tables
    /// it is known anyway by what their rows are looked up, and to say it twice would count it twice.)
    fn sought(&self, classes: &[Class], all: &ColumnSet, planner: &Planner<'_>) -> Vec<Predicate> {
        let mut sought = Vec::new();
        for predicate in &self.predicates {
            let Some(special) = predicate.owner.map(|owner| self.specials[owner]) else { continue };
            let Scalar::Compare { op: Comparison::Equal, left, right } = &predicate.condition.scalar else {
                continue;
            };
            let (Scalar::Column(a), Scalar::Column(b)) =
                (strip(left, &planner.columns), strip(right, &planner.columns))
            else {
                continue;
            };
            for (known, partner) in [(*a, *b), (*b, *a)] {
                let of = |column: ColumnId| self.refers(&[column].into_iter().collect());
                if !all.contains(known) || !all.contains(partner) || of(known) & special.right != 0 {
                    continue;
                }
                // What an outer join within that side may make NULL has to wait for it.
                let is_nullable = self.specials.iter().any(|inner| {
                    inner.right & of(partner) != 0
                        && inner.right & !special.right == 0
                        && inner.right != special.right
                });
                let is_subquery = members(of(partner))
                    .all(|member| matches!(self.members[member].source, Source::Other(_)));
                let class = classes.iter().find(|class| class.columns.contains(&known));
                if of(partner) & !special.right == 0
                    && is_subquery
                    && !is_nullable
                    && let Some(value) = class.and_then(|class| class.constant.clone())
                {
                    sought.push(self.derived(partner, value, None));
                }
            }
        }
        sought
    }

    fn derived(&self, column: ColumnId, other: Scalar, class: Option<usize>) -> Predicate {
        let condition = Condition::new(Scalar::Compare {
            op: Comparison::Equal,
            left: Box::new(Scalar::Column(column)),
            right: Box::new(other),
        });
        let refers = self.refers(&condition.columns);
        let sides = self.sides(&condition.scalar);
        Predicate { condition, refers, needs: refers, waits: false, owner: None, class, sides }
    }

    /// The relations that the sides of an equality speak of.
    fn sides(&self, scalar: &Scalar) -> Option<(Set, Set)> {
        let Scalar::Compare { op: Comparison::Equal, left, right } = scalar else { return None };
        let (a, b) = (self.refers(&columns_of(left)), self.refers(&columns_of(right)));
        (a != 0 && b != 0 && a & b == 0 && !is_volatile(scalar)).then_some((a, b))
    }

    /// Conditions on one relation alone.
    pub(super) fn own(&self, member: usize) -> Conditions {
        self.conditions((0..self.predicates.len()).filter(|predicate| self.is_own(*predicate, member)))
    }

    /// Which join it is to join `left` with `right`: `None` if they must not be joined.
    pub(super) fn legal(&self, left: Set, right: Set) -> Option<Option<usize>> {
        let both = left | right;
        let mut found = None;
        for (position, special) in self.specials.iter().enumerate() {
            let done = |set: Set| set & special.right == special.right && set & special.left == special.left;
            if both & special.right == 0 || both & !special.right == 0 || done(left) || done(right) {
                continue;
            }
            if right == special.right && left & special.left == special.left && found.is_none() {
                found = Some(position);
                continue;
            }
            return None;
        }
        // A lateral relation stands alone on the right of all that it takes columns from, a function in a SELECT list of all that it stands beside.
        for (position, member) in self.members.iter().enumerate() {
            let (this, depends) = (bit(position), member.depends);
            let resolved = if left & this != 0 {
                depends & !left == 0
            } else if right & this != 0 {
                depends & !right == 0 || right == this && depends & !left == 0
            } else {
                true
            };
            if !resolved {
                return None;
            }
        }
        Some(found)
    }

    /// Whether joining these sets follows a condition (or a lateral reference, or completes a join that is no inner one).
    pub(super) fn connected(&self, left: Set, right: Set) -> bool {
        let near = members(left).fold(0, |set, position| set | self.neighbours[position]);
        near & right != 0
            || self.specials.iter().any(|special| special.right == right || special.right == left)
    }

    /// Conditions, by number, that can be asked when `left` and `right` are joined by the special join `special` (or an inner one): those of
    /// the join, and those to be asked afterwards.
    pub(super) fn join_conditions(
        &self,
        left: Set,
        right: Set,
        special: Option<usize>,
    ) -> (Vec<usize>, Vec<usize>) {
        let both = left | right;
        let (mut on, mut after) = (Vec::new(), Vec::new());
        let mut classes: Vec<usize> = Vec::new();
        for (position, predicate) in self.predicates.iter().enumerate() {
            if let Some(owner) = predicate.owner {
                if special == Some(owner) {
                    on.push(position);
                }
                continue;
            }
            let needs = predicate.needs;
            if needs & !both != 0 || needs & !left == 0 || needs & !right == 0 {
                continue;
            }
            if let Some(class) = predicate.class {
                if classes.contains(&class) {
                    continue;
                }
                classes.push(class);
            }
            if special.is_some() { after.push(position) } else { on.push(position) }
        }
        (on, after)
    }

    /// Conditions by their numbers.
    pub(super) fn conditions(&self, numbers: impl IntoIterator<Item = usize>) -> Conditions {
        numbers.into_iter().map(|position| self.predicates[position].condition.clone()).collect()
    }

    /// Whether a condition is asked of one relation alone.
    pub(super) fn is_own(&self, predicate: usize, member: usize) -> bool {
        let predicate = &self.predicates[predicate];
        predicate.owner.is_none() && predicate.needs == bit(member)
    }
}

/// The relations of a set.
pub(super) fn members(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let position = set.trailing_zeros() as usize;
            set &= set - 1;
            position
        })
    })
}

/// Columns that are equal.
#[derive(Debug, Default)]
struct Class {
    columns: Vec<ColumnId>,
    constant: Option<Scalar>,
    predicates: Vec<usize>,
}

fn class_of(classes: &mut Vec<Class>, column: ColumnId) -> usize {
    match classes.iter().position(|class| class.columns.contains(&column)) {
        Some(position) => position,
        None => {
            classes.push(Class { columns: vec![column], ..Class::default() });
            classes.len() - 1
        }
    }
}

/// Makes one class of two. If both have a constant, the second one's condition stays what it is.
fn merge(classes: &mut [Class], a: usize, b: usize) {
    if a == b {
        return;
    }
    let (low, high) = (a.min(b), a.max(b));
    let other = std::mem::take(&mut classes[high]);
    let class = &mut classes[low];
    class.columns.extend(other.columns);
    match (&class.constant, other.constant) {
        (None, Some(value)) => {
            class.constant = Some(value);
            class.predicates.extend(other.predicates);
        }
        (None, None) => class.predicates.extend(other.predicates),
        (Some(_), None) => class.predicates.extend(other.predicates),
        (Some(_), Some(_)) => {
            // Of the other class's conditions only the equalities between columns are implied; which they are is not known here.
        }
    }
}

/// Relations within a relation's joins.
fn count(rel: &Rel) -> usize {
    match rel {
        Rel::Filter { input, .. } => count(input),
        Rel::Join { kind, left, right, .. } if *kind != JoinKind::Full => count(left) + count(right),
        _ => 1,
    }
}
