//! Plans of statements: the queries of TPC-C and pgbench, and what has gone wrong once.

use super::fixture::Fixture;
use crate::catalog::{Storage, Table};
use crate::effort;
use crate::physical::Expr;
use crate::plan::Estimator;
use crate::session::{Interrupt, Reason, SESSION_STACK};
use crate::types::Value;
use gannet_store::{Engine, EngineOptions};
use std::cell::Cell;
use std::fmt::Write as _;

/// The tables of TPC-C, with ten warehouses.
fn tpcc() -> Fixture {
    let mut db = Fixture::new();
    db.table("warehouse", "w_id int4!, w_name text, w_tax numeric, w_ytd numeric", "w_id", &[], 10.0);
    db.table(
        "district",
        "d_id int4!, d_w_id int4!, d_name text, d_tax numeric, d_ytd numeric, d_next_o_id int4",
        "d_w_id, d_id",
        &[],
        100.0,
    );
    db.table(
        "customer",
        "c_id int4!, c_d_id int4!, c_w_id int4!, c_first text, c_last text, c_credit text, c_discount numeric, c_balance numeric",
        "c_w_id, c_d_id, c_id",
        &["customer_name: c_w_id, c_d_id, c_last, c_first"],
        300_000.0,
    );
    db.table(
        "orders",
        "o_id int4!, o_d_id int4!, o_w_id int4!, o_c_id int4, o_entry_d timestamp, o_carrier_id int4, o_ol_cnt int4",
        "o_w_id, o_d_id, o_id",
        &["orders_customer: o_w_id, o_d_id, o_c_id, o_id"],
        300_000.0,
    );
    db.table(
        "new_order",
        "no_o_id int4!, no_d_id int4!, no_w_id int4!",
        "no_w_id, no_d_id, no_o_id",
        &[],
        90_000.0,
    );
    db.table(
        "order_line",
        "ol_o_id int4!, ol_d_id int4!, ol_w_id int4!, ol_number int4!, ol_i_id int4, ol_quantity int4, ol_amount numeric",
        "ol_w_id, ol_d_id, ol_o_id, ol_number",
        &[],
        3_000_000.0,
    );
    db.table("item", "i_id int4!, i_name text, i_price numeric", "i_id", &[], 100_000.0);
    db.table(
        "stock",
        "s_i_id int4!, s_w_id int4!, s_quantity int4, s_ytd int8",
        "s_w_id, s_i_id",
        &[],
        1_000_000.0,
    );
    db.table("history", "h_c_id int4, h_w_id int4, h_amount numeric", "", &[], 300_000.0);
    db
}

