#!/bin/sh
# `make vendor`: copies the libraries of package-lock.json into the console and the API reference, with their licences. To update
# one, change its version in package.json, run `npm install --package-lock-only` in this folder, then `make vendor`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
console=src/quarterdeck/console/vendor
reference=src/quarterdeck/api_reference/vendor
licenses=licenses
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work"
# Compares every package with its hash in package-lock.json.
npm ci --prefix "$work" --silent --no-audit --no-fund --ignore-scripts
modules=$work/node_modules

version() {
    sed -n 's/^  "version": "\(.*\)",$/\1/p' "$modules/$1/package.json"
}

# The first line names the version and keeps the type checker away; the reference to a source map, which is not copied, is removed.
copy() {
    { echo "// @ts-nocheck $1 $(version "$1"), copied by \`make vendor\`. Do not edit."; sed '/^\/\/# sourceMappingURL=/d' "$modules/$1/$2"; } >"$3"
}

cd "$root"
rm -rf "$console" "$reference" "$licenses"
mkdir -p "$console" "$reference" "$licenses"
copy markdown-it dist/browser/markdown-it.esm.min.mjs "$console/markdown-it.js"
copy dompurify dist/purify.es.mjs "$console/dompurify.js"
copy @highlightjs/cdn-assets es/highlight.min.js "$console/highlight.js"
copy swagger-ui-dist swagger-ui-bundle.js "$reference/swagger-ui.js"
sed 's/\/\*# sourceMappingURL=.*\*\///' "$modules/swagger-ui-dist/swagger-ui.css" >"$reference/swagger-ui.css"

cat "$modules/swagger-ui-dist/LICENSE" "$modules/swagger-ui-dist/NOTICE" "$modules/swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt" \
    >"$licenses/swagger-ui.txt"
cp "$modules/dompurify/LICENSE" "$licenses/dompurify.txt"
cp "$modules/@highlightjs/cdn-assets/LICENSE" "$licenses/highlight.js.txt"
# The browser build of markdown-it contains these packages.
for name in markdown-it entities linkify-it mdurl punycode.js uc.micro; do
    found=$(find "$modules/$name" -maxdepth 1 -iname 'licen[cs]e*' | head -n 1)
    printf '%s\n\n' "$name"
    cat "$found"
    printf '\n'
done >"$licenses/markdown-it.txt"

sha256sum "$console"/* "$reference"/* "$licenses"/* >"$here/checksums.txt"
