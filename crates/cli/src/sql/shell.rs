//! The shell itself: reads, splits, runs, and knows when to stop.
//!
//! A script ends at its first error, unless it is to keep going; a conversation goes on. What goes wrong in a statement is told at once, where
//! it happens; what is handed up is only how to go on.

use super::backend::Backend;
use super::format::{Expanded, Style};
use super::input::{Line, Source};
use super::printer::{Collected, Data, Out, OutputFile, Printer};
use super::signal::Signals;
use super::terminal::{self, Screen};
use super::{meta, report};
use crate::arguments::Format;
use anyhow::Result;
use gannet_server::frontend::Failure;
use gannet_sql::session::TransactionStatus;
use gannet_sql::splitter::{Piece, Splitter};
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

/// What is said of a line that no statement can be.
const NOT_UTF8: &str = "this line is not valid UTF-8";
/// How deep scripts may call each other.
const DEPTH: u32 = 32;

/// What the shell's commands can change.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) format: Format,
    pub(super) expanded: Expanded,
    pub(super) null: String,
    pub(super) tuples_only: bool,
    pub(super) pager: bool,
    pub(super) timing: bool,
    pub(super) quiet: bool,
    pub(super) stop_on_error: bool,
}

/// How to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// To the next one.
    Fine,
    /// It failed, and whoever reads knows.
    Failed,
    /// Enough: `\q`.
    Quit,
    /// Whoever read our output went away.
    Pipe,
    /// Ctrl-C, while nothing ran.
    Interrupted,
    /// The server went away.
    Lost,
}

/// How one statement is shown.
#[derive(Default)]
pub(super) struct How {
    /// As records.
    pub(super) expanded: bool,
    /// Where the data of COPY is.
    pub(super) data: Option<Data>,
}

/// A shell.
pub(super) struct Shell {
    pub(super) backend: Box<dyn Backend>,
    pub(super) settings: Settings,
    /// Where results go, when it is not standard output.
    pub(super) output: Option<OutputFile>,
    pub(super) signals: Signals,
    depth: u32,
    /// Ctrl-C was pressed during a statement, and what was typed ahead has not been forgotten yet.
    interrupted: bool,
    /// Something failed, and we went on.
    pub(super) failed: bool,
}

impl Shell {
    pub(super) fn new(backend: Box<dyn Backend>, settings: Settings, signals: Signals) -> Self {
        Shell { backend, settings, output: None, signals, depth: 0, interrupted: false, failed: false }
    }

    // ---- sources ----------------------------------------------------------------------------------------------

    /// Runs what a source gives, to its end or to where it has to stop.
    pub(super) fn run_source(&mut self, source: &mut dyn Source) -> Result<Step> {
        let conversation = source.is_conversation();
        let mut splitter = Splitter::default();
        let mut bytes = Vec::new();
        // What was typed for the statement under way.
        let mut typed = String::new();
        // Some editors put a mark at the beginning of a file, which is no part of its text.
        let mut byte_order_mark = Some('\u{feff}');
        // Where the statement under way begins.
        let mut begun = None;
        loop {
            if self.signals.is_terminated() || !conversation && self.signals.take() {
                return Ok(Step::Interrupted);
            }
            bytes.clear();
            match source.line(&self.prompt(splitter.mark()), &mut bytes)? {
                Line::Some => {}
                Line::End => break,
                Line::Interrupted if conversation => {
                    splitter.reset();
                    typed.clear();
                    continue;
                }
                Line::Interrupted => return Ok(Step::Interrupted),
                Line::Invalid => {
                    self.complain(Some(source), NOT_UTF8);
                    splitter.reset();
                    typed.clear();
                    continue;
                }
            }
            if conversation {
                // Pressed in a pager, perhaps: no statement runs, so there is none to end.
                self.signals.take();
            }
            let Ok(text) = std::str::from_utf8(&bytes) else {
                self.complain(Some(source), NOT_UTF8);
                return Ok(Step::Failed);
            };
            let text = byte_order_mark.take().and_then(|mark| text.strip_prefix(mark)).unwrap_or(text);
            if conversation {
                typed.push_str(text);
            }
            if splitter.mark() == '=' {
                begun = source.place();
            }
            splitter.feed(text);
            let step = self.run_pieces(&mut splitter, source)?;
            if step != Step::Fine {
                return Ok(step);
            }
            if let Some(message) = splitter.too_long() {
                self.complain_at(begun.as_deref(), &message);
                if !conversation {
                    return Ok(Step::Failed);
                }
                splitter.reset();
                typed.clear();
            }
            if conversation && splitter.mark() == '=' {
                if !typed.trim().is_empty() {
                    source.remember(&typed);
                }
                typed.clear();
            }
        }
        if let (Some(missing), false) = (splitter.missing(), conversation) {
            self.complain(Some(source), &format!("the input ends within a statement: {missing}"));
            return Ok(Step::Failed);
        }
        Ok(Step::Fine)
    }

