#!/usr/bin/env bash
# Logical dumps and loads of one row set: Gannet, PostgreSQL 15 and Firebird 3.
#
#   rows        four tables alike: primary key (bigint), four numbers, two texts of 42 and 71 bytes, a timestamp; two secondary indexes
#               each. Gannet makes them; the others are filled from its dump
#   dump        gannet dump (SQL, one file); pg_dump -Fd -j2 -Z0; gbak -b. Synced
#   load        gannet load into a new database; pg_restore -j2 into a new database; gbak -c. Synced
#   cold        nothing of sources is in the OS cache, or in a server's, when a run begins: fadvise, PostgreSQL started anew
#   memory      Gannet: --memory, in a cgroup of 64 MiB more. PostgreSQL: shared_buffers (dump) or maintenance_work_mem (load) of the
#               same size, in a cgroup of three times that, and wal_level=minimal, by which rows of a new table need no log; its clients,
#               and gbak with its own 64 MiB of cache, have the rest of the machine
#   device      fio, reading one file and writing another at one time, 1 MiB each, direct, synced, in the same run
#   PARTS       which of them ["device gannet postgres firebird"]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/servers.sh"
need fio "apt-get install fio"
need gbak "apt-get install firebird3.0-utils firebird3.0-server-core"
(cd "$ROOT" && cargo build --quiet --release -p gannet)
if [ "${QUICK:-0}" = 1 ]; then TABLE_ROWS=250000 MIB=64; else TABLE_ROWS=1250000 MIB=256; fi
TABLES=(orders_1 orders_2 orders_3 orders_4)
PARTS=${PARTS:-device gannet postgres firebird}
wants() { [[ " $PARTS " == *" $1 "* ]]; }
WORK=$BENCH_DIR/dump
FILE=$BENCH_DIR/dump-rows-$TABLE_ROWS.gnt
SQL=$WORK/rows.sql
FDB=$WORK/rows.fdb
mkdir -p "$WORK"

now() { echo "${EPOCHREALTIME/,/.}"; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.2f", b - a}'; }
cold() { # cold FILE-OR-FOLDER...: durable, and no longer in the OS cache
    sync
    find "$@" -type f -exec dd if={} iflag=nocache count=0 status=none \;
}
timed() { # timed WHAT COMMAND...: seconds, kept as a raw result too
    local what=$1 begun seconds
    shift
    begun=$(now)
    "$@" >"$SOCKETS/out" 2>&1 || { say "$what failed: $(tail -3 "$SOCKETS/out")"; exit 1; }
    seconds=$(since "$begun")
    echo "{\"what\": \"$what\", \"seconds\": $seconds, \"rows\": $((4 * TABLE_ROWS)), \"commit\": \"$COMMIT\"}" | keep dump >/dev/null
    echo "$seconds"
}

# --- the rows ---
make_rows() {
    local number table
    rm -rf "$FILE" "$FILE-wal"
    for number in 0 1 2 3; do
        table=${TABLES[number]}
        "$GANNET" sql "$FILE" --create --quiet --memory 1GiB \
            -c "create table $table (id bigint primary key, customer integer not null, product integer not null, quantity smallint not null,
                amount numeric(12,2) not null, name varchar(60) not null, note varchar(120), created timestamp not null)" \
            -c "insert into $table select n, (n::bigint * 7919) % 1000003, n % 5003, n % 100, (n % 1000000) / 100.0, 'customer ' || md5(n::text),
                'note ' || md5((n + 1)::text) || ' ' || md5((n + 2)::text),
                ('2024-01-' || lpad((1 + n % 28)::text, 2, '0') || ' ' || lpad((n % 24)::text, 2, '0') || ':' || lpad((n / 7 % 60)::text, 2, '0')
                || ':' || lpad((n / 11 % 60)::text, 2, '0'))::timestamp
                from generate_series($((number * TABLE_ROWS + 1)), $(((number + 1) * TABLE_ROWS))) as n" \
            -c "create index ${table}_customer on $table (customer)" -c "create index ${table}_created on $table (created, product)"
    done
    touch "$FILE.complete"
}
[ -e "$FILE.complete" ] || { say "making the rows"; make_rows; }

