//! Joins of all kinds, against a plain double loop.

use super::functions::series;
use super::*;
use crate::logical::JoinKind;

const KINDS: [JoinKind; 5] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// Joins by a double loop.
fn plain(
    kind: JoinKind,
    left: &[Vec<Value>],
    right: &[Vec<Value>],
    fits: impl Fn(&[Value], &[Value]) -> bool,
) -> Vec<Vec<Value>> {
    let nulls = |like: &[Vec<Value>]| vec![Value::Null; like[0].len()];
    let mut rows = Vec::new();
    for a in left {
        let partners: Vec<&Vec<Value>> = right.iter().filter(|b| fits(a, b)).collect();
        match kind {
            JoinKind::Semi if !partners.is_empty() => rows.push(a.clone()),
            JoinKind::Anti if partners.is_empty() => rows.push(a.clone()),
            JoinKind::Semi | JoinKind::Anti => {}
            JoinKind::Left | JoinKind::Full if partners.is_empty() => {
                rows.push([a.clone(), nulls(right)].concat())
            }
            _ => rows.extend(partners.into_iter().map(|b| [a.as_slice(), b].concat())),
        }
    }
    if kind == JoinKind::Full {
        let lonely = right.iter().filter(|b| !left.iter().any(|a| fits(a, b)));
        rows.extend(lonely.map(|b| [nulls(left), b.clone()].concat()));
    }
    rows.sort();
    rows
}

fn width(kind: JoinKind) -> usize {
    if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 3 } else { 6 }
}

fn hash_join(
    kind: JoinKind,
    left: &[Vec<Value>],
    right: &[Vec<Value>],
    keys: usize,
    residual: Option<Expr>,
) -> Plan {
    let keys: Vec<Expr> = (0..keys).map(column).collect();
    let node = Node::HashJoin {
        kind,
        left: Box::new(values(left)),
        right: Box::new(values(right)),
        left_keys: keys.clone(),
        right_keys: keys,
        residual,
    };
    plan(node, width(kind))
}

fn nested(
    kind: JoinKind,
    left: Plan,
    right: Plan,
    bind: Vec<(usize, Expr)>,
    condition: Option<Expr>,
) -> Plan {
    let width = match kind {
        JoinKind::Semi | JoinKind::Anti => left.columns.len(),
        _ => left.columns.len() + right.columns.len(),
    };
    plan(Node::NestedLoop { kind, left: Box::new(left), right: Box::new(right), bind, condition }, width)
}

/// Whether rows agree in the first columns, and none of those is NULL.
fn agree(keys: usize) -> impl Fn(&[Value], &[Value]) -> bool {
    move |a, b| a[..keys] == b[..keys] && !a[..keys].iter().any(Value::is_null)
}

#[test]
fn hash_joins_agree_with_a_double_loop() {
    let ground = Ground::new();
    let (left, right) = (random_rows(1, 900, 400), random_rows(2, 900, 400));
    let (left_texts, right_texts) = (with_text_keys(left.clone()), with_text_keys(right.clone()));
    for kind in KINDS {
        let joined = hash_join(kind, &left, &right, 1, None);
        assert!(ground.run_both(&joined, false) == plain(kind, &left, &right, agree(1)), "{kind:?}");
        let joined = hash_join(kind, &left_texts, &right_texts, 1, None);
        assert!(
            ground.run_both(&joined, false) == plain(kind, &left_texts, &right_texts, agree(1)),
            "{kind:?}"
        );
        let residual = compare(column(1), Comparison::Less, column(4));
        let joined = hash_join(kind, &left, &right, 1, Some(residual));
        let fits = |a: &[Value], b: &[Value]| agree(1)(a, b) && a[1] < b[1];
        assert!(ground.run_both(&joined, false) == plain(kind, &left, &right, fits), "{kind:?}");
    }
}

#[test]
fn joins_by_two_keys_need_both() {
    let ground = Ground::new();
    let narrow = |rows: Vec<Vec<Value>>| -> Vec<Vec<Value>> {
        rows.into_iter()
            .map(|row| vec![row[0].clone(), int(row[1].as_int().unwrap() & 3), row[2].clone()])
            .collect()
    };
    let (left, right) = (narrow(random_rows(3, 800, 100)), narrow(random_rows(4, 800, 100)));
    for kind in KINDS {
        let joined = hash_join(kind, &left, &right, 2, None);
        assert!(ground.run_both(&joined, false) == plain(kind, &left, &right, agree(2)), "{kind:?}");
    }
}

