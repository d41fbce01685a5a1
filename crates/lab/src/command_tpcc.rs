//! `gannet-lab tpcc`: TPC-C over PostgreSQL's protocol, the same driver for whoever answers.

use anyhow::{Context, Result, bail};
use gannet_lab::tpcc::{Size, check, connection::Connect, load, run, transactions::Kind};
use gannet_lab::wire::Server;
use lexopt::prelude::*;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

struct Arguments {
    step: String,
    plan: run::Plan,
    server: Server,
}

fn parse(parser: &mut lexopt::Parser) -> Result<Arguments> {
    let plan =
        run::Plan { size: Size::new(2), terminals: 8, time: std::time::Duration::from_secs(20), seed: 1 };
    let mut arguments = Arguments { step: String::new(), plan, server: Server { target: String::new() } };
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) if arguments.step.is_empty() => arguments.step = word.string()?,
            Long("url") => arguments.server.target = parser.value()?.string()?,
            Long("warehouses") => arguments.plan.size.warehouses = parser.value()?.parse()?,
            Long("sessions") => arguments.plan.terminals = parser.value()?.parse()?,
            Long("seconds") => arguments.plan.time = std::time::Duration::from_secs(parser.value()?.parse()?),
            Long("seed") => arguments.plan.seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if arguments.server.target.is_empty() {
        bail!("--url is missing: where the server is, in libpq's words");
    }
    if arguments.plan.size.warehouses == 0 || arguments.plan.terminals == 0 {
        bail!("--warehouses and --sessions are 1 or more");
    }
    Ok(arguments)
}

/// Runs the command; one JSON object on standard output.
pub(crate) fn work(parser: &mut lexopt::Parser, stop: &AtomicBool) -> Result<()> {
    let arguments = parse(parser)?;
    let began = Instant::now();
    let measured = match arguments.step.as_str() {
        "load" => {
            fill(&arguments)?;
            json!({ "seconds": began.elapsed().as_secs_f64() })
        }
        "run" => {
            outcome(&run::run(&arguments.server, &arguments.plan, |_, _| !stop.load(Ordering::Relaxed))?)
        }
        "check" => {
            let mut connection = arguments.server.connect()?;
            for condition in check::CONDITIONS {
                let found = check::violations(&mut *connection, condition)
                    .with_context(|| format!("condition {}", condition.number))?;
                if found > 0 {
                    bail!("condition {} is violated {found} times: {}", condition.number, condition.says);
                }
            }
            json!({ "conditions": check::CONDITIONS.len(), "seconds": began.elapsed().as_secs_f64() })
        }
        other => bail!("tpcc is load, run or check, not {other:?}"),
    };
    let plan = &arguments.plan;
    println!(
        "{}",
        json!({
            "workload": format!("tpcc {}", arguments.step),
            "warehouses": plan.size.warehouses, "sessions": plan.terminals, "seed": plan.seed,
            "measured": measured, "machine": gannet_lab::machine::describe(),
        })
    );
    Ok(())
}

fn fill(arguments: &Arguments) -> Result<()> {
    let load = load::Load { size: arguments.plan.size, seed: arguments.plan.seed, loaders: 2 };
    load::tables(&arguments.server, &load, |_| {})?;
    load::finish(&mut *arguments.server.connect()?)
}

fn outcome(outcome: &run::Outcome) -> serde_json::Value {
    let kinds: serde_json::Map<String, serde_json::Value> = Kind::ALL
        .iter()
        .zip(&outcome.latencies)
        .map(|(kind, latency)| {
            let millis = |share: f64| latency.quantile_us(share) / 1e3;
            let figures = json!({
                "count": latency.count(), "p50_ms": millis(0.5), "p90_ms": millis(0.9), "p99_ms": millis(0.99),
            });
            (kind.name().to_owned(), figures)
        })
        .collect();
    json!({
        "seconds": outcome.elapsed.as_secs_f64(),
        "transactions_per_second": outcome.transactions() as f64 / outcome.elapsed.as_secs_f64(),
        "new_orders_per_minute": outcome.new_orders_per_minute(),
        "conflicts": outcome.conflicts.iter().sum::<u64>(),
        "kinds": kinds,
    })
}
