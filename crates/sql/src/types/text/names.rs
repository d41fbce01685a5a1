//! Names of types, relations and schemas as values: regtype, regclass, regnamespace, regproc. Quoting of identifiers.

use super::{TextStyle, cut_name, scalars, trim_space};
use crate::catalog::{Catalog, INFORMATION_SCHEMA, Oid, PG_CATALOG, PUBLIC, Relation};
use crate::types::Type;
use crate::{Error, Result, SqlState, functions, system};
use std::borrow::Cow;

/// Reads the name or number of a type, relation, schema or function.
pub(super) fn read(text: &str, ty: Type, style: &TextStyle) -> Result<Oid> {
    if text == "-" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return scalars::read_oid(text, Type::Oid).map(|number| number as Oid);
    }
    match ty {
        Type::Regtype => match type_named(text) {
            Some(ty) => Ok(ty.oid()),
            None => Err(no_type(text)),
        },
        Type::Regnamespace => {
            let parts = split_name(text)?;
            match &parts[..] {
                [name] => {
                    schema_number(name).ok_or_else(|| missing(SqlState::INVALID_SCHEMA_NAME, "schema", name))
                }
                _ => Err(invalid_name()),
            }
        }
        Type::Regclass => {
            let parts = split_name(text)?;
            let (schema, name) = match &parts[..] {
                [name] => (None, name),
                [schema, name] | [_, schema, name] => (Some(schema.as_str()), name),
                _ => {
                    let message = format!("improper relation name (too many dotted names): {text}");
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
            };
            if let Some(schema) = schema
                && schema_number(schema).is_none()
            {
                return Err(missing(SqlState::INVALID_SCHEMA_NAME, "schema", schema));
            }
            relation_number(style.catalog.as_deref(), schema, name)
                .ok_or_else(|| missing(SqlState::UNDEFINED_TABLE, "relation", &parts.join(".")))
        }
        _ => function_number(text),
    }
}

/// The number of the only function of this name. All are in the schema of the system, which is searched anyway.
fn function_number(text: &str) -> Result<Oid> {
    let parts = split_name(text)?;
    let (schema, name) = match &parts[..] {
        [name] => (None, name),
        [schema, name] | [_, schema, name] => (Some(schema), name),
        _ => {
            let message = format!("improper qualified name (too many dotted names): {text}");
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
    };
    if let Some(schema) = schema
        && schema_number(schema).is_none()
    {
        return Err(missing(SqlState::INVALID_SCHEMA_NAME, "schema", schema));
    }
    let is_searched = schema.is_none_or(|schema| schema == "pg_catalog");
    match if is_searched { functions::numbers_of(name) } else { &[] } {
        [] => Err(missing(SqlState::UNDEFINED_FUNCTION, "function", text)),
        [oid] => Ok(*oid),
        _ => {
            let message = format!("more than one function named \"{text}\"");
            Err(Error::new(SqlState::AMBIGUOUS_FUNCTION, message))
        }
    }
}

fn missing(state: SqlState, what: &str, name: &str) -> Error {
    Error::new(state, format!("{what} \"{name}\" does not exist"))
}

/// Why a name is none of a type.
fn no_type(text: &str) -> Error {
    let trimmed = trim_space(text);
    if trimmed.is_empty() {
        return Error::new(SqlState::SYNTAX_ERROR, format!("invalid type name \"{text}\""));
    }
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let near =
        |token: &str| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{token}\""));
    if trimmed.starts_with('"') {
        return missing(SqlState::UNDEFINED_OBJECT, "type", trimmed.trim_matches('"'));
    }
    let end = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len())
    } else {
        trimmed.find(|c| !word(c)).unwrap_or(trimmed.len())
    };
    if end == 0 || trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        let end = end.max(trimmed.chars().next().map_or(0, char::len_utf8));
        return near(&trimmed[..end]);
    }
    let rest = trim_space(&trimmed[end..]);
    match rest.find(|c| !word(c)) {
        Some(0) => missing(SqlState::UNDEFINED_OBJECT, "type", &trimmed.to_lowercase()),
        _ if rest.is_empty() => missing(SqlState::UNDEFINED_OBJECT, "type", &trimmed.to_lowercase()),
        Some(end) => near(&rest[..end]),
        None => near(rest),
    }
}

fn invalid_name() -> Error {
    Error::new(SqlState("42602"), "invalid name syntax")
}

/// Appends the name of a type, relation, schema or function, or its number where it has none.
pub(super) fn write(number: i64, ty: Type, style: &TextStyle, out: &mut String) {
    if number == 0 {
        out.push('-');
        return;
    }
    let oid = u32::try_from(number).unwrap_or(0);
    match ty {
        Type::Regtype => {
            if let Some(ty) = Type::from_oid(oid) {
                out.push_str(ty.name());
                return;
            }
        }
        Type::Regclass => {
            if let Some(name) = relation_name(style.catalog.as_deref(), oid) {
                out.push_str(&name);
                return;
            }
        }
        Type::Regnamespace => {
            let name = match oid {
                PG_CATALOG => "pg_catalog",
                PUBLIC => "public",
                INFORMATION_SCHEMA => "information_schema",
                _ => "",
            };
            if !name.is_empty() {
                out.push_str(name);
                return;
            }
        }
        Type::Regproc => {
            if let Some((name, is_only)) = functions::name_of(oid) {
                // One of several is named in full, as PostgreSQL does.
                out.push_str(if is_only { "" } else { "pg_catalog." });
                out.push_str(&quote_identifier(name));
                return;
            }
        }
        _ => {}
    }
    scalars::write_integer(number, out);
}

