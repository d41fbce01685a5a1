//! `INSERT ... VALUES` of many rows of literals, most of which go past the parser: it is given the statement with the first of them, and what
//! it would make of the others is put behind that. To the parser each literal is an expression that may go on.
//!
//! # Guarantees
//! 1. The tree is the one that the parser makes of the whole statement. Where it refuses what is left of it, it is asked for all, and complains about that.

use super::tokens::Lexeme;
use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// Fewer are the parser's.
const ROWS_LEAST: usize = 8;

/// A statement without most of its rows, and these.
pub(super) struct LiteralRows {
    /// The lexemes of the rest.
    pub(super) rest: Vec<Lexeme>,
    rows: Vec<ast::Parens<Vec<ast::Expr>>>,
    /// The parenthesis that they stand behind.
    behind: Span,
}

impl LiteralRows {
    /// Takes a statement apart; `None` where it is not one of these.
    pub(super) fn of(lexemes: &[Lexeme]) -> Option<Self> {
        if lexemes.first()?.keyword() != Keyword::INSERT {
            return None;
        }
        let (_, first) = row(lexemes, values(lexemes)? + 1)?;
        let (mut rows, mut end) = (Vec::new(), first);
        while let Some(Token::Comma) = lexemes.get(end).map(|lexeme| &lexeme.token)
            && let Some((next, behind)) = row(lexemes, end + 1)
        {
            rows.push(next);
            end = behind;
        }
        // What is left is copied.
        if rows.len() < ROWS_LEAST || end - first < lexemes.len() / 2 {
            return None;
        }
        let rest = lexemes[..first].iter().chain(&lexemes[end..]).cloned().collect();
        Some(LiteralRows { rest, rows, behind: lexemes[first - 1].located().span })
    }

    /// Puts the rows into the tree of the rest; false where they have no place there.
    pub(super) fn put_into(self, statement: &mut ast::Statement) -> bool {
        let ast::Statement::Insert(ast::Insert { source: Some(query), .. }) = statement else { return false };
        let ast::SetExpr::Values(values) = &mut *query.body else { return false };
        // VALUES may have been a name, and what follows a list of names: of columns, say.
        if values.rows.first().is_none_or(|row| row.closing_token.0.span != self.behind) {
            return false;
        }
        values.rows.splice(1..1, self.rows);
        true
    }
}

/// Where VALUES stands outside of parentheses.
fn values(lexemes: &[Lexeme]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, lexeme) in lexemes.iter().enumerate() {
        match lexeme.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ if depth == 0 && lexeme.keyword() == Keyword::VALUES => return Some(at),
            _ => {}
        }
    }
    None
}

/// The row of literals that begins here, and where it ends.
fn row(lexemes: &[Lexeme], at: usize) -> Option<(ast::Parens<Vec<ast::Expr>>, usize)> {
    let opening = lexemes.get(at).filter(|lexeme| lexeme.token == Token::LParen)?;
    let (mut content, mut next) = (Vec::new(), at + 1);
    loop {
        let (literal, behind) = literal(lexemes, next)?;
        content.push(literal);
        let separator = lexemes.get(behind)?;
        next = behind + 1;
        match separator.token {
            Token::Comma => {}
            Token::RParen => {
                let attached = |lexeme: &Lexeme| lexeme.located().into();
                let row = ast::Parens {
                    opening_token: attached(opening),
                    content,
                    closing_token: attached(separator),
                };
                return Some((row, next));
            }
            _ => return None,
        }
    }
}

