#!/usr/bin/env bash
# Lines 4 and 5: latency of a synchronous commit by one writer against the device's synchronous write, and commits per
# second of 16 writers against one.
#
#   query       put(key, value) of a new row behind all others, each in a synchronous transaction of its own
#   schema      one tree, 8-byte keys, 192-byte values
#   threads     1, and 16
#   page size   8 KiB, direct I/O; cache warm; durability: every commit durable when acknowledged
#   device      4 KiB, O_DIRECT with RWF_DSYNC, one after the other over an allocated and written file
#
# For information: the same of threads that share synchronous writes and do nothing else, which is what group commit reaches here with
# a database that costs nothing. One write at a time, begun at once; two, the second one when six wait for it; and one begun when all
# sixteen have come again.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
build_c sync_write device/sync_write.c "" ""
build_c group_commit device/group_commit.c "" ""
ROWS=100000
data "commits-$ROWS" sorted
bare() { # bare THREADS FLIGHTS LEAST FIRST
    "$BIN/group_commit" "$BENCH_DIR/group_commit" "$1" "$SECONDS_EACH" "$2" "$3" "$4" | keep commits | pick per_second
}
half=() tail=() device_half=() device_tail=() one=() many=() bare_one=() bare_many=() bare_two=() bare_all=() last=
for _ in $(seq "$RUNS"); do
    device=$("$BIN/sync_write" "$BENCH_DIR/sync_write" $SECONDS_EACH | keep commits)
    device_half+=("$(pick latency_us.p50 <<<"$device")") device_tail+=("$(pick latency_us.p99 <<<"$device")")
    last=$(lab $MEMORY commits "commits-$ROWS" --threads 1 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep commits)
    half+=("$(pick measured.latency_us.p50 <<<"$last")") tail+=("$(pick measured.latency_us.p99 <<<"$last")")
    one+=("$(pick measured.per_second_mean <<<"$last")")
    last=$(lab $MEMORY commits "commits-$ROWS" --threads 16 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep commits)
    many+=("$(pick measured.per_second_mean <<<"$last")")
    bare_one+=("$(bare 1 1 1 1)") bare_many+=("$(bare 16 1 1 1)") bare_two+=("$(bare 16 2 6 1)") bare_all+=("$(bare 16 1 1 16)")
done
p50=$(median "${half[@]}") device_p50=$(median "${device_half[@]}")
p99=$(median "${tail[@]}") device_p99=$(median "${device_tail[@]}")
row "commit latency, one writer: p50 (µs) ÷ device's synchronous write" "${p50%.*}" "${device_p50%.*}" "$(ratio "$p50" "$device_p50")" at-most 1.2
row "commit latency, one writer: p99 (µs) ÷ device's synchronous write" "${p99%.*}" "${device_p99%.*}" "$(ratio "$p99" "$device_p99")" at-most 1.5
slow=$(median "${one[@]}") fast=$(median "${many[@]}")
row "commits/s, 16 writers ÷ one" "${fast%.*}" "${slow%.*}" "$(ratio "$fast" "$slow")" at-least 8
single=$(median "${bare_one[@]}") shared=$(median "${bare_many[@]}") overlapped=$(median "${bare_two[@]}") gathered=$(median "${bare_all[@]}")
echo "| (16 threads that only share writes ÷ one such, for information) | ${shared%.*} | ${single%.*} | $(ratio "$shared" "$single") | | |"
echo "| (the same, two writes at a time) | ${overlapped%.*} | ${single%.*} | $(ratio "$overlapped" "$single") | | |"
echo "| (the same, one write begun when all have come again) | ${gathered%.*} | ${single%.*} | $(ratio "$gathered" "$single") | | |"
echo "| (commits/s, 16 writers ÷ such threads that gather, too) | ${fast%.*} | ${gathered%.*} | $(ratio "$fast" "$gathered") | | |"
aftermath "commits" $MEMORY "$last"
