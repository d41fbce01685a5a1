//! Results on their way to whoever reads them, and data of COPY both ways.

use super::format::{Style, Writer};
use super::input::{InputFile, Line, Source};
use super::report;
use super::terminal::Screen;
use crate::arguments::Format;
use crate::output::cannot_write;
use gannet_server::frontend::{Column, Receiver, Report};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of COPY data that are handed on together.
const PIECE: usize = 64 << 10;

/// Where results go.
pub(super) enum Out<'o> {
    /// Standard output.
    Plain(BufWriter<io::Stdout>),
    /// A terminal, which may be too small.
    Screen(Screen),
    /// A file that was opened before, `\o`.
    File(&'o mut OutputFile),
}

impl Out<'_> {
    /// Everything is to be seen now.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Out::Plain(out) => out.flush().map_err(cannot_write),
            Out::Screen(screen) => screen.finish().map_err(cannot_write),
            Out::File(file) => file.flush(),
        }
    }
}

/// A file for results. What it held before stays until there is one.
pub(super) struct OutputFile {
    path: PathBuf,
    file: BufWriter<File>,
    is_begun: bool,
}

impl OutputFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(OutputFile { path: path.to_owned(), file: BufWriter::new(file), is_begun: false })
    }

    /// From now on it holds results.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        let file = self.file.get_ref();
        let emptied =
            file.metadata().and_then(|found| if found.is_file() { file.set_len(0) } else { Ok(()) });
        emptied.map_err(|error| cannot_write_file(&self.path, error))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        self.file.write(bytes).map_err(|error| cannot_write_file(&self.path, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| cannot_write_file(&self.path, error))
    }
}

fn cannot_write_file(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to {path:?}: {error}"))
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Plain(out) => out.write(bytes).map_err(cannot_write),
            Out::Screen(screen) => screen.write(bytes).map_err(cannot_write),
            Out::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Plain(out) => out.flush().map_err(cannot_write),
            Out::Screen(screen) => screen.flush().map_err(cannot_write),
            Out::File(file) => file.flush(),
        }
    }
}

/// Where the data of COPY comes from or goes to, when it is not the script and the output.
pub(super) enum Data {
    /// `\copy ... from 'file'`
    From(InputFile),
    /// `\copy ... to 'file'`
    To(DataFile),
}

/// A file for the data of COPY. It is opened, and what it held before is gone, when the data begins to come.
pub(super) struct DataFile {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    is_complete: bool,
}

impl DataFile {
    pub(super) fn new(path: &Path) -> Self {
        DataFile { path: path.to_owned(), file: None, is_complete: false }
    }

    fn begin(&mut self) -> io::Result<()> {
        let file = File::create(&self.path).map_err(|error| cannot_write_file(&self.path, error))?;
        self.file = Some(BufWriter::with_capacity(PIECE, file));
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(io::Error::other("data came before its beginning"));
        };
        file.write_all(data).map_err(|error| cannot_write_file(&self.path, error))
    }

    fn complete(&mut self) -> io::Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(|error| cannot_write_file(&self.path, error))?;
        self.is_complete = true;
        Ok(())
    }
}

/// Writes results.
pub(super) struct Printer<'o, 's> {
    pub(super) style: Style,
    /// No tags such as `INSERT 0 1`.
    pub(super) quiet: bool,
    pub(super) out: Out<'o>,
    /// Where the statement comes from: there is the data of COPY FROM STDIN as well.
    pub(super) source: Option<&'s mut dyn Source>,
    pub(super) data: Option<Data>,
    /// The statement is to have its effect, also where nobody can be told of it.
    pub(super) goes_on: bool,
    /// Why nothing more is written then.
    left: Option<io::Error>,
    writer: Option<Writer>,
    /// COPY FROM STDIN reads the script, and has not come to its end.
    reading: bool,
    copied_out: bool,
}

