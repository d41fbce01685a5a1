//! Crashes anywhere, with unsynced sectors lost, torn and reordered.

use super::*;
use gannet_base::sync::Mutex;

/// What the writers of one life know.
#[derive(Default)]
struct Oracle {
    /// LSN and page of every group appended, in log order after sorting.
    appended: Vec<(u64, u64)>,
    /// The highest LSN that a flush acknowledged.
    acknowledged: u64,
    /// What is below may be gone.
    kept_from: u64,
}

/// Writers append and commit until the power goes; a maintainer keeps segments ready.
fn live(log: &Log, seed: u64, life: u64) -> Oracle {
    let oracle = Arc::new(Mutex::new(Oracle::default()));
    let writers = 1 + seed % 5;
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (log, oracle) = (log.clone(), Arc::clone(&oracle));
            thread::spawn(&format!("writer {writer}"), move || {
                let mut random = Generator::new(seed * 100 + writer);
                loop {
                    let page = life * 1000 + writer * 10 + 1;
                    let len = if random.one_in(10) { random.below(12_000) } else { random.below(300) };
                    let Ok(lsn) = log.append(&group(&[(page, 0)], len as usize)) else { return };
                    oracle.lock().appended.push((lsn.0, page));
                    if random.one_in(2) {
                        let durable = log.durable().0;
                        let in_a_hurry = random.one_in(3);
                        let flushed = if in_a_hurry { log.flush_to(lsn) } else { log.flush_commit(lsn) };
                        if flushed.is_err() {
                            return;
                        }
                        let mut oracle = oracle.lock();
                        oracle.acknowledged = oracle.acknowledged.max(lsn.0).max(durable);
                    }
                }
            })
        })
        .collect();
    let ended = Arc::new(Mutex::new(false));
    let maintainer = {
        let (log, ended, oracle) = (log.clone(), Arc::clone(&ended), Arc::clone(&oracle));
        thread::spawn("maintainer", move || {
            while !*ended.lock() && log.prepare().is_ok() {
                if seed.is_multiple_of(2) {
                    let durable = log.durable();
                    let mut oracle = oracle.lock();
                    oracle.kept_from = durable.0.saturating_sub(SEGMENT);
                    log.set_keep_from(Lsn(oracle.kept_from));
                }
                clock::sleep(Duration::from_millis(2));
            }
        })
    };
    threads.into_iter().for_each(|t| t.join().unwrap());
    *ended.lock() = true;
    maintainer.join().unwrap();
    let mut oracle = std::mem::take(&mut *oracle.lock());
    oracle.appended.sort_unstable();
    oracle
}

/// Checks a recovery against what a life did from `start` on.
fn check(recovery: &Recovery, log: &Log, oracle: &Oracle, redo_from: u64) {
    let end = recovery.end.0;
    let start = redo_from / SEGMENT * SEGMENT;
    assert!(end >= oracle.acknowledged, "acknowledged up to {}, found up to {end}", oracle.acknowledged);
    let found: Vec<_> = walk_back(log, recovery.end, Lsn(start))
        .iter()
        .filter(|record| record.kind() == RecordKind::Group)
        .map(|record| (record.lsn().0, record.changes().next().unwrap().page.0))
        .collect();
    let expected: Vec<_> =
        oracle.appended.iter().copied().filter(|&(lsn, _)| lsn > start && lsn <= end).collect();
    assert_eq!(found, expected, "exactly the appended groups up to the end");
    let mut last = BTreeMap::new();
    last.extend(expected.iter().map(|&(lsn, page)| (page, lsn)));
    for (page, lsn) in last.into_iter().filter(|(_, lsn)| *lsn > redo_from) {
        assert_eq!(recovery.redo.get(PageId(page)), Some(Lsn(lsn)));
    }
}

fn unless_crashed<T>(sim: &SimDisk, result: Result<T>) -> Option<T> {
    match result {
        Err(error) if !sim.is_crashed() => panic!("{error}"),
        result => result.ok().filter(|_| !sim.is_crashed()),
    }
}

