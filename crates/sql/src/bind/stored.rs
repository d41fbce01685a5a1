//! Expressions of definitions, defaults and checks, as they are stored: as text that means the same whoever reads it and when.

use super::bridge::SYMMETRIC;
use super::tokens::tokenize;
use crate::Result;
use sqlparser::tokenizer::Token;

/// The text to be stored of an expression as the syntax tree writes it: BETWEEN SYMMETRIC is what it was before the bridge, and in the
/// place of each literal in `times`, by its place, stands the text that it has there.
pub(super) fn text(sql: &str, times: &[(usize, String)]) -> Result<String> {
    let (mut result, mut done) = (String::new(), 0);
    // Open parentheses, and whether each is the bridge's.
    let mut open = Vec::new();
    let mut symmetric = false;
    for lexeme in tokenize(sql)? {
        let after_symmetric = std::mem::take(&mut symmetric);
        let instead = match &lexeme.token {
            Token::Word(word) if word.value == SYMMETRIC => {
                symmetric = true;
                Some("SYMMETRIC ".to_owned())
            }
            Token::LParen => {
                open.push(after_symmetric);
                after_symmetric.then(String::new)
            }
            Token::RParen => open.pop().filter(|bridge| *bridge).map(|_| String::new()),
            _ if lexeme.is_string() => {
                let time = times.iter().find(|(position, _)| *position == lexeme.characters.start);
                time.map(|(_, text)| format!("'{text}'"))
            }
            _ => None,
        };
        if let Some(instead) = instead {
            result.push_str(&sql[done..lexeme.bytes.start]);
            result.push_str(&instead);
            done = lexeme.bytes.end;
        }
    }
    result.push_str(&sql[done..]);
    Ok(result)
}
