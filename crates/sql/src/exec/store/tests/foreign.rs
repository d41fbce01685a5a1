//! Foreign keys, alone.

use super::*;
use ReferentialAction::{Cascade, NoAction, Restrict, SetNull};

const P: Oid = 1;
const C: Oid = 2;
const G: Oid = 3;

/// Parents 1 to 3 with codes 10, 20, 30. Children of 1 and 2 by key (100 and 101, 200), or by code.
fn ground(
    by_code: bool,
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    indexed: bool,
) -> Ground {
    let parent = table(P, "p", &[("id", Type::Int4), ("code", Type::Int8)]);
    let parent = with_index(parent, "p_code_key", &[2], true);
    let child = table(C, "c", &[("id", Type::Int4), ("p", Type::Int8)]);
    let child = if indexed { with_index(child, "c_p", &[2], false) } else { child };
    let child = with_key(child, 2, &parent, usize::from(by_code), on_delete, on_update);
    let ground = Ground::new(vec![parent, child]);
    ground.fill(P, (1..=3).map(|id| vec![int(id), int(id * 10)]).collect());
    let factor = if by_code { 10 } else { 1 };
    ground.fill(C, [(100, 1), (101, 1), (200, 2)].map(|(id, p)| vec![int(id), int(p * factor)]).to_vec());
    ground
}

fn pairs(ground: &Ground, oid: Oid) -> Vec<(i64, Option<i64>)> {
    ground.rows(oid).iter().map(|row| (row[0].as_int().unwrap(), row[1].as_int())).collect()
}

#[test]
fn a_child_needs_its_parent() {
    for by_code in [false, true] {
        let ground = ground(by_code, NoAction, NoAction, true);
        let session = ground.session();
        let child = ground.table(C);
        let error = session.error(insert(child, vec![vec![int(1), int(7)]]));
        let (state, message, detail) = told(&error);
        assert_eq!(state, "23503");
        assert_eq!(message, "insert or update on table \"c\" violates foreign key constraint \"c_p_fkey\"");
        assert_eq!(detail, "Key (p)=(7) is not present in table \"p\".");
        let there = if by_code { 30 } else { 3 };
        let none = vec![int(2), Value::Null];
        assert_eq!(session.run(insert(child, vec![vec![int(1), int(there)], none])).unwrap(), 2);
        // Beyond what the parent's column holds.
        assert_eq!(told(&session.error(update(child, None, vec![(1, literal(1 << 40))]))).0, "23503");
        session.run(update(child, Some(equal(0, 100)), vec![(1, literal(there))])).unwrap();
    }
}

#[test]
fn a_parent_with_children_stays() {
    for (action, indexed) in [(NoAction, true), (NoAction, false), (Restrict, true)] {
        let ground = ground(false, action, action, indexed);
        let parent = ground.table(P);
        let session = ground.session();
        let error = session.error(delete(parent, Some(equal(0, 2))));
        let (state, message, detail) = told(&error);
        assert_eq!(state, "23503");
        assert_eq!(
            message,
            "update or delete on table \"p\" violates foreign key constraint \"c_p_fkey\" on table \"c\""
        );
        assert_eq!(detail, "Key (id)=(2) is still referenced from table \"c\".");
        assert_eq!(told(&session.error(update(parent, Some(equal(0, 1)), vec![(0, literal(9))]))).0, "23503");
        // No children; no change of the key; a key that nobody refers to.
        session.run(delete(parent, Some(equal(0, 3)))).unwrap();
        session.run(update(parent, Some(equal(0, 1)), vec![(0, literal(1)), (1, literal(11))])).unwrap();
        session.run(delete(ground.table(C), Some(equal(1, 2)))).unwrap();
        session.run(delete(parent, Some(equal(0, 2)))).unwrap();
    }
}

#[test]
fn children_follow_their_parent() {
    for by_code in [false, true] {
        for indexed in [false, true] {
            let ground = ground(by_code, Cascade, NoAction, indexed);
            let session = ground.session();
            assert_eq!(session.run(delete(ground.table(P), Some(equal(0, 1)))).unwrap(), 1);
            session.commit();
            assert_eq!(pairs(&ground, C), [(200, Some(if by_code { 20 } else { 2 }))]);
        }
    }
}

#[test]
fn children_take_over_their_parents_new_key() {
    for by_code in [false, true] {
        let ground = ground(by_code, NoAction, Cascade, true);
        let (parent, session) = (ground.table(P), ground.session());
        let key = usize::from(by_code);
        session.run(update(parent, Some(equal(0, 1)), vec![(key, literal(77))])).unwrap();
        // Through a row that has the key for a moment: 78 is 77's again when all is done.
        session.run(update(parent, Some(equal(key, 77)), vec![(key, plus(Expr::Column(key), 1))])).unwrap();
        session.commit();
        let other = if by_code { 20 } else { 2 };
        assert_eq!(pairs(&ground, C), [(100, Some(78)), (101, Some(78)), (200, Some(other))]);
    }
}

