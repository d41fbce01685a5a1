//! Statements of administrators that run a job: BACKUP, CHECK, COMPACT, DUMP, LOAD, RESTORE, STAT and SWEEP DATABASE, VERIFY. They are Gannet's own.

use super::Utility;
use super::copy::CopyRelation;
use super::reader::Reader;
use crate::{Error, Result, SqlState};
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// Threads of a dump or load, at most: as many as the command line takes.
const JOBS_MAX: u32 = 64;
/// What messages call a script that the client sends, where nobody says otherwise.
const STANDARD_INPUT: &str = "standard input";

/// Where a backup goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupTarget {
    /// A folder of the server, or a URL.
    Place(String),
    /// STDOUT: to the client, by the protocol of COPY.
    Client,
}

/// Which backup another one adds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupSince {
    /// SINCE LATEST
    Latest,
    /// SINCE 'name'
    Named(String),
    /// SINCE MANIFEST: what it says of itself, as one line; for who keeps it elsewhere.
    Manifest(String),
}

/// BACKUP DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupDatabase {
    /// Where it goes.
    pub target: BackupTarget,
    /// SINCE: the backup that it adds to.
    pub since: Option<BackupSince>,
    /// COMPRESS
    pub compress: Option<u32>,
    /// KEEP
    pub keep: Option<u32>,
    /// ARCHIVE: the archive from which log is removed that is not needed any more; within, `None` for the database's own.
    pub archive: Option<Option<String>>,
    /// STATISTICS: exact ones, by the same pass over the file.
    pub statistics: bool,
    /// VERBOSE
    pub verbose: bool,
}

/// DUMP DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpDatabase {
    /// The file or folder of the server that it goes to; `None`: to the client (STDOUT), by the protocol of COPY.
    pub path: Option<String>,
    /// CSV
    pub csv: bool,
    /// Not with DATA ONLY.
    pub schema: bool,
    /// Not with SCHEMA ONLY.
    pub data: bool,
    /// TABLE: these only; all, where there are none.
    pub tables: Vec<CopyRelation>,
    /// JOBS
    pub jobs: Option<u32>,
    /// VERBOSE
    pub verbose: bool,
}

/// What LOAD DATABASE loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// A file or folder of the server.
    Path(String),
    /// STDIN: a script that the client sends, by the protocol of COPY, and how messages call it.
    Stream(String),
    /// STDIN FILE: one that the client has, by its name there; it sends what it is asked for.
    File(String),
    /// STDIN FOLDER: the same of a folder.
    Folder(String),
}

/// LOAD DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadDatabase {
    /// Where it comes from.
    pub source: LoadSource,
    /// ON ERROR SKIP: bad rows and statements are left out; else they end it.
    pub skip: bool,
    /// JOBS
    pub jobs: Option<u32>,
    /// VERBOSE
    pub verbose: bool,
}

/// Up to where RESTORE DATABASE goes on with an archive's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreUntil {
    /// UNTIL TIME: as timestamps are read.
    Time(String),
    /// UNTIL LSN
    Lsn(u64),
    /// UNTIL POINT: one that was named.
    Point(String),
}

/// RESTORE DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreDatabase {
    /// FROM: a backup or a folder of the server, or a URL; or backups that add to each other in their order.
    pub places: Vec<String>,
    /// TO: the database file, which must not be there.
    pub path: String,
    /// ARCHIVE: with its log, up to there; within, `None` for its end.
    pub archive: Option<(String, Option<RestoreUntil>)>,
    /// VERBOSE
    pub verbose: bool,
}

/// What VERIFY is to prove, at places of the server: folders and files, or URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifySource {
    /// BACKUP: one, or those that add to each other in their order.
    Backup(Vec<String>),
    /// ARCHIVE: of the log.
    Archive(String),
}

/// VERIFY
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// BACKUP or ARCHIVE
    pub source: VerifySource,
    /// VERBOSE
    pub verbose: bool,
}

