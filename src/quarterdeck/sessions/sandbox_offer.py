"""Whether sessions can have a workspace with a sandbox, and which workspace they get by default."""

from quarterdeck.core import errors
from quarterdeck.core.settings import WorkspaceSettings
from quarterdeck.sandbox.manifest import WorkspaceKind


class SandboxOffer:
    def __init__(self, settings: WorkspaceSettings) -> None:
        self._default = None if settings.default is None else WorkspaceKind(settings.default)
        # Why there is no sandbox. None: there is one. Set when the process starts, before it serves requests.
        self.missing: str | None = None

    def chosen(self, asked: WorkspaceKind | None) -> WorkspaceKind:
        """The workspace of a new session. None: it names none."""
        kind = self._by_default() if asked is None else asked
        self.check(kind)
        return kind

    def check(self, kind: WorkspaceKind) -> None:
        if kind is WorkspaceKind.SANDBOX and self.missing is not None:
            raise errors.invalid(f"workspace must be none: this server has no sandbox, because {self.missing}.")

    def _by_default(self) -> WorkspaceKind:
        if self._default is not None:
            return self._default
        return WorkspaceKind.SANDBOX if self.missing is None else WorkspaceKind.NONE
