#!/usr/bin/env bash
# Restart after a kill -9 at full load with the log at its limit: how soon the first commit is there, what follows in the background,
# and how soon the speed of before is reached again.
#
#   over the wire  Gannet and PostgreSQL 15, pgbench's TPC-B-like load, the same bytes of log to be redone; Gannet also with one
#                  transaction that has inserted as much and is open still, and idle: restart_wire.py
#   embedded       random single-row updates of 16 threads, data 4x the budget; SQLite with as many bytes of log in its WAL;
#                  Firebird, which has no log, after as long a load of 16 processes
#   modelled       the same file on the profile slow-wide (0.5-2 ms a request), 64 requests wide, and one
#   hot pages      uniform look-ups, data twice the budget, with the list of hot pages and without: 2 threads; 16 threads on
#                  slow-wide; and 16 on the device itself, which is busy either way
#   durability     every commit durable when acknowledged, on every side
#
# PARTS="wire embedded hot" by default; a part alone takes less long.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
need pgbench "apt-get install postgresql-15 (its contrib programs)"
need fio "apt-get install fio"
need isql-fb "apt-get install firebird3.0-utils firebird3.0-server-core"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
build rivals
LOG_MIB=1024 SCALE=50
[ "${QUICK:-0}" = 1 ] && LOG_MIB=192 SCALE=10
MEMORY=$UPDATE_MEMORY

PARTS=${PARTS:-wire embedded hot}
wants() { [[ " $PARTS " == *" $1 "* ]]; }

# --- over the wire ---
DATA=$BENCH_DIR/restart-$SCALE
mkdir -p "$DATA"
wire() { # wire SIDE FOLDER PROGRAM LOAD
    /usr/bin/python3 "$BENCH/restart_wire.py" "$1" --data "$2" --program "$3" --log $LOG_MIB --memory $MEMORY --scale $SCALE \
        --load "$4" --runs "$RUNS" | keep restart
}
over_the_wire() {
    init_postgres
    local mine=() his=() rest=() idle=() a b c d line
    while read -r line; do mine+=("$(pick first_commit_seconds <<<"$line")"); rest+=("$(pick background_seconds <<<"$line")"); done < <(wire gannet "$DATA" "$GANNET" tpcb)
    while read -r line; do his+=("$(pick first_commit_seconds <<<"$line")"); done < <(wire postgres "$PG_DIR" "$PG_BIN/postgres" tpcb)
    a=$(median "${mine[@]}") b=$(median "${his[@]}")
    row "start to first commit, $LOG_MIB MiB of log, s" "$a" 0.5 "$(ratio "$a" 0.5)" at-most 1
    row "PostgreSQL 15 ÷ the same" "$b" "$a" "$(ratio "$b" "$a")" at-least 10
    mine=()
    while read -r line; do mine+=("$(pick first_commit_seconds <<<"$line")"); done < <(wire gannet "$DATA" "$GANNET" loser)
    while read -r line; do idle+=("$(pick first_commit_seconds <<<"$line")"); done < <(wire gannet "$DATA" "$GANNET" none)
    c=$(median "${mine[@]}") d=$(median "${idle[@]}")
    row "the same after one transaction of $LOG_MIB MiB that is open still, s" "$c" 0.5 "$(ratio "$c" 0.5)" at-most 1
    echo "| (the same after a kill at rest, s, for information) | $d | | | | |"
    rm -rf "$DATA"
    echo "| (background work after it, s, for information) | $(median "${rest[@]}") | | | | |"
}

