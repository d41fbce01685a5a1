# Common to all scripts of this folder: sizes, builds, data, fio, cgroups, medians. Sourced, not run.
#
# Environment:
#   QUICK=1      small sizes and short runs (the whole set in a few minutes); figures are rough
#   RUNS=N       measurements of each kind, taken in turns; the median counts [3]
#   BENCH_DIR    folder for data, on the device to be measured [a folder under cargo's target folder]
#   THREADS=T    threads, and jobs of fio [16]
#
# Every script prints lines of a Markdown table:  | what | measured | against | ratio | wanted | verdict |
# and keeps the raw measurements as JSON, one object a line, under bench/results/.

BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$BENCH")
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
BENCH_DIR=${BENCH_DIR:-$TARGET/bench-data}
BIN=$TARGET/bench-bin
LAB=$TARGET/release/gannet-lab
RESULTS=$BENCH/results
RUNS=${RUNS:-3}
THREADS=${THREADS:-16}
PAGE_SIZE=8192
VALUE_SIZE=192 # with the key of 8 bytes: rows of 200 bytes
GROUP=/sys/fs/cgroup/memory/gannet-bench-$$

if [ "${QUICK:-0}" = 1 ]; then
    SIZE=quick ROWS=2500000 SECONDS_EACH=3 WARM_UP=1
    MEMORY=64 UPDATE_MEMORY=128 FILL_MEMORY=1536 # MiB
else
    SIZE=full ROWS=10000000 SECONDS_EACH=15 WARM_UP=5
    MEMORY=200 UPDATE_MEMORY=512 FILL_MEMORY=6144
fi
RUN=$(date +%Y%m%d-%H%M%S)
# Of what is built here; the laboratory's own measurements say of which commit it was built.
COMMIT=$(git -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown)

say() { echo "$*" >&2; }

need() { # need PROGRAM HOW-TO-GET-IT
    command -v "$1" >/dev/null || { say "$1 is missing: $2"; exit 1; }
}

build() { # build [FEATURES]
    (cd "$ROOT" && cargo build --quiet --release -p gannet-lab ${1:+--features "$1"})
}

# build_c NAME SOURCE LIBRARY HOW-TO-GET-THE-LIBRARY
build_c() {
    need gcc "apt-get install gcc"
    mkdir -p "$BIN"
    if [ ! "$BIN/$1" -nt "$BENCH/$2" ]; then
        gcc -O2 -Wall -Wextra -pthread -o "$BIN/$1" "$BENCH/$2" $3 ||
            { say "cannot build $2: ${4:-}"; exit 1; }
    fi
}

# Runs a command with at most MiB of memory, page cache included. Without a writable cgroup v1 it runs as it is; the
# laboratory's measurements say which it was.
within() { # within MiB COMMAND...
    local limit=$1 status=0
    shift
    if mkdir "$GROUP" 2>/dev/null && echo $((limit << 20)) 2>/dev/null >"$GROUP/memory.limit_in_bytes"; then
        (echo "$BASHPID" >"$GROUP/cgroup.procs" && exec "$@") || status=$?
        # It may take a moment until nobody is in it; what is timed is not to wait for it as a rule.
        rmdir "$GROUP" 2>/dev/null || { sleep 0.1 && rmdir "$GROUP"; } || true
        return $status
    fi
    rmdir "$GROUP" 2>/dev/null || true
    "$@"
}

lab() { # lab MiB WORKLOAD DATA OPTIONS...: runs within MiB + 64, from cold
    local memory=$1 workload=$2 data=$3
    shift 3
    # Nobody is to begin with what was in memory the last time.
    rm -f "$BENCH_DIR/$data/lab.gnt-wal/hot"
    within $((memory + 64)) "$LAB" store "$workload" --dir "$BENCH_DIR/$data" --memory "${memory}MiB" \
        --rows "$ROWS" --value-size $VALUE_SIZE --page-size $PAGE_SIZE "$@"
}

