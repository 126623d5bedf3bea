"""Rules for the source that import-linter cannot express (its contracts are in pyproject.toml): what models, rules and
stores may use, where SQL and status codes may appear, how long files and functions may be, and names of classes."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import quarterdeck

SOURCE = Path(quarterdeck.__file__).parent
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_DOCSTRING_LINES = 8
# Modules of `cli` for operators, who have the server installed.
OPERATOR_COMMANDS = {
    "cli.admin",
    "cli.database",
    # The errors of a database, imported after one has occurred.
    "cli.errors",
    "cli.main",
    "cli.serve",
}
# Each has one or two statements that belong to no store of a feature.
SQL_OUTSIDE_STORES = {"auth.last_used", "events.log"}

Tree = dict[str, ast.Module]


@cache
def source() -> Tree:
    """Every module by its dotted name below the package."""
    return {
        ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): ast.parse(file.read_text())
        for file in sorted(SOURCE.rglob("*.py"))
    }


@cache
def walked(module: ast.Module) -> list[ast.AST]:
    """Walking takes longer than any rule, and each rule looks at every module."""
    return list(ast.walk(module))


def imports(tree: Tree) -> Iterator[tuple[str, str]]:
    """Pairs of an importing module and a module of ours that it imports."""
    for name, module in tree.items():
        for node in walked(module):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("quarterdeck"):
                base = node.module.removeprefix("quarterdeck").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield name, inner if inner in tree else base


def other_packages(module: ast.Module) -> Iterator[str]:
    for node in walked(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from ({name.partition(".")[0] for name in names} - {"quarterdeck"})


def nodes(tree: Tree) -> Iterator[tuple[str, ast.AST]]:
    return ((name, node) for name, module in tree.items() for node in walked(module))


def package(name: str) -> str:
    return name.rpartition(".")[0]


def top(name: str) -> str:
    return name.partition(".")[0]


def role(name: str) -> str:
    """The last word of the file name without `.py`: `action_store` is a store. `blob_store` holds files, not SQL. The
    configuration of agents and the manifest of a session's files are models that several packages share."""
    if name in ("agents.configuration", "sandbox.manifest"):
        return "model"
    last = name.rpartition(".")[2]
    word = last.rpartition("_")[2]
    return word if word in ("http", "model", "rules", "store") and last != "blob_store" else last


# --- Each rule takes the source and returns what breaks it. ---


def models_import_only_models_and_core(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in imports(tree)
        if role(name) == "model" and role(target) != "model" and top(target) != "core"
    ]


def models_need_only_msgspec(tree: Tree) -> list[str]:
    allowed = {"msgspec", *sys.stdlib_module_names} - {"asyncio"}
    return [
        f"{name} → {target}"
        for name, module in tree.items()
        if role(name) == "model"
        for target in other_packages(module)
        if target not in allowed
    ]


def rules_are_pure(tree: Tree) -> list[str]:
    waits = (ast.AsyncFunctionDef, ast.Await, ast.With, ast.AsyncWith)
    found = [f"{name}:{node.lineno}" for name, node in nodes(tree) if role(name) == "rules" and isinstance(node, waits)]
    return found + [
        f"{name} → {target}"
        for name, target in imports(tree)
        if role(name) == "rules" and role(target) not in ("model", "rules") and top(target) != "core"
    ]


def stores_import_only_models_core_and_db(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in imports(tree)
        if role(name) == "store" and role(target) != "model" and top(target) not in ("core", "db")
    ]


def stores_open_no_transaction(tree: Tree) -> list[str]:
    return [
        f"{name}:{node.lineno}"
        for name, node in nodes(tree)
        if role(name) == "store" and isinstance(node, ast.Attribute) and node.attr in ("transaction", "commit")
    ]


def stores_are_used_in_their_package_only(tree: Tree) -> list[str]:
    return [
        f"{name} → {target}"
        for name, target in imports(tree)
        if role(target) == "store" and package(name) != package(target)
    ]


def handlers_use_no_store(tree: Tree) -> list[str]:
    return [f"{name} → {target}" for name, target in imports(tree) if role(name) == "http" and role(target) == "store"]


def only_http_and_the_client_know_status_codes(tree: Tree) -> list[str]:
    codes = {400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 426, 429, 503}
    return [
        f"{name}:{node.lineno} {node.value}"
        for name, node in nodes(tree)
        if top(name) not in ("http", "api", "client")
        # Numbers of system calls.
        and name != "sandbox.syscall_filter"
        and isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value in codes
    ]


def may_hold_sql(name: str) -> bool:
    return role(name) == "store" or top(name) == "db" or name in SQL_OUTSIDE_STORES


def only_stores_and_db_hold_sql(tree: Tree) -> list[str]:
    sql = re.compile(r"\b(SELECT\s.*\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b", re.DOTALL)
    found = []
    for name, node in nodes(tree):
        if may_hold_sql(name):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and sql.search(node.value):
            found.append(f"{name}:{node.lineno}")
        if isinstance(node, ast.Attribute) and node.attr in ("execute", "executemany", "cursor", "copy"):
            found.append(f"{name}:{node.lineno} .{node.attr}")
    return found