/// `None` where it is none of these.
pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Option<Utility>> {
    if reader.is_word(0, "check") {
        reader.skip(1);
        reader.expect(K::DATABASE)?;
        return Ok(Some(Utility::CheckDatabase { verbose: reader.accept(K::VERBOSE) }));
    }
    if reader.accept_words(&["backup", "database"]) {
        return backup_database(reader).map(Some);
    }
    if reader.accept_words(&["compact", "database"]) {
        return Ok(Some(Utility::CompactDatabase { verbose: reader.accept(K::VERBOSE) }));
    }
    if reader.accept_words(&["dump", "database"]) {
        return dump_database(reader).map(Some);
    }
    if reader.accept_words(&["load", "database"]) {
        return load_database(reader).map(Some);
    }
    if reader.accept_words(&["restore", "database"]) {
        return restore_database(reader).map(Some);
    }
    if reader.accept_words(&["stat", "database"]) {
        return stat_database(reader).map(Some);
    }
    if reader.accept_words(&["sweep", "database"]) {
        let show = reader.accept(K::SHOW);
        return Ok(Some(Utility::SweepDatabase { show, verbose: reader.accept(K::VERBOSE) }));
    }
    if reader.accept_words(&["verify", "backup"]) {
        let places = strings(reader)?;
        return Ok(Some(verify(reader, VerifySource::Backup(places))));
    }
    if reader.accept_words(&["verify", "archive"]) {
        let place = reader.string()?;
        return Ok(Some(verify(reader, VerifySource::Archive(place))));
    }
    Ok(None)
}

/// One or more, separated by commas.
fn strings(reader: &mut Reader<'_>) -> Result<Vec<String>> {
    let mut strings = vec![reader.string()?];
    while reader.accept_token(&Token::Comma) {
        strings.push(reader.string()?);
    }
    Ok(strings)
}

/// A number, where there is one.
fn number(reader: &mut Reader<'_>) -> Result<Option<u32>> {
    match reader.token(0) {
        Some(Token::Number(text, _)) => {
            let number = text.parse().map_err(|_| reader.unexpected())?;
            reader.skip(1);
            Ok(Some(number))
        }
        _ => Ok(None),
    }
}

/// The number behind JOBS.
fn threads(reader: &mut Reader<'_>) -> Result<u32> {
    let Some(Token::Number(text, _)) = reader.token(0) else { return Err(reader.unexpected()) };
    let jobs = text.parse().ok().filter(|jobs| (1..=JOBS_MAX).contains(jobs)).ok_or_else(|| {
        let message = format!("JOBS has to be a number from 1 to {JOBS_MAX}, not {text}");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
    })?;
    reader.skip(1);
    Ok(jobs)
}

/// `TO 'folder' [SINCE LATEST | SINCE 'name'] [COMPRESS [level]] [KEEP n [ARCHIVE ['folder']]] [STATISTICS] [VERBOSE]`, or
/// `TO STDOUT [SINCE MANIFEST 'line'] [COMPRESS [level]] [STATISTICS] [VERBOSE]`
fn backup_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::TO)?;
    let to_client = reader.accept_words(&["stdout"]);
    let target = if to_client { BackupTarget::Client } else { BackupTarget::Place(reader.string()?) };
    let mut backup = BackupDatabase {
        target,
        since: None,
        compress: None,
        keep: None,
        archive: None,
        statistics: false,
        verbose: false,
    };
    loop {
        if backup.since.is_none() && reader.accept_words(&["since"]) {
            backup.since = Some(if to_client {
                match reader.accept_words(&["manifest"]) {
                    true => BackupSince::Manifest(reader.string()?),
                    false => return Err(reader.unexpected()),
                }
            } else if reader.accept_words(&["latest"]) {
                BackupSince::Latest
            } else {
                BackupSince::Named(reader.string()?)
            });
        } else if backup.compress.is_none() && reader.accept_words(&["compress"]) {
            backup.compress = Some(number(reader)?.unwrap_or(1));
        } else if !to_client && backup.keep.is_none() && reader.accept_words(&["keep"]) {
            backup.keep = Some(number(reader)?.ok_or_else(|| reader.unexpected())?);
        } else if backup.keep.is_some() && backup.archive.is_none() && reader.accept_words(&["archive"]) {
            let is_named = matches!(reader.token(0), Some(Token::SingleQuotedString(_)));
            backup.archive = Some(if is_named { Some(reader.string()?) } else { None });
        } else if !backup.statistics && reader.accept_words(&["statistics"]) {
            backup.statistics = true;
        } else {
            backup.verbose = reader.accept(K::VERBOSE);
            return Ok(Utility::BackupDatabase(Box::new(backup)));
        }
    }
}