#[test]
fn a_key_that_dominates_is_joined_piece_by_piece() {
    let ground = Ground::new();
    let mut left = random_rows(5, 60, 4);
    let mut right = random_rows(6, 2000, 100_000);
    // Nearly all rows on the right have one key, and dividing does not tell them apart.
    for (index, row) in right.iter_mut().enumerate() {
        if index % 20 != 0 {
            row[0] = int(1);
        }
    }
    left.push(vec![int(77), int(1), Value::text("no partner")]);
    for kind in KINDS {
        let joined = hash_join(kind, &left, &right, 1, None);
        assert!(ground.run_both(&joined, false) == plain(kind, &left, &right, agree(1)), "{kind:?}");
        // A condition that holds in the last pieces only.
        let residual = compare(column(1), Comparison::NotEqual, column(4));
        let joined = hash_join(kind, &left, &right, 1, Some(residual));
        let fits = |a: &[Value], b: &[Value]| agree(1)(a, b) && a[1] != b[1];
        assert!(ground.run_both(&joined, false) == plain(kind, &left, &right, fits), "{kind:?}");
    }
}

#[test]
fn joins_with_an_empty_side() {
    let ground = Ground::new();
    let rows = random_rows(7, 30, 10);
    for kind in KINDS {
        let left_only = match kind {
            JoinKind::Left | JoinKind::Full | JoinKind::Anti => 30,
            JoinKind::Inner | JoinKind::Semi => 0,
        };
        let right_only = if kind == JoinKind::Full { 30 } else { 0 };
        let join = |left, right| {
            let (left_keys, right_keys) = (vec![column(0)], vec![column(0)]);
            let (left, right) = (Box::new(left), Box::new(right));
            plan(Node::HashJoin { kind, left, right, left_keys, right_keys, residual: None }, width(kind))
        };
        assert_eq!(ground.run(join(no_rows(3), values(&rows))).unwrap().len(), right_only, "{kind:?}");
        assert_eq!(ground.run(join(values(&rows), no_rows(3))).unwrap().len(), left_only, "{kind:?}");
        let looped = nested(kind, no_rows(3), values(&rows), Vec::new(), None);
        assert_eq!(ground.run(looped).unwrap().len(), right_only);
        let looped = nested(kind, values(&rows), no_rows(3), Vec::new(), None);
        assert_eq!(ground.run(looped).unwrap().len(), left_only);
    }
}

#[test]
fn nested_loops_keep_the_order_of_the_left_side() {
    let ground = Ground::new();
    let (left, right) = (random_rows(8, 100, 400), random_rows(9, 700, 400));
    let condition = compare(column(1), Comparison::Less, column(4));
    let fits = |a: &[Value], b: &[Value]| a[1] < b[1];
    for kind in KINDS {
        let looped = nested(kind, values(&left), values(&right), Vec::new(), Some(condition.clone()));
        let mut rows = ground.run_both(&looped, true);
        let firsts: Vec<&[Value]> = rows.iter().map(|row| &row[..3]).collect();
        let mut from = 0;
        for first in firsts.iter().filter(|row| !row[1].is_null()) {
            from += left[from..].iter().position(|row| row == first).expect("in the order of the left side");
        }
        rows.sort();
        assert!(rows == plain(kind, &left, &right, fits), "{kind:?}");
    }
}

#[test]
fn a_nested_loop_reads_no_more_of_the_right_side_than_is_wanted() {
    let ground = Ground::new();
    let endless = || series(vec![literal(1), literal(i64::MAX)], false);
    let joined = |kind, left| nested(kind, left, endless(), Vec::new(), None);
    for left in [numbers(0..3), numbers(0..1), limit(numbers(0..9), Some(literal(1)), None)] {
        let first = limit(joined(JoinKind::Inner, left), Some(literal(5)), None);
        let pairs = (1..6).map(|number| ints([0, number]));
        assert_eq!(ground.run(first).unwrap(), pairs.collect::<Vec<_>>());
    }
    assert_eq!(ground.run(joined(JoinKind::Semi, numbers(0..3))).unwrap().concat(), ints([0, 1, 2]));
    assert!(ground.run(joined(JoinKind::Anti, numbers(0..3))).unwrap().is_empty());
}

