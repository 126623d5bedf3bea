"""Sessions: request and response bodies."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.text_types import Line, Moment, Text


class SessionSkill(Struct, frozen=True):
    skill_id: UUID
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="null: the default version of the skill, or its latest."),
    ] = None


Title = Line | None
Model = Annotated[Line | None, Meta(description="`provider:name` or `demo`. Default: the server's default model.")]
Instructions = Annotated[Text | None, Meta(description="Instructions for the agent.")]
Skills = Annotated[list[SessionSkill], Meta(max_length=100)]


class CreateSessionBody(Struct, frozen=True):
    title: Title = None
    model: Model = None
    instructions: Instructions = None
    skills: Skills = []


class ChangeSessionBody(Struct, frozen=True):
    """Changes only the given fields."""

    title: Title | UnsetType = UNSET
    model: Model | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    skills: Skills | UnsetType = UNSET
    archived: Annotated[
        bool | UnsetType,
        Meta(description="An archived session accepts no input. It stays readable and can be unarchived."),
    ] = UNSET


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session but for its instructions, which may be long."""

    id: UUID
    workspace_id: UUID
    title: str | None
    model: str | None
    skills: list[SessionSkill]
    created_at: Moment
    created_by: ActorBody
    archived_at: Moment | None
    revision: Annotated[int, Meta(ge=1, description="Number of changes. The ETag is derived from it.")]


class SessionBody(SessionSummary, frozen=True, kw_only=True):
    instructions: str | None


class ActiveRun(Struct, frozen=True):
    id: UUID
    state: Literal["queued", "running"]


class ListedSession(SessionSummary, frozen=True, kw_only=True):
    active_run: Annotated[ActiveRun | None, Meta(description="The active run. null: none.")]


class SessionPage(Struct, frozen=True):
    items: list[ListedSession]
    next_cursor: UUID | None


class AgentSetup(Struct, frozen=True):
    """The part of a session that configures its agent."""

    model: str | None
    instructions: str | None
