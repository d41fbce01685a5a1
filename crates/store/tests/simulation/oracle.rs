//! What the database may answer: a history of everything that was asked of it.
//!
//! Every value written is a *token*, used once. For each place (a key of a tree, or a name of the catalog) the oracle
//! keeps the versions in the order in which they were written; since a writer holds its row until its commit is
//! visible, that is the order of the commits. What a snapshot shows of many places then says of each transaction
//! whether it must be inside or outside of the snapshot, and these verdicts have to agree with each other, with the
//! moments at which commits were called and acknowledged, and with a single order of commits.
//!
//! # Crashes
//! A crash decides about every commit that nobody had to find durable, and tells nobody. Such a transaction is *in doubt*
//! from then on, until the first place that shows what became of it; every later look has to agree with that. Of one life the
//! log keeps a prefix, so who ended before another one began to commit is not lost where that one is kept.

use std::collections::{BTreeMap, BTreeSet};

/// A key of the tree with this token; tree 0 is the catalog, its keys are names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) tree: u64,
    pub(crate) key: Vec<u8>,
}

/// Writes of a transaction: when each was made, and what.
pub(crate) type Writes = BTreeMap<Place, (u64, Option<u64>)>;
pub(crate) type TxnIndex = usize;
pub(crate) type Observation = (Place, Option<u64>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Commit was called.
    Called,
    /// Commit was acknowledged at this moment.
    Acknowledged(u64),
    /// It failed in a way that leaves open whether it is in the log.
    Unknown,
    /// It failed and was rolled back.
    Aborted,
}

#[derive(Clone, Debug)]
pub(crate) struct Txn {
    #[expect(dead_code, reason = "for the messages, which show all of it")]
    name: String,
    called: u64,
    outcome: Outcome,
    /// Has to survive a crash.
    durable: bool,
    sync: bool,
    /// The number of the life that it committed in.
    life: u64,
    /// A crash has decided whether it is there, and nothing has shown how.
    in_doubt: bool,
}

#[derive(Clone, Debug)]
struct Version {
    moment: u64,
    txn: TxnIndex,
    value: Option<u64>,
}

/// A snapshot taken between these two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What is known of the part of a life's log that a crash has left.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The last moment at which a transaction was called to commit that is there.
    last_called: u64,
    /// The first one at which a transaction was acknowledged that is not.
    first_lost: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { last_called: 0, first_lost: u64::MAX }
    }
}

