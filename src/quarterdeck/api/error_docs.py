"""The errors of each operation: when they occur and what the caller should do. The OpenAPI document is made from this.
Status, code and headers come from the error itself, so they match what the server sends.
"""

from quarterdeck.core import errors
from quarterdeck.core.settings import BundleSettings, HttpSettings
from quarterdeck.http.operation import Operation, Payload, Refusal

_UNAUTHORIZED = Refusal(
    "unauthorized",
    errors.unauthorized(),
    "The credential is missing, malformed, unknown, revoked or expired.",
    "Send `Authorization: Bearer` with a key or token that is alive. Repeating the call does not help.",
)
_OUTDATED = Refusal(
    "client_outdated",
    errors.outdated("0.2.0"),
    "`Quarterdeck-Client` names one of our own clients in a version that this server no longer serves. "
    "Other clients are left alone.",
    "Upgrade the client: `pip install --upgrade quarterdeck`.",
)
_TOO_MANY = Refusal(
    "too_many_requests",
    errors.too_many("credential", 2),
    "The credential or its workspace has sent more requests than this server's settings allow. Nothing was done.",
    "Try again after the seconds in Retry-After. `RateLimit` tells beforehand how many requests are left.",
)
_KEY_REUSED = Refusal(
    "key_reused",
    errors.key_reused(),
    "The Idempotency-Key was used before for a different request.",
    "Take a new key for a new request; repeat a request unchanged under its old one.",
)
_CONTENDED = Refusal(
    "contended",
    errors.locked(),
    "Other requests kept using the same object for seconds. Nothing was stored.",
    "Send it again at once. Only this conflict carries Retry-After.",
)
_PRECONDITION = Refusal(
    "precondition_failed",
    errors.precondition_failed(),
    "If-Match was sent and names another ETag than the current one: somebody else was first. Nothing was done.",
    "Read it again, see whether the change is still wanted, and send it with the new ETag.",
)
_UNSATISFIABLE_RANGE = Refusal(
    "unsatisfiable_range",
    errors.unsatisfiable_range(),
    "Range asks for bytes behind the end. Content-Range tells the size.",
    "Ask for bytes that are there, or leave Range out.",
)
_NO_VERSION = Refusal(
    "no_version",
    errors.not_found("skill version"),
    "The skill has no version of this number.",
    "Look at the skill's versions.",
)
_TOO_SLOW = Refusal(
    "too_slow",
    errors.too_slow("The request body arrived too slowly."),
    "The body stalled or took too long to arrive. The connection is closed.",
    "Send the whole request again.",
)
_BROKEN_BODY = Refusal(
    "broken_body",
    errors.broken_body(),
    "The body ended early or is not framed as its headers say. The connection is closed.",
    "Send the whole request again.",
)
_INTERNAL = Refusal(
    "internal",
    errors.internal(),
    "Something failed that the caller cannot mend.",
    "Report the X-Request-Id to whoever runs the service.",
)
_UNAVAILABLE = Refusal(
    "unavailable",
    errors.unavailable(),
    "The service cannot reach a part it needs, such as its database.",
    "Try again after the seconds in Retry-After, and wait longer each time.",
)
_OUTCOME_UNKNOWN = Refusal(
    "outcome_unknown",
    errors.outcome_unknown(),
    "The database was lost while the request was being stored: it may have taken effect. "
    "Only without an Idempotency-Key.",
    "Look before sending it again, or send an Idempotency-Key from the start.",
)


