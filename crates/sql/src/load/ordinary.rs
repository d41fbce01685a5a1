//! Rows that go to their table one by one, as by any COPY.

use super::input::{Input, Piece, RowEnds};
use super::{Bad, CopyData, Loader};
use crate::session::Header;
use crate::{Error, Result};
use gannet_store::Watch;
use std::time::Duration;

/// Rows that are tried together where bad ones are to be skipped.
const TOGETHER: usize = 1000;
/// How long it is waited for leave to go on, and how often it is tried: a transaction is open, and others may wait for what it holds.
const WAIT_MOST: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(5);

/// The next piece of data; where others are to go first, after a while.
fn next_piece(
    watch: &mut Watch<'_>,
    paced: bool,
    data: &CopyData<'_>,
    input: &mut Input,
) -> Result<Option<Piece>> {
    watch.look()?;
    let job = watch.job();
    let mut permit = None;
    for _ in 0..if paced { WAIT_MOST } else { 0 } {
        permit = job.try_permit()?;
        if permit.is_some() {
            break;
        }
        std::thread::sleep(TRY_EVERY);
    }
    // Held while it is read.
    let _permit = permit;
    input.data(&data.options, data.in_script, Vec::new())
}

impl Loader<'_, '_> {
    /// Loads the data as rows like any others.
    pub(super) fn ordinary(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<()> {
        // A header is there once.
        let by_parts = self.options.skip && data.options.header == Header::No;
        let rows = if by_parts { self.by_parts(data, input)? } else { Some(self.at_once(data, input)?) };
        if let Some(rows) = rows {
            self.outcome.rows += rows;
            self.outcome.tables += 1;
        }
        Ok(())
    }

    /// All rows as one statement; the first bad one ends it.
    fn at_once(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<u64> {
        let first = input.line() + 1;
        let (watch, before, paced) = (&mut *self.watch, self.before, !self.options.alone);
        let mut failure = None;
        let mut more = |out: &mut Vec<u8>| {
            let piece = next_piece(watch, paced, data, input);
            let piece = piece.inspect_err(|error| failure = Some(error.clone()))?;
            watch.job().set_done(before + input.taken());
            Ok(piece.inspect(|piece| out.extend_from_slice(&piece.bytes)).is_some())
        };
        let copied = self.destination.copy(&data.sql, &mut more);
        if let Some(failure) = failure {
            return Err(failure);
        }
        match copied {
            Ok(rows) => Ok(rows),
            Err(error) => {
                self.watch.look()?;
                let (line, column) = place_of(&error);
                let line = line.map_or(data.line, |line| first + line - 1);
                Err(super::row_error(data.file, &Bad { line, column, error }))
            }
        }
    }

    /// Some rows at a time; where one is bad, each alone.
    fn by_parts(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<Option<u64>> {
        // A table or column that is not there is one thing that is wrong, not one for each row.
        if let Err(error) = self.destination.copy(&data.sql, &mut |_| Ok(false)) {
            self.statement_failed(input, data.line, error)?;
            while input.data(&data.options, data.in_script, Vec::new())?.is_some() {}
            return Ok(None);
        }
        self.destination.run("BEGIN")?;
        match self.try_parts(data, input) {
            Ok(rows) => {
                self.destination.run("COMMIT")?;
                Ok(Some(rows))
            }
            Err(error) => {
                // What has ended the load is what is to be told.
                let _ = self.destination.run("ROLLBACK");
                Err(error)
            }
        }
    }

    fn try_parts(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<u64> {
        let mut rows = 0;
        while let Some(piece) = next_piece(self.watch, !self.options.alone, data, input)? {
            let mut ends: Vec<usize> = RowEnds::new(&piece.bytes, &data.options).collect();
            if ends.last() != Some(&piece.bytes.len()) {
                ends.push(piece.bytes.len());
            }
            let (mut start, mut line) = (0, piece.line);
            for part in ends.chunks(TOGETHER) {
                let end = part.last().copied().unwrap_or(start);
                let bytes = &piece.bytes[start..end];
                match self.try_part(data, bytes, line)? {
                    Ok(count) => {
                        rows += count;
                        line += lines(bytes);
                    }
                    Err(_) => {
                        for &row_end in part {
                            let row = &piece.bytes[start..row_end];
                            match self.try_part(data, row, line)? {
                                Ok(count) => rows += count,
                                Err(error) => {
                                    let (_, column) = place_of(&error);
                                    self.row_failed(data.file, Bad { line, column, error })?;
                                }
                            }
                            line += lines(row);
                            start = row_end;
                        }
                    }
                }
                start = end;
            }
            self.watch.job().set_done(self.before + input.taken());
        }
        Ok(rows)
    }

    /// Rows from this line on, all or none: the inner result is theirs.
    fn try_part(&mut self, data: &CopyData<'_>, bytes: &[u8], line: u64) -> Result<Result<u64>> {
        self.destination.run("SAVEPOINT part")?;
        let mut given = false;
        let mut more = |out: &mut Vec<u8>| {
            if std::mem::replace(&mut given, true) {
                return Ok(false);
            }
            out.extend_from_slice(bytes);
            Ok(true)
        };
        let copied = self.destination.copy(&data.sql, &mut more);
        match &copied {
            Ok(_) => self.destination.run("RELEASE SAVEPOINT part")?,
            Err(error) if !super::is_of_row(error) => {
                let bad = Bad { line, column: None, error: error.clone() };
                return Err(super::row_error(data.file, &bad));
            }
            Err(_) => self.destination.run("ROLLBACK TO SAVEPOINT part")?,
        }
        Ok(copied)
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Line and column of the data, where an error tells: `COPY t, line 3, column a: "x"`.
fn place_of(error: &Error) -> (Option<u64>, Option<String>) {
    let Some(context) = &error.fields().context else { return (None, None) };
    let Some((_, behind)) = context.rsplit_once(", line ").or_else(|| context.split_once(", line ")) else {
        return (None, None);
    };
    let digits = behind.find(|character: char| !character.is_ascii_digit()).unwrap_or(behind.len());
    let column = behind[digits..].strip_prefix(", column ").map(|rest| {
        let end = rest.find(": \"").or_else(|| rest.find(": ")).unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    (behind[..digits].parse().ok(), column)
}
