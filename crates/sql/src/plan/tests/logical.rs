//! Plans of logical trees.

use super::fixture::{
    Fixture, Source, aggregate, and, compare, eq, filter, int, join, limit, operator, parameter, sort, text,
};
use crate::catalog::ColumnStatistics;
use crate::logical::{
    Comparison, Delete, JoinKind, LockStrength, LockWait, Output, Planned, Query, Recheck, RecheckStep, Rel,
    Scalar, Subquery, SubqueryKind, Update,
};
use crate::types::Type;

/// A shop: few customers, many orders, more lines.
fn shop() -> Fixture {
    let mut shop = Fixture::new();
    shop.table(
        "customer",
        "id int4!, name text!, city text, balance int8",
        "id",
        &["customer_name: name", "unique customer_city_name: city, name"],
        10_000.0,
    );
    shop.table(
        "orders",
        "id int4!, customer int4!, placed date!, total int8, state text",
        "id",
        &["orders_customer: customer, placed", "orders_placed: placed desc"],
        1_000_000.0,
    );
    shop.table(
        "line",
        "orders int4!, number int4!, item int4!, amount int4",
        "orders, number",
        &["line_item: item"],
        5_000_000.0,
    );
    shop.table("item", "id int4!, name text!, price int8", "id", &[], 100_000.0);
    shop.table("log", "at timestamp!, what text", "", &[], 50_000.0);
    shop.statistics("orders", "customer", ColumnStatistics { distinct: 10_000.0, ..Default::default() });
    shop.statistics(
        "orders",
        "state",
        ColumnStatistics {
            distinct: 3.0,
            common: vec![("done".into(), 0.9), ("open".into(), 0.09), ("lost".into(), 0.01)],
            ..Default::default()
        },
    );
    shop.statistics("line", "orders", ColumnStatistics { distinct: -0.2, ..Default::default() });
    shop.statistics("line", "item", ColumnStatistics { distinct: 100_000.0, ..Default::default() });
    shop
}

fn one(shop: &mut Fixture, build: impl FnOnce(&mut Fixture, &Source) -> Rel, output: &str) -> String {
    let orders = shop.from("orders", "orders");
    let rel = build(shop, &orders);
    shop.explain(rel, &[orders.id(output)])
}

