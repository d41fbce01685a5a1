//! Dump: definitions and rows as text.
//!
//! # What it guarantees
//! 1. Everything is as one view shows it, definitions and the rows of all tables, whatever is committed meanwhile. (Sequences are where
//!    they are when the dump begins; as everywhere, no transaction holds them.)
//! 2. The text is what PostgreSQL 15's `psql` and `COPY` read, and what [`crate::load`] does.
//! 3. Where it goes and what is left when it breaks off: see `writer`.
//!
//! # Way
//! The tables are scanned, one after the other, in the order of their keys, by batches of rows as they are stored; of these, text is made;
//! the texts are written in the order of the batches ([`line`]). Some threads do whatever of this is to be done: so all
//! processors have work however few tables there are, the result is always the same, and no more than some batches are in memory.
//! They are a job's threads: they run where a processor is idle, and do each piece of work with a permit. The
//! calling thread, which may be a server's session, only waits.

mod bytes;
mod forecast;
mod line;
mod output;
mod rows;
mod scanner;
mod script;
mod writer;

pub(crate) use output::failed;
pub(crate) use writer::{
    FIRST_LINE, INDEXES, LAST_LINE, MANIFEST, MANIFEST_FORMAT, MANIFEST_WITHOUT_SCRIPTS, SCHEMA,
};
pub use writer::{Files, Keeper, Manifest, ManifestScript, ManifestTable, Target};

use crate::catalog::{Catalog, Sequence, storage, stored_position};
use crate::{Error, Result, SqlState, TableName};
use forecast::{Brief, check_room};
use gannet_io::ModeRequest;
use gannet_store::{Database, Isolation, TransactionOptions, Unit, View, Watch};
use scanner::Charged;
use script::{Script, script as make_script};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use writer::Writer;

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A script, with the rows as data of COPY.
    Sql,
    /// Scripts of the definitions, and a file of comma-separated values for each table.
    Csv,
}

/// What is dumped, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// How.
    pub format: Format,
    /// Definitions.
    pub schema: bool,
    /// Rows, and where sequences stand.
    pub data: bool,
    /// These tables only; all, where there are none.
    pub tables: Vec<TableName>,
    /// Threads that make text of rows, besides two for what waits for the device.
    pub jobs: usize,
    /// How files are opened.
    pub mode: ModeRequest,
    /// How long the moment that is dumped may hold garbage back; `None`: as the database was opened with.
    pub snapshot_limit: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            format: Format::Sql,
            schema: true,
            data: true,
            tables: Vec::new(),
            jobs: 1,
            mode: ModeRequest::Auto,
            snapshot_limit: None,
        }
    }
}

/// What was dumped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Tables whose rows were.
    pub tables: u64,
    /// These rows.
    pub rows: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Why what was dumped may not load, if there is a reason.
    #[serde(default)]
    pub warning: Option<String>,
}

/// Dumps a database as a job of it.
///
/// # Errors
/// Besides failures of devices: no definitions of SQL; an unknown table, or another schema; a destination that is there; no memory; what `watch` fails with.
pub fn dump(
    store: &Database,
    options: &Options,
    target: Target<'_>,
    watch: &mut Watch<'_>,
) -> Result<Figures> {
    dump_with(store, options, target, &mut stored_position, watch)
}

/// Says where a sequence stands, and whether that value was given.
pub(crate) type PositionOf<'p> = &'p mut dyn FnMut(&View, &Sequence) -> Result<(i64, bool)>;

/// The same, by whoever knows better than what is stored where a sequence stands, and whether that value was given.
pub(crate) fn dump_with(
    store: &Database,
    options: &Options,
    target: Target<'_>,
    position: PositionOf<'_>,
    watch: &mut Watch<'_>,
) -> Result<Figures> {
    let level = TransactionOptions {
        isolation: Isolation::RepeatableRead,
        snapshot_limit: options.snapshot_limit,
        ..TransactionOptions::default()
    };
    let charged = Charged::new(store.engine());
    let view = store.begin_watched(level, Arc::<Charged>::clone(&charged)).view();
    if !storage::is_sql(&view)? {
        let message = "the database has no tables: it is a map of keys";
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let catalog = storage::load(&view)?;
    let script = stored_script(store, &view, &catalog, position)?.only(&options.tables, options.schema)?;
    let mut writer = Writer::begin(Arc::clone(store.engine().disk()), target, options.format, options.mode)?;
    if options.data
        && let Some(room) = writer.room()?
    {
        let glance = store.begin_watched(level, Arc::new(Brief(store.engine().clone()))).view();
        check_room(&glance, &catalog, &script, options.format, room, watch)?;
    }
    if options.data && !options.schema {
        writer.warn(script.warning_for_rows_alone())?;
    }
    if options.schema {
        writer.before(&script)?;
    }
    if options.data {
        let total = script.tables.iter().map(|table| table.bytes).sum();
        watch.job().phase("writes rows", Unit::Bytes, total);
        scanner::write_tables(store, (&view, &charged), &catalog, &script, options, &mut writer, watch)?;
        // No table is at work any more.
        watch.job().note("");
    }
    writer.after(&script, options.data, options.schema)?;
    watch.look()?;
    watch.job().phase("makes it durable", Unit::Bytes, 0);
    writer.finish()
}

/// The script of what a view shows.
fn stored_script(
    store: &Database,
    view: &View,
    catalog: &Catalog,
    position: PositionOf<'_>,
) -> Result<Script> {
    let pages = store.pages_by_tree()?;
    let page_size = store.page_size() as u64;
    make_script(
        catalog,
        &mut |table| {
            let tree = scanner::table_tree(view, table)?;
            Ok(pages.get(&tree.id()).copied().unwrap_or(0) * page_size)
        },
        &mut |sequence: &Sequence| position(view, sequence),
    )
}
