"""The Range header and the names of downloads."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.http.downloads import byte_span, safe_name


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-4", (2, 5)),
        ("bytes=7-", (7, 10)),
        ("bytes=0-", (0, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-30", (0, 10)),
        ("bytes=9-9223372036854775807", (9, 10)),
        ("Bytes=1-1", (1, 2)),
        (" bytes=1-1 ", (1, 2)),
        ("bytes=4-2", None),
        ("bytes=0-1,4-5", None),
        ("bytes=0-1, 2-", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes = 0-1", None),
        ("bytes=+1-2", None),
        ("bytes=１-2", None),
        ("bytes=0x1-2", None),
        ("bytes=1-2\n3", None),
        ("lines=0-1", None),
        ("", None),
    ],
)
def test_one_range_is_heeded_and_all_else_ignored(text: str, span: tuple[int, int] | None) -> None:
    assert byte_span(text, 10) == span


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=9999999999999999999-"])
def test_behind_the_end_is_refused(text: str) -> None:
    with pytest.raises(ServiceError) as fault:
        byte_span(text, 10)
    assert fault.value.kind is ErrorKind.UNSATISFIABLE_RANGE


def test_empty_content_has_no_ranges() -> None:
    assert byte_span("bytes=0-", 0) is None


@given(st.text(max_size=40), st.integers(0, 100))
def test_a_span_lies_within(text: str, size: int) -> None:
    span = byte_span(text, size)
    assert span is None or 0 <= span[0] < span[1] <= size


@given(st.text(max_size=300))
def test_safe_name_contains_safe_characters_only(text: str) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name)


def test_names_are_kept_as_far_as_they_are_safe() -> None:
    assert safe_name("Report writer (v2)") == "Report-writer-v2"
    assert safe_name('../../etc/"passwd\r\n') == "etc-passwd"
    assert safe_name("報告") == "download"
    assert safe_name("run.sh") == "run.sh"
