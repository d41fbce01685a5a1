//! What is said of it.

use super::series::{HELD_SECONDS, Series};
use super::{Contestant, On, PROFILE, Plan, WRITE_RATE, contestants, id};
use crate::chart::{Bars, Bound, Figure, Kind, Line, Spread, number};
use crate::document::{Document, Part};
use crate::experiments::are_told_apart;
use crate::record::Record;
use crate::restart::Side;
use gannet_base::units::format_size;
use serde_json::Value;

pub(super) const MEBI: f64 = (1 << 20) as f64;
/// The speed that is to be reached again, as a share of the one before.
const SHARE: f64 = 0.9;
/// Steps of the lines over time, in seconds.
pub(super) const LINE_STEP: f64 = 0.5;

pub(super) fn report(run: &Record) -> Document {
    let found = Found { run, plan: Plan::of(run.order.size), contestants: contestants(&run.order) };
    let mut parts = found.introduction();
    parts.push(Part::Heading("After the kill".to_owned()));
    parts.extend(found.starts());
    parts.push(Part::Heading("Over time".to_owned()));
    parts.extend(found.over_time());
    parts.extend(found.steady());
    parts.extend(found.serial_reads());
    parts.push(Part::Heading("Redo".to_owned()));
    parts.extend(found.redo());
    parts.push(Part::Heading("Shutdown".to_owned()));
    parts.extend(found.shutdown());
    parts.push(Part::Heading("Nothing is lost".to_owned()));
    parts.push(found.durability());
    parts.push(Part::Heading("Settings".to_owned()));
    parts.push(found.settings());
    Document { title: "X6 restart: a kill at full load, and a wide but slow disk".to_owned(), parts }
}

/// What the steps have brought.
pub(super) struct Found<'r> {
    pub(super) run: &'r Record,
    pub(super) plan: Plan,
    pub(super) contestants: Vec<Contestant>,
}

pub(super) fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

pub(super) fn told(spread: Option<Spread>) -> String {
    let Some(spread) = spread else { return "–".to_owned() };
    let at_least = if spread.is_at_least { "≥ " } else { "" };
    let median = number(spread.median);
    match spread.least < spread.most {
        true => format!("{at_least}{median} ({}–{})", number(spread.least), number(spread.most)),
        false => format!("{at_least}{median}"),
    }
}

/// A whole number for people.
fn count(value: f64) -> String {
    if value < 100.0 { format!("{value:.0}") } else { number(value) }
}

