//! Expressions that are kept as text: defaults and checks. What they mention is found, and renamed, in their tokens.

use crate::bind::tokens::{Lexeme, tokenize};
use crate::catalog::{ColumnNumber, Table};
use crate::system::definition::quote_identifier;
use crate::types::text::split_name;
use crate::{Error, Result};
use sqlparser::tokenizer::Token;

/// A name as it stands in SQL text.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string constant.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The tokens of a stored expression.
fn lexemes(text: &str) -> Result<Vec<Lexeme>> {
    tokenize(text).map_err(|error| Error::internal(format!("a stored expression cannot be read: {error}")))
}

/// The expression with other text in some places, which are in their order.
fn replaced(text: &str, lexemes: &[Lexeme], places: &[(usize, String)]) -> String {
    let (mut result, mut done) = (String::new(), 0);
    for (place, instead) in places {
        let bytes = &lexemes[*place].bytes;
        result.push_str(&text[done..bytes.start]);
        result.push_str(instead);
        done = bytes.end;
    }
    result.push_str(&text[done..]);
    result
}

fn folded(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

/// Places of words that can be names of columns, with the name.
fn column_places(lexemes: &[Lexeme]) -> Vec<(usize, String)> {
    let mut places = Vec::new();
    for (place, lexeme) in lexemes.iter().enumerate() {
        let Some(name) = folded(&lexeme.token) else { continue };
        let next = lexemes.get(place + 1).map(|next| &next.token);
        let before = place.checked_sub(1).map(|before| &lexemes[before].token);
        let is_other = matches!(next, Some(Token::LParen | Token::Period));
        if !is_other && before != Some(&Token::DoubleColon) {
            places.push((place, name));
        }
    }
    places
}

/// The table's columns that an expression mentions, each once.
pub(crate) fn columns_mentioned(table: &Table, text: &str) -> Result<Vec<ColumnNumber>> {
    let mut found = Vec::new();
    for (_, name) in column_places(&lexemes(text)?) {
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
    let lexemes = lexemes(text)?;
    let places = column_places(&lexemes).into_iter().filter(|(_, name)| name == old);
    let places: Vec<_> = places.map(|(place, _)| (place, quote(new))).collect();
    Ok(replaced(text, &lexemes, &places))
}

/// Places of string constants that are names of sequences: those in `nextval('...')` and its kin, however they are made one.
fn sequence_places(lexemes: &[Lexeme]) -> Vec<(usize, String)> {
    let mut places = Vec::new();
    for (place, window) in lexemes.windows(2).enumerate() {
        let is_call = window[1].token == Token::LParen
            && matches!(folded(&window[0].token).as_deref(), Some("nextval" | "currval" | "setval"));
        if !is_call {
            continue;
        }
        // `CAST('s' AS regclass)`, `pg_catalog.regclass 's'`, `('s')`.
        let before_name = |lexeme: &Lexeme| match &lexeme.token {
            Token::LParen | Token::Period => true,
            token => matches!(folded(token).as_deref(), Some("cast" | "regclass" | "pg_catalog")),
        };
        let passed = lexemes[place + 2..].iter().take_while(|lexeme| before_name(lexeme)).count();
        let name = place + 2 + passed;
        if let Some(text) = lexemes.get(name).and_then(|lexeme| string(&lexeme.token)) {
            places.push((name, relation_name(text)));
        }
    }
    places
}

/// What a string constant says.
fn string(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text) => Some(text),
        Token::DollarQuotedString(quoted) => Some(&quoted.value),
        _ => None,
    }
}

/// The name in a string such as `public."T_a_seq"`, as it is read when a number is drawn.
fn relation_name(text: &str) -> String {
    let parts = split_name(text).unwrap_or_default();
    parts.into_iter().next_back().unwrap_or_else(|| text.to_owned())
}

/// Names of sequences that an expression draws from.
pub(crate) fn sequences_mentioned(text: &str) -> Result<Vec<String>> {
    Ok(sequence_places(&lexemes(text)?).into_iter().map(|(_, name)| name).collect())
}

/// The expression with a sequence renamed.
pub(super) fn rename_sequence(text: &str, old: &str, new: &str) -> Result<String> {
    let lexemes = lexemes(text)?;
    let places = sequence_places(&lexemes).into_iter().filter(|(_, name)| name == old);
    let places: Vec<_> = places.map(|(place, _)| (place, literal(&quote_identifier(new)))).collect();
    Ok(replaced(text, &lexemes, &places))
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
    fn sequences_are_found_however_they_are_written() {
        for text in [
            "NEXTVAL('s')",
            "\"nextval\"('public.S'::REGCLASS)",
            "pg_catalog.NextVal(('s')::regclass)",
            "nextval(CAST('s' AS regclass))",
            "nextval(regclass 's')",
            "nextval(pg_catalog.regclass 's')",
            "nextval($$s$$)",
            "nextval(E's')",
        ] {
            assert_eq!(sequences_mentioned(text).unwrap(), ["s"], "{text}");
            let renamed = rename_sequence(text, "s", "t").unwrap();
            assert_eq!(sequences_mentioned(&renamed).unwrap(), ["t"], "{renamed}");
        }
        assert!(sequences_mentioned("\"NEXTVAL\"('s') + f('s') + nextval(g('s'))").unwrap().is_empty());
    }

    #[test]
    fn columns_are_renamed_and_nothing_else() {
        for (before, after) in [
            ("a > 0 AND a(b) = 'a' AND x::a = \"a\"", "\"C\" > 0 AND a(b) = 'a' AND x::a = \"C\""),
            ("a <> 'it''s ''a''' OR \"q\"\"a\" = a", "\"C\" <> 'it''s ''a''' OR \"q\"\"a\" = \"C\""),
            (
                "a = $$a '$$ AND a = E'a\\'' AND N'a''' <> a",
                "\"C\" = $$a '$$ AND \"C\" = E'a\\'' AND N'a''' <> \"C\"",
            ),
        ] {
            assert_eq!(rename_column(before, "a", "C").unwrap(), after);
        }
        assert_eq!(rename_column("a > 0", "a", "q\"o").unwrap(), "\"q\"\"o\" > 0");
    }
}
