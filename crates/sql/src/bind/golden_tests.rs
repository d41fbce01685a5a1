//! Statements and what binding makes of them: `golden/*.txt` beside this file. `UPDATE_GOLDEN=1` rewrites what is expected.
//!
//! A file holds statements (`> ` before each line), each followed by the logical tree or the error. Types of results, errors and their places
//! were compared with PostgreSQL 15.

use super::{Scope, bind, parse};
use crate::catalog::{Catalog, Relation, Sequence, Table};
use crate::logical::print;
use crate::types::text::TextStyle;
use crate::{Error, Type};
use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// `(name, type, modifier, not null, default)`
type ColumnOf<'c> = (&'c str, &'c str, i32, bool, Option<&'c str>);

fn table(oid: u32, name: &str, columns: &[ColumnOf<'_>], key: &[u16], checks: &[(&str, &str)]) -> Table {
    let columns: Vec<_> = columns
        .iter()
        .zip(1u16..)
        .map(|((name, ty, modifier, not_null, default), number)| {
            serde_json::json!({
                "number": number, "name": name, "type": ty, "modifier": modifier, "not_null": not_null, "default": default
            })
        })
        .collect();
    let numbers: Vec<u16> = (1..=columns.len() as u16).collect();
    let index = serde_json::json!({
        "oid": oid + 1, "name": format!("{name}_pkey"), "unique": true, "primary": true, "constraint": oid + 2,
        "storage": name,
        "columns": key.iter().map(|column| serde_json::json!({"column": column})).collect::<Vec<_>>()
    });
    let checks: Vec<_> = checks
        .iter()
        .map(|(name, sql)| serde_json::json!({"oid": oid + 3, "name": name, "expression": sql}))
        .collect();
    let value = serde_json::json!({
        "oid": oid, "name": name, "columns": columns, "storage": name,
        "key": if key.is_empty() { serde_json::json!("row_id") } else { serde_json::json!({"columns": key}) },
        "layouts": [numbers], "indexes": if key.is_empty() { vec![] } else { vec![index] },
        "checks": checks, "owner": 10, "next_column": numbers.len() + 1
    });
    serde_json::from_str(&value.to_string()).unwrap()
}

/// The tables of `golden/tables.sql`.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let mut add = |table: Table| {
        catalog.names.insert(table.name.clone(), Relation::Table(table.oid));
        if let Some(key) = table.primary() {
            catalog.names.insert(key.name.clone(), Relation::Index { table: table.oid, index: key.oid });
        }
        catalog.tables.insert(table.oid, Arc::new(table));
    };
    add(table(
        20000,
        "t",
        &[
            ("a", "int4", -1, true, None),
            ("b", "text", -1, false, Some("'x'")),
            ("c", "numeric", (10 << 16 | 2) + 4, false, None),
            ("d", "timestamptz", -1, false, Some("now()")),
            ("e", "varchar", 14, false, None),
            ("f", "bpchar", 7, false, None),
            ("g", "bool", -1, false, None),
            ("h", "int8", -1, true, Some("1")),
            ("i", "int2", -1, false, None),
        ],
        &[1],
        &[("t_check", "h > 0 and b <> 'y'")],
    ));
    add(table(
        20010,
        "u",
        &[
            ("id", "int4", -1, true, Some("nextval('u_id_seq'::regclass)")),
            ("a", "int4", -1, false, None),
            ("name", "varchar", 14, false, None),
        ],
        &[1],
        &[],
    ));
    add(table(
        20020,
        "w",
        &[("a", "int4", -1, false, None), ("v", "float8", -1, false, None), ("day", "date", -1, false, None)],
        &[],
        &[],
    ));
    let sequence: Sequence = serde_json::from_str(
        r#"{"oid": 20030, "name": "u_id_seq", "type": "int4", "start": 1, "increment": 1, "minimum": 1, "maximum": 2147483647, "cycle": false, "owner": 10, "counter": 20031, "begin": [1, false]}"#,
    )
    .unwrap();
    catalog.names.insert("u_id_seq".to_owned(), Relation::Sequence(20030));
    catalog.sequences.insert(20030, Arc::new(sequence));
    catalog
}

