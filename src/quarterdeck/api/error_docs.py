"""The errors of each operation: when they occur and what the caller should do. The OpenAPI document is made from this.
Status, code and headers come from the error itself, so they match what the server sends.
"""

from typing import Any

import msgspec

from quarterdeck.api.openapi_parts import RESPONSE_HEADERS, camel_case, reference
from quarterdeck.core import errors
from quarterdeck.core.errors import ErrorKind
from quarterdeck.core.operation import ErrorCase, Operation, Payload
from quarterdeck.core.settings import BundleSettings, FileSettings, HttpSettings
from quarterdeck.http.responses import JSON, STATUS, ErrorBody, ErrorDetail, headers_of

_UNAUTHORIZED = ErrorCase(
    "unauthorized",
    errors.unauthorized(),
    "The credential is missing, malformed, unknown, revoked or expired.",
    "Send `Authorization: Bearer` with a valid key or token. Do not retry with the same one.",
)
_OUTDATED = ErrorCase(
    "client_outdated",
    errors.outdated("0.2.0"),
    "`Quarterdeck-Client` names a version of our client that this server no longer supports. Other clients are not "
    "affected.",
    "Upgrade the client: `pip install --upgrade quarterdeck`.",
)
_TOO_MANY = ErrorCase(
    "too_many_requests",
    errors.too_many("credential", 2),
    "The credential or its workspace has exceeded its rate limit. Nothing was done.",
    "Retry after the seconds in Retry-After. `RateLimit` shows how many requests are left.",
)
_TOO_MANY_TRIES = ErrorCase(
    "too_many_tries",
    errors.too_many_tries("address", 600),
    "There were too many tries from this address or, with a password, for this account.",
    "Wait for the seconds in Retry-After.",
)
_KEY_REUSED = ErrorCase(
    "key_reused",
    errors.conflict(errors.KEY_REUSED),
    "The Idempotency-Key was already used for a different request.",
    "Use a new key for a new request. A retry must be the same request.",
)
_CONTENDED = ErrorCase(
    "contended",
    errors.locked(),
    "Other requests are changing the same object. Nothing was stored.",
    "Retry immediately. Only this conflict has Retry-After.",
)
_PRECONDITION = ErrorCase(
    "precondition_failed",
    errors.precondition_failed(),
    "If-Match does not match the current ETag: the object has changed. Nothing was done.",
    "Read the object again, and send the change with the new ETag.",
)
_UNSATISFIABLE_RANGE = ErrorCase(
    "unsatisfiable_range",
    errors.unsatisfiable_range(),
    "Range starts after the end. Content-Range shows the size.",
    "Request an existing range, or omit Range.",
)
_TOO_SLOW = ErrorCase(
    "too_slow",
    errors.too_slow("The request body arrived too slowly."),
    "The request body was too slow or stalled. The connection is closed.",
    "Send the whole request again.",
)
_BROKEN_BODY = ErrorCase(
    "broken_body",
    errors.broken_body(),
    "The request body is incomplete or has invalid framing. The connection is closed.",
    "Send the whole request again.",
)
_INTERNAL = ErrorCase(
    "internal",
    errors.internal(),
    "An unexpected error in the service.",
    "Report the X-Request-Id to the operator.",
)
_UNAVAILABLE = ErrorCase(
    "unavailable",
    errors.unavailable(),
    "The service or its database is temporarily unavailable.",
    "Retry after the seconds in Retry-After, with exponential backoff.",
)
_OUTCOME_UNKNOWN = ErrorCase(
    "outcome_unknown",
    errors.outcome_unknown(),
    "The connection to the database was lost while storing the request, which may have taken effect. Only without an "
    "Idempotency-Key.",
    "Check the result before you retry, or use an Idempotency-Key for every change.",
)


