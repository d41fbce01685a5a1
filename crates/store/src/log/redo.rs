//! Which pages a restart has to look at.

use crate::Result;
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::{Lsn, PageId};

const ENTRY_LEN: u64 = size_of::<RedoEntry>() as u64;
const COMPACT_AT_LEAST: usize = 1 << 16;

/// What the log says of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoEntry {
    /// The page.
    pub page: PageId,
    /// The LSN of its last change.
    pub last: Lsn,
    /// Its changes up to here are durable in the data file: those that came home, and those before the segment of the first
    /// one that did not.
    pub home: Lsn,
}

/// Pages that the log changed behind the redo position, and that are not known to have come home since. Sorted by page, 24
/// bytes an entry, charged to the budget.
///
/// While it is built it also holds pages that came home, as a later segment may have changed them again. Where the budget has
/// no room for those they are left out: a later change then begins an entry anew, with all before it home. The others were changed in memory, so they are no more
/// than the page frames of the life that was cut short, and the batches of the page writer between two syncs.
#[derive(Debug)]
pub struct RedoTable {
    entries: Vec<RedoEntry>,
    compacted: usize,
    charge: Charge,
}

impl RedoTable {
    pub(crate) fn new(budget: &Budget) -> Result<Self> {
        Ok(RedoTable { entries: Vec::new(), compacted: 0, charge: budget.charge(Purpose::Log, 0)? })
    }

    /// Adds what the segment that begins at `start` says, both lists sorted by page; segments come in log order.
    pub(crate) fn add_segment(
        &mut self,
        start: Lsn,
        changed: &[(PageId, Lsn)],
        homes: &[(PageId, Lsn)],
        redo_from: Lsn,
    ) -> Result<()> {
        let more = changed.len() + homes.len();
        if self.reserve(more).is_err() {
            self.compact();
            self.entries.retain(RedoEntry::is_due);
            self.compacted = self.entries.len();
            self.entries.shrink_to_fit();
            self.reserve(more)?;
        }
        let before = start.max(redo_from);
        let changed = changed.iter().map(|&(page, last)| RedoEntry { page, last, home: before });
        let homes = homes.iter().map(|&(page, home)| RedoEntry { page, last: Lsn::ZERO, home });
        // What ends before the redo position is neither due nor news.
        self.entries.extend(changed.chain(homes).filter(|entry| entry.last.max(entry.home) > redo_from));
        if self.entries.len() > (self.compacted * 2).max(COMPACT_AT_LEAST) {
            self.compact();
        }
        Ok(())
    }

    fn reserve(&mut self, more: usize) -> Result<()> {
        let len = self.entries.len() + more;
        if len > self.entries.capacity() {
            // The sort merges runs through a buffer of half the entries.
            let room = len.max(self.entries.len() * 3 / 2);
            self.charge.resize(room as u64 * ENTRY_LEN * 3 / 2)?;
            self.entries.reserve_exact(room - self.entries.len());
        }
        Ok(())
    }

    fn compact(&mut self) {
        // Stable, so that of equal pages what the log says later comes later; and good at runs, of which there are two a
        // segment.
        self.entries.sort_by_key(|entry| entry.page);
        self.entries.dedup_by(|later, kept| {
            let same = later.page == kept.page;
            if same {
                kept.follow(later);
            }
            same
        });
        self.compacted = self.entries.len();
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        self.compact();
        self.entries.retain(RedoEntry::is_due);
        self.entries.shrink_to_fit();
        Ok(self.charge.resize(self.entries.capacity() as u64 * ENTRY_LEN)?)
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no page was changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The LSN of the last change of `page`, if the log has one that is not known to be home.
    pub fn get(&self, page: PageId) -> Option<Lsn> {
        self.find(page).map(|index| self.entries[index].last)
    }

    /// The place of `page` among [`RedoTable::entries`].
    pub(crate) fn find(&self, page: PageId) -> Option<usize> {
        self.entries.binary_search_by_key(&page, |entry| entry.page).ok()
    }

    /// Every page, in page order.
    pub fn entries(&self) -> &[RedoEntry] {
        &self.entries
    }
}

impl RedoEntry {
    fn is_due(&self) -> bool {
        self.last > self.home
    }

    /// Takes notice of what the log says of the same page later.
    fn follow(&mut self, later: &RedoEntry) {
        // What a segment says of changes before it holds where none was due.
        if !self.is_due() || later.last == Lsn::ZERO {
            self.home = self.home.max(later.home);
        }
        self.last = self.last.max(later.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(page: u64, lsn: u64) -> (PageId, Lsn) {
        (PageId(page), Lsn(lsn))
    }

    fn entry(page: u64, last: u64, home: u64) -> RedoEntry {
        RedoEntry { page: PageId(page), last: Lsn(last), home: Lsn(home) }
    }

    #[test]
    fn the_last_segment_wins_and_old_changes_are_left_out() {
        let budget = Budget::new(1 << 20);
        let mut table = RedoTable::new(&budget).unwrap();
        table.add_segment(Lsn(0), &[pair(1, 10), pair(4, 30), pair(9, 40)], &[], Lsn(10)).unwrap();
        table.add_segment(Lsn(48), &[pair(2, 50), pair(4, 60)], &[], Lsn(10)).unwrap();
        table.finish().unwrap();
        assert_eq!(table.entries(), [entry(2, 50, 48), entry(4, 60, 10), entry(9, 40, 10)]);
        assert_eq!((table.get(PageId(4)), table.get(PageId(1))), (Some(Lsn(60)), None));
        drop(table);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn pages_that_came_home_are_due_only_when_they_were_changed_since() {
        let budget = Budget::new(1 << 20);
        let mut table = RedoTable::new(&budget).unwrap();
        let first = [pair(1, 20), pair(2, 24), pair(3, 28), pair(5, 30)];
        table.add_segment(Lsn(0), &first, &[pair(7, 8)], Lsn(10)).unwrap();
        table
            .add_segment(Lsn(32), &[pair(2, 40), pair(5, 48)], &[pair(1, 20), pair(3, 16)], Lsn(10))
            .unwrap();
        let homes = [pair(2, 24), pair(5, 48), pair(7, 48)];
        table.add_segment(Lsn(64), &[pair(5, 80), pair(7, 70)], &homes, Lsn(10)).unwrap();
        table.finish().unwrap();
        assert_eq!(table.entries(), [entry(2, 40, 24), entry(3, 28, 16), entry(5, 80, 48), entry(7, 70, 64)]);
    }

    #[test]
    fn where_memory_is_short_pages_that_came_home_make_room() {
        let budget = Budget::new(128 << 10);
        let mut table = RedoTable::new(&budget).unwrap();
        for round in 0..64u64 {
            let start = Lsn(1000 * round);
            let changed: Vec<_> = (0..100).map(|i| pair(round * 100 + i, start.0 + 500)).collect();
            let homes = if round % 2 == 0 { &changed[..] } else { &changed[..90] };
            table.add_segment(start, &changed, &[], Lsn(0)).unwrap();
            table.add_segment(start, &[], homes, Lsn(0)).unwrap();
        }
        table.finish().unwrap();
        assert_eq!(table.entries().len(), 32 * 10);
        assert!(table.entries().iter().all(|entry| entry.page.0 % 100 >= 90));
    }
}
