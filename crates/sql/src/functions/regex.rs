//! Regular expressions: PostgreSQL's advanced ones, translated for crate `regex` and kept once compiled.
//!
//! What differs: back references and look-around are refused by name, for `regex` guarantees linear time. Where branches of an
//! alternation match at the same place, the first one wins, not the longest; and each repetition is greedy or not by itself,
//! not by the first one of its branch.

use super::string::{lower_char, upper_char};
use crate::{Error, Result, SqlState};
use gannet_store::WorkMemory;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::{Arc, LazyLock};

/// Class `space`, as the contents of a bracket.
macro_rules! space {
    () => {
        r"\t-\r \x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}"
    };
}

/// Options of a pattern: those of an operator or a function's flags, and `(?...)` at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are letters of one string")]
pub(super) struct Options {
    /// `g`: all matches, not the first.
    pub(super) global: bool,
    /// `i`: whatever the case.
    pub(super) fold: bool,
    /// `n`, `p`: neither `.` nor a negated bracket matches the end of a line.
    pub(super) lines: bool,
    /// `n`, `w`: `^` and `$` match within the text, at the ends of lines.
    pub(super) anchors: bool,
    /// `q`: no pattern at all, but a string.
    pub(super) literal: bool,
    /// `x`: blanks and comments do not count.
    pub(super) expanded: bool,
}

impl Options {
    /// Reads a function's flags; `Err` gives the letter that is none.
    pub(super) fn parse(flags: &str) -> std::result::Result<Self, char> {
        let mut options = Options::default();
        for flag in flags.chars() {
            if flag == 'g' {
                options.global = true;
            } else if !options.set(flag) {
                return Err(flag);
            }
        }
        Ok(options)
    }

    fn set(&mut self, flag: char) -> bool {
        match flag {
            'c' => self.fold = false,
            'i' => self.fold = true,
            'm' | 'n' => (self.lines, self.anchors) = (true, true),
            'p' => (self.lines, self.anchors) = (true, false),
            'w' => (self.lines, self.anchors) = (false, true),
            's' => (self.lines, self.anchors) = (false, false),
            'q' => self.literal = true,
            't' => self.expanded = false,
            'x' => self.expanded = true,
            'e' => self.literal = false,
            _ => return false,
        }
        true
    }
}

/// Patterns kept by a session.
const KEPT: usize = 32;
/// Bytes that they are charged as, all but the one used last.
const KEPT_BYTES: u64 = 4 << 20;
/// Bytes of the longest pattern.
const LONGEST: usize = 128 << 10;
/// Bytes that the tree may take which a pattern is read into.
const MOST_READ: u64 = 32 << 20;
/// Bytes of such a tree for each byte of the translated pattern, and for each class of characters of Unicode that it names.
const READ_BYTE: u64 = 256;
const READ_CLASS: u64 = 24 << 10;
/// Bytes of a translated pattern that is too long for such a tree.
const TOO_LONG: usize = (MOST_READ / READ_BYTE) as usize + 1;
/// Bytes that each of a pattern's two automata may have: what is tried first, and the most that is.
const COMPILED_LEAST: u64 = 16 << 10;
const COMPILED_MOST: u64 = 64 << 20;
/// Bytes that a compiled pattern takes while it is used.
const USED_BYTES: u64 = 64 << 10;

/// Charges bytes to the budget, or fails.
pub(super) type Charge<'a> = &'a mut dyn FnMut(u64) -> Result<Option<WorkMemory>>;

#[derive(Debug)]
struct Entry {
    pattern: Box<str>,
    options: Options,
    regex: Arc<::regex::Regex>,
    bytes: u64,
    _memory: Option<WorkMemory>,
}

/// The compiled patterns of a session, the one used last first.
///
/// # Guarantees
/// Memory is charged before a pattern is read and before it is compiled. Neither can be foreseen exactly: reading is estimated from above,
/// compiling is given more and more until it is enough. What is kept stays charged.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Vec<Entry>);