#[test]
fn a_nested_loop_that_is_cut_short_again_and_again_keeps_the_right_side_all_the_same() {
    let ground = Ground::new();
    let right = random_rows(14, 700, 400);
    let pairs = |kind, left: Plan, condition| {
        let looped =
            nested(kind, left, filter(values(&right), equal(literal(1), literal(1))), Vec::new(), condition);
        // The slot is not read: only the rewinds matter.
        nested(
            JoinKind::Inner,
            numbers(0..20),
            limit(looped, Some(literal(1)), None),
            vec![(0, column(0))],
            None,
        )
    };
    let any = compare(column(0), Comparison::Less, literal(i64::MAX));
    for (plan, most) in [
        (pairs(JoinKind::Inner, numbers(0..1), None), 2),
        (pairs(JoinKind::Inner, numbers(0..3), None), 2),
        (pairs(JoinKind::Semi, numbers(0..3), Some(any)), 2),
        (pairs(JoinKind::Semi, numbers(0..3), None), 2),
    ] {
        let mut running = Running::new(Arc::new(with_subplans(plan, Vec::new(), 1)), Vec::new(), true);
        let (mut batch, mut rows) = (Batch::new(), 0);
        while running.next(&ground.environment(u64::MAX), BATCH_ROWS, &mut batch).unwrap() {
            rows += batch.len();
        }
        let begun: Vec<u64> = running.profile().iter().map(|node| node.loops).collect();
        assert_eq!(rows, 20);
        // The last nodes are the filter on the right, and what is below it.
        assert!(begun[begun.len() - 2] <= most, "{begun:?}");
    }
}

#[test]
fn of_one_row_on_the_left_nothing_is_kept() {
    let ground = Ground::new();
    let (left, right) = (random_rows(12, 1, 400), random_rows(13, 700, 400));
    let condition = compare(column(1), Comparison::Less, column(4));
    let fits = |a: &[Value], b: &[Value]| a[1] < b[1];
    let files = ground.engine.temp_stats().files;
    for kind in KINDS.into_iter().filter(|kind| *kind != JoinKind::Full) {
        let looped = nested(kind, values(&left), values(&right), Vec::new(), Some(condition.clone()));
        let mut rows = ground.run_with(statement(looped), TINY, 7).unwrap();
        rows.sort();
        assert!(rows == plain(kind, &left, &right, fits), "{kind:?}");
    }
    assert_eq!(ground.engine.temp_stats().files, files);
}

#[test]
fn the_inner_side_runs_anew_with_values_of_the_outer_row() {
    let ground = Ground::new();
    let (left, right) = (random_rows(10, 200, 50), random_rows(11, 100, 50));
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
        // Sorts and groups must begin anew too.
        let inner = filter(values(&right), equal(column(0), Expr::Slot(0)));
        let inner = sort(inner, vec![by(1, false, false)], 0, None);
        let inner = group(inner, Grouping::Hash, vec![column(0), column(1), column(2)], Vec::new());
        let looped = nested(kind, values(&left), inner, vec![(0, column(0))], None);
        let mut rows = ground.run_with(with_subplans(looped, Vec::new(), 1), u64::MAX, 13).unwrap();
        rows.sort();
        assert!(rows == plain(kind, &left, &right, agree(1)), "{kind:?}");
    }
}

#[test]
fn a_join_that_is_run_again_gives_the_same_again() {
    let ground = Ground::new();
    let (left, right) = (random_rows(12, 300, 50), random_rows(13, 300, 50));
    for kind in KINDS {
        let once = plain(kind, &left, &right, agree(1)).len();
        let loops =
            nested(kind, values(&left), values(&right), Vec::new(), Some(equal(column(0), column(3))));
        for inner in [hash_join(kind, &left, &right, 1, None), loops] {
            // The slot is not read: only the rewinds matter.
            let outer = nested(JoinKind::Inner, numbers(0..4), inner, vec![(0, column(0))], None);
            for work in [u64::MAX, TINY] {
                let rows =
                    ground.run_with(with_subplans(outer.clone(), Vec::new(), 1), work, BATCH_ROWS).unwrap();
                assert_eq!(rows.len(), 4 * once, "{kind:?}");
            }
        }
    }
}
