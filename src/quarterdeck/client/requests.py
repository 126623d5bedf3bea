"""Builds requests, without the server's address and the credential. No I/O."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Generic, TypedDict, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, Struct

from quarterdeck import __version__
from quarterdeck.client.errors import InvalidArgument
from quarterdeck.core.ids import parse_id

T = TypeVar("T")
Id = UUID | str
# The revision of a record, or its ETag.
IfMatch = int | str

JSON = "application/json"
_CLIENT = f"quarterdeck-python/{__version__}"
_PRINTABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_KEY = re.compile(r"[\x21-\x7e]+")
_PLACEHOLDER = re.compile(r"{(\w+)}")
_MAX_IDEMPOTENCY_KEY = 255


class Operation(Struct, Generic[T], frozen=True):
    """What is needed to call an operation of the API."""

    name: str
    method: str
    path: str
    # The type of the response's JSON. NoneType: it has none, or is not JSON.
    result: type[T]
    idempotent: bool = False
    conditional: bool = False
    # The field with a secret, which replayed responses do not have.
    shown_once: str | None = None


class Options(TypedDict, total=False):
    """The keyword arguments that every method has."""

    # Instead of the workspace of the client.
    workspace_id: Id | None


class ConditionalOptions(Options, total=False):
    # The change is made only if the record is still the same.
    if_match: IfMatch | None


class IdempotentOptions(Options, total=False):
    # Made by the client by default. With the same key, a repeated call takes effect once.
    idempotency_key: str | None


class ChangeOptions(ConditionalOptions, IdempotentOptions, total=False):
    pass


class Request(Struct, Generic[T], frozen=True, kw_only=True):
    operation: Operation[T]
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes | None = None

    @property
    def method(self) -> str:
        return self.operation.method

    @property
    def has_idempotency_key(self) -> bool:
        return "Idempotency-Key" in self.headers


class Target(Struct, frozen=True):
    """The server's address and the headers of every request. `repr` does not show the credential."""

    base_url: str
    headers: dict[str, str]
    # Plain http to a loopback address.
    is_local_http: bool = False

    def __repr__(self) -> str:
        return self.base_url


def target(base_url: str, key: str | None, workspace_id: Id | None, *, allow_http: bool) -> Target:
    # A key read from a file may end in a line break.
    key = None if key is None else key.strip()
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidArgument("The key must be printable ASCII without spaces.")
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"base_url is not a valid URL: {error}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidArgument("base_url must start with http:// or https:// and include a host.")
    if parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        raise InvalidArgument("base_url must not contain a user name, a query or a fragment.")
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise InvalidArgument(
            f"The key would be sent unencrypted to {host}. Use https, or allow_http=True on a trusted network."
        )
    headers = {"Quarterdeck-Client": _CLIENT, "User-Agent": _CLIENT, "Accept": JSON}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if workspace_id is not None:
        headers["Service-Workspace"] = id_text("workspace_id", workspace_id)
    return Target(base_url.rstrip("/"), headers, parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def build(
    operation: Operation[T],
    ids: Sequence[Id | int] = (),
    *,
    query: Mapping[str, object] | None = None,
    body: Mapping[str, object] | None = None,
    if_match: IfMatch | None = None,
    idempotency_key: str | None = None,
    workspace_id: Id | None = None,
    headers: Mapping[str, str] | None = None,
) -> Request[T]:
    """`ids` are the values for the path, in its order. An Idempotency-Key is created here, once per call, so that all
    attempts of a call have the same one."""
    if if_match is not None and not operation.conditional:
        raise TypeError(f"{operation.name} has no argument if_match.")
    if idempotency_key is not None and not operation.idempotent:
        raise TypeError(f"{operation.name} has no argument idempotency_key.")
    all_headers = dict(headers or {})
    if workspace_id is not None:
        all_headers["Service-Workspace"] = id_text("workspace_id", workspace_id)
    if if_match is not None:
        all_headers["If-Match"] = f'"{if_match}"' if isinstance(if_match, int) else _header_text("if_match", if_match)
    if operation.idempotent:
        key = uuid4().hex if idempotency_key is None else _header_text("idempotency_key", idempotency_key)
        if len(key) > _MAX_IDEMPOTENCY_KEY:
            raise InvalidArgument(f"idempotency_key is longer than {_MAX_IDEMPOTENCY_KEY} characters.")
        all_headers["Idempotency-Key"] = key
    content = None
    if body is not None:
        all_headers["Content-Type"] = JSON
        content = _encode({name: value for name, value in body.items() if value is not UNSET})
    return Request(
        operation=operation,
        path=_fill(operation.path, ids),
        query=dict(_query_texts(query or {})),
        headers=all_headers,
        content=content,
    )


def _encode(body: dict[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"The arguments cannot be encoded as JSON: {error}") from None


def _fill(template: str, ids: Sequence[Id | int]) -> str:
    texts = {}
    for name, value in zip(_PLACEHOLDER.findall(template), ids, strict=True):
        texts[name] = str(value) if isinstance(value, int) else id_text(name, value)
    return template.format(**texts)


def id_text(name: str, value: Id) -> str:
    """Parsed strictly, so that no text can change the path."""
    found = value if isinstance(value, UUID) else parse_id(value)
    if found is None:
        raise InvalidArgument(f"{name} is not a UUID.")
    return str(found)


def _query_texts(query: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in query.items():
        if value is None:
            continue
        if isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, datetime):
            if value.tzinfo is None:
                raise InvalidArgument(f"{name} needs a time zone, such as datetime.now(UTC).")
            yield name, value.isoformat()
        else:
            yield name, str(value.value if isinstance(value, Enum) else value)


def media_type(value: str) -> str:
    if not _MEDIA_TYPE.fullmatch(value):
        raise InvalidArgument("media_type must be a media type, such as text/csv.")
    return value


def _header_text(name: str, value: str) -> str:
    if not _PRINTABLE.fullmatch(value):
        raise InvalidArgument(f"{name} must be printable ASCII without leading or trailing spaces.")
    return value
