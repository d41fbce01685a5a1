//! What a text will take in memory once it is read, estimated before it is.
//!
//! Tokens and syntax trees are many times larger than their text: a list of a million numbers takes hundreds of megabytes. So their
//! memory is charged before they are made. Strings and comments are passed over as one token each, as far as a look at the bytes tells.

/// Bytes of a token, with the whitespace before it.
const TOKEN: u64 = 250;
/// Bytes that a token adds to a statement's syntax tree, and to what is bound and planned from it.
const NODE: u64 = 400;
/// Texts up to this length are not worth a charge of their own.
const SHORT: usize = 8 << 10;

/// Bytes of memory to be charged while the statements of a text are read and run, one after the other; 0 for a short one.
pub fn weight(sql: &str) -> u64 {
    let (tokens, longest) = tokens(sql);
    tokens * TOKEN + longest * NODE
}

/// Tokens of the text of one statement for which [`weight`] has a charge, for their nodes as well.
pub(crate) fn weighed_tokens(sql: &str) -> u64 {
    tokens(sql).1
}

/// Tokens of a text, and of its longest statement; none of a short text.
fn tokens(sql: &str) -> (u64, u64) {
    if sql.len() <= SHORT {
        return (0, 0);
    }
    counted(sql)
}

/// How many tokens there are, and how many the longest statement has, at least.
fn counted(sql: &str) -> (u64, u64) {
    let (mut tokens, mut statement, mut longest) = (0u64, 0u64, 0u64);
    let mut rest = sql.as_bytes();
    // On another line behind a string with escapes, one goes on with it.
    let (mut is_escaped, mut goes_on) = (false, false);
    while let Some(&first) = rest.first() {
        let length = match first {
            b'\'' if goes_on => 1 + escaped(&rest[1..]),
            _ => token_length(rest, first),
        };
        let token = &rest[..length.min(rest.len())];
        let blanks = &token[token.trim_ascii_end().len()..];
        let begins = matches!(first, b'E' | b'e') && token.get(1) == Some(&b'\'');
        is_escaped = begins || is_escaped && first.is_ascii_whitespace() || goes_on && first == b'\'';
        let has_line = blanks.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        goes_on = is_escaped && (has_line || goes_on && first.is_ascii_whitespace());
        rest = rest.get(length..).unwrap_or_default();
        tokens += 1;
        statement = if first == b';' { 0 } else { statement + 1 };
        longest = longest.max(statement);
    }
    (tokens, longest)
}

