//! Threads of a scope, where the system may have none left.

use crate::{Error, Result, SqlState};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread of a scope.
///
/// # Errors
/// 53000 where the system has no more threads.
pub(crate) fn start_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(|error| {
        Error::new(SqlState::INSUFFICIENT_RESOURCES, format!("cannot start a thread: {error}"))
    })
}
