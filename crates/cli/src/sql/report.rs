//! Errors and notices as psql prints them, with the SQLSTATE and the place in the statement.

use super::text::{escape, escape_lines, width};
use gannet_server::frontend::Report;
use std::fmt::Write;

/// Columns of a statement's line that are shown.
const SHOWN: usize = 60;
/// Of them, how many behind the place are, at least.
const BEHIND: usize = 10;

/// The lines of a report, each with its line feed.
pub(super) fn format(report: &Report, statement: &str) -> String {
    let mut text = format!("{}:  ", report.severity);
    if !report.state.is_empty() && report.state != "00000" {
        let _ = write!(text, "{}: ", report.state);
    }
    let _ = writeln!(text, "{}", report.message);
    if let Some(position) = report.position {
        text.push_str(&place(statement, position));
    }
    for (name, part) in [("DETAIL", &report.detail), ("HINT", &report.hint), ("CONTEXT", &report.context)] {
        if let Some(part) = part {
            let _ = writeln!(text, "{name}:  {part}");
        }
    }
    escape_lines(&text)
}

/// The line of a statement with a caret below its place (in characters from 1); nothing where there is no such place.
fn place(statement: &str, position: usize) -> String {
    let mut places = statement.char_indices().map(|(at, _)| at).chain([statement.len()]);
    let Some(at) = position.checked_sub(1).and_then(|skip| places.nth(skip)) else { return String::new() };
    let (above, behind) = statement.split_at(at);
    let number = above.matches('\n').count() + 1;
    let line = (above.rsplit('\n').next().unwrap_or(above), behind.split('\n').next().unwrap_or(behind));
    let (mut before, mut behind) = line;
    // As libpq does it: the right is cut first, but not close to the place.
    let columns = columns_of(before);
    if columns + columns_of(behind) > SHOWN {
        if columns + BEHIND <= SHOWN {
            behind = &behind[..fitting(behind.chars(), SHOWN - columns)];
        } else {
            behind = &behind[..fitting(behind.chars(), BEHIND)];
            let kept = fitting(before.chars().rev(), SHOWN - columns_of(behind));
            before = &before[before.len() - kept..];
        }
    }
    let dots = |cut: bool| if cut { "..." } else { "" };
    let head = format!("LINE {number}: {}", dots(before.len() < line.0.len()));
    let room = head.len() + columns_of(before);
    let shown: String = before.chars().chain(behind.chars()).map(cell).collect();
    format!("{head}{shown}{}\n{:room$}^\n", dots(behind.len() < line.1.len()), "")
}

/// A character of a statement as it is shown.
fn cell(character: char) -> String {
    let mut shown = String::new();
    match character {
        '\t' => shown.push(' '),
        '\r' => {}
        other => escape(other.encode_utf8(&mut [0; 4]), &mut shown),
    }
    shown
}

/// Columns that a part of a statement takes.
fn columns_of(text: &str) -> usize {
    text.chars().map(|character| width(&cell(character))).sum()
}

/// Bytes of the first characters, as many as fit into that many columns.
fn fitting(characters: impl Iterator<Item = char>, columns: usize) -> usize {
    let mut left = columns;
    let mut bytes = 0;
    for character in characters {
        match left.checked_sub(width(&cell(character))) {
            Some(rest) => left = rest,
            None => break,
        }
        bytes += character.len_utf8();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(position: usize) -> Report {
        Report {
            severity: "ERROR".into(),
            state: "42P01".into(),
            message: "relation \"x\" does not exist".into(),
            position: Some(position),
            hint: Some("look".into()),
            ..Report::default()
        }
    }

    #[test]
    fn the_place_is_marked() {
        assert_eq!(
            format(&report(15), "select *\nfrom\tx"),
            "ERROR:  42P01: relation \"x\" does not exist\nLINE 2: from x\n             ^\nHINT:  look\n"
        );
        assert_eq!(place("select '日本', x", 14), "LINE 1: select '日本', x\n                       ^\n");
        assert_eq!(place("select", 7), "LINE 1: select\n              ^\n");
        assert_eq!(place("select", 9), "");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let long = format!("select {}, x, {}", "a".repeat(80), "b".repeat(80));
        let text = place(&long, 90);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("LINE 1: ...") && lines[0].ends_with("..."), "{text}");
        assert_eq!(lines[0].chars().nth(lines[1].len() - 1), Some('x'), "{text}");
        assert!(lines[0].len() <= "LINE 1: ......".len() + SHOWN);
        assert_eq!(place(&long, 8), format!("LINE 1: {}...\n               ^\n", &long[..SHOWN]));
        let end = place(&long, long.chars().count() + 1);
        assert_eq!(end, format!("LINE 1: ...{}\n{:71}^\n", "b".repeat(SHOWN), ""));
    }

    #[test]
    fn a_place_far_into_a_very_long_line_is_found_soon() {
        let long = format!("select {}x", "日(".repeat(2_000_000));
        let shown = "日(".repeat(19);
        // Measuring all that is left anew for each character would take hours.
        assert_eq!(place(&long, 4_000_008), format!("LINE 1: ...({shown}x\n{:69}^\n", ""));
    }

    #[test]
    fn a_message_cannot_play_tricks() {
        let evil = Report { message: "\x1b]0;x\x07".into(), severity: "ERROR".into(), ..Report::default() };
        assert_eq!(format(&evil, ""), "ERROR:  \\x1B]0;x\\x07\n");
    }
}
