//! Dates and timestamps: reading, writing, parts, time zones.
use crate::{Error, Result};

/// A session's time zone.
#[derive(Clone, Debug)]
pub struct Zone(());

impl Zone {
    /// UTC.
    pub fn utc() -> Self {
        Zone(())
    }
    /// A zone by its name (`Europe/Berlin`, `UTC`) or offset (`+02`, `-03:30`, PostgreSQL's POSIX rules where it has them).
    pub fn parse(name: &str) -> Result<Self> {
        Err(Error::unsupported(name))
    }
    /// The name, as SHOW TimeZone gives it.
    pub fn name(&self) -> &str {
        "UTC"
    }
}
