# Servers to be compared: Gannet's and PostgreSQL 15's, each on a Unix socket of its own, in a memory cgroup of its own, and
# on request with a limit of requests to the device. Sourced after lib.sh, not run. Whatever was started is ended when
# the script ends.
#
# Environment:
#   PG_BIN    PostgreSQL's programs [/usr/lib/postgresql/15/bin]
#   PG_DIR    folder for PostgreSQL's data, on the device to be measured; its user must reach it [/var/tmp/gannet-bench-pg]

PG_BIN=${PG_BIN:-/usr/lib/postgresql/15/bin}
PG_DIR=${PG_DIR:-/var/tmp/gannet-bench-pg}
GANNET=$TARGET/release/gannet
SOCKETS=$(mktemp -d)
# Gannet trusts nobody in a folder that others can enter.
chmod 700 "$SOCKETS"
GROUPS_MADE=()
gannet_pid='' pg_pid=''

as_postgres() { # PostgreSQL refuses to run as root
    if [ "$(id -u)" = 0 ]; then
        cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
    fi
    exec "$@"
}

# group CONTROLLER NAME: makes a cgroup (v1) and gives its folder; nothing where that is not possible.
group() {
    local folder=/sys/fs/cgroup/$1/gannet-bench-$$-$2
    mkdir "$folder" 2>/dev/null && echo "$folder"
}

# enter NAME MiB IOPS: puts this shell into groups of these limits; 0: no limit.
enter() {
    local folder device
    if [ "$2" != 0 ] && folder=$(group memory "$1"); then
        echo $(($2 << 20)) >"$folder/memory.limit_in_bytes"
        echo "$BASHPID" >"$folder/cgroup.procs"
    elif [ "$2" != 0 ]; then
        say "no memory cgroup for $1: it runs without"
    fi
    if [ "$3" != 0 ]; then
        device=$(device_of "$BENCH_DIR")
        folder=$(group blkio "$1") || { say "no blkio cgroup: cannot throttle"; exit 1; }
        echo "$device $3" >"$folder/blkio.throttle.read_iops_device"
        echo "$device $3" >"$folder/blkio.throttle.write_iops_device"
        echo "$BASHPID" >"$folder/cgroup.procs"
    fi
}

# The whole disk under a folder, as MAJOR:MINOR.
device_of() {
    local number parent
    number=$(stat -c %d "$1")
    number=$((number >> 8 & 4095)):$(((number & 255) | (number >> 12 & ~255)))
    parent=$(readlink -f "/sys/dev/block/$number/..")
    if [ -e "$parent/dev" ]; then cat "$parent/dev"; else echo "$number"; fi
}

# peak NAME: MiB at most that a server's cgroup had, or nothing.
peak() {
    local file=/sys/fs/cgroup/memory/gannet-bench-$$-$1/memory.max_usage_in_bytes
    [ -r "$file" ] && echo $(($(cat "$file") >> 20))
}

# start_gannet FILE BUDGET-MiB LIMIT-MiB IOPS
start_gannet() {
    (enter gannet "$3" "$4" && exec env -u GANNET_COMMIT "$GANNET" serve "$1" --memory "$2MiB" --listen none --socket "$SOCKETS" --port 5433) \
        >"$SOCKETS/gannet.log" 2>&1 &
    gannet_pid=$!
    ready "$SOCKETS/.s.PGSQL.5433" "$SOCKETS/gannet.log"
}

stop_gannet() {
    [ -z "$gannet_pid" ] || { kill -TERM "$gannet_pid" 2>/dev/null && wait "$gannet_pid"; } || true
    gannet_pid=''
}

# init_postgres: PostgreSQL's cluster, once.
init_postgres() {
    [ -x "$PG_BIN/initdb" ] || { say "$PG_BIN/initdb is missing: apt-get install postgresql-15"; exit 1; }
    [ -e "$PG_DIR/PG_VERSION" ] && return
    rm -rf "${PG_DIR:?}"
    mkdir -p "$PG_DIR"
    [ "$(id -u)" != 0 ] || chown postgres "$PG_DIR"
    (as_postgres "$PG_BIN/initdb" -D "$PG_DIR" -U bench -A trust -E UTF8 --locale=C) >/dev/null
}

# start_postgres LIMIT-MiB IOPS SETTING...: full durability; settings as for `postgres -c`.
start_postgres() {
    local limit=$1 iops=$2 setting
    local -a settings=()
    shift 2
    for setting in fsync=on synchronous_commit=on full_page_writes=on listen_addresses= unix_socket_permissions=0777 \
        unix_socket_directories="$PG_DIR" port=5434 max_wal_size=8GB checkpoint_timeout=5min "$@"; do
        settings+=(-c "$setting")
    done
    (enter postgres "$limit" "$iops" && as_postgres "$PG_BIN/postgres" -D "$PG_DIR" "${settings[@]}") \
        >"$SOCKETS/postgres.log" 2>&1 &
    pg_pid=$!
    ready "$PG_DIR/.s.PGSQL.5434" "$SOCKETS/postgres.log"
}

stop_postgres() {
    [ -z "$pg_pid" ] || { kill -INT "$pg_pid" 2>/dev/null && wait "$pg_pid"; } || true
    pg_pid=''
}

# ready SOCKET LOG: waits until somebody answers.
ready() {
    for _ in $(seq 600); do
        "$PG_BIN/pg_isready" -q -h "$(dirname "$1")" -p "${1##*.}" && return
        sleep 0.1
    done
    say "no answer at $1:"
    tail -5 "$2" >&2
    exit 1
}

ungroup() {
    local folder
    for folder in /sys/fs/cgroup/{memory,blkio}/gannet-bench-$$-*; do
        [ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || true
    done
}

end_servers() {
    stop_gannet
    stop_postgres
    sleep 0.2
    ungroup
    rm -rf "$SOCKETS"
}
trap end_servers EXIT
trap 'exit 130' INT TERM

# cached FILE...: MiB of files that the OS holds in its cache.
cached() { env -u GANNET_COMMIT "$GANNET" doctor "$1" --time 0s --json | python3 -c '
import json, sys
def find(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "cached_bytes": yield inner
            else: yield from find(inner)
    elif isinstance(value, list):
        for inner in value: yield from find(inner)
print(round(max(find(json.load(sys.stdin)), default=0) / 1048576, 2))'; }