/// `TO {'path' | STDOUT} [CSV] [SCHEMA ONLY | DATA ONLY] [TABLE name [, ...]] [JOBS n] [VERBOSE]`
fn dump_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::TO)?;
    let path = if reader.accept_words(&["stdout"]) { None } else { Some(reader.string()?) };
    let (tables, jobs, verbose) = (Vec::new(), None, false);
    let mut dump = DumpDatabase { path, csv: false, schema: true, data: true, tables, jobs, verbose };
    loop {
        if !dump.csv && reader.accept_words(&["csv"]) {
            dump.csv = true;
        } else if dump.schema && dump.data && reader.accept_words(&["schema", "only"]) {
            dump.data = false;
        } else if dump.schema && dump.data && reader.accept_words(&["data", "only"]) {
            dump.schema = false;
        } else if dump.tables.is_empty() && reader.accept(K::TABLE) {
            dump.tables.push(reader.relation()?);
            while reader.accept_token(&Token::Comma) {
                dump.tables.push(reader.relation()?);
            }
        } else if dump.jobs.is_none() && reader.accept_words(&["jobs"]) {
            dump.jobs = Some(threads(reader)?);
        } else {
            dump.verbose = reader.accept(K::VERBOSE);
            return Ok(Utility::DumpDatabase(Box::new(dump)));
        }
    }
}

/// `FROM {'path' | STDIN [STREAM 'name' | FILE 'name' | FOLDER 'name']} [ON ERROR {STOP | SKIP}] [JOBS n] [VERBOSE]`
fn load_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::FROM)?;
    let source = if !reader.accept_words(&["stdin"]) {
        LoadSource::Path(reader.string()?)
    } else if reader.accept_words(&["file"]) {
        LoadSource::File(reader.string()?)
    } else if reader.accept_words(&["folder"]) {
        LoadSource::Folder(reader.string()?)
    } else if reader.accept_words(&["stream"]) {
        LoadSource::Stream(reader.string()?)
    } else {
        LoadSource::Stream(STANDARD_INPUT.to_owned())
    };
    let (mut on_error, mut jobs) = (None, None);
    loop {
        if on_error.is_none() && reader.accept_words(&["on", "error", "skip"]) {
            on_error = Some(true);
        } else if on_error.is_none() && reader.accept_words(&["on", "error", "stop"]) {
            on_error = Some(false);
        } else if jobs.is_none() && reader.accept_words(&["jobs"]) {
            jobs = Some(threads(reader)?);
        } else {
            let (skip, verbose) = (on_error == Some(true), reader.accept(K::VERBOSE));
            return Ok(Utility::LoadDatabase(LoadDatabase { source, skip, jobs, verbose }));
        }
    }
}

/// `FROM 'place' [, ...] TO 'file' [ARCHIVE 'folder' [UNTIL {TIME 'time' | LSN n | POINT 'name'}]] [VERBOSE]`
fn restore_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::FROM)?;
    let places = strings(reader)?;
    reader.expect(K::TO)?;
    let path = reader.string()?;
    let mut archive = None;
    if reader.accept_words(&["archive"]) {
        let folder = reader.string()?;
        let until = if reader.accept_words(&["until"]) { Some(until(reader)?) } else { None };
        archive = Some((folder, until));
    }
    let verbose = reader.accept(K::VERBOSE);
    Ok(Utility::RestoreDatabase(Box::new(RestoreDatabase { places, path, archive, verbose })))
}

fn until(reader: &mut Reader<'_>) -> Result<RestoreUntil> {
    if reader.accept_words(&["time"]) {
        return Ok(RestoreUntil::Time(reader.string()?));
    }
    if reader.accept_words(&["point"]) {
        return Ok(RestoreUntil::Point(reader.string()?));
    }
    if !reader.accept_words(&["lsn"]) {
        return Err(reader.unexpected());
    }
    let Some(Token::Number(text, _)) = reader.token(0) else { return Err(reader.unexpected()) };
    let lsn = text.parse().map_err(|_| reader.unexpected())?;
    reader.skip(1);
    Ok(RestoreUntil::Lsn(lsn))
}

fn stat_database(reader: &mut Reader<'_>) -> Result<Utility> {
    let table = if reader.accept(K::TABLE) { Some(reader.relation()?) } else { None };
    let records = reader.accept_words(&["records"]);
    Ok(Utility::StatDatabase { table, records, verbose: reader.accept(K::VERBOSE) })
}

fn verify(reader: &mut Reader<'_>, source: VerifySource) -> Utility {
    Utility::Verify(Verify { source, verbose: reader.accept(K::VERBOSE) })
}
