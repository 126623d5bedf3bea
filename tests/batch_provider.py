"""A stand-in for the batch interfaces of OpenAI (files, batches) and Anthropic (message batches), as they go over the
wire. Plain asyncio, so that a test can stop it after each of its effects. It also answers ordinary requests.

A model that it stands for calls `current_time` once and then answers. What real providers refuse, it refuses
(tests/strict_provider.py): the result of such a request is an error."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from msgspec import Struct

from tests.contract.provider_server import ANTHROPIC, RESPONSES, Wire, refuses, streams
from tests.strict_provider import refusal
from tests.world import START_SECONDS

BY_BATCH, AT_ONCE = "Answered by a batch.", "Answered at once."
_CALL = ("call_1", "current_time", "{}")
_MONTH = "2026-01-01T00:00:00Z"


class Held:
    """A stop after an effect of the provider, and before its response."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def is_reached(self) -> None:
        await asyncio.wait_for(self.reached.wait(), START_SECONDS)


class ProviderBatch(Struct):
    id: str
    # By their custom ids.
    requests: dict[str, Any]
    # As OpenAI calls it. Anthropic has `ended` for the last three.
    status: str = "in_progress"
    # Custom ids that got no answer, and why.
    failed: dict[str, str] = {}


class BatchProvider:
    def __init__(self) -> None:
        self.url = ""
        self.batches: dict[str, ProviderBatch] = {}
        # Bodies of ordinary requests.
        self.at_once: list[Any] = []
        self.calls: Counter[str] = Counter()
        # What becomes of batches: `in_progress` until the test changes it, `completed` or `expired`.
        self.status = "completed"
        # Requests whose text contains one of these fail in the batch.
        self.failing: list[str] = []
        self.held: dict[str, Held] = {}
        self._files: dict[str, bytes] = {}
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        provider = cls()
        server = await asyncio.start_server(provider._accept, "127.0.0.1", 0, limit=2**24)
        provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield provider
        finally:
            server.close()
            for connection in provider._connections:
                connection.cancel()
            await asyncio.gather(*provider._connections, return_exceptions=True)

    @property
    def settings(self) -> dict[str, object]:
        """Of a worker that asks this provider."""
        return {
            "MODEL_OPENAI_BASE_URL": f"{self.url}/v1",
            "MODEL_OPENAI_API": "responses",
            "MODEL_OPENAI_API_KEY": "sk-openai",
            "MODEL_ANTHROPIC_BASE_URL": self.url,
            "MODEL_ANTHROPIC_API_KEY": "sk-anthropic",
            "MODEL_BATCH_COLLECT_SECONDS": 0.1,
            "MODEL_BATCH_POLL_SECONDS": 0.1,
            "MODEL_RETRY_BASE_SECONDS": 0.05,
        }

    def hold(self, what: str) -> Held:
        """`create`, `look`, `results` or `cancel`: the next one."""
        self.held[what] = Held()
        return self.held[what]

    @property
    def requests(self) -> list[str]:
        """The custom ids in all batches."""
        return [custom_id for batch in self.batches.values() for custom_id in batch.requests]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.create_task(self._serve(Wire(reader, writer))))

    async def _serve(self, wire: Wire) -> None:
        try:
            while not wire.writer.is_closing():
                await self._answer(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            wire.writer.transport.abort()

    async def _answer(self, wire: Wire) -> None:
        head = (await wire.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert headers["authorization"] in ("Bearer sk-openai", "Bearer sk-anthropic")
        body = await wire.reader.readexactly(int(headers.get("content-length", "0")))
        route = path.partition("?")[0]
        if method == "POST" and route in (RESPONSES.path, ANTHROPIC.path):
            self.at_once.append(json.loads(body))
            dialect = RESPONSES if route == RESPONSES.path else ANTHROPIC
            refused = refusal(route, self.at_once[-1])
            reply = streams(dialect.text(AT_ONCE)) if refused is None else refuses(refused.status, refused.body)
            await reply(wire)
            return
        what, answer = self._openai(method, route, body) or self._anthropic(method, route, body)
        self.calls[what] += 1
        if held := self.held.pop(what, None):
            held.reached.set()
            await held.opened.wait()
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = "application/x-jsonl" if isinstance(answer, bytes) else "application/json"
        lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", f"content-length: {len(data)}", "", ""]
        wire.writer.write("\r\n".join(lines).encode() + data)
        await wire.writer.drain()

    def _openai(self, method: str, route: str, body: bytes) -> tuple[str, Any] | None:
        match method, *route.strip("/").split("/"):
            case "POST", "v1", "files":
                self._files[file_id := f"file-{len(self._files)}"] = _uploaded(body)
                return "upload", {"id": file_id, "object": "file", "bytes": 1, "created_at": 1} | {
                    "filename": "batch.jsonl",
                    "purpose": "batch",
                    "status": "processed",
                }
            case "GET", "v1", "files", file_id, "content":
                return "results", self._files[file_id]
            case "DELETE", "v1", "files", file_id:
                return "delete", {"id": file_id, "object": "file", "deleted": True}
            case "POST", "v1", "batches":
                asked = json.loads(body)
                assert (asked["endpoint"], asked["completion_window"]) == (RESPONSES.path, "24h")
                lines = [json.loads(line) for line in self._files[asked["input_file_id"]].splitlines()]
                assert all((line["method"], line["url"]) == ("POST", RESPONSES.path) for line in lines)
                batch = self._add("batch", {line["custom_id"]: line["body"] for line in lines})
                self._files[f"input-{batch.id}"] = self._files[asked["input_file_id"]]
                return "create", self._openai_batch(batch)
            case "GET", "v1", "batches", batch_id:
                return "look", self._openai_batch(self._looked_at(batch_id))
            case "POST", "v1", "batches", batch_id, "cancel":
                self.batches[batch_id].status = "cancelled"
                return "cancel", self._openai_batch(self.batches[batch_id])
        return None

    def _anthropic(self, method: str, route: str, body: bytes) -> tuple[str, Any]:
        match method, *route.strip("/").split("/"):
            case "POST", "v1", "messages", "batches":
                requests = json.loads(body)["requests"]
                return "create", self._anthropic_batch(
                    self._add("msgbatch", {one["custom_id"]: one["params"] for one in requests})
                )
            case "GET", "v1", "messages", "batches", batch_id:
                return "look", self._anthropic_batch(self._looked_at(batch_id))
            case "GET", "v1", "messages", "batches", batch_id, "results":
                return "results", _lines(self._anthropic_results(self.batches[batch_id]))
            case "POST", "v1", "messages", "batches", batch_id, "cancel":
                self.batches[batch_id].status = "cancelled"
                return "cancel", self._anthropic_batch(self.batches[batch_id])
        raise AssertionError(f"no such operation: {method} {route}")

    def _add(self, prefix: str, requests: dict[str, Any]) -> ProviderBatch:
        batch = ProviderBatch(f"{prefix}_{len(self.batches)}", requests)
        self.batches[batch.id] = batch
        return batch

    def _looked_at(self, batch_id: str) -> ProviderBatch:
        batch = self.batches[batch_id]
        if batch.status == "in_progress":
            batch.status = self.status
            for custom_id, body in batch.requests.items():
                if self.status == "expired":
                    batch.failed[custom_id] = "expired"
                elif any(text in json.dumps(body) for text in self.failing):
                    batch.failed[custom_id] = "errored"
        elif batch.status == "cancelled":
            batch.failed = dict.fromkeys(batch.requests, "canceled")
        return batch

    def _openai_batch(self, batch: ProviderBatch) -> dict[str, Any]:
        answered = [custom_id for custom_id in batch.requests if custom_id not in batch.failed]
        errored = [custom_id for custom_id, why in batch.failed.items() if why == "errored"]
        files: dict[str, str] = {}
        if batch.status in ("completed", "expired", "cancelled"):
            if answered:
                results = [_openai_line(custom_id, 200, _response(batch.requests[custom_id])) for custom_id in answered]
                self._files[files.setdefault("output_file_id", f"output-{batch.id}")] = _lines(results)
            if errored:
                error = RESPONSES.error("invalid_request_error", "No such thing.")
                lines = [_openai_line(custom_id, 400, error) for custom_id in errored]
                self._files[files.setdefault("error_file_id", f"error-{batch.id}")] = _lines(lines)
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": RESPONSES.path,
            "input_file_id": f"input-{batch.id}",
            "completion_window": "24h",
            "status": batch.status,
            "created_at": 1,
            "request_counts": {"total": len(batch.requests), "completed": len(answered), "failed": len(batch.failed)},
            **files,
        }

    def _anthropic_batch(self, batch: ProviderBatch) -> dict[str, Any]:
        has_ended = batch.status != "in_progress"
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if has_ended else "processing"] = len(batch.requests)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if has_ended else "in_progress",
            "request_counts": counts,
            "created_at": _MONTH,
            "expires_at": _MONTH,
            "ended_at": _MONTH if has_ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{self.url}/v1/messages/batches/{batch.id}/results" if has_ended else None,
        }

    def _anthropic_results(self, batch: ProviderBatch) -> list[Any]:
        results: list[Any] = []
        for custom_id, body in batch.requests.items():
            match batch.failed.get(custom_id):
                case None:
                    result: dict[str, Any] = {"type": "succeeded", "message": _message(body)}
                case "errored":
                    result = {"type": "errored", "error": ANTHROPIC.error("invalid_request_error", "No such thing.")}
                case unrun:
                    result = {"type": unrun}
            results.append({"custom_id": custom_id, "result": result})
        return results


def _uploaded(body: bytes) -> bytes:
    """The file in a form of several parts."""
    boundary = body.partition(b"\r\n")[0]
    [part] = [part for part in body.split(boundary) if b'filename="batch.jsonl"' in part]
    return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _openai_line(custom_id: str, status: int, body: Any) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "line", "custom_id": custom_id, "response": response, "error": None}


def _response(body: dict[str, Any]) -> Any:
    refused = refusal(RESPONSES.path, body)
    assert refused is None, refused
    assert "stream" not in body
    has_results = any(item.get("type") == "function_call_output" for item in body["input"])
    events = RESPONSES.text(BY_BATCH) if has_results else RESPONSES.calls("", _CALL)
    return events[-1][1]["response"] | {"model": body["model"]}


def _message(body: dict[str, Any]) -> dict[str, Any]:
    refused = refusal(ANTHROPIC.path, body)
    assert refused is None, refused
    has_results = any(
        block["type"] == "tool_result"
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    )
    call_id, name, arguments = _CALL
    call = {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": BY_BATCH}] if has_results else [call],
        "stop_reason": "end_turn" if has_results else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
