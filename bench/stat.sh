#!/usr/bin/env bash
# Statistics at once: how long `gannet stat` takes of databases of two sizes, at rest and beside a server, and whether what it says is true.
#
#   measured    wall time of the command, process start included: the longest of RUNS; and how many of its estimates are off by no more than
#               they say, against every entry counted (`--records`)
#   schema      tables of rows of 200 bytes, one filled in order, one in random order; each with an index on another column; a tenth of the
#               rows deleted, and a part changed to half of their length
#   cold        every command is a process of its own; nothing of the file is in memory at rest, and little of it in the server
#   memory      64 MiB in a cgroup of 64 MiB more
#   page size   8 KiB, direct I/O
#   durability  read only
#   TRIES       how many samples are judged [20]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
TRIES=${TRIES:-20}
if [ "$SIZE" = quick ]; then SIZES=(50000 500000); else SIZES=(500000 5000000); fi
mkdir -p "$BENCH_DIR"

make_file() { # make_file ROWS: makes a database once
    local file=$BENCH_DIR/stat-$1.gnt
    [ -e "$file.complete" ] && return
    say "making $file: twice $1 rows"
    rm -rf "$file" "$file-wal"
    "$GANNET" sql "$file" --create --quiet --memory "${FILL_MEMORY}MiB" \
        -c "create table sorted (id bigint primary key, w bigint, v text)" \
        -c "create table scattered (id bigint primary key, w bigint, v text)" \
        -c "create index sorted_w on sorted (w)" -c "create index scattered_w on scattered (w)" \
        -c "insert into sorted select n, n % 1000, repeat('x', 170) from generate_series(1, $1) as n" \
        -c "insert into scattered select n * 2654435761 % 4294967296, n % 7919, repeat('x', 170) from generate_series(1, $1) as n" \
        -c "delete from sorted where id % 10 = 3" -c "delete from scattered where w % 10 = 3" \
        -c "update sorted set v = repeat('y', 85) where id % 100 < 20"
    "$GANNET" sweep "$file" >/dev/null
    touch "$file.complete"
}
seconds() { # seconds FILE: wall time of one look
    local begun=$EPOCHREALTIME
    within 128 "$GANNET" stat "$1" --memory 64MiB --json >"$SOCKETS/stat.json"
    awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.3f\n", b - a}'
}
longest() { printf '%s\n' "$@" | sort -g | tail -1; }
# Prints how many estimates of $1 are within what they say, and how many there are, given all of it counted in $2.
judged() {
    python3 - "$1" "$2" <<'END'
import json, sys
told, true = (json.load(open(name))["statistics"]["objects"] for name in sys.argv[1:])
held = count = 0
for a, b in zip(told, true):
    assert a["name"] == b["name"]
    if not a["contents"] or a["kind"] == "system":
        continue
    for name, figure in a["contents"].items():
        exact = b["contents"][name]
        # What was counted is not judged.
        if isinstance(figure, dict) and figure.get("error", 0) > 0 and isinstance(exact, dict) and exact.get("error") == 0:
            count += 1
            held += abs(figure["value"] - exact["value"]) <= figure["error"]
print(held, count)
END
}
for rows in "${SIZES[@]}"; do make_file "$rows"; done
header
held=0 count=0
for rows in "${SIZES[@]}"; do
    file=$BENCH_DIR/stat-$rows.gnt
    mib=$(($(stat -c %s "$file") >> 20))
    rest=() beside=()
    for _ in $(seq "$RUNS"); do rest+=("$(seconds "$file")"); done
    "$GANNET" stat "$file" --records --json >"$SOCKETS/exact.json"
    for _ in $(seq "$TRIES"); do
        seconds "$file" >/dev/null
        read -r good all < <(judged "$SOCKETS/stat.json" "$SOCKETS/exact.json")
        held=$((held + good)) count=$((count + all))
    done
    start_gannet "$file" 64 128
    for _ in $(seq "$RUNS"); do beside+=("$(seconds "$file")"); done
    stop_gannet
    python3 -c 'import json,sys; print(json.dumps({"mib": int(sys.argv[1]), "at_rest": sys.argv[2].split(), "served": sys.argv[3].split()}))' \
        "$mib" "${rest[*]}" "${beside[*]}" | keep stat >/dev/null
    a=$(longest "${rest[@]}")
    row "stat of $mib MiB at rest, longest of $RUNS, s" "$a" 0.1 "$(ratio "$a" 0.1)" at-most 1
    a=$(longest "${beside[@]}")
    row "stat of $mib MiB that a server has open, longest of $RUNS, s" "$a" 0.1 "$(ratio "$a" 0.1)" at-most 1
done
# It says 95 of 100; one run in twenty thousand has fewer than this by chance.
row "stat: estimates that are off by no more than they say, of $count" "$held" "$count" "$(ratio "$held" "$count")" at-least 0.93