    /// Runs what ended within the line that was fed last.
    fn run_pieces(&mut self, splitter: &mut Splitter, source: &mut dyn Source) -> Result<Step> {
        while let Some(piece) = splitter.next_piece() {
            if self.signals.is_terminated() {
                return Ok(Step::Interrupted);
            }
            let step = match piece {
                Piece::Statement(sql) => self.run_statement(&sql, Some(source), How::default()),
                Piece::Meta(command) => meta::run(self, &command, splitter, source)?,
            };
            if source.is_conversation() && std::mem::take(&mut self.interrupted) {
                source.forget()?;
            }
            match step {
                Step::Fine => {}
                // Ctrl-C in a script that was called ends that script.
                Step::Failed | Step::Interrupted if source.is_conversation() => {}
                Step::Failed if !self.settings.stop_on_error => self.failed = true,
                other => return Ok(other),
            }
        }
        Ok(Step::Fine)
    }

    /// Runs a source within another one.
    pub(super) fn include(&mut self, source: &mut dyn Source, from: &dyn Source) -> Result<Step> {
        if self.depth == DEPTH {
            self.complain(Some(from), &format!("\\i: scripts call each other more than {DEPTH} deep"));
            return Ok(Step::Failed);
        }
        self.depth += 1;
        let step = self.run_source(source);
        self.depth -= 1;
        // \q in a script ends that script.
        step.map(|step| if step == Step::Quit { Step::Fine } else { step })
    }

    /// `shop=> `, as psql has it: `*` in a transaction, `!` in a failed one; `mark` says what is open.
    fn prompt(&self, mark: char) -> String {
        let transaction = match self.backend.status() {
            TransactionStatus::Idle => "",
            TransactionStatus::Active => "*",
            TransactionStatus::Failed => "!",
        };
        let mut name = String::new();
        super::text::escape(self.backend.database(), &mut name);
        format!("{name}{mark}{transaction}> ")
    }

    // ---- statements -------------------------------------------------------------------------------------------

