#!/bin/sh
# `make openid-provider`: installs the OpenID provider that the tests sign in at, from npm. Without npm these tests are skipped,
# except in CI.
set -eu
cd "$(dirname "$0")"
if ! command -v npm >/dev/null 2>&1; then
    echo "The OpenID provider of the tests is not installed: npm is missing."
    [ "${QUARTERDECK_TEST_BROWSER:-}" != required ]
    exit
fi
cmp -s package-lock.json node_modules/.installed || {
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.installed
}
