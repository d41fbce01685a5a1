//! Types, functions, schemas and other objects that are the same in every database.

use super::relations::{C_COLLATION, DEFAULT_COLLATION, alignment, by_value, collation, storage};
use super::{FALSE, NO_OID, NULL, Rows, TRUE, char, float, int, text, vector};
use crate::catalog::{BOOTSTRAP_ROLE, INFORMATION_SCHEMA, PG_CATALOG, PUBLIC};
use crate::exec::Context;
use crate::functions::{self, Argument, Resolved, Returns, Volatility};
use crate::types::{Type, Value};

/// PostgreSQL's numbers of the pseudo-types in signatures of functions.
const ANY: u32 = 2276;
const ANY_ARRAY: u32 = 2277;
const ANY_NON_ARRAY: u32 = 2776;
const ANY_ELEMENT: u32 = 2283;
/// The first made-up number of functions that PostgreSQL numbers otherwise.
const FIRST_FUNCTION: u32 = 0x9000_0000;
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
            NO_OID,
            oid(ty.element()),
            oid(ty.array()),
            NO_OID,
            NO_OID,
            NO_OID,
            NO_OID,
            NO_OID,
            NO_OID,
            NO_OID,
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
struct Procedure<'a> {
    oid: u32,
    name: &'a str,
    kind: char,
    arguments: &'a [Argument],
    optional: usize,
    variadic: bool,
    returns: Value,
    strict: bool,
    set: bool,
    volatility: char,
}

impl Procedure<'_> {
    fn row(self) -> Vec<Value> {
        let variadic = match self.arguments.last() {
            Some(last) if self.variadic => argument(last),
            _ => NO_OID,
        };
        vec![
            int(self.oid),
            text(self.name),
            int(PG_CATALOG),
            int(BOOTSTRAP_ROLE),
            int(12),
            float(1.0),
            float(if self.set { 1000.0 } else { 0.0 }),
            variadic,
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
            vector(Type::Oid, self.arguments.iter().map(argument).collect()),
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

pub(super) fn functions(_: &Context<'_>) -> Rows {
    let mut made_up = FIRST_FUNCTION..;
    let rows = functions::all().map(|function| {
        match function {
            Resolved::Function(function) => Procedure {
                oid: function.oid,
                name: function.name,
                kind: 'f',
                arguments: function.arguments,
                optional: function.optional,
                variadic: function.variadic,
                returns: returned(function.returns),
                strict: function.strict,
                set: false,
                volatility: match function.volatility {
                    Volatility::Immutable => 'i',
                    Volatility::Stable => 's',
                    Volatility::Volatile => 'v',
                },
            },
            Resolved::Aggregate(aggregate) => Procedure {
                oid: aggregate.oid,
                name: aggregate.name,
                kind: 'a',
                arguments: aggregate.arguments,
                optional: 0,
                variadic: false,
                returns: returned(aggregate.returns),
                strict: false,
                set: false,
                volatility: 'i',
            },
            Resolved::Table(table) => Procedure {
                oid: made_up.next().unwrap_or(FIRST_FUNCTION),
                name: table.name,
                kind: 'f',
                arguments: table.arguments,
                optional: table.optional,
                variadic: false,
                returns: match table.columns {
                    [(_, returns)] => returned(*returns),
                    _ => int(Type::Record.oid()),
                },
                strict: true,
                set: true,
                volatility: 's',
            },
        }
        .row()
    });
    Ok(rows.collect())
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
