//! Statements that neither define nor query anything: transactions, settings, COPY, EXPLAIN, roles and the like. They have a
//! parser of their own, since clients send more of them than `sqlparser` reads.

mod copy;
mod jobs;
mod reader;
mod role;
mod sequence;

use super::parse::{Source, parse_inner, with_parser};
use super::{Parsed, bind_type};
use crate::types::{Modifier, Type};
use crate::{Error, Result, SqlState};
pub use copy::{Copy, CopyOption, CopyRelation, CopyTarget, CopyValue};
pub use jobs::{
    BackupDatabase, BackupSince, BackupTarget, DumpDatabase, LoadDatabase, LoadSource, RestoreDatabase,
    RestoreUntil, Verify, VerifySource,
};
use reader::Reader;
pub use role::RoleOptions;
pub(crate) use sequence::identity_options;
pub use sequence::{AlterSequence, SequenceOptions};
use sqlparser::ast;
use sqlparser::keywords::Keyword as K;
use sqlparser::tokenizer::Token;

/// A statement that is no query and no definition.
#[derive(Clone, Debug)]
pub enum Utility {
    /// BEGIN, START TRANSACTION
    Begin(TransactionModes),
    /// COMMIT, END
    Commit {
        /// AND CHAIN
        chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN
        chain: bool,
    },
    /// SAVEPOINT
    Savepoint(String),
    /// RELEASE
    Release(String),
    /// ROLLBACK TO
    RollbackTo(String),
    /// SET TRANSACTION, or with `session` SET SESSION CHARACTERISTICS AS TRANSACTION
    SetTransaction {
        /// The modes.
        modes: TransactionModes,
        /// For the transactions to come.
        session: bool,
    },
    /// SET
    Set {
        /// The setting, in lower case.
        name: String,
        /// Its values, several where a list was given; `None`: DEFAULT.
        values: Option<Vec<String>>,
        /// LOCAL
        local: bool,
    },
    /// RESET; without a name ALL
    Reset(Option<String>),
    /// SHOW; without a name ALL
    Show(Option<String>),
    /// DISCARD
    Discard(Discard),
    /// EXPLAIN
    Explain {
        /// How.
        options: ExplainOptions,
        /// What.
        statement: Box<Parsed>,
    },
    /// COPY
    Copy(Box<Copy>),
    /// VACUUM
    Vacuum(Maintenance),
    /// ANALYZE
    Analyze(Maintenance),
    /// CHECKPOINT
    Checkpoint,
    /// BACKUP DATABASE
    BackupDatabase(Box<BackupDatabase>),
    /// CHECK DATABASE
    CheckDatabase {
        /// VERBOSE
        verbose: bool,
    },
    /// COMPACT DATABASE
    CompactDatabase {
        /// VERBOSE
        verbose: bool,
    },
    /// DUMP DATABASE
    DumpDatabase(Box<DumpDatabase>),
    /// LOAD DATABASE
    LoadDatabase(LoadDatabase),
    /// RESTORE DATABASE
    RestoreDatabase(Box<RestoreDatabase>),
    /// STAT DATABASE
    StatDatabase {
        /// TABLE
        table: Option<CopyRelation>,
        /// RECORDS
        records: bool,
        /// VERBOSE
        verbose: bool,
    },
    /// SWEEP DATABASE
    SweepDatabase {
        /// SHOW: nothing is removed.
        show: bool,
        /// VERBOSE
        verbose: bool,
    },
    /// VERIFY
    Verify(Verify),
    /// PREPARE
    Prepare {
        /// The name.
        name: String,
        /// Types of parameters, as far as given.
        types: Vec<Type>,
        /// What is prepared.
        statement: Box<Parsed>,
    },
    /// EXECUTE
    Execute {
        /// The name.
        name: String,
        /// The parameters; see [`super::bind_argument`].
        arguments: Vec<ast::Expr>,
    },
    /// DEALLOCATE; without a name ALL
    Deallocate(Option<String>),
    /// CLOSE ALL
    CloseAll,
    /// UNLISTEN, where nobody listens
    Unlisten,
    /// SET or RESET of the role, by this tag, to the one that has connected: it is that anyway.
    OwnRole(&'static str),
    /// CREATE ROLE, CREATE USER
    CreateRole {
        /// The name.
        name: String,
        /// What is said of it. CREATE USER says LOGIN.
        options: RoleOptions,
    },
    /// ALTER ROLE, ALTER USER
    AlterRole {
        /// The name.
        name: String,
        /// What is said of it.
        options: RoleOptions,
    },
    /// DROP ROLE, DROP USER
    DropRole {
        /// The names.
        names: Vec<String>,
        /// IF EXISTS
        if_exists: bool,
    },
    /// CREATE SEQUENCE
    CreateSequence {
        /// The name.
        name: CopyRelation,
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// How it counts.
        options: Box<SequenceOptions>,
    },
    /// ALTER SEQUENCE
    AlterSequence {
        /// The name.
        name: CopyRelation,
        /// IF EXISTS
        if_exists: bool,
        /// What is changed.
        action: AlterSequence,
    },
    /// Valid SQL that is not implemented, by name: an error when it is run.
    Unsupported(String),
}

/// Modes of a transaction; `None` where nothing was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// ISOLATION LEVEL
    pub isolation: Option<Isolation>,
    /// READ ONLY; READ WRITE is false
    pub read_only: Option<bool>,
    /// DEFERRABLE
    pub deferrable: Option<bool>,
}

