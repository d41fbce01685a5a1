//! Whatever plan is forced, a query gives the same rows: random queries under all switches of the planner.
//!
//! `GANNET_PLANS_SEED` and `GANNET_PLANS_QUERIES` replay or widen the search.

use gannet_sql::session::Rows;
use gannet_sql::{Database, Session};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};
use std::fmt::Write as _;

const SWITCHES: [&str; 8] = [
    "enable_seqscan",
    "enable_indexscan",
    "enable_indexonlyscan",
    "enable_sort",
    "enable_hashagg",
    "enable_hashjoin",
    "enable_nestloop",
    "gannet_look_ahead",
];

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn column(&mut self, columns: &[String]) -> String {
        columns[self.below(columns.len())].clone()
    }
}

/// Writes random queries.
struct Writer {
    random: Random,
    names: usize,
}

impl Writer {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("q{}", self.names)
    }

    fn value(&mut self, columns: &[String], depth: usize) -> String {
        match self.random.below(10) {
            0 | 1 => self.random.below(9).to_string(),
            2 => format!("({} + {})", self.random.column(columns), self.random.below(3)),
            3 => format!("coalesce({}, {})", self.random.column(columns), self.random.below(5)),
            4 if depth < 3 => {
                let (from, own) = self.from(depth + 1);
                let function = self.random.pick(&["max", "min", "count", "sum"]);
                let (argument, all) = (self.random.column(&own), [&own[..], columns].concat());
                format!(
                    "(select {function}({argument}) from {from} where {})",
                    self.condition(&all, depth + 1)
                )
            }
            _ => self.random.column(columns),
        }
    }

    fn condition(&mut self, columns: &[String], depth: usize) -> String {
        let kind = if depth < 3 { self.random.below(17) } else { 6 + self.random.below(7) };
        match kind {
            0 | 1 => {
                format!("({} and {})", self.condition(columns, depth + 1), self.condition(columns, depth + 1))
            }
            2 => {
                format!("({} or {})", self.condition(columns, depth + 1), self.condition(columns, depth + 1))
            }
            3 => format!("not ({})", self.condition(columns, depth + 1)),
            4 | 5 => {
                let (from, own) = self.from(depth + 1);
                let all = [&own[..], columns].concat();
                let not = self.random.pick(&["", "not "]);
                format!("{not}exists (select 1 from {from} where {})", self.condition(&all, depth + 1))
            }
            6 => format!("{} is {}null", self.random.column(columns), self.random.pick(&["", "not "])),
            7 => format!("{} in (1, {}, null, 7)", self.random.column(columns), self.random.below(9)),
            8 => format!("{} between {} and 8", self.random.column(columns), self.random.below(6)),
            13 | 14 => {
                let (from, own) = self.from(depth + 1);
                let all = if self.random.one_in(2) { own.clone() } else { [&own[..], columns].concat() };
                let (left, not) = (self.value(columns, depth + 1), self.random.pick(&["", "not "]));
                let output = self.random.column(&own);
                format!(
                    "{left} {not}in (select {output} from {from} where {})",
                    self.condition(&all, depth + 1)
                )
            }
            12 | 16 => {
                let op = self.random.pick(&["<", "<=", ">", ">="]);
                let [a, b] = [self.random.column(columns), self.random.column(columns)];
                let mut value = || match self.random.below(5) {
                    0 => "null".to_owned(),
                    1 => self.random.column(columns),
                    _ => self.random.below(9).to_string(),
                };
                format!("({a}, {b}) {op} ({}, {})", value(), value())
            }
            _ => {
                let op = self.random.pick(&["=", "=", "=", "<", ">=", "<>"]);
                format!("{} {op} {}", self.value(columns, depth + 1), self.value(columns, depth + 1))
            }
        }
    }

    /// What stands behind FROM, and its columns.
    fn from(&mut self, depth: usize) -> (String, Vec<String>) {
        let count = if depth == 0 { 1 + self.random.below(3) } else { 1 + self.random.below(2) };
        let (mut from, mut columns) = self.relation(depth);
        for _ in 1..count {
            let (right, own) = self.relation(depth);
            let kind =
                self.random.pick(&["join", "join", "left join", "left join", "full join", "cross join"]);
            let mut on = format!("{} = {}", self.random.column(&columns), self.random.column(&own));
            let all = [&columns[..], &own].concat();
            if kind != "full join" && self.random.one_in(3) {
                _ = write!(on, " and {}", self.condition(&all, 3));
            }
            if kind == "full join" && self.random.one_in(4) {
                // By a nested loop.
                "true".clone_into(&mut on);
            }
            let on = if kind == "cross join" { String::new() } else { format!(" on {on}") };
            from = format!("{from} {kind} {right}{on}");
            columns = all;
        }
        (from, columns)
    }

    fn relation(&mut self, depth: usize) -> (String, Vec<String>) {
        let alias = self.name();
        if depth < 2 && self.random.one_in(4) {
            let (query, columns) = self.query(depth + 1);
            let columns = columns.iter().map(|column| format!("{alias}.{column}")).collect();
            return (format!("({query}) {alias}"), columns);
        }
        let table = self.random.pick(&["t1", "t2", "t3"]);
        (format!("{table} {alias}"), ["a", "b", "c"].map(|column| format!("{alias}.{column}")).to_vec())
    }

    /// A query, and the names of its columns.
    fn query(&mut self, depth: usize) -> (String, Vec<String>) {
        let (from, columns) = self.from(depth);
        let condition = self.condition(&columns, depth);
        let names: Vec<String> = (0..1 + self.random.below(3)).map(|number| format!("c{number}")).collect();
        let grouped = self.random.one_in(4);
        let mut outputs = Vec::new();
        for number in 0..names.len() {
            let column = self.random.column(&columns);
            outputs.push(match (grouped, number) {
                (true, 0) => column,
                (true, _) => format!("{}({column})", self.random.pick(&["min", "max", "count"])),
                (false, _) => self.value(&columns, depth + 2),
            });
        }
        let list: Vec<String> =
            outputs.iter().zip(&names).map(|(output, name)| format!("{output} as {name}")).collect();
        let mut query = format!("select {} from {from} where {condition}", list.join(", "));
        if grouped {
            _ = write!(query, " group by {}", outputs[0]);
        }
        if self.random.one_in(2) {
            // All columns: only then a limit says which rows.
            let keys: Vec<String> = (1..=names.len())
                .map(|number| format!("{number}{}", self.random.pick(&["", " desc", " nulls first"])))
                .collect();
            _ = write!(query, " order by {}", keys.join(", "));
            if self.random.one_in(2) {
                _ = write!(query, " limit {} offset {}", 1 + self.random.below(9), self.random.below(3));
            }
        }
        (query, names)
    }
}

