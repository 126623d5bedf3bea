import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from quarterdeck.ids import created_at, new_id, parse_id

# The same in every process of a parallel run.
SOME_ID = UUID("8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55")


def test_is_a_uuid_of_version_seven_made_now() -> None:
    identifier = new_id()
    assert (identifier.version, identifier.variant) == (7, "specified in RFC 4122")
    assert abs(datetime.now(UTC) - created_at(identifier)) < timedelta(seconds=5)


def test_ids_of_one_process_are_in_order_and_unique_in_a_burst_of_threads() -> None:
    assert (burst := [new_id() for _ in range(20_000)]) == sorted(burst)
    found: list[UUID] = []
    threads = [threading.Thread(target=lambda: found.extend(new_id() for _ in range(5_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 20_000


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
