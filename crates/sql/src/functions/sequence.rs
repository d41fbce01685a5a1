//! Functions of sequences.

use super::arguments::{boolean, int, text};
use super::{Call, Function};
use crate::catalog::{Sequence, storage};
use crate::exec::Context;
use crate::types::Value;
use crate::types::text::{quote_identifier, relation_name};
use crate::{Error, Result, SqlState};
use std::sync::Arc;

/// The sequence of this number.
pub(super) fn find<'c>(context: &Context<'c>, oid: i64) -> Result<&'c Sequence> {
    let number = u32::try_from(oid).unwrap_or(0);
    if let Some(sequence) = context.catalog.sequences.get(&number) {
        return Ok(sequence);
    }
    Err(match relation_name(Some(context.catalog.as_ref()), number) {
        Some(name) => Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")),
        None => gone(oid),
    })
}

fn gone(oid: i64) -> Error {
    Error::new(SqlState::INTERNAL_ERROR, format!("could not open relation with OID {oid}"))
}

/// The same, for a function that moves it.
fn find_to_move<'c>(context: &Context<'c>, oid: i64, function: &str) -> Result<&'c Sequence> {
    let sequence = find(context, oid)?;
    if context.read_only {
        let message = format!("cannot execute {function}() in a read-only transaction");
        return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
    }
    Ok(sequence)
}

/// The definition in force, whatever the statement sees, held until the transaction ends: the sequence goes by it from here on. Waits for
/// who changes it.
fn hold(context: &Context<'_>, sequence: &Sequence) -> Result<Arc<Sequence>> {
    let mut transaction = context.transaction.borrow_mut();
    let found = storage::hold_sequence(&mut transaction, context.catalog, sequence.oid)?;
    let found = found.ok_or_else(|| gone(i64::from(sequence.oid)))?;
    context.session.confirm_sequence(&found)?;
    Ok(found)
}

/// How often a definition that is held is confirmed, at most.
const CONFIRMED: u32 = 100;

/// Moves a sequence, by the definition in force. `step` gives nothing where that has to be looked at first, which is seldom.
fn moved<T>(
    context: &Context<'_>,
    sequence: &Sequence,
    step: impl Fn(&Sequence) -> Result<Option<T>>,
) -> Result<T> {
    if let Some(done) = step(sequence)? {
        return Ok(done);
    }
    let held = hold(context, sequence)?;
    // Of a sequence that only this transaction sees others may have let the counter go meanwhile, with what is known of its definition.
    for _ in 0..CONFIRMED {
        if let Some(done) = step(&held)? {
            return Ok(done);
        }
        context.session.confirm_sequence(&held)?;
    }
    Err(Error::internal("a sequence changes while its definition is held"))
}

fn nextval(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let sequence = find_to_move(call.context, int(a, 0)?, "nextval")?;
    moved(call.context, sequence, |sequence| call.context.session.nextval(sequence)).map(Value::Int)
}

fn currval(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    call.context.session.currval(find(call.context, int(a, 0)?)?).map(Value::Int)
}

fn lastval(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    call.context.session.lastval(call.context.catalog).map(Value::Int)
}

fn setval(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let sequence = find_to_move(call.context, int(a, 0)?, "setval")?;
    let value = int(a, 1)?;
    let called = if a.len() > 2 { boolean(a, 2)? } else { true };
    moved(call.context, sequence, |sequence| {
        let is_done = call.context.session.setval(sequence, value, called)?;
        Ok(is_done.then_some(()))
    })?;
    Ok(Value::Int(value))
}

/// The sequence that a serial column takes its values from.
fn serial_sequence(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (table, column) = (text(a, 0)?, text(a, 1)?);
    let table = super::describe::find_table(call.context, table)?;
    let Some(index) = table.find_column(column) else {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let owner = Some((table.oid, table.columns[index].number));
    let sequence = call.context.catalog.sequences.values().find(|sequence| sequence.owned_by == owner);
    Ok(sequence
        .map_or(Value::Null, |sequence| Value::text(format!("public.{}", quote_identifier(&sequence.name)))))
}

/// The value that a sequence has given last, to whatever session; NULL where it has given none.
fn last_value(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let sequence = find(call.context, int(a, 0)?)?;
    let position = call.context.session.sequence_position(call.context.view, sequence)?;
    Ok(if position.called { Value::Int(position.value) } else { Value::Null })
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1574 "nextval" (Regclass) Int8.volatile() = nextval;
    1575 "currval" (Regclass) Int8.volatile() = currval;
    2559 "lastval" () Int8.volatile() = lastval;
    1576 "setval" (Regclass Int8) Int8.volatile() = setval;
    1765 "setval" (Regclass Int8 Bool) Int8.volatile() = setval;
    1665 "pg_get_serial_sequence" (Text Text) Text.stable() = serial_sequence;
    4032 "pg_sequence_last_value" (Regclass) Int8.volatile() = last_value;
};
