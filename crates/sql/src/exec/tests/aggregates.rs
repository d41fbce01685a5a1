//! Aggregates over groups of all kinds.

use super::*;
use crate::SqlState;
use crate::functions::{Resolved, resolve_function};
use crate::types::Array;
use std::collections::{BTreeMap, BTreeSet};

/// A call of an aggregate.
pub(super) fn call(name: &str, arguments: &[(Expr, Type)]) -> AggregateExpr {
    let types: Vec<Type> = arguments.iter().map(|(_, ty)| *ty).collect();
    let Ok(Resolved::Aggregate(aggregate)) = resolve_function(name, &types).map(|found| found.target) else {
        panic!("there is no aggregate {name}")
    };
    let arguments = arguments.iter().map(|(expr, _)| expr.clone()).collect();
    AggregateExpr { aggregate, arguments, types, distinct: false, filter: None, order: Vec::new() }
}

fn number(index: usize) -> (Expr, Type) {
    (column(index), Type::Int4)
}

/// What the aggregates of [`all`] give for some rows.
fn expected(rows: &[&Vec<Value>]) -> Vec<Value> {
    let numbers: Vec<i64> = rows.iter().filter_map(|row| row[1].as_int()).collect();
    let distinct: BTreeSet<i64> = numbers.iter().copied().collect();
    let texts = rows.iter().map(|row| row[2].clone());
    let mut descending: Vec<i64> = numbers.iter().copied().filter(|number| *number < 10).collect();
    descending.sort_by(|a, b| b.cmp(a));
    let array =
        Array { element: Type::Int4, values: descending.into_iter().map(Value::Int).collect(), lower: 1 };
    let has = |filled: bool, value: Value| if filled { value } else { Value::Null };
    vec![
        int(rows.len() as i64),
        int(numbers.len() as i64),
        has(!numbers.is_empty(), int(numbers.iter().sum())),
        has(!distinct.is_empty(), int(distinct.iter().sum())),
        texts.max().unwrap_or_default(),
        has(!array.values.is_empty(), Value::Array(Arc::new(array))),
    ]
}

/// count(*), count(b), sum(b), sum(distinct b), max(c), array_agg(b order by b desc) filter (where b < 10)
fn all() -> Vec<AggregateExpr> {
    let distinct = AggregateExpr { distinct: true, ..call("sum", &[number(1)]) };
    let ordered = AggregateExpr {
        order: vec![by(1, true, false)],
        filter: Some(compare(column(1), Comparison::Less, literal(10))),
        ..call("array_agg", &[number(1)])
    };
    let max = call("max", &[(column(2), Type::Text)]);
    vec![call("count", &[]), call("count", &[number(1)]), call("sum", &[number(1)]), distinct, max, ordered]
}

fn rows(seed: u64, count: usize, keys: u64) -> Vec<Vec<Value>> {
    let mut rows = random_rows(seed, count, keys);
    for (index, row) in rows.iter_mut().enumerate() {
        row[1] = if index % 11 == 0 { Value::Null } else { int(row[1].as_int().unwrap() & 63) };
    }
    rows
}

fn grouped(rows: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let mut groups: BTreeMap<&Value, Vec<&Vec<Value>>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(&row[0]).or_default().push(row));
    groups.into_iter().map(|(key, rows)| [vec![key.clone()], expected(&rows)].concat()).collect()
}

#[test]
fn aggregates_of_one_group() {
    let ground = Ground::new();
    let rows = rows(1, 3000, 500);
    let single = group(values(&rows), Grouping::Single, Vec::new(), all());
    assert!(ground.run_both(&single, true) == [expected(&rows.iter().collect::<Vec<_>>())]);
    let nothing = group(no_rows(3), Grouping::Single, Vec::new(), all());
    assert_eq!(ground.run(nothing).unwrap(), [expected(&[])]);
}

#[test]
fn aggregates_of_groups_in_order() {
    let ground = Ground::new();
    for rows in [rows(2, 3000, 100), with_text_keys(rows(3, 3000, 100))] {
        let sorted = sort(values(&rows), vec![by(0, false, false)], 0, None);
        let ordered = group(sorted, Grouping::Sorted, vec![column(0)], all());
        assert!(ground.run_both(&ordered, true) == grouped(&rows));
    }
}

