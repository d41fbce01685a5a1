"""psycopg 3 against a running server: clients.py TCP_PORT CA_FILE, with libpq's environment for the Unix socket."""

import datetime
import decimal
import sys
import threading
import time

import psycopg
from psycopg import errors, sql
from psycopg.types.numeric import Int4

UTC = datetime.timezone.utc
COLUMNS = "b bool, s smallint, i bigint, f float8, n numeric(12, 3), t text, v varchar(10), y bytea, d date, ts timestamp, tz timestamptz"
ROW = (
    True,
    -7,
    2**40,
    1.5,
    decimal.Decimal("12.345"),
    "h\u00e9llo\t\\N",
    "vc",
    b"\x00\xff\\",
    datetime.date(2020, 2, 29),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 678),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
)


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def one(cursor):
    return cursor.fetchone()[0]


def values(connection):
    """Types as text and binary, both ways."""
    connection.execute("set timezone to 'UTC'")
    connection.execute(f"create table values_ (id serial primary key, {COLUMNS})")
    names = ["b", "s", "i", "f", "n", "t", "v", "y", "d", "ts", "tz"]
    for given in ("%s", "%t", "%b"):
        places = ", ".join([given] * len(ROW))
        statement = f"insert into values_ ({', '.join(names)}) values ({places}) returning id"
        number = one(connection.execute(statement, ROW))
        for binary in (False, True):
            row = connection.execute(
                f"select {', '.join(names)} from values_ where id = %s", (number,), binary=binary
            ).fetchone()
            expect(row, ROW)
    row = (None,) * len(ROW)
    connection.execute(f"insert into values_ ({', '.join(names)}) values ({', '.join(['%s'] * len(ROW))})", row)
    expect(connection.execute(f"select {', '.join(names)} from values_ order by id desc limit 1").fetchone(), row)
    for binary in (False, True):
        lists = connection.execute(
            "select %s::int[], %s::text[], array[1.5, null]::numeric[]", ([1, 2], ["a", 'b"c']), binary=binary
        ).fetchone()
        expect(lists, ([1, 2], ["a", 'b"c'], [decimal.Decimal("1.5"), None]))
    expect(connection.execute("select id from values_ where id = any(%s) order by id", ([1, 2],)).fetchall(), [(1,), (2,)])
    expect(one(connection.execute("select %s + 1", (Int4(3),))), 4)
    expect(connection.execute("select 1 as a, 'x' as b").description[1].name, "b")
    for numeric in ("0", "-0.0001", "123456789012345678901234567890.123456789", "NaN"):
        number = decimal.Decimal(numeric)
        for binary in (False, True):
            found = one(connection.execute("select %b::numeric", (number,), binary=binary))
            expect(str(found), str(number))
    connection.commit()


def many(connection):
    """executemany, COPY both ways, statements prepared by use, cursors that stream."""
    connection.execute("create table many (i int, t text)")
    with connection.cursor() as cursor:
        cursor.executemany("insert into many values (%s, %s)", [(k, str(k)) for k in range(500)])
        expect(cursor.rowcount, 500)
        cursor.executemany("insert into many values (%s, '') returning i", [(k,) for k in range(3)], returning=True)
        expect(cursor.fetchone(), (0,))
        with cursor.copy("copy many from stdin") as copy:
            for k in range(500):
                copy.write_row((k, f"x\ty\n\\{k}" if k % 7 else None))
        expect(cursor.rowcount, 500)
        with cursor.copy("copy (select t from many where i = 499 order by t desc) to stdout") as copy:
            expect(list(copy.rows()), [("x\ty\n\\499",), ("499",)])
        expect(one(cursor.execute("select count(*) from many")), 1003)
        expect(sum(row[0] for row in cursor.stream("select i from generate_series(1, 20000) i")), 200010000)
    connection.commit()

    def give_up():
        with connection.cursor().copy("copy many from stdin") as copy:
            copy.write_row((1, "lost"))
            raise ZeroDivisionError

    raises(errors.QueryCanceled, give_up)
    connection.rollback()

    def bad_row():
        with connection.cursor().copy("copy many from stdin") as copy:
            copy.write("1\tgood\nbad\trow\n")

    error = raises(errors.InvalidTextRepresentation, bad_row)
    expect(error.diag.context, 'COPY many, line 2, column i: "bad"')
    connection.rollback()
    for k in range(12):
        expect(connection.execute("select count(*) from many where i = %s and t = %s", (k, str(k))).fetchone(), (1,))
    connection.execute("drop table many")
    connection.commit()