def refusals(operation: Operation) -> list[ErrorCase]:
    found = [] if operation.public else [_bad_parameter(operation)]
    if operation.payload is not Payload.NONE:
        found += [_bad_body(operation), _BROKEN_BODY, _too_large(operation), _TOO_SLOW]
    if not operation.public:
        found.append(_UNAUTHORIZED)
        found += _lacks_permission(operation)
        found.append(_unseen(operation))
    if operation.path_numbers:
        found.append(_no_version(operation.path_ids[0].removesuffix("_id")))
    if operation.idempotent:
        found.append(_KEY_REUSED)
    if operation.method != "GET" and _CONTENDED.name not in (refusal.name for refusal in operation.refusals):
        found.append(_CONTENDED)
    if operation.conditional:
        found.append(_PRECONDITION)
    if operation.download:
        found.append(_UNSATISFIABLE_RANGE)
    found += operation.refusals
    found.append(_OUTDATED)
    found.append(_TOO_MANY_TRIES if operation.public else _TOO_MANY)
    found += [_INTERNAL, _UNAVAILABLE]
    if operation.method != "GET":
        found.append(_OUTCOME_UNKNOWN)
    return found


def noun(name: str) -> str:
    """`api_key_id` → `API key`."""
    return name.removesuffix("_id").replace("_", " ").replace("api ", "API ")


def _bad_parameter(operation: Operation) -> ErrorCase:
    parameters = [*operation.path_ids, *operation.path_numbers]
    parameters += [] if operation.public else ["Service-Workspace"]
    parameters += [query.name for query in operation.queries]
    if operation.log:
        parameters.append("Last-Event-ID")
    if operation.idempotent:
        parameters.append("Idempotency-Key")
    if operation.conditional:
        parameters.append("If-Match")
    first = operation.path_ids[0] if operation.path_ids else "Service-Workspace"
    when = f"{_either(parameters)} is invalid or repeated."
    fault = errors.invalid(f"{first} is not a UUID.")
    if operation.workspace_required:
        fault = errors.invalid("The header Service-Workspace is required.")
        when = f"Service-Workspace is missing. {when}"
    if operation.paged and operation.cursor_must_exist:
        when += " `after` is not a cursor of this list."
    return ErrorCase("bad_parameter", fault, when, "Fix the problem in the message.")


def _bad_body(operation: Operation) -> ErrorCase:
    if operation.payload is Payload.FILE:
        return ErrorCase(
            "bad_content_type",
            errors.invalid("The body must be the file itself, not a form."),
            "Content-Type is missing or is multipart/form-data, or there is a Content-Encoding.",
            "Send the bytes of the file as the body, with its media type.",
        )
    if operation.payload is Payload.GZIP:
        return ErrorCase(
            "bad_bundle",
            errors.invalid("SKILL.md is missing at the root of the archive."),
            "The archive or the bundle is invalid, or Content-Type is not application/gzip.",
            "Fix the problem in the message, then pack the bundle again.",
        )
    return ErrorCase(
        "bad_body",
        errors.invalid("Invalid body: JSON is malformed: invalid character (byte 0)"),
        "The body does not match the schema or has an invalid value, or Content-Type is not application/json.",
        "Fix the problem in the message.",
    )


def _too_large(operation: Operation) -> ErrorCase:
    match operation.payload:
        case Payload.GZIP:
            limit = BundleSettings().request_bytes
        case Payload.FILE:
            limit = FileSettings().request_bytes
        case _:
            limit = HttpSettings().json_body_bytes
    return ErrorCase(
        "too_large",
        errors.too_large(limit),
        f"The body is too large. The default limit is {limit // 1024**2} MiB. The connection is closed.",
        "Send a smaller body.",
    )


def _no_version(owner: str) -> ErrorCase:
    """`owner`: skill or agent."""
    return ErrorCase(
        "no_version",
        errors.not_found(f"{owner} version"),
        f"The {owner} has no version with this number.",
        f"List the versions of the {owner}.",
    )


def _lacks_permission(operation: Operation) -> list[ErrorCase]:
    if operation.hides_forbidden or operation.permission is None:
        return []
    when = f"The key lacks {' or '.join(f'`{each}`' for each in operation.permissions)}."
    if operation.session_token:
        when += " Does not apply to session tokens."
    remedy = "Use a key with this permission."
    if operation.reads:
        remedy = "Use a key with both permissions: the response shows stored values."
    return [ErrorCase("forbidden", errors.forbidden(operation.permission), when, remedy)]


