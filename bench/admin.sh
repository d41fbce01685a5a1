#!/usr/bin/env bash
# Jobs of an administrator beside users: what the users feel, and how long the jobs take.
#
#   users       TPC-C without think times, 25 sessions, Unix sockets (gannet-lab tpcc); open loop: transactions come in as a Poisson
#               process at half of what a closed loop reaches, and their latency counts from then
#   jobs        full backup, stat --records, check, sweep, dump, compact: started beside the server. Idle: the same right afterwards,
#               without users; of compact, before, on a copy
#   memory      a quarter of the data, in a memory cgroup; --memory is that less 16 MiB
#   durability  commits, and what the jobs write, are synced
#   half load   in turns. The machine is shared, and is slower for some minutes: so each turn has all that is compared. A closed loop tells
#               what half is now; then users of an open loop for a while without the job, and then with it until it ends (again, no more
#               than once a second, until that while is over; the first one's time counts); then the job alone. A figure is the median of
#               the turns' ratios, beside it the medians of what was measured
#   p99         of all transactions that came in while the job ran, or in the while without it, of a turn; the five kinds in the
#               specification's mix
#   compact     each turn is of the file as it was filled, behind the same warm-up, and idle of a copy of that: behind the first there is little to do
#   sweep       takes so short that a turn has few transactions beside it: where there are fewer than a thousand, all turns are looked at together
#   full load   slices of one run of the users with the job, again and again, and without it, in turns; median
#   SLICES      at full load [16, QUICK: 4]
#   TURNS       at half load [7, QUICK: 2; of compact half as many]
#   PIPELINED   1: the users ask at once what does not need another's rows (three round trips for a transaction of some 30 statements) [0]
#   JOBS        which of them ["backup stat check sweep dump compact"]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet -p gannet-lab --features gannet-lab/rivals)
SESSIONS=25
SECONDS_EACH=10
if [ "${QUICK:-0}" = 1 ]; then
    WAREHOUSES=8 TOTAL=208 TURNS=${TURNS:-2} SLICES=${SLICES:-4} SLICE=4
else
    WAREHOUSES=24 TOTAL=576 TURNS=${TURNS:-7} SLICES=${SLICES:-16} SLICE=5
fi
JOBS=${JOBS:-backup stat check sweep dump compact}
ASK=()
if [ "${PIPELINED:-0}" = 1 ]; then ASK=(--pipelined); fi
BUDGET=$((TOTAL - 16))
DATA=$BENCH_DIR/tpcc-$WAREHOUSES
WORK=$BENCH_DIR/admin
DEST=$BENCH_DIR/admin-out
FILE=$WORK/tpcc.gnt
mkdir -p "$BENCH_DIR"
OURS="host=$SOCKETS port=5433 user=$(id -un) dbname=tpcc"

if [ ! -e "$DATA/complete" ]; then
    say "filling Gannet"
    rm -rf "${DATA:?}"
    mkdir -p "$DATA"
    start_gannet "$DATA/tpcc.gnt" 2048 0
    "$LAB" tpcc load --url "$OURS" --warehouses $WAREHOUSES | keep admin >/dev/null
    stop_gannet
    touch "$DATA/complete"
fi
copy "$DATA" "$WORK"

