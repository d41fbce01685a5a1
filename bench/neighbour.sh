#!/usr/bin/env bash
# A neighbour: another program, whose working set is half of the memory, beside a backup and a scan.
#
#   measured    the neighbour's major page faults (pages that it had, and has to have read again) in SECONDS_EACH seconds, alone and beside
#               a backup and a full scan, both again and again
#   neighbour   a program that touches each page of a mapped file, and of as much memory of its own, every two seconds: each half of its
#               working set
#   memory      one memory cgroup for all of it: neighbour, server, and what either has the OS cache. Half of it is the neighbour's, the
#               server's budget is a quarter. Without a cgroup (v1) that may be written nothing is measured
#   schema      a table of rows of 200 bytes, several times the cgroup's memory
#   control     the same with buffered I/O, where the OS caches what is read and written: what the neighbour, or we, lose then; no line
#               of the table
#   durability  backups are synced
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
if [ "$SIZE" = quick ]; then TABLE_ROWS=2500000 TOTAL=256; else TABLE_ROWS=10000000 TOTAL=768; fi
FILE=$BENCH_DIR/backup-$TABLE_ROWS.gnt
DEST=$BENCH_DIR/neighbour-out
mkdir -p "$BENCH_DIR"
if [ ! -e "$FILE.complete" ]; then
    say "making $FILE: $TABLE_ROWS rows"
    rm -rf "$FILE" "$FILE-wal"
    "$GANNET" sql "$FILE" --create --quiet --memory "${FILL_MEMORY}MiB" -c "create table t (id bigint primary key, n bigint, v text)" \
        -c "insert into t select n, 0, repeat('x', 172) from generate_series(1, $TABLE_ROWS) as n"
    "$GANNET" sql "$FILE" -c "vacuum" --quiet
    touch "$FILE.complete"
fi
TOGETHER=$(group together) || { say "no memory cgroup (v1) that may be written: nothing is measured"; exit 0; }
echo $((TOTAL << 20)) >"$TOGETHER/memory.limit_in_bytes"
inside() { (echo "$BASHPID" >"$TOGETHER/cgroup.procs" && exec "$@"); }

# Prints its major faults since the last line whenever it reads one.
cat >"$SOCKETS/neighbour.py" <<'END'
import mmap, os, resource, select, sys
half = int(sys.argv[2]) << 19
with open(sys.argv[1], "wb") as made:
    made.write(os.urandom(1 << 20) * (half >> 20))
    made.flush(), os.fsync(made.fileno())
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), half, prot=mmap.PROT_READ)
own = bytearray(os.urandom(4096)) * (half >> 12)
touched = faults = 0
def now(): return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
def round():
    # One byte of each page: a stride over a view costs no copy of the rest.
    return sum(memoryview(mapped)[::4096]) + sum(memoryview(own)[::4096])
round()
print("ready", flush=True)
before, passes = now(), 0
while True:
    round()
    passes += 1
    # Not all the time: what is touched rarely goes first where memory is short.
    if select.select([sys.stdin], [], [], 2)[0]:
        if not sys.stdin.readline():
            break
        print(now() - before, passes, flush=True)
        before, passes = now(), 0
END
neighbour_in='' neighbour_pid=''
begin_neighbour() {
    local made
    mkfifo "$SOCKETS/ask" "$SOCKETS/answer"
    inside python3 "$SOCKETS/neighbour.py" "$BENCH_DIR/neighbour.bin" $((TOTAL / 2)) <"$SOCKETS/ask" >"$SOCKETS/answer" &
    neighbour_pid=$!
    exec 8>"$SOCKETS/ask" 9<"$SOCKETS/answer"
    neighbour_in=8
    read -r made <&9 && [ "$made" = ready ]
}
end_neighbour() {
    [ -z "$neighbour_in" ] || exec 8>&- 9<&-
    [ -z "$neighbour_pid" ] || wait "$neighbour_pid" 2>/dev/null || true
    rm -f "$BENCH_DIR/neighbour.bin" "$SOCKETS/ask" "$SOCKETS/answer"
    neighbour_in='' neighbour_pid=''
}
faults() { # what the neighbour has had since it was asked last: faults and rounds
    local said
    echo >&8
    read -r said <&9
    echo "$said"
}
serve() { # serve MODE
    (echo "$BASHPID" >"$TOGETHER/cgroup.procs" && exec "$GANNET" serve "$FILE" --memory "$((TOTAL / 4))MiB" --io "$1" \
        --listen none --socket "$SOCKETS" --port 5433) >"$SOCKETS/gannet.log" 2>&1 &
    gannet_pid=$!
    ready "$SOCKETS/.s.PGSQL.5433" "$SOCKETS/gannet.log"
}
database="postgres:///$(basename "$FILE" .gnt)?host=$SOCKETS&port=5433"
backups() { # backups UNTIL: the server's process writes them
    while [ $SECONDS -lt "$1" ]; do
        rm -rf "${DEST:?}" && mkdir -p "$DEST"
        inside "$GANNET" sql "$database" --quiet -c "backup database to '$DEST'" >/dev/null
    done
}
scans() { # scans UNTIL
    while [ $SECONDS -lt "$1" ]; do
        inside "$GANNET" sql "$database" --quiet -c "select count(*), max(length(v)) from t" >/dev/null
    done
}
measure() { # measure MODE: "ALONE ROUNDS BESIDE ROUNDS", by a shell of its own
    local alone beside until jobs
    trap 'end_neighbour; stop_gannet' EXIT
    serve "$1"
    begin_neighbour
    faults >/dev/null
    sleep "$SECONDS_EACH"
    alone=$(faults)
    until=$((SECONDS + SECONDS_EACH))
    backups $until & jobs=$!
    scans $until
    wait $jobs
    beside=$(faults)
    end_neighbour
    stop_gannet
    echo "$alone $beside"
}
trap 'end_neighbour; end_servers; rm -rf "${DEST:?}"' EXIT
header
alone=() beside=()
for _ in $(seq "$RUNS"); do
    read -r a rounds b rounds_beside < <(measure auto)
    say "direct: $a faults alone in $rounds rounds, $b beside in $rounds_beside"
    echo "{\"mode\": \"auto\", \"alone\": $a, \"beside\": $b, \"rounds\": $rounds, \"rounds_beside\": $rounds_beside}" | keep neighbour >/dev/null
    alone+=("$a") beside+=("$b")
done
a=$(median "${beside[@]}") b=$(median "${alone[@]}")
row "neighbour's major page faults beside backup and scan, more than alone" "$a" "$b" "$((a > b ? a - b : 0))" at-most 0
# Whoever caches in a cgroup that is full may find no memory for the next read.
if read -r a rounds b rounds_beside < <(measure buffered); then
    echo "{\"mode\": \"buffered\", \"alone\": $a, \"beside\": $b, \"rounds\": $rounds, \"rounds_beside\": $rounds_beside}" | keep neighbour >/dev/null
    say "the control, buffered: $a faults alone, $b beside"
else
    say "the control, buffered: it found no memory"
fi