/// Isolation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// READ UNCOMMITTED, which is READ COMMITTED
    ReadUncommitted,
    /// READ COMMITTED
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

impl Isolation {
    /// As settings name it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

/// What DISCARD forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// ALL
    All,
    /// PLANS
    Plans,
    /// SEQUENCES
    Sequences,
    /// TEMP
    Temporary,
}

/// Options of EXPLAIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainOptions {
    /// ANALYZE
    pub analyze: bool,
    /// VERBOSE
    pub verbose: bool,
    /// BUFFERS; `None`: not said.
    pub buffers: Option<bool>,
    /// COSTS
    pub costs: bool,
    /// TIMING; `None`: not said.
    pub timing: Option<bool>,
    /// SUMMARY; `None`: not said.
    pub summary: Option<bool>,
    /// FORMAT
    pub format: ExplainFormat,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        ExplainOptions {
            analyze: false,
            verbose: false,
            buffers: None,
            costs: true,
            timing: None,
            summary: None,
            format: ExplainFormat::Text,
        }
    }
}

/// How EXPLAIN shows a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainFormat {
    /// TEXT
    Text,
    /// JSON
    Json,
}

/// VACUUM or ANALYZE
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the options users know")]
pub struct Maintenance {
    /// VACUUM with ANALYZE
    pub analyze: bool,
    /// VERBOSE
    pub verbose: bool,
    /// FULL
    pub full: bool,
    /// FREEZE
    pub freeze: bool,
    /// Options that have no effect, as they say how another server is to go about it.
    pub passed_over: Vec<String>,
    /// The tables with their columns; none: all.
    pub tables: Vec<(CopyRelation, Vec<String>)>,
}

