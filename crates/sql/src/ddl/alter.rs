//! ALTER TABLE, ALTER INDEX. Each operation of a statement sees what the one before left behind, in the order of [`pass`], as PostgreSQL has it; checks are judged
//! when all types have changed.

use super::column::{self, ColumnSpec, column_exists, no_column};
use super::constraint::{self, Spec};
use super::{
    DdlContext, build, drop, names, no_relation, not_a, relation_exists, sequence, storage_parameters, text,
    validate,
};
use crate::bind::{self, identifier};
use crate::catalog::{
    Check, Column, ColumnNumber, Index, Layout, Oid, Relation, Sequence, Table, TableKey, TableStatistics,
    storage,
};
use crate::logical::Scalar;
use crate::types::text::{TextStyle, to_text};
use crate::types::{Value, cast};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation};
use std::ops::Bound;
use std::sync::Arc;

pub(super) fn table(context: &mut DdlContext<'_>, statement: &ast::AlterTable) -> Result<&'static str> {
    const DONE: &str = "ALTER TABLE";
    let ast::AlterTable {
        name,
        if_exists,
        only: _,
        operations,
        location,
        on_cluster,
        table_type,
        end_token: _,
    } = statement;
    if location.is_some() || on_cluster.is_some() || table_type.is_some() {
        return Err(Error::unsupported("ALTER TABLE with LOCATION, ON CLUSTER or another kind of table"));
    }
    if let [AlterTableOperation::RenameTable { table_name }] = operations.as_slice() {
        rename_relation(context, name, *if_exists, table_name)?;
        return Ok(DONE);
    }
    // Dumps of PostgreSQL's say so of sequences, too.
    if let [AlterTableOperation::OwnerTo { new_owner }] = operations.as_slice()
        && let Some(Relation::Sequence(_)) = context.find_if(name, *if_exists)?.1
    {
        let new_owner = owner(context, new_owner)?;
        sequence::change_owner(context, name, *if_exists, new_owner)?;
        return Ok(DONE);
    }
    let Some(mut table) = context.claim_named_table(name, *if_exists)? else { return Ok(DONE) };
    let mut left = Left::default();
    for turn in 0..=LAST_PASS {
        let (due, later) =
            left.constraints.into_iter().partition(|constraint| constraint_pass(constraint) == turn);
        left.constraints = later;
        let due: Vec<Spec> = due;
        for constraint in &due {
            table = constraint::add_to_existing(context, &table, constraint)?;
        }
        for operation in operations.iter().filter(|operation| pass(operation) == turn) {
            table = apply(context, &table, operation, &mut left)?;
        }
    }
    let altered = left.altered;
    if altered.is_empty() {
        return Ok(DONE);
    }
    for check in &table.checks {
        context.check_condition(&table, &check.expression)?;
    }
    // A value may have become another one, as a number that is rounded.
    for check in &table.checks {
        let mentions = context.mentions(&table, &check.expression)?;
        if mentions.iter().any(|it| it.column.is_none_or(|column| altered.contains(&column))) {
            validate::check(context, &table, check)?;
        }
    }
    Ok(DONE)
}

/// What operations leave to later passes of their statement.
#[derive(Debug, Default)]
struct Left {
    /// Columns that have got another type.
    altered: Vec<ColumnNumber>,
    /// Constraints beside columns that were added. They may name what the statement adds behind them.
    constraints: Vec<Spec>,
}

const KEYS: u8 = 4;
const OTHER_CONSTRAINTS: u8 = 5;
const LAST_PASS: u8 = 6;

/// When a constraint's turn is.
fn constraint_pass(constraint: &Spec) -> u8 {
    match constraint {
        Spec::Key { .. } => KEYS,
        Spec::Check { .. } | Spec::Foreign { .. } => OTHER_CONSTRAINTS,
    }
}

/// When an operation's turn is among those of one statement.
fn pass(operation: &AlterTableOperation) -> u8 {
    use ast::TableConstraint::{PrimaryKey, PrimaryKeyUsingIndex, Unique, UniqueUsingIndex};
    match operation {
        AlterTableOperation::DropColumn { .. } | AlterTableOperation::DropConstraint { .. } => 0,
        AlterTableOperation::AlterColumn { op, .. } => match op {
            AlterColumnOperation::DropNotNull | AlterColumnOperation::DropDefault => 0,
            AlterColumnOperation::SetDataType { .. } => 1,
            AlterColumnOperation::SetNotNull => 3,
            AlterColumnOperation::SetDefault { .. } | AlterColumnOperation::AddGenerated { .. } => {
                OTHER_CONSTRAINTS
            }
        },
        AlterTableOperation::AddColumn { .. } => 2,
        AlterTableOperation::AddConstraint { constraint, .. } => match constraint {
            Unique(_) | PrimaryKey(_) | PrimaryKeyUsingIndex(_) | UniqueUsingIndex(_) => KEYS,
            _ => OTHER_CONSTRAINTS,
        },
        _ => LAST_PASS,
    }
}

fn apply(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    operation: &AlterTableOperation,
    left: &mut Left,
) -> Result<Arc<Table>> {
    match operation {
        AlterTableOperation::AddConstraint { constraint, not_valid } => {
            if *not_valid {
                return Err(Error::unsupported("NOT VALID"));
            }
            constraint::add_to_existing(context, table, &Spec::of_table(constraint)?)
        }
        AlterTableOperation::AddColumn { column_keyword: _, if_not_exists, column_def, column_position } => {
            if column_position.is_some() {
                return Err(Error::unsupported("ADD COLUMN with FIRST or AFTER"));
            }
            add_column(context, table, column_def, *if_not_exists, &mut left.constraints)
        }
        AlterTableOperation::DropColumn { has_column_keyword: _, column_names, if_exists, drop_behavior } => {
            let mut table = Arc::clone(table);
            for name in column_names {
                let cascade = is_cascade(drop_behavior.as_ref());
                table = drop_column(context, &table, &identifier(name)?, *if_exists, cascade)?;
            }
            Ok(table)
        }
        AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
            let cascade = is_cascade(drop_behavior.as_ref());
            drop_constraint(context, table, &identifier(name)?, *if_exists, cascade)
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            rename_column(context, table, &identifier(old_column_name)?, &identifier(new_column_name)?)
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            rename_constraint(context, table, &identifier(old_name)?, &identifier(new_name)?)
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            alter_column(context, table, &identifier(column_name)?, op, &mut left.altered)
        }
        AlterTableOperation::OwnerTo { new_owner } => change_owner(context, table, new_owner),
        AlterTableOperation::SetOptionsParens { options } => {
            storage_parameters(context, options)?;
            Ok(Arc::clone(table))
        }
        AlterTableOperation::ValidateConstraint { name } => {
            let name = identifier(name)?;
            // All of them are.
            if names::has_constraint(table, &name) {
                Ok(Arc::clone(table))
            } else {
                Err(no_constraint(&name, table))
            }
        }
        AlterTableOperation::RenameTable { .. } => {
            Err(Error::new(SqlState::SYNTAX_ERROR, "RENAME TO stands alone in ALTER TABLE"))
        }
        other => refuse(other),
    }
}

