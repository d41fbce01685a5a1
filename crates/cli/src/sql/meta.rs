//! Commands of the shell, which begin with a backslash.

use super::format::Expanded;
use super::input::{InputFile, Script, Source};
use super::printer::{Data, DataFile, OutputFile};
use super::shell::{How, Shell, Step};
use super::{copy, describe};
use crate::arguments::Format;
use anyhow::Result;
use gannet_sql::splitter::Splitter;
use std::path::Path;

/// What `\?` says.
const HELP: &str = r"General
  \q                     leave the shell
  \? or \help            this help
  \conninfo              where we are connected
  \restart               how far the database is with what a crash has left to be done
  \timing [on|off]       show how long statements take
  \set [NAME VALUE]      ON_ERROR_STOP on|off: whether a script ends at its first error

Statements
  \g                     run the statement so far, as ; does
  \gx                    the same, and show the rows as records
  \p                     show the statement so far
  \r                     forget the statement so far

Input and output
  \i FILE                run a script; an error in it ends it
  \copy T [(COLUMNS)] FROM FILE|stdin [OPTIONS]
  \copy T [(COLUMNS)]|(QUERY) TO FILE|stdout [OPTIONS]
                         COPY with a file of this machine; options as in COPY
  \o [FILE]              write results into a file; without one, to standard output again
  \echo [TEXT]           write text

What there is (PATTERN: * and ? stand for any characters; S: those of the system, too)
  \d[S] [PATTERN]        describe a table, view, sequence or index; without a pattern, list them
  \dt[S] [PATTERN]       tables
  \di[S] [PATTERN]       indexes
  \dv[S] [PATTERN]       views
  \ds[S] [PATTERN]       sequences
  \du [PATTERN]          roles
  \l [PATTERN]           databases

How results are shown
  \format table|csv|json the format; \pset format does the same
  \x [on|off|auto]       rows as records, a line for each column; auto: where a table would be too wide
  \t [on|off]            rows only, without header and number of rows
  \pset [NAME [VALUE]]   format, expanded, null, tuples_only, pager
";

/// Runs a command, given without its backslash.
pub(super) fn run(
    shell: &mut Shell,
    command: &str,
    splitter: &mut Splitter,
    source: &mut dyn Source,
) -> Result<Step> {
    let end = command.find(char::is_whitespace).unwrap_or(command.len());
    let (name, rest) = (&command[..end], command[end..].trim());
    if name == "copy" {
        return Ok(run_copy(shell, rest, source));
    }
    let words = match words(rest) {
        Ok(words) => words,
        Err(error) => return Ok(wrong(shell, source, &format!("\\{name}: {error}"))),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(step) = describe_command(shell, name, &words, source) {
        return Ok(step);
    }
    let step = match (name, words.as_slice()) {
        ("q" | "quit", []) => Step::Quit,
        ("?" | "help", []) => shell.say(HELP, Step::Fine),
        ("conninfo", []) => {
            let about = shell.backend.about();
            shell.say(&format!("{about}\n"), Step::Fine)
        }
        ("restart", []) => match shell.restart() {
            Ok(Some((line, _))) => shell.say(&format!("{line}\n"), Step::Fine),
            Ok(None) => wrong(shell, source, "\\restart: the server is not Gannet"),
            Err(step) => step,
        },
        ("g" | "gx", []) => match splitter.take() {
            Some(sql) => shell.run_statement(&sql, Some(source), How { expanded: name == "gx", data: None }),
            None => Step::Fine,
        },
        ("p", []) => {
            let text = super::text::escape_lines(splitter.statement().trim_end());
            shell.say(&format!("{text}\n"), Step::Fine)
        }
        ("r", []) => {
            splitter.reset();
            Step::Fine
        }
        ("i" | "include", [file]) => match Script::open(Path::new(file), &shell.signals) {
            Ok(mut script) => shell.include(&mut script, source)?,
            Err(error) => wrong(shell, source, &format!("\\{name}: {error:#}")),
        },
        ("o", []) => set_output(shell, None, source),
        ("o", [file]) => set_output(shell, Some(file), source),
        ("echo", words) => {
            let text = super::text::escape_lines(&words.join(" "));
            shell.say(&format!("{text}\n"), Step::Fine)
        }
        ("set", words) => set_variable(shell, words, source),
        ("timing" | "x" | "t" | "format" | "pset", words) => set(shell, name, words, source),
        (known, _) if KNOWN.contains(&known) => {
            wrong(shell, source, &format!("\\{known}: the wrong number of arguments; try \\?"))
        }
        (unknown, _) => wrong(shell, source, &format!("invalid command \\{unknown}; try \\? for help")),
    };
    Ok(step)
}

/// Commands with a fixed number of arguments.
const KNOWN: [&str; 13] =
    ["q", "quit", "?", "help", "conninfo", "restart", "g", "gx", "p", "r", "i", "include", "o"];

fn wrong(shell: &Shell, source: &dyn Source, message: &str) -> Step {
    shell.complain(Some(source), message);
    Step::Failed
}

// ---- descriptions -------------------------------------------------------------------------------------------------------

fn describe_command(shell: &mut Shell, name: &str, words: &[&str], source: &dyn Source) -> Option<Step> {
    let (base, system) = match name.strip_suffix('S') {
        Some(base) => (base, true),
        None => (name, false),
    };
    let pattern = match (base, words) {
        ("d" | "dt" | "di" | "dv" | "ds" | "du" | "l", []) => None,
        ("d" | "dt" | "di" | "dv" | "ds" | "du" | "l", [pattern]) => Some(*pattern),
        ("d" | "dt" | "di" | "dv" | "ds" | "du" | "l", _) => {
            return Some(wrong(shell, source, &format!("\\{name} takes one pattern")));
        }
        _ => return None,
    };
    let done = match (base, pattern) {
        ("d", Some(pattern)) => describe::relations(shell, pattern),
        ("d", None) => describe::list(shell, "rpvSmf", None, system),
        ("dt", _) => describe::list(shell, "rp", pattern, system),
        ("di", _) => describe::list(shell, "iI", pattern, system),
        ("dv", _) => describe::list(shell, "v", pattern, system),
        ("ds", _) => describe::list(shell, "S", pattern, system),
        ("du", _) => describe::roles(shell, pattern),
        _ => describe::databases(shell, pattern),
    };
    Some(match done {
        Ok(step) => step,
        Err(describe::NotFound::Told(step)) => step,
        // That there is none is an answer, unless it was asked for by name.
        Err(describe::NotFound::Nothing(message)) if pattern.is_none() => {
            shell.complain(Some(source), &message);
            Step::Fine
        }
        Err(describe::NotFound::Nothing(message)) => wrong(shell, source, &message),
    })
}

// ---- COPY ---------------------------------------------------------------------------------------------------------------

fn run_copy(shell: &mut Shell, text: &str, source: &mut dyn Source) -> Step {
    let parsed = match copy::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return wrong(shell, source, &format!("\\copy: {error}")),
    };
    let data = match &parsed.file {
        None => None,
        Some(path) if parsed.from => match InputFile::open(Path::new(path), &shell.signals) {
            Ok(file) => Some(Data::From(file)),
            Err(error) => return wrong(shell, source, &format!("\\copy: {path}: {error}")),
        },
        Some(path) => Some(Data::To(DataFile::new(Path::new(path)))),
    };
    shell.run_statement(&parsed.sql, Some(source), How { expanded: false, data })
}

