//! Backups that come from elsewhere, as a stream, and are kept here among others.
//!
//! # What it guarantees
//! 1. What is kept was whole when it came: each frame by its checksum, all of them by the end, which counts them.
//! 2. It is the backup that was asked for: of that copy of that database, adding to that other backup, or to none.
//! 3. As with a backup that is taken here, the manifest comes last, and what is broken off goes (`sink`).

use super::format::{HEAD, STORED_MAX};
use super::lineage::Lineage;
use super::manifest::{Begin, Manifest};
use super::place::BackupPlace;
use super::set::{Among, Since, Taken};
use super::sink::{Destination, Sink};
use super::source::{Feed, Item};
use crate::block::Block;
use crate::engine::Engine;
use crate::jobs::{Unit, Watch};
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_io::ModeRequest;
use std::io::Read;

/// Frames under way to the destination, or at hand.
const BLOCKS: usize = 4;

/// Where a backup that comes from elsewhere is kept.
#[derive(Clone, Debug)]
pub struct Reception {
    /// The folder, which is there.
    pub folder: BackupPlace,
    /// The backup that it is to add to; `None` for a full one.
    pub since: Option<Since>,
    /// See [`BackupPlan::keep`](crate::BackupPlan::keep).
    pub keep: Option<u32>,
    /// What the database is that it is taken of.
    pub lineage: Lineage,
    /// Its frames will be compressed: how much room it takes is not known.
    pub compressed: bool,
    /// How files are opened.
    pub mode: ModeRequest,
}

/// Whom to ask for a backup that adds to another one, or to none: gives its stream.
pub type Ask<'a> = &'a mut dyn FnMut(Option<&Manifest>) -> Result<Box<dyn Read + Send>>;

/// See [`Engine::receive_backup`].
pub(crate) fn run(
    engine: &Engine,
    reception: &Reception,
    ask: Ask<'_>,
    watch: &mut Watch<'_>,
) -> Result<Taken> {
    let Reception { folder, since, keep, lineage, .. } = reception;
    let among = Among { folder, since: since.as_ref(), keep: *keep, lineage };
    among.take(watch, &mut |destination, since, watch| {
        let stream = ask(since.as_ref())?;
        let after = since.as_ref().map(|since| &since.begin);
        let feed = Feed::going_on(engine, stream, after, reception.mode)?;
        let mut receiving = Receiving { engine, reception, since: since.as_ref(), feed };
        Ok((receiving.all(destination, watch)?, None))
    })
}

struct Receiving<'r> {
    engine: &'r Engine,
    reception: &'r Reception,
    since: Option<&'r Manifest>,
    feed: Feed,
}

impl Receiving<'_> {
    /// Keeps what comes; gives what it says of itself.
    fn all(&mut self, destination: Destination, watch: &mut Watch<'_>) -> Result<Manifest> {
        let is_full = self.since.is_none();
        let expected = if is_full { self.reception.lineage.bytes() } else { 0 };
        watch.job().phase("receives the backup", Unit::Bytes, expected);
        let queue = self.engine.disk().queue(BLOCKS)?;
        let mut blocks = Vec::with_capacity(BLOCKS);
        for _ in 0..BLOCKS {
            let memory = self.engine.memory(Purpose::Io, (HEAD + STORED_MAX) as u64)?;
            blocks.push(Block::new(&queue, memory));
        }
        let Some(Item::Begin(begin)) = self.feed.next(blocks[0].bytes())? else {
            return Err(Error::Backup("nothing came that is a backup".to_owned()));
        };
        self.check(&begin)?;
        // The frame is in the block, whole.
        let first = self.feed.done() as usize;
        let mut sink = Sink::new(destination, self.reception.mode, &blocks[0].bytes()[..first])?;
        if is_full && !self.reception.compressed {
            sink.check_room(expected)?;
        }
        // How long an object may become depends on it: an incremental one is no longer than a full one, but for the log.
        sink.expect(self.engine, self.reception.lineage.bytes(), 0)?;
        let outcome = self.rest(&sink, &mut blocks, watch);
        // However that went, nothing is on its way any more when the file is sealed or removed.
        let mut waited = Ok(());
        for block in &mut blocks {
            waited = waited.and(block.wait());
        }
        let manifest = outcome?;
        waited.map_err(|error| super::failed(&error))?;
        watch.job().phase("makes it durable", Unit::Bytes, 0);
        watch.look()?;
        sink.seal(&manifest, &mut || watch.look())?;
        Ok(manifest)
    }

    /// Keeps everything behind the first frame, up to the end.
    fn rest(&mut self, sink: &Sink, blocks: &mut [Block], watch: &mut Watch<'_>) -> Result<Manifest> {
        for turn in 1.. {
            let turn: usize = turn % blocks.len();
            let block = &mut blocks[turn];
            block.wait().map_err(|error| super::failed(&error))?;
            watch.look()?;
            let before = self.feed.done();
            let item = self.feed.next(block.bytes())?;
            let len = (self.feed.done() - before) as usize;
            let end = match item {
                Some(Item::Frame(frame)) => {
                    frame.check(block.bytes())?;
                    None
                }
                Some(Item::End(manifest)) => Some(*manifest),
                // The feed finds what is cut off.
                Some(Item::Begin(_)) | None => {
                    return Err(Error::Backup("another backup came than one".to_owned()));
                }
            };
            sink.put(block, len, None)?;
            watch.job().advance(len as u64);
            watch.job().count_written(len as u64);
            if let Some(manifest) = end {
                return Ok(manifest);
            }
        }
        unreachable!("turns do not end")
    }

    /// Refuses another backup than was asked for.
    fn check(&self, begin: &Begin) -> Result<()> {
        let parent = self.since.map(|since| since.begin.backup_id);
        let is_parent = begin.parent.map(|parent| parent.backup_id) == parent;
        match self.reception.lineage.is_begun_here(begin) && is_parent {
            true => Ok(()),
            false => Err(Error::Backup("another backup came than was asked for".to_owned())),
        }
    }
}
