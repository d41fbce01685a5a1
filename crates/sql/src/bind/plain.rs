//! The plain tokens that a text begins with: words, numbers, strings without escapes, parameters and punctuation, read in one pass. Many texts have
//! no others, and long ones, an INSERT of many rows above all, hardly any.
//!
//! # Guarantees
//! 1. What is read here is what `sqlparser`'s tokenizer reads there. Whatever may be something else is left to it, with all that no blank
//!    separates from it, and with the literal that may go on there.

use super::tokens::Lexeme;
use memchr::memchr;
use sqlparser::tokenizer::Token;

/// Bytes of a text for each of its tokens, about.
const BYTES_PER_TOKEN: usize = 8;

/// Room that there is for tokens at first, at most: a text may be one string.
const FIRST_TOKENS: usize = 8192;

/// What a text begins with.
pub(super) struct Plain {
    pub(super) lexemes: Vec<Lexeme>,
    pub(super) rest: Place,
}

/// A place in a text.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// In bytes, from 0.
    pub(super) byte: usize,
    /// In characters, from 1.
    pub(super) character: usize,
}

/// Where something begins that no blank separates: the tokens before it, and its place.
#[derive(Clone, Copy)]
struct Run {
    lexemes: usize,
    place: Place,
}

/// Reads the plain tokens that a text begins with, and says where the rest begins.
pub(super) fn plain(sql: &str) -> Plain {
    let bytes = sql.as_bytes();
    let mut lexemes: Vec<Lexeme> = Vec::with_capacity((sql.len() / BYTES_PER_TOKEN + 1).min(FIRST_TOKENS));
    let mut at = Place { byte: 0, character: 1 };
    let mut run = Run { lexemes: 0, place: at };
    // That of the last string.
    let mut string = run;
    while let Some(&first) = bytes.get(at.byte) {
        if is_blank(first) {
            at = Place { byte: at.byte + 1, character: at.character + 1 };
            run = Run { lexemes: lexemes.len(), place: at };
            continue;
        }
        let goes_on = first == b'\'' && lexemes.last().is_some_and(Lexeme::is_string);
        let Some((token, length)) = token(sql, at.byte, lexemes.last()).filter(|_| !goes_on) else {
            let before = run.lexemes.checked_sub(1).map(|last| &lexemes[last]);
            let from = if goes_on || before.is_some_and(Lexeme::is_string) { string } else { run };
            lexemes.truncate(from.lexemes);
            return Plain { lexemes, rest: from.place };
        };
        let text = &sql[at.byte..at.byte + length];
        let characters = if text.is_ascii() { length } else { text.chars().count() };
        let end = Place { byte: at.byte + length, character: at.character + characters };
        if first == b'\'' {
            string = run;
        }
        lexemes.push(Lexeme { token, characters: at.character..end.character, bytes: at.byte..end.byte });
        at = end;
    }
    Plain { lexemes, rest: at }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether nothing of a token can stand here.
fn ends(next: Option<u8>) -> bool {
    next.is_none_or(|byte| is_blank(byte) || matches!(byte, b'(' | b')' | b',' | b';'))
}

/// The token that begins here, and its bytes; `None` where it is not plain. `last`: the one before it.
fn token(sql: &str, at: usize, last: Option<&Lexeme>) -> Option<(Token, usize)> {
    let bytes = &sql.as_bytes()[at..];
    let next = |place: usize| bytes.get(place).copied();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (token, length) = match bytes[0] {
        b'(' => (Token::LParen, 1),
        b')' => (Token::RParen, 1),
        b',' => (Token::Comma, 1),
        b';' => (Token::SemiColon, 1),
        b'*' if ends(next(1)) => (Token::Mul, 1),
        b'=' if next(1).is_some_and(|byte| is_blank(byte) || is_word(byte) || byte == b'\'') => {
            (Token::Eq, 1)
        }
        b'-' if next(1).is_some_and(|byte| byte.is_ascii_digit()) => (Token::Minus, 1),
        b'.' if next(1).is_some_and(|byte| is_word(byte) && !byte.is_ascii_digit())
            && last.is_some_and(|last| last.bytes.end == at && matches!(last.token, Token::Word(_))) =>
        {
            (Token::Period, 1)
        }
        b'$' => {
            let length = 1 + digits(1);
            (length > 1 && ends(next(length)))
                .then(|| (Token::Placeholder(sql[at..at + length].to_owned()), length))?
        }
        b'\'' => {
            let length = memchr(b'\'', &bytes[1..])? + 2;
            let text = || sql[at + 1..at + length - 1].to_owned();
            ends(next(length)).then(|| (Token::SingleQuotedString(text()), length))?
        }
        b'0'..=b'9' => {
            let mut length = digits(0);
            if next(length) == Some(b'.') {
                let more = digits(length + 1);
                length += if more > 0 { 1 + more } else { 0 };
            }
            ends(next(length)).then(|| (Token::Number(sql[at..at + length].to_owned(), false), length))?
        }
        first if is_word(first) => {
            let length = bytes.iter().take_while(|byte| is_word(**byte)).count();
            let whole = ends(next(length)) || matches!(next(length), Some(b'.' | b'='));
            whole.then(|| (Token::make_word(&sql[at..at + length], None), length))?
        }
        _ => return None,
    };
    Some((token, length))
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{by_library, tokenize};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// What tokens are made of, and what makes something else of them.
    const PIECES: [&str; 58] = [
        "insert", "into", "values", "select", "t", "_a1", "e", "E", "n", "x", "b", "u&", "r", "é", "(", ")",
        ",", ";", "=", "*", "-", "--c\n", "/*d*/", ".", "..", "1", "42", "1.5", "1.", ".5", "1e5", "0x1f",
        "1_0", "$1", "$2", "$$q$$", "$a$", "'s'", "''", "'ü\n'", "'a''b'", "'\\'", "'", "\"q\"", "\"", " ",
        " ", " ", "\n", "\t", "\r\n", "<", "<=", "||", "::", "!", "\u{a0}", "\0",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        /// Also where blanks stand between all of them, and so some plain tokens.
        #[test]
        fn what_is_read_here_is_what_the_library_reads(
            pieces in vec(select(&PIECES[..]), 1..12),
            blank in select(&["", " "][..]),
        ) {
            let text = pieces.join(blank);
            let shown = |outcome: crate::Result<Vec<_>>| format!("{:?}", outcome);
            prop_assert_eq!(shown(tokenize(&text)), shown(by_library(&text)), "{:?}", text);
        }
    }

    #[test]
    fn an_insert_of_literals_is_read_to_its_end() {
        let sql = "INSERT INTO rows (a, b, c) VALUES (1, -2.50, 'größe'), ($1, NULL, ''), (t.a, b=3, true);";
        let plain = super::plain(sql);
        assert_eq!(plain.rest.byte, sql.len());
        assert_eq!(plain.rest.character, sql.chars().count() + 1);
        // What is not is left from the blank before it.
        assert_eq!(super::plain("select 1, a->>'b', 2").rest.byte, "select 1, ".len());
        assert_eq!(super::plain("select 'a'\n'b'").rest.byte, "select ".len());
        assert_eq!(super::plain("select 'a' -- it goes on\n'b'").rest.byte, "select ".len());
    }
}
