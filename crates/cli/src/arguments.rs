//! The command line: every flag with its meaning, default and range in one place.

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use gannet_base::units;
use gannet_io::{Mode, ModeRequest};
use gannet_store::{OpenOptions, RecoveryTarget};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With the commit that it was built from: see `build.rs`.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_FROM"), ")");
const UNITS: &str = "Sizes are bytes with units (512MiB), durations human (10s).";

/// A database for data larger than memory.
#[derive(Parser, Debug)]
#[command(name = "gannet", version = VERSION, after_help = UNITS, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut arguments =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut Self::command()))?;
        let Some((_, given)) = matches.subcommand() else { return Ok(arguments) };
        let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
        match &mut arguments.command {
            Command::Doctor(doctor) => doctor.is_io_given = is_given("io"),
            Command::Sql(sql) => {
                let of_files = [
                    ("memory", "--memory"),
                    ("io", "--io"),
                    ("wal_limit", "--wal-limit"),
                    ("archive_to", "--archive-to"),
                ];
                sql.given_for_a_file =
                    of_files.iter().find(|(id, _)| is_given(id)).map(|(_, option)| *option);
            }
            _ => {}
        }
        Ok(arguments)
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Copy a database, or what has changed in it, while everybody works
    Backup(Backup),
    /// Whether a database is sound: every page, every reference, every index
    Check(Check),
    /// Give space back to the file system while everybody works
    Compact(Compact),
    /// A first look: create a database, load TPC-C data, run transactions on it, show the figures
    Demo(Demo),
    /// What this machine gives a database: I/O mode, device, memory; what the OS caches of a database's files
    Doctor(Doctor),
    /// Write a database out as text: SQL that PostgreSQL reads, or csv
    Dump(Dump),
    /// Read and change a database as a map from keys to values
    Kv(Kv),
    /// Reproduce published experiments on this machine, against rivals: `gannet lab --help`
    #[command(disable_help_flag = true)]
    Lab(Lab),
    /// Read a dump: ours, SQL or csv, or one of pg_dump
    Load(Load),
    /// Make a database from backups
    Restore(Restore),
    /// Run SQL: at a prompt, from a script, from the command line
    Sql(Sql),
    /// Serve databases over PostgreSQL's protocol
    Serve(Serve),
    /// What a database holds: header, transactions, tables, indexes; pages, rows, versions, garbage, fill, order
    Stat(Stat),
    /// Remove what nobody can see any more; show what garbage there is, who holds it back, and what removing it costs
    Sweep(Sweep),
    /// Find the settings with which a database serves a load best, and why: `gannet tune --help`
    #[command(disable_help_flag = true)]
    Tune(Lab),
    /// Prove backups without restoring them
    Verify(Verify),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// How this process opens a file.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The one memory number, for a file that this process opens
    #[arg(long, value_name = "SIZE", env = "GANNET_MEMORY", default_value = "256MiB", value_parser = size)]
    pub(crate) memory: u64,
    /// The I/O mode to ask for: auto, direct, uncached or buffered
    #[arg(long, value_name = "MODE", env = "GANNET_IO", default_value = "auto", value_parser = io_mode)]
    pub(crate) io: ModeRequest,
}

/// What becomes of the log of a database that this process opens.
#[derive(Args, Clone, Debug)]
pub(crate) struct OwnLog {
    /// How much log a restart may have to go through, for a file that this process opens
    #[arg(long, global = true, value_name = "SIZE", env = "GANNET_WAL_LIMIT", default_value = "1GiB", value_parser = size)]
    pub(crate) wal_limit: u64,
    /// Where its log is archived, each database in a folder of its own name there, as `serve --archive` has it; one that was never archived
    /// begins to be [default: nowhere]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) archive_to: Option<PathBuf>,
}

impl OwnLog {
    /// How a database file is opened then.
    pub(crate) fn opening(&self, path: &Path, mode: ModeRequest) -> OpenOptions {
        let archive = self.archive_to.as_deref().filter(|folder| !folder.as_os_str().is_empty());
        let archive = archive.and_then(|folder| gannet_server::archive_of(folder, path));
        OpenOptions { wal_limit: self.wal_limit, mode, archive, ..OpenOptions::default() }
    }
}