# --- embedded ---
data "updates-$ROWS" sorted
KILLED=$BENCH_DIR/restart-killed
# crash DRIVER DIR SECONDS: random updates for so long, then the power of kill -9.
crash() {
    "$LAB" store updates --driver "$1" --dir "$2" --memory "${MEMORY}MiB" --rows "$ROWS" --value-size $VALUE_SIZE --threads 16 \
        --seconds 3600 --warm-up 0 --wal-limit $((LOG_MIB * 2))MiB >/dev/null &
    local pid=$!
    sleep "$3"
    kill -KILL $pid
    wait $pid 2>/dev/null || true
}
# again OPTION...: restarts what was killed, from a copy; prints the measurement.
again() {
    copy "$KILLED" "$KILLED-copy"
    "$LAB" store restart --dir "$KILLED-copy" --memory "${MEMORY}MiB" --rows "$ROWS" --value-size $VALUE_SIZE --threads 16 \
        --wal-limit $((LOG_MIB * 2))MiB --interval 0.1 "$@" | sed -n 1p | keep restart
}
embedded() {
    local before opened=() redo=() last pages a b fio mine after wide narrow theirs
    copy "$BENCH_DIR/updates-$ROWS" "$KILLED"
    before=$(lab $MEMORY updates "updates-$ROWS" --threads 16 --seconds $SECONDS_EACH --warm-up $WARM_UP | keep restart | pick measured.per_second_mean)
    crash gannet "$KILLED" $((SECONDS_EACH * 3))
    for _ in $(seq "$RUNS"); do
        last=$(again --seconds 0)
        opened+=("$(pick measured.first_commit_seconds <<<"$last")")
        redo+=("$(pick measured.restart.background_seconds <<<"$last")")
    done
    pages=$(pick measured.restart.redone_pages <<<"$last")
    a=$(median "${opened[@]}") b=$(median "${redo[@]}")
    row "embedded: start to first commit, s" "$a" 0.5 "$(ratio "$a" 0.5)" at-most 1
    # One read and two writes a page, at the page's size.
    fio=$(fio --name=redo --filename="$KILLED-copy/fio" --size=2G --rw=randrw --rwmixread=33 --direct=1 --bs=$PAGE_SIZE --ioengine=io_uring \
        --iodepth=64 --runtime="$SECONDS_EACH" --time_based --output-format=json 2>/dev/null |
        python3 -c 'import json,sys; print(json.load(sys.stdin)["jobs"][0]["read"]["iops"])')
    mine=$(awk -v p="$pages" -v s="$b" 'BEGIN {print p / s}')
    row "redo in the background, pages/s ÷ fio, one read and two writes a page" "${mine%.*}" "${fio%.*}" "$(ratio "$mine" "$fio")" at-least 0.8
    last=$(again --seconds 15)
    after=$(python3 -c 'import json,sys; v = json.loads(sys.argv[1])["measured"]; n = v["per_interval"][50:]; print(sum(n) / len(n) / v["interval_seconds"])' "$last")
    row "updates/s from the 5th second after opening ÷ before the crash" "${after%.*}" "${before%.*}" "$(ratio "$after" "$before")" at-least 0.5

    # --- modelled ---
    wide=$(again --seconds 0 --profile slow-wide)
    narrow=$(again --seconds 0 --profile slow-wide --width 1)
    a=$(pick measured.restart.background_seconds <<<"$wide") b=$(pick measured.restart.background_seconds <<<"$narrow")
    row "slow-wide: background redo, one request at a time ÷ 64" "$b" "$a" "$(ratio "$b" "$a")" at-least 40
    echo "| (slow-wide: start to first commit, s, for information) | $(pick measured.first_commit_seconds <<<"$wide") | | | | |"

    # --- SQLite ---
    theirs=$(/usr/bin/python3 "$BENCH/restart_sqlite.py" "$BENCH_DIR/restart-sqlite" $LOG_MIB | keep restart | pick first_commit_seconds)
    a=$(median "${opened[@]}")
    row "embedded: start to first commit, s ÷ SQLite, $LOG_MIB MiB in its WAL" "$a" "$theirs" "$(ratio "$a" "$theirs")" at-most 1
    rm -rf "$BENCH_DIR/restart-sqlite"
    theirs=$(/usr/bin/python3 "$BENCH/restart_firebird.py" "$BENCH_DIR/restart-firebird" $((SECONDS_EACH * 3)) | keep restart | pick first_commit_seconds)
    echo "| (embedded: start to first commit, s; Firebird 3, for information) | $a | $theirs | $(ratio "$a" "$theirs") | | |"
}

# --- the list of hot pages ---
# Uniform look-ups; as long as the pages of the list are not in memory, more of them miss.
reach() { # reach RATE: seconds until 90 % of that rate, from intervals of a tenth of a second
    python3 -c 'import json,sys
v = json.load(sys.stdin)["measured"]
n, each = v["per_interval"], v["interval_seconds"]
wanted = float(sys.argv[1]) * 0.9 * each
print(next((round((i + 1) * each, 2) for i in range(len(n)) if n[i] >= wanted), len(n) * each))' "$1"
}
half=$(($(stat -c %s "$BENCH_DIR/updates-$ROWS/lab.gnt") / 2 >> 20))
warm() { # warm OPTION...: restarts what was closed with memory full, and looks rows up
    "$LAB" store restart --reading --dir "$KILLED" --memory "${half}MiB" --rows "$ROWS" --value-size $VALUE_SIZE \
        --interval 0.1 "$@" | sed -n 1p | keep restart
}
hot() { # hot WHAT WANTED OPTION...
    local steady with=() without=() a b what=$1 wanted=$2
    shift 2
    # First of all memory is filled.
    warm --seconds $((SECONDS_EACH / 2)) --threads 16 >/dev/null
    steady=$(warm --seconds $((SECONDS_EACH * 2)) "$@" | python3 -c 'import json,sys
v = json.load(sys.stdin)["measured"]; n = v["per_interval"][len(v["per_interval"]) // 2:]; print(sum(n) / len(n) / v["interval_seconds"])')
    for _ in $(seq "$RUNS"); do
        warm --seconds $((SECONDS_EACH / 2)) --threads 16 >/dev/null
        with+=("$(warm --seconds $((SECONDS_EACH / 2)) "$@" | reach "$steady")")
        warm --seconds $((SECONDS_EACH / 2)) --threads 16 >/dev/null
        rm -f "$KILLED/lab.gnt-wal/hot"
        without+=("$(warm --seconds $((SECONDS_EACH * 2)) "$@" | reach "$steady")")
    done
    a=$(median "${with[@]}") b=$(median "${without[@]}")
    what="hot pages, $what: s to 90 % of the look-ups of before ÷ without the list"
    if [ "$wanted" = 0 ]; then
        echo "| ($what, for information) | $a | $b | $(ratio "$a" "$b") | | |"
    else
        row "$what" "$a" "$b" "$(ratio "$a" "$b")" at-most "$wanted"
    fi
}
if wants wire; then over_the_wire; fi
if wants embedded; then embedded; fi
if wants hot; then
    copy "$BENCH_DIR/updates-$ROWS" "$KILLED"
    hot "2 threads" 0.5 --threads 2
    hot "16 threads, slow-wide" 0.5 --threads 16 --profile slow-wide
    # The device is busy either way.
    hot "16 threads" 0 --threads 16
fi
rm -rf "$KILLED" "$KILLED-copy"
