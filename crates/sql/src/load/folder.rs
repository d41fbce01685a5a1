//! A folder of csv: its manifest, whose files are all looked at before any of them is read; scripts, and rows.

use super::files::Place;
use super::input::Input;
use super::{CopyData, Loader, described, placed};
use crate::dump::{INDEXES, MANIFEST, MANIFEST_FORMAT, MANIFEST_WITHOUT_SCRIPTS, Manifest, SCHEMA};
use crate::session::{CopyOptions, Fields, Reader};
use crate::system::definition::quote_identifier;
use crate::{Error, Result, SqlState};
use gannet_store::{Unit, Watch, WorkMemory};
use memchr::memchr_iter;
use std::path::{Path, PathBuf};

/// Longest manifest, in bytes: of some hundred thousand tables. From so many on it is charged.
const MANIFEST_MOST: u64 = 64 << 20;
const LONG_MANIFEST: u64 = 1 << 20;
/// Longest header of a table's file, in bytes: there are up to 1600 columns, whose names have up to 63.
const HEADER_MOST: usize = 1 << 20;

impl Loader<'_, '_> {
    /// Loads a folder of csv.
    pub(super) fn folder(&mut self, place: &Place, folder: &Path) -> Result<()> {
        let (manifest, _memory) = self.read_manifest(place, folder)?;
        // What begins as something else does is known all the same: its bytes are those that were dumped.
        let open = |name: &str, is_known: bool| -> Result<Option<Input>> {
            let path = folder.join(name);
            let input = place.has(&path)?.then(|| Input::open(place, &path)).transpose()?;
            Ok(input.map(|input| if is_known { input.known() } else { input }))
        };
        let is_cut = |file: &str, bytes: u64| {
            let path = folder.join(file);
            let message = format!("{path:?} does not have the {bytes} bytes that were dumped");
            Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
        };
        // All are looked at before anything is done, and opened one by one: an open one takes memory.
        let scripts = manifest.scripts.iter().map(|script| (script.file.as_str(), script.bytes));
        let tables = manifest.tables.iter().map(|table| (table.file.as_str(), table.bytes));
        for (file, bytes) in scripts.chain(tables) {
            if place.len_of(&folder.join(file))? != Some(bytes) {
                return Err(is_cut(file, bytes));
            }
        }
        // What lies beside them is not of the dump.
        let is_listed = |name: &str| manifest.scripts.iter().any(|script| script.file == name);
        let script = |name: &str| match is_listed(name) || manifest.format == MANIFEST_WITHOUT_SCRIPTS {
            true => open(name, is_listed(name)),
            false => Ok(None),
        };
        let (schema, indexes) = (script(SCHEMA)?, script(INDEXES)?);
        let of = |input: &Option<Input>| input.as_ref().and_then(Input::len).unwrap_or(0);
        let total = manifest.tables.iter().map(|table| table.bytes).sum::<u64>() + of(&schema) + of(&indexes);
        self.watch.job().phase("loads", Unit::Bytes, total);
        if let Some(text) = indexes.as_ref().map(Input::all).transpose()?.flatten() {
            self.find_keys(&text);
        }
        schema.map_or(Ok(()), |input| self.script(input))?;
        for table in &manifest.tables {
            let input = open(&table.file, true)?.filter(|input| input.len() == Some(table.bytes));
            let mut input = input.ok_or_else(|| is_cut(&table.file, table.bytes))?;
            input.charge_to(self.room.as_ref());
            let columns = read_header(&mut input, self.watch)?;
            let names: Vec<_> = columns.iter().map(|name| quote_identifier(name)).collect();
            let of = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let name = quote_identifier(&table.table);
            let sql = format!("COPY public.{name}{of} FROM STDIN WITH (FORMAT csv);");
            let file = input.name().to_owned();
            let (line, options) = (1, CopyOptions::new(true));
            let data = CopyData {
                sql,
                table: table.table.clone(),
                columns,
                options,
                in_script: false,
                line,
                file: &file,
            };
            // What was passed over is counted as the statement that could not be run.
            let rows = self.rows(&data, &mut input)?;
            if let Some(rows) = rows.filter(|rows| *rows != table.rows) {
                let message = format!(
                    "{file} has {rows} rows, not the {} that were dumped: it was changed since; what could be read of it is in {}",
                    table.rows, table.table
                );
                return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
            }
            self.before += input.taken();
            self.outcome.bytes = self.before;
        }
        indexes.map_or(Ok(()), |input| self.script(input))
    }