/// Parses the statement if it is one of these.
pub(super) fn parse(source: Source<'_>) -> Result<Option<Utility>> {
    let mut reader = Reader::new(source);
    let utility = match reader.keyword(0) {
        K::BEGIN => begin(&mut reader, 1)?,
        K::START => {
            reader.skip(1);
            reader.expect(K::TRANSACTION)?;
            begin(&mut reader, 0)?
        }
        K::COMMIT | K::END => {
            if reader.is_word(1, "prepared") {
                return unsupported("COMMIT PREPARED");
            }
            reader.skip(1);
            Utility::Commit { chain: chain(&mut reader)? }
        }
        K::ROLLBACK | K::ABORT => rollback(&mut reader)?,
        K::SAVEPOINT => {
            reader.skip(1);
            Utility::Savepoint(reader.name()?)
        }
        K::RELEASE => {
            reader.skip(1);
            reader.accept(K::SAVEPOINT);
            Utility::Release(reader.name()?)
        }
        K::SET => set(&mut reader)?,
        K::RESET => {
            reader.skip(1);
            match reader.accept(K::ALL) {
                true => Utility::Reset(None),
                false => match setting_name(&mut reader)? {
                    name if matches!(&*name, "role" | "session_authorization") => Utility::OwnRole("RESET"),
                    name => Utility::Reset(Some(name)),
                },
            }
        }
        K::SHOW => {
            reader.skip(1);
            Utility::Show(if reader.accept(K::ALL) { None } else { Some(setting_name(&mut reader)?) })
        }
        K::DISCARD => discard(&mut reader)?,
        K::EXPLAIN => return explain(&mut reader).map(Some),
        // EXPLAIN in other dialects.
        K::DESC | K::DESCRIBE => return Err(source.unexpected(0)),
        K::COPY => return copy::parse(&mut reader).map(|copy| Some(Utility::Copy(Box::new(copy)))),
        K::VACUUM => maintenance(&mut reader).map(Utility::Vacuum)?,
        K::ANALYZE => maintenance(&mut reader).map(Utility::Analyze)?,
        K::PREPARE if reader.keyword(1) == K::TRANSACTION => return unsupported("PREPARE TRANSACTION"),
        K::PREPARE => return prepare(&mut reader).map(Some),
        K::EXECUTE => return execute(&mut reader).map(Some),
        K::DEALLOCATE => {
            reader.skip(1);
            reader.accept(K::PREPARE);
            Utility::Deallocate(if reader.accept(K::ALL) { None } else { Some(reader.name()?) })
        }
        K::CLOSE if reader.keyword(1) == K::ALL => {
            reader.skip(2);
            Utility::CloseAll
        }
        K::UNLISTEN => {
            reader.skip(1);
            if !reader.accept_token(&Token::Mul) {
                reader.name()?;
            }
            Utility::Unlisten
        }
        K::CREATE | K::ALTER | K::DROP if matches!(reader.keyword(1), K::ROLE | K::USER | K::GROUP) => {
            role::parse(&mut reader)?
        }
        K::CREATE | K::ALTER
            if reader.is_word(1, "sequence")
                || matches!(reader.keyword(1), K::TEMP | K::TEMPORARY) && reader.is_word(2, "sequence") =>
        {
            sequence::parse(&mut reader)?
        }
        first => match (jobs::parse(&mut reader)?, other(&reader, first)) {
            (Some(job), _) => job,
            (None, Some(name)) => return Ok(Some(Utility::Unsupported(name))),
            (None, None) if reader.is_word(0, "checkpoint") => {
                reader.skip(1);
                Utility::Checkpoint
            }
            (None, None) => return Ok(None),
        },
    };
    reader.end()?;
    Ok(Some(utility))
}

fn unsupported(name: &str) -> Result<Option<Utility>> {
    Ok(Some(Utility::Unsupported(name.to_owned())))
}

/// Statements of PostgreSQL's that are not implemented.
fn other(reader: &Reader<'_>, first: K) -> Option<String> {
    const WORDS: [&str; 15] = [
        "DECLARE", "FETCH", "MOVE", "CLOSE", "LISTEN", "NOTIFY", "LOCK", "GRANT", "REVOKE", "COMMENT", "DO",
        "CALL", "REINDEX", "CLUSTER", "MERGE",
    ];
    const MORE: [&str; 4] = ["REFRESH", "REASSIGN", "SECURITY", "LOAD"];
    if let Some(word) = WORDS.iter().chain(&MORE).find(|word| reader.is_word(0, word)) {
        return Some((*word).to_owned());
    }
    if !matches!(first, K::CREATE | K::ALTER | K::DROP) {
        return None;
    }
    // Kinds of objects that there are none of.
    const KINDS: [&str; 24] = [
        "VIEW",
        "MATERIALIZED",
        "FUNCTION",
        "PROCEDURE",
        "TRIGGER",
        "EXTENSION",
        "TYPE",
        "DOMAIN",
        "AGGREGATE",
        "OPERATOR",
        "RULE",
        "POLICY",
        "PUBLICATION",
        "SUBSCRIPTION",
        "TABLESPACE",
        "COLLATION",
        "CONVERSION",
        "SERVER",
        "FOREIGN",
        "EVENT",
        "CAST",
        "LANGUAGE",
        "STATISTICS",
        "TEXT",
    ];
    let mut at = 1;
    while ["OR", "REPLACE", "TEMP", "TEMPORARY", "RECURSIVE", "TRUSTED", "PROCEDURAL", "CONSTRAINT"]
        .iter()
        .any(|word| reader.is_word(at, word))
    {
        at += 1;
    }
    let kind = KINDS
        .iter()
        .chain(&["SYSTEM", "DATABASE", "ROUTINE", "OWNED", "LARGE", "TRANSFORM", "ACCESS"])
        .find(|word| reader.is_word(at, word))?;
    if first == K::DROP && matches!(*kind, "VIEW" | "MATERIALIZED" | "TYPE" | "COLLATION") {
        // That there is none is for the definition statement to say: scripts drop what may be there.
        return None;
    }
    let kind = match *kind {
        "MATERIALIZED" => "MATERIALIZED VIEW",
        "EVENT" => "EVENT TRIGGER",
        "TEXT" => "TEXT SEARCH",
        "LARGE" => "LARGE OBJECT",
        kind => kind,
    };
    Some(format!("{first:?} {kind}"))
}

