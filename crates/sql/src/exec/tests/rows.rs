//! Operators of one input: filters, limits, sorts, groups, sets.

use super::*;
use crate::SqlState;
use std::collections::BTreeMap;

#[test]
fn filter_project_limit_append() {
    let ground = Ground::new();
    let even = Expr::InSet { argument: Box::new(column(0)), set: ints([2, 4, 6, 8]).into(), null: false };
    let filtered = filter(numbers(0..10), even);
    let exprs = vec![column(0), literal(7), column(0)];
    let projected = plan(Node::Project { input: Box::new(filtered), exprs }, 3);
    let limited = limit(projected, Some(literal(2)), Some(literal(1)));
    assert_eq!(ground.run(limited.clone()).unwrap(), [ints([4, 7, 4]), ints([6, 7, 6])]);
    let appended = plan(Node::Append(vec![limited.clone(), limited]), 3);
    assert_eq!(ground.run(appended).unwrap().len(), 4);
    assert_eq!(ground.run(plan(Node::One, 0)).unwrap(), [Vec::<Value>::new()]);
}

#[test]
fn limits_are_numbers_of_rows() {
    let ground = Ground::new();
    let rows = |count: Option<Option<i64>>, offset: Option<Option<i64>>, batch| {
        let limited = limit(numbers(0..1000), count.map(literal), offset.map(literal));
        let rows = ground.run_with(statement(limited), u64::MAX, batch)?;
        let numbers = rows.iter().map(|row| row[0].as_int().unwrap());
        Result::Ok((rows.len(), numbers.clone().min(), numbers.max()))
    };
    for batch in [1, 3, BATCH_ROWS] {
        assert_eq!(rows(Some(Some(10)), Some(Some(990)), batch).unwrap(), (10, Some(990), Some(999)));
        assert_eq!(rows(Some(Some(300)), Some(Some(300)), batch).unwrap(), (300, Some(300), Some(599)));
        assert_eq!(rows(Some(None), Some(None), batch).unwrap().0, 1000);
        assert_eq!(rows(None, Some(Some(i64::MAX)), batch).unwrap().0, 0);
        assert_eq!(rows(Some(Some(i64::MAX)), Some(Some(999)), batch).unwrap().0, 1);
        assert_eq!(rows(Some(Some(0)), None, batch).unwrap().0, 0);
    }
    assert_eq!(rows(Some(Some(-1)), None, 9).unwrap_err().state(), SqlState::INVALID_ROW_COUNT_IN_LIMIT);
    assert_eq!(rows(None, Some(Some(-1)), 9).unwrap_err().state(), SqlState::INVALID_ROW_COUNT_IN_OFFSET);
}

/// Rows sorted by a plain sort of values, which keeps the order of equal ones.
fn expected(rows: &[Vec<Value>], keys: &[OrderBy]) -> Vec<Vec<Value>> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| {
        for key in keys {
            let Expr::Column(index) = key.expr else { panic!("a column") };
            let (a, b) = (&a[index], &b[index]);
            let order = match (a.is_null(), b.is_null()) {
                (true, true) => continue,
                (true, false) => return if key.nulls_first { Less } else { Greater },
                (false, true) => return if key.nulls_first { Greater } else { Less },
                (false, false) if key.descending => b.cmp(a),
                (false, false) => a.cmp(b),
            };
            if order != Equal {
                return order;
            }
        }
        Equal
    });
    rows
}
use std::cmp::Ordering::{Equal, Greater, Less};

#[test]
fn sorts_of_all_kinds_agree_with_a_plain_sort() {
    let ground = Ground::new();
    let rows = random_rows(1, 4000, 300);
    for keys in [
        vec![by(0, false, false)],
        vec![by(0, true, true), by(2, false, false)],
        vec![by(2, true, false)],
        vec![by(0, false, true), by(1, true, true)],
        vec![by(1, false, false), by(0, false, false), by(1, true, false)],
    ] {
        let sorted = expected(&rows, &keys);
        assert!(ground.run_both(&sort(values(&rows), keys.clone(), 0, None), true) == sorted);
        for top in [0, 1, 10, 3000, 5000] {
            let topped = sort(values(&rows), keys.clone(), 0, Some(top));
            for work in [u64::MAX, TINY] {
                let rows = ground.run_with(statement(topped.clone()), work, 100).unwrap();
                assert!(rows == sorted[..sorted.len().min(top as usize)], "{top} of {keys:?}");
            }
        }
    }
}

