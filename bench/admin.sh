#!/usr/bin/env bash
# Jobs of an administrator beside users: what the users feel, and how long the jobs take.
#
#   users       TPC-C without think times, 25 sessions, Unix sockets (gannet-lab tpcc); open loop: transactions come in as a Poisson
#               process at half of what a closed loop reaches, found anew for each job, and their latency counts from then
#   jobs        full backup, stat --records, check, sweep, dump, compact: started beside the server, one after the other, again and
#               again while the users are measured, no more than one a second; the first one's time counts. Idle: the same right
#               afterwards, without users; of compact, before, on a copy
#   memory      a quarter of the data, in a memory cgroup; --memory is that less 16 MiB
#   durability  commits, and what the jobs write, are synced
#   p99         of all transactions together, the five kinds in the specification's mix
#   time        each is measured for 10 s at least
#   compact     each pair has a first one: of the file as it was filled, behind the same warm-up. Those behind it find little to do
#   ratios      each measurement with a job by one without it; of these the median. At half load that is the mean of the one before and
#               the one behind it; at full load one run of the users is cut into slices, with the job and without it in turns: the
#               machine is shared, and is slower for some minutes
#   PAIRS       of these, at half load [4, QUICK: 2]
#   JOBS        which of them ["backup stat check sweep dump compact"]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet -p gannet-lab --features gannet-lab/rivals)
SESSIONS=25
# The hundredth part of a shorter time is a matter of luck.
[ "$SECONDS_EACH" -ge 10 ] || SECONDS_EACH=10
if [ "${QUICK:-0}" = 1 ]; then
    WAREHOUSES=8 TOTAL=208 PAIRS=${PAIRS:-2} SLICES=4 SLICE=4
else
    WAREHOUSES=24 TOTAL=576 PAIRS=${PAIRS:-4} SLICES=8 SLICE=5
fi
JOBS=${JOBS:-backup stat check sweep dump compact}
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
    "$LAB" tpcc load --url "$OURS" --warehouses $WAREHOUSES --sessions $SESSIONS | keep admin >/dev/null
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
# users SECONDS JOB SEED RATE: lets users work, beside a job or none; the users' figures and the first job's time stand
# in $SOCKETS/users.json and $SOCKETS/time afterwards.
users() {
    local lab until begun
    clean
    # A function in the background would be a shell of its own, which a signal ends in place of the driver.
    "$LAB" tpcc run --url "$OURS" --warehouses $WAREHOUSES --sessions $SESSIONS --seconds 7200 --seed "$3" ${4:+--rate "$4"} \
        >"$SOCKETS/users.json" &
    lab=$!
    sleep 1
    until=$((SECONDS + $1))
    rm -f "$SOCKETS/time"
    if [ "$2" = none ]; then
        sleep "$1"
    else
        while [ $SECONDS -lt $until ]; do
            begun=$(now)
            run_job "$2" >>"$SOCKETS/time"
            # What is measured of a job that takes less than a second is not how often a program can be started.
            sleep "$(awk -v a="$begun" -v b="$(now)" 'BEGIN {print b - a < 1 ? 1 - (b - a) : 0}')"
        done
    fi
    kill -TERM $lab
    wait $lab || { say "the users failed"; exit 1; }
    keep admin <"$SOCKETS/users.json" >/dev/null
}
figure() { pick "measured.$1" <"$SOCKETS/users.json"; }
header
start_gannet "$FILE" $BUDGET $TOTAL
# Until dirty pages go home as fast as they come.
users $((SECONDS_EACH * 2)) none 1 ''
seed=10
# What half load is, of the machine as it is now.
find_half() {
    local capacity
    users $((SECONDS_EACH * 2)) none 2 ''
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
    users $((SECONDS_EACH * 2)) none 1 ''
}
# What the users of a closed loop have ordered so far, and when: "orders seconds".
ordered() { echo "$("$GANNET" sql "$OURS" -q --format csv -c 'select sum(d_next_o_id) from district' | tail -1) $(now)"; }
# Users of a closed loop, with the job for some seconds and without it for as many, in turns: lines "orders/s without, orders/s with it".
slices() { # slices JOB SEED
    local lab jobs a b c d
    clean
    "$LAB" tpcc run --url "$OURS" --warehouses $WAREHOUSES --sessions $SESSIONS --seconds 7200 --seed "$2" >/dev/null &
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
for job in $JOBS; do
    tps0=() tps1=() p0=() p1=() loaded=() idle=() last=''
    find_half
    for _ in $(seq "$PAIRS"); do
        seed=$((seed + 10))
        if [ "$job" = compact ]; then
            fill_anew
            idle_compact >"$SOCKETS/idle"
            idle+=("$(cat "$SOCKETS/idle")")
            users "$SECONDS_EACH" none $((seed + 9)) "$half"
            last=''
        fi
        if [ -z "$last" ]; then
            users "$SECONDS_EACH" none $seed "$half"
            last=$(figure p99_ms)
        fi
        before=$last
        users "$SECONDS_EACH" "$job" $((seed + 1)) "$half"
        tps1+=("$(figure transactions_per_second)") p1+=("$(figure p99_ms)") loaded+=("$(head -1 "$SOCKETS/time")")
        users "$SECONDS_EACH" none $((seed + 2)) "$half"
        last=$(figure p99_ms)
        tps0+=("$(figure transactions_per_second)") p0+=("$(awk -v a="$before" -v b="$last" 'BEGIN {print (a + b) / 2}')")
        clean
        [ "$job" = compact ] || idle+=("$(run_job "$job")")
        say "$job: open ${tps0[-1]} -> ${tps1[-1]} tps, p99 ${p0[-1]} -> ${p1[-1]} ms; job ${idle[-1]} -> ${loaded[-1]} s"
    done
    if [ "$job" = compact ]; then fill_anew; fi
    slices "$job" $((seed + 5)) >"$SOCKETS/slices"
    closed0=$(awk '{print $1}' "$SOCKETS/slices" | paste -sd' ') closed1=$(awk '{print $2}' "$SOCKETS/slices" | paste -sd' ')
    say "$job: closed $closed0 -> $closed1 orders/s"
    beside() { row "$1" "$(median $2)" "$(median $3)" "$(pairs "$2" "$3")" "$4" "$5"; }
    beside "$job at half load: users' transactions/s ÷ without it" "${tps1[*]}" "${tps0[*]}" at-least 0.95
    beside "$job at half load: users' p99 (ms) ÷ without it" "${p1[*]}" "${p0[*]}" at-most 1.5
    beside "$job at half load: its time (s) ÷ idle" "${loaded[*]}" "${idle[*]}" at-most 2.5
    beside "$job at full load: users' new orders/s ÷ without it" "$closed1" "$closed0" at-least 0.9
done
top=$(peak gannet) && [ -n "$top" ] && row "jobs beside users: memory peak over the budget (MiB)" "$top" $BUDGET $((top - BUDGET)) at-most $((64 + SESSIONS / 2))
held=$(cached "$FILE")
row "jobs beside users: cached pages of our files (MiB)" "$held" 0 "$held" at-most 1
stop_gannet
"$GANNET" check "$FILE" --json >/dev/null
say "the database is sound"
rm -rf "${DEST:?}"
