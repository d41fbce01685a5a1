//! Splitting, syntax errors and depth.

use super::{Kind, Parsed, Utility, parse};
use crate::Error;
use sqlparser::ast;

fn texts(sql: &str) -> Vec<String> {
    parse(sql).unwrap().into_iter().map(|parsed| parsed.text).collect()
}

fn error(sql: &str) -> (String, String, Option<usize>) {
    let error: Error = parse(sql).unwrap_err();
    (error.state().0.to_owned(), error.to_string(), error.fields().position)
}

fn tree(sql: &str) -> String {
    match parse(sql).unwrap().remove(0).kind {
        Kind::Sql(statement) => statement.to_string().replace('\0', "~"),
        Kind::Utility(utility) => format!("{utility:?}"),
    }
}

/// Runs on a stack as small as a server's threads have.
fn on_small_stack(body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(body).unwrap().join().unwrap();
}

#[test]
fn statements_are_split_at_semicolons_that_are_no_part_of_anything() {
    assert_eq!(
        texts("; select ';' ; -- a; b\n select $$;$$ , E'\\';' ; /* ; /* ; */ */ select \";\" from t;;"),
        ["select ';'", "select $$;$$ , E'\\';'", "select \";\" from t"]
    );
    assert!(texts(" -- nothing\n").is_empty());
    let parsed: Vec<Parsed> = parse("select 1; äselect 2").map_err(drop).unwrap_or_default();
    assert!(parsed.is_empty());
    assert_eq!(parse("/* ä */ select 1; select 2").unwrap()[1].position, 19);
}

#[test]
fn syntax_errors_name_the_token_and_its_place() {
    let syntax = |text: &str, position| ("42601".to_owned(), text.to_owned(), Some(position));
    assert_eq!(error("selec 1"), syntax("syntax error at or near \"selec\"", 1));
    assert_eq!(error("select 1; select 'ä', from t"), syntax("syntax error at or near \"from\"", 23));
    assert_eq!(error("select a from t where"), syntax("syntax error at end of input", 22));
    assert_eq!(error("select (1"), syntax("syntax error at end of input", 10));
    assert_eq!(error("select 'abc"), syntax("unterminated quoted string at or near \"'abc\"", 8));
    assert_eq!(error("select \"abc"), syntax("unterminated quoted identifier at or near \"\"abc\"", 8));
    assert_eq!(error("select 1 from t t2 t3"), syntax("syntax error at or near \"t3\"", 20));
    assert_eq!(error("select /* x").1, "unterminated /* comment at or near \"/* x\"");
    assert_eq!(error("begin foo"), syntax("syntax error at or near \"foo\"", 7));
}

#[test]
fn a_sequence_whose_type_was_left_out_ended_the_session() {
    let syntax = |position| ("42601".to_owned(), "syntax error at end of input".to_owned(), position);
    assert_eq!(error("create sequence s as"), syntax(Some(21)));
    assert_eq!(error("alter sequence s as; select 1"), syntax(Some(20)));
    assert_eq!(error("create sequence s increment 1 as").0, "42601");
    for options in ["as", "sequence name", "sequence name a.", "start with", "owned by", "increment -"] {
        let error = super::utility::identity_options(options).unwrap_err();
        assert_eq!((error.state().0, error.fields().position), ("42601", None), "{options}");
    }
    for open in
        ["copy (", "copy )", "prepare p (", "prepare p )", "prepare p () as", "execute p (", "execute p ()"]
    {
        assert_eq!(error(open).0, "42601", "{open}");
    }
}