fn begin(reader: &mut Reader<'_>, skip: usize) -> Result<Utility> {
    reader.skip(skip);
    if skip > 0 && !reader.accept(K::WORK) {
        reader.accept(K::TRANSACTION);
    }
    transaction_modes(reader).map(Utility::Begin)
}

fn transaction_modes(reader: &mut Reader<'_>) -> Result<TransactionModes> {
    let mut modes = TransactionModes::default();
    while !reader.at_end() {
        if reader.accept(K::ISOLATION) {
            reader.expect(K::LEVEL)?;
            modes.isolation = Some(isolation(reader)?);
        } else if reader.accept(K::READ) {
            modes.read_only = Some(if reader.accept(K::ONLY) {
                true
            } else {
                reader.expect(K::WRITE)?;
                false
            });
        } else if reader.accept(K::NOT) {
            reader.expect(K::DEFERRABLE)?;
            modes.deferrable = Some(false);
        } else {
            reader.expect(K::DEFERRABLE)?;
            modes.deferrable = Some(true);
        }
        reader.accept_token(&Token::Comma);
    }
    Ok(modes)
}

fn isolation(reader: &mut Reader<'_>) -> Result<Isolation> {
    if reader.accept(K::SERIALIZABLE) {
        return Ok(Isolation::Serializable);
    }
    if reader.accept(K::REPEATABLE) {
        reader.expect(K::READ)?;
        return Ok(Isolation::RepeatableRead);
    }
    reader.expect(K::READ)?;
    if reader.accept(K::COMMITTED) {
        return Ok(Isolation::ReadCommitted);
    }
    reader.expect(K::UNCOMMITTED)?;
    Ok(Isolation::ReadUncommitted)
}

fn chain(reader: &mut Reader<'_>) -> Result<bool> {
    if !reader.accept(K::WORK) {
        reader.accept(K::TRANSACTION);
    }
    if !reader.accept(K::AND) {
        return Ok(false);
    }
    let chain = !reader.accept(K::NO);
    reader.expect(K::CHAIN)?;
    Ok(chain)
}

fn rollback(reader: &mut Reader<'_>) -> Result<Utility> {
    if reader.is_word(1, "prepared") {
        return Ok(Utility::Unsupported("ROLLBACK PREPARED".to_owned()));
    }
    let rollback = reader.keyword(0) == K::ROLLBACK;
    reader.skip(1);
    let chain = chain(reader)?;
    if rollback && !chain && reader.accept(K::TO) {
        reader.accept(K::SAVEPOINT);
        return Ok(Utility::RollbackTo(reader.name()?));
    }
    Ok(Utility::Rollback { chain })
}

/// The name of a setting, also where it is written in words.
fn setting_name(reader: &mut Reader<'_>) -> Result<String> {
    if reader.accept_words(&["time", "zone"]) {
        return Ok("timezone".to_owned());
    }
    if reader.accept_words(&["transaction", "isolation", "level"]) {
        return Ok("transaction_isolation".to_owned());
    }
    if reader.accept_words(&["session", "authorization"]) {
        return Ok("session_authorization".to_owned());
    }
    let mut name = reader.name()?;
    while reader.accept_token(&Token::Period) {
        name.push('.');
        name.push_str(&reader.name()?);
    }
    Ok(name.to_lowercase())
}

