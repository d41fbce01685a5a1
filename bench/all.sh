#!/usr/bin/env bash
# The whole table, as Markdown. See lib.sh for QUICK, RUNS, BENCH_DIR and THREADS.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
header
for line in lookups multiget scan check backup sweep stat space dump beside admin neighbour restart shutdown serial-reads index-order commits updates hot hot-sql pgbench tpcc long-values; do
    "$BENCH/$line.sh" || say "$line.sh failed"
done