    /// The manifest, and what it is charged as where it is long.
    fn read_manifest(&mut self, place: &Place, folder: &Path) -> Result<(Manifest, Option<WorkMemory>)> {
        let (path, len) = find_manifest(place, folder)?;
        let mut memory = None;
        if let Some(room) = self.room.as_ref().filter(|_| len > LONG_MANIFEST) {
            // As text, and as what is made of it.
            room.grow(&mut memory, 3 * len)?;
        }
        let mut input = Input::open(place, &path)?;
        input.charge_to(self.room.as_ref());
        let mut text = String::new();
        while let Some(line) = input.next_line()? {
            text.push_str(line);
            self.watch.look()?;
        }
        Ok((judge_manifest(&path, &text)?, memory))
    }
}

/// Where the manifest is, and its bytes.
fn find_manifest(place: &Place, folder: &Path) -> Result<(PathBuf, u64)> {
    let path = folder.join(MANIFEST);
    let Some(len) = place.len_of(&path)? else {
        let of_postgres = place.has(&folder.join("toc.dat"))?;
        let hint = if of_postgres {
            "; it is one of pg_dump in its directory format: dump as plain text (pg_dump -Fp)"
        } else {
            ""
        };
        let message = format!("{folder:?} is no complete dump: there is no {MANIFEST}{hint}");
        return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
    };
    if len > MANIFEST_MOST {
        let message =
            format!("{path:?} is no manifest of a dump: it has {len} bytes, more than {MANIFEST_MOST}");
        return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
    }
    Ok((path, len))
}

fn judge_manifest(path: &Path, text: &str) -> Result<Manifest> {
    let bad = |why: String| Error::new(SqlState::BAD_COPY_FILE_FORMAT, format!("{path:?}: {why}"));
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    if ![MANIFEST_FORMAT, MANIFEST_WITHOUT_SCRIPTS].contains(&manifest.format.as_str()) {
        return Err(bad(format!("the format {:?} is not known", manifest.format)));
    }
    // Who dumps writes it whatever is dumped.
    let is_told_of = manifest.scripts.iter().any(|script| script.file == INDEXES);
    if manifest.format == MANIFEST_FORMAT && !is_told_of {
        return Err(bad(format!("{INDEXES} is not in it")));
    }
    if let Some(script) = manifest.scripts.iter().find(|script| ![SCHEMA, INDEXES].contains(&&*script.file)) {
        return Err(bad(format!("{:?} is no script of a dump", script.file)));
    }
    if let Some(table) = manifest.tables.iter().find(|table| table.file.contains(['/', '\\'])) {
        return Err(bad(format!("{:?} is no file of the folder", table.file)));
    }
    Ok(manifest)
}

/// The columns that the first line of csv names, whose line feeds are few.
fn read_header(input: &mut Input, watch: &mut Watch<'_>) -> Result<Vec<String>> {
    let (mut text, mut is_quoted) = (String::new(), false);
    while let Some(line) = input.next_line()? {
        is_quoted ^= !memchr_iter(b'"', line.as_bytes()).count().is_multiple_of(2);
        if text.len() + line.len() > HEADER_MOST {
            let message = format!("the names of the columns have more than {HEADER_MOST} bytes");
            return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, input.at_line(1, &message)));
        }
        text.push_str(line);
        if !is_quoted {
            break;
        }
        watch.look()?;
    }
    let mut reader = Reader::new(CopyOptions::new(true));
    let mut given = false;
    let mut more = |buffer: &mut Vec<u8>| {
        if std::mem::replace(&mut given, true) {
            return Ok(false);
        }
        buffer.extend_from_slice(text.as_bytes());
        Ok(true)
    };
    let mut fields = Fields::default();
    let mut names = || {
        if !reader.next(&mut more, &mut fields)? || text == "\n" {
            return Ok(Vec::new());
        }
        (0..fields.len()).map(|index| Ok(fields.get(index)?.unwrap_or_default().to_owned())).collect()
    };
    names().map_err(|error: Error| placed(input.at_line(1, &described(&error)), &error))
}
