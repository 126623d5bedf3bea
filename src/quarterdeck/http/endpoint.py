"""One path with all its methods: `Allow` on a 405 is only right when they are together."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quarterdeck import etags
from quarterdeck.errors import Kind, ServiceError
from quarterdeck.http.client_version import check_client
from quarterdeck.http.cors import is_preflight, preflight_response
from quarterdeck.http.envelope import error_response, json_response
from quarterdeck.http.incoming import ALLOWANCE_STATE, Incoming
from quarterdeck.http.operation import Operation
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.rate_limits.allowance import Allowance

Respond = Callable[[Scope, Receive], Awaitable[Response]]

_NOT_MODIFIED = 304
_REPLAYED = {"Idempotency-Replayed": "true"}


class Endpoint:
    def __init__(self, methods: dict[str, Respond]) -> None:
        self._methods = dict(methods)
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
            fault = ServiceError(Kind.WRONG_METHOD, f"This path answers {self._allow}.")
            response = error_response(fault, {"Allow": self._allow})
        await response(scope, receive, send)


def operation_endpoint(operations: list[Operation], parts: Parts) -> Endpoint:
    return Endpoint({operation.method: _carry_out(operation, parts) for operation in operations})


def _carry_out(operation: Operation, parts: Parts) -> Respond:
    async def respond(scope: Scope, receive: Receive) -> Response:
        check_client(scope, parts.settings.http)
        allowance = scope[ALLOWANCE_STATE] = Allowance(parts.rate_limits)
        incoming = Incoming(scope, receive, parts.settings.http)
        await allowance.charge_ahead(incoming.credential)
        result = await operation.handler(parts, incoming)
        if isinstance(result, Response):
            return result
        answer = result if isinstance(result, Answer) else Answer(msgspec.json.encode(result))
        headers = dict(_REPLAYED) if answer.replayed else {}
        if operation.etag:
            headers["ETag"] = etags.etag(msgspec.json.decode(answer.body, type=_Revised).revision)
            if operation.method == "GET" and incoming.has(headers["ETag"]):
                return Response(status_code=_NOT_MODIFIED, headers=headers)
        return json_response(answer.body, operation.success_status, headers)

    return respond


class _Revised(Struct, frozen=True):
    """A record that has an ETag, as far as that goes."""

    revision: int
