//! Pages in use: latched shared or exclusively, or looked at without a latch.
#![expect(unsafe_code, reason = "a guard holds the latch that its frame's bytes need")]

use super::Pool;
use super::latch::Version;
use crate::mutation::{Mutation, planted};
use crate::node::RacyNode;
use gannet_base::{Lsn, PageId};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

/// Changes after which a page is to be written, though it need not make room: after a crash somebody will wait until as many
/// are found in the log, one by one.
const CHANGED_OFTEN: u32 = 64;

/// A page latched shared.
#[derive(Debug)]
pub(crate) struct SharedPage<'p> {
    pub(super) pool: &'p Pool,
    pub(super) index: u32,
    pub(super) id: PageId,
}

impl SharedPage<'_> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }
}

impl Deref for SharedPage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the latch shared.
        unsafe { self.pool.bytes(self.index) }
    }
}

impl Drop for SharedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.frames[self.index as usize].latch.release_shared();
    }
}

/// A page latched exclusively.
#[derive(Debug)]
pub(crate) struct ExclusivePage<'p> {
    pub(super) pool: &'p Pool,
    pub(super) index: u32,
    pub(super) id: PageId,
}

impl ExclusivePage<'_> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Whether somebody who is likely to use it again has used it since the eviction hand came by.
    pub(crate) fn was_used(&self) -> bool {
        self.pool.frames[self.index as usize].referenced.load(Ordering::Relaxed)
    }

    /// Whether it is dirty, and the log has whole contents of it: see [`super::Pool::is_whole_in_log`].
    pub(crate) fn is_whole_in_log(&self) -> bool {
        let frame = &self.pool.frames[self.index as usize];
        frame.rec_lsn.load(Ordering::Relaxed) != 0 && self.pool.is_whole_in_log(self.index)
    }

    /// The page is about to change by a record that starts at or behind `log_end`; `whole`: which has its whole contents.
    pub(crate) fn mark_dirty(&self, log_end: Lsn, whole: bool) {
        let frame = &self.pool.frames[self.index as usize];
        let is_first = frame.rec_lsn.load(Ordering::Relaxed) == 0;
        if whole || (is_first && !planted(Mutation::OnceWholeForEver)) {
            frame.whole_in_log.store(whole, Ordering::Relaxed);
        }
        if is_first {
            frame.rec_lsn.store(log_end.0.max(1), Ordering::Release);
        }
        // Under the exclusive latch nobody else counts.
        let changes = frame.changes.load(Ordering::Relaxed) + 1;
        frame.changes.store(changes, Ordering::Relaxed);
        if changes.is_multiple_of(CHANGED_OFTEN) {
            self.pool.changed_often.lock().push(self.index);
        }
    }

    /// Lets go of a page that was not changed: who looked at it without a latch need not start over.
    pub(crate) fn release_unchanged(self) {
        let page = ManuallyDrop::new(self);
        page.pool.frames[page.index as usize].latch.release_exclusive_unchanged();
    }

    /// Gives the page other contents while optimistic readers may be looking at it.
    pub(crate) fn publish(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.pool.page_size);
        // SAFETY: the frame is page-aligned, mapped and as long as asserted; this guard holds the latch exclusively.
        unsafe { RacyNode::publish(self.pool.address(self.index), bytes) }
    }
}

impl Deref for ExclusivePage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.pool.bytes(self.index) }
    }
}

impl DerefMut for ExclusivePage<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.pool.bytes_mut(self.index) }
    }
}

impl Drop for ExclusivePage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.frames[self.index as usize].latch.release_exclusive();
    }
}

/// A page looked at without a latch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptimisticPage<'p> {
    pub(super) pool: &'p Pool,
    pub(super) index: u32,
    pub(super) id: PageId,
    pub(super) version: Version,
}

impl<'p> OptimisticPage<'p> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Address of the page's bytes: to be read through relaxed atomic loads only, and trusted only after
    /// [`OptimisticPage::validate`]. It stays mapped as long as the pool.
    pub(crate) fn address(&self) -> *const u8 {
        self.pool.address(self.index)
    }

    /// Whether everything read so far was the unchanged page.
    #[inline]
    pub(crate) fn validate(&self) -> bool {
        self.pool.frames[self.index as usize].latch.validate(self.version)
    }

    /// Latches the page shared, if it has not changed since.
    pub(crate) fn into_shared(self) -> Option<SharedPage<'p>> {
        let latch = &self.pool.frames[self.index as usize].latch;
        if !latch.shared_while(|| latch.version_is(self.version)) {
            return None;
        }
        let guard = SharedPage { pool: self.pool, index: self.index, id: self.id };
        latch.version_is(self.version).then_some(guard)
    }
}
