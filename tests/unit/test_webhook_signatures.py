"""Signatures, verified by the words of the Standard Webhooks specification and not by our own code."""

import base64
import hashlib
import hmac
import time
from typing import Any
from uuid import UUID

import pytest

from quarterdeck.core.secrets import redact
from quarterdeck.webhooks import signatures
from tests.pages import blocks_of, texts_of
from tests.receivers import verify

MESSAGE = UUID("0192f0d8-6a27-7908-8c4d-1e5b3f7a9d08")
BODY = '{"type":"run.succeeded","text":"é"}'.encode()


def test_the_example_of_the_specification() -> None:
    """Its published secret, id, time and body give its published signature."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    expected = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() == expected


def test_signature_verifies_with_the_shown_secret() -> None:
    secret = signatures.new_secret()
    headers = signatures.headers(MESSAGE, 1_700_000_000, BODY, [secret])
    assert headers["webhook-id"] == str(MESSAGE)
    assert headers["webhook-timestamp"] == "1700000000"
    assert verify(signatures.encode_secret(secret), headers, BODY)


def test_signature_equals_a_computed_hmac() -> None:
    headers = signatures.headers(MESSAGE, 1_700_000_000, BODY, [b"k" * 32])
    signed = f"{MESSAGE}.1700000000.".encode() + BODY
    digest = hmac.new(b"k" * 32, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize(
    ("name", "value"),
    [("webhook-id", "another"), ("webhook-timestamp", "1700000001"), ("webhook-signature", "v1,AAAA")],
)
def test_changed_message_does_not_verify(name: str, value: str) -> None:
    secret = signatures.new_secret()
    headers = signatures.headers(MESSAGE, 1_700_000_000, BODY, [secret]) | {name: value}
    assert not verify(signatures.encode_secret(secret), headers, BODY)


def test_another_body_or_secret_does_not_verify() -> None:
    secret = signatures.new_secret()
    headers = signatures.headers(MESSAGE, 1_700_000_000, BODY, [secret])
    assert not verify(signatures.encode_secret(secret), headers, BODY + b" ")
    assert not verify(signatures.encode_secret(signatures.new_secret()), headers, BODY)


def test_two_secrets_make_two_signatures() -> None:
    new, old = signatures.new_secret(), signatures.new_secret()
    headers = signatures.headers(MESSAGE, 1_700_000_000, BODY, [new, old])
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert verify(signatures.encode_secret(new), headers, BODY)
    assert verify(signatures.encode_secret(old), headers, BODY)


def test_a_secret_has_the_length_that_the_specification_asks_for() -> None:
    shown = signatures.encode_secret(signatures.new_secret())
    assert shown.startswith("whsec_")
    assert 24 <= len(base64.b64decode(shown.removeprefix("whsec_"), validate=True)) <= 64


def test_log_lines_contain_no_signing_secret() -> None:
    shown = signatures.encode_secret(b"\xff\xfb" * 16)
    assert redact(f"secret {shown} end") == "secret whsec_[redacted] end"


def test_the_verification_in_the_document_is_right() -> None:
    (program,) = texts_of(blocks_of("docs/use/webhooks.md", "python"))
    documented: dict[str, Any] = {}
    exec(program, documented)
    secret, now = signatures.new_secret(), int(time.time())
    headers = signatures.headers(MESSAGE, now, BODY, [signatures.new_secret(), secret])
    assert documented["verify"](signatures.encode_secret(secret), headers, BODY)
    assert not documented["verify"](signatures.encode_secret(secret), headers, BODY + b" ")
    assert not documented["verify"](signatures.encode_secret(signatures.new_secret()), headers, BODY)
    replayed = signatures.headers(MESSAGE, now - 3600, BODY, [secret])
    assert not documented["verify"](signatures.encode_secret(secret), replayed, BODY)
