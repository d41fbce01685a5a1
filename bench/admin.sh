#!/usr/bin/env bash
# Jobs of an administrator beside users: what the users feel, and how long the jobs take.
#
#   users       TPC-C without think times, 25 sessions, Unix sockets (gannet-lab tpcc); open loop: transactions come in as a Poisson
#               process at half of what a closed loop reaches, and their latency counts from then
#   jobs        full backup, stat --records, check, sweep, dump, compact: started beside the server, one after the other, again and
#               again while the users are measured, no more than one a second; the first one's time counts. Idle: the same right
#               afterwards, without users; of compact, before, on a copy
#   memory      a quarter of the data, in a memory cgroup; --memory is that less 16 MiB
#   durability  commits, and what the jobs write, are synced
#   p99         of all transactions together, the five kinds in the specification's mix
#   time        each is measured for 10 s at least
#   ratios      each measurement with a job by the one without it that was made right before; of these the median. At full load by the
#               mean of the one before and the one behind it, after some seconds that do not count: where the server has had time to
#               bring its dirty pages home, users go faster for a while, with a job or without
#   JOBS        which of them ["backup stat check sweep dump compact"]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
build rivals
(cd "$ROOT" && cargo build --quiet --release -p gannet)
SESSIONS=25
# The hundredth part of a shorter time is a matter of luck.
[ "$SECONDS_EACH" -ge 10 ] || SECONDS_EACH=10
if [ "${QUICK:-0}" = 1 ]; then WAREHOUSES=8 TOTAL=208; else WAREHOUSES=24 TOTAL=576; fi
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
run_job() { # run_job NAME: its time in seconds
    local begun
    begun=$(now)
    case $1 in
        backup) "$GANNET" backup "$FILE" "$DEST" --json ;;
        stat) "$GANNET" stat "$FILE" --records --json ;;
        dump) "$GANNET" dump "$FILE" "$(mktemp -u "$DEST/dump-XXXXXX")" --json ;;
        check | sweep | compact) "$GANNET" "$1" "$FILE" --json ;;
    esac >"$SOCKETS/job.json" 2>"$SOCKETS/job.log" || { say "$1 failed: $(tail -3 "$SOCKETS/job.log")"; exit 1; }
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
users $((SECONDS_EACH * 2)) none 2 ''
capacity=$(figure transactions_per_second)
half=$(awk -v c="$capacity" 'BEGIN {printf "%.0f", c / 2}')
say "closed loop: $capacity transactions/s; open loop at $half"
seed=10
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
for job in $JOBS; do
    tps0=() tps1=() p0=() p1=() closed0=() closed1=() loaded=() idle=()
    for _ in $(seq "$RUNS"); do
        seed=$((seed + 10))
        if [ "$job" = compact ]; then
            idle_compact >"$SOCKETS/idle"
            idle+=("$(cat "$SOCKETS/idle")")
            users "$SECONDS_EACH" none $((seed + 9)) "$half"
        fi
        users "$SECONDS_EACH" none $seed "$half"
        tps0+=("$(figure transactions_per_second)") p0+=("$(figure p99_ms)")
        users "$SECONDS_EACH" "$job" $((seed + 1)) "$half"
        tps1+=("$(figure transactions_per_second)") p1+=("$(figure p99_ms)") loaded+=("$(head -1 "$SOCKETS/time")")
        clean
        [ "$job" = compact ] || idle+=("$(run_job "$job")")
        users "$WARM_UP" none $((seed + 2)) ''
        users "$SECONDS_EACH" none $((seed + 3)) ''
        before=$(figure transactions_per_second)
        users "$SECONDS_EACH" "$job" $((seed + 4)) ''
        closed1+=("$(figure transactions_per_second)")
        users "$SECONDS_EACH" none $((seed + 5)) ''
        closed0+=("$(awk -v a="$before" -v b="$(figure transactions_per_second)" 'BEGIN {print (a + b) / 2}')")
        say "$job: open ${tps0[-1]} -> ${tps1[-1]} tps, p99 ${p0[-1]} -> ${p1[-1]} ms; job ${idle[-1]} -> ${loaded[-1]} s; closed ${closed0[-1]} -> ${closed1[-1]}"
    done
    beside() { row "$1" "$(median $2)" "$(median $3)" "$(pairs "$2" "$3")" "$4" "$5"; }
    beside "$job at half load: users' transactions/s ÷ without it" "${tps1[*]}" "${tps0[*]}" at-least 0.95
    beside "$job at half load: users' p99 (ms) ÷ without it" "${p1[*]}" "${p0[*]}" at-most 1.5
    beside "$job at half load: its time (s) ÷ idle" "${loaded[*]}" "${idle[*]}" at-most 2.5
    beside "$job at full load: users' transactions/s ÷ without it" "${closed1[*]}" "${closed0[*]}" at-least 0.9
done
top=$(peak gannet) && [ -n "$top" ] && row "jobs beside users: memory peak over the budget (MiB)" "$top" $BUDGET $((top - BUDGET)) at-most $((64 + SESSIONS / 2))
held=$(cached "$FILE")
row "jobs beside users: cached pages of our files (MiB)" "$held" 0 "$held" at-most 1
stop_gannet
"$GANNET" check "$FILE" --json >/dev/null
say "the database is sound"
rm -rf "${DEST:?}"