/// What is not implemented, or other systems have.
fn refuse(operation: &AlterTableOperation) -> Result<Arc<Table>> {
    let what = match operation {
        // References of PostgreSQL's are triggers, and this switches them off and on: dumps of rows alone have it.
        AlterTableOperation::EnableTrigger { name } | AlterTableOperation::DisableTrigger { name }
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") =>
        {
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "references cannot be switched off")
                .detail("There are no triggers that DISABLE TRIGGER ALL could mean.")
                .hint(
                    "Load a dump that has definitions, too (pg_dump without --data-only and --disable-triggers): in it constraints come behind the rows.",
                ));
        }
        AlterTableOperation::EnableRowLevelSecurity
        | AlterTableOperation::DisableRowLevelSecurity
        | AlterTableOperation::ForceRowLevelSecurity
        | AlterTableOperation::NoForceRowLevelSecurity => "ROW LEVEL SECURITY",
        AlterTableOperation::EnableRule { .. }
        | AlterTableOperation::DisableRule { .. }
        | AlterTableOperation::EnableAlwaysRule { .. }
        | AlterTableOperation::EnableReplicaRule { .. } => "ALTER TABLE with a rule",
        AlterTableOperation::EnableTrigger { .. }
        | AlterTableOperation::DisableTrigger { .. }
        | AlterTableOperation::EnableAlwaysTrigger { .. }
        | AlterTableOperation::EnableReplicaTrigger { .. } => "ALTER TABLE with a trigger",
        AlterTableOperation::ReplicaIdentity { .. } => "REPLICA IDENTITY",
        AlterTableOperation::AttachPartition { .. }
        | AlterTableOperation::DetachPartition { .. }
        | AlterTableOperation::FreezePartition { .. }
        | AlterTableOperation::UnfreezePartition { .. }
        | AlterTableOperation::RenamePartitions { .. }
        | AlterTableOperation::AddPartitions { .. }
        | AlterTableOperation::DropPartitions { .. } => "ALTER TABLE with a partition",
        AlterTableOperation::SetLogged | AlterTableOperation::SetUnlogged => "SET LOGGED or UNLOGGED",
        other => return Err(Error::unsupported(format!("ALTER TABLE ... {other}"))),
    };
    Err(Error::unsupported(what))
}

