//! Operators where memory ends: they spill with what is kept for that, and hold no more than they may.

use super::*;
use crate::exec::memory::Memory;
use crate::logical::JoinKind;
use gannet_base::memory::Purpose;
use gannet_store::WorkMemory;

/// Takes all of the budget but `free` bytes.
fn all_but(ground: &Ground, free: u64) -> WorkMemory {
    let mut taken = ground.engine.memory(Purpose::Sessions, 0).unwrap();
    for step in [1 << 20, 1 << 12, 1 << 8] {
        while taken.grow(step).is_ok() {}
    }
    taken.shrink_to(taken.bytes() - free);
    taken
}

/// The most that operators held at a time.
fn peak(ground: &Ground) -> u64 {
    ground.engine.budget().peak_for(Purpose::Work)
}

fn texts(count: usize, len: usize) -> Vec<Vec<Value>> {
    (0..count).map(|row| vec![Value::text(format!("{:0len$}", row * 7919 % count))]).collect()
}

#[test]
fn sorters_that_have_no_room_beside_each_other_spill() {
    let ground = Ground::new();
    let rows = texts(8000, 150);
    let call = AggregateExpr { distinct: true, ..aggregates::call("count", &[(column(0), Type::Text)]) };
    let counted = group(values(&rows), Grouping::Single, Vec::new(), vec![call; 24]);
    let _others = all_but(&ground, 6 << 20);
    let counts = ground.run(counted).unwrap();
    assert_eq!(counts, [vec![int(8000); 24]]);
    assert!(ground.engine.temp_stats().files > 20, "{:?}", ground.engine.temp_stats());
}

#[test]
fn whoever_comes_when_others_hold_all_they_could_get_runs_and_spills() {
    let ground = Ground::new();
    let others: Vec<Memory> = ground.environment(u64::MAX).run(&[], |context| {
        let hold = |_| {
            let (mut memory, mut bytes) = (Memory::default(), 1 << 10);
            while memory.reserve(context, bytes).unwrap() {
                bytes += 1 << 10;
            }
            memory
        };
        (0..100).map(hold).collect()
    });
    let rows = random_rows(1, 3000, 3000);
    let sorted = sort(values(&rows), vec![by(2, false, false)], 0, None);
    assert_eq!(ground.run(sorted).unwrap().len(), 3000);
    let (left_keys, right_keys) = (vec![column(0)], vec![column(0)]);
    let (left, right) = (Box::new(values(&rows)), Box::new(values(&rows)));
    let joined = Node::HashJoin { kind: JoinKind::Semi, left, right, left_keys, right_keys, residual: None };
    assert!(ground.run(plan(joined, 3)).unwrap().len() > 2500);
    let grouped = group(values(&rows), Grouping::Hash, vec![column(2)], Vec::new());
    assert!(ground.run(grouped).unwrap().len() > 2500);
    let both = set(SetOperation::Intersect, true, values(&rows), values(&rows));
    assert_eq!(ground.run(both).unwrap().len(), 3000);
    assert!(ground.engine.temp_stats().files > 10, "{:?}", ground.engine.temp_stats());
    drop(others);
    assert_eq!(ground.work_memory(), 0);
}

#[test]
fn what_comes_after_the_spill_keeps_to_the_limit_too() {
    let ground = Ground::new();
    let rows = random_rows(2, 12_000, 1 << 40);
    let sorted = sort(values(&rows), vec![by(0, true, false), by(1, false, false)], 0, None);
    assert_eq!(ground.run_with(statement(sorted), TINY, BATCH_ROWS).unwrap().len(), rows.len());
    // Four readers with three of the smallest blocks each, a writer, and the rows.
    assert!(peak(&ground) <= (4 * 3 + 3) * (16 << 10) + 2 * TINY, "{}", peak(&ground));
}

#[test]
fn the_right_parts_of_a_join_or_set_hold_no_blocks_while_the_left_side_is_divided() {
    let rows = random_rows(3, 6000, 6000);
    let (left_keys, right_keys) = (vec![column(0)], vec![column(0)]);
    let (left, right) = (Box::new(values(&rows)), Box::new(values(&rows)));
    let joined = Node::HashJoin { kind: JoinKind::Inner, left, right, left_keys, right_keys, residual: None };
    for plan in [plan(joined, 6), set(SetOperation::Except, false, values(&rows), values(&rows))] {
        let ground = Ground::new();
        ground.run_with(statement(plan), TINY, BATCH_ROWS).unwrap();
        // The writers of four parts have three blocks each, of one side at a time.
        assert!(peak(&ground) <= (4 * 3 + 2) * (16 << 10) + 2 * TINY, "{}", peak(&ground));
    }
}