#[derive(Default)]
pub(crate) struct Oracle {
    now: u64,
    life: u64,
    kept: BTreeMap<u64, Kept>,
    txns: Vec<Txn>,
    places: BTreeMap<Place, Vec<Version>>,
    pub(crate) commits: u64,
    pub(crate) observations: u64,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let mut oracle = Oracle { now: 1, ..Self::default() };
        oracle.rebase(BTreeMap::new());
        oracle
    }

    /// A moment later than all before; also used as token.
    pub(crate) fn moment(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// From now on the database is known to hold exactly this.
    pub(crate) fn rebase(&mut self, state: BTreeMap<Place, u64>) {
        let base = Txn {
            name: "an earlier life".to_owned(),
            called: 0,
            outcome: Outcome::Acknowledged(0),
            durable: true,
            sync: true,
            life: self.life,
            in_doubt: false,
        };
        self.kept.clear();
        self.txns = vec![base];
        let version = |value| vec![Version { moment: 0, txn: 0, value: Some(value) }];
        self.places = state.into_iter().map(|(place, value)| (place, version(value))).collect();
    }

    /// A transaction is about to commit these writes, each with the moment at which it was made.
    pub(crate) fn committing(&mut self, name: String, sync: bool, writes: &Writes) -> TxnIndex {
        let called = self.moment();
        self.commits += 1;
        let index = self.txns.len();
        // One that has only locked rows leaves nothing in the log.
        let sync = sync && !writes.is_empty();
        self.txns.push(Txn {
            name,
            called,
            outcome: Outcome::Called,
            durable: false,
            sync,
            life: self.life,
            in_doubt: false,
        });
        for (place, &(moment, value)) in writes {
            let versions = self.places.entry(place.clone()).or_default();
            let at = versions.partition_point(|v| v.moment < moment);
            versions.insert(at, Version { moment, txn: index, value });
        }
        index
    }

    pub(crate) fn committed(&mut self, txn: TxnIndex) {
        let now = self.moment();
        self.txns[txn].outcome = Outcome::Acknowledged(now);
        self.txns[txn].durable = self.txns[txn].sync;
    }

    pub(crate) fn failed(&mut self, txn: TxnIndex, aborted: bool) {
        self.txns[txn].outcome = if aborted { Outcome::Aborted } else { Outcome::Unknown };
    }

    /// A clean shutdown: what was acknowledged is durable, asynchronous or not. What an earlier crash may have taken it does not bring back.
    pub(crate) fn all_durable(&mut self) {
        for txn in self.txns.iter_mut().filter(|txn| !txn.in_doubt) {
            txn.durable |= matches!(txn.outcome, Outcome::Acknowledged(_));
        }
    }

    /// The database was opened again: what did not have to survive is in doubt.
    pub(crate) fn restarted(&mut self) {
        self.moment();
        self.life += 1;
        for txn in &mut self.txns {
            if txn.durable {
                txn.outcome = Outcome::Acknowledged(txn.called);
                let kept = self.kept.entry(txn.life).or_default();
                kept.last_called = kept.last_called.max(txn.called);
            }
            txn.in_doubt |= !txn.durable && txn.outcome != Outcome::Aborted;
        }
    }

    /// Places of a tree that ever held anything, with `from <= key <= to`.
    pub(crate) fn places_of(&self, tree: u64, from: &[u8], to: Option<&[u8]>) -> Vec<Vec<u8>> {
        let first = Place { tree, key: from.to_vec() };
        self.places
            .range(first..)
            .take_while(|(p, _)| p.tree == tree && to.is_none_or(|to| p.key.as_slice() <= to))
            .map(|(p, _)| p.key.clone())
            .collect()
    }

    /// The newest committed version of a place whose row the caller holds; `None` when a commit that failed, or a crash, leaves
    /// that open.
    pub(crate) fn newest(&self, place: &Place) -> Option<Option<u64>> {
        let Some(versions) = self.places.get(place) else { return Some(None) };
        let alive = |v: &&Version| self.txns[v.txn].outcome != Outcome::Aborted;
        match versions.iter().rev().find(alive) {
            Some(version) if self.is_open(&self.txns[version.txn]) => None,
            // It may have failed, and been taken back, before whoever commits could say so.
            Some(version) if self.txns[version.txn].outcome == Outcome::Called => None,
            version => Some(version.and_then(|v| v.value)),
        }
    }

    fn is_open(&self, txn: &Txn) -> bool {
        txn.in_doubt || txn.outcome == Outcome::Unknown
    }

    /// Fails when no set of committed transactions explains what was seen.
    pub(crate) fn judge(&mut self, seen: &[Observation], look: Look) -> Result<(), String> {
        self.observations += seen.len() as u64;
        let mut inside = BTreeMap::new();
        let mut outside = BTreeMap::new();
        for (place, value) in seen {
            self.sort_out(place, *value, look, &mut inside, &mut outside)?;
        }
        self.agree(&inside, &outside, look)?;
        inside.keys().try_for_each(|&txn| self.settle(txn, true))?;
        outside.keys().try_for_each(|&txn| self.settle(txn, false))
    }

    /// The same for everything that a snapshot shows: what it does not show is not there.
    pub(crate) fn judge_state(&mut self, state: &BTreeMap<Place, u64>, look: Look) -> Result<(), String> {
        let mut seen: Vec<Observation> = Vec::new();
        let trees: Vec<u64> = std::iter::once(0)
            .chain(state.iter().filter(|(place, _)| place.tree == 0).map(|(_, token)| *token))
            .collect();
        for tree in trees {
            let known = self.places_of(tree, &[], None).into_iter().map(|key| Place { tree, key });
            seen.extend(known.filter(|place| !state.contains_key(place)).map(|place| (place, None)));
        }
        seen.extend(state.iter().map(|(place, token)| (place.clone(), Some(*token))));
        self.judge(&seen, look)
    }

    /// Takes notice of what a crash has decided about a transaction. What a restart has found is durable.
    fn settle(&mut self, index: TxnIndex, is_there: bool) -> Result<(), String> {
        let acknowledged = self.acknowledged(index);
        let txn = &mut self.txns[index];
        // A synchronous commit is seen by nobody before it is durable.
        txn.durable |= is_there && txn.sync;
        if !txn.in_doubt {
            return Ok(());
        }
        txn.in_doubt = false;
        let kept = self.kept.entry(txn.life).or_default();
        if is_there {
            kept.last_called = kept.last_called.max(txn.called);
            (txn.outcome, txn.durable) = (Outcome::Acknowledged(txn.called), true);
        } else {
            kept.first_lost = kept.first_lost.min(acknowledged);
            txn.outcome = Outcome::Aborted;
        }
        if kept.first_lost < kept.last_called {
            return Err(format!("of one life's log more than an end is lost: {kept:?}, with {txn:?}"));
        }
        Ok(())
    }

    fn acknowledged(&self, txn: TxnIndex) -> u64 {
        match self.txns[txn].outcome {
            Outcome::Acknowledged(at) => at,
            _ => u64::MAX,
        }
    }

    /// Notes who must be inside and outside of the snapshot for one place to look like that.
    fn sort_out<'a>(
        &self,
        place: &'a Place,
        value: Option<u64>,
        look: Look,
        inside: &mut BTreeMap<TxnIndex, &'a Place>,
        outside: &mut BTreeMap<TxnIndex, &'a Place>,
    ) -> Result<(), String> {
        let none = Vec::new();
        let versions = self.places.get(place).unwrap_or(&none);
        let versions: Vec<&Version> =
            versions.iter().filter(|v| self.txns[v.txn].outcome != Outcome::Aborted).collect();
        // Number of versions that are inside, for each way in which the place may look like that.
        let mut ways: Vec<usize> = (1..=versions.len()).filter(|&n| versions[n - 1].value == value).collect();
        if value.is_none() {
            ways.insert(0, 0);
        }
        if ways.is_empty() {
            return Err(format!("{place:?} shows {value:?}; ever written: {}", self.describe(&versions)));
        }
        let possible = |n: &usize| {
            self.below(&versions, *n).all(|v| self.may_be_inside(v.txn, look))
                && versions[*n..].iter().all(|v| self.may_be_outside(v.txn, look))
        };
        let possible: Vec<usize> = ways.iter().copied().filter(possible).collect();
        match possible[..] {
            [] => {
                Err(format!("{place:?} shows {value:?} at {look:?}; written: {}", self.describe(&versions)))
            }
            [n] => {
                inside.extend(self.below(&versions, n).map(|v| (v.txn, place)));
                outside.extend(versions[n..].iter().map(|v| (v.txn, place)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Of the first `n` versions those that must be there when the last of them is shown. One in doubt from an earlier life may
    /// as well have been lost before that was written.
    fn below<'v>(&self, versions: &'v [&Version], n: usize) -> impl Iterator<Item = &'v Version> {
        let life = versions[..n].last().map_or(0, |shown| self.txns[shown.txn].life);
        versions[..n].iter().copied().filter(move |version| {
            let txn = &self.txns[version.txn];
            !(self.is_open(txn) && txn.life < life)
        })
    }

    fn may_be_inside(&self, txn: TxnIndex, look: Look) -> bool {
        self.txns[txn].called <= look.to
    }

    fn may_be_outside(&self, txn: TxnIndex, look: Look) -> bool {
        let txn = &self.txns[txn];
        txn.in_doubt || !matches!(txn.outcome, Outcome::Acknowledged(at) if at < look.from)
    }

    fn agree(
        &self,
        inside: &BTreeMap<TxnIndex, &Place>,
        outside: &BTreeMap<TxnIndex, &Place>,
        look: Look,
    ) -> Result<(), String> {
        let both: BTreeSet<_> = inside.keys().filter(|txn| outside.contains_key(txn)).collect();
        if let Some(txn) = both.first() {
            return Err(format!(
                "{:?} is seen by halves at {look:?}: at {:?}, not at {:?}",
                self.txns[**txn], inside[txn], outside[txn]
            ));
        }
        // One order of commits in each life: who was acknowledged before another one was called comes first.
        let mut first_outside: BTreeMap<u64, (TxnIndex, &Place)> = BTreeMap::new();
        for (&txn, &place) in outside {
            let first = first_outside.entry(self.txns[txn].life).or_insert((txn, place));
            if self.acknowledged(txn) < self.acknowledged(first.0) {
                *first = (txn, place);
            }
        }
        for (&last, last_at) in inside {
            if let Some(&(first, first_at)) = first_outside.get(&self.txns[last].life)
                && self.acknowledged(first) < self.txns[last].called
            {
                return Err(format!(
                    "{:?} is seen at {last_at:?}, but {:?}, which ended before it began to commit, is not, at {first_at:?}; \
                     {look:?}",
                    self.txns[last], self.txns[first]
                ));
            }
        }
        Ok(())
    }

    fn describe(&self, versions: &[&Version]) -> String {
        let last = versions.len().saturating_sub(6);
        let each = versions[last..].iter().map(|v| format!("{:?} by {:?}", v.value, self.txns[v.txn]));
        each.collect::<Vec<_>>().join("; ")
    }
}
