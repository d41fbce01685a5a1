//! What psql 15 sends for `\d` and its kin, with what PostgreSQL 15 answers: `psql15.txt` has query, `--`, and rows, with numbers of
//! objects written as `@name@`.

use gannet_sql::Database;
use gannet_sql::catalog::{Catalog, Relation};
use gannet_sql::session::Rows;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};

const TABLES: &str = "
    create table p (id serial primary key, n int default 5 not null, v int check (v>0), unique(n));
    create table c (a int references p on delete cascade, b varchar(5), d timestamptz default now());
    create index on c(b desc, a);
    create sequence sq";

/// A text with the numbers of objects for their names.
fn numbered(text: &str, catalog: &Catalog) -> String {
    let mut out = String::new();
    for (place, part) in text.split('@').enumerate() {
        match catalog.names.get(part).filter(|_| place % 2 == 1) {
            Some(Relation::Table(oid) | Relation::Sequence(oid) | Relation::Index { index: oid, .. }) => {
                out.push_str(&oid.to_string());
            }
            None => out.push_str(part),
        }
    }
    out
}

#[test]
fn psql_describes_tables_as_it_does_with_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    let options = EngineOptions { memory: 16 << 20, temp_folder: Some(folder.path().to_owned()) };
    let engine = Engine::new(&options).unwrap();
    let create = CreateOptions { segment_size: 1 << 20, ..CreateOptions::default() };
    let path = folder.path().join("shop.gnt");
    let database = Database::create(&engine, &path, &create, &OpenOptions::default(), "postgres").unwrap();
    let mut session = database.session("postgres").unwrap();
    session.run(TABLES, &mut Rows::default()).unwrap();
    let mut wrong = Vec::new();
    for part in include_str!("psql15.txt").split("\n####\n").filter(|part| !part.trim().is_empty()) {
        let part = numbered(part, &database.catalog());
        let (query, expected) = part.split_once("\n--").unwrap();
        let mut rows = Rows::default();
        match session.run(query, &mut rows) {
            Err(error) => wrong.push(format!("{query}\nfails: {error}")),
            Ok(()) => {
                let found: Vec<String> = rows.text().iter().map(|row| row.join("|")).collect();
                let found = found.join("\n");
                if found != expected.trim_start_matches('\n') {
                    wrong.push(format!("{query}\ngives\n{found}\nnot{expected}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
