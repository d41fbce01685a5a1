//! LIKE and ILIKE: `%` stands for anything, `_` for one character, a backslash takes away the meaning of what follows.
//!
//! Patterns are matched as they are, without being compiled and without memory of their own. A mismatch goes back to the
//! last `%` only: what an earlier one could do differently, the last one can do as well. So a match takes time in proportion
//! to the product of both lengths at worst.

use super::arguments::{bytes, text};
use super::string::{Room, lower_char};
use super::{Call, Function};
use crate::exec::CHECK_EVERY;
use crate::types::Value;
use crate::{Error, Result, SqlState};
use compact_str::CompactString;

/// How text is taken apart and compared.
trait Units: Copy {
    /// Length of the character of the text at `at`, which is not the end.
    fn step(self, at: usize) -> usize;
    /// Lengths of what stands in text and pattern at these places, which are not the ends, if it is equal.
    fn equal(self, at: usize, pattern_at: usize) -> Option<(usize, usize)>;
}

/// Length of the UTF-8 sequence that begins with this byte.
fn sequence_length(first: u8) -> usize {
    match first {
        0..0xc0 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

/// Bytes of UTF-8, where `WIDE`; else bytes.
#[derive(Clone, Copy)]
struct Plain<'a, const WIDE: bool> {
    text: &'a [u8],
    pattern: &'a [u8],
}

impl<const WIDE: bool> Units for Plain<'_, WIDE> {
    #[inline]
    fn step(self, at: usize) -> usize {
        if WIDE { sequence_length(self.text[at]) } else { 1 }
    }

    #[inline]
    fn equal(self, at: usize, pattern_at: usize) -> Option<(usize, usize)> {
        (self.text[at] == self.pattern[pattern_at]).then_some((1, 1))
    }
}

/// Characters, whatever their case.
#[derive(Clone, Copy)]
struct Folded<'a> {
    text: &'a str,
    pattern: &'a str,
}

impl Units for Folded<'_> {
    fn step(self, at: usize) -> usize {
        sequence_length(self.text.as_bytes()[at])
    }

    fn equal(self, at: usize, pattern_at: usize) -> Option<(usize, usize)> {
        let (a, b) = (self.text.as_bytes()[at], self.pattern.as_bytes()[pattern_at]);
        if a.is_ascii() && b.is_ascii() {
            return a.eq_ignore_ascii_case(&b).then_some((1, 1));
        }
        let (a, b) = (self.text.get(at..)?.chars().next()?, self.pattern.get(pattern_at..)?.chars().next()?);
        (lower_char(a) == lower_char(b)).then_some((a.len_utf8(), b.len_utf8()))
    }
}

/// `check` is asked now and then whether to go on.
fn matches(units: impl Units, length: usize, pattern: &[u8], check: &dyn Fn() -> Result<()>) -> Result<bool> {
    let (mut at, mut place) = (0, 0);
    let mut steps = 0_usize;
    // Behind the last %: where the pattern goes on, and where in the text that was tried last.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        steps += 1;
        if steps.is_multiple_of(CHECK_EVERY) {
            check()?;
        }
        let advanced = match pattern.get(place) {
            Some(b'%') => {
                place += 1;
                if place == pattern.len() {
                    return Ok(true);
                }
                retry = Some((place, at));
                continue;
            }
            None if at == length => return Ok(true),
            None => None,
            _ if at >= length => return Ok(false),
            Some(b'_') => Some((units.step(at), 1)),
            Some(b'\\') if place + 1 == pattern.len() => {
                let message = "LIKE pattern must not end with escape character";
                return Err(Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, message));
            }
            Some(b'\\') => units.equal(at, place + 1).map(|(text, pattern)| (text, pattern + 1)),
            Some(_) => units.equal(at, place),
        };
        match (advanced, retry) {
            (Some((text, pattern)), _) => {
                at += text;
                place += pattern;
            }
            (None, Some((behind, tried))) => {
                at = tried + units.step(tried);
                place = behind;
                retry = Some((behind, at));
            }
            (None, None) => return Ok(false),
        }
    }
}