fn plans(db: &Fixture, file: &str, statements: &[&'static str]) {
    let plans: Vec<(&str, String)> = statements.iter().map(|sql| (*sql, db.sql(sql))).collect();
    super::golden(file, &plans);
}

#[test]
fn transactions_of_tpcc() {
    plans(
        &tpcc(),
        "tpcc.golden",
        &[
            "select w_tax from warehouse where w_id = $1",
            "select c_discount, c_last, c_credit, w_tax from customer, warehouse where w_id = $1 and c_w_id = w_id and c_d_id = $2 and c_id = $3",
            "select d_next_o_id, d_tax from district where d_id = $1 and d_w_id = $2 for update",
            "update district set d_next_o_id = d_next_o_id + 1 where d_id = $1 and d_w_id = $2 returning d_next_o_id, d_tax",
            "insert into orders values ($1, $2, $3, $4, $5, null, $6)",
            "select i_price, i_name from item where i_id = $1",
            "select s_quantity from stock where s_i_id = $1 and s_w_id = $2 for update",
            "select count(c_id) from customer where c_last = $1 and c_d_id = $2 and c_w_id = $3",
            "select c_first, c_balance from customer where c_last = $1 and c_d_id = $2 and c_w_id = $3 order by c_first",
            "update customer set c_balance = c_balance - $1 where c_w_id = $2 and c_d_id = $3 and c_id = $4",
            "select o_id, o_carrier_id, o_entry_d from orders where o_w_id = $1 and o_d_id = $2 and o_c_id = $3 order by o_id desc limit 1",
            "select ol_i_id, ol_quantity, ol_amount from order_line where ol_o_id = $1 and ol_d_id = $2 and ol_w_id = $3",
            "select no_o_id from new_order where no_d_id = $1 and no_w_id = $2 order by no_o_id limit 1 for update",
            "select min(no_o_id) from new_order where no_d_id = $1 and no_w_id = $2",
            "delete from new_order where no_o_id = $1 and no_d_id = $2 and no_w_id = $3",
            "select sum(ol_amount) from order_line where ol_o_id = $1 and ol_d_id = $2 and ol_w_id = $3",
            "select count(distinct s_i_id) from order_line, stock where ol_w_id = $1 and ol_d_id = $2 and ol_o_id < $3 and ol_o_id >= $3 - 20 and s_w_id = $1 and s_i_id = ol_i_id and s_quantity < $4",
            "select d_w_id, d_id, d_next_o_id - 1 - max(o_id) from district join orders on o_w_id = d_w_id and o_d_id = d_id group by d_w_id, d_id, d_next_o_id",
            "select o_id from orders o where not exists (select 1 from order_line l where l.ol_w_id = o.o_w_id and l.ol_d_id = o.o_d_id and l.ol_o_id = o.o_id)",
            "select c_last, count(*) from customer left join orders on o_w_id = c_w_id and o_d_id = c_d_id and o_c_id = c_id where c_w_id = 1 and c_d_id = 2 group by c_last order by 2 desc limit 10",
            "select i_name from item where i_id in (select ol_i_id from order_line where ol_w_id = 1 and ol_d_id = 1 and ol_o_id = 7)",
        ],
    );
}

/// What is known of columns above a condition must not be used below it.
#[test]
fn a_limit_below_a_condition_is_sorted() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4, c int4", "a", &["t_b: b"], 1000.0);
    plans(
        &db,
        "known.golden",
        &[
            "select * from (select b, c from t order by c, b limit 5) x where c = 3",
            "select max(b) from (select b from t order by b limit 5) x where b = 3",
            "select x.a, y.b from t x left join (select b from t where b = 3 order by b) y on x.b = y.b order by y.b limit 5",
            "select a from t where b = 3 order by b, a",
            "select x.a from t x join t y on y.a = x.b where x.a > 5 order by y.a limit 3",
            "with x as (select b from t order by b limit 5) select max(b) from x where b = 3",
        ],
    );
}

#[test]
fn what_may_give_other_rows_is_computed_once() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4, c int4", "a", &["t_b: b"], 1000.0);
    plans(
        &db,
        "once.golden",
        &[
            "with x as (select b, c from t limit 5) select (select count(b) from x), (select count(c) from x)",
            "with x(n, m) as (select b, c from t order by c limit 5) select p.n, q.m from x p join x q on p.n = q.m where q.n > 3",
            "with x as (select b from t limit 5), y as (select b from x where b > 1 limit 2) select * from y p, y q, x",
            "with x as (select b from t limit 5), y as (select b from x where b > 1 limit 2) select * from y",
            "with x as (select b from t) select * from x p, x q where p.b = 1 and q.b = 2",
            "select min(b), max(b) from (select b from t offset 10) s",
            "select min(b), max(b) from (select b from t where c > 1) s",
        ],
    );
}

#[test]
fn conditions_move_to_where_they_are_cheap() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4, c text", "a", &["t_b: b", "t_c: c"], 100_000.0);
    plans(
        &db,
        "conditions.golden",
        &[
            "select * from t where a = 3000000000",
            "select * from t where (a, b) > (5, 6) order by a limit 10",
            "select * from t where not (a < 5 or b is null)",
            "select x.c, s.n from t x left join (select b, count(*) n from t group by b) s on s.b = x.a where x.a = 5",
            "select x.c from t x where x.a = 5 and not exists (select from (select b from t union select a from t) s where s.b = x.a)",
            "select * from t where b = 5 and c = 'x' or b = 5 and c = 'y'",
            "select * from t where b in (1, 2, 2, null)",
            "select * from t where b = any ('{1,2}'::int[])",
            "select * from t where c like 'ab\\_%'",
            "select * from t where c like 'ab'",
            "select * from (select b, count(*) as n from t group by b) x where b = 3 and n > 1",
            "select * from (select a from t union all select b from t) x where a = 3",
            "select distinct b from t where b > 99990",
            "select * from t where true and a = 1",
            "select * from t where a = 1 and null",
            "select (select c from t y where y.a = x.b) from t x where a < 10",
            "select * from t x, lateral (select * from t y where y.b = x.b order by y.a limit 2) z where x.a = 5",
            "select * from generate_series(1, 10) g join t on t.a = g",
        ],
    );
}

