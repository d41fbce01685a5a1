//! DROP, and what else has to go when something goes.

use super::sequence::User;
use super::{DdlContext, build, no_schema, not_a, sequence};
use crate::catalog::{ColumnNumber, Index, Oid, Relation, Sequence, Table, storage};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, ObjectType};
use std::sync::Arc;

pub(super) fn drop_objects(
    context: &mut DdlContext<'_>,
    kind: ObjectType,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<&'static str> {
    match kind {
        ObjectType::Table => tables(context, names, if_exists, cascade),
        ObjectType::Index => indexes(context, names, if_exists, cascade),
        ObjectType::Sequence => sequences(context, names, if_exists, cascade),
        // Those are statements of their own.
        ObjectType::Role | ObjectType::User => Err(Error::internal("DROP ROLE as a definition")),
        ObjectType::View | ObjectType::MaterializedView => {
            let what = if kind == ObjectType::View { "view" } else { "materialized view" };
            for name in names {
                if misses_schema(context, name, if_exists)? {
                    continue;
                }
                let (last, relation) = context.find(name)?;
                match relation {
                    Some(relation) => return Err(wrong_kind(&last, what, relation)),
                    None => missing(context, if_exists, SqlState::UNDEFINED_TABLE, what, &last)?,
                }
            }
            Ok(if kind == ObjectType::View { "DROP VIEW" } else { "DROP MATERIALIZED VIEW" })
        }
        ObjectType::Schema => {
            for name in names {
                let (_, last) = context.local_name(name)?;
                match last.as_str() {
                    "public" | "pg_catalog" | "information_schema" => {
                        return Err(Error::unsupported(format!("dropping schema {last}")));
                    }
                    _ if if_exists => {
                        missing(context, true, SqlState::INVALID_SCHEMA_NAME, "schema", &last)?;
                    }
                    _ => return Err(no_schema(&last)),
                }
            }
            Ok("DROP SCHEMA")
        }
        ObjectType::Type | ObjectType::Collation => {
            let what = if kind == ObjectType::Type { "type" } else { "collation" };
            for name in names {
                if misses_schema(context, name, if_exists)? {
                    continue;
                }
                missing(context, if_exists, SqlState::UNDEFINED_OBJECT, what, &context.local_name(name)?.1)?;
            }
            Ok(if kind == ObjectType::Type { "DROP TYPE" } else { "DROP COLLATION" })
        }
        ObjectType::Database => Err(Error::unsupported("DROP DATABASE")),
        ObjectType::Stage | ObjectType::Stream | ObjectType::Warehouse => {
            Err(Error::unsupported(format!("DROP {kind}")))
        }
    }
}

/// Something to be dropped is not there: an error, or a notice with IF EXISTS.
pub(super) fn missing(
    context: &DdlContext<'_>,
    if_exists: bool,
    state: SqlState,
    what: &str,
    name: &str,
) -> Result<()> {
    let message = format!("{what} \"{name}\" does not exist");
    if if_exists {
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
        return Ok(());
    }
    Err(Error::new(state, message))
}

/// With IF EXISTS: whether a name's schema is not there, which is told of.
fn misses_schema(context: &DdlContext<'_>, name: &ast::ObjectName, if_exists: bool) -> Result<bool> {
    let schema = if if_exists { context.unknown_schema(name)? } else { None };
    if let Some(schema) = &schema {
        missing(context, true, SqlState::INVALID_SCHEMA_NAME, "schema", schema)?;
    }
    Ok(schema.is_some())
}

fn wrong_kind(name: &str, wanted: &str, found: Relation) -> Error {
    let hint = match found {
        Relation::Table(_) => "Use DROP TABLE to remove a table.",
        Relation::Index { .. } => "Use DROP INDEX to remove an index.",
        Relation::Sequence(_) => "Use DROP SEQUENCE to remove a sequence.",
    };
    not_a(name, wanted).hint(hint)
}

/// What else has to go, as messages name it, and how.
#[derive(Debug)]
enum Dependent {
    ForeignKey { child: Oid, key: Oid },
    Default { table: Oid, column: ColumnNumber },
    Check { table: Oid, check: Oid },
}

#[derive(Debug, Default)]
struct Dependents(Vec<(Dependent, String)>);

