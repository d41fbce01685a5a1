//! Sessions that run random transactions on a server, and note what they are told.
//!
//! A round has its own few keys, which are read in full at its end, and its own history. What each session wants to do is a
//! function of the seed; how they meet is not.

use super::client::{Answer, Client};
use super::history::{Action, History, Key, Level, Outcome, Statement, Transaction};
use super::workload::{self, How, Keys, Lock, Plan, Step};
use crate::random::Random;
use anyhow::{Result, anyhow, bail};
use gannet_server::frontend::{Address, Failure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Where sessions work.
pub trait Place: Sync {
    /// A new session.
    fn connect(&self) -> Result<Client>;
    /// Ends the server in the midst of its work, and brings it back.
    fn crash(&self) -> Result<()>;
}

impl Place for Address {
    fn connect(&self) -> Result<Client> {
        Client::connect(self)
    }

    fn crash(&self) -> Result<()> {
        bail!("a server that somebody else has started is not ours to kill")
    }
}

/// At which levels transactions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Levels {
    /// All at one.
    Only(Level),
    /// Read committed and repeatable read, side by side.
    Mixed,
}

/// What a round is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of what sessions want.
    pub seed: u64,
    /// How many work side by side.
    pub sessions: u32,
    /// How many transactions they begin in all.
    pub transactions: u64,
    /// What they work on.
    pub keys: Keys,
    /// Levels of isolation.
    pub levels: Levels,
    /// How often the server is killed meanwhile.
    pub crashes: u64,
}

/// What the sessions of a round share.
struct Shared<'a> {
    place: &'a dyn Place,
    options: &'a Options,
    clock: Instant,
    begun: AtomicU64,
    next_value: AtomicU64,
    failed: AtomicBool,
}

impl Shared<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }
}

/// Runs a round.
///
/// # Errors
/// What a server must not say to these transactions, such as any error but 40001 and 40P01.
pub fn round(place: &dyn Place, options: &Options) -> Result<History> {
    let keys = options.keys;
    let mut client = place.connect()?;
    client.run(workload::TABLES)?;
    client.run(&keys.rows())?;
    drop(client);
    let shared = Shared {
        place,
        options,
        clock: Instant::now(),
        begun: AtomicU64::new(0),
        next_value: AtomicU64::new(1),
        failed: AtomicBool::new(false),
    };
    let shared = &shared;
    let mut transactions = std::thread::scope(|scope| {
        let work = |number| {
            let done = Session::open(shared, number).and_then(Session::work);
            shared.failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        let threads: Vec<_> = (0..options.sessions).map(|number| scope.spawn(move || work(number))).collect();
        let mut all = Vec::new();
        for thread in threads {
            let done = thread.join().unwrap_or_else(|_| Err(anyhow!("a session panicked")));
            all.push(done);
        }
        all.into_iter().collect::<Result<Vec<_>>>()
    })?;
    let mut last = Session::open(shared, options.sessions)?;
    for settings in ["set enable_seqscan = on", "set enable_seqscan = off"] {
        last.client.run(settings)?;
        let read = Step::Read { keys: keys.all(), how: How::Plain };
        let plan = Plan { level: last.own_level, alone: true, steps: vec![read], roll_back: false };
        last.transaction(&plan)?;
    }
    transactions.push(last.done);
    Ok(History { transactions: transactions.concat() })
}

/// What became of a statement.
enum Ran {
    Answered(Answer),
    /// Somebody else was first.
    Conflict,
    /// The connection is gone, and a new one there.
    Lost,
}

struct Session<'a> {
    shared: &'a Shared<'a>,
    number: u32,
    client: Client,
    random: Random,
    /// Of statements without `BEGIN`.
    own_level: Level,
    done: Vec<Transaction>,
}

impl<'a> Session<'a> {
    fn open(shared: &'a Shared<'a>, number: u32) -> Result<Self> {
        let seed = shared.options.seed.wrapping_mul(1000).wrapping_add(number.into());
        let own_level = match shared.options.levels {
            Levels::Only(level) => level,
            Levels::Mixed if number % 2 == 1 => Level::RepeatableRead,
            Levels::Mixed => Level::ReadCommitted,
        };
        let client = Self::connect(shared, number, own_level)?;
        Ok(Session { shared, number, client, random: Random::new(seed), own_level, done: Vec::new() })
    }

