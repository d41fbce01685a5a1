//! The whole store under simulation: sessions, long readers, checkpoints, sweeps and all the threads of the store itself
//! run on a simulated disk under a seeded scheduler; power goes at any I/O, the device fails; after every restart the
//! structure is checked and an oracle says whether what is there can be explained by what was acknowledged.
//!
//! - `cargo test --test simulation` runs a small fixed set of seeds and the ones that once found a bug.
//! - `SIM_SEED=n` replays one seed; `SIM_TRACE=1` tells what it does.
//! - `SIM_SEEDS=k` runs k fresh seeds, `SIM_SECONDS=s` as many as fit into s seconds, and with 0 goes on until it is stopped; all
//!   print what they run.
//! - With the feature `mutations` the simulation itself is on trial: `simulation/mutations.rs`.

#[path = "simulation/backup.rs"]
mod backup;
#[path = "simulation/damage.rs"]
mod damage;
#[path = "simulation/life.rs"]
mod life;
#[cfg(feature = "mutations")]
#[path = "simulation/mutations.rs"]
mod mutations;
#[path = "simulation/oracle.rs"]
mod oracle;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/session.rs"]
mod session;
#[path = "simulation/statement.rs"]
mod statement;

use gannet_base::clock;
use gannet_base::sim::Simulation;
use gannet_base::sync::{Mutex, RwLock};
use plan::Plan;
use std::num::NonZero;
use std::time::Duration;

/// Seeds that every run goes through.
const FIXED: std::ops::Range<u64> = 1..6;

/// Seeds that found a bug, with what it was.
const REGRESSIONS: &[(u64, &str)] = &[
    (359, "the simulation took what a crash may have lost for durable, once the next life had been closed"),
    (
        29731766574,
        "a compressed backup that had no memory for a moment said so in other words, and nobody expected it",
    ),
    (
        795087548832,
        "the oracle took a commit for done that had failed, and was taken back, before it could be told",
    ),
    (3093, "a start that failed half-way marked the file as closed, and its log was not redone"),
    (
        49768665858,
        "an archive began a part before one that it had synced, as the disk was full behind it, and the log between counted as missing",
    ),
    (92110271755, "a check looked into a segment of the log that a checkpoint had just let go of"),
    (
        159944750539,
        "the oracle took a commit that failed, and was taken back, for one that may be in the log",
    ),
    (
        175064321175,
        "a failure in the background was told of after the faults had ended, and nobody expected it",
    ),
    (
        264143020549,
        "who made a page waited for a frame that had got another page, whose holder waited for free space",
    ),
    (
        354006542315,
        "the sync that sealed a part of the archive failed, and the next opening went on behind it, as it read well, until a power cut took it",
    ),
    (377916207741, "a rollback that could not read its undo left others waiting for its rows for ever"),
    (
        474927392591,
        "a part of the archive that was begun again, and broken off as the disk was full, hid the one before, which had all of it",
    ),
    (
        533215080789,
        "an archive that failed within the filler of a crashed segment went on before it with the filler's checksum, and took the log \
         for damaged from then on",
    ),
    (503903561178, "the simulation took a power cut right behind a creation for none"),
    (
        676464645256,
        "a backup that the log had left behind looked for a footer in a segment that was let go of, and called it damaged; and later \
         one whose end lay in the last block of a segment, before that had a footer",
    ),
    (
        698731018031,
        "a backup that the log had left behind looked for what was passed over, and called a footer damaged that was let go of",
    ),
    (
        837889720874,
        "a page that restart could not read closed the database to changes, and nobody expected it",
    ),
    (
        784734178461,
        "the log's folder could not be synced as a writer asked for room: it was told that the database is closed to changes, which it was not",
    ),
];

/// More than any healthy run takes: behind it somebody is taken to be stuck.
const MAX_STEPS: u64 = 40_000_000;

/// How often a long run says how it gets on.
const PROGRESS: Duration = Duration::from_secs(10);

