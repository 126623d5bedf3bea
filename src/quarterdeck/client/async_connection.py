"""The I/O of the client: sends requests and waits. Decisions are in `calls.py` and `event_stream.py`."""

import asyncio  # sync:
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import closing
from copy import copy
from functools import wraps
from types import TracebackType
from typing import Self, Unpack

import httpx2

from quarterdeck.client import requests, transport
from quarterdeck.client.calls import AsyncListPage, Call, Item, P, Policy, Response, Retry
from quarterdeck.client.errors import ConnectionFailed
from quarterdeck.client.event_stream import EVENT_STREAM, EventFollower
from quarterdeck.client.models import Delta, Event
from quarterdeck.client.operations import LIST_SESSION_EVENTS
from quarterdeck.client.requests import ChangeOptions, Id, Operation, Options, Request, T
from quarterdeck.client.tool_calls import ToolCalls
from quarterdeck.client.transfers import Download, Progress, Sink, Source, Upload


def async_iterator(list_page: AsyncListPage[P, Item]) -> Callable[P, AsyncIterator[Item]]:
    """The method `iter_…` for a method `list_…`, with the same arguments."""

    @wraps(list_page)
    async def iterate(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        while True:
            page = await list_page(*args, **kwargs)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            kwargs["after"] = page.next_cursor

    name = list_page.__name__
    iterate.__doc__ = f"Iterate over all items of `{name}`. Pages of `limit` items are fetched as needed."
    return iterate


class AsyncConnection:
    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        workspace_id: Id | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        allow_http: bool = False,
    ) -> None:
        """`key` is an API key, a session token, or None for the operations that need none. `timeout` limits each wait
        for the server. `retries` and `retry_seconds` limit all attempts of a call."""
        self._target = requests.target(base_url, key, workspace_id, allow_http=allow_http)
        self._policy = Policy(retries, retry_seconds)
        self._timeout = timeout
        self._tool_calls = ToolCalls()
        self._http = transport.async_open_http(self._target, self._timeout)

    def _without_retries(self) -> Self:
        """A client with the same connections, for callers that retry by themselves."""
        found = copy(self)
        found._policy = Policy(retries=0)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._target!r})"

    @property
    def base_url(self) -> str:
        """The address of the server, without a slash at its end."""
        return self._target.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _call(
        self,
        operation: Operation[T],
        *ids: Id | int,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> T:
        return await self._run(requests.build(operation, ids, query=query, body=body, **options))

    async def _upload(
        self,
        operation: Operation[T],
        content: Source,
        media_type: str,
        progress: Progress | None,
        *ids: Id | int,
        query: Mapping[str, object] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> T:
        with closing(Upload(content, progress)) as upload:
            headers = {"Content-Type": requests.media_type(media_type), "Content-Length": str(upload.total)}
            request = requests.build(operation, ids, query=query, headers=headers, **options)
            return await self._run(request, upload=upload)

    async def _download(
        self,
        operation: Operation[None],
        to: Sink,
        progress: Progress | None,
        *ids: Id | int,
        query: Mapping[str, object] | None = None,
        media_type: str = "*/*",
        **options: Unpack[Options],
    ) -> int:
        request = requests.build(operation, ids, query=query, headers={"Accept": media_type}, **options)
        with closing(Download(progress)) as download:
            await self._run(request, download=download)
            return download.save(to)

    async def _run(self, request: Request[T], *, upload: Upload | None = None, download: Download | None = None) -> T:
        call = Call(request, self._policy)
        while True:
            kept_bytes = 0 if download is None else download.kept_bytes
            response = await self._send(request, upload, download)
            if download is not None and download.kept_bytes > kept_bytes:
                call.progressed()
            outcome = call.handle(response)
            if not isinstance(outcome, Retry):
                return outcome
            await asyncio.sleep(outcome.seconds)  # sync: time.sleep(outcome.seconds)

    async def _send(
        self, request: Request[T], upload: Upload | None, download: Download | None
    ) -> Response | ConnectionFailed:
        url = self._target.base_url + request.path
        headers = request.headers if download is None else request.headers | download.headers()
        content = request.content if upload is None else upload.async_chunks()
        try:
            async with self._http.stream(
                request.method, url, params=request.query, headers=headers, content=content
            ) as response:
                return await self._receive(response, download)
        except transport.TransportError as error:
            return transport.connection_error(error, self._target)
        except ConnectionFailed as error:
            return error

    async def _receive(self, response: httpx2.Response, download: Download | None = None) -> Response:
        headers = dict(response.headers)
        if download is not None and response.is_success:
            download.start(headers)
            async for chunk in response.aiter_bytes():
                download.write(chunk)
            download.check(headers)
            return Response(response.status_code, headers, b"")
        deadline = time.monotonic() + self._timeout
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if time.monotonic() > deadline:
                raise ConnectionFailed(f"The response was not complete within {self._timeout:g} seconds.")
        return Response(response.status_code, headers, bytes(body))

    async def _follow(
        self, follower: EventFollower, session_id: Id, workspace_id: Id | None, silence_seconds: float
    ) -> AsyncGenerator[Event | Delta, None]:
        timeout = transport.timeouts(silence_seconds)
        while True:
            headers = follower.headers()
            request = requests.build(LIST_SESSION_EVENTS, [session_id], workspace_id=workspace_id, headers=headers)
            try:
                url = self._target.base_url + request.path
                async with self._http.stream("GET", url, headers=request.headers, timeout=timeout) as response:
                    if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                        pause = follower.response_received(await self._receive(response))
                    else:
                        follower.response = response
                        async for chunk in response.aiter_bytes():
                            for each in follower.feed(chunk):
                                yield each
                        pause = follower.stream_ended()
            except transport.TransportError as error:
                pause = follower.connection_failed(transport.connection_error(error, self._target))
            except ConnectionFailed as error:
                pause = follower.connection_failed(error)
            await asyncio.sleep(pause)  # sync: time.sleep(pause)