/// The literal that begins here, and where it ends.
fn literal(lexemes: &[Lexeme], at: usize) -> Option<(ast::Expr, usize)> {
    let lexeme = lexemes.get(at)?;
    let TokenWithSpan { token, span } = lexeme.located();
    let value = match token {
        Token::Minus if matches!(lexemes.get(at + 1)?.token, Token::Number(..)) => {
            let (number, behind) = literal(lexemes, at + 1)?;
            let minus = ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: Box::new(number) };
            return Some((minus, behind));
        }
        Token::Number(digits, long) => ast::Value::Number(digits, long),
        Token::SingleQuotedString(text) => ast::Value::SingleQuotedString(text),
        Token::Word(word) if word.quote_style.is_none() => match word.keyword {
            Keyword::NULL => ast::Value::Null,
            Keyword::TRUE => ast::Value::Boolean(true),
            Keyword::FALSE => ast::Value::Boolean(false),
            _ => return None,
        },
        _ => return None,
    };
    Some((ast::Expr::Value(ast::ValueWithSpan { value, span }), at + 1))
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse_statement, parse_whole};
    use super::super::tokens::tokenize;
    use super::*;
    use crate::bind::parse::Source;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Items of rows: literals, and what only begins like them.
    const ITEMS: [&str; 22] = [
        "1",
        "-2.5",
        "'s'",
        "null",
        "TRUE",
        "false",
        "0",
        "'it''s'",
        "-1",
        "1 + 1",
        "default",
        "- - 1",
        "+1",
        "'a' || 'b'",
        "$1",
        "\"null\"",
        "(select 1)",
        "1::int",
        "'x' collate \"C\"",
        "date '2024-01-01'",
        "",
        "E'\\n'",
    ];

    /// In some of them VALUES is a name, and names follow.
    const HEADS: [&str; 9] = [
        "insert into t values ",
        "insert into s.t as u (a, b) values ",
        "insert into values values ",
        "insert into values ",
        "insert into public.values ",
        "insert into t as values ",
        "insert into t with values ",
        "insert into t value (1) returning values ",
        "values ",
    ];

    const TAILS: [&str; 9] = [
        "",
        " returning a",
        " on conflict do nothing",
        ", (1)",
        ",",
        " union select 1",
        ")",
        " values (1)",
        " as (select 1) values (1)",
    ];

    fn shown(sql: &str, parse: fn(Source<'_>) -> crate::Result<ast::Statement>) -> String {
        let lexemes = tokenize(sql).unwrap();
        format!("{:?}", parse(Source { sql, lexemes: &lexemes }))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

        #[test]
        fn trees_are_those_of_the_parser(
            head in select(&HEADS[..]),
            rows in vec((vec(0..8_usize, 1..3), 0..40_usize, 0..ITEMS.len()), 1..16),
            tail in select(&TAILS[..]),
        ) {
            let rows: Vec<String> = rows
                .iter()
                .map(|(items, odd, item)| {
                    let mut items: Vec<&str> = items.iter().map(|at| ITEMS[*at]).collect();
                    if *odd == 0 {
                        items.push(ITEMS[*item]);
                    }
                    format!("({})", items.join(", "))
                })
                .collect();
            let sql = format!("{head}{}{tail}", rows.join(","));
            prop_assert_eq!(shown(&sql, parse_statement), shown(&sql, parse_whole), "{}", sql);
        }
    }

    #[test]
    fn names_are_no_rows() {
        let names = ["(null)"; 9].join(",");
        for sql in [
            format!("insert into t with values {names} as (select 1) values (1)"),
            format!("insert into t as values {names} values (1)"),
            format!("insert into values {names} values (1)"),
            format!("insert into t value (1) returning values {names}"),
        ] {
            assert_eq!(shown(&sql, parse_statement), shown(&sql, parse_whole), "{sql}");
        }
    }

    #[test]
    fn most_rows_go_past_the_parser() {
        let taken = |sql: &str| LiteralRows::of(&tokenize(sql).unwrap()).map(|found| found.rows.len());
        let rows = ["(1, 'a', null)"; 20].join(", ");
        assert_eq!(taken(&format!("insert into t (a, b, c) values {rows} returning a")), Some(19));
        assert_eq!(taken(&format!("insert into t values {rows}, (1, b, null)")), Some(19));
        assert_eq!(taken(&format!("insert into t values {rows}, (1, b, null), {rows}, {rows}")), None);
        assert_eq!(taken(&format!("insert into t values (1 + 1), {rows}")), None);
        assert_eq!(taken(&format!("insert into t select * from (values {rows})")), None);
        assert_eq!(taken(&format!("values {rows}")), None);
        assert_eq!(taken("insert into t values (1), (2)"), None);
    }
}
