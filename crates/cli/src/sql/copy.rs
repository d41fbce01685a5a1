//! `\copy`: COPY whose file is on this side.

use super::meta::words;

/// What `\copy` means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Copy {
    /// COPY FROM STDIN or TO STDOUT.
    pub(super) sql: String,
    pub(super) from: bool,
    /// The file; `None`: the script, or the output.
    pub(super) file: Option<String>,
}

/// Reads what follows `\copy`: `t [(columns)] from 'file' [options]` or `t [(columns)]|(query) to 'file' [options]`.
pub(super) fn parse(text: &str) -> Result<Copy, String> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let usage = || {
        "it goes TABLE [(COLUMNS)] FROM FILE [OPTIONS], or TABLE [(COLUMNS)] | (QUERY) TO FILE [OPTIONS]"
            .to_owned()
    };
    let (at, direction) = find_direction(text).ok_or_else(usage)?;
    let what = text[..at].trim();
    let behind = text[at + direction.len()..].trim_start();
    if what.is_empty() || behind.is_empty() {
        return Err(usage());
    }
    let from = direction.eq_ignore_ascii_case("from");
    if from && what.starts_with('(') {
        return Err("a query can only be copied TO a file".to_owned());
    }
    let end = file_end(behind).ok_or("a quote is not closed")?;
    let (file, options) = (&behind[..end], behind[end..].trim());
    let name = words(file)?.into_iter().next().ok_or_else(usage)?;
    let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.to_owned(),
        None => name,
    };
    let file = match (file.to_ascii_lowercase().as_str(), from) {
        ("stdin", true) | ("stdout", false) => None,
        ("pstdin", true) | ("pstdout", false) => {
            return Err(format!("{file} is not implemented: use {}", if from { "stdin" } else { "stdout" }));
        }
        ("program", _) => return Err("PROGRAM is not implemented: use a pipe or a file".to_owned()),
        _ => Some(name),
    };
    let side = if from { "FROM STDIN" } else { "TO STDOUT" };
    Ok(Copy { sql: format!("COPY {what} {side} {options}").trim_end().to_owned(), from, file })
}

/// Where FROM or TO stands, outside of quotes and parentheses.
fn find_direction(text: &str) -> Option<(usize, &str)> {
    let mut depth = 0_u32;
    let mut quote = None;
    let mut word = None;
    // A blank at the end finishes the last word.
    for (at, character) in text.char_indices().chain([(text.len(), ' ')]) {
        if let Some(open) = quote {
            if character == open {
                quote = None;
            }
            continue;
        }
        if character.is_alphanumeric() || character == '_' || character == '$' {
            word.get_or_insert(at);
            continue;
        }
        if let Some(start) = word.take()
            && depth == 0
            && ["from", "to"].iter().any(|name| text[start..at].eq_ignore_ascii_case(name))
        {
            return Some((start, &text[start..at]));
        }
        match character {
            '\'' | '"' => quote = Some(character),
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Where the first word of a text ends; `None`: nowhere.
fn file_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (Some('\''), '\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, blank) if blank.is_whitespace() => return Some(at),
            (None, _) => {}
        }
    }
    quote.is_none().then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_and_replaced() {
        for (text, sql, from, file) in [
            ("t from 'a b.csv' csv header", "COPY t FROM STDIN csv header", true, Some("a b.csv")),
            ("s.t (a, \"from\") FROM x.txt;", "COPY s.t (a, \"from\") FROM STDIN", true, Some("x.txt")),
            (
                "(select * from t where a = 'to') to out with (format csv)",
                "COPY (select * from t where a = 'to') TO STDOUT with (format csv)",
                false,
                Some("out"),
            ),
            ("\"to\" to stdout", "COPY \"to\" TO STDOUT", false, None),
            ("t from stdin", "COPY t FROM STDIN", true, None),
            ("t to 'stdout'", "COPY t TO STDOUT", false, Some("stdout")),
            ("t to 'it''s'", "COPY t TO STDOUT", false, Some("it's")),
        ] {
            let wanted = Copy { sql: sql.into(), from, file: file.map(str::to_owned) };
            assert_eq!(parse(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, names) in [
            ("", "it goes"),
            ("t", "it goes"),
            ("t from", "it goes"),
            ("from x", "it goes"),
            ("t from 'x", "not closed"),
            ("(select 1) from x", "TO a file"),
            ("t from program 'ls'", "PROGRAM"),
            ("t to pstdout", "pstdout"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        }
    }
}
