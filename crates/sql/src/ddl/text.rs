//! Expressions that are kept as text: defaults and checks. What they mention is found, and renamed, in their tokens.

use crate::catalog::{ColumnNumber, Table};
use crate::system::definition::quote_identifier;
use crate::{Error, Result};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// A name as it stands in SQL text.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string constant.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let dialect = PostgreSqlDialect {};
    Tokenizer::new(&dialect, text)
        .tokenize()
        .map_err(|error| Error::internal(format!("a stored expression cannot be read: {error}")))
}

fn folded(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

/// The token next to a place, white space left out.
fn beside<'t>(mut tokens: impl Iterator<Item = &'t Token>) -> Option<&'t Token> {
    tokens.find(|token| !matches!(token, Token::Whitespace(_)))
}

/// Places of words that can be names of columns, with the name.
fn column_places(tokens: &[Token]) -> Vec<(usize, String)> {
    let mut places = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        let Some(name) = folded(token) else { continue };
        let call = beside(tokens[place + 1..].iter()) == Some(&Token::LParen);
        let qualifier = beside(tokens[place + 1..].iter()) == Some(&Token::Period);
        let type_name = beside(tokens[..place].iter().rev()) == Some(&Token::DoubleColon);
        if !call && !qualifier && !type_name {
            places.push((place, name));
        }
    }
    places
}

/// The table's columns that an expression mentions, each once.
pub(crate) fn columns_mentioned(table: &Table, text: &str) -> Result<Vec<ColumnNumber>> {
    let mut found = Vec::new();
    for (_, name) in column_places(&tokens(text)?) {
        if let Some(position) = table.find_column(&name) {
            let number = table.columns[position].number;
            if !found.contains(&number) {
                found.push(number);
            }
        }
    }
    Ok(found)
}

/// The expression with a column renamed.
pub(super) fn rename_column(text: &str, old: &str, new: &str) -> Result<String> {
    let mut tokens = tokens(text)?;
    for (place, name) in column_places(&tokens) {
        if name == old {
            tokens[place] = Token::make_word(new, Some('"'));
        }
    }
    Ok(tokens.iter().map(ToString::to_string).collect())
}

/// Places of string constants that are names of sequences: those in `nextval('...')` and its kin.
fn sequence_places(tokens: &[Token]) -> Vec<(usize, String)> {
    let significant: Vec<usize> =
        (0..tokens.len()).filter(|&place| !matches!(tokens[place], Token::Whitespace(_))).collect();
    let mut places = Vec::new();
    for window in significant.windows(3) {
        let name = folded(&tokens[window[0]]);
        if let (Some("nextval" | "currval" | "setval"), Token::LParen, Token::SingleQuotedString(text)) =
            (name.as_deref(), &tokens[window[1]], &tokens[window[2]])
        {
            places.push((window[2], relation_name(text)));
        }
    }
    places
}

/// The name in a string such as `public."T_a_seq"`.
fn relation_name(text: &str) -> String {
    let parts = tokens(text).unwrap_or_default();
    parts.iter().rev().find_map(folded).unwrap_or_else(|| text.to_owned())
}

/// Names of sequences that an expression draws from.
pub(crate) fn sequences_mentioned(text: &str) -> Result<Vec<String>> {
    Ok(sequence_places(&tokens(text)?).into_iter().map(|(_, name)| name).collect())
}

/// The expression with a sequence renamed.
pub(super) fn rename_sequence(text: &str, old: &str, new: &str) -> Result<String> {
    let mut tokens = tokens(text)?;
    for (place, name) in sequence_places(&tokens) {
        if name == old {
            tokens[place] = Token::SingleQuotedString(quote_identifier(new).replace('\'', "''"));
        }
    }
    Ok(tokens.iter().map(ToString::to_string).collect())
}

/// The default of a column that draws from a sequence.
pub(super) fn nextval(sequence: &str) -> String {
    format!("nextval({}::regclass)", literal(&quote_identifier(sequence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_found_and_renamed() {
        let text = "1 + nextval( 'public.\"S\"'::regclass) - f('S')";
        assert_eq!(sequences_mentioned(text).unwrap(), ["S"]);
        assert_eq!(rename_sequence(text, "S", "t").unwrap(), "1 + nextval( 't'::regclass) - f('S')");
        assert_eq!(rename_sequence(text, "s", "t").unwrap(), text);
    }

    #[test]
    fn columns_are_renamed_and_nothing_else() {
        assert_eq!(
            rename_column("a > 0 AND a(b) = 'a' AND x::a = \"a\"", "a", "C").unwrap(),
            "\"C\" > 0 AND a(b) = 'a' AND x::a = \"C\""
        );
    }
}
