"""Every SQL constant is prepared and planned on the migrated schema: a typo or a missing privilege fails here."""

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec import Struct
from psycopg.errors import InsufficientPrivilege

import quarterdeck
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options
from quarterdeck.db.records import Pages, Records, VersionedRecords, VersionPages
from tests.world import AS_OWNER, app_url

SOURCE = Path(quarterdeck.__file__).parent
STORES = [file for file in sorted(SOURCE.rglob("*store.py")) if file.stem != "blob_store"]
FILES = [
    *STORES,
    SOURCE / "auth" / "last_used.py",
    SOURCE / "events" / "log.py",
    SOURCE / "db" / "migrate.py",
    SOURCE / "db" / "roles.py",
    SOURCE / "db" / "table_data.py",
]
# Also used by the processes of the service, for their readiness check.
ALSO_FOR_SERVICE = {"db/migrate _APPLIED", "db/migrate _KNOWN"}
_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|LOCK|CREATE)\b")
# PostgreSQL prepares only statements that it plans.
_PREPARABLE = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
Connection = psycopg.Connection[tuple[object, ...]]


class Constant(Struct, frozen=True):
    name: str
    text: str

    @property
    def is_for_owner(self) -> bool:
        return self.name.startswith("db/") and self.name not in ALSO_FOR_SERVICE


def constants() -> Iterator[Constant]:
    """The constants of the modules, and the statements of their lists, which are built when the module is loaded."""
    for file in FILES:
        module = importlib.import_module(".".join(file.relative_to(SOURCE.parent).with_suffix("").parts))
        for name, value in vars(module).items():
            # Other names in capitals, such as `_SELECT`, are parts of statements.
            if name.startswith("__") or not re.fullmatch(r"_[A-Z_]+", name) or name == "_SELECT":
                continue
            for key, text in statements_of(value):
                yield Constant(f"{file.parent.name}/{file.stem} {name}{key}", text)
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                (target,) = node.targets
                value = node.value.value
                if isinstance(target, ast.Name) and isinstance(value, str) and _STATEMENT.match(value):
                    assert re.fullmatch(r"_[A-Z_]+", target.id), f"{file}: {target.id}"


def statements_of(value: object) -> Iterator[tuple[str, str]]:
    """With what follows the name of the constant."""
    if isinstance(value, str) and _STATEMENT.match(value):
        yield "", value
    if isinstance(value, Records):
        yield ".get", value.get_query
    if isinstance(value, VersionedRecords):
        yield ".add", value.add_query
        yield ".change", value.change_query
        yield ".lock", value.lock_query
        yield ".is_name_taken", value.name_taken_query
    if isinstance(value, Pages | VersionPages):
        value = value.page_queries
    if isinstance(value, dict):
        for key, text in value.items():
            if isinstance(text, str) and _STATEMENT.match(text):
                yield f"[{key}]", text


ALL = list(constants())


def as_prepared(text: str) -> str:
    """psycopg's placeholders replaced by PostgreSQL's."""
    numbers = itertools.count(1)
    return re.sub(r"%(?:\(\w+\))?[sb]", lambda _: f"${next(numbers)}", text).replace("%%", "%")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """With the role and options of the service."""
    options = connection_options(DatabaseSettings())
    with psycopg.connect(app_url(database_url), autocommit=True, options=options) as connection:
        yield connection


