//! Scans, index scans and index joins give what a look at all rows gives.

use super::*;
use crate::logical::JoinKind;
use crate::physical::KeyRange;
use gannet_store::thread_reads;

const T: Oid = 1;
const ROWS: i64 = 3000;

/// id, a = id / 10 (NULL for multiples of 100), b = text, u = -id.
fn ground() -> Ground {
    let table = table(T, "t", &[("id", Type::Int4), ("a", Type::Int8), ("b", Type::Text), ("u", Type::Int4)]);
    let table = with_index(table, "t_a", &[2], false);
    let table = with_index(table, "t_u", &[4], true);
    let ground = Ground::new(vec![table]);
    let row = |id: i64| {
        let a = if id % 100 == 0 { Value::Null } else { int(id / 10) };
        // Spread over the table, so that an index's order is not that of the rows.
        vec![int(id * 7919 % ROWS), a, Value::text(format!("row {id} {}", "x".repeat(60))), int(-id)]
    };
    ground.fill(T, (0..ROWS).map(row).collect());
    ground
}

fn index_scan(
    ground: &Ground,
    index: usize,
    range: KeyRange,
    backward: bool,
    look_ahead: bool,
    filter: Option<Expr>,
) -> Plan {
    let access = Arc::new(Access { filter, ..access(ground.table(T), false) });
    plan(
        Node::IndexScan { access, index, range: Arc::new(range), backward, index_only: false, look_ahead },
        4,
    )
}

