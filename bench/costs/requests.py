"""The most expensive single requests that one caller can send with ordinary credentials and default settings."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from uuid import UUID

from msgspec import Struct

from bench import archives
from bench.case import BenchError
from bench.costs.history import MIB, add_audit_events, add_history, text_of
from bench.costs.stage import Stage
from bench.filling import fill
from bench.wire import Wire

# The text of an input in the largest JSON body.
_LARGEST_TEXT = MIB - 64
_HISTORY_INPUTS = 400
_TINY_INPUTS = 23_000
_SESSIONS = 100_000
_AUDIT_EVENTS = 200_000
_SKILL_MD = b"---\nname: costs\ndescription: Expensive to read.\n---\n"


class ExpensiveRequest(Struct, frozen=True):
    title: str
    # Prepares what is needed and calls `Stage.measure` once.
    send: Callable[[Stage], Awaitable[None]]


async def largest_input(stage: Stage) -> None:
    sent = stage.server.submission(await stage.new_session(), text_of(_LARGEST_TEXT))
    await stage.measure(sent, until=stage.until_run_ended)


async def input_after_large_history(stage: Stage) -> None:
    session_id = await stage.new_session()
    await add_history(stage.server, session_id, _HISTORY_INPUTS, text_of(_LARGEST_TEXT))
    await stage.measure(stage.server.submission(session_id, "hello"), until=stage.until_run_ended)


async def input_after_long_history(stage: Stage) -> None:
    session_id = await stage.new_session()
    await add_history(stage.server, session_id, 100_000, "hello")
    await stage.measure(stage.server.submission(session_id, "hello"), until=stage.until_run_ended)


async def cancel_large_inputs(stage: Stage) -> None:
    run_id, _ = await _full_run(stage, text_of(_LARGEST_TEXT), _HISTORY_INPUTS)
    await stage.measure(stage.request("POST", f"/v1/runs/{run_id}/cancel"))


async def cancel_tiny_inputs(stage: Stage) -> None:
    run_id, _ = await _full_run(stage, "", _TINY_INPUTS)
    await stage.measure(stage.request("POST", f"/v1/runs/{run_id}/cancel"))


async def delete_full_run(stage: Stage) -> None:
    _, session_id = await _full_run(stage, text_of(_LARGEST_TEXT), _HISTORY_INPUTS)
    await stage.measure(stage.request("DELETE", f"/v1/sessions/{session_id}"), until=stage.until_purged)


async def delete_large_session(stage: Stage) -> None:
    session_id = await stage.new_session()
    await add_history(stage.server, session_id, _HISTORY_INPUTS, text_of(_LARGEST_TEXT))
    await stage.measure(stage.request("DELETE", f"/v1/sessions/{session_id}"), until=stage.until_purged)


async def page_of_large_events(stage: Stage) -> None:
    session_id = await stage.new_session()
    await add_history(stage.server, session_id, 200, text_of(_LARGEST_TEXT))
    await stage.measure(stage.request("GET", f"/v1/sessions/{session_id}/events?limit=200"))


async def stream_of_large_log(stage: Stage) -> None:
    session_id = await stage.new_session()
    await add_history(stage.server, session_id, _HISTORY_INPUTS, text_of(_LARGEST_TEXT))
    sent = stage.request("GET", f"/v1/sessions/{session_id}/events", Accept="text/event-stream")
    await stage.measure(sent, until_seen=(b"event: run.succeeded", 1))


async def push_largest(stage: Stage) -> None:
    skill = await stage.new_skill()
    await stage.measure(stage.request("POST", f"{skill}/versions", archives.largest()))


async def push_text(stage: Stage) -> None:
    skill = await stage.new_skill()
    await stage.measure(stage.request("POST", f"{skill}/versions", archives.text()))


async def push_hostile(stage: Stage) -> None:
    """Nothing but empty blocks: many steps of the decompressor for each byte, and no output."""
    skill = await stage.new_skill()
    header = archives.packed({"SKILL.md": b""})[:10]
    archive = header + b"\x00\x00\x00\xff\xff" * (30 * MIB // 5)
    await stage.measure(stage.request("POST", f"{skill}/versions", archive))


async def small_file_of_large_bundle(stage: Stage) -> None:
    skill = await stage.new_skill(_large_bundle())
    await stage.measure(stage.request("GET", f"{skill}/versions/1/file?path=last.txt"))


async def small_file_again(stage: Stage) -> None:
    skill = await stage.new_skill(_large_bundle())
    sent = stage.request("GET", f"{skill}/versions/1/file?path=last.txt")
    await stage.send(sent)
    await stage.measure(sent)


async def range_of_large_file(stage: Stage) -> None:
    skill = await stage.new_skill(_large_bundle())
    sent = stage.request("GET", f"{skill}/versions/1/file?path=large.txt", Range="bytes=-4")
    await stage.measure(sent)


async def largest_diff(stage: Stage) -> None:
    """As many lines as two versions of a file may have, in another order."""
    lines = [b"%d" % (number % 10) for number in range(128 * 1024 - 1)]
    shuffled = random.Random(1).sample(lines, len(lines))  # noqa: S311
    base, head = (archives.packed({"SKILL.md": _SKILL_MD, "a.txt": b"\n".join(texts)}) for texts in (lines, shuffled))
    skill = await stage.new_skill(base, head)
    await stage.measure(stage.request("GET", f"{skill}/diff?base=1&head=2"))


async def search_sessions(stage: Stage) -> None:
    await _fill(stage)
    await stage.measure(stage.request("GET", "/v1/sessions?limit=200&search=nowhere"))


async def longest_activity(stage: Stage) -> None:
    await _fill(stage)
    await stage.measure(stage.request("GET", f"/v1/activity?minutes={7 * 24 * 60}"))


async def audit_page(stage: Stage) -> None:
    """Every filter is met by many events, and only all of them together by none."""
    await add_audit_events(stage.server, _AUDIT_EVENTS)
    ((owner,),) = await stage.server.statement(
        "SELECT owner_id FROM workspaces WHERE id = %s", stage.server.workspace_id
    )
    filters = f"action=create_session&object_type=api_key&user_id={owner}&until=2100-01-01T00:00:00Z"
    await stage.measure(stage.request("GET", f"/v1/audit-events?limit=200&{filters}"))


REQUESTS = (
    ExpensiveRequest("input of 1 MiB, with its run", largest_input),
    ExpensiveRequest("short input after 400 inputs of 1 MiB, with its run", input_after_large_history),
    ExpensiveRequest("short input after 100,000 short inputs, with its run", input_after_long_history),
    ExpensiveRequest("cancel a run with as many inputs of 1 MiB as it accepts (at most 400)", cancel_large_inputs),
    ExpensiveRequest("cancel a run with as many empty inputs as it accepts (at most 23,000)", cancel_tiny_inputs),
    ExpensiveRequest("delete the session of a run with as many inputs of 1 MiB as it accepts", delete_full_run),
    ExpensiveRequest("delete a session with 400 inputs of 1 MiB", delete_large_session),
    ExpensiveRequest("page of 200 events of 1 MiB", page_of_large_events),
    ExpensiveRequest("event stream of 400 inputs of 1 MiB, from the start", stream_of_large_log),
    ExpensiveRequest("push 32 MiB that do not compress", push_largest),
    ExpensiveRequest("push 50 MiB of text in 500 files", push_text),
    ExpensiveRequest("push 30 MiB of empty deflate blocks", push_hostile),
    ExpensiveRequest("download 4 bytes out of a bundle of 120 MiB", small_file_of_large_bundle),
    ExpensiveRequest("the same again, as every later download from it", small_file_again),
    ExpensiveRequest("download a range of 4 bytes out of a file of 120 MiB", range_of_large_file),
    ExpensiveRequest("diff of 2 × 256 KiB in the shortest lines", largest_diff),
    ExpensiveRequest("search 100,000 sessions for a text that none has", search_sessions),
    ExpensiveRequest("activity of a week with 50,000 runs", longest_activity),
    ExpensiveRequest("page of the audit log that no entry of 200,000 matches", audit_page),
)


async def _full_run(stage: Stage, text: str, most: int) -> tuple[UUID, UUID]:
    """A run that waits in a model's step while inputs arrive, until one is refused; and its session."""
    session_id = await stage.new_session()
    run_id = (await stage.caller.submit(session_id, "demo: slow 90")).run_id
    await stage.caller.until_started(run_id)
    left = iter(range(most))
    refused = False

    async def steer() -> None:
        nonlocal refused
        wire = await Wire.connect(stage.server.port)
        try:
            for _ in left:
                answer = await wire.ask(stage.server.submission(session_id, text))
                if answer.status != 200:
                    if answer.status not in (429, 503):
                        raise BenchError(f"an answer of {answer.status}: {answer.body.decode()}")
                    refused = True
                if refused:
                    return
        finally:
            wire.close()

    await asyncio.gather(*(steer() for _ in range(8 if text else 64)))
    return run_id, session_id


async def _fill(stage: Stage) -> None:
    server = stage.server
    # Runs are spread over thirty days.
    await asyncio.to_thread(
        fill, server.database_url, workspace_id=server.workspace_id, sessions=_SESSIONS, events=1_000_000, receipts=0
    )


def _large_bundle() -> bytes:
    line = b"Nothing of interest is in this line, and there are many like it.\n"
    return archives.packed(
        {"SKILL.md": _SKILL_MD, "large.txt": (line * (120 * MIB // len(line) + 1))[: 120 * MIB], "last.txt": b"end\n"}
    )
