"""The error responses of the OpenAPI document, which operations refer to by name in `components/responses`.

A response that is the same for many operations has a name of its own, such as `Unauthorized` or `NotFoundSession`.
One that depends on the operation, like the 400 that lists its parameters, is named after it: `BadRequestSubmitInput`.
"""

from typing import Any

import msgspec

from quarterdeck.api.error_docs import noun, refusals
from quarterdeck.api.openapi_parts import RESPONSE_HEADERS, camel_case, reference
from quarterdeck.core.errors import Kind
from quarterdeck.http.operation import Operation, Payload, Refusal
from quarterdeck.http.responses import JSON, STATUS, ErrorBody, ErrorDetail, headers_of

Json = dict[str, Any]

LIMIT_HEADERS = ("RateLimit", "RateLimit-Policy")
# Sent before the caller is known, so no rate limit applies yet.
_UNCHARGED = {Kind.UNAUTHORIZED, Kind.OUTDATED}
_NAMES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    408: "RequestTimeout",
    409: "Conflict",
    412: "PreconditionFailed",
    413: "ContentTooLarge",
    416: "RangeNotSatisfiable",
    426: "UpgradeRequired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class ErrorResponses:
    """Collects the `responses` and `schemas` that the operations refer to."""

    def __init__(self) -> None:
        self.responses: Json = {}
        self.schemas: Json = {}

    def of(self, operation: Operation) -> Json:
        """A reference for each error status of the operation."""
        by_status: dict[int, list[Refusal]] = {}
        for refusal in refusals(operation):
            by_status.setdefault(STATUS[refusal.fault.kind], []).append(refusal)
        return {str(status): self._share(operation, status, by_status[status]) for status in sorted(by_status)}

    def _share(self, operation: Operation, status: int, found: list[Refusal]) -> Json:
        name = _name(operation, status)
        response = self._response(found)
        shared = self.responses.setdefault(name, response)
        assert shared == response, f"{operation.name} and another operation disagree on {name}"
        return reference("responses", name)

    def _response(self, found: list[Refusal]) -> Json:
        """Each refusal is a named example: when it happens, what to do, and the body."""
        codes = sorted({str(refusal.fault.kind.code) for refusal in found})
        return {
            "description": " ".join([f"`{'` or `'.join(codes)}`:", *(refusal.when for refusal in found)]),
            "headers": _headers(found),
            "content": {
                JSON: {
                    "schema": self._schema(codes),
                    "examples": {refusal.name: _example(refusal) for refusal in found},
                }
            },
        }

    def _schema(self, codes: list[str]) -> Json:
        name = "Or".join(camel_case(code) for code in codes) + "ErrorBody"
        restricted = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        self.schemas[name] = {"allOf": [reference("schemas", "ErrorBody"), restricted]}
        return reference("schemas", name)


def _name(operation: Operation, status: int) -> str:
    own = {STATUS[refusal.fault.kind] for refusal in operation.refusals}
    # These texts differ from operation to operation.
    if status == 400 or status in own or (status == 404 and operation.hides_forbidden):
        return _NAMES[status] + camel_case(operation.name)
    return _NAMES[status] + _variant(operation, status)


def _variant(operation: Operation, status: int) -> str:
    """Names what the text of a shared response depends on: see `error_docs.py`."""
    or_token = "OrToken" if operation.session_token else ""
    match status:
        case 403:
            return "And".join(camel_case(str(each)) for each in operation.permissions) + or_token
        case 404:
            missing = camel_case(noun(operation.path_ids[-1]) if operation.path_ids else "workspace")
            return missing + "".join(camel_case(name) for name in operation.path_numbers) + or_token
        case 409:
            return "" if operation.idempotent else "WithoutKey"
        case 413:
            return {Payload.GZIP: "Archive", Payload.FILE: "File"}.get(operation.payload, "Json")
        case 503:
            return "" if operation.method == "GET" else "OrUnknownOutcome"
    return ""


def _example(refusal: Refusal) -> Json:
    body = ErrorBody(ErrorDetail(refusal.fault.kind.code, refusal.fault.message))
    return {"summary": refusal.when, "description": refusal.remedy, "value": msgspec.to_builtins(body)}


def _headers(found: list[Refusal]) -> Json:
    """A header that only some refusals of a status carry is in the document, but not as required."""
    sent = [headers_of(refusal.fault) for refusal in found]
    names = ["X-Request-Id"]
    if any(refusal.fault.kind not in _UNCHARGED for refusal in found):
        names += LIMIT_HEADERS
    headers = {name: reference("headers", name) for name in names}
    for name in ("WWW-Authenticate", "Retry-After"):
        carriers = sum(name in each for each in sent)
        if carriers == len(sent):
            headers[name] = RESPONSE_HEADERS[name] | {"required": True}
        elif carriers:
            headers[name] = reference("headers", name)
    return headers
