#!/usr/bin/env bash
# Sweep: the cost of the same garbage in a database and in one ten times as large, with memory in proportion; from cold.
#
#   measured    bytes that `gannet sweep` reads from the device, and the time it takes
#   schema      a table of rows of 200 bytes, keys ascending, with an index on another column
#               so that the same garbage is on as many pages in both; where an index scatters it, each entry may be on a page of its own
#   garbage     a stretch of rows updated and then deleted, under a session that holds all of it back; the file is closed before it is swept
#   page size   8 KiB, direct I/O; every sweep in a process of its own, so nothing of the file is in memory
#   durability  the log is written as by any change
set -euo pipefail
. "$(dirname "$0")/lib.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
GANNET=$TARGET/release/gannet
if [ "$SIZE" = quick ]; then SMALL=200000 GARBAGE=20000 SMALL_MEMORY=32; else SMALL=1000000 GARBAGE=100000 SMALL_MEMORY=64; fi
table() { # table ROWS: makes a database once
    local file=$BENCH_DIR/sweep-$1.gnt
    [ -e "$file.complete" ] && return
    say "making $file: $1 rows"
    mkdir -p "$BENCH_DIR"
    rm -rf "$file" "$file-wal"
    "$GANNET" sql "$file" --create --quiet --memory "${FILL_MEMORY}MiB" \
        -c "create table t (id bigint primary key, w bigint, v text)" \
        -c "insert into t select n, -n, repeat('x', 170) from generate_series(1, $1) as n" \
        -c "create index by_w on t (w)"
    "$GANNET" sweep "$file" >/dev/null
    touch "$file.complete"
}
garbage() { # garbage ROWS: a copy with garbage that nobody has swept, at rest
    local file=$BENCH_DIR/sweep-run.gnt pipe=$BENCH_DIR/sweep-run.pipe server holder
    copy "$BENCH_DIR/sweep-$1.gnt" "$file"
    rm -rf "$file-wal" "$file-socket" "$pipe"
    mkfifo "$pipe"
    # To it every variable GANNET_... is a setting.
    "$GANNET" serve "$file" --listen none --memory "${FILL_MEMORY}MiB" 2>/dev/null &
    server=$!
    until compgen -G "$file-socket/.s.PGSQL.*" >/dev/null; do sleep 0.1; done
    # A session that holds the garbage back until the server is gone, so that it sweeps nothing of it.
    "$GANNET" sql "$file" --quiet -f - <"$pipe" >"$pipe.out" 2>&1 &
    holder=$!
    exec 9>"$pipe"
    echo "begin isolation level repeatable read; select 'held' from t where id = 1;" >&9
    until grep -q held "$pipe.out"; do sleep 0.1; done
    "$GANNET" sql "$file" --quiet -c "update t set v = repeat('y', 170) where id between 50001 and 50000 + $GARBAGE" \
        -c "delete from t where id between 50001 and 50000 + $GARBAGE"
    kill -9 "$server"
    exec 9>&-
    wait "$server" "$holder" 2>/dev/null || true
    rm -f "$pipe" "$pipe.out"
    # Waits until it is up to date, closes it, and sweeps nothing.
    "$GANNET" sweep "$file" --show --memory "${FILL_MEMORY}MiB" >/dev/null
    rm -f "$file-wal/hot"
}
sweep() { # sweep MiB
    within $(($1 + 64)) "$GANNET" sweep "$BENCH_DIR/sweep-run.gnt" --memory "$1MiB" --json |
        python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin)))' | keep sweep
}
field() { python3 -c 'import json,sys
r = json.loads(sys.argv[1])
print(eval(sys.argv[2]))' "$1" "$2"; }
table "$SMALL"
table $((SMALL * 10))
small=() large=() small_time=() large_time=() last=
for _ in $(seq "$RUNS"); do
    for kind in small large; do
        rows=$SMALL memory=$SMALL_MEMORY
        [ $kind = large ] && rows=$((SMALL * 10)) memory=$((SMALL_MEMORY * 10))
        garbage "$rows"
        last=$(sweep "$memory")
        declare -n bytes=$kind time=${kind}_time
        bytes+=("$(field "$last" 'r["swept"]["report"]["cleaned"]["bytes_read"]')")
        time+=("$(field "$last" 'r["swept"]["report"]["seconds"]')")
        say "$kind: $(field "$last" 'r["swept"]["report"]["cleaned"]')"
    done
done
rm -rf "$BENCH_DIR/sweep-run.gnt" "$BENCH_DIR/sweep-run.gnt-wal"
a=$(median "${large[@]}") b=$(median "${small[@]}")
row "sweep, same garbage, database 10x larger: KiB read" \
    "$(awk -v b="$a" 'BEGIN {printf "%.0f", b / 1024}')" "$(awk -v b="$b" 'BEGIN {printf "%.0f", b / 1024}')" \
    "$(ratio "$a" "$b")" at-most 1.2
a=$(median "${large_time[@]}") b=$(median "${small_time[@]}")
row "sweep, same garbage, database 10x larger: seconds" "$a" "$b" "$(ratio "$a" "$b")" at-most 1.5
cached=$(field "$last" 'r["cached_bytes"]')
row "sweep: cached pages of our files (MiB)" "$(ratio "$cached" 1048576)" 0 "$(ratio "$cached" 1048576)" at-most 1