#[test]
fn a_sort_by_more_than_memory_merges_in_several_steps() {
    let ground = Ground::new();
    let rows = random_rows(2, 12_000, 1 << 40);
    let keys = vec![by(0, true, false), by(1, false, false)];
    // A fan-in of four, and some sixty runs.
    assert!(ground.run_both(&sort(values(&rows), keys.clone(), 0, None), true) == expected(&rows, &keys));
}

#[test]
fn the_last_merge_is_a_threads_and_ends_with_who_takes_its_rows() {
    let ground = Ground::new();
    let rows = random_rows(11, 12_000, 1 << 40);
    let keys = vec![by(0, true, false), by(1, false, false)];
    let sorted = expected(&rows, &keys);
    let before = ground.work_memory();
    let merged = || {
        let plan = sort(values(&rows), keys.clone(), 0, None);
        let mut running = Running::new(Arc::new(statement(plan)), Vec::new(), false);
        let mut batch = Batch::new();
        for some in sorted.chunks(100).take(7) {
            assert!(running.next(&ground.environment(TINY), 100, &mut batch).unwrap());
            assert!(batch.iter().eq(some.iter().map(Vec::as_slice)));
        }
        let merged = format!("{running:?}").contains("Merged {");
        drop((running, batch));
        assert_eq!(ground.work_memory(), before);
        assert_eq!(ground.engine.temp_stats().open_files, 0);
        merged
    };
    // Sorts of the tests beside this one may have all threads. Where there is one processor, nobody has any.
    let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    assert!((0..200).any(|_| merged() == several), "whether a thread has merged");
}

#[test]
fn a_sort_that_fails_while_a_run_is_made_leaves_nothing_behind() {
    let ground = Ground::new();
    for count in [200, 1000, 3001] {
        let rows = random_rows(2, count, 1 << 40);
        // All rows come first, then the error.
        let failing = limit(values(&rows), Some(literal(-1)), None);
        let input = plan(Node::Append(vec![values(&rows), failing]), 3);
        let sorted = statement(sort(input, vec![by(2, false, false)], 0, None));
        let files = ground.engine.temp_stats().files;
        let error = ground.run_with(sorted, TINY, 100).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_ROW_COUNT_IN_LIMIT);
        assert!(ground.engine.temp_stats().files > files, "nothing was spilled");
    }
}

#[test]
fn a_presorted_input_is_sorted_group_by_group() {
    let ground = Ground::new();
    let keys = vec![by(0, false, false), by(2, true, false)];
    let rows = expected(&random_rows(3, 3000, 40), &keys[..1]);
    let sorted = expected(&rows, &keys);
    assert!(ground.run(sort(values(&rows), keys.clone(), 1, None)).unwrap() == sorted);
    assert!(ground.run(sort(values(&rows), keys.clone(), 1, Some(100))).unwrap() == sorted[..100]);
    assert!(ground.run(sort(values(&rows), keys.clone(), 2, None)).unwrap() == rows);
    assert!(ground.run(sort(no_rows(3), keys, 1, None)).unwrap().is_empty());
}

#[test]
fn floats_and_padded_texts_sort_like_their_values() {
    let ground = Ground::new();
    let floats = [1.5, -0.0, f64::NAN, 0.0, f64::INFINITY, -2.5, f64::NEG_INFINITY, 1e-300].map(Value::Float);
    let padded =
        ["b", "a  ", "a", "", "ab", "abcdefgh  ", "abcdefghi"].map(|text| Value::Padded(text.into()));
    let truths = [true, false, true].map(Value::Bool);
    for column in [floats.to_vec(), padded.to_vec(), truths.to_vec()] {
        let rows: Vec<Vec<Value>> = column
            .into_iter()
            .chain([Value::Null])
            .enumerate()
            .map(|(n, v)| vec![v, int(n as i64)])
            .collect();
        for keys in [vec![by(0, false, false)], vec![by(0, true, true)]] {
            assert_eq!(
                ground.run(sort(values(&rows), keys.clone(), 0, None)).unwrap(),
                expected(&rows, &keys)
            );
        }
    }
}

#[test]
fn unique_gives_the_first_of_those_that_stand_together() {
    let ground = Ground::new();
    let rows =
        [ints([1, 1]), ints([1, 2]), ints([2, 3]), vec![Value::Null, int(4)], vec![Value::Null, int(5)]];
    let unique = |keys| plan(Node::Unique { input: Box::new(values(&rows)), keys }, 2);
    let firsts = ground.run(unique(vec![column(0)])).unwrap();
    assert_eq!(firsts, [rows[0].clone(), rows[2].clone(), rows[3].clone()]);
    assert_eq!(ground.run(unique(Vec::new())).unwrap().len(), 5);
}

