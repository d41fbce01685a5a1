//! One file of the simulated disk: what is seen, what is durable, and the unsynced effects between the two.
//!
//! # Invariants
//! 1. Applying every pending effect in order to `durable` gives `visible`, unless a write failed, was lost or was
//!    misdirected, a sync failed, or bits rotted.
//! 2. `durable` holds no bytes behind its size.
//! 3. Sizes and allocations survive in order (the file system's journal): when one is lost, so are all later ones of
//!    the same file. Data sectors have no order.

use super::content::Content;
use crate::{Durability, SECTOR};
use gannet_base::sim::Generator;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// How a write wants to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteKind {
    pub(super) durability: Durability,
    pub(super) atomic: bool,
}

/// Something done to a file and not yet durable.
#[derive(Clone)]
pub(super) struct Effect {
    pub(super) sequence: u64,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    SetLen(u64),
    Allocate(u64, u64),
    Write(PendingWrite),
}

/// A write split into sectors; those not `live` were superseded, cut off or lost.
#[derive(Clone)]
pub(super) struct PendingWrite {
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
    pub(super) live: Vec<bool>,
    pub(super) atomic: bool,
    /// The size this write gave the file, if it grew.
    pub(super) grow: Option<u64>,
}

impl PendingWrite {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Stores the sectors that are live and that `keep` names.
    pub(super) fn store(&self, content: &mut Content, keep: impl Fn(usize) -> bool) {
        for (index, sector) in self.data.chunks(SECTOR).enumerate() {
            if self.live[index] && keep(index) {
                content.write(self.offset + (index * SECTOR) as u64, sector);
            }
        }
    }

    /// Forgets every byte at or behind `len`.
    fn cut(&mut self, len: u64) {
        let first = len.saturating_sub(self.offset);
        let whole = first.div_ceil(SECTOR as u64).min(self.live.len() as u64) as usize;
        self.live[whole..].fill(false);
        if !first.is_multiple_of(SECTOR as u64) && first < self.data.len() as u64 {
            let mut data = self.data.to_vec();
            data[first as usize..].fill(0);
            self.data = data.into();
        }
    }

    /// Forgets the sectors inside `range`: newer bytes are durable there.
    fn supersede(&mut self, range: &Range<u64>) {
        for (index, live) in self.live.iter_mut().enumerate() {
            *live &= !range.contains(&(self.offset + (index * SECTOR) as u64));
        }
    }
}

impl Change {
    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Change::SetLen(len) => content.set_len(*len),
            Change::Allocate(offset, len) => content.allocate(*offset, *len),
            Change::Write(write) => {
                content.grow(write.grow.unwrap_or(0));
                write.store(content, |_| true);
            }
        }
    }

    /// The file's size after this change, given the one before.
    fn len_after(&self, len: u64) -> u64 {
        match self {
            Change::SetLen(new) => *new,
            Change::Allocate(offset, bytes) => len.max(offset + bytes),
            Change::Write(write) => len.max(write.grow.unwrap_or(0)),
        }
    }
}

/// A file, whatever its names are.
#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) visible: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<Effect>,
    /// Syncs that failed: handles opened before the last of them must not report a success.
    pub(super) failed_syncs: u64,
    /// Sectors that have not got the bytes of the last write that was acknowledged: it was a lie.
    untrue: BTreeSet<u64>,
    /// Such a sector was read.
    untrue_read: bool,
    /// Held by every handle too, so the number of references says whether the file is open.
    pub(super) open: Arc<()>,
}

impl Inode {
    /// What a restart finds of this file when `content` was left: all there is is durable.
    pub(super) fn settled(&self, content: Content) -> Self {
        let (untrue, untrue_read) = (self.untrue.clone(), self.untrue_read);
        Inode { visible: content.clone(), durable: content, untrue, untrue_read, ..Self::default() }
    }

    /// Takes notice of a write, and of whether its acknowledgement is a lie.
    pub(super) fn note_write(&mut self, offset: u64, len: u64, is_untrue: bool) {
        if is_untrue {
            self.untrue.extend((offset..offset + len).step_by(SECTOR));
        } else if !self.untrue.is_empty() {
            self.untrue.retain(|sector| !(offset..offset + len).contains(sector));
        }
    }

    /// Takes notice of a read; true when it shows what it should not.
    pub(super) fn note_read(&mut self, offset: u64, len: u64) -> bool {
        let is_untrue = self.untrue.range(offset..offset + len).next().is_some();
        self.untrue_read |= is_untrue;
        is_untrue
    }

