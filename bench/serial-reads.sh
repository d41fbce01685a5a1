#!/usr/bin/env bash
# What a transaction waits for on a wide but slow device, in steady state: TPC-C in an embedded Gannet with look-ahead, against its
# reads one at a time.
#
#   query       the five transactions of TPC-C, prepared, no think times (gannet-lab tpcc --dir)
#   device      modelled: slow-wide, 0.5-2 ms a request, 64 at one time
#   threads     8 sessions
#   memory      about a quarter of the data
#   cache       each run begins with a warm-up that is not counted
#   counted     per transaction: pages read alone, and batches of pages read at once: each takes the time of one request
#   depth 1     without look-ahead a statement still fetches some pages at once; one by one it would wait for each of them. So this is
#               the number of pages that the plan without look-ahead reads or asks for, which it needs all: what it asks for
#               are rows whose places are known
#   durability  synchronous
set -euo pipefail
. "$(dirname "$0")/lib.sh"
build
SESSIONS=8
if [ "${QUICK:-0}" = 1 ]; then WAREHOUSES=2 BUDGET=48 EACH=20; else WAREHOUSES=8 BUDGET=192 EACH=90; fi
DATA=$BENCH_DIR/tpcc-embedded-$WAREHOUSES
tpcc() { "$LAB" tpcc "$1" --dir "$DATA" --memory "${2}MiB" --warehouses $WAREHOUSES "${@:3}"; }
if [ ! -e "$DATA/complete" ]; then
    say "making $DATA: $WAREHOUSES warehouses"
    rm -rf "${DATA:?}"
    mkdir -p "$DATA"
    tpcc load 2048 | keep serial-reads >/dev/null
    touch "$DATA/complete"
fi
say "data: $(du -sm "$DATA" | cut -f1) MiB; memory: $BUDGET MiB"
# run on|off SECONDS SEED
run() {
    tpcc run $BUDGET --sessions $SESSIONS --profile slow-wide --seconds "$2" --seed "$3" --setup "set gannet_look_ahead = $1"
}
declare -A waits
for how in off on; do
    # The list of hot pages brings back the steady state that the warm-up has made.
    run $how $((EACH / 2)) 1 >/dev/null
    last=$(run $how $EACH 2 | keep serial-reads)
    for kind in new-order payment order-status delivery stock-level; do
        waits[$how-$kind]=$(python3 -c 'import json,sys
v = json.loads(sys.argv[1])["measured"]["kinds"][sys.argv[2]]
at_once = v["batches"] if sys.argv[3] == "on" else v["batched_reads"]
print(round(v["serial_reads"] + at_once, 2))' "$last" $kind $how)
    done
done
for kind in stock-level order-status; do
    a=${waits[off-$kind]} b=${waits[on-$kind]}
    row "slow-wide: reads that one $kind waits for, at depth 1 ÷ with look-ahead" "$b" "$a" "$(ratio "$a" "$b")" at-least 3
done
for kind in new-order payment delivery; do
    a=${waits[off-$kind]} b=${waits[on-$kind]}
    echo "| (slow-wide: $kind, for information) | $b | $a | $(ratio "$a" "$b") | | |"
done
