"""Makes what schemathesis generates mean something: ids of records that exist, times to come, archives that unpack.

Random values of the right form are rightly answered 404 or 400, and then nothing behind those answers is tested. So
each is exchanged for a real one, but for a share that stays as it was. The choice hangs on the generated value alone:
Hypothesis must find the same request when it repeats a case.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
import schemathesis
from hypothesis import strategies as st
from msgspec import UNSET, Struct
from schemathesis import Case, HookContext

from quarterdeck.agents.configuration import ClientTools, ConfigurationField, FallbackModels, McpServers
from quarterdeck.connections.credentials.model import CreateCredentialBody, CredentialType, Parameters
from quarterdeck.connections.servers.model import ChangeMcpServerBody, CreateMcpServerBody
from quarterdeck.core import ids
from quarterdeck.core.actors import Permission
from quarterdeck.core.text_types import Line
from quarterdeck.people import members
from quarterdeck.runs.action_model import ResolveActionBody
from quarterdeck.trusted_jobs.model import CreateTrustedJobBody
from quarterdeck.workspaces.model import ChangeWorkspaceBody, SetRetention
from tests.people import new_email
from tests.session_files import add_archive_as_file
from tests.unit import archives
from tests.waiting_runs import approval, tool_result, waiting_run
from tests.workers import log_of
from tests.world import CLOSED_MCP_URL, EVERY_PERMISSION, World, bundle

GZIP = "application/gzip"
# One in this many.
_STAYS_RANDOM = 8
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Tokens live 30 days at most, and an offset moves a moment by up to a day.
_TOKEN_DAYS = 28
# On the one after, an offset can lead into the year 10000.
_LAST_DAY = "9999-12-30"
_MARK_CHARACTERS = 8
# For which a server keeps audit events, unless it is set.
_AUDIT_DAYS = 365
# What can be done to a record once is done to one of a crowd: those of the others are to last.
_ONCE = {
    ("DELETE /v1/sessions/{session_id}", "session_id"): "session to delete",
    ("DELETE /v1/mcp-servers/{mcp_server_id}", "mcp_server_id"): "MCP server to delete",
    ("DELETE /v1/skills/{skill_id}", "skill_id"): "skill to delete",
    ("DELETE /v1/files/{file_id}", "file_id"): "file to delete",
    ("DELETE /v1/credentials/{credential_id}", "credential_id"): "credential to delete",
    ("DELETE /v1/webhooks/{webhook_id}", "webhook_id"): "webhook to delete",
    ("DELETE /v1/members/{member_id}", "member_id"): "member to remove",
    ("DELETE /v1/invitations/{invitation_id}", "invitation_id"): "invitation to withdraw",
    ("DELETE /v1/trusted-jobs/{trusted_job_id}", "trusted_job_id"): "trusted job to delete",
    ("POST /v1/api-keys/{api_key_id}/rotate", "api_key_id"): "key to rotate",
    ("POST /v1/runs/{run_id}/retry", "run_id"): "run to retry",
    ("POST /v1/actions/{action_id}/resolve", "action_id"): "action to resolve",
}
_TRUSTED_JOB = {"name": "x", "issuer": "https://example.com", "claims": {"sub": "x"}}
_DISCARD = "DELETE /v1/sessions/{session_id}/inputs/{input_id}"


class Records(Struct, frozen=True):
    """A workspace with something in it, and the key that calls."""

    secret: str
    own_key_id: str
    # The one skill and the one agent that may be archived: the others are given to sessions.
    shelf_id: str
    shelved_agent_id: str
    # The first two versions of each skill and of each agent.
    version_ids: dict[str, list[str]]
    by_parameter: dict[str, list[str]]
    # The session of the inputs that are discarded, and the first events of the sessions.
    talking_id: str
    event_ids: dict[str, int]

    def real(self, name: str, generated: str) -> str:
        """For an id of the right form. What the server itself gave out, as a link or a page does, stays."""
        identifier, options = ids.parse_id(generated), self.by_parameter[name]
        if identifier is None:
            return generated
        if str(identifier) == self.own_key_id:
            # Once revoked, it would be answered 401 for the rest of the run.
            return options[0]
        choice = crc32(generated.encode())
        # Any UUID may name a record; a cursor has to come from the list.
        if _is_recent(identifier) or (choice % _STAYS_RANDOM == 0 and name != "after"):
            return generated
        found = options[choice // _STAYS_RANDOM % len(options)]
        return found.upper() if choice % 3 == 0 else found


async def create_records(world: World) -> Records:
    secret, own_key_id = await world.new_key_record(EVERY_PERMISSION)
    # Keys that may be revoked, and whose ids are cursors of the list all the same.
    keys = [str((await world.new_key_record((permission,)))[1]) for permission in Permission]
    sessions = [await world.new_session() for _ in range(3)]
    tokens = [(await world.post(f"/v1/sessions/{one}/tokens", {})).json()["id"] for one in sessions]
    skills = [await world.new_skill() for _ in range(3)]
    version_ids = {skill_id: [await _pushed(world, skill_id, name) for name in ("one", "two")] for skill_id in skills}
    agents = [await world.new_agent(versions=2) for _ in range(3)]
    for agent_id in agents:
        page = await world.get(f"/v1/agents/{agent_id}/versions")
        version_ids[agent_id] = [version["id"] for version in page.json()["items"]]
    for session_id in sessions:
        await add_archive_as_file(world, session_id, "SKILL.md")
    webhooks = [await world.new_webhook() for _ in range(3)]
    deliveries = [(await world.post(f"/v1/webhooks/{one}/test", None)).json()["id"] for one in webhooks]
    runs = [(await world.submit(session_id)).json()["run_id"] for session_id in sessions]
    talking_id = await world.new_session()
    for _ in range(30):
        await world.submit(talking_id)
    logs = {session_id: await log_of(world, session_id) for session_id in (*sessions, talking_id)}
    return Records(
        secret,
        str(own_key_id),
        await world.new_skill(),
        await world.new_agent(versions=0),
        version_ids,
        {
            "session_id": sessions,
            "session_token_id": tokens,
            "credential_id": [await world.new_credential() for _ in range(3)],
            "credential to delete": [await world.new_credential() for _ in range(30)],
            "webhook to delete": [await world.new_webhook() for _ in range(30)],
            "session to delete": [await world.new_session() for _ in range(30)],
            "mcp_server_id": [await world.new_mcp_server() for _ in range(3)],
            "MCP server to delete": [await world.new_mcp_server() for _ in range(30)],
            "member_id": [await _member_id(world) for _ in range(3)],
            "member to remove": [await _member_id(world) for _ in range(30)],
            "invitation_id": [await _invitation_id(world) for _ in range(3)],
            "invitation to withdraw": [await _invitation_id(world) for _ in range(30)],
            "trusted_job_id": [await _trusted_job_id(world, skills[0]) for _ in range(3)],
            "trusted job to delete": [await _trusted_job_id(world, skills[0]) for _ in range(30)],
            "skill to delete": [await world.new_skill() for _ in range(30)],
            "key to rotate": [str((await world.new_key_record(EVERY_PERMISSION))[1]) for _ in range(30)],
            "run to retry": [await _cancelled_run(world) for _ in range(30)],
            "run_id": runs,
            # Actions of runs that nobody cancels.
            "action_id": (await waiting_run(world, approval(), tool_result()))[2],
            "action to resolve": (await waiting_run(world, *[approval() for _ in range(30)]))[2],
            "input_id": [entry["data"]["input_id"] for entry in logs[talking_id]],
            "skill_id": skills,
            "agent_id": agents,
            "file_id": [await world.new_file() for _ in range(3)],
            "file to delete": [await world.new_file() for _ in range(30)],
            "api_key_id": keys,
            "webhook_id": webhooks,
            "delivery_id": deliveries,
            "after": keys,
            "user_id": [await _owner_id(world)],
            # For the audit log, any object will do.
            "object_id": [*keys, *sessions],
            "Service-Workspace": [str(world.workspace_id)],
        },
        talking_id,
        {session_id: log[0]["id"] for session_id, log in logs.items()},
    )


async def _owner_id(world: World) -> str:
    ((owner_id,),) = await world.fetch("SELECT owner_id FROM workspaces WHERE id = %s", world.workspace_id)
    return str(owner_id)


async def _member_id(world: World) -> str:
    async with await world.connect() as connection:
        return str(await members.add_by_operator(connection, world.workspace_id, new_email()))


async def _invitation_id(world: World) -> str:
    created: str = (await world.post("/v1/invitations", {"email": new_email()})).json()["id"]
    return created


async def _trusted_job_id(world: World, skill_id: str) -> str:
    created: str = (await world.post(f"/v1/skills/{skill_id}/trusted-jobs", _TRUSTED_JOB)).json()["id"]
    return created


async def _cancelled_run(world: World) -> str:
    run_id: str = (await world.submit(await world.new_session())).json()["run_id"]
    await world.post(f"/v1/runs/{run_id}/cancel", None)
    return run_id


async def _pushed(world: World, skill_id: str, name: str) -> str:
    version_id: str = (await world.push(skill_id, bundle(name))).json()["id"]
    return version_id


def use_real_values(schema: schemathesis.BaseSchema, records: Records) -> None:
    """Registered on the schema: hooks on cases are the only ones that all phases ask."""

    def map_case(_: HookContext, case: Case[Any]) -> Case[Any]:
        for container in (case.path_parameters, case.headers, case.query):
            for name, value in list(container.items()):
                if name in records.by_parameter and isinstance(value, str):
                    container[name] = records.real(_ONCE.get((case.operation.label, name), name), value)
        if "If-Match" in case.headers:
            # Others are rightly answered 412.
            case.headers["If-Match"] = "*"
        _fit_token(case, records)
        _fit_input(case, records)
        _set_fork(case, records)
        _set_cursor(case, records)
        if isinstance(case.body, dict) and repr(whole := _with_integers(case.body)) != repr(case.body):
            case.body = whole
        _set_member_cursor(case, records)
        _set_skill_cursor(case, records)
        _set_versions(case)
        _set_skill_change(case, records)
        _set_agent_change(case, records)
        _set_expiry(case)
        _set_attachments(case, records)
        _set_configuration(case, records)
        _set_first_version(case, records)
        _set_session_agent(case, records)
        _set_webhook(case, records)
        _set_mcp_server(case)
        _set_trusted_job(case)
        _set_credential(case)
        _set_answer(case)
        _set_days(case)
        _set_audit_days(case)
        if isinstance(case.body, Junk):
            # Setting it is what tells schemathesis that this body is not a valid one.
            case.body = bytes(case.body)
        key = case.headers.get("Idempotency-Key")
        # One that is wrong on purpose stays wrong.
        if isinstance(key, str) and key.isprintable() and 0 < len(key) <= 255:
            case.headers["Idempotency-Key"] = _own_key(key, case)
        return case

    schema.hooks.register_hook_with_name(map_case, "map_case")


def _is_recent(identifier: UUID) -> bool:
    """Ids of the server begin with the time; a random one hardly falls into this hour."""
    return abs(time.time() * 1000 - (identifier.int >> 80)) < 3_600_000


def _set_expiry(case: Case[Any]) -> None:
    """Other days for what is past or too far away; the forms of time and offset stay as generated."""
    body: Any = case.body
    given = body.get("expires_at") if isinstance(body, dict) else None
    match = _MOMENT.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return
    day = datetime.now(UTC).date() + timedelta(days=2 + crc32(match[0].encode()) % (_TOKEN_DAYS - 2))
    if case.operation.path.endswith("/tokens") or not day.isoformat() <= match[1] <= _LAST_DAY:
        case.body = body | {"expires_at": match[0].replace(match[1], day.isoformat(), 1)}


def _fit_token(case: Case[Any], records: Records) -> None:
    """A token is found by its own session only."""
    names = case.path_parameters or {}
    session_id, sessions = str(names.get("session_id")).lower(), records.by_parameter["session_id"]
    tokens = records.by_parameter["session_token_id"]
    if session_id in sessions and str(names.get("session_token_id")).lower() in tokens:
        names["session_token_id"] = tokens[sessions.index(session_id)]


def _fit_input(case: Case[Any], records: Records) -> None:
    """An input is found by its own session only."""
    names = case.path_parameters or {}
    is_known = str(names.get("input_id")).lower() in records.by_parameter["input_id"]
    if case.operation.label == _DISCARD and is_known and str(names.get("session_id")).lower() in records.event_ids:
        names["session_id"] = records.talking_id


def _set_fork(case: Case[Any], records: Records) -> None:
    """Before an event of the session. What is wrong on purpose stays wrong."""
    body: Any = case.body
    if not case.operation.path.endswith("/fork") or not isinstance(body, dict):
        return
    given: Any = body.get("before_event_id")
    if type(given) in (int, float) and given == int(given) and 1 <= given < 2**63:
        session_id = str((case.path_parameters or {}).get("session_id")).lower()
        case.body = body | {"before_event_id": records.event_ids.get(session_id)}


def _set_cursor(case: Case[Any], records: Records) -> None:
    """Each list has cursors of its own; those of a session's are in the order of the sessions."""
    _, _, of_session = case.operation.path.partition("/{session_id}/")
    ids = records.by_parameter.get({"runs": "run_id", "tokens": "session_token_id"}.get(of_session, ""))
    if ids is not None and str(case.query.get("after")).lower() in records.by_parameter["after"]:
        session_id = str((case.path_parameters or {}).get("session_id")).lower()
        sessions = records.by_parameter["session_id"]
        if session_id in sessions:
            case.query["after"] = ids[sessions.index(session_id)]
        else:
            # One that was created on the way has none yet.
            del case.query["after"]


