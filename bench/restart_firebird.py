"""Time from a process's start to its first commit in a Firebird database whose processes were killed at full load.

    restart_firebird.py FOLDER SECONDS

Firebird has no log: what it leaves is record versions of dead transactions. The engine is embedded in `isql-fb`, sixteen of them
(Classic), forced writes on as by default. One JSON object. Needs Debian's firebird3.0-utils and firebird3.0-server-core.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

ROWS = 2_000_000
SESSIONS = 16
ENGINE = pathlib.Path("/usr/lib/x86_64-linux-gnu/firebird/3.0")
ISQL = ["isql-fb", "-q", "-bail"]


def commit(number, value):
    return f"update r set v = lpad('', 192, '{value}') where k = {number}; commit;\n"


def environment(folder):
    """A root of our own, in which several processes may share a database."""
    root = folder / "root"
    if not root.exists():
        root.mkdir()
        for part in ENGINE.iterdir():
            if part.name != "firebird.conf":
                (root / part.name).symlink_to(part.resolve())
        (root / "firebird.conf").write_text("ServerMode = Classic\n")
    return dict(os.environ, FIREBIRD=str(root), FIREBIRD_LOCK=str(folder), FIREBIRD_TMP=str(folder))


def isql(text, folder, *more):
    return subprocess.run([*ISQL, *more], input=text, text=True, env=environment(folder), check=True, stdout=subprocess.DEVNULL)


def fill(path, folder):
    isql(
        f"create database '{path}' page_size 8192;\n"
        "create table r (k bigint not null primary key, v varchar(192) character set octets);\ncommit;\n"
        "set term ^;\n"
        "execute block as declare i bigint = 0; declare v varchar(192) character set octets; begin\n"
        f"  while (i < {ROWS}) do begin\n"
        f"    v = {' || '.join(['gen_uuid()'] * 12)}; insert into r values (:i, :v); i = i + 1;\n"
        "  end\nend^\nset term ;^\ncommit;\n",
        folder,
    )


def main():
    folder, seconds = pathlib.Path(sys.argv[1]).resolve(), float(sys.argv[2])
    if not shutil.which("isql-fb") or not ENGINE.exists():
        sys.exit("isql-fb is missing: apt-get install firebird3.0-utils firebird3.0-server-core")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "restart.fdb"
    fill(path, folder)
    workers = []
    for session in range(SESSIONS):
        chooser = random.Random(session)
        script = folder / f"load-{session}.sql"
        script.write_text("".join(commit(chooser.randrange(ROWS), i % 10) for i in range(200_000)))
        workers.append(subprocess.Popen([*ISQL, "-i", str(script), str(path)], env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    time.sleep(seconds)
    alive = sum(worker.poll() is None for worker in workers)
    for worker in workers:
        worker.kill()
        worker.wait()
    if not alive:
        sys.exit("the load ended before it was killed")
    os.sync()
    started = time.monotonic()
    isql(commit(7, "y"), folder, str(path))
    took = time.monotonic() - started
    shutil.rmtree(folder)
    print(json.dumps({"side": "firebird", "sessions_killed": alive, "first_commit_seconds": took}))


if __name__ == "__main__":
    main()
