#!/usr/bin/env bash
# How long a shutdown takes under full load, and that it loses nothing.
#
#   over the wire  SIGTERM after a while of pgbench's TPC-B-like load of 32 clients; and a second SIGTERM 50 ms after the
#                  first; after each the database is opened again, and the history compared with what the clients were told
#   device         as it is; and held to so many requests a second, reads and writes each, by blkio.throttle of cgroup v1
#   modelled       closing by the library after random updates on the profile slow-wide (0.5-2 ms a request)
#   limit          shutdown_limit is 10 s, as it is by default
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
need pgbench "apt-get install postgresql-15 (its contrib programs)"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
build
SCALE=50 MEMORY=512 LIMIT=10 CLIENTS=32 REQUESTS=500
[ "${QUICK:-0}" = 1 ] && SCALE=10 MEMORY=128
DATA=$BENCH_DIR/shutdown-$SCALE
mkdir -p "$DATA"
start() { start_gannet "$DATA/pgbench.gnt" $MEMORY $((MEMORY + 64 + 8)); }
ours() { PGHOST=$SOCKETS PGPORT=5433 PGUSER=$(id -un) PGDATABASE=pgbench "$@"; }
history() { ours psql -XAtc 'select count(*) from pgbench_history'; }

# shutdown DEVICE SIGNALS: sets `took` to the seconds from the last of so many SIGTERMs to the server's end; ends the script when a
# commit is missing. Not in a subshell: what it starts and limits is ended with the script.
shutdown() {
    start
    local before after told begun load pid=$gannet_pid
    before=$(history)
    [ "$1" = device ] || throttle $REQUESTS
    ours pgbench -n -b tpcb-like -c $CLIENTS -j 2 -T $((SECONDS_EACH * 20)) >"$SOCKETS/load" 2>/dev/null &
    load=$!
    sleep $((SECONDS_EACH * 2))
    kill -0 $load || { say "the load ended before the server was told to"; exit 1; }
    begun=$EPOCHREALTIME
    kill -TERM "$pid"
    if [ "$2" = 2 ]; then
        sleep 0.05
        begun=$EPOCHREALTIME
        [ "$(ps -o state= -p "$pid")" != Z ] || { say "the server ended before it was told a second time"; exit 1; }
        kill -TERM "$pid"
    fi
    wait "$pid" || true
    took=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.3f", b - a}')
    gannet_pid=''
    wait $load || true
    throttle 0
    told=$(awk '/^number of transactions actually processed/ {print $6}' "$SOCKETS/load")
    start
    after=$(history)
    stop_gannet
    echo "{\"device\": \"$1\", \"signals\": $2, \"seconds\": $took, \"told\": $told, \"found\": $((after - before))}" |
        keep shutdown >/dev/null
    # What was committed when its client was cut off may be there as well.
    if [ $((after - before)) -lt "$told" ] || [ $((after - before)) -gt $((told + CLIENTS)) ]; then
        say "clients were told of $told commits, and $((after - before)) are there"
        exit 1
    fi
}

if [ ! -e "$DATA/complete" ]; then
    start
    ours pgbench -q -i -s $SCALE >/dev/null 2>&1
    touch "$DATA/complete"
    stop_gannet
fi
for device in device throttled; do
    one=() two=()
    for _ in $(seq "$RUNS"); do
        shutdown $device 1
        one+=("$took")
        shutdown $device 2
        two+=("$took")
    done
    name="shutdown under the load of $CLIENTS clients"
    [ $device = device ] || name="$name, $REQUESTS requests a second"
    longest=$(printf '%s\n' "${one[@]}" | sort -g | tail -1)
    row "$name, s, the longest" "$longest" $LIMIT "$(ratio "$longest" $LIMIT)" at-most 1
    longest=$(printf '%s\n' "${two[@]}" | sort -g | tail -1)
    row "the same after a second SIGTERM, s" "$longest" 1 "$longest" at-most 1
done

data "updates-$ROWS" sorted
copy "$BENCH_DIR/updates-$ROWS" "$BENCH_DIR/shutdown-slow"
closing=()
for _ in $(seq "$RUNS"); do
    closing+=("$(lab $UPDATE_MEMORY restart shutdown-slow --threads "$THREADS" --seconds "$SECONDS_EACH" \
        --profile slow-wide | keep shutdown | grep '"close"' | pick seconds)")
done
longest=$(printf '%s\n' "${closing[@]}" | sort -g | tail -1)
row "closing after random updates on slow-wide, s, the longest" "$longest" $LIMIT "$(ratio "$longest" $LIMIT)" at-most 1
rm -rf "$BENCH_DIR/shutdown-slow" "$DATA"
