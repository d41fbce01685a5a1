//! Types, functions, schemas and other objects that are the same in every database.

use super::relations::{C_COLLATION, DEFAULT_COLLATION, alignment, by_value, collation, storage};
use super::{FALSE, NO_OID, NULL, Rows, TRUE, char, float, int, text, vector};
use crate::catalog::{BOOTSTRAP_ROLE, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC};
use crate::exec::Context;
use crate::functions::{self, Argument, Resolved, Returns, Routine, Volatility};
use crate::types::{Type, Value};

/// PostgreSQL's numbers of the pseudo-types in signatures of functions.
const ANY: u32 = 2276;
const ANY_ARRAY: u32 = 2277;
const ANY_NON_ARRAY: u32 = 2776;
const ANY_ELEMENT: u32 = 2283;
/// Number of UTF-8 among PostgreSQL's encodings.
const UTF8: i64 = 6;

pub(super) fn namespaces(_: &Context<'_>) -> Rows {
    let schemas =
        [(PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema")];
    Ok(schemas.iter().map(|(oid, name)| vec![int(*oid), text(name), int(BOOTSTRAP_ROLE), NULL]).collect())
}

pub(super) fn types(_: &Context<'_>) -> Rows {
    let row = |&ty: &Type| {
        let kind = if matches!(ty, Type::Record | Type::Void | Type::Unknown) { 'p' } else { 'b' };
        let oid = |ty: Option<Type>| ty.map_or(NO_OID, |ty| int(ty.oid()));
        let routines = functions::routines_of(ty);
        // A name can be taken apart, and is no array for all that.
        let element = if ty == Type::Name { Some(Type::Char) } else { ty.element() };
        vec![
            int(ty.oid()),
            text(ty.internal_name()),
            int(PG_CATALOG),
            int(BOOTSTRAP_ROLE),
            int(ty.len()),
            Value::Bool(by_value(ty)),
            char(kind),
            char(ty.category()),
            Value::Bool(ty.is_preferred()),
            TRUE,
            char(','),
            NO_OID,
            int(routines.subscript),
            oid(element),
            oid(ty.array()),
            int(routines.input),
            int(routines.output),
            int(routines.receive),
            int(routines.send),
            int(routines.modifier_input),
            int(routines.modifier_output),
            int(routines.analyze),
            char(alignment(ty)),
            char(storage(ty)),
            FALSE,
            NO_OID,
            int(-1),
            int(0),
            int(collation(ty)),
            NULL,
            NULL,
            NULL,
        ]
    };
    Ok(Type::ALL.iter().map(row).collect())
}

fn argument(argument: &Argument) -> Value {
    int(match argument {
        Argument::Is(ty) => ty.oid(),
        Argument::Any => ANY,
        Argument::AnyNonArray => ANY_NON_ARRAY,
        Argument::AnyArray => ANY_ARRAY,
        Argument::AnyElement => ANY_ELEMENT,
    })
}

fn returned(returns: Returns) -> Value {
    int(match returns {
        Returns::Is(ty) => ty.oid(),
        Returns::Element => ANY_ELEMENT,
        Returns::Array => ANY_ARRAY,
    })
}

/// What `pg_proc` says of a function.
struct Procedure {
    oid: u32,
    name: &'static str,
    kind: char,
    arguments: Vec<Value>,
    optional: usize,
    /// The type of the argument that may be repeated.
    variadic: Value,
    returns: Value,
    strict: bool,
    set: bool,
    volatility: char,
}

impl Procedure {
    fn row(self) -> Vec<Value> {
        vec![
            int(self.oid),
            text(self.name),
            int(PG_CATALOG),
            int(BOOTSTRAP_ROLE),
            int(12),
            float(1.0),
            float(if self.set { 1000.0 } else { 0.0 }),
            self.variadic,
            NO_OID,
            char(self.kind),
            FALSE,
            FALSE,
            Value::Bool(self.strict),
            Value::Bool(self.set),
            char(self.volatility),
            char('s'),
            int(self.arguments.len() as i64),
            int(self.optional as i64),
            self.returns,
            vector(Type::Oid, self.arguments),
            NULL,
            NULL,
            NULL,
            NULL,
            NULL,
            text(self.name),
            NULL,
            NULL,
            NULL,
            NULL,
        ]
    }
}

fn volatility(volatility: Volatility) -> char {
    match volatility {
        Volatility::Immutable => 'i',
        Volatility::Stable => 's',
        Volatility::Volatile => 'v',
    }
}

fn called(function: Resolved) -> Procedure {
    let arguments: Vec<Value> = function.arguments().iter().map(argument).collect();
    let last = arguments.last().cloned().filter(|_| function.variadic());
    let (kind, strict, set, volatility) = match function {
        Resolved::Function(function) => ('f', function.strict, false, volatility(function.volatility)),
        Resolved::Aggregate(_) => ('a', false, false, 'i'),
        Resolved::Table(_) => ('f', true, true, 's'),
    };
    Procedure {
        oid: function.oid(),
        name: function.name(),
        kind,
        arguments,
        optional: function.optional(),
        variadic: last.unwrap_or(NO_OID),
        returns: returned(function.returns()),
        strict,
        set,
        volatility,
    }
}

fn named(routine: Routine) -> Procedure {
    Procedure {
        oid: routine.oid,
        name: routine.name,
        kind: 'f',
        arguments: routine.arguments.into_iter().map(int).collect(),
        optional: 0,
        variadic: NO_OID,
        returns: int(routine.returns),
        strict: true,
        set: false,
        volatility: volatility(routine.volatility),
    }
}

pub(super) fn functions(_: &Context<'_>) -> Rows {
    let called = functions::all().map(called);
    Ok(called.chain(functions::routines().map(named)).map(Procedure::row).collect())
}

pub(super) fn access_methods(_: &Context<'_>) -> Rows {
    let row = |oid: i64, name: &str, kind| vec![int(oid), text(name), NO_OID, char(kind)];
    Ok(vec![row(2, "heap", 't'), row(403, "btree", 'i')])
}

pub(super) fn collations(_: &Context<'_>) -> Rows {
    let row = |oid: u32, name: &str, provider, locale: Option<&str>| {
        let locale = super::optional(locale, text);
        let (collate, ctype) = (locale.clone(), locale);
        let oid = int(oid);
        let encoding = int(-1);
        let schema = int(PG_CATALOG);
        let owner = int(BOOTSTRAP_ROLE);
        vec![oid, text(name), schema, owner, char(provider), TRUE, encoding, collate, ctype, NULL, NULL]
    };
    Ok(vec![
        row(DEFAULT_COLLATION, "default", 'd', None),
        row(C_COLLATION, "C", 'c', Some("C")),
        row(951, "POSIX", 'c', Some("POSIX")),
    ])
}

/// The databases that the server has open; each is a file, alone in its catalog.
pub(super) fn databases(context: &Context<'_>) -> Rows {
    let row = |(place, database): (usize, &crate::session::Database)| {
        vec![
            int(super::activity::FIRST_DATABASE + place as i64),
            text(database.name()),
            int(BOOTSTRAP_ROLE),
            int(UTF8),
            char('c'),
            FALSE,
            TRUE,
            int(-1),
            int(0),
            int(0),
            int(1663),
            text("C"),
            text("C.UTF-8"),
            NULL,
            NULL,
            NULL,
        ]
    };
    Ok(context.session.database().neighbours().iter().enumerate().map(row).collect())
}

pub(super) fn tablespaces(_: &Context<'_>) -> Rows {
    let row = |oid: i64, name: &str| vec![int(oid), text(name), int(BOOTSTRAP_ROLE), NULL, NULL];
    Ok(vec![row(1663, "pg_default"), row(1664, "pg_global")])
}

pub(super) fn languages(_: &Context<'_>) -> Rows {
    let owner = int(BOOTSTRAP_ROLE);
    Ok(vec![vec![int(12), text("internal"), owner, FALSE, FALSE, NO_OID, NO_OID, NO_OID, NULL]])
}
