#!/usr/bin/env bash
# Space: how long the file is after 90 % of the rows were deleted and `gannet compact` has run, against the bytes of what is left.
#
#   measured    length of the file; live bytes are keys and values of rows and of index entries that are left, counted (`stat --records`)
#   schema      a table of rows of 200 bytes, keys ascending, with an index on another column
#   deleted     nine rows of ten, each of a page's; all but the last tenth; all but the first tenth
#   page size   8 KiB, direct I/O
#   durability  as always
set -euo pipefail
. "$(dirname "$0")/lib.sh"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
GANNET=$TARGET/release/gannet
if [ "$SIZE" = quick ]; then ROWS=500000; else ROWS=2000000; fi
FILE=$BENCH_DIR/space-$ROWS.gnt
WORK=$BENCH_DIR/space-run.gnt
mkdir -p "$BENCH_DIR"
if [ ! -e "$FILE.complete" ]; then
    say "making $FILE: $ROWS rows"
    rm -rf "$FILE" "$FILE-wal"
    "$GANNET" sql "$FILE" --create --quiet --memory "${FILL_MEMORY}MiB" -c "create table t (id bigint primary key, w bigint, v text)" \
        -c "insert into t select n, n * 2654435761 % 4294967296, repeat('x', 170) from generate_series(1, $ROWS) as n" \
        -c "create index by_w on t (w)"
    "$GANNET" sweep "$FILE" >/dev/null
    touch "$FILE.complete"
fi
live() { # live FILE: bytes of keys and values, by the statistics that count
    "$GANNET" stat "$1" --records --json | python3 -c 'import json,sys
total = 0
for one in json.load(sys.stdin)["statistics"]["objects"]:
    if one["kind"] != "system" and one["contents"]:
        contents = one["contents"]
        total += contents["rows"]["value"] * contents["average_row_bytes"]["value"]
print(round(total))'
}
header
for kind in scattered first last; do
    case $kind in
        scattered) condition="id % 10 <> 0" ;;
        first) condition="id <= $ROWS - $ROWS / 10" ;;
        last) condition="id > $ROWS / 10" ;;
    esac
    copy "$FILE" "$WORK"
    rm -rf "$WORK-wal"
    "$GANNET" sql "$WORK" --quiet --memory "${FILL_MEMORY}MiB" -c "delete from t where $condition"
    before=$(stat -c %s "$WORK")
    within $((MEMORY + 64)) "$GANNET" compact "$WORK" --memory "${MEMORY}MiB" --json >"$WORK.json"
    python3 -c "import json,sys; print(json.dumps(json.load(sys.stdin)))" <"$WORK.json" | keep space >/dev/null
    after=$(stat -c %s "$WORK") bytes=$(live "$WORK")
    say "$kind: $before bytes -> $after, live $bytes"
    row "file after deleting 90 % ($kind) and compact, MiB ÷ live bytes" "$((after >> 20))" "$((bytes >> 20))" "$(ratio "$after" "$bytes")" at-most 1.3
    held=$(pick job.cached_bytes <"$WORK.json")
    row "compact: cached pages of our files (MiB)" "$(ratio "$held" 1048576)" 0 "$(ratio "$held" 1048576)" at-most 1
    "$GANNET" check "$WORK" >/dev/null
done
rm -rf "$WORK" "$WORK-wal" "$WORK.json"
