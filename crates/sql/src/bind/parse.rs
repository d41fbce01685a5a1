//! From text to syntax trees.
//!
//! # Guarantees
//! 1. No text makes the parser overflow a stack of 1 MiB: depth is limited before it starts (see [`super::bridge`]), and what is
//!    deeper than usual is parsed on a stack of its own.
//! 2. Spans of the tree are places in the whole text the client sent, so that errors found later can point there.

use super::bridge::{SHALLOW, bridge};
use super::literal_rows::LiteralRows;
use super::stored::Kept;
use super::tokens::{Lexeme, at_end, near, tokenize};
use super::utility;
use super::{Kind, MAX_STATEMENT, Parsed};
use crate::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Stack for what is deeper than usual; only what is touched is taken.
const DEEP_STACK: usize = 64 << 20;

/// Limit of the parser's own counter: the depth was limited before.
const RECURSION_LIMIT: usize = 100_000;

/// A text and the tokens of one of its statements.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    pub(super) sql: &'t str,
    pub(super) lexemes: &'t [Lexeme],
}

impl<'t> Source<'t> {
    /// A part of it, by numbers of lexemes.
    pub(super) fn from(self, start: usize) -> Source<'t> {
        Source { sql: self.sql, lexemes: &self.lexemes[start.min(self.lexemes.len())..] }
    }

    /// The part `start..end`.
    pub(super) fn part(self, start: usize, end: usize) -> Source<'t> {
        Source { sql: self.sql, lexemes: &self.lexemes[start..end] }
    }

    /// The place behind it, in characters from 1.
    fn end(self) -> usize {
        self.lexemes.last().map_or(1, |last| last.characters.end)
    }

    /// Its text.
    pub(super) fn text(self) -> &'t str {
        match (self.lexemes.first(), self.lexemes.last()) {
            (Some(first), Some(last)) => &self.sql[first.bytes.start..last.bytes.end],
            _ => "",
        }
    }

    /// Whether expressions of it are kept as text: it defines a table.
    fn keeps_text(self) -> bool {
        let mut words = self.lexemes.iter().map(Lexeme::keyword);
        let defines = matches!(words.next(), Some(Keyword::CREATE | Keyword::ALTER));
        defines && words.take(3).any(|word| word == Keyword::TABLE)
    }

    /// The error for the lexeme of this number, or the end.
    pub(super) fn unexpected(self, at: usize) -> Error {
        match self.lexemes.get(at) {
            Some(lexeme) => near(&self.sql[lexeme.bytes.clone()], lexeme.characters.start),
            None => at_end(self.end()),
        }
    }
}

/// The statements of a text, separated by semicolons. Each is parsed when it is its turn, as trees are large; that all of them can
/// be, is known.
pub struct Statements<'t> {
    sql: &'t str,
    lexemes: Vec<Lexeme>,
    /// Those parsed already, the last one first.
    parsed: Vec<Parsed>,
    /// The first lexeme behind what was given.
    next: usize,
    count: usize,
}

/// Of several statements those of texts of so many tokens are parsed once, and kept.
const KEPT: usize = 4096;