/// How others are heeded.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Pacing {
    /// How long others' requests to the device may take on average meanwhile, where a server does the work, for superusers; 0s: as the
    /// server was started with
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) job_latency_target: Option<Duration>,
    /// auto: the work gives way to others; full: it goes as fast as it can, whoever waits for it (where a server does it, for superusers)
    /// [default: auto]
    #[arg(long, value_name = "PACE", conflicts_with = "job_latency_target")]
    pub(crate) job_pace: Option<JobPace>,
}

/// Whether a job gives way.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobPace {
    Auto,
    Full,
}

#[derive(Args, Debug)]
pub(crate) struct Lab {
    /// What the laboratory is told
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database, which sends the backup
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// A folder, which is there; a URL: file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix; `-` for standard
    /// output
    #[arg(value_name = "DEST")]
    pub(crate) destination: PathBuf,
    /// Only what has changed since that backup: `latest` of the folder, a name in it, or a path or URL
    #[arg(long, value_name = "BACKUP")]
    pub(crate) since: Option<PathBuf>,
    /// Compress by Zstandard, at a level from 1 to 22 [default level: 1]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, default_missing_value = "1", require_equals = true,
          value_parser = clap::value_parser!(i32).range(1..=22))]
    pub(crate) compress: Option<i32>,
    /// Keep so many full backups of the folder, with what adds to them, and remove older ones afterwards
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
    /// Then remove archived log from there that none of the backups left in the folder needs
    #[arg(long, value_name = "ARCHIVE", requires = "keep")]
    pub(crate) archive: Option<PathBuf>,
    /// Count everything on the way, as `gannet stat --records` does in a pass of its own, and write that, too
    #[arg(long)]
    pub(crate) statistics: bool,
    /// Write what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// Backups by path or URL, oldest first: one, which brings what it adds to; or several; or a folder, for its latest one; or `-` for
    /// standard input. Then the database file, which must not be there
    #[arg(value_name = "SRC... DB", required = true, num_args = 2..)]
    pub(crate) paths: Vec<PathBuf>,
    /// Go on with the log of this archive, behind the end of the backup
    #[arg(long, value_name = "ARCHIVE")]
    pub(crate) archive: Option<PathBuf>,
    /// Up to where: a time (2026-11-23T14:05:00+01:00; without a zone: of this machine's), an LSN (lsn:123456), or the name of a point
    /// (point:NAME, or NAME alone). Every commit up to a time is there, and none that came more than 10 ms later [default: the
    /// archive's end]
    #[arg(long, value_name = "TARGET", requires = "archive", value_parser = target)]
    pub(crate) to: Option<RecoveryTarget>,
    /// Have a server do it, beside its users, where the backups and the file lie for it: a database file that it has open, or
    /// postgres://user@host:port/database
    #[arg(long, value_name = "DB")]
    pub(crate) server: Option<OsString>,
    /// How much log may lie beside the file on the way; a server goes by its own setting
    #[arg(long, value_name = "SIZE", env = "GANNET_WAL_LIMIT", default_value = "1GiB", value_parser = size)]
    pub(crate) wal_limit: u64,
    /// Write what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// Backups, as for `restore`; with --archive: archives
    #[arg(value_name = "SRC", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// What is given are archives of the log
    #[arg(long)]
    pub(crate) archive: bool,
    /// Have a server do it, where what is given lies for it: a database file that it has open, or postgres://user@host:port/database
    #[arg(long, value_name = "DB")]
    pub(crate) server: Option<OsString>,
    /// Write what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

