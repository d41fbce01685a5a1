//! Several transactions at once.

use super::*;
use gannet_store::Isolation;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const T: Oid = 1;
const P: Oid = 1;
const C: Oid = 2;

fn counters() -> Ground {
    let table = table(T, "t", &[("id", Type::Int4), ("n", Type::Int8)]);
    let ground = Ground::new(vec![with_index(table, "t_n", &[2], false)]);
    ground.fill(T, (0..4).map(|id| vec![int(id), int(0)]).collect());
    ground
}

/// Long enough for another thread to come to its wait.
fn a_while() {
    thread::sleep(Duration::from_millis(50));
}

#[test]
fn updates_of_one_row_add_up() {
    let ground = counters();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..100 {
                    let session = ground.session();
                    let one_more = vec![(1, plus(Expr::Column(1), 1))];
                    assert_eq!(session.run(update(ground.table(T), None, one_more)).unwrap(), 4);
                    session.commit();
                }
            });
        }
    });
    assert_eq!(ground.rows(T), (0..4).map(|id| vec![int(id), int(200)]).collect::<Vec<_>>());
}

#[test]
fn a_row_that_changed_is_asked_again() {
    let ground = counters();
    let first = ground.session();
    first.run(update(ground.table(T), Some(equal(0, 1)), vec![(1, literal(5))])).unwrap();
    thread::scope(|scope| {
        let wanted = scope.spawn(|| {
            let session = ground.session();
            let changed = session.run(update(
                ground.table(T),
                Some(equal(1, 0)),
                vec![(1, plus(Expr::Column(1), 100))],
            ));
            session.commit();
            changed
        });
        let gone = scope.spawn(|| {
            let session = ground.session();
            let both = Expr::And(vec![equal(0, 1), equal(1, 5)]);
            // When the statement began no row fulfilled the condition.
            let changed = session.run(delete(ground.table(T), Some(both)));
            session.commit();
            changed
        });
        // Each has begun, and has come as far as it can.
        let waiting = || {
            let transactions = ground.database.store().transactions();
            transactions.iter().filter(|one| one.waiting.is_some()).count()
        };
        while waiting() + usize::from(wanted.is_finished()) + usize::from(gone.is_finished()) < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        first.commit();
        assert_eq!((wanted.join().unwrap().unwrap(), gone.join().unwrap().unwrap()), (3, 0));
    });
    let wanted = [(0, 100), (1, 5), (2, 100), (3, 100)].map(|(id, n)| vec![int(id), int(n)]);
    assert_eq!(ground.rows(T), wanted);
}

#[test]
fn a_snapshot_that_is_too_old_is_a_conflict() {
    let ground = counters();
    let options =
        TransactionOptions { isolation: Isolation::RepeatableRead, ..TransactionOptions::default() };
    let old = ground.session_with(options);
    assert_eq!(old.rows(table_scan(ground.table(T))).len(), 4);
    let new = ground.session();
    new.run(update(ground.table(T), Some(equal(0, 1)), vec![(1, literal(5))])).unwrap();
    new.commit();
    let error = old.error(update(ground.table(T), Some(equal(0, 1)), vec![(1, literal(6))]));
    assert_eq!(told(&error).0, "40001");
}

#[test]
fn two_that_want_one_key_meet() {
    for commits in [true, false] {
        let ground = counters();
        let first = ground.session();
        first.run(insert(ground.table(T), vec![vec![int(9), int(1)]])).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let session = ground.session();
                let result = session.run(insert(ground.table(T), vec![vec![int(9), int(2)]]));
                session.commit();
                result
            });
            a_while();
            if commits {
                first.commit();
            } else {
                first.transaction.into_inner().rollback().unwrap();
            }
            let result = second.join().unwrap();
            assert_eq!(result.map_err(|error| told(&error).0), if commits { Err("23505") } else { Ok(1) });
        });
        assert_eq!(ground.rows(T)[4], [int(9), int(if commits { 1 } else { 2 })]);
    }
}

