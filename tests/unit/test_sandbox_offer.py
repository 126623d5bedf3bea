"""The workspace of a new session: what is asked for, the setting, and whether there is a sandbox."""

from typing import Literal

import pytest

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import WorkspaceSettings
from quarterdeck.sandbox.manifest import WorkspaceKind
from quarterdeck.sessions.sandbox_offer import SandboxOffer

NONE, SANDBOX = WorkspaceKind.NONE, WorkspaceKind.SANDBOX


@pytest.mark.parametrize(
    ("default", "asked", "with_sandbox", "without"),
    [
        (None, None, SANDBOX, NONE),
        ("none", None, NONE, NONE),
        # A server that is told to give every session a sandbox does not leave it out.
        ("sandbox", None, SANDBOX, None),
        (None, NONE, NONE, NONE),
        ("sandbox", NONE, NONE, NONE),
        ("none", SANDBOX, SANDBOX, None),
        (None, SANDBOX, SANDBOX, None),
    ],
)
def test_the_workspace_of_a_new_session(
    default: Literal["sandbox", "none"] | None,
    asked: WorkspaceKind | None,
    with_sandbox: WorkspaceKind,
    without: WorkspaceKind | None,
) -> None:
    offer = SandboxOffer(WorkspaceSettings(default=default))
    assert offer.chosen(asked) is with_sandbox
    offer.missing = "it rains"
    if without is None:
        with pytest.raises(ServiceError, match="it rains"):
            offer.chosen(asked)
    else:
        assert offer.chosen(asked) is without
