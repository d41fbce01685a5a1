//! Long rows: whatever copy of one is kept, or made on its way, is charged.

use super::*;
use crate::exec::join::buffer::RowGatherer;
use crate::exec::keys::{KeyExprs, MadeKey};
use crate::logical::JoinKind;
use gannet_base::memory::Purpose;

/// Bytes of a row that is long.
const LEN: usize = 5 << 20;
/// Of one that is just long enough.
const SHORTER: usize = 100 << 10;
/// Memory for two or three of these.
const FEW: u64 = 400 << 10;

fn row(number: i64, len: usize) -> Vec<Value> {
    vec![int(number), Value::text("x".repeat(len))]
}

fn hash_join(kind: JoinKind, left: Plan, right: Plan, residual: Option<Expr>) -> Plan {
    let (left_keys, right_keys) = (vec![column(0)], vec![column(0)]);
    let width = match kind {
        JoinKind::Semi | JoinKind::Anti => left.columns.len(),
        _ => left.columns.len() + right.columns.len(),
    };
    let (left, right) = (Box::new(left), Box::new(right));
    plan(Node::HashJoin { kind, left, right, left_keys, right_keys, residual }, width)
}

/// Runs a plan to its end; gives the most memory that its topmost operator held.
fn memory_of(ground: &Ground, plan: Plan) -> usize {
    let mut running = Running::new(Arc::new(statement(plan)), Vec::new(), true);
    let mut batch = Batch::new();
    while running.next(&ground.environment(u64::MAX), BATCH_ROWS, &mut batch).unwrap() {}
    running.profile()[0].memory_bytes as usize
}

#[test]
fn tables_of_rows_and_keys_are_charged_for_the_copy_that_they_encode() {
    let ground = Ground::new();
    let long = || values(&[row(1, LEN)]);
    let keys = vec![column(0), column(1)];
    for (name, plan) in [
        ("join", hash_join(JoinKind::Inner, numbers(0..3), long(), None)),
        ("groups", group(long(), Grouping::Hash, keys, Vec::new())),
        ("set", set(SetOperation::Intersect, false, values(&[row(2, 1)]), long())),
    ] {
        let held = memory_of(&ground, plan);
        assert!(held >= 2 * LEN, "{name}: {held}");
    }
}

#[test]
fn long_rows_that_have_no_room_are_joined_and_counted() {
    let ground = Ground::new();
    let rows = |numbers: std::ops::Range<i64>| numbers.map(|n| row(n, SHORTER)).collect::<Vec<_>>();
    let (left, right) = (rows(0..40), rows(20..70));
    let differ = || compare(column(1), Comparison::NotEqual, column(3));
    let join = |kind, residual| hash_join(kind, values(&left), values(&right), residual);
    let operation = |operation| set(operation, false, values(&left), values(&right));
    for (number, (expected, plan)) in [
        (20, join(JoinKind::Inner, None)),
        (70, join(JoinKind::Full, None)),
        (0, join(JoinKind::Semi, Some(differ()))),
        (40, join(JoinKind::Anti, Some(differ()))),
        (70, operation(SetOperation::Union)),
        (20, operation(SetOperation::Except)),
        (20, operation(SetOperation::Intersect)),
    ]
    .into_iter()
    .enumerate()
    {
        for work in [TINY, FEW] {
            let files = ground.engine.temp_stats().files;
            let rows = ground.run_with(statement(plan.clone()), work, BATCH_ROWS).unwrap();
            assert_eq!(rows.len(), expected, "plan {number}");
            assert!(ground.engine.temp_stats().files > files, "plan {number} has spilled nothing");
        }
    }
}

#[test]
fn a_long_row_that_was_hashed_is_not_kept_while_others_look_for_it() {
    let ground = Ground::new();
    let right: Vec<_> = (0..20).map(|number| row(number, SHORTER)).collect();
    let joined = hash_join(JoinKind::Inner, numbers(0..20), values(&right), None);
    let mut running = Running::new(Arc::new(statement(joined)), Vec::new(), false);
    assert!(running.next(&ground.environment(FEW), 1, &mut Batch::new()).unwrap());
    let shown = format!("{running:?}");
    assert!(
        shown.contains("part: Some(") && shown.contains("scratch: RowValues { values: [], memory: None }")
    );
}

