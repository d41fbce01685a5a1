"""Time from a server's start to its first commit, after it was killed at full load with so many bytes of log to redo.

    restart_wire.py gannet|postgres --data FOLDER --log MIB --memory MIB --scale N --program PATH [--load KIND] [--runs N]

The load is pgbench's TPC-B-like script, 16 clients, everything synchronous; or one `loser`, a transaction that has inserted so
many MiB and is still open; or `none`. The client that looks for the server tries to connect every 2 ms and commits one
transaction of the TPC-B kind. One JSON object a run. Needs psycopg 3 and pgbench.
"""

import argparse
import json
import os
import pathlib
import pwd
import random
import re
import signal
import subprocess
import sys
import time

import psycopg

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LONGEST_LOAD_S = 900
LONGEST_START_S = 600


class Gannet:
    """`gannet serve`, with twice as much log allowed as is to be redone: about half of it is the steady state."""

    database = "pgbench"

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = pathlib.Path(arguments.data)
        self.sockets = self.folder / "sockets"
        self.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.where = {"host": str(self.sockets), "port": 5433, "user": pwd.getpwuid(os.geteuid()).pw_name}

    def prepare(self):
        return not (self.folder / "complete").exists()

    def prepared(self):
        (self.folder / "complete").touch()

    def start(self):
        environment = dict(os.environ, GANNET_WAL_LIMIT=f"{2 * self.arguments.log}MiB")
        command = [self.arguments.program, "serve", str(self.folder / "pgbench.gnt"), "--memory", f"{self.arguments.memory}MiB"]
        command += ["--listen", "none", "--socket", str(self.sockets), "--port", "5433"]
        return spawn(command, self.folder / "server.log", environment)

    def log_bytes(self, connection):
        detail = connection.execute("select detail from gannet_jobs where job = 'checkpoint'").fetchone()[0]
        number, unit = re.search(r"through ([0-9.]+)([A-Za-z]+) of log", detail).groups()
        return int(float(number) * UNITS[unit])

    def wait_for_rest(self, connection):
        """What the start has left to the background: its phase, seconds, pages."""
        while True:
            row = connection.execute(
                "select phase, open_seconds, background_seconds, pages, redone_pages, log_bytes from gannet_restart"
            ).fetchone()
            if row[0] in ("done", "stopped"):
                return dict(zip(("phase", "open_seconds", "background_seconds", "pages", "redone_pages", "log_bytes"), row))
            time.sleep(0.05)


class Postgres:
    """PostgreSQL, with no checkpoint but the one before the load."""

    database = "pgbench"

    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = pathlib.Path(arguments.data)
        self.where = {"host": str(self.folder), "port": 5434, "user": "bench"}

    def prepare(self):
        process = self.start()
        wait_for(self, "postgres")
        with connect(self, "postgres") as connection:
            connection.autocommit = True
            found = connection.execute("select count(*) from pg_database where datname = 'pgbench'").fetchone()[0]
            if not found:
                connection.execute("create database pgbench")
        with connect(self) as connection:
            there = connection.execute("select count(*) from pg_class where relname = 'pgbench_branches'").fetchone()[0]
            rows = connection.execute("select count(*) from pgbench_branches").fetchone()[0] if there else 0
        end(process, signal.SIGINT)
        return rows != self.arguments.scale

    def prepared(self):
        pass

    def start(self):
        settings = {
            "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "",
            "unix_socket_directories": str(self.folder), "port": "5434", "unix_socket_permissions": "0777",
            "shared_buffers": f"{self.arguments.memory}MB", "max_wal_size": f"{8 * self.arguments.log}MB",
            "checkpoint_timeout": "1d",
        }
        command = [self.arguments.program, "-D", str(self.folder)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] + command
        return spawn(command, "/tmp/gannet-bench-postgres.log", os.environ)

    def log_bytes(self, connection):
        query = "select (pg_current_wal_lsn() - redo_lsn)::bigint from pg_control_checkpoint()"
        return connection.execute(query).fetchone()[0]

    def wait_for_rest(self, _connection):
        return {}


def spawn(command, log, environment):
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd="/", start_new_session=True)


def connect(side, database=None):
    return psycopg.connect(dbname=database or side.database, **side.where)