@pytest.fixture
def owner(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        yield connection


def faults(connection: Connection, constants: list[Constant]) -> list[str]:
    """Errors of the statements. They are planned as well: PREPARE alone checks no privilege."""
    found = []
    connection.execute("SET plan_cache_mode = force_generic_plan")
    for number, constant in enumerate(constants):
        statement = as_prepared(constant.text)
        nothing = ", ".join(["NULL"] * statement.count("$"))
        try:
            if _PREPARABLE.match(statement):
                connection.execute(f"PREPARE s{number} AS {statement}".encode())
                connection.execute(f"EXPLAIN EXECUTE s{number}{f'({nothing})' if nothing else ''}".encode())
            else:
                with connection.transaction(force_rollback=True):
                    connection.execute(statement.encode())
        except psycopg.Error as fault:
            found.append(f"{constant.name}: {fault}")
    return found


def test_all_statements_are_found() -> None:
    assert len(ALL) >= 25
    found = dict.fromkeys(("changes/store _PAGES", "api_keys/store _KEYS", "skills/store _VERSIONS"), 0)
    for constant in ALL:
        for name in found:
            found[name] += constant.name.startswith(name)
    assert list(found.values()) == [10, 5, 2]
    assert {constant.name.split(" ")[0] for constant in ALL} == {f"{file.parent.name}/{file.stem}" for file in FILES}


def test_every_statement_can_be_planned(connection: Connection, owner: Connection) -> None:
    assert faults(connection, [constant for constant in ALL if not constant.is_for_owner]) == []
    assert faults(owner, [constant for constant in ALL if constant.is_for_owner]) == []


def test_a_missing_privilege_is_found(connection: Connection, owner: Connection) -> None:
    """A test of the test: of a column, a table and a function."""
    owner.execute("REVOKE UPDATE (revoked_at) ON session_tokens FROM quarterdeck_app")
    owner.execute("REVOKE INSERT ON skills FROM quarterdeck_app")
    owner.execute("REVOKE EXECUTE ON FUNCTION expire_audit_entries FROM quarterdeck_app")
    found = faults(connection, [constant for constant in ALL if not constant.is_for_owner])
    assert sorted(fault.split(":")[0] for fault in found) == [
        "changes/store _EXPIRE",
        "sessions/store _REVOKE_TOKEN",
        "sessions/store _REVOKE_TOKENS",
        "skills/store _SKILLS.add",
    ]
    assert all("permission denied" in fault for fault in found)


def test_submit_inputs_runs_every_statement(
    connection: Connection,
) -> None:
    """PL/pgSQL checks a statement when it first runs it. This call runs all of them: a new run, a steered one, a
    replay, a session token, a file, and every refusal."""
    ids = {name: f"00000000-0000-7000-8000-{number:012d}" for number, name in enumerate("uwksrtenf", 1)}
    connection.execute("INSERT INTO users (id, email) VALUES (%(u)s, 'a@example.com')", ids)
    connection.execute("INSERT INTO workspaces (id, name, owner_id) VALUES (%(w)s, 'w', %(u)s)", ids)
    connection.execute("INSERT INTO members (workspace_id, user_id, role) VALUES (%(w)s, %(u)s, 'owner')", ids)
    connection.execute(
        "INSERT INTO api_keys (id, workspace_id, lineage_id, label, prefix, secret_hash, permissions, created_by)"
        " VALUES (%(k)s, %(w)s, %(k)s, 'l', 'p', decode(repeat('01', 32), 'hex'), '{session.manage}', %(u)s)",
        ids,
    )
    connection.execute(
        "INSERT INTO sessions (id, workspace_id, created_by, sandbox) VALUES (%(s)s, %(w)s, %(u)s, '{}')", ids
    )
    connection.execute("INSERT INTO blobs (sha256, generation, bytes) VALUES (repeat('x', 32)::bytea, %(f)s, 1)", ids)
    connection.execute(
        "INSERT INTO files (id, workspace_id, name, media_type, sha256, bytes, created_by)"
        " VALUES (%(f)s, %(w)s, 'a.txt', 'text/plain', repeat('x', 32)::bytea, 1, %(u)s)",
        ids,
    )
    connection.execute(
        "INSERT INTO session_tokens (id, session_id, api_key_id, created_by, secret_hash, prefix, expires_at)"
        " VALUES (%(t)s, %(s)s, %(k)s, %(u)s, decode(repeat('02', 32), 'hex'), 'p', now() + interval '1 hour')",
        ids,
    )
    verdicts = connection.execute(
        """
        WITH given AS (
            SELECT decode(repeat('01', 32), 'hex') AS h1, decode(repeat('02', 32), 'hex') AS h2,
                   decode(repeat('03', 32), 'hex') AS h3,
                   %(s)s::uuid AS s, %(n)s::uuid AS n, %(w)s::uuid AS w, %(r)s::uuid AS r,
                   jsonb_build_object('file_ids', ARRAY[%(f)s], 'all_files_bytes', 9, 'files', 9) AS known,
                   jsonb_build_object('file_ids', ARRAY[%(n)s]) AS unknown,
                   '{"default": "demo", "providers": ["demo"]}'::jsonb AS batches,
                   '{"default": "demo", "providers": []}'::jsonb AS no_batches
        )
        SELECT verdict FROM given, LATERAL submit_inputs(
            ARRAY[h1, h1, h1, h1, h2, h3, h1, h1, h1, h1],
            ARRAY[s, s, s, s, s, s, n, s, s, s], ARRAY[w, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL],
            ARRAY['a', 'b', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'], ARRAY[n, n, n, n, n, n, n, n, n, n],
            ARRAY[r, n, n, n, n, n, n, n, n, n], ARRAY[NULL, 'k', 'k', 'k', NULL, NULL, NULL, NULL, NULL, NULL],
            ARRAY[h1, h1, h1, h2, h1, h1, h1, h1, h1, h1],
            true, 100, 10000, ARRAY[NULL, NULL, NULL, NULL, NULL, NULL, NULL, known, unknown, NULL], NULL,
            ARRAY[batches, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, no_batches])
        """,
        ids,
    )
    expected = ["accepted", "accepted", "replayed", "conflict", "accepted", "unauthorized", "not_found"]
    expected += ["accepted", "unknown_file", "no_batches"]
    assert [verdict for (verdict,) in verdicts.fetchall()] == expected


def test_attempts_run_every_statement(connection: Connection) -> None:
    """The same for the functions of attempts: a run that begins, stores two steps and is finished."""
    test_submit_inputs_runs_every_statement(connection)
    ((run_id, session_id, workspace_id),) = connection.execute(
        "SELECT id, session_id, workspace_id FROM runs"
    ).fetchall()
    begin = "SELECT verdict FROM begin_attempt(%s, 1, 5, 60, NULL, 1000, 32, '{}', '{}', NULL, NULL, 1)"
    assert connection.execute(begin, (run_id,)).fetchone() == ("begun",)
    collected = "INSERT INTO batch_requests (run_id, step, model, batch_group, body) VALUES (%s, 1, 'demo', '', '{}')"
    connection.execute(collected, (run_id,))
    take = "SELECT model FROM take_model_batches(0, 10, 1000, 60, 10)"
    assert connection.execute(take).fetchall() == [("demo",)]
    record = """
    SELECT record_step(%s, %s, %s, 1, 'demo', 1, 1, 1, 1, 1, '[{"type": "message", "data": {"text": "x"}}]', %s)
    """
    for finish, recorded in ((False, "recorded"), (True, "finished")):
        assert connection.execute(record, (run_id, session_id, workspace_id, finish)).fetchone() == (recorded,)


# Privileges on whole tables, and on columns where the table has none.
_GRANTED = """
SELECT table_name, privilege_type, NULL FROM information_schema.table_privileges
WHERE grantee = 'quarterdeck_app' AND table_schema = 'app'
UNION ALL
SELECT c.table_name, c.privilege_type, c.column_name FROM information_schema.column_privileges c
WHERE c.grantee = 'quarterdeck_app' AND c.table_schema = 'app' AND NOT EXISTS (
    SELECT FROM information_schema.table_privileges t
    WHERE (t.grantee, t.table_schema, t.table_name, t.privilege_type)
        = (c.grantee, c.table_schema, c.table_name, c.privilege_type)
)
ORDER BY 1, 2, 3
"""
# Only functions use them: functions/model_pauses.sql and model_limits.sql, with tests of their own.
_TABLES_OF_FUNCTIONS = ("model_limits", "model_pauses", "model_requests", "model_turns")
_USED_ELSEWHERE = [
    # ask_runs_to_leave(), cancel_run_jobs() and synchronize_worker() use them.
    "UPDATE (ask_at) ON app.run_jobs",
    "UPDATE (cancelled) ON app.run_jobs",
    "UPDATE (leaving) ON app.run_jobs",
    "UPDATE (taken) ON app.run_jobs",
    "UPDATE (worker_id) ON app.run_jobs",
    # expire_log() uses it.
    "DELETE ON app.runs",
    # expire_log() uses them.
    "UPDATE (expired_cache_write_tokens) ON app.sessions",
    "UPDATE (expired_cached_tokens) ON app.sessions",
    "UPDATE (expired_cost_usd) ON app.sessions",
    "UPDATE (expired_input_tokens) ON app.sessions",
    "UPDATE (expired_output_tokens) ON app.sessions",
    # synchronize_worker() uses it.
    "INSERT (id) ON app.workers",
    # next_run_job() uses them when runs of two workspaces wait.
    "INSERT ON app.workspace_turns",
    "SELECT ON app.workspace_turns",
    "UPDATE (last_turn_at) ON app.workspace_turns",
]


@pytest.mark.long
def test_every_privilege_is_needed(connection: Connection, owner: Connection) -> None:
    """Each one is revoked by itself; then a statement must fail, or a call of a function."""
    connection.prepare_threshold = None
    statements = [constant for constant in ALL if not constant.is_for_owner]
    needless = []
    for table, kind, column in owner.execute(_GRANTED).fetchall():
        if table in _TABLES_OF_FUNCTIONS:
            continue
        privilege = f"{kind}{f' ({column})' if column else ''} ON app.{table}"
        owner.execute(f"REVOKE {privilege} FROM quarterdeck_app".encode())
        if not faults(connection, [one for one in statements if str(table) in one.text]):
            try:
                with connection.transaction(force_rollback=True):
                    test_attempts_run_every_statement(connection)
                needless.append(privilege)
            except InsufficientPrivilege:
                pass
        connection.execute("DEALLOCATE ALL")
        owner.execute(f"GRANT {privilege} TO quarterdeck_app".encode())
    assert needless == _USED_ELSEWHERE
