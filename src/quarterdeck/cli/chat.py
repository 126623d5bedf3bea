"""`qd chat`: from start to end, in a terminal or in a pipe.

In a terminal, finished text scrolls up; below it, prompt_toolkit redraws the current answer, the queued inputs and the
input line. Without a terminal, each line of stdin is an input; the conversation goes to stdout as plain text, and
everything else to stderr.
"""

import asyncio
import os
import shlex
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from msgspec import UNSET
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.completion import NestedCompleter, PathCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.renderer import print_formatted_text

from quarterdeck.cli import completion, find, session_options
from quarterdeck.cli.chat_actions import AnswerField, InvalidAnswer, OpenActions
from quarterdeck.cli.chat_session import ChatSession, open_client, run_until_first
from quarterdeck.cli.chat_view import STYLE, Fragments, block_lines, live_lines, plain_text, queue_text
from quarterdeck.cli.connection import ConnectionInfo, client_for, connect, explained
from quarterdeck.cli.conversation import Block, BlockKind, CancelRun, Quit, Stage, input_blocks
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import SESSION_HELP, AgentOption, Profile, argument, line, option
from quarterdeck.client import AsyncClient
from quarterdeck.client.models import AgentReference, Delivery, EventType
from quarterdeck.core.text_types import storable

_STDOUT_KINDS = (BlockKind.INPUT, BlockKind.ANSWER, BlockKind.TOOL, BlockKind.OUTPUT, BlockKind.DIFF)

ATTACH = "/attach "


def typed_path(given: str) -> Path:
    """As typed or completed. Files that are dropped on a terminal are quoted as for a shell."""
    path = Path(given).expanduser()
    if not path.exists():
        with suppress(ValueError):
            words = shlex.split(given)
            path = Path(words[0]).expanduser() if len(words) == 1 else path
    return path


HELP = """\
Enter             Send. While a run is active, the message steers it.
/queue TEXT       Send it to a run of its own, after the active one.
/interrupt TEXT   Cancel the active run and send it to a new one.
/attach FILE      Attach a file to the next message. Tab completes the path.
/detach           Remove the attached files.
Alt-Enter         Insert a line break.
Ctrl-C, /cancel   Cancel the run. Press Ctrl-C twice to quit. The text you are typing stays.
a, d, e, s, …     When the run waits for an answer: the keys that are shown. m writes a message instead.
Ctrl-D, /quit     Quit. An active run continues on the server.
/help             Show this help."""
# The input line and a blank line.
_ROWS_BELOW = 4
# Live text can arrive much faster than people read. Drawing each piece would take all of the processor.
_REDRAW_SECONDS = 1 / 30


