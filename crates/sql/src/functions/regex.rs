//! Regular expressions: PostgreSQL's advanced ones, translated for crate `regex` and kept once compiled.
//!
//! What differs: back references and look-around are refused by name, for `regex` guarantees linear time. Where branches of an
//! alternation match at the same place, the first one wins, not the longest; and each repetition is greedy or not by itself,
//! not by the first one of its branch.

use crate::{Error, Result, SqlState};
use gannet_store::WorkMemory;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

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
fn weight(translated: &str, fold: bool) -> u64 {
    let classes = translated
        .as_bytes()
        .windows(2)
        .filter(|pair| matches!(pair, [b'\\', b'w' | b'W' | b's' | b'S' | b'p' | b'P']));
    let each = if fold { 3 * READ_CLASS } else { READ_CLASS };
    translated.len() as u64 * READ_BYTE + classes.count() as u64 * each
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
    let weight = weight(&translated, options.fold);
    if weight > MOST_READ {
        return Err(too_complex());
    }
    let _read = charge(weight)?;
    let mut limit = COMPILED_LEAST;
    loop {
        let bytes = 2 * limit + USED_BYTES;
        let memory = charge(bytes)?;
        let built = ::regex::RegexBuilder::new(&translated)
            .case_insensitive(options.fold)
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
            return Ok((::regex::escape(rest), options));
        }
        pattern = match pattern.strip_prefix("***") {
            None => pattern,
            Some(rest) => rest.strip_prefix(':').ok_or_else(|| invalid("quantifier operand invalid"))?,
        };
        if let Some(rest) = pattern.strip_prefix("(?")
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
    }
    if options.literal {
        return Ok((::regex::escape(pattern), options));
    }
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        groups: 0,
        out: String::with_capacity(pattern.len() + 8),
        options,
    };
    translator.run()?;
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
                c if self.options.expanded && c.is_whitespace() => last,
                '#' if self.options.expanded => {
                    while self.rest.next().is_some_and(|c| c != '\n') {}
                    last
                }
                c => {
                    self.literal(c);
                    Last::Atom
                }
            };
        }
        if open > 0 { Err(invalid("parentheses () not balanced")) } else { Ok(()) }
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() {
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
                self.literal(c);
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
            self.literal(start);
            if is_range {
                self.rest.next();
                let c = self.rest.next().ok_or_else(unbalanced)?;
                let end = self.member(c)?.ok_or_else(|| invalid("invalid character range"))?;
                if end < start {
                    return Err(invalid("invalid character range"));
                }
                self.out.push('-');
                self.literal(end);
            }
        }
        self.out.push(']');
        Ok(Last::Atom)
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
                    let class = named_class(&name).ok_or_else(|| invalid("invalid character class"))?;
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

/// The contents of the bracket for which a backslash and a letter stand.
fn class_escape(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "0-9",
        'D' => "[^0-9]",
        's' => r"\s",
        'S' => r"\S",
        'w' => r"\w",
        'W' => r"\W",
        _ => return None,
    })
}

fn named_class(name: &str) -> Option<&'static str> {
    Some(match name {
        "alnum" => r"\p{Alphabetic}\p{N}",
        "alpha" => r"\p{Alphabetic}",
        "ascii" => r"\x00-\x7f",
        "blank" => r"\t\p{Zs}",
        "cntrl" => r"\p{Cc}",
        "digit" => "0-9",
        "graph" => r"[^\s\p{Cc}\p{Cs}\p{Cn}]",
        "lower" => r"\p{Lowercase}",
        "print" => r"[^\p{Cc}\p{Cs}\p{Cn}]",
        "punct" => r"\p{P}\p{S}",
        "space" => r"\s",
        "upper" => r"\p{Uppercase}",
        "word" => r"\w",
        "xdigit" => "0-9A-Fa-f",
        _ => return None,
    })
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
        assert_eq!(translated(r"\d[\d\s]"), r"[0-9][0-9\s]");
        assert_eq!(translated("(?#comment)a*?"), "a*?");
        assert_eq!(translated("***=a.b"), r"a\.b");
        assert_eq!(translated("(?x)a b # c"), "ab");
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
