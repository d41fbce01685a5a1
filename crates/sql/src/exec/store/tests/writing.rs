//! INSERT, UPDATE, DELETE and locks, alone.

use super::*;
use crate::logical::{LockStrength, LockWait};
use crate::physical::{Checks, LockTarget, Recheck, RecheckStep};

const T: Oid = 1;

fn ground() -> Ground {
    let table = table(T, "t", &[("id", Type::Int4), ("a", Type::Int4), ("b", Type::Text)]);
    let table = with_index(table, "t_a", &[2], false);
    let ground = Ground::new(vec![with_index(table, "t_b_key", &[3], true)]);
    ground.fill(T, (1..=5).map(|id| row(id, id * 10, &format!("b{id}"))).collect());
    ground
}

fn row(id: i64, a: i64, b: &str) -> Vec<Value> {
    vec![int(id), int(a), Value::text(b)]
}

#[test]
fn rows_and_entries_follow_every_change() {
    let ground = ground();
    let table = ground.table(T);
    let session = ground.session();
    assert_eq!(
        session.run(insert(table, vec![row(6, 60, "b6"), vec![int(7), Value::Null, Value::Null]])).unwrap(),
        2
    );
    // Neither index has to do with it, then one, then the key of all.
    assert_eq!(session.run(update(table, Some(equal(0, 1)), vec![(1, literal(10))])).unwrap(), 1);
    assert_eq!(session.run(update(table, None, vec![(1, plus(Expr::Column(1), 1))])).unwrap(), 7);
    assert_eq!(session.run(update(table, Some(equal(0, 2)), vec![(0, literal(22))])).unwrap(), 1);
    assert_eq!(
        session.run(update(table, Some(equal(0, 3)), vec![(2, literal("new")), (0, literal(33))])).unwrap(),
        1
    );
    session.check_indexes(T);
    assert_eq!(session.run(delete(table, Some(equal(2, "b4")))).unwrap(), 1);
    session.check_indexes(T);
    session.commit();
    let wanted = [
        row(1, 11, "b1"),
        row(5, 51, "b5"),
        row(6, 61, "b6"),
        vec![int(7), Value::Null, Value::Null],
        row(22, 21, "b2"),
        row(33, 31, "new"),
    ];
    assert_eq!(ground.rows(T), wanted);
}

#[test]
fn a_statement_does_not_meet_its_own_rows() {
    let ground = ground();
    let session = ground.session();
    // Every row moves behind all that are still to come.
    let moved =
        update(ground.table(T), None, vec![(0, plus(Expr::Column(0), 100)), (2, Expr::Literal(Value::Null))]);
    assert_eq!(session.run(moved).unwrap(), 5);
    session.commit();
    let ids: Vec<Value> = ground.rows(T).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(ids, [101, 102, 103, 104, 105].map(int));
}

#[test]
fn keys_are_unique_row_by_row() {
    let ground = ground();
    let table = ground.table(T);
    let session = ground.session();
    let error = session.error(insert(table, vec![row(3, 1, "b1")]));
    let wanted = (
        "23505",
        "duplicate key value violates unique constraint \"t_pkey\"",
        "Key (id)=(3) already exists.",
    );
    assert_eq!(told(&error), (wanted.0, wanted.1.to_owned(), wanted.2.to_owned()));
    assert_eq!(error.fields().constraint.as_deref(), Some("t_pkey"));
    let error = session.error(insert(table, vec![row(8, 1, "b1")]));
    assert_eq!(told(&error).2, "Key (b)=(b1) already exists.");
    let error = session.error(update(table, Some(equal(0, 1)), vec![(2, literal("b2"))]));
    assert_eq!(told(&error).2, "Key (b)=(b2) already exists.");
    // 1 becomes 2 while 2 is still there.
    let error = session.error(update(table, None, vec![(0, plus(Expr::Column(0), 1))]));
    assert_eq!(told(&error).2, "Key (id)=(2) already exists.");
    session.run(update(table, None, vec![(0, plus(Expr::Column(0), 10))])).unwrap();
    // What was deleted does not count, and NULLs agree with nothing.
    session.run(delete(table, Some(equal(2, "b1")))).unwrap();
    session
        .run(insert(
            table,
            vec![row(1, 0, "b1"), vec![int(2), int(0), Value::Null], vec![int(3), int(0), Value::Null]],
        ))
        .unwrap();
    session.check_indexes(T);
}

