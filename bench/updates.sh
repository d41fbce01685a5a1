#!/usr/bin/env bash
# Line 6: random single-row updates, data 4x the budget, synchronous, against Berkeley DB and RocksDB.
#
#   query       update(key, value) of a row that is there, keys uniform, each in a synchronous transaction of its own.
#               RocksDB reads the row first, as an update has to; its blind overwrite is shown for information.
#   schema      one tree, 8-byte keys, 192-byte values, loaded in order
#   threads     16
#   page size   8 KiB for all; direct I/O (Berkeley DB: where built with it); the same memory, in the same kind of cgroup (budget + 64 MiB)
#   durability  every commit durable when acknowledged; rivals' settings: crates/lab/rivals/bdb.c, crates/lab/rivals/rocksdb.c
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
"$LAB" rival berkeley-db --to "$BIN" >/dev/null
"$LAB" rival rocksdb --to "$BIN" >/dev/null
MEMORY=$UPDATE_MEMORY
# Long enough that dirty pages have to be written at the pace they are made, on every side.
SECONDS_EACH=$((SECONDS_EACH * 3)) WARM_UP=$((SECONDS_EACH / 3))
data "updates-$ROWS" sorted
rival() { # rival PROGRAM WORKLOAD OPTIONS...
    local program=$1 workload=$2
    shift 2
    "$BIN/$program" "$workload" --dir "$BENCH_DIR/$program-$ROWS" --memory $((MEMORY << 20)) --rows "$ROWS" \
        --value-size $VALUE_SIZE --page-size $PAGE_SIZE --threads 16 --seconds $SECONDS_EACH --warm-up $WARM_UP "$@"
}
for program in berkeley-db rocksdb; do
    if [ ! -e "$BENCH_DIR/$program-$ROWS/complete" ]; then
        say "making $program-$ROWS"
        rm -rf "${BENCH_DIR:?}/$program-$ROWS"
        mkdir -p "$BENCH_DIR/$program-$ROWS"
        rival $program load >"$BENCH_DIR/$program.part"
        mv "$BENCH_DIR/$program.part" "$BENCH_DIR/$program-$ROWS/complete"
    fi
done
limited() { # limited PROGRAM OPTIONS...: a rival's updates within the same memory
    local program=$1
    shift
    within $((MEMORY + 64)) "$BIN/$program" updates --dir "$BENCH_DIR/$program-$ROWS" --memory $((MEMORY << 20)) \
        --rows "$ROWS" --value-size $VALUE_SIZE --page-size $PAGE_SIZE --threads 16 --seconds $SECONDS_EACH \
        --warm-up $WARM_UP "$@"
}
ours=() bdb=() rocksdb=() last=
for _ in $(seq "$RUNS"); do
    last=$(lab $MEMORY updates "updates-$ROWS" --threads 16 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep updates)
    ours+=("$(pick measured.per_second_mean <<<"$last")")
    bdb+=("$(limited berkeley-db | keep updates | pick measured.per_second_mean)")
    rocksdb+=("$(limited rocksdb | keep updates | pick measured.per_second_mean)")
done
unseen=$(limited rocksdb --blind 1 | keep updates | pick measured.per_second_mean)
mine=$(median "${ours[@]}") berkeley=$(median "${bdb[@]}") rocks=$(median "${rocksdb[@]}")
row "random updates/s, 16 threads ÷ Berkeley DB 5.3" "${mine%.*}" "${berkeley%.*}" "$(ratio "$mine" "$berkeley")" at-least 1
row "random updates/s, 16 threads ÷ RocksDB" "${mine%.*}" "${rocks%.*}" "$(ratio "$mine" "$rocks")" at-least 1
echo "| (RocksDB overwriting unseen, for information) | ${mine%.*} | ${unseen%.*} | $(ratio "$mine" "$unseen") | | |"
aftermath "random updates" $MEMORY "$last"