#[test]
fn groups_without_aggregates_are_the_distinct_rows() {
    let ground = Ground::new();
    for rows in [random_rows(4, 5000, 2000), with_text_keys(random_rows(5, 5000, 2000))] {
        let grouped = group(values(&rows), Grouping::Hash, vec![column(0)], Vec::new());
        let mut keys: Vec<Vec<Value>> = rows.iter().map(|row| vec![row[0].clone()]).collect();
        keys.sort();
        keys.dedup();
        assert!(ground.run_both(&grouped, false) == keys);
        let sorted = sort(values(&rows), vec![by(0, false, false)], 0, None);
        let ordered = group(sorted, Grouping::Sorted, vec![column(0)], Vec::new());
        assert!(ground.run(ordered).unwrap() == keys);
    }
    let single = group(no_rows(1), Grouping::Single, Vec::new(), Vec::new());
    assert_eq!(ground.run(single).unwrap().len(), 1);
    let none = group(no_rows(1), Grouping::Hash, vec![column(0)], Vec::new());
    assert!(ground.run(none).unwrap().is_empty());
}

/// What a set operation should give, with counts.
fn combine(operation: SetOperation, all: bool, left: &[Vec<Value>], right: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let mut counts: BTreeMap<&Vec<Value>, (usize, usize)> = BTreeMap::new();
    left.iter().for_each(|row| counts.entry(row).or_default().0 += 1);
    right.iter().for_each(|row| counts.entry(row).or_default().1 += 1);
    let mut rows = Vec::new();
    for (row, (left, right)) in counts {
        let count = match (operation, all) {
            (SetOperation::Union, true) => left + right,
            (SetOperation::Union, false) => 1,
            (SetOperation::Except, true) => left.saturating_sub(right),
            (SetOperation::Except, false) => usize::from(left > 0 && right == 0),
            (SetOperation::Intersect, true) => left.min(right),
            (SetOperation::Intersect, false) => usize::from(left > 0 && right > 0),
        };
        rows.extend(std::iter::repeat_n(row.clone(), count));
    }
    rows
}

#[test]
fn set_operations_count_right() {
    let ground = Ground::new();
    // The last column would make every row one of its own.
    let two = |rows: Vec<Vec<Value>>| -> Vec<Vec<Value>> {
        rows.into_iter().map(|row| vec![row[0].clone(), Value::text(format!("{:?}", row[0]))]).collect()
    };
    let left = two(random_rows(6, 4000, 3000));
    let right = two(random_rows(7, 4000, 3000));
    for operation in [SetOperation::Union, SetOperation::Except, SetOperation::Intersect] {
        for all in [true, false] {
            let expected = combine(operation, all, &left, &right);
            let both = set(operation, all, values(&left), values(&right));
            if operation == SetOperation::Union && all {
                let mut rows = ground.run(both).unwrap();
                rows.sort();
                assert!(rows == expected);
            } else {
                assert!(ground.run_both(&both, false) == expected, "{operation:?} {all}");
            }
            // The right side has room, the left one does not.
            let few = &right[..20];
            let mut rows = ground
                .run_with(statement(set(operation, all, values(&left), values(few))), TINY, 50)
                .unwrap();
            rows.sort();
            assert!(rows == combine(operation, all, &left, few), "{operation:?} {all}");
        }
    }
}

#[test]
fn set_operations_end_where_all_rows_have_one_hash() {
    let ground = Ground::new();
    let right: Vec<_> = hash::colliding(2000).map(|value| vec![value]).collect();
    let left: Vec<_> = right.iter().step_by(2).cloned().chain([vec![Value::Bytes([1].into())]]).collect();
    for operation in [SetOperation::Except, SetOperation::Intersect] {
        for all in [true, false] {
            let both = set(operation, all, values(&left), values(&right));
            assert!(ground.run_both(&both, false) == combine(operation, all, &left, &right), "{operation:?}");
        }
    }
}

#[test]
fn a_cancelled_statement_ends_and_gives_back_what_it_has() {
    let ground = Ground::new();
    let rows = random_rows(8, 3000, 1000);
    let before = ground.work_memory();
    let sorted = sort(values(&rows), vec![by(0, false, false)], 0, None);
    let mut running = Running::new(Arc::new(statement(sorted)), Vec::new(), false);
    let mut batch = Batch::new();
    assert!(running.next(&ground.environment(TINY), 10, &mut batch).unwrap());
    assert!(ground.work_memory() > before);
    ground.cancel.store(true, Ordering::Relaxed);
    let error = running.next(&ground.environment(TINY), 10, &mut batch).unwrap_err();
    assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    assert_eq!(ground.work_memory(), before);
    assert!(!running.next(&ground.environment(TINY), 10, &mut batch).unwrap_or(false));
}

