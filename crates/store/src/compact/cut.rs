//! Cutting off the end of the file.
//!
//! # Why a crash at any point is harmless
//! What is cut off was in use once, and the log has its changes. Redo must not need such a page, as its bytes are gone, nor bring it back. So:
//!
//! 1. Nobody goes through the file as a whole ([`super::Layout`]): a backup has the log from its start on, and its copy is redone from there.
//! 2. *Let go*: under the space lock the end moves in front of what is free. From now on nothing behind it is given out, unless the file grows again; groups that
//!    lie behind it as a whole are forgotten, and with them their maps. All changes of pages behind the end are in the log by now. Of this only the number
//!    of groups is written, to the header, before anybody goes through the file: after a crash the file is as long as it was, and everything behind is
//!    free, as its maps say, which redo brings up to date; and an opening that finds them there forgets them again (`space::emptying`, invariant 4).
//! 3. *Home*: what is dirty behind the end goes home, durably, maps that are not counted any more among it. Nobody makes any of it dirty again but by
//!    taking it anew. So the log has a note of each page there that it came home, but where there was no room for one (see below); and the log
//!    becomes durable, notes and all. From now on redo leaves out all of these pages. Wherever went what was on them, the log has what is there now.
//! 4. *Header*: both copies say how many groups there are, and where the log is, durably, before the file is shorter: a header never counts a map that the file does
//!    not have. A crash behind this finds the file longer than it needs to be, and may find maps behind those that are counted: they
//!    say that everything is free.
//! 5. *Cut*, by steps: with the space lock held, so that the file does not grow meanwhile, and with no page on its way home, the file gets shorter. Whether a crash
//!    keeps that does not matter: with it, nothing refers to what is gone; without, it is as in 4. So it is between two steps, where the file may grow,
//!    or somebody go through it as a whole: what is behind the end is free for him as for anybody else.
//!
//! A note is left out where the log has no room for it, or its footers cannot tell of one (`writeback`, invariant 5). Then the checkpoint moves behind what lacks one before anything is cut off. That a
//! crash has taken notes does not matter: what the next life finds to be as it should be it writes again (`recovery`).
//!
//! The header says where the log was at the last cut: of a page that reads as zeros, changes up to there that the log still has are no write that was lost.
//!
//! If the file has to grow between 2 and 5, the end moves back accordingly, and less is cut off. Growth later gives zeros, or, where a crash did not keep the
//! cut, old bytes of free pages: either is what any free page may have. Whatever is put there begins with its first contents in the log,
//! or is durable at home before anything leads to it.
//!
//! The double-write ring may still hold a page behind the end. Healing leaves out homes behind the end of the file. If the file has grown again by then, what is
//! healed is a free page, or one whose first contents are in the log and not home; had it come home since, the slot would be known to be retired.

use super::Compaction;
use crate::Result;
use crate::jobs::Unit;
use crate::mutation::{Mutation, planted};
use gannet_base::{Lsn, PageId};
use gannet_io::Class;

/// Bytes that are cut off at one time: a file system that discards what it frees stops everybody's syncs meanwhile.
const CUT_AT_ONCE: u64 = 16 << 20;
/// How often it is tried to bring pages home, or to move the checkpoint far enough.
const ATTEMPTS: usize = 100;

