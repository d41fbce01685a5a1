//! What clients ask a server about itself, its sessions and their settings.

use super::arguments::{boolean, float, int, present, text};
use super::{Call, Function};
use crate::exec::Context;
use crate::session::{Database, Notice, Reason, SessionInfo};
use crate::types::{Array, Type, Value};
use crate::{Error, Result, SqlState};
use gannet_base::clock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Microseconds between 1970-01-01 and 2000-01-01.
const EPOCH_SHIFT_US: i64 = 946_684_800_000_000;

/// What `version()` gives: drivers read the number of PostgreSQL's release from it.
pub const VERSION: &str = concat!("PostgreSQL 15.0 compatible (Gannet ", env!("CARGO_PKG_VERSION"), ")");

/// The time now, in microseconds since 2000-01-01 UTC.
pub(super) fn now() -> i64 {
    clock::unix_micros() as i64 - EPOCH_SHIFT_US
}

fn name(text: impl AsRef<str>) -> Result<Value> {
    Ok(Value::text(text))
}

fn user(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    name(&call.context.session.user)
}

fn database(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    name(&call.context.session.database)
}

/// The schemas that names are looked for in: those of the setting that exist.
fn schemas(context: &Context<'_>) -> Vec<&'static str> {
    let path = context.session.setting("search_path").unwrap_or_else(|_| "public".to_owned());
    let mut schemas = Vec::new();
    for part in path.split(',') {
        let known = match part.trim().trim_matches('"') {
            "public" => "public",
            "pg_catalog" => "pg_catalog",
            "information_schema" => "information_schema",
            _ => continue,
        };
        if !schemas.contains(&known) {
            schemas.push(known);
        }
    }
    schemas
}

fn current_schema(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(schemas(call.context).first().map_or(Value::Null, Value::text))
}

fn current_schemas(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut schemas = schemas(call.context);
    if boolean(a, 0)? && !schemas.contains(&"pg_catalog") {
        schemas.insert(0, "pg_catalog");
    }
    let values = schemas.into_iter().map(Value::text).collect();
    Ok(Value::Array(Arc::new(Array { element: Type::Name, values, lower: 1 })))
}

fn current_setting(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    match call.context.session.setting(text(a, 0)?) {
        Err(error) if a.len() > 1 && boolean(a, 1)? && error.state() == SqlState::UNDEFINED_OBJECT => {
            Ok(Value::Null)
        }
        result => result.map(Value::text),
    }
}

fn set_config(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "SET requires parameter name"));
    }
    let value = present(a, 1).then(|| text(a, 1)).transpose()?;
    let local = present(a, 2) && boolean(a, 2)?;
    call.context.session.set_setting(text(a, 0)?, value, local).map(Value::text)
}

fn pid(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Int(i64::from(call.context.session.pid)))
}

fn type_of(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(call.types.first().map_or(Value::Null, |ty| Value::Int(i64::from(ty.oid()))))
}

/// Encodings by PostgreSQL's numbers.
const ENCODINGS: &[&str] = &["SQL_ASCII", "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "UTF8"];

fn encoding_name(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    name(usize::try_from(int(a, 0)?).ok().and_then(|number| ENCODINGS.get(number)).unwrap_or(&""))
}

fn encoding_number(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = plain(text(a, 0)?);
    let found = ENCODINGS.iter().position(|name| plain(name) == wanted);
    Ok(Value::Int(found.map_or(-1, |number| number as i64)))
}

fn transaction_number(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    let id = call.context.transaction.borrow().id();
    Ok(id.map_or(Value::Null, |id| Value::Int(id.0 as i64)))
}

fn transaction_current(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    match transaction_number(call, a)? {
        Value::Null => Err(Error::unsupported("txid_current() in a transaction that has changed nothing")),
        number => Ok(number),
    }
}

/// When the process began, as near as its clock tells.
fn start_time(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    static START: OnceLock<i64> = OnceLock::new();
    // The monotonic clock begins with the process, at one second.
    let start = START.get_or_init(|| now() - (clock::now().as_nanos() / 1000) as i64 + 1_000_000);
    Ok(Value::Int(*start))
}

/// How long a sleep goes on before it looks whether the statement was cancelled.
const NAP: Duration = Duration::from_millis(10);
/// A year: longer sleeps are as long.
const LONGEST_S: f64 = 366.0 * 86_400.0;

fn sleep(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let seconds = float(a, 0)?;
    let seconds = if seconds > 0.0 { seconds.min(LONGEST_S) } else { 0.0 };
    let (start, length) = (clock::now(), Duration::from_secs_f64(seconds));
    let rest = || loop {
        call.context.check()?;
        let left = length.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(Value::text(""));
        }
        clock::sleep(left.min(NAP));
    };
    // Others need not wait long for who sleeps.
    let turn = &call.context.session.turn;
    turn.set_idle(true);
    let slept = rest();
    turn.set_idle(false);
    slept
}

