"""Who was seen to have access, as a hint: whoever is in here is let into the queue and judged again by the database."""

from uuid import UUID

from quarterdeck.access.model import Credential

# A credential, the session it writes to, and the workspace it names.
Caller = tuple[Credential, UUID, UUID | None]


class KnownCallers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._callers: dict[Caller, None] = {}

    def __contains__(self, caller: Caller) -> bool:
        return caller in self._callers

    def add(self, caller: Caller) -> None:
        self._callers[caller] = None
        if len(self._callers) > self._most:
            # The one that came first. It is asked for once more when it comes again.
            del self._callers[next(iter(self._callers))]