/// Runs one seed; gives the way to see it again when it fails.
fn run(seed: u64) -> Result<life::Summary, String> {
    let plan = Plan::new(seed);
    let result = Simulation::new(seed).max_steps(MAX_STEPS).run(move || life::lives(plan));
    result.map_err(|failure| {
        let features = if cfg!(feature = "invariants") { " --features invariants" } else { "" };
        format!(
            "{failure}\n\nreplay: SIM_SEED={seed} cargo test -p gannet-store{features} --test simulation -- --nocapture"
        )
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Simulations run beside each other, but not beside a planted fault: that is there for the whole process.
static PLANTED: RwLock<()> = RwLock::new(());

/// Seeds that run at a time, at most: each may take most of a GiB.
const BESIDE_MAX: usize = 8;

/// Hands out seeds in their order, as many at a time as there are processors (or [`BESIDE_MAX`]), until there are no more or one of them gives something.
fn deal<T: Send>(
    seeds: impl Iterator<Item = u64> + Send,
    each: impl Fn(u64) -> Option<T> + Sync,
) -> Option<T> {
    let (seeds, found) = (Mutex::new(seeds.fuse()), Mutex::new(None));
    let work = || {
        loop {
            let Some(seed) = seeds.lock().next() else { return };
            if found.lock().is_some() {
                return;
            }
            if let Some(what) = each(seed) {
                *found.lock() = Some(what);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, NonZero::get).min(BESIDE_MAX) {
            scope.spawn(work);
        }
        work();
    });
    found.into_inner()
}

#[test]
fn the_database_survives_every_seed() {
    let _nothing_planted = PLANTED.read();
    if let Some(seed) = number("SIM_SEED") {
        let summary = run(seed).unwrap_or_else(|what| panic!("{what}"));
        println!("seed {seed}: {summary:?}");
        return;
    }
    let (seeds, seconds) = (number("SIM_SEEDS"), number("SIM_SECONDS"));
    if seeds.is_some() || seconds.is_some() {
        return run_fresh(seeds, seconds);
    }
    // Some of the old ones take long: they do not begin when all the others have ended.
    let kept = REGRESSIONS.iter().map(|(seed, _)| *seed).chain(FIXED);
    if let Some(what) = deal(kept, |seed| run(seed).err()) {
        panic!("{what}");
    }
}

/// The first seed wrote more than its disk holds into its archive, and waited for that for ever; the second, whose huge transactions nobody
/// had counted, so much that what was restored from it had no room beside it.
#[test]
fn what_a_plan_keeps_fits_its_disk() {
    for seed in [127858268940, 534952238899].into_iter().chain(0..2000) {
        let plan = Plan::new(seed);
        assert!(plan.open.archive.is_none() || plan.long_bytes() <= plan.bytes_most(), "seed {seed}");
    }
}

/// Runs seeds that nobody has seen before, or those from `SIM_FIRST` on. Those that are counted are told one by one, of others
/// how they get on.
fn run_fresh(seeds: Option<u64>, seconds: Option<u64>) {
    let start = clock::now();
    let first = number("SIM_FIRST").unwrap_or_else(|| gannet_base::random::next_u64() >> 24);
    let limit = seconds.filter(|&seconds| seconds > 0).map_or(Duration::MAX, Duration::from_secs);
    let fresh =
        (first..first.saturating_add(seeds.unwrap_or(u64::MAX))).take_while(|_| start.elapsed() < limit);
    let total = Mutex::new((0, life::Summary::default(), Duration::ZERO));
    let failure = deal(fresh, |seed| {
        let summary = match run(seed) {
            Ok(summary) => summary,
            Err(what) => return Some(what),
        };
        let (count, total, told) = &mut *total.lock();
        *count += 1;
        total.add(&summary);
        if seeds.is_some() {
            println!("seed {seed}: {summary:?}");
        } else if start.elapsed() >= *told + PROGRESS {
            *told = start.elapsed();
            print_total(first, *count, *told, total);
        }
        None
    });
    let (count, total, _) = total.into_inner();
    print_total(first, count, start.elapsed(), &total);
    if let Some(what) = failure {
        panic!("{what}");
    }
}

fn print_total(first: u64, count: u64, taken: Duration, total: &life::Summary) {
    let seconds = taken.as_secs_f64();
    println!(
        "{count} seeds (from {first} on) in {seconds:.0} s, {:.2} a second: {total:?}",
        count as f64 / seconds
    );
}
