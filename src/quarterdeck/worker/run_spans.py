"""The spans of jobs, attempts and tool calls, with the attributes of OpenTelemetry's semantic conventions."""

from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

import msgspec
from opentelemetry.trace import Span, SpanKind

from quarterdeck.core import tracing
from quarterdeck.models.model import ToolCall
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.tools.tool import Tool


def job_span(run_id: UUID, traceparent: str | None) -> AbstractContextManager[Span]:
    """`traceparent`: of the request that started the run."""
    attributes = {
        "messaging.system": "postgresql",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "runs",
        "quarterdeck.run.id": str(run_id),
    }
    parent = tracing.parent_of(traceparent)
    return tracing.span("process runs", kind=SpanKind.CONSUMER, attributes=attributes, parent=parent)


def attempt_span(lease: Lease, expected: tuple[type[BaseException], ...]) -> AbstractContextManager[Span]:
    """`expected`: exceptions that end the attempt in good order."""
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": str(lease.session_id),
        "quarterdeck.run.id": str(lease.run_id),
        "quarterdeck.run.attempt": lease.attempt,
        "quarterdeck.workspace.id": str(lease.workspace_id),
    }
    agent = lease.setup.agent
    if agent is not None:
        attributes |= {"gen_ai.agent.id": str(agent.agent_id), "gen_ai.agent.version": str(agent.version)}
    return tracing.span("invoke_agent", attributes=attributes, expected=expected)


def tool_span(tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> AbstractContextManager[Span]:
    """`arguments`: those that the tool gets."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    limit = tracing.content_characters()
    if limit is not None:
        attributes["gen_ai.tool.call.arguments"] = msgspec.json.encode(arguments).decode()[:limit]
    return tracing.span(f"execute_tool {tool.name}", attributes=attributes)


def add_result(span: Span, text: str) -> None:
    limit = tracing.content_characters()
    if limit is not None:
        span.set_attribute("gen_ai.tool.call.result", text[:limit])