#[test]
fn children_are_left_without_parent() {
    for indexed in [false, true] {
        let ground = ground(false, SetNull, SetNull, indexed);
        let (parent, session) = (ground.table(P), ground.session());
        session.run(delete(parent, Some(equal(0, 1)))).unwrap();
        session.run(update(parent, Some(equal(0, 2)), vec![(0, literal(22))])).unwrap();
        session.commit();
        assert_eq!(pairs(&ground, C), [(100, None), (101, None), (200, None)]);
    }
}

#[test]
fn a_child_of_two_parents_loses_both() {
    let parent = table(P, "p", &[("id", Type::Int4), ("x", Type::Int4)]);
    let child = table(C, "c", &[("id", Type::Int4), ("a", Type::Int4), ("b", Type::Int4)]);
    let child = with_index(child, "c_a", &[2], false);
    let child = with_key(child, 2, &parent, 0, SetNull, NoAction);
    let child = with_key(child, 3, &parent, 0, SetNull, NoAction);
    let ground = Ground::new(vec![parent, child]);
    ground.fill(P, vec![vec![int(1), int(0)], vec![int(2), int(0)]]);
    ground.fill(C, vec![vec![int(10), int(1), int(2)], vec![int(11), int(1), int(1)]]);
    let session = ground.session();
    assert_eq!(session.run(delete(ground.table(P), None)).unwrap(), 2);
    session.commit();
    let lost = |id| vec![int(id), Value::Null, Value::Null];
    assert_eq!(ground.rows(C), [lost(10), lost(11)]);
}

#[test]
fn no_action_looks_at_the_end_of_the_statement() {
    let ground = ground(false, NoAction, NoAction, true);
    let session = ground.session();
    // 3 becomes 103, 2 becomes 102, and so on: nobody has the old keys at the end.
    assert!(session.run(update(ground.table(P), None, vec![(0, plus(Expr::Column(0), 100))])).is_err());
    // 2 and 3 exchange their places with each other, as far as the key is concerned.
    session.run(delete(ground.table(P), Some(equal(0, 3)))).unwrap();
    session.run(insert(ground.table(P), vec![vec![int(0), int(0)]])).unwrap();
    session.run(delete(ground.table(C), None)).unwrap();
    session.run(update(ground.table(P), None, vec![(0, plus(Expr::Column(0), 100))])).unwrap();
}

#[test]
fn rows_that_refer_to_each_other_come_and_go_together() {
    let node = table(G, "g", &[("id", Type::Int4), ("up", Type::Int4)]);
    let node = with_key(node.clone(), 2, &node, 0, NoAction, NoAction);
    let ground = Ground::new(vec![node]);
    let table = ground.table(G);
    let session = ground.session();
    let rows = vec![vec![int(1), int(2)], vec![int(2), int(1)], vec![int(3), int(3)]];
    assert_eq!(session.run(insert(table, rows)).unwrap(), 3);
    assert_eq!(told(&session.error(insert(table, vec![vec![int(4), int(5)]]))).0, "23503");
    assert_eq!(told(&session.error(delete(table, Some(equal(0, 1))))).0, "23503");
    assert_eq!(session.run(delete(table, None)).unwrap(), 3);
}

#[test]
fn a_long_chain_goes_with_its_first_row() {
    let node = table(G, "g", &[("id", Type::Int4), ("up", Type::Int4)]);
    let node = with_index(node, "g_up", &[2], false);
    let node = with_key(node.clone(), 2, &node, 0, Cascade, NoAction);
    let ground = Ground::new(vec![node]);
    let up = |id: i64| if id == 0 { Value::Null } else { int(id - 1) };
    ground.fill(G, (0..5000).map(|id| vec![int(id), up(id)]).collect());
    let session = ground.session();
    // What goes along is not counted.
    assert_eq!(session.run(delete(ground.table(G), Some(equal(0, 10)))).unwrap(), 1);
    assert_eq!(session.run(delete(ground.table(G), None)).unwrap(), 10);
    session.commit();
    assert!(ground.rows(G).is_empty());
}

#[test]
fn grandchildren_are_asked_too() {
    let parent = table(P, "p", &[("id", Type::Int4), ("x", Type::Int4)]);
    let child =
        with_key(table(C, "c", &[("id", Type::Int4), ("p", Type::Int4)]), 2, &parent, 0, Cascade, NoAction);
    let grandchild =
        with_key(table(G, "g", &[("id", Type::Int4), ("c", Type::Int4)]), 2, &child, 0, NoAction, NoAction);
    let ground = Ground::new(vec![parent, child, grandchild]);
    ground.fill(P, vec![vec![int(1), int(0)], vec![int(2), int(0)]]);
    ground.fill(C, vec![vec![int(10), int(1)], vec![int(20), int(2)]]);
    ground.fill(G, vec![vec![int(100), int(10)]]);
    let session = ground.session();
    let error = session.error(delete(ground.table(P), None));
    assert_eq!(
        told(&error).1,
        "update or delete on table \"c\" violates foreign key constraint \"g_c_fkey\" on table \"g\""
    );
    session.run(delete(ground.table(P), Some(equal(0, 2)))).unwrap();
    session.commit();
    assert_eq!(pairs(&ground, C), [(10, Some(1))]);
}