impl Dependents {
    /// Foreign keys onto a table, or onto one of its indexes, from tables that stay.
    fn add_foreign_keys(
        &mut self,
        context: &mut DdlContext<'_>,
        parent: &Table,
        index: Option<&Index>,
        going: &[Oid],
    ) -> Result<()> {
        for &child in &parent.referenced_by {
            if going.contains(&child) {
                continue;
            }
            let child = match index {
                Some(_) if child == parent.oid => context.catalog.tables.get(&child).cloned(),
                _ => context.claim_table(child)?,
            };
            let Some(child) = child else { continue };
            let onto = match index {
                Some(index) => format!("index {}", index.name),
                None => format!("table {}", parent.name),
            };
            for key in &child.foreign_keys {
                if key.parent == parent.oid && index.is_none_or(|index| index.oid == key.parent_index) {
                    let what = format!("constraint {} on table {}", key.name, child.name);
                    let dependent = Dependent::ForeignKey { child: child.oid, key: key.oid };
                    self.0.push((dependent, format!("{what} depends on {onto}")));
                }
            }
        }
        Ok(())
    }

    /// Defaults and checks that draw from a sequence, save for those of tables and of the column that go as well.
    fn add_users(
        &mut self,
        context: &DdlContext<'_>,
        sequence: &Sequence,
        going: &[Oid],
        column: Option<(Oid, ColumnNumber)>,
    ) -> Result<()> {
        for (oid, user) in sequence::users(context, &sequence.name)? {
            let Some(table) = context.catalog.tables.get(&oid).filter(|_| !going.contains(&oid)) else {
                continue;
            };
            let (dependent, what) = match user {
                User::Default(number) if column == Some((oid, number)) => continue,
                User::Default(number) => {
                    let name = table.column(number).map_or("", |column| &column.name);
                    let what = format!("default value for column {name} of table {}", table.name);
                    (Dependent::Default { table: oid, column: number }, what)
                }
                User::Check(check) => {
                    let name = table.checks.iter().find(|other| other.oid == check);
                    let name = name.map_or("", |check| &check.name);
                    let what = format!("constraint {name} on table {}", table.name);
                    (Dependent::Check { table: oid, check }, what)
                }
            };
            self.0.push((dependent, format!("{what} depends on sequence {}", sequence.name)));
        }
        Ok(())
    }

