"""Limits on the event streams that a process has open: for each credential, for each workspace, and in total.

A stream keeps its connection for as long as its client likes. Without limits one credential could take every connection
of a process, and nobody else would get an answer.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID

from quarterdeck.core import errors
from quarterdeck.core.actors import Credential
from quarterdeck.core.settings import StreamSettings
from quarterdeck.core.slots import Slots


class StreamSlots:
    def __init__(self, settings: StreamSettings, connections: int) -> None:
        """`connections` is the largest number of open connections. A quarter of them is kept for requests."""
        total = max(1, connections * 3 // 4)
        self._settings = settings
        self._all = Slots(total, total)
        self._of_credentials = Slots(total, settings.per_credential)
        self._of_workspaces = Slots(total, settings.per_workspace)

    @contextmanager
    def opening(self, credential: Credential) -> Iterator[None]:
        """A slot for the time in which the caller is checked. Raises if there is none, before the database is asked:
        a client that opens stream after stream then costs little."""
        with ExitStack() as held:
            if not self._all.take_now(None):
                raise errors.unavailable("This server has too many open event streams. Try again shortly.")
            held.callback(self._all.release, None)
            if not self._of_credentials.take_now(credential):
                raise errors.too_many_streams("credential", self._settings.per_credential)
            held.callback(self._of_credentials.release, credential)
            yield

    @contextmanager
    def hold(self, credential: Credential, workspace_id: UUID) -> Iterator[None]:
        """A slot for one stream, until the `with` block ends. Raises if there is none."""
        with self.opening(credential):
            if not self._of_workspaces.take_now(workspace_id):
                raise errors.too_many_streams("workspace", self._settings.per_workspace)
            try:
                yield
            finally:
                self._of_workspaces.release(workspace_id)