# --- the device ---
device() { # bytes a second, read and written together
    fio --name=mix --directory="$WORK" --rw=rw --rwmixread=50 --bs=1M --direct=1 --ioengine=libaio --iodepth=8 --size=512M \
        --runtime="$((SECONDS_EACH < 6 ? SECONDS_EACH : 6))" --time_based --end_fsync=1 --output-format=json 2>/dev/null |
        python3 -c 'import json,sys
j = json.load(sys.stdin)["jobs"][0]
print(j["read"]["bw_bytes"] + j["write"]["bw_bytes"])'
    rm -f "$WORK"/mix.*
}

# --- Gannet ---
gannet_dump() {
    rm -f "$SQL" && sync -f "$WORK"
    cold "$FILE" "$FILE-wal"
    timed "gannet dump" within $((MIB + 64)) "$GANNET" dump "$FILE" "$SQL" --memory ${MIB}MiB --json
    cp "$SOCKETS/out" "$WORK/dump.json"
}
gannet_load() {
    rm -rf "$WORK/loaded.gnt" "$WORK/loaded.gnt-wal" && sync -f "$WORK"
    timed "gannet load" within $((MIB + 64)) "$GANNET" load "$SQL" "$WORK/loaded.gnt" --create --memory ${MIB}MiB --json
    cp "$SOCKETS/out" "$WORK/load.json"
}

# --- PostgreSQL ---
postgres_fill() {
    init_postgres
    start_postgres 0 wal_level=minimal max_wal_senders=0
    "$PG_BIN/dropdb" -h "$PG_DIR" -p 5434 -U bench --if-exists rows 2>/dev/null
    "$PG_BIN/createdb" -h "$PG_DIR" -p 5434 -U bench rows
    "$PG_BIN/psql" -h "$PG_DIR" -p 5434 -U bench -q -v ON_ERROR_STOP=1 -f "$SQL" rows >/dev/null
    "$PG_BIN/psql" -h "$PG_DIR" -p 5434 -U bench -q -c "vacuum (freeze, analyze)" -c checkpoint rows
    stop_postgres
}
postgres_dump() {
    rm -rf "$WORK/pg.dump" && sync -f "$WORK"
    start_postgres $((MIB * 3)) shared_buffers=${MIB}MB wal_level=minimal max_wal_senders=0
    timed "pg_dump" "$PG_BIN/pg_dump" -h "$PG_DIR" -p 5434 -U bench -Fd -j2 -Z0 -f "$WORK/pg.dump" rows
    stop_postgres
}
postgres_load() {
    cold "$WORK/pg.dump"
    start_postgres $((MIB * 3)) maintenance_work_mem=${MIB}MB wal_level=minimal max_wal_senders=0
    "$PG_BIN/dropdb" -h "$PG_DIR" -p 5434 -U bench --if-exists loaded 2>/dev/null
    "$PG_BIN/createdb" -h "$PG_DIR" -p 5434 -U bench loaded
    timed "pg_restore" "$PG_BIN/pg_restore" -h "$PG_DIR" -p 5434 -U bench -j2 -d loaded "$WORK/pg.dump"
    "$PG_BIN/dropdb" -h "$PG_DIR" -p 5434 -U bench loaded
    stop_postgres
}

