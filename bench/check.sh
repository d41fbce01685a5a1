#!/usr/bin/env bash
# Check: `gannet check` of a database at rest, cold, data 10x the budget, against fio's sequential direct read.
#
#   measured    bytes of pages in use that the pass has read, by the time it took
#   schema      one tree, 8-byte keys, 192-byte values: bulk loaded, and filled in random order by ordinary inserts
#   threads     four of the check's own; fio: one job, io_uring, 1 MiB at depth 8, the same file
#   page size   8 KiB, direct I/O; every check in a process of its own, so nothing of the file is in memory
#   durability  read only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
(cd "$ROOT" && cargo build --quiet --release -p gannet)
data "sorted-$ROWS" sorted
data "random-$ROWS" random
check() { # check ORDER
    local file=$BENCH_DIR/$1-$ROWS/lab.gnt ours=() theirs=() last=
    for _ in $(seq "$RUNS"); do
        last=$(within $((MEMORY + 64)) "$TARGET/release/gannet" check "$file" --memory "${MEMORY}MiB" --json |
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
