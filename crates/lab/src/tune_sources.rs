//! What a tuning works on: copies of a database, with the pages that are asked for, in a folder that goes at the end.

use anyhow::{Context, Result, anyhow, bail};
use gannet_base::units::{format_size, parse_size};
use gannet_io::{Disk, RealDisk, RealOptions};
use gannet_lab::confine;
use gannet_lab::gannet;
use gannet_lab::isolation::client::Client;
use gannet_lab::servers::{self, Kind};
use gannet_lab::table::Table;
use gannet_lab::tune::builtin::{self, Size};
use gannet_lab::tune::trial;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Budget in which copies are settled.
const MEMORY: u64 = 512 << 20;

/// How often it is looked whether a restart is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A folder for copies, which goes when this does.
pub(crate) struct Workplace(PathBuf);

/// The folder for copies where nobody names one: beside the database, on its device.
pub(crate) fn beside(database: &Path) -> Result<PathBuf> {
    let name = database.file_name().with_context(|| format!("{database:?} is no file of a database"))?;
    let mut name = name.to_owned();
    name.push(".tune");
    Ok(std::path::absolute(database)?.with_file_name(name))
}

impl Workplace {
    /// Makes it, where there is nothing yet.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        if let Err(error) = fs::create_dir(folder) {
            bail!(
                "cannot make the folder {folder:?} for the copies: {error}; if an earlier run has left it, remove it, else name another one by --work"
            );
        }
        Ok(Workplace(fs::canonicalize(folder)?))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("gannet-lab: cannot remove {:?}: {error}", self.0);
        }
    }
}

/// Fails where there is not so much room for copies.
pub(crate) fn must_have_room(place: &Path, needs: u64) -> Result<()> {
    let free = RealDisk::new(RealOptions::default()).free_bytes(place);
    let free = free.with_context(|| format!("cannot see how much room there is in {place:?}"))?;
    if let Some(free) = free.filter(|&free| free < needs) {
        bail!(
            "copies need about {} of the disk, and there are {} in {place:?}: another disk may have more (--work), fewer sizes of pages need less (--page-size)",
            format_size(needs),
            format_size(free)
        );
    }
    Ok(())
}

/// Copies a database into a new folder for a server. Nobody can open it meanwhile; where somebody has it open already, he makes a backup of it, which is restored.
pub(crate) fn copy(database: &Path, to: &Path, place: &Workplace, stop: &AtomicBool) -> Result<()> {
    servers::make(Kind::Gannet, to)?;
    let target = servers::database(to);
    let source = File::open(database).with_context(|| format!("{database:?}"))?;
    // Who opens a database has its file locked exclusively; a shared lock keeps him out for as long as it is copied.
    match source.try_lock_shared() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            drop(source);
            return backup(database, &target, place, stop);
        }
        Err(fs::TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {database:?}"));
        }
    }
    trial::copy_with_log(database, &target)
}

fn backup(database: &Path, target: &Path, place: &Workplace, stop: &AtomicBool) -> Result<()> {
    let folder = place.folder().join("backup");
    fs::create_dir(&folder)?;
    eprintln!("it is open: its server makes a backup");
    command(&["backup".as_ref(), database.as_os_str(), folder.as_os_str()], stop)?;
    command(&["restore".as_ref(), folder.as_os_str(), target.as_os_str()], stop)?;
    Ok(fs::remove_dir_all(&folder)?)
}

/// Runs a command of Gannet's program; what it prints is read only where it fails.
fn command(words: &[&OsStr], stop: &AtomicBool) -> Result<()> {
    let done = confine::to_end(&servers::gannet()?, words, stop);
    done.map(drop).with_context(|| format!("gannet {}", words.first().unwrap_or(&OsStr::new("")).display()))
}

/// Opens a copy and closes it, so that its file is all of it, and fills the built-in load's table where that is wanted and it is not there; gives the size of
/// its pages.
pub(crate) fn settle(dir: &Path, size: Option<Size>, seed: u64) -> Result<u64> {
    let_us_in(dir)?;
    let server = servers::whole(dir, MEMORY).start()?;
    let mut client = server.client("lab")?;
    // A file that lacks changes is not all of it: what is left of a crash comes first.
    loop {
        match &*one(&mut client, "select phase from gannet_restart")? {
            "done" => break,
            "stopped" => bail!("it is damaged: see gannet check"),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
    let page_size = one(&mut client, "select effective from gannet_settings where name = 'page_size'")?;
    let page_size = parse_size(&page_size)?;
    if let Some(size) = size {
        match builtin::rows(&mut client)? {
            None => builtin::fill(&server.address("lab"), size, seed)?,
            Some(rows) if rows == size.rows => {}
            Some(rows) => bail!(
                "it has a table tune_event of {rows} rows already, where --size asks for {}: give the --size that it was made with, or drop it",
                size.rows
            ),
        }
    }
    drop(client);
    servers::end_whole(server)?;
    Ok(page_size)
}

/// The load comes as the system's user, whom a database that somebody else has made need not know: the copy gets to know him.
fn let_us_in(dir: &Path) -> Result<()> {
    let user = whoami::username().unwrap_or_else(|_| "gannet".to_owned());
    let options = gannet::Options { folder: dir.to_owned(), memory: MEMORY, ..gannet::Options::default() };
    let table = Table::open(&options, false)?;
    let name = user.replace('\'', "''");
    if table.run(&format!("select 1 from pg_roles where rolname = '{name}'"))? == 0 {
        table.run(&format!("create role \"{}\" superuser login", user.replace('"', "\"\"")))?;
    }
    table.close()
}

/// The only value of a query.
fn one(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.run(sql).map_err(|failure| anyhow!("{sql}: {failure}"))?;
    answer.rows.into_iter().flatten().flatten().next().with_context(|| format!("{sql}: no answer"))
}

/// Makes a copy of a settled one, with pages of another size; gives its file.
pub(crate) fn with_pages(
    from: &Path,
    dir: &Path,
    page_size: u64,
    place: &Workplace,
    stop: &AtomicBool,
) -> Result<PathBuf> {
    let dump = place.folder().join("dump.sql");
    servers::make(Kind::Gannet, dir)?;
    let file = servers::database(dir);
    if !dump.exists() {
        command(&["dump".as_ref(), servers::database(from).as_os_str(), dump.as_os_str()], stop)?;
    }
    let page_size = page_size.to_string();
    let options = [OsStr::new("--create"), OsStr::new("--page-size"), page_size.as_ref()];
    command(&[&["load".as_ref(), dump.as_os_str(), file.as_os_str()][..], &options].concat(), stop)?;
    // What the load has left to the next start comes home.
    servers::end_whole(servers::whole(dir, MEMORY).start()?)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_for_copies_is_beside_the_database_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let place = beside(&folder.path().join("shop.gnt")).unwrap();
        assert_eq!(place, folder.path().join("shop.gnt.tune"));
        let made = Workplace::make(&place).unwrap();
        let Err(error) = Workplace::make(&place) else { panic!("it was there") };
        assert!(error.to_string().contains("--work"), "{error}");
        drop(made);
        assert!(!place.exists());
    }
}
