//! Every prefix, every flipped bit, holes.

use super::*;

/// A small log of `count` groups, each flushed alone; gives their LSNs.
fn small(sim: &SimDisk, count: u64) -> Vec<Lsn> {
    let log = create(sim);
    let mut lsns = Vec::new();
    for i in 0..count {
        let mut group = group(&[(i % 3 + 1, 0), (9, 0)], (i * 7 % 50) as usize);
        if i % 2 == 0 {
            let event = if i % 4 == 0 { TxnEvent::Change { undo: i } } else { TxnEvent::Commit };
            group.set_txn(TxnId(i / 4 + 1), event);
        }
        let lsn = log.append(&group).unwrap();
        log.flush_to(lsn).unwrap();
        lsns.push(lsn);
    }
    lsns
}

/// The first of each record's bytes.
fn starts(lsns: &[Lsn]) -> Vec<u64> {
    std::iter::once(4096).chain(lsns.iter().map(|lsn| lsn.0)).collect()
}

#[test]
fn at_every_byte_the_prefix_of_whole_records_is_recovered() {
    let sim = SimDisk::new(1);
    let lsns = small(&sim, 14);
    let whole = contents(&sim, 0);
    let end = lsns.last().unwrap().0 as usize;
    let image = &whole[..end.next_multiple_of(4096)];
    for keep in 4096..=end {
        let mut cut = image.to_vec();
        cut[keep..].fill(0);
        overwrite(&sim, 0, 0, &cut);
        let (recovery, log) = recover(&sim);
        let expected = starts(&lsns).into_iter().rfind(|&start| start <= keep as u64).unwrap();
        assert_eq!(recovery.end.0, expected, "{keep} bytes");
        if keep % 16 == 0 {
            let records = walk_back(&log, recovery.end, Lsn::ZERO);
            let ends: Vec<_> = records.iter().map(Record::lsn).collect();
            assert_eq!(ends, lsns[..ends.len()]);
        }
    }
}

#[test]
fn zeros_from_any_block_on_are_an_earlier_end_and_a_cut_file_is_damage() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut lsns = vec![];
    for _ in 0..40 {
        lsns.push(log.append(&group(&[(1, 0)], 900)).unwrap());
    }
    log.flush_background().unwrap();
    let file = sim.open(&segment_path(0), &OpenOptions::read_write()).unwrap();
    for blocks in (0..12).rev() {
        for len in [blocks * 4096, blocks * 4096 + 100] {
            file.set_len(len).unwrap();
            // It had its full length before it had its name.
            let Err(Error::Damaged(text)) = recover_from(&sim, 0, 1) else { panic!("{len} bytes are taken") };
            assert!(text.contains("0000000000000000.log") && text.contains(&len.to_string()), "{text}");
        }
        file.set_len(blocks * 4096).unwrap();
        file.set_len(SEGMENT).unwrap();
        let (recovery, _) = recover(&sim);
        let expected = starts(&lsns).into_iter().rfind(|&start| start <= blocks * 4096).unwrap_or(0);
        assert_eq!(recovery.end.0, expected);
    }
}

#[test]
fn every_flipped_bit_is_damage_or_an_earlier_end() {
    let sim = SimDisk::new(1);
    let lsns = small(&sim, 10);
    let whole = contents(&sim, 0);
    let end = lsns.last().unwrap().0 as usize;
    let (mut damaged, mut earlier) = (0, 0);
    let header = (0..64).chain(4080..4096);
    for at in header.chain(4096..end) {
        let block = at / 4096 * 4096;
        for bit in 0..8 {
            let mut bytes = whole[block..block + 4096].to_vec();
            bytes[at - block] ^= 1 << bit;
            overwrite(&sim, 0, block as u64, &bytes);
            match recover_from(&sim, 0, 1) {
                Err(Error::Damaged(text)) => {
                    assert!(text.contains("0000000000000000.log"), "{text}");
                    damaged += 1;
                }
                Err(other) => panic!("byte {at} bit {bit}: {other}"),
                Ok((recovery, log)) => {
                    // A record that fails ends the log; nothing behind it knew that it was durable.
                    assert!(recovery.end.0 <= at as u64 && at >= lsns[lsns.len() - 2].0 as usize);
                    assert!(walk_back(&log, recovery.end, Lsn::ZERO).len() < lsns.len());
                    earlier += 1;
                }
            }
        }
        overwrite(&sim, 0, block as u64, &whole[block..block + 4096]);
    }
    assert!(damaged > 0 && earlier > 0, "{damaged} {earlier}");
}

#[test]
fn a_record_in_two_writes_is_not_claimed_by_the_first() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let lsns: Vec<_> = (0..6).map(|_| log.append(&group(&[(1, 0)], 9000)).unwrap()).collect();
    // One write is a quarter of the ring: it ends inside the third or fourth record.
    log.flush_to(lsns[0]).unwrap();
    let cut = options().ring_size / 4;
    let whole = *lsns.iter().rfind(|lsn| lsn.0 <= cut).unwrap();
    assert!(log.durable() <= whole);
    let last = log.append(&group(&[(1, 0)], 10)).unwrap();
    log.flush_to(last).unwrap();
    // As if the power had gone while the second write was in flight, and only its last sectors had arrived.
    overwrite(&sim, 0, cut, &[0; 4096]);
    assert_eq!(recover(&sim).0.end, whole);
}

/// A log of several segments, each commit flushed alone.
fn several_segments(sim: &SimDisk) -> Log {
    let log = create(sim);
    while log.end().0 < 7 * SEGMENT / 2 {
        let lsn = log.append(&group(&[(1, 0), (2, 0)], 3000)).unwrap();
        log.flush_to(lsn).unwrap();
    }
    log
}

