//! Reading tokens one by one.

use super::super::identifier_text;
use super::super::parse::Source;
use super::super::tokens::Lexeme;
use super::Utility;
use super::copy::CopyRelation;
use crate::{Error, Result, SqlState};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// Reads the tokens of a statement.
pub(super) struct Reader<'t> {
    source: Source<'t>,
    at: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(source: Source<'t>) -> Self {
        Reader { source, at: 0 }
    }

    fn peek(&self, ahead: usize) -> Option<&'t Lexeme> {
        self.source.lexemes.get(self.at + ahead)
    }

    pub(super) fn token(&self, ahead: usize) -> Option<&'t Token> {
        self.peek(ahead).map(|lexeme| &lexeme.token)
    }

    pub(super) fn keyword(&self, ahead: usize) -> K {
        self.peek(ahead).map_or(K::NoKeyword, Lexeme::keyword)
    }

    pub(super) fn is_word(&self, ahead: usize, word: &str) -> bool {
        self.peek(ahead).is_some_and(|lexeme| lexeme.is_word(word))
    }

    pub(super) fn is_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, word)| self.is_word(ahead, word))
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.source.lexemes.len()
    }

    /// The place of the next token.
    pub(super) fn position(&self) -> usize {
        self.peek(0).map_or(1, |lexeme| lexeme.characters.start)
    }

    pub(super) fn unexpected(&self) -> Error {
        self.source.unexpected(self.at)
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn accept(&mut self, keyword: K) -> bool {
        let found = self.keyword(0) == keyword;
        self.at += usize::from(found);
        found
    }

    pub(super) fn accept_words(&mut self, words: &[&str]) -> bool {
        let found = self.is_words(words);
        if found {
            self.at += words.len();
        }
        found
    }

    pub(super) fn accept_token(&mut self, token: &Token) -> bool {
        let found = self.token(0) == Some(token);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, keyword: K) -> Result<()> {
        if self.accept(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.accept_token(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// A name.
    pub(super) fn name(&mut self) -> Result<String> {
        match self.token(0) {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(identifier_text(&word.value, word.quote_style.is_some()))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A relation's name, with its schema if given.
    pub(super) fn relation(&mut self) -> Result<CopyRelation> {
        self.accept(K::ONLY);
        let position = self.position();
        let mut parts = vec![self.name()?];
        while self.accept_token(&Token::Period) {
            parts.push(self.name()?);
        }
        let name = parts.pop().expect("one was pushed");
        Ok(CopyRelation { schema: parts.pop(), name, position })
    }

    /// A relation and a column of it: `t.a`, `s.t.a`; `None` for a name without dots.
    pub(super) fn relation_column(&mut self) -> Result<Option<(CopyRelation, String)>> {
        let position = self.position();
        let mut parts = vec![self.name()?];
        while self.accept_token(&Token::Period) {
            parts.push(self.name()?);
        }
        let column = parts.pop().expect("one was pushed");
        let Some(name) = parts.pop() else { return Ok(None) };
        Ok(Some((CopyRelation { schema: parts.pop(), name, position }, column)))
    }

    /// `(a, b)`, or nothing.
    pub(super) fn optional_names(&mut self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        if self.accept_token(&Token::LParen) {
            loop {
                names.push(self.name()?);
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(names)
    }

    /// A string.
    pub(super) fn string(&mut self) -> Result<String> {
        match self.token(0) {
            Some(
                Token::SingleQuotedString(text)
                | Token::EscapedStringLiteral(text)
                | Token::UnicodeStringLiteral(text)
                | Token::NationalStringLiteral(text),
            ) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(Token::DollarQuotedString(string)) => {
                self.at += 1;
                Ok(string.value.clone())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// A word, string or number with its sign.
    pub(super) fn setting_value(&mut self) -> Result<String> {
        let negative = self.accept_token(&Token::Minus);
        if !negative {
            self.accept_token(&Token::Plus);
        }
        match self.token(0) {
            Some(Token::Number(number, _)) => {
                self.at += 1;
                Ok(if negative { format!("-{number}") } else { number.clone() })
            }
            _ if negative => Err(self.unexpected()),
            Some(Token::Word(_)) => self.name(),
            _ => self.string(),
        }
    }

    /// The value of an option in parentheses, if it has one.
    pub(super) fn option_value(&mut self) -> Result<Option<String>> {
        match self.token(0) {
            Some(Token::Comma | Token::RParen) | None => Ok(None),
            _ => self.setting_value().map(Some),
        }
    }

    /// The value of an option that is true or false.
    pub(super) fn boolean_option(&mut self, name: &str) -> Result<bool> {
        let position = self.position();
        match self.option_value()?.map(|value| value.to_lowercase()).as_deref() {
            None | Some("true" | "on" | "1") => Ok(true),
            Some("false" | "off" | "0") => Ok(false),
            Some(_) => {
                let message = format!("{name} requires a Boolean value");
                Err(Error::new(SqlState::SYNTAX_ERROR, message).at(position))
            }
        }
    }

    /// How many tokens ahead the parenthesis ends that begins here.
    pub(super) fn closing(&self) -> Result<usize> {
        let mut open = 0usize;
        for ahead in 0.. {
            match self.token(ahead) {
                Some(Token::LParen) => open += 1,
                Some(Token::RParen) => {
                    open = open.saturating_sub(1);
                    if open == 0 {
                        return Ok(ahead);
                    }
                }
                Some(_) => {}
                None => return Err(self.source.unexpected(usize::MAX)),
            }
        }
        Err(self.unexpected())
    }

    /// The tokens up to the one that was `ahead` before the last skip of one.
    pub(super) fn take_until(&mut self, ahead: usize) -> Source<'t> {
        let end = self.at + ahead - 1;
        let part = self.source.part(self.at, end);
        self.at = end;
        part
    }

    /// All that is left.
    pub(super) fn rest(&self) -> Source<'t> {
        self.source.from(self.at)
    }

    /// Passes over the rest of a statement that is not implemented.
    pub(super) fn unsupported_to_end(&mut self, name: &str) -> Result<Utility> {
        self.at = self.source.lexemes.len();
        Ok(Utility::Unsupported(name.to_owned()))
    }
}
