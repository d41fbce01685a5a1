//! Text of arrays, vectors and records.

use super::{TextStyle, is_space, scalars};
use crate::types::{Array, Modifier, Record, Type, Value};
use crate::{Error, Result, SqlState};
use std::sync::Arc;

/// Elements of an array, at most.
const MAX_ELEMENTS: usize = 1 << 27;

fn malformed(text: &str, detail: impl Into<String>) -> Error {
    let message = format!("malformed array literal: \"{text}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message).detail(detail)
}

/// Reads an array of one dimension: `{1,2,NULL}`, `{"a b","c\"d"}`, `[0:1]={1,2}`.
pub(super) fn read_array(text: &str, ty: Type, modifier: Modifier, style: &TextStyle) -> Result<Value> {
    let element = ty.element().ok_or_else(|| Error::internal("not an array"))?;
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    let bounds = reader.bounds()?;
    let values = reader.elements(element, modifier, style)?;
    let (lower, length) = bounds.unwrap_or((1, values.len()));
    if length != values.len() {
        return Err(malformed(text, "Specified array dimensions do not match array contents."));
    }
    Array::check_bounds(lower, length)?;
    Ok(Value::Array(Arc::new(Array { element, values, lower })))
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.at += self.bytes[self.at..].iter().take_while(|byte| is_space(**byte)).count();
    }

    fn bad(&self, detail: impl Into<String>) -> Error {
        malformed(self.text, detail)
    }

    fn unexpected_end(&self) -> Error {
        self.bad("Unexpected end of input.")
    }

    /// `[lower:upper]=`, as first index and number of elements.
    fn bounds(&mut self) -> Result<Option<(i32, usize)>> {
        self.skip_space();
        if self.peek() != Some(b'[') {
            return match self.peek() {
                Some(b'{') => Ok(None),
                _ => Err(self.bad("Array value must start with \"{\" or dimension information.")),
            };
        }
        self.at += 1;
        let first = self.bound()?;
        let (lower, upper) = if self.peek() == Some(b':') {
            self.at += 1;
            (first, self.bound()?)
        } else {
            (1, first)
        };
        if self.peek() != Some(b']') {
            return Err(self.bad("Missing \"]\" after array dimensions."));
        }
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'[') {
            return Err(Error::unsupported("an array of more than one dimension"));
        }
        if self.peek() != Some(b'=') {
            return Err(self.bad("Missing \"=\" after array dimensions."));
        }
        self.at += 1;
        self.skip_space();
        if self.peek() != Some(b'{') {
            return Err(self.bad("Array contents must start with \"{\"."));
        }
        if upper < lower {
            let message = "upper bound cannot be less than lower bound";
            return Err(Error::new(SqlState("2202E"), message));
        }
        let length = i64::from(upper) - i64::from(lower) + 1;
        Ok(Some((lower, length as usize)))
    }

    fn bound(&mut self) -> Result<i32> {
        let start = self.at;
        self.at += usize::from(matches!(self.peek(), Some(b'-' | b'+')));
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(self.bad("\"[\" must introduce explicitly-specified array dimensions."));
        }
        self.at += digits;
        self.text[start..self.at]
            .parse()
            .map_err(|_| Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "array bound is out of integer range"))
    }

    fn elements(&mut self, element: Type, modifier: Modifier, style: &TextStyle) -> Result<Vec<Value>> {
        // The opening brace.
        self.at += 1;
        let mut values = Vec::new();
        let mut piece = String::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.end()?;
            return Ok(values);
        }
        loop {
            self.skip_space();
            let quoted = self.element(&mut piece)?;
            values.push(if !quoted && piece.eq_ignore_ascii_case("null") {
                Value::Null
            } else {
                super::read(&piece, element, modifier, style)?
            });
            if values.len() > MAX_ELEMENTS {
                let message = format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})");
                return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    self.end()?;
                    return Ok(values);
                }
                Some(_) => return Err(self.bad("Unexpected array element.")),
                None => return Err(self.unexpected_end()),
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        self.skip_space();
        if self.at < self.bytes.len() { Err(self.bad("Junk after closing right brace.")) } else { Ok(()) }
    }

    /// One element, without its quotes and escapes; whether it had any, so that it cannot mean NULL.
    fn element(&mut self, piece: &mut String) -> Result<bool> {
        piece.clear();
        match self.peek() {
            Some(b'{') if self.opens_dimension() => {
                return Err(Error::unsupported("an array of more than one dimension"));
            }
            Some(byte @ (b'{' | b',' | b'}')) => {
                return Err(self.bad(format!("Unexpected \"{}\" character.", char::from(byte))));
            }
            None => return Err(self.unexpected_end()),
            _ => {}
        }
        let quoted = self.peek() == Some(b'"');
        self.at += usize::from(quoted);
        // What is escaped counts even where it is a blank.
        let (mut kept, mut escapes) = (0, false);
        loop {
            let character = self.text[self.at..].chars().next().ok_or_else(|| self.unexpected_end())?;
            match character {
                '\\' => {
                    self.at += 1;
                    let escaped = self.text[self.at..].chars().next().ok_or_else(|| self.unexpected_end())?;
                    self.at += escaped.len_utf8();
                    piece.push(escaped);
                    kept = piece.len();
                    escapes = true;
                    continue;
                }
                '"' if quoted => {
                    self.at += 1;
                    return Ok(true);
                }
                '"' => return Err(self.bad("Unexpected array element.")),
                ',' | '}' if !quoted => break,
                '{' if !quoted => return Err(self.bad("Unexpected \"{\" character.")),
                _ => {
                    piece.push(character);
                    if quoted || !(character.is_ascii() && is_space(character as u8)) {
                        kept = piece.len();
                    }
                }
            }
            self.at += character.len_utf8();
        }
        piece.truncate(kept);
        Ok(escapes)
    }

    /// Whether a brace here is a second dimension's: it comes first among the elements.
    fn opens_dimension(&self) -> bool {
        self.bytes[..self.at].iter().rev().find(|byte| !is_space(**byte)) == Some(&b'{')
    }
}