def _unseen(operation: Operation) -> ErrorCase:
    if operation.personal:
        return ErrorCase(
            "not_found",
            errors.not_found(noun(operation.path_ids[-1]) if operation.path_ids else "profile"),
            "The credential is an API key or a session token. With an ID in the path: there is no such object, or it "
            "belongs to somebody else.",
            "Sign in, and use the credential of the device.",
        )
    what = noun(operation.path_ids[-1]) if operation.path_ids else "workspace"
    reasons = [f"There is no such {what}", "the credential cannot see it"]
    if operation.hides_forbidden:
        reasons.append(f"the key lacks `{operation.permission}`")
    if not operation.session_token:
        reasons.append("a session token was used")
    elif operation.path_ids:
        reasons.append("a session token was used for another session")
    when = f"{_either(reasons)}. The response is the same in all cases."
    remedy = "Check the ID and the workspace of the credential."
    return ErrorCase("not_found", errors.not_found(what), when, remedy)


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


# The error responses of the OpenAPI document, which operations refer to by name in `components/responses`.
#
# A response that is the same for many operations has a name of its own, such as `Unauthorized` or `NotFoundSession`.
# One that depends on the operation, like the 400 that lists its parameters, is named after it: `BadRequestSubmitInput`.

Json = dict[str, Any]

LIMIT_HEADERS = ("RateLimit", "RateLimit-Policy")
# Sent before the caller is known, so no rate limit applies yet.
_UNCHARGED = {ErrorKind.UNAUTHORIZED, ErrorKind.OUTDATED}
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
        by_status: dict[int, list[ErrorCase]] = {}
        for refusal in refusals(operation):
            by_status.setdefault(STATUS[refusal.fault.kind], []).append(refusal)
        return {str(status): self._share(operation, status, by_status[status]) for status in sorted(by_status)}

    def _share(self, operation: Operation, status: int, found: list[ErrorCase]) -> Json:
        name = _name(operation, status)
        response = self._response(found, is_public=operation.public)
        shared = self.responses.setdefault(name, response)
        assert shared == response, f"{operation.name} and another operation disagree on {name}"
        return reference("responses", name)

    def _response(self, found: list[ErrorCase], *, is_public: bool) -> Json:
        """Each refusal is a named example: when it happens, what to do, and the body."""
        codes = sorted({str(refusal.fault.kind.code) for refusal in found})
        return {
            "description": " ".join([f"`{'` or `'.join(codes)}`:", *(refusal.when for refusal in found)]),
            "headers": _headers(found, is_public=is_public),
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
    if operation.public:
        return "PublicRead" if operation.method == "GET" else "Public"
    match status:
        case 403:
            return "And".join(camel_case(str(each)) for each in operation.permissions) + or_token
        case 404 if operation.personal:
            return "Personal" + "".join(camel_case(noun(name)) for name in operation.path_ids)
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


def _example(refusal: ErrorCase) -> Json:
    body = ErrorBody(ErrorDetail(refusal.fault.kind.code, refusal.fault.message))
    return {"summary": refusal.when, "description": refusal.remedy, "value": msgspec.to_builtins(body)}


def _headers(found: list[ErrorCase], *, is_public: bool) -> Json:
    """A header that only some refusals of a status carry is in the document, but not as required. Calls without a
    credential are not charged to anybody."""
    sent = [headers_of(refusal.fault) for refusal in found]
    names = ["X-Request-Id"]
    if not is_public and any(refusal.fault.kind not in _UNCHARGED for refusal in found):
        names += LIMIT_HEADERS
    headers = {name: reference("headers", name) for name in names}
    for name in ("WWW-Authenticate", "Retry-After"):
        carriers = sum(name in each for each in sent)
        if carriers == len(sent):
            headers[name] = RESPONSE_HEADERS[name] | {"required": True}
        elif carriers:
            headers[name] = reference("headers", name)
    return headers
