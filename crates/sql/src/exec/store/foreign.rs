//! Foreign keys: what a child needs, and what a change of a parent does to its children.
//!
//! # Guarantees
//! 1. A child's key is looked up in its parent's unique index at its newest version, with a key-share lock on the entry, which lasts until the
//!    transaction ends. Whoever removes the entry, by deleting the row or by changing its key, waits for that lock; and the lock waits
//!    for whoever is removing the entry. So no child is ever without its parent when both have committed. The parent's row is locked as well where
//!    the entry is not the row itself: who has locked the row keeps children away, and they keep him waiting. The row comes first, as for all who write.
//! 2. What a statement does to parents has its consequences for children when the statement's own rows are done: cascades first, then what
//!    has to be refused. (Where the consequences cannot lead back to the statement's table, cascades are worked off after each batch of
//!    its rows; what has to be refused is always judged at the end.)
//! 3. A cascade sees what is committed now and all that the transaction did so far, whatever the isolation. Under `REPEATABLE READ` a child
//!    that was changed since the transaction's snapshot is a conflict.
//!
//! A child without parent is told of at the statement's end as well, behind what is wrong with the rows themselves.
//!
//! Consequences are worked off from a queue, never recursively, so that a long chain of rows costs memory, not stack; the queue is charged
//! to the budget.

mod children;

use super::super::{Context, memory::Memory, row_bytes};
use super::access::{index_tree, table_tree};
use super::derived::Derived;
use super::describe::{self, waited_too_long};
use super::long_row;
use super::writer::{Seen, Writer, is_same};
use crate::catalog::{ColumnNumber, ForeignKey, Oid, ReferentialAction, Table};
use crate::codec::key::KeyColumn;
use crate::codec::range::encode_equal;
use crate::types::{NO_MODIFIER, Type, Value, cast};
use crate::{Error, Result, SqlState};
use children::{By, Children};
use gannet_store::{LockMode, Outcome, Tree, View};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Foreign keys that a statement has to do with.
#[derive(Debug)]
pub(super) struct ForeignKeys {
    /// The statement's table.
    root: Oid,
    /// By table, as far as they were needed.
    relations: HashMap<Oid, Arc<Relations>>,
    /// Whether consequences can lead back to the statement's table.
    cyclic: bool,
    /// Changes of parents whose consequences are due.
    actions: VecDeque<Change>,
    /// Changes of parents that are to be refused if they have children left.
    refusals: VecDeque<Change>,
    /// Those among them that a batch of rows has left with children: later rows may still set it right.
    unsettled: Vec<Change>,
    /// Children whose parent was not there yet.
    needs: Vec<Need>,
    /// The first child whose parent will not come, and that will not change any more: what is wrong with the rows themselves is told before it.
    missing: Option<Need>,
    /// Rows that were added.
    inserted: u64,
    /// By table, and whether they only delete.
    writers: HashMap<(Oid, bool), Writer>,
    derived: HashMap<Oid, Arc<Derived>>,
    memory: Memory,
    bytes: usize,
}

/// The foreign keys of one table, both ways.
#[derive(Debug, Default)]
struct Relations {
    outgoing: Vec<Arc<Outgoing>>,
    incoming: Vec<Arc<Incoming>>,
}

/// A foreign key as its child sees it.
#[derive(Debug)]
struct Outgoing {
    child: Arc<Table>,
    key: ForeignKey,
    /// The referring columns, by position in the child.
    positions: Vec<usize>,
    parent: Lookup,
    /// How rows with the same reference are found; `None`: by going through all of them.
    same: Option<Lookup>,
}

/// A foreign key as its parent sees it.
#[derive(Debug)]
struct Incoming {
    child: Arc<Table>,
    key: ForeignKey,
    /// The columns referred to, by position in the parent.
    positions: Vec<usize>,
    /// The referring columns, by position in the child.
    child_positions: Vec<usize>,
    parent: Lookup,
    /// How children are found; `None`: by going through all of them.
    children: Option<Lookup>,
}

/// A way to rows by the columns of a foreign key.
#[derive(Debug)]
struct Lookup {
    table: Arc<Table>,
    /// By position in the table.
    index: usize,
    /// For the index's first columns, which of the foreign key's columns they are, and the type that comes from there.
    order: Vec<(usize, Type)>,
}

