//! Why a configuration is as fast as it is: from what was counted in its trials.
//!
//! A session's time is told apart by what the system saw of its thread ([`super::waits`]), and waiting for others by what its client saw: what a synchronous COMMIT took is waiting for the log,
//! as far as the session did wait; whom the database named as waiting for a row, or for a turn at memory, waited for that; what is left is waiting for latches and pages, which others
//! read or write. The parts are estimates, each from samples, and need not add up to one exactly.

use crate::chart::{Spread, number};
use serde_json::Value;

/// From this share on processors are as good as busy all the time.
const ALL_PROCESSORS: f64 = 0.9;
/// A share below this is not worth a word.
const WORTH_A_WORD: f64 = 0.05;

/// What was counted of a configuration: medians of its trials; `None` where it was not seen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Why {
    /// Share of the page accesses that found their page in memory, about.
    pub hit_rate: Option<f64>,
    /// Pages read from the device for each transaction.
    pub reads: Option<f64>,
    /// Share of the time in which the disk had something to do.
    pub device_busy: Option<f64>,
    /// Transactions that ended, whether or not they wrote, for each write of the log; `None` where the load writes nothing.
    pub transactions_per_log_write: Option<f64>,
    /// Processors that the server took.
    pub server_processors: Option<f64>,
    /// Processors that the load took.
    pub load_processors: Option<f64>,
    /// Share of their time in which the machine's processors had something to do, whoever it was for.
    pub processors_busy: Option<f64>,
    /// Share of their time that the machine's host took for others.
    pub processors_stolen: Option<f64>,
    /// Bytes of pages in memory.
    pub pool_bytes: Option<f64>,
    /// Shares of the sessions' time.
    pub shares: Shares,
}

/// Shares of the sessions' time, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Shares {
    /// On a processor.
    pub on_processor: Option<f64>,
    /// Ready, but no processor was free.
    pub queued: Option<f64>,
    /// Reading the device.
    pub reads: Option<f64>,
    /// Waiting until the log is durable.
    pub log: Option<f64>,
    /// Waiting for a row that another transaction has changed.
    pub rows: Option<f64>,
    /// Waiting for a turn at memory, as sorts and the like are many.
    pub turns: Option<f64>,
    /// Waiting for others, for none of these reasons: for a latch, or a page that somebody reads, or writes to make room.
    pub latches: Option<f64>,
    /// Slowed, as changed pages do not come home as fast as they are changed.
    pub paused: Option<f64>,
    /// Waiting for the client to say something.
    pub client: Option<f64>,
}

impl Shares {
    /// Names and values.
    pub fn named(&self) -> [(&'static str, Option<f64>); 9] {
        [
            ("on a processor", self.on_processor),
            ("ready, with no processor free", self.queued),
            ("reading the device", self.reads),
            ("waiting for the log", self.log),
            ("waiting for a row", self.rows),
            ("waiting for a turn at memory", self.turns),
            ("waiting for latches or pages", self.latches),
            ("slowed behind the checkpoint", self.paused),
            ("waiting for the client", self.client),
        ]
    }
}

impl Why {
    /// Of the trials of one configuration, as [`super::trial::run`] gives them.
    pub fn of(trials: &[&Value]) -> Self {
        let median = |path: &str| {
            let values: Vec<f64> =
                trials.iter().filter_map(|trial| trial.pointer(path).and_then(Value::as_f64)).collect();
            Spread::of(&values).map(|spread| spread.median)
        };
        let others =
            median("/waits/others").map(|others| others + median("/waits/device_write").unwrap_or(0.0));
        // A commit that is durable later waits for no log, however long it takes.
        let waits_for_log =
            trials.iter().all(|trial| trial.pointer("/config/is_synchronous") != Some(&Value::Bool(false)));
        let log = median("/commit_share").zip(others).map(|(commits, others)| match waits_for_log {
            true => commits.min(others),
            false => 0.0,
        });
        // Of what is left, as much as was seen.
        let mut left = others.map(|others| others - log.unwrap_or(0.0));
        let mut part = |path: &str| {
            let seen = left.zip(median(path)).map(|(left, seen)| seen.min(left));
            left = left.map(|left| left - seen.unwrap_or(0.0));
            seen
        };
        let rows = part("/row_wait_share");
        let turns = part("/turn_wait_share");
        let latches = left;
        // Trials of before this was kept were of loads that write.
        let writes = trials.iter().all(|trial| trial["writes"] != false);
        let per_write = median("/transactions").zip(median("/log_writes")).filter(|_| writes);
        Why {
            hit_rate: median("/hit_rate"),
            reads: median("/reads_per_transaction"),
            device_busy: median("/device_busy_share"),
            transactions_per_log_write: per_write
                .map(|(transactions, writes)| transactions / writes)
                .filter(|each| each.is_finite()),
            server_processors: median("/processors/server"),
            load_processors: median("/processors/load"),
            processors_busy: median("/processors/busy_share"),
            processors_stolen: median("/processors/stolen_share"),
            pool_bytes: median("/memory/pool"),
            shares: Shares {
                on_processor: median("/waits/on_processor"),
                queued: median("/waits/queued_for_processor"),
                reads: median("/waits/device_read"),
                log,
                rows,
                turns,
                latches,
                paused: median("/waits/paused"),
                client: median("/waits/client"),
            },
        }
    }

