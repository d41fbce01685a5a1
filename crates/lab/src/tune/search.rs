//! The search for the best configuration: along one dimension after the other, a race each, until no dimension would be decided anew.
//!
//! It is a cyclic search by coordinates. What is best along one dimension may depend on the others (more memory makes larger pages cheap), so a dimension is raced again once
//! another one has moved; along an ordered one then between the neighbours of where it stands only, and again around the place where that has led as long as one of its neighbours has
//! not taken part: the best of three may lie on a slope. It finds a peak that no single step leads away from, which need not be the
//! highest of all where dimensions work against each other; a full grid would take the product of all values instead of their sum.
//!
//! # Guarantees
//! 1. It ends: each dimension is raced at most [`PASSES`] times, and nothing is raced any more once there is no time.
//! 2. Where a race was not decided for want of time, the dimension stands where it was measured to be best, or where it began, and [`Found::is_complete`] is false.

use super::race::{End, Measured, Raced, Rules, Standing, race};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// How often a dimension is raced at most.
pub const PASSES: u32 = 8;

/// A dimension of configurations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dimension {
    /// Its name.
    pub name: String,
    /// Its values, the preferred ones first: of those that are as good the first is picked.
    pub values: Vec<String>,
    /// Whether values next to each other are like each other.
    pub is_ordered: bool,
}

/// A configuration: which value of each dimension.
pub type Point = Vec<usize>;

/// A race along a dimension.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Leg {
    /// The dimension.
    pub dimension: usize,
    /// Where the others stood; in place of this one where it stood before.
    pub at: Point,
    /// Which of the dimension's values took part.
    pub values: Vec<usize>,
    /// What came of it, of those.
    pub raced: Raced,
}

/// What came of a search.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The configuration that is picked.
    pub pick: Point,
    /// The races, in their order.
    pub legs: Vec<Leg>,
    /// Whether each dimension was decided with the others where they are.
    pub is_complete: bool,
    /// Why it was ended before that, where it was not for want of time.
    #[serde(default)]
    pub ended_by: Option<String>,
}

/// Searches from `start` on.
///
/// # Errors
/// Those of `measure`. That no value of a dimension can be ends it, with what was found until then.
pub fn search(
    dimensions: &[Dimension],
    start: Point,
    rules: &Rules,
    measure: &mut dyn FnMut(&Point) -> Result<Measured>,
) -> Result<Found> {
    let mut pick = start;
    let mut legs: Vec<Leg> = Vec::new();
    let mut times = vec![0; dimensions.len()];
    let (mut is_complete, mut ended_by) = (true, None);
    'search: loop {
        let mut has_raced = false;
        for (dimension, of_it) in dimensions.iter().enumerate() {
            while let Some(values) = due(dimension, of_it, &pick, &legs) {
                if times[dimension] == PASSES {
                    is_complete = false;
                    break;
                }
                times[dimension] += 1;
                has_raced = true;
                let at = pick.clone();
                let raced = race(values.len(), rules, &mut |one| {
                    let mut point = at.clone();
                    point[dimension] = values[one];
                    measure(&point)
                })?;
                if let Some(found) = raced.pick {
                    pick[dimension] = values[found];
                } else if raced.end != End::Time {
                    let why = raced.standings.iter().find_map(|standing| match standing {
                        Standing::Impossible(why) => Some(&**why),
                        _ => None,
                    });
                    let why = why.unwrap_or("none was measured");
                    is_complete = false;
                    ended_by = Some(format!("none of the values of {} can be: {why}", of_it.name));
                }
                let is_out_of_time = raced.end == End::Time;
                legs.push(Leg { dimension, at, values, raced });
                if is_out_of_time || ended_by.is_some() {
                    is_complete = false;
                    break 'search;
                }
            }
        }
        if !has_raced {
            break;
        }
    }
    Ok(Found { pick, legs, is_complete, ended_by })
}

/// Values of a dimension that are to be raced with the others where `pick` has them; `None`: what was raced of it last says what is best.
fn due(dimension: usize, of_it: &Dimension, pick: &Point, legs: &[Leg]) -> Option<Vec<usize>> {
    let all = 0..of_it.values.len();
    let Some(last) = legs.iter().rfind(|leg| leg.dimension == dimension) else {
        return (all.len() > 1).then(|| all.collect());
    };
    let near = pick[dimension].saturating_sub(1)..all.end.min(pick[dimension] + 2);
    let around: Vec<usize> = if of_it.is_ordered { near.collect() } else { all.collect() };
    let is_known = last.is_among(pick) && around.iter().all(|value| last.values.contains(value));
    (!is_known).then_some(around)
}

