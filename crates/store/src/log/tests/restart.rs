//! Clean shutdown, recycling, lives of the log.

use super::*;
use gannet_io::stats::Operation;

#[test]
fn an_empty_log_recovers_empty() {
    let sim = SimDisk::new(1);
    drop(create(&sim));
    let sim = sim.crash_image(3);
    let (recovery, log) = recover(&sim);
    assert_eq!((recovery.end, recovery.incarnation, recovery.redo.len()), (Lsn(0), 0, 0));
    assert!(matches!(log.append(&group(&[(1, 0)], 1)), Err(Error::Invalid(_))), "not started yet");
    log.start_writing(2).unwrap();
    assert!(matches!(log.start_writing(3), Err(Error::Invalid(_))));
    let lsn = log.append(&group(&[(1, 0)], 1)).unwrap();
    log.flush_to(lsn).unwrap();
    assert_eq!(recover_from(&sim, 0, 2).unwrap().0.end, lsn);
}

/// The error's text, or nothing.
trait ErrorText {
    fn unwrap_err_text(self) -> String;
}

impl<T> ErrorText for Result<T> {
    fn unwrap_err_text(self) -> String {
        self.err().map_or(String::new(), |error| error.to_string())
    }
}

#[test]
fn after_a_clean_shutdown_the_folder_may_go() {
    let sim = SimDisk::new(1);
    let (disk, budget) = (disk_of(&sim), budget());
    let log = create(&sim);
    let mut load = Load::new(1);
    while log.end().0 < SEGMENT * 3 / 2 {
        load.step(&log, 500).unwrap();
    }
    let (end, _) = log.close().unwrap();
    drop(log);
    let newest =
        || LogFiles::find(&disk, folder(), &options(), end).unwrap().unwrap().newest_segment().unwrap();
    assert_eq!(newest(), Some((1, 1)));
    let again = Log::create(&disk, folder(), &options(), end, 2, &budget);
    assert!(again.unwrap_err_text().contains("holds a log"));
    Log::remove_all(&disk, folder()).unwrap();
    assert_eq!(newest(), None);
    let log = Log::create(&disk, folder(), &options(), end, 2, &budget).unwrap();
    assert_eq!(log.end(), Lsn(2 * SEGMENT), "at the next segment boundary");
    let lsn = log.append(&group(&[(1, 0)], 9)).unwrap();
    log.flush_to(lsn).unwrap();
    let (recovery, _) = recover_from(&sim.crash_image(1), 2 * SEGMENT, 2).unwrap();
    assert_eq!((recovery.end, recovery.incarnation), (lsn, 2));
}

#[test]
fn segments_are_recycled_and_no_more_are_kept_than_needed() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    let mut most = 0;
    while log.end().0 < 20 * SEGMENT {
        let lsn = load.step(&log, 2000).unwrap();
        if load.random.one_in(50) {
            log.flush_to(lsn).unwrap();
            log.set_keep_from(Lsn(lsn.0.saturating_sub(SEGMENT)));
            log.prepare().unwrap();
            most = most.max(sim.files().len());
            assert!(log.used_bytes() <= SEGMENT + 20_000);
        }
    }
    // One before the first needed, up to two needed, one in use, one in reserve.
    assert!(most <= 5, "{most} files");
    let mut model = Model::default();
    let (end, _) = log.close().unwrap();
    let keep = Lsn(end.0 - SEGMENT);
    let kept = Lsn(keep.0 / SEGMENT * SEGMENT);
    for record in walk_back(&log, end, kept) {
        if record.lsn() > keep {
            model.apply(&record);
        }
    }
    // Transactions that began in recycled segments are still known, from the footer kept for that.
    let (recovery, _) = recover_from(&sim, keep.0, 1).unwrap();
    assert_eq!(recovery.end, end);
    let mut open: Vec<_> = load.open.clone();
    open.sort_unstable();
    assert_eq!(recovery.open_transactions.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), open);
    let redo: Vec<_> = recovery.redo.entries().iter().map(|entry| (entry.page.0, entry.last.0)).collect();
    assert_eq!(redo, model.pages.into_iter().collect::<Vec<_>>());
}