#[test]
fn aggregates_of_groups_in_no_order() {
    let ground = Ground::new();
    for rows in [rows(4, 5000, 1000), with_text_keys(rows(5, 5000, 1000))] {
        // Those that sort make it sort by groups.
        let all_of_them = group(values(&rows), Grouping::Hash, vec![column(0)], all());
        let all_expected = grouped(&rows);
        assert!(ground.run_both(&all_of_them, false) == all_expected);
        let some: Vec<AggregateExpr> =
            all().into_iter().filter(|call| !call.distinct && call.order.is_empty()).collect();
        let hashed = group(values(&rows), Grouping::Hash, vec![column(0)], some);
        let expected: Vec<Vec<Value>> =
            all_expected.into_iter().map(|row| [&row[..4], &row[5..6]].concat()).collect();
        assert!(ground.run_both(&hashed, false) == expected);
    }
}

#[test]
fn groups_by_expressions_and_several_columns() {
    let ground = Ground::new();
    let rows = rows(6, 4000, 300);
    let small = Expr::IsNull(Box::new(column(1)));
    let keys = vec![column(2), small, column(0)];
    let counted = group(values(&rows), Grouping::Hash, keys, vec![call("count", &[])]);
    let mut counts: BTreeMap<Vec<Value>, i64> = BTreeMap::new();
    for row in &rows {
        let key = vec![row[2].clone(), Value::Bool(row[1].is_null()), row[0].clone()];
        *counts.entry(key).or_default() += 1;
    }
    let expected: Vec<Vec<Value>> =
        counts.into_iter().map(|(key, count)| [key, vec![int(count)]].concat()).collect();
    assert!(ground.run_both(&counted, false) == expected);
}

/// Runs a grouping as far as its first row; gives the most memory that it held.
fn memory_of(ground: &Ground, plan: Plan, work_bytes: u64) -> Result<usize> {
    let mut running = Running::new(Arc::new(statement(plan)), Vec::new(), true);
    assert!(running.next(&ground.environment(work_bytes), 1, &mut Batch::new())?);
    Ok(running.profile()[0].memory_bytes as usize)
}

fn long_text(row: &[Value]) -> usize {
    row[2].as_str().map(str::len).filter(|len| *len > 24).unwrap_or(0)
}

#[test]
fn states_that_grow_are_charged() {
    let ground = Ground::new();
    let rows = rows(7, 4000, 10);
    let call = call("array_agg", &[(column(2), Type::Text)]);
    let gathered = group(values(&rows), Grouping::Hash, vec![column(0)], vec![call]);
    let bytes: usize = rows.iter().map(|row| size_of::<Value>() + long_text(row)).sum();
    assert!(memory_of(&ground, gathered, u64::MAX).unwrap() >= bytes, "{bytes}");
}

#[test]
fn states_that_begin_with_short_values_are_charged() {
    let ground = Ground::new();
    let rows: Vec<Vec<Value>> = (0..4000).map(|row| vec![int(row % 4), Value::text("short")]).collect();
    let separated = [(column(1), Type::Text), (Expr::Literal(Value::text(",")), Type::Text)];
    let call = call("string_agg", &separated);
    let gathered = group(values(&rows), Grouping::Hash, vec![column(0)], vec![call]);
    assert!(memory_of(&ground, gathered, u64::MAX).unwrap() >= 4000 * 6);
}

#[test]
fn an_array_has_no_room_beyond_its_elements() {
    let ground = Ground::new();
    let call = call("array_agg", &[number(0)]);
    let rows = ground.run(group(numbers(0..5), Grouping::Single, Vec::new(), vec![call])).unwrap();
    let Value::Array(array) = &rows[0][0] else { panic!("{rows:?}") };
    assert_eq!((array.values.len(), array.values.capacity()), (5, 5));
}

#[test]
fn what_is_gathered_in_order_is_charged() {
    let ground = Ground::new();
    let rows: Vec<Vec<Value>> = (0..4000)
        .map(|row| vec![int(0), int(row), Value::text(format!("a text of more than 24 bytes: {row}"))])
        .collect();
    let bytes: usize = rows.iter().map(|row| size_of::<Value>() + long_text(row)).sum();
    let text = || call("array_agg", &[(column(2), Type::Text)]);
    let ordered = AggregateExpr { order: vec![by(1, false, false)], ..text() };
    let distinct = AggregateExpr { distinct: true, ..text() };
    for call in [ordered, distinct] {
        let gathered = group(values(&rows), Grouping::Single, Vec::new(), vec![call]);
        assert!(memory_of(&ground, gathered, TINY).unwrap() >= bytes, "{bytes}");
    }
    let _taken = ground.engine.work_memory(48 << 20).unwrap();
    let lots = vec![vec![Value::text("x".repeat(1 << 20))]; 20];
    let call =
        AggregateExpr { order: vec![by(0, false, false)], ..call("array_agg", &[(column(0), Type::Text)]) };
    let gathered = group(values(&lots), Grouping::Single, Vec::new(), vec![call]);
    let error = memory_of(&ground, gathered, TINY).unwrap_err();
    assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
}