#[test]
fn very_many_tables_are_joined() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4", "a", &[], 1000.0);
    for tables in [12, 60] {
        let mut sql = "select * from t x0".to_owned();
        for number in 1..tables {
            sql.push_str(&format!(" join t x{number} on x{number}.a = x{}.b", number - 1));
        }
        assert_eq!(db.sql(&sql).matches(" on t x").count(), tables);
        // Conditions come to their tables also where these are too many for one region.
        let plan = db.sql(&format!("{sql} where x0.a = 7 and x3.b = 5 and x1.a + x2.b > 3"));
        assert!(plan.contains("Index Cond: (x0.a = 7)") && !plan.contains("Filter: ((x0.a"), "{plan}");
    }
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4", "a", &[], 1000.0);
    let sum = |terms: usize| format!("select * from t where a + b{} = 5", " + 1".repeat(terms));
    assert!(db.sql(&sum(300)).starts_with("Seq Scan"));
    // Casts and products are part of their operands; of these the deepest counts.
    for (term, operator) in [("b::int8", "+"), ("b::text", "||"), ("b*2", "+"), ("b/2::int8*3", "-")] {
        let chain = |terms: usize| format!("select {} from t", vec![term; terms].join(operator));
        assert!(db.sql(&chain(480)).starts_with("Project"), "{term}");
        assert_eq!(db.try_sql(&chain(520)).unwrap_err().state().0, "54001", "{term}");
    }
    assert_eq!(db.try_sql(&sum(900)).unwrap_err().state().0, "54001");
}

#[test]
fn aggregates_of_aggregates_are_planned_once() {
    let mut db = Fixture::new();
    db.table("t", "a int4!, b int4!", "a", &["t_b: b"], 100_000.0);
    let mut nested = "select a, b from t".to_owned();
    for _ in 0..20 {
        nested =
            format!("select min(q.a) as a, max(u.b) as b from ({nested}) q, t u where q.b > 0 and u.a = q.a");
    }
    assert!(db.sql(&nested).starts_with("Aggregate"));
    assert!(db.sql("select min(a), max(b) from t").contains("Index Only Scan Backward using t_b on t"));
}

#[test]
fn patterns_that_are_not_known_bound_an_index() {
    let mut db = Fixture::new();
    db.table(
        "t",
        "a int4!, c text, v varchar, b bytea",
        "a",
        &["t_c: c", "t_v: b, v desc", "t_b: b"],
        100_000.0,
    );
    db.table("w", "name text!, n int4", "name", &["w_n: n"], 100_000.0);
    let statements = [
        "select * from t where c like $1",
        "select * from t where c like $1 and c > 'x' and c is not null",
        "select * from t where c like $1 and c is null",
        "select a from t where b = '\\x07' and v like $1 || '%' order by v desc",
        "select * from t where c not like $1",
        "select * from t where c ilike $1",
        "select * from t where b like $1::bytea",
        "select * from t where c like random()::text",
        "select (select max(y.c) from t y where y.c like x.c || '%') from t x where x.a = 1",
        "select * from w where name like $1",
        "select * from w where name like $1 and n = 7",
        "select count(*) from w where name like $1 and name > 'b'",
    ];
    plans(&db, "patterns.golden", &statements);
}

#[test]
fn comparisons_of_rows_bound_an_index() {
    let mut db = Fixture::new();
    let indexes = ["t_cd: c, d", "t_mix: d, c desc"];
    db.table("t", "a int4!, b int4!, c int4, d int4", "a, b", &indexes, 100_000.0);
    let statements = [
        "select * from t where (a, b) > (5, 6) order by a, b limit 10",
        "select * from t where (a, b) <= ($1, $2) order by a desc, b desc limit 10",
        "select * from t where (5, 6) < (a, b) and a < 9",
        "select * from t where (a, b, c) > (5, 6, 7) order by a, b limit 10",
        "select * from t where a = 1 and (b, c) > (5, 6)",
        "select * from t where a >= 5 and (a, b) > (5, 6) order by a, b limit 10",
        "select * from t where (c, d) > (5, 6) order by c, d limit 10",
        "select * from t where (c, d) < (5, 6) order by c, d limit 10",
        "select * from t where (d, c) > (5, 6) order by d limit 10",
        "select * from t where (a, a) > (5, 6) order by a limit 10",
        "select * from t where (a, 4) > (5, b) order by a limit 10",
        "select * from t where (a, b) > (5, random()::int) order by a, b limit 10",
        "select * from t where (a, b) > (5, 6) and (a, b) <= (7, 8)",
    ];
    plans(&db, "pages.golden", &statements);
}