    /// Removes them with CASCADE, fails without. `what` is to be dropped; `None`: several objects.
    fn settle(self, context: &mut DdlContext<'_>, what: Option<&str>, cascade: bool) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let lines: Vec<&str> = self.0.iter().map(|(_, line)| line.as_str()).collect();
        if !cascade {
            let message = match what {
                Some(what) => format!("cannot drop {what} because other objects depend on it"),
                None => "cannot drop desired object(s) because other objects depend on them".to_owned(),
            };
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .detail(lines.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        let names: Vec<&str> =
            lines.iter().map(|line| line.split(" depends on ").next().unwrap_or(line)).collect();
        let notice = match names.as_slice() {
            [name] => Error::new(SqlState::SUCCESSFUL_COMPLETION, format!("drop cascades to {name}")),
            _ => Error::new(
                SqlState::SUCCESSFUL_COMPLETION,
                format!("drop cascades to {} other objects", names.len()),
            )
            .detail(
                names.iter().map(|name| format!("drop cascades to {name}")).collect::<Vec<_>>().join("\n"),
            ),
        };
        context.session.notice(crate::Notice { severity: "NOTICE", error: notice });
        for (dependent, _) in self.0 {
            match dependent {
                Dependent::ForeignKey { child, key } => drop_foreign_key(context, child, key)?,
                Dependent::Default { table, column } => drop_default(context, table, column)?,
                Dependent::Check { table, check } => drop_check(context, table, check)?,
            }
        }
        Ok(())
    }
}

/// Removes a foreign key.
pub(super) fn drop_foreign_key(context: &mut DdlContext<'_>, child: Oid, key: Oid) -> Result<()> {
    let Some(child) = context.claim_table(child)? else { return Ok(()) };
    let mut child = Table::clone(&child);
    let Some(position) = child.foreign_keys.iter().position(|other| other.oid == key) else { return Ok(()) };
    let parent = child.foreign_keys.remove(position).parent;
    let still = child.foreign_keys.iter().any(|key| key.parent == parent);
    if !still && parent == child.oid {
        let own = child.oid;
        child.referenced_by.retain(|&other| other != own);
    }
    let child = context.put_table(child)?;
    if !still && parent != child.oid {
        forget_child(context, parent, child.oid)?;
    }
    Ok(())
}

/// A table has no more foreign keys onto another one.
fn forget_child(context: &mut DdlContext<'_>, parent: Oid, child: Oid) -> Result<()> {
    let Some(parent) = context.claim_table(parent)? else { return Ok(()) };
    let mut parent = Table::clone(&parent);
    parent.referenced_by.retain(|&other| other != child);
    context.put_table(parent)?;
    Ok(())
}

fn drop_default(context: &mut DdlContext<'_>, table: Oid, column: ColumnNumber) -> Result<()> {
    let Some(table) = context.claim_table(table)? else { return Ok(()) };
    let mut table = Table::clone(&table);
    if let Some(position) = table.position(column) {
        table.columns[position].default = None;
    }
    context.put_table(table)?;
    Ok(())
}

fn drop_check(context: &mut DdlContext<'_>, table: Oid, check: Oid) -> Result<()> {
    let Some(table) = context.claim_table(table)? else { return Ok(()) };
    let mut table = Table::clone(&table);
    table.checks.retain(|other| other.oid != check);
    context.put_table(table)?;
    Ok(())
}

fn remove_sequence(context: &mut DdlContext<'_>, oid: Oid) -> Result<()> {
    if context.claim_sequence(oid)?.is_some() {
        let catalog = Arc::make_mut(context.catalog);
        storage::remove_sequence(&mut context.transaction.borrow_mut(), catalog, oid)?;
    }
    Ok(())
}

fn tables(
    context: &mut DdlContext<'_>,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<&'static str> {
    let mut going: Vec<Arc<Table>> = Vec::new();
    for name in names {
        if misses_schema(context, name, if_exists)? {
            continue;
        }
        let (last, relation) = context.find(name)?;
        match relation {
            Some(Relation::Table(_)) => {
                let table = context.claim_named_table(name, false)?;
                let table = table.ok_or_else(|| Error::internal("a table that may be missing"))?;
                if !going.iter().any(|other| other.oid == table.oid) {
                    going.push(table);
                }
            }
            Some(other) => return Err(wrong_kind(&last, "table", other)),
            None => missing(context, if_exists, SqlState::UNDEFINED_TABLE, "table", &last)?,
        }
    }
    let oids: Vec<Oid> = going.iter().map(|table| table.oid).collect();
    let mut dependents = Dependents::default();
    for table in &going {
        dependents.add_foreign_keys(context, table, None, &oids)?;
        for owned in sequence::owned(context, table.oid, None) {
            dependents.add_users(context, &owned, &oids, None)?;
        }
    }
    let what = match going.as_slice() {
        [table] => Some(format!("table {}", table.name)),
        _ => None,
    };
    dependents.settle(context, what.as_deref(), cascade)?;
    for table in &going {
        remove_table(context, table, &oids)?;
    }
    Ok("DROP TABLE")
}

/// Removes a table nobody depends on.
fn remove_table(context: &mut DdlContext<'_>, table: &Table, going: &[Oid]) -> Result<()> {
    for key in &table.foreign_keys {
        if !going.contains(&key.parent) {
            forget_child(context, key.parent, table.oid)?;
        }
    }
    for owned in sequence::owned(context, table.oid, None) {
        remove_sequence(context, owned.oid)?;
    }
    build::drop_trees(context, table)?;
    let catalog = Arc::make_mut(context.catalog);
    storage::remove_table(&mut context.transaction.borrow_mut(), catalog, table.oid)
}

fn sequences(
    context: &mut DdlContext<'_>,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<&'static str> {
    let mut going: Vec<Arc<Sequence>> = Vec::new();
    for name in names {
        if misses_schema(context, name, if_exists)? {
            continue;
        }
        let (last, relation) = context.find(name)?;
        match relation {
            Some(Relation::Sequence(_)) => {
                let sequence = sequence::claim_named(context, name, false)?;
                going.extend(sequence);
            }
            Some(other) => return Err(wrong_kind(&last, "sequence", other)),
            None => missing(context, if_exists, SqlState::UNDEFINED_TABLE, "sequence", &last)?,
        }
    }
    let mut dependents = Dependents::default();
    for sequence in &going {
        if let (true, Some((table, column))) = (sequence.identity, sequence.owned_by) {
            let table = context.catalog.tables.get(&table);
            let column = table.and_then(|table| Some((table, table.column(column)?)));
            let (table, column) = column.map_or(("", ""), |(table, column)| (&table.name, &column.name));
            let error = Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!(
                    "cannot drop sequence {} because column {column} of table {table} requires it",
                    sequence.name
                ),
            );
            return Err(error.hint(format!("You can drop column {column} of table {table} instead.")));
        }
        dependents.add_users(context, sequence, &[], None)?;
    }
    let what = match going.as_slice() {
        [sequence] => Some(format!("sequence {}", sequence.name)),
        _ => None,
    };
    dependents.settle(context, what.as_deref(), cascade)?;
    for sequence in &going {
        remove_sequence(context, sequence.oid)?;
    }
    Ok("DROP SEQUENCE")
}

fn indexes(
    context: &mut DdlContext<'_>,
    names: &[ast::ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<&'static str> {
    for name in names {
        if misses_schema(context, name, if_exists)? {
            continue;
        }
        let (last, relation) = context.find(name)?;
        let (table, index) = match relation {
            Some(Relation::Index { table, index }) => (table, index),
            Some(other) => return Err(wrong_kind(&last, "index", other)),
            None => {
                missing(context, if_exists, SqlState::UNDEFINED_OBJECT, "index", &last)?;
                continue;
            }
        };
        let table = context.claim_known_table(table)?;
        context.check_owner(table.owner, "index", &last)?;
        let Some(found) = table.indexes.iter().find(|other| other.oid == index) else {
            missing(context, if_exists, SqlState::UNDEFINED_OBJECT, "index", &last)?;
            continue;
        };
        if found.constraint.is_some() {
            let on = format!("constraint {} on table {}", found.name, table.name);
            return Err(Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop index {} because {on} requires it", found.name),
            )
            .hint(format!("You can drop {on} instead.")));
        }
        remove_index(context, &table, index, &format!("index {last}"), cascade)?;
    }
    Ok("DROP INDEX")
}

/// Removes an index, not the primary one, with the foreign keys that lean on it.
pub(super) fn remove_index(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    index: Oid,
    what: &str,
    cascade: bool,
) -> Result<Arc<Table>> {
    let table = settle_index(context, table, index, what, cascade)?;
    let mut table = Table::clone(&table);
    if let Some(position) = table.indexes.iter().position(|other| other.oid == index) {
        let index = table.indexes.remove(position);
        context.drop_storage(&index.storage)?;
    }
    context.put_table(table)
}

/// Removes the foreign keys that lean on an index, with CASCADE; gives the table as it is then.
pub(super) fn settle_index(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    index: Oid,
    what: &str,
    cascade: bool,
) -> Result<Arc<Table>> {
    let mut dependents = Dependents::default();
    if let Some(index) = table.indexes.iter().find(|other| other.oid == index) {
        dependents.add_foreign_keys(context, table, Some(index), &[])?;
    }
    dependents.settle(context, Some(what), cascade)?;
    context.claim_known_table(table.oid)
}

/// Removes the sequences of a column that goes.
pub(super) fn remove_column_sequences(
    context: &mut DdlContext<'_>,
    table: &Table,
    column: ColumnNumber,
    cascade: bool,
) -> Result<()> {
    let name = table.column(column).map_or("", |column| column.name.as_str());
    let what = format!("column {name} of table {}", table.name);
    let mut dependents = Dependents::default();
    let owned = sequence::owned(context, table.oid, Some(column));
    for sequence in &owned {
        dependents.add_users(context, sequence, &[], Some((table.oid, column)))?;
    }
    dependents.settle(context, Some(&what), cascade)?;
    for sequence in owned {
        remove_sequence(context, sequence.oid)?;
    }
    Ok(())
}