fn outcome(sql: &str) -> Result<String, Error> {
    let catalog = Arc::new(catalog());
    let style = TextStyle { catalog: Some(Arc::clone(&catalog)), ..TextStyle::default() };
    let scope = Scope {
        catalog: &catalog,
        style: &style,
        database: "db",
        user: "postgres",
        of_the_moment: Cell::default(),
    };
    let mut text = String::new();
    for parsed in parse(sql)? {
        if parsed.statement().is_none() {
            let _ = writeln!(text, "{:?}", parsed.kind);
            continue;
        }
        let bound = bind(&scope, &parsed, &[])?;
        let _ = writeln!(text, "{}", print(&bound.planned, &bound.columns));
        if !bound.parameters.is_empty() {
            let names: Vec<&str> = bound.parameters.iter().map(|ty| Type::name(*ty)).collect();
            let _ = writeln!(text, "Parameters {}", names.join(", "));
        }
    }
    Ok(text)
}

fn described(error: &Error) -> String {
    let fields = error.fields();
    let mut text = format!("ERROR {}", fields.state);
    if let Some(position) = fields.position {
        let _ = write!(text, " at {position}");
    }
    let _ = writeln!(text, ": {}", fields.message);
    for (what, value) in [("DETAIL", &fields.detail), ("HINT", &fields.hint)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{what}: {value}");
        }
    }
    text
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bind/golden").join(name);
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut actual = String::new();
    let mut lines = expected.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("> ") else {
            if line.starts_with('#') {
                let _ = writeln!(actual, "{line}\n");
            }
            continue;
        };
        let mut sql = first.to_owned();
        let _ = writeln!(actual, "{line}");
        while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
            let _ = writeln!(actual, "{more}");
            sql.push('\n');
            sql.push_str(&more[2..]);
        }
        actual.push_str(&outcome(&sql).unwrap_or_else(|error| described(&error)));
        actual.push('\n');
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    for (number, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, actual, "{name}, line {}", number + 1);
    }
    assert_eq!(expected.lines().count(), actual.lines().count(), "{name}");
}

#[test]
fn queries() {
    check("queries.txt");
}

#[test]
fn expressions() {
    check("expressions.txt");
}

#[test]
fn changes() {
    check("changes.txt");
}

#[test]
fn errors() {
    check("errors.txt");
}

#[test]
fn what_is_not_implemented_is_named() {
    check("unsupported.txt");
}

#[test]
fn parameters_get_types_from_where_they_stand() {
    check("parameters.txt");
}

/// What `psql -E` shows of psql 15's backslash commands. There are no partitions, nor a function that lists them.
#[test]
fn what_psql_sends_is_bound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bind/golden/psql.sql");
    let text = std::fs::read_to_string(path).unwrap();
    let mut failed = String::new();
    for parsed in parse(&text).unwrap() {
        if let Err(error) = outcome(&parsed.text)
            && !error.to_string().contains("pg_partition_ancestors")
        {
            let _ = writeln!(failed, "{}\n{}", parsed.text, described(&error));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn no_depth_overflows_the_stack_of_the_binder() {
    let body = || {
        let chain = |term: &str, count| format!("select 1 where a = 1{}", term.repeat(count));
        let deep = [
            format!("select {}1{}", "(".repeat(120), ")".repeat(120)),
            format!("select {}1{}", "(select ".repeat(30), ")".repeat(30)),
            format!("{}select 1 as a{}", "select * from (".repeat(30), ") x".repeat(30)),
            format!("select {}select 1{}", "(".repeat(120), ")".repeat(120)),
            format!("select {}(select 1){}", "((select 1) union ".repeat(45), ")".repeat(45)),
            format!("select 1{}", " + 1".repeat(500)),
            format!("select 1{}", "::int".repeat(120)),
            format!("select {}true", "not ".repeat(120)),
            format!("select 1{}", " union all select 2".repeat(480)),
            format!("select {}1{}", "case when true then ".repeat(120), " end".repeat(120)),
            format!("select {}'x'{}", "lower(".repeat(120), ")".repeat(120)),
            format!("select * from w{}", " join w using (a)".repeat(3)),
            chain(" or a = 1 and not a = 2", 20_000).replace("select 1 where", "select 1 from w where"),
        ];
        for sql in deep {
            let text = outcome(&sql);
            assert!(
                text.is_ok() || text.as_ref().unwrap_err().state().0 == "42712",
                "{:?} {}",
                text,
                &sql[..60]
            );
        }
        let mut with = "with x0 as (select 1 as a)".to_owned();
        for n in 1..100 {
            let _ = write!(with, ", x{n} as (select l.a from x{0} l, x{0} r)", n - 1);
        }
        assert_eq!(outcome(&format!("{with} select * from x99")).unwrap_err().state().0, "54001");
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(body).unwrap().join().unwrap();
}