def _with_integers(value: Any) -> Any:
    """To JSON Schema 1.0 is an integer too; to the server, as to most readers of JSON, it is not."""
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    return int(value) if type(value) is float and value.is_integer() else value


def _set_member_cursor(case: Case[Any], records: Records) -> None:
    """A page of members begins behind a person, one of invitations behind an invitation."""
    name = {"/v1/members": "user_id", "/v1/invitations": "invitation_id"}.get(case.operation.path)
    if name is not None and str(case.query.get("after")).lower() in records.by_parameter["after"]:
        case.query["after"] = records.by_parameter[name][0]


def _set_skill_cursor(case: Case[Any], records: Records) -> None:
    """So have the skills, and the versions of each and of each agent."""
    path, names = case.operation.path, case.path_parameters or {}
    owner_id = str(names.get("skill_id") or names.get("agent_id")).lower()
    if str(case.query.get("after")).lower() not in records.by_parameter["after"]:
        return
    if path == "/v1/skills":
        case.query["after"] = records.by_parameter["skill_id"][0]
    elif path.endswith("/versions") and owner_id in records.version_ids:
        case.query["after"] = records.version_ids[owner_id][0]


def _set_versions(case: Case[Any]) -> None:
    """The first two, which every skill has, and the file that versions and sessions have. What is wrong on purpose
    stays wrong."""
    for container, name in ((case.path_parameters, "version"), (case.query, "base"), (case.query, "head")):
        value: Any = (container or {}).get(name)
        if _is_number(value) and int(value) % _STAYS_RANDOM:
            container[name] = 1 + int(value) % 2
    path = case.query.get("path")
    if isinstance(path, str) and path and "\0" not in path and crc32(path.encode("utf-8", "replace")) % _STAYS_RANDOM:
        case.query["path"] = "SKILL.md"
    if "Range" in case.headers:
        # Others are rightly answered 416, or with the whole.
        case.headers["Range"] = "bytes=0-9"


