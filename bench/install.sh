#!/bin/sh
# wrk as Debian packages it. Everything else that the bench needs comes with the wheels.
set -eu
command -v wrk >/dev/null 2>&1 && exit 0
missing() {
    echo "The bench needs wrk (https://github.com/wg/wrk), and $1. Install it and try again." >&2
    exit 1
}
[ "$(id -u)" = 0 ] || missing "only root can install packages here"
command -v apt-get >/dev/null 2>&1 || missing "only Debian's packages are installed from here"
echo "Installing for the bench: wrk"
apt-get update -qq || missing "the lists of packages cannot be had"
DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends wrk >/dev/null ||
    missing "apt-get cannot install it"
