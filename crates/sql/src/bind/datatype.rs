//! Names of types.

use crate::types::{Modifier, NO_MODIFIER, Type};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, DataType, ExactNumberInfo, TimezoneInfo};

/// Longest `varchar(n)` and `char(n)`, in characters.
const MAX_LENGTH: u64 = 10_485_760;

/// The type and modifier that a type's name in SQL stands for: `varchar(10)`, `numeric(12, 2)`, `int`, `timestamptz`. (serial is
/// for the caller to look at first.)
pub fn bind_type(data_type: &DataType) -> Result<(Type, Modifier)> {
    let plain = |ty: Type| Ok((ty, NO_MODIFIER));
    match data_type {
        DataType::Bool | DataType::Boolean => plain(Type::Bool),
        DataType::SmallInt(None) | DataType::Int2(None) => plain(Type::Int2),
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => plain(Type::Int4),
        DataType::BigInt(None) | DataType::Int8(None) => plain(Type::Int8),
        DataType::Real | DataType::Float4 => plain(Type::Float4),
        DataType::Float8 | DataType::DoublePrecision | DataType::Double(ExactNumberInfo::None) => {
            plain(Type::Float8)
        }
        DataType::Float(ExactNumberInfo::None) => plain(Type::Float8),
        DataType::Float(ExactNumberInfo::Precision(bits)) => float(*bits),
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info),
        DataType::Text => plain(Type::Text),
        DataType::Bytea => plain(Type::Bytea),
        DataType::Date => plain(Type::Date),
        DataType::Regclass => plain(Type::Regclass),
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            match character_length(length.as_ref())? {
                Some(length) => Ok((Type::Varchar, string_modifier("varchar", length)?)),
                None => plain(Type::Varchar),
            }
        }
        DataType::Char(length) | DataType::Character(length) => {
            let length = character_length(length.as_ref())?.unwrap_or(1);
            Ok((Type::Bpchar, string_modifier("char", length)?))
        }
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Ok((Type::Timestamp, digits_modifier(*digits)))
        }
        DataType::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            Ok((Type::TimestampTz, digits_modifier(*digits)))
        }
        DataType::Array(
            ast::ArrayElemTypeDef::SquareBracket(element, _) | ast::ArrayElemTypeDef::Qualified(element, _),
        ) => array(element),
        DataType::Custom(name, arguments) => custom(name, arguments),
        other => Err(Error::unsupported(format!("type {}", other.to_string().to_lowercase()))),
    }
}

fn array(element: &DataType) -> Result<(Type, Modifier)> {
    let (ty, modifier) = bind_type(element)?;
    // However many dimensions are written, it is one type.
    match ty.array() {
        Some(array) => Ok((array, modifier)),
        None if ty.element().is_some() => Ok((ty, modifier)),
        None => Err(Error::unsupported(format!("type {}[]", ty.name()))),
    }
}

