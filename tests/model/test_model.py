"""Random sequences of calls, compared with a small pure model of the API (docs/decisions/0025)."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzzing import cases
from tests.model.environment import running_environment
from tests.model.state_machine import Machine
from tests.world import clone_database, drop_database

SEQUENCES = int(os.environ.get("MODEL_SEQUENCES") or cases(30))
MANY_SEQUENCES = 100
STEPS = int(os.environ.get("MODEL_STEPS", "40"))


@pytest.fixture(scope="module")
def machine(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Machine]]:
    url = clone_database(postgres_url, template)
    with running_environment(url, tmp_path_factory.mktemp("model")) as served:

        class BoundMachine(Machine):
            environment = served
            every_rule = SEQUENCES < MANY_SEQUENCES

        yield BoundMachine
    drop_database(postgres_url, url)


# Only a failure takes this long, while Hypothesis shrinks it.
@pytest.mark.long
@pytest.mark.timeout(900 + SEQUENCES * STEPS)
@pytest.mark.slowest
def test_the_api_behaves_like_the_model(machine: type[Machine]) -> None:
    chosen = int(os.environ.get("MODEL_SEED") or random.randrange(2**32))
    print(f"MODEL_SEED={chosen} MODEL_SEQUENCES={SEQUENCES} MODEL_STEPS={STEPS} make model-calls")  # noqa: T201
    run_state_machine_as_test(
        seed(chosen)(machine),
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=False,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