def _set_skill_change(case: Case[Any], records: Records) -> None:
    body: Any = case.body
    if case.operation.label != "PATCH /v1/skills/{skill_id}" or not isinstance(body, dict):
        return
    has_versions = str((case.path_parameters or {}).get("skill_id")).lower() in records.version_ids
    if has_versions and body.get("archived") is True:
        case.path_parameters["skill_id"], has_versions = records.shelf_id, False
    if _is_number(body.get("default_version")):
        case.body = body | {"default_version": 1 if has_versions else None}


def _set_agent_change(case: Case[Any], records: Records) -> None:
    body: Any = case.body
    if case.operation.label != "PATCH /v1/agents/{agent_id}" or not isinstance(body, dict):
        return
    has_versions = str((case.path_parameters or {}).get("agent_id")).lower() in records.version_ids
    if has_versions and body.get("archived") is True:
        case.path_parameters["agent_id"], has_versions = records.shelved_agent_id, False
    if _is_number(body.get("default_version")):
        case.body = body | {"default_version": 1 if has_versions else None}


def _set_configuration(case: Case[Any], records: Records) -> None:
    fitting = _fitting_configuration(case.body, records)
    # Setting a body changes what schemathesis expects of the answer.
    if isinstance(fitting, dict) and repr(fitting) != repr(case.body):
        case.body = fitting


