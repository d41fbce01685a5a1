//! Three-valued logic, and what is not computed.

use super::*;
use crate::types::Array;

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);

fn eval(expr: &Expr, row: &[Value]) -> Result<Value> {
    let ground = Ground::shared();
    ground.environment(u64::MAX).run(&[int(42), Value::Null], |context| {
        let value = expr.eval(row, context)?.into_owned();
        assert_eq!(expr.is_true(row, context)?, value.as_bool() == Some(true));
        Ok(value)
    })
}

fn truth(expr: &Expr) -> Option<bool> {
    eval(expr, &[]).unwrap().as_bool()
}

fn boolean(value: Option<bool>) -> Expr {
    Expr::Literal(super::super::expr::boolean(value))
}

/// What fails when it is computed.
fn poison() -> Expr {
    Expr::Subquery { subplan: 7, bind: Vec::new(), kind: crate::physical::SubplanKind::Exists }
}

#[test]
fn and_or_not_know_three_values() {
    let all = [TRUE, FALSE, None];
    let and = [[TRUE, FALSE, None], [FALSE, FALSE, FALSE], [None, FALSE, None]];
    let or = [[TRUE, TRUE, TRUE], [TRUE, FALSE, None], [TRUE, None, None]];
    for (i, a) in all.into_iter().enumerate() {
        for (j, b) in all.into_iter().enumerate() {
            assert_eq!(truth(&Expr::And(vec![boolean(a), boolean(b)])), and[i][j]);
            assert_eq!(truth(&Expr::Or(vec![boolean(a), boolean(b)])), or[i][j]);
        }
        assert_eq!(truth(&Expr::Not(Box::new(boolean(a)))), a.map(|a| !a));
        for value in [true, false] {
            let expr = Expr::IsBool { argument: Box::new(boolean(a)), value };
            assert_eq!(truth(&expr), Some(a == Some(value)));
        }
        assert_eq!(truth(&Expr::IsNull(Box::new(boolean(a)))), Some(a.is_none()));
    }
    assert!(eval(&poison(), &[]).is_err());
    assert_eq!(truth(&Expr::And(vec![boolean(None), boolean(FALSE), poison()])), FALSE);
    assert_eq!(truth(&Expr::Or(vec![boolean(None), boolean(TRUE), poison()])), TRUE);
}

#[test]
fn comparisons_with_null_are_unknown_but_for_distinct() {
    use Comparison::*;
    for (op, less, same) in [
        (Equal, false, true),
        (NotEqual, true, false),
        (Less, true, false),
        (LessOrEqual, true, true),
        (Greater, false, false),
        (GreaterOrEqual, false, true),
        (Distinct, true, false),
        (NotDistinct, false, true),
    ] {
        assert_eq!(truth(&compare(literal(1), op, literal(2))), Some(less));
        assert_eq!(truth(&compare(literal(2), op, literal(2))), Some(same));
        let text = |text| Expr::Literal(Value::text(text));
        assert_eq!(truth(&compare(text("a"), op, text("b"))), Some(less));
        let unknown = match op {
            Distinct => Some(true),
            NotDistinct => Some(false),
            _ => None,
        };
        assert_eq!(truth(&compare(literal(1), op, literal(None))), unknown);
        assert_eq!(truth(&compare(literal(None), op, Expr::Parameter(0))), unknown);
    }
    assert_eq!(truth(&compare(Expr::Parameter(1), Comparison::NotDistinct, literal(None))), TRUE);
}

#[test]
fn rows_compare_as_far_as_it_takes() {
    use Comparison::*;
    let rows = |op, left: [Option<i64>; 2], right: [Option<i64>; 2]| {
        let (left, right) = (left.map(literal).into(), right.map(literal).into());
        truth(&Expr::CompareRows { op, left, right })
    };
    assert_eq!(rows(Equal, [Some(1), None], [Some(1), Some(2)]), None);
    assert_eq!(rows(Equal, [None, Some(1)], [Some(1), Some(2)]), FALSE);
    assert_eq!(rows(NotEqual, [None, Some(1)], [Some(1), Some(2)]), TRUE);
    assert_eq!(rows(NotEqual, [None, Some(2)], [Some(1), Some(2)]), None);
    assert_eq!(rows(Less, [Some(1), None], [Some(2), None]), TRUE);
    assert_eq!(rows(Less, [Some(1), None], [Some(1), Some(2)]), None);
    assert_eq!(rows(Less, [None, Some(1)], [Some(1), Some(2)]), None);
    assert_eq!(rows(LessOrEqual, [Some(1), Some(2)], [Some(1), Some(2)]), TRUE);
    assert_eq!(rows(GreaterOrEqual, [Some(1), Some(1)], [Some(1), Some(2)]), FALSE);
    assert_eq!(rows(Distinct, [Some(1), None], [Some(1), None]), FALSE);
    assert_eq!(rows(NotDistinct, [Some(1), None], [Some(1), Some(2)]), FALSE);
}