# data NAME ORDER: makes a database once; its name tells what is in it.
data() {
    local name=$1 order=$2 memory=$MEMORY
    [ "$order" = random ] && memory=$FILL_MEMORY
    [ "$order" = sorted ] && memory=256
    if [ ! -e "$BENCH_DIR/$name/complete" ]; then
        say "making $name: $ROWS rows, $order"
        rm -rf "${BENCH_DIR:?}/$name"
        mkdir -p "$BENCH_DIR/$name"
        "$LAB" store load --dir "$BENCH_DIR/$name" --memory "${memory}MiB" --rows "$ROWS" --order "$order" \
            --value-size $VALUE_SIZE --page-size $PAGE_SIZE --wal-limit 4GiB >"$BENCH_DIR/$name/complete.part"
        mv "$BENCH_DIR/$name/complete.part" "$BENCH_DIR/$name/complete"
    fi
}

# copy FROM TO: copies a folder. Nothing of either is in the page cache afterwards, nor to be written behind our back. The copy is read
# through once past that cache: a virtual disk may have one of its host's beneath it, which would else be filled by whoever reads first.
copy() {
    rm -rf "$2"
    cp -a "$1" "$2"
    sync
    find "$1" "$2" -type f -exec dd if={} iflag=nocache count=0 status=none \;
    find "$2" -type f -size +0 -exec dd if={} of=/dev/null iflag=direct bs=1M status=none \;
}

# fio_read FILE RW BLOCK ENGINE JOBS DEPTH: one JSON line with requests and bytes a second.
fio_read() {
    need fio "apt-get install fio"
    fio --name=read --filename="$1" --readonly --rw="$2" --direct=1 --bs="$3" --ioengine="$4" --numjobs="$5" --thread \
        --iodepth="$6" --runtime="$SECONDS_EACH" --time_based --group_reporting --norandommap \
        --output-format=json 2>/dev/null |
        python3 -c 'import json,sys
r = json.load(sys.stdin)["jobs"][0]["read"]
print(json.dumps({"workload": "fio", "per_second": r["iops"], "bytes_per_second": r["bw_bytes"],
                  "options": sys.argv[1:]}))' "$2" "$3" "$4" "jobs=$5" "depth=$6"
}

# keep NAME: copies standard input to the results' file NAME and to standard output.
keep() {
    mkdir -p "$RESULTS"
    tee -a "$RESULTS/$RUN-$SIZE-$1.json"
}

# pick PATH: the value at a dotted path of the JSON on standard input.
pick() {
    python3 -c 'import json,sys
v = json.load(sys.stdin)
for step in sys.argv[1].split("."): v = v[int(step) if step.isdigit() else step]
print(v)' "$1"
}

median() { printf '%s\n' "$@" | sort -g | awk '{v[NR]=$1} END {if (NR % 2) print v[(NR+1)/2]; else printf "%.12g\n", (v[NR/2]+v[NR/2+1])/2}'; }

# pairs A B: of two lists of as many measurements, taken in turns, the median of the ratios of those that were taken together: a
# machine that is slower for some minutes is so for both.
pairs() { paste <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") | awk '{printf "%.4f\n", $2 == 0 ? 0 : $1 / $2}' | sort -g |
    awk '{v[NR]=$1} END {printf "%.2f", NR % 2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", b == 0 ? 0 : a / b}'; }

# row WHAT MEASURED AGAINST RATIO at-least|at-most WANTED
row() {
    local verdict
    verdict=$(awk -v r="$4" -v w="$6" -v k="$5" 'BEGIN {print ((k == "at-least") ? r >= w : r <= w) ? "met" : "missed"}')
    local sign='≥'
    [ "$5" = at-most ] && sign='≤'
    echo "| $1 | $2 | $3 | $4 | $sign $6 | $verdict |"
}

# aftermath WHAT MiB JSON: rows for memory over the budget (the cgroup's peak, or where the measurement ran in none of its
# own, the process's peak) and for cached pages.
aftermath() {
    local peak cached
    peak=$(python3 -c 'import json,sys
memory = json.loads(sys.argv[1])["memory"]
group = memory["cgroup"] or {}
own = (group.get("limit_bytes") or 1 << 62) < 1 << 50
print((group["peak_bytes"] if own else memory["peak_resident_bytes"]) >> 20)' "$3")
    cached=$(pick cached_bytes <<<"$3")
    row "$1: memory peak over the budget (MiB)" "$peak" "$2" "$((peak - $2))" at-most 64
    row "$1: cached pages of our files (MiB)" "$(ratio "$cached" 1048576)" 0 "$(ratio "$cached" 1048576)" at-most 1
}

header() {
    echo "| what | Gannet | against | ratio | wanted | verdict |"
    echo "|---|---|---|---|---|---|"
}