#[derive(Args, Debug)]
#[command(after_help = CHECK_STATUS)]
pub(crate) struct Check {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Write findings and figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const CHECK_STATUS: &str = "Nothing is changed; a database that was not closed is brought up to date first, as by any opening.\n\n\
                            Exit status: 0 sound; 1 there are findings; 2 it could not be checked, or a wrong command line; \
                            130 stopped by Ctrl-C.";

#[derive(Args, Debug)]
#[command(after_help = COMPACT_HELP)]
pub(crate) struct Compact {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Write what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const COMPACT_HELP: &str = "Pages are made denser, moved to the begin of the file, and its end is cut off. It can be stopped at any time, and \
                            run again. What keeps the file from becoming shorter is named.";

#[derive(Args, Debug)]
#[command(after_help = STAT_STATUS)]
pub(crate) struct Stat {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Count every entry in one pass over the file, instead of estimating from a sample
    #[arg(long)]
    pub(crate) records: bool,
    /// Only this table and its indexes: t, public.t or public."a.b", letters as they are; or this tree of a key-value store
    #[arg(long, value_name = "T")]
    pub(crate) table: Option<String>,
    /// Write everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const STAT_STATUS: &str = "Nothing is changed; a database that was not closed is brought up to date first, as by any opening. Estimates say how far \
                           they may be off in 95 of 100 cases; what was counted beside writers is of different moments.\n\nExit status: 0 done, pages that cannot be read included: these are named; 1 it failed, \
                           or there is no such table; 130 stopped by Ctrl-C.";

#[derive(Args, Debug)]
#[command(after_help = SWEEP_STATUS)]
pub(crate) struct Sweep {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Remove nothing: show what garbage there is, who holds it back, and what removing it costs. A database that was not closed is brought
    /// up to date first, as by any opening
    #[arg(long, visible_alias = "dry-run")]
    pub(crate) show: bool,
    /// Write what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const SWEEP_STATUS: &str = "A database that is open sweeps by itself all the time: this is for files at rest, and for who wants to know.\n\n\
                            Exit status: 0 done, whatever is held back; 1 it failed; 130 stopped by Ctrl-C: what is left is left to the next.";

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// A folder for the demo's database: an empty one, or one that is yet to be created
    #[arg(value_name = "DIR", default_value = "gannet-demo")]
    pub(crate) folder: PathBuf,
    /// How much data: warehouses of about 100 MB each, 1 to 10000
    #[arg(long, value_name = "N", default_value = "2", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) warehouses: u32,
    /// Sessions that work at a time, 1 to 1000
    #[arg(long, value_name = "N", default_value = "8", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) sessions: u32,
    /// For how many seconds they work, 1 to 86400
    #[arg(long, value_name = "N", default_value = "20", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// The one memory number [default: 16MiB a warehouse, at least 32MiB, more for many sessions]
    #[arg(long, value_name = "SIZE", env = "GANNET_MEMORY", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// The I/O mode to ask for: auto, direct, uncached or buffered
    #[arg(long, value_name = "MODE", env = "GANNET_IO", default_value = "auto", value_parser = io_mode)]
    pub(crate) io: ModeRequest,
    /// Replace the database of an earlier demo
    #[arg(long)]
    pub(crate) again: bool,
    /// Write the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// So many times fewer customers, orders and items, for tests: no TPC-C any more
    #[arg(long, value_name = "TIMES", default_value = "1", hide = true,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) shrink: u32,
}

const DOCTOR_STATUS: &str = "Exit status: 0 nothing is to be seen to; 1 something is; 2 something is, now; 3 it could not be looked, or a wrong \
                             command line; 130 stopped by Ctrl-C.";

#[derive(Args, Debug)]
#[command(after_help = DOCTOR_STATUS)]
pub(crate) struct Doctor {
    /// A folder to probe; or a database: its folder is probed, its files are looked at, and a server that has it open is asked; or a server:
    /// postgres://user@host:port/database
    #[arg(value_name = "DIR|DB", default_value = ".")]
    pub(crate) path: PathBuf,
    /// The I/O mode to ask for: auto, direct, uncached or buffered
    #[arg(long, value_name = "MODE", env = "GANNET_IO", default_value = "auto", value_parser = io_mode)]
    pub(crate) io: ModeRequest,
    /// By the flag, and not by the environment, which is meant for other commands as well.
    #[arg(skip)]
    pub(crate) is_io_given: bool,
    /// How long the device is measured; 0s leaves it out [default: 3s; 0s where a server has the database open]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Size of the scratch file that is written, read and removed again, 1MiB or more [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = scratch_size)]
    pub(crate) scratch: Option<u64>,
    /// Write the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = DUMP_STATUS)]
pub(crate) struct Dump {
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Where to: a file of SQL, with --format csv a folder, neither of which may be there yet; - is standard output
    #[arg(value_name = "DEST")]
    pub(crate) destination: PathBuf,
    /// How rows are written
    #[arg(long, value_name = "FORMAT", default_value = "sql")]
    pub(crate) format: DumpFormat,
    /// Definitions only
    #[arg(long, conflicts_with = "data_only")]
    pub(crate) schema_only: bool,
    /// Rows only, and where sequences stand
    #[arg(long)]
    pub(crate) data_only: bool,
    /// This table only, with what belongs to it: t, public.t or public."a.b", letters as they are; may be repeated
    #[arg(long = "table", value_name = "T")]
    pub(crate) tables: Vec<String>,
    /// Threads that make text of rows, 1 to 64 [default: one for each processor, 8 at most]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) jobs: Option<u32>,
    /// Write the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const DUMP_STATUS: &str = "Everything is as it was at one moment. A dump is called DEST.partial until it is complete and durable.\n\n\
                           Exit status: 0 done; 1 it failed; 130 stopped by Ctrl-C.";

#[derive(Args, Debug)]
#[command(after_help = LOAD_STATUS)]
pub(crate) struct Load {
    /// A dump: a file of SQL, of ours or of pg_dump, or a folder of csv; - is standard input
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// A database file, whether or not a server has it open; or a server: postgres://user@host:port/database
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Make a new database, which must not be there yet, and is archived from its next opening on
    #[arg(long)]
    pub(crate) create: bool,
    /// Page size of a new database: 4KiB, 8KiB, 16KiB or 32KiB [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "create")]
    pub(crate) page_size: Option<u64>,
    /// Threads that read rows from text, 1 to 64 [default: one for each processor, 8 at most]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) jobs: Option<u32>,
    /// What a bad row or statement does
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// Write the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
}

const LOAD_STATUS: &str = "The rows of a table are loaded as one transaction, each statement is one of its own.\n\n\
                           Exit status: 0 done; 1 it failed, or something was skipped; 130 stopped by Ctrl-C.";

#[derive(Args, Debug)]
#[command(after_help = SQL_STATUS)]
pub(crate) struct Sql {
    /// A database file; or a server: postgres://user@host:port/database, or host=... key=value words
    #[arg(value_name = "DB")]
    pub(crate) database: OsString,
    /// Run these statements, one transaction, or this command of the shell; may be repeated, but not together with -f
    #[arg(short = 'c', long, value_name = "SQL", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// Run a script; - is standard input; may be repeated, but not together with -c
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Make a new database where the file does not exist
    #[arg(long)]
    pub(crate) create: bool,
    /// Open a file whose log is damaged, for reading what is left, as it was where the log breaks off; changes no file
    #[arg(long, conflicts_with = "create")]
    pub(crate) salvage: bool,
    /// How rows are written [default: table]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Say nothing but results: no INSERT 0 1
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// An option that is for a file, and was given by the flag, not by the environment, which is meant for other commands as well.
    #[arg(skip)]
    pub(crate) given_for_a_file: Option<&'static str>,
    /// Go on after an error in a script
    #[arg(long)]
    pub(crate) keep_going: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) log: OwnLog,
}

const SQL_STATUS: &str = "Exit status: 0 done; 1 a statement of -c failed, or a file cannot be read; 2 no database, or a \
                          wrong command line; 3 a statement of a script failed; 130 Ctrl-C between statements, or SIGTERM.";

/// Settings are texts here: they are checked together with those of the file and the environment.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Databases, or folders, whose files *.gnt are served; a file NAME.gnt that does not exist is created
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Settings file (TOML); settings: memory, io, archive, wal_limit, max_delay, shutdown_limit, listen, socket, port,
    /// max_connections, insecure_trust, tls_certificate, tls_key, temp_folder, io_record, snapshot_limit, job_latency_target,
    /// sweep_window. Each is also a variable GANNET_...
    #[arg(long, value_name = "FILE", env = "GANNET_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The one memory number [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// How files are opened: auto, direct, uncached or buffered [default: auto]
    #[arg(long, value_name = "MODE")]
    pub(crate) io: Option<String>,
    /// Where the log is archived, each database in a folder of its own name there [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<String>,
    /// Where TCP clients connect, several separated by commas, or none [default: 127.0.0.1:5433]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// A folder for one more Unix socket
    #[arg(long, value_name = "DIR")]
    pub(crate) socket: Option<String>,
    /// Port in the names of the Unix sockets [default: 5433]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Most connections at a time [default: 100]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<String>,
    /// Lets clients on loopback in without password
    #[arg(long)]
    pub(crate) insecure_trust: bool,
    /// Certificate chain for TLS, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<String>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Kv {
    /// The database file
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,
    #[command(subcommand)]
    pub(crate) command: KvCommand,
    #[command(flatten)]
    pub(crate) options: KvOptions,
}

#[derive(Args, Debug)]
pub(crate) struct KvOptions {
    /// The one memory number: everything the database uses lives inside it
    #[arg(long, global = true, value_name = "SIZE", env = "GANNET_MEMORY", default_value = "256MiB",
          value_parser = size)]
    pub(crate) memory: u64,
    /// The I/O mode to ask for: auto, direct, uncached or buffered
    #[arg(long, global = true, value_name = "MODE", env = "GANNET_IO", default_value = "auto",
          value_parser = io_mode)]
    pub(crate) io: ModeRequest,
    /// How rows are written
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Page size of a database that `put` or `load` creates: 4KiB, 8KiB, 16KiB or 32KiB [default: 8KiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    pub(crate) page_size: Option<u64>,
    /// The tree inside the database
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) tree: String,
    /// Keys and values are read and written as hexadecimal digits instead of text
    #[arg(long, global = true)]
    pub(crate) hex: bool,
    #[command(flatten)]
    pub(crate) log: OwnLog,
}