/// A parent that went, or has another key.
#[derive(Debug)]
struct Change {
    by: Arc<Incoming>,
    old: Vec<Value>,
    /// `None` when the parent was deleted.
    new: Option<Vec<Value>>,
}

/// What the children of such a parent refer to from then on.
#[derive(Debug)]
enum Replacement {
    /// These values, all of them.
    Values(Vec<Value>),
    /// Defaults, which each of them computes: `nextval` gives another one to each.
    Defaults(Arc<Derived>),
}

/// A child's reference that has to lead somewhere when the statement ends, if the child still has it by then.
#[derive(Debug)]
struct Need {
    by: Arc<Outgoing>,
    values: Vec<Value>,
    /// Which of the statement's rows it is, from 0, if it was added.
    row: Option<u64>,
}

fn positions(table: &Table, columns: &[ColumnNumber]) -> Result<Vec<usize>> {
    let position = |number: &ColumnNumber| {
        table
            .position(*number)
            .ok_or_else(|| Error::internal("a foreign key names a column that is not there"))
    };
    columns.iter().map(position).collect()
}

fn table_of<'c>(context: &Context<'c>, oid: Oid) -> Result<&'c Arc<Table>> {
    let table = context.catalog.tables.get(&oid);
    table.ok_or_else(|| Error::internal("a foreign key names a table that is not there"))
}

fn types(table: &Table, positions: &[usize]) -> Vec<Type> {
    positions.iter().map(|at| table.columns[*at].ty).collect()
}

impl Lookup {
    /// A way to rows whose `columns` are given, which are values of `types`: through an index whose first columns they are.
    fn new(table: &Arc<Table>, index: usize, columns: &[ColumnNumber], types: &[Type]) -> Option<Self> {
        let of_index = table.indexes.get(index)?.columns.get(..columns.len())?;
        let place = |number: ColumnNumber| columns.iter().position(|column| *column == number);
        let order: Option<Vec<_>> =
            of_index.iter().map(|column| place(column.column).map(|place| (place, types[place]))).collect();
        let order = order?;
        let distinct: HashSet<usize> = order.iter().map(|(place, _)| *place).collect();
        (distinct.len() == columns.len()).then(|| Lookup { table: Arc::clone(table), index, order })
    }

    /// The first such way that the table's indexes give.
    fn any(table: &Arc<Table>, columns: &[ColumnNumber], types: &[Type]) -> Option<Self> {
        (0..table.indexes.len()).find_map(|index| Lookup::new(table, index, columns, types))
    }

    fn columns(&self) -> &[KeyColumn] {
        let codec = self.table.codec();
        if self.is_primary() { codec.key_columns() } else { codec.index_columns(self.index) }
    }

    fn is_primary(&self) -> bool {
        self.table.indexes[self.index].primary
    }

    fn tree(&self, view: &View) -> Result<&Tree> {
        index_tree(&self.table, self.index, view)
    }

