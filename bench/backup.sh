#!/usr/bin/env bash
# Backups of a database at rest: a full one against a raw copy of the same file to the same place, and an incremental one against
# what has changed.
#
#   measured    wall time of `gannet backup`, synced; of the raw copy the better of dd reading and writing in turns, and of two dd that
#               do so at one time through a pipe: direct I/O, 4 MiB, fsync at the end
#   schema      a table of rows of 200 bytes, keys ascending
#   changes     one row in a thousand, spread over the table; then the list of changes against all pages in use
#   page size   8 KiB, direct I/O; every run in a process of its own, so nothing of the file is in memory
#   durability  all synced
set -euo pipefail
. "$(dirname "$0")/lib.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
GANNET=$TARGET/release/gannet
FILE=$BENCH_DIR/backup-$ROWS.gnt
DEST=$BENCH_DIR/backup-out
mkdir -p "$BENCH_DIR"
if [ ! -e "$FILE.complete" ]; then
    say "making $FILE: $ROWS rows"
    rm -rf "$FILE" "$FILE-wal"
    "$GANNET" sql "$FILE" --create --quiet --memory "${FILL_MEMORY}MiB" -c "create table t (id bigint primary key, n bigint, v text)" \
        -c "insert into t select n, 0, repeat('x', 172) from generate_series(1, $ROWS) as n"
    "$GANNET" sql "$FILE" -c "vacuum" --quiet
    touch "$FILE.complete"
fi
now() { echo "${EPOCHREALTIME/,/.}"; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.3f", b - a}'; }
fresh() { rm -rf "${DEST:?}" && mkdir -p "$DEST" && sync -f "$DEST"; }
backup() { # backup OPTION...: seconds; what it says is in $DEST.json
    local begun
    begun=$(now)
    within $((MEMORY + 64)) "$GANNET" backup "$FILE" "$DEST" --memory "${MEMORY}MiB" --json "$@" >"$DEST.json"
    since "$begun"
    python3 -c "import json,sys; print(json.dumps(json.load(sys.stdin)))" <"$DEST.json" | keep backup >/dev/null
}
raw() { # raw turns|pipe: seconds of a raw copy
    local begun
    begun=$(now)
    if [ "$1" = turns ]; then
        dd if="$FILE" of="$DEST/copy" iflag=direct oflag=direct bs=4M conv=fsync status=none
    else
        dd if="$FILE" iflag=direct bs=4M status=none | dd of="$DEST/copy" iflag=fullblock oflag=direct bs=4M conv=fsync status=none
    fi
    since "$begun"
}
header
ours=() turns=() pipe=()
for _ in $(seq "$RUNS"); do
    fresh; turns+=("$(raw turns)")
    fresh; pipe+=("$(raw pipe)")
    fresh; ours+=("$(backup)")
    say "backup ${ours[-1]} s; dd in turns ${turns[-1]}, through a pipe ${pipe[-1]}"
done
mine=$(median "${ours[@]}") raw=$(printf '%s\n' "$(median "${turns[@]}")" "$(median "${pipe[@]}")" | sort -g | head -1)
row "full backup, idle, synced (s) ÷ raw direct copy" "$mine" "$raw" "$(ratio "$mine" "$raw")" at-most 1.1
held=$(pick job.cached_bytes <"$DEST.json")
row "full backup: cached pages left behind (MiB)" "$(ratio "$held" 1048576)" 0 "$(ratio "$held" 1048576)" at-most 1

reads=() changed=() seconds=()
for run in $(seq "$RUNS"); do
    "$GANNET" sql "$FILE" --quiet --memory "${FILL_MEMORY}MiB" -c "update t set n = n + 1 where id % 1000 = $run"
    "$GANNET" sql "$FILE" -c "vacuum" --quiet
    seconds+=("$(backup --since latest)")
    reads+=("$(pick job.bytes_read <"$DEST.json")") changed+=($(($(pick manifest.pages <"$DEST.json") * PAGE_SIZE)))
    say "incremental ${seconds[-1]} s: ${reads[-1]} bytes read, ${changed[-1]} of changed pages"
done
a=$(median "${reads[@]}") b=$(median "${changed[@]}")
row "incremental backup: bytes read ÷ bytes of changed pages" "$a" "$b" "$(ratio "$a" "$b")" at-most 1.1
row "incremental backup (s) ÷ full" "$(median "${seconds[@]}")" "$mine" "$(ratio "$(median "${seconds[@]}")" "$mine")" at-most 1
rm -rf "${DEST:?}" "$DEST.json"
