"""The sandbox of a new session or version of an agent: what is asked for, the setting, and whether there is one."""

import pytest
from msgspec import UNSET, UnsetType

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.choice import SandboxOffer
from quarterdeck.sandbox.model import SandboxOptions

OPTIONS = SandboxOptions()


@pytest.mark.parametrize(
    ("default", "asked", "with_sandbox", "without"),
    [
        (None, UNSET, OPTIONS, None),
        (False, UNSET, None, None),
        # A server that is told to give every session a sandbox does not leave it out.
        (True, UNSET, OPTIONS, UNSET),
        (None, None, None, None),
        (True, None, None, None),
        (False, OPTIONS, OPTIONS, UNSET),
        (None, OPTIONS, OPTIONS, UNSET),
    ],
)
def test_the_sandbox_of_a_new_session(
    default: bool | None,
    asked: SandboxOptions | UnsetType | None,
    with_sandbox: SandboxOptions | None,
    without: SandboxOptions | UnsetType | None,
) -> None:
    """`without`: UNSET if it is refused."""
    offer = SandboxOffer(SandboxSettings(default=default))
    assert offer.chosen(asked) == with_sandbox
    offer.missing = "it rains"
    if without is UNSET:
        with pytest.raises(ServiceError, match=r"sandbox must be null: .* it rains"):
            offer.chosen(asked)
    else:
        assert offer.chosen(asked) == without
