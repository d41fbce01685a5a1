//! What a store says, in words of files.

use gannet_io::{Error, ErrorKind};
use std::error::Error as StdError;
use std::path::Path;

/// What is wrong with whom the store takes us for.
const NOT_PERMITTED: &str = "the credentials in the environment do not permit it";
const UNKNOWN: &str = "the store does not take the credentials in the environment";

/// How stores say that there is no such bucket, or container.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"];

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
        E::PermissionDenied { .. } => (ErrorKind::PermissionDenied, NOT_PERMITTED),
        E::Unauthenticated { .. } => (ErrorKind::PermissionDenied, UNKNOWN),
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Invalid, "the store lacks what backups need of it")
        }
        E::InvalidPath { .. } => (
            ErrorKind::Invalid,
            "something there has a name that cannot be told: rename or remove it, or take another prefix",
        ),
        _ => match in_chain(error) {
            // As the system's errors are judged anywhere else.
            Some(system) => {
                let code = std::io::Error::from_raw_os_error(system.raw_os_error().unwrap_or_default());
                (Error::from_os(operation, path, "", code).kind(), "")
            }
            None => untold(operation, &said),
        },
    };
    let detail = if way_out.is_empty() { said } else { format!("{way_out}: {said}") };
    Error::new(kind, operation, path, detail)
}

/// What lies behind an error to which the crate gives no kind, as it does of no listing: the number that the store's answer has. Whoever gives out
/// credentials may have answered so, too: that is not to be taken for an object that is not there.
fn untold(operation: &str, said: &str) -> (ErrorKind, &'static str) {
    let is = |status: &str| said.contains(&format!("status code: {status}"));
    let is_of_bucket = NO_BUCKET.iter().any(|words| said.contains(words));
    if operation == "list" && is("404") && is_of_bucket {
        (ErrorKind::NotFound, "it is not there, or was removed meanwhile")
    } else if is("401") || (is("400") && (said.contains("ExpiredToken") || said.contains("InvalidToken"))) {
        (ErrorKind::PermissionDenied, UNKNOWN)
    } else if is("403") {
        (ErrorKind::PermissionDenied, NOT_PERMITTED)
    } else {
        (ErrorKind::Device, "the store cannot be reached, or refuses")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_listing_is_refused_for_is_told_by_the_number_of_the_answer() {
        let told = |status: &str| {
            let source = format!("Server returned non-2xx status code: {status}").into();
            let error =
                of_store("list", Path::new("s3://b"), &object_store::Error::Generic { store: "S3", source });
            (error.kind(), error.detail().to_owned())
        };
        assert_eq!(told("404 Not Found: NoSuchBucket").0, ErrorKind::NotFound);
        let (kind, detail) = told("403 Forbidden: AccessDenied");
        assert!(kind == ErrorKind::PermissionDenied && detail.contains("do not permit"), "{detail}");
        let (kind, detail) = told("400 Bad Request: <Code>ExpiredToken</Code>");
        assert!(kind == ErrorKind::PermissionDenied && detail.contains("does not take"), "{detail}");
        assert_eq!(told("400 Bad Request: MalformedXML").0, ErrorKind::Device);
        assert_eq!(told("404 Not Found: no role").0, ErrorKind::Device);
        assert_eq!(told("503 Slow Down").0, ErrorKind::Device);
    }
}
