import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.ids import created_at, first_id_at, new_id, parse_id

# The same in every process of a parallel run.
SOME_ID = UUID("8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55")


def test_is_a_uuid_of_version_seven_made_now() -> None:
    identifier = new_id()
    assert (identifier.version, identifier.variant) == (7, "specified in RFC 4122")
    assert abs(datetime.now(UTC) - created_at(identifier)) < timedelta(seconds=5)


def test_the_last_62_bits_are_random() -> None:
    assert len({new_id().int & (1 << 62) - 1 for _ in range(5_000)}) == 5_000


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_763_236_800_001, 1_763_236_800_999, 8_589_934_591_999])
def test_the_time_in_an_id_is_exact_to_the_millisecond(milliseconds: int) -> None:
    moment = created_at(UUID(int=milliseconds << 80))
    assert moment == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def test_ids_of_one_process_are_in_order_and_unique_in_a_burst_of_threads() -> None:
    assert (burst := [new_id() for _ in range(20_000)]) == sorted(burst)
    found: list[UUID] = []
    threads = [threading.Thread(target=lambda: found.extend(new_id() for _ in range(5_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 20_000


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        ("1970-01-01T00:00:00+00:00", 0),
        ("1970-01-01T00:00:00.000001+00:00", 1),
        ("1970-01-01T00:00:01.234+00:00", 1234),
        ("1970-01-01T00:00:01.233001+00:00", 1234),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1969-12-31T23:59:59+00:00", 0),
        ("0001-01-01T00:00:00+23:59", 0),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_the_first_id_of_a_time(moment: str, milliseconds: int) -> None:
    first = first_id_at(datetime.fromisoformat(moment))
    assert first.int == milliseconds << 80


def test_first_id_of_a_time_separates_earlier_from_later_ids() -> None:
    identifier = new_id()
    moment = created_at(identifier)
    assert first_id_at(moment) <= identifier < first_id_at(moment + timedelta(microseconds=1))


def test_one_form_is_read_in_either_case() -> None:
    identifier = uuid4()
    assert parse_id(str(identifier)) == parse_id(str(identifier).upper()) == identifier


@pytest.mark.parametrize(
    "text",
    [
        "", "x", SOME_ID.hex, f"{{{SOME_ID}}}", f"urn:uuid:{SOME_ID}", f" {SOME_ID}", f"{SOME_ID}\n",
        str(SOME_ID).replace("-", "_"), "０" * 8 + "-0000-0000-0000-000000000000", str(SOME_ID)[:-1], f"{SOME_ID}0",
        "g" * 8 + "-0000-0000-0000-000000000000",
    ],
)  # fmt: skip
def test_every_other_form_is_refused(text: str) -> None:
    assert parse_id(text) is None