fn is_cascade(behavior: Option<&ast::DropBehavior>) -> bool {
    matches!(behavior, Some(ast::DropBehavior::Cascade))
}

fn no_constraint(name: &str, table: &Table) -> Error {
    Error::new(
        SqlState::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
    )
}

fn position(table: &Table, column: &str) -> Result<usize> {
    table.find_column(column).ok_or_else(|| no_column(column, &table.name))
}

/// The layout of rows that have all columns the table has now.
fn push_layout(table: &mut Table) {
    let mut numbers: Vec<_> = table.columns.iter().map(|column| column.number).collect();
    numbers.sort_unstable();
    table.layouts.push(Layout(numbers));
}

fn has_rows(context: &DdlContext<'_>, table: &Table) -> Result<bool> {
    let tree = context.tree(&table.storage)?;
    let mut scan = context.latest_view().scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
    scan.look_ahead(false);
    Ok(scan.next()?.is_some())
}

// ---- columns --------------------------------------------------------------------------------------------------------

fn add_column(
    context: &mut DdlContext<'_>,
    old: &Arc<Table>,
    definition: &ast::ColumnDef,
    if_not_exists: bool,
    constraints: &mut Vec<Spec>,
) -> Result<Arc<Table>> {
    let spec = ColumnSpec::new(definition, &old.name)?;
    column::check_name(&spec.name)?;
    if old.find_column(&spec.name).is_some() {
        let error = column_exists(&spec.name, &old.name);
        if if_not_exists {
            context.notice("NOTICE", SqlState::DUPLICATE_COLUMN, format!("{error}, skipping"));
            return Ok(Arc::clone(old));
        }
        return Err(error);
    }
    if old.columns.len() >= column::MOST_COLUMNS || usize::from(old.next_column) >= usize::from(u16::MAX) {
        return Err(column::too_many());
    }
    let number = old.next_column;
    let mut new = spec.finish(context, (old.oid, &old.name), old.owner, number)?;
    // It may have made a sequence, and the table's entry may be another one since.
    let mut table = Table::clone(old);
    table.next_column += 1;
    let primary = spec.constraints.iter().any(|spec| matches!(spec, Spec::Key { primary: true, .. }));
    let not_null = new.not_null || primary;
    let default = new.default.as_deref().map(|default| context.bind_default(&new, default)).transpose()?;
    let mut table = match default {
        Some(default) if crate::logical::is_volatile(&default) => {
            let mut value = context.prepare(default, new.ty)?;
            table.columns.push(new);
            table.layouts.clear();
            push_layout(&mut table);
            let everything: Vec<usize> = (0..old.columns.len()).collect();
            let ddl = &*context;
            build::rewrite(ddl, old, table, &everything, |row| {
                row.push(value.value(ddl)?);
                Ok(())
            })?
        }
        default => {
            let value = match default {
                Some(default) => context.prepare(default, new.ty)?.value(context)?,
                None => Value::Null,
            };
            if value.is_null() {
                if not_null && has_rows(context, old)? {
                    return Err(build::contains_null(old, &new.name));
                }
            } else {
                let mut missing = String::new();
                crate::types::text::write(&value, new.ty, &TextStyle::default(), &mut missing);
                new.missing = Some(missing);
            }
            table.columns.push(new);
            push_layout(&mut table);
            table
        }
    };
    table.revision = old.revision;
    constraints.extend(spec.constraints);
    context.put_table(table)
}