#[test]
fn a_table_is_scanned_both_ways_and_within_ranges() {
    let ground = ground();
    let session = ground.session();
    let scan = |range: Option<KeyRange>, backward: bool, filter: Option<Expr>| {
        let access = Arc::new(Access { columns: vec![0], filter, ..access(ground.table(T), false) });
        let range = range.map(Arc::new);
        let rows = session.rows(plan(Node::TableScan { access, range, backward }, 1));
        rows.into_iter().map(|row| row[0].as_int().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(scan(None, false, None), (0..ROWS).collect::<Vec<_>>());
    assert_eq!(scan(None, true, None), (0..ROWS).rev().collect::<Vec<_>>());
    let range = KeyRange {
        lower: Some((vec![literal(100)], false)),
        upper: Some((vec![literal(104)], true)),
        ..KeyRange::default()
    };
    assert_eq!(scan(Some(range.clone()), false, None), [101, 102, 103, 104]);
    assert_eq!(scan(Some(range.clone()), true, Some(equal(0, 103))), [103]);
    let one = |value: Value| Some(KeyRange { equal: vec![Expr::Literal(value)], ..KeyRange::default() });
    assert_eq!(scan(one(int(7)), false, None), [7]);
    assert_eq!(scan(one(int(7)), false, Some(equal(0, 8))), [0; 0]);
    for nothing in [int(ROWS), int(1 << 40), Value::Null] {
        assert_eq!(scan(one(nothing), false, None), [0; 0]);
    }
    let null = KeyRange { lower: Some((vec![Expr::Literal(Value::Null)], true)), ..KeyRange::default() };
    assert_eq!(scan(Some(null), false, None), [0; 0]);
}

#[test]
fn rows_are_counted_without_being_read() {
    let ground = ground();
    let session = ground.session();
    let access = Arc::new(Access { columns: Vec::new(), ..access(ground.table(T), false) });
    let rows = session.rows(plan(Node::TableScan { access, range: None, backward: false }, 0));
    assert_eq!(rows.len() as i64, ROWS);
}

#[test]
fn an_index_gives_its_order_with_and_without_look_ahead() {
    let ground = ground();
    let session = ground.session();
    let mut wanted = session.rows(table_scan(ground.table(T)));
    wanted.sort_by(|a, b| a[1].cmp(&b[1]).then_with(|| a[0].cmp(&b[0])));
    for look_ahead in [true, false] {
        for limit in [1, 7, BATCH_ROWS] {
            let scan = index_scan(&ground, 1, KeyRange::default(), false, look_ahead, None);
            assert!(session.run_all(scan, limit).unwrap().0 == wanted, "{look_ahead} {limit}");
        }
        let mut backward = session.rows(index_scan(&ground, 1, KeyRange::default(), true, look_ahead, None));
        backward.reverse();
        assert!(backward == wanted);
        let range = KeyRange { equal: vec![literal(17)], ..KeyRange::default() };
        let some = session.rows(index_scan(&ground, 1, range, false, look_ahead, None));
        let wanted: Vec<_> = wanted.iter().filter(|row| row[1] == int(17)).cloned().collect();
        assert_eq!((some.len(), some), (10, wanted));
        let null = KeyRange { is_null: true, ..KeyRange::default() };
        assert_eq!(session.rows(index_scan(&ground, 1, null, false, look_ahead, None)).len(), 30);
        let filter = compare(Comparison::Less, Expr::Column(0), literal(10));
        let rows = session.rows(index_scan(&ground, 1, KeyRange::default(), false, look_ahead, Some(filter)));
        assert_eq!(rows.len(), 10);
    }
}

#[test]
fn an_index_alone_gives_its_columns_and_those_of_the_key() {
    let ground = ground();
    let session = ground.session();
    for (index, column) in [(1, 1), (2, 3)] {
        let access = Arc::new(Access { columns: vec![0, column], ..access(ground.table(T), false) });
        let node = Node::IndexScan {
            access,
            index,
            range: Arc::new(KeyRange { not_null: true, ..KeyRange::default() }),
            backward: false,
            index_only: true,
            look_ahead: false,
        };
        let mut found = session.rows(plan(node, 2));
        found.sort();
        let all = session.rows(table_scan(ground.table(T)));
        let wanted: Vec<Vec<Value>> = all
            .iter()
            .filter(|row| !row[column].is_null())
            .map(|row| vec![row[0].clone(), row[column].clone()])
            .collect();
        assert!(found == wanted);
    }
}

fn join(
    ground: &Ground,
    kind: JoinKind,
    outer: Vec<Vec<Value>>,
    index: Option<usize>,
    index_only: bool,
    look_ahead: bool,
    conditions: (Option<Expr>, Option<Expr>),
) -> Plan {
    let columns = if index_only { vec![0, 1] } else { vec![0, 1, 3] };
    let inner = columns.len();
    let access = Arc::new(Access { columns, filter: conditions.0, ..access(ground.table(T), false) });
    let outer = values(outer);
    let gives_inner = matches!(kind, JoinKind::Inner | JoinKind::Left);
    let width = outer.columns.len() + if gives_inner { inner } else { 0 };
    let node = Node::IndexJoin {
        kind,
        outer: Box::new(outer),
        access,
        index,
        index_only,
        keys: vec![Expr::Column(1)],
        residual: conditions.1,
        look_ahead,
    };
    plan(node, width)
}

/// What a join gives, worked out the slow way.
fn wanted(
    kind: JoinKind,
    outer: &[Vec<Value>],
    inner: &[Vec<Value>],
    key: usize,
    filter: bool,
    residual: bool,
    width: usize,
) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for left in outer {
        let mut matches: Vec<_> = inner
            .iter()
            .filter(|right| !left[1].is_null() && right[key] == left[1])
            .filter(|right| !filter || right[0].as_int().unwrap() < 1500)
            .filter(|right| !residual || right[0] > left[0])
            .collect();
        matches.sort_by_key(|right| right[0].clone());
        let inner_of = |right: &Vec<Value>| {
            if width == 2 {
                right[..2].to_vec()
            } else {
                vec![right[0].clone(), right[1].clone(), right[3].clone()]
            }
        };
        match kind {
            JoinKind::Semi if !matches.is_empty() => rows.push(left.clone()),
            JoinKind::Anti if matches.is_empty() => rows.push(left.clone()),
            JoinKind::Left if matches.is_empty() => {
                rows.push(left.iter().cloned().chain(vec![Value::Null; width]).collect());
            }
            JoinKind::Inner | JoinKind::Left => {
                rows.extend(
                    matches
                        .into_iter()
                        .map(|right| left.iter().cloned().chain(inner_of(right)).collect::<Vec<_>>()),
                );
            }
            _ => {}
        }
    }
    rows
}

#[test]
fn index_joins_of_every_kind_over_every_index() {
    let ground = ground();
    let session = ground.session();
    let inner = session.rows(table_scan(ground.table(T)));
    // Duplicates, misses and NULLs among the keys, in no order.
    let outer_key = |place: i64, sign: i64| match place % 7 {
        0 => Value::Null,
        1 => int(sign * (ROWS + place)),
        _ => int(sign * (place * 131 % 400)),
    };
    for (index, key, sign) in [(None, 0, 1), (Some(1), 1, 1), (Some(2), 3, -1)] {
        let outer: Vec<Vec<Value>> =
            (0..250).map(|place| vec![int(place * 10), outer_key(place, sign)]).collect();
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            for case in 0..16 {
                let (look_ahead, filter, residual) = (case & 1 == 1, case & 2 == 2, case & 4 == 4);
                let index_only = case & 8 == 8 && key == 1;
                let width = if index_only { 2 } else { 3 };
                let conditions = (
                    filter.then(|| compare(Comparison::Less, Expr::Column(0), literal(1500))),
                    residual.then(|| compare(Comparison::Greater, Expr::Column(2), Expr::Column(0))),
                );
                let plan = join(&ground, kind, outer.clone(), index, index_only, look_ahead, conditions);
                let limit = if case % 3 == 0 { 5 } else { BATCH_ROWS };
                let found = session.run_all(plan, limit).unwrap().0;
                let wanted = wanted(kind, &outer, &inner, key, filter, residual, width);
                assert!(
                    found == wanted,
                    "{kind:?} {index:?} case {case}: {} and {}",
                    found.len(),
                    wanted.len()
                );
            }
        }
    }
}

