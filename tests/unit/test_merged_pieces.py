"""The pieces of a streamed answer are joined without changing what the provider's library makes of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.models import merged_pieces
from quarterdeck.models.merged_pieces import Listener, join_pieces, listening

STREAM = {"content-type": "text/event-stream; charset=utf-8"}


def chat(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def chat_call(arguments: str, **fields: Any) -> bytes:
    return chat(tool_calls=[{"index": 0, "function": {"arguments": arguments}, **fields}])


def named(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def anthropic(kind: str, field: str, text: str, index: int = 0) -> bytes:
    return named("content_block_delta", index=index, delta={"type": kind, field: text})


def said(text: str) -> bytes:
    return anthropic("text_delta", "text", text)


def responses(text: str, number: int = 0, kind: str = "response.output_text.delta") -> bytes:
    return named(kind, item_id="i", output_index=0, content_index=0, delta=text, sequence_number=number, logprobs=[])


class Bytes(httpx2.AsyncByteStream):
    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


async def joined(parts: list[bytes], headers: dict[str, str] = STREAM) -> tuple[bytes, list[str]]:
    """What the library gets, and the texts that readers get."""
    shown: list[str] = []
    response = httpx2.Response(200, headers=headers, stream=Bytes(parts))
    with listening(Listener(shown.append, lambda: None, lambda: 0.1)):
        await join_pieces(response)
    return b"".join([part async for part in response.aiter_raw()]), shown


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([chat(content="a"), chat(content="b"), chat(content="c")], [chat(content="abc")]),
        ([chat(reasoning_content="a"), chat(reasoning_content="b")], [chat(reasoning_content="ab")]),
        ([chat_call("", id="1"), chat_call("{"), chat_call("}")], [chat_call("", id="1"), chat_call("{}")]),
        ([said("a"), said("b")], [said("ab")]),
        ([responses("a", 1), responses("b", 2)], [responses("ab", 1)]),
    ],
)
async def test_pieces_become_one(events: list[bytes], expected: list[bytes]) -> None:
    result, _ = await joined(events)
    assert [json.loads(data) for data in _data(result)] == [json.loads(data) for data in _data(b"".join(expected))]


@pytest.mark.parametrize(
    "events",
    [
        [chat(role="assistant", content=""), chat(content="a")],
        [chat(content="a"), chat(reasoning_content="b")],
        [chat(content="a", reasoning_content="b"), chat(content="c", reasoning_content="d")],
        [anthropic("text_delta", "text", "a", 0), anthropic("text_delta", "text", "b", 1)],
        [anthropic("signature_delta", "signature", "a"), anthropic("signature_delta", "signature", "b")],
        [responses("a"), responses("b", kind="response.refusal.delta")],
        [b"data: {\n\n", b"data: [DONE]\n\n", b": comment\n\n", b"data: 7\n\n", b"data: \n\n", b"\n\n"],
        [b'data: {"choices": []}\n\n', b'data: {"choices": [1]}\n\n', b'data: {"type": "content_block_delta"}\n\n'],
        [b"data: {}\ndata: {}\n\n", b"id: 1\nevent: a\ndata: {}\n\n"],
        [b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n'],
        [chat(content="a"), b"an event without an end"],
        [chat(content="a").replace(b"\n", b"\r\n"), chat(content="b").replace(b"\n", b"\r\n")],
        [chat(content="<think>"), chat(content="a"), chat(content="b")],
        [b"x" * 100_000, chat(content="a"), chat(content="b")],
    ],
)
async def test_what_is_different_or_unknown_is_not_changed(events: list[bytes]) -> None:
    result, _ = await joined(events)
    assert result == b"".join(events)


async def test_readers_get_the_text_that_people_see() -> None:
    events = [
        chat(role="assistant", content=""),
        chat(reasoning_content="thought"),
        chat(content="Hello"),
        chat(content=" you"),
        chat_call("{}"),
    ]
    assert (await joined(events))[1] == ["Hello", " you"]
    assert (await joined([responses("a"), responses("{}", kind="response.function_call_arguments.delta")]))[1] == ["a"]
    # Reasoning that comes as text in tags is shown by pydantic-ai's events, without it.
    assert (await joined([chat(content="<think>"), chat(content="a")]))[1] == []


async def test_compressed_streams_and_other_answers_are_not_touched() -> None:
    events = [chat(content="a"), chat(content="b")]
    assert await joined(events, {"content-type": "application/json"}) == (b"".join(events), [])
    assert await joined(events, STREAM | {"content-encoding": "gzip"}) == (b"".join(events), [])


async def test_a_long_answer_is_passed_on_in_parts() -> None:
    result, shown = await joined([chat(content="x" * 1_000)] * 300)
    sizes = [len(json.loads(data)["choices"][0]["delta"]["content"]) for data in _data(result)]
    assert sum(sizes) == 300_000 == len("".join(shown))
    assert max(sizes) < 70_000


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
EVENTS = st.one_of(
    TEXTS.map(lambda text: chat(content=text)),
    TEXTS.map(lambda text: chat(reasoning=text)),
    TEXTS.map(chat_call),
    TEXTS.map(said),
    TEXTS.map(lambda text: anthropic("input_json_delta", "partial_json", text)),
    # Like a server without numbers: those of others are different, see the next test.
    TEXTS.map(responses),
    st.just(b": ping\n\n"),
    st.just(b"data: [DONE]\n\n"),
)


async def test_events_that_come_twice() -> None:
    """The text of a server that counts its events, and usage."""
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\n'
    events = [responses("a", 1), responses("a", 1), responses("a", 2), usage, usage, b": ping\n\n", b": ping\n\n"]
    result, shown = await joined(events)
    assert result == (await joined(events[1:3]))[0] + usage + b"".join(events[5:])
    assert shown == ["a", "a"]


@given(st.lists(EVENTS, max_size=12), st.lists(st.integers(0, 2_000), max_size=6))
async def test_every_text_arrives_in_its_place(events: list[bytes], cuts: list[int]) -> None:
    """However the bytes are cut. Pieces are compared by their text in order, with everything around it."""
    whole = b"".join(events)
    borders = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    result, shown = await joined([whole[start:end] for start, end in pairwise(borders)])
    assert _spelled(result) == _spelled(whole)
    visible = "".join(text for frame, text in _spelled(whole) if frame in _VISIBLE)
    # After a text that begins with a tag, nothing is shown here.
    assert visible.startswith("".join(shown))
    assert visible == "".join(shown) or "<" in visible


def _data(stream: bytes) -> list[bytes]:
    return [event.partition(b"data: ")[2] for event in stream.split(b"\n\n") if event]


def _spelled(stream: bytes) -> list[tuple[str, str]]:
    """Each character of the pieces with what is around it; other events as they are."""
    spelled: list[tuple[str, str]] = []
    for event in stream.split(b"\n\n"):
        try:
            data = json.loads(event.partition(b"data: ")[2])
            text = _take_text(data)
        except (ValueError, KeyError, IndexError, TypeError):
            spelled.append((event.decode(), ""))
            continue
        data.pop("sequence_number", None)
        spelled += [(json.dumps(data), character) for character in text]
    return spelled


def _take_text(data: Any) -> str:
    if data.get("type") == "content_block_delta":
        place, field = data["delta"], "text" if "text" in data["delta"] else "partial_json"
    elif "delta" in data:
        place, field = data, "delta"
    else:
        delta = data["choices"][0]["delta"]
        calls = delta.get("tool_calls")
        place, field = (calls[0]["function"], "arguments") if calls else (delta, next(iter(delta)))
    text: str = place[field]
    place[field] = ""
    return text


_VISIBLE = frozenset(_spelled(event)[0][0] for event in (chat(content="x"), said("x"), responses("x")))


async def test_pieces_come_together_in_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read less often than they come, and the next request on the connection is not slowed down."""
    monkeypatch.setattr(merged_pieces, "_PAUSED_SHARE", 1)
    count, pauses = 100, 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(count):
                event = chat(content="a")
                writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                await asyncio.sleep(0.01)
            writer.write(b"0\r\n\r\n")
        writer.close()

    def pause_seconds() -> float:
        nonlocal pauses
        pauses += 1
        return 0.2

    shown: list[str] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, httpx2.AsyncClient(event_hooks={"response": [join_pieces]}) as client:
        with listening(Listener(shown.append, lambda: None, pause_seconds)):
            await client.get(f"http://127.0.0.1:{port}")
        assert "".join(shown) == "a" * count
        assert 0 < pauses < count / 2
        known = pauses
        await client.get(f"http://127.0.0.1:{port}")
        assert pauses == known