pub(super) fn head(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

impl Found<'_> {
    /// What a step of each repetition has printed.
    pub(super) fn outputs(&self, step: &str, contestant: &Contestant) -> Vec<&Value> {
        let output = |round| self.run.find(&id(step, contestant, round))?.output.first();
        (1..=self.run.order.repeat).filter_map(output).collect()
    }

    pub(super) fn figures(&self, step: &str, contestant: &Contestant, path: &str) -> Vec<f64> {
        self.outputs(step, contestant).iter().filter_map(|output| output.pointer(path)?.as_f64()).collect()
    }

    pub(super) fn spread(&self, step: &str, contestant: &Contestant, path: &str) -> Option<Spread> {
        Spread::of(&self.figures(step, contestant, path))
    }

    /// What a step has counted in one repetition.
    fn series(&self, step: &str, contestant: &Contestant, round: u32) -> Option<Series> {
        Series::of(&self.run.find(&id(step, contestant, round))?.output.first()?["samples"])
    }

    /// What was counted as long as nothing was the matter, in one repetition.
    fn before_in(&self, contestant: &Contestant, round: u32) -> Option<Series> {
        let step = if contestant.is_killed() { "crash" } else { "steady" };
        self.series(step, contestant, round)
    }

    /// The same, in each.
    pub(super) fn before(&self, contestant: &Contestant) -> Vec<Series> {
        (1..=self.run.order.repeat).filter_map(|round| self.before_in(contestant, round)).collect()
    }

    /// What was counted after a start, in each repetition.
    fn after(&self, contestant: &Contestant) -> Vec<Series> {
        (1..=self.run.order.repeat).filter_map(|round| self.series("loaded", contestant, round)).collect()
    }

    /// Operations a second before the kill.
    fn rate(&self, contestant: &Contestant) -> Option<Spread> {
        let rates = self
            .before(contestant)
            .iter()
            .map(|series| series.rate(self.plan.before.into()))
            .collect::<Vec<_>>();
        Spread::of(&rates)
    }

    /// Seconds until as much was done as before; where it was not, until it was looked at no more.
    fn recovered(&self, contestant: &Contestant) -> Vec<Bound> {
        // A start has been loaded with what its own repetition had been killed at, where that was measured.
        let reached = |round: u32| {
            let rate = self.before_in(contestant, round)?.rate(self.plan.before.into());
            let after = self.series("loaded", contestant, round)?;
            // Nobody gets back to nothing.
            let reached = after.reaches(SHARE * rate).filter(|_| rate > 0.0);
            Some(reached.map_or(Bound { value: after.end(), is_at_least: true }, Bound::from))
        };
        (1..=self.run.order.repeat).filter_map(reached).collect()
    }

    fn introduction(&self) -> Vec<Part> {
        let Plan { log, branches, memory, rows, embedded_memory, loaded, before, .. } = &self.plan;
        let groups: Vec<bool> = self
            .contestants
            .iter()
            .flat_map(|one| self.outputs("crash", one))
            .map(|output| !output["group"].is_null())
            .collect();
        let held = match groups.contains(&true) {
            true => "in a memory cgroup of that, page cache included",
            false if groups.is_empty() => {
                "in a memory cgroup of that, page cache included, where one can be made"
            }
            false => "without a memory cgroup, as none could be made: with the whole machine's page cache",
        };
        let text = |text: String| Part::Text(text);
        vec![
            text(format!(
                "A database is loaded until a restart would have to go through {} of its log, and killed at full load. Copies of what that leaves are started anew, with nothing in \
                 the page cache: one is loaded from its first commit on for {loaded} s and told to end under load; one is left in peace until all is redone; one is killed again in the \
                 middle of that. What the sessions were told before is compared with what is there, each time.",
                format_size(*log)
            )),
            text(format!(
                "Servers keep the books of TPC-B, {branches} branches, for 16 sessions on a Unix socket, with prepared statements and one more update: each session counts in a row of its own. \
                 A server has {}. Embedded databases have {} rows of 200 bytes, of which 16 threads write random ones anew, each in a transaction of its own{}; every fourth counts in a row of the thread's own. Their processes have {}. All of them run {held}, and every commit is durable when acknowledged.",
                format_size(*memory),
                count(*rows as f64),
                self.of_rivals(["", " (SQLite: 1 thread, as it has one writer at a time)", ""]),
                format_size(*embedded_memory)
            )),
            text(format!(
                "The same bytes of log for everybody: Gannet is killed at half of its wal_limit, where its page writer keeps it{}. The speed before is that of the last {before} s.",
                self.of_rivals([
                    "; PostgreSQL makes no checkpoint but one before the load",
                    "; SQLite copies nothing of its WAL home (by default it would at every 1,000 pages)",
                    "; Berkeley DB makes no checkpoint before it is closed",
                ])
            )),
            Part::Heading("Published".to_owned()),
            text(
                "A journal of 64 MB files was read 32 KB at a time, one after the other, at more than 0.5 ms a read; about 256,000 scattered writes of 4 KB (1 GB) had to go to a data file \
                 of 45 GB at 3 MB/s; syncing it took minutes, and clients were refused after 30 s. What helped was to read the journal ahead, not to sync during the start, and to read the \
                 pages to be changed ahead."
                    .to_owned(),
            ),
            text(format!(
                "What cannot be compared: their volume, and the size of their data. {PROFILE} is a model of such a volume between Gannet and the device (0.5–2 ms a request, 64 at one time, 1 GiB/s \
                 read, 512 MiB/s written), with one request at a time, or with {} MB/s written as theirs; it is Gannet's own, so rivals are not on it, and the kill itself is made on the device. Rivals have redone everything \
                 when they let somebody in; Gannet lets everybody in first.",
                WRITE_RATE / 1_000_000
            )),
        ]
    }

    /// What is said of PostgreSQL, SQLite and Berkeley DB, of those that take part.
    pub(super) fn of_rivals(&self, said: [&str; 3]) -> String {
        let sides = [Side::WirePostgres, Side::Sqlite, Side::BerkeleyDb];
        sides.into_iter().zip(said).filter(|(side, _)| self.takes_part(*side)).map(|(_, said)| said).collect()
    }

    fn starts(&self) -> Vec<Part> {
        let groups = ["first commit", "first commit, killed again", "90 % of the speed before"];
        let mut bars = Vec::new();
        let mut rows = Vec::new();
        for one in &self.contestants {
            let mut first = self.figures("loaded", one, "/first_commit_seconds");
            first.extend(self.figures("rest", one, "/first_commit_seconds"));
            let first = Spread::of(&first);
            let again = self.spread("rest", one, "/again/first_commit_seconds");
            let reached = self.recovered(one);
            let missed = reached.iter().filter(|bound| bound.is_at_least).count();
            let reached = Spread::of_bounds(&reached);
            let after: Vec<f64> =
                self.after(one).iter().map(|series| series.rate(series.seconds() / 2.0)).collect();
            let rate = self.rate(one);
            let after = Spread::of(&after);
            bars.push(Bars { name: one.name.clone(), values: vec![first, again, reached] });
            let not =
                if missed > 0 { format!(", {missed} times not within its load") } else { String::new() };
            rows.push(vec![
                one.name.clone(),
                told(self.log_bytes(one).map(|bytes| scaled(bytes, MEBI))),
                told(first),
                told(again),
                format!("{}{not}", told(reached)),
                rate.map_or("–".to_owned(), |rate| number(rate.median)),
                after.map_or("–".to_owned(), |after| number(after.median)),
            ]);
        }
        let figure = Figure {
            id: "restart-seconds".to_owned(),
            title: "Seconds from the start of the process".to_owned(),
            y: "seconds".to_owned(),
            kind: Kind::Bars { groups: head(&groups), bars, limit: None },
        };
        let columns = [
            "",
            "log to be redone, MiB",
            "first commit, s",
            "first commit after a second kill, s",
            "90 % of the speed before, s",
            "operations/s before",
            "operations/s in the last half after",
        ];
        let mut parts = vec![Part::Figure(figure), Part::Table(head(&columns), rows)];
        parts.push(Part::Text(format!(
            "The speed counts as reached from when on it was held for {} s. Operations are transactions of TPC-B for servers, updates of one row for embedded databases.",
            number(HELD_SECONDS)
        )));
        parts.extend(self.ratios());
        parts.extend(self.second_kills());
        parts
    }

    fn first_commit(&self, side: Side) -> Option<Spread> {
        let one = self.contestants.iter().find(|one| one.side == side && one.is_killed())?;
        let mut figures = self.figures("loaded", one, "/first_commit_seconds");
        figures.extend(self.figures("rest", one, "/first_commit_seconds"));
        Spread::of(&figures)
    }

    /// Against rivals, in words.
    fn ratios(&self) -> Option<Part> {
        let pairs = [
            (Side::WireGannet, Side::WirePostgres, "PostgreSQL's server"),
            (Side::Gannet, Side::Sqlite, "SQLite"),
            (Side::Gannet, Side::BerkeleyDb, "Berkeley DB"),
        ];
        let mut said = Vec::new();
        for (ours, theirs, name) in pairs {
            let (Some(ours), Some(theirs)) = (self.first_commit(ours), self.first_commit(theirs)) else {
                continue;
            };
            let chance = match are_told_apart(&self.run.order, ours, theirs) {
                true => "",
                false => ", which may be so by chance",
            };
            said.push(format!(
                "{name} takes {} times as long as Gannet until the first commit ({} s, {} s){chance}.",
                number(theirs.median / ours.median),
                told(Some(theirs)),
                told(Some(ours))
            ));
        }
        (!said.is_empty()).then(|| Part::Text(said.join(" ")))
    }

    /// When the second kills came, in words.
    fn second_kills(&self) -> Option<Part> {
        let mut said = Vec::new();
        for one in &self.contestants {
            for output in self.outputs("rest", one) {
                let again = &output["again"];
                let Some(after) = again["killed_after_seconds"].as_f64() else { continue };
                let stood = match (again["was_open"] == true, again["was_done"] == true) {
                    (_, true) => "when all was redone already, so that it is no second crash in a recovery",
                    (true, false) => "while it was open and redid the rest",
                    (false, _) => "before it was open",
                };
                said.push(format!("{}: after {} s, {stood}.", one.name, number(after)));
            }
        }
        (!said.is_empty()).then(|| {
            Part::Text(format!(
                "The second kills came in the middle of the first start in peace. {}",
                said.join(" ")
            ))
        })
    }

    /// Bytes of log that were to be redone.
    fn log_bytes(&self, contestant: &Contestant) -> Option<Spread> {
        let exact = self.spread("rest", contestant, "/log_bytes");
        exact.or_else(|| self.spread("crash", contestant, "/log_bytes"))
    }

    fn over_time(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        type Picks = fn(&Contestant) -> bool;
        let kinds: [(&str, &str, &str, Picks); 3] = [
            ("servers", "Servers", "transactions a second", |one| one.side.is_wire()),
            ("embedded", "Embedded databases", "updates a second", |one| {
                !one.side.is_wire() && one.is_killed()
            }),
            ("modelled", "Gannet, embedded, on the modelled device", "updates a second", |one| {
                matches!(one.on, On::Modelled | On::Starved)
            }),
        ];
        for (name, title, y, picks) in kinds {
            let mut lines = Vec::new();
            for one in self.contestants.iter().filter(|one| picks(one)) {
                let (Some(before), Some(after)) =
                    (self.before(one).into_iter().next(), self.after(one).into_iter().next())
                else {
                    continue;
                };
                // What lies further back is not looked at, or the rest would have no room.
                let from = -f64::from(self.plan.loaded);
                let mut points: Vec<_> = before
                    .line(before.end(), LINE_STEP)
                    .into_iter()
                    .filter(|point| point.0 >= from)
                    .collect();
                points.push((0.0, 0.0));
                let first =
                    self.figures("loaded", one, "/first_commit_seconds").first().copied().unwrap_or(0.0);
                points.push((first, 0.0));
                points.extend(after.line(0.0, LINE_STEP).into_iter().filter(|point| point.0 > first));
                lines.push(Line { name: one.name.clone(), points });
            }
            if lines.is_empty() {
                continue;
            }
            parts.push(Part::Figure(Figure {
                id: format!("restart-over-time-{name}"),
                title: format!("{title}, the first repetition"),
                y: y.to_owned(),
                kind: Kind::Lines {
                    x: "seconds; 0 is the kill, and the start of the next process".to_owned(),
                    lines,
                },
            }));
        }
        parts.push(Part::Text(format!(
            "What lies between the kill and the start, a copy of the folder, is left out. On {PROFILE} what is left of 0 is the end of a load of its own, without a kill."
        )));
        parts
    }

    fn durability(&self) -> Part {
        let sum = |path: &str| -> f64 {
            let each = self.contestants.iter().flat_map(|one| self.figures("loaded", one, path));
            each.fold(0.0, |sum, figure| sum + figure)
        };
        let starts = |step: &str, path: &str| -> usize {
            self.contestants.iter().map(|one| self.figures(step, one, path).len()).sum()
        };
        let judged = starts("loaded", "/judged/found")
            + starts("rest", "/judged/found")
            + starts("rest", "/again/judged/found");
        let counters = 2 * starts("loaded", "/checked_counters")
            + starts("rest", "/checked_counters")
            + self
                .contestants
                .iter()
                .filter(|one| !one.side.is_wire())
                .map(|one| self.figures("rest", one, "/again/first_commit_seconds").len())
                .sum::<usize>();
        let mut text = String::new();
        if judged > 0 {
            text += &format!(
                " Over the wire the books were judged after {judged} starts: the branches' sums are those of tellers, history and accounts, the history has as \
                 many rows as the sessions have counted, and each session's counter is what it was told ({} commits acknowledged by the last judgements under load, {} sent and not answered when a server went, {} found).",
                count(sum("/judged/acknowledged")),
                count(sum("/judged/unknown")),
                count(sum("/judged/found")),
            );
        }
        if counters > 0 {
            text += &format!(" The counters of embedded databases were compared after {counters} starts.");
        }
        if text.is_empty() {
            return Part::Text("Nothing was judged.".to_owned());
        }
        Part::Text(format!("A step that misses a commit fails, and there is no report of it.{text}"))
    }

    fn settings(&self) -> Part {
        let mut lines = Vec::new();
        for one in self.contestants.iter().filter(|one| one.is_killed()) {
            let Some(output) = self.outputs("crash", one).into_iter().next() else { continue };
            let by = output["driver"].as_str().map_or(String::new(), |driver| format!(" ({driver})"));
            lines.push(format!("{}{by}: {}", one.name, output["settings"]));
        }
        Part::Commands(lines)
    }
}

pub(super) fn scaled(spread: Spread, by: f64) -> Spread {
    Spread { median: spread.median / by, least: spread.least / by, most: spread.most / by, ..spread }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
