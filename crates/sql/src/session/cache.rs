//! Plans that are kept: by text, types of parameters, and whatever settings a plan depends on.
//!
//! The plans' memory is part of the budget. The least recently used go first.
//!
//! # Invariant
//! All of them are of one version of the catalog, the newest that anybody has told of. A plan has the catalog it was made with, which
//! is large where there are many tables, and not charged: plans of older versions, each with its own, would be of use to hardly anybody.

use super::prepared::{BYTES_AT_LEAST, BYTES_PER_BYTE};
use super::{PlannerSettings, Prepared};
use crate::Type;
use crate::types::text::{DateOrder, TextStyle};
use gannet_base::memory::{Budget, Charge, Purpose};
use gannet_base::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Part of the budget that plans may take.
const SHARE: u64 = 64;

/// What a plan depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    text: Arc<str>,
    parameters: Vec<Type>,
    planner: PlannerSettings,
    zone: String,
    date_order: DateOrder,
    user: Arc<str>,
}

impl Key {
    /// `style` is the one that the binder reads literals by.
    pub(super) fn new(
        text: &str,
        parameters: &[Type],
        planner: &PlannerSettings,
        style: &TextStyle,
        user: &str,
    ) -> Self {
        Key {
            text: Arc::from(text),
            parameters: parameters.to_vec(),
            planner: planner.clone(),
            zone: style.zone.name().to_owned(),
            date_order: style.date_order,
            user: Arc::from(user),
        }
    }

    fn bytes(&self) -> u64 {
        let parameters = size_of_val(&*self.parameters) as u64;
        BYTES_AT_LEAST + self.text.len() as u64 * BYTES_PER_BYTE + parameters
    }
}

#[derive(Debug)]
struct Entry {
    prepared: Arc<Prepared>,
    used: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    version: u64,
    bytes: u64,
    clock: u64,
    charge: Option<Charge>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct PlanCache {
    budget: Budget,
    entries: Mutex<Entries>,
}

impl PlanCache {
    pub(super) fn new(budget: Budget) -> Self {
        let entries = Entries { by_key: HashMap::new(), version: 0, bytes: 0, clock: 0, charge: None };
        PlanCache { budget, entries: Mutex::new(entries) }
    }

    /// The plan for this key, if it was made for this version of the catalog.
    pub(super) fn get(&self, key: &Key, version: u64) -> Option<Arc<Prepared>> {
        let mut entries = self.entries.lock();
        if !entries.follow(version, &self.budget) {
            return None;
        }
        entries.clock += 1;
        let clock = entries.clock;
        let entry = entries.by_key.get_mut(key)?;
        entry.used = clock;
        Some(Arc::clone(&entry.prepared))
    }

    /// Definitions of this version are in force: plans of older ones go.
    pub(super) fn follow(&self, version: u64) {
        self.entries.lock().follow(version, &self.budget);
    }

    /// Keeps a plan, unless it is of definitions that are not in force any more, or there is no memory for it.
    pub(super) fn put(&self, key: Key, prepared: Arc<Prepared>) {
        let most = self.budget.limit() / SHARE;
        let parameters = prepared.parameter_bytes();
        let bytes = key.bytes() + parameters + prepared.column_bytes() + prepared.plan_bytes();
        if bytes > most / 4 {
            return;
        }
        let mut entries = self.entries.lock();
        if !entries.follow(prepared.catalog_version(), &self.budget) {
            return;
        }
        entries.clock += 1;
        let used = entries.clock;
        if let Some(old) = entries.by_key.insert(key, Entry { prepared, used, bytes }) {
            entries.bytes -= old.bytes;
        }
        entries.bytes += bytes;
        if entries.bytes > most {
            entries.make_room(most / 2);
        }
        entries.settle(&self.budget);
    }

    /// How many plans are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().by_key.len()
    }
}

impl Entries {
    /// Lets all plans go where this version is newer than theirs; false where it is older.
    fn follow(&mut self, version: u64, budget: &Budget) -> bool {
        if version > self.version {
            self.version = version;
            if !self.by_key.is_empty() {
                self.by_key.clear();
                self.bytes = 0;
                self.settle(budget);
            }
        }
        version == self.version
    }

    /// Lets the least recently used go, until `bytes` are left.
    fn make_room(&mut self, bytes: u64) {
        let mut ages: Vec<u64> = self.by_key.values().map(|entry| entry.used).collect();
        ages.sort_unstable();
        let mut oldest_kept = 0;
        for age in ages {
            if self.bytes <= bytes {
                break;
            }
            oldest_kept = age + 1;
            let gone = self.by_key.values().find(|entry| entry.used == age).map_or(0, |entry| entry.bytes);
            self.bytes -= gone;
        }
        self.by_key.retain(|_, entry| entry.used >= oldest_kept);
    }

    /// Brings the charge up to date; where the budget is full, the cache is emptied.
    fn settle(&mut self, budget: &Budget) {
        let charged = match &mut self.charge {
            Some(charge) => charge.resize(self.bytes),
            None => budget.charge(Purpose::Sessions, self.bytes).map(|charge| self.charge = Some(charge)),
        };
        if charged.is_err() {
            self.by_key.clear();
            self.bytes = 0;
            self.charge = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text, &[], &PlannerSettings::new(1, 1), &TextStyle::default(), "me")
    }

    #[test]
    fn the_least_recently_used_go_and_versions_count() {
        let budget = Budget::new(64 * 64 * 1024);
        let cache = PlanCache::new(budget.clone());
        let plan = Arc::new(Prepared::empty(7));
        for number in 0..100 {
            cache.put(key(&format!("select {number}")), Arc::clone(&plan));
            assert!(cache.get(&key("select 0"), 7).is_some(), "it was used all the time");
        }
        assert!(cache.len() < 20 && budget.used() > 0 && budget.used() <= 64 * 1024);
        assert!(cache.get(&key("select 1"), 7).is_none(), "it was not used for long");
        assert!(cache.get(&key("select 0"), 8).is_none());
        assert_eq!((cache.len(), budget.used()), (0, 0), "nobody can use them any more");
        cache.put(key("select 0"), plan);
        assert_eq!(cache.len(), 0, "it is of older definitions");
        cache.put(key("select 0"), Arc::new(Prepared::empty(8)));
        assert!(cache.get(&key("select 0"), 8).is_some() && budget.used() > 0);
        cache.follow(9);
        assert_eq!((cache.len(), budget.used()), (0, 0));
    }
}