#[test]
fn constraints_of_a_row() {
    let ground = ground();
    let session = ground.session();
    let error =
        session.error(insert(ground.table(T), vec![vec![Value::Null, int(1), Value::text("x".repeat(70))]]));
    let (state, message, detail) = told(&error);
    assert_eq!(state, "23502");
    assert_eq!(message, "null value in column \"id\" of relation \"t\" violates not-null constraint");
    assert_eq!(detail, format!("Failing row contains (null, 1, {}...).", "x".repeat(64)));
    let plan = |least: i64| {
        let check = compare(Comparison::Greater, Expr::Column(1), literal(least));
        let rows = vec![row(8, 5, "b8"), vec![int(9), Value::Null, Value::text("b9")]];
        insert_with(ground.table(T), rows, Arc::new([("t_a_check".to_owned(), check)]), None)
    };
    // NULL is no violation.
    assert_eq!(session.run(plan(4)).unwrap(), 2);
    let error = session.error(plan(5));
    assert_eq!(told(&error).1, "new row for relation \"t\" violates check constraint \"t_a_check\"");
    assert_eq!(told(&error).2, "Failing row contains (8, 5, b8).");
}

#[test]
fn a_key_that_is_too_long_names_its_index() {
    let ground = ground();
    let session = ground.session();
    let error = session.error(insert(ground.table(T), vec![row(8, 1, &"k".repeat(600))]));
    assert_eq!(told(&error).0, "54000");
    assert_eq!(told(&error).1, "index row size 602 exceeds maximum 512 for index \"t_b_key\"");
}

#[test]
fn returning_gives_the_rows_in_batches_of_any_size() {
    let ground = ground();
    let table = ground.table(T);
    let session = ground.session();
    // The new value, and the old one of the input's row.
    let returning = Some(vec![Expr::Column(1), Expr::Column(4)]);
    let plan = update_with(table, None, vec![(1, plus(Expr::Column(1), 1))], returning);
    let (rows, affected, _) = session.run_all(plan, 2).unwrap();
    assert_eq!(rows, (1..=5).map(|id| vec![int(id * 10 + 1), int(id * 10)]).collect::<Vec<_>>());
    assert_eq!(affected, 5);
    let few = compare(Comparison::Less, Expr::Column(0), literal(4));
    let plan = delete_with(table, Some(few), Some(vec![Expr::Column(2)]));
    assert_eq!(
        session.run_all(plan, 2).unwrap().0,
        [["b1"], ["b2"], ["b3"]].map(|row| row.map(Value::text).to_vec())
    );
    let rows = (10..20).map(|id| row(id, id, &format!("n{id}"))).collect();
    let returning = Some(vec![plus(Expr::Column(0), 1000)]);
    let plan = insert_with(table, rows, Checks::default(), returning);
    let rows = session.run_all(plan, 3).unwrap().0;
    assert_eq!(rows, (1010..1020).map(|id| vec![int(id)]).collect::<Vec<_>>());
}

fn lock(table: &Arc<Table>, wait: LockWait, filter: Option<Expr>) -> Plan {
    let node = Node::LockRows {
        input: Box::new(rows_to_change(table, filter.clone())),
        targets: Arc::new([LockTarget { target: target(table), strength: LockStrength::Update, wait }]),
        recheck: Arc::new(Recheck {
            fixed: vec![],
            steps: filter.map(RecheckStep::Holds).into_iter().collect(),
        }),
    };
    plan(node, table.columns.len() + 2)
}

#[test]
fn a_locked_row_is_an_error_or_left_out() {
    let ground = ground();
    let table = ground.table(T);
    let (holder, other) = (ground.session(), ground.session());
    assert_eq!(holder.rows(lock(table, LockWait::Block, Some(equal(0, 2)))).len(), 1);
    let error = other.error(lock(table, LockWait::NoWait, None));
    assert_eq!(told(&error).0, "55P03");
    assert_eq!(told(&error).1, "could not obtain lock on row in relation \"t\"");
    let rows = other.rows(lock(table, LockWait::SkipLocked, None));
    assert_eq!(rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>(), [1, 3, 4, 5].map(int));
    other.transaction.borrow_mut().set_lock_timeout(Some(std::time::Duration::from_millis(20)));
    let error = other.error(update(table, Some(equal(0, 2)), vec![(1, literal(0))]));
    assert_eq!(told(&error), ("55P03", "canceling statement due to lock timeout".to_owned(), String::new()));
}

#[test]
fn rows_without_key_have_numbers() {
    let mut plain = table(T, "t", &[("a", Type::Int4), ("b", Type::Text)]);
    plain.key = TableKey::RowId;
    plain.indexes.clear();
    plain.columns[0].not_null = false;
    let ground = Ground::new(vec![with_index(plain, "t_a", &[1], false)]);
    let table = ground.table(T);
    let row = |a: i64| vec![int(a), Value::text("same")];
    ground.fill(T, vec![row(2), row(1), row(2)]);
    let session = ground.session();
    assert_eq!(
        session.run(update(table, Some(equal(0, 2)), vec![(0, plus(Expr::Column(0), 1))])).unwrap(),
        2
    );
    assert_eq!(session.run(delete(table, Some(equal(0, 1)))).unwrap(), 1);
    session.run(insert(table, vec![row(0)])).unwrap();
    session.commit();
    assert_eq!(ground.rows(T), [row(3), row(3), row(0)]);
}