    fn connect(shared: &Shared<'_>, number: u32, level: Level) -> Result<Client> {
        let mut client = shared.place.connect()?;
        client.run(&format!("set default_transaction_isolation = '{}'", level.sql()))?;
        // Half of the sessions go through indexes wherever there is one.
        if number % 4 >= 2 {
            client.run("set enable_seqscan = off")?;
        }
        Ok(client)
    }

    fn work(mut self) -> Result<Vec<Transaction>> {
        let options = self.shared.options;
        let between = options.transactions / (options.crashes + 1);
        while !self.shared.failed.load(Ordering::Relaxed) {
            let begun = self.shared.begun.fetch_add(1, Ordering::Relaxed);
            if begun >= options.transactions {
                break;
            }
            if options.crashes > 0 && begun > 0 && begun.is_multiple_of(between) {
                self.shared.place.crash()?;
                self.client = Self::connect(self.shared, self.number, self.own_level)?;
            }
            if self.random.below(100) == 0 {
                let upkeep = workload::UPKEEP[self.random.below(4) as usize];
                self.run(upkeep)?;
            }
            let level = match options.levels {
                Levels::Only(level) => level,
                Levels::Mixed if self.random.below(2) == 0 => Level::ReadCommitted,
                Levels::Mixed => Level::RepeatableRead,
            };
            let mut plan = options.keys.plan(&mut self.random, level);
            if plan.alone {
                plan.level = self.own_level;
            }
            self.transaction(&plan)?;
        }
        Ok(self.done)
    }

    /// Runs a text. A lost connection is replaced.
    fn run(&mut self, sql: &str) -> Result<Ran> {
        match self.client.run(sql) {
            Ok(answer) => Ok(Ran::Answered(answer)),
            Err(Failure::Server(report)) if matches!(&*report.state, "40001" | "40P01") => Ok(Ran::Conflict),
            Err(Failure::Connection(_)) if self.shared.options.crashes > 0 => {
                self.client = Self::connect(self.shared, self.number, self.own_level)?;
                Ok(Ran::Lost)
            }
            Err(Failure::Server(report)) => bail!("{sql}: {} {report}", report.state),
            Err(failure) => bail!("{sql}: {failure}"),
        }
    }

    fn transaction(&mut self, plan: &Plan) -> Result<()> {
        let mut open = Open { session: self, statements: Vec::new(), savepoints: 0 };
        let (outcome, end_sent) = open.run(plan)?;
        let statements = std::mem::take(&mut open.statements);
        let end_answered = (outcome != Outcome::Unknown).then(|| self.shared.now());
        let level = plan.level;
        let session = self.number;
        self.done.push(Transaction { session, level, statements, outcome, end_sent, end_answered });
        Ok(())
    }
}

/// A transaction under way.
struct Open<'s, 'a> {
    session: &'s mut Session<'a>,
    statements: Vec<Statement>,
    savepoints: usize,
}

/// How a step went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Went {
    Well,
    Conflict,
    /// With the connection; `true` when what it did may have been kept.
    Lost(bool),
}

impl Open<'_, '_> {
    /// Runs it: how it ended, and when that was asked for.
    fn run(&mut self, plan: &Plan) -> Result<(Outcome, u64)> {
        if plan.alone {
            let sent = self.session.shared.now();
            let outcome = match self.step(&plan.steps[0], true)? {
                Went::Well => Outcome::Committed,
                Went::Lost(true) => Outcome::Unknown,
                Went::Conflict | Went::Lost(false) => Outcome::Aborted,
            };
            return Ok((outcome, sent));
        }
        let begin = format!("begin isolation level {}", plan.level.sql());
        if let Ran::Lost = self.session.run(&begin)? {
            return Ok((Outcome::Aborted, self.session.shared.now()));
        }
        for step in &plan.steps {
            match self.step(step, false)? {
                Went::Well => {}
                Went::Lost(_) => return Ok((Outcome::Aborted, self.session.shared.now())),
                Went::Conflict => {
                    // What failed may be left at a savepoint, and the rest be tried.
                    let goes_on = self.savepoints > 0 && self.session.random.below(2) == 0;
                    if !goes_on {
                        return self.end("rollback");
                    }
                    if self.step(&Step::RollbackTo, false)? != Went::Well {
                        return Ok((Outcome::Aborted, self.session.shared.now()));
                    }
                }
            }
        }
        self.end(if plan.roll_back { "rollback" } else { "commit" })
    }

