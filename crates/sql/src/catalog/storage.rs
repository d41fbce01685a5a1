//! Where definitions are kept: one tree of the same store, changed in the same transactions as rows.
//!
//! # Layout
//! ```text
//! tree "catalog.sql"
//!   00                          version of this layout, 4 bytes
//!   01 oid                      table       revision (8 bytes), JSON
//!   02 oid                      sequence    revision, JSON
//!   03 oid                      role        revision, JSON
//!   04 oid                      statistics  revision, JSON      (of the table of this oid)
//!   05 name                     name of a relation: empty
//!   06 name                     name of a role: empty
//! tree "catalog.numbers"        see `sequences`
//! ```
//! Oids in keys are 4 bytes big-endian, other numbers little-endian.
//!
//! # Invariants
//! 1. Every relation and every role has the entry of its name, written in the same transaction. Two transactions that want one name
//!    meet there: the second waits for the first, and is refused if that commits. One entry is one relation's: a table whose index
//!    has its own name is refused.
//! 2. A revision is a random number, new with each change of a definition: equal revisions mean equal definitions, also across
//!    transactions that were rolled back.
//! 3. An entry is overwritten or removed only by who has locked it exclusively (a new one: by who has created it). Writers of a
//!    table's rows hold a key-share lock on its entry, so a definition does not change below a transaction that writes.
//!
//! # Crash
//! Entries are rows; whatever holds for those holds here. There is nothing beside them to be brought up to date.

use super::model::{Catalog, Oid, Relation, Role, Sequence, Table, TableStatistics};
use super::{BOOTSTRAP_ROLE, sequences};
use crate::{Error, Result, SqlState};
use gannet_base::random;
use gannet_store::{LockMode, Transaction, Tree, View};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The tree of the definitions.
const TREE: &str = "catalog.sql";
/// The layout this release writes, and the newest one it reads.
const LAYOUT: u32 = 1;
/// Bytes of a revision.
const REVISION: usize = 8;

/// What an entry is about: the first byte of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Layout = 0,
    Table = 1,
    Sequence = 2,
    Role = 3,
    Statistics = 4,
    RelationName = 5,
    RoleName = 6,
}

fn key(kind: Kind, oid: Oid) -> [u8; 5] {
    let mut key = [kind as u8; 5];
    key[1..].copy_from_slice(&oid.to_be_bytes());
    key
}

fn name_key(kind: Kind, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind as u8);
    key.extend_from_slice(name.as_bytes());
    key
}

/// What is stored under an oid.
trait Definition: Serialize + DeserializeOwned {
    /// What it is called in messages.
    const WHAT: &'static str;
    fn revision_mut(&mut self) -> &mut u64;
}

impl Definition for Table {
    const WHAT: &'static str = "table";
    fn revision_mut(&mut self) -> &mut u64 {
        &mut self.revision
    }
}

impl Definition for Sequence {
    const WHAT: &'static str = "sequence";
    fn revision_mut(&mut self) -> &mut u64 {
        &mut self.revision
    }
}

impl Definition for Role {
    const WHAT: &'static str = "role";
    fn revision_mut(&mut self) -> &mut u64 {
        &mut self.revision
    }
}

impl Definition for TableStatistics {
    const WHAT: &'static str = "statistics";
    fn revision_mut(&mut self) -> &mut u64 {
        &mut self.revision
    }
}

// ---- reading --------------------------------------------------------------------------------------------------------

/// Makes a new database one that has SQL: creates its trees, and the role `owner`, who may do everything.
pub fn bootstrap(transaction: &mut Transaction, owner: &str) -> Result<()> {
    let tree = transaction.create_tree(TREE)?;
    transaction.put(&tree, &[Kind::Layout as u8], &LAYOUT.to_le_bytes())?;
    sequences::bootstrap(transaction)?;
    let mut catalog = Catalog { entries: Some(tree), ..Catalog::default() };
    let role = Role {
        oid: BOOTSTRAP_ROLE,
        name: owner.to_owned(),
        login: true,
        superuser: true,
        password: None,
        revision: 0,
    };
    put_role(transaction, &mut catalog, role).map(drop)
}

