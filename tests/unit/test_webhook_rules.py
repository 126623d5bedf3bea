"""Which webhook attempts are made again, and when."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from quarterdeck.core.settings import Settings, SettingsError, WebhookSettings, read_settings
from quarterdeck.webhooks import rules

STRICT = WebhookSettings()
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


def pause(turn: int, random: float = 0.0, retry_after: str | None = None) -> float | None:
    found = rules.pause_after(turn, STRICT, NOW, random, retry_after)
    return None if found is None else found.total_seconds()


def test_the_schedule() -> None:
    assert [pause(turn) for turn in range(1, 11)] == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400, None]


def test_pauses_have_up_to_a_tenth_of_jitter() -> None:
    assert pause(2, 1.0) == pytest.approx(330)
    assert pause(2, 0.5) == pytest.approx(315)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("0", 5),
        ("120", 120),
        ("100000000", 86400),
        ("-1", 5),
        ("soon", 5),
        ("", 5),
        ("１２", 5),
        (format_datetime(NOW + timedelta(minutes=2), usegmt=True), 120),
        (format_datetime(NOW - timedelta(minutes=2), usegmt=True), 5),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), 86400),
        ("Mon, 02 Mar 2026 09:32:00", 120),
        ("Mon, 99 Mar 2026 09:32:00 GMT", 5),
    ],
)
def test_retry_after_is_heeded_within_bounds(asked: str, seconds: float) -> None:
    assert pause(1, retry_after=asked) == seconds


def test_retry_after_gives_no_further_attempt() -> None:
    assert pause(10, retry_after="1") is None


@pytest.mark.parametrize("text", ["", "x", "5,", ",5", "5,,5", "-5", "5.5", "1" * 8, ",".join(["1"] * 21)])
def test_invalid_schedule_is_refused(text: str) -> None:
    given = {"QUARTERDECK_WEBHOOK_RETRY_SECONDS": text}
    if text == "":
        assert read_settings(given) == Settings()
        return
    with pytest.raises(SettingsError, match="RETRY_SECONDS"):
        read_settings(given)


def test_encryption_keys_are_not_shown_in_errors() -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings({"QUARTERDECK_ENCRYPTION_KEYS": "hidden", "QUARTERDECK_WEBHOOK_KEEP_DAYS": "x"})
    assert "hidden" not in str(refused.value)