fn drop_column(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<Arc<Table>> {
    let Some(position) = table.find_column(name) else {
        let error = no_column(name, &table.name);
        if if_exists {
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{error}, skipping"));
            return Ok(Arc::clone(table));
        }
        return Err(error);
    };
    let number = table.columns[position].number;
    drop::remove_column_sequences(context, table, number, cascade)?;
    // Other columns of it may have lost their defaults along.
    let mut table = context.claim_known_table(table.oid)?;
    // Constraints and indexes with the column go, and what leans on them with CASCADE.
    loop {
        let index = table.indexes.iter().find(|index| index.columns.iter().any(|c| c.column == number));
        let Some(index) = index.cloned() else { break };
        let what = format!("column {name} of table {}", table.name);
        table = if index.primary {
            drop_primary(context, &table, &what, cascade)?
        } else {
            drop::remove_index(context, &table, index.oid, &what, cascade)?
        };
    }
    while let Some(key) = table.foreign_keys.iter().find(|key| key.columns.contains(&number)) {
        drop::drop_foreign_key(context, table.oid, key.oid)?;
        table = context.claim_known_table(table.oid)?;
    }
    let mut new = Table::clone(&table);
    let mut checks = Vec::new();
    for check in new.checks.drain(..) {
        if !context.mentions(&table, &check.expression)?.iter().any(|it| it.column == Some(number)) {
            checks.push(check);
        }
    }
    new.checks = checks;
    new.columns.remove(position);
    new.layouts.clear();
    push_layout(&mut new);
    let keep: Vec<usize> = (0..table.columns.len()).filter(|&other| other != position).collect();
    let new = build::rewrite(context, &table, new, &keep, |_| Ok(()))?;
    context.put_table(new)
}

fn alter_column(
    context: &mut DdlContext<'_>,
    old: &Arc<Table>,
    name: &str,
    operation: &AlterColumnOperation,
    altered: &mut Vec<ColumnNumber>,
) -> Result<Arc<Table>> {
    let position = position(old, name)?;
    let mut table = Table::clone(old);
    let column = &mut table.columns[position];
    let identity = || {
        let owned = sequence::owned(context, old.oid, Some(old.columns[position].number));
        owned.iter().any(|sequence| sequence.identity)
    };
    let is_identity = || {
        Error::new(
            SqlState::SYNTAX_ERROR,
            format!("column \"{name}\" of relation \"{}\" is an identity column", old.name),
        )
    };
    match operation {
        AlterColumnOperation::SetNotNull => {
            if !column.not_null {
                validate::not_null(context, old, &old.columns[position])?;
                column.not_null = true;
            }
        }
        AlterColumnOperation::DropNotNull => {
            if matches!(&old.key, TableKey::Columns(numbers) if numbers.contains(&column.number)) {
                let message = format!("column \"{name}\" is in a primary key");
                return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            if identity() {
                return Err(is_identity());
            }
            column.not_null = false;
        }
        AlterColumnOperation::SetDefault { value } => {
            if identity() {
                return Err(is_identity());
            }
            let default = context.define_default(column, &value.to_string())?;
            context.draw_from(&default)?;
            column.default = Some(default);
        }
        AlterColumnOperation::DropDefault => {
            if identity() {
                return Err(is_identity());
            }
            column.default = None;
        }
        AlterColumnOperation::SetDataType { data_type, using, had_set: _ } => {
            if using.is_some() {
                return Err(Error::unsupported("ALTER COLUMN TYPE with USING"));
            }
            altered.push(column.number);
            return change_type(context, old, position, data_type);
        }
        AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
            if identity() {
                let message =
                    format!("column \"{name}\" of relation \"{}\" is already an identity column", old.name);
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            column::add_identity(context, &mut table, position, *generated_as, sequence_options.as_deref())?;
        }
    }
    context.put_table(table)
}

fn change_type(
    context: &mut DdlContext<'_>,
    old: &Arc<Table>,
    position: usize,
    data_type: &ast::DataType,
) -> Result<Arc<Table>> {
    let (ty, modifier) = bind::bind_type(data_type)?;
    let Column { name, ty: from, modifier: old_modifier, number, .. } = old.columns[position].clone();
    if (ty, modifier) == (from, old_modifier) {
        return Ok(Arc::clone(old));
    }
    let owned = sequence::owned(context, old.oid, Some(number));
    if let Some(sequence) = owned.iter().find(|sequence| sequence.identity) {
        sequence::change_type(context, sequence.oid, ty)?;
    }
    if !ty.is_storable() {
        return Err(Error::unsupported(format!("a column of type {}", ty.name())));
    }
    if cast::context(from, ty).is_none_or(|context| context > cast::CastContext::Assignment) {
        let message = format!("column \"{name}\" cannot be cast automatically to type {}", ty.name());
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, message)
            .hint(format!("You might need to specify \"USING {name}::{}\".", ty.display(modifier))));
    }
    // All that are there: who adds one onto this table changes its revision, so it would not have been as known when it was claimed.
    let keys = context
        .catalog
        .tables
        .values()
        .flat_map(|table| table.foreign_keys.iter().map(move |key| (table.oid, key)));
    let involved = |(child, key): (Oid, &crate::catalog::ForeignKey)| {
        child == old.oid && key.columns.contains(&number)
            || key.parent == old.oid && key.parent_columns.contains(&number)
    };
    if { keys }.any(involved) {
        return Err(Error::unsupported("changing the type of a column of a foreign key"));
    }
    let mut table = Table::clone(old);
    let column = &mut table.columns[position];
    if let Some(default) = &column.default
        && !(from.is_string() && ty.is_string())
        && let Some(typed) = typed_literal(context, column, default)?
    {
        column.default = Some(typed);
    }
    (column.ty, column.modifier, column.missing) = (ty, modifier, None);
    if let Some(default) = &column.default {
        let column = column.clone();
        context.bind_default(&column, default).map_err(|error| {
            let message =
                format!("default for column \"{name}\" cannot be cast automatically to type {}", ty.name());
            Error::new(SqlState::DATATYPE_MISMATCH, message).detail(error.to_string())
        })?;
    }
    table.layouts.clear();
    push_layout(&mut table);
    let everything: Vec<usize> = (0..old.columns.len()).collect();
    let ddl = &*context;
    let table = build::rewrite(ddl, old, table, &everything, |row| {
        let value = std::mem::take(&mut row[position]);
        row[position] = cast::cast(value, from, ty, modifier, false, &ddl.session.style)?;
        Ok(())
    })?;
    let table = context.put_table(table)?;
    // Neither their order nor what is the same need be as before.
    if let Some(known) = context.catalog.statistics.get(&table.oid)
        && known.columns.contains_key(&number)
    {
        let mut statistics = TableStatistics::clone(known);
        statistics.columns.remove(&number);
        let catalog = Arc::make_mut(context.catalog);
        storage::put_statistics(&mut context.transaction.borrow_mut(), catalog, table.oid, statistics)?;
    }
    Ok(table)
}

