"""Both clients against the API: what is generated is what is in the files, and it is all of the API."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import Any

import httpx
import pytest
from codegen.client import current

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.api.schema_fields import resolve
from quarterdeck.client import AsyncClient, Client
from tests.world import Server

Json = dict[str, Any]

# Methods that people wrote, on top of the generated ones.
WRITTEN = {"close", "events", "push_skill"}
# What a typed method has no use for: without a body there is nothing to return, and `events` resumes by itself.
NOT_OFFERED = {"If-None-Match", "If-Range", "Range", "Last-Event-ID"}
AS_ARGUMENT = {"Service-Workspace": "workspace_id", "Idempotency-Key": "idempotency_key", "If-Match": "if_match"}


def public(client: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}


def test_files_are_what_the_route_table_gives() -> None:
    for file, text in current().items():
        if file.read_text("utf-8") != text:
            pytest.fail(f"{file.name} is not what the route table gives: run `make client`.", pytrace=False)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    one, other = public(Client), public(AsyncClient)
    assert one.keys() == other.keys()
    for name in one:
        here, there = inspect.signature(one[name]), inspect.signature(other[name])
        assert list(here.parameters.values()) == list(there.parameters.values()), name
        if name == "events" or name.startswith("iter_"):
            assert str(there.return_annotation) == str(here.return_annotation).replace("Iterator", "AsyncIterator")
            continue
        assert here.return_annotation == there.return_annotation, name
        assert inspect.iscoroutinefunction(other[name])
        assert not inspect.iscoroutinefunction(one[name])
    assert inspect.signature(Client).parameters.keys() == inspect.signature(AsyncClient).parameters.keys()


def expected_parameters(document: Json, described: Json) -> tuple[set[str], set[str]]:
    """What a method for this operation takes, by the document alone: all, and those that must be given."""
    given = [resolve(document, each) for each in described["parameters"]]
    given = [each for each in given if each["name"] not in NOT_OFFERED]
    taken = {AS_ARGUMENT.get(name, name) for name in (str(each["name"]) for each in given)}
    required = {each["name"] for each in given if each["required"] and each["in"] != "header"}
    content = described.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        schema = resolve(document, content["application/json"]["schema"])
        fixed = {name for name, each in schema["properties"].items() if len(each.get("enum", ())) == 1}
        taken |= set(schema["properties"]) - fixed
        required |= set(schema.get("required", ())) - fixed
    elif content:
        taken |= {"archive", "progress"}
        required |= {"archive"}
    success = next(answer for status, answer in described["responses"].items() if status.startswith("2"))
    if success.get("content") and "application/json" not in success["content"]:
        taken |= {"to", "progress"}
        required |= {"to"}
    return taken, required


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_operation_of_a_running_server_has_its_method(server: Server, client: type) -> None:
    document = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    methods = public(client)
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    for described in operations:
        name = described["operationId"]
        assert name in methods, f"{client.__name__} has no {name}"
        taken, required = expected_parameters(document, described)
        found = {key: value for key, value in inspect.signature(methods[name]).parameters.items() if key != "self"}
        assert {key.removesuffix("_") for key in found} == {key.removesuffix("_") for key in taken}, name
        assert {key for key, value in found.items() if value.default is value.empty} == required, name
        assert described["summary"] in (inspect.getdoc(methods[name]) or "")
    paged = {each["operationId"] for each in operations if "After" in json.dumps(each["parameters"])}
    log = {operation.name for operation in OPERATIONS if operation.log}
    iterators = {f"iter_{name.removeprefix('list_')}" for name in paged - log}
    assert set(methods) == {each["operationId"] for each in operations} | iterators | WRITTEN


LOADED = """
import json, sys
before = set(sys.modules)
import quarterdeck.client
print(json.dumps(sorted(set(sys.modules) - before)))
quarterdeck.client.Client("https://quarterdeck.example", "qd_test_x").close()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_it_loads_nothing_of_the_server() -> None:
    """Nor httpx and asyncio, which together take longer than all the rest, before the first client is made."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    imported, used = (set(json.loads(line)) for line in done.stdout.splitlines())
    foreign = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    assert foreign <= {"quarterdeck", "msgspec", "typing_extensions"}
    assert not {"asyncio", "ssl", "tarfile", "http", "logging"} & imported
    for loaded in (imported, used):
        ours = {name for name in loaded if name.startswith("quarterdeck.")}
        rooms = {name for name in ours if not name.startswith("quarterdeck.client")}
        ground = r"quarterdeck\.(errors|ids|texts)"
        assert not [name for name in rooms if not re.fullmatch(rf"quarterdeck\.\w+(\.model)?|{ground}", name)]
        assert not {"starlette", "uvloop", "psycopg", "procrastinate", "obstore", "pydantic_ai"} & loaded
    # The names that are promised are there.
    assert all(hasattr(importlib.import_module("quarterdeck.client"), name) for name in ("Client", "AsyncClient"))
