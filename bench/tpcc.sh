#!/usr/bin/env bash
# TPC-C's transactions over the protocol, one driver for both, with a quarter of the data's memory; the device limited to
# 10,000 requests a second for both, and not limited.
#
#   query       the five transactions of TPC-C, prepared, no think times (gannet-lab tpcc)
#   schema      the nine tables, keys as the specification says, two more indexes
#   threads     25 sessions, Unix sockets
#   memory      the same in all for both, kept by a memory cgroup with the page cache inside; Gannet: --memory is that less
#               16 MiB; PostgreSQL: shared_buffers is a quarter of it (with half of it the OOM killer comes), the rest its page
#               cache, empty at the start
#   cache       each run begins with a warm-up that is not counted
#   durability  synchronous on both sides: fsync, synchronous_commit and full_page_writes are on. PostgreSQL has 8 GB of log for a
#               checkpoint, which no run fills; Gannet its default, 1 GiB
#   device      the limit is blkio.throttle of cgroup v1, for reads and for writes, set for the root group: it counts everybody's
#               requests, also those of the kernel's flusher
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
build rivals
(cd "$ROOT" && cargo build --quiet --release -p gannet)
SESSIONS=25
if [ "${QUICK:-0}" = 1 ]; then WAREHOUSES=8 TOTAL=208; else WAREHOUSES=24 TOTAL=576; fi
BUDGET=$((TOTAL - 16))
DATA=$BENCH_DIR/tpcc-$WAREHOUSES
mkdir -p "$BENCH_DIR"
OURS="host=$SOCKETS port=5433 user=$(id -un) dbname=tpcc"
THEIRS="host=$PG_DIR port=5434 user=bench dbname=tpcc$WAREHOUSES"
tpcc() { "$LAB" tpcc "$1" --url "$2" --warehouses $WAREHOUSES "${@:3}"; }
users() { tpcc run "$1" --sessions $SESSIONS --seconds "$2" --seed "$3"; }
# measure URL SEED: transactions a second, after a warm-up.
measure() {
    users "$1" $((SECONDS_EACH * 2)) $(($2 + 1000)) >/dev/null
    users "$1" $((SECONDS_EACH * 4)) "$2" | keep tpcc | pick measured.transactions_per_second
}
init_postgres
if [ ! -e "$DATA/complete" ]; then
    say "filling Gannet"
    rm -rf "${DATA:?}"
    mkdir -p "$DATA"
    start_gannet "$DATA/tpcc.gnt" 2048 0
    tpcc load "$OURS" | keep tpcc >/dev/null
    stop_gannet
    touch "$DATA/complete"
fi
start_postgres 0 shared_buffers=1GB
if [ "$(PGHOST=$PG_DIR PGPORT=5434 PGUSER=bench psql -XAtd postgres -c "select count(*) from pg_database where datname = 'tpcc$WAREHOUSES'")" = 0 ]; then
    say "filling PostgreSQL"
    PGHOST=$PG_DIR PGPORT=5434 PGUSER=bench psql -qXd postgres -c "create database loading$WAREHOUSES"
    tpcc load "${THEIRS/dbname=tpcc/dbname=loading}" | keep tpcc >/dev/null
    PGHOST=$PG_DIR PGPORT=5434 PGUSER=bench psql -qXd loading$WAREHOUSES -c "vacuum analyze"
    PGHOST=$PG_DIR PGPORT=5434 PGUSER=bench psql -qXd postgres -c "alter database loading$WAREHOUSES rename to tpcc$WAREHOUSES"
fi
stop_postgres
say "data: Gannet $(du -sm "$DATA" | cut -f1) MiB; memory: $TOTAL MiB"
for iops in 10000 0; do
    a=() b=() over=0 held=0
    for seed in $(seq "$RUNS"); do
        start_gannet "$DATA/tpcc.gnt" $BUDGET $TOTAL
        throttle $iops
        a+=("$(measure "$OURS" "$seed")")
        throttle 0
        top=$(peak gannet) && [ -n "$top" ] && over=$((top - BUDGET > over ? top - BUDGET : over))
        held=$(cached "$DATA/tpcc.gnt")
        stop_gannet
        ungroup
        start_postgres $TOTAL shared_buffers=$((TOTAL / 4))MB
        throttle $iops
        b+=("$(measure "$THEIRS" "$seed")")
        throttle 0
        stop_postgres
        ungroup
    done
    mine=$(median "${a[@]}") his=$(median "${b[@]}")
    if [ $iops = 0 ]; then what="device as it is" wanted=1.2; else what="device limited to $iops IOPS" wanted=2; fi
    row "TPC-C, $SESSIONS sessions, $what, transactions/s ÷ PostgreSQL 15" "$mine" "$his" "$(ratio "$mine" "$his")" at-least $wanted
    row "TPC-C, $what: memory peak over the budget (MiB)" $((over + BUDGET)) $BUDGET $over at-most $((64 + SESSIONS / 2))
    row "TPC-C, $what: cached pages of our files (MiB)" "$held" 0 "$held" at-most 1
done
start_gannet "$DATA/tpcc.gnt" $BUDGET 0
tpcc check "$OURS" | keep tpcc >/dev/null
say "TPC-C: the consistency conditions hold in Gannet"
