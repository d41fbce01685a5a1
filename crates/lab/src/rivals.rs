//! Rivals that are C libraries: a small program for each, built where a measurement wants it, so that the laboratory itself needs none of them.
//!
//! The programs take the workloads' options by the names that `gannet-lab store` has, and print what it prints.

use crate::confine::installed;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the programs share.
const COMMON: &str = include_str!("../rivals/common.h");
/// The C compiler.
const COMPILER: &str = "cc";

/// A library's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    source: &'static str,
    header: &'static str,
    library: &'static str,
    /// How to get what it needs.
    pub how: &'static str,
}

/// Berkeley DB 5.3.
pub const BERKELEY_DB: Program = Program {
    name: "berkeley-db",
    source: include_str!("../rivals/bdb.c"),
    header: "db.h",
    library: "db",
    how: "apt-get install gcc libc6-dev libdb5.3-dev",
};

/// LMDB.
pub const LMDB: Program = Program {
    name: "lmdb",
    source: include_str!("../rivals/lmdb.c"),
    header: "lmdb.h",
    library: "lmdb",
    how: "apt-get install gcc libc6-dev liblmdb-dev",
};

/// RocksDB.
pub const ROCKSDB: Program = Program {
    name: "rocksdb",
    source: include_str!("../rivals/rocksdb.c"),
    header: "rocksdb/c.h",
    library: "rocksdb",
    how: "apt-get install gcc libc6-dev librocksdb-dev",
};

/// All of them.
pub const ALL: [Program; 3] = [BERKELEY_DB, LMDB, ROCKSDB];

impl Program {
    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|program| program.name == name)
    }

    /// Whether there is a compiler, and the library's header.
    pub fn can_be_built(self) -> bool {
        let Some(compiler) = installed(COMPILER) else { return false };
        let mut command = Command::new(compiler);
        command.args(["-include", self.header, "-fsyntax-only", "-x", "c", "/dev/null"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Where it is, once it has been built in this folder.
    pub fn within(self, folder: &Path) -> PathBuf {
        folder.join(self.name)
    }

    /// Builds it in a folder.
    ///
    /// # Errors
    /// There is no compiler, or it complains: mostly as the library is missing.
    pub fn build(self, folder: &Path) -> Result<PathBuf> {
        let compiler =
            installed(COMPILER).with_context(|| format!("there is no C compiler: {}", self.how))?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
        let (source, program) = (folder.join(format!("{}.c", self.name)), self.within(folder));
        fs::write(folder.join("common.h"), COMMON).with_context(|| format!("cannot write in {folder:?}"))?;
        fs::write(&source, self.source)?;
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&program).arg(&source);
        command.arg(format!("-l{}", self.library)).stdin(Stdio::null());
        let done = command.output().context("cannot start the C compiler")?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or("it says nothing");
            bail!("cannot build {}: {} ({first})", self.name, self.how);
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_library_is_missing_says_how_to_get_it() {
        let missing = Program { header: "no/such/header.h", source: "#include <no/such/header.h>", ..LMDB };
        assert!(!missing.can_be_built());
        let folder = tempfile::tempdir().unwrap();
        let said = format!("{:#}", missing.build(folder.path()).unwrap_err());
        assert!(said.contains("liblmdb-dev"), "{said}");
    }

    #[test]
    fn programs_have_names_of_their_own() {
        for program in ALL {
            assert_eq!(Program::named(program.name), Some(program));
        }
        assert_eq!(Program::named("dbm"), None);
    }
}
