#!/bin/sh
# Chromium as Debian packages it, and axe-core from npm. Where they cannot be installed the tests of the console say that
# they are skipped, unless QUARTERDECK_TEST_BROWSER=required.
set -eu
skipped() {
    echo "The tests of the console will be skipped: $1."
    exit 0
}
cd "$(dirname "$0")"
missing="chromium"
for name in ${QUARTERDECK_TEST_CHROMIUM:-} chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && missing=""
done
command -v npm >/dev/null 2>&1 || missing="$missing npm"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests of the console: $missing"
    apt-get update -qq || skipped "the lists of packages cannot be had"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $missing >/dev/null ||
        skipped "$missing cannot be installed"
elif [ -n "$missing" ]; then
    skipped "they need $missing, and only Debian's root installs packages here"
fi
cmp -s package-lock.json node_modules/.installed || {
    npm ci --silent --no-audit --no-fund || skipped "npm cannot fetch axe-core"
    cp package-lock.json node_modules/.installed
}
