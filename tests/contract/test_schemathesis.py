"""Tests the server against its OpenAPI document with generated requests. All checks of schemathesis are on."""

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
from tests.world import Server, World

USUAL_CASES = 32
FUZZED_CASES = cases(USUAL_CASES)
STATEFUL_SCENARIOS = cases(10)
# No response here is large: one that takes longer hangs.
MAX_RESPONSE_SECONDS = 30


class Explored(Struct):
    # By phase, operation and status.
    answers: Counter[tuple[str, str, int]]
    replays: int
    checks: set[str]
    # The first of each kind.
    faults: dict[str, str]
    unanswered: bool = False

    def count(self, *, phase: str | None = None, label: str | None = None, status: int | None = None) -> int:
        wanted = (phase, label, status)
        return sum(
            count
            for key, count in self.answers.items()
            if all(want in (None, value) for want, value in zip(wanted, key, strict=True))
        )


@pytest.mark.long
# Half a minute when the machine is idle, and several minutes beside other work.
@pytest.mark.timeout(600 * max(1, TIMES))
@pytest.mark.slowest
async def test_server_and_document_agree(world: World, server: Server) -> None:
    records = await create_records(world)
    explored = await asyncio.to_thread(_explore, str(world.http.base_url), records)
    if explored.faults:
        last_lines = server.log.read_text().splitlines()[-50:]
        pytest.fail("\n\n".join([*explored.faults.values(), "The log ends with:", *last_lines]), pytrace=False)
    _assert_coverage(explored)


def _explore(url: str, records: Records) -> Explored:
    explored = Explored(Counter(), 0, set(), {})
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=_config(records.secret))
    use_real_values(schema, records)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _add(explored, event.phase.name, event.recorder)
            if explored.unanswered:
                # The requests that follow would wait just as long.
                break
        elif isinstance(event, events.NonFatalError):
            explored.faults[event.label] = f"{event.label}: {event.info.title}: {event.info.message}"
        elif isinstance(event, events.FatalError):
            raise event.exception
    return explored


def _config(secret: str) -> schemathesis.Config:
    # With values from earlier responses Hypothesis silently gives up on an operation as inconsistent. `use_real_values`
    # replaces them; links between operations are still followed.
    unaided: dict[str, Any] = {"extra-data-sources": {"responses": False}}
    return schemathesis.Config.from_dict(
        {
            "seed": 1 if REPEATED else random.randrange(2**32),
            "headers": {"Authorization": f"Bearer {secret}"},
            "request-timeout": MAX_RESPONSE_SECONDS,
            "generation": {
                "deterministic": REPEATED,
                # Valid and invalid values.
                "mode": "all",
                "database": "none",
                "max-examples": FUZZED_CASES,
                # Shrinking a failing case takes minutes.
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
            # The secrets belong to a server that ends with the tests.
            "output": {"sanitization": {"enabled": False}},
            # Archives are large for a generated value, and a busy machine is slow.
            "suppress-health-check": ["data_too_large", "large_base_example", "too_slow"],
        }
    )


def _add(explored: Explored, phase: str, recorder: ScenarioRecorder) -> None:
    for case_id, interaction in recorder.interactions.items():
        label = recorder.cases[case_id].value.operation.label
        if interaction.response is None:
            explored.faults.setdefault(f"{label} no answer", f"{phase} {label}: no answer to {_shown(interaction)}")
            explored.unanswered = True
            continue
        explored.answers[phase, label, interaction.response.status_code] += 1
        explored.replays += "idempotency-replayed" in interaction.response.headers
        for check in recorder.checks.get(case_id, ()):
            explored.checks.add(check.name)
            if check.status is not Status.SUCCESS:
                kind = f"{label} {check.name} {interaction.response.status_code}"
                explored.faults.setdefault(kind, f"{phase} {label}: {_describe(check, interaction)}")


def _shown(interaction: Interaction) -> str:
    request = interaction.request
    return f"{request.method} {request.uri} {(request.body or b'')[:2000]!r}"


def _describe(check: CheckNode, interaction: Interaction) -> str:
    if check.failure_info is None or interaction.response is None:
        return f"{check.name} crashed"
    failure = check.failure_info.failure
    body = interaction.response.content.decode("utf-8", "backslashreplace")[:1000]
    return (
        f"{check.name}: {failure.title}\n{failure.message}\n{check.failure_info.code_sample}\n"
        f"{interaction.response.status_code} {body}"
    )


def _assert_coverage(explored: Explored) -> None:
    """Checks mean little unless requests got past the first errors."""
    never_absent: list[str] = []
    never_fuzzed: list[tuple[str, int]] = []
    assert explored.checks == {*CHECKS.get_all_names(), "max_response_time"}
    for operation in OPERATIONS:
        label = f"{operation.method} {operation.path}"
        # The others have tests of their own, with people: what they are told here is unknown or from another site.
        is_for_keys = not operation.public and not operation.personal
        wanted = (operation.success_status, 400) if is_for_keys else (400,) if operation.personal else ()
        for status in wanted:
            assert explored.count(phase="COVERAGE", label=label, status=status) >= 1, (label, status)
            if explored.count(phase="FUZZING", label=label, status=status) == 0:
                never_fuzzed.append((label, status))
        # One that needs no credential may have nothing that could be varied.
        assert operation.public or explored.count(phase="FUZZING", label=label) >= FUZZED_CASES, label
        # Without a credential, and with a wrong one.
        if not operation.public:
            # A wrong one is tried where the right one succeeds.
            assert explored.count(label=label, status=401) >= (2 if is_for_keys else 1), label
        if operation.path_ids and explored.count(label=label, status=404) == 0:
            never_absent.append(label)
    # One id in eight is unknown, so some operations get none in few cases. `test_callers.py` tests the 404 of each.
    assert len(never_absent) <= len(OPERATIONS) // 5, never_absent
    # Cases are random because ids are. A few cases miss some status by chance, the usual number does not.
    assert len(never_fuzzed) <= (0 if FUZZED_CASES >= USUAL_CASES else len(OPERATIONS) // 5), never_fuzzed
    assert explored.count(phase="STATEFUL_TESTING") >= STATEFUL_SCENARIOS
    assert explored.count(status=409) >= 1
    assert explored.replays >= 1
