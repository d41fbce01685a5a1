//! Text of booleans, integers, floats and bytea.

use super::{is_space, trim_space};
use crate::types::Type;
use crate::{Error, Result, SqlState};
use std::fmt::Write;
use std::sync::Arc;

/// Reads a boolean: any beginning of true, false, yes, no, on, off that is unambiguous, or 1 or 0.
pub fn read_bool(text: &str) -> Result<bool> {
    let word = trim_space(text);
    let begins = |whole: &str, least: usize| {
        word.len() >= least
            && word.len() <= whole.len()
            && whole.as_bytes()[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || word == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(Error::invalid_text("boolean", text))
    }
}

fn value_out_of_range(text: &str, type_name: &str) -> Error {
    let message = format!("value \"{text}\" is out of range for type {type_name}");
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

fn float_out_of_range(text: &str, type_name: &str) -> Error {
    let message = format!("\"{text}\" is out of range for type {type_name}");
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

/// Reads a whole number: blanks, sign, digits, blanks.
pub(super) fn read_integer(text: &str, ty: Type) -> Result<i64> {
    let bytes = text.as_bytes();
    let mut at = bytes.iter().take_while(|byte| is_space(**byte)).count();
    let negative = bytes.get(at) == Some(&b'-');
    at += usize::from(matches!(bytes.get(at), Some(b'-' | b'+')));
    let first = at;
    // Kept negative, where there is room for one more.
    let mut value = 0_i64;
    let (least, most) = match ty {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_sub(i64::from(digit - b'0')))
            .filter(|value| *value >= least)
            .ok_or_else(|| value_out_of_range(text, ty.name()))?;
        at += 1;
    }
    if at == first || !bytes[at..].iter().all(|byte| is_space(*byte)) {
        return Err(Error::invalid_text(ty.name(), text));
    }
    if negative {
        return Ok(value);
    }
    value.checked_neg().filter(|value| *value <= most).ok_or_else(|| value_out_of_range(text, ty.name()))
}

/// Reads an object number. A negative one is taken as unsigned, as PostgreSQL does.
pub(super) fn read_oid(text: &str, ty: Type) -> Result<i64> {
    let trimmed = trim_space(text);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::invalid_text(ty.name(), text));
    }
    match trimmed.parse::<i64>() {
        Ok(value) if (0..=i64::from(u32::MAX)).contains(&value) => Ok(value),
        Ok(value) if value < 0 && value >= i64::from(i32::MIN) => Ok(value + (1 << 32)),
        _ => Err(value_out_of_range(text, ty.name())),
    }
}

pub(super) fn write_integer(value: i64, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// What stands for no number.
fn special_float(text: &str) -> Option<f64> {
    let (sign, name) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if name.eq_ignore_ascii_case("nan") {
        Some(f64::NAN)
    } else if name.eq_ignore_ascii_case("infinity") || name.eq_ignore_ascii_case("inf") {
        Some(sign * f64::INFINITY)
    } else {
        None
    }
}

/// The digits of a float, checked to be such.
fn float_digits<'a>(text: &'a str, type_name: &str) -> Result<&'a str> {
    let trimmed = trim_space(text);
    let numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if trimmed.is_empty() || !trimmed.bytes().all(numeric) {
        return Err(Error::invalid_text(type_name, text));
    }
    Ok(trimmed)
}

/// Whether the digits before the exponent are all 0.
fn is_zero(digits: &str) -> bool {
    !digits
        .bytes()
        .take_while(|byte| !byte.eq_ignore_ascii_case(&b'e'))
        .any(|byte| matches!(byte, b'1'..=b'9'))
}

pub(super) fn read_float8(text: &str) -> Result<f64> {
    const NAME: &str = "double precision";
    if let Some(special) = special_float(trim_space(text)) {
        return Ok(special);
    }
    let digits = float_digits(text, NAME)?;
    let value: f64 = digits.parse().map_err(|_| Error::invalid_text(NAME, text))?;
    if value.is_infinite() || (value == 0.0 && !is_zero(digits)) {
        return Err(float_out_of_range(digits, NAME));
    }
    Ok(value)
}

pub(super) fn read_float4(text: &str) -> Result<f64> {
    const NAME: &str = "real";
    if let Some(special) = special_float(trim_space(text)) {
        return Ok(special);
    }
    let digits = float_digits(text, NAME)?;
    let value: f32 = digits.parse().map_err(|_| Error::invalid_text(NAME, text))?;
    if value.is_infinite() || (value == 0.0 && !is_zero(digits)) {
        return Err(float_out_of_range(digits, NAME));
    }
    Ok(f64::from(value))
}

/// Appends a float: the shortest text that reads back the same, or with `extra_float_digits` at most 0 so many digits fewer
/// or more than 15.
pub fn write_float8(value: f64, extra_float_digits: i32, out: &mut String) {
    if write_special(value, out) {
        return;
    }
    if extra_float_digits > 0 {
        let mut shortest = format!("{value:e}");
        // Below, the middle between two floats has more digits than a float needs.
        if value.abs() >= TIES_FROM_FLOAT8 {
            shortest = nearer_than_any(
                shortest,
                |digits| format!("{value:.digits$e}"),
                |text| text.parse::<f64>().is_ok_and(|read| read == value),
            );
        } else if digits_of(&shortest) >= 16 && (value * FRACTION_FLOAT8).fract() == 0.0 {
            shortest = to_even(
                shortest,
                |digits| format!("{value:.digits$e}"),
                |text| text.parse::<f64>().is_ok_and(|read| read == value),
            );
        }
        arrange(&shortest, 15, out);
    } else {
        let digits = (15 + extra_float_digits).max(1);
        arrange(&format!("{value:.*e}", digits as usize - 1), digits, out);
    }
}

