"""`qd chat` between other programs: each line that comes in is an input, what is said goes to stdout as plain text, and
what becomes of it to stderr."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from quarterdeck.cli.chat_session import Talk, first_to_end
from quarterdeck.cli.chat_view import plain
from quarterdeck.cli.conversation import Block, Cancel, Kind, Leave
from quarterdeck.conversations.events.model import EventType
from quarterdeck.core.text_types import storable

_SPOKEN = (Kind.INPUT, Kind.ANSWER, Kind.TOOL)


class Pipe:
    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._left = asyncio.Event()

    def show(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            stream = sys.stdout if block.kind in _SPOKEN else sys.stderr
            stream.write(plain(block) + "\n")
            stream.flush()
        self._changed.set()

    async def flush(self) -> None:
        """Nothing is held back."""

    async def run(self, talk: Talk) -> bool:
        """Until the input has ended and the last run too, or Ctrl-C. Whether all that was asked came to a good end."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted, talk)
        try:
            await first_to_end(talk.follow(), talk.send(), self._read(talk), self._left.wait())
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        conversation = talk.conversation
        return not self._left.is_set() and not talk.refused and conversation.last_end != EventType.RUN_FAILED

    def _interrupted(self, talk: Talk) -> None:
        match talk.conversation.interrupted(time.monotonic()):
            case Cancel(run_id):
                talk.cancel(run_id)
            case Leave():
                self._left.set()
            case stay:
                self.show([Block(Kind.TROUBLE, stay.reason)])

    async def _read(self, talk: Talk) -> None:
        # One at a time: whoever writes faster than the server accepts waits.
        lines: asyncio.Queue[str | None] = asyncio.Queue(1)
        _reading(asyncio.get_running_loop(), lines)
        while (line := await lines.get()) is not None:
            text = storable(line).rstrip("\r\n")
            if text.strip():
                talk.submit(text)
                while talk.conversation.unsent:
                    await self._change()
        while not talk.conversation.idle:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _reading(loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[str | None]") -> None:
    """In a thread that nobody waits for: a read from a terminal cannot be called off."""

    def read() -> None:
        # The loop may be gone by the time a line comes.
        with suppress(RuntimeError):
            for line in sys.stdin:
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()