/// Appends so much, and lets go of everything but the last segment.
fn append_and_let_go(log: &Log, load: &mut Load, until: u64) {
    while log.end().0 < until {
        load.step(log, 2000).unwrap();
    }
    log.flush_to(log.end()).unwrap();
    log.set_keep_from(Lsn(log.end().0.saturating_sub(SEGMENT)));
}

#[test]
fn a_spare_file_that_somebody_has_removed_or_that_cannot_be_had_is_done_without() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    append_and_let_go(&log, &mut load, 4 * SEGMENT);
    let spare = segment_path(log.inner.segments.kept_from() - 1);
    assert!(sim.exists(&spare).unwrap());
    sim.remove(&spare).unwrap();
    log.prepare().unwrap();
    append_and_let_go(&log, &mut load, 8 * SEGMENT);
    // Neither renamed nor removed.
    let faults =
        Faults { name_error: Chance::At(vec![1, 2, 3]), only: Some(".log".to_owned()), ..Faults::default() };
    sim.set_faults(faults);
    let mut turns = 0;
    while sim.injected().len() < 3 {
        log.prepare().unwrap();
        let until = log.end().0 + SEGMENT;
        append_and_let_go(&log, &mut load, until);
        turns += 1;
        assert!(turns < 50, "{:?}", sim.injected());
    }
    sim.set_faults(Faults::default());
    let end = log.end();
    log.flush_to(end).unwrap();
    let keep = Lsn(end.0 - SEGMENT);
    let (recovery, _) = recover_from(&sim.crash_image(1), keep.0, 1).unwrap();
    assert_eq!(recovery.end, end);
}

#[test]
fn a_folder_that_could_not_be_synced_is_not_believed_afterwards() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    append_and_let_go(&log, &mut load, 2 * SEGMENT);
    let folder = folder().to_str().unwrap().to_owned();
    sim.set_faults(Faults { sync_error: Chance::At(vec![1]), only: Some(folder), ..Faults::default() });
    let mut failures = 0;
    for _ in 0..20 {
        failures += usize::from(log.prepare().is_err());
        let until = log.end().0 + SEGMENT / 2;
        while log.end().0 < until && load.step(&log, 2000).is_ok() {}
    }
    assert_eq!(sim.injected().len(), 1);
    assert!(failures > 1, "it was told of once, and failed for good");
    let refused = log.prepare();
    assert!(matches!(refused, Err(Error::Poisoned(_))), "{refused:?}");
}

#[test]
fn too_many_open_files_were_a_device_that_has_failed() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    append_and_let_go(&log, &mut load, 2 * SEGMENT);
    log.prepare().unwrap();
    let files = sim.list(folder()).unwrap();
    sim.set_faults(Faults { too_many_open: Chance::OneIn(1), ..Faults::default() });
    // The segments that are ready are all written to, but that the last one is not sealed.
    let room = log.room();
    let until = log.end().0 + room;
    while load.step(&log, 2000).is_ok() {
        log.flush_background().unwrap();
    }
    assert!(room > SEGMENT && log.end().0 > until - SEGMENT, "{room}, {} of {until}", log.end().0);
    let refused = log.prepare();
    assert!(matches!(refused, Err(Error::TooManyFiles(_))), "{refused:?}");
    assert_eq!(sim.list(folder()).unwrap(), files, "none was given up for that");
    sim.set_faults(Faults::default());
    log.prepare().unwrap();
    load.step(&log, 2000).unwrap();
    log.flush_background().unwrap();
}

