#!/usr/bin/env bash
# What a device itself does to small reads while somebody reads, or reads and writes, at a steady rate: no database is in this. How much a
# job can ask of a device before users feel it more than they should is decided here.
#
#   users     $READERS threads of fio, $READS reads of 8 KiB a second together (a Poisson process), anywhere in a file of 3 GiB, direct
#   jobs      one thread that reads, and where it says so another one that writes, $RATE MB/s each, direct, one request at a time
#   figures   how long a small read takes, mean, in µs: beside the job, without it, and the ratio; medians of $RUNS, taken in turns
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need fio "apt-get install fio"
READERS=${READERS:-8} READS=${READS:-8000} RATE=${RATE:-400} EACH=5
[ "${QUICK:-0}" = 1 ] && EACH=2
FOLDER=$BENCH_DIR/beside
mkdir -p "$FOLDER"
trap 'rm -rf "$FOLDER"' EXIT
for name in read written; do
    fio --name=fill --filename="$FOLDER/$name" --size=3g --rw=write --bs=1m --direct=1 --end_fsync=1 >/dev/null
done
beside() { # beside [JOB'S OPTIONS...]: mean of a small read, in µs
    fio --output-format=json --direct=1 --time_based --runtime="$EACH" --ramp_time=1 --size=3g --thread \
        --name=users --filename="$FOLDER/read" --rw=randread --bs=8k --ioengine=psync --numjobs="$READERS" \
        --rate_iops=$((READS / READERS)) --rate_process=poisson "$@" 2>/dev/null |
        python3 -c 'import json, sys
users = [job["read"]["clat_ns"] for job in json.load(sys.stdin)["jobs"] if job["jobname"] == "users"]
print(round(sum(job["mean"] * job["N"] for job in users) / sum(job["N"] for job in users) / 1e3, 1))'
}
job() { # job NAME FILE RW BLOCK: fio's options for one
    echo "--name=$1 --new_group --filename=$FOLDER/$2 --rw=$3 --bs=$4 --ioengine=psync --numjobs=1 --rate=${RATE}000000,${RATE}000000"
}
header
for block in 64k 128k 256k 512k; do
    for kind in reads "reads and writes"; do
        options=$(job reader read read $block)
        [ "$kind" = reads ] || options+=" $(job writer written write $block)"
        with=() without=()
        for _ in $(seq "$RUNS"); do
            without+=("$(beside)")
            # shellcheck disable=SC2086
            with+=("$(beside $options)")
        done
        echo "{\"beside\": \"$kind\", \"block\": \"$block\", \"rate_mb\": $RATE, \"mean_us\": [$(paste -sd, <(printf '%s\n' "${with[@]}"))], \"alone_us\": [$(paste -sd, <(printf '%s\n' "${without[@]}"))]}" | keep beside >/dev/null
        echo "| a read of 8 KiB beside $RATE MB/s of $kind by $block, µs | $(median "${with[@]}") | alone: $(median "${without[@]}") | $(pairs "${with[*]}" "${without[*]}") | | |"
    done
done
