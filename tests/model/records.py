"""What the model knows: plain records, changed in place, compared by identity."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PERMISSIONS = (
    "workspace.read",
    "key.manage",
    "session.manage",
    "action.resolve",
    "skill.manage",
    "agent.manage",
    "credential.manage",
    "member.manage",
)
# The body of a request or an answer.
Json = dict[str, Any]


@dataclass(eq=False)
class Key:
    id: str
    workspace: str
    label: str
    permissions: frozenset[str]
    lineage: str
    expires_at: datetime | None
    secret: str = field(repr=False)
    is_revoked: bool = False
    is_replaced: bool = False


@dataclass(eq=False)
class Run:
    id: str
    session: "Session" = field(repr=False)
    state: str = "queued"
    accepted: int = 0
    consumed: int = 0
    # Texts of inputs that it was given and has not taken up.
    pending: list[str] = field(default_factory=list)
    # The archive of the skill that it works with.
    skill: bytes | None = field(default=None, repr=False)
    # How many attempts have begun.
    attempts: int = 0
    actions: list["Action"] = field(default_factory=list, repr=False)

    @property
    def waiting_for(self) -> list[str]:
        return [action.id for action in self.actions if action.state == "open"]


@dataclass(eq=False)
class Action:
    """A call that needs an approval."""

    id: str
    run: Run = field(repr=False)
    state: str = "open"
    resolution: Json | None = None
    hours: int = 0

    @property
    def session(self) -> "Session":
        return self.run.session


@dataclass(eq=False)
class Session:
    id: str
    workspace: str
    # Under this name its runs ask the model that the test holds.
    tag: str
    title: str | None
    # Pairs of a skill's id and the version that is pinned, or None.
    skills: list[tuple[str, int | None]] = field(default_factory=list)
    revision: int = 1
    is_archived: bool = False
    is_deleted: bool = False
    runs: list[Run] = field(default_factory=list, repr=False)
    # What became of inputs and runs: for each entry its type, its run, and the texts it is about.
    log: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list, repr=False)
    # How often the model has been asked, and what every later question must repeat.
    asked: int = 0
    taken: list[str] = field(default_factory=list, repr=False)
    # How many of these since the last answer.
    unanswered: int = 0

    @property
    def active(self) -> Run | None:
        return next((run for run in self.runs if run.state in ("queued", "running", "waiting")), None)

    @property
    def waiting(self) -> list[Run]:
        """Runs that start when the active one has ended, oldest first."""
        return [run for run in self.runs if run.state == "pending"]


@dataclass(eq=False)
class Token:
    id: str
    session: Session
    key: Key
    expires_at: datetime
    secret: str = field(repr=False)
    is_revoked: bool = False
    may_resolve: bool = False

    @property
    def workspace(self) -> str:
        return self.session.workspace


Caller = Key | Token


@dataclass(eq=False)
class Skill:
    id: str
    workspace: str
    name: str
    # The archives, from version 1 on.
    versions: list[bytes] = field(default_factory=list, repr=False)
    default_version: int | None = None
    revision: int = 1
    is_archived: bool = False


@dataclass
class Receipt:
    fingerprint: object
    status: int
    body: bytes
    hours: int = 0


@dataclass
class AuditEntry:
    action: str
    object_id: str
    hours: int = 0


@dataclass(frozen=True)
class Request:
    """A change, so that it can be sent again. `target` are the ids in its path."""

    operation: str
    target: tuple[str, ...] = ()
    body: Json | None = None
    archive: bytes | None = field(default=None, repr=False)
    key: str | None = None
    if_match: str | None = None