/// A default that is a literal without a type, with that of its column, which is to get another one: what it meant is cast, not what it was written as.
fn typed_literal(context: &DdlContext<'_>, column: &Column, default: &str) -> Result<Option<String>> {
    if !bind::is_string_literal(default)? {
        return Ok(None);
    }
    let Scalar::Literal { value, .. } = context.bind_default(column, default)? else { return Ok(None) };
    if value.is_null() {
        return Ok(None);
    }
    let text = to_text(&value, column.ty, &context.session.style).replace('\'', "''");
    Ok(Some(format!("'{text}'::{}", column.ty.display(column.modifier))))
}

fn rename_column(context: &mut DdlContext<'_>, old: &Arc<Table>, from: &str, to: &str) -> Result<Arc<Table>> {
    let position = old
        .find_column(from)
        .ok_or_else(|| Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{from}\" does not exist")))?;
    column::check_name(to)?;
    if old.find_column(to).is_some() {
        return Err(column_exists(to, &old.name));
    }
    let mut table = Table::clone(old);
    table.columns[position].name = to.to_owned();
    let checks = old.checks.iter().map(|check| renamed_check(context, old, &table, check));
    table.checks = checks.collect::<Result<_>>()?;
    context.put_table(table)
}

/// A check as it reads once the table, or a column of it, is called otherwise.
fn renamed_check(context: &DdlContext<'_>, old: &Table, new: &Table, check: &Check) -> Result<Check> {
    let before = context.mentions(old, &check.expression)?;
    let expression = text::named(&check.expression, &before, new)?;
    let after = context.mentions(new, &expression)?;
    if !before.iter().map(|it| it.column).eq(after.iter().map(|it| it.column)) {
        let what = format!("a name by which constraint \"{}\" would mean something else", check.name);
        return Err(Error::unsupported(what));
    }
    Ok(Check { expression, ..check.clone() })
}

