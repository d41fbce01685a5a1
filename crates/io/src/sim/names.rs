//! Names of files and folders: what is seen, what is durable, and the changes in between.

use crate::error::is_taken;
use crate::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Names at one time.
#[derive(Clone, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
}

impl Tree {
    /// The root and the current folder are always there.
    pub(super) fn has_folder(&self, path: &Path) -> bool {
        path.parent().is_none() || self.folders.contains(path)
    }

    /// Every folder but the root and the current one, in order.
    pub(super) fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.folders.iter()
    }

    fn is_empty_folder(&self, path: &Path) -> bool {
        let within = |other: &PathBuf| other.parent() == Some(path);
        !self.files.keys().any(within) && !self.folders.iter().any(within)
    }

    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Folder(path) => {
                self.folders.insert(path.clone());
            }
            NameChange::RemoveFolder(path) => {
                if self.is_empty_folder(path) {
                    self.folders.remove(path);
                }
            }
            NameChange::Link(path, inode) => {
                self.files.insert(path.clone(), *inode);
            }
            // After a crash an earlier change may be missing: what cannot be done any more has no effect, so a file
            // never gets two names or loses its only one to a rename.
            NameChange::Unlink(path, inode) => {
                if self.files.get(path) == Some(inode) {
                    self.files.remove(path);
                }
            }
            NameChange::Rename(from, to, inode) => {
                if self.files.get(from) == Some(inode) {
                    self.files.remove(from);
                    self.files.insert(to.clone(), *inode);
                }
            }
        }
    }

    /// Removes whatever lies in a folder that is not there.
    fn prune(&mut self) {
        // In path order a folder comes before its subfolders.
        for folder in self.folders.clone() {
            if !folder.parent().is_none_or(|parent| self.has_folder(parent)) {
                self.folders.remove(&folder);
            }
        }
        let folders = std::mem::take(&mut self.files);
        self.files = folders
            .into_iter()
            .filter(|(path, _)| path.parent().is_none_or(|p| self.has_folder(p)))
            .collect();
    }
}

#[derive(Clone)]
enum NameChange {
    Folder(PathBuf),
    RemoveFolder(PathBuf),
    Link(PathBuf, u64),
    Unlink(PathBuf, u64),
    Rename(PathBuf, PathBuf, u64),
}

#[derive(Clone)]
struct NameEffect {
    sequence: u64,
    folder: PathBuf,
    change: NameChange,
}

/// All names of a disk.
#[derive(Clone, Default)]
pub(super) struct Names {
    pub(super) live: Tree,
    pub(super) durable: Tree,
    pending: Vec<NameEffect>,
}

impl Names {
    /// Names after a restart.
    pub(super) fn settled(tree: Tree) -> Self {
        Names { live: tree.clone(), durable: tree, pending: Vec::new() }
    }

    fn change(&mut self, sequence: u64, folder: PathBuf, change: NameChange) {
        self.live.apply(&change);
        self.pending.push(NameEffect { sequence, folder, change });
    }

    pub(super) fn create_folder(&mut self, sequence: u64, path: &Path) -> Result<()> {
        let parent = self.parent("create folder", path)?;
        self.change(sequence, parent, NameChange::Folder(path.to_owned()));
        Ok(())
    }

    pub(super) fn remove_folder(&mut self, sequence: u64, path: &Path) -> Result<()> {
        let operation = "remove folder";
        if !self.live.folders.contains(path) {
            return Err(Error::new(ErrorKind::NotFound, operation, path, "no such folder"));
        }
        if !self.live.is_empty_folder(path) {
            return Err(invalid(operation, path, "it is not empty"));
        }
        let parent = self.parent(operation, path)?;
        self.change(sequence, parent, NameChange::RemoveFolder(path.to_owned()));
        Ok(())
    }

    pub(super) fn link(&mut self, sequence: u64, path: &Path, inode: u64) -> Result<()> {
        let parent = self.parent("create", path)?;
        self.change(sequence, parent, NameChange::Link(path.to_owned(), inode));
        Ok(())
    }

    pub(super) fn unlink(&mut self, sequence: u64, path: &Path) -> Result<()> {
        let inode = self.file("remove", path)?;
        let parent = self.parent("remove", path)?;
        self.change(sequence, parent, NameChange::Unlink(path.to_owned(), inode));
        Ok(())
    }

    pub(super) fn rename(&mut self, sequence: u64, from: &Path, to: &Path) -> Result<()> {
        let inode = self.file("rename", from)?;
        let parent = self.parent("rename", from)?;
        if to.parent() != Some(&parent) || self.live.has_folder(to) {
            return Err(invalid("rename", from, "only to another file name of the same folder"));
        }
        if from != to {
            self.change(sequence, parent, NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        }
        Ok(())
    }

    pub(super) fn rename_new(&mut self, sequence: u64, from: &Path, to: &Path) -> Result<()> {
        match self.live.files.contains_key(to) || self.live.has_folder(to) {
            true => Err(is_taken(from, to)),
            false => self.rename(sequence, from, to),
        }
    }

    /// The file of that name.
    pub(super) fn file(&self, operation: &'static str, path: &Path) -> Result<u64> {
        if self.live.has_folder(path) {
            return Err(invalid(operation, path, "a folder"));
        }
        let not_found = || Error::new(ErrorKind::NotFound, operation, path, "no such file");
        self.live.files.get(path).copied().ok_or_else(not_found)
    }

    /// The folder a new name belongs to.
    fn parent(&self, operation: &'static str, path: &Path) -> Result<PathBuf> {
        match path.parent() {
            Some(parent) if self.live.has_folder(parent) => Ok(parent.to_owned()),
            _ => Err(Error::new(ErrorKind::NotFound, operation, path, "no such folder")),
        }
    }

    /// A successful sync of a folder: its changes numbered below `cutoff` are durable.
    pub(super) fn sync(&mut self, folder: &Path, cutoff: u64) {
        let durable = &mut self.durable;
        self.pending.retain(|effect| {
            let settled = effect.folder == folder && effect.sequence < cutoff;
            if settled {
                durable.apply(&effect.change);
            }
            !settled
        });
    }

    /// Sequence numbers of the changes not yet durable.
    pub(super) fn pending_sequences(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|effect| effect.sequence)
    }

    /// The durable names and those unsynced changes that `keep` names.
    pub(super) fn image(&self, mut keep: impl FnMut(u64) -> bool) -> Tree {
        let mut tree = self.durable.clone();
        for effect in &self.pending {
            if keep(effect.sequence) {
                tree.apply(&effect.change);
            }
        }
        tree.prune();
        tree
    }

    /// Every file that a name refers to, or may refer to after a crash.
    pub(super) fn referenced(&self) -> BTreeSet<u64> {
        let pending = self.pending.iter().filter_map(|effect| match &effect.change {
            NameChange::Folder(_) | NameChange::RemoveFolder(_) => None,
            NameChange::Link(_, inode) | NameChange::Unlink(_, inode) | NameChange::Rename(_, _, inode) => {
                Some(*inode)
            }
        });
        self.live.files.values().chain(self.durable.files.values()).copied().chain(pending).collect()
    }
}

/// One spelling per place: without `.`; `..` is refused.
pub(super) fn normal(operation: &'static str, path: &Path) -> Result<PathBuf> {
    if path.components().any(|c| c == Component::ParentDir) {
        return Err(invalid(operation, path, "`..` in a path"));
    }
    Ok(path.components().filter(|c| *c != Component::CurDir).collect())
}

fn invalid(operation: &'static str, path: &Path, detail: &str) -> Error {
    Error::new(ErrorKind::Invalid, operation, path, detail)
}
