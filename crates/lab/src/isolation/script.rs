//! The classic anomalies as scripts: sessions that take turns, and what each statement gives.
//!
//! A script's file has lines `setup: STATEMENT`, which run first, and then steps `SESSION: STATEMENT`, where a session is a letter.
//! `begin` begins a transaction at the level that the script is played at. After a step, and before the next one, every session has
//! either answered or waits for a lock, as `pg_locks` tells; so nothing depends on time. A step `SESSION!: STATEMENT` is one that ends
//! without anybody's help, though it may seem to wait: the one that closes a deadlock. That is never session `a`'s, as PostgreSQL finds
//! a deadlock by a time-out, which is made long for `a`.
//!
//! A line `gannet: THEIRS => OURS` says where Gannet's answer differs on purpose.
//!
//! The outcome is a transcript: each step with its answer, `waits`, or `cannot: it still waits`; below it, answers that the step gave to those
//! who waited.

use super::client::{Answer, Client};
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::Failure;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How often it is looked whether a session waits.
const PERIOD: Duration = Duration::from_millis(2);
/// How long a statement may neither end nor wait for a lock.
const LIMIT: Duration = Duration::from_secs(60);
/// Levels that a script is played at.
pub const LEVELS: [&str; 2] = ["read committed", "repeatable read"];

/// A step of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    session: char,
    statement: String,
    /// It ends by itself.
    ends: bool,
}

/// Sessions that take turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    setup: Vec<String>,
    /// PostgreSQL's words, and ours.
    differs: Vec<(String, String)>,
    steps: Vec<Step>,
}

impl Script {
    /// Reads a script's text.
    ///
    /// # Errors
    /// A line that is neither empty, nor a comment (`#`), nor a step.
    pub fn parse(text: &str) -> Result<Self> {
        let mut script = Script { setup: Vec::new(), differs: Vec::new(), steps: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || anyhow!("line {}: {line:?} is no SESSION: STATEMENT", number + 1);
            let (who, statement) = line.split_once(": ").ok_or_else(wrong)?;
            let (who, ends) = who.strip_suffix('!').map_or((who, false), |who| (who, true));
            let mut letters = who.chars();
            match (who, letters.next(), letters.next()) {
                ("gannet", ..) => {
                    let (theirs, ours) = statement.split_once(" => ").ok_or_else(wrong)?;
                    script.differs.push((theirs.to_owned(), ours.to_owned()));
                }
                ("setup", ..) if script.steps.is_empty() => script.setup.push(statement.to_owned()),
                (_, Some(session @ 'a'..='z'), None) => {
                    script.steps.push(Step { session, statement: statement.to_owned(), ends });
                }
                _ => return Err(wrong()),
            }
        }
        Ok(script)
    }

    /// PostgreSQL's outcomes as they are to be here.
    fn ours(&self, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for (theirs, ours) in &self.differs {
            if !text.contains(theirs) {
                bail!("PostgreSQL does not answer {theirs:?}, so there is nothing to differ from");
            }
            text = text.replace(theirs, ours);
        }
        Ok(text)
    }

    /// Plays it at a level: the transcript.
    ///
    /// # Errors
    /// A set-up that fails, a statement that neither ends nor waits, and one that is still waiting at the end.
    pub fn play(&self, connect: &dyn Fn() -> Result<Client>, level: &str) -> Result<String> {
        let mut monitor = connect()?;
        for statement in &self.setup {
            monitor.run(statement).map_err(|failure| anyhow!("{statement}: {failure}"))?;
        }
        let mut stage = Stage { monitor, actors: BTreeMap::new(), transcript: String::new() };
        for step in &self.steps {
            if let Entry::Vacant(vacant) = stage.actors.entry(step.session) {
                vacant.insert(Actor::enter(connect()?, step.session));
            }
            let statement = match &*step.statement {
                "begin" => format!("begin isolation level {level}"),
                statement => statement.to_owned(),
            };
            stage.step(step, statement).with_context(|| format!("{}: {}", step.session, step.statement))?;
        }
        if let Some((name, _)) = stage.actors.iter().find(|(_, actor)| actor.busy) {
            bail!("session {name} still waits at the end");
        }
        Ok(stage.transcript)
    }
}

/// A session in a thread of its own.
struct Actor {
    pid: i32,
    say: Sender<String>,
    hear: Receiver<String>,
    busy: bool,
}

impl Actor {
    fn enter(mut client: Client, name: char) -> Self {
        let pid = client.pid();
        let (say, lines) = channel::<String>();
        let (answers, hear) = channel();
        // Who finds a deadlock is to be no matter of chance. Gannet has no such setting, and finds it at once.
        let limit = if name == 'a' { "60s" } else { "10ms" };
        let _ = client.run(&format!("set deadlock_timeout = '{limit}'"));
        std::thread::spawn(move || {
            for line in lines {
                if answers.send(shown(client.run(&line))).is_err() {
                    break;
                }
            }
        });
        Actor { pid, say, hear, busy: false }
    }
}

/// An answer as a transcript has it.
fn shown(answer: std::result::Result<Answer, Failure>) -> String {
    match answer {
        Ok(answer) => {
            let mut text = String::new();
            for row in &answer.rows {
                let values: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
                _ = writeln!(text, "| {}", values.join(" | "));
            }
            text + &answer.tag
        }
        Err(Failure::Server(report)) => format!("{} {}", report.state, report.message),
        Err(failure) => failure.to_string(),
    }
}

