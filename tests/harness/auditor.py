"""Looks at the database, again and again, and compares it with what clients were told."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg

from tests.harness.fleet import Fleet
from tests.harness.history import History, Intent, Kind
from tests.harness.invariants import Entry, Run, Session, Told, Version, check_created, check_session, check_skill
from tests.harness.load import Hot, Load

# So long may a session take to come to rest once everything is whole again, and while things are being broken.
REST_SECONDS = 60.0
TOO_LONG_SECONDS = 180.0
# Sessions, for the last look.
_AT_ONCE = 50

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_ENTRIES = "SELECT session_id, id, run_id, type, data FROM session_events WHERE session_id = ANY(%s) ORDER BY id"
_RUNS = "SELECT session_id, id, state, last_input, consumed_through FROM runs WHERE session_id = ANY(%s)"
_VERSIONS = """
SELECT v.skill_id, v.id, v.version, b.sha256, b.generation, b.bytes
FROM skill_versions v JOIN bundles b ON b.sha256 = v.bundle_sha256
"""
_MADE = {
    Kind.KEY: "SELECT label, count(*) FROM api_keys GROUP BY label",
    Kind.SESSION: "SELECT title, count(*) FROM sessions GROUP BY title",
}
# Keys that are not in the audit log once.
_UNTOLD = """
SELECT k.label FROM api_keys k WHERE k.label LIKE 'ke-%' AND (
    SELECT count(*) FROM audit_events a
    WHERE a.workspace_id = k.workspace_id AND a.object_id = k.id AND a.action = 'create_api_key'
) <> 1
"""
Rows = list[tuple[Any, ...]]


class Auditor:
    def __init__(self, fleet: Fleet, load: Load, history: History) -> None:
        self._fleet = fleet
        self._load = load
        self._history = history
        self._whole: set[tuple[str, UUID]] = set()
        self.looks = 0

    async def run(self) -> None:
        """For ever. A database that is away is looked at later."""
        while True:
            with suppress(psycopg.OperationalError):
                await self.look()
            await asyncio.sleep(1.0)

    async def look(self) -> None:
        hot = [*self._load.hot, *self._load.cooling]
        resting = {one.id for one in self._load.cooling if one.retired}
        sessions = await self._look_at(hot)
        for one in hot:
            if one.id in resting and sessions[one.id].at_rest and one.has_all(sessions[one.id].entries):
                self._load.cooling.remove(one)
                self._load.rested.append(one)
                assert one.reader is not None
                one.reader.cancel()
            elif time.monotonic() > one.until + TOO_LONG_SECONDS:
                self._history.violated(f"{one.id}: not at rest {TOO_LONG_SECONDS:g} s after its last input")
        told = self._told()
        versions, made, untold = await self._others()
        self.looks += 1
        for skill_id, intents in self._load.pushed.items():
            for violation in check_skill(skill_id, versions.get(skill_id, []), intents, told.answers):
                self._history.violated(violation)
        for kind, stored in made.items():
            for violation in check_created(kind, stored, self._of(kind), told.answers):
                self._history.violated(violation)
        for label in untold:
            self._history.violated(f"{label}: not once in the audit log")

    async def settle(self) -> None:
        """After the load has ended and everything is whole: until every session is at rest and its reader has all.
        Then once more everything that ever was, since what has come to rest must stay so."""
        deadline = time.monotonic() + REST_SECONDS
        while self._load.cooling and time.monotonic() < deadline:
            await self.look()
            await asyncio.sleep(0.2)
        for one in self._load.cooling:
            self._history.violated(f"{one.id}: did not come to rest within {REST_SECONDS:g} s")
        self._whole.clear()
        await self.look()
        for at in range(0, len(self._load.rested), _AT_ONCE):
            await self._look_at(self._load.rested[at : at + _AT_ONCE])
        await self._download()

    async def _look_at(self, hot: list[Hot]) -> dict[str, Session]:
        seen = {one.id: list(one.seen) for one in hot}
        told = self._told()
        sessions = await self._sessions([one.id for one in hot])
        for one in hot:
            for violation in check_session(sessions[one.id], one.intents, told, seen[one.id]):
                self._history.violated(violation)
        return sessions

    def _told(self) -> Told:
        pairs = ((intent.token, intent.told) for intent in self._history.intents.values())
        answers = {token: answer for token, answer in pairs if answer is not None}
        return Told(answers, frozenset(self._history.cancelled), self._history.cancelling)

    def _of(self, kind: Kind) -> Iterator[Intent]:
        return (intent for intent in self._history.intents.values() if intent.kind is kind)

    async def _sessions(self, ids: list[str]) -> dict[str, Session]:
        async with await self._fleet.connect() as connection:
            await connection.execute(_SNAPSHOT)
            uuids = [UUID(one) for one in ids]
            entries: Rows = await (await connection.execute(_ENTRIES, (uuids,))).fetchall()
            runs: Rows = await (await connection.execute(_RUNS, (uuids,))).fetchall()
        sessions = {one: Session(one, [], []) for one in ids}
        for session_id, number, run_id, type_, data in entries:
            sessions[str(session_id)].entries.append(Entry(number, str(run_id), type_, data))
        for session_id, run_id, *rest in runs:
            sessions[str(session_id)].runs.append(Run(str(run_id), *rest))
        return sessions

    async def _others(self) -> tuple[dict[str, list[Version]], dict[Kind, Counter[str]], list[str]]:
        async with await self._fleet.connect() as connection:
            await connection.execute(_SNAPSHOT)
            versions: Rows = await (await connection.execute(_VERSIONS)).fetchall()
            made = {
                kind: Counter(dict(await (await connection.execute(query.encode())).fetchall()))
                for kind, query in _MADE.items()
            }
            untold = [row[0] for row in await (await connection.execute(_UNTOLD)).fetchall()]
        skills: dict[str, list[Version]] = {}
        for skill_id, version_id, version, sha256, generation, size in versions:
            is_there = self._has_bundle(sha256.hex(), generation, size)
            skills.setdefault(str(skill_id), []).append(Version(version_id, version, sha256.hex(), is_there))
        return skills, made, untold

    def _has_bundle(self, sha256: str, generation: UUID, size: int) -> bool:
        """Read once. Written before its row was committed, it must be there whenever the row is."""
        if (sha256, generation) in self._whole:
            return True
        path: Path = self._fleet.bundles / sha256[:2] / f"{sha256}.{generation.hex}"
        if not path.exists() or path.stat().st_size != size:
            return False
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            self._whole.add((sha256, generation))
            return True
        return False

    async def _download(self) -> None:
        """The newest versions as a caller gets them."""
        headers = {"Authorization": f"Bearer {self._fleet.key}"}
        async with httpx.AsyncClient(base_url=self._fleet.apis[0].url, headers=headers, timeout=30) as http:
            for skill_id, intents in self._load.pushed.items():
                page = await http.get(f"/v1/skills/{skill_id}/versions?limit=20")
                for item in page.raise_for_status().json()["items"]:
                    answer = await http.get(f"/v1/skills/{skill_id}/versions/{item['version']}/bundle")
                    intent = intents.get(hashlib.sha256(answer.raise_for_status().content).hexdigest())
                    told = None if intent is None else intent.told
                    if intent is None or (told and json.loads(told.body)["version"] != item["version"]):
                        self._history.violated(f"{skill_id}: version {item['version']} is not what was pushed")