impl Patterns {
    /// The compiled pattern.
    pub(super) fn compiled(
        &mut self,
        pattern: &str,
        options: Options,
        charge: Charge<'_>,
    ) -> Result<Arc<::regex::Regex>> {
        let options = Options { global: false, ..options };
        let is_it = |entry: &Entry| entry.options == options && *entry.pattern == *pattern;
        if let Some(found) = self.0.iter().position(is_it) {
            self.0[..=found].rotate_right(1);
        } else {
            let made = match compile(pattern, options, charge) {
                Err(error) if error.state() == SqlState::OUT_OF_MEMORY && !self.0.is_empty() => {
                    self.0.clear();
                    compile(pattern, options, charge)?
                }
                made => made?,
            };
            let (regex, bytes, memory) = made;
            self.0.truncate(KEPT - 1);
            let entry =
                Entry { pattern: pattern.into(), options, regex: Arc::new(regex), bytes, _memory: memory };
            self.0.insert(0, entry);
            while self.0[1..].iter().map(|entry| entry.bytes).sum::<u64>() > KEPT_BYTES {
                self.0.pop();
            }
        }
        Ok(Arc::clone(&self.0[0].regex))
    }
}

fn invalid(what: &str) -> Error {
    Error::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {what}"))
}

fn too_complex() -> Error {
    invalid("regular expression is too complex")
}

/// Bytes that it takes to read a translated pattern, at most.
fn weight(translated: &str) -> u64 {
    let classes = translated.as_bytes().windows(2).filter(|pair| *pair == br"\p");
    translated.len() as u64 * READ_BYTE + classes.count() as u64 * READ_CLASS
}

/// A compiled pattern, and what it was charged as.
fn compile(
    pattern: &str,
    options: Options,
    charge: Charge<'_>,
) -> Result<(::regex::Regex, u64, Option<WorkMemory>)> {
    if pattern.len() > LONGEST {
        return Err(too_complex());
    }
    let (translated, options) = translate(pattern, options)?;
    let weight = weight(&translated);
    if weight > MOST_READ {
        return Err(too_complex());
    }
    let _read = charge(weight)?;
    let mut limit = COMPILED_LEAST;
    loop {
        let bytes = 2 * limit + USED_BYTES;
        let memory = charge(bytes)?;
        let built = ::regex::RegexBuilder::new(&translated)
            .multi_line(options.anchors)
            .dot_matches_new_line(!options.lines)
            .size_limit(limit as usize)
            .build();
        match built {
            Ok(regex) => return Ok((regex, bytes, memory)),
            Err(::regex::Error::CompiledTooBig(_)) if limit < COMPILED_MOST => limit *= 2,
            Err(::regex::Error::CompiledTooBig(_)) => return Err(too_complex()),
            Err(other) => return Err(invalid(other.to_string().lines().last().unwrap_or_default())),
        }
    }
}

/// The pattern in the syntax of crate `regex`, and its options.
fn translate(pattern: &str, mut options: Options) -> Result<(String, Options)> {
    let mut pattern = pattern;
    if !options.literal {
        if let Some(rest) = pattern.strip_prefix("***=") {
            (pattern, options.literal) = (rest, true);
        } else if let Some(rest) = pattern.strip_prefix("***") {
            pattern = rest.strip_prefix(':').ok_or_else(|| invalid("quantifier operand invalid"))?;
        }
    }
    if !options.literal
        && let Some(rest) = pattern.strip_prefix("(?")
        && rest.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        let (letters, behind) = rest.split_once(')').ok_or_else(|| invalid("invalid embedded option"))?;
        if matches!(letters, "b") {
            return Err(Error::unsupported("a basic regular expression"));
        }
        if !letters.chars().all(|letter| options.set(letter)) {
            return Err(invalid("invalid embedded option"));
        }
        pattern = behind;
    }
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        groups: 0,
        out: String::with_capacity(pattern.len() + 8),
        options,
    };
    if options.literal {
        translator.string()?
    } else {
        translator.run()?
    }
    Ok((translator.out, options))
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    /// Groups that were opened and can be referred to.
    groups: u32,
    out: String,
    options: Options,
}

/// What may be said about what was read last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It may be repeated.
    Atom,
    /// It may not: nothing, an anchor, a repetition.
    Other,
}

