//! Functions of strings. Positions and lengths count characters; case is Unicode's, one character for one, as the C
//! library maps it.

use super::arguments::{int, int_or, present, text, text_or};
use super::{Call, Function};
use crate::exec::LARGE_BYTES;
use crate::types::cast;
use crate::types::text as output;
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Error, Result, SqlState};
use ::regex::Regex;
use compact_str::CompactString;
use std::fmt::Write;
use std::sync::LazyLock;

/// Largest value, as in PostgreSQL.
const LIMIT_BYTES: usize = 0x3fff_ffff;
/// Bytes that a character of a picture takes, and what it becomes in the result or is read from, at most.
const PICTURE_NODE: usize = 56;

fn too_long() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

/// Charges a result of so many bytes to the budget, where it is large. Fails when it may not be, or there is no room for it.
pub(super) fn reserve(call: &Call<'_, '_>, bytes: Option<usize>) -> Result<()> {
    match bytes {
        Some(bytes) if bytes <= LARGE_BYTES => Ok(()),
        Some(bytes) if bytes <= LIMIT_BYTES => call.context.reserve(bytes),
        _ => Err(too_long()),
    }
}

/// Room for a result whose size shows while it is made: reserved ahead, in steps, see [`reserve`].
#[derive(Debug)]
pub(super) struct Room<'a, 'b, 'c> {
    call: &'a Call<'b, 'c>,
    bytes: usize,
    /// Whether there was no room for as much again.
    scarce: bool,
}

impl<'a, 'b, 'c> Room<'a, 'b, 'c> {
    pub(super) fn new(call: &'a Call<'b, 'c>) -> Self {
        Room { call, bytes: LARGE_BYTES, scarce: false }
    }

    /// Sees to it that so many bytes in all are reserved.
    #[inline]
    pub(super) fn want(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes { self.grow(bytes) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> Result<()> {
        let ample = |more: usize| bytes.saturating_add(more).min(LIMIT_BYTES).max(bytes);
        if !self.scarce {
            self.bytes = ample(bytes);
            match reserve(self.call, Some(self.bytes)) {
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY => self.scarce = true,
                result => return result,
            }
        }
        self.bytes = ample(LARGE_BYTES);
        reserve(self.call, Some(self.bytes))
    }
}

/// A picture of `to_char` and its kin, with room for what is made of it.
pub(super) fn picture<'a>(call: &Call<'_, '_>, a: &'a [Value], index: usize) -> Result<&'a str> {
    let picture = text(a, index)?;
    reserve(call, picture.len().checked_mul(PICTURE_NODE))?;
    Ok(picture)
}

/// Appends characters, which may be very many: a cancelled statement ends among them.
fn extend(
    call: &Call<'_, '_>,
    out: &mut CompactString,
    mut characters: impl Iterator<Item = char>,
) -> Result<()> {
    loop {
        let before = out.len();
        out.extend(characters.by_ref().take(LARGE_BYTES));
        if out.len() - before < LARGE_BYTES {
            return Ok(());
        }
        call.context.check()?;
    }
}

/// A string of characters.
fn gathered(call: &Call<'_, '_>, characters: impl Iterator<Item = char>) -> Result<Value> {
    let mut text = CompactString::default();
    extend(call, &mut text, characters)?;
    Ok(Value::Text(text))
}

/// A string made of others.
fn made(text: String) -> Result<Value> {
    Ok(Value::Text(CompactString::from(text)))
}

/// A part of another.
fn part(call: &Call<'_, '_>, text: &str) -> Result<Value> {
    reserve(call, Some(text.len()))?;
    Ok(Value::Text(CompactString::new(text)))
}

/// Characters of a string.
pub(super) fn count(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

fn whole(number: usize) -> Result<Value> {
    Ok(Value::Int(number as i64))
}

fn length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    whole(count(text(a, 0)?))
}

fn unpadded_length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    whole(count(text(a, 0)?.trim_end_matches(' ')))
}

fn octet_length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    whole(text(a, 0)?.len())
}

fn bit_length(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    whole(text(a, 0)?.len().saturating_mul(8))
}

/// The lower-case character.
pub(super) fn lower_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    c.to_lowercase().next().unwrap_or(c)
}

/// The upper-case character; itself where that is more than one. Greek letters with a small iota below have one as in titles, which
/// counts.
pub(super) fn upper_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut mapped = c.to_uppercase();
    let further = match (mapped.next(), mapped.next()) {
        (Some(upper), None) => return upper,
        _ => match c {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => 8,
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => 9,
            _ => 0,
        },
    };
    char::from_u32(u32::from(c) + further).unwrap_or(c)
}

fn lower(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, Some(text.len()))?;
    if text.is_ascii() {
        let mut text = CompactString::new(text);
        text.make_ascii_lowercase();
        return Ok(Value::Text(text));
    }
    gathered(call, text.chars().map(lower_char))
}

