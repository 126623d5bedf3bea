"""The requests and values that the docs show have the fields and the form that the service reads."""

import json

import msgspec

from quarterdeck.agents.configuration import AgentConfiguration
from quarterdeck.connections.credentials.model import CreateCredentialBody
from quarterdeck.events.model import EventType
from quarterdeck.sessions.model import CreateSessionBody
from quarterdeck.worker.agent import Trimmed
from quarterdeck.worker.journal import compaction_entry
from tests.pages import blocks_of, texts_of


def test_a_version_of_an_agent_and_a_session_with_an_agent() -> None:
    version, session = texts_of(blocks_of("docs/use/agents.md", "json"))
    assert set(json.loads(version)) == set(AgentConfiguration.__struct_fields__)
    assert msgspec.json.decode(version, type=AgentConfiguration).tool_policy == {"bash": "ask"}
    assert set(json.loads(session)) <= set(CreateSessionBody.__struct_fields__)
    assert msgspec.json.decode(session, type=CreateSessionBody).model == "demo"


def test_credentials() -> None:
    (requests,) = texts_of(blocks_of("docs/use/credentials.md", "http"))
    for request in requests.split("\n\n"):
        line, _, body = request.partition("\n")
        assert line == "POST /v1/credentials"
        assert set(json.loads(body)) <= set(CreateCredentialBody.__struct_fields__)
        msgspec.json.decode(body, type=CreateCredentialBody)


def test_the_configuration_of_an_mcp_client() -> None:
    (text,) = texts_of(blocks_of("docs/use/mcp-endpoint.md", "json"))
    server = json.loads(text)["mcpServers"]["quarterdeck"]
    assert server["url"].endswith("/mcp")
    assert server["headers"]["Authorization"].startswith("Bearer qd_")


def test_what_the_log_says_about_the_context() -> None:
    switched, summary, trimmed = texts_of(blocks_of("docs/use/models.md", "json"))
    # tests/fault/test_fallback_models.py has this event.
    found = json.loads(switched)
    assert (found["type"], list(found["data"])) == (EventType.MODEL_SWITCHED, ["from", "to", "reason"])
    event = compaction_entry("…", dropped_turns=42, kept_answers=3)
    assert json.loads(summary) == {"type": event.type, "data": event.data}
    data = msgspec.to_builtins(Trimmed(dropped_turns=2, cut_turns=7, omitted_files=1))
    assert json.loads(trimmed) == {"type": EventType.CONTEXT_TRIMMED, "data": data}
