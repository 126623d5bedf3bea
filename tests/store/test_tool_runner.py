"""Tools that fail, and jobs that a waiting run leaves behind. No worker: the parts of one are called directly."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct

from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.core import errors
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import ActionSettings, BlobSettings, DatabaseSettings, SandboxSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.log import lock_session
from quarterdeck.models.model import ToolCall, ToolResult
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.runs import calls, lifecycle
from quarterdeck.runs.action_model import ActionKind, NewAction
from quarterdeck.runs.lifecycle import Lease, recover
from quarterdeck.sandbox.folders import Folders
from quarterdeck.sandbox.manifest import FileChanges, FileKind, StoredFile
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.session_folder import SessionFolder
from quarterdeck.session_files import service
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, CarryOut, Effect, Output, Tool, Toolbox, client_tool
from quarterdeck.worker import journal
from quarterdeck.worker.deltas import DeltaSender
from quarterdeck.worker.run_files import SessionFiles
from quarterdeck.worker.tool_runner import CONFLICT, ToolRunner
from tests.workers import begin_demo_run, eventually, log_of
from tests.world import START_SECONDS, Server, World, app_url


class Begun(Struct, frozen=True):
    database: Database
    lease: Lease
    session_id: str


@pytest.fixture
async def begun(world: World, server: Server) -> AsyncIterator[Begun]:
    """A run that this process drives, in a session that allows all tools."""
    answer = await world.post("/v1/sessions", {"tool_policy": {"*": "allow"}})
    session_id = answer.json()["id"]
    run_id = (await world.submit(session_id)).json()["run_id"]
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2, lock_wait_seconds=60))
    await database.open()
    lease = await begin_demo_run(database, UUID(run_id))
    assert lease is not None
    yield Begun(database, lease, session_id)
    await database.close()
    await world.post(f"/v1/runs/{run_id}/cancel", None)


def raising(fault: Exception) -> CarryOut:
    async def carry_out(arguments: dict[str, Any], context: CallContext) -> str:
        raise fault

    return carry_out


BROKEN = RuntimeError("broken")
RESULTS = [
    (Effect.READS, False, BROKEN, "Error: the tool failed."),
    (Effect.WRITES, True, BROKEN, "Error: the tool failed."),
    (Effect.WRITES, False, BROKEN, None),
    (Effect.WRITES, False, Refusal("no such thing."), "Error: no such thing."),
]


async def test_a_tool_that_fails(world: World, begun: Begun) -> None:
    """Only a tool that reads, honours the key, or says that it did nothing can fail without a question."""
    tools = [
        Tool(spec=ToolSpec(f"t{n}", "", {}), effect=effect, honours_key=honours, carry_out=raising(fault))
        for n, (effect, honours, fault, _) in enumerate(RESULTS)
    ]
    made = [ToolCall(f"c{n}", f"t{n}", {}) for n in range(len(RESULTS))]
    runner = ToolRunner(
        begun.database,
        begun.lease,
        Toolbox(tools),
        SchemaChecks(),
        DeltaSender(begun.database, 1),
        tell_unknown_outcome=False,
        result_bytes=1000,
    )
    results, actions = await runner.run(made, 1)
    expected = [(f"c{n}", result) for n, (*_, result) in enumerate(RESULTS) if result is not None]
    assert [(result.call_id, result.content) for result in results] == expected
    [action] = actions
    assert (action.kind, action.call_id, action.attempt) == (ActionKind.UNKNOWN_OUTCOME, "c2", 1)
    entries = await log_of(world, begun.session_id)
    assert [one["data"]["call_id"] for one in entries if one["type"] == "tool.started"] == ["c1", "c2", "c3"]

    unavailable = Tool(spec=ToolSpec("u", "", {}), effect=Effect.WRITES, carry_out=raising(errors.unavailable()))
    runner = ToolRunner(
        begun.database,
        begun.lease,
        Toolbox([unavailable]),
        SchemaChecks(),
        DeltaSender(begun.database, 1),
        tell_unknown_outcome=False,
        result_bytes=9,
    )
    with pytest.raises(ServiceError):
        await runner.run([ToolCall("u", "u", {})], 1)
    assert "u" not in [one["data"].get("call_id") for one in entries if one["type"] == "tool.result"]


@pytest.mark.long
async def test_arguments_of_client_tools_match_their_schema(world: World, begun: Begun) -> None:
    """Others reach neither the client nor a person. A schema that cannot be applied is ignored."""
    number = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    schemas: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
        (number, {"id": 7}, None),
        (number, {"id": "7"}, """$.id: "7" is not of type "integer"."""),
        (number, {}, """$: "id" is a required property."""),
        ({"type": "object", "properties": {"a": {"pattern": "(?<!x)"}}}, {"a": "1"}, None),
        ({"type": "object", "minProperties": "many"}, {}, None),
        ({"type": "object", "$ref": "http://127.0.0.1:9/schema"}, {}, None),
    ]
    tools = [client_tool(ToolSpec(f"t{n}", "", schema)) for n, (schema, *_) in enumerate(schemas)]
    made = [ToolCall(f"c{n}", f"t{n}", arguments) for n, (_, arguments, _) in enumerate(schemas)]
    for policy in ("allow", "ask"):
        await world.patch(f"/v1/sessions/{begun.session_id}", {"tool_policy": {"*": policy}})
        results, actions = await runner_of(begun, Toolbox(tools)).run(made, 1)
        assert [action.call_id for action in actions] == ["c0", "c3", "c4", "c5"]
        assert {result.call_id: result.content for result in results} == {
            f"c{n}": f"Error: the arguments do not match the parameters of this tool: {reason} Call the tool again."
            for n, (*_, reason) in enumerate(schemas)
            if reason is not None
        }
        assert all(result.is_error for result in results)


def returning(content: str) -> Toolbox:
    async def carry_out(arguments: dict[str, Any], context: CallContext) -> str:
        return content

    return Toolbox([Tool(spec=ToolSpec("t", "", {}), effect=Effect.WRITES, carry_out=carry_out)])


def runner_of(begun: Begun, tools: Toolbox) -> ToolRunner:
    return ToolRunner(
        begun.database,
        begun.lease,
        tools,
        SchemaChecks(),
        DeltaSender(begun.database, 1),
        tell_unknown_outcome=False,
        result_bytes=1000,
    )


async def test_results_that_are_too_long_or_cannot_be_stored(world: World, begun: Begun) -> None:
    """Only a database that is not available is waited for."""
    [result], _ = await runner_of(begun, returning("x" * 5000)).run([ToolCall("long", "t", {})], 1)
    assert result.content == "x" * 1000 + "\n[Cut here: these are the first 1000 of 5000 bytes.]"
    [again], _ = await runner_of(begun, returning(result.content)).run([ToolCall("again", "t", {})], 1)
    assert again.content == result.content
    with pytest.raises(ServiceError):
        await runner_of(begun, returning("\0")).run([ToolCall("bad", "t", {})], 1)
    assert await results_of(world, begun.session_id) == {"long": result.content, "again": result.content}


async def test_a_stopped_worker_stores_the_result_of_a_call(world: World, begun: Begun) -> None:
    async with await world.connect() as connection, connection.transaction():
        carried_out = asyncio.Event()

        async def carry_out(arguments: dict[str, Any], context: CallContext) -> str:
            await lock_session(connection, begun.lease.session_id)
            carried_out.set()
            return "done"

        tool = Tool(spec=ToolSpec("t", "", {}), effect=Effect.WRITES, carry_out=carry_out)
        runner = runner_of(begun, Toolbox([tool]))
        running = asyncio.create_task(runner.run([ToolCall("c", "t", {})], 1))
        await carried_out.wait()
        await eventually(partial(is_waiting_for_lock, world))
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=0.3)
        assert not done, "the run would be handed back before the result is stored"
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await results_of(world, begun.session_id) == {"c": "done"}


async def is_waiting_for_lock(world: World) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return bool(await world.fetch(query))


async def results_of(world: World, session_id: str) -> dict[str, str]:
    entries = await log_of(world, session_id)
    return {one["data"]["call_id"]: one["data"]["text"] for one in entries if one["type"] == "tool.result"}


async def test_a_result_is_stored_once(world: World, begun: Begun) -> None:
    """It may be stored again when the outcome of a commit is unknown."""
    for call_id in ("c", "c", "d"):
        await calls.record_result(begun.database, begun.lease, journal.entry_of(ToolResult(call_id, "t", "done")))
    entries = await log_of(world, begun.session_id)
    assert [one["data"]["call_id"] for one in entries if one["type"] == "tool.result"] == ["c", "d"]


@pytest.mark.parametrize("answered", [False, True])
async def test_a_job_that_a_waiting_run_left_behind_is_deleted(world: World, begun: Begun, answered: bool) -> None:
    """Its worker lives, but could not finish the job, which holds the lock of the session."""
    run_id = str(begun.lease.run_id)

    async def jobs() -> list[bool]:
        query = "SELECT taken FROM run_jobs WHERE run_id = %s ORDER BY id"
        return [taken for (taken,) in await world.fetch(query, run_id)]

    query = """
        WITH worker AS (INSERT INTO workers (id) VALUES (gen_random_uuid()) RETURNING id)
        UPDATE run_jobs SET taken = true, worker_id = (SELECT id FROM worker) WHERE run_id = %s
    """
    await world.execute(query, run_id)
    approval = NewAction(kind=ActionKind.APPROVAL, reason="?", step=1, call_id="c", tool="t", arguments={})
    await lifecycle.wait(begun.database, begun.lease, [approval], ActionSettings())
    if answered:
        [action_id] = (await world.get(f"/v1/runs/{run_id}")).json()["waiting_for"]
        assert (await world.post(f"/v1/actions/{action_id}/resolve", {"decision": "deny"})).status_code == 200
    left = [False] if answered else []
    await recover(begun.database, 3600, None)
    assert await jobs() == [True, *left], "it may still be finishing"
    earlier = """
        UPDATE runs SET waiting_since = waiting_since - interval '1 minute', updated_at = now() - interval '1 minute'
        WHERE id = %s
    """
    await world.execute(earlier, run_id)
    await recover(begun.database, 3600, None)
    assert await jobs() == left


async def test_files_are_stored_with_the_result_or_not_at_all(world: World, begun: Begun, tmp_path: Path) -> None:
    """A file that is attached during a call may not fit to what the call made. Then the call is undone."""
    folders = Folders(tmp_path / "folders", None, 1)
    stored = SessionFiles(begun.database, open_blob_store(BlobSettings(), tmp_path), begun.lease)
    session_folder = SessionFolder(folders, stored, SandboxSettings())

    async def attach(connection: Connection) -> None:
        now = datetime.now(UTC)
        folder = StoredFile(
            path="a/b", kind=FileKind.FOLDER, sha256=None, bytes=0, mode=0o755, target=None, modified_at=now
        )
        await lock_session(connection, begun.lease.session_id)
        await service.apply_changes(connection, begun.lease.session_id, FileChanges([folder], []))

    async def write(arguments: dict[str, Any], context: CallContext) -> Output:
        _, changes, _ = await session_folder.write(lambda folder: (folder.path / arguments["path"]).write_text("x"))
        if arguments["path"] == "a":
            await begun.database.transaction(attach, repeatable=False)
        return Output("written", changes)

    tool = Tool(spec=ToolSpec("t", "", {}), effect=Effect.WRITES, carry_out=write, honours_key=True)
    runner = ToolRunner(
        begun.database,
        begun.lease,
        Toolbox([tool]),
        SchemaChecks(),
        DeltaSender(begun.database, 1),
        tell_unknown_outcome=False,
        result_bytes=1000,
        session_folder=session_folder,
    )
    made = [ToolCall(path, "t", {"path": path}) for path in ("a", "c", "d")]
    results, _ = await runner.run(made, 1)
    assert [result.content for result in results] == [CONFLICT, "written", "written"]
    assert await session_folder.read(lambda folder: sorted(os.listdir(folder.path))) == ["a", "c", "d"]
    assert [file.path for file in (await stored.manifest()).files] == ["a/b", "c", "d"]
    assert await results_of(world, begun.session_id) == {"a": CONFLICT, "c": "written", "d": "written"}
    await folders.close()


class Turns:
    """Tools that tell how many of them ran at the same time."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0

    def tool(self, name: str, effect: Effect = Effect.READS, *, is_sandboxed: bool = False) -> Tool:
        async def carry_out(arguments: dict[str, Any], context: CallContext) -> str:
            self.running.append(name)
            self.most = max(self.most, len(self.running))
            # Long enough for another call to begin, if it may.
            await asyncio.sleep(0.05)
            self.running.remove(name)
            return name

        return Tool(spec=ToolSpec(name, "", {}), effect=effect, carry_out=carry_out, is_sandboxed=is_sandboxed)