#[test]
fn access_paths() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let mut add = |name: &'static str, plan: String| plans.push((name, plan));
    add(
        "a row by its key",
        one(&mut shop, |_, o| filter(o.rel.clone(), eq(o.col("id"), parameter(1, Type::Int4))), "total"),
    );
    add(
        "a key of another width",
        one(&mut shop, |_, o| filter(o.rel.clone(), eq(parameter(1, Type::Int8), o.col("id"))), "total"),
    );
    add("everything", one(&mut shop, |_, o| o.rel.clone(), "total"));
    add(
        "a range of the key",
        one(
            &mut shop,
            |_, o| {
                filter(
                    o.rel.clone(),
                    and(vec![
                        compare(Comparison::Greater, o.col("id"), int(10)),
                        compare(Comparison::LessOrEqual, o.col("id"), int(20)),
                    ]),
                )
            },
            "total",
        ),
    );
    add(
        "equality and range of an index",
        one(
            &mut shop,
            |_, o| {
                filter(
                    o.rel.clone(),
                    and(vec![
                        eq(o.col("customer"), parameter(1, Type::Int4)),
                        compare(Comparison::GreaterOrEqual, o.col("placed"), parameter(2, Type::Date)),
                        eq(o.col("state"), text("open")),
                    ]),
                )
            },
            "total",
        ),
    );
    add(
        "the newest ones",
        one(&mut shop, |_, o| limit(sort(o.rel.clone(), &[(o.col("placed"), true)]), 10), "id"),
    );
    add(
        "the newest ones of a customer",
        one(
            &mut shop,
            |_, o| {
                let of = filter(o.rel.clone(), eq(o.col("customer"), int(7)));
                limit(sort(of, &[(o.col("placed"), true)]), 10)
            },
            "total",
        ),
    );
    add(
        "sorted partly by an index",
        one(
            &mut shop,
            |_, o| limit(sort(o.rel.clone(), &[(o.col("placed"), true), (o.col("total"), false)]), 10),
            "id",
        ),
    );
    add(
        "sorted by what no index has",
        one(&mut shop, |_, o| limit(sort(o.rel.clone(), &[(o.col("total"), false)]), 10), "id"),
    );
    add(
        "only what the index has",
        one(&mut shop, |_, o| filter(o.rel.clone(), eq(o.col("customer"), int(7))), "placed"),
    );
    add(
        "a list of keys",
        one(
            &mut shop,
            |_, o| {
                let list = Scalar::InList {
                    argument: Box::new(o.col("id")),
                    list: vec![int(3), int(1), int(3), int(2)],
                };
                filter(o.rel.clone(), list)
            },
            "total",
        ),
    );
    add(
        "alternatives of one column",
        one(
            &mut shop,
            |_, o| {
                let either =
                    Scalar::Or(vec![eq(o.col("id"), int(3)), eq(o.col("id"), parameter(1, Type::Int4))]);
                filter(o.rel.clone(), either)
            },
            "total",
        ),
    );
    add(
        "any of an array",
        one(
            &mut shop,
            |_, o| {
                filter(
                    o.rel.clone(),
                    Scalar::Quantified {
                        argument: Box::new(o.col("id")),
                        op: Comparison::Equal,
                        array: Box::new(parameter(1, Type::Int4Array)),
                        all: false,
                    },
                )
            },
            "total",
        ),
    );
    add("NULL in an index", {
        let c = shop.from("customer", "customer");
        let rel = filter(c.rel.clone(), Scalar::IsNull(Box::new(c.col("city"))));
        shop.explain(rel, &[c.id("balance")])
    });
    add("a pattern with a beginning", {
        let c = shop.from("customer", "customer");
        let rel = filter(c.rel.clone(), operator("~~", c.col("name"), text("Smi%h"), Type::Text));
        shop.explain(rel, &[c.id("balance")])
    });
    add(
        "never true",
        one(
            &mut shop,
            |_, o| {
                filter(
                    o.rel.clone(),
                    eq(o.col("id"), Scalar::Literal { value: crate::Value::Null, ty: Type::Int4 }),
                )
            },
            "id",
        ),
    );
    super::golden("access.golden", &plans);
}

#[test]
fn joins() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let mut add = |name: &'static str, plan: String| plans.push((name, plan));
    let (c, o, l, i) = (
        shop.from("customer", "c"),
        shop.from("orders", "o"),
        shop.from("line", "l"),
        shop.from("item", "i"),
    );
    let on = |a: Scalar, b: Scalar| Some(eq(a, b));
    let co = || join(JoinKind::Inner, c.rel.clone(), o.rel.clone(), on(c.col("id"), o.col("customer")));
    let all = || {
        let col = join(JoinKind::Inner, co(), l.rel.clone(), on(o.col("id"), l.col("orders")));
        join(JoinKind::Inner, col, i.rel.clone(), on(l.col("item"), i.col("id")))
    };
    add(
        "few rows look up many",
        shop.explain(filter(co(), eq(c.col("name"), text("Smith"))), &[o.id("total")]),
    );
    add("many rows are hashed", shop.explain(co(), &[c.id("name"), o.id("total")]));
    add(
        "four tables from one order",
        shop.explain(filter(all(), eq(o.col("id"), int(5))), &[c.id("name"), i.id("name")]),
    );
    add("four tables from one item", shop.explain(filter(all(), eq(i.col("id"), int(5))), &[c.id("name")]));
    add(
        "a constant for both sides",
        shop.explain(filter(co(), eq(o.col("customer"), int(5))), &[c.id("name"), o.id("total")]),
    );
    let left = || join(JoinKind::Left, c.rel.clone(), o.rel.clone(), on(c.col("id"), o.col("customer")));
    add("left join", shop.explain(left(), &[c.id("name"), o.id("total")]));
    add(
        "left join of few",
        shop.explain(filter(left(), eq(c.col("id"), int(3))), &[c.id("name"), o.id("total")]),
    );
    add(
        "left join that is inner",
        shop.explain(filter(left(), compare(Comparison::Greater, o.col("id"), int(3))), &[c.id("name")]),
    );
    add(
        "left join with a condition afterwards",
        shop.explain(filter(left(), Scalar::IsNull(Box::new(o.col("id")))), &[c.id("name")]),
    );
    add("left join with a condition of its own", {
        let rel = join(
            JoinKind::Left,
            c.rel.clone(),
            o.rel.clone(),
            Some(and(vec![
                eq(c.col("id"), o.col("customer")),
                eq(o.col("state"), text("lost")),
                compare(Comparison::Greater, c.col("balance"), int(0)),
            ])),
        );
        shop.explain(rel, &[c.id("name"), o.id("total")])
    });
    add("full join", {
        let rel = join(JoinKind::Full, c.rel.clone(), o.rel.clone(), on(c.col("id"), o.col("customer")));
        shop.explain(rel, &[c.id("name"), o.id("total")])
    });
    add(
        "product",
        shop.explain(
            join(JoinKind::Inner, c.rel.clone(), i.rel.clone(), None),
            &[c.id("name"), i.id("name")],
        ),
    );
    add("ranges of another table", {
        let rel = join(
            JoinKind::Inner,
            c.rel.clone(),
            o.rel.clone(),
            Some(and(vec![
                compare(Comparison::Greater, o.col("id"), c.col("id")),
                compare(Comparison::Less, o.col("id"), c.col("balance")),
            ])),
        );
        shop.explain(filter(rel, eq(c.col("name"), text("Smith"))), &[o.id("total")])
    });
    add("index order through a join, limited", {
        let rel = limit(sort(co(), &[(o.col("placed"), true)]), 5);
        shop.explain(rel, &[c.id("name"), o.id("placed")])
    });
    super::golden("joins.golden", &plans);
}

