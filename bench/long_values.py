"""Clients who read, sort, join, write and compare long values. See long-values.sh.

    long_values.py SECONDS      connects as PGHOST and the like say; prints one JSON object a line
"""

import json
import random
import sys
import threading
import time

import psycopg

SECONDS = float(sys.argv[1])
LONG = 960_000  # characters of a long value
CONNECTIONS = (1, 4, 16)

ALIKE = [
    ("join by the value", "select count(*) from big x join big y on x.b = y.b", None),
    ("group by the value", "select b, count(*) from big group by b", None),
    ("sort by the value", "select count(*) from (select b from big order by b offset 3) s", None),
    ("read beside the value", "select a from big where a = 3", None),
    ("read one", "select b from big where a = 3", None),
    ("read all", "select b from big", None),
    ("search all", "select count(*) from big where b like '%abcabc%'", None),
    ("insert", "insert into sink (b) values (%s)", lambda worker: ("x" * LONG,)),
    ("update", "update big set b = b || '' where a = %s", lambda worker: (worker,)),
]


def connect():
    return psycopg.connect("", autocommit=True)


def together(count, seconds, step):
    """Has `count` connections repeat `step`. Returns how often it was done, and the refusals by SQLSTATE."""
    done, refused, broken, mutex = [0], {}, [], threading.Lock()

    def work(worker):
        try:
            with connect() as connection:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    try:
                        step(connection, worker)
                        state = None
                    except psycopg.Error as error:
                        if error.sqlstate not in ("53200", "40P01"):
                            raise
                        state = error.sqlstate
                    with mutex:
                        if state:
                            refused[state] = refused.get(state, 0) + 1
                        else:
                            done[0] += 1
        except Exception as error:  # of a thread: reported at the end
            broken.append(repr(error)[:200])

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        sys.exit(f"a client failed: {broken[0]}")
    return done[0], refused


def alike():
    """40 values of some megabyte, every connection doing the same."""
    with connect() as connection:
        connection.execute("drop table if exists big")
        connection.execute("drop table if exists sink")
        connection.execute("create table big (a int primary key, b text)")
        connection.execute("create table sink (a bigserial primary key, b text)")
        for row in range(40):
            connection.execute("insert into big values (%s, repeat(md5(%s::text), 30000))", (row, str(row)))
    for name, statement, arguments in ALIKE:
        for count in CONNECTIONS:

            def step(connection, worker):
                cursor = connection.execute(statement, arguments and arguments(worker))
                if cursor.description:
                    cursor.fetchall()

            done, refused = together(count, SECONDS, step)
            print(json.dumps({"what": name, "connections": count, "done": done, "refused": refused}), flush=True)


def mixed():
    """Rows of 60 to 120 KB, sixteen connections doing anything with them. No value may be another than was written."""
    lengths = range(60_000, 125_000, 5_000)
    with connect() as connection:
        connection.execute("drop table if exists rows_")
        connection.execute("create table rows_ (id int primary key, k int, b text, h text)")
        connection.execute("create index on rows_ (k)")
        for row in range(64):
            text = value(random.Random(row), lengths)
            connection.execute("insert into rows_ values (%s, %s, %s, md5(%s::text))", (row, row % 5, text, text))
    chance = [random.Random(worker) for worker in range(16)]

    def step(connection, worker):
        dice = chance[worker]
        row, which = dice.randrange(4) * 16 + worker, dice.randrange(9)
        if which < 3:
            text = value(dice, lengths)
            with connection.transaction():
                if which == 2:
                    connection.execute("select * from rows_ where id = %s for update", (row,))
                connection.execute("update rows_ set b = %s, h = md5(%s::text) where id = %s", (text, text, row))
        elif which == 3:
            connection.execute("select id, b, h from rows_ where k = %s", (dice.randrange(5),)).fetchall()
        elif which == 4:
            connection.execute("select id, b from rows_ order by b desc, id limit 5").fetchall()
        elif which == 5:
            connection.execute("select sum(n) from (select b, count(*) n from rows_ group by b) s").fetchall()
        elif which == 6:
            wrong = connection.execute("select count(*) from rows_ where md5(b) <> h").fetchone()[0]
            if wrong:
                raise ValueError(f"{wrong} rows hold another value than was written")
        elif which == 7:
            connection.execute("select count(*) from rows_ x join rows_ y on x.b = y.b and x.id = y.id").fetchall()
        else:
            connection.execute("select count(*) from (select b from rows_ union select b from rows_) s").fetchall()

    done, refused = together(16, 5 * SECONDS, step)
    print(json.dumps({"what": "mixed", "connections": 16, "done": done, "refused": refused}), flush=True)


def value(dice, lengths):
    return (f"{dice.getrandbits(128):032x}" * 4000)[: dice.choice(lengths)]


alike()
mixed()