impl Compaction {
    /// Cuts off what is free at the end of the file.
    pub(super) fn cut(&self) -> Result<()> {
        let core = &self.shared.core;
        let page_size = core.page_size as u64;
        let length = core.volume.file.len()?;
        if core.space.end_in_use(core)? * page_size >= length {
            return Ok(());
        }
        self.job.phase("gives back the end of the file", Unit::Bytes, 0);
        // Most of it before anybody has to wait.
        let end_in_use = PageId(core.space.end_in_use(core)?);
        self.bring_home(&|| end_in_use, core.log.end(), true)?;
        self.outdate_unnoted(true)?;
        let mut moving = self.moving()?;
        let pages = core.space.retreat(core)?;
        // However this ends: a backup is not to count fewer groups than the next opening has by the header.
        core.log.flush_to(core.log.end())?;
        self.note_end(core.space.groups(), core.space.cut_at())?;
        // It moves back where the file has to grow meanwhile.
        let end = || PageId(core.space.capacity());
        let is_shorter = pages * page_size < length;
        if !is_shorter || !self.bring_home(&end, Lsn(u64::MAX), false)? || !self.outdate_unnoted(false)? {
            return Ok(());
        }
        core.log.flush_to(core.log.end())?;
        let mut is_first = true;
        while let Some(is_last) = self.cut_step(is_first)? {
            core.volume.file.sync(Class::Maintenance).inspect_err(|e| core.poison.set(e.to_string()))?;
            if is_last {
                break;
            }
            is_first = false;
            drop(moving);
            self.pace()?;
            moving = self.moving()?;
        }
        Ok(())
    }

    /// Writes the header: how many groups there are, and where the log was at the last cut.
    fn note_end(&self, groups: u64, cut_at: Lsn) -> Result<()> {
        (self.write_header)(groups, cut_at).inspect_err(|error| self.shared.core.poison.set_by(error))
    }

    /// Brings home what is dirty from page `first` on since `before`; false where something stays busy. Where others wait for us it is not `paced`:
    /// there is not much left then.
    fn bring_home(&self, first: &dyn Fn() -> PageId, before: Lsn, paced: bool) -> Result<bool> {
        if planted(Mutation::CutTooEarly) {
            return Ok(true);
        }
        for _ in 0..ATTEMPTS {
            let wrote = self
                .shared
                .writer
                .write_from(first(), before, &mut |bytes| self.before_write(bytes, paced))?;
            if !wrote {
                return Ok(true);
            }
            gannet_base::thread::yield_now();
        }
        Ok(false)
    }

    /// Moves the checkpoint behind what may have come home without a note of it; false where something stays busy.
    fn outdate_unnoted(&self, paced: bool) -> Result<bool> {
        let writer = &self.shared.writer;
        let target = writer.unnoted_up_to();
        for _ in 0..ATTEMPTS {
            if writer.redo_from() >= target {
                return Ok(true);
            }
            self.check()?;
            writer.flush_below(target, &mut |bytes| self.before_write(bytes, paced).map(|()| true))?;
            gannet_base::thread::yield_now();
        }
        Ok(false)
    }

    /// Before so many bytes are written.
    fn before_write(&self, bytes: u64, paced: bool) -> Result<()> {
        if paced {
            self.pace()?;
        }
        self.job.count_written(bytes);
        self.check()
    }

    /// Cuts off a part of what is behind the end, at the file's end; says whether it was the last one, or nothing where somebody is still busy
    /// there. What is left until the next step is as free as before: whoever needs room may take it again.
    fn cut_step(&self, is_first: bool) -> Result<Option<bool>> {
        let core = &self.shared.core;
        let mut end = core.space.hold_end();
        let first = PageId(end.pages());
        let done = self.shared.writer.while_still(|| {
            let mut dirty = Vec::new();
            core.pool.dirty_frames(&core.volume, &mut dirty);
            if dirty.iter().any(|&(_, page, _)| page >= first) && !planted(Mutation::CutTooEarly) {
                return Ok(None);
            }
            if is_first {
                let log_end = core.log.end();
                self.note_end(end.groups(), log_end)?;
                core.space.set_cut_at(log_end);
            }
            let (length, wanted) = (core.volume.file.len()?, end.pages() * core.page_size as u64);
            let next = wanted.max(length.saturating_sub(CUT_AT_ONCE)).min(length);
            core.volume.file.set_len(next)?;
            Ok(Some(next <= wanted))
        })?;
        if done == Some(true) {
            end.was_cut();
        }
        drop(end);
        core.pool.forget_behind(&core.volume, first);
        Ok(done)
    }
}
