//! Where a dump goes: one file of SQL, a folder, or a stream.
//!
//! # What it guarantees
//! 1. Nothing that is there is overwritten.
//! 2. A dump has its name only once it is complete and durable; until then it is called `NAME.partial`, and `NAME.partial.lock` is held by who
//!    writes it, so that there is one at a time. What could not be completed is removed, and what a crash has left of an earlier run, of
//!    whichever format, is replaced: of a folder that a dump has begun all scripts, csv and the manifest. Of anything else that is called so nothing is removed.
//! 3. The last line of a dump in SQL says that it is complete, as a stream has no name; a folder has `manifest.json` for that, which
//!    is written last.

use super::bytes::ByteBuffer;
use super::output::{Output, failed};
use super::rows::write_header;
use super::script::{Part, Script, TableRows};
use super::{Figures, Format};
use crate::{Error, Result, SqlState};
use gannet_io::{Class, Disk, ErrorKind, Mode, ModeRequest, OpenOptions, remove_large};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first line of a dump in SQL.
pub(crate) const FIRST_LINE: &str = "-- Gannet dump, format 1";
/// The beginning of its last line.
pub(crate) const LAST_LINE: &str = "-- Gannet dump complete";
/// The file of a folder that says what is in it.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The format of such a file.
pub(crate) const MANIFEST_FORMAT: &str = "gannet dump csv 2";
/// The one before it, which says nothing of scripts.
pub(crate) const MANIFEST_WITHOUT_SCRIPTS: &str = "gannet dump csv 1";
/// Files of a folder: definitions before the rows, and behind them.
pub(crate) const SCHEMA: &str = "schema.sql";
pub(crate) const INDEXES: &str = "indexes.sql";

/// What a session has to have for the rest to mean the same everywhere.
const SETTINGS: &str =
    "SET client_encoding = 'UTF8';\nSET standard_conforming_strings = on;\nSET search_path = public;\n";

/// What a warning begins with, where there is one in front of them.
const WARNING: &str = "-- Warning: ";
/// What the manifest of any format begins with.
const MANIFEST_BEGINS: &str = "{\n  \"format\": \"gannet dump csv";

/// What is in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// `gannet dump csv 2`; in folders of earlier releases `gannet dump csv 1`, where `scripts` are not listed.
    pub format: String,
    /// The scripts, in the order in which they are run: before the rows `schema.sql`, behind them `indexes.sql`.
    #[serde(default)]
    pub scripts: Vec<ManifestScript>,
    /// The tables whose rows are there.
    pub tables: Vec<ManifestTable>,
}

/// A script in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestScript {
    /// Its file.
    pub file: String,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A table in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestTable {
    /// Its name.
    pub table: String,
    /// The file of its rows.
    pub file: String,
    /// How many there are.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Takes files one after the other.
pub trait Files: Write + Send {
    /// What is written from now on belongs to the file of this name.
    fn begin_file(&mut self, name: &str) -> io::Result<()>;
}

/// Where to.
pub enum Target<'t> {
    /// A file or folder of this name.
    Path(PathBuf),
    /// Whoever reads it; in SQL only.
    Stream(&'t mut (dyn Write + Send)),
    /// Whoever takes files; one without a name in SQL.
    Files(&'t mut dyn Files),
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Target::Stream(_) => f.write_str("Stream"),
            Target::Files(_) => f.write_str("Files"),
        }
    }
}

/// Takes a dump, part by part.
pub(super) struct Writer<'t> {
    disk: Arc<dyn Disk>,
    mode: ModeRequest,
    format: Format,
    place: Place<'t>,
    /// Nobody else writes there as long as it is held.
    lock: Option<Lock>,
    output: Option<Output>,
    /// Files in the folder.
    files: Vec<PathBuf>,
    scripts: Vec<ManifestScript>,
    manifest: Vec<ManifestTable>,
    table: Option<ManifestTable>,
    figures: Figures,
    /// Bytes before the file at hand.
    before: u64,
    complete: bool,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("format", &self.format).finish_non_exhaustive()
    }
}