/// Whether the database has SQL definitions. (One that was made as a key-value store has none.)
pub fn is_sql(view: &View) -> Result<bool> {
    Ok(view.tree(TREE)?.is_some())
}

/// Whether a tree of this name is, or would be taken for, one of SQL's: definitions, or the rows of a table or index.
/// Whoever changes it by other means than statements breaks it.
pub fn is_reserved(view: &View, tree: &str) -> Result<bool> {
    if [TREE, super::sequences::TREE].contains(&tree) {
        return Ok(true);
    }
    let is_rows = tree.split_once('.').is_some_and(|(kind, oid)| {
        ["t", "i"].contains(&kind) && !oid.is_empty() && oid.bytes().all(|byte| byte.is_ascii_digit())
    });
    Ok(is_rows && is_sql(view)?)
}

/// All definitions that a view sees.
pub fn load(view: &View) -> Result<Catalog> {
    reload(view, &Catalog::default())
}

/// All definitions that a view sees. Those that are in `previous` already are taken over as they are, with what was worked
/// out for them, and cost next to nothing.
pub fn reload(view: &View, previous: &Catalog) -> Result<Catalog> {
    let tree = match &previous.entries {
        Some(tree) => tree.clone(),
        None => view.tree(TREE)?.ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the database has no SQL definitions: it was created as a key-value store",
            )
        })?,
    };
    let mut catalog =
        Catalog { version: previous.version, entries: Some(tree.clone()), ..Catalog::default() };
    let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
    while let Some((key, value)) = scan.next()? {
        read_entry(&mut catalog, previous, key, value)?;
    }
    for table in catalog.tables.values() {
        for (name, relation) in relations_of(table) {
            catalog.names.insert(name.to_owned(), relation);
        }
    }
    for sequence in catalog.sequences.values() {
        catalog.names.insert(sequence.name.clone(), Relation::Sequence(sequence.oid));
    }
    Ok(catalog)
}

/// A table as a view sees it, if it is there; taken over from `previous` where it has not changed. Costs one look-up, not all definitions.
pub fn reload_table(view: &View, previous: &Catalog, oid: Oid) -> Result<Option<Arc<Table>>> {
    let Some(tree) = &previous.entries else {
        return Err(Error::internal("definitions that nobody has read"));
    };
    let Some(value) = view.get(tree, &key(Kind::Table, oid))? else { return Ok(None) };
    let mut found = BTreeMap::new();
    keep(&mut found, &previous.tables, oid, &value, |table: &Table| table.revision)?;
    Ok(found.remove(&oid))
}

pub(super) fn read_entry(catalog: &mut Catalog, previous: &Catalog, key: &[u8], value: &[u8]) -> Result<()> {
    let (&kind, rest) = key.split_first().ok_or_else(|| damaged("an entry without a key"))?;
    let oid = || rest.try_into().map(Oid::from_be_bytes).map_err(|_| damaged("a key of the wrong length"));
    match kind {
        k if k == Kind::Layout as u8 => check_layout(value),
        k if k == Kind::Table as u8 => {
            keep(&mut catalog.tables, &previous.tables, oid()?, value, |t| t.revision)
        }
        k if k == Kind::Sequence as u8 => {
            keep(&mut catalog.sequences, &previous.sequences, oid()?, value, |s| s.revision)
        }
        k if k == Kind::Role as u8 => {
            keep(&mut catalog.roles, &previous.roles, oid()?, value, |r| r.revision)
        }
        k if k == Kind::Statistics as u8 => {
            keep(&mut catalog.statistics, &previous.statistics, oid()?, value, |s| s.revision)
        }
        k if k == Kind::RelationName as u8 || k == Kind::RoleName as u8 => Ok(()),
        other => Err(newer(format!("an object of kind {other}"), "this release does not know the kind")),
    }
}

