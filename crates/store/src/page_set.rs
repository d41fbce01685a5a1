//! Sets of pages in memory, a bit for each page of the file.

use crate::Result;
use crate::work::WorkMemory;
use gannet_base::PageId;
use gannet_base::memory::Purpose;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words by which a set grows whose highest page is not known.
const GROWS_BY: usize = 8 << 10;

/// One bit for each page.
#[derive(Debug, Default)]
pub(crate) struct PageSet(Vec<AtomicU64>);

impl PageSet {
    pub(crate) fn new(pages: u64) -> Self {
        PageSet((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The set of the pages whose bits are set.
    fn of(words: impl Iterator<Item = u64>) -> Self {
        PageSet(words.map(AtomicU64::new).collect())
    }

    fn word(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// One bit for each page, up to a highest one.
    pub(crate) fn pages(&self) -> u64 {
        self.0.len() as u64 * 64
    }

    /// Memory of a set for so many pages, in bytes.
    pub(crate) fn memory(pages: u64) -> u64 {
        pages.div_ceil(64) * 8
    }

    pub(crate) fn has(&self, page: PageId) -> bool {
        self.0.get(page.0 as usize / 64).is_some_and(|word| word.load(Ordering::Relaxed) & bit(page) != 0)
    }

    /// Adds a page; false when it was in already. Pages that the set was not made for are left out.
    pub(crate) fn add(&self, page: PageId) -> bool {
        self.0
            .get(page.0 as usize / 64)
            .is_some_and(|word| word.fetch_or(bit(page), Ordering::Relaxed) & bit(page) == 0)
    }

    /// Those of the 16 pages from `first` on, a multiple of 16, that are in the set.
    pub(crate) fn of_extent(&self, first: PageId) -> u16 {
        (self.word(first.0 as usize / 64) >> (first.0 % 64)) as u16
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The first page from `from` on that is in the set.
    pub(crate) fn next(&self, from: PageId) -> Option<PageId> {
        let mut index = from.0 as usize / 64;
        let mut word = self.0.get(index)?.load(Ordering::Relaxed) & (u64::MAX << (from.0 % 64));
        while word == 0 {
            index += 1;
            word = self.0.get(index)?.load(Ordering::Relaxed);
        }
        Some(PageId(index as u64 * 64 + u64::from(word.trailing_zeros())))
    }
}

fn bit(page: PageId) -> u64 {
    1 << (page.0 % 64)
}

/// One bit for each page up to the highest one; charged as it grows.
#[derive(Debug)]
pub(crate) struct GrowingSet {
    words: Vec<u64>,
    memory: WorkMemory,
}

impl GrowingSet {
    /// An empty one, whose memory is added to this.
    pub(crate) fn new(memory: WorkMemory) -> Self {
        GrowingSet { words: Vec::new(), memory }
    }

    pub(crate) fn add(&mut self, page: PageId) -> Result<()> {
        let index = page.0 as usize / 64;
        if index >= self.words.len() {
            let words = (index + 1).next_multiple_of(GROWS_BY);
            self.memory.grow((words - self.words.len()) as u64 * 8)?;
            self.words.resize(words, 0);
        }
        self.words[index] |= 1 << (page.0 % 64);
        Ok(())
    }

    /// Memory for whoever fills the set, none yet.
    pub(crate) fn another_memory(&self, purpose: Purpose) -> WorkMemory {
        self.memory.another(purpose)
    }

    /// What is in this set and not in the other one.
    pub(crate) fn without(&self, other: &PageSet) -> PageSet {
        PageSet::of(self.words.iter().enumerate().map(|(index, &word)| word & !other.word(index)))
    }

    /// The pages, with what their memory is charged to.
    pub(crate) fn into_set(self) -> (PageSet, WorkMemory) {
        (PageSet::of(self.words.into_iter()), self.memory)
    }
}