    /// Appends the first bytes of the index's keys; false when no key has these values.
    fn encode(&self, values: &[Value], context: &Context<'_>, out: &mut Vec<u8>) -> Result<bool> {
        for (column, (place, from)) in self.columns().iter().zip(&self.order) {
            let value = &values[*place];
            let known = if is_comparable(*from, column.ty) {
                encode_equal(std::slice::from_ref(column), [value], out)?
            } else {
                let style = &context.session.style;
                let value = cast::cast(value.clone(), *from, column.ty, NO_MODIFIER, false, style)?;
                encode_equal(std::slice::from_ref(column), [&value], out)?
            };
            if !known {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether values of two types are compared as they are.
fn is_comparable(a: Type, b: Type) -> bool {
    let float = |ty| matches!(ty, Type::Float4 | Type::Float8);
    let text = |ty| matches!(ty, Type::Text | Type::Varchar | Type::Name);
    a == b || a.is_integer() && b.is_integer() || float(a) && float(b) || text(a) && text(b)
}

impl Relations {
    fn new(context: &Context<'_>, table: &Arc<Table>) -> Result<Self> {
        let mut relations = Relations::default();
        for key in &table.foreign_keys {
            let parent = table_of(context, key.parent)?;
            let positions = positions(table, &key.columns)?;
            let types = types(table, &positions);
            relations.outgoing.push(Arc::new(Outgoing {
                child: Arc::clone(table),
                positions,
                parent: parent_lookup(parent, key, &types)?,
                same: Lookup::any(table, &key.columns, &types),
                key: key.clone(),
            }));
        }
        for child in &table.referenced_by {
            let child = table_of(context, *child)?;
            for key in child.foreign_keys.iter().filter(|key| key.parent == table.oid) {
                let parent_positions = positions(table, &key.parent_columns)?;
                let from = types(table, &parent_positions);
                relations.incoming.push(Arc::new(Incoming {
                    child: Arc::clone(child),
                    positions: parent_positions,
                    child_positions: positions(child, &key.columns)?,
                    parent: parent_lookup(table, key, &from)?,
                    children: Lookup::any(child, &key.columns, &from),
                    key: key.clone(),
                }));
            }
        }
        Ok(relations)
    }
}

/// The way to a parent, by values of these types for the columns referred to.
fn parent_lookup(parent: &Arc<Table>, key: &ForeignKey, types: &[Type]) -> Result<Lookup> {
    let index = parent.indexes.iter().position(|index| index.oid == key.parent_index);
    index
        .and_then(|index| Lookup::new(parent, index, &key.parent_columns, types))
        .ok_or_else(|| Error::internal("a foreign key without its parent's index"))
}

/// Whether what happens to rows of a table can lead back to it.
fn is_cyclic(context: &Context<'_>, root: &Table) -> bool {
    let mut seen = HashSet::new();
    let mut waiting = vec![root.oid];
    while let Some(parent) = waiting.pop() {
        let Some(table) = context.catalog.tables.get(&parent) else { continue };
        for oid in &table.referenced_by {
            let Some(child) = context.catalog.tables.get(oid) else { continue };
            if child.oid == root.oid {
                return true;
            }
            let changes =
                |action| !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict);
            let passes_on = |key: &&ForeignKey| {
                key.parent == parent && (changes(key.on_delete) || changes(key.on_update))
            };
            if child.foreign_keys.iter().any(|key| passes_on(&key)) && seen.insert(child.oid) {
                waiting.push(child.oid);
            }
        }
    }
    false
}

fn pick(row: &[Value], positions: &[usize]) -> Vec<Value> {
    positions.iter().map(|at| row[*at].clone()).collect()
}

/// Whether a child needs another parent: one whose key is equal is the same.
fn differ(old: &[Value], new: &[Value], positions: &[usize]) -> bool {
    positions.iter().any(|at| !is_same(&old[*at], &new[*at]))
}

/// Whether children are to learn of a parent's key: also of one that is equal, but not the same (1.00 after 1.0), as PostgreSQL tells them.
fn is_replaced(old: &[Value], new: &[Value], positions: &[usize]) -> bool {
    positions.iter().any(|at| !old[*at].is_identical(&new[*at]))
}

impl ForeignKeys {
    pub(super) fn new(context: &Context<'_>, table: &Arc<Table>) -> Result<Self> {
        let mut keys = ForeignKeys {
            root: table.oid,
            relations: HashMap::new(),
            cyclic: is_cyclic(context, table),
            actions: VecDeque::new(),
            refusals: VecDeque::new(),
            unsettled: Vec::new(),
            needs: Vec::new(),
            missing: None,
            inserted: 0,
            writers: HashMap::new(),
            derived: HashMap::new(),
            memory: Memory::default(),
            bytes: 0,
        };
        // The plan's own definition of the table: it is the one whose positions the rows have.
        keys.relations.insert(table.oid, Arc::new(Relations::new(context, table)?));
        Ok(keys)
    }

    fn relations(&mut self, context: &Context<'_>, table: &Arc<Table>) -> Result<Arc<Relations>> {
        if let Some(known) = self.relations.get(&table.oid) {
            return Ok(Arc::clone(known));
        }
        let relations = Arc::new(Relations::new(context, table)?);
        self.relations.insert(table.oid, Arc::clone(&relations));
        Ok(relations)
    }

    /// Positions of the columns that other tables refer to.
    pub(super) fn referenced(&self) -> Vec<usize> {
        let relations = self.relations.get(&self.root);
        relations.iter().flat_map(|r| &r.incoming).flat_map(|key| key.positions.iter().copied()).collect()
    }

    /// Positions of the columns that refer to other tables, and that others refer to.
    pub(super) fn linked(&self) -> Vec<usize> {
        let relations = self.relations.get(&self.root);
        let outgoing = relations.iter().flat_map(|r| &r.outgoing).flat_map(|key| &key.positions);
        let mut linked = self.referenced();
        linked.extend(outgoing);
        linked.sort_unstable();
        linked.dedup();
        linked
    }

    /// A row was added.
    pub(super) fn inserted(
        &mut self,
        context: &Context<'_>,
        table: &Arc<Table>,
        row: &[Value],
    ) -> Result<()> {
        let relations = self.relations(context, table)?;
        let number = Some(self.inserted);
        self.inserted += 1;
        relations.outgoing.iter().try_for_each(|key| self.need(context, key, row, number))
    }

    /// A row was changed. Of the old one only the columns are looked at that refer to others, or that others refer to.
    pub(super) fn updated(
        &mut self,
        context: &Context<'_>,
        table: &Arc<Table>,
        old: &[Value],
        new: &[Value],
    ) -> Result<()> {
        let relations = self.relations(context, table)?;
        for key in &relations.outgoing {
            if differ(old, new, &key.positions) {
                self.need(context, key, new, None)?;
            }
        }
        for key in &relations.incoming {
            if is_replaced(old, new, &key.positions) {
                self.parent_changed(context, key, old, Some(new))?;
            }
        }
        Ok(())
    }

    /// A row was removed. Only the columns that others refer to are looked at.
    pub(super) fn deleted(&mut self, context: &Context<'_>, table: &Arc<Table>, old: &[Value]) -> Result<()> {
        let relations = self.relations(context, table)?;
        relations.incoming.iter().try_for_each(|key| self.parent_changed(context, key, old, None))
    }

    fn parent_changed(
        &mut self,
        context: &Context<'_>,
        by: &Arc<Incoming>,
        old: &[Value],
        new: Option<&[Value]>,
    ) -> Result<()> {
        let old = pick(old, &by.positions);
        // Nobody refers to a key with a NULL.
        if old.iter().any(Value::is_null) {
            return Ok(());
        }
        let new = new.map(|new| pick(new, &by.positions));
        self.charge(context, row_bytes(&old) + new.as_deref().map_or(0, row_bytes) + size_of::<Change>())?;
        self.actions.push_back(Change { by: Arc::clone(by), old, new });
        Ok(())
    }

    fn charge(&mut self, context: &Context<'_>, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        self.memory.demand(context, self.bytes)
    }

    /// Sees to it that a child's parent is there and stays.
    fn need(
        &mut self,
        context: &Context<'_>,
        by: &Arc<Outgoing>,
        row: &[Value],
        number: Option<u64>,
    ) -> Result<()> {
        // The statement will fail at its end.
        if self.missing.is_some() {
            return Ok(());
        }
        let values = pick(row, &by.positions);
        // MATCH SIMPLE
        if values.iter().any(Value::is_null) || by.lock_parent(context, &values)? {
            return Ok(());
        }
        // It may still come, where the statement is adding rows there; and the child may still change or go, where it is a consequence that
        // has changed it, or may be one.
        let is_final = by.child.oid == self.root && !self.cyclic && self.actions.is_empty();
        if by.key.parent == self.root || !is_final {
            self.charge(context, row_bytes(&values) + size_of::<Need>())?;
            self.needs.push(Need { by: Arc::clone(by), values, row: number });
            return Ok(());
        }
        self.missing = Some(Need { by: Arc::clone(by), values, row: number });
        Ok(())
    }

    /// To be called now and then while rows are changed: works off what can be worked off.
    ///
    /// What would have to be refused now is kept for the end, when later rows may have set it right; what is right now stays so,
    /// as the statement changes each row once, and what else it does to children is judged on its own.
    pub(super) fn flush(&mut self, context: &Context<'_>) -> Result<()> {
        if self.cyclic || self.actions.is_empty() {
            return Ok(());
        }
        self.act_on_all(context)?;
        while let Some(change) = self.refusals.pop_front() {
            context.check()?;
            if !change.by.parent.exists(context, &change.old)? && change.has_child(context)? {
                self.unsettled.push(change);
            }
        }
        let unsettled: usize = self.unsettled.iter().map(Change::bytes).sum();
        self.bytes = unsettled + self.needs.iter().map(Need::bytes).sum::<usize>();
        self.memory.shrink(self.bytes);
        Ok(())
    }

    /// To be called when the statement has changed all of its rows.
    pub(super) fn finish(&mut self, context: &Context<'_>) -> Result<()> {
        if self.missing.is_none() {
            self.act_on_all(context)?;
        }
        if let Some(need) = &self.missing {
            return Err(need.no_parent(context));
        }
        for change in self.unsettled.drain(..).chain(self.refusals.drain(..)) {
            context.check()?;
            // Another row may have the key by now.
            if !change.by.parent.exists(context, &change.old)? {
                change.refuse(context)?;
            }
        }
        for need in std::mem::take(&mut self.needs) {
            context.check()?;
            let Need { by, values, .. } = &need;
            if !by.lock_parent(context, values)? && by.is_referred_by(context, values)? {
                return Err(need.no_parent(context));
            }
        }
        self.bytes = 0;
        self.memory.release();
        Ok(())
    }

    /// Works off the consequences of changed parents; those that may have to be refused are put aside.
    fn act_on_all(&mut self, context: &Context<'_>) -> Result<()> {
        while let Some(change) = self.actions.pop_front() {
            context.check()?;
            let action = match change.new {
                Some(_) => change.by.key.on_update,
                None => change.by.key.on_delete,
            };
            match action {
                ReferentialAction::NoAction => self.refusals.push_back(change),
                ReferentialAction::Restrict => change.refuse(context)?,
                ReferentialAction::Cascade | ReferentialAction::SetNull | ReferentialAction::SetDefault => {
                    self.act(context, &change, action)?;
                    // The default may be the very key that has gone.
                    if action == ReferentialAction::SetDefault {
                        self.refusals.push_back(change);
                    }
                }
            }
        }
        Ok(())
    }

    /// Does to the children what the foreign key says.
    fn act(&mut self, context: &Context<'_>, change: &Change, action: ReferentialAction) -> Result<()> {
        let by = &change.by;
        let child = &by.child;
        let replacement = match (action, &change.new) {
            (ReferentialAction::Cascade, None) => None,
            (ReferentialAction::Cascade, Some(new)) => Some(Replacement::Values(by.as_child(context, new)?)),
            (ReferentialAction::SetDefault, _) => Some(Replacement::Defaults(self.derived(context, child)?)),
            _ => Some(Replacement::Values(vec![Value::Null; by.child_positions.len()])),
        };
        let checks = match &replacement {
            Some(Replacement::Defaults(derived)) => Some(Arc::clone(derived.checks())),
            Some(Replacement::Values(_)) if !child.checks.is_empty() => {
                Some(Arc::clone(self.derived(context, child)?.checks()))
            }
            _ => None,
        };
        let deletes = replacement.is_none();
        let mut writer = match self.writers.remove(&(child.oid, deletes)) {
            Some(writer) => writer,
            None => Writer::new(child, checks.unwrap_or_default()),
        };
        while !self.act_once(context, change, replacement.as_ref(), &mut writer)? {}
        self.writers.insert((child.oid, deletes), writer);
        Ok(())
    }

    /// One pass over the children. False when another one is needed: a child was changed meanwhile and is not where it was. It
    /// may have got another primary key, which only a later view shows. No new ones come: they would wait for the parent.
    fn act_once(
        &mut self,
        context: &Context<'_>,
        change: &Change,
        replacement: Option<&Replacement>,
        writer: &mut Writer,
    ) -> Result<bool> {
        let by = &change.by;
        let child = &by.child;
        let mut complete = true;
        let view = context.transaction.borrow_mut().latest_view();
        let mut children = by.children(context, &view, &change.old)?;
        while let Some((key, mut bytes)) = children.next(context)? {
            let mut first = true;
            loop {
                // Its bytes, its values, and those that it gets.
                let _long = long_row(context, 3 * bytes.len())?;
                let mut old = Vec::with_capacity(child.columns.len());
                child.codec().decode_row(&key, &bytes, &all_columns(child), &mut old)?;
                if !children.refers(&old) {
                    complete &= first;
                    break;
                }
                first = false;
                let seen = Seen { view: &view, key: &key, bytes: &bytes };
                let outcome = if let Some(replacement) = replacement {
                    let new = replacement.row(by, &old, context)?;
                    let outcome = writer.update(context, seen, &old, &new)?;
                    if outcome == Outcome::Done {
                        self.updated(context, child, &old, &new)?;
                    }
                    outcome
                } else {
                    let outcome = writer.delete(context, seen, &old)?;
                    if outcome == Outcome::Done {
                        self.deleted(context, child, &old)?;
                    }
                    outcome
                };
                match outcome {
                    Outcome::Changed(newer) => bytes = newer,
                    Outcome::Gone | Outcome::Moved => {
                        complete = false;
                        break;
                    }
                    Outcome::Done | Outcome::Repeated => break,
                }
            }
        }
        Ok(complete)
    }

    fn derived(&mut self, context: &Context<'_>, table: &Table) -> Result<Arc<Derived>> {
        if let Some(known) = self.derived.get(&table.oid) {
            return Ok(Arc::clone(known));
        }
        let derived = Arc::new(Derived::new(context, table)?);
        self.derived.insert(table.oid, Arc::clone(&derived));
        Ok(derived)
    }
}

fn all_columns(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).collect()
}

impl Lookup {
    /// Whether a row with these values is there now.
    fn exists(&self, context: &Context<'_>, values: &[Value]) -> Result<bool> {
        let mut key = Vec::with_capacity(16);
        if !self.encode(values, context, &mut key)? {
            return Ok(false);
        }
        let view = context.transaction.borrow_mut().latest_view();
        Ok(view.with_value(self.tree(&view)?, &key, |_| ())?.is_some())
    }
}

impl Outgoing {
    /// Locks the parent's entry against going away; false when it is not there.
    fn lock_parent(&self, context: &Context<'_>, values: &[Value]) -> Result<bool> {
        let mut key = Vec::with_capacity(16);
        if !self.parent.encode(values, context, &mut key)? {
            return Ok(false);
        }
        let tree = self.parent.tree(context.view)?;
        let mut transaction = context.transaction.borrow_mut();
        if self.parent.is_primary() {
            return transaction.lock(tree, &key, LockMode::KeyShare).map_err(waited_too_long);
        }
        let rows = table_tree(&self.parent.table, context.view)?;
        let mut locked = None;
        loop {
            context.check()?;
            let row = transaction.latest_view().get(tree, &key)?;
            if locked.is_some() && row == locked {
                return Ok(true);
            }
            // A row that is gone by now is not what the entry leads to any more.
            locked = match row {
                Some(row) if transaction.lock(rows, &row, LockMode::KeyShare).map_err(waited_too_long)? => {
                    Some(row)
                }
                _ => None,
            };
            // Also where there is none yet: somebody may be about to add it.
            if !transaction.lock(tree, &key, LockMode::KeyShare).map_err(waited_too_long)? {
                return Ok(false);
            }
        }
    }

    /// Whether there is a child with these values: whoever needed a parent may have gone, or need another one by now.
    fn is_referred_by(&self, context: &Context<'_>, values: &[Value]) -> Result<bool> {
        let view = context.transaction.borrow_mut().latest_view();
        let by = By { child: &self.child, positions: &self.positions, lookup: self.same.as_ref() };
        let mut children = by.children(context, &view, values, values.to_vec())?;
        let mut row = Vec::with_capacity(self.child.columns.len());
        while let Some((key, bytes)) = children.next(context)? {
            row.clear();
            self.child.codec().decode_row(&key, &bytes, &all_columns(&self.child), &mut row)?;
            if children.refers(&row) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn no_parent(&self, context: &Context<'_>, values: &[Value]) -> Error {
        let (child, parent) = (&self.child, &self.parent.table.name);
        let message = format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            child.name, self.key.name
        );
        let key = describe::key(child, &self.key.columns, values.iter(), context);
        Error::new(SqlState::FOREIGN_KEY_VIOLATION, message)
            .detail(format!("{key} is not present in table \"{parent}\"."))
            .table("public", &child.name)
            .constraint(&self.key.name)
    }
}

impl Incoming {
    /// Values of the parent's columns as values of the child's.
    fn as_child(&self, context: &Context<'_>, values: &[Value]) -> Result<Vec<Value>> {
        let convert = |((value, from), to): ((&Value, &usize), &usize)| {
            let (from, to) = (&self.parent.table.columns[*from], &self.child.columns[*to]);
            if from.ty == to.ty && from.modifier == to.modifier {
                return Ok(value.clone());
            }
            cast::cast(value.clone(), from.ty, to.ty, to.modifier, false, &context.session.style)
        };
        values.iter().zip(&self.positions).zip(&self.child_positions).map(convert).collect()
    }

    /// Rows that refer to these values of the parent's columns.
    fn children<'k>(&'k self, context: &Context<'_>, view: &View, values: &[Value]) -> Result<Children<'k>> {
        let by = By { child: &self.child, positions: &self.child_positions, lookup: self.children.as_ref() };
        by.children(context, view, values, self.as_compared(context, values)?)
    }

    /// Values of the parent's columns, to be compared with those of the child's.
    fn as_compared(&self, context: &Context<'_>, values: &[Value]) -> Result<Vec<Value>> {
        let convert = |((value, from), to): ((&Value, &usize), &usize)| {
            let (from, to) = (self.parent.table.columns[*from].ty, self.child.columns[*to].ty);
            if is_comparable(from, to) {
                return Ok(value.clone());
            }
            cast::cast(value.clone(), from, to, NO_MODIFIER, false, &context.session.style)
        };
        values.iter().zip(&self.positions).zip(&self.child_positions).map(convert).collect()
    }
}

impl Replacement {
    /// The row that a child becomes.
    fn row(&self, by: &Incoming, old: &[Value], context: &Context<'_>) -> Result<Vec<Value>> {
        let mut new = old.to_vec();
        match self {
            Replacement::Values(values) => {
                for (at, value) in by.child_positions.iter().zip(values) {
                    new[*at].clone_from(value);
                }
            }
            Replacement::Defaults(derived) => {
                for at in &by.child_positions {
                    new[*at] = derived.defaults()[*at].eval(&[], context)?.into_owned();
                }
            }
        }
        Ok(new)
    }
}

impl Need {
    fn no_parent(&self, context: &Context<'_>) -> Error {
        let error = self.by.no_parent(context, &self.values);
        match self.row {
            Some(row) => error.row(row),
            None => error,
        }
    }

    /// What it was charged as.
    fn bytes(&self) -> usize {
        row_bytes(&self.values) + size_of::<Need>()
    }
}

impl Change {
    /// Fails when there is a child left.
    fn refuse(&self, context: &Context<'_>) -> Result<()> {
        if self.has_child(context)? { Err(self.has_children(context)) } else { Ok(()) }
    }

    /// What it was charged as.
    fn bytes(&self) -> usize {
        row_bytes(&self.old) + self.new.as_deref().map_or(0, row_bytes) + size_of::<Change>()
    }

    /// Whether there is a child left.
    fn has_child(&self, context: &Context<'_>) -> Result<bool> {
        loop {
            if let Some(found) = self.look_for_child(context)? {
                return Ok(found);
            }
        }
    }

    /// One pass over the children. `None` when another one is needed, as in [`ForeignKeys::act_once`].
    fn look_for_child(&self, context: &Context<'_>) -> Result<Option<bool>> {
        let mut complete = true;
        let view = context.transaction.borrow_mut().latest_view();
        let mut children = self.by.children(context, &view, &self.old)?;
        let child = &self.by.child;
        while let Some((key, bytes)) = children.next(context)? {
            let outcome = context.transaction.borrow_mut().lock_seen(
                &view,
                table_tree(child, &view)?,
                &key,
                &bytes,
                LockMode::KeyShare,
                true,
            );
            match outcome.map_err(waited_too_long)? {
                Outcome::Done => return Ok(Some(true)),
                Outcome::Repeated => {}
                Outcome::Gone | Outcome::Moved => complete = false,
                Outcome::Changed(newer) => {
                    let mut row = Vec::new();
                    child.codec().decode_row(&key, &newer, &all_columns(child), &mut row)?;
                    if children.refers(&row) {
                        return Ok(Some(true));
                    }
                    complete = false;
                }
            }
        }
        Ok(complete.then_some(false))
    }

    fn has_children(&self, context: &Context<'_>) -> Error {
        let (child, key) = (&self.by.child.name, &self.by.key);
        let parent = &self.by.parent.table;
        let message = format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{child}\"",
            parent.name, key.name
        );
        let described = describe::key(parent, &key.parent_columns, self.old.iter(), context);
        Error::new(SqlState::FOREIGN_KEY_VIOLATION, message)
            .detail(format!("{described} is still referenced from table \"{child}\"."))
            .table("public", child)
            .constraint(&key.name)
    }
}
