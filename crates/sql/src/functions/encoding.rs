//! `encode` and `decode`: bytes as hexadecimal digits, in base 64, or with escapes.

use super::arguments::{bytes, text};
use super::string::reserve;
use super::{Call, Function};
use crate::types::Value;
use crate::types::text::read_hex;
use crate::{Error, Result, SqlState};

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Two hexadecimal digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    out
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line.
const LINE: usize = 76;

fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4 + bytes.len() / 57);
    let mut line = 0;
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for index in 0..4 {
            let digit = (word >> (18 - 6 * index)) & 63;
            out.push(if index <= group.len() { char::from(BASE64[digit as usize]) } else { '=' });
        }
        line += 4;
        // As in PostgreSQL: behind each full line, also the last one, but not where it ends in padding.
        if line == LINE && group.len() == 3 {
            out.push('\n');
            line = 0;
        }
    }
    out
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut digits, mut end) = (0_u32, 0, 0);
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\n' | '\t' | '\r')) {
        let digit = if c == '=' {
            // The end: after two digits, or three.
            if end == 0 {
                end = match digits {
                    2 => 1,
                    3 => 2,
                    _ => return Err(bad("unexpected \"=\" while decoding base64 sequence")),
                };
            }
            0
        } else {
            let digit = u8::try_from(c).ok().and_then(|c| BASE64.iter().position(|digit| *digit == c));
            // Behind the end, others may follow, as in PostgreSQL.
            digit
                .ok_or_else(|| bad(format!("invalid symbol \"{c}\" found while decoding base64 sequence")))?
                as u32
        };
        word = word << 6 | digit;
        digits += 1;
        if digits == 4 {
            let bytes = word.to_be_bytes();
            out.extend_from_slice(&bytes[1..if end == 0 { 4 } else { end + 1 }]);
            (word, digits) = (0, 0);
        }
    }
    if digits != 0 {
        return Err(bad("invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn to_escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0 | 0x80.. => {
                out.push('\\');
                for shift in [6, 3, 0] {
                    out.push(char::from(b'0' + (byte >> shift & 7)));
                }
            }
            b'\\' => out.push_str("\\\\"),
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

fn from_escaped(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        match rest {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            [b'\\', behind @ ..] => {
                out.push(b'\\');
                rest = behind;
            }
            _ => {
                let message = "invalid input syntax for type bytea";
                return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
            }
        }
    }
    Ok(out)
}

fn unknown(encoding: &str) -> Error {
    bad(format!("unrecognized encoding: \"{encoding}\""))
}

fn encode(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (bytes, encoding) = (bytes(a, 0)?, text(a, 1)?);
    let kind = encoding.to_ascii_lowercase();
    let length = match kind.as_str() {
        "hex" => bytes.len().checked_mul(2),
        // A line and its end for 57 bytes.
        "base64" => (bytes.len() / 57 + 1).checked_mul(LINE + 1),
        "escape" => {
            let longer = bytes.iter().filter(|byte| matches!(byte, 0 | 0x80.. | b'\\')).count();
            longer.checked_mul(3).and_then(|more| more.checked_add(bytes.len()))
        }
        _ => return Err(unknown(encoding)),
    };
    reserve(call, length)?;
    let encoded = match kind.as_str() {
        "hex" => hex(bytes),
        "base64" => to_base64(bytes),
        _ => to_escaped(bytes),
    };
    Ok(Value::Text(encoded.into()))
}

fn decode(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let (text, encoding) = (text(a, 0)?, text(a, 1)?);
    // The bytes, and where they are moved to.
    reserve(call, text.len().checked_mul(2))?;
    let bytes = match encoding.to_ascii_lowercase().as_str() {
        "hex" => read_hex(text)?,
        "base64" => from_base64(text)?,
        "escape" => from_escaped(text)?,
        _ => return Err(unknown(encoding)),
    };
    Ok(Value::Bytes(bytes.into()))
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1946 "encode" (Bytea Text) Text = encode;
    1947 "decode" (Text Text) Bytea = decode;
};
