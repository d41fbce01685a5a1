//! Statements of administrators that run a job: BACKUP, CHECK, COMPACT, DUMP, STAT and SWEEP DATABASE. They are Gannet's own.

use super::Utility;
use super::reader::Reader;
use crate::Result;
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// BACKUP DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupDatabase {
    /// The folder it goes to, or its URL.
    pub folder: String,
    /// SINCE: the backup that it adds to; within, `None` for LATEST.
    pub since: Option<Option<String>>,
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
    /// The file or folder it goes to.
    pub path: String,
    /// CSV
    pub csv: bool,
    /// Not with DATA ONLY.
    pub schema: bool,
    /// Not with SCHEMA ONLY.
    pub data: bool,
    /// TABLE: these only; all, where there are none.
    pub tables: Vec<String>,
    /// JOBS
    pub jobs: Option<u32>,
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
    if reader.accept_words(&["stat", "database"]) {
        return stat_database(reader).map(Some);
    }
    if reader.accept_words(&["sweep", "database"]) {
        let show = reader.accept(K::SHOW);
        return Ok(Some(Utility::SweepDatabase { show, verbose: reader.accept(K::VERBOSE) }));
    }
    Ok(None)
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

/// `TO 'folder' [SINCE LATEST | SINCE 'name'] [COMPRESS [level]] [KEEP n [ARCHIVE ['folder']]] [STATISTICS] [VERBOSE]`
fn backup_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::TO)?;
    let folder = reader.string()?;
    let mut backup = BackupDatabase {
        folder,
        since: None,
        compress: None,
        keep: None,
        archive: None,
        statistics: false,
        verbose: false,
    };
    loop {
        if backup.since.is_none() && reader.accept_words(&["since"]) {
            let latest = reader.accept_words(&["latest"]);
            backup.since = Some(if latest { None } else { Some(reader.string()?) });
        } else if backup.compress.is_none() && reader.accept_words(&["compress"]) {
            backup.compress = Some(number(reader)?.unwrap_or(1));
        } else if backup.keep.is_none() && reader.accept_words(&["keep"]) {
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

/// `TO 'path' [CSV] [SCHEMA ONLY | DATA ONLY] [TABLE name [, ...]] [JOBS n] [VERBOSE]`
fn dump_database(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.expect(K::TO)?;
    let path = reader.string()?;
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
            dump.tables.push(reader.name()?);
            while reader.accept_token(&Token::Comma) {
                dump.tables.push(reader.name()?);
            }
        } else if dump.jobs.is_none() && reader.accept_words(&["jobs"]) {
            dump.jobs = Some(number(reader)?.filter(|jobs| *jobs > 0).ok_or_else(|| reader.unexpected())?);
        } else {
            dump.verbose = reader.accept(K::VERBOSE);
            return Ok(Utility::DumpDatabase(Box::new(dump)));
        }
    }
}

fn stat_database(reader: &mut Reader<'_>) -> Result<Utility> {
    let table = if reader.accept(K::TABLE) { Some(reader.relation()?) } else { None };
    let records = reader.accept_words(&["records"]);
    Ok(Utility::StatDatabase { table, records, verbose: reader.accept(K::VERBOSE) })
}
