"""The served document against the server that serves it, by requests that nobody thought of. Every check is on."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
import schemathesis
from msgspec import Struct
from schemathesis.checks import CHECKS
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import CheckNode, Interaction, ScenarioRecorder

from quarterdeck.api.routes import OPERATIONS
from tests.contract.real_values import Records, create_records, use_real_values
from tests.fuzzing import REPEATED, TIMES, cases
from tests.world import World

# Half a minute in all on two cores. Fewer would not reach every status that is asked for below.
FUZZED_CASES = cases(32)
STATEFUL_SCENARIOS = cases(10)
# Nothing here is large: what takes longer than this hangs.
MAX_RESPONSE_SECONDS = 30


class Explored(Struct):
    # By phase, operation and status.
    answers: Counter[tuple[str, str, int]]
    replays: int
    checks: set[str]
    # The first of each kind.
    faults: dict[str, str]

    def count(self, *, phase: str | None = None, label: str | None = None, status: int | None = None) -> int:
        wanted = (phase, label, status)
        return sum(
            count
            for key, count in self.answers.items()
            if all(want in (None, value) for want, value in zip(wanted, key, strict=True))
        )


@pytest.mark.timeout(600 * TIMES)
async def test_server_and_document_agree(world: World) -> None:
    records = await create_records(world)
    explored = await asyncio.to_thread(_explore, str(world.http.base_url), records)
    if explored.faults:
        pytest.fail("\n\n".join(explored.faults.values()), pytrace=False)
    _assert_got_through(explored)


def _explore(url: str, records: Records) -> Explored:
    explored = Explored(Counter(), 0, set(), {})
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=_config(records.secret))
    use_real_values(schema, records)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _take_up(explored, event.phase.name, event.recorder)
        elif isinstance(event, events.NonFatalError):
            explored.faults[event.label] = f"{event.label}: {event.info.title}: {event.info.message}"
        elif isinstance(event, events.FatalError):
            raise event.exception
    return explored


def _config(secret: str) -> schemathesis.Config:
    # Values taken from earlier answers make Hypothesis give up on an operation as inconsistent, which nobody sees.
    # `use_real_values` is there instead, and links between operations are followed all the same.
    unaided: dict[str, Any] = {"extra-data-sources": {"responses": False}}
    return schemathesis.Config.from_dict(
        {
            "seed": 1 if REPEATED else random.randrange(2**32),
            "headers": {"Authorization": f"Bearer {secret}"},
            "generation": {
                "deterministic": REPEATED,
                # Right and wrong values alike.
                "mode": "all",
                "database": "none",
                "max-examples": FUZZED_CASES,
                # Shrinking repeats a failing case for minutes; the first one says enough.
                "no-shrink": True,
            },
            "phases": {
                "examples": unaided,
                "coverage": unaided | {"generate-duplicate-query-parameters": True},
                "fuzzing": unaided | {"error-feedback": {"enabled": False}},
                "stateful": {"generation": {"max-examples": STATEFUL_SCENARIOS}},
            },
            "checks": {"max_response_time": MAX_RESPONSE_SECONDS},
            "continue-on-failure": True,
            "cache": {"enabled": False},
            # The secrets are those of a server that ends with the tests.
            "output": {"sanitization": {"enabled": False}},
            # Archives are large for a generated value, and a busy machine is slow.
            "suppress-health-check": ["data_too_large", "large_base_example", "too_slow"],
        }
    )


def _take_up(explored: Explored, phase: str, recorder: ScenarioRecorder) -> None:
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        if interaction.response is None:
            explored.faults.setdefault(f"{label} no answer", f"{phase} {label}: no answer to {interaction.request}")
            continue
        explored.answers[phase, label, interaction.response.status_code] += 1
        explored.replays += "idempotency-replayed" in interaction.response.headers
        for check in recorder.checks.get(case_id, ()):
            explored.checks.add(check.name)
            if check.status is not Status.SUCCESS:
                kind = f"{label} {check.name} {interaction.response.status_code}"
                explored.faults.setdefault(kind, f"{phase} {label}: {_told(check, interaction)}")


def _told(check: CheckNode, interaction: Interaction) -> str:
    if check.failure_info is None or interaction.response is None:
        return f"{check.name} crashed"
    failure = check.failure_info.failure
    body = interaction.response.content.decode("utf-8", "backslashreplace")[:1000]
    return (
        f"{check.name}: {failure.title}\n{failure.message}\n{check.failure_info.code_sample}\n"
        f"{interaction.response.status_code} {body}"
    )


def _assert_got_through(explored: Explored) -> None:
    """That no check failed says something only if requests reached what lies behind the first refusals."""
    never_absent: list[str] = []
    assert explored.checks == {*CHECKS.get_all_names(), "max_response_time"}
    for operation in OPERATIONS:
        label = f"{operation.method} {operation.path}"
        for phase in ("COVERAGE", "FUZZING"):
            for status in (operation.success_status, 400):
                assert explored.count(phase=phase, label=label, status=status) >= 1, (phase, label, status)
        assert explored.count(phase="FUZZING", label=label) >= FUZZED_CASES, label
        # Without a credential, and with a wrong one.
        assert explored.count(label=label, status=401) >= 2, label
        if operation.path_ids and explored.count(label=label, status=404) == 0:
            never_absent.append(label)
    # One id in eight names nothing: with few cases some operations meet none. `test_callers.py` asks each for its 404.
    assert len(never_absent) <= len(OPERATIONS) // 5, never_absent
    assert explored.count(phase="STATEFUL_TESTING") >= STATEFUL_SCENARIOS
    assert explored.count(status=409) >= 1
    assert explored.replays >= 1
