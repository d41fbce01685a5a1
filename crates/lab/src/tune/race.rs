//! A race: some candidates, one of which is to be picked, and measurements that are noisy and cost time.
//!
//! In each round every candidate that is left is measured once. After a round, those that are certainly worse than the best one are dropped, and measured no more;
//! the race is over when one is left, when those that are left are certainly as good, or when there is no time any more. This is successive elimination (Even-Dar, Mannor,
//! Mansour 2002, "PAC bounds for multi-armed bandit and Markov decision processes"; in machine learning known as racing, Maron and Moore 1994, "Hoeffding races").
//!
//! Bounds that hold for every distribution (Hoeffding's) would need hundreds of measurements, so certainty comes from Student's t, as in BRACE (Moore and Lee 1994) and F-race
//! (Birattari et al. 2002): a round is a block, as whatever else goes on in the machine hits all of its candidates alike, and what is compared are differences within rounds.
//! Measurements are compared as ratios (by their logarithms): noise is a share of what is measured.
//!
//! # Guarantees
//! 1. With the probability [`Rules::confidence`] at least no candidate is dropped that is better than the one that stays, as far as noise is alike for all: the allowance is divided
//!    among all pairs and all rounds. Nor is one dropped that was measured to be worse by less than makes a difference.
//! 2. What is picked is the first of those that are as good as the best one: candidates come in the order in which they are preferred, such as by their memory.
//! 3. It ends: after [`Rules::rounds_most`] rounds, or with the first measurement for which there is no time.

use super::interval::{Interval, mean, t_quantile};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// A value is not taken for less than this, so that there is a ratio.
const LEAST: f64 = 1e-9;
/// How often the means of candidates and of rounds are fitted to each other.
const FITTED: u32 = 200;

/// How a race goes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// How certain it has to be that who is dropped is worse: 0.95.
    pub confidence: f64,
    /// What makes no difference, as a share of the best: 0.03.
    pub indifference: f64,
    /// Rounds at most.
    pub rounds_most: u32,
}

/// What came of a measurement.
#[derive(Clone, PartialEq, Debug)]
pub enum Measured {
    /// More is better.
    Value(f64),
    /// This candidate cannot be: why.
    Impossible(String),
    /// There is no time any more.
    OutOfTime,
}

/// Where a candidate is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Standing {
    /// As good as the best one, as far as can be said.
    Good,
    /// Not certainly worse, but was measured to be.
    Behind,
    /// Certainly worse, after so many rounds.
    Dropped(u32),
    /// It cannot be: why.
    Impossible(String),
}

/// Why a race was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// All but those that are as good were dropped.
    Decided,
    /// There were as many rounds as there may be.
    Rounds,
    /// There was no time any more.
    Time,
}

/// What came of a race.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Raced {
    /// Who is picked; `None` where not a single round was completed.
    pub pick: Option<usize>,
    /// Who was measured to be the best.
    pub best: Option<usize>,
    /// Of each candidate.
    pub standings: Vec<Standing>,
    /// What was measured of each candidate, by round.
    pub values: Vec<Vec<f64>>,
    /// Why it was over.
    pub end: End,
}