fn exists(rel: Rel) -> Scalar {
    Scalar::Subquery(Box::new(Subquery {
        query: Query { rel, output: Vec::new() },
        kind: SubqueryKind::Exists,
    }))
}

#[test]
fn subqueries() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let mut add = |name: &'static str, plan: String| plans.push((name, plan));
    let (c, o) = (shop.from("customer", "c"), shop.from("orders", "o"));
    let correlated = || {
        filter(o.rel.clone(), and(vec![eq(o.col("customer"), c.col("id")), eq(o.col("state"), text("lost"))]))
    };
    add("exists", shop.explain(filter(c.rel.clone(), exists(correlated())), &[c.id("name")]));
    add(
        "exists for one",
        shop.explain(
            filter(c.rel.clone(), and(vec![eq(c.col("id"), int(4)), exists(correlated())])),
            &[c.id("name")],
        ),
    );
    add(
        "not exists",
        shop.explain(filter(c.rel.clone(), Scalar::Not(Box::new(exists(correlated())))), &[c.id("name")]),
    );
    add(
        "exists or else",
        shop.explain(
            filter(c.rel.clone(), Scalar::Or(vec![exists(correlated()), eq(c.col("balance"), int(0))])),
            &[c.id("name")],
        ),
    );
    add(
        "exists at all",
        shop.explain(
            filter(c.rel.clone(), exists(filter(o.rel.clone(), eq(o.col("id"), int(1))))),
            &[c.id("name")],
        ),
    );
    let member = |argument: Scalar, rel: Rel, output| {
        Scalar::Subquery(Box::new(Subquery {
            query: Query { rel, output: vec![Output { column: output, name: String::new() }] },
            kind: SubqueryKind::Quantified { arguments: vec![argument], op: Comparison::Equal, all: false },
        }))
    };
    let lost = || filter(o.rel.clone(), eq(o.col("placed"), parameter(1, Type::Date)));
    add(
        "in",
        shop.explain(filter(c.rel.clone(), member(c.col("id"), lost(), o.id("customer"))), &[c.id("name")]),
    );
    add(
        "not in",
        shop.explain(
            filter(c.rel.clone(), Scalar::Not(Box::new(member(c.col("id"), lost(), o.id("customer"))))),
            &[c.id("name")],
        ),
    );
    let highest = shop.new_column("max", Type::Int8);
    let scalar = |rel: Rel| {
        Scalar::Subquery(Box::new(Subquery {
            query: Query { rel, output: vec![Output { column: highest, name: String::new() }] },
            kind: SubqueryKind::Scalar,
        }))
    };
    let max = |rel: Rel| Rel::Aggregate {
        input: Box::new(rel),
        groups: Vec::new(),
        aggregates: vec![(highest, aggregate("max", vec![o.col("total")], &[Type::Int8]))],
    };
    add("a scalar for each row", {
        let value = shop.new_column("best", Type::Int8);
        let rel = Rel::Project {
            input: Box::new(c.rel.clone()),
            columns: vec![
                (c.id("name"), c.col("name")),
                (value, scalar(max(filter(o.rel.clone(), eq(o.col("customer"), c.col("id")))))),
            ],
        };
        shop.explain(rel, &[c.id("name"), value])
    });
    add(
        "a scalar for all",
        shop.explain(
            filter(c.rel.clone(), eq(c.col("balance"), scalar(max(o.rel.clone())))),
            &[c.id("name")],
        ),
    );
    super::golden("subqueries.golden", &plans);
}

