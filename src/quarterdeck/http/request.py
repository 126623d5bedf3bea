"""One HTTP request, parsed strictly. The first error in path, query or headers is recorded and not raised: the order of
checks decides later whether the caller gets to see it (`core/call.py`)."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import NOBODY, Credential, CredentialKind, Origin
from quarterdeck.core.call import Call, RateLimit, parse_tags, tags_match_weakly
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.ids import LOWEST_ID, parse_id
from quarterdeck.core.operation import MAX_NUMBER, Operation, Payload
from quarterdeck.core.pages import MAX_EVENT_ID
from quarterdeck.core.setting_types import Networks
from quarterdeck.core.settings import HttpSettings
from quarterdeck.http import cookies
from quarterdeck.http.content_negotiation import prefers
from quarterdeck.http.request_body import RequestBody, decode_json
from quarterdeck.http.responses import JSON

# The client's address: the peer of the connection or, if the peer is a trusted proxy, the address in X-Forwarded-For.
# Anybody can send that header, so only the part that trusted proxies wrote is used.

Address = IPv4Address | IPv6Address

# Each proxy adds one entry. The limit bounds the cost of a long header.
_MOST_ENTRIES = 32
# With or without a port. An IPv6 address may be in brackets and must be if a port follows. Zones are not accepted.
_ENTRY = re.compile(r"(?:\[([0-9a-fA-F:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?|([0-9a-fA-F:.]{2,45})", re.ASCII)


def client_address(scope: Scope, proxies: Networks | None) -> str | None:
    client = scope.get("client")
    if client is None or not proxies:
        return None if client is None else client[0]
    peer = _parsed(client[0])
    if peer is None or not _trusted(peer, proxies):
        return str(client[0])
    nearest = peer
    for entry in _entries(scope):
        address = _parsed(entry)
        if address is None:
            break
        nearest = address
        if not _trusted(address, proxies):
            break
    return str(nearest)


def _entries(scope: Scope) -> Iterable[str]:
    """Nearest proxy first."""
    values = Headers(scope=scope).getlist("x-forwarded-for")
    return reversed(",".join(values).rsplit(",", _MOST_ENTRIES)[-_MOST_ENTRIES:])


def _parsed(text: str) -> Address | None:
    match = _ENTRY.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    try:
        address = ip_address(match[1] or match[2] or match[3])
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 peers as IPv4-mapped IPv6 addresses.
    return getattr(address, "ipv4_mapped", None) or address


def _trusted(address: Address, proxies: Networks) -> bool:
    return any(address in network for network in proxies)


T = TypeVar("T")

GZIP = "application/gzip"
BYTES = "application/octet-stream"
# Key in the scope under which the middleware stores the id of the request.
REQUEST_ID_STATE = "quarterdeck.request_id"
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE | re.ASCII)
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
# int() also accepts signs, underscores, blanks and the digits of other scripts.
DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_JSON_TYPE = re.compile(r"""application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?""", re.IGNORECASE | re.ASCII)
_MEDIA_TYPE = re.compile(r"\s*([a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127})\s*(;.*)?", re.IGNORECASE | re.ASCII)
_FORM = "multipart/form-data"
_MAX_KEY_CHARACTERS = 255
_MAX_QUERY_FIELDS = 100
_MAX_SHOWN_CHARACTERS = 100


class Request:
    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        settings: HttpSettings,
        rate_limit: RateLimit,
        *,
        is_public: bool = False,
    ) -> None:
        """`is_public`: no credential is needed, and none is read."""
        self._scope = scope
        self.headers = Headers(scope=scope)
        self._receive = receive
        self._settings = settings
        self._rate_limit = rate_limit
        self.fault: ServiceError | None = None
        self._query: dict[str, str] | None = None
        self.credential = NOBODY if is_public else self._read_credential()

    def path_id(self, name: str) -> UUID:
        found = parse_id(self._scope["path_params"][name])
        if found is None:
            self.remember(f"{name} is not a UUID.")
        return found or LOWEST_ID

    def path_number(self, name: str) -> int:
        text = self._scope["path_params"][name]
        number = int(text) if DIGITS.fullmatch(text) else 0
        if not 1 <= number <= MAX_NUMBER:
            self.remember(f"{name} must be a number from 1 to {MAX_NUMBER}.")
        return number

    def check_query_names(self, known: Collection[str]) -> None:
        """A misspelled parameter would be ignored: a wrong name for the cursor gives the first page for ever."""
        if not self._scope["query_string"]:
            return
        self._query = self._read_query()
        for name in self._query:
            if name not in known:
                there_are = f"Known: {', '.join(sorted(known))}." if known else "This operation has none."
                shown = "".join(filter(str.isprintable, name))[:_MAX_SHOWN_CHARACTERS]
                self.remember(f'Unknown query parameter "{shown}". {there_are}')

    def last_event_id(self) -> int | None:
        given = self._headers("last-event-id")
        if not given:
            return None
        number = int(given[0]) if len(given) == 1 and DIGITS.fullmatch(given[0]) else MAX_EVENT_ID + 1
        if number > MAX_EVENT_ID:
            self.remember("Last-Event-ID must be an event ID or 0.")
        return number

    def prefers(self, media_type: str, default: str = JSON) -> bool:
        """Whether the caller prefers this media type to the default."""
        return prefers(",".join(self._headers("accept")), media_type, default)

    def has(self, etag: str) -> bool:
        """Whether If-None-Match names this tag. A malformed If-None-Match is ignored."""
        given = self._headers("if-none-match")
        tags = parse_tags(",".join(given)) if given else None
        return tags is not None and tags_match_weakly(tags, etag)

    def requested_range(self, etag: str) -> str | None:
        """The Range header, if it applies: on a GET, and if If-Range (when sent) names this tag."""
        given, condition = self._headers("range"), self._headers("if-range")
        if self._scope["method"] != "GET" or len(given) != 1 or (condition and condition != [etag]):
            return None
        return given[0]

    async def call(self, operation: Operation, resource: tuple[UUID, ...]) -> Call[Any]:
        """The request with its JSON body. A body of another type is read by `body_stream`."""
        match operation.payload:
            case Payload.NONE:
                pass
            case Payload.FILE:
                self.media_type()
            case Payload.GZIP:
                self._check_type(lambda given: given.strip().lower() == GZIP, GZIP)
            case _:
                self._check_type(lambda given: _JSON_TYPE.fullmatch(given) is not None, "application/json")
        head = self._head(operation)
        read_body = (lambda: None) if isinstance(operation.payload, Payload) else await self._json(operation.payload)
        return Call(operation=operation, resource=resource, read_body=read_body, **head)

    async def _json(self, body_type: type[T]) -> Callable[[], T]:
        try:
            value = decode_json(await self._body(self._settings.json_body_bytes).read(), body_type)
        except ServiceError as body_fault:
            return _raiser(body_fault)
        return lambda: value

    def media_type(self) -> str:
        """Of a body of any type: in lower case, without parameters."""
        given = self._headers("content-type")
        match = _MEDIA_TYPE.fullmatch(given[0]) if len(given) == 1 else None
        if match is None:
            self.remember(f"Content-Type must be a media type, such as {BYTES}.")
        if self._headers("content-encoding"):
            self.remember("Content-Encoding is not supported.")
        media_type = BYTES if match is None else match[1].lower()
        if media_type == _FORM:
            self.remember("The body must be the file itself, not a form.")
        return media_type

    def body_stream(self, limit_bytes: int) -> AsyncIterator[bytes]:
        return self._body(limit_bytes).stream()

    def _head(self, operation: Operation) -> dict[str, Any]:
        workspace_id = self._workspace_id(operation.workspace_required)
        key, if_match = self._idempotency_key(operation), self._if_match()
        return {
            "credential": self.credential,
            "rate_limit": self._rate_limit,
            "workspace_id": workspace_id,
            "idempotency_key": key,
            "if_match": if_match,
            "origin": self._origin(),
            # Last: the values above may record the first error.
            "fault": self.fault,
        }

    def _origin(self) -> Origin:
        address = client_address(self._scope, self._settings.trusted_proxies)
        return Origin(address, self._scope.get(REQUEST_ID_STATE))

    def _if_match(self) -> frozenset[str] | None:
        given = self._headers("if-match")
        if not given:
            return None
        tags = parse_tags(",".join(given))
        if tags is None:
            self.remember('If-Match must be * or ETags in quotes, such as "7".')
        return tags

    def _body(self, limit_bytes: int) -> RequestBody:
        given = self.headers.get("content-length", "")
        length = int(given) if DIGITS.fullmatch(given) else None
        return RequestBody(self._receive, length, limit_bytes, self._settings)

    def _read_credential(self) -> Credential:
        given = self._headers("authorization")
        if given:
            match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
            text = match[1] if match else None
        else:
            text = cookies.sent_secret(self._scope["method"], self.headers)
        credential = secrets.recognise(text) if text else None
        if credential is None or (not given and credential.kind is not CredentialKind.DEVICE):
            raise errors.unauthorized()
        if credential.kind is CredentialKind.DEVICE:
            named = self._headers("service-workspace")
            workspace_id = parse_id(named[0]) if len(named) == 1 else None
            return msgspec.structs.replace(credential, workspace_id=workspace_id)
        return credential

    def _check_type(self, accepts: Callable[[str], bool], wanted: str) -> None:
        given = self._headers("content-type")
        if len(given) != 1 or not accepts(given[0]):
            self.remember(f"Content-Type must be {wanted}.")
        if self._headers("content-encoding"):
            self.remember("Content-Encoding is not supported.")

    def _workspace_id(self, required: bool) -> UUID | None:
        given = self._headers("service-workspace")
        if not given:
            if required:
                self.remember("The header Service-Workspace is required.")
            return None
        found = parse_id(given[0]) if len(given) == 1 else None
        if found is None:
            self.remember("Service-Workspace must be one UUID.")
        return found

    def _idempotency_key(self, operation: Operation) -> str | None:
        """None for operations without receipts: a repeated DELETE is 404, so its receipt could never be returned, and
        the receipt of a password would have a fast hash of it."""
        if not operation.idempotent:
            return None
        given = self._headers("idempotency-key")
        if not given:
            return None
        if len(given) > 1 or not 1 <= len(given[0]) <= _MAX_KEY_CHARACTERS or not given[0].isprintable():
            self.remember("Idempotency-Key must be one header of 1 to 255 printable characters.")
        return given[0]

    def query_value(self, name: str) -> str | None:
        if self._query is None:
            self._query = self._read_query()
        return self._query.get(name)

    def _read_query(self) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            pairs = parse_qsl(
                self._scope["query_string"].decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_QUERY_FIELDS,
            )
        except ValueError:
            self.remember("The query is malformed.")
            return found
        for name, value in pairs:
            if name in found:
                self.remember("A query parameter is given twice.")
            found[name] = value
        return found

    def _headers(self, name: str) -> list[str]:
        return [_decoded(value) for value in self.headers.getlist(name)]

    def remember(self, reason: str) -> None:
        if self.fault is None:
            self.fault = errors.invalid(reason)


def _decoded(value: str) -> str:
    """The value as UTF-8 if it is valid UTF-8; `value` is decoded as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _raiser(fault: ServiceError) -> Callable[[], NoReturn]:
    def read() -> NoReturn:
        raise fault

    return read
