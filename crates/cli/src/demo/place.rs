//! The demo's folder: only one that is empty, or that an earlier demo has made, is touched, and there only what a demo makes.

use anyhow::{Context, Result, bail};
use gannet_store::{Engine, EngineOptions, Error, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The name of the database.
pub(super) const NAME: &str = "demo";
const DATABASE: &str = "demo.gnt";
const NOTE: &str = "README.txt";
/// How the note begins in every folder of a demo.
const MARK: &str = "Made by `gannet demo`";

/// The folder. Dropped before [`Place::keep`], what the demo has put there goes again.
pub(super) struct Place {
    folder: PathBuf,
    made_folder: bool,
    kept: bool,
}

impl Place {
    /// Takes a folder and puts the demo's note there. The database of an earlier demo goes, if that is wanted.
    pub(super) fn take(folder: &Path, again: bool) -> Result<Self> {
        let made_folder = match first_entry(folder)? {
            Found::Nothing => {
                std::fs::create_dir_all(folder).with_context(|| format!("cannot create {folder:?}"))?;
                true
            }
            Found::Empty => false,
            Found::Entry(_) if is_demo(folder) => {
                if !again {
                    bail!(
                        "{folder:?} holds the database of an earlier demo: --again replaces it, or name another folder"
                    );
                }
                remove_earlier(folder)?;
                false
            }
            Found::Entry(name) => bail!(
                "{folder:?} holds something else ({name:?}): the demo wants a folder of its own, gannet demo DIR"
            ),
        };
        let place = Place { folder: folder.to_owned(), made_folder, kept: false };
        let path = folder.join(NOTE);
        std::fs::write(&path, note()).with_context(|| format!("cannot write {path:?}"))?;
        Ok(place)
    }

    /// The database's file.
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join(DATABASE)
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the database stays.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    /// From here on the database stays.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // The demo has failed before, and says why; what is left over here is recognised by the next one.
        let gone =
            remove_database(&self.folder).and_then(|()| there(std::fs::remove_file(self.folder.join(NOTE))));
        if gone.is_ok() && self.made_folder {
            let _ = std::fs::remove_dir(&self.folder);
        }
    }
}

enum Found {
    /// There is no such folder.
    Nothing,
    Empty,
    /// Something that the folder holds.
    Entry(String),
}

fn first_entry(folder: &Path) -> Result<Found> {
    let cannot = || format!("cannot look into {folder:?}");
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == ErrorKind::NotADirectory => bail!("{folder:?} is no folder"),
        Err(error) => return Err(error).with_context(cannot),
    };
    Ok(match entries.next().transpose().with_context(cannot)? {
        None => Found::Empty,
        Some(entry) => Found::Entry(entry.file_name().to_string_lossy().into_owned()),
    })
}

fn is_demo(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join(NOTE)).is_ok_and(|text| text.starts_with(MARK))
}

fn note() -> String {
    format!(
        "{MARK}: {DATABASE} is a database with TPC-C data, to try things on.\n\n\
         Nothing else needs this folder. `gannet demo --again` replaces the database; when you have seen enough, remove the folder.\n"
    )
}

/// Removes the database of an earlier demo, unless somebody works with it.
fn remove_earlier(folder: &Path) -> Result<()> {
    let path = folder.join(DATABASE);
    // Nothing is touched of the memory that is not needed, so the usual budget does no harm.
    let engine = Engine::new(&EngineOptions::default())?;
    match engine.open(&path, &OpenOptions::default()) {
        Err(Error::InUse(why)) => bail!("{why}: it cannot be replaced now"),
        Ok(database) => database.close().with_context(|| format!("cannot close {path:?}"))?,
        // What cannot be opened, an interrupted demo has left.
        Err(_) => {}
    }
    remove_database(folder).with_context(|| format!("cannot remove {path:?}"))
}

/// What is not there need not be removed.
fn there(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes everything that belongs to the database.
fn remove_database(folder: &Path) -> std::io::Result<()> {
    there(std::fs::remove_file(folder.join(DATABASE)))?;
    for suffix in ["-wal", "-socket"] {
        there(std::fs::remove_dir_all(folder.join(format!("{DATABASE}{suffix}"))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_kept_goes_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        let place = Place::take(&folder, false).unwrap();
        std::fs::write(place.database(), "data").unwrap();
        std::fs::create_dir(folder.join("demo.gnt-wal")).unwrap();
        drop(place);
        assert!(!folder.exists());
        // A folder that was there stays.
        drop(Place::take(root.path().join("a").as_path(), false).unwrap());
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn only_a_demos_folder_is_taken_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        let mut place = Place::take(folder, false).unwrap();
        place.keep();
        std::fs::write(place.database(), "data").unwrap();
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        drop(place);
        let error = Place::take(folder, false).err().unwrap().to_string();
        assert!(error.contains("earlier demo") && error.contains("--again"), "{error}");
        Place::take(folder, true).unwrap().keep();
        assert_eq!(names(folder), [NOTE, "notes.txt"]);

        std::fs::write(folder.join(NOTE), "Something else").unwrap();
        let error = Place::take(folder, true).err().unwrap().to_string();
        assert!(error.contains("holds something else"), "{error}");
        assert_eq!(std::fs::read_to_string(folder.join(NOTE)).unwrap(), "Something else");
        let error = Place::take(&folder.join(NOTE), true).err().unwrap().to_string();
        assert!(error.contains("is no folder"), "{error}");
    }
}