    /// Runs a statement and shows its result.
    pub(super) fn run_statement(&mut self, sql: &str, source: Option<&mut dyn Source>, how: How) -> Step {
        let mut style = self.style();
        if how.expanded {
            style.expanded = Expanded::On;
        }
        let place = source.as_ref().and_then(|source| source.place());
        let out = match &mut self.output {
            Some(file) => Out::File(file),
            None => standard_output(&self.settings),
        };
        let reader = match (&out, &how.data) {
            (Out::File(_), _) | (_, Some(Data::To(_))) => Reader::File,
            (Out::Screen(_), _) => Reader::Pager,
            (Out::Plain(_), _) => Reader::Ours,
        };
        let mut printer = Printer::new(style, self.settings.quiet, out);
        printer.source = source;
        printer.data = how.data;
        // Who changes rows wants them changed, also where he has seen enough of them, or cannot see them.
        printer.goes_on = !only_reads(sql);
        let start = Instant::now();
        let backend = &mut self.backend;
        let signals = &self.signals;
        let done = signals.during(backend.canceller(), || {
            let done = backend.run(sql, &mut printer);
            self.interrupted |= signals.is_pressed();
            done
        });
        let time = start.elapsed();
        let partial = printer.partial();
        let written = printer.finish();
        let step = match (done, written) {
            (Err(failure), _) => self.failure(&failure, sql, place.as_deref(), reader),
            (Ok(()), Err(error)) => {
                let is_done = !only_reads(sql) && self.backend.status() == TransactionStatus::Idle;
                let more = if is_done { "; the statement is done" } else { "" };
                let error = io::Error::new(error.kind(), format!("{error}{more}"));
                self.failure(&Failure::Receiver(error), sql, place.as_deref(), reader)
            }
            (Ok(()), Ok(())) => Step::Fine,
        };
        if let Some(path) = partial {
            self.complain_at(place.as_deref(), &format!("{path:?} has only a part of the rows"));
        }
        if self.settings.timing && step != Step::Pipe {
            return self.say(&time_line(time), step);
        }
        step
    }

    /// Tells of a failure.
    fn failure(&self, failure: &Failure, sql: &str, place: Option<&str>, reader: Reader) -> Step {
        let text = match failure {
            Failure::Server(report) => report::format(report, sql),
            // Who leaves the pager has seen enough; so has a pipe's reader.
            Failure::Receiver(error)
                if error.kind() == io::ErrorKind::BrokenPipe && reader != Reader::File =>
            {
                return if reader == Reader::Pager { Step::Fine } else { Step::Pipe };
            }
            // No statement has raised it.
            Failure::Receiver(error) => {
                self.complain_at(place, &error.to_string());
                return if self.backend.is_alive() { Step::Failed } else { Step::Lost };
            }
            Failure::Connection(error) => {
                format!(
                    "FATAL:  the connection was lost: {}\n",
                    super::text::escape_lines(&error.to_string())
                )
            }
        };
        let place = place.map_or(String::new(), |place| format!("gannet:{place}: "));
        // Without a standard error there is nobody to tell.
        let _ = write!(io::stderr(), "{place}{text}");
        if self.backend.is_alive() { Step::Failed } else { Step::Lost }
    }

    /// Asks a question of the shell's own; `None`: it failed, and the user knows.
    pub(super) fn ask(&mut self, sql: &str) -> std::result::Result<Collected, Step> {
        let mut collected = Collected::default();
        let backend = &mut self.backend;
        match self.signals.during(backend.canceller(), || backend.run(sql, &mut collected)) {
            Ok(()) => Ok(collected),
            Err(failure) => Err(self.failure(&failure, sql, None, Reader::Ours)),
        }
    }

    /// How far the database's restart is, in words, and whether anything is left of it; `None` where another server than Gannet
    /// answers.
    pub(super) fn restart(&mut self) -> std::result::Result<Option<(String, bool)>, Step> {
        let is_there = "select 1 from pg_catalog.pg_class where relname = 'gannet_restart'";
        if self.ask(is_there)?.rows.is_empty() {
            return Ok(None);
        }
        let found = self.ask("select phase, crashed, detail from gannet_restart")?;
        let Some([Some(phase), Some(crashed), Some(detail)]) = found.rows.first().map(Vec::as_slice) else {
            return Ok(None);
        };
        let line = match phase.as_str() {
            "done" if crashed == "f" => {
                "The database had been closed: its start had nothing to do.".to_owned()
            }
            "done" => format!("The database had not been closed: {detail}."),
            _ => format!("The database had not been closed, and is in use all the same: {detail}."),
        };
        Ok(Some((super::text::escape_lines(&line), phase != "done")))
    }

    // ---- output -----------------------------------------------------------------------------------------------

    /// How results are written now.
    pub(super) fn style(&self) -> Style {
        let size = if self.output.is_some() { None } else { terminal::size() };
        Style {
            format: self.settings.format,
            expanded: self.settings.expanded,
            null: self.settings.null.clone(),
            tuples_only: self.settings.tuples_only,
            terminal_columns: size.map(|(_, columns)| columns),
        }
    }