/// What everything that matches a pattern of LIKE begins with, and whether that is all of it; `None` of a pattern that ends with an escape, which fails
/// once it is looked at to its end.
pub(crate) fn fixed_part(pattern: &str) -> Option<(String, bool)> {
    let mut fixed = String::new();
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '%' | '_' => return Some((fixed, false)),
            '\\' => fixed.push(chars.next()?),
            other => fixed.push(other),
        }
    }
    Some((fixed, true))
}

/// The first string behind all that begin with this one.
pub(crate) fn behind(beginning: &str) -> Option<String> {
    let mut chars: Vec<char> = beginning.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match u32::from(last) + 1 {
            0xd800 => 0xe000,
            next => next,
        };
        if let Some(next) = char::from_u32(next) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// Whether a string matches a pattern.
fn like(text: &str, pattern: &str, check: &dyn Fn() -> Result<()>) -> Result<bool> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    matches(Plain::<true> { text, pattern }, text.len(), pattern, check)
}

/// The same, whatever the case.
fn like_folded(text: &str, pattern: &str, check: &dyn Fn() -> Result<()>) -> Result<bool> {
    matches(Folded { text, pattern }, text.len(), pattern.as_bytes(), check)
}

fn like_bytes(text: &[u8], pattern: &[u8], check: &dyn Fn() -> Result<()>) -> Result<bool> {
    matches(Plain::<false> { text, pattern }, text.len(), pattern, check)
}

fn is_like<const WANTED: bool>(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(like(text(a, 0)?, text(a, 1)?, &|| call.context.check())? == WANTED))
}

fn is_like_folded<const WANTED: bool>(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(like_folded(text(a, 0)?, text(a, 1)?, &|| call.context.check())? == WANTED))
}

fn are_bytes_like<const WANTED: bool>(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::Bool(like_bytes(bytes(a, 0)?, bytes(a, 1)?, &|| call.context.check())? == WANTED))
}

fn bad_escape() -> Error {
    Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
        .hint("Escape string must be empty or one character.")
}

/// Gives `push` the units of a pattern with another escape character, or none, rewritten for the backslash.
fn rewrite<T: Copy + PartialEq>(
    pattern: impl Iterator<Item = T>,
    escape: Option<T>,
    backslash: T,
    push: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut escaped = false;
    for unit in pattern {
        if Some(unit) == escape && !escaped {
            push(backslash)?;
            escaped = true;
            continue;
        }
        // A backslash means itself.
        if unit == backslash && !escaped {
            push(backslash)?;
        }
        push(unit)?;
        escaped = false;
    }
    Ok(())
}

fn like_escape(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let mut escape = text(a, 1)?.chars();
    let (first, more) = (escape.next(), escape.next());
    if more.is_some() {
        return Err(bad_escape());
    }
    let (mut rewritten, mut room) = (CompactString::default(), Room::new(call));
    rewrite(text(a, 0)?.chars(), first, '\\', &mut |unit| {
        room.want(rewritten.len() + unit.len_utf8())?;
        rewritten.push(unit);
        Ok(())
    })?;
    Ok(Value::Text(rewritten))
}