/// Pages waited for one by one, and pages asked for ahead, by a statement on a database that was just opened.
fn reads(ground: Ground, plan: impl FnOnce(&Ground) -> Plan) -> (Ground, u64, u64) {
    let ground = ground.reopen();
    let session = ground.session();
    let before = thread_reads();
    assert_eq!(session.rows(plan(&ground)).len() as i64, ROWS);
    let reads = thread_reads().since(before);
    drop(session);
    (ground, reads.serial_reads, reads.batched_reads)
}

#[test]
fn looking_ahead_reads_in_batches() {
    let scan = |look_ahead| {
        move |ground: &Ground| index_scan(ground, 1, KeyRange::default(), false, look_ahead, None)
    };
    let joined = |look_ahead| {
        move |ground: &Ground| {
            let outer = (0..ROWS).map(|place| vec![int(0), int(place * 7919 % ROWS)]).collect();
            join(ground, JoinKind::Inner, outer, None, false, look_ahead, (None, None))
        }
    };
    let by_index = |look_ahead| {
        move |ground: &Ground| {
            let outer = (0..ROWS).map(|place| vec![int(0), int(-(place * 7919 % ROWS))]).collect();
            join(ground, JoinKind::Inner, outer, Some(2), false, look_ahead, (None, None))
        }
    };
    let ground = ground();
    let (ground, scan_serial, scan_batched) = reads(ground, scan(false));
    let (ground, ahead_serial, ahead_batched) = reads(ground, scan(true));
    let found = format!("scan: {scan_serial} {scan_batched}, ahead {ahead_serial} {ahead_batched}");
    assert!(scan_serial > 60 && scan_batched == 0 && ahead_serial * 4 < scan_serial, "{found}");
    assert!(ahead_batched > scan_serial / 2, "{found}");
    let (ground, join_serial, join_batched) = reads(ground, joined(false));
    let (ground, ahead_serial, ahead_batched) = reads(ground, joined(true));
    let found = format!("join: {join_serial} {join_batched}, ahead {ahead_serial} {ahead_batched}");
    assert!(join_serial > 60 && join_batched == 0 && ahead_serial * 4 < join_serial, "{found}");
    let (ground, join_serial, join_batched) = reads(ground, by_index(false));
    let (_, ahead_serial, ahead_batched) = reads(ground, by_index(true));
    let found = format!("by index: {join_serial} {join_batched}, ahead {ahead_serial} {ahead_batched}");
    assert!(join_serial > 80 && join_batched == 0 && ahead_serial * 4 < join_serial, "{found}");
}

#[test]
fn one_row_by_its_key() {
    let ground = ground();
    let session = ground.session();
    let view = session.transaction.borrow_mut().view();
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    let mut fetch = |key: Value, out: &mut Vec<Value>| {
        super::super::fetch_one(&view, ground.table(T), [&key], &[3, 0], &mut scratch, out).unwrap()
    };
    assert!(fetch(int(7919 % ROWS), &mut out));
    assert_eq!(out, [int(-1), int(7919 % ROWS)]);
    assert!(!fetch(int(ROWS), &mut out) && !fetch(int(1 << 33), &mut out) && !fetch(Value::Null, &mut out));
    assert_eq!(out.len(), 2);
}

#[test]
fn texts_of_any_length_come_over_those_of_the_batch_before() {
    const MANY: i64 = 12_000;
    let table = table(T, "t", &[("id", Type::Int4), ("a", Type::Int8), ("b", Type::Text), ("u", Type::Int4)]);
    let table = with_index(table, "t_a", &[2], false);
    let ground = Ground::new(vec![with_index(table, "t_u", &[4], true)]);
    let row = |id: i64| {
        let text = match id % 11 {
            0 => Value::Null,
            1 => Value::text(""),
            _ => Value::text("é".repeat((id * 31 % 211) as usize)),
        };
        vec![int(id), int(id * 7919 % MANY), text, int(-id)]
    };
    ground.fill(T, (0..MANY).map(row).collect());
    let session = ground.session();
    let mut wanted: Vec<_> = (0..MANY).map(row).collect();
    let short = |filter: bool| filter.then(|| compare(Comparison::Less, Expr::Column(1), literal(MANY / 3)));
    for is_filtered in [false, true] {
        for limit in [1, 100, BATCH_ROWS] {
            let access = Access { filter: short(is_filtered), ..access(ground.table(T), false) };
            wanted.sort_by(|one, other| one[0].cmp(&other[0]));
            let some = |row: &&Vec<Value>| !is_filtered || row[1] < int(MANY / 3);
            let by_key: Vec<_> = wanted.iter().filter(some).cloned().collect();
            assert!(session.run_all(scan_with(access), limit).unwrap().0 == by_key, "{is_filtered} {limit}");
            // Most of these rows are found by leaf.
            wanted.sort_by(|one, other| one[1].cmp(&other[1]));
            let by_index: Vec<_> = wanted.iter().filter(some).cloned().collect();
            let scan = index_scan(&ground, 1, KeyRange::default(), false, true, short(is_filtered));
            assert!(session.run_all(scan, limit).unwrap().0 == by_index, "{is_filtered} {limit}");
        }
    }
}
