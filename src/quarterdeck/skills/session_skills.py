"""The skills of one run, and their files."""

from collections.abc import Collection
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.db.database import Database
from quarterdeck.skills import service
from quarterdeck.skills.model import SkillFile, UsableVersion

DELETED = "This skill was deleted. Its files cannot be read."


class RunSkill(Struct, frozen=True):
    """A skill at the version that the run has used since its first attempt."""

    name: str
    skill_id: UUID
    version: int
    workspace_id: UUID
    description: str = DELETED
    # Its SHA-256. None: the skill was deleted since.
    archive: str | None = None


class SkillReader:
    def __init__(self, database: Database, blob_store: BlobStore) -> None:
        self._database = database
        self.blob_store = blob_store

    async def load(self, used: Collection[RunSkill]) -> list[RunSkill]:
        """The same skills, with the description and the archive of those that still exist."""
        if not used:
            return []
        [workspace_id] = {skill.workspace_id for skill in used}
        wanted = [(skill.skill_id, skill.version) for skill in used]
        versions = await self._database.read(lambda one: service.used_versions(one, workspace_id, wanted))
        found = {version.skill_id: version for version in versions}
        return [_with_version(skill, found.get(skill.skill_id)) for skill in used]

    async def files(self, skill: RunSkill) -> list[SkillFile]:
        """Read for each call and not kept: a session may have a hundred skills with ten thousand files each."""
        return await self._database.read(
            lambda one: service.files_of(one, skill.workspace_id, skill.skill_id, skill.version)
        )

    async def find_contents(self, files: Collection[SkillFile]) -> dict[str, Blob]:
        """By SHA-256. Raises FileNotFoundError if the skill was deleted and its contents, too."""
        wanted = {file.sha256 for file in files}
        found = await self._database.read(lambda one: blobs.find(one, list(wanted)))
        if len(found) < len(wanted):
            raise FileNotFoundError
        return found

    async def read(self, file: SkillFile, max_bytes: int) -> bytes:
        """The first bytes of a file."""
        blob = (await self.find_contents([file]))[file.sha256]
        pieces = blobs.pieces(self.blob_store, blob, file.bytes, 0, min(file.bytes, max_bytes))
        return b"".join([piece async for piece in pieces])


def _with_version(skill: RunSkill, version: UsableVersion | None) -> RunSkill:
    if version is None:
        return skill
    return replace(skill, description=version.description, archive=version.archive)
