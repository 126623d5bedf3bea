"""Objects with numbered versions, which are skills and agents: the rules that they share."""

from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from quarterdeck.core import errors


class VersionedState(Struct, frozen=True):
    """The fields of the object that can change, read while its row is locked."""

    revision: int
    name: str
    latest_version: int
    default_version: int | None
    archived: bool


class WantedState(Protocol):
    """The body of a request that changes the object."""

    @property
    def name(self) -> str | UnsetType: ...

    @property
    def default_version(self) -> int | UnsetType | None: ...

    @property
    def archived(self) -> bool | UnsetType: ...


class VersionRules:
    """`noun`: with its article."""

    def __init__(self, noun: str) -> None:
        self._this = f"This {noun.partition(' ')[2]}"
        self.name_taken = f"{noun} with this name already exists."
        self.archived = f"{self._this} is archived. Unarchive it to push versions."

    def changed(self, state: VersionedState, wanted: WantedState) -> dict[str, Any]:
        """The fields whose values change."""
        asked = {name: getattr(wanted, name) for name in ("name", "default_version", "archived")}
        return {name: new for name, new in asked.items() if new is not UNSET and new != getattr(state, name)}

    def needs_free_name(self, state: VersionedState, new: VersionedState) -> bool:
        """Names are unique among active objects. An archived one may share its name and needs another to come back."""
        return not new.archived and (state.archived or new.name != state.name)

    def check_default_version(self, state: VersionedState) -> None:
        if state.default_version is not None and not _has_version(state.latest_version, state.default_version):
            raise errors.invalid(f"default_version is not a version of {self._this.lower()}.")

    def check_takes_versions(self, state: VersionedState) -> None:
        if state.archived:
            raise errors.conflict(self.archived)

    def check_usable(self, latest_version: int, version: int | None, *, is_archived: bool) -> None:
        """`version` is what a session pins; None follows the default or the latest, which must exist."""
        if latest_version == 0:
            raise errors.invalid(f"{self._this} has no versions yet. Push one before a session uses it.")
        if version is not None and not _has_version(latest_version, version):
            raise errors.invalid(f"{self._this} has no such version.")
        if is_archived:
            raise errors.invalid(f"{self._this} is archived. New sessions cannot use it.")


def _has_version(latest_version: int, version: int) -> bool:
    # Versions count from 1 without gaps.
    return 1 <= version <= latest_version
