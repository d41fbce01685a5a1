//! Text on its way to a terminal: how wide it is, and nothing in it that moves the cursor.

use unicode_width::UnicodeWidthChar;

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// Appends a text in which control characters, and those that turn the direction of writing around, are written as escapes.
/// Tabs become blanks up to the next multiple of eight, as psql does it; line feeds are escaped, too.
pub(super) fn escape(text: &str, out: &mut String) {
    let start = out.len();
    for character in text.chars() {
        match character {
            '\t' => {
                let column = width(&out[start..]);
                out.extend(std::iter::repeat_n(' ', 8 - column % 8));
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() && control.is_ascii() => {
                out.push_str(&format!("\\x{:02X}", u32::from(control)));
            }
            hidden if is_hidden(hidden) => out.push_str(&format!("\\u{:04X}", u32::from(hidden))),
            other => out.push(other),
        }
    }
}

/// Escapes what would move a terminal's cursor, and leaves line feeds and tabs: for messages of several lines.
pub(super) fn escape_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        for (index, part) in line.split('\t').enumerate() {
            if index > 0 {
                out.push('\t');
            }
            escape(part, &mut out);
        }
    }
    out
}

/// Whether a character is a control one, or changes how those after it are shown.
pub(super) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_combining_characters_count_as_they_are_shown() {
        for (text, columns) in [("", 0), ("abc", 3), ("日本", 4), ("e\u{301}", 1), ("é", 1)] {
            assert_eq!(width(text), columns, "{text}");
        }
    }

    #[test]
    fn nothing_moves_the_cursor() {
        let escaped = |text: &str| {
            let mut out = String::new();
            escape(text, &mut out);
            out
        };
        assert_eq!(escaped("\x1b[2J\x07\x7f"), "\\x1B[2J\\x07\\x7F");
        assert_eq!(escaped("\u{9b}2J\u{202e}x"), "\\u009B2J\\u202Ex");
        assert_eq!(escaped("a\tb\r\n"), "a       b\\r\\n");
        assert_eq!(escape_lines("a\n\tb\x1b"), "a\n\tb\\x1B");
    }
}
