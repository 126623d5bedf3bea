"""Exit codes of `qd`, described in docs/use/cli.md, and the exception that carries one."""

from enum import IntEnum


class ExitCode(IntEnum):
    UNSUCCESSFUL = 1
    INVALID_INPUT = 2
    NOT_ALLOWED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    SERVER_UNAVAILABLE = 6
    INCOMPATIBLE = 7
    INTERRUPTED = 130


class CliError(Exception):
    """An error that a command reports itself."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CliError):
    """Options or arguments that do not fit together, or one that is missing."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.INVALID_INPUT)