impl Translator<'_> {
    /// A pattern that is none.
    fn string(&mut self) -> Result<()> {
        while let Some(c) = self.rest.next() {
            self.character(c);
            self.check_length()?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let mut open = 0_usize;
        let mut last = Last::Other;
        while let Some(c) = self.rest.next() {
            last = match c {
                '(' => {
                    if self.group()? {
                        open += 1;
                        Last::Other
                    } else {
                        last
                    }
                }
                ')' => {
                    open = open.checked_sub(1).ok_or_else(|| invalid("parentheses () not balanced"))?;
                    self.out.push(')');
                    Last::Atom
                }
                '[' => self.bracket()?,
                '|' | '^' | '$' => {
                    self.out.push(c);
                    Last::Other
                }
                '.' => {
                    self.out.push('.');
                    Last::Atom
                }
                '*' | '+' | '?' => self.repeat(last, &c.to_string())?,
                '{' if self.rest.peek().is_some_and(char::is_ascii_digit) => {
                    let bounds = self.bounds()?;
                    self.repeat(last, &bounds)?
                }
                '\\' => self.escape()?,
                c if self.options.expanded && is_space(c) => last,
                '#' if self.options.expanded => {
                    while self.rest.next().is_some_and(|c| c != '\n') {}
                    last
                }
                c => {
                    self.character(c);
                    Last::Atom
                }
            };
            self.check_length()?;
        }
        if open > 0 { Err(invalid("parentheses () not balanced")) } else { Ok(()) }
    }

    /// Where case does not count, a translation is longer than what it is of.
    fn check_length(&self) -> Result<()> {
        if self.out.len() < TOO_LONG { Ok(()) } else { Err(too_complex()) }
    }

    /// A character outside of brackets.
    fn character(&mut self, c: char) {
        let (lower, upper) = self.cases(c);
        if lower == upper {
            return self.literal(lower);
        }
        self.out.push('[');
        self.literal(lower);
        self.literal(upper);
        self.out.push(']');
    }

    /// What a character stands for. Where case does not count that is its lower and its upper form, as in PostgreSQL, and not what
    /// Unicode takes for the same letter: the Kelvin sign is no k.
    fn cases(&self, c: char) -> (char, char) {
        if self.options.fold { (lower_char(c), upper_char(c)) } else { (c, c) }
    }

    fn literal(&mut self, c: char) {
        // These two stand for themselves; behind a backslash they are the edges of a word.
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    /// Behind an opening parenthesis; false where it was a comment.
    fn group(&mut self) -> Result<bool> {
        if self.rest.next_if_eq(&'?').is_none() {
            self.out.push('(');
            self.groups += 1;
            return Ok(true);
        }
        match self.rest.next() {
            Some(':') => {
                self.out.push_str("(?:");
                Ok(true)
            }
            Some('#') => loop {
                match self.rest.next() {
                    None => return Err(invalid("parentheses () not balanced")),
                    Some(')') => return Ok(false),
                    Some(_) => {}
                }
            },
            Some('=' | '!') => Err(Error::unsupported("look-ahead in a regular expression")),
            Some('<') if matches!(self.rest.peek(), Some('=' | '!')) => {
                Err(Error::unsupported("look-behind in a regular expression"))
            }
            _ => Err(invalid("quantifier operand invalid")),
        }
    }

    fn repeat(&mut self, last: Last, how: &str) -> Result<Last> {
        if last != Last::Atom {
            return Err(invalid("quantifier operand invalid"));
        }
        self.out.push_str(how);
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        Ok(Last::Other)
    }

    /// Behind an opening brace: `m}`, `m,}` or `m,n}`.
    fn bounds(&mut self) -> Result<String> {
        let mut least = 0;
        let mut most = None;
        let mut comma = false;
        loop {
            match self.rest.next() {
                Some(c) if c.is_ascii_digit() => {
                    let number = if comma { most.get_or_insert(0) } else { &mut least };
                    *number = *number * 10 + u32::from(c as u8 - b'0');
                    if *number > 255 {
                        return Err(invalid("invalid repetition count(s)"));
                    }
                }
                Some(',') if !comma => comma = true,
                Some('}') => break,
                Some(_) => return Err(invalid("invalid repetition count(s)")),
                None => return Err(invalid("braces {} not balanced")),
            }
        }
        if most.is_some_and(|most| most < least) {
            return Err(invalid("invalid repetition count(s)"));
        }
        Ok(match (comma, most) {
            (false, _) => format!("{{{least}}}"),
            (true, None) => format!("{{{least},}}"),
            (true, Some(most)) => format!("{{{least},{most}}}"),
        })
    }

    /// Behind a backslash, outside of brackets.
    fn escape(&mut self) -> Result<Last> {
        let Some(c) = self.rest.next() else { return Err(invalid("invalid escape \\ sequence")) };
        let anchor = match c {
            'A' => r"\A",
            'Z' => r"\z",
            'm' => r"\b{start}",
            'M' => r"\b{end}",
            'y' => r"\b",
            'Y' => r"\B",
            '1'..='9' if c.to_digit(10).is_some_and(|group| group > self.groups) => {
                return Err(invalid("invalid backreference number"));
            }
            '1'..='9' => return Err(Error::unsupported("a back reference in a regular expression")),
            _ => "",
        };
        if !anchor.is_empty() {
            self.out.push_str(anchor);
            return Ok(Last::Other);
        }
        match class_escape(c) {
            Some(class) => {
                self.out.push('[');
                self.out.push_str(class);
                self.out.push(']');
            }
            None => {
                let c = self.character_escape(c)?;
                self.character(c);
            }
        }
        Ok(Last::Atom)
    }

    /// The character for which a backslash and `c` stand.
    fn character_escape(&mut self, c: char) -> Result<char> {
        Ok(match c {
            'a' => '\x07',
            'b' => '\x08',
            'B' => '\\',
            'c' => {
                let c = self.rest.next().ok_or_else(|| invalid("invalid escape \\ sequence"))?;
                char::from(c as u8 & 0x1f)
            }
            'e' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'u' => self.number(16, 4, 4, 0)?,
            'U' => self.number(16, 8, 8, 0)?,
            'x' => self.number(16, 1, 255, 0)?,
            '0' => self.number(8, 0, 2, 0)?,
            c if c.is_ascii_alphanumeric() => return Err(invalid("invalid escape \\ sequence")),
            c => c,
        })
    }

    fn number(&mut self, radix: u32, least: usize, most: usize, start: u32) -> Result<char> {
        let mut value = start;
        let mut digits = 0;
        while digits < most
            && let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(radix))
        {
            self.rest.next();
            value = value.saturating_mul(radix).saturating_add(digit);
            digits += 1;
        }
        if digits < least {
            return Err(invalid("invalid escape \\ sequence"));
        }
        char::from_u32(value).ok_or_else(|| invalid("invalid escape \\ sequence"))
    }

    /// Behind an opening bracket.
    fn bracket(&mut self) -> Result<Last> {
        let unbalanced = || invalid("brackets [] not balanced");
        // `[[:<:]]` and `[[:>:]]` are no brackets, but the ends of words.
        let ahead: String = self.rest.clone().take(6).collect();
        for (whole, anchor) in [("[:<:]]", r"\b{start}"), ("[:>:]]", r"\b{end}")] {
            if ahead == whole {
                self.rest.nth(5);
                self.out.push_str(anchor);
                return Ok(Last::Other);
            }
        }
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
            if self.options.lines {
                self.out.push_str("\\n");
            }
        }
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or_else(unbalanced)?;
            if c == ']' && !first {
                break;
            }
            first = false;
            let Some(start) = self.member(c)? else { continue };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
            if is_range {
                self.rest.next();
                let c = self.rest.next().ok_or_else(unbalanced)?;
                let end = self.member(c)?.ok_or_else(|| invalid("invalid character range"))?;
                if end < start {
                    return Err(invalid("invalid character range"));
                }
                self.range(start, end);
                if self.options.fold {
                    self.other_cases(start, end);
                }
            } else {
                let (lower, upper) = self.cases(start);
                self.literal(lower);
                if upper != lower {
                    self.literal(upper);
                }
            }
            self.check_length()?;
        }
        self.out.push(']');
        Ok(Last::Atom)
    }

    /// Characters of a bracket, from one to another.
    fn range(&mut self, start: char, end: char) {
        self.literal(start);
        if start != end {
            self.out.push('-');
            self.literal(end);
        }
    }

    /// The lower and upper forms of a range's characters that are not in it themselves.
    fn other_cases(&mut self, start: char, end: char) {
        let from = CASED.partition_point(|cased| cased.0 < start);
        let mut others: Vec<char> = CASED[from..]
            .iter()
            .take_while(|cased| cased.0 <= end)
            .flat_map(|&(_, lower, upper)| [lower, upper])
            .filter(|c| !(start..=end).contains(c))
            .collect();
        others.sort_unstable();
        others.dedup();
        for run in others.chunk_by(|a, b| u32::from(*a) + 1 == u32::from(*b)) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.range(*first, *last);
            }
        }
    }

    /// A member of a bracket that begins with `c`: a character, or a class, which is written at once.
    fn member(&mut self, c: char) -> Result<Option<char>> {
        let unbalanced = || invalid("brackets [] not balanced");
        match (c, self.rest.peek()) {
            ('[', Some(&kind @ (':' | '=' | '.'))) => {
                self.rest.next();
                let mut name = String::new();
                loop {
                    let c = self.rest.next().ok_or_else(unbalanced)?;
                    if c == kind && self.rest.next_if_eq(&']').is_some() {
                        break;
                    }
                    name.push(c);
                }
                if kind == ':' {
                    let class = named_class(&name, self.options.fold)
                        .ok_or_else(|| invalid("invalid character class"))?;
                    self.out.push_str(class);
                    return Ok(None);
                }
                let mut characters = name.chars();
                match (characters.next(), characters.next()) {
                    (Some(c), None) => Ok(Some(c)),
                    _ => Err(invalid("invalid collating element")),
                }
            }
            ('\\', _) => {
                let c = self.rest.next().ok_or_else(|| invalid("invalid escape \\ sequence"))?;
                if let Some(class) = class_escape(c) {
                    self.out.push_str(class);
                    return Ok(None);
                }
                self.character_escape(c).map(Some)
            }
            _ => Ok(Some(c)),
        }
    }
}

