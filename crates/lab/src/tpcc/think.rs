//! What a terminal's user takes for typing a request in, and for thinking about the answer (clauses 5.2.5.2, 5.2.5.4 and 5.2.5.7).

use super::transactions::Kind;
use crate::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often somebody who waits looks whether he is still to.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Times to think are cut off at so many times their mean.
const LONGEST: f64 = 10.0;

/// Seconds for typing, and seconds for thinking on average.
fn seconds(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::NewOrder => (18.0, 12.0),
        Kind::Payment => (3.0, 12.0),
        Kind::OrderStatus => (2.0, 10.0),
        Kind::Delivery => (2.0, 5.0),
        Kind::StockLevel => (2.0, 5.0),
    }
}

/// How long a request of this kind is typed in; `scale` 1 is the specification's.
pub(super) fn keying(kind: Kind, scale: f64) -> Duration {
    Duration::from_secs_f64(seconds(kind).0 * scale)
}

/// How long its answer is thought about: exponentially distributed.
pub(super) fn thinking(kind: Kind, scale: f64, random: &mut Random) -> Duration {
    Duration::from_secs_f64(exponential(random).min(LONGEST) * seconds(kind).1 * scale)
}

/// A number of at least 0, exponentially distributed with mean 1.
pub(super) fn exponential(random: &mut Random) -> f64 {
    -((random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64).ln()
}

/// Waits until then; false when `stop` was set before.
pub(super) fn until(then: Instant, stop: &AtomicBool) -> bool {
    loop {
        let wait = then.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(wait.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_specifications_and_scale() {
        assert_eq!(keying(Kind::NewOrder, 1.0), Duration::from_secs(18));
        assert_eq!(keying(Kind::Payment, 0.5), Duration::from_millis(1500));
        let mut random = Random::new(1);
        let times: Vec<f64> =
            (0..20_000).map(|_| thinking(Kind::Payment, 0.1, &mut random).as_secs_f64()).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((1.15..1.25).contains(&mean), "{mean}");
        assert!(times.iter().all(|&time| time <= 12.0));
    }

    #[test]
    fn nobody_waits_when_he_is_not_to() {
        let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
        assert!(until(Instant::now(), &stop) && until(Instant::now() + Duration::from_millis(1), &go_on));
        assert!(!until(Instant::now() + Duration::from_secs(3600), &stop));
    }
}
