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
    let characters: Vec<char> = statement.chars().collect();
    let Some(at) = position.checked_sub(1).filter(|at| *at <= characters.len()) else { return String::new() };
    let number = characters[..at].iter().filter(|character| **character == '\n').count() + 1;
    let first =
        characters[..at].iter().rposition(|character| *character == '\n').map_or(0, |found| found + 1);
    let end =
        characters[at..].iter().position(|character| *character == '\n').map_or(characters.len(), |n| at + n);
    // Each character as it is shown.
    let cells: Vec<String> = characters[first..end]
        .iter()
        .map(|character| {
            let mut shown = String::new();
            match character {
                '\t' => shown.push(' '),
                '\r' => {}
                other => escape(other.encode_utf8(&mut [0; 4]), &mut shown),
            }
            shown
        })
        .collect();
    let columns = |cells: &[String]| cells.iter().map(|cell| width(cell)).sum::<usize>();
    let at = at - first;
    let (mut from, mut to) = (0, cells.len());
    // As libpq does it: the right is cut first, but not close to the place.
    if columns(&cells) > SHOWN {
        if SHOWN >= columns(&cells[..at]) + BEHIND {
            while columns(&cells[..to]) > SHOWN {
                to -= 1;
            }
        } else {
            while to > at && columns(&cells[at..to]) > BEHIND {
                to -= 1;
            }
            while from < at && columns(&cells[from..to]) > SHOWN {
                from += 1;
            }
        }
    }
    let head = format!("LINE {number}: {}", if from > 0 { "..." } else { "" });
    let tail = if to < cells.len() { "..." } else { "" };
    let room = head.len() + columns(&cells[from..at]);
    format!("{head}{}{tail}\n{:room$}^\n", cells[from..to].concat(), "")
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
    }

    #[test]
    fn a_message_cannot_play_tricks() {
        let evil = Report { message: "\x1b]0;x\x07".into(), severity: "ERROR".into(), ..Report::default() };
        assert_eq!(format(&evil, ""), "ERROR:  \\x1B]0;x\\x07\n");
    }
}
