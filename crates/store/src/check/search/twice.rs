//! Pages that two long values have.
//!
//! # Why this takes a look of its own
//! Sums say that somebody refers to a page who should not, and not who. While the database is in use that is nothing yet: a value that a rollback has freed
//! since its entry was gone through gives its pages to others. So of a page that lists of two entries have named, those whose lists name it are looked
//! for, and two of them asked in turns, each under its leaf's latch. A long value is never changed: one that has the page before and behind the
//! other is asked has it at the same time.

use super::super::report::Key;
use super::{Search, Stake, references};
use crate::Result;
use crate::entry::{Entry, decode_reference};
use crate::node::{NodeRef, verify_structure};
use crate::overflow;
use crate::page::PageKind;
use crate::tree::BTree;
use gannet_base::{PageId, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Pages that are looked into, and values of each of them, at most.
const PAGES_MAX: usize = 64;
const VALUES_MAX: usize = 4;

/// A long value, as its entry has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    tree: TreeId,
    key: Vec<u8>,
    len: u64,
    first: PageId,
}

impl Search<'_, '_> {
    /// The list of an entry's long value has this page.
    pub(super) fn named(&mut self, page: PageId) {
        if !self.listed.has(page) {
            self.listed.set(page);
        } else if self.twice.len() < PAGES_MAX {
            self.twice.insert(page);
        }
    }

    /// Finds out which of the pages that were named twice two values have.
    pub(super) fn named_twice(&mut self) -> Result<()> {
        for (page, values) in self.values_with()? {
            self.tick()?;
            let mut values = values.iter().filter(|value| self.has(value, page));
            let (Some(one), Some(other)) = (values.next(), values.next()) else { continue };
            if !self.has(one, page) || !self.has(other, page) {
                continue;
            }
            let what = format!(
                "is a page of two long values, of the keys {} and {}",
                Key(&one.key),
                Key(&other.key)
            );
            for value in [one, other] {
                self.find(page, value.tree, &what, Stake::Value { key: value.key.clone() });
            }
        }
        Ok(())
    }

    /// The pages that were named twice, and values that have them.
    fn values_with(&mut self) -> Result<BTreeMap<PageId, BTreeSet<Value>>> {
        let check = self.check;
        let twice = std::mem::take(&mut self.twice);
        let mut found: BTreeMap<PageId, BTreeSet<Value>> = BTreeMap::new();
        let trees = if twice.is_empty() { BTreeSet::new() } else { self.with_leaves.clone() };
        for tree in trees {
            let Some(root) = self.root_of(tree) else { continue };
            let mut from = Some(Vec::new());
            while let Some(lower) = from {
                self.tick()?;
                // What cannot be reached was reported from above.
                let Ok(leaf) = BTree::new(&check.shared.core, &root).inner_shared(&lower, 0) else { break };
                if verify_structure(&leaf, check.shared.core.page_size).is_err() {
                    break;
                }
                from = NodeRef::new(&leaf).upper_fence().map(<[u8]>::to_vec);
                let references = references(&leaf);
                drop(leaf);
                for (key, (len, first)) in references {
                    let value = Value { tree, key, len, first };
                    self.each_page(&value, &mut |page| {
                        if twice.contains(&page) {
                            let values = found.entry(page).or_default();
                            if values.len() < VALUES_MAX {
                                values.insert(value.clone());
                            }
                        }
                    });
                }
            }
        }
        Ok(found)
    }

    /// Shows the pages of a value's list, as far as that can be read.
    fn each_page(&self, value: &Value, visit: &mut dyn FnMut(PageId)) {
        let per_page = overflow::bytes_per_page(self.check.shared.core.page_size) as u64;
        let (mut index, mut left) = (value.first, value.len.div_ceil(per_page));
        while !index.is_none() {
            let Ok(page) = self.check.expect(index, value.tree, PageKind::OverflowIndex) else { return };
            let Some((next, listed)) = overflow::decode_index(&page) else { return };
            drop(page);
            visit(index);
            listed.iter().copied().for_each(&mut *visit);
            // A list that is damaged need not come to an end.
            if listed.is_empty() || listed.len() as u64 > left {
                return;
            }
            left -= listed.len() as u64;
            index = next;
        }
    }

    /// Whether a value that its entry had has the page now.
    fn has(&self, value: &Value, page: PageId) -> bool {
        let Some(root) = self.root_of(value.tree) else { return false };
        let tree = BTree::new(&self.check.shared.core, &root);
        let Ok(leaf) = tree.inner_shared(&value.key, 0) else { return false };
        let node = NodeRef::new(&leaf);
        let Ok(slot) = node.search(&value.key) else { return false };
        let entry = Entry::decode(node.payload(slot)).filter(Entry::is_overflow);
        if entry.is_none_or(|entry| decode_reference(entry.value) != (value.len, value.first)) {
            return false;
        }
        let mut has = false;
        self.each_page(value, &mut |named| has |= named == page);
        has
    }
}