    fn end(&mut self, sql: &str) -> Result<(Outcome, u64)> {
        let sent = self.session.shared.now();
        let outcome = match self.session.run(sql)? {
            Ran::Answered(answer) if answer.tag == "COMMIT" => Outcome::Committed,
            Ran::Lost if sql == "commit" => Outcome::Unknown,
            Ran::Answered(_) | Ran::Conflict | Ran::Lost => Outcome::Aborted,
        };
        Ok((outcome, sent))
    }

    fn step(&mut self, step: &Step, alone: bool) -> Result<Went> {
        match step {
            Step::Append { keys, returning } => self.append(keys, *returning, alone),
            Step::Read { keys, how } => {
                let sql = workload::read(keys, *how);
                self.statement(&sql, Vec::new(), |answer| workload::reads(keys, answer, how.locks()), alone)
            }
            Step::Rewrite { key, lock } => {
                let how = if *lock { How::Locked(Lock::Update) } else { How::Plain };
                let sql = workload::read(&[*key], how);
                self.write_read(*key, &sql, *lock, workload::rewrite)
            }
            Step::Replace { key } => self.write_read(*key, &workload::delete(*key), true, workload::insert),
            Step::Savepoint => {
                self.savepoints += 1;
                self.mark("savepoint", Action::Savepoint)
            }
            Step::RollbackTo if self.savepoints > 0 => self.mark("rollback to", Action::RollbackTo),
            Step::Release if self.savepoints > 0 => {
                let went = self.mark("release", Action::Release);
                self.savepoints -= 1;
                went
            }
            Step::RollbackTo | Step::Release => Ok(Went::Well),
        }
    }

    fn mark(&mut self, word: &str, action: Action) -> Result<Went> {
        let sql = format!("{word} s{}", self.savepoints);
        self.statement(&sql, vec![action], |_| Ok(Vec::new()), false)
    }

    fn append(&mut self, keys: &[Key], returning: bool, alone: bool) -> Result<Went> {
        let values: Vec<u64> =
            keys.iter().map(|_| self.session.shared.next_value.fetch_add(1, Ordering::Relaxed)).collect();
        let sql = workload::append(keys, &values, returning);
        let appends = keys.iter().zip(&values).map(|(&key, &value)| Action::Append { key, value }).collect();
        let done = format!(" {}", keys.len());
        let reads = |answer: &Answer| match answer.tag.ends_with(&done) {
            false => Err(anyhow!("{sql}: {}, not{done}", answer.tag)),
            true if returning => workload::reads(keys, answer, true),
            true => Ok(Vec::new()),
        };
        self.statement(&sql, appends, reads, alone)
    }

    /// Reads a list by one statement, and writes it with a value more by another.
    fn write_read(
        &mut self,
        key: Key,
        read: &str,
        locked: bool,
        write: fn(Key, &[u64]) -> String,
    ) -> Result<Went> {
        let went =
            self.statement(read, Vec::new(), |answer| workload::reads(&[key], answer, locked), false)?;
        let read = self.statements.last().and_then(|statement| statement.actions.last());
        let Some(Action::Read { values, .. }) = read.filter(|_| went == Went::Well) else { return Ok(went) };
        let mut values = values.clone();
        let value = self.session.shared.next_value.fetch_add(1, Ordering::Relaxed);
        values.push(value);
        let sql = write(key, &values);
        let one = |answer: &Answer| match answer.tag.ends_with(" 1") {
            true => Ok(Vec::new()),
            false => Err(anyhow!("{sql}: {}", answer.tag)),
        };
        self.statement(&sql, vec![Action::Append { key, value }], one, false)
    }

    /// Runs a statement and notes what it did, and then what it read.
    fn statement(
        &mut self,
        sql: &str,
        mut actions: Vec<Action>,
        reads: impl FnOnce(&Answer) -> Result<Vec<Action>>,
        alone: bool,
    ) -> Result<Went> {
        let sent = self.session.shared.now();
        match self.session.run(sql)? {
            Ran::Answered(answer) => {
                let answered = Some(self.session.shared.now());
                actions.extend(reads(&answer)?);
                self.statements.push(Statement { sent, answered, actions });
                Ok(Went::Well)
            }
            Ran::Conflict => {
                let answered = Some(self.session.shared.now());
                self.statements.push(Statement { sent, answered, actions: Vec::new() });
                Ok(Went::Conflict)
            }
            Ran::Lost => {
                let may_be_kept = alone && !actions.is_empty();
                if may_be_kept {
                    self.statements.push(Statement { sent, answered: None, actions });
                }
                Ok(Went::Lost(may_be_kept))
            }
        }
    }
}
