#!/usr/bin/env python3
"""Writes PostgreSQL's answers into the case files beside this script.

    record.py 'host=/var/run/postgresql user=postgres dbname=cases' [FILE...]

The database must be of PostgreSQL 15, with encoding UTF8 and C as its collation; schema public is emptied for every file. Cases that
begin with `-- gannet:` keep their answers. Needs psycopg 3.
"""

import pathlib
import sys

import psycopg
from psycopg import pq

MESSAGE, STATE = pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.SQLSTATE


def shown(text):
    for plain, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, written)
    return text


def copy_out(connection):
    out = b""
    while True:
        length, data = connection.get_copy_data(0)
        if length < 0:
            return out.decode()
        out += bytes(data)


def copy_in(connection, data):
    if data:
        connection.put_copy_data(data.encode())
    connection.put_copy_end(None)


def rows(result, types):
    head = [f"{result.fname(c).decode()}:{types.get(result.ftype(c), 'record')}" for c in range(result.nfields)]
    lines = [" ".join(head)]
    for row in range(result.ntuples):
        values = (result.get_value(row, column) for column in range(result.nfields))
        lines.append("| " + " | ".join("NULL" if v is None else shown(v.decode()) for v in values))
    return lines


def answer(connection, statement, data, types):
    """What the last statement of a text gives, or its error, as cases.rs writes it."""
    connection.send_query(statement.encode())
    lines, error, output = [], None, ""
    while result := connection.get_result():
        status = result.status
        if status == pq.ExecStatus.FATAL_ERROR:
            error = f"{result.error_field(STATE).decode()} {shown(result.error_field(MESSAGE).decode())}"
        elif status == pq.ExecStatus.COPY_OUT:
            output = copy_out(connection)
        elif status == pq.ExecStatus.COPY_IN:
            copy_in(connection, data)
        elif status == pq.ExecStatus.TUPLES_OK:
            lines = rows(result, types) + [result.command_status.decode()]
        elif status == pq.ExecStatus.EMPTY_QUERY:
            lines = [""]
        else:
            lines = (output.splitlines() if output else []) + [result.command_status.decode()]
    return error if error is not None else "\n".join(lines)


def parse(text):
    """The file as pieces: text to keep, or [statement, data or None, answer]."""
    lines = iter(text.splitlines())
    for first in lines:
        if not first or first.startswith("#"):
            yield first
            continue
        parts, part = [[first], None, []], 0
        for line in lines:
            if line == "<<<<" and part == 0:
                parts[1], part = [], 1
            elif line == "----" and part < 2:
                part = 2
            elif not line and part == 2:
                break
            else:
                parts[part].append(line)
        yield parts


def record(path, connect):
    with psycopg.connect(connect, autocommit=True) as admin:
        admin.execute("drop schema public cascade; create schema public")
        types = dict(admin.execute("select oid, typname from pg_type").fetchall())
    out = []
    with psycopg.connect(connect, autocommit=True) as connection:
        connection.pgconn.exec_(b"set timezone = 'UTC'; set client_min_messages = error")
        for case in parse(path.read_text()):
            if isinstance(case, str):
                out.append(case)
                continue
            statement, data, old = case
            if statement[0].startswith("-- gannet:"):
                now = "\n".join(old)
            else:
                text = "".join(line + "\n" for line in data or [])
                now = answer(connection.pgconn, "\n".join(statement), text, types)
            out += statement + (["<<<<", *data] if data is not None else []) + ["----"] + now.split("\n") + [""]
    while out and not out[-1]:
        out.pop()
    path.write_text("\n".join(out) + "\n")


def main():
    here = pathlib.Path(__file__).parent
    for path in [pathlib.Path(name) for name in sys.argv[2:]] or sorted(here.glob("*.case")):
        record(path, sys.argv[1])


main()