impl Leg {
    /// Whether the other dimensions stood where `pick` has them.
    pub(super) fn is_among(&self, pick: &Point) -> bool {
        (0..pick.len()).all(|other| other == self.dimension || self.at[other] == pick[other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::tune::interval::tests::noise;
    use std::collections::BTreeMap;

    const RULES: Rules = Rules { confidence: 0.95, indifference: 0.03, rounds_most: 12 };

    fn dimensions(sizes: &[usize]) -> Vec<Dimension> {
        let one = |(number, &size): (usize, &usize)| Dimension {
            name: format!("dimension {number}"),
            values: (0..size).map(|value| value.to_string()).collect(),
            is_ordered: number % 2 == 0,
        };
        sizes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_peak_is_found_though_dimensions_depend_on_each_other() {
        // The best of the first is the second's, plus one.
        let truth = |point: &Point| {
            let apart = point[0] as f64 - (point[1] as f64 + 1.0);
            100.0 - 12.0 * apart * apart + 30.0 * point[1] as f64 - 10.0 * (point[2] as f64 - 1.0).abs()
        };
        for seed in 0..20 {
            let (mut random, mut measured) = (Random::new(seed), 0);
            let found = search(&dimensions(&[5, 4, 3]), vec![0, 0, 0], &RULES, &mut |point| {
                measured += 1;
                Ok(Measured::Value(truth(point).max(1.0) * (1.0 + 0.02 * noise(&mut random))))
            })
            .unwrap();
            assert_eq!((&found.pick, found.is_complete), (&vec![4, 3, 1], true), "seed {seed}: {found:?}");
            assert!(measured < 5 * 4 * 3 * 4, "{measured}");
            // Who has moved is raced anew, between neighbours where there is an order.
            let again: Vec<&Leg> = found.legs.iter().filter(|leg| leg.dimension == 0).skip(1).collect();
            assert!(!again.is_empty() && again.iter().all(|leg| leg.values.len() <= 3), "{found:?}");
        }
    }

    #[test]
    fn a_race_among_neighbours_ended_on_a_slope() {
        // With the second where it began the first's first value is the best, with its other one the last; to which only steps lead.
        let truth = |point: &Point| match point[1] {
            0 => 60.0 - 10.0 * point[0] as f64,
            _ => 100.0 + 10.0 * point[0] as f64,
        };
        let found =
            search(&dimensions(&[5, 2]), vec![0, 0], &RULES, &mut |point| Ok(Measured::Value(truth(point))))
                .unwrap();
        assert_eq!((&found.pick, found.is_complete), (&vec![4, 1], true), "{found:?}");
        // A slope that is longer than there are races ends on the way, and says so.
        let found = search(&dimensions(&[20, 2]), vec![0, 0], &RULES, &mut |point| {
            Ok(Measured::Value(if point[1] == 0 { 60.0 - point[0] as f64 } else { truth(point) }))
        })
        .unwrap();
        assert_eq!((&found.pick, found.is_complete), (&vec![7, 1], false), "{found:?}");
    }

    #[test]
    fn what_makes_no_difference_stays_with_the_preferred_value() {
        let mut times = BTreeMap::new();
        let found = search(&dimensions(&[3, 1, 2]), vec![2, 0, 1], &RULES, &mut |point| {
            *times.entry(point.clone()).or_insert(0) += 1;
            Ok(Measured::Value(50.0))
        })
        .unwrap();
        assert_eq!((found.pick, found.is_complete), (vec![0, 0, 0], true));
        assert!(!found.legs.iter().any(|leg| leg.dimension == 1), "one value is no race");
    }

    #[test]
    fn without_time_it_says_so() {
        for time in 0..30 {
            let mut left = time;
            let found = search(&dimensions(&[3, 2]), vec![1, 1], &RULES, &mut |point| {
                left -= 1;
                Ok(if left < 0 { Measured::OutOfTime } else { Measured::Value(1.0 + point[0] as f64) })
            })
            .unwrap();
            assert_eq!(found.pick[0], if time < 3 { 1 } else { 2 }, "{time}");
            let needed = 3 * 2 + 2 * 2 + 2 * 2;
            assert_eq!(found.is_complete, time >= needed, "{time}: {found:?}");
        }
    }

    #[test]
    fn where_nothing_can_be_there_is_no_pick() {
        let found = search(&dimensions(&[2]), vec![0], &RULES, &mut |_| {
            Ok(Measured::Impossible("too small".to_owned()))
        });
        let found = found.unwrap();
        assert!(found.ended_by.as_ref().is_some_and(|why| why.contains("too small")), "{found:?}");
        // What was raced before stays: two rounds of two decide the first dimension.
        let mut tried = 0;
        let found = search(&dimensions(&[2, 2]), vec![0, 0], &RULES, &mut |point| {
            tried += 1;
            Ok(match tried {
                ..=4 => Measured::Value(1.0 + point[0] as f64),
                _ => Measured::Impossible("too small".to_owned()),
            })
        });
        let found = found.unwrap();
        assert_eq!(
            (found.pick.clone(), found.legs.len(), found.is_complete),
            (vec![1, 0], 2, false),
            "{found:?}"
        );
    }
}
