//! Tokens of a text, each with its place; blanks and comments are left out. Those that are not [`plain`] are read by `sqlparser`'s tokenizer.

use super::literals::blank;
use super::plain::{Place, Plain, plain};
use crate::{Error, Result, SqlState};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};
use std::ops::Range;

/// A token and its place.
#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    /// Place of its first character in the text, from 1, and of the one behind its last.
    pub(crate) characters: Range<usize>,
    /// The same in bytes, from 0.
    pub(crate) bytes: Range<usize>,
}

impl Lexeme {
    /// The keyword it is; `NoKeyword` if it is none.
    pub(super) fn keyword(&self) -> Keyword {
        match &self.token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        }
    }

    /// Whether it is this word, unquoted. (For words that are no keywords to `sqlparser`.)
    pub(super) fn is_word(&self, expected: &str) -> bool {
        matches!(&self.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
    }

    /// Whether it is a string literal.
    pub(super) fn is_string(&self) -> bool {
        matches!(
            self.token,
            Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::UnicodeStringLiteral(_)
                | Token::NationalStringLiteral(_)
                | Token::DollarQuotedString(_)
        )
    }

    /// As the parser takes it. Its columns are places in the whole text, so that a span's start is what a client is told; see
    /// [`position`].
    pub(super) fn located(&self) -> TokenWithSpan {
        let (start, end) = (self.characters.start as u64, self.characters.end as u64);
        TokenWithSpan::new(self.token.clone(), Span::new(Location::new(1, start), Location::new(1, end)))
    }
}

/// The place of a span, in characters from 1; `None` where the parser has kept none.
pub(super) fn position(span: Span) -> Option<usize> {
    (span.start.line != 0).then_some(span.start.column as usize)
}

/// Follows the tokenizer's lines and columns through the text.
struct Cursor<'t> {
    rest: std::str::Chars<'t>,
    line: u64,
    column: u64,
    character: usize,
    byte: usize,
}

impl Cursor<'_> {
    fn advance_to(&mut self, location: Location) -> (usize, usize) {
        while (self.line, self.column) < (location.line, location.column) {
            let Some(next) = self.rest.next() else { break };
            if next == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
            self.character += 1;
            self.byte += next.len_utf8();
        }
        (self.character, self.byte)
    }
}

/// The tokens of a text.
pub(crate) fn tokenize(sql: &str) -> Result<Vec<Lexeme>> {
    let Plain { mut lexemes, rest } = plain(sql);
    if rest.byte == sql.len() {
        return Ok(lexemes);
    }
    match read_rest(sql, rest, &mut lexemes) {
        Ok(()) => Ok(lexemes),
        // The message is about the whole text.
        Err(_) => {
            drop(lexemes);
            by_library(sql)
        }
    }
}

/// The same by the library's tokenizer alone.
pub(super) fn by_library(sql: &str) -> Result<Vec<Lexeme>> {
    let mut lexemes = Vec::new();
    read_rest(sql, Place { byte: 0, character: 1 }, &mut lexemes)?;
    Ok(lexemes)
}

/// Adds the tokens from a place on that lies between two of them.
fn read_rest(sql: &str, from: Place, lexemes: &mut Vec<Lexeme>) -> Result<()> {
    let rest = &sql[from.byte..];
    let (text, literals) = blank(rest)?;
    let mut literals = literals.into_iter().peekable();
    let mut tokens = Vec::new();
    let outcome = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize_with_location_into_buf(&mut tokens);
    if let Err(error) = outcome {
        return Err(unterminated(rest, &error.message, error.location));
    }
    let mut cursor =
        Cursor { rest: rest.chars(), line: 1, column: 1, character: from.character, byte: from.byte };
    lexemes.reserve(tokens.len() / 2 + 1);
    for TokenWithSpan { token, span } in tokens {
        if matches!(token, Token::Whitespace(_) | Token::EOF) {
            continue;
        }
        let (character, byte) = cursor.advance_to(span.start);
        let (character_end, byte_end) = cursor.advance_to(span.end);
        let literal = literals.next_if(|literal| literal.start + from.byte == byte);
        let token = literal.map_or(token, |literal| literal.token);
        let lexeme = Lexeme { token, characters: character..character_end, bytes: byte..byte_end };
        refuse_foreign(sql, &lexeme)?;
        split_signs(lexeme, lexemes)?;
    }
    match literals.next() {
        Some(_) => Err(Error::internal("a literal that is no token")),
        None => Ok(()),
    }
}

