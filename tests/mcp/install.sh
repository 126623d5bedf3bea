#!/bin/sh
# `make mcp-servers`: installs the MCP servers that the tests connect to, from npm. Without npm these tests are skipped,
# except in CI.
set -eu
cd "$(dirname "$0")"
if ! command -v npm >/dev/null 2>&1; then
    echo "The MCP servers of the tests are not installed: npm is missing."
    [ "${QUARTERDECK_TEST_BROWSER:-}" != required ]
    exit
fi
cmp -s package-lock.json node_modules/.installed || {
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.installed
}