fn family(by_code: bool) -> Ground {
    let parent = with_index(table(P, "p", &[("id", Type::Int4), ("code", Type::Int4)]), "p_code", &[2], true);
    let child = table(C, "c", &[("id", Type::Int4), ("p", Type::Int4)]);
    let no = ReferentialAction::NoAction;
    let child = with_index(with_key(child, 2, &parent, usize::from(by_code), no, no), "c_p", &[2], false);
    let ground = Ground::new(vec![parent, child]);
    ground.fill(P, (0..8).map(|id| vec![int(id), int(id)]).collect());
    ground
}

#[test]
fn a_child_that_comes_keeps_its_parent() {
    for by_code in [false, true] {
        let ground = family(by_code);
        let child = ground.session();
        child.run(insert(ground.table(C), vec![vec![int(1), int(3)]])).unwrap();
        thread::scope(|scope| {
            let gone = scope.spawn(|| {
                let session = ground.session();
                session.run(delete(ground.table(P), Some(equal(0, 3)))).map_err(|error| told(&error).0)
            });
            let other_key = scope.spawn(|| {
                let session = ground.session();
                let change =
                    update(ground.table(P), Some(equal(0, 3)), vec![(usize::from(by_code), literal(33))]);
                session.run(change).map_err(|error| told(&error).0)
            });
            a_while();
            child.commit();
            assert_eq!((gone.join().unwrap(), other_key.join().unwrap()), (Err("23503"), Err("23503")));
        });
        // It is the row that stays as it is: none of its keys changes before the child has come, as in PostgreSQL.
        let child = ground.session();
        child.run(insert(ground.table(C), vec![vec![int(2), int(4)]])).unwrap();
        thread::scope(|scope| {
            let changed = scope.spawn(|| {
                let column = usize::from(!by_code);
                let session = ground.session();
                session.run(update(ground.table(P), Some(equal(0, 4)), vec![(column, literal(44))])).map(drop)
            });
            a_while();
            assert!(!changed.is_finished());
            child.commit();
            changed.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_parent_that_goes_takes_no_more_children() {
    for by_code in [false, true] {
        let ground = family(by_code);
        let parent = ground.session();
        let change = if by_code {
            update(ground.table(P), Some(equal(0, 3)), vec![(1, literal(33))])
        } else {
            delete(ground.table(P), Some(equal(0, 3)))
        };
        parent.run(change).unwrap();
        thread::scope(|scope| {
            let child = scope.spawn(|| {
                let session = ground.session();
                session
                    .run(insert(ground.table(C), vec![vec![int(1), int(3)]]))
                    .map_err(|error| told(&error).0)
            });
            a_while();
            parent.commit();
            assert_eq!(child.join().unwrap(), Err("23503"));
        });
    }
}

#[test]
fn children_and_parents_in_a_hurry() {
    let ground = family(false);
    let start = Barrier::new(3);
    // What may go wrong where several want the same.
    let allowed = ["23503", "23505", "40P01"];
    thread::scope(|scope| {
        for worker in 0..3i64 {
            let (ground, start) = (&ground, &start);
            scope.spawn(move || {
                start.wait();
                for step in 0..120i64 {
                    let parent = (step * 5 + worker * 3) % 8;
                    let session = ground.session();
                    let plan = match (step + worker) % 4 {
                        0 => delete(ground.table(P), Some(equal(0, parent))),
                        1 => insert(ground.table(P), vec![vec![int(parent), int(parent)]]),
                        2 => insert(ground.table(C), vec![vec![int(worker * 1000 + step), int(parent)]]),
                        _ => delete(ground.table(C), Some(equal(1, parent))),
                    };
                    match session.run(plan) {
                        Ok(_) => session.commit(),
                        Err(error) => assert!(allowed.contains(&told(&error).0), "{error:?}"),
                    }
                }
            });
        }
    });
    let parents: Vec<Value> = ground.rows(P).into_iter().map(|row| row[0].clone()).collect();
    for child in ground.rows(C) {
        assert!(parents.contains(&child[1]), "child {child:?} of {parents:?}");
    }
}
