# Servers to be compared: Gannet's and PostgreSQL 15's, each on a Unix socket of its own and in a memory cgroup of its own; and a
# limit of requests to the device. Sourced after lib.sh, not run. Whatever was started is ended, and the limit lifted, when the
# script ends.
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
gannet_pid='' pg_pid='' throttled=0

as_postgres() { # PostgreSQL refuses to run as root
    if [ "$(id -u)" = 0 ]; then
        cd / && exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
    fi
    exec "$@"
}

# group NAME: makes a memory cgroup (v1) and gives its folder; nothing where that is not possible.
group() {
    local folder=/sys/fs/cgroup/memory/gannet-bench-$$-$1
    mkdir "$folder" 2>/dev/null && echo "$folder"
}

# enter NAME MiB: puts this shell into a memory cgroup of that limit; 0: no limit.
enter() {
    local folder
    if [ "$2" != 0 ] && folder=$(group "$1"); then
        echo $(($2 << 20)) >"$folder/memory.limit_in_bytes"
        echo "$BASHPID" >"$folder/cgroup.procs"
    elif [ "$2" != 0 ]; then
        say "no memory cgroup for $1: it runs without"
    fi
}

# throttle IOPS: limits reads, and writes, of the disk under BENCH_DIR to so many requests a second each, whoever makes them;
# 0: no limit. In cgroup v1 what the kernel's flusher writes for a program is charged to the root group: a limit of
# any other group would hold those who write themselves and let go those who leave it to the kernel.
throttle() {
    local kind file
    for kind in read write; do
        file=/sys/fs/cgroup/blkio/blkio.throttle.${kind}_iops_device
        if [ -w "$file" ] && echo "$(device_of "$BENCH_DIR") $1" >"$file"; then
            throttled=$1
        elif [ "$1" != 0 ]; then
            say "cannot limit the device: no blkio cgroup (v1) that may be written"
            exit 1
        fi
    done
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

# start_gannet FILE BUDGET-MiB LIMIT-MiB OPTION...: options as for `gannet serve`.
start_gannet() {
    local file=$1 budget=$2 limit=$3
    shift 3
    (enter gannet "$limit" && exec "$GANNET" serve "$file" --memory "${budget}MiB" --listen none --socket "$SOCKETS" --port 5433 "$@") \
        >"$SOCKETS/gannet.log" 2>&1 &
    gannet_pid=$!
    ready "$SOCKETS/.s.PGSQL.5433" "$SOCKETS/gannet.log"
}

# end SIGNAL PID: ends a server and waits for it; one that has not ended after two minutes is killed.
end() {
    [ -n "$2" ] && kill "-$1" "$2" 2>/dev/null || return 0
    for _ in $(seq 1200); do
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$2" 2>/dev/null || true
    wait "$2" 2>/dev/null || true
}

stop_gannet() {
    end TERM "$gannet_pid"
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

# uncache: drops PostgreSQL's files from the OS cache. Pages that are cached already are charged to whoever read them first, so
# that a memory cgroup would not keep its servers from using them.
uncache() {
    sync
    python3 - "$PG_DIR" <<'END'
import os, sys
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        try:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
        except OSError:
            continue
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
END
}

# start_postgres LIMIT-MiB SETTING...: full durability; settings as for `postgres -c`.
start_postgres() {
    local limit=$1 setting
    local -a settings=()
    shift
    for setting in fsync=on synchronous_commit=on full_page_writes=on listen_addresses= unix_socket_permissions=0777 \
        unix_socket_directories="$PG_DIR" port=5434 max_wal_size=8GB checkpoint_timeout=5min "$@"; do
        settings+=(-c "$setting")
    done
    [ "$limit" = 0 ] || uncache
    (enter postgres "$limit" && as_postgres "$PG_BIN/postgres" -D "$PG_DIR" "${settings[@]}") \
        >"$SOCKETS/postgres.log" 2>&1 &
    pg_pid=$!
    ready "$PG_DIR/.s.PGSQL.5434" "$SOCKETS/postgres.log"
}

stop_postgres() {
    end INT "$pg_pid"
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
    for folder in /sys/fs/cgroup/memory/gannet-bench-$$-*; do
        [ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || true
    done
}

end_servers() {
    [ "$throttled" = 0 ] || throttle 0
    stop_gannet
    stop_postgres
    sleep 0.2
    ungroup
    rm -rf "$SOCKETS"
}
trap end_servers EXIT
trap 'exit 130' INT TERM

# cached FILE...: MiB of files that the OS holds in its cache.
# Alarms, by which a doctor ends with another status, are none of ours.
cached() { ("$GANNET" doctor "$1" --time 0s --json || true) | python3 -c '
import json, sys
def find(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "cached_bytes": yield inner
            else: yield from find(inner)
    elif isinstance(value, list):
        for inner in value: yield from find(inner)
print(round(max(find(json.load(sys.stdin)), default=0) / 1048576, 2))'; }
