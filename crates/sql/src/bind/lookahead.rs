//! What the bridge has to know of the tokens behind a word.

use super::identifier_text;
use super::tokens::Lexeme;
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// The parenthesis that closes the one at `open`, if there is one.
pub(super) fn closing(lexemes: &[Lexeme], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, lexeme) in lexemes.iter().enumerate().skip(open) {
        match lexeme.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > open).then_some(at);
        }
    }
    None
}

/// The AND that ends the lower bound of BETWEEN SYMMETRIC, which begins at `from`.
pub(super) fn symmetric_end(lexemes: &[Lexeme], from: usize) -> Option<usize> {
    let (mut open, mut betweens) = (0usize, 0usize);
    for (at, lexeme) in lexemes.iter().enumerate().skip(from) {
        match (&lexeme.token, lexeme.keyword()) {
            (Token::LParen | Token::LBracket, _) | (_, K::CASE) => open += 1,
            (Token::RParen | Token::RBracket, _) | (_, K::END) => open = open.checked_sub(1)?,
            (_, K::BETWEEN) if open == 0 => betweens += 1,
            (_, K::AND) if open == 0 && betweens == 0 => return Some(at),
            (_, K::AND) if open == 0 => betweens -= 1,
            _ => {}
        }
    }
    None
}

/// Whether the word at `at` is the TRIM of `TRIM(LEADING a, b)`, with TRAILING, and with FROM in front of the list, too.
pub(super) fn trims_list(lexemes: &[Lexeme], at: usize) -> bool {
    let keyword = |at: usize| lexemes.get(at).map_or(K::NoKeyword, Lexeme::keyword);
    if keyword(at) != K::TRIM || !matches!(keyword(at + 2), K::LEADING | K::TRAILING) {
        return false;
    }
    let Some(end) = closing(lexemes, at + 1) else { return false };
    let from = if keyword(at + 3) == K::FROM { at + 4 } else { at + 3 };
    let (mut depth, mut list) = (0usize, false);
    for lexeme in lexemes.iter().take(end).skip(from) {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => list = true,
            _ if depth == 0 && lexeme.keyword() == K::FROM => return false,
            _ => {}
        }
    }
    list
}

/// The name in `(s.+)` behind OPERATOR, which begins at `open`, and the closing parenthesis.
pub(super) fn operator_name(lexemes: &[Lexeme], open: usize) -> Option<(String, usize)> {
    let end = closing(lexemes, open)?;
    let (operator, schemas) = lexemes[open + 1..end].split_last()?;
    let mut name = String::new();
    for part in schemas.chunks(2) {
        match part {
            [Lexeme { token: Token::Word(word), .. }, Lexeme { token: Token::Period, .. }] => {
                name += &identifier_text(&word.value, word.quote_style.is_some());
                name.push('.');
            }
            _ => return None,
        }
    }
    let operator = operator.token.to_string();
    operator.chars().all(|c| "+-*/<>=~!@#%^&|`?".contains(c)).then(|| (name + &operator, end))
}
