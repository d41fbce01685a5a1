#!/usr/bin/env bash
# Opens reports of the laboratory in a browser, as people do: no network, no complaint on the console, every figure there. Leaves pictures of each, light and
# dark and as wide as a phone, beside it.
#
#   bench/browser.sh REPORT.html...
set -euo pipefail
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "a browser is missing: apt-get install chromium" >&2; exit 1; }
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
open() { # open OPTION... FILE: what the page became; what the browser says of it on standard error
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" --enable-logging=stderr \
        --proxy-server=127.0.0.1:9 "$@"
}
for report in "$@"; do
    report=$(realpath "$report")
    wanted=$(grep -o '<svg' "$report" | wc -l)
    found=$(open --dump-dom "file://$report" 2>"$profile/said" | grep -o '<svg' | wc -l)
    if grep -E 'CONSOLE' "$profile/said"; then
        echo "$report: the browser complains" >&2
        exit 1
    fi
    if [ "$wanted" = 0 ] || [ "$found" != "$wanted" ]; then
        echo "$report: $found figures of $wanted" >&2
        exit 1
    fi
    for look in light:1:1000 dark:0:1000 phone:1:390; do
        IFS=: read -r name scheme width <<<"$look"
        open --blink-settings=preferredColorScheme="$scheme" --window-size="$width",4000 --screenshot="${report%.html}-$name.png" "file://$report" \
            2>"$profile/said" || { tail -3 "$profile/said" >&2; exit 1; }
    done
    echo "$report: $found figures, no complaint; pictures: ${report%.html}-{light,dark,phone}.png"
done
