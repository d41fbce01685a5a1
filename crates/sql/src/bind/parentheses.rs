//! Which parentheses are around a query. The parser takes that for granted only where SELECT or WITH follows; in PostgreSQL's grammar it
//! is a query, too, that begins with VALUES, or with a query in parentheses that is all there is or is followed by UNION, ORDER BY and so
//! on: `((select 1) union (select 2))`, while `((select 1) + 2)` is an expression.

use super::bridge::ends_operand;
use super::tokens::Lexeme;
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// What the parser has to be told of a parenthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A query follows.
    Query,
    /// It is the list of an IN, though it begins with a query in parentheses.
    List,
}

/// An open parenthesis.
struct Level {
    /// The first lexeme behind it.
    first: usize,
    /// Whether it may be around a query: it is neither that of a call, nor that of a row of VALUES.
    free: bool,
    /// Whether all since a VALUES were its rows.
    values: bool,
    /// The query in parentheses it begins with: where these are closed, and whether they need a mark if this is no query.
    leading: Option<(usize, bool)>,
}

impl Level {
    fn new(first: usize, free: bool) -> Self {
        Level { first, free, values: false, leading: None }
    }
}

/// The parentheses that need a mark, by number of lexeme.
pub(super) fn marks(lexemes: &[Lexeme]) -> Vec<(usize, Mark)> {
    let mut marks = Vec::new();
    let mut levels = vec![Level::new(0, true)];
    for (at, lexeme) in lexemes.iter().enumerate() {
        let level = levels.last_mut().expect("the outermost level stays");
        match lexeme.token {
            Token::LParen => {
                let free = is_free(lexemes, at, level.values);
                levels.push(Level::new(at + 1, free));
            }
            Token::RParen => {
                if levels.len() == 1 {
                    continue;
                }
                let level = levels.pop().expect("more than one");
                let around = levels.last_mut().expect("the outermost level stays");
                close(lexemes, &level, at, around, &mut marks);
            }
            Token::Comma => {}
            _ => level.values = is_values(lexemes, at),
        }
    }
    marks.sort_unstable_by_key(|(at, _)| *at);
    marks
}

/// Judges a level that is closed at `end`.
fn close(lexemes: &[Lexeme], level: &Level, end: usize, around: &mut Level, marks: &mut Vec<(usize, Mark)>) {
    let open = level.first - 1;
    let plain = matches!(lexemes[level.first].keyword(), K::SELECT | K::WITH | K::TABLE);
    let continues = |closed: usize| closed + 1 == end || goes_on(lexemes[closed + 1].keyword());
    let query = level.free
        && (plain
            || is_values(lexemes, level.first)
            || level.leading.is_some_and(|(closed, _)| continues(closed)));
    if query {
        // Within a query that begins here, the parser knows.
        if around.first == open {
            around.leading = Some((end, !plain));
        } else if !plain {
            marks.push((open, Mark::Query));
        }
        return;
    }
    let Some((_, unmarked)) = level.leading else { return };
    if unmarked {
        marks.push((level.first, Mark::Query));
    }
    let before =
        |at: usize, back: usize| at.checked_sub(back).map_or(K::NoKeyword, |at| lexemes[at].keyword());
    // POSITION(a IN b) has no list.
    let operator = open > 1 && (before(open, 2) == K::NOT || ends_operand(&lexemes[open - 2]));
    if before(open, 1) == K::IN && operator && before(around.first, 2) != K::POSITION {
        marks.push((open, Mark::List));
    }
}

/// Whether VALUES stands there, with its rows.
fn is_values(lexemes: &[Lexeme], at: usize) -> bool {
    lexemes[at].keyword() == K::VALUES && lexemes.get(at + 1).is_some_and(|next| next.token == Token::LParen)
}

/// Whether a query in parentheses is part of a greater one when this follows.
fn goes_on(keyword: K) -> bool {
    matches!(
        keyword,
        K::UNION | K::EXCEPT | K::INTERSECT | K::ORDER | K::LIMIT | K::OFFSET | K::FETCH | K::FOR
    )
}

/// Whether the parenthesis of this number may be around a query. `values`: a comma before it stands between rows of VALUES.
fn is_free(lexemes: &[Lexeme], at: usize, values: bool) -> bool {
    let Some(before) = at.checked_sub(1).map(|at| &lexemes[at]) else { return true };
    match before.token {
        Token::Comma => !values,
        // What follows a name is the list of its arguments or columns; the query of an INSERT the parser knows.
        Token::Word(_) => match before.keyword() {
            K::ON => at < 2 || lexemes[at - 2].keyword() != K::DISTINCT,
            keyword => matches!(
                keyword,
                K::SELECT
                    | K::DISTINCT
                    | K::ALL
                    | K::ANY
                    | K::SOME
                    | K::EXISTS
                    | K::ARRAY
                    | K::IN
                    | K::NOT
                    | K::AND
                    | K::OR
                    | K::BETWEEN
                    | K::SYMMETRIC
                    | K::ASYMMETRIC
                    | K::LIKE
                    | K::ILIKE
                    | K::ESCAPE
                    | K::ZONE
                    | K::WHEN
                    | K::THEN
                    | K::ELSE
                    | K::CASE
                    | K::FROM
                    | K::JOIN
                    | K::LATERAL
                    | K::USING
                    | K::WHERE
                    | K::BY
                    | K::HAVING
                    | K::LIMIT
                    | K::OFFSET
                    | K::FOR
                    | K::UNION
                    | K::EXCEPT
                    | K::INTERSECT
                    | K::AS
                    | K::MATERIALIZED
                    | K::RETURNING
            ),
        },
        _ => true,
    }
}