#[test]
fn groups_and_sets() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let mut add = |name: &'static str, plan: String| plans.push((name, plan));
    let o = shop.from("orders", "orders");
    let count = shop.new_column("count", Type::Int8);
    let counted = |group: &[&str], rel: Rel| Rel::Aggregate {
        input: Box::new(rel),
        groups: group.iter().map(|name| (o.id(name), o.col(name))).collect(),
        aggregates: vec![(count, aggregate("count", Vec::new(), &[]))],
    };
    add("few groups", shop.explain(counted(&["state"], o.rel.clone()), &[o.id("state"), count]));
    add(
        "groups in an index's order",
        shop.explain(counted(&["customer"], o.rel.clone()), &[o.id("customer"), count]),
    );
    add("all rows", shop.explain(counted(&[], o.rel.clone()), &[count]));
    add(
        "a condition on groups",
        shop.explain(
            filter(
                counted(&["customer"], o.rel.clone()),
                and(vec![
                    eq(o.col("customer"), int(3)),
                    compare(Comparison::Greater, Scalar::Column(count), int(1)),
                ]),
            ),
            &[count],
        ),
    );
    for (name, function) in [("the least of an index", "min"), ("the greatest of an index", "max")] {
        let extreme = shop.new_column(function, Type::Date);
        add(
            name,
            shop.explain(
                Rel::Aggregate {
                    input: Box::new(o.rel.clone()),
                    groups: Vec::new(),
                    aggregates: vec![(extreme, aggregate(function, vec![o.col("placed")], &[Type::Date]))],
                },
                &[extreme],
            ),
        );
    }
    add("least and greatest", {
        let (low, high) = (shop.new_column("min", Type::Int4), shop.new_column("max", Type::Int4));
        shop.explain(
            Rel::Aggregate {
                input: Box::new(filter(o.rel.clone(), eq(o.col("customer"), int(9)))),
                groups: Vec::new(),
                aggregates: vec![
                    (low, aggregate("min", vec![o.col("placed")], &[Type::Date])),
                    (high, aggregate("max", vec![o.col("placed")], &[Type::Date])),
                ],
            },
            &[high, low],
        )
    });
    let named = |column: &str, rel: Rel| Rel::Project {
        input: Box::new(rel),
        columns: vec![(o.id(column), o.col(column))],
    };
    let distinct = |rel: Rel| Rel::Distinct { input: Box::new(rel), on: None };
    add("distinct", shop.explain(distinct(named("state", o.rel.clone())), &[o.id("state")]));
    add(
        "distinct in an index's order",
        shop.explain(limit(distinct(named("customer", o.rel.clone())), 5), &[o.id("customer")]),
    );
    add(
        "the first of each",
        shop.explain(
            Rel::Distinct {
                input: Box::new(sort(o.rel.clone(), &[(o.col("customer"), false), (o.col("placed"), true)])),
                on: Some(vec![o.col("customer")]),
            },
            &[o.id("customer"), o.id("placed")],
        ),
    );
    let i = shop.from("item", "item");
    let both = shop.new_column("id", Type::Int4);
    let union = |all| Rel::Set {
        operation: crate::logical::SetOperation::Union,
        all,
        left: (Box::new(o.rel.clone()), vec![o.id("id")]),
        right: (Box::new(i.rel.clone()), vec![i.id("id")]),
        columns: vec![both],
    };
    add("union all", shop.explain(filter(union(true), eq(Scalar::Column(both), int(3))), &[both]));
    add("union", shop.explain(union(false), &[both]));
    super::golden("groups.golden", &plans);
}

