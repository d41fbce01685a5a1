//! A pattern, split into its fields.

/// What a pattern has one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Field(Field),
    Space(char),
    /// Punctuation.
    Separator(char),
    /// Any other character, or one in quotes.
    Literal(char),
}

/// A field, such as `FMMonth` or `DDth`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) key: Key,
    /// As it is written, without prefix and suffix.
    pub(super) name: &'static str,
    pub(super) case: Case,
    /// FM: no padding.
    pub(super) fill: bool,
    /// TM: a name in the language of the system, of which there is one; not padded either.
    pub(super) translated: bool,
    pub(super) ordinal: Option<Case>,
}

/// How letters are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Case {
    Upper,
    Lower,
    /// The first one is a capital.
    Title,
}

/// What a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// FX: input is as long as the pattern.
    Exact,
    /// With points or without.
    Era {
        points: bool,
    },
    Half {
        points: bool,
    },
    Century,
    Day {
        short: bool,
    },
    DayOfYear,
    DayOfMonth,
    Weekday,
    /// A fraction of a second with so many digits.
    Fraction(u32),
    /// Thousandths of a second, which input may have beside a finer fraction.
    Millis,
    Hour24,
    Hour12,
    IsoDayOfYear,
    IsoWeekday,
    IsoWeek,
    /// With so many digits.
    IsoYear(u32),
    Julian,
    Minute,
    MonthNumber,
    Month {
        short: bool,
    },
    RomanMonth,
    Offset,
    OffsetHour,
    OffsetMinute,
    Zone,
    Quarter,
    Second,
    SecondOfDay,
    Week,
    WeekOfMonth,
    /// `Y,YYY`
    YearWithComma,
    /// With so many digits.
    Year(u32),
}

impl Key {
    /// Whether input of it consists of digits.
    pub(super) fn is_digits(self) -> bool {
        !matches!(
            self,
            Key::Exact
                | Key::Era { .. }
                | Key::Half { .. }
                | Key::Day { .. }
                | Key::Month { .. }
                | Key::RomanMonth
                | Key::Offset
                | Key::OffsetHour
                | Key::Zone
        )
    }
}

/// Fields in capitals, longer ones before their beginnings.
const FIELDS: &[(&str, Key)] = &[
    ("A.D.", Key::Era { points: true }),
    ("A.M.", Key::Half { points: true }),
    ("AD", Key::Era { points: false }),
    ("AM", Key::Half { points: false }),
    ("B.C.", Key::Era { points: true }),
    ("BC", Key::Era { points: false }),
    ("CC", Key::Century),
    ("DAY", Key::Day { short: false }),
    ("DDD", Key::DayOfYear),
    ("DD", Key::DayOfMonth),
    ("DY", Key::Day { short: true }),
    ("D", Key::Weekday),
    ("FF1", Key::Fraction(1)),
    ("FF2", Key::Fraction(2)),
    ("FF3", Key::Fraction(3)),
    ("FF4", Key::Fraction(4)),
    ("FF5", Key::Fraction(5)),
    ("FF6", Key::Fraction(6)),
    ("FX", Key::Exact),
    ("HH24", Key::Hour24),
    ("HH12", Key::Hour12),
    ("HH", Key::Hour12),
    ("IDDD", Key::IsoDayOfYear),
    ("ID", Key::IsoWeekday),
    ("IW", Key::IsoWeek),
    ("IYYY", Key::IsoYear(4)),
    ("IYY", Key::IsoYear(3)),
    ("IY", Key::IsoYear(2)),
    ("I", Key::IsoYear(1)),
    ("J", Key::Julian),
    ("MI", Key::Minute),
    ("MM", Key::MonthNumber),
    ("MONTH", Key::Month { short: false }),
    ("MON", Key::Month { short: true }),
    ("MS", Key::Millis),
    ("OF", Key::Offset),
    ("P.M.", Key::Half { points: true }),
    ("PM", Key::Half { points: false }),
    ("Q", Key::Quarter),
    ("RM", Key::RomanMonth),
    ("SSSSS", Key::SecondOfDay),
    ("SSSS", Key::SecondOfDay),
    ("SS", Key::Second),
    ("TZH", Key::OffsetHour),
    ("TZM", Key::OffsetMinute),
    ("TZ", Key::Zone),
    ("US", Key::Fraction(6)),
    ("WW", Key::Week),
    ("W", Key::WeekOfMonth),
    ("Y,YYY", Key::YearWithComma),
    ("YYYY", Key::Year(4)),
    ("YYY", Key::Year(3)),
    ("YY", Key::Year(2)),
    ("Y", Key::Year(1)),
];

