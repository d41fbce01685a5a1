//! What a store says, in words of files.

use gannet_io::{Error, ErrorKind};
use std::error::Error as StdError;
use std::path::Path;

/// What somebody is told who has given up.
pub(crate) fn cancelled(operation: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Device, operation, path, "it was cancelled")
}

/// A failed operation of a store.
pub(crate) fn of_store(operation: &'static str, path: &Path, error: &object_store::Error) -> Error {
    use object_store::Error as E;
    let said = words(error);
    let (kind, way_out) = match error {
        E::NotFound { .. } => (ErrorKind::NotFound, "it is not there, or was removed meanwhile"),
        E::AlreadyExists { .. } => (ErrorKind::AlreadyExists, "it is there already"),
        E::Precondition { .. } => (ErrorKind::Device, "it was replaced by somebody else meanwhile"),
        E::PermissionDenied { .. } => {
            (ErrorKind::PermissionDenied, "the credentials in the environment do not permit it")
        }
        E::Unauthenticated { .. } => {
            (ErrorKind::PermissionDenied, "the store does not take the credentials in the environment")
        }
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Invalid, "the store lacks what backups need of it")
        }
        _ => match in_chain(error) {
            // As the system's errors are judged anywhere else.
            Some(system) => {
                let code = std::io::Error::from_raw_os_error(system.raw_os_error().unwrap_or_default());
                (Error::from_os(operation, path, "", code).kind(), "")
            }
            None => (ErrorKind::Device, "the store cannot be reached, or refuses"),
        },
    };
    let detail = if way_out.is_empty() { said } else { format!("{way_out}: {said}") };
    Error::new(kind, operation, path, detail)
}

/// The system's error that lies behind another one, if there is one.
fn in_chain<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e std::io::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        let system = error.downcast_ref::<std::io::Error>().filter(|system| system.raw_os_error().is_some());
        if system.is_some() {
            return system;
        }
        at = error.source();
    }
    None
}

/// An error with what lies behind it, on one line.
pub(crate) fn words(error: &(dyn StdError + 'static)) -> String {
    let mut all = error.to_string();
    let mut at = error.source();
    while let Some(error) = at {
        let more = error.to_string();
        // Most errors repeat what lies behind them.
        if !all.contains(&more) {
            all = format!("{all}: {more}");
        }
        at = error.source();
    }
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}
