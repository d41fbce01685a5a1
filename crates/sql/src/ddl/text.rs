//! Expressions that are kept as text: defaults and checks. Sequences that they mention are found, and renamed, in their tokens. Which word is
//! a column, binding tells, and where it stands: a type, a keyword or a function may have a column's name.

use crate::bind::Mention;
use crate::bind::tokens::{Lexeme, tokenize};
use crate::catalog::Table;
use crate::system::definition::quote_identifier;
use crate::types::text::split_name;
use crate::{Error, Result};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;
use std::ops::Range;

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

/// The expression with other text in some ranges of bytes, which are in their order.
fn replaced(text: &str, ranges: &[(Range<usize>, String)]) -> String {
    let (mut result, mut done) = (String::new(), 0);
    for (range, instead) in ranges {
        result.push_str(&text[done..range.start]);
        result.push_str(instead);
        done = range.end;
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

/// A name as it stands in a stored expression: without quotes where neither PostgreSQL nor the parser takes it for a keyword.
fn written(name: &str) -> String {
    let is_keyword =
        !matches!(Token::make_word(name, None), Token::Word(word) if word.keyword == Keyword::NoKeyword);
    if is_keyword || quote_identifier(name) != name { quote(name) } else { name.to_owned() }
}

/// An expression over a table with everything that it mentions called as `table` calls it: columns without their table.
pub(super) fn named(text: &str, mentions: &[Mention], table: &Table) -> Result<String> {
    let lexemes = lexemes(text)?;
    let mut ranges = Vec::new();
    for mention in mentions {
        let place = lexemes.iter().position(|lexeme| Some(lexeme.characters.start) == mention.at);
        // Its parts, with points between them.
        let parts = place.and_then(|place| lexemes.get(place..place + 2 * mention.parts - 1));
        let (Some([first, .., last] | [first @ last]), Some(name)) = (parts, mentioned_name(table, mention))
        else {
            return Err(Error::internal(format!(
                "a name in a stored expression was not found again: {text}"
            )));
        };
        if mention.parts > 1 || folded(&last.token).as_deref() != Some(name) {
            ranges.push((first.bytes.start..last.bytes.end, written(name)));
        }
    }
    Ok(replaced(text, &ranges))
}

fn mentioned_name<'t>(table: &'t Table, mention: &Mention) -> Option<&'t str> {
    match mention.column {
        Some(number) => table.column(number).map(|column| column.name.as_str()),
        None => Some(&table.name),
    }
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
    let ranges: Vec<_> =
        places.map(|(place, _)| (lexemes[place].bytes.clone(), literal(&quote_identifier(new)))).collect();
    Ok(replaced(text, &ranges))
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
}