fn lives_and_deaths(seed: u64) {
    let mut random = Generator::new(seed);
    let mut sim = SimDisk::new(seed);
    let mut incarnation = 1;
    let mut log = create(&sim);
    let mut start = 0;
    for life in 0..4 {
        sim.crash_after(5 + random.below(if life == 0 { 400 } else { 120 }));
        let mut oracle = live(&log, seed, life);
        sim = sim.crash_image(random.next_u64());
        // Crashes inside the restart, until one gets through.
        log = loop {
            if random.one_in(3) {
                sim.crash_after(1 + random.below(20));
            }
            let redo_from = start.max(oracle.kept_from);
            let result = recover_from(&sim, redo_from, incarnation);
            sim.cancel_crash();
            if let Some((recovery, recovered)) = unless_crashed(&sim, result) {
                check(&recovery, &recovered, &oracle, redo_from);
                // From here on the log ends here, whatever the next attempt finds.
                oracle.appended.retain(|&(lsn, _)| lsn <= recovery.end.0);
                incarnation += 1;
                if random.one_in(2) {
                    sim.crash_after(1 + random.below(40));
                }
                let result = recovered.start_writing(incarnation);
                sim.cancel_crash();
                if unless_crashed(&sim, result).is_some() {
                    break recovered;
                }
            }
            sim = sim.crash_image(random.next_u64());
        };
        start = log.end().0;
        log.set_keep_from(Lsn(start));
    }
}

#[test]
fn every_acknowledged_flush_survives_every_crash() {
    for seed in 0..60 {
        Simulation::new(seed).run(move || lives_and_deaths(seed)).unwrap();
    }
}

#[test]
fn a_crash_at_any_step_of_a_restart_is_just_another_crash() {
    for policy in CrashPolicy::ALL {
        for steps in 1.. {
            let sim = SimDisk::new(steps);
            let log = create(&sim);
            let mut load = Load::new(steps);
            while log.end().0 < SEGMENT + 40_000 {
                load.step(&log, 700).unwrap();
            }
            log.flush_background().unwrap();
            let (end, open) = (log.end(), log.open_transactions());
            let mut image = sim.crash_image_with(policy, steps);
            image.crash_after(steps);
            let result = recover_from(&image, 0, 1).and_then(|(_, log)| log.start_writing(2));
            if result.is_ok() && !image.is_crashed() {
                break;
            }
            image = image.crash_image_with(policy, steps + 1);
            let (recovery, log) = recover_from(&image, 0, 2).unwrap();
            // The end, or behind the filler or the footer that the first attempt got to the device.
            assert!(recovery.end >= end && recovery.end.0 <= 2 * SEGMENT);
            assert_eq!((recovery.incarnation, &recovery.open_transactions), (1, &open));
            let last = load.lsns.iter().map(|(&page, &lsn)| (PageId(page), Lsn(lsn)));
            assert!(
                recovery.redo.entries().iter().map(|entry| (entry.page, entry.last)).eq(last),
                "the same pages"
            );
            log.start_writing(3).unwrap();
            assert_eq!(log.end().0, 2 * SEGMENT);
            let lsn = log.append(&group(&[(1, 0)], 10)).unwrap();
            log.flush_to(lsn).unwrap();
            let (recovery, _) = recover_from(&image, 0, 3).unwrap();
            assert_eq!((recovery.end, recovery.incarnation), (lsn, 3));
        }
    }
}

#[test]
fn a_footer_is_not_trusted_while_its_segment_may_have_holes() {
    let run = || {
        let sim = SimDisk::new(1);
        let options = LogOptions { ring_size: 4 * SEGMENT, ..options() };
        let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
        log.prepare().unwrap();
        while log.end().0 < SEGMENT + 100_000 {
            log.append(&group(&[(1, 0)], 900)).unwrap();
        }
        // The write of the first segment takes very long; somebody else waits for the second one.
        sim.set_faults(Faults { latency_spike: Chance::At(vec![1]), ..Faults::default() });
        let threads: Vec<_> = [Lsn(5000), log.end()]
            .into_iter()
            .map(|lsn| {
                let log = log.clone();
                thread::spawn("committer", move || log.flush_to(lsn).unwrap())
            })
            .collect();
        clock::sleep(Duration::from_millis(3));
        assert_eq!(log.durable(), Lsn::ZERO);
        let images: Vec<_> = (0..60).map(|seed| sim.peek_crash(Some(CrashPolicy::PerSector), seed)).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        for image in images {
            let (recovery, recovered) = recover(&image);
            walk_back(&recovered, recovery.end, Lsn::ZERO);
        }
    };
    Simulation::new(1).run(run).unwrap();
}

#[test]
fn a_full_device_fails_the_append_and_nothing_else() {
    let settings = Settings { capacity_bytes: Some(3 * SEGMENT), ..Settings::default() };
    let sim = SimDisk::with_settings(1, settings);
    let log = create(&sim);
    let mut load = Load::new(1);
    let error = loop {
        if let Err(error) = load.step(&log, 700) {
            break error;
        }
    };
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    log.flush_background().unwrap();
    log.set_keep_from(log.durable());
    load.step(&log, 700).expect("an old segment is reused");
    log.flush_background().unwrap();
    let (recovery, _) = recover_from(&sim.crash_image(1), log.durable().0, 1).unwrap();
    assert_eq!(recovery.end, log.end());
}