impl<'o> Printer<'o, '_> {
    pub(super) fn new(style: Style, quiet: bool, out: Out<'o>) -> Self {
        Printer {
            style,
            quiet,
            out,
            source: None,
            data: None,
            goes_on: false,
            left: None,
            writer: None,
            reading: false,
            copied_out: false,
        }
    }

    /// After the statement, however it ended.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.reading {
            // Data that nobody took is not to be read as statements.
            while self.copy_line(&mut Vec::new())? {}
        }
        match self.left {
            Some(error) => Err(error),
            None => self.out.finish(),
        }
    }

    /// The file that has only a part of COPY's data.
    pub(super) fn partial(&self) -> Option<PathBuf> {
        match &self.data {
            Some(Data::To(DataFile { path, file: Some(_), is_complete: false })) => Some(path.clone()),
            _ => None,
        }
    }

    /// Writes some of a result, unless that failed before.
    fn show(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.left.is_some() {
            return Ok(());
        }
        match write(self) {
            Err(error) if self.goes_on => {
                self.left = Some(error);
                Ok(())
            }
            written => written,
        }
    }

    /// A line of data from the script; false at its end.
    fn copy_line(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        let Some(source) = self.source.as_deref_mut() else {
            self.reading = false;
            return Ok(false);
        };
        let start = data.len();
        match source.line(">> ", data).map_err(io::Error::other)? {
            Line::Interrupted => {
                self.reading = false;
                Err(io::Error::other("COPY from stdin: canceled by user"))
            }
            Line::Invalid => {
                self.reading = false;
                Err(io::Error::other("COPY from stdin: this line is not valid UTF-8"))
            }
            Line::Some if matches!(&data[start..], b"\\.\n" | b"\\.\r\n" | b"\\.") => {
                data.truncate(start);
                self.reading = false;
                Ok(false)
            }
            Line::Some => Ok(true),
            Line::End => {
                self.reading = false;
                Ok(false)
            }
        }
    }
}

impl Receiver for Printer<'_, '_> {
    fn columns(&mut self, columns: &[Column]) -> io::Result<()> {
        self.writer = Some(Writer::new(self.style.clone(), columns));
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.show(|printer| match &mut printer.writer {
            Some(writer) => writer.row(values, &mut printer.out),
            None => Err(io::Error::other("a row came before its columns")),
        })
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        // The number of rows says that all of them have come there.
        if let Some(Data::To(file)) = &mut self.data {
            file.complete()?;
        }
        self.show(|printer| {
            if let Out::File(file) = &mut printer.out {
                file.begin()?;
            }
            let mut tagged = !std::mem::take(&mut printer.copied_out);
            if let Some(mut writer) = printer.writer.take() {
                writer.finish(&mut printer.out)?;
                // What changes rows and returns some says how many.
                tagged =
                    ["INSERT", "UPDATE", "DELETE", "MERGE"].iter().any(|command| tag.starts_with(command));
            }
            if tagged && !printer.quiet && printer.style.format == Format::Table && !printer.style.tuples_only
            {
                let mut shown = String::new();
                super::text::escape(tag, &mut shown);
                writeln!(printer.out, "{shown}")?;
            }
            Ok(())
        })
    }

    fn notice(&mut self, notice: &Report) {
        let place = self.source.as_ref().and_then(|source| source.place());
        let place = place.map_or(String::new(), |place| format!("gannet:{place}: "));
        // Without a standard error there is nobody to tell.
        let _ = write!(io::stderr(), "{place}{}", report::format(notice, ""));
    }

    fn copy_in(&mut self) -> io::Result<()> {
        self.reading = self.data.is_none();
        if self.reading && self.source.as_ref().is_some_and(|source| source.is_conversation()) {
            let hint = "Enter data to be copied followed by a newline.\n\
                        End with a backslash and a period on a line by itself, or an EOF signal.\n";
            io::stdout().write_all(hint.as_bytes())?;
        }
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        match &mut self.data {
            Some(Data::From(file)) => Ok(file.take(PIECE as u64).read_to_end(data)? > 0),
            Some(Data::To(_)) => Err(io::Error::other("\\copy ... to was answered by COPY FROM STDIN")),
            None => {
                while self.reading && data.len() < PIECE {
                    if !self.copy_line(data)? {
                        return Ok(!data.is_empty());
                    }
                }
                Ok(self.reading)
            }
        }
    }

    fn copy_out(&mut self) -> io::Result<()> {
        // The number of rows must not stand among them.
        self.copied_out = self.data.is_none();
        match &mut self.data {
            Some(Data::To(file)) => file.begin(),
            _ => Ok(()),
        }
    }

    fn copy_write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.data {
            Some(Data::To(file)) => file.write(data),
            Some(Data::From(_)) => Err(io::Error::other("\\copy ... from was answered by COPY TO STDOUT")),
            None => self.out.write_all(data),
        }
    }
}

/// Keeps the rows of a result: for the shell's own questions.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Option<String>>>,
}

impl Receiver for Collected {
    fn columns(&mut self, columns: &[Column]) -> io::Result<()> {
        self.columns = columns.to_vec();
        Ok(())
    }

    fn row(&mut self, values: &[Option<&str>]) -> io::Result<()> {
        self.rows.push(values.iter().map(|value| value.map(str::to_owned)).collect());
        Ok(())
    }

    fn complete(&mut self, _tag: &str) -> io::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Report) {}
}
