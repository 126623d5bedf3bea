"""The built-in model `demo`: needs no provider and no network. It demonstrates runs, tools, skills and steering.

Each step follows from the turns alone, so a run can resume after a crash. Lines of an input control it, for tests:
`demo: steps 5` (five steps with tools before the answer), `demo: slow 3` (each step takes three seconds), `demo: fail`,
`demo: cut` (the answer is cut off), `demo: reason` (it has reasoning and a source), `call: NAME JSON` (calls this tool;
several lines are several calls), `note: TEXT` as the first line (adds a note), and `demo: json VALUE` (the answer, if
the session has an output schema; further lines are the answers after corrections).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from quarterdeck.models.attachments import takes, text_of
from quarterdeck.models.context import CUT, NOT_CARRIED_OUT, SUMMARY_INSTRUCTIONS, USER, estimate_tokens, turn_tokens
from quarterdeck.models.model import (
    AssistantTurn,
    Attachment,
    AttachmentContent,
    CitedSource,
    CutOff,
    ModelFailure,
    OnText,
    Step,
    StepRequest,
    ToolCall,
    ToolResult,
    Turn,
    UserTurn,
    read_arguments,
)
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.skill_files import SKILL_MD, skills_offered

# A value that matches a JSON Schema, for the demo model. Simple schemas only; pure functions, no I/O.

_MAX_LEVELS = 20
# A schema can ask for any number of them.
_MAX_VALUES = 1000
_MAX_CHARACTERS = 4096


def example_value(schema: Any) -> Any:
    return _example(schema, schema, _MAX_LEVELS, iter(range(_MAX_VALUES)))


def _example(schema: Any, root: Any, levels: int, values_left: Iterator[int]) -> Any:
    """`values_left`: one for each value that may still be made."""
    if not isinstance(schema, dict) or levels == 0 or next(values_left, None) is None:
        return None
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for listed in ("enum", "examples"):
        if schema.get(listed):
            return schema[listed][0]
    for combined in ("anyOf", "oneOf", "allOf"):
        if schema.get(combined):
            return _example(schema[combined][0], root, levels - 1, values_left)
    if "$ref" in schema:
        return _example(_target(schema["$ref"], root), root, levels - 1, values_left)
    return _of_type(schema, root, levels, values_left)


def _of_type(schema: dict[str, Any], root: Any, levels: int, values_left: Iterator[int]) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            names = dict.fromkeys([*schema.get("required", []), *properties])
            return {name: _example(properties.get(name, {}), root, levels - 1, values_left) for name in names}
        case "array":
            count = min(schema.get("minItems", 0), _MAX_VALUES)
            return [_example(schema.get("items", {}), root, levels - 1, values_left) for _ in range(count)]
        case "string":
            length = min(schema.get("minLength", 0), _MAX_CHARACTERS)
            return "demo".ljust(length, "o")[: schema.get("maxLength", _MAX_CHARACTERS)]
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return True
    return None


def _target(reference: str, root: Any) -> Any:
    """What a reference into the schema itself, such as `#/$defs/name`, refers to."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


DEMO = "demo"
_TITLE = "Demo model"
_COMMAND = re.compile(
    r"^demo: (?:(fail)|steps (\d{1,2})|slow (\d{1,2}(?:\.\d{1,3})?)|(cut)|(reason))[ \t\r]*$", re.ASCII | re.MULTILINE
)
_NOTE = re.compile(r"note: (.*\S)")
_CALL = re.compile(r"^call: (\S{1,200})(?:[ \t\r](.*))?$", re.MULTILINE)
_JSON = re.compile(r"^demo: json (.+)$", re.MULTILINE)
_MAX_CALLS = 100
_REASONING = "I was asked for something.\n\nI am a demo, so I quote it."
_SOURCES = (CitedSource("Example Domain", "https://example.com/"),)
# Enough pieces to show streaming, few enough that a long answer does not take long.
_PIECES = 20
_PIECE_CHARACTERS = 24
_QUOTED_CHARACTERS = 300
_QUOTED_TURNS = 100
# Far more than a worker drives at a time.
_REMEMBERED_RUNS = 10_000


class _Commands(Struct, frozen=True):
    fail: bool
    tool_steps: int
    slow_seconds: float | None
    cut: bool
    reason: bool


