import hashlib
import logging
import sys

import pytest

from quarterdeck.core.actors import CredentialKind
from quarterdeck.core.logging import JsonLines, fields
from quarterdeck.core.secrets import mint, recognise, redact


@pytest.mark.parametrize(("kind", "marker"), [(CredentialKind.API_KEY, "qd"), (CredentialKind.SESSION_TOKEN, "qds")])
def test_a_minted_secret_is_recognised_by_its_hash(kind: CredentialKind, marker: str) -> None:
    secret = mint(kind, "live")
    assert secret.text.startswith(f"{marker}_live_")
    assert len(secret.text) == len(f"{marker}_live_") + 46
    assert secret.prefix == secret.text[: len(f"{marker}_live_") + 8]
    found = recognise(secret.text)
    assert found is not None
    assert (found.kind, found.secret_hash) == (kind, hashlib.sha256(secret.text.encode()).digest())


def test_every_typo_of_one_character_is_caught_without_a_database() -> None:
    text = mint(CredentialKind.API_KEY, "live").text
    start = len("qd_live_")
    for index in range(start, len(text)):
        other = "a" if text[index] != "a" else "b"
        assert recognise(text[:index] + other + text[index + 1 :]) is None


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "a", lambda text: text[:-1], lambda text: f"{text}\n",
               lambda text: text.replace("qd_", "qx_"), lambda text: text.replace("_live_", "__"), lambda text: ""],
)  # fmt: skip
def test_other_forms_are_not_recognised(change: object) -> None:
    assert callable(change)
    assert recognise(change(mint(CredentialKind.API_KEY, "live").text)) is None


def test_secrets_do_not_show_by_accident() -> None:
    secret = mint(CredentialKind.SESSION_TOKEN, "live")
    assert secret.text not in repr(secret)
    assert secret.text not in f"{secret}"
    assert redact(f"GET /x/{secret.text}/y") == "GET /x/qds_[redacted]/y"


def test_no_part_of_a_log_line_holds_one() -> None:
    secret = mint(CredentialKind.API_KEY, "live").text
    try:
        raise ValueError(f"a fault with {secret}")
    except ValueError:
        fault = sys.exc_info()
    record = logging.LogRecord("quarterdeck", logging.WARNING, "", 0, "a message with %s", (secret,), fault)
    record.__dict__ |= fields(reason=f"a provider answered {secret}", tries=2)
    line = JsonLines().format(record)
    assert secret not in line
    assert line.count("qd_[redacted]") == 3
    assert '"tries":2' in line
