"""Runs `qd chat` from start to end, in a terminal or in a pipe."""

import os
import sys
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from msgspec import UNSET

from quarterdeck.cli.chat_pipe import ChatPipe
from quarterdeck.cli.chat_session import ChatSession, open_client
from quarterdeck.cli.chat_terminal import ChatTerminal
from quarterdeck.cli.chat_view import queue_text
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import input_blocks
from quarterdeck.cli.conversation_parts import Block, Kind, Stage
from quarterdeck.client import AsyncClient
from quarterdeck.client.models import AgentReference

_BLOCKS_SHOWN = 20


class Screen(Protocol):
    def show(self, blocks: Sequence[Block]) -> None: ...

    async def flush(self) -> None: ...

    async def run(self, chat: ChatSession) -> bool:
        """Returns whether everything succeeded."""
        ...


async def chat(
    info: ConnectionInfo,
    session_id: UUID | None,
    *,
    agent: AgentReference | None,
    title: str | None,
    model: str | None,
) -> int:
    async with open_client(info) as client:
        screen: Screen = ChatTerminal() if _is_terminal() else ChatPipe()
        if session_id is None:
            # A model that is not given is that of the agent.
            given = UNSET if model is None else model
            session_id = (await client.create_session(title=title, agent=agent or UNSET, model=given)).id
            session = ChatSession(client, session_id, screen.show)
            session.was_reached = True
            screen.show([Block(Kind.NOTE, f"New session. Resume with: qd chat {session_id}")])
        else:
            session = await _resume(client, session_id, screen)
        screen.show([Block(Kind.NOTE, "Type /help for help.")] if isinstance(screen, ChatTerminal) else [])
        try:
            has_succeeded = await screen.run(session)
        finally:
            screen.show([*await session.close(), *_closing_blocks(session)])
            await screen.flush()
    return 0 if has_succeeded else 1


async def _resume(client: AsyncClient, session_id: UUID, screen: Screen) -> ChatSession:
    session = ChatSession(client, session_id, screen.show)
    blocks, has_more = await session.catch_up(_BLOCKS_SHOWN)
    earlier = [Block(Kind.NOTE, f"Earlier messages: qd watch {session_id}")] if has_more else []
    screen.show([*earlier, *blocks, *session.conversation.waiting_blocks()])
    return session


def _closing_blocks(session: ChatSession) -> list[Block]:
    """Inputs that are still queued, and how to resume. The live part of the screen is erased on exit."""
    blocks: list[Block] = []
    for one in session.conversation.queued:
        blocks += input_blocks(one)
        if one.stage is Stage.SENDING:
            blocks.append(Block(Kind.WARNING, "Not confirmed by the server"))
        else:
            blocks.append(Block(Kind.NOTE, queue_text(one)))
    if session.conversation.active_run is not None:
        blocks.append(Block(Kind.NOTE, "The run continues on the server."))
    return [*blocks, Block(Kind.NOTE, f"Resume with: qd chat {session.session_id}")]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