def sql_is_constant(tree: Tree) -> list[str]:
    """`execute` and the functions of `db.records` get no f-string and no concatenation:
    `tests/store/test_sql_prepares.py` prepares the constants."""
    return [
        f"{name}:{node.lineno}"
        for name, node in nodes(tree)
        if may_hold_sql(name) and isinstance(node, ast.Call) and _runs_sql(node.func)
        if any(_is_built_text(argument) for argument in node.args[:3])
    ]


def _is_built_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod)
    return isinstance(node, ast.JoinedStr)


def _runs_sql(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "execute"
    return isinstance(function, ast.Name) and function.id.startswith("fetch_")


def commands_for_users_need_no_server(tree: Tree) -> list[str]:
    """They use the client. Models are records only, and `qd skills lint` applies the bundle rules of `skills`."""
    return [
        f"{name} → {target}"
        for name, target in imports(tree)
        if top(name) == "cli" and name not in OPERATOR_COMMANDS
        if top(target) not in ("cli", "client", "core", "skills") and role(target) != "model"
    ]


def only_the_outbound_client_connects_to_hosts_that_callers_name(tree: Tree) -> list[str]:
    """The clients of HTTP libraries would connect to any address."""
    openers = ("AsyncConnectionPool", "AsyncHTTPConnection", "AsyncHTTPTransport", "AsyncClient")
    return [
        f"{name}:{node.lineno}"
        for name, node in nodes(tree)
        if top(name) in ("connections", "webhooks") and isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in openers
        if "transport" not in [keyword.arg for keyword in node.keywords]
    ]


def files_are_short(tree: Tree) -> list[str]:
    return [
        f"{name}: {lines}"
        for name, module in tree.items()
        if (lines := max((getattr(node, "end_lineno", 0) for node in module.body), default=0)) > MAX_FILE_LINES
        if not is_generated(module)
    ]


def is_generated(module: ast.Module) -> bool:
    return "make client" in (ast.get_docstring(module) or "")


def functions_are_short(tree: Tree) -> list[str]:
    return [
        f"{name}.{node.name}: {lines}"
        for name, node in nodes(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def modules_have_a_short_docstring(tree: Tree) -> list[str]:
    found = {name: ast.get_docstring(module) or "" for name, module in tree.items() if module.body}
    return [name for name, text in found.items() if not 0 < len(text.splitlines()) <= MAX_DOCSTRING_LINES]


def class_names_are_unique(tree: Tree) -> list[str]:
    """Except those of the client, which is a library of its own and has the names of the API."""
    modules: dict[str, list[str]] = {}
    for name, module in tree.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and top(name) != "client":
                modules.setdefault(node.name, []).append(name)
    return [f"{name}: {', '.join(found)}" for name, found in modules.items() if len(found) > 1]


# A rule, and a module that breaks it.
Broken = tuple[Callable[[Tree], list[str]], str, str]
RULES: list[Broken] = [
    (models_import_only_models_and_core, "skills.model", "from quarterdeck.skills import service"),
    (models_need_only_msgspec, "skills.model", "import psycopg"),
    (rules_are_pure, "skills.rules", "from quarterdeck.db.database import Connection"),
    (rules_are_pure, "skills.rules", "async def decide() -> None: ..."),
    (stores_import_only_models_core_and_db, "skills.store", "from quarterdeck.skills import service"),
    (stores_open_no_transaction, "skills.store", "connection.transaction()"),
    (stores_are_used_in_their_package_only, "webhooks.service", "from quarterdeck.skills import store"),
    (stores_are_used_in_their_package_only, "webhooks.service", "from quarterdeck.skills.store import add"),
    (handlers_use_no_store, "skills.http", "from quarterdeck.skills import store"),
    (only_http_and_the_client_know_status_codes, "skills.service", "status = 409"),
    (only_stores_and_db_hold_sql, "skills.service", "QUERY = 'SELECT id FROM runs'"),
    (only_stores_and_db_hold_sql, "skills.service", "connection.execute(QUERY)"),
    (sql_is_constant, "skills.store", "connection.execute(f'SELECT {x}')"),
    (sql_is_constant, "skills.store", "connection.execute('SELECT ' + x)"),
    (sql_is_constant, "skills.store", "fetch_value(connection, f'SELECT {x}')"),
    (commands_for_users_need_no_server, "cli.keys", "from quarterdeck.workspaces import service"),
    (only_the_outbound_client_connects_to_hosts_that_callers_name, "webhooks.sender", "httpx2.AsyncClient()"),
    (files_are_short, "skills.service", "x = 1\n" * (MAX_FILE_LINES + 1)),
    (functions_are_short, "skills.service", "def long() -> None:\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    (modules_have_a_short_docstring, "skills.service", "x = 1"),
    (class_names_are_unique, "skills.service", "class Answer: ..."),
]


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _, _ in RULES), ids=lambda rule: rule.__name__)
def test_source_follows(rule: Callable[[Tree], list[str]]) -> None:
    assert rule(source()) == []


@pytest.mark.long
@pytest.mark.parametrize(("rule", "name", "text"), RULES, ids=lambda value: getattr(value, "__name__", None))
def test_rule_finds_what_breaks_it(rule: Callable[[Tree], list[str]], name: str, text: str) -> None:
    assert rule({**source(), name: ast.parse(text)}) != []