#[test]
fn what_the_parser_cannot_read_is_made_readable() {
    assert_eq!(
        tree("select 1 from t for no key update of t, public.u nowait for key share skip locked"),
        "SELECT 1 FROM t FOR UPDATE OF t NOWAIT FOR UPDATE OF public.u NOWAIT FOR SHARE OF \"~key share\" SKIP LOCKED"
    );
    assert_eq!(
        tree("select a between symmetric (1 + 2) and 3 and b between 1 and 2"),
        "SELECT a BETWEEN \"~symmetric\"((1 + 2)) AND 3 AND b BETWEEN 1 AND 2"
    );
    assert_eq!(tree("table a union table b"), "SELECT * FROM a UNION SELECT * FROM b");
    assert_eq!(tree("update only t set a = 1"), "UPDATE t SET a = 1");
    assert_eq!(
        tree("select trim(leading from a), x isnull, t.only"),
        "SELECT TRIM(LEADING a), x IS NULL, t.only"
    );
    assert_eq!(
        tree(
            "select trim(leading a, b), trim(trailing from f(a, b), c), trim(both a, b), trim(leading a from f(b, c))"
        ),
        "SELECT ltrim(a, b), rtrim(f(a, b), c), TRIM(a, b), TRIM(LEADING a FROM f(b, c))"
    );
    assert_eq!(
        tree("select a operator(pg_catalog.+) b << c, a operator(\"S\".<>) b"),
        "SELECT a pg_catalog.+ b << c, a S.<> b"
    );
    assert_eq!(tree("drop index concurrently if exists i"), "DROP INDEX IF EXISTS i");
    assert_eq!(tree("select 1 for share"), "SELECT 1 WHERE true FOR SHARE");
}

#[test]
fn what_a_table_keeps_is_the_text_of_its_expressions() {
    for (written, kept) in [
        ("default - -5 not null", "DEFAULT - -5 NOT NULL"),
        ("default - 5+a /* so */ * 2", "DEFAULT -5 + a * 2"),
        ("default @ -5 check (\"a\"\"\"\"b\" is null)", "DEFAULT @ -5 CHECK (\"a\"\"\"\"b\" is null)"),
        ("check (a between symmetric 1 and -- so\n 2)", "CHECK (a between symmetric 1 and 2)"),
        ("default null null", "DEFAULT NULL NULL"),
        ("default a is not null unique", "DEFAULT a IS NOT NULL UNIQUE"),
        (
            "default case when b then 'it''s' else null end check (a in (1, 2))",
            "DEFAULT CASE WHEN b THEN 'it''s' ELSE NULL END CHECK (a IN (1, 2))",
        ),
        ("references t on delete set default default (1)", "REFERENCES t ON DELETE SET DEFAULT DEFAULT (1)"),
        ("generated by default as identity", "GENERATED BY DEFAULT AS IDENTITY"),
    ] {
        assert_eq!(
            tree(&format!("create table t (a int {written})")),
            format!("CREATE TABLE t (a INT {kept})")
        );
    }
    let altered = tree("alter table t alter on_ set default 'a' not like 'it''''s'");
    assert_eq!(altered, "ALTER TABLE t ALTER COLUMN on_ SET DEFAULT 'a' not like 'it''''s'");
    assert_eq!(error("create table t (a int default 5 +, b int)").1, "syntax error at or near \",\"");
}

#[test]
fn parentheses_around_queries_are_told_from_others() {
    let query = "WITH \"~query\" AS (VALUES (NULL)) ";
    for (sql, marked) in [
        ("SELECT ((SELECT 1) UNION (SELECT 2))", "SELECT (@(SELECT 1) UNION (SELECT 2))"),
        ("SELECT (((SELECT 1)) + 2)", "SELECT ((@(SELECT 1)) + 2)"),
        ("SELECT a IN ((SELECT 1), 2)", "SELECT a IN (\"~list\", (SELECT 1), 2)"),
        ("SELECT a IN ((SELECT 1))", "SELECT a IN (@(SELECT 1))"),
        ("SELECT f((SELECT 1)), f((VALUES (1)))", "SELECT f((SELECT 1)), f((@VALUES (1)))"),
        ("VALUES ((SELECT 1)), ((SELECT 2), 3)", "VALUES ((SELECT 1)), ((SELECT 2), 3)"),
        ("SELECT DISTINCT ON ((SELECT 1)) 2", "SELECT DISTINCT ON ((SELECT 1)) 2"),
        ("INSERT INTO t ((SELECT 1))", "INSERT INTO t ((SELECT 1))"),
        ("SELECT * FROM ((SELECT 1) AS x CROSS JOIN y)", "SELECT * FROM ((SELECT 1) AS x CROSS JOIN y)"),
        ("SELECT POSITION(a IN ((SELECT 1) || 2))", "SELECT POSITION(a IN ((SELECT 1) || 2))"),
    ] {
        assert_eq!(tree(sql), marked.replace('@', query));
    }
}

