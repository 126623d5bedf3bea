"""The shape of the source, checked on its text: who may import whom, where SQL and HTTP may be known, how long things
may get. A new arrow is drawn here first, with its reason."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import quarterdeck

SOURCE = Path(quarterdeck.__file__).parent
FEATURES = {
    "access",
    "activity",
    "api_keys",
    "audit",
    "events",
    "idempotency",
    "rate_limits",
    "runs",
    "session_tokens",
    "sessions",
    "skills",
    "webhooks",
    "workspaces",
}
# Known to everybody, knowing nobody but each other.
GROUND = {"errors", "etags", "ids", "pages", "settings", "story", "texts"}
# `make client` writes these.
GENERATED = {"client/methods.py", "client/async_methods.py", "client/operations.py"}
MOST_FILE_LINES = 450
MOST_FUNCTION_LINES = 70

Tree = dict[str, ast.Module]


@cache
def source() -> Tree:
    """Every module by its dotted name below the package."""
    return {
        ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): ast.parse(file.read_text())
        for file in sorted(SOURCE.rglob("*.py"))
    }


def imports(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Our own modules that one imports, by their dotted names; other packages as `!name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"!{alias.name.partition('.')[0]}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            package, _, below = node.module.partition(".")
            if package != "quarterdeck":
                yield f"!{package}"
                continue
            for alias in node.names:
                inner = f"{below}.{alias.name}".lstrip(".")
                yield inner if inner in known else below


def arrows(tree: Tree) -> list[tuple[str, str]]:
    known = set(tree)
    return [(name, target) for name, module in tree.items() for target in imports(module, known)]


def room(name: str) -> str:
    return name.partition(".")[0]


def part(name: str) -> str:
    """`lifecycle_store` is a store; a room may have one for each of its ideas."""
    inner = name.partition(".")[2]
    return "store" if inner.endswith("_store") and inner != "bundle_store" else inner


# --- rules: each takes the source and names what breaks it ---


def ground_and_database_know_no_feature(tree: Tree) -> list[str]:
    allowed = GROUND | {"db"}
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if room(name) in allowed and not target.startswith("!") and room(target) not in allowed
    ]


def the_ground_does_not_know_the_database(tree: Tree) -> list[str]:
    return [f"{name} → {target}" for name, target in arrows(tree) if room(name) in GROUND and room(target) == "db"]


def a_model_knows_only_models(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if part(name) == "model" and not target.startswith("!") and part(target) != "model" and target not in GROUND
    ]


def a_model_needs_the_standard_library_and_msgspec_only(tree: Tree) -> list[str]:
    allowed = {"!msgspec", "!datetime", "!enum", "!typing", "!uuid", "!collections", "!unicodedata"}
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if part(name) == "model" and target.startswith("!") and target not in allowed
    ]


def rules_are_pure(tree: Tree) -> list[str]:
    found = [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if part(name) == "rules" and not target.startswith("!") and part(target) not in ("model", "rules")
        if target not in GROUND
    ]
    for name, module in tree.items():
        if part(name) == "rules":
            waits = (ast.AsyncFunctionDef, ast.Await, ast.With, ast.AsyncWith)
            found += [f"{name}:{node.lineno}" for node in ast.walk(module) if isinstance(node, waits)]
    return found


def a_store_knows_models_and_the_database(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if part(name) == "store" and not target.startswith("!")
        if part(target) != "model" and target not in GROUND and room(target) != "db"
    ]


def a_store_opens_no_transaction(tree: Tree) -> list[str]:
    return [
        f"{name}:{node.lineno}"
        for name, module in tree.items()
        for node in ast.walk(module)
        if part(name) == "store" and isinstance(node, ast.Attribute) and node.attr in ("transaction", "commit")
    ]


def a_store_is_its_features_own(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}" for name, target in arrows(tree) if part(target) == "store" and room(target) != room(name)
    ]


def services_do_not_know_http(tree: Tree) -> list[str]:
    """Only a feature's `http.py`, the composition root, what carries it and `http/` itself."""
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if (room(target) == "http" or part(target) == "http" or target == "!starlette")
        and room(name) not in ("http", "app", "wire")
        and name != "processes.api_server"
        and part(name) != "http"
    ]


