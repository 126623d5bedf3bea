"""Headers as a request has them, put in order once."""

import pytest

from quarterdeck.http.headers import Headers


def test_every_value_of_a_name_in_the_order_sent() -> None:
    headers = Headers([(b"host", b"a"), (b"x", b"1"), (b"x", b"2"), (b"y", b"")])
    assert headers.all(b"x") == [b"1", b"2"]
    assert headers.all(b"host") == [b"a"]
    assert headers.all(b"y") == [b""]
    assert headers.all(b"z") == []
    assert b"x" in headers
    assert b"z" not in headers


@pytest.mark.parametrize(
    ("given", "length"),
    [([], None), ([b"0"], 0), ([b"17"], 17), ([b"+1"], None), ([b"1_0"], None), ([b" 1"], None), ([b"\xb2"], None)],
)
def test_the_length_of_a_body_is_digits(given: list[bytes], length: int | None) -> None:
    assert Headers([(b"content-length", value) for value in given]).content_length == length
