"""One call of an operation: the parsed request and its answer, independent of HTTP.

Errors in the request are kept in `fault` instead of being raised where they are found, because the order of checks
is a promise: an invalid credential wins over a bad path, and an invisible object wins over a bad body.
"""

import hashlib
import re
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, Origin, Principal
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.operation import Operation

# Entity tags: built from the revision of a record, compared as in RFC 9110.

ANY_TAG = "*"
_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_LIST = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")
# For the OpenAPI document: `*` or a list of tags.
TAGS_PATTERN = rf"^(?:\s*\*\s*|{_LIST.pattern})$"


def etag(revision: int) -> str:
    return f'"{revision}"'


def parse_tags(text: str) -> frozenset[str] | None:
    """The tags of an If-Match or If-None-Match header, or None if it is malformed."""
    if text.strip() == ANY_TAG:
        return frozenset({ANY_TAG})
    return frozenset(_TAG.findall(text)) if _LIST.fullmatch(text) else None


def tags_match(tags: frozenset[str], current: str) -> bool:
    """Strong comparison: a weak tag never matches."""
    return ANY_TAG in tags or current in tags


def tags_match_weakly(tags: frozenset[str], current: str) -> bool:
    return ANY_TAG in tags or current.removeprefix("W/") in {tag.removeprefix("W/") for tag in tags}


Body = TypeVar("Body")
Record = TypeVar("Record")


class RateLimit(Protocol):
    """The rate limit of one request."""

    @property
    def workspace_id(self) -> UUID | None:
        """The workspace that the request is charged to. None if the credential is not known to be valid."""

    @property
    def is_allowed(self) -> bool:
        """Whether the request was charged and is within the limits."""

    async def charge(self, credential: Credential, principal: Principal) -> None:
        """Charge the request unless it was charged before. Raise if it exceeds a limit. The credential is valid."""

    def forget(self, credential: Credential) -> None:
        """The credential turned out invalid: stop charging its former workspace for it."""


class Call(Struct, Generic[Body], frozen=True):
    operation: Operation
    # The ids in the path.
    resource: tuple[UUID, ...]
    credential: Credential
    workspace_id: UUID | None
    idempotency_key: str | None
    # The first error in path, query and headers.
    fault: ServiceError | None
    # Raises if the body is invalid.
    read_body: Callable[[], Body]
    rate_limit: RateLimit
    origin: Origin = Origin()
    # The tags of If-Match, or None.
    if_match: frozenset[str] | None = None

    @property
    def owner(self) -> Hashable:
        """Whose share of the connections the request uses: its workspace. All callers whose credential was not checked
        yet have one share together."""
        return self.rate_limit.workspace_id or "unknown callers"

    def check_unchanged(self, revision: int) -> None:
        """`revision` must come from a locked row, so that it cannot change before the transaction ends."""
        if self.if_match is not None and not tags_match(self.if_match, etag(revision)):
            raise errors.precondition_failed()


class Answer(Struct, Generic[Record], frozen=True):
    """The encoded record, or nothing for `Answer[None]`. Its status belongs to the operation, so a receipt need not
    hold it."""

    body: bytes
    replayed: bool = False


def fingerprint(resource: tuple[UUID, ...], body: object) -> bytes:
    """Covers the decoded body, so that the same JSON with other spaces or order of fields has the same fingerprint."""
    digest = hashlib.sha256()
    for identifier in resource:
        digest.update(identifier.bytes)
    digest.update(msgspec.json.encode(body, order="deterministic"))
    return digest.digest()
