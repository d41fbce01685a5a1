//! COPY: the options of both notations come out as one list, for whoever runs it to judge.

use super::super::Parsed;
use super::super::parse::parse_inner;
use super::reader::Reader;
use crate::{Error, Result};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// COPY
#[derive(Clone, Debug)]
pub struct Copy {
    /// The table and columns, or the query.
    pub target: CopyTarget,
    /// COPY FROM; else TO.
    pub from: bool,
    /// The file; `None`: STDIN or STDOUT.
    pub file: Option<String>,
    /// The options in order, names in lower case: `format`, `freeze`, `delimiter`, `null`, `header`, `quote`, `escape`, `force_quote`,
    /// `force_not_null`, `force_null`, `encoding`, or what else was written.
    pub options: Vec<CopyOption>,
}

/// What is copied.
#[derive(Clone, Debug)]
pub enum CopyTarget {
    /// A table, and which columns; none: all.
    Table(CopyRelation, Vec<String>),
    /// A query's result.
    Query(Box<Parsed>),
}

/// A relation by name, in a utility statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRelation {
    /// The schema, if given.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
    /// Where it stands in the text, in characters from 1.
    pub position: usize,
}

/// An option of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOption {
    /// Which, in lower case.
    pub name: String,
    /// Its value.
    pub value: CopyValue,
    /// Where it stands in the text.
    pub position: usize,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyValue {
    /// None was given.
    None,
    /// A word, number or string.
    Text(String),
    /// Columns.
    Columns(Vec<String>),
    /// `*`
    All,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Copy> {
    reader.skip(1);
    if reader.keyword(0) == K::BINARY {
        return Err(Error::unsupported("COPY BINARY").at(reader.position()));
    }
    let target = if reader.token(0) == Some(&Token::LParen) {
        let end = reader.closing()?;
        reader.skip(1);
        let query = parse_inner(reader.take_until(end))?;
        reader.expect_token(&Token::RParen)?;
        CopyTarget::Query(Box::new(query))
    } else {
        let relation = reader.relation()?;
        CopyTarget::Table(relation, reader.optional_names()?)
    };
    let from = match target {
        CopyTarget::Table(..) if reader.accept(K::FROM) => true,
        _ => {
            reader.expect(K::TO)?;
            false
        }
    };
    let file = if reader.accept(K::STDIN) || reader.accept(K::STDOUT) {
        None
    } else if reader.accept(K::PROGRAM) {
        return Err(Error::unsupported("COPY with PROGRAM").at(reader.position()));
    } else {
        Some(reader.string()?)
    };
    let mut options = Vec::new();
    if reader.keyword(0) == K::USING {
        // The oldest notation: USING DELIMITERS ','.
        reader.skip(1);
    }
    reader.accept(K::WITH);
    if reader.accept_token(&Token::LParen) {
        loop {
            options.push(option(reader)?);
            if !reader.accept_token(&Token::Comma) {
                break;
            }
        }
        reader.expect_token(&Token::RParen)?;
    } else {
        while !reader.at_end() && reader.keyword(0) != K::WHERE {
            options.push(old_option(reader)?);
        }
    }
    if reader.keyword(0) == K::WHERE {
        return Err(Error::unsupported("COPY FROM with WHERE").at(reader.position()));
    }
    reader.end()?;
    Ok(Copy { target, from, file, options })
}

/// `name [value]`
fn option(reader: &mut Reader<'_>) -> Result<CopyOption> {
    let position = reader.position();
    let name = reader.name()?;
    let value = if reader.accept_token(&Token::Mul) {
        CopyValue::All
    } else if reader.token(0) == Some(&Token::LParen) {
        CopyValue::Columns(reader.optional_names()?)
    } else {
        reader.option_value()?.map_or(CopyValue::None, CopyValue::Text)
    };
    Ok(CopyOption { name, value, position })
}

/// The notation without parentheses: `CSV HEADER DELIMITER AS ','`.
fn old_option(reader: &mut Reader<'_>) -> Result<CopyOption> {
    let position = reader.position();
    let text = |reader: &mut Reader<'_>| {
        reader.accept(K::AS);
        reader.string().map(CopyValue::Text)
    };
    let (name, value) = if reader.accept(K::CSV) {
        ("format", CopyValue::Text("csv".to_owned()))
    } else if reader.accept(K::BINARY) {
        ("format", CopyValue::Text("binary".to_owned()))
    } else if reader.accept(K::FREEZE) {
        ("freeze", CopyValue::None)
    } else if reader.accept(K::HEADER) {
        ("header", CopyValue::None)
    } else if reader.accept(K::DELIMITER) || reader.accept_words(&["delimiters"]) {
        ("delimiter", text(reader)?)
    } else if reader.accept(K::NULL) {
        ("null", text(reader)?)
    } else if reader.accept(K::QUOTE) {
        ("quote", text(reader)?)
    } else if reader.accept(K::ESCAPE) {
        ("escape", text(reader)?)
    } else if reader.accept_words(&["encoding"]) {
        ("encoding", text(reader)?)
    } else if reader.accept(K::FORCE) {
        let name = if reader.accept(K::QUOTE) {
            "force_quote"
        } else if reader.accept(K::NOT) {
            reader.expect(K::NULL)?;
            "force_not_null"
        } else {
            reader.expect(K::NULL)?;
            "force_null"
        };
        if name == "force_quote" && reader.accept_token(&Token::Mul) {
            (name, CopyValue::All)
        } else {
            let mut columns = vec![reader.name()?];
            while reader.accept_token(&Token::Comma) {
                columns.push(reader.name()?);
            }
            (name, CopyValue::Columns(columns))
        }
    } else {
        return Err(reader.unexpected());
    };
    Ok(CopyOption { name: name.to_owned(), value, position })
}
