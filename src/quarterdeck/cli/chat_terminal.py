"""`qd chat` in a terminal. What is finished scrolls up as on any terminal. Below it, drawn anew as they change, stand
the answer that is being written, the inputs that wait, and the line that is being typed."""

import asyncio
import time
from collections.abc import Callable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, in_terminal
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.renderer import print_formatted_text

from quarterdeck.cli.chat_session import Talk, first_to_end
from quarterdeck.cli.chat_view import STYLE, Fragments, lines_of, live_lines
from quarterdeck.cli.conversation import Block, Cancel, Kind, Leave
from quarterdeck.core.text_types import storable

HELP = """\
Enter sends. What you send while the agent works steers it.
Alt-Enter begins a new line.
/cancel or Ctrl-C cancels the run. Ctrl-C twice leaves.
/quit or Ctrl-D leaves. A run that is under way goes on.
/help shows this."""
# Rows that the line being typed, and a blank one, keep for themselves.
_ROWS_BELOW = 4


class Terminal:
    def __init__(self) -> None:
        self._session: PromptSession[None] = PromptSession(
            message=self._live,
            style=STYLE,
            history=InMemoryHistory(),
            key_bindings=self._keys(),
            erase_when_done=True,
            enable_suspend=True,
        )
        self._to_print: list[Block] = []
        self._something = asyncio.Event()
        self._talk: Talk | None = None

    @property
    def talk(self) -> Talk:
        assert self._talk is not None, "talking has begun"
        return self._talk

    def show(self, blocks: Sequence[Block]) -> None:
        self._to_print += [block for block in blocks if block.kind is not Kind.PROGRESS]
        if self._to_print:
            self._something.set()
        else:
            self._session.app.invalidate()

    async def run(self, talk: Talk) -> bool:
        """Until the person leaves; raises what the conversation ends in."""
        self._talk = talk
        with patch_stdout(raw=True):
            await first_to_end(self._session.prompt_async(), talk.follow(), talk.send(), self._print_on())
        return True

    async def _print_on(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            await self.flush()

    async def flush(self) -> None:
        """Above what is drawn anew, or just so before and after."""
        async with in_terminal():
            # Taken here: what came while this waited for the terminal goes along.
            blocks, self._to_print = self._to_print, []
            output = self._session.app.output
            columns = output.get_size().columns - 1
            lines = [line for block in blocks for line in lines_of(block, columns)]
            print_formatted_text(output, _joined(lines, end=True), STYLE)

    def _live(self) -> StyleAndTextTuples:
        size = get_app().output.get_size()
        lines = live_lines(self.talk.conversation, size.columns - 1, max(1, size.rows - _ROWS_BELOW))
        prompt: StyleAndTextTuples = [("", "\n"), ("class:marker", "› ")]
        return [*_joined(lines, end=bool(lines)), *prompt]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @Condition
        def nothing_typed() -> bool:
            return not self._session.default_buffer.text

        @keys.add("c-c", eager=True)
        @keys.add("<sigint>")
        def interrupt(event: KeyPressEvent) -> None:
            match self.talk.conversation.interrupted(time.monotonic()):
                case Cancel(run_id):
                    self.talk.cancel(run_id)
                case Leave():
                    event.app.exit()
                case stay:
                    self.show([Block(Kind.TROUBLE, stay.reason)])

        @keys.add("c-d", filter=nothing_typed)
        def leave(event: KeyPressEvent) -> None:
            event.app.exit()

        @keys.add("enter")
        def enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            text = storable(buffer.text)
            if text.strip():
                buffer.append_to_history()
                buffer.reset()
                self._entered(text, event.app.exit)

        @keys.add("escape", "enter")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys

    def _entered(self, text: str, leave: Callable[[], None]) -> None:
        match text.strip():
            case "/quit":
                leave()
            case "/help":
                self.show([Block(Kind.NOTE, HELP)])
            case "/cancel":
                run_id = self.talk.conversation.active_run
                if run_id is None:
                    self.show([Block(Kind.NOTE, "Nothing runs.")])
                else:
                    self.talk.cancel(run_id)
            case word if word.startswith("/") and word[1:].isalpha():
                self.show([Block(Kind.TROUBLE, f"{word} is no command. /help shows those there are.")])
            case _:
                self.talk.submit(text)


def _joined(lines: Sequence[Fragments], *, end: bool) -> FormattedText:
    found = FormattedText()
    for at, line in enumerate(lines):
        found += line
        if end or at < len(lines) - 1:
            found.append(("", "\n"))
    return found