fn keep<T: Definition>(
    objects: &mut BTreeMap<Oid, Arc<T>>,
    previous: &BTreeMap<Oid, Arc<T>>,
    oid: Oid,
    value: &[u8],
    revision: impl Fn(&T) -> u64,
) -> Result<()> {
    let (stored, _) = split(value)?;
    let object = match previous.get(&oid).filter(|known| revision(known) == stored) {
        Some(known) => Arc::clone(known),
        None => Arc::new(decode::<T>(oid, value)?),
    };
    objects.insert(oid, object);
    Ok(())
}

fn check_layout(value: &[u8]) -> Result<()> {
    let layout =
        value.try_into().map(u32::from_le_bytes).map_err(|_| damaged("a version of the wrong length"))?;
    if layout > LAYOUT {
        return Err(newer("its catalog", &format!("it has version {layout}, this release reads {LAYOUT}")));
    }
    Ok(())
}

fn split(value: &[u8]) -> Result<(u64, &[u8])> {
    let (revision, json) =
        value.split_first_chunk::<REVISION>().ok_or_else(|| damaged("an entry cut short"))?;
    Ok((u64::from_le_bytes(*revision), json))
}

fn decode<T: Definition>(oid: Oid, value: &[u8]) -> Result<T> {
    let (revision, json) = split(value)?;
    let mut object: T = serde_json::from_slice(json).map_err(|error| {
        // A name, if there is one, says more than a number.
        let parsed: Option<serde_json::Value> = serde_json::from_slice(json).ok();
        match parsed {
            Some(parsed) => {
                let name = parsed.get("name").and_then(serde_json::Value::as_str);
                let what = match name {
                    Some(name) => format!("{} \"{name}\"", T::WHAT),
                    None => format!("{} {oid}", T::WHAT),
                };
                newer(what, &error.to_string())
            }
            None => damaged(&format!("the definition of {} {oid} is no JSON: {error}", T::WHAT)),
        }
    })?;
    *object.revision_mut() = revision;
    Ok(object)
}

fn newer(what: impl std::fmt::Display, why: &str) -> Error {
    Error::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("{what} of this database needs a newer release: {why}"),
    )
    .hint("Open the database with the release that wrote it last, or a later one.")
}

fn damaged(what: &str) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("the catalog is damaged: {what}"))
}

// ---- writing --------------------------------------------------------------------------------------------------------

fn entries(catalog: &Catalog) -> Result<Tree> {
    catalog.entries.clone().ok_or_else(|| Error::internal("definitions that were never loaded are changed"))
}

fn put<T: Definition>(
    transaction: &mut Transaction,
    tree: &Tree,
    kind: Kind,
    oid: Oid,
    object: &mut T,
) -> Result<()> {
    let revision = random::next_u64();
    *object.revision_mut() = revision;
    transaction.put(tree, &key(kind, oid), &encode(revision, object)?)?;
    Ok(())
}

/// What is stored of a definition.
pub(crate) fn encode(revision: u64, object: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = revision.to_le_bytes().to_vec();
    serde_json::to_writer(&mut value, object).map_err(Error::internal)?;
    Ok(value)
}

/// Names of a table and its indexes. The index of a primary key has one, too.
fn relations_of(table: &Table) -> impl Iterator<Item = (&str, Relation)> {
    let indexes = table.indexes.iter();
    std::iter::once((table.name.as_str(), Relation::Table(table.oid))).chain(
        indexes.map(|index| (index.name.as_str(), Relation::Index { table: table.oid, index: index.oid })),
    )
}

fn take_name(transaction: &mut Transaction, tree: &Tree, kind: Kind, name: &str) -> Result<()> {
    match transaction.insert(tree, &name_key(kind, name), &[]) {
        Ok(()) => Ok(()),
        Err(gannet_store::Error::Duplicate) => Err(if kind == Kind::RoleName {
            Error::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists"))
        } else {
            name_taken(name)
        }),
        Err(error) => Err(error.into()),
    }
}

