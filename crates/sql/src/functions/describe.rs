//! Definitions as SQL text, and names of objects by number: what `pg_get_indexdef` and its kin give to clients that describe tables.

use super::arguments::{boolean, int, present, text};
use super::representation::{self, Routine};
use super::{Argument, Call, Function, Resolved, Returns};
use crate::catalog::{Catalog, INFORMATION_SCHEMA, Oid, PG_CATALOG, PUBLIC, Table};
use crate::exec::Context;
use crate::system::{self, definition};
use crate::types::text::{self as input, relation_name, split_name};
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Error, Result, SqlState};

/// An object's number.
fn oid(a: &[Value], index: usize) -> Result<Oid> {
    // Numbers that are none belong to nothing.
    Ok(u32::try_from(int(a, index)?).unwrap_or(0))
}

/// The table that a name written in a string means.
pub(super) fn find_table<'c>(context: &Context<'c>, name: &str) -> Result<&'c Table> {
    let parts = split_name(name)?;
    let catalog: &'c Catalog = context.catalog;
    let found = match parts.as_slice() {
        [table] => catalog.table(table),
        [schema, table] if schema == "public" => catalog.table(table),
        _ => None,
    };
    found.map(AsRef::as_ref).ok_or_else(|| {
        Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", parts.join(".")))
    })
}

fn indexdef(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let Some((table, index)) = definition::find_index(call.context.catalog, oid(a, 0)?) else {
        return Ok(Value::Null);
    };
    let number = if a.len() > 1 { int(a, 1)? } else { 0 };
    if number == 0 {
        let pretty = a.len() > 2 && boolean(a, 2)?;
        return Ok(Value::text(definition::index(table, index, pretty)));
    }
    let column =
        usize::try_from(number - 1).ok().and_then(|place| definition::index_column(table, index, place));
    Ok(Value::text(column.unwrap_or_default()))
}

fn constraintdef(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let pretty = a.len() > 1 && boolean(a, 1)?;
    let definition = definition::constraint(call.context.catalog, oid(a, 0)?, pretty);
    Ok(definition.map_or(Value::Null, Value::text))
}

/// Expressions are kept as text.
fn expression(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::text(text(a, 0)?))
}

fn format_type(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let oid = oid(a, 0)?;
    let modifier = if present(a, 1) { Some(int(a, 1)? as i32) } else { None };
    let name = match (Type::from_oid(oid), modifier) {
        (None, _) if oid == 0 => "-".to_owned(),
        (None, _) => "???".to_owned(),
        // Without a length it is not what `character` means.
        (Some(Type::Bpchar), Some(..0)) => "bpchar".to_owned(),
        (Some(Type::BpcharArray), Some(..0)) => "bpchar[]".to_owned(),
        (Some(ty), modifier) => match (ty.element(), modifier) {
            (Some(element), Some(modifier @ 0..)) if ty.array().is_none() => {
                format!("{}[]", element.display(modifier))
            }
            (_, modifier) => ty.display(modifier.unwrap_or(NO_MODIFIER)),
        },
    };
    Ok(Value::text(name))
}

fn user_by_id(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let oid = oid(a, 0)?;
    Ok(match call.context.catalog.roles.get(&oid) {
        Some(role) => Value::text(&role.name),
        None => Value::text(format!("unknown (OID={oid})")),
    })
}

fn is_relation_visible(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let oid = oid(a, 0)?;
    if let Some(table) = system::by_oid(oid) {
        return Ok(Value::Bool(table.schema == "pg_catalog"));
    }
    let there = relation_name(Some(call.context.catalog), oid).is_some();
    Ok(if there { Value::Bool(true) } else { Value::Null })
}

fn is_type_visible(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Type::from_oid(oid(a, 0)?).map_or(Value::Null, |_| Value::Bool(true)))
}

/// Everything of a kind that has one schema only.
fn is_visible(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Bool(true))
}

fn find_function(a: &[Value]) -> Result<Option<Resolved>> {
    let oid = oid(a, 0)?;
    Ok(super::all().find(|function| function.oid() == oid))
}

fn find_routine(a: &[Value]) -> Result<Option<Routine>> {
    let oid = oid(a, 0)?;
    Ok(representation::routines().find(|routine| routine.oid == oid))
}

fn argument_name(argument: Argument) -> &'static str {
    match argument {
        Argument::Is(ty) => ty.name(),
        Argument::Any => "\"any\"",
        Argument::AnyArray => "anyarray",
        Argument::AnyElement => "anyelement",
        Argument::AnyNonArray => "anynonarray",
    }
}

fn function_arguments(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if let Some(routine) = find_routine(a)? {
        let names: Vec<&str> = routine.arguments.iter().map(|ty| representation::type_name(*ty)).collect();
        return Ok(Value::text(names.join(", ")));
    }
    let Some(function) = find_function(a)? else { return Ok(Value::Null) };
    let mut names: Vec<String> =
        function.arguments().iter().map(|ty| argument_name(*ty).to_owned()).collect();
    if function.variadic()
        && let Some(last) = names.last_mut()
    {
        last.insert_str(0, "VARIADIC ");
    }
    Ok(Value::text(names.join(", ")))
}

