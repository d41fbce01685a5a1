#!/usr/bin/env bash
# Hot prepared point select inside one open read transaction, against SQLite.
#
#   query       SELECT v FROM rows WHERE k = ?, prepared, in one open transaction; the value is taken hold of on both sides
#   schema      rows (k bigint PRIMARY KEY, v bytea; SQLite: INTEGER PRIMARY KEY, BLOB), 192-byte values, 1,000,000 rows, the
#               first 10,000 are asked for
#   threads     1; page size 8 KiB for both; cache: everything that is asked for is in memory
#   durability  read only; SQLite: WAL, synchronous = FULL, cache_size = the budget, no mmap
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build rivals
ROWS=1000000
MEMORY=512
for driver in gannet-sql sqlite; do
    DATA=$BENCH_DIR/table-$driver-$ROWS
    if [ ! -e "$DATA/complete" ]; then
        say "making $DATA"
        rm -rf "${DATA:?}"
        mkdir -p "$DATA"
        lab $MEMORY load "table-$driver-$ROWS" --driver $driver >"$BENCH_DIR/table.part"
        mv "$BENCH_DIR/table.part" "$DATA/complete"
    fi
done
# A processor that others share runs faster and slower within seconds: many short rounds, each side once in each, and the median of
# the rounds' ratios.
ROUNDS=$((RUNS * 5))
SECONDS_EACH=$(((SECONDS_EACH + 4) / 5)) WARM_UP=1
hot() {
    lab $MEMORY hot "table-$1-$ROWS" --driver "$1" --threads 1 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep hot-sql
}
ours=() theirs=() ratios=() last=
for _ in $(seq $ROUNDS); do
    last=$(hot gannet-sql)
    ours+=("$(pick measured.per_second_mean <<<"$last")")
    theirs+=("$(hot sqlite | pick measured.per_second_mean)")
    ratios+=("$(awk -v a="${ours[-1]}" -v b="${theirs[-1]}" 'BEGIN {print a / b}')")
done
mine=$(median "${ours[@]}") sqlite=$(median "${theirs[@]}") share=$(ratio "$(median "${ratios[@]}")" 1)
row "hot prepared selects/s in one transaction ÷ SQLite ($ROUNDS rounds)" "${mine%.*}" "${sqlite%.*}" "$share" at-least 1
aftermath "hot prepared selects" $MEMORY "$last"