fn upper(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, Some(text.len()))?;
    if text.is_ascii() {
        let mut text = CompactString::new(text);
        text.make_ascii_uppercase();
        return Ok(Value::Text(text));
    }
    gathered(call, text.chars().map(upper_char))
}

/// Whether a character is a digit of some script: `²` and `½` are none.
fn is_digit(c: char) -> bool {
    static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\A\p{Nd}").ok());
    let is_one = || DIGIT.as_ref().is_some_and(|digit| digit.is_match(c.encode_utf8(&mut [0; 4])));
    c.is_ascii_digit() || (c.is_numeric() && is_one())
}

fn initcap(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, Some(text.len()))?;
    let mut within = false;
    let capital = |c: char| {
        let mapped = if within { lower_char(c) } else { upper_char(c) };
        within = c.is_alphabetic() || is_digit(c);
        mapped
    };
    gathered(call, text.chars().map(capital))
}

/// Where the character with this number stands, in bytes; the end where there is none.
fn offset(text: &str, characters: usize) -> usize {
    if characters >= text.len() {
        text.len()
    } else if text.is_ascii() {
        characters
    } else {
        text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
    }
}

pub(super) fn negative_length() -> Error {
    Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed")
}

/// First element and number of elements of `substring(... from start for length)`, from 0.
pub(super) fn span(start: i64, length: Option<i64>) -> Result<(usize, usize)> {
    let first = start.max(1);
    let Some(length) = length else { return Ok((first as usize - 1, usize::MAX)) };
    if length < 0 {
        return Err(negative_length());
    }
    let end = start.saturating_add(length);
    Ok((first as usize - 1, end.saturating_sub(first).max(0) as usize))
}

fn slice(text: &str, start: i64, length: Option<i64>) -> Result<&str> {
    let (first, length) = span(start, length)?;
    let rest = &text[offset(text, first)..];
    Ok(&rest[..offset(rest, length)])
}

fn substring(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let length = if a.len() > 2 { Some(int(a, 2)?) } else { None };
    part(call, slice(text(a, 0)?, int(a, 1)?, length)?)
}

/// Where the last `count` characters begin.
fn from_end(text: &str, count: usize) -> usize {
    if count == 0 {
        return text.len();
    }
    text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at)
}

fn left(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, wanted) = (text(a, 0)?, int(a, 1)?);
    let characters = wanted.unsigned_abs() as usize;
    part(call, &text[..if wanted < 0 { from_end(text, characters) } else { offset(text, characters) }])
}

fn right(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, wanted) = (text(a, 0)?, int(a, 1)?);
    let characters = wanted.unsigned_abs() as usize;
    part(call, &text[if wanted < 0 { offset(text, characters) } else { from_end(text, characters) }..])
}

/// The text cut to a length, and what is put before or behind it.
fn pad(call: &Call<'_, '_>, a: &[Value], before: bool) -> Result<Value> {
    let (text, wanted, fill) = (text(a, 0)?, int(a, 1)?.max(0) as usize, text_or(a, 2, " ")?);
    let present = count(text);
    if wanted <= present || fill.is_empty() {
        return part(call, &text[..offset(text, wanted)]);
    }
    if wanted > LIMIT_BYTES / 4 {
        return Err(too_long());
    }
    let missing = wanted - present;
    let longest = fill.chars().map(char::len_utf8).max().unwrap_or(1);
    reserve(call, missing.checked_mul(longest).and_then(|bytes| bytes.checked_add(text.len())))?;
    let padding = fill.chars().cycle().take(missing);
    let mut result = CompactString::with_capacity(missing + text.len());
    if !before {
        result.push_str(text);
    }
    extend(call, &mut result, padding)?;
    if before {
        result.push_str(text);
    }
    Ok(Value::Text(result))
}

fn lpad(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    pad(call, a, true)
}

fn rpad(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    pad(call, a, false)
}

/// What `cut` leaves of a text, given which characters go: those of the set that is argument 1.
fn trimmed(
    call: &Call<'_, '_>,
    a: &[Value],
    cut: impl for<'t> FnOnce(&'t str, &dyn Fn(char) -> bool) -> &'t str,
) -> Result<Value> {
    let set = text_or(a, 1, " ")?;
    // All of the set may have to be looked through for each character.
    let left = cut(text(a, 0)?, &|c| set.contains(c) && call.context.check().is_ok());
    call.context.check()?;
    part(call, left)
}

fn ltrim(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    trimmed(call, a, |text, goes| text.trim_start_matches(goes))
}

fn rtrim(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    trimmed(call, a, |text, goes| text.trim_end_matches(goes))
}

fn btrim(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    trimmed(call, a, |text, goes| text.trim_matches(goes))
}