#[test]
fn long_chains_of_and_and_or_are_regrouped_into_what_means_the_same() {
    let sql = |separator: &str, count: usize| {
        let terms: Vec<String> = (0..count).map(|n| format!("a between {n} and {n} + 1")).collect();
        format!("select case when {} then 1 end from t", terms.join(separator))
    };
    for separator in [" or ", " and "] {
        let short = tree(&sql(separator, 40));
        assert!(!short.contains("(a"), "{short}");
        let long = tree(&sql(separator, 5000));
        assert!(long.contains("WHEN ((a BETWEEN 0 AND 0 + 1"), "{}", &long[..200]);
        let without: String = long.chars().filter(|c| !matches!(c, '(' | ')')).collect();
        assert_eq!(without.to_lowercase(), sql(separator, 5000));
    }
}

#[test]
fn no_depth_overflows_the_stack() {
    on_small_stack(|| {
        let n = 100_000;
        let nested = |open: &str, close: &str| format!("select {}1{}", open.repeat(n), close.repeat(n));
        let deep = [
            nested("(", ")"),
            nested("array[", "]"),
            nested("(select ", ")"),
            nested("case when true then ", " end"),
            nested("f(", ")"),
            nested("not ", ""),
            nested("- ", ""),
            nested("exists(select ", ")"),
            nested("", "+1"),
            nested("", "::int"),
            nested("", "*1::int"),
            nested("", " union select 1"),
            nested("", " is null"),
            format!("{}select 1{}", "(".repeat(n), ")".repeat(n)),
            nested("((select 1) union ", ")"),
            format!("select {}(values (1)){}", "(".repeat(n), ")".repeat(n)),
            format!("select 1 in {}(select 1), 2{}", "(".repeat(n), ")".repeat(n)),
            format!("select * from {}t{}", "(".repeat(n), ")".repeat(n)),
            format!("{}t{}", "select * from (".repeat(n), ") x".repeat(n)),
            format!("select * from {}t{}", "t join (".repeat(n), ") on true".repeat(n)),
            format!("create table t (a int check ({}1{}))", "(".repeat(n), ")".repeat(n)),
        ];
        for sql in deep {
            let error = parse(&sql).unwrap_err();
            assert_eq!(error.state().0, "54001", "{} {error}", &sql[..40]);
        }
        for chain in [" and a", " or a", " and not a", " or a = -1 and b < 2 + 3"] {
            drop(parse(&format!("select * from t where a{}", chain.repeat(n))).unwrap());
            let error = parse(&format!("select * from t where a{} )", chain.repeat(n))).unwrap_err();
            assert_eq!(error.state().0, "42601");
        }
        assert_eq!(parse(&"explain ".repeat(n)).unwrap_err().state().0, "42601");
        // As deep as is allowed.
        drop(parse(&format!("select 1{}", "+1*1::int".repeat(500))).unwrap());
        drop(parse(&format!("select {}1{}", "(".repeat(120), ")".repeat(120))).unwrap());
        drop(parse(&format!("select {}1{}", "(select ".repeat(30), ")".repeat(30))).unwrap());
        drop(parse(&format!("{}select 1{}", "select * from (".repeat(30), ") x".repeat(30))).unwrap());
        drop(parse(&format!("select 1{}", "+1".repeat(500))).unwrap());
        drop(parse(&format!("select {}select 1{}", "(".repeat(120), ")".repeat(120))).unwrap());
        drop(parse(&format!("select {}(select 1){}", "(".repeat(29), ", 2)".repeat(29))).unwrap());
        let unions = format!("select {}(select 1){}", "((select 1) union ".repeat(90), ")".repeat(90));
        drop(parse(&unions).unwrap());
        // What a table keeps of an expression is written and read once more.
        for (before, middle, behind) in
            [("", "1", "+1*1::int"), ("", "a", " and a"), ("(", "1", ")"), ("not ", "a", "")]
        {
            let n = if behind == " and a" { n } else { 120 };
            let deep = format!("{}{middle}{}", before.repeat(n), behind.repeat(n));
            drop(parse(&format!("create table t (a bool check ({deep}))")).unwrap());
            drop(parse(&format!("create table t (a bool default ({deep}))")).unwrap());
        }
        drop(parse(&format!("create table t (a int default 1{})", "+1*1::int".repeat(500))).unwrap());
    });
}

