//! Planted faults: the store does without one of its safeguards, so that the simulation shows that it would notice.
//!
//! # What it guarantees
//! 1. Without the feature `mutations` nothing can be planted, and [`planted`] is `false` when the code is compiled: no trace
//!    of it is left in a release.
//! 2. With it nothing is planted before [`plant`] says so. What is planted holds for the whole process.
//!
//! Each place that asks is one at which a safeguard is left out, and says which by the fault's name.

/// A safeguard that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mutation {
    /// Slots of the double-write ring are retired, and the checkpoint moves, without a sync of the data file.
    RetireWithoutSync = 1,
    /// Pages go home before they are in the ring.
    HomeBeforeRing,
    /// A slot of the ring need not be durable when its pages go home.
    RingNotDurable,
    /// A slot of the ring is written again before the pages in it are durable at home.
    SlotReusedEarly,
    /// A page of which the log had whole contents once goes home without the ring from then on.
    OnceWholeForEver,
    /// The ring is emptied after a crash without a look at the pages it names.
    RingNotHealed,
    /// The ring is emptied before what it has healed is durable.
    HealedNotSynced,
    /// A page goes home before the log has its changes.
    HomeBeforeLog,
    /// A record of the log counts whatever its checksum says.
    RecordNotVerified,
    /// Redo does not ask for a page's LSN, and applies what the page has already.
    RedoneTwice,
    /// Background redo takes a page for looked at which nobody has looked at.
    RedoSkipped,
    /// The checkpoint passes pages that are dirty.
    CheckpointPastDirty,
    /// The checkpoint passes batches that were written and not synced.
    CheckpointPastPending,
    /// The log says that a page came home before it did.
    HomeNotedEarly,
    /// The checkpoint is free to move before background redo has looked at all pages.
    FloorLetGo,
    /// Undo is swept that a snapshot may ask for.
    UndoFreedEarly,
    /// A transaction that a crash has cut short is ended without being reverted.
    LoserNotReverted,
    /// A row that a cut-short transaction has changed is written to before that was reverted.
    LoserRowOverwritten,
    /// What is reverted is not marked as done.
    DoneNotMarked,
    /// A commit is acknowledged before it is durable.
    AcknowledgedEarly,
    /// A synchronous commit is seen by others before it is durable.
    VisibleEarly,
    /// The log goes on after a crash in the same incarnation.
    IncarnationKept,
    /// The header need not be durable when the log relies on it.
    HeaderNotDurable,
    /// Segments of the log are used again that a restart would need.
    SegmentRecycledEarly,
    /// A page is used whatever its checksum says.
    PageNotVerified,
    /// The check keeps to itself what it finds.
    DamageNotTold,
    /// The file is cut before the checkpoint has passed the changes of what is cut off.
    CutTooEarly,
    /// The list of changed pages has not what was changed in segments that the checkpoint passes.
    ChangesForgotten,
    /// The archive goes on behind a gap without naming it.
    ArchiveGapNotNamed,
    /// A restore that goes on with an archive believes what its log says of pages that came home.
    ArchivedHomesBelieved,
    /// A tree that was filled beside the log is taken for complete before its pages are durable at home.
    FilledNotHome,
}

#[cfg(feature = "mutations")]
mod switch {
    use super::Mutation;
    use std::sync::atomic::{AtomicU8, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    impl Mutation {
        /// Every one.
        pub const ALL: [Mutation; 31] = [
            Mutation::RetireWithoutSync,
            Mutation::HomeBeforeRing,
            Mutation::RingNotDurable,
            Mutation::OnceWholeForEver,
            Mutation::SlotReusedEarly,
            Mutation::RingNotHealed,
            Mutation::HealedNotSynced,
            Mutation::HomeBeforeLog,
            Mutation::RecordNotVerified,
            Mutation::RedoneTwice,
            Mutation::RedoSkipped,
            Mutation::CheckpointPastDirty,
            Mutation::CheckpointPastPending,
            Mutation::HomeNotedEarly,
            Mutation::FloorLetGo,
            Mutation::UndoFreedEarly,
            Mutation::LoserNotReverted,
            Mutation::LoserRowOverwritten,
            Mutation::DoneNotMarked,
            Mutation::AcknowledgedEarly,
            Mutation::VisibleEarly,
            Mutation::IncarnationKept,
            Mutation::HeaderNotDurable,
            Mutation::SegmentRecycledEarly,
            Mutation::PageNotVerified,
            Mutation::DamageNotTold,
            Mutation::CutTooEarly,
            Mutation::ChangesForgotten,
            Mutation::ArchiveGapNotNamed,
            Mutation::ArchivedHomesBelieved,
            Mutation::FilledNotHome,
        ];
    }

    /// From now on this safeguard is missing; `None` brings all of them back.
    pub fn plant(mutation: Option<Mutation>) {
        PLANTED.store(mutation.map_or(0, |mutation| mutation as u8), Ordering::SeqCst);
    }

    pub(crate) fn planted(mutation: Mutation) -> bool {
        PLANTED.load(Ordering::Relaxed) == mutation as u8
    }
}

#[cfg(feature = "mutations")]
pub use switch::plant;
#[cfg(feature = "mutations")]
pub(crate) use switch::planted;

/// Whether a safeguard is to be left out.
#[cfg(not(feature = "mutations"))]
pub(crate) const fn planted(_: Mutation) -> bool {
    false
}
