"""Sessions and their tokens as they are asked for and shown."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.texts import Line, Moment, Text


class SessionSkill(Struct, frozen=True):
    skill_id: UUID
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="null follows the skill: its default version, or else its latest."),
    ] = None


class CreateSessionBody(Struct, frozen=True):
    title: Line | None = None
    model: Annotated[Line | None, Meta(description="`provider:name`, or `demo`. By default as the server is set.")] = (
        None
    )
    instructions: Annotated[Text | None, Meta(description="What the agent is told before everything else.")] = None
    skills: Annotated[list[SessionSkill], Meta(max_length=100)] = []


class SessionBody(Struct, frozen=True):
    id: UUID
    workspace_id: UUID
    title: str | None
    model: str | None
    instructions: str | None
    skills: list[SessionSkill]
    created_at: Moment


class AgentSetup(Struct, frozen=True):
    """What a session asks of the agent that works in it."""

    model: str | None
    instructions: str | None


class CreateSessionTokenBody(Struct, frozen=True):
    expires_at: Annotated[Moment | None, Meta(description="By default and at most as the server is set.")] = None


class CreatedSessionTokenBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    prefix: str
    created_at: Moment
    expires_at: Moment
    token: Annotated[str | UnsetType, Meta(description="Shown once: a replayed answer does not hold it.")] = UNSET
