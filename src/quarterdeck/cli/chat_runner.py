"""`qd chat` from its first word to its last, in a terminal or between other programs."""

import os
import sys
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from quarterdeck.cli.chat_pipe import Pipe
from quarterdeck.cli.chat_session import Talk, open_client
from quarterdeck.cli.chat_terminal import Terminal
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import Block, Kind, Stage
from quarterdeck.client import AsyncClient

_BLOCKS_SHOWN = 20


class Screen(Protocol):
    def show(self, blocks: Sequence[Block]) -> None: ...

    async def flush(self) -> None: ...

    async def run(self, talk: Talk) -> bool:
        """Whether what was asked came to a good end."""
        ...


async def chat(info: ConnectionInfo, session_id: UUID | None, *, title: str | None, model: str | None) -> int:
    async with open_client(info) as client:
        screen: Screen = Terminal() if _is_terminal() else Pipe()
        if session_id is None:
            session_id = (await client.create_session(title=title, model=model)).id
            talk = Talk(client, session_id, screen.show)
            talk.reached = True
            screen.show([Block(Kind.NOTE, f"New session. Come back with: qd chat {session_id}")])
        else:
            talk = await _resumed(client, session_id, screen)
        screen.show([Block(Kind.NOTE, "/help shows what you can do.")] if isinstance(screen, Terminal) else [])
        try:
            well = await screen.run(talk)
        finally:
            screen.show([*await talk.close(), *_last_words(talk)])
            await screen.flush()
    return 0 if well else 1


async def _resumed(client: AsyncClient, session_id: UUID, screen: Screen) -> Talk:
    talk = Talk(client, session_id, screen.show)
    blocks, more = await talk.catch_up(_BLOCKS_SHOWN)
    earlier = [Block(Kind.NOTE, f"What was before: qd watch {session_id}")] if more else []
    screen.show([*earlier, *blocks])
    return talk


def _last_words(talk: Talk) -> list[Block]:
    """What the screen showed as under way must not vanish with it."""
    blocks = []
    for one in talk.conversation.waiting:
        is_sent = one.stage is not Stage.SENDING
        state = f"{one.stage} · not taken up yet" if is_sent else "not known to have been accepted"
        blocks += [Block(Kind.INPUT, one.text), Block(Kind.NOTE if is_sent else Kind.TROUBLE, state)]
    if talk.conversation.active_run is not None:
        blocks.append(Block(Kind.NOTE, "The run goes on without you."))
    return [*blocks, Block(Kind.NOTE, f"Come back with: qd chat {talk.session_id}")]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
