"""Generated headers, bodies and queries: each is parsed, or refused with a `ServiceError`."""

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, TypeVar
from unittest.mock import Mock
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import CredentialKind
from quarterdeck.core.call import parse_tags, tags_match, tags_match_weakly
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.ids import parse_id
from quarterdeck.core.operation import MAX_NUMBER, Number, Query
from quarterdeck.core.pages import MAX_EVENT_ID, PageRequest, PathPageRequest
from quarterdeck.core.secrets import mint
from quarterdeck.core.settings import HttpSettings
from quarterdeck.core.text_types import Moment
from quarterdeck.http.content_negotiation import accepts_encoding, prefers
from quarterdeck.http.downloads import byte_span
from quarterdeck.http.parameters import log_page_reader, query_reader
from quarterdeck.http.request import Request
from quarterdeck.http.request_body import decode_json
from tests.fuzzing import cases

T = TypeVar("T")

BODIES = sorted(
    {operation.payload for operation in OPERATIONS if isinstance(operation.payload, type)},
    key=lambda body: body.__name__,
)
SECRET = mint(CredentialKind.API_KEY, "live").text
# Header values: meaningful parts mixed with any bytes that the server accepts.
written = st.lists(
    st.sampled_from(['"', "W/", "*", ",", ";", "q=", "0.5", "bytes=", "-", "9" * 19, "9" * 25, "a/b", " "])
    | st.text(st.characters(max_codepoint=255), max_size=4),
    max_size=8,
).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


def tried(read: Callable[[], T]) -> tuple[T | None, ErrorKind | None]:
    """The value, or the kind of the refusal. Any other exception fails the test."""
    try:
        return read(), None
    except ServiceError as fault:
        return None, fault.kind


@given(written)
def test_lists_of_tags(text: str) -> None:
    tags = parse_tags(text)
    if tags is not None:
        assert all(tag == "*" or tag.endswith('"') for tag in tags)
        assert not tags_match(tags, '"7"') or "*" in tags or '"7"' in text
        assert tags_match_weakly(tags, '"7"') >= tags_match(tags, '"7"')


@given(written)
def test_accept(text: str) -> None:
    assert not (prefers(text, "a/b", "c/d") and prefers(text, "c/d", "a/b"))
    assert accepts_encoding(text, "gzip") in (True, False)


@given(written, st.integers(0, 2**63))
def test_ranges(text: str, size: int) -> None:
    span, refused = tried(lambda: byte_span(text, size))
    assert refused in (None, ErrorKind.UNSATISFIABLE_RANGE)
    assert span is None or 0 <= span[0] < span[1] <= size


@given(st.text())
def test_ids(text: str) -> None:
    found = parse_id(text)
    assert found is None or str(found) == text.lower()


@given(
    body=st.sampled_from(BODIES),
    raw=st.binary(max_size=60) | json_values.map(lambda value: msgspec.json.encode(value)),
)
@settings(max_examples=cases(1000))
def test_bodies(body: type[Any], raw: bytes) -> None:
    value, refused = tried(lambda: decode_json(raw, body))
    assert isinstance(value, body) if refused is None else refused is ErrorKind.INVALID


@pytest.mark.parametrize("deep", [b"[", b'{"a":', b'{"type":[', b'[{"a":'])
def test_deeply_nested_bodies_are_refused(deep: bytes) -> None:
    for body in BODIES:
        with pytest.raises(ServiceError):
            decode_json(deep * 100_000, body)


class AllTypes(Query, frozen=True):
    limit: Number | None = None
    after: UUID | None = None
    since: Moment | None = None
    until: date | None = None
    archived: bool = False
    order: Annotated[str, Meta(min_length=1, max_length=5, pattern="^[a-z]*$")] = "asc"


READERS: dict[str, Callable[[Request], Any]] = {
    "page": query_reader(PageRequest),
    "log": log_page_reader(),
    "path": query_reader(PathPageRequest),
    "query": query_reader(AllTypes),
}
queries = st.lists(
    st.sampled_from(
        [
            "limit=",
            "after=",
            "order=",
            "since=",
            "until=",
            "archived=",
            "&",
            "5",
            "asc",
            "true",
            "2026-01-01T00:00Z",
            "%",
            "%ff",
        ]
    )
    | st.text(st.characters(max_codepoint=127), max_size=4),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("name", READERS)
@given(query=queries, last_seen=st.none() | written)
def test_queries(name: str, query: str, last_seen: str | None) -> None:
    """Errors are kept for later and not raised; values are within their bounds."""
    headers = [(b"authorization", f"Bearer {SECRET}".encode())]
    headers += [] if last_seen is None else [(b"last-event-id", last_seen.encode("latin-1"))]
    scope = {"type": "http", "method": "GET", "headers": headers, "query_string": query.encode()}
    request = Request(scope, _no_body, HttpSettings(), Mock())
    value = READERS[name](request)
    if request.fault is None and name == "log":
        assert 0 <= value.after <= MAX_EVENT_ID
    if request.fault is None and name == "query":
        assert value.limit is None or 1 <= value.limit <= MAX_NUMBER
        assert 1 <= len(value.order) <= 5
        assert re.search("^[a-z]*$", value.order)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit must be a number from 1 to 2147483647."),
        ("after=x", "after is not a UUID."),
        ("since=2026-01-01", "since must be a time with an offset, such as 2026-03-02T09:30:00Z."),
        ("until=soon", "until must be a date such as 2026-03-02, or a time with an offset."),
        ("archived=yes", "archived must be true or false."),
        ("order=", "order must not be empty."),
        ("order=abcdef", "order must have at most 5 characters."),
        ("order=UP", "order has characters that are not allowed."),
        ("order=%00", "order must not contain U+0000."),
    ],
)
def test_what_the_types_of_a_query_refuse(query: str, message: str) -> None:
    headers = [(b"authorization", f"Bearer {SECRET}".encode())]
    scope = {"type": "http", "method": "GET", "headers": headers, "query_string": query.encode()}
    request = Request(scope, _no_body, HttpSettings(), Mock())
    query_reader(AllTypes)(request)
    assert request.fault is not None
    assert str(request.fault) == message


async def _no_body() -> Any:
    raise AssertionError("the body was read")
