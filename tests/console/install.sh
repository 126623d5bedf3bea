#!/bin/sh
# `make browser`: installs what the console tests need: Chromium and npm from Debian (as root), axe-core from npm.
set -eu
cd "$(dirname "$0")"
missing="chromium-headless-shell"
for name in ${QUARTERDECK_TEST_CHROMIUM:-} chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && missing=""
done
command -v npm >/dev/null 2>&1 || missing="$missing npm"
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "The console tests need $missing. Install it, or run this as root on Debian." >&2
        exit 1
    fi
    echo "Installing $missing"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $missing >/dev/null
fi
cmp -s package-lock.json node_modules/.installed || {
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.installed
}