enum Place<'t> {
    File { partial: PathBuf, path: PathBuf },
    Folder { partial: PathBuf, path: PathBuf },
    Stream(&'t mut (dyn Write + Send)),
    Files(&'t mut dyn Files),
}

/// The right to write what is called `NAME.partial`.
struct Lock {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    held: Option<Box<dyn Any + Send + Sync>>,
    /// A run that held it was ended before it could remove it.
    was_left: bool,
}

impl Lock {
    fn take(disk: &Arc<dyn Disk>, partial: &Path) -> Result<Self> {
        let path = with_suffix(partial, ".lock");
        let was_left = disk.exists(&path).map_err(failed)?;
        let held = disk.lock(&path).map_err(|error| {
            let is_held = error.kind() == ErrorKind::Locked;
            let error = failed(error);
            if is_held {
                let message = format!("another dump is writing {partial:?}: {error}");
                return Error::new(SqlState::OBJECT_IN_USE, message)
                    .hint("Wait for it, or give another name");
            }
            error
        })?;
        Ok(Lock { disk: Arc::clone(disk), path, held: Some(held), was_left })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: whoever takes it next makes a file of his own. One that cannot be removed says nothing.
        let _ = self.disk.remove(&self.path);
        self.held = None;
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn there_already(disk: &dyn Disk, path: &Path) -> Result<()> {
    if disk.exists(path).map_err(failed)? {
        let message = format!("{path:?} exists, and is not overwritten");
        return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The file for the rows of a table: names may have what file names may not.
fn file_name(table: &str) -> String {
    let mut name = String::new();
    for byte in table.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name + ".csv"
}

impl<'t> Writer<'t> {
    /// Begins a dump.
    ///
    /// # Errors
    /// Where there is something already, or nothing can be made.
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        target: Target<'t>,
        format: Format,
        mode: ModeRequest,
    ) -> Result<Self> {
        let mut writer = Writer::open(disk, target, format, mode)?;
        if format == Format::Sql {
            writer.put(&format!("{FIRST_LINE}\n\n{SETTINGS}\n"))?;
        }
        Ok(writer)
    }

    /// Says why what is dumped may not load: at the head of a script, and in the figures.
    pub(super) fn warn(&mut self, warning: Option<String>) -> Result<()> {
        self.figures.warning = warning;
        match self.format {
            Format::Sql => self.put_warning(),
            // It stands in the file of the only statements.
            Format::Csv => Ok(()),
        }
    }

    fn put_warning(&mut self) -> Result<()> {
        match &self.figures.warning {
            Some(warning) => self.put(&format!("{WARNING}{warning}\n\n")),
            None => Ok(()),
        }
    }

    /// Begins a dump whose text comes from elsewhere.
    fn open(disk: Arc<dyn Disk>, target: Target<'t>, format: Format, mode: ModeRequest) -> Result<Self> {
        let mut lock = None;
        let place = match target {
            Target::Stream(_) if format == Format::Csv => {
                let message = "csv has a file for each table: it needs a folder, or --format sql";
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            Target::Stream(stream) => Place::Stream(stream),
            Target::Files(files) => Place::Files(files),
            Target::Path(path) => {
                if format == Format::Sql && path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                    let message = format!("{path:?} is the name of a folder: a dump in SQL is a file");
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
                // What is called so with a slash behind it is the same folder.
                let path: PathBuf = path.components().collect();
                there_already(&*disk, &path)?;
                let partial = with_suffix(&path, ".partial");
                let held = lock.insert(Lock::take(&disk, &partial)?);
                // Whoever held it may have completed it.
                there_already(&*disk, &path)?;
                clear(&*disk, &partial, held.was_left)?;
                match format {
                    Format::Sql => Place::File { partial, path },
                    Format::Csv => Place::Folder { partial, path },
                }
            }
        };
        let (figures, complete) = (Figures::default(), false);
        let (files, scripts, manifest) = (Vec::new(), Vec::new(), Vec::new());
        let mut writer = Writer {
            disk,
            mode,
            format,
            place,
            lock,
            output: None,
            files,
            scripts,
            manifest,
            table: None,
            figures,
            before: 0,
            complete,
        };
        writer.begin_place()?;
        Ok(writer)
    }

    fn begin_place(&mut self) -> Result<()> {
        let disk = Arc::clone(&self.disk);
        match &self.place {
            Place::Stream(_) | Place::Files(_) => {}
            Place::File { partial, .. } => {
                self.output = Some(Output::create(&*disk, partial, self.mode)?);
            }
            Place::Folder { partial, .. } => {
                disk.create_dir(partial).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The folder that it goes to, and how many bytes that has free, where it is known.
    pub(super) fn room(&self) -> Result<Option<(PathBuf, u64)>> {
        let (Place::File { path, .. } | Place::Folder { path, .. }) = &self.place else { return Ok(None) };
        let folder = parent(path).to_owned();
        Ok(self.disk.free_bytes(&folder).map_err(failed)?.map(|free| (folder, free)))
    }

    /// Whether it goes to whoever reads a stream, and takes as long as he does.
    pub(super) fn has_reader(&self) -> bool {
        matches!(self.place, Place::Stream(_) | Place::Files(_))
    }

    fn put(&mut self, text: &str) -> Result<()> {
        self.put_bytes(text.as_bytes())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.figures.bytes += bytes.len() as u64;
        match (&mut self.output, &mut self.place) {
            (Some(output), _) => output.write(bytes),
            (None, Place::Stream(stream)) => stream.write_all(bytes).map_err(stream_failed),
            (None, Place::Files(files)) => files.write_all(bytes).map_err(stream_failed),
            (None, _) => Err(Error::internal("a dump without a file at hand")),
        }
    }

    /// A file of the folder.
    fn begin_file(&mut self, name: &str) -> Result<()> {
        self.before = self.figures.bytes;
        if let (Place::Files(files), Format::Csv) = (&mut self.place, self.format) {
            return files.begin_file(name).map_err(stream_failed);
        }
        let Place::Folder { partial, .. } = &self.place else { return Ok(()) };
        let path = partial.join(name);
        self.output = Some(Output::create(&*self.disk, &path, self.mode)?);
        self.files.push(path);
        Ok(())
    }

    /// It has come to its end; gives its length.
    fn end_file(&mut self) -> Result<u64> {
        match (&self.place, self.output.take()) {
            (Place::Folder { .. }, Some(output)) => output.finish()?,
            (_, output) => self.output = output,
        }
        Ok(self.figures.bytes - self.before)
    }

    fn parts(&mut self, file: &str, parts: &[&[Part]]) -> Result<()> {
        self.begin_file(file)?;
        if self.format == Format::Csv {
            self.put_warning()?;
            self.put(SETTINGS)?;
        }
        for part in parts.iter().copied().flatten() {
            self.put(&part.sql)?;
            self.put("\n")?;
        }
        if self.format == Format::Sql {
            self.put("\n")?;
        }
        let bytes = self.end_file()?;
        self.scripts.push(ManifestScript { file: file.to_owned(), bytes });
        Ok(())
    }

    /// What comes before the rows.
    pub(super) fn before(&mut self, script: &Script) -> Result<()> {
        self.parts(SCHEMA, &[&script.before])
    }

    /// What comes behind the rows; `with_definitions`: keys and indexes, too.
    pub(super) fn after(
        &mut self,
        script: &Script,
        with_positions: bool,
        with_definitions: bool,
    ) -> Result<()> {
        let positions = if with_positions { &script.positions[..] } else { &[] };
        let after = if with_definitions { &script.after[..] } else { &[] };
        self.parts(INDEXES, &[positions, after])
    }

    /// The rows of a table begin.
    pub(super) fn begin_table(&mut self, table: &TableRows) -> Result<()> {
        let file = file_name(&table.name);
        self.begin_file(&file)?;
        match self.format {
            Format::Sql => self.put(&format!("{}\n", table.copy_statement()))?,
            Format::Csv => {
                let mut header = ByteBuffer::default();
                write_header(&table.columns, &mut header);
                self.put_bytes(header.as_bytes())?;
            }
        }
        self.table = Some(ManifestTable { table: table.name.clone(), file, rows: 0, bytes: 0 });
        Ok(())
    }

    /// From now on files are written by requests of this many bytes, as far as they may be so long.
    pub(super) fn set_request(&mut self, bytes: u64) {
        if let Some(output) = &mut self.output {
            output.set_request(bytes);
        }
    }

    /// Rows, as COPY gives them.
    pub(super) fn rows(&mut self, text: &[u8], rows: u64) -> Result<()> {
        self.figures.rows += rows;
        if let Some(table) = &mut self.table {
            table.rows += rows;
        }
        self.put_bytes(text)
    }

    /// The rows of the table end.
    pub(super) fn end_table(&mut self) -> Result<()> {
        if self.format == Format::Sql {
            self.put("\\.\n\n")?;
        }
        let bytes = self.end_file()?;
        self.figures.tables += 1;
        self.manifest.extend(self.table.take().map(|table| ManifestTable { bytes, ..table }));
        Ok(())
    }

    /// Everything was written: makes it durable, and gives it its name.
    pub(super) fn finish(mut self) -> Result<Figures> {
        self.end_text()?;
        self.publish()
    }

    /// What says that it is complete.
    fn end_text(&mut self) -> Result<()> {
        if self.format == Format::Sql {
            let Figures { tables, rows, .. } = self.figures;
            self.put(&format!("{LAST_LINE}: {tables} tables, {rows} rows\n"))?;
        } else {
            self.begin_file(MANIFEST)?;
            let manifest = Manifest {
                format: MANIFEST_FORMAT.to_owned(),
                scripts: std::mem::take(&mut self.scripts),
                tables: std::mem::take(&mut self.manifest),
            };
            let text = serde_json::to_string_pretty(&manifest).map_err(Error::internal)?;
            self.put(&format!("{text}\n"))?;
            self.end_file()?;
        }
        Ok(())
    }

    /// Makes it durable, and gives it its name.
    fn publish(mut self) -> Result<Figures> {
        let disk = Arc::clone(&self.disk);
        let (partial, path) = match &mut self.place {
            Place::Stream(stream) => {
                self.complete = true;
                stream.flush().map_err(stream_failed)?;
                return Ok(std::mem::take(&mut self.figures));
            }
            Place::Files(files) => {
                self.complete = true;
                files.flush().map_err(stream_failed)?;
                return Ok(std::mem::take(&mut self.figures));
            }
            Place::File { partial, path } => {
                if let Some(output) = self.output.take() {
                    output.finish()?;
                }
                (partial, path)
            }
            Place::Folder { partial, path } => {
                disk.sync_dir(partial).map_err(failed)?;
                (partial, path)
            }
        };
        disk.rename_new(partial, path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                let message = format!("{path:?} has come into being meanwhile, and is not overwritten");
                Error::new(SqlState::DUPLICATE_OBJECT, message)
            }
            _ => failed(error),
        })?;
        self.complete = true;
        self.lock = None;
        disk.sync_dir(parent(path)).map_err(failed)?;
        Ok(std::mem::take(&mut self.figures))
    }
}

fn stream_failed(error: io::Error) -> Error {
    Error::new(SqlState::IO_ERROR, format!("cannot write to the stream: {error}"))
}

/// Keeps a dump that is made elsewhere: its text comes as it is.
#[derive(Debug)]
pub struct Keeper(Writer<'static>);

impl Keeper {
    /// Begins one at this path.
    ///
    /// # Errors
    /// Where there is something already, or nothing can be made.
    pub fn begin(disk: Arc<dyn Disk>, path: PathBuf, format: Format, mode: ModeRequest) -> Result<Self> {
        Writer::open(disk, Target::Path(path), format, mode).map(Keeper)
    }

    /// What comes from now on belongs to the file of this name.
    ///
    /// # Errors
    /// Of a name that no file of a dump has.
    pub fn begin_file(&mut self, name: &str) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte);
        let stem = name.strip_suffix(".csv").or(name.strip_suffix(".sql"));
        let is_known =
            name == MANIFEST || stem.is_some_and(|stem| !stem.is_empty() && stem.bytes().all(is_plain));
        if self.0.format != Format::Csv || !is_known {
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, format!("no dump has a file {name:?}")));
        }
        self.0.end_file()?;
        self.0.begin_file(name)
    }

    /// Some of its text.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.put_bytes(bytes)
    }

    /// All of it has come: makes it durable, and gives it its name. Its bytes.
    pub fn finish(mut self) -> Result<u64> {
        if self.0.format == Format::Csv {
            if self.0.files.last().and_then(|last| last.file_name()).is_none_or(|last| last != MANIFEST) {
                return Err(Error::new(SqlState::PROTOCOL_VIOLATION, "the dump has come without its end"));
            }
            self.0.end_file()?;
        }
        self.0.publish().map(|figures| figures.bytes)
    }
}

/// Removes what an earlier run has left there, of whichever format; refuses what it knows for anything else before it removes anything. `was_left`: so was its lock.
fn clear(disk: &dyn Disk, partial: &Path, was_left: bool) -> Result<()> {
    // What is no folder has no list.
    let Ok(names) = disk.list(partial) else {
        check_is_ours(disk, partial)?;
        return forget(remove_large(disk, partial));
    };
    check_folder_is_ours(disk, partial, &names, was_left)?;
    names.iter().try_for_each(|name| forget(remove_large(disk, &partial.join(name))))?;
    // Folders in it are not listed.
    disk.remove_dir(partial).map_err(failed)
}

/// Refuses a file that no dump has begun: of one that has, there is nothing yet, or its first line.
fn check_is_ours(disk: &dyn Disk, partial: &Path) -> Result<()> {
    if begins_as(disk, partial, &[FIRST_LINE])?.is_none_or(|begins| begins) {
        return Ok(());
    }
    let message = format!(
        "{partial:?}, as a dump is called until it is complete, is a file that no dump has made: move it away"
    );
    Err(Error::new(SqlState::DUPLICATE_OBJECT, message))
}

/// Refuses a folder that no dump has begun: of one that has, nothing is written yet, or its scripts or manifest begin as they do. Where there are
/// rows alone nothing tells but the lock beside it (`was_left`).
fn check_folder_is_ours(disk: &dyn Disk, partial: &Path, names: &[String], was_left: bool) -> Result<()> {
    let is_known = |name: &String| name == MANIFEST || name.ends_with(".csv") || name.ends_with(".sql");
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let message = format!("{partial:?} has something that no dump has made: {name:?}");
        return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
    }
    let mut is_ours = was_left;
    for name in [SCHEMA, INDEXES, MANIFEST].iter().filter(|name| names.iter().any(|there| there == *name)) {
        let begins = begins_as(disk, &partial.join(name), &[SETTINGS, WARNING, MANIFEST_BEGINS])?;
        if begins == Some(false) {
            is_ours = false;
            break;
        }
        is_ours |= begins == Some(true);
    }
    // Of none is known that there is anything in it.
    let is_empty = |name: &String| Ok(begins_as(disk, &partial.join(name), &[])?.is_none());
    if is_ours || names.iter().map(is_empty).collect::<Result<Vec<bool>>>()?.iter().all(|empty| *empty) {
        return Ok(());
    }
    let message = format!(
        "{partial:?}, as a dump is called until it is complete, is a folder that no dump has made: move it away"
    );
    Err(Error::new(SqlState::DUPLICATE_OBJECT, message))
}

/// Whether a file begins with one of these; `None` where it is empty, or not there.
fn begins_as(disk: &dyn Disk, path: &Path, beginnings: &[&str]) -> Result<Option<bool>> {
    // It may end anywhere, and is read past no cache: it goes at once.
    let file = match disk.open(path, &OpenOptions::read().mode(ModeRequest::Only(Mode::Buffered))) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let len = file.len().map_err(failed)?;
    if len == 0 {
        return Ok(None);
    }
    let longest = beginnings.iter().map(|beginning| beginning.len()).max().unwrap_or(0);
    let mut begin = vec![0; longest.min(usize::try_from(len).unwrap_or(longest))];
    file.read_at(Class::Maintenance, 0, &mut begin).map_err(failed)?;
    Ok(Some(beginnings.iter().any(|beginning| begin.starts_with(beginning.as_bytes()))))
}

/// What is not there need not be removed.
fn forget(removed: gannet_io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        self.output = None;
        // What cannot be removed keeps the name that says what it is.
        match &self.place {
            Place::Stream(_) | Place::Files(_) => {}
            Place::File { partial, .. } => drop(remove_large(&*self.disk, partial)),
            Place::Folder { partial, .. } => {
                for file in &self.files {
                    let _ = remove_large(&*self.disk, file);
                }
                let _ = self.disk.remove_dir(partial);
            }
        }
    }
}
