//! CREATE SEQUENCE, ALTER SEQUENCE. Where a sequence stands is kept by [`Numbers`](crate::catalog::Numbers).

use super::{DdlContext, no_relation, not_a, object_name, text};
use crate::bind;
use crate::bind::utility::{AlterSequence, CopyRelation, SequenceOptions as Options, identity_options};
use crate::catalog::{ColumnNumber, Oid, Relation, Sequence, Table};
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// The options of an identity column, which come from the syntax tree.
pub(super) fn options_of_ast(options: &[ast::SequenceOptions]) -> Result<Options> {
    match bind::identity_text(options) {
        Some(text) => identity_options(&text),
        None if options.is_empty() => Ok(Options::default()),
        None => Err(Error::internal("options of an identity column that nobody has read")),
    }
}

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn range(ty: Type) -> Result<(i64, i64)> {
    match ty {
        Type::Int2 => Ok((i64::from(i16::MIN), i64::from(i16::MAX))),
        Type::Int4 => Ok((i64::from(i32::MIN), i64::from(i32::MAX))),
        Type::Int8 => Ok((i64::MIN, i64::MAX)),
        _ => Err(invalid("sequence type must be smallint, integer, or bigint".to_owned())),
    }
}

/// The default limits of a type and direction.
fn defaults(ty: Type, increment: i64) -> Result<(i64, i64)> {
    let (least, most) = range(ty)?;
    Ok(if increment > 0 { (1, most) } else { (least, -1) })
}

/// The parameters of a sequence, checked as PostgreSQL does.
fn apply(context: &DdlContext<'_>, sequence: &mut Sequence, options: &Options, new: bool) -> Result<()> {
    let old_type = sequence.ty;
    if let Some(ty) = options.ty {
        range(ty)?;
        sequence.ty = ty;
    }
    if let Some(increment) = options.increment {
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero".to_owned()));
        }
        sequence.increment = increment;
    }
    if let Some(cycle) = options.cycle {
        sequence.cycle = cycle;
    }
    let (least, most) = range(sequence.ty)?;
    let (default_minimum, default_maximum) = defaults(sequence.ty, sequence.increment)?;
    // A limit that was the old type's limit becomes that of the new one.
    let widened = options.ty.is_some() && !new;
    let (old_least, old_most) = range(old_type)?;
    let was_most = widened && sequence.maximum == old_most;
    let was_least = widened && sequence.minimum == old_least;
    sequence.maximum = match options.maximum {
        Some(Some(value)) => value,
        _ if was_most => most,
        None if !new => sequence.maximum,
        _ => default_maximum,
    };
    sequence.minimum = match options.minimum {
        Some(Some(value)) => value,
        _ if was_least => least,
        None if !new => sequence.minimum,
        _ => default_minimum,
    };
    for (what, value) in [("MAXVALUE", sequence.maximum), ("MINVALUE", sequence.minimum)] {
        if !(least..=most).contains(&value) {
            return Err(invalid(format!(
                "{what} ({value}) is out of range for sequence data type {}",
                sequence.ty.name()
            )));
        }
    }
    if sequence.minimum >= sequence.maximum {
        return Err(invalid(format!(
            "MINVALUE ({}) must be less than MAXVALUE ({})",
            sequence.minimum, sequence.maximum
        )));
    }
    if let Some(start) = options.start {
        sequence.start = start;
    } else if new {
        sequence.start = if sequence.increment > 0 { sequence.minimum } else { sequence.maximum };
    }
    check_within("START", sequence.start, sequence)?;
    if let Some(cache) = options.cache {
        if cache <= 0 {
            return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
        }
        if cache > 1 {
            let message = "CACHE has no effect: values are reserved for all sessions together";
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
        }
    }
    Ok(())
}

fn check_within(what: &str, value: i64, sequence: &Sequence) -> Result<()> {
    if value < sequence.minimum {
        return Err(invalid(format!(
            "{what} value ({value}) cannot be less than MINVALUE ({})",
            sequence.minimum
        )));
    }
    if value > sequence.maximum {
        return Err(invalid(format!(
            "{what} value ({value}) cannot be greater than MAXVALUE ({})",
            sequence.maximum
        )));
    }
    Ok(())
}

