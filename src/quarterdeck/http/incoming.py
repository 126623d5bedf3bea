"""One HTTP request, read strictly. Faults of path, query and headers are remembered, not raised: `access/call.py`."""

import re
from collections.abc import AsyncIterator, Callable
from typing import NoReturn, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from starlette.types import Receive, Scope

from quarterdeck import errors
from quarterdeck.access import secrets
from quarterdeck.access.call import Call
from quarterdeck.access.model import Credential
from quarterdeck.errors import ServiceError
from quarterdeck.http.accept import prefers
from quarterdeck.http.bodies import decode_json, receive_body
from quarterdeck.http.envelope import JSON
from quarterdeck.ids import LOWEST_ID, parse_id
from quarterdeck.pages import DEFAULT_LIMIT, MAX_LIMIT, LogPageRequest, PageRequest
from quarterdeck.settings import HttpSettings

T = TypeVar("T")

GZIP = "application/gzip"
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE | re.ASCII)
# int() also takes signs, underscores, blanks and the digits of other scripts.
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_JSON_TYPE = re.compile(r"""application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?""", re.IGNORECASE | re.ASCII)
_MAX_KEY_CHARACTERS = 255
_MAX_QUERY_FIELDS = 100
MAX_EVENT_ID = 2**63 - 1


class Incoming:
    def __init__(self, scope: Scope, receive: Receive, settings: HttpSettings) -> None:
        self._scope = scope
        self._receive = receive
        self._settings = settings
        self._fault: ServiceError | None = None
        self._query: dict[str, str] | None = None
        self._credential = self._read_credential()

    def path_id(self, name: str) -> UUID:
        found = parse_id(self._scope["path_params"][name])
        if found is None:
            self._remember(f"{name} is not a UUID.")
        return found or LOWEST_ID

    def page_request(self) -> PageRequest:
        limit = self._query_value("limit")
        after = self._query_value("after")
        order = self._query_value("order")
        number = DEFAULT_LIMIT if limit is None else self._limit(limit)
        cursor = None if after is None else parse_id(after)
        if after is not None and cursor is None:
            self._remember("after is not a UUID.")
        if order not in (None, "asc", "desc"):
            self._remember("order must be asc or desc.")
        return PageRequest(number, cursor, order != "asc")

    def log_page_request(self) -> LogPageRequest:
        """`Last-Event-ID` wins over `after`: a browser that comes back sends it with the address of the first time."""
        limit = self._query_value("limit")
        after = self._query_value("after")
        number = DEFAULT_LIMIT if limit is None else self._limit(limit)
        start = 0 if after is None else self._event_id("after", [after])
        last_seen = self._headers("last-event-id")
        return LogPageRequest(number, self._event_id("Last-Event-ID", last_seen) if last_seen else start)

    def prefers(self, media_type: str) -> bool:
        """To JSON, which everybody gets who does not ask for another."""
        return prefers(",".join(self._headers("accept")), media_type, JSON)

    async def call(self, body_type: type[T]) -> Call[T]:
        """The whole request, with its JSON body."""
        self._check_type(lambda given: _JSON_TYPE.fullmatch(given) is not None, "application/json")
        workspace_id, key = self._workspace_id(required=False), self._idempotency_key()
        try:
            value = decode_json(await self._read_all(), body_type)
        except ServiceError as body_fault:
            return Call(self._credential, workspace_id, key, self._fault, _raiser(body_fault))
        return Call(self._credential, workspace_id, key, self._fault, lambda: value)

    def call_without_body(self, *, workspace_required: bool = False, gzip: bool = False) -> Call[None]:
        """The request but for its body, which is not wanted or comes by `archive`."""
        if gzip:
            self._check_type(lambda given: given.strip().lower() == GZIP, GZIP)
        workspace_id, key = self._workspace_id(workspace_required), self._idempotency_key()
        return Call(self._credential, workspace_id, key, self._fault, lambda: None)

    def archive(self, limit_bytes: int) -> AsyncIterator[bytes]:
        return receive_body(self._receive, self._announced_bytes(), limit_bytes, self._settings)

    async def _read_all(self) -> bytes:
        limit = self._settings.json_body_bytes
        chunks = receive_body(self._receive, self._announced_bytes(), limit, self._settings)
        return b"".join([chunk async for chunk in chunks])

    def _announced_bytes(self) -> int | None:
        given = self._headers("content-length")
        return int(given[0]) if given and _DIGITS.fullmatch(given[0]) else None

    def _read_credential(self) -> Credential:
        given = self._headers("authorization")
        match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        credential = secrets.recognise(match[1]) if match else None
        if credential is None:
            raise errors.unauthorized()
        return credential

    def _check_type(self, accepts: Callable[[str], bool], wanted: str) -> None:
        given = self._headers("content-type")
        if len(given) != 1 or not accepts(given[0]):
            self._remember(f"Content-Type must be {wanted}.")
        if self._headers("content-encoding"):
            self._remember("Content-Encoding is not supported.")

    def _workspace_id(self, required: bool) -> UUID | None:
        given = self._headers("service-workspace")
        if not given:
            if required:
                self._remember("The header Service-Workspace is required.")
            return None
        found = parse_id(given[0]) if len(given) == 1 else None
        if found is None:
            self._remember("Service-Workspace must be one UUID.")
        return found

    def _idempotency_key(self) -> str | None:
        given = self._headers("idempotency-key")
        if not given:
            return None
        if len(given) > 1 or not 1 <= len(given[0]) <= _MAX_KEY_CHARACTERS or not given[0].isprintable():
            self._remember("Idempotency-Key must be one header of 1 to 255 printable characters.")
        return given[0]

    def _limit(self, text: str) -> int:
        number = int(text) if _DIGITS.fullmatch(text) else 0
        if not 1 <= number <= MAX_LIMIT:
            self._remember(f"limit must be a number from 1 to {MAX_LIMIT}.")
        return number

    def _event_id(self, name: str, given: list[str]) -> int:
        number = int(given[0]) if len(given) == 1 and _DIGITS.fullmatch(given[0]) else MAX_EVENT_ID + 1
        if number > MAX_EVENT_ID:
            self._remember(f"{name} must be the id of an event, or 0.")
        return number

    def _query_value(self, name: str) -> str | None:
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
            self._remember("The query is malformed.")
            return found
        for name, value in pairs:
            if name in found:
                self._remember("A query parameter is given twice.")
            found[name] = value
        return found

    def _headers(self, name: str) -> list[str]:
        wanted = name.encode()
        return [_decoded(value) for key, value in self._scope["headers"] if key == wanted]

    def _remember(self, reason: str) -> None:
        if self._fault is None:
            self._fault = errors.invalid(reason)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _raiser(fault: ServiceError) -> Callable[[], NoReturn]:
    def read() -> NoReturn:
        raise fault

    return read
