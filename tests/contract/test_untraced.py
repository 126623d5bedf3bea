"""Traces are off by default: tests/fault/test_traces.py has the tests of traces."""

from tests.world import World

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_the_trace_of_the_caller_is_ignored(world: World) -> None:
    session_id = await world.new_session()
    body = {"type": "input", "text": "hello"}
    answer = await world.post(f"/v1/sessions/{session_id}/events", body, headers={"traceparent": TRACEPARENT})
    assert answer.status_code == 200
    assert await world.fetch("SELECT traceparent FROM runs WHERE session_id = %s", session_id) == [(None,)]