// ---- constraints ----------------------------------------------------------------------------------------------------

fn drop_constraint(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<Arc<Table>> {
    if let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) {
        drop::drop_foreign_key(context, table.oid, key.oid)?;
        return context.claim_known_table(table.oid);
    }
    if table.checks.iter().any(|check| check.name == name) {
        let mut table = Table::clone(table);
        table.checks.retain(|check| check.name != name);
        return context.put_table(table);
    }
    let index = table.indexes.iter().find(|index| index.constraint.is_some() && index.name == name);
    if let Some(index) = index {
        let what = format!("constraint {name} on table {}", table.name);
        return if index.primary {
            drop_primary(context, table, &what, cascade)
        } else {
            drop::remove_index(context, table, index.oid, &what, cascade)
        };
    }
    let error = no_constraint(name, table);
    if if_exists {
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{error}, skipping"));
        return Ok(Arc::clone(table));
    }
    Err(error)
}

/// Removes the primary key: rows get numbers for keys.
fn drop_primary(
    context: &mut DdlContext<'_>,
    table: &Arc<Table>,
    what: &str,
    cascade: bool,
) -> Result<Arc<Table>> {
    let Some(primary) = table.primary() else { return Ok(Arc::clone(table)) };
    let oid = primary.oid;
    let table = drop::settle_index(context, table, oid, what, cascade)?;
    let mut new = Table::clone(&table);
    new.indexes.retain(|index| index.oid != oid);
    new.key = TableKey::RowId;
    new.layouts.clear();
    push_layout(&mut new);
    let everything: Vec<usize> = (0..table.columns.len()).collect();
    let new = build::rewrite(context, &table, new, &everything, |_| Ok(()))?;
    context.put_table(new)
}

fn rename_constraint(
    context: &mut DdlContext<'_>,
    old: &Arc<Table>,
    from: &str,
    to: &str,
) -> Result<Arc<Table>> {
    let mut table = Table::clone(old);
    let checks = table.checks.iter_mut().map(|check| (&mut check.name, false));
    let foreign_keys = table.foreign_keys.iter_mut().map(|key| (&mut key.name, false));
    let keys = table.indexes.iter_mut().filter(|index| index.constraint.is_some());
    let mut names = checks.chain(foreign_keys).chain(keys.map(|index| (&mut index.name, true)));
    let Some((name, is_relation)) = names.find(|(name, _)| *name == from) else {
        let message = format!("constraint \"{from}\" for table \"{}\" does not exist", old.name);
        return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
    };
    // The index of a key has its name, too.
    if is_relation {
        check_free(context, to)?;
    }
    if names::has_constraint(old, to) {
        return Err(constraint::constraint_exists(old, to));
    }
    to.clone_into(name);
    context.put_table(table)
}

// ---- names and owners -----------------------------------------------------------------------------------------------