#[test]
fn changes_and_locks() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let mut add = |name: &'static str, plan: String| plans.push((name, plan));
    let table = |shop: &Fixture, name: &str| shop.catalog.table(name).expect("a table").clone();
    let o = shop.from("orders", "orders");
    let condition = eq(o.col("id"), parameter(1, Type::Int4));
    let row: Vec<_> = (0..5).map(|_| shop.new_column("new", Type::Int4)).collect();
    let update = Update {
        table: table(&shop, "orders"),
        old: o.ids(),
        source: filter(o.rel.clone(), condition.clone()),
        recheck: Some(condition.clone()),
        assignments: vec![(
            vec![3],
            operator(
                "+",
                o.col("total"),
                Scalar::Literal { value: crate::Value::Int(1), ty: Type::Int8 },
                Type::Int8,
            ),
        )],
        row,
        returning: None,
        checks: Vec::new(),
    };
    add("update by key", shop.explain_planned(Planned::Update(update)));
    let c = shop.from("customer", "c");
    let joined = and(vec![eq(o.col("customer"), c.col("id")), eq(c.col("name"), text("Smith"))]);
    let delete = Delete {
        table: table(&shop, "orders"),
        old: o.ids(),
        source: filter(join(JoinKind::Inner, o.rel.clone(), c.rel.clone(), None), joined.clone()),
        recheck: Some(joined.clone()),
        returning: Some(vec![
            (Output { column: o.id("id"), name: "id".into() }, o.col("id")),
            (Output { column: c.id("name"), name: "name".into() }, c.col("name")),
        ]),
    };
    add("delete by a join", shop.explain_planned(Planned::Delete(delete)));
    let locked = Rel::Lock {
        input: Box::new(sort(
            filter(o.rel.clone(), eq(o.col("customer"), int(3))),
            &[(o.col("placed"), false)],
        )),
        tables: vec![(o.id("id"), LockStrength::Update, LockWait::SkipLocked)],
        recheck: Recheck { fixed: vec![], steps: vec![RecheckStep::Holds(eq(o.col("customer"), int(3)))] },
    };
    let rel = Rel::Project { input: Box::new(limit(locked, 1)), columns: vec![(o.id("id"), o.col("id"))] };
    add("a queue", shop.explain(rel, &[o.id("id")]));
    super::golden("changes.golden", &plans);
}

#[test]
fn forced_plans() {
    let mut shop = shop();
    let mut plans = Vec::new();
    let (c, o) = (shop.from("customer", "c"), shop.from("orders", "o"));
    let rel = filter(
        join(JoinKind::Inner, c.rel.clone(), o.rel.clone(), Some(eq(c.col("id"), o.col("customer")))),
        eq(c.col("name"), text("Smith")),
    );
    let plan = |shop: &Fixture| shop.explain(rel.clone(), &[o.id("total")]);
    shop.settings.nestloop = false;
    plans.push(("no nested loops", plan(&shop)));
    shop.settings.hashjoin = false;
    plans.push(("neither nested loops nor hash joins", plan(&shop)));
    shop.settings.nestloop = true;
    shop.settings.indexscan = false;
    shop.settings.indexonlyscan = false;
    plans.push(("no indexes, no hash joins", plan(&shop)));
    shop.settings = crate::session::PlannerSettings::new(1 << 20, 16 << 20);
    plans.push(("little memory", plan(&shop)));
    shop.settings.look_ahead = false;
    plans.push(("little memory, no look-ahead", plan(&shop)));
    super::golden("forced.golden", &plans);
}