def the_wire_knows_the_ground_only(tree: Tree) -> list[str]:
    """It carries requests, and has no idea what they are about."""
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if room(name) == "wire" and not target.startswith("!") and room(target) not in GROUND | {"wire"}
    ]


def http_goes_through_services(tree: Tree) -> list[str]:
    allowed = {"model", "service"}
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if part(name) == "http" and room(target) in FEATURES and part(target) not in allowed
    ]


def only_http_knows_status_codes(tree: Tree) -> list[str]:
    """And the client, which reads what it wrote."""
    codes = {400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 426, 429, 503}
    return [
        f"{name}:{node.lineno} {node.value}"
        for name, module in tree.items()
        for node in ast.walk(module)
        if room(name) not in ("http", "client", "wire")
        and isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value in codes
    ]


def may_hold_sql(name: str) -> bool:
    # The last three are each one idea with its one statement or two, which no store of a feature owns.
    return part(name) == "store" or room(name) == "db" or name in ("access.last_used", "events.log", "events.signals")


def only_stores_and_the_database_hold_sql(tree: Tree) -> list[str]:
    sql = re.compile(r"\b(SELECT\s.*\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b", re.DOTALL)
    found = []
    for name, module in tree.items():
        if may_hold_sql(name):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and sql.search(node.value):
                found.append(f"{name}:{node.lineno}")
            if isinstance(node, ast.Attribute) and node.attr in ("execute", "executemany", "cursor", "copy"):
                found.append(f"{name}:{node.lineno} .{node.attr}")
    return found


def sql_is_not_put_together(tree: Tree) -> list[str]:
    """No f-string, `+`, `%` or `format` reaches `execute`: what is sent is a constant that was prepared by a test."""
    return [
        f"{name}:{node.lineno}"
        for name, module in tree.items()
        for node in ast.walk(module)
        if may_hold_sql(name) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "execute" and isinstance(node.args[0], (ast.JoinedStr, ast.BinOp))
    ]


def processes_and_commands_are_known_to_commands_only(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if room(target) in ("cli", "processes", "app") and room(name) not in ("cli", "processes", "__main__")
    ]


def the_client_knows_models_and_the_ground(tree: Tree) -> list[str]:
    """It is used where no server is: of other packages it needs httpx and msgspec."""
    allowed = {"!httpx", "!msgspec"} | {f"!{name}" for name in sys.stdlib_module_names}
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if room(name) == "client"
        if (target not in allowed if target.startswith("!") else room(target) != "client" and not _is_base(target))
    ]


def _is_base(target: str) -> bool:
    return part(target) == "model" or target in GROUND


def one_module_knows_httpx_and_asyncio(tree: Tree) -> list[str]:
    """Each takes longer to import than the rest of the client. Type checkers may know them everywhere."""
    return [
        f"{name}:{node.lineno}"
        for name, module in tree.items()
        if room(name) == "client" and name != "client.wire"
        for node in module.body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and {"httpx", "asyncio"} & set(ast.unparse(node).split())
    ]


def commands_for_users_know_the_client_only(tree: Tree) -> list[str]:
    """They run where no server is. The lint reads bundles by the server's own rules."""
    operators = {"cli.admin", "cli.database", "cli.faults", "cli.main", "cli.serving"}
    return [
        f"{name} → {target}"
        for name, target in arrows(tree)
        if room(name) == "cli" and name not in operators and not target.startswith("!")
        if room(target) not in ("cli", "client") and not _is_base(target)
        if (name, room(target)) != ("cli.linting", "skills")
    ]


def files_stay_short(tree: Tree) -> list[str]:
    """Those that people write."""
    return [
        f"{file.relative_to(SOURCE)}: {lines}"
        for file in sorted(SOURCE.rglob("*.py"))
        if (lines := len(file.read_text().splitlines())) > MOST_FILE_LINES
        if file.relative_to(SOURCE).as_posix() not in GENERATED
    ]


def functions_stay_short(tree: Tree) -> list[str]:
    return [
        f"{name}.{node.name}: {lines}"
        for name, module in tree.items()
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_FUNCTION_LINES
    ]


