"""How a command ends when it does not end well. docs/cli.md says what each code means."""

from enum import IntEnum


class Exit(IntEnum):
    UNSUCCESSFUL = 1
    WRONG_INPUT = 2
    NOT_ALLOWED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    SERVER_AWAY = 6
    NOT_UNDERSTOOD = 7
    INTERRUPTED = 130


class Complaint(Exception):
    """Said by a command itself."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code