#[test]
fn a_commit_waits_for_no_zeros() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let written = || sim.stats().snapshot().total(Operation::Write).1;
    let before = written();
    let mut load = Load::new(1);
    // Nobody prepares: each new segment is made by somebody who appends.
    while log.end().0 < 4 * SEGMENT {
        load.step(&log, 2000).unwrap();
    }
    let end = log.end();
    log.flush_to(end).unwrap();
    let (of_log, zeros) = (end.0, (written() - before).saturating_sub(end.0));
    assert!(zeros < SEGMENT, "{zeros} bytes beside {of_log} of the log");
    let before = written();
    log.prepare().unwrap();
    assert!(written() - before >= SEGMENT, "who has time fills them");
    let (recovery, _) = recover_from(&sim.crash_image(1), 0, 2).unwrap();
    assert_eq!(recovery.end, end);
}

#[test]
fn a_crashed_segment_is_sealed_and_a_new_life_begins() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(7);
    let mut image = sim;
    let mut log = log;
    let mut ends = Vec::new();
    for life in 1..6 {
        let from = log.end().0;
        while log.end().0 < from + SEGMENT / 3 * life {
            load.step(&log, 300).unwrap();
        }
        log.flush_background().unwrap();
        let before = log.open_transactions();
        image = image.crash_image(life);
        let (recovery, recovered) = recover_from(&image, 0, life as u32).unwrap();
        assert_eq!(recovery.end, log.end());
        assert_eq!((recovery.incarnation, &recovery.open_transactions), (life as u32, &before));
        ends.push(recovery.end);
        assert!(recovered.start_writing(life as u32).is_err(), "a life does not come twice");
        recovered.start_writing(life as u32 + 1).unwrap();
        assert_eq!(recovered.end().0, recovery.end.0.next_multiple_of(SEGMENT));
        let footer = recovered.footer(recovery.end, None).unwrap().unwrap();
        assert!(footer.crashed && footer.incarnation == life as u32);
        assert_eq!(recovered.open_transactions(), before);
        log = recovered;
    }
    let end = log.end();
    let mut model = Model::default();
    let mut all = Model::default();
    for record in walk_back(&log, end, Lsn::ZERO) {
        model.apply(&record);
        all.apply(&record);
        if record.kind() == RecordKind::Footer {
            model.agrees_with(&log.footer(record.start(), None).unwrap().unwrap());
            model.next_segment();
        }
    }
    let reader = log.reader(1 << 20).unwrap();
    for (&page, &last) in &all.pages {
        let chain = chain_of(&reader, PageId(page), Lsn(last), Lsn::ZERO).unwrap();
        assert_eq!(chain.last().unwrap().lsn, Lsn(last));
    }
}

/// A write of the log has failed, and what it wrote is read all the same, though no sync makes it durable any more.
#[test]
fn what_a_failed_write_left_to_be_read_is_durable_before_the_log_goes_on() {
    for (seed, sure) in (0..16).flat_map(|seed| [0, SEGMENT / 4].map(|sure| (seed, sure))) {
        let sim = SimDisk::new(seed);
        let log = create(&sim);
        let append = |log: &Log, until: u64| {
            while log.end().0 < until {
                log.append(&group(&[(1, 0), (2, 0)], 300)).unwrap();
            }
        };
        if sure > 0 {
            append(&log, sure);
            log.flush_background().unwrap();
        }
        let image = sim.peek_crash(Some(CrashPolicy::KeepNone), seed);
        append(&log, sure + SEGMENT / 8);
        log.flush_background().unwrap();
        let (end, seen) = (log.end(), contents(&sim, 0));
        let file = image.open(&segment_path(0), &OpenOptions::read_write()).unwrap();
        let mut buffer = AlignedBuffer::zeroed(seen.len());
        buffer.copy_from_slice(&seen);
        file.write_at(Class::Commit, 0, &buffer, Durability::Cached).unwrap();
        image.set_faults(Faults { sync_error: Chance::At(vec![1]), ..Faults::default() });
        file.sync(Class::Commit).unwrap_err();
        drop(file);
        image.set_faults(Faults::default());
        let (recovery, log) = recover(&image);
        assert_eq!(recovery.end, end);
        log.start_writing(2).unwrap();
        append(&log, SEGMENT + SEGMENT / 4);
        log.flush_background().unwrap();
        let newer = log.end();
        let (recovery, log) =
            recover_from(&image.crash_image_with(CrashPolicy::KeepNone, seed), 0, 2).unwrap();
        assert_eq!(recovery.end, newer);
        let (found, before) = (walk_back(&log, newer, Lsn::ZERO), Lsn(SEGMENT));
        assert!(
            found.iter().any(|record| record.start() < end)
                && found.iter().any(|record| record.start() > before)
        );
    }
}

