//! String literals that the tokenizer does not read as PostgreSQL does: those with escapes (`E'...'`), and those in several parts,
//! `'a'` on one line and `'b'` on the next.
//!
//! The tokenizer gets a text in which there are blanks between the quotes of such a literal, so that every place stays what it is. What
//! the literal means takes the place of the token made of it.

use crate::types::text::check_utf8;
use crate::{Error, Result, SqlState};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};
use std::borrow::Cow;

/// A literal whose token is known.
pub(super) struct Literal {
    /// Its first byte.
    pub(super) start: usize,
    pub(super) token: Token,
}

/// The text for the tokenizer, and the literals that are blank in it, in order.
pub(super) fn blank(sql: &str) -> Result<(Cow<'_, str>, Vec<Literal>)> {
    let (mut text, mut literals, mut done) = (String::new(), Vec::new(), 0);
    let mut at = 0;
    while at < sql.len() {
        let (length, quote) = skip(&sql.as_bytes()[at..]);
        let Some(quote) = quote else {
            at += length;
            continue;
        };
        let prefix = &sql[at..at + quote];
        let escapes = prefix.eq_ignore_ascii_case("e");
        // What is not closed is the tokenizer's to complain about.
        let Some((parts, end)) = parts(sql, at + quote + 1, escapes) else { break };
        let joins = parts.len() > 1;
        let token = match escapes {
            true if joins || parts.iter().any(|part| part.contains('\\')) => Some(escaped(sql, &parts)?),
            false if joins || quote == 2 => Some(plain(sql, at, prefix, &parts)?),
            _ => None,
        };
        if let Some(token) = token {
            literals.push(Literal { start: at, token });
            text.push_str(&sql[done..=at + quote]);
            let inside = sql[at + quote + 1..end - 1].chars();
            text.extend(inside.map(|c| if c == '\n' { '\n' } else { ' ' }));
            done = end - 1;
        }
        at = end;
    }
    if literals.is_empty() {
        return Ok((Cow::Borrowed(sql), literals));
    }
    text.push_str(&sql[done..]);
    Ok((Cow::Owned(text), literals))
}

/// Bytes of what a text begins with, up to where a literal may begin next; where it is a literal, how long the prefix before its quote is.
fn skip(text: &[u8]) -> (usize, Option<usize>) {
    let length = match text[0] {
        b'\'' => return (0, Some(0)),
        b'"' => 1 + until(&text[1..], b"\""),
        b'-' if text.starts_with(b"--") => {
            text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len())
        }
        b'/' if text.starts_with(b"/*") => comment(text),
        b'$' => match text[1..].iter().position(|&byte| !is_word(byte)) {
            Some(end) if text[end + 1] == b'$' && !text[1].is_ascii_digit() => {
                end + 2 + until(&text[end + 2..], &text[..end + 2])
            }
            _ => 1,
        },
        b'u' | b'U' if text[1..].starts_with(b"&'") => return (0, Some(2)),
        b'e' | b'E' | b'n' | b'N' | b'x' | b'X' | b'b' | b'B' if text.get(1) == Some(&b'\'') => {
            return (0, Some(1));
        }
        first if is_word(first) && !first.is_ascii_digit() => {
            text.iter().take_while(|&&byte| is_word(byte) || byte == b'$').count()
        }
        _ => 1,
    };
    (length, None)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Bytes up to the end of the first `end` in a text; all of it where there is none.
fn until(text: &[u8], end: &[u8]) -> usize {
    text.windows(end.len()).position(|part| part == end).map_or(text.len(), |at| at + end.len())
}

/// Bytes of a comment, in which others may be.
fn comment(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// What stands between the quotes of a literal whose first part begins at `at`, part by part, and where it ends.
fn parts(sql: &str, mut at: usize, escapes: bool) -> Option<(Vec<&str>, usize)> {
    let bytes = sql.as_bytes();
    let mut parts = Vec::new();
    loop {
        let mut end = at;
        loop {
            match *bytes.get(end)? {
                b'\\' if escapes => end += 2,
                b'\'' if bytes.get(end + 1) == Some(&b'\'') => end += 2,
                b'\'' => break,
                _ => end += 1,
            }
        }
        parts.push(&sql[at..end]);
        match next_part(&bytes[end + 1..]) {
            Some(length) => at = end + 1 + length,
            None => return Some((parts, end + 1)),
        }
    }
}

/// How far behind a quote the next part of the literal begins: only blanks and comments up to the line's end are between them, and the
/// end of a line.
fn next_part(text: &[u8]) -> Option<usize> {
    let (mut at, mut lines) = (0, false);
    loop {
        match &text[at..] {
            [b' ' | b'\t' | b'\x0c', ..] => at += 1,
            [b'\n' | b'\r', ..] => (at, lines) = (at + 1, true),
            [b'-', b'-', rest @ ..] => {
                at += 2 + rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
            }
            [b'\'', ..] if lines => return Some(at + 1),
            _ => return None,
        }
    }
}

/// Any other literal, as if it were written in one part.
fn plain(sql: &str, start: usize, prefix: &str, parts: &[&str]) -> Result<Token> {
    let whole = format!("{prefix}'{}'", parts.concat());
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, &whole).tokenize();
    match tokens.map(|mut tokens| tokens.pop()) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(Error::internal("a literal without a token")),
        Err(_) => Err(Error::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape")
            .hint("Unicode escapes must be \\XXXX or \\+XXXXXX.")
            .at(place(sql, start))),
    }
}