def _fitting_configuration(body: Any, records: Records) -> Any:
    """Skills, servers and models that exist, and schemas that are valid. What is wrong on purpose stays wrong."""
    if not isinstance(body, dict):
        return body
    body = _with_servers(_with_skills(_with_models(_with_client_tools(body)), records), records)
    return body | {"output_schema": {"type": "object"}} if isinstance(body.get("output_schema"), dict) else body


def _set_first_version(case: Case[Any], records: Records) -> None:
    if case.operation.label != "POST /v1/agents" or not isinstance(case.body, dict):
        return
    fitting = _fitting_configuration(case.body.get("version"), records)
    if isinstance(fitting, dict) and repr(fitting) != repr(case.body["version"]):
        case.body = case.body | {"version": fitting}


def _set_session_agent(case: Case[Any], records: Records) -> None:
    """An agent with versions. `inherit` needs one, and no field that is set too."""
    body: Any = case.body
    if not case.operation.path.startswith("/v1/sessions") or not isinstance(body, dict):
        return
    agent, version = body.get("agent"), None
    if isinstance(agent, dict) and isinstance(agent.get("agent_id"), str) and ids.parse_id(agent["agent_id"]):
        if _is_number(agent.get("version")):
            version = {"version": 1 + int(agent["version"]) % 2}
        case.body = body = body | {"agent": agent | {"agent_id": records.by_parameter["agent_id"][0]} | (version or {})}
    inherit = body.get("inherit")
    if isinstance(inherit, list) and all(one in list(ConfigurationField) for one in inherit):
        given = set(inherit) if not isinstance(agent, dict) else set(body)
        case.body = body | {"inherit": [one for one in inherit if one not in given]}