/// Whoever copies the log breaks off in a filler, too, and goes on behind the last record that is whole.
#[test]
fn a_walk_goes_on_from_what_is_whole_wherever_it_broke_off() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let lsn = log.append(&group(&[(1, 0)], 100)).unwrap();
    log.flush_to(lsn).unwrap();
    let image = sim.crash_image(1);
    let (recovery, recovered) = recover(&image);
    recovered.start_writing(2).unwrap();
    let mut bytes = AlignedBuffer::zeroed(SEGMENT as usize);
    recovered.read_raw(Class::Maintenance, Lsn::ZERO, &mut bytes).unwrap();
    const PIECE: usize = 4000;
    let mut walk = Walk::new(77, SEGMENT, 0, None);
    let mut in_filler = 0;
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        walk.take(piece, &mut |_| Ok(Step::On)).unwrap();
        let there = index * PIECE + piece.len();
        in_filler += u32::from(walk.whole() == recovery.end.0 && there > recovery.end.0 as usize + PIECE);
        let mut again = Walk::new(77, SEGMENT, walk.whole(), walk.whole_crc());
        again.take(&bytes[walk.whole() as usize..], &mut |_| Ok(Step::On)).unwrap();
        assert_eq!(again.whole(), SEGMENT);
    }
    assert!(in_filler > 0 && walk.whole() == SEGMENT);
}

/// A group of which four fill a block.
fn quarter_block() -> GroupBuilder {
    let group = group(&[(4, 0)], 976);
    assert_eq!(group.record_len(), 1024);
    group
}

/// Appends until a group begins in the second segment, with everything flushed.
fn fill_into_second_segment(log: &Log) -> Vec<Lsn> {
    let mut lsns = Vec::new();
    while log.end().0 < SEGMENT + 30_000 {
        lsns.push(log.append(&quarter_block()).unwrap());
    }
    log.flush_background().unwrap();
    lsns
}

#[test]
fn what_a_dead_life_left_behind_the_end_is_never_taken_for_the_log() {
    // The first life is cut in its first segment: of the rest nothing was acknowledged, but it is all on the disk.
    let sim = SimDisk::new(1);
    let options = LogOptions { ring_size: 4 * SEGMENT, ..options() };
    let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
    let lsns = fill_into_second_segment(&log);
    let cut = lsns[3].0 & !4095;
    let end = lsns.iter().rev().find(|lsn| lsn.0 <= cut).unwrap().0;
    overwrite(&sim, 0, cut, &[0; 4096]);
    overwrite(&sim, 0, SEGMENT - 4096, &[0; 4096]);
    // Everything was appended before the first write, so no record claims more than lsn 0 was durable.
    let (recovery, log) = recover(&sim);
    assert_eq!(recovery.end.0, end);
    log.start_writing(2).unwrap();
    drop(log);
    // A crash before the second life wrote anything: its predecessor's second segment verifies, but is dead.
    let (recovery, log) = recover_from(&sim, 0, 2).unwrap();
    assert_eq!(recovery.end.0, SEGMENT);
    assert_eq!(recovery.redo.get(PageId(4)), Some(Lsn(end)));
    log.start_writing(3).unwrap();
    // The third life writes records of the same length over the dead ones: wherever its end is a block's end, a dead
    // record follows at its own right position.
    for (i, dead) in lsns.iter().filter(|lsn| lsn.0 > SEGMENT).take(8).enumerate() {
        let lsn = log.append(&quarter_block()).unwrap();
        assert_eq!(lsn, *dead);
        log.flush_to(lsn).unwrap();
        let (recovery, _) = recover_from(&sim, 0, 3).unwrap();
        assert_eq!((recovery.end, recovery.incarnation), (lsn, 3), "record {i}");
    }
}

