//! What was counted over time: `[seconds, operations since the row before]` each.

use serde_json::Value;

/// How long the speed of before has to be held for it to count as reached.
pub(super) const HELD_SECONDS: f64 = 1.0;

/// Counts over time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    rows: Vec<(f64, f64)>,
}

impl Series {
    /// As a step has printed it; `None` where it is something else.
    pub(super) fn of(samples: &Value) -> Option<Self> {
        let rows: Option<Vec<_>> =
            samples.as_array()?.iter().map(|row| Some((row[0].as_f64()?, row[1].as_f64()?))).collect();
        rows.filter(|rows| rows.len() > 1).map(|rows| Series { rows })
    }

    /// When it ends.
    pub(super) fn end(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.0)
    }

    /// How long it is.
    pub(super) fn seconds(&self) -> f64 {
        self.end() - self.rows.first().map_or(0.0, |row| row.0)
    }

    /// Operations a second in its last seconds, or in all of it where it is shorter.
    pub(super) fn rate(&self, last_seconds: f64) -> f64 {
        let from = self.end() - last_seconds;
        // The row that the first of the counted operations come behind.
        let first = self.rows.iter().rposition(|row| row.0 <= from).unwrap_or(0);
        let counted: f64 = self.rows[first + 1..].iter().map(|row| row.1).sum();
        counted / (self.end() - self.rows[first].0).max(1e-9)
    }

    /// From when on so many operations a second were done, for a second at least.
    pub(super) fn reaches(&self, rate: f64) -> Option<f64> {
        let (mut last, mut counted) = (0, 0.0);
        for (first, row) in self.rows.iter().enumerate() {
            // `counted` is what was done between this row and the last one.
            if first > 0 {
                counted -= row.1;
            }
            while self.rows[last].0 < row.0 + HELD_SECONDS {
                last += 1;
                counted += self.rows.get(last)?.1;
            }
            if counted / (self.rows[last].0 - row.0) >= rate {
                return Some(row.0);
            }
        }
        None
    }

    /// Operations a second, in steps of so many seconds that meet at `zero`; the middle of each, counted from there.
    pub(super) fn line(&self, zero: f64, step: f64) -> Vec<(f64, f64)> {
        let place = |seconds: f64| ((seconds - zero) / step).floor() as i64;
        let mut steps: Vec<(i64, f64, f64)> = Vec::new();
        for pair in self.rows.windows(2) {
            let (begun, ended, count) = (pair[0].0, pair[1].0, pair[1].1);
            let at = place((begun + ended) / 2.0);
            match steps.last_mut().filter(|step| step.0 == at) {
                Some(step) => (step.1, step.2) = (step.1 + count, step.2 + ended - begun),
                None => steps.push((at, count, ended - begun)),
            }
        }
        // Less than half a step says little.
        let whole = steps.into_iter().filter(|&(_, _, seconds)| seconds >= step / 2.0);
        whole.map(|(at, count, seconds)| ((at as f64 + 0.5) * step, count / seconds)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Rows of a tenth of a second.
    fn series(first: f64, counts: &[u32]) -> Series {
        let rows =
            counts.iter().enumerate().map(|(index, &count)| (first + index as f64 / 10.0, count.into()));
        Series { rows: rows.collect() }
    }

    #[test]
    fn a_rate_is_that_of_the_end() {
        let mut counts = vec![0];
        counts.extend([10; 20]);
        counts.extend([30; 10]);
        let series = series(0.0, &counts);
        assert!((series.rate(1.0) - 300.0).abs() < 1.0, "{}", series.rate(1.0));
        assert!((series.rate(99.0) - 500.0 / 3.0).abs() < 1.0, "{}", series.rate(99.0));
        assert_eq!(Series::of(&json!([[0.0, 0], [0.5, 5]])).unwrap().rate(1.0), 10.0);
        assert_eq!((Series::of(&Value::Null), Series::of(&json!([[1, 2]]))), (None, None));
    }

    #[test]
    fn a_speed_is_reached_when_it_is_held() {
        let mut counts = vec![0, 100];
        counts.extend([10; 20]);
        counts.extend([50; 20]);
        let series = series(3.0, &counts);
        // One burst is not it; what is held for less than a second at the end is not known.
        let at = series.reaches(480.0).unwrap();
        assert!((at - 5.1).abs() < 0.15, "{at}");
        assert_eq!(series.reaches(600.0), None);
        assert!((series.reaches(90.0).unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_meets_zero_at_a_step() {
        let mut counts = vec![0];
        counts.extend([10; 30]);
        let line = series(0.0, &counts).line(3.0, 0.5);
        assert_eq!(line.len(), 6);
        assert!((line[5].0 + 0.25).abs() < 1e-9 && (line[0].0 + 2.75).abs() < 1e-9, "{line:?}");
        assert!(line.iter().all(|point| (point.1 - 100.0).abs() < 1.0), "{line:?}");
    }
}
