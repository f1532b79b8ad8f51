#!/bin/sh
# PostgreSQL's image runs this once, on an empty volume: a role and a database for each service.
set -eu

create() {
    psql --username postgres --dbname postgres --set ON_ERROR_STOP=1 --set role="$1" --set password="$2" <<'SQL'
CREATE ROLE :"role" LOGIN PASSWORD :'password';
CREATE DATABASE :"role" OWNER :"role";
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
SQL
}

create prefect "$PREFECT_DATABASE_PASSWORD"
create mlflow "$MLFLOW_DATABASE_PASSWORD"
