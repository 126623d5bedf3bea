#!/bin/sh
# ESLint and the TypeScript compiler for the console's JavaScript. Without npm they are skipped, except in CI.
set -eu
cd "$(dirname "$0")/../../.."
here=tests/console/lint
tools=$here/node_modules/.bin

if ! command -v npm >/dev/null 2>&1; then
    echo "The console's JavaScript is not checked: npm is not installed."
    [ -z "${CI:-}" ] && [ "${QUARTERDECK_TEST_BROWSER:-}" != required ]
    exit
fi
cmp -s $here/package-lock.json $here/node_modules/.installed || {
    npm ci --prefix $here --silent --no-audit --no-fund
    cp $here/package-lock.json $here/node_modules/.installed
}

$tools/eslint --ignore-pattern "**/vendor/" --config $here/eslint.config.js --max-warnings 0 src/quarterdeck/console src/quarterdeck/api_reference
$tools/tsc --project $here --pretty false
