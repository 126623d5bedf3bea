"""Sends requests and waits: the input and output of `Client`. What it decides is in `calls.py` and `following.py`."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from quarterdeck.client import requests
from quarterdeck.client.calls import Again, Answer, Call
from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.following import EVENT_STREAM, Follower
from quarterdeck.client.model import Delta, Event
from quarterdeck.client.requests import GZIP, Id, IfMatch, Operation, Request
from quarterdeck.client.retrying import Policy
from quarterdeck.client.transfers import Download, Progress, Sink, Source, Upload

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class Connection:
    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        workspace_id: Id | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        allow_http: bool = False,
    ) -> None:
        """`timeout` bounds each wait for the server, `retries` and `retry_seconds` all tries of a call together."""
        from quarterdeck.client import wire

        self._wire = wire
        self._target = requests.target(base_url, key, workspace_id, wire.client_name(), allow_http=allow_http)
        self._policy = Policy(retries, retry_seconds)
        self._timeout = timeout
        self._http = wire.open_http(self._target, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _call(
        self,
        operation: Operation,
        kind: type[T],
        path: Mapping[str, Id | int],
        query: Mapping[str, object],
        body: Mapping[str, object] | None = None,
        *,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> T:
        request = requests.build(
            operation,
            path,
            query,
            body,
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )
        return self._finish(Call(request, kind, self._policy))

    def _upload(
        self,
        operation: Operation,
        kind: type[T],
        path: Mapping[str, Id | int],
        query: Mapping[str, object],
        archive: Source,
        progress: Progress | None,
        *,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> T:
        with closing(Upload(archive, progress)) as upload:
            request = requests.build(
                operation,
                path,
                query,
                None,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
                headers={"Content-Type": GZIP, "Content-Length": str(upload.total)},
            )
            return self._finish(Call(request, kind, self._policy), upload=upload)

    def _download(
        self,
        operation: Operation,
        path: Mapping[str, Id | int],
        query: Mapping[str, object],
        to: Sink,
        progress: Progress | None,
        *,
        workspace_id: Id | None = None,
    ) -> int:
        request = requests.build(operation, path, query, None, workspace_id=workspace_id, headers={"Accept": "*/*"})
        with closing(Download(progress)) as download:
            self._finish(Call(request, type(None), self._policy), download=download)
            return download.deliver(to)

    def _finish(self, call: Call[T], *, upload: Upload | None = None, download: Download | None = None) -> T:
        while True:
            outcome = call.settle(self._try(call.request, upload, download))
            if not isinstance(outcome, Again):
                return outcome
            time.sleep(outcome.seconds)

    def _try(self, request: Request, upload: Upload | None, download: Download | None) -> Answer | ConnectionFailed:
        content = request.content if upload is None else upload.pieces()
        try:
            with self._http.stream(
                request.method,
                self._target.base_url + request.path,
                params=request.query,
                headers=request.headers,
                content=content,
            ) as response:
                return self._received(response, download)
        except self._wire.Fault as fault:
            return self._wire.explained(fault, self._target)
        except ConnectionFailed as fault:
            return fault

    def _received(self, response: "httpx.Response", download: Download | None = None) -> Answer:
        headers = dict(response.headers)
        if download is not None and response.is_success:
            download.begin(headers)
            for piece in response.iter_bytes():
                download.take(piece)
            download.check(headers)
            return Answer(response.status_code, headers, b"")
        deadline = time.monotonic() + self._timeout
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if time.monotonic() > deadline:
                raise ConnectionFailed(f"The answer was not complete within {self._timeout:g} seconds.")
        return Answer(response.status_code, headers, bytes(body))

    def _follow(
        self, follower: Follower, path: Mapping[str, Id | int], workspace_id: Id | None, silence_seconds: float
    ) -> Iterator[Event | Delta]:
        timeout = self._wire.timeouts(silence_seconds)
        while True:
            headers = follower.headers()
            request = requests.build(follower.operation, path, {}, None, workspace_id=workspace_id, headers=headers)
            try:
                url = self._target.base_url + request.path
                with self._http.stream("GET", url, headers=request.headers, timeout=timeout) as response:
                    if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                        wait = follower.refused(self._received(response))
                    else:
                        for piece in response.iter_bytes():
                            yield from follower.take(piece)
                        wait = follower.ended()
            except self._wire.Fault as fault:
                wait = follower.broke(self._wire.explained(fault, self._target))
            except ConnectionFailed as fault:
                wait = follower.broke(fault)
            time.sleep(wait)