fn schema_number(name: &str) -> Option<Oid> {
    match name {
        "pg_catalog" => Some(PG_CATALOG),
        "public" => Some(PUBLIC),
        "information_schema" => Some(INFORMATION_SCHEMA),
        _ => None,
    }
}

/// The number of a relation: of the system, or of schema `public`. `schema`: where to look, everywhere if none.
pub fn relation_number(catalog: Option<&Catalog>, schema: Option<&str>, name: &str) -> Option<Oid> {
    if schema != Some("public")
        && let Some(table) = system::find(schema, name)
    {
        return Some(table.oid);
    }
    if !matches!(schema, None | Some("public")) {
        return None;
    }
    Some(match catalog?.names.get(name)? {
        Relation::Table(oid) | Relation::Sequence(oid) => *oid,
        Relation::Index { index, .. } => *index,
    })
}

/// The name of a relation as SQL writes it: in quotes where needed, with its schema where that is not searched anyway.
pub fn relation_name(catalog: Option<&Catalog>, oid: Oid) -> Option<Cow<'_, str>> {
    if let Some(table) = system::by_oid(oid) {
        let name = quote_identifier(table.name);
        return Some(match table.schema {
            "pg_catalog" => name,
            schema => Cow::Owned(format!("{schema}.{name}")),
        });
    }
    let catalog = catalog?;
    if let Some(table) = catalog.tables.get(&oid) {
        return Some(quote_identifier(&table.name));
    }
    if let Some(sequence) = catalog.sequences.get(&oid) {
        return Some(quote_identifier(&sequence.name));
    }
    let mut indexes = catalog.tables.values().flat_map(|table| &table.indexes);
    indexes.find(|index| index.oid == oid).map(|index| quote_identifier(&index.name))
}

/// The parts of a name with points, without their quotes, folded to lower case where they have none.
pub fn split_name(text: &str) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = trim_space(text);
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut characters = quoted.char_indices().peekable();
            let end = loop {
                match characters.next() {
                    Some((at, '"')) => {
                        if characters.peek().is_none_or(|(_, next)| *next != '"') {
                            break at + 1;
                        }
                        characters.next();
                        name.push('"');
                    }
                    Some((_, character)) => name.push(character),
                    None => return Err(invalid_name()),
                }
            };
            part = name;
            rest = &quoted[end..];
        } else {
            let end = rest
                .find(|c: char| c == '.' || (c.is_ascii() && super::is_space(c as u8)))
                .unwrap_or(rest.len());
            part = rest[..end].to_lowercase();
            rest = &rest[end..];
        }
        if part.is_empty() {
            return Err(invalid_name());
        }
        parts.push(cut_name(&part).to_owned());
        rest = trim_space(rest);
        match rest.strip_prefix('.') {
            Some(next) => rest = trim_space(next),
            None if rest.is_empty() => return Ok(parts),
            None => return Err(invalid_name()),
        }
    }
}

/// The type that a name in SQL stands for: `int4`, `character varying(10)`, `timestamp with time zone`, `integer[]`.
pub fn type_named(text: &str) -> Option<Type> {
    let text = trim_space(text);
    if let Some(element) = text.strip_suffix("[]") {
        return type_named(element)?.array();
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return Type::from_internal_name(quoted.strip_suffix('"')?);
    }
    // A modifier does not change the type, wherever it stands.
    let mut name = String::new();
    let mut depth = 0;
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth > 0 => {}
            _ => name.extend(character.to_lowercase()),
        }
    }
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    match name {
        "int" => Some(Type::Int4),
        "decimal" | "dec" => Some(Type::Numeric),
        "float" => Some(Type::Float8),
        // The word is SQL's; the other type has its name in quotes.
        "char" | "national character" | "nchar" => Some(Type::Bpchar),
        "char varying" | "national character varying" => Some(Type::Varchar),
        "timestamp" => Some(Type::Timestamp),
        _ => Type::from_internal_name(name)
            .or_else(|| Type::ALL.iter().copied().find(|ty| ty.name() == name && ty.element().is_none())),
    }
}

/// An identifier as it is written in SQL: in quotes where it is no plain word in lower case, or a keyword.
pub fn quote_identifier(name: &str) -> Cow<'_, str> {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && KEYWORDS.binary_search(&name).is_err();
    if plain { Cow::Borrowed(name) } else { Cow::Owned(format!("\"{}\"", name.replace('"', "\"\""))) }
}

/// Words that are not free to be names, in order.
const KEYWORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "async",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];
