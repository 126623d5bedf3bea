#!/bin/sh
# Run once by the image of PostgreSQL, in a new database: the login of API and workers, which owns nothing.
set -eu
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --set=password="$APP_PASSWORD" <<'SQL'
CREATE ROLE quarterdeck_app NOLOGIN;
CREATE ROLE quarterdeck LOGIN PASSWORD :'password';
GRANT quarterdeck_app TO quarterdeck;
SQL
