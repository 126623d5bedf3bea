"""The served document against the server that serves it, by requests that nobody thought of."""

import asyncio
from collections import Counter

import pytest
import schemathesis
from msgspec import Struct
from schemathesis.checks import CHECKS
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from quarterdeck.http.routes import OPERATIONS
from tests.contract.real_values import Records, create_records, use_real_values
from tests.world import World


class Outcome(Struct):
    # By phase, operation and status.
    answers: Counter[tuple[str, str, int]]
    checks: set[str]
    # The first of each kind.
    faults: dict[str, str]
    replays: int = 0


async def test_server_and_document_agree(world: World) -> None:
    records = await create_records(world)
    outcome = await asyncio.to_thread(_explore, str(world.http.base_url), records)
    if outcome.faults:
        pytest.fail("\n\n".join(outcome.faults.values()), pytrace=False)
    _assert_explored(outcome)


def _explore(url: str, records: Records) -> Outcome:
    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "headers": {"Authorization": f"Bearer {records.secret}"},
            "generation": {"deterministic": True, "database": "none", "max-examples": 150, "no-shrink": True},
            # Drawing from earlier answers makes Hypothesis give up on an operation, unseen, as inconsistent.
            "phases": {
                "examples": {"extra-data-sources": {"responses": False}},
                "coverage": {
                    "extra-data-sources": {"responses": False},
                    "generate-duplicate-query-parameters": True,
                },
                "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": {"enabled": False}},
                "stateful": {"generation": {"max-examples": 30}},
            },
            "checks": {"max_response_time": 10},
            "cache": {"enabled": False},
            "continue-on-failure": True,
            # Bodies are whole archives, and a busy machine is no fault of the server.
            "suppress-health-check": ["data_too_large", "too_slow", "large_base_example", "filter_too_much"],
        }
    )
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    use_real_values(schema, records)
    outcome = Outcome(Counter(), set(), {})
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _take_up(outcome, event.phase.name, event.recorder)
        elif isinstance(event, events.NonFatalError):
            outcome.faults[event.label] = f"{event.label}: {event.info.title}: {event.info.message}"
        elif isinstance(event, events.FatalError):
            raise event.exception
    return outcome


def _take_up(outcome: Outcome, phase: str, recorder: ScenarioRecorder) -> None:
    for case_id, interaction in recorder.interactions.items():
        operation = recorder.cases[case_id].value.operation.label
        assert interaction.response is not None, f"no answer from {operation}"
        outcome.answers[phase, operation, interaction.response.status_code] += 1
        outcome.replays += "idempotency-replayed" in interaction.response.headers
        for check in recorder.checks.get(case_id, ()):
            outcome.checks.add(check.name)
            if check.status is not Status.SUCCESS:
                told = check.failure_info
                assert told is not None, f"{check.name} crashed"
                answer = interaction.response.content.decode("utf-8", "replace")[:300]
                outcome.faults.setdefault(
                    f"{operation} {check.name} {interaction.response.status_code}",
                    f"{phase} {operation}: {check.name}\n{told.failure.title}\n{told.failure.message}\n"
                    f"{told.code_sample}\n{interaction.response.status_code} {answer}",
                )


def _assert_explored(outcome: Outcome) -> None:
    """That nothing failed means something only if the requests got through to what they test."""
    print(sum(outcome.answers.values()))
    for key, count in sorted(outcome.answers.items()):
        print(key, count)
    print(outcome.replays, outcome.checks)
    assert outcome.checks == set(CHECKS.get_all_names()) | {"max_response_time"}
    for operation in OPERATIONS:
        label = f"{operation.method} {operation.path}"
        for phase in ("COVERAGE", "FUZZING"):
            assert outcome.answers[phase, label, operation.success_status] >= 5, (phase, label)
            assert outcome.answers[phase, label, 400] >= 5, (phase, label)
