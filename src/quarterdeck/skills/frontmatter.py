"""Reads the frontmatter of SKILL.md: YAML between two `---` lines, as values that JSON and jsonb can represent.

Built from parser events: PyYAML's composer recurses in C, so that 30,000 opening brackets crash the process, and its
constructor creates dates and other objects that JSON cannot represent.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.model import BundleError, shown

NAME_LENGTH = 64
DESCRIPTION_LENGTH = 1024

_PATH = "SKILL.md"
_OPENING = re.compile(r"---[ \t]*\r?\n")
_CLOSING = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# Larger JSON numbers lose precision in some readers.
_EXACT = 2**53
# Longer than any exact number. A longer text stays text and never reaches int().
_NUMBER_LENGTH = 40

# `key: words: more words` with indented continuation lines, where the words start a plain scalar.
_TOP_LEVEL_PLAIN = re.compile(
    r"""^([\w.-]+[ \t]*:[ \t]+)((?:[^\s'"\[\]{}>|*&!%#`@,?:-]|[-?:](?=\S)).*(?:\n(?:[ \t\r].*)?)*)""",
    re.MULTILINE,
)
_COLON = re.compile(r":(?:\s|$)")


def read_frontmatter(skill_md: bytes, limits: BundleSettings) -> dict[str, Any]:
    """All keys as given; `name` and `description` are checked."""
    read = _read(skill_md, limits)
    for fault in _faults(read):
        raise fault
    return read.values


def frontmatter_faults(skill_md: bytes, limits: BundleSettings) -> list[BundleError]:
    """All errors that `read_frontmatter` would raise, as far as they can be found together."""
    try:
        return list(_faults(_read(skill_md, limits)))
    except BundleError as fault:
        return [fault]


def _read(skill_md: bytes, limits: BundleSettings) -> "_Mapping":
    block = _frontmatter_block(_decoded(skill_md), limits)
    try:
        return _read_mapping(block, limits)
    except yaml.YAMLError as fault:
        # A colon in an unquoted description is the most common mistake, and other tools accept it.
        try:
            return _read_mapping(_quote_colons(block), limits)
        except yaml.YAMLError:
            raise _not_yaml(fault, block) from fault


class _Mapping(Struct, frozen=True):
    values: dict[str, Any]
    # Line numbers in SKILL.md of the top-level keys.
    lines: dict[str, int]


class _Open(Struct):
    """A collection under construction. `key` is the mapping key whose value comes next."""

    values: dict[str, Any] | list[Any]
    key: str | None = None

    def add(self, value: Any) -> None:
        if isinstance(self.values, list):
            self.values.append(value)
        else:
            assert self.key is not None
            self.values[self.key] = value
            self.key = None

    def wants_key(self) -> bool:
        return isinstance(self.values, dict) and self.key is None


def _decoded(skill_md: bytes) -> str:
    if skill_md.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _fault("the file is UTF-16. Save it as UTF-8.", line=1)
    try:
        text = skill_md.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise _fault("the file is not UTF-8.", line=skill_md.count(b"\n", 0, fault.start) + 1) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _fault("the file has a NUL character (U+0000). Is it UTF-16?", line=line)
    return text.removeprefix("\ufeff")


def _frontmatter_block(text: str, limits: BundleSettings) -> str:
    opening = _OPENING.match(text)
    if opening is None:
        raise _fault("no frontmatter found. The first line must be ---.", line=1)
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise _fault("the frontmatter has no closing --- line.", line=1)
    block = text[opening.end() : closing.start()]
    if len(block.encode()) > limits.frontmatter_bytes:
        raise _fault(f"the frontmatter is larger than {limits.frontmatter_bytes} bytes.", line=1)
    return block


def _read_mapping(block: str, limits: BundleSettings) -> _Mapping:
    """Raises yaml.YAMLError for invalid YAML, BundleError for YAML that is not accepted."""
    events = yaml.CBaseLoader(block)
    read = _Mapping({}, {})
    stack: list[_Open] = []
    nodes, documents = 0, 0
    while (event := events.get_event()) is not None:
        line = _line(event)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _second_document(line)
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            _check_node(event, nodes, limits, line)
            if not stack:
                _check_root(event, line)
                stack.append(_Open(read.values))
            elif isinstance(event, yaml.ScalarEvent):
                if len(stack) == 1 and stack[0].wants_key():
                    read.lines[event.value] = line
                _add_scalar(stack[-1], event, line)
            else:
                stack.append(_opened(stack, event, limits, line))
    if not documents:
        raise _fault("the frontmatter is empty.", line=1)
    return read


def _check_node(event: yaml.NodeEvent, nodes: int, limits: BundleSettings, line: int) -> None:
    if nodes > limits.frontmatter_nodes:
        raise _fault(f"the frontmatter has more than {limits.frontmatter_nodes} nodes.", line=line)
    # Aliases can expand without bound, and tags mean different things to different readers.
    if event.anchor is not None:
        kind = "an alias" if isinstance(event, yaml.AliasEvent) else "an anchor"
        raise _fault(f'the frontmatter has {kind}, "{shown(event.anchor)}".', line=line)
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        raise _fault(f'the frontmatter has an explicit tag, "{shown(event.tag)}".', line=line)


def _check_root(event: yaml.NodeEvent, line: int) -> None:
    if not isinstance(event, yaml.MappingStartEvent):
        raise _fault("the frontmatter is not a mapping of keys to values.", line=line)


def _opened(stack: list[_Open], event: yaml.NodeEvent, limits: BundleSettings, line: int) -> _Open:
    if len(stack) >= limits.frontmatter_depth:
        raise _fault(f"the frontmatter is nested deeper than {limits.frontmatter_depth} levels.", line=line)
    if stack[-1].wants_key():
        raise _fault("the frontmatter has a key that is not a scalar.", line=line)
    values: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
    stack[-1].add(values)
    return _Open(values)


def _add_scalar(parent: _Open, event: yaml.ScalarEvent, line: int) -> None:
    # The escape "\0" in a quoted scalar passes the check of the file.
    if "\0" in event.value:
        raise _fault("the frontmatter has a NUL character (U+0000).", line=line)
    if not parent.wants_key():
        # implicit[0] is true for a plain scalar, without quotes or block indicator.
        parent.add(_plain(event.value) if event.implicit[0] else event.value)
    elif event.value in parent.values:
        raise _fault(f'the frontmatter has the key "{shown(event.value)}" twice.', line=line)
    else:
        # JSON keys are text, so `1` and "1" are the same key.
        parent.key = event.value


def _plain(text: str) -> str | int | float | bool | None:
    """YAML 1.2 core schema, except that values which JSON or jsonb would change stay text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _NUMBER_LENGTH:
        return text
    number: int | float
    if _INTEGER.fullmatch(text):
        # Base 0 would reject leading zeros, which YAML allows.
        number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    elif _FLOAT.fullmatch(text):
        number = float(text)
    else:
        return text
    # jsonb writes a float of this size as an integer, so both have one limit. It excludes infinity too.
    return number if abs(number) <= _EXACT else text


def _quote_colons(block: str) -> str:
    """Quote top-level plain scalars that contain a colon. Line numbers stay the same."""

    def quoted(match: re.Match[str]) -> str:
        start, scalar = match[1], match[2]
        words = scalar.rstrip()
        if not _COLON.search(words):
            return match[0]
        # Up to the end of the line, including "#": other tools do so, and no word of a description is lost.
        return "".join((start, "'", words.replace("'", "''"), "'", scalar[len(words) :]))

    return _TOP_LEVEL_PLAIN.sub(quoted, block)


def _faults(read: _Mapping) -> Iterator[BundleError]:
    yield from (fault for fault in (_name_fault(read), _description_fault(read)) if fault is not None)


def _name_fault(read: _Mapping) -> BundleError | None:
    name, line = read.values.get("name"), read.lines.get("name")
    if name is None:
        return _fault("the frontmatter has no name.", line=line)
    if not isinstance(name, str):
        return _fault("the name is not a string.", line=line)
    if len(name) > NAME_LENGTH:
        return _fault(f"the name is longer than {NAME_LENGTH} characters.", line=line)
    if not _NAME.fullmatch(name):
        return _fault(f'invalid name "{shown(name)}". Use a-z, 0-9 and single hyphens between them.', line=line)
    return None


def _description_fault(read: _Mapping) -> BundleError | None:
    description, line = read.values.get("description"), read.lines.get("description")
    if description is None:
        return _fault("the frontmatter has no description.", line=line)
    if not isinstance(description, str):
        return _fault("the description is not a string.", line=line)
    # The line break at the end of a block scalar does not count.
    words = description.strip()
    if not words:
        return _fault("the description is empty.", line=line)
    if len(words) > DESCRIPTION_LENGTH:
        return _fault(f"the description is longer than {DESCRIPTION_LENGTH} characters.", line=line)
    return None


def _not_yaml(fault: yaml.YAMLError, block: str) -> BundleError:
    if isinstance(fault, yaml.reader.ReaderError):
        line = block.encode().count(b"\n", 0, fault.position) + 2
        return _fault("the frontmatter has a character that YAML does not allow.", line=line)
    if not isinstance(fault, yaml.MarkedYAMLError):
        return _fault("the frontmatter is not YAML.")
    mark = fault.problem_mark or fault.context_mark
    line_found = None if mark is None else mark.line + 2
    if fault.problem == "did not find expected <document start>":
        return _second_document(line_found)
    return _fault(f"the frontmatter is not YAML: {shown(fault.problem or 'it cannot be read')}.", line=line_found)


def _second_document(line: int | None) -> BundleError:
    return _fault("the frontmatter has more than one document.", line=line)


def _line(event: yaml.Event) -> int:
    # The parser counts from 0, and its text starts on line 2 of SKILL.md.
    return 2 if event.start_mark is None else event.start_mark.line + 2


def _fault(reason: str, *, line: int | None = None) -> BundleError:
    return BundleError(reason, path=_PATH, line=line)