now() { echo "${EPOCHREALTIME/,/.}"; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.2f\n", b - a}'; }
# Removing a file of a GiB stops everybody's syncs for most of a second, on a file system that discards: not while users are measured.
clean() { rm -rf "${DEST:?}" && mkdir -p "$DEST" && sync -f "$DEST"; }
start_job() { # start_job NAME: becomes it
    case $1 in
        backup) exec "$GANNET" backup "$FILE" "$DEST" --json ;;
        stat) exec "$GANNET" stat "$FILE" --records --json ;;
        dump) exec "$GANNET" dump "$FILE" "$(mktemp -u "$DEST/dump-XXXXXX")" --json ;;
        check | sweep | compact) exec "$GANNET" "$1" "$FILE" --json ;;
    esac >"$SOCKETS/job.json" 2>"$SOCKETS/job.log"
}
run_job() { # run_job NAME: its time in seconds
    local begun
    begun=$(now)
    (start_job "$1") || { say "$1 failed: $(tail -3 "$SOCKETS/job.log")"; exit 1; }
    since "$begun"
}
# users SECONDS SEED: lets users work in a closed loop; their figures stand in $SOCKETS/users.json afterwards.
users() {
    clean
    "$LAB" tpcc run --url "$OURS" "${ASK[@]}" --warehouses $WAREHOUSES --sessions $SESSIONS --seconds "$1" --seed "$2" >"$SOCKETS/users.json"
    keep admin <"$SOCKETS/users.json" >/dev/null
}
# open_loop JOB SEED: users of an open loop at $half a second, for a while without the job and then with it. Appends a line to
# $SOCKETS/loaded: transactions/s without it and with it, their p99s (ms), and how long the job took.
open_loop() {
    local lab until begun ended first=''
    : >"$SOCKETS/spans"
    clean
    # A function in the background would be a shell of its own, which a signal ends in place of the driver.
    "$LAB" tpcc run --url "$OURS" "${ASK[@]}" --warehouses $WAREHOUSES --sessions $SESSIONS --seconds 7200 --seed "$2" --rate "$half" \
        --each "$SOCKETS/each" >"$SOCKETS/users.json" &
    lab=$!
    sleep "$WARM_UP"
    begun=$(now)
    sleep "$SECONDS_EACH"
    echo "without $begun $(now)" >>"$SOCKETS/spans"
    until=$((SECONDS + SECONDS_EACH))
    while :; do
        begun=$(now)
        run_job "$1" >"$SOCKETS/once"
        ended=$(now)
        echo "with $begun $ended" >>"$SOCKETS/spans"
        first=${first:-$(cat "$SOCKETS/once")}
        # What is measured of a job that takes less than a second is not how often a program can be started.
        sleep "$(awk -v a="$begun" -v b="$ended" 'BEGIN {print b - a < 1 ? 1 - (b - a) : 0}')"
        [ $SECONDS -lt $until ] || break
    done
    kill -TERM $lab
    wait $lab || { say "the users failed"; exit 1; }
    keep admin <"$SOCKETS/users.json" >/dev/null
    for side in without with; do
        awk -F'[ ,]' -v side=$side 'NR == FNR {if ($1 == side) {from[n + 0] = $2; to[n++] = $3}; next}
            {while (at < n && $1 > to[at + 0]) at++; if (at < n && $1 >= from[at + 0]) print $2}' \
            "$SOCKETS/spans" "$SOCKETS/each" >"$SOCKETS/$side"
    done
    for side in without with; do cat "$SOCKETS/$side" >>"$SOCKETS/all-$side"; done
    cat "$SOCKETS/spans" >>"$SOCKETS/all-spans"
    echo "$(done_in without) $(done_in with) $(hundredth without) $(hundredth with) $first" >>"$SOCKETS/loaded"
}
# The names of files begin with all-, if $2 is that, where they have all turns.
hundredth() { sort -g "$SOCKETS/${2:-}$1" | awk '{of[NR] = $1} END {if (!NR) exit 1; print of[int((NR - 1) * 0.99) + 1]}'; }
# Transactions a second that came in and were done, of a side.
done_in() { awk -v side="$1" 'NR == FNR {if ($1 == side) time += $3 - $2; next} {n++} END {printf "%.1f\n", n / time}' "$SOCKETS/${2:-}spans" "$SOCKETS/${2:-}$1"; }
# column N: of all turns, what stands in $SOCKETS/loaded there.
column() { cut -d' ' -f"$1" "$SOCKETS/loaded" | paste -sd' '; }
figure() { pick "measured.$1" <"$SOCKETS/users.json"; }
header
start_gannet "$FILE" $BUDGET $TOTAL
# Until dirty pages go home as fast as they come.
users $((SECONDS_EACH * 2)) 1
# What half load is, of the machine as it is now.
find_half() {
    local capacity
    users "$SECONDS_EACH" 2
    capacity=$(figure transactions_per_second)
    half=$(awk -v c="$capacity" 'BEGIN {printf "%.0f", c / 2}')
    say "closed loop: $capacity transactions/s; open loop at $half"
}
# What compact is idle has to be measured of the same file: behind the one that counts there is little left to do.
idle_compact() {
    stop_gannet
    copy "$WORK" "$WORK-idle"
    start_gannet "$WORK-idle/tpcc.gnt" $BUDGET $TOTAL
    FILE=$WORK-idle/tpcc.gnt run_job compact
    stop_gannet
    rm -rf "${WORK:?}-idle"
    start_gannet "$FILE" $BUDGET $TOTAL
}
fill_anew() { # the file as it was filled, behind a warm-up
    stop_gannet
    copy "$DATA" "$WORK"
    start_gannet "$FILE" $BUDGET $TOTAL
    users $((SECONDS_EACH * 2)) 1
}
# What the users of a closed loop have ordered so far, and when: "orders seconds".
ordered() { echo "$("$GANNET" sql "$OURS" -q --format csv -c 'select sum(d_next_o_id) from district' | tail -1) $(now)"; }
# Users of a closed loop, with the job for some seconds and without it for as many, in turns: lines "orders/s without, orders/s with it".
slices() { # slices JOB SEED
    local lab jobs a b c d
    clean
    "$LAB" tpcc run --url "$OURS" "${ASK[@]}" --warehouses $WAREHOUSES --sessions $SESSIONS --seconds 7200 --seed "$2" >/dev/null &
    lab=$!
    sleep "$WARM_UP"
    for _ in $(seq "$SLICES"); do
        a=$(ordered)
        sleep "$SLICE"
        b=$(ordered)
        again_and_again "$1" &
        jobs=$!
        sleep 0.5
        c=$(ordered)
        sleep "$SLICE"
        d=$(ordered)
        kill -TERM $jobs || exit 1
        wait $jobs
        # What jobs have left is removed when the users are gone: see `clean`.
        sleep 0.5
        echo "$a $b $c $d" | awk '{print ($3 - $1) / ($4 - $2), ($7 - $5) / ($8 - $6)}'
    done
    kill -TERM $lab
    wait $lab || { say "the users failed"; exit 1; }
}
again_and_again() { # until it is told to end
    local job=''
    trap 'kill -INT $job 2>/dev/null || true; wait; exit 0' TERM
    while :; do
        start_job "$1" &
        job=$!
        wait $job || { say "$1 failed: $(tail -3 "$SOCKETS/job.log")"; exit 1; }
        sleep 1 &
        wait $!
    done
}
seed=10
for job in $JOBS; do
    idle=()
    rm -f "$SOCKETS"/{loaded,all-spans,all-with,all-without}
    turns=$TURNS
    [ "$job" = compact ] && turns=$(((TURNS + 1) / 2))
    for _ in $(seq "$turns"); do
        if [ "$job" = compact ]; then fill_anew; fi
        find_half
        if [ "$job" = compact ]; then
            idle_compact >"$SOCKETS/idle"
            idle+=("$(cat "$SOCKETS/idle")")
            users "$SECONDS_EACH" 3
        fi
        open_loop "$job" $((seed += 1))
        if [ "$job" != compact ]; then
            sleep 1
            clean
            idle+=("$(run_job "$job")")
        fi
        say "$job: transactions/s, p99 (ms), time (s): $(tail -1 "$SOCKETS/loaded"); idle ${idle[-1]}"
    done
    tps0=$(column 1) tps1=$(column 2) p0=$(column 3) p1=$(column 4) loaded=$(column 5)
    if [ "$(wc -l <"$SOCKETS/all-with")" -lt $((turns * 1000)) ]; then
        tps0=$(done_in without all-) tps1=$(done_in with all-) p0=$(hundredth without all-) p1=$(hundredth with all-)
    fi
    if [ "$job" = compact ]; then fill_anew; fi
    slices "$job" $((seed += 1)) >"$SOCKETS/slices"
    closed0=$(awk '{print $1}' "$SOCKETS/slices" | paste -sd' ') closed1=$(awk '{print $2}' "$SOCKETS/slices" | paste -sd' ')
    say "$job: closed $closed0 -> $closed1 orders/s"
    row "$job at half load: users' transactions/s ÷ without it" "$(median $tps1)" "$(median $tps0)" "$(pairs "$tps1" "$tps0")" at-least 0.95
    row "$job at half load: users' p99 (ms) ÷ without it" "$(median $p1)" "$(median $p0)" "$(pairs "$p1" "$p0")" at-most 1.5
    row "$job at half load: its time (s) ÷ idle" "$(median $loaded)" "$(median "${idle[@]}")" "$(pairs "$loaded" "${idle[*]}")" at-most 2.5
    row "$job at full load: users' new orders/s ÷ without it" "$(median $closed1)" "$(median $closed0)" "$(pairs "$closed1" "$closed0")" at-least 0.9
done
top=$(peak gannet) && [ -n "$top" ] && row "jobs beside users: memory peak over the budget (MiB)" "$top" $BUDGET $((top - BUDGET)) at-most $((64 + SESSIONS / 2))
held=$(cached "$FILE")
row "jobs beside users: cached pages of our files (MiB)" "$held" 0 "$held" at-most 1
stop_gannet
"$GANNET" check "$FILE" --json >/dev/null
say "the database is sound"
rm -rf "${DEST:?}"
