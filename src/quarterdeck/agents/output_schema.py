"""Answers that must be JSON of a certain form: docs/decisions/0076. Pure functions, no I/O.

Schemas come from callers and are not trusted: nothing is fetched, patterns run in linear time, and the number of checks
is bounded.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from quarterdeck.agents.json_schema_library import schema_validator
from quarterdeck.agents.model import ModelFailure

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

    from quarterdeck.agents.linear_patterns import Pattern

# Of keywords, for one answer. About a second.
_MAX_CHECKS = 50_000
# Entries of a keyword, such as those of an enum, that take as long as a check.
_ENTRIES_OF_CHECK = 20
_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_ERRORS = 50
# Processor time for compiling all patterns of a schema. Usual ones take one or two milliseconds; one with large
# repetitions takes a tenth of a second, during which no other thread runs.
_COMPILE_SECONDS = 0.2
_REASON_CHARACTERS = 500
_FENCED = re.compile(r"```[a-zA-Z0-9]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
# Python would match their patterns, in exponential time.
_UNSUPPORTED = ("patternProperties", "unevaluatedProperties", "$dynamicRef")

_NOT_APPLIED = "output_schema cannot be applied: "
_INSTRUCTIONS = (
    "Your final answer must be one JSON value that matches the following JSON Schema, without any other text and "
    "without a code fence:\n"
)


class OutputSchema:
    def __init__(self, schema: dict[str, Any]) -> None:
        base = schema_validator()
        from jsonschema.validators import extend
        from referencing import Registry

        self.schema = schema
        self._checks = 0
        self._patterns: dict[str, Pattern] = {}
        keywords = {name: self._counted(check) for name, check in base.VALIDATORS.items()}
        keywords |= dict.fromkeys(_UNSUPPORTED, self._counted(_refuse)) | {
            "pattern": self._counted(self._pattern),
            "uniqueItems": self._counted(self._unique_items),
        }
        # An empty registry: otherwise a remote $ref would be fetched.
        self._validator = extend(base, keywords)(schema, registry=Registry())  # type: ignore[no-untyped-call]

    def cleaned(self, answer: str) -> str:
        """The JSON, if the model has put it into a code fence."""
        text = answer.strip()
        fenced = _FENCED.fullmatch(text)
        return text if fenced is None else fenced[1].strip()

    def mismatch(self, answer: str) -> str | None:
        """Why the answer does not match, in one sentence. None: it does. Raises ModelFailure if that cannot be told."""
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        if len(answer.encode("utf-8", "replace")) > _MAX_ANSWER_BYTES:
            return f"It is longer than {_MAX_ANSWER_BYTES} bytes."
        try:
            value = msgspec.json.decode(answer)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as fault:
            return f"It is not JSON: {_short(str(fault))}."
        self._checks = 0
        try:
            error = best_match(islice(self._validator.iter_errors(value), _MAX_ERRORS))
        except (Unresolvable, RecursionError) as fault:
            raise ModelFailure(f"output_schema cannot be applied: {_short(str(fault))}.") from None
        return None if error is None else f"{error.json_path[:200]}: {_short(error.message)}."

    def _counted(self, check: Callable[..., Any]) -> "Callable[..., Iterator[ValidationError]]":
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> "Iterator[ValidationError]":
            self._count(1 + (len(value) // _ENTRIES_OF_CHECK if isinstance(value, list | dict) else 0))
            # additionalProperties matches the patterns too.
            if isinstance(schema, dict) and "patternProperties" in schema:
                _refuse()
            yield from check(validator, value, instance, schema) or ()

        return counted

    def _count(self, checks: int) -> None:
        self._checks += checks
        if self._checks > _MAX_CHECKS:
            raise ModelFailure("output_schema cannot be applied: it needs too many checks for this answer.")

    def _unique_items(self, _: Any, unique: bool, instance: Any, __: Any) -> "Iterator[ValidationError]":
        """jsonschema compares each item with each."""
        from jsonschema.exceptions import ValidationError

        if unique and isinstance(instance, list) and len(set(map(self._hashable, instance))) < len(instance):
            yield ValidationError(f"{_short(repr(instance))} has non-unique elements")

    def _hashable(self, value: Any) -> Any:
        """Equal if the JSON values are equal: 1 and 1.0 are, 1 and true are not."""
        self._count(1)
        if isinstance(value, dict):
            return "object", frozenset((name, self._hashable(one)) for name, one in value.items())
        if isinstance(value, list):
            return "array", tuple(map(self._hashable, value))
        return ("boolean", value) if isinstance(value, bool) else value

    def _pattern(self, _: Any, pattern: str, instance: Any, __: Any) -> "Iterator[ValidationError]":
        from jsonschema.exceptions import ValidationError

        if not isinstance(instance, str):
            return
        # Compiling takes longer than matching.
        if pattern not in self._patterns:
            self._patterns[pattern] = _compiled(pattern)
        if not self._patterns[pattern].matches(instance):
            yield ValidationError(f"{_short(repr(instance))} does not match {_short(repr(pattern))}")


def output_instructions(schema: dict[str, Any]) -> str:
    """For models without structured output."""
    return _INSTRUCTIONS + msgspec.json.encode(schema).decode()


def unsupported(parts: Iterable[Any]) -> str | None:
    """Why a schema with these objects cannot be applied. None: it can, as far as can be told without an answer."""
    patterns: set[str] = set()
    for part in parts:
        if isinstance(part, dict):
            for keyword in _UNSUPPORTED:
                if keyword in part:
                    return f"{keyword} is not supported."
            if isinstance(part.get("pattern"), str):
                patterns.add(part["pattern"])
    return _not_compiled(sorted(patterns))


def _not_compiled(patterns: Iterable[str]) -> str | None:
    until = time.thread_time() + _COMPILE_SECONDS
    for pattern in patterns:
        try:
            _compiled(pattern)
        except ModelFailure as fault:
            return str(fault).removeprefix(_NOT_APPLIED)
        if time.thread_time() > until:
            return "its patterns are too large. Use smaller repetitions."
    return None


def _compiled(pattern: str) -> "Pattern":
    from quarterdeck.agents.linear_patterns import Pattern, UnsupportedPattern

    try:
        return Pattern(pattern)
    except UnsupportedPattern:
        raise ModelFailure(f"{_NOT_APPLIED}the pattern {_short(pattern)} is not supported.") from None


def _refuse(*_: object) -> None:
    raise ModelFailure(f"output_schema cannot be applied: {', '.join(_UNSUPPORTED)} are not supported.")


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _REASON_CHARACTERS else f"{line[:_REASON_CHARACTERS]}…"
