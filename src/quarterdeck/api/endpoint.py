"""Endpoints: all methods of one path, so that a 405 can list them in `Allow`; and the execution of operations."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck.auth.rate_limiter import RateLimiter, RateLimitHeaders, RequestLimit
from quarterdeck.core import call
from quarterdeck.core.call import Answer
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.operation import Operation
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http.cors import check_client, is_preflight, preflight_response
from quarterdeck.http.middleware import EXTRA_HEADERS
from quarterdeck.http.parameters import Result, bind
from quarterdeck.http.request import Request
from quarterdeck.http.responses import error_response, json_response

Respond = Callable[[Scope, Receive], Awaitable[Response]]
# None: the request is not refused.
Check = Callable[[Scope], Awaitable[Response | None]]

_NOT_MODIFIED = 304
_REPLAYED = {"Idempotency-Replayed": "true"}


class Endpoint:
    def __init__(self, methods: dict[str, Respond], check: Check | None = None) -> None:
        """`check` raises or answers before a 405."""
        self._methods = dict(methods)
        self._check = check
        if "GET" in methods:
            self._methods["HEAD"] = methods["GET"]
        self._allow = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        respond = self._methods.get(scope["method"])
        if respond is not None:
            response = await respond(scope, receive)
        elif is_preflight(scope):
            response = preflight_response(self._allow)
        else:
            response = await self._wrong_method(scope)
        await response(scope, receive, send)

    async def _wrong_method(self, scope: Scope) -> Response:
        refused = None if self._check is None else await self._check(scope)
        fault = ServiceError(ErrorKind.WRONG_METHOD, f"This path answers {self._allow}.")
        return refused or error_response(fault, {"Allow": self._allow})


class Executor:
    """Runs operations: client version, rate limit, handler, response."""

    def __init__(self, settings: HttpSettings, rate_limiter: RateLimiter, provided: Mapping[type, object]) -> None:
        self._settings = settings
        self._rate_limiter = rate_limiter
        self._limit_headers = RateLimitHeaders(rate_limiter.rates)
        self._provided = provided

    def endpoint(self, operations: Iterable[Operation]) -> Endpoint:
        """`operations` share one path."""
        return Endpoint({operation.method: self._responder(operation) for operation in operations})

    def _responder(self, operation: Operation) -> Respond:
        handle = bind(operation, self._provided)
        query_names = frozenset(query.name for query in operation.queries)

        async def respond(scope: Scope, receive: Receive) -> Response:
            check_client(scope, self._settings)
            rate_limit = RequestLimit(self._rate_limiter)
            scope[EXTRA_HEADERS] = partial(self._limit_headers.of, rate_limit)
            request = Request(scope, receive, self._settings, rate_limit, is_public=operation.public)
            await rate_limit.charge_known(request.credential)
            request.check_query_names(query_names)
            return _response(operation, request, await handle(request))

        return respond


def _response(operation: Operation, request: Request, result: Result) -> Response:
    if isinstance(result, Response):
        return result
    answer = result if isinstance(result, Answer) else Answer(msgspec.json.encode(result))
    headers = dict(_REPLAYED) if answer.replayed else {}
    if operation.etag:
        headers["ETag"] = call.etag(msgspec.json.decode(answer.body, type=_Revised).revision)
        if operation.method == "GET" and request.has(headers["ETag"]):
            return json_response(b"", _NOT_MODIFIED, headers)
    return json_response(answer.body, operation.success_status, headers)


class _Revised(Struct, frozen=True):
    """The part of a record that its ETag is made from."""

    revision: int