# --- Firebird: embedded, by a root of our own ---
ENGINE=/usr/lib/x86_64-linux-gnu/firebird/3.0
firebird_root() {
    local root=$WORK/firebird part
    if [ ! -e "$root/firebird.conf" ]; then
        mkdir -p "$root"
        for part in "$ENGINE"/*; do ln -sfn "$(readlink -f "$part")" "$root/${part##*/}"; done
        rm -f "$root/firebird.conf"
        printf 'ServerMode = Super\nExternalFileAccess = Full\nDefaultDbCachePages = 8192\n' >"$root/firebird.conf"
    fi
    export FIREBIRD=$root FIREBIRD_LOCK=$root FIREBIRD_TMP=$WORK
}
# Firebird reads files of fixed columns.
firebird_fill() {
    firebird_root
    rm -f "$FDB"
    echo "create database '$FDB' page_size 8192;" | isql-fb -q -bail
    local table
    for table in "${TABLES[@]}"; do
        awk -F'\t' -v start="COPY public.$table " 'index($0, start) == 1 {on = 1; next} on && $0 == "\\." {exit}
            on {printf "%-20s%-11s%-11s%-6s%-14s%-60s%-120s%-24s\n", $1, $2, $3, $4, $5, $6, $7, $8}' "$SQL" >"$WORK/$table.ext"
        isql-fb -q -bail "$FDB" <<END
create table e external file '$WORK/$table.ext' (id char(20), customer char(11), product char(11), quantity char(6), amount char(14), name char(60),
    note char(120), created char(24), eol char(1));
create table $table (id bigint not null primary key, customer integer not null, product integer not null, quantity smallint not null,
    amount numeric(12,2) not null, name varchar(60) not null, note varchar(120), created timestamp not null);
commit;
insert into $table select trim(id), trim(customer), trim(product), trim(quantity), trim(amount), trim(name), trim(note), trim(created) from e;
commit;
create index ${table}_customer on $table (customer);
create index ${table}_created on $table (created, product);
commit;
drop table e;
commit;
END
        rm -f "$WORK/$table.ext"
    done
    [ "$(echo "select count(*) from orders_4;" | isql-fb -q -bail "$FDB" | grep -c "$TABLE_ROWS")" = 1 ] || { say "Firebird has other rows"; exit 1; }
}
synced() { "$@" && sync -f "$WORK"; }
firebird_dump() {
    rm -f "$WORK/rows.fbk" && cold "$FDB"
    timed "gbak -b" synced gbak -b "$FDB" "$WORK/rows.fbk"
}
firebird_load() {
    rm -f "$WORK/loaded.fdb" && cold "$WORK/rows.fbk"
    timed "gbak -c" synced gbak -c "$WORK/rows.fbk" "$WORK/loaded.fdb"
    rm -f "$WORK/loaded.fdb"
}

rates=() dumps=() loads=() moved=()
gannet_parts() {
    for _ in $(seq "$RUNS"); do
        rates+=("$(device)")
        dumps+=("$(gannet_dump)")
        moved+=("$(python3 -c 'import json,sys
j = json.load(open(sys.argv[1]))["job"]
print((j["bytes_read"] + j["bytes_written"]) / float(sys.argv[2]))' "$WORK/dump.json" "${dumps[-1]}")")
        cold "$SQL"
        loads+=("$(gannet_load)")
        say "dump ${dumps[-1]} s: ${moved[-1]%.*} of the device's ${rates[-1]} bytes/s, read and written; load ${loads[-1]} s"
    done
    rm -rf "$WORK/loaded.gnt" "$WORK/loaded.gnt-wal"
}
# rival NAME PREFIX DUMP LOAD: measured against Gannet's
rival() {
    local dump=() load=() a b
    "$2_fill"
    for _ in $(seq "$RUNS"); do
        dump+=("$("$2_dump")")
        load+=("$("$2_load")")
        say "$1: dump ${dump[-1]} s, load ${load[-1]} s"
    done
    a=$(median "${dump[@]}") b=$(median "${dumps[@]}")
    row "dump, s: $1 ÷ Gannet" "$b" "$a" "$(ratio "$a" "$b")" at-least "$3"
    a=$(median "${load[@]}") b=$(median "${loads[@]}")
    row "load with two indexes, s: $1 ÷ Gannet" "$b" "$a" "$(ratio "$a" "$b")" at-least "$4"
}

header
gannet_parts
a=$(median "${moved[@]}") b=$(median "${rates[@]}")
row "dump: bytes read and written a second ÷ the device's, both at one time" "${a%.*}" "${b%.*}" "$(ratio "$a" "$b")" at-least 0.7
if wants postgres; then
    rival "pg_dump -Fd -j2 -Z0, pg_restore -j2" postgres 1.2 2
    rm -rf "$WORK/pg.dump" "${PG_DIR:?}"
fi
if wants firebird; then
    rival "gbak -b, gbak -c" firebird 3 4
    rm -rf "$FDB" "$WORK/rows.fbk" "$WORK/firebird"
fi
rm -rf "${WORK:?}"