/// A new sequence, not yet stored.
pub(super) fn define(
    context: &DdlContext<'_>,
    name: String,
    options: &Options,
    owner: Oid,
) -> Result<Sequence> {
    let mut sequence = Sequence {
        oid: context.new_oid()?,
        name,
        ty: options.ty.unwrap_or(Type::Int8),
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::MAX,
        cycle: false,
        owned_by: None,
        identity: false,
        owner,
        counter: context.new_oid()?,
        begin: (1, false),
        revision: 0,
    };
    apply(context, &mut sequence, options, true)?;
    if options.restart.is_some() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "invalid sequence option RESTART"));
    }
    sequence.begin = (sequence.start, false);
    Ok(sequence)
}

/// The name of a sequence to come, which nothing else may have.
pub(super) fn unused_name(context: &DdlContext<'_>, name: &CopyRelation) -> Result<String> {
    let name = context.new_name(&object_name(name))?;
    if context.catalog.names.contains_key(&name) {
        return Err(already_there(&name));
    }
    Ok(name)
}

fn already_there(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// CREATE SEQUENCE
pub(super) fn create(
    context: &mut DdlContext<'_>,
    name: &CopyRelation,
    if_not_exists: bool,
    options: &Options,
) -> Result<&'static str> {
    const DONE: &str = "CREATE SEQUENCE";
    let name = context.new_name(&object_name(name))?;
    if context.catalog.names.contains_key(&name) {
        if if_not_exists {
            let message = format!("relation \"{name}\" already exists, skipping");
            context.notice("NOTICE", SqlState::DUPLICATE_TABLE, message);
            return Ok(DONE);
        }
        return Err(already_there(&name));
    }
    let owner = context.rights()?.role;
    context.hold_owner(owner)?;
    let mut sequence = define(context, name, options, owner)?;
    if let Some(Some(owner)) = &options.owned_by {
        sequence.owned_by = Some(owning_column(context, owner, &sequence)?);
    }
    context.put_sequence(sequence)?;
    Ok(DONE)
}

/// The column that OWNED BY names.
fn owning_column(
    context: &mut DdlContext<'_>,
    (table, column): &(CopyRelation, String),
    sequence: &Sequence,
) -> Result<(Oid, ColumnNumber)> {
    let table = context.claim_named_table(&object_name(table), false)?;
    let table = table.ok_or_else(|| Error::internal("a table that may be missing"))?;
    if table.owner != sequence.owner {
        let message = "sequence must have same owner as table it is linked to";
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let position = table.find_column(column).ok_or_else(|| super::column::no_column(column, &table.name))?;
    let owner = (table.oid, table.columns[position].number);
    // Who waits for the table, to drop it, begins anew, and takes the sequence along.
    context.put_table(Table::clone(&table))?;
    Ok(owner)
}

/// The sequence of a name, locked for a change.
pub(super) fn claim_named(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    if_exists: bool,
) -> Result<Option<Arc<Sequence>>> {
    let (last, relation) = context.find_if(name, if_exists)?;
    let oid = match relation {
        Some(Relation::Sequence(oid)) => oid,
        Some(_) => return Err(not_a(&last, "sequence")),
        None if if_exists => {
            let message = format!("relation \"{last}\" does not exist, skipping");
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(None);
        }
        None => return Err(no_relation(&last)),
    };
    let sequence = context.claim_sequence(oid)?.ok_or_else(|| no_relation(&last))?;
    context.check_owner(sequence.owner, "sequence", &sequence.name)?;
    Ok(Some(sequence))
}

/// ALTER SEQUENCE
pub(super) fn alter(
    context: &mut DdlContext<'_>,
    name: &CopyRelation,
    if_exists: bool,
    action: &AlterSequence,
) -> Result<&'static str> {
    let name = object_name(name);
    match action {
        AlterSequence::Options(options) => alter_options(context, &name, if_exists, options)?,
        AlterSequence::Rename(new) => super::alter::rename_sequence(context, &name, if_exists, new)?,
        AlterSequence::Owner(owner) => {
            let owner = super::alter::owner_named(context, owner)?;
            change_owner(context, &name, if_exists, owner)?;
        }
    }
    Ok("ALTER SEQUENCE")
}

/// OWNER TO
pub(super) fn change_owner(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    if_exists: bool,
    owner: Oid,
) -> Result<()> {
    let Some(sequence) = claim_named(context, name, if_exists)? else { return Ok(()) };
    if let Some((table, _)) = sequence.owned_by.filter(|_| sequence.owner != owner) {
        let table = context.catalog.tables.get(&table).map_or("", |table| &table.name);
        let message = format!("cannot change owner of sequence \"{}\"", sequence.name);
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .detail(format!("Sequence \"{}\" is linked to table \"{table}\".", sequence.name)));
    }
    context.put_sequence(Sequence { owner, ..Sequence::clone(&sequence) }).map(drop)
}