fn replace(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, from, to) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
    if from.is_empty() || !text.contains(from) {
        return part(call, text);
    }
    let longest = (text.len() / from.len()).saturating_mul(to.len());
    if to.len() > from.len() && longest > LARGE_BYTES {
        let more = text.matches(from).count().checked_mul(to.len() - from.len());
        reserve(call, more.and_then(|more| more.checked_add(text.len())))?;
    } else {
        reserve(call, Some(text.len()))?;
    }
    made(text.replace(from, to))
}

fn translate(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, from, to) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
    let longest = to.chars().map(char::len_utf8).max().unwrap_or(1);
    reserve(call, text.len().checked_mul(longest))?;
    let mut translated = CompactString::default();
    for c in text.chars() {
        // All of `from` may have to be looked through for each.
        call.context.check()?;
        match from.chars().position(|other| other == c) {
            Some(position) => translated.extend(to.chars().nth(position)),
            None => translated.push(c),
        }
    }
    Ok(Value::Text(translated))
}

fn position(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    whole(text.find(super::arguments::text(a, 1)?).map_or(0, |at| count(&text[..at]) + 1))
}

fn repeat(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, times) = (text(a, 0)?, int(a, 1)?.max(0) as usize);
    reserve(call, text.len().checked_mul(times))?;
    Ok(Value::Text(CompactString::from(text.repeat(times))))
}

fn reverse(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, Some(text.len()))?;
    gathered(call, text.chars().rev())
}

fn split_part(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, delimiter, field) = (text(a, 0)?, text(a, 1)?, int(a, 2)?);
    if field == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let number = field.unsigned_abs() as usize;
    let found = if delimiter.is_empty() {
        (number == 1).then_some(text)
    } else if field > 0 {
        text.split(delimiter).nth(number - 1)
    } else {
        // Where the delimiter overlaps itself, fields are still told apart from the left.
        let fields = text.split(delimiter).count();
        fields.checked_sub(number).and_then(|index| text.split(delimiter).nth(index))
    };
    part(call, found.unwrap_or(""))
}

fn starts_with(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(text(a, 0)?.starts_with(text(a, 1)?)))
}

fn concatenate(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (a, b) = (text(a, 0)?, text(a, 1)?);
    reserve(call, a.len().checked_add(b.len()))?;
    let mut result = CompactString::with_capacity(a.len() + b.len());
    result.push_str(a);
    result.push_str(b);
    Ok(Value::Text(result))
}

/// A value as a cast to text has it: `true`, where the text representation is `t`.
pub(super) fn cast_to_text(call: &Call<'_, '_>, value: &Value, ty: Type) -> Result<Value> {
    if let Value::Text(_) = value {
        return Ok(value.clone());
    }
    cast::cast(value.clone(), ty, Type::Text, NO_MODIFIER, true, &call.context.session.style)
}

fn concatenate_any(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (mut result, mut room) = (CompactString::default(), Room::new(call));
    for (value, ty) in a.iter().zip(call.types) {
        // The text itself, and its copy in the result.
        room.want(result.len() + 2 * text_bytes(call, value))?;
        let text = cast_to_text(call, value, *ty)?;
        let text = text.as_str().unwrap_or_default();
        room.want(result.len() + text.len())?;
        result.push_str(text);
    }
    Ok(Value::Text(result))
}

/// Bytes of a value's text, about and from above for one that may be long.
pub(super) fn text_bytes(call: &Call<'_, '_>, value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        Value::Text(text) | Value::Padded(text) => text.len(),
        other => output::text_size(other, Type::Unknown, &call.context.session.style).all(),
    }
}

/// Appends the text of an argument, for which there has to be room; nothing for NULL.
pub(super) fn append_within(
    room: &mut Room<'_, '_, '_>,
    a: &[Value],
    index: usize,
    out: &mut String,
) -> Result<()> {
    room.want(out.len() + a.get(index).map_or(0, |value| text_bytes(room.call, value)))?;
    append(room.call, a, index, out);
    room.want(out.len())
}

/// Appends the text of an argument; nothing for NULL.
pub(super) fn append(call: &Call<'_, '_>, a: &[Value], index: usize, out: &mut String) {
    match a.get(index) {
        None | Some(Value::Null) => {}
        Some(Value::Text(text) | Value::Padded(text)) => out.push_str(text),
        Some(value) => {
            let ty = call.types.get(index).copied().unwrap_or(Type::Text);
            output::write(value, ty, &call.context.session.style, out);
        }
    }
}

fn concat(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (mut result, mut room) = (String::new(), Room::new(call));
    for index in 0..a.len() {
        append_within(&mut room, a, index, &mut result)?;
    }
    made(result)
}

