//! Appending, flushing, reading back.

use super::*;
use crate::work::Lender;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[test]
fn what_is_appended_is_read_back_forwards_and_backwards() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut group = group(&[(5, 0), (9, 40)], 13);
    group.set_txn(TxnId(3), TxnEvent::Change { undo: 99 });
    let first = log.append(&group).unwrap();
    let note = log.append_note(b"a note").unwrap();
    group.clear();
    group.set_txn(TxnId(3), TxnEvent::Commit);
    let last = log.append(&group).unwrap();
    assert_eq!((log.durable(), log.end()), (Lsn(0), last));
    let reader = log.reader(1 << 18).unwrap();
    assert!(matches!(reader.read_at(last), Err(Error::Invalid(_))), "only durable records are read");
    log.flush_to(last).unwrap();
    assert_eq!(log.durable(), last);

    let record = reader.read_at(first).unwrap();
    assert_eq!(record.txn(), Some(TxnInfo { id: TxnId(3), event: TxnEvent::Change { undo: 99 } }));
    let changes: Vec<_> = record.changes().collect();
    assert_eq!(changes.len(), 2);
    assert_eq!((changes[1].page, changes[1].previous, changes[1].kind), (PageId(9), Lsn(40), 3));
    assert_eq!(changes[0].bytes, [5; 13]);
    assert_eq!(reader.read_at(note).unwrap().payload(), b"a note");
    let all = walk_back(&log, last, Lsn::ZERO);
    assert_eq!(all.iter().map(Record::lsn).collect::<Vec<_>>(), [first, note, last]);
    for wrong in [first.0 - 8, first.0 + 8, first.0 + 1, 4096, 0] {
        assert!(matches!(reader.read_at(Lsn(wrong)), Err(Error::Damaged(_))), "{wrong}");
    }
}

#[test]
fn a_record_too_long_is_refused_and_the_longest_fits() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let longest = options().max_record_len();
    let len = (0..longest).rfind(|&len| group(&[(1, 0)], len).record_len() <= longest).unwrap();
    let fitting = group(&[(1, 0)], len);
    assert_eq!(fitting.record_len(), longest);
    for _ in 0..50 {
        log.append(&fitting).unwrap();
    }
    assert!(matches!(log.append(&group(&[(1, 0)], len + 1)), Err(Error::Invalid(_))));
    let (end, _) = log.close().unwrap();
    let records = walk_back(&log, end, Lsn::ZERO);
    let groups = records.iter().filter(|r| r.kind() == RecordKind::Group).count();
    assert_eq!(groups, 50);
    assert!(matches!(log.append(&fitting), Err(Error::Invalid(_))), "a closed log takes nothing");
}

#[test]
fn a_segment_ends_before_its_footer_outgrows_the_ring() {
    for (len, changes) in [(0, 500), (3, 500), (3, 1500), (0, 2000)] {
        let sim = SimDisk::new(len as u64);
        let log = create(&sim);
        let mut page = 0;
        let mut lsns = Vec::new();
        while log.end().0 < 3 * SEGMENT {
            page += changes;
            let pages: Vec<_> = (page..page + changes).map(|page| (page, 0)).collect();
            lsns.push(log.append(&group(&pages, len)).unwrap());
        }
        let (end, _) = log.close().unwrap();
        let groups = walk_back(&log, end, Lsn::ZERO);
        let groups = groups.iter().filter(|r| r.kind() == RecordKind::Group);
        assert_eq!(groups.map(Record::lsn).collect::<Vec<_>>(), lsns);
        let (recovery, _) = recover(&sim);
        assert_eq!((recovery.end, recovery.redo.len() as u64), (end, page));
    }
}

#[test]
fn a_group_of_too_many_changes_is_refused() {
    let log = create(&SimDisk::new(1));
    let most = options().max_changes() as u64;
    let pages: Vec<_> = (1..most + 2).map(|page| (page, 0)).collect();
    let refused = log.append(&group(&pages, 0)).unwrap_err().to_string();
    assert!(refused.contains("2731 changes; at most 2730"), "{refused}");
    log.append(&group(&pages[1..], 0)).unwrap();
}

