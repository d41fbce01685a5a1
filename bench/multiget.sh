#!/usr/bin/env bash
# Line 2: uniform look-ups in batches of 256 by one thread, data 10x the budget, against fio at depth 64.
#
#   query       multi_get of 256 keys, each batch in a read-committed transaction of its own; keys uniform
#   schema      one tree, 8-byte keys, 192-byte values, bulk loaded
#   threads     1; fio: one job, io_uring, depth 64
#   page size   8 KiB, direct I/O on both sides, the same file
#   cache       warmed up by the same workload; durability: read only
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
data "sorted-$ROWS" sorted
ours=() theirs=() last=
for _ in $(seq "$RUNS"); do
    last=$(lab $MEMORY multiget "sorted-$ROWS" --batch 256 --threads 1 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep multiget)
    ours+=("$(pick measured.device.reads_per_second <<<"$last")")
    theirs+=("$(fio_read "$BENCH_DIR/sorted-$ROWS/lab.gnt" randread $PAGE_SIZE io_uring 1 64 | keep multiget | pick per_second)")
done
mine=$(median "${ours[@]}") device=$(median "${theirs[@]}")
row "multi-get of 256, one thread: device reads/s ÷ fio at depth 64" "${mine%.*}" "${device%.*}" "$(ratio "$mine" "$device")" at-least 0.8
aftermath "multi-get" $MEMORY "$last"