/// Adds a token; of an operator such as `>-` the signs at its end are tokens of their own, unless it has a character that permits
/// them (PostgreSQL's documentation, 4.1.3).
fn split_signs(lexeme: Lexeme, lexemes: &mut Vec<Lexeme>) -> Result<()> {
    let head = match &lexeme.token {
        Token::CustomBinaryOperator(text)
            if !text.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) =>
        {
            let head = text.trim_end_matches(['+', '-']);
            if head.is_empty() { &text[..1] } else { head }
        }
        _ => {
            lexemes.push(lexeme);
            return Ok(());
        }
    };
    let Token::CustomBinaryOperator(text) = &lexeme.token else { return Ok(()) };
    let (character, byte) = (lexeme.characters.start, lexeme.bytes.start);
    let mut part = |token: Token, from: usize, to: usize| {
        let characters = character + from..character + to;
        lexemes.push(Lexeme { token, characters, bytes: byte + from..byte + to });
    };
    if head.len() == text.len() {
        part(lexeme.token.clone(), 0, text.len());
        return Ok(());
    }
    for token in tokenize(head)? {
        part(token.token, token.bytes.start, token.bytes.end);
    }
    for (at, sign) in text.char_indices().skip(head.len()) {
        part(if sign == '-' { Token::Minus } else { Token::Plus }, at, at + 1);
    }
    Ok(())
}

/// Tokens of other dialects.
fn refuse_foreign(sql: &str, lexeme: &Lexeme) -> Result<()> {
    let text = &sql[lexeme.bytes.clone()];
    match &lexeme.token {
        Token::HexStringLiteral(_) if text.starts_with('0') => junk_behind(
            "numeric literal",
            &text[..1],
            &sql[lexeme.bytes.start + 1..],
            lexeme.characters.start,
        ),
        Token::Number(_, long) => {
            // A letter or underscore behind a number, which the tokenizer may have taken for a part of it.
            let end = if *long { text.len() - 1 } else { text.find('_').unwrap_or(text.len()) };
            let behind = &sql[lexeme.bytes.start + end..];
            junk_behind("numeric literal", &text[..end], behind, lexeme.characters.start)
        }
        Token::Placeholder(_) if text[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            let end = text[1..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| at + 1);
            let behind = &sql[lexeme.bytes.start + end..];
            junk_behind("parameter", &text[..end], behind, lexeme.characters.start)
        }
        Token::DoubleEq | Token::Backslash | Token::LBrace | Token::RBrace => {
            Err(near(text, lexeme.characters.start))
        }
        Token::Word(word) if word.quote_style.is_some() && word.value.is_empty() => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("zero-length delimited identifier at or near \"{text}\""),
        )
        .at(lexeme.characters.start)),
        _ => Ok(()),
    }
}

/// Refuses a word right behind a number.
fn junk_behind(what: &str, number: &str, behind: &str, position: usize) -> Result<()> {
    if !behind.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return Ok(());
    }
    let end = behind.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '$')).unwrap_or(behind.len());
    let message = format!("trailing junk after {what} at or near \"{number}{}\"", &behind[..end]);
    Err(Error::new(SqlState::SYNTAX_ERROR, message).at(position))
}

fn unterminated(sql: &str, message: &str, location: Location) -> Error {
    let mut cursor = Cursor { rest: sql.chars(), line: 1, column: 1, character: 1, byte: 0 };
    let (character, byte) = cursor.advance_to(location);
    let rest = &sql[byte..];
    let what = if message.contains("comment") {
        return Error::new(
            SqlState::SYNTAX_ERROR,
            format!("unterminated /* comment at or near \"{}\"", comment_start(sql)),
        );
    } else if message.contains('"') {
        "unterminated quoted identifier"
    } else if rest.starts_with('$') {
        "unterminated dollar-quoted string"
    } else if message.to_ascii_lowercase().contains("untermin") || message.contains("string") {
        "unterminated quoted string"
    } else {
        "syntax error"
    };
    Error::new(SqlState::SYNTAX_ERROR, format!("{what} at or near \"{rest}\"")).at(character)
}

fn comment_start(sql: &str) -> &str {
    sql.find("/*").map_or(sql, |at| &sql[at..])
}

/// `syntax error at or near "x"`
pub(super) fn near(text: &str, position: usize) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\"")).at(position)
}

/// `syntax error at end of input`
pub(super) fn at_end(position: usize) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(position)
}
