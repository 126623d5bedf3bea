"""The generated files are up to date, and both clients have a method for every operation."""

import inspect
import json
import subprocess
import sys
from typing import Any, get_args

import httpx
import msgspec
import pytest
from codegen.client import BROWSER_OPERATIONS, current
from codegen.sync_text import sync_text

from quarterdeck.api.openapi import example_of
from quarterdeck.api.routes import OPERATIONS
from quarterdeck.client import AsyncClient, Client, models
from tests.contract.openapi_snapshot import resolve
from tests.world import Server

Json = dict[str, Any]

# Methods that are not generated.
WRITTEN = {"close", "events", "push_skill", "upload", "serve_tools"}
# A task is cancelled instead.
SYNC_ONLY = {"serve_tools": ["stop"]}
# Not offered by typed methods: a 304 has no record to return, and `events` resumes by itself.
NOT_OFFERED = {"If-None-Match", "If-Range", "Range", "Last-Event-ID"}
AS_ARGUMENT = {"Service-Workspace": "workspace_id", "Idempotency-Key": "idempotency_key", "If-Match": "if_match"}


def public(client: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}


def test_generated_files_are_up_to_date() -> None:
    for file, text in current().items():
        if file.read_text("utf-8") != text:
            pytest.fail(f"{file.name} is out of date: run `make client`.", pytrace=False)


def test_synchronous_code_is_written_from_asynchronous_code() -> None:
    source = """
import asyncio  # sync:
async def async_items(pages: AsyncPages) -> AsyncIterator[Item]:
    async with aclosing(pages) as found:
        async for page in found:
            yield await page.read("an async function, `await`ed")
            await asyncio.sleep(1)  # sync: time.sleep(1)
    # sync: found.check()
"""
    expected = """

def items(pages: Pages) -> Iterator[Item]:
    with closing(pages) as found:
        for page in found:
            yield page.read("an async function, `await`ed")
            time.sleep(1)
    found.check()
"""
    assert sync_text(source) == expected


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    one, other = public(Client), public(AsyncClient)
    assert one.keys() == other.keys()
    for name in one:
        here, there = inspect.signature(one[name]), inspect.signature(other[name])
        shared = [each for each in here.parameters.values() if each.name not in SYNC_ONLY.get(name, ())]
        assert shared == list(there.parameters.values()), name
        if name.startswith("iter_"):
            assert list(there.parameters) == list(inspect.signature(other[f"list_{name[5:]}"]).parameters)
        if name == "events" or name.startswith("iter_"):
            assert inspect.isasyncgenfunction(other[name])
            assert inspect.isgeneratorfunction(one[name])
            continue
        assert here.return_annotation == there.return_annotation, name
        assert inspect.iscoroutinefunction(other[name])
        assert not inspect.iscoroutinefunction(one[name])
    assert inspect.signature(Client).parameters.keys() == inspect.signature(AsyncClient).parameters.keys()


def actual_parameters(method: Any) -> tuple[set[str], set[str]]:
    """All parameters of a method, those in `**options` included, and the required ones."""
    taken, required = set(), set()
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation)
            taken |= options.__annotations__.keys()
        elif name != "self":
            taken.add(name.removesuffix("_"))
            required |= {name} if parameter.default is parameter.empty else set()
    return taken, required


def expected_parameters(document: Json, described: Json) -> tuple[set[str], set[str]]:
    """All parameters of a method according to the OpenAPI document, and the required ones."""
    given = [resolve(document, each) for each in described["parameters"]]
    given = [each for each in given if each["name"] not in NOT_OFFERED]
    taken = {AS_ARGUMENT.get(name, name) for name in (str(each["name"]) for each in given)}
    required = {each["name"] for each in given if each["required"] and each["in"] != "header"}
    content = described.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        schema = resolve(document, content["application/json"]["schema"])
        fixed = {name for name in schema.get("required", ()) if len(schema["properties"][name].get("enum", ())) == 1}
        taken |= set(schema["properties"]) - fixed
        required |= set(schema.get("required", ())) - fixed
    elif "application/octet-stream" in content:
        taken |= {"content", "media_type", "progress"}
        required |= {"content"}
    elif content:
        taken |= {"archive", "progress"}
        required |= {"archive"}
    success = next(answer for status, answer in described["responses"].items() if status.startswith("2"))
    if success.get("content") and "application/json" not in success["content"]:
        taken |= {"to", "progress"} | ({"media_type"} if len(success["content"]) > 1 else set())
        required |= {"to"}
    return taken, required


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_operation_of_a_running_server_has_a_method(server: Server, client: type) -> None:
    document = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    methods = public(client)
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    operations = [each for each in operations if each["operationId"] not in BROWSER_OPERATIONS]
    for described in operations:
        name = described["operationId"]
        assert name in methods, f"{client.__name__} has no {name}"
        assert actual_parameters(methods[name]) == expected_parameters(document, described), name
        assert described["summary"] in (inspect.getdoc(methods[name]) or "")
    paged = {each["operationId"] for each in operations if '"name": "after"' in json.dumps(each["parameters"])}
    log = {operation.name for operation in OPERATIONS if operation.log}
    iterators = {f"iter_{name.removeprefix('list_')}" for name in paged - log}
    assert set(methods) == {each["operationId"] for each in operations} | iterators | WRITTEN


LOADED = """
import json, sys
before = set(sys.modules)
import quarterdeck.client
quarterdeck.client.Client("https://quarterdeck.example", "qd_test_x").close()
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_client_imports_nothing_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert {name.split(".")[1] for name in loaded if name.startswith("quarterdeck.")} == {"client", "core"}
    assert not {"starlette", "uvloop", "psycopg", "obstore", "pydantic_ai"} & loaded


def test_the_client_reads_every_field_of_every_response() -> None:
    examples = {
        operation.success_type: example_of(operation, operation.success_type)
        for operation in OPERATIONS
        if operation.success_type is not None
    }
    assert len(examples) > 20
    for type_, example in examples.items():
        body = msgspec.json.encode(example)
        read = msgspec.json.decode(body, type=getattr(models, type_.__name__))
        assert msgspec.json.encode(read) == body, type_
