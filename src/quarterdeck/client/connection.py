"""The I/O of `Client`: sends requests and waits. Decisions are in `calls.py` and `event_follower.py`."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from quarterdeck.client import requests
from quarterdeck.client.calls import Call, Response, Retry
from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.event_follower import EVENT_STREAM, EventFollower
from quarterdeck.client.models import Delta, Event
from quarterdeck.client.requests import Id, IfMatch, Operation, Request
from quarterdeck.client.retry import Policy
from quarterdeck.client.tool_calls import ToolCalls
from quarterdeck.client.transfers import Download, Progress, Sink, Source, Upload
from quarterdeck.client.version import client_name

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
        """`timeout` limits each wait for the server. `retries` and `retry_seconds` limit all attempts of a call."""
        self._target = requests.target(base_url, key, workspace_id, client_name(), allow_http=allow_http)
        self._policy = Policy(retries, retry_seconds)
        self._timeout = timeout
        self._tool_calls = ToolCalls()
        self._open()

    def _open(self) -> None:
        from quarterdeck.client import transport

        self._transport = transport
        self._http = transport.open_http(self._target, self._timeout)

    def _without_retries(self) -> Self:
        """A client with the same connections, for callers that retry by themselves."""
        found = copy(self)
        found._policy = Policy(retries=0)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _call(
        self,
        operation: Operation,
        result_type: type[T],
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
        return self._run(Call(request, result_type, self._policy))

    def _upload(
        self,
        operation: Operation,
        result_type: type[T],
        path: Mapping[str, Id | int],
        query: Mapping[str, object],
        content: Source,
        media_type: str,
        progress: Progress | None,
        *,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> T:
        with closing(Upload(content, progress)) as upload:
            request = requests.build(
                operation,
                path,
                query,
                None,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
                headers={"Content-Type": requests.media_type(media_type), "Content-Length": str(upload.total)},
            )
            return self._run(Call(request, result_type, self._policy), upload=upload)

    def _download(
        self,
        operation: Operation,
        path: Mapping[str, Id | int],
        query: Mapping[str, object],
        to: Sink,
        progress: Progress | None,
        *,
        workspace_id: Id | None = None,
        media_type: str = "*/*",
    ) -> int:
        headers = {"Accept": media_type}
        request = requests.build(operation, path, query, None, workspace_id=workspace_id, headers=headers)
        with closing(Download(progress)) as download:
            self._run(Call(request, type(None), self._policy), download=download)
            return download.save(to)

    def _run(self, call: Call[T], *, upload: Upload | None = None, download: Download | None = None) -> T:
        while True:
            kept_bytes = 0 if download is None else download.kept_bytes
            response = self._send(call.request, upload, download)
            if download is not None and download.kept_bytes > kept_bytes:
                call.progressed()
            outcome = call.handle(response)
            if not isinstance(outcome, Retry):
                return outcome
            time.sleep(outcome.seconds)

    def _send(self, request: Request, upload: Upload | None, download: Download | None) -> Response | ConnectionFailed:
        headers = request.headers if download is None else request.headers | download.headers()
        content = request.content if upload is None else upload.chunks()
        try:
            with self._http.stream(
                request.method,
                self._target.base_url + request.path,
                params=request.query,
                headers=headers,
                content=content,
            ) as response:
                return self._receive(response, download)
        except self._transport.TransportError as error:
            return self._transport.connection_error(error, self._target)
        except ConnectionFailed as error:
            return error

    def _receive(self, response: "httpx.Response", download: Download | None = None) -> Response:
        headers = dict(response.headers)
        if download is not None and response.is_success:
            download.start(headers)
            for chunk in response.iter_bytes():
                download.write(chunk)
            download.check(headers)
            return Response(response.status_code, headers, b"")
        deadline = time.monotonic() + self._timeout
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if time.monotonic() > deadline:
                raise ConnectionFailed(f"The response was not complete within {self._timeout:g} seconds.")
        return Response(response.status_code, headers, bytes(body))

    def _follow(
        self,
        follower: EventFollower,
        path: Mapping[str, Id | int],
        workspace_id: Id | None,
        silence_seconds: float,
        opened: "Callable[[httpx.Response], None]" = lambda response: None,
    ) -> Generator[Event | Delta, None, None]:
        """`opened` gets each response that is a stream, so that another thread can interrupt it."""
        timeout = self._transport.timeouts(silence_seconds)
        while True:
            headers = follower.headers()
            request = requests.build(follower.operation, path, {}, None, workspace_id=workspace_id, headers=headers)
            try:
                url = self._target.base_url + request.path
                with self._http.stream("GET", url, headers=request.headers, timeout=timeout) as response:
                    if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                        pause = follower.response_received(self._receive(response))
                    else:
                        opened(response)
                        for chunk in response.iter_bytes():
                            yield from follower.feed(chunk)
                        pause = follower.stream_ended()
            except self._transport.TransportError as error:
                pause = follower.connection_failed(self._transport.connection_error(error, self._target))
            except ConnectionFailed as error:
                pause = follower.connection_failed(error)
            time.sleep(pause)
