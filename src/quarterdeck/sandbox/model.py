"""The exceptions of sandboxes and of the tools that use them."""


class SandboxUnavailable(Exception):
    """One line that says why, and what to do."""


class Refusal(Exception):
    """The tool did nothing. The reason is told to the model as the result of its call."""