#[derive(Subcommand, Debug)]
pub(crate) enum KvCommand {
    /// Write the value of a key; without --format, just its bytes and a line feed
    Get {
        /// The key
        key: String,
    },
    /// Put a value, from the command line or from standard input; creates database and tree where they are missing
    Put {
        /// The key
        key: String,
        /// The value; without it, all of standard input, as it is
        value: Option<String>,
    },
    /// Remove keys, all of them or, when one is not there, none
    Delete {
        /// The keys
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Write rows in the order of their keys
    Scan {
        /// First key of the range
        #[arg(long, value_name = "KEY")]
        from: Option<String>,
        /// The range ends before this key
        #[arg(long, value_name = "KEY")]
        to: Option<String>,
        /// Only keys that begin like this
        #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
        prefix: Option<String>,
        /// At most this many rows
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// From the last key to the first
        #[arg(long)]
        reverse: bool,
    },
    /// Put all rows of a file, as `scan --format csv` or `json` writes them
    Load {
        /// The file; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Format of the file: csv with the columns key and value, or json with one object in each line
        #[arg(long, default_value = "csv")]
        input: Input,
        /// The rows ascend by key: loads a new tree bottom-up, in one transaction
        #[arg(long)]
        sorted: bool,
    },
    /// Figures of the database: header, I/O, restart, memory, trees, files
    Stat,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values with a header line
    Csv,
    /// An object for each row; of `sql`, in an array for each result
    Json,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DumpFormat {
    /// A script that psql reads
    Sql,
    /// A folder: a file for each table, and scripts of the definitions
    Csv,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnError {
    /// The load ends; of the table concerned nothing is loaded
    Stop,
    /// It is left out, counted, and listed
    Skip,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    Csv,
    Json,
}

/// Up to where a restore goes. What is neither a time nor a number is a name.
fn target(text: &str) -> Result<RecoveryTarget, String> {
    if let Some(name) = text.strip_prefix("point:") {
        return Ok(RecoveryTarget::Point(name.to_owned()));
    }
    let number = text.strip_prefix("lsn:");
    if is_lsn_of_postgresql(number.unwrap_or(text)) {
        let point = if number.is_none() {
            format!("; a point of that name is \"point:{text}\"")
        } else {
            String::new()
        };
        return Err(format!(
            "{text:?} is an LSN as PostgreSQL writes it: here they are decimal numbers, as pg_create_restore_point gives them{point}"
        ));
    }
    if number.is_some() || text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = number.unwrap_or(text).parse();
        return number.map(RecoveryTarget::Lsn).map_err(|_| format!("{text:?} is no LSN: give a number"));
    }
    let local = |time: jiff::civil::DateTime| time.to_zoned(jiff::tz::TimeZone::system()).ok();
    let time = match (text.parse::<jiff::Timestamp>(), text.parse::<jiff::civil::DateTime>()) {
        (Ok(time), _) => Some(time),
        (Err(_), Ok(time)) => local(time).map(|zoned| zoned.timestamp()),
        (Err(_), Err(_)) if begins_like_a_date(text) => {
            return Err(format!(
                "{text:?} looks like a time, and is none: 2026-11-23T14:05:00Z is one; a point of that name is \"point:{text}\""
            ));
        }
        (Err(_), Err(_)) => return Ok(RecoveryTarget::Point(text.to_owned())),
    };
    let micros = time.and_then(|time| u64::try_from(time.as_microsecond()).ok());
    micros.map(RecoveryTarget::Time).ok_or_else(|| format!("{text:?} is no time of this age"))
}

/// Whether a text is like `0/16B3748`.
fn is_lsn_of_postgresql(text: &str) -> bool {
    let is_half =
        |half: &str| (1..=8).contains(&half.len()) && half.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split_once('/').is_some_and(|(high, low)| is_half(high) && is_half(low))
}

/// Whether a text begins like `2026-11-23`.
fn begins_like_a_date(text: &str) -> bool {
    let fits = |(byte, form): (u8, u8)| if form == b'-' { byte == form } else { byte.is_ascii_digit() };
    text.len() >= 10 && text.bytes().zip(*b"0000-00-00").all(fits)
}

fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|error| error.to_string())
}

