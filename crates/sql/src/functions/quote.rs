//! Quoting for SQL, and `format`.

use super::arguments::{int, present, text};
use super::string::{append, cast_to_text, count, reserve, text_bytes};
use super::{Call, Function};
use crate::types::Value;
use crate::types::text::quote_identifier;
use crate::{Error, Result, SqlState};
use std::iter;

/// Appends a string as a literal.
fn write_literal(text: &str, out: &mut String) {
    if text.contains('\\') {
        out.push('E');
    }
    out.push('\'');
    for c in text.chars() {
        out.extend(iter::repeat_n(c, if matches!(c, '\'' | '\\') { 2 } else { 1 }));
    }
    out.push('\'');
}

fn quote_ident(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, text.len().checked_mul(4))?;
    Ok(Value::text(quote_identifier(text)))
}

fn quote_literal(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let ty = call.types.first().copied().unwrap_or(crate::Type::Text);
    let value = a.first().unwrap_or(&Value::Null);
    // The text itself, and each character of it twice.
    reserve(call, text_bytes(call, value).checked_mul(3))?;
    let text = cast_to_text(call, value, ty)?;
    let text = text.as_str().unwrap_or_default();
    let mut out = String::new();
    write_literal(text, &mut out);
    Ok(Value::Text(out.into()))
}

fn quote_nullable(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if present(a, 0) { quote_literal(call, a) } else { Ok(Value::text("NULL")) }
}

fn bad_format(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn unterminated() -> Error {
    bad_format("unterminated format() type specifier").hint("For a single \"%\" use \"%%\".")
}

/// Where a format specifier's width comes from.
enum Width {
    None,
    Given(i64),
    Argument(Option<usize>),
}

/// `%[position$][-][width]type`
struct Specifier {
    position: Option<usize>,
    left: bool,
    width: Width,
    kind: char,
}

/// Digits in front of what remains.
fn number(rest: &mut &str) -> Result<Option<i64>> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 {
        return Ok(None);
    }
    let value: i32 = rest[..digits]
        .parse()
        .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range"))?;
    *rest = &rest[digits..];
    if rest.is_empty() { Err(unterminated()) } else { Ok(Some(i64::from(value))) }
}

fn argument_number(number: i64) -> Result<usize> {
    if number == 0 {
        return Err(bad_format("format specifies argument 0, but arguments are numbered from 1"));
    }
    Ok(number as usize)
}

fn specifier(rest: &mut &str) -> Result<Specifier> {
    let mut result = Specifier { position: None, left: false, width: Width::None, kind: ' ' };
    let take = |rest: &mut &str, c: char| match rest.strip_prefix(c) {
        Some("") => Err(unterminated()),
        Some(behind) => {
            *rest = behind;
            Ok(true)
        }
        None => Ok(false),
    };
    if rest.is_empty() {
        return Err(unterminated());
    }
    let mut given = number(rest)?;
    if let Some(position) = given
        && take(rest, '$')?
    {
        result.position = Some(argument_number(position)?);
        given = None;
    }
    if let Some(width) = given {
        result.width = Width::Given(width);
    } else {
        while take(rest, '-')? {
            result.left = true;
        }
        if take(rest, '*')? {
            let position = number(rest)?;
            if position.is_some() && !take(rest, '$')? {
                return Err(bad_format("width argument position must be ended by \"$\""));
            }
            result.width = Width::Argument(position.map(argument_number).transpose()?);
        } else if let Some(width) = number(rest)? {
            result.width = Width::Given(width);
        }
    }
    let Some(kind) = rest.chars().next() else { return Err(unterminated()) };
    *rest = &rest[kind.len_utf8()..];
    result.kind = kind;
    Ok(result)
}

fn format(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let mut rest = text(a, 0)?;
    reserve(call, Some(rest.len()))?;
    let mut out = String::with_capacity(rest.len());
    let mut last = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let specifier = specifier(&mut rest)?;
        if !matches!(specifier.kind, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{}\"", specifier.kind);
            return Err(bad_format(message).hint("For a single \"%\" use \"%%\"."));
        }
        let mut width = width(&specifier.width, a, &mut last, call)?;
        let index = specifier.position.unwrap_or(last + 1);
        last = index;
        if index >= a.len() {
            return Err(bad_format("too few arguments for format()"));
        }
        // The text itself, and each character of it twice.
        let longest = text_bytes(call, &a[index]).checked_mul(3);
        reserve(call, longest.and_then(|bytes| bytes.checked_add(out.len() + rest.len())))?;
        let item = item(call, a, index, specifier.kind)?;
        let left = specifier.left || width < 0;
        width = width.abs();
        let padding = (width as usize).saturating_sub(count(&item));
        reserve(call, padding.checked_add(out.len() + 2 * item.len() + rest.len()))?;
        let blanks = iter::repeat_n(' ', padding);
        if left {
            out.push_str(&item);
            out.extend(blanks);
        } else {
            out.extend(blanks);
            out.push_str(&item);
        }
    }
    out.push_str(rest);
    Ok(Value::Text(out.into()))
}

fn width(width: &Width, a: &[Value], last: &mut usize, call: &Call<'_, '_>) -> Result<i64> {
    let index = match width {
        Width::None => return Ok(0),
        Width::Given(width) => return Ok(*width),
        Width::Argument(position) => position.unwrap_or(*last + 1),
    };
    *last = index;
    if index >= a.len() {
        return Err(bad_format("too few arguments for format()"));
    }
    if !present(a, index) {
        return Ok(0);
    }
    let width = match &a[index] {
        Value::Int(_) => int(a, index)?,
        _ => {
            let mut text = String::new();
            append(call, a, index, &mut text);
            text.trim().parse().map_err(|_| Error::invalid_text("integer", &text))?
        }
    };
    // -2147483648 has no opposite.
    if i32::try_from(width).is_ok_and(|width| width != i32::MIN) {
        Ok(width)
    } else {
        Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "number is out of range"))
    }
}

fn item(call: &Call<'_, '_>, a: &[Value], index: usize, kind: char) -> Result<String> {
    let mut text = String::new();
    append(call, a, index, &mut text);
    let is_null = !present(a, index);
    match kind {
        'I' if is_null => {
            let message = "null values cannot be formatted as an SQL identifier";
            Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message))
        }
        'I' => Ok(quote_identifier(&text).into_owned()),
        'L' if is_null => Ok("NULL".to_owned()),
        'L' => {
            let mut out = String::with_capacity(text.len() + 2);
            write_literal(&text, &mut out);
            Ok(out)
        }
        _ => Ok(text),
    }
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1282 "quote_ident" (Text) Text = quote_ident;
    1283 "quote_literal" (Text) Text = quote_literal;
    1285 "quote_literal" (anyelement) Text.stable() = quote_literal;
    1289 "quote_nullable" (Text) Text.lax() = quote_nullable;
    1290 "quote_nullable" (anyelement) Text.lax().stable() = quote_nullable;
    3539 "format" (Text any) Text.variadic().lax().stable() = format;
    3540 "format" (Text) Text.lax().stable() = format;
};
