"""Answers against schemas of callers, also hostile ones, and the values that the demo model makes up."""

import re
import socket
from typing import Any

import msgspec
import pytest

from quarterdeck.models.demo import example_value
from quarterdeck.models.model import ModelFailure
from quarterdeck.models.output_schema import OutputSchema, SchemaChecks, TooCostly

OWNER = "workspace"
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


def applied(schema: dict[str, Any]) -> OutputSchema:
    return OutputSchema(SchemaChecks(), OWNER, schema)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"count": 3, "code": "aa", "kinds": ["x", "y"]}', None),
        ('{"count": 2}', "$.count: 2 is less than the minimum of 3."),
        ("{}", '$: "count" is a required property.'),
        ('{"count": 3, "more": 1}', "$: Additional properties are not allowed ('more' was unexpected)."),
        ('{"count": 3, "kinds": ["x", "z"]}', '$.kinds[1]: "z" is not one of "x" or "y".'),
        # Exponential for an engine that goes back.
        (f'{{"count": 3, "code": "{"a" * 60}b"}}', f'$.code: "{"a" * 60}b" does not match "^(a+)+$".'),
        ('{"count": 3, "either": 1}', '$.either: 1 is not of type "boolean".'),
        ('{"count": NaN}', "It is not JSON: NaN is no number."),
        ("[" * 100_000, "It is not JSON: "),
        ("[" * 300 + "]" * 300, "It is not JSON: "),
        ('"\\ud800"', "It is not JSON: "),
        ('"' + "x" * 1024 * 1024 + '"', "It is longer than 1048576 bytes."),
    ],
)
async def test_what_does_not_match_is_told(answer: str, reason: str | None) -> None:
    mismatch = await applied(SCHEMA).mismatch(answer)
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
    assert applied({}).cleaned(answer) == cleaned


@pytest.mark.long
async def test_schemas_of_callers_are_bounded() -> None:
    """Nothing is fetched, and nothing takes long, also if a session had such a schema."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        invalid: list[tuple[dict[str, Any], str]] = [
            ({"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/"}, "cannot fetch"),
            ({"$ref": "#/$defs/none"}, "does not exist"),
            ({"patternProperties": {"(?=a)": {}}}, 'is not a "regex"'),
            ({"properties": {"a": {"pattern": "(?=a)"}}}, r"\$.properties.a.pattern: .* is not a"),
            ({"type": "strin"}, '"strin" is not'),
        ]
        for schema, reason in invalid:
            assert re.search(reason, str(await SchemaChecks().fault(OWNER, schema)))
            with pytest.raises(ModelFailure, match=reason):
                await applied(schema).mismatch("1")
        with pytest.raises(BlockingIOError):
            listener.accept()
    with pytest.raises(TooCostly):
        await SchemaChecks().fault(OWNER, {"pattern": "(?i)" + "[Ā-\uffff]" * 20_000})


@pytest.mark.long
async def test_answers_that_take_long_to_check() -> None:
    many = msgspec.json.encode([number if number % 2 else {"a": number} for number in range(4_000)]).decode()
    schema = applied({"uniqueItems": True, "items": {"patternProperties": {"^(a+)+$": True}}})
    assert await schema.mismatch(many) is None
    # 2 to the power of 40 checks.
    levels = {f"{level}": {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(40)}
    with pytest.raises(ModelFailure, match="takes too long"):
        await applied({"$ref": "#/$defs/0", "$defs": levels | {"40": {}}}).mismatch("1")


@pytest.mark.parametrize(
    "schema",
    [SCHEMA, {"type": "string", "maxLength": 2}, {"const": 7}, {"type": ["null", "string"]}, {"type": "number"}, {}],
)
async def test_the_demo_model_answers_with_a_value_that_matches(schema: dict[str, Any]) -> None:
    plain = msgspec.json.decode(msgspec.json.encode(schema).replace(b"^(a+)+$", b"^demo$"))
    assert await applied(plain).mismatch(msgspec.json.encode(example_value(plain)).decode()) is None
