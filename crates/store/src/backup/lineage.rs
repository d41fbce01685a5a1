//! Which backups are of a copy of a database: for whoever keeps them elsewhere, and has not the database at hand.

use super::manifest::{Begin, Manifest, hex};
use crate::meta::{LIVES_MAX, Life, Meta};
use gannet_base::Lsn;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is to be known of a copy of a database to tell its backups from those of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The database's file name.
    name: String,
    #[serde(with = "hex")]
    database_id: u64,
    /// The times that this copy was open, oldest first: number, and where the log was.
    lives: Vec<(u64, u64)>,
    /// Bytes of pages in use.
    bytes: u64,
}

impl Lineage {
    pub(crate) fn new(path: &Path, meta: &Meta, bytes: u64) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let lives = meta.lives.iter().map(|life| (life.id, life.from.0)).collect();
        Lineage { name, database_id: meta.database_id, lives, bytes }
    }

    /// Whether a backup was taken of this very copy of the database.
    pub(crate) fn is_past(&self, backup: &Manifest) -> bool {
        let lives: Vec<_> = self.lives.iter().map(|&(id, from)| Life { id, from: Lsn(from) }).collect();
        let lived = |lsn| Life::was_lived(&lives, backup.begin.life, Lsn(lsn));
        // Its end was durable when it was complete: in the same life the log never ends before it.
        backup.begin.database_id == self.database_id && lived(backup.begin.start_lsn) && lived(backup.end_lsn)
    }

    /// Whether a backup is of this database, this copy of it or another one.
    pub(crate) fn is_same_database(&self, backup: &Manifest) -> bool {
        backup.begin.database_id == self.database_id
    }

    /// Whether earlier openings of this copy are not known any more.
    pub(crate) fn forgets(&self) -> bool {
        self.lives.len() >= LIVES_MAX
    }

    /// Whether a backup that has just begun is of this copy of the database.
    pub(crate) fn is_begun_here(&self, begin: &Begin) -> bool {
        let life = self.lives.last().map_or(0, |&(id, _)| id);
        begin.database_id == self.database_id && begin.life == life
    }

    /// What names of its backups begin with.
    pub(crate) fn stem(&self) -> String {
        // What a server says is not to lead out of the folder.
        let name = Path::new(&self.name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name.is_empty() { "database".to_owned() } else { name }
    }

    /// Bytes of pages in use: a full backup takes about as many, unless it is compressed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