/// Bytes of the token that text begins with, with the whitespace behind it.
fn token_length(text: &[u8], first: u8) -> usize {
    let length = match first {
        b'E' | b'e' if text.get(1) == Some(&b'\'') => 2 + escaped(&text[2..]),
        b'\'' | b'"' => 1 + until(&text[1..], &[first]),
        b'-' if text.starts_with(b"--") => {
            text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len())
        }
        b'/' if text.starts_with(b"/*") => comment(text),
        b'$' => match text[1..].iter().position(|&byte| !is_word(byte)) {
            Some(end) if text[end + 1] == b'$' && is_tag(&text[1..=end]) => {
                end + 2 + until(&text[end + 2..], &text[..end + 2])
            }
            _ => 1,
        },
        _ if is_number(text) => number(text),
        // A dollar within a word begins no string.
        _ if is_word(first) => text.iter().take_while(|&&byte| is_word(byte) || byte == b'$').count(),
        _ => 1,
    };
    length
        + text.get(length..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Bytes of a comment, which may have others within it.
fn comment(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            (b'/', b'*') => depth += 1,
            (b'*', b'/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Whether a dollar string may begin by this between its dollars.
fn is_tag(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|tag| tag.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

fn is_number(text: &[u8]) -> bool {
    let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    digit(0) || text[0] == b'.' && digit(1)
}

/// Bytes of a number, with the word that may stand right behind it. It has one period at most.
fn number(text: &[u8]) -> usize {
    let words = |text: &[u8]| text.iter().take_while(|&&byte| byte.is_ascii() && is_word(byte)).count();
    let whole = words(text);
    let fraction = match text.get(whole) {
        Some(b'.') if text[..whole].iter().all(u8::is_ascii_digit) => 1 + words(&text[whole + 1..]),
        _ => 0,
    };
    whole + fraction
}

/// Bytes up to the end of a string with backslash escapes.
fn escaped(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\'' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Bytes up to the end of the first `end` in a text; all of it where there is none.
fn until(text: &[u8], end: &[u8]) -> usize {
    text.windows(end.len()).position(|part| part == end).map_or(text.len(), |at| at + end.len())
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokenize;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

    const PIECES: [&str; 42] = [
        "a", "é", "E", "e", "a.b", ".", "..", "1", "1.5", ".5", "1.", "1.1.1", "1e5", "0x1f", "1_0", "$1",
        "$1$", "\u{a0}", "$\u{a0}$", "$", "$$", "$a$", "$a.b$", "$é$", "'s'", "'", "E'a'", "e'\\''", "E'",
        "\"q\"", "\"", "--", "-- c\n", "/*", "*/", "/* c */", " ", "\n", "\r\n", ",", "::", "\\",
    ];

    /// Whatever is read, it was charged before.
    #[test]
    fn no_token_is_missed() {
        let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let texts = (vec(select(&PIECES[..]), 1..14), select(&["", " ", "\n"][..]));
        let outcome = runner.run(&texts, |(pieces, blank)| {
            let text = pieces.join(blank);
            if let Ok(tokens) = tokenize(&text) {
                prop_assert!(counted(&text).0 >= tokens.len() as u64, "{:?}", text);
            }
            Ok(())
        });
        outcome.unwrap();
    }

    #[test]
    fn tokens_count_and_strings_count_once() {
        assert_eq!(weight("select 1, 2, 3"), 0);
        let list = format!("select {}", "1,".repeat(100_000));
        assert_eq!(weight(&list), 200_001 * (TOKEN + NODE));
        let many = "select 1;".repeat(100_000);
        assert_eq!(weight(&many), 300_000 * TOKEN + 2 * NODE);
        let long = "x, ' (".repeat(100_000);
        for (open, close) in [("'", "'"), ("$$", "$$"), ("$a$", "$a$"), ("/*", "*/"), ("--", "\n")] {
            let text = format!(
                "select {open}{}{close}, 2",
                if open == "'" { "x, (".repeat(100_000) } else { long.clone() }
            );
            assert!(weight(&text) < 10 * (TOKEN + NODE), "{open}");
        }
        // Nothing that is no string hides a list from being counted.
        for before in ["E'\\'', ", "e'\\\\\\'', ", "a$$, ", "-- '\r", "'\\', ", "\"'\", ", "'\"', "] {
            let text = format!("select {before}{}", "1,".repeat(10_000));
            assert!(weight(&text) > 20_000 * (TOKEN + NODE), "{before}");
        }
        for many in ["a.", "1.1", "$a.b$,1,", "E'a'\n'\\'',1,", "é."] {
            let text = format!("select {}", many.repeat(10_000));
            assert!(weight(&text) > 10_000 * (TOKEN + NODE), "{many}");
        }
        for text in
            ["*/*/$$*/a..", "/* /* */ ' */ 1, 1", "1\u{a0}", "$1$'$1$*/1.1.1,", "$1$$1$a.b$", "1$$,1$$,1"]
        {
            assert!(counted(text).0 >= tokenize(text).map_or(0, |tokens| tokens.len() as u64), "{text}");
        }
        for odd in ["'", "E'", "E'\\", "\"", "$", "$$", "$a", "/*", "--", "\u{e9}"] {
            let _ = weight(&odd.repeat(10_000));
        }
    }
}