    /// Writes text where results go, and goes on with `step`.
    pub(super) fn say(&mut self, text: &str, step: Step) -> Step {
        let mut out = match &mut self.output {
            Some(file) => Out::File(file),
            None => standard_output(&self.settings),
        };
        let reader = match &out {
            Out::File(_) => Reader::File,
            Out::Screen(_) => Reader::Pager,
            Out::Plain(_) => Reader::Ours,
        };
        match out.write_all(text.as_bytes()).and_then(|()| out.finish()) {
            Ok(()) => step,
            Err(error) => self.failure(&Failure::Receiver(error), "", None, reader),
        }
    }

    /// Tells of something that is wrong with the shell's input.
    pub(super) fn complain(&self, source: Option<&dyn Source>, message: &str) {
        self.complain_at(source.and_then(Source::place).as_deref(), message);
    }

    fn complain_at(&self, place: Option<&str>, message: &str) {
        let place = place.map_or(" ".to_owned(), |place| format!("{place}: "));
        let mut shown = String::new();
        super::text::escape(message, &mut shown);
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "gannet:{place}{shown}");
    }
}

fn standard_output<'o>(settings: &Settings) -> Out<'o> {
    match terminal::size() {
        Some(size) if settings.pager => Out::Screen(Screen::new(size)),
        _ => Out::Plain(BufWriter::with_capacity(64 << 10, io::stdout())),
    }
}

/// Who reads what a statement gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    /// Whoever reads our output, or its pager: if he leaves, he has seen enough.
    Ours,
    Pager,
    /// A file that was named, perhaps a pipe: who leaves there has not got what he was to get.
    File,
}

/// Whether a statement has nothing but its result, as far as its first word tells: the others are to have their effect, whoever looks on.
fn only_reads(sql: &str) -> bool {
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect::<Vec<_>>()
    };
    let mut rest = sql.trim_start();
    loop {
        let behind = match rest.get(..2) {
            Some("--") => rest.split_once('\n').map(|(_, behind)| behind),
            Some("/*") => rest.split_once("*/").map(|(_, behind)| behind),
            _ => rest.strip_prefix('('),
        };
        match behind {
            Some(behind) => rest = behind.trim_start(),
            None => break,
        }
    }
    let words = words(rest);
    let changes = |word: &String| matches!(&**word, "insert" | "update" | "delete" | "merge");
    match words.first().map(String::as_str) {
        Some("select" | "table" | "values" | "show") => true,
        Some("copy") => words.iter().any(|word| word == "to") && !words.iter().any(changes),
        // Also of one that only reads from a column of that name: it is computed to its end in vain.
        Some("with" | "explain") => !words.iter().any(changes),
        _ => false,
    }
}

/// As psql says it.
fn time_line(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 1e3 {
        return format!("Time: {ms:.3} ms\n");
    }
    let seconds = time.as_secs_f64();
    let (minutes, seconds) = ((seconds / 60.0).floor(), seconds % 60.0);
    format!("Time: {ms:.3} ms ({minutes:02.0}:{seconds:06.3})\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_psqls() {
        assert_eq!(time_line(Duration::from_micros(1234)), "Time: 1.234 ms\n");
        assert_eq!(time_line(Duration::from_millis(61_500)), "Time: 61500.000 ms (01:01.500)\n");
    }

    #[test]
    fn what_only_reads_is_known_by_its_first_word() {
        for sql in [
            "select 1",
            " (SELECT 1)",
            "-- delete\n/* update */ values (1)",
            "with a as (select 1) table a",
            "copy t to stdout",
        ] {
            assert!(only_reads(sql), "{sql}");
        }
        for sql in [
            "delete from t",
            "/* a */ INSERT into t",
            "with a as (delete from t returning 1) select",
            "copy t from stdin",
            "",
        ] {
            assert!(!only_reads(sql), "{sql}");
        }
    }
}