    /// What it is limited by, in words.
    pub fn limited_by(&self, processors: usize) -> String {
        let mut shares: Vec<(&str, f64)> =
            self.shares.named().into_iter().filter_map(|(name, share)| Some((name, share?))).collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        let told: Vec<String> = shares
            .iter()
            .filter(|(_, share)| *share >= WORTH_A_WORD)
            .map(|(name, share)| format!("{} {name}", percent(Some(*share))))
            .collect();
        let mut text = match told.is_empty() {
            true => "What sessions did with their time could not be seen.".to_owned(),
            false => format!("Sessions spent their time so: {}.", told.join(", ")),
        };
        if let Some((server, load)) = self.server_processors.zip(self.load_processors) {
            text.push_str(&format!(
                " The server took {} of {processors} processors, the load itself {}",
                number(server),
                number(load)
            ));
            match self.processors_busy {
                None => text.push('.'),
                Some(busy) => {
                    let stolen = self.processors_stolen.filter(|&stolen| stolen >= 0.01);
                    let stolen = stolen.map_or(String::new(), |share| {
                        format!(", {} taken by the machine's host", percent(Some(share)))
                    });
                    let end = if busy >= ALL_PROCESSORS { ": processors are the limit" } else { "" };
                    text.push_str(&format!(
                        "; all in all they were busy {} of the time{stolen}{end}.",
                        percent(Some(busy))
                    ));
                }
            }
        }
        if let Some(each) = self.transactions_per_log_write {
            text.push_str(&format!(" {} transactions ended for each write of the log.", number(each)));
        }
        text
    }