def transactions(connection):
    """Blocks within blocks, and what errors tell."""
    connection.execute("create table account (id int constraint one_each primary key, n int not null check (n >= 0))")
    connection.commit()
    with connection.transaction():
        connection.execute("insert into account values (1, 10)")
        try:
            with connection.transaction():
                connection.execute("update account set n = 5")
                with connection.transaction():
                    connection.execute("select 1 / 0")
        except errors.DivisionByZero:
            pass
        with connection.transaction() as inner:
            connection.execute("update account set n = 7")
            raise psycopg.Rollback(inner)
        with connection.transaction():
            connection.execute("insert into account values (2, 20)")
    expect(connection.execute("select id, n from account order by id").fetchall(), [(1, 10), (2, 20)])
    connection.commit()
    error = raises(errors.UniqueViolation, lambda: connection.execute("insert into account values (1, 1)"))
    diag = error.diag
    expect((diag.severity, diag.sqlstate, diag.constraint_name, diag.table_name, diag.schema_name),
           ("ERROR", "23505", "one_each", "account", "public"))
    expect(diag.message_primary, 'duplicate key value violates unique constraint "one_each"')
    expect(diag.message_detail, "Key (id)=(1) already exists.")
    raises(errors.InFailedSqlTransaction, lambda: connection.execute("select 1"))
    expect(connection.info.transaction_status, psycopg.pq.TransactionStatus.INERROR)
    connection.rollback()
    error = raises(errors.CheckViolation, lambda: connection.execute("update account set n = -1"))
    expect(error.diag.constraint_name, "account_n_check")
    connection.rollback()
    error = raises(errors.NotNullViolation, lambda: connection.execute("insert into account values (3)"))
    expect(error.diag.column_name, "n")
    connection.rollback()
    error = raises(errors.UndefinedColumn, lambda: connection.execute("select id, m from account"))
    expect(error.diag.statement_position, "12")
    connection.rollback()
    connection.execute(sql.SQL("drop table {}").format(sql.Identifier("account")))
    connection.commit()


def pipelines(connection):
    with connection.pipeline() as pipeline:
        first = connection.execute("select 1")
        second = connection.execute("select %s::int", (5,))
        expect((first.fetchone(), second.fetchone()), ((1,), (5,)))
        connection.execute("create table piped (a int)")
        for k in range(100):
            connection.execute("insert into piped values (%s)", (k,))
        pipeline.sync()
        expect(one(connection.execute("select sum(a) from piped")), 4950)
    connection.commit()

    def fails():
        with connection.pipeline():
            connection.execute("insert into piped values (1)")
            connection.execute("select 1 / 0")
            connection.execute("insert into piped values (2)")

    raises(psycopg.Error, fails)
    connection.rollback()
    expect(one(connection.execute("select count(*) from piped")), 100)
    connection.execute("drop table piped")
    connection.commit()


def cancelling(connection):
    done = threading.Event()

    def cancel():
        while not done.wait(0.05):
            connection.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    raises(errors.QueryCanceled, lambda: connection.execute("select pg_sleep(60)"))
    done.set()
    thread.join()
    connection.rollback()
    connection.execute("set statement_timeout = '50ms'")
    raises(errors.QueryCanceled, lambda: connection.execute("select pg_sleep(60)"))
    connection.rollback()
    for _ in range(100):  # A request to cancel may still be on its way.
        try:
            expect(one(connection.execute("select 1")), 1)
            break
        except errors.QueryCanceled:
            connection.rollback()
            time.sleep(0.01)
    connection.rollback()


def encrypted(port, authority):
    options = {
        "host": "localhost", "hostaddr": "127.0.0.1", "port": port, "dbname": "shop", "user": "ann",
        "sslmode": "verify-full", "sslrootcert": authority,
    }
    with psycopg.connect(password="pencil", **options) as connection:
        expect(connection.pgconn.ssl_in_use, True)
        expect(one(connection.execute("select current_user")), "ann")
        expect(one(connection.execute("select length(%s)", ("x" * 200000,))), 200000)
        cancelling(connection)
    for user, password in (("ann", "pen"), ("nobody", "pencil")):
        error = raises(psycopg.OperationalError, lambda: psycopg.connect(**{**options, "user": user, "password": password}))
        if "password authentication failed" not in str(error):
            raise AssertionError(str(error))
    with psycopg.connect(**{**options, "sslmode": "disable", "password": "pencil"}) as connection:
        expect(connection.pgconn.ssl_in_use, False)
        expect(one(connection.execute("select 1")), 1)


def main():
    port, authority = sys.argv[1:]
    with psycopg.connect() as connection:
        expect(connection.info.server_version // 10000, 15)
        expect(connection.info.encoding, "utf-8")
        for part in (values, many, transactions, pipelines, cancelling):
            part(connection)
        connection.execute("drop table values_")
    encrypted(port, authority)


main()
