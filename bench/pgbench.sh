#!/usr/bin/env bash
# pgbench against PostgreSQL 15, everything in memory, Unix sockets.
#
#   query       pgbench's own scripts, -M prepared: select-only (-S), and the TPC-B-like one
#   schema      pgbench -i, scale 50 (5,000,000 accounts), ANALYZE
#   threads     8 clients, -j 2
#   memory      Gannet: --memory 2048MiB; PostgreSQL: shared_buffers = 2GB; neither is in want of any
#   durability  synchronous on both sides: fsync, synchronous_commit and full_page_writes are on
#   cache       warm
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
need pgbench "apt-get install postgresql-15 (its contrib programs)"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
SCALE=50
[ "${QUICK:-0}" = 1 ] && SCALE=10
DATA=$BENCH_DIR/pgbench-$SCALE
mkdir -p "$BENCH_DIR" "$DATA"
MEMORY=2048
init_postgres
start_gannet "$DATA/pgbench.gnt" $MEMORY $((MEMORY + 64 + 8))
start_postgres 0 shared_buffers=2GB
ours() { PGHOST=$SOCKETS PGPORT=5433 PGUSER=$(id -un) PGDATABASE=pgbench "$@"; }
theirs() { PGHOST=$PG_DIR PGPORT=5434 PGUSER=bench PGDATABASE=pgbench "$@"; }
if [ ! -e "$DATA/complete" ]; then
    say "filling Gannet"
    ours pgbench -q -i -s $SCALE >/dev/null 2>&1
    ours psql -qXc analyze
    touch "$DATA/complete"
fi
if [ "$(theirs psql -XAtd postgres -c "select count(*) from pg_database where datname = 'pgbench'")" = 0 ] ||
    [ "$(theirs psql -XAtc "select count(*) from pgbench_branches")" != $SCALE ]; then
    say "filling PostgreSQL"
    theirs psql -qXd postgres -c "drop database if exists pgbench" -c "create database pgbench" 2>/dev/null
    theirs pgbench -q -i -s $SCALE >/dev/null 2>&1
    theirs psql -qXc "vacuum analyze"
fi
measure() { # measure SIDE SCRIPT
    $1 pgbench -n -M prepared -b "$2" -c 8 -j 2 -T $((SECONDS_EACH * 2)) 2>/dev/null |
        awk -v side="$1" -v script="$2" '/^tps/ {tps = $3} /^latency average/ {latency = $4} /failed/ {failed = $6}
            END {printf "{\"side\": \"%s\", \"script\": \"%s\", \"tps\": %s, \"latency_ms\": %s, \"failed\": \"%s\"}\n", side, script, tps, latency, failed}' |
        keep pgbench | pick tps
}
for script in select-only tpcb-like; do
    a=() b=()
    ours pgbench -n -M prepared -b select-only -c 8 -j 2 -T $SECONDS_EACH >/dev/null 2>&1
    theirs pgbench -n -M prepared -b select-only -c 8 -j 2 -T $SECONDS_EACH >/dev/null 2>&1
    for _ in $(seq "$RUNS"); do
        a+=("$(measure ours $script)")
        b+=("$(measure theirs $script)")
    done
    mine=$(median "${a[@]}") his=$(median "${b[@]}")
    wanted=1.0
    [ $script = tpcb-like ] && wanted=1.2
    row "pgbench -M prepared $script, scale $SCALE, tps ÷ PostgreSQL 15" "${mine%.*}" "${his%.*}" "$(ratio "$mine" "$his")" at-least $wanted
done
top=$(peak gannet || true)
[ -z "$top" ] || row "pgbench: memory peak over the budget (MiB)" "$top" $MEMORY $((top - MEMORY)) at-most 68
row "pgbench: cached pages of our files (MiB)" "$(cached "$DATA/pgbench.gnt")" 0 "$(cached "$DATA/pgbench.gnt")" at-most 1
