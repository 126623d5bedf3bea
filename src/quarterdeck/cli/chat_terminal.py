"""`qd chat` in a terminal. Finished text scrolls up. Below it, prompt_toolkit redraws the current answer, the queued
inputs and the input line."""

import asyncio
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.completion import NestedCompleter, PathCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.renderer import print_formatted_text

from quarterdeck.cli.chat_actions import AnswerField, InvalidAnswer, OpenActions
from quarterdeck.cli.chat_session import ChatSession, run_until_first
from quarterdeck.cli.chat_view import STYLE, Fragments, block_lines, live_lines
from quarterdeck.cli.conversation import Block, BlockKind, CancelRun, Quit
from quarterdeck.client.models import Delivery
from quarterdeck.core.text_types import storable

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