impl Raced {
    /// What each candidate does, with what rounds have in common taken out, and how sure that is: what is to be seen is how candidates differ, whatever else went on in the machine. An
    /// analysis of variance in two ways on the logarithms; noise is taken to be alike for all. `None` where nothing was measured.
    pub fn without_rounds(&self, confidence: f64) -> Vec<Option<Interval>> {
        let logs: Vec<Vec<f64>> = self
            .values
            .iter()
            .map(|values| values.iter().map(|value| value.max(LEAST).ln()).collect())
            .collect();
        let rounds = logs.iter().map(Vec::len).max().unwrap_or(0);
        let (mut of_rounds, mut of_candidates) = (vec![0.0; rounds], vec![0.0; logs.len()]);
        // Who was dropped has no values of later rounds, so there is no closed form: each is fitted to the other, again and again.
        for _ in 0..FITTED {
            for (candidate, values) in logs.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
                let rest: Vec<f64> =
                    values.iter().zip(&of_rounds).map(|(value, round)| value - round).collect();
                of_candidates[candidate] = mean(&rest);
            }
            for (round, of_round) in of_rounds.iter_mut().enumerate() {
                let there = logs.iter().zip(&of_candidates);
                let rest: Vec<f64> =
                    there.filter_map(|(values, candidate)| Some(values.get(round)? - candidate)).collect();
                *of_round = mean(&rest);
            }
        }
        let middle = if rounds > 0 { mean(&of_rounds) } else { 0.0 };
        let all: usize = logs.iter().map(Vec::len).sum();
        let squares: f64 = logs
            .iter()
            .zip(&of_candidates)
            .flat_map(|(values, candidate)| {
                values.iter().zip(&of_rounds).map(move |(value, round)| (value - candidate - round).powi(2))
            })
            .sum();
        let fitted = logs.iter().filter(|values| !values.is_empty()).count() + rounds;
        // Where candidates and rounds explain everything, noise cannot be told.
        let degrees = (all + 1).saturating_sub(fitted);
        let of = |(values, candidate): (&Vec<f64>, &f64)| {
            let mean = (candidate + middle).exp();
            let half = (degrees > 0).then(|| {
                let quantile = t_quantile(1.0 - (1.0 - confidence) / 2.0, degrees as f64);
                mean * ((quantile * (squares / degrees as f64 / values.len() as f64).sqrt()).exp() - 1.0)
            });
            (!values.is_empty()).then_some(Interval { mean, half })
        };
        logs.iter().zip(&of_candidates).map(of).collect()
    }
}

/// Runs a race between candidates `0..count`, the preferred ones first.
///
/// # Errors
/// Those of `measure`.
pub fn race(
    count: usize,
    rules: &Rules,
    measure: &mut dyn FnMut(usize) -> Result<Measured>,
) -> Result<Raced> {
    let mut field = Field {
        rules: *rules,
        count,
        values: vec![Vec::new(); count],
        standings: vec![Standing::Good; count],
    };
    let mut end = End::Rounds;
    'race: for round in 0..rules.rounds_most.max(1) {
        let live = field.live();
        for turn in 0..live.len() {
            // Nobody is always the first.
            let candidate = live[(turn + round as usize) % live.len()];
            match measure(candidate)? {
                Measured::Value(value) => field.values[candidate].push(value),
                Measured::Impossible(why) => field.standings[candidate] = Standing::Impossible(why),
                Measured::OutOfTime => {
                    end = End::Time;
                    break 'race;
                }
            }
        }
        if field.is_decided(round + 1) {
            end = End::Decided;
            break;
        }
    }
    Ok(field.raced(end))
}

struct Field {
    rules: Rules,
    count: usize,
    values: Vec<Vec<f64>>,
    standings: Vec<Standing>,
}

impl Field {
    fn live(&self) -> Vec<usize> {
        (0..self.count).filter(|&one| self.standings[one] == Standing::Good).collect()
    }

    /// Rounds that all of these have been in.
    fn rounds(&self, live: &[usize]) -> usize {
        live.iter().map(|&one| self.values[one].len()).min().unwrap_or(0)
    }

    /// Means of the logarithms, of those that are live, over the rounds that all of them have been in.
    fn means(&self, live: &[usize]) -> Vec<f64> {
        let rounds = self.rounds(live);
        let logs = |one: usize| {
            self.values[one][..rounds].iter().map(|value| value.max(LEAST).ln()).collect::<Vec<f64>>()
        };
        live.iter().map(|&one| mean(&logs(one))).collect()
    }

