#!/usr/bin/env bash
# Line 7: hot point select inside one open read transaction, against SQLite.
#
#   query       Gannet: get(key) in one repeatable-read transaction. SQLite: SELECT v FROM rows WHERE k = ?, prepared, in
#               one open transaction; the value is copied out on both sides
#   schema      8-byte keys (SQLite: INTEGER PRIMARY KEY), 192-byte values, 1,000,000 rows, the first 10,000 are asked for
#   threads     1; page size 8 KiB for both; cache: everything that is asked for is in memory
#   durability  read only; SQLite: WAL, synchronous = FULL, cache_size = the budget, no mmap
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build rivals
ROWS=1000000
MEMORY=512
data "hot-$ROWS" sorted
if [ ! -e "$BENCH_DIR/sqlite-$ROWS/complete" ]; then
    say "making sqlite-$ROWS"
    rm -rf "${BENCH_DIR:?}/sqlite-$ROWS"
    mkdir -p "$BENCH_DIR/sqlite-$ROWS"
    lab $MEMORY load "sqlite-$ROWS" --driver sqlite >"$BENCH_DIR/sqlite.part"
    mv "$BENCH_DIR/sqlite.part" "$BENCH_DIR/sqlite-$ROWS/complete"
fi
ours=() theirs=() last=
for _ in $(seq "$RUNS"); do
    last=$(lab $MEMORY hot "hot-$ROWS" --threads 1 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep hot)
    ours+=("$(pick measured.per_second_mean <<<"$last")")
    theirs+=("$(lab $MEMORY hot "sqlite-$ROWS" --driver sqlite --threads 1 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep hot | pick measured.per_second_mean)")
done
mine=$(median "${ours[@]}") sqlite=$(median "${theirs[@]}")
row "hot point selects/s in one transaction ÷ SQLite" "${mine%.*}" "${sqlite%.*}" "$(ratio "$mine" "$sqlite")" at-least 1
aftermath "hot selects" $MEMORY "$last"
