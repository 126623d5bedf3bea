"""Array literals written by hand come back from PostgreSQL as they went in."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quarterdeck.db.arrays import bytea_array, text_array, uuid_array
from quarterdeck.db.binary_arrays import Of, binary_array

# PostgreSQL holds neither U+0000 nor lone surrogates in text, and `Text` refuses both before.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NASTY_TEXT = st.text(st.sampled_from("\"\\{},;()'$ \t\r\n\x01\x1b\x7f\u00a0\u2028NULnul%s\U0001f642e\u0301"))
TEXTS = st.lists(st.none() | ANY_TEXT | NASTY_TEXT)
UNHURRIED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def connection(postgres_url: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def returned(connection: "psycopg.Connection[tuple[object, ...]]", literal: str, type_: str) -> object:
    row = connection.execute(f"SELECT %s::{type_}[]".encode(), (literal,)).fetchone()
    assert row is not None
    return row[0]


@UNHURRIED
@given(TEXTS)
@example([])
@example([None])
@example(["NULL", "null", None, "", " ", "{}", "{", "}", '"', '""', "\\", '\\"', "\\\\", ",", "\\x00", "\\u0041"])
@example(["a" * 100_000])
def test_texts(connection: "psycopg.Connection[tuple[object, ...]]", items: list[str | None]) -> None:
    assert returned(connection, text_array(items), "text") == items


@UNHURRIED
@given(st.lists(st.binary(max_size=64)))
@example([b"", b"\0", b"\\", b'"', bytes(range(256))])
def test_bytes(connection: "psycopg.Connection[tuple[object, ...]]", items: list[bytes]) -> None:
    assert returned(connection, bytea_array(items), "bytea") == items


@UNHURRIED
@given(st.lists(st.none() | st.uuids()))
@example([UUID(int=0), UUID(int=2**128 - 1), None])
def test_uuids(connection: "psycopg.Connection[tuple[object, ...]]", items: list[UUID | None]) -> None:
    assert returned(connection, uuid_array(items), "uuid") == items


def received(connection: "psycopg.Connection[tuple[object, ...]]", of: Of, items: list[bytes | None]) -> object:
    """As PostgreSQL has understood what it was sent."""
    type_ = of.name.lower()
    result = connection.pgconn.exec_params(
        f"SELECT $1::{type_}[]".encode(), [binary_array(of, items)], param_formats=[1], result_format=0
    )
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
    written = result.get_value(0, 0)
    assert written is not None
    row = connection.execute(f"SELECT %s::{type_}[]".encode(), (written.decode(),)).fetchone()
    assert row is not None
    return row[0]


@UNHURRIED
@given(TEXTS)
@example([])
@example([None])
@example(["a" * 100_000, None, ""])
def test_binary_texts(connection: "psycopg.Connection[tuple[object, ...]]", items: list[str | None]) -> None:
    assert received(connection, Of.TEXT, [None if item is None else item.encode() for item in items]) == items


@UNHURRIED
@given(st.lists(st.none() | st.binary(max_size=64)))
@example([b"", b"\0", None, bytes(range(256))])
def test_binary_bytes(connection: "psycopg.Connection[tuple[object, ...]]", items: list[bytes | None]) -> None:
    assert received(connection, Of.BYTEA, items) == items


@UNHURRIED
@given(st.lists(st.none() | st.uuids()))
@example([UUID(int=0), UUID(int=2**128 - 1), None])
def test_binary_uuids(connection: "psycopg.Connection[tuple[object, ...]]", items: list[UUID | None]) -> None:
    assert received(connection, Of.UUID, [None if item is None else item.bytes for item in items]) == items


@UNHURRIED
@given(st.lists(st.booleans()))
def test_binary_booleans(connection: "psycopg.Connection[tuple[object, ...]]", items: list[bool]) -> None:
    assert received(connection, Of.BOOLEAN, [bytes([item]) for item in items]) == items