    /// Whether a read has shown what an acknowledged write should have replaced.
    pub(super) fn was_untrue(&self) -> bool {
        self.untrue_read
    }

    pub(super) fn is_open(&self) -> bool {
        Arc::strong_count(&self.open) > 1
    }

    /// Applies a completed write whose `live` sectors reached the device.
    pub(super) fn write(
        &mut self,
        sequence: u64,
        offset: u64,
        data: Arc<[u8]>,
        live: Vec<bool>,
        kind: WriteKind,
    ) {
        let end = offset + data.len() as u64;
        let grow = (end > self.visible.len()).then_some(end);
        let write = PendingWrite { offset, data, live, atomic: kind.atomic, grow };
        self.visible.grow(end);
        write.store(&mut self.visible, |_| true);
        match kind.durability {
            Durability::Cached => self.pending.push(Effect { sequence, change: Change::Write(write) }),
            Durability::Durable => self.write_durably(&write),
        }
    }

    fn write_durably(&mut self, write: &PendingWrite) {
        // The bytes must be found after a crash, so a size that could end before them becomes durable as well.
        if self.lowest_len() < write.end() {
            self.promote_metadata();
            self.durable.grow(write.end());
        }
        let range = write.offset..write.end();
        for effect in &mut self.pending {
            if let Change::Write(older) = &mut effect.change
                && older.offset < range.end
                && range.start < older.end()
            {
                // Only what was really stored is newer than the older bytes.
                for (index, live) in write.live.iter().enumerate() {
                    let start = write.offset + (index * SECTOR) as u64;
                    if *live {
                        older.supersede(&(start..start + SECTOR as u64));
                    }
                }
            }
        }
        write.store(&mut self.durable, |_| true);
    }

    /// The smallest size this file may have after a crash now.
    fn lowest_len(&self) -> u64 {
        let (mut len, mut lowest) = (self.durable.len(), self.durable.len());
        for effect in &self.pending {
            len = effect.change.len_after(len);
            lowest = lowest.min(len);
        }
        lowest
    }

    /// Makes sizes and allocations durable, and no data.
    fn promote_metadata(&mut self) {
        for index in 0..self.pending.len() {
            let (earlier, rest) = self.pending.split_at_mut(index);
            match &mut rest[0].change {
                Change::Write(write) => self.durable.grow(write.grow.take().unwrap_or(0)),
                Change::Allocate(offset, len) => self.durable.allocate(*offset, *len),
                Change::SetLen(len) => {
                    self.durable.set_len(*len);
                    for effect in earlier {
                        if let Change::Write(write) = &mut effect.change {
                            write.cut(*len);
                        }
                    }
                }
            }
        }
        self.pending.retain(|effect| matches!(effect.change, Change::Write(_)));
    }

    /// Changes size or allocation.
    pub(super) fn change(&mut self, sequence: u64, change: Change) {
        change.apply(&mut self.visible);
        self.pending.push(Effect { sequence, change });
    }

    /// A successful sync: every effect numbered below `cutoff` is durable.
    pub(super) fn sync(&mut self, cutoff: u64) {
        let count = self.pending.partition_point(|effect| effect.sequence < cutoff);
        for effect in self.pending.drain(..count) {
            effect.change.apply(&mut self.durable);
        }
    }

    /// A failed sync: of the data numbered below `cutoff` an arbitrary part is forgotten for good although it is
    /// still seen, as Linux marks pages clean whose write-back failed. A later sync will not bring it back.
    pub(super) fn fail_sync(&mut self, cutoff: u64, random: &mut Generator) {
        self.failed_syncs += 1;
        let per_sector = random.one_in(2);
        for effect in self.pending.iter_mut().filter(|effect| effect.sequence < cutoff) {
            if let Change::Write(write) = &mut effect.change {
                let all = random.one_in(2);
                for live in &mut write.live {
                    *live &= if per_sector && !write.atomic { random.one_in(2) } else { all };
                }
            }
        }
    }

    /// Flips the bits of `mask` at `offset`, in what is seen and in what is durable.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        for content in [&mut self.visible, &mut self.durable] {
            if offset < content.len() {
                let mut byte = [0];
                content.read(offset, &mut byte);
                content.write(offset, &[byte[0] ^ mask]);
            }
        }
    }
}