    /// How it differs from another one, in words: what of it explains a difference in speed.
    pub fn against(&self, other: &Why) -> String {
        let mut told = Vec::new();
        if let Some((own, theirs)) = self.reads.zip(other.reads)
            && (own - theirs).abs() > 0.1 * own.max(theirs).max(0.1)
        {
            let rates = match (self.hit_rate, other.hit_rate) {
                (Some(own), Some(theirs)) => {
                    format!(" (hit rate {} against {})", percent(Some(own)), percent(Some(theirs)))
                }
                _ => String::new(),
            };
            told.push(format!(
                "{} reads for each transaction against {}{rates}",
                number(own),
                number(theirs)
            ));
        }
        if let Some((own, theirs)) = self.pool_bytes.zip(other.pool_bytes)
            && (own - theirs).abs() > 0.1 * own.max(theirs)
        {
            told.push(format!("{} of pages in memory against {}", mebibytes(own), mebibytes(theirs)));
        }
        let mut moved: Vec<(&str, f64, f64)> = self
            .shares
            .named()
            .into_iter()
            .zip(other.shares.named())
            .filter_map(|((name, own), (_, theirs))| Some((name, own?, theirs?)))
            .filter(|(_, own, theirs)| (own - theirs).abs() >= WORTH_A_WORD)
            .collect();
        moved.sort_by(|one, other| (other.1 - other.2).abs().total_cmp(&(one.1 - one.2).abs()));
        let percents = |(name, own, theirs): &(&str, f64, f64)| {
            format!("{name} {} of the time against {}", percent(Some(*own)), percent(Some(*theirs)))
        };
        told.extend(moved.iter().take(2).map(percents));
        match told.is_empty() {
            true => "nothing that was counted differs much".to_owned(),
            false => told.join("; "),
        }
    }
}

/// Bytes, for people.
pub fn mebibytes(bytes: f64) -> String {
    format!("{} MiB", number(bytes / f64::from(1 << 20)))
}

/// A share as a percentage.
pub fn percent(share: Option<f64>) -> String {
    match share {
        None => "–".to_owned(),
        Some(share) if share > 0.99 && share < 1.0 => format!("{:.1} %", (share * 1000.0).floor() / 10.0),
        Some(share) => format!("{:.0} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trial(reads: f64, commits: f64) -> Value {
        json!({
            "hit_rate": 1.0 - reads / 20.0, "reads_per_transaction": reads, "device_busy_share": 0.5, "commit_share": commits, "row_wait_share": 0.05, "turn_wait_share": 0.05, "memory": { "pool": 1_048_576.0 * (10.0 - reads) },
            "transactions": 100, "log_writes": 20, "processors": { "server": 1.0, "load": 0.7, "busy_share": 0.95, "stolen_share": 0.05 },
            "waits": { "on_processor": 0.1, "queued_for_processor": 0.1, "device_read": reads / 10.0, "device_write": 0.1, "others": 0.5, "paused": 0.0, "client": 0.1 },
        })
    }

    #[test]
    fn waiting_for_others_is_told_apart() {
        let (one, other) = (trial(2.0, 0.4), trial(2.0, 0.4));
        let why = Why::of(&[&one, &other]);
        let close = |share: Option<f64>, to: f64| assert!((share.unwrap() - to).abs() < 1e-9, "{why:?}");
        close(why.shares.log, 0.4);
        close(why.shares.rows, 0.05);
        close(why.shares.turns, 0.05);
        close(why.shares.latches, 0.1);
        assert_eq!(why.transactions_per_log_write, Some(5.0));
        let text = why.limited_by(2);
        assert!(text.contains("5.00 transactions ended for each write of the log."), "{text}");
        assert!(
            text.contains("40 % waiting for the log, 20 % reading the device")
                && text.contains(
                    "busy 95 % of the time, 5 % taken by the machine's host: processors are the limit"
                ),
            "{text}"
        );
        let idle = Why { processors_busy: Some(0.5), ..why };
        assert!(!idle.limited_by(2).contains("the limit"));
        // All of the commits' time cannot be waiting where sessions waited for less.
        let busy = trial(2.0, 0.9);
        let why = Why::of(&[&busy]);
        assert_eq!((why.shares.log, why.shares.rows, why.shares.latches), (Some(0.6), Some(0.0), Some(0.0)));
    }

    #[test]
    fn who_commits_asynchronously_does_not_wait_for_the_log() {
        let mut trial = trial(2.0, 0.4);
        for (is_synchronous, log) in [(true, 0.4), (false, 0.0)] {
            trial["config"] = json!({ "is_synchronous": is_synchronous });
            let shares = Why::of(&[&trial]).shares;
            assert_eq!(shares.log, Some(log));
            // The rest is told of what is left, so none of it is lost.
            let told: f64 =
                [shares.log, shares.rows, shares.turns, shares.latches].into_iter().flatten().sum();
            assert!((told - 0.6).abs() < 1e-9, "{shares:?}");
        }
    }

    #[test]
    fn a_load_that_writes_nothing_is_not_told_by_writes_of_the_log() {
        let mut trial = trial(2.0, 0.0);
        trial["writes"] = false.into();
        let why = Why::of(&[&trial]);
        assert_eq!(why.transactions_per_log_write, None);
        assert!(!why.limited_by(2).contains("write of the log"));
    }

    #[test]
    fn a_difference_is_told_by_what_has_moved() {
        let (small, large) = (trial(4.0, 0.2), trial(0.0, 0.4));
        let text = Why::of(&[&small]).against(&Why::of(&[&large]));
        assert!(text.starts_with("4.00 reads for each transaction against 0 (hit rate 80 % against 100 %); 6.00 MiB of pages in memory against 10.0 MiB; reading the device 40 % of the time against 0 %"), "{text}");
        assert_eq!(Why::of(&[&small]).against(&Why::of(&[&small])), "nothing that was counted differs much");
    }

    #[test]
    fn what_was_not_seen_is_not_told() {
        let why = Why::of(&[&json!({ "transactions": 5 })]);
        assert_eq!(why, Why::default());
        assert!(why.limited_by(2).contains("could not be seen"));
        assert_eq!(
            (percent(None), percent(Some(0.9996)), percent(Some(0.5))),
            ("–".to_owned(), "99.9 %".to_owned(), "50 %".to_owned())
        );
    }
}
