"""Who was seen to have access, as a hint: whoever is known goes straight to the locks and is judged there."""

from collections import OrderedDict
from uuid import UUID

from quarterdeck.access.model import Credential, CredentialKind


class KnownCallers:
    def __init__(self, most: int) -> None:
        """Of each kind at most so many are kept. Who is forgotten is looked at once more."""
        self._most = most
        # Bytes and not tuples: tens of thousands of those would be looked through by the garbage collector.
        self._callers: OrderedDict[bytes, None] = OrderedDict()
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def has(self, credential: Credential, session_id: UUID, workspace_id: UUID | None) -> bool:
        """Whether it was seen to have access to the session."""
        return _written(credential, session_id, workspace_id) in self._callers

    def has_key(self, credential: Credential) -> bool:
        """Whether it is an API key that was seen to have access to some session: no stranger, wherever it goes next.
        A token has one session only."""
        return credential.secret_hash in self._keys

    def add(self, credential: Credential, session_id: UUID, workspace_id: UUID | None) -> None:
        self._keep(self._callers, _written(credential, session_id, workspace_id))
        if credential.kind is CredentialKind.API_KEY:
            self._keep(self._keys, credential.secret_hash)

    def _keep(self, kept: "OrderedDict[bytes, None]", one: bytes) -> None:
        kept[one] = None
        if len(kept) > self._most:
            kept.popitem(last=False)


def _written(credential: Credential, session_id: UUID, workspace_id: UUID | None) -> bytes:
    return credential.secret_hash + session_id.bytes + (b"" if workspace_id is None else workspace_id.bytes)