fn function_result(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if let Some(routine) = find_routine(a)? {
        return Ok(Value::text(representation::type_name(routine.returns)));
    }
    let Some(function) = find_function(a)? else { return Ok(Value::Null) };
    let name = match function.returns() {
        Returns::Is(ty) => ty.name(),
        Returns::Element => "anyelement",
        Returns::Array => "anyarray",
    };
    let rows = matches!(function, Resolved::Table(_));
    Ok(Value::text(if rows { format!("SETOF {name}") } else { name.to_owned() }))
}

fn nothing(_: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    Ok(Value::Null)
}

/// Reads a name; NULL where nothing bears it.
fn lookup(call: &Call<'_, '_>, a: &[Value], ty: Type) -> Result<Value> {
    let name = text(a, 0)?;
    // A number is no name here, and nothing is no object.
    if name == "-" || name.bytes().all(|c| c.is_ascii_digit()) {
        return Ok(Value::Null);
    }
    match input::read(name, ty, NO_MODIFIER, &call.context.session.style) {
        Err(error)
            if matches!(
                error.state(),
                SqlState::UNDEFINED_TABLE
                    | SqlState::UNDEFINED_OBJECT
                    | SqlState::UNDEFINED_FUNCTION
                    | SqlState::AMBIGUOUS_FUNCTION
                    | SqlState::INVALID_SCHEMA_NAME
            ) =>
        {
            Ok(Value::Null)
        }
        result => result,
    }
}

fn to_regnamespace(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let parts = split_name(text(a, 0)?)?;
    Ok(match parts.first().map(String::as_str) {
        _ if parts.len() > 1 => return Err(Error::new(SqlState::SYNTAX_ERROR, "invalid name syntax")),
        Some("pg_catalog") => Value::Int(i64::from(PG_CATALOG)),
        Some("public") => Value::Int(i64::from(PUBLIC)),
        Some("information_schema") => Value::Int(i64::from(INFORMATION_SCHEMA)),
        _ => Value::Null,
    })
}

/// Whether there is such a relation, as an index or table can be replicated or changed.
fn is_table(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(call.context.catalog.tables.contains_key(&oid(a, 0)?)))
}

/// The store's number of an object: its own.
fn filenode(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let oid = oid(a, 0)?;
    Ok(relation_name(Some(call.context.catalog), oid).map_or(Value::Null, |_| Value::Int(i64::from(oid))))
}

/// INSERT, UPDATE and DELETE: bits 3, 2 and 4.
fn updatable(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let is_table = call.context.catalog.tables.contains_key(&oid(a, 0)?);
    Ok(Value::Int(if is_table { 8 | 4 | 16 } else { 0 }))
}

/// Whether an index is there: what is asked of it, all of them can.
fn index_has(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let Some((_, index)) = definition::find_index(call.context.catalog, oid(a, 0)?) else {
        return Ok(Value::Null);
    };
    let property = text(a, a.len() - 1)?.to_ascii_lowercase();
    let column = if a.len() > 2 {
        usize::try_from(int(a, 1)? - 1).ok().and_then(|at| index.columns.get(at))
    } else {
        None
    };
    if a.len() > 2 && column.is_none() {
        return Ok(Value::Null);
    }
    Ok(match (property.as_str(), column) {
        ("asc", Some(column)) => Value::Bool(!column.descending),
        ("desc", Some(column)) => Value::Bool(column.descending),
        ("nulls_first", Some(column)) => Value::Bool(column.nulls_first),
        ("nulls_last", Some(column)) => Value::Bool(!column.nulls_first),
        ("orderable" | "returnable" | "search_array" | "search_nulls", Some(_)) => Value::Bool(true),
        ("distance_orderable", Some(_)) => Value::Bool(false),
        ("clusterable" | "index_scan" | "backward_scan", None) => Value::Bool(true),
        ("bitmap_scan", None) => Value::Bool(false),
        _ => Value::Null,
    })
}

/// Views there are none.
fn viewdef(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if let Some(Value::Text(name)) = a.first() {
        let parts = split_name(name)?;
        let known = parts.last().is_some_and(|name| call.context.catalog.names.contains_key(name));
        let message = if known {
            format!("\"{name}\" is not a view")
        } else {
            format!("relation \"{name}\" does not exist")
        };
        let state = if known { SqlState::WRONG_OBJECT_TYPE } else { SqlState::UNDEFINED_TABLE };
        return Err(Error::new(state, message));
    }
    Ok(Value::Null)
}