def every_module_says_what_it_holds(tree: Tree) -> list[str]:
    found = []
    for name, module in tree.items():
        words = ast.get_docstring(module)
        if module.body and (words is None or len(words.splitlines()) > 8):
            found.append(name)
    return found


RULES: list[Callable[[Tree], list[str]]] = [
    ground_and_database_know_no_feature,
    the_ground_does_not_know_the_database,
    a_model_knows_only_models,
    a_model_needs_the_standard_library_and_msgspec_only,
    rules_are_pure,
    a_store_knows_models_and_the_database,
    a_store_opens_no_transaction,
    a_store_is_its_features_own,
    services_do_not_know_http,
    the_wire_knows_the_ground_only,
    http_goes_through_services,
    only_http_knows_status_codes,
    only_stores_and_the_database_hold_sql,
    sql_is_not_put_together,
    processes_and_commands_are_known_to_commands_only,
    the_client_knows_models_and_the_ground,
    one_module_knows_httpx_and_asyncio,
    commands_for_users_know_the_client_only,
    files_stay_short,
    functions_stay_short,
    every_module_says_what_it_holds,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps(rule: Callable[[Tree], list[str]]) -> None:
    assert rule(source()) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (ground_and_database_know_no_feature, "db.pool", "from quarterdeck.runs.model import Outcome"),
        (the_ground_does_not_know_the_database, "ids", "from quarterdeck.db import arrays"),
        (a_model_knows_only_models, "runs.model", "from quarterdeck.runs import service"),
        (a_model_needs_the_standard_library_and_msgspec_only, "runs.model", "import psycopg"),
        (rules_are_pure, "runs.rules", "from quarterdeck.db.database import Connection"),
        (rules_are_pure, "runs.rules", "async def decide() -> None: ..."),
        (a_store_knows_models_and_the_database, "runs.store", "from quarterdeck.runs import service"),
        (a_store_opens_no_transaction, "runs.store", "connection.transaction()"),
        (a_store_is_its_features_own, "runs.service", "from quarterdeck.sessions import store"),
        (a_store_is_its_features_own, "runs.service", "from quarterdeck.sessions.store import add"),
        (services_do_not_know_http, "runs.service", "from starlette.responses import Response"),
        (services_do_not_know_http, "runs.service", "from quarterdeck.http.envelope import STATUS"),
        (services_do_not_know_http, "runs.service", "from quarterdeck.sessions import http"),
        (http_goes_through_services, "runs.http", "from quarterdeck.runs import store"),
        (only_http_knows_status_codes, "runs.service", "status = 409"),
        (only_stores_and_the_database_hold_sql, "runs.service", "QUERY = 'SELECT id FROM runs'"),
        (only_stores_and_the_database_hold_sql, "runs.service", "connection.execute(QUERY)"),
        (sql_is_not_put_together, "runs.store", "connection.execute(f'SELECT {x}')"),
        (sql_is_not_put_together, "runs.store", "connection.execute('SELECT ' + x)"),
        (the_wire_knows_the_ground_only, "wire.server", "from quarterdeck.http.edge import Edge"),
        (processes_and_commands_are_known_to_commands_only, "runs.service", "from quarterdeck.app import load_app"),
        (the_client_knows_models_and_the_ground, "client.requests", "from quarterdeck.http.operation import Operation"),
        (the_client_knows_models_and_the_ground, "client.requests", "from quarterdeck.skills import archive"),
        (commands_for_users_know_the_client_only, "cli.keys", "from quarterdeck.workspaces import service"),
        (the_client_knows_models_and_the_ground, "client.requests", "import psycopg"),
        (one_module_knows_httpx_and_asyncio, "client.requests", "import httpx"),
        (functions_stay_short, "runs.service", "def long() -> None:\n" + "    x = 1\n" * 70),
        (every_module_says_what_it_holds, "runs.service", "x = 1"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_each_rule_sees_what_breaks_it(rule: Callable[[Tree], list[str]], name: str, text: str) -> None:
    planted = source() | {name: ast.parse(text)}
    assert len(rule(planted)) > 0