class DemoModel:
    name = DEMO

    def __init__(self, pause_seconds: float, max_slow_seconds: float) -> None:
        """`max_slow_seconds`: for all steps of a run together."""
        self._pause_seconds = pause_seconds
        self._max_slow_seconds = max_slow_seconds
        # Seconds that runs have spent on `demo: slow`. Not from the turns: those of a long run are cut off.
        self._slow_seconds: dict[UUID | None, float] = {}

    def takes(self, media_type: str) -> bool:
        return takes(DEMO, media_type)

    async def step(self, request: StepRequest, on_text: OnText) -> Step:
        turns, tools = request.turns, request.tools
        if request.instructions == SUMMARY_INSTRUCTIONS:
            turn = AssistantTurn(_summary(turns), [])
            return Step(turn, sum(map(turn_tokens, turns)), turn_tokens(turn))
        run = turns[_run_start(turns) :]
        commands = _commands(run)
        if commands.fail:
            raise ModelFailure(f"{_TITLE}: it was told to fail.")
        done = sum(isinstance(turn, AssistantTurn) for turn in run)
        if tools and any(CUT in turn.text and _CALL.search(turn.text) for turn in _unanswered(run)):
            # Its arguments would not be those that were sent.
            turn = AssistantTurn(f"{_TITLE}: an input with calls did not fit into my context. I call nothing.", [])
        elif tools and (calls := _ordered_calls(run)):
            turn = _turn_with_calls(f"{_TITLE}: I call {', '.join(name for name, _ in calls)}.", calls)
        elif tools and done < commands.tool_steps:
            turn = _tool_step(done, commands.tool_steps, tools)
        elif request.output_schema is not None:
            turn = AssistantTurn(_json_answer(run, request.output_schema), [])
        else:
            turn = AssistantTurn(_answer(run), [])
        if commands.cut and not turn.tool_calls:
            turn = AssistantTurn(turn.text[: len(turn.text) // 2], [], cut_off=CutOff.LENGTH)
        await self._write(turn.text, on_text, self._granted(run, commands.slow_seconds))
        input_tokens = estimate_tokens(request.instructions) + sum(map(turn_tokens, turns))
        step = Step(turn, input_tokens, turn_tokens(turn))
        return msgspec.structs.replace(step, reasoning=_REASONING, sources=_SOURCES) if commands.reason else step

    def _granted(self, run: Sequence[Turn], slow_seconds: float | None) -> float | None:
        """The seconds that this step takes, counted as used."""
        if slow_seconds is None:
            return None
        run_id = next((turn.run_id for turn in reversed(run) if isinstance(turn, UserTurn)), None)
        used = self._slow_seconds.pop(run_id, 0.0)
        granted = min(slow_seconds, max(0.0, self._max_slow_seconds - used))
        self._slow_seconds[run_id] = used + granted
        if len(self._slow_seconds) > _REMEMBERED_RUNS:
            del self._slow_seconds[next(iter(self._slow_seconds))]
        return granted

    async def _write(self, text: str, on_text: OnText, slow_seconds: float | None) -> None:
        length = max(_PIECE_CHARACTERS, -(-len(text) // _PIECES))
        pieces = [text[at : at + length] for at in range(0, len(text), length)]
        pause_seconds = self._pause_seconds if slow_seconds is None else slow_seconds / len(pieces)
        for piece in pieces:
            await asyncio.sleep(pause_seconds)
            on_text(piece)


def _run_start(turns: Sequence[Turn]) -> int:
    """The position of the first input of the run that consumed the newest input."""
    inputs = [(at, turn) for at, turn in enumerate(turns) if isinstance(turn, UserTurn)]
    return next((at for at, turn in inputs if turn.run_id == inputs[-1][1].run_id), 0)


def _commands(run: Sequence[Turn]) -> _Commands:
    """The commands in the inputs of the run. Later commands override earlier ones."""
    fail, tool_steps, slow_seconds, cut, reason = False, 1, None, False, False
    for turn in run:
        if isinstance(turn, UserTurn):
            for found in _COMMAND.finditer(turn.text):
                fail = fail or found[1] is not None
                tool_steps = int(found[2] or tool_steps)
                slow_seconds = float(found[3]) if found[3] else slow_seconds
                cut = cut or found[4] is not None
                reason = reason or found[5] is not None
    return _Commands(fail, tool_steps, slow_seconds, cut, reason)


def _tool_step(done: int, tool_steps: int, tools: Sequence[ToolSpec]) -> AssistantTurn:
    calls: list[tuple[str, dict[str, Any]]] = [(tool.name, {}) for tool in tools if tool.name == BuiltIn.CURRENT_TIME]
    skills = skills_offered(tools) if done == 0 else []
    calls += [(BuiltIn.READ_SKILL_FILE, {"skill": name, "path": SKILL_MD}) for name in skills]
    reading = f" and read {len(skills)} skill{'s' * (len(skills) > 1)}" if skills else ""
    text = f"{_TITLE}: step {done + 1} of {tool_steps + 1}. I look up the time{reading}."
    return _turn_with_calls(text, calls)


def _ordered_calls(run: Sequence[Turn]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the inputs since the last answer ask for. A retry makes those again that were not carried out."""
    interrupted = {turn.call_id for turn in run if isinstance(turn, ToolResult) and turn.content == NOT_CARRIED_OUT}
    last = next((turn for turn in reversed(run) if isinstance(turn, AssistantTurn)), None)
    made = [] if last is None else last.tool_calls
    calls: list[tuple[str, dict[str, Any]]] = [(call.name, call.arguments) for call in made if call.id in interrupted]
    for turn in _unanswered(run):
        if note := _NOTE.match(turn.text):
            calls.append((BuiltIn.ADD_NOTE, {"text": note[1]}))
        calls += [(found[1], read_arguments((found[2] or "").strip())) for found in _CALL.finditer(turn.text)]
    return calls[:_MAX_CALLS]


def _unanswered(run: Sequence[Turn]) -> list[UserTurn]:
    answers = [at for at, turn in enumerate(run) if isinstance(turn, AssistantTurn)]
    return [turn for turn in run[answers[-1] + 1 if answers else 0 :] if isinstance(turn, UserTurn)]


def _turn_with_calls(text: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> AssistantTurn:
    return AssistantTurn(text, [ToolCall(f"demo_{uuid4().hex}", name, arguments) for name, arguments in calls])


def _json_answer(run: Sequence[Turn], schema: dict[str, Any]) -> str:
    """What the inputs give, one line for each answer; otherwise a value that matches the schema."""
    given = [line for turn in run if isinstance(turn, UserTurn) for line in _JSON.findall(turn.text)]
    answers = sum(isinstance(turn, AssistantTurn) and not turn.tool_calls for turn in run)
    if given:
        return str(given[min(answers, len(given) - 1)]).rstrip(" \t\r")
    return msgspec.json.encode(example_value(schema)).decode()


def _answer(run: Sequence[Turn]) -> str:
    answers = [at for at, turn in enumerate(run) if isinstance(turn, AssistantTurn)]
    working_from = answers[0] if answers else len(run)
    asked = [turn.text for turn in run[:working_from] if isinstance(turn, UserTurn)]
    steering = [turn.text for turn in run[working_from:] if isinstance(turn, UserTurn)]
    results = [f"{turn.name}: {turn.content}" for turn in run if isinstance(turn, ToolResult)]
    parts = [f"{_TITLE}: I am built in and understand nothing, but here is what reached me."]
    parts += _quoted("You asked:", asked)
    parts += _quoted("You attached:", [line for turn in run if isinstance(turn, UserTurn) for line in _attached(turn)])
    parts += _quoted("While I was working you steered me with:", steering)
    parts += _quoted("My tools said:", results)
    return "\n\n".join(parts)


def _summary(turns: Sequence[Turn]) -> str:
    texts = [turn.text for turn in turns if isinstance(turn, UserTurn)]
    asked = [line.removeprefix(USER) for line in "\n".join(texts).splitlines() if line.startswith(USER)]
    return "\n\n".join([f"{_TITLE}: a summary.", *_quoted("The user had asked:", asked)])


def _attached(turn: UserTurn) -> list[str]:
    return [_received(*pair) for pair in zip(turn.attachments, turn.contents, strict=False)]


def _received(attachment: Attachment, content: AttachmentContent) -> str:
    where = "" if attachment.path is None else f", at {attachment.path}"
    described = f"{attachment.name} ({attachment.media_type}, {attachment.bytes} bytes{where})"
    if content.data is None:
        return f"{described}: {content.note}"
    text = text_of(attachment, content)
    if text is None:
        return f"{described}: I got its {len(content.data)} bytes."
    return f"{described}: {text.strip().partition(chr(10))[0] or 'empty'}"


def _quoted(title: str, texts: Sequence[str]) -> list[str]:
    lines = [f"> {_short(text)}" for text in texts[:_QUOTED_TURNS]]
    if len(texts) > _QUOTED_TURNS:
        lines.append(f"> … and {len(texts) - _QUOTED_TURNS} more")
    return ["\n".join([title, *lines])] if texts else []


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTED_CHARACTERS else f"{line[:_QUOTED_CHARACTERS]}…"