#[test]
fn what_is_run_once_bounds_an_index_also_where_it_locks() {
    let db = tpcc();
    let statements = [
        "update orders set o_carrier_id = 1 where o_w_id = 1 and o_d_id = 2 and o_id = (select no_o_id from new_order where no_w_id = 1 and no_d_id = 2 order by no_o_id limit 1 for update skip locked) returning o_id",
        "select * from item where i_id > 10 + (select no_o_id from new_order limit 1 for share)",
        "select * from item where i_id = (select no_o_id from new_order where no_w_id = i_id limit 1 for share)",
        "select * from item where i_id = (select floor(random() * 10)::int) and i_name > ''",
        "select * from item where (i_id, i_name) > ((select floor(random() * 10)::int), 'x')",
        "select * from item where i_id in (1, (select floor(random() * 10)::int))",
        "select * from stock join item on i_id = s_i_id where s_w_id = (select no_w_id from new_order limit 1 for update)",
    ];
    plans(&db, "locking.golden", &statements);
}

#[test]
fn rows_are_compared_column_by_column() {
    let db = tpcc();
    let statements = [
        "select * from orders where (o_w_id, o_d_id, o_id) = (1, 2, $1)",
        "select * from orders where (o_w_id, o_d_id, o_id) in ((1, 2, 3), (1, 4, 5), (3000000000, $1, 7), (null, 1, 2))",
        "delete from orders where (o_w_id, o_d_id, o_id) in ((1, 2, 3), (2, 4, 5))",
        "select * from orders where (o_w_id, o_carrier_id) not in ((1, 2), (2, 4))",
        "select * from orders where (o_ol_cnt, o_carrier_id) in ((1, 2), (2, 4))",
        "select count(*) from new_order join orders on (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_c_id)",
    ];
    plans(&db, "rows.golden", &statements);
}

#[test]
fn queries_that_are_used_twice_at_each_step_are_gone_through_once() {
    let db = Fixture::new();
    let chain = |steps: usize| {
        let mut text = "with a0 as (select 1 as x limit 1)".to_owned();
        for step in 1..=steps {
            _ = write!(text, ", a{step} as (select p.x from a{0} p, a{0} q limit 1)", step - 1);
        }
        format!("{text} select p.x from a{steps} p, a{steps} q")
    };
    let plans = move || {
        assert!(db.sql(&chain(45)).contains("CTE Scan on a45 p"));
        // Written twice, they are compared.
        let twice = format!("select ({0}), count(*) from generate_series(1, 3) group by ({0})", chain(40));
        assert!(db.sql(&twice).contains("CTE Scan on a40 p"));
    };
    std::thread::Builder::new().stack_size(SESSION_STACK).spawn(plans).unwrap().join().unwrap();
}

#[test]
fn a_plan_as_json() {
    let db = tpcc();
    let sql = "select c_last from customer where c_id in (select o_c_id from orders where o_w_id = 1)";
    let text = db.json(sql);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let plan = &json[0]["Plan"];
    assert!(
        plan["Node Type"].is_string() && plan["Total Cost"].is_number() && plan["Plans"].is_array(),
        "{text}"
    );
}

#[test]
fn whoever_is_cancelled_computes_no_further_constant() {
    /// The first constant takes so long that the user asks for an end.
    struct Slow(Interrupt, Cell<usize>);

    impl Estimator for Slow {
        fn rows(&self, _: &Table) -> f64 {
            1.0
        }

        fn pages(&self, _: &Storage) -> f64 {
            1.0
        }

        fn constant(&self, _: &Expr) -> Option<Value> {
            self.0.interrupt(Reason::User);
            self.1.set(self.1.get() + 1);
            None
        }
    }

    let db = Fixture::new();
    let engine = Engine::new(&EngineOptions { memory: 32 << 20, temp_folder: None }).unwrap();
    let slow = Slow(Interrupt::default(), Cell::new(0));
    slow.0.begin();
    let _counting = effort::begin(&engine, &slow.0, None);
    let planned = db.planned_by("select factorial(9), factorial(8), factorial(7)", &slow);
    assert_eq!(planned.unwrap_err().state().0, "57014");
    assert_eq!(slow.1.get(), 1);
}
