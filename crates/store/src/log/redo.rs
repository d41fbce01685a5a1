//! Which pages a restart has to look at.

use crate::Result;
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::{Lsn, PageId};

const ENTRY_LEN: u64 = size_of::<(PageId, Lsn)>() as u64;
const COMPACT_AT_LEAST: usize = 1 << 16;

/// Pages that the log changed behind the redo position, with the LSN of their last change. A page needs redo when that
/// LSN is above the one in its header. Sorted by page, 16 bytes an entry, charged to the budget.
#[derive(Debug)]
pub struct RedoTable {
    entries: Vec<(PageId, Lsn)>,
    compacted: usize,
    charge: Charge,
}

impl RedoTable {
    pub(crate) fn new(budget: &Budget) -> Result<Self> {
        Ok(RedoTable { entries: Vec::new(), compacted: 0, charge: budget.charge(Purpose::Log, 0)? })
    }

    /// Adds one segment's pages, sorted; segments come in log order.
    pub(crate) fn add_segment(&mut self, pages: &[(PageId, Lsn)], redo_from: Lsn) -> Result<()> {
        let len = self.entries.len() + pages.len();
        if len > self.entries.capacity() {
            // The sort merges runs through a buffer of half the entries.
            let room = len.max(self.entries.len() * 3 / 2);
            self.charge.resize(room as u64 * ENTRY_LEN * 3 / 2)?;
            self.entries.reserve_exact(room - self.entries.len());
        }
        self.entries.extend(pages.iter().filter(|(_, lsn)| *lsn > redo_from));
        if self.entries.len() > (self.compacted * 2).max(COMPACT_AT_LEAST) {
            self.compact();
        }
        Ok(())
    }

    fn compact(&mut self) {
        // Stable and good at runs, of which there is one a segment: of equal pages the last one is the newest.
        self.entries.sort_by_key(|&(page, _)| page);
        self.entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        self.compacted = self.entries.len();
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        self.compact();
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

    /// The LSN of the last change of `page`, if the log has one.
    pub fn get(&self, page: PageId) -> Option<Lsn> {
        let index = self.entries.binary_search_by_key(&page, |&(page, _)| page).ok()?;
        Some(self.entries[index].1)
    }

    /// Every page with its last LSN, in page order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (PageId, Lsn)> + '_ {
        self.entries.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_wins_and_old_changes_are_left_out() {
        let budget = Budget::new(1 << 20);
        let mut table = RedoTable::new(&budget).unwrap();
        let entry = |page, lsn| (PageId(page), Lsn(lsn));
        table.add_segment(&[entry(1, 10), entry(4, 30), entry(9, 40)], Lsn(10)).unwrap();
        table.add_segment(&[entry(2, 50), entry(4, 60)], Lsn(10)).unwrap();
        table.finish().unwrap();
        assert_eq!(table.iter().collect::<Vec<_>>(), [entry(2, 50), entry(4, 60), entry(9, 40)]);
        assert_eq!((table.get(PageId(4)), table.get(PageId(1))), (Some(Lsn(60)), None));
        drop(table);
        assert_eq!(budget.used(), 0);
    }
}