/// What tells backups of this copy of the database from others, as JSON: what `gannet backup` asks a server for
/// ([`gannet_store::Lineage`]).
fn lineage(call: &Call<'_, '_>, _: &[Value]) -> Result<Value> {
    let lineage = call.context.session.database().store().lineage()?;
    serde_json::to_string(&lineage).map(Value::text).map_err(Error::internal)
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    9020 "gannet_lineage" () Text.volatile() = lineage;
    1643 "pg_get_indexdef" (Oid) Text.stable() = indexdef;
    2507 "pg_get_indexdef" (Oid Int4 Bool) Text.stable() = indexdef;
    1387 "pg_get_constraintdef" (Oid) Text.stable() = constraintdef;
    2508 "pg_get_constraintdef" (Oid Bool) Text.stable() = constraintdef;
    1716 "pg_get_expr" (NodeTree Oid) Text.stable() = expression;
    2509 "pg_get_expr" (NodeTree Oid Bool) Text.stable() = expression;
    1081 "format_type" (Oid Int4) Text.lax().stable() = format_type;
    1642 "pg_get_userbyid" (Oid) Name.stable() = user_by_id;
    1640 "pg_get_viewdef" (Text) Text.stable() = viewdef;
    2505 "pg_get_viewdef" (Text Bool) Text.stable() = viewdef;
    1641 "pg_get_viewdef" (Oid) Text.stable() = viewdef;
    2506 "pg_get_viewdef" (Oid Bool) Text.stable() = viewdef;
    3159 "pg_get_viewdef" (Oid Int4) Text.stable() = viewdef;
    1662 "pg_get_triggerdef" (Oid) Text.stable() = nothing;
    2730 "pg_get_triggerdef" (Oid Bool) Text.stable() = nothing;
    1573 "pg_get_ruledef" (Oid) Text.stable() = nothing;
    2504 "pg_get_ruledef" (Oid Bool) Text.stable() = nothing;
    3352 "pg_get_partkeydef" (Oid) Text.stable() = nothing;
    3415 "pg_get_statisticsobjdef" (Oid) Text.stable() = nothing;
    6174 "pg_get_statisticsobjdef_columns" (Oid) Text.stable() = nothing;
    2098 "pg_get_functiondef" (Oid) Text.stable() = nothing;
    6197 "pg_get_function_sqlbody" (Oid) Text.stable() = nothing;
    3808 "pg_get_function_arg_default" (Oid Int4) Text.stable() = nothing;
    2162 "pg_get_function_arguments" (Oid) Text.stable() = function_arguments;
    2232 "pg_get_function_identity_arguments" (Oid) Text.stable() = function_arguments;
    2165 "pg_get_function_result" (Oid) Text.stable() = function_result;
    2079 "pg_table_is_visible" (Oid) Bool.stable() = is_relation_visible;
    2080 "pg_type_is_visible" (Oid) Bool.stable() = is_type_visible;
    2081 "pg_function_is_visible" (Oid) Bool.stable() = is_visible;
    2082 "pg_operator_is_visible" (Oid) Bool.stable() = is_visible;
    2083 "pg_opclass_is_visible" (Oid) Bool.stable() = is_visible;
    3829 "pg_opfamily_is_visible" (Oid) Bool.stable() = is_visible;
    2093 "pg_conversion_is_visible" (Oid) Bool.stable() = is_visible;
    3403 "pg_statistics_obj_is_visible" (Oid) Bool.stable() = is_visible;
    3756 "pg_ts_parser_is_visible" (Oid) Bool.stable() = is_visible;
    3757 "pg_ts_dict_is_visible" (Oid) Bool.stable() = is_visible;
    3768 "pg_ts_template_is_visible" (Oid) Bool.stable() = is_visible;
    3758 "pg_ts_config_is_visible" (Oid) Bool.stable() = is_visible;
    3815 "pg_collation_is_visible" (Oid) Bool.stable() = is_visible;
    1348 "obj_description" (Oid) Text.stable() = nothing;
    1215 "obj_description" (Oid Name) Text.stable() = nothing;
    1216 "col_description" (Oid Int4) Text.stable() = nothing;
    1993 "shobj_description" (Oid Name) Text.stable() = nothing;
    3778 "pg_tablespace_location" (Oid) Text.stable() = nothing;
    6120 "pg_get_replica_identity_index" (Regclass) Regclass.stable() = nothing;
    3424 "pg_partition_root" (Regclass) Regclass = nothing;
    6121 "pg_relation_is_publishable" (Regclass) Bool.stable() = is_table;
    3842 "pg_relation_is_updatable" (Regclass Bool) Int4.stable() = updatable;
    3843 "pg_column_is_updatable" (Regclass Int2 Bool) Bool.stable() = is_table;
    2999 "pg_relation_filenode" (Regclass) Oid.stable() = filenode;
    637 "pg_index_has_property" (Regclass Text) Bool.stable() = index_has;
    638 "pg_index_column_has_property" (Regclass Int4 Text) Bool.stable() = index_has;
    3495 "to_regclass" (Text) Regclass.stable() = |call, a| lookup(call, a, Type::Regclass);
    3494 "to_regproc" (Text) Regproc.stable() = |call, a| lookup(call, a, Type::Regproc);
    3493 "to_regtype" (Text) Regtype.stable() = |call, a| lookup(call, a, Type::Regtype);
    4086 "to_regnamespace" (Text) Regnamespace.stable() = to_regnamespace;
};
