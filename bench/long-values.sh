#!/usr/bin/env bash
# Memory while many connections handle long values at one time, on small budgets. No rival: what counts is that the budget
# holds.
#
#   query       40 values of 960 KB read, searched, sorted, grouped, joined, inserted and updated by 1, 4 and 16 connections; then
#               rows of 60 to 120 KB, 16 connections doing all of that at random, each value checked against its MD5
#   schema      a table with an integer key and a text; see long_values.py
#   memory      budgets of 8, 32, 64 and 128 MiB; the peak is that of the server's memory cgroup, or of the process without one
#   durability  synchronous
#
# A statement may be refused for want of memory (53200): how many were, of all, is shown.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
/usr/bin/python3 -c 'import psycopg' 2>/dev/null || { say "psycopg 3 is missing: apt-get install python3-psycopg"; exit 1; }
(cd "$ROOT" && cargo build --quiet --release -p gannet)
EACH=3
[ "${QUICK:-0}" = 1 ] && EACH=1
for MEMORY in 8 32 64 128; do
    DATA=$BENCH_DIR/long-values
    rm -rf "${DATA:?}"
    mkdir -p "$DATA"
    start_gannet "$DATA/long.gnt" $MEMORY $((MEMORY + 512))
    out=$(PGHOST=$SOCKETS PGPORT=5433 PGUSER=$(id -un) PGDATABASE=long /usr/bin/python3 "$BENCH/long_values.py" $EACH | keep long-values)
    top=$(peak gannet || true)
    top=${top:-$(awk '/^VmHWM/ {print int($2 / 1024)}' "/proc/$gannet_pid/status")}
    stop_gannet
    sleep 0.2
    ungroup
    row "long values, up to 16 connections: memory peak over a budget of $MEMORY MiB" "$top" $MEMORY $((top - MEMORY)) at-most 72
    python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin]
refused = sum(line["refused"].get("53200", 0) for line in lines)
done = sum(line["done"] for line in lines)
print(f"| (statements of these that were refused) | {refused} | {done + refused} | {refused / max(done + refused, 1):.2f} | | |")' <<<"$out"
    rm -rf "${DATA:?}"
done