/// The same in small letters, for messages.
const LOWER_FIELDS: &[&str] = &[
    "a.d.", "a.m.", "ad", "am", "b.c.", "bc", "cc", "day", "ddd", "dd", "dy", "d", "ff1", "ff2", "ff3",
    "ff4", "ff5", "ff6", "fx", "hh24", "hh12", "hh", "iddd", "id", "iw", "iyyy", "iyy", "iy", "i", "j", "mi",
    "mm", "month", "mon", "ms", "of", "p.m.", "pm", "q", "rm", "sssss", "ssss", "ss", "tzh", "tzm", "tz",
    "us", "ww", "w", "y,yyy", "yyyy", "yyy", "yy", "y",
];

/// Fields that have a spelling with a capital, too.
const TITLE_FIELDS: &[(&str, Key)] = &[
    ("Day", Key::Day { short: false }),
    ("Dy", Key::Day { short: true }),
    ("Month", Key::Month { short: false }),
    ("Mon", Key::Month { short: true }),
];

/// The field at the beginning of a pattern.
fn field(pattern: &str) -> Option<(&'static str, Key, Case)> {
    for (name, key) in TITLE_FIELDS {
        if pattern.starts_with(name) {
            return Some((name, *key, Case::Title));
        }
    }
    for ((name, key), lower) in FIELDS.iter().zip(LOWER_FIELDS) {
        if pattern.starts_with(name) {
            return Some((name, *key, Case::Upper));
        }
        if pattern.starts_with(lower) {
            return Some((lower, *key, Case::Lower));
        }
    }
    None
}

/// Splits a pattern. Whatever is no field stands for itself.
pub(super) fn parse(pattern: &str) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let (mut fill, mut translated) = (false, false);
        let mut after = rest;
        while let Some(next) = ["FM", "fm", "TM", "tm"].iter().find_map(|prefix| after.strip_prefix(prefix)) {
            fill |= after.starts_with(['F', 'f']);
            translated |= after.starts_with(['T', 't']);
            after = next;
        }
        if let Some((name, key, case)) = field(after) {
            after = &after[name.len()..];
            let ordinal = match after.get(..2) {
                Some("TH") => Some(Case::Upper),
                Some("th") => Some(Case::Lower),
                _ => None,
            };
            // SP, words in place of digits, is taken without effect, as in PostgreSQL.
            let has_suffix = ordinal.is_some() || after.starts_with("SP");
            rest = if has_suffix { &after[2..] } else { after };
            nodes.push(Node::Field(Field { key, name, case, fill, translated, ordinal }));
            continue;
        }
        if after.len() < rest.len() {
            rest = after;
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '"' => rest = quoted(rest, &mut nodes),
            '\\' if rest.starts_with('"') => {
                nodes.push(Node::Literal('"'));
                rest = &rest[1..];
            }
            ' ' | '\t'..='\r' => nodes.push(Node::Space(first)),
            _ if first.is_ascii_punctuation() => nodes.push(Node::Separator(first)),
            _ => nodes.push(Node::Literal(first)),
        }
    }
    nodes
}

/// Text in quotes, in which a backslash takes the next character as it is.
fn quoted<'a>(text: &'a str, nodes: &mut Vec<Node>) -> &'a str {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => nodes.push(Node::Literal(characters.next().unwrap_or('\\'))),
            _ => nodes.push(Node::Literal(character)),
        }
    }
    characters.as_str()
}