def wait_for(side, database=None):
    began = time.monotonic()
    while True:
        try:
            connect(side, database).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() - began > LONGEST_START_S:
                sys.exit("the server does not answer")
            time.sleep(0.05)


def end(process, how):
    process.send_signal(how)
    process.wait(120)


def pgbench(side, *options):
    environment = dict(os.environ, PGHOST=side.where["host"], PGPORT=str(side.where["port"]), PGUSER=side.where["user"])
    command = ["pgbench", *options, side.database]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tpcb(side, wanted):
    """Loads the server until it has so much log to redo. Gives the bytes, and how to end the load once the server is gone."""
    worker = pgbench(side, "-n", "-M", "prepared", "-b", "tpcb-like", "-c", "16", "-j", "2", "-T", str(LONGEST_LOAD_S))
    best, best_at = 0, time.monotonic()
    with connect(side) as connection:
        connection.autocommit = True
        while best < wanted and time.monotonic() - best_at < 30 and worker.poll() is None:
            time.sleep(0.5)
            found = side.log_bytes(connection)
            if found > best:
                best, best_at = found, time.monotonic()

    def end_load():
        worker.kill()
        worker.wait()

    return best, end_load


def loser(side, wanted):
    """One transaction inserts so many bytes and stays open."""
    with connect(side) as connection:
        connection.execute("create table if not exists lost (id bigint primary key, v text)")
    connection = connect(side)
    # Rows of about 1 KiB.
    connection.execute(
        "insert into lost select n, repeat(md5(n::text), 31) from generate_series(1, %s) as n", (wanted >> 10,)
    )
    return wanted, lambda: None if connection.closed else connection.close()


def none(_side, _wanted):
    return 0, lambda: None


LOADS = {"tpcb": tpcb, "loser": loser, "none": none}


def first_commit(side, started):
    """Seconds from `started` to a commit, and the connection that made it."""
    random.seed(1)
    account, delta = random.randrange(1, 100_000 * side.arguments.scale), random.randrange(-5000, 5000)
    while True:
        try:
            connection = connect(side)
            break
        except psycopg.OperationalError:
            if time.monotonic() - started > LONGEST_START_S:
                sys.exit("the server does not answer")
            time.sleep(0.002)
    with connection.transaction():
        connection.execute("update pgbench_accounts set abalance = abalance + %s where aid = %s", (delta, account))
        connection.execute("update pgbench_tellers set tbalance = tbalance + %s where tid = 1", (delta,))
        connection.execute("update pgbench_branches set bbalance = bbalance + %s where bid = 1", (delta,))
        connection.execute(
            "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, %s, %s, current_timestamp)",
            (account, delta),
        )
    return time.monotonic() - started, connection


def measure(side):
    process = side.start()
    wait_for(side)
    with connect(side) as connection:
        connection.autocommit = True
        connection.execute("checkpoint")
    log_bytes, end_load = LOADS[side.arguments.load](side, side.arguments.log << 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end_load()
    time.sleep(1)
    started = time.monotonic()
    process = side.start()
    seconds, connection = first_commit(side, started)
    connection.autocommit = True
    rest = side.wait_for_rest(connection)
    connection.close()
    end(process, signal.SIGINT)
    return {"side": side.arguments.side, "load": side.arguments.load, "log_bytes": log_bytes, "first_commit_seconds": seconds, **rest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=["gannet", "postgres"])
    parser.add_argument("--data", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--log", type=int, required=True, help="MiB of log to redo, or inserted")
    parser.add_argument("--memory", type=int, required=True, help="MiB")
    parser.add_argument("--scale", type=int, required=True)
    parser.add_argument("--load", choices=LOADS, default="tpcb")
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    side = (Gannet if arguments.side == "gannet" else Postgres)(arguments)
    if side.prepare():
        process = side.start()
        if isinstance(side, Gannet):
            wait_for(side)
        else:
            wait_for(side, "postgres")
        if pgbench(side, "-q", "-i", "-s", str(arguments.scale)).wait() != 0:
            sys.exit("pgbench -i failed")
        end(process, signal.SIGINT)
        side.prepared()
    for _ in range(arguments.runs):
        print(json.dumps(measure(side)), flush=True)


if __name__ == "__main__":
    main()
