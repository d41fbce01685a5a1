//! Finding places in a statement's text that the syntax tree does not keep: those of operators.

use super::tokens::position;
use sqlparser::tokenizer::Span;

/// Characters between two known bytes of a text that is not all ASCII.
const STEP: usize = 256;

/// A statement's text.
#[derive(Debug)]
pub(super) struct Places<'a> {
    text: &'a str,
    /// Where it begins in the text the client sent, in characters from 1.
    start: usize,
    /// The byte of every [`STEP`]th character; empty where bytes are characters.
    bytes: Vec<usize>,
}

impl<'a> Places<'a> {
    pub(super) fn new(text: &'a str, start: usize) -> Self {
        let bytes = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().step_by(STEP).map(|(byte, _)| byte).collect()
        };
        Places { text, start, bytes }
    }

    /// The byte of a character, both from 0.
    fn byte(&self, character: usize) -> Option<usize> {
        if self.bytes.is_empty() {
            return (character <= self.text.len()).then_some(character);
        }
        let known = *self.bytes.get(character / STEP)?;
        let rest = &self.text[known..];
        match rest.char_indices().nth(character % STEP) {
            Some((byte, _)) => Some(known + byte),
            None => Some(self.text.len()),
        }
    }

    /// The operator behind an expression: blanks and parentheses are passed over.
    pub(super) fn behind(&self, span: Span) -> Option<usize> {
        position(span)?;
        let end = (span.end.column as usize).checked_sub(self.start)?;
        let rest = &self.text[self.byte(end)?..];
        let passed = rest.chars().take_while(|c| c.is_whitespace() || *c == ')').count();
        Some(self.start + end + passed)
    }

    /// The operator before an expression, likewise.
    pub(super) fn before(&self, span: Span) -> Option<usize> {
        let begin = position(span)?.checked_sub(self.start)?;
        let before = &self.text[..self.byte(begin)?];
        let passed = before.chars().rev().take_while(|c| c.is_whitespace() || *c == '(').count();
        (self.start + begin).checked_sub(passed + 1)
    }
}