#[test]
fn a_statement_of_ten_megabytes_is_parsed() {
    on_small_stack(|| {
        let row = "(1, 'some text', NULL, 3.25),";
        let sql = format!("insert into t values {} (2)", row.repeat(10_000_000 / row.len() / 8));
        match &parse(&sql).unwrap()[0].kind {
            Kind::Sql(statement) => assert!(matches!(**statement, ast::Statement::Insert(_))),
            Kind::Utility(_) => panic!("not an insert"),
        }
        let sql = format!("select '{}'", "x".repeat(10_000_000));
        assert_eq!(parse(&sql).unwrap()[0].text.len(), sql.len());
        for part in ["'x'\n", "'x', E'\\x78', ", "'x'\n'y', "] {
            let sql = format!("select {}'z'", part.repeat(1_000_000 / part.len()));
            assert_eq!(parse(&sql).unwrap()[0].text.len(), sql.len());
        }
        let sql = format!("select E'a'\n{}", "'\\x78'\n".repeat(1_000_000));
        assert_eq!(tree(&sql).len(), "SELECT E'a'".len() + 1_000_000);
    });
}

#[test]
fn utility_statements() {
    let of = |sql: &str| tree(sql);
    assert_eq!(
        of("begin isolation level repeatable read, read only"),
        "Begin(TransactionModes { isolation: Some(RepeatableRead), read_only: Some(true), deferrable: None })"
    );
    assert_eq!(of("rollback to savepoint \"A\""), "RollbackTo(\"A\")");
    assert_eq!(of("commit and chain"), "Commit { chain: true }");
    assert_eq!(
        of("set local search_path to a, \"B\", 'c'"),
        "Set { name: \"search_path\", values: Some([\"a\", \"B\", \"c\"]), local: true }"
    );
    assert_eq!(of("set x to default"), "Set { name: \"x\", values: None, local: false }");
    assert_eq!(
        of("set time zone 'UTC'"),
        "Set { name: \"timezone\", values: Some([\"UTC\"]), local: false }"
    );
    assert_eq!(
        of("set extra_float_digits = -3"),
        "Set { name: \"extra_float_digits\", values: Some([\"-3\"]), local: false }"
    );
    assert_eq!(of("show transaction isolation level"), "Show(Some(\"transaction_isolation\"))");
    assert_eq!(of("show all"), "Show(None)");
    assert_eq!(of("discard all"), "Discard(All)");
    assert_eq!(of("declare c cursor for select 1"), "Unsupported(\"DECLARE\")");
    assert_eq!(of("create or replace view v as select 1"), "Unsupported(\"CREATE VIEW\")");
    assert_eq!(
        of("create user x with password 'y' superuser"),
        "CreateRole { name: \"x\", options: RoleOptions { login: Some(true), superuser: Some(true), password: Some(Some(\"y\")) } }"
    );
    assert!(
        of("explain (analyze, buffers off) select 1")
            .contains("analyze: true, verbose: false, buffers: Some(false)")
    );
    assert!(of("vacuum (analyze, verbose) t (a)").contains("analyze: true, verbose: true, full: false"));
    assert_eq!(error("explain (foo) select 1").1, "unrecognized EXPLAIN option \"foo\"");
    assert!(of("prepare p(int, text) as select $1").contains("types: [Int4, Text]"));
    assert!(of("execute p(1, 'x')").starts_with("Execute { name: \"p\""));
    assert_eq!(of("checkpoint"), "Checkpoint");
    assert_eq!(
        of("backup database to '/b' since latest compress 3 keep 7 archive statistics verbose"),
        "BackupDatabase(BackupDatabase { target: Place(\"/b\"), since: Some(Latest), compress: Some(3), keep: Some(7), archive: Some(None), \
         statistics: true, verbose: true })"
    );
    assert_eq!(
        of("backup database to '/b' since 'one'"),
        "BackupDatabase(BackupDatabase { target: Place(\"/b\"), since: Some(Named(\"one\")), compress: None, keep: None, archive: None, \
         statistics: false, verbose: false })"
    );
    assert_eq!(
        of("Backup Database to StdOut since manifest '{}' compress statistics verbose"),
        "BackupDatabase(BackupDatabase { target: Client, since: Some(Manifest(\"{}\")), compress: Some(1), keep: None, archive: None, \
         statistics: true, verbose: true })"
    );
    // Of a folder's backups a client's stream knows nothing, and the other way round.
    for wrong in
        ["to stdout since latest", "to stdout since 'one'", "to stdout keep 3", "to '/b' since manifest '{}'"]
    {
        assert_eq!(error(&format!("backup database {wrong}")).0, "42601", "{wrong}");
    }
    assert_eq!(
        of("dump database to '/d' csv data only table a, public.\"B\" jobs 3 verbose"),
        "DumpDatabase(DumpDatabase { path: Some(\"/d\"), csv: true, schema: false, data: true, tables: \
         [CopyRelation { schema: None, name: \"a\", position: 43 }, \
         CopyRelation { schema: Some(\"public\"), name: \"B\", position: 46 }], jobs: Some(3), verbose: true })"
    );
    assert!(of("dump database to stdout").starts_with("DumpDatabase(DumpDatabase { path: None, csv: false"));
    assert_eq!(error("dump database to '/d' schema only data only").0, "42601");
    for statement in ["dump database to '/d' jobs", "load database from '/d' jobs"] {
        for jobs in ["0", "65", "1000", "99999999999"] {
            let (state, message, _) = error(&format!("{statement} {jobs}"));
            assert_eq!(state, "22023");
            assert!(message.contains("from 1 to 64"), "{message}");
        }
        assert_eq!(error(statement).0, "42601");
        assert!(of(&format!("{statement} 64")).contains("jobs: Some(64)"));
    }
    assert_eq!(
        of("load database from '/d' on error skip jobs 3 verbose"),
        "LoadDatabase(LoadDatabase { source: Path(\"/d\"), skip: true, jobs: Some(3), verbose: true })"
    );
    assert!(of("load database from '/d' on error stop").contains("skip: false, jobs: None, verbose: false"));
    for (from, source) in [
        ("stdin", "Stream(\"standard input\")"),
        ("StdIn Stream 'a pipe'", "Stream(\"a pipe\")"),
        ("stdin FILE 'it''s.sql'", "File(\"it's.sql\")"),
        ("stdin folder 'f' ", "Folder(\"f\")"),
    ] {
        assert_eq!(
            of(&format!("load database from {from} jobs 2 on error skip verbose")),
            format!(
                "LoadDatabase(LoadDatabase {{ source: {source}, skip: true, jobs: Some(2), verbose: true }})"
            )
        );
    }
    for wrong in
        ["stdin 'x'", "stdin file", "stdin file x", "stdin file 'x' folder 'y'", "'/d' file 'x'", "file 'x'"]
    {
        assert_eq!(error(&format!("load database from {wrong}")).0, "42601", "{wrong}");
    }
    assert_eq!(of("load 'library'"), "Unsupported(\"LOAD\")");
    assert_eq!(error("load database from '/d' on error stop on error skip").0, "42601");
    assert_eq!(of("check database verbose"), "CheckDatabase { verbose: true }");
    assert_eq!(error("check table t").0, "42601");
    assert_eq!(of("compact database"), "CompactDatabase { verbose: false }");
    assert_eq!(of("Compact Database VERBOSE"), "CompactDatabase { verbose: true }");
    assert_eq!(error("compact t").0, "42601");
    assert_eq!(error("compact database t").0, "42601");
    assert_eq!(of("stat database"), "StatDatabase { table: None, records: false, verbose: false }");
    let stat = of("Stat Database table public.T records verbose");
    assert!(
        stat.contains("schema: Some(\"public\"), name: \"t\"")
            && stat.contains("records: true, verbose: true")
    );
    assert_eq!(error("stat database verbose records").0, "42601");
    assert_eq!(error("stat t").0, "42601");
    assert_eq!(
        of("verify backup '/b', 's3://bucket/b' verbose"),
        "Verify(Verify { source: Backup([\"/b\", \"s3://bucket/b\"]), verbose: true })"
    );
    assert_eq!(of("Verify Archive '/a'"), "Verify(Verify { source: Archive(\"/a\"), verbose: false })");
    for wrong in ["verify '/b'", "verify backup b", "verify backup '/b',", "verify archive '/a', '/b'"] {
        assert_eq!(error(wrong).0, "42601", "{wrong}");
    }
    assert_eq!(
        of("restore database from '/b' to '/new.gnt'"),
        "RestoreDatabase(RestoreDatabase { places: [\"/b\"], path: \"/new.gnt\", archive: None, verbose: false })"
    );
    let restore = of(
        "Restore Database FROM '/b/1', '/b/2' TO '/n' ARCHIVE '/a' UNTIL LSN 18446744073709551615 VERBOSE",
    );
    assert!(
        restore.contains("archive: Some((\"/a\", Some(Lsn(18446744073709551615)))), verbose: true"),
        "{restore}"
    );
    assert!(of("restore database from '/b' to '/n' archive '/a'").contains("Some((\"/a\", None))"));
    for (until, expected) in
        [("time '2026-11-29 12:00'", "Time(\"2026-11-29 12:00\")"), ("point 'p'", "Point(\"p\")")]
    {
        let restore = of(&format!("restore database from '/b' to '/n' archive '/a' until {until}"));
        assert!(restore.contains(expected), "{restore}");
    }
    for wrong in [
        "restore database to '/n'",
        "restore database from '/b'",
        "restore database from '/b' to n",
        "restore database from '/b' to '/n' until lsn 1",
        "restore database from '/b' to '/n' archive '/a' until '2026-11-29'",
        "restore database from '/b' to '/n' archive '/a' until lsn '1'",
        "restore database from '/b' to '/n' archive '/a' until lsn 1.5",
        "restore from '/b' to '/n'",
    ] {
        assert_eq!(error(wrong).0, "42601", "{wrong}");
    }
    assert_eq!(of("sweep database"), "SweepDatabase { show: false, verbose: false }");
    assert_eq!(of("Sweep Database show verbose"), "SweepDatabase { show: true, verbose: true }");
    assert_eq!(error("sweep database verbose show").0, "42601");
    assert_eq!(error("sweep t").0, "42601");
}

#[test]
fn copy_has_one_list_of_options() {
    for sql in [
        "copy t (a, b) from stdin with (format csv, freeze on, null 'x', force_null (a))",
        "copy t (a, b) from stdin csv freeze null as 'x' force null a",
    ] {
        let Kind::Utility(utility) = parse(sql).unwrap().remove(0).kind else { panic!() };
        let Utility::Copy(copy) = *utility else { panic!() };
        let names: Vec<&str> = copy.options.iter().map(|option| option.name.as_str()).collect();
        assert_eq!(names, ["format", "freeze", "null", "force_null"]);
        assert!(copy.from && copy.file.is_none());
    }
    assert_eq!(error("copy t from program 'x'").0, "0A000");
    assert_eq!(error("copy (select 1) from stdin").0, "42601");
}
