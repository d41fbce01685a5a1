//! How sure a mean is: Student's t, on means of batches of what was counted in one run, or on means of whole runs.
//!
//! Seconds that follow each other are alike (a checkpoint, a cache that fills), so taking each for a measurement of its own would make intervals too narrow. Means
//! of long enough batches are nearly independent (batch means, see Law, "Simulation Modeling and Analysis", chapter 9): neighbours are put together until their means are
//! not alike any more, or few are left. Where there are several runs, each from a fresh start, their means are what is taken: that has the differences between runs
//! in it, too (replication and deletion, same chapter). Two of them that happen to be alike say little of how runs differ: of them it is the wider interval. Of a single run
//! there is only what differs within it.
//!
//! The mean is that of all that was counted, whichever way the interval comes from: batches are for how sure it is.

/// Most batches that a run is cut into.
const BATCHES_MOST: usize = 20;
/// Fewest batches.
const BATCHES_LEAST: usize = 5;
/// How much alike neighbouring batches may be: their correlation.
const ALIKE: f64 = 0.3;
/// So many runs are enough to go by their means alone.
const RUNS_ENOUGH: usize = 3;

/// A mean, and how far off it may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The interval goes so far to both sides of it; `None` where nothing can be said.
    pub half: Option<f64>,
}

impl Interval {
    /// Of independent values, at this confidence (0.95: of 100 such intervals 95 have the true mean in them); `None` where there are no values.
    pub fn of(values: &[f64], confidence: f64) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let half = (values.len() > 1).then(|| {
            let count = values.len() as f64;
            t_quantile(1.0 - (1.0 - confidence) / 2.0, count - 1.0) * (variance(values) / count).sqrt()
        });
        Some(Interval { mean: mean(values), half })
    }

    /// Of runs of one configuration, each with what was counted in equal pieces of its time.
    pub fn of_runs(runs: &[Vec<f64>], confidence: f64) -> Option<Self> {
        let means: Vec<f64> = runs.iter().filter(|run| !run.is_empty()).map(|run| mean(run)).collect();
        let of_means = Interval::of(&means, confidence)?;
        if means.len() >= RUNS_ENOUGH {
            return Some(of_means);
        }
        let batches: Vec<f64> = runs.iter().flat_map(|run| batches(run)).collect();
        let within = Interval::of(&batches, confidence).and_then(|interval| interval.half);
        Some(Interval { half: of_means.half.into_iter().chain(within).reduce(f64::max), ..of_means })
    }

    /// Its lower end; the mean, where the interval is not known.
    pub fn low(&self) -> f64 {
        self.mean - self.half.unwrap_or(0.0)
    }

    /// Its upper end; the mean, where the interval is not known.
    pub fn high(&self) -> f64 {
        self.mean + self.half.unwrap_or(0.0)
    }
}

/// The mean of some values, which there must be.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// The correlation of each value with the one after it.
fn likeness(values: &[f64]) -> f64 {
    let mean = mean(values);
    let all: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let neighbours: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if all > 0.0 { neighbours / all } else { 0.0 }
}

/// Means of batches of values that follow each other, as many as are not alike. Each value is in one of them, so some have one value more than others.
pub fn batches(values: &[f64]) -> Vec<f64> {
    let mut count = BATCHES_MOST.min(values.len());
    loop {
        if count == 0 {
            return Vec::new();
        }
        let begin = |batch: usize| batch * values.len() / count;
        let means: Vec<f64> = (0..count).map(|batch| mean(&values[begin(batch)..begin(batch + 1)])).collect();
        if count / 2 < BATCHES_LEAST || likeness(&means) <= ALIKE {
            return means;
        }
        count /= 2;
    }
}

