#!/usr/bin/env bash
# Line 3: full scans (count and sum), cold, data 10x the budget, against fio's sequential direct read.
#
#   query       cursor over all rows, counting them and summing the first eight bytes of the values
#   schema      one tree, 8-byte keys, 192-byte values: bulk loaded, and filled in random order by ordinary inserts
#   threads     1; fio: one job, io_uring, 256 KiB at depth 16, the same file
#   page size   8 KiB, direct I/O; every scan in a process of its own, so nothing of the file is in memory
#   durability  read only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
data "sorted-$ROWS" sorted
data "random-$ROWS" random
scan() { # scan ORDER WANTED
    local ours=() theirs=() busy=() last=
    for _ in $(seq "$RUNS"); do
        last=$(lab $MEMORY scan "$1-$ROWS" --times 1 | keep scan)
        ours+=("$(pick measured.scans.0.read_bytes_per_second <<<"$last")")
        busy+=("$(ratio "$(pick measured.scans.0.cpu_seconds <<<"$last")" "$(pick measured.scans.0.seconds <<<"$last")")")
        theirs+=("$(fio_read "$BENCH_DIR/$1-$ROWS/lab.gnt" read 256k io_uring 1 16 | keep scan | pick bytes_per_second)")
    done
    local mine device
    mine=$(median "${ours[@]}") device=$(median "${theirs[@]}")
    row "scan of a tree filled in $1 order: MB/s ÷ fio (CPU share $(median "${busy[@]}"))" \
        "$(awk -v b="$mine" 'BEGIN {printf "%.0f", b / 1e6}')" "$(awk -v b="$device" 'BEGIN {printf "%.0f", b / 1e6}')" \
        "$(ratio "$mine" "$device")" at-least "$2"
    aftermath "scan, $1 order" $MEMORY "$last"
}
scan sorted 0.9
scan random 0.6
