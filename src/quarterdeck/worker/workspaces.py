"""What a worker with a sandbox needs for the workspaces of sessions."""

from collections.abc import Mapping

from quarterdeck.agents.sandbox.model import Sandbox
from quarterdeck.agents.workspace.folders import open_folders
from quarterdeck.agents.workspace.place import Place
from quarterdeck.agents.workspace.skill_folders import MountedSkills, SkillFolders, SkillSource
from quarterdeck.agents.workspace.workspace import Workspace
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.conversations.runs.lifecycle import Lease
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Database
from quarterdeck.worker.session_files import SessionFiles


class Workspaces:
    def __init__(self, database: Database, blobs: BlobStore, sandbox: Sandbox, settings: Settings) -> None:
        self._database = database
        self._blobs = blobs
        self._sandbox = sandbox
        self._settings = settings
        self._folders = open_folders(settings, sandbox.users)
        self._skills = SkillFolders(self._folders, settings.workspace.kept_folders)

    def place(self, lease: Lease, skills: Mapping[str, SkillSource]) -> Place:
        """For one attempt. `skills`: by the names of their folders."""
        stored = SessionFiles(self._database, self._blobs, lease)
        return Place(
            workspace=Workspace(self._folders, stored, self._settings.workspace),
            skills=MountedSkills(self._skills, skills),
            sandbox=self._sandbox,
            settings=self._settings.sandbox,
            result_bytes=self._settings.model.tool_result_bytes,
            delta_seconds=self._settings.run.delta_seconds,
        )

    async def close(self) -> None:
        await self._folders.close()
