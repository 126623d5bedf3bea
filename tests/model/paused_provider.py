"""A model that answers when it is told to. Each session asks it under a name of its own; while a question waits, the
run that asked it stands still, and the test knows exactly how far it is."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from tests.contract.provider_server import OPENAI, Reply, Wire, accepted_request, refuses, streams

ANSWER = streams(OPENAI.text("Done."))
CALL = streams(OPENAI.calls("Let me see.", ("call_1", "no_such_tool", "{}")))
# Calls that need an approval, by the policy of the sessions. Their ids repeat from answer to answer.
ASKING_TOOL = "current_time"
ASKING = [
    streams(OPENAI.calls("What time is it?", *((f"call_{at}", ASKING_TOOL, "{}") for at in range(1, count + 1))))
    for count in (1, 2)
]
FAILURE = refuses(400, OPENAI.error("invalid", "No such thing."))


class Question:
    def __init__(self, tag: str, messages: list[Any]) -> None:
        self.tag = tag
        self._messages = messages
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def inputs(self) -> list[str]:
        said = [message["content"] for message in self._messages if message["role"] == "user"]
        return [text for content in said for text in content.split("\n\n")]

    @property
    def instructions(self) -> str:
        return "\n".join(message["content"] for message in self._messages if message["role"] == "system")


class PausedProvider:
    """Lives in a thread of its own; every method but `_serve` and `_held` is for the thread of the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._waiting: dict[str, Question] = {}
        self._asked: Counter[str] = Counter()

    @classmethod
    @contextmanager
    def behind(cls, door: socket.socket) -> Iterator[Self]:
        loop = asyncio.new_event_loop()
        held = cls(loop)
        thread = threading.Thread(target=loop.run_forever, name="held model")
        thread.start()

        async def close(server: asyncio.Server) -> None:
            server.close()
            connections = asyncio.all_tasks() - {asyncio.current_task()}
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            await asyncio.sleep(0)

        opening = asyncio.start_server(held._serve, sock=door.dup())
        server = asyncio.run_coroutine_threadsafe(opening, loop).result()
        try:
            yield held
        finally:
            asyncio.run_coroutine_threadsafe(close(server), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def questions(self) -> dict[str, tuple[int, Question]]:
        """Those that wait, with how many were asked under their name."""
        with self._changed:
            return {tag: (self._asked[tag], question) for tag, question in self._waiting.items()}

    def wait_for_change(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def answer(self, tag: str, reply: Reply) -> None:
        with self._changed:
            question = self._waiting.pop(tag)
        self._loop.call_soon_threadsafe(question.reply.set_result, reply)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        try:
            while not writer.is_closing():
                body = (await accepted_request(wire)).body
                reply = await self._held(wire, Question(body["model"], body["messages"]))
                await reply(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _held(self, wire: Wire, question: Question) -> Reply:
        """The reply. Who asked may leave before it comes: its run was cancelled."""
        with self._changed:
            self._asked[question.tag] += 1
            self._waiting[question.tag] = question
            self._changed.notify_all()
        leaving = asyncio.create_task(wire.reader.readexactly(1))
        try:
            waited: set[asyncio.Future[Any]] = {leaving, question.reply}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                leaving.result()
            return question.reply.result()
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            with self._changed:
                if self._waiting.get(question.tag) is question:
                    del self._waiting[question.tag]
                self._changed.notify_all()