def refusals(operation: Operation) -> list[Refusal]:
    found = [_bad_parameter(operation)]
    if operation.payload is not Payload.NONE:
        found += [_bad_body(operation), _BROKEN_BODY, _too_large(operation), _TOO_SLOW]
    found.append(_UNAUTHORIZED)
    found += _lacks_permission(operation)
    found.append(_unseen(operation))
    if operation.path_numbers:
        found.append(_NO_VERSION)
    if operation.idempotent:
        found.append(_KEY_REUSED)
    if operation.method != "GET" and _CONTENDED.name not in (refusal.name for refusal in operation.refusals):
        found.append(_CONTENDED)
    if operation.conditional:
        found.append(_PRECONDITION)
    if operation.download:
        found.append(_UNSATISFIABLE_RANGE)
    found += operation.refusals
    found += [_OUTDATED, _TOO_MANY]
    found += [_INTERNAL, _UNAVAILABLE]
    if operation.method != "GET":
        found.append(_OUTCOME_UNKNOWN)
    return found


def noun(name: str) -> str:
    """`api_key_id` → `API key`."""
    return name.removesuffix("_id").replace("_", " ").replace("api ", "API ")


def _bad_parameter(operation: Operation) -> Refusal:
    parameters = [*operation.path_ids, *operation.path_numbers, "Service-Workspace"]
    parameters += [query.name for query in operation.queries]
    if operation.paged:
        parameters += ["limit", "after", "order"]
    if operation.log:
        parameters += ["limit", "after", "Last-Event-ID"]
    if operation.idempotent:
        parameters.append("Idempotency-Key")
    if operation.conditional:
        parameters.append("If-Match")
    first = operation.path_ids[0] if operation.path_ids else "Service-Workspace"
    when = f"{_either(parameters)} is malformed or given twice."
    fault = errors.invalid(f"{first} is not a UUID.")
    if operation.workspace_required:
        fault = errors.invalid("The header Service-Workspace is required.")
        when = f"Service-Workspace is missing. {when}"
    if operation.paged and operation.cursor_must_exist:
        when += " `after` is not a cursor of this list."
    return Refusal("bad_parameter", fault, when, "Correct what the message names.")


def _bad_body(operation: Operation) -> Refusal:
    if operation.payload is Payload.GZIP:
        return Refusal(
            "bad_bundle",
            errors.invalid("SKILL.md is missing at the root of the archive."),
            "The archive is malformed or the bundle breaks a rule, or Content-Type is not application/gzip.",
            "Correct what the message names and pack the bundle again.",
        )
    return Refusal(
        "bad_body",
        errors.invalid("The body is not as expected: JSON is malformed: invalid character (byte 0)"),
        "The body is not the JSON described here, holds a value that is refused, or is not sent as application/json.",
        "Correct what the message names.",
    )


def _too_large(operation: Operation) -> Refusal:
    is_archive = operation.payload is Payload.GZIP
    limit = BundleSettings().request_bytes if is_archive else HttpSettings().json_body_bytes
    return Refusal(
        "too_large",
        errors.too_large(limit),
        f"The body is larger than this server takes: {limit // 1024**2} MiB unless set otherwise. "
        "The connection is closed.",
        "Send less.",
    )


def _lacks_permission(operation: Operation) -> list[Refusal]:
    if operation.hides_forbidden or operation.permission is None:
        return []
    when = f"The key lacks {' or '.join(f'`{each}`' for each in operation.permissions)}."
    if operation.session_token:
        when += " A session token never gets this."
    remedy = "Use a key that holds the permission."
    if operation.reads:
        remedy = "Use a key that holds both permissions: the response shows what was stored before."
    return [Refusal("forbidden", errors.forbidden(operation.permission), when, remedy)]


def _unseen(operation: Operation) -> Refusal:
    what = noun(operation.path_ids[-1]) if operation.path_ids else "workspace"
    reasons = [f"There is no such {what}", "the credential cannot see it"]
    if operation.hides_forbidden:
        reasons.append(f"the key lacks `{operation.permission}`")
    if not operation.session_token:
        reasons.append("a session token was used")
    elif operation.path_ids:
        reasons.append("a session token was sent to a session that is not its own")
    when = f"{_either(reasons)}. These cannot be told apart."
    remedy = "Check the id, and that the credential belongs to the same workspace."
    return Refusal("not_found", errors.not_found(what), when, remedy)


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"