fn rows(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Rows::default();
    if let Err(error) = session.run(sql, &mut rows) {
        panic!("{error}\n{sql}");
    }
    rows.text()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn forced_plans_give_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions { memory: 64 << 20, ..EngineOptions::default() }).unwrap();
    let path = folder.path().join("plans.gnt");
    let database =
        Database::create(&engine, &path, &CreateOptions::default(), &OpenOptions::default(), "gannet")
            .unwrap();
    let mut session = database.session("gannet").unwrap();
    for sql in [
        "create table t1 (a int primary key, b int, c int not null)",
        "create table t2 (a int, b int, c int not null, primary key (a, c))",
        "create table t3 (a int, b smallint, c bigint)",
        "create index t1_b on t1 (b, c)",
        "create index t2_b on t2 (b desc)",
        "create index t3_a on t3 (a nulls first)",
        "create index t3_ba on t3 (b desc, a desc)",
        "insert into t1 select g, nullif(g % 8, 3), g % 5 from generate_series(0, 15) g",
        "insert into t2 select g % 8, nullif(g % 7, 2), g / 8 from generate_series(0, 23) g",
        "insert into t3 select nullif(g % 15, 4), g % 10, nullif(g % 6, 1) from generate_series(0, 11) g",
    ] {
        rows(&mut session, sql);
    }
    let seed = number("GANNET_PLANS_SEED", 7);
    let mut writer = Writer { random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), names: 0 };
    for query in 0..number("GANNET_PLANS_QUERIES", 120) {
        if query == 60 {
            rows(&mut session, "analyze");
        }
        let (sql, _) = writer.query(0);
        let mut expected: Option<Vec<Vec<String>>> = None;
        for _ in 0..4 {
            let off: Vec<&str> = SWITCHES.into_iter().filter(|_| writer.random.one_in(4)).collect();
            for switch in SWITCHES {
                let value = if off.contains(&switch) { "off" } else { "on" };
                rows(&mut session, &format!("set {switch} = {value}"));
            }
            let mut found = rows(&mut session, &sql);
            found.sort();
            let expected = expected.get_or_insert_with(|| found.clone());
            assert_eq!(*expected, found, "without {off:?}: {sql}");
        }
    }
}