/// Ends what another session does: its statement, or, with `Shutdown`, the session.
fn end(call: &Call<'_, '_>, a: &[Value], reason: Reason) -> Result<Value> {
    let pid = int(a, 0)?;
    let own = call.context.session;
    let found = i32::try_from(pid).ok().and_then(|pid| own.database().find_session(pid));
    let Some((database, session)) = found else {
        let message = format!("PID {pid} is not a PostgreSQL backend process");
        own.notice(Notice { severity: "WARNING", error: Error::new(SqlState::WARNING, message) });
        return Ok(Value::Bool(false));
    };
    check_may_end(call, &database, &session, reason)?;
    session.interrupt.interrupt(reason);
    Ok(Value::Bool(true))
}

/// Ends a job of this database; false when it is not running any more.
fn cancel_job(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let own = call.context.session;
    if !own.is_superuser(Some(call.context.catalog)) {
        let message = "must be a superuser to cancel a job";
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let found = u64::try_from(int(a, 0)?).is_ok_and(|id| own.database().store().jobs().cancel(id));
    Ok(Value::Bool(found))
}

/// Names this moment in the log.
fn create_restore_point(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let own = call.context.session;
    if !own.is_superuser(Some(call.context.catalog)) {
        let message = "permission denied for function pg_create_restore_point";
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let lsn = own.database().store().create_restore_point(text(a, 0)?)?;
    Ok(Value::Int(lsn.0.cast_signed()))
}

/// A superuser may end any session; others those of their own role, which is one of their own database.
fn check_may_end(
    call: &Call<'_, '_>,
    database: &Database,
    session: &SessionInfo,
    reason: Reason,
) -> Result<()> {
    let own = call.context.session;
    if own.is_superuser(Some(call.context.catalog)) {
        return Ok(());
    }
    let (verb, what, ended) = match reason {
        Reason::Shutdown | Reason::SnapshotLimit => ("terminate", "process", "terminated"),
        Reason::User | Reason::Timeout => ("cancel", "query", "canceled"),
    };
    let message = if database.catalog().roles.get(&session.role).is_some_and(|role| role.superuser) {
        format!("must be a superuser to {verb} superuser {what}")
    } else if session.role == own.role && database.name() == own.database {
        return Ok(());
    } else {
        format!("must be a member of the role whose {what} is being {ended} or member of pg_signal_backend")
    };
    Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
}

fn yes(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Bool(true))
}

fn no(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Bool(false))
}

fn nothing(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Null)
}

fn zero(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Int(0))
}

fn nulls<const WANTED: bool>(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(a.iter().filter(|value| value.is_null() == WANTED).count() as i64))
}

/// Bytes of a value as PostgreSQL would keep it, uncompressed.
fn column_size(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let ty = call.types.first().copied().unwrap_or(Type::Text);
    let varying = |bytes: usize| bytes + if bytes < 127 { 1 } else { 4 };
    let bytes = match a.first() {
        None | Some(Value::Null) => return Ok(Value::Null),
        Some(_) if ty.len() > 0 => ty.len() as usize,
        Some(Value::Text(text) | Value::Padded(text)) => varying(text.len()),
        Some(Value::Bytes(bytes)) => varying(bytes.len()),
        Some(Value::Numeric(number)) => varying(2 + 2 * number.to_base_10000().digits.len()),
        Some(Value::Array(array)) => {
            let element = |value: &Value| match value {
                Value::Text(text) => 4 + text.len().next_multiple_of(4),
                _ => array.element.len().max(4) as usize,
            };
            24 + array.values.iter().map(element).sum::<usize>()
        }
        Some(_) => size_of::<Value>(),
    };
    Ok(Value::Int(bytes as i64))
}

