"""A value that matches a JSON Schema, for the demo model. Simple schemas only; pure functions, no I/O."""

from typing import Any

_MAX_LEVELS = 20


def example_value(schema: Any, root: Any = None, levels: int = _MAX_LEVELS) -> Any:
    root = schema if root is None else root
    if not isinstance(schema, dict) or levels == 0:
        return None
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for listed in ("enum", "examples"):
        if schema.get(listed):
            return schema[listed][0]
    for combined in ("anyOf", "oneOf", "allOf"):
        if schema.get(combined):
            return example_value(schema[combined][0], root, levels - 1)
    if "$ref" in schema:
        return example_value(_target(schema["$ref"], root), root, levels - 1)
    return _of_type(schema, root, levels)


def _of_type(schema: dict[str, Any], root: Any, levels: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            names = dict.fromkeys([*schema.get("required", []), *properties])
            return {name: example_value(properties.get(name, {}), root, levels - 1) for name in names}
        case "array":
            return [example_value(schema.get("items", {}), root, levels - 1)] * schema.get("minItems", 0)
        case "string":
            return "demo".ljust(schema.get("minLength", 0), "o")[: schema.get("maxLength", 4096)]
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