fn set_output(shell: &mut Shell, file: Option<&str>, source: &dyn Source) -> Step {
    let opened = file.map(|file| OutputFile::open(Path::new(file))).transpose();
    match opened {
        Ok(file) => {
            // What was written before was flushed statement by statement.
            shell.output = file;
            Step::Fine
        }
        Err(error) => wrong(shell, source, &format!("\\o: {}: {error}", file.unwrap_or_default())),
    }
}

// ---- settings -----------------------------------------------------------------------------------------------------------

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// `\set`, of which there is one variable.
fn set_variable(shell: &mut Shell, words: &[&str], source: &dyn Source) -> Step {
    let value = match words {
        [] => {
            let stop = on_off(shell.settings.stop_on_error);
            return shell.say(&format!("ON_ERROR_STOP = '{stop}'\n"), Step::Fine);
        }
        ["ON_ERROR_STOP"] => Some(true),
        ["ON_ERROR_STOP", value] => switch(value),
        [other, ..] => {
            let message = format!("\\set: there is no variable {other}; there is ON_ERROR_STOP");
            return wrong(shell, source, &message);
        }
    };
    match value {
        Some(value) => {
            shell.settings.stop_on_error = value;
            Step::Fine
        }
        None => wrong(shell, source, "\\set: ON_ERROR_STOP is on or off"),
    }
}

/// Sets what decides how results are shown; without a value, switches turn around.
fn set(shell: &mut Shell, command: &str, words: &[&str], source: &dyn Source) -> Step {
    let (name, value) = match (command, words) {
        ("timing", [] | [_]) => ("timing", words.first()),
        ("x", [] | [_]) => ("expanded", words.first()),
        ("t", [] | [_]) => ("tuples_only", words.first()),
        ("format", [_]) => ("format", words.first()),
        ("pset", []) => {
            let all: String = ["expanded", "format", "null", "pager", "tuples_only"]
                .iter()
                .map(|name| format!("{name:12}{}\n", shown(shell, name)))
                .collect();
            return shell.say(&all, Step::Fine);
        }
        ("pset", [name] | [name, _]) => (*name, words.get(1)),
        _ => return wrong(shell, source, &format!("\\{command}: the wrong number of arguments; try \\?")),
    };
    if let Err(message) = change(shell, name, value.copied()) {
        return wrong(shell, source, &format!("\\{command}: {message}"));
    }
    if shell.settings.quiet {
        return Step::Fine;
    }
    let line = match name {
        "timing" => format!("Timing is {}.\n", on_off(shell.settings.timing)),
        "expanded" if shell.settings.expanded == Expanded::Auto => {
            "Expanded display is used automatically.\n".to_owned()
        }
        "expanded" => format!("Expanded display is {}.\n", shell.settings.expanded.name()),
        "tuples_only" => format!("Tuples only is {}.\n", on_off(shell.settings.tuples_only)),
        "format" => format!("Output format is {}.\n", shown(shell, "format")),
        "null" => format!("Null display is \"{}\".\n", shown(shell, "null")),
        _ => format!("Pager usage is {}.\n", on_off(shell.settings.pager)),
    };
    // Between the results of a script that another program reads, this would be none of them.
    if source.is_conversation() || shell.settings.format == Format::Table {
        return shell.say(&line, Step::Fine);
    }
    Step::Fine
}

