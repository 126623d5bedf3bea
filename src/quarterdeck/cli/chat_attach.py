"""The command `/attach FILE` of `qd chat`."""

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

ATTACH = "/attach "


class AttachCompleter(Completer):
    """Completes the path after `/attach`."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith(ATTACH):
            path = before.removeprefix(ATTACH).lstrip()
            yield from self._paths.get_completions(Document(path, len(path)), complete_event)


def typed_path(given: str) -> Path:
    """As typed or completed. Files that are dropped on a terminal are quoted as for a shell."""
    path = Path(given).expanduser()
    if not path.exists():
        with suppress(ValueError):
            words = shlex.split(given)
            path = Path(words[0]).expanduser() if len(words) == 1 else path
    return path
