//! A statement as a layer above makes it: one view, a scan of it that stays open while rows it has shown, and others, are
//! changed, and which must show none of that.

use crate::oracle::{Observation, Place, Writes};
use crate::plan::trace;
use crate::session::{Rows, Step, TAG, Work};
use gannet_store::{Error, LockMode, Outcome, Scan, Tree, View};
use std::collections::BTreeSet;
use std::ops::Bound;

/// How often a statement looks at a row again that somebody has changed.
const ATTEMPTS: usize = 3;

/// What a statement is at work on.
struct Statement {
    view: View,
    tree: Tree,
    token: u64,
    /// Keys it has written to.
    touched: BTreeSet<Vec<u8>>,
}

impl Work<'_> {
    pub(crate) fn statement(&mut self, tree: &Tree, token: u64) -> Step {
        let (low, high, forward) = (self.key(), self.key(), self.random.one_in(2));
        let whole = self.random.one_in(4);
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let range = match whole {
            true => (Bound::Unbounded, Bound::Unbounded),
            false => (Bound::Included(low.as_slice()), Bound::Included(high.as_slice())),
        };
        let savepoint = self.txn.savepoint();
        let (own, from) = (self.own.clone(), self.world.moment());
        let view = self.txn.view();
        let to = self.world.moment();
        trace(|| format!("{}: a statement from {from} to {to}", self.name));
        let mut statement =
            Statement { view: view.clone(), tree: tree.clone(), token, touched: BTreeSet::new() };
        let scan = view.scan(tree, range);
        let mut scan = self.sorted("begin a statement's scan", scan)?;
        let mut rows: Rows = Vec::new();
        while let Some((key, value)) = self.step(&mut scan, forward)? {
            if key != TAG {
                self.touch(&mut statement, &key, &value)?;
            }
            rows.push((key, value));
            if self.random.one_in(40) {
                // It fails, is taken back, and goes on all the same: its view is as good as before.
                let done = self.txn.rollback_to(savepoint);
                self.sorted("take back a statement", done)?;
                self.own.clone_from(&own);
                self.trees.clear();
                statement.touched.clear();
            }
        }
        self.look_again(&statement, range, forward, &rows)?;
        let bounds = if whole { (Vec::new(), None) } else { (low.clone(), Some(high.clone())) };
        let seen = self.shown(&own, token, bounds, rows);
        self.judge_statement(&own, seen, from, to);
        Ok(())
    }

    fn step(&self, scan: &mut Scan, forward: bool) -> Step<Option<(Vec<u8>, Vec<u8>)>> {
        let row = if forward { scan.next() } else { scan.previous() };
        let row = row.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
        self.sorted("a step of a statement", row)
    }

    /// The same view shows the same rows, whatever happened, the other way round too.
    fn look_again(
        &mut self,
        statement: &Statement,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        forward: bool,
        rows: &Rows,
    ) -> Step {
        let scan = statement.view.scan(&statement.tree, range);
        let mut scan = self.sorted("look again", scan)?;
        scan.look_ahead(self.random.one_in(2));
        let mut again: Rows = Vec::new();
        while let Some(row) = self.step(&mut scan, !forward)? {
            again.push(row);
        }
        again.reverse();
        assert!(again == *rows, "{}: a view shows something else later", self.name);
        let key = self.key();
        let value = statement.view.get(&statement.tree, &key);
        let value = self.sorted("get by a view", value)?;
        if let Some((_, expected)) = rows.iter().find(|(known, _)| *known == key) {
            assert!(value.as_ref() == Some(expected), "{}: a view's scan and its get differ", self.name);
        }
        Ok(())
    }

    /// Does something to a row that was shown, or to another one.
    fn touch(&mut self, statement: &mut Statement, key: &[u8], value: &[u8]) -> Step {
        match self.random.below(12) {
            0..=2 => self.change(statement, key, value, false),
            3 => self.change(statement, key, value, true),
            4 => self.hold(statement, key, value),
            5 => {
                let (key, new) = (self.key(), self.world.moment());
                let put = self.txn.put(&statement.tree, &key, &self.world.plan.value(new));
                self.sorted("put beside a scan", put)?;
                self.wrote(statement.token, &key, Some(new));
                statement.touched.insert(key);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, statement: &mut Statement, key: &[u8], value: &[u8], delete: bool) -> Step {
        let place = Place { tree: statement.token, key: key.to_vec() };
        let mut seen = value.to_vec();
        for _ in 0..ATTEMPTS {
            let new = self.world.moment();
            let (txn, view, tree) = (&mut self.txn, &statement.view, &statement.tree);
            let outcome = match delete {
                true => txn.delete_seen(view, tree, key, &seen),
                false => txn.update_seen(view, tree, key, &seen, &self.world.plan.value(new)),
            };
            match self.sorted("change a row that was seen", outcome)? {
                Outcome::Done => {
                    assert!(!statement.touched.contains(key), "{}: {place:?} changed twice", self.name);
                    self.was_newest(&place, &seen);
                    self.wrote(statement.token, key, (!delete).then_some(new));
                    statement.touched.insert(key.to_vec());
                    return Ok(());
                }
                outcome => match self.sort_outcome(statement, key, outcome, &seen) {
                    Some(changed) => seen = changed,
                    None => return Ok(()),
                },
            }
        }
        Ok(())
    }

    fn hold(&mut self, statement: &mut Statement, key: &[u8], value: &[u8]) -> Step {
        let mode = [LockMode::Exclusive, LockMode::Share, LockMode::KeyShare][self.random.below(3) as usize];
        let wait = self.random.one_in(2);
        let outcome = self.txn.lock_seen(&statement.view, &statement.tree, key, value, mode, wait);
        if !wait && matches!(outcome, Err(Error::Locked(_))) {
            return Ok(());
        }
        let outcome = self.sorted("lock a row that was seen", outcome)?;
        if outcome != Outcome::Done {
            self.sort_outcome(statement, key, outcome, value);
        } else if mode != LockMode::KeyShare {
            self.was_newest(&Place { tree: statement.token, key: key.to_vec() }, value);
        }
        Ok(())
    }

    /// Judges an outcome that is not `Done`; gives the value to try again with.
    fn sort_outcome(
        &self,
        statement: &Statement,
        key: &[u8],
        outcome: Outcome,
        seen: &[u8],
    ) -> Option<Vec<u8>> {
        let name = &self.name;
        trace(|| format!("{name}: {outcome:.80?} instead of what was seen"));
        let touched = statement.touched.contains(key);
        assert_eq!(outcome == Outcome::Repeated, touched, "{name}: {outcome:?} at {key:?}");
        let Outcome::Changed(value) = outcome else {
            assert!(touched || !self.repeatable, "{name}: {outcome:?} under repeatable read");
            return None;
        };
        assert!(!self.repeatable && value != seen, "{name}: {key:?} has changed into what it was");
        let place = Place { tree: statement.token, key: key.to_vec() };
        assert!(!self.own.contains_key(&place), "{name}: somebody changed {key:?} before its eyes");
        self.token(&value);
        Some(value)
    }

    /// The row is held now, and was what was expected: so that is what was committed last.
    fn was_newest(&mut self, place: &Place, seen: &[u8]) {
        let seen = self.token(seen);
        match self.own.get(place) {
            Some(&(_, own)) => assert_eq!(own, Some(seen), "{}: its own {place:?}", self.name),
            None => {
                let newest = self.world.oracle.lock().newest(place);
                assert!(
                    newest.is_none_or(|newest| newest == Some(seen)),
                    "{}: a write at {place:?}",
                    self.name
                );
            }
        }
        self.check_before(place, Some(true), false);
    }

    fn judge_statement(&mut self, own: &Writes, seen: Vec<Observation>, from: u64, to: u64) {
        if self.repeatable {
            let later = std::mem::replace(&mut self.own, own.clone());
            self.observe(seen, from);
            self.own = later;
            return;
        }
        let (mine, foreign): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(p, _)| own.contains_key(p));
        for (place, value) in mine {
            assert_eq!(value, own[&place].1, "{}: a view of its own {place:?}", self.name);
        }
        self.world.judge(&self.name, &foreign, from, to);
    }
}