fn set(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.skip(1);
    if reader.accept(K::TRANSACTION) {
        if reader.is_word(0, "snapshot") {
            return reader.unsupported_to_end("SET TRANSACTION SNAPSHOT");
        }
        return Ok(Utility::SetTransaction { modes: transaction_modes(reader)?, session: false });
    }
    if reader.accept_words(&["session", "characteristics", "as", "transaction"]) {
        return Ok(Utility::SetTransaction { modes: transaction_modes(reader)?, session: true });
    }
    if reader.is_word(0, "constraints") {
        return reader.unsupported_to_end("SET CONSTRAINTS");
    }
    let local = reader.accept(K::LOCAL);
    // "session" may be the name of a setting's first word, too.
    if !local && reader.keyword(0) == K::SESSION && reader.keyword(1) != K::AUTHORIZATION {
        reader.skip(1);
    }
    if reader.accept_words(&["session", "authorization", "default"]) || reader.accept_words(&["role", "none"])
    {
        return Ok(Utility::OwnRole("SET"));
    }
    for words in [["session", "authorization"], ["xml", "option"]] {
        if reader.is_words(&words) {
            return reader.unsupported_to_end(&format!("SET {}", words.join(" ").to_uppercase()));
        }
    }
    if reader.accept_words(&["time", "zone"]) {
        let name = "timezone".to_owned();
        if reader.accept(K::LOCAL) || reader.accept(K::DEFAULT) {
            return Ok(Utility::Set { name, values: None, local });
        }
        if reader.keyword(0) == K::INTERVAL {
            reader.skip(1);
            let text = reader.string()?;
            reader.accept_words(&["hour", "to", "minute"]);
            let hours = zone_hours(&text).ok_or_else(|| {
                let message = format!("invalid value for parameter \"TimeZone\": interval \"{text}\"");
                Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .detail("Only hours and minutes such as '+02:00' are implemented.")
            })?;
            return Ok(Utility::Set { name, values: Some(vec![hours]), local });
        }
        return Ok(Utility::Set { name, values: Some(vec![reader.setting_value()?]), local });
    }
    for (word, name) in [("names", "client_encoding"), ("role", "role"), ("schema", "search_path")] {
        if reader.is_word(0, word)
            && !matches!(reader.token(1), Some(Token::Eq))
            && reader.keyword(1) != K::TO
        {
            reader.skip(1);
            let values = if reader.at_end() || reader.accept(K::DEFAULT) {
                None
            } else {
                Some(vec![reader.setting_value()?])
            };
            return Ok(Utility::Set { name: name.to_owned(), values, local });
        }
    }
    let name = setting_name(reader)?;
    if !reader.accept_token(&Token::Eq) {
        reader.expect(K::TO)?;
    }
    if reader.accept(K::DEFAULT) {
        return Ok(Utility::Set { name, values: None, local });
    }
    let mut values = vec![reader.setting_value()?];
    while reader.accept_token(&Token::Comma) {
        values.push(reader.setting_value()?);
    }
    Ok(Utility::Set { name, values: Some(values), local })
}

/// `[+-]hh[:mm]`, east of Greenwich, as a number of hours, which is what a time zone may be.
fn zone_hours(text: &str) -> Option<String> {
    let text = text.trim();
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
    let number = |digits: &str| {
        let plain = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| plain)
    };
    let (hours, minutes) = (number(hours)?, number(minutes).filter(|minutes| *minutes < 60)?);
    Some(format!("{sign}{}", f64::from(hours * 60 + minutes) / 60.0))
}

fn discard(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.skip(1);
    let what = if reader.accept(K::ALL) {
        Discard::All
    } else if reader.accept_words(&["plans"]) {
        Discard::Plans
    } else if reader.accept_words(&["sequences"]) {
        Discard::Sequences
    } else if reader.accept(K::TEMP) || reader.accept(K::TEMPORARY) {
        Discard::Temporary
    } else {
        return Err(reader.unexpected());
    };
    Ok(Utility::Discard(what))
}

fn explain(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.skip(1);
    let mut options = ExplainOptions::default();
    // A parenthesis may also begin the query.
    let list = reader.token(0) == Some(&Token::LParen)
        && !matches!(reader.keyword(1), K::SELECT | K::VALUES | K::WITH | K::TABLE)
        && reader.token(1) != Some(&Token::LParen);
    if list {
        reader.skip(1);
        loop {
            explain_option(reader, &mut options)?;
            if !reader.accept_token(&Token::Comma) {
                break;
            }
        }
        reader.expect_token(&Token::RParen)?;
    } else {
        options.analyze = reader.accept(K::ANALYZE);
        options.verbose = reader.accept(K::VERBOSE);
    }
    let statement = parse_inner(reader.rest())?;
    Ok(Utility::Explain { options, statement: Box::new(statement) })
}