#[test]
fn in_is_unknown_where_a_null_might_have_matched() {
    let set: Arc<[Value]> = ints([1, 3, 5]).into();
    let in_set = |argument, null| {
        truth(&Expr::InSet { argument: Box::new(literal(argument)), set: Arc::clone(&set), null })
    };
    assert_eq!([in_set(Some(3), true), in_set(Some(4), false), in_set(Some(4), true)], [TRUE, FALSE, None]);
    assert_eq!(in_set(None, false), None);
    let in_list = |argument, list: &[Option<i64>]| {
        let list = list.iter().map(|value| literal(*value)).collect();
        truth(&Expr::InList { argument: Box::new(literal(argument)), list })
    };
    assert_eq!(in_list(Some(2), &[None, Some(2)]), TRUE);
    assert_eq!(in_list(Some(2), &[None, Some(3)]), None);
    assert_eq!(in_list(Some(2), &[Some(1), Some(3)]), FALSE);
    assert_eq!(in_list(None, &[Some(1)]), None);
}

#[test]
fn any_and_all_of_arrays() {
    let array = |values: &[Option<i64>]| Expr::Array {
        elements: values.iter().map(|value| literal(*value)).collect(),
        element: Type::Int8,
    };
    let quantified = |argument: Option<i64>, all, array: Expr| {
        let (argument, array) = (Box::new(literal(argument)), Box::new(array));
        truth(&Expr::Quantified { argument, op: Comparison::Less, array, all })
    };
    assert_eq!(quantified(Some(2), false, array(&[Some(1), Some(3)])), TRUE);
    assert_eq!(quantified(Some(2), true, array(&[Some(1), None])), FALSE);
    assert_eq!(quantified(Some(2), true, array(&[Some(3), None])), None);
    assert_eq!(quantified(Some(2), false, array(&[Some(1), None])), None);
    assert_eq!(quantified(None, false, array(&[])), FALSE);
    assert_eq!(quantified(None, true, array(&[])), TRUE);
    assert_eq!(quantified(Some(2), false, literal(None)), None);
}

#[test]
fn arrays_are_indexed_from_where_they_begin() {
    for lower in [0, 1] {
        let array = Array { element: Type::Int8, values: ints([10, 20]), lower };
        let at = |index: Option<i64>| {
            let array = Box::new(Expr::Literal(Value::Array(Arc::new(array.clone()))));
            eval(&Expr::Subscript { array, index: Box::new(literal(index)) }, &[]).unwrap()
        };
        let first = i64::from(lower);
        assert_eq!([at(Some(first)), at(Some(first + 1))], [int(10), int(20)]);
        for index in [Some(first - 1), Some(first + 2), Some(i64::MIN), Some(i64::MAX), None] {
            assert!(at(index).is_null());
        }
    }
}

#[test]
fn case_and_coalesce_stop_at_the_first_that_applies() {
    let case = |condition| Expr::Case {
        branches: vec![(boolean(condition), literal(1)), (boolean(TRUE), column(0))],
        otherwise: Box::new(poison()),
    };
    assert_eq!(eval(&case(TRUE), &ints([2])).unwrap(), int(1));
    assert_eq!(eval(&case(None), &ints([2])).unwrap(), int(2));
    let coalesce = |first: Option<i64>| Expr::Coalesce(vec![literal(first), column(0), poison()]);
    assert_eq!(eval(&coalesce(Some(5)), &ints([2])).unwrap(), int(5));
    assert_eq!(eval(&coalesce(None), &ints([2])).unwrap(), int(2));
    for (greatest, expected) in [(true, 9), (false, -3)] {
        let arguments = vec![literal(4), literal(None), literal(9), literal(-3)];
        assert_eq!(eval(&Expr::Extreme { arguments, greatest }, &[]).unwrap(), int(expected));
        let arguments = vec![literal(None), literal(None)];
        assert!(eval(&Expr::Extreme { arguments, greatest }, &[]).unwrap().is_null());
    }
}
