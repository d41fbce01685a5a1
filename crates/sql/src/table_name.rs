//! The name of a table as tools and statements of administrators are given it.

use crate::bind::utility::CopyRelation;
use crate::{Error, Result, SqlState};
use std::fmt;

/// The schema that tables are in.
const PUBLIC: &str = "public";

/// A table by name, with its schema if given: `orders`, `public.orders`, `public."Order lines"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    schema: Option<String>,
    name: String,
    /// As it was written.
    text: String,
}

impl TableName {
    /// Reads a name from a command line. As there, and unlike SQL, letters are as they are given, without quotes as well. What stands before
    /// a point is a schema; a part with a point in it stands in quotes, and a quote in one that does is doubled.
    pub fn parse(text: &str) -> Self {
        let (first, rest) = first_part(text);
        let (schema, name) = match rest {
            Some(rest) if !rest.is_empty() && !first.is_empty() => {
                let name = match first_part(rest) {
                    (name, None) => name,
                    _ => rest.to_owned(),
                };
                (Some(first), name)
            }
            Some(_) => (None, text.to_owned()),
            None => (None, first),
        };
        TableName { schema, name, text: text.to_owned() }
    }

    /// The name without its schema, which has to be the one that tables are in.
    ///
    /// # Errors
    /// 3F000 for another one.
    pub fn in_public(&self) -> Result<&str> {
        let message = match self.schema.as_deref() {
            None | Some(PUBLIC) => return Ok(&self.name),
            Some(schema @ ("pg_catalog" | "information_schema")) => {
                format!("schema \"{schema}\" has no tables with pages: these are in \"{PUBLIC}\"")
            }
            Some(schema) => format!("schema \"{schema}\" does not exist: all tables are in \"{PUBLIC}\""),
        };
        Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message))
    }

    /// As it was written: for a tree of a database without definitions, which has no schemas.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<&CopyRelation> for TableName {
    fn from(relation: &CopyRelation) -> Self {
        let CopyRelation { schema, name, .. } = relation;
        let text = schema.as_ref().map_or_else(|| name.clone(), |schema| format!("{schema}.{name}"));
        TableName { schema: schema.clone(), name: name.clone(), text }
    }
}

/// As SQL takes it, with each part in quotes.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |part: &str| part.replace('"', "\"\"");
        if let Some(schema) = &self.schema {
            write!(f, "\"{}\".", quoted(schema))?;
        }
        write!(f, "\"{}\"", quoted(&self.name))
    }
}

/// The part up to a point that is not in quotes, without its own quotes, and what stands behind that point.
fn first_part(text: &str) -> (String, Option<&str>) {
    if let Some(inside) = text.strip_prefix('"') {
        let mut part = String::new();
        let mut characters = inside.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            if character != '"' || characters.next_if(|&(_, next)| next == '"').is_some() {
                part.push(character);
                continue;
            }
            match inside[at + 1..].strip_prefix('.') {
                Some(rest) => return (part, Some(rest)),
                None if at + 1 == inside.len() => return (part, None),
                // A name that happens to begin with a quote.
                None => break,
            }
        }
    }
    match text.split_once('.') {
        Some((part, rest)) => (part.to_owned(), Some(rest)),
        None => (text.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_stands_before_a_point_and_a_point_in_quotes_is_none() {
        for (text, name, sql) in [
            ("orders", "orders", "\"orders\""),
            ("Order lines", "Order lines", "\"Order lines\""),
            ("a \"b\"", "a \"b\"", "\"a \"\"b\"\"\""),
            ("public.orders", "orders", "\"public\".\"orders\""),
            ("public.\"Order lines\"", "Order lines", "\"public\".\"Order lines\""),
            ("\"public\".orders", "orders", "\"public\".\"orders\""),
            ("\"a.b\"", "a.b", "\"a.b\""),
            ("public.\"say \"\"a.b\"\"\"", "say \"a.b\"", "\"public\".\"say \"\"a.b\"\"\""),
            ("public.a.b", "a.b", "\"public\".\"a.b\""),
            ("\"a", "\"a", "\"\"\"a\""),
            ("\"a\" b", "\"a\" b", "\"\"\"a\"\" b\""),
            (".a", ".a", "\".a\""),
            ("a.", "a.", "\"a.\""),
            ("\"", "\"", "\"\"\"\""),
            ("", "", "\"\""),
        ] {
            let read = TableName::parse(text);
            assert_eq!((read.in_public().unwrap(), read.to_string().as_str()), (name, sql), "{text}");
            assert_eq!(read.text(), text);
        }
    }

    #[test]
    fn another_schema_is_refused_by_its_name() {
        for (text, message) in [
            ("shop.orders", "schema \"shop\" does not exist: all tables are in \"public\""),
            ("Public.orders", "schema \"Public\" does not exist: all tables are in \"public\""),
            (
                "pg_catalog.pg_class",
                "schema \"pg_catalog\" has no tables with pages: these are in \"public\"",
            ),
        ] {
            let error = TableName::parse(text).in_public().unwrap_err();
            assert_eq!((error.state(), &*error.fields().message), (SqlState::INVALID_SCHEMA_NAME, message));
        }
    }
}
