//! Subqueries within expressions.

use super::*;
use crate::SqlState;
use crate::physical::SubplanKind;

fn subquery(bind: Vec<(usize, Expr)>, kind: SubplanKind) -> Expr {
    Expr::Subquery { subplan: 0, bind, kind }
}

/// One row for each number: the number, and the subquery's value.
fn ask(ground: &Ground, numbers: Plan, expr: Expr, subplan: Plan) -> Result<Vec<Value>> {
    let projected = plan(Node::Project { input: Box::new(numbers), exprs: vec![expr] }, 1);
    let rows = ground.run_with(with_subplans(projected, vec![subplan], 1), u64::MAX, BATCH_ROWS)?;
    Ok(rows.into_iter().map(|mut row| row.remove(0)).collect())
}

#[test]
fn a_scalar_subquery_has_one_row_at_most() {
    let ground = Ground::new();
    let scalar = || subquery(Vec::new(), SubplanKind::Scalar);
    assert_eq!(ask(&ground, numbers(0..3), scalar(), numbers([5])).unwrap(), ints([5, 5, 5]));
    assert_eq!(ask(&ground, numbers(0..1), scalar(), no_rows(1)).unwrap(), [Value::Null]);
    let error = ask(&ground, numbers(0..1), scalar(), numbers([5, 5])).unwrap_err();
    assert_eq!(error.state(), SqlState::CARDINALITY_VIOLATION);
    assert_eq!(error.to_string(), "more than one row returned by a subquery used as an expression");
}