fn name_taken(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn give_name(transaction: &mut Transaction, tree: &Tree, kind: Kind, name: &str) -> Result<()> {
    transaction.delete(tree, &name_key(kind, name))?;
    Ok(())
}

/// Brings the names of relations from those in `old` to those in `new`, which have to differ.
fn change_names(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    old: &[(String, Relation)],
    new: &[(String, Relation)],
) -> Result<()> {
    let tree = entries(catalog)?;
    // A table and its indexes: one entry would stand for two of them.
    if let Some((_, (name, _))) =
        new.iter().enumerate().find(|(place, (name, _))| new[..*place].iter().any(|(other, _)| other == name))
    {
        return Err(name_taken(name));
    }
    for (name, _) in old.iter().filter(|(name, _)| !new.iter().any(|(other, _)| other == name)) {
        give_name(transaction, &tree, Kind::RelationName, name)?;
        catalog.names.remove(name);
    }
    for (name, relation) in new {
        if !old.iter().any(|(other, _)| other == name) {
            take_name(transaction, &tree, Kind::RelationName, name)?;
        }
        catalog.names.insert(name.clone(), *relation);
    }
    Ok(())
}

fn owned_names(table: &Table) -> Vec<(String, Relation)> {
    relations_of(table).map(|(name, relation)| (name.to_owned(), relation)).collect()
}

/// Adds or replaces a table, with the names of its indexes.
pub fn put_table(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    mut table: Table,
) -> Result<Arc<Table>> {
    let old = catalog.tables.get(&table.oid).map(|old| owned_names(old)).unwrap_or_default();
    change_names(transaction, catalog, &old, &owned_names(&table))?;
    let tree = entries(catalog)?;
    put(transaction, &tree, Kind::Table, table.oid, &mut table)?;
    let table = Arc::new(table);
    catalog.tables.insert(table.oid, Arc::clone(&table));
    Ok(table)
}

/// Removes a table, with the names of its indexes and what ANALYZE found. Its trees and sequences are the caller's.
pub fn remove_table(transaction: &mut Transaction, catalog: &mut Catalog, oid: Oid) -> Result<()> {
    let Some(table) = catalog.tables.get(&oid).cloned() else { return Ok(()) };
    change_names(transaction, catalog, &owned_names(&table), &[])?;
    let tree = entries(catalog)?;
    transaction.delete(&tree, &key(Kind::Table, oid))?;
    catalog.tables.remove(&oid);
    remove_statistics(transaction, catalog, oid)
}

/// Adds or replaces a sequence.
pub fn put_sequence(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    mut sequence: Sequence,
) -> Result<Arc<Sequence>> {
    let name = |sequence: &Sequence| (sequence.name.clone(), Relation::Sequence(sequence.oid));
    let old: Vec<_> = catalog.sequences.get(&sequence.oid).map(|old| name(old)).into_iter().collect();
    change_names(transaction, catalog, &old, &[name(&sequence)])?;
    let tree = entries(catalog)?;
    put(transaction, &tree, Kind::Sequence, sequence.oid, &mut sequence)?;
    let sequence = Arc::new(sequence);
    catalog.sequences.insert(sequence.oid, Arc::clone(&sequence));
    Ok(sequence)
}

/// Removes a sequence.
pub fn remove_sequence(transaction: &mut Transaction, catalog: &mut Catalog, oid: Oid) -> Result<()> {
    let Some(sequence) = catalog.sequences.get(&oid).cloned() else { return Ok(()) };
    change_names(transaction, catalog, &[(sequence.name.clone(), Relation::Sequence(oid))], &[])?;
    let tree = entries(catalog)?;
    transaction.delete(&tree, &key(Kind::Sequence, oid))?;
    catalog.sequences.remove(&oid);
    Ok(())
}

/// Adds or replaces a role.
pub fn put_role(transaction: &mut Transaction, catalog: &mut Catalog, mut role: Role) -> Result<Arc<Role>> {
    let tree = entries(catalog)?;
    let old = catalog.roles.get(&role.oid).map(|old| old.name.clone());
    if old.as_ref() != Some(&role.name) {
        if let Some(old) = old {
            give_name(transaction, &tree, Kind::RoleName, &old)?;
        }
        take_name(transaction, &tree, Kind::RoleName, &role.name)?;
    }
    put(transaction, &tree, Kind::Role, role.oid, &mut role)?;
    let role = Arc::new(role);
    catalog.roles.insert(role.oid, Arc::clone(&role));
    Ok(role)
}

/// Removes a role.
pub fn remove_role(transaction: &mut Transaction, catalog: &mut Catalog, oid: Oid) -> Result<()> {
    let Some(role) = catalog.roles.get(&oid).cloned() else { return Ok(()) };
    let tree = entries(catalog)?;
    give_name(transaction, &tree, Kind::RoleName, &role.name)?;
    transaction.delete(&tree, &key(Kind::Role, oid))?;
    catalog.roles.remove(&oid);
    Ok(())
}

/// Adds or replaces what ANALYZE found out about a table.
pub fn put_statistics(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    table: Oid,
    mut statistics: TableStatistics,
) -> Result<()> {
    let tree = entries(catalog)?;
    put(transaction, &tree, Kind::Statistics, table, &mut statistics)?;
    catalog.statistics.insert(table, Arc::new(statistics));
    Ok(())
}

/// Removes what ANALYZE found out about a table.
pub fn remove_statistics(transaction: &mut Transaction, catalog: &mut Catalog, table: Oid) -> Result<()> {
    catalog.statistics.remove(&table);
    // Whoever has the definition alone may have waited for an ANALYZE that it does not know of.
    let tree = entries(catalog)?;
    transaction.delete(&tree, &key(Kind::Statistics, table))?;
    Ok(())
}

// ---- locks ----------------------------------------------------------------------------------------------------------

/// Holds a table's definition as it is until the transaction ends: for who writes rows. False when it is not the one that
/// `table` says (any more): the caller loads the catalog anew and begins the statement again.
pub fn lock_for_write(transaction: &mut Transaction, catalog: &Catalog, table: &Table) -> Result<bool> {
    lock(transaction, &entries(catalog)?, Kind::Table, table.oid, LockMode::Definition, table.revision)
}

/// Waits for all who write to a table, and keeps others from it until the transaction ends: for who changes the definition.
/// False as in [`lock_for_write`]; the lock is held all the same, where the table is there at all.
pub fn lock_for_change(transaction: &mut Transaction, catalog: &Catalog, table: &Table) -> Result<bool> {
    lock(transaction, &entries(catalog)?, Kind::Table, table.oid, LockMode::Exclusive, table.revision)
}

fn lock(
    transaction: &mut Transaction,
    tree: &Tree,
    kind: Kind,
    oid: Oid,
    mode: LockMode,
    revision: u64,
) -> Result<bool> {
    let key = key(kind, oid);
    if !transaction.lock(tree, &key, mode)? {
        return Ok(false);
    }
    let stored =
        transaction.latest_view().with_value(tree, &key, |value| split(value).map(|(stored, _)| stored))?;
    Ok(stored.transpose()? == Some(revision))
}

fn forget_names(names: &mut HashMap<String, Relation>, table: &Table) {
    for (name, _) in relations_of(table) {
        names.remove(name);
    }
}

/// Locks a table for a change of its definition, and brings the private catalog's copy up to date; `None` when it is gone.
pub fn claim_table(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    oid: Oid,
) -> Result<Option<Arc<Table>>> {
    let known = catalog.tables.get(&oid).cloned();
    match locked(transaction, &entries(catalog)?, (Kind::Table, oid), LockMode::Exclusive, known, |t| {
        t.revision
    })? {
        Some(table) => {
            if let Some(old) = catalog.tables.insert(oid, Arc::clone(&table)) {
                forget_names(&mut catalog.names, &old);
            }
            for (name, relation) in relations_of(&table) {
                catalog.names.insert(name.to_owned(), relation);
            }
            Ok(Some(table))
        }
        None => {
            if let Some(old) = catalog.tables.remove(&oid) {
                forget_names(&mut catalog.names, &old);
            }
            catalog.statistics.remove(&oid);
            Ok(None)
        }
    }
}

/// Holds a table's definition until the transaction ends, and gives it as it is now; `None` when it is gone.
pub fn hold_table(transaction: &mut Transaction, catalog: &Catalog, oid: Oid) -> Result<Option<Arc<Table>>> {
    let known = catalog.tables.get(&oid).cloned();
    locked(transaction, &entries(catalog)?, (Kind::Table, oid), LockMode::Definition, known, |t| t.revision)
}

/// As [`claim_table`], for a sequence. Its position is not held, `nextval` goes on: see [`claim`](sequences::Numbers::claim).
pub fn claim_sequence(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    oid: Oid,
) -> Result<Option<Arc<Sequence>>> {
    let known = catalog.sequences.get(&oid).cloned();
    let found =
        locked(transaction, &entries(catalog)?, (Kind::Sequence, oid), LockMode::Exclusive, known, |s| {
            s.revision
        })?;
    if let Some(old) = catalog.sequences.remove(&oid) {
        catalog.names.remove(&old.name);
    }
    if let Some(sequence) = &found {
        catalog.sequences.insert(oid, Arc::clone(sequence));
        catalog.names.insert(sequence.name.clone(), Relation::Sequence(oid));
    }
    Ok(found)
}

/// Holds a sequence's definition until the transaction ends, and gives it as it is now; `None` when it is gone.
pub fn hold_sequence(
    transaction: &mut Transaction,
    catalog: &Catalog,
    oid: Oid,
) -> Result<Option<Arc<Sequence>>> {
    let known = catalog.sequences.get(&oid).cloned();
    locked(transaction, &entries(catalog)?, (Kind::Sequence, oid), LockMode::Definition, known, |s| {
        s.revision
    })
}

/// As [`claim_table`], for a role.
pub fn claim_role(
    transaction: &mut Transaction,
    catalog: &mut Catalog,
    oid: Oid,
) -> Result<Option<Arc<Role>>> {
    let known = catalog.roles.get(&oid).cloned();
    let found =
        locked(transaction, &entries(catalog)?, (Kind::Role, oid), LockMode::Exclusive, known, |r| {
            r.revision
        })?;
    match &found {
        Some(role) => drop(catalog.roles.insert(oid, Arc::clone(role))),
        None => drop(catalog.roles.remove(&oid)),
    }
    Ok(found)
}

/// Holds a role until the transaction ends, and gives it as it is now; `None` when it is gone.
pub fn hold_role(transaction: &mut Transaction, catalog: &Catalog, oid: Oid) -> Result<Option<Arc<Role>>> {
    let known = catalog.roles.get(&oid).cloned();
    locked(transaction, &entries(catalog)?, (Kind::Role, oid), LockMode::Definition, known, |r| r.revision)
}

/// A definition as it is once its lock was had.
fn locked<T: Definition>(
    transaction: &mut Transaction,
    tree: &Tree,
    (kind, oid): (Kind, Oid),
    mode: LockMode,
    known: Option<Arc<T>>,
    revision: impl Fn(&T) -> u64,
) -> Result<Option<Arc<T>>> {
    let key = key(kind, oid);
    if !transaction.lock(tree, &key, mode)? {
        return Ok(None);
    }
    let Some(value) = transaction.latest_view().get(tree, &key)? else { return Ok(None) };
    let (stored, _) = split(&value)?;
    match known.filter(|known| revision(known) == stored) {
        Some(known) => Ok(Some(known)),
        None => decode::<T>(oid, &value).map(|object| Some(Arc::new(object))),
    }
}