fn like_escape_bytes(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let escape = bytes(a, 1)?;
    if escape.len() > 1 {
        return Err(bad_escape());
    }
    let (mut rewritten, mut room) = (Vec::new(), Room::new(call));
    rewrite(bytes(a, 0)?.iter().copied(), escape.first().copied(), b'\\', &mut |unit| {
        // They are copied once more.
        room.want(2 * (rewritten.len() + 1))?;
        rewritten.push(unit);
        Ok(())
    })?;
    Ok(Value::Bytes(rewritten.into()))
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[(&str, Function)] = operators! {
    "~~" 850 "textlike" (Text Text) Bool = is_like::<true>;
    "~~" 858 "namelike" (Name Text) Bool = is_like::<true>;
    "~~" 1631 "bpcharlike" (Bpchar Text) Bool = is_like::<true>;
    "~~" 2005 "bytealike" (Bytea Bytea) Bool = are_bytes_like::<true>;
    "!~~" 851 "textnlike" (Text Text) Bool = is_like::<false>;
    "!~~" 859 "namenlike" (Name Text) Bool = is_like::<false>;
    "!~~" 1632 "bpcharnlike" (Bpchar Text) Bool = is_like::<false>;
    "!~~" 2006 "byteanlike" (Bytea Bytea) Bool = are_bytes_like::<false>;
    "~~*" 1633 "texticlike" (Text Text) Bool = is_like_folded::<true>;
    "~~*" 1635 "nameiclike" (Name Text) Bool = is_like_folded::<true>;
    "~~*" 1660 "bpchariclike" (Bpchar Text) Bool = is_like_folded::<true>;
    "!~~*" 1634 "texticnlike" (Text Text) Bool = is_like_folded::<false>;
    "!~~*" 1636 "nameicnlike" (Name Text) Bool = is_like_folded::<false>;
    "!~~*" 1661 "bpcharicnlike" (Bpchar Text) Bool = is_like_folded::<false>;
};

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    1569 "like" (Text Text) Bool = is_like::<true>;
    1571 "like" (Name Text) Bool = is_like::<true>;
    2007 "like" (Bytea Bytea) Bool = are_bytes_like::<true>;
    1570 "notlike" (Text Text) Bool = is_like::<false>;
    1572 "notlike" (Name Text) Bool = is_like::<false>;
    2008 "notlike" (Bytea Bytea) Bool = are_bytes_like::<false>;
    1637 "like_escape" (Text Text) Text = like_escape;
    2009 "like_escape" (Bytea Bytea) Bytea = like_escape_bytes;
};

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str, pattern: &str) -> Result<bool> {
        super::like(text, pattern, &|| Ok(()))
    }

    fn like_folded(text: &str, pattern: &str) -> Result<bool> {
        super::like_folded(text, pattern, &|| Ok(()))
    }

    #[test]
    fn patterns_match_as_in_postgresql() {
        let cases = [
            ("", "", true),
            ("", "%", true),
            ("a", "", false),
            ("abc", "a%c", true),
            ("abcabd", "%ab_", true),
            ("abcabd", "%abc", false),
            ("aXbXc", "%X%X%", true),
            ("äöü", "_ö_", true),
            ("äöü", "%ü", true),
            ("äöü", "__", false),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("mississippi", "m%iss%ip%i", true),
            ("ab", "a_b", false),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(like(text, pattern).unwrap(), expected, "{text} like {pattern}");
            assert_eq!(like_folded(text, pattern).unwrap(), expected, "{text} ilike {pattern}");
        }
        assert!(like_folded("ÄÖÜ", "äö_").unwrap());
        assert!(!like("ÄÖÜ", "äö_").unwrap());
        assert_eq!(like("abc", "ab\\").unwrap_err().state(), SqlState::INVALID_ESCAPE_SEQUENCE);
        assert!(!like("xbc", "ab\\").unwrap());
    }

    #[test]
    fn many_wildcards_take_no_exponential_time() {
        let text = "a".repeat(2000);
        let pattern = "%a".repeat(500) + "b";
        assert!(!like(&text, &pattern).unwrap());
    }

    #[test]
    fn other_escapes_are_rewritten() {
        let rewrite = |pattern: &str, escape| {
            let mut result = String::new();
            super::rewrite(pattern.chars(), escape, '\\', &mut |unit| {
                result.push(unit);
                Ok(())
            })
            .unwrap();
            result
        };
        assert_eq!(rewrite("a#%b\\c##", Some('#')), "a\\%b\\\\c\\#");
        assert_eq!(rewrite("a\\%", None), "a\\\\%");
        assert_eq!(rewrite("a\\%", Some('\\')), "a\\%");
    }
}
