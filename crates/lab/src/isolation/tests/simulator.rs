//! A database in a few lines, one statement at a time: its histories are clean, whatever the seed.

use super::super::history::{Action, History, Key, Level, Outcome, Statement, Transaction};
use crate::random::Random;
use std::collections::BTreeMap;

type State = BTreeMap<Key, Vec<u64>>;

const KEYS: [Key; 5] = [Key::List(0), Key::List(1), Key::List(2), Key::Set(0), Key::Set(1)];
const SESSIONS: usize = 6;

/// A transaction under way.
struct Open {
    recorded: Transaction,
    snapshot: Option<State>,
    own: Vec<(Key, u64)>,
    savepoints: Vec<usize>,
    steps: u64,
}

impl Open {
    /// A statement about savepoints, if `what` is one.
    fn mark(&mut self, what: u64) -> Option<Action> {
        match what {
            9 => {
                self.savepoints.push(self.own.len());
                Some(Action::Savepoint)
            }
            10 => {
                self.own.truncate(*self.savepoints.last()?);
                Some(Action::RollbackTo)
            }
            11 => self.savepoints.pop().map(|_| Action::Release),
            _ => None,
        }
    }
}

/// The database, and its clients.
pub(super) struct Simulator {
    random: Random,
    now: u64,
    committed: State,
    /// Who has a list's row for himself.
    locks: BTreeMap<Key, usize>,
    open: [Option<Open>; SESSIONS],
    /// When each session had its last answer.
    answered: [u64; SESSIONS],
    next_value: u64,
    history: History,
}

/// A clean history.
pub(super) fn history(seed: u64) -> History {
    let mut simulator = Simulator {
        random: Random::new(seed),
        now: 100,
        committed: State::new(),
        locks: BTreeMap::new(),
        open: Default::default(),
        answered: [0; SESSIONS],
        next_value: 1,
        history: History::default(),
    };
    for _ in 0..500 {
        simulator.now += 10;
        let session = simulator.random.below(SESSIONS as u64) as usize;
        if simulator.answered[session] < simulator.now {
            simulator.step(session);
        }
    }
    simulator.finish()
}

impl Simulator {
    /// What is asked for somewhat earlier and answered somewhat later than it happens.
    fn times(&mut self, session: usize) -> (u64, u64) {
        let sent = (self.now - self.random.below(40)).max(self.answered[session] + 1).min(self.now);
        let answered = self.now + self.random.below(40);
        self.answered[session] = answered;
        (sent, answered)
    }

    fn step(&mut self, session: usize) {
        let Some(mut open) = self.open[session].take() else {
            self.open[session] = Some(self.begin(session));
            return;
        };
        if open.steps == 0 {
            let outcome = match self.random.below(10) {
                0 => Outcome::Aborted,
                1 => Outcome::Unknown,
                _ => Outcome::Committed,
            };
            return self.end(session, open, outcome);
        }
        open.steps -= 1;
        match self.actions(session, &mut open) {
            Some(actions) => {
                let (sent, answered) = self.times(session);
                open.recorded.statements.push(Statement { sent, answered: Some(answered), actions });
                self.open[session] = Some(open);
            }
            None => self.end(session, open, Outcome::Aborted),
        }
    }

    fn begin(&mut self, session: usize) -> Open {
        let level = if self.random.below(2) == 0 { Level::ReadCommitted } else { Level::RepeatableRead };
        let recorded = Transaction {
            session: session as u32,
            level,
            statements: Vec::new(),
            outcome: Outcome::Aborted,
            end_sent: 0,
            end_answered: None,
        };
        let steps = 1 + self.random.below(5);
        Open { recorded, snapshot: None, own: Vec::new(), savepoints: Vec::new(), steps }
    }

    fn end(&mut self, session: usize, mut open: Open, outcome: Outcome) {
        let kept = match outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => self.random.below(2) == 0,
        };
        if kept {
            for (key, value) in open.own {
                self.committed.entry(key).or_default().push(value);
            }
        }
        self.locks.retain(|_, holder| *holder != session);
        let (sent, answered) = self.times(session);
        open.recorded.outcome = outcome;
        open.recorded.end_sent = sent;
        open.recorded.end_answered = (outcome != Outcome::Unknown).then_some(answered);
        self.history.transactions.push(open.recorded);
    }

    /// One statement's; none on a conflict.
    fn actions(&mut self, session: usize, open: &mut Open) -> Option<Vec<Action>> {
        let key = KEYS[self.random.below(KEYS.len() as u64) as usize];
        let what = self.random.below(12);
        if let Some(mark) = open.mark(what) {
            return Some(vec![mark]);
        }
        // Marks take no snapshot.
        if open.snapshot.is_none() || open.recorded.level == Level::ReadCommitted {
            open.snapshot = Some(self.committed.clone());
        }
        match what {
            0..5 => {
                if let Key::List(_) = key {
                    self.lock(session, key, open)?;
                }
                let value = self.next_value;
                self.next_value += 1;
                open.own.push((key, value));
                let mut actions = vec![Action::Append { key, value }];
                if matches!(key, Key::List(_)) && self.random.below(3) == 0 {
                    actions.push(self.read(key, open, true));
                }
                Some(actions)
            }
            5..8 => {
                let other = KEYS[self.random.below(KEYS.len() as u64) as usize];
                let both = if other == key { vec![key] } else { vec![key, other] };
                Some(both.into_iter().map(|key| self.read(key, open, false)).collect())
            }
            8 if matches!(key, Key::List(_)) => {
                self.lock(session, key, open)?;
                Some(vec![self.read(key, open, true)])
            }
            _ => Some(vec![self.read(key, open, false)]),
        }
    }

    fn lock(&mut self, session: usize, key: Key, open: &Open) -> Option<()> {
        let holder = *self.locks.entry(key).or_insert(session);
        let seen = open.snapshot.as_ref().and_then(|snapshot| snapshot.get(&key));
        let unchanged = seen == self.committed.get(&key) || open.recorded.level == Level::ReadCommitted;
        (holder == session && unchanged).then_some(())
    }

    fn read(&self, key: Key, open: &Open, locked: bool) -> Action {
        let state = open.snapshot.as_ref().unwrap_or(&self.committed);
        let mut values = state.get(&key).cloned().unwrap_or_default();
        values.extend(open.own.iter().filter(|(other, _)| *other == key).map(|(_, value)| *value));
        Action::Read { key, values, locked }
    }

    /// Everybody else leaves without a commit, and all is read.
    fn finish(mut self) -> History {
        for session in 0..SESSIONS {
            self.now += 50;
            if let Some(open) = self.open[session].take() {
                self.end(session, open, Outcome::Aborted);
            }
        }
        self.now += 100;
        let mut last = self.begin(0);
        last.recorded.level = Level::ReadCommitted;
        let actions = KEYS.iter().map(|key| self.read(*key, &last, false)).collect();
        let (sent, answered) = self.times(0);
        last.recorded.statements.push(Statement { sent, answered: Some(answered), actions });
        self.now = answered + 10;
        self.end(0, last, Outcome::Committed);
        self.history
    }
}
