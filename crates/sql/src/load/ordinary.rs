//! Rows that go to their table one by one, as by any COPY.

use super::input::{Input, Next, Piece, RowEnds};
use super::{Bad, CopyData, Loader, explained};
use crate::session::Header;
use crate::{Error, Result, SqlState};
use gannet_store::{Job, Permit, Watch};
use std::time::Duration;

/// Rows that are tried together, at most, where bad ones are to be skipped; and so few good ones in a row are no reason to try more.
const TOGETHER: usize = 1000;
const FEW: usize = 4;
/// Bytes of rows that wait for others of the same table, at most: what is beyond that is bad.
const WAITING_MOST: usize = 1 << 20;
/// How long it is waited for leave to go on, and how often it is tried: a transaction is open, and others may wait for what it holds.
const WAIT_MOST: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(5);

/// What comes next of the data; where others are to go first, after a while. A client is waited for without leave, which other jobs would lack
/// meanwhile.
fn next_piece(watch: &mut Watch<'_>, paced: bool, data: &CopyData<'_>, input: &mut Input) -> Result<Next> {
    watch.look()?;
    let waits = input.waits_for_client();
    // Held while it is read.
    let permit = if paced && !waits { leave(watch.job())? } else { None };
    let next = input.data(&data.options, data.in_script, Vec::new())?;
    drop(permit);
    if paced && waits && matches!(next, Next::Piece(_)) {
        leave(watch.job())?;
    }
    Ok(next)
}

/// Leave to go on, if there is any within a while.
fn leave(job: &Job) -> Result<Option<Permit>> {
    for _ in 0..WAIT_MOST {
        let permit = job.try_permit()?;
        if permit.is_some() {
            return Ok(permit);
        }
        std::thread::sleep(TRY_EVERY);
    }
    Ok(None)
}