impl<'t> Statements<'t> {
    /// Reads a text. Syntax errors carry 42601 and a position.
    pub fn read(sql: &'t str) -> Result<Self> {
        let lexemes = lexemes(sql)?;
        let mut statements = Statements { sql, lexemes, parsed: Vec::new(), next: 0, count: 0 };
        let short = statements.lexemes.len() <= KEPT;
        let mut keeps = true;
        let mut kept = Vec::new();
        while let Some(parsed) = statements.parse_next()? {
            statements.count += 1;
            // A long one that is all of its text is kept as well.
            keeps = short || statements.count == 1 && statements.is_at_end();
            if keeps {
                kept.push(parsed);
            }
        }
        kept.reverse();
        statements.parsed = kept;
        statements.next = 0;
        if keeps {
            statements.lexemes = Vec::new();
        }
        Ok(statements)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next one.
    pub fn take(&mut self) -> Result<Option<Parsed>> {
        match self.parsed.pop() {
            Some(parsed) => Ok(Some(parsed)),
            None => self.parse_next(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.lexemes[self.next..].iter().all(|lexeme| lexeme.token == Token::SemiColon)
    }

    fn parse_next(&mut self) -> Result<Option<Parsed>> {
        let separates = |lexeme: &Lexeme| lexeme.token == Token::SemiColon;
        let rest = &self.lexemes[self.next..];
        let Some(skipped) = rest.iter().position(|lexeme| !separates(lexeme)) else { return Ok(None) };
        let length = rest[skipped..].iter().position(separates).unwrap_or(rest.len() - skipped);
        let lexemes = &rest[skipped..skipped + length];
        let parsed = parse_one(Source { sql: self.sql, lexemes })?;
        self.next += skipped + length;
        Ok(Some(parsed))
    }
}

/// Splits and parses a text of statements separated by semicolons. Syntax errors carry 42601 and a position.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    let mut statements = Statements::read(sql)?;
    let mut all = Vec::with_capacity(statements.count());
    while let Some(parsed) = statements.take()? {
        all.push(parsed);
    }
    Ok(all)
}

fn lexemes(sql: &str) -> Result<Vec<Lexeme>> {
    if sql.len() > MAX_STATEMENT {
        let message = format!("a statement of more than {MAX_STATEMENT} bytes");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    tokenize(sql)
}

/// Parses one statement.
pub(super) fn parse_one(source: Source<'_>) -> Result<Parsed> {
    let kind = match utility::parse(source)? {
        Some(utility) => Kind::Utility(Box::new(utility)),
        None => Kind::Sql(Box::new(parse_statement(source)?)),
    };
    let position = source.lexemes.first().map_or(1, |first| first.characters.start);
    Ok(Parsed { kind, text: source.text().to_owned(), position })
}

/// Parses one statement of the parser's.
pub(super) fn parse_statement(source: Source<'_>) -> Result<ast::Statement> {
    if let Some(rows) = LiteralRows::of(source.lexemes) {
        // An error is to be about the whole statement.
        if let Ok(mut statement) = parse_whole(Source { lexemes: &rows.rest, ..source })
            && rows.put_into(&mut statement)
        {
            return Ok(statement);
        }
    }
    parse_whole(source)
}

/// The same by the parser alone.
pub(super) fn parse_whole(source: Source<'_>) -> Result<ast::Statement> {
    with_parser(source, |parser| parser.parse_statement())
}

/// Parses one query or DML statement, for EXPLAIN, COPY and PREPARE. What else may stand there in PostgreSQL comes out as a utility
/// statement; none that holds a statement in turn, so there is no recursion.
pub(super) fn parse_inner(source: Source<'_>) -> Result<Parsed> {
    let allowed = source.lexemes.first().is_some_and(|first| {
        first.token == Token::LParen
            || matches!(
                first.keyword(),
                Keyword::SELECT
                    | Keyword::VALUES
                    | Keyword::WITH
                    | Keyword::TABLE
                    | Keyword::INSERT
                    | Keyword::UPDATE
                    | Keyword::DELETE
                    | Keyword::MERGE
                    | Keyword::CREATE
                    | Keyword::EXECUTE
                    | Keyword::DECLARE
            )
    });
    if allowed { parse_one(source) } else { Err(source.unexpected(0)) }
}

/// Parses an expression that is all of a text.
pub(super) fn parse_expression(sql: &str) -> Result<ast::Expr> {
    let lexemes = tokenize(sql)?;
    let source = Source { sql, lexemes: &lexemes };
    with_parser(source, |parser| parser.parse_expr())
}

/// Parses something that takes all lexemes of `source`.
pub(super) fn with_parser<T: Send>(
    source: Source<'_>,
    parse: impl FnOnce(&mut Parser<'_>) -> std::result::Result<T, ParserError> + Send,
) -> Result<T> {
    let kept = source.keeps_text().then(|| Kept::of(source));
    let bridged = bridge(kept.as_ref().map_or(source.lexemes, |kept| &kept.lexemes))?;
    let tokens = bridged.tokens;
    let run = move || run_parser(tokens, parse);
    let outcome = if bridged.nesting <= SHALLOW {
        run()
    } else {
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("parser".to_owned()).stack_size(DEEP_STACK);
            let thread = builder.spawn_scoped(scope, run).map_err(|error| {
                ParserError::TokenizerError(format!("no thread for a deep statement: {error}"))
            })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    let parsed = outcome.map_err(|error| syntax_error(source, &error))?;
    kept.and_then(|kept| kept.failed).map_or(Ok(parsed), Err)
}

fn run_parser<T>(
    tokens: Vec<TokenWithSpan>,
    parse: impl FnOnce(&mut Parser<'_>) -> std::result::Result<T, ParserError>,
) -> std::result::Result<T, ParserError> {
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(tokens);
    let parsed = parse(&mut parser)?;
    let next = parser.peek_token();
    if next.token == Token::EOF {
        Ok(parsed)
    } else {
        Err(ParserError::ParserError(format!("Expected: end, found: {next}{}", next.span.start)))
    }
}

/// The parser's error in PostgreSQL's words. Its messages end in the place of the token it did not like.
fn syntax_error(source: Source<'_>, error: &ParserError) -> Error {
    let message = match error {
        ParserError::ParserError(message) => message,
        ParserError::TokenizerError(message) => {
            return Error::new(SqlState::OUT_OF_MEMORY, message.clone());
        }
        ParserError::RecursionLimitExceeded => {
            return Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded");
        }
    };
    let column = message.rsplit_once("Column: ").and_then(|(_, column)| column.trim().parse::<usize>().ok());
    let lexeme = column
        .and_then(|column| source.lexemes.iter().position(|lexeme| lexeme.characters.contains(&column)));
    source.unexpected(lexeme.unwrap_or(source.lexemes.len()))
}