/// Appends until the log ends in segment `number`, and prepares it as the background does.
fn fill_up_to(log: &Log, load: &mut Load, number: u64) {
    while log.end().0 < number * SEGMENT {
        load.step(log, 2000).unwrap();
        log.prepare().unwrap();
    }
    log.flush_background().unwrap();
}

/// Bytes of zeros written to new segments so far.
fn bytes_filled(sim: &SimDisk) -> u64 {
    sim.stats().snapshot().counts[Class::Maintenance as usize][Operation::Write as usize].1
}

#[test]
fn who_lets_go_of_many_segments_at_a_time_finds_them_again() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    fill_up_to(&log, &mut load, 8);
    let filled = bytes_filled(&sim);
    for step in 2..40 {
        log.set_keep_from(Lsn(((step - 1) * 8 - 4) * SEGMENT));
        fill_up_to(&log, &mut load, step * 8 - 1);
        fill_up_to(&log, &mut load, step * 8);
    }
    let more = bytes_filled(&sim) - filled;
    // Four remain of each twelve, and the ninth to the twelfth are made once.
    assert!(more <= 6 * SEGMENT, "{more} bytes");
}

#[test]
fn files_of_a_time_of_much_log_go_with_time_and_at_once_where_the_disk_is_full() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let mut load = Load::new(1);
    fill_up_to(&log, &mut load, 40);
    let files = || sim.files().len() as u64;
    let wide = files();
    assert!(wide > 40);
    let mut narrow = wide;
    for number in 41..80 {
        log.set_keep_from(log.durable());
        fill_up_to(&log, &mut load, number);
        assert!(files() <= narrow, "{} files after {narrow}", files());
        narrow = files();
        assert!(number > 41 || narrow > 30, "{narrow} files at once");
    }
    // One before the first needed, that one, one in use, one in reserve.
    assert!(narrow <= 5, "{narrow} files in the end");
    fill_up_to(&log, &mut load, 100);
    log.set_keep_from(log.durable());
    log.prepare().unwrap();
    assert!(files() > 15);
    log.give_up_spares().unwrap();
    assert!(files() <= 4, "{} files", files());
}

/// A log that wants `reserve_segments`, on a device that has room for three segments in all.
fn create_with_room_for_three(reserve_segments: u64) -> (SimDisk, Log) {
    let capacity_bytes = Some(3 * SEGMENT + (16 << 10));
    let sim = SimDisk::with_settings(1, Settings { capacity_bytes, ..Settings::default() });
    let options = LogOptions { reserve_segments, ..options() };
    let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
    (sim, log)
}

#[test]
fn on_a_full_disk_nobody_else_gets_the_file_that_the_log_goes_on_in() {
    let (sim, log) = create_with_room_for_three(2);
    let mut load = Load::new(1);
    while log.end().0 < 2 * SEGMENT + 20_000 {
        // Never room for both reserves.
        let _ = log.prepare();
        load.step(&log, 2000).unwrap();
    }
    log.flush_background().unwrap();
    log.set_keep_from(log.durable());
    log.give_up_spares().unwrap();
    let data = sim.open(Path::new("/data"), &OpenOptions::create_new()).unwrap();
    assert!(data.allocate(0, 128 << 10).is_err(), "that was the room of a segment");
    while log.end().0 < 6 * SEGMENT {
        let _ = log.prepare();
        load.step(&log, 2000).unwrap();
        log.flush_background().unwrap();
        log.set_keep_from(log.durable());
    }
    let (kept, end) = (log.durable(), log.end());
    let sim = sim.crash_image(1);
    let (recovery, log) = recover_from(&sim, kept.0, 1).unwrap();
    assert_eq!(recovery.end, end);
    log.start_writing(2).unwrap();
}