/// The place of a byte, in characters from 1.
fn place(sql: &str, byte: usize) -> usize {
    sql[..byte].chars().count() + 1
}

/// A literal with escapes.
fn escaped(sql: &str, parts: &[&str]) -> Result<Token> {
    let mut value = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        let mut rest = *part;
        while let Some(at) = rest.find(['\\', '\'']) {
            value.extend_from_slice(&rest.as_bytes()[..at]);
            // A quote stands there twice.
            rest = if rest.as_bytes()[at] == b'\'' {
                value.push(b'\'');
                &rest[at + 2..]
            } else {
                let read = unescape(&rest[at + 1..], &mut value);
                let behind = read.map_err(|(back, error)| {
                    let byte = rest.as_ptr() as usize - sql.as_ptr() as usize + at + back;
                    error.at(place(sql, byte))
                })?;
                &rest[at + 1 + behind..]
            };
        }
        value.extend_from_slice(rest.as_bytes());
    }
    Ok(Token::EscapedStringLiteral(check_utf8(&value)?.to_owned()))
}

/// Adds what an escape means that stands behind a backslash, and says how long it is. An error comes with its distance from the backslash.
fn unescape(text: &str, value: &mut Vec<u8>) -> std::result::Result<usize, (usize, Error)> {
    let digits = |from: usize, most: usize, radix: u32| {
        text[from..].chars().take(most).take_while(|c| c.is_digit(radix)).count()
    };
    let number = |from: usize, length: usize, radix: u32| {
        u32::from_str_radix(&text[from..from + length], radix).unwrap_or_default()
    };
    let Some(first) = text.chars().next() else { return Ok(0) };
    match first {
        'b' => value.push(8),
        't' => value.push(b'\t'),
        'n' => value.push(b'\n'),
        'f' => value.push(0x0c),
        'r' => value.push(b'\r'),
        '0'..='7' => {
            let length = digits(0, 3, 8);
            value.push(number(0, length, 8) as u8);
            return Ok(length);
        }
        'x' if digits(1, 2, 16) > 0 => {
            let length = digits(1, 2, 16);
            value.push(number(1, length, 16) as u8);
            return Ok(1 + length);
        }
        'u' | 'U' => return unicode(text, value),
        other => {
            value.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(other.len_utf8());
        }
    }
    Ok(1)
}

/// `uXXXX`, `UXXXXXXXX`, or two of them that are a pair of surrogates.
fn unicode(text: &str, value: &mut Vec<u8>) -> std::result::Result<usize, (usize, Error)> {
    let one = |from: usize| {
        let length = if text[from..].starts_with('u') { 4 } else { 8 };
        let digits = text.get(from + 1..from + 1 + length)?;
        let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)?;
        Some((code, from + 1 + length))
    };
    let malformed = || {
        Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid Unicode escape")
            .hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.")
    };
    let syntax = |what: &str, near: &str| {
        let message = format!("invalid Unicode {what} at or near \"{near}\"");
        Error::new(SqlState::SYNTAX_ERROR, message)
    };
    let escape = |end: usize| format!("\\{}", &text[..end]);
    let Some((mut code, mut end)) = one(0) else { return Err((0, malformed())) };
    if (0xd800..0xdc00).contains(&code) {
        if !text[end..].starts_with("\\u") && !text[end..].starts_with("\\U") {
            let next = text[end..].chars().next().unwrap_or('\'');
            return Err((end + 1, syntax("surrogate pair", &next.to_string())));
        }
        let Some((low, behind)) = one(end + 1) else { return Err((end + 1, malformed())) };
        if !(0xdc00..0xe000).contains(&low) {
            return Err((end + 1, syntax("surrogate pair", &text[end..behind])));
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        end = behind;
    } else if (0xdc00..0xe000).contains(&code) {
        return Err((0, syntax("surrogate pair", &escape(end))));
    }
    match char::from_u32(code).filter(|c| *c != '\0') {
        Some(c) => value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => return Err((0, syntax("escape value", &escape(end)))),
    }
    Ok(end)
}