/// As [`write_float8`] for single precision, where 6 digits are certain.
pub fn write_float4(value: f32, extra_float_digits: i32, out: &mut String) {
    if write_special(f64::from(value), out) {
        return;
    }
    if extra_float_digits > 0 {
        let mut shortest = format!("{value:e}");
        if value.abs() >= TIES_FROM_FLOAT4 {
            shortest = nearer_than_any(
                shortest,
                |digits| format!("{value:.digits$e}"),
                |text| text.parse::<f32>().is_ok_and(|read| read == value),
            );
        } else if digits_of(&shortest) >= 7 && (value * FRACTION_FLOAT4).fract() == 0.0 {
            shortest = to_even(
                shortest,
                |digits| format!("{value:.digits$e}"),
                |text| text.parse::<f32>().is_ok_and(|read| read == value),
            );
        }
        arrange(&shortest, 6, out);
    } else {
        let digits = (6 + extra_float_digits).max(1);
        arrange(&format!("{value:.*e}", digits as usize - 1), digits, out);
    }
}

/// Least floats that have a middle to the next one with so few digits that it could be written for them: 2 to the power of 52,
/// and of 22.
const TIES_FROM_FLOAT8: f64 = 4_503_599_627_370_496.0;
const TIES_FROM_FLOAT4: f32 = 4_194_304.0;

/// A float may lie in the middle between two texts of equal length only if it has at most 18 digits (10 in single precision), and so at
/// most 25 bits (14) behind the point: this times it is a whole number.
const FRACTION_FLOAT8: f64 = 33_554_432.0;
const FRACTION_FLOAT4: f32 = 16_384.0;

/// Of the two shortest texts that a float lies in the middle of, the one with the even last digit. Any other float has but one.
fn to_even(shortest: String, nearest: impl Fn(usize) -> String, reads_back: impl Fn(&str) -> bool) -> String {
    let even = nearest(digits_of(&shortest) - 1);
    if reads_back(&even) { even } else { shortest }
}

fn digits_of(scientific: &str) -> usize {
    scientific.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count()
}

/// The shortest text that reads back the same may lie in the middle between two floats, where it does so only as ties go to the even
/// one. As PostgreSQL does, that is not relied on: then it is the nearest text with as few digits more as needed.
fn nearer_than_any(
    shortest: String,
    nearest: impl Fn(usize) -> String,
    reads_back: impl Fn(&str) -> bool,
) -> String {
    if !is_tie(&shortest, &reads_back) {
        return shortest;
    }
    (digits_of(&shortest)..=17)
        .map(nearest)
        .find(|text| !text.contains("0e") && reads_back(text) && !is_tie(text, &reads_back))
        .unwrap_or(shortest)
}

/// Whether the least step up or down leads to another float. The last digit is none of 0.
fn is_tie(scientific: &str, reads_back: &impl Fn(&str) -> bool) -> bool {
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return false };
    let point = if mantissa.contains('.') { "" } else { "." };
    let (head, last) = mantissa.split_at(mantissa.len() - 1);
    let below = last.parse::<u8>().unwrap_or(1).saturating_sub(1);
    let up = format!("{mantissa}{point}{:030}1e{exponent}", 0);
    let down = format!("{head}{below}{point}{}e{exponent}", "9".repeat(31));
    !(reads_back(&up) && reads_back(&down))
}

fn write_special(value: f64, out: &mut String) -> bool {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        return false;
    }
    true
}

/// Digits and exponent, as C's `%g` arranges them: without exponent if that is at least -4 and below `limit`.
fn arrange(scientific: &str, limit: i32, out: &mut String) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (first, rest) = mantissa.split_at(1);
    let rest = rest.trim_start_matches('.').trim_end_matches('0');
    out.push_str(sign);
    if !(-4..limit).contains(&exponent) {
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        // Writing to a string does not fail.
        let _ = write!(out, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    } else if exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(first);
        out.push_str(rest);
    } else {
        let whole = exponent as usize;
        out.push_str(first);
        if rest.len() <= whole {
            out.push_str(rest);
            (rest.len()..whole).for_each(|_| out.push('0'));
        } else {
            out.push_str(&rest[..whole]);
            out.push('.');
            out.push_str(&rest[whole..]);
        }
    }
}

/// Reads bytea in hexadecimal (`\x...`) or escape form.
pub(super) fn read_bytes(text: &str) -> Result<Arc<[u8]>> {
    let bytes = match text.strip_prefix("\\x") {
        Some(hex) => read_hex(hex)?,
        None => read_escaped(text.as_bytes())?,
    };
    Ok(bytes.into())
}

/// Bytes of two hexadecimal digits each; white space may stand between those of two bytes. Error: 22023.
pub fn read_hex(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut characters = text.chars();
    let digit = |character: char| -> Result<u8> {
        character.to_digit(16).map(|digit| digit as u8).ok_or_else(|| {
            let message = format!("invalid hexadecimal digit: \"{character}\"");
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    while let Some(character) = characters.next() {
        if matches!(character, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high = digit(character)?;
        let Some(character) = characters.next() else {
            let message = "invalid hexadecimal data: odd number of digits";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        bytes.push(high << 4 | digit(character)?);
    }
    Ok(bytes)
}

fn read_escaped(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', rest @ ..] => {
                bytes.push(b'\\');
                rest
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            [b'\\', ..] => {
                let message = "invalid input syntax for type bytea";
                return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

pub(super) fn write_bytes(bytes: &[u8], hex: bool, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if hex {
        out.reserve(2 + bytes.len() * 2);
        out.push_str("\\x");
        for byte in bytes {
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        return;
    }
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(char::from(*byte)),
            // Writing to a string does not fail.
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}
