"""Compares the database with the answers that clients received, once a second and completely at the end."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
import psycopg

from tests.fleet.action_invariants import check_actions
from tests.fleet.deployment import Deployment
from tests.fleet.file_invariants import check_files
from tests.fleet.history import Answer, History, Intent, Kind, SentAnswer
from tests.fleet.inputs import LOG
from tests.fleet.invariants import (
    Acknowledged,
    Action,
    Entry,
    File,
    Run,
    Session,
    Version,
    check_created,
    check_session,
    check_skill,
)
from tests.fleet.load import Load
from tests.fleet.sessions import LoadSession

# A session must settle within this time once the faults have ended, and while faults are injected.
SETTLE_SECONDS = 60.0
SETTLE_UNDER_FAULTS_SECONDS = 180.0
# Sessions checked with one query at the end.
_BATCH = 50

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_ENTRIES = "SELECT session_id, id, run_id, type, data FROM session_events WHERE session_id = ANY(%s) ORDER BY id"
_RUNS = """
SELECT session_id, id, state, last_input, consumed_through,
       CASE WHEN state = 'waiting' AND EXISTS (
           SELECT FROM run_jobs j WHERE j.run_id = r.id
       ) THEN extract(epoch FROM now() - waiting_since)::float8 END
FROM runs r WHERE session_id = ANY(%s)
"""
_ACTIONS = "SELECT session_id, id, run_id, kind, state, call_id, resolution FROM actions WHERE session_id = ANY(%s)"
_FILES = """
SELECT f.session_id, b.sha256, b.generation, b.bytes FROM session_files f JOIN blobs b USING (sha256)
WHERE f.session_id = ANY(%s) AND f.path = %s
"""
_VERSIONS = """
SELECT v.skill_id, v.id, v.version, b.sha256, b.generation, b.bytes
FROM skill_versions v JOIN blobs b ON b.sha256 = v.bundle_sha256
"""
# Also of files whose content has no row.
_CONTENTS = """
SELECT v.id, b.sha256, b.generation, b.bytes
FROM skill_versions v CROSS JOIN json_array_elements(v.manifest->'files') AS f
LEFT JOIN skill_version_contents c ON c.version_id = v.id AND c.sha256 = decode(f->>'sha256', 'hex')
LEFT JOIN blobs b ON b.sha256 = c.sha256
"""
_CREATED = {
    Kind.KEY: "SELECT label, count(*) FROM api_keys GROUP BY label",
    Kind.SESSION: "SELECT title, count(*) FROM sessions GROUP BY title",
}
# Keys that do not have exactly one audit event.
_NOT_AUDITED = """
SELECT k.label FROM api_keys k WHERE k.label LIKE 'ke-%' AND (
    SELECT count(*) FROM audit_events a
    WHERE a.workspace_id = k.workspace_id AND a.object_id = k.id AND a.action = 'create_api_key'
) <> 1
"""
Rows = list[tuple[Any, ...]]


class Auditor:
    def __init__(self, fleet: Deployment, load: Load, history: History) -> None:
        self._fleet = fleet
        self._load = load
        self._history = history
        # Digest and generation of the bundles whose content was checked.
        self._complete: set[tuple[str, UUID]] = set()
        self.checks = 0

    async def run(self, pause_seconds: float = 1.0) -> None:
        """For ever. Skips a check while the database is away."""
        while True:
            with suppress(psycopg.OperationalError):
                await self.check()
            await asyncio.sleep(pause_seconds)

    async def check(self) -> None:
        unfinished = [*self._load.active, *self._load.draining]
        settled = {one.id for one in self._load.draining if one.is_settled}
        sessions = await self._check_sessions(unfinished)
        for one in unfinished:
            if one.id in settled and sessions[one.id].at_rest and one.has_received(sessions[one.id].entries):
                self._load.draining.remove(one)
                self._load.finished.append(one)
                assert one.reader is not None
                one.reader.cancel()
            elif time.monotonic() > one.ends_at + SETTLE_UNDER_FAULTS_SECONDS:
                text = f"{one.id}: not settled {SETTLE_UNDER_FAULTS_SECONDS:g} s after its last input"
                self._history.add_violation(text)
        known = self._acknowledged()
        versions, created, not_audited = await self._other_rows()
        self.checks += 1
        for skill_id, intents in self._load.pushed.items():
            self._add(check_skill(skill_id, versions.get(skill_id, []), intents, known.answers))
        for kind, stored in created.items():
            self._add(check_created(kind, stored, self._intents(kind), known.answers))
        self._add(f"{label}: does not have one audit event" for label in not_audited)

    async def settle(self) -> None:
        """After the load and the faults have ended: wait until every session is at rest and its reader has received
        every event. Then check everything again, to find late writes to sessions that were at rest."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._load.draining and time.monotonic() < deadline:
            await self.check()
            await asyncio.sleep(0.5)
        self._add(f"{one.id}: not settled within {SETTLE_SECONDS:g} s" for one in self._load.draining)
        self._complete.clear()
        await self.check()
        for start in range(0, len(self._load.finished), _BATCH):
            await self._check_sessions(self._load.finished[start : start + _BATCH])
        await self._check_downloads()

    def _add(self, violations: Iterator[str]) -> None:
        for violation in violations:
            self._history.add_violation(violation)

    async def _check_sessions(self, load_sessions: list[LoadSession]) -> dict[str, Session]:
        received = {one.id: list(one.received) for one in load_sessions}
        known = self._acknowledged()
        answered = self._answered()
        sessions = await self._read_sessions([one.id for one in load_sessions])
        for one in load_sessions:
            self._add(check_session(sessions[one.id], one.intents, known, received[one.id]))
            self._add(check_actions(sessions[one.id], answered.get(one.id, [])))
            self._add(check_files(sessions[one.id]))
        return sessions

    def _acknowledged(self) -> Acknowledged:
        pairs = ((intent.token, intent.acknowledgement) for intent in self._history.intents.values())
        answers = {token: answer for token, answer in pairs if answer is not None}
        return Acknowledged(answers, frozenset(self._history.cancelled), self._history.cancel_requested)

    def _answered(self) -> dict[str, list[tuple[SentAnswer, list[Answer]]]]:
        """By session."""
        answered: dict[str, list[tuple[SentAnswer, list[Answer]]]] = {}
        for sent in self._history.sent_answers:
            answered.setdefault(sent.session_id, []).append((sent, list(sent.answers)))
        return answered

    def _intents(self, kind: Kind) -> Iterator[Intent]:
        return (intent for intent in self._history.intents.values() if intent.kind is kind)

    async def _read_sessions(self, ids: list[str]) -> dict[str, Session]:
        async with self._fleet.connect() as connection:
            await connection.execute(_SNAPSHOT)
            uuids = [UUID(one) for one in ids]
            entries: Rows = await (await connection.execute(_ENTRIES, (uuids,))).fetchall()
            runs: Rows = await (await connection.execute(_RUNS, (uuids,))).fetchall()
            actions: Rows = await (await connection.execute(_ACTIONS, (uuids,))).fetchall()
            files: Rows = await (await connection.execute(_FILES, (uuids, LOG))).fetchall()
        sessions = {one: Session(one, [], [], [], []) for one in ids}
        for session_id, number, run_id, type_, data in entries:
            sessions[str(session_id)].entries.append(Entry(number, str(run_id), type_, data))
        for session_id, run_id, *rest in runs:
            sessions[str(session_id)].runs.append(Run(str(run_id), *rest))
        for session_id, action_id, run_id, *rest in actions:
            sessions[str(session_id)].actions.append(Action(str(action_id), str(run_id), *rest))
        for session_id, sha256, generation, size in files:
            has_content = self._has_bundle(sha256.hex(), generation, size)
            sessions[str(session_id)].files.append(File(sha256.hex(), has_content))
        return sessions

    async def _other_rows(self) -> tuple[dict[str, list[Version]], dict[Kind, Counter[str]], list[str]]:
        async with self._fleet.connect() as connection:
            await connection.execute(_SNAPSHOT)
            rows: Rows = await (await connection.execute(_VERSIONS)).fetchall()
            contents: Rows = await (await connection.execute(_CONTENTS)).fetchall()
            created = {
                kind: Counter(dict(await (await connection.execute(query.encode())).fetchall()))
                for kind, query in _CREATED.items()
            }
            not_audited = [label for (label,) in await (await connection.execute(_NOT_AUDITED)).fetchall()]
        versions: dict[str, list[Version]] = {}
        incomplete = {
            version_id
            for version_id, sha256, generation, size in contents
            if sha256 is None or not self._has_bundle(sha256.hex(), generation, size)
        }
        for skill_id, version_id, version, sha256, generation, size in rows:
            has_bundle = version_id not in incomplete and self._has_bundle(sha256.hex(), generation, size)
            versions.setdefault(str(skill_id), []).append(Version(version_id, version, sha256.hex(), has_bundle))
        return versions, created, not_audited

    def _has_bundle(self, sha256: str, generation: UUID, size: int) -> bool:
        """Whether the file is complete. It is written before its row is committed."""
        if (sha256, generation) in self._complete:
            return True
        content = self._fleet.stored_content(sha256, generation)
        if content is None or len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
            return False
        self._complete.add((sha256, generation))
        return True

    async def _check_downloads(self) -> None:
        """Download the newest versions over the API and compare them with the pushed bundles."""
        headers = {"Authorization": f"Bearer {self._fleet.key}"}
        async with httpx.AsyncClient(base_url=self._fleet.apis[0].url, headers=headers, timeout=30) as http:
            for skill_id, intents in self._load.pushed.items():
                page = await http.get(f"/v1/skills/{skill_id}/versions?limit=20")
                for item in page.raise_for_status().json()["items"]:
                    answer = await http.get(f"/v1/skills/{skill_id}/versions/{item['version']}/bundle")
                    intent = intents.get(hashlib.sha256(answer.raise_for_status().content).hexdigest())
                    pushed = None if intent is None else intent.acknowledgement
                    if intent is None or (pushed and json.loads(pushed.body)["version"] != item["version"]):
                        text = f"{skill_id}: version {item['version']} is not the pushed bundle"
                        self._history.add_violation(text)