def _is_number(value: Any) -> bool:
    """Of the right form, wherever it stands. To JSON Schema 1.0 is an integer too."""
    if isinstance(value, str):
        return re.fullmatch(r"[1-9][0-9]{0,8}", value, re.ASCII) is not None
    return type(value) in (int, float) and value == int(value) and 1 <= value < 2**31


def _with_skills(body: dict[str, Any], records: Records) -> dict[str, Any]:
    """Each once, without a version."""
    skills = body.get("skills")
    if not isinstance(skills, list) or len(skills) > 100 or not all(map(_is_skill, skills)):
        return body
    pairs = zip(skills, records.by_parameter["skill_id"], strict=False)
    return body | {"skills": [one | {"skill_id": skill_id, "version": None} for one, skill_id in pairs]}


def _with_servers(body: dict[str, Any], records: Records) -> dict[str, Any]:
    try:
        number = len(msgspec.convert(body.get("mcp_servers"), McpServers))
    except msgspec.ValidationError:
        return body
    return body | {"mcp_servers": records.by_parameter["mcp_server_id"][:number]}


def _set_attachments(case: Case[Any], records: Records) -> None:
    """Files that exist, each once. What is wrong on purpose stays wrong."""
    body: Any = case.body
    given = body.get("attachments") if isinstance(body, dict) else None
    if isinstance(given, list) and all(isinstance(one, str) and ids.parse_id(one) is not None for one in given):
        case.body = body | {"attachments": records.by_parameter["file_id"][: len(given)]}


def _with_models(body: dict[str, Any]) -> dict[str, Any]:
    return _with_fallback_models(_with_model(body))