/// The characters that have a lower or upper form other than themselves, with both.
static CASED: LazyLock<Vec<(char, char, char)>> = LazyLock::new(|| {
    ('\0'..=char::MAX)
        .map(|c| (c, lower_char(c), upper_char(c)))
        .filter(|(c, lower, upper)| c != lower || c != upper)
        .collect()
});

// Classes are those of the C library that PostgreSQL asks, with locale C.UTF-8. They differ from Unicode's: spaces that do not break are
// no spaces, digits of other scripts are letters, and what joins or modifies is no part of a word.

/// The contents of the bracket for which a backslash and a letter stand.
fn class_escape(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "0-9",
        'D' => "[^0-9]",
        's' => space!(),
        'S' => concat!("[^", space!(), "]"),
        'w' => r"\p{Alphabetic}\p{Nd}_",
        'W' => r"[^\p{Alphabetic}\p{Nd}_]",
        _ => return None,
    })
}

/// The contents of the bracket for which the name of a class stands.
fn named_class(name: &str, fold: bool) -> Option<&'static str> {
    Some(match name {
        "alnum" => r"\p{Alphabetic}\p{Nd}",
        "lower" | "upper" if fold => return named_class("alpha", fold),
        "alpha" => r"[\p{Alphabetic}\p{Nd}--0-9]",
        "ascii" => r"\x00-\x7f",
        "blank" => r"\t ",
        "cntrl" => r"\p{Cc}",
        "digit" => "0-9",
        "graph" => concat!("[^", space!(), r"\p{Cc}\p{Cn}]"),
        "lower" => r"\p{Lowercase}\x{1c5}\x{1c8}\x{1cb}\x{1f2}",
        "print" => r"[^\x{2028}\x{2029}\p{Cc}\p{Cn}]",
        "punct" => concat!("[^", space!(), r"\p{Cc}\p{Cn}\p{Alphabetic}\p{Nd}]"),
        "space" => space!(),
        "upper" => r"\p{Uppercase}\p{Lt}",
        "word" => r"\p{Alphabetic}\p{Nd}_",
        "xdigit" => "0-9A-Fa-f",
        _ => return None,
    })
}