fn alter_options(
    context: &mut DdlContext<'_>,
    name: &ast::ObjectName,
    if_exists: bool,
    options: &Options,
) -> Result<()> {
    let Some(old) = claim_named(context, name, if_exists)? else { return Ok(()) };
    change(context, &old, options)
}

/// The type of an identity column's sequence becomes that of the column.
pub(super) fn change_type(context: &mut DdlContext<'_>, sequence: Oid, ty: Type) -> Result<()> {
    if !ty.is_integer() {
        return Err(invalid("identity column type must be smallint, integer, or bigint".to_owned()));
    }
    let Some(old) = context.claim_sequence(sequence)? else { return Ok(()) };
    change(context, &old, &Options { ty: Some(ty), ..Options::default() })
}

/// Changes a sequence that was claimed.
fn change(context: &mut DdlContext<'_>, old: &Sequence, options: &Options) -> Result<()> {
    let mut sequence = Sequence::clone(old);
    apply(context, &mut sequence, options, false)?;
    if let Some(owner) = &options.owned_by {
        if sequence.identity {
            let message = "cannot change ownership of identity sequence";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .detail(format!("Sequence \"{}\" is linked to a table.", sequence.name)));
        }
        sequence.owned_by = match owner {
            Some(owner) => Some(owning_column(context, owner, &sequence)?),
            None => None,
        };
    }
    let position = context.numbers.claim(old)?;
    let begin = match options.restart {
        Some(value) => (value.unwrap_or(sequence.start), false),
        None => (position.value, position.called),
    };
    check_within("RESTART", begin.0, &sequence)?;
    // Also where it goes on: what the old counter has stored ahead may lie beyond the new limits, and a rollback goes back to it.
    sequence.counter = context.new_oid()?;
    sequence.begin = begin;
    context.put_sequence(sequence)?;
    Ok(())
}

/// Gives a sequence that was claimed a new counter, which begins at its start.
pub(super) fn restart(context: &DdlContext<'_>, sequence: &mut Sequence) -> Result<()> {
    context.numbers.claim(sequence)?;
    sequence.counter = context.new_oid()?;
    sequence.begin = (sequence.start, false);
    Ok(())
}

/// Gives a sequence another name, also where defaults and checks mention it.
pub(super) fn rename(context: &mut DdlContext<'_>, sequence: &Sequence, new: &str) -> Result<()> {
    for (table, user) in users(context, &sequence.name)? {
        let Some(table) = context.claim_table(table)? else { continue };
        let mut table = Table::clone(&table);
        let text = match user {
            User::Default(number) => {
                let column = table.columns.iter_mut().find(|column| column.number == number);
                column.and_then(|column| column.default.as_mut())
            }
            User::Check(oid) => {
                table.checks.iter_mut().find(|check| check.oid == oid).map(|check| &mut check.expression)
            }
        };
        if let Some(text) = text {
            *text = text::rename_sequence(text, &sequence.name, new)?;
        }
        context.put_table(table)?;
    }
    let sequence = Sequence { name: new.to_owned(), ..sequence.clone() };
    context.put_sequence(sequence)?;
    Ok(())
}

/// What of a table draws from a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) enum User {
    /// The default of this column.
    Default(ColumnNumber),
    /// The CHECK constraint of this number.
    Check(Oid),
}

/// What draws from a sequence, with its table.
pub(super) fn users(context: &DdlContext<'_>, sequence: &str) -> Result<Vec<(Oid, User)>> {
    let draws = |text: &str| -> Result<bool> {
        Ok(text::sequences_mentioned(text)?.iter().any(|name| name == sequence))
    };
    let mut users = Vec::new();
    for table in context.catalog.tables.values() {
        for column in &table.columns {
            if let Some(default) = &column.default
                && draws(default)?
            {
                users.push((table.oid, User::Default(column.number)));
            }
        }
        for check in &table.checks {
            if draws(&check.expression)? {
                users.push((table.oid, User::Check(check.oid)));
            }
        }
    }
    Ok(users)
}

/// Sequences that belong to a table, or to one of its columns.
pub(super) fn owned(
    context: &DdlContext<'_>,
    table: Oid,
    column: Option<ColumnNumber>,
) -> Vec<Arc<Sequence>> {
    let belongs = |sequence: &&Arc<Sequence>| {
        sequence.owned_by.is_some_and(|(owner, number)| owner == table && column.is_none_or(|c| c == number))
    };
    context.catalog.sequences.values().filter(belongs).cloned().collect()
}