#[test]
fn no_more_files_are_kept_than_the_log_may_take() {
    let sim = SimDisk::new(1);
    let options = LogOptions { recycle_max: 8 * SEGMENT, ..options() };
    let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
    let mut load = Load::new(2);
    fill_up_to(&log, &mut load, 12);
    log.set_keep_from(log.durable());
    log.prepare().unwrap();
    assert_eq!(sim.files().len(), 8);
}

#[test]
fn a_full_disk_takes_what_is_held_only_where_nobody_else_needs_it() {
    let sim = SimDisk::new(1);
    let options = LogOptions { recycle_max: 4 * SEGMENT, ..options() };
    let log = Log::create(&disk_of(&sim), folder(), &options, Lsn::ZERO, 1, &budget()).unwrap();
    let mut load = Load::new(3);
    let (first, mut second) = (log.hold(), log.hold());
    fill_up_to(&log, &mut load, 5);
    let needed = Lsn(2 * SEGMENT + SEGMENT / 2);
    log.set_keep_from(needed);
    second.advance(Lsn(2 * SEGMENT + 4096));
    assert!(first.is_kept() && second.is_kept());
    log.give_up_holds();
    assert_eq!((first.lost(), second.lost()), (Some(Lost::FullDisk), None), "redo needs that segment");
    log.give_up_spares().unwrap();
    assert!(log.segment_header(Lsn(2 * SEGMENT)).unwrap().is_some());
    // Who has lost what he held goes on with what is there (the end of the segment before is needed, too), and one whose log is all there with that.
    let (again, later) = (log.hold_again(first.from()), log.hold_again(Lsn(4 * SEGMENT + 4096)));
    assert_eq!((again.from(), later.from()), (Lsn(SEGMENT), Lsn(4 * SEGMENT + 4096)));
    // Who is too slow is told something else, and it stays what he was told.
    fill_up_to(&log, &mut load, 12);
    log.set_keep_from(log.durable());
    assert_eq!((first.lost(), again.lost()), (Some(Lost::FullDisk), Some(Lost::Late)));
}

#[test]
fn the_rest_of_a_recycled_file_is_not_the_log() {
    let sim = SimDisk::new(1);
    let log = create(&sim);
    let lsns = fill_into_second_segment(&log);
    log.set_keep_from(*lsns.last().unwrap());
    let old = contents(&sim, 0);
    // Segment 0 is kept for its footer; a file of the same bytes stands for a recycled one.
    log.prepare().unwrap();
    overwrite(&sim, 2, 0, &old);
    let (recovery, _) = recover_from(&sim, lsns.last().unwrap().0, 1).unwrap();
    assert_eq!(recovery.end, *lsns.last().unwrap());
    while log.end().0 < 2 * SEGMENT + 20_000 {
        log.append(&quarter_block()).unwrap();
    }
    log.flush_background().unwrap();
    let (recovery, _) = recover_from(&sim, lsns.last().unwrap().0, 1).unwrap();
    assert_eq!(recovery.end, log.end());
}

#[test]
fn on_a_full_disk_what_can_be_recycled_is_ready() {
    let (sim, log) = create_with_room_for_three(4);
    let mut load = Load::new(1);
    let mut turns = 0;
    while log.end().0 < 12 * SEGMENT {
        // Never room for all the reserves; what there is has to do.
        let refused = log.prepare();
        assert!(matches!(refused, Err(Error::NoSpace(_))), "{refused:?}");
        assert!(log.room() > SEGMENT, "the reserve that there is room for is ready");
        let until = log.end().0 + SEGMENT;
        while log.end().0 < until {
            load.step(&log, 2000).unwrap();
        }
        log.flush_background().unwrap();
        log.set_keep_from(log.durable());
        turns += 1;
    }
    assert!(turns >= 10);
    let (kept, end) = (log.durable(), log.end());
    drop(log);
    // The first segment of the next life comes from the same three.
    let sim = sim.crash_image(1);
    let (recovery, log) = recover_from(&sim, kept.0, 1).unwrap();
    assert_eq!(recovery.end, end);
    log.start_writing(2).unwrap();
    log.append(&group(&[(1, 0)], 9)).unwrap();
}
