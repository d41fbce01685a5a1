"""Time from a process's start to its first commit in an SQLite database that was killed with so many bytes in its WAL.

    restart_sqlite.py FOLDER MIB

One JSON object. SQLite is the one that Python comes with.
"""

import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

ROWS = 2_000_000
SCHEMA = "pragma page_size = 8192; pragma journal_mode = wal; pragma synchronous = full; pragma wal_autocheckpoint = 0;"


def fill(path, wal_bytes):
    """Updates random rows until the WAL is long enough, and dies."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(SCHEMA)
    connection.execute("create table if not exists rows (k integer primary key, v blob not null)")
    connection.execute("begin")
    connection.executemany("insert or replace into rows values (?, zeroblob(192))", ((i,) for i in range(ROWS)))
    connection.execute("commit")
    connection.execute("pragma wal_checkpoint(truncate)")
    while os.path.getsize(path + "-wal") < wal_bytes:
        connection.execute("begin")
        for _ in range(500):
            connection.execute("update rows set v = randomblob(192) where k = ?", (random.randrange(ROWS),))
        connection.execute("commit")
    os.kill(os.getpid(), signal.SIGKILL)


def commit(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("pragma synchronous = full; pragma wal_autocheckpoint = 0;")
    connection.execute("update rows set v = randomblob(192) where k = 7")
    print(time.time(), flush=True)
    # Closing would write all of the WAL back.
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    folder, mib = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    path = str(folder / "restart.sqlite")
    if len(sys.argv) > 3:
        return {"fill": lambda: fill(path, mib << 20), "commit": lambda: commit(path)}[sys.argv[3]]()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("", "-wal", "-shm"):
        pathlib.Path(path + name).unlink(missing_ok=True)
    subprocess.run([sys.executable, __file__, *sys.argv[1:3], "fill"], check=False)
    log_bytes = os.path.getsize(path + "-wal")
    os.sync()
    started = time.time()
    done = subprocess.run([sys.executable, __file__, *sys.argv[1:3], "commit"], capture_output=True, text=True, check=False)
    seconds = float(done.stdout.split()[0]) - started
    print(json.dumps({"side": "sqlite", "version": sqlite3.sqlite_version, "log_bytes": log_bytes, "first_commit_seconds": seconds}))


if __name__ == "__main__":
    main()