fn concat_ws(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    if !present(a, 0) {
        return Ok(Value::Null);
    }
    let separator = text(a, 0)?;
    let (mut result, mut room) = (String::new(), Room::new(call));
    let mut first = true;
    for index in (1..a.len()).filter(|index| present(a, *index)) {
        if !first {
            room.want(result.len() + separator.len())?;
            result.push_str(separator);
        }
        first = false;
        append_within(&mut room, a, index, &mut result)?;
    }
    made(result)
}

fn ascii(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Int(text(a, 0)?.chars().next().map_or(0, |c| i64::from(u32::from(c)))))
}

fn chr(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let number = int(a, 0)?;
    let beyond = |message: String| Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    if number < 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "character number must be positive"));
    }
    if number == 0 {
        return beyond("null character not permitted".to_owned());
    }
    if number > i64::from(u32::from(char::MAX)) {
        return beyond(format!("requested character too large for encoding: {number}"));
    }
    match char::from_u32(number as u32) {
        Some(c) => part(call, c.encode_utf8(&mut [0; 4])),
        None => beyond(format!("requested character not valid for encoding: {number}")),
    }
}

fn to_hex4(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut result = String::new();
    let _ = write!(result, "{:x}", int(a, 0)? as u32);
    made(result)
}

fn to_hex8(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut result = String::new();
    let _ = write!(result, "{:x}", int(a, 0)?);
    made(result)
}

fn overlay(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, new, start) = (text(a, 0)?, text(a, 1)?, int(a, 2)?);
    let length = int_or(a, 3, count(new) as i64)?;
    if start <= 0 {
        return Err(negative_length());
    }
    let behind = start + length;
    if i32::try_from(behind).is_err() {
        return Err(Error::out_of_range("integer"));
    }
    let (head, tail) = (slice(text, 1, Some(start - 1))?, slice(text, behind, None)?);
    reserve(call, Some(head.len() + new.len() + tail.len()))?;
    made([head, new, tail].concat())
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "||" 1258 "textcat" (Text Text) Text = concatenate;
    "||" 2003 "textanycat" (Text anynonarray) Text.stable() = concatenate_any;
    "||" 2004 "anytextcat" (anynonarray Text) Text.stable() = concatenate_any;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1317 "length" (Text) Int4 = length;
    1318 "length" (Bpchar) Int4 = unpadded_length;
    1381 "char_length" (Text) Int4 = length;
    1372 "char_length" (Bpchar) Int4 = unpadded_length;
    1369 "character_length" (Text) Int4 = length;
    1367 "character_length" (Bpchar) Int4 = unpadded_length;
    1374 "octet_length" (Text) Int4 = octet_length;
    1375 "octet_length" (Bpchar) Int4 = octet_length;
    1811 "bit_length" (Text) Int4 = bit_length;
    870 "lower" (Text) Text = lower;
    871 "upper" (Text) Text = upper;
    872 "initcap" (Text) Text = initcap;
    936 "substring" (Text Int4 Int4) Text = substring;
    937 "substring" (Text Int4) Text = substring;
    877 "substr" (Text Int4 Int4) Text = substring;
    883 "substr" (Text Int4) Text = substring;
    3060 "left" (Text Int4) Text = left;
    3061 "right" (Text Int4) Text = right;
    873 "lpad" (Text Int4 Text) Text = lpad;
    879 "lpad" (Text Int4) Text = lpad;
    874 "rpad" (Text Int4 Text) Text = rpad;
    880 "rpad" (Text Int4) Text = rpad;
    875 "ltrim" (Text Text) Text = ltrim;
    881 "ltrim" (Text) Text = ltrim;
    876 "rtrim" (Text Text) Text = rtrim;
    882 "rtrim" (Text) Text = rtrim;
    884 "btrim" (Text Text) Text = btrim;
    885 "btrim" (Text) Text = btrim;
    2087 "replace" (Text Text Text) Text = replace;
    878 "translate" (Text Text Text) Text = translate;
    849 "position" (Text Text) Int4 = position;
    868 "strpos" (Text Text) Int4 = position;
    1622 "repeat" (Text Int4) Text = repeat;
    3062 "reverse" (Text) Text = reverse;
    3696 "starts_with" (Text Text) Bool = starts_with;
    2088 "split_part" (Text Text Int4) Text = split_part;
    3058 "concat" (any) Text.variadic().lax().stable() = concat;
    3059 "concat_ws" (Text any) Text.variadic().lax().stable() = concat_ws;
    1620 "ascii" (Text) Int4 = ascii;
    1621 "chr" (Int4) Text = chr;
    2089 "to_hex" (Int4) Text = to_hex4;
    2090 "to_hex" (Int8) Text = to_hex8;
    1404 "overlay" (Text Text Int4 Int4) Text = overlay;
    1405 "overlay" (Text Text Int4) Text = overlay;
};