fn collation(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    let ty = call.types.first().copied().unwrap_or(Type::Text);
    if !ty.is_string() {
        let message = format!("collations are not supported by type {}", ty.name());
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
    }
    Ok(Value::text("\"default\""))
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    89 "version" () Text.stable() = |_, _| name(VERSION);
    745 "current_user" () Name.stable() = user;
    746 "session_user" () Name.stable() = user;
    9001 "user" () Name.stable() = user;
    9002 "current_role" () Name.stable() = user;
    861 "current_database" () Name.stable() = database;
    9003 "current_catalog" () Name.stable() = database;
    1402 "current_schema" () Name.stable() = current_schema;
    1403 "current_schemas" (Bool) NameArray.stable() = current_schemas;
    2077 "current_setting" (Text) Text.stable() = current_setting;
    3294 "current_setting" (Text Bool) Text.stable() = current_setting;
    2078 "set_config" (Text Text Bool) Text.lax().volatile() = set_config;
    2026 "pg_backend_pid" () Int4.stable() = pid;
    1619 "pg_typeof" (any) Regtype.lax().stable() = type_of;
    1597 "pg_encoding_to_char" (Int4) Name.stable() = encoding_name;
    1264 "pg_char_to_encoding" (Name) Int4.stable() = encoding_number;
    1039 "getdatabaseencoding" () Name.stable() = |_, _| name("UTF8");
    810 "pg_client_encoding" () Name.stable() = |call, _| name(&call.context.session.setting("client_encoding")?);
    2943 "txid_current" () Int8.stable() = transaction_current;
    3348 "txid_current_if_assigned" () Int8.stable() = transaction_number;
    2171 "pg_cancel_backend" (Int4) Bool.volatile() = |call, a| end(call, a, Reason::User);
    3098 "pg_create_restore_point" (Text) Int8.volatile() = create_restore_point;
    15020 "gannet_cancel_job" (Int8) Bool.volatile() = cancel_job;
    2096 "pg_terminate_backend" (Int4 Int8) Bool.optional(1).volatile() = |call, a| end(call, a, Reason::Shutdown);
    2560 "pg_postmaster_start_time" () TimestampTz.stable() = start_time;
    2034 "pg_conf_load_time" () TimestampTz.stable() = start_time;
    2626 "pg_sleep" (Float8) Void.volatile() = sleep;
    // There are no such locks to be held.
    2892 "pg_advisory_unlock_all" () Void.volatile() = |_, _| Ok(Value::text(""));
    3810 "pg_is_in_recovery" () Bool.volatile() = no;
    3073 "pg_is_wal_replay_paused" () Bool.volatile() = |_, _| {
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is not in progress")
            .hint("Recovery control functions can only be executed during recovery."))
    };
    2196 "inet_client_addr" () Text.lax().stable() = nothing;
    2197 "inet_client_port" () Int4.lax().stable() = nothing;
    2198 "inet_server_addr" () Text.lax().stable() = nothing;
    2199 "inet_server_port" () Int4.lax().stable() = nothing;
    2854 "pg_my_temp_schema" () Oid.stable() = zero;
    2855 "pg_is_other_temp_schema" (Oid) Bool.stable() = no;
    3298 "row_security_active" (Oid) Bool.stable() = no;
    3299 "row_security_active" (Text) Bool.stable() = no;
    1269 "pg_column_size" (any) Int4.stable() = column_size;
    3162 "pg_collation_for" (any) Text.lax().stable() = collation;
    438 "num_nulls" (any) Int4.variadic().lax() = nulls::<true>;
    440 "num_nonnulls" (any) Int4.variadic().lax() = nulls::<false>;
    3022 "has_column_privilege" (any any any any) Bool.optional(1).stable() = yes;
    3028 "has_any_column_privilege" (any any any) Bool.optional(1).stable() = yes;
    2254 "has_database_privilege" (any any any) Bool.optional(1).stable() = yes;
    3004 "has_foreign_data_wrapper_privilege" (any any any) Bool.optional(1).stable() = yes;
    2260 "has_function_privilege" (any any any) Bool.optional(1).stable() = yes;
    2266 "has_language_privilege" (any any any) Bool.optional(1).stable() = yes;
    2272 "has_schema_privilege" (any any any) Bool.optional(1).stable() = yes;
    2185 "has_sequence_privilege" (any any any) Bool.optional(1).stable() = yes;
    3010 "has_server_privilege" (any any any) Bool.optional(1).stable() = yes;
    1926 "has_table_privilege" (any any any) Bool.optional(1).stable() = yes;
    2394 "has_tablespace_privilege" (any any any) Bool.optional(1).stable() = yes;
    3142 "has_type_privilege" (any any any) Bool.optional(1).stable() = yes;
    2709 "pg_has_role" (any any any) Bool.optional(1).stable() = yes;
};