def _with_model(body: dict[str, Any]) -> dict[str, Any]:
    """A model that can be used, for any text of the right form."""
    try:
        model = msgspec.convert(body.get("model"), Line)
    except msgspec.ValidationError:
        return body
    return body | {"model": _known_model(model)}


def _with_fallback_models(body: dict[str, Any]) -> dict[str, Any]:
    try:
        models = msgspec.convert(body.get("fallback_models"), FallbackModels)
    except msgspec.ValidationError:
        return body
    return body | {"fallback_models": list(dict.fromkeys(map(_known_model, models)))}


def _known_model(text: str) -> str:
    return "demo" if len(text) % 2 else f"openai:m{crc32(text.encode('utf-8', 'replace'))}"


def _set_webhook(case: Case[Any], records: Records) -> None:
    """Addresses that are public, webhooks that stay enabled, and deliveries of the webhook in the path."""
    if not case.operation.path.startswith("/v1/webhooks"):
        return
    body: Any = case.body
    url = body.get("url") if isinstance(body, dict) else None
    if isinstance(url, str) and re.match("https?://", url) and len(url) <= 2000:
        case.body = body = body | {"url": f"https://example.com/{crc32(url.encode())}"}
    if isinstance(body, dict) and body.get("enabled") is False:
        case.body = body | {"enabled": True}
    webhook_id = str((case.path_parameters or {}).get("webhook_id")).lower()
    webhooks, deliveries = records.by_parameter["webhook_id"], records.by_parameter["delivery_id"]
    if str((case.path_parameters or {}).get("delivery_id")).lower() in deliveries and webhook_id in webhooks:
        case.path_parameters["delivery_id"] = deliveries[webhooks.index(webhook_id)]


def _set_trusted_job(case: Case[Any]) -> None:
    """What the schema cannot say: an address that is public, and claims that tell jobs apart."""
    if not case.operation.path.endswith("/trusted-jobs") or not isinstance(case.body, dict):
        return
    try:
        msgspec.convert(case.body, CreateTrustedJobBody)
    except msgspec.ValidationError:
        return
    body: Any = case.body
    case.body = body | _TRUSTED_JOB


def _set_mcp_server(case: Case[Any]) -> None:
    """Names of their own, an address that is allowed, and neither a command nor a credential, which have to exist. What
    is wrong on purpose stays wrong."""
    if not case.operation.path.startswith("/v1/mcp-servers") or not isinstance(case.body, dict):
        return
    create = case.operation.method.upper() == "POST"
    try:
        msgspec.convert(case.body, CreateMcpServerBody if create else ChangeMcpServerBody)
    except msgspec.ValidationError:
        return
    mark = crc32(repr(case.body).encode("utf-8", "replace"))
    fitting: dict[str, Any] = {"url": f"{CLOSED_MCP_URL}/{mark}", "command": None, "credential_id": None}
    if "name" in case.body:
        fitting["name"] = f"n{mark:08x}{case.body['name']}"[:32]
    case.body = case.body | {name: value for name, value in fitting.items() if create or name in case.body}


def _set_credential(case: Case[Any]) -> None:
    """The fields of its kind, and no others. What is wrong on purpose stays wrong."""
    if case.operation.label != "POST /v1/credentials" or not isinstance(case.body, dict):
        return
    try:
        body = msgspec.convert(case.body, CreateCredentialBody)
    except msgspec.ValidationError:
        return
    fields: dict[str, Any] = dict.fromkeys(Parameters.__struct_fields__)
    if body.kind is CredentialType.HEADER:
        fields["header"] = "X-Api-Key"
    elif body.kind is CredentialType.OAUTH_CLIENT_CREDENTIALS:
        fields |= {"client_id": body.client_id or "client", "scope": body.scope, "audience": body.audience}
        fields["token_url"] = f"https://example.com/{crc32(repr(body.token_url).encode('utf-8', 'replace'))}"
    if any(case.body.get(name) != value for name, value in fields.items()):
        case.body = case.body | fields


def _set_answer(case: Case[Any]) -> None:
    """One that fits an approval. What is wrong on purpose stays wrong."""
    if not case.operation.path.endswith("/resolve") or not isinstance(case.body, dict):
        return
    try:
        answer = msgspec.convert(case.body, ResolveActionBody)
    except msgspec.ValidationError:
        return
    case.body = {"decision": "allow"} if answer.message is UNSET else {"decision": "deny", "message": answer.message}