class ChatTerminal:
    def __init__(self) -> None:
        self._prompt: PromptSession[None] = PromptSession(
            message=self._live_text,
            style=STYLE,
            history=InMemoryHistory(),
            key_bindings=self._key_bindings(),
            completer=NestedCompleter({ATTACH.strip(): PathCompleter(expanduser=True)}),
            complete_while_typing=False,
            erase_when_done=True,
            tempfile_suffix=".json",
            enable_suspend=True,
        )
        self._prompt.app.min_redraw_interval = _REDRAW_SECONDS
        self._to_print: deque[Block] = deque()
        self._has_blocks = asyncio.Event()
        self._chat: ChatSession | None = None
        # The action whose keys the user can see. A key that was typed before is not an answer.
        self._shown_action: object = None
        self._prompt.app.after_render += self._rendered

    @property
    def chat(self) -> ChatSession:
        assert self._chat is not None, "run() has not been called"
        return self._chat

    @property
    def actions(self) -> OpenActions:
        return self.chat.conversation.actions

    def show(self, blocks: Sequence[Block]) -> None:
        if self._chat is not None and self.actions.is_stale:
            # Somebody else has answered, or the run was cancelled.
            self._leave_field()
        self._to_print.extend(block for block in blocks if block.kind is not BlockKind.PROGRESS)
        if self._to_print:
            self._has_blocks.set()
        else:
            self._prompt.app.invalidate()

    async def run(self, chat: ChatSession) -> bool:
        """Runs until the user quits. Raises the error that ends the chat."""
        self._chat = chat
        with patch_stdout(raw=True):
            await run_until_first(self._prompt.prompt_async(), chat.follow(), chat.send(), self._print_blocks())
        return True

    async def _print_blocks(self) -> None:
        while True:
            await self._has_blocks.wait()
            self._has_blocks.clear()
            await self.flush()

    async def flush(self) -> None:
        """Prints finished blocks above the live part of the screen."""
        async with in_terminal():
            output = self._prompt.app.output
            while self._to_print:
                lines = block_lines(self._to_print.popleft(), output.get_size().columns - 1)
                print_formatted_text(output, _joined(lines), STYLE)
                # Between two blocks Ctrl-C has its turn.
                await asyncio.sleep(0)

    def _live_text(self) -> StyleAndTextTuples:
        size = get_app().output.get_size()
        field = self.actions.field
        lines = live_lines(self.chat.conversation, size.columns - 1, max(1, size.rows - _ROWS_BELOW))
        prompt: StyleAndTextTuples = [("", "\n"), ("class:marker", "› " if field is None else f"{field} › ")]
        return [*_joined(lines), *prompt]

    def _rendered(self, _: object) -> None:
        self._shown_action = None if self._chat is None else self.actions.current

    def _is_choosing(self) -> bool:
        """Whether the next key answers an action."""
        current = self.actions.current
        is_shown = current is not None and current is self._shown_action
        return is_shown and self.actions.field is None and not self._prompt.default_buffer.text

    def _key_bindings(self) -> KeyBindings:
        keys = self._answer_key_bindings()

        @Condition
        def is_empty() -> bool:
            return not self._prompt.default_buffer.text

        @keys.add("c-c", eager=True)
        @keys.add("<sigint>")
        def interrupt(event: KeyPressEvent) -> None:
            match self.chat.conversation.interrupted(time.monotonic()):
                case CancelRun(run_id):
                    self.chat.cancel(run_id)
                case Quit():
                    event.app.exit()
                case stay:
                    self.show([Block(BlockKind.WARNING, stay.reason)])

        @keys.add("c-d", filter=is_empty)
        def end_of_file(event: KeyPressEvent) -> None:
            event.app.exit()

        @keys.add("enter")
        def enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            text = storable(buffer.text)
            if self.actions.field not in (None, AnswerField.INPUT):
                self._typed_answer(text)
            elif text.strip() and not self._must_wait(text):
                self.actions.back()
                buffer.append_to_history()
                buffer.reset()
                self._entered(text, event.app.exit)

        @keys.add("escape", "enter")
        def line_break(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys

    def _answer_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("<any>", filter=Condition(self._is_choosing))
        def choose(event: KeyPressEvent) -> None:
            if event.data == "/":
                # The start of a command.
                event.current_buffer.insert_text("/")
            else:
                self._chosen(event.data)

        @keys.add("escape", filter=Condition(lambda: self.actions.field is not None))
        def back(event: KeyPressEvent) -> None:
            self._leave_field()

        return keys

    def _chosen(self, key: str) -> None:
        current = self.actions.current
        choice = self.actions.choose(key)
        if choice is None or current is None:
            return
        if choice.answer is not None:
            self.chat.resolve(str(current["action_id"]), choice.answer)
            return
        buffer = self._prompt.default_buffer
        buffer.text = self.actions.initial_text()
        if choice.field is AnswerField.ARGUMENTS and (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
            edited = buffer.open_in_editor()
            edited.add_done_callback(lambda _: self._leave_field() if self.actions.field is None else None)

    def _typed_answer(self, text: str) -> None:
        current = self.actions.current
        if current is None:
            return
        try:
            answer = self.actions.typed(text)
        except InvalidAnswer as error:
            self.show([Block(BlockKind.WARNING, str(error))])
            return
        self._leave_field()
        self.chat.resolve(str(current["action_id"]), answer)

    def _must_wait(self, text: str) -> bool:
        """A message is sent with the files that were attached before it."""
        is_command = text.startswith("/") and not text.startswith(("/queue", "/interrupt"))
        if is_command or not self.chat.conversation.uploads:
            return False
        self.show([Block(BlockKind.WARNING, "A file is being uploaded. Send the message when that is done.")])
        return True

    def _leave_field(self) -> None:
        self.actions.back()
        self._prompt.default_buffer.reset()

    def _entered(self, text: str, quit_app: Callable[[], None]) -> None:
        match text.strip():
            case "/quit":
                quit_app()
            case "/help":
                self.show([Block(BlockKind.NOTE, HELP)])
            case "/cancel":
                run_id = self.chat.conversation.active_run
                if run_id is None:
                    self.show([Block(BlockKind.NOTE, "No active run.")])
                else:
                    self.chat.cancel(run_id)
            case "/attach" | "/queue" | "/interrupt" as command:
                missing = "file" if command == "/attach" else "message"
                self.show([Block(BlockKind.WARNING, f"Type the {missing} after {command}.")])
            case "/detach":
                self.chat.detach()
            case word if word.startswith("/") and word[1:].isalpha():
                self.show([Block(BlockKind.WARNING, f"Unknown command: {word}. Type /help for help.")])
            case command if command.startswith((ATTACH, "/queue ", "/interrupt ")):
                self._entered_with_text(*command.split(" ", 1))
            case _:
                self.chat.submit(text)

    def _entered_with_text(self, command: str, text: str) -> None:
        if command == ATTACH.strip():
            self.chat.attach(typed_path(text.strip()))
        else:
            self.chat.submit(text.lstrip(), Delivery(command[1:]))


def _joined(lines: Iterable[Fragments]) -> FormattedText:
    return FormattedText(fragment for line in lines for fragment in (*line, ("", "\n")))


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
    with explained(info):
        with client_for(info) as client:
            session_id = None if session is None else find.session_id(client, session)
            reference = None if agent is None else session_options.agent(client, agent)
        code = asyncio.run(_chat(info, session_id, agent=reference, title=title, model=model))
    raise typer.Exit(code)
