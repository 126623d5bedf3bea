"""What a session says about its sandbox, and the exceptions of sandboxes and of the tools that use them.

Limits are settings of the server: `SandboxSettings` in core/settings.py.
"""

from msgspec import Struct


# Unknown fields are errors: a misspelled setting would be none.
class SandboxOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """No settings yet."""


class SandboxUnavailable(Exception):
    """One line that says why, and what to do."""


class Refusal(Exception):
    """The tool did nothing. The reason is told to the model as the result of its call."""