#[test]
fn ring_and_segments_wrap_and_footers_equal_a_rescan() {
    for seed in 0..4 {
        let sim = SimDisk::new(seed);
        let log = create(&sim);
        let mut load = Load::new(seed);
        let mut lsns = Vec::new();
        while log.end().0 < 9 * SEGMENT / 2 {
            let lsn = load.step(&log, [100, 3000, 14_000][seed as usize % 3]).unwrap();
            lsns.push(lsn);
            if load.random.one_in(10) {
                log.flush_commit(lsn).unwrap();
            }
        }
        let (end, _) = log.close().unwrap();
        let records = walk_back(&log, end, Lsn::ZERO);
        let groups: Vec<_> = records.iter().filter(|r| r.kind() == RecordKind::Group).collect();
        assert_eq!(groups.iter().map(|r| r.lsn()).collect::<Vec<_>>(), lsns);
        let (mut model, mut all) = (Model::default(), Model::default());
        for record in &records {
            model.apply(record);
            all.apply(record);
            if record.kind() == RecordKind::Footer {
                assert_eq!(record.lsn().0 % SEGMENT, 0);
                let footer = log.footer(record.start(), None).unwrap().unwrap();
                assert!(!footer.crashed);
                model.agrees_with(&footer);
                model.next_segment();
            }
        }
        assert_eq!(log.footer(end, None).unwrap(), None);
        let (recovery, _) = recover(&sim);
        assert_eq!((recovery.end, recovery.footers_read, recovery.incarnation), (end, 4, 1));
        assert_eq!(recovery.open_transactions, model.open());
        assert_eq!((recovery.highest_txn.0, recovery.highest_commit.0), (model.highest, model.commit));
        let redo: Vec<_> = recovery.redo.entries().iter().map(|entry| (entry.page.0, entry.last.0)).collect();
        assert_eq!(redo, all.pages.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_pages_history_is_walked_alone() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut lsns = vec![0];
    for i in 0..300u64 {
        let last = *lsns.last().unwrap();
        let mut builder = GroupBuilder::new();
        builder.change_bytes(PageId(8), Lsn(last), 1, i == 100, &i.to_le_bytes());
        builder.change_bytes(PageId(9), Lsn(0), 1, false, &[1; 900]);
        builder.change_bytes(PageId(8), Lsn(last), 2, false, &[2]);
        lsns.push(log.append(&builder).unwrap().0);
    }
    log.close().unwrap();
    let reader = log.reader(1 << 18).unwrap();
    let chain = |last: usize, have: u64| chain_of(&reader, PageId(8), Lsn(lsns[last]), Lsn(have));
    let changes = chain(300, lsns[250]).unwrap();
    assert_eq!(changes.len(), 100);
    assert_eq!((changes[0].lsn, changes[0].kind), (Lsn(lsns[251]), 1));
    assert_eq!((changes[99].lsn, changes[99].kind), (Lsn(lsns[300]), 2));
    let whole = chain(300, 0).unwrap();
    assert!(whole[0].init && whole.len() == 400, "the chain begins with the change that needs no page");
    assert_eq!(chain(50, 0).unwrap().len(), 100);
    assert_eq!(chain(50, lsns[50]).unwrap(), []);
    for wrong in [chain(300, lsns[250] + 8), chain_of(&reader, PageId(7), Lsn(lsns[9]), Lsn(0))] {
        assert!(matches!(wrong, Err(Error::Damaged(_))), "{wrong:?}");
    }
}

/// Runs `writers` threads of `commits` commits each; gives the virtual time taken and the writes done.
fn commit_storm(seed: u64, writers: u64, commits: u64, in_flight: usize) -> (u64, u64) {
    let run = move || {
        let latency = Settings { write_latency_us: 300..=300, ..Settings::default() };
        let sim = SimDisk::with_settings(seed, latency);
        let options = LogOptions { max_in_flight: in_flight, ..options() };
        let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
        let start = clock::now();
        let writes = || sim.stats().counter(Class::Commit, gannet_io::stats::Operation::Write);
        let before = writes().requests.load(SeqCst);
        let total = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..writers)
            .map(|i| {
                let (log, total) = (log.clone(), Arc::clone(&total));
                thread::spawn(&format!("writer {i}"), move || {
                    for _ in 0..commits {
                        let lsn = log.append(&group(&[(i + 1, 0)], 60)).unwrap();
                        log.flush_commit(lsn).unwrap();
                        assert!(log.durable() >= lsn);
                        total.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let taken = clock::now() - start;
        let done = writes().requests.load(SeqCst) - before;
        let end = log.end();
        let (recovery, recovered) = recover(&sim);
        assert_eq!((recovery.end, total.load(SeqCst)), (end, writers * commits));
        let records = walk_back(&recovered, end, Lsn::ZERO);
        let groups = records.iter().filter(|r| r.kind() == RecordKind::Group).count() as u64;
        assert_eq!(groups, writers * commits);
        (taken.as_micros() as u64, done)
    };
    Simulation::new(seed).run(run).unwrap()
}

#[test]
fn sixteen_committers_share_writes() {
    let (alone_us, alone_writes) = commit_storm(1, 1, 64, 2);
    assert_eq!(alone_writes, 64, "a single committer writes once a commit");
    for seed in 0..6 {
        for in_flight in [1, 2, 4] {
            let (together_us, writes) = commit_storm(seed, 16, 64, in_flight);
            let ratio = 16.0 * alone_us as f64 / together_us as f64;
            assert!(ratio >= 12.0, "{in_flight} in flight: {ratio:.1} times the rate in {writes} writes");
        }
    }
}

/// The longest of the last ten waits of a committer whose companions have stopped, in microseconds of virtual time.
fn wait_of_the_last_one(seed: u64, companions: u64) -> u64 {
    let run = move || {
        let latency = Settings { write_latency_us: 300..=300, ..Settings::default() };
        let sim = SimDisk::with_settings(seed, latency);
        let log = create(&sim);
        let commit = |log: &Log| {
            let lsn = log.append(&group(&[(1, 0)], 60)).unwrap();
            let start = clock::now();
            log.flush_commit(lsn).unwrap();
            start.elapsed().as_micros() as u64
        };
        let threads: Vec<_> = (0..companions)
            .map(|i| {
                let log = log.clone();
                thread::spawn(&format!("companion {i}"), move || {
                    for _ in 0..20 {
                        commit(&log);
                    }
                })
            })
            .collect();
        let waits: Vec<u64> = (0..60).map(|_| commit(&log)).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // Nobody waits for long even when it is in vain.
        assert!(waits.iter().all(|&wait| wait < 300 * 6), "{waits:?}");
        *waits[50..].iter().max().unwrap()
    };
    Simulation::new(seed).run(run).unwrap()
}

#[test]
fn who_is_left_alone_waits_for_nobody() {
    for seed in 0..20 {
        for companions in [1, 2, 15] {
            let wait = wait_of_the_last_one(seed, companions);
            assert!(wait <= 320, "seed {seed}, after {companions} companions: {wait} us for a write of 300");
        }
    }
}

/// How many of 2000 writes' time a committer uses who never pauses, beside another one who pauses for two and a half.
fn writes_beside_a_slow_one(seed: u64) -> u64 {
    let run = move || {
        let latency = Settings { write_latency_us: 300..=300, ..Settings::default() };
        let sim = SimDisk::with_settings(seed, latency);
        let log = create(&sim);
        let end = clock::now() + Duration::from_micros(2000 * 300);
        let slow = {
            let log = log.clone();
            thread::spawn("slow", move || {
                while clock::now() < end {
                    log.flush_commit(log.append(&group(&[(2, 0)], 60)).unwrap()).unwrap();
                    clock::sleep(Duration::from_micros(750));
                }
            })
        };
        let mut commits = 0;
        while clock::now() < end {
            log.flush_commit(log.append(&group(&[(1, 0)], 60)).unwrap()).unwrap();
            commits += 1;
            // The work between two commits.
            clock::sleep(Duration::from_micros(15));
        }
        slow.join().unwrap();
        commits
    };
    Simulation::new(seed).run(run).unwrap()
}

#[test]
fn who_does_not_pause_hardly_waits_for_one_who_does() {
    for seed in 0..5 {
        let commits = writes_beside_a_slow_one(seed);
        assert!(commits >= 1300, "{commits} commits; with writes begun at once it would be about 1450");
    }
}

/// Committers at odd times, others who are in a hurry, and ranges that take several writes: everybody comes to an end, and
/// soon.
#[test]
fn no_committer_is_forgotten() {
    for seed in 0..200 {
        let in_flight = [1, 2, 3][seed as usize % 3];
        let run = move || {
            let latency = Settings { write_latency_us: 50..=2000, ..Settings::default() };
            let sim = SimDisk::with_settings(seed, latency);
            let options = LogOptions { max_in_flight: in_flight, ..options() };
            let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
            let threads: Vec<_> = (0..6u64)
                .map(|i| {
                    let log = log.clone();
                    thread::spawn(&format!("writer {i}"), move || {
                        let mut random = Generator::new(seed * 8 + i);
                        for _ in 0..12 {
                            clock::sleep(Duration::from_micros(random.below(1 + 300 * i)));
                            let size = if random.below(4) == 0 { 7000 } else { 60 };
                            let mut lsn = log.append(&group(&[(i + 1, 0)], size)).unwrap();
                            for _ in 0..random.below(1 + i * 4) {
                                lsn = log.append(&group(&[(i + 1, lsn.0)], size)).unwrap();
                            }
                            let start = clock::now();
                            match random.below(3) {
                                0 => log.flush_to(lsn).unwrap(),
                                1 => log.flush_to(log.end()).unwrap(),
                                _ => log.flush_commit(lsn).unwrap(),
                            }
                            assert!(log.durable() >= lsn);
                            assert!(start.elapsed() < Duration::from_millis(40), "{:?}", start.elapsed());
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        };
        Simulation::new(seed).run(run).unwrap();
    }
}

#[test]
fn a_full_ring_makes_the_appender_flush() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let ring = options().ring_size;
    for _ in 0..2000 {
        log.append(&group(&[(1, 0)], 500)).unwrap();
        // `durable` is the end of a whole record: the ring may be released up to a piece further.
        assert!(log.end().0 - (log.durable().0 & !4095) <= ring + 8192);
    }
    assert!(log.durable().0 > 0);
}

#[test]
fn the_flusher_flushes_what_nobody_waits_for() {
    let run = || {
        let sim = SimDisk::new(1);
        let log = create(&sim);
        let max_delay = Duration::from_millis(10);
        let flusher = log.start_flusher(max_delay);
        for i in 0..20u64 {
            let lsn = log.append(&group(&[(1, 0)], 50)).unwrap();
            let appended = clock::now();
            while log.durable() < lsn {
                clock::sleep(Duration::from_micros(100));
            }
            assert!(clock::now() - appended <= max_delay);
            clock::sleep(Duration::from_millis(i));
        }
        drop(flusher);
    };
    Simulation::new(5).run(run).unwrap();
}

#[test]
fn a_failed_write_poisons_the_log_for_everybody() {
    for seed in 0..8 {
        let run = move || {
            let sim = SimDisk::new(seed);
            let log = create(&sim);
            let faults = Faults { write_error: Chance::At(vec![10]), ..Faults::default() };
            sim.set_faults(faults);
            let threads: Vec<_> = (0..6)
                .map(|i| {
                    let log = log.clone();
                    thread::spawn(&format!("writer {i}"), move || {
                        loop {
                            let result = log
                                .append(&group(&[(i + 1, 0)], 60))
                                .and_then(|lsn| log.flush_commit(lsn).map(|()| lsn));
                            if let Err(error) = result {
                                return error;
                            }
                        }
                    })
                })
                .collect();
            let path = format!("{:?}", segment_path(0));
            for thread in threads {
                match thread.join().unwrap() {
                    Error::Poisoned(cause) => assert!(cause.contains(&path), "{cause}"),
                    other => panic!("{other}"),
                }
            }
            let durable = log.durable();
            assert!(matches!(log.append(&group(&[(1, 0)], 1)), Err(Error::Poisoned(_))));
            assert!(matches!(log.flush_background(), Err(Error::Poisoned(_))));
            log.flush_to(durable).unwrap();
            let (recovery, _) = recover(&sim.crash_image(seed));
            assert!(recovery.end >= durable);
        };
        Simulation::new(seed).run(run).unwrap();
    }
}

#[test]
fn memory_is_charged_and_given_back() {
    let sim = SimDisk::new(1);
    let budget = budget();
    let log = Log::create(&disk_of(&sim), folder(), &options(), Lsn::ZERO, 1, &budget).unwrap();
    let at_rest = budget.used();
    assert!(at_rest >= options().ring_size);
    let reader = log.reader(1 << 20).unwrap();
    assert_eq!(budget.used(), at_rest + (1 << 20));
    let full = budget.charge(Purpose::Pool, budget.limit() - budget.used()).unwrap();
    assert!(matches!(log.reader(1 << 20), Err(Error::Memory(_))));
    // Also without any memory left the log grows, by new segments if need be.
    let mut page = 0;
    while log.end().0 < 4 * options().segment_size {
        page += 1;
        log.append(&group(&[(page, 0)], 0)).unwrap();
        assert_eq!(budget.used(), budget.limit());
    }
    log.flush_to(log.end()).unwrap();
    // A checkpoint reads footers, for which no frames can make room; who else does so is refused where none do.
    let mut memory = Lender::new(budget.clone()).memory(Purpose::Log, 0).unwrap();
    assert!(matches!(log.footer(Lsn(SEGMENT), Some(&mut memory)), Err(Error::Memory(_))));
    assert!(!log.footer(Lsn(SEGMENT), None).unwrap().unwrap().pages.is_empty());
    drop(full);
    log.footer(Lsn(SEGMENT), Some(&mut memory)).unwrap().unwrap();
    assert!(memory.bytes() > 0);
    drop((log, reader, memory));
    assert_eq!(budget.used(), 0);
}
