//! Sweep of a whole database: the store's ([`gannet_store::SweepReport`]), in words of SQL.
//!
//! Trees are named by the table or index that they hold; those of a database without definitions keep their names. Where definitions cannot
//! be read, everything else is said all the same.

use crate::Result;
use crate::stat::Holder;
use crate::stat::names::Names;
use gannet_store::{Database, Figure, Garbage, GarbageHolder, SweepReport, Watch};
use serde::{Deserialize, Serialize};

/// What was swept, or would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// The store's report.
    pub report: SweepReport,
    /// Tables and indexes with what was taken from them; where it was only looked, what would be.
    pub objects: Vec<SweptObject>,
    /// Who holds back what is left.
    pub holders: Vec<NamedHolder>,
}

/// What was, or would be, taken from a table or index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweptObject {
    /// What it is, and its name.
    pub object: String,
    /// Entries of deleted rows.
    pub dead_entries: Figure,
    /// Long values that were replaced.
    pub long_values: Figure,
}

/// Who holds garbage back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedHolder {
    /// What is held back, how, and since when.
    pub holder: GarbageHolder,
    /// By which session, where it is one's.
    pub session: Option<Holder>,
}

impl NamedHolder {
    /// In words.
    pub fn describe(&self) -> String {
        let (kind, age) = (self.holder.kind.name(), self.holder.age_seconds);
        match &self.session {
            Some(session) => format!(
                "{kind} of session {} ({}, {}), {age:.1} s old",
                session.pid, session.user, session.state
            ),
            None => format!("{kind} of no session, {age:.1} s old"),
        }
    }
}

/// The holders of garbage, not yet with their sessions.
pub fn holders(garbage: &Garbage) -> Vec<NamedHolder> {
    garbage.holders.iter().map(|holder| NamedHolder { holder: holder.clone(), session: None }).collect()
}

/// Sweeps a database, of SQL or not, as a job of it; with `show_only` nothing is removed.
///
/// # Errors
/// What keeps it from being done: a database that takes no changes, no memory, what `watch` fails with.
pub fn sweep(store: &Database, show_only: bool, watch: &mut Watch<'_>) -> Result<Swept> {
    let report = store.sweep_watched(show_only, watch)?;
    let names = match Names::load(store) {
        Err(error) if crate::check::is_damage(&error) => Names::default(),
        other => other?,
    };
    let mut objects: Vec<SweptObject> = match &report.forecast {
        Some(forecast) => {
            let object = |tree: &gannet_store::TreeForecast| SweptObject {
                object: names.label(tree.tree, tree.name.as_deref()),
                dead_entries: tree.dead_entries,
                long_values: tree.long_values,
            };
            forecast.by_tree.iter().map(object).collect()
        }
        None => {
            let object = |tree: &gannet_store::TreeCleaned| SweptObject {
                object: names.label(tree.tree, tree.name.as_deref()),
                dead_entries: Figure::exact(tree.dead_entries),
                long_values: Figure::exact(tree.long_values),
            };
            report.cleaned.by_tree.iter().map(object).collect()
        }
    };
    objects.sort_by(|a, b| a.object.cmp(&b.object));
    let holders = holders(&report.after);
    Ok(Swept { report, objects, holders })
}