#[test]
fn rows_that_a_semi_join_puts_together_are_charged() {
    let ground = Ground::new();
    let peak = || ground.engine.budget().peak_for(Purpose::Work) as usize;
    let differ = compare(column(1), Comparison::NotEqual, column(3));
    let (left, right) = (values(&[row(1, LEN)]), values(&[row(1, LEN)]));
    ground.run(hash_join(JoinKind::Semi, left, right, Some(differ))).unwrap();
    // The table and its copy, the batch, and both rows once more.
    assert!(peak() >= 5 * LEN, "{}", peak());
}

#[test]
fn the_pairs_that_a_nested_loop_looks_at_are_charged() {
    let ground = Ground::new();
    let peak = || ground.engine.budget().peak_for(Purpose::Work) as usize;
    let differ = compare(column(1), Comparison::NotEqual, column(3));
    let (left, right) = (Box::new(values(&[row(1, LEN)])), Box::new(values(&[row(2, LEN)])));
    let nested = |condition| Node::NestedLoop {
        kind: JoinKind::Semi,
        left: left.clone(),
        right: right.clone(),
        bind: Vec::new(),
        condition: Some(condition),
    };
    let first = equal(column(0), column(2));
    assert_eq!(ground.run(plan(nested(first), 2)).unwrap().len(), 0);
    // What the condition does not read is not copied: the batch and the row that is kept, which came as a batch as well.
    assert!(peak() < 4 * LEN, "{}", peak());
    assert_eq!(ground.run(plan(nested(differ), 2)).unwrap().len(), 0);
    assert!(peak() >= 4 * LEN, "{}", peak());
}

#[test]
fn keys_that_are_no_part_of_a_long_row_are_charged() {
    let ground = Ground::new();
    let held = || ground.work_memory() as usize;
    let (keys, row) = (KeyExprs::new(&[column(1), column(0)]), row(1, LEN));
    ground.environment(u64::MAX).run(&[], |context| {
        let mut key = MadeKey::default();
        assert_eq!(keys.of(&row, context, &mut key).unwrap(), [row[1].clone(), row[0].clone()]);
        assert!(held() >= LEN, "{}", held());
        key.clear();
        assert_eq!(held(), 0);
    });
}

#[test]
fn the_rows_of_a_sorted_aggregate_are_charged_as_they_come_back() {
    let ground = Ground::new();
    let call = AggregateExpr { distinct: true, ..aggregates::call("count", &[(column(1), Type::Text)]) };
    let counted = group(values(&[row(1, LEN), row(2, 1)]), Grouping::Single, Vec::new(), vec![call]);
    // Two of them, one to be compared with the other; the sort has them once, and room for as much again as a half.
    let held = memory_of(&ground, counted);
    assert!(held >= 2 * LEN, "{held}");
}

#[test]
fn long_rows_that_leave_a_set_for_files_are_charged() {
    let ground = Ground::new();
    let peak = || ground.engine.budget().peak_for(Purpose::Work) as usize;
    let plan = set(SetOperation::Except, false, values(&[row(1, 1)]), values(&[row(2, LEN), row(3, LEN)]));
    assert_eq!(ground.run_with(statement(plan), TINY, BATCH_ROWS).unwrap().len(), 1);
    // The table and its copy, the row, what is written of it, and the batch of the next one.
    assert!(peak() >= 5 * LEN, "{}", peak());
}

#[test]
fn the_long_row_that_a_cursor_shows_of_a_file_is_charged() {
    let ground = Ground::new();
    let held = || ground.work_memory() as usize;
    ground.environment(TINY).run(&[], |context| {
        let mut gathered = RowGatherer::new(2);
        (0..3).for_each(|number| gathered.push(&mut row(number, LEN), context).unwrap());
        let rows = gathered.finish(0, context).unwrap();
        let mut cursor = rows.cursor().unwrap();
        for number in 0..3 {
            let (place, shown) = cursor.next(&rows).unwrap().unwrap();
            assert!(place == number && shown == row(number as i64, LEN));
            assert!(held() >= LEN, "{}", held());
        }
        assert!(cursor.next(&rows).unwrap().is_none());
        assert!(held() < LEN, "{}", held());
    });
    assert_eq!(held(), 0);
}
