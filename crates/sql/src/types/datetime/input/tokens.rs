//! Text of a date or time, split into tokens, and what words mean.

use super::{Bad, Read};

/// What a token looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Digits, perhaps with a point.
    Number,
    /// With separators: a date, or the name of a time zone.
    Date,
    /// With colons.
    Time,
    /// A sign and digits.
    Offset,
    /// Letters, perhaps with a sign before them.
    Word,
}

#[derive(Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// In lower case.
    pub(super) text: String,
}

/// A word's meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    Ignored,
    Now,
    /// So many days from today.
    Today(i64),
    /// Midnight, UTC.
    AllBalls,
    Epoch,
    Infinity,
    NegInfinity,
    Month(i64),
    Weekday,
    /// Whether PM.
    Afternoon(bool),
    /// Whether BC.
    BeforeChrist(bool),
    /// Summer time of the zone before.
    Summer,
    Unit(Unit),
}

/// What the number behind a label is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Julian,
    /// A time by ISO 8601 follows.
    Time,
    /// Something that is known as a part, but not understood in input.
    Other,
}

/// More tokens make no date.
const MAX_TOKENS: usize = 25;
/// Longer text makes no date.
const MAX_LENGTH: usize = 128;

/// Splits text into tokens.
pub(super) fn split(text: &str) -> Read<Vec<Token>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_whitespace() || byte == 0x0b {
            at += 1;
            continue;
        }
        let scanned = match byte {
            b'0'..=b'9' => scan_digits(bytes, at),
            b'.' => (Kind::Number, skip(bytes, at + 1, |b| b.is_ascii_digit())),
            b'a'..=b'z' | b'A'..=b'Z' => scan_letters(bytes, at),
            b'+' | b'-' => {
                let start = skip(bytes, at + 1, |b| b.is_ascii_whitespace());
                let (kind, end) = match bytes.get(start) {
                    Some(b'0'..=b'9') => {
                        let in_offset = |b: u8| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-');
                        (Kind::Offset, skip(bytes, start, in_offset))
                    }
                    Some(b) if b.is_ascii_alphabetic() => {
                        (Kind::Word, skip(bytes, start, |b| b.is_ascii_alphabetic()))
                    }
                    _ => return Err(Bad::Format),
                };
                push(&mut tokens, kind, format!("{}{}", byte as char, &text[start..end]))?;
                at = end;
                continue;
            }
            _ if byte.is_ascii_punctuation() => {
                at += 1;
                continue;
            }
            _ => return Err(Bad::Format),
        };
        let (kind, end) = scanned;
        push(&mut tokens, kind, text[at..end].to_ascii_lowercase())?;
        at = end;
    }
    Ok(tokens)
}

fn push(tokens: &mut Vec<Token>, kind: Kind, mut text: String) -> Read<()> {
    if tokens.len() >= MAX_TOKENS || text.len() > MAX_LENGTH {
        return Err(Bad::Format);
    }
    text.make_ascii_lowercase();
    tokens.push(Token { kind, text });
    Ok(())
}

/// The end of a run.
fn skip(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|byte| belongs(**byte)).count()
}

fn scan_digits(bytes: &[u8], at: usize) -> (Kind, usize) {
    let digit = |byte: u8| byte.is_ascii_digit();
    let end = skip(bytes, at, digit);
    match bytes.get(end) {
        Some(b':') => (Kind::Time, skip(bytes, end, |b| digit(b) || b == b':' || b == b'.')),
        Some(&separator @ (b'-' | b'/' | b'.')) => {
            if !bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
                let end = skip(bytes, end + 1, |b| b.is_ascii_alphanumeric() || b == separator);
                return (Kind::Date, end);
            }
            let second = skip(bytes, end + 1, digit);
            if bytes.get(second) == Some(&separator) {
                return (Kind::Date, skip(bytes, second, |b| digit(b) || b == separator));
            }
            (if separator == b'.' { Kind::Number } else { Kind::Date }, second)
        }
        _ => (Kind::Number, end),
    }
}

fn scan_letters(bytes: &[u8], at: usize) -> (Kind, usize) {
    let end = skip(bytes, at, |b| b.is_ascii_alphabetic());
    let is_date = match bytes.get(end) {
        Some(b'-' | b'/' | b'.') => true,
        Some(b'+' | b'0'..=b'9') => {
            let word = String::from_utf8_lossy(&bytes[at..end]).to_ascii_lowercase();
            meaning(&word).is_none()
        }
        _ => false,
    };
    if !is_date {
        return (Kind::Word, end);
    }
    let belongs = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':');
    (Kind::Date, skip(bytes, end, belongs))
}

/// The meaning of a word in lower case. Only the first 10 characters count.
pub(super) fn meaning(word: &str) -> Option<Meaning> {
    let word = &word[..word.len().min(10)];
    Some(match word {
        "-infinity" => Meaning::NegInfinity,
        "ad" => Meaning::BeforeChrist(false),
        "allballs" => Meaning::AllBalls,
        "am" => Meaning::Afternoon(false),
        "at" | "on" => Meaning::Ignored,
        "bc" => Meaning::BeforeChrist(true),
        "dst" => Meaning::Summer,
        "epoch" => Meaning::Epoch,
        "infinity" => Meaning::Infinity,
        "now" => Meaning::Now,
        "pm" => Meaning::Afternoon(true),
        "today" => Meaning::Today(0),
        "tomorrow" => Meaning::Today(1),
        "yesterday" => Meaning::Today(-1),
        "jan" | "january" => Meaning::Month(1),
        "feb" | "february" => Meaning::Month(2),
        "mar" | "march" => Meaning::Month(3),
        "apr" | "april" => Meaning::Month(4),
        "may" => Meaning::Month(5),
        "jun" | "june" => Meaning::Month(6),
        "jul" | "july" => Meaning::Month(7),
        "aug" | "august" => Meaning::Month(8),
        "sep" | "sept" | "september" => Meaning::Month(9),
        "oct" | "october" => Meaning::Month(10),
        "nov" | "november" => Meaning::Month(11),
        "dec" | "december" => Meaning::Month(12),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday"
        | "thu" | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat" | "saturday" => Meaning::Weekday,
        "y" => Meaning::Unit(Unit::Year),
        "m" => Meaning::Unit(Unit::Month),
        "d" => Meaning::Unit(Unit::Day),
        "h" => Meaning::Unit(Unit::Hour),
        "mm" => Meaning::Unit(Unit::Minute),
        "s" => Meaning::Unit(Unit::Second),
        "t" => Meaning::Unit(Unit::Time),
        "j" | "jd" | "julian" => Meaning::Unit(Unit::Julian),
        "dow" | "doy" | "isodow" | "isoyear" => Meaning::Unit(Unit::Other),
        _ => return None,
    })
}
