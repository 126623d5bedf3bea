"""`qd chat`: from start to end, in a terminal or in a pipe. Without a terminal, each line of stdin is an input; the
conversation goes to stdout as plain text, and everything else to stderr."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer
from msgspec import UNSET

from quarterdeck.cli import completion, find, session_options
from quarterdeck.cli.chat_session import ChatSession, open_client, run_until_first
from quarterdeck.cli.chat_terminal import ChatTerminal
from quarterdeck.cli.chat_view import plain_text, queue_text
from quarterdeck.cli.connection import ConnectionInfo, client_for, connect
from quarterdeck.cli.conversation import Block, BlockKind, CancelRun, Quit, Stage, input_blocks
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import SESSION_HELP, AgentOption, Profile, argument, line, option
from quarterdeck.client import AsyncClient
from quarterdeck.client.models import AgentReference, EventType
from quarterdeck.core.text_types import storable

_STDOUT_KINDS = (BlockKind.INPUT, BlockKind.ANSWER, BlockKind.TOOL, BlockKind.OUTPUT, BlockKind.DIFF)


class ChatPipe:
    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._quit = asyncio.Event()

    def show(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            stream = sys.stdout if block.kind in _STDOUT_KINDS else sys.stderr
            stream.write(plain_text(block) + "\n")
            stream.flush()
        self._changed.set()

    async def flush(self) -> None:
        """`show` has written everything already."""

    async def run(self, chat: ChatSession) -> bool:
        """Runs until the end of the input and of the last run, or Ctrl-C. Returns whether everything succeeded."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted, chat)
        try:
            await run_until_first(chat.follow(), chat.send(), self._read(chat), self._quit.wait())
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        has_failed = chat.conversation.last_end == EventType.RUN_FAILED
        return not self._quit.is_set() and not chat.has_rejected and not has_failed

    def _interrupted(self, chat: ChatSession) -> None:
        match chat.conversation.interrupted(time.monotonic()):
            case CancelRun(run_id):
                chat.cancel(run_id)
            case Quit():
                self._quit.set()
            case stay if chat.conversation.unsent:
                self.show([Block(BlockKind.WARNING, stay.reason)])
            case _:
                # Nobody is typing a message that could be lost.
                self._quit.set()

    async def _read(self, chat: ChatSession) -> None:
        # One line at a time: the writer waits until the server has accepted it.
        lines: asyncio.Queue[str | None] = asyncio.Queue(1)
        _start_reader(asyncio.get_running_loop(), lines)
        while (line := await lines.get()) is not None:
            text = storable(line).rstrip("\r\n")
            if text.strip():
                chat.submit(text)
                while chat.conversation.unsent:
                    await self._wait_for_change()
        while not chat.conversation.is_idle:
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _start_reader(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    """Reads stdin in a daemon thread, because a blocking read cannot be cancelled."""

    def read() -> None:
        # The loop may be closed when a line arrives.
        with suppress(RuntimeError):
            for line in sys.stdin:
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()


_BLOCKS_SHOWN = 20


Screen = ChatTerminal | ChatPipe


async def _chat(
    info: ConnectionInfo, session_id: UUID | None, *, agent: AgentReference | None, title: str | None, model: str | None
) -> int:
    async with open_client(info) as client:
        screen: Screen = ChatTerminal() if _is_terminal() else ChatPipe()
        if session_id is None:
            # A model that is not given is that of the agent.
            given = UNSET if model is None else model
            session_id = (await client.create_session(title=title, agent=agent or UNSET, model=given)).id
            session = ChatSession(client, session_id, screen.show)
            session.was_reached = True
            screen.show([Block(BlockKind.NOTE, f"New session. Resume with: qd chat {session_id}")])
        else:
            session = await _resume(client, session_id, screen)
        screen.show([Block(BlockKind.NOTE, "Type /help for help.")] if isinstance(screen, ChatTerminal) else [])
        try:
            has_succeeded = await screen.run(session)
        finally:
            screen.show([*await session.close(), *_closing_blocks(session)])
            await screen.flush()
    return 0 if has_succeeded else 1


async def _resume(client: AsyncClient, session_id: UUID, screen: Screen) -> ChatSession:
    session = ChatSession(client, session_id, screen.show)
    blocks, has_more = await session.catch_up(_BLOCKS_SHOWN)
    earlier = [Block(BlockKind.NOTE, f"Earlier messages: qd watch {session_id}")] if has_more else []
    screen.show([*earlier, *blocks, *session.conversation.waiting_blocks()])
    return session


def _closing_blocks(session: ChatSession) -> list[Block]:
    """Inputs that are still queued, and how to resume. The live part of the screen is erased on exit."""
    blocks: list[Block] = []
    for one in session.conversation.queued:
        blocks += input_blocks(one)
        if one.stage is Stage.SENDING:
            blocks.append(Block(BlockKind.WARNING, "Not confirmed by the server"))
        else:
            blocks.append(Block(BlockKind.NOTE, queue_text(one)))
    if session.conversation.active_run is not None:
        blocks.append(Block(BlockKind.NOTE, "The run continues on the server."))
    return [*blocks, Block(BlockKind.NOTE, f"Resume with: qd chat {session.session_id}")]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def chat(
    session: Annotated[
        str | None, argument("SESSION", f"{SESSION_HELP} Default: create a new one.", complete=completion.sessions)
    ] = None,
    agent: AgentOption = None,
    title: Annotated[str | None, option("TITLE", "Title of the new session.", parser=line)] = None,
    model: Annotated[
        str | None,
        option(
            "MODEL", "Model of the new session. Default: set by the server.", parser=line, complete=completion.models
        ),
    ] = None,
    profile: Profile = None,
) -> None:
    """Chat in a session. A message starts a run, or steers the current one."""
    if session is not None and any(given is not None for given in (agent, title, model)):
        raise CliError("--agent, --title and --model are for new sessions only")

    info = connect(profile)
    with client_for(info) as client:
        session_id = None if session is None else find.session_id(client, session)
        reference = None if agent is None else session_options.agent(client, agent)
    raise typer.Exit(asyncio.run(_chat(info, session_id, agent=reference, title=title, model=model)))