fn custom(name: &ast::ObjectName, arguments: &[String]) -> Result<(Type, Modifier)> {
    let parts = super::name_parts(name)?;
    let place = |error: Error| match super::name_position(name) {
        Some(at) => error.at(at),
        None => error,
    };
    let undefined =
        || Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", parts.join(".")));
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name.as_str()),
        [schema, name] => (Some(schema.as_str()), name.as_str()),
        _ => return Err(place(undefined())),
    };
    if schema.is_some_and(|schema| schema != "pg_catalog") {
        return Err(place(undefined()));
    }
    let number = |at: usize| -> Result<Option<i64>> {
        let invalid = || Error::new(SqlState::INVALID_PARAMETER_VALUE, "invalid type modifier");
        arguments.get(at).map(|text| text.parse().map_err(|_| place(invalid()))).transpose()
    };
    let length = || -> Result<Option<u64>> { Ok(number(0)?.map(|n| n.max(0).unsigned_abs())) };
    match (Type::from_internal_name(name), name) {
        (Some(Type::Varchar), _) => match length()? {
            Some(length) => Ok((Type::Varchar, string_modifier("varchar", length)?)),
            None => Ok((Type::Varchar, NO_MODIFIER)),
        },
        (Some(Type::Bpchar), _) => match length()? {
            Some(length) => Ok((Type::Bpchar, string_modifier("char", length)?)),
            None => Ok((Type::Bpchar, NO_MODIFIER)),
        },
        (Some(Type::Numeric), _) => match (number(0)?, number(1)?) {
            (None, _) => Ok((Type::Numeric, NO_MODIFIER)),
            (Some(precision), scale) => Ok((Type::Numeric, numeric_modifier(precision, scale.unwrap_or(0))?)),
        },
        (Some(ty @ (Type::Timestamp | Type::TimestampTz)), _) => Ok((ty, digits_modifier(length()?))),
        (Some(ty), _) if arguments.is_empty() => Ok((ty, NO_MODIFIER)),
        (Some(ty), _) => Err(place(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("type modifier is not allowed for type \"{}\"", ty.internal_name()),
        ))),
        (
            None,
            "uuid" | "json" | "jsonb" | "interval" | "time" | "timetz" | "bit" | "varbit" | "money" | "xml",
        )
        | (None, "inet" | "cidr" | "macaddr" | "macaddr8" | "point" | "line" | "lseg" | "box" | "path")
        | (None, "polygon" | "circle" | "tsvector" | "tsquery" | "hstore" | "citext" | "int4range")
        | (None, "int8range" | "numrange" | "tsrange" | "tstzrange" | "daterange" | "pg_lsn" | "jsonpath") => {
            Err(place(Error::unsupported(format!("type {name}"))))
        }
        (None, _) => Err(place(undefined())),
    }
}

fn float(bits: u64) -> Result<(Type, Modifier)> {
    match bits {
        0 => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "precision for type float must be at least 1 bit",
        )),
        1..=24 => Ok((Type::Float4, NO_MODIFIER)),
        25..=53 => Ok((Type::Float8, NO_MODIFIER)),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "precision for type float must be less than 54 bits",
        )),
    }
}

fn character_length(length: Option<&ast::CharacterLength>) -> Result<Option<u64>> {
    match length {
        None => Ok(None),
        Some(ast::CharacterLength::IntegerLength { length, unit: None }) => Ok(Some(*length)),
        Some(ast::CharacterLength::IntegerLength { length: _, unit: Some(unit) }) => {
            Err(Error::unsupported(format!("length in {unit}")))
        }
        Some(ast::CharacterLength::Max) => Err(Error::unsupported("length MAX")),
    }
}

fn string_modifier(name: &str, length: u64) -> Result<Modifier> {
    let wrong = |what: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
    match length {
        0 => wrong(format!("length for type {name} must be at least 1")),
        1..=MAX_LENGTH => Ok(length as Modifier + 4),
        _ => wrong(format!("length for type {name} cannot exceed {MAX_LENGTH}")),
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<(Type, Modifier)> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok((Type::Numeric, NO_MODIFIER)),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    Ok((Type::Numeric, numeric_modifier(i64::try_from(precision).unwrap_or(i64::MAX), scale)?))
}

fn numeric_modifier(precision: i64, scale: i64) -> Result<Modifier> {
    let wrong = |what: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
    if !(1..=1000).contains(&precision) {
        return wrong(format!("NUMERIC precision {precision} must be between 1 and 1000"));
    }
    if !(-1000..=1000).contains(&scale) {
        return wrong(format!("NUMERIC scale {scale} must be between -1000 and 1000"));
    }
    Ok(((precision as Modifier) << 16 | (scale as Modifier & 0x7ff)) + 4)
}

/// Digits behind the second: more than six are six, as in PostgreSQL.
fn digits_modifier(digits: Option<u64>) -> Modifier {
    digits.map_or(NO_MODIFIER, |digits| digits.min(6) as Modifier)
}
