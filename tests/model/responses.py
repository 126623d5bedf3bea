"""How what the model knows must look in an answer. Times that only the server's clock knows are told by whether they
are there, or roughly."""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from tests.model.paused_provider import ASKING_TOOL
from tests.model.records import PERMISSIONS, Action, Json, Key, Run, Session, Skill, Token

# Between the model's look at the clock and the server's, on a busy machine.
_ROUGHLY = timedelta(minutes=5)


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def is_about(one: datetime, other: datetime) -> bool:
    return abs(one - other) < _ROUGHLY


def without_secret(body: bytes, answer: Json) -> bytes:
    """What a receipt holds: the same bytes but for what is shown only once."""
    for name in ("secret", "token"):
        if name in answer:
            body = body.replace(f',"{name}":"{answer[name]}"'.encode(), b"")
    return body


def skills_of(body: Json) -> list[tuple[str, int | None]]:
    return [(one["skill_id"], one["version"]) for one in body["skills"]]


def check_key(key: Key, answer: Json) -> None:
    assert "secret" not in answer
    assert (answer["id"], answer["label"]) == (key.id, key.label)
    assert answer["permissions"] == [one for one in PERMISSIONS if one in key.permissions]
    assert (answer["revoked_at"] is not None) == key.is_revoked
    expires_at = moment(answer["expires_at"])
    if key.is_replaced and expires_at is not None and key.expires_at is not None:
        # The end of an overlap is counted by the server's clock.
        assert is_about(expires_at, key.expires_at)
    else:
        assert expires_at == key.expires_at


def check_token(token: Token, answer: Json) -> None:
    assert "token" not in answer
    assert (answer["id"], answer["session_id"], answer["api_key_id"]) == (token.id, token.session.id, token.key.id)
    assert (answer["revoked_at"] is not None) == token.is_revoked
    assert answer["may_resolve"] == token.may_resolve
    assert moment(answer["expires_at"]) == token.expires_at


def check_session(session: Session, answer: Json) -> None:
    assert (answer["id"], answer["workspace_id"]) == (session.id, session.workspace)
    assert (answer["title"], answer["revision"]) == (session.title, session.revision)
    assert (answer["archived_at"] is not None) == session.is_archived
    assert skills_of(answer) == session.skills


def check_listed_session(session: Session, answer: Json) -> None:
    check_session(session, answer)
    run = session.active
    assert answer["active_run"] == (None if run is None else {"id": run.id, "state": run.state})


def check_run(run: Run, answer: Json) -> None:
    assert (answer["id"], answer["session_id"], answer["state"]) == (run.id, run.session.id, run.state)
    assert (answer["inputs_accepted"], answer["inputs_consumed"]) == (run.accepted, run.consumed)
    assert (answer["finished_at"] is None) == (run.state in ("pending", "queued", "running", "waiting"))
    assert sorted(answer["waiting_for"]) == sorted(run.waiting_for)
    assert (answer["failure"] is not None) == (run.state == "failed")


def check_action(action: Action, answer: Json) -> None:
    assert (answer["id"], answer["run_id"], answer["session_id"]) == (action.id, action.run.id, action.session.id)
    assert (answer["kind"], answer["tool"]) == ("approval", ASKING_TOOL)
    assert (answer["state"], answer["resolution"]) == (action.state, action.resolution)
    assert (answer["resolved_at"] is None) == (action.state == "open")
    assert (answer["resolved_by"] is None) == (action.resolution is None)


def check_skill(skill: Skill, answer: Json) -> None:
    assert (answer["id"], answer["workspace_id"], answer["name"]) == (skill.id, skill.workspace, skill.name)
    assert answer["latest_version"] == (len(skill.versions) or None)
    assert (answer["default_version"], answer["revision"]) == (skill.default_version, skill.revision)
    assert (answer["archived_at"] is not None) == skill.is_archived


def check_version(skill: Skill, number: int, answer: Json) -> None:
    archive = skill.versions[number - 1]
    assert (answer["skill_id"], answer["version"]) == (skill.id, number)
    assert answer["bundle_bytes"] == len(archive)
    if "manifest" in answer:
        assert answer["manifest"]["archive_sha256"] == hashlib.sha256(archive).hexdigest()


def told(entries: list[Json]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of a session's log what the model knows too, with the texts of inputs in place of their ids."""
    texts = {one["data"]["input_id"]: one["data"]["text"] for one in entries if one["type"] == "input.accepted"}

    def about(data: dict[str, Any]) -> tuple[str, ...]:
        ids = [data["input_id"]] if "input_id" in data else data.get("discarded_input_ids", [])
        return tuple(texts[one] for one in ids)

    kinds = ("input.", "run.", "action.")
    return [(one["type"], one["run_id"], about(one["data"])) for one in entries if one["type"].startswith(kinds)]


def error_of(body: bytes) -> str:
    """The code, after checking that the body is the envelope and nothing else."""
    answer = json.loads(body)
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"code", "message"}
    code: str = answer["error"]["code"]
    return code