def reading(name: str, carry_out: CarryOut) -> Tool:
    return Tool(spec=ToolSpec(name, "", {}), effect=Effect.READS, carry_out=carry_out)


def calls_of(*names: str) -> list[ToolCall]:
    return [ToolCall(f"{name}{at}", name, {}) for at, name in enumerate(names)]


async def test_calls_that_only_read_run_at_the_same_time(world: World, begun: Begun) -> None:
    """Their results are stored in the order of the calls. After a failure, those before it are stored."""
    is_done, left = asyncio.Event(), 0

    async def waits_for_second(arguments: dict[str, Any], context: CallContext) -> str:
        await asyncio.wait_for(is_done.wait(), START_SECONDS)
        return "first"

    async def second(arguments: dict[str, Any], context: CallContext) -> str:
        is_done.set()
        return "second"

    tools = Toolbox([reading("first", waits_for_second), reading("second", second)])
    results, _ = await runner_of(begun, tools).run(calls_of("first", "second"), 1)
    assert [result.content for result in results] == ["first", "second"]
    assert await results_of(world, begun.session_id) == {"first0": "first", "second1": "second"}

    async def never(arguments: dict[str, Any], context: CallContext) -> str:
        nonlocal left
        left += 1
        try:
            await asyncio.Event().wait()
        finally:
            left -= 1
        return "never"

    broken = reading("broken", raising(errors.unavailable()))
    tools = Toolbox([reading("second", second), broken, reading("never", never)])
    with pytest.raises(ServiceError):
        await runner_of(begun, tools).run(calls_of("second", "broken", "never"), 1)
    assert list(await results_of(world, begun.session_id)) == ["first0", "second1", "second0"]
    assert left == 0, "a call that is left over has ended"


async def test_calls_that_take_turns(begun: Begun) -> None:
    """Beside a call that writes, and in the one folder of the session."""
    turns = Turns()
    tools = Toolbox([turns.tool("read"), turns.tool("write", Effect.WRITES), turns.tool("file", is_sandboxed=True)])
    await runner_of(begun, tools).run(calls_of("read", "read", "write"), 1)
    await runner_of(begun, tools).run(calls_of("file", "file", "file"), 1)
    assert turns.most == 1
