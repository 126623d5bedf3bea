#!/bin/sh
# `make vendor`: copies the libraries of package-lock.json into the console, with their licences. To update one, change its
# version in package.json, run `npm install --package-lock-only` in this folder, then `make vendor`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
vendor=$root/src/quarterdeck/console/vendor
licenses=$root/licenses
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work"
# Compares every package with its hash in package-lock.json.
npm ci --prefix "$work" --silent --no-audit --no-fund --ignore-scripts
modules=$work/node_modules

# The first line names the version and keeps the type checker away; the reference to a source map, which is not copied, is removed.
copy() {
    version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$modules/$1/package.json")
    { echo "// @ts-nocheck $1 $version, copied by \`make vendor\`. Do not edit."; sed '/^\/\/# sourceMappingURL=/d' "$modules/$1/$2"; } >"$vendor/$3"
}

rm -rf "$vendor" "$licenses"
mkdir -p "$vendor" "$licenses"
copy markdown-it dist/browser/markdown-it.esm.min.mjs markdown-it.js
copy dompurify dist/purify.es.mjs dompurify.js
copy @highlightjs/cdn-assets es/highlight.min.js highlight.js

cp "$modules/dompurify/LICENSE" "$licenses/dompurify.txt"
cp "$modules/@highlightjs/cdn-assets/LICENSE" "$licenses/highlight.js.txt"
# The browser build of markdown-it contains these packages.
for name in markdown-it entities linkify-it mdurl punycode.js uc.micro; do
    found=$(find "$modules/$name" -maxdepth 1 -iname 'licen[cs]e*' | head -n 1)
    printf '%s\n\n' "$name"
    cat "$found"
    printf '\n'
done >"$licenses/markdown-it.txt"

cd "$root"
sha256sum src/quarterdeck/console/vendor/* licenses/* >"$here/checksums.txt"