#[test]
fn a_hole_names_the_file_and_what_is_lost() {
    for (number, offset) in
        [(0, 0), (1, 0), (1, SEGMENT - 4096), (2, SEGMENT - 4096), (3, 0), (3, 4096), (3, 40_960)]
    {
        let sim = SimDisk::new(1);
        several_segments(&sim);
        overwrite(&sim, number, offset, &[0; 4096]);
        let Err(Error::Damaged(text)) = recover_from(&sim, 0, 1) else { panic!("{number} {offset}") };
        assert!(text.contains(&format!("{number:016x}.log")), "{number} {offset}: {text}");
    }
    for missing in 0..3 {
        let sim = SimDisk::new(1);
        several_segments(&sim);
        sim.remove(&segment_path(missing)).unwrap();
        let Err(Error::Damaged(text)) = recover_from(&sim, 0, 1) else { panic!("{missing}") };
        assert!(text.contains(&format!("{missing:016x}.log")), "{missing}: {text}");
    }
}

#[test]
fn a_log_that_ends_before_the_redo_position_is_damaged() {
    let sim = SimDisk::new(1);
    let log = several_segments(&sim);
    let end = log.end();
    assert!(recover_from(&sim, end.0, 1).is_ok());
    let Err(Error::Damaged(text)) = recover_from(&sim, end.0 + 8, 1) else { panic!() };
    assert!(text.contains("is lost"), "{text}");
    // The footer before the redo position is needed too.
    sim.remove(&segment_path(2)).unwrap();
    assert!(matches!(recover_from(&sim, end.0, 1), Err(Error::Damaged(_))));
}

#[test]
fn a_data_file_older_than_its_log_is_found() {
    let sim = SimDisk::new(1);
    several_segments(&sim);
    let (_, log) = recover(&sim);
    log.start_writing(2).unwrap();
    let lsn = log.append(&group(&[(1, 0)], 30)).unwrap();
    log.flush_to(lsn).unwrap();
    let Err(Error::Damaged(text)) = recover_from(&sim, 0, 1) else { panic!() };
    assert!(text.contains("incarnation 2"), "{text}");
    assert_eq!(recover_from(&sim, 0, 2).unwrap().0.end, lsn);
}

/// A log that ends inside segment 4, with a reserve behind it, and a checkpoint that let segments be recycled.
fn with_reserve(sim: &SimDisk) -> Log {
    let log = Log::create(
        &disk_of(sim),
        folder(),
        &LogOptions { reserve_segments: 2, ..options() },
        Lsn::ZERO,
        1,
        &budget(),
    )
    .unwrap();
    while log.end().0 < 9 * SEGMENT / 2 {
        let lsn = log.append(&group(&[(1, 0), (2, 0)], 3000)).unwrap();
        log.flush_to(lsn).unwrap();
        if log.end().0 / SEGMENT == 2 {
            log.set_keep_from(Lsn(2 * SEGMENT));
        }
        log.prepare().unwrap();
    }
    assert!(sim.exists(&segment_path(6)).unwrap());
    log
}

fn swap(sim: &SimDisk, one: u64, other: u64) {
    let aside = folder().join("aside");
    sim.rename(&segment_path(one), &aside).unwrap();
    sim.rename(&segment_path(other), &segment_path(one)).unwrap();
    sim.rename(&aside, &segment_path(other)).unwrap();
}

#[test]
fn a_segment_missing_before_its_reserves_is_named() {
    let redo_from = 2 * SEGMENT + 4096;
    for missing in [2, 3, 4] {
        let sim = SimDisk::new(1);
        with_reserve(&sim);
        sim.remove(&segment_path(missing)).unwrap();
        let Err(Error::Damaged(text)) = recover_from(&sim, redo_from, 1) else { panic!("{missing}") };
        assert!(text.contains(&format!("{missing:016x}.log")), "{missing}: {text}");
    }
    // A redo position at the end of a complete segment needs the next one as well.
    let sim = SimDisk::new(1);
    with_reserve(&sim);
    sim.remove(&segment_path(4)).unwrap();
    let Err(Error::Damaged(text)) = recover_from(&sim, 4 * SEGMENT, 1) else { panic!() };
    assert!(text.contains("0000000000000004.log\" is missing"), "{text}");
}

#[test]
fn a_gap_that_a_crash_may_leave_is_none() {
    let sim = SimDisk::new(1);
    let log = with_reserve(&sim);
    // Of two segments being made ready the second rename arrived and the first did not.
    sim.remove(&segment_path(5)).unwrap();
    let (recovery, again) = recover_from(&sim, 2 * SEGMENT + 4096, 1).unwrap();
    assert_eq!(recovery.end, log.end());
    again.start_writing(2).unwrap();
    let lsn = again.append(&group(&[(1, 0)], 30)).unwrap();
    again.flush_to(lsn).unwrap();
    assert_eq!(recover_from(&sim, 2 * SEGMENT + 4096, 2).unwrap().0.end, lsn);
}

#[test]
fn swapped_segments_are_named() {
    let redo_from = 2 * SEGMENT + 4096;
    for (one, other) in [(2, 3), (3, 4), (4, 5), (4, 6), (3, 6), (2, 5), (1, 2), (1, 6)] {
        let sim = SimDisk::new(1);
        let log = with_reserve(&sim);
        assert_eq!(recover_from(&sim, redo_from, 1).unwrap().0.end, log.end());
        swap(&sim, one, other);
        let Err(Error::Damaged(text)) = recover_from(&sim, redo_from, 1) else { panic!("{one} {other}") };
        let named = [one, other].iter().any(|number| text.contains(&format!("{number:016x}.log")));
        assert!(named && text.contains("holds the segment"), "{one} {other}: {text}");
    }
}
