#!/usr/bin/env bash
# All rows, all columns, in the order of an index that is not the primary one, with look-ahead and without.
#
#   query       SELECT * FROM rows ORDER BY tag, the plan forced (enable_sort = off, enable_seqscan = off)
#   schema      rows (k bigint PRIMARY KEY, tag bigint, v text), 200 bytes a row; INDEX (tag); tags have no relation to keys
#   threads     1; page size 8 KiB; cache: cold, the database was just opened; data about twice the budget
#   durability  read only
#   rival       Gannet itself with gannet_look_ahead = off
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
# Rows of about 200 bytes. Without look-ahead each costs a read of its own, so this one is not as large as the others.
if [ "${QUICK:-0}" = 1 ]; then COUNT=400000 BUDGET=48; else COUNT=2000000 BUDGET=224; fi
DATA=$BENCH_DIR/index-order-$COUNT
sql() { # sql MiB STATEMENT...: the last statement's measurement
    local memory=$1
    shift
    within $((memory + 64)) "$LAB" sql --dir "$DATA" --memory "${memory}MiB" "$@" | tail -1
}
if [ ! -e "$DATA/complete" ]; then
    say "making $DATA"
    rm -rf "${DATA:?}"
    sql 512 --create "create table rows (k bigint primary key, tag bigint not null, v text not null)" \
        "insert into rows select g, g::bigint * 7368787 % $COUNT, repeat(md5(g::text), 5) || md5((g + 1)::text) from generate_series(1, $COUNT) g" \
        "create index rows_tag on rows (tag)" "analyze rows" >"$BENCH_DIR/index-order.part"
    mv "$BENCH_DIR/index-order.part" "$DATA/complete"
fi
QUERY="select * from rows order by tag"
FORCE="set enable_sort = off; set enable_seqscan = off; set gannet_look_ahead"
with=() without=() last=
for _ in $(seq "$RUNS"); do
    last=$(sql $BUDGET "$FORCE = on; $QUERY" | keep index-order)
    with+=("$(pick measured.seconds <<<"$last")")
    without+=("$(sql $BUDGET "$FORCE = off; $QUERY" | keep index-order | pick measured.seconds)")
done
on=$(median "${with[@]}") off=$(median "${without[@]}")
row "index order with look-ahead ÷ without (rows/s)" "$(ratio "$COUNT" "$on")" "$(ratio "$COUNT" "$off")" "$(ratio "$off" "$on")" at-least 6
aftermath "index order" $BUDGET "$last"
