//! CREATE and ALTER SEQUENCE, whose options come in any order.

use super::super::bind_type;
use super::super::parse::{Source, with_parser};
use super::super::tokens::tokenize;
use super::reader::Reader;
use super::{CopyRelation, Utility};
use crate::{Error, Result, SqlState, Type};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// Options of a sequence; `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// SEQUENCE NAME, which an identity column's options may have.
    pub name: Option<CopyRelation>,
    /// AS
    pub ty: Option<Type>,
    /// INCREMENT
    pub increment: Option<i64>,
    /// MINVALUE; within, `None`: NO MINVALUE.
    pub minimum: Option<Option<i64>>,
    /// MAXVALUE; within, `None`: NO MAXVALUE.
    pub maximum: Option<Option<i64>>,
    /// START
    pub start: Option<i64>,
    /// RESTART; within, `None`: without a value.
    pub restart: Option<Option<i64>>,
    /// CACHE
    pub cache: Option<i64>,
    /// CYCLE; NO CYCLE is false.
    pub cycle: Option<bool>,
    /// OWNED BY a table's column; within, `None`: NONE.
    pub owned_by: Option<Option<(CopyRelation, String)>>,
}

/// What ALTER SEQUENCE does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterSequence {
    /// Options
    Options(Box<SequenceOptions>),
    /// RENAME TO
    Rename(String),
    /// OWNER TO
    Owner(String),
}

/// CREATE SEQUENCE, ALTER SEQUENCE
pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Utility> {
    let create = reader.keyword(0) == K::CREATE;
    reader.skip(1);
    if reader.accept(K::TEMP) || reader.accept(K::TEMPORARY) {
        return reader.unsupported_to_end("CREATE TEMPORARY SEQUENCE");
    }
    reader.skip(1);
    if create {
        let if_not_exists = reader.accept_words(&["if", "not", "exists"]);
        let name = reader.relation()?;
        let options = Box::new(options(reader)?);
        return Ok(Utility::CreateSequence { name, if_not_exists, options });
    }
    let if_exists = reader.accept_words(&["if", "exists"]);
    let name = reader.relation()?;
    let action = if reader.accept_words(&["rename", "to"]) {
        AlterSequence::Rename(reader.name()?)
    } else if reader.accept_words(&["owner", "to"]) {
        AlterSequence::Owner(reader.name()?)
    } else if reader.is_words(&["set"]) {
        return reader.unsupported_to_end("ALTER SEQUENCE ... SET");
    } else {
        AlterSequence::Options(Box::new(options(reader)?))
    };
    Ok(Utility::AlterSequence { name, if_exists, action })
}

fn options(reader: &mut Reader<'_>) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    while !reader.at_end() {
        let position = reader.position();
        option(reader, &mut options).map_err(|error| error.at(position))?;
    }
    Ok(options)
}

/// The options of an identity column, as [`bridge`](super::super::bridge) has put them together.
pub(crate) fn identity_options(text: &str) -> Result<SequenceOptions> {
    let lexemes = tokenize(text)?;
    let mut reader = Reader::new(Source { sql: text, lexemes: &lexemes });
    let mut options = SequenceOptions::default();
    let mut read = || {
        while !reader.at_end() {
            if reader.accept_words(&["sequence", "name"]) {
                set(&mut options.name, reader.relation()?)?;
            } else {
                option(&mut reader, &mut options)?;
            }
        }
        Ok(())
    };
    // Places in this text are none that the client knows.
    read().map_err(|error: Error| error.without_position())?;
    if options.ty.is_some() || options.owned_by.is_some() {
        let message = "the sequence of an identity column has the column's type and owner";
        return Err(Error::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(options)
}

fn set<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
    }
    Ok(())
}

fn option(reader: &mut Reader<'_>, options: &mut SequenceOptions) -> Result<()> {
    if reader.accept_words(&["as"]) {
        if reader.at_end() {
            return Err(reader.unexpected());
        }
        let ty = with_parser(reader.take_until(2), |parser| parser.parse_data_type())?;
        return set(&mut options.ty, bind_type(&ty)?.0);
    }
    if reader.accept_words(&["increment"]) {
        reader.accept(K::BY);
        let value = integer(reader)?;
        return set(&mut options.increment, value);
    }
    if reader.accept_words(&["minvalue"]) {
        let value = integer(reader)?;
        return set(&mut options.minimum, Some(value));
    }
    if reader.accept_words(&["maxvalue"]) {
        let value = integer(reader)?;
        return set(&mut options.maximum, Some(value));
    }
    if reader.accept_words(&["no", "minvalue"]) {
        return set(&mut options.minimum, None);
    }
    if reader.accept_words(&["no", "maxvalue"]) {
        return set(&mut options.maximum, None);
    }
    if reader.accept_words(&["no", "cycle"]) {
        return set(&mut options.cycle, false);
    }
    if reader.accept_words(&["cycle"]) {
        return set(&mut options.cycle, true);
    }
    if reader.accept_words(&["cache"]) {
        let value = integer(reader)?;
        return set(&mut options.cache, value);
    }
    if reader.accept_words(&["start"]) {
        reader.accept(K::WITH);
        let value = integer(reader)?;
        return set(&mut options.start, value);
    }
    if reader.accept_words(&["restart"]) {
        let with = reader.accept(K::WITH);
        let number = matches!(reader.token(0), Some(Token::Number(..) | Token::Minus | Token::Plus));
        let value = if with || number { Some(integer(reader)?) } else { None };
        return set(&mut options.restart, value);
    }
    if reader.accept_words(&["owned", "by"]) {
        if reader.accept_words(&["none"]) {
            return set(&mut options.owned_by, None);
        }
        let relation = reader.relation_column()?.ok_or_else(|| {
            Error::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                .hint("Specify OWNED BY table.column or OWNED BY NONE.")
        })?;
        return set(&mut options.owned_by, Some(relation));
    }
    Err(reader.unexpected())
}

fn integer(reader: &mut Reader<'_>) -> Result<i64> {
    let position = reader.position();
    let text = match reader.token(0) {
        Some(Token::Number(..) | Token::Minus | Token::Plus) => reader.setting_value()?,
        _ => return Err(reader.unexpected()),
    };
    text.parse().map_err(|_| {
        let message = format!("value \"{text}\" is out of range for type bigint");
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).at(position)
    })
}