/// A play under way.
struct Stage {
    monitor: Client,
    actors: BTreeMap<char, Actor>,
    transcript: String,
}

impl Stage {
    fn tell(&mut self, who: &str, text: &str) {
        for line in text.lines() {
            _ = writeln!(self.transcript, "    {who}{line}");
        }
    }

    fn step(&mut self, step: &Step, statement: String) -> Result<()> {
        _ = writeln!(self.transcript, "{}: {}", step.session, step.statement);
        let Some(actor) = self.actors.get_mut(&step.session) else { return Ok(()) };
        if actor.busy {
            self.tell("", "cannot: it still waits");
            return Ok(());
        }
        actor.say.send(statement).map_err(|_| anyhow!("the session is gone"))?;
        actor.busy = true;
        match self.settle(step.session, step.ends)? {
            Some(answer) => self.tell("", &answer),
            None => self.tell("", "waits"),
        }
        let busy: Vec<char> =
            self.actors.iter().filter(|(_, actor)| actor.busy).map(|(name, _)| *name).collect();
        for name in busy.into_iter().filter(|name| *name != step.session) {
            if let Some(answer) = self.settle(name, false)? {
                self.tell(&format!("{name}: "), &answer);
            }
        }
        Ok(())
    }

    /// Waits until a session has answered, or waits for a lock; or, where it `ends` by itself, for its answer only.
    fn settle(&mut self, name: char, ends: bool) -> Result<Option<String>> {
        let Some(actor) = self.actors.get_mut(&name) else { return Ok(None) };
        let waits = format!("select count(*) from pg_locks where pid = {} and not granted", actor.pid);
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            match actor.hear.recv_timeout(PERIOD) {
                Ok(answer) => {
                    actor.busy = false;
                    return Ok(Some(answer));
                }
                Err(RecvTimeoutError::Disconnected) => bail!("session {name} is gone"),
                Err(RecvTimeoutError::Timeout) if ends => {}
                Err(RecvTimeoutError::Timeout) => {
                    let answer = self.monitor.run(&waits).map_err(|failure| anyhow!("{waits}: {failure}"))?;
                    if answer.rows != [[Some("0".to_owned())]] {
                        return Ok(None);
                    }
                }
            }
        }
        match actor.hear.try_recv() {
            Err(TryRecvError::Empty) => bail!("session {name} neither answers nor waits for a lock"),
            _ => bail!("session {name} took {LIMIT:?} for its answer"),
        }
    }
}

/// What is expected of a script: its transcripts, by level.
fn outcomes(text: &str) -> BTreeMap<&str, String> {
    let mut outcomes = BTreeMap::new();
    let mut level = "";
    for line in text.lines() {
        match line.strip_prefix("== ") {
            Some(next) => level = next,
            None => {
                let transcript: &mut String = outcomes.entry(level).or_default();
                transcript.push_str(line);
                transcript.push('\n');
            }
        }
    }
    outcomes
}

/// The scripts of a folder, by name.
fn scripts(folder: &Path) -> Result<BTreeMap<String, Script>> {
    let mut scripts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|ext| ext == "script"))
        else {
            continue;
        };
        let script = Script::parse(&std::fs::read_to_string(&path)?);
        scripts
            .insert(name.to_string_lossy().into_owned(), script.with_context(|| path.display().to_string())?);
    }
    Ok(scripts)
}

/// Plays all scripts of a folder, and compares what comes out with `NAME.out`: how many were played, and what differs.
///
/// # Errors
/// A script that cannot be played, or has no outcome yet.
pub fn compare(folder: &Path, connect: &dyn Fn() -> Result<Client>) -> Result<(usize, String)> {
    let (mut played, mut wrong) = (0, String::new());
    for (name, script) in scripts(folder)? {
        let out = folder.join(format!("{name}.out"));
        let text = std::fs::read_to_string(&out).map_err(Into::into).and_then(|text| script.ours(&text));
        let text = text.with_context(|| out.display().to_string())?;
        let expected = outcomes(&text);
        // READ UNCOMMITTED is another word for READ COMMITTED.
        let uncommitted = expected.get("read committed").map(|transcript| ("read uncommitted", transcript));
        for (level, expected) in expected.iter().map(|(level, text)| (*level, text)).chain(uncommitted) {
            let found = script.play(connect, level).with_context(|| format!("{name}, {level}"))?;
            played += 1;
            if found != *expected {
                _ = writeln!(wrong, "{name}, {level}\n--- expected\n{expected}--- found\n{found}");
            }
        }
    }
    Ok((played, wrong))
}

/// Plays all scripts of a folder, and writes down what comes out.
///
/// # Errors
/// A script that cannot be played, or a file that cannot be written.
pub fn record(folder: &Path, connect: &dyn Fn() -> Result<Client>) -> Result<usize> {
    let mut played = 0;
    for (name, script) in scripts(folder)? {
        let mut text = String::new();
        for level in LEVELS {
            let transcript = script.play(connect, level).with_context(|| format!("{name}, {level}"))?;
            text += &format!("== {level}\n{transcript}");
            played += 1;
        }
        std::fs::write(folder.join(format!("{name}.out")), text)?;
    }
    Ok(played)
}
