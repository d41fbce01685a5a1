//! Expressions of definitions, defaults and checks, as they are stored: as text that means the same whoever reads it and when.

use super::bridge::{ends_operand, is_name};
use super::lookahead::closing;
use super::parse::{Source, with_parser};
use super::tokens::{Lexeme, tokenize};
use crate::{Error, Result};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// The lexemes of a table's definition, in which each expression to be stored is one: a placeholder, which the syntax tree takes for an
/// expression and whose name is the text.
pub(super) struct Kept {
    pub(super) lexemes: Vec<Lexeme>,
    /// What is wrong with an expression that was left as it is, with all behind it. The error that the parser finds in the whole is to the point.
    pub(super) failed: Option<Error>,
}

impl Kept {
    pub(super) fn of(source: Source<'_>) -> Kept {
        let (mut lexemes, mut failed) = (Vec::with_capacity(source.lexemes.len()), None);
        let mut at = 0;
        while at < source.lexemes.len() {
            lexemes.push(source.lexemes[at].clone());
            at += 1;
            let Some((start, end)) = expression_behind(source.lexemes, at - 1) else { continue };
            match as_written(source.part(start, end)) {
                Ok(text) => {
                    lexemes.extend_from_slice(&source.lexemes[at..start]);
                    let (first, last) = (&source.lexemes[start], &source.lexemes[end - 1]);
                    lexemes.push(Lexeme {
                        token: Token::Placeholder(text),
                        characters: first.characters.start..last.characters.end,
                        bytes: first.bytes.start..last.bytes.end,
                    });
                    at = end;
                }
                Err(error) => {
                    lexemes.extend_from_slice(&source.lexemes[at..]);
                    failed = Some(error);
                    break;
                }
            }
        }
        Kept { lexemes, failed }
    }
}

/// Where the expression begins and ends that belongs to the word of this number, if it is the DEFAULT or CHECK of one.
fn expression_behind(lexemes: &[Lexeme], at: usize) -> Option<(usize, usize)> {
    let before = |back: usize| at.checked_sub(back).map(|at| &lexemes[at]);
    if before(1).is_some_and(is_name) {
        return None;
    }
    let word = |back: usize| before(back).map_or(K::NoKeyword, Lexeme::keyword);
    let (start, end) = match (word(0), word(1)) {
        (K::CHECK, _) => (at + 2, closing(lexemes, at + 1).unwrap_or(lexemes.len())),
        // BY DEFAULT AS IDENTITY, DROP DEFAULT, ON DELETE SET DEFAULT
        (K::DEFAULT, K::BY | K::DROP) => return None,
        (K::DEFAULT, K::SET) if word(3) == K::ON => return None,
        (K::DEFAULT, previous) => (at + 1, default_end(lexemes, at + 1, previous != K::SET)),
        _ => return None,
    };
    (start < end).then_some((start, end))
}

/// Where the expression of a DEFAULT ends. In the definition of a column (`defines`) its other options may follow.
fn default_end(lexemes: &[Lexeme], start: usize, defines: bool) -> usize {
    let mut open = 0usize;
    for (at, lexeme) in lexemes.iter().enumerate().skip(start) {
        let follows = at > start && ends_operand(&lexemes[at - 1]);
        match (&lexeme.token, lexeme.keyword()) {
            (Token::Comma | Token::RParen, _) if open == 0 => return at,
            (Token::LParen | Token::LBracket, _) | (_, K::CASE) => open += 1,
            (Token::RParen | Token::RBracket, _) | (_, K::END) => open = open.saturating_sub(1),
            (
                _,
                K::NOT
                | K::NULL
                | K::CONSTRAINT
                | K::CHECK
                | K::UNIQUE
                | K::PRIMARY
                | K::REFERENCES
                | K::GENERATED
                | K::COLLATE
                | K::DEFAULT
                | K::DEFERRABLE
                | K::INITIALLY,
            ) if open == 0 && defines && follows => return at,
            _ => {}
        }
    }
    lexemes.len()
}

/// An expression as the syntax tree writes it, where that is made of the same tokens: not where the tree has lost a quote or the blank
/// between two signs, or has what the bridge put there. Then it is as it was written, without comments.
fn as_written(source: Source<'_>) -> Result<String> {
    let written = with_parser(source, |parser| parser.parse_expr())?.to_string();
    if tokenize(&written).is_ok_and(|lexemes| are_same(&lexemes, source.lexemes)) {
        return Ok(written);
    }
    let mut text = String::new();
    for (at, lexeme) in source.lexemes.iter().enumerate() {
        if at > 0 && source.lexemes[at - 1].bytes.end < lexeme.bytes.start {
            text.push(' ');
        }
        text.push_str(&source.sql[lexeme.bytes.clone()]);
    }
    Ok(text)
}

fn are_same(left: &[Lexeme], right: &[Lexeme]) -> bool {
    let same = |(left, right): (&Lexeme, &Lexeme)| match (&left.token, &right.token) {
        (Token::Word(left), Token::Word(right)) if left.quote_style.is_none() => {
            right.quote_style.is_none() && left.value.eq_ignore_ascii_case(&right.value)
        }
        (left, right) => left == right,
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}

/// The text to be stored of an expression: in the place of each literal in `times`, by its place, stands the text that it has there.
pub(super) fn text(sql: &str, times: &[(usize, String)]) -> Result<String> {
    let (mut result, mut done) = (String::new(), 0);
    for lexeme in tokenize(sql)? {
        let time = times.iter().find(|(position, _)| *position == lexeme.characters.start);
        if let Some((_, text)) = time.filter(|_| lexeme.is_string()) {
            result.push_str(&sql[done..lexeme.bytes.start]);
            result.push_str(&format!("'{text}'"));
            done = lexeme.bytes.end;
        }
    }
    result.push_str(&sql[done..]);
    Ok(result)
}
