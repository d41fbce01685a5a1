//! Statements that come behind the one that runs: what they ask for comes from the device at one time.

use gannet_sql::session::{Formats, Rows};
use gannet_sql::{Database, Prepared, Session, SqlState, Type, Value};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, ThreadReads, thread_reads};
use std::sync::Arc;

/// A database with two tables of 4,000 rows whose pages hold a few each, of which none is in memory.
fn cold() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions { memory: 64 << 20, ..EngineOptions::default() }).unwrap();
    let path = folder.path().join("shop.gnt");
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 20 };
    let open = OpenOptions::default();
    let database = Database::create(&engine, &path, &create, &open, "me").unwrap();
    let mut session = database.session("me").unwrap();
    let sql = "create table t (a int, b int, v text, primary key (a, b));
        create table u (id int primary key, k int, v text);
        create index on u (k);
        insert into t select n / 10, n % 10, repeat('v', 900) from generate_series(1, 4000) n;
        insert into u select n, 100000 + n * 7919 % 4000, repeat('v', 900) from generate_series(1, 4000) n";
    session.run(sql, &mut Rows::default()).unwrap();
    drop(session);
    database.close().unwrap();
    // Otherwise its pages are in memory before they are asked for.
    std::fs::remove_file(path.with_extension("gnt-wal").join("hot")).unwrap();
    (folder, Database::open(&engine, &path, &open, "me").unwrap())
}

/// Pages that this thread waited for one by one, and those that were fetched with others, while `work` went on.
fn reads(work: impl FnOnce()) -> ThreadReads {
    let before = thread_reads();
    work();
    thread_reads().since(before)
}

/// Runs statements of a pipeline, one behind the other, as a server does; gives the number of their rows.
fn run(session: &mut Session, statements: &[(&Arc<Prepared>, Vec<Value>)]) -> usize {
    let mut count = 0;
    for (prepared, values) in statements {
        let mut rows = Rows::default();
        session.bind("", "", Arc::clone(prepared), values.clone(), Formats::default()).unwrap();
        session.execute("", 0, &mut rows).unwrap();
        count += rows.rows.len();
    }
    count
}