#[test]
fn counters_tell_what_was_done() {
    let ground = Ground::new();
    let rows = random_rows(9, 3000, 1000);
    let keep = compare(column(0), Comparison::Less, literal(500));
    let sorted = sort(filter(values(&rows), keep), vec![by(0, false, false)], 0, None);
    let mut running = Running::new(Arc::new(statement(sorted)), Vec::new(), true);
    let mut batch = Batch::new();
    let mut count = 0;
    while running.next(&ground.environment(TINY), BATCH_ROWS, &mut batch).unwrap() {
        count += batch.len() as u64;
    }
    let [sort, filter, values] = running.profile()[..] else { panic!("three nodes") };
    assert_eq!((sort.rows, filter.rows, values.rows), (count, count, 3000));
    assert_eq!((sort.loops, filter.loops, filter.rows_removed), (1, 1, 3000 - count));
    assert!(sort.spilled_bytes > 10_000 && sort.memory_bytes > 0 && sort.memory_bytes <= TINY);
    assert!(sort.total_ns >= sort.first_row_ns && sort.first_row_ns > 0);
}

/// `rows` texts of a MiB each, under their numbers.
fn long_rows(rows: i64) -> Plan {
    let text = "x".repeat(1 << 20);
    values(&(0..rows).map(|row| vec![int(row), Value::text(&text)]).collect::<Vec<_>>())
}

#[test]
fn long_rows_come_a_few_at_a_time() {
    let ground = Ground::new();
    let nested = |kind, condition| {
        let (left, right) = (Box::new(long_rows(20)), Box::new(numbers(0..20)));
        plan(Node::NestedLoop { kind, left, right, bind: Vec::new(), condition }, 3)
    };
    let hash = |kind, left: Plan, right: Plan| {
        let (left_keys, right_keys) = (vec![column(0)], vec![column(0)]);
        let width = left.columns.len() + right.columns.len();
        let (left, right) = (Box::new(left), Box::new(right));
        plan(Node::HashJoin { kind, left, right, left_keys, right_keys, residual: None }, width)
    };
    let twice = Expr::Coalesce(vec![column(1)]);
    let keys = vec![column(0), column(1)];
    let plans = [
        (20, long_rows(20)),
        (20, sort(long_rows(20), vec![by(0, true, false)], 0, None)),
        (20, plan(Node::Project { input: Box::new(long_rows(20)), exprs: vec![twice, column(0)] }, 2)),
        (400, nested(JoinKind::Inner, None)),
        (20, nested(JoinKind::Left, Some(Expr::Literal(Value::Bool(false))))),
        (20, hash(JoinKind::Inner, long_rows(20), numbers(0..20))),
        (20, hash(JoinKind::Full, numbers(20..20), long_rows(20))),
        (20, group(long_rows(20), Grouping::Hash, keys.clone(), Vec::new())),
        (20, group(long_rows(20), Grouping::Sorted, keys, Vec::new())),
        (30, set(SetOperation::Union, false, long_rows(20), long_rows(30))),
    ];
    for (number, (expected, plan)) in plans.into_iter().enumerate() {
        let mut running = Running::new(Arc::new(statement(plan)), Vec::new(), false);
        let (mut batch, mut rows) = (Batch::new(), 0);
        while running.next(&ground.environment(u64::MAX), BATCH_ROWS, &mut batch).unwrap() {
            let bytes: usize = batch.iter().map(row_bytes).sum();
            assert!(bytes < 3 << 20, "plan {number}: {} rows of {bytes} bytes", batch.len());
            rows += batch.len();
        }
        assert_eq!(rows, expected, "plan {number}");
    }
}

#[test]
fn a_batch_of_long_rows_is_charged() {
    let ground = Ground::new();
    let before = ground.work_memory();
    let rows = values(&vec![vec![Value::text("x".repeat(100 << 10))]; 30]);
    let projected = plan(Node::Project { input: Box::new(rows), exprs: vec![column(0)] }, 1);
    let mut running = Running::new(Arc::new(statement(projected)), Vec::new(), false);
    let mut batch = Batch::new();
    assert!(running.next(&ground.environment(u64::MAX), BATCH_ROWS, &mut batch).unwrap());
    assert_eq!(batch.len(), 11);
    // That of the projection, and of the one below.
    // A MiB each, and what the last of their rows has beyond it.
    let held = ground.work_memory() - before;
    assert!((2 << 20..(2 << 20) + 2 * (100 << 10)).contains(&held), "{held}");
    drop((running, batch));
    assert_eq!(ground.work_memory(), before);
}
