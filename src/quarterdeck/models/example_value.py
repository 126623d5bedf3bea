"""A value that matches a JSON Schema, for the demo model. Simple schemas only; pure functions, no I/O."""

from collections.abc import Iterator
from typing import Any

_MAX_LEVELS = 20
# A schema can ask for any number of them.
_MAX_VALUES = 1000
_MAX_CHARACTERS = 4096


def example_value(schema: Any) -> Any:
    return _example(schema, schema, _MAX_LEVELS, iter(range(_MAX_VALUES)))


def _example(schema: Any, root: Any, levels: int, places: Iterator[int]) -> Any:
    """`places`: one for each value that may still be made."""
    if not isinstance(schema, dict) or levels == 0 or next(places, None) is None:
        return None
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for listed in ("enum", "examples"):
        if schema.get(listed):
            return schema[listed][0]
    for combined in ("anyOf", "oneOf", "allOf"):
        if schema.get(combined):
            return _example(schema[combined][0], root, levels - 1, places)
    if "$ref" in schema:
        return _example(_target(schema["$ref"], root), root, levels - 1, places)
    return _of_type(schema, root, levels, places)


def _of_type(schema: dict[str, Any], root: Any, levels: int, places: Iterator[int]) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            names = dict.fromkeys([*schema.get("required", []), *properties])
            return {name: _example(properties.get(name, {}), root, levels - 1, places) for name in names}
        case "array":
            count = min(schema.get("minItems", 0), _MAX_VALUES)
            return [_example(schema.get("items", {}), root, levels - 1, places) for _ in range(count)]
        case "string":
            length = min(schema.get("minLength", 0), _MAX_CHARACTERS)
            return "demo".ljust(length, "o")[: schema.get("maxLength", _MAX_CHARACTERS)]
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return True
    return None


def _target(reference: str, root: Any) -> Any:
    """Of a reference into the schema itself, such as `#/$defs/name`."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