/// Has statements looked at, for which nothing is read; gives the number of those that were.
fn look_ahead(session: &mut Session, statements: &[(&Arc<Prepared>, Vec<Value>)]) -> usize {
    let prepared: Vec<_> = statements.iter().map(|(prepared, _)| Arc::clone(prepared)).collect();
    let mut looked_at = 0;
    let mut value = |statement: usize, place: usize| Some(statements[statement].1[place].clone());
    assert_eq!(reads(|| looked_at = session.look_ahead(&prepared, &mut value)), ThreadReads::default());
    looked_at
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

#[test]
fn what_statements_look_up_by_key_is_fetched_at_once() {
    let (_folder, database) = cold();
    let mut session = database.session("me").unwrap();
    let mut prepare = |sql: &str| session.prepare_unnamed(sql, &[Type::Int4, Type::Int4]).unwrap();
    let whole = prepare("select v from t where a = $1 and b = $2");
    let last = prepare("select v from t where a = $1 and b >= $2 for update");
    let newest = prepare("select b from t where a = $1 and b <= $2 order by b desc limit 1");
    let change = prepare("update u set v = 'w' where id = $1 and $2 > 0");
    let index = prepare("select k from u where k = $1 and $2 > 0");
    let remove = prepare("delete from t where a = $1 and b = $2");
    let insert = prepare("insert into t values ($1, $2, 'new'), ($1 + 0, 77, 'new')");
    session.run("begin", &mut Rows::default()).unwrap();
    // Nothing is looked at before a statement has run, as it could still be one that says what the transaction is to see.
    assert!(!session.can_look_ahead());
    let early = [(&whole, vec![int(10), int(1)]), (&whole, vec![int(90), int(1)])];
    look_ahead(&mut session, &early);
    let then = reads(|| assert_eq!(run(&mut session, &early), 2));
    assert!(then.serial_reads >= 2 && then.batches == 0, "{then:?}");
    // Inner nodes are in memory from here on.
    run(
        &mut session,
        &[
            (&whole, vec![int(1), int(1)]),
            (&change, vec![int(1), int(1)]),
            (&index, vec![int(100_000), int(1)]),
        ],
    );
    assert!(session.can_look_ahead());
    let statements: Vec<(&Arc<Prepared>, Vec<Value>)> = (1..=5)
        .flat_map(|n| {
            [
                (&whole, vec![int(20 * n), int(1)]),
                (&last, vec![int(20 * n + 5), int(9)]),
                (&newest, vec![int(20 * n + 7), int(6)]),
                (&remove, vec![int(20 * n + 10), int(9)]),
                (&insert, vec![int(20 * n + 15), int(50)]),
                (&change, vec![int(300 * n), int(1)]),
                (&index, vec![int(100_000 + 700 * n), int(1)]),
            ]
        })
        .collect();
    assert_eq!(look_ahead(&mut session, &statements), statements.len());
    let mut rows = 0;
    let then = reads(|| rows = run(&mut session, &statements));
    // Each has a leaf of its own, but for some entries of the index. They come with the first statement.
    assert!(then.serial_reads == 0 && then.batched_reads >= 30, "{then:?}");
    assert_eq!(rows, 5 + 5 + 5 + 5);
    session.run("commit", &mut Rows::default()).unwrap();
    let count = |sql: &str, session: &mut Session| {
        let mut rows = Rows::default();
        session.run(sql, &mut rows).unwrap();
        rows.rows[0][0].as_int().unwrap()
    };
    assert_eq!(count("select count(*) from t", &mut session), 4000 - 5 + 10);
    assert_eq!(count("select count(*) from u where v = 'w'", &mut session), 6);
}

#[test]
fn a_look_ahead_has_no_effect_whatever_comes() {
    let (_folder, database) = cold();
    let mut session = database.session("me").unwrap();
    let mut other = database.session("me").unwrap();
    let select = session.prepare_unnamed("select v from u where id = $1", &[Type::Int4]).unwrap();
    let dated = session.prepare_unnamed("select 1 / $1", &[Type::Int4]).unwrap();
    let begin = session.prepare_unnamed("begin", &[]).unwrap();
    session.prepare("empty", "", &[]).unwrap();
    let empty = session.prepared("empty").unwrap();
    session.run("begin isolation level repeatable read", &mut Rows::default()).unwrap();
    look_ahead(&mut session, &[(&select, vec![int(1)]), (&select, vec![int(3000)])]);
    // What it sees was not settled by that.
    other.run("insert into u values (-1, 1, 'late')", &mut Rows::default()).unwrap();
    assert_eq!(run(&mut session, &[(&select, vec![int(-1)])]), 1);
    let odd = [
        (&dated, vec![int(0)]),
        (&begin, vec![]),
        (&empty, vec![]),
        (&select, vec![Value::Null]),
        (&select, vec![int(i64::MAX)]),
    ];
    look_ahead(&mut session, &odd);
    session.run("set gannet_look_ahead = off", &mut Rows::default()).unwrap();
    assert!(!session.can_look_ahead());
    let ids = |ids: [i64; 2]| ids.map(|id| (&select, vec![int(id)]));
    look_ahead(&mut session, &ids([2500, 1500]));
    let then = reads(|| assert_eq!(run(&mut session, &ids([2500, 1500])), 2));
    assert!(then.batches == 0 && then.serial_reads >= 2, "{then:?}");
    session.run("set gannet_look_ahead = on", &mut Rows::default()).unwrap();
    look_ahead(&mut session, &ids([2000, 1000]));
    let then = reads(|| assert_eq!(run(&mut session, &ids([2000, 1000])), 2));
    assert!(then.serial_reads == 0 && then.batched_reads >= 2, "{then:?}");
    // What was looked at is not kept beyond its series.
    look_ahead(&mut session, &ids([3500, 3000]));
    session.sync(&mut Rows::default()).unwrap();
    let then = reads(|| assert_eq!(run(&mut session, &ids([3500, 3000])), 2));
    assert!(then.batches == 0 && then.serial_reads >= 2, "{then:?}");
    let prepared = [Arc::clone(&select)];
    session.look_ahead(&prepared, &mut |_, _| None);
    assert_eq!(run(&mut session, &[(&select, vec![int(7)])]), 1);
    session.run("commit", &mut Rows::default()).unwrap();
    // Of a table that is gone, and by plans that are of before.
    session.run("begin; select 1", &mut Rows::default()).unwrap();
    other.run("drop table u", &mut Rows::default()).unwrap();
    look_ahead(&mut session, &[(&select, vec![int(1)]), (&select, vec![int(3000)])]);
    session.bind("", "", Arc::clone(&select), vec![int(1)], Formats::default()).unwrap();
    let error = session.execute("", 0, &mut Rows::default()).unwrap_err();
    assert_eq!(error.state(), SqlState::UNDEFINED_TABLE);
    assert!(!session.can_look_ahead());
    session.run("rollback", &mut Rows::default()).unwrap();
    assert!(!session.can_look_ahead());
}

#[test]
fn no_more_is_looked_at_than_is_fetched_at_one_time() {
    let (_folder, database) = cold();
    let mut session = database.session("me").unwrap();
    let select = session.prepare_unnamed("select k from u where id = $1", &[Type::Int4]).unwrap();
    let long = format!("select v from u where v > '{}' and id = 7", "v".repeat(4000));
    let long = session.prepare_unnamed(&long, &[]).unwrap();
    let rows = (1..2000).map(|n| format!("($1, {n}, 'x')")).collect::<Vec<_>>().join(", ");
    let insert = session.prepare_unnamed(&format!("insert into t values {rows}"), &[Type::Int4]).unwrap();
    session.run("begin; select 1", &mut Rows::default()).unwrap();
    let many: Vec<_> = (1..=1000).map(|id| (&select, vec![int(id)])).collect();
    assert_eq!(look_ahead(&mut session, &many), 512);
    // One statement that fills it, and one that has nothing to be looked at.
    let filling = [(&long, vec![]), (&insert, vec![int(-1)]), (&select, vec![int(1)])];
    assert_eq!(look_ahead(&mut session, &filling), 2);
    assert_eq!(run(&mut session, &filling), 1);
}
