"""Workspaces and members."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.text_types import Moment


class WorkspaceBody(Struct, frozen=True):
    id: UUID
    name: str
    created_at: Moment
    owner: ActorBody
    max_key_days: Annotated[int | None, Meta(description="Maximum lifetime of new keys, in days. null: no maximum.")]


class MemberRole(StrEnum):
    OWNER = "owner"
    MEMBER = "member"


class MemberBody(Struct, frozen=True):
    user: ActorBody
    role: MemberRole
    joined_at: Annotated[Moment, Meta(description="When the person joined, or last rejoined.")]
    ended_at: Annotated[Moment | None, Meta(description="When the person left. null: still a member.")]

    @property
    def id(self) -> UUID:
        """The sort key of pages. Not part of the body."""
        return self.user.user_id


class MemberPage(Struct, frozen=True):
    items: list[MemberBody]
    next_cursor: UUID | None
