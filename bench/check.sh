#!/usr/bin/env bash
# Check: `gannet check` of a database at rest, cold, data 10x the budget, against fio's sequential direct read.
#
#   measured    bytes of pages in use that the pass has read, by the time it took
#   schema      a table of rows of 200 bytes: keys ascending, and in random order
#   threads     four of the check's own; fio: one job, io_uring, 1 MiB at depth 8, the same file
#   page size   8 KiB, direct I/O; every check in a process of its own, so nothing of the file is in memory
#   durability  read only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
GANNET=$TARGET/release/gannet
table() { # table ORDER KEY: makes a database once
    local file=$BENCH_DIR/check-$1-$ROWS.gnt
    [ -e "$file.complete" ] && return
    say "making $file: $ROWS rows, $1"
    mkdir -p "$BENCH_DIR"
    rm -rf "$file" "$file-wal"
    "$GANNET" sql "$file" --create --quiet --memory "${FILL_MEMORY}MiB" -c "create table t (id bigint primary key, v text)" \
        -c "insert into t select $2, repeat('x', 180) from generate_series(1, $ROWS) as n"
    # Undo that is left is swept: the file is at rest.
    "$GANNET" sql "$file" -c "vacuum" --quiet
    touch "$file.complete"
}
table sorted n
table random "n * 2654435761 % 4294967296"
check() { # check ORDER
    local file=$BENCH_DIR/check-$1-$ROWS.gnt ours=() theirs=() last=
    for _ in $(seq "$RUNS"); do
        last=$(within $((MEMORY + 64)) "$GANNET" check "$file" --memory "${MEMORY}MiB" --json |
            python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin)))' | keep check)
        ours+=("$(pick bytes_per_second <<<"$last")")
        theirs+=("$(fio_read "$file" read 1M io_uring 1 8 | keep check | pick bytes_per_second)")
    done
    local mine device cached
    mine=$(median "${ours[@]}") device=$(median "${theirs[@]}") cached=$(pick cached_bytes <<<"$last")
    row "check of a tree filled in $1 order: MB/s ÷ fio" \
        "$(awk -v b="$mine" 'BEGIN {printf "%.0f", b / 1e6}')" "$(awk -v b="$device" 'BEGIN {printf "%.0f", b / 1e6}')" \
        "$(ratio "$mine" "$device")" at-least 0.8
    row "check, $1 order: cached pages of our files (MiB)" "$(ratio "$cached" 1048576)" 0 "$(ratio "$cached" 1048576)" at-most 1
}
check sorted
check random
