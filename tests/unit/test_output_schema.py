"""Answers against schemas of callers, also hostile ones, and the values that the demo model makes up."""

import socket
from typing import Any

import msgspec
import pytest

from quarterdeck.agents import output_schema
from quarterdeck.agents.configuration_rules import check_json
from quarterdeck.agents.example_value import example_value
from quarterdeck.agents.linear_patterns import Pattern
from quarterdeck.agents.model import ModelFailure
from quarterdeck.agents.output_schema import OutputSchema
from quarterdeck.core.errors import ServiceError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 3},
        "word": {"type": "string", "minLength": 6},
        "code": {"type": "string", "pattern": "^(a+)+$"},
        "kinds": {"type": "array", "items": {"$ref": "#/$defs/kind"}, "minItems": 2},
        "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["x", "y"]}},
}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"count": 3, "code": "aa", "kinds": ["x", "y"]}', None),
        ('{"count": 2}', "$.count: 2 is less than the minimum of 3."),
        ("{}", "$: 'count' is a required property."),
        ('{"count": 3, "more": 1}', "$: Additional properties are not allowed ('more' was unexpected)."),
        ('{"count": 3, "kinds": ["x", "z"]}', "$.kinds[1]: 'z' is not one of ['x', 'y']."),
        # Exponential for an engine that goes back.
        (f'{{"count": 3, "code": "{"a" * 60}b"}}', f"$.code: '{'a' * 60}b' does not match '^(a+)+$'."),
        ('{"count": NaN}', "It is not JSON: JSON is malformed: invalid character (byte 10)."),
        ("[" * 100_000, "It is not JSON: "),
        ('"' + "x" * 1024 * 1024 + '"', "It is longer than 1048576 bytes."),
    ],
)
def test_what_does_not_match_is_told(answer: str, reason: str | None) -> None:
    mismatch = OutputSchema(SCHEMA).mismatch(answer)
    assert mismatch == reason or (reason is not None and mismatch is not None and mismatch.startswith(reason))


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        (' {"a": 1}\n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("```\n1```", "1"),
        ('Here: ```json\n{"a": 1}\n```', 'Here: ```json\n{"a": 1}\n```'),
    ],
)
def test_a_code_fence_is_removed(answer: str, cleaned: str) -> None:
    assert OutputSchema({}).cleaned(answer) == cleaned


def test_schemas_of_callers_are_bounded() -> None:
    """Nothing is fetched, and nothing takes long, also if a session had such a schema."""
    many = {f"{level}": {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(40)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        hostile: list[tuple[dict[str, Any], str]] = [
            ({"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/"}, "Unresolvable"),
            ({"$ref": "#"}, "recursion"),
            ({"$ref": "#/$defs/0", "$defs": many | {"40": {}}}, "too many checks"),
            ({"additionalProperties": False, "patternProperties": {"^(a+)+$": {}}}, "not supported"),
            ({"properties": {"a": {"pattern": "(?=a)"}}}, "not supported"),
        ]
        for schema, reason in hostile:
            with pytest.raises(ModelFailure, match=reason):
                OutputSchema(schema).mismatch(msgspec.json.encode({"a": "a", "a" * 40 + "b": 1}).decode())
        with pytest.raises(BlockingIOError):
            listener.accept()
    for schema, _ in hostile[3:]:
        with pytest.raises(ServiceError, match="not supported"):
            check_json([], schema)


@pytest.mark.parametrize(
    "schema",
    [SCHEMA, {"type": "string", "maxLength": 2}, {"const": 7}, {"type": ["null", "string"]}, {"type": "number"}, {}],
)
def test_the_demo_model_answers_with_a_value_that_matches(schema: dict[str, Any]) -> None:
    plain = msgspec.json.decode(msgspec.json.encode(schema).replace(b"^(a+)+$", b"^demo$"))
    assert OutputSchema(plain).mismatch(msgspec.json.encode(example_value(plain)).decode()) is None


def test_patterns_that_take_long_to_compile_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is below the limit of the engine, and takes a tenth of a second."""
    patterns = [{"pattern": f"\\w{{{number}}}"} for number in range(150, 190)]
    with pytest.raises(ServiceError, match="its patterns are too large"):
        check_json([], {"allOf": patterns})

    # A pattern is compiled once, not for each value.
    compiled: list[str] = []
    compile_pattern = output_schema._compiled

    def recorded(pattern: str) -> Pattern:
        compiled.append(pattern)
        return compile_pattern(pattern)

    monkeypatch.setattr(output_schema, "_compiled", recorded)
    schema = OutputSchema({"items": {"pattern": "^a+$"}})
    assert schema.mismatch('["a", "aa", "aaa"]') is None
    assert compiled == ["^a+$"]


def test_comparisons_of_values_are_bounded() -> None:
    different = [1, True, "1", [1], ["array", 1], {"a": 1}, {"a": True}, None, 0, False]
    unique = OutputSchema({"uniqueItems": True})
    assert unique.mismatch(msgspec.json.encode(different).decode()) is None
    for one in ([1, 1.0], [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]):
        assert "non-unique" in str(unique.mismatch(msgspec.json.encode(one).decode()))
    # Comparing each with each would take minutes.
    many = msgspec.json.encode([number if number % 2 else {"a": number} for number in range(4_000)]).decode()
    assert unique.mismatch(many) is None
    for schema in ({"allOf": [{"uniqueItems": True}] * 100}, {"items": {"enum": [*range(12_000)]}}):
        with pytest.raises(ModelFailure, match="too many checks"):
            OutputSchema(schema).mismatch(many)