#[test]
fn a_bound_subquery_runs_for_each_row() {
    let ground = Ground::new();
    let bound = || filter(numbers(0..10), compare(column(0), Comparison::Greater, Expr::Slot(0)));
    let ask_bound = |kind| {
        let first = limit(bound(), Some(literal(1)), None);
        ask(&ground, numbers(7..11), subquery(vec![(0, column(0))], kind), first).unwrap()
    };
    assert_eq!(ask_bound(SubplanKind::Scalar), [int(8), int(9), Value::Null, Value::Null]);
    assert_eq!(ask_bound(SubplanKind::Exists), [true, true, false, false].map(Value::Bool));
    let arrays =
        ask(&ground, numbers(7..9), subquery(vec![(0, column(0))], SubplanKind::Array(Type::Int8)), bound());
    let lengths = arrays.unwrap().into_iter().map(|value| match value {
        Value::Array(array) => array.values.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn what_a_bound_subquery_does_not_bind_is_computed_once() {
    let ground = Ground::new();
    // select n > all (select x from (select distinct ...) where x < n) from numbers
    let rows: Vec<Vec<Value>> = (0..4000).map(|number| vec![int(number % 2000)]).collect();
    let distinct = group(values(&rows), Grouping::Hash, vec![column(0)], Vec::new());
    let below = filter(distinct, compare(column(0), Comparison::Less, Expr::Slot(0)));
    let kind = SubplanKind::Quantified { arguments: vec![column(0)], op: Comparison::Greater, all: true };
    let asked = subquery(vec![(0, column(0))], kind);
    let root = plan(Node::Project { input: Box::new(numbers(0..100)), exprs: vec![asked] }, 1);
    let statement = Arc::new(with_subplans(root, vec![below], 1));
    for work in [u64::MAX, TINY] {
        let mut running = Running::new(Arc::clone(&statement), Vec::new(), true);
        let mut batch = Batch::new();
        let mut trues = 0;
        while running.next(&ground.environment(work), BATCH_ROWS, &mut batch).unwrap() {
            trues += batch.iter().filter(|row| row[0] == Value::Bool(true)).count();
        }
        assert_eq!(trues, 100);
        let [.., filter, group, values] = running.profile()[..] else { panic!("five nodes") };
        // The second run is the one whose rows are kept.
        assert_eq!((filter.loops, group.loops, values.loops, values.rows), (100, 2, 2, 8000));
    }
}

#[test]
fn a_subquery_that_reads_an_outer_slot_is_not_kept() {
    let ground = Ground::new();
    // select (select (select n)) from numbers: the innermost one binds nothing, but reads what the middle one was given.
    let inner = Expr::Subquery { subplan: 1, bind: Vec::new(), kind: SubplanKind::Scalar };
    let project = |exprs| plan(Node::Project { input: Box::new(plan(Node::One, 0)), exprs }, 1);
    let subplans = vec![project(vec![inner]), project(vec![Expr::Slot(0)])];
    let outer = subquery(vec![(0, column(0))], SubplanKind::Scalar);
    let root = plan(Node::Project { input: Box::new(numbers(0..3)), exprs: vec![outer] }, 1);
    let rows = ground.run_with(with_subplans(root, subplans, 1), u64::MAX, BATCH_ROWS).unwrap();
    assert_eq!(rows.concat(), ints([0, 1, 2]));
}

/// The value of `argument op ANY/ALL (rows)`, which must be the same by hash table, by loop, and run anew.
fn quantified(argument: &[Option<i64>], op: Comparison, all: bool, rows: &[&[Option<i64>]]) -> Option<bool> {
    let ground = Ground::shared();
    let value = |number: &Option<i64>| number.map_or(Value::Null, Value::Int);
    let rows: Vec<Vec<Value>> = rows.iter().map(|row| row.iter().map(value).collect()).collect();
    let subplan = if rows.is_empty() { no_rows(argument.len()) } else { values(&rows) };
    let kind = SubplanKind::Quantified { arguments: argument.iter().map(|n| literal(*n)).collect(), op, all };
    let kept = ask(&ground, numbers(0..2), subquery(Vec::new(), kind.clone()), subplan.clone()).unwrap();
    let anew = ask(&ground, numbers(0..2), subquery(vec![(0, column(0))], kind), subplan).unwrap();
    assert!(kept == anew && kept[0] == kept[1], "{kept:?} {anew:?}");
    kept[0].as_bool()
}

#[test]
fn any_and_all_are_unknown_where_a_null_might_decide() {
    use Comparison::{Equal, Less, NotEqual};
    let (one, two, null) = (&[Some(1)][..], &[Some(2)][..], &[None][..]);
    assert_eq!(quantified(one, Equal, false, &[one, null]), Some(true));
    assert_eq!(quantified(one, Equal, false, &[two, null]), None);
    assert_eq!(quantified(one, Equal, false, &[two, two]), Some(false));
    assert_eq!(quantified(null, Equal, false, &[one]), None);
    assert_eq!(quantified(null, Equal, false, &[]), Some(false));
    assert_eq!(quantified(one, NotEqual, true, &[two]), Some(true));
    assert_eq!(quantified(one, NotEqual, true, &[two, null]), None);
    assert_eq!(quantified(one, NotEqual, true, &[one, null]), Some(false));
    assert_eq!(quantified(null, NotEqual, true, &[]), Some(true));
    assert_eq!(quantified(one, Less, true, &[two, two]), Some(true));
    assert_eq!(quantified(one, Less, true, &[two, null]), None);
    assert_eq!(quantified(two, Less, false, &[one, null]), None);
    assert_eq!(quantified(one, Equal, true, &[]), Some(true));
}

#[test]
fn rows_are_compared_with_rows() {
    use Comparison::{Equal, NotEqual};
    let (pair, other) = (&[Some(1), Some(2)][..], &[Some(3), Some(4)][..]);
    let (half, half_other) = (&[Some(1), None][..], &[Some(3), None][..]);
    assert_eq!(quantified(pair, Equal, false, &[other, pair]), Some(true));
    assert_eq!(quantified(pair, Equal, false, &[other, half]), None);
    assert_eq!(quantified(pair, Equal, false, &[other, half_other]), Some(false));
    assert_eq!(quantified(half, Equal, false, &[other]), Some(false));
    assert_eq!(quantified(half, Equal, false, &[other, pair]), None);
    assert_eq!(quantified(pair, NotEqual, true, &[other, half_other]), Some(true));
}
