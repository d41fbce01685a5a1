//! Figures of a whole from a sample of its parts, with the error that they have in 95 of 100 cases.
//!
//! Parts have the same chance to be in the sample, and are spread over the whole. Totals are the mean times the number of parts, ratios
//! those of the sums (Cochran, *Sampling Techniques*, 1977, chapters 2 and 6), with the correction for samples that are a
//! large part of the whole and Student's quantiles for small ones. Both take the parts for drawn at random, where they are spread,
//! so errors are rather stated too large.
//!
//! What is seldom has to be treated apart: where few parts of the sample have any of something, or all have the same of it, the spread says
//! nothing of the error. If none of *n* is different, at most 3 in *n* parts are, in 95 of 100 cases; and as much is added to the error. Of a
//! ratio nothing is known where the sample has nothing to divide by. So nothing that was not counted is called exact.

use super::report::Figure;

/// Parts of the sample that must have some of it, so that the spread among them tells the error.
const ENOUGH: usize = 5;

/// Student's quantile for 95 %, both sides, with so many degrees of freedom.
fn quantile(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        1 => 12.71,
        2 => 4.31,
        3 => 3.19,
        _ => {
            let inverse = 1.0 / degrees as f64;
            1.96 + (2.4 + 3.0 * inverse) * inverse
        }
    }
}

/// The mean of a sample from `whole` parts.
pub(super) fn mean(sample: &[f64], whole: f64) -> Figure {
    let count = sample.len() as f64;
    if sample.is_empty() {
        return Figure::default();
    }
    let value = sample.iter().sum::<f64>() / count;
    if count >= whole {
        return Figure { value, error: 0.0 };
    }
    if sample.len() == 1 {
        return Figure { value, error: value };
    }
    let variance = sample.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (count - 1.0);
    let left_out = 1.0 - count / whole;
    Figure { value, error: quantile(sample.len() - 1) * (variance * left_out / count).sqrt() }
}

/// The total over `whole` parts, whose number may be an estimate itself. `seldom`: how much there may be that was not seen, where few
/// parts of the sample have any, or all have the same.
pub(crate) fn total(sample: &[f64], whole: Figure, seldom: f64) -> Figure {
    let each = mean(sample, whole.value);
    if sample.len() as f64 >= whole.value && whole.is_exact() {
        return Figure { value: sample.iter().sum(), error: 0.0 };
    }
    let product = multiply(each, whole);
    let some = sample.iter().filter(|&&x| x != 0.0).count();
    let seldom = if (some < ENOUGH && some < sample.len()) || are_alike(sample) { seldom } else { 0.0 };
    Figure { value: product.value, error: product.error + seldom }
}

fn are_alike(sample: &[f64]) -> bool {
    sample.iter().all(|x| *x == sample[0])
}

/// The product of two estimates that have nothing to do with each other.
pub(super) fn multiply(a: Figure, b: Figure) -> Figure {
    let error = (a.value * b.error).hypot(b.value * a.error) + a.error * b.error;
    Figure { value: a.value * b.value, error }
}

/// The ratio of two sums over the same parts, from a sample of `whole` parts; 0 where there is nothing to divide by, exact only in a census.
/// A part's own ratio is `most` at most, or as a rule like that of the others.
pub(super) fn ratio(above: &[f64], below: &[f64], whole: f64, most: f64) -> Figure {
    let (top, bottom): (f64, f64) = (above.iter().sum(), below.iter().sum());
    let count = above.len() as f64;
    let value = if bottom == 0.0 { 0.0 } else { top / bottom };
    if count >= whole {
        return Figure { value, error: 0.0 };
    }
    if bottom == 0.0 || above.len() == 1 {
        return Figure { value, error: value.max(most) };
    }
    let off = above.iter().zip(below).map(|(x, y)| (x - value * y).powi(2)).sum::<f64>() / (count - 1.0);
    let left_out = 1.0 - count / whole;
    let error = quantile(above.len() - 1) * (off * left_out / count).sqrt() / (bottom / count);
    let seldom = 3.0 / count.max(3.0) * value.max(most);
    Figure { value, error: if error > 1e-9 * value { error } else { seldom } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_is_exact() {
        let whole = Figure::exact(4);
        assert_eq!(total(&[1.0, 2.0, 3.0, 0.0], whole, 9.0), Figure::exact(6));
        assert_eq!(ratio(&[1.0, 2.0], &[2.0, 4.0], 2.0, 1.0), Figure { value: 0.5, error: 0.0 });
    }

    #[test]
    fn errors_grow_with_the_spread_and_fall_with_the_sample() {
        let whole = Figure::exact(1_000_000);
        let alike = total(&[10.0; 100], whole, 3e5);
        assert_eq!((alike.value, alike.error), (1e7, 3e5));
        assert!(!ratio(&[1.0; 100], &[2.0; 100], 1e6, 1.0).is_exact());
        let sample = |count: usize| (0..count).map(|i| (i % 2) as f64 * 20.0).collect::<Vec<_>>();
        let (few, many) = (total(&sample(20), whole, 20.0), total(&sample(200), whole, 20.0));
        assert!(few.error > 3.0 * many.error && many.error > 1e6, "{few:?} {many:?}");
        assert!((few.value - 1e7).abs() < 1.0 && few.covers(1e7));
    }

    #[test]
    fn what_was_not_seen_may_be_there_all_the_same() {
        let seen = total(&[0.0; 300], Figure::exact(30_000), 3.0 / 300.0 * 30_000.0 * 50.0);
        assert_eq!(seen.value, 0.0);
        // In one leaf of a hundred.
        assert!(seen.covers(300.0 * 50.0) && !seen.covers(3_000.0 * 50.0));
    }

    #[test]
    fn a_ratio_that_the_sample_has_nothing_of_was_an_exact_nothing() {
        let nothing = Figure { value: 0.0, error: 0.0 };
        let unknown = Figure { value: 0.0, error: 4096.0 };
        assert_eq!(ratio(&[0.0; 4], &[0.0; 4], 9.0, 4096.0), unknown, "nothing to divide by");
        assert_eq!(ratio(&[], &[], 9.0, 4096.0), unknown, "nothing was looked at");
        assert_eq!(ratio(&[0.0], &[5.0], 9.0, 4096.0), unknown, "one that has none");
        let few = ratio(&[0.0; 30], &[5.0; 30], 90.0, 4096.0);
        assert!(few.covers(409.6) && !few.covers(4096.0), "three of the thirty may have some: {few:?}");
        assert_eq!(ratio(&[0.0; 4], &[0.0; 4], 4.0, 4096.0), nothing);
        assert_eq!(ratio(&[], &[], 0.0, 4096.0), nothing);
    }

    #[test]
    fn one_part_says_little() {
        let seen = total(&[7.0], Figure::exact(100), 7.0);
        assert!(seen.covers(0.0) && seen.covers(1000.0), "{seen:?}");
        assert!(ratio(&[3.0], &[6.0], 100.0, 1.0).covers(0.1));
    }
}
