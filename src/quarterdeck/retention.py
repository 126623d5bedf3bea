"""Retention: deletes expired data, and what nothing refers to any more. docs/run/retention.md describes each kind."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict

from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import sweep_blobs
from quarterdeck.changes.audit_log import sweep_audit_events
from quarterdeck.changes.perform import sweep_receipts
from quarterdeck.core.retention import RetentionDays
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Database
from quarterdeck.files.service import sweep_files
from quarterdeck.insights.service import sweep_usage
from quarterdeck.people.sign_in import sweep_sign_ins
from quarterdeck.sessions.expiry import expire_files, expire_logs
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.webhooks.service import sweep_deliveries
from quarterdeck.workspaces.service import retention_of_all


class Deleted(Struct, frozen=True):
    """Numbers of rows; `sessions` were deleted by people, and their logs are gone now."""

    receipts: int = 0
    audit_events: int = 0
    runs: int = 0
    events: int = 0
    files: int = 0
    blobs: int = 0
    sessions: int = 0
    deliveries: int = 0
    usage: int = 0
    # Codes of `qd login` and counted tries.
    sign_ins: int = 0


async def delete_expired(database: Database, blobs: BlobStore, settings: Settings) -> Deleted:
    """Safe to run in several processes at once: each takes rows that no other has locked. All kinds and workspaces are
    attempted even if one fails; the first error is raised at the end."""
    sweep = _Sweep(database, blobs, settings, await retention_of_all(database, settings.default_retention))
    counts: Counter[str] = Counter()
    faults: list[Exception] = []
    for step in sweep.steps():
        try:
            counts.update(await step())
        except Exception as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
    return Deleted(**counts)


class _Sweep(Struct, frozen=True):
    database: Database
    blobs: BlobStore
    settings: Settings
    # What applies to each workspace.
    retention: dict[UUID, RetentionDays]

    def steps(self) -> Iterator[Callable[[], Awaitable[dict[str, int]]]]:
        """Rows that refer to blobs before the blobs."""
        yield self._receipts
        yield self._audit_events
        for workspace_id, retention in self.retention.items():
            yield partial(self._logs, workspace_id, retention)
            yield partial(self._usage, workspace_id, retention)
        yield self._files
        yield self._sessions
        yield self._blobs
        yield self._deliveries
        yield self._sign_ins

    async def _receipts(self) -> dict[str, int]:
        receipt = self.settings.receipt
        shortest = min([receipt.keep_days, *self._days("receipt_days")])
        return {"receipts": await sweep_receipts(self.database, receipt.keep_days, shortest, receipt.sweep_batch)}

    async def _audit_events(self) -> dict[str, int]:
        return {"audit_events": await sweep_audit_events(self.database)}

    async def _logs(self, workspace_id: UUID, retention: RetentionDays) -> dict[str, int]:
        return asdict(await expire_logs(self.database, workspace_id, retention))

    async def _usage(self, workspace_id: UUID, retention: RetentionDays) -> dict[str, int]:
        if retention.usage_days is None:
            return {}
        batch = self.settings.receipt.sweep_batch
        return {"usage": await sweep_usage(self.database, workspace_id, retention.usage_days, batch)}

    async def _files(self) -> dict[str, int]:
        days = self.settings.retention.file_days
        shortest = min(self._days("file_days"), default=None)
        if shortest is None:
            return {}
        uploaded = await sweep_files(self.database, days, shortest)
        return {"files": uploaded + await expire_files(self.database, days, shortest)}

    async def _sessions(self) -> dict[str, int]:
        return {"sessions": await purge_deleted_sessions(self.database)}

    async def _blobs(self) -> dict[str, int]:
        return {"blobs": await sweep_blobs(self.database, self.blobs, self.settings.blob.orphan_hours)}

    async def _deliveries(self) -> dict[str, int]:
        days = self.settings.webhook.keep_days
        shortest = min([days, *self._days("delivery_days")])
        batch = self.settings.receipt.sweep_batch
        return {"deliveries": await sweep_deliveries(self.database, days, shortest, batch)}

    async def _sign_ins(self) -> dict[str, int]:
        return {"sign_ins": await sweep_sign_ins(self.database, self.settings.sign_in)}

    def _days(self, kind: str) -> list[int]:
        found = (getattr(retention, kind) for retention in self.retention.values())
        return [days for days in found if days is not None]