fn explain_option(reader: &mut Reader<'_>, options: &mut ExplainOptions) -> Result<()> {
    let position = reader.position();
    let name = reader.name()?;
    if name == "format" {
        let format = reader.setting_value()?.to_lowercase();
        options.format = match format.as_str() {
            "text" => ExplainFormat::Text,
            "json" => ExplainFormat::Json,
            "xml" | "yaml" => {
                return Err(Error::unsupported(format!("EXPLAIN FORMAT {}", format.to_uppercase())));
            }
            _ => {
                let message = format!("unrecognized value for EXPLAIN option \"format\": \"{format}\"");
                return Err(Error::new(crate::SqlState::INVALID_PARAMETER_VALUE, message).at(position));
            }
        };
        return Ok(());
    }
    let value = reader.boolean_option(&name)?;
    match name.as_str() {
        "analyze" => options.analyze = value,
        "verbose" => options.verbose = value,
        "buffers" => options.buffers = Some(value),
        "costs" => options.costs = value,
        "timing" => options.timing = Some(value),
        "summary" => options.summary = Some(value),
        "wal" | "generic_plan" | "settings" if !value => {}
        "wal" | "settings" => {
            return Err(Error::unsupported(format!("EXPLAIN option {}", name.to_uppercase())));
        }
        _ => {
            let message = format!("unrecognized EXPLAIN option \"{name}\"");
            return Err(Error::new(crate::SqlState::SYNTAX_ERROR, message).at(position));
        }
    }
    Ok(())
}

fn maintenance(reader: &mut Reader<'_>) -> Result<Maintenance> {
    let mut options = Maintenance::default();
    let vacuum = reader.keyword(0) == K::VACUUM;
    reader.skip(1);
    if reader.accept_token(&Token::LParen) {
        loop {
            let position = reader.position();
            let name = reader.name()?;
            match name.as_str() {
                "verbose" => options.verbose = reader.boolean_option(&name)?,
                "analyze" if vacuum => options.analyze = reader.boolean_option(&name)?,
                "full" if vacuum => options.full = reader.boolean_option(&name)?,
                "freeze" if vacuum => options.freeze = reader.boolean_option(&name)?,
                // How the work is done is the store's business.
                "skip_locked" if !reader.boolean_option(&name)? => {}
                "skip_locked" => options.passed_over.push(name.to_uppercase()),
                "disable_page_skipping" | "process_toast" | "truncate" | "index_cleanup" | "parallel"
                    if vacuum =>
                {
                    drop(reader.option_value()?);
                    options.passed_over.push(name.to_uppercase());
                }
                _ => {
                    let command = if vacuum { "VACUUM" } else { "ANALYZE" };
                    let message = format!("unrecognized {command} option \"{name}\"");
                    return Err(Error::new(crate::SqlState::SYNTAX_ERROR, message).at(position));
                }
            }
            if !reader.accept_token(&Token::Comma) {
                break;
            }
        }
        reader.expect_token(&Token::RParen)?;
    } else {
        options.full = vacuum && reader.accept(K::FULL);
        options.freeze = vacuum && reader.accept(K::FREEZE);
        options.verbose = reader.accept(K::VERBOSE);
        options.analyze = vacuum && reader.accept(K::ANALYZE);
    }
    if vacuum && options.verbose && !options.analyze {
        options.passed_over.push("VERBOSE".to_owned());
    }
    if reader.at_end() {
        return Ok(options);
    }
    loop {
        let relation = reader.relation()?;
        let columns = reader.optional_names()?;
        options.tables.push((relation, columns));
        if !reader.accept_token(&Token::Comma) {
            return Ok(options);
        }
    }
}

fn prepare(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.skip(1);
    let name = reader.name()?;
    let mut types = Vec::new();
    if reader.token(0) == Some(&Token::LParen) {
        let end = reader.closing()?;
        reader.skip(1);
        let list = reader.take_until(end);
        let parsed =
            with_parser(list, |parser| parser.parse_comma_separated(|parser| parser.parse_data_type()))?;
        for data_type in parsed {
            let (ty, _): (Type, Modifier) = bind_type(&data_type)?;
            types.push(ty);
        }
        reader.expect_token(&Token::RParen)?;
    }
    reader.expect(K::AS)?;
    Ok(Utility::Prepare { name, types, statement: Box::new(parse_inner(reader.rest())?) })
}

fn execute(reader: &mut Reader<'_>) -> Result<Utility> {
    reader.skip(1);
    let name = reader.name()?;
    let mut arguments = Vec::new();
    if reader.token(0) == Some(&Token::LParen) {
        let end = reader.closing()?;
        reader.skip(1);
        let list = reader.take_until(end);
        arguments = with_parser(list, |parser| parser.parse_comma_separated(|parser| parser.parse_expr()))?;
        reader.expect_token(&Token::RParen)?;
    }
    reader.end()?;
    Ok(Utility::Execute { name, arguments })
}
