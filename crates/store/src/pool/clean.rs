//! What the page writer needs: which frames are dirty, and copies of them.
#![expect(unsafe_code, reason = "copies the bytes of a frame that is latched shared")]

use super::{Frame, FrameKey, MIN_FRAMES, Pool, State, Volume, page};
use gannet_base::{Lsn, PageId};
use std::sync::atomic::Ordering;

/// One of so many frames is kept clean ahead of the eviction hand.
const AHEAD_SHARE: usize = 8;

impl Pool {
    /// Frames of the volume that are dirty and not being written: (frame, page, rec_lsn).
    pub(crate) fn dirty_frames(&self, volume: &Volume, out: &mut Vec<(u32, PageId, Lsn)>) {
        out.clear();
        for (index, frame) in self.frames.iter().enumerate() {
            let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
            if rec_lsn != 0 && !frame.writing.load(Ordering::Acquire) {
                let key = self.table.key(index as u32);
                if key != FrameKey::NONE && key.volume() == volume.slot {
                    out.push((index as u32, key.page(), Lsn(rec_lsn)));
                }
            }
        }
    }

    /// The frame of a page, if it is dirty.
    pub(crate) fn dirty_frame(&self, volume: &Volume, id: PageId) -> Option<u32> {
        let key = FrameKey::new(volume.slot, id);
        let index = self.table.find_locked(key, &self.table.lock(key))?;
        (self.frames[index as usize].rec_lsn.load(Ordering::Acquire) != 0).then_some(index)
    }

    /// Smallest rec_lsn of the volume's dirty frames.
    pub(crate) fn min_rec_lsn(&self, volume: &Volume) -> Option<Lsn> {
        let of_volume = |(index, frame): (usize, &Frame)| {
            let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
            (rec_lsn != 0 && self.table.key(index as u32).volume() == volume.slot).then_some(Lsn(rec_lsn))
        };
        self.frames.iter().enumerate().filter_map(of_volume).min()
    }

    /// Of the frames that the eviction hand would empty next if nobody used them meanwhile, the volume's dirty ones, in the
    /// order in which it meets them; none while frames are free. With `urgent`, when somebody waits for a frame, clean ones
    /// count for nothing, as they may all be latched, and those used since the hand came by follow where there are not
    /// enough others.
    pub(crate) fn next_victims(&self, volume: &Volume, urgent: bool, out: &mut Vec<(u32, PageId)>) {
        let frames = self.frames.len();
        if !urgent && !self.free.lock().is_empty() {
            return;
        }
        let hand = self.hand.load(Ordering::Relaxed);
        let mut wanted = self.ahead();
        for spared in [false, true] {
            if spared && !urgent {
                break;
            }
            for step in 0..frames {
                if wanted == 0 {
                    return;
                }
                let index = (hand + step) % frames;
                let frame = &self.frames[index];
                let usable = matches!(frame.state(), State::Valid | State::Raw | State::Failed);
                if !usable || frame.referenced.load(Ordering::Relaxed) != spared {
                    continue;
                }
                if frame.rec_lsn.load(Ordering::Acquire) == 0 || frame.writing.load(Ordering::Acquire) {
                    wanted -= usize::from(!urgent);
                    continue;
                }
                // Others' dirty frames count for nothing either: their database may be unable to write.
                let key = self.table.key(index as u32);
                if key != FrameKey::NONE && key.volume() == volume.slot {
                    wanted -= 1;
                    out.push((index as u32, key.page()));
                }
            }
        }
    }

    /// The volume's pages that were changed so often since they were written that their history has become long.
    pub(crate) fn take_changed_often(&self, volume: &Volume, out: &mut Vec<(u32, PageId)>) {
        self.changed_often.lock().retain(|&index| {
            let key = self.table.key(index);
            let is_ours = key != FrameKey::NONE && key.volume() == volume.slot;
            if is_ours {
                out.push((index, key.page()));
            }
            // Those without a page have nothing to be written any more.
            !is_ours && key != FrameKey::NONE
        });
    }

    /// Lets the dirty pages of databases that will never write again count as clean, as they are in the way of others. From
    /// then on no page of such a database is read from the device, where it may be older than the one that was forgotten.
    /// Says whether there were any.
    pub(super) fn forget_unwritable(&self) -> bool {
        let mut found = false;
        self.volumes.forget_ended(|volume| {
            for (index, frame) in self.frames.iter().enumerate() {
                let dirty =
                    frame.rec_lsn.load(Ordering::Acquire) != 0 || frame.writing.load(Ordering::Acquire);
                if !dirty || !frame.latch.try_shared() {
                    continue;
                }
                // As long as it is latched the frame keeps its page.
                let key = self.table.key(index as u32);
                if key != FrameKey::NONE && key.volume() == volume.slot && frame.state() == State::Valid {
                    frame.rec_lsn.store(0, Ordering::Release);
                    frame.writing.store(false, Ordering::Release);
                    found = true;
                }
                frame.latch.release_shared();
            }
        });
        found
    }

    /// How many frames ahead of the eviction hand the page writers keep clean.
    fn ahead(&self) -> usize {
        (self.frames.len() / AHEAD_SHARE).max(MIN_FRAMES / 4)
    }

    /// The frames ahead of the eviction hand are clean as far as they can be: page writers are to be told when half of
    /// them are used up.
    pub(crate) fn tell_when_used_up(&self) {
        let evicted = self.stats.evicted.load(Ordering::Relaxed);
        self.tell_at.store(evicted + self.ahead() as u64 / 2, Ordering::Relaxed);
    }

    /// Whether the log has whole contents of a frame's page, or nothing leads to it yet. As long as that is dirty, this does not become false
    /// again.
    pub(crate) fn is_whole_in_log(&self, index: u32) -> bool {
        self.frames[index as usize].whole_in_log.load(Ordering::Relaxed)
    }

    /// Copies a dirty page out for writing and marks the frame as being written. `register` is told the page's
    /// rec_lsn before the frame forgets it. Gives its LSN, and whether the log has whole contents of it behind its rec_lsn. `None` when
    /// the frame is busy or no longer that dirty page.
    pub(crate) fn copy_for_write(
        &self,
        volume: &Volume,
        index: u32,
        id: PageId,
        out: &mut [u8],
        register: &mut dyn FnMut(Lsn),
    ) -> Option<(Lsn, bool)> {
        let frame = &self.frames[index as usize];
        if !frame.latch.try_shared() {
            return None;
        }
        let rec_lsn = frame.rec_lsn.load(Ordering::Acquire);
        let ours = self.table.key(index) == FrameKey::new(volume.slot, id)
            && frame.state() == State::Valid
            && rec_lsn != 0
            && !frame.writing.load(Ordering::Acquire);
        let mut copied = None;
        if ours {
            // SAFETY: the frame is latched shared.
            let bytes = unsafe { self.bytes(index) };
            out.copy_from_slice(bytes);
            copied = Some((page::lsn(out), frame.whole_in_log.load(Ordering::Relaxed)));
            register(Lsn(rec_lsn));
            frame.writing.store(true, Ordering::Release);
            frame.rec_lsn.store(0, Ordering::Release);
            frame.changes.store(0, Ordering::Relaxed);
        }
        frame.latch.release_shared();
        copied
    }

    /// The write of a frame has reached its home: the frame may be evicted again (unless changed meanwhile).
    pub(crate) fn finish_write(&self, index: u32) {
        self.frames[index as usize].writing.store(false, Ordering::Release);
    }
}
