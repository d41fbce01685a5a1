//! Looks at a database while it works: memory of its process, what its group has cached, and what the OS has cached of its files; and ends the
//! statement when somebody wants the whole to stop.

use super::{Base, Canceller};
use gannet_io::residency;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(100);
/// Smaller files are not looked at: a PostgreSQL has a thousand of them.
const LEAST_FILE: u64 = 256 << 10;
/// How long an embedded statement may go on that nobody can end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was seen at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Seconds since it began.
    pub seconds: f64,
    /// Bytes resident in the process.
    pub resident: Option<u64>,
    /// Bytes of files cached on its group's account: also of temporary files that nobody else sees.
    pub group_cached: Option<u64>,
    /// Bytes cached of the files in its folder.
    pub files_cached: Option<u64>,
}

/// Files in a folder and in those below, but for the small ones.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // What is gone by now is none.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() {
            files(&entry.path(), found);
        } else if about.is_file() && about.len() >= LEAST_FILE {
            found.push(entry.path());
        }
    }
}

/// Bytes that the OS has cached of a folder's files; of those that are gone meanwhile, none.
pub fn cached(folder: &Path) -> Option<u64> {
    let mut found = Vec::new();
    files(folder, &mut found);
    let residency = residency(found);
    if !residency.files.is_empty() && residency.files.iter().all(|(_, cached)| cached.is_none()) {
        return None;
    }
    Some(residency.files.iter().filter_map(|(_, cached)| cached.map(|cached| cached.cached_bytes)).sum())
}

/// Bytes of a file, or of a folder's files.
pub fn size(path: &Path) -> u64 {
    let mut found = Vec::new();
    if path.is_dir() {
        files(path, &mut found);
    } else {
        found.push(path.to_owned());
    }
    found.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|about| about.len()).sum()
}

/// One look.
pub fn look(base: &dyn Base, began: Instant) -> Seen {
    let (resident, group_cached) = base.memory();
    Seen {
        seconds: began.elapsed().as_secs_f64(),
        resident,
        group_cached,
        files_cached: cached(&base.folder()),
    }
}

/// Runs `body` and looks at the database meanwhile; when `stop` is set, its statement is ended.
pub fn during<T>(
    base: &dyn Base,
    canceller: Option<Canceller>,
    stop: &AtomicBool,
    body: impl FnOnce() -> T,
) -> (T, Vec<Seen>) {
    let (ended, seen, began) = (AtomicBool::new(false), Mutex::new(Vec::new()), Instant::now());
    let result = std::thread::scope(|scope| {
        let (ended, seen) = (&ended, &seen);
        let watching = scope.spawn(move || {
            let mut asked: Option<Instant> = None;
            while !ended.load(Ordering::Relaxed) {
                let one = look(base, began);
                seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(one);
                if stop.load(Ordering::Relaxed) {
                    match &canceller {
                        Some(cancel) if asked.is_none() => cancel(),
                        // It has started nobody who would stay behind, and its database takes it as a crash.
                        None if asked.is_some_and(|asked| asked.elapsed() > PATIENCE) => {
                            std::process::exit(130);
                        }
                        _ => {}
                    }
                    asked = asked.or_else(|| Some(Instant::now()));
                }
                std::thread::park_timeout(EVERY);
            }
        });
        let result = body();
        ended.store(true, Ordering::Relaxed);
        watching.thread().unpark();
        result
    });
    (result, seen.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// What was seen, raw, and the most of it.
pub fn report(seen: &[Seen]) -> Value {
    let most = |of: fn(&Seen) -> Option<u64>| seen.iter().filter_map(of).max();
    let each: Vec<Value> = seen
        .iter()
        .map(|one| json!([one.seconds, one.resident, one.group_cached, one.files_cached]))
        .collect();
    json!({
        "resident_most_bytes": most(|one| one.resident),
        "group_cached_most_bytes": most(|one| one.group_cached),
        "files_cached_most_bytes": most(|one| one.files_cached),
        "samples": each,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_folders_below_are_counted_and_what_was_written_is_cached() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("below/large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(folder.path().join("small"), vec![1; 100]).unwrap();
        assert_eq!(size(folder.path()), 1 << 20);
        assert_eq!(size(&folder.path().join("small")), 100);
        assert!(cached(folder.path()).is_none_or(|bytes| bytes <= 1 << 20));
    }
}