impl Loader<'_, '_> {
    /// Loads the data as rows like any others; false where the statement could not be run and they were passed over.
    pub(super) fn ordinary(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<bool> {
        let rows = match self.options.skip {
            true => self.by_parts(data, input),
            false => self.at_once(data, input).map(Some),
        };
        let rows = rows.map_err(|error| explained(data, error))?;
        if let Some(rows) = rows {
            self.outcome.rows += rows;
            self.outcome.tables += 1;
        }
        Ok(rows.is_some())
    }

    /// All rows as one statement; the first bad one ends it.
    fn at_once(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<u64> {
        let first = input.line() + 1;
        let (watch, before, paced) = (&mut *self.watch, self.before, !self.options.alone);
        let mut failure = None;
        let mut more = |out: &mut Vec<u8>| {
            let next = next_piece(watch, paced, data, input);
            let next = next.inspect_err(|error| failure = Some(error.clone()))?;
            watch.job().set_done(before + input.taken());
            match next {
                Next::Piece(piece) => out.extend_from_slice(&piece.bytes),
                // Whoever asks looks whether rows are still wanted.
                Next::Nothing => {}
                Next::End => return Ok(false),
            }
            Ok(true)
        };
        let copied = self.destination.copy(&data.sql, &mut more);
        if let Some(failure) = failure {
            return Err(failure);
        }
        match copied {
            Ok(rows) => Ok(rows),
            Err(error) => {
                self.watch.look()?;
                let (line, column) = place_of(&error, &data.table);
                let line = line.map_or(data.line, |line| first + line - 1);
                Err(super::row_error(data.file, &Bad::new(line, column, &error)))
            }
        }
    }

    /// Some rows at a time; where one is bad, those before it and it alone.
    fn by_parts(&mut self, data: &CopyData<'_>, input: &mut Input) -> Result<Option<u64>> {
        let mut pieces = Pieces::default();
        if data.options.header != Header::No {
            let first = pieces.next(self.watch, !self.options.alone, data, input)?;
            pieces.cut_header(first, data);
        }
        // A table or column that is not there is one thing that is wrong, not one for each row.
        if let Err(error) = self.destination.copy(&data.sql, &mut once(&[&pieces.header])) {
            self.statement_failed(input, data.line, error)?;
            if !pieces.are_over {
                input.pass_over_data(&data.options, data.in_script)?;
            }
            return Ok(None);
        }
        self.destination.run("BEGIN")?;
        match self.try_parts(data, pieces, input) {
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

    fn try_parts(&mut self, data: &CopyData<'_>, mut pieces: Pieces, input: &mut Input) -> Result<u64> {
        let (mut rows, mut tries, mut waiting) = (0, Tries::new(), Waiting::default());
        let header = std::mem::take(&mut pieces.header);
        while let Some(piece) = pieces.next(self.watch, !self.options.alone, data, input)? {
            let mut ends: Vec<usize> = RowEnds::new(&piece.bytes, &data.options).collect();
            if ends.last() != Some(&piece.bytes.len()) {
                ends.push(piece.bytes.len());
            }
            let (mut row, mut start, mut line) = (0, 0, piece.line);
            while row < ends.len() {
                let part = &ends[row..ends.len().min(row + tries.rows)];
                let end = part.last().copied().unwrap_or(start);
                let bytes = &piece.bytes[start..end];
                match self.try_part(data, &header, bytes, line)? {
                    Ok(count) => {
                        rows += count;
                        tries.went_well(part.len());
                    }
                    Err(error) if part.len() == 1 => {
                        if let Some(bad) = waiting.take_in(bytes, bad(data, line, &error)) {
                            self.row_failed(data.file, bad)?;
                        }
                        tries.found_one();
                    }
                    Err(error) => {
                        let before = place_of(&error, &data.table)
                            .0
                            .map(|line| rows_before(line.saturating_sub(lines(&header)), bytes, start, part));
                        tries.failed(part.len(), before);
                        continue;
                    }
                }
                row += part.len();
                line += lines(bytes);
                start = end;
            }
            self.watch.job().set_done(self.before + input.taken());
        }
        Ok(rows + self.try_waiting(data, &header, waiting)?)
    }

    /// All others are there: tries those that wait for one of them, from the last one on, and from the first one on, in turns, as long as that gets
    /// any of them in. A row refers to one before it, or behind it, mostly.
    fn try_waiting(&mut self, data: &CopyData<'_>, header: &[u8], waiting: Waiting) -> Result<u64> {
        let (mut left, mut count) = (waiting.rows, 0);
        loop {
            let before = left.len();
            let mut still = Vec::new();
            for (bytes, row) in left.into_iter().rev() {
                self.watch.look()?;
                match self.try_part(data, header, &bytes, row.line)? {
                    Ok(rows) => count += rows,
                    Err(error) => still.push((bytes, bad(data, row.line, &error))),
                }
            }
            left = still;
            if left.len() == before || left.is_empty() {
                break;
            }
        }
        left.sort_by_key(|(_, row)| row.line);
        left.into_iter().try_for_each(|(_, row)| self.row_failed(data.file, row))?;
        Ok(count)
    }

    /// Rows from this line on, behind the header, all or none: the inner result is theirs.
    fn try_part(
        &mut self,
        data: &CopyData<'_>,
        header: &[u8],
        bytes: &[u8],
        line: u64,
    ) -> Result<Result<u64>> {
        self.destination.run("SAVEPOINT part")?;
        let copied = self.destination.copy(&data.sql, &mut once(&[header, bytes]));
        match &copied {
            Ok(_) => self.destination.run("RELEASE SAVEPOINT part")?,
            Err(error) if !super::is_of_row(error) => {
                return Err(super::row_error(data.file, &Bad::new(line, None, error)));
            }
            Err(_) => {
                self.destination.run("ROLLBACK TO SAVEPOINT part")?;
                self.destination.run("RELEASE SAVEPOINT part")?;
            }
        }
        Ok(copied)
    }
}

/// COPY data that is given at once, if there is any.
fn once<'d>(parts: &'d [&'d [u8]]) -> impl FnMut(&mut Vec<u8>) -> Result<bool> + 'd {
    let mut left = parts.iter().any(|part| !part.is_empty());
    move |out| {
        if !std::mem::replace(&mut left, false) {
            return Ok(false);
        }
        parts.iter().for_each(|part| out.extend_from_slice(part));
        Ok(true)
    }
}

/// The data of a COPY, piece by piece, without its header.
#[derive(Default)]
struct Pieces {
    /// The header, with its end: every part has it in front, as the statement says that there is one.
    header: Vec<u8>,
    /// What stands behind it in its piece.
    first: Option<Piece>,
    /// The last one was taken: what follows in the input is no data.
    are_over: bool,
}

impl Pieces {
    fn next(
        &mut self,
        watch: &mut Watch<'_>,
        paced: bool,
        data: &CopyData<'_>,
        input: &mut Input,
    ) -> Result<Option<Piece>> {
        if self.first.is_some() || self.are_over {
            return Ok(self.first.take());
        }
        loop {
            match next_piece(watch, paced, data, input)? {
                Next::Piece(piece) => return Ok(Some(piece)),
                Next::Nothing => {}
                Next::End => {
                    self.are_over = true;
                    return Ok(None);
                }
            }
        }
    }

    fn cut_header(&mut self, first: Option<Piece>, data: &CopyData<'_>) {
        let Some(mut piece) = first else { return };
        let end = RowEnds::new(&piece.bytes, &data.options).next().unwrap_or(piece.bytes.len());
        let behind = piece.bytes.split_off(end);
        self.header = std::mem::replace(&mut piece.bytes, behind);
        piece.line += lines(&self.header);
        self.first = (!piece.bytes.is_empty()).then_some(piece);
    }
}

/// A bad row, and its line.
fn bad(data: &CopyData<'_>, line: u64, error: &Error) -> Bad {
    let (_, column) = place_of(error, &data.table);
    Bad::new(line, column, error)
}

/// Rows that refer to what is not there, and may come yet where it is of the same table.
#[derive(Default)]
struct Waiting {
    rows: Vec<(Vec<u8>, Bad)>,
    bytes: usize,
}

impl Waiting {
    /// Takes a row in that was tried alone; gives it back where it is bad whatever comes.
    fn take_in(&mut self, bytes: &[u8], row: Bad) -> Option<Bad> {
        let takes = bytes.len() + size_of::<(Vec<u8>, Bad)>();
        if row.error.state() != SqlState::FOREIGN_KEY_VIOLATION || self.bytes + takes > WAITING_MOST {
            return Some(row);
        }
        self.bytes += takes;
        self.rows.push((bytes.to_vec(), row));
        None
    }
}

/// How many rows are tried together: where bad ones are far apart many, where there is nothing else each alone.
#[derive(Debug)]
struct Tries {
    rows: usize,
    /// Among so many of the next rows is a bad one.
    suspect: usize,
    /// Rows that went well since the last bad one.
    good: usize,
}

impl Tries {
    fn new() -> Self {
        Tries { rows: TOGETHER, suspect: 0, good: 0 }
    }

    fn went_well(&mut self, rows: usize) {
        self.good += rows;
        self.suspect = self.suspect.saturating_sub(rows);
        self.rows = match self.suspect {
            // Where every other row is bad, each alone is best.
            0 if self.good < FEW => self.rows,
            // A piece may have ended there.
            0 => (4 * rows).max(self.rows).min(TOGETHER),
            suspect => (suspect / 2).max(1),
        };
    }

    /// Of some rows one is bad: behind so many, if the error has told the place. That of what is looked at when all rows are there may be behind
    /// the last one.
    fn failed(&mut self, rows: usize, before: Option<usize>) {
        let before = before.filter(|before| *before < rows);
        self.suspect = before.map_or(rows, |before| before + 1);
        self.rows = before.unwrap_or(rows / 2).max(1);
    }

    /// The one row that was tried is bad.
    fn found_one(&mut self) {
        self.suspect = 0;
        self.rows = (std::mem::take(&mut self.good) / 2).clamp(1, TOGETHER);
    }
}

/// How many rows of a part stand before that with this line, counted from 1 within the part.
fn rows_before(line: u64, part: &[u8], start: usize, ends: &[usize]) -> usize {
    let (mut seen, mut from) = (0, 0);
    let is_before = |end: &&usize| {
        let end = **end - start;
        // The last one may lack its end.
        seen += lines(&part[from..end]).max(1);
        from = end;
        seen < line
    };
    ends.iter().take_while(is_before).count()
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Line and column of a table's data, where an error tells: `COPY t, line 3, column a: "x"`. The name and the data may have any text.
fn place_of(error: &Error, table: &str) -> (Option<u64>, Option<String>) {
    let context = error.fields().context.as_deref().unwrap_or_default();
    let behind = context.strip_prefix("COPY ").and_then(|behind| behind.strip_prefix(table));
    let Some(behind) = behind.and_then(|behind| behind.strip_prefix(", line ")) else {
        return (None, None);
    };
    let digits = behind.find(|character: char| !character.is_ascii_digit()).unwrap_or(behind.len());
    let column = behind[digits..].strip_prefix(", column ").map(|rest| {
        let end = rest.find(": \"").or_else(|| rest.find(": ")).unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    (behind[..digits].parse().ok(), column)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bad ones of so many rows, and how many tries it takes to find them. `told`: errors tell the row; else that it is behind the last one.
    fn tries(rows: usize, is_bad: impl Fn(usize) -> bool, told: bool) -> (Vec<usize>, usize) {
        let (mut tries, mut bad, mut count, mut row) = (Tries::new(), Vec::new(), 0, 0);
        while row < rows {
            let part = row..rows.min(row + tries.rows);
            count += 1;
            match part.clone().find(|row| is_bad(*row)) {
                None => tries.went_well(part.len()),
                Some(_) if part.len() == 1 => {
                    bad.push(row);
                    tries.found_one();
                }
                Some(found) => {
                    tries.failed(part.len(), Some(if told { found - row } else { part.len() }));
                    continue;
                }
            }
            row = part.end;
        }
        (bad, count)
    }

    #[test]
    fn few_tries_find_few_bad_rows_and_about_as_many_as_there_are_rows_all() {
        for (every, told, untold) in [(1, 1, 1), (2, 2, 2), (10, 4, 8), (100, 4, 10), (1000, 4, 11)] {
            for (told, most) in [(true, told), (false, untold)] {
                let (bad, count) = tries(10_000, |row| row % every == every - 1, told);
                assert!(bad.iter().copied().eq((every - 1..10_000).step_by(every)));
                assert!(count <= bad.len() * most + 20, "{every} {told}: {count} for {}", bad.len());
            }
        }
        assert_eq!(tries(10_000, |_| false, true), (Vec::new(), 10));
        assert_eq!(tries(1, |_| true, true), (vec![0], 1));
    }

    #[test]
    fn data_and_names_that_have_a_line_in_them_were_taken_for_the_place() {
        for (table, rest, line, column) in [
            ("t", "3, column a: \"x, line 9\"", 3, Some("a")),
            ("t", "3: \"1\t, line 9, column b: \"", 3, None),
            ("t, line 7", "12, column a, b: \"x\"", 12, Some("a, b")),
            ("t", "4", 4, None),
        ] {
            let error = Error::new(SqlState::BAD_COPY_FILE_FORMAT, "bad");
            let error = error.context(format!("COPY {table}, line {rest}"));
            assert_eq!(place_of(&error, table), (Some(line), column.map(str::to_owned)), "{rest}");
        }
    }

    #[test]
    fn a_line_leads_to_its_row() {
        let part = b"1,a\n2,\"b\nb\"\n3,c\n";
        let ends = [14, 22, 26];
        let before = |line| rows_before(line, part, 10, &ends);
        assert_eq!([1, 2, 3, 4, 5].map(before), [0, 1, 1, 2, 3]);
    }
}
