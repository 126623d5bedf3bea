#!/bin/sh
# Stands in for the entrypoint of the image of PostgreSQL: creates the database and runs the scripts at the first start.
set -eu
[ "$(id -u)" != 0 ] || { chown postgres: /var/lib/postgresql; exec runuser -u postgres -- "$0" "$@"; }
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --encoding=UTF8 --locale=C.UTF-8 --auth-host=scram-sha-256 --auth-local=trust
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait -o "-c listen_addresses=''" start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*.sh; do "$script"; done
    pg_ctl --wait stop
fi
exec "$@" -c listen_addresses='*'