/// Appends an array.
pub(super) fn write_array(array: &Array, style: &TextStyle, out: &mut String) {
    if array.values.is_empty() {
        out.push_str("{}");
        return;
    }
    if array.lower != 1 {
        let upper = i64::from(array.lower) + array.values.len() as i64 - 1;
        out.push('[');
        scalars::write_integer(i64::from(array.lower), out);
        out.push(':');
        scalars::write_integer(upper, out);
        out.push_str("]=");
    }
    let mut piece = String::new();
    for (index, value) in array.values.iter().enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        if value.is_null() {
            out.push_str("NULL");
            continue;
        }
        piece.clear();
        super::write(value, array.element, style, &mut piece);
        let special = |byte: u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || is_space(byte);
        if piece.is_empty() || piece.eq_ignore_ascii_case("null") || piece.bytes().any(special) {
            push_quoted(
                &piece,
                |character, out| {
                    if matches!(character, '"' | '\\') {
                        out.push('\\');
                    }
                },
                out,
            );
        } else {
            out.push_str(&piece);
        }
    }
    out.push('}');
}

/// Text in quotes; `escape` writes what goes before a character.
fn push_quoted(text: &str, escape: impl Fn(char, &mut String), out: &mut String) {
    out.push('"');
    for character in text.chars() {
        escape(character, out);
        out.push(character);
    }
    out.push('"');
}

/// Reads numbers separated by blanks.
pub(super) fn read_vector(text: &str, ty: Type) -> Result<Value> {
    let element = ty.element().ok_or_else(|| Error::internal("not a vector"))?;
    let values = text
        .split(|c: char| c.is_ascii() && is_space(c as u8))
        .filter(|piece| !piece.is_empty())
        .map(|piece| match element {
            Type::Int2 => scalars::read_integer(piece, element),
            _ => scalars::read_oid(piece, element),
        })
        .map(|number| number.map(Value::Int))
        .collect::<Result<Vec<_>>>()?;
    Ok(Value::Array(Arc::new(Array { element, values, lower: 0 })))
}

/// Appends numbers separated by blanks.
pub(super) fn write_vector(array: &Array, out: &mut String) {
    for (index, value) in array.values.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        scalars::write_integer(value.as_int().unwrap_or(0), out);
    }
}

/// Appends a record. Its fields' types are those that their variants show.
pub(super) fn write_record(record: &Record, style: &TextStyle, out: &mut String) {
    let mut piece = String::new();
    out.push('(');
    for (index, (value, ty)) in record.values.iter().zip(&*record.types).enumerate() {
        if index > 0 {
            out.push(',');
        }
        if value.is_null() {
            continue;
        }
        piece.clear();
        super::write(value, *ty, style, &mut piece);
        let special = |byte: u8| matches!(byte, b'"' | b'\\' | b'(' | b')' | b',') || is_space(byte);
        if piece.is_empty() || piece.bytes().any(special) {
            push_quoted(
                &piece,
                |character, out| {
                    if matches!(character, '"' | '\\') {
                        out.push(character);
                    }
                },
                out,
            );
        } else {
            out.push_str(&piece);
        }
    }
    out.push(')');
}
