//! What a session's role may do.
//!
//! # Guarantees
//! 1. A role is known by its number. Its name may be another one's by now, which was made after it was dropped.
//! 2. What is revoked is revoked at once, also for a transaction whose statements see older definitions (REPEATABLE READ). What is granted
//!    counts there from the next transaction on. What a transaction takes from its own role counts before it commits.

use super::database::Database;
use crate::catalog::{Catalog, Oid};

/// What a role may do with definitions, and with the database.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// Its number.
    pub role: Oid,
    /// It may do everything.
    pub superuser: bool,
}

impl Rights {
    /// What is committed of a role, and no more than the statement's definitions say; `None` where it is gone.
    pub(super) fn of(database: &Database, role: Oid, seen: Option<&Catalog>) -> Option<Self> {
        let committed = database.catalog();
        let is_superuser = |catalog: &Catalog| catalog.roles.get(&role).map(|role| role.superuser);
        let superuser = is_superuser(&committed)? && seen.map_or(Some(true), is_superuser)?;
        Some(Rights { role, superuser })
    }

    /// Whether it may change what this role owns.
    pub fn has(&self, owner: Oid) -> bool {
        self.superuser || self.role == owner
    }
}
