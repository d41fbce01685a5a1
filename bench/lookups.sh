#!/usr/bin/env bash
# Line 1: uniform point look-ups, data 10x the budget, against the device.
#
#   query       get(key), each in a read-committed transaction of its own; keys uniform over all rows
#   schema      one tree, 8-byte keys, 192-byte values, bulk loaded
#   threads     $THREADS, as many as jobs of fio (psync, one request each)
#   page size   8 KiB, direct I/O; fio reads the same file with the same block size, direct
#   cache       warmed up by the same workload before the measured time
#   durability  read only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
data "sorted-$ROWS" sorted
ours=() theirs=() last=
for _ in $(seq "$RUNS"); do
    last=$(lab $MEMORY lookups "sorted-$ROWS" --threads "$THREADS" --seconds $SECONDS_EACH --warm-up $WARM_UP | keep lookups)
    ours+=("$(pick measured.device.reads_per_second <<<"$last")")
    theirs+=("$(fio_read "$BENCH_DIR/sorted-$ROWS/lab.gnt" randread $PAGE_SIZE psync "$THREADS" 1 | keep lookups | pick per_second)")
done
misses=$(lab $MEMORY misses "sorted-$ROWS" --times 20 | keep lookups | pick measured.reads_per_miss)
mine=$(median "${ours[@]}") device=$(median "${theirs[@]}")
row "point look-ups, $THREADS threads: device reads/s ÷ fio" "${mine%.*}" "${device%.*}" "$(ratio "$mine" "$device")" at-least 0.9
row "device reads per look-up that missed" "$(ratio "$misses" 1)" 1 "$(ratio "$misses" 1)" at-most 1.02
aftermath "point look-ups" $MEMORY "$last"