/// Whether a character is of class `space`.
fn is_space(c: char) -> bool {
    c.is_whitespace() && !matches!(c, '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(pattern: &str, options: Options) -> Result<Arc<::regex::Regex>> {
        Patterns::default().compiled(pattern, options, &mut |_| Ok(None))
    }

    fn translated(pattern: &str) -> String {
        translate(pattern, Options::default()).unwrap().0
    }

    #[test]
    fn what_differs_is_translated() {
        assert_eq!(translated("^(foo|b.r)$"), "^(foo|b.r)$");
        assert_eq!(translated(r"\mword\M"), r"\b{start}word\b{end}");
        assert_eq!(translated("[[:<:]]w"), r"\b{start}w");
        assert_eq!(translated("a{,3}"), r"a\{\,3\}");
        assert_eq!(translated("[]a-]"), r"[\]a\-]");
        assert_eq!(translated("[a&&b]"), r"[a\&\&b]");
        assert_eq!(translated(r"\d[\d\w]"), r"[0-9][0-9\p{Alphabetic}\p{Nd}_]");
        assert_eq!(translated("(?#comment)a*?"), "a*?");
        assert_eq!(translated("***=a.b"), r"a\.b");
        assert_eq!(translated("(?x)a b # c"), "ab");
    }

    /// Patterns, with characters that each of them matches, and some that it does not.
    fn check(options: Options, cases: &[(&str, &str, &str)]) {
        for (pattern, members, others) in cases {
            let regex = compiled(&format!("^({pattern})$"), options).unwrap();
            for (text, expected) in [(members, true), (others, false)] {
                for c in text.chars() {
                    assert_eq!(regex.is_match(&c.to_string()), expected, "{pattern} {c:?}");
                }
            }
        }
    }

    #[test]
    fn classes_are_those_of_postgresql() {
        let cases = [
            (r"\s", "\t \r\u{1680}\u{2006}\u{2028}\u{3000}", "\u{85}\u{a0}\u{2007}\u{202f}a"),
            (r"\S", "\u{85}\u{a0}\u{2007}\u{202f}a", "\t \r\u{1680}\u{2006}\u{2028}\u{3000}"),
            (r"[\s]", " ", "\u{a0}"),
            (r"[\S]", "\u{a0}", " "),
            (r"\w", "aZ0_é٣ªⅧ\u{5b0}", " \u{301}\u{203f}\u{200d}²-"),
            (r"\W", " \u{301}\u{203f}\u{200d}²-", "aZ0_é٣ªⅧ\u{5b0}"),
            ("[[:space:]]", " \u{3000}", "\u{a0}"),
            ("[[:word:]]", "aé_", "²"),
            ("[[:alnum:]]", "aé0٣", "_²½\u{301}"),
            ("[[:alpha:]]", "aé٣Ⅷ", "0_²"),
            ("[[:blank:]]", "\t ", "\u{a0}\u{3000}\n"),
            ("[[:cntrl:]]", "\u{1}\u{7f}\u{85}", "a\u{200d}"),
            ("[[:punct:]]", "!$+_²½€\u{301}\u{a0}", "aé0٣ \u{2028}\u{1}\u{378}"),
            ("[[:print:]]", "a \u{a0}\u{3000}\u{e000}", "\t\u{85}\u{2028}\u{378}"),
            ("[[:graph:]]", "a\u{a0}²", " \u{3000}\n\u{378}"),
            ("[[:lower:]]", "aßªǅ", "AΣ1"),
            ("[[:upper:]]", "AΣǅᾈ", "a1"),
            ("[^[:alpha:]]", "0_", "a٣"),
        ];
        check(Options::default(), &cases);
        let space = compiled(r"^\s$", Options::default()).unwrap();
        for c in '\0'..=char::MAX {
            assert_eq!(is_space(c), space.is_match(c.encode_utf8(&mut [0; 4])), "{c:?}");
        }
    }

    #[test]
    fn case_is_that_of_postgresql() {
        let cases = [
            ("s", "sS", "\u{17f}"),
            ("k", "kK", "\u{212a}"),
            ("[k]", "kK", "\u{212a}"),
            ("[^k]", "\u{212a}", "kK"),
            ("[a-z]", "sK", "\u{17f}\u{212a}[`"),
            ("[^a-z]", "\u{17f}0", "aZ"),
            ("[A-Z0]", "sK0", "\u{17f}1"),
            ("[h-y]", "HyK", "gGzZ"),
            ("Σ", "Σσ", "ς"),
            ("ς", "ςΣ", "σ"),
            ("[α-ω]", "ΑΩς", "ά"),
            ("[à-ý]", "ÀÝ÷", "×ÿ"),
            ("ǆ", "ǆǄ", "ǅ"),
            ("ǅ", "ǆǄ", "ǅ"),
            ("[ǅ-ǅ]", "ǆǄǅ", "Ǉ"),
            ("ᾀ", "ᾀᾈ", "α"),
            ("ß", "ß", "ẞ"),
            ("ẞ", "ßẞ", "s"),
            (r"\x41", "aA", "b"),
            ("[[=a=]]", "aA", "b"),
            ("[[:lower:]]", "aA", "_"),
            (r"\w", "\u{212a}", "-"),
        ];
        let folded = Options { fold: true, ..Options::default() };
        check(folded, &cases);
        for (pattern, options) in [("a.k", Options { literal: true, ..folded }), ("***=a.k", folded)] {
            let regex = compiled(pattern, options).unwrap();
            assert!(regex.is_match("A.K") && !regex.is_match("a.\u{212a}") && !regex.is_match("abk"));
        }
        // What a range is translated to may be long.
        let error = compiled(&"[k-s]".repeat(20_000), folded).map(drop).unwrap_err();
        assert_eq!(error.to_string(), too_complex().to_string());
    }

    #[test]
    fn mistakes_are_told() {
        let cases = [
            ("(a", "parentheses () not balanced"),
            ("a)", "parentheses () not balanced"),
            ("[a", "brackets [] not balanced"),
            ("*a", "quantifier operand invalid"),
            ("a**", "quantifier operand invalid"),
            ("a{3,1}", "invalid repetition count(s)"),
            ("a{256}", "invalid repetition count(s)"),
            ("a{1", "braces {} not balanced"),
            ("a\\", "invalid escape \\ sequence"),
            ("\\k", "invalid escape \\ sequence"),
            ("[[:foo:]]", "invalid character class"),
            ("[z-a]", "invalid character range"),
            ("(?z)a", "invalid embedded option"),
            ("(a)\\2", "invalid backreference number"),
        ];
        for (pattern, message) in cases {
            let error = compiled(pattern, Options::default()).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_REGULAR_EXPRESSION);
            assert_eq!(error.to_string(), format!("invalid regular expression: {message}"));
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let cases = [
            (r"(a)\1", "a back reference in a regular expression"),
            ("a(?=b)", "look-ahead in a regular expression"),
            ("a(?!b)", "look-ahead in a regular expression"),
            ("(?<=a)b", "look-behind in a regular expression"),
            ("(?<!a)b", "look-behind in a regular expression"),
            ("(?b)a", "a basic regular expression"),
        ];
        for (pattern, what) in cases {
            let error = compiled(pattern, Options::default()).unwrap_err();
            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
            assert_eq!(error.to_string(), format!("{what} is not supported"));
        }
    }

    #[test]
    fn patterns_are_kept_and_forgotten() {
        let mut patterns = Patterns::default();
        let mut charged = 0;
        for round in 0..2 {
            for index in 0..KEPT * 2 {
                for _ in 0..2 {
                    let pattern = format!("a{index}b{round}");
                    let mut charge = |_| {
                        charged += 1;
                        Ok(None)
                    };
                    let regex = patterns.compiled(&pattern, Options::default(), &mut charge).unwrap();
                    assert!(regex.is_match(&format!("xa{index}b{round}x")));
                }
            }
        }
        assert_eq!((patterns.0.len(), charged), (KEPT, 2 * 2 * KEPT * 2));
        for size in 50..60 {
            patterns.compiled(&format!(r"\w{{{size}}}"), Options::default(), &mut |_| Ok(None)).unwrap();
        }
        let kept: u64 = patterns.0[1..].iter().map(|entry| entry.bytes).sum();
        assert!(patterns.0.len() < 10 && kept <= KEPT_BYTES, "{kept} bytes of {}", patterns.0.len());
    }

    #[test]
    fn memory_is_charged_before_it_is_taken() {
        let mut most = 0;
        let mut attempt = |pattern: &str| {
            let mut charge = |bytes| {
                most = most.max(bytes);
                let room = bytes <= 1 << 20;
                room.then_some(None).ok_or_else(|| Error::new(SqlState::OUT_OF_MEMORY, "out of memory"))
            };
            Patterns::default().compiled(pattern, Options::default(), &mut charge).map(drop)
        };
        assert!(attempt("^(foo|b.r)+$").is_ok());
        assert_eq!(attempt(r"\w{100}").unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        assert_eq!(attempt(&r"\w".repeat(100)).unwrap_err().state(), SqlState::OUT_OF_MEMORY);
        for pattern in [r"\w".repeat(10_000), r"\w".repeat(3_000_000), "a".repeat(LONGEST + 1)] {
            assert_eq!(attempt(&pattern).unwrap_err().state(), SqlState::INVALID_REGULAR_EXPRESSION);
        }
        assert!(most <= MOST_READ);
    }
}