    /// How much larger than measured the difference between two of them may be; `None` after a single round.
    fn allowance(&self, live: &[usize], means: &[f64]) -> Option<f64> {
        let (rounds, wide) = (self.rounds(live), live.len());
        if rounds < 2 || wide < 2 {
            return None;
        }
        // What remains when each candidate's mean and each round's is taken out is noise: an analysis of variance in blocks.
        let log = |one: usize, round: usize| self.values[one][round].max(LEAST).ln();
        let of_rounds: Vec<f64> = (0..rounds)
            .map(|round| mean(&live.iter().map(|&one| log(one, round)).collect::<Vec<_>>()))
            .collect();
        let all = mean(&of_rounds);
        let mut squares = 0.0;
        for (place, &one) in live.iter().enumerate() {
            for (round, of_round) in of_rounds.iter().enumerate() {
                squares += (log(one, round) - means[place] - of_round + all).powi(2);
            }
        }
        let degrees = ((rounds - 1) * (wide - 1)) as f64;
        let pairs = (self.count * (self.count - 1) / 2) as f64;
        let looks = f64::from(self.rules.rounds_most.max(2) - 1);
        let share = (1.0 - self.rules.confidence) / (pairs * looks);
        Some(t_quantile(1.0 - share / 2.0, degrees) * (2.0 * squares / degrees / rounds as f64).sqrt())
    }

    /// Drops who is certainly worse, after this round; says whether there is nothing to be found out any more.
    fn is_decided(&mut self, round: u32) -> bool {
        let live = self.live();
        if live.len() < 2 {
            return true;
        }
        let means = self.means(&live);
        let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let Some(allowance) = self.allowance(&live, &means) else { return false };
        let mut is_decided = true;
        for (&one, of_one) in live.iter().zip(&means) {
            if best - of_one > allowance.max(self.rules.indifference) {
                self.standings[one] = Standing::Dropped(round);
            } else if best - of_one + allowance > self.rules.indifference && *of_one < best {
                is_decided = false;
            }
        }
        is_decided
    }