fn change(shell: &mut Shell, name: &str, value: Option<&str>) -> std::result::Result<(), String> {
    let settings = &mut shell.settings;
    let turned = |now: bool| match value {
        None => Ok(!now),
        Some(text) => switch(text).ok_or_else(|| format!("{name} is on or off, not {text:?}")),
    };
    match name {
        "timing" => settings.timing = turned(settings.timing)?,
        "tuples_only" => settings.tuples_only = turned(settings.tuples_only)?,
        "pager" => settings.pager = turned(settings.pager)?,
        "expanded" => {
            settings.expanded = match value {
                Some("auto") => Expanded::Auto,
                _ if turned(settings.expanded == Expanded::On)? => Expanded::On,
                _ => Expanded::Off,
            }
        }
        "null" => value.unwrap_or_default().clone_into(&mut settings.null),
        "format" => {
            settings.format = match value {
                Some("table" | "aligned") => Format::Table,
                Some("csv") => Format::Csv,
                Some("json") => Format::Json,
                other => {
                    return Err(format!(
                        "there is no format {:?}: table, csv, json",
                        other.unwrap_or_default()
                    ));
                }
            }
        }
        other => {
            return Err(format!(
                "there is no setting {other:?}; there are format, expanded, null, tuples_only, pager"
            ));
        }
    }
    Ok(())
}

fn shown(shell: &Shell, name: &str) -> String {
    let settings = &shell.settings;
    match name {
        "expanded" => settings.expanded.name().to_owned(),
        "format" => match settings.format {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Json => "json",
        }
        .to_owned(),
        "null" => super::text::escape_lines(&settings.null),
        "pager" => on_off(settings.pager).to_owned(),
        _ => on_off(settings.tuples_only).to_owned(),
    }
}

/// The words of a line: `'...'` may hold blanks, `''` and backslash escapes; `"..."` keeps its quotes, as it means a name.
pub(super) fn words(text: &str) -> std::result::Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let mut word = String::new();
        let mut characters = rest.char_indices().peekable();
        let mut end = rest.len();
        let mut quote = None;
        while let Some((at, character)) = characters.next() {
            match (quote, character) {
                (None, blank) if blank.is_whitespace() => {
                    end = at;
                    break;
                }
                (None, '\'') => quote = Some('\''),
                (Some('\''), '\'') => match characters.next_if(|(_, next)| *next == '\'') {
                    Some(_) => word.push('\''),
                    None => quote = None,
                },
                (Some('\''), '\\') => match characters.next() {
                    Some((_, 'n')) => word.push('\n'),
                    Some((_, 't')) => word.push('\t'),
                    Some((_, other)) => word.push(other),
                    None => {}
                },
                (None, '"') => {
                    quote = Some('"');
                    word.push('"');
                }
                (Some('"'), '"') => {
                    quote = None;
                    word.push('"');
                }
                (_, other) => word.push(other),
            }
        }
        if quote.is_some() {
            return Err("a quote is not closed".to_owned());
        }
        // psql allows a statement's end behind a command; it says nothing.
        words.push(word);
        rest = rest[end..].trim_start();
    }
    if let Some(last) = words.last_mut().filter(|last| last.ends_with(';')) {
        last.truncate(last.trim_end_matches(';').len());
        if last.is_empty() {
            words.pop();
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_quoted() {
        let split = |text: &str| words(text).unwrap();
        assert_eq!(split("a  'b c' 'it''s' \"X y\".z"), ["a", "b c", "it's", "\"X y\".z"]);
        assert_eq!(split(r"'a\n\'b' ''"), ["a\n'b", ""]);
        assert_eq!(split("t;"), ["t"]);
        assert!(split(" ; ").is_empty());
        assert!(words("'a").is_err() && words("\"a").is_err());
    }

    #[test]
    fn the_help_names_every_command() {
        for name in KNOWN.iter().chain(&[
            "copy", "x", "t", "timing", "format", "pset", "echo", "set", "d", "dt", "di", "dv", "ds", "du",
            "l",
        ]) {
            let known = ["quit", "include"].contains(name) || HELP.contains(&format!("\\{name}"));
            assert!(known, "{name}");
        }
    }
}