fn scratch_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|bytes| {
        if bytes >= 1 << 20 { Ok(bytes) } else { Err("a scratch file has at least 1MiB".to_owned()) }
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|error| error.to_string())
}

fn io_mode(text: &str) -> Result<ModeRequest, String> {
    Ok(match text {
        "auto" => ModeRequest::Auto,
        "direct" => ModeRequest::Only(Mode::Direct),
        "uncached" => ModeRequest::Only(Mode::Uncached),
        "buffered" => ModeRequest::Only(Mode::Buffered),
        _ => return Err("choose one of auto, direct, uncached, buffered".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_stores() {
        let command = Arguments::command();
        let kv = command.find_subcommand("kv").unwrap();
        let memory = kv.get_arguments().find(|argument| argument.get_id() == "memory").unwrap();
        let default = memory.get_default_values()[0].to_str().unwrap();
        assert_eq!(size(default).unwrap(), gannet_store::EngineOptions::default().memory);
        let limit = kv.get_arguments().find(|argument| argument.get_id() == "wal_limit").unwrap();
        let default = limit.get_default_values()[0].to_str().unwrap();
        assert_eq!(size(default).unwrap(), OpenOptions::default().wal_limit);
    }

    #[test]
    fn who_changes_nothing_says_that_a_database_is_brought_up_to_date_first() {
        let mut command = Arguments::command();
        for name in ["check", "stat", "sweep"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(help.contains("that was not closed is brought up to date first"), "{help}");
        }
    }

    #[test]
    fn targets_are_times_numbers_and_names() {
        for text in ["2026-11-23T14:05:00+00:00", "2026-11-23T14:05:00Z", "2026-11-23 15:05:00+01"] {
            assert_eq!(target(text), Ok(RecoveryTarget::Time(1_795_442_700_000_000)), "{text}");
        }
        assert!(matches!(target("2026-11-23T14:05:00"), Ok(RecoveryTarget::Time(_))));
        for text in ["4096", "lsn:4096"] {
            assert_eq!(target(text), Ok(RecoveryTarget::Lsn(4096)));
        }
        for text in ["point:4096", "before the flood"] {
            let name = text.trim_start_matches("point:").to_owned();
            assert_eq!(target(text), Ok(RecoveryTarget::Point(name)));
        }
        for text in
            ["2026-02-30T00:00:00Z", "2026-13-01", "2026-11-23T25:00:00", "2026-11-23 before the flood"]
        {
            assert!(target(text).unwrap_err().contains("looks like a time"), "{text}");
            let point = RecoveryTarget::Point(text.to_owned());
            assert_eq!(target(&format!("point:{text}")), Ok(point));
        }
        assert_eq!(target("2026-1"), Ok(RecoveryTarget::Point("2026-1".to_owned())));
        for text in ["0/16B3748", "lsn:0/16B3748", "ffffffff/0"] {
            let error = target(text).unwrap_err();
            assert!(error.contains("decimal numbers, as pg_create_restore_point"), "{error}");
            assert_eq!(error.contains("point:"), !text.starts_with("lsn:"), "{error}");
        }
        for text in ["before/after", "0/123456789", "0/", "1/2/3", "point:0/16B3748"] {
            let name = text.trim_start_matches("point:").to_owned();
            assert_eq!(target(text), Ok(RecoveryTarget::Point(name)), "{text}");
        }
        assert!(target("lsn:0x10").is_err() && target("1960-01-01T00:00:00Z").is_err());
    }
}
