#!/usr/bin/env bash
# Copies runs of the laboratory to docs/results/EXPERIMENT-SIZE, with the device's profiles behind it where those are others than as-is, without their databases and without where they lay on this machine:
#   bench/publish.sh RUN...
set -euo pipefail
cd "$(dirname "$0")/.."
for run in "$@"; do
  run=$(realpath "$run")
  name=$(python3 -c 'import json, sys; order = json.load(open(sys.argv[1]))["order"]; print("-".join([order["experiment"], order["size"], *(p for p in order.get("profiles", []) if p != "as-is")]))' "$run/run.json")
  to=docs/results/$name
  rm -rf "$to"
  mkdir -p "$to"
  cp -r "$run"/run.json "$run"/steps.jsonl "$run"/report.html "$run"/summary.md "$run"/figures "$to"
  grep -rlF "$run" "$to" | xargs -r sed -i "s#$run#$name#g"
  echo "$to"
done