    fn raced(mut self, end: End) -> Raced {
        let live: Vec<usize> = self.live().into_iter().filter(|&one| !self.values[one].is_empty()).collect();
        // Where time was over within the first round, only some were measured: nothing was compared.
        let is_compared = live.len() == self.live().len();
        let means = self.means(&live);
        let best_mean = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (&one, of_one) in live.iter().zip(&means) {
            if *of_one < best_mean - self.rules.indifference {
                self.standings[one] = Standing::Behind;
            }
        }
        let place = means.iter().position(|&of_one| of_one == best_mean);
        Raced {
            pick: live
                .iter()
                .copied()
                .find(|&one| self.standings[one] == Standing::Good)
                .filter(|_| is_compared),
            best: place.map(|place| live[place]).filter(|_| is_compared),
            standings: self.standings,
            values: self.values,
            end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::tune::interval::tests::noise;

    const RULES: Rules = Rules { confidence: 0.95, indifference: 0.03, rounds_most: 12 };

    /// A race where candidates do so much, with noise of a share of it, and rounds that differ by more.
    fn run(truth: &[f64], share: f64, seed: u64, rules: &Rules) -> Raced {
        let mut random = Random::new(seed);
        let of_rounds: Vec<f64> =
            (0..rules.rounds_most).map(|_| 1.0 + 0.2 * noise(&mut random).clamp(-2.0, 2.0)).collect();
        let mut rounds = vec![0; truth.len()];
        race(truth.len(), rules, &mut |one| {
            rounds[one] += 1;
            let of_round = of_rounds[rounds[one] - 1];
            Ok(Measured::Value(truth[one] * of_round * (1.0 + share * noise(&mut random))))
        })
        .unwrap()
    }

    #[test]
    fn the_peak_is_found_and_what_is_far_from_it_dropped_early() {
        for seed in 0..50 {
            let raced = run(&[300.0, 380.0, 470.0, 395.0, 120.0], 0.05, seed, &RULES);
            assert_eq!((raced.pick, raced.best), (Some(2), Some(2)), "seed {seed}: {raced:?}");
            assert!(matches!(raced.standings[4], Standing::Dropped(rounds) if rounds <= 4), "{raced:?}");
            assert!(raced.values[4].len() < raced.values[2].len(), "{raced:?}");
        }
    }

    #[test]
    fn equal_ones_are_not_told_apart_more_often_than_the_rules_allow() {
        let dropped = |seed: &u64| {
            run(&[100.0; 4], 0.05, *seed, &RULES)
                .standings
                .iter()
                .any(|one| matches!(one, Standing::Dropped(_)))
        };
        let wrong = (0..200).filter(dropped).count();
        assert!(wrong <= 10, "{wrong} of 200");
    }

    #[test]
    fn of_equal_ones_the_first_is_picked() {
        // The second is worse by less than makes a difference.
        let rules = Rules { indifference: 0.1, ..RULES };
        for seed in 0..50 {
            let raced = run(&[97.0, 100.0, 50.0], 0.01, seed, &rules);
            assert_eq!((raced.pick, raced.end), (Some(0), End::Decided), "seed {seed}: {raced:?}");
            assert_eq!(raced.standings[1], Standing::Good);
        }
    }

    #[test]
    fn a_race_ends_with_its_rounds_or_its_time() {
        let raced = run(&[100.0, 101.0], 0.3, 1, &RULES);
        assert_eq!((raced.end, raced.values[0].len(), raced.values[1].len()), (End::Rounds, 12, 12));
        for time in 0..9 {
            let mut left = time;
            let raced = race(3, &RULES, &mut |one| {
                left -= 1;
                Ok(if left < 0 { Measured::OutOfTime } else { Measured::Value(10.0 + one as f64) })
            });
            let raced = raced.unwrap();
            let measured: usize = raced.values.iter().map(Vec::len).sum();
            // Without noise two rounds decide it.
            assert_eq!((measured, raced.end == End::Time), (time.min(6) as usize, time < 6));
            assert_eq!(raced.pick, (time >= 3).then_some(2), "{time}: {raced:?}");
        }
    }

    #[test]
    fn what_rounds_have_in_common_hides_no_difference() {
        let mut hits = 0;
        for seed in 0..100 {
            // Rounds differ by a fifth, candidates by less; one is dropped early.
            let raced = run(&[100.0, 110.0, 50.0], 0.02, seed, &Rules { rounds_most: 6, ..RULES });
            let found = raced.without_rounds(0.95);
            let [Some(one), Some(other), Some(dropped)] = found[..] else { panic!("{found:?}") };
            assert!((other.mean / one.mean - 1.1).abs() < 0.06, "seed {seed}: {found:?}");
            assert!((dropped.mean / one.mean - 0.5).abs() < 0.05, "seed {seed}: {found:?}");
            let apart = Interval::of(&raced.values[0], 0.95).unwrap();
            assert!(one.half.unwrap() < apart.half.unwrap(), "seed {seed}: {found:?} {apart:?}");
            // The ratio of two is as sure as both of them are.
            let half = (one.half.unwrap() / one.mean).hypot(other.half.unwrap() / other.mean);
            hits += u32::from((other.mean / one.mean / 1.1).ln().abs() < half);
        }
        assert!(hits >= 90, "{hits}");
    }

    #[test]
    fn a_single_round_says_nothing_of_noise() {
        let raced = run(&[100.0, 50.0], 0.02, 1, &Rules { rounds_most: 1, ..RULES });
        let found = raced.without_rounds(0.95);
        assert!(found.iter().all(|one| one.is_some_and(|one| one.half.is_none())), "{found:?}");
        let nobody = race(1, &RULES, &mut |_| Ok(Measured::OutOfTime)).unwrap();
        assert_eq!(nobody.without_rounds(0.95), [None]);
    }

    #[test]
    fn who_cannot_be_takes_no_part() {
        let raced = race(3, &RULES, &mut |one| {
            Ok(if one == 0 {
                Measured::Impossible("too small".to_owned())
            } else {
                Measured::Value(one as f64)
            })
        });
        let raced = raced.unwrap();
        assert_eq!((raced.pick, raced.standings[1].clone()), (Some(2), Standing::Dropped(2)));
        assert_eq!(raced.standings[0], Standing::Impossible("too small".to_owned()));
        let nobody = race(2, &RULES, &mut |_| Ok(Measured::Impossible("no".to_owned()))).unwrap();
        assert_eq!((nobody.pick, nobody.best), (None, None));
        assert!(race(2, &RULES, &mut |_| anyhow::bail!("no disk")).is_err());
    }
}
