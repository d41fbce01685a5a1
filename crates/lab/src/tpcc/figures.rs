//! What came of a run, as JSON.

use super::run::{Outcome, Sample, SampleLatencies};
use super::transactions::Kind;
use crate::histogram::Histogram;
use serde_json::{Map, Value, json};

/// Percentiles in milliseconds.
fn percentiles(latency: &Histogram) -> Map<String, Value> {
    let shares = [("p50_ms", 0.5), ("p90_ms", 0.9), ("p95_ms", 0.95), ("p99_ms", 0.99), ("p999_ms", 0.999)];
    let mut figures: Map<String, Value> = shares
        .into_iter()
        .map(|(name, share)| (name.to_owned(), (latency.quantile_us(share) / 1e3).into()))
        .collect();
    figures.insert("longest_ms".to_owned(), (latency.max_us() / 1e3).into());
    figures
}

impl Outcome {
    /// Rates, latencies of all and by kind (those with their histograms, of which the one of all is the sum), and what came of each sample: when it ended, transactions, then milliseconds: p50, p99, the longest, p95;
    /// null where no transaction ended. Of an open loop also how many transactions were offered and how many of them not served, and for how long those had waited, which is a part of the latencies of all.
    pub fn to_json(&self) -> Value {
        let kinds: Map<String, Value> = (Kind::ALL.iter().zip(&self.latencies).zip(&self.reads))
            .zip(self.conflicts)
            .map(|(((kind, latency), reads), conflicts)| {
                let each = |reads: u64| reads as f64 / latency.count().max(1) as f64;
                let mut figures = percentiles(latency);
                // Reads are those of an embedded database, for each transaction.
                let more = [
                    ("count", latency.count().into()),
                    ("buckets_us", latency.buckets_json()),
                    ("conflicts", conflicts.into()),
                    ("serial_reads", each(reads.serial).into()),
                    ("batches", each(reads.batches).into()),
                    ("batched_reads", each(reads.batched).into()),
                ];
                figures.extend(more.map(|(name, value)| (name.to_owned(), value)));
                (kind.name().to_owned(), Value::Object(figures))
            })
            .collect();
        let mut figures = percentiles(&self.all_latencies());
        let sample = |Sample { at, transactions, latencies }: &Sample| {
            let of = |figure: fn(SampleLatencies) -> f64| latencies.map(figure);
            json!([
                at.as_secs_f64(),
                transactions,
                of(|latencies| latencies.p50_ms),
                of(|latencies| latencies.p99_ms),
                of(|latencies| latencies.longest_ms),
                of(|latencies| latencies.p95_ms),
            ])
        };
        let more = [
            ("seconds", self.elapsed.as_secs_f64().into()),
            ("transactions", self.transactions().into()),
            ("offered", self.offered().into()),
            ("unserved", self.unserved.as_ref().map(Histogram::count).into()),
            ("unserved_buckets_us", self.unserved.as_ref().map(Histogram::buckets_json).into()),
            ("transactions_per_second", (self.transactions() as f64 / self.elapsed.as_secs_f64()).into()),
            ("new_orders_per_minute", self.new_orders_per_minute().into()),
            ("conflicts", self.conflicts.iter().sum::<u64>().into()),
            ("kinds", Value::Object(kinds)),
            ("samples", self.samples.iter().map(sample).collect()),
        ];
        figures.extend(more.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn latencies_of_all_are_those_of_each_kind_together() {
        let mut latencies: [Histogram; 5] = Default::default();
        latencies[0].record(Duration::from_millis(10), 60);
        latencies[1].record(Duration::from_millis(2), 40);
        let outcome = Outcome {
            latencies,
            unserved: None,
            rolled_back: 10,
            reads: Default::default(),
            conflicts: [0, 3, 0, 0, 0],
            elapsed: Duration::from_secs(2),
            samples: vec![Sample { at: Duration::from_secs(2), transactions: 0, latencies: None }],
            began: std::time::UNIX_EPOCH,
            each: Vec::new(),
        };
        let figures = outcome.to_json();
        assert_eq!(
            (&figures["transactions"], &figures["transactions_per_second"]),
            (&json!(100), &json!(50.0))
        );
        // 50 of them were not rolled back, in 2 s.
        assert_eq!(figures["new_orders_per_minute"], json!(1500.0));
        assert_eq!(
            (&figures["kinds"]["new-order"]["count"], &figures["kinds"]["payment"]["conflicts"]),
            (&json!(60), &json!(3))
        );
        let within = |figure: &Value, from: f64| {
            let value = figure.as_f64().unwrap();
            assert!((from..from * 1.02).contains(&value), "{value}");
        };
        within(&figures["kinds"]["payment"]["p999_ms"], 2.0);
        let buckets = figures["kinds"]["payment"]["buckets_us"].as_array().unwrap();
        assert_eq!((buckets.len(), &buckets[0][1]), (1, &json!(40)));
        within(&buckets[0][0], 2000.0);
        within(&figures["p95_ms"], 10.0);
        within(&figures["p50_ms"], 10.0);
        assert!(figures["offered"].is_null() && figures["unserved"].is_null(), "{figures}");
        assert_eq!(figures["samples"], json!([[2.0, 0, null, null, null, null]]));
        // Those that were not served count in the latencies of all, and in no rate.
        let mut unserved = Histogram::default();
        unserved.record(Duration::from_secs(1), 25);
        let figures = Outcome { unserved: Some(unserved), ..outcome }.to_json();
        assert_eq!((&figures["offered"], &figures["unserved"]), (&json!(125), &json!(25)));
        assert_eq!(figures["transactions_per_second"], json!(50.0));
        within(&figures["p95_ms"], 1000.0);
        assert_eq!(figures["unserved_buckets_us"][0][1], json!(25));
    }
}
