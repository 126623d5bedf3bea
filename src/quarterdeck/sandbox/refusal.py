"""The exception of a tool that did nothing."""


class Refusal(Exception):
    """The tool did nothing. The reason is told to the model as the result of its call."""