def _with_client_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Each with a name and parameters that all providers take."""
    tools: Any = body.get("client_tools")
    try:
        number = len(msgspec.convert(tools, ClientTools))
    except msgspec.ValidationError:
        return body
    return body | {
        "client_tools": [
            tools[index] | {"name": f"tool_{index}", "parameters": {"type": "object"}} for index in range(number)
        ]
    }


def _set_days(case: Case[Any]) -> None:
    """Others than these are rightly refused if they are in the wrong order."""
    today = datetime.now(UTC).date()
    for name, day in (("from", today - timedelta(days=9)), ("to", today)):
        given = case.query.get(name)
        if case.operation.path.endswith(("/usage", "/stats")) and isinstance(given, str) and _is_day(given):
            case.query[name] = day.isoformat()


def _set_audit_days(case: Case[Any]) -> None:
    """At least as long as the server keeps audit events. What is wrong on purpose stays wrong."""
    body: Any = case.body
    if case.operation.label != "PATCH /v1/workspace" or not isinstance(body, dict):
        return
    try:
        retention = msgspec.convert(body, ChangeWorkspaceBody).retention
    except msgspec.ValidationError:
        return
    days = retention.audit_days if isinstance(retention, SetRetention) else None
    if isinstance(days, int) and days < _AUDIT_DAYS:
        case.body = body | {"retention": body["retention"] | {"audit_days": _AUDIT_DAYS + days}}


def _is_day(text: str) -> bool:
    return (_DAY.fullmatch(text) or _MOMENT.fullmatch(text)) is not None


def _is_skill(value: Any) -> bool:
    if not isinstance(value, dict) or ids.parse_id(str(value.get("skill_id"))) is None:
        return False
    version = value.get("version")
    return version is None or (not isinstance(version, str) and _is_number(version))


def _own_key(key: str, case: Case[Any]) -> str:
    """Marked by the request it is for. Some stay as they are: used again, they are replays and conflicts."""
    request = repr((case.operation.label, case.path_parameters, case.body)).encode()
    if crc32(key.encode()) % 4 == 0:
        return key
    mark = f"{crc32(request):0{_MARK_CHARACTERS}x}"
    return mark + key[_MARK_CHARACTERS:]


class Junk(bytes):
    """A body that must be refused."""


# First letters are fixed: a name must not read as a number or a null, a path be neither skill.md nor file and folder.
_names = st.from_regex(r"n[a-z0-9]{0,15}(-[a-z0-9]{1,15}){0,3}", fullmatch=True)
_paths = st.from_regex(r"(d[a-z]{0,4}/){0,2}p[a-z0-9_]{0,20}(\.[a-z]{1,4})?", fullmatch=True)
_contents = st.text(st.characters(codec="utf-8"), max_size=200)
_archives = st.just(bundle()) | st.builds(
    lambda name, files: bundle(name, **files), _names, st.dictionaries(_paths, _contents, max_size=5)
)


@st.composite
def _junk(draw: st.DrawFn) -> Junk:
    whole = draw(_archives)
    end = draw(st.integers(10, len(whole) - 1))
    damaged = st.sampled_from(
        [
            whole[:end],
            whole + b"\x01",
            whole[:-8] + bytes(8),
            archives.gzip(archives.tar(archives.file(b"skill.md", archives.SKILL_MD))),
            archives.gzip(archives.tar(archives.skill_md(), archives.skill_md())),
            archives.bundle(archives.file(b"../up", b"x")),
            archives.bundle(archives.header(b"link", kind=b"2", link=b"/etc/passwd")),
            archives.bundle_with(b"---\nname: Not A Name\n---\n"),
            archives.tar(archives.skill_md()),
        ]
    )
    return Junk(draw(damaged | st.binary(max_size=200)))


# Archives come first: where schemathesis takes one simplest value, it has to be a valid one.
schemathesis.openapi.media_type(GZIP, st.one_of(_archives, _archives, _junk()))