/// What a variable with Student's distribution is below with this probability.
pub fn t_quantile(probability: f64, degrees: f64) -> f64 {
    if probability < 0.5 {
        return -t_quantile(1.0 - probability, degrees);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while t_probability(high, degrees) < probability && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if t_probability(middle, degrees) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The probability that a variable with Student's distribution is below `t`, which is not negative.
fn t_probability(t: f64, degrees: f64) -> f64 {
    1.0 - incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8, evaluated as Lentz does).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // It converges fast below this bound; above it the other end is taken.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let not_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for step in 1..500 {
        let m = f64::from(step);
        for part in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / not_zero(1.0 + part * d);
            c = not_zero(1.0 + part / c);
            result *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * result
}

/// The logarithm of the gamma function of a positive number (Stirling's series, from a number that is large enough on).
fn log_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::random::Random;

    /// A number around 0 with the variance 1, nearly as a normal one.
    pub(crate) fn noise(random: &mut Random) -> f64 {
        (0..12).map(|_| random.below(1 << 32) as f64 / (1_u64 << 32) as f64).sum::<f64>() - 6.0
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, degrees, known) in [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 5.0, 2.571),
            (0.995, 10.0, 3.169),
            (0.95, 30.0, 1.697),
            (0.9995, 3.0, 12.924),
            (0.975, 1e6, 1.960),
        ] {
            let found = t_quantile(probability, degrees);
            assert!((found / known - 1.0).abs() < 5e-4, "{probability}, {degrees}: {found}, not {known}");
            assert_eq!(t_quantile(1.0 - probability, degrees).signum(), -1.0);
        }
    }

    #[test]
    fn an_interval_has_the_mean_in_it_as_often_as_it_says() {
        let mut random = Random::new(7);
        let mut hits = 0;
        for _ in 0..1000 {
            let values: Vec<f64> = (0..6).map(|_| 100.0 + 10.0 * noise(&mut random)).collect();
            let interval = Interval::of(&values, 0.9).unwrap();
            hits += u32::from(interval.low() <= 100.0 && interval.high() >= 100.0);
        }
        assert!((870..=930).contains(&hits), "{hits} of 1000");
        assert_eq!(Interval::of(&[5.0], 0.9), Some(Interval { mean: 5.0, half: None }));
        assert_eq!(Interval::of(&[], 0.9), None);
    }

    #[test]
    fn values_that_are_alike_are_put_together() {
        let mut random = Random::new(3);
        let independent: Vec<f64> = (0..40).map(|_| noise(&mut random)).collect();
        assert_eq!(batches(&independent).len(), 20);
        let slow: Vec<f64> = (0..40).map(|at| f64::from(at / 8)).collect();
        assert_eq!(batches(&slow).len(), 5);
        assert_eq!((batches(&[]).len(), batches(&[1.0, 2.0]).len()), (0, 2));
    }

    #[test]
    fn what_was_counted_last_is_in_the_mean_as_well() {
        // As many intervals as a quick run has, and nearly twice as many as there are batches at most.
        for count in [25_u32, 39, 1, 20] {
            let run: Vec<f64> = (0..count).map(|at| if at < 20 { 100.0 } else { 200.0 }).collect();
            let interval = Interval::of_runs(std::slice::from_ref(&run), 0.95).unwrap();
            assert!((interval.mean - mean(&run)).abs() < 1e-9, "{count}: {interval:?}");
            assert_eq!(interval.half.is_some(), count > 1, "{count}: {interval:?}");
        }
        // A run that was counted more often weighs as much as another one.
        let interval = Interval::of_runs(&[vec![10.0; 10], vec![30.0; 25]], 0.95).unwrap();
        assert!((interval.mean - 20.0).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn several_runs_are_judged_by_their_means() {
        // Within each run everything is the same: only the runs differ.
        let runs = vec![vec![10.0; 10], vec![12.0; 10], vec![11.0; 10]];
        let interval = Interval::of_runs(&runs, 0.95).unwrap();
        assert!(
            (interval.mean - 11.0).abs() < 1e-9
                && (interval.half.unwrap() - 4.303 / 3_f64.sqrt()).abs() < 0.01
        );
        // What differs between two runs is in their interval as well.
        let two = Interval::of_runs(&runs[..2], 0.95).unwrap();
        assert!(two.mean == 11.0 && (two.half.unwrap() - 12.706).abs() < 0.01, "{two:?}");
        // Two that happen to be alike are as sure as what differs within them.
        let uneven: Vec<f64> = (0..20).map(|at| if at % 2 == 0 { 5.0 } else { 15.0 }).collect();
        let alike = Interval::of_runs(&[uneven.clone(), uneven], 0.95).unwrap();
        assert!(alike.mean == 10.0 && alike.half.unwrap() > 1.0, "{alike:?}");
    }
}