/// ALTER TABLE ... RENAME TO, which PostgreSQL takes for indexes and sequences as well.
fn rename_relation(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    if_exists: bool,
    new: &ast::RenameTableNameKind,
) -> Result<()> {
    let new = match new {
        ast::RenameTableNameKind::To(new) => single_name(new)?,
        ast::RenameTableNameKind::As(_) => return Err(Error::unsupported("RENAME AS")),
    };
    match context.find_if(name, if_exists)?.1 {
        Some(Relation::Sequence(_)) => rename_sequence(context, name, if_exists, &new),
        Some(Relation::Index { .. }) => rename_index(context, name, &new),
        Some(Relation::Table(_)) | None => {
            let Some(table) = context.claim_named_table(name, if_exists)? else { return Ok(()) };
            check_free(context, &new)?;
            let mut renamed = Table::clone(&table);
            renamed.name = new;
            let checks = table.checks.iter().map(|check| {
                match renamed_check(context, &table, &renamed, check) {
                    // An earlier release has left the table's old name in it, which may be the one that it gets back.
                    Err(error) if error.state() == SqlState::UNDEFINED_TABLE => Ok(check.clone()),
                    check => check,
                }
            });
            renamed.checks = checks.collect::<Result<_>>()?;
            context.put_table(renamed)?;
            Ok(())
        }
    }
}

fn single_name(name: &ast::ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(ident)] => identifier(ident),
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{name}\""))),
    }
}

fn check_free(context: &DdlContext<'_>, name: &str) -> Result<()> {
    if context.catalog.names.contains_key(name) {
        return Err(relation_exists(name));
    }
    Ok(())
}

/// ALTER SEQUENCE ... RENAME TO
pub(super) fn rename_sequence(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    if_exists: bool,
    new: &str,
) -> Result<()> {
    let Some(found) = sequence::claim_named(context, name, if_exists)? else { return Ok(()) };
    check_free(context, new)?;
    sequence::rename(context, &found, new)
}

fn rename_index(context: &mut DdlContext<'_>, name: &ast::ObjectName, new: &str) -> Result<()> {
    let (last, relation) = context.find(name)?;
    let (table, index) = match relation {
        Some(Relation::Index { table, index }) => (table, index),
        Some(_) => return Err(not_a(&last, "index")),
        None => return Err(no_relation(&last)),
    };
    let table = context.claim_known_table(table)?;
    context.check_owner(table.owner, "index", &last)?;
    check_free(context, new)?;
    let is_key = |other: &Index| other.oid == index && other.constraint.is_some();
    if table.indexes.iter().any(is_key) && names::has_constraint(&table, new) {
        return Err(constraint::constraint_exists(&table, new));
    }
    let mut table = Table::clone(&table);
    match table.indexes.iter_mut().find(|other| other.oid == index) {
        Some(index) => new.clone_into(&mut index.name),
        None => return Err(no_relation(&last)),
    }
    context.put_table(table)?;
    Ok(())
}

/// ALTER INDEX
pub(super) fn index(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    operation: &ast::AlterIndexOperation,
) -> Result<&'static str> {
    let ast::AlterIndexOperation::RenameIndex { index_name } = operation;
    let new = single_name(index_name)?;
    rename_index(context, name, &new)?;
    Ok("ALTER INDEX")
}

/// The role that OWNER TO names.
fn owner(context: &DdlContext<'_>, owner: &ast::Owner) -> Result<Oid> {
    let name = match owner {
        ast::Owner::Ident(ident) => identifier(ident)?,
        ast::Owner::CurrentRole | ast::Owner::CurrentUser | ast::Owner::SessionUser => {
            context.session.user.clone()
        }
    };
    owner_named(context, &name)
}

/// The role that shall own something.
pub(super) fn owner_named(context: &DdlContext<'_>, name: &str) -> Result<Oid> {
    let owner = context.find_role(name)?.oid;
    if !context.rights()?.has(owner) {
        let message = format!("must be member of role \"{name}\"");
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    context.hold_owner(owner)?;
    Ok(owner)
}

fn change_owner(context: &mut DdlContext<'_>, table: &Arc<Table>, new: &ast::Owner) -> Result<Arc<Table>> {
    let owner = owner(context, new)?;
    for owned in sequence::owned(context, table.oid, None) {
        if let Some(owned) = context.claim_sequence(owned.oid)? {
            context.put_sequence(Sequence { owner, ..Sequence::clone(&owned) })?;
        }
    }
    let mut table = Table::clone(table);
    table.owner = owner;
    context.put_table(table)
}
