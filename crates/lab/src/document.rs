//! A report: text, tables and figures, as one HTML file that needs nothing else, and as Markdown with the figures' files beside it.

use crate::chart::{Figure, STYLE, escaped};
use std::fmt::Write;

/// The page's own look. It has no script: everything is there when it is opened.
const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--page:#ffffff;--ink:#1d2430;--faint:#5d6675;--line:#dde2e9;--code:#f3f5f8;--link:#0b62c4}\
@media (prefers-color-scheme:dark){:root{--page:#14181f;--ink:#e6eaf0;--faint:#a3adbb;--line:#333b47;--code:#1d232c;--link:#6cb2ff}}\
body{margin:0 auto;padding:1.2rem;max-width:62rem;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}\
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.25rem;margin-top:2.4rem;border-top:1px solid var(--line);padding-top:1rem}\
a{color:var(--link)}figure{margin:1.4rem 0}figcaption{font-weight:600;margin-bottom:.4rem}.wide{overflow-x:auto}svg.figure{display:block;width:100%;min-width:34rem;height:auto}\
table{border-collapse:collapse;font-size:.92rem;margin:.8rem 0}th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}\
th:first-child,td:first-child{text-align:left}th{color:var(--faint);font-weight:600}pre{background:var(--code);padding:.7rem;overflow-x:auto;font-size:.85rem}.faint{color:var(--faint)}";

/// What stands in a table in place of what was left out, as it failed; why, the report begins with.
pub const LEFT_OUT: &str = "failed";

/// A command as it is typed: words that a shell would take for something else are quoted.
pub fn typed(words: &[String]) -> String {
    let is_plain = |word: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte);
        !word.is_empty() && word.bytes().all(plain)
    };
    let typed = words.iter().map(|word| match is_plain(word) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    });
    typed.collect::<Vec<_>>().join(" ")
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table: its head, and its rows.
    Table(Vec<String>, Vec<Vec<String>>),
    /// Commands, or anything that is to stand as it is.
    Commands(Vec<String>),
    /// A figure.
    Figure(Figure),
}

/// A report.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What it consists of.
    pub parts: Vec<Part>,
}

impl Document {
    /// The figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().filter_map(|part| match part {
            Part::Figure(figure) => Some(figure),
            _ => None,
        })
    }

    /// As one HTML file.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <link rel=\"icon\" href=\"data:,\"><title>{title}</title><style>{PAGE_STYLE}\n{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        );
        for part in &self.parts {
            let _ = match part {
                Part::Heading(text) => writeln!(out, "<h2>{}</h2>", escaped(text)),
                Part::Text(text) => writeln!(out, "<p>{}</p>", escaped(text)),
                Part::Commands(lines) => writeln!(out, "<pre>{}</pre>", escaped(&lines.join("\n"))),
                Part::Figure(figure) => writeln!(
                    out,
                    "<figure><figcaption>{}</figcaption><div class=\"wide\">{}</div></figure>",
                    escaped(&figure.title),
                    figure.svg()
                ),
                Part::Table(head, rows) => writeln!(out, "{}", html_table(head, rows)),
            };
        }
        out.push_str("</body></html>\n");
        out
    }

    /// As Markdown. Figures are files in the folder `figures` beside it.
    pub fn markdown(&self) -> String {
        // A row is one line.
        let cell = |text: &String| text.replace('|', "\\|").lines().collect::<Vec<_>>().join(" ");
        let row =
            |cells: &[String]| format!("| {} |\n", cells.iter().map(cell).collect::<Vec<_>>().join(" | "));
        let mut out = format!("# {}\n", self.title);
        for part in &self.parts {
            let _ = match part {
                Part::Heading(text) => write!(out, "\n## {text}\n"),
                Part::Text(text) => write!(out, "\n{text}\n"),
                Part::Commands(lines) => write!(out, "\n```sh\n{}\n```\n", lines.join("\n")),
                Part::Figure(Figure { id, title, .. }) => {
                    write!(out, "\n![{title}](figures/{id}.svg)\n\n[data](figures/{id}.csv)\n")
                }
                Part::Table(head, rows) => {
                    let rule = format!("|{}\n", "---|".repeat(head.len()));
                    let rows: String = rows.iter().map(|cells| row(cells)).collect();
                    write!(out, "\n{}{rule}{rows}", row(head))
                }
            };
        }
        out
    }
}

fn html_table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|text| format!("<{tag}>{}</{tag}>", escaped(text))).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = rows.iter().map(|cells| line("td", cells)).collect();
    format!(
        "<div class=\"wide\"><table><thead>{}</thead><tbody>{rows}</tbody></table></div>",
        line("th", head)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_typed_so_that_a_shell_understands_it() {
        let words = ["gannet-lab", "--to", "my runs/1", "--setting", "x='y'", "$HOME", "", "a=b,c"];
        let text = typed(&words.map(str::to_owned));
        assert_eq!(text, r"gannet-lab --to 'my runs/1' --setting 'x='\''y'\''' '$HOME' '' a=b,c");
        let said = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("printf '%s\\n' {}", text.replace("'$HOME'", "x"))])
            .output()
            .unwrap();
        let lines = String::from_utf8(said.stdout).unwrap();
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            ["gannet-lab", "--to", "my runs/1", "--setting", "x='y'", "x", "", "a=b,c"]
        );
    }

    use crate::chart::Kind;

    #[test]
    fn a_document_is_one_file_that_asks_for_nothing_and_lets_no_text_become_markup() {
        let figure = Figure {
            id: "one".to_owned(),
            title: "One".to_owned(),
            y: "seconds".to_owned(),
            kind: Kind::Lines { x: "x".to_owned(), lines: Vec::new() },
        };
        let document = Document {
            title: "A <report>".to_owned(),
            parts: vec![
                Part::Heading("Head".to_owned()),
                Part::Text("a < b & c".to_owned()),
                Part::Table(
                    vec!["x|y".to_owned()],
                    vec![vec!["<1>".to_owned()], vec!["a\nb\r\n|c".to_owned()]],
                ),
                Part::Commands(vec!["echo 1 > x".to_owned()]),
                Part::Figure(figure),
            ],
        };
        let html = document.html();
        assert!(html.contains("<h1>A &lt;report&gt;</h1>") && html.contains("<td>&lt;1&gt;</td>"));
        assert!(html.contains("a &lt; b &amp; c") && html.contains("<svg") && html.contains("echo 1 &gt; x"));
        for asks in ["http://", "https://"] {
            let others = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!others.contains(asks), "{asks}");
        }
        let markdown = document.markdown();
        assert!(
            markdown.contains("| x\\|y |\n|---|\n| <1> |\n| a b \\|c |\n")
                && markdown.contains("(figures/one.csv)")
        );
    }
}
