"""`qd chat` without a terminal: each line of stdin is an input. The conversation goes to stdout as plain text, and
everything else to stderr."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from quarterdeck.cli.chat_session import ChatSession, run_until_first
from quarterdeck.cli.chat_view import plain_text
from quarterdeck.cli.conversation import CancelRun, Quit
from quarterdeck.cli.conversation_parts import Block, Kind
from quarterdeck.client.models import EventType
from quarterdeck.core.text_types import storable

_STDOUT_KINDS = (Kind.INPUT, Kind.ANSWER, Kind.TOOL, Kind.OUTPUT, Kind.DIFF)


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
                self.show([Block(Kind.WARNING, stay.reason)])
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


def _start_reader(loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str | None]") -> None:
    """Reads stdin in a daemon thread, because a blocking read cannot be cancelled."""

    def read() -> None:
        # The loop may be closed when a line arrives.
        with suppress(RuntimeError):
            for line in sys.stdin:
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()
