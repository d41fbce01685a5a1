//! Functions of values and of rows, and tables of the system.

use super::*;
use crate::functions::{Resolved, resolve_function, resolve_operator};
use crate::physical::SubplanKind;
use crate::types::cast;

fn operator(symbol: &str, left: Expr, right: Expr) -> Expr {
    let found = resolve_operator(symbol, Some(Type::Int8), Type::Int8).unwrap();
    let Resolved::Function(function) = found.target else { panic!("no function") };
    Expr::Call { function, arguments: vec![left, right], types: found.types, ty: found.returns }
}

pub(super) fn series(arguments: Vec<Expr>, ordinality: bool) -> Plan {
    let types = vec![Type::Int8; arguments.len()];
    let Ok(Resolved::Table(function)) = resolve_function("generate_series", &types).map(|found| found.target)
    else {
        panic!("no generate_series")
    };
    let node = Node::FunctionScan { function, arguments, types, ordinality };
    plan(node, 1 + usize::from(ordinality))
}

#[test]
fn a_function_gives_rows_and_counts_them() {
    let ground = Ground::new();
    let rows = ground.run(series(vec![literal(5), literal(9), literal(2)], true)).unwrap();
    assert_eq!(rows, [ints([5, 1]), ints([7, 2]), ints([9, 3])]);
    // Nothing is made that nobody asks for.
    let first = limit(series(vec![literal(1), literal(i64::MAX)], false), Some(literal(3)), None);
    assert_eq!(ground.run(first).unwrap().concat(), ints([1, 2, 3]));
}

#[test]
fn a_lateral_function_takes_its_arguments_from_the_row() {
    let ground = Ground::new();
    let node = Node::NestedLoop {
        kind: JoinKind::Left,
        left: Box::new(numbers(0..4)),
        right: Box::new(series(vec![literal(1), Expr::Slot(0)], true)),
        bind: vec![(0, column(0))],
        condition: None,
    };
    let rows = ground.run_with(with_subplans(plan(node, 3), Vec::new(), 1), u64::MAX, 2).unwrap();
    assert_eq!(rows.len(), 1 + 1 + 2 + 3);
    assert_eq!(rows[0], [int(0), Value::Null, Value::Null]);
    assert_eq!(rows[6], ints([3, 3, 3]));
}

#[test]
fn strict_functions_are_not_called_with_null() {
    let ground = Ground::new();
    let exprs = vec![operator("+", column(0), literal(1)), operator("+", column(0), literal(None))];
    let projected = plan(Node::Project { input: Box::new(numbers(0..2)), exprs }, 2);
    assert_eq!(ground.run(projected).unwrap(), [[int(1), Value::Null], [int(2), Value::Null]]);
}

#[test]
fn a_long_scan_can_be_cancelled() {
    let ground = Ground::new();
    let endless = series(vec![literal(1), literal(i64::MAX)], false);
    let none = filter(endless, compare(column(0), Comparison::Less, literal(0)));
    let environment = ground.environment(u64::MAX);
    let mut running = Running::new(Arc::new(statement(none)), Vec::new(), false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            ground.cancel.store(true, Ordering::Relaxed);
        });
        let error = running.next(&environment, BATCH_ROWS, &mut Batch::new()).unwrap_err();
        assert_eq!(error.state(), crate::SqlState::QUERY_CANCELED);
    });
}

/// One level more around an expression, of another kind each time.
fn around(level: usize, inner: Expr) -> Expr {
    match level % 8 {
        0 => operator("+", inner, literal(1)),
        1 => Expr::Coalesce(vec![literal(None), inner]),
        2 => Expr::Case {
            branches: vec![(Expr::Literal(Value::Bool(false)), literal(1))],
            otherwise: Box::new(inner),
        },
        3 => Expr::Extreme { arguments: vec![inner, literal(-1)], greatest: true },
        4 => Expr::Cast {
            argument: Box::new(inner),
            from: Type::Int8,
            to: Type::Int8,
            modifier: NO_MODIFIER,
            explicit: true,
        },
        5 => Expr::Case {
            branches: vec![(Expr::Not(Box::new(Expr::IsNull(Box::new(inner)))), literal(level as i64))],
            otherwise: Box::new(literal(0)),
        },
        6 => Expr::Subscript {
            array: Box::new(Expr::Array { elements: vec![inner], element: Type::Int8 }),
            index: Box::new(literal(1)),
        },
        _ => Expr::Case {
            branches: vec![(
                Expr::And(vec![Expr::Or(vec![equal(inner, literal(-7)), Expr::Literal(Value::Bool(true))])]),
                literal(3),
            )],
            otherwise: Box::new(literal(0)),
        },
    }
}

#[test]
fn expressions_as_deep_as_the_binder_lets_pass_need_little_stack() {
    assert!(cast::context(Type::Int8, Type::Int8).is_some());
    let deep = || (0..1100).fold(literal(1), |inner, level| around(level, inner));
    let run = move || {
        let ground = Ground::new();
        ground
            .environment(u64::MAX)
            .run(&[], |context| deep().eval(&[], context).map(|value| value.into_owned()))
    };
    let thread = std::thread::Builder::new().stack_size(1536 << 10).spawn(run).unwrap();
    assert!(thread.join().unwrap().is_ok());
}

#[test]
fn subqueries_as_deep_as_the_binder_lets_pass_need_little_stack() {
    // Each within the condition of the next one.
    let depth = 100;
    let subplans: Vec<Plan> = (0..depth)
        .map(|level| {
            let inner = Expr::Subquery { subplan: level + 1, bind: Vec::new(), kind: SubplanKind::Exists };
            let condition = if level + 1 < depth { inner } else { Expr::Literal(Value::Bool(true)) };
            filter(numbers(0..3), condition)
        })
        .collect();
    let first = Expr::Subquery { subplan: 0, bind: Vec::new(), kind: SubplanKind::Exists };
    let statement = with_subplans(filter(numbers(0..3), first), subplans, 0);
    let run = move || Ground::new().run_with(statement, u64::MAX, 10).unwrap().len();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap(), 3);
}
